// SPDX-License-Identifier: Apache-2.0
/* Feeds: objects "feeds/ROUND-EPOCH". In a prefix that several nodes write, each node publishes its
 * own operations by them, cut at rounds common to all nodes. Created exclusively, never
 * overwritten.
 *
 * A feed states the number `to` of the node's newest operation at each round from `lo` to `hi`. It
 * contains the records of the operations after `from`, and names the runs that describe all content
 * of this node. Pure functions; any thread. */
#pragma once

#include "format/prefix.h"
#include "format/record.h"
#include "format/run_list.h"

#define FEED_VERSION 1u
#define FEED_LEN_MAX (64u * 1024 * 1024)
#define FEED_NAME_LEN 40u /* with its NUL */
/* the node has left: `hi` is ROUND_MAX, no later feed of this epoch exists */
#define FEED_LEAVES 1u

/* The possible error of this node's clock. When the operations of two feeds contradict each other,
 * other nodes decide by it. Milliseconds. */
struct feed_clock {
    uint32_t error; /* promised bound of the distance to the true time */
    /* distance from `hi` to the operations before and after it; UINT32_MAX: larger */
    uint32_t before, after;
};

struct feed {
    uint8_t history[16];
    uint64_t epoch;
    uint32_t node;        /* see struct writer_entry */
    uint32_t flags;       /* FEED_* */
    uint64_t generation;  /* of the newest union that the node had seen */
    uint64_t from, to;    /* the operations contained: those after `from`, up to `to` */
    uint64_t lo, hi;      /* rounds, both included */
    uint8_t previous[32]; /* hash of the previous feed of this epoch; zeros: this is the first */
    int64_t time;         /* when it was made, by the node's clock, ns since 1970 */
    struct feed_clock clock;
    uint64_t max_ino, max_id;                         /* largest numbers assigned so far */
    uint64_t chunks, stored_bytes, packs, pack_bytes; /* of all its content */
    uint64_t head; /* number of the node's own head that names these runs; 0: none yet */
    uint32_t run_count;
    /* all rows of the node, oldest first, including those of names */
    struct run_info runs[RUN_LIST_MAX];
    uint32_t record_count;
    /* encoded records one after the other; after decoding they point into the buffer */
    const uint8_t *records;
    size_t records_len;
};

void feed_name(uint64_t round, uint64_t epoch, char buf[FEED_NAME_LEN]);
/* False: `name` is not the name of a feed. */
CAIRN_MUST_CHECK bool feed_numbers(const char *name, uint64_t *ret_round, uint64_t *ret_epoch);

/* Length of the object in bytes. A feed above FEED_LEN_MAX must not be encoded. */
size_t feed_encoded_len(const struct feed *feed);
void feed_encode(const struct feed *feed, void *buf);

/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT as for other objects of a prefix. Decodes every record once,
 * and checks that their types may occur in a feed, that they ascend, and that they lie after `from`
 * and up to `to`. */
CAIRN_MUST_CHECK int feed_decode(const void *buf, size_t len, struct feed *ret_feed);

/* Decodes the record at *at of a decoded feed, and moves *at past it. False: no more records. */
bool feed_next(const struct feed *feed, size_t *at, struct record *ret_rec);
