// SPDX-License-Identifier: Apache-2.0
#include "snapshots/internal.h"

#include "view/remote.h"

/* --- heads that stay -------------------------------------------------------------------------- */

/* Returns how many of the heads have a number below this one. */
static size_t count_before(const struct kept *kept, uint64_t number)
{
    size_t first = 0, end = kept->heads.count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (kept->heads.at[middle].number < number)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

bool kept_has(const struct kept *kept, uint64_t first, uint64_t last)
{
    size_t i = count_before(kept, first);
    return i < kept->heads.count && kept->heads.at[i].number <= last;
}

static void add_kept(struct kept *kept, const struct known_head *head, int64_t modified)
{
    vector_add(
        &kept->heads,
        (struct kept_head){.number = head->number, .max_id = head->max_id, .modified = modified});
    vector_add_all(&kept->runs, head->runs, head->run_count);
}

/* Marks the states that the policy of the newest head chooses. A state that a --rollback gave up
 * is never one of them: it would take the place of a state that the newest one goes on from. */
static void mark_chosen(const struct head *newest, const struct known_heads *known, bool *stays)
{
    VECTOR(struct keep_state) states = {0};
    VECTOR(size_t) at = {0};
    for (size_t i = 0; i < known->count; i++) {
        const struct known_head *head = &known->at[i];
        bool is_given_up = head_after_given_up(newest, head->number) != head->number;
        if (head->run_count == 0 || is_given_up)
            continue;
        vector_add(&states, (struct keep_state){head->cut, head->published, false});
        vector_add(&at, i);
    }
    keep_choose(&newest->keep, states.at, states.count);
    for (size_t i = 0; i < states.count; i++)
        stays[at.at[i]] = states.at[i].stays;
    vector_free(&states);
    vector_free(&at);
}

/* A writer that was replaced while it was suspended finds its next number taken, or its last head
 * deleted (heads.c). So the head by which another writer took over stays with the head before
 * it. */
static void mark_successors(const struct known_heads *known, bool *stays)
{
    for (size_t i = 0; i + 1 < known->count; i++) {
        const struct known_head *head = &known->at[i];
        bool is_next = head[1].number == head->number + 1;
        stays[i + 1] = stays[i + 1] || (stays[i] && is_next && head[1].epoch != head->epoch);
    }
}

/* *ret: the heads that are being read. */
static void copy_held(struct snapshots *snapshots, struct numbers *ret)
{
    LOCK_SCOPE(&snapshots->lock);
    vector_add_all(ret, snapshots->held.at, snapshots->held.count);
}

static bool is_held(const struct numbers *held, uint64_t number)
{
    for (size_t i = 0; i < held->count; i++)
        if (held->at[i] == number)
            return true;
    return false;
}

/* Adds those listed heads that the policy chooses, that are held, or already in `kept`, and the
 * ones that have to stay beside them. */
static int add_listed(struct snapshots *snapshots, const struct kept_head *heads, size_t count,
                      const struct numbers *held, struct kept *kept)
{
    const struct known_heads *known = &snapshots->heads;
    bool all;
    TRY(known_learn_heads(snapshots, heads, count, &all));
    kept->is_unsure = kept->is_unsure || !all;
    if (!all)
        return 0;
    _cleanup_free_ bool *stays = xcalloc(count + 1, sizeof *stays);
    mark_chosen(&snapshots->prefix->head, known, stays);
    for (size_t i = 0; i < count; i++)
        stays[i] = stays[i] || kept_has(kept, heads[i].number, heads[i].number) ||
                   is_held(held, heads[i].number);
    mark_successors(known, stays);
    for (size_t i = 0; i < count; i++)
        if (stays[i])
            add_kept(kept, &known->at[i], heads[i].modified);
    return 0;
}

static void add_named(struct snapshots *snapshots, const struct kept_head *heads, size_t count,
                      struct kept *kept)
{
    const struct known_names *known = &snapshots->names;
    const struct {
        const struct kept_head *at;
        size_t count;
    } listed = {heads, count};
    for (size_t i = 0; i < known->count; i++) {
        const struct known_head *head = &known->at[i].head;
        const struct kept_head *found = vector_search(&listed, &head->number, compare_u64);
        add_kept(kept, head, found ? found->modified : 0);
    }
}

/* --- all that stays --------------------------------------------------------------------------- */

/* Sorts the heads by number. A clock may have gone back between two heads, so a head counts as no
 * younger than the heads behind it. */
static void settle(struct kept *kept)
{
    vector_sort(&kept->heads, compare_u64);
    vector_sort_unique(&kept->runs);
    for (size_t i = kept->heads.count; i-- > 1;) {
        struct kept_head *head = &kept->heads.at[i - 1];
        if (head->modified > head[1].modified)
            head->modified = head[1].modified;
    }
    for (size_t i = 1; i < kept->heads.count; i++) {
        struct kept_head *head = &kept->heads.at[i];
        head->max_id = max_u64(head->max_id, head[-1].max_id);
    }
    /* a head that has several names, or that the policy chooses too, is kept once */
    size_t count = 0;
    for (size_t i = 0; i < kept->heads.count; i++)
        if (count == 0 || kept->heads.at[count - 1].number != kept->heads.at[i].number)
            kept->heads.at[count++] = kept->heads.at[i];
    kept->heads.count = count;
}

int snapshots_choose(struct snapshots *snapshots, const struct kept_head *heads, size_t count,
                     struct kept *ret)
{
    *ret = (struct kept){0};
    if (snapshots->prefix->options->nodes)
        return 0;
    bool all;
    _cleanup_vector_ struct numbers held = {0};
    copy_held(snapshots, &held);
    TRY(known_learn_names(snapshots, &ret->has_names, &all));
    ret->is_unsure = !all;
    add_named(snapshots, heads, count, ret);
    vector_sort(&ret->heads, compare_u64);
    bool has_policy = head_keep_is_set(&snapshots->prefix->head.keep);
    bool must_look = ret->has_names || has_policy || held.count > 0;
    int r = must_look ? add_listed(snapshots, heads, count, &held, ret) : 0;
    settle(ret);
    return r;
}

void kept_done(struct kept *kept)
{
    vector_free(&kept->heads);
    vector_free(&kept->runs);
}

bool kept_names_run(const struct kept *kept, uint64_t run)
{
    return kept->runs.count && vector_search(&kept->runs, &run, compare_u64);
}

/* Returns how many of the heads are, by the medium's clock, no younger than `time`. */
static size_t count_until(const struct kept *kept, int64_t time)
{
    size_t first = 0, end = kept->heads.count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (kept->heads.at[middle].modified <= time)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* Returns the number of heads from before the pack was unreferenced. */
static size_t count_of_its_time(const struct kept *kept, const struct view_remote_pack *pack,
                                int64_t slack)
{
    return pack->until ? count_before(kept, pack->until)
                       : count_until(kept, pack->unreferenced + slack);
}

bool kept_needs_pack(const struct kept *kept, const struct view_remote_pack *pack, int64_t slack)
{
    size_t before = count_of_its_time(kept, pack, slack);
    return before > 0 && kept->heads.at[before - 1].max_id >= pack->pack;
}

void kept_count_pack(struct kept *kept, const struct view_remote_pack *pack, int64_t slack)
{
    struct kept_head *last = &kept->heads.at[count_of_its_time(kept, pack, slack) - 1];
    check(last->max_id >= pack->pack);
    if (last == kept->heads.at || last[-1].max_id < pack->pack)
        last->only_bytes += pack->length;
}
