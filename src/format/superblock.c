// SPDX-License-Identifier: Apache-2.0
/*   OFFSET SIZE
 *        0    8  "CAIRNFS" and a zero
 *        8    4  version
 *       12    2  writer slot
 *       14    2  zero
 *       16    8  features that a reader must know
 *       24    8  features that a writer must know
 *       32    8  features that need not be known
 *       40   16  store id
 *       56    8  created, ns since 1970
 *       64    8  key id
 *       72   32  chunk key
 *      104   16  history, if it is not the store's own; else zeros
 *      120    2  number of former ids
 *      122    4  number among the nodes of its prefix
 *      126    2  zero
 *      128   16  each of them, oldest first; then zeros
 *     4092    4  crc32 of everything before it
 *
 * Magic, version, feature words and checksum stay where they are in every
 * later version. */
#include "format/superblock.h"

#include <stdio.h>

#include "base/cause.h"
#include "base/crc.h"
#include "format/le.h"

static const uint8_t magic[8] = {'C', 'A', 'I', 'R', 'N', 'F', 'S', 0};

#define HISTORY_AT 104u
#define FORMER_AT 120u
#define NODE_AT 122u
#define NODE_LEN 4u
#define FORMER_IDS_AT 128u
#define CRC_AT (SUPERBLOCK_LEN - 4)
/* set by the encoder from other fields */
#define INCOMPAT_DERIVED (SUPERBLOCK_INCOMPAT_HISTORY | SUPERBLOCK_INCOMPAT_FORMER)
#define INCOMPAT_KNOWN                                                                             \
    (INCOMPAT_DERIVED | SUPERBLOCK_INCOMPAT_ENCODINGS | SUPERBLOCK_INCOMPAT_NODES |                \
     SUPERBLOCK_INCOMPAT_SNAPSHOTS)
_Static_assert(FORMER_IDS_AT + 16 * SUPERBLOCK_FORMER_MAX <= CRC_AT, "room for former ids");

/* A feature bit marks this: an older reader would take the history of another store for the store's
 * own. */
static bool history_is_other(const struct superblock *sb)
{
    return !bytes_are_zero(sb->history, sizeof sb->history) &&
           memcmp(sb->history, sb->store, sizeof sb->history) != 0;
}

bool superblock_has_id(const struct superblock *sb, const uint8_t id[16])
{
    bool has = memcmp(sb->store, id, sizeof sb->store) == 0;
    for (uint16_t i = 0; i < sb->former_count; i++)
        has = has || memcmp(sb->former[i], id, sizeof sb->former[i]) == 0;
    return has;
}

/* A feature bit marks this: an older reader would reject the journal as that of another store. */
static void encode_former(const struct superblock *sb, uint8_t *p)
{
    check(sb->former_count <= SUPERBLOCK_FORMER_MAX);
    if (sb->former_count == 0)
        return;
    put_le64(p + 16, get_le64(p + 16) | SUPERBLOCK_INCOMPAT_FORMER);
    put_le16(p + FORMER_AT, sb->former_count);
    memcpy(p + FORMER_IDS_AT, sb->former, sb->former_count * sizeof sb->former[0]);
}

static bool decode_former(struct superblock *sb, const uint8_t *p)
{
    if (!(sb->incompat & SUPERBLOCK_INCOMPAT_FORMER))
        return true;
    sb->former_count = get_le16(p + FORMER_AT);
    if (sb->former_count == 0 || sb->former_count > SUPERBLOCK_FORMER_MAX)
        return false;
    memcpy(sb->former, p + FORMER_IDS_AT, sb->former_count * sizeof sb->former[0]);
    return true;
}

void superblock_encode(const struct superblock *sb, void *buf)
{
    check(sb->version > 0);
    uint8_t *p = buf;
    memset(p, 0, SUPERBLOCK_LEN);
    memcpy(p, magic, sizeof magic);
    put_le32(p + 8, sb->version);
    put_le16(p + 12, sb->writer);
    put_le64(p + 16, sb->incompat & ~INCOMPAT_DERIVED);
    put_le64(p + 24, sb->ro_compat);
    put_le64(p + 32, sb->compat);
    memcpy(p + 40, sb->store, sizeof sb->store);
    put_le64(p + 56, (uint64_t)sb->created);
    memcpy(p + 64, sb->key_id, sizeof sb->key_id);
    memcpy(p + 72, sb->key.bytes, sizeof sb->key.bytes);
    if (history_is_other(sb)) {
        put_le64(p + 16, get_le64(p + 16) | SUPERBLOCK_INCOMPAT_HISTORY);
        memcpy(p + HISTORY_AT, sb->history, sizeof sb->history);
    }
    encode_former(sb, p);
    check(sb->incompat & SUPERBLOCK_INCOMPAT_NODES ? sb->node <= NODE_MAX : sb->node == 0);
    put_le32(p + NODE_AT, sb->node);
    put_le32(p + CRC_AT, crc32_of(0, p, CRC_AT));
}

/* The bit is set exactly if the field is not zero, and the field never repeats the store's own
 * id. */
static bool decode_history(struct superblock *sb, const uint8_t *p)
{
    memcpy(sb->history, p + HISTORY_AT, sizeof sb->history);
    if (sb->incompat & SUPERBLOCK_INCOMPAT_HISTORY)
        return history_is_other(sb);
    bool zero = bytes_are_zero(sb->history, sizeof sb->history);
    memcpy(sb->history, sb->store, sizeof sb->history);
    return zero;
}

/* A feature that this version need not know may use the bytes reserved here. */
static bool reserved_ok(const struct superblock *sb, const uint8_t *p)
{
    size_t node_len = sb->incompat & SUPERBLOCK_INCOMPAT_NODES ? NODE_LEN : 0;
    size_t end = FORMER_IDS_AT + sb->former_count * sizeof sb->former[0];
    if (sb->compat || sb->ro_compat)
        return true;
    return bytes_are_zero(p + 14, 2) && get_le16(p + FORMER_AT) == sb->former_count &&
           bytes_are_zero(p + NODE_AT + node_len, FORMER_IDS_AT - NODE_AT - node_len) &&
           bytes_are_zero(p + end, CRC_AT - end);
}

static void note_unknown_features(uint64_t unknown)
{
    char bits[64 * 4] = "";
    size_t len = 0;
    for (unsigned bit = 0; bit < 64; bit++)
        if (unknown >> bit & 1)
            len += (size_t)snprintf(bits + len, sizeof bits - len, "%s%u", len ? ", " : "", bit);
    cause_note("it needs features that this version does not know: incompat bit%s %s",
               (unknown & (unknown - 1)) ? "s" : "", bits);
}

int format_check_known(uint32_t its_version, uint32_t version, uint64_t incompat, uint64_t known)
{
    if (its_version > version) {
        cause_note("its format has version %u, and this one knows %u", its_version, version);
        return -EPROTONOSUPPORT;
    }
    if (incompat & ~known) {
        note_unknown_features(incompat & ~known);
        return -EPROTONOSUPPORT;
    }
    return 0;
}

int superblock_decode(const void *buf, size_t len, struct superblock *ret_sb)
{
    const uint8_t *p = buf;
    if (len < SUPERBLOCK_LEN || memcmp(p, magic, sizeof magic) != 0)
        return -EUCLEAN;
    if (get_le32(p + CRC_AT) != crc32_of(0, p, CRC_AT))
        return -EBADMSG;
    struct superblock sb = {.version = get_le32(p + 8),
                            .writer = get_le16(p + 12),
                            .incompat = get_le64(p + 16),
                            .ro_compat = get_le64(p + 24),
                            .compat = get_le64(p + 32),
                            .created = (int64_t)get_le64(p + 56)};
    if (sb.incompat & SUPERBLOCK_INCOMPAT_NODES)
        sb.node = get_le32(p + NODE_AT);
    TRY(format_check_known(sb.version, SUPERBLOCK_VERSION, sb.incompat, INCOMPAT_KNOWN));
    memcpy(sb.store, p + 40, sizeof sb.store);
    if (sb.version == 0 || sb.node > NODE_MAX || !decode_former(&sb, p) || !reserved_ok(&sb, p) ||
        !decode_history(&sb, p))
        return -EUCLEAN;
    memcpy(sb.key_id, p + 64, sizeof sb.key_id);
    memcpy(sb.key.bytes, p + 72, sizeof sb.key.bytes);
    *ret_sb = sb;
    return 0;
}
