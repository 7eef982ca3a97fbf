// SPDX-License-Identifier: Apache-2.0
/* Lists snapshots. Heads never change, so each is read once. */
#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/pool.h"
#include "base/text.h"
#include "prefix/heads.h"
#include "prefix/named.h"
#include "store/lookback_internal.h"

#define LISTED_FOR_NS (2 * SECOND_NS)
#define READ_THREADS 8u

/* --- the prefix ------------------------------------------------------------------------------- */

static bool pause_listing(void *arg, int64_t ms)
{
    struct lookback *lookback = arg;
    int64_t until = clock_monotonic_ns() + ms * MS_NS;
    LOCK_SCOPE(&lookback->lock);
    while (!lookback->stopping && clock_monotonic_ns() < until)
        (void)mutex_wait_until(&lookback->lock, &lookback->changed, until);
    return !lookback->stopping;
}

static void note_trouble(void *arg, int error, const char *text)
{
    (void)arg;
    (void)error;
    cause_note("%s", text);
}

static void note_works(void *arg)
{
    (void)arg;
}

static bool refuse_to_send(void *arg, uint64_t bytes)
{
    (void)arg;
    (void)bytes;
    return false;
}

void lookback_prefix(struct lookback *lookback, struct local *local, struct prefix *ret)
{
    struct store *store = lookback->store;
    const struct prefix_user user = {lookback, pause_listing, note_trouble, note_works,
                                     refuse_to_send};
    *ret = (struct prefix){0};
    prefix_init(ret, local, store->commit.room, &store->local.options.remote, &user);
}

int lookback_read_head(struct lookback *lookback, const struct lookback_item *item,
                       struct head *ret)
{
    if (!item->is_named)
        return head_read(&lookback->prefix, item->head, ret);
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    TRY(named_read(&lookback->prefix, item->name, snapshot));
    *ret = snapshot->head;
    return ret->number == item->head ? 0 : -ENOENT; /* the name was given to another head */
}

/* --- reading new heads --- */

struct reading {
    struct lookback *lookback;
    struct lookback_item *item;
    bool is_known;
    bool has_state;
    int error;
};
DEFINE_VECTOR(readings, struct reading);

/* The number of a name's head is not known before the name is read. */
static int read_named_item(struct reading *reading, struct head *head)
{
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    TRY(named_read(&reading->lookback->prefix, reading->item->name, snapshot));
    *head = snapshot->head;
    return 0;
}

static void read_item(void *arg)
{
    struct reading *reading = arg;
    struct lookback_item *item = reading->item;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = item->is_named ? read_named_item(reading, head)
                           : head_read(&reading->lookback->prefix, item->head, head);
    if (r == 0) {
        item->head = head->number;
        item->published = head->published;
        reading->has_state = head->run_count > 0;
    }
    /* A damaged head exists, but cannot be opened; for a damaged name not even the head is
     * known. */
    bool is_damaged = (prefix_object_is_lost(r) && r != -ENOENT) || r == -EPROTONOSUPPORT;
    reading->has_state = reading->has_state || is_damaged;
    reading->error = is_damaged || r == -ENOENT ? 0 : r;
}

static int read_items(struct readings *readings)
{
    struct pool *pool = NULL;
    for (size_t i = 0; i < readings->count; i++) {
        if (readings->at[i].is_known)
            continue;
        if (!pool)
            TRY(pool_new("cairn-heads", READ_THREADS, 64, NULL, NULL, &pool));
        pool_submit(pool, read_item, &readings->at[i]);
    }
    pool_free(pool);
    for (size_t i = 0; i < readings->count; i++)
        TRY(readings->at[i].error);
    return 0;
}

/* Copies the data that was known of the head before. */
static bool known_head_locked(struct lookback *lookback, struct lookback_item *item)
{
    check_held(&lookback->lock);
    for (size_t i = 0; i < lookback->items.count; i++) {
        const struct lookback_item *known = &lookback->items.at[i];
        bool is_it = !known->is_named && !known->is_local && known->head == item->head;
        if (!is_it || !known->published)
            continue;
        item->published = known->published;
        return true;
    }
    return false;
}

static int list_heads(struct lookback *lookback, struct lookback_items *ret)
{
    _cleanup_vector_ struct numbers numbers = {0};
    struct named_list names = {0};
    int r = prefix_list_numbers(&lookback->prefix, "heads", 0, &numbers);
    if (r == 0)
        r = named_list(&lookback->prefix, &names);
    for (size_t i = 0; i < numbers.count && r == 0; i++)
        vector_add(ret, (struct lookback_item){.head = numbers.at[i]});
    for (size_t i = 0; i < names.count && r == 0; i++) {
        struct lookback_item item = {.is_named = true};
        memcpy(item.name, names.at[i].name, sizeof names.at[i].name);
        vector_add(ret, item);
    }
    vector_free(&names);
    return r;
}

/* --- slots and names -------------------------------------------------------------------------- */

static bool slot_is_taken_locked(const struct lookback *lookback, unsigned slot)
{
    check_held(&lookback->lock);
    for (size_t i = 0; i < lookback->slots.count; i++)
        if (lookback->slots.at[i].slot == slot)
            return true;
    return false;
}

/* The same in each session, if possible: the kernel knows inodes across a successor. */
static unsigned slot_of_locked(struct lookback *lookback, const struct lookback_item *item)
{
    check_held(&lookback->lock);
    for (size_t i = 0; i < lookback->slots.count; i++)
        if (lookback->slots.at[i].head == item->head &&
            lookback->slots.at[i].is_local == item->is_local)
            return lookback->slots.at[i].slot;
    unsigned slot = (unsigned)(item->head % PAST_SLOT_MAX) + 1;
    if (lookback->slots.count == PAST_SLOT_MAX)
        return 0;
    while (slot_is_taken_locked(lookback, slot))
        slot = slot % PAST_SLOT_MAX + 1;
    vector_add(&lookback->slots, (struct lookback_slot){item->head, item->is_local, slot});
    return slot;
}

/* An item without a name of its own, by the second of its time. */
struct timed_item {
    int64_t second;
    size_t item;
};
DEFINE_VECTOR(timed_items, struct timed_item);

static int compare_timed(const void *a, const void *b)
{
    const struct timed_item *x = a, *y = b;
    if (x->second != y->second)
        return x->second < y->second ? -1 : 1;
    return compare_u64(&x->item, &y->item);
}

static void name_item(struct lookback_item *item, bool is_last)
{
    char when[TEXT_TIME_LEN];
    text_time(item->published, when);
    if (is_last)
        (void)snprintf(item->name, sizeof item->name, "%s", when);
    else
        (void)snprintf(item->name, sizeof item->name, "%s.%llu", when,
                       (unsigned long long)item->head);
}

/* Of several items of one second, which need not be adjacent if the writer's clock went back, the
 * last one has the time alone as its name. */
static void name_items(struct lookback_items *items)
{
    struct timed_items timed = {0};
    for (size_t i = 0; i < items->count; i++) {
        struct lookback_item *item = &items->at[i];
        if (!item->is_named && item->published)
            vector_add(&timed, (struct timed_item){item->published / SECOND_NS, i});
        else if (!item->is_named)
            (void)snprintf(item->name, sizeof item->name, "%llu", (unsigned long long)item->head);
    }
    vector_sort(&timed, compare_timed);
    for (size_t i = 0; i < timed.count; i++) {
        bool is_last = i + 1 == timed.count || timed.at[i + 1].second != timed.at[i].second;
        name_item(&items->at[timed.at[i].item], is_last);
    }
    vector_free(&timed);
}

static int compare_items(const void *a, const void *b)
{
    const struct lookback_item *x = a, *y = b;
    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    return x->is_named != y->is_named ? x->is_named - y->is_named : strcmp(x->name, y->name);
}

/* Replaces the known items. */
static void settle_list(struct lookback *lookback, struct lookback_items *items)
{
    vector_sort(items, compare_items);
    name_items(items);
    LOCK_SCOPE(&lookback->lock);
    for (size_t i = 0; i < items->count; i++)
        items->at[i].slot = items->at[i].head ? slot_of_locked(lookback, &items->at[i]) : 0;
    vector_free(&lookback->items);
    lookback->items = *items;
}

/* A snapshot with a name is also listed by its time, as in a remote. */
static void add_local(struct lookback *lookback, struct lookback_items *ret)
{
    struct local_snapshot_list list = {0};
    local_snapshots_list(lookback->local, &list);
    for (size_t i = 0; i < list.count; i++) {
        const struct local_snapshot_info *one = &list.at[i];
        struct lookback_item item = {
            .head = one->number, .published = one->taken, .is_local = true};
        vector_add(ret, item);
        if (!one->name[0])
            continue;
        item.is_named = true;
        memcpy(item.name, one->name, sizeof one->name);
        vector_add(ret, item);
    }
    vector_free(&list);
}

/* If the store has a snapshot of the same name, that one is shown. */
static bool is_shadowed(struct lookback *lookback, const struct lookback_item *item)
{
    return item->is_named && local_snapshots_have(lookback->local, item->name);
}

/* Adds those that have a state. */
static int ask_remote(struct lookback *lookback, struct lookback_items *ret)
{
    struct lookback_items items = {0};
    struct readings readings = {0};
    int r = list_heads(lookback, &items);
    mutex_lock(&lookback->lock);
    for (size_t i = 0; i < items.count && r == 0; i++) {
        struct reading reading = {.lookback = lookback, .item = &items.at[i]};
        reading.is_known = reading.has_state =
            !items.at[i].is_named && known_head_locked(lookback, &items.at[i]);
        vector_add(&readings, reading);
    }
    mutex_unlock(&lookback->lock);
    if (r == 0)
        r = read_items(&readings);
    for (size_t i = 0; i < readings.count && r == 0; i++)
        if (readings.at[i].has_state && !is_shadowed(lookback, readings.at[i].item))
            vector_add(ret, *readings.at[i].item);
    vector_free(&readings);
    vector_free(&items);
    return r;
}

/* Adds the states that the remote listed last. */
static void add_last_answer(struct lookback *lookback, struct lookback_items *ret)
{
    LOCK_SCOPE(&lookback->lock);
    for (size_t i = 0; i < lookback->items.count; i++)
        if (!lookback->items.at[i].is_local)
            vector_add(ret, lookback->items.at[i]);
}

/* --- requests --- */

/* True: this thread must query the remote. */
static bool begin_listing(struct lookback *lookback)
{
    LOCK_SCOPE(&lookback->lock);
    while (lookback->is_listing)
        (void)mutex_wait(&lookback->lock, &lookback->changed, -1);
    bool is_old = !lookback->has_remote || lookback->is_stale || !lookback->listed_at ||
                  clock_monotonic_ns() - lookback->listed_at > LISTED_FOR_NS;
    lookback->is_listing = is_old && !lookback->stopping;
    if (lookback->is_listing)
        lookback->is_stale = false;
    return lookback->is_listing;
}

void lookback_names_changed(struct lookback *lookback)
{
    if (!lookback)
        return;
    LOCK_SCOPE(&lookback->lock);
    lookback->is_stale = true;
}

static int refresh(struct lookback *lookback)
{
    struct lookback_items items = {0};
    if (!begin_listing(lookback))
        return 0;
    int r = lookback->has_remote ? ask_remote(lookback, &items) : 0;
    if (r < 0 && !*cause_text())
        cause_note("the remote does not say which snapshots it has: %s", strerror(-r));
    if (r < 0)
        add_last_answer(lookback, &items);
    add_local(lookback, &items);
    settle_list(lookback, &items);
    LOCK_SCOPE(&lookback->lock);
    if (r == 0)
        lookback->listed_at = clock_monotonic_ns();
    lookback->is_listing = false;
    (void)pthread_cond_broadcast(&lookback->changed);
    return r < 0 && lookback->listed_at ? 0 : r;
}

int lookback_list(struct lookback *lookback, struct lookback_items *ret)
{
    TRY(refresh(lookback));
    LOCK_SCOPE(&lookback->lock);
    vector_add_all(ret, lookback->items.at, lookback->items.count);
    return 0;
}

bool lookback_knows(struct lookback *lookback, const char *name)
{
    bool knows = false;
    if (!lookback)
        return false;
    LOCK_SCOPE(&lookback->lock);
    for (size_t i = 0; i < lookback->items.count; i++) {
        const struct lookback_item *item = &lookback->items.at[i];
        knows = knows || (item->is_named && !item->is_local && strcmp(item->name, name) == 0);
    }
    return knows;
}

static bool is_known_locked(struct lookback *lookback, unsigned slot)
{
    check_held(&lookback->lock);
    for (size_t i = 0; i < lookback->items.count; i++)
        if (lookback->items.at[i].slot == slot)
            return true;
    return false;
}

/* A later head of the same second may have taken the short form of the name. */
static bool has_name(const struct lookback_item *item, const char *name)
{
    char when[TEXT_TIME_LEN], whole[LOOKBACK_NAME_MAX], number[24];
    if (strcmp(item->name, name) == 0)
        return true;
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)item->head);
    text_time(item->published, when);
    (void)snprintf(whole, sizeof whole, "%s.%s", when, number);
    bool is_number = strcmp(number, name) == 0;
    return item->is_named ? is_number && item->is_local : is_number || strcmp(whole, name) == 0;
}

static bool find_known(struct lookback *lookback, const char *name, struct lookback_item *ret)
{
    LOCK_SCOPE(&lookback->lock);
    for (size_t i = lookback->items.count; i-- > 0;) {
        if (!has_name(&lookback->items.at[i], name))
            continue;
        *ret = lookback->items.at[i];
        return true;
    }
    return false;
}

/* Snapshots of the store with a name are found without the remote, which may be away. */
static bool find_local(struct lookback *lookback, const char *name, struct lookback_item *ret)
{
    struct lookback_items items = {0};
    *ret = (struct lookback_item){0};
    add_local(lookback, &items);
    for (size_t i = 0; i < items.count; i++)
        if (items.at[i].is_named && has_name(&items.at[i], name))
            *ret = items.at[i];
    vector_free(&items);
    LOCK_SCOPE(&lookback->lock);
    ret->slot = ret->head ? slot_of_locked(lookback, ret) : 0;
    if (ret->slot && !is_known_locked(lookback, ret->slot))
        vector_add(&lookback->items, *ret);
    return ret->slot;
}

int lookback_find(struct lookback *lookback, const char *name, struct lookback_item *ret)
{
    if (find_local(lookback, name, ret))
        return 0;
    TRY(refresh(lookback));
    if (!find_known(lookback, name, ret))
        return -ENOENT;
    if (ret->head == 0) {
        cause_note("the snapshot %s is damaged", name);
        return -EIO;
    }
    return ret->slot ? 0 : -ENOENT;
}

bool lookback_known(struct lookback *lookback, unsigned slot, struct lookback_item *ret)
{
    LOCK_SCOPE(&lookback->lock);
    bool found = false;
    for (size_t i = 0; i < lookback->items.count; i++) {
        const struct lookback_item *item = &lookback->items.at[i];
        if (item->slot != slot || (found && ret->is_named))
            continue;
        *ret = *item; /* an item with a name stays longer */
        found = true;
    }
    return found;
}
