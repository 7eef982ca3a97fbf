// SPDX-License-Identifier: Apache-2.0
#include "tier/room.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/io.h"
#include "base/lock.h"

/* The room that is held is a multiple of this: the last spare file may be shorter than a whole one,
 * and so are those for which the medium has no more. */
#define SPARE_STEP (1 * MIB)
/* Free inodes that spare files leave to the others in the store's directory: RocksDB's, the log. */
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
        uint64_t number; /* of the last file made: names are never used twice */
        bool reserving;  /* one room_reserve() at a time: two would add up */
    } locked;
};

static void file_path(uint64_t number, char path[32])
{
    (void)snprintf(path, 32, ROOM_DIRECTORY "/%016llx", (unsigned long long)number);
}

/* Others' files there are not ours to remove. */
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
    /* A failed open with O_DIRECT may have made the file. */
    file->fd = openat(room->root_fd, file->path, direct ? flags & ~O_EXCL : flags, 0600);
    return file->fd >= 0 ? 0 : -errno;
}

/* The error says that the medium, or a quota, has no more bytes or no more inodes. */
static bool is_out_of_space(int error)
{
    return error == -ENOSPC || error == -EDQUOT;
}

/* 0 or -errno. Where the filesystem cannot allocate ahead, writes will have to find the room. */
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

/* Takes the smallest spare that has `len` bytes, else the largest, which may be empty. NULL: there
 * is none. */
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

/* Returns how many there are; *ret_empty: how many of these hold no bytes. */
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

/* Gives its room back to the medium. */
static int remove_spare(struct room *room, struct spare *s)
{
    char path[32];
    file_path(s->number, path);
    if (unlinkat(room->root_fd, path, 0) < 0 && errno != ENOENT)
        return -errno;
    s->len = 0;
    return 0;
}

/* Gives the last `len` bytes of a spare file back. */
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

/* Gives the bytes of the smallest spare that has some back; its file stays one. -ENOENT: there is
 * none. */
static int empty_spare(struct room *room)
{
    struct spare *s = take_spare(room, 1);
    int r = s && s->len > 0 ? shorten_spare(room, s, s->len) : -ENOENT;
    if (s)
        give_spare(room, s->number, s->len);
    free(s);
    return r;
}

/* Room held in several spare files is there for one large object too. */
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

/* Small objects leave the spare files alone as long as the medium has room beside them. */
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
    /* A filesystem without RENAME_NOREPLACE: link() does not replace either. */
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

/* Where no file can be made any more, one that is short gets the bytes. */
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

/* Bytes that are held, as far as there are files to put them into: each object takes a whole one,
 * and `files` are for those that are shorter than a spare. */
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

/* Gives up what is not needed for `bytes`: whole files, the smallest first, and the end of one; and
 * empty ones behind `files`. */
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
