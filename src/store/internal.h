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
    struct local_snapshots *snapshots; /* NULL: it is not open yet, or only read */
    uint64_t shown;                    /* store_open_snapshot(): the number; else 0 */
    _Atomic uint64_t next_ino;
    bool met_damage;   /* by this start: unreferenced files are set aside, not removed */
    bool view_is_new;  /* this start made it, since the one before was damaged or missing */
    bool view_is_kept; /* this start should have, and could not: it goes on with a damaged one */
    /* the recovery verifies it from its beginning, not only from where the view is */
    bool whole_journal;
    uint64_t *nameless; /* inodes without a name that a recovery left alive; not changed after it */
    size_t nameless_count;
    _Atomic uint64_t history_bytes; /* as store_history_bytes() found them last */
    _Atomic int64_t history_due;    /* when they may be counted again; INT64_MAX: they are being */
};

/* --- store.c ---------------------------------------------------------------------------------- */

/* As store_open(), but that a store which is behind the union of all nodes is given, too. `serves`:
 * processes use the mount already. */
struct back;
CAIRN_MUST_CHECK int store_open_once(const struct store_options *options, const struct back *back,
                                     bool serves, struct store **ret, bool *ret_again,
                                     char **ret_text);
/* With nothing open yet; store_discard() in any case. */
struct store *store_new(const struct store_options *options);
/* Opens superblock, packs and remote; `create`: each may be made. */
CAIRN_MUST_CHECK int store_open_parts(struct store *store, bool create, char **ret_text);
/* `store`: for which it is made, if there is none; NULL: it is not. */
CAIRN_MUST_CHECK int store_load_superblock(struct local *local, const struct store *store,
                                           char **ret_text);

/* The durable part alone, the stage left as it is (for checks and readers); `whole_journal`: see
 * struct store. */
CAIRN_MUST_CHECK int store_open_medium(const struct store_options *options, bool whole_journal,
                                       struct store **ret, char **ret_text);
/* Without its view. */
CAIRN_MUST_CHECK int store_open_bare(const struct store_options *options, struct store **ret,
                                     char **ret_text);
void store_discard(struct store *store);
/* Did this opening meet damage of the view? It may be met anywhere, also where another meaning is
 * given to the error. None of the steps is lost by being repeated: the next opening has another
 * view. */
bool store_must_open_again(const struct store *store);
/* The newest head of options->remote, in a directory that is empty, for reading alone. */
CAIRN_MUST_CHECK int store_open_remote(const struct store_options *options, struct store **ret,
                                       char **ret_text);

/* --- open_past.c ------------------------------------------------------------------------------ */

/* A snapshot of the store options->path, which may be mounted meanwhile. */
CAIRN_MUST_CHECK int store_open_snapshot(const struct store_options *options, struct store **ret,
                                         char **ret_text);

/* The same as store_open_remote(), without a state yet. */
CAIRN_MUST_CHECK int store_open_heads(const struct store_options *options, struct store **ret,
                                      char **ret_text);

/* --- recover.c, recover_view.c, recover_head.c ------------------------------------------------ */

CAIRN_MUST_CHECK int recover(struct store *store, char **ret_text);
CAIRN_MUST_CHECK int recover_view(struct store *store, char **ret_text);
/* Fills the new, empty view with the state of a head whose runs are in STORE/runs, and with the
 * places of the packs that lie on NVMe, but for those that batches after the head's cut name. */
CAIRN_MUST_CHECK int recover_adopt(struct store *store, const struct head *head);

/* Fills local->view, which is new and empty, with the state of a head whose runs are in its
 * directory. */
CAIRN_MUST_CHECK int recover_rows(struct local *local, const struct head *head);

/* --- aside.c ---------------------------------------------------------------------------------- */

/* Nothing of a store is unlinked because it could not be read. What recovery does not understand
 * goes to STORE/lost+found. */
#define ASIDE_DIRECTORY "lost+found"
/* Moves STORE/name there; it may be a directory. Durable with aside_sync(). -ENOENT: it is
 * not there. */
CAIRN_MUST_CHECK int set_aside(const struct store *store, const char *name);
/* Makes the directory, durably. */
CAIRN_MUST_CHECK int aside_begin(const struct store *store);
CAIRN_MUST_CHECK int aside_sync(const struct store *store);
/* The path there of STORE/name. Caller frees. */
char *aside_path(const struct store *store, const char *name);

/* --- repair.c --------------------------------------------------------------------------------- */

/* A repair truncated something since the last mount: what nothing names may be named by that. Until
 * repair_settled(). */
bool repair_was_made(const struct store *store);
CAIRN_MUST_CHECK int repair_settled(const struct store *store);
