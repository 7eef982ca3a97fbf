// SPDX-License-Identifier: Apache-2.0
/* Heads: small objects "heads/NUMBER" that describe the content of a remote. Created exclusively,
 * never overwritten: the head with the highest number is the current one. Pure functions; any
 * thread. */
#pragma once

#include "format/prefix.h"
#include "format/run_list.h"
#include "format/segment.h"

/* A head that uses no feature is written as version 1, which 0.2.0 reads. */
#define HEAD_VERSION 2u
#define HEAD_RUNS_MAX RUN_LIST_MAX
#define HEAD_LEN_MAX (16u * 1024)
#define HEAD_GIVEN_UP_MAX 16u
#define HEAD_WRITERS_MAX 128u

/* Heads discarded by a mount with --rollback: all heads of `epoch` and earlier epochs whose cut is
 * later than `cut`. The head with this entry, and all heads after it, continue from `cut`. */
struct head_given_up {
    uint64_t cut, epoch;
    /* numbers of the discarded heads; last + 1 == first: their objects were lost */
    uint64_t first, last;
    int64_t time; /* when, by the medium's clock, ns */
};

/* The policy for states that stay beyond the grace: the newest `last`, and the newest one of each
 * of so many hours, days and weeks (UTC; a week begins on Monday) in which a head was published.
 * All 0: no such states. */
struct head_keep {
    uint32_t last, hourly, daily, weekly; /* HEAD_KEEP_MAX at most */
};
#define HEAD_KEEP_MAX 1000u

enum head_writer_state {
    HEAD_WRITER_LIVES = 1,
    HEAD_WRITER_ENDED = 2, /* it has ended, and the head names content of it */
};

/* The operations of one writer that a head of several nodes contains. */
struct head_writer {
    uint64_t epoch;
    uint32_t node; /* see struct writer_entry */
    enum head_writer_state state;
    uint64_t merged;       /* the head contains its operations up to this number */
    uint64_t feed_round;   /* feeds/ROUND-EPOCH names its content; 0: no feed yet */
    uint8_t feed_hash[32]; /* of that object: BLAKE3, without a key */
};

struct head {
    uint64_t number;     /* 1, 2, ... without gaps, over all writers */
    uint8_t history[16]; /* of the prefix */
    uint8_t store[16];   /* of its writer */
    uint16_t writer;     /* its writer slot */
    uint32_t incompat;   /* features that a reader must know, as in the superblock */
    /* epoch of the writer: larger than that of every earlier head of another holder */
    uint64_t epoch;
    /* fresh for each attempt to create: if the answer was lost, it shows who created the head */
    uint8_t nonce[16];
    char holder[HOLDER_MAX]; /* "host:/path pid 123", for people; NUL-terminated */
    int64_t time;            /* hybrid time of the cut, ns */
    int64_t published;       /* wall clock of the writer, ns */
    uint64_t cut;            /* the state described: its last operation */
    /* of the journal batch of that cut: the next batch continues from it */
    uint8_t chain[CHAIN_LEN];
    uint64_t max_ino; /* low 48 bits: largest inode number assigned so far */
    uint64_t max_id;  /* largest pack id assigned so far */
    uint64_t files, logical_bytes, chunks, stored_bytes; /* of that state */
    uint64_t packs, pack_bytes;                          /* objects that the state needs */
    uint32_t run_count;
    struct run_info runs[HEAD_RUNS_MAX]; /* oldest first; of the same history as the head */
    uint32_t given_up_count;
    struct head_given_up given_up[HEAD_GIVEN_UP_MAX]; /* oldest first */
    /* With SUPERBLOCK_INCOMPAT_NODES: `cut` is the generation (24 bits) and the round (40). The
     * runs contain names only; content is named by the feeds of these writers. */
    uint32_t writer_count;
    struct head_writer writers[HEAD_WRITERS_MAX]; /* by epoch, ascending */
    struct head_keep keep;
    bool has_names;   /* named snapshots may exist */
    int64_t end_time; /* of the newest END, by the clock of the medium, ns; 0: none */
};

/* Does the head describe the union of several nodes? */
static inline bool head_has_nodes(const struct head *head)
{
    return head->incompat & SUPERBLOCK_INCOMPAT_NODES;
}

/* Parts of the cut of a head of several nodes. */
static inline uint64_t head_round(const struct head *head)
{
    return head->cut & ROUND_MAX;
}
static inline uint64_t head_generation(const struct head *head)
{
    return head->cut >> ROUND_BITS;
}
static inline uint64_t head_cut_of(uint64_t generation, uint64_t round)
{
    return generation << ROUND_BITS | round;
}

static inline bool head_keep_is_set(const struct head_keep *keep)
{
    return keep->last || keep->hourly || keep->daily || keep->weekly;
}

/* NULL: the head has no writer with that epoch. */
const struct head_writer *head_writer_of(const struct head *head, uint64_t epoch);

/* How many writers have not ended. */
uint32_t head_living(const struct head *head);

/* Do states stay beyond the grace? Then there are gaps between the heads. */
static inline bool head_has_history(const struct head *head)
{
    return head->has_names || head_keep_is_set(&head->keep);
}

/* Returns the length, at most HEAD_LEN_MAX; `buf` has that much room. */
size_t head_encode(const struct head *head, void *buf);

/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT (newer version or unknown feature; the cause names it).
 * Checks the invariants within one head: the runs follow each other from cut 0 to `cut`, their ids
 * are unique and not 0, strings end, numbers fit their bits. head_encode() requires the same of its
 * head. */
CAIRN_MUST_CHECK int head_decode(const void *buf, size_t len, struct head *ret_head);

/* Adds an entry about discarded heads. If the list is full, the two oldest entries are merged into
 * one that covers both. */
void head_give_up(struct head *head, const struct head_given_up *more);
/* Returns the entry of `head` that discards the state of `other`, a head of the same prefix; NULL:
 * none does, and `head` may continue from it. */
const struct head_given_up *head_gave_up(const struct head *head, const struct head *other);
/* Revokes entries of `head`: the state with `cut` is part of its state after all. `known` is the
 * head of that state, or NULL if that head is not known. Heads of epochs later than that of `known`
 * stay discarded, as do the heads that `known` had discarded. */
void head_take_back(struct head *head, const struct head *known, uint64_t cut);
/* The head of several nodes contains the operations of the node up to the returned number; 0:
 * none. */
uint64_t head_merged(const struct head *head, uint32_t node);
/* Returns `number`; if it is among the discarded heads, the first number after them. */
uint64_t head_after_given_up(const struct head *head, uint64_t number);
