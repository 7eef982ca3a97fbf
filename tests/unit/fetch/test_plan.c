// SPDX-License-Identifier: Apache-2.0
/* One read: what its range consists of, from where each part comes, and what may change
 * meanwhile. */
#include <sys/stat.h>

#include "fetch/internal.h"
#include "fetch/plan.h"
#include "../expect.h"
#include "fetch_fixture.h"

TestSuite(plan, .init = fetch_setup, .fini = fetch_teardown, .timeout = 600);

Test(plan, threads_by_cores, .init = NULL, .fini = NULL)
{
    const struct {
        long cores;
        unsigned threads;
    } cases[] = {{-1, 4}, {1, 4}, {9, 4}, {10, 5}, {32, 16}, {192, 16}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_u64(read_threads_by_cores(cases[i].cores), cases[i].threads);
}

/* The memory that mount prints has a buffer, and dense bases, for each of them. */
Test(plan, memory_counts_each_thread)
{
    unsigned *threads = &fixture.store->fetch->read_threads, before = *threads;
    uint64_t all = fetch_memory(fixture.store);
    *threads += 3;
    uint64_t each = (fetch_memory(fixture.store) - all) / 3;
    *threads = before;
    cr_assert(each >= CHUNK_SIZE_MAX, "%llu", (unsigned long long)each);
}

struct answer {
    _Atomic int replies;
    int error;
    size_t length;
    uint8_t *bytes; /* of what was asked for */
};

static void take_answer(const struct store_answer *answer, void *arg)
{
    struct answer *to = arg;
    size_t done = 0;
    for (size_t i = 0; i < answer->iov_count; i++) {
        memcpy(to->bytes + done, answer->iov[i].iov_base, answer->iov[i].iov_len);
        done += answer->iov[i].iov_len;
    }
    to->error = answer->error;
    to->length = answer->length;
    assert_u64(done, answer->length);
    atomic_fetch_add(&to->replies, 1);
}

static void start_read(struct answer *to, uint64_t ino, uint64_t offset, size_t length)
{
    *to = (struct answer){.bytes = xmalloc(length)};
    struct store_read_request request = {
        .ino = ino, .offset = offset, .length = length, .reply = take_answer, .arg = to};
    store_start_read(fixture.store, &request);
}

static bool is_answered(struct answer *answer, unsigned ms)
{
    for (unsigned i = 0; i < ms && !atomic_load(&answer->replies); i++)
        (void)usleep(1000);
    return atomic_load(&answer->replies) == 1;
}

static void expect_bytes(struct answer *answer, const uint8_t *expected, size_t length)
{
    cr_assert(is_answered(answer, 60000));
    assert_i64(answer->error, 0, "%s", strerror(-answer->error));
    assert_u64(answer->length, length, "is %zu", answer->length);
    assert_i64(memcmp(answer->bytes, expected, length), 0);
    free(answer->bytes);
}

static uint8_t *content_of(const char *name, uint64_t offset, size_t length)
{
    uint8_t *bytes = xmalloc(length);
    fixture_read(&fixture, fixture_lookup(&fixture, name), offset, bytes, length);
    return bytes;
}

/* Nothing is staged any more. */
static void reopen(void)
{
    fixture_wait(&fixture);
    open_store(true);
}

Test(plan, what_lies_in_the_view_is_answered_at_once)
{
    struct answer answer;
    fixture_put(&fixture, "small", 1, 3000);
    fixture_put(&fixture, "large", 2, 300000);
    _cleanup_free_ uint8_t *small = content_of("small", 0, 3000),
                           *large = content_of("large", 0, 300000);
    reopen();
    start_read(&answer, fixture_lookup(&fixture, "small"), 0, 4096);
    expect_i64(atomic_load(&answer.replies), 1, "by the thread that asked");
    expect_bytes(&answer, small, 3000);
    start_read(&answer, fixture_lookup(&fixture, "large"), 0, 300000);
    expect_bytes(&answer, large, 300000);
}

/* stage:   ....ssss....
 * remote:  rrrrrrrrrrrr */
Test(plan, one_answer_of_stage_and_remote)
{
    static const char text[] = "written here";
    struct answer answer;
    fixture_put(&fixture, "big", 1, 3 * MIB);
    _cleanup_free_ uint8_t *bytes = content_of("big", MIB, MIB);
    move_node();
    uint64_t ino = fixture_lookup(&fixture, "big");
    fixture_write(&fixture, ino, MIB + 500000, text, sizeof text);
    memcpy(bytes + 500000, text, sizeof text);
    start_read(&answer, ino, MIB, MIB);
    expect_bytes(&answer, bytes, MIB);
}

#define PIECES 300u /* more than PLAN_PARTS */

static uint64_t make_pieces(const char *name)
{
    uint64_t ino = fixture_create(&fixture, name);
    for (unsigned i = 0; i < PIECES; i++)
        fixture_fill(&fixture, ino, i * 4096ull, i + 1, 700);
    fixture_seal(&fixture, ino);
    fixture_drop(&fixture, ino);
    return ino;
}

Test(plan, more_parts_than_a_plan_has)
{
    const size_t length = (PIECES - 1) * 4096ull + 700;
    struct answer answer;
    uint64_t ino = make_pieces("pieces");
    _cleanup_free_ uint8_t *bytes = content_of("pieces", 0, length);
    wait_remote();
    reopen();
    start_read(&answer, ino, 0, length);
    expect_bytes(&answer, bytes, length);
    move_node();
    start_read(&answer, ino, 0, length);
    expect_bytes(&answer, bytes, length);
}

#define HELD_UP 40u /* more than the threads that wait for the remote */

Test(plan, a_hanging_remote_holds_up_only_what_lies_there)
{
    static struct answer held[HELD_UP], answer;
    fixture_put(&fixture, "far", 1, HELD_UP * MIB);
    fixture_put(&fixture, "here", 2, 2 * MIB);
    _cleanup_free_ uint8_t *here = content_of("here", 0, MIB);
    move_node();
    fixture_expect(&fixture, "here", 2, 2 * MIB);
    await_kept(2 * MIB);
    reopen(); /* nothing of it is in memory */
    atomic_store(&gets_wait, true);
    for (unsigned i = 0; i < HELD_UP; i++)
        start_read(&held[i], fixture_lookup(&fixture, "far"), i * MIB + 100, 1000);
    start_read(&answer, fixture_lookup(&fixture, "here"), 0, MIB);
    bool is_here = is_answered(&answer, 30000);
    for (unsigned i = 0; i < HELD_UP; i++)
        expect_i64(atomic_load(&held[i].replies), 0);
    atomic_store(&gets_wait, false);
    cr_assert(is_here, "it waits for the remote");
    expect_bytes(&answer, here, MIB);
    for (unsigned i = 0; i < HELD_UP; i++) {
        _cleanup_free_ uint8_t *bytes = content_of("far", i * MIB + 100, 1000);
        expect_bytes(&held[i], bytes, 1000);
    }
}

static _Atomic bool goes_on;
static _Atomic unsigned reads;

static void *read_again_and_again(void *arg)
{
    const uint8_t *expected = arg;
    uint64_t ino = fixture_lookup(&fixture, "a");
    struct answer answer;
    for (unsigned i = 0; atomic_load(&goes_on); i++) {
        uint64_t offset = i % 9 * MIB + 77;
        start_read(&answer, ino, offset, 200000 + i % 3 * 300000);
        expect_bytes(&answer, expected + offset, 200000 + i % 3 * 300000);
        atomic_fetch_add(&reads, 1);
    }
    return NULL;
}

Test(plan, chunks_that_leave_and_come_back)
{
    pthread_t readers[3];
    fixture_put(&fixture, "a", 1, 10 * MIB);
    wait_remote();
    _cleanup_free_ uint8_t *bytes = content_of("a", 0, 10 * MIB);
    reopen();
    atomic_store(&goes_on, true);
    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        assert_i64(pthread_create(&readers[i], NULL, read_again_and_again, bytes), 0);
    for (unsigned i = 0; i < 8; i++) {
        (void)run_job("a", true);
        (void)run_job("a", false);
    }
    atomic_store(&goes_on, false);
    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        (void)pthread_join(readers[i], NULL);
    cr_assert_gt(atomic_load(&reads), 10);
    cr_assert_gt(atomic_load(&gets), 0, "some of it came from the remote");
}

/* --- what a plan relies on -------------------------------------------------------------------- */

static struct plan *plan_of(uint64_t ino, size_t length)
{
    struct plan *plan = xcalloc(1, sizeof *plan);
    plan->store = fixture.store;
    plan->want = (struct store_read_request){.ino = ino, .length = length};
    plan->length = length;
    plan->may = plan->needs = WAIT_NVME;
    plan->buffer = xmalloc(length);
    plan->generation = change_generation(store_commit(fixture.store)->change);
    return plan;
}

static void plan_free(struct plan *plan)
{
    free(plan->buffer);
    vector_free(&plan->bytes);
    free(plan);
}

Test(plan, what_the_view_overtook_is_resolved_again)
{
    fixture_put(&fixture, "a", 1, 300000);
    reopen();
    struct plan *plan = plan_of(fixture_lookup(&fixture, "a"), 300000);
    plan->is_looked = true; /* at a version before that one */
    plan->version = 0;
    plan_resolve(plan);
    assert_u64(plan->state, PLAN_RESOLVE);
    assert_u64(plan->tries, 1);
    plan_resolve(plan);
    assert_u64(plan->state, PLAN_FILL);
    assert_u64(plan->version, 1);
    assert_u64(plan->end, 300000);
    plan_free(plan);
}

Test(plan, parts_of_two_generations_are_resolved_again)
{
    fixture_put(&fixture, "a", 1, 300000);
    reopen();
    struct plan *plan = plan_of(fixture_lookup(&fixture, "a"), 300000);
    plan->is_looked = true;
    plan->version = 1;
    change_next_generation(store_commit(fixture.store)->change);
    change_next_generation(store_commit(fixture.store)->change);
    plan_resolve(plan);
    assert_u64(plan->state, PLAN_RESOLVE);
    plan_resolve(plan);
    assert_u64(plan->state, PLAN_FILL);
    plan->at = 1000; /* some of it was read, and now there is another state */
    change_next_generation(store_commit(fixture.store)->change);
    change_next_generation(store_commit(fixture.store)->change);
    plan_resolve(plan);
    assert_u64(plan->state, PLAN_RESOLVE);
    assert_u64(plan->at, 0, "it is read anew");
    plan->at = 1000;
    plan->tries = PLAN_TRIES;
    plan->generation--;
    plan_resolve(plan);
    assert_u64(plan->state, PLAN_ANSWER);
    assert_i64(plan->error, -ESTALE, "and not without end");
    plan_free(plan);
}
