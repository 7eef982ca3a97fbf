// SPDX-License-Identifier: Apache-2.0
/* Which heads stay for longer than the grace: those that -o keep chooses, and those of snapshots
 * with names. A head that stays holds its runs, which it names, and its packs.
 *
 * A pack is needed by heads that follow each other: by none before it had its number, and by none
 * from the one on with which it became unreferenced, which the view knows. So heads may go between
 * two that stay, and nothing has to be read to tell which packs a head needs. */
#pragma once

#include "prefix/prefix.h"

struct remote;
struct view_remote_pack;

/* What is known of a head. */
struct known_head {
    uint64_t number;
    bool was_read;
    uint64_t epoch, cut, max_id;
    int64_t published;
    uint32_t run_count; /* 0: it has no state, or is damaged */
    uint64_t *runs;
};
DEFINE_VECTOR(known_heads, struct known_head);
struct known_name {
    char name[64];
    struct known_head head;
};
DEFINE_VECTOR(known_names, struct known_name);

/* From one pass of gc to the next. The uploader's alone. */
struct history {
    struct known_heads heads; /* ascending */
    struct known_names names; /* ascending */
};
void history_done(struct history *history);
/* This store published it. */
void history_note(struct history *history, const struct head *head);
/* The objects of names are read anew. */
void history_forget_names(struct history *history);

struct kept_head {
    uint64_t number, max_id; /* both ascend */
    int64_t modified;        /* by the medium's clock; at most that of those behind it */
    uint64_t only_bytes;     /* of packs that no other head needs */
};
DEFINE_VECTOR(kept_heads, struct kept_head);

struct kept {
    struct kept_heads heads;
    struct numbers runs; /* that they name; ascending */
    bool has_names;
    bool is_unsure; /* not all is known yet: no head may go */
};

/* `heads`: number and modified are those of a listing, ascending. */
CAIRN_MUST_CHECK int kept_choose(struct remote *remote, const struct kept_head *heads, size_t count,
                                 struct kept *ret);
void kept_done(struct kept *kept);
/* Does a head stay whose number is one of these? */
bool kept_has(const struct kept *kept, uint64_t first, uint64_t last);
bool kept_names_run(const struct kept *kept, uint64_t run);
/* Does a head that stays need the pack, which is unreferenced? By how much the medium's clocks may
 * differ matters for packs that another store published. */
bool kept_needs_pack(const struct kept *kept, const struct view_remote_pack *pack, int64_t slack);
/* Counts a pack that such a head needs, if no other one does. */
void kept_count_pack(struct kept *kept, const struct view_remote_pack *pack, int64_t slack);

/* --- keep.c ----------------------------------------------------------------------------------- */

struct keep_state {
    uint64_t cut;
    int64_t published;
    bool stays;
};
/* Sets `stays` of those that the policy chooses; ascending. Of neighbours with one cut, which are
 * one state, only the last is looked at. */
void keep_choose(const struct head_keep *keep, struct keep_state *states, size_t count);
