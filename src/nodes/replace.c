// SPDX-License-Identifier: Apache-2.0
/* A new store takes the place of a node that is gone for good, as if it were that node's and came
 * back: it goes on from the node's own prefix, with its content, and has its number. So what other
 * nodes removed of it is deleted, and its packs are checked and mended again.
 *
 * Numbers that the old store reserved are not given out here: nobody knows which of them it used
 * up. The stay has a new number, and a daemon gives out none below that of its stay. A store whose
 * place was taken reserves no more, so it never comes back. */
#include <stdio.h>

#include "base/log.h"
#include "nodes/node_internal.h"
#include "nodes/stays.h"
#include "prefix/heads.h"

#define WRITERS "writers"

static int decode_entry(const void *buf, size_t len, void *arg)
{
    return writer_entry_decode(buf, len, arg);
}

struct reservation {
    uint64_t number, epoch;
    bool is_ours;
    char holder[HOLDER_MAX];
};
DEFINE_VECTOR(reservations, struct reservation);

/* Those of one node, ascending. Entries that are deleted meanwhile, or damaged, are nobody's. */
static int list_reservations(struct node *node, uint64_t of, struct reservations *ret)
{
    _cleanup_vector_ struct numbers all = {0};
    TRY(prefix_list_numbers(&node->common, WRITERS, 0, &all));
    for (size_t i = 0; i < all.count; i++) {
        struct writer_entry entry;
        char object[OBJECT_NAME_LEN];
        object_name(WRITERS, all.at[i], object);
        int r = prefix_read_object(&node->common, object, WRITER_ENTRY_LEN, decode_entry, &entry);
        if (r < 0 && r != -ENOENT && !prefix_object_is_lost(r))
            return r;
        if (r < 0 || entry.node != of)
            continue;
        struct reservation *found = vector_next(ret);
        *found = (struct reservation){
            .number = all.at[i],
            .epoch = entry.epoch,
            .is_ours = memcmp(entry.store, node->store, sizeof entry.store) == 0};
        memcpy(found->holder, entry.holder, sizeof found->holder);
    }
    return 0;
}

static bool is_over(const struct head *head, uint64_t epoch)
{
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head->writers[i].epoch == epoch)
            return head->writers[i].state == HEAD_WRITER_ENDED;
    return false;
}

/* The store has no superblock yet that says of which history heads are. */
static int read_newest(struct node *node, struct head *ret)
{
    struct superblock *sb = &node->local->sb;
    memcpy(sb->history, node->common.marker.history, sizeof sb->history);
    int r = heads_newest(&node->common, 0, ret);
    memset(sb->history, 0, sizeof sb->history);
    return r == -ENOENT ? 0 : r;
}

/* Nobody may go on with the node's last stay. */
static int check_is_over(struct node *node, const struct reservation *last, char **ret_text)
{
    _cleanup_free_ struct head *head = xcalloc(1, sizeof *head);
    bool has_ended;
    TRY(read_newest(node, head));
    if (is_over(head, last->epoch))
        return 0;
    TRY(looker_find_end(&node->common, last->epoch, &has_ended));
    *ret_text =
        has_ended ? xasprintf("node %llu was ended just now, and all nodes are about to go back: "
                              "mount again when 'cairn nodes' shows it as ended",
                              (unsigned long long)node->options.replaces)
                  : xasprintf("node %llu (%s) is not over: nobody may take its place. If it never "
                              "comes back: 'cairn nodes end MOUNTPOINT %llu' on another node",
                              (unsigned long long)node->options.replaces, last->holder,
                              (unsigned long long)last->epoch);
    return -EBUSY;
}

static int take_place(struct node *node, char **ret_text)
{
    _cleanup_vector_ struct reservations all = {0};
    uint64_t place = node->options.replaces;
    TRY(list_reservations(node, place, &all));
    if (all.count == 0) {
        *ret_text =
            xasprintf("there is no node %llu in %s, whose place this one could take: 'cairn "
                      "nodes' lists them, with their numbers",
                      (unsigned long long)place, node->common.name);
        return -ENOENT;
    }
    const struct reservation *last = &all.at[all.count - 1];
    TRY(check_is_over(node, last, ret_text));
    log_info("nodes: this store takes the place of node %llu (%s)", (unsigned long long)place,
             last->holder);
    for (size_t i = 0; i < all.count; i++)
        vector_add(&node->file.blocks, all.at[i].number);
    check(node->file.blocks.at[0] == place);
    node->file.replaces = true;
    return 0;
}

int node_take_place(struct node *node, char **ret_text)
{
    int r = take_place(node, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text =
            xasprintf("whether node %llu can be replaced cannot be read in %s: %s",
                      (unsigned long long)node->options.replaces, node->common.name, strerror(-r));
    return r;
}

/* Of two stores that take one place at once, the one with the higher number sees the other. */
int node_check_place(struct node *node, char **ret_text)
{
    _cleanup_vector_ struct reservations all = {0};
    uint64_t own = 0;
    if (node->file.blocks.count == 0)
        return 0;
    TRY(list_reservations(node, node->file.blocks.at[0], &all));
    for (size_t i = 0; i < all.count; i++)
        if (all.at[i].is_ours && !own)
            own = all.at[i].number;
    for (size_t i = 0; i < all.count; i++) {
        const struct reservation *other = &all.at[i];
        bool is_known = vector_search(&node->file.blocks, &other->number, compare_u64);
        if (other->is_ours || is_known || (node->file.replaces && own && other->number > own))
            continue;
        *ret_text =
            xasprintf("%s is no node of %s any more: %s took its place. What it had and did "
                      "not tell is in %s/aside, for 'cairn ls' and 'cairn cp'; to write, "
                      "mount an empty STORE",
                      node->local->path, node->common.name, other->holder, node->local->path);
        return -ESTALE;
    }
    return 0;
}

bool node_place_is_taken(struct node *node, char **ret_text)
{
    char *text = NULL;
    int r = prefix_meet(&node->common);
    if (r == 0)
        r = node_check_place(node, &text);
    if (r != -ESTALE)
        return false;
    free(*ret_text);
    *ret_text = text;
    return true;
}

int node_fall_behind(struct node *node)
{
    struct prefix *prefix = &node->looker.prefix;
    TRY(looker_read_newest(prefix));
    atomic_store(&node->looker.next_generation, head_generation(&prefix->head) + 1);
    atomic_store(&node->looker.is_behind, true);
    return 0;
}
