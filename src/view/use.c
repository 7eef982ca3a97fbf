// SPDX-License-Identifier: Apache-2.0
/* After a failed write the database is closed and opened again: RocksDB's file writer asserts (in
 * Debian's build, too) that it is not used after an error, but RocksDB's own recovery attempts do
 * use it. So no write follows a failed one until a new database with new writers is open.
 *
 * Closing writes nothing through a failed writer. Data that was whole in RocksDB's log is
 * recovered; the rest is replayed from the journal. */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "view/db.h"

#define PROBE_LEN 65536
/* files that opening may create: log, manifest, options, a table, and renames of them */
#define PROBES 6u
#define DRAIN_MS 200 /* if readers were drained for longer, new readers would wait too long */

static __thread unsigned depth;    /* uses of this thread */
static __thread unsigned changing; /* this thread is the one that brings the database up to date */

void view_uses_init(struct view_uses *uses)
{
    mutex_init(&uses->lock, LOCK_LEAF);
    cond_init(&uses->changed);
    LIST_INIT(&uses->held);
}

void view_uses_done(struct view_uses *uses)
{
    mutex_done(&uses->lock);
    (void)pthread_cond_destroy(&uses->changed);
}

void view_note_changing(bool begins)
{
    changing += begins ? 1 : -1u;
}

void view_note_applied(struct view *view, uint64_t seq)
{
    LOCK_SCOPE(&view->uses.lock);
    view->uses.applied = seq;
    if (seq >= view->uses.needed)
        view->uses.needed = 0;
}

static bool is_behind_locked(const struct view *view)
{
    check_held(&view->uses.lock);
    return !changing && view->uses.applied < view->uses.needed;
}

int view_use_begin(struct view *view)
{
    LOCK_SCOPE(&view->uses.lock);
    while (view->uses.is_closing && depth == 0 && !changing)
        (void)mutex_wait(&view->uses.lock, &view->uses.changed, -1);
    view->uses.count++;
    depth++;
    return view->db && !is_behind_locked(view) ? 0 : -EIO;
}

void view_use_end(struct view *view)
{
    LOCK_SCOPE(&view->uses.lock);
    depth--;
    if (--view->uses.count == 0 && view->uses.is_closing)
        (void)pthread_cond_broadcast(&view->uses.changed);
}

void snap_hold(struct snap *s)
{
    mutex_lock(&s->view->uses.lock);
    check(s->readers > 0);
    if (--s->readers == 0)
        LIST_INSERT_HEAD(&s->view->uses.held, s, link);
    mutex_unlock(&s->view->uses.lock);
    view_use_end(s->view);
}

int snap_resume(struct snap *s)
{
    int r = view_use_begin(s->view);
    LOCK_SCOPE(&s->view->uses.lock);
    if (s->readers++ == 0)
        LIST_REMOVE(s, link);
    return s->error < 0 ? s->error : r;
}

/* Waits until no read is in progress, and blocks new ones. -EBUSY: some read takes long. */
static int begin_closing_uses(struct view *view)
{
    struct view_uses *uses = &view->uses;
    int64_t until = clock_monotonic_ns() + DRAIN_MS * 1000000ll;
    LOCK_SCOPE(&uses->lock);
    uses->is_closing = true;
    while (uses->count > 0 && clock_monotonic_ns() < until)
        (void)mutex_wait(&uses->lock, &uses->changed, DRAIN_MS);
    if (uses->count == 0)
        return 0;
    uses->is_closing = false;
    (void)pthread_cond_broadcast(&uses->changed);
    return -EBUSY;
}

static void end_closing_uses(struct view *view)
{
    LOCK_SCOPE(&view->uses.lock);
    view->uses.is_closing = false;
    (void)pthread_cond_broadcast(&view->uses.changed);
}

static void void_snapshots(struct view *view)
{
    struct snap *s;
    LIST_FOREACH(s, &view->uses.held, link)
    {
        if (s->snapshot)
            rocksdb_release_snapshot(view->db, s->snapshot);
        s->snapshot = NULL;
        s->error = -ESTALE;
    }
}

static char *probe_path(const struct view *view, unsigned number)
{
    return xasprintf("%s/probe%u.dbtmp", view->path, number);
}

static int make_probe(const struct view *view, unsigned number)
{
    static const char content[PROBE_LEN];
    _cleanup_free_ char *path = probe_path(view, number);
    _cleanup_close_ int fd =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int r = io_pwrite_full(fd, content, sizeof content, 0);
    return r == 0 && (fdatasync(fd) < 0 || fsync(fd) < 0) ? -errno : r;
}

static int name_probe(const struct view *view)
{
    _cleanup_free_ char *path = probe_path(view, 0), *named = probe_path(view, PROBES);
    return rename(path, named) < 0 ? -errno : io_fsync_dir(view->path);
}

/* A failed database can still be read; a closed one that cannot be opened again can not. So before
 * closing, checks that the disk can do all that opening needs: create files, write them, make them
 * durable, and rename one. */
static int probe_disk(struct view *view)
{
    int r = 0;
    for (unsigned i = 0; i < PROBES && r == 0; i++)
        r = make_probe(view, i);
    if (r == 0)
        r = name_probe(view);
    for (unsigned i = 0; i <= PROBES; i++) {
        _cleanup_free_ char *path = probe_path(view, i);
        if (unlink(path) < 0 && errno != ENOENT && r == 0)
            r = -errno;
    }
    return r;
}

static void need_what_it_has(struct view *view)
{
    LOCK_SCOPE(&view->uses.lock);
    view->uses.needed = max_u64(view->uses.needed, view->uses.applied);
}

int view_reopen(struct view *view)
{
    LOCK_SCOPE(&view->change);
    TRY(probe_disk(view));
    TRY(begin_closing_uses(view));
    if (view->db) {
        need_what_it_has(view);
        void_snapshots(view);
        rocksdb_close(view->db);
        view->db = NULL;
    }
    int r = view_open_database(view, false, 0);
    if (r == 0)
        atomic_store(&view->has_failed, false);
    end_closing_uses(view);
    if (r == 0)
        log_info("the view's database was opened anew after an error");
    return r;
}

bool view_is_damaged(struct view *view)
{
    return atomic_load(&view->is_damaged);
}

void view_distrust(struct view *view)
{
    atomic_store(&view->is_damaged, true);
}

bool view_is_unreadable(struct view *view)
{
    return atomic_load(&view->is_unreadable);
}

bool view_has_failed(struct view *view)
{
    return atomic_load(&view->has_failed);
}
