// SPDX-License-Identifier: Apache-2.0
/* cairn diff: the differences of two states of a remote, or of two paths, by the names of files and
 * of their chunks alone. Both trees are walked side by side, a directory at a time. */
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
    bool is_json, has_ranges;
    cJSON *entries; /* with is_json */
    struct source then, later;
    struct source *now; /* `then`, if both paths are of one state */
    bool is_one;        /* one path, in two states of one source: its inodes can be compared */
    uint64_t counts[DIFFERENCES];
    uint64_t rewritten; /* files that were written again with the same content */
    bool failed;
};

/* --- output --- */

DEFINE_VECTOR(ranges, struct reader_range);

static int add_range(const struct reader_range *range, void *ranges)
{
    vector_add((struct ranges *)ranges, *range);
    return 0;
}

static void print_ranges(const struct ranges *ranges)
{
    for (size_t i = 0; i < ranges->count; i++)
        (void)printf("  %10s  bytes %" PRIu64 " to %" PRIu64 "\n",
                     human_bytes(ranges->at[i].length).text, ranges->at[i].offset,
                     ranges->at[i].offset + ranges->at[i].length);
}

static void add_ranges(cJSON *entry, const struct ranges *ranges)
{
    cJSON *list = cJSON_AddArrayToObject(entry, "ranges");
    for (size_t i = 0; i < ranges->count; i++) {
        cJSON *one = cJSON_CreateObject();
        control_add_u64(one, "offset", ranges->at[i].offset);
        control_add_u64(one, "bytes", ranges->at[i].length);
        (void)cJSON_AddItemToArray(list, one);
    }
}

/* `ranges` NULL: ranges are not printed. */
static void tell(struct diff *d, enum difference what, const char *path,
                 const struct ns_inode *then, const struct ns_inode *now,
                 const struct ranges *ranges)
{
    static const char *const words[] = {"made", "changed", "removed"};
    d->counts[what]++;
    if (!d->entries) {
        text_print(stdout, "%c %10s  %s", "+~-"[what],
                   human_bytes((now ? now : then)->attrs.size).text, path);
        if (ranges)
            print_ranges(ranges);
        return;
    }
    cJSON *entry = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(entry, "path", path);
    (void)cJSON_AddStringToObject(entry, "what", words[what]);
    if (then)
        control_add_u64(entry, "bytes_before", then->attrs.size);
    if (now)
        control_add_u64(entry, "bytes", now->attrs.size);
    if (ranges)
        add_ranges(entry, ranges);
    (void)cJSON_AddItemToArray(d->entries, entry);
}

static void fail(struct diff *d, const char *path, int error)
{
    d->failed = true;
    complain(d->command->name, "%s: %s", path, source_trouble(error));
}

/* --- one tree --------------------------------------------------------------------------------- */

/* Everything below it was made, or removed. */
static void tell_tree(struct diff *d, enum difference what, const struct source_entry *e,
                      const char *path, unsigned depth)
{
    struct source *source = what == MADE ? d->now : &d->then;
    const struct ns_inode *inode = &e->inode;
    struct source_list list;
    if (!S_ISDIR(inode->attrs.mode)) {
        tell(d, what, path, what == REMOVED ? inode : NULL, what == MADE ? inode : NULL, NULL);
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
        r = source_readlink(d->now, now->ino, &b);
    return r == 0 && strcmp(a, b) == 0;
}

static bool same_attributes(const struct attrs *a, const struct attrs *b)
{
    return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

/* A file that was not written since need not be compared by its chunks. */
static void compare_contents(struct diff *d, const struct source_entry *then,
                             const struct source_entry *now, const char *path)
{
    const struct ns_inode *a = &then->inode, *b = &now->inode;
    struct ranges ranges = {0};
    bool is_old = d->is_one && then->ino == now->ino && a->version == b->version;
    int r = is_old
                ? 0
                : reader_differ(&(struct reader_file){d->then.store, then->ino},
                                &(struct reader_file){d->now->store, now->ino}, add_range, &ranges);
    if (r < 0)
        fail(d, path, r);
    else if (ranges.count || !same_attributes(&a->attrs, &b->attrs))
        tell(d, CHANGED, path, a, b, d->has_ranges ? &ranges : NULL);
    else
        d->rewritten += d->is_one && !is_old;
    vector_free(&ranges);
}

static bool is_same(struct diff *d, const struct source_entry *then, const struct source_entry *now)
{
    const struct attrs *a = &then->inode.attrs, *b = &now->inode.attrs;
    if (!same_attributes(a, b))
        return false;
    return S_ISLNK(a->mode) ? same_link(d, then, now) : a->rdev == b->rdev;
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
    } else if (S_ISREG(then->inode.attrs.mode) && S_ISREG(now->inode.attrs.mode)) {
        compare_contents(d, then, now, path);
    } else if (!is_same(d, then, now)) {
        tell(d, CHANGED, path, &then->inode, &now->inode, NULL);
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
        r = source_list(d->now, now, &new);
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

/* Returns whether both paths are of one state: a store can be opened only once. */
static bool is_one_state(const struct diff *d, const char *text, const char *other)
{
    _cleanup_free_ char *name = NULL, *path = NULL, *other_name = NULL, *other_path = NULL;
    offline_split(text, &name, &path);
    offline_split(other, &other_name, &other_path);
    return strcmp(name, other_name) == 0 && strcmp(d->at ? d->at : "", d->to ? d->to : "") == 0;
}

static int compare_states(struct diff *d, const char *text, const char *other)
{
    _cleanup_(source_node_done) struct source_node then = {0}, now = {0};
    bool is_shared = is_one_state(d, text, other);
    d->now = is_shared ? &d->then : &d->later;
    int code = source_open(d->command, &d->options, text, &d->then, &then);
    if (code == CLI_OK)
        code = source_open(d->command, is_shared ? &d->options : &d->later_options, other, d->now,
                           &now);
    if (code != CLI_OK)
        return code;
    if (!reader_can_differ(d->then.store, d->now->store))
        return complain(d->command->name,
                        "%s and %s have no history in common, and name their chunks by different "
                        "keys: copy the files, and compare the copies",
                        d->then.name, d->now->name);
    const struct source_entry old = entry_of(&then), new = entry_of(&now);
    const char *path = *then.path ? then.path : "/";
    compare_entries(d, &old, &new, path, 0);
    return interrupted() ? CLI_INTERRUPTED : d->failed ? CLI_FAILED : CLI_OK;
}

static void print_sums(const struct diff *d, int code)
{
    if (!d->entries) {
        (void)printf("%" PRIu64 " made, %" PRIu64 " changed, %" PRIu64 " removed", d->counts[MADE],
                     d->counts[CHANGED], d->counts[REMOVED]);
        if (d->rewritten)
            (void)printf("; %" PRIu64 " written again with the same content", d->rewritten);
        (void)printf("\n");
        return;
    }
    _cleanup_json_ cJSON *json = cJSON_CreateObject();
    (void)cJSON_AddBoolToObject(json, "complete", code == CLI_OK);
    control_add_u64(json, "made", d->counts[MADE]);
    control_add_u64(json, "changed", d->counts[CHANGED]);
    control_add_u64(json, "removed", d->counts[REMOVED]);
    control_add_u64(json, "rewritten", d->rewritten);
    (void)cJSON_AddItemReferenceToObject(json, "files", d->entries);
    json_print(json);
}

static int execute_diff(struct call *call)
{
    struct diff *d = call->request;
    d->command = call->command;
    log_set_level(LOG_LEVEL_ERROR);
    interrupt_catch(true);
    const char *other = call->operands[1];
    d->is_one = !other;
    if (!d->at && !other)
        return complain_usage(call->command,
                              "--at is missing: since which state? 'cairn history' lists them");
    d->later_options = d->options; /* the strings belong to the first */
    int code = source_look_back(call->command, d->at, &d->options);
    if (code == CLI_OK)
        code = source_look_back(call->command, d->to, &d->later_options);
    _cleanup_json_ cJSON *entries = d->is_json ? cJSON_CreateArray() : NULL;
    d->entries = entries;
    if (code == CLI_OK)
        code = compare_states(d, call->operands[0], other ? other : call->operands[0]);
    if (code == CLI_OK || d->is_json)
        print_sums(d, code);
    source_close(&d->then);
    source_close(&d->later);
    free(d->later_options.remote.at);
    return code;
}

#define FIELD(f) offsetof(struct diff, f)
static const struct flag flags[] = {
    FLAG_AT(FIELD(at)),
    {FLAG_OF('\0', "to", FLAG_TEXT, FIELD(to)), .argument = "WHEN",
     .help = "compare with this state, instead of the newest one"},
    {FLAG_OF('\0', "ranges", FLAG_SET, FIELD(has_ranges)),
     .help = "say of each changed file which bytes differ"},
    FLAG_JSON(FIELD(is_json)),
    {0},
};

const struct command diff_command = {
    .name = "diff",
    .summary = "list files that differ between two states of a remote, or between two paths",
    .description = "+ made, ~ changed, - removed since the state of --at, each with its size. "
                   "Names, modes, owners and the names of chunks are\ncompared; no content is "
                   "read. With a second SOURCE:PATH that one is compared with the first.",
    .flags = flags,
    REQUEST(struct diff, 0),
    .operands =
        (const struct operand[]){
            {.name = "SOURCE:PATH", .offers = OFFER_FILES},
            {.name = "SOURCE:PATH", .offers = OFFER_FILES, .is_optional = true},
            {0}},
    .exits = EXITS_INTERRUPTED("printed", "failed"),
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = source_more_help,
    .execute = execute_diff,
};
