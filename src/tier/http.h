// SPDX-License-Identifier: Apache-2.0
/* HTTP from C: blocking calls from any thread over one libcurl multi handle that a thread of its
 * own drives. Keep-alive connections are shared by all calls. Knows nothing of S3 or of signatures.
 *
 * Proxies are those of the environment (https_proxy, no_proxy ...), except for link-local
 * addresses, where instances ask for their own credentials. TLS is at least 1.2 and always
 * verified. */
#pragma once

#include "base/vector.h"
#include "tier/source.h"

struct http;

struct http_options {
    unsigned connections;  /* exchanges at once; further callers wait for one, first come
                              first served */
    int64_t stall_ns;      /* a transfer that is slower than PACE_LEAST for this long ends with
                              -ETIMEDOUT */
    const char *ca_bundle; /* NULL: the system's */
    const char *user_agent;
};
CAIRN_MUST_CHECK int http_open(const struct http_options *options, struct http **ret_http);

/* No call may be under way. NULL is fine. */
void http_close(struct http *http);
void http_interrupt(struct http *http); /* calls under way and later ones: -ECANCELED */

/* All memory stays the caller's and must stay valid until http_perform() returns. */
struct http_request {
    const char *method;         /* GET, HEAD, PUT, POST, DELETE */
    const char *url;            /* whole, encoded */
    const char *const *headers; /* "Name: value", ends with NULL; may be NULL */
    const void *body; /* sent with Content-Length body_len, no Expect, straight from here */
    size_t body_len;
    /* the body, of body_len bytes, is read from there; NULL: it is in `body` */
    struct tier_source *source;
    void *into;      /* where the body of a 2xx answer goes, straight; NULL: into response.text */
    size_t into_len; /* more than this: the transfer is ended with -EUCLEAN */
    /* for all of it once it has a connection; 0: no other than the stall limit */
    int64_t timeout_ns;
};

#define HTTP_TEXT_MAX (8u * 1024 * 1024)

struct http_response {
    long status;     /* 200...; 0: no answer */
    size_t into_len; /* bytes that came into `into` */
    /* Body otherwise, at most HTTP_TEXT_MAX, a NUL behind it; `at` is NULL if it is empty. */
    VECTOR(char) text;
    int64_t date_ns;                 /* Date header; 0: none */
    int64_t date_at_ns;              /* monotonic clock when it came */
    int64_t modified_ns;             /* Last-Modified; 0: none */
    int64_t retry_after_ns;          /* 0: none */
    int64_t content_length;          /* as announced; -1: none */
    uint64_t range_start, range_end; /* Content-Range of a 206, end exclusive; both 0: none */
    uint64_t range_total; /* length of the whole, of a 206 or 416; UINT64_MAX: not told */
    bool is_too_long;     /* with -EUCLEAN: more came than was wanted */
    char etag[80];        /* without quotes */
    char region[40];      /* x-amz-bucket-region */
    char request_id[80];  /* x-amz-request-id */
    char content_type[64];
    char cause[160]; /* where the call failed: what libcurl says */
};

/* One exchange, no repetition, redirects are not followed. 0: an answer came (any status). -errno:
 * none did, or not all of it: -ECONNREFUSED, -EHOSTUNREACH (name, network), -ETIMEDOUT,
 * -ECONNRESET, -EKEYREJECTED (TLS: certificate), -EPROTO (what answers speaks no HTTP, or no TLS),
 * -EUCLEAN (a body that is shorter than announced or longer than wanted), -ECANCELED, -EINVAL (the
 * URL), -EIO (a `source` that cannot be read, too). What came before the failure is in the
 * response, which is always set; http_response_done() in any case. A request on a reused connection
 * that turns out to be closed is sent once more on a new one: a server may see it twice. */
CAIRN_MUST_CHECK int http_perform(struct http *http, const struct http_request *request,
                                  struct http_response *ret_response);
void http_response_done(struct http_response *response);
