// SPDX-License-Identifier: Apache-2.0
/* Small objects of a remote's prefix: its marker, its lease, its writers, and ended epochs. Pure
 * functions; any thread. Each decoder returns -EUCLEAN (another object, or impossible fields),
 * -EBADMSG (damaged), or -EPROTONOSUPPORT (a newer version or an unknown feature; the cause says
 * which). */
#pragma once

#include "format/frame.h"
#include "format/superblock.h"

#define PREFIX_INFO_VERSION 1u
#define LEASE_VERSION 1u
#define WRITER_ENTRY_VERSION 1u
#define ENDED_VERSION 1u
#define PREFIX_INFO_LEN 256u
#define LEASE_LEN 256u
#define WRITER_ENTRY_LEN 256u
#define ENDED_LEN 64u
/* Rounds of several nodes: the instants at which feeds and heads are cut. A generation ends when a
 * node is lost with operations that no other node has: then all nodes return to an earlier
 * round. */
#define ROUND_BITS 40
#define ROUND_MAX ((1ull << ROUND_BITS) - 1)
#define GENERATION_MAX ((1ull << 24) - 1)

/* "cairn", the marker of a prefix: its history, key and features. Created once, exclusively, by the
 * first store. */
struct prefix_info {
    uint32_t version;
    uint64_t incompat, ro_compat, compat; /* as in the superblock */
    uint8_t history[16];
    int64_t created;
    uint8_t key_id[8];
    struct chunk_key key;
};
void prefix_info_encode(const struct prefix_info *info, void *buf);
CAIRN_MUST_CHECK int prefix_info_decode(const void *buf, size_t len, struct prefix_info *ret_info);

/* "lease/holder": overwritten by the holder every few seconds, removed when it ends. The object's
 * age by the medium's clock shows whether the holder is alive. */
struct lease {
    uint8_t history[16], store[16];
    uint64_t epoch;
    char holder[HOLDER_MAX];
};
void lease_encode(const struct lease *lease, void *buf);
CAIRN_MUST_CHECK int lease_decode(const void *buf, size_t len, struct lease *ret_lease);

#define NODE_BLOCK 16u /* epochs that one entry reserves: NUMBER and the 15 after it */

/* The number of the entry that reserves an epoch; 0: of none. Epochs before the first entry are
 * those of a prefix that one store wrote before several nodes did: they are that entry's. */
static inline uint64_t node_block_of(uint64_t epoch)
{
    return epoch > 0 && epoch < NODE_BLOCK ? NODE_BLOCK : epoch - epoch % NODE_BLOCK;
}

/* "writers/NUMBER", of a prefix that several nodes write: created exclusively by a store that
 * joins, or by a daemon that resumes the store's epoch; then rewritten as its heartbeat. */
struct writer_entry {
    uint8_t history[16], store[16];
    uint64_t number; /* as in its name; never reused */
    uint64_t epoch;  /* of the store since it joined: the number of the entry by which it joined */
    /* the first epoch that the store ever had in this prefix: stays the same when it joins again */
    uint32_t node;
    /* after its last contact with the others it may continue for so long; 0: not known */
    uint32_t lease_ms;
    char holder[HOLDER_MAX];
    /* possible error of its clock; 0: not known, so it publishes no feeds */
    uint32_t clock_error_ms;
};
void writer_entry_encode(const struct writer_entry *entry, void *buf);
CAIRN_MUST_CHECK int writer_entry_decode(const void *buf, size_t len,
                                         struct writer_entry *ret_entry);

/* "ended/EPOCH": this epoch publishes nothing more. Created exclusively. */
enum ended_why {
    ENDED_LEFT = 1,    /* the node left, with all its operations published */
    ENDED_LOST = 2,    /* its stage is lost, as its own daemon reports */
    ENDED_SILENT = 3,  /* others did not hear from it for longer than the lease */
    ENDED_BY_HAND = 4, /* by command of a person */
};
struct ended {
    uint8_t history[16];
    enum ended_why why;
    uint64_t epoch;
    uint64_t by;  /* epoch of the node that wrote this object; 0: not a writer */
    int64_t time; /* by the clock of the medium, ns since 1970 */
};
void ended_encode(const struct ended *ended, void *buf);
CAIRN_MUST_CHECK int ended_decode(const void *buf, size_t len, struct ended *ret_ended);
