// SPDX-License-Identifier: Apache-2.0
/* Prefix info:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNPFX"
 *        8    4  version
 *       12    4  zero
 *       16    8  features that a reader must know
 *       24    8  features that a writer must know
 *       32    8  features that need not be known
 *       40   16  history
 *       56    8  created, ns since 1970
 *       64    8  key id
 *       72   32  chunk key
 *      104  148  zero
 *      252    4  crc32 of everything before it
 *
 * Lease:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNLSE"
 *        8    4  version
 *       12    4  zero
 *       16   16  history
 *       32   16  store id
 *       48    8  epoch
 *       56  128  holder, then zeros
 *      184   68  zero
 *      252    4  crc32 of everything before it
 *
 * Writer entry:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNWRT"
 *        8    4  version
 *       12    4  zero
 *       16   16  history
 *       32   16  store id
 *       48    8  number
 *       56    8  epoch
 *       64    4  node
 *       68  128  holder, then zeros
 *      196   56  zero
 *      252    4  crc32 of everything before it
 *
 * Ended epoch:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNEND"
 *        8    4  version
 *       12    4  why
 *       16   16  history
 *       32    8  epoch
 *       40    8  by which epoch
 *       48    8  when, ns since 1970
 *       56    4  zero
 *       60    4  crc32 of everything before it
 *
 * Magic, version, feature words and checksum stay where they are in every later version. */
#include "format/prefix.h"

#include "format/le.h"
#include "format/record.h"

static const uint8_t prefix_magic[8] = {'C', 'A', 'I', 'R', 'N', 'P', 'F', 'X'};
static const uint8_t lease_magic[8] = {'C', 'A', 'I', 'R', 'N', 'L', 'S', 'E'};
static const uint8_t writer_magic[8] = {'C', 'A', 'I', 'R', 'N', 'W', 'R', 'T'};
static const uint8_t ended_magic[8] = {'C', 'A', 'I', 'R', 'N', 'E', 'N', 'D'};

#define PREFIX_FIELDS_END 104u
#define PREFIX_CRC_AT (PREFIX_INFO_LEN - 4)
#define PREFIX_INCOMPAT_KNOWN (SUPERBLOCK_INCOMPAT_ENCODINGS | SUPERBLOCK_INCOMPAT_NODES)
#define LEASE_FIELDS_END 184u
#define LEASE_CRC_AT (LEASE_LEN - 4)
#define WRITER_FIELDS_END 200u
#define WRITER_CRC_AT (WRITER_ENTRY_LEN - 4)

/* --- prefix info ------------------------------------------------------------------------------ */

void prefix_info_encode(const struct prefix_info *info, void *buf)
{
    check(info->version > 0);
    uint8_t *p = buf;
    memset(p, 0, PREFIX_INFO_LEN);
    put_le64(p + 16, info->incompat);
    put_le64(p + 24, info->ro_compat);
    put_le64(p + 32, info->compat);
    memcpy(p + 40, info->history, sizeof info->history);
    put_le64(p + 56, (uint64_t)info->created);
    memcpy(p + 64, info->key_id, sizeof info->key_id);
    memcpy(p + 72, info->key.bytes, sizeof info->key.bytes);
    frame_put(p, PREFIX_INFO_LEN, prefix_magic, info->version);
}

/* A feature that this version need not know may use the bytes reserved here. */
static bool prefix_reserved_ok(const struct prefix_info *info, const uint8_t *p)
{
    if (info->compat || info->ro_compat)
        return true;
    return bytes_are_zero(p + 12, 4) &&
           bytes_are_zero(p + PREFIX_FIELDS_END, PREFIX_CRC_AT - PREFIX_FIELDS_END);
}

int prefix_info_decode(const void *buf, size_t len, struct prefix_info *ret_info)
{
    const uint8_t *p = buf;
    if (len < PREFIX_INFO_LEN)
        return -EUCLEAN;
    TRY(frame_check(p, PREFIX_INFO_LEN, prefix_magic, PREFIX_INFO_VERSION));
    struct prefix_info info = {.version = get_le32(p + 8),
                               .incompat = get_le64(p + 16),
                               .ro_compat = get_le64(p + 24),
                               .compat = get_le64(p + 32),
                               .created = (int64_t)get_le64(p + 56)};
    TRY(format_check_known(info.version, PREFIX_INFO_VERSION, info.incompat,
                           PREFIX_INCOMPAT_KNOWN));
    if (!prefix_reserved_ok(&info, p))
        return -EUCLEAN;
    memcpy(info.history, p + 40, sizeof info.history);
    memcpy(info.key_id, p + 64, sizeof info.key_id);
    memcpy(info.key.bytes, p + 72, sizeof info.key.bytes);
    *ret_info = info;
    return 0;
}

/* --- lease ------------------------------------------------------------------------------------ */

void lease_encode(const struct lease *lease, void *buf)
{
    check(lease->epoch <= EPOCH_MAX);
    uint8_t *p = buf;
    memset(p, 0, LEASE_LEN);
    memcpy(p + 16, lease->history, sizeof lease->history);
    memcpy(p + 32, lease->store, sizeof lease->store);
    put_le64(p + 48, lease->epoch);
    frame_put_holder(p + 56, lease->holder);
    frame_put(p, LEASE_LEN, lease_magic, LEASE_VERSION);
}

int lease_decode(const void *buf, size_t len, struct lease *ret_lease)
{
    const uint8_t *p = buf;
    if (len < LEASE_LEN)
        return -EUCLEAN;
    TRY(frame_check(p, LEASE_LEN, lease_magic, LEASE_VERSION));
    struct lease lease = {.epoch = get_le64(p + 48)};
    memcpy(lease.history, p + 16, sizeof lease.history);
    memcpy(lease.store, p + 32, sizeof lease.store);
    if (!frame_get_holder(p + 56, lease.holder) || lease.epoch > EPOCH_MAX ||
        !bytes_are_zero(p + 12, 4) ||
        !bytes_are_zero(p + LEASE_FIELDS_END, LEASE_CRC_AT - LEASE_FIELDS_END))
        return -EUCLEAN;
    *ret_lease = lease;
    return 0;
}

/* --- writer entry ----------------------------------------------------------------------------- */

static bool writer_entry_sane(const struct writer_entry *entry)
{
    return entry->epoch > 0 && entry->epoch <= entry->number && entry->number <= EPOCH_MAX &&
           entry->node <= entry->epoch;
}

void writer_entry_encode(const struct writer_entry *entry, void *buf)
{
    check(writer_entry_sane(entry));
    uint8_t *p = buf;
    memset(p, 0, WRITER_ENTRY_LEN);
    memcpy(p + 16, entry->history, sizeof entry->history);
    memcpy(p + 32, entry->store, sizeof entry->store);
    put_le64(p + 48, entry->number);
    put_le64(p + 56, entry->epoch);
    put_le32(p + 64, entry->node);
    put_le32(p + 12, entry->lease_ms);
    frame_put_holder(p + 68, entry->holder);
    put_le32(p + 196, entry->clock_error_ms);
    frame_put(p, WRITER_ENTRY_LEN, writer_magic, WRITER_ENTRY_VERSION);
}

int writer_entry_decode(const void *buf, size_t len, struct writer_entry *ret_entry)
{
    const uint8_t *p = buf;
    if (len != WRITER_ENTRY_LEN)
        return -EUCLEAN;
    TRY(frame_check(p, WRITER_ENTRY_LEN, writer_magic, WRITER_ENTRY_VERSION));
    struct writer_entry entry = {.number = get_le64(p + 48),
                                 .epoch = get_le64(p + 56),
                                 .node = get_le32(p + 64),
                                 .lease_ms = get_le32(p + 12),
                                 .clock_error_ms = get_le32(p + 196)};
    memcpy(entry.history, p + 16, sizeof entry.history);
    memcpy(entry.store, p + 32, sizeof entry.store);
    if (!frame_get_holder(p + 68, entry.holder) || !writer_entry_sane(&entry) ||
        !bytes_are_zero(p + WRITER_FIELDS_END, WRITER_CRC_AT - WRITER_FIELDS_END))
        return -EUCLEAN;
    *ret_entry = entry;
    return 0;
}

/* --- ended epoch ------------------------------------------------------------------------------ */

static bool ended_sane(const struct ended *ended)
{
    return ended->why >= ENDED_LEFT && ended->why <= ENDED_BY_HAND && ended->epoch > 0 &&
           ended->epoch <= EPOCH_MAX && ended->by <= EPOCH_MAX;
}

void ended_encode(const struct ended *ended, void *buf)
{
    check(ended_sane(ended));
    uint8_t *p = buf;
    memset(p, 0, ENDED_LEN);
    put_le32(p + 12, ended->why);
    memcpy(p + 16, ended->history, sizeof ended->history);
    put_le64(p + 32, ended->epoch);
    put_le64(p + 40, ended->by);
    put_le64(p + 48, (uint64_t)ended->time);
    frame_put(p, ENDED_LEN, ended_magic, ENDED_VERSION);
}

int ended_decode(const void *buf, size_t len, struct ended *ret_ended)
{
    const uint8_t *p = buf;
    if (len != ENDED_LEN)
        return -EUCLEAN;
    TRY(frame_check(p, ENDED_LEN, ended_magic, ENDED_VERSION));
    struct ended ended = {.why = get_le32(p + 12),
                          .epoch = get_le64(p + 32),
                          .by = get_le64(p + 40),
                          .time = (int64_t)get_le64(p + 48)};
    memcpy(ended.history, p + 16, sizeof ended.history);
    if (!ended_sane(&ended) || !bytes_are_zero(p + 56, 4))
        return -EUCLEAN;
    *ret_ended = ended;
    return 0;
}
