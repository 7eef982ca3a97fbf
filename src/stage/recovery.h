// SPDX-License-Identifier: Apache-2.0
/* Recovery: the open files, the log and the layers that a successor goes on from. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"
#include "format/record.h"

struct stage;

/* --- handles: open files, known to a daemon that adopts the mount ----------------------------- */

/* Numbers of handles come back from the kernel, also those of a stage that was lost below the
 * mount, or taken from it: such a handle is not this stage's, and is as one that is not open. Any
 * thread.
 */
bool stage_has_handle(const struct stage *stage, uint64_t handle);
/* -ENFILE: the table is full. */
CAIRN_MUST_CHECK int stage_handle_open(struct stage *stage, uint64_t ino, uint32_t flags,
                                       uint64_t *ret_handle);
/* Of one that is open. Returns the inode. */
uint64_t stage_handle_close(struct stage *stage, uint64_t handle, uint32_t *ret_flags);
uint32_t stage_handle_flags(struct stage *stage, uint64_t handle);
uint64_t stage_handle_inode(struct stage *stage, uint64_t handle); /* 0: it is not open */
/* Notes that one of the descriptors of an open one was closed; HANDLE_FLUSHED is among its flags
 * from then on. False: that was noted before. */
#define HANDLE_FLUSHED (1u << 31)
bool stage_handle_flushed(struct stage *stage, uint64_t handle);
/* Sequence number up to which an open directory is listed; 0: not noted. It is kept where others
 * have their flags: a directory has none. One that is 2^62 or more (after 4 million epochs) is not
 * kept. */
#define HANDLE_LISTS (1u << 30)
void stage_handle_set_listing_end(struct stage *stage, uint64_t handle, uint64_t seq);
uint64_t stage_handle_listing_end(struct stage *stage, uint64_t handle);
/* Files with drafts that were closed, and whose seals wait: a successor seals them at once. */
#define STAGE_DUE_MAX 64u
void stage_set_due(struct stage *stage, const uint64_t *inos, size_t count);
bool stage_is_due(struct stage *stage, uint64_t ino);
/* The handle is open, and its inode is gone. */
#define STAGE_INODE_LOST UINT64_MAX
void stage_handle_lose(struct stage *stage, uint64_t handle);
/* The first open handle from *cursor (at first 0) on, which moves behind it. False:
 * there is none. */
bool stage_handle_next(struct stage *stage, uint64_t *cursor, uint64_t *ret_handle,
                       uint64_t *ret_ino, uint32_t *ret_flags);

/* --- recovery --------------------------------------------------------------------------------- */

/* Calls `fn` for every record of the log that is whole, in order. */
CAIRN_MUST_CHECK int stage_replay_log(struct stage *stage,
                                      int (*fn)(const struct record *rec, void *arg), void *arg);

/* Rebuilds the layers from log and slabs. Called once, after the log was replayed into the
 * namespace. durable(): the version of `ino` that the view has, and its size; UINT64_MAX: no such
 * inode, drop what is staged of it. pack_of(): the pack on NVMe in which a chunk of a piece
 * lies, and the one in the remote; 0: none. A chunk that has neither is damage. */
struct stage_rebuild {
    uint64_t (*durable)(uint64_t ino, uint64_t *ret_size, void *arg);
    uint64_t (*pack_of)(const struct chunk_name *name, uint64_t *ret_remote, void *arg);
    void *arg;
};
CAIRN_MUST_CHECK int stage_rebuild_layers(struct stage *stage, const struct stage_rebuild *how);

/* The recovered stage goes on: numbers from `epoch` on. `adopting`: the mount goes on, too, and
 * with it handles and requests; else nothing refers to them any more. Then write the log anew with
 * stage_log_compact(), make the epoch durable in the journal, and note it with
 * stage_commit_epoch(): a stage of an older version becomes one of today with that. */
CAIRN_MUST_CHECK int stage_adopt(struct stage *stage, uint64_t epoch, bool adopting);
CAIRN_MUST_CHECK int stage_commit_epoch(struct stage *stage, uint64_t epoch);

/* Finds the next slab from *cursor (at first 0) on that holds no content, reads `len` bytes at
 * `offset` of it, and moves *cursor past it: a dead daemon may have received a request there. Only
 * before this daemon receives requests. May block. False: no slab is left. */
bool stage_received_next(struct stage *stage, uint32_t *cursor, size_t offset, void *buf,
                         size_t len);
