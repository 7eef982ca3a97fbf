// SPDX-License-Identifier: Apache-2.0
/* HTTP from C: blocking calls from any thread over one libcurl multi handle, driven by a thread of
 * this module. Keep-alive connections are shared by all calls. Knows nothing of S3 or of
 * signatures.
 *
 * Proxies are taken from the environment (https_proxy, no_proxy ...), except for link-local
 * addresses, which serve an instance its own credentials. TLS is at least 1.2 and always
 * verified. */
#pragma once

#include "base/vector.h"
#include "tier/source.h"

struct http;

struct http_options {
    unsigned connections; /* exchanges at once; further callers wait, first come first served */
    /* a transfer slower than PACE_LEAST for this long ends with -ETIMEDOUT */
    int64_t stall_ns;
    const char *ca_bundle; /* NULL: the system's */
    const char *user_agent;
};
CAIRN_MUST_CHECK int http_open(const struct http_options *options, struct http **ret_http);

/* No call may be in progress. NULL is fine. */
void http_close(struct http *http);
void http_interrupt(struct http *http); /* calls in progress and later ones return -ECANCELED */

/* All memory is borrowed until http_perform() returns. */
struct http_request {
    const char *method;         /* GET, HEAD, PUT, POST, DELETE */
    const char *url;            /* whole, encoded */
    const char *const *headers; /* "Name: value", ends with NULL; may be NULL */
    const void *body; /* sent from here, with Content-Length body_len and without Expect */
    size_t body_len;
    /* supplies the body, body_len bytes; NULL: it is in `body` */
    struct tier_source *source;
    void *into;      /* receives the body of a 2xx answer; NULL: it goes into response.text */
    size_t into_len; /* a longer body ends the transfer with -EUCLEAN */
    /* for the whole exchange once it has a connection; 0: only the stall limit */
    int64_t timeout_ns;
};

#define HTTP_TEXT_MAX (8u * 1024 * 1024)

struct http_response {
    long status;     /* 200...; 0: no answer */
    size_t into_len; /* bytes received in `into` */
    /* The body if it did not go to `into`, at most HTTP_TEXT_MAX, followed by a NUL; `at` is NULL
     * if it is empty. */
    VECTOR(char) text;
    int64_t date_ns;                 /* Date header; 0: none */
    int64_t date_at_ns;              /* monotonic clock when the Date header arrived */
    int64_t modified_ns;             /* Last-Modified; 0: none */
    int64_t retry_after_ns;          /* 0: none */
    int64_t content_length;          /* as announced; -1: none */
    uint64_t range_start, range_end; /* Content-Range of a 206, end exclusive; both 0: none */
    uint64_t range_total; /* length of the whole object, of a 206 or 416; UINT64_MAX: not stated */
    bool is_too_long;     /* with -EUCLEAN: the body was longer than wanted */
    char etag[80];        /* without quotes */
    char region[40];      /* x-amz-bucket-region */
    char request_id[80];  /* x-amz-request-id */
    char content_type[64];
    char cause[160]; /* libcurl's message, if the call failed */
};

/* Makes one exchange, without retries; redirects are not followed. 0: an answer arrived (any
 * status). -errno: no answer, or only part of one: -ECONNREFUSED, -EHOSTUNREACH (name, network),
 * -ETIMEDOUT, -ECONNRESET, -EKEYREJECTED (TLS: certificate), -EPROTO (the peer does not speak HTTP,
 * or TLS), -EUCLEAN (a body shorter than announced or longer than wanted), -ECANCELED, -EINVAL (the
 * URL), -EIO (also if `source` cannot be read). *ret_response is always set, also with the part
 * received before a failure; always call http_response_done(). A request on a reused connection
 * that turns out to be closed is sent once more on a new one: a server may see it twice. */
CAIRN_MUST_CHECK int http_perform(struct http *http, const struct http_request *request,
                                  struct http_response *ret_response);
void http_response_done(struct http_response *response);
