// SPDX-License-Identifier: Apache-2.0
/* cairn history: the earlier states of a remote, or of a store without one, that still exist, or
 * the content of a path in each. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/history_internal.h"
#include "cli/interrupt.h"
#include "cli/source.h"
#include "cli/target.h"
#include "daemon/remote_address.h"

#define HEADS_USUAL 1000u
#define KEPT_MS 5000

static void states_done(struct states *states)
{
    for (size_t i = 0; i < states->count; i++) {
        free(states->at[i].trouble);
        free(states->at[i].names);
    }
    vector_free(states);
}

/* --- the source ------------------------------------------------------------------------------- */

/* A daemon of an earlier version does not know the verb. */
static void ask_kept(struct history *h, const char *store)
{
    if (ask_patiently(store, "kept", KEPT_MS, &h->kept) < 0)
        h->kept = NULL;
}

static int remote_of_mount(struct history *h, const struct mount_entry *mount)
{
    _cleanup_json_ cJSON *status = NULL;
    int r = ask_daemon(h->command->name, mount->store, "status", NULL, &status);
    const char *name = r == 0 ? json_text(json_part(status, "remote"), "name") : NULL;
    if (r < 0)
        return CLI_FAILED;
    h->source = xstrdup(name ? name : mount->store);
    if (name && json_count(json_part(status, "nvme"), "snapshots"))
        h->store = xstrdup(mount->store);
    ask_kept(h, mount->store);
    return CLI_OK;
}

/* The earlier states of a store with a remote are in the remote. */
static int take_store(struct history *h, const char *store)
{
    _cleanup_free_ char *remote = xasprintf("%s/remote", store);
    _cleanup_free_ char *snapshots = xasprintf("%s/snapshots", store);
    if (access(remote, F_OK) == 0 && access(snapshots, F_OK) < 0)
        return complain_usage(h->command,
                              "%s is a store whose earlier states are in its remote: give that, or "
                              "its mountpoint",
                              store);
    h->source = xstrdup(store);
    ask_kept(h, store);
    return CLI_OK;
}

/* The mountpoint, or a path on it, of which only the beginning needs to exist. */
static int take_mount(struct history *h, const char *text)
{
    _cleanup_(mounts_done) struct mount_list list = {0};
    _cleanup_free_ char *whole = path_absolute(text);
    const struct mount_entry *mount = NULL;
    int code = target_mounts(h->command, &list);
    if (code != CLI_OK)
        return code;
    for (size_t i = 0; whole && i < list.count; i++)
        if (path_is_inside(whole, list.at[i].mountpoint) &&
            (!mount || strlen(list.at[i].mountpoint) >= strlen(mount->mountpoint)))
            mount = &list.at[i];
    if (!mount && may_be_store(text))
        return take_store(h, text);
    if (!mount)
        return complain_usage(h->command,
                              "%s is neither s3://BUCKET/PREFIX, dir:/PATH nor on a "
                              "CairnFS mount",
                              text);
    const char *below = whole + strlen(mount->mountpoint);
    if (*below && h->path)
        return complain_usage(h->command, "%s is not the mountpoint %s: give one PATH", text,
                              mount->mountpoint);
    if (*below)
        h->path = xstrdup(below);
    return remote_of_mount(h, mount);
}

static int take_operands(struct history *h, char **operands)
{
    _cleanup_free_ char *name = NULL, *path = NULL;
    if (operands[1])
        h->path = xstrdup(operands[1]);
    if (!remote_address_is(operands[0]))
        return take_mount(h, operands[0]);
    offline_split(operands[0], &name, &path);
    bool has_path = strlen(name) < strlen(operands[0]);
    if (has_path && h->path)
        return complain_usage(h->command, "two paths: %s and %s", path, h->path);
    h->source = xstrdup(name);
    if (has_path)
        h->path = xstrdup(path);
    return CLI_OK;
}

static int open_source(struct history *h)
{
    char *text = NULL;
    int r = offline_open_past(h->source, &h->options, &h->offline, &text);
    if (r == 0) {
        if (offline_warning(h->offline))
            complain(h->command->name, "%s", offline_warning(h->offline));
        r = past_list(offline_past(h->offline), h->limit, &h->heads, &h->has_older);
        if (r == 0)
            r = past_list_names(offline_past(h->offline), &h->names);
        if (r < 0)
            text = xasprintf("%s: its heads cannot be read: %s", h->source, strerror(-r));
    }
    if (r == 0)
        return CLI_OK;
    complain(h->command->name, "%s", text);
    free(text);
    return r == -EINVAL ? command_usage_exit(h->command) : CLI_FAILED;
}

/* --- states ----------------------------------------------------------------------------------- */

static bool is_same_state(const struct past_head *a, const struct past_head *b)
{
    return a->error == 0 && b->error == 0 && memcmp(a->state, b->state, sizeof a->state) == 0;
}

static void find_states(const struct history *h, struct states *states)
{
    for (size_t i = 0; i < h->heads.count; i++) {
        const struct past_head *head = &h->heads.at[i];
        struct state *last = states->count ? &states->at[states->count - 1] : NULL;
        if (last && is_same_state(last->last, head)) {
            last->last = head;
            continue;
        }
        struct state state = {.first = head, .last = head, .is_shown = true};
        if (head->error)
            state.trouble =
                xstrdup(head->error == -EPROTONOSUPPORT ? "written by a newer version of CairnFS"
                                                        : "damaged");
        vector_add(states, state);
    }
}

/* Returns the bytes of packs that no other state needs. False: not known. */
static bool find_only(const struct history *h, const struct state *state, uint64_t *ret)
{
    const cJSON *one;
    uint64_t head;
    *ret = state->only;
    if (state->has_only)
        return true;
    cJSON_ArrayForEach(
        one, json_part(h->kept,
                       "heads")) if (control_get_u64(one, "head", &head) &&
                                     state->first->number <= head &&
                                     head <= state->last->number) return control_get_u64(one,
                                                                                         "bytes",
                                                                                         ret);
    return false;
}

static bool has_name(const struct state *state, const struct past_name *name)
{
    return name->error == 0 && state->first->number <= name->head.number &&
           name->head.number <= state->last->number;
}

static void find_names(const struct history *h, struct states *states)
{
    for (size_t i = 0; i < states->count; i++)
        for (size_t k = 0; k < h->names.count; k++) {
            struct state *state = &states->at[i];
            const char *name = h->names.at[k].name;
            if (!has_name(state, &h->names.at[k]))
                continue;
            char *names = state->names ? xasprintf("%s, %s", state->names, name) : xstrdup(name);
            free(state->names);
            state->names = names;
        }
}

/* --- lines ------------------------------------------------------------------------------------ */

static void print_head(const struct state *state)
{
    char numbers[48], when[TEXT_TIME_LEN] = "-";
    if (state->first == state->last)
        (void)snprintf(numbers, sizeof numbers, "%" PRIu64, state->first->number);
    else
        (void)snprintf(numbers, sizeof numbers, "%" PRIu64 "-%" PRIu64, state->first->number,
                       state->last->number);
    if (state->first->error == 0)
        text_time(state->first->published, when);
    (void)printf("%11s  %-20s  ", numbers, when);
}

static void print_difference(uint64_t now, uint64_t before, const char *what, bool is_bytes)
{
    uint64_t amount = now > before ? now - before : before - now;
    const char *sign = now > before ? "+" : now < before ? "-" : "";
    if (is_bytes)
        (void)printf("%s%s", sign, human_bytes(amount).text);
    else
        (void)printf("%s%" PRIu64 " %s, ", sign, amount, what);
}

static void print_changes(const struct past_path_sum *sum)
{
    (void)printf("  %" PRIu64 " made, %" PRIu64 " changed, %" PRIu64 " removed", sum->made,
                 sum->changed, sum->gone);
}

/* `before`: the last readable state before; NULL: not known. */
static void print_totals(const struct state *state, const struct state *before)
{
    const struct past_head *head = state->first;
    (void)printf("%9" PRIu64 "  %10s", head->files, human_bytes(head->logical_bytes).text);
    if (state->is_compared) {
        print_changes(&state->sum);
        (void)printf(", ");
    } else if (before) {
        (void)printf("  ");
        print_difference(head->files, before->last->files, "files", false);
    }
    if (before)
        print_difference(head->logical_bytes, before->last->logical_bytes, "", true);
}

static void print_path(const struct state *state, const struct state *before)
{
    const struct past_path_sum *sum = &state->sum;
    if (!sum->exists)
        (void)printf("%9s  %10s", "-", "-");
    else
        (void)printf("%9" PRIu64 "  %10s", sum->files, human_bytes(sum->bytes).text);
    if (before && !sum->exists)
        (void)printf("  removed");
    else if (before)
        print_changes(sum);
}

static const struct state *find_before(const struct states *states, size_t i)
{
    while (i-- > 0)
        if (!states->at[i].trouble)
            return &states->at[i];
    return NULL;
}

static bool is_any_shown(const struct states *states)
{
    bool any = false;
    for (size_t i = 0; i < states->count; i++)
        any = any || states->at[i].is_shown;
    return any;
}

/* The newest first. */
static int print_states(const struct history *h, const struct states *states)
{
    if (h->path && !is_any_shown(states))
        return complain(h->command->name, "%s:%s: in none of the heads that are there", h->source,
                        h->path);
    (void)printf("%11s  %-20s  %9s  %10s  %s\n", "HEAD", "TIME", "FILES", "SIZE",
                 "SINCE THE ONE BEFORE");
    for (size_t i = states->count; i-- > 0;) {
        const struct state *state = &states->at[i];
        if (!state->is_shown)
            continue;
        print_head(state);
        if (state->trouble) {
            text_print(stdout, "%s", state->trouble);
            continue;
        }
        if (h->path)
            print_path(state, find_before(states, i));
        else
            print_totals(state, find_before(states, i));
        uint64_t only;
        if (find_only(h, state, &only) && only)
            (void)printf("  %s of it alone", human_bytes(only).text);
        if (state->names)
            (void)printf("  (%s)", state->names);
        (void)printf("\n");
    }
    if (h->has_older)
        complain(h->command->name, "there are older heads: --limit shows more than %" PRIu64,
                 h->limit);
    if (h->store)
        complain(h->command->name, "%s has snapshots of its own: 'cairn history %s' lists them",
                 h->store, h->store);
    if (h->not_compared)
        complain(h->command->name,
                 "%zu of the states were not compared with the one before: with / as PATH, all are",
                 h->not_compared);
    return CLI_OK;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void add_changes(cJSON *one, const struct past_path_sum *sum)
{
    control_add_u64(one, "made", sum->made);
    control_add_u64(one, "changed", sum->changed);
    control_add_u64(one, "removed", sum->gone);
}

static void add_path(cJSON *one, const struct past_path_sum *sum)
{
    (void)cJSON_AddBoolToObject(one, "exists", sum->exists);
    if (sum->exists) {
        (void)cJSON_AddStringToObject(one, "type", sum->is_directory ? "directory" : "other");
        (void)cJSON_AddNumberToObject(one, "modified_s", (double)(sum->modified / 1000000) / 1000);
    }
    control_add_u64(one, "files", sum->files);
    control_add_u64(one, "bytes", sum->bytes);
    add_changes(one, sum);
}

static cJSON *state_json(const struct history *h, const struct state *state)
{
    cJSON *one = cJSON_CreateObject();
    char when[TEXT_TIME_LEN];
    control_add_u64(one, "head", state->first->number);
    control_add_u64(one, "last_head", state->last->number);
    if (state->first->error == 0) {
        text_time(state->first->published, when);
        (void)cJSON_AddStringToObject(one, "time", when);
        (void)cJSON_AddNumberToObject(one, "published_s",
                                      (double)(state->first->published / 1000000) / 1000);
    }
    cJSON *names = cJSON_AddArrayToObject(one, "names");
    for (size_t i = 0; i < h->names.count; i++)
        if (has_name(state, &h->names.at[i]))
            (void)cJSON_AddItemToArray(names, cJSON_CreateString(h->names.at[i].name));
    uint64_t only;
    if (find_only(h, state, &only))
        control_add_u64(one, "only_bytes", only);
    if (state->trouble)
        (void)cJSON_AddStringToObject(one, "error", state->trouble);
    else if (h->path)
        add_path(one, &state->sum);
    if (!state->trouble && !h->path) {
        control_add_u64(one, "files", state->first->files);
        control_add_u64(one, "bytes", state->first->logical_bytes);
        if (state->is_compared)
            add_changes(one, &state->sum);
    }
    return one;
}

static void print_json(const struct history *h, const struct states *states)
{
    _cleanup_json_ cJSON *root = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(root, "source", h->source);
    if (h->path)
        (void)cJSON_AddStringToObject(root, "path", h->path);
    (void)cJSON_AddBoolToObject(root, "has_older", h->has_older);
    cJSON *list = cJSON_AddArrayToObject(root, "states");
    for (size_t i = states->count; i-- > 0;)
        if (states->at[i].is_shown)
            (void)cJSON_AddItemToArray(list, state_json(h, &states->at[i]));
    json_print(root);
}

/* --- the command ------------------------------------------------------------------------------ */

static int show_history(struct history *h)
{
    _cleanup_(states_done) struct states states = {0};
    int code = open_source(h);
    if (code != CLI_OK)
        return code;
    find_states(h, &states);
    find_names(h, &states);
    if (h->path)
        history_look_at_path(h, &states);
    else
        history_compare_newest(h, &states);
    if (interrupted())
        return CLI_INTERRUPTED;
    if (!h->is_json)
        return print_states(h, &states);
    print_json(h, &states);
    return CLI_OK;
}

static int execute_history(struct call *call)
{
    struct history *h = call->request;
    h->command = call->command;
    log_set_level(LOG_LEVEL_ERROR);
    interrupt_catch(true);
    int code = take_operands(h, call->operands);
    if (code == CLI_OK)
        code = show_history(h);
    vector_free(&h->heads);
    vector_free(&h->names);
    cJSON_Delete(h->kept);
    offline_close(h->offline);
    free(h->source);
    free(h->path);
    free(h->store);
    return code;
}

static void more_help(void)
{
    source_print_help("SOURCE is s3://BUCKET/PREFIX, dir:/PATH, or a mountpoint, whose remote is "
                      "asked; PATH may also follow it: dir:/PATH:PATH. These mount\n"
                      "options (see 'cairn help mount') select how a remote is reached:");
}

#define FIELD(f) offsetof(struct history, f)
static const struct flag flags[] = {
    {FLAG_OF('n', "limit", FLAG_COUNT, FIELD(limit)), .argument = "N", .min = 1,
     .help = "look at the newest N heads at most (1000)"},
    FLAG_JSON(FIELD(is_json)),
    {0},
};

const struct command history_command = {
    .name = "history",
    .summary = "list earlier states of a remote or store, or of a path in it",
    .description =
        "Each head that the writer's gc has not removed yet is a state, and without a "
        "remote each snapshot of the store:\n"
        "'cairn ls --at' and 'cairn cp --at' show it. Heads of one state are one line, "
        "the newest comes first. Of the newest\n"
        "50, or as many as have two million files and chunks together, it tells how many "
        "files changed since the one before, and how\n"
        "large the packs are that no other one needs. With PATH: those in which files at "
        "or below it were made, changed or removed; all\n"
        "states are looked at. Links are not followed.",
    .flags = flags,
    REQUEST(struct history, .limit = HEADS_USUAL),
    .operands = (const struct operand[]){{.name = "SOURCE",
                                          .offers = OFFER_MOUNTPOINTS | OFFER_DIRECTORIES},
                                         {.name = "PATH", .is_optional = true},
                                         {0}},
    .exits = EXITS_INTERRUPTED("printed", "failed"),
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = more_help,
    .execute = execute_history,
};
