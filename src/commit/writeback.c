// SPDX-License-Identifier: Apache-2.0
/* Writeback: one thread that decides, a few that work.
 *
 * A round chooses a target cut, writes what that cut lacks, appends the journal batch, brings the
 * view up to it, releases what is durable, and moves the horizon. The order within a round never
 * changes, except that no step waits for a view that cannot follow (lag.c):
 *
 *   chunks durable  ->  batch durable  ->  view  ->  overlay, stage and dropped packs released
 *   ->  horizon and waiters
 *
 * Which cut: the newest state, but at most TARGET_BYTES_MAX of missing bytes or one version ahead,
 * and never one below the stage's floor. When the stage runs full of drafts, the largest is written
 * in pieces before it is sealed. */
#include <pthread.h>

#include "base/clock.h"
#include "base/log.h"
#include "commit/internal.h"

#define TICK_MS 250
#define DRAFT_IDLE_NS (5ll * 1000000000)
#define DRAFT_AGE_NS (60ll * 1000000000)
#define DRAFT_SMALL (8 * MIB)
#define RIPE_MAX 64u
#define PIECE_MIN (16 * MIB)
#define PIECE_MAX (128 * MIB)
#define PIECE_CROWDED_MIN (64 * KIB) /* less would free nothing worth the I/O */
#define PIECE_PARTS_MAX 65536u
#define GATHER_MAX 32u  /* stretches at a time */
#define RETRY_MS_MIN 10 /* most errors of a disk pass, or do not repeat in another file */
#define RETRY_MS_MAX 1000

struct writeback {
    struct store *store;
    struct stage_scattered gather_at; /* where gathering goes on */
    bool has_gathered;                /* in the last round */
    uint64_t piece_ino, piece_next;   /* where the cut state goes on */
    struct cut_state piece_state;
};

/* --- a target --------------------------------------------------------------------------------- */

struct target {
    uint64_t cut;
    struct stage_sealed *sealed; /* what the cut needs, in order of sealing */
    size_t count;
};

static struct stage_sealed *list_sealed(struct store *store, size_t *ret_count)
{
    size_t max = stage_sealed_list(store->stage, NULL, 0);
    struct stage_sealed *list = xcalloc(max, sizeof *list);
    size_t count = stage_sealed_list(store->stage, list, max);
    *ret_count = count < max ? count : max;
    return list;
}

/* With the history's lock held, so that no version is sealed or dropped meanwhile. */
static void choose_locked(struct store *store, struct target *target)
{
    check_held(&store->commit->history.lock);
    uint64_t floor = stage_floor(store->stage), missing = 0;
    target->sealed = list_sealed(store, &target->count);
    target->cut = store->commit->history.newest;
    for (size_t i = 0; i < target->count; i++) {
        missing += target->sealed[i].bytes;
        if (i > 0 && missing > TARGET_BYTES_MAX && target->sealed[i].seal_seq > floor) {
            target->cut = target->sealed[i].seal_seq - 1;
            target->count = i;
            break;
        }
    }
    for (size_t i = 0; i < target->count; i++)
        stage_pin(store->stage, &target->sealed[i]);
    store->commit->history.chosen = target->cut;
}

static void choose(struct store *store, struct target *target)
{
    uint64_t missing = 0;
    mutex_lock(&store->commit->history.lock);
    choose_locked(store, target);
    mutex_unlock(&store->commit->history.lock);
    for (size_t i = 0; i < target->count; i++)
        missing += target->sealed[i].bytes;
    mutex_lock(&store->commit->horizon.lock);
    store->commit->horizon.target_bytes = missing;
    mutex_unlock(&store->commit->horizon.lock);
}

static int write_versions(struct store *store, const struct target *target,
                          struct version_content *versions)
{
    for (size_t i = 0; i < target->count; i++) {
        const struct stage_sealed *sealed = &target->sealed[i];
        versions[i] = (struct version_content){.ino = sealed->ino,
                                               .version = sealed->version,
                                               .keep = sealed->keep,
                                               .seal_seq = sealed->seal_seq};
        int r = content_write_layer(store, sealed, &versions[i].content);
        if (r < 0)
            return r;
        mutex_lock(&store->commit->horizon.lock);
        store->commit->horizon.target_bytes -=
            min_u64(store->commit->horizon.target_bytes, sealed->bytes);
        mutex_unlock(&store->commit->horizon.lock);
    }
    return packs_finish(store);
}

static void versions_done(struct store *store, struct version_content *versions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        content_done(store, &versions[i].content);
    free(versions);
}

/* The view follows a batch that is durable. */
static int follow(struct store *store, const struct batch *batch)
{
    struct view_batch vb = {.records = batch->bytes,
                            .records_len = batch->len,
                            .cut_seq = store->commit->journal.cut_seq,
                            .pack_index = view_pack_index,
                            .arg = store};
    memcpy(vb.chain, store->commit->journal.chain, sizeof vb.chain);
    int r = room_for_view(store);
    return r < 0 ? r : view_apply(store->view, &vb);
}

static void release_target(struct store *store, const struct target *target,
                           const struct batch *batch)
{
    stage_note_durable(store->stage, target->cut);
    /* Under the history's lock, so that no operation builds on what leaves the overlay. */
    mutex_lock(&store->commit->history.lock);
    ns_retire(store->ns, target->cut);
    mutex_unlock(&store->commit->history.lock);
    for (size_t i = 0; i < target->count; i++) {
        ns_stored(store->ns,
                  target->sealed[i]
                      .ino); /* before the stage lets go: at no moment does it count nowhere */
        stage_layer_done(store->stage, target->sealed[i].ino);
    }
    packs_note_named(store, batch->packs, batch->pack_count);
    packs_retire_named(store);
    (void)history_retire(store, target->cut);
    room_account(store);
}

/* Is a version without holes shown as such before it is durable, meanwhile, and after? */
static bool is_dense(struct store *store, const struct version_content *version)
{
    struct stage_file_state staged;
    struct ns_inode inode;
    uint64_t bytes = 0;
    for (size_t i = 0; i < version->content.extents.count; i++)
        if (version->content.extents.at[i].kind != EXTENT_HOLE)
            bytes += version->content.extents.at[i].length;
    (void)stage_file_state(store->stage, version->ino, &staged);
    return !staged.has_draft && staged.has_sealed &&
           ns_inode(store->ns, version->ino, &inode) == 0 &&
           inode.blocks_bytes + staged.dirty_bytes + staged.chunk_bytes >= staged.sealed_size &&
           bytes >= staged.sealed_size;
}

/* Nothing is left of its content; was there nothing before? */
static bool is_empty(struct store *store, uint64_t ino)
{
    struct ns_inode inode;
    return ns_inode(store->ns, ino, &inode) == 0 && inode.blocks_bytes == 0;
}

static void note_dense(struct store *store, struct version_content *versions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        versions[i].is_dense = versions[i].content.extents.count > 0
                                   ? is_dense(store, &versions[i])
                                   : is_empty(store, versions[i].ino);
}

/* Until now what is staged counted in addition to what it replaces: where there are holes,
 * st_blocks is another now. */
static void notify_stored(struct store *store, const struct version_content *versions, size_t count)
{
    uint64_t *inos = xcalloc(count, sizeof *inos);
    size_t changed = 0;
    for (size_t i = 0; i < count; i++) {
        struct stage_file_state staged;
        bool same =
            versions[i].is_dense && !stage_file_state(store->stage, versions[i].ino, &staged);
        if (!same && (versions[i].content.extents.count > 0 || !versions[i].is_dense))
            inos[changed++] = versions[i].ino;
    }
    if (changed)
        change_notify(store, inos, changed, false);
    free(inos);
}

static bool is_stopping(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    return store->commit->horizon.stopping;
}

/* Appends, applies, releases. Waiters for the horizon are notified after the view has the cut and
 * the kernel was notified of changes. Where the view cannot follow, they are notified without it:
 * the batch is durable. */
static int publish(struct store *store, const struct target *target,
                   const struct version_content *versions, const struct batch *batch,
                   const struct drops *drops)
{
    uint64_t seq;
    int64_t happened;
    if (!history_oldest(store, &seq, &happened))
        happened = clock_monotonic_ns();
    int r = journal_append(store, target->cut, batch->bytes, batch->len, batch->count);
    if (r < 0) {
        horizon_error(store, "nvme: writing the journal failed: %s; trying again elsewhere",
                      strerror(-r));
        return r;
    }
    if (store->remote)
        ages_note(store, target->cut, happened);
    r = lag_exists(store) ? -EAGAIN : follow(store, batch);
    if (r < 0) {
        lag_add(store, target->cut, batch, drops, r);
        for (size_t i = 0; i < target->count; i++)
            lag_add_version(store, target->sealed[i].ino);
        horizon_advance(store, target->cut);
        lag_catch_up(store);
        return 0;
    }
    release_target(store, target, batch);
    notify_stored(store, versions, target->count);
    horizon_advance(store, target->cut);
    gc_remove(store, drops->ids, drops->count);
    return 0;
}

/* One try to make the target durable. */
static int write_target(struct store *store, const struct target *target, const struct drops *drops)
{
    struct version_content *versions = xcalloc(target->count, sizeof *versions);
    struct batch batch = {0};
    size_t op_count = 0;
    struct op **ops = history_up_to(store, target->cut, &op_count);
    int r = write_versions(store, target, versions);
    if (r == 0) {
        r = batch_build(store, target->cut, ops, op_count, versions, target->count, drops, &batch);
        if (r < 0)
            horizon_error(store, "the records of a cut cannot be made: %s; trying again",
                          strerror(-r));
    }
    note_dense(store, versions, target->count);
    if (r == 0)
        r = publish(store, target, versions, &batch, drops);
    if (r < 0)
        packs_abandon(store);
    versions_done(store, versions, target->count);
    batch_done(&batch);
    free(ops);
    return r;
}

/* Until it is durable, or the store stops: then the stage keeps what is missing. */
static bool carry_target(struct store *store, const struct target *target,
                         const struct drops *drops)
{
    for (unsigned ms = RETRY_MS_MIN; write_target(store, target, drops) < 0;
         ms = ms < RETRY_MS_MAX / 2 ? 2 * ms : RETRY_MS_MAX) {
        if (is_stopping(store))
            return false;
        (void)usleep(1000 * ms);
    }
    return true;
}

/* --- pieces of drafts ------------------------------------------------------------------------- */

/* Tells a recovery that these packs are no leftovers. */
static int log_new_packs(struct store *store)
{
    struct record recs[PACK_BUFFERS * 64];
    size_t count = 0;
    mutex_lock(&store->commit->packs.lock);
    struct new_pack *pack;
    TAILQ_FOREACH(pack, &store->commit->packs.written, link)
    if (!pack->logged && pack->state == PACK_DURABLE && count < ARRAY_LEN(recs)) {
        recs[count++] = (struct record){
            .type = REC_PACK, .pack = pack->id, .length = pack->length, .count = pack->count};
        pack->logged = true;
    }
    mutex_unlock(&store->commit->packs.lock);
    LOCK_SCOPE(&store->commit->history.lock);
    for (size_t i = 0; i < count; i++) {
        int r = stage_log_append(store->stage, &recs[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

static void exchange_pieces(struct store *store, uint64_t ino, const struct stage_part *parts,
                            size_t count, const struct content *content)
{
    for (size_t i = 0; i < content->extents.count; i++) {
        const struct extent *extent = &content->extents.at[i];
        struct chunk_entry entry;
        uint64_t refs;
        struct stage_chunk_range chunk = {
            .offset = extent->offset, .length = extent->length, .name = extent->chunk};
        if (packs_find_fresh(store, &extent->chunk, &entry) != 0 ||
            (view_chunk(store->view, &extent->chunk, &entry, &refs) == 0 && entry.pack != 0)) {
            chunk.pack = entry.pack;
            stage_piece_done(store->stage, ino, parts, count, &chunk);
        }
    }
}

/* The cut state is behind the last chunk that is stored: the next piece goes on there. */
static void note_cut(struct writeback *wb, uint64_t ino, const struct content *content)
{
    const struct extent *last = &content->extents.at[content->extents.count - 1];
    wb->piece_ino = ino;
    wb->piece_next = last->offset + last->length;
}

/* A try that failed moved the cut state over content that is not stored, and that comes again. */
static void forget_cut(struct writeback *wb)
{
    cut_state_done(&wb->piece_state);
    wb->piece_ino = wb->piece_next = 0;
}

/* Writes one piece of the draft. False: there was nothing large enough. */
static bool write_piece(struct writeback *wb, uint64_t ino, uint64_t min_bytes)
{
    struct store *store = wb->store;
    struct stage_part *parts = xcalloc(PIECE_PARTS_MAX, sizeof *parts);
    bool more;
    size_t count =
        stage_draft_run(store->stage, ino, min_bytes, PIECE_MAX, parts, PIECE_PARTS_MAX, &more);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += parts[i].length;
    bool wrote = false;
    if (count && bytes >= min_bytes) {
        struct content content = {0};
        struct cut_state fresh = {.anchor = parts[0].offset};
        if (wb->piece_ino != ino || wb->piece_next != parts[0].offset) {
            cut_state_done(&wb->piece_state);
            wb->piece_state = fresh;
        }
        int r = content_write_run(store, parts, count, &wb->piece_state,
                                  more && bytes > CHUNK_SIZE_MAX * 4, &content);
        if (r == 0)
            r = packs_finish(store);
        if (r == 0)
            r = log_new_packs(store);
        if (r == 0)
            exchange_pieces(store, ino, parts, count, &content);
        else
            packs_abandon(store);
        wrote = r == 0 && content.extents.count > 0;
        if (wrote)
            note_cut(wb, ino, &content);
        else
            forget_cut(wb);
        content_done(store, &content);
    }
    stage_unpin_parts(store->stage, parts, count);
    free(parts);
    return wrote;
}

/* Gathers in one range what lies in SLAB_PAYLOAD of a file without a name. -ECANCELED: it changed
 * meanwhile. -EAGAIN: it is not known yet whether NVMe has room for it. -ENOBUFS: no slab. */
static int gather(struct store *store, const struct stage_scattered *scattered)
{
    int r = room_admit(
        store, scattered->length); /* holes become bytes, which must have a place on NVMe, too */
    uint32_t slab = r == 0 ? stage_slab_try_take(store->stage) : SLAB_NONE;
    if (slab == SLAB_NONE)
        return r < 0 ? r : -ENOBUFS;
    stage_gather_begin(store->stage, scattered);
    uint8_t *content = (uint8_t *)stage_slab_memory(store->stage, slab) + SLAB_PAYLOAD_OFFSET;
    r = local_read(store, scattered->ino, scattered->offset, content, scattered->length);
    if (r == 0 && !stage_gather(store->stage, scattered, slab))
        r = -ECANCELED;
    if (r < 0)
        stage_slab_give(store->stage, slab);
    else
        change_notify(store, &(uint64_t){scattered->ino}, 1, false); /* holes count now */
    return r;
}

/* How many of these were gathered; one whose content cannot be read is no reason to give up others.
 * -EAGAIN, -ENOBUFS: there is no room now, and *at is where to go on. -ECANCELED: none, and they
 * change. */
static int gather_these(struct store *store, const struct stage_scattered *found, size_t count,
                        struct stage_scattered *at)
{
    int gathered = 0;
    bool changing = false;
    for (size_t i = 0; i < count; i++) {
        int r = gather(store, &found[i]);
        if (r == -EAGAIN || r == -ENOBUFS) {
            *at = found[i];
            return gathered ? gathered : r;
        }
        gathered += r == 0;
        changing = changing || r == -ECANCELED;
    }
    return gathered || !changing ? gathered : -ECANCELED;
}

/* Goes on where it ended, until some are gathered: > 0. 0: nothing can be, in no file. Else as
 * gather_these(). */
static int gather_scattered(struct writeback *wb)
{
    struct stage_scattered found[GATHER_MAX];
    unsigned ends = wb->gather_at.ino == 0;
    int all = 0;
    while (ends < 2 && !is_stopping(wb->store)) {
        size_t count =
            stage_find_scattered(wb->store->stage, &wb->gather_at, found, ARRAY_LEN(found));
        ends += wb->gather_at.ino == 0;
        int r = gather_these(wb->store, found, count, &wb->gather_at);
        if (r != 0 && r != -ECANCELED)
            return r;
        all = r < 0 ? r : all;
    }
    return all;
}

/* --- the loop --------------------------------------------------------------------------------- */

struct pressure {
    bool urgent, stopping;
    unsigned waiting;
};

static struct pressure read_pressure(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    store->commit->horizon.kicked = false;
    rate_limit_lift(&store->commit->limit, horizon_is_awaited_locked(store));
    return (struct pressure){.urgent = horizon_is_urgent_locked(store),
                             .stopping = store->commit->horizon.stopping,
                             .waiting = store->commit->horizon.waiting_writers};
}

/* Not sooner: drafts that fit are better left alone until they are sealed. */
static bool is_filling_up(struct store *store)
{
    struct stage_usage usage = stage_usage(store->stage);
    return usage.dirty_bytes > usage.total_bytes / 4 * 3;
}

static void seal_ripe(struct store *store)
{
    /* An open new file has no other place than the log, and leaves it when it is durable. */
    bool all = atomic_load(&store->commit->seal_rest) || history_is_crowded(store);
    if (all && !store_follows(store)) {
        if (store_seal_all(store) < 0)
            return;
        atomic_store(&store->commit->seal_rest, false);
    }
    history_seal_ripe(store, store->options.writeback_delay_ns);
    uint64_t inos[RIPE_MAX];
    size_t count = stage_ripe_drafts(store->stage, clock_monotonic_ns(), DRAFT_IDLE_NS,
                                     DRAFT_AGE_NS, DRAFT_SMALL, inos, RIPE_MAX);
    for (size_t i = 0; i < count; i++)
        if (store_seal(store, inos[i]) == -EAGAIN)
            return; /* no room in the log now: they stay ripe */
}

bool writeback_has_nothing(struct store *store)
{
    size_t count;
    struct op **ops = history_look(store, &count);
    bool is_void = batch_is_void(store, ops, count);
    history_looked(store, ops);
    return is_void;
}

/* Is there something that is worth a round now? */
static bool wants_round(struct store *store, const struct pressure *pressure)
{
    uint64_t seq;
    int64_t happened;
    if (!history_oldest(store, &seq, &happened))
        return false;
    if (pressure->urgent || pressure->stopping || is_filling_up(store))
        return true;
    return clock_monotonic_ns() - happened >= store->options.writeback_delay_ns &&
           !writeback_has_nothing(store);
}

bool writeback_own_cut(struct store *store, const struct drops *drops)
{
    struct target target = {0};
    mutex_lock(&store->commit->history.lock);
    choose_locked(store, &target);
    if (store->commit->history.op_count == 0)
        target.cut = store->commit->history.newest =
            max_u64(stage_next_seq(store->stage), store->commit->history.newest + 1);
    mutex_unlock(&store->commit->history.lock);
    bool carried = carry_target(store, &target, drops);
    free(target.sealed);
    return carried;
}

static bool write_largest(struct writeback *wb, uint64_t least)
{
    uint64_t ino;
    return stage_largest_draft(wb->store->stage, least, &ino) && write_piece(wb, ino, least);
}

/* Writers wait, or soon will: the largest draft goes to NVMe in pieces. Many small scattered writes
 * fill the table of ranges, and pieces of their size would free nothing worth the I/O: what has
 * most of them is sealed, or gathered where it has no name. */
static bool relieve(struct writeback *wb, const struct pressure *pressure)
{
    struct store *store = wb->store;
    uint64_t crowding = 0, seq;
    int64_t happened;
    bool waiting = pressure->waiting > 0,
         crowded = waiting && stage_is_crowded(store->stage, &crowding),
         just_gathered = wb->has_gathered;
    wb->has_gathered = false;
    if (pressure->stopping || !(waiting || is_filling_up(store)))
        return false;
    int gathered = crowded ? gather_scattered(wb) : 0;
    wb->has_gathered = gathered > 0;
    if (gathered > 0 || (just_gathered && !crowded)) /* who waited for that is only waking up */
        return gathered > 0;
    bool relieved = write_largest(wb, waiting ? CHUNK_SIZE_MAX : PIECE_MIN) ||
                    (crowding && store_seal(store, crowding) == 0);
    if (!relieved && waiting && (!crowded || gathered == -ENOBUFS))
        relieved = write_largest(wb, crowded ? PIECE_CROWDED_MIN : 1);
    /* Operations that are carried as versions give room, too. */
    bool may_clear = gathered == -ECANCELED || gathered == -EAGAIN ||
                     (gathered == -ENOBUFS && history_oldest(store, &seq, &happened));
    stage_set_stuck(store->stage, crowded && !relieved && !may_clear);
    return relieved;
}

/* True: there was something to carry. */
static bool carry_once(struct store *store, const struct pressure *pressure)
{
    if (!wants_round(store, pressure))
        return false;
    struct target target = {0};
    choose(store, &target);
    (void)carry_target(store, &target, &(struct drops){0});
    free(target.sealed);
    return true;
}

static void *writeback_run(void *arg)
{
    struct writeback wb = {.store = arg};
    struct store *store = arg;
    upkeep_begin(store);
    for (;;) {
        int64_t began = clock_monotonic_ns();
        struct pressure pressure = read_pressure(store);
        priority_settle(store);
        if (pressure.stopping)
            break;
        lag_tick(store);
        seal_ripe(store);
        bool carried = carry_once(store, &pressure), found = relieve(&wb, &pressure);
        if (is_stopping(store)) /* what a target that was given up holds is not to be taken into
                                   another cut */
            break;
        found = (!lag_exists(store) && upkeep_rounds(store)) || found;
        room_settle(store, began, found);
        if (carried || found)
            continue;
        mutex_lock(&store->commit->horizon.lock);
        if (!store->commit->horizon.stopping && !(store->commit->horizon.kicked && pressure.urgent))
            (void)mutex_wait(&store->commit->horizon.lock, &store->commit->horizon.changed,
                             TICK_MS);
        mutex_unlock(&store->commit->horizon.lock);
    }
    cut_state_done(&wb.piece_state);
    return NULL;
}

int writeback_start(struct store *store)
{
    unsigned threads = store->options.writeback_threads;
    int r = pool_new("cairn-chunk", threads, 256, priority_join, store, &store->commit->workers);
    if (r == 0)
        r = pool_new("cairn-pack", PACK_WRITERS, PACK_BUFFERS + 1, priority_join, store,
                     &store->commit->pack_writers);
    if (r == 0)
        r = thread_start(&store->commit->thread, "cairn-writeback", writeback_run, store);
    store->commit->thread_started = r == 0;
    return r;
}

void writeback_stop(struct store *store)
{
    mutex_lock(&store->commit->horizon.lock);
    store->commit->horizon.stopping = true;
    (void)pthread_cond_signal(&store->commit->horizon.changed);
    mutex_unlock(&store->commit->horizon.lock);
    if (store->commit->thread_started)
        (void)pthread_join(store->commit->thread, NULL);
    store->commit->thread_started = false;
    snapshot_stop(store);
    pool_free(store->commit->workers);
    pool_free(store->commit->pack_writers);
    store->commit->workers = store->commit->pack_writers = NULL;
}
