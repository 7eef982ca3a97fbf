// SPDX-License-Identifier: Apache-2.0
/* The stage: host DRAM that holds what was written and is not yet, or still, on NVMe. It outlives
 * the daemon.
 *
 * Two files on a tmpfs, named by the session: `.ctl` (header, slab table, handle table, log) and
 * `.slabs` (content). A write is a checksummed record in front of its payload, in a slab;
 * everything else that happened is a record in the log. docs/on-disk-format.md, "The stage", has
 * the layout and the crash protocol. What holds at every moment:
 *
 *   1. A record is published after its payload; what a record names is never modified.
 *   2. A slab is reused only after every range in it was superseded, or is durable and in the view.
 *   3. The newest state of every file that is not durable can be rebuilt from log and slabs.
 *   4. Data that a pinned layer holds stays until stage_layer_done().
 *
 * Content is layered per file, newest first: draft (open for change) | sealed (a version that waits
 * for writeback) | pinned (the version that the current target writes) | clean (durable, still
 * here) | the view. A layer says which ranges it changes and how much (`keep`) of what lies below
 * remains.
 *
 * This header makes, opens and closes a stage; content.h, versions.h, log.h, recovery.h and place.h
 * have the rest of its interface.
 *
 * No other component sees a slab but as iovecs that stay valid while pinned. Locks: one,
 * LOCK_STAGE, never held over I/O. All calls are short and do not block unless they say so. Offsets
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
    uint8_t name[16];    /* of its files: random for a new one */
    uint8_t store[16];   /* store id */
    uint64_t size_bytes; /* slabs and their share of the control file */
    uint64_t epoch;      /* of this session */
    bool read_only;      /* no file is written: no memory is made ready ahead of need */
    uint32_t handle_tag; /* of a new one, whose mount has handles of another: not the other's */
};

/* The version of the format in which its files are written. Any thread. */
unsigned stage_format_version(void);

/* The largest size of a stage whose files take at most `bytes` of their directory; 0: none is so
 * small. */
uint64_t stage_size_within(uint64_t bytes);

/* Makes a new, empty stage, locked. -ENOSPC, -EACCES, -EEXIST... */
CAIRN_MUST_CHECK int stage_create(const struct stage_config *config, struct stage **ret_stage);

/* Opens and locks what a dead daemon left; may wait for a second. Its size is that of the files.
 * -ENOENT: none; -ESTALE: of another boot or store; -EBUSY: in use; -EACCES: it is not ours alone;
 * -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT. Nothing is changed before stage_own(). */
CAIRN_MUST_CHECK int stage_open(const struct stage_config *config, struct stage **ret_stage);

/* Notes in it whose it is: the path of the store and which directory that is, and this process. */
void stage_own(struct stage *stage, const char *owner);

/* Notes that a session names it, durably: it is not swept any more. */
void stage_note_named(struct stage *stage);

/* Unmaps and closes; the lock is free. `remove` deletes the files: only when everything in it is
 * durable. */
void stage_close(struct stage *stage, bool remove);

/* Have its files lost their names? Then it does not outlive this process. */
bool stage_is_unlinked(const struct stage *stage);

/* --- epochs ----------------------------------------------------------------------------------- */

/* Epochs a left-over stage knows of: its own, and the one that a recovery had begun (0: none). */
void stage_epochs(struct stage *stage, uint64_t *ret_epoch, uint64_t *ret_next_epoch);
/* Notes durably (against our own death) that a recovery to `epoch` has begun. */
void stage_begin_recovery(struct stage *stage, uint64_t epoch);

/* Notes that operations up to `seq` are durable, so that the stage may drop its copy of them. A
 * journal that lacks them is not the one that the stage goes on from. */
void stage_note_durable(struct stage *stage, uint64_t seq);
uint64_t stage_durable_seq(struct stage *stage);

/* Sequence numbers of everything that happens, from one counter: the next one. */
uint64_t stage_next_seq(struct stage *stage);
uint64_t stage_last_seq(struct stage *stage);

/* --- room ------------------------------------------------------------------------------------- */

struct stage_usage {
    uint64_t total_bytes; /* of slabs */
    uint64_t dirty_bytes; /* not durable */
    uint64_t clean_bytes; /* durable, given up when room is needed */
    uint64_t free_bytes;
    uint64_t draft_bytes; /* part of dirty: not sealed */
    uint64_t drafts;
    uint64_t ready_bytes;         /* free and faulted in */
    uint64_t control_bytes;       /* control file */
    uint64_t heap_bytes_max;      /* bound of its other allocations */
    uint64_t handles;             /* open files */
    uint64_t dropped_bytes_total; /* written, and dead before any cut needed it */
};
struct stage_usage stage_usage(struct stage *stage);
/* Its dirty_bytes alone, without a lock: of a moment ago, where others write. */
uint64_t stage_dirty_bytes(struct stage *stage);

/* `room` is called when room that a writer may wait for came free: from any thread, perhaps under
 * the caller's locks (not the stage's), so it may take leaf locks only. Set once, before use. */
void stage_on_room(struct stage *stage, void (*room)(void *arg), void *arg);

/* Ends waits in stage_slab_take() and the background thread. */
void stage_stop(struct stage *stage);
