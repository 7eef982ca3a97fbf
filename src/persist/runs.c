/* Runs of the namespace: made from a cut, merged so that they stay few, kept in STORE/runs, put into the remote and fetched from
 * there. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "persist/far_care.h"

#define FETCH_THREADS 8u
#define FETCH_PIECE (8 * MIB)
#define WRITE_BUFFER (256 * KIB)
#define RETRY_MS 1000
#define FETCH_TRIES 4 /* of runs that do not hash to their names: the damage may be of the way here */
#define RUN_LIMITED MIB
#define MERGE_URGED (32 * KIB)                 /* of runs that are merged while somebody waits */
#define RUNS_DEFER_MAX (HEAD_RUNS_MAX * 3 / 4) /* with more than these, no merge is left for later */

void run_object_name(uint64_t id, char buf[32])
{
    object_name("runs", id, buf);
}

static char *run_path(const struct store *store, uint64_t id, const char *suffix)
{
    return xasprintf("%s/runs/%016llx%s", store->path, (unsigned long long)id, suffix);
}

static int make_folder(const struct store *store)
{
    _cleanup_free_ char *path = xasprintf("%s/runs", store->path);
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* --- a file that is written from front to back -------------------------------------------------------------------------- */

struct run_file {
    struct store *store;
    uint64_t id;
    int fd;
    uint8_t *buffer;
    size_t used;
    uint64_t written;
    struct run_writer *writer;
    uint64_t rows;
};

static int flush_file(struct run_file *file)
{
    int r = io_pwrite_full(file->fd, file->buffer, file->used, file->written);
    file->written += file->used;
    file->used = 0;
    return r;
}

static int put_bytes(const void *buf, size_t len, void *arg)
{
    struct run_file *file = arg;
    const uint8_t *from = buf;
    while (len) {
        size_t part = min_u64(len, WRITE_BUFFER - file->used);
        memcpy(file->buffer + file->used, from, part);
        file->used += part;
        from += part;
        len -= part;
        if (file->used == WRITE_BUFFER) {
            int r = flush_file(file);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int file_begin(struct run_file *file, struct store *store, const struct run_info *info)
{
    *file = (struct run_file){.store = store, .id = info->id};
    int r = make_folder(store);
    _cleanup_free_ char *path = run_path(store, info->id, ".new");
    if (r == 0)
        file->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (r == 0 && file->fd < 0)
        r = -errno;
    if (r < 0) {
        file->fd = -1;
        return r;
    }
    file->buffer = xmalloc(WRITE_BUFFER);
    file->writer = run_writer_new(info, put_bytes, file);
    return 0;
}

static int add_row(const struct run_row *row, void *arg)
{
    struct run_file *file = arg;
    file->rows++;
    return run_writer_add(file->writer, row);
}

static void file_done(struct run_file *file)
{
    run_writer_free(file->writer);
    free(file->buffer);
    if (file->fd >= 0)
        (void)close(file->fd);
}

/* A file that is mapped beyond its end ends the daemon (SIGBUS), and a disk may say that it took what it did not. */
static int check_length(int fd, uint64_t length)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    return (uint64_t)st.st_size == length && length > 0 ? 0 : -EIO;
}

/* Whole and durable under its name; *info gets length, rows and hash. */
static int file_finish(struct run_file *file, struct run_info *info)
{
    _cleanup_free_ char *from = run_path(file->store, file->id, ".new");
    _cleanup_free_ char *to = run_path(file->store, file->id, "");
    _cleanup_free_ char *folder = xasprintf("%s/runs", file->store->path);
    int r = run_writer_finish(file->writer, info);
    if (r == 0)
        r = flush_file(file);
    if (r == 0 && fsync(file->fd) < 0)
        r = -errno;
    if (r == 0)
        r = check_length(file->fd, info->length);
    if (r < 0)
        return r;
    void *map = mmap(NULL, info->length, PROT_READ, MAP_SHARED, file->fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    struct iovec iov = {map, info->length};
    hash_parts(&iov, 1, info->hash);
    (void)munmap(map, info->length);
    if (rename(from, to) < 0)
        return -errno;
    room_account_runs(file->store);
    return io_fsync_dir(folder);
}

static void file_abandon(const struct store *store, uint64_t id)
{
    _cleanup_free_ char *path = run_path(store, id, ".new");
    (void)unlink(path);
}

static int add_snapshot_row(const struct run_row *row, void *arg)
{
    struct run_file *file = arg;
    return atomic_load(&file->store->snapshot.stopping) ? -ECANCELED : add_row(row, file);
}

int runs_write_snapshot(struct store *store, struct view_cut *cut, struct run_info *info)
{
    struct run_file file;
    uint64_t missing;
    int r = file_begin(&file, store, info);
    if (r == 0)
        r = view_cut_rows(cut, 0, add_snapshot_row, &file, &missing);
    if (r == 0)
        r = file_finish(&file, info);
    file_done(&file);
    if (r < 0)
        file_abandon(store, info->id);
    return r;
}

/* --- a file that is read ------------------------------------------------------------------------------------------------ */

struct run_map {
    uint8_t *bytes;
    uint64_t length;
    struct run_reader *reader;
};

static int get_bytes(uint64_t offset, void *buf, size_t len, void *arg)
{
    const struct run_map *map = arg;
    if (offset > map->length || len > map->length - offset)
        return -EUCLEAN;
    memcpy(buf, map->bytes + offset, len);
    return 0;
}

static void map_done(struct run_map *map)
{
    run_reader_free(map->reader);
    if (map->bytes)
        (void)munmap(map->bytes, map->length);
    *map = (struct run_map){0};
}

static int map_open(const struct store *store, const struct run_info *info, struct run_map *map)
{
    _cleanup_free_ char *path = run_path(store, info->id, "");
    struct stat st;
    *map = (struct run_map){.length = info->length};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int r = fstat(fd, &st) < 0 ? -errno : (uint64_t)st.st_size != info->length || st.st_size == 0 ? -EUCLEAN : 0;
    if (r == 0) {
        void *p = mmap(NULL, info->length, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            r = -errno;
        else
            map->bytes = p;
    }
    (void)close(fd);
    return r;
}

/* What does not hash to its name in the head is not used. */
static int map_verify(const struct run_map *map, const struct run_info *info)
{
    uint8_t hash[HASH_LEN];
    struct iovec iov = {map->bytes, map->length};
    hash_parts(&iov, 1, hash);
    return memcmp(hash, info->hash, sizeof info->hash) == 0 ? 0 : -EBADMSG;
}

static int map_reader(const struct store *store, const struct run_info *info, struct run_map *map)
{
    int r = map_open(store, info, map);
    if (r == 0)
        r = run_reader_new(map->length, get_bytes, map, &map->reader);
    if (r == 0 && (run_reader_info(map->reader)->id != info->id ||
                   memcmp(run_reader_info(map->reader)->history, store->sb.history, 16) != 0))
        r = -EUCLEAN;
    return r;
}

static int merge_runs(const struct store *store, const struct run_info *runs, size_t count, bool drop_removed,
                      int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    struct run_map maps[HEAD_RUNS_MAX + 1] = {0};
    struct run_reader *readers[HEAD_RUNS_MAX + 1] = {0};
    int r = 0;
    check(count <= ARRAY_LEN(maps));
    for (size_t i = 0; i < count && r == 0; i++) {
        r = map_reader(store, &runs[i], &maps[i]);
        readers[i] = maps[i].reader;
    }
    if (r == 0)
        r = run_merge(readers, count, drop_removed, fn, arg);
    for (size_t i = 0; i < count; i++)
        map_done(&maps[i]);
    return r;
}

int runs_read(struct store *store, const struct head *head, int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    return runs_read_from(store, head, 0, fn, arg);
}

int runs_read_from(struct store *store, const struct head *head, uint32_t first,
                   int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    return merge_runs(store, head->runs + first, head->run_count - first, first == 0, fn, arg);
}

/* --- publishing --------------------------------------------------------------------------------------------------------- */

static uint64_t new_run_id(struct remote *remote)
{
    const struct store *store = remote->store;
    return ((uint64_t)store->sb.writer << 48) | (store->epoch << 24) | (atomic_fetch_add(&remote->next_run, 1) + 1);
}

static int put_run(struct remote *remote, const struct run_info *info)
{
    struct run_map map;
    char object[32];
    run_object_name(info->id, object);
    int r = map_open(remote->store, info, &map);
    /* A small one must not keep a state waiting that is there already. */
    if (r == 0 && info->length > RUN_LIMITED && !upload_limit_wait(remote, info->length))
        r = -ECANCELED;
    while (r == 0) {
        r = remote->tier->ops->put(remote->tier, object, map.bytes, map.length);
        if (r == 0)
            break;
        remote_error(remote, r, "storing %s failed (%s)", object, strerror(-r));
        r = remote_pause(remote, RETRY_MS) ? 0 : -ECANCELED;
    }
    if (r == 0)
        atomic_fetch_add(&remote->uploaded_total, map.length);
    map_done(&map);
    return r;
}

/* From which on the runs become one: those that together are at least half as long as the one before them are merged with it. So there
 * are as many as the logarithm of the whole, and each row is written again as seldom. At most `most` bytes, where the head has room. */
static size_t first_to_merge(const struct run_info *runs, size_t count, uint64_t most)
{
    uint64_t newer = runs[count - 1].length;
    size_t first = count - 1;
    for (size_t i = count - 1; i-- > 0; newer += runs[i].length) {
        if (count > HEAD_RUNS_MAX && i + 1 >= HEAD_RUNS_MAX)
            first = i;
        else if (newer + runs[i].length > most)
            break;
        else if (2 * newer >= runs[i].length)
            first = i;
    }
    return first;
}

/* The newest becomes part of the merged one, whose cut is `cut`. */
static int merge_from(struct remote *remote, struct run_info *runs, size_t *count, size_t first, uint64_t cut)
{
    size_t merged = *count - first;
    if (merged < 2)
        return 0;
    struct run_info info = {.id = new_run_id(remote), .base_cut = runs[first].base_cut, .cut = cut};
    struct run_file file;
    memcpy(info.history, remote->store->sb.history, sizeof info.history);
    int r = file_begin(&file, remote->store, &info);
    if (r == 0)
        r = merge_runs(remote->store, runs + first, merged, first == 0, add_row, &file);
    if (r == 0)
        r = file_finish(&file, &info);
    file_done(&file);
    if (r < 0) {
        file_abandon(remote->store, info.id);
        return r;
    }
    runs[first] = info;
    *count = first + 1;
    return 0;
}

/* While somebody waits, what he waits for is published, and merges that would cost more than that are left for later. */
static uint64_t merge_limit(struct remote *remote, const struct run_info *newest, size_t count)
{
    bool may_wait = remote_is_urged(remote) && count <= RUNS_DEFER_MAX;
    return may_wait ? max_u64(newest->length, MERGE_URGED) : UINT64_MAX;
}

static int write_run(struct remote *remote, struct view_cut *cut, struct run_info *info, uint64_t *ret_missing)
{
    struct run_file file;
    int64_t now; /* when packs were doomed: by another clock that may be long ago */
    int r = remote->tier->ops->now(remote->tier, &now);
    if (r < 0)
        return r;
    memcpy(info->history, remote->store->sb.history, sizeof info->history);
    r = file_begin(&file, remote->store, info);
    if (r == 0)
        r = view_cut_rows(cut, now, add_row, &file, ret_missing);
    if (r == 0 && file.rows == 0)
        r = 1;
    if (r == 0)
        r = file_finish(&file, info);
    file_done(&file);
    if (r != 0)
        file_abandon(remote->store, info->id);
    return r;
}

/* Adds the cut's own run; 1: it has no rows. */
static int add_run(struct remote *remote, struct view_cut *cut, uint64_t base_cut, struct run_info *runs, size_t *count,
                   uint64_t *ret_missing)
{
    struct run_info info = {
        .id = new_run_id(remote), .base_cut = base_cut, .cut = view_cut_state(cut).applied_seq};
    int r = write_run(remote, cut, &info, ret_missing);
    if (r == 0)
        runs[(*count)++] = info;
    return r;
}

int runs_publish(struct remote *remote, struct view_cut *cut, struct head *head, uint64_t *ret_missing)
{
    bool whole = view_cut_is_whole(cut) || head->run_count == 0;
    struct run_info runs[HEAD_RUNS_MAX + 1];
    size_t count = whole ? 0 : head->run_count;
    memcpy(runs, head->runs, count * sizeof *runs);
    int r = add_run(remote, cut, whole ? 0 : head->cut, runs, &count, ret_missing);
    if (r < 0 || count == 0)
        return r;
    uint64_t limit = merge_limit(remote, &runs[count - 1], count);
    size_t first = first_to_merge(runs, count, limit);
    bool is_worth_it = r == 0 || (limit == UINT64_MAX && first < count - 1);
    if (is_worth_it) {
        r = merge_from(remote, runs, &count, first, view_cut_state(cut).applied_seq);
        if (r == 0)
            r = put_run(remote, &runs[count - 1]);
    }
    if (first_to_merge(runs, count, UINT64_MAX) < count - 1)
        far_defer(remote);
    if (r != 0)
        return r;
    memset(head->runs, 0, sizeof head->runs);
    memcpy(head->runs, runs, count * sizeof *runs);
    head->run_count = (uint32_t)count;
    return 0;
}

static bool is_local_head(const struct store *store, const struct head *head)
{
    struct head *known = xmalloc(sizeof *known);
    bool is = local_head_read(store, known) == 0 && memcmp(known->nonce, head->nonce, sizeof known->nonce) == 0;
    free(known);
    return is;
}

/* What a crash left of one that was being written. What has another name is not ours to remove. */
static bool is_unfinished(const char *name)
{
    return strlen(name) == 20 && strspn(name, "0123456789abcdef") == 16 && strcmp(name + 16, ".new") == 0;
}

void runs_tidy(struct store *store, const struct head *head)
{
    _cleanup_free_ char *folder = xasprintf("%s/runs", store->path);
    DIR *dir = is_local_head(store, head) ? opendir(folder) : NULL;
    if (!dir)
        return;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        uint64_t id;
        bool needed = false, is_run = object_digits(entry->d_name, &id);
        for (uint32_t i = 0; i < head->run_count && is_run; i++)
            needed = needed || head->runs[i].id == id;
        if (!needed && (is_run || is_unfinished(entry->d_name)))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    (void)closedir(dir);
    room_account_runs(store);
}

/* --- fetching ------------------------------------------------------------------------------------------------------------- */

/* A run that is being fetched. */
struct new_run {
    uint8_t *map; /* NULL: it is there already */
    int fd;
};

struct piece_job {
    struct remote *remote;
    const struct run_info *info;
    const struct new_run *run;
    uint64_t offset;
    _Atomic int *error;
};

static void fetch_piece(void *arg)
{
    struct piece_job *job = arg;
    char object[32];
    uint64_t len = min_u64(FETCH_PIECE, job->info->length - job->offset);
    run_object_name(job->info->id, object);
    int r = atomic_load(job->error);
    if (r == 0)
        r = job->remote->tier->ops->get_range(job->remote->tier, object, job->offset, job->run->map + job->offset, len);
    if (r < 0) {
        atomic_store(job->error, r);
    } else {
        atomic_fetch_add(&job->remote->fetched_total, len);
        /* The disk begins now, beside what still has to come: whoever makes it durable has less to wait for. */
        (void)sync_file_range(job->run->fd, (off_t)job->offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
    }
    free(job);
}

/* A file of the run's length under a preliminary name, mapped. */
static int open_new(const struct store *store, const struct run_info *info, struct new_run *run)
{
    _cleanup_free_ char *path = run_path(store, info->id, ".new");
    run->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (run->fd < 0)
        return -errno;
    /* Allocated, so that a full disk is an error here and no SIGBUS later. */
    int r = -posix_fallocate(run->fd, 0, (off_t)info->length);
    if (r == 0)
        r = check_length(run->fd, info->length);
    if (r == 0) {
        void *p = mmap(NULL, info->length, PROT_READ | PROT_WRITE, MAP_SHARED, run->fd, 0);
        r = p == MAP_FAILED ? -errno : 0;
        run->map = r == 0 ? p : NULL;
    }
    if (r < 0)
        (void)close(run->fd);
    return r;
}

static int settle_fetched(const struct store *store, const struct run_info *info, uint8_t *bytes)
{
    struct run_map map = {.bytes = bytes, .length = info->length};
    _cleanup_free_ char *from = run_path(store, info->id, ".new");
    _cleanup_free_ char *to = run_path(store, info->id, "");
    int r = map_verify(&map, info);
    if (r == 0 && msync(bytes, info->length, MS_SYNC) < 0)
        r = -errno;
    if (r == 0 && rename(from, to) < 0)
        r = -errno;
    return r;
}

static bool have_run(const struct store *store, const struct run_info *info)
{
    struct run_map map;
    int r = map_open(store, info, &map);
    if (r == 0)
        r = map_verify(&map, info);
    map_done(&map);
    return r == 0;
}

static void fetch_run(struct remote *remote, struct pool *pool, const struct run_info *info, const struct new_run *run,
                      _Atomic int *error)
{
    for (uint64_t at = 0; at < info->length; at += FETCH_PIECE) {
        struct piece_job *job = xmalloc(sizeof *job);
        *job = (struct piece_job){.remote = remote, .info = info, .run = run, .offset = at, .error = error};
        pool_submit(pool, fetch_piece, job);
    }
}

static int fetch_once(struct store *store, struct remote *remote, const struct head *head)
{
    struct new_run runs[HEAD_RUNS_MAX] = {0};
    _Atomic int error = 0;
    struct pool *pool = NULL;
    int r = make_folder(store);
    for (uint32_t i = 0; i < head->run_count && r == 0; i++) {
        if (have_run(store, &head->runs[i]))
            continue;
        if (!remote)
            r = -ENOENT;
        if (r == 0 && !pool)
            r = pool_new("cairn-fetch", FETCH_THREADS, 64, NULL, NULL, &pool);
        if (r == 0)
            r = open_new(store, &head->runs[i], &runs[i]);
        if (r == 0)
            fetch_run(remote, pool, &head->runs[i], &runs[i], &error);
    }
    bool fetched = pool != NULL;
    pool_free(pool);
    if (r == 0)
        r = atomic_load(&error);
    for (uint32_t i = 0; i < head->run_count; i++) {
        if (!runs[i].map)
            continue;
        if (r == 0)
            r = settle_fetched(store, &head->runs[i], runs[i].map);
        (void)munmap(runs[i].map, head->runs[i].length);
        (void)close(runs[i].fd);
        if (r < 0)
            file_abandon(store, head->runs[i].id);
    }
    _cleanup_free_ char *folder = xasprintf("%s/runs", store->path);
    room_account_runs(store);
    return r == 0 && fetched ? io_fsync_dir(folder) : r;
}

int runs_fetch(struct store *store, struct remote *remote, const struct head *head)
{
    int r = 0;
    for (int i = 0; i < FETCH_TRIES; i++) {
        r = fetch_once(store, remote, head);
        bool looks_damaged = r == -EUCLEAN || r == -EBADMSG;
        if (!remote || !looks_damaged || !remote_pause(remote, RETRY_MS / 4))
            break;
    }
    return r;
}
