// SPDX-License-Identifier: Apache-2.0
/* Targets: which cut writeback works towards, and how that becomes durable.
 *
 * A target lacks some versions on NVMe: these are written, then the journal batch, the view is
 * updated, durable data is released, and the horizon moves. The order never changes, except that no
 * step waits for a view that cannot follow (lag.c):
 *
 *   chunks durable  ->  batch durable  ->  view  ->  overlay, stage and dropped packs released
 *       ->  horizon and waiters
 *
 * Which cut: the newest state, but with at most TARGET_BYTES_MAX missing bytes or a single version,
 * and never below the stage's floor. */
#include "base/clock.h"
#include "commit/feed_log.h"
#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "commit/room_internal.h"
#include "commit/writeback_internal.h"

#define TARGET_BYTES_MAX GIB /* missing bytes of a target, unless it has a single version */
#define RETRY_MS_MIN 10      /* most disk errors are transient, or do not recur in another file */
#define RETRY_MS_MAX 1000

struct target {
    uint64_t cut;
    struct stage_sealed *sealed; /* versions that the cut needs, in order of sealing */
    size_t count;
};

static void target_choose(struct commit *commit, struct target *target, bool is_own)
{
    uint64_t missing = 0;
    target->cut =
        history_choose(commit->history, TARGET_BYTES_MAX, is_own, &target->sealed, &target->count);
    for (size_t i = 0; i < target->count; i++)
        missing += target->sealed[i].bytes;
    horizon_set_target(commit->horizon, missing);
}

static int write_versions(struct commit *commit, const struct target *target,
                          struct version_content *versions)
{
    for (size_t i = 0; i < target->count; i++) {
        const struct stage_sealed *sealed = &target->sealed[i];
        versions[i] = (struct version_content){.ino = sealed->ino,
                                               .version = sealed->version,
                                               .keep = sealed->keep,
                                               .seal_seq = sealed->seal_seq};
        content_write_layer(commit, sealed, &versions[i].content);
        horizon_wrote(commit->horizon, sealed->bytes);
    }
    return packs_finish(commit->packs);
}

static void versions_done(struct commit *commit, struct version_content *versions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        content_done(commit->packs, &versions[i].content);
    free(versions);
}

/* Applies a durable batch to the view. */
static int apply_to_view(struct commit *commit, const struct batch *batch)
{
    struct view_batch vb = {.records = batch->bytes.at,
                            .records_len = batch->bytes.count,
                            .cut_seq = commit->journal->cut_seq,
                            .pack_index = commit_pack_index,
                            .arg = commit};
    memcpy(vb.chain, commit->journal->chain, sizeof vb.chain);
    int r = room_for_view(commit->room);
    return r < 0 ? r : view_apply(commit->local->view, &vb);
}

static void release_target(struct commit *commit, const struct target *target,
                           const struct batch *batch)
{
    stage_note_durable(commit->local->stage, target->cut);
    history_retire_overlay(commit->history, target->cut);
    for (size_t i = 0; i < target->count; i++) {
        /* before the stage releases it: it must always be counted somewhere */
        ns_stored(commit->local->ns, target->sealed[i].ino);
        stage_layer_done(commit->local->stage, target->sealed[i].ino);
    }
    packs_note_named(commit->packs, batch->packs.at, batch->packs.count);
    packs_retire_named(commit->packs);
    history_retire(commit->history, target->cut);
    room_account(commit->room);
}

/* Does st_blocks of a version without holes stay the same before, while and after it becomes
 * durable? If none of its content is left: was it 0 before? */
static bool is_dense(struct commit *commit, const struct version_content *version)
{
    struct stage_file_state staged;
    struct ns_inode inode;
    uint64_t bytes = 0;
    if (ns_inode(commit->local->ns, version->ino, &inode) < 0)
        return false;
    if (version->content.extents.count == 0)
        return inode.blocks_bytes == 0;
    for (size_t i = 0; i < version->content.extents.count; i++)
        if (version->content.extents.at[i].kind != EXTENT_HOLE)
            bytes += version->content.extents.at[i].length;
    (void)stage_file_state(commit->local->stage, version->ino, &staged);
    return !staged.has_draft && staged.has_sealed &&
           inode.blocks_bytes + staged.dirty_bytes + staged.chunk_bytes >= staged.sealed_size &&
           bytes >= staged.sealed_size;
}

/* Until now staged bytes counted in addition to those that they replace: with holes, st_blocks
 * changes now. */
static void notify_stored(struct commit *commit, const struct version_content *versions,
                          size_t count)
{
    uint64_t *inos = xcalloc(count, sizeof *inos);
    size_t changed = 0;
    for (size_t i = 0; i < count; i++) {
        struct stage_file_state staged;
        bool same = versions[i].is_dense &&
                    !stage_file_state(commit->local->stage, versions[i].ino, &staged);
        if (!same && (versions[i].content.extents.count > 0 || !versions[i].is_dense))
            inos[changed++] = versions[i].ino;
    }
    if (changed)
        change_notify(commit->change, inos, changed, false);
    free(inos);
}

/* Appends, applies, releases. Waiters for the horizon are notified after the view has the cut and
 * the kernel was notified of changes. If the view cannot follow, they are notified without it: the
 * batch is durable. */
static int target_publish(struct commit *commit, const struct target *target,
                          const struct version_content *versions, const struct batch *batch,
                          const struct drops *drops)
{
    uint64_t seq;
    int64_t happened;
    if (!history_oldest(commit->history, &seq, &happened))
        happened = clock_monotonic_ns();
    int r = journal_append(commit->journal, target->cut, history_last_time(commit->history),
                           batch->bytes.at, batch->bytes.count, batch->count);
    if (r < 0) {
        horizon_error(commit->horizon, "nvme: writing the journal failed: %s; retrying elsewhere",
                      strerror(-r));
        return r;
    }
    if (commit->feed_log && feed_log_add(commit->feed_log, batch->bytes.at, batch->bytes.count) < 0)
        check(false); /* they were encoded just now */
    horizon_note_durable(commit->horizon, happened);
    if (local_has_remote(commit->local))
        horizon_note_age(commit->horizon, target->cut, happened);
    bool lags = lag_exists(commit->lag);
    r = lags ? 0 : apply_to_view(commit, batch);
    if (lags || r < 0) {
        lag_add(commit, target->cut, batch, drops, r);
        for (size_t i = 0; i < target->count; i++)
            lag_add_version(commit->lag, target->sealed[i].ino);
        horizon_advance(commit->horizon, target->cut);
        lag_catch_up(commit);
        return 0;
    }
    release_target(commit, target, batch);
    notify_stored(commit, versions, target->count);
    horizon_advance(commit->horizon, target->cut);
    gc_remove(commit, drops->ids, drops->count);
    return 0;
}

/* Tries once to make the target durable. */
static int write_target(struct commit *commit, const struct target *target,
                        const struct drops *drops)
{
    struct version_content *versions = xcalloc(target->count, sizeof *versions);
    struct batch batch = {0};
    size_t op_count = 0;
    struct op **ops = history_up_to(commit->history, target->cut, &op_count);
    const struct batch_source source = {.cut = target->cut,
                                        .ops = ops,
                                        .op_count = op_count,
                                        .versions = versions,
                                        .version_count = target->count,
                                        .drops = drops};
    int r = write_versions(commit, target, versions);
    if (r == 0) {
        r = batch_build(commit, &source, &batch);
        if (r < 0)
            horizon_error(commit->horizon, "the records of a cut cannot be made: %s; retrying",
                          strerror(-r));
    }
    for (size_t i = 0; i < target->count; i++)
        versions[i].is_dense = is_dense(commit, &versions[i]);
    if (r == 0)
        r = target_publish(commit, target, versions, &batch, drops);
    if (r < 0)
        packs_abandon(commit->packs);
    versions_done(commit, versions, target->count);
    batch_done(&batch);
    free(ops);
    return r;
}

/* Retries until it is durable, or the store stops: then the stage keeps the missing bytes. */
static bool carry_and_retry(struct commit *commit, const struct target *target,
                            const struct drops *drops)
{
    int64_t ms = RETRY_MS_MIN;
    int r;
    for (unsigned tries = 1; (r = write_target(commit, target, drops)) < 0; tries++) {
        room_note_try(commit->room, tries, r);
        /* by time, since nothing signals that a disk has recovered */
        if (!horizon_pause(commit->horizon, ms))
            return false;
        ms = ms < RETRY_MS_MAX / 2 ? 2 * ms : RETRY_MS_MAX;
    }
    room_note_try(commit->room, 0, 0);
    return true;
}

void target_carry(struct commit *commit)
{
    struct target target = {0};
    target_choose(commit, &target, false);
    (void)carry_and_retry(commit, &target, &(struct drops){0});
    free(target.sealed);
}

bool target_carry_own(struct commit *commit, const struct drops *drops)
{
    struct target target = {0};
    target_choose(commit, &target, true);
    bool carried = carry_and_retry(commit, &target, drops);
    free(target.sealed);
    return carried;
}

bool target_is_void(struct history *history)
{
    size_t count;
    struct op **ops = history_look(history, &count);
    bool is_void = batch_is_void(ops, count);
    history_looked(history, ops);
    return is_void;
}
