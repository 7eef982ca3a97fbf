// SPDX-License-Identifier: Apache-2.0
#include "daemon/options.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "daemon/metrics_server.h"
#include "daemon/remote_address.h"
#include "store/store.h"

#define HOUR_NS (3600 * SECOND_NS)
#define FIELD(f) offsetof(struct mount_options, f)
#define REMOTE(f) FIELD(remote.f)

static const char *const fsync_words[] = {"nvme", "stage", "remote", NULL};
/* In the order of their enums: reduce (then REDUCE_AUTO), successor_mode, s3_addressing,
 * s3_checksum. */
static const char *const reduce_words[] = {"off", "fast", "dense", "auto", NULL};
static const char *const successor_words[] = {"auto", "on", "off", NULL};
static const char *const addressing_words[] = {"auto", "path", "virtual", NULL};
static const char *const checksum_words[] = {"auto", "crc32", "md5", "none", NULL};

/* clang-format off */
const struct option_spec option_table[] = {
    {"stage_dir", GROUP_TIERS, OPTION_PATH, FIELD(stage_dir), 1, 4000, "/dev/shm", NULL, NULL,
     "directory of the stage: a tmpfs that outlives the daemon"},
    {"stage", GROUP_TIERS, OPTION_SIZE, FIELD(stage_bytes), STAGE_SIZE_MIN, 1ull << 46, "0", NULL,
     NULL,
     "size of the stage, the memory for data not yet on NVMe; 0: a quarter of what machine and "
     "cgroup allow"},
    {"nvme", GROUP_TIERS, OPTION_SIZE, FIELD(nvme_bytes), 100 * MIB, 1ull << 56, "0", NULL, NULL,
     "maximum size of the store on its disk; 0: the size of the disk"},
    {"cache_size", GROUP_TIERS, OPTION_SIZE, FIELD(nvme_bytes), 100 * MIB, 1ull << 56, NULL, NULL,
     "nvme", "the same as nvme"},
    {"fsync", GROUP_TIERS, OPTION_ENUM, FIELD(fsync), 0, 0, "nvme", fsync_words, NULL,
     "the tier that fsync waits for; with stage, power loss may lose data that was fsynced"},
    {"writeback_threads", GROUP_TIERS, OPTION_COUNT, FIELD(writeback_threads), 1,
     STORE_WRITEBACK_THREADS_MAX, "2", NULL, NULL,
     "number of threads that write data from the stage to NVMe"},
    {"writeback_limit", GROUP_TIERS, OPTION_SIZE, FIELD(writeback_limit), 4 * KIB, 1ull << 46, "0",
     NULL, NULL,
     "bytes per second that these may write; lifted while an fsync, wait or umount waits; 0: no "
     "limit"},
    {"writeback_delay", GROUP_TIERS, OPTION_DURATION, FIELD(writeback_delay_ns), 0, HOUR_NS, "1s",
     NULL, NULL,
     "time that data may stay in the stage before it is written; data deleted sooner is never "
     "written"},
    {"reduce", GROUP_TIERS, OPTION_ENUM, FIELD(reduce), 0, 0, "auto", reduce_words, NULL,
     "reduction of chunks: fast (tensors and text, each chunk by itself), dense (besides, in the "
     "remote and in old files, tensors by others), or off (stored as they are); auto: dense with a "
     "remote, else fast"},
    {"reduce_after", GROUP_TIERS, OPTION_DURATION, FIELD(reduce_after_ns), 0, 8760 * HOUR_NS, "10m",
     NULL, NULL,
     "with reduce=dense: age of a file, as against the newest of its series, from which on it is "
     "made dense on NVMe, too"},
    {"remote", GROUP_REMOTE, OPTION_STRING, REMOTE(address), 1, 1000, NULL, NULL, NULL,
     "remote that everything is uploaded to: s3://BUCKET/PREFIX, or dir:/PATH on a shared "
     "filesystem"},
    {"endpoint_url", GROUP_REMOTE, OPTION_STRING, REMOTE(endpoint_url), 1, 1000, NULL, NULL, NULL,
     "address of an S3 that is not AWS (else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile)"},
    {"region", GROUP_REMOTE, OPTION_STRING, REMOTE(region), 1, 100, NULL, NULL, NULL,
     "region of the bucket (else AWS_REGION, AWS_DEFAULT_REGION, the profile, us-east-1)"},
    {"profile", GROUP_REMOTE, OPTION_STRING, REMOTE(profile), 1, 200, NULL, NULL, NULL,
     "section of ~/.aws/config and ~/.aws/credentials (else AWS_PROFILE, default)"},
    {"no_sign_request", GROUP_REMOTE, OPTION_SET, REMOTE(no_sign_request), 0, 0, NULL, NULL, NULL,
     "use no credentials (public buckets, with ro)"},
    {"addressing", GROUP_REMOTE, OPTION_ENUM, REMOTE(addressing), 0, 0, "auto", addressing_words,
     NULL,
     "place of the bucket name in a URL: the path, or the host name (virtual)"},
    {"checksum", GROUP_REMOTE, OPTION_ENUM, REMOTE(checksum), 0, 0, "auto", checksum_words, NULL,
     "checksum that the server verifies uploads with"},
    {"storage_class", GROUP_REMOTE, OPTION_STRING, REMOTE(storage_class), 1, 100, NULL, NULL, NULL,
     "storage class of the objects"},
    {"sse", GROUP_REMOTE, OPTION_STRING, REMOTE(sse), 1, 100, NULL, NULL, NULL,
     "encryption by the server: AES256 or aws:kms"},
    {"sse_kms_key_id", GROUP_REMOTE, OPTION_STRING, REMOTE(sse_kms_key_id), 1, 1000, NULL, NULL,
     NULL,
     "key of sse=aws:kms"},
    {"ca_bundle", GROUP_REMOTE, OPTION_PATH, REMOTE(ca_bundle), 1, 4000, NULL, NULL, NULL,
     "file with the certificates to trust (else AWS_CA_BUNDLE, the system's)"},
    {"connections", GROUP_REMOTE, OPTION_COUNT, REMOTE(connections), 1, 512, "32", NULL, NULL,
     "maximum number of connections"},
    {"remote_timeout", GROUP_REMOTE, OPTION_DURATION, REMOTE(timeout_ns), SECOND_NS,
     24 * HOUR_NS, "60s", NULL, NULL,
     "time that one call keeps retrying; uploads are retried for ever"},
    {"upload_threads", GROUP_REMOTE, OPTION_COUNT, REMOTE(upload_threads), 1, 64, "4", NULL, NULL,
     "number of packs uploaded in parallel"},
    {"fetch_threads", GROUP_REMOTE, OPTION_COUNT, REMOTE(fetch_threads), 1, 64, "16", NULL, NULL,
     "number of ranges of up to 8 MiB fetched in parallel, ahead of readers"},
    {"upload_limit", GROUP_REMOTE, OPTION_SIZE, REMOTE(upload_limit), 4 * KIB, 1ull << 46, "0",
     NULL, NULL,
     "bytes per second that may be uploaded; lifted while a call waits for the remote; 0: no "
     "limit"},
    {"lease", GROUP_REMOTE, OPTION_DURATION, REMOTE(lease_ns), SECOND_NS, 24 * HOUR_NS, "60s", NULL,
     NULL,
     "time after which a writer that did not renew its lease may be replaced by another mount"},
    {"takeover", GROUP_REMOTE, OPTION_SET, REMOTE(takeover), 0, 0, NULL, NULL, NULL,
     "replace the writer that holds the remote, even if it is alive; its unpublished data stays "
     "on its node. A second node that writes needs a prefix of its own instead"},
    {"rollback", GROUP_REMOTE, OPTION_SET, REMOTE(rollback), 0, 0, NULL, NULL, NULL,
     "if the newest published state is damaged in the remote, go on from the newest one that is "
     "whole, and give up what came later; with ro, and without a mount, that one is shown anyway"},
    {"unfenced", GROUP_REMOTE, OPTION_SET, REMOTE(unfenced), 0, 0, NULL, NULL, NULL,
     "use a bucket that cannot detect a second writer; you have to ensure that there is only one"},
    {"gc_grace", GROUP_REMOTE, OPTION_DURATION, REMOTE(gc_grace_ns), 0, 8760 * HOUR_NS, "1h", NULL,
     NULL,
     "time that unreferenced objects are kept, for readers that lag behind"},
    {"follow", GROUP_REMOTE, OPTION_DURATION, REMOTE(follow_ns), 0, 24 * HOUR_NS, "10s", NULL, NULL,
     "with ro: interval of looking for newly published states; 0: never"},
    {"entry_timeout", GROUP_ACCESS, OPTION_DURATION, FIELD(entry_timeout_ns), 0, 24 * HOUR_NS, "1h",
     NULL, NULL,
     "time that the kernel may cache names"},
    {"attr_timeout", GROUP_ACCESS, OPTION_DURATION, FIELD(attr_timeout_ns), 0, 24 * HOUR_NS, "1h",
     NULL, NULL,
     "time that the kernel may cache attributes"},
    {"threads", GROUP_ACCESS, OPTION_COUNT, FIELD(threads), 1, 256, "0", NULL, NULL,
     "number of threads that receive requests; 0: chosen by the number of cores"},
    {"log", GROUP_DAEMON, OPTION_PATH, FIELD(log_path), 1, 4000, NULL, NULL, NULL,
     "log file (else STORE/log); with -f, lines go to standard error, too"},
    {"log_level", GROUP_DAEMON, OPTION_ENUM, FIELD(log_level), 0, 0, "info", log_level_words, NULL,
     "lowest level that is logged"},
    {"metrics", GROUP_DAEMON, OPTION_STRING, FIELD(metrics), 1, 100, NULL, NULL, NULL,
     "ADDRESS:PORT that serves /metrics and /healthz over HTTP, such as 127.0.0.1:9464 or "
     "[::1]:9464"},
    {"successor", GROUP_DAEMON, OPTION_ENUM, FIELD(successor), 0, 0, "auto", successor_words, NULL,
     "whether a successor takes over the mount when the daemon dies; auto: on in the background"},
    {"crash_window", GROUP_DAEMON, OPTION_DURATION, FIELD(crash_window_ns), 0, HOUR_NS, "10s", NULL,
     NULL,
     "a daemon that dies sooner has died quickly; after six in a row the mount is given up; 0: "
     "never"},
    {"no_resend", GROUP_DAEMON, OPTION_SET, FIELD(no_resend), 0, 0, NULL, NULL, NULL, NULL},
    {"foreground", GROUP_DAEMON, OPTION_SET, FIELD(foreground), 0, 0, NULL, NULL, NULL,
     "run in the foreground (also -f)"},
    {"allow_other", GROUP_ACCESS, OPTION_SET, FIELD(allow_other), 0, 0, NULL, NULL, NULL,
     "let other users in, as permissions allow (default for root)"},
    {"noallow_other", GROUP_ACCESS, OPTION_CLEAR, FIELD(allow_other), 0, 0, NULL, NULL, NULL,
     "let in only the user who mounts (default for others)"},
    {"ro", GROUP_ACCESS, OPTION_SET, FIELD(read_only), 0, 0, NULL, NULL, NULL, "mount read-only"},
    {"rw", GROUP_ACCESS, OPTION_CLEAR, FIELD(read_only), 0, 0, NULL, NULL, NULL,
     "mount writable (default)"},
    {"suid", GROUP_ACCESS, OPTION_CLEAR, FIELD(nosuid), 0, 0, NULL, NULL, NULL,
     "honour set-user-ID bits (root only)"},
    {"nosuid", GROUP_ACCESS, OPTION_SET, FIELD(nosuid), 0, 0, NULL, NULL, NULL,
     "ignore set-user-ID bits (default)"},
    {"dev", GROUP_ACCESS, OPTION_CLEAR, FIELD(nodev), 0, 0, NULL, NULL, NULL,
     "honour device files (root only)"},
    {"nodev", GROUP_ACCESS, OPTION_SET, FIELD(nodev), 0, 0, NULL, NULL, NULL,
     "ignore device files (default)"},
    {"exec", GROUP_ACCESS, OPTION_CLEAR, FIELD(noexec), 0, 0, NULL, NULL, NULL,
     "allow execution of programs (default)"},
    {"noexec", GROUP_ACCESS, OPTION_SET, FIELD(noexec), 0, 0, NULL, NULL, NULL,
     "forbid execution of programs"},
    {"noatime", GROUP_ACCESS, OPTION_SET, FIELD(noatime), 0, 0, NULL, NULL, NULL,
     "do not update access times"},
    {"relatime", GROUP_ACCESS, OPTION_CLEAR, FIELD(noatime), 0, 0, NULL, NULL, NULL,
     "update access times as Linux does (default)"},
    {"atime", GROUP_ACCESS, OPTION_CLEAR, FIELD(noatime), 0, 0, NULL, NULL, NULL, NULL},
    {"remount", GROUP_ACCESS, OPTION_SET, FIELD(remount), 0, 0, NULL, NULL, NULL, NULL},
    {"default_permissions", GROUP_ACCESS, OPTION_SET, FIELD(default_permissions), 0, 0, NULL, NULL,
     NULL, NULL},
    {"fsname", GROUP_ACCESS, OPTION_STRING, FIELD(fsname), 0, 4000, NULL, NULL, NULL, NULL},
    {"subtype", GROUP_ACCESS, OPTION_STRING, FIELD(subtype), 0, 4000, NULL, NULL, NULL, NULL},
    {0},
};
/* clang-format on */

const char *const option_group_titles[GROUP_COUNT] = {[GROUP_TIERS] = "Stage and NVMe",
                                                      [GROUP_REMOTE] = "Remote",
                                                      [GROUP_ACCESS] = "Files, users, kernel",
                                                      [GROUP_DAEMON] = "The daemon"};

const char *option_shown_default(const struct option_spec *spec)
{
    return spec->fallback && strcmp(spec->fallback, "0") != 0 ? spec->fallback : NULL;
}

const char *option_value_kind(const struct option_spec *spec)
{
    static const char *const kinds[] = {
        [OPTION_SIZE] = "SIZE",   [OPTION_DURATION] = "TIME", [OPTION_COUNT] = "N",
        [OPTION_STRING] = "TEXT", [OPTION_PATH] = "PATH",     [OPTION_ENUM] = "WORD"};
    return kinds[spec->kind];
}

/* Options of fstab lines for mount(8), systemd and people, and defaults. `sync` and `dirsync` are
 * not among them: they would have no effect. */
static const char *const ignored_names[] = {
    "_netdev", "nofail",   "auto",       "noauto",  "user",       "nouser",     "users",  "nousers",
    "owner",   "noowner",  "group",      "nogroup", "defaults",   "comment",    "async",  "silent",
    "loud",    "diratime", "nodiratime", "nomand",  "nolazytime", "noiversion", "uhelper"};

/* A decimal number, with a fraction or without, at the start of `text`; false where
 * there is none. */
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

static bool same_option_name(const char *a, size_t len, const char *b)
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
        if (same_option_name(name, strlen(name), ignored_names[i]))
            return true;
    return false;
}

static const struct option_spec *find_option(const char *name)
{
    for (const struct option_spec *spec = option_table; spec->name; spec++)
        if (same_option_name(name, strlen(name), spec->name))
            return spec;
    return NULL;
}

static const char *option_expects(enum option_kind kind)
{
    switch (kind) {
    case OPTION_SIZE:
        return "a size such as 512M, 4G or 1T";
    case OPTION_DURATION:
        return "a time such as 250ms, 10s, 5m or 1h";
    case OPTION_COUNT:
        return "a number";
    case OPTION_ENUM:
        return "a word";
    case OPTION_PATH:
        return "a path";
    default:
        return "a value";
    }
}

static int set_enum(uint64_t *field, const struct option_spec *spec, const char *value,
                    char **ret_error)
{
    char words[128] = "";
    for (uint64_t i = 0; spec->words[i]; i++) {
        if (strcmp(value, spec->words[i]) == 0) {
            *field = i;
            return 0;
        }
        size_t used = strlen(words);
        (void)snprintf(words + used, sizeof words - used, "%s%s", i > 0 ? ", " : "",
                       spec->words[i]);
    }
    *ret_error =
        xasprintf("invalid value '%s' for option %s; use one of: %s", value, spec->name, words);
    return -EINVAL;
}

static int set_string(char **field, const struct option_spec *spec, const char *value,
                      char **ret_error)
{
    size_t len = strlen(value);
    if (len < spec->min || len > spec->max) {
        *ret_error = xasprintf("option %s has %s value; give %s", spec->name,
                               len == 0 ? "an empty" : "too long a", option_expects(spec->kind));
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

static int set_amount(void *field, const struct option_spec *spec, const char *value,
                      char **ret_error)
{
    uint64_t amount;
    if (parse_amount(spec, value, &amount) < 0) {
        *ret_error = xasprintf("invalid value '%s' for option %s; give %s", value, spec->name,
                               option_expects(spec->kind));
        return -EINVAL;
    }
    const char *fallback = spec->alias_of ? find_option(spec->alias_of)->fallback : spec->fallback;
    bool zero_is_default = amount == 0 && fallback && strcmp(fallback, "0") == 0;
    if ((amount < spec->min && !zero_is_default) || amount > spec->max) {
        _cleanup_free_ char *min = limit_text(spec->kind, spec->min);
        _cleanup_free_ char *max = limit_text(spec->kind, spec->max);
        *ret_error =
            xasprintf("option %s=%s is out of range; give %s to %s", spec->name, value, min, max);
        return -EINVAL;
    }
    /* uint64_t and int64_t have one representation for what the ranges allow. */
    memcpy(field, &amount, sizeof amount);
    return 0;
}

static int set_option_value(struct mount_options *o, const struct option_spec *spec,
                            const char *value, char **ret_error)
{
    void *field = (char *)o + spec->offset;
    switch (spec->kind) {
    case OPTION_SET:
    case OPTION_CLEAR:
        *(bool *)field = spec->kind == OPTION_SET;
        return 0;
    case OPTION_STRING:
    case OPTION_PATH:
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
        *ret_error = option_unknown(name);
        return -EINVAL;
    }
    bool is_flag = spec->kind == OPTION_SET || spec->kind == OPTION_CLEAR;
    if (is_flag && value) {
        *ret_error = xasprintf("option %s takes no value; leave out '=%s'", spec->name, value);
        return -EINVAL;
    }
    if (!is_flag && !value) {
        *ret_error = xasprintf("option %s has no value; give %s after '='", spec->name,
                               option_expects(spec->kind));
        return -EINVAL;
    }
    return set_option_value(o, spec, value, ret_error);
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

int options_set_list(struct mount_options *o, const char *list, bool sloppy, char **ret_error)
{
    _cleanup_free_ char *item = xmalloc(strlen(list) + 1);
    while (list) {
        list = next_item(list, item);
        if (*item == '\0')
            continue;
        char *equals = strchr(item, '=');
        if (equals)
            *equals = '\0';
        if (sloppy && !find_option(item))
            continue;
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
            check(set_option_value(o, spec, spec->fallback, &error) == 0);
    }
    o->allow_other = geteuid() == 0;
    o->default_permissions = true;
    o->nosuid = o->nodev = true;
}

void options_done(struct mount_options *o)
{
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        if (spec->kind != OPTION_STRING && spec->kind != OPTION_PATH)
            continue;
        char **field = (char **)((char *)o + spec->offset);
        free(*field);
        *field = NULL;
    }
}

/* Refuses options of a remote without a remote: the user believes that there is one. */
static int check_no_remote(const struct mount_options *o, char **ret_error)
{
    if (o->fsync == FSYNC_REMOTE) {
        *ret_error = xstrdup(
            "option fsync=remote: no remote is configured; use fsync=nvme, or give a remote too");
        return -EINVAL;
    }
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        const void *field = (const char *)o + spec->offset;
        bool is_text = spec->kind == OPTION_STRING || spec->kind == OPTION_PATH;
        bool given = is_text ? *(char *const *)field != NULL
                             : spec->kind == OPTION_SET && *(const bool *)field;
        if (spec->group != GROUP_REMOTE || !given)
            continue;
        *ret_error = xasprintf("option %s: no remote is configured; give remote=s3://BUCKET/PREFIX "
                               "or remote=dir:/PATH",
                               spec->name);
        return -EINVAL;
    }
    return 0;
}

static int check_remote_options(struct mount_options *o, char **ret_error)
{
    struct remote_address address;
    int r = remote_address_parse(o->remote.address, &address, ret_error);
    if (r < 0)
        return r;
    free(o->remote.address);
    /* no longer relative to a directory that the daemon will leave */
    o->remote.address = address.text;
    address.text = NULL;
    remote_address_done(&address);
    if (o->remote.endpoint_url && strchr(o->remote.endpoint_url, '@')) {
        *ret_error = xstrdup(
            "option endpoint_url: credentials are not allowed in an address; see 'A remote' in "
            "docs/operations.md for where to put them");
        return -EINVAL;
    }
    if (o->read_only && o->remote.takeover) {
        *ret_error = xstrdup("options ro and takeover exclude each other; leave one out");
        return -EINVAL;
    }
    return 0;
}

/* The daemon leaves the directory that it was started in. */
static int make_absolute(char **path)
{
    if (!*path || **path == '/')
        return 0;
    _cleanup_free_ char *directory = getcwd(NULL, 0);
    if (!directory)
        return -errno;
    char *whole = xasprintf("%s/%s", directory, *path);
    free(*path);
    *path = whole;
    return 0;
}

char *options_log_path(const struct mount_options *o, const char *store)
{
    return o->log_path ? xstrdup(o->log_path) : xasprintf("%s/log", store);
}

int options_finish(struct mount_options *o, char **ret_error)
{
    struct metrics_address address;
    if (o->metrics && metrics_address_parse(o->metrics, &address) < 0) {
        *ret_error = xasprintf("invalid value '%s' for option metrics; give an address and a port, "
                               "such as 127.0.0.1:9464 or "
                               "[::1]:9464 (0.0.0.0:9464 serves all networks)",
                               o->metrics);
        return -EINVAL;
    }
    if (o->remount) {
        *ret_error =
            xstrdup("option remount is for mount(8); run: mount -o remount,... MOUNTPOINT");
        return -EINVAL;
    }
    if (o->stage_dir[0] != '/') {
        *ret_error =
            xasprintf("option stage_dir=%s is not an absolute path; give one that begins with /",
                      o->stage_dir);
        return -EINVAL;
    }
    if (strchr(o->stage_dir, '\n')) { /* STORE/session names it in a line */
        *ret_error = xstrdup("option stage_dir: the path contains a line end; give one without");
        return -EINVAL;
    }
    if (make_absolute(&o->remote.ca_bundle) < 0 || make_absolute(&o->log_path) < 0) {
        *ret_error = xstrdup("options ca_bundle and log: the working directory no longer exists; "
                             "give absolute paths");
        return -EINVAL;
    }
    int r = o->remote.address ? check_remote_options(o, ret_error) : check_no_remote(o, ret_error);
    if (r < 0)
        return r;
    o->memory_granted = options_memory_granted();
    if (o->reduce == REDUCE_AUTO)
        o->reduce = o->remote.address ? REDUCE_DENSE : REDUCE_FAST;
    if (o->stage_bytes == 0)
        o->stage_bytes = max_u64(align_down(o->memory_granted / 4, MIB), STAGE_SIZE_MIN);
    return 0;
}
