// SPDX-License-Identifier: Apache-2.0
/* Inside store/lookback*.c. */
#pragma once

#include "commit/shared.h"
#include "prefix/prefix.h"
#include "store/local_snapshots.h"
#include "store/lookback.h"

/* A slot that was assigned: for as long as the store is open. */
struct lookback_slot {
    uint64_t head;
    bool is_local;
    unsigned slot;
};

struct lookback {
    struct store *store;
    struct local_snapshots *local; /* of the store */
    bool has_remote;               /* then: */
    struct prefix prefix;          /* to list, and to read heads */
    struct cairn_mutex lock;       /* a leaf; guards: */
    pthread_cond_t changed;        /* `is_listing`, `opening` or `stopping` has changed */
    struct lookback_items items;
    VECTOR(struct lookback_slot) slots;
    bool is_listing;   /* a thread queries the remote */
    bool is_stale;     /* a name has changed since the last query began */
    int64_t listed_at; /* monotonic ns; 0: never */
    unsigned opening;  /* the slot that a thread opens; 0: none */
    bool stopping;
};

/* lookback_new() is called in store_start(), lookback_free() after the last call. NULL: no
 * effect. */
struct lookback *lookback_new(struct store *store);
void lookback_free(struct lookback *lookback);
/* Waits for the remote soon fail. */
void lookback_stop(struct lookback *lookback);
/* This mount has named, renamed or deleted a snapshot: the next list queries the remote. NULL: no
 * effect. Any thread. */
void lookback_names_changed(struct lookback *lookback);
/* Did the remote list a snapshot of this name when it was queried last? NULL: no. Any thread. */
bool lookback_knows(struct lookback *lookback, const char *name);

/* lookback_list.c: makes a prefix for these calls, with `local`. */
void lookback_prefix(struct lookback *lookback, struct local *local, struct prefix *ret);
/* Reads the head of an item. */
CAIRN_MUST_CHECK int lookback_read_head(struct lookback *lookback, const struct lookback_item *item,
                                        struct head *ret);
