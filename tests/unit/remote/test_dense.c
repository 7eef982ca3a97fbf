// SPDX-License-Identifier: Apache-2.0
/* What an upload with reduce=dense stores by what: the order in which a cut's chunks are sent, and
 * the forms that they get. */
#include <stdio.h>

#include "../expect.h"
#include "../fixtures/store_fixture.h"
#include "../fixtures/weights.h"
#include "base/clock.h"
#include "dense/chains.h"
#include "dense/dense.h"
#include "remote/maintenance_internal.h"

#define CHUNKS 2u
#define LEN (CHUNKS * (size_t)CHUNK_SIZE_MAX)
#define LATEST 9u /* steps of a run that are saved at most, but for the first */

struct fixture {
    struct store_fixture fixture;
    char remote[80];
};

static void setup(struct fixture *g)
{
    fixture_make(&g->fixture);
    (void)snprintf(g->remote, sizeof g->remote, "%s-remote", g->fixture.path);
    fixture_open(&g->fixture);
}

static void teardown(struct fixture *g)
{
    char command[128];
    fixture_remove(&g->fixture);
    (void)snprintf(command, sizeof command, "rm -rf %s", g->remote);
    assert_i64(system(command), 0);
}

/* Until here there was no remote: all that is there comes with the first cut. */
static void open_remote(struct fixture *g, enum reduce reduce)
{
    char *text = NULL;
    struct remote_options *options = &g->fixture.options.remote;
    fixture_wait(&g->fixture);
    fixture_close(&g->fixture);
    *options = (struct remote_options){.name = g->remote,
                                       .holder = "test",
                                       .upload_threads = 2,
                                       .lease_ns = 10 * SECOND_NS,
                                       .gc_grace_ns = 3600 * SECOND_NS};
    assert_i64(dir_tier_open(&(struct dir_options){.path = g->remote}, &options->tier, &text), 0);
    g->fixture.options.reduce = reduce;
    fixture_open(&g->fixture);
}

static void wait_published(struct fixture *g)
{
    struct store *store = g->fixture.store;
    fixture_wait(&g->fixture);
    for (int i = 0; i < 24000; i++) {
        if (horizon_published(store_commit(store)->horizon) >=
                horizon_reached(store_commit(store)->horizon) &&
            view_remote(store->local.view).pending_chunks == 0)
            return;
        (void)usleep(5000);
    }
    cr_fail("it is not published");
}

/* --- files ------------------------------------------------------------------------------------ */

static void put_bytes(struct fixture *g, const char *name, const uint8_t *data, size_t len)
{
    uint64_t ino = fixture_create(&g->fixture, name);
    fixture_write(&g->fixture, ino, 0, data, len);
    fixture_seal(&g->fixture, ino);
    fixture_drop(&g->fixture, ino);
}

static void put_weights(struct fixture *g, unsigned steps)
{
    char name[32];
    uint8_t *data = xcalloc(1, LEN);
    (void)snprintf(name, sizeof name, "step%u", steps);
    make_weights(data, LEN, 1, steps);
    put_bytes(g, name, data, LEN);
    free(data);
}

/* Of the weights after so many steps. */
static void put_masters(struct fixture *g, const char *name, unsigned steps, unsigned seed)
{
    uint8_t *weights = xcalloc(1, LEN), *data = xcalloc(2, LEN);
    make_weights(weights, LEN, 1, steps);
    make_masters(data, weights, LEN, seed);
    put_bytes(g, name, data, 2 * LEN);
    free(weights);
    free(data);
}

static int note_name(const struct view_extent *part, void *arg)
{
    *(struct chunk_name *)arg = part->extent.chunk;
    return 1;
}

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

/* --- what the remote has ---------------------------------------------------------------------- */

static struct chunk_entry place_of(struct fixture *g, const char *name, unsigned i)
{
    struct chunk_entry entry;
    struct chunk_name chunk = chunk_of(g, name, i);
    assert_i64(view_remote_place(g->fixture.store->local.view, &chunk, &entry), 0);
    return entry;
}

/* All chunks of the file have this form. `base`: a file of which those refer to the chunk that
 * stands at 1/`width` of their own place; NULL: they refer to nothing. */
static void expect_form(struct fixture *g, const char *name, enum chunk_encoding encoding,
                        unsigned depth, const char *base, unsigned width)
{
    for (unsigned i = 0; i < width * CHUNKS; i++) {
        struct chunk_entry entry = place_of(g, name, i);
        expect_u64(entry.encoding, encoding, "chunk %u of %s", i, name);
        expect_u64(entry.depth, depth, "chunk %u of %s", i, name);
        expect_u64(entry.ref_count, base != NULL, "chunk %u of %s", i, name);
        if (!base || entry.ref_count == 0)
            continue;
        struct chunk_name expected = chunk_of(g, base, i / width);
        cr_expect(chunk_name_equal(&entry.refs[0].name, &expected), "chunk %u of %s", i, name);
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

/* Each is there when the next one is stored by it. */
Test(dense, a_chain_that_comes_with_one_cut_goes_in_its_order)
{
    char name[32], base[32];
    struct fixture g;
    setup(&g);
    for (unsigned steps = 0; steps <= LATEST; steps++) {
        put_weights(&g, steps);
        fixture_wait(&g.fixture);
    }
    open_remote(&g, REDUCE_DENSE);
    wait_published(&g);
    expect_form(&g, "step0", ENCODING_FX, 0, NULL, 1);
    for (unsigned steps = 1; steps <= LATEST; steps++) {
        unsigned on = steps == CHAIN_DEPTH_MAX + 1 ? 0 : steps - 1;
        (void)snprintf(name, sizeof name, "step%u", steps);
        (void)snprintf(base, sizeof base, "step%u", on);
        expect_form(&g, name, ENCODING_DX,
                    steps > CHAIN_DEPTH_MAX ? steps - CHAIN_DEPTH_MAX : steps, base, 1);
    }
    teardown(&g);
}

/* They come first on NVMe, and go last. */
Test(dense, masters_go_after_their_images)
{
    struct fixture g;
    setup(&g);
    put_masters(&g, "masters", 0, 5);
    fixture_wait(&g.fixture);
    put_weights(&g, 0);
    open_remote(&g, REDUCE_DENSE);
    wait_published(&g);
    expect_form(&g, "step0", ENCODING_FX, 0, NULL, 1);
    expect_form(&g, "masters", ENCODING_TWIN, 1, "step0", 2);
    teardown(&g);
}

Test(dense, images_are_known_when_masters_come_with_a_later_head)
{
    struct fixture g;
    setup(&g);
    open_remote(&g, REDUCE_DENSE);
    put_weights(&g, 0);
    wait_published(&g);
    put_masters(&g, "masters", 0, 5);
    wait_published(&g);
    expect_form(&g, "masters", ENCODING_TWIN, 1, "step0", 2);
    teardown(&g);
}

/* The memory for them is given back when none was sent for ten minutes. */
Test(dense, images_are_forgotten_when_none_comes)
{
    struct fixture g;
    setup(&g);
    open_remote(&g, REDUCE_DENSE);
    struct dense *dense = g.fixture.store->dense;
    put_weights(&g, 0);
    wait_published(&g);
    int64_t now = clock_monotonic_ns();
    dense_tick(dense, now + 590 * SECOND_NS);
    put_masters(&g, "masters", 0, 5);
    wait_published(&g);
    dense_tick(dense, now + 610 * SECOND_NS);
    put_masters(&g, "others", 0, 6);
    wait_published(&g);
    expect_form(&g, "masters", ENCODING_TWIN, 1, "step0", 2);
    expect_form(&g, "others", ENCODING_FX, 0, NULL, 2);
    teardown(&g);
}

/* But those of the last of a chain, which is as deep as a chunk may be. */
Test(dense, twins_rest_on_images_of_a_chain)
{
    struct fixture g;
    setup(&g);
    for (unsigned steps = 0; steps <= CHAIN_DEPTH_MAX; steps++) {
        put_weights(&g, steps);
        fixture_wait(&g.fixture);
    }
    open_remote(&g, REDUCE_DENSE);
    wait_published(&g);
    put_masters(&g, "masters", CHAIN_DEPTH_MAX - 1, 5);
    put_masters(&g, "others", CHAIN_DEPTH_MAX, 6);
    wait_published(&g);
    expect_form(&g, "step8", ENCODING_DX, CHAIN_DEPTH_MAX, "step7", 1);
    expect_form(&g, "masters", ENCODING_TWIN, CHAIN_DEPTH_MAX, "step7", 2);
    expect_form(&g, "others", ENCODING_FX, 0, NULL, 2);
    teardown(&g);
}

/* The chunk at this place of one file is the difference to that of another. */
static void expect_difference(struct fixture *g, const char *name, const char *base, unsigned depth)
{
    for (unsigned i = 0; i < 2 * CHUNKS; i++) {
        struct chunk_entry entry = place_of(g, name, i);
        struct chunk_name expected = chunk_of(g, base, i);
        expect_u64(entry.encoding, ENCODING_DX, "chunk %u of %s", i, name);
        expect_u64(entry.depth, depth, "chunk %u of %s", i, name);
        cr_expect(entry.ref_count == 1 && chunk_name_equal(&entry.refs[0].name, &expected));
    }
}

/* Their upper halves are equal, their lower ones are not: worth it without an image, too. */
Test(dense, fp32_is_stored_by_what_came_before)
{
    struct fixture g;
    setup(&g);
    for (unsigned i = 1; i <= 4; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "masters%u", i);
        put_masters(&g, name, 0, i);
        fixture_wait(&g.fixture);
    }
    open_remote(&g, REDUCE_DENSE);
    wait_published(&g);
    expect_form(&g, "masters1", ENCODING_FX, 0, NULL, 2);
    expect_difference(&g, "masters2", "masters1", 1);
    expect_difference(&g, "masters3", "masters2", 2);
    expect_difference(&g, "masters4", "masters2", 2);
    teardown(&g);
}

#define TENSORS 10u
#define MOMENTS 6u /* of them, which come first */

/* As an adapter's state is: tensors of some 100 KiB, the moments unlike the ones before. */
static void put_adapter(struct fixture *g, const char *name, unsigned step, size_t at[TENSORS])
{
    uint8_t *weights = xcalloc(1, LEN), *data = xcalloc(2, LEN);
    uint64_t ino = fixture_create(&g->fixture, name);
    size_t offset = 0;
    for (unsigned i = 0; i < TENSORS; i++) {
        size_t len = 98304 + 4096 * i; /* as long as no other: a write is a tensor */
        make_weights(weights, LEN, i < MOMENTS ? 100 * step + i : i, 0);
        make_masters(data, weights, LEN, step);
        fixture_write(&g->fixture, ino, offset, data, len);
        at[i] = offset;
        offset += len;
    }
    fixture_seal(&g->fixture, ino);
    fixture_drop(&g->fixture, ino);
    free(weights);
    free(data);
}

/* What does not help is a matter of bytes: some short chunks say nothing of the next one. */
Test(dense, short_tensors_are_tried_each)
{
    struct fixture g;
    size_t at[TENSORS];
    setup(&g);
    for (unsigned step = 1; step <= 2; step++) {
        put_adapter(&g, step == 1 ? "adapter1" : "adapter2", step, at);
        fixture_wait(&g.fixture);
    }
    open_remote(&g, REDUCE_DENSE);
    wait_published(&g);
    for (unsigned i = 0; i < TENSORS; i++) {
        struct chunk_entry entry;
        struct chunk_name chunk = chunk_at(&g, "adapter2", at[i]);
        assert_i64(view_remote_place(g.fixture.store->local.view, &chunk, &entry), 0);
        expect_u64(entry.encoding, i < MOMENTS ? ENCODING_FX : ENCODING_DX, "tensor %u", i);
    }
    teardown(&g);
}

Test(dense, without_it_nothing_refers_to_anything)
{
    struct fixture g;
    setup(&g);
    put_weights(&g, 0);
    fixture_wait(&g.fixture);
    put_weights(&g, 1);
    put_masters(&g, "masters", 1, 5);
    open_remote(&g, REDUCE_FAST);
    wait_published(&g);
    expect_form(&g, "step1", ENCODING_FX, 0, NULL, 1);
    expect_form(&g, "masters", ENCODING_FX, 0, NULL, 2);
    teardown(&g);
}

Test(dense, what_is_not_near_is_plain)
{
    struct fixture g;
    setup(&g);
    open_remote(&g, REDUCE_DENSE);
    put_weights(&g, 0);
    wait_published(&g);
    fixture_put(&g.fixture, "step1", 3, LEN);
    wait_published(&g);
    expect_form(&g, "step1", ENCODING_RAW, 0, NULL, 1);
    teardown(&g);
}

/* --- what is not there any more --------------------------------------------------------------- */

/* The chunks of a file rest on these, in their order. */
static void expect_rests_on(struct fixture *g, const char *name, const struct chunk_name *bases,
                            unsigned depth)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        struct chunk_entry entry = place_of(g, name, i);
        expect_u64(entry.encoding, ENCODING_DX, "chunk %u of %s", i, name);
        expect_u64(entry.depth, depth, "chunk %u of %s", i, name);
        cr_expect(entry.ref_count == 1 && chunk_name_equal(&entry.refs[0].name, &bases[i]));
    }
}

static void get_names(struct fixture *g, const char *name, struct chunk_name ret[CHUNKS])
{
    for (unsigned i = 0; i < CHUNKS; i++)
        ret[i] = chunk_of(g, name, i);
}

/* A job that keeps its last checkpoint alone. */
Test(dense, what_was_deleted_since_the_newest_head_serves_once_more)
{
    struct chunk_name old[CHUNKS];
    struct fixture g;
    setup(&g);
    open_remote(&g, REDUCE_DENSE);
    put_weights(&g, 0);
    wait_published(&g);
    get_names(&g, "step0", old);
    put_weights(&g, 1);
    fixture_unlink(&g.fixture, "step0", 0); /* nearly always in one head with it */
    wait_published(&g);
    expect_rests_on(&g, "step1", old, 1);
    teardown(&g);
}

static void write_over(struct fixture *g, const char *name, unsigned steps)
{
    uint8_t *data = xcalloc(1, LEN);
    uint64_t ino = fixture_lookup(&g->fixture, name);
    make_weights(data, LEN, 1, steps);
    if (!ino) {
        put_bytes(g, name, data, LEN);
    } else {
        fixture_write(&g->fixture, ino, 0, data, LEN);
        fixture_seal(&g->fixture, ino);
    }
    free(data);
}

/* A chain, until that keeps more than a content is long; then it begins at the keyframe anew. */
Test(dense, a_name_that_is_written_over_rests_on_what_it_had)
{
    struct chunk_name key[CHUNKS], before[CHUNKS];
    unsigned depth = 0, restarts = 0;
    struct fixture g;
    setup(&g);
    open_remote(&g, REDUCE_DENSE);
    write_over(&g, "latest", 0);
    wait_published(&g);
    get_names(&g, "latest", key);
    for (unsigned steps = 1; steps < LATEST; steps++) {
        get_names(&g, "latest", before);
        write_over(&g, "latest", steps);
        wait_published(&g);
        unsigned now = place_of(&g, "latest", 0).depth;
        cr_expect(now == depth + 1 || now == 1, "depth %u after %u", now, depth);
        expect_rests_on(&g, "latest", now == 1 ? key : before, now);
        restarts += now == 1 && depth > 0;
        depth = now;
    }
    cr_expect(restarts > 0);
    cr_expect_lt(view_remote(g.fixture.store->local.view).pack_bytes, 2 * LEN);
    teardown(&g);
}
