// SPDX-License-Identifier: Apache-2.0
/* Recovery of a stage from shared memory that was changed. An input is the log, then what lies
 * in slabs; it is recovered as the next daemon would, read, written anew by a compaction, and
 * recovered once more. */
#include "mend.h"
#include "stage_dir.h"

#define INODES 8u
#define SLABS 4u /* that an input fills */
#define PARTS 32u
#define READ_LEN (64 * KIB)

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    stage_close(make_stage(), false);
    return 0;
}

static uint64_t durable(uint64_t ino, uint64_t *ret_size, void *arg)
{
    (void)arg;
    *ret_size = ino * 1000;
    return ino && ino < INODES ? ino % 3 : UINT64_MAX;
}

static struct stage *open_stage(void)
{
    struct stage *stage;
    check(stage_open(&config, &stage) == 0);
    stage_begin_recovery(stage, 9); /* seeds have numbers of epoch 7 */
    return stage;
}

/* Write records as they lie in a slab, their checksums right but for those that say
 * they are not. */
static void fill_slab(struct stage *stage, uint32_t slab, struct input *in)
{
    const size_t head = offsetof(struct slab_record, seq);
    uint32_t at = 0;
    uint8_t what = input_u8(in);
    atomic_store(&stage->slab_table[slab].generation, 7);
    for (unsigned count = what >> 5; count > 0 && in->left >= sizeof(struct slab_record) - head;
         count--) {
        struct slab_record rec = {.generation = 7, .flags = count & 1};
        memcpy((uint8_t *)&rec + head, input_bytes(in, sizeof rec - head), sizeof rec - head);
        if (what & 2)
            rec.payload = at + (uint32_t)sizeof rec;
        rec.tag = slab_record_tag(stage, &rec, slab, at);
        memcpy(slab_at(stage, slab) + at, &rec, sizeof rec);
        at = (uint32_t)align_up(rec.payload + (uint64_t)rec.length, 64);
        if (at > SLAB_STRIDE - sizeof rec)
            break;
    }
    enum slab_shared_state state = what & 4 ? SLAB_SHARED_RECEIVED : SLAB_SHARED_USED;
    atomic_store(&stage->slab_table[slab].use, slab_use(what & 1 ? state : SLAB_SHARED_FREE,
                                                        at < SLAB_STRIDE ? at : SLAB_STRIDE));
}

static void fill(struct stage *stage, struct input *in)
{
    size_t len = input_u16(in);
    bool mended = input_u8(in) & 1;
    len = len < in->left ? len : in->left;
    if (mended)
        len = len / 8 * 8;
    memcpy(stage->log[0], input_bytes(in, len), len);
    if (mended)
        mend_records(stage->log[0], len);
    atomic_store(&stage->header->log_active, 0);
    atomic_store(&stage->header->log_tail[0], len);
    for (uint32_t i = 0; i < stage->slab_count; i++)
        atomic_store(&stage->slab_table[i].use, SLAB_SHARED_FREE);
    for (uint32_t i = 0; i < SLABS; i++)
        fill_slab(stage, i, in);
}

/* What a reader is shown, as a number. */
static uint32_t read_file(struct stage *stage, uint64_t ino, uint64_t from)
{
    struct stage_part parts[PARTS];
    uint32_t crc = 0;
    for (uint64_t at = from, end = from + READ_LEN; at < end;) {
        size_t count = stage_read(stage, ino, at, end - at, parts, PARTS);
        check(count > 0 && count <= PARTS);
        for (size_t i = 0; i < count; i++) {
            check(parts[i].offset == at && parts[i].length > 0 && parts[i].length <= end - at);
            uint8_t kind = (uint8_t)parts[i].kind;
            /* Two parts of a kind may have become one, so each byte counts for itself. */
            for (uint64_t b = 0; b < parts[i].length; b += parts[i].kind == PART_MEMORY ? 1 : 512) {
                if (parts[i].kind == PART_MEMORY)
                    crc = crc32_of(crc, (const uint8_t *)parts[i].memory + b, 1);
                else
                    crc = crc * 31 + kind;
            }
            at += parts[i].length;
        }
        stage_unpin_parts(stage, parts, count);
    }
    return crc;
}

static void look_at(struct stage *stage)
{
    struct stage_sealed sealed[INODES];
    struct stage_usage usage = stage_usage(stage);
    check(usage.dirty_bytes <= usage.total_bytes + (uint64_t)SLABS * SLAB_STRIDE * 8);
    for (uint64_t ino = 1; ino < INODES; ino++) {
        struct stage_file_state state;
        if (stage_file_state(stage, ino, &state))
            check(state.draft_size <= INT64_MAX && state.sealed_size <= INT64_MAX);
        (void)read_file(stage, ino, 0);
        (void)read_file(stage, ino, INT64_MAX - READ_LEN);
    }
    check(stage_sealed_list(stage, sealed, INODES) <= INODES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stage_rebuild how = {.durable = durable, .pack_of = pack_of};
    struct input in = {data, size};
    struct stage *stage = open_stage();
    fill(stage, &in);
    int r = stage_rebuild_layers(stage, &how);
    if (r == 0) {
        look_at(stage);
        r = stage_log_compact(stage, NULL, 0, false);
        stage_close(stage, false);
        stage = open_stage();
        if (r == 0)
            r = stage_rebuild_layers(stage, &how);
        check(r == 0);
        look_at(stage);
    }
    stage_close(stage, false);
    return 0;
}
