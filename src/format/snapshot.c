// SPDX-License-Identifier: Apache-2.0
/*   OFFSET SIZE
 *        0    8  "CAIRNSNP"
 *        8    4  version
 *       12    4  features that a reader must know; none yet
 *       16    8  when the name was given, ns since 1970
 *       24    4  length of the head
 *       28    4  zero
 *       32   64  name, then zeros
 *       96       the head, as it is in heads/NUMBER
 *                4  zero
 *                4  crc32 of everything before it */
#include "format/snapshot.h"

#include <ctype.h>
#include <stdio.h>

#include "format/le.h"

static const uint8_t snapshot_magic[8] = {'C', 'A', 'I', 'R', 'N', 'S', 'N', 'P'};

#define NAME_AT 32u
#define HEAD_AT (NAME_AT + SNAPSHOT_NAME_MAX)
#define TAIL_LEN 8u
_Static_assert(HEAD_AT + HEAD_LEN_MAX + TAIL_LEN <= SNAPSHOT_LEN_MAX, "a full head fits");

bool snapshot_name_is_sane(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t len = strlen(name);
    return len > 0 && len < SNAPSHOT_NAME_MAX && strspn(name, allowed) == len &&
           isalnum((unsigned char)name[0]);
}

void snapshot_object_name(const char *name, char buf[SNAPSHOT_OBJECT_LEN])
{
    check(snapshot_name_is_sane(name));
    (void)snprintf(buf, SNAPSHOT_OBJECT_LEN, SNAPSHOT_DIRECTORY "/%s", name);
}

size_t snapshot_encode(const struct named_snapshot *snapshot, void *buf)
{
    uint8_t *p = buf;
    check(snapshot_name_is_sane(snapshot->name));
    memset(p, 0, HEAD_AT);
    size_t head = head_encode(&snapshot->head, p + HEAD_AT);
    put_le64(p + 16, (uint64_t)snapshot->created);
    put_le32(p + 24, (uint32_t)head);
    memcpy(p + NAME_AT, snapshot->name, strlen(snapshot->name));
    memset(p + HEAD_AT + head, 0, TAIL_LEN);
    frame_put(p, HEAD_AT + head + TAIL_LEN, snapshot_magic, SNAPSHOT_VERSION);
    return HEAD_AT + head + TAIL_LEN;
}

int snapshot_decode(const void *buf, size_t len, struct named_snapshot *ret)
{
    const uint8_t *p = buf;
    if (len < HEAD_AT + TAIL_LEN || len > SNAPSHOT_LEN_MAX || len % 8 != 0)
        return -EUCLEAN;
    TRY(frame_check(p, len, snapshot_magic, SNAPSHOT_VERSION));
    TRY(format_check_known(get_le32(p + 8), SNAPSHOT_VERSION, get_le32(p + 12), 0));
    memcpy(ret->name, p + NAME_AT, sizeof ret->name);
    ret->created = (int64_t)get_le64(p + 16);
    size_t name = strnlen(ret->name, sizeof ret->name);
    if (name == sizeof ret->name || !snapshot_name_is_sane(ret->name) ||
        !bytes_are_zero(p + NAME_AT + name, SNAPSHOT_NAME_MAX - name) ||
        !bytes_are_zero(p + 28, 4) || !bytes_are_zero(p + len - TAIL_LEN, 4) ||
        get_le32(p + 24) != len - HEAD_AT - TAIL_LEN)
        return -EUCLEAN;
    return head_decode(p + HEAD_AT, len - HEAD_AT - TAIL_LEN, &ret->head);
}
