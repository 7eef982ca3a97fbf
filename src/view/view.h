// SPDX-License-Identifier: Apache-2.0
/* The view: the state of the durable journal, in RocksDB. Namespace, versions, extents, chunk
 * index, pack accounts.
 *
 * It is only a view: it is never ahead of the durable journal, may lag behind it, may be deleted
 * and is rebuilt. It applies whole batches (one atomic write each) together with the sequence
 * number of their cut.
 *
 * Keys (docs/on-disk-format.md): inodes, entries by name, entries by cookie, xattrs, extent pages
 * keyed (inode, page of 16 MiB, version descending), inline content, chunks, packs, orphans,
 * counters.
 *
 * Reads: any thread, at any time, also during apply; each call sees the state after some whole
 * batch. Apply: one thread. Errors: -ENOENT; -EIO and -EUCLEAN from the database (message in the
 * log). */
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
    bool is_read_only; /* its files are neither written nor created */
    bool is_small;     /* little memory: for a view that is filled once, and rarely read */
    /* due compactions wait for view_begin_compactions(), except in a new view */
    bool begins_quietly;
};

/* Opens or creates the database in directory `path`. A new one contains the root directory (mode
 * 0755, owner = caller's effective uid and gid, times = `root_time`, nlink 2) and applied sequence
 * 0. -EUCLEAN: damaged, delete the directory and rebuild. -ESTALE: from an earlier version of
 * cairn; likewise. */
CAIRN_MUST_CHECK int view_open(const char *path, const struct view_options *options,
                               int64_t root_time, struct view **ret_view);
void view_close(struct view *view);
/* Copies the current state to a new database in directory `path`, which must not exist. Common
 * files are hard links, so both must be on one filesystem. Durable when it returns 0. */
CAIRN_MUST_CHECK int view_copy(struct view *view, const char *path);
/* Starts the compactions of a view that was opened quietly. Any thread; blocks briefly. */
void view_begin_compactions(struct view *view);
/* Each session leaves at least one small file. Compacts the files of many sessions that were too
 * short for compactions; blocks until that is done, 30 s at most. */
void view_compact_leftovers(struct view *view);

/* Did a write fail? Then nothing more is written (-EIO) until the database is opened again; reads
 * continue. Any thread. */
bool view_has_failed(struct view *view);
/* Has RocksDB found corruption since view_open(), in a read that was repeated or in a write, or did
 * a row not decode? Opening it again does not help then. Any thread. */
bool view_is_damaged(struct view *view);
/* Marks the view as damaged, from earlier knowledge: view_is_damaged() returns true from now on. */
void view_distrust(struct view *view);
/* Did a read fail since view_open() for another reason, e.g. a disk error? Any thread. */
bool view_is_unreadable(struct view *view);
/* Closes a database that has failed and opens it again, under readers. It may lack the batches that
 * it applied last; until these are applied again, reads return -EIO. -EBUSY: some read takes long;
 * try again. If opening fails, reads return -EIO until a later try succeeds. Blocks readers
 * meanwhile; one thread, which must not be within a use of the view. */
CAIRN_MUST_CHECK int view_reopen(struct view *view);

struct view_state {
    uint64_t applied_seq;   /* cut of the last batch */
    uint8_t chain[32];      /* its chain hash; zeros before the first */
    uint64_t max_ino;       /* largest inode number ever seen (low 48 bits) */
    uint64_t files;         /* inodes that are regular files and not orphans */
    uint64_t logical_bytes; /* sum of their sizes */
    uint64_t chunks;        /* that files refer to */
    uint64_t stored_bytes;  /* on NVMe: of these chunks and of their bases there */
    uint64_t held_bytes;    /* of these, of bases that no file refers to */
    uint64_t packs;
    uint64_t pack_bytes; /* file lengths of these */
};
struct view_state view_state(struct view *view);

struct view_inode {
    uint64_t ino;
    struct attrs attrs;
    uint32_t nlink;
    uint64_t version; /* of the content; 0: never sealed (not a file) */
    /* directories: the parent; others: a directory that contains a name of it; 0: not known */
    uint64_t parent;
    uint64_t blocks_bytes; /* file bytes that are not holes */
    uint64_t xattrs;       /* how many it has */
    bool is_elsewhere;     /* a file of another node, whose content this view lacks */
};
/* `count` of a VERSION record for such a file. */
#define VIEW_COUNT_ELSEWHERE UINT32_MAX
CAIRN_MUST_CHECK int view_inode(struct view *view, uint64_t ino, struct view_inode *ret_inode);

/* Finds the regular file with a name and the least inode number >= `from`. -ENOENT. */
CAIRN_MUST_CHECK int view_next_file(struct view *view, uint64_t from, struct view_inode *ret_inode);
/* Is there an inode, of any type, with a number >= `from` and < `to`? */
CAIRN_MUST_CHECK int view_has_inode(struct view *view, uint64_t from, uint64_t to, bool *ret);

struct view_entry {
    uint64_t ino;
    uint64_t cookie;
    uint32_t type; /* mode & S_IFMT */
};
CAIRN_MUST_CHECK int view_lookup(struct view *view, uint64_t parent, const char *name,
                                 size_t name_len, struct view_entry *ret_entry);

/* Lists entries of `parent` with cookie > after, ascending by cookie. `fn` returns 0 to continue, 1
 * to stop, or a -errno. */
CAIRN_MUST_CHECK int view_readdir(struct view *view, uint64_t parent, uint64_t after,
                                  int (*fn)(const struct view_entry *entry, const char *name,
                                            size_t name_len, void *arg),
                                  void *arg);

/* Finds the first name in `parent`, in byte order, that is not less than `name` and begins with its
 * first `prefix_len` bytes; stores it in `name`, which has room for NAME_LEN_MAX + 1. -ENOENT. */
CAIRN_MUST_CHECK int view_next_name(struct view *view, uint64_t parent, size_t prefix_len,
                                    char *name);

/* In the union of several nodes' names: the replacement for a missing directory, to which records
 * of a node may refer. -ENOENT: nothing is known of it. */
struct view_stand_in {
    uint64_t ino;            /* the directory used in its place; 0: none */
    uint64_t parent;         /* if 0: its last parent */
    uint32_t mode, uid, gid; /* and its last attributes */
    uint16_t name_len;
    char name[NAME_LEN_MAX + 1]; /* NUL-terminated */
};
CAIRN_MUST_CHECK int view_stand_in(struct view *view, uint64_t ino, struct view_stand_in *ret);

/* Copies a symbolic link target (not NUL-terminated): returns its length, or -ERANGE if larger than
 * size. */
CAIRN_MUST_CHECK ssize_t view_readlink(struct view *view, uint64_t ino, char *buf, size_t size);

/* Copies the value of an xattr: returns its length; size 0 only returns the length; -ENODATA none,
 * -ERANGE larger than size. */
CAIRN_MUST_CHECK ssize_t view_getxattr(struct view *view, uint64_t ino, const char *name,
                                       size_t name_len, void *buf, size_t size);
CAIRN_MUST_CHECK int view_listxattr(struct view *view, uint64_t ino,
                                    int (*fn)(const char *name, size_t name_len, void *arg),
                                    void *arg);

/* Every inode with this xattr; scans all xattrs of the view. */
CAIRN_MUST_CHECK int view_xattr_holders(struct view *view, const char *name,
                                        int (*fn)(uint64_t ino, void *arg), void *arg);

/* One part of a file's durable content, clipped to the requested range. */
struct view_extent {
    struct extent extent; /* offset and length within the requested range; holes are included */
    const void *bytes;    /* EXTENT_INLINE: the content, valid during the callback */
};

/* The content of [offset, offset + length) of the newest version, in order and without gaps. Ends
 * at the end of the file; a file whose content is elsewhere yields nothing. Adjacent parts of a
 * chunk are joined. */
CAIRN_MUST_CHECK int view_extents(struct view *view, uint64_t ino, uint64_t offset, uint64_t length,
                                  int (*fn)(const struct view_extent *part, void *arg), void *arg);
/* As view_extents(); *ret_version: the version read. -EREMOTE: the content is elsewhere. */
struct view_range {
    uint64_t ino, offset, length;
};
CAIRN_MUST_CHECK int view_content(struct view *view, const struct view_range *range,
                                  uint64_t *ret_version,
                                  int (*fn)(const struct view_extent *part, void *arg), void *arg);

/* Place of a chunk and the number of extents that refer to it (0: it is in a pack only). -ENOENT
 * unknown. */
CAIRN_MUST_CHECK int view_chunk(struct view *view, const struct chunk_name *name,
                                struct chunk_entry *ret_entry, uint64_t *ret_refs);

/* As view_chunk(), with all counts that keep it on NVMe: it is live there while extents refer to
 * it, or entries of other chunks on NVMe. */
struct view_local_chunk {
    struct chunk_entry entry; /* pack 0: not on NVMe */
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
    uint32_t count;      /* chunks in it; 0: unknown, as its index could not be read */
    uint64_t live_bytes; /* stored bytes of its live chunks */
    uint32_t live_count;
};
CAIRN_MUST_CHECK int view_packs(struct view *view,
                                int (*fn)(const struct view_pack *pack, void *arg), void *arg);
CAIRN_MUST_CHECK int view_pack(struct view *view, uint64_t pack, struct view_pack *ret_pack);

/* Orphans: inodes that lost their last name and are not reaped yet. */
CAIRN_MUST_CHECK int view_orphans(struct view *view, int (*fn)(uint64_t ino, void *arg), void *arg);

/* One batch to apply. `records` are the encoded records of a durable batch, in order. `pack_index`
 * is called for each PACK record: it calls `fn` for every chunk entry of the pack, and returns 0,
 * or -ENOENT if the pack's file no longer exists because a later batch drops it (then only the PACK
 * record is noted, its chunks have no place). *ret_was_made: the index was rebuilt from the
 * readable parts of the pack, so entries may be missing. */
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
 * without their SEAL...) are damage: -EUCLEAN. After this or any other error nothing is changed:
 * -EPROTONOSUPPORT (a record type of a newer version), -EIO, or an error of `pack_index`. A batch
 * may have the cut of the preceding one (only packs), never an older one.
 *
 * Meaning of the records. SEAL (+ the EXTENTS before it): the content becomes the first `keep`
 * bytes of the previous version, with the extents laid over, size attrs.size, and holes elsewhere.
 * BIRTH creates the inode and the name first. ELIDED: birth and attributes only, no content.
 * References of chunks are counted per extent part of a page (extents are split at page borders); a
 * chunk whose count falls to 0 stays known, with 0, until its pack is dropped. Whenever a name in a
 * directory changes, the directory's mtime and ctime become the record's time (BIRTH: attrs.btime,
 * if later than its ctime); nlink of directories counts subdirectories. UNLINK / RENAME without
 * ORPHAN that removes the last name of an inode removes the inode and its content references; with
 * ORPHAN the inode stays with nlink 0 until REAP. PACK: the chunks in the index get their place in
 * this pack (also those that had another place: compaction moves chunks). DROP: chunks whose place
 * is still in that pack and that have no references are forgotten; a chunk with references is
 * damage (-EUCLEAN); with RECORD_EVICTED such chunks stay, without a place. */
CAIRN_MUST_CHECK int view_apply(struct view *view, const struct view_batch *batch);

/* Makes applied batches durable in the database's own files. */
CAIRN_MUST_CHECK int view_flush(struct view *view);

/* Recounts everything from the extents: every chunk's references, every pack's live bytes, every
 * inode's nlink, every entry's inode, the counters. Calls `report` with one line for each
 * difference; returns the number of differences or -errno. */
CAIRN_MUST_CHECK int view_check(struct view *view, void (*report)(const char *line, void *arg),
                                void *arg);

/* All live chunks, in no particular order: for fsck and scrub. */
CAIRN_MUST_CHECK int view_chunks(struct view *view,
                                 int (*fn)(const struct view_local_chunk *chunk, void *arg),
                                 void *arg);

/* Files (inode and offset of the first use) that refer to a chunk, found by a scan of all extents:
 * for reports of damage. */
CAIRN_MUST_CHECK int view_chunk_users(struct view *view, const struct chunk_name *name,
                                      int (*fn)(uint64_t ino, uint64_t offset, void *arg),
                                      void *arg);

/* The first 16 bytes of a chunk's name, which are unique. */
struct chunk_prefix {
    uint8_t bytes[16];
};

/* A search for files that refer to chunks. */
struct view_users {
    const struct chunk_prefix *chunks; /* ascending */
    size_t count;
    size_t max; /* extent pages to read in one call, but at least one whole file */
    /* called for each use, perhaps several times for the same file */
    void (*fn)(uint64_t ino, size_t chunk, void *arg);
    void *arg;
};
/* Scans the extents of all files from inode *at on. *ret_more: there are more files, from the new
 * *at on. */
CAIRN_MUST_CHECK int view_find_users(struct view *view, const struct view_users *want, uint64_t *at,
                                     bool *ret_more);

/* Finds a name of the inode in that directory by a scan of its entries, for messages; NULL: none.
 * Caller frees. */
char *view_name(struct view *view, uint64_t parent, uint64_t ino);

/* A path of the inode from the root, for messages ("/run7/step1.pt"); "?" if it has none. Caller
 * frees. */
char *view_path(struct view *view, uint64_t ino);
