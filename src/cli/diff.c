// SPDX-License-Identifier: Apache-2.0
/* cairn diff: what differs between two states of a remote, from the names and versions of files
 * alone. Both trees are walked side by side, a directory at a time. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/mounts.h"
#include "cli/source.h"

#define DEPTH_MAX 1024u

enum difference { MADE, CHANGED, REMOVED, DIFFERENCES };

struct diff {
    const struct command *command;
    struct mount_options options, later_options;
    const char *at, *to; /* WHEN; `to` NULL: the newest state */
    bool is_json;
    cJSON *entries; /* with is_json */
    struct source then, now;
    uint64_t counts[DIFFERENCES];
    bool failed;
};

/* --- what is told ----------------------------------------------------------------------------- */

static void tell(struct diff *d, enum difference what, const char *path,
                 const struct ns_inode *then, const struct ns_inode *now)
{
    static const char *const words[] = {"made", "changed", "removed"};
    d->counts[what]++;
    if (!d->entries) {
        text_print(stdout, "%c %10s  %s", "+~-"[what],
                   human_bytes((now ? now : then)->attrs.size).text, path);
        return;
    }
    cJSON *entry = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(entry, "path", path);
    (void)cJSON_AddStringToObject(entry, "what", words[what]);
    if (then)
        control_add_u64(entry, "bytes_before", then->attrs.size);
    if (now)
        control_add_u64(entry, "bytes", now->attrs.size);
    (void)cJSON_AddItemToArray(d->entries, entry);
}

static void fail(struct diff *d, const char *path, int error)
{
    d->failed = true;
    complain(d->command->name, "%s: %s", path, source_trouble(error));
}

/* --- one tree --------------------------------------------------------------------------------- */

/* All below it was made, or removed. */
static void tell_tree(struct diff *d, enum difference what, const struct source_entry *e,
                      const char *path, unsigned depth)
{
    struct source *source = what == MADE ? &d->now : &d->then;
    const struct ns_inode *inode = &e->inode;
    struct source_list list;
    if (!S_ISDIR(inode->attrs.mode)) {
        tell(d, what, path, what == REMOVED ? inode : NULL, what == MADE ? inode : NULL);
        return;
    }
    int r = depth > DEPTH_MAX ? -ELOOP : source_list(source, e->ino, &list);
    if (r < 0) {
        fail(d, path, r);
        return;
    }
    for (size_t i = 0; i < list.count && !interrupted(); i++) {
        _cleanup_free_ char *below = path_below(path, list.at[i].name);
        tell_tree(d, what, &list.at[i], below, depth + 1);
    }
    source_list_done(&list);
}

/* --- two trees -------------------------------------------------------------------------------- */

static bool same_link(struct diff *d, const struct source_entry *then,
                      const struct source_entry *now)
{
    _cleanup_free_ char *a = NULL, *b = NULL;
    int r = source_readlink(&d->then, then->ino, &a);
    if (r == 0)
        r = source_readlink(&d->now, now->ino, &b);
    return r == 0 && strcmp(a, b) == 0;
}

/* A file that was replaced or written since is another, whatever its bytes are. */
static bool is_same(struct diff *d, const struct source_entry *then, const struct source_entry *now)
{
    const struct attrs *a = &then->inode.attrs, *b = &now->inode.attrs;
    if (a->mode != b->mode || a->uid != b->uid || a->gid != b->gid)
        return false;
    if (S_ISLNK(a->mode))
        return same_link(d, then, now);
    return then->ino == now->ino && then->inode.version == now->inode.version && a->size == b->size;
}

static void compare_directories(struct diff *d, uint64_t then, uint64_t now, const char *path,
                                unsigned depth);

static void compare_entries(struct diff *d, const struct source_entry *then,
                            const struct source_entry *now, const char *path, unsigned depth)
{
    bool was = S_ISDIR(then->inode.attrs.mode), is = S_ISDIR(now->inode.attrs.mode);
    if (was && is) {
        compare_directories(d, then->ino, now->ino, path, depth + 1);
    } else if (was || is) {
        tell_tree(d, REMOVED, then, path, depth + 1);
        tell_tree(d, MADE, now, path, depth + 1);
    } else if (!is_same(d, then, now)) {
        tell(d, CHANGED, path, &then->inode, &now->inode);
    }
}

/* Both lists are sorted. */
static void compare_lists(struct diff *d, const struct source_list *then,
                          const struct source_list *now, const char *path, unsigned depth)
{
    size_t i = 0, k = 0;
    while ((i < then->count || k < now->count) && !interrupted()) {
        int order = i == then->count  ? 1
                    : k == now->count ? -1
                                      : strcmp(then->at[i].name, now->at[k].name);
        const struct source_entry *old = order <= 0 ? &then->at[i++] : NULL;
        const struct source_entry *new = order >= 0 ? &now->at[k++] : NULL;
        _cleanup_free_ char *below = path_below(path, (old ? old : new)->name);
        if (old && new)
            compare_entries(d, old, new, below, depth);
        else if (old)
            tell_tree(d, REMOVED, old, below, depth + 1);
        else
            tell_tree(d, MADE, new, below, depth + 1);
    }
}

static void compare_directories(struct diff *d, uint64_t then, uint64_t now, const char *path,
                                unsigned depth)
{
    struct source_list old = {0}, new = {0};
    int r = depth > DEPTH_MAX ? -ELOOP : source_list(&d->then, then, &old);
    if (r == 0)
        r = source_list(&d->now, now, &new);
    if (r < 0)
        fail(d, path, r);
    else
        compare_lists(d, &old, &new, path, depth);
    source_list_done(&old);
    source_list_done(&new);
}

/* --- the command ------------------------------------------------------------------------------ */

static struct source_entry entry_of(const struct source_node *node)
{
    return (struct source_entry){.name = node->name, .ino = node->ino, .inode = node->inode};
}

static int compare_states(struct diff *d, const char *text)
{
    _cleanup_(source_node_done) struct source_node then = {0}, now = {0};
    int code = source_open(d->command, &d->options, text, &d->then, &then);
    if (code == CLI_OK)
        code = source_open(d->command, &d->later_options, text, &d->now, &now);
    if (code != CLI_OK)
        return code;
    const struct source_entry old = entry_of(&then), new = entry_of(&now);
    const char *path = *then.path ? then.path : "/";
    compare_entries(d, &old, &new, path, 0);
    return interrupted() ? CLI_INTERRUPTED : d->failed ? CLI_FAILED : CLI_OK;
}

static void print_sums(const struct diff *d, int code)
{
    if (!d->entries) {
        (void)printf("%" PRIu64 " made, %" PRIu64 " changed, %" PRIu64 " removed\n",
                     d->counts[MADE], d->counts[CHANGED], d->counts[REMOVED]);
        return;
    }
    _cleanup_json_ cJSON *json = cJSON_CreateObject();
    (void)cJSON_AddBoolToObject(json, "complete", code == CLI_OK);
    control_add_u64(json, "made", d->counts[MADE]);
    control_add_u64(json, "changed", d->counts[CHANGED]);
    control_add_u64(json, "removed", d->counts[REMOVED]);
    (void)cJSON_AddItemReferenceToObject(json, "files", d->entries);
    json_print(json);
}

static int execute_diff(struct call *call)
{
    struct diff *d = call->request;
    d->command = call->command;
    log_set_level(LOG_LEVEL_ERROR);
    interrupt_catch(true);
    if (!d->at)
        return complain_usage(call->command,
                              "--at is missing: since which state? 'cairn history' lists them");
    d->later_options = d->options; /* what they point to is of the first */
    int code = source_look_back(call->command, d->at, &d->options);
    if (code == CLI_OK)
        code = source_look_back(call->command, d->to, &d->later_options);
    _cleanup_json_ cJSON *entries = d->is_json ? cJSON_CreateArray() : NULL;
    d->entries = entries;
    if (code == CLI_OK)
        code = compare_states(d, call->operands[0]);
    if (code == CLI_OK || d->is_json)
        print_sums(d, code);
    source_close(&d->then);
    source_close(&d->now);
    free(d->later_options.remote.at);
    return code;
}

#define FIELD(f) offsetof(struct diff, f)
static const struct flag flags[] = {
    FLAG_AT(FIELD(at)),
    {FLAG_OF('\0', "to", FLAG_TEXT, FIELD(to)), .argument = "WHEN",
     .help = "compare with this state, instead of the newest one"},
    FLAG_JSON(FIELD(is_json)),
    {0},
};

const struct command diff_command = {
    .name = "diff",
    .summary = "list files that differ between two states of a remote",
    .description = "+ made, ~ changed, - removed since the state of --at, each with its size. What "
                   "was written or replaced since counts as changed,\nwhatever its bytes are. No "
                   "content is read.",
    .flags = flags,
    REQUEST(struct diff, 0),
    .operands = (const struct operand[]){{.name = "SOURCE:PATH", .offers = OFFER_FILES}, {0}},
    .exits = EXITS_INTERRUPTED("printed", "failed"),
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = source_more_help,
    .execute = execute_diff,
};
