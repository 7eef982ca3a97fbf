// SPDX-License-Identifier: Apache-2.0
/* Writes a .tar.gz of regular files whose content is in memory. Used by one thread. archive_end()
 * reports an error of any call. */
#pragma once

#include "base/base.h"

struct archive;

/* Takes ownership of the descriptor. */
struct archive *archive_begin(int fd);

/* `name`: at most 99 bytes. */
void archive_add(struct archive *archive, const char *name, const void *data, size_t len);

/* Frees the archive. Returns 0, or the first -errno of any call: then the bytes written so far are
 * not a valid archive. */
CAIRN_MUST_CHECK int archive_end(struct archive *archive);
