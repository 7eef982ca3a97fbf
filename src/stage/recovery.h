// SPDX-License-Identifier: Apache-2.0
/* Recovery: the open files, the log and the layers with which a successor continues. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"
#include "format/record.h"

struct stage;

/* --- handles: open files, known to a daemon that adopts the mount ----------------------------- */

/* Is the handle one of this stage? After the stage below a mount was lost or taken away, the kernel
 * still sends handles of the old stage: these count as not open. Any thread. */
bool stage_has_handle(const struct stage *stage, uint64_t handle);
/* -ENFILE: the table is full. */
CAIRN_MUST_CHECK int stage_handle_open(struct stage *stage, uint64_t ino, uint32_t flags,
                                       uint64_t *ret_handle);
/* The handle must be open. Returns the inode. */
uint64_t stage_handle_close(struct stage *stage, uint64_t handle, uint32_t *ret_flags);
uint32_t stage_handle_flags(struct stage *stage, uint64_t handle);
uint64_t stage_handle_inode(struct stage *stage, uint64_t handle); /* 0: it is not open */
/* Notes that one descriptor of an open handle was closed: its flags contain HANDLE_FLUSHED from
 * then on. False: noted before. */
#define HANDLE_FLUSHED (1u << 31)
bool stage_handle_flushed(struct stage *stage, uint64_t handle);
/* The sequence number up to which an open directory is listed; 0: not noted. It is stored in the
 * flags, which a directory does not have otherwise. A number of 2^62 or more (after 4 million
 * epochs) is not stored. */
#define HANDLE_LISTS (1u << 30)
void stage_handle_set_listing_end(struct stage *stage, uint64_t handle, uint64_t seq);
uint64_t stage_handle_listing_end(struct stage *stage, uint64_t handle);
/* Files that were closed and whose drafts wait to be sealed: a successor seals them at once. */
#define STAGE_DUE_MAX 64u
void stage_set_due(struct stage *stage, const uint64_t *inos, size_t count);
bool stage_is_due(struct stage *stage, uint64_t ino);
/* The handle is open, but its inode does not exist. */
#define STAGE_INODE_LOST UINT64_MAX
void stage_handle_lose(struct stage *stage, uint64_t handle);
/* Finds the next open handle from *cursor (0 at first) on, and moves *cursor past it. False: no
 * more handles. */
bool stage_handle_next(struct stage *stage, uint64_t *cursor, uint64_t *ret_handle,
                       uint64_t *ret_ino, uint32_t *ret_flags);

/* --- recovery --------------------------------------------------------------------------------- */

/* Calls `fn` for every whole record of the log, in order. */
CAIRN_MUST_CHECK int stage_replay_log(struct stage *stage,
                                      int (*fn)(const struct record *rec, void *arg), void *arg);

/* Rebuilds the layers from log and slabs. Called once, after the log was replayed into the
 * namespace. durable(): the version of `ino` in the view, and its size; UINT64_MAX: no such inode,
 * its staged content is dropped. pack_of(): the packs on NVMe and in the remote that contain a
 * chunk of a piece; 0: none. A chunk in neither is damage. */
struct stage_rebuild {
    uint64_t (*durable)(uint64_t ino, uint64_t *ret_size, void *arg);
    uint64_t (*pack_of)(const struct chunk_name *name, uint64_t *ret_remote, void *arg);
    void *arg;
};
CAIRN_MUST_CHECK int stage_rebuild_layers(struct stage *stage, const struct stage_rebuild *how);

/* Puts the recovered stage into use, with numbers from `epoch` on. `adopting`: the mount continues,
 * with its handles and requests; otherwise they are dropped. Afterwards rewrite the log with
 * stage_log_compact(), make the epoch durable in the journal, and note it with
 * stage_commit_epoch(), which also upgrades a stage of an older version. */
CAIRN_MUST_CHECK int stage_adopt(struct stage *stage, uint64_t epoch, bool adopting);
CAIRN_MUST_CHECK int stage_commit_epoch(struct stage *stage, uint64_t epoch);

/* Finds the next slab from *cursor (0 at first) on without content, reads `len` bytes at `offset`
 * of it, and moves *cursor past it: a dead daemon may have received a request there. Call before
 * this daemon receives requests. May block. False: no more slabs. */
bool stage_received_next(struct stage *stage, uint32_t *cursor, size_t offset, void *buf,
                         size_t len);
