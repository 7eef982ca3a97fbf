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

/* Where the journal cannot be read on, although it goes on. */
struct journal_damage {
    bool found;
    uint64_t segment, offset;
    uint64_t behind;  /* whole batches behind it, in its segment */
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
    bool was_skipped; /* some of it is damaged, and the view has those batches */
};

/* Where the journal begins, if not with an empty history. */
struct anchor {
    bool exists;
    uint64_t number; /* of the head that says so; 0: its remote is gone */
    uint64_t epoch;
    uint64_t cut;
    int64_t time; /* of its last operation, or later */
    uint8_t chain[CHAIN_LEN];
};

/* --- journal.c -------------------------------------------------------------------------------- */

/* Reads the segments, from the anchor on if there is one, and calls `fn` (or NULL) for each batch
 * in order: journal_found(). With `from` (0: all), segments that end before that number are left
 * out, and what they hold is not verified; damage before it is passed over. -EUCLEAN with
 * found.damage: something is damaged, and it is not the end. */
struct journal_batch {
    struct batch_header header;
    uint8_t chain[CHAIN_LEN]; /* with it */
    const void *records;
};
CAIRN_MUST_CHECK int journal_read(struct journal *journal, uint64_t from,
                                  int (*fn)(const struct journal_batch *batch, void *arg),
                                  void *arg);
/* The result of the last journal_read(): for recovery, which comes before the writeback thread. */
struct journal_found journal_found(const struct journal *journal);
/* The damage that it found, for people: caller frees; NULL: none. */
char *journal_explain_damage(const struct journal *journal);
/* Begins a segment for the store's epoch: durable on return. */
CAIRN_MUST_CHECK int journal_begin(struct journal *journal);
/* The state of a head takes the place of the store's own: the journal begins anew, with it. In the
 * writeback thread. */
CAIRN_MUST_CHECK int journal_begin_anew(struct journal *journal, const struct head *head);
/* Removes segments whose batches are all at or before `cut`, which a snapshot has. */
void journal_trim(struct journal *journal, uint64_t cut);
/* Removes all of it. */
CAIRN_MUST_CHECK int journal_remove_all(struct journal *journal);

/* --- anchor.c --------------------------------------------------------------------------------- */

/* Where the journal begins: with this head, from now on. For recovery, and the writeback thread. */
void journal_set_anchor(struct journal *journal, const struct head *head);
/* It begins with an empty history. */
void journal_forget_anchor(struct journal *journal);
const struct anchor *journal_anchor(const struct journal *journal);
/* The newest head that this store knows to be published; -ENOENT. */
CAIRN_MUST_CHECK int local_head_read(const struct local *local, struct head *ret_head);
CAIRN_MUST_CHECK int local_head_write(const struct local *local, const struct head *head);
/* STORE/head of a remote that holds nothing any more: it only says where the journal begins. */
bool local_head_is_lost(const struct head *head);
/* Name of the remote where this store published; NULL: none. Caller frees. */
char *local_remote_name(const struct local *local);
CAIRN_MUST_CHECK int local_remote_name_write(const struct local *local, const char *name);
/* Before the view is made anew from a head: durably, it was never compared with the packs of the
 * remote. */
CAIRN_MUST_CHECK int local_ask_listing(const struct local *local);
/* Was that said, or that chunks of bad packs were moved? */
bool local_listing_is_asked(const struct local *local);
/* Neither holds any more; that need not be durable. */
CAIRN_MUST_CHECK int local_end_listing(const struct local *local);

/* --- catch_up.c ------------------------------------------------------------------------------- */

enum replayed {
    REPLAYED,        /* the view has all of the journal */
    REPLAY_FOREIGN,  /* it is not the view of this journal */
    REPLAY_LOST_END, /* the journal ends before the state that the view has */
};
/* The view, which may have a part of it, applies the journal to its end; `from`: as for
 * journal_read(). */
CAIRN_MUST_CHECK int commit_replay_journal(struct commit *commit, uint64_t from,
                                           enum replayed *ret);
/* Does it not know of the head with which the journal begins? */
bool journal_view_forgot_head(const struct journal *journal);
/* Lists a pack's chunks, as struct view_batch says; `arg`: the struct commit. */
int commit_pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                      void *fn_arg, bool *ret_was_made, void *arg);
