// SPDX-License-Identifier: Apache-2.0
/* AWS Signature Version 4. Pure; any thread. */
#pragma once

#include "tier/s3/credentials.h"
#include "tier/source.h"

struct s3_sign_request {
    const char *method;
    const char *host;  /* as in the Host header, with a port that is not the scheme's own */
    const char *path;  /* already encoded, begins with '/'; with normalize_path: not encoded */
    const char *query; /* already encoded "a=b&c=", any order; NULL or "": none */
    /* "name: value" to be signed besides those below; ends with NULL; may be NULL */
    const char *const *headers;
    const void *body; /* may be NULL if body_len is 0 */
    size_t body_len;
    struct tier_source *source; /* in place of `body`; its errors are those of s3_sign(), too */
    bool unsigned_payload;      /* https: UNSIGNED-PAYLOAD instead of the body's SHA-256 */
    bool normalize_path; /* services other than S3: takes out "." and "..", encodes, as the vectors
                            want it */
    bool payload_header; /* adds x-amz-content-sha256 */
    const char *region, *service;
    int64_t time_ns; /* wall clock */
};

#define S3_SIGNED_HEADERS_MAX 4

/* Headers to add ("Authorization: ...", "x-amz-date: ...", ...), owned by this; NULL after the
 * last. */
struct s3_signed {
    char *headers[S3_SIGNED_HEADERS_MAX + 1];
    char *canonical_request; /* for tests; holds the session token */
    char *string_to_sign;    /* for explaining a refusal; holds no secret */
};

/* Signs host, x-amz-date, x-amz-security-token, x-amz-content-sha256 where these are sent, and
 * `headers`. -EINVAL: key, token or region are empty or not plain text, or the time is before 1970.
 * -EIO: libcrypto fails. */
CAIRN_MUST_CHECK int s3_sign(const struct s3_sign_request *request,
                             const struct s3_credentials *credentials,
                             struct s3_signed *ret_signed);

/* Wipes and frees what is in it; all zero bytes is fine. */
void s3_signed_done(struct s3_signed *signed_request);

/* Percent-encodes as S3 wants it; `leave_slash` for paths. Caller frees. */
char *s3_uri_encode(const char *text, bool leave_slash);
