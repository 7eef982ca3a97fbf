// SPDX-License-Identifier: Apache-2.0
#include "tier/s3/sign.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <time.h>

#include "base/hex.h"
#include "tier/s3/secret.h"

#define ALGORITHM "AWS4-HMAC-SHA256"
#define HASH_LEN 32
#define HEX_LEN (2 * HASH_LEN + 1)
#define STAMP_LEN 17 /* 20130524T000000Z */
#define DAY_LEN 8    /* the date part of it */

/* A header as signed: name in lower case, value with blanks normalised. */
struct field {
    char *name, *value;
    size_t place; /* index among the given headers: values of the same name keep this order */
};

struct fields {
    struct field *v;
    size_t count;
};

static int sha256_hex(const void *data, size_t len, char text[HEX_LEN])
{
    uint8_t hash[HASH_LEN];
    if (EVP_Digest(len ? data : "", len, hash, NULL, EVP_sha256(), NULL) != 1)
        return -EIO;
    hex_print(text, hash, sizeof hash);
    return 0;
}

static void add_sha256(const void *bytes, size_t len, void *arg)
{
    (void)EVP_DigestUpdate(arg, bytes, len);
}

static int sha256_hex_from(struct tier_source *source, char text[HEX_LEN])
{
    uint8_t hash[HASH_LEN];
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int r = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1
                ? tier_source_each(source, add_sha256, md)
                : -EIO;
    if (r == 0 && EVP_DigestFinal_ex(md, hash, NULL) != 1)
        r = -EIO;
    EVP_MD_CTX_free(md);
    if (r == 0)
        hex_print(text, hash, sizeof hash);
    return r;
}

static int hmac_of(const void *key, size_t key_len, const char *text, size_t len,
                   uint8_t ret_mac[HASH_LEN])
{
    return HMAC(EVP_sha256(), key, (int)key_len, (const uint8_t *)text, len, ret_mac, NULL) ? 0
                                                                                            : -EIO;
}

char *s3_uri_encode(const char *text, bool leave_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    char *encoded = xmalloc(3 * strlen(text) + 1), *to = encoded;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        /* isalnum() depends on the locale */
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            strchr("-._~", c) || (c == '/' && leave_slash)) {
            *to++ = (char)c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[c >> 4];
        *to++ = digits[c & 15];
    }
    *to = '\0';
    return encoded;
}

/* Removes "." and ".." and empty segments, keeps a '/' at the end, and encodes. */
static char *normalized_path(const char *path)
{
    _cleanup_free_ char *clean = xmalloc(strlen(path) + 2);
    size_t len = 0;
    while (*path) {
        path += strspn(path, "/");
        size_t segment = strcspn(path, "/");
        bool up = segment == 2 && memcmp(path, "..", 2) == 0;
        if (up) {
            while (len > 0 && clean[--len] != '/')
                ;
        } else if (segment > 0 && !(segment == 1 && *path == '.')) {
            clean[len++] = '/';
            memcpy(clean + len, path, segment);
            len += segment;
        } else if (segment == 0 && len > 0) {
            clean[len++] = '/';
        }
        path += segment;
    }
    if (len == 0)
        clean[len++] = '/';
    clean[len] = '\0';
    return s3_uri_encode(clean, true);
}

struct param {
    const char *key, *value;
};

/* Sorts by key, then by value: "a-=1" comes after "a=1" though '-' is less than '='. */
static int param_order(const void *a, const void *b)
{
    const struct param *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : strcmp(x->value, y->value);
}

static void put_query(FILE *out, const char *query)
{
    _cleanup_free_ char *text = xstrdup(query ? query : "");
    size_t capacity = 1, count = 0;
    for (const char *c = text; *c; c++)
        capacity += *c == '&';
    _cleanup_free_ struct param *params = xcalloc(capacity, sizeof *params);
    char *rest = text, *param;
    while ((param = strsep(&rest, "&"))) {
        if (*param == '\0')
            continue;
        char *value = strchr(param, '=');
        if (value)
            *value++ = '\0';
        params[count++] = (struct param){param, value ? value : ""};
    }
    qsort(params, count, sizeof *params, param_order);
    for (size_t i = 0; i < count; i++)
        (void)fprintf(out, "%s%s=%s", i ? "&" : "", params[i].key, params[i].value);
}

/* Trims white space and collapses runs of blanks. */
static char *plain_value(const char *value)
{
    static const char space[] = " \t\r\n";
    char *plain = xmalloc(strlen(value) + 1), *to = plain;
    while (*(value += strspn(value, space))) {
        size_t word = strcspn(value, space);
        if (to != plain)
            *to++ = ' ';
        to = mempcpy(to, value, word);
        value += word;
    }
    *to = '\0';
    return plain;
}

static void add_field(struct fields *fields, const char *name, size_t name_len, const char *value)
{
    struct field *f = &fields->v[fields->count];
    *f = (struct field){
        .name = xmalloc(name_len + 1), .value = plain_value(value), .place = fields->count};
    for (size_t i = 0; i < name_len; i++)
        f->name[i] = (char)tolower((unsigned char)name[i]);
    f->name[name_len] = '\0';
    fields->count++;
}

static int field_order(const void *a, const void *b)
{
    const struct field *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order)
        return order;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Gathers all signed headers: host, the given ones, and those we add. */
static void gather_fields(const struct s3_sign_request *request, char *const *added,
                          struct fields *fields)
{
    size_t given = 0;
    while (request->headers && request->headers[given])
        given++;
    fields->v = xcalloc(given + 1 + S3_SIGNED_HEADERS_MAX, sizeof *fields->v);
    add_field(fields, "host", 4, request->host);
    for (size_t i = 0; i < given || *added; i++) {
        const char *header = i < given ? request->headers[i] : *added++;
        const char *colon = strchr(header, ':');
        check(colon);
        add_field(fields, header, (size_t)(colon - header), colon + 1);
    }
    qsort(fields->v, fields->count, sizeof *fields->v, field_order);
}

static void drop_fields(struct fields *fields)
{
    for (size_t i = 0; i < fields->count; i++) {
        free(fields->v[i].name);
        s3_secret_free(&fields->v[i].value);
    }
    free(fields->v);
}

static bool is_repeated(const struct fields *fields, size_t i)
{
    return i > 0 && strcmp(fields->v[i - 1].name, fields->v[i].name) == 0;
}

static void put_fields(FILE *out, const struct fields *fields)
{
    for (size_t i = 0; i < fields->count; i++) {
        if (is_repeated(fields, i))
            (void)fprintf(out, ",%s", fields->v[i].value);
        else
            (void)fprintf(out, "%s%s:%s", i ? "\n" : "", fields->v[i].name, fields->v[i].value);
    }
    (void)fputc('\n', out);
}

static void put_signed_names(FILE *out, const struct fields *fields)
{
    for (size_t i = 0; i < fields->count; i++)
        if (!is_repeated(fields, i))
            (void)fprintf(out, "%s%s", i ? ";" : "", fields->v[i].name);
}

static FILE *open_signed_text(char **text, size_t *len)
{
    FILE *out = open_memstream(text, len);
    check(out);
    return out;
}

static void close_signed_text(FILE *out)
{
    bool complete = !ferror(out);
    complete = fclose(out) == 0 && complete;
    check(complete);
}

static char *canonical_request(const struct s3_sign_request *request, const struct fields *fields,
                               const char *payload)
{
    char *text;
    size_t len;
    FILE *out = open_signed_text(&text, &len);
    _cleanup_free_ char *path =
        request->normalize_path ? normalized_path(request->path) : xstrdup(request->path);
    (void)fprintf(out, "%s\n%s\n", request->method, path);
    put_query(out, request->query);
    (void)fputc('\n', out);
    put_fields(out, fields);
    (void)fputc('\n', out);
    put_signed_names(out, fields);
    (void)fprintf(out, "\n%s", payload);
    close_signed_text(out);
    return text;
}

/* Derives the key each time: four short HMACs are cheaper than protecting another secret. */
static int make_signature(const struct s3_sign_request *request, const char *secret,
                          const char *stamp, const char *string_to_sign, char text[HEX_LEN])
{
    uint8_t key[HASH_LEN], next[HASH_LEN];
    char *first = s3_secret_join("AWS4", secret);
    int r = hmac_of(first, strlen(first), stamp, DAY_LEN, key);
    s3_secret_free(&first);
    const char *const steps[] = {request->region, request->service, "aws4_request", string_to_sign};
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(steps); i++) {
        r = hmac_of(key, HASH_LEN, steps[i], strlen(steps[i]), next);
        memcpy(key, next, HASH_LEN);
    }
    if (r == 0)
        hex_print(text, key, HASH_LEN);
    OPENSSL_cleanse(key, sizeof key);
    OPENSSL_cleanse(next, sizeof next);
    return r;
}

static int time_stamp(int64_t time_ns, char text[STAMP_LEN])
{
    time_t seconds = time_ns / 1000000000;
    struct tm tm;
    if (time_ns < 0 || !gmtime_r(&seconds, &tm) ||
        strftime(text, STAMP_LEN, "%Y%m%dT%H%M%SZ", &tm) != STAMP_LEN - 1)
        return -EINVAL;
    return 0;
}

/* Adds the headers other than Authorization; they precede it. */
static void add_signed_headers(const struct s3_sign_request *request,
                               const struct s3_credentials *credentials, const char *stamp,
                               const char *payload, char **headers)
{
    *headers++ = xasprintf("x-amz-date: %s", stamp);
    if (request->payload_header)
        *headers++ = xasprintf("x-amz-content-sha256: %s", payload);
    if (credentials->token)
        *headers++ = s3_secret_join("x-amz-security-token: ", credentials->token);
}

static char *authorization_header(const struct s3_credentials *credentials, const char *scope,
                                  const struct fields *fields, const char *signature_hex)
{
    char *text;
    size_t len;
    FILE *out = open_signed_text(&text, &len);
    (void)fprintf(out, "Authorization: " ALGORITHM " Credential=%s/%s, SignedHeaders=",
                  credentials->key_id, scope);
    put_signed_names(out, fields);
    (void)fprintf(out, ", Signature=%s", signature_hex);
    close_signed_text(out);
    return text;
}

static int sign_fields(const struct s3_sign_request *request,
                       const struct s3_credentials *credentials, const struct fields *fields,
                       const char *stamp, const char *payload, struct s3_signed *s)
{
    char request_hex[HEX_LEN], signature_hex[HEX_LEN];
    _cleanup_free_ char *scope =
        xasprintf("%.*s/%s/%s/aws4_request", DAY_LEN, stamp, request->region, request->service);
    s->canonical_request = canonical_request(request, fields, payload);
    TRY(sha256_hex(s->canonical_request, strlen(s->canonical_request), request_hex));
    s->string_to_sign = xasprintf(ALGORITHM "\n%s\n%s\n%s", stamp, scope, request_hex);
    TRY(make_signature(request, credentials->secret, stamp, s->string_to_sign, signature_hex));
    size_t last = 0;
    while (s->headers[last])
        last++;
    check(last < S3_SIGNED_HEADERS_MAX);
    s->headers[last] = authorization_header(credentials, scope, fields, signature_hex);
    return 0;
}

int s3_sign(const struct s3_sign_request *request, const struct s3_credentials *credentials,
            struct s3_signed *ret_signed)
{
    char stamp[STAMP_LEN], payload[HEX_LEN] = "UNSIGNED-PAYLOAD";
    if (!s3_secret_is_plain(credentials->key_id) || !s3_secret_is_plain(credentials->secret) ||
        (credentials->token && !s3_secret_is_plain(credentials->token)) ||
        !s3_secret_is_plain(request->region))
        return -EINVAL;
    int r = time_stamp(request->time_ns, stamp);
    if (r == 0 && !request->unsigned_payload)
        r = request->source ? sha256_hex_from(request->source, payload)
                            : sha256_hex(request->body, request->body_len, payload);
    if (r < 0)
        return r;
    struct s3_signed s = {0};
    struct fields fields = {0};
    add_signed_headers(request, credentials, stamp, payload, s.headers);
    gather_fields(request, s.headers, &fields);
    r = sign_fields(request, credentials, &fields, stamp, payload, &s);
    drop_fields(&fields);
    if (r < 0)
        s3_signed_done(&s);
    else
        *ret_signed = s;
    return r;
}

void s3_signed_done(struct s3_signed *signed_request)
{
    for (size_t i = 0; i < S3_SIGNED_HEADERS_MAX; i++)
        s3_secret_free(&signed_request->headers[i]);
    s3_secret_free(&signed_request->canonical_request);
    free(signed_request->string_to_sign);
    signed_request->string_to_sign = NULL;
}
