// SPDX-License-Identifier: Apache-2.0
#include "codec/encode.h"

#include <lz4.h>

/* A chunk longer than all samples together is tried on the samples first: float tensors do not compress, and
 * finding that out on the whole chunk would cost more than hashing it. */
#define SAMPLE_LEN 4096u
#define SAMPLES 4u

/* Encodings that save less than 1/16 are not worth the decoding. */
static size_t worthwhile(size_t raw_len)
{
    return raw_len - (raw_len + 15) / 16;
}

/* `len` bytes from `at` on. */
static void copy_part(const struct iovec *iov, size_t at, uint8_t *dst, size_t len)
{
    while (at >= iov->iov_len)
        at -= iov++->iov_len;
    for (; len > 0; iov++, at = 0) {
        size_t n = (size_t)min_u64(iov->iov_len - at, len);
        memcpy(dst, (const uint8_t *)iov->iov_base + at, n);
        dst += n;
        len -= n;
    }
}

static bool sample_pays(const struct iovec *iov, size_t raw_len)
{
    if (raw_len <= SAMPLE_LEN * SAMPLES)
        return true;
    uint8_t sample[SAMPLE_LEN];
    char out[LZ4_COMPRESSBOUND(SAMPLE_LEN)];
    size_t stored = 0;
    size_t step = (raw_len - SAMPLE_LEN) / (SAMPLES - 1);
    for (size_t i = 0; i < SAMPLES; i++) {
        copy_part(iov, i * step, sample, SAMPLE_LEN);
        stored += (size_t)LZ4_compress_default((const char *)sample, out, SAMPLE_LEN, sizeof out);
    }
    return stored <= worthwhile(SAMPLE_LEN * SAMPLES);
}

size_t chunk_encode(const struct iovec *iov, size_t iov_count, size_t raw_len, void *scratch, void *dst,
                    uint8_t *ret_encoding)
{
    size_t room = worthwhile(raw_len), given = 0;
    for (size_t i = 0; i < iov_count; i++)
        given += iov[i].iov_len;
    check(given == raw_len && raw_len > 0 && raw_len <= CHUNK_SIZE_MAX);
    *ret_encoding = ENCODING_RAW;
    if (room == 0 || !sample_pays(iov, raw_len))
        return raw_len;
    const char *src = iov[0].iov_base;
    if (iov_count > 1) {
        copy_part(iov, 0, scratch, raw_len);
        src = scratch;
    }
    int n = LZ4_compress_default(src, dst, (int)raw_len, (int)room);
    if (n <= 0)
        return raw_len;
    *ret_encoding = ENCODING_LZ4;
    return (size_t)n;
}

int chunk_decode(uint8_t encoding, const void *src, size_t stored_len, void *dst, size_t raw_len)
{
    if (encoding != ENCODING_RAW && encoding != ENCODING_LZ4)
        return -EPROTONOSUPPORT;
    if (raw_len == 0 || raw_len > CHUNK_SIZE_MAX || stored_len == 0 || stored_len > CHUNK_SIZE_MAX)
        return -EBADMSG;
    if (encoding == ENCODING_RAW) {
        if (stored_len != raw_len)
            return -EBADMSG;
        memcpy(dst, src, raw_len);
        return 0;
    }
    int n = LZ4_decompress_safe(src, dst, (int)stored_len, (int)raw_len);
    return n >= 0 && (size_t)n == raw_len ? 0 : -EBADMSG;
}
