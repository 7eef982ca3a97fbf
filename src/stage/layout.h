// SPDX-License-Identifier: Apache-2.0
/* Inside the stage: the layout of its shared memory. Native byte order, since it never leaves the
 * machine or outlives its boot. Also documented in docs/on-disk-format.md, "The stage". */
#pragma once

#include <stdatomic.h>

#include "codec/hash.h"
#include "stage/stage.h"

#define STAGE_MAGIC 0x3145474154534e43ull /* "CNSTAGE1" */
#define STAGE_VERSION 2u
/* The version written by older daemons: such a stage is recovered and upgraded to the current
 * version. */
#define STAGE_VERSION_UNKEYED 1u
#define BOOT_ID_LEN 36u
/* Formerly 131,072: the table of requests occupies the space of the last ones. */
#define HANDLES_MAX 122880u
#define REQUESTS_MAX 2040u
#define REQUESTS_MAGIC 0x53514552u /* "REQS": the table of requests exists, in this layout */

struct stage_header {
    uint64_t magic;
    _Atomic uint32_t version;
    uint32_t slab_count;
    uint8_t store[16];
    char boot_id[40];
    uint64_t log_half_len;
    uint64_t created_epoch;
    uint32_t crc_unkeyed; /* STAGE_VERSION_UNKEYED: of all fields above; later 0 */
    uint32_t reserved;

    /* Modified while in use, each by one atomic store. */
    _Atomic uint64_t epoch;
    _Atomic uint64_t next_epoch;
    _Atomic uint64_t floor_seq;
    _Atomic uint32_t log_active;
    _Atomic uint32_t requests; /* REQUESTS_MAGIC */
    _Atomic uint64_t log_tail[2];

    /* Since version 2. Written before the version is set to 2. */
    uint8_t secret[HASH_KEY_LEN]; /* keys the tags of write records */
    uint8_t name[16];             /* random, chosen by a session: part of the file names */
    uint32_t crc;        /* of all fields before crc_unkeyed, of the secret and of the name */
    uint32_t handle_tag; /* the upper 32 bits of handle numbers: handle_number() */
    /* operations up to it are in the journal, and may be missing here */
    _Atomic uint64_t durable_seq;
    _Atomic int32_t pid; /* of the daemon that owns, or last owned, the stage */
    /* 1: a session refers to this stage, so it may contain the only copy of data */
    _Atomic uint32_t is_named;
    /* of the directory of its store, where they are constant; valid only with owner_crc */
    uint64_t owner_device, owner_ino;
    /* of these fields and the path, by the daemon that wrote both; 0: not known */
    uint32_t owner_crc;
    uint8_t reserved4[20];
    char owner[3840]; /* path of its store; empty: the path is too long */
};
_Static_assert(sizeof(struct stage_header) == 4096, "a page");

enum slab_shared_state {
    SLAB_SHARED_FREE = 0,
    SLAB_SHARED_USED = 1,     /* records, each followed by its payload, up to the fill */
    SLAB_SHARED_RECEIVED = 2, /* one record; its payload is at SLAB_PAYLOAD_OFFSET */
};

#define SLAB_RECORD_ALIGN 64u

struct slab_entry {
    /* enum slab_shared_state, and the fill in SLAB_RECORD_ALIGN << SLAB_FILL_SHIFT: no records lie
     * beyond it */
    _Atomic uint32_t use;
    _Atomic uint32_t generation;
};

#define SLAB_FILL_SHIFT 16
_Static_assert(SLAB_STRIDE / SLAB_RECORD_ALIGN < 1u << SLAB_FILL_SHIFT, "the fill has 16 bits");

static inline uint32_t slab_use(enum slab_shared_state state, uint32_t fill)
{
    return (uint32_t)state | fill / SLAB_RECORD_ALIGN << SLAB_FILL_SHIFT;
}

static inline enum slab_shared_state slab_use_state(uint32_t use)
{
    return (enum slab_shared_state)(use & ((1u << SLAB_FILL_SHIFT) - 1));
}

static inline uint32_t slab_use_fill(uint32_t use)
{
    return (use >> SLAB_FILL_SHIFT) * SLAB_RECORD_ALIGN;
}

struct handle_entry {
    uint64_t ino;       /* 0: free */
    uint32_t flags;     /* with HANDLE_LISTS: and the low 30 bits of a sequence number */
    uint32_t next_free; /* in use, with HANDLE_LISTS: bits 30 and up of that number */
};

/* The kernel may still use handle numbers of a lost stage. So a new stage below an existing mount
 * has another tag. */
static inline uint64_t handle_number(const struct stage_header *header, uint32_t index)
{
    return (uint64_t)header->handle_tag << 32 | index;
}

static inline bool handle_is_own(const struct stage_header *header, uint64_t handle)
{
    return handle >> 32 == header->handle_tag && (uint32_t)handle < HANDLES_MAX;
}

enum request_state {
    REQUEST_TAKEN,
    REQUEST_BEGUN,
    REQUEST_APPLIED,
    REQUEST_CLOSING,
    REQUEST_TO_CLOSE /* its handle is known, and still open */
};

struct request_slot {
    _Atomic uint64_t unique; /* the kernel's number; 0: free */
    uint32_t opcode;
    _Atomic uint32_t state;
    uint64_t seq; /* BEGUN: of the deciding record */
    uint64_t ino;
    int64_t result;
    uint32_t handle; /* index + 1; 0: none */
    _Atomic uint32_t answering;
    uint64_t reserved[2];
};
_Static_assert(sizeof(struct request_slot) == 64, "request slot");
_Static_assert(HANDLES_MAX * sizeof(struct handle_entry) +
                       REQUESTS_MAX * sizeof(struct request_slot) +
                       STAGE_DUE_MAX * sizeof(uint64_t) ==
                   131072 * sizeof(struct handle_entry),
               "tables of handles and requests, and what is due");

#define SLAB_RECORD_MAGIC 0x52424c53u /* "SLBR" */
#define SLAB_RECORD_STARTS_WRITE 1u

/* Precedes each payload. */
struct slab_record {
    union {
        /* keyed hash of the rest, of the slab and of the record's offset: slab_record_tag() */
        uint64_t tag;
        struct {
            uint32_t magic;
            uint32_t crc; /* of the rest */
        } unkeyed;        /* STAGE_VERSION_UNKEYED */
    };
    uint32_t generation;
    uint32_t flags;
    uint64_t seq;
    uint64_t ino;
    uint64_t version;
    uint64_t offset;
    uint32_t length;
    uint32_t payload; /* offset in the slab */
    int64_t time;
};
_Static_assert(sizeof(struct slab_record) == 64, "slab record");
