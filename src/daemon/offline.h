// SPDX-License-Identifier: Apache-2.0
/* A store or a remote that is looked into without a mount and without a daemon. One thread opens
 * and closes. */
#pragma once

#include "daemon/options.h"
#include "store/past.h"
#include "store/reader.h"

struct offline;

/* Takes "SOURCE:PATH" apart at the first ':' after the prefix of SOURCE: "s3://", "dir:", or
 * nothing (the directory of a store). So a PATH may have colons, a SOURCE none but these. Without a
 * colon the PATH is "/". Caller frees both. */
void offline_split(const char *text, char **ret_source, char **ret_path);

/* Opens a source: "s3://BUCKET/PREFIX", "dir:/PATH", or a store's directory that no daemon serves.
 * Of a remote the newest head is shown, or the one that options->remote.at chooses (or, where that
 * has lost a run, the newest before it that is whole), by a private directory below $TMPDIR, which
 * goes with offline_close(). -EBUSY: *ret_holder has the store (0: not known). -EINVAL: wrong
 * usage. On failure *ret_text is one line (caller frees), NULL with -EBUSY. */
CAIRN_MUST_CHECK int offline_open(const char *source, const struct mount_options *options,
                                  struct offline **ret, pid_t *ret_holder, char **ret_text);
/* The same of a remote, to look at its earlier states. */
CAIRN_MUST_CHECK int offline_open_past(const char *source, const struct mount_options *options,
                                       struct offline **ret, char **ret_text);
/* NULL is fine. */
void offline_close(struct offline *offline);

struct store *offline_store(struct offline *offline);
struct past *offline_past(struct offline *offline);
/* A warning for the reader: newer data may be elsewhere. NULL: none. */
const char *offline_warning(const struct offline *offline);
