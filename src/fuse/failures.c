// SPDX-License-Identifier: Apache-2.0
/* Failed calls with their causes: each once in the log, and in a bounded list for `cairn status`.
 * Ordinary errors (no such file, no permission) are not failures. */
#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "fs/past.h"
#include "fuse/internal.h"

/* The requests of the kernel, with the offset of their file name after the header. */
static const struct call {
    uint32_t opcode;
    const char *name;
    int name_at; /* -1: it concerns only the inode */
} calls[] = {{1, "lookup", 0},      {3, "stat", -1},         {4, "setattr", -1},
             {5, "readlink", -1},   {6, "symlink", 0},       {8, "mknod", 16},
             {9, "mkdir", 8},       {10, "unlink", 0},       {11, "rmdir", 0},
             {12, "rename", 8},     {13, "link", 8},         {14, "open", -1},
             {15, "read", -1},      {16, "write", -1},       {17, "statfs", -1},
             {20, "fsync", -1},     {21, "setxattr", -1},    {22, "getxattr", -1},
             {23, "listxattr", -1}, {24, "removexattr", -1}, {25, "close", -1},
             {27, "opendir", -1},   {28, "readdir", -1},     {30, "fsync", -1},
             {35, "create", 16},    {43, "fallocate", -1},   {44, "readdir", -1},
             {45, "rename", 16},    {46, "lseek", -1},       {47, "copy_file_range", -1}};

static const struct call unknown_call = {0, "a request", -1};

static const struct call *call_of(uint32_t opcode)
{
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (calls[i].opcode == opcode)
            return &calls[i];
    return &unknown_call;
}

/* Maps internal errno values to EIO. */
static int client_errno(int r)
{
    static const int internal[] = {EUCLEAN,   EBADMSG, EPROTONOSUPPORT, ESHUTDOWN,
                                   EHOSTDOWN, EREMOTE, ENOTCONN,        ETIMEDOUT};
    for (size_t i = 0; i < ARRAY_LEN(internal); i++)
        if (-r == internal[i])
            return EIO;
    return -r;
}

static bool is_failure(int error)
{
    static const int failures[] = {EIO, ENOSPC, EDQUOT, ESTALE, EROFS, ENOMEM, ENFILE, EMFILE};
    for (size_t i = 0; i < ARRAY_LEN(failures); i++)
        if (error == failures[i])
            return true;
    return false;
}

void failures_init(struct failures *failures)
{
    mutex_init(&failures->lock, LOCK_LEAF);
}

static void clear(struct front_failure *failure)
{
    free(failure->path);
    free(failure->cause);
    *failure = (struct front_failure){0};
}

void failures_done(struct failures *failures)
{
    for (unsigned i = 0; i < failures->count; i++)
        clear(&failures->list[i]);
    mutex_done(&failures->lock);
}

/* Moves a repeated failure to the end: the list is in order of the last occurrence. False: it is
 * new. */
static bool repeat_locked(struct failures *failures, const struct front_failure *wanted)
{
    check_held(&failures->lock);
    for (unsigned i = 0; i < failures->count; i++) {
        struct front_failure f = failures->list[i];
        if (f.ino != wanted->ino || f.error != wanted->error || strcmp(f.call, wanted->call) != 0 ||
            strcmp(f.cause, wanted->cause) != 0)
            continue;
        f.count++;
        f.last = wanted->last;
        memmove(&failures->list[i], &failures->list[i + 1], (failures->count - i - 1) * sizeof f);
        failures->list[failures->count - 1] = f;
        return true;
    }
    return false;
}

static void add_failure_locked(struct failures *failures, const struct front_failure *failure)
{
    check_held(&failures->lock);
    if (failures->count == FAILURES_MAX) {
        clear(&failures->list[0]);
        failures->forgotten++;
        memmove(&failures->list[0], &failures->list[1],
                (FAILURES_MAX - 1) * sizeof failures->list[0]);
        failures->count--;
    }
    failures->list[failures->count++] = *failure;
}

/* Call without the lock: a path may have to be read. */
static char *path_of(struct front *front, uint64_t ino, const char *name)
{
    char *path =
        fs_is_past(ino) ? xstrdup("/" FS_HISTORY_NAME) : ns_path(store_ns(front->store), ino);
    if (!name)
        return path;
    char *whole = xasprintf("%s/%.255s", strcmp(path, "/") == 0 ? "" : path, name);
    free(path);
    return whole;
}

static void failures_note(struct front *front, uint64_t ino, const char *call, const char *name,
                          int error)
{
    struct failures *failures = &front->failures;
    const char *cause = *cause_text() ? cause_text() : "see the log";
    int64_t now = clock_realtime_ns();
    struct front_failure failure = {
        .ino = ino, .call = call, .error = error, .count = 1, .first = now, .last = now};
    failure.cause = xstrdup(cause);
    mutex_lock(&failures->lock);
    failures->total++;
    bool known = repeat_locked(failures, &failure);
    mutex_unlock(&failures->lock);
    if (known) {
        free(failure.cause);
        return;
    }
    failure.path = path_of(front, ino, name);
    log_warn("%s: %s failed: %s: %s", failure.path, call, strerror(error), cause);
    LOCK_SCOPE(&failures->lock);
    add_failure_locked(failures, &failure);
}

int front_failed(struct front *front, uint64_t ino, const char *call, int r)
{
    int error = client_errno(r);
    if (is_failure(error))
        failures_note(front, ino, call, NULL, error);
    return error;
}

int front_failed_now(struct front *front, int r)
{
    const struct wire_in_header *header = current.header;
    const struct call *call = call_of(header->opcode);
    int error = client_errno(r);
    /* ESTALE without a cause is no failure: the kernel looks the name up again, and repeats the
     * call. */
    if (!is_failure(error) || (error == ESTALE && !*cause_text()))
        return error;
    const char *body = (const char *)header + WIRE_IN_HEADER_LEN;
    bool has_name =
        call->name_at >= 0 && header->len > WIRE_IN_HEADER_LEN + (uint32_t)call->name_at;
    failures_note(front, header->nodeid, call->name, has_name ? body + call->name_at : NULL, error);
    return error;
}

void front_failures(struct front *front, void (*fn)(const struct front_failure *failure, void *arg),
                    void *arg, uint64_t *ret_total, uint64_t *ret_forgotten)
{
    LOCK_SCOPE(&front->failures.lock);
    for (unsigned i = 0; i < front->failures.count; i++)
        fn(&front->failures.list[i], arg);
    *ret_total = front->failures.total;
    *ret_forgotten = front->failures.forgotten;
}
