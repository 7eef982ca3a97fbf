// SPDX-License-Identifier: Apache-2.0
/* Heads: small objects "heads/NUMBER" that say what a remote holds. Created exclusively, never
 * overwritten: the highest number is the truth. Pure functions; any thread. */
#pragma once

#include "format/prefix.h"
#include "format/run_list.h"
#include "format/segment.h"

/* A head that needs no feature has version 1, which 0.2.0 reads. */
#define HEAD_VERSION 2u
#define HEAD_RUNS_MAX RUN_LIST_MAX
#define HEAD_LEN_MAX (16u * 1024)
#define HEAD_GIVEN_UP_MAX 16u
#define HEAD_WRITERS_MAX 128u

/* Heads that a mount with --rollback gave up: those of `epoch` and before whose cut is later than
 * `cut`. The head that names them, and all after it, go on from `cut`. */
struct head_given_up {
    uint64_t cut, epoch;
    uint64_t first, last; /* their numbers; last + 1 == first: their objects were lost */
    int64_t time;         /* when, by the medium's clock, ns */
};

/* Which states stay for longer than the grace: the newest `last`, and the newest one in each of so
 * many hours, days and weeks (UTC; a week begins on Monday) that have one. All 0: none. */
struct head_keep {
    uint32_t last, hourly, daily, weekly; /* HEAD_KEEP_MAX at most */
};
#define HEAD_KEEP_MAX 1000u

enum head_writer_state {
    HEAD_WRITER_LIVES = 1,
    HEAD_WRITER_ENDED = 2, /* it is, and content of it is named */
};

/* The operations of one writer that a head of several nodes has. */
struct head_writer {
    uint64_t epoch;
    uint32_t node; /* see struct writer_entry */
    enum head_writer_state state;
    uint64_t merged;       /* its operations up to this number are there */
    uint64_t feed_round;   /* feeds/ROUND-EPOCH names its content; 0: it has none yet */
    uint8_t feed_hash[32]; /* of that object: BLAKE3, without a key */
};

struct head {
    uint64_t number;     /* 1, 2, ... without gaps, over all writers */
    uint8_t history[16]; /* of the prefix */
    uint8_t store[16];   /* of its writer */
    uint16_t writer;     /* its writer slot */
    uint32_t incompat;   /* features that a reader must know, as in the superblock */
    uint64_t epoch;      /* its epoch: larger than that of every head of another holder before */
    uint8_t nonce[16];   /* fresh for each try to create: settles whose a head is when an answer was
                            lost */
    char holder[HOLDER_MAX];  /* "host:/path pid 123", for people; NUL-terminated */
    int64_t time;             /* hybrid time of the cut, ns */
    int64_t published;        /* wall clock of the writer, ns */
    uint64_t cut;             /* the state that is there */
    uint8_t chain[CHAIN_LEN]; /* of the journal batch of that cut: the journal goes on from here */
    uint64_t max_ino;         /* low 48 bits: largest inode number given out so far */
    uint64_t max_id;          /* largest id of a pack given out so far */
    uint64_t files, logical_bytes, chunks, stored_bytes; /* of that state */
    uint64_t packs, pack_bytes;                          /* objects that it needs */
    uint32_t run_count;
    struct run_info runs[HEAD_RUNS_MAX]; /* oldest first; their history is that of the head */
    uint32_t given_up_count;
    struct head_given_up given_up[HEAD_GIVEN_UP_MAX]; /* oldest first */
    /* With SUPERBLOCK_INCOMPAT_NODES: `cut` is the generation (24 bits) and the round (40), the
     * runs have names alone, and the feeds of these name content. */
    uint32_t writer_count;
    struct head_writer writers[HEAD_WRITERS_MAX]; /* by epoch, ascending */
    struct head_keep keep;
    bool has_names;   /* snapshots may have names */
    int64_t end_time; /* of the newest END, by the clock of the medium, ns; 0: none */
};

/* Several nodes wrote what it tells. */
static inline bool head_has_nodes(const struct head *head)
{
    return head->incompat & SUPERBLOCK_INCOMPAT_NODES;
}

/* Of a head of several nodes. */
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

/* NULL: it has none of that epoch. */
const struct head_writer *head_writer_of(const struct head *head, uint64_t epoch);

/* States stay for longer than the grace, so that there are gaps between the heads. */
static inline bool head_has_history(const struct head *head)
{
    return head->has_names || head_keep_is_set(&head->keep);
}

/* Returns the length, at most HEAD_LEN_MAX; `buf` has that much room. */
size_t head_encode(const struct head *head, void *buf);

/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT (newer version or unknown feature; the cause says which).
 * Checks what must hold within one head: runs follow each
 * other from cut 0 to `cut`, their ids are not 0 and differ, strings end, numbers fit their bits.
 * head_encode() takes no other head. */
CAIRN_MUST_CHECK int head_decode(const void *buf, size_t len, struct head *ret_head);

/* Adds what `head` gives up. If it has no room, the two oldest become one that says no less. */
void head_give_up(struct head *head, const struct head_given_up *more);
/* Returns what `head` says of the state of `other`, a head of the same prefix; NULL: nothing, or
 * `head` may go on from it. */
const struct head_given_up *head_gave_up(const struct head *head, const struct head *other);
/* The state with `cut` is part of the head's state after all. It is that of the head `known`, or,
 * with NULL, of none that is known. What heads of later epochs than that one's had stays given up,
 * and so does what `known` gave up. */
void head_take_back(struct head *head, const struct head *known, uint64_t cut);
/* The operations of the node up to this number are in the head of several nodes; 0: none is. */
uint64_t head_merged(const struct head *head, uint32_t node);
/* Returns `number`, or the first one after those given up that it is among. */
uint64_t head_after_given_up(const struct head *head, uint64_t number);
