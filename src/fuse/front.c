// SPDX-License-Identifier: Apache-2.0
/* Mounting, starting and ending the threads. */
#include "fuse/front.h"

#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/pool.h"
#include "fs/taken.h"
#include "fuse/internal.h"
#include "fuse/ops.h"
#include "fuse/earlier.h"

/* Commas and backslashes in option values are escaped for libfuse. */
static char *escape_option(const char *value)
{
    char *out = xmalloc(2 * strlen(value) + 1), *p = out;
    for (; *value; value++) {
        if (*value == ',' || *value == '\\')
            *p++ = '\\';
        *p++ = *value;
    }
    *p = '\0';
    return out;
}

static int make_session(struct front *front)
{
    const struct front_options *o = &front->options;
    _cleanup_free_ char *fsname = escape_option(o->fsname);
    _cleanup_free_ char *opts =
        xasprintf("fsname=%s,subtype=cairnfs,default_permissions%s%s%s%s", fsname,
                  o->allow_other ? ",allow_other" : "", o->read_only ? ",ro" : "",
                  o->extra ? "," : "", o->extra ? o->extra : "");
    char *argv[] = {(char *)(uintptr_t) "cairn", (char *)(uintptr_t) "-o", opts, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    front->se = fuse_session_new(&args, &front_ops, sizeof front_ops, front);
    fuse_opt_free_args(&args);
    return front->se ? 0 : -EINVAL;
}

static int mount_session(struct front *front, char **ret_text)
{
    if (fuse_session_mount(front->se, front->options.mountpoint) != 0) {
        *ret_text = xasprintf(
            "cannot mount on %s: %s; see the message above, and check that you may use FUSE",
            front->options.mountpoint, strerror(errno ? errno : EPERM));
        return -EIO;
    }
    front->is_mounted = true;
    mounted_note(front);
    return fuse_session_custom_io(front->se, &front_io, fuse_session_fd(front->se));
}

static int start_threads(struct front *front)
{
    int r = thread_start(&front->resumer, "cairn-resume", front_resume, front);
    front->resumer_started = r == 0;
    if (r == 0)
        r = lost_pages_start(front);
    if (r == 0)
        r = earlier_start(front);
    unsigned most =
        (unsigned)min_u64(THREADS_MAX, max_u64(stage_slabs_for_waiting(front->stage), 1));
    unsigned wanted = front->options.threads > most ? most : front->options.threads;
    for (; r == 0 && front->thread_count < wanted; front->thread_count++) {
        atomic_fetch_add(&front->live_threads, 1);
        r = thread_start(&front->threads[front->thread_count], "cairn-fuse", front_receive, front);
        if (r < 0) {
            atomic_fetch_sub(&front->live_threads, 1);
            break;
        }
    }
    return r;
}

int front_start(const struct front_options *options, struct fs *fs, struct store *store,
                struct front *_Atomic *ret, char **ret_text)
{
    struct front *front = xcalloc(1, sizeof *front);
    front->options = *options;
    front->fs = fs;
    front->store = store;
    front->commit = store_commit(store);
    front->stage = store_stage(store);
    front->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mutex_init(&front->locked.lock, LOCK_CONTROL);
    mutex_init(&front->wake.lock, LOCK_LEAF);
    mutex_init(&front->self_test.lock, LOCK_LEAF);
    lost_pages_init(front);
    failures_init(&front->failures);
    older_init(&front->older, &options->times, options->rejoined);
    cond_init(&front->wake.changed);
    event_init(&front->progress);
    turns_init(&front->turns);
    TAILQ_INIT(&front->locked.content);
    TAILQ_INIT(&front->locked.changes);
    TAILQ_INIT(&front->locked.syncing);
    cached_init(front);
    int r = front->event_fd < 0 ? -errno : make_session(front);
    if (r == 0)
        r = options->adopted ? adopt_session(front, ret_text) : mount_session(front, ret_text);
    if (r == 0 && options->adopted)
        adopt_begin(front);
    if (r == 0)
        r = start_threads(front);
    if (r < 0) {
        if (!*ret_text)
            *ret_text = xasprintf("starting FUSE failed: %s", strerror(-r));
        /* the next daemon may continue with it */
        front->is_mounted = front->is_mounted && !options->adopted;
        front_stop(front);
        front_free(front);
        return r;
    }
    atomic_store(ret, front);
    if (!options->adopted)
        front_self_test(front);
    front->options.adopted = NULL;
    return 0;
}

void front_changed(struct front *front, const uint64_t *inos, size_t count, bool has_content)
{
    const off_t from = has_content ? 0 : -1; /* to the end; negative: only attributes */
    if (has_content)
        atomic_store(&front->changed_at, clock_monotonic_ns());
    /* -ENOENT: the kernel does not know the inode */
    for (size_t i = 0; i < count && !atomic_load(&front->stopping); i++)
        (void)fuse_lowlevel_notify_inval_inode(front->se, inos[i], from, 0);
    if (has_content && count)
        atomic_store(&front->changed_at, clock_monotonic_ns());
}

void front_passport(struct front *front, struct front_passport *ret, int *ret_fd)
{
    *ret = atomic_load(&front->has_passport) ? front->passport : (struct front_passport){0};
    ret->mmap_shared = atomic_load(&front->mmap_shared);
    ret->device = front->device;
    *ret_fd = fuse_session_fd(front->se);
}

bool front_is_over(struct front *front)
{
    return atomic_load(&front->over);
}

int front_event_fd(struct front *front)
{
    return front->event_fd;
}

static void end_threads(struct front *front)
{
    uint64_t seen = event_count(&front->progress);
    turns_end(&front->turns);
    stage_wake_takers(front->stage);
    while (atomic_load(&front->live_threads) > 0) {
        front_interrupt(front);
        (void)event_wait(&front->progress, &seen, clock_monotonic_ns() + INTERRUPT_NS);
    }
    for (unsigned i = 0; i < front->thread_count; i++)
        (void)pthread_join(front->threads[i], NULL);
}

static void drop_parked(struct front *front, struct parked_list *list)
{
    struct parked *parked;
    while ((parked = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, parked, link);
        parked_free(front, parked);
    }
}

/* Takes the first waiting fsync whose wait could be cancelled. *ret_more: there are others, whose
 * callback is running. */
static struct syncing *take_syncing(struct front *front, bool *ret_more)
{
    struct syncing *syncing;
    LOCK_SCOPE(&front->locked.lock);
    TAILQ_FOREACH(syncing, &front->locked.syncing, link)
    if (store_unwait(front->store, syncing->ticket))
        break;
    if (syncing)
        TAILQ_REMOVE(&front->locked.syncing, syncing, link);
    *ret_more = !TAILQ_EMPTY(&front->locked.syncing) || front->locked.synced > 0;
    return syncing;
}

/* Waiting fsyncs, perhaps for a remote for hours, fail now: their data is not durable. */
static void end_syncing(struct front *front)
{
    uint64_t seen = event_count(&front->progress);
    struct syncing *syncing;
    bool more;
    while ((syncing = take_syncing(front, &more)) || more) {
        if (syncing) {
            cause_note("the mount ends before the tier that fsync waits for has the data");
            (void)fuse_reply_err(syncing->req, front_failed(front, syncing->ino, "fsync", -EIO));
            free(syncing);
        } else {
            (void)event_wait(&front->progress, &seen, INT64_MAX);
        }
    }
}

void front_stop(struct front *front)
{
    if (!front || atomic_exchange(&front->stopped, true))
        return;
    lost_pages_stop(front);
    if (front->is_mounted && mounted_is_here(front))
        /* while requests are still answered: the kernel may have pages to write */
        mounted_end(front);
    atomic_store(&front->stopping, true);
    event_signal(&front->progress);
    if (front->resumer_started) {
        front_wake(front);
        (void)pthread_join(front->resumer, NULL);
    }
    end_threads(front);
    fs_expect_no_others(front->fs); /* else earlier_stop() may wait for it */
    earlier_stop(front);
    fs_end_reads(front->fs); /* reads in progress answer through the session */
    drop_parked(front, &front->locked.content);
    drop_parked(front, &front->locked.changes);
    end_syncing(front);
    if (front->is_mounted)
        mounted_release(front);
    if (front->se)
        fuse_session_destroy(front->se);
    front->se = NULL;
}

void front_free(struct front *front)
{
    if (!front)
        return;
    if (front->event_fd >= 0)
        (void)close(front->event_fd);
    mutex_done(&front->locked.lock);
    mutex_done(&front->wake.lock);
    mutex_done(&front->self_test.lock);
    lost_pages_done(front);
    failures_done(&front->failures);
    older_done(&front->older);
    (void)pthread_cond_destroy(&front->wake.changed);
    event_done(&front->progress);
    turns_done(&front->turns);
    cached_done(front);
    adopt_done(front);
    free(front);
}

void front_status(struct front *front, struct front_status *ret)
{
    LOCK_SCOPE(&front->locked.lock);
    *ret = (struct front_status){.mmap_shared = atomic_load(&front->mmap_shared),
                                 .threads = front->thread_count,
                                 .waiting = atomic_load(&front->parked_count),
                                 .is_adopted = front->adoption.is_adopted,
                                 .resent = atomic_load(&front->adoption.resent),
                                 .remembered = atomic_load(&front->adoption.answered_from_memory),
                                 .lost = atomic_load(&front->adoption.failed),
                                 .wait_count = front->locked.wait_count,
                                 .wait_ms_total = front->locked.wait_ns / 1000000,
                                 .requests_total = atomic_load(&front->requests),
                                 .read_bytes_total = atomic_load(&front->read_bytes),
                                 .written_bytes_total = atomic_load(&front->written_bytes)};
}
