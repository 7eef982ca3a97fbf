// SPDX-License-Identifier: Apache-2.0
/* Reads of other nodes' files, whose content another store has. */
#include "base/cause.h"
#include "fs/internal.h"
#include "fs/taken.h"

struct waiting_read {
    struct waiting_read *next;
    struct fetch_read_request request;
};

void fs_expect_others(struct fs *fs)
{
    LOCK_SCOPE(&fs->elsewhere.lock);
    fs->elsewhere.is_expected = true;
}

int elsewhere_check(struct fs *fs)
{
    if (atomic_load(&fs->others))
        return 0;
    LOCK_SCOPE(&fs->elsewhere.lock);
    if (fs->elsewhere.is_expected)
        return -EAGAIN;
    cause_note("it is another node's, and the remote could not be read since the mount began");
    return -EIO;
}

int elsewhere_await(struct fs *fs)
{
    mutex_lock(&fs->elsewhere.lock);
    while (fs->elsewhere.is_expected)
        (void)mutex_wait(&fs->elsewhere.lock, &fs->elsewhere.settled, -1);
    mutex_unlock(&fs->elsewhere.lock);
    return elsewhere_check(fs);
}

/* False: the read need not wait, or not any more. */
static bool wait_for_others(struct fs *fs, const struct fetch_read_request *request)
{
    LOCK_SCOPE(&fs->elsewhere.lock);
    if (!fs->elsewhere.is_expected)
        return false;
    struct waiting_read *read = xmalloc(sizeof *read);
    *read = (struct waiting_read){fs->elsewhere.reads, *request};
    fs->elsewhere.reads = read;
    return true;
}

void elsewhere_read(struct fs *fs, const struct fetch_read_request *request)
{
    struct store *others = atomic_load(&fs->others);
    if (!others && wait_for_others(fs, request))
        return;
    int r = elsewhere_check(fs);
    if (r == 0)
        fetch_start_read(atomic_load(&fs->others), request);
    else
        request->reply(&(struct fetch_answer){.ino = request->ino, .error = -EIO}, request->arg);
}

void fs_expect_no_others(struct fs *fs)
{
    mutex_lock(&fs->elsewhere.lock);
    struct waiting_read *read = fs->elsewhere.reads, *next;
    fs->elsewhere.reads = NULL;
    fs->elsewhere.is_expected = false;
    (void)pthread_cond_broadcast(&fs->elsewhere.settled);
    mutex_unlock(&fs->elsewhere.lock);
    for (; read; read = next) {
        next = read->next;
        elsewhere_read(fs, &read->request);
        free(read);
    }
}
