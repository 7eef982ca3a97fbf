// SPDX-License-Identifier: Apache-2.0
/* Which heads stay longer than the grace: those that -o keep chooses, and those of named snapshots.
 * A head that stays holds the runs that it names, and its packs.
 *
 * A pack is needed by consecutive heads: by none before its number was assigned, and by none from
 * the head on with which it became unreferenced, which the view records. So heads between two that
 * stay may be deleted, and no object has to be read to find which packs a head needs. */
#pragma once

#include "prefix/prefix.h"

struct snapshots;
struct view_remote_pack;

struct kept_head {
    uint64_t number, max_id; /* both ascend */
    int64_t modified;        /* by the medium's clock; at most that of the heads behind it */
    uint64_t only_bytes;     /* of packs that no other head needs */
};
DEFINE_VECTOR(kept_heads, struct kept_head);

struct kept {
    struct kept_heads heads;
    struct numbers runs; /* runs that the heads name; ascending */
    bool has_names;
    bool is_unsure; /* not all heads and names are known yet: no head may be deleted */
};

/* `heads`: number and modified are those of a listing, ascending. Blocks. */
CAIRN_MUST_CHECK int snapshots_choose(struct snapshots *snapshots, const struct kept_head *heads,
                                      size_t count, struct kept *ret);
void kept_done(struct kept *kept);
/* Returns whether a head with a number from `first` to `last` stays. */
bool kept_has(const struct kept *kept, uint64_t first, uint64_t last);
bool kept_names_run(const struct kept *kept, uint64_t run);
/* Returns whether a head that stays needs the pack, which is unreferenced. `slack`: by how much the
 * medium's clocks may differ; this matters for packs that another store published. */
bool kept_needs_pack(const struct kept *kept, const struct view_remote_pack *pack, int64_t slack);
/* Adds the pack to the only_bytes of the head that needs it, if exactly one head does. */
void kept_count_pack(struct kept *kept, const struct view_remote_pack *pack, int64_t slack);
