// SPDX-License-Identifier: Apache-2.0
/* cairn ls: lists files of a store or remote that need not be mounted. */
#include <ctype.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <time.h>

#include "cli/command.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/mounts.h"
#include "cli/source.h"
#include "daemon/prefixes.h"
#include "daemon/remote_address.h"

#define DEPTH_MAX 1024u

struct listing {
    const struct command *command;
    struct mount_options options;
    struct source source;
    bool is_long, is_recursive, is_tty;
    bool has_readable_sizes; /* -h */
    bool is_json;
    cJSON *entries; /* with is_json */
    const char *at; /* WHEN; NULL: the newest state */
    bool is_all;    /* -a: nothing is hidden */
    bool headed;    /* each directory's name is printed above its entries */
    bool began;
    bool failed;
};

/* --- one line --------------------------------------------------------------------------------- */

/* Replaces control characters on a terminal, which would act on them. */
static void print_name(const struct listing *l, const char *name)
{
    for (; *name; name++)
        (void)putchar(l->is_tty && iscntrl((unsigned char)*name) ? '?' : *name);
}

static void mode_text(uint32_t mode, char text[11])
{
    static const struct {
        uint32_t type;
        char letter;
    } types[] = {{S_IFDIR, 'd'}, {S_IFLNK, 'l'}, {S_IFCHR, 'c'},
                 {S_IFBLK, 'b'}, {S_IFIFO, 'p'}, {S_IFSOCK, 's'}};
    (void)snprintf(text, 11, "-rwxrwxrwx");
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if ((mode & S_IFMT) == types[i].type)
            text[0] = types[i].letter;
    for (unsigned bit = 0; bit < 9; bit++)
        if (!(mode & (0400u >> bit)))
            text[1 + bit] = '-';
    if (mode & S_ISUID)
        text[3] = mode & S_IXUSR ? 's' : 'S';
    if (mode & S_ISGID)
        text[6] = mode & S_IXGRP ? 's' : 'S';
    if (mode & S_ISVTX)
        text[9] = mode & S_IXOTH ? 't' : 'T';
}

static void owner_text(uint32_t uid, uint32_t gid, char *text, size_t size)
{
    char user[64], group[64];
    const struct passwd *pw = getpwuid(uid);
    const struct group *gr = getgrgid(gid);
    (void)snprintf(user, sizeof user, "%u", uid);
    (void)snprintf(group, sizeof group, "%u", gid);
    (void)snprintf(text, size, "%-8s %-8s", pw ? pw->pw_name : user, gr ? gr->gr_name : group);
}

static void print_attrs(const struct ns_inode *inode, bool readable)
{
    char mode[11], owner[160], when[32] = "";
    time_t seconds = (time_t)(inode->attrs.mtime / 1000000000);
    struct tm tm;
    mode_text(inode->attrs.mode, mode);
    owner_text(inode->attrs.uid, inode->attrs.gid, owner, sizeof owner);
    if (localtime_r(&seconds, &tm))
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    char size[32];
    (void)snprintf(size, sizeof size, "%llu", (unsigned long long)inode->attrs.size);
    (void)printf("%s %3u %s %14s %s ", mode, inode->nlink, owner,
                 readable ? human_bytes(inode->attrs.size).text : size, when);
}

static const char *type_word(uint32_t mode)
{
    return S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "link" : S_ISREG(mode) ? "file" : "other";
}

/* Adds one entry; its path is that in the source. */
static void add_json(struct listing *l, const char *path, uint64_t ino,
                     const struct ns_inode *inode)
{
    _cleanup_free_ char *target = NULL;
    char mode[8];
    cJSON *entry = cJSON_CreateObject();
    (void)snprintf(mode, sizeof mode, "%04o", inode->attrs.mode & 07777);
    (void)cJSON_AddStringToObject(entry, "path", path);
    (void)cJSON_AddStringToObject(entry, "type", type_word(inode->attrs.mode));
    (void)cJSON_AddStringToObject(entry, "mode", mode);
    control_add_u64(entry, "links", inode->nlink);
    control_add_u64(entry, "uid", inode->attrs.uid);
    control_add_u64(entry, "gid", inode->attrs.gid);
    control_add_u64(entry, "bytes", inode->attrs.size);
    (void)cJSON_AddNumberToObject(entry, "modified_s",
                                  (double)(inode->attrs.mtime / 1000000) / 1000);
    if (S_ISLNK(inode->attrs.mode) && source_readlink(&l->source, ino, &target) == 0)
        (void)cJSON_AddStringToObject(entry, "target", target);
    (void)cJSON_AddItemToArray(l->entries, entry);
}

static void print_line(struct listing *l, const char *name, const struct ns_inode *inode)
{
    _cleanup_free_ char *target = NULL;
    if (l->is_long)
        print_attrs(inode, l->has_readable_sizes);
    print_name(l, name);
    if (l->is_long && S_ISLNK(inode->attrs.mode) &&
        source_readlink(&l->source, inode->ino, &target) == 0) {
        (void)printf(" -> ");
        print_name(l, target);
    }
    (void)putchar('\n');
}

/* --- directories ------------------------------------------------------------------------------ */

static void list_entry(struct listing *l, const char *directory, const struct source_entry *e)
{
    if (!l->entries) {
        print_line(l, e->name, &e->inode);
        return;
    }
    _cleanup_free_ char *path = path_below(directory, e->name);
    add_json(l, path, e->ino, &e->inode);
}

static void list_directory(struct listing *l, const char *path, uint64_t ino, unsigned depth)
{
    struct source_list list;
    int r = depth > DEPTH_MAX ? -ELOOP : source_list(&l->source, ino, &list);
    if (r < 0) {
        complain(l->command->name, "%s:%s: %s", l->source.name, path, source_trouble(r));
        l->failed = true;
        return;
    }
    if (l->headed && !l->entries) {
        (void)printf("%s", l->began ? "\n" : "");
        print_name(l, path);
        (void)printf(":\n");
    }
    l->began = true;
    for (size_t i = 0; i < list.count; i++)
        list_entry(l, path, &list.at[i]);
    for (size_t i = 0; l->is_recursive && i < list.count; i++) {
        if (!S_ISDIR(list.at[i].inode.attrs.mode))
            continue;
        _cleanup_free_ char *below = path_below(path, list.at[i].name);
        list_directory(l, below, list.at[i].ino, depth + 1);
    }
    source_list_done(&list);
}

static void give_remote(const char *address, void *arg)
{
    struct listing *l = arg;
    l->began = true;
    if (l->entries) {
        cJSON *entry = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(entry, "remote", address);
        (void)cJSON_AddItemToArray(l->entries, entry);
        return;
    }
    print_name(l, address);
    (void)putchar('\n');
}

/* Lists the remotes below an address that is no remote itself, e.g. of a whole bucket. False: there
 * are none, or the operand names a path in a remote. */
static bool list_remotes(struct listing *l, const char *text)
{
    bool began = l->began;
    if (!remote_address_is(text) || strchr(text + strcspn(text, ":") + 1, ':'))
        return false;
    l->began = false;
    bool found = prefixes_find(text, &l->options, give_remote, l) == PREFIXES_BELOW && l->began;
    l->began = l->began || began;
    return found;
}

static int list_operand(struct listing *l, const char *text)
{
    _cleanup_(source_node_done) struct source_node node = {0};
    if (list_remotes(l, text))
        return CLI_OK;
    int code = source_open(l->command, &l->options, text, &l->source, &node);
    if (code == CLI_OK && S_ISDIR(node.inode.attrs.mode)) {
        list_directory(l, node.path, node.ino, 0);
    } else if (code == CLI_OK && l->entries) {
        add_json(l, node.path, node.ino, &node.inode);
    } else if (code == CLI_OK) {
        print_line(l, node.path, &node.inode);
        l->began = true;
    }
    return code;
}

static int execute_ls(struct call *call)
{
    struct listing *l = call->request;
    int code = source_look_back(call->command, l->at, &l->options);
    l->command = call->command;
    l->is_tty = isatty(STDOUT_FILENO);
    l->headed = l->is_recursive || call->operands[1];
    l->entries = l->is_json ? cJSON_CreateArray() : NULL;
    for (char **source = call->operands; code == CLI_OK && *source; source++) {
        int one = list_operand(l, *source);
        l->failed = l->failed || one == CLI_FAILED;
        code = one == CLI_FAILED ? CLI_OK : one;
    }
    if (l->entries && code == CLI_OK)
        json_print(l->entries);
    cJSON_Delete(l->entries);
    source_close(&l->source);
    return code ? code : l->failed ? CLI_FAILED : CLI_OK;
}

#define FIELD(f) offsetof(struct listing, f)
static const struct flag flags[] = {
    {.letter = 'l',
     .help = "long format, as ls -l: mode, links, owner, size, time",
     .offset = FIELD(is_long)},
    {.letter = 'R', .help = "list subdirectories, too", .offset = FIELD(is_recursive)},
    {.letter = 'h', .help = "with -l: sizes such as 1.5 GiB", .offset = FIELD(has_readable_sizes)},
    {.letter = 'a', .offset = FIELD(is_all)},
    FLAG_AT(FIELD(at)),
    FLAG_JSON_OF("print a JSON array", FIELD(is_json)),
    {0},
};

const struct command ls_command = {
    .name = "ls",
    .summary = "list files in a remote, or in a store that is not mounted",
    .description = "In a remote, the newest published state is listed, or with --at an older one. "
                   "For an address that is no "
                   "remote, such as a bucket, the remotes below it are listed.",
    .flags = flags,
    REQUEST(struct listing, 0),
    .operands =
        (const struct operand[]){
            {.name = "SOURCE:PATH", .offers = OFFER_FILES, .is_repeated = true}, {0}},
    .exits = EXITS("printed", "failed"),
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = source_more_help,
    .execute = execute_ls,
};
