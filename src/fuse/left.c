// SPDX-License-Identifier: Apache-2.0
/* Answers requests that were in flight when a daemon died, on a kernel that cannot send them again
 * (before Linux 6.9). Its callers wait until each is answered.
 *
 * Of each there is what the stage's table says (stage/requests.h), not the request: neither its
 * name nor its arguments. What was done gets the answer that it would have had: from the table
 * alone where that is success, or a length; and for a new name, new attributes, a new file, or what
 * has to be durable first, from the handler of its opcode, which looks at the inode (and handle)
 * that the table names and at nothing else. A handle whose close was received is closed. All else
 * fails with EIO: what changes nothing, what was not done, an open, and what was done in part (a
 * setattr of several things, fallocate, a copy).
 *
 * A daemon that dies right after it has received a request leaves nothing of it in the table. But
 * the request lies in the slab that it was received into. */
#include <fcntl.h>
#include <sys/uio.h>

#include "base/log.h"
#include "fuse/internal.h"

#define ROOT_INO 1u
#define ARGS_MAX 48u   /* of the requests below, with two names of one byte */
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

/* The table does not say through which of its handles a file was written. */
static bool must_be_durable(struct front *front, uint64_t ino)
{
    uint64_t cursor = 0, handle, found;
    uint32_t flags;
    while (stage_handle_next(front->stage, &cursor, &handle, &found, &flags))
        if (found == ino && flags & O_DSYNC)
            return true;
    return false;
}

/* Would its handler find what it needs, and change nothing? */
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

/* Only these requests have arguments here: requests that are already applied need no others. */
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

/* A directory whose entries changed is marked as old by the kernel itself when it gets
 * the answer. */
static void handle_again(struct front *front, const struct stage_request *left)
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
    current = (struct current){.slab = SLAB_NONE};
}

static bool answer_itself(struct front *front, const struct stage_request *left, int error)
{
    bool with_length = error == 0 && needs_length(left->opcode);
    const uint32_t length[2] = {(uint32_t)left->result, 0};
    size_t len = sizeof(struct wire_out_header) + (with_length ? sizeof length : 0);
    struct wire_out_header out = {.len = (uint32_t)len, .error = error, .unique = left->unique};
    struct iovec iov[2] = {{&out, sizeof out}, {(void *)(uintptr_t)length, sizeof length}};
    /* else it had been answered */
    return writev(fuse_session_fd(front->se), iov, with_length ? 2 : 1) >= 0;
}

static void fail(struct front *front, const struct stage_request *left)
{
    if (!answer_itself(front, left, -EIO))
        return;
    atomic_fetch_add(&front->adoption.failed, 1);
    if (left->has_handle)
        (void)fs_release(front->fs, left->handle, false); /* the kernel did not get to know it */
}

static bool closes(const struct stage_request *left)
{
    return left->opcode == WIRE_RELEASE || left->opcode == WIRE_RELEASEDIR;
}

static void settle_call(struct front *front, const struct stage_request *left)
{
    if (closes(left)) { /* its caller went on long ago; only the handle is left */
        if (!left->is_applied && left->has_handle)
            (void)fs_release(front->fs, left->handle, false);
        (void)answer_itself(front, left, 0);
        return;
    }
    bool is_done = left->is_applied;
    if (is_done && can_be_handled(front, left))
        handle_again(front, left);
    else if (!is_done || !(needs_no_content(left->opcode) || needs_length(left->opcode)) ||
             !answer_itself(front, left, 0)) {
        fail(front, left);
        return;
    }
    atomic_fetch_add(&front->adoption.answered_from_memory, 1);
}

struct received {
    struct wire_in_header header;
    uint64_t handle; /* of what closes one */
};

/* It has no place in the table, so nothing of it was done. The slab may also hold a request of
 * before, even of an earlier mount, for which no caller waits. */
static void settle_received(struct front *front, const struct received *received)
{
    const struct wire_in_header *header = &received->header;
    const struct stage_request left = {.unique = header->unique & ~WIRE_RESENT,
                                       .opcode = header->opcode};
    if (header->len < sizeof *header || left.unique == 0 || header->opcode == WIRE_INTERRUPT)
        return;
    if (!closes(&left))
        fail(front, &left);
    else if (answer_itself(front, &left, 0) && header->len >= sizeof *received)
        (void)fs_release(front->fs, received->handle, false);
}

void left_settle(struct front *front)
{
    struct stage_request left;
    struct received received;
    uint32_t slab = 0;
    while (stage_request_take_left(front->stage, &left))
        settle_call(front, &left);
    while (stage_received_next(front->stage, &slab, RECEIVED_OFFSET, &received, sizeof received))
        settle_received(front, &received);
    unsigned failed = atomic_load(&front->adoption.failed);
    if (failed)
        log_warn("%u calls in progress when the daemon died fail with EIO: this kernel cannot "
                 "resend them (Linux 6.9 can)",
                 failed);
    atomic_store(&front->adoption.is_settled, true);
}
