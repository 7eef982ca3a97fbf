// SPDX-License-Identifier: Apache-2.0
/* cairn cp: copies files and trees from a store or remote that need not be mounted, and single
 * files to standard output. cairn restore: from an earlier state of a mount to the mount.
 */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>

#include "base/io.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/copy.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/mounts.h"
#include "cli/target.h"
#include "daemon/remote_address.h"
#include "fs/past.h"

#define DEPTH_MAX 1024u
#define THREADS_LOCAL 4u
#define THREADS_REMOTE 16u
#define STEP (1u << 20)

struct copying {
    const struct command *command;
    struct mount_options options;
    struct source source;
    struct copy *copy;
    bool is_recursive, is_partial, is_json;
    bool replaces;       /* restore: existing files */
    const char *to;      /* restore: the new path; NULL: the former one */
    const char *at;      /* WHEN; NULL: the newest state */
    const char *past;    /* restore: PATH in .history; NULL: the mount does not show it */
    const char *past_of; /* restore: the local path of its content */
    bool to_output;
    cJSON *problems; /* with is_json */
    struct copy_result result;
};

extern const struct command restore_command;

/* The target of a copy. */
struct place {
    int dir_fd;
    char *directory; /* its path */
    char *name;      /* "": the directory itself */
};

static void place_done(struct place *place)
{
    if (place->dir_fd >= 0)
        (void)close(place->dir_fd);
    free(place->directory);
    free(place->name);
}

/* --- the amount ------------------------------------------------------------------------------- */

static void count_tree(struct copying *c, const struct ns_inode *inode, struct copy_counts *counts,
                       unsigned depth)
{
    struct source_list list;
    if (!S_ISDIR(inode->attrs.mode)) {
        counts->files++;
        counts->bytes += S_ISREG(inode->attrs.mode) ? inode->blocks_bytes : 0;
        return;
    }
    if (depth > DEPTH_MAX || interrupted() || source_list(&c->source, inode->ino, &list) < 0)
        return;
    for (size_t i = 0; i < list.count; i++)
        count_tree(c, &list.at[i].inode, counts, depth + 1);
    source_list_done(&list);
}

/* --- copying ---------------------------------------------------------------------------------- */

static void copy_node(struct copying *c, const struct ns_inode *inode, int dir_fd, const char *name,
                      const char *path, unsigned depth);

static void copy_entries(struct copying *c, uint64_t ino, int dir_fd, const char *path,
                         unsigned depth)
{
    struct source_list list;
    int r = depth > DEPTH_MAX ? -ELOOP : source_list(&c->source, ino, &list);
    if (r < 0) {
        copy_failed(c->copy, path, source_trouble(r));
        return;
    }
    for (size_t i = 0; i < list.count && !interrupted(); i++) {
        _cleanup_free_ char *below = path_below(path, list.at[i].name);
        copy_node(c, &list.at[i].inode, dir_fd, list.at[i].name, below, depth + 1);
    }
    source_list_done(&list);
}

static void copy_subdirectory(struct copying *c, const struct ns_inode *inode, int dir_fd,
                              const char *name, const char *path, unsigned depth)
{
    _cleanup_close_ int fd = -1;
    int r = mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST ? -errno : 0;
    if (r == 0) {
        fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = fd < 0 ? -errno : 0;
    }
    if (r < 0) {
        copy_failed(c->copy, path, strerror(-r));
        return;
    }
    copy_directory_later(c->copy, inode, path);
    copy_entries(c, inode->ino, fd, path, depth);
}

static void copy_symlink(struct copying *c, const struct ns_inode *inode, int dir_fd,
                         const char *name, const char *path)
{
    _cleanup_free_ char *target = NULL;
    int r = source_readlink(&c->source, inode->ino, &target);
    if (r < 0)
        copy_failed(c->copy, path, source_trouble(r));
    else
        copy_link(c->copy, inode, target, dir_fd, name, path);
}

static void copy_node(struct copying *c, const struct ns_inode *inode, int dir_fd, const char *name,
                      const char *path, unsigned depth)
{
    if (S_ISREG(inode->attrs.mode))
        copy_file(c->copy, inode, dir_fd, name, path);
    else if (S_ISDIR(inode->attrs.mode))
        copy_subdirectory(c, inode, dir_fd, name, path, depth);
    else if (S_ISLNK(inode->attrs.mode))
        copy_symlink(c, inode, dir_fd, name, path);
    else
        copy_failed(c->copy, path, "not a file, directory or symbolic link; skipped");
}

/* --- arguments -------------------------------------------------------------------------------- */

static int find_place(const struct copying *c, const char *local, const char *name,
                      bool is_directory, struct place *ret)
{
    struct stat st;
    bool exists = stat(local, &st) == 0, into = exists && S_ISDIR(st.st_mode);
    *ret = (struct place){.dir_fd = -1};
    if (!into && *name == '\0' && is_directory) { /* the whole directory: LOCAL becomes it */
        if (mkdir(local, 0777) < 0)
            return complain(c->command->name, "cannot create %s: %s", local, strerror(errno));
        into = true;
    }
    _cleanup_free_ char *copy = xstrdup(local);
    _cleanup_free_ char *other = xstrdup(local);
    ret->directory = xstrdup(into ? local : dirname(copy));
    ret->name = xstrdup(into ? name : basename(other));
    ret->dir_fd = open(ret->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret->dir_fd >= 0)
        return CLI_OK;
    return complain(c->command->name, "%s: %s", ret->directory, strerror(errno));
}

static int begin_copy(struct copying *c)
{
    struct copy_how how = {.command = c->command->name,
                           .is_partial = c->is_partial,
                           .to_output = c->to_output,
                           .may_not_replace = c->command == &restore_command && !c->replaces,
                           .restores = c->command == &restore_command,
                           .past = c->past,
                           .past_of = c->past_of,
                           .problems = c->problems};
    how.threads = remote_address_is(c->source.name)
                      ? (unsigned)min_u64(THREADS_REMOTE, c->options.remote.connections)
                      : THREADS_LOCAL;
    int r = copy_begin(&how, c->source.store, &c->copy);
    if (r == 0)
        return CLI_OK;
    return complain(c->command->name, "cannot start threads: %s", strerror(-r));
}

static int copy_found(struct copying *c, const struct source_node *node, const char *text,
                      const char *local)
{
    struct place place;
    struct copy_counts counts = {0};
    bool is_directory = S_ISDIR(node->inode.attrs.mode);
    if (is_directory && !c->is_recursive)
        return complain(c->command->name, "%s is a directory; use -r to copy it", text);
    int code = find_place(c, local, node->name, is_directory, &place);
    if (code == CLI_OK)
        code = begin_copy(c);
    if (code == CLI_OK) {
        _cleanup_free_ char *path = path_below(place.directory, place.name);
        count_tree(c, &node->inode, &counts, 0);
        copy_expect(c->copy, &counts);
        if (*place.name)
            copy_node(c, &node->inode, place.dir_fd, place.name, path, 0);
        else
            copy_entries(c, node->ino, place.dir_fd, place.directory, 0);
        code = copy_end(c->copy, &c->result);
    }
    place_done(&place);
    return code;
}

static int copy_operand(struct copying *c, const char *text, const char *local)
{
    _cleanup_(source_node_done) struct source_node node = {0};
    int code = source_open(c->command, &c->options, text, &c->source, &node);
    return code == CLI_OK ? copy_found(c, &node, text, local) : code;
}

/* --- to standard output ----------------------------------------------------------------------- */

/* Returns the path of SOURCE:PATH, or of a path, on a mount. NULL: it is on none. Caller frees. */
static char *find_mounted(const char *text)
{
    _cleanup_free_ char *source = NULL;
    _cleanup_free_ char *path = NULL;
    _cleanup_(mounts_done) struct mount_list mounts = {0};
    struct stat st;
    if (mounts_read("/proc/self/mountinfo", &mounts) < 0)
        return NULL;
    offline_split(text, &source, &path);
    if (stat(text, &st) == 0 && mounts_find_device(&mounts, st.st_dev))
        return xstrdup(text);
    if (stat(source, &st) == 0 && mounts_find_device(&mounts, st.st_dev))
        return path_below(source, path + strspn(path, "/"));
    return NULL;
}

static int output_mounted(const struct copying *c, const char *path)
{
    struct stat st = {0};
    uint64_t done = 0;
    _cleanup_free_ uint8_t *bytes = xmalloc(STEP);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 || fstat(fd, &st) < 0 ? -1 : 0;
    if (n == 0 && !S_ISREG(st.st_mode))
        return complain(c->command->name, "%s is not a file; only a file can go to standard output",
                        path);
    for (; n == 0 && (n = read(fd, bytes, STEP)) > 0; done += (uint64_t)n, n = 0) {
        int r = io_write_full(STDOUT_FILENO, bytes, (size_t)n);
        if (r == 0)
            continue;
        return complain(c->command->name, "standard output: %s", strerror(-r));
    }
    if (n == 0)
        return CLI_OK;
    return complain(c->command->name, "%s: %s; the output ends after %llu of %llu bytes%s", path,
                    strerror(errno), (unsigned long long)done, (unsigned long long)st.st_size,
                    errno == EIO ? "; 'cairn status' names the cause" : "");
}

static int output_node(struct copying *c, const struct source_node *node, const char *text)
{
    const struct ns_inode *inode = &node->inode;
    if (!S_ISREG(inode->attrs.mode))
        return complain(c->command->name, "%s is not a file; only a file can go to standard output",
                        text);
    int code = begin_copy(c);
    if (code != CLI_OK)
        return code;
    copy_expect(c->copy, &(struct copy_counts){1, inode->attrs.size});
    copy_stream(c->copy, inode, STDOUT_FILENO, text);
    return copy_end(c->copy, &c->result);
}

static int to_output_from(struct copying *c, const char *text)
{
    _cleanup_(source_node_done) struct source_node node = {0};
    _cleanup_free_ char *mounted = find_mounted(text);
    if (mounted)
        return output_mounted(c, mounted);
    int code = source_open(c->command, &c->options, text, &c->source, &node);
    if (code == CLI_OK)
        code = source_follow(c->command, &c->source, &node);
    if (code == CLI_OK)
        code = output_node(c, &node, text);
    return code;
}

/* --- the command ------------------------------------------------------------------------------ */

static int check_local(const struct copying *c, char **operands, size_t count)
{
    const struct command *command = c->command;
    struct stat st;
    if (c->to_output && (count > 2 || c->is_recursive || c->is_partial || c->is_json))
        return complain_usage(command, "only one file can go to standard output, and without -r, "
                                       "--partial and --json; a file named '-' is ./-");
    if (count <= 2 || (stat(operands[count - 1], &st) == 0 && S_ISDIR(st.st_mode)))
        return CLI_OK;
    return complain_usage(command,
                          "%s is not a directory; several sources can only be copied into one",
                          operands[count - 1]);
}

/* The last line, if something failed. */
static void print_result(const struct copying *c)
{
    const struct copy_result *result = &c->result;
    unsigned long long copied = result->copied, total = result->total, partial = result->partial;
    if (copied == total)
        return;
    if (partial)
        complain(c->command->name,
                 "%llu of %llu files copied, %llu more in part (as NAME.partial; NAME.holes says "
                 "what is missing)",
                 copied, total, partial);
    else
        complain(c->command->name, "%llu of %llu files copied", copied, total);
}

static void print_json(const struct copying *c, const char *local, int code)
{
    _cleanup_json_ cJSON *json = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(json, "local", local);
    (void)cJSON_AddBoolToObject(json, "complete", code == CLI_OK);
    control_add_u64(json, "files", c->result.total);
    control_add_u64(json, "copied", c->result.copied);
    control_add_u64(json, "partial", c->result.partial);
    control_add_u64(json, "bytes", c->result.bytes);
    (void)cJSON_AddItemToObject(json, "problems", c->problems);
    json_print(json);
}

/* Copies everything that can be copied, also after failures of others. */
static int copy_operands(struct copying *c, char **operands, size_t count)
{
    int code = CLI_OK;
    if (c->to_output)
        return to_output_from(c, operands[0]);
    c->problems = c->is_json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; (code == CLI_OK || code == CLI_FAILED) && i + 1 < count; i++) {
        int one = copy_operand(c, operands[i], operands[count - 1]);
        code = one == CLI_OK ? code : one;
    }
    if (c->is_json)
        print_json(c, operands[count - 1], code);
    else
        print_result(c);
    return code;
}

static int execute_cp(struct call *call)
{
    struct copying *c = call->request;
    size_t count = 0;
    c->command = call->command;
    while (call->operands[count])
        count++;
    check(count >= 2); /* by the table of operands */
    c->to_output = strcmp(call->operands[count - 1], "-") == 0;
    int code = source_look_back(call->command, c->at, &c->options);
    if (code == CLI_OK)
        code = check_local(c, call->operands, count);
    if (code == CLI_OK)
        code = copy_operands(c, call->operands, count);
    source_close(&c->source);
    return code;
}

#define FIELD(f) offsetof(struct copying, f)
static const struct flag flags[] = {
    {.letter = 'r',
     .help = "copy directories with their content; a PATH ending in '/', and the root, give their "
             "content only",
     .offset = FIELD(is_recursive)},
    {.letter = 'R', .offset = FIELD(is_recursive)},
    {FLAG_OF('\0', "partial", FLAG_SET, FIELD(is_partial)),
     .help =
         "of a damaged file, write what can be read as NAME.partial, and the ranges that cannot as "
         "NAME.holes: one line each, with offset, length and the object that is missing"},
    FLAG_AT(FIELD(at)),
    FLAG_JSON_OF("print how many files were copied, and what is wrong with the others, as JSON",
                 FIELD(is_json)),
    {0},
};

const struct command cp_command = {
    .name = "cp",
    .summary = "copy files from a remote, or from a store that is not mounted",
    .description = "All data is verified; a file gets its name only once it is complete. Modes, "
                   "times, holes and symbolic links are kept,\n"
                   "owners are not. LOCAL '-' is standard output, for one file, also of a mount.",
    .flags = flags,
    REQUEST(struct copying, 0),
    .operands =
        (const struct operand[]){
            {.name = "SOURCE:PATH", .offers = OFFER_FILES, .is_repeated = true},
            {.name = "LOCAL", .offers = OFFER_FILES},
            {0}},
    .exits = EXITS_INTERRUPTED("copied", "failed for some or all files"),
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = source_more_help,
    .execute = execute_cp,
};

/* --- restore ---------------------------------------------------------------------------------- */

/* Finds the mount of PATH, which need not exist, and the part behind the mountpoint. */
static int find_mount(const struct copying *c, const char *path, const struct mount_list *mounts,
                      const struct mount_entry **ret, char **ret_below)
{
    _cleanup_free_ char *whole = path_absolute(path);
    const struct mount_entry *mount = NULL;
    for (size_t i = 0; whole && i < mounts->count; i++)
        if (path_is_inside(whole, mounts->at[i].mountpoint) &&
            (!mount || strlen(mounts->at[i].mountpoint) >= strlen(mount->mountpoint)))
            mount = &mounts->at[i];
    if (!mount)
        return complain_usage(c->command, "%s is not on a CairnFS mount", path);
    *ret = mount;
    *ret_below = xstrdup(whole + strlen(mount->mountpoint));
    return CLI_OK;
}

/* Does the store have a snapshot of this name? */
static bool store_has_name(const char *store, const char *name)
{
    const struct mount_options none = {0};
    _cleanup_vector_ struct past_names names = {0};
    _cleanup_free_ char *text = NULL;
    struct offline *offline = NULL;
    bool has = false;
    if (offline_open_past(store, &none, &offline, &text) == 0 &&
        past_list_names(offline_past(offline), &names) == 0)
        for (size_t i = 0; i < names.count; i++)
            has = has || strcmp(names.at[i].name, name) == 0;
    offline_close(offline);
    return has;
}

/* Returns SOURCE:PATH of the mount's remote; or of its store, if there is no remote or the store
 * has the snapshot. Caller frees. */
static int find_source(const struct copying *c, const struct mount_entry *mount, const char *below,
                       char **ret)
{
    _cleanup_json_ cJSON *status = NULL;
    if (ask_daemon(c->command->name, mount->store, "status", NULL, &status) < 0)
        return CLI_FAILED;
    const char *remote = json_text(json_part(status, "remote"), "name");
    const char *name = remote && !store_has_name(mount->store, c->at) ? remote : mount->store;
    *ret = xasprintf("%s:%s", name, *below ? below : "/");
    return CLI_OK;
}

/* Creates the missing parent directories of a path. */
static int make_parents(const struct copying *c, const char *path)
{
    _cleanup_free_ char *copy = xstrdup(path);
    for (char *at = copy + strspn(copy, "/"); (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            return complain(c->command->name, "cannot create %s: %s", copy, strerror(errno));
    }
    return CLI_OK;
}

static int restore_node(struct copying *c, const struct source_node *node, const char *target)
{
    struct copy_counts counts = {0};
    _cleanup_free_ char *one = xstrdup(target), *other = xstrdup(target);
    const char *directory = dirname(one), *name = basename(other);
    _cleanup_close_ int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return complain(c->command->name, "%s: %s", directory, strerror(errno));
    bool is_node = *node->name || c->to;
    c->past_of = is_node ? target : directory;
    int code = begin_copy(c);
    if (code != CLI_OK)
        return code;
    count_tree(c, &node->inode, &counts, 0);
    copy_expect(c->copy, &counts);
    if (is_node)
        copy_node(c, &node->inode, fd, name, target, 0);
    else
        copy_entries(c, node->ino, fd, directory, 0);
    return copy_end(c->copy, &c->result);
}

struct restoring {
    const struct mount_entry *mount;
    const char *below; /* the path in the mount */
    const char *text;  /* SOURCE:PATH */
};

/* Finds where the mount shows the same state. The number of a head that only a name keeps is not
 * listed there: then its name is. */
static char *find_past(const struct copying *c, const struct mount_entry *mount, const char *below)
{
    unsigned long long head = reader_shown_head(c->source.store);
    char *past = xasprintf("%s/" FS_HISTORY_NAME "/%llu%s", mount->mountpoint, head, below);
    if (access(past, F_OK) == 0)
        return past;
    free(past);
    return strchr(c->at, '/')
               ? NULL
               : xasprintf("%s/" FS_HISTORY_NAME "/%s%s", mount->mountpoint, c->at, below);
}

static int restore_from(struct copying *c, const struct restoring *what, const char *target)
{
    _cleanup_(source_node_done) struct source_node node = {0};
    int code = source_open(c->command, &c->options, what->text, &c->source, &node);
    if (code != CLI_OK)
        return code;
    _cleanup_free_ char *past = find_past(c, what->mount, what->below);
    c->past = past;
    code = make_parents(c, target);
    return code == CLI_OK ? restore_node(c, &node, target) : code;
}

static int restore_path(struct copying *c, const char *path, const struct mount_list *mounts)
{
    const struct mount_entry *mount = NULL;
    _cleanup_free_ char *below = NULL, *text = NULL, *target = NULL;
    int code = find_mount(c, path, mounts, &mount, &below);
    if (code == CLI_OK)
        code = find_source(c, mount, below, &text);
    if (code != CLI_OK)
        return code;
    /* The content of the whole mount is copied into its root. */
    bool is_root = below[strspn(below, "/")] == '\0';
    target = c->to     ? xstrdup(c->to)
             : is_root ? xasprintf("%s/.", mount->mountpoint)
                       : xasprintf("%s%s", mount->mountpoint, below);
    size_t len = strlen(target);
    while (len > 1 && target[len - 1] == '/')
        target[--len] = '\0';
    return restore_from(c, &(struct restoring){mount, below, text}, target);
}

static int execute_restore(struct call *call)
{
    struct copying *c = call->request;
    _cleanup_(mounts_done) struct mount_list mounts = {0};
    c->command = call->command;
    c->is_recursive = true;
    if (!c->at)
        return complain_usage(call->command, "--at is missing: which state? 'cairn history' lists "
                                             "them");
    int code = source_look_back(call->command, c->at, &c->options);
    c->problems = c->is_json ? cJSON_CreateArray() : NULL;
    if (code == CLI_OK)
        code = target_mounts(call->command, &mounts);
    if (code == CLI_OK)
        code = restore_path(c, call->operands[0], &mounts);
    if (c->is_json)
        print_json(c, c->to ? c->to : call->operands[0], code);
    else if (code == CLI_OK || c->result.copied)
        (void)printf("%llu of %llu files restored\n", (unsigned long long)c->result.copied,
                     (unsigned long long)c->result.total);
    source_close(&c->source);
    return code;
}

static const struct flag restore_flags[] = {
    FLAG_AT(FIELD(at)),
    {FLAG_OF('\0', "to", FLAG_TEXT, FIELD(to)), .argument = "NEW",
     .help = "restore it as NEW, which may be anywhere"},
    {FLAG_OF('\0', "replace", FLAG_SET, FIELD(replaces)),
     .help = "replace files that are there; else they stay, and are named"},
    FLAG_JSON_OF("print how many files were restored, and what is wrong with the others, as JSON",
                 FIELD(is_json)),
    {0},
};

const struct command restore_command = {
    .name = "restore",
    .summary = "bring files of a mount back as they were in an earlier state",
    .description =
        "PATH is on a mount, and need not be there any more. Its state comes from the "
        "mount's remote, or from a snapshot of its store. A file is\nrestored whole or not at all, "
        "with its mode, time and "
        "extended attributes, and, if root restores it, with its\nowner. Hard links become "
        "copies.",
    .flags = restore_flags,
    REQUEST(struct copying, 0),
    .operands = (const struct operand[]){{.name = "PATH", .offers = OFFER_FILES}, {0}},
    .exits = EXITS_INTERRUPTED("restored", "failed for some or all files"),
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = source_more_help,
    .execute = execute_restore,
};
