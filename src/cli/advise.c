// SPDX-License-Identifier: Apache-2.0
/* cairn advise: how often to save, from the checkpoints on a mount, from the time that its tiers
 * took for the data written since the mount, and from the steps that cairnfs.Interval measured in
 * the trainings that save there.
 *
 * A save that blocks the training for C seconds, every T seconds, costs C/T of the run. A failure
 * loses T/2 on average: T/2M of the run, with one failure every M seconds. The sum is least at T =
 * sqrt(2 C M) (Young, Daly). A tier that needs longer than T for a checkpoint falls behind. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/text.h"
#include "base/vector.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/mounts.h"

#define NEWEST 10u     /* checkpoints that are considered */
#define ASKED_MAX 256u /* files of each whose creation time is requested */
#define DEPTH_MAX 8u
#define DAY_NS (86400 * 1000000000ll)

/* One checkpoint of a series: a file, or a directory with everything below it. */
struct checkpoint {
    char *path;
    double began, ended; /* seconds since 1970: its first file was created, its last one written */
    uint64_t files, bytes;
};
DEFINE_VECTOR(checkpoints, struct checkpoint);

struct advise {
    const struct command *command;
    const char *store;
    int64_t mtbf_ns;
    bool is_json;
    struct checkpoints series; /* oldest first; the newest NEWEST */
    char *name;                /* "step*.pt" */
};

struct advice {
    double bytes;   /* of a checkpoint */
    double now;     /* seconds between two of them at present; 0: there is one */
    double step;    /* seconds of a step of the training; 0: not known */
    double blocked; /* by a save */
    /* measured by cairnfs; else `blocked` is the time to write the checkpoint */
    bool is_lazy;
    double nvme, remote; /* seconds until the tier has it; 0: not known */
    double least, best;  /* seconds between two of them */
};

static int by_end(const void *a, const void *b)
{
    const struct checkpoint *x = a, *y = b;
    return (x->ended > y->ended) - (x->ended < y->ended);
}

static void checkpoints_done(struct checkpoints *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->at[i].path);
    vector_free(list);
}

/* --- one checkpoint --------------------------------------------------------------------------- */

/* Returns when the file was created, which FUSE does not report. 0: not known. */
static double created(const struct advise *a, uint64_t ino)
{
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *request = cJSON_CreateObject();
    control_add_u64(request, "ino", ino);
    return ask_daemon(a->command->name, a->store, "look", request, &reply) < 0
               ? 0
               : json_number(reply, "created_s");
}

static void add_file(const struct advise *a, const struct stat *st, struct checkpoint *to)
{
    double ended = (double)st->st_mtim.tv_sec + (double)st->st_mtim.tv_nsec / 1e9;
    double began = to->files++ < ASKED_MAX ? created(a, st->st_ino) : 0;
    if (began > 0)
        to->began = to->began > 0 ? fmin(to->began, began) : began;
    to->ended = fmax(to->ended, ended);
    to->bytes += (uint64_t)st->st_size;
}

/* Measures the regular files at and below `path`. */
static int measure(const struct advise *a, const char *path, struct checkpoint *ret)
{
    char *paths[] = {(char *)path, NULL};
    *ret = (struct checkpoint){0};
    FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    if (!fts)
        return -errno;
    for (FTSENT *e; !interrupted() && (e = fts_read(fts));)
        if (e->fts_info == FTS_F)
            add_file(a, e->fts_statp, ret);
    (void)fts_close(fts);
    return 0;
}

/* --- a series --------------------------------------------------------------------------------- */

/* Returns "step*.pt" of "step1000.pt". False: the name has no number. */
static bool pattern_of(const char *name, char ret[NAME_MAX + 1])
{
    bool has_number = false;
    size_t len = 0;
    for (; *name && len < NAME_MAX; name++) {
        bool is_digit = isdigit((unsigned char)*name) != 0;
        if (!is_digit || len == 0 || ret[len - 1] != '*')
            ret[len++] = is_digit ? '*' : *name;
        has_number = has_number || is_digit;
    }
    ret[len] = '\0';
    return has_number;
}

/* Lists entries with a number in their names or, with `directories`, the directories without one:
 * as checkpoints whose end is the time of the entry itself. `pattern` NULL: any. */
static int list_directory(const char *directory, const char *pattern, bool directories,
                          struct checkpoints *ret)
{
    DIR *dir = opendir(directory);
    if (!dir)
        return -errno;
    for (struct dirent *e; (e = readdir(dir));) {
        char own[NAME_MAX + 1];
        struct stat st;
        bool has_number = pattern_of(e->d_name, own);
        if (e->d_name[0] == '.' || has_number == directories ||
            (pattern && strcmp(own, pattern) != 0) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !(S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && !directories)))
            continue;
        vector_add(ret, (struct checkpoint){.path = xasprintf("%s/%s", directory, e->d_name),
                                            .ended = (double)st.st_mtim.tv_sec +
                                                     (double)st.st_mtim.tv_nsec / 1e9});
    }
    (void)closedir(dir);
    vector_sort(ret, by_end);
    return 0;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Takes the newest entries whose names differ only in numbers, and measures their content. */
static int take_series(struct advise *a, const char *directory, const char *pattern)
{
    _cleanup_(checkpoints_done) struct checkpoints found = {0};
    a->name = xstrdup(pattern);
    int r = list_directory(directory, pattern, false, &found);
    for (size_t i = found.count > NEWEST ? found.count - NEWEST : 0; i < found.count && r == 0;
         i++) {
        struct checkpoint one;
        r = measure(a, found.at[i].path, &one);
        if (r == 0 && one.bytes > 0)
            vector_add(&a->series, one);
    }
    vector_sort(&a->series, by_end);
    return r;
}

/* For a path with a number: the series beside it. For a directory, also the mountpoint: the newest
 * series below it. */
static int find_series(struct advise *a, const char *mountpoint, const char *path)
{
    _cleanup_free_ char *at = path_absolute(path);
    char pattern[NAME_MAX + 1];
    for (unsigned depth = 0; at && depth < DEPTH_MAX; depth++) {
        _cleanup_(checkpoints_done) struct checkpoints numbered = {0}, plain = {0};
        if (depth == 0 && strcmp(at, mountpoint) != 0 && pattern_of(name_of(at), pattern)) {
            *strrchr(at, '/') = '\0';
            return take_series(a, at, pattern);
        }
        TRY(list_directory(at, NULL, false, &numbered));
        if (numbered.count) {
            (void)pattern_of(name_of(numbered.at[numbered.count - 1].path), pattern);
            return take_series(a, at, pattern);
        }
        TRY(list_directory(at, NULL, true, &plain));
        free(at);
        at = plain.count ? xstrdup(plain.at[plain.count - 1].path) : NULL;
    }
    return 0;
}

/* --- the advice ------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of ascending ones. */
static double middle_of(const double *values, size_t count)
{
    return count == 0 ? 0 : (values[(count - 1) / 2] + values[count / 2]) / 2;
}

enum measure { BYTES, WRITING, INTERVAL };

static double median_of(const struct checkpoints *series, enum measure what)
{
    double values[NEWEST];
    size_t count = 0;
    for (size_t i = what == INTERVAL; i < series->count; i++) {
        const struct checkpoint *c = &series->at[i];
        values[count++] = what == BYTES     ? (double)c->bytes
                          : what == WRITING ? fmax(c->ended - c->began, 0)
                                            : c->ended - series->at[i - 1].ended;
    }
    qsort(values, count, sizeof *values, by_size);
    return middle_of(values, count);
}

/* Returns the seconds that the tier takes for a checkpoint, at its rate for everything that was
 * written. */
static double tier_seconds(const cJSON *status, const char *tier, double bytes)
{
    double written = json_number(json_part(status, "mount"), "written_bytes_total");
    double busy = json_number(json_part(status, tier), "busy_s");
    return written > 0 && busy > 0 ? bytes * busy / written : 0;
}

/* Returns the median of the values that trainings which save here report, each rank by itself. 0:
 * none reports one. */
static double median_said(const cJSON *clients, const char *name)
{
    VECTOR(double) values = {0};
    const cJSON *client;
    cJSON_ArrayForEach(client, clients)
    {
        double value = json_number(client, name);
        if (value > 0)
            vector_add(&values, value);
    }
    vector_sort(&values, by_size);
    double median = middle_of(values.at, values.count);
    vector_free(&values);
    return median;
}

/* As the training measured it, or its saves; else the time to write a checkpoint. */
static void take_blocked(const struct advise *a, const cJSON *lanes, struct advice *ret)
{
    double cost = median_said(json_part(lanes, "clients"), "save_cost_seconds");
    double published = json_number(lanes, "published");
    ret->is_lazy = cost > 0 || published > 0;
    ret->blocked = cost > 0        ? cost
                   : published > 0 ? json_number(lanes, "blocked_seconds") / published
                                   : median_of(&a->series, WRITING);
}

static struct advice advise(const struct advise *a, const cJSON *status)
{
    const cJSON *lanes = json_part(status, "lanes");
    struct advice ret = {.bytes = median_of(&a->series, BYTES),
                         .now = median_of(&a->series, INTERVAL),
                         .step = median_said(json_part(lanes, "clients"), "step_seconds")};
    take_blocked(a, lanes, &ret);
    ret.nvme = tier_seconds(status, "nvme", ret.bytes);
    ret.remote = tier_seconds(status, "remote", ret.bytes);
    ret.least = fmax(ret.blocked, fmax(ret.nvme, ret.remote));
    ret.best = fmax(sqrt(2 * ret.blocked * (double)a->mtbf_ns / 1e9), ret.least);
    return ret;
}

static const char *limit_of(const struct advice *advice)
{
    return advice->least == 0                ? "none"
           : advice->least == advice->remote ? "remote"
           : advice->least == advice->nvme   ? "nvme"
                                             : "blocked";
}

/* --- printing --------------------------------------------------------------------------------- */

static void print_tier(const char *label, double seconds, bool limits)
{
    if (seconds > 0)
        (void)printf("%-32s %s%s\n", label, human_seconds(seconds).text,
                     limits ? "  <- the slowest: saves that come faster than this pile up" : "");
    else
        (void)printf("%-32s not known: nothing was written since the mount\n", label);
}

/* At least 1. */
static double in_steps(const struct advice *advice, double interval)
{
    return fmax(round(interval / advice->step), 1);
}

/* Prints the costs of saves and failures at this interval. */
static void print_cost(const struct advise *a, const struct advice *advice, const char *what,
                       double interval)
{
    double mtbf = (double)a->mtbf_ns / 1e9;
    _cleanup_free_ char *steps =
        advice->step > 0 ? xasprintf(" or %.0f steps", in_steps(advice, interval)) : xstrdup("");
    (void)printf("%-32s every %s%s: saves take %.2f %% of the time, a failure loses %s (%.2f %%)\n",
                 what, human_seconds(interval).text, steps, 100 * advice->blocked / interval,
                 human_seconds(interval / 2).text, 100 * interval / 2 / mtbf);
}

static void print_advice(const struct advise *a, const struct advice *advice, bool has_remote)
{
    const char *limit = limit_of(advice);
    text_print(stdout, "%-32s %s, %zu looked at, %s each", "checkpoints", a->name, a->series.count,
               human_bytes((uint64_t)advice->bytes).text);
    (void)fflush(stdout);
    if (a->series.count == 1)
        complain(a->command->name,
                 "there is only one %s; of others name one, such as "
                 "MNT/run7/step1000.pt",
                 a->name);
    if (advice->step >= 60)
        (void)printf("%-32s %s\n", "a step of the training takes",
                     human_seconds(advice->step).text);
    else if (advice->step > 0)
        (void)printf("%-32s %.3g s\n", "a step of the training takes", advice->step);
    (void)printf("%-32s %s%s\n", "a save blocks the training for",
                 human_seconds(advice->blocked).text,
                 advice->is_lazy ? "" : " at most: the time to write it");
    print_tier("until NVMe has it", advice->nvme, strcmp(limit, "nvme") == 0);
    if (has_remote)
        print_tier("until the remote has it", advice->remote, strcmp(limit, "remote") == 0);
    (void)printf("%-32s %s\n", "one failure every", human_seconds((double)a->mtbf_ns / 1e9).text);
    if (advice->now > 0)
        print_cost(a, advice, "now", advice->now);
    if (advice->best > 0)
        print_cost(a, advice, "best", advice->best);
    if (has_remote && advice->remote > 0)
        (void)printf("where the whole node is lost, saves that are not in the remote yet are lost, "
                     "too: %s more\n",
                     human_seconds(advice->remote).text);
}

static void add_known(cJSON *json, const char *name, double value)
{
    (void)(value > 0 ? cJSON_AddNumberToObject(json, name, value)
                     : cJSON_AddNullToObject(json, name));
}

static void add_steps(cJSON *json, const char *name, const struct advice *advice, double interval)
{
    bool is_known = advice->step > 0 && interval > 0;
    add_known(json, name, is_known ? in_steps(advice, interval) : 0);
}

static void print_json(const struct advise *a, const struct advice *advice)
{
    _cleanup_json_ cJSON *json = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(json, "checkpoints", a->name);
    control_add_u64(json, "count", a->series.count);
    control_add_u64(json, "bytes", (uint64_t)advice->bytes);
    (void)cJSON_AddNumberToObject(json, "blocked_s", advice->blocked);
    (void)cJSON_AddBoolToObject(json, "is_lazy", advice->is_lazy);
    add_known(json, "step_s", advice->step);
    add_known(json, "nvme_s", advice->nvme);
    add_known(json, "remote_s", advice->remote);
    (void)cJSON_AddNumberToObject(json, "mtbf_s", (double)a->mtbf_ns / 1e9);
    add_known(json, "interval_now_s", advice->now);
    (void)cJSON_AddNumberToObject(json, "interval_least_s", advice->least);
    (void)cJSON_AddStringToObject(json, "limited_by", limit_of(advice));
    (void)cJSON_AddNumberToObject(json, "interval_best_s", advice->best);
    add_steps(json, "interval_now_steps", advice, advice->now);
    add_steps(json, "interval_least_steps", advice, advice->least);
    add_steps(json, "interval_best_steps", advice, advice->best);
    json_print(json);
}

/* --- the command ------------------------------------------------------------------------------ */

static int show_advice(struct advise *a, const struct target *target, const char *path)
{
    _cleanup_json_ cJSON *status = NULL;
    a->store = target->store;
    int r = find_series(a, target->mountpoint, path);
    if (interrupted())
        return CLI_INTERRUPTED;
    if (r < 0)
        return complain(a->command->name, "%s: %s", path, strerror(-r));
    if (a->series.count == 0)
        return complain(
            a->command->name,
            "%s: there is no checkpoint: a file or directory with a number in its name, "
            "such as step1000.pt, that is not empty",
            path);
    if (ask_daemon(a->command->name, target->store, "status", NULL, &status) < 0)
        return CLI_FAILED;
    struct advice advice = advise(a, status);
    if (a->is_json)
        print_json(a, &advice);
    else
        print_advice(a, &advice,
                     strcmp(json_text_or(json_part(status, "remote"), "state", "none"), "none"));
    return CLI_OK;
}

static int execute_advise(struct call *call)
{
    struct advise *a = call->request;
    a->command = call->command;
    interrupt_catch(true);
    int code = show_advice(a, &call->target, call->operands[0]);
    checkpoints_done(&a->series);
    free(a->name);
    return code;
}

#define FIELD(f) offsetof(struct advise, f)
const struct command advise_command = {
    .name = "advise",
    .summary = "say how often to save",
    .description =
        "From the checkpoints of a path (those that have its name but for the number; of a "
        "directory the newest below), how long saves\n"
        "blocked the training, how long its steps take (if it uses cairnfs.Interval), and how long "
        "NVMe and the remote took for what was\n"
        "written since the mount.",
    .flags = (const struct flag[]){{FLAG_OF('\0', "mtbf", FLAG_TIME, FIELD(mtbf_ns)),
                                    .argument = "TIME", .min = 1000000000,
                                    .help = "mean time between failures of the whole job: 12h, 7d "
                                            "(default 24h)"},
                                   FLAG_JSON(FIELD(is_json)),
                                   {0}},
    REQUEST(struct advise, .mtbf_ns = DAY_NS),
    .operands = operands_mount,
    .target = TARGET_MOUNT,
    .exits = EXITS_INTERRUPTED("printed", "failed, or there is no checkpoint"),
    .execute = execute_advise,
};
