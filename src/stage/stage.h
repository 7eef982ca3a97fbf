// SPDX-License-Identifier: Apache-2.0
/* The stage: host DRAM that holds written data until it is on NVMe, and caches it afterwards. It
 * outlives the daemon.
 *
 * Two files on a tmpfs, named by the session: `.ctl` (header, slab table, handle table, log) and
 * `.slabs` (content). A write is a checksummed record followed by its payload, in a slab; every
 * other change is a record in the log. docs/on-disk-format.md, "The stage", has the layout and the
 * crash protocol. Invariants:
 *
 * 1. A record is published after its payload; content that a record names is never modified.
 * 2. A slab is reused only after every range in it was superseded, or is durable and in the view.
 * 3. The newest state of every file that is not durable can be rebuilt from log and slabs.
 * 4. Data that a pinned layer holds stays until stage_layer_done().
 *
 * Content is layered per file, newest first: draft (open for change) | sealed (a version that waits
 * for writeback) | pinned (the version that the current target writes) | clean (durable, still
 * cached) | the view. A layer lists the ranges that it changes and how much (`keep`) of the layers
 * below remains.
 *
 * This header creates, opens and closes a stage; content.h, versions.h, log.h, recovery.h and
 * place.h have the rest of its interface.
 *
 * Other components see slabs only as iovecs that stay valid while pinned. Locks: one, LOCK_STAGE,
 * never held over I/O. All calls are short and do not block unless their comment says so. Offsets
 * and lengths are bytes. */
#pragma once

#include "base/base.h"
#include "stage/content.h"
#include "stage/log.h"
#include "stage/place.h"
#include "stage/recovery.h"
#include "stage/versions.h"

#define STAGE_SIZE_MIN (16u * 1024 * 1024)

struct stage;

struct stage_config {
    const char *dir;     /* on a tmpfs */
    uint8_t name[16];    /* part of its file names: random for a new stage */
    uint8_t store[16];   /* store id */
    uint64_t size_bytes; /* slabs and their share of the control file */
    uint64_t epoch;      /* of this session */
    bool read_only;      /* no file is written, so no memory is allocated ahead of need */
    /* of a new stage below a mount that has handles of another one: must differ from the tag of
     * that */
    uint32_t handle_tag;
};

/* The format version that this program writes. Any thread. */
unsigned stage_format_version(void);

/* The largest size of a stage whose files take at most `bytes` of their directory; 0: too small for
 * any. */
uint64_t stage_size_within(uint64_t bytes);

/* Makes a new, empty stage, locked. -ENOSPC, -EACCES, -EEXIST... */
CAIRN_MUST_CHECK int stage_create(const struct stage_config *config, struct stage **ret_stage);

/* Opens and locks the stage of a dead daemon; may block for a second. The size is taken from the
 * files. -ENOENT: none; -ESTALE: of another boot or store; -EBUSY: in use; -EACCES: other users
 * have access; -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT. Modifies nothing before stage_own(). */
CAIRN_MUST_CHECK int stage_open(const struct stage_config *config, struct stage **ret_stage);

/* Records the owner: path and directory of the store, and this process. */
void stage_own(struct stage *stage, const char *owner);

/* Notes durably that a session refers to the stage: stage_sweep() no longer removes it. */
void stage_note_named(struct stage *stage);

/* Unmaps and closes the files, and so releases the lock. `remove` deletes the files: only if
 * everything in them is durable. */
void stage_close(struct stage *stage, bool remove);

/* Were its files deleted? Then the stage does not outlive this process. */
bool stage_is_unlinked(const struct stage *stage);

/* --- epochs ----------------------------------------------------------------------------------- */

/* The epochs recorded in a stage found at start: its own, and the one that a recovery had begun (0:
 * none). */
void stage_epochs(struct stage *stage, uint64_t *ret_epoch, uint64_t *ret_next_epoch);
/* Records, so that it survives our own death, that a recovery to `epoch` has begun. */
void stage_begin_recovery(struct stage *stage, uint64_t epoch);

/* Notes that operations up to `seq` are durable, so that the stage may drop its copy of them. A
 * journal that lacks them does not belong to this stage. */
void stage_note_durable(struct stage *stage, uint64_t seq);
uint64_t stage_durable_seq(struct stage *stage);

/* Returns the next sequence number; all operations and writes share one counter. */
uint64_t stage_next_seq(struct stage *stage);
uint64_t stage_last_seq(struct stage *stage);

/* --- room ------------------------------------------------------------------------------------- */

struct stage_usage {
    uint64_t total_bytes; /* of slabs */
    uint64_t dirty_bytes; /* not durable */
    uint64_t clean_bytes; /* durable, evicted when room is needed */
    uint64_t free_bytes;
    uint64_t draft_bytes; /* part of dirty: not sealed */
    uint64_t drafts;
    uint64_t ready_bytes;         /* free and faulted in */
    uint64_t control_bytes;       /* control file */
    uint64_t heap_bytes_max;      /* upper bound of its other allocations */
    uint64_t handles;             /* open files */
    uint64_t dropped_bytes_total; /* written, and superseded before any cut needed it */
};
struct stage_usage stage_usage(struct stage *stage);
/* Only the dirty_bytes of stage_usage(), without a lock: may lag behind concurrent writes. */
uint64_t stage_dirty_bytes(struct stage *stage);

/* `room` is called when room for waiting writers becomes available: by any thread, perhaps under
 * the caller's locks (not the stage's), so it may take leaf locks only. Set once, before use. */
void stage_on_room(struct stage *stage, void (*room)(void *arg), void *arg);

/* Ends the background thread and waits in stage_slab_take(). */
void stage_stop(struct stage *stage);
