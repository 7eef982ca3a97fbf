// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/cli.h"
#include "daemon/store_folder.h"
#include "store/store.h"

static int give_new_id(const char *store)
{
    char id[33] = "";
    char *text = NULL;
    int r = store_new_id(store, id, &text);
    if (r < 0)
        complain("adopt", "%s", text ? text : strerror(-r));
    else
        text_print(stdout, "%s is a store of its own now; its id is %s", store, id);
    free(text);
    return r < 0 ? CLI_FAILED : CLI_OK;
}

static int adopt_store(const char *store)
{
    int lock_fd = -1;
    pid_t holder = 0;
    int r = store_lock_patiently(store, NULL, &lock_fd, &holder);
    if (r == -EBUSY) {
        complain("adopt", "store %s is in use by pid %d; unmount it first with 'cairn umount'", store, (int)holder);
        return CLI_FAILED;
    }
    if (r < 0) {
        complain("adopt", "cannot lock store %s: %s; run as its owner, on a writable disk", store, strerror(-r));
        return CLI_FAILED;
    }
    int code = give_new_id(store);
    (void)close(lock_fd);
    return code;
}

int verb_adopt(const struct verb *verb, int argc, char **argv)
{
    static const struct option flags[] = {{"new-id", no_argument, NULL, 'n'}, {0}};
    bool new_id = false;
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":", flags, NULL)) != -1) {
        if (found != 'n')
            return complain_option(verb, found, argv);
        new_id = true;
    }
    if (argc - optind != 1)
        return complain_usage(verb, "one STORE is needed; run: cairn adopt %s", verb->synopsis);
    if (!new_id)
        return complain_usage(verb, "say how, with --new-id; see 'cairn help adopt'");
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", argv[optind]);
    _cleanup_free_ char *store = NULL;
    struct stat st;
    if (lstat(superblock, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return complain_usage(verb, "%s is no store; give the folder that 'cairn mount' was given", argv[optind]);
    int r = store_resolve(argv[optind], &store);
    if (r < 0) {
        complain("adopt", "%s: %s", argv[optind], strerror(-r));
        return CLI_FAILED;
    }
    return adopt_store(store);
}
