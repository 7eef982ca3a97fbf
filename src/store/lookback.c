// SPDX-License-Identifier: Apache-2.0
/* Opening and closing states. */
#include "store/lookback_internal.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "commit/run_file.h"
#include "prefix/runs.h"
#include "remote/maintenance.h"
#include "snapshots/snapshots.h"
#include "store/internal.h"

#define DIRECTORY "history"
#define CACHE_BYTES (4 * MIB)
#define VIEW_BYTES (8 * MIB) /* with the tables that are being written */
#define IDLE_NS (60 * SECOND_NS)

/* --- life ------------------------------------------------------------------------------------- */

static char *path_of(const struct lookback *lookback, unsigned slot)
{
    const char *store = lookback->store->local.path;
    return slot ? xasprintf("%s/" DIRECTORY "/%u", store, slot) : xasprintf("%s/" DIRECTORY, store);
}

static void remove_path(const struct lookback *lookback, unsigned slot)
{
    _cleanup_free_ char *path = path_of(lookback, slot);
    if (io_remove_tree(path) < 0)
        log_warn("%s cannot be removed", path);
}

struct lookback *lookback_new(struct store *store)
{
    if (store->node)
        return NULL;
    struct lookback *lookback = xcalloc(1, sizeof *lookback);
    lookback->store = store;
    lookback->local = store->own->snapshots;
    lookback->has_remote = store->remote;
    mutex_init(&lookback->lock, LOCK_LEAF);
    cond_init(&lookback->changed);
    if (lookback->has_remote)
        lookback_prefix(lookback, &store->local, &lookback->prefix);
    remove_path(lookback, 0); /* left by a session that was killed */
    return lookback;
}

void lookback_stop(struct lookback *lookback)
{
    if (!lookback)
        return;
    LOCK_SCOPE(&lookback->lock);
    lookback->stopping = true;
    (void)pthread_cond_broadcast(&lookback->changed);
}

static struct lookback_slot find_slot(struct lookback *lookback, unsigned slot)
{
    LOCK_SCOPE(&lookback->lock);
    for (size_t i = 0; i < lookback->slots.count; i++)
        if (lookback->slots.at[i].slot == slot)
            return lookback->slots.at[i];
    return (struct lookback_slot){0};
}

static struct snapshots *snapshots_of(struct lookback *lookback)
{
    return remote_snapshots(lookback->store->remote);
}

static void close_state(struct lookback *lookback, unsigned slot, struct view *view)
{
    const struct lookback_slot of = find_slot(lookback, slot);
    view_close(view);
    if (of.is_local) {
        local_snapshots_leave(lookback->local, of.head);
        return;
    }
    remove_path(lookback, slot);
    snapshots_let_go(snapshots_of(lookback), of.head);
}

static bool close_idle(struct lookback *lookback, int64_t before)
{
    unsigned slot;
    struct view *view = past_views_take_idle(lookback->store->past, before, &slot);
    if (view)
        close_state(lookback, slot, view);
    return view;
}

void lookback_free(struct lookback *lookback)
{
    if (!lookback)
        return;
    unsigned slot;
    struct view *view;
    /* Files that are open at the end of the mount are never closed. */
    while ((view = past_views_take_any(lookback->store->past, &slot)))
        close_state(lookback, slot, view);
    remove_path(lookback, 0);
    if (lookback->has_remote)
        prefix_done(&lookback->prefix);
    vector_free(&lookback->items);
    vector_free(&lookback->slots);
    mutex_done(&lookback->lock);
    (void)pthread_cond_destroy(&lookback->changed);
    free(lookback);
}

uint64_t lookback_memory(const struct lookback *lookback)
{
    return lookback ? PAST_VIEWS_MAX * VIEW_BYTES : 0;
}

bool lookback_is_shown(const struct lookback *lookback)
{
    return lookback && (lookback->has_remote || local_snapshots_cost(lookback->local).count > 0 ||
                        head_keep_is_set(&lookback->store->local.options.local_history.keep));
}

struct past_views *lookback_views(struct lookback *lookback)
{
    return lookback->store->past;
}

/* Waits while a state is being opened: its directory may be that of a state that is being
 * closed. */
static bool begin_opening(struct lookback *lookback, unsigned slot, bool waits)
{
    LOCK_SCOPE(&lookback->lock);
    while (lookback->opening && waits)
        (void)mutex_wait(&lookback->lock, &lookback->changed, -1);
    bool is_free = !lookback->opening;
    if (is_free)
        lookback->opening = slot;
    return is_free;
}

static void end_opening(struct lookback *lookback)
{
    LOCK_SCOPE(&lookback->lock);
    lookback->opening = 0;
    (void)pthread_cond_broadcast(&lookback->changed);
}

void lookback_tick(struct store *store)
{
    struct lookback *lookback = store->own->lookback;
    if (!lookback || past_views_count(lookback->store->past) == 0 ||
        !begin_opening(lookback, PAST_SLOT_MAX + 1, false))
        return;
    while (close_idle(lookback, clock_monotonic_ns() - IDLE_NS))
        ;
    end_opening(lookback);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Runs in STORE/runs need not be fetched. They are verified like others. */
static void link_runs(struct lookback *lookback, const struct local *local, const struct head *head)
{
    for (uint32_t i = 0; i < head->run_count; i++) {
        _cleanup_free_ char *from = run_path(&lookback->store->local, &head->runs[i], "");
        _cleanup_free_ char *to = run_path(local, &head->runs[i], "");
        if (link(from, to) < 0 && errno != ENOENT)
            log_debug("%s cannot be linked: %s", from, strerror(errno));
    }
}

static int fetch_runs(struct lookback *lookback, struct local *local, const struct head *head)
{
    struct lost_object lost;
    struct prefix prefix;
    TRY(run_directory_make(local));
    link_runs(lookback, local, head);
    lookback_prefix(lookback, local, &prefix);
    int r = runs_fetch_head(&prefix, head, &lost);
    prefix_done(&prefix);
    return r;
}

static int fill_view(struct local *local, const struct head *head)
{
    const struct view_options options = {
        .cache_bytes = CACHE_BYTES, .create = true, .is_small = true};
    _cleanup_free_ char *path = xasprintf("%s/view", local->path);
    _cleanup_free_ char *runs = xasprintf("%s/runs", local->path);
    TRY(view_open(path, &options, local->sb.created, &local->view));
    int r = recover_rows(local, head);
    if (r < 0)
        view_close(local->view);
    else if (io_remove_tree(runs) < 0)
        log_warn("%s cannot be removed", runs);
    return r;
}

/* Chunks may be stored on NVMe in their present encoding, which the superblock has to announce
 * before. */
static int check_encodings(const struct lookback *lookback, const struct head *head)
{
    uint64_t known = lookback->store->local.sb.incompat;
    if (!(head->incompat & SUPERBLOCK_INCOMPAT_ENCODINGS & ~known))
        return 0;
    cause_note("it has chunks in an encoding that this store does not use (reduce=off, or a newer "
               "version): 'cairn cp --at' reads it");
    return -EIO;
}

/* Makes the view in an empty directory. */
static int make_view(struct lookback *lookback, unsigned slot, const struct head *head,
                     struct view **ret)
{
    struct local local = lookback->store->local;
    _cleanup_free_ char *all = path_of(lookback, 0);
    local.path = path_of(lookback, slot);
    local.view = NULL;
    int r = room_for_view(lookback->store->commit.room);
    if (r == 0 && ((mkdir(all, 0700) < 0 && errno != EEXIST) || mkdir(local.path, 0700) < 0))
        r = -errno;
    if (r == 0)
        r = fetch_runs(lookback, &local, head);
    if (r == 0)
        r = fill_view(&local, head);
    explicit_bzero(&local.sb.key, sizeof local.sb.key);
    free(local.path);
    *ret = local.view;
    return r;
}

/* An object that a head names can be missing only after gc or damage. */
static int explain(const struct lookback_item *item, int r, bool has_head)
{
    bool is_gone = r == -ENOENT && !has_head;
    if (is_gone)
        cause_note("the snapshot %s is not there any more", item->name);
    else if (prefix_object_is_lost(r) && !*cause_text())
        cause_note("the snapshot %s is damaged", item->name);
    return is_gone ? -ESTALE : prefix_object_is_lost(r) ? -EIO : r;
}

static int open_state(struct lookback *lookback, const struct lookback_item *item,
                      struct view **ret)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    bool has_head = false;
    int64_t begun = clock_monotonic_ns();
    cause_clear();
    remove_path(lookback, item->slot);
    int r = lookback_read_head(lookback, item, head);
    if (r == 0) {
        has_head = true;
        r = check_encodings(lookback, head);
    }
    if (r == 0)
        r = make_view(lookback, item->slot, head, ret);
    if (r < 0) {
        remove_path(lookback, item->slot);
        return explain(item, r, has_head);
    }
    log_debug("history: %s (head %llu, %llu files) is open after %lld ms", item->name,
              (unsigned long long)item->head, (unsigned long long)head->files,
              (long long)((clock_monotonic_ns() - begun) / MS_NS));
    return 0;
}

static int make_place(struct lookback *lookback)
{
    while (past_views_count(lookback->store->past) == PAST_VIEWS_MAX)
        if (!close_idle(lookback, INT64_MAX)) {
            cause_note("files of %u other snapshots are open, and no more can be at once",
                       PAST_VIEWS_MAX);
            return -ENFILE;
        }
    return 0;
}

static int open_local(struct lookback *lookback, const struct lookback_item *item,
                      struct view **ret)
{
    cause_clear();
    int r = local_snapshots_enter(lookback->local, item->head, ret);
    return r < 0 ? explain(item, r, false) : 0;
}

/* The head is held before it is read: a pass of gc that begins from now on keeps it. */
static int open_held(struct lookback *lookback, const struct lookback_item *item, struct view **ret)
{
    snapshots_hold(snapshots_of(lookback), item->head);
    int r = open_state(lookback, item, ret);
    if (r < 0)
        snapshots_let_go(snapshots_of(lookback), item->head);
    return r;
}

static int open_slot(struct lookback *lookback, unsigned slot, struct view **ret)
{
    struct lookback_item item;
    struct past_views *views = lookback->store->past;
    *ret = past_views_enter(views, slot); /* another thread may have opened it */
    if (*ret)
        return 0;
    if (!lookback_known(lookback, slot, &item)) {
        cause_note("the snapshot is not there any more: gc took it");
        return -ESTALE;
    }
    TRY(make_place(lookback));
    int r = item.is_local ? open_local(lookback, &item, ret) : open_held(lookback, &item, ret);
    if (r == 0)
        past_views_add(views, slot, *ret, item.is_local);
    return r;
}

int lookback_enter(struct lookback *lookback, unsigned slot, struct view **ret)
{
    *ret = past_views_enter(lookback->store->past, slot);
    if (*ret)
        return 0;
    struct lookback_items ignored = {0};
    struct lookback_item item;
    if (!lookback_known(lookback, slot, &item)) { /* the slot was assigned by an earlier daemon */
        TRY(lookback_list(lookback, &ignored));
        vector_free(&ignored);
    }
    (void)begin_opening(lookback, slot, true);
    int r = open_slot(lookback, slot, ret);
    end_opening(lookback);
    return r;
}
