// SPDX-License-Identifier: Apache-2.0
#include "codec/encode.h"

#include <lz4.h>

#include "codec/dx.h"
#include "codec/fx.h"
#include "codec/twin.h"

/* A chunk longer than all samples together is tried on the samples first: float tensors do not
 * compress, and to discover that on the whole chunk would cost more than hashing it. */
#define SAMPLE_LEN 4096u
#define SAMPLES 4u
#define NEVER 1000u /* permille: no bytes saved */

/* An encoding that saves less is not worth the decoding. */
#define LZ4_WORTH 937u

const char *chunk_encoding_name(uint8_t encoding)
{
    static const char *const names[CHUNK_ENCODINGS] = {[ENCODING_RAW] = "raw",
                                                       [ENCODING_LZ4] = "lz4",
                                                       [ENCODING_FX] = "fx",
                                                       [ENCODING_TWIN] = "twin",
                                                       [ENCODING_DX] = "dx"};
    return encoding < ARRAY_LEN(names) ? names[encoding] : "unknown";
}

static size_t permille_of(size_t len, uint32_t permille)
{
    return len * permille / 1000;
}

static size_t lz4_len(struct rope *src, size_t from, size_t len)
{
    uint8_t seam[SAMPLE_LEN * SAMPLES];
    char out[LZ4_COMPRESSBOUND(SAMPLE_LEN * SAMPLES)];
    return (size_t)LZ4_compress_default((const char *)rope_bytes(src, from, len, seam), out,
                                        (int)len, sizeof out);
}

/* Returns the stored bytes for 1,000 raw ones. */
static uint32_t guess_lz4(struct rope *src)
{
    size_t raw_len = src->end, stored = 0;
    if (raw_len <= SAMPLE_LEN * SAMPLES)
        return (uint32_t)(lz4_len(src, 0, raw_len) * 1000 / raw_len);
    size_t step = (raw_len - SAMPLE_LEN) / (SAMPLES - 1);
    for (size_t i = 0; i < SAMPLES; i++)
        stored += lz4_len(src, i * step, SAMPLE_LEN);
    return (uint32_t)(stored * 1000 / (SAMPLE_LEN * SAMPLES));
}

/* Returns the stored length; 0 if it is more than `room`. */
static size_t encode_lz4(const uint8_t *src, size_t raw_len, size_t room, uint8_t *dst)
{
    int n = room > 0 ? LZ4_compress_default((const char *)src, (char *)dst, (int)raw_len, (int)room)
                     : 0;
    return n > 0 ? (size_t)n : 0;
}

/* Repetitions at larger distances, such as words in a text, are not visible to lz4 in the samples:
 * so it is tried on the whole chunk also where fx has encoded already. lz4 needs one buffer. `len`:
 * the length that is encoded in `dst`; 0: none. Returns `len`, or the length by lz4 if that is less
 * and now in `dst`. */
static size_t try_lz4(struct rope *rope, size_t len, uint8_t *dst, uint8_t *scratch)
{
    size_t raw_len = rope->end, room = permille_of(raw_len, LZ4_WORTH);
    const uint8_t *src = rope_bytes(rope, 0, raw_len, scratch);
    uint8_t *spare = scratch + CHUNK_SIZE_MAX;
    if (len == 0)
        return encode_lz4(src, raw_len, room, dst);
    size_t less = encode_lz4(src, raw_len, (size_t)min_u64(room, len - 1), spare);
    memcpy(dst, spare, less);
    return less ? less : len;
}

/* lz4 saves nothing where some bytes of each element are noise, so it is not tried on such
 * elements. */
static size_t encode_best(struct rope *src, uint8_t *dst, uint8_t *scratch, uint8_t *ret_encoding)
{
    struct fx_guess fx = {.permille = NEVER};
    size_t len = 0;
    if (src->end >= FX_RAW_MIN)
        fx_look_rope(src, &fx);
    uint8_t coded = fx.coded[0] | fx.coded[1];
    bool has_noise = coded && coded != (1u << fx.width) - 1;
    uint32_t lz4 = has_noise ? NEVER : guess_lz4(src);
    *ret_encoding = ENCODING_FX;
    if (fx_pays(&fx) && fx.permille < lz4)
        len = fx_encode_rope(fx_kernels_of(cpu_level()), &fx, src, dst,
                             permille_of(src->end, FX_WORTH));
    size_t best = lz4 <= LZ4_WORTH ? try_lz4(src, len, dst, scratch) : len;
    if (best != len)
        *ret_encoding = ENCODING_LZ4;
    return best;
}

/* Decodes as a reader will, and compares. */
static bool decodes_to(uint8_t encoding, const uint8_t *stored, size_t len, struct rope *raw,
                       uint8_t *scratch)
{
    if (encoding == ENCODING_FX)
        return fx_decodes_to(fx_kernels_of(cpu_level()), stored, len, raw);
    uint8_t *again = scratch + CHUNK_SIZE_MAX;
    return chunk_decode(encoding, stored, len, again, raw->end) == 0 &&
           memcmp(again, rope_bytes(raw, 0, raw->end, scratch), raw->end) == 0;
}

struct chunk_encoded chunk_encode(enum reduce reduce, const struct iovec *iov, size_t iov_count,
                                  size_t raw_len, void *scratch, void *dst)
{
    struct chunk_encoded as_it_is = {.encoding = ENCODING_RAW, .len = raw_len}, ret = as_it_is;
    struct rope raw;
    rope_init(&raw, iov, iov_count, 0);
    check(raw.end == raw_len && raw_len > 0 && raw_len <= CHUNK_SIZE_MAX);
    if (reduce == REDUCE_OFF)
        return as_it_is;
    ret.len = encode_best(&raw, dst, scratch, &ret.encoding);
    if (ret.len == 0)
        return as_it_is;
    as_it_is.was_wrong = !decodes_to(ret.encoding, dst, ret.len, &raw, scratch);
    return as_it_is.was_wrong ? as_it_is : ret;
}

static int decode_raw(const void *src, size_t stored_len, void *dst, size_t raw_len)
{
    if (stored_len != raw_len)
        return -EBADMSG;
    memcpy(dst, src, raw_len);
    return 0;
}

static int decode_lz4(const void *src, size_t stored_len, void *dst, size_t raw_len)
{
    int n = LZ4_decompress_safe(src, dst, (int)stored_len, (int)raw_len);
    return n >= 0 && (size_t)n == raw_len ? 0 : -EBADMSG;
}

int chunk_decode(uint8_t encoding, const void *src, size_t stored_len, void *dst, size_t raw_len)
{
    if (encoding != ENCODING_RAW && encoding != ENCODING_LZ4 && encoding != ENCODING_FX)
        return -EPROTONOSUPPORT;
    if (raw_len == 0 || raw_len > CHUNK_SIZE_MAX || stored_len == 0 || stored_len > CHUNK_SIZE_MAX)
        return -EBADMSG;
    switch (encoding) {
    case ENCODING_FX:
        return fx_decode(fx_kernels_of(cpu_level()), src, stored_len, dst, raw_len);
    case ENCODING_LZ4:
        return decode_lz4(src, stored_len, dst, raw_len);
    default:
        return decode_raw(src, stored_len, dst, raw_len);
    }
}

/* The base of dx is the whole of one chunk; the images of twin are up to CHUNK_REFS_MAX
 * stretches. */
static int decode_dense(const struct chunk_entry *entry, const void *stored,
                        const struct iovec *bases, void *dst)
{
    if (entry->encoding == ENCODING_TWIN)
        return twin_decode(cpu_level(), stored, entry->stored_len, bases, entry->ref_count, dst,
                           entry->raw_len);
    if (entry->ref_count != 1)
        return -EUCLEAN;
    return dx_decode(dx_kernels_of(cpu_level()), stored, entry->stored_len, &bases[0], dst,
                     entry->raw_len);
}

int chunk_decode_entry(const struct chunk_entry *entry, const void *stored,
                       const struct iovec *bases, void *dst)
{
    bool is_dense = entry->encoding == ENCODING_TWIN || entry->encoding == ENCODING_DX;
    if (!is_dense && entry->ref_count == 0)
        return chunk_decode(entry->encoding, stored, entry->stored_len, dst, entry->raw_len);
    if (entry->encoding >= CHUNK_ENCODINGS)
        return -EPROTONOSUPPORT;
    if (!is_dense || !bases || entry->ref_count == 0 || entry->ref_count > CHUNK_REFS_MAX ||
        entry->depth == 0 || entry->depth > CHUNK_DEPTH_MAX)
        return -EUCLEAN;
    for (unsigned i = 0; i < entry->ref_count; i++)
        if (bases[i].iov_len != entry->refs[i].length)
            return -EUCLEAN;
    if (entry->raw_len == 0 || entry->raw_len > CHUNK_SIZE_MAX || entry->stored_len == 0 ||
        entry->stored_len > CHUNK_SIZE_MAX)
        return -EBADMSG;
    return decode_dense(entry, stored, bases, dst);
}
