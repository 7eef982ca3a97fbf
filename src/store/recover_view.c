// SPDX-License-Identifier: Apache-2.0
/* Recovery of the view: it catches up with the journal, or is made anew from the journal and its
 * anchor. */
#include <stdio.h>

#include "base/io.h"
#include "base/log.h"
#include "commit/new_view.h"
#include "remote/life.h"
#include "store/internal.h"
#include "view/remote.h"

/* A view that is damaged, or whose state the journal never had, may contain operations that the
 * journal has lost. */
static int set_view_aside(struct store *store)
{
    int r = set_aside(store, "view");
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    log_warn("the view as it was is kept in %s/" ASIDE_DIRECTORY, store->local.path);
    return aside_sync(store);
}

/* Quietly: without the compactions that are due. They would delay the caller that waits for the
 * mount, and catching up with the journal seldom writes much, unless the view is made anew. */
static int open_view(struct store *store, const char *name, bool quietly)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", store->local.path, name);
    struct view_options options = {
        .cache_bytes = VIEW_CACHE_BYTES, .create = true, .begins_quietly = quietly};
    return view_open(path, &options, store->local.sb.created, &store->local.view);
}

static void close_view(struct store *store)
{
    if (store->local.view)
        view_close(store->local.view);
    store->local.view = NULL;
}

/* Fills the view, which is empty, with the anchor's state. */
static int fill_view(struct store *store, const struct head *head)
{
    if (!journal_anchor(store->commit.journal)->exists)
        return 0;
    TRY(recover_adopt(store, head));
    return local_head_is_lost(head) ? view_forget_remote(store->local.view) : 0;
}

/* Makes the anchor's view, in a directory of its own. */
static int make_view(struct store *store, const struct head *head)
{
    int r = open_view(store, "view.new", false);
    if (r == 0)
        r = fill_view(store, head);
    if (r == 0)
        r = view_flush(store->local.view);
    close_view(store);
    return r;
}

/* A view with its state but without all of its packs would have the others removed as leftovers: so
 * it is renamed to its name only when it is complete and durable. */
static int replace_view(struct store *store, const struct head *head, bool keep_old)
{
    _cleanup_free_ char *made = xasprintf("%s/view.new", store->local.path);
    _cleanup_free_ char *path = xasprintf("%s/view", store->local.path);
    close_view(store);
    TRY(io_remove_tree(made));
    if (!keep_old) /* there may be no room for both */
        TRY(local_remove_view(&store->local));
    TRY(make_view(store, head));
    if (keep_old)
        TRY(set_view_aside(store));
    if (rename(made, path) < 0)
        return -errno;
    TRY(io_fsync_dir(store->local.path));
    return open_view(store, "view", false);
}

/* `is_behind`: the view is not damaged, but too old, or of an earlier version. */
static int rebuild_view(struct store *store, bool is_behind)
{
    bool view_is_old = !store->local.view || view_state(store->local.view).applied_seq > 0;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    enum replayed replayed;
    if (view_is_old && is_behind)
        log_warn("the view is behind, or of an earlier version: rebuilding it");
    else if (view_is_old)
        log_warn("the view is missing, damaged or not of this journal: rebuilding it");
    /* Nothing is removed before there is something from which to make it. */
    TRY(journal_read(store->commit.journal, 0, NULL, NULL));
    if (journal_anchor(store->commit.journal)->exists) {
        TRY(local_head_read(&store->local, head));
        TRY(remote_fetch_runs(store, head));
        TRY(local_ask_listing(&store->local));
    }
    TRY(replace_view(store, head, view_is_old && !is_behind));
    TRY(commit_replay_journal(&store->commit, 0, &replayed));
    return replayed == REPLAYED ? 0 : -EUCLEAN;
}

/* The log has the failure of each step; *ret_text has the one of the journal. */
static void explain_failure(struct store *store, int r, char **ret_text)
{
    _cleanup_free_ char *damage = journal_explain_damage(store->commit.journal);
    if (damage && !journal_anchor(store->commit.journal)->number)
        *ret_text =
            xasprintf("%s: the journal is damaged: %s; nothing was changed; 'cairn fsck --repair "
                      "%s' truncates it there and keeps in lost+found what comes behind",
                      store->local.path, damage, store->local.path);
    else if (damage)
        *ret_text = xasprintf("%s: the journal is damaged: %s; nothing was changed; mount an empty "
                              "STORE on the remote, which has its published state, or truncate the "
                              "journal there with 'cairn fsck --repair %s'",
                              store->local.path, damage, store->local.path);
    else if (r == -EUCLEAN && store->own->whole_journal)
        *ret_text = xasprintf("%s: the journal is damaged, or the snapshot that it begins with; "
                              "nothing was changed; a mount goes on as long as the view has what "
                              "is damaged: then copy the files elsewhere",
                              store->local.path);
    else if (r == -EUCLEAN && journal_anchor(store->commit.journal)->number)
        *ret_text = xasprintf("%s: what head %llu of its remote names is damaged, or no state that "
                              "a store wrote; see the log",
                              store->local.path,
                              (unsigned long long)journal_anchor(store->commit.journal)->number);
    else
        *ret_text = xasprintf(
            "%s: the journal or the view cannot be read: %s; see `cairn fsck`, and the log",
            store->local.path, strerror(-r));
}

/* The relation of the view to the journal. */
struct standing {
    enum replayed replayed;
    /* The view is not damaged, but too old, or of an earlier version. */
    bool is_behind;
};

static int open_and_replay(struct store *store, struct standing *ret)
{
    *ret = (struct standing){.replayed = REPLAY_FOREIGN};
    int r = open_view(store, "view", true);
    ret->is_behind = r == -ESTALE;
    if (r < 0)
        return ret->is_behind ? 0 : r;
    uint64_t applied = view_state(store->local.view).applied_seq;
    ret->is_behind = journal_view_forgot_head(store->commit.journal);
    if (ret->is_behind)
        return 0;
    /* A power loss took rows that RocksDB had not written yet. */
    ret->is_behind = applied < journal_anchor(store->commit.journal)->cut;
    return commit_replay_journal(&store->commit, store->own->whole_journal ? 0 : applied,
                                 &ret->replayed);
}

static bool cannot_read(const struct store *store)
{
    return !store->local.view || view_is_unreadable(store->local.view);
}

/* After one read error the view is read again. If the disk cannot read the view at all, the journal
 * may still make another. */
static int open_and_replay_patiently(struct store *store, struct standing *ret)
{
    int r = open_and_replay(store, ret);
    if (r != -EIO || !cannot_read(store))
        return r;
    close_view(store);
    r = open_and_replay(store, ret);
    return r == -EIO && cannot_read(store) ? -EUCLEAN : r;
}

/* The view is damaged, or a session found it damaged, and no other could be made now: the disk is
 * full, the remote is unreachable, the runs cannot be read. Its rows are still valid, and the
 * journal has all later operations: a mount with it serves everything that can be read. A later
 * start tries again. */
static int keep_damaged_view(struct store *store, int error)
{
    _cleanup_free_ char *made = xasprintf("%s/view.new", store->local.path);
    struct standing standing;
    close_view(store);
    if (io_remove_tree(made) < 0) /* a partial new view takes room */
        log_warn("%s cannot be removed", made);
    if (open_and_replay_patiently(store, &standing) < 0 || standing.replayed != REPLAYED)
        return error;
    store->own->view_is_kept = true;
    log_error("the view is damaged, and cannot be made anew now (%s): going on with it; what is "
              "read of names and attributes may fail with EIO",
              strerror(-error));
    return 0;
}

/* Returns whether another view must be made. Not if the journal, its source, is damaged. */
static bool must_rebuild(struct store *store, int r, const struct standing *standing)
{
    if (r == 0 && standing->replayed == REPLAY_FOREIGN)
        return true;
    bool is_lost = r == -EUCLEAN || new_view_is_asked(&store->local) ||
                   (store->local.view && view_is_damaged(store->local.view));
    return is_lost && !journal_found(store->commit.journal).damage.found;
}

static int make_anew(struct store *store, bool is_behind, bool was_read)
{
    int r = rebuild_view(store, is_behind);
    if (r == 0)
        r = new_view_settled(&store->local);
    else if (was_read)
        r = keep_damaged_view(store, r);
    store->own->view_is_new = r == 0 && !store->own->view_is_kept && !is_behind;
    return r;
}

int recover_view(struct store *store, char **ret_text)
{
    _cleanup_free_ char *path = xasprintf("%s/view", store->local.path);
    bool had_view = access(path, F_OK) == 0;
    struct standing standing;
    int r = room_for_view(store->commit.room);
    if (r < 0) {
        *ret_text = xasprintf("the disk of %s is full; free 32 MiB there and mount again",
                              store->local.path);
        return r;
    }
    r = open_and_replay_patiently(store, &standing);
    if (r == 0 && standing.replayed == REPLAY_LOST_END) {
        /* The view follows only durable operations: so the journal has lost its end. To continue
         * from the rest would drop the packs of acknowledged data, so nothing is touched. */
        *ret_text =
            xasprintf("%s: the journal is damaged: it ends before what was durable already; "
                      "nothing was changed; restore the directory journal/ from a copy",
                      store->local.path);
        return -EUCLEAN;
    }
    bool rebuilds = must_rebuild(store, r, &standing);
    if (rebuilds)
        r = make_anew(store, standing.is_behind, r == 0 && standing.replayed == REPLAYED);
    struct journal_found found = journal_found(store->commit.journal);
    /* The rows of a damaged view are lost: packs that nothing refers to are kept. */
    store->own->met_damage = store->own->met_damage || (rebuilds && !standing.is_behind) ||
                             (!had_view && found.cut_seq > 0) || found.was_skipped ||
                             repair_was_made(store);
    if (r < 0)
        explain_failure(store, r, ret_text);
    return r;
}
