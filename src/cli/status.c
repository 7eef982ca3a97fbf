// SPDX-License-Identifier: Apache-2.0
/* cairn status: state, backlog and trouble in about nine lines. With -v all figures are printed,
 * from their table. */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/status.h"
#include "cli/target.h"
#include "daemon/figures.h"
#include "daemon/service.h"
#include "daemon/store_directory.h"

#define LABEL_WIDTH 18
#define FIGURE_WIDTH 28
#define STATUS_TIMEOUT_MS 15000
#define LANE_SILENT_S 5 /* a program reports once a second while it copies */

static void print_row(const char *label, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* Control characters of paths are replaced. */
static void print_row(const char *label, const char *fmt, ...)
{
    va_list ap;
    (void)printf("  %-*s", LABEL_WIDTH, label);
    va_start(ap, fmt);
    text_vprint(stdout, fmt, ap);
    va_end(ap);
}

/* --- trouble ---------------------------------------------------------------------------------- */

static void print_successor(const cJSON *successor)
{
    if (json_true(successor, "wanted") && !json_true(successor, "kept"))
        print_row("  successor", "no holder now: its process has died, and another is about "
                                 "to be started; if the daemon dies too, the mount ends");
    if (json_number(successor, "deaths") > 0)
        print_row(
            "  deaths",
            "%.0f daemons died, the last by %s; calls waited %s for the successor, and %.0f failed",
            json_number(successor, "deaths"),
            json_text_or(successor, "last_death", "an unknown cause"),
            human_seconds(json_number(successor, "pause_seconds")).text,
            json_number(successor, "calls_lost"));
}

static void print_view(const cJSON *view)
{
    const char *stays = json_text(view, "not_made_anew");
    if (json_true(view, "damaged"))
        print_row("  view", "damaged: lookups may fail, and writers will block; %s%s",
                  stays ? "it is not rebuilt now: " : "it is about to be rebuilt",
                  stays ? stays : "");
}

static void print_wrong_chunks(const cJSON *tier)
{
    double chunks = json_number(json_part(tier, "reduction"), "wrong_chunks");
    if (chunks > 0)
        print_row("  encoding fails",
                  "%.0f chunks did not decode to the same bytes, and are not stored so: "
                  "this processor or this build has a fault",
                  chunks);
}

static void print_trouble(const cJSON *remote)
{
    const char *state = json_text(remote, "state"),
               *error = json_text_or(remote, "error", "unknown");
    if (strcmp(state, "unreachable") == 0)
        print_row("  unreachable", "for %s: %s",
                  human_seconds(json_number(remote, "unreachable_s")).text, error);
    else if (strcmp(state, "fenced") == 0)
        print_row("  fenced", "%s", error);
    else if (json_number(remote, "errors") > 0)
        print_row("  errors", "%.0f, the last %s ago: %s", json_number(remote, "errors"),
                  human_seconds(json_number(remote, "error_age_s")).text, error);
}

/* Prints the changes that only a fenced mount has, as far as the daemon counted them. */
static void print_unpublished(const cJSON *remote)
{
    const char *more = json_true(remote, "unpublished_more") ? "more than " : "";
    if (!json_part(remote, "unpublished_changes"))
        return;
    if (json_count(remote, "unpublished_changes") == 0)
        print_row("  only here", "nothing: everything was published");
    else
        print_row("  only here",
                  "%s%.0f files, %s, of %.0f changes in the last %s: not published by this mount",
                  more, json_number(remote, "unpublished_files"),
                  json_bytes(remote, "unpublished_bytes").text,
                  json_number(remote, "unpublished_changes"),
                  human_seconds(json_number(remote, "seconds_behind")).text);
}

static void print_remote_damaged(const cJSON *remote)
{
    if (json_number(remote, "damaged_chunks") > 0)
        print_row(
            "  lost",
            "%.0f chunks are neither on NVMe nor in the remote: 'cairn scrub' names their files",
            json_number(remote, "damaged_chunks"));
    if (json_number(remote, "suspect_packs") > 0)
        print_row("  unreadable",
                  "%.0f packs are missing or damaged, and %.0f chunks of files lie only "
                  "there: asked for again; 'cairn scrub' names packs and files",
                  json_number(remote, "suspect_packs"), json_number(remote, "suspect_chunks"));
}

static void print_damage(const cJSON *damage)
{
    if (!cJSON_IsArray(damage))
        return;
    if (cJSON_GetArraySize(damage) == 0) {
        print_row("damage", "none found");
        return;
    }
    print_row("damage", "%d files cannot be read in full:", cJSON_GetArraySize(damage));
    const cJSON *item;
    cJSON_ArrayForEach(item, damage)
    {
        double more = json_number(item, "chunks") - 1;
        (void)printf("    %s: %s", json_text_or(item, "path", "?"),
                     json_text_or(item, "what", "damaged"));
        if (more > 0)
            (void)printf(", and %.0f more chunks", more);
        (void)printf("\n");
    }
}

/* The newest last. */
static void print_errors(const cJSON *status)
{
    const cJSON *item, *errors = json_part(status, "errors");
    if (!cJSON_IsArray(errors))
        return;
    if (cJSON_GetArraySize(errors) == 0) {
        print_row("errors", "none since the mount");
        return;
    }
    print_row("errors", "%llu failed calls of programs since the mount:",
              (unsigned long long)json_count(status, "errors_total"));
    if (json_count(status, "errors_forgotten"))
        (void)printf("    (%llu older ones omitted)\n",
                     (unsigned long long)json_count(status, "errors_forgotten"));
    cJSON_ArrayForEach(item, errors)
    {
        char first[32] = "";
        struct tm tm;
        time_t at = json_time(item, "first_s");
        (void)strftime(first, sizeof first, "%Y-%m-%d %H:%M:%S", localtime_r(&at, &tm));
        (void)printf("    %s: %s: %s: %llu times since %s: %s\n", json_text_or(item, "path", "?"),
                     json_text_or(item, "call", "?"), json_text_or(item, "error", "?"),
                     (unsigned long long)json_count(item, "count"), first,
                     json_text_or(item, "cause", "unknown"));
    }
}

static void print_lane(const cJSON *client)
{
    char left[64] = "nothing left", failed[80] = "", seen[64] = "";
    const char *error = json_text(client, "last_error");
    bool waits = json_count(client, "pending_saves") > 0;
    if (waits)
        (void)snprintf(left, sizeof left, "%s left of %llu saves",
                       json_bytes(client, "pending_bytes").text,
                       (unsigned long long)json_count(client, "pending_saves"));
    if (json_count(client, "failed") > 0)
        (void)snprintf(failed, sizeof failed, ", %llu failed",
                       (unsigned long long)json_count(client, "failed"));
    if (waits && json_number(client, "seen_s_ago") >= LANE_SILENT_S)
        (void)snprintf(seen, sizeof seen, ", silent for %s",
                       human_seconds(json_number(client, "seen_s_ago")).text);
    (void)printf("    pid %.0f, %s: %s, %llu saved%s, blocked for %s%s%s%s\n",
                 json_number(client, "pid"), json_text_or(client, "program", "?"), left,
                 (unsigned long long)json_count(client, "published"), failed,
                 human_seconds(json_number(client, "blocked_seconds")).text, seen,
                 error ? "; last error: " : "", error ? error : "");
}

/* Programs with libcairn. */
static void print_lanes(const cJSON *lanes)
{
    const cJSON *client, *clients = json_part(lanes, "clients");
    if (!cJSON_IsArray(clients) || cJSON_GetArraySize(clients) == 0)
        return;
    int count = cJSON_GetArraySize(clients);
    print_row("lazy saves", "%d program%s, %s to copy:", count, count == 1 ? "" : "s",
              json_bytes(lanes, "pending_bytes").text);
    if (json_count(lanes, "forgotten") > 0)
        (void)printf("    (%llu more omitted)\n",
                     (unsigned long long)json_count(lanes, "forgotten"));
    cJSON_ArrayForEach(client, clients)
    {
        print_lane(client);
    }
}

/* --- in some lines ---------------------------------------------------------------------------- */

static void print_stage(const cJSON *stage)
{
    if (json_text(stage, "dir"))
        print_row("stage", "%s, %s free of %s", json_text(stage, "dir"),
                  json_bytes(stage, "free_bytes").text, json_bytes(stage, "total_bytes").text);
    if (json_number(stage, "files_removed") > 0)
        print_row("  removed", "its files were removed: data not yet on NVMe is lost if the "
                               "daemon dies; unmount and mount again");
    if (json_text(stage, "left_in"))
        print_row("stage",
                  "up to %s of written data is in %s and not in the store yet; the next "
                  "mount recovers it",
                  json_bytes(stage, "left_bytes").text, json_text(stage, "left_in"));
    if (json_count(stage, "waiting_writers") > 0)
        print_row("  waiting", "%llu requests wait for space",
                  (unsigned long long)json_count(stage, "waiting_writers"));
}

static void print_nvme(const cJSON *nvme)
{
    if (!json_part(nvme, "used_bytes"))
        return;
    char cap[96] = "", evictable[64] = "", oldest[96] = "";
    if (json_count(nvme, "cap_bytes") > 0)
        (void)snprintf(cap, sizeof cap, " of %s, %s available", json_bytes(nvme, "cap_bytes").text,
                       json_bytes(nvme, "available_bytes").text);
    if (json_count(nvme, "evictable_bytes") > 0)
        (void)snprintf(evictable, sizeof evictable, ", %s more after eviction",
                       json_bytes(nvme, "evictable_bytes").text);
    if (json_count(nvme, "behind_files") > 0 || json_count(nvme, "behind_bytes") > 0)
        (void)snprintf(oldest, sizeof oldest, " in %llu files, the oldest change %s old",
                       (unsigned long long)json_count(nvme, "behind_files"),
                       human_seconds(json_number(nvme, "seconds_behind")).text);
    print_row("files", "%llu, %s, stored in %s", (unsigned long long)json_count(nvme, "files"),
              json_bytes(nvme, "logical_bytes").text, json_bytes(nvme, "stored_bytes").text);
    print_row("nvme", "%s used%s%s", json_bytes(nvme, "used_bytes").text, cap, evictable);
    if (json_count(nvme, "snapshots") > 0)
        print_row("history", "%.0f snapshots; %s that only they need",
                  json_number(nvme, "snapshots"), json_bytes(nvme, "snapshot_bytes").text);
    print_row("not yet on NVMe", "%s%s", json_bytes(nvme, "behind_bytes").text, oldest);
    if (json_number(nvme, "errors") > 0)
        print_row("  errors", "%.0f, the last %s ago: %s", json_number(nvme, "errors"),
                  human_seconds(json_number(nvme, "last_error_s_ago")).text,
                  json_text_or(nvme, "last_error", "unknown"));
    print_wrong_chunks(nvme);
}

static void print_not_uploaded(const cJSON *remote)
{
    double seconds = json_number(remote, "seconds_behind");
    if (json_count(remote, "behind_bytes") > 0)
        print_row("not yet uploaded", "%s, the oldest change %s old; uploading %s/s",
                  json_bytes(remote, "behind_bytes").text, human_seconds(seconds).text,
                  json_bytes(remote, "upload_bytes_per_s").text);
    else if (seconds > 0)
        print_row("not yet uploaded", "names and small files, the oldest change %s old",
                  human_seconds(seconds).text);
    else
        print_row("not yet uploaded", "0 B");
}

#define CHANGES_MAX 200000 /* that may wait for the union of all nodes */

static void print_nodes(const cJSON *nodes)
{
    const char *merger = json_text(nodes, "merger"), *waits_for = json_text(nodes, "waits_for"),
               *trouble = json_text(nodes, "trouble"), *not_shown = json_text(nodes, "not_shown");
    char age[80] = "no union of all yet";
    if (!nodes)
        return;
    if (json_number(nodes, "union_age_s") >= 0)
        (void)snprintf(age, sizeof age, "readers see the state of %s ago",
                       human_seconds(json_number(nodes, "union_age_s")).text);
    if (json_number(nodes, "merges") > 0)
        print_row("  nodes", "%.0f write, this one merges; %s", json_number(nodes, "nodes"), age);
    else
        print_row("  nodes", "%s merges; %s", merger && *merger ? merger : "another one", age);
    if (waits_for && *waits_for)
        print_row("  waits for",
                  "%s, which was not heard of for longer than the lease: mount its "
                  "STORE again",
                  waits_for);
    if (json_number(nodes, "changes_wait") > 0)
        print_row("  changes wait",
                  "this node could not look at the others for longer than the lease, or it "
                  "went back and is not open yet: 'cairn nodes' says more");
    if (json_number(nodes, "aside_only_there_bytes") > 0)
        print_row("  set aside", "%s beside the store: 'cairn nodes aside' lists it",
                  json_bytes(nodes, "aside_only_there_bytes").text);
    if (trouble && *trouble)
        print_row("  not told", "%s", trouble);
    if (json_number(nodes, "not_merged") >= CHANGES_MAX)
        print_row("  changes wait", "%.0f are not in the union of all nodes yet",
                  json_number(nodes, "not_merged"));
    if (not_shown && *not_shown)
        print_row("  not shown", "files of other nodes: %s", not_shown);
}

static void print_history(const cJSON *remote)
{
    uint64_t bytes = json_count(remote, "history_bytes"), kept = json_count(remote, "kept_states");
    if (kept > 0)
        print_row("history", "%s for earlier states; %llu %s kept", human_bytes(bytes).text,
                  (unsigned long long)kept, kept == 1 ? "state is" : "states are");
    else if (bytes > 0)
        print_row("history", "%s for earlier states, until gc", human_bytes(bytes).text);
}

/* Of a snapshot that is shown instead of the newest state. */
static void print_shown(const cJSON *mount)
{
    const char *at = json_text(mount, "at");
    if (at)
        print_row("shown", "snapshot %llu of -o at=%s",
                  (unsigned long long)json_count(mount, "shown_snapshot"), at);
}

static void print_remote(const cJSON *remote)
{
    const char *state = json_text_or(remote, "state", "none"), *at = json_text(remote, "at");
    if (strcmp(state, "none") == 0)
        return;
    print_row("remote", "%s, %s", json_text_or(remote, "name", "unknown"), state);
    if (at)
        print_row("  shown", "head %llu of -o at=%s: it does not follow",
                  (unsigned long long)json_count(remote, "head"), at);
    print_trouble(remote);
    print_nodes(json_part(remote, "nodes"));
    if (strcmp(state, "fenced") == 0)
        print_unpublished(remote);
    else
        print_not_uploaded(remote);
    print_history(remote);
    print_remote_damaged(remote);
    print_wrong_chunks(remote);
}

/* --- all figures ------------------------------------------------------------------------------ */

/* The encodings of chunks that were written to a tier since the mount. */
static void print_encodings(const cJSON *encodings)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, encodings)
    {
        const char *encoding = json_text(one, "encoding");
        uint64_t raw = json_count(one, "raw_bytes"), stored = json_count(one, "stored_bytes");
        if (encoding && raw > 0)
            (void)printf("    encoded as %-*s%s stored in %s (%.3f)\n", FIGURE_WIDTH - 11, encoding,
                         human_bytes(raw).text, human_bytes(stored).text,
                         (double)stored / (double)raw);
    }
}

static struct human figure_text(const struct figure *f, const cJSON *group)
{
    struct human h = {""};
    switch (f->unit) {
    case FIGURE_BYTES:
        return json_bytes(group, f->json);
    case FIGURE_SECONDS:
        return human_seconds(json_number(group, f->json));
    case FIGURE_MILLISECONDS:
        return human_seconds(json_number(group, f->json) / 1000);
    default:
        (void)snprintf(h.text, sizeof h.text, "%llu",
                       (unsigned long long)json_count(group, f->json));
        return h;
    }
}

static void print_figure(const struct figure *f, const cJSON *group)
{
    const cJSON *item = json_part(group, f->json);
    (void)printf("    %-*s", FIGURE_WIDTH, f->text);
    text_print(stdout, "%s",
               cJSON_IsString(item) && f->unit == FIGURE_WORDS ? item->valuestring
               : cJSON_IsBool(item)                            ? (cJSON_IsTrue(item) ? "yes" : "no")
                                                               : figure_text(f, group).text);
}

static void print_figures(cJSON *status)
{
    const char *title = NULL;
    for (const struct figure *f = figure_table; f->json; f++) {
        const cJSON *group = figure_group(status, f->group, false);
        if (!f->text || !json_part(group, f->json))
            continue;
        if (!title || strcmp(f->group, title) != 0) {
            title = f->group;
            (void)printf("  %s\n", *title ? title : "store");
            print_encodings(json_part(group, "encodings"));
        }
        print_figure(f, group);
    }
}

void status_print(cJSON *status, const char *store, bool all)
{
    json_make_printable(status);
    const char *mountpoint = json_text(status, "mountpoint");
    if (mountpoint)
        text_print(stdout, "%s, store %s", mountpoint, json_text_or(status, "store", store));
    else
        text_print(stdout, "%s (not mounted)", store);
    if (json_part(status, "pid"))
        print_row("daemon", "pid %.0f, up %s, version %s", json_number(status, "pid"),
                  human_seconds(json_number(status, "uptime_s")).text,
                  json_text_or(status, "version", "unknown"));
    print_successor(json_part(json_part(status, "mount"), "successor"));
    print_shown(json_part(status, "mount"));
    print_stage(json_part(status, "stage"));
    print_nvme(json_part(status, "nvme"));
    print_view(json_part(status, "view"));
    print_remote(json_part(status, "remote"));
    print_lanes(json_part(status, "lanes"));
    print_damage(json_part(status, "damage"));
    print_errors(status);
    if (all)
        print_figures(status);
}

struct status_request {
    bool json, all;
};

/* Reads the status of a store that is not mounted. */
static int offline_status(const char *store, cJSON **ret_status)
{
    _cleanup_close_ int lock_fd = -1;
    pid_t holder = 0;
    int r = store_directory_lock_patiently(store, NULL, &lock_fd, &holder);
    if (r == 0)
        r = service_offline_status(store, ret_status);
    if (r == -EBUSY)
        complain("status",
                 "store %s is in use by pid %d, which does not answer (starting or stopping?); try "
                 "again in a moment",
                 store, (int)holder);
    else if (r < 0)
        complain("status", "cannot read store %s: %s", store, strerror(-r));
    return r;
}

/* Returns NULL after a message. *ret_dead: there is a mount, but no daemon. */
static cJSON *status_of(const char *store, const char *mountpoint, bool *ret_dead)
{
    cJSON *status = NULL;
    pid_t holder;
    int r = ask_patiently(store, "status", STATUS_TIMEOUT_MS, &status);
    *ret_dead = false;
    if (r == -ENOENT || r == -ECONNREFUSED) {
        *ret_dead = mountpoint && store_directory_lock_holder(store, &holder) == STORE_IS_FREE;
        if (*ret_dead)
            complain("status", "the daemon of %s is dead; run 'cairn mount %s %s' to recover",
                     mountpoint, store, mountpoint);
        return offline_status(store, &status) < 0 ? NULL : status;
    }
    if (r == -ETIMEDOUT && store_directory_lock_holder(store, &holder) == STORE_IS_HELD)
        complain("status", "the daemon (pid %d) does not answer; its log: %s/log", (int)holder,
                 store);
    else if (r < 0)
        complain("status", "store %s: %s", store, daemon_trouble(r));
    return r < 0 ? NULL : status;
}

static int status_of_all(const struct command *command, const struct status_request *request)
{
    _cleanup_(mounts_done) struct mount_list list = {0};
    int code = target_mounts(command, &list);
    if (code != CLI_OK)
        return code;
    _cleanup_json_ cJSON *all = cJSON_CreateArray();
    if (list.count == 0 && !request->json)
        (void)printf("no CairnFS is mounted\n");
    for (size_t i = 0; i < list.count; i++) {
        const struct mount_entry *mount = &list.at[i];
        bool dead;
        cJSON *status = status_of(mount->store, mount->mountpoint, &dead);
        if (!status || dead)
            code = CLI_FAILED;
        if (status && !request->json) {
            (void)printf("%s", cJSON_GetArraySize(all) > 0 ? "\n" : "");
            status_print(status, mount->store, request->all);
        }
        if (status)
            (void)cJSON_AddItemToArray(all, status);
    }
    if (request->json)
        json_print(all);
    return code;
}

static int status_of_one(const struct target *target, const struct status_request *request)
{
    bool dead;
    _cleanup_json_ cJSON *status = status_of(target->store, target->mountpoint, &dead);
    if (status && request->json)
        json_print(status);
    else if (status)
        status_print(status, target->store, request->all);
    return status && !dead ? CLI_OK : CLI_FAILED;
}

static int execute_status(struct call *call)
{
    if (!*call->operands)
        return status_of_all(call->command, call->request);
    int code = target_of_any(call->command, *call->operands, &call->target);
    return code == CLI_OK ? status_of_one(&call->target, call->request) : code;
}

const struct command status_command = {
    .name = "status",
    .summary = "show the state of a mount or store; without an argument, of all mounts",
    .flags = (const struct flag[]){FLAG_JSON(offsetof(struct status_request, json)),
                                   {FLAG_OF('v', "verbose", FLAG_SET,
                                            offsetof(struct status_request, all)),
                                    .help = "print all figures, too"},
                                   {0}},
    REQUEST(struct status_request, 0),
    .operands = operands_any,
    .exits = EXITS("printed", "a daemon is dead or does not answer"),
    .execute = execute_status,
};
