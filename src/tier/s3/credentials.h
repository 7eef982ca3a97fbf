// SPDX-License-Identifier: Apache-2.0
/* Where S3 credentials, region and endpoint come from: environment, web identity, profiles,
 * container, instance metadata, in the order of the AWS command line. Any thread. Secrets are wiped
 * when dropped and never logged. */
#pragma once

#include "tier/http.h"

struct s3_credentials {
    char *key_id, *secret, *token; /* token may be NULL */
    int64_t expires_ns;            /* wall clock; 0: never */
};

/* Settings that the environment and the profile files know. Strings may be NULL. */
struct s3_settings {
    char *region, *endpoint_url, *ca_bundle;
};

struct s3_credential_source;

/* `profile` NULL: AWS_PROFILE or "default"; otherwise keys and web identity of the environment do
 * not count, as with
 * --profile of the AWS command line. Reads no file yet. `http` (borrowed) is used for roles,
 * container and metadata. */
struct s3_credential_source *s3_credentials_open(const char *profile, struct http *http);

/* No call may be under way. NULL is fine. */
void s3_credentials_close(struct s3_credential_source *source);

/* -EINVAL with *ret_error (one line with file and line number, to be freed): a file that cannot be
 * understood, or a profile that is not there. Files are read each time. */
CAIRN_MUST_CHECK int s3_settings_read(const char *profile, struct s3_settings *ret_settings,
                                      char **ret_error);
void s3_settings_done(struct s3_settings *settings);

/* The current credentials, copied; asks anew 5 minutes before they end: one caller asks, others use
 * the old ones for as long as they hold; a failure is logged and the old ones are kept. `refused`:
 * these were just answered with ExpiredToken or InvalidAccessKeyId: ask anew unless a caller did
 * since; the same ones may come back. May block on the network, or on a credential_process (60 s at
 * most).
 *
 * Errors, with *ret_error (one line, to be freed): -ENOKEY none found so far (it says where was
 * looked; instance metadata without an answer count as none); -EINVAL settings that are wrong;
 * -EACCES refused by where they come from; -EAGAIN overload or fault there, or none found any more;
 * -ETIMEDOUT and others of http_perform(). */
CAIRN_MUST_CHECK int s3_credentials_get(struct s3_credential_source *source,
                                        const struct s3_credentials *refused,
                                        struct s3_credentials *ret_credentials, char **ret_error);
void s3_credentials_done(struct s3_credentials *credentials);
