// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/cli.h"
#include "daemon/service.h"
#include "daemon/store_folder.h"

/* fsck(8)'s */
enum fsck_exit { FSCK_CLEAN = 0, FSCK_REPAIRED = 1, FSCK_PROBLEMS = 4, FSCK_OPERATIONAL = 8 };

static void print_finding(const char *line, bool is_problem, void *arg)
{
    (void)arg;
    text_print(stdout, "%s%s", is_problem ? "problem: " : "", line);
}

static int check_store(const char *store)
{
    int r = service_fsck(store, print_finding, NULL);
    if (r < 0) {
        complain("fsck", "cannot check %s: %s", store, strerror(-r));
        return FSCK_OPERATIONAL;
    }
    if (r > 0)
        text_print(stdout, "%s: %d problems", store, r);
    else
        text_print(stdout, "%s: clean", store);
    if (r > 0)
        return FSCK_PROBLEMS;
    /* main.c says what of the output was lost, but 1 would say that something was mended. */
    return fflush(stdout) != 0 || ferror(stdout) ? FSCK_OPERATIONAL : FSCK_CLEAN;
}

static int repair_store(const char *store)
{
    int r = service_repair(store, print_finding, NULL);
    if (r < 0) {
        complain("fsck", "cannot repair %s: %s", store, strerror(-r));
        return FSCK_OPERATIONAL;
    }
    if (r == 0)
        text_print(stdout, "%s: nothing is to be cut", store);
    int code = check_store(store);
    return code == FSCK_CLEAN && r > 0 ? FSCK_REPAIRED : code;
}

static int check_taken(const char *store, bool repair)
{
    int lock_fd = -1;
    pid_t holder = 0;
    int r = store_lock_patiently(store, NULL, &lock_fd, &holder);
    if (r == -EBUSY) {
        complain("fsck", "store %s is in use by pid %d; unmount it first with 'cairn umount'", store,
                 (int)holder);
        return FSCK_OPERATIONAL;
    }
    if (r < 0) {
        complain("fsck", "cannot lock store %s: %s; run as its owner, on a writable disk", store,
                 strerror(-r));
        return FSCK_OPERATIONAL;
    }
    int code = repair ? repair_store(store) : check_store(store);
    (void)close(lock_fd);
    return code;
}

int verb_fsck(const struct verb *verb, int argc, char **argv)
{
    static const struct option flags[] = {{"repair", no_argument, NULL, 'r'}, {0}};
    bool repair = false;
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":", flags, NULL)) != -1) {
        if (found != 'r')
            return complain_option(verb, found, argv);
        repair = true;
    }
    if (argc - optind != 1)
        return complain_usage(verb, "one STORE is needed; run: cairn fsck STORE");
    const char *store = argv[optind];
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", store);
    struct stat st;
    if (lstat(superblock, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return complain_usage(verb, "%s is no store; give the folder that 'cairn mount' was given", store);
    return check_taken(store, repair);
}
