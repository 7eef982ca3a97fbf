// SPDX-License-Identifier: Apache-2.0
#include "commit/run_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"

#define WRITE_BUFFER (256 * KIB)
#define VERIFY_BUFFER (256 * KIB)

/* The name includes the node, as two nodes may use the same run id. */
char *run_path(const struct local *local, const struct run_info *info, const char *suffix)
{
    unsigned long long id = info->id;
    return info->node ? xasprintf("%s/runs/%08x-%016llx%s", local->path, info->node, id, suffix)
                      : xasprintf("%s/runs/%016llx%s", local->path, id, suffix);
}

int run_directory_make(const struct local *local)
{
    _cleanup_free_ char *path = xasprintf("%s/runs", local->path);
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* --- a file being read ------------------------------------------------------------------------ */

int run_input_bytes(uint64_t offset, void *buf, size_t len, void *arg)
{
    const struct run_input *input = arg;
    if (offset > input->length || len > input->length - offset)
        return -EUCLEAN;
    int r = io_pread_full(input->fd, buf, len, offset);
    if (r < 0)
        log_warn("runs/%016llx cannot be read at byte %llu: %s", (unsigned long long)input->id,
                 (unsigned long long)offset, strerror(-r));
    return r;
}

void run_input_done(struct run_input *input)
{
    run_reader_free(input->reader);
    if (input->fd >= 0)
        (void)close(input->fd);
    *input = (struct run_input){.fd = -1};
}

int run_input_open(const struct local *local, const struct run_info *info, struct run_input *ret)
{
    _cleanup_free_ char *path = run_path(local, info, "");
    struct stat st;
    *ret = (struct run_input){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW),
                              .id = info->id,
                              .length = info->length};
    if (ret->fd < 0 || fstat(ret->fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size != info->length || st.st_size == 0)
        return -EUCLEAN;
    (void)posix_fadvise(ret->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

/* A run whose hash differs from that in the head is not used. */
int run_input_verify(struct run_input *input, const uint8_t hash[HASH_LEN])
{
    uint8_t is[HASH_LEN];
    _cleanup_free_ uint8_t *buffer = xmalloc(VERIFY_BUFFER);
    struct hash_stream *stream = hash_stream_new();
    int r = 0;
    for (uint64_t at = 0; at < input->length && r == 0; at += VERIFY_BUFFER) {
        size_t part = min_u64(VERIFY_BUFFER, input->length - at);
        r = run_input_bytes(at, buffer, part, input);
        if (r == 0)
            hash_stream_add(stream, buffer, part);
    }
    hash_stream_result(stream, is);
    hash_stream_free(stream);
    return r < 0 ? r : memcmp(is, hash, sizeof is) == 0 ? 0 : -EBADMSG;
}

int run_look(const struct local *local, const struct run_info *info)
{
    struct run_input input;
    int r = run_input_open(local, info, &input);
    if (r == 0)
        r = run_input_verify(&input, info->hash);
    run_input_done(&input);
    return r == -EUCLEAN || r == -EBADMSG ? -ENOENT : r;
}

int run_input_begin(const struct local *local, const struct run_info *info, struct run_input *ret)
{
    TRY(run_input_open(local, info, ret));
    TRY(run_reader_new(ret->length, run_input_bytes, ret, &ret->reader));
    const struct run_info *is = run_reader_info(ret->reader);
    return is->id == info->id && memcmp(is->history, local->sb.history, 16) == 0 ? 0 : -EUCLEAN;
}

/* --- a file written sequentially -------------------------------------------------------------- */

static int flush_file(struct run_file *file)
{
    int r = io_pwrite_full(file->fd, file->buffer, file->used, file->written);
    hash_stream_add(file->hash, file->buffer, file->used);
    file->written += file->used;
    file->used = 0;
    return r;
}

static int put_run_bytes(const void *buf, size_t len, void *arg)
{
    struct run_file *file = arg;
    const uint8_t *from = buf;
    while (len) {
        size_t part = min_u64(len, WRITE_BUFFER - file->used);
        memcpy(file->buffer + file->used, from, part);
        file->used += part;
        from += part;
        len -= part;
        if (file->used == WRITE_BUFFER)
            TRY(flush_file(file));
    }
    return 0;
}

int run_file_begin(struct run_file *file, const struct local *local, struct room *room,
                   const struct run_info *info)
{
    *file = (struct run_file){.local = local, .room = room, .info = *info, .fd = -1};
    TRY(run_directory_make(local));
    _cleanup_free_ char *path = run_path(local, info, ".new");
    file->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file->fd < 0)
        return -errno;
    file->buffer = xmalloc(WRITE_BUFFER);
    file->hash = hash_stream_new();
    file->writer = run_writer_new(info, put_run_bytes, file);
    return 0;
}

int run_file_add(const struct run_row *row, void *arg)
{
    struct run_file *file = arg;
    file->rows++;
    return run_writer_add(file->writer, row);
}

void run_file_done(struct run_file *file)
{
    run_writer_free(file->writer);
    hash_stream_free(file->hash);
    free(file->buffer);
    if (file->fd >= 0)
        (void)close(file->fd);
}

/* A disk may report a write that it did not make. */
static int read_back(const struct run_file *file, const struct run_info *info)
{
    struct run_input input = {.fd = file->fd, .id = info->id, .length = info->length};
    int r = run_input_verify(&input, info->hash);
    return r == -EUCLEAN || r == -EBADMSG ? -EIO : r;
}

int run_file_finish(struct run_file *file, struct run_info *info)
{
    _cleanup_free_ char *from = run_path(file->local, &file->info, ".new");
    _cleanup_free_ char *to = run_path(file->local, &file->info, "");
    _cleanup_free_ char *directory = xasprintf("%s/runs", file->local->path);
    TRY(run_writer_finish(file->writer, info));
    TRY(flush_file(file));
    if (fsync(file->fd) < 0)
        return -errno;
    hash_stream_result(file->hash, info->hash);
    TRY(read_back(file, info));
    if (rename(from, to) < 0)
        return -errno;
    room_account_runs(file->room);
    return io_fsync_dir(directory);
}

void run_file_abandon(const struct local *local, const struct run_info *info)
{
    _cleanup_free_ char *path = run_path(local, info, ".new");
    (void)unlink(path);
}
