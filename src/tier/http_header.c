// SPDX-License-Identifier: Apache-2.0
#include "tier/http_header.h"

#include <curl/curl.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"

/* Longer values are of no use. */
#define VALUE_MAX 256

/* The year 2200: later times are nonsense, and near the limit of nanoseconds in 64 bits. */
#define LATEST_S 7258118400ll

static int64_t date_of(const char *value)
{
    time_t t = curl_getdate(value, NULL);
    return t > 0 && t < LATEST_S ? (int64_t)t * SECOND_NS : 0;
}

static void set_date(struct http_response *r, const char *value)
{
    r->date_ns = date_of(value);
    r->date_at_ns = clock_monotonic_ns();
}

static void set_modified(struct http_response *r, const char *value)
{
    r->modified_ns = date_of(value);
}

/* In seconds, or a date. Limited to a day. */
static void set_retry_after(struct http_response *r, const char *value)
{
    char *end;
    long long seconds = strtoll(value, &end, 10);
    if (end == value) {
        int64_t at = date_of(value);
        seconds = at ? (at - clock_realtime_ns()) / SECOND_NS : 0;
    }
    if (seconds > 0)
        r->retry_after_ns = (int64_t)min_u64((uint64_t)seconds, 86400) * SECOND_NS;
}

static void set_length_from_header(struct http_response *r, const char *value)
{
    char *end;
    errno = 0;
    long long length = strtoll(value, &end, 10);
    if (end != value && errno == 0 && length >= 0)
        r->content_length = length;
}

static void set_range(struct http_response *r, const char *value)
{
    unsigned long long first, last, total;
    if (sscanf(value, "bytes %llu-%llu/%llu", &first, &last, &total) == 3)
        r->range_total = total;
    else if (sscanf(value, "bytes */%llu", &total) == 1)
        r->range_total = total;
    if (sscanf(value, "bytes %llu-%llu/", &first, &last) == 2 && first <= last &&
        last < UINT64_MAX) {
        r->range_start = first;
        r->range_end = last + 1;
    }
}

static void set_etag(struct http_response *r, const char *value)
{
    size_t len = strcspn(value + (*value == '"'), "\"");
    (void)snprintf(r->etag, sizeof r->etag, "%.*s", (int)len, value + (*value == '"'));
}

static void set_bucket_region(struct http_response *r, const char *value)
{
    (void)snprintf(r->region, sizeof r->region, "%s", value);
}

static void set_request_id(struct http_response *r, const char *value)
{
    (void)snprintf(r->request_id, sizeof r->request_id, "%s", value);
}

static void set_content_type(struct http_response *r, const char *value)
{
    (void)snprintf(r->content_type, sizeof r->content_type, "%s", value);
}

static const struct known {
    const char *name;
    void (*set)(struct http_response *r, const char *value);
} known[] = {
    {"date", set_date},
    {"last-modified", set_modified},
    {"retry-after", set_retry_after},
    {"content-length", set_length_from_header},
    {"content-range", set_range},
    {"etag", set_etag},
    {"x-amz-bucket-region", set_bucket_region},
    {"x-amz-request-id", set_request_id},
    {"content-type", set_content_type},
};

static void begin_answer(struct http_response *r, const char *line, size_t len)
{
    char text[32];
    if (r->text.count || r->into_len)
        return; /* a trailer: ignored */
    *r = (struct http_response){.content_length = -1, .range_total = UINT64_MAX};
    (void)snprintf(text, sizeof text, "%.*s", (int)min_u64(len, sizeof text - 1), line);
    (void)sscanf(text, "%*s %ld", &r->status);
}

/* Replaces control bytes by '?': the values go into messages. */
static void copy_header_value(char value[VALUE_MAX], const char *from, const char *end)
{
    size_t n = 0;
    while (from < end && (*from == ' ' || *from == '\t'))
        from++;
    while (end > from && strchr(" \t\r\n", end[-1]))
        end--;
    for (; from < end && n < VALUE_MAX - 1; from++)
        value[n++] = (unsigned char)*from < ' ' || *from == 127 ? '?' : *from;
    value[n] = '\0';
}

void http_header_line(struct http_response *response, const char *line, size_t len)
{
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        begin_answer(response, line, len);
        return;
    }
    const char *colon = memchr(line, ':', len);
    if (!colon)
        return;
    size_t name_len = (size_t)(colon - line);
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strlen(known[i].name) == name_len && strncasecmp(known[i].name, line, name_len) == 0) {
            char value[VALUE_MAX];
            copy_header_value(value, colon + 1, line + len);
            known[i].set(response, value);
            return;
        }
}
