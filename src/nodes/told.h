// SPDX-License-Identifier: Apache-2.0
/* Feeds as the merger reads them. A feed is trusted only in statements that could harm no other
 * node than its own. One thread. */
#pragma once

#include "codec/hash.h"
#include "format/feed.h"
#include "prefix/prefix.h"

#define TOLD_BYTES_MAX (256 * MIB) /* for all feeds kept until they are merged */

/* Called again and again during long work, so that the lease does not expire. */
struct busy {
    void (*say)(void *arg);
    void *arg;
};
static inline void busy_say(struct busy *busy)
{
    busy->say(busy->arg);
}

struct told_totals {
    uint64_t chunks, stored_bytes, packs, pack_bytes;
    uint64_t max_ino, max_id;
};

/* A feed that was read. */
struct told {
    uint64_t epoch;
    uint32_t node, flags;
    uint64_t generation; /* of the union known to its node */
    uint64_t from, to, lo, hi;
    uint8_t previous[HASH_LEN], hash[HASH_LEN];
    uint32_t record_count;
    bool has_hints; /* format/hint.h */
    uint64_t head;  /* of the node's own heads, the one that names its content */
    struct told_totals totals;
    uint8_t *bytes; /* NULL: it is read again when it is merged */
    size_t len;
};

/* Reads feeds/ROUND-EPOCH. If prefix_object_is_lost() of the result, or -EPROTONOSUPPORT: it is
 * missing, damaged, of another prefix, impossible, or of a newer version. */
CAIRN_MUST_CHECK int told_read(struct prefix *prefix, uint64_t round, uint64_t epoch,
                               struct told *ret);

/* One of the feeds that are read at once. */
struct told_wish {
    uint64_t round, epoch;
    int64_t modified; /* by the clock of the medium; 0: not known */
    int result;       /* of told_read() */
    struct told told; /* to be forgotten */
};
enum { TOLD_AT_ONCE = 8 };
/* Blocks until all are read, each by a thread of its own. */
void told_read_all(struct prefix *prefix, struct told_wish *wishes, size_t count);

/* Opens the feed's records: *ret_feed points into told->bytes, which are loaded. -EUCLEAN: the feed
 * has changed. */
CAIRN_MUST_CHECK int told_open(struct prefix *prefix, struct told *told, struct feed *ret_feed);
void told_forget(struct told *told);
