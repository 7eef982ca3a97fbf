// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/json.h"
#include "daemon/store_directory.h"
#include "store/store.h"

static void print_adopted(const char *store, const char *id, bool json)
{
    if (!json) {
        text_print(stdout, "%s is a store of its own now; its id is %s", store, id);
        return;
    }
    cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(object, "store", store);
    (void)cJSON_AddStringToObject(object, "store_id", id);
    json_print(object);
    cJSON_Delete(object);
}

static int give_new_id(const char *store, bool json)
{
    char id[33] = "";
    char *text = NULL;
    int r = store_new_id(store, id, &text);
    if (r < 0)
        complain("adopt", "%s", text ? text : strerror(-r));
    else
        print_adopted(store, id, json);
    free(text);
    return r < 0 ? CLI_FAILED : CLI_OK;
}

static int adopt_store(const char *store, bool json)
{
    int lock_fd = -1;
    pid_t holder = 0;
    int r = store_lock_patiently(store, NULL, &lock_fd, &holder);
    if (r == -EBUSY) {
        complain("adopt", "store %s is in use by pid %d; unmount it first with 'cairn umount'",
                 store, (int)holder);
        return CLI_FAILED;
    }
    if (r < 0) {
        complain("adopt", "cannot lock store %s: %s; run as its owner, on a writable disk", store,
                 strerror(-r));
        return CLI_FAILED;
    }
    int code = give_new_id(store, json);
    (void)close(lock_fd);
    return code;
}

struct adopt_request {
    bool new_id, json;
};

static int execute_adopt(const struct command *command, int argc, char **argv)
{
    struct adopt_request request = {0};
    char **operands;
    int code = flags_parse(command, argc, argv, &request, &operands);
    if (code != CLI_OK)
        return code;
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", *operands);
    _cleanup_free_ char *store = NULL;
    struct stat st;
    if (lstat(superblock, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return complain_usage(command,
                              "%s is not a store; give the directory that 'cairn mount' was given",
                              *operands);
    int r = io_resolve_path(*operands, &store);
    if (r < 0) {
        complain("adopt", "%s: %s", *operands, strerror(-r));
        return CLI_FAILED;
    }
    return adopt_store(store, request.json);
}

const struct command adopt_command = {
    .name = "adopt",
    .summary = "turn the copy of a store into a store of its own",
    .description = "A copy has the id of its original and is refused, or warned about, beside it. "
                   "Journal, packs and history stay as they\n"
                   "are; a remote sees another writer from then on. The store must not be mounted.",
    .flags = (const struct flag[]){{.name = "new-id",
                                    .help = "give the store a new id",
                                    .offset = offsetof(struct adopt_request, new_id),
                                    .is_required = true},
                                   FLAG_JSON(offsetof(struct adopt_request, json)),
                                   {0}},
    .operands = (const struct operand[]){{.name = "STORE", .offers = OFFER_DIRECTORIES}, {0}},
    .exits = EXITS("done", "failed"),
    .execute = execute_adopt,
};
