// SPDX-License-Identifier: Apache-2.0
/* The value of `remote=`, as text and parsed. Pure: opens nothing. */
#pragma once

#include "base/base.h"

struct remote_address {
    enum remote_kind { REMOTE_KIND_S3, REMOTE_KIND_DIR } kind;
    char *text;   /* "s3://BUCKET/PREFIX" or "dir:/PATH", for messages; no slash at the end */
    char *bucket; /* of S3 */
    char *prefix; /* of S3, without '/' at its ends; "": the whole bucket */
    char *path;   /* of a directory, absolute */
};

/* Returns true if the text begins like an address: "s3://", "dir:". */
bool remote_address_is(const char *text);

/* -EINVAL with *ret_error (one line, to be freed), which never repeats a possible secret. */
CAIRN_MUST_CHECK int remote_address_parse(const char *text, struct remote_address *ret,
                                          char **ret_error);
void remote_address_done(struct remote_address *address);
