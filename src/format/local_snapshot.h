// SPDX-License-Identifier: Apache-2.0
/* Snapshots of a store: the file STORE/snapshots/NUMBER/snapshot, beside a copy of
 * the view as of the snapshot. It lists the packs on NVMe that the state needs. Written once, and
 * rewritten when the snapshot is renamed. Pure functions; any thread. */
#pragma once

#include "base/vector.h"
#include "format/snapshot.h"

#define LOCAL_SNAPSHOT_VERSION 1u
#define LOCAL_SNAPSHOT_PACKS_MAX (1u << 24)

DEFINE_VECTOR(pack_ids, uint64_t);

struct local_snapshot {
    uint64_t number; /* ascending, unique in the store */
    int64_t taken;   /* ns since 1970 */
    uint64_t cut;    /* the state: its last operation */
    uint64_t files, logical_bytes;
    char name[SNAPSHOT_NAME_MAX]; /* "": unnamed */
    struct pack_ids packs;        /* ascending */
};

/* Adds the bytes of the file to an empty vector. */
void local_snapshot_encode(const struct local_snapshot *snapshot, struct bytes *ret);
/* The caller frees ret->packs, also after an error. -EUCLEAN, -EBADMSG: damaged; -EPROTONOSUPPORT:
 * of a later version. */
CAIRN_MUST_CHECK int local_snapshot_decode(const void *buf, size_t len, struct local_snapshot *ret);
