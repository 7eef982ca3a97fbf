// SPDX-License-Identifier: Apache-2.0
/* Files that all workers change at once: of a block it is only known that it is whole. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>

#include "base/crc.h"
#include "workers.h"

#define SHARED_FILES 4u
#define BLOCK 4096u
#define BLOCKS_MAX 256u /* of a file */

struct block {
    uint32_t crc; /* of the rest */
    uint32_t worker;
    uint64_t number;
    uint8_t bytes[BLOCK - 16];
};

static void make_blocks(struct worker *w, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct block block = {.worker = w->index, .number = chance(&w->rng)};
        fill_bytes(block.bytes, sizeof block.bytes, block.number);
        block.crc = crc32_of(0, &block.worker, BLOCK - offsetof(struct block, worker));
        memcpy(w->buf + (size_t)i * BLOCK, &block, BLOCK);
    }
}

static bool is_whole(const uint8_t *bytes)
{
    static const uint8_t zeros[BLOCK];
    struct block block;
    memcpy(&block, bytes, BLOCK);
    if (memcmp(bytes, zeros, BLOCK) == 0)
        return true;
    return block.crc == crc32_of(0, &block.worker, BLOCK - offsetof(struct block, worker));
}

static void shared_read(struct worker *w, uint64_t ino)
{
    uint64_t offset = below(&w->rng, BLOCKS_MAX) * BLOCK;
    ssize_t n = worker_read(w, ino, offset, (size_t)(1 + below(&w->rng, BLOCKS_MAX)) * BLOCK);
    expect(w->fixture, n >= 0 && n % BLOCK == 0, "reading what is open: %zd", n);
    for (ssize_t i = 0; i < n; i += BLOCK)
        expect(w->fixture, is_whole(w->buf + i), "inode %llx: the block at %llu is torn",
               (unsigned long long)ino, (unsigned long long)offset + (unsigned long long)i);
}

static void shared_write(struct worker *w, uint64_t ino)
{
    unsigned count = 1 + (unsigned)below(&w->rng, below(&w->rng, 2) ? 4 : BLOCKS_MAX / 2);
    make_blocks(w, count);
    (void)worker_write(w, ino, below(&w->rng, BLOCKS_MAX - count) * BLOCK, count * BLOCK);
}

static void shared_truncate(struct worker *w, uint64_t ino)
{
    struct stat st;
    int r;
    uint64_t size = below(&w->rng, BLOCKS_MAX) * BLOCK;
    do {
        st.st_size = (off_t)size;
        r = fs_setattr(w->fixture->fs, ino, FS_SET_SIZE, &st, &w->caller, &st);
    } while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "truncating what is open");
}

static void shared_punch(struct worker *w, uint64_t ino)
{
    uint64_t offset = below(&w->rng, BLOCKS_MAX) * BLOCK, length = (1 + below(&w->rng, 16)) * BLOCK;
    int r;
    do
        r = fs_fallocate(w->fixture->fs, ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                         length, &w->caller);
    while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "punching what is open");
}

/* From its first half to its second. */
static void shared_copy(struct worker *w, uint64_t ino)
{
    uint64_t half = BLOCKS_MAX / 2, from = below(&w->rng, half) * BLOCK,
             count = 1 + below(&w->rng, half);
    const struct fs_copy how = {ino, from, ino, from + half * BLOCK,
                                min_u64(count * BLOCK, half * BLOCK - from)};
    ssize_t n;
    do
        n = fs_copy(w->fixture->fs, &how, &w->caller);
    while (must_repeat(w->fixture, n));
    expect(w->fixture, n == -ENOSPC || (n >= 0 && n % BLOCK == 0), "copying what is open: %zd", n);
}

static void shared_sync(struct worker *w, uint64_t ino)
{
    struct fs_barrier barrier;
    int r;
    do
        r = fs_fsync(w->fixture->fs, ino, &barrier);
    while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "fsync of what is open");
}

/* Mode, time and xattrs: of a file that others may be removing, so it may be gone. */
static void shared_attrs(struct worker *w, uint64_t ino)
{
    struct stat st;
    struct fixture *fixture = w->fixture;
    int r;
    (void)pthread_mutex_lock(&fixture->attrs_lock);
    do {
        st = (struct stat){.st_mode = S_IFREG | (below(&w->rng, 2) ? 0644 : 0600),
                           .st_mtim.tv_sec = 7};
        r = fs_setattr(fixture->fs, ino, FS_SET_MODE | FS_SET_MTIME, &st, &w->caller, &st);
    } while (must_repeat(fixture, r));
    expect(fixture, r == 0 || r == -ENOENT, "chmod: %s", strerror(-r));
    do
        r = below(&w->rng, 2) ? fs_setxattr(fixture->fs, ino, "user.s", "value", 5, 0)
                              : fs_removexattr(fixture->fs, ino, "user.s");
    while (must_repeat(fixture, r));
    expect(fixture, r == 0 || r == -ENOENT || r == -ENODATA || r == -ENOSPC, "xattr: %s",
           strerror(-r));
    (void)pthread_mutex_unlock(&fixture->attrs_lock);
}

/* What a descriptor is used for. Nothing of it may fail, whatever happens to the name. */
static void use(struct worker *w, uint64_t ino, uint64_t handle)
{
    static void (*const uses[])(struct worker *, uint64_t) = {
        shared_read,     shared_write, shared_write, shared_read,
        shared_truncate, shared_sync,  shared_punch, shared_copy};
    struct stat st;
    int r;
    for (unsigned i = (unsigned)below(&w->rng, 8); i > 0; i--)
        uses[below(&w->rng, ARRAY_LEN(uses))](w, ino);
    r = fs_getattr(w->fixture->fs, ino, &st);
    EXPECT_OK(w, r, "stat of what is open");
    do
        r = fs_flush(w->fixture->fs, ino, handle);
    while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "flush of what is open");
    (void)fs_release(w->fixture->fs, handle, false);
}

static void open_and_use(struct worker *w, const char *name)
{
    struct fixture *fixture = w->fixture;
    struct dir *dir = &fixture->dirs[DIR_SHARED];
    const struct fs_new_inode new = {dir->ino, name, 0644, 0, &w->caller};
    struct fs_opened opened;
    struct stat st;
    int r = fs_lookup(fixture->fs, dir->ino, name, &st);
    if (r == 0) {
        do
            r = fs_open(fixture->fs, st.st_ino, O_RDWR, &opened);
        while (must_repeat(fixture, r));
    } else {
        (void)pthread_mutex_lock(&dir->lock);
        do
            r = fs_create(fixture->fs, &new, O_RDWR, &st, &opened);
        while (must_repeat(fixture, r));
        (void)pthread_mutex_unlock(&dir->lock);
    }
    expect(fixture, r == 0 || r == -ENOENT || r == -EEXIST || r == -ENOSPC, "opening %s: %s", name,
           strerror(-r));
    if (r == 0)
        use(w, st.st_ino, opened.handle);
}

static void change_names(struct worker *w, const char *name, const char *name2)
{
    struct fixture *fixture = w->fixture;
    struct dir *dir = &fixture->dirs[DIR_SHARED];
    struct stat st;
    struct fs_renamed renamed;
    unsigned what = (unsigned)below(&w->rng, 4);
    const struct fs_rename names = {dir->ino, name, dir->ino, name2,
                                    what == 2 ? RENAME_EXCHANGE : 0};
    int r;
    (void)pthread_mutex_lock(&dir->lock);
    uint64_t lost =
        fs_lookup(fixture->fs, dir->ino, what == 0 ? name : name2, &st) == 0 ? st.st_ino : 0;
    do {
        if (what == 0)
            r = fs_unlink(fixture->fs, dir->ino, name);
        else if (what == 1 || what == 2)
            r = fs_rename(fixture->fs, &names, &w->caller, &renamed);
        else if ((r = fs_lookup(fixture->fs, dir->ino, name, &st)) == 0)
            r = fs_link(fixture->fs, st.st_ino, dir->ino, name2, &st);
    } while (must_repeat(fixture, r));
    (void)pthread_mutex_unlock(&dir->lock);
    expect(fixture, r == 0 || r == -ENOENT || r == -EEXIST || r == -ENOSPC, "names %s, %s: %s",
           name, name2, strerror(-r));
    worker_forget(w, lost);
}

void shared_step(struct worker *w)
{
    char name[16], name2[16];
    struct stat st;
    w->doing = "shared";
    (void)snprintf(name, sizeof name, "s%u", (unsigned)below(&w->rng, SHARED_FILES));
    (void)snprintf(name2, sizeof name2, "s%u", (unsigned)below(&w->rng, SHARED_FILES));
    switch (below(&w->rng, 5)) {
    case 0:
        change_names(w, name, name2);
        break;
    case 1:
        if (fs_lookup(w->fixture->fs, w->fixture->dirs[DIR_SHARED].ino, name, &st) == 0)
            shared_attrs(w, st.st_ino);
        break;
    default:
        open_and_use(w, name);
    }
}

/* --- the observer ----------------------------------------------------------------------------- */

static void damage(const char *path, const char *what, void *arg)
{
    fail(arg, "%s: %s", path, what);
}

static int observe_entry(const struct fs_entry *entry, void *arg)
{
    static const char *const names[] = {"user.cairn.level", "user.cairn.hash",
                                        "user.cairn.stored_bytes"};
    struct fixture *fixture = arg;
    char value[128];
    for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
        ssize_t n = fs_getxattr(fixture->fs, entry->ino, names[i], value, sizeof value);
        expect(fixture, n > 0 || n == -ENODATA || n == -ENOENT, "%s of %s: %zd", names[i],
               entry->name, n);
    }
    free(ns_path(store_ns(fixture->store), entry->ino));
    return 0;
}

void *observe(void *arg)
{
    struct fixture *fixture = arg;
    for (unsigned round = 0; !atomic_load(&fixture->stop); round++) {
        struct store_status status;
        struct statvfs st;
        uint64_t dir = fixture->dirs[round % DIRS].ino;
        const struct fs_listing all = {
            .dir = dir, .until = UINT64_MAX, .expected = 64, .fn = observe_entry, .arg = fixture};
        store_status(fixture->store, &status);
        (void)store_missing_bytes(fixture->store, status.newest_seq);
        expect(fixture,
               status.nvme.horizon_seq <= history_newest(store_commit(fixture->store)->history),
               "the horizon is ahead");
        expect(fixture, fs_statfs(fixture->fs, &st) == 0, "statfs");
        damage_list(store_commit(fixture->store)->damage, damage, fixture);
        expect(fixture, fs_readdir(fixture->fs, &all) == 0, "listing");
        int r =
            round % 16 == 15 ? history_seal_below(store_commit(fixture->store)->history, dir) : 0;
        expect(fixture, r == 0 || r == -EAGAIN, "sealing a directory: %s", strerror(-r));
        (void)usleep(20000);
    }
    return NULL;
}
