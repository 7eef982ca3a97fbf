// SPDX-License-Identifier: Apache-2.0
/* A new store takes the place of a node that is gone for good, as if it were that node and came
 * back: it continues from the node's own prefix, with its content, and has its number. So the
 * node's files removed by other nodes get deleted, and its packs are checked and repaired again.
 *
 * It does so on request, and automatically if that node's store was at the same path of the same
 * host, which is empty now; or if the prefix has as many nodes as a head has rows. Otherwise a job
 * that always starts with empty stores would fill the rows with nodes that never come back.
 *
 * Numbers reserved by the old store are not used: nobody knows which of them it used up. The stay
 * has a new number, and a daemon uses none below that of its stay. A store whose place was taken
 * reserves no more, so it never comes back. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "nodes/node_internal.h"
#include "nodes/stays.h"
#include "prefix/heads.h"

#define LEAVE_WAIT_NS (10ll * SECOND_NS)
#define LEAVE_LOOK_MS 300

struct reservation {
    uint64_t number, epoch, node;
    bool is_ours;
    bool has_lease; /* false: a conversion made the entry */
    char holder[HOLDER_MAX];
};
DEFINE_VECTOR(reservations, struct reservation);

/* Lists the reservations of one node, or with 0 of all nodes, ascending. Skips entries deleted
 * meanwhile, damaged, or of another history. */
static int list_reservations(struct node *node, uint64_t of, struct reservations *ret)
{
    _cleanup_vector_ struct numbers all = {0};
    TRY(prefix_list_numbers(&node->common, WRITERS, 0, &all));
    for (size_t i = 0; i < all.count; i++) {
        struct writer_entry entry;
        int r = writer_entry_read(&node->common, all.at[i], &entry);
        if (r < 0 && r != -ENOENT && !prefix_object_is_lost(r))
            return r;
        if (r < 0 || (of && entry.node != of) ||
            memcmp(entry.history, node->common.marker.history, sizeof entry.history) != 0)
            continue;
        struct reservation *found = vector_next(ret);
        *found = (struct reservation){.number = all.at[i],
                                      .epoch = entry.epoch,
                                      .node = entry.node,
                                      .is_ours =
                                          memcmp(entry.store, node->store, sizeof entry.store) == 0,
                                      .has_lease = entry.lease_ms > 0};
        memcpy(found->holder, entry.holder, sizeof found->holder);
    }
    return 0;
}

static bool is_over(const struct head *head, uint64_t epoch)
{
    const struct head_writer *writer = head_writer_of(head, epoch);
    return writer && writer->state == HEAD_WRITER_ENDED;
}

/* Reads the newest head without the history id of a superblock, which the store may not have
 * yet. */
static int read_newest(struct node *node, struct head *ret)
{
    struct superblock *sb = &node->local->sb;
    uint8_t kept[sizeof sb->history];
    memcpy(kept, sb->history, sizeof kept);
    memcpy(sb->history, node->common.marker.history, sizeof sb->history);
    int r = heads_newest(&node->common, 0, ret);
    memcpy(sb->history, kept, sizeof kept);
    return r == -ENOENT ? 0 : r;
}

/* Ensures that nobody can continue the node's last stay. */
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
                              (unsigned long long)last->node)
                  : xasprintf("node %llu (%s) is not over: nobody may take its place. If it never "
                              "comes back: 'cairn nodes end MOUNTPOINT %llu' on another node",
                              (unsigned long long)last->node, last->holder,
                              (unsigned long long)last->epoch);
    return -EBUSY;
}

/* Takes the place in memory: the file is not written yet. `all`: the reservations of the place. */
static void take_place(struct node *node, const struct reservation *all, size_t count)
{
    log_info("nodes: this store takes the place of node %llu (%s)", (unsigned long long)all->node,
             all[count - 1].holder);
    for (size_t i = 0; i < count; i++)
        vector_add(&node->file.blocks, all[i].number);
    check(node->file.blocks.at[0] == all->node);
    node->file.replaces = true;
}

static int take_wanted_place(struct node *node, char **ret_text)
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
    TRY(check_is_over(node, &all.at[all.count - 1], ret_text));
    take_place(node, all.at, all.count);
    return 0;
}

int node_take_place(struct node *node, char **ret_text)
{
    int r = take_wanted_place(node, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text =
            xasprintf("whether node %llu can be replaced cannot be read in %s: %s",
                      (unsigned long long)node->options.replaces, node->common.name, strerror(-r));
    return r;
}

int node_converted_place(struct node *node, uint64_t *ret_place)
{
    _cleanup_vector_ struct reservations all = {0};
    bool is_taken = false;
    TRY(list_reservations(node, CONVERTED_NODE, &all));
    for (size_t i = 0; i < all.count; i++)
        is_taken = is_taken || all.at[i].has_lease;
    *ret_place = all.count > 0 && !is_taken ? CONVERTED_NODE : 0;
    return 0;
}

static bool knows_number(const struct node *node, uint64_t number)
{
    for (size_t i = 0; i < node->file.blocks.count; i++)
        if (node->file.blocks.at[i] == number)
            return true;
    return number == node->file.wanted;
}

/* A number of this node that this store does not know was reserved by a copy of it, or by itself
 * before it was put back from an older copy. While that stay is not over, a later one would take
 * its place in the union, though others may rely on what it acknowledges. */
int node_check_copies(struct node *node, char **ret_text)
{
    _cleanup_vector_ struct reservations all = {0};
    _cleanup_free_ struct head *head = xcalloc(1, sizeof *head);
    const struct reservation *unknown = NULL;
    if (node->file.blocks.count == 0)
        return 0;
    TRY(list_reservations(node, node->file.blocks.at[0], &all));
    for (size_t i = 0; i < all.count; i++)
        unknown = knows_number(node, all.at[i].number) ? unknown : &all.at[i];
    if (!unknown)
        return 0;
    TRY(read_newest(node, head));
    if (is_over(head, unknown->epoch))
        return 0;
    *ret_text = xasprintf("%s is the same node as %s, whose last mount is not over: one of the two "
                          "was copied from the other. Unmount that one first; if it never comes "
                          "back: 'cairn nodes end MOUNTPOINT %llu' on another node",
                          node->local->path, unknown->holder, (unsigned long long)unknown->epoch);
    return -EBUSY;
}

/* If two stores take one place at once, the one with the higher number detects the other. */
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

/* --- by itself -------------------------------------------------------------------------------- */

static int compare_nodes(const void *a, const void *b)
{
    const struct reservation *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Compares "host:/path pid 123" up to the path. */
static bool is_same_path(const char *a, const char *b)
{
    const char *a_end = strstr(a, " pid "), *b_end = strstr(b, " pid ");
    return a_end && b_end && a_end - a == b_end - b && memcmp(a, b, (size_t)(a_end - a)) == 0;
}

/* The candidates of node_choose_place(), sorted by node; each node's reservations are
 * consecutive. */
struct places {
    const struct head *head;
    const char *holder;
    struct reservations all;
    size_t count; /* number of nodes */
    /* each the first reservation of a node that is over; NULL: none */
    struct reservation *same, *was_over;
    uint64_t was_over_epoch;
    uint64_t same_stay; /* of the node at this path, if no head says that it is over; 0: none */
};

/* Finds, among the nodes that are over, the one whose store was at this path, and the one that
 * ended first. */
static void look_at_places(struct places *places)
{
    struct reservation *first = NULL;
    vector_sort(&places->all, compare_nodes);
    for (size_t i = 0; i < places->all.count; i++) {
        struct reservation *at = &places->all.at[i];
        if (!first || first->node != at->node) {
            first = at;
            places->count++;
        }
        bool is_last = i + 1 == places->all.count || at[1].node != at->node;
        bool is_same = is_same_path(at->holder, places->holder);
        if (!is_last || first->number != first->node)
            continue;
        if (!is_over(places->head, at->epoch)) {
            places->same_stay = is_same ? at->epoch : places->same_stay;
            continue;
        }
        if (is_same)
            places->same = first;
        if (!places->was_over || at->epoch < places->was_over_epoch) {
            places->was_over = first;
            places->was_over_epoch = at->epoch;
        }
    }
}

static size_t count_of_place(const struct places *places, const struct reservation *first)
{
    size_t left = places->all.count - (size_t)(first - places->all.at), count = 0;
    while (count < left && first[count].node == first->node)
        count++;
    return count;
}

static int choose_among(struct node *node, const struct places *places, char **ret_text)
{
    bool is_full = places->count >= HEAD_WRITERS_MAX;
    const struct reservation *first = places->same ? places->same
                                      : is_full    ? places->was_over
                                                   : NULL;
    if (first) {
        take_place(node, first, count_of_place(places, first));
        return 0;
    }
    if (!is_full)
        return 0;
    *ret_text = xasprintf("%s has %zu nodes, all of which write it: it takes no more. Unmount one "
                          "of them first, or mount another prefix",
                          node->common.name, places->count);
    return -EUSERS;
}

/* The node at this path has reported that it left, and a merger is about to say so in a head. */
static bool is_leaving(struct node *node, const struct places *places)
{
    struct tier *tier = node->common.tier;
    char object[FEED_NAME_LEN];
    uint64_t length;
    if (places->same || !places->same_stay)
        return false;
    feed_name(ROUND_MAX, places->same_stay, object);
    return tier->ops->stat(tier, object, &length) == 0;
}

int node_choose_place(struct node *node, char **ret_text)
{
    _cleanup_free_ struct head *head = xcalloc(1, sizeof *head);
    int64_t until = clock_monotonic_ns() + LEAVE_WAIT_NS;
    for (;;) {
        struct places places = {.head = head, .holder = node->common.holder};
        int r = read_newest(node, head);
        if (r == 0)
            r = list_reservations(node, 0, &places.all);
        if (r == 0)
            look_at_places(&places);
        bool waits = r == 0 && is_leaving(node, &places) && clock_monotonic_ns() < until;
        if (r == 0 && !waits)
            r = choose_among(node, &places, ret_text);
        vector_free(&places.all);
        if (r < 0 || !waits)
            return r;
        if (!node_pause(node, LEAVE_LOOK_MS))
            return -ECANCELED;
    }
}

int node_check_room(struct node *node)
{
    _cleanup_vector_ struct reservations all = {0};
    uint64_t own = node->file.blocks.at[0], last = 0;
    size_t before = 0;
    TRY(list_reservations(node, 0, &all));
    vector_sort(&all, compare_nodes);
    for (size_t i = 0; i < all.count && all.at[i].node < own; i++) {
        before += all.at[i].node != last;
        last = all.at[i].node;
    }
    return before < HEAD_WRITERS_MAX ? 0 : -ESTALE;
}

/* Removes the entry first: one unknown to any store would hold the union back for ever. */
int node_give_up_place(struct node *node)
{
    struct node_file *file = &node->file;
    uint64_t own = file->stay;
    char object[OBJECT_NAME_LEN];
    const char *name = object;
    object_name(WRITERS, own, object);
    if (own)
        TRY(tier_remove_all(node->common.tier, &name, 1));
    mutex_lock(&node->blocks_lock);
    file->blocks.count = 0;
    mutex_unlock(&node->blocks_lock);
    file->stay = 0;
    file->replaces = false;
    return node_file_write(node);
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
