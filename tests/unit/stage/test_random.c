// SPDX-License-Identifier: Apache-2.0
/* Random work against a model: what every file reads, what is durable of it, and what a crash at
 * any moment leaves. */
#include "../expect.h"
#include "../base/campaign.h"
#include "../base/seeded.h"
#include "stage_fixture.h"

#define FILES 5u
#define SIZE_MAX_MODEL (900u * 1024)

/* What a file is, byte for byte. */
struct state {
    uint8_t bytes[SIZE_MAX_MODEL];
    uint64_t size;
};

struct model_file {
    struct state now;
    bool has_draft, has_sealed, is_pinned;
    struct state sealed; /* newest sealed state: what a pin would write */
};

static struct model_file *files;
static struct seeded seed;

static uint64_t rnd(uint64_t below)
{
    return seeded_below(&seed, below);
}

static void make_durable(uint64_t ino)
{
    if (!files[ino].is_pinned && files[ino].has_sealed) {
        fixture_pin(&fixture, ino);
        files[ino].has_sealed = false;
        files[ino].is_pinned = true;
    }
    if (files[ino].is_pinned)
        fixture_done(&fixture, ino);
    files[ino].is_pinned = false;
}

static void seal(uint64_t ino)
{
    struct model_file *file = &files[ino];
    assert_u64(fixture_seal(&fixture, ino), file->has_draft);
    if (!file->has_draft)
        return;
    file->has_draft = false;
    file->has_sealed = true;
    file->sealed = file->now;
}

static void drain(void)
{
    for (uint64_t ino = 1; ino <= FILES; ino++) {
        make_durable(ino);
        seal(ino);
        make_durable(ino);
    }
}

static void write_some(uint64_t ino)
{
    struct model_file *file = &files[ino];
    uint32_t length =
        (uint32_t)(rnd(8) == 0 ? STAGE_STEAL_MIN + rnd(200000) : 1 + rnd(rnd(2) ? 300 : 30000));
    uint64_t offset = rnd(3) == 0 ? file->now.size : rnd(SIZE_MAX_MODEL);
    if (offset + length > SIZE_MAX_MODEL)
        offset = SIZE_MAX_MODEL - length;
    _cleanup_free_ uint8_t *data = xmalloc(length);
    for (uint32_t i = 0; i < length; i++)
        data[i] = (uint8_t)(i * 7 + seed.state);
    int r = fixture_write(&fixture, ino, offset, data, length);
    if (r == -EAGAIN) {
        drain();
        r = fixture_write(&fixture, ino, offset, data, length);
    }
    assert_i64(r, 0);
    if (offset > file->now.size)
        memset(file->now.bytes + file->now.size, 0, offset - file->now.size);
    memcpy(file->now.bytes + offset, data, length);
    file->now.size = max_u64(file->now.size, offset + length);
    file->has_draft = true;
}

static void cut_some(uint64_t ino)
{
    struct model_file *file = &files[ino];
    struct state *now = &file->now;
    if (rnd(2) && now->size > 0) {
        uint64_t offset = rnd(now->size), length = 1 + rnd(now->size - offset);
        bool to_end = offset + length == now->size;
        fixture_cut(&fixture, ino, offset, to_end ? UINT64_MAX : length, now->size);
        memset(now->bytes + offset, 0, length);
    } else {
        uint64_t size = rnd(4) == 0 ? 0 : rnd(SIZE_MAX_MODEL);
        fixture_cut(&fixture, ino, size, UINT64_MAX, size);
        if (size > now->size)
            memset(now->bytes + now->size, 0, size - now->size);
        now->size = size;
    }
    file->has_draft = true;
}

static void expect_same(const char *what, uint64_t ino, const uint8_t *is,
                        const struct state *expected)
{
    for (uint64_t i = 0; i < expected->size; i++)
        assert_u64(is[i], expected->bytes[i], "%s: inode %llu, byte %llu of %llu", what,
                   (unsigned long long)ino, (unsigned long long)i,
                   (unsigned long long)expected->size);
}

static void check_file(uint64_t ino)
{
    const struct state *now = &files[ino].now;
    _cleanup_free_ uint8_t *is = xmalloc(SIZE_MAX_MODEL);
    assert_u64(fixture_size(&fixture, ino), now->size, "inode %llu: %llu, expected %llu",
               (unsigned long long)ino, (unsigned long long)fixture_size(&fixture, ino),
               (unsigned long long)now->size);
    fixture_read(&fixture, ino, 0, is, now->size);
    expect_same("now", ino, is, now);
    struct stage_file_state state;
    (void)stage_file_state(fixture.stage, ino, &state);
    assert_u64(state.has_draft, files[ino].has_draft);
    assert_u64(state.has_sealed, files[ino].has_sealed || files[ino].is_pinned);
}

static void check_sealed(void)
{
    struct stage_sealed list[FILES];
    size_t count = stage_sealed_list(fixture.stage, list, FILES);
    cr_assert_leq(count, FILES);
    for (size_t i = 0; i < count; i++) {
        const struct model_file *file = &files[list[i].ino];
        cr_assert(file->has_sealed);
        assert_u64(list[i].size, file->sealed.size);
        cr_assert(i == 0 || list[i - 1].seal_seq < list[i].seal_seq);
        if (file->is_pinned)
            continue;
        _cleanup_free_ uint8_t *content = fixture_layer_content(&fixture, &list[i]);
        expect_same("sealed", list[i].ino, content, &file->sealed);
    }
}

static void check_all(void)
{
    for (uint64_t ino = 1; ino <= FILES; ino++)
        check_file(ino);
    check_sealed();
}

/* The daemon dies, maybe in the middle of recoveries too. */
static void crash(void)
{
    uint64_t unlogged = rnd(4) == 0 ? 1 + rnd(FILES) : 0;
    if (unlogged && files[unlogged].has_draft)
        fixture_seal_unlogged(&fixture, unlogged);
    fixture_die(&fixture);
    for (uint64_t tries = rnd(3); tries > 0; tries--) {
        assert_i64(fixture_reopen(&fixture), 0);
        if (rnd(2))
            assert_i64(stage_adopt(fixture.stage, fixture.epoch, false), 0);
        fixture_die(&fixture);
    }
    fixture_recover(&fixture);
    for (uint64_t ino = 1; ino <= FILES; ino++) {
        /* A pinned version waits again. */
        files[ino].has_sealed = files[ino].has_sealed || files[ino].is_pinned;
        files[ino].is_pinned = false;
    }
    check_all();
}

static void step(void)
{
    uint64_t ino = 1 + rnd(FILES);
    struct model_file *file = &files[ino];
    uint64_t what = rnd(100);
    if (what < 50) {
        write_some(ino);
    } else if (what < 62) {
        cut_some(ino);
    } else if (what < 74) {
        seal(ino);
    } else if (what < 80 && file->has_sealed && !file->is_pinned) {
        fixture_pin(&fixture, ino);
        file->has_sealed = false;
        file->is_pinned = true;
    } else if (what < 86 && file->is_pinned) {
        fixture_done(&fixture, ino);
        file->is_pinned = false;
    } else if (what < 93) {
        (void)fixture_piece(&fixture, ino, 1 + rnd(400000));
    } else if (what < 96) {
        assert_i64(fixture_compact(&fixture), 0);
    } else if (what < 98) {
        check_file(ino);
    } else {
        crash();
    }
}

static void run(uint64_t number, unsigned steps)
{
    seed.state = number;
    files = xcalloc(FILES + 1, sizeof *files);
    fixture_create(&fixture, 24 * MIB);
    for (unsigned i = 0; i < steps; i++) {
        step();
        if (i % 16 == 0)
            check_all();
    }
    crash();
    fixture_expect_drains(&fixture);
    fixture_remove(&fixture);
    free(files);
}

TestSuite(stage_random, .timeout = 600);

Test(stage_random, against_a_model_1)
{
    FOR_CAMPAIGN(i, 6)
    run(1000 + i, 400);
}

Test(stage_random, against_a_model_2)
{
    FOR_CAMPAIGN(i, 30)
    run(2000 + i, 60);
}
