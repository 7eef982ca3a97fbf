// SPDX-License-Identifier: Apache-2.0
/* Writes a .tar.gz of regular files whose content is in memory. One thread. After an error all
 * later calls return it. */
#pragma once

#include "base/base.h"

struct archive;

/* Takes the descriptor over. */
struct archive *archive_begin(int fd);

/* `name`: at most 99 bytes. */
void archive_add(struct archive *archive, const char *name, const void *data, size_t len);

/* Frees it. 0, or the first -errno: then what was written is no archive. */
CAIRN_MUST_CHECK int archive_end(struct archive *archive);
