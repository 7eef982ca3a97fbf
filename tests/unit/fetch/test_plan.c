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

static void take_answer(const struct fetch_answer *answer, void *arg)
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
    struct fetch_read_request request = {
        .ino = ino, .offset = offset, .length = length, .reply = take_answer, .arg = to};
    fetch_start_read(fixture.store, &request);
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

/* --- one decode for all ----------------------------------------------------------------------- */

static _Atomic unsigned decodes;
static _Atomic bool decodes_wait;
static _Atomic int one_decode_fails; /* what the next one returns, instead */

int __real_packs_read_at(struct packs *packs, const struct chunk_entry *entry, void *buf);
int __wrap_packs_read_at(struct packs *packs, const struct chunk_entry *entry, void *buf);
int __wrap_packs_read_at(struct packs *packs, const struct chunk_entry *entry, void *buf)
{
    bool is_first = atomic_fetch_add(&decodes, 1) == 0;
    while (is_first && atomic_load(&decodes_wait))
        (void)usleep(1000);
    int error = atomic_exchange(&one_decode_fails, 0);
    return error ? error : __real_packs_read_at(packs, entry, buf);
}

#define READERS 12u /* more than the threads that read NVMe */

/* `readers` that want `length` bytes of the first chunk; the first of them is decoding it. */
static void start_readers(struct answer *readers, uint64_t ino, size_t length)
{
    atomic_store(&decodes, 0);
    atomic_store(&decodes_wait, true);
    start_read(&readers[0], ino, 0, length);
    AWAIT(atomic_load(&decodes) == 1, "it decodes");
    for (unsigned i = 1; i < READERS; i++)
        start_read(&readers[i], ino, i * 1000, length - i * 1000);
}

Test(plan, a_chunk_is_decoded_once_for_all_who_want_it)
{
    static struct answer readers[READERS], other;
    fixture_put(&fixture, "a", 1, 2 * MIB);
    _cleanup_free_ uint8_t *bytes = content_of("a", 0, 2 * MIB);
    reopen();
    uint64_t ino = fixture_lookup(&fixture, "a");
    start_readers(readers, ino, MIB);
    start_read(&other, ino, MIB, MIB);
    expect_bytes(&other, bytes + MIB, MIB); /* those that wait have no thread */
    for (unsigned i = 0; i < READERS; i++)
        expect_i64(atomic_load(&readers[i].replies), 0);
    atomic_store(&decodes_wait, false);
    for (unsigned i = 0; i < READERS; i++)
        expect_bytes(&readers[i], bytes + i * 1000, MIB - i * 1000);
    assert_u64(atomic_load(&decodes), 2);
    start_read(&other, ino, 100, 2 * MIB - 200); /* and for those that follow */
    expect_bytes(&other, bytes + 100, 2 * MIB - 200);
    assert_u64(atomic_load(&decodes), 2);
}

Test(plan, a_decode_that_fails_is_no_one_elses)
{
    static struct answer readers[READERS];
    fixture_put(&fixture, "a", 1, MIB);
    _cleanup_free_ uint8_t *bytes = content_of("a", 0, MIB);
    fixture_wait(&fixture);
    open_store(false);
    start_readers(readers, fixture_lookup(&fixture, "a"), MIB);
    (void)usleep(50000); /* they wait */
    atomic_store(&one_decode_fails, -EBADMSG);
    atomic_store(&decodes_wait, false);
    cr_assert(is_answered(&readers[0], 60000));
    assert_i64(readers[0].error, -EIO);
    free(readers[0].bytes);
    for (unsigned i = 1; i < READERS; i++)
        expect_bytes(&readers[i], bytes + i * 1000, MIB - i * 1000);
    start_read(&readers[0], fixture_lookup(&fixture, "a"), 0, MIB);
    expect_bytes(&readers[0], bytes, MIB);
}

Test(plan, decodes_without_a_place)
{
    struct answer answer;
    struct decoded *taken[DECODED_MAX], *none;
    fixture_put(&fixture, "a", 1, 3 * MIB);
    _cleanup_free_ uint8_t *bytes = content_of("a", 0, 3 * MIB);
    reopen();
    struct decoded_set *set = &fixture.store->fetch->decoded;
    uint64_t ino = fixture_lookup(&fixture, "a");
    for (unsigned i = 0; i < DECODED_MAX; i++)
        assert_u64(decoded_get(set, &(struct chunk_name){.bytes = {(uint8_t)(i + 1)}}, &taken[i]),
                   DECODED_MINE);
    assert_u64(decoded_get(set, &(struct chunk_name){.bytes = {99}}, &none), DECODED_FULL);
    start_read(&answer, ino, MIB, MIB);
    expect_bytes(&answer, bytes + MIB, MIB);
    start_read(&answer, ino, MIB / 2, 2 * MIB);
    expect_bytes(&answer, bytes + MIB / 2, 2 * MIB);
    struct plan_list woken = STAILQ_HEAD_INITIALIZER(woken);
    for (unsigned i = 0; i < DECODED_MAX; i++)
        decoded_end(set, taken[i], i % 2, &woken);
    for (unsigned i = 1; i < DECODED_MAX; i += 2)
        decoded_unpin(set, taken[i]);
    start_read(&answer, ino, MIB / 2, 2 * MIB);
    expect_bytes(&answer, bytes + MIB / 2, 2 * MIB);
    cr_assert_not_null(decoded_find(set, &taken[DECODED_MAX - 1]->name), "used latest, it stays");
    decoded_unpin(set, taken[DECODED_MAX - 1]);
}

/* A reader that may get less has what comes before the damage, also where it lies in a place that
 * all share. */
Test(plan, what_comes_before_damage_is_answered)
{
    struct answer answer = {.bytes = xmalloc(2 * MIB)};
    fixture_put(&fixture, "a", 1, 2 * MIB);
    _cleanup_free_ uint8_t *bytes = content_of("a", 0, 2 * MIB);
    fixture_wait(&fixture);
    open_store(false);
    uint64_t ino = fixture_lookup(&fixture, "a");
    struct answer first;
    start_read(&first, ino, 0, 1000);
    expect_bytes(&first, bytes, 1000);
    atomic_store(&one_decode_fails, -EBADMSG);
    struct fetch_read_request request = {.ino = ino,
                                         .offset = 500,
                                         .length = MIB + 500,
                                         .may_be_short = true,
                                         .reply = take_answer,
                                         .arg = &answer};
    fetch_start_read(fixture.store, &request);
    expect_bytes(&answer, bytes + 500, MIB - 500);
}

/* --- what a plan relies on -------------------------------------------------------------------- */

static struct plan *plan_of(uint64_t ino, size_t length)
{
    struct plan *plan = xcalloc(1, sizeof *plan);
    plan->store = fixture.store;
    plan->want = (struct fetch_read_request){.ino = ino, .length = length};
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
