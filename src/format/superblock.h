// SPDX-License-Identifier: Apache-2.0
/* STORE/superblock: identity and features of a store. Written when the store is created, and when
 * it gets a new id. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

#define SUPERBLOCK_LEN 4096u
#define SUPERBLOCK_VERSION 1u
/* The store carries the history of another store; set by the encoder. */
#define SUPERBLOCK_INCOMPAT_HISTORY (1ull << 0)
#define SUPERBLOCK_INCOMPAT_FORMER (1ull << 1) /* it had other ids before; set by the encoder */
#define SUPERBLOCK_INCOMPAT_FX (1ull << 2)     /* chunks may be encoded as fx */
/* Chunks of the remote may be encoded as twin or dx, and then refer to others. */
#define SUPERBLOCK_INCOMPAT_DENSE (1ull << 3)
#define SUPERBLOCK_INCOMPAT_MATRIX (1ull << 4) /* fx may have columns, or may omit signs */
#define SUPERBLOCK_INCOMPAT_ANS (1ull << 5)    /* dx may have a separate code for each exponent */
/* The prefix has several writers. The store is one of them or, if `node` is 0, a reader of them.
 * Set by the caller, also in a prefix info and in a head. */
#define SUPERBLOCK_INCOMPAT_NODES (1ull << 6)
/* STORE/snapshots may contain snapshots, whose packs must stay. Set by the caller. */
#define SUPERBLOCK_INCOMPAT_SNAPSHOTS (1ull << 7)
/* Encodings that chunks may have; set by the caller, also of a prefix info. */
#define SUPERBLOCK_INCOMPAT_ENCODINGS                                                              \
    (SUPERBLOCK_INCOMPAT_FX | SUPERBLOCK_INCOMPAT_DENSE | SUPERBLOCK_INCOMPAT_MATRIX |             \
     SUPERBLOCK_INCOMPAT_ANS)
#define SUPERBLOCK_FORMER_MAX 64u
#define NODE_MAX ((1u << 24) - 1)

struct superblock {
    uint32_t version;
    uint64_t incompat;  /* features that a reader must know: SUPERBLOCK_INCOMPAT_* */
    uint64_t ro_compat; /* features that a writer must know; none yet */
    uint64_t compat;    /* features that need not be known; none yet */
    uint8_t store[16];  /* random id */
    /* id of the history that the store carries: its own id, unless it adopted another's from a
     * remote. Zeros, for the encoder, mean its own */
    uint8_t history[16];
    uint16_t writer;   /* this store's writer slot: upper 16 bits of its inode and pack numbers */
    int64_t created;   /* ns since 1970 */
    uint8_t key_id[8]; /* identifies the chunk key without revealing it */
    struct chunk_key key;
    /* With SUPERBLOCK_INCOMPAT_NODES: this store's number among the writers of its prefix, at most
     * NODE_MAX. Contained in names of chunks and versions of files. 0: it was the only writer at
     * first */
    uint32_t node;
    uint16_t former_count;
    /* ids in older segments and packs; oldest first */
    uint8_t former[SUPERBLOCK_FORMER_MAX][16];
};

/* Is that the store's current id, or a former one? */
bool superblock_has_id(const struct superblock *sb, const uint8_t id[16]);

void superblock_encode(const struct superblock *sb, void *buf);

/* -EUCLEAN (not a superblock), -EBADMSG (damaged), -EPROTONOSUPPORT (newer version or unknown
 * incompat bit; the cause says which). */
CAIRN_MUST_CHECK int superblock_decode(const void *buf, size_t len, struct superblock *ret_sb);

/* For any object: -EPROTONOSUPPORT, with a cause noted, if its version is newer than `version` or
 * `incompat` has bits outside `known`. */
CAIRN_MUST_CHECK int format_check_known(uint32_t its_version, uint32_t version, uint64_t incompat,
                                        uint64_t known);
