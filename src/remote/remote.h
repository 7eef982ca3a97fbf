// SPDX-License-Identifier: Apache-2.0
/* From NVMe to the remote: how far that is, and how the remote is. The part of it for fs/ and
 * above, which include store/store.h. Threads: any. */
#pragma once

#include "base/cause.h"
#include "commit/commit.h"
#include "format/frame.h"

/* As horizon_await(), for the remote; -ESHUTDOWN too where no remote will ever have it (none, or
 * fenced). Where several nodes write the prefix, a union head has it on return. Rate limits of both
 * tiers are lifted until it is uploaded. store_unwait() takes these tickets too. */
void remote_start_wait(struct store *store, uint64_t seq, waiter_fn *fn, void *arg,
                       uint64_t *ret_ticket);

/* Callers that wait for this operation, or an earlier one, wait no more. Unlike
 * horizon_published(), a union head has it where several nodes write the prefix. */
uint64_t remote_reached(struct store *store);

/* The sequence that remote_reached() must be at until the last durable change of `ino` is in
 * it; 0: it is. Asks the NVMe level first: what is not durable there is not here. */
CAIRN_MUST_CHECK int remote_needs(struct store *store, uint64_t ino, uint64_t *ret_seq);

/* A store that follows looks for a newer head now; returns at once. */
void remote_follow_now(struct store *store);

/* From now on limits are lifted, until the store is closed; returns at once (umount --drain). */
void remote_drain(struct store *store);

enum remote_state {
    REMOTE_NONE,
    REMOTE_CONNECTING, /* never reached since mount */
    REMOTE_IDLE,       /* has everything that NVMe has */
    REMOTE_UPLOADING,
    REMOTE_UNREACHABLE, /* tries again and again; `error` says why */
    REMOTE_FENCED,      /* another writer took the prefix over; `error` names it */
    REMOTE_FOLLOWING,   /* read-only */
};

struct remote_status {
    enum remote_state state;
    char name[256];
    uint64_t head, horizon_seq;
    double seconds_behind; /* age of the oldest operation that is not in the remote */
    uint64_t behind_bytes, behind_chunks; /* live, and not in the remote */
    uint64_t damaged_chunks; /* that the newest head of this mount refers to, and no tier has */
    uint64_t suspect_packs;  /* that could not be read when they were asked for last */
    uint64_t suspect_chunks; /* needed ones that lie there; of those NVMe has none for long */
    uint64_t target_bytes;   /* of the cut that is being uploaded, still to go */
    uint64_t packs, pack_bytes;
    uint64_t kept_states, kept_bytes; /* for history; when gc last looked */
    uint64_t held_bytes;              /* as in struct view_remote */
    uint64_t files, logical_bytes;    /* of the published state */
    uint64_t uploaded_bytes_total, fetched_bytes_total, requests_total, retries_total;
    uint64_t merged_bytes_total; /* of the fetched ones: to write packs anew */
    uint64_t put_total, get_total, list_total, head_total, delete_total; /* of these requests */
    uint64_t received_bytes_total; /* all content that was read, heads and runs included */
    /* Chunks of the uploaded packs; the time is that of twin and dx. */
    struct encode_counts encoded;
    uint64_t errors;
    char error[CAUSE_MAX];             /* the last, in words */
    double error_age_s, unreachable_s; /* seconds; negative: none */
    /* Where several nodes write the prefix. Only the node that merges knows of the others. */
    struct nodes_status {
        bool is_node;
        uint64_t merges; /* 1: this one does */
        uint64_t union_head;
        double union_age_s;         /* of the newest instant that readers see; negative: none */
        uint64_t nodes, silent;     /* that have not left; not heard of for longer than the lease */
        double silent_s;            /* since the longest silent one was heard of */
        uint64_t generation, ended; /* of the union; stays that ended without leaving */
        uint64_t changes_wait;      /* 1: this node has no lease, or is not open yet */
        uint64_t aside_bytes, aside_only_there_bytes;
        char merger[HOLDER_MAX];    /* another one; "": not known */
        char waits_for[HOLDER_MAX]; /* the node that holds the union back; "": none does for long */
        char held_back_by[HOLDER_MAX]; /* the one that is furthest behind now, but for this one */
        char trouble[256]; /* what keeps this node from telling what it does; "": nothing */
    } nodes;
};
void remote_get_status(struct store *store, struct remote_status *ret);
/* Durable changes that are here and not in the remote; of a fenced mount they never will be. Looks
 * at a bounded number of changes. Reads the view. */
struct remote_unpublished {
    uint64_t inodes;       /* made, changed or removed since the newest head of this mount */
    uint64_t files, bytes; /* regular files of these, and their sizes */
    bool has_more;
};
CAIRN_MUST_CHECK int remote_unpublished(struct store *store, struct remote_unpublished *ret);
