// SPDX-License-Identifier: Apache-2.0
/* A remote in a shared directory. Another process makes the calls (tier/dir_client.h), since they
 * may hang. Names are durable after sync(), an fsync of the directories that were touched.
 *
 * Servers go away and come back: ESTALE, EIO and similar errors are retried for a while, like those
 * of S3. An EIO that persists while the filesystem answers comes from the medium below and is
 * permanent: the object is damaged. */
#include "tier/tier.h"

#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "tier/dir_client.h"
#include "tier/directories.h"
#include "tier/retry.h"

#define PATIENCE_NS (60ll * 1000000000)
/* After that, the calls that need the directory open it. */
#define OPEN_WAIT_NS (5ll * 1000000000)
#define SPACE_WAIT_NS (2ll * 1000000000)
#define CLOCK_FILE ".clock"
#define TICK_NS_MAX (10 * MS_NS)
#define EIO_TRIES 5u /* retried within about a second */

struct dir {
    struct tier tier;
    char *path;
    struct dir_client *client;
    bool read_only;
    struct directories *directories;
    struct retry_gate gate;
    struct {
        struct cairn_mutex lock;
        int64_t newest_ns; /* latest mtime seen of any file */
        char error[CAUSE_MAX];
        struct tier_traffic traffic;
    } locked;
};

static struct dir *dir_of(struct tier *tier)
{
    return container_of(tier, struct dir, tier);
}

static void check_name(const char *object)
{
    check(object[0] != '\0' && object[0] != '/' && object[0] != '.' && !strstr(object, "/."));
}

/* --- one call, tried again -------------------------------------------------------------------- */

struct op {
    struct dir *dir;
    const char *name, *object;
    struct retry retry;
    unsigned io_errors;
};

static void op_begin(struct op *op, struct dir *d, const char *name, const char *object)
{
    *op = (struct op){.dir = d, .name = name, .object = object};
    retry_begin(&op->retry, &d->gate, d->tier.patience_ns);
}

static void note_error(struct op *op, int error)
{
    struct dir *d = op->dir;
    const char *advice =
        error == -EACCES ? "; the daemon's user must own the directory, or mount with -o ro to read"
        : error == -EPERM ? "; another user made the directory, where anyone may write: give one "
                            "of your own, or mount with -o ro to read"
        : error == -EROFS ? "; mount with -o ro to read"
        : error == -ESTALE || error == -EREMOTEIO || error == -ENODEV
            ? "; it was removed, emptied, moved or replaced under the mount: put "
              "it back, or unmount and mount again"
            : "";
    LOCK_SCOPE(&d->locked.lock);
    (void)snprintf(d->locked.error, sizeof d->locked.error, "%s %s/%s: %s%s", op->name, d->path,
                   op->object, strerror(-error), advice);
}

static enum tier_request request_of_op(const char *name)
{
    static const char *const names[TIER_REQUESTS] = {"put", "get", "list", "stat", "remove"};
    unsigned kind = 0;
    while (kind < TIER_REQUESTS && strcmp(names[kind], name) != 0)
        kind++;
    return kind;
}

static void count_request(struct dir *d, enum tier_request kind, int r, bool again)
{
    LOCK_SCOPE(&d->locked.lock);
    d->locked.traffic.requests++;
    if (kind < TIER_REQUESTS)
        d->locked.traffic.by_kind[kind]++;
    d->locked.traffic.retries += again;
    d->locked.traffic.failures +=
        r < 0 && !again && r != -ENOENT && r != -EEXIST && r != -ECANCELED;
}

/* Sends the server a request: false if it does not answer, or with an error. */
static bool filesystem_answers(struct dir *d)
{
    struct dir_call call = {.verb = DIR_SPACE, .name = "", .patience_ns = SPACE_WAIT_NS};
    return dir_client_call(d->client, &call, NULL) == 0;
}

static bool is_lasting(struct op *op, int r)
{
    return r == -EIO && ++op->io_errors >= EIO_TRIES && filesystem_answers(op->dir);
}

/* Called after each attempt, with its result; true: try again. */
static bool op_again(struct op *op, int *r)
{
    struct dir *d = op->dir;
    if (*r == 0)
        retry_gate_success(&d->gate);
    else if (*r != -ENOENT && *r != -EEXIST && *r != -ECANCELED)
        note_error(op, *r);
    bool again = false;
    if (tier_error_is_transient(*r) && !is_lasting(op, *r)) {
        int waited = retry_wait(&op->retry, 0);
        again = waited == 0;
        *r = waited == -ECANCELED ? waited : *r;
    }
    count_request(d, request_of_op(op->name), *r, again);
    if (again && *r == -ESTALE)
        dir_client_reopen(d->client);
    else if (*r == -ESTALE)
        *r = -EREMOTEIO; /* ESTALE would tell the caller that another store has written */
    return again;
}

static int check_writable(struct dir *d)
{
    if (d->read_only)
        return -EROFS;
    return retry_gate_is_interrupted(&d->gate) ? -ECANCELED : 0;
}

static int check_readable(struct dir *d)
{
    return retry_gate_is_interrupted(&d->gate) ? -ECANCELED : 0;
}

static int call_by_name(struct dir *d, enum dir_verb verb, const char *name, struct dir_answer *ret)
{
    struct dir_call call = {.verb = verb, .name = name, .patience_ns = d->tier.patience_ns};
    return dir_client_call(d->client, &call, ret);
}

/* Makes the call, with retries while they may help. `name` is the operation, for the log. */
static int call_until_done(struct dir *d, enum dir_verb verb, const char *name, const char *object,
                           struct dir_answer *ret)
{
    struct op op;
    int r;
    op_begin(&op, d, name, object);
    do
        r = call_by_name(d, verb, object, ret);
    while (op_again(&op, &r));
    return r;
}

/* --- put -------------------------------------------------------------------------------------- */

static int make_directory(void *arg, const char *directory)
{
    return call_by_name(arg, DIR_MAKE_DIRECTORY, directory, NULL);
}

/* An fsync that did not answer may have failed. A missing directory contains no names that could be
 * lost. */
static int sync_directory(void *arg, const char *directory, bool *ret_in_doubt)
{
    struct dir_answer answer;
    int r = call_by_name(arg, DIR_SYNC_DIRECTORY, directory, &answer);
    *ret_in_doubt = answer.is_lost || r == -ETIMEDOUT || r == -ECONNRESET;
    return r == -ENOENT ? 0 : r;
}

/* A put without an answer may have been carried out: its name must be made durable as well. */
static int put_once(struct dir *d, const char *object, const void *buf, size_t len,
                    struct tier_source *source, bool is_new)
{
    struct dir_call call = {.verb = is_new ? DIR_PUT_NEW : DIR_PUT,
                            .name = object,
                            .content = buf,
                            .source = source,
                            .len = len,
                            .patience_ns = d->tier.patience_ns};
    int r = dir_client_call(d->client, &call, NULL);
    if (r == -ENOENT) {
        r = directories_make_parents(d->directories, object);
        if (r == 0)
            r = dir_client_call(d->client, &call, NULL);
    }
    if (r != -ENOENT)
        directories_touch(d->directories, object);
    return r;
}

static int dir_put_object(struct tier *tier, const char *object, const void *buf, size_t len,
                          struct tier_source *source, bool is_new)
{
    struct dir *d = dir_of(tier);
    struct op op;
    check_name(object);
    TRY(check_writable(d));
    op_begin(&op, d, "put", object);
    int r;
    do
        r = put_once(d, object, buf, len, source, is_new);
    while ((!source || source->error == 0) && op_again(&op, &r));
    if (r == 0) {
        LOCK_SCOPE(&d->locked.lock);
        d->locked.traffic.sent_bytes += len;
    }
    return r;
}

static int dir_put(struct tier *tier, const char *object, const void *buf, size_t len)
{
    return dir_put_object(tier, object, buf, len, NULL, false);
}

static int dir_put_from(struct tier *tier, const char *object, struct tier_source *source)
{
    return dir_put_object(tier, object, NULL, source->len, source, false);
}

static int dir_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    return dir_put_object(tier, object, buf, len, NULL, true);
}

/* Called for names whose fsync failed: stores the objects again, under new directory entries. The
 * directory itself cannot be replaced, since other machines read in it. */
static int renew_names(const char *directory, char *const *objects, size_t count, void *arg)
{
    int r = 0;
    (void)directory;
    for (size_t i = 0; i < count && r == 0; i++)
        r = call_by_name(arg, DIR_STORE_AGAIN, objects[i], NULL);
    return r;
}

/* --- get -------------------------------------------------------------------------------------- */

static void see_time(struct dir *d, int64_t modified_ns)
{
    LOCK_SCOPE(&d->locked.lock);
    if (modified_ns > d->locked.newest_ns)
        d->locked.newest_ns = modified_ns;
}

static int get_once(struct dir *d, const char *object, uint64_t offset, void *buf, size_t len)
{
    struct dir_call call = {.verb = DIR_GET,
                            .name = object,
                            .into = buf,
                            .offset = offset,
                            .len = len,
                            .patience_ns = d->tier.patience_ns};
    return dir_client_call(d->client, &call, NULL);
}

static int dir_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf,
                         size_t len)
{
    struct dir *d = dir_of(tier);
    struct op op;
    check_name(object);
    TRY(check_readable(d));
    if (offset > INT64_MAX - len)
        return -EUCLEAN;
    op_begin(&op, d, "get", object);
    int r;
    do
        r = get_once(d, object, offset, buf, len);
    while (op_again(&op, &r));
    if (r == -EIO && op.io_errors >= EIO_TRIES)
        r = -EUCLEAN;
    if (r == 0) {
        LOCK_SCOPE(&d->locked.lock);
        d->locked.traffic.received_bytes += len;
    }
    return r;
}

static int dir_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    struct dir *d = dir_of(tier);
    struct dir_answer answer;
    check_name(object);
    TRY(check_readable(d));
    TRY(call_until_done(d, DIR_STAT, "stat", object, &answer));
    see_time(d, answer.modified_ns);
    *ret_len = answer.len;
    return 0;
}

/* --- the rest --------------------------------------------------------------------------------- */

static int dir_remove(struct tier *tier, const char *object)
{
    struct dir *d = dir_of(tier);
    check_name(object);
    TRY(check_writable(d));
    int r = call_until_done(d, DIR_REMOVE, "remove", object, NULL);
    if (r == -ENOENT)
        r = 0; /* an earlier attempt may have removed it and failed to answer */
    if (r == 0)
        directories_touch(d->directories, object);
    return r;
}

static int dir_sync(struct tier *tier)
{
    struct dir *d = dir_of(tier);
    struct op op;
    TRY(check_readable(d));
    op_begin(&op, d, "sync", "");
    int r;
    do
        r = directories_sync(d->directories);
    while (op_again(&op, &r));
    return r;
}

/* For a mount that may not touch a file: now is no earlier than the last write seen. */
static int64_t guessed_now(struct dir *d)
{
    int64_t ours = clock_realtime_ns();
    LOCK_SCOPE(&d->locked.lock);
    return ours > d->locked.newest_ns ? ours : d->locked.newest_ns;
}

static int dir_now(struct tier *tier, int64_t *ret_ns)
{
    struct dir *d = dir_of(tier);
    struct dir_answer answer;
    TRY(check_readable(d));
    if (d->read_only) {
        *ret_ns = guessed_now(d);
        return 0;
    }
    int r = call_until_done(d, DIR_NOW, "touch", CLOCK_FILE, &answer);
    if (r == 0)
        *ret_ns = answer.modified_ns;
    return r;
}

/* A file's time is that of the last tick of the server's kernel, or has a resolution of one or two
 * seconds. */
static int64_t grain_of(int64_t modified_ns)
{
    return modified_ns % SECOND_NS ? TICK_NS_MAX : 2 * SECOND_NS;
}

static int dir_read_clock(struct tier *tier, struct tier_reading *ret)
{
    struct dir *d = dir_of(tier);
    struct dir_answer answer;
    TRY(check_writable(d));
    int64_t asked = clock_boottime_ns();
    TRY(call_until_done(d, DIR_NOW, "touch", CLOCK_FILE, &answer));
    *ret = (struct tier_reading){.asked = asked,
                                 .answered = clock_boottime_ns(),
                                 .least = answer.modified_ns,
                                 .most = answer.modified_ns + grain_of(answer.modified_ns),
                                 .is_shared = answer.is_shared};
    return 0;
}

struct listing {
    struct dir *dir;
    int (*fn)(const struct tier_object *object, void *arg);
    void *arg;
    char *last;   /* the last object passed to fn: a retry continues after it; NULL: none yet */
    bool is_over; /* fn ended the list, so it is not retried */
};

static int give_object(const struct tier_object *object, void *arg)
{
    struct listing *l = arg;
    see_time(l->dir, object->modified_ns);
    int r = l->fn(object, l->arg);
    l->is_over = r != 0;
    free(l->last);
    l->last = xstrdup(object->name);
    return r;
}

static int dir_list(struct tier *tier, const char *directory, const char *after,
                    int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    struct dir *d = dir_of(tier);
    struct listing l = {.dir = d, .fn = fn, .arg = arg};
    struct dir_call call = {.verb = DIR_LIST, .name = directory, .entry = give_object, .arg = &l};
    struct op op;
    check_name(directory);
    TRY(check_readable(d));
    op_begin(&op, d, "list", directory);
    int r;
    do {
        call.after = l.last ? l.last : after;
        call.patience_ns = d->tier.patience_ns;
        r = dir_client_call(d->client, &call, NULL);
    } while (!l.is_over && op_again(&op, &r));
    free(l.last);
    return r < 0 ? r : 0;
}

static int dir_space(struct tier *tier, struct tier_space *ret_space)
{
    struct dir_answer answer;
    int r = call_by_name(dir_of(tier), DIR_SPACE, "", &answer);
    if (r == 0)
        *ret_space = (struct tier_space){.total_bytes = answer.total, .free_bytes = answer.free};
    return r;
}

static int dir_place(struct tier *tier, struct tier_place *ret)
{
    return dir_client_place(dir_of(tier)->client, ret);
}

static void dir_look_again(struct tier *tier)
{
    dir_client_forget(dir_of(tier)->client);
}

static void dir_interrupt(struct tier *tier)
{
    retry_gate_interrupt(&dir_of(tier)->gate);
    dir_client_interrupt(dir_of(tier)->client);
}

static void dir_last_error(struct tier *tier, char *buf, size_t size)
{
    struct dir *d = dir_of(tier);
    LOCK_SCOPE(&d->locked.lock);
    (void)snprintf(buf, size, "%s", d->locked.error);
}

static void dir_traffic(struct tier *tier, struct tier_traffic *ret_traffic)
{
    struct dir *d = dir_of(tier);
    LOCK_SCOPE(&d->locked.lock);
    *ret_traffic = d->locked.traffic;
}

static void dir_close(struct tier *tier)
{
    struct dir *d = dir_of(tier);
    directories_free(d->directories);
    retry_gate_done(&d->gate);
    mutex_done(&d->locked.lock);
    dir_client_free(d->client);
    free(d->path);
    free(d);
}

static const struct tier_ops dir_ops = {
    .name = "dir",
    .is_sorted = true,
    .close = dir_close,
    .put = dir_put,
    .put_new = dir_put_new,
    .put_from = dir_put_from,
    .get_range = dir_get_range,
    .stat = dir_stat,
    .list = dir_list,
    .remove = dir_remove,
    .sync = dir_sync,
    .now = dir_now,
    .read_clock = dir_read_clock,
    .interrupt = dir_interrupt,
    .place = dir_place,
    .look_again = dir_look_again,
    .last_error = dir_last_error,
    .traffic = dir_traffic,
    .space = dir_space,
};

/* A process that died may not have made the names in them durable. */
static void dir_mark_directories(struct dir *d)
{
    static const char *const directories[] = {"packs", "runs", "copies", "heads"};
    for (size_t i = 0; i < ARRAY_LEN(directories); i++)
        directories_mark(d->directories, directories[i]);
}

static struct dir *dir_new(const struct dir_options *options)
{
    struct dir *d = xcalloc(1, sizeof *d);
    struct directories_ops by = {.make = make_directory, .sync = sync_directory};
    d->tier.ops = &dir_ops;
    d->tier.patience_ns = options->patience_ns ? options->patience_ns : PATIENCE_NS;
    d->path = xstrdup(options->path);
    d->client = dir_client_new(options->path, options->read_only,
                               !options->read_only && !options->must_exist && !options->later);
    d->read_only = options->read_only;
    d->directories = directories_new_by(&by, renew_names, d);
    if (!d->read_only)
        dir_mark_directories(d);
    retry_gate_init(&d->gate);
    mutex_init(&d->locked.lock, LOCK_LEAF);
    return d;
}

static int judge_place(struct dir *d, const struct dir_options *options,
                       const struct dir_call *open)
{
    _cleanup_free_ char *real = xmalloc(DIR_NAME_MAX);
    struct dir_call call = *open;
    call.verb = DIR_RESOLVE;
    call.text = real;
    int r = dir_client_call(d->client, &call, NULL);
    return r == -ETIMEDOUT || r == -ECANCELED ? r : options->judge(r, real, options->arg);
}

int dir_tier_open(const struct dir_options *options, struct tier **ret_tier, char **ret_error)
{
    struct dir *d = dir_new(options);
    if (options->later) {
        *ret_tier = &d->tier;
        return 0;
    }
    int64_t patience = d->tier.patience_ns;
    struct dir_call call = {.verb = DIR_OPEN,
                            .name = d->path,
                            .given_up = options->given_up,
                            .arg = options->arg,
                            .patience_ns = patience < OPEN_WAIT_NS ? patience : OPEN_WAIT_NS};
    int r = options->judge ? judge_place(d, options, &call) : 0;
    if (r < 0 && r != -ETIMEDOUT && r != -ECANCELED) {
        dir_close(&d->tier);
        return r;
    }
    if (r == 0)
        r = dir_client_call(d->client, &call, NULL);
    if (r == -ETIMEDOUT) {
        struct op op = {.dir = d, .name = "open", .object = ""};
        note_error(&op, r);
        r = 0;
    }
    if (r < 0) {
        *ret_error = xasprintf("directory %s: %s%s", d->path, strerror(-r),
                               r == -EPERM ? "; another user made it, where anyone may write: give "
                                             "one of your own"
                                           : "");
        dir_close(&d->tier);
        return r;
    }
    *ret_tier = &d->tier;
    return 0;
}
