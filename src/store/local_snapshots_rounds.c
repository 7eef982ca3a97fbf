// SPDX-License-Identifier: Apache-2.0
/* When snapshots of a store are taken, named and given up. */
#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "commit/horizon.h"
#include "commit/read.h"
#include "commit/room.h"
#include "commit/upkeep.h"
#include "snapshots/policy.h"
#include "store/local_snapshots_internal.h"
#include "view/view.h"

#define COUNT_EVERY_NS (5 * SECOND_NS)
#define AGAIN_NS (30 * SECOND_NS) /* after a failure to take one */
#define FREES_MIN (8 * MIB)       /* for less no snapshot is given up */

static struct local_snapshots *snapshots_of(struct store *store)
{
    return store->own->snapshots;
}

static const struct history_options *options_of(const struct local_snapshots *snapshots)
{
    return &snapshots->store->local.options.local_history;
}

/* --- costs --- */

struct counting {
    const struct store *store;
    struct pack_ids needed; /* by snapshots that may be given up; ascending */
    struct pack_ids held;   /* by others */
    uint64_t bytes;
};

/* Returns the bytes of a pack that become free without the snapshots: the dead ones, if gc can free
 * them, or with a remote, from which the pack can be fetched again, all. */
static uint64_t free_bytes_of(const struct counting *counting, const struct view_pack *pack)
{
    if (counting->store->remote)
        return pack->length;
    return gc_frees(pack) ? pack->length - min_u64(pack->live_bytes, pack->length) : 0;
}

static int count_pack(const struct view_pack *pack, void *arg)
{
    struct counting *counting = arg;
    if (vector_search(&counting->needed, &pack->pack, compare_u64) &&
        !vector_search(&counting->held, &pack->pack, compare_u64))
        counting->bytes += free_bytes_of(counting, pack);
    return 0;
}

enum which { WHICH_ALL, WHICH_UNREAD, WHICH_UNREAD_UNNAMED };

static bool is_counted(const struct local_state *state, enum which which)
{
    return which == WHICH_ALL ||
           (state->readers == 0 && (which == WHICH_UNREAD || state->snapshot.name[0] == 0));
}

static void copy_packs(struct local_snapshots *snapshots, enum which which,
                       struct counting *counting)
{
    LOCK_SCOPE(&snapshots->lock);
    for (size_t i = 0; i < snapshots->states.count; i++) {
        const struct local_state *state = &snapshots->states.at[i];
        struct pack_ids *into = is_counted(state, which) ? &counting->needed : &counting->held;
        vector_add_all(into, state->snapshot.packs.at, state->snapshot.packs.count);
    }
}

/* Returns the bytes that become free if these are given up. */
static uint64_t count_free(struct local_snapshots *snapshots, enum which which)
{
    struct counting counting = {.store = snapshots->store};
    copy_packs(snapshots, which, &counting);
    vector_sort_unique(&counting.needed);
    vector_sort_unique(&counting.held);
    int r =
        counting.needed.count ? view_packs(snapshots->store->local.view, count_pack, &counting) : 0;
    vector_free(&counting.needed);
    vector_free(&counting.held);
    return r == 0 ? counting.bytes : 0;
}

/* Returns the bytes that only snapshots need: of packs, and of their copies of the view. */
static uint64_t count_cost(struct local_snapshots *snapshots)
{
    uint64_t copies = local_snapshots_copies(snapshots);
    uint64_t cost = count_free(snapshots, WHICH_ALL) + copies;
    atomic_store(&snapshots->cost, cost);
    atomic_store(&snapshots->copies, copies);
    room_note_snapshots(snapshots->store->commit.room, copies);
    snapshots->counted_at = clock_monotonic_ns();
    return cost;
}

struct local_snapshots_cost local_snapshots_cost(struct local_snapshots *snapshots)
{
    if (!snapshots)
        return (struct local_snapshots_cost){0};
    struct local_snapshots_cost cost = {.bytes = atomic_load(&snapshots->cost)};
    LOCK_SCOPE(&snapshots->lock);
    for (size_t i = 0; i < snapshots->states.count; i++)
        cost.count += !snapshots->states.at[i].is_deleted;
    return cost;
}

/* --- giving up -------------------------------------------------------------------------------- */

/* Returns the oldest one that is not being read, among those with or without a name; -1: none. */
static ssize_t find_oldest(struct local_snapshots *snapshots, bool is_named)
{
    LOCK_SCOPE(&snapshots->lock);
    for (size_t i = 0; i < snapshots->states.count; i++) {
        const struct local_state *state = &snapshots->states.at[i];
        if (state->readers == 0 && (state->snapshot.name[0] != 0) == is_named)
            return (ssize_t)i;
    }
    return -1;
}

/* Gives up snapshots that were deleted while they were read, and are not read any more. */
static void remove_deleted(struct local_snapshots *snapshots)
{
    for (size_t i = snapshots->states.count; i-- > 0;) {
        unsigned long long number = snapshots->states.at[i].snapshot.number;
        int r = snapshots->states.at[i].is_deleted ? local_snapshots_give_up(snapshots, i) : -EBUSY;
        if (r == -EBUSY)
            continue;
        if (r < 0)
            log_error("the snapshot %llu could not be removed: %s", number, strerror(-r));
        gc_ask_soon(&snapshots->store->commit);
        snapshots->counted_at = 0;
    }
}

/* A failure is logged, and remaining files are found by the next mount. */
static bool give_up(struct local_snapshots *snapshots, size_t i, const char *why)
{
    const struct local_snapshot *one = &snapshots->states.at[i].snapshot;
    unsigned long long number = one->number;
    char name[SNAPSHOT_NAME_MAX];
    memcpy(name, one->name, sizeof name);
    int r = local_snapshots_give_up(snapshots, i);
    if (r == -EBUSY)
        return false;
    if (r < 0)
        log_error("the snapshot %llu could not be removed: %s", number, strerror(-r));
    else if (name[0])
        log_warn("the snapshot %s (%llu) was given up: %s", name, number, why);
    else
        log_info("the snapshot %llu was given up: %s", number, why);
    gc_ask_soon(&snapshots->store->commit);
    snapshots->counted_at = 0; /* there may be more to give up */
    return true;
}

static bool give_oldest(struct local_snapshots *snapshots, bool also_named, const char *why)
{
    ssize_t i = find_oldest(snapshots, false);
    if (i < 0 && also_named)
        i = find_oldest(snapshots, true);
    return i >= 0 && give_up(snapshots, (size_t)i, why);
}

static bool frees_something(struct local_snapshots *snapshots, enum which which)
{
    return atomic_load(&snapshots->copies) + count_free(snapshots, which) >= FREES_MIN;
}

bool local_snapshots_give_round(struct store *store, bool now)
{
    struct local_snapshots *snapshots = snapshots_of(store);
    bool is_any = snapshots && (snapshots->states.count > 0 || atomic_load(&snapshots->cost) > 0);
    if (!is_any || (!now && clock_monotonic_ns() < snapshots->counted_at + COUNT_EVERY_NS))
        return false;
    uint64_t cost = count_cost(snapshots);
    if (cost > snapshots->space && !store->remote &&
        frees_something(snapshots, WHICH_UNREAD_UNNAMED) &&
        give_oldest(snapshots, false, "they need more than history_space"))
        return true;
    return room_is_short(store->commit.room) && frees_something(snapshots, WHICH_UNREAD) &&
           give_oldest(snapshots, true, "writers need the room on NVMe");
}

bool local_snapshots_may_free(struct store *store)
{
    struct local_snapshots *snapshots = snapshots_of(store);
    return snapshots && (find_oldest(snapshots, false) >= 0 || find_oldest(snapshots, true) >= 0) &&
           frees_something(snapshots, WHICH_UNREAD);
}

/* --- damage ----------------------------------------------------------------------------------- */

static uint64_t place_of(struct store *store, const struct chunk_name *name)
{
    struct view_local_chunk chunk;
    return view_local_chunk(store->local.view, name, &chunk) == 0 ? chunk.entry.pack : 0;
}

bool local_snapshots_heal_round(struct store *store, bool now)
{
    struct chunk_name names[HEAL_MAX];
    uint64_t places[HEAL_MAX];
    struct local_snapshots *snapshots = snapshots_of(store);
    size_t count = snapshots ? heal_names(store->commit.heal, names) : 0;
    for (size_t i = 0; i < count; i++)
        places[i] = place_of(store, &names[i]);
    if (!heal_round(store, now))
        return false;
    for (size_t i = 0; i < count; i++) {
        uint64_t place = place_of(store, &names[i]);
        if (places[i] && place && place != places[i])
            local_snapshots_follow(snapshots, places[i], place);
    }
    return true;
}

/* --- the policy ------------------------------------------------------------------------------- */

DEFINE_VECTOR(keep_states, struct keep_state);

static void add_unnamed(const struct local_snapshots *snapshots, struct keep_states *ret)
{
    for (size_t i = 0; i < snapshots->states.count; i++) {
        const struct local_snapshot *one = &snapshots->states.at[i].snapshot;
        if (!one->name[0])
            vector_add(ret, (struct keep_state){one->cut, one->taken, false});
    }
}

/* Gives up snapshots without a name that the policy does not choose. */
static void thin(struct local_snapshots *snapshots)
{
    _cleanup_vector_ struct keep_states states = {0};
    add_unnamed(snapshots, &states);
    keep_choose(&options_of(snapshots)->keep, states.at, states.count);
    for (size_t i = snapshots->states.count, k = states.count; i-- > 0;) {
        if (snapshots->states.at[i].snapshot.name[0])
            continue;
        if (!states.at[--k].stays)
            (void)give_up(snapshots, i, "keep chooses later ones");
    }
}

/* The policy may have changed since the mount before. */
static void thin_once(struct local_snapshots *snapshots)
{
    if (!snapshots->is_thinned && options_of(snapshots)->sets_keep && !snapshots->store->remote)
        thin(snapshots);
    snapshots->is_thinned = true;
}

static bool is_newest(const struct local_snapshots *snapshots, uint64_t cut)
{
    size_t count = snapshots->states.count;
    return count && snapshots->states.at[count - 1].snapshot.cut == cut;
}

static bool is_due(const struct local_snapshots *snapshots)
{
    const struct history_options *options = options_of(snapshots);
    uint64_t cut = view_state(snapshots->store->local.view).applied_seq;
    int64_t every =
        snapshots->had_trouble && options->every_ns < AGAIN_NS ? AGAIN_NS : options->every_ns;
    bool takes = head_keep_is_set(&options->keep) && !snapshots->store->remote &&
                 !snapshots->store->local.options.read_only;
    return takes && cut && !is_newest(snapshots, cut) &&
           (!snapshots->taken_at || clock_monotonic_ns() >= snapshots->taken_at + every);
}

static void note_taking(struct local_snapshots *snapshots, int r)
{
    snapshots->taken_at = clock_monotonic_ns();
    if (r < 0 && !snapshots->had_trouble)
        log_warn("no snapshot can be taken in %s: %s", snapshots->path,
                 *cause_text() ? cause_text() : strerror(-r));
    snapshots->had_trouble = r < 0;
}

static void take_due(struct local_snapshots *snapshots)
{
    cause_clear();
    note_taking(snapshots, local_snapshots_take(snapshots, NULL));
    thin(snapshots);
}

/* --- names ------------------------------------------------------------------------------------ */

static int note_asked(struct local_snapshots *snapshots, const struct naming *naming,
                      uint64_t *ret_number)
{
    LOCK_SCOPE(&snapshots->lock);
    /* The last request keeps its result until its client has read it, or is gone. */
    if (snapshots->naming_state.running || clock_monotonic_ns() < snapshots->untold_until)
        return -EBUSY;
    *ret_number = snapshots->naming_state.number + 1;
    snapshots->naming = *naming;
    snapshots->naming_state = (struct naming_state){.number = *ret_number, .running = true};
    return 0;
}

int local_snapshots_ask(struct local_snapshots *snapshots, const struct naming *naming,
                        uint64_t *ret_number)
{
    if (snapshots->store->local.options.read_only)
        return -EROFS;
    TRY(note_asked(snapshots, naming, ret_number));
    horizon_kick(snapshots->store->commit.horizon);
    return 0;
}

void local_snapshots_look(struct local_snapshots *snapshots, struct naming_state *ret)
{
    LOCK_SCOPE(&snapshots->lock);
    *ret = snapshots->naming_state;
    if (!ret->running)
        snapshots->untold_until = 0;
}

static ssize_t find_name(const struct local_snapshots *snapshots, const char *name)
{
    for (size_t i = 0; i < snapshots->states.count; i++)
        if (!snapshots->states.at[i].is_deleted &&
            strcmp(snapshots->states.at[i].snapshot.name, name) == 0)
            return (ssize_t)i;
    return -1;
}

static int fail_known(const char *name)
{
    cause_note("there is a snapshot '%s' already", name);
    return -EEXIST;
}

static int add_absent(const struct view_local_chunk *chunk, void *arg)
{
    uint64_t *bytes = arg;
    if (view_is_live(chunk) && chunk->entry.pack == 0)
        *bytes += chunk->entry.raw_len;
    return 0;
}

/* The gc of the remote does not know of the snapshot, and would delete chunks that lie only there.
 */
static int check_all_here(struct local_snapshots *snapshots)
{
    uint64_t bytes = 0;
    if (!snapshots->store->remote)
        return 0;
    TRY(view_chunks(snapshots->store->local.view, add_absent, &bytes));
    if (bytes == 0)
        return 0;
    cause_note("%.1f MiB of the files lie only in the remote, where the snapshot could not hold "
               "them: 'cairn warmup' fetches them, or leave --local out",
               (double)bytes / MIB);
    return -ENODATA;
}

static int create(struct local_snapshots *snapshots, const struct naming *naming)
{
    if (find_name(snapshots, naming->name) >= 0)
        return fail_known(naming->name);
    TRY(check_all_here(snapshots));
    return local_snapshots_take(snapshots, naming->name);
}

static int change(struct local_snapshots *snapshots, const struct naming *naming)
{
    ssize_t i = find_name(snapshots, naming->name);
    if (i < 0) {
        cause_note("there is no snapshot '%s'", naming->name);
        return -ENOENT;
    }
    if (naming->kind == NAMING_RENAME)
        return find_name(snapshots, naming->new_name) >= 0
                   ? fail_known(naming->new_name)
                   : local_snapshots_rename(snapshots, (size_t)i, naming->new_name);
    int r = local_snapshots_give_up(snapshots, (size_t)i);
    if (r == -EBUSY)
        r = local_snapshots_delete(snapshots, (size_t)i);
    gc_ask_soon(&snapshots->store->commit);
    return r;
}

static void note_named(struct local_snapshots *snapshots, const struct naming *naming, int r)
{
    const char *name = naming->kind == NAMING_RENAME ? naming->new_name : naming->name;
    LOCK_SCOPE(&snapshots->lock);
    struct naming_state *state = &snapshots->naming_state;
    state->running = false;
    state->error = r;
    snapshots->untold_until = clock_monotonic_ns() + SECOND_NS;
    (void)snprintf(state->text, sizeof state->text, "%s",
                   r == 0          ? ""
                   : *cause_text() ? cause_text()
                                   : strerror(-r));
    ssize_t i = r == 0 ? find_name(snapshots, name) : -1;
    if (i >= 0) {
        state->head = snapshots->states.at[i].snapshot.number;
        state->published = snapshots->states.at[i].snapshot.taken;
    }
}

/* For a new snapshot, all data that was written before the request is durable, so the view has
 * it. */
static bool carry_out_naming(struct local_snapshots *snapshots)
{
    mutex_lock(&snapshots->lock);
    struct naming naming = snapshots->naming;
    bool is_asked = snapshots->naming_state.running;
    mutex_unlock(&snapshots->lock);
    if (!is_asked || (naming.kind == NAMING_CREATE &&
                      horizon_reached(snapshots->store->commit.horizon) < naming.seq))
        return false;
    cause_clear();
    note_named(snapshots, &naming,
               naming.kind == NAMING_CREATE ? create(snapshots, &naming)
                                            : change(snapshots, &naming));
    return true;
}

bool local_snapshots_take_round(struct store *store, bool now)
{
    struct local_snapshots *snapshots = snapshots_of(store);
    (void)now;
    if (!snapshots)
        return false;
    thin_once(snapshots);
    bool did = carry_out_naming(snapshots);
    remove_deleted(snapshots);
    if (is_due(snapshots))
        take_due(snapshots);
    return did;
}
