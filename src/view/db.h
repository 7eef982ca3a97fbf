// SPDX-License-Identifier: Apache-2.0
/* The database under the view: reads in a snapshot, scans of a prefix, and the transaction of an
 * apply. Errors of RocksDB are logged here, once, and become -EUCLEAN (corruption) or -EIO. */
#pragma once

#include <bsd/sys/tree.h>
#include <rocksdb/c.h>

#include "base/lock.h"
#include "view/rows.h"
#include "view/use.h"

/* Selects the state in which single rows are read: a transaction, a snapshot, or the newest state
 * of a view. */
struct look {
    struct txn *txn;
    const struct snap *snap;
    struct view *view;
};

struct view {
    struct look now; /* the newest state */
    /* NULL: it could not be opened again after an error. Replaced only with `change` held and while
     * no read uses it */
    rocksdb_t *db;
    char *path;
    struct view_uses uses;
    _Atomic bool has_failed; /* a write failed: no more writes until the database is opened again */
    _Atomic bool is_damaged; /* RocksDB found corruption in its files, or a row does not decode */
    _Atomic bool is_unreadable; /* a read failed for another reason */
    rocksdb_options_t *options;
    rocksdb_cache_t *cache;
    rocksdb_env_t *env;
    rocksdb_readoptions_t *read;
    rocksdb_writeoptions_t *write;
    _Atomic bool is_quiet; /* compactions are still held back */
    bool is_read_only;
    /* LOCK_VIEW: held by the thread that changes the database, during the change. No reader takes
     * it. */
    struct cairn_mutex change;
    struct cairn_mutex lock; /* LOCK_LEAF: guards `state` and `remote` */
    struct view_state state; /* of the last whole batch */
    struct remote_state_row remote;
    _Atomic bool has_dependents; /* some KEY_DEPENDENT may exist */
    _Atomic bool has_suspects;   /* some remote pack may be suspect */
};

/* A value of the database; the caller frees `data`. */
struct value {
    char *data;
    size_t len;
};

static inline void value_done(struct value *v)
{
    free(v->data);
    v->data = NULL;
}

#define _cleanup_value_ __attribute__((cleanup(value_done)))

/* Logs and frees RocksDB's message (not NULL). Returns -EUCLEAN (its files are damaged, or some are
 * missing) or -EIO. */
CAIRN_MUST_CHECK int db_error(const char *doing, char *message);
/* If `r` is -EUCLEAN, marks the view as damaged; returns `r`. */
CAIRN_MUST_CHECK int view_note_damage(struct view *view, int r);
/* Returns the error that stopped an iterator, or 0. */
CAIRN_MUST_CHECK int iter_error(struct view *view, rocksdb_iterator_t *iter);

/* Writes a batch (`options` NULL: the default ones). After an error nothing more is written until
 * view_reopen(). Call with `change` held. */
CAIRN_MUST_CHECK int db_write(struct view *view, rocksdb_writebatch_t *batch,
                              const rocksdb_writeoptions_t *options);
void db_set_compactions(struct view *view, bool enabled);
/* view.c: opens view->path and loads its state. With `change` held, or before other threads have
 * the view. */
CAIRN_MUST_CHECK int view_open_database(struct view *view, bool create, int64_t root_time);
/* use.c: the calling thread changes the database, from txn_begin() to txn_end(). */
void view_note_changing(bool begins);
/* Notes up to which sequence number the database has applied. */
void view_note_applied(struct view *view, uint64_t seq);

/* One consistent state for several reads. Any thread. */
struct snap {
    struct view *view;
    LIST_ENTRY(snap) link; /* use.c: while it is held and not read */
    unsigned readers;      /* under uses.lock */
    int error;             /* result of every read in it, or 0 */
    const rocksdb_snapshot_t *snapshot;
    rocksdb_readoptions_t *read;
};

void snap_begin(struct snap *s, struct view *view);
void snap_end(struct snap *s);
#define _cleanup_snap_ __attribute__((cleanup(snap_end)))

/* Holds a cut's snapshot again after reads in it: the counterpart of snap_resume(), also after an
 * error. Any thread, several at once. */
static inline void hold_snap_again(struct snap **s)
{
    snap_hold(*s);
}
#define _cleanup_hold_ __attribute__((cleanup(hold_snap_again)))

/* `snap` NULL: the newest state. -ENOENT. */
CAIRN_MUST_CHECK int db_get(struct view *view, const struct snap *snap, const struct key *key,
                            struct value *ret_value);
CAIRN_MUST_CHECK int db_get_inode(struct view *view, const struct snap *snap, uint64_t ino,
                                  struct inode_row *row);

/* look.c */
struct view *look_view(const struct look *look);
CAIRN_MUST_CHECK int look_get(const struct look *look, const struct key *key,
                              struct value *ret_value);
/* 1: the key exists; 0: it does not. */
CAIRN_MUST_CHECK int look_has(const struct look *look, const struct key *key);
/* The row of a chunk under KEY_CHUNK or KEY_REMOTE_CHUNK. -ENOENT. */
CAIRN_MUST_CHECK int look_chunk(const struct look *look, enum key_type type,
                                const struct chunk_name *name, struct chunk_row *ret);
/* As look_chunk(), but a chunk without a row gets an empty one. */
CAIRN_MUST_CHECK int look_known_chunk(const struct look *look, enum key_type type,
                                      const struct chunk_name *name, struct chunk_row *ret);
CAIRN_MUST_CHECK int look_remote_pack(const struct look *look, uint64_t pack,
                                      struct remote_pack_row *ret);
CAIRN_MUST_CHECK int look_pending(const struct look *look, const struct chunk_name *name,
                                  uint64_t *ret_bytes);
/* The mark of a chunk's row. -ENOENT: not marked. */
CAIRN_MUST_CHECK int look_chunk_mark(const struct look *look, const struct chunk_name *name,
                                     struct touched_row *ret);

/* Iterates over the keys that begin with a prefix, ascending, in a snapshot:
 *
 *     while ((r = scan_row(&scan)) > 0)
 *         use(&scan.row);
 *
 * Pointers are valid until the next step. */
struct scan {
    struct view *view;
    struct snap own; /* of scan_view() */
    rocksdb_iterator_t *iter;
    rocksdb_readoptions_t *read;
    struct key end; /* first key after the prefix; RocksDB points into it */
    int error;      /* of the snapshot; then `iter` is NULL */
    bool has_begun; /* the iterator is at the current key, not at the next one */
    const uint8_t *key, *value;
    size_t key_len, value_len;
    struct view_row row; /* the current key, once decoded */
};

void scan_open(struct scan *scan, const struct snap *snap, const struct key *prefix);
/* Scans all keys of a type. */
void scan_type(struct scan *scan, const struct snap *snap, enum key_type type);
/* Scans from `from` on, which need not exist; does not step over keys that were deleted before
 * it. */
void scan_open_at(struct scan *scan, const struct snap *snap, const struct key *prefix,
                  const struct key *from);
/* Scans in a new snapshot, which ends with the scan. `from` NULL: from the first key on. */
void scan_view(struct scan *scan, struct view *view, const struct key *prefix,
               const struct key *from);
void scan_view_type(struct scan *scan, struct view *view, enum key_type type);
void scan_seek(struct scan *scan, const struct key *key);
/* Moves to the next key: 1; 0: no more keys; -errno. */
CAIRN_MUST_CHECK int scan_step(struct scan *scan);
/* Decodes the current key. -EUCLEAN: it is not a row; the scan can continue. */
CAIRN_MUST_CHECK int scan_decode(struct scan *scan);
/* scan_step() and scan_decode(). */
CAIRN_MUST_CHECK int scan_row(struct scan *scan);
/* Evaluates `use` for each remaining key, or decoded row, until it is not 0; returns that value, or
 * a -errno of the scan. */
#define EACH_KEY(scan, use) SCAN_EACH(scan_step(scan), use)
#define EACH_ROW(scan, use) SCAN_EACH(scan_row(scan), use)
#define SCAN_EACH(step, use)                                                                       \
    __extension__({                                                                                \
        int each_r;                                                                                \
        while ((each_r = (step)) > 0)                                                              \
            if ((each_r = (use)) != 0)                                                             \
                break;                                                                             \
        each_r;                                                                                    \
    })
/* True if there is a current key; key and value are valid until the next step. */
bool scan_valid(struct scan *scan);
void scan_next(struct scan *scan);
/* Error that ended the scan early, or 0. */
CAIRN_MUST_CHECK int scan_error(struct scan *scan);
void scan_close(struct scan *scan);
#define _cleanup_scan_ __attribute__((cleanup(scan_close)))

/* read.c: as view_extents(), for the file in the snapshot. */
CAIRN_MUST_CHECK int snap_content(const struct snap *snap, const struct inode_row *row,
                                  uint64_t offset, uint64_t length,
                                  int (*fn)(const struct view_extent *part, void *arg), void *arg);
/* path.c: as view_path(). */
char *snap_path(const struct snap *snap, uint64_t ino);

struct change;
RB_HEAD(change_tree, change);

/* An iterator over the keys of the database that begin with a prefix. */
struct txn_seek {
    struct key prefix, end; /* the first key after those; RocksDB points into it */
    rocksdb_readoptions_t *read;
    rocksdb_iterator_t *iter; /* NULL: not open */
};

/* A chunk that a transaction adds to the list of a pack. */
struct listed_chunk {
    uint64_t pack;
    uint8_t list; /* KEY_PLACED, KEY_REMOTE_PLACED */
    struct listed listed;
};

/* The transaction of one apply. Its reads see its own writes. One thread; nothing is written before
 * txn_commit().
 *
 * Changes are in a hash table, which is several times faster than RocksDB's indexed batch and
 * stores only the last value of a key. Changes of a type are also kept in order from the first seek
 * in that type on; most applies never seek. */
struct txn {
    struct view *view;
    struct look look;          /* in it */
    struct change *changes;    /* hash table, by key */
    uint64_t seekable;         /* bit (type - 'A'): changes of the type are in `sought` */
    uint64_t cleared;          /* as a bit: all older keys of the type are removed */
    struct change_tree sought; /* by key */
    struct txn_seek seek;      /* the last one's */
    struct view_state state;
    struct remote_state_row remote;
    /* applies a newer head: only pending uploads get marks, as no change is our own */
    bool is_following;
    uint64_t cut;                       /* of the batch being applied, or of the last one */
    struct remote_pack_row remote_pack; /* as `pack`, of a remote pack */
    bool remote_pack_loaded, remote_pack_dirty;
    struct pack_row pack; /* the cached pack account, written when another one is loaded */
    bool pack_loaded, pack_dirty;
    VECTOR(struct listed_chunk) listed; /* not yet in `changes` (pack_list.h) */
    void *pending;                      /* tree of struct pending: extents waiting for their SEAL */
    const char *why;                    /* why the record cannot be applied, for the log */
    VECTOR(uint8_t) marks;              /* keys of rows to mark as changed, each after its length */
};

void txn_begin(struct txn *txn, struct view *view);
size_t txn_change_count(const struct txn *txn);
CAIRN_MUST_CHECK int txn_commit(struct txn *txn);
void txn_end(struct txn *txn);
/* Writes the changes so far, without the counters of state and remote, and drops them from memory:
 * for rows that have no meaning until the commit. The transaction must not have seeked, and must
 * not have a cached account. */
CAIRN_MUST_CHECK int txn_write_ahead(struct txn *txn);

/* Notes why the record cannot be applied. */
static inline int txn_damage(struct txn *txn, const char *why)
{
    txn->why = why;
    return -EUCLEAN;
}

CAIRN_MUST_CHECK int txn_get(struct txn *txn, const struct key *key, struct value *ret_value);
/* 0, or -ENOENT. */
CAIRN_MUST_CHECK int txn_has(struct txn *txn, const struct key *key);
void txn_put(struct txn *txn, const struct key *key, const void *value, size_t len);
/* Stores a version byte, then the bytes. */
void txn_put_bytes(struct txn *txn, const struct key *key, const void *bytes, size_t len);
void txn_delete(struct txn *txn, const struct key *key);
/* Removes all keys of a type that are in the database; those put by this transaction stay. Its
 * reads do not see the removal, and it must not seek. */
void txn_clear(struct txn *txn, enum key_type type);
/* Finds the first key >= `key` that begins with its first `prefix_len` bytes; -ENOENT. Steps only
 * over deleted keys with that prefix. Pointers are valid until the next change or seek. */
struct found {
    const uint8_t *key, *value;
    size_t key_len, value_len;
};
CAIRN_MUST_CHECK int txn_seek(struct txn *txn, const struct key *key, size_t prefix_len,
                              struct found *ret_found);

/* Marks the row of `key` as changed, if the view tracks. Call it after the change, so that the row
 * is marked once. txn_put() and txn_delete() mark rows that are published unchanged. */
void txn_touch(struct txn *txn, const struct key *key);
CAIRN_MUST_CHECK int txn_get_inode(struct txn *txn, uint64_t ino, struct inode_row *row);
void txn_put_inode(struct txn *txn, const struct inode_row *row);
void txn_put_chunk(struct txn *txn, enum key_type type, const struct chunk_row *row);
