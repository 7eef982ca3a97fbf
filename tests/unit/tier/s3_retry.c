// SPDX-License-Identifier: Apache-2.0
/* What the S3 tier does when a server fails, lies or falls silent: the result, and how often it
 * asked. */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "../await.h"
#include "../expect.h"
#include "bad_tier.h"
#include "base/clock.h"
#include "base/pool.h"
#include "tier/retry.h"

#define STALL_NS 300000000ll /* where a test waits for its end */

TestSuite(s3_retry, .init = bad_begin, .fini = bad_end, .timeout = 600);

Test(s3_retry, faults_that_pass)
{
    BAD_TIER({EMPTY("500")}, {ERROR("500", "InternalError")}, {STORED});
    EXPECT(try_put(), 0, 3);
    EXPECT(try_put(), 0, 4);
    struct tier_traffic t;
    tier->ops->traffic(tier, &t);
    assert_u64(t.requests, 4);
    assert_u64(t.retries, 2);
    assert_u64(t.failures, 0);
    assert_u64(t.sent_bytes, 10000);
    expect_reported("PUT http://127.0.0.1:");
    expect_reported("/bucket/pre/packs/1: answered 500 InternalError (no), request tx1");
}

Test(s3_retry, each_that_is_worth_it)
{
    BAD_TIER({EMPTY("429")}, {EMPTY("502")}, {EMPTY("504")}, {EMPTY("408")},
             {ERROR("400", "RequestTimeout")}, {ERROR("409", "ConditionalRequestConflict")},
             {STORED});
    EXPECT(try_put_new(), 0, 7);
}

Test(s3_retry, none_that_is_not)
{
    static const struct {
        const char *raw;
        int error;
        const char *told;
    } cases[] = {
        {ERROR("403", "AccessDenied"), -EACCES, "must allow it"},
        {ERROR("403", "SignatureDoesNotMatch"), -EACCES,
         "the secret does not match the access key"},
        {ERROR("404", "NoSuchBucket"), -ENODEV, "no such bucket"},
        {ERROR("404", "NoSuchKey"), -ENOENT, NULL},
        {ERROR("400", "InvalidArgument"), -EINVAL, "400 InvalidArgument"},
        {ERROR("412", "PreconditionFailed"), -EEXIST, NULL},
        {ERROR("403", "QuotaExceeded"), -ENOSPC, "quota"},
        {ERROR("400", "EntityTooLarge"), -EFBIG, "EntityTooLarge"},
        {WITH_BODY("200", "", ERROR_BODY("AccessDenied")), -EACCES, "AccessDenied"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        BAD_TIER({cases[i].raw});
        EXPECT(try_put_new(), cases[i].error, 1);
        cr_assert_not(tier_error_is_transient(cases[i].error));
        if (cases[i].told)
            expect_reported(cases[i].told);
        bad_end();
    }
}

Test(s3_retry, patience_ends)
{
    bad_options.patience_ns = 2000000000;
    BAD_TIER({EMPTY("503")});
    int64_t begin = clock_monotonic_ns();
    assert_i64(try_put(), -EBUSY);
    cr_assert_lt(clock_monotonic_ns() - begin, 30000000000);
    cr_assert_gt(bad_count(), 1);
    cr_assert(tier_error_is_transient(-EBUSY));
    struct tier_traffic t;
    tier->ops->traffic(tier, &t);
    assert_u64(t.failures, 1);
    assert_u64(t.requests, bad_count());
}

Test(s3_retry, waits_as_long_as_told)
{
    BAD_TIER({WITH_BODY("503", "Retry-After: 1\r\nContent-Length: 0\r\n", "")}, {STORED});
    int64_t begin = clock_monotonic_ns();
    EXPECT(try_put(), 0, 2);
    cr_assert_geq(clock_monotonic_ns() - begin, 1000000000);
}

Test(s3_retry, told_to_wait_longer_than_patience)
{
    BAD_TIER({WITH_BODY("503", "Retry-After: 3600\r\nContent-Length: 0\r\n", "")}, {STORED});
    int64_t begin = clock_monotonic_ns();
    EXPECT(try_put(), -EBUSY, 1);
    cr_assert_lt(clock_monotonic_ns() - begin, 30000000000, "patience is 60 s");
}

Test(s3_retry, resets)
{
    BAD_TIER({NULL, BAD_RESET}, {"HTTP/1.1 200 O", BAD_RESET}, {NULL, BAD_CLOSE}, {STORED});
    EXPECT(try_put(), 0, 4);
}

Test(s3_retry, bodies_that_end_early)
{
#define SHORT WITH_BODY("206", "Content-Range: bytes 0-9/100\r\nContent-Length: 10\r\n", "01234")
    BAD_TIER({SHORT}, {SHORT, BAD_RESET}, {TEN});
    EXPECT(try_get(), 0, 3);
    bad_end();
    bad_options.patience_ns = 2000000000;
    BAD_TIER({SHORT});
    assert_i64(try_get(), -ECONNRESET);
    cr_assert_gt(bad_count(), 1);
    cr_assert(tier_error_is_transient(-ECONNRESET));
}

Test(s3_retry, an_error_in_a_success)
{
    BAD_TIER({WITH_BODY("200", "", ERROR_BODY("InternalError"))}, {STORED});
    EXPECT(try_put(), 0, 2);
}

/* On a slow machine the good answer, too, may come too late. */
static void expect_success_after(int r, unsigned requests)
{
    assert_i64(r, 0);
    cr_assert_geq(bad_count(), requests);
}

Test(s3_retry, silence)
{
    bad_options.stall_ns = STALL_NS;
    BAD_TIER({NULL, BAD_HOLD}, {"HTTP/1.1 200 OK\r\nETag", BAD_HOLD}, {STORED});
    int64_t begin = clock_monotonic_ns();
    expect_success_after(try_put(), 3);
    cr_assert_geq(clock_monotonic_ns() - begin, 2 * STALL_NS);
}

Test(s3_retry, silence_for_ever)
{
    bad_options.stall_ns = STALL_NS;
    bad_options.patience_ns = 500000000;
    BAD_TIER({NULL, BAD_HOLD});
    assert_i64(try_put(), -ETIMEDOUT);
    expect_reported("the transfer was too slow, or stopped");
}

#define LIST                                                                                       \
    "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>                    "

/* Whatever trickles, heads too, is given up and tried anew; within patience where the server is
 * honest again, else with an error. */
Test(s3_retry, trickle)
{
    static const struct bad_step slow[] = {
        {TEN, BAD_TRICKLE}, {TEN, BAD_TRICKLE}, {STORED, BAD_TRICKLE}, {TEN}};
    bad_options.stall_ns = STALL_NS;
    bad_tier(bad_open(slow, ARRAY_LEN(slow)));
    int64_t begin = clock_monotonic_ns();
    expect_success_after(try_get(), 4);
    cr_assert_geq(clock_monotonic_ns() - begin, 3 * STALL_NS);
    bad_end();
    bad_options.patience_ns = 500000000;
    BAD_TIER({STORED, BAD_TRICKLE});
    assert_i64(try_put(), -ETIMEDOUT);
    bad_end();
    BAD_TIER({WITH_BODY("200", "Content-Type: application/xml\r\n", LIST), BAD_TRICKLE});
    assert_i64(tier->ops->list(tier, "packs", NULL, NULL, NULL), -ETIMEDOUT);
    expect_reported("the transfer was too slow, or stopped");
}

/* The service that gives credentials is slow, and is asked again. */
Test(s3_retry, credentials_that_trickle)
{
    static const char good[] =
        WITH_BODY("200", "", "{\"AccessKeyId\":\"AKweb\",\"SecretAccessKey\":\"not-a-secret\"}");
    _cleanup_free_ char *slow = xasprintf("%s%*s", good, 20000, "");
    const struct bad_step steps[] = {{slow, BAD_TRICKLE}, {good}, {STORED}};
    assert_i64(unsetenv("AWS_ACCESS_KEY_ID"), 0);
    assert_i64(unsetenv("AWS_SECRET_ACCESS_KEY"), 0);
    const char *url = bad_open(steps, ARRAY_LEN(steps));
    assert_i64(setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1), 0);
    bad_options.stall_ns = 1000000000;
    bad_tier(url);
    int64_t begin = clock_monotonic_ns();
    EXPECT(try_put(), 0, 3);
    cr_assert_lt(clock_monotonic_ns() - begin, 30000000000, "all of it takes 80 s");
    cr_assert(bad_request_has(2, "Credential=AKweb/"));
}

/* The server takes the connection, and never answers the handshake. */
Test(s3_retry, a_handshake_that_does_not_end)
{
    bad_options.stall_ns = STALL_NS;
    bad_options.patience_ns = 700000000;
    _cleanup_free_ char *endpoint = xasprintf("https%s", BAD_OPEN({STORED}) + strlen("http"));
    bad_tier(endpoint);
    int64_t begin = clock_monotonic_ns();
    assert_i64(try_put(), -ETIMEDOUT);
    cr_assert_lt(clock_monotonic_ns() - begin, 30000000000);
    assert_u64(bad_count(), 0);
}

Test(s3_retry, ranges_that_are_not_what_was_asked)
{
    static const char *const wrong[] = {
        WITH_BODY("206", "Content-Range: bytes 5-14/100\r\nContent-Length: 10\r\n", "5678901234"),
        WITH_BODY("206", "Content-Range: bytes 1-9/100\r\nContent-Length: 10\r\n", "0123456789"),
        WITH_BODY("206", "Content-Range: bytes 0-4/5\r\nContent-Length: 5\r\n", "01234"),
        WITH_BODY("206", "Content-Range: bytes 0-9/100\r\nContent-Length: 12\r\n", "012345678901"),
        WITH_BODY("206", "Content-Length: 10\r\n", "0123456789"),
        WITH_BODY("200", "Content-Length: 12\r\n", "012345678901"),
        WITH_BODY("200", "Content-Length: 9\r\n", "012345678"),
        ERROR("416", "InvalidRange"),
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        BAD_TIER({wrong[i]});
        EXPECT(try_get(), -EUCLEAN, 1);
        bad_end();
    }
    BAD_TIER({WITH_BODY("200", "Content-Length: 10\r\n", "0123456789")});
    EXPECT(try_get(), 0, 1);
    cr_assert(bad_request_has(0, "Range: bytes=0-9\r\n"));
}

/* The first attempt may have been carried out: a retry that finds the name taken looks whose it is.
 */
Test(s3_retry, put_new_without_an_answer)
{
    BAD_TIER({NULL, BAD_RESET}, {ERROR("412", "PreconditionFailed")});
    EXPECT(try_put_new(), -EEXIST, 2);
    cr_assert(bad_request_has(0, "If-None-Match: *\r\n"));
    cr_assert(bad_request_has(1, "If-None-Match: *\r\n"));
}

Test(s3_retry, a_kept_connection_that_is_gone)
{
    BAD_TIER({"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n"});
    EXPECT(try_put(), 0, 1);
    AWAIT(bad_closed() == 1, "the server keeps it");
    EXPECT(try_put(), 0, 2);
    struct tier_traffic t;
    tier->ops->traffic(tier, &t);
    assert_u64(t.retries, 0);
}

Test(s3_retry, nobody_there)
{
    bad_options.patience_ns = 300000000;
    BAD_TIER({STORED});
    bad_close();
    assert_i64(try_put(), -ECONNREFUSED);
    expect_reported("check the endpoint");
    tier->ops->close(tier);
    bad_tier("http://nowhere.invalid");
    assert_i64(try_put(), -EHOSTUNREACH);
}

static void *interrupt_soon(void *arg)
{
    (void)arg;
    (void)usleep(200000);
    tier->ops->interrupt(tier);
    return NULL;
}

static void interrupted_within(const struct bad_step step)
{
    pthread_t thread;
    bad_options.stall_ns = 200000000000;
    bad_options.patience_ns = 200000000000;
    bad_tier(bad_open(&step, 1));
    assert_i64(thread_start(&thread, "test", interrupt_soon, NULL), 0);
    int64_t begin = clock_monotonic_ns();
    assert_i64(try_put(), -ECANCELED);
    cr_assert_lt(clock_monotonic_ns() - begin, 30000000000);
    assert_i64(pthread_join(thread, NULL), 0);
    bad_end();
}

Test(s3_retry, interrupted_while_it_waits)
{
    interrupted_within((struct bad_step){NULL, BAD_HOLD});
    interrupted_within((struct bad_step){
        WITH_BODY("503", "Retry-After: 100\r\nContent-Length: 0\r\n", ""), BAD_CLOSE});
}

/* --- the budget ------------------------------------------------------------------------------- */

static struct retry_gate gate;
static atomic_uint granted;

static void try_often(void *arg)
{
    const unsigned *wanted = arg;
    int64_t end = clock_monotonic_ns() + 1500000000;
    while (clock_monotonic_ns() < end || atomic_load(&granted) < *wanted) {
        struct retry retry;
        retry_begin(&retry, &gate, 300000000);
        if (retry_wait(&retry, 0) == 0)
            atomic_fetch_add(&granted, 1);
    }
}

/* The budget grows by a retry a second. */
static unsigned seconds_since(int64_t begin)
{
    return (unsigned)((clock_monotonic_ns() - begin) / SECOND_NS);
}

Test(s3_retry, no_storm)
{
    struct pool *pool;
    unsigned wanted = RETRY_TOKENS;
    int64_t begin = clock_monotonic_ns();
    retry_gate_init(&gate);
    for (unsigned i = 0; i < 3 * RETRY_SHARE; i++)
        retry_gate_success(&gate); /* the budget is full already */
    assert_i64(pool_new("test", 32, 32, NULL, NULL, &pool), 0);
    for (unsigned i = 0; i < 32; i++)
        pool_submit(pool, try_often, &wanted);
    pool_drain(pool);
    unsigned before = atomic_load(&granted);
    cr_assert_geq(before, wanted);
    cr_assert_leq(before, wanted + seconds_since(begin) + 1);
    wanted = before + 10;
    begin = clock_monotonic_ns();
    for (unsigned i = 0; i < 10 * RETRY_SHARE; i++)
        retry_gate_success(&gate);
    for (unsigned i = 0; i < 32; i++)
        pool_submit(pool, try_often, &wanted);
    pool_free(pool);
    cr_assert_geq(atomic_load(&granted), wanted);
    cr_assert_leq(atomic_load(&granted), wanted + seconds_since(begin) + 2);
    retry_gate_done(&gate);
}
