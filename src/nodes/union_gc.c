// SPDX-License-Identifier: Apache-2.0
#include "nodes/union_gc.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "prefix/heads.h"
#include "prefix/runs.h"
#include "view/view.h"

#define MARGIN_NS_MAX (60ll * SECOND_NS)
#define INTERVAL_NS_MAX (600ll * SECOND_NS)
#define BATCH 500u
#define WATCHED_MAX 1000000u

/* In the order of deletion: objects that name others first, a copy before the run. */
enum kind { HEAD, COPY, RUN, FEED, WRITER, ENDED, KINDS };
static const char *const directories[KINDS] = {"heads", "copies",  "runs",
                                               "feeds", "writers", "ended"};
static const char *const reasons[KINDS] = {"a later head is there",   "no head names it",
                                           "no head names it",        "its operations are merged",
                                           "nothing has its numbers", "what it ended is forgotten"};

struct unneeded {
    uint64_t kind, number, epoch; /* epoch: of a feed */
    int64_t since;                /* monotonic: when it was first seen */
    uint64_t length;
};
DEFINE_VECTOR(unneeded_list, struct unneeded);

struct gc_pass {
    struct union_gc *gc;
    const struct stays *stays;
    int64_t now;
    enum kind kind;
    struct unneeded_list found;
};

void union_gc_init(struct union_gc *gc, struct prefix *prefix, int64_t grace_ns)
{
    *gc = (struct union_gc){.prefix = prefix, .grace_ns = grace_ns};
}

void union_gc_done(struct union_gc *gc)
{
    free(gc->watched);
    gc->watched = NULL;
    gc->watched_count = 0;
}

static int compare_unneeded(const void *a, const void *b)
{
    const struct unneeded *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

/* --- the objects ------------------------------------------------------------------------------ */

/* A stay without a row, whose node has a later stay, will not get a row again. */
static bool was_replaced(const struct gc_pass *pass, uint64_t epoch)
{
    const struct head *head = &pass->gc->prefix->head;
    for (size_t i = 0; i < pass->stays->entries.count; i++) {
        const struct entry_seen *entry = &pass->stays->entries.at[i];
        for (uint32_t k = 0; k < head->writer_count && entry->epoch == epoch; k++)
            if (head->writers[k].node == entry->node && head->writers[k].epoch > epoch)
                return true;
    }
    return false;
}

static bool feed_is_unneeded(const struct gc_pass *pass, uint64_t round, uint64_t epoch)
{
    const struct head_writer *row = head_writer_of(&pass->gc->prefix->head, epoch);
    return row ? round < row->feed_round : was_replaced(pass, epoch);
}

/* Returns whether the entry's node has a later stay, with a higher number than all epochs of this
 * entry: a node uses no number below that of its stay. The first entry proves that the node exists,
 * and the last one shows the unused numbers. */
static bool writer_is_unneeded(const struct gc_pass *pass, uint64_t number)
{
    const struct head *head = &pass->gc->prefix->head;
    const struct stays *stays = pass->stays;
    const struct entry_seen *entry = vector_search(&stays->entries, &number, compare_u64);
    if (!entry || entry->epoch == 0 || entry->node == number ||
        stays->entries.at[stays->entries.count - 1].number == number)
        return false;
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head->writers[i].node == entry->node &&
            head->writers[i].epoch > max_u64(number, entry->epoch))
            return true;
    return false;
}

/* Without an entry of that stay; otherwise the entry would count as a living stay. */
static bool ended_is_unneeded(const struct gc_pass *pass, uint64_t epoch)
{
    const struct stays *stays = pass->stays;
    for (size_t i = 0; i < stays->entries.count; i++) {
        const struct entry_seen *entry = &stays->entries.at[i];
        if (entry->epoch == 0 || entry->epoch == epoch || entry->number == epoch)
            return false;
    }
    return !head_writer_of(&pass->gc->prefix->head, epoch);
}

/* False: the object is needed, or unknown to the union. */
static bool is_unneeded(const struct gc_pass *pass, const char *name, struct unneeded *ret)
{
    const struct head *head = &pass->gc->prefix->head;
    if (pass->kind == FEED)
        return feed_numbers(name, &ret->number, &ret->epoch) &&
               feed_is_unneeded(pass, ret->number, ret->epoch);
    if (!object_number(name, directories[pass->kind], &ret->number))
        return false;
    if (pass->kind == WRITER)
        return writer_is_unneeded(pass, ret->number);
    if (pass->kind == ENDED)
        return ended_is_unneeded(pass, ret->number);
    return pass->kind == HEAD ? ret->number < head->number : !head_names_run(head, ret->number);
}

static int note_object(const struct tier_object *object, void *arg)
{
    struct gc_pass *pass = arg;
    struct unneeded found = {.kind = pass->kind, .since = pass->now, .length = object->len};
    if (pass->found.count < WATCHED_MAX && is_unneeded(pass, object->name, &found))
        vector_add(&pass->found, found);
    return 0;
}

/* Takes over from the last pass since when objects are unneeded. */
static void carry_over(struct gc_pass *pass)
{
    struct union_gc *gc = pass->gc;
    for (size_t i = 0; i < pass->found.count; i++) {
        const struct unneeded *known =
            vector_search_bytes(&pass->found.at[i], gc->watched, gc->watched_count,
                                sizeof *gc->watched, compare_unneeded);
        if (known)
            pass->found.at[i].since = known->since;
    }
    free(gc->watched);
    gc->watched = pass->found.at;
    gc->watched_count = pass->found.count;
    pass->found = (struct unneeded_list){0};
}

static int look(struct gc_pass *pass)
{
    struct tier *tier = pass->gc->prefix->tier;
    int r = 0;
    for (pass->kind = 0; pass->kind < KINDS && r == 0; pass->kind++)
        r = tier->ops->list(tier, directories[pass->kind], NULL, note_object, pass);
    if (r == 0) {
        vector_sort(&pass->found, compare_unneeded);
        carry_over(pass);
    }
    vector_free(&pass->found);
    return r;
}

/* --- deleting --------------------------------------------------------------------------------- */

/* A merger that was paused may have been replaced by others: then it deletes nothing. */
static int check_newest(struct prefix *prefix)
{
    uint64_t newest;
    TRY(heads_newest_number(prefix, prefix->head.number - 1, &newest));
    return newest == prefix->head.number ? 0 : -ESTALE;
}

static void name_of(const struct unneeded *item, char buf[FEED_NAME_LEN])
{
    _Static_assert(FEED_NAME_LEN >= OBJECT_NAME_LEN, "room for each name");
    if (item->kind == FEED)
        feed_name(item->number, item->epoch, buf);
    else
        object_name(directories[item->kind], item->number, buf);
}

static int remove_batch(struct prefix *prefix, const struct unneeded *items, size_t count)
{
    char names[BATCH][FEED_NAME_LEN];
    const char *list[BATCH];
    uint64_t bytes = 0;
    check(count > 0 && count <= BATCH);
    for (size_t i = 0; i < count; i++) {
        name_of(&items[i], names[i]);
        list[i] = names[i];
        bytes += items[i].length;
    }
    /* the objects that named them must be gone for good */
    TRY(prefix->tier->ops->sync(prefix->tier));
    TRY(check_newest(prefix));
    TRY(tier_remove_all(prefix->tier, list, count));
    log_info("gc: deleted %zu objects from %s to %s, %llu bytes, in %s: %s, for longer than the "
             "grace",
             count, names[0], names[count - 1], (unsigned long long)bytes, prefix->name,
             reasons[items[0].kind]);
    return 0;
}

static bool is_old(const struct gc_pass *pass, const struct unneeded *item)
{
    int64_t grace = pass->gc->grace_ns;
    int64_t margin = item->kind == HEAD ? 0 : (int64_t)min_u64(MARGIN_NS_MAX, (uint64_t)grace);
    return pass->now - item->since > grace + margin;
}

struct pack_range {
    uint64_t from, to;
    bool is_sorted, has_one;
};

static int note_pack(const struct tier_object *object, void *arg)
{
    struct pack_range *range = arg;
    uint64_t id;
    bool is_pack = object_number(object->name, "packs", &id);
    range->has_one = range->has_one || (is_pack && id >= range->from && id < range->to);
    return range->has_one || (range->is_sorted && is_pack && id >= range->to);
}

/* The entry identifies the owner of inodes, and the packs of a store that takes the node's place.
 * The union has every inode that its owner has. */
static int writer_has_something(struct prefix *prefix, uint64_t number, bool *ret)
{
    struct tier *tier = prefix->tier;
    struct pack_range range = {number << 24, (number + NODE_BLOCK) << 24, tier->ops->is_sorted,
                               false};
    char after[OBJECT_NAME_LEN];
    TRY(view_has_inode(prefix->local->view, range.from, range.to, ret));
    if (*ret)
        return 0;
    object_name("packs", range.from - 1, after);
    int r = tier->ops->list(tier, "packs", after, note_pack, &range);
    *ret = range.has_one;
    return r;
}

/* 1: it is to be deleted. */
static int is_due(const struct gc_pass *pass, const struct unneeded *item)
{
    struct prefix *prefix = pass->gc->prefix;
    bool is_needed = true;
    if (!is_old(pass, item))
        return 0;
    if (item->kind != WRITER)
        return 1;
    int r = prefix->local->view ? writer_has_something(prefix, item->number, &is_needed) : 0;
    return r < 0 ? r : !is_needed;
}

/* The next pass does not find deleted objects, and so forgets them. */
static int remove_due(struct gc_pass *pass)
{
    struct union_gc *gc = pass->gc;
    struct unneeded_list batch = {0};
    int r = 0;
    for (size_t i = 0; i < gc->watched_count && r == 0; i++) {
        const struct unneeded *item = &gc->watched[i];
        bool ends = batch.count == BATCH || (batch.count > 0 && batch.at[0].kind != item->kind);
        if (ends) {
            r = remove_batch(gc->prefix, batch.at, batch.count);
            batch.count = 0;
        }
        int due = r == 0 ? is_due(pass, item) : 0;
        r = due < 0 ? due : r;
        if (due > 0)
            vector_add(&batch, *item);
    }
    if (r == 0 && batch.count > 0)
        r = remove_batch(gc->prefix, batch.at, batch.count);
    vector_free(&batch);
    return r;
}

int union_gc_tick(struct union_gc *gc, const struct stays *stays, int64_t now_monotonic)
{
    struct gc_pass pass = {.gc = gc, .stays = stays, .now = now_monotonic};
    if (now_monotonic < gc->due_at || gc->prefix->head.number == 0)
        return 0;
    gc->due_at = now_monotonic + (int64_t)min_u64(INTERVAL_NS_MAX, (uint64_t)gc->grace_ns / 4);
    TRY(look(&pass));
    return remove_due(&pass);
}
