// SPDX-License-Identifier: Apache-2.0
/* Feeds as the merger reads them. What one says is believed only as far as it harms its own node
 * alone. One thread. */
#pragma once

#include "codec/hash.h"
#include "format/feed.h"
#include "prefix/prefix.h"

#define TOLD_BYTES_MAX (256 * MIB) /* of all feeds that are kept until they are merged */

/* Work that takes long says again and again that it goes on: so the lease does not run out. */
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

/* One that was read. */
struct told {
    uint64_t epoch;
    uint32_t node, flags;
    uint64_t generation; /* of the union that its node knew */
    uint64_t from, to, lo, hi;
    uint8_t previous[HASH_LEN], hash[HASH_LEN];
    uint32_t record_count;
    uint64_t head; /* of its node's own ones, that names its content */
    struct told_totals totals;
    uint8_t *bytes; /* NULL: it is read again when it is merged */
    size_t len;
};

/* Reads feeds/ROUND-EPOCH. prefix_object_is_lost() of the result, or -EPROTONOSUPPORT: it is
 * missing, damaged, another's, impossible, or of a newer version. */
CAIRN_MUST_CHECK int told_read(struct prefix *prefix, uint64_t round, uint64_t epoch,
                               struct told *ret);
/* Its records: *ret_feed is in told->bytes, which are there then. -EUCLEAN: it is not what it was.
 */
CAIRN_MUST_CHECK int told_open(struct prefix *prefix, struct told *told, struct feed *ret_feed);
void told_forget(struct told *told);
