// SPDX-License-Identifier: Apache-2.0
/* cairn nodes: the nodes that write a prefix together. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "base/vector.h"
#include "cli/ask.h"
#include "cli/horizon.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/target.h"
#include "daemon/store_directory.h"

#define LOOK_MS 50u
#define SETTLE_MS 1000u
#define LOOK_MS_MAX 30000
#define HOLDER_COLUMNS 49 /* of 100 */

struct nodes_request {
    bool is_json;
    int64_t timeout_ns; /* of settle; negative: none */
};

/* --- the list --------------------------------------------------------------------------------- */

/* Asks until the inquiry that the first answer names has ended. 1: the daemon was replaced
 * meanwhile. */
static int await_look(const struct call *call, cJSON *ask, cJSON **ret)
{
    int64_t until = clock_monotonic_ns() + LOOK_MS_MAX * MS_NS;
    uint64_t wanted = 0;
    for (;;) {
        cJSON *reply = NULL;
        if (ask_daemon(call->command->name, call->target.store, "nodes", ask, &reply) < 0)
            return -CLI_FAILED;
        ask = NULL;
        uint64_t number = json_count(reply, "number");
        bool runs = json_true(reply, "running");
        wanted = wanted ? wanted : number;
        if (!runs && number == wanted)
            *ret = reply;
        else
            cJSON_Delete(reply);
        if (!runs)
            return number != wanted;
        if (clock_monotonic_ns() > until) {
            complain(call->command->name, "the remote of %s does not answer",
                     call->target.mountpoint);
            return -CLI_FAILED;
        }
        if (!interrupt_sleep_ms(LOOK_MS))
            return -CLI_INTERRUPTED;
    }
}

/* The daemon queries the remote, and does not wait for it. `end`: before that it ends this epoch;
 * 0: none. */
static int look(const struct call *call, uint64_t end, cJSON **ret)
{
    int r = 1;
    while (r == 1) {
        cJSON *ask = cJSON_CreateObject();
        (void)cJSON_AddBoolToObject(ask, "look", true);
        if (end)
            control_add_u64(ask, "end", end);
        r = await_look(call, ask, ret);
        if (r == 1 && end)
            return complain(call->command->name,
                            "the daemon was replaced meanwhile: 'cairn nodes' "
                            "says whether epoch %" PRIu64 " is ended",
                            end);
    }
    const char *failed = r < 0 ? NULL : json_text(*ret, "failed");
    if (failed && end)
        return complain(call->command->name, "%s", failed);
    if (failed)
        return complain(call->command->name, "the remote cannot be read: %s", failed);
    return -r;
}

static bool is_in_state(const cJSON *stay, const char *state)
{
    return strcmp(json_text_or(stay, "state", ""), state) == 0;
}

static const cJSON *find_stay(const cJSON *reply, uint64_t epoch)
{
    const cJSON *stay;
    cJSON_ArrayForEach(stay, json_part(reply, "nodes"))
    {
        if (json_count(stay, "epoch") == epoch)
            return stay;
    }
    return NULL;
}

static const char *why_held_back(const cJSON *stay)
{
    const char *not_counted = json_text(stay, "not_counted");
    return not_counted                   ? not_counted
           : is_in_state(stay, "silent") ? "it was not heard of for longer than the lease"
           : !json_part(stay, "clock_error_s")
               ? "it does not know how right its clock is: see 'cairn nodes' there"
               : "it tells of no newer state";
}

static void print_held_back(const cJSON *stay)
{
    double behind = json_number(stay, "behind_s");
    char since[TEXT_TIME_LEN];
    text_time(clock_realtime_ns() - (int64_t)(behind * 1e9), since);
    text_print(stdout, "%s (epoch %" PRIu64 ") holds the union back, for %s since %s: %s.",
               json_text_or(stay, "holder", "?"), json_count(stay, "epoch"),
               human_seconds(behind).text, since, why_held_back(stay));
}

/* Prints one sentence: whether all nodes are well. */
static void print_summary(const cJSON *reply)
{
    const cJSON *all = json_part(reply, "union"), *stay;
    uint64_t held_back_by, count = 0;
    if (control_get_u64(all, "held_back_by", &held_back_by) &&
        (stay = find_stay(reply, held_back_by))) {
        print_held_back(stay);
        return;
    }
    cJSON_ArrayForEach(stay, json_part(reply, "nodes"))
    {
        count += is_in_state(stay, "lives");
    }
    if (json_count(all, "head") == 0)
        text_print(stdout, "No union of all yet; %" PRIu64 " %s.", count,
                   count == 1 ? "node writes" : "nodes write");
    else
        text_print(stdout, "All is well: %" PRIu64 " %s, readers see the state of %s ago.", count,
                   count == 1 ? "node writes" : "nodes write",
                   human_seconds(json_number(all, "age_s")).text);
}

static void print_union(const cJSON *reply)
{
    const cJSON *all = json_part(reply, "union");
    const char *merger = json_text_or(all, "merger", "");
    text_print(stdout, "union: head %" PRIu64 ", generation %" PRIu64 ", merged by %s",
               json_count(all, "head"), json_count(all, "generation"),
               json_true(all, "merged_here") ? "this node"
               : *merger                     ? merger
                                             : "no node at this moment");
}

#define COLUMNS "%6s  %5s  %-6s  %11s  %11s  %s%s\n"

static void print_stay(const cJSON *stay, uint64_t held_back_by)
{
    bool is_over = is_in_state(stay, "left") || is_in_state(stay, "ended");
    const char *holder = json_text_or(stay, "holder", "?");
    char epoch[24], node[24], shown[HOLDER_COLUMNS + 1];
    int len = snprintf(shown, sizeof shown, "%s", holder);
    if (len > HOLDER_COLUMNS) /* its end names the process */
        memcpy(shown + HOLDER_COLUMNS - 3, "...", 4);
    text_hide_controls(shown);
    (void)snprintf(epoch, sizeof epoch, "%" PRIu64, json_count(stay, "epoch"));
    (void)snprintf(node, sizeof node, "%" PRIu64, json_count(stay, "node"));
    (void)printf(COLUMNS, epoch, node, json_text_or(stay, "state", "?"),
                 is_over ? "-" : human_seconds(json_number(stay, "behind_s")).text,
                 human_seconds(json_number(stay, "heard_s_ago")).text,
                 held_back_by && json_count(stay, "epoch") == held_back_by ? "! "
                 : json_true(stay, "is_this")                              ? "* "
                                                                           : "  ",
                 shown);
}

static void print_not_counted(const cJSON *reply)
{
    const cJSON *stay;
    cJSON_ArrayForEach(stay, json_part(reply, "nodes"))
    {
        const char *why = json_text(stay, "not_counted");
        if (why)
            text_print(stdout, "what epoch %" PRIu64 " tells is not counted: %s",
                       json_count(stay, "epoch"), why);
    }
}

static void print_nodes(const cJSON *reply)
{
    const cJSON *stay;
    uint64_t held_back_by = 0;
    (void)control_get_u64(json_part(reply, "union"), "held_back_by", &held_back_by);
    const char *not_told = json_text(reply, "not_told");
    print_summary(reply);
    if (not_told)
        text_print(stdout, "This node tells the others nothing at the moment: %s.", not_told);
    print_union(reply);
    (void)printf("\n" COLUMNS, "EPOCH", "NODE", "STATE", "BEHIND", "HEARD AGO", "  ",
                 "STORE (*: this mount's, !: waited for)");
    cJSON_ArrayForEach(stay, json_part(reply, "nodes"))
    {
        print_stay(stay, held_back_by);
    }
    print_not_counted(reply);
}

static int list_nodes(struct call *call)
{
    const struct nodes_request *request = call->request;
    _cleanup_json_ cJSON *reply = NULL;
    int code = look(call, 0, &reply);
    if (code != CLI_OK)
        return code;
    cJSON_DeleteItemFromObject(reply, "running");
    cJSON_DeleteItemFromObject(reply, "number");
    if (request->is_json)
        json_print(reply);
    else
        print_nodes(reply);
    return CLI_OK;
}

/* --- states that were set aside --- */

struct aside {
    uint64_t generation;
    int64_t time; /* ns */
    struct io_sizes sizes;
};
DEFINE_VECTOR(asides, struct aside);

static int read_aside(const char *directory, struct asides *ret)
{
    DIR *dir = opendir(directory);
    if (!dir)
        return errno == ENOENT ? 0 : -errno;
    int r = 0;
    for (struct dirent *entry; r == 0 && (entry = readdir(dir));) {
        struct aside aside = {0};
        struct stat st;
        char *end;
        aside.generation = strtoull(entry->d_name, &end, 10);
        if (*end || end == entry->d_name || fstatat(dirfd(dir), entry->d_name, &st, 0) < 0)
            continue;
        _cleanup_free_ char *path = xasprintf("%s/%s", directory, entry->d_name);
        aside.time = (int64_t)st.st_mtim.tv_sec * SECOND_NS;
        r = io_tree_sizes(path, &aside.sizes);
        vector_add(ret, aside);
    }
    (void)closedir(dir);
    vector_sort(ret, compare_u64);
    return r;
}

static cJSON *describe_aside(const char *directory, const struct aside *aside)
{
    _cleanup_free_ char *path = xasprintf("%s/%" PRIu64, directory, aside->generation);
    char when[TEXT_TIME_LEN];
    cJSON *one = cJSON_CreateObject();
    text_time(aside->time, when);
    control_add_u64(one, "generation", aside->generation);
    (void)cJSON_AddStringToObject(one, "path", path);
    (void)cJSON_AddStringToObject(one, "time", when);
    control_add_u64(one, "bytes", aside->sizes.bytes);
    control_add_u64(one, "only_there_bytes", aside->sizes.only_there_bytes);
    return one;
}

static void print_aside(const char *directory, const struct asides *asides)
{
    if (asides->count == 0) {
        (void)printf("nothing was set aside\n");
        return;
    }
    (void)printf("%10s  %-20s  %10s  %10s\n", "GENERATION", "SET ASIDE", "SIZE", "ONLY THERE");
    for (size_t i = 0; i < asides->count; i++) {
        const struct aside *aside = &asides->at[i];
        char when[TEXT_TIME_LEN];
        text_time(aside->time, when);
        (void)printf("%10" PRIu64 "  %-20s  %10s  %10s\n", aside->generation, when,
                     human_bytes(aside->sizes.bytes).text,
                     human_bytes(aside->sizes.only_there_bytes).text);
    }
    const unsigned long long last = asides->at[asides->count - 1].generation;
    text_print(stdout, "free its space: rm -r %s/%llu", directory, last);
    text_print(stdout, "read one: cairn ls %s/%llu:/", directory, last);
}

static int list_aside(struct call *call)
{
    const struct nodes_request *request = call->request;
    struct asides asides = {0};
    _cleanup_free_ char *directory = xasprintf("%s/aside", call->target.store);
    _cleanup_json_ cJSON *list = cJSON_CreateArray();
    int r = read_aside(directory, &asides);
    for (size_t i = 0; i < asides.count; i++)
        (void)cJSON_AddItemToArray(list, describe_aside(directory, &asides.at[i]));
    if (r == 0 && request->is_json)
        json_print(list);
    else if (r == 0)
        print_aside(directory, &asides);
    vector_free(&asides);
    return r < 0 ? complain(call->command->name, "%s: %s", directory, strerror(-r)) : CLI_OK;
}

/* --- ending ----------------------------------------------------------------------------------- */

static void print_end(const struct nodes_request *request, uint64_t epoch, const char *holder)
{
    _cleanup_json_ cJSON *end = cJSON_CreateObject();
    control_add_u64(end, "epoch", epoch);
    (void)cJSON_AddStringToObject(end, "holder", holder);
    if (request->is_json)
        json_print(end);
    else
        text_print(stdout,
                   "epoch %" PRIu64 " (%s) is ended: all nodes go back to the newest state that "
                   "every one of them told",
                   epoch, holder);
}

/* Also ends an epoch whose node still answers: the caller knows better. */
static int end_epoch(struct call *call, const char *text)
{
    _cleanup_json_ cJSON *before = NULL, *after = NULL;
    char *end = NULL;
    errno = 0;
    uint64_t epoch = strtoull(text, &end, 10);
    if (*end || *text < '0' || *text > '9' || errno || epoch == 0)
        return complain_usage(call->command, "%s is not an EPOCH; 'cairn nodes' lists them", text);
    int code = look(call, 0, &before);
    const cJSON *stay = find_stay(before, epoch);
    if (code == CLI_OK && stay && (is_in_state(stay, "left") || is_in_state(stay, "ended")))
        return complain(call->command->name, "epoch %" PRIu64 " has %s already", epoch,
                        json_text(stay, "state"));
    if (code == CLI_OK)
        code = look(call, epoch, &after);
    if (code == CLI_OK)
        print_end(call->request, epoch, json_text_or(stay, "holder", "unknown"));
    return code;
}

/* --- processes -------------------------------------------------------------------------------- */

/* Without PID: the process group of this command, which is that of the calling script. */
static int rejoin(struct call *call, const char *text)
{
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *ask = cJSON_CreateObject();
    char *end = NULL;
    unsigned long pid = text ? strtoul(text, &end, 10) : 0;
    if (text && (*end || end == text || pid == 0 || pid > INT32_MAX)) {
        cJSON_Delete(ask);
        return complain_usage(call->command, "%s is not the number of a process", text);
    }
    if (text)
        control_add_u64(ask, "pid", pid);
    return ask_daemon(call->command->name, call->target.store, "rejoin", ask, &reply) < 0
               ? CLI_FAILED
               : CLI_OK;
}

/* *ret_settled: nothing is waited for any more; *waits_for: the cause that was printed last. */
static int look_if_settled(const struct call *call, char **waits_for, bool *ret_settled)
{
    _cleanup_json_ cJSON *reply = NULL;
    int code = look(call, 0, &reply);
    if (code != CLI_OK)
        return code;
    *ret_settled = json_true(reply, "settled");
    const char *now = json_text_or(reply, "waits_for", "");
    if (!*ret_settled && strcmp(now, *waits_for) != 0)
        text_print(stderr, "waits for %s", now);
    free(*waits_for);
    *waits_for = xstrdup(now);
    return CLI_OK;
}

/* A daemon that goes back ends, and the next one may take long to set its state aside: the mount
 * stays meanwhile. False: the time is over. */
static bool await_daemon(const struct call *call, int64_t deadline)
{
    const char *store = call->target.store;
    bool was_said = false;
    for (;;) {
        _cleanup_json_ cJSON *reply = NULL;
        pid_t holder;
        if (ask_patiently(store, "nodes", LOOK_MS_MAX, &reply) == 0 ||
            store_directory_lock_holder(store, &holder) != STORE_IS_HELD)
            return true;
        if (!was_said)
            text_print(stderr, "waits for the daemon of this mount: the next one starts");
        was_said = true;
        if (clock_monotonic_ns() >= deadline || !interrupt_sleep_ms(SETTLE_MS))
            return false;
    }
}

/* Waits until the mount shows the state to which all nodes went back: later steps of the job can
 * rely on it. */
static int settle(struct call *call)
{
    const struct nodes_request *request = call->request;
    int64_t deadline = horizon_deadline(request->timeout_ns);
    _cleanup_free_ char *waits_for = xstrdup("");
    bool is_settled = false;
    for (;;) {
        int code = await_daemon(call, deadline)
                       ? look_if_settled(call, &waits_for, &is_settled)
                       : complain(call->command->name, "timed out: waits for the daemon to start");
        if (code != CLI_OK)
            return code;
        if (is_settled)
            return rejoin(call, NULL);
        if (clock_monotonic_ns() >= deadline) {
            complain(call->command->name, "timed out: waits for %s", waits_for);
            return CLI_NOT_MET;
        }
        if (!interrupt_sleep_ms(SETTLE_MS))
            return CLI_INTERRUPTED;
    }
}

/* --- the command ------------------------------------------------------------------------------ */

/* The words of the first operand, and the operands behind it. */
static const struct kind {
    const char *word;
    const char *rest; /* for people */
    unsigned least, most;
} kinds[] = {{"list", "MOUNTPOINT", 1, 1},
             {"aside", "MOUNTPOINT or STORE", 1, 1},
             {"end", "MOUNTPOINT and EPOCH", 2, 2},
             {"settle", "MOUNTPOINT", 1, 1},
             {"rejoin", "MOUNTPOINT and PID", 1, 2}};
enum { KIND_LIST, KIND_ASIDE, KIND_END, KIND_SETTLE, KIND_REJOIN };

static int execute_kind(struct call *call, unsigned kind, char **operands)
{
    int code = kind == KIND_ASIDE ? target_of_any(call->command, operands[0], &call->target)
                                  : target_of_mount(call->command, operands[0], &call->target);
    if (code != CLI_OK)
        return code;
    switch (kind) {
    case KIND_ASIDE:
        return list_aside(call);
    case KIND_END:
        return end_epoch(call, operands[1]);
    case KIND_SETTLE:
        return settle(call);
    case KIND_REJOIN:
        return rejoin(call, operands[1]);
    default:
        return list_nodes(call);
    }
}

static int execute_nodes(struct call *call)
{
    char **operands = call->operands;
    unsigned count = 0, kind = 0;
    while (operands[count])
        count++;
    while (kind < ARRAY_LEN(kinds) && strcmp(kinds[kind].word, operands[0]) != 0)
        kind++;
    interrupt_catch(true);
    if (kind == ARRAY_LEN(kinds) && count > 1)
        return complain_usage(call->command, "unexpected argument '%s'; use %s", operands[0],
                              call->command->operands[0].name);
    if (kind == ARRAY_LEN(kinds))
        return execute_kind(call, KIND_LIST, operands);
    if (count - 1 < kinds[kind].least || count - 1 > kinds[kind].most)
        return complain_usage(call->command, "%s takes %s", operands[0], kinds[kind].rest);
    return execute_kind(call, kind, operands + 1);
}

#define FIELD(f) offsetof(struct nodes_request, f)
static const struct flag flags[] = {
    FLAG_JSON_OF("list, aside, end: print JSON", FIELD(is_json)),
    FLAG_TIMEOUT("settle: give up after TIME (10s, 5m)", FIELD(timeout_ns)),
    {0}};

const struct command nodes_command = {
    .name = "nodes",
    .summary = "show the nodes that write a remote together",
    .description =
        "list MOUNTPOINT, or MOUNTPOINT alone: who writes the remote of a mount with -o nodes, and "
        "whom the others wait for.\naside MOUNTPOINT|STORE: states that were set aside when all "
        "nodes went back to an earlier one.\nend MOUNTPOINT EPOCH: the others go on without that "
        "node, "
        "from the newest state that every one told.\nsettle MOUNTPOINT: waits until no node is "
        "silent and "
        "this "
        "one is open, then does as rejoin.\nrejoin MOUNTPOINT [PID]: from now on the process "
        "group of PID, or of who calls, may change files again.",
    .flags = flags,
    REQUEST(struct nodes_request, .timeout_ns = -1),
    .operands = (const struct operand[]){{.name = "list|aside|end|settle|rejoin",
                                          .offers = OFFER_WORDS | OFFER_MOUNTPOINTS},
                                         {.name = "MOUNTPOINT",
                                          .offers = OFFER_MOUNTPOINTS | OFFER_DIRECTORIES,
                                          .is_optional = true},
                                         {.name = "EPOCH|PID", .is_optional = true},
                                         {0}},
    .exits = EXITS_TIMED("done", "failed"),
    .execute = execute_nodes,
};
