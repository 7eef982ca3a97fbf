// SPDX-License-Identifier: Apache-2.0
/* Which heads stay for longer than the grace: those that -o keep chooses, and those of snapshots
 * with names. A head that stays holds its runs, which it names, and its packs.
 *
 * A pack is needed by heads that follow each other: by none before it had its number, and by none
 * from the one on with which it became unreferenced, which the view knows. So heads may go between
 * two that stay, and nothing has to be read to tell which packs a head needs. */
#pragma once

#include "prefix/prefix.h"

struct snapshots;
struct view_remote_pack;

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

/* `heads`: number and modified are those of a listing, ascending. Blocks. */
CAIRN_MUST_CHECK int snapshots_choose(struct snapshots *snapshots, const struct kept_head *heads,
                                      size_t count, struct kept *ret);
void kept_done(struct kept *kept);
/* Does a head stay whose number is one of these? */
bool kept_has(const struct kept *kept, uint64_t first, uint64_t last);
bool kept_names_run(const struct kept *kept, uint64_t run);
/* Does a head that stays need the pack, which is unreferenced? By how much the medium's clocks may
 * differ matters for packs that another store published. */
bool kept_needs_pack(const struct kept *kept, const struct view_remote_pack *pack, int64_t slack);
/* Counts a pack that such a head needs, if no other one does. */
void kept_count_pack(struct kept *kept, const struct view_remote_pack *pack, int64_t slack);
