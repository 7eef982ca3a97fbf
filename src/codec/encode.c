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

static bool sample_pays(const uint8_t *src, size_t raw_len)
{
    if (raw_len <= SAMPLE_LEN * SAMPLES)
        return true;
    char out[LZ4_COMPRESSBOUND(SAMPLE_LEN)];
    size_t stored = 0;
    size_t step = (raw_len - SAMPLE_LEN) / (SAMPLES - 1);
    for (size_t i = 0; i < SAMPLES; i++)
        stored += (size_t)LZ4_compress_default((const char *)src + i * step, out, SAMPLE_LEN, sizeof out);
    return stored <= worthwhile(SAMPLE_LEN * SAMPLES);
}

/* 0 where lz4 does not pay. */
static size_t compress_lz4(const uint8_t *src, size_t raw_len, uint8_t *dst)
{
    size_t room = worthwhile(raw_len);
    if (room == 0 || !sample_pays(src, raw_len))
        return 0;
    int n = LZ4_compress_default((const char *)src, (char *)dst, (int)raw_len, (int)room);
    return n > 0 ? (size_t)n : 0;
}

static void gather(const struct iovec *iov, size_t iov_count, size_t raw_len, uint8_t *dst)
{
    size_t done = 0;
    for (size_t i = 0; i < iov_count; i++) {
        check(iov[i].iov_len <= raw_len - done);
        if (iov[i].iov_len)
            memcpy(dst + done, iov[i].iov_base, iov[i].iov_len);
        done += iov[i].iov_len;
    }
    check(done == raw_len);
}

size_t chunk_encode(const struct iovec *iov, size_t iov_count, size_t raw_len, void *scratch, void *dst,
                    uint8_t *ret_encoding)
{
    check(raw_len > 0 && raw_len <= CHUNK_SIZE_MAX);
    *ret_encoding = ENCODING_LZ4;
    size_t stored;
    if (iov_count == 1) {
        check(iov[0].iov_len == raw_len);
        stored = compress_lz4(iov[0].iov_base, raw_len, dst);
        if (stored > 0)
            return stored;
        memcpy(dst, iov[0].iov_base, raw_len);
    } else {
        /* Gathered where it stays if it is stored raw, the case of nearly all bytes. */
        gather(iov, iov_count, raw_len, dst);
        stored = compress_lz4(dst, raw_len, scratch);
        if (stored > 0) {
            memcpy(dst, scratch, stored);
            return stored;
        }
    }
    *ret_encoding = ENCODING_RAW;
    return raw_len;
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
