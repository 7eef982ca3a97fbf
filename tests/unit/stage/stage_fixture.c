// SPDX-License-Identifier: Apache-2.0
#include "stage_fixture.h"
#include "../expect.h"
#include "stage/internal.h"

#include <stdio.h>

struct stage_fixture fixture;
static uint64_t versions[FIXTURE_FILES]; /* last sealed */
static struct {
    uint64_t ino, version, keep, size;
    struct fixture_below content;
} pinned[FIXTURE_FILES];

#define STAGE_NAME "abababababababababababababababab"

static uint32_t unused_locked(const struct stage *stage)
{
    return stage->locked.unready_count + stage->locked.free_count;
}

/* All memory is touched first, so that room is the same in every run, and the first slabs are taken
 * first. */
static void touch_all(struct stage *stage)
{
    bool taken[1024] = {false};
    mutex_lock(&stage->locked.lock);
    while (unused_locked(stage) + stage->locked.readying_count > 0) {
        if (unused_locked(stage) > 0) {
            uint32_t slab = slab_take_locked(stage);
            cr_assert_lt(slab, ARRAY_LEN(taken));
            taken[slab] = true;
        } else { /* the background has one */
            mutex_unlock(&stage->locked.lock);
            (void)usleep(100);
            mutex_lock(&stage->locked.lock);
        }
    }
    mutex_unlock(&stage->locked.lock);
    for (uint32_t slab = ARRAY_LEN(taken); slab-- > 0;)
        if (taken[slab])
            stage_slab_give(stage, slab);
}

void fixture_create(struct stage_fixture *f, uint64_t size_bytes)
{
    *f = (struct stage_fixture){.epoch = 1};
    memset(versions, 0, sizeof versions);
    memset(pinned, 0, sizeof pinned);
    strcpy(f->dir, "/dev/shm/cairn-test-XXXXXX");
    cr_assert_not_null(mkdtemp(f->dir));
    f->config = (struct stage_config){.dir = f->dir, .size_bytes = size_bytes, .epoch = f->epoch};
    memset(f->config.store, 0xab, sizeof f->config.store);
    memset(f->config.name, 0xab, sizeof f->config.name);
    (void)snprintf(f->ctl, sizeof f->ctl, "%s/cairn-" STAGE_NAME ".ctl", f->dir);
    (void)snprintf(f->slabs, sizeof f->slabs, "%s/cairn-" STAGE_NAME ".slabs", f->dir);
    for (unsigned i = 1; i < FIXTURE_FILES; i++)
        f->below[i].exists = true;
    assert_i64(stage_create(&f->config, &f->stage), 0);
    touch_all(f->stage);
}

void fixture_remove(struct stage_fixture *f)
{
    stage_close(f->stage, true);
    stage_remove_files(f->dir, f->config.name);
    assert_i64(rmdir(f->dir), 0);
    for (unsigned i = 0; i < FIXTURE_FILES; i++) {
        free(f->below[i].bytes);
        free(pinned[i].content.bytes);
    }
    for (unsigned i = 0; i < f->chunk_count; i++)
        free(f->chunks[i].bytes);
    free(f->pending);
}

void fixture_die(struct stage_fixture *f)
{
    stage_close(f->stage, false);
    f->stage = NULL;
    for (unsigned i = 0; i < FIXTURE_FILES; i++) {
        free(pinned[i].content.bytes);
        memset(&pinned[i], 0, sizeof pinned[i]);
    }
}

void stage_setup(void)
{
    fixture_create(&fixture, 32 * MIB);
}

void stage_teardown(void)
{
    fixture_expect_drains(&fixture);
    fixture_remove(&fixture);
}

static uint64_t durable(uint64_t ino, uint64_t *ret_size, void *arg)
{
    struct stage_fixture *f = arg;
    *ret_size = 0;
    if (ino >= FIXTURE_FILES || !f->below[ino].exists)
        return UINT64_MAX;
    *ret_size = f->below[ino].size;
    return f->below[ino].version;
}

static uint32_t chunk_number(const struct chunk_name *name)
{
    uint32_t number;
    memcpy(&number, name->bytes, sizeof number);
    return number;
}

static uint64_t pack_of(const struct chunk_name *name, uint64_t *ret_remote, void *arg)
{
    *ret_remote = 0;
    struct stage_fixture *f = arg;
    uint32_t number = chunk_number(name);
    return number < f->chunk_count ? f->chunks[number].pack : 0;
}

/* Versions whose SEAL is in the log were sealed; the others are what is below. */
static int note_seal(const struct record *rec, void *arg)
{
    (void)arg;
    if (rec->type == REC_SEAL && rec->ino < FIXTURE_FILES && rec->version > versions[rec->ino])
        versions[rec->ino] = rec->version;
    return 0;
}

int fixture_reopen(struct stage_fixture *f)
{
    int r = stage_open(&f->config, &f->stage);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < FIXTURE_FILES; i++)
        versions[i] = f->below[i].version;
    stage_begin_recovery(f->stage, ++f->epoch);
    r = stage_replay_log(f->stage, note_seal, f);
    struct stage_rebuild how = {.durable = durable, .pack_of = pack_of, .arg = f};
    return r < 0 ? r : stage_rebuild_layers(f->stage, &how);
}

void fixture_adopt(struct stage_fixture *f)
{
    assert_i64(stage_adopt(f->stage, f->epoch, false), 0);
    assert_i64(fixture_compact(f), 0);
    assert_i64(stage_commit_epoch(f->stage, f->epoch), 0);
    touch_all(f->stage);
}

void fixture_recover(struct stage_fixture *f)
{
    assert_i64(fixture_reopen(f), 0);
    fixture_adopt(f);
}

void fixture_crash(struct stage_fixture *f)
{
    fixture_die(f);
    fixture_recover(f);
}

int fixture_compact(struct stage_fixture *f)
{
    return stage_log_compact(f->stage, f->pending, f->pending_len, false);
}

/* A write whose bytes come in the slab, or without one from `data`. */
static int write_with(struct stage_fixture *f, uint32_t slab, uint64_t ino, uint64_t offset,
                      const void *data, uint32_t length)
{
    struct stage_write w = {.ino = ino,
                            .offset = offset,
                            .length = length,
                            .slab = slab,
                            .data = slab == SLAB_NONE ? data : NULL,
                            .below_size = fixture_size(f, ino),
                            .version = versions[ino],
                            .time = 1000 + (int64_t)offset};
    if (slab != SLAB_NONE)
        memcpy((uint8_t *)stage_slab_memory(f->stage, slab) + SLAB_PAYLOAD_OFFSET, data, length);
    int r = stage_write(f->stage, &w);
    if (r < 0 && slab != SLAB_NONE)
        stage_slab_give(f->stage, slab);
    return r;
}

int fixture_write(struct stage_fixture *f, uint64_t ino, uint64_t offset, const void *data,
                  uint32_t length)
{
    uint32_t slab = length >= STAGE_STEAL_MIN ? stage_slab_take(f->stage, NULL) : SLAB_NONE;
    return write_with(f, slab, ino, offset, data, length);
}

int fixture_try_write(struct stage_fixture *f, uint64_t ino, uint64_t offset, const void *data,
                      uint32_t length)
{
    uint32_t slab = stage_slab_try_take(f->stage);
    return slab == SLAB_NONE ? -EAGAIN : write_with(f, slab, ino, offset, data, length);
}

void fixture_write_ok(struct stage_fixture *f, uint64_t ino, uint64_t offset, const void *data,
                      uint32_t length)
{
    assert_i64(fixture_write(f, ino, offset, data, length), 0);
}

void fixture_put(struct stage_fixture *f, uint64_t ino, uint64_t offset, const char *text)
{
    fixture_write_ok(f, ino, offset, text, (uint32_t)strlen(text));
}

void fixture_fill(struct stage_fixture *f, uint64_t ino, uint64_t offset, char byte,
                  uint32_t length)
{
    _cleanup_free_ uint8_t *data = xmalloc(length);
    memset(data, byte, length);
    fixture_write_ok(f, ino, offset, data, length);
}

void fixture_cut(struct stage_fixture *f, uint64_t ino, uint64_t offset, uint64_t length,
                 uint64_t new_size)
{
    const struct stage_change change = {
        .ino = ino, .time = 77, .below_size = fixture_size(f, ino), .version = versions[ino]};
    assert_i64(stage_erase(f->stage, &change, offset, length, new_size), 0);
}

/* Sizes of sealed versions that are not durable. */
static uint64_t sealed_size(struct stage_fixture *f, uint64_t ino)
{
    struct stage_sealed list[FIXTURE_FILES];
    size_t count = stage_sealed_list(f->stage, list, FIXTURE_FILES);
    for (size_t i = 0; i < count && i < FIXTURE_FILES; i++)
        if (list[i].ino == ino)
            return list[i].size;
    return pinned[ino].ino ? pinned[ino].size : f->below[ino].size;
}

uint64_t fixture_size(struct stage_fixture *f, uint64_t ino)
{
    struct stage_file_state state;
    if (stage_file_state(f->stage, ino, &state) && state.has_draft)
        return state.draft_size;
    return sealed_size(f, ino);
}

static void add_pending(struct stage_fixture *f, const struct record *rec)
{
    size_t len = record_encoded_len(rec);
    if (f->pending_len + len > f->pending_max) {
        f->pending_max = 2 * f->pending_max + len;
        f->pending = xrealloc(f->pending, f->pending_max);
    }
    record_encode(rec, f->pending + f->pending_len);
    f->pending_len += len;
}

/* Operations on `ino` up to `version` are durable. */
static void retire_pending(struct stage_fixture *f, uint64_t ino, uint64_t version)
{
    size_t kept = 0;
    for (size_t at = 0; at < f->pending_len;) {
        struct record rec;
        size_t len;
        assert_i64(record_decode(f->pending + at, f->pending_len - at, &rec, &len), 0);
        if (rec.ino != ino || rec.version > version) {
            memmove(f->pending + kept, f->pending + at, len);
            kept += len;
        }
        at += len;
    }
    f->pending_len = kept;
}

bool fixture_seal(struct stage_fixture *f, uint64_t ino)
{
    struct stage_draft draft;
    uint64_t seq = stage_next_seq(f->stage);
    if (!stage_seal(f->stage, ino, versions[ino] + 1, seq, false, &draft))
        return false;
    struct record rec = {.type = REC_SEAL,
                         .seq = seq,
                         .ino = ino,
                         .version = ++versions[ino],
                         .keep = draft.keep,
                         .attrs = {.size = draft.size, .mtime = draft.mtime}};
    assert_i64(stage_log_append(f->stage, &rec), 0);
    add_pending(f, &rec);
    return true;
}

void fixture_seal_unlogged(struct stage_fixture *f, uint64_t ino)
{
    struct stage_draft draft;
    cr_assert(
        stage_seal(f->stage, ino, versions[ino] + 1, stage_next_seq(f->stage), false, &draft));
}

uint8_t *fixture_layer_content(struct stage_fixture *f, const struct stage_sealed *sealed)
{
    const struct fixture_below *below = &f->below[sealed->ino];
    uint8_t *content = xcalloc(1, sealed->size + 1);
    if (below->bytes)
        memcpy(content, below->bytes, min_u64(min_u64(sealed->keep, below->size), sealed->size));
    _cleanup_free_ struct stage_part *parts = xcalloc(sealed->ranges, sizeof *parts);
    size_t count = stage_layer_parts(f->stage, sealed->layer, 0, parts, sealed->ranges);
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
                   f->chunks[chunk_number(&part->name)].bytes + part->chunk_offset, part->length);
    }
    return content;
}

void fixture_pin(struct stage_fixture *f, uint64_t ino)
{
    struct stage_sealed list[FIXTURE_FILES];
    size_t count = stage_sealed_list(f->stage, list, FIXTURE_FILES);
    for (size_t i = 0; i < count; i++) {
        if (list[i].ino != ino)
            continue;
        stage_pin(f->stage, &list[i]);
        pinned[ino].ino = ino;
        pinned[ino].version = list[i].version;
        pinned[ino].size = list[i].size;
        free(pinned[ino].content.bytes); /* of one that is pinned still: both are one now */
        pinned[ino].content = (struct fixture_below){.exists = true,
                                                     .version = list[i].version,
                                                     .size = list[i].size,
                                                     .bytes = fixture_layer_content(f, &list[i])};
        return;
    }
    cr_assert(false, "nothing sealed to pin");
}

void fixture_done(struct stage_fixture *f, uint64_t ino)
{
    cr_assert_neq(pinned[ino].ino, 0);
    if (f->below[ino].exists) {
        free(f->below[ino].bytes);
        f->below[ino] = pinned[ino].content;
    } else {
        free(pinned[ino].content.bytes);
    }
    retire_pending(f, ino, pinned[ino].version);
    memset(&pinned[ino], 0, sizeof pinned[ino]);
    stage_layer_done(f->stage, ino);
}

void fixture_put_sealed(struct stage_fixture *f, uint64_t ino, uint64_t offset, const char *text)
{
    fixture_put(f, ino, offset, text);
    (void)fixture_seal(f, ino);
}

void fixture_put_pinned(struct stage_fixture *f, uint64_t ino, uint64_t offset, const char *text)
{
    fixture_put_sealed(f, ino, offset, text);
    fixture_pin(f, ino);
}

void fixture_write_back(struct stage_fixture *f, uint64_t ino)
{
    cr_assert(fixture_seal(f, ino));
    fixture_pin(f, ino);
    fixture_done(f, ino);
}

uint64_t fixture_piece(struct stage_fixture *f, uint64_t ino, uint64_t max_bytes)
{
    struct stage_part parts[64];
    const struct stage_stretch stretch = {ino, 1, max_bytes};
    bool more;
    size_t count = stage_draft_stretch(f->stage, &stretch, parts, ARRAY_LEN(parts), &more);
    if (count == 0 || f->chunk_count == FIXTURE_CHUNKS)
        return 0;
    struct fixture_chunk *chunk = &f->chunks[f->chunk_count];
    const struct stage_part *last = &parts[count - 1];
    chunk->len = last->offset + last->length - parts[0].offset;
    chunk->bytes = xmalloc(chunk->len);
    chunk->pack = 100 + f->chunk_count;
    for (size_t i = 0; i < count; i++)
        memcpy(chunk->bytes + (parts[i].offset - parts[0].offset), parts[i].memory,
               parts[i].length);
    struct stage_chunk_range range = {
        .offset = parts[0].offset, .length = chunk->len, .pack = chunk->pack};
    memcpy(range.name.bytes, &f->chunk_count, sizeof f->chunk_count);
    f->chunk_count++;
    stage_piece_done(f->stage, ino, parts, count, &range);
    stage_unpin_parts(f->stage, parts, count);
    return range.length;
}

static void read_part(struct stage_fixture *f, uint64_t ino, const struct stage_part *part,
                      uint8_t *to)
{
    const struct fixture_below *below = &f->below[ino];
    memset(to, 0, part->length);
    if (part->kind == PART_MEMORY)
        memcpy(to, part->memory, part->length);
    else if (part->kind == PART_CHUNK)
        memcpy(to, f->chunks[chunk_number(&part->name)].bytes + part->chunk_offset, part->length);
    else if (part->kind == PART_BELOW && part->offset < below->size)
        memcpy(to, below->bytes + part->offset, min_u64(part->length, below->size - part->offset));
}

void fixture_read(struct stage_fixture *f, uint64_t ino, uint64_t offset, void *buf, size_t length)
{
    struct stage_part parts[7];
    size_t done = 0;
    while (done < length) {
        size_t count =
            stage_read(f->stage, ino, offset + done, length - done, parts, ARRAY_LEN(parts));
        cr_assert_gt(count, 0);
        for (size_t i = 0; i < count; i++) {
            assert_u64(parts[i].offset, offset + done);
            read_part(f, ino, &parts[i], (uint8_t *)buf + done);
            done += parts[i].length;
        }
        stage_unpin_parts(f->stage, parts, count);
    }
    assert_u64(done, length);
}

void fixture_expect(struct stage_fixture *f, uint64_t ino, uint64_t offset, const char *text)
{
    size_t len = strlen(text);
    _cleanup_free_ char *is = xcalloc(1, len + 1);
    fixture_read(f, ino, offset, is, len);
    for (size_t i = 0; i < len; i++)
        is[i] = is[i] ? is[i] : '.';
    expect_str(is, text, "is \"%s\", expected \"%s\"", is, text);
}

void fixture_expect_drains(struct stage_fixture *f)
{
    for (uint64_t ino = 1; ino < FIXTURE_FILES; ino++) {
        (void)fixture_seal(f, ino);
        if (pinned[ino].ino)
            fixture_done(f, ino);
        struct stage_file_state state;
        if (f->below[ino].exists && stage_file_state(f->stage, ino, &state)) {
            fixture_pin(f, ino);
            fixture_done(f, ino);
        }
    }
    struct stage_usage usage = stage_usage(f->stage);
    expect_u64(usage.dirty_bytes, 0);
    expect_u64(usage.draft_bytes, 0);
    expect_u64(usage.drafts, 0);
    for (uint64_t ino = 1; ino < FIXTURE_FILES; ino++)
        assert_i64(stage_unlink(f->stage, ino, stage_next_seq(f->stage), false), 0);
    usage = stage_usage(f->stage);
    expect_u64(usage.clean_bytes, 0);
    /* The slab that small writes go to stays taken. */
    cr_expect_geq(usage.free_bytes + SLAB_STRIDE, usage.total_bytes);
}
