// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of the S3 tier. */
#pragma once

#include "base/cause.h"
#include "base/lock.h"
#include "tier/http.h"
#include "tier/retry.h"
#include "tier/s3/credentials.h"
#include "tier/s3/error.h"
#include "tier/tier.h"

#define S3_OBJECT_MAX (5 * GIB) /* of a single PUT */

/* The address of requests; constant after open. */
struct s3_place {
    char *scheme, *host; /* host with port, of an endpoint; NULL host: AWS of the region */
    char *base;          /* path of the endpoint, without '/' at its end; may be "" */
    char *bucket, *prefix;
    bool is_tls, is_virtual;
};

#define S3_PUT_HEADERS_MAX 3

struct s3 {
    struct tier tier;
    struct s3_place place;
    char *put_headers[S3_PUT_HEADERS_MAX + 1]; /* storage class, encryption */
    enum s3_checksum checksum;
    struct http *http;
    struct s3_credential_source *credentials; /* NULL: requests are not signed */
    struct retry_gate gate;
    struct {
        struct cairn_mutex lock;
        char *region;
        /* the server's minus our wall clock; 0 until a request is refused because of it */
        int64_t skew_ns;
        int64_t date_offset_ns;         /* the server's minus the monotonic clock */
        int64_t date_at_ns;             /* monotonic: when the Date was last received; 0: never */
        enum s3_checksum auto_checksum; /* the checksum used for S3_CHECKSUM_AUTO */
        bool bucket_seen;               /* some answer has proved that the bucket exists */
        bool single_deletes;            /* the server has no DeleteObjects */
        char error[CAUSE_MAX];
        struct tier_traffic traffic;
    } locked;
};

static inline struct s3 *s3_of(struct tier *tier)
{
    return container_of(tier, struct s3, tier);
}

/* --- config.c --------------------------------------------------------------------------------- */

/* Fills in all constant fields, and *ret_ca_bundle (NULL: the system's). -EINVAL with
 * *ret_error. */
CAIRN_MUST_CHECK int s3_configure(struct s3 *s3, const struct s3_options *options,
                                  char **ret_ca_bundle, char **ret_error);
void s3_configure_done(struct s3 *s3);

/* The address of a request. `object` NULL: the bucket. To be freed by s3_address_done(). */
struct s3_address {
    char *url, *host, *path; /* path: encoded, as it is signed */
};
void s3_address_make(const struct s3_place *place, const char *region, const char *object,
                     const char *query, struct s3_address *ret_address);
void s3_address_done(struct s3_address *address);

/* The endpoint's host, without the bucket; to be freed. */
char *s3_host(const struct s3_place *place, const char *region);

/* --- call.c ----------------------------------------------------------------------------------- */

#define S3_CALL_HEADERS_MAX 2

struct s3_request {
    const char *method;
    const char *object;                           /* without the prefix; NULL: the bucket */
    const char *query;                            /* encoded; may be NULL */
    const char *headers[S3_CALL_HEADERS_MAX + 1]; /* ends with NULL */
    const void *body;
    size_t body_len;
    struct tier_source *source; /* supplies the body, in place of `body` */
    void *into;
    size_t into_len;
    /* the body is an object's content: it gets a checksum and the headers of a put */
    bool is_content;
    bool wants_md5;  /* always send Content-MD5 */
    bool any_answer; /* any answer will do: only its Date is used */
};

/* Makes one request, with retries as long as they may help and patience lasts. 0: a 2xx answer that
 * is no error. A refused HEAD may be followed by a GET of the first byte, since only a GET explains
 * the refusal. -errno as in tier.h and: -ERANGE, -EOPNOTSUPP, -EINVAL. Always call
 * http_response_done(). */
CAIRN_MUST_CHECK int s3_call(struct s3 *s3, const struct s3_request *request,
                             struct http_response *ret_response);

/* Stores a line for last_error(). `object` may be NULL. */
void s3_set_error(struct s3 *s3, const char *method, const char *object, const char *fmt, ...)
    CAIRN_PRINTF(4, 5);

/* --- checksum.c ------------------------------------------------------------------------------- */

/* Base64 of the MD5, to be freed. -EOPNOTSUPP: libcrypto does not allow it (FIPS). */
CAIRN_MUST_CHECK int s3_md5(const void *body, size_t len, char **ret_text);
char *s3_crc32(const void *body, size_t len); /* to be freed */
/* The same for a source; also returns its errors. */
CAIRN_MUST_CHECK int s3_md5_from(struct tier_source *source, char **ret_text);
CAIRN_MUST_CHECK int s3_crc32_from(struct tier_source *source, char **ret_text);

/* --- operations in files of their own --------------------------------------------------------- */

int s3_list(struct tier *tier, const char *directory, const char *after,
            int (*fn)(const struct tier_object *object, void *arg), void *arg);
CAIRN_MUST_CHECK int s3_list_level(struct tier *tier, const char *directory,
                                   int (*fn)(const struct tier_object *object, void *arg),
                                   void *arg);
int s3_remove(struct tier *tier, const char *object);
int s3_remove_many(struct tier *tier, const char *const *objects, size_t count);
