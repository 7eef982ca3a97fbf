// SPDX-License-Identifier: Apache-2.0
#include "cli/source.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/mounts.h"
#include "daemon/when.h"

#define LINKS_MAX 40
#define PATIENCE_MS 10000
#define STEP_MS 100

/* --- flags ------------------------------------------------------------------------------------ */

static const char *const flag_names[] = {"endpoint_url",    "region",        "profile",
                                         "no_sign_request", "addressing",    "ca_bundle",
                                         "connections",     "remote_timeout"};

bool source_takes_option(const struct option_spec *spec)
{
    for (size_t i = 0; i < ARRAY_LEN(flag_names); i++)
        if (strcmp(spec->name, flag_names[i]) == 0)
            return true;
    return false;
}

static void print_name(const struct flag *flag, void *arg)
{
    (void)arg;
    if (flag->name)
        (void)printf(" --%s", flag->name);
}

void source_print_help(const char *text)
{
    static const struct command options_only = {.takes_option = source_takes_option};
    (void)printf("\n%s\n ", text);
    command_each_flag(&options_only, print_name, NULL);
    (void)printf("\n");
}

void source_more_help(void)
{
    source_print_help("SOURCE is s3://BUCKET/PREFIX, dir:/PATH, or the directory of a store that "
                      "is not mounted. PATH follows the first ':' after\n"
                      "that, so a PATH may contain colons. These mount options (see 'cairn help "
                      "mount') select how a remote is reached:");
}

/* --- opening ---------------------------------------------------------------------------------- */

const char *source_trouble(int r)
{
    switch (r) {
    case -ENOENT:
        return "no such file or directory";
    case -ENOTDIR:
        return "not a directory";
    case -EBADMSG:
    case -EUCLEAN:
        return "damaged";
    case -ENOLINK:
        return "damaged: what it refers to cannot be read";
    case -EREMOTE:
        return "another node wrote it, and has its content: copy it from the remote";
    case -ELOOP:
        return "too many symbolic links";
    case -EXDEV:
        return "a symbolic link leads outside";
    default:
        return strerror(-r);
    }
}

/* Prints the better way if a daemon holds the store. */
static int complain_busy(const struct command *command, const char *source, pid_t holder)
{
    _cleanup_(mounts_done) struct mount_list mounts = {0};
    const struct mount_entry *mount = mounts_read("/proc/self/mountinfo", &mounts) == 0
                                          ? mounts_find_store(&mounts, source)
                                          : NULL;
    if (mount)
        complain(command->name, "%s is mounted at %s; use the files there", source,
                 mount->mountpoint);
    else
        complain(command->name, "%s is in use by pid %d; if that is its daemon, use the mountpoint",
                 source, (int)holder);
    return CLI_FAILED;
}

/* Waits for another `cairn ls`, which holds a store only for a moment. */
static int open_patiently(const char *name, const struct mount_options *options,
                          struct offline **ret, pid_t *holder, char **text)
{
    for (int waited = 0;; waited += STEP_MS) {
        int r = offline_open(name, options, ret, holder, text);
        if (r != -EBUSY || waited >= PATIENCE_MS)
            return r;
        _cleanup_(mounts_done) struct mount_list mounts = {0};
        if (mounts_read("/proc/self/mountinfo", &mounts) == 0 && mounts_find_store(&mounts, name))
            return r;
        (void)nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    }
}

static int open_named(const struct command *command, const struct mount_options *options,
                      const char *name, struct source *source)
{
    pid_t holder;
    char *text = NULL;
    log_set_level(LOG_LEVEL_ERROR);
    int r = open_patiently(name, options, &source->offline, &holder, &text);
    if (r == -EBUSY)
        return complain_busy(command, name, holder);
    if (r < 0) {
        complain(command->name, "%s", text);
        free(text);
        return r == -EINVAL ? command_usage_exit(command) : CLI_FAILED;
    }
    free(text);
    source->name = xstrdup(name);
    source->store = offline_store(source->offline);
    source->ns = store_ns(source->store);
    if (offline_warning(source->offline))
        complain(command->name, "%s", offline_warning(source->offline));
    return CLI_OK;
}

int source_look_back(const struct command *command, const char *when, struct mount_options *options)
{
    _cleanup_free_ char *why = NULL;
    struct head_choice choice;
    if (when && when_parse(when, clock_realtime_ns(), &choice, &why) < 0)
        return complain_usage(command, "--at: %s", why);
    options->remote.at = when ? when_print(&choice) : NULL;
    return CLI_OK;
}

void source_close(struct source *source)
{
    offline_close(source->offline);
    free(source->name);
    *source = (struct source){0};
}

/* --- paths ------------------------------------------------------------------------------------ */

int source_readlink(struct source *source, uint64_t ino, char **ret)
{
    char target[4097];
    ssize_t len = ns_readlink(source->ns, ino, target, sizeof target - 1);
    if (len < 0)
        return (int)len;
    target[len] = '\0';
    *ret = xstrdup(target);
    return 0;
}

struct walk {
    struct source *source;
    struct ns_inode at; /* the inode that was reached */
    unsigned links;
};

static int walk_path(struct walk *walk, const char *path, bool resolve_last);

static int walk_link(struct walk *walk, const struct ns_inode *directory)
{
    _cleanup_free_ char *target = NULL;
    TRY(source_readlink(walk->source, walk->at.ino, &target));
    if (++walk->links > LINKS_MAX)
        return -ELOOP;
    if (*target == '/')
        return -EXDEV; /* a path at the former mountpoint */
    walk->at = *directory;
    return walk_path(walk, target, true);
}

static int walk_part(struct walk *walk, const char *name, size_t len, bool resolve)
{
    struct ns_inode directory = walk->at;
    struct view_entry entry;
    if (!S_ISDIR(directory.attrs.mode))
        return -ENOTDIR;
    if (len == 1 && *name == '.')
        return 0;
    bool up = len == 2 && memcmp(name, "..", 2) == 0;
    if (!up)
        TRY(ns_lookup(walk->source->ns, directory.ino, name, len, &entry));
    TRY(ns_inode(walk->source->ns, up ? directory.parent : entry.ino, &walk->at));
    return resolve && S_ISLNK(walk->at.attrs.mode) ? walk_link(walk, &directory) : 0;
}

static int walk_path(struct walk *walk, const char *path, bool resolve_last)
{
    int r = 0;
    for (path += strspn(path, "/"); *path && r == 0;) {
        size_t len = strcspn(path, "/");
        const char *next = path + len + strspn(path + len, "/");
        bool is_last = *next == '\0' && path[len] == '\0';
        r = walk_part(walk, path, len, !is_last || resolve_last);
        path = next;
    }
    return r;
}

static char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return xstrdup(strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? "" : name);
}

static int find_node(const struct command *command, struct source *source, struct source_node *node,
                     bool follows)
{
    struct walk walk = {.source = source};
    size_t len = strlen(node->path);
    bool wants_directory = len > 0 && node->path[len - 1] == '/';
    int r = ns_inode(source->ns, ROOT_INO, &walk.at);
    if (r == 0)
        r = walk_path(&walk, node->path, wants_directory || follows);
    if (r == 0 && wants_directory && !S_ISDIR(walk.at.attrs.mode))
        r = -ENOTDIR;
    if (r < 0)
        return complain(command->name, "%s:%s: %s", source->name, node->path, source_trouble(r));
    node->inode = walk.at;
    node->ino = walk.at.ino;
    return CLI_OK;
}

int source_open(const struct command *command, const struct mount_options *options,
                const char *text, struct source *source, struct source_node *ret)
{
    _cleanup_free_ char *name = NULL;
    int code = CLI_OK;
    *ret = (struct source_node){0};
    offline_split(text, &name, &ret->path);
    ret->name = last_part(ret->path);
    if (!source->name || strcmp(source->name, name) != 0) {
        source_close(source);
        code = open_named(command, options, name, source);
    }
    return code == CLI_OK ? find_node(command, source, ret, false) : code;
}

int source_follow(const struct command *command, struct source *source, struct source_node *node)
{
    return S_ISLNK(node->inode.attrs.mode) ? find_node(command, source, node, true) : CLI_OK;
}

void source_node_done(struct source_node *node)
{
    free(node->path);
    free(node->name);
}

/* --- directories ------------------------------------------------------------------------------ */

/* Refuses names of a hostile remote that lead outside. */
static bool is_name(const char *name, size_t len)
{
    bool dots = (len == 1 && *name == '.') || (len == 2 && memcmp(name, "..", 2) == 0);
    return len > 0 && len <= NAME_LEN_MAX && !dots && !memchr(name, '/', len) &&
           !memchr(name, '\0', len);
}

static int add_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    struct source_list *list = arg;
    if (!is_name(name, name_len))
        return -EUCLEAN;
    vector_add(list, (struct source_entry){.name = xasprintf("%.*s", (int)name_len, name),
                                           .ino = entry->ino});
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct source_entry *)a)->name, ((const struct source_entry *)b)->name);
}

int source_list(struct source *source, uint64_t ino, struct source_list *ret)
{
    *ret = (struct source_list){0};
    int r = ns_readdir(source->ns, ino, 0, SIZE_MAX, add_entry, ret);
    for (size_t i = 0; i < ret->count && r == 0; i++)
        r = ns_inode(source->ns, ret->at[i].ino, &ret->at[i].inode);
    if (r < 0)
        source_list_done(ret);
    else
        vector_sort(ret, compare_entries);
    return r == -ENOENT ? -EUCLEAN : r;
}

void source_list_done(struct source_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->at[i].name);
    vector_free(list);
}
