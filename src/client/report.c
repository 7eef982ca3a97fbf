// SPDX-License-Identifier: Apache-2.0
#include "client/report.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "client/lane.h"

#define NAME "user.cairn.lane"
#define TEXT_MAX 512 /* the mount refuses more */
#define INTERVAL_NS 1000000000ll

static _Atomic int64_t reported_ns; /* of the process */

static size_t make_text(const struct lanes_stats *stats, char text[TEXT_MAX])
{
    int n =
        snprintf(text, TEXT_MAX,
                 "1 pending=%llu saves=%llu blocked_ns=%llu published=%llu failed=%llu error=%s",
                 (unsigned long long)stats->pending_bytes, (unsigned long long)stats->pending_saves,
                 (unsigned long long)stats->blocked_ns, (unsigned long long)stats->published,
                 (unsigned long long)stats->failed, stats->error);
    return n < TEXT_MAX ? (size_t)n : TEXT_MAX - 1;
}

void report_progress(const struct draft *draft)
{
    char text[TEXT_MAX];
    struct lanes_stats stats;
    int64_t now = clock_monotonic_ns(),
            before = atomic_load_explicit(&reported_ns, memory_order_relaxed);
    if (draft->fd < 0 || (before && now - before < INTERVAL_NS) || !draft_on_cairn(draft) ||
        !atomic_compare_exchange_strong(&reported_ns, &before, now))
        return;
    lanes_stats(&stats);
    (void)fsetxattr(draft->fd, NAME, text, make_text(&stats, text), 0);
}

int report_open_directory(const struct draft *draft)
{
    return draft_on_cairn(draft) ? fcntl(draft->directory_fd, F_DUPFD_CLOEXEC, 0) : -1;
}

/* In a directory with the sticky bit only its owner may set attributes: then the attribute is set
 * on the file. */
static void write_report(int directory, const char *file, const char *text, size_t length)
{
    char path[64];
    /* an O_PATH descriptor does not support attributes */
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", directory);
    if (setxattr(path, NAME, text, length, 0) < 0 && (errno == EPERM || errno == EACCES))
        (void)lsetxattr(file, NAME, text, length, 0);
}

void report_end(const struct draft *draft, int directory, int error, const char *cause,
                bool is_counted)
{
    char text[TEXT_MAX];
    struct lanes_stats stats;
    if (error < 0)
        lanes_note_error(cause && cause[0] ? cause : strerror(-error));
    if (directory < 0)
        return;
    lanes_stats(&stats);
    if (!is_counted) {
        stats.pending_saves -= stats.pending_saves > 0;
        stats.published += error == 0;
        stats.failed += error < 0;
    }
    atomic_store(&reported_ns, clock_monotonic_ns());
    write_report(directory, draft->path, text, make_text(&stats, text));
}
