// SPDX-License-Identifier: Apache-2.0
/* Encoded chunks. The first byte is the encoding, the next three the raw length, the rest is
 * stored. And as content: what is encoded decodes to the same. */
#include "codec/encode.h"

#include "fuzz.h"

static void decode(uint8_t encoding, size_t raw_len, const uint8_t *data, size_t size)
{
    uint8_t *stored = exact_copy(data, size), *raw = xmalloc(raw_len ? raw_len : 1);
    int r = chunk_decode(encoding, stored, size, raw, raw_len);
    check(r == 0 || r == (encoding <= ENCODING_FX ? -EBADMSG : -EPROTONOSUPPORT));
    free(stored);
    free(raw);
}

/* Repeated, since what is short is not compressed. */
static void encode(const uint8_t *data, size_t size, size_t repeat)
{
    size_t raw_len = size * repeat, half = raw_len / 2;
    if (raw_len == 0 || raw_len > CHUNK_SIZE_MAX)
        return;
    static uint8_t scratch[CHUNK_SCRATCH_LEN];
    uint8_t *raw = xmalloc(raw_len), *stored = xmalloc(raw_len), *again = xmalloc(raw_len);
    for (size_t i = 0; i < repeat; i++)
        memcpy(raw + i * size, data, size);
    struct iovec iov[2] = {{raw, half}, {raw + half, raw_len - half}};
    struct chunk_encoded e = chunk_encode(REDUCE_FAST, iov, 2, raw_len, scratch, stored);
    check(e.len > 0 && e.len <= raw_len && (e.encoding != ENCODING_RAW || e.len == raw_len) &&
          !e.was_wrong);
    if (e.encoding == ENCODING_RAW)
        memcpy(stored, raw, raw_len);
    check(chunk_decode(e.encoding, stored, e.len, again, raw_len) == 0 &&
          memcmp(again, raw, raw_len) == 0);
    free(raw);
    free(stored);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    size_t raw_len = data[1] | (size_t)data[2] << 8 |
                     (size_t)(data[3] % 32) << 16; /* up to twice of what is allowed */
    decode(data[0], raw_len, data + 4, size - 4);
    encode(data + 4, size - 4, 1 + data[1] % 64);
    return 0;
}
