// SPDX-License-Identifier: Apache-2.0
/* Inside store/: how a store is opened, recovered and repaired. */
#pragma once

#include "base/vector.h"
#include "commit/shared.h"
#include "store/store.h"

DEFINE_VECTOR(chunk_names, struct chunk_name);

/* State of store/ alone. */
struct store_own {
    struct job *job;
    struct lookback *lookback;         /* also without options.history; NULL: none */
    struct local_snapshots *snapshots; /* NULL: it is not open yet, or the store is only read */
    uint64_t shown; /* store_open_snapshot(): the number of the snapshot; else 0 */
    _Atomic uint64_t next_ino;
    bool met_damage;  /* in this start: unreferenced files are set aside, not removed */
    bool view_is_new; /* made by this start, since the old view was damaged or missing */
    /* should have been made anew by this start, but could not: a damaged view is used */
    bool view_is_kept;
    /* the recovery verifies the journal from its beginning, not only from the view's state on */
    bool whole_journal;
    /* inodes without a name that a recovery left alive; not changed afterwards */
    uint64_t *nameless;
    size_t nameless_count;
    _Atomic uint64_t history_bytes; /* as store_history_bytes() counted them last */
    /* when they may be counted again; INT64_MAX: they are being counted */
    _Atomic int64_t history_due;
};

/* --- store.c ---------------------------------------------------------------------------------- */

/* As store_open(), but also returns a store that is behind the union of all nodes. `serves`:
 * processes use the mount already. */
struct back;
CAIRN_MUST_CHECK int store_open_once(const struct store_options *options, const struct back *back,
                                     bool serves, struct store **ret, bool *ret_again,
                                     char **ret_text);
/* Nothing is open yet; the caller calls store_discard() in any case. */
struct store *store_new(const struct store_options *options);
/* Opens superblock, packs and remote; `create`: each may be created. */
CAIRN_MUST_CHECK int store_open_parts(struct store *store, bool create, char **ret_text);
/* `store`: for which a missing superblock is created; NULL: it is not created. */
CAIRN_MUST_CHECK int store_load_superblock(struct local *local, const struct store *store,
                                           char **ret_text);

/* Opens only the durable part, and leaves the stage as it is (for checks and readers);
 * `whole_journal`: see struct store. */
CAIRN_MUST_CHECK int store_open_medium(const struct store_options *options, bool whole_journal,
                                       struct store **ret, char **ret_text);
/* As store_open_medium(), without the view. */
CAIRN_MUST_CHECK int store_open_bare(const struct store_options *options, struct store **ret,
                                     char **ret_text);
void store_discard(struct store *store);
/* Returns whether this opening met damage of the view. The damage may be met in any step, also
 * where its error is reported as another one. Repeating a step loses nothing: the next opening has
 * another view. */
bool store_must_open_again(const struct store *store);
/* Opens the newest head of options->remote, in an empty directory, only for reading. */
CAIRN_MUST_CHECK int store_open_remote(const struct store_options *options, struct store **ret,
                                       char **ret_text);

/* --- open_past.c ------------------------------------------------------------------------------ */

/* Opens a snapshot of the store options->path, which may be mounted meanwhile. */
CAIRN_MUST_CHECK int store_open_snapshot(const struct store_options *options, struct store **ret,
                                         char **ret_text);

/* As store_open_remote(), without a state yet. */
CAIRN_MUST_CHECK int store_open_heads(const struct store_options *options, struct store **ret,
                                      char **ret_text);

/* --- recover.c, recover_view.c, recover_head.c ------------------------------------------------ */

CAIRN_MUST_CHECK int recover(struct store *store, char **ret_text);
CAIRN_MUST_CHECK int recover_view(struct store *store, char **ret_text);
/* Fills the new, empty view with the state of a head whose runs are in STORE/runs, and with the
 * places of the packs on NVMe, except those that batches after the head's cut name. */
CAIRN_MUST_CHECK int recover_adopt(struct store *store, const struct head *head);

/* Fills local->view, which is new and empty, with the state of a head whose runs are in its
 * directory. */
CAIRN_MUST_CHECK int recover_rows(struct local *local, const struct head *head);

/* --- aside.c ---------------------------------------------------------------------------------- */

/* No file of a store is unlinked because it could not be read. Files that recovery cannot interpret
 * are moved to STORE/lost+found. */
#define ASIDE_DIRECTORY "lost+found"
/* Moves STORE/name there; it may be a directory. Durable with aside_sync(). -ENOENT: it does not
 * exist. */
CAIRN_MUST_CHECK int set_aside(const struct store *store, const char *name);
/* Creates the directory, durably. */
CAIRN_MUST_CHECK int aside_begin(const struct store *store);
CAIRN_MUST_CHECK int aside_sync(const struct store *store);
/* Returns the path in it of STORE/name. Caller frees. */
char *aside_path(const struct store *store, const char *name);

/* --- repair.c --------------------------------------------------------------------------------- */

/* Returns whether a repair truncated the journal since the last mount: files that nothing refers to
 * may be named by the removed part. Until repair_settled(). */
bool repair_was_made(const struct store *store);
CAIRN_MUST_CHECK int repair_settled(const struct store *store);
