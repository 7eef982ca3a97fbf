// SPDX-License-Identifier: Apache-2.0
/* Files of one worker: it knows every byte of them. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>

#include "workers.h"

static struct dir *dir_of(struct worker *w, const struct file *file)
{
    return &w->fixture->dirs[file->dir];
}

static void lock_dirs(struct dir *a, struct dir *b)
{
    (void)pthread_mutex_lock(a < b ? &a->lock : &b->lock);
    if (a != b)
        (void)pthread_mutex_lock(a < b ? &b->lock : &a->lock);
}

static void unlock_dirs(struct dir *a, struct dir *b)
{
    (void)pthread_mutex_unlock(&a->lock);
    if (a != b)
        (void)pthread_mutex_unlock(&b->lock);
}

static void new_name(struct worker *w, struct file *file)
{
    file->dir = below(&w->rng, 3) ? w->index : DIR_SHARED;
    (void)snprintf(file->name, sizeof file->name, "p%u-%u-%u", w->index,
                   (unsigned)(file - w->files), w->names++);
}

/* An open file without content, in place of the one that is gone. */
static void create(struct worker *w, struct file *file)
{
    struct stat st;
    struct fs_opened opened;
    int r;
    new_name(w, file);
    struct dir *dir = dir_of(w, file);
    const struct fs_new_inode new = {dir->ino, file->name, 0644, 0, &w->caller};
    (void)pthread_mutex_lock(&dir->lock);
    do
        r = fs_create(w->fixture->fs, &new, O_RDWR, &st, &opened);
    while (must_repeat(w->fixture, r));
    (void)pthread_mutex_unlock(&dir->lock);
    EXPECT_OK(w, r, "creating");
    file->ino = st.st_ino;
    file->handle = opened.handle;
    file->is_open = true;
    file->is_linked = false;
    file->size = 0;
    memset(file->xattrs, 0, sizeof file->xattrs);
}

static void open_file(struct worker *w, struct file *file, bool empties)
{
    struct fs_opened opened;
    int r;
    if (file->is_open)
        return;
    do
        r = fs_open(w->fixture->fs, file->ino, O_RDWR, &opened);
    while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "opening");
    struct stat st = {.st_size = 0};
    do
        r = empties ? fs_setattr(w->fixture->fs, file->ino, FS_SET_SIZE, &st, &w->caller, &st) : 0;
    while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "emptying");
    if (empties)
        file->size = 0;
    file->handle = opened.handle;
    file->is_open = true;
}

void private_close(struct worker *w, struct file *file)
{
    int r;
    if (!file->is_open)
        return;
    do
        r = fs_flush(w->fixture->fs, file->ino, file->handle);
    while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "closing");
    (void)fs_release(w->fixture->fs, file->handle, false);
    file->is_open = false;
}

/* The model: bytes from the old end on are zeros. */
static void model_extend(struct file *file, uint64_t size)
{
    if (size > file->size) {
        memset(file->bytes + file->size, 0, size - file->size);
        file->size = size;
    }
}

void private_expect(struct worker *w, const struct file *file, uint64_t offset, size_t length)
{
    ssize_t n = worker_read(w, file->ino, offset, length);
    uint64_t expected = offset >= file->size ? 0 : min_u64(length, file->size - offset);
    expect(w->fixture, n == (ssize_t)expected, "%s: reading %zu at %llu of %llu gives %zd",
           file->name, length, (unsigned long long)offset, (unsigned long long)file->size, n);
    for (size_t i = 0; i < expected; i++)
        expect(w->fixture, w->buf[i] == file->bytes[offset + i],
               "%s (%s): byte %llu of %llu is %02x, not %02x", file->name, w->doing,
               (unsigned long long)(offset + i), (unsigned long long)file->size, w->buf[i],
               file->bytes[offset + i]);
}

void private_write(struct worker *w, struct file *file)
{
    static const uint32_t sizes[] = {8192, 8192, 256 * 1024, SLAB_PAYLOAD};
    uint32_t length = 1 + (uint32_t)below(&w->rng, sizes[below(&w->rng, ARRAY_LEN(sizes))]);
    uint64_t offset = below(&w->rng, 3) ? below(&w->rng, FILE_MAX - length)
                                        : min_u64(file->size, FILE_MAX - length);
    open_file(w, file, false);
    /* Some content is there several times. */
    fill_bytes(w->buf, length, below(&w->rng, 4) ? chance(&w->rng) : below(&w->rng, 8));
    if (worker_write(w, file->ino, offset, length) < 0)
        return;
    model_extend(file, offset);
    memcpy(file->bytes + offset, w->buf, length);
    file->size = max_u64(file->size, offset + length);
}

void private_read(struct worker *w, struct file *file)
{
    uint64_t offset = below(&w->rng, FILE_MAX);
    private_expect(w, file, below(&w->rng, 4) ? offset : 0, 1 + below(&w->rng, FILE_MAX - offset));
}

void private_truncate(struct worker *w, struct file *file)
{
    struct stat st = {.st_size = (off_t)below(&w->rng, FILE_MAX)};
    uint64_t size = (uint64_t)st.st_size;
    int r;
    do {
        st.st_size = (off_t)size;
        r = fs_setattr(w->fixture->fs, file->ino, FS_SET_SIZE, &st, &w->caller, &st);
    } while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "truncating");
    expect(w->fixture, (uint64_t)st.st_size == size, "%s: size %lld after truncating", file->name,
           (long long)st.st_size);
    model_extend(file, size);
    file->size = size;
}

void private_allocate(struct worker *w, struct file *file)
{
    static const int modes[] = {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE, 0};
    int mode = modes[below(&w->rng, ARRAY_LEN(modes))], r;
    uint64_t offset = below(&w->rng, FILE_MAX - 1),
             length = 1 + below(&w->rng, FILE_MAX - offset - 1);
    do
        r = fs_fallocate(w->fixture->fs, file->ino, mode, offset, length, &w->caller);
    while (must_repeat(w->fixture, r));
    if (r == -ENOSPC && mode == 0)
        return;
    EXPECT_OK(w, r, "fallocate");
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && offset < file->size)
        memset(file->bytes + offset, 0, min_u64(length, file->size - offset));
    if (!(mode & FALLOC_FL_KEEP_SIZE))
        model_extend(file, offset + length);
}

void private_sync(struct worker *w, struct file *file)
{
    struct fs_barrier barrier;
    int r;
    do
        r = fs_fsync(w->fixture->fs, file->ino, &barrier);
    while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "fsync");
    if (below(&w->rng, 4) == 0)
        wait_durable(w->fixture, barrier.seq);
}

void private_reopen(struct worker *w, struct file *file)
{
    private_close(w, file);
    if (below(&w->rng, 2))
        open_file(w, file, below(&w->rng, 4) == 0);
}

/* Its last name is gone; it lives on until it is closed and forgotten. */
static void bury(struct worker *w, struct file *file)
{
    bool is_forgotten = file->is_open && below(&w->rng, 2);
    if (is_forgotten)
        worker_forget(w, file->ino);
    private_expect(w, file, 0, FILE_MAX);
    if (file->is_open) {
        private_write(w, file);
        private_expect(w, file, 0, FILE_MAX);
    }
    private_close(w, file);
    if (!is_forgotten)
        worker_forget(w, file->ino);
    create(w, file);
}

static void remove_name(struct worker *w, struct dir *dir, const char *name)
{
    int r;
    (void)pthread_mutex_lock(&dir->lock);
    do
        r = fs_unlink(w->fixture->fs, dir->ino, name);
    while (must_repeat(w->fixture, r));
    (void)pthread_mutex_unlock(&dir->lock);
    EXPECT_OK(w, r, "unlinking");
}

static void link_name(const struct worker *w, const struct file *file, char name[40])
{
    (void)snprintf(name, 40, "l%u-%u", w->index, (unsigned)(file - w->files));
}

/* A second name in the directory of all, made or removed. */
void private_link(struct worker *w, struct file *file)
{
    struct dir *dir = &w->fixture->dirs[DIR_SHARED];
    char name[40];
    struct stat st;
    int r;
    link_name(w, file, name);
    if (file->is_linked) {
        remove_name(w, dir, name);
    } else {
        (void)pthread_mutex_lock(&dir->lock);
        do
            r = fs_link(w->fixture->fs, file->ino, dir->ino, name, &st);
        while (must_repeat(w->fixture, r));
        (void)pthread_mutex_unlock(&dir->lock);
        EXPECT_OK(w, r, "linking");
        expect(w->fixture, st.st_nlink == 2 && st.st_ino == file->ino, "%s: %u links", name,
               (unsigned)st.st_nlink);
    }
    file->is_linked = !file->is_linked;
}

void private_unlink(struct worker *w, struct file *file)
{
    if (file->is_linked)
        private_link(w, file);
    remove_name(w, dir_of(w, file), file->name);
    bury(w, file);
}

/* To another name, or over another file. */
void private_rename(struct worker *w, struct file *file)
{
    struct file *over = &w->files[below(&w->rng, FILES)];
    struct file to = *over;
    if (over == file || over->is_linked || below(&w->rng, 2)) {
        over = NULL;
        to = *file;
        to.dir = below(&w->rng, 2) ? w->index : DIR_SHARED;
        (void)snprintf(to.name, sizeof to.name, "r%u-%u-%u", w->index, (unsigned)(file - w->files),
                       w->names++);
    }
    struct dir *a = dir_of(w, file), *b = dir_of(w, &to);
    const struct fs_rename names = {a->ino, file->name, b->ino, to.name, 0};
    struct fs_renamed renamed;
    int r;
    lock_dirs(a, b);
    do
        r = fs_rename(w->fixture->fs, &names, &w->caller, &renamed);
    while (must_repeat(w->fixture, r));
    unlock_dirs(a, b);
    EXPECT_OK(w, r, "renaming");
    file->dir = to.dir;
    memcpy(file->name, to.name, sizeof file->name);
    if (over)
        bury(w, over);
}

void private_copy(struct worker *w, struct file *to)
{
    struct file *from = &w->files[below(&w->rng, FILES)];
    uint64_t offset = below(&w->rng, FILE_MAX), at = below(&w->rng, FILE_MAX);
    size_t length = below(&w->rng, FILE_MAX - max_u64(offset, at));
    if (from == to)
        return;
    const struct fs_copy how = {from->ino, offset, to->ino, at, length};
    ssize_t n;
    do
        n = fs_copy(w->fixture->fs, &how, &w->caller);
    while (must_repeat(w->fixture, n));
    uint64_t most = offset >= from->size ? 0 : min_u64(length, from->size - offset);
    expect(w->fixture, n == -ENOSPC || (n >= 0 && (uint64_t)n <= most && (n > 0 || most == 0)),
           "%s: copying %llu gives %zd", to->name, (unsigned long long)most, n);
    if (n <= 0)
        return;
    model_extend(to, at);
    memcpy(to->bytes + at, from->bytes + offset, (size_t)n);
    to->size = max_u64(to->size, at + (uint64_t)n);
}

/* --- attributes and listings ------------------------------------------------------------------ */

static const char *const xattr_names[XATTRS] = {"user.a", "user.longer-name", "user.c"};

void private_expect_xattrs(struct worker *w, const struct file *file)
{
    char list[256];
    size_t expected = 0;
    for (unsigned i = 0; i < XATTRS; i++) {
        uint64_t value = 0;
        ssize_t n = fs_getxattr(w->fixture->fs, file->ino, xattr_names[i], &value, sizeof value);
        expect(w->fixture,
               n == (file->xattrs[i] ? (ssize_t)sizeof value : -ENODATA) &&
                   value == file->xattrs[i],
               "%s: %s is %zd bytes, %llx, not %llx", file->name, xattr_names[i], n,
               (unsigned long long)value, (unsigned long long)file->xattrs[i]);
        expected += file->xattrs[i] ? strlen(xattr_names[i]) + 1 : 0;
    }
    ssize_t n = fs_listxattr(w->fixture->fs, file->ino, &w->caller, list, sizeof list);
    expect(w->fixture, n == (ssize_t)expected, "%s: the list of xattrs has %zd bytes, not %zu",
           file->name, n, expected);
}

void private_xattr(struct worker *w, struct file *file)
{
    unsigned i = (unsigned)below(&w->rng, XATTRS);
    uint64_t value = below(&w->rng, 3) ? chance(&w->rng) | 1 : 0;
    int r;
    do
        r = value ? fs_setxattr(w->fixture->fs, file->ino, xattr_names[i], &value, sizeof value, 0)
                  : fs_removexattr(w->fixture->fs, file->ino, xattr_names[i]);
    while (must_repeat(w->fixture, r));
    expect(w->fixture, r == (value || file->xattrs[i] ? 0 : -ENODATA) || r == -ENOSPC,
           "%s: xattr: %s", file->name, strerror(-r));
    if (r != -ENOSPC)
        file->xattrs[i] = value;
    private_expect_xattrs(w, file);
}

void private_stat(struct worker *w, struct file *file)
{
    struct stat st;
    int r = fs_getattr(w->fixture->fs, file->ino, &st);
    EXPECT_OK(w, r, "stat");
    expect(w->fixture, (uint64_t)st.st_size == file->size && st.st_nlink == 1u + file->is_linked,
           "%s: size %lld, links %u, not %llu, %u", file->name, (long long)st.st_size,
           (unsigned)st.st_nlink, (unsigned long long)file->size, 1u + file->is_linked);
}

struct seen {
    struct worker *w;
    unsigned dir;
    unsigned files[FILES], links[FILES];
    uint64_t after; /* offset of the last entry */
    unsigned left;  /* entries until this listing stops */
};

static int see(const struct fs_entry *entry, void *arg)
{
    struct seen *seen = arg;
    for (unsigned i = 0; i < FILES; i++) {
        const struct file *file = &seen->w->files[i];
        char link[40];
        link_name(seen->w, file, link);
        if (file->dir == seen->dir && strcmp(entry->name, file->name) == 0 &&
            entry->ino == file->ino)
            seen->files[i]++;
        if (strcmp(entry->name, link) == 0 && entry->ino == file->ino)
            seen->links[i]++;
    }
    seen->after = entry->offset;
    return --seen->left == 0;
}

/* Whatever others do in the directory meanwhile: what stays untouched is listed once, in however
 * many pieces. */
void private_list(struct worker *w, struct file *file)
{
    struct seen seen = {.w = w, .dir = file->dir};
    uint64_t before;
    do {
        before = seen.after;
        seen.left = 1 + (unsigned)below(&w->rng, 8);
        const struct fs_listing some = {.dir = dir_of(w, file)->ino,
                                        .after = seen.after,
                                        .until = UINT64_MAX,
                                        .expected = seen.left,
                                        .fn = see,
                                        .arg = &seen};
        int r = fs_readdir(w->fixture->fs, &some);
        EXPECT_OK(w, r, "listing");
    } while (seen.after != before);
    for (unsigned i = 0; i < FILES; i++) {
        bool here = w->files[i].dir == file->dir,
             linked = file->dir == DIR_SHARED && w->files[i].is_linked;
        expect(w->fixture, seen.files[i] == here && seen.links[i] == linked,
               "%s is listed %u times, its link %u times", w->files[i].name, seen.files[i],
               seen.links[i]);
    }
}

/* --- between sessions ------------------------------------------------------------------------- */

void private_make(struct worker *w)
{
    for (unsigned i = 0; i < FILES; i++) {
        w->files[i].bytes = xmalloc(FILE_MAX);
        create(w, &w->files[i]);
    }
}

/* After a restart every file is as its worker knows it. */
void private_verify(struct worker *w)
{
    for (unsigned i = 0; i < FILES; i++) {
        struct file *file = &w->files[i];
        struct stat st;
        w->doing = "after a restart";
        int r = fs_lookup(w->fixture->fs, dir_of(w, file)->ino, file->name, &st);
        expect(w->fixture, r == 0 && st.st_ino == file->ino, "%s is missing: %s", file->name,
               strerror(-r));
        private_stat(w, file);
        private_expect(w, file, 0, FILE_MAX);
        private_expect_xattrs(w, file);
        private_list(w, file);
    }
}
