// SPDX-License-Identifier: Apache-2.0
/* The places where credentials may come from, one function each, for credentials.c. Any thread; no
 * state, every call asks anew.
 *
 * All return 0 with *ret_credentials (for s3_credentials_done()); -ENOKEY: nothing is there, ask
 * the next; or another -errno: something is there and does not work, which must not be passed over:
 * -EINVAL not understood, -EACCES refused, -EAGAIN the other side's fault, and what http_perform()
 * says. With every error *ret_error is one line, to be freed, without a secret in it. */
#pragma once

#include "tier/s3/credentials.h"
#include "tier/s3/profiles.h"

/* The means of a lookup; all borrowed. */
struct s3_lookup {
    struct http *http;
    const struct s3_profiles *profiles;
    const char *profile;
    bool profile_chosen; /* by an option: then what the environment says of keys does not count */
};

typedef int s3_source_fn(const struct s3_lookup *lookup, struct s3_credentials *ret_credentials,
                         char **ret_error);

s3_source_fn s3_source_environment;          /* AWS_ACCESS_KEY_ID ... */
s3_source_fn s3_source_environment_identity; /* AWS_WEB_IDENTITY_TOKEN_FILE */
s3_source_fn s3_source_profile;              /* files, with roles and commands */
s3_source_fn s3_source_container;            /* AWS_CONTAINER_CREDENTIALS_... */
s3_source_fn s3_source_metadata;             /* IMDSv2 */

/* Output of `command`, run by the shell: credential_process. */
CAIRN_MUST_CHECK int s3_source_process(const char *profile, const char *command,
                                       struct s3_credentials *ret_credentials, char **ret_error);

/* A role to take on. Strings may be NULL where it says so. */
struct s3_role {
    const char *arn;
    const char *session_name; /* NULL: one is made */
    const char *external_id;  /* may be NULL */
    const char *duration;     /* seconds, as text; may be NULL */
    const char *token_file;   /* web identity; NULL: signed with `by` */
    const struct s3_credentials *by;
};
CAIRN_MUST_CHECK int s3_source_role(const struct s3_lookup *lookup, const struct s3_role *role,
                                    struct s3_credentials *ret_credentials, char **ret_error);

/* --- Helpers. --------------------------------------------------------------------------------- */

/* A variable, NULL where it is not set or empty. Borrowed. */
const char *s3_env(const char *name);
bool s3_env_is_true(const char *name);

/* Region, and endpoint of `service` ("s3", "sts"), from environment and profile, to be freed; NULL
 * where these say nothing. */
char *s3_setting_region(const struct s3_profiles *profiles, const char *profile);
char *s3_setting_endpoint(const struct s3_profiles *profiles, const char *profile,
                          const char *service);

/* Parts of a URL, to be freed by s3_url_done(). -EINVAL: none that libcurl would take. */
struct s3_url {
    char *scheme, *host; /* an IPv6 address without brackets */
    char *host_header;   /* with a port that is not the scheme's own */
    char *path;
};
CAIRN_MUST_CHECK int s3_url_parse(const char *text, struct s3_url *ret_url);
void s3_url_done(struct s3_url *url);

/* One exchange, repeated where that may help, `tries` in all. 0: there is an answer of any status,
 * for s3_response_wipe(). `what` begins the message. */
CAIRN_MUST_CHECK int s3_source_ask(struct http *http, const struct http_request *request,
                                   unsigned tries, const char *what,
                                   struct http_response *ret_response, char **ret_error);
void s3_response_wipe(struct http_response *response);

/* The error of an answer that is not 200; `why` NULL: the beginning of its body says it. */
int s3_source_refused(const struct http_response *response, const char *what, const char *why,
                      char **ret_error);

/* Credentials as a source has them, borrowed. */
struct s3_credential_texts {
    const char *key_id, *secret;
    const char *token, *expires; /* NULL: none; ISO 8601 */
};
/* Copies them; -EINVAL where a part lacks or is no plain text. `what` begins the message. */
CAIRN_MUST_CHECK int s3_credentials_make(const struct s3_credential_texts *from, const char *what,
                                         struct s3_credentials *ret_credentials, char **ret_error);
void s3_credentials_copy(const struct s3_credentials *from, struct s3_credentials *ret_credentials);

/* From the JSON that containers, instance metadata and commands answer; its name for the token
 * differs. A Version or a Code that says no is an error. */
CAIRN_MUST_CHECK int s3_credentials_parse(const char *text, size_t len, const char *token_name,
                                          const char *what, struct s3_credentials *ret_credentials,
                                          char **ret_error);

/* "2019-05-29T00:21:43Z", with a fraction or an offset. 0: later than can be counted. -EINVAL: no
 * such time. */
CAIRN_MUST_CHECK int s3_time_parse(const char *text, int64_t *ret_ns);
