// SPDX-License-Identifier: Apache-2.0
/* The caller of a request. The kernel supplies user and group; the rest comes from /proc. */
#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>

#include "fuse/internal.h"
#include "fuse/ops.h"

/* Groups of a process that has exited are unknown. */
static bool is_member(gid_t gid, void *arg)
{
    _cleanup_free_ gid_t *groups = xcalloc(NGROUPS_MAX, sizeof *groups);
    int count = fuse_req_getgroups(arg, NGROUPS_MAX, groups);
    for (int i = 0; i < count && i < NGROUPS_MAX; i++)
        if (groups[i] == gid)
            return true;
    return false;
}

/* In our own user namespace: root of another one has all capabilities there, too. */
static bool is_admin(void *arg)
{
    char path[64], ours[64] = "", theirs[64] = "", line[256];
    pid_t pid = fuse_req_ctx(arg)->pid;
    unsigned long long capabilities = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    if (readlink(path, theirs, sizeof theirs - 1) <= 0 ||
        readlink("/proc/self/ns/user", ours, sizeof ours - 1) <= 0 || strcmp(ours, theirs) != 0)
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        (void)sscanf(line, "CapEff: %llx", &capabilities);
    if (f)
        (void)fclose(f);
    return capabilities & (1ull << CAP_SYS_ADMIN);
}

struct fs_caller caller_of(fuse_req_t req)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    return (struct fs_caller){
        .uid = ctx->uid, .gid = ctx->gid, .is_member = is_member, .is_admin = is_admin, .arg = req};
}

bool caller_is_dying(pid_t tid)
{
    char path[64], line[256];
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
    FILE *f = tid > 0 ? fopen(path, "re") : NULL;
    if (!f) /* the process has exited, or is hidden from us (hidepid=) */
        return tid > 0 && kill(tid, 0) < 0 && errno == ESRCH;
    bool fatal = false;
    unsigned long long pending;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "SigPnd: %llx", &pending) == 1 ||
            sscanf(line, "ShdPnd: %llx", &pending) == 1)
            fatal = fatal || (pending & (1ull << (SIGKILL - 1)));
    (void)fclose(f);
    return fatal;
}
