// SPDX-License-Identifier: Apache-2.0
/* cairn snapshot: states of a remote, or of a store, that have a name. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/horizon.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/source.h"
#include "cli/target.h"
#include "daemon/remote_address.h"
#include "daemon/when.h"

#define LOOK_MS 50u

struct snapshot_request {
    struct mount_options options;
    bool is_json;
    bool is_local; /* create: in the store, even if the mount has a remote */
};

/* --- by the mount that writes ----------------------------------------------------------------- */

/* *ret: the request is one for the remote of the mount. */
static int look_for_remote(const struct call *call, bool *ret)
{
    _cleanup_json_ cJSON *status = NULL;
    const struct snapshot_request *request = call->request;
    if (ask_daemon(call->command->name, call->target.store, "status", NULL, &status) < 0)
        return CLI_FAILED;
    *ret = json_text(json_part(status, "remote"), "name") && !request->is_local;
    return CLI_OK;
}

/* Waits until everything that was written before can be part of the snapshot. */
static int await_stored(const struct call *call, bool in_remote, uint64_t *ret_seq)
{
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *ask = cJSON_CreateObject();
    uint64_t left = 0;
    control_add_u64(ask, "ino", ROOT_INO);
    (void)cJSON_AddStringToObject(ask, "level", in_remote ? "remote" : "nvme");
    if (ask_daemon(call->command->name, call->target.store, "need", ask, &reply) < 0)
        return CLI_FAILED;
    if (!control_get_u64(reply, "seq", ret_seq))
        return complain_answer(call->command->name, call->target.store);
    const struct horizon_goal goal = {.store = call->target.store,
                                      .is_remote = in_remote,
                                      .seq = *ret_seq,
                                      .generation = json_count(reply, "generation")};
    return horizon_wait(call->command->name, &goal, 1, horizon_deadline(-1), &left);
}

/* The uploader, or the writeback thread, carries the request out between two rounds. *ret_reply:
 * the result. */
static int await_end(const struct call *call, uint64_t number, bool is_local, cJSON **ret_reply)
{
    for (;;) {
        uint64_t last = 0;
        cJSON *reply = NULL, *ask = cJSON_CreateObject();
        (void)cJSON_AddBoolToObject(ask, "local", is_local);
        if (ask_daemon(call->command->name, call->target.store, "named", ask, &reply) < 0)
            return CLI_FAILED;
        const char *why = json_text(reply, "failed");
        bool is_last = control_get_u64(reply, "number", &last) && last == number;
        if (is_last && !why && !json_true(reply, "running")) {
            *ret_reply = reply;
            return CLI_OK;
        }
        int code = !is_last
                       ? complain(call->command->name, "the daemon was replaced meanwhile: "
                                                       "'cairn snapshot list' says how it ended")
                   : why ? complain(call->command->name, "%s", why)
                         : CLI_OK;
        cJSON_Delete(reply);
        if (code != CLI_OK)
            return code;
        if (!interrupt_sleep_ms(LOOK_MS))
            return CLI_INTERRUPTED;
    }
}

static void print_created(const struct snapshot_request *request, const char *name, uint64_t head)
{
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    if (!request->is_json) {
        (void)printf("%s is head %" PRIu64 "\n", name, head);
        return;
    }
    (void)cJSON_AddStringToObject(object, "name", name);
    control_add_u64(object, "head", head);
    json_print(object);
}

static int ask_for_name(struct call *call, const char *kind, const char *name, const char *new_name)
{
    _cleanup_json_ cJSON *reply = NULL, *end = NULL;
    cJSON *ask = cJSON_CreateObject();
    const struct snapshot_request *request = call->request;
    uint64_t number = 0, seq = 0;
    bool in_remote;
    int code = look_for_remote(call, &in_remote);
    if (code == CLI_OK && *kind == 'c')
        code = await_stored(call, in_remote, &seq);
    (void)cJSON_AddStringToObject(ask, "kind", kind);
    (void)cJSON_AddStringToObject(ask, "name", name);
    if (new_name)
        (void)cJSON_AddStringToObject(ask, "new", new_name);
    control_add_u64(ask, "seq", seq);
    (void)cJSON_AddBoolToObject(ask, "local", request->is_local);
    if (code != CLI_OK)
        cJSON_Delete(ask);
    else if (ask_daemon(call->command->name, call->target.store, "name", ask, &reply) < 0)
        code = CLI_FAILED;
    else if (!control_get_u64(reply, "number", &number))
        code = complain_answer(call->command->name, call->target.store);
    if (code == CLI_OK)
        code = await_end(call, number, json_true(reply, "local"), &end);
    if (code == CLI_OK && *kind == 'c')
        print_created(request, name, json_count(end, "head"));
    return code;
}

static int check_name(const struct call *call, const char *name)
{
    _cleanup_free_ char *why = NULL;
    return when_check_name(name, &why) == 0 ? CLI_OK : complain_usage(call->command, "%s", why);
}

/* `operands` begin with the mountpoint. */
static int change_names(struct call *call, const char *kind, char **operands)
{
    const char *name = operands[1], *new_name = name ? operands[2] : NULL;
    bool is_rename = *kind == 'r';
    if (!name || !!new_name != is_rename)
        return complain_usage(call->command, "%s needs MOUNTPOINT and %s", kind,
                              is_rename ? "two names" : "one name");
    int code = check_name(call, name);
    if (code == CLI_OK && is_rename)
        code = check_name(call, new_name);
    if (code == CLI_OK)
        code = target_of_mount(call->command, operands[0], &call->target);
    return code == CLI_OK ? ask_for_name(call, kind, name, new_name) : code;
}

/* --- the list --------------------------------------------------------------------------------- */

/* Returns the source: a remote, a store, or that of a mount. */
static char *source_of(struct call *call, const char *operand, int *ret_code)
{
    _cleanup_json_ cJSON *status = NULL;
    *ret_code = CLI_OK;
    if (remote_address_is(operand) || may_be_store(operand))
        return xstrdup(operand);
    *ret_code = target_of_mount(call->command, operand, &call->target);
    if (*ret_code != CLI_OK)
        return NULL;
    if (ask_daemon(call->command->name, call->target.store, "status", NULL, &status) < 0) {
        *ret_code = CLI_FAILED;
        return NULL;
    }
    const char *name = json_text(json_part(status, "remote"), "name");
    return xstrdup(name ? name : call->target.store);
}

/* `is_local`: the name is one of the store, in a list of names of a remote. */
static void print_line(const struct past_name *one, bool is_local)
{
    char when[TEXT_TIME_LEN];
    text_time(one->head.published, when);
    if (one->error)
        (void)printf("%-24s  damaged\n", one->name);
    else
        (void)printf("%-24s  %8" PRIu64 "  %-20s  %9" PRIu64 "  %10s%s\n", one->name,
                     one->head.number, when, one->head.files,
                     human_bytes(one->head.logical_bytes).text,
                     is_local ? "  on this node only" : "");
}

static cJSON *line_json(const struct past_name *one, bool is_local)
{
    cJSON *object = cJSON_CreateObject();
    char when[TEXT_TIME_LEN];
    (void)cJSON_AddStringToObject(object, "name", one->name);
    if (is_local)
        (void)cJSON_AddBoolToObject(object, "local", true);
    if (one->error) {
        (void)cJSON_AddStringToObject(object, "error", "damaged");
        return object;
    }
    text_time(one->head.published, when);
    control_add_u64(object, "head", one->head.number);
    (void)cJSON_AddStringToObject(object, "time", when);
    (void)cJSON_AddNumberToObject(object, "published_s",
                                  (double)(one->head.published / 1000000) / 1000);
    (void)cJSON_AddNumberToObject(object, "created_s", (double)(one->created / 1000000) / 1000);
    control_add_u64(object, "files", one->head.files);
    control_add_u64(object, "bytes", one->head.logical_bytes);
    return object;
}

/* The first `count` names are those of the source, the others those of the mount's store. */
static void print_names(const struct past_names *names, size_t count, bool is_json)
{
    _cleanup_json_ cJSON *list = cJSON_CreateArray();
    if (!is_json && names->count)
        (void)printf("%-24s  %8s  %-20s  %9s  %10s\n", "NAME", "HEAD", "TIME", "FILES", "SIZE");
    for (size_t i = 0; i < names->count; i++) {
        if (is_json)
            (void)cJSON_AddItemToArray(list, line_json(&names->at[i], i >= count));
        else
            print_line(&names->at[i], i >= count);
    }
    if (is_json)
        json_print(list);
}

static int add_names(const struct call *call, const char *source, struct past_names *ret)
{
    const struct snapshot_request *request = call->request;
    struct offline *offline = NULL;
    _cleanup_vector_ struct past_names names = {0};
    _cleanup_free_ char *text = NULL;
    int r = offline_open_past(source, &request->options, &offline, &text);
    if (r == 0)
        r = past_list_names(offline_past(offline), &names);
    vector_add_all(ret, names.at, names.count);
    offline_close(offline);
    return r < 0 ? complain(call->command->name, "%s", text ? text : strerror(-r)) : CLI_OK;
}

/* If the remote of a mount cannot be read, the names of its store are listed nevertheless. */
static int list_names(struct call *call, char **operands)
{
    const struct snapshot_request *request = call->request;
    _cleanup_vector_ struct past_names names = {0};
    int code = CLI_OK, local = CLI_OK;
    if (operands[1])
        return complain_usage(call->command, "list takes one SOURCE");
    _cleanup_free_ char *source = source_of(call, operands[0], &code);
    if (code != CLI_OK)
        return code;
    code = add_names(call, source, &names);
    size_t count = names.count;
    if (call->target.store && remote_address_is(source))
        local = add_names(call, call->target.store, &names);
    if (code == CLI_OK || names.count)
        print_names(&names, count, request->is_json);
    return code == CLI_OK ? local : code;
}

/* --- the command ------------------------------------------------------------------------------ */

static int execute_snapshot(struct call *call)
{
    char **operands = call->operands;
    const char *kind = operands[0];
    log_set_level(LOG_LEVEL_ERROR);
    interrupt_catch(true);
    return strcmp(kind, "list") == 0 ? list_names(call, operands + 1)
                                     : change_names(call, kind, operands + 1);
}

static void more_help(void)
{
    source_print_help(
        "'list' takes s3://BUCKET/PREFIX, dir:/PATH or a store, too. These mount options (see "
        "'cairn help mount') select how it reaches a remote:");
}

#define FIELD(f) offsetof(struct snapshot_request, f)
static const struct flag flags[] = {
    {FLAG_OF('\0', "local", FLAG_SET, FIELD(is_local)),
     .help = "create: a snapshot of this node alone, which is there once it is on NVMe, and is not "
             "uploaded; all content of the files must be on NVMe"},
    FLAG_JSON_OF("list, create: print JSON", FIELD(is_json)),
    {0}};

const struct command snapshot_command = {
    .name = "snapshot",
    .summary = "give states a name, by which they stay",
    .description =
        "create MOUNTPOINT NAME: the state of now; returns when it is in the remote, or on NVMe "
        "where there is none, and with --local. list SOURCE. "
        "rename MOUNTPOINT NAME NEW.\ndelete MOUNTPOINT NAME: the state stays no longer than "
        "others. "
        "'cairn ls --at', 'cairn cp --at' and\na mount with -o ro,at= take the name.",
    .flags = flags,
    REQUEST(struct snapshot_request, .is_json = false),
    .operands =
        (const struct operand[]){{.name = "create|list|rename|delete", .offers = OFFER_WORDS},
                                 {.name = "MOUNTPOINT", .offers = OFFER_MOUNTPOINTS},
                                 {.name = "NAME", .is_optional = true},
                                 {.name = "NEW", .is_optional = true},
                                 {0}},
    .exits = EXITS_INTERRUPTED("done", "failed"),
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = more_help,
    .execute = execute_snapshot,
};
