// SPDX-License-Identifier: Apache-2.0
/*   header | piece | part | piece | part | ... | piece
 *
 * Header:
 *
 *   OFFSET SIZE
 *        0    1  number of parts, 1 to 4
 *        1    3  zeros
 *        4   12  for each part: where in the chunk its first element begins (4), elements, at least
 *                1 (4), exceptions (4); in the order of the chunk, without overlap
 *
 * Piece: bytes of the chunk that no part covers, before the first part, between two parts, and
 * behind the last one. Nothing is stored for a piece without bytes, else:
 *
 *   OFFSET SIZE
 *        0    4  stored length: that of the piece if the bytes are stored as they are, or less
 *        4       the bytes; as fx if the stored length is less
 *
 * Part: its lower halves, 2 bytes an element, stored like a piece; then for each exception
 *
 *   OFFSET SIZE
 *        0    4  which element, of the part; ascending
 *        4    2  its higher half
 *
 * The higher half of an element that is no exception is the image's element, less 1, modulo 2^16,
 * if the lower half is more than 0x8000. The image of a part is the range of bytes that its
 * reference names: 2 bytes an element. */
#include "codec/twin.h"

#include "codec/fx.h"
#include "codec/lx.h"
#include "codec/twin_kernels.h"
#include "format/le.h"

#define HEADER_LEN 4u
#define PART_LEN 12u
#define PIECE_HEAD 4u
#define EXCEPTION_LEN 6u

#define SAMPLE_GROUPS 64u
#define SAMPLE_GROUP (FX_RAW_MIN / 2 / SAMPLE_GROUPS) /* elements */

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    const struct twin_kernels *kernels;
    const struct fx_kernels *fx;
    uint8_t *scratch;
    struct writer to;
};

/* Writes a piece's head; returns the place for its bytes as they are; NULL: no room left. */
static uint8_t *take_plain(struct encoder *e, size_t len)
{
    uint8_t *p = writer_take(&e->to, PIECE_HEAD + len);
    if (!p)
        return NULL;
    put_le32(p, (uint32_t)len);
    return p + PIECE_HEAD;
}

/* False: fx would take no less than the bytes as they are, or there is no room left. */
static bool put_fx(struct encoder *e, const struct fx_guess *guess, const uint8_t *bytes,
                   size_t len)
{
    size_t room = (size_t)(e->to.end - e->to.at);
    if (room < PIECE_HEAD)
        return false;
    size_t stored = fx_encode(e->fx, guess, bytes, len, e->to.at + PIECE_HEAD,
                              (size_t)min_u64(room - PIECE_HEAD, len - 1));
    if (stored == 0)
        return false;
    put_le32(e->to.at, (uint32_t)stored);
    e->to.at += PIECE_HEAD + stored;
    return true;
}

static bool put_piece(struct encoder *e, const uint8_t *bytes, size_t len)
{
    struct fx_guess guess = {0};
    if (len == 0)
        return true;
    if (len >= FX_RAW_MIN)
        fx_look(bytes, len, &guess);
    if (fx_pays(&guess) && put_fx(e, &guess, bytes, len))
        return true;
    uint8_t *p = take_plain(e, len);
    if (p)
        memcpy(p, bytes, len);
    return p != NULL;
}

/* Lower halves are usually noise, and are then written directly to their place. Those of numbers
 * that were converted from fewer bits are not noise: a sample shows this. */
static void look_at_lows(const struct encoder *e, const struct twin_part *part, const uint8_t *src,
                         struct fx_guess *ret)
{
    uint8_t sample[FX_RAW_MIN];
    uint64_t mask;
    *ret = (struct fx_guess){0};
    size_t step = part->count / SAMPLE_GROUP / SAMPLE_GROUPS;
    if (step == 0)
        return;
    for (size_t i = 0; i < SAMPLE_GROUPS; i++) {
        size_t first = (i * step + i * 2654435761u % step) * SAMPLE_GROUP;
        e->kernels->split(src + 4 * first, part->image + 2 * first, SAMPLE_GROUP,
                          sample + 2 * SAMPLE_GROUP * i, &mask);
    }
    fx_look(sample, sizeof sample, ret);
}

static bool put_exceptions(struct encoder *e, const uint8_t *src, size_t count,
                           const uint64_t *masks, uint32_t *ret_count)
{
    *ret_count = 0;
    for (size_t i = 0; i < count; i += TWIN_GROUP)
        for (uint64_t left = masks[i / TWIN_GROUP]; left; left &= left - 1) {
            size_t element = i + (size_t)__builtin_ctzll(left);
            uint8_t *p = writer_take(&e->to, EXCEPTION_LEN);
            if (!p)
                return false;
            put_le32(p, (uint32_t)element);
            memcpy(p + 4, src + 4 * element + 2, 2);
            ++*ret_count;
        }
    return true;
}

static bool put_part(struct encoder *e, const struct twin_part *part, const uint8_t *src,
                     uint32_t *ret_exceptions)
{
    uint64_t masks[CHUNK_SIZE_MAX / 4 / TWIN_GROUP];
    size_t len = 2 * (size_t)part->count;
    struct fx_guess guess;
    look_at_lows(e, part, src, &guess);
    bool pays = fx_pays(&guess);
    if (pays) {
        e->kernels->split(src, part->image, part->count, e->scratch, masks);
        pays = put_fx(e, &guess, e->scratch, len);
    }
    if (!pays) {
        uint8_t *lows = take_plain(e, len);
        if (!lows)
            return false;
        e->kernels->split(src, part->image, part->count, lows, masks);
    }
    return put_exceptions(e, src, part->count, masks, ret_exceptions);
}

size_t twin_encode(enum cpu_level level, const struct twin_chunk *chunk, void *scratch, void *dst,
                   size_t limit)
{
    const size_t part_count = chunk->part_count, raw_len = chunk->raw_len;
    check(part_count > 0 && part_count <= CHUNK_REFS_MAX && raw_len <= CHUNK_SIZE_MAX);
    struct encoder e = {.kernels = twin_kernels_of(level),
                        .fx = fx_kernels_of(level),
                        .scratch = scratch,
                        .to = {.at = dst, .end = (uint8_t *)dst + limit}};
    uint8_t *header = writer_take(&e.to, HEADER_LEN + PART_LEN * part_count);
    if (!header)
        return 0;
    put_le32(header, (uint32_t)part_count);
    const uint8_t *bytes = chunk->raw;
    size_t done = 0;
    for (size_t i = 0; i < part_count; i++) {
        const struct twin_part *part = &chunk->parts[i];
        uint8_t *entry = header + HEADER_LEN + PART_LEN * i;
        uint32_t exceptions;
        check(part->at >= done && part->count > 0 && part->at <= raw_len &&
              part->count <= (raw_len - part->at) / 4);
        if (!put_piece(&e, bytes + done, part->at - done) ||
            !put_part(&e, part, bytes + part->at, &exceptions))
            return 0;
        put_le32(entry, part->at);
        put_le32(entry + 4, part->count);
        put_le32(entry + 8, exceptions);
        done = part->at + 4 * (size_t)part->count;
    }
    return put_piece(&e, bytes + done, raw_len - done) ? (size_t)(e.to.at - (uint8_t *)dst) : 0;
}

/* --- decoding --------------------------------------------------------------------------------- */

struct reader {
    const struct twin_kernels *kernels;
    const struct fx_kernels *fx;
    struct cursor c;
};

struct stored_part {
    const uint8_t *image;
    size_t at, count, exceptions;
};

/* False: the header does not have the format, or does not fit to the caller's images. */
static bool get_header(struct reader *r, const struct iovec *images, size_t image_count,
                       size_t raw_len, struct stored_part *ret)
{
    if (image_count == 0 || image_count > CHUNK_REFS_MAX || cursor_le32(&r->c) != image_count)
        return false;
    size_t done = 0;
    for (size_t i = 0; i < image_count; i++) {
        struct stored_part *part = &ret[i];
        part->image = images[i].iov_base;
        part->at = cursor_le32(&r->c);
        part->count = cursor_le32(&r->c);
        part->exceptions = cursor_le32(&r->c);
        if (part->at < done || part->at > raw_len || part->count == 0 ||
            part->count > (raw_len - part->at) / 4 || part->exceptions > part->count ||
            images[i].iov_len != 2 * part->count)
            return false;
        done = part->at + 4 * part->count;
    }
    return !r->c.failed;
}

/* `*ret_plain`: the bytes if they are stored as they are; NULL: they were decoded into `dst`. */
static bool get_bytes(struct reader *r, size_t len, uint8_t *dst, const uint8_t **ret_plain)
{
    size_t stored = cursor_le32(&r->c);
    const uint8_t *bytes = stored <= len ? cursor_bytes(&r->c, stored) : NULL;
    *ret_plain = stored == len ? bytes : NULL;
    return bytes && (stored == len || fx_decode(r->fx, bytes, stored, dst, len) == 0);
}

static bool get_piece(struct reader *r, size_t len, uint8_t *dst)
{
    const uint8_t *plain;
    if (len == 0)
        return true;
    if (!get_bytes(r, len, dst, &plain))
        return false;
    if (plain)
        memcpy(dst, plain, len);
    return true;
}

static bool get_exceptions(struct reader *r, const struct stored_part *part, uint8_t *dst)
{
    const uint8_t *p = cursor_bytes(&r->c, EXCEPTION_LEN * part->exceptions);
    size_t next = 0; /* the least number that the next exception may have */
    for (size_t i = 0; p && i < part->exceptions; i++, p += EXCEPTION_LEN) {
        size_t element = get_le32(p);
        if (element < next || element >= part->count)
            return false;
        memcpy(dst + 4 * element + 2, p + 4, 2);
        next = element + 1;
    }
    return p != NULL;
}

/* Lower halves that are stored as fx are decoded into the second half of the place of their
 * elements. */
static bool get_part(struct reader *r, const struct stored_part *part, uint8_t *dst)
{
    const uint8_t *plain;
    uint8_t *decoded = dst + 2 * part->count;
    if (!get_bytes(r, 2 * part->count, decoded, &plain))
        return false;
    r->kernels->join(plain ? plain : decoded, part->image, part->count, dst);
    return get_exceptions(r, part, dst);
}

int twin_decode(enum cpu_level level, const void *src, size_t stored_len,
                const struct iovec *images, size_t image_count, void *dst, size_t raw_len)
{
    struct reader r = {.kernels = twin_kernels_of(level),
                       .fx = fx_kernels_of(level),
                       .c = {.at = src, .end = (const uint8_t *)src + stored_len}};
    struct stored_part parts[CHUNK_REFS_MAX];
    if (!get_header(&r, images, image_count, raw_len, parts))
        return -EBADMSG;
    uint8_t *bytes = dst;
    size_t done = 0;
    for (size_t i = 0; i < image_count; i++) {
        const struct stored_part *part = &parts[i];
        if (!get_piece(&r, part->at - done, bytes + done) || !get_part(&r, part, bytes + part->at))
            return -EBADMSG;
        done = part->at + 4 * part->count;
    }
    return get_piece(&r, raw_len - done, bytes + done) && r.c.at == r.c.end ? 0 : -EBADMSG;
}
