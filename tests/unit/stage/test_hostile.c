// SPDX-License-Identifier: Apache-2.0
/* Shared memory that was changed: an error, or less than there was; never a
 * crash. */
#include <stdio.h>
#include <sys/stat.h>

#include "../spoil.h"
#include "../base/campaign.h"
#include "../base/seeded.h"
#include "base/log.h"
#include "base/crc.h"
#include "stage_fixture.h"
#include "stage/internal.h"

#define CTL_FIXED (4096u + 4096u) /* header, slab table */
#define HANDLES_LEN (131072u * 16u)

static struct seeded seed;

static uint64_t rnd(uint64_t below)
{
    return seeded_below(&seed, below);
}

static void work(void)
{
    fixture_create(&fixture, 20 * MIB);
    for (uint64_t ino = 1; ino < 4; ino++) {
        for (uint64_t i = 0; i < 10; i++)
            fixture_fill(&fixture, ino, i * 300, 'a', 500);
        fixture_fill(&fixture, ino, 5000, 'b', 300000);
        fixture_cut(&fixture, ino, 100, 50, fixture_size(&fixture, ino));
        cr_assert_gt(fixture_piece(&fixture, ino, 2000), 0);
        if (ino == 2)
            assert_i64(fixture_compact(&fixture), 0);
        cr_assert(fixture_seal(&fixture, ino));
        fixture_fill(&fixture, ino, 10, 'c', 20);
    }
}

static void read_all(void)
{
    struct stage_part parts[16];
    for (uint64_t ino = 1; ino < 4; ino++) {
        for (uint64_t at = 0; at < 400000;) {
            size_t count = stage_read(fixture.stage, ino, at, 400000 - at, parts, ARRAY_LEN(parts));
            volatile uint8_t sum = 0;
            for (size_t i = 0; i < count; i++)
                for (uint64_t b = 0; parts[i].kind == PART_MEMORY && b < parts[i].length; b += 64)
                    sum = (uint8_t)(sum + ((const uint8_t *)parts[i].memory)[b]);
            at = parts[count - 1].offset + parts[count - 1].length;
            stage_unpin_parts(fixture.stage, parts, count);
        }
    }
}

/* Whatever comes of it: the next daemon must not be harmed. */
static bool recover_and_use(void)
{
    if (fixture_reopen(&fixture) < 0)
        return false;
    read_all();
    if (stage_adopt(fixture.stage, fixture.epoch, false) == 0 && fixture_compact(&fixture) == 0)
        read_all();
    return true;
}

static void end(void)
{
    if (fixture.stage)
        fixture_die(&fixture);
    fixture_remove(&fixture);
}

struct outcome {
    unsigned tried, usable;
};

static struct outcome damage(const char *which, unsigned times, uint64_t from, uint64_t length)
{
    struct outcome outcome = {0};
    FOR_CAMPAIGN(i, times)
    {
        outcome.tried++;
        seed.state = i;
        work();
        fixture_die(&fixture);
        for (uint64_t flips = 1 + rnd(3); flips > 0; flips--)
            spoil_file(which[0] == 'c' ? fixture.ctl : fixture.slabs, from + rnd(length), 1,
                       (uint8_t)(1u << rnd(8)));
        outcome.usable += recover_and_use();
        end();
    }
    return outcome;
}

static void quiet(void)
{
    log_set_level(LOG_LEVEL_ERROR);
}

TestSuite(stage_hostile, .init = quiet, .timeout = 600);

Test(stage_hostile, header)
{
    struct outcome outcome = damage("ctl", 40, 0, 160);
    cr_expect(outcome.usable < outcome.tried || !campaign_is_full());
}

Test(stage_hostile, slab_table)
{
    (void)damage("ctl", 20, 4096, 19 * 8);
}

Test(stage_hostile, handles)
{
    struct outcome outcome = damage("ctl", 5, CTL_FIXED, HANDLES_LEN);
    expect_u64(outcome.usable, outcome.tried);
}

Test(stage_hostile, log)
{
    /* The compaction made the second half the active one. */
    struct stat st;
    work();
    assert_i64(stat(fixture.ctl, &st), 0);
    uint64_t half = ((uint64_t)st.st_size - CTL_FIXED - HANDLES_LEN) / 2;
    end();
    struct outcome outcome = damage("ctl", 40, CTL_FIXED + HANDLES_LEN + half, 1000);
    expect_u64(outcome.usable, 0, "a damaged record is an error");
}

Test(stage_hostile, slabs)
{
    struct outcome outcome = damage("slabs", 40, 0, 64);
    expect_u64(outcome.usable, 0, "a damaged record is an error");
    outcome = damage("slabs", 20, SLAB_STRIDE + SLAB_PAYLOAD_OFFSET, MIB);
    expect_u64(outcome.usable, outcome.tried, "a payload is not looked at");
    (void)damage("slabs", 20, 0, 19ull * SLAB_STRIDE); /* of the slabs that 20 MiB are */
}

/* --- records that a user wrote ---------------------------------------------------------------- */

/* As it would be if the writer knew all but the secret: `slab` and `at` are where it lies. */
static struct slab_record forged(uint64_t seq)
{
    return (struct slab_record){
        .generation = 1, .seq = seq, .ino = 1, .version = 1, .offset = 0, .length = 100, .time = 5};
}

/* With the checksum of version 1 and with the tag of another secret, at each place at which a
 * record may begin. */
static void fill_with_forged(uint8_t *payload, size_t len, uint64_t seq, uint32_t generation,
                             bool keyed)
{
    static const uint8_t guess[HASH_KEY_LEN];
    for (size_t at = 0; at + sizeof(struct slab_record) + 128 <= len; at += 192) {
        struct slab_record rec = forged(seq + at);
        rec.generation = generation;
        rec.payload = (uint32_t)(SLAB_PAYLOAD_OFFSET + at + sizeof rec);
        rec.unkeyed.magic = SLAB_RECORD_MAGIC;
        rec.unkeyed.crc =
            crc32_of(0, &rec.generation, sizeof rec - offsetof(struct slab_record, generation));
        if (keyed)
            rec.tag = hash_tag(guess, &rec.generation,
                               sizeof rec - offsetof(struct slab_record, generation));
        memcpy(payload + at, &rec, sizeof rec);
        memset(payload + at + sizeof rec, 'F', 128);
    }
}

static const uint64_t seqs[] = {2, 1ull << 40, (1ull << 40) + 100000, 0xfffffe0000000000,
                                0xfffffffffffff000};

/* A user's file has a slab full of forged records; the slab is used again, for one short write or
 * for small ones, and the daemon dies. */
static void attack(uint64_t seq, uint32_t generation, bool keyed, bool small)
{
    _cleanup_free_ uint8_t *payload = xcalloc(1, SLAB_PAYLOAD);
    fixture_create(&fixture, 20 * MIB);
    fixture_fill(&fixture, 1, 0, 's', 200); /* what must not change; its slab is the shared one */
    fill_with_forged(payload, SLAB_PAYLOAD, seq, generation, keyed);
    for (uint32_t again = 0; again < 2; again++)
        fixture_write_ok(&fixture, 2, 0, payload,
                         SLAB_PAYLOAD); /* the second frees the slab of the first */
    if (small)
        for (uint64_t i = 0; i < 12; i++)
            fixture_write_ok(&fixture, 2, i * 200000, payload + i * 192,
                             200000); /* beyond the end of the shared slab, into a freed one */
    else
        fixture_fill(&fixture, 2, 0, 'u', STAGE_STEAL_MIN + 64 * 5);
    fixture_die(&fixture);
    assert_i64(fixture_reopen(&fixture), 0);
    fixture_adopt(&fixture);
    fixture_expect(&fixture, 1, 0, "ssssssssssssssss");
    cr_expect_leq(stage_last_seq(fixture.stage), 3ull << 40, "numbers go on where they were");
    fixture_expect_drains(&fixture);
    fixture_remove(&fixture);
}

Test(stage_hostile, records_in_content)
{
    unsigned count = 0;
    for (size_t s = 0; s < ARRAY_LEN(seqs); s++)
        for (uint32_t generation = 1; generation < 5; generation++)
            for (int how = 0; how < 4; how++)
                if (campaign_takes(&count))
                    attack(seqs[s], generation, how & 1, how & 2);
}

/* A tag is of its place: the same record elsewhere is none. */
Test(stage_hostile, a_record_that_was_moved)
{
    fixture_create(&fixture, 20 * MIB);
    fixture_fill(&fixture, 1, 0, 'a', 64);
    fixture_fill(&fixture, 1, 0, 'b', 64);
    uint8_t *slab = stage_slab_memory(fixture.stage, 0);
    memcpy(slab + 128, slab, 128);
    fixture_die(&fixture);
    expect_i64(fixture_reopen(&fixture), -EBADMSG);
    fixture_die(&fixture);
    fixture_remove(&fixture);
}

/* What lies behind the end of the log is an earlier use of it, with names and xattrs that users
 * chose. */
Test(stage_hostile, records_behind_the_log)
{
    struct record rec = {.type = REC_ERASE,
                         .seq = UINT64_MAX - 1,
                         .ino = 1,
                         .version = 1,
                         .length = UINT64_MAX,
                         .attrs = {.size = 1}};
    fixture_create(&fixture, 20 * MIB);
    fixture_fill(&fixture, 1, 0, 's', 200);
    uint8_t *end = fixture.stage->log[0] + atomic_load(&fixture.stage->header->log_tail[0]);
    for (unsigned i = 0; i < 100; i++, end += record_encoded_len(&rec))
        record_encode(&rec, end);
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 190, "ssssssssss");
    assert_i64(stage_log_append(fixture.stage, &rec), 0);
    fixture_die(&fixture);
    expect_i64(fixture_reopen(&fixture), -EUCLEAN, "a number of an epoch that never was");
    fixture_die(&fixture);
    fixture_remove(&fixture);
}

Test(stage_hostile, files_of_another_length)
{
    work();
    fixture_die(&fixture);
    struct stage *stage;
    assert_i64(truncate(fixture.slabs, 5 * MIB), 0);
    expect_i64(stage_open(&fixture.config, &stage), -EUCLEAN);
    assert_i64(truncate(fixture.ctl, 4096), 0);
    expect_i64(stage_open(&fixture.config, &stage), -EUCLEAN);
    assert_i64(truncate(fixture.ctl, 100), 0);
    expect_i64(stage_open(&fixture.config, &stage), -EUCLEAN);
    end();
}

/* Records with good checksums and fields that make no sense. */
static struct record nonsense(void)
{
    static const uint16_t types[] = {REC_ERASE, REC_LAYER, REC_RANGE, REC_PIECE, REC_SEAL};
    static const uint64_t numbers[] = {
        0, 1, 2, 3, 700, 100000, SLAB_STRIDE, INT64_MAX, UINT64_MAX - 1, UINT64_MAX};
    static struct extent extent;
    struct record rec = {
        .type = types[rnd(ARRAY_LEN(types))], .seq = 1 + rnd(1ull << 41), .ino = 1 + rnd(4)};
    rec.version = rnd(5);
    rec.offset = numbers[rnd(ARRAY_LEN(numbers))];
    rec.length = numbers[rnd(ARRAY_LEN(numbers))];
    rec.keep = numbers[rnd(ARRAY_LEN(numbers))];
    rec.attrs.size = numbers[rnd(ARRAY_LEN(numbers))];
    rec.slab = (uint32_t)(rnd(3) ? rnd(25) : UINT32_MAX - rnd(2));
    rec.slab_offset = (uint32_t)(rnd(3) ? rnd(SLAB_STRIDE) : UINT32_MAX - rnd(2));
    if (rec.type == REC_PIECE) {
        extent =
            (struct extent){.offset = rnd(10000), .length = 1 + rnd(3000), .kind = EXTENT_CHUNK};
        rec.extents = &extent;
        rec.extent_count = 1;
    }
    return rec;
}

Test(stage_hostile, records_that_make_no_sense)
{
    FOR_CAMPAIGN(i, 150)
    {
        seed.state = 1000 + i;
        work();
        for (uint64_t count = 1 + rnd(6); count > 0; count--) {
            struct record rec = nonsense();
            assert_i64(stage_log_append(fixture.stage, &rec), 0);
        }
        fixture_die(&fixture);
        (void)recover_and_use();
        end();
    }
}
