// SPDX-License-Identifier: Apache-2.0
#include "take/take.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/pool.h"
#include "commit/history.h"
#include "commit/journal.h"
#include "commit/touched.h"
#include "format/head.h"
#include "fs/taken.h"
#include "overlay/ns.h"
#include "take/internal.h"

#define OPEN_AGAIN_MS 3000
#define TURN_MS 1000
#define LATER_SAID_NS (15 * SECOND_NS)
#define ROOM_MS 50 /* for changes that wait for a round, or for room */

/* --- life ------------------------------------------------------------------------------------- */

struct take *take_new(const struct take_options *options)
{
    struct take *take = xcalloc(1, sizeof *take);
    take->options = *options;
    take->commit = store_commit(options->store);
    take->ns = store_ns(options->store);
    take->touched = history_touched(take->commit->history);
    take->floor = history_newest(take->commit->history);
    event_init(&take->event);
    mutex_init(&take->locked.lock, LOCK_LEAF);
    check(take->touched);
    return take;
}

void take_free(struct take *take)
{
    if (!take)
        return;
    atomic_store(&take->stops, true);
    event_signal(&take->event);
    if (take->is_started)
        (void)pthread_join(take->thread, NULL);
    store_hear_union(take->options.store, NULL, NULL);
    fs_show_others(take->options.fs, NULL);
    if (take->others)
        change_subscribe(store_commit(take->others)->change, NULL, NULL);
    store_close(take->others);
    ino_set_clear(&take->aliases);
    ino_set_clear(&take->pending);
    vector_free(&take->changed);
    vector_free(&take->rewritten);
    vector_free(&take->nameless);
    vector_free(&take->locked.noted);
    mutex_done(&take->locked.lock);
    event_done(&take->event);
    free(take);
}

void take_status(struct take *take, struct take_status *ret)
{
    mutex_lock(&take->locked.lock);
    *ret = take->locked.status;
    mutex_unlock(&take->locked.lock);
    ret->not_merged = touched_count(take->touched);
}

static void note_trouble(struct take *take, const char *text)
{
    LOCK_SCOPE(&take->locked.lock);
    if (*text && strcmp(take->locked.status.trouble, text) != 0)
        log_warn("nodes: files of other nodes are not taken: %s", text);
    (void)snprintf(take->locked.status.trouble, sizeof take->locked.status.trouble, "%s", text);
}

/* Waits until more than `seen` events were signalled, or for `ms`. */
static void pause_for(struct take *take, uint64_t seen, int64_t ms)
{
    if (!atomic_load(&take->stops))
        (void)event_wait(&take->event, &seen, clock_monotonic_ns() + ms * MS_NS);
}

static bool await_that(struct take *take, const _Atomic bool *is, int64_t until_ns)
{
    uint64_t seen = event_count(&take->event);
    while (!atomic_load(is))
        if (!event_wait(&take->event, &seen, until_ns))
            return false;
    return true;
}

bool take_await(struct take *take, int64_t until_ns)
{
    return await_that(take, &take->has_looked, until_ns);
}

bool take_await_content(struct take *take, int64_t until_ns)
{
    return await_that(take, &take->is_open, until_ns);
}

/* --- the store that follows ------------------------------------------------------------------- */

/* The store that follows shows a newer head. Called in a thread of that store. */
static void note_change(const uint64_t *inos, size_t count, bool has_content, void *arg)
{
    (void)has_content;
    struct take *take = arg;
    mutex_lock(&take->locked.lock);
    vector_add_all(&take->locked.noted, inos, count);
    take->locked.heads++;
    mutex_unlock(&take->locked.lock);
    event_signal(&take->event);
}

/* Signals once only: the thread of the turns waits for the same event. */
static void note_looked(struct take *take)
{
    if (!atomic_exchange(&take->has_looked, true))
        event_signal(&take->event);
}

static void note_open(struct take *take)
{
    if (!atomic_exchange(&take->is_open, true))
        event_signal(&take->event);
}

/* There is a newer union head, and the store that follows is not open yet. Called in the thread of
 * the merger. */
static void note_union(void *arg)
{
    struct take *take = arg;
    event_signal(&take->event);
}

static void follow_now(void *arg)
{
    struct take *take = arg;
    remote_follow_now(take->others);
}

static bool open_others(struct take *take)
{
    char *text = NULL;
    int r = take->options.open(take->options.arg, &take->others, &text);
    if (r < 0 && r != -ENOENT)
        note_trouble(take, text ? text : strerror(-r));
    free(text);
    if (r == -ENOENT)
        note_looked(take);
    if (r == -ENOENT)
        note_open(take);
    if (r < 0) {
        fs_show_others(take->options.fs, NULL);
        return false;
    }
    struct store_status status;
    store_status(take->others, &status);
    take->view = store_commit(take->others)->local->view;
    mutex_lock(&take->locked.lock);
    take->locked.all = true;
    take->locked.heads++;
    take->locked.status.memory_bound_bytes = status.memory_bound_bytes;
    mutex_unlock(&take->locked.lock);
    change_subscribe(store_commit(take->others)->change, note_change, take);
    fs_show_others(take->options.fs, take->others);
    note_open(take);
    store_hear_union(take->options.store, follow_now, take);
    follow_now(take); /* there may be a newer head since the store was opened */
    return true;
}

/* --- which head ------------------------------------------------------------------------------- */

/* The file with the number of the head whose names were taken last: after a crash the store that
 * follows may show an earlier head, by which names would be removed and come back. */
static char *taken_path(const struct take *take)
{
    return xasprintf("%s/taken", take->commit->local->path);
}

static uint64_t read_taken(const struct take *take)
{
    _cleanup_free_ char *path = taken_path(take), *text = NULL;
    return io_read_file(path, 64, &text, NULL) == 0 ? strtoull(text, NULL, 10) : 0;
}

static void write_taken(const struct take *take, uint64_t head)
{
    _cleanup_free_ char *path = taken_path(take);
    FILE *file = fopen(path, "we");
    if (!file || fprintf(file, "%llu\n", (unsigned long long)head) < 0)
        log_debug("%s cannot be written", path);
    if (file)
        (void)fclose(file);
}

/* STORE/head is written after the view is changed: so the view is not older than this head.
 * -ENOENT: there is no head, or it lacks operations of an earlier daemon of this node. */
static int find_head(struct take *take, uint64_t *ret_number)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    TRY(local_head_read(store_commit(take->others)->local, head));
    uint64_t merged = head_merged(head, take->commit->local->sb.node);
    *ret_number = head->number;
    if (!take->has_floor && (merged < take->floor || head->number < read_taken(take)))
        return -ENOENT;
    take->has_floor = true;
    touched_forget(take->touched, merged);
    take->options.room(take->options.arg);
    return 0;
}

/* --- turns ------------------------------------------------------------------------------------ */

struct all {
    struct take *take;
    struct take_inos dirs;
};

static int add_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    (void)name;
    (void)name_len;
    struct all *all = arg;
    ino_set_add(&all->take->pending, entry->ino, 0);
    if (S_ISDIR(entry->type))
        vector_add(&all->dirs, entry->ino);
    return 0;
}

/* Adds all inodes of the union, directories before their entries. */
static int add_all(struct take *take)
{
    struct all all = {.take = take};
    int r = 0;
    ino_set_clear(&take->pending);
    ino_set_add(&take->pending, ROOT_INO, 0);
    vector_add(&all.dirs, ROOT_INO);
    for (size_t i = 0; i < all.dirs.count && r == 0; i++)
        r = view_readdir(take->view, all.dirs.at[i], 0, add_entry, &all);
    vector_free(&all.dirs);
    return r == -ENOENT ? 0 : r;
}

static void add_noted(struct take *take, bool *ret_all)
{
    LOCK_SCOPE(&take->locked.lock);
    for (size_t i = 0; i < take->locked.noted.count; i++)
        ino_set_add(&take->pending, take->locked.noted.at[i], 0);
    take->locked.noted.count = 0;
    *ret_all = take->locked.all;
    take->locked.all = false;
}

static int take_one(struct take *take, uint64_t ino)
{
    struct view_inode inode;
    int r = view_inode(take->view, ino, &inode);
    if (r < 0) /* its directory changed, too */
        return r == -ENOENT ? TAKEN_DONE : r;
    if (S_ISDIR(inode.attrs.mode))
        return take_directory(take, ino);
    fs_taken_begin(take->options.fs);
    r = take_inode(take, ino);
    fs_taken_end(take->options.fs);
    return r;
}

/* Compares each inode that is pending now, once. *ret_done: how many are no longer pending. */
static int take_each(struct take *take, size_t *ret_done)
{
    struct ino_set *now = take->pending, *item, *next;
    int r = 0;
    take->pending = NULL;
    *ret_done = 0;
    HASH_ITER(hh, now, item, next)
    {
        r = r < 0 || atomic_load(&take->stops) ? r : take_one(take, item->ino);
        if (r != TAKEN_DONE)
            ino_set_add(&take->pending, item->ino, 0);
        else
            ++*ret_done;
    }
    ino_set_clear(&now);
    return r < 0 ? r : 0;
}

static void tell_of(struct take *take, struct take_inos *inos, bool has_content)
{
    vector_sort_unique(inos);
    change_notify(take->commit->change, inos->at, inos->count, has_content);
    inos->count = 0;
}

/* Everything that this node did is merged, and yet an inode differs from the union: this has to
 * pass within seconds. */
static void watch_later(struct take *take)
{
    int64_t now = clock_monotonic_ns();
    bool is_odd = take->pending && touched_count(take->touched) == 0;
    if (!is_odd || !take->later_since) {
        take->later_since = is_odd ? now : 0;
        return;
    }
    if (now - take->later_since < LATER_SAID_NS)
        return;
    log_warn("nodes: this mount does not show all as other nodes do: %s", take->later);
    take->later_since = INT64_MAX; /* warned once */
}

static int take_pending(struct take *take)
{
    size_t done = 1;
    int r = 0;
    while (r == 0 && done > 0 && take->pending)
        r = take_each(take, &done);
    tell_of(take, &take->changed, false);
    tell_of(take, &take->rewritten, true);
    watch_later(take);
    return r;
}

static int turn(struct take *take)
{
    uint64_t number;
    bool all;
    int r = find_head(take, &number);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    add_noted(take, &all);
    if (all)
        r = add_all(take);
    if (r == 0)
        r = take_pending(take);
    if (r == 0)
        write_taken(take, number);
    LOCK_SCOPE(&take->locked.lock);
    take->locked.all = take->locked.all || (all && r < 0 && r != -EAGAIN);
    take->locked.status.waiting = HASH_COUNT(take->pending);
    if (r == 0)
        take->locked.status.head = number;
    return r;
}

static uint64_t head_count(struct take *take)
{
    LOCK_SCOPE(&take->locked.lock);
    return take->locked.heads;
}

static void *run_turns(void *arg)
{
    struct take *take = arg;
    uint64_t known = 0, seen = event_count(&take->event);
    store_hear_union(take->options.store, note_union, take);
    while (!atomic_load(&take->stops) && !take->others && !open_others(take)) {
        pause_for(take, seen, OPEN_AGAIN_MS);
        seen = event_count(&take->event);
    }
    while (!atomic_load(&take->stops)) {
        seen = event_count(&take->event);
        uint64_t heads = head_count(take);
        cause_clear();
        /* A change that was newer here may be merged now, although no later head was shown: the
         * head that the store that follows shows is read before it is noted there. */
        int r = heads == known && !take->pending ? 0 : turn(take);
        if (r == 0) {
            known = heads;
            note_looked(take);
        }
        if (r == 0 || r == -EAGAIN)
            note_trouble(take, "");
        else
            note_trouble(take, *cause_text() ? cause_text() : strerror(-r));
        pause_for(take, seen, r == -EAGAIN ? ROOM_MS : TURN_MS);
    }
    return NULL;
}

int take_start(struct take *take)
{
    int r = thread_start(&take->thread, "cairn-take", run_turns, take);
    take->is_started = r == 0;
    return r;
}
