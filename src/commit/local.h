// SPDX-License-Identifier: Apache-2.0
/* The local resources of a store, below commit/: each object of commit/ works on these, and none
 * needs the whole store. store/ opens and closes them. */
#pragma once

#include "commit/options.h"
#include "format/record.h"
#include "format/superblock.h"

#define VIEW_CACHE_BYTES (48u * 1024 * 1024)
#define EPOCH_LAST ((1ull << (64 - SEQ_EPOCH_SHIFT)) - 1024) /* limit that no store reaches */
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

/* Does the store have a remote? Does it follow another writer's state there, without operations of
 * its own? */
static inline bool local_has_remote(const struct local *local)
{
    return local->options.remote.name != NULL;
}

static inline bool local_follows(const struct local *local)
{
    return local_has_remote(local) && local->options.remote.read_only;
}

/* -EROFS, with its cause, if the store follows: then it takes no changes, even if root made its
 * mount writable. */
CAIRN_MUST_CHECK int local_takes_changes(const struct local *local);

/* --- superblock.c ----------------------------------------------------------------------------- */

CAIRN_MUST_CHECK int superblock_write(const char *path, const struct superblock *sb);
CAIRN_MUST_CHECK int superblock_read(const char *path, struct superblock *ret);
/* Records durably in the superblock that chunks may have these encodings: the
 * SUPERBLOCK_INCOMPAT_ENCODINGS bits of `incompat`. For a store that follows,
 * SUPERBLOCK_INCOMPAT_NODES records that chunks may come from any node, whose number is part of
 * their names. Call before the first such chunk. */
CAIRN_MUST_CHECK int local_allow_encodings(struct local *local, uint64_t incompat);
/* As local_allow_encodings(): packs may be needed by snapshots of the store. Call before the first
 * snapshot. */
CAIRN_MUST_CHECK int local_allow_snapshots(struct local *local);

/* --- node.c: names and versions that contain the store's number among the nodes of its prefix - */

/* Computes the name of a chunk of this store with these raw bytes. If several nodes write the
 * prefix, it contains the number of the store: equal chunks of two nodes have two names, so that
 * each node accounts for its own. */
struct chunk_name local_chunk_name(const struct local *local, const struct iovec *iov,
                                   size_t iov_count);
/* Do the bytes match the name of the chunk, whichever node it is from? */
CAIRN_MUST_CHECK bool local_is_chunk(const struct local *local, const struct chunk_name *name,
                                     const void *raw, size_t len);
/* The version of a file after `version`. If several nodes write the prefix, its lower 24 bits
 * contain the node whose content it is: versions of two nodes are never equal. */
uint64_t local_next_version(const struct local *local, uint64_t version);

/* --- new_view.c ------------------------------------------------------------------------------- */

/* Removes STORE/view if it exists. */
CAIRN_MUST_CHECK int local_remove_view(struct local *local);
