// SPDX-License-Identifier: Apache-2.0
/* Finds S3 credentials, region and endpoint: in environment, web identity, profiles, container,
 * instance metadata, in the order of the AWS command line. Any thread. Secrets are wiped when
 * dropped and never logged. */
#pragma once

#include "tier/http.h"

struct s3_credentials {
    char *key_id, *secret, *token; /* token may be NULL */
    int64_t expires_ns;            /* wall clock; 0: never */
};

/* Settings from the environment and the profile files. Strings may be NULL. */
struct s3_settings {
    char *region, *endpoint_url, *ca_bundle;
};

struct s3_credential_source;

/* `profile` NULL: AWS_PROFILE or "default"; otherwise keys and web identity of the environment are
 * ignored, as with --profile of the AWS command line. Does not read files yet. `http` (borrowed) is
 * used for roles, container and metadata. */
struct s3_credential_source *s3_credentials_open(const char *profile, struct http *http);

/* No call may be in progress. NULL is fine. */
void s3_credentials_close(struct s3_credential_source *source);

/* -EINVAL with *ret_error (one line with file and line number, to be freed): a file cannot be
 * parsed, or the profile does not exist. Reads the files each time. */
CAIRN_MUST_CHECK int s3_settings_read(const char *profile, struct s3_settings *ret_settings,
                                      char **ret_error);
void s3_settings_done(struct s3_settings *settings);

/* Returns a copy of the current credentials. Renews them 5 minutes before they expire: one caller
 * asks the sources, others use the old ones while they are valid; a failure is logged and the old
 * ones stay. `refused`: these credentials were just answered with ExpiredToken or
 * InvalidAccessKeyId, so renew them unless another caller has; the result may be the same ones. May
 * block on the network, or on a credential_process (60 s at most).
 *
 * Errors, with *ret_error (one line, to be freed): -ENOKEY no credentials found so far (the text
 * lists the places searched; instance metadata without an answer counts as none); -EINVAL wrong
 * settings; -EACCES refused by their source; -EAGAIN overload or fault of the source, or none found
 * although there were some before; -ETIMEDOUT and others of http_perform(). */
CAIRN_MUST_CHECK int s3_credentials_get(struct s3_credential_source *source,
                                        const struct s3_credentials *refused,
                                        struct s3_credentials *ret_credentials, char **ret_error);
void s3_credentials_done(struct s3_credentials *credentials);
