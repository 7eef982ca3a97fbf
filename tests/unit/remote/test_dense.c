// SPDX-License-Identifier: Apache-2.0
/* What an upload with reduce=dense stores by what: the order in which a cut's chunks are sent, and
 * the forms that they get. */
#include <stdio.h>

#include "../expect.h"
#include "../numbered.h"
#include "../fixtures/weights.h"
#include "base/clock.h"
#include "dense/chains.h"
#include "dense/dense.h"
#include "remote_fixture.h"

#define CHUNKS 2u
#define LEN (CHUNKS * (size_t)CHUNK_SIZE_MAX)
#define LATEST 9u /* steps of a run that are saved at most, but for the first */

TestSuite(dense, .init = remote_setup, .fini = remote_teardown);

/* Until here there was no remote: all that is there comes with the first cut. Returns when that is
 * published. */
static void open_remote(enum reduce reduce)
{
    if (fixture.store) {
        fixture_wait(&fixture);
        fixture_close(&fixture);
    }
    fixture.options.reduce = reduce;
    open_with("remote", LONG_GRACE_NS);
    wait_published();
}

/* --- files ------------------------------------------------------------------------------------ */

static void put_weights(unsigned steps)
{
    _cleanup_free_ uint8_t *data = xcalloc(1, LEN);
    make_weights(data, LEN, 1, steps);
    fixture_put_bytes(&fixture, numbered("step%u", steps), data, LEN);
}

/* Of the weights after so many steps. */
static void put_masters(const char *name, unsigned steps, unsigned seed)
{
    _cleanup_free_ uint8_t *weights = xcalloc(1, LEN), *data = xcalloc(2, LEN);
    make_weights(weights, LEN, 1, steps);
    make_masters(data, weights, LEN, seed);
    fixture_put_bytes(&fixture, name, data, 2 * LEN);
}

static struct chunk_name chunk_of(const char *name, unsigned i)
{
    return fixture_chunk_at(&fixture, name, i * (uint64_t)CHUNK_SIZE_MAX);
}

/* --- what the remote has ---------------------------------------------------------------------- */

static struct chunk_entry place_of(const char *name, unsigned i)
{
    struct chunk_entry entry;
    struct chunk_name chunk = chunk_of(name, i);
    assert_i64(view_remote_place(fixture.store->local.view, &chunk, &entry), 0);
    return entry;
}

/* All chunks of the file have this form. `base`: a file of which those refer to the chunk that
 * stands at 1/`width` of their own place; NULL: they refer to nothing. */
static void expect_form(const char *name, enum chunk_encoding encoding, unsigned depth,
                        const char *base, unsigned width)
{
    for (unsigned i = 0; i < width * CHUNKS; i++) {
        struct chunk_entry entry = place_of(name, i);
        expect_u64(entry.encoding, encoding, "chunk %u of %s", i, name);
        expect_u64(entry.depth, depth, "chunk %u of %s", i, name);
        expect_u64(entry.ref_count, base != NULL, "chunk %u of %s", i, name);
        if (!base || entry.ref_count == 0)
            continue;
        struct chunk_name expected = chunk_of(base, i / width);
        cr_expect(chunk_name_equal(&entry.refs[0].name, &expected), "chunk %u of %s", i, name);
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

/* Each is there when the next one is stored by it. */
Test(dense, a_chain_that_comes_with_one_cut_goes_in_its_order)
{
    fixture_open(&fixture);
    for (unsigned steps = 0; steps <= LATEST; steps++) {
        put_weights(steps);
        fixture_wait(&fixture);
    }
    open_remote(REDUCE_DENSE);
    expect_form("step0", ENCODING_FX, 0, NULL, 1);
    for (unsigned steps = 1; steps <= LATEST; steps++) {
        unsigned on = steps == CHAIN_DEPTH_MAX + 1 ? 0 : steps - 1;
        expect_form(numbered("step%u", steps), ENCODING_DX,
                    steps > CHAIN_DEPTH_MAX ? steps - CHAIN_DEPTH_MAX : steps,
                    numbered("step%u", on), 1);
    }
}

/* They come first on NVMe, and go last. */
Test(dense, masters_go_after_their_images)
{
    fixture_open(&fixture);
    put_masters("masters", 0, 5);
    fixture_wait(&fixture);
    put_weights(0);
    open_remote(REDUCE_DENSE);
    expect_form("step0", ENCODING_FX, 0, NULL, 1);
    expect_form("masters", ENCODING_TWIN, 1, "step0", 2);
}

Test(dense, images_are_known_when_masters_come_with_a_later_head)
{
    open_remote(REDUCE_DENSE);
    put_weights(0);
    wait_published();
    put_masters("masters", 0, 5);
    wait_published();
    expect_form("masters", ENCODING_TWIN, 1, "step0", 2);
}

/* The memory for them is given back when none was sent for ten minutes. */
Test(dense, images_are_forgotten_when_none_comes)
{
    open_remote(REDUCE_DENSE);
    struct dense *dense = fixture.store->dense;
    put_weights(0);
    wait_published();
    int64_t now = clock_monotonic_ns();
    dense_tick(dense, now + 590 * SECOND_NS);
    put_masters("masters", 0, 5);
    wait_published();
    dense_tick(dense, now + 610 * SECOND_NS);
    put_masters("others", 0, 6);
    wait_published();
    expect_form("masters", ENCODING_TWIN, 1, "step0", 2);
    expect_form("others", ENCODING_FX, 0, NULL, 2);
}

/* But those of the last of a chain, which is as deep as a chunk may be. */
Test(dense, twins_rest_on_images_of_a_chain)
{
    fixture_open(&fixture);
    for (unsigned steps = 0; steps <= CHAIN_DEPTH_MAX; steps++) {
        put_weights(steps);
        fixture_wait(&fixture);
    }
    open_remote(REDUCE_DENSE);
    put_masters("masters", CHAIN_DEPTH_MAX - 1, 5);
    put_masters("others", CHAIN_DEPTH_MAX, 6);
    wait_published();
    expect_form("step8", ENCODING_DX, CHAIN_DEPTH_MAX, "step7", 1);
    expect_form("masters", ENCODING_TWIN, CHAIN_DEPTH_MAX, "step7", 2);
    expect_form("others", ENCODING_FX, 0, NULL, 2);
}

/* The chunk at this place of one file is the difference to that of another. */
static void expect_difference(const char *name, const char *base, unsigned depth)
{
    for (unsigned i = 0; i < 2 * CHUNKS; i++) {
        struct chunk_entry entry = place_of(name, i);
        struct chunk_name expected = chunk_of(base, i);
        expect_u64(entry.encoding, ENCODING_DX, "chunk %u of %s", i, name);
        expect_u64(entry.depth, depth, "chunk %u of %s", i, name);
        cr_expect(entry.ref_count == 1 && chunk_name_equal(&entry.refs[0].name, &expected));
    }
}

/* Their upper halves are equal, their lower ones are not: worth it without an image, too. */
Test(dense, fp32_is_stored_by_what_came_before)
{
    fixture_open(&fixture);
    for (unsigned i = 1; i <= 4; i++) {
        put_masters(numbered("masters%u", i), 0, i);
        fixture_wait(&fixture);
    }
    open_remote(REDUCE_DENSE);
    expect_form("masters1", ENCODING_FX, 0, NULL, 2);
    expect_difference("masters2", "masters1", 1);
    expect_difference("masters3", "masters2", 2);
    expect_difference("masters4", "masters2", 2);
}

#define TENSORS 10u
#define MOMENTS 6u /* of them, which come first */

/* As an adapter's state is: tensors of some 100 KiB, the moments unlike the ones before. */
static void put_adapter(const char *name, unsigned step, size_t at[TENSORS])
{
    _cleanup_free_ uint8_t *weights = xcalloc(1, LEN), *data = xcalloc(2, LEN);
    uint64_t ino = fixture_create(&fixture, name);
    size_t offset = 0;
    for (unsigned i = 0; i < TENSORS; i++) {
        size_t len = 98304 + 4096 * i; /* as long as no other: a write is a tensor */
        make_weights(weights, LEN, i < MOMENTS ? 100 * step + i : i, 0);
        make_masters(data, weights, LEN, step);
        fixture_write(&fixture, ino, offset, data, len);
        at[i] = offset;
        offset += len;
    }
    fixture_seal(&fixture, ino);
    fixture_drop(&fixture, ino);
}

/* What does not help is a matter of bytes: some short chunks say nothing of the next one. */
Test(dense, short_tensors_are_tried_each)
{
    size_t at[TENSORS];
    fixture_open(&fixture);
    for (unsigned step = 1; step <= 2; step++) {
        put_adapter(step == 1 ? "adapter1" : "adapter2", step, at);
        fixture_wait(&fixture);
    }
    open_remote(REDUCE_DENSE);
    for (unsigned i = 0; i < TENSORS; i++) {
        struct chunk_entry entry;
        struct chunk_name chunk = fixture_chunk_at(&fixture, "adapter2", at[i]);
        assert_i64(view_remote_place(fixture.store->local.view, &chunk, &entry), 0);
        expect_u64(entry.encoding, i < MOMENTS ? ENCODING_FX : ENCODING_DX, "tensor %u", i);
    }
}

Test(dense, without_it_nothing_refers_to_anything)
{
    fixture_open(&fixture);
    put_weights(0);
    fixture_wait(&fixture);
    put_weights(1);
    put_masters("masters", 1, 5);
    open_remote(REDUCE_FAST);
    expect_form("step1", ENCODING_FX, 0, NULL, 1);
    expect_form("masters", ENCODING_FX, 0, NULL, 2);
}

Test(dense, what_is_not_near_is_plain)
{
    open_remote(REDUCE_DENSE);
    put_weights(0);
    wait_published();
    fixture_put(&fixture, "step1", 3, LEN);
    wait_published();
    expect_form("step1", ENCODING_RAW, 0, NULL, 1);
}

/* --- what is not there any more --------------------------------------------------------------- */

/* The chunks of a file rest on these, in their order. */
static void expect_rests_on(const char *name, const struct chunk_name *bases, unsigned depth)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        struct chunk_entry entry = place_of(name, i);
        expect_u64(entry.encoding, ENCODING_DX, "chunk %u of %s", i, name);
        expect_u64(entry.depth, depth, "chunk %u of %s", i, name);
        cr_expect(entry.ref_count == 1 && chunk_name_equal(&entry.refs[0].name, &bases[i]));
    }
}

static void get_names(const char *name, struct chunk_name ret[CHUNKS])
{
    for (unsigned i = 0; i < CHUNKS; i++)
        ret[i] = chunk_of(name, i);
}

/* A job that keeps its last checkpoint alone. */
Test(dense, what_was_deleted_since_the_newest_head_serves_once_more)
{
    struct chunk_name old[CHUNKS];
    open_remote(REDUCE_DENSE);
    put_weights(0);
    wait_published();
    get_names("step0", old);
    put_weights(1);
    fixture_unlink(&fixture, "step0", 0); /* nearly always in one head with it */
    wait_published();
    expect_rests_on("step1", old, 1);
}

static void write_over(const char *name, unsigned steps)
{
    _cleanup_free_ uint8_t *data = xcalloc(1, LEN);
    uint64_t ino = fixture_lookup(&fixture, name);
    make_weights(data, LEN, 1, steps);
    if (!ino) {
        fixture_put_bytes(&fixture, name, data, LEN);
    } else {
        fixture_write(&fixture, ino, 0, data, LEN);
        fixture_seal(&fixture, ino);
    }
}

/* A chain, until that keeps more than a content is long; then it begins at the keyframe anew. */
Test(dense, a_name_that_is_written_over_rests_on_what_it_had)
{
    struct chunk_name key[CHUNKS], before[CHUNKS];
    unsigned depth = 0, restarts = 0;
    open_remote(REDUCE_DENSE);
    write_over("latest", 0);
    wait_published();
    get_names("latest", key);
    for (unsigned steps = 1; steps < LATEST; steps++) {
        get_names("latest", before);
        write_over("latest", steps);
        wait_published();
        unsigned now = place_of("latest", 0).depth;
        cr_expect(now == depth + 1 || now == 1, "depth %u after %u", now, depth);
        expect_rests_on("latest", now == 1 ? key : before, now);
        restarts += now == 1 && depth > 0;
        depth = now;
    }
    cr_expect(restarts > 0);
    cr_expect_lt(view_remote(fixture.store->local.view).pack_bytes, 2 * LEN);
}
