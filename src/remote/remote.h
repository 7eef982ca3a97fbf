// SPDX-License-Identifier: Apache-2.0
/* From NVMe to the remote: progress, and the state of the remote. The part for fs/ and above, which
 * include store/store.h. Threads: any. */
#pragma once

#include "base/cause.h"
#include "commit/commit.h"
#include "format/frame.h"

/* As horizon_await(), for the remote; -ESHUTDOWN also if no remote will ever have the operation
 * (none, or fenced). If several nodes write the prefix, a union head contains it on return. Lifts
 * rate limits of both tiers until it is uploaded. store_unwait() accepts these tickets, too. */
void remote_start_wait(struct store *store, uint64_t seq, waiter_fn *fn, void *arg,
                       uint64_t *ret_ticket);

/* Callers waiting for this operation, or an earlier one, need not wait any longer. Unlike
 * horizon_published(): if several nodes write the prefix, a union head contains it. */
uint64_t remote_reached(struct store *store);

/* The number that remote_reached() must reach until it includes the last durable change of `ino`;
 * 0: it does. Query the NVMe level first: changes that are not durable there are not considered. */
CAIRN_MUST_CHECK int remote_needs(struct store *store, uint64_t ino, uint64_t *ret_seq);

/* Makes a store that follows look for a newer head now; returns at once. */
void remote_follow_now(struct store *store);

/* Lifts all limits until the store is closed; returns at once (umount --drain). */
void remote_drain(struct store *store);

enum remote_state {
    REMOTE_NONE,
    REMOTE_CONNECTING, /* never reached since mount */
    REMOTE_IDLE,       /* has everything that is on NVMe */
    REMOTE_UPLOADING,
    REMOTE_UNREACHABLE, /* retries for ever; `error` is the reason */
    REMOTE_FENCED,      /* another writer took over the prefix; `error` names it */
    REMOTE_FOLLOWING,   /* read-only */
};

struct remote_status {
    enum remote_state state;
    char name[256];
    uint64_t head, horizon_seq;
    double seconds_behind;                /* age of the oldest operation missing in the remote */
    uint64_t behind_bytes, behind_chunks; /* live, and missing in the remote */
    uint64_t damaged_chunks;              /* of the newest head of this mount, in no tier */
    uint64_t suspect_packs;               /* could not be read when last checked */
    uint64_t suspect_chunks; /* needed ones in those packs; of these, NVMe soon has none */
    uint64_t target_bytes;   /* of the cut being uploaded, still to be sent */
    uint64_t packs, pack_bytes;
    uint64_t kept_states, kept_bytes; /* for history; as of the last gc */
    uint64_t held_bytes;              /* as in struct view_remote */
    uint64_t files, logical_bytes;    /* of the published state */
    uint64_t uploaded_bytes_total, fetched_bytes_total, requests_total, retries_total;
    uint64_t merged_bytes_total; /* part of the fetched bytes: to rewrite packs */
    uint64_t put_total, get_total, list_total, head_total, delete_total; /* of these requests */
    uint64_t received_bytes_total; /* all content read, heads and runs included */
    /* Chunks of uploaded packs; the time is that for twin and dx. */
    struct encode_counts encoded;
    uint64_t errors;
    char error[CAUSE_MAX];             /* the last one, in words */
    double error_age_s, unreachable_s; /* seconds; negative: none */
    /* If several nodes write the prefix. Only the node that merges knows of the others. */
    struct nodes_status {
        bool is_node;
        uint64_t merges; /* 1: this node does */
        uint64_t union_head;
        /* age of the newest instant visible to readers; negative: none */
        double union_age_s;
        /* nodes that have not left; those without a sign of life for longer than the lease */
        uint64_t nodes, silent;
        double silent_s;            /* since the last sign of life of the longest silent one */
        uint64_t generation, ended; /* of the union; stays that ended without leaving */
        uint64_t changes_wait;      /* 1: this node has no lease, or is not open yet */
        uint64_t aside_bytes, aside_only_there_bytes;
        char merger[HOLDER_MAX];    /* the other node that merges; "": not known */
        char waits_for[HOLDER_MAX]; /* the node that has held the union back for long; "": none */
        /* the node that is furthest behind now, other than this one */
        char held_back_by[HOLDER_MAX];
        char trouble[256]; /* why this node cannot report its operations; "": it can */
    } nodes;
};
void remote_get_status(struct store *store, struct remote_status *ret);
/* Durable changes on this node that the remote lacks; those of a fenced mount will never get there.
 * Examines a bounded number of changes. Reads the view. */
struct remote_unpublished {
    uint64_t inodes;       /* created, changed or removed since the newest head of this mount */
    uint64_t files, bytes; /* regular files among these, and their sizes */
    bool has_more;
};
CAIRN_MUST_CHECK int remote_unpublished(struct store *store, struct remote_unpublished *ret);
