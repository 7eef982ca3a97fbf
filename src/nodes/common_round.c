// SPDX-License-Identifier: Apache-2.0
/* Chooses the union's next round: one that all stays determine, and that contradicts no hint of a
 * job. */
#include "base/log.h"
#include "nodes/stays.h"

/* --- hints ------------------------------------------------------------------------------------ */

static bool is_of(const struct stay *stay, uint32_t node)
{
    return stay->node == node && !stay->is_unknown;
}

/* The newest operation of the stay that the union has at the round. */
static uint64_t merged_at(const struct stay *stay, uint64_t round)
{
    size_t count = stay_feeds_up_to(stay, round);
    return count > 0 ? stay->feeds.at[count - 1].to : stay->has_row ? stay->row.merged : 0;
}

static bool has_operation(const struct stays *stays, uint32_t node, uint64_t number, uint64_t round)
{
    for (size_t i = 0; i < stays->list.count; i++) {
        const struct stay *stay = &stays->list.at[i];
        if (is_of(stay, node) && merged_at(stay, round) >= number)
            return true;
    }
    return false;
}

/* Returns the last round that the node has reported; 0: none. */
static uint64_t told_by(const struct stays *stays, uint32_t node)
{
    uint64_t hi = 0;
    for (size_t i = 0; i < stays->list.count; i++) {
        const struct stay *stay = &stays->list.at[i];
        if (is_of(stay, node))
            hi = max_u64(hi, stay_told_up_to(stay));
    }
    return hi;
}

/* Returns whether the union would have the hint at this round, but lack its operation. Not for an
 * unknown node, or one that has ended: it reports no more operations. */
static bool is_contradicted(const struct stays *stays, const struct hint *hint, uint64_t round)
{
    uint32_t node = stays_node_of(stays, hint->number >> SEQ_EPOCH_SHIFT);
    if (hint->lo > round || node == 0 || has_operation(stays, node, hint->number, round))
        return false;
    uint64_t told = told_by(stays, node);
    return told != 0 &&
           (has_operation(stays, node, hint->number, UINT64_MAX) || told < hint->hi + HINT_ROUNDS);
}

/* The newest round up to `round` that contradicts no hint; it may be behind the union's. */
static uint64_t hints_round(const struct stays *stays, uint64_t round)
{
    for (size_t i = 0; i < stays->hints.count; i++)
        if (is_contradicted(stays, &stays->hints.at[i], round))
            round = stays->hints.at[i].lo - 1;
    return round;
}

/* --- the common round ------------------------------------------------------------------------- */

uint64_t stays_round(const struct stays *stays, uint64_t round, uint64_t cut)
{
    bool changes = true;
    while (changes && round > cut) {
        changes = false;
        for (size_t i = 0; i < stays->list.count; i++) {
            uint64_t at = stay_round(&stays->list.at[i], round, cut);
            changes = changes || at < round;
            round = min_u64(round, at);
        }
        uint64_t at = hints_round(stays, round);
        changes = changes || at < round;
        round = at;
    }
    return round > cut && stays->list.count > 0 ? round : 0;
}

/* --- naming ----------------------------------------------------------------------------------- */

/* Returns a stay that has reported all operations up to the hint's last round, without the hint's
 * operation; NULL: none. */
static const struct stay *find_contradicting(const struct stays *stays, const struct hint *hint)
{
    uint32_t node = stays_node_of(stays, hint->number >> SEQ_EPOCH_SHIFT);
    for (size_t i = 0; i < stays->list.count && node != 0; i++) {
        const struct stay *stay = &stays->list.at[i];
        if (is_of(stay, node) && stay_told_up_to(stay) >= hint->hi &&
            !has_operation(stays, node, hint->number, hint->hi))
            return stay;
    }
    return NULL;
}

void stays_say_contradictions(struct stays *stays)
{
    for (size_t i = 0; i < stays->hints.count; i++) {
        struct hint *hint = &stays->hints.at[i];
        const struct stay *other = hint->is_said ? NULL : find_contradicting(stays, hint);
        const struct stay *teller = stays_find(stays, hint->teller);
        if (!other || !teller)
            continue;
        hint->is_said = true;
        log_warn("nodes: the clocks of %s (epoch %llu) and %s (epoch %llu) contradict each other: "
                 "by these, a marker of the first came before operations of the second that its "
                 "job waited for. No state shows it without them",
                 teller->holder, (unsigned long long)teller->epoch, other->holder,
                 (unsigned long long)other->epoch);
    }
}
