// SPDX-License-Identifier: Apache-2.0
/* AWS Signature Version 4. Pure; any thread. */
#pragma once

#include "tier/s3/credentials.h"
#include "tier/source.h"

struct s3_sign_request {
    const char *method;
    const char *host;  /* as in the Host header, with the port if it is not the scheme's default */
    const char *path;  /* already encoded, begins with '/'; with normalize_path: not encoded */
    const char *query; /* already encoded "a=b&c=", any order; NULL or "": none */
    /* "name: value" to be signed besides the headers of s3_sign(); ends with NULL; may be NULL */
    const char *const *headers;
    const void *body; /* may be NULL if body_len is 0 */
    size_t body_len;
    struct tier_source *source; /* in place of `body`; s3_sign() also returns its errors */
    bool unsigned_payload;      /* https: UNSIGNED-PAYLOAD instead of the body's SHA-256 */
    /* for services other than S3: removes "." and "..", and encodes, as the test vectors require */
    bool normalize_path;
    bool payload_header; /* adds x-amz-content-sha256 */
    const char *region, *service;
    int64_t time_ns; /* wall clock */
};

#define S3_SIGNED_HEADERS_MAX 4

/* Headers to add ("Authorization: ...", "x-amz-date: ...", ...), owned by this struct; NULL after
 * the last. */
struct s3_signed {
    char *headers[S3_SIGNED_HEADERS_MAX + 1];
    char *canonical_request; /* for tests; contains the session token */
    char *string_to_sign;    /* to explain a refusal; contains no secret */
};

/* Signs `headers`, and host, x-amz-date, x-amz-security-token, x-amz-content-sha256 as far as they
 * are sent. -EINVAL: key, token or region is empty or not plain text, or the time is before 1970.
 * -EIO: libcrypto fails. */
CAIRN_MUST_CHECK int s3_sign(const struct s3_sign_request *request,
                             const struct s3_credentials *credentials,
                             struct s3_signed *ret_signed);

/* Wipes and frees the contents; a zeroed struct is fine. */
void s3_signed_done(struct s3_signed *signed_request);

/* Percent-encodes as S3 requires; `leave_slash` for paths. Caller frees. */
char *s3_uri_encode(const char *text, bool leave_slash);
