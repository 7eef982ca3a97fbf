// SPDX-License-Identifier: Apache-2.0
/* STORE/superblock: read, written, and told which encodings there may be. */
#include "base/io.h"
#include "commit/internal.h"

int superblock_write(const char *path, const struct superblock *sb)
{
    uint8_t bytes[SUPERBLOCK_LEN];
    superblock_encode(sb, bytes);
    return io_write_file_durable(path, bytes, sizeof bytes);
}

int superblock_read(const char *path, struct superblock *ret)
{
    _cleanup_free_ char *bytes = NULL;
    size_t len;
    int r = io_read_file(path, 16 * SUPERBLOCK_LEN, &bytes, &len);
    return r < 0 ? r : superblock_decode(bytes, len, ret);
}

int local_allow_encodings(struct store *store, uint64_t incompat)
{
    uint64_t missing = incompat & SUPERBLOCK_INCOMPAT_ENCODINGS & ~store->sb.incompat;
    if (missing == 0)
        return 0;
    _cleanup_free_ char *path = xasprintf("%s/superblock", store->path);
    struct superblock sb = store->sb;
    sb.incompat |= missing;
    int r = superblock_write(path, &sb);
    explicit_bzero(&sb.key, sizeof sb.key);
    if (r == 0)
        store->sb.incompat = sb.incompat;
    return r;
}
