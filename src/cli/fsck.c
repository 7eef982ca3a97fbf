// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/command.h"
#include "daemon/service.h"
#include "daemon/store_directory.h"

/* fsck(8)'s */
enum fsck_exit {
    FSCK_CLEAN = 0,
    FSCK_REPAIRED = 1,
    FSCK_PROBLEMS = 4,
    FSCK_OPERATIONAL = 8,
    FSCK_USAGE = 16
};

static void print_fsck_finding(const char *line, bool is_problem, void *arg)
{
    (void)arg;
    text_print(stdout, "%s%s", is_problem ? "problem: " : "", line);
}

static int fsck_check_directory(const char *store)
{
    int r = service_fsck(store, print_fsck_finding, NULL);
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
    int r = service_repair(store, print_fsck_finding, NULL);
    if (r < 0) {
        complain("fsck", "cannot repair %s: %s", store, strerror(-r));
        return FSCK_OPERATIONAL;
    }
    if (r == 0)
        text_print(stdout, "%s: the journal is whole; nothing was truncated", store);
    int code = fsck_check_directory(store);
    return code == FSCK_CLEAN && r > 0 ? FSCK_REPAIRED : code;
}

static int check_taken(const char *store, bool repair)
{
    int lock_fd = -1;
    pid_t holder = 0;
    int r = store_lock_patiently(store, NULL, &lock_fd, &holder);
    if (r == -EBUSY) {
        complain("fsck", "store %s is in use by pid %d; unmount it first with 'cairn umount'",
                 store, (int)holder);
        return FSCK_OPERATIONAL;
    }
    if (r < 0) {
        complain("fsck", "cannot lock store %s: %s; run as its owner, on a writable disk", store,
                 strerror(-r));
        return FSCK_OPERATIONAL;
    }
    int code = repair ? repair_store(store) : fsck_check_directory(store);
    (void)close(lock_fd);
    return code;
}

struct fsck_request {
    bool repair;
};

static int execute_fsck(const struct command *command, int argc, char **argv)
{
    struct fsck_request request = {0};
    char **operands;
    int code = flags_parse(command, argc, argv, &request, &operands);
    if (code != CLI_OK)
        return code;
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", *operands);
    struct stat st;
    if (lstat(superblock, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return complain_usage(command,
                              "%s is not a store; give the directory that 'cairn mount' was given",
                              *operands);
    return check_taken(*operands, request.repair);
}

const struct command fsck_command = {
    .name = "fsck",
    .summary = "check a store that is not mounted: every reference, every chunk",
    .flags = (const struct flag[]){{.name = "repair",
                                    .help = "truncate a damaged journal before the damage; the "
                                            "part behind it moves to STORE/lost+found",
                                    .offset = offsetof(struct fsck_request, repair)},
                                   {0}},
    .operands = (const struct operand[]){{.name = "STORE", .offers = OFFER_DIRECTORIES}, {0}},
    .exits = (const struct exit_status[]){{FSCK_CLEAN, "clean"},
                                          {FSCK_REPAIRED,
                                           "the journal was truncated, and the store is clean now"},
                                          {FSCK_PROBLEMS, "problems found"},
                                          {FSCK_OPERATIONAL, "the check could not run"},
                                          {FSCK_USAGE, "wrong usage"},
                                          {0}},
    .usage_exit = FSCK_USAGE,
    .execute = execute_fsck,
};
