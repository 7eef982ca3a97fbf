// SPDX-License-Identifier: Apache-2.0
/* Warming up beside a reader that fetches the same chunk: the job has not ended before NVMe has it.
 */
#include "../commit/commit_peek.h"
#include "../expect.h"
#include "fetch/pull.h"
#include "fetch_fixture.h"

#define LENGTH 100000u /* one chunk */

TestSuite(warm, .init = fetch_setup, .fini = fetch_teardown, .timeout = 600);

static int reader_result;
static pthread_t reader;

static void *read_start(void *arg)
{
    (void)arg;
    reader_result = try_read(fixture_lookup(&fixture, "file"));
    return NULL;
}

/* A node where a reader's GET for the file is under way, and is held up. */
static void begin_read(void)
{
    fixture_put(&fixture, "file", 1, LENGTH);
    move_node();
    atomic_store(&gets_wait, true);
    assert_i64(pthread_create(&reader, NULL, read_start, NULL), 0);
    AWAIT(atomic_load(&gets) > 0, "no GET");
}

static int end_read(void)
{
    atomic_store(&gets_wait, false);
    (void)pthread_join(reader, NULL);
    return reader_result;
}

static void expect_warmed(struct warm_status s)
{
    expect_u64(s.failed_bytes + s.not_kept_bytes, 0);
    expect_u64(s.done_bytes, s.total_bytes);
    cr_expect_geq(fixture_status(&fixture).view.pack_bytes, LENGTH,
                  "NVMe has it when the job has ended");
    fixture_expect(&fixture, "file", 1, LENGTH);
}

/* Starts a job that most likely meets the reader's chunk before this returns. Nothing can be seen
 * of a job that waits: a slow machine passes without having met it. */
static uint64_t warm_beside_reader(void)
{
    uint64_t job = start_job("file", false);
    (void)usleep(200000);
    cr_assert_not(look_at_job(job).ended, "it waits for the reader's chunk");
    return job;
}

Test(warm, waits_until_what_a_reader_fetches_is_kept)
{
    begin_read();
    uint64_t job = warm_beside_reader();
    assert_i64(end_read(), 0);
    expect_warmed(await_job(job));
    expect_u64(atomic_load(&gets), 1, "it is fetched once");
}

Test(warm, fetches_what_a_reader_did_not_get)
{
    begin_read();
    uint64_t job = warm_beside_reader();
    atomic_store(&one_get_fails, true);
    assert_i64(end_read(), -EIO);
    expect_warmed(await_job(job));
    expect_u64(atomic_load(&gets), 2);
}

Test(warm, a_job_that_waits_for_a_reader_can_be_cancelled)
{
    struct warm_status s;
    begin_read();
    uint64_t job = warm_beside_reader();
    assert_i64(fetch_warm_status(fixture.store, job, true, &s), 0);
    AWAIT(look_at_job(job).ended, "it goes on");
    assert_i64(end_read(), 0);
}

/* The room thread looks once a second. */
static void cap_nvme(uint64_t cap)
{
    fixture.store->local.options.cap_bytes = cap;
    AWAIT((room_granted(fixture.store) > 0) == (cap == 0), "room is not as the cap says");
}

/* The reader's chunk is in memory, and nothing brings it to NVMe. */
static bool is_unkept(void)
{
    struct pull *pull = fixture.store->fetch->pull;
    LOCK_SCOPE(&pull->locked.lock);
    const struct pull_chunk *chunk = TAILQ_FIRST(&pull->locked.ready);
    return chunk && !pull_is_coming_locked(pull, &chunk->name);
}

Test(warm, keeps_what_found_no_room_when_a_reader_had_it)
{
    begin_read();
    cap_nvme(1);
    assert_i64(end_read(), 0);
    AWAIT(is_unkept(), "it is not in memory alone");
    cap_nvme(0);
    expect_warmed(run_job("file", false));
    expect_u64(atomic_load(&gets), 2);
}
