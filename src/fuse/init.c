// SPDX-License-Identifier: Apache-2.0
/* Parts of the kernel's protocol that this libfuse does not know: TMPFILE, two flags in the reply
 * to INIT, and one in replies to OPEN and CREATE.
 *
 * DIRECT_IO_ALLOW_MMAP  files that bypass the page cache can still be mapped shared (loaders map
 *                       the files that they read); tested before anything relies on it
 *                       (self_test.c)
 * HANDLE_KILLPRIV_V2    we clear setuid bits ourselves, so the kernel need not request an xattr
 *                       before every write
 * PARALLEL_DIRECT_WRITES  several threads may write one file at once with O_DIRECT, within its
 *                         size; from the protocol version on whose kernels keep such writes and
 *                         cached pages consistent */
#include <sys/uio.h>

#include "base/log.h"
#include "fuse/internal.h"

#define INIT_OUT_FLAGS 12u /* offsets in its answer */
#define INIT_OUT_FLAGS2 32u
#define INIT_OUT_LEN FRONT_ANSWER_LEN
/* The protocol 7.N that a feature came with, or from which on it is used. */
#define MMAP_FROM_MINOR 39u     /* Linux 6.6 */
#define RESEND_FROM_MINOR 40u   /* Linux 6.9 */
#define PARALLEL_FROM_MINOR 40u /* Linux 6.9 */
#define OPEN_ANSWER_MAX 160u    /* for CREATE, which also has an entry */

/* libfuse passes no context to these hooks before INIT; there is one mount per process */
static struct front *mounting;
static uint32_t offered_flags;

/* Removes from the kernel's INIT the features of later protocols than 7.`most`. */
static void limit_protocol(uint8_t *args, uint32_t most)
{
    uint32_t minor, flags2;
    memcpy(&minor, args + INIT_IN_MINOR, sizeof minor);
    memcpy(&flags2, args + INIT_IN_FLAGS2, sizeof flags2);
    minor = minor < most ? minor : most;
    if (minor < MMAP_FROM_MINOR)
        flags2 &= ~WIRE2_DIRECT_IO_ALLOW_MMAP;
    if (minor < RESEND_FROM_MINOR)
        flags2 &= ~WIRE2_HAS_RESEND;
    memcpy(args + INIT_IN_MINOR, &minor, sizeof minor);
    memcpy(args + INIT_IN_FLAGS2, &flags2, sizeof flags2);
}

bool front_kernel_resends(const struct front *front)
{
    const struct front_passport *passport = &front->passport;
    uint32_t flags2 = 0;
    if (atomic_load(&front->has_passport) &&
        passport->init_len >= WIRE_IN_HEADER_LEN + INIT_IN_FLAGS2 + sizeof flags2)
        memcpy(&flags2, passport->init + WIRE_IN_HEADER_LEN + INIT_IN_FLAGS2, sizeof flags2);
    return flags2 & WIRE2_HAS_RESEND;
}

void front_see_request(struct front *front, void *mem, size_t size)
{
    struct wire_in_header *header = mem;
    if (header->opcode == WIRE_TMPFILE)
        header->opcode = WIRE_CREATE; /* equal but for its name, which no other file can have */
    /* Its answer has a length of 64 bits. The older one has 32 bits and 32 zeros: the same bytes.
     * libfuse does not know the new request, and would answer ENOSYS. If a kernel gets ENOSYS for
     * two calls at once, it concludes that the mount has neither request, and copies by reading and
     * writing until the next mount. */
    if (header->opcode == WIRE_COPY_FILE_RANGE_64)
        header->opcode = WIRE_COPY_FILE_RANGE;
    if (header->opcode != WIRE_INIT || size < WIRE_IN_HEADER_LEN + INIT_IN_FLAGS2 + 4)
        return;
    uint8_t *args = (uint8_t *)mem + WIRE_IN_HEADER_LEN;
    uint32_t flags2, minor;
    if (front->options.fuse_minor)
        limit_protocol(args, front->options.fuse_minor);
    memcpy(&minor, args + INIT_IN_MINOR, sizeof minor);
    memcpy(&offered_flags, args + INIT_IN_FLAGS, sizeof offered_flags);
    memcpy(&flags2, args + INIT_IN_FLAGS2, sizeof flags2);
    mounting = front;
    front->passport.init_len = (uint32_t)min_u64(size, FRONT_INIT_MAX);
    memcpy(front->passport.init, mem, front->passport.init_len);
    atomic_store(&front->parallel_writes, minor >= PARALLEL_FROM_MINOR);
    atomic_store(&front->mmap_offered,
                 offered_flags & WIRE_INIT_EXT && flags2 & WIRE2_DIRECT_IO_ALLOW_MMAP);
}

static void patch_init(uint8_t *answer)
{
    uint32_t flags, flags2;
    memcpy(&flags, answer + INIT_OUT_FLAGS, sizeof flags);
    memcpy(&flags2, answer + INIT_OUT_FLAGS2, sizeof flags2);
    flags |= offered_flags & WIRE_HANDLE_KILLPRIV_V2;
    if (atomic_load(&mounting->mmap_offered)) {
        flags |= WIRE_INIT_EXT;
        flags2 |= WIRE2_DIRECT_IO_ALLOW_MMAP;
    }
    memcpy(answer + INIT_OUT_FLAGS, &flags, sizeof flags);
    memcpy(answer + INIT_OUT_FLAGS2, &flags2, sizeof flags2);
}

/* The kernel got its answer from the previous daemon; ours must promise the same. */
static ssize_t answer_init(struct front *front, int fd, const struct iovec *iov)
{
    uint8_t answer[INIT_OUT_LEN];
    memcpy(answer, iov[1].iov_base, sizeof answer);
    patch_init(answer);
    if (atomic_load(&front->adoption.is_replaying)) {
        atomic_store(&front->adoption.answer_differs,
                     memcmp(answer, front->passport.answer, sizeof answer) != 0);
        return (ssize_t)(iov[0].iov_len + iov[1].iov_len);
    }
    memcpy(front->passport.answer, answer, sizeof answer);
    atomic_store(&front->has_passport, true);
    struct iovec patched[2] = {iov[0], {answer, sizeof answer}};
    return writev(fd, patched, 2);
}

/* Completes the answer to OPEN or CREATE if current.parallel_writes is set. */
static ssize_t answer_parallel_open(int fd, const struct iovec *iov)
{
    uint8_t answer[OPEN_ANSWER_MAX];
    size_t length = iov[1].iov_len;
    check(length >= WIRE_OPEN_OUT_LEN && length <= sizeof answer);
    memcpy(answer, iov[1].iov_base, length);
    uint8_t *at = answer + length - WIRE_OPEN_OUT_LEN + WIRE_OPEN_OUT_FLAGS;
    uint32_t flags;
    memcpy(&flags, at, sizeof flags);
    flags |= WIRE_OPEN_PARALLEL_DIRECT_WRITES;
    memcpy(at, &flags, sizeof flags);
    struct iovec patched[2] = {iov[0], {answer, length}};
    return writev(fd, patched, 2);
}

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *userdata)
{
    (void)userdata;
    struct wire_out_header out = {0};
    memcpy(&out, iov[0].iov_base, min_u64(sizeof out, iov[0].iov_len));
    if (mounting && !atomic_exchange(&mounting->init_done, true) && count == 2 &&
        iov[1].iov_len == INIT_OUT_LEN)
        return answer_init(mounting, fd, iov);
    if (!mounting || out.unique == 0) /* a notification */
        return writev(fd, iov, count);
    turn_answering(&mounting->turns, fd);
    stage_request_answering(mounting->stage, out.unique & ~WIRE_RESENT);
    ssize_t n = current.parallel_writes && out.error == 0 ? answer_parallel_open(fd, iov)
                                                          : writev(fd, iov, count);
    int saved = errno;
    stage_request_answered(mounting->stage, out.unique & ~WIRE_RESENT);
    hold_note(mounting);
    errno = saved;
    return n;
}

void front_answer(struct front *front, uint64_t unique, int error)
{
    struct wire_out_header out = {.len = sizeof out, .error = -error, .unique = unique};
    struct iovec iov = {&out, sizeof out};
    if (write_reply(fuse_session_fd(front->se), &iov, 1, NULL) < 0 && errno != ENOENT)
        log_debug("answering without libfuse: %s", strerror(errno));
}

static ssize_t read_request(int fd, void *buf, size_t len, void *userdata)
{
    (void)userdata;
    return read(fd, buf, len);
}

const struct fuse_custom_io front_io = {.writev = write_reply, .read = read_request};
