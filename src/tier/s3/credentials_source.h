// SPDX-License-Identifier: Apache-2.0
/* The sources of credentials, one function each, for credentials.c. Any thread; no state, every
 * call asks the source again.
 *
 * All return 0 with *ret_credentials (for s3_credentials_done()); -ENOKEY: this source has none,
 * try the next; or another -errno: the source is configured and does not work, so no other may
 * replace it: -EINVAL cannot be parsed, -EACCES refused, -EAGAIN the server's fault, and errors of
 * http_perform(). With every error *ret_error is one line, to be freed, without a secret in it. */
#pragma once

#include "tier/s3/credentials.h"
#include "tier/s3/profiles.h"

/* The inputs of a lookup; all borrowed. */
struct s3_lookup {
    struct http *http;
    const struct s3_profiles *profiles;
    const char *profile;
    bool profile_chosen; /* by an option: then keys in the environment are ignored */
};

typedef int s3_source_fn(const struct s3_lookup *lookup, struct s3_credentials *ret_credentials,
                         char **ret_error);

s3_source_fn s3_source_environment;          /* AWS_ACCESS_KEY_ID ... */
s3_source_fn s3_source_environment_identity; /* AWS_WEB_IDENTITY_TOKEN_FILE */
s3_source_fn s3_source_profile;              /* files, with roles and commands */
s3_source_fn s3_source_container;            /* AWS_CONTAINER_CREDENTIALS_... */
s3_source_fn s3_source_metadata;             /* IMDSv2 */

/* Runs `command` by the shell and reads credentials from its output: credential_process. */
CAIRN_MUST_CHECK int s3_source_process(const char *profile, const char *command,
                                       struct s3_credentials *ret_credentials, char **ret_error);

/* A role to assume. */
struct s3_role {
    const char *arn;
    const char *session_name; /* NULL: a generated one */
    const char *external_id;  /* may be NULL */
    const char *duration;     /* seconds, as text; may be NULL */
    const char *token_file;   /* web identity; NULL: signed with `by` */
    const struct s3_credentials *by;
};
CAIRN_MUST_CHECK int s3_source_role(const struct s3_lookup *lookup, const struct s3_role *role,
                                    struct s3_credentials *ret_credentials, char **ret_error);

/* --- Helpers. --------------------------------------------------------------------------------- */

/* Returns an environment variable, or NULL if it is unset or empty. Borrowed. */
const char *s3_env(const char *name);
bool s3_env_is_true(const char *name);

/* Returns the region, and the endpoint of `service` ("s3", "sts"), from environment and profile, to
 * be freed; NULL if neither sets it. */
char *s3_setting_region(const struct s3_profiles *profiles, const char *profile);
char *s3_setting_endpoint(const struct s3_profiles *profiles, const char *profile,
                          const char *service);

/* Parts of a URL, to be freed by s3_url_done(). -EINVAL: libcurl does not accept the URL. */
struct s3_url {
    char *scheme, *host; /* an IPv6 address without brackets */
    char *host_header;   /* includes the port if it is not the scheme's default */
    char *path;
};
CAIRN_MUST_CHECK int s3_url_parse(const char *text, struct s3_url *ret_url);
void s3_url_done(struct s3_url *url);

/* Makes one exchange, with up to `tries` attempts if retries may help. 0: an answer arrived, of any
 * status, for s3_response_wipe(). `what` begins the message. */
CAIRN_MUST_CHECK int s3_source_ask(struct http *http, const struct http_request *request,
                                   unsigned tries, const char *what,
                                   struct http_response *ret_response, char **ret_error);
void s3_response_wipe(struct http_response *response);

/* Sets the error of an answer that is not 200. `why` NULL: uses the beginning of its body. */
int s3_source_refused(const struct http_response *response, const char *what, const char *why,
                      char **ret_error);

/* Credentials as received from a source, borrowed. */
struct s3_credential_texts {
    const char *key_id, *secret;
    const char *token, *expires; /* NULL: none; ISO 8601 */
};
/* Copies them; -EINVAL if a part is missing or not plain text. `what` begins the message. */
CAIRN_MUST_CHECK int s3_credentials_make(const struct s3_credential_texts *from, const char *what,
                                         struct s3_credentials *ret_credentials, char **ret_error);
void s3_credentials_copy(const struct s3_credentials *from, struct s3_credentials *ret_credentials);

/* Parses the JSON answered by containers, instance metadata and commands; the name of the token
 * differs between them. A Version or a Code that means failure is an error. */
CAIRN_MUST_CHECK int s3_credentials_parse(const char *text, size_t len, const char *token_name,
                                          const char *what, struct s3_credentials *ret_credentials,
                                          char **ret_error);

/* Parses "2019-05-29T00:21:43Z", optionally with a fraction or an offset. *ret_ns is 0 if the time
 * exceeds the range. -EINVAL: not such a time. */
CAIRN_MUST_CHECK int s3_time_parse(const char *text, int64_t *ret_ns);
