// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/horizon.h"
#include "cli/mounts.h"
#include "cli/namespaces.h"
#include "daemon/control.h"
#include "daemon/lifecycle.h"
#include "daemon/store_folder.h"

#define UNMOUNT_TRIES 10 /* a process that ends, or a reader of /proc, may hold a mount for some ms */
#define UNMOUNT_PAUSE_MS 100
#define COPIES_GRACE_NS 500000000ll   /* the daemon of a mount that is gone everywhere has mostly ended by then */
#define UNSEEN_GRACE_NS 10000000000ll /* for what nobody shows us: a namespace without a process, a slow machine */
#define END_TIMEOUT_MS 30000          /* of an answer; an ending daemon closes the connection */
#define END_PATIENCE_NS 10000000000ll /* what was written last is little: worth waiting for beyond --timeout */

struct umount_request {
    int64_t timeout_ns; /* negative: none */
    bool remote;        /* all is to be in the remote first, not on NVMe only */
    bool keep_others;   /* no end where another mount namespace still has the mount */
};

/* The words for an error of mount_remove(). */
static const char *removal_trouble(int r)
{
    return r == -EPERM && *cause_text() ? cause_text() : strerror(-r);
}

/* The kernel gives the numbers of a mount that is gone to the next one. */
static bool is_same(const struct mount_entry *a, const struct mount_entry *b)
{
    return a->id == b->id && a->device == b->device && strcmp(a->mountpoint, b->mountpoint) == 0 && strcmp(a->store, b->store) == 0;
}

/* Returns true where another process has unmounted it meanwhile. */
static bool is_gone(const struct mount_entry *mount)
{
    struct mount_list now;
    bool found = false;
    if (mounts_read("/proc/self/mountinfo", &now) < 0)
        return false;
    for (size_t i = 0; i < now.count; i++)
        found |= is_same(&now.at[i], mount);
    mounts_done(&now);
    return !found;
}

/* The daemon is dead: what it had not carried is in the stage, and the next mount finds it. */
static int remove_dead(const struct mount_entry *mount)
{
    int r = mount_remove(mount->mountpoint, true);
    if (r < 0 && !is_gone(mount)) {
        complain("umount", "cannot clear the mount of a dead daemon from %s: %s; try as root", mount->mountpoint,
                 removal_trouble(r));
        return CLI_FAILED;
    }
    complain(
        "umount",
        "the daemon of %s was dead already; mount store %s again to recover what it had not carried to NVMe",
        mount->mountpoint, mount->store);
    return CLI_OK;
}

/* {"level":"remote"} where that is meant; NULL else. */
static cJSON *drain_request(bool remote)
{
    cJSON *request = remote ? cJSON_CreateObject() : NULL;
    if (remote)
        (void)cJSON_AddStringToObject(request, "level", "remote");
    return request;
}

static int drain(const struct mount_entry *mount, bool remote, int64_t deadline)
{
    struct horizon_goal goal = {.store = mount->store, .is_remote = remote, .may_end = true};
    cJSON *reply = NULL;
    uint64_t left = 0;
    int r = ask_daemon_or_end("umount", mount->store, "drain", drain_request(remote), &reply);
    if (r < 0)
        return r == -ESHUTDOWN ? HORIZON_ENDED : CLI_FAILED;
    bool known = control_get_u64(reply, "seq", &goal.seq);
    cJSON_Delete(reply);
    if (!known) {
        complain("umount", "store %s: %s", mount->store, daemon_trouble(-EBADMSG));
        return CLI_FAILED;
    }
    int code = horizon_wait("umount", &goal, 1, deadline, &left);
    if (code == CLI_NOT_MET)
        complain(
            "umount",
            "the time is up and %s are not %s yet; %s stays mounted: try again with a longer --timeout",
            human_bytes(left).text, remote ? "in the remote" : "on NVMe", mount->mountpoint);
    return code;
}

/* What is written between our drain and the unmount is to reach the remote, too. */
static int set_drain_at_end(const struct mount_entry *mount, bool on)
{
    cJSON *request = drain_request(true);
    cJSON *reply = NULL;
    (void)cJSON_AddBoolToObject(request, "at_end", on);
    int r = ask_daemon_or_end("umount", mount->store, "drain", request, &reply);
    if (r < 0)
        return r == -ESHUTDOWN ? HORIZON_ENDED : CLI_FAILED;
    cJSON_Delete(reply);
    return CLI_OK;
}

static int fail_busy(const struct mount_entry *mount)
{
    complain("umount", "%s is in use; end what uses it, then try again (all is on NVMe)", mount->mountpoint);
    unsigned holders = print_holders(mount->mountpoint, stderr);
    if (holders == 0)
        (void)fprintf(stderr, "  no process that %s holds it\n",
                      geteuid() == 0 ? "is visible here" : "you may look at (root may see more)");
    return CLI_FAILED;
}

static int unmount(const struct mount_entry *mount)
{
    int r = chdir("/") < 0 ? -errno : -EBUSY; /* our own working folder may be in the mount */
    for (int i = 0; r == -EBUSY && i < UNMOUNT_TRIES; i++) {
        if (i > 0 && !horizon_sleep_ms(UNMOUNT_PAUSE_MS))
            return CLI_INTERRUPTED;
        r = mount_remove(mount->mountpoint, false);
    }
    if (r == -EBUSY)
        return fail_busy(mount);
    if (r < 0 && is_gone(mount))
        return CLI_OK; /* another process has done it */
    if (r < 0)
        complain("umount", "cannot unmount %s: %s; try as root or as the user who mounted it", mount->mountpoint,
                 removal_trouble(r));
    return r < 0 ? CLI_FAILED : CLI_OK;
}

/* --- the end of the daemon ------------------------------------------------------------------------------------------------ */

/* What is unmounted here is still mounted elsewhere, where it would go on for as long as that lives, with the store in use. All that
 * was written is on NVMe: it ends there too, and who uses it there gets ENOTCONN. *ret_serves: it was so, until now. False: no daemon
 * answers, most often because it is just ending. */
static bool end_everywhere(const struct mount_entry *mount, bool *ret_serves)
{
    cJSON *request = cJSON_CreateObject(), *reply = NULL;
    (void)cJSON_AddStringToObject(request, "verb", "end");
    int r = request_patiently(mount->store, request, END_TIMEOUT_MS, &reply);
    *ret_serves = r == 0 && cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(reply, "serves"));
    cJSON_Delete(request);
    cJSON_Delete(reply);
    return r == 0;
}

/* Returns false where no other namespace has the mount, or no daemon answers. */
static bool end_copies(const struct mount_entry *mount)
{
    struct copy_list copies;
    bool serves = false;
    copies_find(mount, &copies);
    bool asked = copies.count > 0 && end_everywhere(mount, &serves);
    if (serves) {
        for (size_t i = 0; i < copies.count; i++)
            copies.at[i].stays = true; /* the copy did stay */
        complain("umount", "%s is unmounted, and all is on NVMe, but other mount namespaces or mounts have it too: it ends there as well",
                 mount->mountpoint);
        copies_print(&copies, stderr);
    }
    copies_done(&copies);
    return asked;
}

/* The daemon also ends for copies that /proc does not show us. To ask a daemon that is ending already does no harm. */
static void end_unseen(const struct mount_entry *mount)
{
    bool serves;
    if (!end_everywhere(mount, &serves))
        complain("umount", "%s is unmounted, and all is on NVMe; waiting for the daemon of store %s to end", mount->mountpoint,
                 mount->store);
    else if (serves)
        complain("umount",
                 "%s is unmounted, and all is on NVMe, but something that no process shows here still has it: it ends there as well",
                 mount->mountpoint);
}

/* The store can be mounted, moved or copied only once the daemon is gone. */
struct ending {
    const struct mount_entry *mount;
    int64_t deadline; /* of the request */
    int64_t began;
    bool looked, asked; /* for copies; to end */
    bool remote_left;   /* the time was up before the remote had what was written last */
};

static void help_end(struct ending *e)
{
    int64_t waited = clock_monotonic_ns() - e->began;
    if (!e->looked && waited > COPIES_GRACE_NS) {
        e->looked = true;
        e->asked = end_copies(e->mount);
    } else if (!e->asked && waited > UNSEEN_GRACE_NS) {
        e->asked = true;
        end_unseen(e->mount);
    }
}

/* The mount is gone, and the rest needs no caller that waits: the end of the time is no failure. Returns false where it is over. */
static bool go_on_waiting(struct ending *e, const struct umount_request *request, pid_t pid)
{
    int64_t now = clock_monotonic_ns();
    if (now < e->deadline)
        return true;
    if (request->remote && !e->remote_left) {
        e->remote_left = true;
        e->deadline = now + END_PATIENCE_NS;
        (void)set_drain_at_end(e->mount, false);
        return true;
    }
    if (now < e->began + END_PATIENCE_NS)
        return true;
    complain("umount", "%s is unmounted; the daemon (pid %d) carries what was written last to NVMe and ends by itself: until then "
                       "store %s is in use",
             e->mount->mountpoint, (int)pid, e->mount->store);
    return false;
}

static int code_of_end(const struct ending *e)
{
    if (e->remote_left)
        complain("umount", "%s is unmounted, but the time was up before the remote had what was written last: the next mount of store "
                           "%s goes on with it",
                 e->mount->mountpoint, e->mount->store);
    return e->remote_left ? CLI_FAILED : CLI_OK;
}

static int await_end(const struct mount_entry *mount, const struct umount_request *request, int64_t deadline)
{
    struct ending e = {.mount = mount, .deadline = deadline, .began = clock_monotonic_ns()};
    pid_t pid = 0;
    int held;
    while ((held = store_lock_holder(mount->store, &pid)) == 1) {
        if (!go_on_waiting(&e, request, pid))
            return code_of_end(&e);
        if (!horizon_sleep_ms(20))
            return CLI_INTERRUPTED;
        help_end(&e);
    }
    if (held < 0) {
        complain("umount", "unmounted, but cannot see whether the daemon has ended: %s", strerror(-held));
        return CLI_FAILED;
    }
    return code_of_end(&e);
}

static int refuse_for_others(const struct mount_entry *mount)
{
    struct copy_list copies;
    copies_find(mount, &copies);
    bool others = copies_that_stay(&copies) > 0;
    if (others) {
        complain("umount", "%s stays mounted: other mount namespaces or mounts have it too, and would lose it",
                 mount->mountpoint);
        copies_print(&copies, stderr);
    }
    copies_done(&copies);
    return others ? CLI_FAILED : CLI_OK;
}

/* No daemon answers any more: mostly another umount was first. */
static int go_on_without_daemon(const struct mount_entry *mount, const struct umount_request *request, int64_t deadline)
{
    if (!is_gone(mount)) {
        complain("umount", "store %s: %s", mount->store, daemon_trouble(-ENOENT));
        return CLI_FAILED;
    }
    if (request->remote)
        complain("umount", "somebody else has unmounted %s; it is not known whether the remote has all of it: the next mount of store %s goes "
                           "on with that",
                 mount->mountpoint, mount->store);
    int code = await_end(mount, request, deadline);
    return request->remote && code == CLI_OK ? CLI_FAILED : code;
}

static int umount_one(const struct mount_entry *mount, const struct umount_request *request)
{
    int64_t deadline = horizon_deadline(request->timeout_ns);
    pid_t pid;
    if (mount->cover) {
        complain("umount", "%s is covered by another mount (%s); unmount that first: umount %s", mount->mountpoint,
                 mount->cover, mount->mountpoint);
        return CLI_FAILED;
    }
    /* A store that is not to be seen from here has no lock either, though its daemon may be well. */
    if (store_lock_holder(mount->store, &pid) == 0 && mount_is_dead(mount->mountpoint))
        return remove_dead(mount);
    int code = request->keep_others ? refuse_for_others(mount) : CLI_OK;
    if (code == CLI_OK)
        code = drain(mount, request->remote, deadline);
    if (code == CLI_OK && request->remote)
        code = set_drain_at_end(mount, true);
    if (code == CLI_OK && (code = unmount(mount)) != CLI_OK && request->remote)
        (void)set_drain_at_end(mount, false);
    if (code == HORIZON_ENDED)
        code = go_on_without_daemon(mount, request, deadline);
    else if (code == CLI_OK)
        code = await_end(mount, request, deadline);
    return code;
}

static int set_drain(const struct verb *verb, const char *level, struct umount_request *request)
{
    request->remote = strcmp(level, "remote") == 0;
    if (!request->remote && strcmp(level, "nvme") != 0)
        return complain_usage(verb, "--drain '%s' is not known; use nvme or remote", level);
    return 0;
}

static int parse_arguments(const struct verb *verb, int argc, char **argv, struct umount_request *request)
{
    static const struct option flags[] = {
        {"timeout", required_argument, NULL, 't'}, {"drain", required_argument, NULL, 'd'},
        {"keep-others", no_argument, NULL, 'k'}, {0}};
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":t:d:k", flags, NULL)) != -1) {
        int code = found == 'd' ? set_drain(verb, optarg, request) : 0;
        if (code != 0)
            return code;
        if (found != 't' && found != 'd' && found != 'k')
            return complain_option(verb, found, argv);
        request->keep_others |= found == 'k';
        if (found == 't' && parse_duration(optarg, &request->timeout_ns) < 0)
            return complain_usage(verb, "--timeout '%s' is no time; give one such as 10s or 5m", optarg);
    }
    if (argc - optind != 1)
        return complain_usage(verb, "one MOUNTPOINT is needed; run: cairn umount %s", verb->synopsis);
    return 0;
}

int verb_umount(const struct verb *verb, int argc, char **argv)
{
    struct umount_request request = {.timeout_ns = -1};
    int code = parse_arguments(verb, argc, argv, &request);
    if (code != 0)
        return code;
    struct mount_list list;
    int r = mounts_read("/proc/self/mountinfo", &list);
    if (r < 0) {
        complain(verb->name, "cannot read /proc/self/mountinfo: %s; is /proc mounted?", strerror(-r));
        return CLI_FAILED;
    }
    const struct mount_entry *mount = mounts_find(&list, argv[optind]);
    horizon_catch_interrupts();
    if (mount)
        code = umount_one(mount, &request);
    else
        code =
            complain_usage(verb, "%s is no mountpoint of CairnFS; 'cairn status' lists them", argv[optind]);
    mounts_done(&list);
    return code;
}
