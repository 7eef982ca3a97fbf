// SPDX-License-Identifier: Apache-2.0
/* The namespace as it is now: the view, and over it the changes that are not durable yet.
 *
 * The overlay holds an inode ("node") while it has changes that the view lacks, while it is open,
 * or while an operation holds it; and the changed entries of directories (also the absence of one).
 * Everything else is read from the view. A nascent file has no version yet: it is here and not in
 * history, and keeps its one name until its first seal.
 *
 * Of directories that were listed it keeps the entries ("clean" ones: equal to the view's),
 * up to a bound, so that listing again does not read the view.
 *
 * ns_apply() changes the overlay: for an operation that happens now and for one that a recovery
 * repeats; ns_restore_nascent() for files that were no part of history.
 *
 * Locks: LOCK_NAMESPACE, never held over reads of the view. Any thread may read. ns_apply() and
 * ns_retire() are called with the history's lock held, one at a time. */
#pragma once

#include "base/base.h"
#include "format/record.h"
#include "view/view.h"

struct ns;

struct ns *ns_new(struct view *view);
void ns_free(struct ns *ns);

/* The view changes by itself (in a mount that follows another writer): held nodes are read from it
 * each time. First of all calls. */
void ns_set_following(struct ns *ns, bool has_nodes);

struct ns_inode {
    uint64_t ino;
    struct attrs attrs;
    uint32_t nlink;
    uint64_t version; /* last sealed; 0: none */
    uint64_t parent;  /* of a directory; of others, one that holds a name; 0: not known which do */
    uint64_t blocks_bytes; /* as the view knows; the caller adds staged bytes */
    uint64_t dirty_seq;    /* last operation on it that the view lacks; 0: none */
    bool may_have_xattrs;
    bool nascent;
    bool orphan;       /* no name left, still known or open */
    bool is_elsewhere; /* another node's file: its content is not in this store */
};

/* Reads an inode; -ENOENT. May read the view. */
CAIRN_MUST_CHECK int ns_inode(struct ns *ns, uint64_t ino, struct ns_inode *ret);

/* The same, and holds the node in memory until ns_drop(): what an operation is about to change must
 * be held. */
CAIRN_MUST_CHECK int ns_hold(struct ns *ns, uint64_t ino, struct ns_inode *ret);
void ns_drop(struct ns *ns, uint64_t ino);

/* -ENOENT. May read the view. */
CAIRN_MUST_CHECK int ns_lookup(struct ns *ns, uint64_t parent, const char *name, size_t name_len,
                               struct view_entry *ret);

/* Entries with cookie > after (0: all), ascending; `fn` returns 0 to go on, 1 to stop, and lists
 * nothing itself. `expected`: about how many it will take. */
CAIRN_MUST_CHECK int ns_readdir(struct ns *ns, uint64_t parent, uint64_t after, size_t expected,
                                int (*fn)(const struct view_entry *entry, const char *name,
                                          size_t name_len, void *arg),
                                void *arg);
/* All names that the view has were made up to this sequence number: its cut, or any number where it
 * shows what several nodes wrote. */
uint64_t ns_applied(struct ns *ns);
/* -ENOTEMPTY, or 0. */
CAIRN_MUST_CHECK int ns_check_empty(struct ns *ns, uint64_t ino);

/* As view_readlink(), view_getxattr(); listxattr calls `fn` for each name. */
CAIRN_MUST_CHECK ssize_t ns_readlink(struct ns *ns, uint64_t ino, char *buf, size_t size);
CAIRN_MUST_CHECK ssize_t ns_getxattr(struct ns *ns, uint64_t ino, const char *name, size_t name_len,
                                     void *buf, size_t size);
CAIRN_MUST_CHECK int ns_listxattr(struct ns *ns, uint64_t ino,
                                  int (*fn)(const char *name, size_t name_len, void *arg),
                                  void *arg);

/* Applies an operation to the overlay. The inodes that it names must be held, or made by it; it
 * fits the state (the caller checked, or it came from the log). A NASCENT may come to a name that
 * the file `ino2` has: it covers that until its first seal, by which it replaces it. */
void ns_apply(struct ns *ns, const struct record *rec);

/* The same for a NASCENT that a recovery repeats. What happened after it may be there already, in
 * the view or from records that stood before it in a compacted log: so times of its directory that
 * are later than its own stay, up to `now` (ns), which no clock had reached before. */
void ns_restore_nascent(struct ns *ns, const struct record *rec, int64_t now);

/* The view has everything up to `seq`: changes that are not newer leave the overlay. */
void ns_retire(struct ns *ns, uint64_t seq);
/* The view has more of a file's content than before: how much is for the view to say, also of what
 * stays in the overlay because it is open, or was changed since. After ns_retire(). */
void ns_stored(struct ns *ns, uint64_t ino);

/* The name of a nascent file, for its first seal. False: not nascent, or already without a name.
 * Name is copied. */
struct ns_birth {
    uint64_t parent, cookie;
    uint64_t covers; /* the inode that has the name in the history, and is replaced; 0: none */
    char name[NAME_LEN_MAX];
    uint16_t name_len;
};
bool ns_birth(struct ns *ns, uint64_t ino, struct ns_birth *ret);

/* Are the times of this directory perhaps those of a nascent file, which history does not know?
 * *ret_time: mtime and ctime. */
bool ns_has_times_of_nascent(struct ns *ns, uint64_t ino, int64_t *ret_time);

/* Calls `fn` with the records that bring all nascent files back: NASCENT, and their xattrs.
 * `with_nameless`: those without a name, too. */
CAIRN_MUST_CHECK int ns_dump_nascent(struct ns *ns, bool with_nameless,
                                     int (*fn)(const struct record *rec, void *arg), void *arg);

/* The xattrs of a file that was nascent until now, as SETXATTR records without seq, to become
 * history. */
CAIRN_MUST_CHECK int ns_dump_xattrs(struct ns *ns, uint64_t ino,
                                    int (*fn)(const struct record *rec, void *arg), void *arg);

/* Is `ino` below directory `dir` (or the same)? Of a file that has several names, or had, the
 * answer may be yes wherever they are; where the answer is no, none is there. May read the view. */
bool ns_may_be_below(struct ns *ns, uint64_t ino, uint64_t dir);

/* The last operation that the view lacks on `ino`, on its parents, and for a directory on
 * everything below. */
uint64_t ns_last_change(struct ns *ns, uint64_t ino);

/* Bytes of clean entries that may be kept; a half of it for one directory. NS_CLEAN_BYTES unless
 * told. */
#define NS_CLEAN_BYTES (48 * MIB)
void ns_set_clean_max(struct ns *ns, size_t bytes);
/* Bytes of those that are. */
size_t ns_clean_bytes(struct ns *ns);

/* For messages; caller frees. */
char *ns_path(struct ns *ns, uint64_t ino);

/* Nodes and entries in the overlay now, clean ones apart. */
size_t ns_overlay_size(struct ns *ns);
