// SPDX-License-Identifier: Apache-2.0
/* The journal (journal.c), the head with which it begins (anchor.c), and the view that follows it
 * (catch_up.c): for the components that share the store. */
#pragma once

#include "base/base.h"
#include "format/head.h"
#include "format/pack.h"
#include "format/segment.h"

struct commit;
struct journal;
struct local;

/* Where the journal is damaged, although batches follow. */
struct journal_damage {
    bool found;
    uint64_t segment, offset;
    uint64_t behind;  /* whole batches after the damage, in its segment */
    const char *what; /* static */
};

/* The result of journal_read(). */
struct journal_found {
    bool is_empty;    /* there is no segment */
    uint64_t cut_seq; /* of the last batch */
    int64_t time;     /* of its last operation; 0: not known */
    uint8_t chain[CHAIN_LEN];
    uint64_t epoch; /* newest epoch of any segment */
    uint64_t bytes; /* of all segment files */
    struct journal_damage damage;
    bool was_skipped; /* part of it is damaged, but the view has those batches */
};

/* The state with which the journal begins, if not with an empty history. */
struct anchor {
    bool exists;
    uint64_t number; /* number of the head with this state; 0: its remote is gone */
    uint64_t epoch;
    uint64_t cut;
    int64_t time; /* of its last operation, or later */
    uint8_t chain[CHAIN_LEN];
};

/* --- journal.c -------------------------------------------------------------------------------- */

/* Reads the segments, from the anchor on if there is one, and calls `fn` (or NULL) for each batch
 * in order: journal_found(). With `from` (0: all), segments that end before that number are skipped
 * without verification, and damage before it is ignored. -EUCLEAN with found.damage: a batch is
 * damaged that is not at the end. */
struct journal_batch {
    struct batch_header header;
    uint8_t chain[CHAIN_LEN]; /* chain hash including this batch */
    const void *records;
};
CAIRN_MUST_CHECK int journal_read(struct journal *journal, uint64_t from,
                                  int (*fn)(const struct journal_batch *batch, void *arg),
                                  void *arg);
/* The result of the last journal_read(). For recovery, which precedes the writeback thread. */
struct journal_found journal_found(const struct journal *journal);
/* Describes the damage found, for a person; caller frees; NULL: none. */
char *journal_explain_damage(const struct journal *journal);
/* Begins a segment for the store's epoch: durable on return. */
CAIRN_MUST_CHECK int journal_begin(struct journal *journal);
/* The state of a head replaces the store's own: the journal begins anew from that state. Writeback
 * thread only. */
CAIRN_MUST_CHECK int journal_begin_anew(struct journal *journal, const struct head *head);
/* Removes segments whose batches are all at or before `cut`, and thus in a snapshot. */
void journal_trim(struct journal *journal, uint64_t cut);
/* Removes all segments. */
CAIRN_MUST_CHECK int journal_remove_all(struct journal *journal);

/* --- anchor.c --------------------------------------------------------------------------------- */

/* From now on the journal begins with this head. For recovery and the writeback thread. */
void journal_set_anchor(struct journal *journal, const struct head *head);
/* The journal begins with an empty history. */
void journal_forget_anchor(struct journal *journal);
const struct anchor *journal_anchor(const struct journal *journal);
/* Reads the newest head that this store knows to be published; -ENOENT. */
CAIRN_MUST_CHECK int local_head_read(const struct local *local, struct head *ret_head);
CAIRN_MUST_CHECK int local_head_write(const struct local *local, const struct head *head);
/* STORE/head of a remote that is empty now: it only records where the journal begins. */
bool local_head_is_lost(const struct head *head);
/* Name of the remote to which this store published; NULL: none. Caller frees. */
char *local_remote_name(const struct local *local);
CAIRN_MUST_CHECK int local_remote_name_write(const struct local *local, const char *name);
/* Call before the view is rebuilt from a head: records durably that it was not yet compared with
 * the packs in the remote. */
CAIRN_MUST_CHECK int local_ask_listing(const struct local *local);
/* Was local_ask_listing() called, or were chunks of bad packs moved? */
bool local_listing_is_asked(const struct local *local);
/* Clears both; need not be durable. */
CAIRN_MUST_CHECK int local_end_listing(const struct local *local);

/* --- catch_up.c ------------------------------------------------------------------------------- */

enum replayed {
    REPLAYED,        /* the view has applied the whole journal */
    REPLAY_FOREIGN,  /* the view is not of this journal */
    REPLAY_LOST_END, /* the journal ends before the state of the view */
};
/* Applies the journal to the view, which may have part of it, up to its end; `from`: as for
 * journal_read(). */
CAIRN_MUST_CHECK int commit_replay_journal(struct commit *commit, uint64_t from,
                                           enum replayed *ret);
/* Does the view not know the head with which the journal begins? */
bool journal_view_forgot_head(const struct journal *journal);
/* Lists a pack's chunks as described at struct view_batch; `arg`: the struct commit. */
int commit_pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                      void *fn_arg, bool *ret_was_made, void *arg);
