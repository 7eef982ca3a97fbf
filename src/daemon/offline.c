// SPDX-License-Identifier: Apache-2.0
#include "daemon/offline.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "daemon/prefixes.h"
#include "daemon/remote_tier.h"
#include "daemon/store_directory.h"
#include "daemon/when.h"

struct offline {
    struct store *store;           /* NULL: earlier states of a remote are read */
    struct past *past;             /* these states */
    struct remote_address address; /* of a remote */
    char *directory;               /* the temporary one */
    char *path;                    /* of a store */
    int lock_fd;                   /* -1: none */
    char *warning;
};

void offline_split(const char *text, char **ret_source, char **ret_path)
{
    size_t begin = remote_address_is(text) ? strcspn(text, ":") + 1 : 0;
    const char *colon = strchr(text + begin, ':');
    *ret_source = colon ? xasprintf("%.*s", (int)(colon - text), text) : xstrdup(text);
    *ret_path = xstrdup(colon && colon[1] ? colon + 1 : "/");
}

/* --- a remote --------------------------------------------------------------------------------- */

/* The directory will contain the key of the chunks: 0700, as mkdtemp makes it. */
static int make_directory(struct offline *o, char **ret_text)
{
    const char *base = getenv("TMPDIR");
    o->directory = xasprintf("%s/cairn-read-XXXXXX", base && *base ? base : "/tmp");
    if (mkdtemp(o->directory))
        return 0;
    int r = -errno;
    *ret_text = xasprintf(
        "cannot create a temporary directory in %s: %s; set TMPDIR to one with free space",
        base && *base ? base : "/tmp", strerror(-r));
    free(o->directory);
    o->directory = NULL;
    return r;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* Adds to the text which remotes exist, if there is none at the address. */
static void add_other_prefixes(const char *source, const struct mount_options *options, char **text)
{
    _cleanup_free_ char *others = prefixes_beside(source, options);
    char *whole = others && *text ? xasprintf("%s; there are: %s", *text, others) : NULL;
    if (!whole)
        return;
    free(*text);
    *text = whole;
}

static int choose_head(const struct mount_options *options, struct head_choice *ret,
                       char **ret_text)
{
    _cleanup_free_ char *why = NULL;
    if (!options->remote.at)
        return 0;
    int r = when_parse(options->remote.at, clock_realtime_ns(), ret, &why);
    return r < 0 ? text_fail(ret_text, r, "--at: %s", why) : 0;
}

static void note_warning(struct offline *o, const char *instead)
{
    if (instead)
        o->warning = xasprintf("%s: %s", o->address.text, instead);
}

/* `looks_back`: to read its earlier states. */
static int open_remote(struct offline *o, const char *source, const struct mount_options *options,
                       bool looks_back, char **ret_text)
{
    struct store_options how = {0};
    TRY(remote_address_parse(source, &o->address, ret_text));
    TRY(choose_head(options, &how.remote.at, ret_text));
    TRY(make_directory(o, ret_text));
    TRY(remote_tier_open(&o->address, options, true, NULL, &how.remote.tier, ret_text));
    how.path = o->directory;
    how.remote.name = o->address.text;
    how.remote.read_only = true;
    int r =
        looks_back ? past_open(&how, &o->past, ret_text) : reader_open(&how, &o->store, ret_text);
    if (r == 0)
        note_warning(o, looks_back ? past_warning(o->past) : reader_shown_instead(o->store));
    /* for the caller EBUSY means a store that another process has locked */
    return r == -EBUSY ? -ENODATA : r;
}

/* --- a store ---------------------------------------------------------------------------------- */

static int open_store(struct offline *o, const char *source, const struct mount_options *options,
                      pid_t *ret_holder, char **ret_text)
{
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", source);
    struct store_options how = {0};
    struct stat st;
    if (lstat(superblock, &st) < 0)
        return text_fail(ret_text, -EINVAL,
                         "%s is not a store (%s); give the directory that 'cairn mount' was given, "
                         "or s3://BUCKET/PREFIX, or dir:/PATH",
                         source, strerror(errno));
    TRY(choose_head(options, &how.remote.at, ret_text));
    bool is_past = head_choice_is_made(&how.remote.at);
    int r = io_resolve_path(source, &o->path);
    if (r == 0 && !is_past)
        r = store_directory_lock(o->path, &o->lock_fd, ret_holder);
    if (r == -EBUSY)
        return r;
    if (r < 0)
        return text_fail(ret_text, r,
                         "cannot lock the store %s: %s; run as its owner, on a writable disk",
                         source, strerror(-r));
    how.path = o->path;
    r = reader_open(&how, &o->store, ret_text);
    _cleanup_free_ char *stage = r == 0 && !is_past ? reader_left_stage(o->store) : NULL;
    if (stage)
        o->warning = xasprintf("the last daemon of %s left its stage in %s; data that is only "
                               "there is not shown: 'cairn mount' recovers it",
                               source, stage);
    return r;
}

static struct offline *offline_new(void)
{
    struct offline *o = xcalloc(1, sizeof *o);
    o->lock_fd = -1;
    return o;
}

static int give(struct offline *o, int r, const char *source, const struct mount_options *options,
                struct offline **ret, char **ret_text)
{
    if (r < 0) {
        if (r == -ENOENT && remote_address_is(source))
            add_other_prefixes(source, options, ret_text);
        if (r != -EBUSY && !*ret_text)
            *ret_text = xasprintf("cannot open %s: %s", source, strerror(-r));
        offline_close(o);
        return r;
    }
    *ret = o;
    return 0;
}

int offline_open(const char *source, const struct mount_options *options, struct offline **ret,
                 pid_t *ret_holder, char **ret_text)
{
    struct offline *o = offline_new();
    *ret_holder = 0;
    *ret_text = NULL;
    int r = remote_address_is(source) ? open_remote(o, source, options, false, ret_text)
                                      : open_store(o, source, options, ret_holder, ret_text);
    return give(o, r, source, options, ret, ret_text);
}

static int open_past_of_store(struct offline *o, const char *source, char **ret_text)
{
    struct store_options how = {0};
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", source);
    if (access(superblock, F_OK) < 0)
        return text_fail(ret_text, -EINVAL, "%s is not a store (%s)", source, strerror(errno));
    TRY(io_resolve_path(source, &o->path));
    how.path = o->path;
    return past_open(&how, &o->past, ret_text);
}

int offline_open_past(const char *source, const struct mount_options *options, struct offline **ret,
                      char **ret_text)
{
    struct offline *o = offline_new();
    *ret_text = NULL;
    int r = remote_address_is(source) ? open_remote(o, source, options, true, ret_text)
                                      : open_past_of_store(o, source, ret_text);
    return give(o, r, source, options, ret, ret_text);
}

void offline_close(struct offline *o)
{
    if (!o)
        return;
    reader_close(o->store);
    past_close(o->past);
    if (o->directory)
        (void)nftw(o->directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    cleanup_close(&o->lock_fd);
    remote_address_done(&o->address);
    free(o->directory);
    free(o->path);
    free(o->warning);
    free(o);
}

struct store *offline_store(struct offline *o)
{
    return o->store;
}

struct past *offline_past(struct offline *o)
{
    return o->past;
}

const char *offline_warning(const struct offline *o)
{
    return o->warning;
}
