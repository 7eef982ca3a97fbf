// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>

#include "base/clock.h"
#include "base/text.h"
#include "tier/s3/credentials_source.h"
#include "tier/s3/secret.h"

#define CONTAINER_TIMEOUT_NS (5 * SECOND_NS)
#define CONTAINER_TRIES 3
/* Without a metadata service, a request to its address often gets no answer. */
#define METADATA_TIMEOUT_NS (1 * SECOND_NS)
#define METADATA_TRIES 2
#define TOKEN_MAX (64 * KIB)
#define ROLE_MAX 256

#define CONTAINER_HOST "http://169.254.170.2"
#define METADATA_URL "http://169.254.169.254"
#define METADATA_URL_IPV6 "http://[fd00:ec2::254]"
#define METADATA_ROLES "/latest/meta-data/iam/security-credentials/"

/* ECS, EKS Pod Identity (both families). */
static const char *const container_hosts[] = {"169.254.170.2", "169.254.170.23", "fd00:ec2::23"};

static bool same_ipv6(const struct in6_addr *address, const char *other)
{
    struct in6_addr b;
    return inet_pton(AF_INET6, other, &b) == 1 && memcmp(address, &b, sizeof b) == 0;
}

/* Credentials in clear text are sent only to this machine, or to a link-local address. */
static bool is_host_for_clear_text(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    bool is_v6 = inet_pton(AF_INET6, host, &v6) == 1;
    for (size_t i = 0; i < ARRAY_LEN(container_hosts); i++)
        if (strcmp(host, container_hosts[i]) == 0 || (is_v6 && same_ipv6(&v6, container_hosts[i])))
            return true;
    if (is_v6)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return strcmp(host, "localhost") == 0;
}

static int check_full_uri(const char *uri, const char *what, char **ret_error)
{
    struct s3_url url;
    if (s3_url_parse(uri, &url) < 0)
        return text_fail(ret_error, -EINVAL, "%s: not a URL", what);
    bool https = strcmp(url.scheme, "https") == 0;
    bool allowed = https || (strcmp(url.scheme, "http") == 0 && is_host_for_clear_text(url.host));
    int r =
        allowed
            ? 0
            : text_fail(
                  ret_error, -EINVAL,
                  "%s: \"%s\" is not this machine and no container agent: only https may go there",
                  what, url.host);
    s3_url_done(&url);
    return r;
}

/* Returns the Authorization header, or NULL if none is configured. The file is read every time, as
 * its content is rotated. */
static int container_authorization(const char *what, char **ret_header, char **ret_error)
{
    const char *path = s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *plain = s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    _cleanup_secret_ char *text = NULL;
    if (path) {
        int r = s3_secret_read(path, TOKEN_MAX, &text, NULL);
        if (r < 0)
            return text_fail(ret_error, -EINVAL, "%s: token file %s: %s", what, path, strerror(-r));
        text[strcspn(text, "\r\n")] = '\0';
    }
    const char *token = path ? text : plain;
    *ret_header = NULL;
    if (!token)
        return 0;
    for (const char *c = token; *c; c++)
        if (*c < ' ' || *c > '~')
            return text_fail(ret_error, -EINVAL, "%s: the authorization token is not plain text",
                             what);
    *ret_header = s3_secret_join("Authorization: ", token);
    return 0;
}

static int ask_container(const struct s3_lookup *lookup, const char *url, const char *what,
                         struct s3_credentials *ret_credentials, char **ret_error)
{
    _cleanup_secret_ char *authorization = NULL;
    TRY(container_authorization(what, &authorization, ret_error));
    const char *const headers[] = {"Accept: application/json", authorization, NULL};
    struct http_request request = {
        .method = "GET", .url = url, .headers = headers, .timeout_ns = CONTAINER_TIMEOUT_NS};
    struct http_response response;
    TRY(s3_source_ask(lookup->http, &request, CONTAINER_TRIES, what, &response, ret_error));
    int r;
    if (response.status == 200)
        r = s3_credentials_parse(response.text.at, response.text.count, "Token", what,
                                 ret_credentials, ret_error);
    else
        r = s3_source_refused(&response, what, NULL, ret_error);
    s3_response_wipe(&response);
    return r;
}

int s3_source_container(const struct s3_lookup *lookup, struct s3_credentials *ret_credentials,
                        char **ret_error)
{
    static const char relative_name[] = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    static const char full_name[] = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    const char *relative = s3_env(relative_name), *full = s3_env(full_name);
    if (!relative && !full)
        return text_fail(ret_error, -ENOKEY, "no container (%s is not set)", full_name);
    if (relative && *relative != '/')
        return text_fail(ret_error, -EINVAL, "%s: does not begin with '/'", relative_name);
    TRY(relative ? 0 : check_full_uri(full, full_name, ret_error));
    _cleanup_free_ char *url = relative ? xasprintf(CONTAINER_HOST "%s", relative) : xstrdup(full);
    return ask_container(lookup, url, relative ? relative_name : full_name, ret_credentials,
                         ret_error);
}

static char *metadata_base(void)
{
    const char *base = s3_env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = s3_env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    if (!base)
        base = mode && strcmp(mode, "IPv6") == 0 ? METADATA_URL_IPV6 : METADATA_URL;
    char *copy = xstrdup(base);
    for (size_t len = strlen(copy); len > 0 && copy[len - 1] == '/'; len--)
        copy[len - 1] = '\0';
    return copy;
}

/* Requests a session token of the metadata service; returns it as a header. */
static int metadata_token(const struct s3_lookup *lookup, const char *base, const char *what,
                          char **ret_header, char **ret_error)
{
    static const char *const headers[] = {"X-aws-ec2-metadata-token-ttl-seconds: 21600", NULL};
    _cleanup_free_ char *url = xasprintf("%s/latest/api/token", base);
    struct http_request request = {
        .method = "PUT", .url = url, .headers = headers, .timeout_ns = METADATA_TIMEOUT_NS};
    struct http_response response;
    TRY(s3_source_ask(lookup->http, &request, METADATA_TRIES, what, &response, ret_error));
    int r = 0;
    if (response.status != 200)
        r = s3_source_refused(&response, what, NULL, ret_error);
    else if (!s3_secret_is_plain(response.text.at))
        r = text_fail(ret_error, -EINVAL, "%s: the answer has no token", what);
    else
        *ret_header = s3_secret_join("X-aws-ec2-metadata-token: ", response.text.at);
    s3_response_wipe(&response);
    return r;
}

/* Gets a document of the metadata service, for s3_response_wipe(). -ENOKEY: it does not exist. */
static int metadata_get(const struct s3_lookup *lookup, const char *url, const char *token,
                        const char *what, struct http_response *ret_response, char **ret_error)
{
    const char *const headers[] = {token, NULL};
    struct http_request request = {
        .method = "GET", .url = url, .headers = headers, .timeout_ns = METADATA_TIMEOUT_NS};
    int r = s3_source_ask(lookup->http, &request, METADATA_TRIES, what, ret_response, ret_error);
    if (r < 0 || ret_response->status == 200)
        return r;
    if (ret_response->status == 404)
        r = text_fail(ret_error, -ENOKEY, "%s: this instance has no role", what);
    else
        r = s3_source_refused(ret_response, what, NULL, ret_error);
    s3_response_wipe(ret_response);
    return r;
}

/* The name of the instance's role; it becomes part of a URL. */
static int metadata_role(const struct s3_lookup *lookup, const char *base, const char *token,
                         const char *what, char **ret_role, char **ret_error)
{
    _cleanup_free_ char *url = xasprintf("%s" METADATA_ROLES, base);
    struct http_response response;
    int r = metadata_get(lookup, url, token, what, &response, ret_error);
    if (r < 0)
        return r;
    size_t len = response.text.at ? strcspn(response.text.at, "\r\n") : 0;
    _cleanup_free_ char *name = xasprintf("%.*s", (int)min_u64(len, ROLE_MAX + 1),
                                          response.text.at ? response.text.at : "");
    s3_response_wipe(&response);
    if (len > ROLE_MAX || !s3_secret_is_plain(name) || strpbrk(name, "/?#%"))
        return text_fail(ret_error, -EINVAL, "%s: the answer has no role name", what);
    *ret_role = xstrdup(name);
    return 0;
}

int s3_source_metadata(const struct s3_lookup *lookup, struct s3_credentials *ret_credentials,
                       char **ret_error)
{
    static const char what[] = "instance metadata";
    if (s3_env_is_true("AWS_EC2_METADATA_DISABLED"))
        return text_fail(ret_error, -ENOKEY, "%s: switched off (AWS_EC2_METADATA_DISABLED)", what);
    _cleanup_free_ char *base = metadata_base(), *role = NULL;
    _cleanup_secret_ char *token = NULL;
    int r = metadata_token(lookup, base, what, &token, ret_error);
    if (r == 0)
        r = metadata_role(lookup, base, token, what, &role, ret_error);
    if (r < 0)
        return r;
    _cleanup_free_ char *url = xasprintf("%s" METADATA_ROLES "%s", base, role);
    struct http_response response;
    TRY(metadata_get(lookup, url, token, what, &response, ret_error));
    r = s3_credentials_parse(response.text.at, response.text.count, "Token", what, ret_credentials,
                             ret_error);
    s3_response_wipe(&response);
    return r;
}
