// SPDX-License-Identifier: Apache-2.0
/* Segment header:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNSEG"
 *        8    4  version
 *       12    2  writer
 *       14    2  zero
 *       16   16  store id
 *       32    8  number
 *       40    8  epoch
 *       48    8  base sequence number
 *       56   32  hash of the last batch before the segment
 *       88    8  length of the file, as it was allocated (zero in version 1)
 *       96   28  zero
 *      124    4  crc32 of everything before it
 *
 * Batch header:
 *
 *   OFFSET SIZE
 *        0    4  "BTCH"
 *        4    4  version
 *        8    8  length of the records, a multiple of 8
 *       16    4  crc32 of the records
 *       20    4  number of records
 *       24    8  base sequence number
 *       32    8  cut sequence number
 *       40    8  epoch
 *       48    8  hybrid time, ns
 *       56    2  writer
 *       58    6  zero
 *       64   32  hash of the batch before: plain BLAKE3 of its header and its records
 *       96   24  tag: keyed BLAKE3 of everything before it (zero in version 1)
 *      120    4  zero
 *      124    4  crc32 of everything before it
 *
 * Magic, version and checksum stay where they are in every
 * later version. */
#include "format/segment.h"

#include "base/crc.h"
#include "format/le.h"
#include "format/record.h"

static const uint8_t segment_magic[8] = {'C', 'A', 'I', 'R', 'N', 'S', 'E', 'G'};
static const uint8_t batch_magic[4] = {'B', 'T', 'C', 'H'};

#define CRC_AT 124u
#define LENGTH_AT 88u

static uint32_t version_of(uint32_t version)
{
    return version ? version : SEGMENT_VERSION;
}

static bool segment_sane(const struct segment_header *h)
{
    return h->number > 0 && h->epoch <= EPOCH_MAX && version_of(h->version) <= SEGMENT_VERSION &&
           h->length <= INT64_MAX && (h->version != 1 || h->length == 0);
}

void segment_encode_header(const struct segment_header *h, void *buf)
{
    check(segment_sane(h));
    uint8_t *p = buf;
    memset(p, 0, SEGMENT_HEADER_LEN);
    memcpy(p, segment_magic, sizeof segment_magic);
    put_le32(p + 8, version_of(h->version));
    put_le16(p + 12, h->writer);
    memcpy(p + 16, h->store, sizeof h->store);
    put_le64(p + 32, h->number);
    put_le64(p + 40, h->epoch);
    put_le64(p + 48, h->base_seq);
    memcpy(p + 56, h->prev, sizeof h->prev);
    put_le64(p + LENGTH_AT, h->length);
    put_le32(p + CRC_AT, crc32_of(0, p, CRC_AT));
}

int segment_decode_header(const void *buf, size_t len, struct segment_header *ret_h)
{
    const uint8_t *p = buf;
    if (len < SEGMENT_HEADER_LEN || memcmp(p, segment_magic, sizeof segment_magic) != 0)
        return -EUCLEAN;
    if (get_le32(p + CRC_AT) != crc32_of(0, p, CRC_AT))
        return -EBADMSG;
    if (get_le32(p + 8) > SEGMENT_VERSION)
        return -EPROTONOSUPPORT;
    struct segment_header h = {.version = get_le32(p + 8),
                               .length = get_le64(p + LENGTH_AT),
                               .writer = get_le16(p + 12),
                               .number = get_le64(p + 32),
                               .epoch = get_le64(p + 40),
                               .base_seq = get_le64(p + 48)};
    memcpy(h.store, p + 16, sizeof h.store);
    memcpy(h.prev, p + 56, sizeof h.prev);
    if (h.version == 0 || !bytes_are_zero(p + 14, 2) || !bytes_are_zero(p + 96, 28) ||
        !segment_sane(&h))
        return -EUCLEAN;
    *ret_h = h;
    return 0;
}

/* Does not check that the payload fits the segment: the caller knows the remaining length. */
static bool batch_sane(const struct batch_header *h)
{
    if (h->payload_len > INT64_MAX || h->payload_len % 8 != 0 || h->epoch > EPOCH_MAX)
        return false;
    if (version_of(h->version) > SEGMENT_VERSION ||
        (h->version == 1 && !bytes_are_zero(h->tag, sizeof h->tag)))
        return false;
    return h->payload_len / RECORD_HEADER_LEN >= h->count &&
           (h->count > 0 || h->payload_len == 0) && h->cut_seq >= h->base_seq;
}

void batch_encode_header(const struct batch_header *h, void *buf)
{
    check(batch_sane(h));
    uint8_t *p = buf;
    memset(p, 0, BATCH_HEADER_LEN);
    memcpy(p, batch_magic, sizeof batch_magic);
    put_le32(p + 4, version_of(h->version));
    put_le64(p + 8, h->payload_len);
    put_le32(p + 16, h->payload_crc);
    put_le32(p + 20, h->count);
    put_le64(p + 24, h->base_seq);
    put_le64(p + 32, h->cut_seq);
    put_le64(p + 40, h->epoch);
    put_le64(p + 48, (uint64_t)h->time);
    put_le16(p + 56, h->writer);
    memcpy(p + 64, h->prev, sizeof h->prev);
    memcpy(p + BATCH_TAGGED_LEN, h->tag, sizeof h->tag);
    put_le32(p + CRC_AT, crc32_of(0, p, CRC_AT));
}

int batch_decode_header(const void *buf, size_t len, struct batch_header *ret_h)
{
    const uint8_t *p = buf;
    if (bytes_are_zero(p, len < BATCH_HEADER_LEN ? len : BATCH_HEADER_LEN))
        return -ENODATA;
    if (len < BATCH_HEADER_LEN || memcmp(p, batch_magic, sizeof batch_magic) != 0)
        return -EUCLEAN;
    if (get_le32(p + CRC_AT) != crc32_of(0, p, CRC_AT))
        return -EBADMSG;
    if (get_le32(p + 4) > SEGMENT_VERSION)
        return -EPROTONOSUPPORT;
    struct batch_header h = {.version = get_le32(p + 4),
                             .payload_len = get_le64(p + 8),
                             .payload_crc = get_le32(p + 16),
                             .count = get_le32(p + 20),
                             .base_seq = get_le64(p + 24),
                             .cut_seq = get_le64(p + 32),
                             .epoch = get_le64(p + 40),
                             .time = (int64_t)get_le64(p + 48),
                             .writer = get_le16(p + 56)};
    memcpy(h.prev, p + 64, sizeof h.prev);
    memcpy(h.tag, p + BATCH_TAGGED_LEN, sizeof h.tag);
    if (h.version == 0 || !bytes_are_zero(p + 58, 6) || !bytes_are_zero(p + 120, 4) ||
        !batch_sane(&h))
        return -EUCLEAN;
    *ret_h = h;
    return 0;
}
