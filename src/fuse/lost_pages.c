// SPDX-License-Identifier: Apache-2.0
/* Drops lost pages. Stores through maps that fail (ENOSPC) are lost, and msync and fsync report
 * that. The kernel keeps the pages, though: reads through the page cache would return other data
 * than direct reads until the pages are evicted. Dropping them makes all readers see the content of
 * the file. A thread of its own does it: the kernel makes the notifying thread wait for pages under
 * writeback, and writes dirty pages of the inode first. */
#include "base/log.h"
#include "base/pool.h"
#include "fuse/internal.h"

void lost_pages_note(struct front *front, uint64_t ino)
{
    struct lost_pages *lost = &front->lost_pages;
    LOCK_SCOPE(&lost->lock);
    for (unsigned i = 0; i < lost->count; i++)
        if (lost->inos[i] == ino)
            return;
    if (lost->count == LOST_PAGES_MAX) {
        log_warn("inode %llu: its pages in the kernel are stale until they are read again",
                 (unsigned long long)ino);
        return;
    }
    lost->inos[lost->count++] = ino;
    (void)pthread_cond_signal(&lost->changed);
}

bool lost_pages_are_final(struct front *front)
{
    LOCK_SCOPE(&front->lost_pages.lock);
    return front->lost_pages.is_ending;
}

/* Returns the next inode; 0: ended. */
static uint64_t take_inode(struct lost_pages *lost)
{
    LOCK_SCOPE(&lost->lock);
    while (lost->count == 0 && !lost->is_ending)
        (void)mutex_wait(&lost->lock, &lost->changed, -1);
    if (lost->is_ending)
        return 0;
    uint64_t ino = lost->inos[0];
    memmove(lost->inos, lost->inos + 1, --lost->count * sizeof lost->inos[0]);
    return ino;
}

static void *lost_pages_drop(void *arg)
{
    struct front *front = arg;
    uint64_t ino;
    while ((ino = take_inode(&front->lost_pages)))
        front_changed(front, &ino, 1, true);
    return NULL;
}

int lost_pages_start(struct front *front)
{
    int r = thread_start(&front->lost_pages.thread, "cairn-drop", lost_pages_drop, front);
    front->lost_pages.is_started = r == 0;
    return r;
}

void lost_pages_init(struct front *front)
{
    mutex_init(&front->lost_pages.lock, LOCK_LEAF);
    cond_init(&front->lost_pages.changed);
}

void lost_pages_stop(struct front *front)
{
    struct lost_pages *lost = &front->lost_pages;
    if (!lost->is_started)
        return;
    mutex_lock(&lost->lock);
    lost->is_ending = true;
    (void)pthread_cond_signal(&lost->changed);
    mutex_unlock(&lost->lock);
    front_wake(front);
    (void)pthread_join(lost->thread, NULL);
    lost->is_started = false;
}

void lost_pages_done(struct front *front)
{
    mutex_done(&front->lost_pages.lock);
    (void)pthread_cond_destroy(&front->lost_pages.changed);
}
