#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/mounts.h"
#include "daemon/control.h"
#include "daemon/lifecycle.h"
#include "daemon/service.h"

#define LABEL_WIDTH 18
#define STATUS_TIMEOUT_MS 15000

static const cJSON *part(const cJSON *status, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(status, name);
}

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *item = part(object, name);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *item = part(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static uint64_t count_of(const cJSON *object, const char *name)
{
    uint64_t value = 0;
    (void)control_get_u64(object, name, &value);
    return value;
}

static struct human bytes_of(const cJSON *object, const char *name)
{
    return human_bytes(count_of(object, name));
}

static void row(const char *label, const char *fmt, ...) CAIRN_PRINTF(2, 3);

static void row(const char *label, const char *fmt, ...)
{
    va_list ap;
    (void)printf("  %-*s", LABEL_WIDTH, label);
    va_start(ap, fmt);
    (void)vprintf(fmt, ap);
    va_end(ap);
    (void)printf("\n");
}

static void print_stage(const cJSON *stage)
{
    if (text_of(stage, "dir"))
        row("stage", "%s, %s", text_of(stage, "dir"), bytes_of(stage, "total_bytes").text);
    else if (part(stage, "total_bytes"))
        row("stage", "%s", bytes_of(stage, "total_bytes").text);
    if (part(stage, "dirty_bytes"))
        row("  in it", "%s not on NVMe yet, %s kept for reading, %s free",
            bytes_of(stage, "dirty_bytes").text, bytes_of(stage, "clean_bytes").text,
            bytes_of(stage, "free_bytes").text);
    if (part(stage, "drafts"))
        row("  being written", "%.0f files, %s", number_of(stage, "drafts"),
            bytes_of(stage, "draft_bytes").text);
    if (part(stage, "waiting_writers"))
        row("  waits for room", "%.0f writers now, %.0f waits since the mount, %s in all",
            number_of(stage, "waiting_writers"), number_of(stage, "wait_count"),
            human_seconds(number_of(stage, "wait_ms_total") / 1000).text);
}

static void print_nvme_room(const cJSON *nvme)
{
    if (!part(nvme, "used_bytes"))
        return;
    uint64_t cap = count_of(nvme, "cap_bytes");
    (void)printf("  %-*s%s used", LABEL_WIDTH, "  room", bytes_of(nvme, "used_bytes").text);
    if (cap > 0)
        (void)printf(" of %s", human_bytes(cap).text);
    if (part(nvme, "reserved_bytes"))
        (void)printf(", %s reserved", bytes_of(nvme, "reserved_bytes").text);
    if (part(nvme, "available_bytes"))
        (void)printf(", %s available", bytes_of(nvme, "available_bytes").text);
    (void)printf("\n");
}

static void print_behind(const cJSON *nvme)
{
    if (!part(nvme, "behind_bytes"))
        return;
    if (count_of(nvme, "behind_bytes") == 0 && number_of(nvme, "behind_files") == 0)
        row("  behind", "nothing: all is on NVMe");
    else
        row("  behind", "%s in %.0f files, %s", bytes_of(nvme, "behind_bytes").text,
            number_of(nvme, "behind_files"), human_seconds(number_of(nvme, "seconds_behind")).text);
}

static void print_nvme(const cJSON *nvme)
{
    if (text_of(nvme, "path"))
        row("nvme", "%s", text_of(nvme, "path"));
    print_nvme_room(nvme);
    if (part(nvme, "files"))
        row("  content", "%.0f files, %s, stored in %s", number_of(nvme, "files"),
            bytes_of(nvme, "logical_bytes").text, bytes_of(nvme, "stored_bytes").text);
    if (part(nvme, "chunks"))
        row("  packs", "%.0f packs, %s, with %.0f chunks", number_of(nvme, "packs"),
            bytes_of(nvme, "pack_bytes").text, number_of(nvme, "chunks"));
    print_behind(nvme);
    if (part(nvme, "horizon_seq"))
        row("  operations", "%llu on NVMe of %llu", (unsigned long long)count_of(nvme, "horizon_seq"),
            (unsigned long long)count_of(nvme, "newest_seq"));
    if (part(nvme, "written_bytes_total"))
        row("  since the mount",
            "%s written, %s found stored already, %s deleted before they had to be written",
            bytes_of(nvme, "written_bytes_total").text, bytes_of(nvme, "dedup_bytes_total").text,
            bytes_of(nvme, "dropped_bytes_total").text);
    if (number_of(nvme, "errors") > 0)
        row("  errors", "%.0f, the last %s ago: %s", number_of(nvme, "errors"),
            human_seconds(number_of(nvme, "last_error_s_ago")).text,
            text_of(nvme, "last_error") ? text_of(nvme, "last_error") : "unknown");
}

static void print_memory(const cJSON *memory)
{
    if (text_of(memory, "formula"))
        row("memory", "%s", text_of(memory, "formula"));
    if (part(memory, "resident_bytes"))
        row("  in use", "%s, at most %s", bytes_of(memory, "resident_bytes").text,
            bytes_of(memory, "bound_bytes").text);
}

static void print_access(const cJSON *mount)
{
    const cJSON *shared = part(mount, "mmap_shared");
    if (text_of(mount, "write"))
        row("access", "%s writes, %s, %.0f threads", text_of(mount, "write"),
            cJSON_IsTrue(shared) ? "shared mmap for writing" : "no shared mmap for writing",
            number_of(mount, "threads"));
}

static void print_damage(const cJSON *damage)
{
    if (!cJSON_IsArray(damage))
        return;
    if (cJSON_GetArraySize(damage) == 0) {
        row("damage", "none found");
        return;
    }
    row("damage", "%d files cannot be read in full:", cJSON_GetArraySize(damage));
    const cJSON *item;
    cJSON_ArrayForEach(item, damage)(void)
        printf("    %s: %s\n", text_of(item, "path") ? text_of(item, "path") : "?",
               text_of(item, "what") ? text_of(item, "what") : "damaged");
}

static void print_status(const cJSON *status, const char *store)
{
    const char *mountpoint = text_of(status, "mountpoint");
    const char *id = text_of(status, "store_id");
    if (mountpoint)
        (void)printf("%s\n", mountpoint);
    else
        (void)printf("%s (not mounted)\n", store);
    row("store", "%s%s%s", text_of(status, "store") ? text_of(status, "store") : store, id ? ", id " : "",
        id ? id : "");
    if (part(status, "pid"))
        row("daemon", "pid %.0f, up %s, version %s", number_of(status, "pid"),
            human_seconds(number_of(status, "uptime_s")).text,
            text_of(status, "version") ? text_of(status, "version") : "unknown");
    print_stage(part(status, "stage"));
    print_nvme(part(status, "nvme"));
    print_memory(part(status, "memory"));
    print_access(part(status, "mount"));
    print_damage(part(status, "damage"));
}

/* Of a store that nobody has mounted. */
static int offline_status(const char *store, cJSON **ret_status)
{
    int lock_fd = -1;
    pid_t holder = 0;
    int r = store_lock(store, &lock_fd, &holder);
    if (r == -EBUSY) {
        complain("status",
                 "store %s: pid %d holds it but does not answer (starting or ending?); try again in a moment",
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

/* NULL where it was said why there is none. *ret_dead: it has a mount, but no daemon. */
static cJSON *status_of(const char *store, const char *mountpoint, bool *ret_dead)
{
    cJSON *status = NULL;
    cJSON *request = cJSON_CreateObject();
    pid_t holder;
    (void)cJSON_AddStringToObject(request, "verb", "status");
    int r = control_request(store, request, STATUS_TIMEOUT_MS, &status);
    cJSON_Delete(request);
    *ret_dead = false;
    if (r == -ENOENT || r == -ECONNREFUSED) {
        *ret_dead = mountpoint && store_lock_holder(store, &holder) == 0;
        if (*ret_dead)
            complain("status", "the daemon of %s is dead; 'cairn mount %s %s' goes on where it was",
                     mountpoint, store, mountpoint);
        return offline_status(store, &status) < 0 ? NULL : status;
    }
    if (r < 0)
        complain("status", "store %s: %s", store, daemon_trouble(r));
    return r < 0 ? NULL : status;
}

static void print_json(const cJSON *json)
{
    _cleanup_free_ char *text = cJSON_Print(json);
    (void)printf("%s\n", text ? text : "null");
}

static int status_of_all(const struct mount_list *list, bool json)
{
    cJSON *all = cJSON_CreateArray();
    int code = CLI_OK;
    if (list->count == 0 && !json)
        (void)printf("no CairnFS is mounted here\n");
    for (size_t i = 0; i < list->count; i++) {
        const struct mount_entry *mount = &list->entries[i];
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
        print_json(all);
    cJSON_Delete(all);
    return code;
}

static int status_of_one(const char *store, const char *mountpoint, bool json)
{
    bool dead;
    cJSON *status = status_of(store, mountpoint, &dead);
    if (status && json)
        print_json(status);
    else if (status)
        print_status(status, store);
    bool shown = status != NULL;
    cJSON_Delete(status);
    return shown && !dead ? CLI_OK : CLI_FAILED;
}

/* A mountpoint, or a store. */
static int status_of_argument(const struct verb *verb, const struct mount_list *list, const char *argument,
                              bool json)
{
    const struct mount_entry *mount = mounts_find(list, argument);
    if (mount)
        return status_of_one(mount->store, mount->mountpoint, json);
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", argument);
    struct stat st;
    if (lstat(superblock, &st) == 0)
        return status_of_one(argument, NULL, json);
    if (errno == EACCES) {
        complain(verb->name, "cannot look into %s: %s; run as its owner", argument, strerror(EACCES));
        return CLI_FAILED;
    }
    return complain_usage(
        verb, "%s is neither a mountpoint of CairnFS nor a store; 'cairn status' lists the mounts", argument);
}

int verb_status(const struct verb *verb, int argc, char **argv)
{
    static const struct option flags[] = {{"json", no_argument, NULL, 'j'}, {0}};
    bool json = false;
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":j", flags, NULL)) != -1) {
        if (found != 'j')
            return complain_option(verb, found, argv);
        json = true;
    }
    if (argc - optind > 1)
        return complain_usage(verb, "one MOUNTPOINT or STORE is enough; run: cairn status %s",
                              verb->synopsis);
    struct mount_list list;
    int r = mounts_read("/proc/self/mountinfo", &list);
    if (r < 0) {
        complain(verb->name, "cannot read /proc/self/mountinfo: %s; is /proc mounted?", strerror(-r));
        return CLI_FAILED;
    }
    int code =
        argc > optind ? status_of_argument(verb, &list, argv[optind], json) : status_of_all(&list, json);
    mounts_done(&list);
    return code;
}
