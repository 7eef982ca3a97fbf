// SPDX-License-Identifier: Apache-2.0
#include "tier/s3/credentials_source.h"

#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "base/text.h"
#include "tier/s3/secret.h"

#define RETRY_PAUSE_NS (100 * 1000 * 1000l) /* before the second try; doubles */
#define EXCERPT_MAX 200

const char *s3_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool s3_env_is_true(const char *name)
{
    const char *value = s3_env(name);
    return value && strcasecmp(value, "true") == 0;
}

static char *url_part(CURLU *url, CURLUPart part, unsigned flags)
{
    char *text;
    if (curl_url_get(url, part, &text, flags) != CURLUE_OK)
        return NULL;
    char *copy = xstrdup(text);
    curl_free(text);
    return copy;
}

/* Uses libcurl's own parser: the check of a host must see the host that the request goes to. */
int s3_url_parse(const char *text, struct s3_url *ret_url)
{
    CURLU *url = curl_url();
    check(url);
    struct s3_url u = {0};
    int r = curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK ? 0 : -EINVAL;
    if (r == 0) {
        _cleanup_free_ char *port = url_part(url, CURLUPART_PORT, CURLU_NO_DEFAULT_PORT);
        u.scheme = url_part(url, CURLUPART_SCHEME, 0);
        u.host = url_part(url, CURLUPART_HOST, 0);
        u.path = url_part(url, CURLUPART_PATH, 0);
        if (u.scheme && u.host && u.path)
            u.host_header = port ? xasprintf("%s:%s", u.host, port) : xstrdup(u.host);
        else
            r = -EINVAL;
    }
    curl_url_cleanup(url);
    if (r < 0) {
        s3_url_done(&u);
        return r;
    }
    size_t len = strlen(u.host);
    if (*u.host == '[' && u.host[len - 1] == ']') {
        memmove(u.host, u.host + 1, len - 2);
        u.host[len - 2] = '\0';
    }
    *ret_url = u;
    return 0;
}

void s3_url_done(struct s3_url *url)
{
    free(url->scheme);
    free(url->host);
    free(url->host_header);
    free(url->path);
    *url = (struct s3_url){0};
}

void s3_response_wipe(struct http_response *response)
{
    if (response->text.at)
        OPENSSL_cleanse(response->text.at, response->text.count);
    http_response_done(response);
}

/* Sleeps; the pause doubles with each try. */
static void pause_before(unsigned try)
{
    struct timespec t = {.tv_nsec = RETRY_PAUSE_NS << (try > 3 ? 3 : try)};
    (void)nanosleep(&t, NULL);
}

int s3_source_ask(struct http *http, const struct http_request *request, unsigned tries,
                  const char *what, struct http_response *ret_response, char **ret_error)
{
    for (unsigned try = 0;; try++) {
        struct http_response response = {0};
        int r = http_perform(http, request, &response);
        bool may_help = r == 0 ? response.status == 429 || response.status >= 500
                               : r != -ECANCELED && r != -EKEYREJECTED;
        if (may_help && try + 1 < tries) {
            s3_response_wipe(&response);
            pause_before(try);
            continue;
        }
        if (r == 0) {
            *ret_response = response;
            return 0;
        }
        (void)text_fail(ret_error, r, "%s: no answer: %s", what,
                        *response.cause ? response.cause : strerror(-r));
        s3_response_wipe(&response);
        return r;
    }
}

/* Converts the beginning of a text to one line. */
static void excerpt_of(const char *text, char line[EXCERPT_MAX + 1])
{
    size_t len = 0;
    for (; text && *text && len < EXCERPT_MAX; text++)
        if (*text >= ' ' && *text <= '~')
            line[len++] = *text;
        else if (len > 0 && line[len - 1] != ' ')
            line[len++] = ' ';
    line[len] = '\0';
}

int s3_source_refused(const struct http_response *response, const char *what, const char *why,
                      char **ret_error)
{
    char line[EXCERPT_MAX + 1];
    excerpt_of(why ? why : response->text.at, line);
    int error = response->status == 429 || response->status >= 500 ? -EAGAIN : -EACCES;
    return text_fail(ret_error, error, "%s: answered %ld%s%s", what, response->status,
                     *line ? ": " : "", line);
}

/* Parses "Z", "+hh:mm" or "+hhmm" as seconds; false: another text. */
static bool parse_offset(const char *text, int64_t *ret_seconds)
{
    unsigned hours, minutes;
    int end = 0;
    *ret_seconds = 0;
    if (strcasecmp(text, "Z") == 0)
        return true;
    if ((*text != '+' && *text != '-') ||
        (sscanf(text + 1, "%2u:%2u%n", &hours, &minutes, &end) < 2 &&
         sscanf(text + 1, "%2u%2u%n", &hours, &minutes, &end) < 2))
        return false;
    if (text[1 + end] != '\0' || hours > 23 || minutes > 59)
        return false;
    *ret_seconds = (*text == '-' ? -60 : 60) * (int64_t)(60 * hours + minutes);
    return true;
}

int s3_time_parse(const char *text, int64_t *ret_ns)
{
    struct tm tm = {0};
    int64_t offset;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest)
        return -EINVAL;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (!parse_offset(rest, &offset))
        return -EINVAL;
    int64_t seconds = (int64_t)timegm(&tm) - offset;
    if (seconds <= 0)
        return -EINVAL;
    *ret_ns = seconds < INT64_MAX / 1000000000 ? seconds * 1000000000 : 0;
    return 0;
}

int s3_credentials_make(const struct s3_credential_texts *from, const char *what,
                        struct s3_credentials *ret_credentials, char **ret_error)
{
    int64_t expires_ns = 0;
    const char *token = from->token && *from->token ? from->token : NULL;
    if (!s3_secret_is_plain(from->key_id))
        return text_fail(ret_error, -EINVAL, "%s: the access key id is missing or not plain text",
                         what);
    if (!s3_secret_is_plain(from->secret))
        return text_fail(ret_error, -EINVAL,
                         "%s: the secret access key is missing or not plain text", what);
    if (token && !s3_secret_is_plain(token))
        return text_fail(ret_error, -EINVAL, "%s: the session token is not plain text", what);
    if (from->expires && s3_time_parse(from->expires, &expires_ns) < 0)
        return text_fail(ret_error, -EINVAL, "%s: invalid expiry time", what);
    *ret_credentials = (struct s3_credentials){.key_id = xstrdup(from->key_id),
                                               .secret = xstrdup(from->secret),
                                               .token = token ? xstrdup(token) : NULL,
                                               .expires_ns = expires_ns};
    return 0;
}

void s3_credentials_copy(const struct s3_credentials *from, struct s3_credentials *ret_credentials)
{
    *ret_credentials = (struct s3_credentials){.key_id = xstrdup(from->key_id),
                                               .secret = xstrdup(from->secret),
                                               .token = from->token ? xstrdup(from->token) : NULL,
                                               .expires_ns = from->expires_ns};
}

void s3_credentials_done(struct s3_credentials *credentials)
{
    s3_secret_free(&credentials->key_id);
    s3_secret_free(&credentials->secret);
    s3_secret_free(&credentials->token);
    credentials->expires_ns = 0;
}

/* The text of a member; NULL if it is missing or not text. Borrowed. */
static const char *json_member(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static int from_json(const cJSON *object, const char *token_name, const char *what,
                     struct s3_credentials *ret_credentials, char **ret_error)
{
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(object, "Version");
    const char *code = json_member(object, "Code"), *message = json_member(object, "Message");
    if (version && !(cJSON_IsNumber(version) && version->valueint == 1))
        return text_fail(ret_error, -EINVAL, "%s: the answer has a Version other than 1", what);
    if (code && strcmp(code, "Success") != 0) {
        char line[EXCERPT_MAX + 1];
        excerpt_of(message ? message : code, line);
        return text_fail(ret_error, -EACCES, "%s: refused: %s", what, line);
    }
    const struct s3_credential_texts texts = {.key_id = json_member(object, "AccessKeyId"),
                                              .secret = json_member(object, "SecretAccessKey"),
                                              .token = json_member(object, token_name),
                                              .expires = json_member(object, "Expiration")};
    return s3_credentials_make(&texts, what, ret_credentials, ret_error);
}

int s3_credentials_parse(const char *text, size_t len, const char *token_name, const char *what,
                         struct s3_credentials *ret_credentials, char **ret_error)
{
    cJSON *object = text ? cJSON_ParseWithLength(text, len) : NULL;
    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        return text_fail(ret_error, -EINVAL, "%s: the answer is not a JSON object", what);
    }
    int r = from_json(object, token_name, what, ret_credentials, ret_error);
    cJSON *item;
    cJSON_ArrayForEach(item, object) if (cJSON_IsString(item))
        OPENSSL_cleanse(item->valuestring, strlen(item->valuestring));
    cJSON_Delete(object);
    return r;
}
