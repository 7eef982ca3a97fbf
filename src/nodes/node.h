// SPDX-License-Identifier: Apache-2.0
/* This store as one of several that write a prefix, each on a node of its own: how it joins, and
 * its numbers (node.c, STORE/node); its own prefix (node_tier.h); its feeds (feeder.c).
 *
 * A stay lasts from joining to leaving, over all mounts and daemons in between. Epochs of the store
 * come from blocks that it reserved in the prefix (writers/NUMBER), so no two stores ever assign
 * the same number to an operation, an inode, a pack or a run. */
#pragma once

#include "commit/commit.h"
#include "commit/rounds.h"
#include "prefix/prefix.h"

#define NODE_ROUND_NS (2ll * 1000000000)
#define NODE_CLOCK_ERROR_NS (50ll * 1000000) /* lower limit: errors outside the model */
#define NODE_CLOCK_ERROR_MAX_NS (NODE_ROUND_NS / 8)
#define NODE_FEED_EVERY_NS (10ll * 1000000000) /* also if nothing has happened */
/* After it has gone back, a node opens a lease and this margin later: for the whole seconds of the
 * medium's clock, and a slower clock. */
#define NODE_OPENS_MARGIN_NS (2ll * 1000000000)

/* memory per operation that the union lacks: in the feed log, and in touched */
#define NODE_OP_BYTES 400u

struct merger_status;
struct node;
struct view_cut;

/* `options`: of the common prefix; the node owns its tier from now on. Everything else is
 * borrowed. */
struct node *node_new(struct commit *commit, struct local *local,
                      const struct remote_options *options);
void node_free(struct node *node); /* NULL is fine; after the remote, which uses node_tier() */
/* Starts this node's merger (merger.h); call after recovery. */
CAIRN_MUST_CHECK int node_start(struct node *node);
/* Ends the merger, so that another node may merge. */
void node_end_merging(struct node *node);
/* The node's clock, which determines the rounds noted by the history. Valid while the node
 * exists. */
struct node_clock *node_clock(struct node *node);
/* Ends waits; the user of the tier interrupts the tier. Any thread. */
void node_stop(struct node *node);
/* The node's own prefix; the caller closes it before node_free(). */
struct tier *node_tier(struct node *node);

/* --- look.c, generations ------------------------------------------------------------------------
 *
 * A thread, cairn-node, writes a heartbeat every few seconds, and checks whether others have ended
 * this node. Nothing is acknowledged here later than a lease after the last check: so when the
 * first nodes that saw the end of a generation continue, those that did not see it have stopped. */

/* Returns whether the union continued from an earlier state than this store's, or is about to:
 * nothing is acknowledged here until the store has gone back. */
bool node_is_behind(const struct node *node);
/* `fn` is called, before anything is acknowledged, with the time at which this node opened
 * (CLOCK_BOOTTIME, ns): processes that began earlier may rely on data that was set aside. Never
 * called if no generation has ended. Call before node_start(). */
void node_on_open(struct node *node, void (*fn)(void *arg, int64_t opens), void *arg);
/* Ends the stay of another node by hand: operations that its node has not reported by then are lost
 * to the union. -ENOENT: unknown epoch; -EALREADY: the stay has left, or ended. *ret_text: the
 * reason. Any thread. */
CAIRN_MUST_CHECK int node_end_epoch(struct node *node, uint64_t epoch, char **ret_text);

/* Determines whether the store is behind. Call while the store opens, with the remote attached. */
CAIRN_MUST_CHECK int node_meet_union(struct node *node, char **ret_text);
/* Ends the stay because the store's stage is gone, so that acknowledged operations may be
 * missing. */
void node_note_lost(struct node *node);
/* Call before the store goes back: prevents that numbers assigned by this daemon are assigned
 * again. */
CAIRN_MUST_CHECK int node_note_used(struct node *node);
/* Determines to which of its own heads the node must go back; 0: the union has no content of it. */
CAIRN_MUST_CHECK int node_find_way_back(struct node *node, uint64_t *ret_head, char **ret_text);
/* Notes in STORE/node that the store has gone back. `serves`: processes from before are still
 * running. */
CAIRN_MUST_CHECK int node_went_back(struct node *node, bool serves, char **ret_text);
/* Returns whether this store replaces another one: it continues from the state that the other
 * reported, as if it went back there. */
bool node_takes_place(const struct node *node);
/* The generation of the union, if the store is behind it. Any thread. */
uint64_t node_next_generation(const struct node *node);
/* The generation of the store's state, constant while the store is open. Any thread. */
uint64_t node_generation(const struct node *node);

/* --- node.c, for the thread that opens the store ---------------------------------------------- */

/* Determines which node this is, before the superblock is read, or created (`is_new`). A new store
 * reserves its number, and so does one that has left. -EINVAL, -EHOSTDOWN...: *ret_text gives the
 * reason. */
CAIRN_MUST_CHECK int node_join(struct node *node, bool is_new, char **ret_text);
/* Called if another store uses the node's own prefix: finds whether it took this one's place. If
 * so, *ret_text is the message. */
bool node_place_is_taken(struct node *node, char **ret_text);
/* Handles it as if the union had gone back: the store's data is set aside. */
CAIRN_MUST_CHECK int node_fall_behind(struct node *node);
/* Fills a new superblock with the identity of this node: history, key, number. */
void node_give_identity(const struct node *node, struct superblock *sb);
/* -EINVAL, *ret_text: the superblock is not one of a node, or that of another one. */
CAIRN_MUST_CHECK int node_check_superblock(const struct node *node, char **ret_text);
/* Returns the lowest epoch above `last` that is reserved for this node. */
CAIRN_MUST_CHECK int node_next_epoch(struct node *node, uint64_t last, uint64_t *ret_epoch,
                                     char **ret_text);

/* Is the epoch reserved for this node? Any thread. */
bool node_has_epoch(struct node *node, uint64_t epoch);
/* Reserves more numbers before the next daemons need them: these may start while the remote is
 * unreachable. Uploader's thread. */
void node_reserve_ahead(struct node *node);

/* --- feeder.c, for the uploader's thread ------------------------------------------------------ */

/* Reads the operations of the journal that may not be in a feed yet. Opening thread, after
 * recovery. */
CAIRN_MUST_CHECK int node_begin(struct node *node);
/* How many zero bits the number of a round must end in for a cut to be made at it. */
unsigned node_round_bits(const struct node *node);
/* The last round covered by a feed. */
uint64_t node_told_round(const struct node *node);
/* A cut was made at these rounds, and is about to be published: makes the content of its feed
 * durable. */
CAIRN_MUST_CHECK int node_prepare(struct node *node, struct view_cut *cut,
                                  const struct rounds_span *span);
/* The head with that cut exists: puts its feed. An error is logged, and node_tick() retries. */
void node_published(struct node *node, const struct head *head);
/* Between two cuts: puts feeds that failed before, and empty ones. `head`: the newest of the
 * node. */
void node_tick(struct node *node, const struct head *head);
/* The first of the node's heads to which a feed still refers; UINT64_MAX: none. */
CAIRN_MUST_CHECK int node_first_needed_head(struct node *node, uint64_t *ret_number);
/* The mount ends for good, and no daemon will continue it. Any thread. */
void node_let_leave(struct node *node);
/* At the end of such a mount, when nothing changes any more: leaves the prefix if all operations of
 * the store have been reported. */
void node_leave(struct node *node, const struct head *head);
/* Most memory that it takes, its merger included, except for its own operations that the union
 * lacks: NODE_OP_BYTES each. NULL: none. */
uint64_t node_memory(const struct node *node);
/* The reason why this node cannot report its operations to the others; "" if none. Any thread. */
void node_trouble(struct node *node, char *buf, size_t size);
/* Subscribers for newer union heads. */
enum node_hearer { NODE_HEARER_WAITS, NODE_HEARER_SHOWS, NODE_HEARERS };
/* `fn` is called for each newer union head, once its operations count as merged (commit/touched.h):
 * in the merger's thread, without locks. NULL: no further calls, and none is in progress on return.
 * Any thread but the merger's. */
void node_hear(struct node *node, enum node_hearer who, void (*fn)(void *arg), void *arg);
/* Does a change wait now, because this node has no lease, or is not open yet? Any thread. */
bool node_changes_wait(const struct node *node);
/* The size of STORE/aside, at most a minute old. Any thread. */
struct io_sizes;
void node_aside(const struct node *node, struct io_sizes *ret);
/* As merger_status(); empty before node_start(). Any thread. */
void node_merger_status(struct node *node, struct merger_status *ret);
