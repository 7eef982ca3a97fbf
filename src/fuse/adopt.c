// SPDX-License-Identifier: Apache-2.0
/* Adopts the mount of a dead daemon: the holder kept /dev/fuse, and this session continues with it.
 * The kernel sends INIT once, so the INIT of the first daemon is processed again, and its answer is
 * not sent. Then the kernel is asked to resend the requests that were received and not answered
 * (FUSE_NOTIFY_RESEND, from Linux 6.9 on). They come before all others, with a mark in their
 * number. The stage records which of them the dead daemon has done (stage/requests.h): those are
 * answered, the others are done. left.c handles kernels that cannot resend. The attributes that the
 * kernel caches are unknown here (cached.c): the first change of each inode is notified. */
#include <stdio.h>
#include <sys/uio.h>

#include "base/log.h"
#include "fs/past.h"
#include "fuse/internal.h"

/* Decides each resent request by its record: stage/requests.h. */
static const struct {
    uint8_t kind;
    uint64_t records;
} kinds[] = {
    [WIRE_SETATTR] = {REQUEST_MAY_BE_APPLIED, 0},
    [WIRE_SYMLINK] = {REQUEST_RECORDS, 1ull << REC_MAKE},
    [WIRE_MKNOD] = {REQUEST_RECORDS, 1ull << REC_MAKE | 1ull << REC_NASCENT},
    [WIRE_MKDIR] = {REQUEST_RECORDS, 1ull << REC_MAKE},
    [WIRE_UNLINK] = {REQUEST_RECORDS, 1ull << REC_UNLINK},
    [WIRE_RMDIR] = {REQUEST_RECORDS, 1ull << REC_UNLINK},
    [WIRE_RENAME] = {REQUEST_RECORDS, 1ull << REC_RENAME},
    [WIRE_LINK] = {REQUEST_RECORDS, 1ull << REC_LINK}, /* or a SEAL, of a file without a name */
    [WIRE_OPEN] = {REQUEST_OPENS, 0},
    [WIRE_WRITE] = {REQUEST_WRITES, 0},
    [WIRE_RELEASE] = {REQUEST_CLOSES, 0},
    [WIRE_SETXATTR] = {REQUEST_RECORDS, 1ull << REC_SETXATTR},
    [WIRE_REMOVEXATTR] = {REQUEST_RECORDS, 1ull << REC_REMOVEXATTR},
    [WIRE_OPENDIR] = {REQUEST_OPENS, 0},
    [WIRE_RELEASEDIR] = {REQUEST_CLOSES, 0},
    [WIRE_CREATE] = {REQUEST_RECORDS, 1ull << REC_NASCENT}, /* TMPFILE, too */
    [WIRE_FALLOCATE] = {REQUEST_MAY_BE_APPLIED, 0},
    [WIRE_RENAME2] = {REQUEST_RECORDS, 1ull << REC_RENAME},
    [WIRE_COPY_FILE_RANGE] = {REQUEST_MAY_BE_APPLIED, 0},
};

/* The recorded state of the thread's current request, if it is a resent one. */
static _Thread_local struct stage_request returned;

static bool is_answered(uint32_t opcode)
{
    return opcode != WIRE_FORGET && opcode != WIRE_BATCH_FORGET && opcode != WIRE_INTERRUPT &&
           opcode != WIRE_INIT;
}

/* The caller is gone: the kernel does not know the opened handle, unless the dead daemon has
 * answered. */
static void undo_opening(struct front *front, const struct stage_request *left)
{
    bool opens =
        left->opcode == WIRE_CREATE || left->opcode == WIRE_OPEN || left->opcode == WIRE_OPENDIR;
    if (opens && left->has_handle && !left->was_answering)
        (void)fs_release(front->fs, left->handle, false);
}

/* Its arguments begin with the handle. */
static void note_handle(struct front *front, const struct wire_in_header *header)
{
    uint64_t handle;
    if (header->nodeid == SELF_TEST_INO || fs_is_past(header->nodeid) ||
        header->len < sizeof *header + sizeof handle)
        return;
    memcpy(&handle, header + 1, sizeof handle);
    stage_request_closes(front->stage, handle);
}

void adopt_enter(struct front *front, bool is_resumed)
{
    const struct wire_in_header *header = current.header;
    uint64_t unique = header->unique & ~WIRE_RESENT;
    uint32_t opcode = header->opcode;
    if (!is_answered(opcode))
        return;
    if (header->unique & WIRE_RESENT && !is_resumed && returned.unique == unique &&
        returned.is_applied) {
        current.is_applied = true;
        current.before = returned;
        atomic_fetch_add(&front->adoption.answered_from_memory, 1);
    }
    returned.unique = 0;
    bool known = opcode < ARRAY_LEN(kinds);
    stage_request_enter(front->stage, unique, opcode,
                        known ? kinds[opcode].kind : REQUEST_CHANGES_NOTHING,
                        known ? kinds[opcode].records : 0);
    if (known && kinds[opcode].kind == REQUEST_CLOSES && !current.is_applied)
        note_handle(front, header);
}

/* All requests in flight were resent before this one: a remaining record has no caller any more. */
static void adopt_settle(struct front *front)
{
    struct stage_request left;
    atomic_store(&front->adoption.is_settled, true);
    while (stage_request_take_left(front->stage, &left))
        undo_opening(front, &left);
}

void adopt_see(struct front *front, const struct wire_in_header *header)
{
    if (!front->adoption.is_adopted)
        return;
    if (header->unique & WIRE_RESENT) {
        atomic_fetch_add(&front->adoption.resent, 1);
        if (!stage_request_return(front->stage, header->unique & ~WIRE_RESENT, &returned))
            returned.unique = 0;
    } else if (!atomic_load_explicit(&front->adoption.is_settled, memory_order_relaxed) &&
               is_answered(header->opcode)) {
        adopt_settle(front);
    }
}

/* --- the session ------------------------------------------------------------------------------ */

static int replay_init(struct front *front, char **ret_text)
{
    struct front_passport before = front->passport;
    struct fuse_buf buf = {.mem = before.init, .size = before.init_len};
    atomic_store(&front->adoption.is_replaying, true);
    front_see_request(front, before.init, before.init_len);
    current = (struct current){.slab = SLAB_NONE,
                               .header = (const struct wire_in_header *)(const void *)before.init};
    fuse_session_process_buf(front->se, &buf);
    atomic_store(&front->adoption.is_replaying, false);
    atomic_store(&front->mmap_shared, before.mmap_shared && atomic_load(&front->mmap_offered));
    if (atomic_load(&front->init_done) && !atomic_load(&front->adoption.answer_differs))
        return 0;
    *ret_text = xasprintf("the mount at %s was made by a version that negotiated other FUSE "
                          "features; unmount and mount again",
                          front->options.mountpoint);
    return -EPROTO;
}

int adopt_session(struct front *front, char **ret_text)
{
    const struct front_adopted *adopted = front->options.adopted;
    char path[32];
    (void)snprintf(path, sizeof path, "/dev/fd/%d", adopted->fd);
    front->adoption.is_adopted = true;
    front->adoption.notified = xcalloc(NOTIFIED_MAX, sizeof *front->adoption.notified);
    front->passport = adopted->passport;
    atomic_store(&front->has_passport, true);
    front->device = (dev_t)adopted->passport.device;
    if (fuse_session_mount(front->se, path) != 0) {
        (void)close(adopted->fd);
        return -EBADF;
    }
    int r = fuse_session_custom_io(front->se, &front_io, adopted->fd);
    return r < 0 ? r : replay_init(front, ret_text);
}

/* The notification is a header without content. False: the kernel cannot resend. */
static bool ask_to_resend(struct front *front)
{
    struct wire_out_header notice = {.len = sizeof notice, .error = WIRE_NOTIFY_RESEND};
    if (!front_kernel_resends(front))
        return false;
    if (write(fuse_session_fd(front->se), &notice, sizeof notice) == (ssize_t)sizeof notice)
        return true;
    return errno != EINVAL; /* otherwise the mount has ended */
}

/* A FORGET received by the dead daemon is not resent. */
static void forget_unknown(struct front *front)
{
    const uint64_t *nameless;
    size_t count = store_nameless(front->store, &nameless);
    for (size_t i = 0; i < count; i++)
        if (!stage_request_left_made(front->stage, nameless[i]) &&
            fuse_lowlevel_notify_inval_inode(front->se, nameless[i], -1, 0) == -ENOENT &&
            fs_forget(front->fs, nameless[i]) < 0)
            log_debug("unlinked inode %llu is kept until the next mount",
                      (unsigned long long)nameless[i]);
}

void adopt_begin(struct front *front)
{
    front->is_mounted = true;
    forget_unknown(front);
    if (!ask_to_resend(front))
        left_settle(front);
}

/* --- caches of the kernel --------------------------------------------------------------------- */

bool adopt_must_notify(struct front *front, uint64_t ino)
{
    if (!front->adoption.notified)
        return false;
    _Atomic uint64_t *notified =
        &front->adoption.notified[(ino * 0x9e3779b97f4a7c15ull >> 40) % NOTIFIED_MAX];
    return atomic_exchange_explicit(notified, ino, memory_order_relaxed) != ino;
}

void adopt_done(struct front *front)
{
    free(front->adoption.notified);
}
