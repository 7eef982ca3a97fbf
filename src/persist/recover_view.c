// SPDX-License-Identifier: Apache-2.0
/* Recovery of the view: it catches up with the journal, or is made anew from what the journal and the anchor say. */
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "persist/journal_damage.h"
#include "persist/new_view.h"
#include "persist/remote.h"

/* Of what this daemon wrote memory knows it: what a read gets of it now says nothing of what is named. */
static int give_written(const struct new_pack *pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg), void *fn_arg)
{
    int r = 0;
    for (uint32_t i = 0; i < pack->count && r >= 0; i++)
        r = fn(&pack->entries[i], fn_arg);
    return r < 0 ? r : 0;
}

int view_pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg), void *fn_arg, void *arg)
{
    struct store *store = arg;
    const struct new_pack *written = packs_find_written(store, pack);
    if (written)
        return give_written(written, fn, fn_arg);
    int r = packs_recover_index(store, pack, fn, fn_arg);
    if (r == -EBADMSG || r == -EUCLEAN || r == -EIO) {
        log_error("pack %016llx: neither its index nor its chunks can be told apart; it is kept; 'cairn scrub' brings what the remote has",
                  (unsigned long long)pack);
        return -ENOENT;
    }
    return r;
}

struct catching_up {
    struct store *store;
    struct view_state state;
    bool matched; /* the journal knows the view's cut */
    const struct journal *until; /* a live journal ends there, whatever the disk has behind it; NULL: it is read to its end */
    bool is_over;
};

static int catch_up(const struct journal_batch *batch, void *arg)
{
    struct catching_up *cu = arg;
    uint64_t cut = batch->header.cut_seq;
    if (cu->is_over || cut < cu->state.applied_seq)
        return 0;
    cu->is_over = cu->until && memcmp(batch->chain, cu->until->chain, CHAIN_LEN) == 0;
    if (cut == cu->state.applied_seq) {
        cu->matched = memcmp(batch->chain, cu->state.chain, CHAIN_LEN) == 0;
        return cu->matched ? 0 : -ESTALE;
    }
    /* Where the journal begins right there, what led to the view's state is gone. */
    if (!cu->matched && batch->header.base_seq == cu->state.applied_seq)
        cu->matched = memcmp(batch->header.prev, cu->state.chain, CHAIN_LEN) == 0;
    if (!cu->matched)
        return -ESTALE;
    struct view_batch vb = {.records = batch->records,
                            .records_len = batch->header.payload_len,
                            .cut_seq = cut,
                            .pack_index = view_pack_index,
                            .arg = cu->store};
    memcpy(vb.chain, batch->chain, sizeof vb.chain);
    return view_apply(cu->store->view, &vb);
}

/* `from`: as for journal_read(); `until`: see struct catching_up. */
static int follow_journal(struct store *store, uint64_t from, const struct journal *until)
{
    struct catching_up cu = {.store = store, .state = view_state(store->view), .until = until};
    cu.matched = cu.state.applied_seq == 0 && !store->anchor.exists;
    int r = journal_read(store, from, catch_up, &cu);
    if (r == 0 && !cu.matched && store->anchor.exists && cu.state.applied_seq < store->journal.cut_seq)
        return -ESTALE; /* the view is older than the journal's beginning */
    /* No batch was read: the journal ends where the anchor or the view is. */
    if (r == 0 && cu.state.applied_seq == store->journal.cut_seq && memcmp(cu.state.chain, store->journal.chain, CHAIN_LEN) != 0)
        return -ESTALE;
    if (r == 0 && cu.state.applied_seq == store->journal.cut_seq)
        cu.matched = true;
    return r == 0 && !cu.matched ? -ENODATA : r;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int remove_folder(const char *path)
{
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT ? -errno : 0;
}

/* Under its name it is whole at any moment: RocksDB takes a folder without some of its files for a failing disk. */
int remove_view(struct store *store)
{
    _cleanup_free_ char *path = xasprintf("%s/view", store->path);
    _cleanup_free_ char *old = xasprintf("%s/view.old", store->path);
    int r = remove_folder(old);
    if (r == 0 && rename(path, old) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (r == 0)
        r = io_fsync_dir(store->path);
    return r < 0 ? r : remove_folder(old);
}

/* A view that is damaged, or of no state that the journal had, may know what the journal has lost. */
static int set_view_aside(struct store *store)
{
    int r = set_aside(store, "view");
    if (r == 0)
        log_warn("the view as it was is kept in %s/" ASIDE_FOLDER, store->path);
    return r == 0 ? aside_sync(store) : r == -ENOENT ? 0 : r;
}

/* Quietly: without the compactions that are due. They would slow down whoever waits for the mount, and catching up with the
 * journal seldom writes much, but where the view is made anew. */
static int open_view(struct store *store, const char *name, bool quietly)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", store->path, name);
    struct view_options options = {.cache_bytes = VIEW_CACHE_BYTES, .create = true, .begins_quietly = quietly};
    return view_open(path, &options, store->sb.created, &store->view);
}

static void close_view(struct store *store)
{
    if (store->view)
        view_close(store->view);
    store->view = NULL;
}

/* What the anchor says, in a folder of its own. */
static int make_view(struct store *store, const struct head *head)
{
    int r = open_view(store, "view.new", false);
    if (r == 0 && store->anchor.exists)
        r = adopt_view(store, head);
    if (r == 0 && store->anchor.exists && local_head_is_lost(head))
        r = view_forget_remote(store->view);
    if (r == 0)
        r = view_flush(store->view);
    close_view(store);
    return r;
}

/* A view that knows its state and not all of its packs would have the others removed as leftovers: so it gets its name when it is
 * whole and durable. */
static int replace_view(struct store *store, const struct head *head, bool keep_old)
{
    _cleanup_free_ char *made = xasprintf("%s/view.new", store->path);
    _cleanup_free_ char *path = xasprintf("%s/view", store->path);
    close_view(store);
    int r = remove_folder(made);
    if (r == 0)
        r = keep_old ? set_view_aside(store) : remove_view(store);
    if (r == 0)
        r = make_view(store, head);
    if (r == 0 && rename(made, path) < 0)
        r = -errno;
    if (r == 0)
        r = io_fsync_dir(store->path);
    return r < 0 ? r : open_view(store, "view", false);
}

static int ignore_batch(const struct journal_batch *batch, void *arg)
{
    (void)batch;
    (void)arg;
    return 0;
}

/* `is_behind`: nothing is wrong with the view but that it knows too little. */
static int rebuild_view(struct store *store, bool is_behind)
{
    bool view_is_old = !store->view || view_state(store->view).applied_seq > 0;
    struct head *head = xmalloc(sizeof *head);
    if (view_is_old)
        log_warn("the view is missing, damaged or not of this journal: rebuilding it");
    /* Nothing goes before there is something to make it from. */
    int r = journal_read(store, 0, ignore_batch, NULL);
    if (r == 0 && store->anchor.exists)
        r = local_head_read(store, head);
    if (r == 0 && store->anchor.exists)
        r = runs_fetch(store, store->remote && store->remote->is_attached ? store->remote : NULL, head);
    if (r == 0)
        r = replace_view(store, head, view_is_old && !is_behind);
    free(head);
    return r < 0 ? r : follow_journal(store, 0, NULL);
}

/* A crash came between the head's publication and the view's note of it, or took that note. Two heads may have one cut: what
 * lies where in the remote changes without an operation. */
static bool forgot_head(struct store *store)
{
    struct view_remote remote = view_remote(store->view);
    return store->anchor.number && (remote.cut < store->anchor.cut || remote.head < store->anchor.number);
}

int view_catch_up(struct store *store)
{
    const struct journal now = store->journal;
    if (forgot_head(store))
        return -ESTALE;
    int r = follow_journal(store, view_state(store->view).applied_seq, &now);
    store->journal = now;
    struct view_state state = view_state(store->view);
    if (r == 0 && memcmp(state.chain, now.chain, CHAIN_LEN) != 0)
        return -EIO; /* it could not be read to its end */
    return r;
}

/* Which of them said so is in the log; where the journal did, what it is. */
static void explain(struct store *store, int r, char **ret_text)
{
    _cleanup_free_ char *damage = journal_explain_damage(store);
    if (damage && !store->anchor.number)
        *ret_text = xasprintf("%s: the journal is damaged: %s; nothing was changed; 'cairn fsck --repair %s' cuts it there and keeps in "
                              "lost+found what comes behind",
                              store->path, damage, store->path);
    else if (damage)
        *ret_text = xasprintf("%s: the journal is damaged: %s; nothing was changed; mount an empty STORE on the remote, which has its "
                              "published state, or cut the journal there with 'cairn fsck --repair %s'",
                              store->path, damage, store->path);
    else if (r == -EUCLEAN && store->whole_journal)
        *ret_text = xasprintf("%s: the journal is damaged, or the snapshot that it begins with; nothing was changed; a mount goes on as "
                              "long as the view has what is damaged: then copy the files elsewhere",
                              store->path);
    else if (r == -EUCLEAN && store->anchor.number)
        *ret_text = xasprintf("%s: what head %llu of its remote names is damaged, or no state that a store wrote; see the log",
                              store->path, (unsigned long long)store->anchor.number);
    else
        *ret_text = xasprintf("%s: the journal or the view cannot be read: %s; see `cairn fsck`, and the log", store->path,
                              strerror(-r));
}

static int open_and_follow(struct store *store, bool *ret_is_behind)
{
    int r = open_view(store, "view", true);
    if (r < 0)
        return r;
    uint64_t applied = view_state(store->view).applied_seq;
    *ret_is_behind = forgot_head(store);
    if (*ret_is_behind)
        return -ESTALE;
    *ret_is_behind = applied < store->anchor.cut; /* a power loss took what RocksDB had not written yet */
    return follow_journal(store, store->whole_journal ? 0 : applied, NULL);
}

int recover_view(struct store *store, char **ret_text)
{
    _cleanup_free_ char *path = xasprintf("%s/view", store->path);
    bool had_view = access(path, F_OK) == 0, is_behind = false;
    int r = room_for_view(store);
    if (r < 0) {
        *ret_text = xasprintf("the disk of %s is full; free 32 MiB there and mount again", store->path);
        return r;
    }
    r = open_and_follow(store, &is_behind);
    if (r == -ENODATA) {
        /* The view follows only what was durable: then the journal has lost its end. Going on from what is left would drop
         * the packs of acknowledged data, so nothing is touched. */
        *ret_text = xasprintf("%s: the journal is damaged: it ends before what was durable already; nothing was changed; "
                              "restore the folder journal/ from a copy",
                              store->path);
        return -EUCLEAN;
    }
    if ((r == 0 || r == -EIO) && !store->journal.damage.found && new_view_is_asked(store))
        r = -EUCLEAN;
    bool rebuilds = r == -ESTALE || (r == -EUCLEAN && !store->journal.damage.found);
    if (rebuilds)
        r = rebuild_view(store, is_behind);
    if (rebuilds && r == 0)
        r = new_view_settled(store);
    /* Nobody knows any more what it knew: what nothing names is kept. */
    store->met_damage = store->met_damage || (rebuilds && !is_behind) || (!had_view && store->journal.cut_seq > 0) ||
                        store->journal.was_skipped || repair_was_made(store);
    if (r < 0)
        explain(store, r, ret_text);
    return r;
}
