// SPDX-License-Identifier: Apache-2.0
/* This store as one of several that write a prefix, each from a node of its own: how it joins, and
 * its numbers (node.c, STORE/node); its own prefix (node_tier.h); its feeds (feeder.c).
 *
 * A stay is from joining to leaving, over all mounts and daemons between. Epochs of the store come
 * from blocks that it reserved in the prefix (writers/NUMBER), so no two stores ever give out the
 * same number of an operation, an inode, a pack or a run. */
#pragma once

#include "commit/commit.h"
#include "commit/rounds.h"
#include "prefix/prefix.h"

#define NODE_ROUND_NS (2ll * 1000000000)
#define NODE_CLOCK_ERROR_NS (50ll * 1000000) /* at least: what is not modelled */
#define NODE_CLOCK_ERROR_MAX_NS (NODE_ROUND_NS / 8)
#define NODE_FEED_EVERY_NS (10ll * 1000000000) /* also where nothing happened */
/* A node opens a lease and this after it went back: whole seconds of the medium's clock, and a
 * clock that runs slower. */
#define NODE_OPENS_MARGIN_NS (2ll * 1000000000)

#define NODE_OP_BYTES                                                                              \
    400u /* of an operation that the union does not have: to be told, and touched */

struct merger_status;
struct node;
struct view_cut;

/* `options`: of the common prefix; its tier is the node's from now on. All are lent. */
struct node *node_new(struct commit *commit, struct local *local,
                      const struct remote_options *options);
void node_free(struct node *node); /* NULL is fine; after the remote, which has node_tier() */
/* After recovery: this node's merger begins to look, merger.h. */
CAIRN_MUST_CHECK int node_start(struct node *node);
/* The merger ends, and another node may merge. */
void node_end_merging(struct node *node);
/* Its clock: whose rounds the history notes. As long as the node lives. */
struct node_clock *node_clock(struct node *node);
/* Ends waits; the tier is interrupted by its user. Any thread. */
void node_stop(struct node *node);
/* The node's own prefix; the caller closes it before node_free(). */
struct tier *node_tier(struct node *node);

/* --- look.c, generations ------------------------------------------------------------------------
 *
 * A thread, cairn-node, tells every few seconds that the node lives, and looks whether others ended
 * it. Nothing is acknowledged here from a lease after the last look on: so those who did not see
 * that a generation ended do nothing any more when the first of those who did go on. */

/* The union went on from an earlier state than this store's, or is about to: nothing is
 * acknowledged here until the store has gone back. */
bool node_is_behind(const struct node *node);
/* Called, before anything is acknowledged, with the time at which this node opened (CLOCK_BOOTTIME,
 * ns): processes that began before may rely on what was set aside. Never called where no generation
 * ended. Before node_start(). */
void node_on_open(struct node *node, void (*fn)(void *arg, int64_t opens), void *arg);
/* Ends the stay of another node, by hand: all that its node did not tell by then counts nowhere.
 * -ENOENT: no node has it; -EALREADY: it has left, or ended. *ret_text: why not. Any thread. */
CAIRN_MUST_CHECK int node_end_epoch(struct node *node, uint64_t epoch, char **ret_text);

/* While the store opens, with the remote attached: is it behind? */
CAIRN_MUST_CHECK int node_meet_union(struct node *node, char **ret_text);
/* The store's operations may lack some that were acknowledged: its stage is gone. The stay ends. */
void node_note_lost(struct node *node);
/* Before it goes back: numbers that this daemon gave out come never again. */
CAIRN_MUST_CHECK int node_note_used(struct node *node);
/* To which of the node's own heads it is to go back; 0: the union has nothing of it. */
CAIRN_MUST_CHECK int node_find_way_back(struct node *node, uint64_t *ret_head, char **ret_text);
/* It has gone back: its file says so. `serves`: processes of before are there still. */
CAIRN_MUST_CHECK int node_went_back(struct node *node, bool serves, char **ret_text);
/* It takes another store's place: it goes on from what that one told, as if it went back there. */
bool node_takes_place(const struct node *node);
/* That of the union that it is behind. Any thread. */
uint64_t node_next_generation(const struct node *node);
/* That of the store's state: it stays as long as the store is open. Any thread. */
uint64_t node_generation(const struct node *node);

/* --- node.c, for the thread that opens the store ---------------------------------------------- */

/* Before the superblock is read, or made (`is_new`): which node this is. A new store reserves its
 * number, and so does one that left. -EINVAL, -EHOSTDOWN...: *ret_text says why not. */
CAIRN_MUST_CHECK int node_join(struct node *node, bool is_new, char **ret_text);
/* Another store has the node's own prefix: did it take this one's place? Then *ret_text says so. */
bool node_place_is_taken(struct node *node, char **ret_text);
/* As where the union went back: what the store has is to be set aside. */
CAIRN_MUST_CHECK int node_fall_behind(struct node *node);
/* What makes a new superblock that of this node: history, key, number. */
void node_give_identity(const struct node *node, struct superblock *sb);
/* -EINVAL, *ret_text: the superblock is of no node, or of another one. */
CAIRN_MUST_CHECK int node_check_superblock(const struct node *node, char **ret_text);
/* The least epoch after `last` that is the node's. */
CAIRN_MUST_CHECK int node_next_epoch(struct node *node, uint64_t last, uint64_t *ret_epoch,
                                     char **ret_text);

/* Is it reserved for this node? Any thread. */
bool node_has_epoch(struct node *node, uint64_t epoch);
/* More numbers, before the next daemons need them: these may begin while the remote is away. The
 * uploader's thread. */
void node_reserve_ahead(struct node *node);

/* --- feeder.c, for the uploader's thread ------------------------------------------------------ */

/* After recovery: the operations of the journal that may be in no feed yet. The opening thread. */
CAIRN_MUST_CHECK int node_begin(struct node *node);
/* How many zero bits the number of a round is to end in, at which a cut is made. */
unsigned node_round_bits(const struct node *node);
/* The last round that a feed told of. */
uint64_t node_told_round(const struct node *node);
/* A cut was made at these rounds, and is about to be published: what its feed tells is durable. */
CAIRN_MUST_CHECK int node_prepare(struct node *node, struct view_cut *cut,
                                  const struct rounds_span *span);
/* The head with that cut is there: its feed is put. An error is said, and node_tick() repeats it.
 */
void node_published(struct node *node, const struct head *head);
/* Between two cuts: feeds that could not be put, and empty ones. `head`: the newest of the node. */
void node_tick(struct node *node, const struct head *head);
/* The first of the node's heads that a feed still refers to; UINT64_MAX: none does. */
CAIRN_MUST_CHECK int node_first_needed_head(struct node *node, uint64_t *ret_number);
/* The mount ends for good, and no daemon goes on with it. Any thread. */
void node_let_leave(struct node *node);
/* At the end of such a mount, when nothing changes any more: if all that the store has is told, it
 * leaves. */
void node_leave(struct node *node, const struct head *head);
/* Most memory that it takes, its merger included, but for operations of its own that the union does
 * not have: NODE_OP_BYTES of each. NULL: none. */
uint64_t node_memory(const struct node *node);
/* What keeps this node from telling the others what it does; "" if nothing. Any thread. */
void node_trouble(struct node *node, char *buf, size_t size);
/* Who hears of newer union heads. */
enum node_hearer { NODE_HEARER_WAITS, NODE_HEARER_SHOWS, NODE_HEARERS };
/* `fn` is called for each newer union head, when operations that it has count as merged
 * (commit/touched.h): in the merger's thread, without locks. NULL: no more, and none is under way
 * on return. Any thread but that. */
void node_hear(struct node *node, enum node_hearer who, void (*fn)(void *arg), void *arg);
/* Does a change wait now, because this node has no lease, or is not open yet? Any thread. */
bool node_changes_wait(const struct node *node);
/* What lies in STORE/aside, as of a minute ago at most. Any thread. */
struct io_sizes;
void node_aside(const struct node *node, struct io_sizes *ret);
/* As merger_status(); nothing is known before node_start(). Any thread. */
void node_merger_status(struct node *node, struct merger_status *ret);
