// SPDX-License-Identifier: Apache-2.0
/* Heads: small objects "heads/NUMBER" that say what a remote holds. Created exclusively, never
 * overwritten: the highest number is the truth. And the prefix's own superblock, "cairn". Pure
 * functions; any thread. */
#pragma once

#include "base/base.h"
#include "format/run.h"
#include "format/segment.h"
#include "format/superblock.h"

/* A head that needs no feature has version 1, which 0.2.0 reads. */
#define HEAD_VERSION 2u
#define PREFIX_INFO_VERSION 1u
#define LEASE_VERSION 1u
#define HEAD_RUNS_MAX 64u
#define HEAD_LEN_MAX (16u * 1024)
#define HEAD_HOLDER_MAX 128u
#define HEAD_GIVEN_UP_MAX 16u

/* Heads that a mount with --rollback gave up: those of `epoch` and before whose cut is later than
 * `cut`. The head that names them, and all after it, go on from `cut`. */
struct head_given_up {
    uint64_t cut, epoch;
    uint64_t first, last; /* their numbers; last + 1 == first: their objects were lost */
    int64_t time;         /* when, by the medium's clock, ns */
};

struct head {
    uint64_t number;     /* 1, 2, ... without gaps, over all writers */
    uint8_t history[16]; /* of the prefix */
    uint8_t store[16];   /* of its writer */
    uint16_t writer;     /* its writer slot */
    uint32_t incompat;   /* features that a reader must know: SUPERBLOCK_INCOMPAT_ENCODINGS */
    uint64_t epoch;      /* its epoch: larger than that of every head of another holder before */
    uint8_t nonce[16];   /* fresh for each try to create: settles whose a head is when an answer was
                            lost */
    char holder[HEAD_HOLDER_MAX]; /* "host:/path pid 123", for people; NUL-terminated */
    int64_t time;                 /* hybrid time of the cut, ns */
    int64_t published;            /* wall clock of the writer, ns */
    uint64_t cut;                 /* the state that is there */
    uint8_t chain[CHAIN_LEN]; /* of the journal batch of that cut: the journal goes on from here */
    uint64_t max_ino;         /* low 48 bits: largest inode number given out so far */
    uint64_t max_id;          /* largest id of a pack given out so far */
    uint64_t files, logical_bytes, chunks, stored_bytes; /* of that state */
    uint64_t packs, pack_bytes;                          /* objects that it needs */
    uint32_t run_count;
    struct run_info runs[HEAD_RUNS_MAX]; /* oldest first; their history is that of the head */
    uint32_t given_up_count;
    struct head_given_up given_up[HEAD_GIVEN_UP_MAX]; /* oldest first */
};

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
/* Returns `number`, or the first one after those given up that it is among. */
uint64_t head_after_given_up(const struct head *head, uint64_t number);

/* "cairn": what a prefix is; put_new() once by the first store. */
struct prefix_info {
    uint32_t version;
    uint64_t incompat, ro_compat, compat; /* as in the superblock */
    uint8_t history[16];
    int64_t created;
    uint8_t key_id[8];
    struct chunk_key key;
};
#define PREFIX_INFO_LEN 256u
void prefix_info_encode(const struct prefix_info *info, void *buf);
/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT (newer version or unknown incompat bit; the cause says
 * which). */
CAIRN_MUST_CHECK int prefix_info_decode(const void *buf, size_t len, struct prefix_info *ret_info);

/* "lease/holder": overwritten by the holder every few seconds, removed when it ends; its age by the
 * medium's clock tells whether the holder lives. */
struct lease {
    uint8_t history[16], store[16];
    uint64_t epoch;
    char holder[HEAD_HOLDER_MAX];
};
#define LEASE_LEN 256u
void lease_encode(const struct lease *lease, void *buf);
/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT. */
CAIRN_MUST_CHECK int lease_decode(const void *buf, size_t len, struct lease *ret_lease);
