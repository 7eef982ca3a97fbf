// SPDX-License-Identifier: Apache-2.0
/* The current namespace: the view, and over it the changes that are not durable yet.
 *
 * The overlay holds an inode ("node") while it has changes that the view lacks, while it is open,
 * or while an operation holds it; and the changed entries of directories (also the absence of an
 * entry). All other inodes and entries are read from the view. A nascent file has no version yet:
 * the overlay has it and history does not, and it keeps its one name until its first seal.
 *
 * Of directories that were listed the overlay keeps the entries ("clean" ones: equal to the
 * view's), up to a bound, so that listing again does not read the view.
 *
 * ns_apply() changes the overlay, both for an operation that happens now and for one that a
 * recovery repeats; ns_restore_nascent() restores files that were no part of history.
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

/* The view changes by itself (in a mount that follows another writer): held nodes are read from the
 * view each time. Called before all other calls. */
void ns_set_following(struct ns *ns, bool has_nodes);

struct ns_inode {
    uint64_t ino;
    struct attrs attrs;
    uint32_t nlink;
    uint64_t version; /* last sealed; 0: none */
    /* of a directory; of other files, one directory that has a name of it; 0: not known which */
    uint64_t parent;
    uint64_t blocks_bytes; /* according to the view; the caller adds staged bytes */
    uint64_t dirty_seq;    /* last operation on the inode that the view lacks; 0: none */
    bool may_have_xattrs;
    bool nascent;
    bool orphan;       /* no name left, but still known or open */
    bool is_elsewhere; /* another node's file: its content is not in this store */
};

/* Reads an inode; -ENOENT. May read the view. */
CAIRN_MUST_CHECK int ns_inode(struct ns *ns, uint64_t ino, struct ns_inode *ret);

/* As ns_inode(), and holds the node in memory until ns_drop(): an inode must be held before an
 * operation changes it. */
CAIRN_MUST_CHECK int ns_hold(struct ns *ns, uint64_t ino, struct ns_inode *ret);
void ns_drop(struct ns *ns, uint64_t ino);

/* -ENOENT. May read the view. */
CAIRN_MUST_CHECK int ns_lookup(struct ns *ns, uint64_t parent, const char *name, size_t name_len,
                               struct view_entry *ret);

/* Calls `fn` for entries with cookie > after (0: all), ascending; `fn` returns 0 to continue, 1 to
 * stop, and must not list directories itself. `expected`: about how many entries it will accept. */
CAIRN_MUST_CHECK int ns_readdir(struct ns *ns, uint64_t parent, uint64_t after, size_t expected,
                                int (*fn)(const struct view_entry *entry, const char *name,
                                          size_t name_len, void *arg),
                                void *arg);
/* Returns a sequence number up to which the view has all names: its cut, or any number if it shows
 * the writes of several nodes. */
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

/* Applies an operation to the overlay. The inodes that it names must be held, or be created by it;
 * it must be valid in the current state (the caller checked, or it comes from the log). A NASCENT
 * may use a name that the file `ino2` has: the new file covers the old one until its first seal, by
 * which it replaces the old one. */
void ns_apply(struct ns *ns, const struct record *rec);

/* As ns_apply(), for a NASCENT that a recovery repeats. Later operations may already be applied, in
 * the view or from records that stood before the NASCENT in a compacted log: so times of its
 * directory that are later than its own stay, up to `now` (ns), which no clock had reached
 * before. */
void ns_restore_nascent(struct ns *ns, const struct record *rec, int64_t now);

/* The view has all operations up to `seq`: changes that are not newer leave the overlay. */
void ns_retire(struct ns *ns, uint64_t seq);
/* The view has more of a file's content than before: the stored size is read from the view again,
 * also for nodes that stay in the overlay because they are open, or were changed since. Called
 * after ns_retire(). */
void ns_stored(struct ns *ns, uint64_t ino);

/* Returns the name of a nascent file, for its first seal, as a copy. False: the file is not
 * nascent, or has no name any more. */
struct ns_birth {
    uint64_t parent, cookie;
    uint64_t covers; /* the inode that has the name in the history, and is replaced; 0: none */
    char name[NAME_LEN_MAX];
    uint16_t name_len;
};
bool ns_birth(struct ns *ns, uint64_t ino, struct ns_birth *ret);

/* Returns whether the times of this directory may be those of a nascent file, which history does
 * not have. *ret_time: mtime and ctime. */
bool ns_has_times_of_nascent(struct ns *ns, uint64_t ino, int64_t *ret_time);

/* Calls `fn` with the records that restore all nascent files: NASCENT, and their xattrs.
 * `with_nameless`: also files without a name. */
CAIRN_MUST_CHECK int ns_dump_nascent(struct ns *ns, bool with_nameless,
                                     int (*fn)(const struct record *rec, void *arg), void *arg);

/* Calls `fn` with the xattrs of a file that was nascent until now, as SETXATTR records without seq,
 * for the history. */
CAIRN_MUST_CHECK int ns_dump_xattrs(struct ns *ns, uint64_t ino,
                                    int (*fn)(const struct record *rec, void *arg), void *arg);

/* Returns whether `ino` is below directory `dir` (or the same). For a file that has, or had,
 * several names the answer may be true wherever they are; if it is false, none of its names is
 * below. May read the view. */
bool ns_may_be_below(struct ns *ns, uint64_t ino, uint64_t dir);

/* Returns the last operation that the view lacks on `ino`, on its parents, and for a directory on
 * everything below. */
uint64_t ns_last_change(struct ns *ns, uint64_t ino);

/* Limit of the bytes of clean entries; half of it for one directory. NS_CLEAN_BYTES by default. */
#define NS_CLEAN_BYTES (48 * MIB)
void ns_set_clean_max(struct ns *ns, size_t bytes);
/* Returns the bytes of clean entries now. */
size_t ns_clean_bytes(struct ns *ns);

/* For messages; caller frees. */
char *ns_path(struct ns *ns, uint64_t ino);

/* Returns the nodes and entries in the overlay now, without clean ones. */
size_t ns_overlay_size(struct ns *ns);
