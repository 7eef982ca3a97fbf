// SPDX-License-Identifier: Apache-2.0
#include "box.h"
#include "../expect.h"

#include <stdio.h>

static uint64_t versions[BOX_FILES]; /* last sealed */
static struct {
    uint64_t ino, version, keep, size;
    struct box_below content;
} pinned[BOX_FILES];

/* The background touches all memory first, so that room is the same in every run. */
static void wait_ready(struct stage *stage)
{
    for (;;) {
        struct stage_usage usage = stage_usage(stage);
        if (usage.ready_bytes == usage.free_bytes)
            return;
        (void)usleep(1000);
    }
}

void box_create(struct box *box, uint64_t size_bytes)
{
    *box = (struct box){.epoch = 1};
    memset(versions, 0, sizeof versions);
    memset(pinned, 0, sizeof pinned);
    strcpy(box->dir, "/dev/shm/cairn-test-XXXXXX");
    cr_assert_not_null(mkdtemp(box->dir));
    box->config =
        (struct stage_config){.dir = box->dir, .size_bytes = size_bytes, .epoch = box->epoch};
    memset(box->config.store, 0xab, sizeof box->config.store);
    memset(box->config.name, 0xab, sizeof box->config.name);
    for (unsigned i = 1; i < BOX_FILES; i++)
        box->below[i].exists = true;
    assert_i64(stage_create(&box->config, &box->stage), 0);
    wait_ready(box->stage);
}

void box_remove(struct box *box)
{
    stage_close(box->stage, true);
    stage_remove_files(box->dir, box->config.name);
    assert_i64(rmdir(box->dir), 0);
    for (unsigned i = 0; i < BOX_FILES; i++) {
        free(box->below[i].bytes);
        free(pinned[i].content.bytes);
    }
    for (unsigned i = 0; i < box->chunk_count; i++)
        free(box->chunks[i].bytes);
    free(box->pending);
}

void box_die(struct box *box)
{
    stage_close(box->stage, false);
    box->stage = NULL;
    for (unsigned i = 0; i < BOX_FILES; i++) {
        free(pinned[i].content.bytes);
        memset(&pinned[i], 0, sizeof pinned[i]);
    }
}

static uint64_t durable(uint64_t ino, uint64_t *ret_size, void *arg)
{
    struct box *box = arg;
    *ret_size = 0;
    if (ino >= BOX_FILES || !box->below[ino].exists)
        return UINT64_MAX;
    *ret_size = box->below[ino].size;
    return box->below[ino].version;
}

static uint32_t chunk_number(const struct chunk_name *name)
{
    uint32_t number;
    memcpy(&number, name->bytes, sizeof number);
    return number;
}

static uint64_t pack_of(const struct chunk_name *name, void *arg)
{
    struct box *box = arg;
    uint32_t number = chunk_number(name);
    return number < box->chunk_count ? box->chunks[number].pack : 0;
}

/* Versions whose SEAL is in the log were sealed; the others are what is below. */
static int note_seal(const struct record *rec, void *arg)
{
    (void)arg;
    if (rec->type == REC_SEAL && rec->ino < BOX_FILES && rec->version > versions[rec->ino])
        versions[rec->ino] = rec->version;
    return 0;
}

int box_reopen(struct box *box)
{
    int r = stage_open(&box->config, &box->stage);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < BOX_FILES; i++)
        versions[i] = box->below[i].version;
    stage_begin_recovery(box->stage, ++box->epoch);
    r = stage_replay_log(box->stage, note_seal, box);
    struct stage_rebuild how = {.durable = durable, .pack_of = pack_of, .arg = box};
    return r < 0 ? r : stage_rebuild_layers(box->stage, &how);
}

void box_adopt(struct box *box)
{
    assert_i64(stage_adopt(box->stage, box->epoch, false), 0);
    assert_i64(box_compact(box), 0);
    assert_i64(stage_commit_epoch(box->stage, box->epoch), 0);
    wait_ready(box->stage);
}

void box_recover(struct box *box)
{
    assert_i64(box_reopen(box), 0);
    box_adopt(box);
}

int box_compact(struct box *box)
{
    return stage_log_compact(box->stage, box->pending, box->pending_len, false);
}

/* A write whose bytes come in the slab, or without one from `data`. */
static int write_with(struct box *box, uint32_t slab, uint64_t ino, uint64_t offset,
                      const void *data, uint32_t length)
{
    struct stage_write w = {.ino = ino,
                            .offset = offset,
                            .length = length,
                            .slab = slab,
                            .data = slab == SLAB_NONE ? data : NULL,
                            .may_open = true,
                            .below_size = box_size(box, ino),
                            .version = versions[ino],
                            .time = 1000 + (int64_t)offset};
    if (slab != SLAB_NONE)
        memcpy((uint8_t *)stage_slab_memory(box->stage, slab) + SLAB_PAYLOAD_OFFSET, data, length);
    int r = stage_write(box->stage, &w);
    if (r < 0 && slab != SLAB_NONE)
        stage_slab_give(box->stage, slab);
    return r;
}

int box_write(struct box *box, uint64_t ino, uint64_t offset, const void *data, uint32_t length)
{
    uint32_t slab = length >= STAGE_STEAL_MIN ? stage_slab_take(box->stage, NULL) : SLAB_NONE;
    return write_with(box, slab, ino, offset, data, length);
}

int box_try_write(struct box *box, uint64_t ino, uint64_t offset, const void *data, uint32_t length)
{
    uint32_t slab = stage_slab_try_take(box->stage);
    return slab == SLAB_NONE ? -EAGAIN : write_with(box, slab, ino, offset, data, length);
}

void box_write_ok(struct box *box, uint64_t ino, uint64_t offset, const void *data, uint32_t length)
{
    assert_i64(box_write(box, ino, offset, data, length), 0);
}

void box_fill(struct box *box, uint64_t ino, uint64_t offset, char byte, uint32_t length)
{
    uint8_t *data = xmalloc(length);
    memset(data, byte, length);
    box_write_ok(box, ino, offset, data, length);
    free(data);
}

void box_cut(struct box *box, uint64_t ino, uint64_t offset, uint64_t length, uint64_t new_size)
{
    assert_i64(
        stage_cut(box->stage, ino, offset, length, new_size, box_size(box, ino), versions[ino], 77),
        0);
}

/* Sizes of sealed versions that are not durable. */
static uint64_t sealed_size(struct box *box, uint64_t ino)
{
    struct stage_sealed list[BOX_FILES];
    size_t count = stage_sealed_list(box->stage, list, BOX_FILES);
    for (size_t i = 0; i < count && i < BOX_FILES; i++)
        if (list[i].ino == ino)
            return list[i].size;
    return pinned[ino].ino ? pinned[ino].size : box->below[ino].size;
}

uint64_t box_size(struct box *box, uint64_t ino)
{
    struct stage_file_state state;
    if (stage_file_state(box->stage, ino, &state) && state.has_draft)
        return state.draft_size;
    return sealed_size(box, ino);
}

static void add_pending(struct box *box, const struct record *rec)
{
    size_t len = record_encoded_len(rec);
    if (box->pending_len + len > box->pending_max) {
        box->pending_max = 2 * box->pending_max + len;
        box->pending = xrealloc(box->pending, box->pending_max);
    }
    record_encode(rec, box->pending + box->pending_len);
    box->pending_len += len;
}

/* Operations on `ino` up to `version` are durable. */
static void retire_pending(struct box *box, uint64_t ino, uint64_t version)
{
    size_t kept = 0;
    for (size_t at = 0; at < box->pending_len;) {
        struct record rec;
        size_t len;
        assert_i64(record_decode(box->pending + at, box->pending_len - at, &rec, &len), 0);
        if (rec.ino != ino || rec.version > version) {
            memmove(box->pending + kept, box->pending + at, len);
            kept += len;
        }
        at += len;
    }
    box->pending_len = kept;
}

bool box_seal(struct box *box, uint64_t ino)
{
    struct stage_draft draft;
    uint64_t seq = stage_next_seq(box->stage);
    if (!stage_seal(box->stage, ino, versions[ino] + 1, seq, false, &draft))
        return false;
    struct record rec = {.type = REC_SEAL,
                         .seq = seq,
                         .ino = ino,
                         .version = ++versions[ino],
                         .keep = draft.keep,
                         .attrs = {.size = draft.size, .mtime = draft.mtime}};
    assert_i64(stage_log_append(box->stage, &rec), 0);
    add_pending(box, &rec);
    return true;
}

void box_seal_unlogged(struct box *box, uint64_t ino)
{
    struct stage_draft draft;
    cr_assert(
        stage_seal(box->stage, ino, versions[ino] + 1, stage_next_seq(box->stage), false, &draft));
}

uint8_t *box_layer_content(struct box *box, const struct stage_sealed *sealed)
{
    const struct box_below *below = &box->below[sealed->ino];
    uint8_t *content = xcalloc(1, sealed->size + 1);
    if (below->bytes)
        memcpy(content, below->bytes, min_u64(min_u64(sealed->keep, below->size), sealed->size));
    struct stage_part *parts = xcalloc(sealed->ranges, sizeof *parts);
    size_t count = stage_layer_parts(box->stage, sealed->layer, 0, parts, sealed->ranges);
    assert_u64(count, sealed->ranges);
    for (size_t i = 0; i < count; i++) {
        const struct stage_part *part = &parts[i];
        cr_assert_leq(part->offset + part->length, sealed->size);
        if (part->kind == PART_MEMORY)
            memcpy(content + part->offset, part->memory, part->length);
        else if (part->kind == PART_HOLE)
            memset(content + part->offset, 0, part->length);
        else
            memcpy(content + part->offset,
                   box->chunks[chunk_number(&part->name)].bytes + part->chunk_offset, part->length);
    }
    free(parts);
    return content;
}

void box_pin(struct box *box, uint64_t ino)
{
    struct stage_sealed list[BOX_FILES];
    size_t count = stage_sealed_list(box->stage, list, BOX_FILES);
    for (size_t i = 0; i < count; i++) {
        if (list[i].ino != ino)
            continue;
        stage_pin(box->stage, &list[i]);
        pinned[ino].ino = ino;
        pinned[ino].version = list[i].version;
        pinned[ino].size = list[i].size;
        free(pinned[ino].content.bytes); /* of one that is pinned still: both are one now */
        pinned[ino].content = (struct box_below){.exists = true,
                                                 .version = list[i].version,
                                                 .size = list[i].size,
                                                 .bytes = box_layer_content(box, &list[i])};
        return;
    }
    cr_assert(false, "nothing sealed to pin");
}

void box_done(struct box *box, uint64_t ino)
{
    cr_assert_neq(pinned[ino].ino, 0);
    if (box->below[ino].exists) {
        free(box->below[ino].bytes);
        box->below[ino] = pinned[ino].content;
    } else {
        free(pinned[ino].content.bytes);
    }
    retire_pending(box, ino, pinned[ino].version);
    memset(&pinned[ino], 0, sizeof pinned[ino]);
    stage_layer_done(box->stage, ino);
}

uint64_t box_piece(struct box *box, uint64_t ino, uint64_t max_bytes)
{
    struct stage_part parts[64];
    bool more;
    size_t count = stage_draft_run(box->stage, ino, 1, max_bytes, parts, ARRAY_LEN(parts), &more);
    if (count == 0 || box->chunk_count == BOX_CHUNKS)
        return 0;
    struct box_chunk *chunk = &box->chunks[box->chunk_count];
    const struct stage_part *last = &parts[count - 1];
    chunk->len = last->offset + last->length - parts[0].offset;
    chunk->bytes = xmalloc(chunk->len);
    chunk->pack = 100 + box->chunk_count;
    for (size_t i = 0; i < count; i++)
        memcpy(chunk->bytes + (parts[i].offset - parts[0].offset), parts[i].memory,
               parts[i].length);
    struct stage_chunk_range range = {
        .offset = parts[0].offset, .length = chunk->len, .pack = chunk->pack};
    memcpy(range.name.bytes, &box->chunk_count, sizeof box->chunk_count);
    box->chunk_count++;
    stage_piece_done(box->stage, ino, parts, count, &range);
    stage_unpin_parts(box->stage, parts, count);
    return range.length;
}

static void read_part(struct box *box, uint64_t ino, const struct stage_part *part, uint8_t *to)
{
    const struct box_below *below = &box->below[ino];
    memset(to, 0, part->length);
    if (part->kind == PART_MEMORY)
        memcpy(to, part->memory, part->length);
    else if (part->kind == PART_CHUNK)
        memcpy(to, box->chunks[chunk_number(&part->name)].bytes + part->chunk_offset, part->length);
    else if (part->kind == PART_BELOW && part->offset < below->size)
        memcpy(to, below->bytes + part->offset, min_u64(part->length, below->size - part->offset));
}

void box_read(struct box *box, uint64_t ino, uint64_t offset, void *buf, size_t length)
{
    struct stage_part parts[7];
    size_t done = 0;
    while (done < length) {
        size_t count =
            stage_read(box->stage, ino, offset + done, length - done, parts, ARRAY_LEN(parts));
        cr_assert_gt(count, 0);
        for (size_t i = 0; i < count; i++) {
            assert_u64(parts[i].offset, offset + done);
            read_part(box, ino, &parts[i], (uint8_t *)buf + done);
            done += parts[i].length;
        }
        stage_unpin_parts(box->stage, parts, count);
    }
    assert_u64(done, length);
}

void box_expect(struct box *box, uint64_t ino, uint64_t offset, const char *text)
{
    size_t len = strlen(text);
    char *is = xcalloc(1, len + 1);
    box_read(box, ino, offset, is, len);
    for (size_t i = 0; i < len; i++)
        is[i] = is[i] ? is[i] : '.';
    expect_str(is, text, "is \"%s\", expected \"%s\"", is, text);
    free(is);
}

void box_expect_drains(struct box *box)
{
    for (uint64_t ino = 1; ino < BOX_FILES; ino++) {
        (void)box_seal(box, ino);
        if (pinned[ino].ino)
            box_done(box, ino);
        struct stage_file_state state;
        if (box->below[ino].exists && stage_file_state(box->stage, ino, &state)) {
            box_pin(box, ino);
            box_done(box, ino);
        }
    }
    struct stage_usage usage = stage_usage(box->stage);
    expect_u64(usage.dirty_bytes, 0);
    expect_u64(usage.draft_bytes, 0);
    expect_u64(usage.drafts, 0);
    for (uint64_t ino = 1; ino < BOX_FILES; ino++)
        assert_i64(stage_unlink(box->stage, ino, stage_next_seq(box->stage), false), 0);
    usage = stage_usage(box->stage);
    expect_u64(usage.clean_bytes, 0);
    /* The slab that small writes go to stays taken. */
    cr_expect_geq(usage.free_bytes + SLAB_STRIDE, usage.total_bytes);
}
