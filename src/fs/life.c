// SPDX-License-Identifier: Apache-2.0
#include "fs/internal.h"

/* A thread that waits to take changes comes first: otherwise consecutive calls would keep it
 * waiting. */
static void gate_init(pthread_rwlock_t *gate)
{
    pthread_rwlockattr_t attr;
    check(pthread_rwlockattr_init(&attr) == 0);
    check(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == 0);
    check(pthread_rwlock_init(gate, &attr) == 0);
    (void)pthread_rwlockattr_destroy(&attr);
}

struct fs *fs_new(struct store *store, enum fs_fsync fsync_level)
{
    struct fs *fs = xcalloc(1, sizeof *fs);
    fs->store = store;
    fs->commit = store_commit(store);
    fs->ns = store_ns(store);
    fs->stage = store_stage(store);
    fs->fsync_level = fsync_level;
    mutex_init(&fs->locked.lock, LOCK_FS);
    mutex_init(&fs->access.lock, LOCK_LEAF);
    lanes_init(&fs->lanes);
    gate_init(&fs->gate);
    mutex_init(&fs->elsewhere.lock, LOCK_LEAF);
    cond_init(&fs->elsewhere.settled);
    fs->brings = brings_new();
    fetch_map_zeros();
    return fs;
}

void fs_free(struct fs *fs)
{
    if (!fs)
        return;
    HASH_FREE_ALL(fs->locked.live);
    HASH_FREE_ALL(fs->access.accessed);
    lanes_done(&fs->lanes);
    (void)pthread_rwlock_destroy(&fs->gate);
    brings_free(fs->brings);
    mutex_done(&fs->locked.lock);
    mutex_done(&fs->access.lock);
    mutex_done(&fs->elsewhere.lock);
    (void)pthread_cond_destroy(&fs->elsewhere.settled);
    free(fs);
}
