// SPDX-License-Identifier: Apache-2.0
/* Strings that must not stay in memory after use. Any thread. */
#pragma once

#include "base/base.h"

/* Wipes and frees the string, and sets it to NULL; NULL is fine. */
void s3_secret_free(char **secret);

/* Returns the concatenation, in memory that was never reallocated; for s3_secret_free(). */
char *s3_secret_join(const char *a, const char *b);

/* Is it visible ASCII and not empty, as a key, a token or a region must be? NULL is not. Text from
 * outside must pass this check before it goes into a header, where a line break would begin another
 * header. */
bool s3_secret_is_plain(const char *text);

/* Reads a small file (at most `max` bytes, else -EFBIG) of any type, following links, as mounted
 * secrets are links. NUL-terminated, for s3_secret_free(). `ret_len` may be NULL. */
CAIRN_MUST_CHECK int s3_secret_read(const char *path, size_t max, char **ret_text, size_t *ret_len);

static inline void s3_secret_cleanup(char **secret)
{
    s3_secret_free(secret);
}

#define _cleanup_secret_ __attribute__((cleanup(s3_secret_cleanup)))
