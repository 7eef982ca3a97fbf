// SPDX-License-Identifier: Apache-2.0
/* Bases that a lineage proposes, for files of a store whose remote is only in the view. */
#include "dense/lineage.h"

#include "../expect.h"
#include "../numbered.h"
#include "../fixtures/store_fixture.h"
#include "../fixtures/weights.h"
#include "base/clock.h"
#include "commit/shared.h"
#include "dense/chains.h"
#include "dense/dense.h"
#include "view/remote.h"

#define CHUNKS 3u
#define FILE_LEN (CHUNKS * CHUNK_SIZE_MAX + 5000)

static struct store_fixture fixture;
static struct view_cut *cut, *published; /* of what was there when a file was placed last */
static struct dense *dense;
static struct lineage *lineage;
static uint64_t next_pack = 1000000;

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

static void setup(void)
{
    fixture_make(&fixture);
    fixture_open(&fixture);
    assert_i64(view_track(fixture.store->local.view), 0);
    dense = dense_new(fixture.store, &no_remote, false);
}

static void forget(void)
{
    lineage_free(lineage);
    view_cut_close(cut);
    lineage = NULL;
    cut = NULL;
}

static void teardown(void)
{
    forget();
    view_cut_close(published);
    published = NULL;
    dense_free(dense);
    fixture_remove(&fixture);
}

TestSuite(lineage, .init = setup, .fini = teardown);

/* A new store, for the next case of a test. */
static void restart(void)
{
    teardown();
    setup();
}

/* Lineage of what is there now. */
static void build(void)
{
    forget();
    fixture_wait(&fixture);
    store_await_view(fixture.store, INT64_MAX);
    assert_i64(view_cut_open(fixture.store->local.view, &cut), 0);
    assert_i64(lineage_build(dense, cut, published, &lineage), 0);
}

/* --- content ---------------------------------------------------------------------------------- */

/* Numbers of 4 bytes: the files beside it are of a training state. */
static void put_wide(const char *name)
{
    _cleanup_free_ uint8_t *data = xcalloc(1, FILE_LEN);
    struct seeded s = {77};
    for (size_t i = 0; i + 4 <= FILE_LEN; i += 4)
        put_le32(data + i, 0x3f800000 + (uint32_t)(seeded_u64(&s) & 0x7fffff));
    fixture_put_bytes(&fixture, name, data, FILE_LEN);
}

static void put_weights(const char *name, unsigned run, unsigned steps)
{
    _cleanup_free_ uint8_t *data = xcalloc(1, FILE_LEN);
    make_weights(data, FILE_LEN, run, steps);
    fixture_put_bytes(&fixture, name, data, FILE_LEN);
}

/* --- chunks ----------------------------------------------------------------------------------- */

static struct chunk_name chunk_of(const char *name, unsigned i)
{
    return fixture_chunk_at(&fixture, name, i * (uint64_t)CHUNK_SIZE_MAX);
}

/* Has each chunk of the file the one of `base` in the same place for its base? NULL: none. */
static void expect_base(const char *name, const char *base)
{
    for (unsigned i = 0; i <= CHUNKS; i++) {
        struct chunk_name chunk = chunk_of(name, i), is;
        bool has = lineage_base(lineage, &chunk, &is) > 0;
        expect_u64(has, base != NULL, "chunk %u of %s", i, name);
        if (!has || !base)
            continue;
        struct chunk_name expected = chunk_of(base, i);
        cr_expect(chunk_name_equal(&is, &expected), "chunk %u of %s", i, name);
    }
}

/* As after its upload: as it is, or as the difference to another. */
static void place(const char *name, const char *base)
{
    struct chunk_entry entries[CHUNKS + 1] = {0};
    uint64_t pack = next_pack++;
    for (unsigned i = 0; i <= CHUNKS; i++) {
        struct chunk_entry *e = &entries[i];
        uint64_t refs;
        struct chunk_name chunk = chunk_of(name, i);
        assert_i64(view_chunk(fixture.store->local.view, &chunk, e, &refs), 0);
        e->pack = pack;
        if (!base)
            continue;
        e->encoding = ENCODING_DX;
        e->stored_len /= 4;
        struct chunk_entry rests_on;
        struct chunk_name partner = chunk_of(base, i);
        assert_i64(view_remote_place(fixture.store->local.view, &partner, &rests_on), 0);
        e->depth = rests_on.depth + 1;
        e->ref_count = 1;
        e->refs[0] = (struct chunk_ref){partner, 0, e->raw_len};
    }
    assert_i64(view_remote_placed(fixture.store->local.view, pack, 64 * MIB, entries, CHUNKS + 1),
               0);
}

/* --- tests ------------------------------------------------------------------------------------ */

Test(lineage, a_file_has_the_one_before_it_for_its_base)
{
    put_weights("step100-rank0.bin", 1, 0);
    put_weights("step100-rank1.bin", 2, 0);
    put_weights("step200-rank0.bin", 1, 1);
    put_weights("step200-rank1.bin", 2, 1);
    put_weights("other.bin", 1, 3);
    build();
    expect_base("step100-rank0.bin", NULL);
    expect_base("step100-rank1.bin", NULL);
    expect_base("step200-rank0.bin", "step100-rank0.bin");
    expect_base("step200-rank1.bin", "step100-rank1.bin");
    expect_base("other.bin", NULL);
}

Test(lineage, numbers_that_change_together_are_followed)
{
    put_weights("epoch=0-step=100.ckpt", 1, 0);
    put_weights("epoch=1-step=200.ckpt", 1, 1);
    build();
    expect_base("epoch=1-step=200.ckpt", "epoch=0-step=100.ckpt");
}

Test(lineage, files_that_are_not_near_have_none)
{
    put_weights("step1", 1, 0);
    put_weights("step2", 2, 0);
    fixture_put(&fixture, "noise1", 5, FILE_LEN);
    fixture_put(&fixture, "noise2", 6, FILE_LEN);
    fixture_put(&fixture, "short1", 7, 50);
    fixture_put(&fixture, "short2", 8, 50);
    build();
    expect_base("step2", NULL);
    expect_base("noise2", NULL);
}

Test(lineage, bases_of_a_training_state_are_stars_of_few)
{
    put_wide("optimizer");
    for (unsigned step = 0; step < KEYFRAME_EVERY + 2; step++) {
        put_weights(numbered("step%u", step), 1, step);
        fixture_wait(&fixture);
    }
    build();
    for (unsigned step = 0; step < KEYFRAME_EVERY + 2; step++) {
        unsigned key = step / KEYFRAME_EVERY * KEYFRAME_EVERY;
        expect_base(numbered("step%u", step), step == key ? NULL : numbered("step%u", key));
    }
}

Test(lineage, weights_alone_are_chains)
{
    for (unsigned step = 0; step < CHAIN_DEPTH_MAX + 3; step++) {
        put_weights(numbered("step%u", step), 1, step);
        fixture_wait(&fixture);
    }
    build();
    for (unsigned step = 0; step < CHAIN_DEPTH_MAX + 3; step++)
        expect_base(numbered("step%u", step),
                    step ? numbered("step%u", step == CHAIN_DEPTH_MAX + 1 ? 0 : step - 1) : NULL);
}

/* The chunks of a1 are bases when b2 comes, which consists of them, too. */
Test(lineage, a_base_has_none_in_another_file_either)
{
    put_weights("a1", 1, 0);
    put_weights("a2", 1, 1);
    put_weights("b1", 1, 2);
    put_weights("b2", 1, 0);
    put_weights("b3", 1, 3);
    build();
    expect_base("a2", "a1");
    expect_base("b2", NULL);
    expect_base("b3", "a1"); /* which is what b2 is */
}

Test(lineage, the_one_before_is_taken_and_in_a_training_state_its_base)
{
    put_weights("step1", 1, 1);
    put_weights("step2", 1, 2);
    build();
    place("step1", NULL);
    place("step2", "step1");
    put_weights("step3", 1, 3);
    build();
    expect_base("step1", NULL);
    expect_base("step2", NULL);
    expect_base("step3", "step2");
    put_wide("optimizer");
    build();
    expect_base("step3", "step1");
}

Test(lineage, no_more_hang_on_a_base_in_the_remote_than_on_another)
{
    char name[32];
    put_wide("optimizer");
    put_weights("step0", 1, 0);
    build();
    place("step0", NULL);
    for (unsigned step = 1; step < KEYFRAME_EVERY; step++) {
        (void)snprintf(name, sizeof name, "step%u", step);
        put_weights(name, 1, step);
        build();
        expect_base(name, "step0");
        place(name, "step0");
    }
    put_weights("step100", 1, 20);
    build();
    expect_base("step100", NULL);
    place("step100", NULL);
    put_weights("step101", 1, 19);
    build();
    expect_base("step101", "step100");
}

/* Each is older than half of the others: none asks for all of them anew, which would take minutes.
 */
Test(lineage, a_directory_of_many_files_is_read_once)
{
    enum { FILES = 2500, LEN = 20000 };
    uint8_t data[LEN];
    for (unsigned i = 0; i < FILES; i++) {
        make_weights(data, LEN, i, 0);
        fixture_put_bytes(&fixture, numbered("image%05u", i), data, LEN);
    }
    int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    build();
    cr_expect(clock_ns(CLOCK_THREAD_CPUTIME_ID) - began < 8 * SECOND_NS);
}

/* What is in both is stored once; what is whole in the remote needs no base. */
Test(lineage, chunks_that_are_not_sent_have_none)
{
    _cleanup_free_ uint8_t *data = xcalloc(1, FILE_LEN);
    make_weights(data, FILE_LEN, 1, 1);
    fixture_put_bytes(&fixture, "step1", data, FILE_LEN);
    make_weights(data, CHUNK_SIZE_MAX, 1, 2);
    fixture_put_bytes(&fixture, "step2", data, FILE_LEN);
    build();
    struct chunk_name first = chunk_of("step2", 0), second = chunk_of("step2", 1), base;
    expect_u64(lineage_base(lineage, &first, &base), 1);
    expect_u64(lineage_base(lineage, &second, &base), 0);
}

/* --- what was written over -------------------------------------------------------------------- */

static int ignore_row(const struct run_row *row, void *arg)
{
    (void)row;
    (void)arg;
    return 0;
}

/* As after a round of the upload that placed what it had to. */
static void publish(void)
{
    uint64_t missing;
    view_cut_close(published);
    fixture_wait(&fixture);
    store_await_view(fixture.store, INT64_MAX);
    assert_i64(view_cut_open(fixture.store->local.view, &published), 0);
    assert_i64(view_cut_rows(published, 1, ignore_row, NULL, &missing), 0);
    assert_i64(view_published(fixture.store->local.view, published, next_pack), 0);
}

/* Weights of which these, of a hundred, are other ones than at first, and `moved` of a hundred of
 * all moved a little since. */
static void put_moved(const char *name, unsigned others, unsigned moved)
{
    _cleanup_free_ uint8_t *data = xcalloc(1, FILE_LEN);
    struct seeded s = {1}, other = {2}, move = {3};
    for (size_t i = 0; i + 2 <= FILE_LEN; i += 2) {
        unsigned first = (unsigned)seeded_below(&s, 0x200),
                 next = (unsigned)seeded_below(&other, 0x200);
        unsigned value = seeded_below(&other, 100) < others ? next : first;
        value += seeded_below(&move, 100) < moved;
        put_le16(data + i, (uint16_t)(0x3c00 + value));
    }
    uint64_t ino = fixture_lookup(&fixture, name);
    if (ino) {
        fixture_write(&fixture, ino, 0, data, FILE_LEN);
        fixture_seal(&fixture, ino);
    } else {
        fixture_put_bytes(&fixture, name, data, FILE_LEN);
    }
}

/* Of a training state: "latest" rests on a keyframe that no file has any more, from which `others`
 * of a hundred of its weights differ, when it is written over with what is near to it. */
static void expect_keyframe_serves(unsigned others, bool serves)
{
    struct chunk_name key[CHUNKS + 1];
    put_moved("key", 0, 0);
    put_moved("latest", others, 0);
    build();
    place("key", NULL);
    place("latest", "key");
    for (unsigned i = 0; i <= CHUNKS; i++)
        key[i] = chunk_of("key", i);
    fixture_unlink(&fixture, "key", 0);
    publish();
    put_moved("latest", others, 4);
    put_wide("optimizer");
    build();
    for (unsigned i = 0; i <= CHUNKS; i++) {
        struct chunk_name chunk = chunk_of("latest", i), is;
        bool has = lineage_base(lineage, &chunk, &is) > 0;
        expect_u64(has, serves, "chunk %u, %u others", i, others);
        if (has)
            cr_expect(chunk_name_equal(&is, &key[i]), "chunk %u", i);
    }
}

Test(lineage, a_keyframe_that_is_far_away_is_replaced)
{
    expect_keyframe_serves(5, true);
    restart();
    expect_keyframe_serves(60, false);
}

Test(lineage, what_a_name_had_is_found_whatever_it_is_saved_as)
{
    static const char *const names[] = {"latest.bin", "latest.bin.tmp", ".latest.bin.a8Qx"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        put_weights("latest.bin", 1, 0);
        build();
        place("latest.bin", NULL);
        struct chunk_name old = chunk_of("latest.bin", 0), is;
        publish();
        if (i == 0)
            fixture_unlink(&fixture, "latest.bin", 0);
        put_weights(names[i], 1, 1);
        build();
        struct chunk_name chunk = chunk_of(names[i], 0);
        expect_u64(lineage_base(lineage, &chunk, &is), 1, "%s", names[i]);
        cr_expect(chunk_name_equal(&is, &old), "%s", names[i]);
        restart();
    }
}

/* --- names of tensors ------------------------------------------------------------------------- */

/* A safetensors file of tensors that are each as long as two chunks; names are letters, the run of
 * each is its letter. */
static uint64_t put_tensors(const char *name, const char *letters, unsigned steps)
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
    _cleanup_free_ uint8_t *data = xcalloc(1, 8 + header_len + count * each);
    put_le64(data, header_len);
    memcpy(data + 8, header, header_len - 1);
    data[8 + header_len - 1] = '}';
    for (size_t i = 0; i < count; i++)
        make_weights(data + 8 + header_len + i * each, each, (unsigned char)letters[i], steps);
    fixture_put_bytes(&fixture, name, data, 8 + header_len + count * each);
    free(header);
    return 8 + header_len;
}

Test(lineage, tensors_are_found_by_their_names)
{
    uint64_t old = put_tensors("model-1.safetensors", "abcd", 1);
    uint64_t new = put_tensors("model-2.safetensors", "axbd", 2);
    build();
    static const unsigned places[] = {0, UINT32_MAX, 1, 3};
    for (unsigned i = 0; i < 8; i++) {
        struct chunk_name chunk =
            fixture_chunk_at(&fixture, "model-2.safetensors", new + i *(uint64_t)CHUNK_SIZE_MAX);
        struct chunk_name is;
        bool has = lineage_base(lineage, &chunk, &is) > 0;
        unsigned place = places[i / 2];
        expect_u64(has, place != UINT32_MAX, "chunk %u", i);
        if (!has || place == UINT32_MAX)
            continue;
        struct chunk_name expected = fixture_chunk_at(
            &fixture, "model-1.safetensors", old + (2 * place + i % 2) * (uint64_t)CHUNK_SIZE_MAX);
        cr_expect(chunk_name_equal(&is, &expected), "chunk %u", i);
    }
}
