// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/io.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/target.h"
#include "store/store.h"

static void print_adopted(const char *store, const char *id, bool json)
{
    if (!json) {
        text_print(stdout, "%s is a store of its own now; its id is %s", store, id);
        return;
    }
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(object, "store", store);
    (void)cJSON_AddStringToObject(object, "store_id", id);
    json_print(object);
}

struct adopt_request {
    bool new_id, json;
};

static int execute_adopt(struct call *call)
{
    const struct adopt_request *request = call->request;
    _cleanup_free_ char *store = NULL, *text = NULL;
    _cleanup_close_ int lock_fd = -1;
    char id[33] = "";
    if (!may_be_store(*call->operands))
        return complain_usage(call->command,
                              "%s is not a store; give the directory that 'cairn mount' was given",
                              *call->operands);
    int r = io_resolve_path(*call->operands, &store);
    if (r < 0)
        return complain("adopt", "%s: %s", *call->operands, strerror(-r));
    if (!target_lock(call->command, store, &lock_fd))
        return CLI_FAILED;
    r = store_new_id(store, id, &text);
    if (r < 0)
        return complain("adopt", "%s", text ? text : strerror(-r));
    print_adopted(store, id, request->json);
    return CLI_OK;
}

const struct command adopt_command = {
    .name = "adopt",
    .summary = "turn the copy of a store into a store of its own",
    .description = "A copy has the id of its original and is refused, or warned about, beside it. "
                   "Journal, packs and history stay as they\n"
                   "are; a remote sees another writer from then on. The store must not be mounted.",
    .flags = (const struct flag[]){{FLAG_OF('\0', "new-id", FLAG_SET,
                                            offsetof(struct adopt_request, new_id)),
                                    .help = "give the store a new id", .is_required = true},
                                   FLAG_JSON(offsetof(struct adopt_request, json)),
                                   {0}},
    REQUEST(struct adopt_request, 0),
    .operands = (const struct operand[]){{.name = "STORE", .offers = OFFER_DIRECTORIES}, {0}},
    .exits = EXITS("done", "failed"),
    .execute = execute_adopt,
};
