// SPDX-License-Identifier: Apache-2.0
/* The files ~/.aws/config and ~/.aws/credentials, read once, then read-only (any thread). Values of
 * both form one profile; the credentials file takes precedence. A section may occur more than once;
 * the later value of a key takes precedence. */
#pragma once

#include "base/base.h"

struct s3_profiles;

/* Reads AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE, or those in the home directory; a missing
 * file counts as empty. -EINVAL with *ret_error (one line with file and line number, to be freed):
 * a file cannot be read or parsed. */
CAIRN_MUST_CHECK int s3_profiles_read(struct s3_profiles **ret_profiles, char **ret_error);

/* Wipes and frees everything. NULL is fine. */
void s3_profiles_free(struct s3_profiles *profiles);

/* AWS_PROFILE or "default"; borrowed from the environment. */
const char *s3_profiles_default_name(void);

bool s3_profiles_has(const struct s3_profiles *profiles, const char *profile);

/* Returns the value of a key ("region"; nested: "s3.addressing_style"), or NULL if it is missing or
 * empty. Borrowed. Secret key and session token come from the file that has aws_access_key_id,
 * never from the other one. */
const char *s3_profiles_get(const struct s3_profiles *profiles, const char *profile,
                            const char *key);

/* As s3_profiles_get(), from a section [services NAME]: "s3.endpoint_url". */
const char *s3_profiles_get_service(const struct s3_profiles *profiles, const char *services,
                                    const char *key);

/* Both file names, for messages: "/root/.aws/config or /root/.aws/credentials". Borrowed. */
const char *s3_profiles_where(const struct s3_profiles *profiles);
