// SPDX-License-Identifier: Apache-2.0
/* fx, with the kernels of every set of instructions that the machine has: all must come to what the
 * scalar ones come to. The first four bytes say how; the rest is stored bytes, and then content. */
#include "codec/fx.h"

#include "format/chunk.h"
#include "fuzz.h"

static void decode(const uint8_t *data, size_t size, size_t raw_len)
{
    uint8_t *stored = exact_copy(data, size), *raw = xcalloc(1, raw_len),
            *other = xcalloc(1, raw_len);
    int r = fx_decode(&fx_scalar, stored, size, raw, raw_len);
    check(r == 0 || r == -EBADMSG);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++)
        check(fx_decode(fx_kernels_of(level), stored, size, other, raw_len) == r &&
              (r < 0 || memcmp(raw, other, raw_len) == 0));
    free(stored);
    free(raw);
    free(other);
}

static size_t encode_by(enum cpu_level level, bool is_matrix, const struct fx_guess *guess,
                        const uint8_t *raw, size_t raw_len, uint8_t *stored, size_t limit)
{
    static uint64_t scratch[FX_MATRIX_SCRATCH_LEN / 8];
    const struct fx_kernels *kernels = fx_kernels_of(level);
    return is_matrix ? fx_encode_matrix(kernels, guess, raw, raw_len, scratch, stored, limit)
                     : fx_encode(kernels, guess, raw, raw_len, stored, limit);
}

/* The content over and over; 16 times as much for a matrix, so that it has rows. */
static void encode(bool is_matrix, const struct fx_guess *guess, const uint8_t *data, size_t size)
{
    size_t raw_len = (is_matrix ? 16 : 1) * (FX_RAW_MIN + size), limit = 2 * raw_len;
    if (size == 0 || raw_len > CHUNK_SIZE_MAX)
        return;
    uint8_t *raw = xmalloc(raw_len), *stored = xmalloc(limit), *other = xmalloc(limit);
    for (size_t i = 0; i < raw_len; i++)
        raw[i] = data[i % size];
    size_t len = encode_by(CPU_SCALAR, is_matrix, guess, raw, raw_len, stored, limit);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++)
        check(encode_by(level, is_matrix, guess, raw, raw_len, other, limit) == len &&
              memcmp(stored, other, len) == 0);
    check(len <= limit);
    check(len == 0 || (fx_decode(&fx_scalar, stored, len, other, raw_len) == 0 &&
                       memcmp(other, raw, raw_len) == 0));
    free(raw);
    free(stored);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    decode(data + 4, size - 4, 1 + (data[0] | (size_t)data[1] << 8 | (size_t)(data[2] & 15) << 16));
    struct fx_guess guess = {.width = (uint8_t)(1u << (data[0] & 3))};
    guess.phase = data[2] % guess.width;
    guess.coded[data[0] >> 2 & 1] = (uint8_t)(data[1] & ((1u << guess.width) - 1));
    encode(data[3] & 1, &guess, data + 4, size - 4);
    return 0;
}
