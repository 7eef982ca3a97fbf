// SPDX-License-Identifier: Apache-2.0
#include "fuse/older.h"

#include <signal.h>
#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "base/vector.h"
#include "fs/fs.h"
#include "fs/past.h"
#include "fuse/internal.h"
#include "stage/place.h"

#define SEEN_NS SECOND_NS
#define FILE_MAX 65536u
#define LINE_LEN 128u

/* --- groups that rejoined --------------------------------------------------------------------- */

static bool is_same_group(const struct process_group *a, const struct process_group *b)
{
    return a->group == b->group && a->started == b->started;
}

/* When it rejoined; 0: it did not. */
static int64_t rejoined_at(struct older *older, const struct process_group *group)
{
    int64_t at = 0;
    LOCK_SCOPE(&older->lock);
    for (size_t i = 0; i < older->group_count; i++)
        if (is_same_group(&older->groups[i].group, group))
            at = older->groups[i].at;
    return at;
}

static void remove_group_locked(struct older *older, size_t i)
{
    check_held(&older->lock);
    memmove(older->groups + i, older->groups + i + 1,
            (--older->group_count - i) * sizeof *older->groups);
}

/* A group that has ended, or joined before the node opened, needs no entry. If all entries are
 * needed, the oldest is dropped. */
static void make_place_locked(struct older *older)
{
    check_held(&older->lock);
    int64_t opens = atomic_load(&older->opens);
    for (size_t i = older->group_count; i-- > 0;) {
        const struct rejoined *one = &older->groups[i];
        bool has_ended = kill(-one->group.group, 0) < 0 && errno == ESRCH;
        if (has_ended || one->at < opens)
            remove_group_locked(older, i);
    }
    if (older->group_count == OLDER_GROUPS_MAX)
        remove_group_locked(older, 0);
}

static void add_group_locked(struct older *older, const struct rejoined *one)
{
    check_held(&older->lock);
    for (size_t i = older->group_count; i-- > 0;)
        if (is_same_group(&older->groups[i].group, &one->group))
            remove_group_locked(older, i);
    if (older->group_count == OLDER_GROUPS_MAX)
        make_place_locked(older);
    older->groups[older->group_count++] = *one;
}

/* --- the file of these groups ----------------------------------------------------------------- */

static void add_line(struct bytes *text, const char *fmt, ...) CAIRN_PRINTF(2, 3);
static void add_line(struct bytes *text, const char *fmt, ...)
{
    char line[LINE_LEN];
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    vector_add_all(text, (const uint8_t *)line, (size_t)len);
}

static int write_groups(const struct older *older, const struct rejoined *groups, size_t count)
{
    _cleanup_vector_ struct bytes text = {0};
    char boot[40];
    TRY(stage_boot_id(boot));
    add_line(&text, "cairn rejoined 1\nboot %s\n", boot);
    for (size_t i = 0; i < count; i++)
        add_line(&text, "group %d %llu %lld\n", (int)groups[i].group.group,
                 (unsigned long long)groups[i].group.started, (long long)groups[i].at);
    add_line(&text, "crc32 %08x\n", crc32_of(0, text.at, text.count));
    return io_write_file_durable(older->path, text.at, text.count);
}

/* 0 if the file is of another boot. */
static int parse_groups(struct older *older, char *text)
{
    char boot[40], *end = strstr(text, "crc32 "), *line;
    if (!end || strtoul(end + 6, NULL, 16) != crc32_of(0, text, (size_t)(end - text)))
        return -EBADMSG;
    *end = '\0';
    TRY(stage_boot_id(boot));
    line = strsep(&text, "\n");
    if (strcmp(line, "cairn rejoined 1") != 0)
        return -EPROTONOSUPPORT;
    line = strsep(&text, "\n");
    if (!line || strncmp(line, "boot ", 5) != 0 || strcmp(line + 5, boot) != 0)
        return 0;
    LOCK_SCOPE(&older->lock);
    while ((line = strsep(&text, "\n")) && *line) {
        int group;
        unsigned long long started;
        long long at;
        if (sscanf(line, "group %d %llu %lld", &group, &started, &at) != 3)
            return -EUCLEAN;
        add_group_locked(older, &(struct rejoined){{group, started}, at});
    }
    return 0;
}

static void read_groups(struct older *older)
{
    _cleanup_free_ char *text = NULL;
    int r = io_read_file(older->path, FILE_MAX, &text, NULL);
    if (r == 0)
        r = parse_groups(older, text);
    if (r < 0 && r != -ENOENT)
        log_warn("%s cannot be read (%s): processes that began before this node opened cannot "
                 "change anything until 'cairn nodes rejoin'",
                 older->path, strerror(-r));
}

/* Several threads may call it at once: one writes, also for those that wait. */
static int keep_groups(struct older *older)
{
    struct rejoined groups[OLDER_GROUPS_MAX];
    int r = 0;
    LOCK_SCOPE(&older->lock);
    uint64_t wanted = older->version;
    while (older->written < wanted && r == 0) {
        if (older->is_writing) {
            (void)mutex_wait(&older->lock, &older->kept, -1);
            continue;
        }
        uint64_t version = older->version;
        size_t count = older->group_count;
        memcpy(groups, older->groups, count * sizeof *groups);
        older->is_writing = true;
        mutex_unlock(&older->lock);
        r = write_groups(older, groups, count);
        mutex_lock(&older->lock);
        older->is_writing = false;
        if (r == 0)
            older->written = version;
        (void)pthread_cond_broadcast(&older->kept);
    }
    return r;
}

static int add_group(struct older *older, const struct process_group *group)
{
    const struct rejoined one = {*group, clock_boottime_ns()};
    mutex_lock(&older->lock);
    add_group_locked(older, &one);
    older->version++;
    mutex_unlock(&older->lock);
    return older->path ? keep_groups(older) : 0;
}

int older_rejoin(struct older *older, pid_t pid)
{
    struct process_group group;
    TRY(process_group_of_thread(pid, &group));
    return group.started ? add_group(older, &group) : -ESRCH;
}

/* --- which groups are older ------------------------------------------------------------------- */

void older_init(struct older *older, const struct front_times *times, const char *path)
{
    *older = (struct older){.path = path};
    older->closed_ns = times->closed_ns;
    older->died_at = times->died_at;
    atomic_store(&older->opens, times->opens);
    mutex_init(&older->lock, LOCK_LEAF);
    cond_init(&older->kept);
    if (path)
        read_groups(older);
}

void older_done(struct older *older)
{
    mutex_done(&older->lock);
    (void)pthread_cond_destroy(&older->kept);
}

void older_set(struct older *older, int64_t opens)
{
    LOCK_SCOPE(&older->lock);
    atomic_store(&older->opens, opens);
    memset(older->seen, 0, sizeof older->seen);
}

static bool was_seen(struct older *older, pid_t tid)
{
    LOCK_SCOPE(&older->lock);
    return older->seen[(unsigned)tid % OLDER_SEEN].pid == tid &&
           clock_monotonic_ns() < older->seen[(unsigned)tid % OLDER_SEEN].until;
}

/* Caches the result, unless the check was made before the node opened again. */
static void note_seen(struct older *older, pid_t tid, int64_t opens)
{
    LOCK_SCOPE(&older->lock);
    if (atomic_load(&older->opens) != opens)
        return;
    older->seen[(unsigned)tid % OLDER_SEEN].pid = tid;
    older->seen[(unsigned)tid % OLDER_SEEN].until = clock_monotonic_ns() + SEEN_NS;
}

enum older_word older_look(struct older *older, pid_t tid)
{
    int64_t opens = atomic_load(&older->opens);
    struct process_group group;
    if (opens == 0 || was_seen(older, tid))
        return OLDER_NOT;
    if (process_group_of_thread(tid, &group) < 0 || group.started == 0)
        return OLDER_UNKNOWN;
    if (process_start_ns(group.started) < opens && rejoined_at(older, &group) < opens)
        return OLDER_IS;
    note_seen(older, tid, opens);
    return OLDER_NOT;
}

/* When the node stopped acknowledging, until it opens. If it went back after the previous daemon
 * had died, nothing was acknowledged in between. */
static int64_t closed_at(const struct older *older, int64_t opens)
{
    int64_t went_back = opens - older->closed_ns;
    return older->died_at && older->died_at < went_back ? older->died_at : went_back;
}

int older_settle(struct older *older, pid_t tid, enum older_word *ret, int64_t *ret_wait_ns)
{
    int64_t opens = atomic_load(&older->opens), now = clock_boottime_ns();
    struct process_group group;
    *ret = older_look(older, tid);
    if (*ret != OLDER_IS || process_group_of_thread(tid, &group) < 0 || opens == INT64_MAX ||
        process_start_ns(group.started) < closed_at(older, opens))
        return 0;
    *ret_wait_ns = opens - now;
    *ret = now < opens ? OLDER_WAITS : OLDER_NOT;
    return now < opens ? 0 : add_group(older, &group);
}

/* --- requests that change something ----------------------------------------------------------- */

/* The requests that change something, or make a change durable, with the offset in their arguments
 * of the handle used for it; NO_HANDLE: it uses a name, or an inode. */
#define NO_HANDLE (-1)
static const struct {
    uint32_t opcode;
    bool changes;
    int handle_at;
} requests[] = {{WIRE_SETATTR, true, 8},
                {WIRE_SYMLINK, true, NO_HANDLE},
                {WIRE_MKNOD, true, NO_HANDLE},
                {WIRE_MKDIR, true, NO_HANDLE},
                {WIRE_UNLINK, true, NO_HANDLE},
                {WIRE_RMDIR, true, NO_HANDLE},
                {WIRE_RENAME, true, NO_HANDLE},
                {WIRE_LINK, true, NO_HANDLE},
                {WIRE_OPEN, true, NO_HANDLE},
                {WIRE_WRITE, true, 0},
                {WIRE_FSYNC, false, 0},
                {WIRE_SETXATTR, true, NO_HANDLE},
                {WIRE_REMOVEXATTR, true, NO_HANDLE},
                {WIRE_FLUSH, false, 0},
                {WIRE_FSYNCDIR, false, 0},
                {WIRE_CREATE, true, NO_HANDLE},
                {WIRE_FALLOCATE, true, 0},
                {WIRE_RENAME2, true, NO_HANDLE},
                {WIRE_COPY_FILE_RANGE, true, 24},
                {WIRE_TMPFILE, true, NO_HANDLE}};

/* Returns 0 behind the end of the request. */
static uint32_t argument_u32(const struct wire_in_header *header, size_t at)
{
    uint32_t value = 0;
    if (header->len >= sizeof *header + at + sizeof value)
        memcpy(&value, (const char *)(header + 1) + at, sizeof value);
    return value;
}

/* Returns whether the request only reports lazy saves of a program, and changes nothing. */
static bool is_lane_report(const struct wire_in_header *header)
{
    const char *name = (const char *)(header + 1) + WIRE_SETXATTR_NAME;
    size_t most = header->len > sizeof *header + WIRE_SETXATTR_NAME
                      ? header->len - sizeof *header - WIRE_SETXATTR_NAME
                      : 0;
    return strnlen(name, most) < most && fs_is_lane_report(name);
}

static bool opens_to_change(const struct wire_in_header *header)
{
    int flags = (int)argument_u32(header, 0);
    return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}

void request_asks(const struct wire_in_header *header, struct request_asks *ret)
{
    uint32_t opcode = header->opcode;
    *ret = (struct request_asks){0};
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        if (requests[i].opcode != opcode)
            continue;
        ret->changes = requests[i].changes;
        ret->has_handle = requests[i].handle_at != NO_HANDLE;
        if (ret->has_handle)
            ret->handle = argument_u32(header, (size_t)requests[i].handle_at) |
                          (uint64_t)argument_u32(header, (size_t)requests[i].handle_at + 4) << 32;
    }
    if (opcode == WIRE_SETATTR && !(argument_u32(header, 0) & WIRE_SETATTR_HAS_HANDLE))
        ret->has_handle = false;
    if (opcode == WIRE_OPEN)
        ret->changes = opens_to_change(header);
    if (opcode == WIRE_SETXATTR && is_lane_report(header))
        ret->changes = false;
    ret->is_page = opcode == WIRE_WRITE && argument_u32(header, WIRE_WRITE_KIND) & WIRE_WRITE_PAGE;
}

/* --- refused requests ------------------------------------------------------------------------- */

void front_refuse_older(struct front *front, int64_t opens)
{
    older_set(&front->older, opens);
}

int64_t front_opens(struct front *front)
{
    return atomic_load(&front->older.opens);
}

int front_rejoin(struct front *front, pid_t pid)
{
    return older_rejoin(&front->older, pid);
}

/* Notes "all nodes went back to an earlier state at TIME, and ...": `since` is the rest. */
static void note_cause(const struct older *older, const char *since)
{
    char when[TEXT_TIME_LEN];
    int64_t opens = atomic_load(&older->opens);
    text_time(clock_realtime_ns() - clock_boottime_ns() + opens, when);
    if (opens == INT64_MAX)
        cause_note("all nodes go back to an earlier state, and this one is about to");
    else
        cause_note("all nodes went back to an earlier state at %s, and %s", when, since);
}

static bool is_of_other_stage(struct front *front, const struct request_asks *asks)
{
    if (!asks->has_handle || stage_has_handle(front->stage, asks->handle))
        return false;
    if (atomic_load(&front->older.opens))
        note_cause(&front->older, "this file was opened before: what was written to it since may "
                                  "be set aside; start the job anew");
    else
        cause_note("the stage was lost while this file was open, with what had not come to NVMe: "
                   "open it anew, and look at what it has");
    return true;
}

static bool is_of_older(struct front *front, const struct request_asks *asks)
{
    if (!asks->changes || asks->is_page)
        return false;
    enum older_word word = older_look(&front->older, (pid_t)current.header->pid);
    /* it could open the file, or was passed the handle by a process that could */
    if (word == OLDER_NOT || (word == OLDER_UNKNOWN && asks->has_handle))
        return false;
    note_cause(&front->older, word == OLDER_IS
                                  ? "this process began before: what it wrote since may be set "
                                    "aside; start the job anew"
                                  : "when this process began is not to be seen from here: it may "
                                    "rely on what is set aside");
    return true;
}

bool front_refuses(struct front *front)
{
    const struct wire_in_header *header = current.header;
    struct request_asks asks;
    request_asks(header, &asks);
    bool is_past = fs_is_past(header->nodeid) && header->opcode != WIRE_COPY_FILE_RANGE;
    if (current.is_applied || header->nodeid == SELF_TEST_INO || is_past ||
        (!is_of_other_stage(front, &asks) && !is_of_older(front, &asks)))
        return false;
    current.is_refused = true;
    if (!asks.is_page)
        front_answer(front, header->unique, front_failed_now(front, -EIO));
    return !asks.is_page;
}
