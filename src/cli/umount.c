// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/horizon.h"
#include "cli/interrupt.h"
#include "cli/human.h"
#include "cli/namespaces.h"
#include "cli/target.h"
#include "daemon/control.h"
#include "daemon/lifecycle.h"
#include "daemon/store_directory.h"

/* A process that ends, or a reader of /proc, may hold a mount for some ms. */
#define UNMOUNT_TRIES 10
#define UNMOUNT_PAUSE_MS 100
/* By then the daemon of a mount that is gone everywhere has usually ended. */
#define COPIES_GRACE_NS 500000000ll
/* For copies that /proc does not show: a namespace without a process, a slow machine. */
#define UNSEEN_GRACE_NS 10000000000ll
#define END_TIMEOUT_MS 30000 /* for an answer; an ending daemon closes the connection */
/* The last writes are few: worth waiting for beyond --timeout. */
#define END_PATIENCE_NS 10000000000ll

enum drain_level { DRAIN_NVME, DRAIN_REMOTE }; /* in the order of the flag's words */

struct umount_request {
    int64_t timeout_ns; /* negative: none */
    unsigned drain;     /* enum drain_level */
    bool keep_others;   /* does not end the mount in other mount namespaces */
    /* of the mount to be removed: if the store names another stage, it was mounted again since;
     * NULL: not known */
    char *stage;
};

/* The words for an error of mount_remove(). */
static const char *removal_trouble(int r)
{
    return r == -EPERM && *cause_text() ? cause_text() : strerror(-r);
}

/* The kernel reuses the numbers of a mount that is gone for the next one. */
static bool is_same(const struct mount_entry *a, const struct mount_entry *b)
{
    return a->id == b->id && a->device == b->device && strcmp(a->mountpoint, b->mountpoint) == 0 &&
           strcmp(a->store, b->store) == 0;
}

/* Returns true if another process has unmounted it meanwhile. */
static bool is_gone(const struct mount_entry *mount)
{
    _cleanup_(mounts_done) struct mount_list now = {0};
    bool found = false;
    if (mounts_read("/proc/self/mountinfo", &now) < 0)
        return false;
    for (size_t i = 0; i < now.count; i++)
        found |= is_same(&now.at[i], mount);
    return !found;
}

/* Removes the mount of a dead daemon. */
static int remove_dead(const struct mount_entry *mount)
{
    int r = mount_remove(mount->mountpoint, true);
    if (r == 0 || is_gone(mount))
        return CLI_OK;
    return complain("umount", "cannot clear the mount of a dead daemon from %s: %s; try as root",
                    mount->mountpoint, removal_trouble(r));
}

/* --- the tiers -------------------------------------------------------------------------------- */

static bool is_last_stage(const struct umount_request *request, const char *stage)
{
    return stage && (!request->stage || strcmp(stage, request->stage) == 0);
}

/* The daemon is gone: verifies that NVMe has everything that it acknowledged. */
static int verify_nvme(const struct mount_entry *mount, const struct umount_request *request)
{
    _cleanup_free_ char *stage = NULL;
    int r = service_left_stage(mount->store, &stage);
    if (r < 0)
        complain("umount",
                 "%s is unmounted, but cannot tell whether all data is on NVMe: cannot read store "
                 "%s: %s",
                 mount->mountpoint, mount->store, strerror(-r));
    else if (is_last_stage(request, stage))
        complain("umount",
                 "%s is unmounted, but its daemon had died before all data was on NVMe; mount "
                 "store %s again to recover it from the stage (%s)",
                 mount->mountpoint, mount->store, stage);
    else
        return CLI_OK;
    return CLI_NOT_DRAINED;
}

/* The store has marks of all changes that are not published. The daemon may have died, or have been
 * told to hurry, so its last answer proves nothing. */
static int verify_remote(const struct mount_entry *mount)
{
    _cleanup_close_ int lock_fd = -1;
    pid_t holder = 0;
    uint64_t changes = 0, bytes = 0;
    int r = store_directory_lock_patiently(mount->store, NULL, &lock_fd, &holder);
    if (r == 0)
        r = service_unpublished(mount->store, &changes, &bytes);
    if (r == -EBUSY)
        complain("umount",
                 "%s is unmounted, but cannot tell whether the remote has all data: pid %d has "
                 "mounted store %s again; ask there with 'cairn wait --level remote'",
                 mount->mountpoint, (int)holder, mount->store);
    else if (r < 0)
        complain("umount",
                 "%s is unmounted, but cannot tell whether the remote has all data: cannot read "
                 "store %s: %s",
                 mount->mountpoint, mount->store, strerror(-r));
    else if (changes > 0)
        complain(
            "umount",
            "%s is unmounted, but %s is not in the remote yet; mount store %s again to upload it",
            mount->mountpoint, human_bytes(bytes).text, mount->store);
    else
        return CLI_OK;
    return CLI_NOT_DRAINED;
}

/* The disk of one of several nodes does not show whether the union has its data. */
static int verify_union(const struct mount_entry *mount)
{
    _cleanup_free_ char *node = xasprintf("%s/node", mount->store);
    if (access(node, F_OK) < 0)
        return CLI_OK;
    complain("umount",
             "%s is unmounted, and its data is in the remote, but cannot tell whether readers see "
             "all of it yet: that waits for other nodes",
             mount->mountpoint);
    return CLI_NOT_DRAINED;
}

/* The mount and its daemon are gone: only the disk decides whether this was a success. `waited`:
 * the daemon did not end before readers saw everything. */
static int umount_verify(const struct mount_entry *mount, const struct umount_request *request,
                         bool waited)
{
    int code = verify_nvme(mount, request);
    if (code == CLI_OK && request->drain == DRAIN_REMOTE)
        code = verify_remote(mount);
    return code == CLI_OK && request->drain == DRAIN_REMOTE && !waited ? verify_union(mount) : code;
}

/* --- draining and unmounting ------------------------------------------------------------------ */

/* CLI_OK, CLI_FAILED, or HORIZON_ENDED. */
static int ask_drain(const struct mount_entry *mount, const char *level, const bool *at_end,
                     cJSON **ret_reply)
{
    cJSON *request = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(request, "level", level);
    if (at_end)
        (void)cJSON_AddBoolToObject(request, "at_end", *at_end);
    int r = ask_daemon_or_end("umount", mount->store, "drain", request, ret_reply);
    return r == 0 ? CLI_OK : r == -ESHUTDOWN ? HORIZON_ENDED : CLI_FAILED;
}

static int umount_drain(const struct mount_entry *mount, bool remote, int64_t deadline)
{
    struct horizon_goal goal = {.store = mount->store, .is_remote = remote, .may_end = true};
    _cleanup_json_ cJSON *reply = NULL;
    uint64_t left = 0;
    int code = ask_drain(mount, remote ? "remote" : "nvme", NULL, &reply);
    if (code != CLI_OK)
        return code;
    if (!control_get_u64(reply, "seq", &goal.seq))
        return complain_answer("umount", mount->store);
    goal.generation = json_count(reply, "generation");
    code = horizon_wait("umount", &goal, 1, deadline, &left);
    if (code == CLI_NOT_MET)
        complain("umount",
                 "timed out: %s not yet %s; %s stays mounted; try again with a longer --timeout",
                 human_bytes(left).text, remote ? "in the remote" : "on NVMe", mount->mountpoint);
    return code;
}

/* Makes the daemon also upload data that is written between drain and unmount. */
static int set_drain_at_end(const struct mount_entry *mount, bool on)
{
    _cleanup_json_ cJSON *reply = NULL;
    return ask_drain(mount, "remote", &on, &reply);
}

static int fail_busy(const struct mount_entry *mount)
{
    complain("umount", "%s is in use; end these processes, then try again (all data is on NVMe)",
             mount->mountpoint);
    if (print_holders(mount->mountpoint, stderr) == 0)
        (void)fprintf(stderr, "  no process %s uses it\n",
                      geteuid() == 0 ? "visible here" : "visible to this user (root may see more)");
    return CLI_FAILED;
}

static int unmount_here(const struct mount_entry *mount)
{
    int r = chdir("/") < 0 ? -errno : -EBUSY; /* our own working directory may be in the mount */
    for (int i = 0; r == -EBUSY && i < UNMOUNT_TRIES; i++) {
        if (i > 0 && !interrupt_sleep_ms(UNMOUNT_PAUSE_MS))
            return CLI_INTERRUPTED;
        r = mount_remove(mount->mountpoint, false);
    }
    if (r == -EBUSY)
        return fail_busy(mount);
    if (r < 0 && is_gone(mount))
        return CLI_OK; /* another process has unmounted it */
    return r < 0 ? complain("umount",
                            "cannot unmount %s: %s; try as root or as the user who mounted it",
                            mount->mountpoint, removal_trouble(r))
                 : CLI_OK;
}

/* --- the end of the daemon -------------------------------------------------------------------- */

/* Ends the mount in other namespaces, too: it would keep the store in use for as long as they live.
 * All data is on NVMe; programs there get ENOTCONN. *ret_serves: the daemon was still serving.
 * Returns false if no daemon answers, most often because it is exiting. */
static bool end_everywhere(const struct mount_entry *mount, bool *ret_serves)
{
    _cleanup_json_ cJSON *reply = NULL;
    int r = ask_patiently(mount->store, "end", END_TIMEOUT_MS, &reply);
    *ret_serves = r == 0 && json_true(reply, "serves");
    return r == 0;
}

/* Returns false if no other namespace has the mount, or no daemon answers. */
static bool umount_copies(const struct mount_entry *mount)
{
    struct copy_list copies;
    bool serves = false;
    copies_find(mount, &copies);
    bool asked = copies.count > 0 && end_everywhere(mount, &serves);
    if (serves) {
        for (size_t i = 0; i < copies.count; i++)
            copies.at[i].stays = true; /* the copy did stay */
        complain("umount",
                 "%s is unmounted and all data is on NVMe; other mount namespaces or mounts have "
                 "it too, and it ends there as well",
                 mount->mountpoint);
        copies_print(&copies, stderr);
    }
    copies_done(&copies);
    return asked;
}

/* The daemon also ends for copies that /proc does not show us. A request to a daemon that is ending
 * already does no harm. */
static void end_unseen(const struct mount_entry *mount)
{
    bool serves;
    if (!end_everywhere(mount, &serves))
        complain(
            "umount",
            "%s is unmounted and all data is on NVMe; waiting for the daemon of store %s to exit",
            mount->mountpoint, mount->store);
    else if (serves)
        complain("umount",
                 "%s is unmounted and all data is on NVMe; a mount namespace that is not visible "
                 "here has it too, and it ends there as well",
                 mount->mountpoint);
}

/* Waits for the daemon's end: only then the store can be mounted, moved or copied. */
struct ending {
    const struct mount_entry *mount;
    int64_t deadline; /* of the request */
    int64_t began;
    bool looked, asked; /* for copies; to end */
    bool remote_left;   /* the time was over before the last writes were in the remote */
};

static void ending_help(struct ending *e)
{
    int64_t waited = clock_monotonic_ns() - e->began;
    if (!e->looked && waited > COPIES_GRACE_NS) {
        e->looked = true;
        e->asked = umount_copies(e->mount);
    } else if (!e->asked && waited > UNSEEN_GRACE_NS) {
        e->asked = true;
        end_unseen(e->mount);
    }
}

/* The mount is gone, and the rest needs no waiting caller. Returns false if the time is over. */
static bool ending_continues(struct ending *e, const struct umount_request *request, pid_t pid)
{
    int64_t now = clock_monotonic_ns();
    if (now < e->deadline)
        return true;
    if (request->drain == DRAIN_REMOTE && !e->remote_left) {
        e->remote_left = true;
        e->deadline = now + END_PATIENCE_NS;
        (void)set_drain_at_end(e->mount, false);
        return true;
    }
    if (now < e->began + END_PATIENCE_NS)
        return true;
    complain("umount",
             "%s is unmounted; the daemon (pid %d) writes the last data to NVMe and then exits; "
             "until then store %s is in use",
             e->mount->mountpoint, (int)pid, e->mount->store);
    return false;
}

/* Returns whether the daemon still has the store: enum store_lock, or -errno. A store that was
 * mounted again belongs to another daemon. */
static int ending_poll(const struct ending *e, const struct umount_request *request, pid_t *ret_pid)
{
    _cleanup_free_ char *stage = NULL;
    int held = store_directory_lock_holder(e->mount->store, ret_pid);
    if (held != STORE_IS_HELD || !request->stage || service_left_stage(e->mount->store, &stage) < 0)
        return held;
    return !stage || strcmp(stage, request->stage) == 0 ? STORE_IS_HELD : STORE_IS_FREE;
}

/* `drained`: the daemon was asked to wait for the remote at its end. */
static int await_end(const struct mount_entry *mount, const struct umount_request *request,
                     int64_t deadline, bool drained)
{
    struct ending e = {.mount = mount, .deadline = deadline, .began = clock_monotonic_ns()};
    pid_t pid = 0;
    int held;
    while ((held = ending_poll(&e, request, &pid)) == STORE_IS_HELD) {
        if (!ending_continues(&e, request, pid))
            return CLI_NOT_DRAINED;
        if (!interrupt_sleep_ms(20))
            return CLI_INTERRUPTED;
        ending_help(&e);
    }
    if (held == STORE_IS_FREE)
        return umount_verify(mount, request, drained && !e.remote_left);
    return complain("umount", "unmounted, but cannot tell whether the daemon has exited: %s",
                    strerror(-held));
}

static int refuse_for_others(const struct mount_entry *mount)
{
    struct copy_list copies;
    copies_find(mount, &copies);
    bool others = copies_that_stay(&copies) > 0;
    if (others) {
        complain(
            "umount",
            "%s stays mounted: other mount namespaces or mounts have it too, and would lose it",
            mount->mountpoint);
        copies_print(&copies, stderr);
    }
    copies_done(&copies);
    return others ? CLI_FAILED : CLI_OK;
}

/* Continues when no daemon answers any more: usually another umount was first. */
static int umount_without_daemon(const struct mount_entry *mount,
                                 const struct umount_request *request, int64_t deadline)
{
    if (!is_gone(mount))
        return complain("umount", "store %s: %s", mount->store, daemon_trouble(-ENOENT));
    return await_end(mount, request, deadline, false);
}

static int umount_one(const struct mount_entry *mount, const struct umount_request *request)
{
    int64_t deadline = horizon_deadline(request->timeout_ns);
    pid_t pid;
    int code;
    if (mount->cover)
        return complain("umount",
                        "%s is covered by another mount (%s); unmount that first: umount %s",
                        mount->mountpoint, mount->cover, mount->mountpoint);
    /* A store that is not visible from here has no lock either, though its daemon may be
     * running. */
    if (store_directory_lock_holder(mount->store, &pid) == STORE_IS_FREE &&
        mount_is_dead(mount->mountpoint))
        return (code = remove_dead(mount)) == CLI_OK ? umount_verify(mount, request, false) : code;
    code = request->keep_others ? refuse_for_others(mount) : CLI_OK;
    if (code == CLI_OK)
        code = umount_drain(mount, request->drain == DRAIN_REMOTE, deadline);
    if (code == CLI_OK && request->drain == DRAIN_REMOTE)
        code = set_drain_at_end(mount, true);
    if (code == CLI_OK && (code = unmount_here(mount)) != CLI_OK && request->drain == DRAIN_REMOTE)
        (void)set_drain_at_end(mount, false);
    if (code == HORIZON_ENDED)
        code = umount_without_daemon(mount, request, deadline);
    else if (code == CLI_OK)
        code = await_end(mount, request, deadline, true);
    return code;
}

static int execute_umount(struct call *call)
{
    struct umount_request *request = call->request;
    _cleanup_(mounts_done) struct mount_list list = {0};
    int code = target_mounts(call->command, &list);
    if (code != CLI_OK)
        return code;
    const struct mount_entry *mount = mounts_find(&list, *call->operands);
    interrupt_catch(false);
    /* Unreadable: then nothing is known of its end, either. */
    if (mount && service_left_stage(mount->store, &request->stage) < 0)
        request->stage = NULL;
    code =
        mount ? umount_one(mount, request) : target_no_mount(call->command, &list, *call->operands);
    free(request->stage);
    return code;
}

#define FIELD(f) offsetof(struct umount_request, f)
static const struct flag flags[] = {
    {FLAG_OF('d', "drain", FLAG_WORD, FIELD(drain)), .argument = "nvme|remote",
     .help = "remote: upload everything first; nvme (default): the next mount uploads the rest"},
    FLAG_TIMEOUT("give up after TIME (10s, 5m); the mount then stays as it is", FIELD(timeout_ns)),
    {FLAG_OF('k', "keep-others", FLAG_SET, FIELD(keep_others)),
     .help =
         "fail if another mount namespace has the mount too, instead of ending it there as well"},
    {0},
};

const struct command umount_command = {
    .name = "umount",
    .summary = "write everything to NVMe, unmount, and wait for the daemon to exit",
    .flags = flags,
    REQUEST(struct umount_request, .timeout_ns = -1),
    .operands = operands_mount,
    .description = "Only 0 means that the tier named with --drain has all data.",
    .exits =
        (const struct exit_status[]){
            {CLI_OK, "unmounted, and all data is on NVMe (with --drain remote: in the remote)"},
            {CLI_FAILED, "failed; if the mount is in use, its users are listed"},
            {CLI_USAGE, "wrong usage, or not a mountpoint"},
            {CLI_NOT_MET, "timed out, and still mounted"},
            {CLI_NOT_DRAINED, "unmounted, but not all data is there, or cannot tell; keep the "
                              "store, and mount it again"},
            {CLI_INTERRUPTED, "interrupted"},
            {0}},
    .execute = execute_umount,
};
