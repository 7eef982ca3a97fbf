// SPDX-License-Identifier: Apache-2.0
#include "daemon/options.h"

#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"
#include "daemon/keep_text.h"
#include "daemon/metrics_server.h"
#include "daemon/remote_address.h"
#include "daemon/when.h"
#include "store/store.h"

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
    return text_fail(ret_error, -EINVAL, "invalid value '%s' for option %s; use one of: %s", value,
                     spec->name, words);
}

static int set_string(char **field, const struct option_spec *spec, const char *value,
                      char **ret_error)
{
    size_t len = strlen(value);
    if (len < spec->min || len > spec->max)
        return text_fail(ret_error, -EINVAL, "option %s has %s value; give %s", spec->name,
                         len == 0 ? "an empty" : "too long a", option_expects(spec->kind));
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
    if (parse_amount(spec, value, &amount) < 0)
        return text_fail(ret_error, -EINVAL, "invalid value '%s' for option %s; give %s", value,
                         spec->name, option_expects(spec->kind));
    const char *fallback = spec->alias_of ? find_option(spec->alias_of)->fallback : spec->fallback;
    bool zero_is_default = amount == 0 && fallback && strcmp(fallback, "0") == 0;
    if ((amount < spec->min && !zero_is_default) || amount > spec->max) {
        _cleanup_free_ char *min = limit_text(spec->kind, spec->min);
        _cleanup_free_ char *max = limit_text(spec->kind, spec->max);
        return text_fail(ret_error, -EINVAL, "option %s=%s is out of range; give %s to %s",
                         spec->name, value, min, max);
    }
    /* uint64_t and int64_t have one representation for all values in the ranges. */
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

/* Words of other filesystems, and the corresponding option here. */
static const char *const other_words[][2] = {
    {"compress", "reduce"},  {"compression", "reduce"},     {"readonly", "ro"},
    {"read_only", "ro"},     {"cache_size", "stage"},       {"size", "nvme"},
    {"url", "remote"},       {"bucket", "remote"},          {"endpoint", "endpoint_url"},
    {"read_cache", "stage"}, {"timeout", "remote_timeout"},
};

static int option_unknown(const char *name, char **ret_error)
{
    struct text_guess guess = {.word = name};
    for (const struct option_spec *spec = option_table; spec->name; spec++)
        if (spec->help)
            text_guess_try(&guess, spec->name);
    for (size_t i = 0; i < ARRAY_LEN(other_words); i++) {
        struct text_guess other = {.word = name};
        text_guess_try(&other, other_words[i][0]);
        if (other.best && other.distance == 0)
            guess.best = other_words[i][1];
    }
    return guess.best ? text_fail(ret_error, -EINVAL, "unknown option '%s'; did you mean %s?", name,
                                  guess.best)
                      : text_fail(ret_error, -EINVAL,
                                  "unknown option '%s'; 'cairn help mount' lists all", name);
}

int options_set(struct mount_options *o, const char *name, const char *value, char **ret_error)
{
    if (is_ignored(name))
        return 0;
    const struct option_spec *spec = find_option(name);
    if (!spec)
        return option_unknown(name, ret_error);
    bool is_flag = spec->kind == OPTION_SET || spec->kind == OPTION_CLEAR;
    if (is_flag && value)
        return text_fail(ret_error, -EINVAL, "option %s takes no value; leave out '=%s'",
                         spec->name, value);
    if (!is_flag && !value)
        return text_fail(ret_error, -EINVAL, "option %s has no value; give %s after '='",
                         spec->name, option_expects(spec->kind));
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

/* Joins the rules of -o keep: their commas are those of the list, too. */
static int go_on_with_keep(struct mount_options *o, const char *rule, char **ret_error)
{
    _cleanup_free_ char *whole = xasprintf("%s,%s", o->keep, rule);
    return options_set(o, "keep", whole, ret_error);
}

int options_set_list(struct mount_options *o, const char *list, bool sloppy, char **ret_error)
{
    _cleanup_free_ char *item = xmalloc(strlen(list) + 1);
    while (list) {
        list = next_item(list, item);
        if (*item == '\0')
            continue;
        if (o->keep && keep_is_rule(item)) {
            TRY(go_on_with_keep(o, item, ret_error));
            continue;
        }
        char *equals = strchr(item, '=');
        if (equals)
            *equals = '\0';
        if (sloppy && !find_option(item))
            continue;
        TRY(options_set(o, item, equals ? equals + 1 : NULL, ret_error));
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
    if (o->fsync == FSYNC_REMOTE)
        return text_fail(
            ret_error, -EINVAL,
            "option fsync=remote: no remote is configured; use fsync=nvme, or give a remote too");
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        const void *field = (const char *)o + spec->offset;
        bool is_text = spec->kind == OPTION_STRING || spec->kind == OPTION_PATH;
        bool given = is_text ? *(char *const *)field != NULL
                             : spec->kind == OPTION_SET && *(const bool *)field;
        if (spec->group != GROUP_REMOTE || !given || field == &o->remote.at)
            continue; /* `at` may show a snapshot of the store */
        return text_fail(ret_error, -EINVAL,
                         "option %s: no remote is configured; give remote=s3://BUCKET/PREFIX or "
                         "remote=dir:/PATH",
                         spec->name);
    }
    return 0;
}

/* An age counts from now: a daemon that takes the mount over later must select the same head. */
static int settle_at(struct mount_options *o, char **ret_error)
{
    struct head_choice choice;
    _cleanup_free_ char *why = NULL;
    if (!o->read_only)
        return text_fail(ret_error, -EINVAL,
                         "option at shows an earlier state, which can only be read; give ro, too");
    int r = when_parse(o->remote.at, clock_realtime_ns(), &choice, &why);
    if (r < 0)
        return text_fail(ret_error, r, "option at: %s", why);
    free(o->remote.at);
    o->remote.at = when_print(&choice);
    o->remote.follow_ns = 0;
    return 0;
}

static int check_keep(const struct mount_options *o, char **ret_error)
{
    struct head_keep keep;
    _cleanup_free_ char *why = NULL;
    int r = keep_parse(o->keep, &keep, &why);
    if (r < 0)
        return text_fail(ret_error, r, "option keep: %s", why);
    if (o->remote.nodes)
        return text_fail(ret_error, -EINVAL,
                         "options keep and nodes exclude each other: where several nodes write, "
                         "states stay for gc_grace alone; leave keep out");
    return 0;
}

static int check_remote_options(struct mount_options *o, char **ret_error)
{
    struct remote_address address;
    TRY(remote_address_parse(o->remote.address, &address, ret_error));
    free(o->remote.address);
    /* no longer relative to a directory that the daemon will leave */
    o->remote.address = address.text;
    address.text = NULL;
    remote_address_done(&address);
    if (o->remote.endpoint_url && strchr(o->remote.endpoint_url, '@'))
        return text_fail(ret_error, -EINVAL,
                         "option endpoint_url: credentials are not allowed in an address; see "
                         "'Credentials' in docs/operations-remote.md for where to put them");
    if (o->read_only && o->remote.takeover)
        return text_fail(ret_error, -EINVAL,
                         "options ro and takeover exclude each other; leave one out");
    if (o->read_only && o->remote.nodes)
        return text_fail(ret_error, -EINVAL,
                         "options ro and nodes exclude each other: a mount that only reads shows "
                         "what all nodes published; leave nodes out");
    if (o->remote.nodes && (o->remote.takeover || o->remote.rollback))
        return text_fail(ret_error, -EINVAL,
                         "options takeover and rollback are for a remote with one writer; leave "
                         "nodes out, or them");
    if (o->remote.converts && !o->remote.nodes)
        return text_fail(ret_error, -EINVAL,
                         "option convert makes a remote one of several nodes: give nodes, too");
    if (o->remote.replaces && !o->remote.nodes)
        return text_fail(
            ret_error, -EINVAL,
            "option replaces is for one of several nodes: give nodes, too; of a remote "
            "with one writer, takeover takes the place");
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
    if (o->metrics && metrics_address_parse(o->metrics, &address) < 0)
        return text_fail(ret_error, -EINVAL,
                         "invalid value '%s' for option metrics; give an address and a port, such "
                         "as 127.0.0.1:9464 or [::1]:9464 (0.0.0.0:9464 serves all networks)",
                         o->metrics);
    if (o->remount)
        return text_fail(ret_error, -EINVAL,
                         "option remount is for mount(8); run: mount -o remount,... MOUNTPOINT");
    if (o->stage_dir[0] != '/')
        return text_fail(ret_error, -EINVAL,
                         "option stage_dir=%s is not an absolute path; give one that begins with /",
                         o->stage_dir);
    if (strchr(o->stage_dir, '\n')) { /* STORE/session names it in one line */
        *ret_error = xstrdup("option stage_dir: the path contains a line end; give one without");
        return -EINVAL;
    }
    if (make_absolute(&o->remote.ca_bundle) < 0 || make_absolute(&o->log_path) < 0)
        return text_fail(ret_error, -EINVAL,
                         "options ca_bundle and log: the working directory no longer exists; give "
                         "absolute paths");
    if (o->keep)
        TRY(check_keep(o, ret_error));
    TRY(o->remote.address ? check_remote_options(o, ret_error) : check_no_remote(o, ret_error));
    TRY(o->remote.at ? settle_at(o, ret_error) : 0);
    o->memory_granted = options_memory_granted();
    if (o->reduce == REDUCE_AUTO)
        o->reduce = o->remote.address ? REDUCE_DENSE : REDUCE_FAST;
    if (o->stage_bytes == 0)
        o->stage_bytes = max_u64(align_down(o->memory_granted / 4, MIB), STAGE_SIZE_MIN);
    return 0;
}
