// SPDX-License-Identifier: Apache-2.0
#include "commit/new_view.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "commit/run_lists.h"
#include "commit/writeback_internal.h"
#include "tier/tier.h"

#define MARKER "/view.anew"
#define EXAMINE_EVERY_NS (300ll * 1000000000)
/* For other files that recovery writes, besides a new view of the current size. */
#define SPARE (64 * MIB)
#define HEAD_TRIES 5
#define JOURNAL_FAILS "the journal, from which it is made, cannot be read in full"

/* --- whether the view can be rebuilt ---------------------------------------------------------- */

struct reaching {
    const uint8_t *chain; /* of the last batch */
    bool found;
};

static int note_batch(const struct journal_batch *batch, void *arg)
{
    struct reaching *reaching = arg;
    reaching->found = reaching->found || memcmp(batch->chain, reaching->chain, CHAIN_LEN) == 0;
    return 0;
}

/* Does the journal reach from the anchor of the next start to the last batch? Otherwise the start
 * would refuse the mount. Batches before that anchor were trimmed, while this mount began with an
 * earlier one. */
static bool journal_is_whole(struct commit *commit, const struct head *head)
{
    const struct journal now = *commit->journal;
    if (head)
        journal_set_anchor(commit->journal, head);
    const struct anchor *anchor = journal_anchor(commit->journal);
    bool ends_at_anchor = anchor->exists && memcmp(anchor->chain, now.chain, CHAIN_LEN) == 0;
    struct reaching reaching = {.chain = now.chain, .found = ends_at_anchor};
    int r = journal_read(commit->journal, 0, note_batch, &reaching);
    bool is_damaged = commit->journal->damage.found;
    *commit->journal = now;
    return r == 0 && reaching.found && !is_damaged;
}

static __thread uint64_t summed; /* nftw() takes no argument for its callback */

static int add_length(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path;
    (void)ftw;
    if (type == FTW_F)
        summed += (uint64_t)st->st_size;
    return 0;
}

/* The old view is kept until the new one is complete. */
static bool has_room(struct commit *commit)
{
    _cleanup_free_ char *path = xasprintf("%s/view", commit->local->path);
    struct tier *tier = commit->local->tier;
    struct tier_space space;
    summed = 0;
    return nftw(path, add_length, 16, FTW_PHYS) == 0 && tier->ops->space(tier, &space) == 0 &&
           space.free_bytes >= summed + SPARE;
}

static const char *why_head_fails(struct commit *commit, const struct head *head)
{
    if (!journal_is_whole(commit, head))
        return JOURNAL_FAILS;
    return runs_verify(commit->local, head) == 0
               ? NULL
               : "the runs with which the journal begins cannot be read in full";
}

static const char *why_source_fails(struct commit *commit)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head), *later = xmalloc(sizeof *later);
    const char *why = NULL;
    int r = local_head_read(commit->local, head);
    if (r == -ENOENT && !journal_anchor(commit->journal)->exists)
        return journal_is_whole(commit, NULL) ? NULL : JOURNAL_FAILS;
    /* an upload that publishes meanwhile removes the runs that only the previous head has */
    for (int i = 0; i < HEAD_TRIES && r == 0; i++) {
        why = why_head_fails(commit, head);
        r = why ? local_head_read(commit->local, later) : 0;
        if (!why || (r == 0 && later->number == head->number && later->cut == head->cut))
            return why;
        *head = *later;
    }
    return r < 0 ? "the head with which the journal begins cannot be read" : why;
}

/* --- a live mount ----------------------------------------------------------------------------- */

void new_view_note(struct commit *commit, int error)
{
    bool is_lost = error == -EUCLEAN || view_is_damaged(commit->local->view);
    bool was_lost = atomic_load(&commit->lost_view->is_lost);
    int64_t now = clock_monotonic_ns();
    if (is_lost && (!was_lost || now >= commit->lost_view->examine_at)) {
        atomic_store(&commit->lost_view->stays,
                     has_room(commit) ? why_source_fails(commit)
                                      : "the disk has no room for another one beside it");
        commit->lost_view->examine_at = now + EXAMINE_EVERY_NS;
    }
    if (is_lost && !was_lost)
        log_error("the view is damaged, and no opening mends it: what is read of names and "
                  "attributes may fail; a start of the store makes it anew");
    atomic_store(&commit->lost_view->is_lost, is_lost);
}

bool commit_view_is_lost(const struct commit *commit, const char **ret_stays)
{
    if (!atomic_load(&commit->lost_view->is_lost))
        return false;
    *ret_stays = atomic_load(&commit->lost_view->stays);
    return true;
}

int new_view_ask(struct local *local)
{
    _cleanup_free_ char *path = xasprintf("%s" MARKER, local->path);
    return io_write_file_durable(path, "", 0);
}

/* --- a start ---------------------------------------------------------------------------------- */

bool new_view_is_asked(const struct local *local)
{
    _cleanup_free_ char *path = xasprintf("%s" MARKER, local->path);
    return access(path, F_OK) == 0;
}

int new_view_settled(const struct local *local)
{
    _cleanup_free_ char *path = xasprintf("%s" MARKER, local->path);
    if (unlink(path) < 0)
        return errno == ENOENT ? 0 : -errno;
    return io_fsync_dir(local->path);
}

/* The directory is renamed first, so that a directory with this name is always whole: RocksDB takes
 * a missing file for a failing disk. */
int local_remove_view(struct local *local)
{
    _cleanup_free_ char *path = xasprintf("%s/view", local->path);
    _cleanup_free_ char *old = xasprintf("%s/view.old", local->path);
    TRY(io_remove_tree(old));
    if (rename(path, old) < 0)
        return errno == ENOENT ? 0 : -errno;
    TRY(io_fsync_dir(local->path));
    return io_remove_tree(old);
}
