// SPDX-License-Identifier: Apache-2.0
/* The stage's log: records of everything that is no write, and how it is compacted. Threads and
 * blocking as in stage.h. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/record.h"

struct stage;

/* Appends a record. -EAGAIN: the log is full, compact it. What the stage appends itself (ERASE,
 * pieces) leaves STAGE_LOG_MARGIN free, so that records of the history still fit. */
#define STAGE_LOG_MARGIN (512u * 1024)
CAIRN_MUST_CHECK int stage_log_append(struct stage *stage, const struct record *rec);
/* Encoded records, of which a recovery finds all or none; `first` is the first of them. -EAGAIN as
 * above. */
CAIRN_MUST_CHECK int stage_log_append_group(struct stage *stage, const struct record *first,
                                            const struct iovec *encoded, size_t count);
/* Bytes that still fit. */
uint64_t stage_log_room(struct stage *stage);
/* True when the log should be compacted soon. */
bool stage_log_wants_compaction(struct stage *stage);
/* True when what is alive in it takes more than half of it, or compaction is late, or it soon takes
 * no draft more. */
bool stage_log_is_crowded(struct stage *stage);
/* Does it take one draft more, and then the SEAL of each that there is? A draft leaves the log only
 * by its seal: if seals found no room, nothing would ever make any. */
bool stage_log_takes_draft(struct stage *stage);

/* Rewrites the log from what is alive: `records` (encoded: the operations that are not durable, and
 * the files without a version), then the stage's own layers; the new log takes effect at once. The
 * caller keeps operations from being appended meanwhile. `with_orphans`: also the layers of files
 * without a name, which only a successor that adopts the mount needs. -EAGAIN: it does not fit; the
 * old log stays. */
CAIRN_MUST_CHECK int stage_log_compact(struct stage *stage, const void *records, size_t len,
                                       bool with_orphans);
