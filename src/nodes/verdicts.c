// SPDX-License-Identifier: Apache-2.0
/* Which nodes fell silent, and which stays are over although their nodes did not leave: objects
 * ended/EPOCH. A verdict is final: its node numbers nothing more once it has seen it, and after the
 * lease even if it has not. */
#include "nodes/stays.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "nodes/node.h"

#define ENDED "ended"
#define JUDGE_NS_MAX (5ll * SECOND_NS)
#define EARLY_NS (SECOND_NS + 2 * NODE_CLOCK_ERROR_MAX_NS) /* the medium may tell whole seconds */

/* --- silence ---------------------------------------------------------------------------------- */

static void say_silent(const struct stay *stay, int64_t age)
{
    if (stay->is_silent && stay->why)
        return; /* the reason was logged */
    if (stay->is_silent)
        log_warn("nodes: %s (epoch %llu) was not heard of for %.0f s: what all nodes write shows "
                 "elsewhere only when it is back",
                 stay->holder, (unsigned long long)stay->epoch, (double)age / 1e9);
    else
        log_info("nodes: %s (epoch %llu) is heard again", stay->holder,
                 (unsigned long long)stay->epoch);
}

static int64_t judge_interval(const struct stays *stays)
{
    return (int64_t)min_u64(JUDGE_NS_MAX, (uint64_t)stays->lease_ns / 8);
}

/* Nodes should have the same lease; a node with a longer one may continue for so long. */
static int64_t lease_of(const struct stays *stays, const struct stay *stay)
{
    return stay->lease_ns > stays->lease_ns ? stay->lease_ns : stays->lease_ns;
}

int64_t stays_lease(const struct stays *stays)
{
    int64_t lease = stays->lease_ns;
    for (size_t i = 0; i < stays->list.count; i++)
        lease = (int64_t)max_u64((uint64_t)lease, (uint64_t)stays->list.at[i].lease_ns);
    return lease;
}

static bool any_is_silent(const struct stays *stays)
{
    for (size_t i = 0; i < stays->list.count; i++)
        if (stays->list.at[i].is_silent)
            return true;
    return false;
}

/* A node that was silent may report again by now: no verdict is based on an older check. */
int stays_judge(struct stays *stays, int64_t now_monotonic)
{
    int64_t now;
    if (now_monotonic < stays->judge_at && !any_is_silent(stays))
        return 0;
    TRY(stays->prefix->tier->ops->now(stays->prefix->tier, &now));
    stays->judge_at = now_monotonic + judge_interval(stays);
    for (size_t i = 0; i < stays->list.count; i++) {
        struct stay *stay = &stays->list.at[i];
        int64_t age = now - stay->heard_of;
        bool is_silent = !stay_has_left(stay) && (stay->why || age > lease_of(stays, stay));
        stay->age_ns = age;
        bool changes = is_silent != stay->is_silent;
        stay->is_silent = is_silent;
        if (changes)
            say_silent(stay, age);
    }
    return 0;
}

void stay_say_early(struct stay *stay, const struct told_wish *wish)
{
    bool ends = wish->told.flags & FEED_LEAVES;
    int64_t ahead = ends ? 0 : (int64_t)wish->told.hi * NODE_ROUND_NS - wish->modified;
    if (stay->is_early || wish->modified == 0 || ahead < EARLY_NS)
        return;
    stay->is_early = true;
    log_warn("nodes: the clock of %s (epoch %llu) is at least %.1f s ahead of that of the remote: "
             "readers may see what it did without what it waited for, until that clock is set",
             stay->holder, (unsigned long long)stay->epoch, (double)ahead / 1e9);
}

/* --- verdicts --------------------------------------------------------------------------------- */

static int note_ended(uint64_t epoch, const struct tier_object *object, void *arg)
{
    (void)object;
    vector_add((struct numbers *)arg, epoch);
    return 0;
}

/* A missed verdict only holds the union back for a moment longer: so verdicts are listed less often
 * than feeds. */
int stays_look_at_ended(struct stays *stays, int64_t now_monotonic)
{
    _cleanup_vector_ struct numbers ended = {0};
    if (now_monotonic < stays->ended_at)
        return 0;
    TRY(prefix_list(stays->prefix, ENDED, 0, note_ended, &ended));
    stays->ended_at = now_monotonic + judge_interval(stays);
    stays->ended.count = 0;
    vector_add_all(&stays->ended, ended.at, ended.count);
    vector_sort(&stays->ended, compare_u64);
    return 0;
}

static bool has_ended(const struct stays *stays, uint64_t epoch)
{
    return vector_search(&stays->ended, &epoch, compare_u64) != NULL;
}

int ended_put(struct prefix *prefix, uint64_t epoch, enum ended_why why, uint64_t by)
{
    char object[OBJECT_NAME_LEN];
    uint8_t bytes[ENDED_LEN];
    struct ended ended = {.why = why, .epoch = epoch, .by = by};
    TRY(prefix->tier->ops->now(prefix->tier, &ended.time));
    memcpy(ended.history, prefix->local->sb.history, sizeof ended.history);
    object_name(ENDED, epoch, object);
    ended_encode(&ended, bytes);
    int r = prefix_put_object(prefix, object, bytes, sizeof bytes, true);
    return r == -EEXIST ? 0 : r; /* another node, or an earlier attempt, has put it */
}

static int end_stay(struct stays *stays, const struct stay *stay, uint64_t by)
{
    uint64_t epoch = stay->epoch;
    log_warn("nodes: %s (epoch %llu) was not heard of for %.0f s, and is ended: all nodes go back "
             "to the newest state that all of them told",
             stay->holder, (unsigned long long)epoch, (double)stay->age_ns / 1e9);
    TRY(ended_put(stays->prefix, epoch, ENDED_SILENT, by));
    vector_add(&stays->ended, epoch);
    vector_sort(&stays->ended, compare_u64);
    return 0;
}

static bool may_be_dead(const struct stays *stays, const struct stay *stay)
{
    return !stay_has_left(stay) && !has_ended(stays, stay->epoch);
}

/* The heartbeats of nodes that fell silent together are up to a quarter of a lease apart: so a node
 * counts together with the first of them before its own lease is over. The age of a living node is
 * always lower. */
static bool is_quiet(const struct stays *stays, const struct stay *stay)
{
    return may_be_dead(stays, stay) && !stay->is_unknown &&
           stay->age_ns > lease_of(stays, stay) / 2;
}

static bool is_too_silent(const struct stays *stays, const struct stay *stay)
{
    return may_be_dead(stays, stay) && !stay->is_unknown && stay->age_ns > lease_of(stays, stay);
}

/* If most nodes are silent at once, the cause is rather this node, the storage, or a suspended
 * job. */
static void look_whether_most_are(struct stays *stays)
{
    size_t quiet = 0, all = 0;
    for (size_t i = 0; i < stays->list.count; i++) {
        quiet += is_quiet(stays, &stays->list.at[i]);
        all += may_be_dead(stays, &stays->list.at[i]);
    }
    bool are = 2 * quiet > all;
    if (are && !stays->most_are_silent)
        log_warn("nodes: %zu of %zu nodes are silent at once: none is ended by itself; "
                 "'cairn nodes end' does it for those that will not come back",
                 quiet, all);
    stays->most_are_silent = are;
}

int stays_give_verdicts(struct stays *stays, uint64_t by)
{
    if (any_is_silent(stays) || stays->most_are_silent)
        look_whether_most_are(stays);
    for (size_t i = 0; i < stays->list.count && !stays->most_are_silent; i++)
        if (is_too_silent(stays, &stays->list.at[i]))
            TRY(end_stay(stays, &stays->list.at[i], by));
    return 0;
}

bool stay_is_dead(const struct stays *stays, const struct stay *stay)
{
    return !stay_has_left(stay) && has_ended(stays, stay->epoch);
}

bool stays_have_dead(const struct stays *stays)
{
    for (size_t i = 0; i < stays->list.count; i++)
        if (stay_is_dead(stays, &stays->list.at[i]))
            return true;
    return false;
}
