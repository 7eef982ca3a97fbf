// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/mounts.h"
#include "cli/target.h"
#include "daemon/service.h"
#include "daemon/store_directory.h"

#define LABEL_WIDTH 18
#define STATUS_TIMEOUT_MS 15000
#define LANE_SILENT_S 5 /* a program reports once a second while it copies */

static void status_print_row(const char *label, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* Paths in it may hold what a terminal should not see. */
static void status_print_row(const char *label, const char *fmt, ...)
{
    va_list ap;
    (void)printf("  %-*s", LABEL_WIDTH, label);
    va_start(ap, fmt);
    text_vprint(stdout, fmt, ap);
    va_end(ap);
}

static void print_successor(const cJSON *successor)
{
    const char *death = json_text(successor, "last_death");
    if (cJSON_IsTrue(json_part(successor, "wanted")) && !cJSON_IsTrue(json_part(successor, "kept")))
        status_print_row(
            "  successor",
            "no holder now: its process has died, and another is about to be started; if the "
            "daemon dies too, the mount ends");
    if (json_number(successor, "deaths") > 0)
        status_print_row(
            "  deaths",
            "%.0f daemons died, the last by %s; calls waited %s for the successor, and %.0f failed",
            json_number(successor, "deaths"), death ? death : "an unknown cause",
            human_seconds(json_number(successor, "pause_seconds")).text,
            json_number(successor, "calls_lost"));
}

static void print_stage(const cJSON *stage)
{
    if (json_text(stage, "dir"))
        status_print_row("stage", "%s, %s", json_text(stage, "dir"),
                         json_bytes(stage, "total_bytes").text);
    else if (json_part(stage, "total_bytes"))
        status_print_row("stage", "%s", json_bytes(stage, "total_bytes").text);
    if (json_number(stage, "files_removed") > 0)
        status_print_row("  removed",
                         "its files were removed: data not yet on NVMe is lost if the daemon dies; "
                         "unmount and mount again");
    if (json_text(stage, "left_in"))
        status_print_row(
            "stage",
            "up to %s of written data is in %s and not in the store yet; the next mount recovers "
            "it",
            json_bytes(stage, "left_bytes").text, json_text(stage, "left_in"));
    if (json_part(stage, "dirty_bytes"))
        status_print_row("  content", "%s not on NVMe yet, %s kept for reading, %s free",
                         json_bytes(stage, "dirty_bytes").text,
                         json_bytes(stage, "clean_bytes").text,
                         json_bytes(stage, "free_bytes").text);
    if (json_part(stage, "drafts"))
        status_print_row("  being written", "%.0f files, %s", json_number(stage, "drafts"),
                         json_bytes(stage, "draft_bytes").text);
    if (json_part(stage, "waiting_writers"))
        status_print_row("  waits for space",
                         "%.0f writers now, %.0f waits since the mount, %s in total",
                         json_number(stage, "waiting_writers"), json_number(stage, "wait_count"),
                         human_seconds(json_number(stage, "wait_ms_total") / 1000).text);
}

static void print_nvme_room(const cJSON *nvme)
{
    if (!json_part(nvme, "used_bytes"))
        return;
    uint64_t cap = json_count(nvme, "cap_bytes");
    (void)printf("  %-*s%s used", LABEL_WIDTH, "  space", json_bytes(nvme, "used_bytes").text);
    if (cap > 0)
        (void)printf(" of %s", human_bytes(cap).text);
    if (json_part(nvme, "reserved_bytes"))
        (void)printf(", %s reserved", json_bytes(nvme, "reserved_bytes").text);
    if (json_part(nvme, "available_bytes"))
        (void)printf(", %s available", json_bytes(nvme, "available_bytes").text);
    if (json_count(nvme, "evictable_bytes") > 0)
        (void)printf(", %s more by eviction", json_bytes(nvme, "evictable_bytes").text);
    (void)printf("\n");
}

static void print_behind(const cJSON *nvme)
{
    if (!json_part(nvme, "behind_bytes"))
        return;
    if (json_count(nvme, "behind_bytes") == 0 && json_number(nvme, "behind_files") == 0)
        status_print_row("  behind", "nothing: all data is on NVMe");
    else
        status_print_row("  behind", "%s in %.0f files, %s", json_bytes(nvme, "behind_bytes").text,
                         json_number(nvme, "behind_files"),
                         human_seconds(json_number(nvme, "seconds_behind")).text);
}

static void status_print_view(const cJSON *view)
{
    const char *stays = json_text(view, "not_made_anew");
    if (cJSON_IsTrue(json_part(view, "damaged")))
        status_print_row("  view", "damaged: lookups may fail, and writers will block; %s%s",
                         stays ? "it is not rebuilt now: " : "it is about to be rebuilt",
                         stays ? stays : "");
}

/* Prints the encodings of chunks that were stored in a tier since the mount; `chunks` names them.
 */
static void print_reduction(const cJSON *reduction, const char *chunks)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, json_part(reduction, "encodings"))
    {
        const char *encoding = json_text(one, "encoding");
        uint64_t raw = json_count(one, "raw_bytes"), stored = json_count(one, "stored_bytes");
        if (encoding && raw > 0)
            status_print_row(chunks, "%s: %s stored in %s (%.3f)", encoding, human_bytes(raw).text,
                             human_bytes(stored).text, (double)stored / (double)raw);
    }
    if (json_number(reduction, "cpu_s") > 0)
        status_print_row("  encoding took", "%s of CPU time",
                         human_seconds(json_number(reduction, "cpu_s")).text);
    if (json_number(reduction, "wrong_chunks") > 0)
        status_print_row(
            "  encoding fails",
            "%.0f chunks did not decode to the same bytes, and are not stored so: this "
            "processor or this build has a fault",
            json_number(reduction, "wrong_chunks"));
}

/* Prints what a tier keeps of deleted files. */
static void status_print_held(const cJSON *tier)
{
    if (json_count(tier, "held_bytes") > 0)
        status_print_row("  kept for others", "%s that no file has, and files are stored by",
                         json_bytes(tier, "held_bytes").text);
}

static void print_nvme(const cJSON *nvme)
{
    if (json_text(nvme, "path"))
        status_print_row("nvme", "%s", json_text(nvme, "path"));
    print_nvme_room(nvme);
    if (json_part(nvme, "files"))
        status_print_row("  content", "%.0f files, %s, stored in %s", json_number(nvme, "files"),
                         json_bytes(nvme, "logical_bytes").text,
                         json_bytes(nvme, "stored_bytes").text);
    if (json_part(nvme, "chunks"))
        status_print_row("  packs", "%.0f packs, %s, with %.0f chunks", json_number(nvme, "packs"),
                         json_bytes(nvme, "pack_bytes").text, json_number(nvme, "chunks"));
    status_print_held(nvme);
    print_behind(nvme);
    if (json_part(nvme, "horizon_seq"))
        status_print_row("  horizon", "operation number %llu; the newest is %llu",
                         (unsigned long long)json_count(nvme, "horizon_seq"),
                         (unsigned long long)json_count(nvme, "newest_seq"));
    if (json_part(nvme, "written_bytes_total"))
        status_print_row("  since the mount",
                         "%s written, %s deduplicated, %s deleted before they were written",
                         json_bytes(nvme, "written_bytes_total").text,
                         json_bytes(nvme, "dedup_bytes_total").text,
                         json_bytes(nvme, "dropped_bytes_total").text);
    print_reduction(json_part(nvme, "reduction"), "  new chunks");
    if (json_number(nvme, "errors") > 0)
        status_print_row("  errors", "%.0f, the last %s ago: %s", json_number(nvme, "errors"),
                         human_seconds(json_number(nvme, "last_error_s_ago")).text,
                         json_text(nvme, "last_error") ? json_text(nvme, "last_error") : "unknown");
}

static void print_trouble(const cJSON *remote)
{
    const char *state = json_text(remote, "state"), *error = json_text(remote, "error");
    if (strcmp(state, "unreachable") == 0)
        status_print_row("  unreachable", "for %s: %s",
                         human_seconds(json_number(remote, "unreachable_s")).text,
                         error ? error : "unknown");
    else if (strcmp(state, "fenced") == 0)
        status_print_row("  fenced", "%s", error ? error : "another writer has taken over");
    else if (json_number(remote, "errors") > 0)
        status_print_row("  errors", "%.0f, the last %s ago: %s", json_number(remote, "errors"),
                         human_seconds(json_number(remote, "error_age_s")).text,
                         error ? error : "unknown");
}

/* Prints what only a fenced mount has, as far as the daemon counted it. */
static void print_unpublished(const cJSON *remote)
{
    const char *more = cJSON_IsTrue(json_part(remote, "unpublished_more")) ? "more than " : "";
    if (!json_part(remote, "unpublished_changes"))
        return;
    if (json_count(remote, "unpublished_changes") == 0)
        status_print_row("  only here", "nothing: everything was published");
    else
        status_print_row(
            "  only here",
            "%s%.0f files, %s, of %.0f changes in the last %s: not published by this mount", more,
            json_number(remote, "unpublished_files"), json_bytes(remote, "unpublished_bytes").text,
            json_number(remote, "unpublished_changes"),
            human_seconds(json_number(remote, "seconds_behind")).text);
}

static void print_remote_behind(const cJSON *remote)
{
    bool bytes = json_count(remote, "behind_bytes") > 0;
    if (!bytes && json_number(remote, "seconds_behind") <= 0)
        status_print_row("  behind", "nothing: all data is in the remote");
    else if (!bytes)
        status_print_row("  behind", "names and small files, %s",
                         human_seconds(json_number(remote, "seconds_behind")).text);
    else
        status_print_row("  behind", "%s in %.0f chunks, %s; %s left of the current upload",
                         json_bytes(remote, "behind_bytes").text,
                         json_number(remote, "behind_chunks"),
                         human_seconds(json_number(remote, "seconds_behind")).text,
                         json_bytes(remote, "target_bytes").text);
}

static void print_remote_damaged(const cJSON *remote)
{
    if (json_number(remote, "damaged_chunks") > 0)
        status_print_row("  lost",
                         "%.0f chunks are neither on NVMe nor in the remote: 'cairn scrub' names "
                         "their files",
                         json_number(remote, "damaged_chunks"));
    if (json_number(remote, "suspect_packs") > 0)
        status_print_row("  unreadable",
                         "%.0f packs are missing or damaged, and %.0f chunks of files lie only "
                         "there: asked for again; 'cairn scrub' names packs and files",
                         json_number(remote, "suspect_packs"),
                         json_number(remote, "suspect_chunks"));
}

static void status_print_remote(const cJSON *remote)
{
    const char *state = json_text(remote, "state"), *name = json_text(remote, "name");
    if (!state || strcmp(state, "none") == 0)
        return;
    if (strcmp(state, "uploading") == 0)
        status_print_row("remote", "%s, uploading, %s/s", name ? name : "unknown",
                         json_bytes(remote, "upload_bytes_per_s").text);
    else
        status_print_row("remote", "%s, %s", name ? name : "unknown", state);
    print_trouble(remote);
    status_print_row("  content", "%.0f files, %s, in %.0f packs of %s",
                     json_number(remote, "files"), json_bytes(remote, "logical_bytes").text,
                     json_number(remote, "packs"), json_bytes(remote, "pack_bytes").text);
    status_print_held(remote);
    if (strcmp(state, "fenced") == 0)
        print_unpublished(remote);
    else
        print_remote_behind(remote);
    print_remote_damaged(remote);
    status_print_row("  since the mount", "%s uploaded, %s fetched, %.0f requests, %.0f retries",
                     json_bytes(remote, "uploaded_bytes_total").text,
                     json_bytes(remote, "fetched_bytes_total").text,
                     json_number(remote, "requests_total"), json_number(remote, "retries_total"));
    if (json_part(remote, "get_requests_total"))
        status_print_row(
            "  requests", "%.0f put, %.0f get, %.0f list, %.0f head, %.0f delete",
            json_number(remote, "put_requests_total"), json_number(remote, "get_requests_total"),
            json_number(remote, "list_requests_total"), json_number(remote, "head_requests_total"),
            json_number(remote, "delete_requests_total"));
    /* Without encodings of its own the remote has those of NVMe. */
    if (json_number(json_part(remote, "reduction"), "cpu_s") > 0)
        print_reduction(json_part(remote, "reduction"), "  sent chunks");
}

static void print_memory(const cJSON *memory)
{
    if (json_text(memory, "formula"))
        status_print_row("memory", "%s", json_text(memory, "formula"));
    if (json_part(memory, "resident_bytes"))
        status_print_row("  in use", "%s, at most %s", json_bytes(memory, "resident_bytes").text,
                         json_bytes(memory, "bound_bytes").text);
}

static void print_access(const cJSON *mount)
{
    const cJSON *shared = json_part(mount, "mmap_shared");
    if (json_text(mount, "write"))
        status_print_row("access", "%s writes, %s, %.0f threads", json_text(mount, "write"),
                         cJSON_IsTrue(shared) ? "shared mmap for writing"
                                              : "no shared mmap for writing",
                         json_number(mount, "threads"));
}

static void print_damage(const cJSON *damage)
{
    if (!cJSON_IsArray(damage))
        return;
    if (cJSON_GetArraySize(damage) == 0) {
        status_print_row("damage", "none found");
        return;
    }
    status_print_row("damage", "%d files cannot be read in full:", cJSON_GetArraySize(damage));
    const cJSON *item;
    cJSON_ArrayForEach(item, damage)
    {
        double more = json_number(item, "chunks") - 1;
        (void)printf("    %s: %s", json_text(item, "path") ? json_text(item, "path") : "?",
                     json_text(item, "what") ? json_text(item, "what") : "damaged");
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
        status_print_row("errors", "none since the mount");
        return;
    }
    status_print_row("errors", "%llu failed calls of programs since the mount:",
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
        (void)printf("    %s: %s: %s: %llu times since %s: %s\n",
                     json_text(item, "path") ? json_text(item, "path") : "?",
                     json_text(item, "call") ? json_text(item, "call") : "?",
                     json_text(item, "error") ? json_text(item, "error") : "?",
                     (unsigned long long)json_count(item, "count"), first,
                     json_text(item, "cause") ? json_text(item, "cause") : "unknown");
    }
}

static void print_lane(const cJSON *client)
{
    char left[64] = "nothing left", failed[80] = "", seen[64] = "";
    const char *program = json_text(client, "program"), *error = json_text(client, "last_error");
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
                 json_number(client, "pid"), program ? program : "?", left,
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
    status_print_row("lazy saves", "%d program%s, %s to copy:", count, count == 1 ? "" : "s",
                     json_bytes(lanes, "pending_bytes").text);
    if (json_count(lanes, "forgotten") > 0)
        (void)printf("    (%llu more omitted)\n",
                     (unsigned long long)json_count(lanes, "forgotten"));
    cJSON_ArrayForEach(client, clients)
    {
        print_lane(client);
    }
}

static void print_status(cJSON *status, const char *store)
{
    json_make_printable(status);
    const char *mountpoint = json_text(status, "mountpoint");
    const char *id = json_text(status, "store_id");
    text_print(stdout, "%s%s", mountpoint ? mountpoint : store, mountpoint ? "" : " (not mounted)");
    status_print_row("store", "%s%s%s",
                     json_text(status, "store") ? json_text(status, "store") : store,
                     id ? ", id " : "", id ? id : "");
    if (json_part(status, "pid"))
        status_print_row("daemon", "pid %.0f, up %s, version %s", json_number(status, "pid"),
                         human_seconds(json_number(status, "uptime_s")).text,
                         json_text(status, "version") ? json_text(status, "version") : "unknown");
    print_successor(json_part(json_part(status, "mount"), "successor"));
    print_stage(json_part(status, "stage"));
    print_nvme(json_part(status, "nvme"));
    status_print_view(json_part(status, "view"));
    status_print_remote(json_part(status, "remote"));
    print_memory(json_part(status, "memory"));
    print_access(json_part(status, "mount"));
    print_lanes(json_part(status, "lanes"));
    print_damage(json_part(status, "damage"));
    print_errors(status);
}

/* Reads the status of a store that is not mounted. */
static int offline_status(const char *store, cJSON **ret_status)
{
    int lock_fd = -1;
    pid_t holder = 0;
    int r = store_lock_patiently(store, NULL, &lock_fd, &holder);
    if (r == -EBUSY) {
        complain("status",
                 "store %s is in use by pid %d, which does not answer (starting or stopping?); try "
                 "again in a moment",
                 store, (int)holder);
        return r;
    }
    if (r == 0) {
        r = service_offline_status(store, ret_status);
        (void)close(lock_fd);
    }
    if (r < 0)
        complain("status", "cannot read store %s: %s", store, strerror(-r));
    return r;
}

/* Returns NULL after a message. *ret_dead: there is a mount, but no daemon. */
static cJSON *status_of(const char *store, const char *mountpoint, bool *ret_dead)
{
    cJSON *status = NULL;
    cJSON *request = cJSON_CreateObject();
    pid_t holder;
    (void)cJSON_AddStringToObject(request, "verb", "status");
    int r = request_patiently(store, request, STATUS_TIMEOUT_MS, &status);
    cJSON_Delete(request);
    *ret_dead = false;
    if (r == -ENOENT || r == -ECONNREFUSED) {
        *ret_dead = mountpoint && store_lock_holder(store, &holder) == 0;
        if (*ret_dead)
            complain("status", "the daemon of %s is dead; run 'cairn mount %s %s' to recover",
                     mountpoint, store, mountpoint);
        return offline_status(store, &status) < 0 ? NULL : status;
    }
    if (r < 0)
        complain("status", "store %s: %s", store, daemon_trouble(r));
    return r < 0 ? NULL : status;
}

static int status_of_all(const struct command *command, bool json)
{
    struct mount_list list;
    int r = mounts_read("/proc/self/mountinfo", &list);
    if (r < 0) {
        complain(command->name, "cannot read /proc/self/mountinfo: %s; is /proc mounted?",
                 strerror(-r));
        return CLI_FAILED;
    }
    cJSON *all = cJSON_CreateArray();
    int code = CLI_OK;
    if (list.count == 0 && !json)
        (void)printf("no CairnFS is mounted\n");
    for (size_t i = 0; i < list.count; i++) {
        const struct mount_entry *mount = &list.at[i];
        bool dead;
        cJSON *status = status_of(mount->store, mount->mountpoint, &dead);
        if (!status || dead)
            code = CLI_FAILED;
        if (status && !json) {
            (void)printf("%s", cJSON_GetArraySize(all) > 0 ? "\n" : "");
            print_status(status, mount->store);
        }
        if (status)
            (void)cJSON_AddItemToArray(all, status);
    }
    if (json)
        json_print(all);
    cJSON_Delete(all);
    mounts_done(&list);
    return code;
}

static int status_of_one(const char *store, const char *mountpoint, bool json)
{
    bool dead;
    cJSON *status = status_of(store, mountpoint, &dead);
    if (status && json)
        json_print(status);
    else if (status)
        print_status(status, store);
    bool shown = status != NULL;
    cJSON_Delete(status);
    return shown && !dead ? CLI_OK : CLI_FAILED;
}

struct status_request {
    bool json;
};

static int execute_status(const struct command *command, int argc, char **argv)
{
    struct status_request request = {0};
    struct target target;
    char **operands;
    int code = flags_parse(command, argc, argv, &request, &operands);
    if (code != CLI_OK)
        return code;
    if (!*operands)
        return status_of_all(command, request.json);
    code = target_of_any(command, *operands, &target);
    if (code != CLI_OK)
        return code;
    code = status_of_one(target.store, target.mountpoint, request.json);
    target_done(&target);
    return code;
}

const struct command status_command = {
    .name = "status",
    .summary = "show the state of a mount or store; without an argument, of all mounts",
    .flags = (const struct flag[]){{.letter = 'j',
                                    .name = "json",
                                    .help = "print JSON",
                                    .offset = offsetof(struct status_request, json)},
                                   {0}},
    .operands = (const struct operand[]){{.name = "MOUNTPOINT|STORE",
                                          .offers = OFFER_MOUNTPOINTS | OFFER_DIRECTORIES,
                                          .is_optional = true},
                                         {0}},
    .exits = (const struct exit_status[]){{CLI_OK, "printed"},
                                          {CLI_FAILED, "a daemon is dead or does not answer"},
                                          {CLI_USAGE, "wrong usage"},
                                          {0}},
    .usage_exit = CLI_USAGE,
    .execute = execute_status,
};
