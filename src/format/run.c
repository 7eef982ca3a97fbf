// SPDX-License-Identifier: Apache-2.0
/* Header, the first bytes of a run:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNRUN"
 *        8    4  version
 *       12    4  zero
 *       16    8  run id
 *       24   16  history
 *       40    8  base cut
 *       48    8  cut
 *       56   68  zero
 *      124    4  crc32 of everything before it
 *
 * Block:
 *
 *   OFFSET SIZE
 *        0    4  length of the rows
 *        4    4  number of rows, at least 1
 *        8    8  offset of the block, from the start of the run
 *       16       rows
 *                4  crc32 of all before it in the block, continued from that of the header
 *
 * Row:
 *
 *   OFFSET SIZE
 *        0    2  how many bytes this key has in common with the one before it, at its
 *                beginning; 0 in the first row of a block
 *        2    2  length of the rest of the key
 *        4    4  length of the value; 0xffffffff: there is none, the key is removed
 *        8       rest of the key, then the value
 *
 * Trailer, the last bytes:
 *
 *   OFFSET SIZE
 *        0    4  "REND"
 *        4    4  version
 *        8    8  run id
 *       16    8  rows
 *       24    8  length of the file
 *       32    4  crc32 of the header
 *       36   24  zero
 *       60    4  crc32 of everything before it
 *
 * Each block tells where it lies, and its checksum whose it is: one that was moved, or that comes
 * from another run, is found. Magic, version and checksum of header and trailer stay where they are
 * in every later version. */
#include "format/run.h"

#include "base/crc.h"
#include "base/vector.h"
#include "format/le.h"

static const uint8_t header_magic[8] = {'C', 'A', 'I', 'R', 'N', 'R', 'U', 'N'};
static const uint8_t trailer_magic[4] = {'R', 'E', 'N', 'D'};

#define HEADER_CRC_AT (RUN_HEADER_LEN - 4)
#define TRAILER_CRC_AT (RUN_TRAILER_LEN - 4)
#define BLOCK_HEADER_LEN 16u
#define BLOCK_CRC_LEN 4u
#define ROW_HEADER_LEN 8u
#define ROW_LEN_MIN (ROW_HEADER_LEN + 1)
#define ROW_LEN_MAX (ROW_HEADER_LEN + RUN_KEY_MAX + RUN_VALUE_MAX)
#define BLOCK_ROWS_LEN_MAX (RUN_BLOCK_ROOM - 1 + ROW_LEN_MAX)
#define VALUE_REMOVED UINT32_MAX

/* The preceding key, which the next key must follow. Empty before the first. */
struct last_key {
    uint8_t bytes[RUN_KEY_MAX];
    size_t len;
};

static size_t shared_with(const struct last_key *last, const uint8_t *key, size_t key_len)
{
    size_t most = key_len < last->len ? key_len : last->len, shared = 0;
    while (shared < most && key[shared] == last->bytes[shared])
        shared++;
    return shared;
}

/* Does the key, made of the first `shared` bytes of the last one and `rest`, come after the last
 * one? */
static bool comes_after(const struct last_key *last, size_t shared, const void *rest,
                        size_t rest_len)
{
    size_t left = last->len - shared;
    int order = memcmp(rest, last->bytes + shared, rest_len < left ? rest_len : left);
    return order > 0 || (order == 0 && rest_len > left);
}

static void last_key_set(struct last_key *last, size_t shared, const void *rest, size_t rest_len)
{
    memcpy(last->bytes + shared, rest, rest_len);
    last->len = shared + rest_len;
}

/* --- writing ---------------------------------------------------------------------------------- */

struct run_writer {
    struct run_info info; /* length: bytes written so far */
    int (*put)(const void *buf, size_t len, void *arg);
    void *arg;
    uint32_t header_crc; /* once the header is put */
    int error;           /* of `put`: nothing is written after it */
    bool finished;
    struct last_key last;
    struct bytes block; /* header, then rows; empty before its first row */
    uint32_t row_count; /* in the block */
};

static bool info_sane(const struct run_info *info)
{
    return info->id != 0 && info->base_cut <= info->cut;
}

struct run_writer *run_writer_new(const struct run_info *info,
                                  int (*put)(const void *buf, size_t len, void *arg), void *arg)
{
    check(info_sane(info));
    struct run_writer *writer = xcalloc(1, sizeof *writer);
    writer->info = *info;
    writer->info.rows = writer->info.length = 0;
    writer->put = put;
    writer->arg = arg;
    return writer;
}

void run_writer_free(struct run_writer *writer)
{
    if (!writer)
        return;
    vector_free(&writer->block);
    free(writer);
}

static int put_bytes(struct run_writer *writer, const void *buf, size_t len)
{
    if (writer->error < 0)
        return writer->error;
    int r = writer->put(buf, len, writer->arg);
    if (r < 0)
        return writer->error = r;
    writer->info.length += len;
    return 0;
}

/* Called with the first block, or with the trailer of a run without rows. */
static int put_header_once(struct run_writer *writer)
{
    if (writer->info.length > 0)
        return 0;
    uint8_t p[RUN_HEADER_LEN] = {0};
    memcpy(p, header_magic, sizeof header_magic);
    put_le32(p + 8, RUN_VERSION);
    put_le64(p + 16, writer->info.id);
    memcpy(p + 24, writer->info.history, sizeof writer->info.history);
    put_le64(p + 40, writer->info.base_cut);
    put_le64(p + 48, writer->info.cut);
    writer->header_crc = crc32_of(0, p, HEADER_CRC_AT);
    put_le32(p + HEADER_CRC_AT, writer->header_crc);
    return put_bytes(writer, p, sizeof p);
}

static int put_block(struct run_writer *writer)
{
    TRY(put_header_once(writer));
    struct bytes *block = &writer->block;
    size_t len = block->count;
    check(len > BLOCK_HEADER_LEN);
    put_le32(block->at, (uint32_t)(len - BLOCK_HEADER_LEN));
    put_le32(block->at + 4, writer->row_count);
    put_le64(block->at + 8, writer->info.length);
    uint32_t crc = crc32_of(writer->header_crc, block->at, len);
    put_le32(bytes_extend(block, BLOCK_CRC_LEN), crc);
    writer->row_count = 0;
    block->count = 0;
    return put_bytes(writer, block->at, len + BLOCK_CRC_LEN);
}

int run_writer_add(struct run_writer *writer, const struct run_row *row)
{
    check(!writer->finished);
    check(row->key_len > 0 && row->key_len <= RUN_KEY_MAX);
    check(row->value_len <= RUN_VALUE_MAX && (row->value || row->value_len == 0));
    if (writer->error < 0)
        return writer->error;
    size_t shared = shared_with(&writer->last, row->key, row->key_len);
    check(comes_after(&writer->last, shared, (const uint8_t *)row->key + shared,
                      row->key_len - shared));
    if (writer->row_count == 0) {
        shared = 0;
        (void)bytes_extend(&writer->block, BLOCK_HEADER_LEN);
    }
    const uint8_t *rest = (const uint8_t *)row->key + shared;
    size_t rest_len = row->key_len - shared;
    uint8_t *p = bytes_extend(&writer->block, ROW_HEADER_LEN + rest_len + row->value_len);
    put_le16(p, (uint16_t)shared);
    put_le16(p + 2, (uint16_t)rest_len);
    put_le32(p + 4, row->value ? (uint32_t)row->value_len : VALUE_REMOVED);
    memcpy(p + ROW_HEADER_LEN, rest, rest_len);
    if (row->value_len)
        memcpy(p + ROW_HEADER_LEN + rest_len, row->value, row->value_len);
    last_key_set(&writer->last, shared, rest, rest_len);
    writer->row_count++;
    writer->info.rows++;
    return writer->block.count >= BLOCK_HEADER_LEN + RUN_BLOCK_ROOM ? put_block(writer) : 0;
}

int run_writer_finish(struct run_writer *writer, struct run_info *ret_info)
{
    check(!writer->finished);
    TRY(writer->row_count > 0 ? put_block(writer) : put_header_once(writer));
    uint8_t p[RUN_TRAILER_LEN] = {0};
    memcpy(p, trailer_magic, sizeof trailer_magic);
    put_le32(p + 4, RUN_VERSION);
    put_le64(p + 8, writer->info.id);
    put_le64(p + 16, writer->info.rows);
    put_le64(p + 24, writer->info.length + RUN_TRAILER_LEN);
    put_le32(p + 32, writer->header_crc);
    put_le32(p + TRAILER_CRC_AT, crc32_of(0, p, TRAILER_CRC_AT));
    TRY(put_bytes(writer, p, sizeof p));
    writer->finished = true;
    ret_info->rows = writer->info.rows;
    ret_info->length = writer->info.length;
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct run_reader {
    struct run_info info;
    int (*get)(uint64_t offset, void *buf, size_t len, void *arg);
    void *arg;
    const char *types; /* first bytes of keys; NULL: all */
    uint32_t header_crc;
    int error; /* of the last call: no rows follow it */
    struct last_key last;
    uint64_t at; /* offset of the next block, or of the trailer */
    uint64_t rows_read;
    uint8_t *block; /* rows, then the checksum */
    size_t block_room;
    uint32_t rows_left; /* in the block */
    struct cursor rows;
};

/* -ENODATA is reserved for the end of the run: an error of the medium must not look as if all rows
 * had been read. */
static int get_bytes(struct run_reader *reader, uint64_t offset, void *buf, size_t len)
{
    int r = reader->get(offset, buf, len, reader->arg);
    return r == -ENODATA ? -EIO : r;
}

static int read_header(struct run_reader *reader)
{
    uint8_t p[RUN_HEADER_LEN];
    TRY(get_bytes(reader, 0, p, sizeof p));
    if (memcmp(p, header_magic, sizeof header_magic) != 0)
        return -EUCLEAN;
    reader->header_crc = get_le32(p + HEADER_CRC_AT);
    if (reader->header_crc != crc32_of(0, p, HEADER_CRC_AT))
        return -EBADMSG;
    if (get_le32(p + 8) > RUN_VERSION)
        return -EPROTONOSUPPORT;
    struct run_info info = {
        .id = get_le64(p + 16), .base_cut = get_le64(p + 40), .cut = get_le64(p + 48)};
    memcpy(info.history, p + 24, sizeof info.history);
    if (get_le32(p + 8) == 0 || !info_sane(&info) || !bytes_are_zero(p + 12, 4) ||
        !bytes_are_zero(p + 56, 68))
        return -EUCLEAN;
    reader->info = info;
    return 0;
}

/* Call after read_header(): the trailer must belong to this header. */
static int read_trailer(struct run_reader *reader, uint64_t length)
{
    uint8_t p[RUN_TRAILER_LEN];
    TRY(get_bytes(reader, length - RUN_TRAILER_LEN, p, sizeof p));
    if (memcmp(p, trailer_magic, sizeof trailer_magic) != 0)
        return -EUCLEAN;
    if (get_le32(p + TRAILER_CRC_AT) != crc32_of(0, p, TRAILER_CRC_AT))
        return -EBADMSG;
    if (get_le32(p + 4) > RUN_VERSION)
        return -EPROTONOSUPPORT;
    if (get_le32(p + 4) == 0 || !bytes_are_zero(p + 36, 24))
        return -EUCLEAN;
    if (get_le64(p + 8) != reader->info.id || get_le32(p + 32) != reader->header_crc)
        return -EUCLEAN;
    reader->info.rows = get_le64(p + 16);
    reader->info.length = get_le64(p + 24);
    if (reader->info.length != length || reader->info.rows > length / ROW_LEN_MIN)
        return -EUCLEAN;
    return 0;
}

int run_reader_new(uint64_t length, int (*get)(uint64_t offset, void *buf, size_t len, void *arg),
                   void *arg, struct run_reader **ret_reader)
{
    if (length < RUN_HEADER_LEN + RUN_TRAILER_LEN || length > INT64_MAX)
        return -EUCLEAN;
    struct run_reader *reader = xcalloc(1, sizeof *reader);
    reader->get = get;
    reader->arg = arg;
    reader->at = RUN_HEADER_LEN;
    int r = read_header(reader);
    if (r == 0)
        r = read_trailer(reader, length);
    if (r < 0) {
        run_reader_free(reader);
        return r;
    }
    *ret_reader = reader;
    return 0;
}

void run_reader_free(struct run_reader *reader)
{
    if (!reader)
        return;
    free(reader->block);
    free(reader);
}

const struct run_info *run_reader_info(const struct run_reader *reader)
{
    return &reader->info;
}

/* The length is verified only once the block is read, so it is limited here by the largest block
 * that a writer makes, and by the file. */
static bool block_sane(const struct run_reader *reader, uint32_t rows_len, uint32_t count,
                       uint64_t offset)
{
    uint64_t left = reader->info.length - RUN_TRAILER_LEN - reader->at;
    if (offset != reader->at || rows_len > BLOCK_ROWS_LEN_MAX)
        return false;
    if (BLOCK_HEADER_LEN + (uint64_t)rows_len + BLOCK_CRC_LEN > left)
        return false;
    return count > 0;
}

/* Grows to the largest block so far, and no further: a merge has many readers. The length is not
 * verified yet, so running out of memory is an error and not the end of the process. */
static int block_grow(struct run_reader *reader, size_t need)
{
    if (need <= reader->block_room)
        return 0;
    uint8_t *grown = realloc(reader->block, need);
    if (!grown)
        return -ENOMEM;
    reader->block = grown;
    reader->block_room = need;
    return 0;
}

static int read_block(struct run_reader *reader)
{
    uint8_t head[BLOCK_HEADER_LEN];
    if (reader->info.length - RUN_TRAILER_LEN - reader->at < sizeof head)
        return -EUCLEAN;
    TRY(get_bytes(reader, reader->at, head, sizeof head));
    uint32_t rows_len = get_le32(head), count = get_le32(head + 4);
    if (!block_sane(reader, rows_len, count, get_le64(head + 8)))
        return -EUCLEAN;
    size_t len = (size_t)rows_len + BLOCK_CRC_LEN;
    TRY(block_grow(reader, len));
    TRY(get_bytes(reader, reader->at + sizeof head, reader->block, len));
    uint32_t crc = crc32_of(reader->header_crc, head, sizeof head);
    if (get_le32(reader->block + rows_len) != crc32_of(crc, reader->block, rows_len))
        return -EBADMSG;
    reader->rows = (struct cursor){.at = reader->block, .end = reader->block + rows_len};
    reader->rows_left = count;
    reader->at += sizeof head + len;
    return 0;
}

static int read_run_row(struct run_reader *reader, bool first, struct run_row *ret_row)
{
    struct cursor *c = &reader->rows;
    size_t shared = cursor_le16(c), rest_len = cursor_le16(c);
    uint32_t value_len = cursor_le32(c);
    bool removed = value_len == VALUE_REMOVED;
    if (shared > (first ? 0 : reader->last.len) || shared + rest_len > RUN_KEY_MAX)
        return -EUCLEAN;
    if (!removed && value_len > RUN_VALUE_MAX)
        return -EUCLEAN;
    const void *rest = cursor_bytes(c, rest_len);
    const void *value = cursor_bytes(c, removed ? 0 : value_len);
    if (c->failed || !comes_after(&reader->last, shared, rest, rest_len))
        return -EUCLEAN;
    last_key_set(&reader->last, shared, rest, rest_len);
    *ret_row = (struct run_row){.key = reader->last.bytes,
                                .key_len = reader->last.len,
                                .value = removed ? NULL : value,
                                .value_len = removed ? 0 : value_len};
    return 0;
}

static int next_row(struct run_reader *reader, struct run_row *ret_row)
{
    bool first = reader->rows_left == 0;
    if (first) {
        if (reader->rows.at != reader->rows.end)
            return -EUCLEAN;
        if (reader->at == reader->info.length - RUN_TRAILER_LEN)
            return reader->rows_read == reader->info.rows ? -ENODATA : -EUCLEAN;
        TRY(read_block(reader));
    }
    TRY(read_run_row(reader, first, ret_row));
    reader->rows_left--;
    reader->rows_read++;
    return 0;
}

void run_reader_select(struct run_reader *reader, const char *types)
{
    reader->types = types;
}

static bool is_selected(const struct run_reader *reader, const struct run_row *row)
{
    uint8_t type = *(const uint8_t *)row->key;
    return !reader->types || (type != '\0' && strchr(reader->types, type));
}

int run_reader_next(struct run_reader *reader, struct run_row *ret_row)
{
    do {
        if (reader->error == 0)
            reader->error = next_row(reader, ret_row);
    } while (reader->error == 0 && !is_selected(reader, ret_row));
    return reader->error;
}
