// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "base/text.h"
#include "tier/s3/credentials_source.h"
#include "tier/s3/secret.h"
#include "tier/s3/sign.h"
#include "tier/xml.h"

#define STS_VERSION "2011-06-15"
#define STS_TIMEOUT_NS (15ll * 1000000000)
#define STS_TRIES 3
#define ANSWER_MAX (256 * KIB)
#define TOKEN_FILE_MAX (64 * KIB)
#define FORM_TYPE "Content-Type: application/x-www-form-urlencoded; charset=utf-8"

/* Parts of an answer, in the order of the names below. */
enum part {
    PART_KEY_ID,
    PART_SECRET,
    PART_TOKEN,
    PART_EXPIRES,
    PART_CODE,
    PART_MESSAGE,
    PART_COUNT
};
static const char *const part_names[PART_COUNT] = {"/Credentials/AccessKeyId",
                                                   "/Credentials/SecretAccessKey",
                                                   "/Credentials/SessionToken",
                                                   "/Credentials/Expiration",
                                                   "/Error/Code",
                                                   "/Error/Message"};

struct answer {
    char *parts[PART_COUNT];
};

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static int on_element(const char *path, const char *value, void *arg)
{
    struct answer *a = arg;
    for (size_t i = 0; i < PART_COUNT; i++)
        if (!a->parts[i] && ends_with(path, part_names[i]))
            a->parts[i] = xstrdup(value);
    return 0;
}

static void sts_answer_done(struct answer *a)
{
    for (size_t i = 0; i < PART_COUNT; i++)
        s3_secret_free(&a->parts[i]);
}

/* Parses all parts or none; for sts_answer_done(). */
static void sts_answer_parse(const struct http_response *response, struct answer *a)
{
    *a = (struct answer){0};
    if (response->text.at && response->text.count <= ANSWER_MAX &&
        xml_read(response->text.at, response->text.count, on_element, a) < 0)
        sts_answer_done(a);
}

/* Refusals that STS documents as transient, although their status is 400. */
static bool is_passing(const char *code)
{
    static const char *const codes[] = {"Throttling", "ThrottlingException", "RequestLimitExceeded",
                                        "IDPCommunicationError"};
    for (size_t i = 0; code && i < ARRAY_LEN(codes); i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return false;
}

static int read_sts_answer(const struct http_response *response, const char *what,
                           struct s3_credentials *ret_credentials, char **ret_error)
{
    struct answer a;
    sts_answer_parse(response, &a);
    char *const *parts = a.parts;
    int r;
    if (response->status == 200) {
        const struct s3_credential_texts texts = {parts[PART_KEY_ID], parts[PART_SECRET],
                                                  parts[PART_TOKEN], parts[PART_EXPIRES]};
        r = s3_credentials_make(&texts, what, ret_credentials, ret_error);
    } else {
        _cleanup_free_ char *why = parts[PART_CODE]
                                       ? xasprintf("%s: %s", parts[PART_CODE],
                                                   parts[PART_MESSAGE] ? parts[PART_MESSAGE] : "")
                                       : NULL;
        r = s3_source_refused(response, what, why, ret_error);
        r = is_passing(parts[PART_CODE]) ? -EAGAIN : r;
    }
    sts_answer_done(&a);
    return r;
}

/* --- The request ------------------------------------------------------------------------------ */

struct form_field {
    const char *name, *value; /* value NULL: omitted */
};

/* Returns "a=b&c=d", in memory that was never reallocated, for s3_secret_free(). */
static char *form_make(const struct form_field *fields, size_t count)
{
    size_t capacity = 1;
    for (size_t i = 0; i < count; i++)
        capacity += fields[i].value ? strlen(fields[i].name) + 3 * strlen(fields[i].value) + 2 : 0;
    char *form = xmalloc(capacity), *end = form;
    *form = '\0';
    for (size_t i = 0; i < count; i++) {
        if (!fields[i].value)
            continue;
        _cleanup_secret_ char *value = s3_uri_encode(fields[i].value, false);
        end = stpcpy(end, end == form ? "" : "&");
        end = stpcpy(stpcpy(end, fields[i].name), "=");
        end = stpcpy(end, value);
    }
    return form;
}

/* Reads the token, every time, as it is rotated. */
static int read_identity(const char *path, char **ret_token, char **ret_error)
{
    char *token;
    int r = s3_secret_read(path, TOKEN_FILE_MAX, &token, NULL);
    if (r < 0)
        return text_fail(ret_error, -EINVAL, "web identity token file %s: %s", path, strerror(-r));
    token[strcspn(token, " \t\r\n")] = '\0';
    if (!s3_secret_is_plain(token)) {
        s3_secret_free(&token);
        return text_fail(ret_error, -EINVAL, "web identity token file %s: holds no token", path);
    }
    *ret_token = token;
    return 0;
}

static int role_form(const struct s3_role *role, char **ret_form, char **ret_error)
{
    _cleanup_secret_ char *token = NULL;
    TRY(role->token_file ? read_identity(role->token_file, &token, ret_error) : 0);
    _cleanup_free_ char *made =
        xasprintf("cairn-%lld", (long long)(clock_realtime_ns() / 1000000000));
    const struct form_field fields[] = {
        {"Action", token ? "AssumeRoleWithWebIdentity" : "AssumeRole"},
        {"Version", STS_VERSION},
        {"RoleArn", role->arn},
        {"RoleSessionName", role->session_name ? role->session_name : made},
        {"ExternalId", role->external_id},
        {"DurationSeconds", role->duration},
        {"WebIdentityToken", token},
    };
    *ret_form = form_make(fields, ARRAY_LEN(fields));
    return 0;
}

/* The AWS domain of the region's partition. */
static const char *region_domain(const char *region)
{
    static const struct {
        const char *prefix, *domain;
    } others[] = {{"cn-", "amazonaws.com.cn"},
                  {"us-iso-", "c2s.ic.gov"},
                  {"us-isob-", "sc2s.sgov.gov"},
                  {"eusc-", "amazonaws.eu"}};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strncmp(region, others[i].prefix, strlen(others[i].prefix)) == 0)
            return others[i].domain;
    return "amazonaws.com";
}

static int sts_place(const struct s3_lookup *lookup, char **ret_url, char **ret_region,
                     char **ret_error)
{
    _cleanup_free_ char *region = s3_setting_region(lookup->profiles, lookup->profile);
    char *url = s3_setting_endpoint(lookup->profiles, lookup->profile, "sts");
    if (region && region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0') {
        free(url);
        return text_fail(ret_error, -EINVAL, "STS: \"%s\" is not a region name", region);
    }
    if (!url)
        url = region ? xasprintf("https://sts.%s.%s", region, region_domain(region))
                     : xstrdup("https://sts.amazonaws.com");
    *ret_url = url;
    *ret_region = xstrdup(region ? region : "us-east-1");
    return 0;
}

/* Makes the headers of a request to STS, signed if the role is assumed with keys. */
static int sign_form(const struct s3_role *role, const struct s3_url *url, const char *region,
                     const char *form, struct s3_signed *ret_signed)
{
    static const char *const headers[] = {FORM_TYPE, NULL};
    struct s3_sign_request request = {
        .method = "POST",
        .host = url->host_header,
        .path = url->path,
        .headers = headers,
        .body = form,
        .body_len = strlen(form),
        .normalize_path = true,
        .region = region,
        .service = "sts",
        .time_ns = clock_realtime_ns(),
    };
    return s3_sign(&request, role->by, ret_signed);
}

static int ask_sts(const struct s3_lookup *lookup, const struct s3_role *role, const char *where,
                   const char *region, struct s3_credentials *ret_credentials, char **ret_error)
{
    _cleanup_free_ char *what = xasprintf("STS at %s, role %s", where, role->arn);
    _cleanup_secret_ char *form = NULL;
    struct s3_url url;
    if (s3_url_parse(where, &url) < 0)
        return text_fail(ret_error, -EINVAL, "%s: not a URL", what);
    struct s3_signed s = {0};
    int r = role_form(role, &form, ret_error);
    if (r == 0 && role->by && (r = sign_form(role, &url, region, form, &s)) < 0)
        (void)text_fail(ret_error, r, "%s: cannot sign the request: %s", what, strerror(-r));
    s3_url_done(&url);
    if (r == 0) {
        const char *headers[S3_SIGNED_HEADERS_MAX + 2] = {FORM_TYPE};
        for (size_t i = 0; s.headers[i]; i++)
            headers[i + 1] = s.headers[i];
        struct http_request request = {.method = "POST",
                                       .url = where,
                                       .headers = headers,
                                       .body = form,
                                       .body_len = strlen(form),
                                       .timeout_ns = STS_TIMEOUT_NS};
        struct http_response response;
        r = s3_source_ask(lookup->http, &request, STS_TRIES, what, &response, ret_error);
        if (r == 0) {
            r = read_sts_answer(&response, what, ret_credentials, ret_error);
            s3_response_wipe(&response);
        }
    }
    s3_signed_done(&s);
    return r;
}

int s3_source_role(const struct s3_lookup *lookup, const struct s3_role *role,
                   struct s3_credentials *ret_credentials, char **ret_error)
{
    check(!role->token_file == !!role->by);
    _cleanup_free_ char *where = NULL, *region = NULL;
    TRY(sts_place(lookup, &where, &region, ret_error));
    return ask_sts(lookup, role, where, region, ret_credentials, ret_error);
}

int s3_source_environment_identity(const struct s3_lookup *lookup,
                                   struct s3_credentials *ret_credentials, char **ret_error)
{
    struct s3_role role = {
        .arn = s3_env("AWS_ROLE_ARN"),
        .session_name = s3_env("AWS_ROLE_SESSION_NAME"),
        .token_file = s3_env("AWS_WEB_IDENTITY_TOKEN_FILE"),
    };
    if (lookup->profile_chosen || !role.token_file)
        return text_fail(ret_error, -ENOKEY, "no web identity (AWS_WEB_IDENTITY_TOKEN_FILE is %s)",
                         lookup->profile_chosen ? "ignored because a profile is chosen"
                                                : "not set");
    if (!role.arn)
        return text_fail(ret_error, -EINVAL,
                         "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not");
    return s3_source_role(lookup, &role, ret_credentials, ret_error);
}
