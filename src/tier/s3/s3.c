// SPDX-License-Identifier: Apache-2.0
/* A tier in an S3 bucket, or on a compatible server. Each object is small enough for one PUT, so
 * there are no partial uploads to clean up: an object exists whole or not at all, and a retry is
 * safe. */
#include <stdio.h>

#include "base/clock.h"
#include "tier/s3/internal.h"

#define CONNECTIONS 32u
#define PATIENCE_NS (60ll * 1000000000)
#define STALL_NS (15ll * 1000000000)

/* An older Date is not used: the monotonic clock may drift from the server's. */
#define DATE_AGE_MAX_NS (5ll * 1000000000)
#define SERVERS_APART_NS (50ll * 1000000)

static int s3_put_object(struct tier *tier, const char *object, const void *buf, size_t len,
                         struct tier_source *source, const char *condition)
{
    struct s3_request q = {
        .method = "PUT",
        .object = object,
        .headers = {condition},
        .body = len ? buf : "",
        .body_len = len,
        .source = source,
        .is_content = true,
    };
    _cleanup_(http_response_done) struct http_response response = {0};
    return len > S3_OBJECT_MAX ? -EFBIG : s3_call(s3_of(tier), &q, &response);
}

static int s3_put(struct tier *tier, const char *object, const void *buf, size_t len)
{
    return s3_put_object(tier, object, buf, len, NULL, NULL);
}

static int s3_put_from(struct tier *tier, const char *object, struct tier_source *source)
{
    return s3_put_object(tier, object, NULL, source->len, source, NULL);
}

static int s3_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    return s3_put_object(tier, object, buf, len, NULL, "If-None-Match: *");
}

static int s3_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    struct s3_request q = {.method = "HEAD", .object = object};
    _cleanup_(http_response_done) struct http_response response = {0};
    int r = s3_call(s3_of(tier), &q, &response);
    bool is_part = r == -ERANGE || response.status == 206;
    uint64_t len = is_part ? response.range_total : (uint64_t)response.content_length;
    if (r == -ERANGE && len == UINT64_MAX)
        len = 0; /* an empty object has no first byte */
    if (r < 0 && r != -ERANGE)
        return r;
    if (len == UINT64_MAX) {
        s3_set_error(s3_of(tier), "HEAD", object,
                     "the response does not give the length of the object");
        return -EPROTO;
    }
    *ret_len = len;
    return 0;
}

/* A read of 0 bytes cannot be a range request: only checks that the object exists and is long
 * enough. */
static int get_nothing(struct tier *tier, const char *object, uint64_t offset)
{
    uint64_t len;
    int r = s3_stat(tier, object, &len);
    return r == 0 && offset > len ? -EUCLEAN : r;
}

/* A server without range support answers 200 with the whole object: correct only if all of it was
 * requested. */
static int verify_range(struct s3 *s3, const char *object, uint64_t offset, size_t len,
                        const struct http_response *r)
{
    bool is_range = r->status == 206 && r->range_start == offset && r->range_end == offset + len;
    bool is_whole = r->status == 200 && offset == 0 &&
                    (r->content_length < 0 || (uint64_t)r->content_length == len);
    if ((is_range || is_whole) && r->into_len == len)
        return 0;
    s3_set_error(s3, "GET", object,
                 "requested bytes %llu to %llu, got status %ld with %llu to %llu, %zu bytes",
                 (unsigned long long)offset, (unsigned long long)(offset + len), r->status,
                 (unsigned long long)r->range_start, (unsigned long long)r->range_end, r->into_len);
    return -EUCLEAN;
}

static int s3_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf,
                        size_t len)
{
    if (len == 0)
        return get_nothing(tier, object, offset);
    if (offset > INT64_MAX - len)
        return -EUCLEAN;
    _cleanup_free_ char *range = xasprintf("Range: bytes=%llu-%llu", (unsigned long long)offset,
                                           (unsigned long long)(offset + len - 1));
    struct s3_request q = {
        .method = "GET", .object = object, .headers = {range}, .into = buf, .into_len = len};
    _cleanup_(http_response_done) struct http_response response = {0};
    int r = s3_call(s3_of(tier), &q, &response);
    if (r == 0)
        r = verify_range(s3_of(tier), object, offset, len, &response);
    return r == -ERANGE ? -EUCLEAN : r;
}

/* Puts are durable on return, names too. */
static int s3_sync(struct tier *tier)
{
    return retry_gate_is_interrupted(&s3_of(tier)->gate) ? -ECANCELED : 0;
}

static bool now_by_date(struct s3 *s3, int64_t *ret_ns)
{
    int64_t now = clock_monotonic_ns();
    LOCK_SCOPE(&s3->locked.lock);
    if (s3->locked.date_at_ns == 0 || now - s3->locked.date_at_ns > DATE_AGE_MAX_NS)
        return false;
    *ret_ns = now + s3->locked.date_offset_ns;
    return true;
}

static int s3_now(struct tier *tier, int64_t *ret_ns)
{
    struct s3 *s3 = s3_of(tier);
    if (now_by_date(s3, ret_ns))
        return 0;
    struct s3_request q = {.method = "HEAD", .any_answer = true};
    _cleanup_(http_response_done) struct http_response response = {0};
    TRY(s3_call(s3, &q, &response));
    return now_by_date(s3, ret_ns) ? 0 : -EPROTO;
}

/* In whole seconds, by the clock of any server behind the address. */
static int s3_read_clock(struct tier *tier, struct tier_reading *ret)
{
    struct s3_request q = {.method = "HEAD", .any_answer = true};
    _cleanup_(http_response_done) struct http_response response = {0};
    int64_t asked = clock_boottime_ns();
    TRY(s3_call(s3_of(tier), &q, &response));
    if (response.date_ns == 0)
        return -EPROTO;
    *ret = (struct tier_reading){.asked = asked,
                                 .answered = clock_boottime_ns(),
                                 .least = response.date_ns - SERVERS_APART_NS,
                                 .most = response.date_ns + SECOND_NS + SERVERS_APART_NS,
                                 .is_shared = true};
    return 0;
}

static void s3_interrupt(struct tier *tier)
{
    struct s3 *s3 = s3_of(tier);
    retry_gate_interrupt(&s3->gate);
    http_interrupt(s3->http);
}

static void s3_last_error(struct tier *tier, char *buf, size_t size)
{
    struct s3 *s3 = s3_of(tier);
    LOCK_SCOPE(&s3->locked.lock);
    (void)snprintf(buf, size, "%s", s3->locked.error);
}

static void s3_traffic(struct tier *tier, struct tier_traffic *ret_traffic)
{
    struct s3 *s3 = s3_of(tier);
    LOCK_SCOPE(&s3->locked.lock);
    *ret_traffic = s3->locked.traffic;
}

static void s3_close(struct tier *tier)
{
    struct s3 *s3 = s3_of(tier);
    s3_credentials_close(s3->credentials);
    http_close(s3->http);
    retry_gate_done(&s3->gate);
    mutex_done(&s3->locked.lock);
    s3_configure_done(s3);
    free(s3);
}

static const struct tier_ops s3_ops = {
    .name = "s3",
    .is_sorted = true,
    .close = s3_close,
    .put = s3_put,
    .put_new = s3_put_new,
    .put_from = s3_put_from,
    .get_range = s3_get_range,
    .stat = s3_stat,
    .list = s3_list,
    .list_level = s3_list_level,
    .remove = s3_remove,
    .sync = s3_sync,
    .remove_many = s3_remove_many,
    .now = s3_now,
    .read_clock = s3_read_clock,
    .interrupt = s3_interrupt,
    .last_error = s3_last_error,
    .traffic = s3_traffic,
};

static int64_t or_default(int64_t value, int64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static int open_http(struct s3 *s3, const struct s3_options *options, const char *ca_bundle)
{
    struct http_options http = {
        .connections = options->connections ? options->connections : CONNECTIONS,
        .stall_ns = or_default(options->stall_ns, STALL_NS),
        .ca_bundle = ca_bundle,
        .user_agent = "cairnfs/" CAIRN_VERSION,
    };
    return http_open(&http, &s3->http);
}

int s3_tier_open(const struct s3_options *options, struct tier **ret_tier, char **ret_error)
{
    struct s3 *s3 = xcalloc(1, sizeof *s3);
    _cleanup_free_ char *ca_bundle = NULL;
    s3->tier.ops = &s3_ops;
    s3->tier.patience_ns = or_default(options->patience_ns, PATIENCE_NS);
    mutex_init(&s3->locked.lock, LOCK_LEAF);
    retry_gate_init(&s3->gate);
    int r = s3_configure(s3, options, &ca_bundle, ret_error);
    if (r == 0) {
        r = open_http(s3, options, ca_bundle);
        if (r < 0)
            *ret_error = xasprintf("cannot initialize HTTP: %s", strerror(-r));
    }
    if (r < 0) {
        s3_close(&s3->tier);
        return r;
    }
    if (!options->unsigned_requests)
        s3->credentials = s3_credentials_open(options->profile, s3->http);
    *ret_tier = &s3->tier;
    return 0;
}
