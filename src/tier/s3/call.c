// SPDX-License-Identifier: Apache-2.0
/* Makes one request until it succeeds, fails for good, or patience is over. From each answer it
 * learns clock, region, and unsupported features, then judges the answer by the table in error.c. A
 * fix that can be applied at once (region, clock, credentials, checksum) is tried once per call, so
 * that two wrong values cannot alternate for ever; after a transient error the call waits in the
 * retry gate. */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "tier/s3/internal.h"
#include "tier/s3/secret.h"
#include "tier/s3/sign.h"

#define HEADERS_MAX 16

struct headers {
    char *v[HEADERS_MAX + 1];
    size_t count;
};

struct call {
    struct s3 *s3;
    const struct s3_request *request;
    struct http_response *response;
    struct retry retry;
    enum s3_checksum checksum;
    char *md5, *crc32;
    char *region;                      /* used in the last attempt */
    struct s3_credentials credentials; /* used in the last attempt */
    bool refused;                      /* `credentials` were refused and must be renewed */
    bool explains;                     /* this attempt is a GET that explains a failed HEAD */
    bool region_tried, clock_tried, credentials_tried;
};

enum verdict { DONE, FAILED, AGAIN, AT_ONCE };

/* --- errors and figures for people ------------------------------------------------------------ */

void s3_set_error(struct s3 *s3, const char *method, const char *object, const char *fmt, ...)
{
    char text[sizeof s3->locked.error], *what;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&what, fmt, ap);
    va_end(ap);
    check(n >= 0);
    mutex_lock(&s3->locked.lock);
    _cleanup_free_ char *region = xstrdup(s3->locked.region);
    mutex_unlock(&s3->locked.lock);
    _cleanup_free_ char *host = s3_host(&s3->place, region);
    cause_format(text, sizeof text, "%s %s://%s/%s%s%s%s%s: %s", method, s3->place.scheme, host,
                 s3->place.bucket, *s3->place.prefix ? "/" : "", s3->place.prefix,
                 object ? "/" : "", object ? object : "", what);
    free(what);
    LOCK_SCOPE(&s3->locked.lock);
    memcpy(s3->locked.error, text, sizeof text);
}

static const char *method_of(const struct call *c)
{
    return c->explains ? "GET" : c->request->method;
}

static void call_report_error(struct call *c, const char *what, const char *advice)
{
    s3_set_error(c->s3, c->request->method, c->request->object, "%s%s%s", what, advice ? "; " : "",
                 advice ? advice : "");
}

static void call_report_answer(struct call *c, const struct s3_error *e, const char *advice)
{
    const struct http_response *r = c->response;
    _cleanup_free_ char *id =
        *r->request_id ? xasprintf(", request %s", r->request_id) : xstrdup("");
    _cleanup_free_ char *what =
        xasprintf("answered %ld%s%s%s%s%s%s", r->status, *e->code ? " " : "", e->code,
                  *e->message ? " (" : "", e->message, *e->message ? ")" : "", id);
    bool reads = strcmp(method_of(c), "GET") == 0 || strcmp(method_of(c), "HEAD") == 0;
    bool is_denied = r->status == 403 && (*e->code == '\0' || strcmp(e->code, "AccessDenied") == 0);
    _cleanup_free_ char *more =
        is_denied && !reads ? xasprintf("%s, or mount with -o ro to read", advice) : NULL;
    call_report_error(c, what, more ? more : advice);
}

/* --- an attempt ------------------------------------------------------------------------------- */

static void add_header(struct headers *h, char *text)
{
    check(h->count < HEADERS_MAX);
    h->v[h->count++] = text;
}

static void headers_done(struct headers *h)
{
    for (size_t i = 0; i < h->count; i++)
        free(h->v[i]);
}

/* Computed once per call, not per attempt. */
static int add_checksum(struct call *c, struct headers *h)
{
    const struct s3_request *q = c->request;
    bool md5 = q->wants_md5 || (q->is_content && c->checksum == S3_CHECKSUM_MD5);
    if (q->is_content && c->checksum == S3_CHECKSUM_CRC32) {
        int r = 0;
        if (!c->crc32 && q->source)
            r = s3_crc32_from(q->source, &c->crc32);
        else if (!c->crc32)
            c->crc32 = s3_crc32(q->body, q->body_len);
        if (r < 0)
            return r;
        add_header(h, xasprintf("x-amz-checksum-crc32: %s", c->crc32));
    }
    if (md5 && !c->md5)
        TRY(q->source ? s3_md5_from(q->source, &c->md5) : s3_md5(q->body, q->body_len, &c->md5));
    if (md5)
        add_header(h, xasprintf("Content-MD5: %s", c->md5));
    return 0;
}

static int make_headers(struct call *c, struct headers *h)
{
    const struct s3_request *q = c->request;
    for (const char *const *text = q->headers; *text; text++)
        add_header(h, xstrdup(*text));
    if (c->explains)
        add_header(h, xstrdup("Range: bytes=0-0"));
    for (char *const *text = c->s3->put_headers; q->is_content && *text; text++)
        add_header(h, xstrdup(*text));
    return add_checksum(c, h);
}

static int sign_call(struct call *c, const struct s3_address *address, const struct headers *h,
                     struct s3_signed *ret_signed)
{
    struct s3 *s3 = c->s3;
    mutex_lock(&s3->locked.lock);
    int64_t skew_ns = s3->locked.skew_ns;
    mutex_unlock(&s3->locked.lock);
    struct s3_sign_request q = {
        .method = method_of(c),
        .host = address->host,
        .path = address->path,
        .query = c->request->query,
        .headers = (const char *const *)h->v,
        .body = c->request->body,
        .body_len = c->request->body_len,
        .source = c->request->source,
        .unsigned_payload = s3->place.is_tls,
        .payload_header = true,
        .region = c->region,
        .service = "s3",
        .time_ns = clock_realtime_ns() + skew_ns,
    };
    return s3_sign(&q, &c->credentials, ret_signed);
}

static int exchange_call(struct call *c, const struct s3_address *address, const struct headers *h,
                         const struct s3_signed *signature)
{
    const char *all[HEADERS_MAX + S3_SIGNED_HEADERS_MAX + 1] = {0};
    size_t count = 0;
    for (size_t i = 0; i < h->count; i++)
        all[count++] = h->v[i];
    for (char *const *text = signature->headers; *text; text++)
        all[count++] = *text;
    struct http_request q = {
        .method = method_of(c),
        .url = address->url,
        .headers = all,
        .body = c->request->body,
        .body_len = c->request->body_len,
        .source = c->request->source,
        .into = c->request->into,
        .into_len = c->request->into_len,
    };
    return http_perform(c->s3->http, &q, c->response);
}

/* Copies the region, since another call may correct it meanwhile. */
static void take_region(struct call *c)
{
    free(c->region);
    LOCK_SCOPE(&c->s3->locked.lock);
    c->region = xstrdup(c->s3->locked.region);
}

/* Missing credentials count as a refusal. */
static int take_credentials(struct call *c)
{
    struct s3_credentials fresh = {0};
    char *error = NULL;
    if (!c->s3->credentials)
        return 0;
    int r =
        s3_credentials_get(c->s3->credentials, c->refused ? &c->credentials : NULL, &fresh, &error);
    if (r < 0) {
        call_report_error(c, error ? error : strerror(-r), NULL);
        free(error);
        return r == -ENOKEY ? -EACCES : r;
    }
    c->refused = false;
    s3_credentials_done(&c->credentials);
    c->credentials = fresh;
    return 0;
}

/* Returns 0 with *ret_result: the result of http_perform(). */
static int attempt_call(struct call *c, int *ret_result)
{
    struct headers h = {0};
    struct s3_address address;
    struct s3_signed signature = {0};
    take_region(c);
    TRY(take_credentials(c));
    s3_address_make(&c->s3->place, c->region, c->request->object, c->request->query, &address);
    int r = make_headers(c, &h);
    if (r == 0 && c->s3->credentials && (r = sign_call(c, &address, &h, &signature)) == -EINVAL)
        call_report_error(
            c, "cannot be signed",
            "the access key, its secret or its token contains blanks or is not plain text");
    if (r == 0)
        *ret_result = exchange_call(c, &address, &h, &signature);
    s3_signed_done(&signature);
    s3_address_done(&address);
    headers_done(&h);
    return r;
}

/* --- judging ---------------------------------------------------------------------------------- */

/* A Date has whole seconds, and arrives late: each is earlier than the true time, so the latest one
 * counts. If one is far behind, the server's clock was set, or ours runs fast. */
#define DATE_TOLERANCE_NS (3ll * 1000000000)

/* A POST deletes many objects. */
static enum tier_request request_kind(const struct s3_request *q)
{
    return strcmp(q->method, "PUT") == 0    ? TIER_PUT
           : strcmp(q->method, "HEAD") == 0 ? TIER_HEAD
           : strcmp(q->method, "GET") == 0  ? (q->object ? TIER_GET : TIER_LIST)
                                            : TIER_DELETE;
}

static void learn_date(struct call *c)
{
    struct s3 *s3 = c->s3;
    const struct http_response *r = c->response;
    LOCK_SCOPE(&s3->locked.lock);
    s3->locked.traffic.requests++;
    s3->locked.traffic.by_kind[request_kind(c->request)]++;
    if (r->date_ns == 0)
        return;
    int64_t offset = r->date_ns - r->date_at_ns;
    if (s3->locked.date_at_ns == 0 || offset > s3->locked.date_offset_ns ||
        offset < s3->locked.date_offset_ns - DATE_TOLERANCE_NS)
        s3->locked.date_offset_ns = offset;
    s3->locked.date_at_ns = r->date_at_ns;
}

static enum verdict no_answer(struct call *c, int error, int *ret_error)
{
    bool is_short = error == -EUCLEAN && !c->response->is_too_long;
    *ret_error = is_short ? -ECONNRESET : error;
    if (error == -ECANCELED)
        return FAILED;
    if (error == -EUCLEAN && !is_short && c->response->status == 200 && c->request->into)
        call_report_error(c, "the response is longer than requested", "the server ignores ranges");
    else
        call_report_error(c, c->response->cause, s3_advice_of_errno(error));
    return tier_error_is_transient(*ret_error) ? AGAIN : FAILED;
}

static bool set_region(struct call *c, const char *region)
{
    if (c->region_tried || !s3_secret_is_plain(region) || strcmp(region, c->region) == 0)
        return false;
    c->region_tried = true;
    LOCK_SCOPE(&c->s3->locked.lock);
    free(c->s3->locked.region);
    c->s3->locked.region = xstrdup(region);
    return true;
}

static bool set_clock(struct call *c)
{
    const struct http_response *r = c->response;
    if (c->clock_tried || r->date_ns == 0)
        return false;
    c->clock_tried = true;
    int64_t ours = clock_realtime_ns() - (clock_monotonic_ns() - r->date_at_ns);
    LOCK_SCOPE(&c->s3->locked.lock);
    c->s3->locked.skew_ns = r->date_ns - ours;
    return true;
}

static bool renew_credentials(struct call *c)
{
    if (c->credentials_tried || !c->s3->credentials)
        return false;
    c->credentials_tried = true;
    c->refused = true;
    return true;
}

static bool use_lesser_checksum(struct call *c)
{
    if (c->s3->checksum != S3_CHECKSUM_AUTO || !c->request->is_content ||
        c->checksum == S3_CHECKSUM_NONE)
        return false;
    c->checksum = c->checksum == S3_CHECKSUM_CRC32 ? S3_CHECKSUM_MD5 : S3_CHECKSUM_NONE;
    return true;
}

/* A HEAD has no body to explain the error, or to tell a missing bucket from a missing object. */
static bool ask_why(struct call *c)
{
    long status = c->response->status;
    if (strcmp(method_of(c), "HEAD") != 0 || !c->request->object)
        return false;
    LOCK_SCOPE(&c->s3->locked.lock);
    c->explains = status == 400 || status == 403 || (status == 404 && !c->s3->locked.bucket_seen);
    return c->explains;
}

static bool can_be_fixed(struct call *c, const struct s3_rule *rule, const struct s3_error *e)
{
    const char *region = *c->response->region ? c->response->region : e->region;
    switch (rule->action) {
    case S3_REGION:
        return set_region(c, region);
    case S3_CLOCK:
        return set_clock(c);
    case S3_CREDENTIALS:
        return renew_credentials(c);
    case S3_UNSUPPORTED:
        return use_lesser_checksum(c);
    case S3_FAIL:
        /* a HEAD to the wrong region gets a 400, explained only by its header */
        return (c->response->status == 400 && *e->code == '\0' && set_region(c, region)) ||
               ask_why(c);
    case S3_AGAIN:
        break;
    }
    return false;
}

/* Other web servers send neither the ids nor the errors of S3. A 403 or 5xx may come from a proxy
 * in front of S3. */
static bool is_foreign(const struct http_response *r, const struct s3_error *e)
{
    bool has_mark = *r->request_id || *e->code;
    return !has_mark && (r->status == 404 || r->status == 405 || r->status == 501 ||
                         r->status == 400 || r->status == 401);
}

static enum verdict judge_refusal(struct call *c, const struct s3_error *e, int *ret_error)
{
    const struct s3_rule *rule = s3_rule_of(c->response->status, e->code);
    *ret_error = rule->error;
    if (can_be_fixed(c, rule, e))
        return AT_ONCE;
    if (strcmp(method_of(c), "HEAD") != 0 && is_foreign(c->response, e))
        *ret_error = -EPROTO;
    if (strcmp(e->code, "NoSuchKey") == 0) {
        LOCK_SCOPE(&c->s3->locked.lock);
        c->s3->locked.bucket_seen = true;
    }
    bool expected = *ret_error == -ENOENT || *ret_error == -EEXIST || *ret_error == -ERANGE;
    if (!expected)
        call_report_answer(c, e,
                           *ret_error == -EPROTO ? s3_advice_of_errno(-EPROTO) : rule->advice);
    return rule->action == S3_AGAIN ? AGAIN : FAILED;
}

static void learn_success(struct call *c)
{
    const struct s3_request *q = c->request;
    struct s3 *s3 = c->s3;
    retry_gate_success(&s3->gate);
    LOCK_SCOPE(&s3->locked.lock);
    s3->locked.bucket_seen = true;
    s3->locked.traffic.received_bytes += c->response->into_len;
    if (q->is_content) {
        s3->locked.traffic.sent_bytes += q->body_len;
        s3->locked.auto_checksum =
            s3->checksum == S3_CHECKSUM_AUTO ? c->checksum : s3->locked.auto_checksum;
    }
}

/* A web server may answer 200 to anything, so the answer to a put or HEAD must have an id of S3.
 * Other successes are recognised by their content. */
static bool is_from_s3(const struct call *c)
{
    bool is_open = c->request->is_content || strcmp(method_of(c), "HEAD") == 0;
    return !is_open || *c->response->etag || *c->response->request_id;
}

static enum verdict judge_call(struct call *c, int result, int *ret_error)
{
    const struct http_response *r = c->response;
    struct s3_error e = {0};
    learn_date(c);
    if (c->request->any_answer && r->date_ns)
        return DONE;
    if (result < 0)
        return no_answer(c, result, ret_error);
    bool is_error = s3_error_parse(r->text.at, r->text.count, &e);
    if (r->status / 100 != 2 || (is_error && !c->explains))
        return judge_refusal(c, &e, ret_error);
    if (!is_from_s3(c)) {
        *ret_error = -EPROTO;
        call_report_answer(c, &e, s3_advice_of_errno(-EPROTO));
        return FAILED;
    }
    learn_success(c);
    return DONE;
}

/* --- the call --------------------------------------------------------------------------------- */

static enum verdict try_once(struct call *c, int *ret_error)
{
    int result = 0;
    *c->response = (struct http_response){0};
    int r = attempt_call(c, &result);
    if (r == 0)
        return judge_call(c, result, ret_error);
    *ret_error = r;
    return tier_error_is_transient(r) ? AGAIN : FAILED;
}

static void count_retry(struct s3 *s3)
{
    LOCK_SCOPE(&s3->locked.lock);
    s3->locked.traffic.retries++;
}

static int make_call(struct call *c)
{
    for (;;) {
        int error = 0;
        enum verdict verdict =
            retry_gate_is_interrupted(&c->s3->gate) ? FAILED : try_once(c, &error);
        if (retry_gate_is_interrupted(&c->s3->gate) && verdict != DONE)
            return -ECANCELED;
        if (verdict != DONE && c->request->source && c->request->source->error < 0)
            return c->request->source->error;
        if (verdict == DONE || verdict == FAILED)
            return error;
        int64_t at_least_ns = c->response->retry_after_ns;
        int r = verdict == AGAIN ? retry_wait(&c->retry, at_least_ns) : 0;
        if (r < 0)
            return r == -ECANCELED ? r : error;
        http_response_done(c->response);
        count_retry(c->s3);
    }
}

static void count_failure(struct s3 *s3, int error)
{
    if (error == -ENOENT || error == -EEXIST || error == -ERANGE || error == -ECANCELED)
        return;
    LOCK_SCOPE(&s3->locked.lock);
    s3->locked.traffic.failures++;
}

int s3_call(struct s3 *s3, const struct s3_request *request, struct http_response *ret_response)
{
    struct call c = {
        .s3 = s3, .request = request, .response = ret_response, .checksum = s3->checksum};
    *ret_response = (struct http_response){0};
    if (c.checksum == S3_CHECKSUM_AUTO) {
        mutex_lock(&s3->locked.lock);
        c.checksum = s3->locked.auto_checksum;
        mutex_unlock(&s3->locked.lock);
    }
    retry_begin(&c.retry, &s3->gate, s3->tier.patience_ns);
    int r = make_call(&c);
    if (r < 0)
        count_failure(s3, r);
    s3_credentials_done(&c.credentials);
    free(c.region);
    free(c.md5);
    free(c.crc32);
    return r;
}
