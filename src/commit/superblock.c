// SPDX-License-Identifier: Apache-2.0
/* STORE/superblock: reads and writes it, and records allowed encodings; and whether the store may
 * be changed. */
#include "base/cause.h"
#include "base/io.h"
#include "commit/local.h"

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
    TRY(io_read_file(path, 16 * SUPERBLOCK_LEN, &bytes, &len));
    return superblock_decode(bytes, len, ret);
}

static int add_features(struct local *local, uint64_t incompat)
{
    _cleanup_free_ char *path = xasprintf("%s/superblock", local->path);
    struct superblock sb = local->sb;
    if (!(incompat & ~sb.incompat))
        return 0;
    sb.incompat |= incompat;
    int r = superblock_write(path, &sb);
    explicit_bzero(&sb.key, sizeof sb.key);
    if (r == 0)
        local->sb.incompat = sb.incompat;
    return r;
}

int local_allow_snapshots(struct local *local)
{
    return add_features(local, SUPERBLOCK_INCOMPAT_SNAPSHOTS);
}

/* Each of several nodes announces its encodings in its own prefix: for a store that reads all
 * nodes, all encodings are possible. */
int local_allow_encodings(struct local *local, uint64_t incompat)
{
    const uint64_t known = SUPERBLOCK_INCOMPAT_ENCODINGS | SUPERBLOCK_INCOMPAT_NODES;
    bool reads_nodes = incompat & SUPERBLOCK_INCOMPAT_NODES && local_follows(local);
    uint64_t allowed = reads_nodes ? known : incompat & SUPERBLOCK_INCOMPAT_ENCODINGS;
    return add_features(local, allowed);
}

int local_takes_changes(const struct local *local)
{
    if (!local_follows(local))
        return 0;
    cause_note("this mount follows another writer, and changes nothing");
    return -EROFS;
}
