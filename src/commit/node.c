// SPDX-License-Identifier: Apache-2.0
#include "codec/hash.h"
#include "commit/local.h"

#define NODE_BITS 24
#define NODE_BYTES 3u /* bytes of a name that are changed by the number of the node */

_Static_assert(NODE_MAX == (1u << NODE_BITS) - 1 && NODE_BITS == 8 * NODE_BYTES,
               "a node's number fits");

struct chunk_name local_chunk_name(const struct local *local, const struct iovec *iov,
                                   size_t iov_count)
{
    struct chunk_name name = hash_chunk(&local->sb.key, iov, iov_count);
    for (unsigned i = 0; i < NODE_BYTES; i++)
        name.bytes[i] ^= (uint8_t)(local->sb.node >> (8 * i));
    return name;
}

bool local_is_chunk(const struct local *local, const struct chunk_name *name, const void *raw,
                    size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)raw, len};
    struct chunk_name actual = hash_chunk(&local->sb.key, &iov, 1);
    size_t from = local->sb.incompat & SUPERBLOCK_INCOMPAT_NODES ? NODE_BYTES : 0;
    return memcmp(actual.bytes + from, name->bytes + from, sizeof actual.bytes - from) == 0;
}

uint64_t local_next_version(const struct local *local, uint64_t version)
{
    if (!(local->sb.incompat & SUPERBLOCK_INCOMPAT_NODES))
        return version + 1;
    return ((version >> NODE_BITS) + 1) << NODE_BITS | local->sb.node;
}
