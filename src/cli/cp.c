// SPDX-License-Identifier: Apache-2.0
/* Files and trees of a store or remote that nobody need have mounted, to local ones. */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>

#include "cli/copy.h"

#define DEPTH_MAX 1024u
#define THREADS_LOCAL 4u
#define THREADS_REMOTE 16u

struct copying {
    const struct verb *verb;
    struct mount_options options;
    struct source source;
    struct copy *copy;
    bool is_recursive;
};

/* Where something goes. */
struct target {
    int dir_fd;
    char *folder; /* its path */
    char *name;   /* "": the folder itself */
};

static void target_done(struct target *target)
{
    if (target->dir_fd >= 0)
        (void)close(target->dir_fd);
    free(target->folder);
    free(target->name);
}

static char *join(const char *folder, const char *name)
{
    size_t len = strlen(folder);
    return xasprintf("%s%s%s", folder, len && folder[len - 1] == '/' ? "" : "/", name);
}

/* --- what there is to do ---------------------------------------------------------------------------------------------------- */

static void count_tree(struct copying *c, const struct ns_inode *inode, struct copy_counts *counts, unsigned depth)
{
    struct source_list list;
    if (!S_ISDIR(inode->attrs.mode)) {
        counts->files++;
        counts->bytes += S_ISREG(inode->attrs.mode) ? inode->blocks_bytes : 0;
        return;
    }
    if (depth > DEPTH_MAX || copy_is_interrupted() || source_list(&c->source, inode->ino, &list) < 0)
        return;
    for (size_t i = 0; i < list.count; i++)
        count_tree(c, &list.at[i].inode, counts, depth + 1);
    source_list_done(&list);
}

/* --- copying ---------------------------------------------------------------------------------------------------------------- */

static void copy_node(struct copying *c, const struct ns_inode *inode, int dir_fd, const char *name, const char *path,
                      unsigned depth);

static void copy_entries(struct copying *c, uint64_t ino, int dir_fd, const char *path, unsigned depth)
{
    struct source_list list;
    int r = depth > DEPTH_MAX ? -ELOOP : source_list(&c->source, ino, &list);
    if (r < 0) {
        copy_failed(c->copy, path, source_trouble(r));
        return;
    }
    for (size_t i = 0; i < list.count && !copy_is_interrupted(); i++) {
        _cleanup_free_ char *below = join(path, list.at[i].name);
        copy_node(c, &list.at[i].inode, dir_fd, list.at[i].name, below, depth + 1);
    }
    source_list_done(&list);
}

static void copy_folder(struct copying *c, const struct ns_inode *inode, int dir_fd, const char *name, const char *path,
                        unsigned depth)
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
    copy_folder_later(c->copy, inode, path);
    copy_entries(c, inode->ino, fd, path, depth);
}

static void copy_symlink(struct copying *c, const struct ns_inode *inode, int dir_fd, const char *name, const char *path)
{
    _cleanup_free_ char *target = NULL;
    int r = source_readlink(&c->source, inode->ino, &target);
    if (r < 0)
        copy_failed(c->copy, path, source_trouble(r));
    else
        copy_link(c->copy, inode, target, dir_fd, name, path);
}

static void copy_node(struct copying *c, const struct ns_inode *inode, int dir_fd, const char *name, const char *path,
                      unsigned depth)
{
    if (S_ISREG(inode->attrs.mode))
        copy_file(c->copy, inode, dir_fd, name, path);
    else if (S_ISDIR(inode->attrs.mode))
        copy_folder(c, inode, dir_fd, name, path, depth);
    else if (S_ISLNK(inode->attrs.mode))
        copy_symlink(c, inode, dir_fd, name, path);
    else
        copy_failed(c->copy, path, "neither a file nor a folder nor a symbolic link: not copied");
}

/* --- arguments -------------------------------------------------------------------------------------------------------------- */

static int find_target(const struct copying *c, const char *local, const char *name, bool is_folder, struct target *ret)
{
    struct stat st;
    bool exists = stat(local, &st) == 0, into = exists && S_ISDIR(st.st_mode);
    *ret = (struct target){.dir_fd = -1};
    if (!into && *name == '\0' && is_folder) { /* all of a folder: LOCAL becomes it */
        if (mkdir(local, 0777) < 0) {
            complain(c->verb->name, "cannot make %s: %s", local, strerror(errno));
            return CLI_FAILED;
        }
        into = true;
    }
    _cleanup_free_ char *copy = xstrdup(local);
    _cleanup_free_ char *other = xstrdup(local);
    ret->folder = xstrdup(into ? local : dirname(copy));
    ret->name = xstrdup(into ? name : basename(other));
    ret->dir_fd = open(ret->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret->dir_fd >= 0)
        return CLI_OK;
    complain(c->verb->name, "%s: %s", ret->folder, strerror(errno));
    return CLI_FAILED;
}

static int begin(struct copying *c)
{
    bool is_remote = c->source.name && (strncmp(c->source.name, "s3://", 5) == 0 || strncmp(c->source.name, "dir:", 4) == 0);
    unsigned threads = is_remote ? (unsigned)min_u64(THREADS_REMOTE, c->options.connections) : THREADS_LOCAL;
    int r = copy_begin(c->verb->name, c->source.store, threads, &c->copy);
    if (r == 0)
        return CLI_OK;
    complain(c->verb->name, "cannot start threads: %s", strerror(-r));
    return CLI_FAILED;
}

static int copy_found(struct copying *c, const struct source_node *node, const char *text, const char *local)
{
    struct target target;
    struct copy_counts counts = {0};
    bool is_folder = S_ISDIR(node->inode.attrs.mode);
    if (is_folder && !c->is_recursive) {
        complain(c->verb->name, "%s is a folder; copy it with -r", text);
        return CLI_FAILED;
    }
    int code = find_target(c, local, node->name, is_folder, &target);
    if (code == CLI_OK)
        code = begin(c);
    if (code == CLI_OK) {
        _cleanup_free_ char *path = join(target.folder, target.name);
        count_tree(c, &node->inode, &counts, 0);
        copy_expect(c->copy, &counts);
        if (*target.name)
            copy_node(c, &node->inode, target.dir_fd, target.name, path, 0);
        else
            copy_entries(c, node->ino, target.dir_fd, target.folder, 0);
        code = copy_end(c->copy);
    }
    target_done(&target);
    return code;
}

static int copy_one(struct copying *c, const char *text, const char *local)
{
    struct source_node node;
    int code = source_open(c->verb, &c->options, text, &c->source, &node);
    if (code == CLI_OK)
        code = copy_found(c, &node, text, local);
    source_node_done(&node);
    return code;
}

static int parse(struct copying *c, int argc, char **argv)
{
    struct source_flags flags;
    struct stat st;
    int found, code = 0;
    source_flags_make(&flags);
    opterr = 0;
    optind = 1;
    while (code == 0 && (found = getopt_long(argc, argv, ":rR", flags.flags, NULL)) != -1) {
        if (found == 'r' || found == 'R')
            c->is_recursive = true;
        else if (found >= SOURCE_FLAG)
            code = source_flag_set(c->verb, &c->options, found);
        else
            code = complain_option(c->verb, found, argv);
    }
    source_flags_done(&flags);
    if (code == 0 && argc - optind < 2)
        code = complain_usage(c->verb, "SOURCE:PATH and LOCAL are needed; run: cairn cp %s", c->verb->synopsis);
    if (code == 0 && argc - optind > 2 && (stat(argv[argc - 1], &st) < 0 || !S_ISDIR(st.st_mode)))
        code = complain_usage(c->verb, "%s must be a folder, for several sources go there", argv[argc - 1]);
    return code;
}

int verb_cp(const struct verb *verb, int argc, char **argv)
{
    struct copying c = {.verb = verb};
    bool failed = false;
    options_init(&c.options);
    int code = parse(&c, argc, argv);
    for (int i = optind; code == 0 && i < argc - 1; i++) {
        int one = copy_one(&c, argv[i], argv[argc - 1]);
        failed = failed || one == CLI_FAILED;
        code = one == CLI_FAILED ? 0 : one;
    }
    source_close(&c.source);
    options_done(&c.options);
    return code ? code : failed ? CLI_FAILED : CLI_OK;
}
