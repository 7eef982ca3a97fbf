// SPDX-License-Identifier: Apache-2.0
/* The view: what the durable journal says, in RocksDB. Namespace, versions, extents, chunk index,
 * pack accounts.
 *
 * It is only a view: it never runs ahead of the durable journal, may lag behind it, may be deleted
 * and is rebuilt. It applies whole batches (one atomic write each) together with the sequence
 * number of their cut.
 *
 * Keys (docs/on-disk-format.md): inodes, entries by name, entries by cookie, xattrs, extent pages
 * keyed (inode, page of 16 MiB, version descending), inline content, chunks, packs, orphans,
 * counters.
 *
 * Reads: any thread, at any time, also during apply; each call sees some whole batch state. Apply:
 * one thread. Errors: -ENOENT; -EIO and -EUCLEAN from the database (message in the log). */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "format/chunk.h"
#include "format/record.h"

#define ROOT_INO 1u
#define VIEW_PAGE_LEN (16 * MIB) /* bytes of a file that one extent page describes */

struct view;

struct view_options {
    size_t cache_bytes; /* RocksDB block cache, memtables included */
    bool create;
    bool is_read_only;   /* no file of it is written or made */
    bool is_small;       /* little memory: for a view that is filled once, and read seldom */
    bool begins_quietly; /* compactions that are due wait for view_begin_compactions(), but of a new
                            one */
};

/* Opens or makes the database in directory `path`. A new one holds the root directory (mode 0755,
 * owner = caller's effective uid and gid, times = `root_time`, nlink 2) and applied sequence 0.
 * -EUCLEAN: damaged, delete the directory and rebuild. -ESTALE: of an earlier version of cairn; the
 * same. */
CAIRN_MUST_CHECK int view_open(const char *path, const struct view_options *options,
                               int64_t root_time, struct view **ret_view);
void view_close(struct view *view);
/* Makes another one in directory `path`, which is not there yet, of the state that it has now.
 * Files that both have are one file with two names, so both lie on one filesystem. Durable on 0. */
CAIRN_MUST_CHECK int view_copy(struct view *view, const char *path);
/* Begins the compactions of a view that was opened quietly. Any thread; blocks while the database
 * notes it. */
void view_begin_compactions(struct view *view);
/* Each session leaves a small file at least. Compacts the files of many sessions that were all
 * too short for compactions; blocks until that is done, for 30 s at most. */
void view_compact_leftovers(struct view *view);

/* Did a write fail? Then nothing more is written (-EIO) until it was opened anew; reads go on. Any
 * thread. */
bool view_has_failed(struct view *view);
/* Did RocksDB find corruption, in a read that was repeated or in a write, since view_open()? Or is
 * a row none? Opening it anew mends nothing then. Any thread. */
bool view_is_damaged(struct view *view);
/* It was damaged before: view_is_damaged() from now on. */
void view_distrust(struct view *view);
/* Did a read fail since view_open() for another reason, as of a disk? Any thread. */
bool view_is_unreadable(struct view *view);
/* Closes the database and opens it anew, under readers: for one that has failed. It may lack
 * batches that it had applied last; until that is applied again, reads give -EIO. -EBUSY: some read
 * takes long; try again. Errors of opening: reads give -EIO until a later try. Blocks readers for
 * as long as it takes; one thread, which holds nothing of the view. */
CAIRN_MUST_CHECK int view_reopen(struct view *view);

struct view_state {
    uint64_t applied_seq;   /* cut of the last batch */
    uint8_t chain[32];      /* its chain hash; zeros before the first */
    uint64_t max_ino;       /* largest inode number ever seen (low 48 bits) */
    uint64_t files;         /* inodes that are regular files and not orphans */
    uint64_t logical_bytes; /* sum of their sizes */
    uint64_t chunks;        /* that files refer to */
    uint64_t stored_bytes;  /* on NVMe: of these and of their bases there */
    uint64_t held_bytes;    /* of that, of bases that no file refers to */
    uint64_t packs;
    uint64_t pack_bytes; /* file lengths of these */
};
struct view_state view_state(struct view *view);

struct view_inode {
    uint64_t ino;
    struct attrs attrs;
    uint32_t nlink;
    uint64_t version; /* of the content; 0: never sealed (not a file) */
    uint64_t parent; /* directories: the parent; others: a directory that holds a name of it; 0: not
                        known which do */
    uint64_t blocks_bytes; /* file bytes that are not holes */
    uint64_t xattrs;       /* how many it has */
    bool is_elsewhere;     /* another node's file, whose content this view lacks */
};
/* `count` of a VERSION for such a file. */
#define VIEW_COUNT_ELSEWHERE UINT32_MAX
CAIRN_MUST_CHECK int view_inode(struct view *view, uint64_t ino, struct view_inode *ret_inode);

/* The regular file with a name whose inode number is the least that is not below `from`. -ENOENT.
 */
CAIRN_MUST_CHECK int view_next_file(struct view *view, uint64_t from, struct view_inode *ret_inode);
/* Is there an inode, of any type, whose number is not below `from`, and below `to`? */
CAIRN_MUST_CHECK int view_has_inode(struct view *view, uint64_t from, uint64_t to, bool *ret);

struct view_entry {
    uint64_t ino;
    uint64_t cookie;
    uint32_t type; /* mode & S_IFMT */
};
CAIRN_MUST_CHECK int view_lookup(struct view *view, uint64_t parent, const char *name,
                                 size_t name_len, struct view_entry *ret_entry);

/* Entries of `parent` with cookie > after, ascending by cookie. `fn` returns 0 to go on, 1 to stop,
 * or a -errno. */
CAIRN_MUST_CHECK int view_readdir(struct view *view, uint64_t parent, uint64_t after,
                                  int (*fn)(const struct view_entry *entry, const char *name,
                                            size_t name_len, void *arg),
                                  void *arg);

/* The first name in `parent`, in the order of bytes, that is not before `name` and begins with its
 * first `prefix_len` bytes: it takes its place. `name` has room for NAME_LEN_MAX + 1. -ENOENT. */
CAIRN_MUST_CHECK int view_next_name(struct view *view, uint64_t parent, size_t prefix_len,
                                    char *name);

/* In the union of several nodes' names: what stands for a directory that it lacks, and of which a
 * node may speak. -ENOENT: nothing is known of it. */
struct view_stand_in {
    uint64_t ino;            /* the directory that stands for it; 0: none */
    uint64_t parent;         /* then, where it was last */
    uint32_t mode, uid, gid; /* and what it was */
    uint16_t name_len;
    char name[NAME_LEN_MAX + 1]; /* NUL-terminated */
};
CAIRN_MUST_CHECK int view_stand_in(struct view *view, uint64_t ino, struct view_stand_in *ret);

/* Symbolic link target (not NUL-terminated): returns its length, or -ERANGE if larger than size. */
CAIRN_MUST_CHECK ssize_t view_readlink(struct view *view, uint64_t ino, char *buf, size_t size);

/* Value of an xattr: returns its length; size 0 asks for the length only; -ENODATA none, -ERANGE
 * larger than size. */
CAIRN_MUST_CHECK ssize_t view_getxattr(struct view *view, uint64_t ino, const char *name,
                                       size_t name_len, void *buf, size_t size);
CAIRN_MUST_CHECK int view_listxattr(struct view *view, uint64_t ino,
                                    int (*fn)(const char *name, size_t name_len, void *arg),
                                    void *arg);

/* Every inode that has this xattr; looks at all xattrs there are. */
CAIRN_MUST_CHECK int view_xattr_holders(struct view *view, const char *name,
                                        int (*fn)(uint64_t ino, void *arg), void *arg);

/* One part of a file's durable content, cut to the range asked for. */
struct view_extent {
    struct extent extent; /* offset and length within the range asked for; holes are given too */
    const void *bytes;    /* EXTENT_INLINE: the content, valid during the callback */
};

/* The content of [offset, offset + length) in order, without gaps, of the newest version. Nothing
 * is given past the end of the file, and nothing of one whose content is elsewhere. A chunk's parts
 * that follow each other are given as one. */
CAIRN_MUST_CHECK int view_extents(struct view *view, uint64_t ino, uint64_t offset, uint64_t length,
                                  int (*fn)(const struct view_extent *part, void *arg), void *arg);
/* The same; *ret_version: which version that is. -EREMOTE: its content is elsewhere. */
struct view_range {
    uint64_t ino, offset, length;
};
CAIRN_MUST_CHECK int view_content(struct view *view, const struct view_range *range,
                                  uint64_t *ret_version,
                                  int (*fn)(const struct view_extent *part, void *arg), void *arg);

/* Place of a chunk and how many extents refer to it (0: only lies in a pack). -ENOENT unknown. */
CAIRN_MUST_CHECK int view_chunk(struct view *view, const struct chunk_name *name,
                                struct chunk_entry *ret_entry, uint64_t *ret_refs);

/* The same with all that keeps it on NVMe: it is live there while extents refer to it, or entries
 * of other chunks that lie there. */
struct view_local_chunk {
    struct chunk_entry entry; /* pack 0: it has no place on NVMe */
    uint64_t refs;
    uint32_t dependents;
};
static inline bool view_is_live(const struct view_local_chunk *chunk)
{
    return chunk->refs > 0 || chunk->dependents > 0;
}
CAIRN_MUST_CHECK int view_local_chunk(struct view *view, const struct chunk_name *name,
                                      struct view_local_chunk *ret);

struct view_pack {
    uint64_t pack;
    uint64_t length;     /* of the file */
    uint32_t count;      /* chunks in it; 0: not all known, its index could not be read */
    uint64_t live_bytes; /* stored bytes of its chunks that are live */
    uint32_t live_count;
};
CAIRN_MUST_CHECK int view_packs(struct view *view,
                                int (*fn)(const struct view_pack *pack, void *arg), void *arg);
CAIRN_MUST_CHECK int view_pack(struct view *view, uint64_t pack, struct view_pack *ret_pack);

/* Orphans: inodes that lost their last name, and are not reaped yet. */
CAIRN_MUST_CHECK int view_orphans(struct view *view, int (*fn)(uint64_t ino, void *arg), void *arg);

/* One batch to apply. `records` are the encoded records of a durable batch, in order. `pack_index`
 * is asked for the index of each PACK record's pack: it calls `fn` for every chunk entry of the
 * pack, and returns 0, or -ENOENT when the pack's file no longer exists because a later batch drops
 * it (then the PACK record only is noted, its chunks have no place). *ret_was_made: the index was
 * made again from the readable parts of the pack, so it may lack some. */
struct view_batch {
    const void *records;
    size_t records_len;
    uint64_t cut_seq;
    uint8_t chain[32];
    int (*pack_index)(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                      void *fn_arg, bool *ret_was_made, void *arg);
    void *arg;
};

/* Applies a batch in one atomic write. Records that do not fit the state (no such inode, EXTENTS
 * without their SEAL...) are damage: -EUCLEAN, nothing is changed. So it is after any error:
 * -EPROTONOSUPPORT (a record type of a newer version), -EIO, or what `pack_index` returned. A batch
 * may have the cut of the one before (only packs), never an older one. Meaning of the records: SEAL
 * (+ the EXTENTS before it): content becomes: first `keep` bytes of the version before, then the
 * extents over it, size attrs.size, holes where neither is. BIRTH makes the inode and
 * the name first. ELIDED: birth and attributes only, no content. References of chunks are counted
 * per extent part of a page (extents are split at page borders); a chunk whose count falls to 0
 * stays known, with 0, until its pack is dropped. a directory's mtime and ctime become the record's
 * time whenever a name in it changes (BIRTH: attrs.btime, if later than its ctime); nlink of
 * directories counts subdirectories. UNLINK / RENAME without ORPHAN that takes the last name of an
 * inode removes it and its content references; with ORPHAN keeps it with nlink 0 until REAP. PACK:
 * chunk entries of the index get their place there (also those that had another place: compaction
 * moves chunks). DROP: chunks whose place is still in that pack and have no references are
 * forgotten; any that have references are damage (-EUCLEAN); with RECORD_EVICTED they stay, without
 * a place. */
CAIRN_MUST_CHECK int view_apply(struct view *view, const struct view_batch *batch);

/* Makes applied batches durable in the database's own files. */
CAIRN_MUST_CHECK int view_flush(struct view *view);

/* Recounts everything from the extents: every chunk's references, every pack's live bytes, every
 * inode's nlink, every entry's inode, the counters. Calls `report` with one line for each
 * difference; returns the number of them or -errno. */
CAIRN_MUST_CHECK int view_check(struct view *view, void (*report)(const char *line, void *arg),
                                void *arg);

/* All chunks that are live, in no promised order: for fsck and scrub. */
CAIRN_MUST_CHECK int view_chunks(struct view *view,
                                 int (*fn)(const struct view_local_chunk *chunk, void *arg),
                                 void *arg);

/* Files (inode and offset of the first use) that refer to a chunk, by scanning all extents: for
 * reports of damage. */
CAIRN_MUST_CHECK int view_chunk_users(struct view *view, const struct chunk_name *name,
                                      int (*fn)(uint64_t ino, uint64_t offset, void *arg),
                                      void *arg);

/* The beginning of a chunk's name: 16 of their bytes, of which no two chunks have the same. */
struct chunk_prefix {
    uint8_t bytes[16];
};

/* A search for files that refer to chunks. */
struct view_users {
    const struct chunk_prefix *chunks; /* ascending */
    size_t count;
    size_t max; /* extent pages to look at in one call, but at all of a file */
    /* gets each use, of a file the same one maybe several times */
    void (*fn)(uint64_t ino, size_t chunk, void *arg);
    void *arg;
};
/* Scans the extents of all files from inode *at on. *ret_more: there is more, from the new *at
 * on. */
CAIRN_MUST_CHECK int view_find_users(struct view *view, const struct view_users *want, uint64_t *at,
                                     bool *ret_more);

/* A name of the inode in that directory, for messages, by looking at all that are there; NULL:
 * none. Caller frees. */
char *view_name(struct view *view, uint64_t parent, uint64_t ino);

/* A path of the inode from the root, for messages ("/run7/step1.pt"); "?" where it has none. Caller
 * frees. */
char *view_path(struct view *view, uint64_t ino);
