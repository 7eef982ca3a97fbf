// SPDX-License-Identifier: Apache-2.0
/* The union has ended a generation: is this node's store later than the state from which all
 * continue, to which state of its own does it go back, and when does it open again; and how a
 * person ends a generation. */
#include <stdio.h>

#include "base/log.h"
#include "nodes/node_internal.h"
#include "nodes/stays.h"

/* The row of the node's newest stay that reported anything: a later one may have ended before it
 * did. */
static bool find_row(const struct node *node, const struct head *head, struct head_writer *ret)
{
    *ret = (struct head_writer){0};
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head->writers[i].node == node->local->sb.node && head->writers[i].feed_round)
            *ret = head->writers[i];
    return ret->epoch != 0;
}

/* Returns whether the node had left with all operations reported, so that all of them count. */
static bool has_nothing_else(const struct node *node, const struct head_writer *row)
{
    return !node->goes_on && row->feed_round == ROUND_MAX;
}

/* Returns from when on processes may make changes; 0: at once. */
static int64_t opens_after(const struct node *node, int64_t end)
{
    return end ? end + node->options.lease_ns + NODE_OPENS_MARGIN_NS : 0;
}

int node_meet_union(struct node *node, char **ret_text)
{
    struct prefix *prefix = &node->looker.prefix;
    struct head_writer row;
    int r = looker_read_newest(prefix);
    if (r < 0) {
        *ret_text = xasprintf("%s: the newest state of all nodes cannot be read: %s", prefix->name,
                              strerror(-r));
        return r;
    }
    (void)find_row(node, &prefix->head, &row);
    if (node->file.replaces || head_generation(&prefix->head) <= node->file.generation)
        return 0;
    if (!node->is_new && !has_nothing_else(node, &row)) {
        atomic_store(&node->looker.next_generation, head_generation(&prefix->head));
        atomic_store(&node->looker.is_behind, true);
        return 0;
    }
    node->file.generation = head_generation(&prefix->head);
    node->file.opens = opens_after(node, prefix->head.end_time);
    return node_file_write(node);
}

uint64_t node_generation(const struct node *node)
{
    return node->file.generation;
}

bool node_takes_place(const struct node *node)
{
    return node->file.replaces;
}

uint64_t node_next_generation(const struct node *node)
{
    return atomic_load(&node->looker.next_generation);
}

/* Returns the own head whose content is named by the newest feed that counts. */
int node_find_way_back(struct node *node, uint64_t *ret_head, char **ret_text)
{
    struct prefix *prefix = &node->looker.prefix;
    struct head_writer row;
    struct told told;
    *ret_head = 0;
    if (!find_row(node, &prefix->head, &row))
        return 0;
    int r = told_read(prefix, row.feed_round, row.epoch, &told);
    if (r == 0) {
        *ret_head = told.head;
        told_forget(&told);
        return 0;
    }
    *ret_text = xasprintf("%s/feeds/%016llx-%016llx, which says to which state this node goes back "
                          "after another one was lost, cannot be read: %s",
                          prefix->name, (unsigned long long)row.feed_round,
                          (unsigned long long)row.epoch, strerror(-r));
    return r;
}

int node_note_used(struct node *node)
{
    node->file.used = max_u64(node->file.used, node->local->epoch);
    return node_file_write(node);
}

static int remove_kept_feed(const struct node *node)
{
    _cleanup_free_ char *path = xasprintf("%s/feed", node->local->path);
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int stay_is_over(struct node *node, const struct head_writer *row, bool *ret_over)
{
    *ret_over = row->epoch == node->file.stay && row->state == HEAD_WRITER_ENDED;
    return *ret_over || node->file.stay == 0
               ? 0
               : looker_find_end(&node->looker.prefix, node->file.stay, ret_over);
}

int node_went_back(struct node *node, bool serves, char **ret_text)
{
    struct prefix *prefix = &node->looker.prefix;
    struct head_writer row;
    bool is_over;
    int64_t now;
    (void)find_row(node, &prefix->head, &row);
    TRY(prefix->tier->ops->now(prefix->tier, &now));
    TRY(stay_is_over(node, &row, &is_over));
    TRY(remove_kept_feed(node));
    if (is_over)
        node->file.stay = 0;
    node->file.replaces = false;
    node->file.generation = head_generation(&prefix->head);
    if (!serves || now < prefix->head.end_time)
        now = prefix->head.end_time;
    node->file.opens = opens_after(node, now);
    TRY(node_file_write(node));
    atomic_store(&node->looker.is_behind, false);
    return node->file.stay ? 0 : node_begin_stay(node, ret_text);
}

/* --- ending a stay by hand -------------------------------------------------------------------- */

static int refuse(char **ret_text, int error, uint64_t epoch, const char *why)
{
    *ret_text = xasprintf("epoch %llu %s", (unsigned long long)epoch, why);
    return error;
}

static int check_may_end(struct prefix *prefix, uint64_t epoch, char **ret_text)
{
    struct writer_entry entry;
    bool has_ended;
    int r = writer_entry_read(prefix, epoch, &entry);
    if (r == -ENOENT || (r == 0 && entry.epoch != epoch))
        return refuse(ret_text, -ENOENT, epoch, "is of no node; 'cairn nodes' lists them");
    TRY(r);
    TRY(looker_read_newest(prefix));
    const struct head_writer *writer = head_writer_of(&prefix->head, epoch);
    if (writer && writer->state == HEAD_WRITER_ENDED)
        return refuse(ret_text, -EALREADY, epoch, "has left, or ended already");
    TRY(looker_find_end(prefix, epoch, &has_ended));
    return has_ended ? refuse(ret_text, -EALREADY, epoch, "was ended already") : 0;
}

int node_end_epoch(struct node *node, uint64_t epoch, char **ret_text)
{
    struct prefix prefix = {0};
    const struct prefix_user user = node->looker.prefix.user;
    prefix_init(&prefix, node->local, node->commit->room, &node->options, &user);
    int r = check_may_end(&prefix, epoch, ret_text);
    if (r == 0)
        r = ended_put(&prefix, epoch, ENDED_BY_HAND, node->local->epoch);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("%s: %s", prefix.name, strerror(-r));
    if (r == 0)
        log_warn("nodes: epoch %llu is ended by hand", (unsigned long long)epoch);
    prefix_done(&prefix);
    return r;
}
