// SPDX-License-Identifier: Apache-2.0
/* Programs that save lazily (libcairn) report their progress now and then. Reports are kept in
 * memory, by process, for programs that watch the mount.
 *
 * The reporting process is known from the kernel. The table has a fixed size: when it is full, an
 * entry of the user with most entries is dropped, so that no user displaces another's entries by
 * many reports. */
#include "base/clock.h"
#include "base/text.h"
#include "fs/internal.h"

#define TEXT_MAX 512u /* of a report */
#define OF_SAVES "1 "
#define OF_STEPS "2 " /* an earlier version refuses it */

void lanes_init(struct lanes *lanes)
{
    mutex_init(&lanes->lock, LOCK_LEAF);
}

void lanes_done(struct lanes *lanes)
{
    free(lanes->list);
    mutex_done(&lanes->lock);
}

bool fs_is_lane_report(const char *name)
{
    return strcmp(name, "user.cairn.lane") == 0;
}

/* "KEY=NUMBER" at *at, and the character `end` behind it, which is skipped if it is a space. */
static bool take_number(const char **at, const char *key, char end, uint64_t *ret)
{
    size_t len = strlen(key);
    if (strncmp(*at, key, len) != 0 || (*at)[len] != '=')
        return false;
    const char *digits = *at + len + 1;
    size_t count = strspn(digits, "0123456789");
    if (count == 0 || digits[count] != end)
        return false;
    errno = 0;
    *ret = strtoull(digits, NULL, 10);
    *at = digits + count + (end == ' ');
    return errno == 0;
}

/* Copies whole characters, if the text is UTF-8. */
static void take_error(const char *text, char *to, size_t size)
{
    size_t used = 0;
    for (size_t len; text[used]; used += len) {
        len = max_u64(text_utf8_len(text + used), 1);
        if (used + len >= size)
            break;
    }
    memcpy(to, text, used);
    to[used] = '\0';
}

static int parse_saves(const char *at, struct fs_lane *ret)
{
    if (!take_number(&at, "pending", ' ', &ret->pending_bytes) ||
        !take_number(&at, "saves", ' ', &ret->pending_saves) ||
        !take_number(&at, "blocked_ns", ' ', &ret->blocked_ns) ||
        !take_number(&at, "published", ' ', &ret->published) ||
        !take_number(&at, "failed", ' ', &ret->failed) ||
        strncmp(at, "error=", strlen("error=")) != 0)
        return -EINVAL;
    take_error(at + strlen("error="), ret->error, sizeof ret->error);
    return 0;
}

static int parse_steps(const char *at, struct fs_lane *ret)
{
    return take_number(&at, "step_ns", ' ', &ret->step_ns) &&
                   take_number(&at, "cost_ns", '\0', &ret->save_cost_ns)
               ? 0
               : -EINVAL;
}

/* *ret_is_of_steps: else it is of saves. */
static int parse_report(const void *value, size_t size, struct fs_lane *ret, bool *ret_is_of_steps)
{
    char text[TEXT_MAX + 1];
    if (size > TEXT_MAX || memchr(value, '\0', size))
        return -EINVAL;
    memcpy(text, value, size);
    text[size] = '\0';
    *ret_is_of_steps = strncmp(text, OF_STEPS, strlen(OF_STEPS)) == 0;
    if (*ret_is_of_steps)
        return parse_steps(text + strlen(OF_STEPS), ret);
    return strncmp(text, OF_SAVES, strlen(OF_SAVES)) == 0
               ? parse_saves(text + strlen(OF_SAVES), ret)
               : -EINVAL;
}

/* Values that the report lacks stay as reported before. A report of steps does not count as
 * progress of saves. */
static void keep_rest(struct fs_lane *report, const struct fs_lane *known, bool is_of_steps)
{
    struct fs_lane now = is_of_steps ? *known : *report;
    now.step_ns = is_of_steps ? report->step_ns : known->step_ns;
    now.save_cost_ns = is_of_steps ? report->save_cost_ns : known->save_cost_ns;
    *report = now;
}

static bool is_same_process(const struct process *a, const struct process *b)
{
    return a->pid == b->pid && a->started == b->started;
}

static struct fs_lane *find_locked(struct lanes *lanes, const struct process *process)
{
    check_held(&lanes->lock);
    for (unsigned i = 0; i < lanes->count; i++)
        if (is_same_process(&lanes->list[i].process, process))
            return &lanes->list[i];
    return NULL;
}

static void remove_locked(struct lanes *lanes, struct fs_lane *lane)
{
    check_held(&lanes->lock);
    *lane = lanes->list[--lanes->count];
}

/* Drops entries whose process has ended. /proc is read without the lock. */
static void forget_ended(struct lanes *lanes)
{
    _cleanup_free_ struct process *processes = xcalloc(FS_LANES_MAX, sizeof *processes);
    unsigned count = 0;
    mutex_lock(&lanes->lock);
    for (; count < lanes->count; count++)
        processes[count] = lanes->list[count].process;
    mutex_unlock(&lanes->lock);
    for (unsigned i = 0; i < count; i++) {
        if (process_lives(&processes[i]))
            continue;
        LOCK_SCOPE(&lanes->lock);
        struct fs_lane *lane = find_locked(lanes, &processes[i]);
        if (lane)
            remove_locked(lanes, lane);
    }
}

static unsigned count_of_user_locked(const struct lanes *lanes, uid_t uid)
{
    check_held(&lanes->lock);
    unsigned count = 0;
    for (unsigned i = 0; i < lanes->count; i++)
        count += lanes->list[i].uid == uid;
    return count;
}

/* Drops the entry with the oldest report among those of the user who has most entries. `newcomer`
 * counts as having one more than are listed. */
static void make_room_locked(struct lanes *lanes, uid_t newcomer)
{
    check_held(&lanes->lock);
    struct fs_lane *least = NULL;
    unsigned most = 0;
    for (unsigned i = 0; i < lanes->count; i++) {
        struct fs_lane *lane = &lanes->list[i];
        unsigned count = count_of_user_locked(lanes, lane->uid) + (lane->uid == newcomer);
        if (count > most || (count == most && lane->seen < least->seen)) {
            most = count;
            least = lane;
        }
    }
    remove_locked(lanes, least);
    lanes->forgotten++;
}

static bool must_make_room(struct lanes *lanes, const struct process *process)
{
    LOCK_SCOPE(&lanes->lock);
    return lanes->count == FS_LANES_MAX && !find_locked(lanes, process);
}

int fs_lane_report(struct fs *fs, pid_t tid, uid_t uid, const void *value, size_t size)
{
    struct lanes *lanes = &fs->lanes;
    struct fs_lane lane = {.uid = uid, .seen = clock_monotonic_ns()};
    bool is_of_steps;
    TRY(parse_report(value, size, &lane, &is_of_steps));
    TRY(process_of_thread(tid, &lane.process));
    if (must_make_room(lanes, &lane.process))
        forget_ended(lanes);
    LOCK_SCOPE(&lanes->lock);
    if (!lanes->list)
        lanes->list = xcalloc(FS_LANES_MAX, sizeof *lanes->list);
    struct fs_lane *known = find_locked(lanes, &lane.process);
    if (known)
        keep_rest(&lane, known, is_of_steps);
    else if (lanes->count == FS_LANES_MAX)
        make_room_locked(lanes, uid);
    *(known ? known : &lanes->list[lanes->count++]) = lane;
    return 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct fs_lane *x = a, *y = b;
    return (x->process.pid > y->process.pid) - (x->process.pid < y->process.pid);
}

void fs_lanes(struct fs *fs, void (*fn)(const struct fs_lane *lane, void *arg), void *arg,
              uint64_t *ret_forgotten)
{
    struct lanes *lanes = &fs->lanes;
    _cleanup_free_ struct fs_lane *copy = NULL;
    unsigned count = 0;
    forget_ended(lanes);
    mutex_lock(&lanes->lock);
    *ret_forgotten = lanes->forgotten;
    if (lanes->count > 0) {
        count = lanes->count;
        copy = xcalloc(count, sizeof *copy);
        memcpy(copy, lanes->list, count * sizeof *copy);
    }
    mutex_unlock(&lanes->lock);
    if (count > 1)
        qsort(copy, count, sizeof *copy, by_pid);
    for (unsigned i = 0; i < count; i++)
        fn(&copy[i], arg);
}
