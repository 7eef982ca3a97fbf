#include "daemon/options.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <strings.h>

#define SECOND_NS (1000000000ull)
#define HOUR_NS (3600 * SECOND_NS)
#define FIELD(f) offsetof(struct mount_options, f)

static const char *const fsync_words[] = {"nvme", "stage", "remote", NULL};
static const char *const level_words[] = {"error", "warning", "info", "debug", NULL};

/* clang-format off */
const struct option_spec option_table[] = {
    {"stage_dir", OPTION_STRING, FIELD(stage_dir), 1, 4000, "/dev/shm", NULL, NULL,
     "folder of the stage: a tmpfs that outlives the daemon"},
    {"stage", OPTION_SIZE, FIELD(stage_bytes), 16 * MIB, 1ull << 46, "0", NULL, NULL,
     "DRAM for data that is not on NVMe yet; 0: a quarter of the RAM that machine and cgroup grant"},
    {"nvme", OPTION_SIZE, FIELD(nvme_bytes), 64 * MIB, 1ull << 56, "0", NULL, NULL,
     "most that the store may take on its disk; 0: as much as the disk has"},
    {"cache_size", OPTION_SIZE, FIELD(nvme_bytes), 64 * MIB, 1ull << 56, NULL, NULL, "nvme",
     "the same as nvme"},
    {"fsync", OPTION_ENUM, FIELD(fsync), 0, 0, "nvme", fsync_words, NULL,
     "what fsync waits for: nvme, or stage (power loss may take what was fsynced last)"},
    {"writeback_threads", OPTION_COUNT, FIELD(writeback_threads), 1, 64, "2", NULL, NULL,
     "threads that carry data from the stage to NVMe"},
    {"writeback_limit", OPTION_SIZE, FIELD(writeback_limit), 4 * KIB, 1ull << 46, "0", NULL, NULL,
     "bytes a second that these may write; lifted while an fsync, wait or umount waits; 0: no limit"},
    {"writeback_delay", OPTION_DURATION, FIELD(writeback_delay_ns), 0, HOUR_NS, "1s", NULL, NULL,
     "how long data may rest before it is carried, so that short-lived files cost nothing"},
    {"entry_timeout", OPTION_DURATION, FIELD(entry_timeout_ns), 0, 24 * HOUR_NS, "1", NULL, NULL,
     "how long the kernel may keep names"},
    {"attr_timeout", OPTION_DURATION, FIELD(attr_timeout_ns), 0, 24 * HOUR_NS, "1", NULL, NULL,
     "how long the kernel may keep attributes"},
    {"threads", OPTION_COUNT, FIELD(threads), 1, 256, "0", NULL, NULL,
     "threads that receive requests; 0: chosen from the number of cores"},
    {"log", OPTION_STRING, FIELD(log_path), 1, 4000, NULL, NULL, NULL,
     "log file; default: STORE/log, or standard error with -f"},
    {"log_level", OPTION_ENUM, FIELD(log_level), 0, 0, "info", level_words, NULL,
     "error, warning, info or debug"},
    {"foreground", OPTION_SET, FIELD(foreground), 0, 0, NULL, NULL, NULL, "stay in the foreground (also -f)"},
    {"allow_other", OPTION_SET, FIELD(allow_other), 0, 0, NULL, NULL, NULL,
     "let other users in, as permissions say (default for root)"},
    {"noallow_other", OPTION_CLEAR, FIELD(allow_other), 0, 0, NULL, NULL, NULL,
     "only for the user who mounts (default for others)"},
    {"ro", OPTION_SET, FIELD(read_only), 0, 0, NULL, NULL, NULL, "read only"},
    {"rw", OPTION_CLEAR, FIELD(read_only), 0, 0, NULL, NULL, NULL, "writable (default)"},
    {"suid", OPTION_CLEAR, FIELD(nosuid), 0, 0, NULL, NULL, NULL, "honour set-user-ID bits (root only)"},
    {"nosuid", OPTION_SET, FIELD(nosuid), 0, 0, NULL, NULL, NULL, "ignore set-user-ID bits (default)"},
    {"dev", OPTION_CLEAR, FIELD(nodev), 0, 0, NULL, NULL, NULL, "honour device files (root only)"},
    {"nodev", OPTION_SET, FIELD(nodev), 0, 0, NULL, NULL, NULL, "ignore device files (default)"},
    {"exec", OPTION_CLEAR, FIELD(noexec), 0, 0, NULL, NULL, NULL, "let programs be executed (default)"},
    {"noexec", OPTION_SET, FIELD(noexec), 0, 0, NULL, NULL, NULL, "no execution of programs"},
    {"noatime", OPTION_SET, FIELD(noatime), 0, 0, NULL, NULL, NULL, "leave access times alone"},
    {"relatime", OPTION_CLEAR, FIELD(noatime), 0, 0, NULL, NULL, NULL,
     "keep access times as Linux does (default)"},
    {"default_permissions", OPTION_SET, FIELD(default_permissions), 0, 0, NULL, NULL, NULL, NULL},
    {"fsname", OPTION_STRING, FIELD(fsname), 0, 4000, NULL, NULL, NULL, NULL},
    {"subtype", OPTION_STRING, FIELD(subtype), 0, 4000, NULL, NULL, NULL, NULL},
    {0},
};
/* clang-format on */

/* What fstab lines carry for mount(8), systemd and people. */
static const char *const ignored_names[] = {"_netdev", "nofail",   "auto",    "noauto", "user",
                                            "users",   "defaults", "comment", "nouser", "owner"};

/* A decimal number, with a fraction or without, at the start of `text`; false where there is none. */
static bool parse_number(const char *text, double *ret, const char **ret_rest)
{
    size_t digits = strspn(text, "0123456789");
    size_t len = digits;
    if (digits > 0 && text[len] == '.')
        len += 1 + strspn(text + len + 1, "0123456789");
    if (digits == 0 || text[len - 1] == '.' || len > 24)
        return false;
    char number[32];
    memcpy(number, text, len);
    number[len] = '\0';
    *ret = strtod(number, NULL);
    *ret_rest = text + len;
    return true;
}

int parse_size(const char *text, uint64_t *ret_bytes)
{
    static const char letters[] = "KMGTP";
    size_t digits = strspn(text, "0123456789");
    const char *rest;
    double number;
    if (!parse_number(text, &number, &rest))
        return -EINVAL;
    unsigned shift = 0;
    const char *letter = *rest ? strchr(letters, toupper((unsigned char)*rest)) : NULL;
    if (letter) {
        shift = 10 * (unsigned)(letter - letters + 1);
        rest++;
        if (strcmp(rest, "iB") == 0)
            rest += 2;
    }
    if (*rest != '\0' || ldexp(number, (int)shift) >= 9.0e18)
        return -EINVAL;
    /* Whole numbers exactly: a double would round above 2^53. */
    if (text[digits] == '.')
        *ret_bytes = (uint64_t)ldexp(number, (int)shift);
    else
        *ret_bytes = strtoull(text, NULL, 10) << shift;
    return 0;
}

int parse_duration(const char *text, int64_t *ret_ns)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    const char *rest;
    double number;
    if (!parse_number(text, &number, &rest))
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(rest, units[i].name) != 0)
            continue;
        double ns = number * units[i].seconds * (double)SECOND_NS;
        if (ns >= 9.0e18)
            return -EINVAL;
        *ret_ns = llround(ns);
        return 0;
    }
    return -EINVAL;
}

static bool same_name(const char *a, size_t len, const char *b)
{
    for (size_t i = 0; i < len; i++)
        if (b[i] == '\0' || (a[i] == '-' ? '_' : a[i]) != b[i])
            return false;
    return b[len] == '\0';
}

static bool is_ignored(const char *name)
{
    if (strncasecmp(name, "x-", 2) == 0 || strncasecmp(name, "x_", 2) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(ignored_names); i++)
        if (same_name(name, strlen(name), ignored_names[i]))
            return true;
    return false;
}

static const struct option_spec *find_option(const char *name)
{
    for (const struct option_spec *spec = option_table; spec->name; spec++)
        if (same_name(name, strlen(name), spec->name))
            return spec;
    return NULL;
}

static const char *expected(enum option_kind kind)
{
    switch (kind) {
    case OPTION_SIZE:
        return "a size such as 512M, 4G or 1T";
    case OPTION_DURATION:
        return "a duration such as 250ms, 10s, 5m or 1h";
    case OPTION_COUNT:
        return "a number";
    case OPTION_ENUM:
        return "one of its words";
    default:
        return "a value";
    }
}

static int set_enum(uint64_t *field, const struct option_spec *spec, const char *value, char **ret_error)
{
    char words[128] = "";
    for (uint64_t i = 0; spec->words[i]; i++) {
        if (strcmp(value, spec->words[i]) == 0) {
            *field = i;
            return 0;
        }
        size_t used = strlen(words);
        (void)snprintf(words + used, sizeof words - used, "%s%s", i > 0 ? ", " : "", spec->words[i]);
    }
    *ret_error = xasprintf("option %s=%s is not known; use one of: %s", spec->name, value, words);
    return -EINVAL;
}

static int set_string(char **field, const struct option_spec *spec, const char *value, char **ret_error)
{
    size_t len = strlen(value);
    if (len < spec->min || len > spec->max) {
        *ret_error = xasprintf("option %s has %s value; give a path", spec->name,
                               len == 0 ? "an empty" : "too long a");
        return -EINVAL;
    }
    free(*field);
    *field = xstrdup(value);
    return 0;
}

static char *limit_text(enum option_kind kind, uint64_t limit)
{
    if (kind == OPTION_DURATION)
        return xasprintf("%gs", (double)limit / (double)SECOND_NS);
    static const char letters[] = "KMGTP";
    size_t i = 0;
    if (kind == OPTION_COUNT || limit < KIB || limit % KIB != 0)
        return xasprintf("%llu", (unsigned long long)limit);
    for (limit /= KIB; limit % KIB == 0 && letters[i + 1]; i++)
        limit /= KIB;
    return xasprintf("%llu%c", (unsigned long long)limit, letters[i]);
}

static int parse_count(const char *text, uint64_t *ret)
{
    size_t len = strlen(text);
    if (len == 0 || len > 9 || strspn(text, "0123456789") != len)
        return -EINVAL;
    *ret = strtoull(text, NULL, 10);
    return 0;
}

static int parse_amount(const struct option_spec *spec, const char *value, uint64_t *ret)
{
    int64_t ns = 0;
    int r;
    switch (spec->kind) {
    case OPTION_DURATION:
        r = parse_duration(value, &ns);
        *ret = (uint64_t)ns;
        return r;
    case OPTION_COUNT:
        return parse_count(value, ret);
    default:
        return parse_size(value, ret);
    }
}

static int set_amount(void *field, const struct option_spec *spec, const char *value, char **ret_error)
{
    uint64_t amount;
    if (parse_amount(spec, value, &amount) < 0) {
        *ret_error =
            xasprintf("option %s=%s is not understood; give %s", spec->name, value, expected(spec->kind));
        return -EINVAL;
    }
    const char *fallback = spec->alias_of ? find_option(spec->alias_of)->fallback : spec->fallback;
    bool zero_is_default = amount == 0 && fallback && strcmp(fallback, "0") == 0;
    if ((amount < spec->min && !zero_is_default) || amount > spec->max) {
        _cleanup_free_ char *min = limit_text(spec->kind, spec->min);
        _cleanup_free_ char *max = limit_text(spec->kind, spec->max);
        *ret_error = xasprintf("option %s=%s is out of range; give %s to %s", spec->name, value, min, max);
        return -EINVAL;
    }
    /* uint64_t and int64_t have one representation for what the ranges allow. */
    memcpy(field, &amount, sizeof amount);
    return 0;
}

static int set_value(struct mount_options *o, const struct option_spec *spec, const char *value,
                     char **ret_error)
{
    void *field = (char *)o + spec->offset;
    switch (spec->kind) {
    case OPTION_SET:
    case OPTION_CLEAR:
        *(bool *)field = spec->kind == OPTION_SET;
        return 0;
    case OPTION_STRING:
        return set_string(field, spec, value, ret_error);
    case OPTION_ENUM:
        return set_enum(field, spec, value, ret_error);
    default:
        return set_amount(field, spec, value, ret_error);
    }
}

int options_set(struct mount_options *o, const char *name, const char *value, char **ret_error)
{
    if (is_ignored(name))
        return 0;
    const struct option_spec *spec = find_option(name);
    if (!spec) {
        *ret_error = xasprintf("option '%s' is unknown; 'cairn help mount' lists the options", name);
        return -EINVAL;
    }
    bool is_flag = spec->kind == OPTION_SET || spec->kind == OPTION_CLEAR;
    if (is_flag && value) {
        *ret_error = xasprintf("option %s takes no value; leave out '=%s'", spec->name, value);
        return -EINVAL;
    }
    if (!is_flag && !value) {
        *ret_error = xasprintf("option %s has no value; give %s after '='", spec->name, expected(spec->kind));
        return -EINVAL;
    }
    return set_value(o, spec, value, ret_error);
}

/* Copies one item of a list without its escapes; returns where the next one begins, or NULL. */
static const char *next_item(const char *list, char *ret_item)
{
    for (; *list && *list != ','; list++) {
        if (*list == '\\' && (list[1] == ',' || list[1] == '\\'))
            list++;
        *ret_item++ = *list;
    }
    *ret_item = '\0';
    return *list ? list + 1 : NULL;
}

int options_set_list(struct mount_options *o, const char *list, char **ret_error)
{
    _cleanup_free_ char *item = xmalloc(strlen(list) + 1);
    while (list) {
        list = next_item(list, item);
        if (*item == '\0')
            continue;
        char *equals = strchr(item, '=');
        if (equals)
            *equals = '\0';
        int r = options_set(o, item, equals ? equals + 1 : NULL, ret_error);
        if (r < 0)
            return r;
    }
    return 0;
}

void options_init(struct mount_options *o)
{
    memset(o, 0, sizeof *o);
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        char *error = NULL;
        if (spec->fallback)
            check(set_value(o, spec, spec->fallback, &error) == 0);
    }
    o->allow_other = geteuid() == 0;
    o->default_permissions = true;
    o->nosuid = o->nodev = true;
}

void options_done(struct mount_options *o)
{
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        if (spec->kind != OPTION_STRING)
            continue;
        char **field = (char **)((char *)o + spec->offset);
        free(*field);
        *field = NULL;
    }
}

int options_finish(struct mount_options *o, char **ret_error)
{
    if (o->fsync == FSYNC_REMOTE) {
        *ret_error = xstrdup("option fsync=remote: no remote is configured; use fsync=nvme");
        return -EINVAL;
    }
    if (o->stage_dir[0] != '/') {
        *ret_error =
            xasprintf("option stage_dir=%s is no absolute path; give one that begins with /", o->stage_dir);
        return -EINVAL;
    }
    o->memory_granted = options_memory_granted();
    if (o->stage_bytes == 0)
        o->stage_bytes = max_u64(align_down(o->memory_granted / 4, MIB), 16 * MIB);
    return 0;
}

static uint64_t mem_total(const char *root)
{
    _cleanup_free_ char *path = xasprintf("%s/proc/meminfo", root);
    FILE *f = fopen(path, "re");
    unsigned long long kib = 0;
    if (f) {
        char line[256];
        while (kib == 0 && fgets(line, sizeof line, f))
            if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
                break;
        (void)fclose(f);
    }
    return kib * KIB;
}

/* The number in a cgroup's limit file; UINT64_MAX for none ("max", no such file). */
static uint64_t read_limit(const char *folder, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    unsigned long long limit = UINT64_MAX;
    if (f) {
        if (fscanf(f, "%llu", &limit) != 1)
            limit = UINT64_MAX;
        (void)fclose(f);
    }
    return limit;
}

/* Least limit from the group `path` up to the root of the mounted hierarchy: a parent's limit binds as well.
 */
static uint64_t least_limit(const char *hierarchy, const char *path, const char *const *names)
{
    _cleanup_free_ char *folder = xasprintf("%s%s", hierarchy, strcmp(path, "/") == 0 ? "" : path);
    uint64_t least = UINT64_MAX;
    for (;;) {
        for (size_t i = 0; names[i]; i++)
            least = min_u64(least, read_limit(folder, names[i]));
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(hierarchy) || !slash)
            return least;
        *slash = '\0';
    }
}

/* Whether `controllers` of a line of /proc/self/cgroup ("" in v2) includes memory. */
static bool has_memory(const char *controllers)
{
    for (const char *at = controllers; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, "memory", 6) == 0 && (at[6] == ',' || at[6] == '\0'))
            return true;
    return false;
}

/* In a container without a cgroup namespace, the path that /proc/self/cgroup tells is the host's, and what is
 * mounted is its group alone: root of that mount, then. */
static uint64_t group_limit(const char *hierarchy, const char *path, const char *const *names)
{
    _cleanup_free_ char *folder = xasprintf("%s%s", hierarchy, path);
    return least_limit(hierarchy, access(folder, F_OK) == 0 ? path : "/", names);
}

static uint64_t cgroup_limit(const char *root)
{
    static const char *const v1_names[] = {"memory.limit_in_bytes", NULL};
    static const char *const v2_names[] = {"memory.max", "memory.high", NULL};
    _cleanup_free_ char *path = xasprintf("%s/proc/self/cgroup", root);
    _cleanup_free_ char *v1 = xasprintf("%s/sys/fs/cgroup/memory", root);
    _cleanup_free_ char *v2 = xasprintf("%s/sys/fs/cgroup", root);
    _cleanup_free_ char *v2_mixed = xasprintf("%s/sys/fs/cgroup/unified", root);
    uint64_t limit = UINT64_MAX;
    FILE *f = fopen(path, "re");
    if (!f)
        return limit;
    _cleanup_free_ char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        *group++ = '\0';
        controllers++;
        if (has_memory(controllers))
            limit = min_u64(limit, group_limit(v1, group, v1_names));
        else if (*controllers == '\0')
            limit = min_u64(
                limit, min_u64(group_limit(v2, group, v2_names), group_limit(v2_mixed, group, v2_names)));
    }
    (void)fclose(f);
    return limit;
}

uint64_t options_memory_granted_below(const char *root)
{
    uint64_t total = mem_total(root);
    return min_u64(total > 0 ? total : GIB, cgroup_limit(root));
}

uint64_t options_memory_granted(void)
{
    return options_memory_granted_below("");
}
