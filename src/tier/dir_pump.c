// SPDX-License-Identifier: Apache-2.0
#include "tier/dir_pump.h"

#include <fcntl.h>

#include "base/io.h"
#include "tier/dir_wire.h"

#define COPY_BYTES (128 * KIB)

void dir_pump_init(struct dir_pump *pump)
{
    pump->pipe[0] = pump->pipe[1] = -1;
}

void dir_pump_done(struct dir_pump *pump)
{
    for (unsigned i = 0; i < 2; i++)
        if (pump->pipe[i] >= 0)
            (void)close(pump->pipe[i]);
    dir_pump_init(pump);
}

/* A user who exceeds the limit for large pipes gets a smaller one. */
static int prepare_pipe(struct dir_pump *pump)
{
    if (pump->pipe[0] >= 0)
        return 0;
    if (pipe2(pump->pipe, O_CLOEXEC) < 0)
        return -errno;
    (void)fcntl(pump->pipe[0], F_SETPIPE_SZ, DIR_PIPE_BYTES);
    return 0;
}

/* Moves at most `len` bytes; returns 0 at the end of `from`. */
static ssize_t move_bytes(int from, loff_t *from_at, int to, loff_t *to_at, uint64_t len)
{
    ssize_t n;
    do
        n = splice(from, from_at, to, to_at, min_u64(len, DIR_PIPE_BYTES), SPLICE_F_MOVE);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int read_full(int fd, char *buf, size_t len)
{
    while (len > 0) {
        ssize_t n = read(fd, buf, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ECANCELED;
        buf += n;
        len -= (size_t)n;
    }
    return 0;
}

/* For filesystems that cannot move pages. */
static int copy_in(int from, int to, uint64_t at, uint64_t len)
{
    _cleanup_free_ char *buf = xmalloc(COPY_BYTES);
    int r = 0;
    while (len > 0 && r == 0) {
        size_t piece = min_u64(len, COPY_BYTES);
        r = read_full(from, buf, piece);
        if (r == 0)
            r = io_pwrite_full(to, buf, piece, at);
        at += piece;
        len -= piece;
    }
    return r;
}

static int copy_out(int from, uint64_t at, int to, uint64_t len)
{
    _cleanup_free_ char *buf = xmalloc(COPY_BYTES);
    int r = 0;
    while (len > 0 && r == 0) {
        size_t piece = min_u64(len, COPY_BYTES);
        r = io_pread_full(from, buf, piece, at);
        if (r == 0)
            r = io_write_full(to, buf, piece);
        at += piece;
        len -= piece;
    }
    return r;
}

/* Moves all `len` bytes that are in our pipe to `to`. */
static int empty_into(struct dir_pump *pump, int to, loff_t *at, uint64_t len)
{
    while (len > 0) {
        ssize_t n = move_bytes(pump->pipe[0], NULL, to, at, len);
        if (n == -EINVAL && at) {
            int r = copy_in(pump->pipe[0], to, (uint64_t)*at, len);
            *at += (loff_t)len;
            return r;
        }
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        len -= (uint64_t)n;
    }
    return 0;
}

int dir_pump_in(struct dir_pump *pump, int from, int to, uint64_t len)
{
    loff_t at = 0;
    int r = prepare_pipe(pump);
    while (r == 0 && len > 0) {
        ssize_t n = move_bytes(from, NULL, pump->pipe[1], NULL, len);
        if (n <= 0)
            return n < 0 ? (int)n : -ECANCELED;
        r = empty_into(pump, to, &at, (uint64_t)n);
        len -= (uint64_t)n;
    }
    return r;
}

int dir_pump_out(struct dir_pump *pump, int from, uint64_t offset, int to, uint64_t len)
{
    loff_t at = (loff_t)offset;
    int r = prepare_pipe(pump);
    (void)posix_fadvise(from, at, (off_t)len, POSIX_FADV_WILLNEED);
    while (r == 0 && len > 0) {
        ssize_t n = move_bytes(from, &at, pump->pipe[1], NULL, len);
        if (n == -EINVAL)
            return copy_out(from, (uint64_t)at, to, len);
        if (n <= 0)
            return n < 0 ? (int)n : -EUCLEAN;
        r = empty_into(pump, to, NULL, (uint64_t)n);
        len -= (uint64_t)n;
    }
    return r;
}
