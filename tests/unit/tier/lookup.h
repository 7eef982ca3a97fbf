// SPDX-License-Identifier: Apache-2.0
/* Lookups of credentials by a profile, in an environment as by aws_begin(). */
#pragma once

#include "tier/s3/credentials.h"

struct lookup {
    struct http *http;
    struct s3_credential_source *source; /* of the last lookup */
    struct s3_credentials found;         /* what it gave */
    char *error;                         /* or what it said */
};
extern struct lookup lookup;

/* lookup_end() ends the server of web_open(), too. */
void lookup_begin(void);
void lookup_end(void);

/* Asks a new source. 0: lookup.found. Else -errno: lookup.error. NULL: the profile of the
 * environment. */
int lookup_get(const char *profile);

/* It must fail, and the message say `words`. */
void lookup_expect_error(const char *profile, int expected, const char *words);
