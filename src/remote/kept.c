// SPDX-License-Identifier: Apache-2.0
#include "remote/kept.h"

#include "base/log.h"
#include "base/pool.h"
#include "prefix/named.h"
#include "remote/maintenance_internal.h"

#define READS_MAX 256u /* heads that are read in one pass; the next one goes on */
#define READ_THREADS 8u

/* --- what is known from pass to pass ---------------------------------------------------------- */

static struct known_head know(const struct head *head)
{
    struct known_head known = {.number = head->number,
                               .was_read = true,
                               .epoch = head->epoch,
                               .cut = head->cut,
                               .max_id = head->max_id,
                               .published = head->published,
                               .run_count = head->run_count,
                               .runs = xcalloc(head->run_count + 1, sizeof(uint64_t))};
    for (uint32_t i = 0; i < head->run_count; i++)
        known.runs[i] = head->runs[i].id;
    return known;
}

static void forget_heads(struct known_heads *heads)
{
    for (size_t i = 0; i < heads->count; i++)
        free(heads->at[i].runs);
    vector_free(heads);
}

static void forget_names(struct known_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->at[i].head.runs);
    vector_free(names);
}

void history_forget_names(struct history *history)
{
    forget_names(&history->names);
}

void history_done(struct history *history)
{
    forget_heads(&history->heads);
    forget_names(&history->names);
}

void history_note(struct history *history, const struct head *head)
{
    size_t count = history->heads.count;
    if (count == 0 || history->heads.at[count - 1].number < head->number)
        vector_add(&history->heads, know(head));
}

/* --- heads that are there --------------------------------------------------------------------- */

struct reading {
    struct prefix *prefix;
    struct known_head *into;
    int error;
};
DEFINE_VECTOR(readings, struct reading);

/* One that is damaged counts as read: it says nothing. */
static void read_known(void *arg)
{
    struct reading *reading = arg;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = head_read(reading->prefix, reading->into->number, head);
    if (r == 0)
        *reading->into = know(head);
    if (prefix_object_is_lost(r)) {
        log_warn("remote: head %llu cannot be read: no policy keeps its state",
                 (unsigned long long)reading->into->number);
        reading->into->was_read = true;
        r = 0;
    }
    reading->error = r;
}

static int read_heads(struct readings *readings)
{
    struct pool *pool = NULL;
    if (readings->count == 0)
        return 0;
    TRY(pool_new("cairn-heads", READ_THREADS, 64, NULL, NULL, &pool));
    for (size_t i = 0; i < readings->count; i++)
        pool_submit(pool, read_known, &readings->at[i]);
    pool_free(pool);
    int r = 0;
    for (size_t i = 0; i < readings->count && r == 0; i++)
        r = readings->at[i].error;
    return r;
}

/* Learns of each listed head what it says, and forgets all others. *ret_all: they are in the order
 * of the list; else some are left for the next pass. */
static int learn_heads(struct remote *remote, const struct kept_head *heads, size_t count,
                       bool *ret_all)
{
    struct known_heads *known = &remote->maintenance->history.heads;
    struct known_heads old = *known;
    struct readings readings = {0};
    *known = (struct known_heads){0};
    vector_reserve(known, count); /* places stay where they are */
    *ret_all = true;
    for (size_t i = 0; i < count; i++) {
        struct known_head *found = vector_search(&old, &heads[i].number, compare_u64);
        if (found && found->was_read) {
            vector_add(known, *found);
            found->runs = NULL;
        } else if (readings.count < READS_MAX) {
            vector_add(known, (struct known_head){.number = heads[i].number});
            vector_add(&readings,
                       (struct reading){&remote->prefix, &known->at[known->count - 1], 0});
        } else {
            *ret_all = false;
        }
    }
    int r = read_heads(&readings);
    forget_heads(&old);
    vector_free(&readings);
    return r;
}

/* --- the policy ------------------------------------------------------------------------------- */

/* How many of them have a number below this one. */
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

/* Marks the states that the policy chooses. */
static void mark_chosen(const struct head_keep *keep, const struct known_heads *known, bool *stays)
{
    VECTOR(struct keep_state) states = {0};
    VECTOR(size_t) at = {0};
    for (size_t i = 0; i < known->count; i++) {
        const struct known_head *head = &known->at[i];
        if (head->run_count == 0)
            continue;
        vector_add(&states, (struct keep_state){head->cut, head->published, false});
        vector_add(&at, i);
    }
    keep_choose(keep, states.at, states.count);
    for (size_t i = 0; i < states.count; i++)
        stays[at.at[i]] = states.at[i].stays;
    vector_free(&states);
    vector_free(&at);
}

/* A writer that was replaced while it stood still finds its next number taken, or its last head
 * deleted (heads.c). So the head by which another one took over stays with the one before. */
static void mark_successors(const struct known_heads *known, bool *stays)
{
    for (size_t i = 0; i + 1 < known->count; i++) {
        const struct known_head *head = &known->at[i];
        bool is_next = head[1].number == head->number + 1;
        stays[i + 1] = stays[i + 1] || (stays[i] && is_next && head[1].epoch != head->epoch);
    }
}

/* Those of the listed heads that the policy chooses, or that are in `kept` already, and with them
 * the ones that have to stay beside them. */
static int add_listed(struct remote *remote, const struct kept_head *heads, size_t count,
                      struct kept *kept)
{
    const struct known_heads *known = &remote->maintenance->history.heads;
    bool all;
    TRY(learn_heads(remote, heads, count, &all));
    kept->is_unsure = kept->is_unsure || !all;
    if (!all)
        return 0;
    _cleanup_free_ bool *stays = xcalloc(count + 1, sizeof *stays);
    mark_chosen(&remote->prefix.head.keep, known, stays);
    for (size_t i = 0; i < count; i++)
        stays[i] = stays[i] || kept_has(kept, heads[i].number, heads[i].number);
    mark_successors(known, stays);
    for (size_t i = 0; i < count; i++)
        if (stays[i])
            add_kept(kept, &known->at[i], heads[i].modified);
    return 0;
}

/* --- names ------------------------------------------------------------------------------------ */

/* What a damaged object names is not known, so nothing may go. */
static int learn_name(struct remote *remote, const char *name, struct known_name *ret,
                      bool *ret_is_known)
{
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    int r = named_read(&remote->prefix, name, snapshot);
    *ret_is_known = r == 0;
    if (r == 0) {
        *ret = (struct known_name){.head = know(&snapshot->head)};
        memcpy(ret->name, snapshot->name, sizeof ret->name);
    }
    if (r != -EUCLEAN && r != -EBADMSG)
        return r;
    remote_error(remote, 0,
                 "snapshots/%s is damaged: no head is deleted before the object is restored, or "
                 "'cairn snapshot delete' removes the name",
                 name);
    return 0;
}

static int compare_name(const void *name, const void *known)
{
    return strcmp(name, ((const struct known_name *)known)->name);
}

static int learn_names(struct remote *remote, struct kept *kept)
{
    struct known_names *known = &remote->maintenance->history.names;
    struct known_names old = *known;
    struct named_list list = {0};
    int r = named_list(&remote->prefix, &list);
    *known = (struct known_names){0};
    for (size_t i = 0; i < list.count && r == 0; i++) {
        struct known_name *found = vector_search(&old, list.at[i].name, compare_name);
        struct known_name one = found ? *found : (struct known_name){0};
        bool is_known = found;
        if (found)
            found->head.runs = NULL;
        else
            r = learn_name(remote, list.at[i].name, &one, &is_known);
        if (is_known)
            vector_add(known, one);
        kept->is_unsure = kept->is_unsure || !is_known;
    }
    kept->has_names = list.count > 0;
    forget_names(&old);
    vector_free(&list);
    return r;
}

static void add_named(struct remote *remote, const struct kept_head *heads, size_t count,
                      struct kept *kept)
{
    const struct known_names *known = &remote->maintenance->history.names;
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

/* --- what stays ------------------------------------------------------------------------------- */

/* In the order of their numbers. Clocks may have gone back between two heads, so that one counts as
 * no younger than those behind it. */
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
    size_t count = 0; /* one with several names, or that the policy chooses too, is there once */
    for (size_t i = 0; i < kept->heads.count; i++)
        if (count == 0 || kept->heads.at[count - 1].number != kept->heads.at[i].number)
            kept->heads.at[count++] = kept->heads.at[i];
    kept->heads.count = count;
}

int kept_choose(struct remote *remote, const struct kept_head *heads, size_t count,
                struct kept *ret)
{
    *ret = (struct kept){0};
    if (remote->store->node)
        return 0;
    TRY(learn_names(remote, ret));
    add_named(remote, heads, count, ret);
    vector_sort(&ret->heads, compare_u64);
    bool has_policy = head_keep_is_set(&remote->prefix.head.keep);
    int r = ret->has_names || has_policy ? add_listed(remote, heads, count, ret) : 0;
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

/* How many of them are, by the medium's clock, no younger than this. */
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

/* The heads from before the pack was unreferenced. */
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

void remote_kept_each(struct remote *remote, void (*fn)(uint64_t head, uint64_t bytes, void *arg),
                      void *arg)
{
    const struct remote_maintenance *maintenance = remote->maintenance;
    LOCK_SCOPE(&remote->maintenance->lock);
    for (size_t i = 0; i < maintenance->kept.count; i++)
        fn(maintenance->kept.at[i].number, maintenance->kept.at[i].only_bytes, arg);
}
