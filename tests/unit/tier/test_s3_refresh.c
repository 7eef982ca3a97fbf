// SPDX-License-Identifier: Apache-2.0
/* When credentials are asked for anew, by whom, and what happens where that fails. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "../await.h"
#include "../expect.h"
#include "../stopped_time.h"
#include "aws.h"
#include "base/clock.h"
#include "base/log.h"
#include "tier/s3/credentials.h"
#include "web.h"

#define THREADS 8

static struct http *http;
static struct s3_credential_source *source;
static FILE *log_file;

/* What the container answers: key "AKn" of the n-th request, its time to live, its status. */
static atomic_int lifetime_s, status, delay_ms;
static atomic_bool holds; /* the answer waits */

static void serve(const struct web_request *request, struct web_answer *answer)
{
    time_t expires = clock_realtime_ns() / SECOND_NS + atomic_load(&lifetime_s);
    struct tm tm;
    char text[32];
    (void)gmtime_r(&expires, &tm);
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    answer->status = atomic_load(&status);
    answer->delay_ms = (unsigned)atomic_load(&delay_ms);
    while (atomic_load(&holds))
        (void)usleep(1000);
    if (answer->status != 200)
        return;
    answer->body =
        xasprintf("{\"AccessKeyId\":\"AK%u\",\"SecretAccessKey\":\"SECRET\",\"Token\":\"TOKEN\","
                  "\"Expiration\":\"%s\"}",
                  request->number, text);
}

static void begin(void)
{
    time_stop();
    aws_begin();
    log_file = tmpfile();
    log_set_fd(fileno(log_file));
    struct http_options options = {
        .connections = 8, .stall_ns = 600000000000, .user_agent = "cairn-test"};
    assert_i64(http_open(&options, &http), 0);
    lifetime_s = 3600;
    status = 200;
    _cleanup_free_ char *url = xasprintf("%s/role", web_open(serve));
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    source = s3_credentials_open(NULL, http);
}

static void end(void)
{
    s3_credentials_close(source);
    http_close(http);
    web_close();
    log_set_fd(STDERR_FILENO);
    (void)fclose(log_file);
    aws_end();
}

TestSuite(s3_refresh, .init = begin, .fini = end, .timeout = 600);

/* Error, or the number in the key. */
static int get(const char *refused_key)
{
    struct s3_credentials found,
        refused = {(char *)refused_key, (char *)"SECRET", (char *)"TOKEN", 0};
    _cleanup_free_ char *error = NULL;
    int r = s3_credentials_get(source, refused_key ? &refused : NULL, &found, &error);
    if (r == 0) {
        r = atoi(found.key_id + 2);
        s3_credentials_done(&found);
    }
    return r;
}

static void pass_ms(unsigned ms)
{
    time_pass(ms * MS_NS);
}

static bool is_logged(const char *words)
{
    char text[4096];
    ssize_t n = pread(fileno(log_file), text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    cr_assert_null(strstr(text, "SECRET"));
    cr_assert_null(strstr(text, "TOKEN"));
    return strstr(text, words) != NULL;
}

Test(s3_refresh, what_holds_for_long_is_kept)
{
    assert_i64(get(NULL), 1);
    assert_i64(get(NULL), 1);
    assert_u64(web_count(), 1);
}

Test(s3_refresh, asks_anew_5_minutes_before_the_end)
{
    lifetime_s = 302;
    assert_i64(get(NULL), 1);
    assert_i64(get(NULL), 1, "not 5 minutes before the end yet");
    assert_u64(web_count(), 1);
    pass_ms(3200);
    assert_i64(get(NULL), 2);
    assert_u64(web_count(), 2);
}

/* New ones that live for 4 s only are left alone for 2 s. */
Test(s3_refresh, short_lived_ones_are_not_asked_for_all_the_time)
{
    lifetime_s = 4;
    assert_i64(get(NULL), 1);
    assert_i64(get(NULL), 1);
    pass_ms(2200);
    lifetime_s = 3600;
    assert_i64(get(NULL), 2);
    assert_i64(get(NULL), 2);
}

Test(s3_refresh, a_failure_keeps_what_still_holds)
{
    lifetime_s = 6;
    assert_i64(get(NULL), 1);
    pass_ms(3200);
    status = 403;
    assert_i64(get(NULL), 1);
    cr_assert(is_logged("cannot renew"));
    assert_u64(web_count(), 2);
    assert_i64(get(NULL), 1, "there is no second request at once");
    assert_u64(web_count(), 2);
    pass_ms(3200);
    assert_i64(get(NULL), -EACCES, "they hold no more");
    status = 200;
    lifetime_s = 3600;
    cr_assert_geq(get(NULL), 3);
}

Test(s3_refresh, what_is_refused_is_asked_for_anew_once)
{
    assert_i64(get(NULL), 1);
    assert_i64(get("AK1"), 2);
    assert_i64(get("AK1"), 2, "there was a request since");
    assert_u64(web_count(), 2);
    status = 403;
    assert_i64(get("AK2"), -EACCES, "what was refused does not hold");
    assert_i64(get(NULL), 2);
}

/* The same ones come back: the caller has to give up, not to wait for ever. */
Test(s3_refresh, keys_that_never_change_come_back)
{
    setenv("AWS_ACCESS_KEY_ID", "AK77", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SECRET", 1);
    setenv("AWS_SESSION_TOKEN", "TOKEN", 1);
    assert_i64(get(NULL), 77);
    assert_i64(get("AK77"), 77);
}

/* Our clock may be wrong; only the other side knows whether they hold. */
Test(s3_refresh, what_has_expired_by_our_clock_is_used_all_the_same)
{
    lifetime_s = -3600;
    assert_i64(get(NULL), 1);
    assert_i64(get(NULL), 1);
    assert_u64(web_count(), 1);
    assert_i64(get("AK1"), 2);
}

Test(s3_refresh, none_after_there_were_some_may_pass)
{
    lifetime_s = 4; /* not over when they come, also on a slow machine: else our clock is wrong */
    assert_i64(get(NULL), 1);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    pass_ms(4100);
    assert_i64(get(NULL), -EAGAIN);
}

static void *get_in_thread(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)get(NULL);
}

static void get_by_all(pthread_t *threads)
{
    for (unsigned i = 0; i < THREADS; i++)
        assert_i64(pthread_create(&threads[i], NULL, get_in_thread, NULL), 0);
}

static void expect_all(pthread_t *threads, int result)
{
    for (unsigned i = 0; i < THREADS; i++) {
        void *got;
        assert_i64(pthread_join(threads[i], &got), 0);
        assert_i64((int)(intptr_t)got, result);
    }
}

Test(s3_refresh, the_first_are_asked_for_by_one)
{
    pthread_t threads[THREADS];
    delay_ms = 300;
    get_by_all(threads);
    expect_all(threads, 1);
    assert_u64(web_count(), 1);
}

Test(s3_refresh, a_failure_is_shared_too)
{
    pthread_t threads[THREADS];
    delay_ms = 300;
    status = 403;
    get_by_all(threads);
    expect_all(threads, -EACCES);
    assert_u64(web_count(), 1);
}

Test(s3_refresh, others_go_on_with_the_old_ones_meanwhile)
{
    pthread_t asker;
    void *got;
    lifetime_s = 6;
    assert_i64(get(NULL), 1);
    pass_ms(3200);
    holds = true;
    lifetime_s = 3600;
    assert_i64(pthread_create(&asker, NULL, get_in_thread, NULL), 0);
    AWAIT(web_count() == 2, "no request");
    assert_i64(get(NULL), 1, "it does not wait for the request under way");
    holds = false;
    assert_i64(pthread_join(asker, &got), 0);
    assert_i64((int)(intptr_t)got, 2);
    assert_i64(get(NULL), 2);
    assert_u64(web_count(), 2);
}
