// SPDX-License-Identifier: Apache-2.0
/* Targets: which cut writeback works towards, and how that becomes durable.
 *
 * A target lacks something on NVMe: that is written, then the journal batch, the view is brought up
 * to it, what is durable is released, and the horizon moves. The order never changes, except that
 * no step waits for a view that cannot follow (lag.c):
 *
 *   chunks durable  ->  batch durable  ->  view  ->  overlay, stage and dropped packs released
 *   ->  horizon and waiters
 *
 * Which cut: the newest state, but at most TARGET_BYTES_MAX of missing bytes or one version ahead,
 * and never one below the stage's floor. */
#include "base/clock.h"
#include "base/log.h"
#include "commit/internal.h"

#define TARGET_BYTES_MAX                                                                           \
    (1024ull * 1024 * 1024) /* missing bytes that a target may have, or one version */
#define RETRY_MS_MIN 10     /* most errors of a disk pass, or do not repeat in another file */
#define RETRY_MS_MAX 1000

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

static void target_choose(struct store *store, struct target *target)
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
static int apply_to_view(struct store *store, const struct batch *batch)
{
    struct view_batch vb = {.records = batch->bytes.at,
                            .records_len = batch->bytes.count,
                            .cut_seq = store->commit->journal.cut_seq,
                            .pack_index = commit_pack_index,
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
    packs_note_named(store, batch->packs.at, batch->packs.count);
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

/* Appends, applies, releases. Waiters for the horizon are notified after the view has the cut and
 * the kernel was notified of changes. Where the view cannot follow, they are notified without it:
 * the batch is durable. */
static int target_publish(struct store *store, const struct target *target,
                          const struct version_content *versions, const struct batch *batch,
                          const struct drops *drops)
{
    uint64_t seq;
    int64_t happened;
    if (!history_oldest(store, &seq, &happened))
        happened = clock_monotonic_ns();
    int r = journal_append(store, target->cut, batch->bytes.at, batch->bytes.count, batch->count);
    if (r < 0) {
        horizon_error(store, "nvme: writing the journal failed: %s; retrying elsewhere",
                      strerror(-r));
        return r;
    }
    if (store->remote)
        horizon_note_age(store, target->cut, happened);
    r = lag_exists(store) ? -EAGAIN : apply_to_view(store, batch);
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
            horizon_error(store, "the records of a cut cannot be made: %s; retrying", strerror(-r));
    }
    note_dense(store, versions, target->count);
    if (r == 0)
        r = target_publish(store, target, versions, &batch, drops);
    if (r < 0)
        packs_abandon(store);
    versions_done(store, versions, target->count);
    batch_done(&batch);
    free(ops);
    return r;
}

/* Until it is durable, or the store stops: then the stage keeps what is missing. */
static bool carry_and_retry(struct store *store, const struct target *target,
                            const struct drops *drops)
{
    int64_t ms = RETRY_MS_MIN;
    int r;
    for (unsigned tries = 1; (r = write_target(store, target, drops)) < 0; tries++) {
        room_note_try(store, tries, r);
        if (!horizon_pause(store, ms)) /* for a disk: nothing says when it has recovered */
            return false;
        ms = ms < RETRY_MS_MAX / 2 ? 2 * ms : RETRY_MS_MAX;
    }
    room_note_try(store, 0, 0);
    return true;
}

void target_carry(struct store *store)
{
    struct target target = {0};
    target_choose(store, &target);
    (void)carry_and_retry(store, &target, &(struct drops){0});
    free(target.sealed);
}

bool target_carry_own(struct store *store, const struct drops *drops)
{
    struct target target = {0};
    mutex_lock(&store->commit->history.lock);
    choose_locked(store, &target);
    if (store->commit->history.op_count == 0)
        target.cut = store->commit->history.newest =
            max_u64(stage_next_seq(store->stage), store->commit->history.newest + 1);
    mutex_unlock(&store->commit->history.lock);
    bool carried = carry_and_retry(store, &target, drops);
    free(target.sealed);
    return carried;
}

bool target_is_void(struct store *store)
{
    size_t count;
    struct op **ops = history_look(store, &count);
    bool is_void = batch_is_void(store, ops, count);
    history_looked(store, ops);
    return is_void;
}
