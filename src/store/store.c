// SPDX-License-Identifier: Apache-2.0
/* Opening and closing a store, and its status. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "dense/condense.h"
#include "fetch/life.h"
#include "nodes/node.h"
#include "remote/chunks.h"
#include "remote/follow.h"
#include "remote/life.h"
#include "remote/state.h"
#include "store/back.h"
#include "store/job.h"
#include "store/local_snapshots.h"
#include "store/lookback_internal.h"

/* --- superblock ------------------------------------------------------------------------------- */

static int make_superblock(const struct store *store, struct superblock *sb)
{
    *sb = (struct superblock){.version = SUPERBLOCK_VERSION, .created = clock_realtime_ns()};
    if (getrandom(sb->store, sizeof sb->store, 0) != (ssize_t)sizeof sb->store ||
        getrandom(&sb->key, sizeof sb->key, 0) != (ssize_t)sizeof sb->key)
        return -EIO;
    memcpy(sb->history, sb->store, sizeof sb->history);
    remote_give_history(store->remote, sb);
    if (store->node)
        node_give_identity(store->node, sb);
    /* The id names the key and reveals nothing about it. */
    struct iovec iov = {&sb->key, sizeof sb->key};
    uint8_t hash[HASH_LEN];
    hash_parts(&iov, 1, hash);
    memcpy(sb->key_id, hash, sizeof sb->key_id);
    return 0;
}

int store_load_superblock(struct local *local, const struct store *store, char **ret_text)
{
    _cleanup_free_ char *path = xasprintf("%s/superblock", local->path);
    int r = superblock_read(path, &local->sb);
    if (r == -ENOENT && store) {
        r = make_superblock(store, &local->sb);
        if (r == 0)
            r = superblock_write(path, &local->sb);
        if (r < 0)
            *ret_text = xasprintf("%s: cannot make a store there: %s", local->path, strerror(-r));
        return r;
    }
    if (r == -ENOENT)
        *ret_text = xasprintf("%s is not a CairnFS store (no superblock)", local->path);
    else if (r == -EPROTONOSUPPORT)
        *ret_text = xasprintf("%s was made by a newer version of CairnFS (%s); use that version",
                              local->path, cause_text());
    else if (r < 0)
        *ret_text =
            xasprintf("%s/superblock cannot be used: %s; restore it from a backup of the store",
                      local->path, r == -EBADMSG || r == -EUCLEAN ? "it is damaged" : strerror(-r));
    return r;
}

/* Called before the first chunk of an encoding: an older version must not take it for damage. */
static int allow_own_encodings(struct local *local, char **ret_text)
{
    if (local->options.reduce == REDUCE_OFF || local->options.read_only)
        return 0;
    uint64_t encodings = SUPERBLOCK_INCOMPAT_FX;
    if (local->options.reduce == REDUCE_DENSE)
        encodings |=
            SUPERBLOCK_INCOMPAT_DENSE | SUPERBLOCK_INCOMPAT_MATRIX | SUPERBLOCK_INCOMPAT_ANS;
    int r = local_allow_encodings(local, encodings);
    if (r < 0)
        *ret_text = xasprintf("%s/superblock cannot be written: %s; -o reduce=off does without",
                              local->path, strerror(-r));
    return r;
}

int store_new_id(const char *path, char ret_id[33], char **ret_text)
{
    struct local local = {.path = (char *)(uintptr_t)path};
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", path), *stage = NULL;
    TRY(store_load_superblock(&local, NULL, ret_text));
    if (local.sb.former_count == SUPERBLOCK_FORMER_MAX) {
        *ret_text = xasprintf("%s had %u ids already; copy its files to a new store", path,
                              SUPERBLOCK_FORMER_MAX);
        return -EOVERFLOW;
    }
    int r = session_leave_other(path, local.sb.store, &stage);
    if (r == -EBUSY)
        *ret_text = xasprintf("the last daemon of %s left its stage in %s, with what had not come "
                              "to NVMe: mount and unmount it first",
                              path, stage);
    else if (r < 0)
        *ret_text = xasprintf("%s/session cannot be removed: %s", path, strerror(-r));
    if (r < 0)
        return r;
    memcpy(local.sb.former[local.sb.former_count++], local.sb.store, sizeof local.sb.store);
    if (getrandom(local.sb.store, sizeof local.sb.store, 0) != (ssize_t)sizeof local.sb.store)
        return -EIO;
    hex_print(ret_id, local.sb.store, 16);
    r = superblock_write(superblock, &local.sb);
    explicit_bzero(&local.sb.key, sizeof local.sb.key);
    if (r < 0)
        *ret_text = xasprintf("%s cannot be written: %s", superblock, strerror(-r));
    return r;
}

/* --- life ------------------------------------------------------------------------------------- */

static const struct upkeep_round upkeep_list[] = {
    {follow_round, false},               /* remote/: the view becomes that of a newer head */
    {pins_round, false},                 /* fetch/: pinned bytes are counted */
    {local_snapshots_heal_round, false}, /* and commit/: damaged chunks get another place */
    {promote_round, false},              /* fetch/: fetched chunks become part of the journal */
    {local_snapshots_take_round, false}, /* before gc: the packs that they need stay */
    {gc_round, true},                    /* commit/: packs that nothing needs are dropped */
    {evict_round, true},                 /* fetch/: packs that the remote has are dropped */
    {compact_round, true},               /* commit/: mostly dead packs are rewritten */
    {local_snapshots_give_round, true},  /* when nothing else makes room */
    {condense_round, false},             /* remote/: old chunks become as dense as in the remote */
};
static bool may_free(struct store *store)
{
    return evict_may_free(store) || local_snapshots_may_free(store);
}

static const struct upkeep upkeep = {
    .rounds = upkeep_list, .count = ARRAY_LEN(upkeep_list), .may_free = may_free};

struct store *store_new(const struct store_options *options)
{
    struct store *store = xcalloc(1, sizeof *store);
    store->local.options = *options;
    store->local.path = xstrdup(options->path);
    commit_init(&store->commit, store, &store->local, &upkeep);
    store->fetch = fetch_new();
    store->past = past_views_new();
    packs_look_back(store->commit.packs, store->past);
    store->own = xcalloc(1, sizeof *store->own);
    store->own->job = job_new();
    if (options->remote.name && options->remote.nodes) {
        store->node = node_new(&store->commit, &store->local, &options->remote);
        store->local.options.remote.tier = node_tier(store->node);
    }
    store->remote = remote_new(store);
    return store;
}

int store_open_parts(struct store *store, bool create, char **ret_text)
{
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", store->local.path);
    bool is_new = access(superblock, F_OK) < 0;
    TRY(store->node ? node_join(store->node, is_new, ret_text) : 0);
    TRY(store->remote ? remote_open(store->remote, is_new, ret_text) : 0);
    TRY(store_load_superblock(&store->local, create ? store : NULL, ret_text));
    TRY(store->node ? node_check_superblock(store->node, ret_text) : 0);
    int r = nvme_tier_open(store->local.path, &store->local.tier);
    if (r < 0)
        *ret_text = xasprintf("%s: cannot be used as a store: %s", store->local.path, strerror(-r));
    const struct adoption adoption = adoption_of(store);
    return r < 0 ? r : adopt_clean_up(&adoption, ret_text);
}

/* The next start makes the view anew, independent of its content; or uses it, if it cannot. */
static void leave_damaged_view(struct store *store)
{
    if (store->local.view && view_is_damaged(store->local.view) && new_view_ask(&store->local) < 0)
        log_warn("%s cannot be written: the next start may not see that the view is damaged",
                 store->local.path);
}

static void store_free(struct store *store, bool stage_is_empty)
{
    leave_damaged_view(store);
    fetch_free(store->fetch);
    lookback_free(store->own->lookback);
    local_snapshots_close(store->own->snapshots);
    past_views_free(store->past);
    session_close_stage(store->commit.own_stage, stage_is_empty);
    commit_done(&store->commit);
    ns_free(store->local.ns);
    if (store->local.view)
        view_close(store->local.view);
    if (store->local.tier)
        store->local.tier->ops->close(store->local.tier);
    remote_free(store->remote);
    node_free(store->node);
    job_free(store->own->job);
    free(store->own->nameless);
    free(store->own);
    explicit_bzero(&store->local.sb.key, sizeof store->local.sb.key);
    free(store->local.path);
    free(store);
}

bool store_must_open_again(const struct store *store)
{
    bool is_decided = store->own->view_is_new || store->own->view_is_kept;
    return store->local.view && view_is_damaged(store->local.view) && !is_decided;
}

/* Numbers assigned by this store alone would also be assigned by nodes. */
static int check_is_no_node(const struct store *store, char **ret_text)
{
    bool is_nodes = store->local.sb.incompat & SUPERBLOCK_INCOMPAT_NODES && store->local.sb.node;
    if (store->node || !is_nodes) /* without a number it has only read the nodes' data */
        return 0;
    *ret_text = xasprintf("%s belongs to one of several nodes that write a prefix: mount it with "
                          "-o nodes and the remote of that prefix",
                          store->local.path);
    return -EINVAL;
}

/* Detects a power loss: operations acknowledged by the daemon before may be lost with its stage. */
static int look_for_stage(struct store *store)
{
    _cleanup_(session_done) struct session session;
    TRY(session_read(store->local.path, store->local.sb.store, &session));
    if (session.exists && !session.is_reader &&
        !session_left_stage(store->local.path, store->local.sb.store))
        node_note_lost(store->node);
    return 0;
}

/* Checks whether the union continues from this store's state. */
static int meet_nodes(struct store *store, const struct back *back, bool serves, char **ret_text)
{
    bool is_attached = remote_prefix(store->remote)->is_attached;
    TRY(look_for_stage(store));
    if (is_attached)
        TRY(node_meet_union(store->node, ret_text));
    if (back->step != BACK_IS_ASIDE && !node_takes_place(store->node))
        return 0;
    if (is_attached)
        return back_go(store, serves, ret_text);
    *ret_text =
        xasprintf("%s cannot be reached, and this node goes on from a state that lies there",
                  store->local.options.remote.name);
    return -EHOSTDOWN;
}

/* If another store replaced this one, the local state is set aside before this is reported. */
static int join_remote(struct store *store, const struct back *back, char **ret_text)
{
    int r = remote_join(store->remote, ret_text);
    bool is_taken = r == -EBUSY && store->node && node_place_is_taken(store->node, ret_text);
    if (!is_taken || back->step == BACK_IS_ASIDE)
        return r;
    remote_prefix(store->remote)->head = (struct head){0};
    free(*ret_text);
    *ret_text = NULL;
    return node_fall_behind(store->node);
}

static int open_snapshots(struct store *store, char **ret_text)
{
    int r = local_snapshots_open(store, &store->own->snapshots);
    if (r < 0)
        *ret_text = xasprintf("%s/snapshots cannot be read: %s", store->local.path, strerror(-r));
    return r;
}

static int decide(struct store *store, char **ret_text)
{
    const struct adoption adoption = adoption_of(store);
    return adopt_decide(&adoption, ret_text);
}

static int open_to_write(struct store *store, const struct back *back, bool serves, char **ret_text)
{
    TRY(store_open_parts(store, true, ret_text));
    TRY(check_is_no_node(store, ret_text));
    TRY(allow_own_encodings(&store->local, ret_text));
    TRY(store->remote ? join_remote(store, back, ret_text) : 0);
    TRY(store->node ? meet_nodes(store, back, serves, ret_text) : 0);
    if (back->step == BACK_IS_ASIDE) /* the remote was queried, as at the start of a mount */
        store->local.options.adopting = serves;
    TRY(decide(store, ret_text));
    TRY(store->node ? node_begin(store->node) : 0);
    TRY(recover(store, ret_text));
    TRY(open_snapshots(store, ret_text));
    if (store->node) {
        commit_join_nodes(&store->commit, NODE_ROUND_NS, node_clock(store->node));
        history_set_lease(store->commit.history, &(struct history_lease){0}); /* until an inquiry */
    }
    return store->remote ? remote_hold(store->remote, ret_text) : 0;
}

int store_open_once(const struct store_options *options, const struct back *back, bool serves,
                    struct store **ret, bool *ret_again, char **ret_text)
{
    struct store *store = store_new(options);
    remote_watch_start(store->remote);
    int r = open_to_write(store, back, serves, ret_text);
    remote_watch_end(store->remote);
    *ret_again = store_must_open_again(store);
    if (*ret_again) {
        log_warn("the view is damaged: opening the store again, with a new one");
        free(*ret_text);
        *ret_text = NULL;
        r = -EUCLEAN;
    }
    if (r < 0) {
        store_free(store, false);
        return r;
    }
    if (store->own->view_is_kept)
        view_distrust(store->local.view);
    *ret = store;
    return 0;
}

int store_open_bare(const struct store_options *options, struct store **ret, char **ret_text)
{
    struct store *store = store_new(options);
    *ret_text = NULL;
    int r = store_open_parts(store, false, ret_text);
    if (r == 0)
        r = decide(store, ret_text);
    if (r < 0) {
        store_free(store, false);
        return r;
    }
    *ret = store;
    return 0;
}

/* Ends an opening without a stage: the namespace is the view's. */
static int give_offline(struct store *store, int r, struct store **ret)
{
    if (r < 0) {
        store_free(store, false);
        return r;
    }
    store->local.ns = ns_new(store->local.view);
    *ret = store;
    return 0;
}

int store_open_medium(const struct store_options *options, bool whole_journal, struct store **ret,
                      char **ret_text)
{
    struct store *store;
    TRY(store_open_bare(options, &store, ret_text));
    store->own->whole_journal = whole_journal;
    return give_offline(store, recover_view(store, ret_text), ret);
}

int store_open_remote(const struct store_options *options, struct store **ret, char **ret_text)
{
    struct store *store = store_new(options);
    *ret_text = NULL;
    int r = store_open_parts(store, true, ret_text);
    if (r == 0)
        r = remote_join_to_read(store->remote, ret_text);
    if (r == 0)
        r = decide(store, ret_text);
    if (r == 0)
        r = recover_view(store, ret_text);
    return give_offline(store, r, ret);
}

void store_discard(struct store *store)
{
    store_free(store, false);
}

int store_start(struct store *store, void (*room)(void *arg), void *arg)
{
    check(store->local.tier && store->local.view && store->local.stage);
    TRY(commit_start(&store->commit, room, arg));
    TRY(fetch_start(store));
    TRY(store->node ? node_start(store->node) : 0);
    store->own->lookback = lookback_new(store);
    return store->remote ? remote_start(store->remote) : 0;
}

static bool is_all_durable(struct store *store)
{
    uint64_t seq;
    int64_t happened;
    return !history_oldest(store->commit.history, &seq, &happened) &&
           stage_drafts(store->local.stage, NULL, 0) == 0;
}

static void close_store(struct store *store, bool mount_ends)
{
    lookback_stop(store->own->lookback);
    stage_stop(store->local.stage);
    room_stop(store->commit.room);
    store_job_cancel(store);
    fetch_stop(store);
    if (store->node && mount_ends)
        node_let_leave(store->node);
    remote_stop(store->remote);
    job_join(store);
    fetch_end(store);
    writeback_stop(&store->commit);
    bool is_over = mount_ends && is_all_durable(store);
    if (is_over) {
        if (view_flush(store->local.view) < 0)
            log_warn("the view could not be flushed; the next mount catches up");
        view_compact_leftovers(store->local.view);
        if (session_end(store->local.path) < 0)
            log_warn("%s/session could not be removed; the next mount finds no stage",
                     store->local.path);
    }
    store_free(store, is_over);
}

void store_close(struct store *store)
{
    if (store)
        close_store(store, true);
}

void store_leave(struct store *store)
{
    if (store)
        close_store(store, false);
}

void store_interrupt(struct store *store)
{
    struct tier *tier = store->remote ? remote_tier(store->remote) : NULL;
    if (tier && tier->ops->interrupt)
        tier->ops->interrupt(tier);
}

/* Both horizons take their tickets from one counter. */
bool store_unwait(struct store *store, uint64_t ticket)
{
    return horizon_unwait(store->commit.horizon, ticket) ||
           (store->remote && remote_unwait(store->remote, ticket));
}

void store_hear_union(struct store *store, void (*fn)(void *arg), void *arg)
{
    if (store->node)
        node_hear(store->node, NODE_HEARER_SHOWS, fn, arg);
}

struct lookback *store_lookback(struct store *store)
{
    return store->local.options.history ? store->own->lookback : NULL;
}

struct commit *store_commit(struct store *store)
{
    return &store->commit;
}

struct ns *store_ns(struct store *store)
{
    return store->local.ns;
}

struct stage *store_stage(struct store *store)
{
    return store->local.stage;
}

struct node *store_node(struct store *store)
{
    return store->node;
}

uint64_t store_new_ino(struct store *store)
{
    return ((uint64_t)store->local.sb.writer << 48) | atomic_fetch_add(&store->own->next_ino, 1);
}

bool store_owns_inode(struct store *store, uint64_t ino)
{
    return !store->node || node_has_epoch(store->node, ID_EPOCH(ino));
}

bool store_is_behind(struct store *store, uint64_t *ret_generation)
{
    if (!store->node || !node_is_behind(store->node))
        return false;
    *ret_generation = node_next_generation(store->node);
    return true;
}

uint64_t store_generation(const struct store *store)
{
    return store->node ? node_generation(store->node) : 0;
}

void store_on_open(struct store *store, void (*fn)(void *arg, int64_t opens), void *arg)
{
    if (store->node)
        node_on_open(store->node, fn, arg);
}

/* --- status ----------------------------------------------------------------------------------- */

static void status_behind(struct store *store, struct store_status *ret)
{
    uint64_t seq;
    int64_t happened;
    if (history_oldest(store->commit.history, &seq, &happened))
        ret->seconds_behind = (double)(clock_monotonic_ns() - happened) / 1e9;
    ret->behind_bytes = stage_dirty_bytes(store->local.stage);
    ret->behind_files =
        stage_sealed_list(store->local.stage, NULL, 0) + stage_drafts(store->local.stage, NULL, 0);
}

/* Threads that hash and encode, and the chunks that they decode beside others. */
static uint64_t encoding_memory(const struct store *store)
{
    uint64_t threads = store->local.options.writeback_threads + 1;
    bool has_bases = store->local.sb.incompat & SUPERBLOCK_INCOMPAT_DENSE;
    return threads * (3 * CHUNK_SIZE_MAX + (has_bases ? LOCAL_BASES_BYTES : 0));
}

static void status_memory(struct store *store, struct store_status *ret)
{
    struct stage_usage usage = stage_usage(store->local.stage);
    uint64_t stage = usage.total_bytes + usage.control_bytes;
    uint64_t tables = usage.heap_bytes_max +
                      (uint64_t)PENDING_OPS_MAX * (400 + (store->node ? NODE_OP_BYTES : 0));
    uint64_t buffers = fetch_memory(store) + remote_memory(store->remote) + encoding_memory(store) +
                       node_memory(store->node) + (uint64_t)PACK_BUFFERS * PACK_BUFFER_LEN;
    uint64_t names = VIEW_CACHE_BYTES + NS_CLEAN_BYTES + lookback_memory(store->own->lookback);
    ret->memory_bound_bytes = stage + tables + buffers + names + 32 * MIB;
    (void)snprintf(ret->memory_formula, sizeof ret->memory_formula,
                   "stage %.0f MiB + its tables %.0f + pack and read buffers %.0f + view and names "
                   "%.0f + code and threads 32 = at most %.0f MiB",
                   (double)stage / MIB, (double)tables / MIB, (double)buffers / MIB,
                   (double)names / MIB, (double)ret->memory_bound_bytes / MIB);
}

static void status_room(struct store *store, struct store_status *ret)
{
    ret->used_bytes = room_used(store->commit.room);
    ret->reserved_bytes = ret->behind_bytes + ret->behind_bytes / 28;
    ret->available_bytes = room_available(store->commit.room, 0);
    ret->cap_bytes = ret->used_bytes + ret->reserved_bytes + ret->available_bytes;
    uint64_t most = room_available(store->commit.room, evict_possible(store));
    ret->evictable_bytes = most > ret->available_bytes ? most - ret->available_bytes : 0;
}

void store_status(struct store *store, struct store_status *ret)
{
    *ret = (struct store_status){.epoch = store->local.epoch,
                                 .newest_seq = history_newest(store->commit.history)};
    memcpy(ret->store_id, store->local.sb.store, sizeof ret->store_id);
    ret->view = view_state(store->local.view);
    status_behind(store, ret);
    status_room(store, ret);
    status_memory(store, ret);
    ret->evicted_bytes_total = evict_total(store);
    ret->nvme = commit_status(&store->commit);
}

uint64_t store_missing_bytes(struct store *store, uint64_t seq)
{
    uint64_t bytes = horizon_target_bytes(store->commit.horizon);
    size_t max = stage_sealed_list(store->local.stage, NULL, 0);
    _cleanup_free_ struct stage_sealed *list = xcalloc(max, sizeof *list);
    size_t count = stage_sealed_list(store->local.stage, list, max);
    for (size_t i = 0; i < count && i < max; i++)
        if (list[i].seal_seq <= seq)
            bytes += list[i].bytes;
    return bytes;
}

bool store_is_durable(struct store *store, uint64_t ino)
{
    struct stage_file_state state;
    struct ns_inode inode;
    (void)stage_file_state(store->local.stage, ino, &state);
    if (state.has_draft)
        return false;
    /* The stage first: it knows of a version that is being sealed before the namespace does. */
    int r = ns_inode(store->local.ns, ino, &inode);
    if (r == 0 && (inode.nascent || (state.has_sealed && state.sealed_version > inode.version)))
        return false;
    if (r == 0 && S_ISDIR(inode.attrs.mode) && history_has_draft_below(store->commit.history, ino))
        return false;
    return ns_last_change(store->local.ns, ino) <= horizon_reached(store->commit.horizon);
}

void store_await_view(struct store *store, int64_t until_ns)
{
    uint64_t seen = event_count(horizon_progress(store->commit.horizon));
    while (lag_exists(store->commit.lag) &&
           event_wait(horizon_progress(store->commit.horizon), &seen, until_ns))
        ;
}
