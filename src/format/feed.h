// SPDX-License-Identifier: Apache-2.0
/* Feeds: objects "feeds/ROUND-EPOCH" by which each node that writes a prefix tells its own
 * operations, cut at rounds that all nodes have in common. Created exclusively, never overwritten.
 *
 * A feed says: at each round from `lo` to `hi` my newest operation was number `to`. It has the
 * records of the operations after `from`, and names the runs that have all content of this node.
 * Pure functions; any thread. */
#pragma once

#include "format/prefix.h"
#include "format/record.h"
#include "format/run_list.h"

#define FEED_VERSION 1u
#define FEED_LEN_MAX (64u * 1024 * 1024)
#define FEED_NAME_LEN 40u /* with its end */
#define FEED_LEAVES 1u    /* the node has left: `hi` is ROUND_MAX, no feed of this epoch follows */

/* How far this node's clock may be wrong, by which others judge a feed whose operations contradict
 * them. Milliseconds. */
struct feed_clock {
    uint32_t error;         /* it promises to be no further from the true time */
    uint32_t before, after; /* distance of `hi` to the operations beside it; UINT32_MAX: longer */
};

struct feed {
    uint8_t history[16];
    uint64_t epoch;
    uint32_t node;        /* see struct writer_entry */
    uint32_t flags;       /* FEED_* */
    uint64_t generation;  /* that of the union that the node knew */
    uint64_t from, to;    /* operations: after the first, up to the second */
    uint64_t lo, hi;      /* rounds, both included */
    uint8_t previous[32]; /* hash of this epoch's feed before; zeros: it is the first */
    int64_t time;         /* when it was made, by the node's clock, ns since 1970 */
    struct feed_clock clock;
    uint64_t max_ino, max_id;                         /* largest numbers given out so far */
    uint64_t chunks, stored_bytes, packs, pack_bytes; /* of all its content */
    uint64_t head; /* number of the node's own head that names these runs; 0: none yet */
    uint32_t run_count;
    struct run_info runs[RUN_LIST_MAX]; /* all rows of the node, oldest first: names, too */
    uint32_t record_count;
    const uint8_t *records; /* encoded one after the other; after decoding, in the buffer */
    size_t records_len;
};

void feed_name(uint64_t round, uint64_t epoch, char buf[FEED_NAME_LEN]);
/* False: `name` is none of a feed. */
CAIRN_MUST_CHECK bool feed_numbers(const char *name, uint64_t *ret_round, uint64_t *ret_epoch);

/* Of the object; above FEED_LEN_MAX it must not be encoded. */
size_t feed_encoded_len(const struct feed *feed);
void feed_encode(const struct feed *feed, void *buf);

/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT as of a prefix's objects. All records are decoded once: they
 * are of kinds that a feed has, ascend, and lie after `from` and up to `to`. */
CAIRN_MUST_CHECK int feed_decode(const void *buf, size_t len, struct feed *ret_feed);

/* The record at *at of a decoded feed; *at moves behind it. False: there is none. */
bool feed_next(const struct feed *feed, size_t *at, struct record *ret_rec);
