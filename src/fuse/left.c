// SPDX-License-Identifier: Apache-2.0
/* Answers requests that were in flight when a daemon died, on a kernel that cannot resend them
 * (before Linux 6.9). Their callers wait until each is answered.
 *
 * For each request only the entry in the stage's table exists (stage/requests.h), and not the
 * request: neither its name nor its arguments. A request that was applied gets its proper answer:
 * from the table alone if that is success, or a length; for a new name, new attributes, a new file,
 * or if something must be made durable first, from the handler of its opcode, which reads only the
 * inode (and handle) named in the table. If a close was received, its handle is closed. All other
 * requests fail with EIO: those that change nothing, that were not applied, opens, and partly
 * applied ones (a setattr of several attributes, fallocate, a copy).
 *
 * A daemon may die after it received a request and before the request is in the table. Then the
 * request is still in the slab that received it. It was not applied: it fails. */
#include <fcntl.h>
#include <sys/uio.h>

#include "base/log.h"
#include "fs/past.h"
#include "fuse/internal.h"

#define ROOT_INO 1u
#define ARGS_MAX 48u   /* of the requests handled here, with two names of one byte */
#define WRITE_SIZE 16u /* offsets in the arguments of WRITE */
#define WRITE_FLAGS 32u

static bool is_one_of(uint32_t opcode, const uint8_t *opcodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (opcodes[i] == opcode)
            return true;
    return false;
}

static bool needs_no_content(uint32_t opcode)
{
    static const uint8_t opcodes[] = {WIRE_UNLINK,      WIRE_RMDIR,     WIRE_RENAME, WIRE_SETXATTR,
                                      WIRE_REMOVEXATTR, WIRE_FALLOCATE, WIRE_RENAME2};
    return is_one_of(opcode, opcodes, ARRAY_LEN(opcodes));
}

static bool needs_length(uint32_t opcode)
{
    return opcode == WIRE_WRITE || opcode == WIRE_COPY_FILE_RANGE;
}

/* The table does not record through which of its handles a file was written. */
static bool must_be_durable(struct front *front, uint64_t ino)
{
    uint64_t cursor = 0, handle, found;
    uint32_t flags;
    while (stage_handle_next(front->stage, &cursor, &handle, &found, &flags))
        if (found == ino && flags & O_DSYNC)
            return true;
    return false;
}

/* Can its handler answer from the table alone, and without changing anything? */
static bool can_be_handled(struct front *front, const struct stage_request *left)
{
    static const uint8_t makers[] = {WIRE_SYMLINK, WIRE_MKNOD, WIRE_MKDIR, WIRE_LINK};
    struct fs_opened opened;
    struct stat st;
    if (left->opcode == WIRE_SETATTR)
        return left->result > 0 && fs_getattr(front->fs, (uint64_t)left->result, &st) == 0;
    if (left->opcode == WIRE_CREATE)
        return left->has_handle && fs_opened_again(front->fs, left->handle, &opened) == 0 &&
               fs_getattr(front->fs, left->ino, &st) == 0;
    if (left->opcode == WIRE_WRITE)
        return must_be_durable(front, left->ino) && fs_getattr(front->fs, left->ino, &st) == 0;
    return is_one_of(left->opcode, makers, ARRAY_LEN(makers)) &&
           fs_getattr(front->fs, left->ino, &st) == 0;
}

static void put_u32(uint8_t *args, uint32_t value)
{
    memcpy(args, &value, sizeof value);
}

/* Only these requests need arguments: requests that are already applied need no others. */
static void fill_args(struct front *front, const struct stage_request *left, uint8_t *args)
{
    size_t names = left->opcode == WIRE_SYMLINK                              ? 0
                   : left->opcode == WIRE_MKDIR || left->opcode == WIRE_LINK ? 8
                                                                             : 16;
    memset(args, 0, ARGS_MAX);
    if (left->opcode == WIRE_WRITE) {
        put_u32(args + WRITE_SIZE, (uint32_t)left->result);
        put_u32(args + WRITE_FLAGS, O_DSYNC);
        return;
    }
    if (left->opcode == WIRE_CREATE)
        put_u32(args, (uint32_t)fs_handle_flags(front->fs, left->handle));
    args[names] = args[names + 2] = 'x';
}

static uint64_t node_of(const struct stage_request *left)
{
    return left->opcode == WIRE_SETATTR ? (uint64_t)left->result
           : left->opcode == WIRE_WRITE ? left->ino
                                        : ROOT_INO;
}

/* False: the handler would make it wait, and nobody would answer it. If the entries of a directory
 * changed, the kernel itself marks its attributes as old when it gets the answer. */
static bool handle_again(struct front *front, const struct stage_request *left)
{
    struct {
        struct wire_in_header header;
        uint8_t args[ARGS_MAX];
    } request = {.header = {.len = sizeof request,
                            .opcode = left->opcode,
                            .unique = left->unique,
                            .nodeid = node_of(left)}};
    fill_args(front, left, request.args);
    struct fuse_buf buf = {.mem = &request, .size = sizeof request};
    current = (struct current){
        .slab = SLAB_NONE, .header = &request.header, .is_applied = true, .before = *left};
    fuse_session_process_buf(front->se, &buf);
    bool is_parked = current.park;
    current = (struct current){.slab = SLAB_NONE};
    return !is_parked;
}

static bool answer_itself(struct front *front, const struct stage_request *left, int error)
{
    bool with_length = error == 0 && needs_length(left->opcode);
    const uint32_t length[2] = {(uint32_t)left->result, 0};
    size_t len = sizeof(struct wire_out_header) + (with_length ? sizeof length : 0);
    struct wire_out_header out = {.len = (uint32_t)len, .error = error, .unique = left->unique};
    struct iovec iov[2] = {{&out, sizeof out}, {(void *)(uintptr_t)length, sizeof length}};
    /* otherwise it was answered already */
    return writev(fuse_session_fd(front->se), iov, with_length ? 2 : 1) >= 0;
}

static void fail(struct front *front, const struct stage_request *left)
{
    if (!answer_itself(front, left, -EIO))
        return;
    atomic_fetch_add(&front->adoption.failed, 1);
    if (left->has_handle)
        (void)fs_release(front->fs, left->handle, false); /* the kernel never learned of it */
}

static bool closes(const struct stage_request *left)
{
    return left->opcode == WIRE_RELEASE || left->opcode == WIRE_RELEASEDIR;
}

static void settle_call(struct front *front, const struct stage_request *left)
{
    if (closes(left)) { /* its caller has continued; only the handle remains */
        if (!left->is_applied && left->has_handle)
            (void)fs_release(front->fs, left->handle, false);
        (void)answer_itself(front, left, 0);
        return;
    }
    bool is_done = left->is_applied;
    bool needs_handler = is_done && can_be_handled(front, left);
    bool is_plain = is_done && (needs_no_content(left->opcode) || needs_length(left->opcode));
    if (!(needs_handler ? handle_again(front, left) : is_plain && answer_itself(front, left, 0))) {
        fail(front, left);
        return;
    }
    atomic_fetch_add(&front->adoption.answered_from_memory, 1);
}

struct received {
    struct wire_in_header header;
    uint64_t handle; /* the first argument of RELEASE and RELEASEDIR */
};

static bool has_caller(const struct wire_in_header *header)
{
    static const uint8_t without[] = {WIRE_FORGET, WIRE_BATCH_FORGET, WIRE_INTERRUPT, WIRE_INIT};
    return header->len >= sizeof *header && header->unique & ~WIRE_RESENT &&
           header->unique % 2 == 0 && /* otherwise the number of an INTERRUPT */
           !is_one_of(header->opcode, without, ARRAY_LEN(without));
}

/* The kernel ignores the answer to a close. */
static void settle_close(struct front *front, const struct received *received,
                         const struct stage_request *left)
{
    bool is_of_store = left->ino != SELF_TEST_INO && !fs_is_past(left->ino);
    if (answer_itself(front, left, -EIO) && is_of_store &&
        received->header.len >= sizeof *received &&
        stage_handle_inode(front->stage, received->handle) == left->ino)
        (void)fs_release(front->fs, received->handle, false);
}

/* The slab may also contain an older header, even of an earlier mount, or part of a file's content.
 * So the answer is never success, and the kernel accepts it only for a waiting caller. */
static void settle_received(struct front *front, const struct received *received)
{
    const struct stage_request left = {.unique = received->header.unique & ~WIRE_RESENT,
                                       .opcode = received->header.opcode,
                                       .ino = received->header.nodeid};
    if (!has_caller(&received->header) || stage_request_has_place(front->stage, left.unique))
        return;
    if (closes(&left))
        settle_close(front, received, &left);
    else
        fail(front, &left);
}

void left_settle(struct front *front)
{
    struct stage_request left;
    struct received received;
    uint32_t slab = 0;
    /* before requests in the table lose their entries there */
    while (stage_received_next(front->stage, &slab, RECEIVED_OFFSET, &received, sizeof received))
        settle_received(front, &received);
    while (stage_request_take_left(front->stage, &left))
        settle_call(front, &left);
    unsigned failed = atomic_load(&front->adoption.failed);
    if (failed)
        log_warn("%u calls in progress when the daemon died fail with EIO: this kernel cannot "
                 "resend them (Linux 6.9 can)",
                 failed);
    atomic_store(&front->adoption.is_settled, true);
}
