// SPDX-License-Identifier: Apache-2.0
/* The stage's log: records of everything but writes, and its compaction. Threads and blocking as in
 * stage.h. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/record.h"

struct stage;

/* Appends a record. -EAGAIN: the log is full, compact it. Records of the stage itself (ERASE,
 * PIECE) leave STAGE_LOG_MARGIN free, so that records of the history still fit. */
#define STAGE_LOG_MARGIN (512u * 1024)
CAIRN_MUST_CHECK int stage_log_append(struct stage *stage, const struct record *rec);
/* Appends encoded records atomically: a recovery finds all or none. `first` is the first of them.
 * -EAGAIN as stage_log_append(). */
CAIRN_MUST_CHECK int stage_log_append_group(struct stage *stage, const struct record *first,
                                            const struct iovec *encoded, size_t count);
/* Bytes still free. */
uint64_t stage_log_room(struct stage *stage);
/* Should the log be compacted soon? */
bool stage_log_wants_compaction(struct stage *stage);
/* True if live records take more than half of the log, or compaction is late, or there will soon be
 * no room for another draft. */
bool stage_log_is_crowded(struct stage *stage);
/* Is there room for one more draft, and then for a SEAL of each? A draft leaves the log only by its
 * seal: if seals had no room, the log could never shrink. */
bool stage_log_takes_draft(struct stage *stage);

/* Rewrites the log from live state: `records` (encoded: the operations that are not durable, and
 * the files without a version), then the stage's own layers; the new log takes effect atomically.
 * The caller prevents appends of operations meanwhile. `with_orphans`: includes the layers of files
 * without a name, which only a successor that adopts the mount needs. -EAGAIN: it does not fit; the
 * old log stays. */
CAIRN_MUST_CHECK int stage_log_compact(struct stage *stage, const void *records, size_t len,
                                       bool with_orphans);
