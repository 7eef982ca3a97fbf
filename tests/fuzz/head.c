// SPDX-License-Identifier: Apache-2.0
/* Heads and the small objects of a prefix. */
#include "format/snapshot.h"

#include "fuzz.h"
#include "mend.h"

static void decode_head(const uint8_t *p, size_t size)
{
    struct head head;
    if (head_decode(p, size, &head) < 0)
        return;
    uint8_t *again = xmalloc(HEAD_LEN_MAX);
    check(strlen(head.holder) < HOLDER_MAX && head.run_count <= HEAD_RUNS_MAX);
    check(head_encode(&head, again) == size && memcmp(again, p, size) == 0);
    free(again);
}

static void decode_snapshot(const uint8_t *p, size_t size)
{
    struct named_snapshot snapshot;
    if (snapshot_decode(p, size, &snapshot) < 0)
        return;
    uint8_t *again = xmalloc(SNAPSHOT_LEN_MAX);
    check(snapshot_encode(&snapshot, again) == size && memcmp(again, p, size) == 0);
    free(again);
}

static void decode_prefix_info(const uint8_t *p, size_t size)
{
    struct prefix_info info;
    uint8_t again[PREFIX_INFO_LEN];
    if (prefix_info_decode(p, size, &info) < 0 || info.compat || info.ro_compat)
        return;
    prefix_info_encode(&info, again);
    check(memcmp(again, p, sizeof again) == 0);
}

DEFINE_DECODE(decode_lease, lease, lease_decode, lease_encode, LEASE_LEN)
DEFINE_DECODE(decode_writer_entry, writer_entry, writer_entry_decode, writer_entry_encode,
              WRITER_ENTRY_LEN)
DEFINE_DECODE(decode_ended, ended, ended_decode, ended_encode, ENDED_LEN)

static void decode(const uint8_t *p, size_t size)
{
    struct lease lease;
    struct writer_entry entry;
    struct ended ended;
    (void)decode_writer_entry(p, size, &entry);
    (void)decode_ended(p, size, &ended);
    decode_head(p, size);
    decode_snapshot(p, size);
    decode_prefix_info(p, size);
    (void)decode_lease(p, size, &lease);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = exact_copy(data, size);
    decode(copy, size);
    bool is_short =
        size >= 8 && memcmp(copy, "CAIRNHED", 8) != 0 && memcmp(copy, "CAIRNSNP", 8) != 0;
    size_t len = is_short && size > LEASE_LEN ? LEASE_LEN : size;
    mend_frame(copy, len);
    decode(copy, len);
    free(copy);
    return 0;
}
