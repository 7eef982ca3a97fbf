// SPDX-License-Identifier: Apache-2.0
/* Encoded chunks. The first byte is the encoding, the next three the raw length, the rest is stored. And as content: what is
 * encoded decodes to the same. */
#include "codec/encode.h"

#include "fuzz.h"

static void decode(uint8_t encoding, size_t raw_len, const uint8_t *data, size_t size)
{
    uint8_t *stored = exact_copy(data, size), *raw = xmalloc(raw_len ? raw_len : 1);
    int r = chunk_decode(encoding, stored, size, raw, raw_len);
    check(r <= 0 && (r == 0 || encoding == ENCODING_RAW || encoding == ENCODING_LZ4 || r == -EPROTONOSUPPORT));
    free(stored);
    free(raw);
}

/* Repeated, since what is short is not compressed. */
static void encode(const uint8_t *data, size_t size, size_t repeat)
{
    size_t raw_len = size * repeat, half = raw_len / 2;
    if (raw_len == 0 || raw_len > CHUNK_SIZE_MAX)
        return;
    static uint8_t scratch[CHUNK_SIZE_MAX];
    uint8_t *raw = xmalloc(raw_len), *stored = xmalloc(raw_len), *again = xmalloc(raw_len);
    for (size_t i = 0; i < repeat; i++)
        memcpy(raw + i * size, data, size);
    struct iovec iov[2] = {{raw, half}, {raw + half, raw_len - half}};
    uint8_t encoding;
    size_t len = chunk_encode(iov, 2, raw_len, scratch, stored, &encoding);
    check(len > 0 && len <= raw_len && (encoding != ENCODING_RAW || len == raw_len));
    if (encoding == ENCODING_RAW)
        memcpy(stored, raw, raw_len);
    check(chunk_decode(encoding, stored, len, again, raw_len) == 0 && memcmp(again, raw, raw_len) == 0);
    free(raw);
    free(stored);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    size_t raw_len = data[1] | (size_t)data[2] << 8 | (size_t)(data[3] % 32) << 16; /* up to twice of what is allowed */
    decode(data[0], raw_len, data + 4, size - 4);
    encode(data + 4, size - 4, 1 + data[1] % 64);
    return 0;
}
