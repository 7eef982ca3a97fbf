// SPDX-License-Identifier: Apache-2.0
/* The part of a scrub that verifies chunks in the remote which earlier states need, and the newest
 * state does not. States that stay are opened one after the other, from the oldest on, as for a
 * user who browses them (lookback.h), and each chunk is read for the first state that needs it.
 * There is no other copy of such a chunk: damage is reported, with the states and files that need
 * it.
 *
 * At most two states are open: chunks that the state before also needs are verified already. */
#include "base/cause.h"
#include "base/clock.h"
#include "base/tables.h"
#include "base/text.h"
#include "prefix/heads.h"
#include "remote/chunks.h"
#include "remote/maintenance.h"
#include "snapshots/policy.h"
#include "snapshots/snapshots.h"
#include "store/chunk_users.h"
#include "store/lookback_internal.h"
#include "store/past.h"
#include "store/scrub.h"
#include "view/remote.h"

#define DAMAGE_MAX 65536u /* damaged chunks that are reported one by one */
#define FILES_MAX 1000u   /* files that are reported by name; the rest are counted */
#define LEARN_TRIES 10u
#define LEARN_AGAIN_NS (3ll * 1000000000)

struct place {
    uint64_t pack, offset; /* offset 0: the pack as a whole */
};

struct damage {
    UT_hash_handle hh;
    struct place place;
    uint32_t raw_len;
    int error;
    uint64_t last;           /* the state that was added last */
    struct text_list states; /* states that need the damaged chunk or pack */
};

struct open_state {
    unsigned slot; /* 0: none */
    struct view *view;
};

struct earlier_scrub {
    struct scrub *s;
    struct lookback *lookback;
    struct lookback_items items; /* states of the remote, and of the store */
    struct numbers states;       /* heads of those that stay for longer than the grace; ascending */
    uint64_t newest;             /* head of the newest state */

    uint64_t number; /* head of `now` */
    char *text;      /* "the snapshot a" */
    struct open_state now, before;
    VECTOR(struct bad_chunk) bad; /* of the newest state, by pack and name */
    struct chunk_names hurt;      /* damaged chunks that `now` needs; DAMAGE_MAX at most */

    struct damage *damage; /* by place; DAMAGE_MAX at most */
    uint64_t more_damage;
    VECTOR(char *) files; /* lines; FILES_MAX at most */
    uint64_t more_files;
};

/* --- the states that stay --------------------------------------------------------------------- */

/* Finds whether a policy or a name may keep a state. If not, the uploader gets no request. */
static int find_whether_any_stays(struct earlier_scrub *e, bool *ret)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    const struct lookback_item *newest = NULL;
    *ret = false;
    lookback_names_changed(e->lookback); /* a list of a moment ago may lack the newest heads */
    TRY(lookback_list(e->lookback, &e->items));
    for (size_t i = 0; i < e->items.count; i++)
        if (!e->items.at[i].is_named && !e->items.at[i].is_local)
            newest = &e->items.at[i];
    if (!newest)
        return 0;
    int r = lookback_read_head(e->lookback, newest, head);
    e->newest = newest->head;
    *ret = r < 0 || head_has_history(head);
    return prefix_object_is_lost(r) ? 0 : r;
}

static void say_nothing(const char *line, void *arg)
{
    (void)line;
    (void)arg;
}

static bool is_cancelled(void *arg)
{
    struct earlier_scrub *e = arg;
    return job_is_cancelled(e->s->job);
}

/* A pass of gc that deletes nothing determines the states that stay. It is possible once the newest
 * changes are published, but not on a mount that does not hold the prefix. */
static int learn_states(struct earlier_scrub *e, bool *ret_known)
{
    struct scrub *s = e->s;
    int r = -EAGAIN;
    for (unsigned i = 0; i < LEARN_TRIES && r == -EAGAIN; i++) {
        struct remote_gc_request request = {
            .dry_run = true, .say = say_nothing, .is_cancelled = is_cancelled, .arg = e};
        if (i > 0 && !job_sleep(s->job, clock_monotonic_ns() + LEARN_AGAIN_NS))
            return -ECANCELED;
        r = remote_gc_ask(s->store->remote, &request);
    }
    *ret_known = r == 0;
    if (r < 0 && r != -ECANCELED)
        job_say(s->job,
                "remote: which earlier states stay cannot be told now, and what they alone need is "
                "not verified; 'cairn fsck %s' verifies it",
                s->store->local.options.remote.name);
    return r == -EAGAIN || r == -ESHUTDOWN ? 0 : r;
}

static void add_state(uint64_t head, uint64_t bytes, void *arg)
{
    struct earlier_scrub *e = arg;
    (void)bytes;
    if (head != e->newest)
        vector_add(&e->states, head);
}

/* NULL: the state was given up meanwhile. In the list, a name stands behind its head. */
static const struct lookback_item *find_item(const struct earlier_scrub *e, uint64_t head)
{
    for (size_t i = e->items.count; i-- > 0;)
        if (e->items.at[i].head == head && e->items.at[i].slot && !e->items.at[i].is_local)
            return &e->items.at[i];
    return NULL;
}

/* --- opening a state -------------------------------------------------------------------------- */

static void leave(struct earlier_scrub *e, struct open_state *state)
{
    if (state->slot)
        past_views_leave(lookback_views(e->lookback), state->slot);
    *state = (struct open_state){0};
}

/* While users browse other states, there may be a free slot for only one view. */
static int enter(struct earlier_scrub *e, const struct lookback_item *item)
{
    int r = lookback_enter(e->lookback, item->slot, &e->now.view);
    if (r == -ENFILE && e->before.slot) {
        leave(e, &e->before);
        r = lookback_enter(e->lookback, item->slot, &e->now.view);
    }
    e->now.slot = r == 0 ? item->slot : 0;
    return r;
}

/* The chunks of the other states are verified nevertheless. */
static int tell_unopened(struct earlier_scrub *e, int error)
{
    struct scrub *s = e->s;
    const char *why = *cause_text() ? cause_text() : strerror(-error);
    if (error == -ESTALE) /* it was given up meanwhile */
        return 0;
    if (error != -EIO && error != -ENFILE && error != -ENOSPC)
        return error;
    if (error == -EIO)
        job_count(s->job, &(struct job_counts){.found = 1, .unhealed = 1});
    job_say(s->job, "remote: %s cannot be read, and what it alone needs is not verified: %s",
            e->text, why);
    return 0;
}

/* --- damage ----------------------------------------------------------------------------------- */

static struct damage *find_damage(struct earlier_scrub *e, uint64_t pack, uint64_t offset)
{
    const struct place place = {pack, offset};
    struct damage *found = NULL;
    HASH_FIND(hh, e->damage, &place, sizeof place, found);
    return found;
}

static void hurts_now(struct earlier_scrub *e, struct damage *damage)
{
    if (damage->last != e->number)
        text_list_add(&damage->states, e->text);
    damage->last = e->number;
}

static void needs_damaged(struct earlier_scrub *e, const struct chunk_name *name)
{
    if (e->hurt.count < DAMAGE_MAX)
        vector_add(&e->hurt, *name);
}

/* Finds whether the pack still exists: gc may have chosen packs to delete before this state was
 * opened. */
static int is_there_still(struct earlier_scrub *e, uint64_t pack, bool *ret)
{
    struct view_remote_pack now;
    int r = view_remote_pack(e->s->store->local.view, pack, &now);
    *ret = r == 0 && !now.gone;
    return r == -ENOENT ? 0 : r;
}

/* `entry` NULL: the pack as a whole. */
static void add_damage(struct earlier_scrub *e, uint64_t pack, const struct chunk_entry *entry,
                       int error)
{
    job_count(e->s->job, &(struct job_counts){.found = 1, .unhealed = 1});
    if (HASH_COUNT(e->damage) >= DAMAGE_MAX) {
        e->more_damage++;
        return;
    }
    struct damage *damage = xcalloc(1, sizeof *damage);
    damage->place = (struct place){pack, entry ? entry->offset : 0};
    damage->raw_len = entry ? entry->raw_len : 0;
    damage->error = error;
    HASH_ADD(hh, e->damage, place, sizeof damage->place, damage);
    hurts_now(e, damage);
}

static int bad_in_state(struct scrub *s, const struct chunk_entry *entry, int error)
{
    struct earlier_scrub *e = s->earlier;
    bool is_there;
    TRY(is_there_still(e, entry->pack, &is_there));
    if (!is_there)
        return 0;
    add_damage(e, entry->pack, entry, error);
    needs_damaged(e, &entry->name);
    return 0;
}

/* --- a pack that the state needs -------------------------------------------------------------- */

/* Finds whether the view needs the chunk at exactly this place. */
static int is_needed_there(struct view *view, const struct chunk_entry *entry, bool *ret)
{
    struct chunk_entry there;
    int r = view_remote_needed(view, &entry->name, &there);
    *ret = r == 0 && there.pack == entry->pack && there.offset == entry->offset;
    return r == -ENOENT ? 0 : r;
}

static int compare_packs(const void *a, const void *b)
{
    const struct bad_chunk *x = a, *y = b;
    return compare_u64(&x->pack, &y->pack);
}

static int compare_bad(const void *a, const void *b)
{
    const struct bad_chunk *x = a, *y = b;
    int order = compare_packs(x, y);
    return order ? order : memcmp(&x->name, &y->name, sizeof x->name);
}

/* Damaged chunks that the newest state needs are stored again in another pack, but only for the
 * newest state. */
static void take_damage_of_newest(struct earlier_scrub *e)
{
    vector_add_all(&e->bad, e->s->bad_there.at, e->s->bad_there.count);
    vector_sort(&e->bad, compare_bad);
}

/* The newest state's chunks are verified by the other part of the scrub. */
static int is_verified(const struct earlier_scrub *e, const struct chunk_entry *entry, bool *ret)
{
    TRY(is_needed_there(e->s->store->local.view, entry, ret));
    return *ret || !e->before.slot ? 0 : is_needed_there(e->before.view, entry, ret);
}

/* Collects chunks that no state before needed, and records that this state needs the damaged ones,
 * too. */
static int collect_needed(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    struct earlier_scrub *e = arg;
    bool is_known;
    if (!is_needed)
        return 0;
    struct damage *of_pack = find_damage(e, entry->pack, 0),
                  *of_chunk = find_damage(e, entry->pack, entry->offset);
    bool is_lost = of_chunk || (of_pack && of_pack->error == -ENOENT);
    if (of_pack)
        hurts_now(e, of_pack);
    if (of_chunk)
        hurts_now(e, of_chunk);
    if (is_lost) {
        needs_damaged(e, &entry->name);
        return 0;
    }
    const struct bad_chunk key = {.name = entry->name, .pack = entry->pack},
                           *bad = vector_search(&e->bad, &key, compare_bad);
    if (bad && bad->error < 0) {
        add_damage(e, entry->pack, bad->error == -ENOENT ? NULL : entry, bad->error);
        needs_damaged(e, &entry->name);
        return 0;
    }
    if (bad)
        return reader_add_entry(entry, true, &e->s->entries);
    TRY(is_verified(e, entry, &is_known));
    return is_known ? 0 : reader_add_entry(entry, true, &e->s->entries);
}

struct index_look {
    struct store *store;
    const struct view_remote_pack *pack;
};

static int look_at_index(void *arg)
{
    const struct index_look *look = arg;
    return reader_check_index(look->store, look->pack);
}

static int needs_pack(struct view *view, uint64_t id, bool *ret)
{
    struct view_remote_pack pack;
    int r = view_remote_pack(view, id, &pack);
    *ret = r == 0 && pack.live_count > 0 && !pack.unreferenced && !pack.gone;
    return r == -ENOENT ? 0 : r;
}

/* Checks the index once per pack. If the pack is missing, none of its chunks is read. */
static int check_index(struct earlier_scrub *e, uint64_t id)
{
    struct scrub *s = e->s;
    struct view_remote_pack pack;
    bool is_known, is_there;
    TRY(needs_pack(s->store->local.view, id, &is_known));
    if (!is_known && e->before.slot)
        TRY(needs_pack(e->before.view, id, &is_known));
    if (is_known || find_damage(e, id, 0))
        return 0;
    TRY(view_remote_pack(e->now.view, id, &pack));
    struct index_look look = {s->store, &pack};
    int r = remote_look_twice(s->store->remote, id, look_at_index, &look);
    job_count(s->job, &(struct job_counts){.packs = 1});
    if (!reader_is_damage(r))
        return r;
    TRY(is_there_still(e, id, &is_there));
    if (is_there)
        add_damage(e, id, NULL, r);
    for (size_t i = 0; i < s->entries.count && is_there && r == -ENOENT; i++)
        needs_damaged(e, &s->entries.at[i].name);
    if (!is_there || r == -ENOENT)
        s->entries.count = 0;
    return 0;
}

/* Finds whether the newest state needs all chunks of the pack, and all are whole. */
static int is_live_as_a_whole(struct earlier_scrub *e, uint64_t id, bool *ret)
{
    struct view_remote_pack pack;
    const struct bad_chunk key = {.pack = id};
    *ret = false;
    if (vector_search(&e->bad, &key, compare_packs))
        return 0;
    int r = view_remote_pack(e->s->store->local.view, id, &pack);
    *ret = r == 0 && pack.live_count == pack.count && !pack.unreferenced && !pack.gone;
    return r == -ENOENT ? 0 : r;
}

static void expect_bytes(struct scrub *s)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->entries.count; i++)
        bytes += s->entries.at[i].stored_len;
    job_count(s->job, &(struct job_counts){.bytes_total = bytes});
}

static int scrub_needed_pack(struct earlier_scrub *e, uint64_t id)
{
    struct scrub *s = e->s;
    char object[32];
    bool is_whole;
    TRY(is_live_as_a_whole(e, id, &is_whole));
    if (is_whole)
        return 0;
    s->entries.count = 0;
    TRY(view_remote_pack_chunks(e->now.view, id, collect_needed, e));
    if (s->entries.count > 0)
        TRY(check_index(e, id));
    expect_bytes(s);
    pack_object_name(id, object);
    return scrub_entries(s, object, bad_in_state);
}

/* --- files that damage hurts ------------------------------------------------------------------ */

static void note_file(uint64_t ino, void *arg)
{
    struct earlier_scrub *e = arg;
    if (e->files.count == FILES_MAX) {
        e->more_files++;
        return;
    }
    _cleanup_free_ char *path = view_path(e->now.view, ino);
    vector_add(&e->files, xasprintf("%s: %s: bytes of it are damaged or missing", e->text, path));
}

static int find_files(struct earlier_scrub *e)
{
    const struct chunk_users want = {e->now.view, &e->hurt, is_cancelled, note_file, e};
    return chunk_users_find(&want);
}

/* --- a state ---------------------------------------------------------------------------------- */

static int add_pack(const struct view_remote_pack *pack, void *arg)
{
    if (pack->live_count > 0 && !pack->unreferenced && !pack->gone)
        vector_add((struct numbers *)arg, pack->pack);
    return 0;
}

static int scrub_opened(struct earlier_scrub *e)
{
    _cleanup_vector_ struct numbers packs = {0};
    e->hurt.count = 0;
    int r = view_remote_packs(e->now.view, add_pack, &packs);
    for (size_t i = 0; i < packs.count && r == 0; i++)
        r = job_is_cancelled(e->s->job) ? -ECANCELED : scrub_needed_pack(e, packs.at[i]);
    return r < 0 ? r : find_files(e);
}

/* If a state fails, not all of its chunks were verified: that ends the scrub of earlier states. */
static int scrub_state(struct earlier_scrub *e, uint64_t head)
{
    const struct lookback_item *item = find_item(e, head);
    if (!item)
        return 0;
    free(e->text);
    e->text = past_describe(head, item->published, item->is_named ? item->name : NULL);
    e->number = head;
    int r = enter(e, item);
    if (r < 0)
        return tell_unopened(e, r);
    TRY(scrub_opened(e));
    leave(e, &e->before);
    e->before = e->now;
    e->now = (struct open_state){0};
    return 0;
}

/* --- reports ---------------------------------------------------------------------------------- */

static void tell_damage(struct earlier_scrub *e, struct damage *damage)
{
    _cleanup_free_ char *states = text_list_take(&damage->states);
    if (damage->place.offset == 0)
        job_say(e->s->job, "remote: packs/%016llx: it %s: it hurts %s",
                (unsigned long long)damage->place.pack, scrub_explain(damage->error), states);
    else
        job_say(e->s->job, "remote: packs/%016llx: a chunk of %u bytes at %llu %s: it hurts %s",
                (unsigned long long)damage->place.pack, damage->raw_len,
                (unsigned long long)damage->place.offset, scrub_explain(damage->error), states);
}

static void tell_all(struct earlier_scrub *e)
{
    struct damage *damage, *next;
    HASH_ITER(hh, e->damage, damage, next)
    tell_damage(e, damage);
    if (e->more_damage)
        job_say(e->s->job, "remote: and %llu more that earlier states need",
                (unsigned long long)e->more_damage);
    for (size_t i = 0; i < e->files.count; i++)
        job_say(e->s->job, "remote: %s", e->files.at[i]);
    if (e->more_files)
        job_say(e->s->job, "remote: and %llu more files of earlier states",
                (unsigned long long)e->more_files);
}

static void earlier_done(struct earlier_scrub *e)
{
    leave(e, &e->now);
    leave(e, &e->before);
    struct damage *damage, *next;
    HASH_ITER(hh, e->damage, damage, next)
    free(damage->states.text);
    HASH_FREE_ALL(e->damage);
    for (size_t i = 0; i < e->files.count; i++)
        free(e->files.at[i]);
    vector_free(&e->files);
    vector_free(&e->bad);
    vector_free(&e->hurt);
    vector_free(&e->states);
    vector_free(&e->items);
    free(e->text);
}

int scrub_earlier_states(struct scrub *s)
{
    _cleanup_(earlier_done) struct earlier_scrub e = {.s = s, .lookback = s->store->own->lookback};
    bool any, is_known = false;
    if (!e.lookback) /* several nodes write the prefix: no earlier state stays */
        return 0;
    TRY(find_whether_any_stays(&e, &any));
    if (any)
        TRY(learn_states(&e, &is_known));
    if (is_known)
        snapshots_each(remote_snapshots(s->store->remote), add_state, &e);
    take_damage_of_newest(&e);
    s->earlier = &e;
    int r = 0;
    for (size_t i = 0; i < e.states.count && r == 0; i++)
        r = job_is_cancelled(s->job) ? -ECANCELED : scrub_state(&e, e.states.at[i]);
    tell_all(&e);
    s->earlier = NULL;
    return r;
}
