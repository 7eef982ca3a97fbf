// SPDX-License-Identifier: Apache-2.0
/* What a store has open on this machine, below commit/: each object of commit/ works on these, and
 * none needs the store around them. store/ opens and closes them. */
#pragma once

#include "commit/options.h"
#include "format/record.h"
#include "format/superblock.h"

#define VIEW_CACHE_BYTES (48u * 1024 * 1024)
#define EPOCH_LAST ((1ull << (64 - SEQ_EPOCH_SHIFT)) - 1024) /* no store gets there */
#define ID_EPOCH(id) ((id) >> 24 & 0xffffff) /* of an inode's, a pack's or a run's number */

struct ns;
struct stage;
struct tier;
struct view;

struct local {
    struct store_options options;
    char *path;
    struct superblock sb;
    uint64_t epoch;
    struct tier *tier; /* NVMe */
    struct view *view;
    struct ns *ns;
    struct stage *stage;
};

/* Does the store have a remote, and does it show what another writer publishes there, and have no
 * operations of its own? */
static inline bool local_has_remote(const struct local *local)
{
    return local->options.remote.name != NULL;
}

static inline bool local_follows(const struct local *local)
{
    return local_has_remote(local) && local->options.remote.read_only;
}

/* -EROFS, with its cause, where it follows: it has no changes of its own, also where root made its
 * mount writable. */
CAIRN_MUST_CHECK int local_takes_changes(const struct local *local);

/* --- superblock.c ----------------------------------------------------------------------------- */

CAIRN_MUST_CHECK int superblock_write(const char *path, const struct superblock *sb);
CAIRN_MUST_CHECK int superblock_read(const char *path, struct superblock *ret);
/* Notes in the superblock, durably, that chunks may be in these encodings:
 * SUPERBLOCK_INCOMPAT_ENCODINGS of `incompat`, others are left out. A store that follows, with
 * SUPERBLOCK_INCOMPAT_NODES: that they may be of any node, whose number their names carry. Comes
 * before the first such chunk. */
CAIRN_MUST_CHECK int local_allow_encodings(struct local *local, uint64_t incompat);
/* The same: that packs may be needed by snapshots of the store. Comes before the first. */
CAIRN_MUST_CHECK int local_allow_snapshots(struct local *local);

/* --- node.c: what carries the number of the store among the nodes of its prefix ----------------
 */

/* The name of a chunk of this store with these raw bytes. Where several nodes write the prefix, it
 * carries the number of the store: equal chunks of two nodes have two names, so that each node
 * accounts for its own. */
struct chunk_name local_chunk_name(const struct local *local, const struct iovec *iov,
                                   size_t iov_count);
/* Are the bytes those of the chunk, of whichever node it is? */
CAIRN_MUST_CHECK bool local_is_chunk(const struct local *local, const struct chunk_name *name,
                                     const void *raw, size_t len);
/* The version of a file that follows `version`. Where several nodes write the prefix, it says in
 * its lower 24 bits whose content it is: versions of two nodes are never the same. */
uint64_t local_next_version(const struct local *local, uint64_t version);

/* --- new_view.c ------------------------------------------------------------------------------- */

/* Removes STORE/view, which need not be there. */
CAIRN_MUST_CHECK int local_remove_view(struct local *local);
