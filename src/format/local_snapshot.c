// SPDX-License-Identifier: Apache-2.0
/*   OFFSET SIZE
 *        0    8  "CAIRNLSN"
 *        8    4  version
 *       12    4  features that a reader must know; none yet
 *       16    8  number
 *       24    8  when it was taken, ns since 1970
 *       32    8  cut
 *       40    8  files
 *       48    8  logical bytes
 *       56    8  number of packs, N
 *       64   64  name, then zeros
 *      128   8N  ids of packs, ascending
 *             4  zero
 *             4  crc32 of everything before it */
#include "format/local_snapshot.h"

#include "format/frame.h"
#include "format/le.h"
#include "format/superblock.h"

static const uint8_t local_snapshot_magic[8] = {'C', 'A', 'I', 'R', 'N', 'L', 'S', 'N'};

#define NAME_AT 64u
#define PACKS_AT (NAME_AT + SNAPSHOT_NAME_MAX)
#define TAIL_LEN 8u

void local_snapshot_encode(const struct local_snapshot *snapshot, struct bytes *ret)
{
    size_t len = PACKS_AT + snapshot->packs.count * sizeof(uint64_t) + TAIL_LEN;
    uint8_t *p = bytes_extend(ret, len);
    check(ret->count == len && snapshot->packs.count <= LOCAL_SNAPSHOT_PACKS_MAX);
    memset(p, 0, len);
    put_le64(p + 16, snapshot->number);
    put_le64(p + 24, (uint64_t)snapshot->taken);
    put_le64(p + 32, snapshot->cut);
    put_le64(p + 40, snapshot->files);
    put_le64(p + 48, snapshot->logical_bytes);
    put_le64(p + 56, snapshot->packs.count);
    memcpy(p + NAME_AT, snapshot->name, strlen(snapshot->name));
    for (size_t i = 0; i < snapshot->packs.count; i++)
        put_le64(p + PACKS_AT + i * sizeof(uint64_t), snapshot->packs.at[i]);
    frame_put(p, len, local_snapshot_magic, LOCAL_SNAPSHOT_VERSION);
}

static int decode_name(const uint8_t *p, char ret[SNAPSHOT_NAME_MAX])
{
    size_t len = strnlen((const char *)p, SNAPSHOT_NAME_MAX);
    if (len == SNAPSHOT_NAME_MAX || !bytes_are_zero(p + len, SNAPSHOT_NAME_MAX - len))
        return -EUCLEAN;
    memcpy(ret, p, SNAPSHOT_NAME_MAX);
    return len == 0 || snapshot_name_is_sane(ret) ? 0 : -EUCLEAN;
}

static int decode_packs(const uint8_t *p, size_t count, struct pack_ids *ret)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t pack = get_le64(p + i * sizeof pack);
        if (pack <= (i ? ret->at[i - 1] : 0))
            return -EUCLEAN;
        vector_add(ret, pack);
    }
    return 0;
}

int local_snapshot_decode(const void *buf, size_t len, struct local_snapshot *ret)
{
    const uint8_t *p = buf;
    *ret = (struct local_snapshot){0};
    if (len < PACKS_AT + TAIL_LEN || len % 8 != 0)
        return -EUCLEAN;
    TRY(frame_check(p, len, local_snapshot_magic, LOCAL_SNAPSHOT_VERSION));
    TRY(format_check_known(get_le32(p + 8), LOCAL_SNAPSHOT_VERSION, get_le32(p + 12), 0));
    size_t packs = (len - PACKS_AT - TAIL_LEN) / sizeof(uint64_t);
    if (get_le64(p + 56) != packs || packs > LOCAL_SNAPSHOT_PACKS_MAX ||
        !bytes_are_zero(p + len - TAIL_LEN, 4))
        return -EUCLEAN;
    ret->number = get_le64(p + 16);
    ret->taken = (int64_t)get_le64(p + 24);
    ret->cut = get_le64(p + 32);
    ret->files = get_le64(p + 40);
    ret->logical_bytes = get_le64(p + 48);
    TRY(decode_name(p + NAME_AT, ret->name));
    return decode_packs(p + PACKS_AT, packs, &ret->packs);
}
