// SPDX-License-Identifier: Apache-2.0
/* Reads a store or a remote without a mount and without a daemon. One thread opens and closes. */
#pragma once

#include "daemon/options.h"
#include "store/past.h"
#include "store/reader.h"

struct offline;

/* Splits "SOURCE:PATH" at the first ':' after the prefix of SOURCE: "s3://", "dir:", or nothing
 * (the directory of a store). So a PATH may contain colons, a SOURCE only those of its prefix.
 * Without a colon the PATH is "/". Caller frees both. */
void offline_split(const char *text, char **ret_source, char **ret_path);

/* Opens a source: "s3://BUCKET/PREFIX", "dir:/PATH", or the directory of a store that no daemon
 * serves. For a remote the newest head is shown, or the one that options->remote.at chooses (or, if
 * that has lost a run, the newest whole one before it), through a private directory below $TMPDIR,
 * which offline_close() removes. -EBUSY: *ret_holder has the store (0: not known). -EINVAL: wrong
 * usage. On failure *ret_text is one line (caller frees), NULL with -EBUSY. */
CAIRN_MUST_CHECK int offline_open(const char *source, const struct mount_options *options,
                                  struct offline **ret, pid_t *ret_holder, char **ret_text);
/* As offline_open(), for a remote whose earlier states are read. */
CAIRN_MUST_CHECK int offline_open_past(const char *source, const struct mount_options *options,
                                       struct offline **ret, char **ret_text);
/* NULL: no effect. */
void offline_close(struct offline *offline);

struct store *offline_store(struct offline *offline);
struct past *offline_past(struct offline *offline);
/* A warning for the reader: newer data may be elsewhere. NULL: none. */
const char *offline_warning(const struct offline *offline);
