// SPDX-License-Identifier: Apache-2.0
#include <ctype.h>

#include "tier/s3/credentials_source.h"
#include "base/text.h"
#include "tier/s3/internal.h"
#include "tier/s3/secret.h"
#include "tier/s3/sign.h"

static bool is_bucket_name(const char *name)
{
    size_t len = strlen(name);
    if (len < 3 || len > 63 || strstr(name, "..") || *name == '.' || name[len - 1] == '.')
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr(".-_", *name))
            return false;
    return true;
}

/* Proxies and some servers remove an empty segment, "." and ".." from the path. */
static bool is_prefix(const char *prefix)
{
    _cleanup_free_ char *text = xstrdup(prefix);
    char *rest = text, *segment;
    while ((segment = strsep(&rest, "/")))
        if (*segment == '\0' || strcmp(segment, ".") == 0 || strcmp(segment, "..") == 0)
            return false;
    for (const char *c = prefix; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return false;
    return strlen(prefix) <= 700;
}

static bool is_ip_address(const char *host)
{
    return strchr(host, ':') || strspn(host, "0123456789.") == strlen(host);
}

static bool wants_virtual(const struct s3_options *options, bool has_endpoint, const char *host)
{
    bool possible = !strchr(options->bucket, '.') && !(host && is_ip_address(host));
    switch (options->addressing) {
    case S3_ADDRESSING_PATH:
        return false;
    case S3_ADDRESSING_VIRTUAL:
        return possible;
    case S3_ADDRESSING_AUTO:
        break;
    }
    return possible && !has_endpoint;
}

static int set_endpoint(struct s3_place *place, const struct s3_options *options, const char *url,
                        char **ret_error)
{
    struct s3_url parts;
    if (strpbrk(url, "@?# ") || !strstr(url, "://") || s3_url_parse(url, &parts) < 0)
        return text_fail(ret_error, -EINVAL,
                         "endpoint \"%s\" is not a URL such as https://s3.example.com",
                         strchr(url, '@') ? "(one with a password in it)" : url);
    int r = 0;
    if (strcmp(parts.scheme, "http") != 0 && strcmp(parts.scheme, "https") != 0)
        r = text_fail(ret_error, -EINVAL, "endpoint \"%s\" is neither http nor https", url);
    else
        place->is_virtual = wants_virtual(options, true, parts.host);
    place->scheme = xstrdup(parts.scheme);
    place->host = xstrdup(parts.host_header);
    place->base = xstrdup(parts.path);
    s3_url_done(&parts);
    for (char *c = place->host; *c; c++)
        *c = (char)tolower((unsigned char)*c); /* libcurl does so too, and the host is signed */
    for (size_t len = strlen(place->base); len && place->base[len - 1] == '/'; len--)
        place->base[len - 1] = '\0';
    return r;
}

static int configure_place(struct s3_place *place, const struct s3_options *options,
                           const char *endpoint, char **ret_error)
{
    if (!options->bucket || !is_bucket_name(options->bucket))
        return text_fail(ret_error, -EINVAL, "\"%s\" is not a bucket name",
                         options->bucket ? options->bucket : "");
    const char *prefix = options->prefix ? options->prefix : "";
    if (*prefix && !is_prefix(prefix))
        return text_fail(ret_error, -EINVAL,
                         "prefix \"%s\" begins or ends with '/', is too long, or has an empty "
                         "part, \".\" or \"..\"",
                         prefix);
    place->bucket = xstrdup(options->bucket);
    place->prefix = xstrdup(prefix);
    int r = 0;
    if (endpoint) {
        r = set_endpoint(place, options, endpoint, ret_error);
    } else {
        place->scheme = xstrdup("https");
        place->base = xstrdup("");
        place->is_virtual = wants_virtual(options, false, NULL);
    }
    place->is_tls = place->scheme && strcmp(place->scheme, "https") == 0;
    return r;
}

static int configure_put_header(struct s3 *s3, const char *name, const char *value,
                                char **ret_error)
{
    char **at = s3->put_headers;
    if (!value || !*value)
        return 0;
    if (!s3_secret_is_plain(value))
        return text_fail(ret_error, -EINVAL, "\"%s\" cannot be sent as %s", value, name);
    while (*at)
        at++;
    *at = xasprintf("%s: %s", name, value);
    return 0;
}

static int configure_put_headers(struct s3 *s3, const struct s3_options *options, char **ret_error)
{
    TRY(configure_put_header(s3, "x-amz-storage-class", options->storage_class, ret_error));
    TRY(configure_put_header(s3, "x-amz-server-side-encryption", options->sse, ret_error));
    return configure_put_header(s3, "x-amz-server-side-encryption-aws-kms-key-id",
                                options->sse_kms_key_id, ret_error);
}

static const char *first_of(const char *a, const char *b, const char *c)
{
    return a && *a ? a : b && *b ? b : c;
}

int s3_configure(struct s3 *s3, const struct s3_options *options, char **ret_ca_bundle,
                 char **ret_error)
{
    struct s3_settings settings = {0};
    TRY(s3_settings_read(options->profile, &settings, ret_error));
    int r = 0;
    s3->locked.region = xstrdup(first_of(options->region, settings.region, "us-east-1"));
    if (!s3_secret_is_plain(s3->locked.region))
        r = text_fail(ret_error, -EINVAL, "\"%s\" is not a region name", s3->locked.region);
    if (r == 0)
        r = configure_place(&s3->place, options,
                            first_of(options->endpoint_url, settings.endpoint_url, NULL),
                            ret_error);
    if (r == 0)
        r = configure_put_headers(s3, options, ret_error);
    const char *ca_bundle = first_of(options->ca_bundle, settings.ca_bundle, NULL);
    if (r == 0 && ca_bundle && access(ca_bundle, R_OK) < 0)
        r = text_fail(ret_error, -errno, "certificates %s: %s", ca_bundle, strerror(errno));
    if (r == 0)
        *ret_ca_bundle = ca_bundle ? xstrdup(ca_bundle) : NULL;
    s3->checksum = options->checksum;
    /* over http, the signature covers the content already */
    bool is_covered = !s3->place.is_tls && !options->unsigned_requests;
    s3->locked.auto_checksum = is_covered ? S3_CHECKSUM_NONE : S3_CHECKSUM_CRC32;
    s3_settings_done(&settings);
    return r;
}

void s3_configure_done(struct s3 *s3)
{
    struct s3_place *place = &s3->place;
    free(place->scheme);
    free(place->host);
    free(place->base);
    free(place->bucket);
    free(place->prefix);
    for (size_t i = 0; i < S3_PUT_HEADERS_MAX; i++)
        free(s3->put_headers[i]);
    free(s3->locked.region);
}

char *s3_host(const struct s3_place *place, const char *region)
{
    const char *dot_cn = strncmp(region, "cn-", 3) == 0 ? ".cn" : "";
    return place->host ? xstrdup(place->host) : xasprintf("s3.%s.amazonaws.com%s", region, dot_cn);
}

static char *host_of(const struct s3_place *place, const char *region)
{
    _cleanup_free_ char *host = s3_host(place, region);
    return place->is_virtual ? xasprintf("%s.%s", place->bucket, host) : xstrdup(host);
}

void s3_address_make(const struct s3_place *place, const char *region, const char *object,
                     const char *query, struct s3_address *ret_address)
{
    const char *prefix = object ? place->prefix : "";
    _cleanup_free_ char *key =
        xasprintf("%s%s%s", prefix, *prefix ? "/" : "", object ? object : "");
    _cleanup_free_ char *encoded = s3_uri_encode(key, true);
    struct s3_address a = {.host = host_of(place, region)};
    if (place->is_virtual)
        a.path = xasprintf("%s/%s", place->base, encoded);
    else
        a.path = xasprintf("%s/%s%s%s", place->base, place->bucket, object ? "/" : "", encoded);
    a.url = xasprintf("%s://%s%s%s%s", place->scheme, a.host, a.path, query ? "?" : "",
                      query ? query : "");
    *ret_address = a;
}

void s3_address_done(struct s3_address *address)
{
    free(address->url);
    free(address->host);
    free(address->path);
}
