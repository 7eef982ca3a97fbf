// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "../../remove_tree.h"
#include "../expect.h"
#include "../stopped_time.h"
#include "base/clock.h"
#include "base/pool.h"
#include "daemon/control.h"

static char base[] = "/tmp/cairn-control-XXXXXX";
static char *store;
static struct control *control;
static atomic_int handled;
static atomic_bool slow_may_end;

static cJSON *echo(const cJSON *request, void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    while (cJSON_HasObjectItem(request, "slow") && !atomic_load(&slow_may_end))
        (void)usleep(1000);
    cJSON *reply = cJSON_Duplicate(request, true);
    if (cJSON_HasObjectItem(request, "large")) {
        _cleanup_free_ char *text = xmalloc(MIB + 1);
        memset(text, 'x', MIB);
        text[MIB] = '\0';
        (void)cJSON_AddStringToObject(reply, "text", text);
    }
    return reply;
}

static void begin(void)
{
    /* Longer than a socket's path may be. */
    char part[101];
    memset(part, 'd', 100);
    part[100] = '\0';
    cr_assert_not_null(mkdtemp(base));
    store = xasprintf("%s/%s", base, part);
    assert_i64(mkdir(store, 0700), 0);
    atomic_store(&handled, 0);
    assert_i64(control_start(store, echo, &handled, &control), 0);
}

static void end(void)
{
    control_stop(control);
    remove_tree(base);
    free(store);
}

TestSuite(control, .init = begin, .fini = end, .timeout = 600);

static int connect_raw(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int directory = open(store, O_PATH | O_DIRECTORY);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/control",
                   directory);
    assert_i64(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    (void)close(directory);
    return fd;
}

/* What comes back until the end of the stream, at most 4 KiB. */
static void exchange(const char *bytes, size_t len, char *ret_reply)
{
    int fd = connect_raw();
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, bytes + done, len - done, MSG_NOSIGNAL);
        if (n < 0)
            break; /* it may have had enough */
        done += (size_t)n;
    }
    (void)shutdown(fd, SHUT_WR);
    size_t got = 0;
    ssize_t n;
    while (got < 4095 && (n = recv(fd, ret_reply + got, 4095 - got, 0)) > 0)
        got += (size_t)n;
    ret_reply[got] = '\0';
    (void)close(fd);
}

static void expect_alive(void)
{
    cJSON *request = cJSON_CreateObject();
    cJSON *reply = NULL;
    uint64_t value = 0;
    control_add_u64(request, "n", UINT64_MAX);
    assert_i64(control_request(store, request, 20000, &reply), 0);
    cr_assert(control_get_u64(reply, "n", &value));
    assert_u64(value, UINT64_MAX);
    cJSON_Delete(request);
    cJSON_Delete(reply);
}

Test(control, answers)
{
    struct stat st;
    _cleanup_free_ char *path = xasprintf("%s/control", store);
    assert_i64(stat(path, &st), 0);
    assert_u64(st.st_mode & 0777, 0600);
    expect_alive();
    cJSON *request = cJSON_CreateObject();
    cJSON *reply = NULL;
    (void)cJSON_AddBoolToObject(request, "large", true);
    assert_i64(control_request(store, request, 60000, &reply), 0);
    assert_u64(strlen(cJSON_GetStringValue(cJSON_GetObjectItem(reply, "text"))), MIB);
    cJSON_Delete(request);
    cJSON_Delete(reply);
}

Test(control, several_requests_on_a_connection)
{
    static const char lines[] = "{\"a\":1}\n{\"b\":2} \r\n";
    char reply[4096];
    int pid = (int)getpid(); /* who asks is added */
    _cleanup_free_ char *wanted =
        xasprintf("{\"a\":1,\"peer\":%d}\n{\"b\":2,\"peer\":%d}\n", pid, pid);
    exchange(lines, sizeof lines - 1, reply);
    assert_str(reply, wanted);
}

Test(control, bad_requests_get_an_error_each)
{
    static const char *const bad[] = {"\n",           "hello\n",   "[1]\n",  "1\n",
                                      "{\"a\":1}}\n", "{\"a\":\n", "null\n", "{} {}\n"};
    char reply[4096];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        exchange(bad[i], strlen(bad[i]), reply);
        cr_assert_not_null(strstr(reply, "\"error\""), "%s -> %s", bad[i], reply);
    }
    exchange("\0\0{}\n", 5, reply);
    cr_assert_not_null(strstr(reply, "\"error\""));
    exchange("{\"verb\"", 7, reply);
    cr_assert_not_null(strstr(reply, "end of line"));
    assert_i64(atomic_load(&handled), 0);
    expect_alive();
}

Test(control, oversized_requests_are_refused)
{
    char reply[4096];
    size_t len = 1 * MIB;
    _cleanup_free_ char *bytes = xmalloc(len);
    memset(bytes, 'a', len);
    exchange(bytes, len, reply);
    cr_assert_not_null(strstr(reply, "64 KiB"));
    memset(bytes, '[', 60000);
    bytes[60000] = '\n';
    exchange(bytes, 60001, reply);
    cr_assert_not_null(strstr(reply, "\"error\""));
    assert_i64(atomic_load(&handled), 0);
    expect_alive();
}

Test(control, random_garbage)
{
    unsigned seed = 1;
    char bytes[512], reply[4096];
    for (int round = 0; round < 200; round++) {
        size_t len = (size_t)rand_r(&seed) % sizeof bytes;
        for (size_t i = 0; i < len; i++)
            bytes[i] = (char)rand_r(&seed);
        exchange(bytes, len, reply);
    }
    expect_alive();
}

/* More silent clients than threads: they are let go, and an honest one is answered in
 * bounded time. */
Test(control, slow_clients_do_not_hang_it)
{
    int fds[8];
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = connect_raw();
        assert_i64(send(fds[i], "{", 1, 0), 1);
    }
    int64_t began = clock_monotonic_ns();
    expect_alive();
    cr_assert_lt(clock_monotonic_ns() - began, 60000000000);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        (void)close(fds[i]);
}

Test(control, stops_with_clients_connected)
{
    int fd = connect_raw();
    expect_alive();
    int64_t began = clock_monotonic_ns();
    control_stop(control);
    control = NULL;
    cr_assert_lt(clock_monotonic_ns() - began, 1900000000, "a silent client has 2 s");
    cJSON *request = cJSON_CreateObject();
    cJSON *reply = NULL;
    assert_i64(control_request(store, request, 1000, &reply), -ENOENT);
    cJSON_Delete(request);
    (void)close(fd);
}

static void *ask_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++)
        expect_alive();
    return NULL;
}

Test(control, concurrent_clients)
{
    pthread_t threads[12];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_i64(thread_start(&threads[i], "client", ask_many, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        (void)pthread_join(threads[i], NULL);
    assert_i64(atomic_load(&handled), 600);
}

Test(control, client_gives_up)
{
    cJSON *request = cJSON_CreateObject();
    cJSON *reply = NULL;
    (void)cJSON_AddBoolToObject(request, "slow", true);
    assert_i64(control_request(store, request, 50, &reply), -ETIMEDOUT);
    atomic_store(&slow_may_end, true);
    cJSON_Delete(request);
}

/* Its socket is open to all and its store to be entered here: the check of the peer has to hold
 * alone. */
Test(control, foreign_users_are_refused)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    _cleanup_free_ char *path = xasprintf("%s/control", store);
    assert_i64(chmod(base, 0755) | chmod(store, 0755) | chmod(path, 0666), 0);
    pid_t child = fork();
    if (child == 0) {
        cJSON *request = cJSON_CreateObject();
        cJSON *reply = NULL;
        if (setuid(65534) < 0 || control_request(store, request, 60000, &reply) < 0)
            _exit(1);
        _exit(cJSON_GetObjectItem(reply, "errno")->valueint == EPERM ? 0 : 2);
    }
    int status = 0;
    assert_i64(waitpid(child, &status, 0), child);
    assert_i64(status, 0);
    assert_i64(atomic_load(&handled), 0);
}

Test(control, nobody_listens)
{
    cJSON *request = cJSON_CreateObject();
    cJSON *reply = NULL;
    assert_i64(control_request("/nonexistent", request, 1000, &reply), -ENOENT);
    /* A socket file of a daemon that was killed. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/control", base);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_i64(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    (void)close(fd);
    assert_i64(control_request(base, request, 1000, &reply), -ECONNREFUSED);
    struct control *second = NULL;
    assert_i64(control_start(base, echo, &handled, &second), 0);
    assert_i64(control_request(base, request, 60000, &reply), 0);
    control_stop(second);
    cJSON_Delete(reply);
    cJSON_Delete(request);
}

/* A name may be any bytes, and JSON is UTF-8. */
Test(names, are_valid_json)
{
    cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(object, "n", "a\n\xff\"\xc3\xa4\xc3");
    _cleanup_free_ char *text = control_print(object, false);
    assert_str(text, "{\"n\":\"a\\n\\\\xff\\\"\xc3\xa4\\\\xc3\"}");
    cJSON_Delete(object);
}

/* Silent clients cost an honest one nothing, however many they are: without time, they stay. */
Test(control, silent_clients_are_not_waited_for)
{
    int fds[300];
    time_stop();
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = connect_raw();
        (void)send(fds[i], "{", i % 2, MSG_NOSIGNAL);
    }
    expect_alive();
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        (void)close(fds[i]);
}

Test(numbers, whole_range)
{
    static const uint64_t values[] = {
        0, 1, 1ull << 48, (1ull << 53) - 1, 1ull << 53, (1ull << 53) + 1, UINT64_MAX};
    static const char *const bad[] = {"{\"n\":-1}",     "{\"n\":1.5}",
                                      "{\"n\":1e300}",  "{\"n\":\"\"}",
                                      "{\"n\":\"-1\"}", "{\"n\":\"18446744073709551616\"}",
                                      "{\"n\":null}",   "{}"};
    uint64_t value;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        cJSON *object = cJSON_CreateObject();
        control_add_u64(object, "n", values[i]);
        _cleanup_free_ char *text = cJSON_PrintUnformatted(object);
        cJSON *again = cJSON_Parse(text);
        cr_assert(control_get_u64(again, "n", &value));
        assert_u64(value, values[i]);
        cJSON_Delete(object);
        cJSON_Delete(again);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cJSON *object = cJSON_Parse(bad[i]);
        cr_assert_not(control_get_u64(object, "n", &value), "%s", bad[i]);
        cJSON_Delete(object);
    }
}
