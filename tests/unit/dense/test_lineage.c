// SPDX-License-Identifier: Apache-2.0
/* Bases that a lineage proposes, for files of a store whose remote is only in the view. */
#include "dense/lineage.h"

#include "../expect.h"
#include "../fixtures/store_fixture.h"
#include "../fixtures/weights.h"
#include "base/clock.h"
#include "commit/shared.h"
#include "dense/chains.h"
#include "dense/dense.h"
#include "view/remote.h"

#define CHUNKS 3u
#define FILE_LEN (CHUNKS * CHUNK_SIZE_MAX + 5000)

struct fixture {
    struct store_fixture fixture;
    struct view_cut *cut, *published; /* of what was there when a file was placed last */
    struct dense *dense;
    struct lineage *lineage;
    uint64_t next_pack;
};

static bool goes_on(struct remote *remote)
{
    (void)remote;
    return false;
}

static int read_chunk(struct store *store, struct chunk_entry *entry, uint8_t *stored, uint8_t *raw)
{
    (void)stored;
    return packs_read_chunk(store->commit.packs, &entry->name, raw, &entry->raw_len);
}

static const struct dense_remote no_remote = {.is_stopping = goes_on, .read_chunk = read_chunk};

static void setup(struct fixture *g)
{
    *g = (struct fixture){.next_pack = 1000000};
    fixture_make(&g->fixture);
    fixture_open(&g->fixture);
    assert_i64(view_track(g->fixture.store->local.view), 0);
    g->dense = dense_new(g->fixture.store, &no_remote, false);
}

static void forget(struct fixture *g)
{
    lineage_free(g->lineage);
    view_cut_close(g->cut);
    g->lineage = NULL;
    g->cut = NULL;
}

static void teardown(struct fixture *g)
{
    forget(g);
    view_cut_close(g->published);
    dense_free(g->dense);
    fixture_remove(&g->fixture);
}

/* Lineage of what is there now. */
static void build(struct fixture *g)
{
    forget(g);
    fixture_wait(&g->fixture);
    store_await_view(g->fixture.store, INT64_MAX);
    assert_i64(view_cut_open(g->fixture.store->local.view, &g->cut), 0);
    assert_i64(lineage_build(g->dense, g->cut, g->published, &g->lineage), 0);
}

/* --- content ---------------------------------------------------------------------------------- */

static void put_bytes(struct fixture *g, const char *name, const uint8_t *data, size_t len)
{
    uint64_t ino = fixture_create(&g->fixture, name);
    fixture_write(&g->fixture, ino, 0, data, len);
    fixture_seal(&g->fixture, ino);
    fixture_drop(&g->fixture, ino);
}

/* Numbers of 4 bytes: the files beside it are of a training state. */
static void put_wide(struct fixture *g, const char *name)
{
    uint8_t *data = xcalloc(1, FILE_LEN);
    struct seeded s = {77};
    for (size_t i = 0; i + 4 <= FILE_LEN; i += 4)
        put_le32(data + i, 0x3f800000 + (uint32_t)(seeded_u64(&s) & 0x7fffff));
    put_bytes(g, name, data, FILE_LEN);
    free(data);
}

static void put_weights(struct fixture *g, const char *name, unsigned run, unsigned steps)
{
    uint8_t *data = xcalloc(1, FILE_LEN);
    make_weights(data, FILE_LEN, run, steps);
    put_bytes(g, name, data, FILE_LEN);
    free(data);
}

/* --- chunks ----------------------------------------------------------------------------------- */

static int note_name(const struct view_extent *part, void *arg)
{
    *(struct chunk_name *)arg = part->extent.chunk;
    return 1;
}

/* The chunk of a file that begins there. */
static struct chunk_name chunk_at(struct fixture *g, const char *name, uint64_t offset)
{
    struct chunk_name chunk;
    uint64_t ino = fixture_lookup(&g->fixture, name);
    cr_assert(ino != 0, "%s", name);
    assert_i64(view_extents(g->fixture.store->local.view, ino, 0, offset, 1, note_name, &chunk), 0);
    return chunk;
}

static struct chunk_name chunk_of(struct fixture *g, const char *name, unsigned i)
{
    return chunk_at(g, name, i * (uint64_t)CHUNK_SIZE_MAX);
}

/* Has each chunk of the file the one of `base` in the same place for its base? NULL: none. */
static void expect_base(struct fixture *g, const char *name, const char *base)
{
    for (unsigned i = 0; i <= CHUNKS; i++) {
        struct chunk_name chunk = chunk_of(g, name, i), is;
        bool has = lineage_base(g->lineage, &chunk, &is) > 0;
        expect_u64(has, base != NULL, "chunk %u of %s", i, name);
        if (!has || !base)
            continue;
        struct chunk_name expected = chunk_of(g, base, i);
        cr_expect(chunk_name_equal(&is, &expected), "chunk %u of %s", i, name);
    }
}

/* As after its upload: as it is, or as the difference to another. */
static void place(struct fixture *g, const char *name, const char *base)
{
    struct chunk_entry entries[CHUNKS + 1] = {0};
    uint64_t pack = g->next_pack++;
    for (unsigned i = 0; i <= CHUNKS; i++) {
        struct chunk_entry *e = &entries[i];
        uint64_t refs;
        struct chunk_name chunk = chunk_of(g, name, i);
        assert_i64(view_chunk(g->fixture.store->local.view, &chunk, e, &refs), 0);
        e->pack = pack;
        if (!base)
            continue;
        e->encoding = ENCODING_DX;
        e->stored_len /= 4;
        struct chunk_entry rests_on;
        struct chunk_name partner = chunk_of(g, base, i);
        assert_i64(view_remote_place(g->fixture.store->local.view, &partner, &rests_on), 0);
        e->depth = rests_on.depth + 1;
        e->ref_count = 1;
        e->refs[0] = (struct chunk_ref){partner, 0, e->raw_len};
    }
    assert_i64(
        view_remote_placed(g->fixture.store->local.view, pack, 64 * MIB, entries, CHUNKS + 1), 0);
}

/* --- tests ------------------------------------------------------------------------------------ */

Test(lineage, a_file_has_the_one_before_it_for_its_base)
{
    struct fixture g;
    setup(&g);
    put_weights(&g, "step100-rank0.bin", 1, 0);
    put_weights(&g, "step100-rank1.bin", 2, 0);
    put_weights(&g, "step200-rank0.bin", 1, 1);
    put_weights(&g, "step200-rank1.bin", 2, 1);
    put_weights(&g, "other.bin", 1, 3);
    build(&g);
    expect_base(&g, "step100-rank0.bin", NULL);
    expect_base(&g, "step100-rank1.bin", NULL);
    expect_base(&g, "step200-rank0.bin", "step100-rank0.bin");
    expect_base(&g, "step200-rank1.bin", "step100-rank1.bin");
    expect_base(&g, "other.bin", NULL);
    teardown(&g);
}

Test(lineage, numbers_that_change_together_are_followed)
{
    struct fixture g;
    setup(&g);
    put_weights(&g, "epoch=0-step=100.ckpt", 1, 0);
    put_weights(&g, "epoch=1-step=200.ckpt", 1, 1);
    build(&g);
    expect_base(&g, "epoch=1-step=200.ckpt", "epoch=0-step=100.ckpt");
    teardown(&g);
}

Test(lineage, files_that_are_not_near_have_none)
{
    struct fixture g;
    setup(&g);
    put_weights(&g, "step1", 1, 0);
    put_weights(&g, "step2", 2, 0);
    fixture_put(&g.fixture, "noise1", 5, FILE_LEN);
    fixture_put(&g.fixture, "noise2", 6, FILE_LEN);
    fixture_put(&g.fixture, "short1", 7, 50);
    fixture_put(&g.fixture, "short2", 8, 50);
    build(&g);
    expect_base(&g, "step2", NULL);
    expect_base(&g, "noise2", NULL);
    teardown(&g);
}

Test(lineage, bases_of_a_training_state_are_stars_of_few)
{
    char name[32], base[32];
    struct fixture g;
    setup(&g);
    put_wide(&g, "optimizer");
    for (unsigned step = 0; step < KEYFRAME_EVERY + 2; step++) {
        (void)snprintf(name, sizeof name, "step%u", step);
        put_weights(&g, name, 1, step);
        fixture_wait(&g.fixture);
    }
    build(&g);
    for (unsigned step = 0; step < KEYFRAME_EVERY + 2; step++) {
        unsigned key = step / KEYFRAME_EVERY * KEYFRAME_EVERY;
        (void)snprintf(name, sizeof name, "step%u", step);
        (void)snprintf(base, sizeof base, "step%u", key);
        expect_base(&g, name, step == key ? NULL : base);
    }
    teardown(&g);
}

Test(lineage, weights_alone_are_chains)
{
    char name[32], base[32];
    struct fixture g;
    setup(&g);
    for (unsigned step = 0; step < CHAIN_DEPTH_MAX + 3; step++) {
        (void)snprintf(name, sizeof name, "step%u", step);
        put_weights(&g, name, 1, step);
        fixture_wait(&g.fixture);
    }
    build(&g);
    for (unsigned step = 0; step < CHAIN_DEPTH_MAX + 3; step++) {
        (void)snprintf(name, sizeof name, "step%u", step);
        (void)snprintf(base, sizeof base, "step%u", step == CHAIN_DEPTH_MAX + 1 ? 0 : step - 1);
        expect_base(&g, name, step ? base : NULL);
    }
    teardown(&g);
}

/* The chunks of a1 are bases when b2 comes, which consists of them, too. */
Test(lineage, a_base_has_none_in_another_file_either)
{
    struct fixture g;
    setup(&g);
    put_weights(&g, "a1", 1, 0);
    put_weights(&g, "a2", 1, 1);
    put_weights(&g, "b1", 1, 2);
    put_weights(&g, "b2", 1, 0);
    put_weights(&g, "b3", 1, 3);
    build(&g);
    expect_base(&g, "a2", "a1");
    expect_base(&g, "b2", NULL);
    expect_base(&g, "b3", "a1"); /* which is what b2 is */
    teardown(&g);
}

Test(lineage, the_one_before_is_taken_and_in_a_training_state_its_base)
{
    struct fixture g;
    setup(&g);
    put_weights(&g, "step1", 1, 1);
    put_weights(&g, "step2", 1, 2);
    build(&g);
    place(&g, "step1", NULL);
    place(&g, "step2", "step1");
    put_weights(&g, "step3", 1, 3);
    build(&g);
    expect_base(&g, "step1", NULL);
    expect_base(&g, "step2", NULL);
    expect_base(&g, "step3", "step2");
    put_wide(&g, "optimizer");
    build(&g);
    expect_base(&g, "step3", "step1");
    teardown(&g);
}

Test(lineage, no_more_hang_on_a_base_in_the_remote_than_on_another)
{
    char name[32];
    struct fixture g;
    setup(&g);
    put_wide(&g, "optimizer");
    put_weights(&g, "step0", 1, 0);
    build(&g);
    place(&g, "step0", NULL);
    for (unsigned step = 1; step < KEYFRAME_EVERY; step++) {
        (void)snprintf(name, sizeof name, "step%u", step);
        put_weights(&g, name, 1, step);
        build(&g);
        expect_base(&g, name, "step0");
        place(&g, name, "step0");
    }
    put_weights(&g, "step100", 1, 20);
    build(&g);
    expect_base(&g, "step100", NULL);
    place(&g, "step100", NULL);
    put_weights(&g, "step101", 1, 19);
    build(&g);
    expect_base(&g, "step101", "step100");
    teardown(&g);
}

/* Each is older than half of the others: none asks for all of them anew, which would take minutes.
 */
Test(lineage, a_directory_of_many_files_is_read_once)
{
    enum { FILES = 2500, LEN = 20000 };
    uint8_t data[LEN];
    char name[32];
    struct fixture g;
    setup(&g);
    for (unsigned i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof name, "image%05u", i);
        make_weights(data, LEN, i, 0);
        put_bytes(&g, name, data, LEN);
    }
    int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    build(&g);
    cr_expect(clock_ns(CLOCK_THREAD_CPUTIME_ID) - began < 8 * SECOND_NS);
    teardown(&g);
}

/* What is in both is stored once; what is whole in the remote needs no base. */
Test(lineage, chunks_that_are_not_sent_have_none)
{
    struct fixture g;
    uint8_t *data = xcalloc(1, FILE_LEN);
    setup(&g);
    make_weights(data, FILE_LEN, 1, 1);
    put_bytes(&g, "step1", data, FILE_LEN);
    make_weights(data, CHUNK_SIZE_MAX, 1, 2);
    put_bytes(&g, "step2", data, FILE_LEN);
    build(&g);
    struct chunk_name first = chunk_of(&g, "step2", 0), second = chunk_of(&g, "step2", 1), base;
    expect_u64(lineage_base(g.lineage, &first, &base), 1);
    expect_u64(lineage_base(g.lineage, &second, &base), 0);
    teardown(&g);
    free(data);
}

/* --- what was written over -------------------------------------------------------------------- */

static int ignore_row(const struct run_row *row, void *arg)
{
    (void)row;
    (void)arg;
    return 0;
}

/* As after a round of the upload that placed what it had to. */
static void publish(struct fixture *g)
{
    uint64_t missing;
    view_cut_close(g->published);
    fixture_wait(&g->fixture);
    store_await_view(g->fixture.store, INT64_MAX);
    assert_i64(view_cut_open(g->fixture.store->local.view, &g->published), 0);
    assert_i64(view_cut_rows(g->published, 1, ignore_row, NULL, &missing), 0);
    assert_i64(view_published(g->fixture.store->local.view, g->published, g->next_pack), 0);
}

/* Weights of which these, of a hundred, are other ones than at first, and `moved` of a hundred of
 * all moved a little since. */
static void put_moved(struct fixture *g, const char *name, unsigned others, unsigned moved)
{
    uint8_t *data = xcalloc(1, FILE_LEN);
    struct seeded s = {1}, other = {2}, move = {3};
    for (size_t i = 0; i + 2 <= FILE_LEN; i += 2) {
        unsigned first = (unsigned)seeded_below(&s, 0x200),
                 next = (unsigned)seeded_below(&other, 0x200);
        unsigned value = seeded_below(&other, 100) < others ? next : first;
        value += seeded_below(&move, 100) < moved;
        put_le16(data + i, (uint16_t)(0x3c00 + value));
    }
    uint64_t ino = fixture_lookup(&g->fixture, name);
    if (ino) {
        fixture_write(&g->fixture, ino, 0, data, FILE_LEN);
        fixture_seal(&g->fixture, ino);
    } else {
        put_bytes(g, name, data, FILE_LEN);
    }
    free(data);
}

/* Of a training state: "latest" rests on a keyframe that no file has any more, from which `others`
 * of a hundred of its weights differ, when it is written over with what is near to it. */
static void expect_keyframe_serves(unsigned others, bool serves)
{
    struct chunk_name key[CHUNKS + 1];
    struct fixture g;
    setup(&g);
    put_moved(&g, "key", 0, 0);
    put_moved(&g, "latest", others, 0);
    build(&g);
    place(&g, "key", NULL);
    place(&g, "latest", "key");
    for (unsigned i = 0; i <= CHUNKS; i++)
        key[i] = chunk_of(&g, "key", i);
    fixture_unlink(&g.fixture, "key", 0);
    publish(&g);
    put_moved(&g, "latest", others, 4);
    put_wide(&g, "optimizer");
    build(&g);
    for (unsigned i = 0; i <= CHUNKS; i++) {
        struct chunk_name chunk = chunk_of(&g, "latest", i), is;
        bool has = lineage_base(g.lineage, &chunk, &is) > 0;
        expect_u64(has, serves, "chunk %u, %u others", i, others);
        if (has)
            cr_expect(chunk_name_equal(&is, &key[i]), "chunk %u", i);
    }
    teardown(&g);
}

Test(lineage, a_keyframe_that_is_far_away_is_replaced)
{
    expect_keyframe_serves(5, true);
    expect_keyframe_serves(60, false);
}

Test(lineage, what_a_name_had_is_found_whatever_it_is_saved_as)
{
    static const char *const names[] = {"latest.bin", "latest.bin.tmp", ".latest.bin.a8Qx"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct fixture g;
        setup(&g);
        put_weights(&g, "latest.bin", 1, 0);
        build(&g);
        place(&g, "latest.bin", NULL);
        struct chunk_name old = chunk_of(&g, "latest.bin", 0), is;
        publish(&g);
        if (i == 0)
            fixture_unlink(&g.fixture, "latest.bin", 0);
        put_weights(&g, names[i], 1, 1);
        build(&g);
        struct chunk_name chunk = chunk_of(&g, names[i], 0);
        expect_u64(lineage_base(g.lineage, &chunk, &is), 1, "%s", names[i]);
        cr_expect(chunk_name_equal(&is, &old), "%s", names[i]);
        teardown(&g);
    }
}

/* --- names of tensors ------------------------------------------------------------------------- */

/* A safetensors file of tensors that are each as long as two chunks; names are letters, the run of
 * each is its letter. */
static uint64_t put_tensors(struct fixture *g, const char *name, const char *letters,
                            unsigned steps)
{
    size_t count = strlen(letters), each = 2 * (size_t)CHUNK_SIZE_MAX;
    char *header = xstrdup("{");
    for (size_t i = 0; i < count; i++) {
        char *more =
            xasprintf("%s%s\"%c\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                      header, i ? "," : "", letters[i], i * each, (i + 1) * each);
        free(header);
        header = more;
    }
    size_t header_len = strlen(header) + 1;
    uint8_t *data = xcalloc(1, 8 + header_len + count * each);
    put_le64(data, header_len);
    memcpy(data + 8, header, header_len - 1);
    data[8 + header_len - 1] = '}';
    for (size_t i = 0; i < count; i++)
        make_weights(data + 8 + header_len + i * each, each, (unsigned char)letters[i], steps);
    put_bytes(g, name, data, 8 + header_len + count * each);
    free(header);
    free(data);
    return 8 + header_len;
}

Test(lineage, tensors_are_found_by_their_names)
{
    struct fixture g;
    setup(&g);
    uint64_t old = put_tensors(&g, "model-1.safetensors", "abcd", 1);
    uint64_t new = put_tensors(&g, "model-2.safetensors", "axbd", 2);
    build(&g);
    static const unsigned places[] = {0, UINT32_MAX, 1, 3};
    for (unsigned i = 0; i < 8; i++) {
        struct chunk_name chunk =
            chunk_at(&g, "model-2.safetensors", new + i *(uint64_t)CHUNK_SIZE_MAX);
        struct chunk_name is;
        bool has = lineage_base(g.lineage, &chunk, &is) > 0;
        unsigned place = places[i / 2];
        expect_u64(has, place != UINT32_MAX, "chunk %u", i);
        if (!has || place == UINT32_MAX)
            continue;
        struct chunk_name expected = chunk_at(&g, "model-1.safetensors",
                                              old + (2 * place + i % 2) * (uint64_t)CHUNK_SIZE_MAX);
        cr_expect(chunk_name_equal(&is, &expected), "chunk %u", i);
    }
    teardown(&g);
}
