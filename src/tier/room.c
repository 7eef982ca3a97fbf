// SPDX-License-Identifier: Apache-2.0
#include "tier/room.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/io.h"
#include "base/lock.h"

/* The reserved room is a multiple of this. The last spare file may be shorter than others, and so
 * are spares that fill the rest of the medium. */
#define SPARE_STEP (1 * MIB)
/* Free inodes that spare files leave to others in the store's directory: RocksDB, the log. */
#define FILES_LEFT 8u

struct spare {
    uint64_t number, len;
    struct spare *next;
};

struct room {
    int root_fd;
    pthread_cond_t idle;
    struct {
        struct cairn_mutex lock;
        struct spare *spares;
        uint64_t held;   /* bytes of all spares */
        uint64_t number; /* of the last file created: names are never reused */
        bool reserving;  /* one room_reserve() at a time: the effects of two would add up */
    } locked;
};

static void file_path(uint64_t number, char path[32])
{
    (void)snprintf(path, 32, ROOM_DIRECTORY "/%016llx", (unsigned long long)number);
}

/* Files of others in there must not be removed. */
static bool is_ours(const char *name)
{
    return strlen(name) == 16 && strspn(name, "0123456789abcdef") == 16;
}

static int remove_leftovers(int root_fd)
{
    DIR *dir;
    int r = io_open_dir(root_fd, ROOM_DIRECTORY, &dir);
    if (r < 0)
        return r;
    struct dirent *d;
    while (r == 0 && (errno = 0, d = readdir(dir)))
        if (is_ours(d->d_name) && unlinkat(dirfd(dir), d->d_name, 0) < 0)
            r = -errno;
    if (r == 0 && errno != 0)
        r = -errno;
    (void)closedir(dir);
    return r;
}

int room_open(int root_fd, struct room **ret_room)
{
    TRY(remove_leftovers(root_fd));
    struct room *room = xcalloc(1, sizeof *room);
    room->root_fd = root_fd;
    mutex_init(&room->locked.lock, LOCK_LEAF);
    cond_init(&room->idle);
    *ret_room = room;
    return 0;
}

void room_close(struct room *room)
{
    if (!room)
        return;
    while (room->locked.spares) {
        struct spare *s = room->locked.spares;
        room->locked.spares = s->next;
        free(s);
    }
    mutex_done(&room->locked.lock);
    (void)pthread_cond_destroy(&room->idle);
    free(room);
}

static int room_open_file(struct room *room, int flags, bool direct, struct room_file *file)
{
    flags |= O_WRONLY | O_CLOEXEC | O_NOFOLLOW;
    file->fd = direct ? openat(room->root_fd, file->path, flags | O_DIRECT, 0600) : -1;
    file->direct = file->fd >= 0;
    if (file->fd >= 0 || (direct && errno != EINVAL))
        return file->fd >= 0 ? 0 : -errno;
    /* a failed open with O_DIRECT may have created the file */
    file->fd = openat(room->root_fd, file->path, direct ? flags & ~O_EXCL : flags, 0600);
    return file->fd >= 0 ? 0 : -errno;
}

/* Does the error mean that the medium, or a quota, is out of bytes or inodes? */
static bool is_out_of_space(int error)
{
    return error == -ENOSPC || error == -EDQUOT;
}

/* Returns 0 or -errno. If the filesystem cannot allocate ahead, the room is not guaranteed. */
static int allocate_file(int fd, uint64_t len)
{
    int r;
    do
        r = len ? fallocate(fd, 0, 0, (off_t)len) : 0;
    while (r < 0 && errno == EINTR);
    return r < 0 && errno != EOPNOTSUPP ? -errno : 0;
}

static uint64_t next_number(struct room *room)
{
    LOCK_SCOPE(&room->locked.lock);
    return ++room->locked.number;
}

static int create_file(struct room *room, uint64_t len, bool direct, struct room_file *ret_file)
{
    struct room_file file = {.fd = -1, .len = len};
    file_path(next_number(room), file.path);
    int r = room_open_file(room, O_CREAT | O_EXCL, direct, &file);
    if (r == 0)
        r = allocate_file(file.fd, len);
    if (r < 0) {
        room_file_done(room, &file);
        return r;
    }
    *ret_file = file;
    return 0;
}

/* Removes from the list the smallest spare with `len` bytes, else the largest, which may be empty.
 * NULL: no spare. */
static struct spare *take_spare(struct room *room, uint64_t len)
{
    LOCK_SCOPE(&room->locked.lock);
    struct spare **best = NULL;
    for (struct spare **at = &room->locked.spares; *at; at = &(*at)->next) {
        bool fits = (*at)->len >= len;
        bool best_fits = best && (*best)->len >= len;
        if (!best || (fits && !best_fits) ||
            (fits == best_fits && ((*at)->len < (*best)->len) == fits))
            best = at;
    }
    if (!best)
        return NULL;
    struct spare *s = *best;
    *best = s->next;
    room->locked.held -= s->len;
    return s;
}

/* Returns the number of spares; *ret_empty: how many of them are empty. */
static unsigned count_spares(struct room *room, unsigned *ret_empty)
{
    LOCK_SCOPE(&room->locked.lock);
    unsigned count = 0;
    *ret_empty = 0;
    for (const struct spare *s = room->locked.spares; s; s = s->next) {
        count++;
        *ret_empty += s->len == 0;
    }
    return count;
}

static void give_spare(struct room *room, uint64_t number, uint64_t len)
{
    struct spare *s = xcalloc(1, sizeof *s);
    s->number = number;
    s->len = len;
    LOCK_SCOPE(&room->locked.lock);
    s->next = room->locked.spares;
    room->locked.spares = s;
    room->locked.held += len;
}

/* Deletes a spare file. */
static int remove_spare(struct room *room, struct spare *s)
{
    char path[32];
    file_path(s->number, path);
    if (unlinkat(room->root_fd, path, 0) < 0 && errno != ENOENT)
        return -errno;
    s->len = 0;
    return 0;
}

/* Truncates a spare file by `len` bytes. */
static int shorten_spare(struct room *room, struct spare *s, uint64_t len)
{
    struct room_file file = {.len = s->len - len};
    file_path(s->number, file.path);
    TRY(room_open_file(room, 0, false, &file));
    int r = 0;
    if (ftruncate(file.fd, (off_t)file.len) < 0)
        r = -errno;
    (void)close(file.fd);
    if (r == 0)
        s->len = file.len;
    return r;
}

/* Truncates the smallest spare that is not empty to zero. -ENOENT: no such spare. */
static int empty_spare(struct room *room)
{
    struct spare *s = take_spare(room, 1);
    int r = s && s->len > 0 ? shorten_spare(room, s, s->len) : -ENOENT;
    if (s)
        give_spare(room, s->number, s->len);
    free(s);
    return r;
}

/* Empties spares until one large object can be allocated: the room held in several of them may
 * serve it, too. */
static int allocate_from_spares(struct room *room, int fd, uint64_t len)
{
    int r = allocate_file(fd, len);
    while (is_out_of_space(r) && empty_spare(room) == 0)
        r = allocate_file(fd, len);
    return r;
}

static int open_spare(struct room *room, struct spare *s, uint64_t len, bool direct,
                      struct room_file *ret_file)
{
    struct room_file file = {.fd = -1, .len = max_u64(s->len, len)};
    file_path(s->number, file.path);
    int r = room_open_file(room, 0, direct, &file);
    if (r == 0 && len > s->len)
        r = allocate_from_spares(room, file.fd, len);
    if (r < 0) {
        room_file_done(room, &file);
        return r;
    }
    *ret_file = file;
    return 0;
}

/* Small objects do not use spare files while the medium has other room. */
int room_take(struct room *room, uint64_t len, bool direct, struct room_file *ret_file)
{
    bool small = len <= ROOM_SPARE_LEN / 16;
    int r = small ? create_file(room, len, direct, ret_file) : -ENOSPC;
    if (!is_out_of_space(r))
        return r;
    struct spare *s = take_spare(room, len);
    if (!s)
        return small ? r : create_file(room, len, direct, ret_file);
    r = open_spare(room, s, len, direct, ret_file);
    free(s);
    return r;
}

int room_file_move(struct room *room, struct room_file *file, const char *object)
{
    if (renameat2(room->root_fd, file->path, room->root_fd, object, RENAME_NOREPLACE) == 0) {
        file->path[0] = '\0';
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* The filesystem has no RENAME_NOREPLACE; link() does not replace either. */
    if (linkat(room->root_fd, file->path, room->root_fd, object, 0) < 0)
        return -errno;
    (void)unlinkat(room->root_fd, file->path, 0);
    file->path[0] = '\0';
    return 0;
}

void room_file_done(struct room *room, struct room_file *file)
{
    if (file->path[0] != '\0')
        (void)unlinkat(room->root_fd, file->path, 0);
    if (file->fd >= 0)
        (void)close(take_fd(&file->fd));
    file->path[0] = '\0';
}

static void begin_reserve(struct room *room)
{
    LOCK_SCOPE(&room->locked.lock);
    while (room->locked.reserving)
        (void)mutex_wait(&room->locked.lock, &room->idle, -1);
    room->locked.reserving = true;
}

static void end_reserve(struct room *room)
{
    LOCK_SCOPE(&room->locked.lock);
    room->locked.reserving = false;
    (void)pthread_cond_broadcast(&room->idle);
}

uint64_t room_held(struct room *room)
{
    LOCK_SCOPE(&room->locked.lock);
    return room->locked.held;
}

static bool has_files_left(struct room *room)
{
    struct statvfs s;
    return fstatvfs(room->root_fd, &s) < 0 || s.f_files == 0 || s.f_favail > FILES_LEFT;
}

static int add_spare(struct room *room, uint64_t len)
{
    struct room_file file;
    TRY(has_files_left(room) ? create_file(room, len, false, &file) : -ENOSPC);
    uint64_t number = strtoull(file.path + sizeof ROOM_DIRECTORY, NULL, 16);
    (void)close(file.fd);
    give_spare(room, number, len);
    return 0;
}

/* If no more files can be created, a short spare gets the bytes. */
static int extend_spare(struct room *room, uint64_t len)
{
    struct room_file file = {.fd = -1};
    struct spare *s = take_spare(room, 0);
    if (!s)
        return -ENOSPC;
    uint64_t to = min_u64(s->len + len, ROOM_SPARE_LEN);
    file_path(s->number, file.path);
    int r = to > s->len ? room_open_file(room, 0, false, &file) : -ENOSPC;
    if (r == 0)
        r = allocate_file(file.fd, to);
    if (r == 0)
        s->len = to;
    if (file.fd >= 0)
        (void)close(file.fd);
    give_spare(room, s->number, s->len);
    free(s);
    return r;
}

/* Reserved bytes, limited by the number of files: each object uses up a whole file, and `files` of
 * them are for objects shorter than a spare. */
static uint64_t usable_bytes(struct room *room, unsigned files)
{
    unsigned empty, count = count_spares(room, &empty);
    return min_u64(room_held(room), count > files ? (count - files) * ROOM_SPARE_LEN : 0);
}

static int grow_files(struct room *room, unsigned files)
{
    unsigned empty;
    int r = 0;
    while (r == 0 && (count_spares(room, &empty), empty < files))
        r = add_spare(room, 0);
    return r;
}

static int grow_spares(struct room *room, uint64_t bytes, unsigned files)
{
    uint64_t most = ROOM_SPARE_LEN, held;
    bool extends = grow_files(room, files) < 0;
    while ((held = room_held(room)) < bytes) {
        uint64_t len = min_u64(most, align_up(bytes - held, SPARE_STEP));
        int r = extends ? extend_spare(room, len) : add_spare(room, len);
        if ((is_out_of_space(r) || r == -EFBIG) && len > SPARE_STEP) {
            most = align_up(len / 2, SPARE_STEP);
        } else if (r < 0 && !extends) {
            extends = true;
            most = ROOM_SPARE_LEN;
        } else if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* Frees the excess over `bytes`: whole files, smallest first, and the end of one; then empty files
 * beyond `files`. */
static int shrink_spares(struct room *room, uint64_t bytes, unsigned files)
{
    for (;;) {
        uint64_t held = room_held(room),
                 excess = held > bytes ? align_down(held - bytes, SPARE_STEP) : 0;
        unsigned empty;
        (void)count_spares(room, &empty);
        bool is_file = excess == 0 && empty > files;
        struct spare *s = excess || is_file ? take_spare(room, is_file ? 0 : 1) : NULL;
        if (!s)
            return 0;
        bool is_kept = s->len > held - bytes;
        int r = is_kept ? shorten_spare(room, s, excess) : remove_spare(room, s);
        if (r < 0 || is_kept)
            give_spare(room, s->number, s->len);
        free(s);
        if (r < 0)
            return r;
    }
}

int room_reserve(struct room *room, uint64_t bytes, unsigned files, uint64_t *ret_held)
{
    begin_reserve(room);
    int r = grow_spares(room, bytes, files);
    if (r == 0)
        r = shrink_spares(room, bytes, files);
    *ret_held = usable_bytes(room, files);
    end_reserve(room);
    return r;
}
