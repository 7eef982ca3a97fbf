// SPDX-License-Identifier: Apache-2.0
/* Inside snapshots/: its state, and the known contents of heads and names. */
#pragma once

#include "snapshots/kept.h"
#include "snapshots/policy.h"
#include "snapshots/snapshots.h"

/* The parts of a head that were read. */
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

struct snapshots {
    struct prefix *prefix;
    struct snapshots_remote remote;

    struct cairn_mutex lock; /* LOCK_LEAF */
    struct naming naming;
    struct naming_state naming_state;
    struct kept_heads kept; /* of the last pass of gc */
    uint64_t kept_bytes;
    struct numbers held; /* numbers of heads, in any order, some more than once */

    /* Used only by the thread that publishes. */
    struct known_heads heads; /* ascending */
    struct known_names names; /* ascending */
    bool told_names;          /* a head of this session says that there may be names */
};

/* --- known.c ---------------------------------------------------------------------------------- */

void known_done(struct snapshots *snapshots);
/* The objects of names are read again by the next pass. */
void known_forget_names(struct snapshots *snapshots);
/* Reads each listed head that is not known yet, and drops the heads that are not listed. *ret_all:
 * the known heads are all of the list, in its order; else the next pass reads the rest. */
CAIRN_MUST_CHECK int known_learn_heads(struct snapshots *snapshots, const struct kept_head *heads,
                                       size_t count, bool *ret_all);
/* The same for names; *ret_any: there are names. The content of a damaged name is not known. */
CAIRN_MUST_CHECK int known_learn_names(struct snapshots *snapshots, bool *ret_any, bool *ret_all);
