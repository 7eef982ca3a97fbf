// SPDX-License-Identifier: Apache-2.0
/* Heads and the small objects of a prefix. */
#include "format/head.h"

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

static void decode_prefix_info(const uint8_t *p, size_t size)
{
    struct prefix_info info;
    uint8_t again[PREFIX_INFO_LEN];
    if (prefix_info_decode(p, size, &info) < 0 || info.compat || info.ro_compat)
        return;
    prefix_info_encode(&info, again);
    check(memcmp(again, p, sizeof again) == 0);
}

static void decode_lease(const uint8_t *p, size_t size)
{
    struct lease lease;
    uint8_t again[LEASE_LEN];
    if (lease_decode(p, size, &lease) < 0)
        return;
    lease_encode(&lease, again);
    check(memcmp(again, p, sizeof again) == 0);
}

static void decode_writer_entry(const uint8_t *p, size_t size)
{
    struct writer_entry entry;
    uint8_t again[WRITER_ENTRY_LEN];
    if (writer_entry_decode(p, size, &entry) < 0)
        return;
    writer_entry_encode(&entry, again);
    check(memcmp(again, p, sizeof again) == 0);
}

static void decode_ended(const uint8_t *p, size_t size)
{
    struct ended ended;
    uint8_t again[ENDED_LEN];
    if (ended_decode(p, size, &ended) < 0)
        return;
    ended_encode(&ended, again);
    check(memcmp(again, p, sizeof again) == 0);
}

static void decode(const uint8_t *p, size_t size)
{
    decode_writer_entry(p, size);
    decode_ended(p, size);
    decode_head(p, size);
    decode_prefix_info(p, size);
    decode_lease(p, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = exact_copy(data, size);
    decode(copy, size);
    size_t len =
        size >= 8 && memcmp(copy, "CAIRNHED", 8) != 0 && size > LEASE_LEN ? LEASE_LEN : size;
    mend_frame(copy, len);
    decode(copy, len);
    free(copy);
    return 0;
}
