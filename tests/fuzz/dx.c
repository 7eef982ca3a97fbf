// SPDX-License-Identifier: Apache-2.0
/* dx, with the kernels of every set of instructions that the machine has: all must come to what the
 * scalar ones come to. The first four bytes say how; the rest is stored bytes, and then what a
 * chunk and its base are made of. */
#include "codec/dx.h"

#include "codec/dx_ans.h"
#include "format/chunk.h"
#include "fuzz.h"

/* Repeats the content; each repetition differs from the one before it, now and then. */
static uint8_t *content(const uint8_t *data, size_t size, size_t len, uint8_t change)
{
    uint8_t *ret = xmalloc(len);
    for (size_t i = 0; i < len; i++)
        ret[i] = (uint8_t)(data[i % size] + (i % (size + 1) == change ? change : 0));
    return ret;
}

static void decode(const uint8_t *data, size_t size, size_t raw_len, uint8_t change)
{
    uint8_t *stored = exact_copy(data, size), *base = content(data, size, raw_len, change),
            *raw = xcalloc(1, raw_len), *other = xcalloc(1, raw_len);
    const struct iovec all = {base, raw_len}, shorter = {base, raw_len - 1};
    int r = dx_decode(&dx_scalar, stored, size, &all, raw, raw_len);
    check(r == 0 || r == -EBADMSG);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++)
        check(dx_decode(dx_kernels_of(level), stored, size, &all, other, raw_len) == r &&
              (r < 0 || memcmp(raw, other, raw_len) == 0));
    check(dx_decode(&dx_scalar, stored, size, &shorter, raw, raw_len) == -EBADMSG);
    free(stored);
    free(base);
    free(raw);
    free(other);
}

/* In the form by exponent, which dx_encode() has for few. */
static void encode_by_exponent(unsigned phase, const struct dx_pair *pair)
{
    const uint8_t *raw = pair->src, *base = pair->base;
    const size_t raw_len = pair->raw_len;
    const struct iovec all = {(void *)(uintptr_t)base, raw_len};
    struct dx_ans_plan plan;
    size_t planned = dx_ans_plan_make(raw, base, raw_len, phase, &plan), limit = 2 * raw_len;
    uint8_t *stored = xmalloc(limit), *again = xmalloc(raw_len);
    size_t len = dx_ans_encode(&plan, raw, base, raw_len, stored, limit);
    check(len > 0 && len <= planned + planned / 50 + 64 && planned <= len + len / 50 + 64);
    uint8_t *exact = xmalloc(len);
    check(dx_ans_encode(&plan, raw, base, raw_len, exact, len) == len &&
          memcmp(exact, stored, len) == 0);
    check(dx_decode(&dx_scalar, exact, len, &all, again, raw_len) == 0 &&
          memcmp(again, raw, raw_len) == 0);
    check(dx_ans_encode(&plan, raw, base, raw_len, exact, len - 1) == 0);
    free(stored);
    free(again);
    free(exact);
}

static void encode(const struct fx_guess *guess, const uint8_t *data, size_t size, uint8_t change)
{
    size_t raw_len = FX_RAW_MIN + 3 * size, limit = 2 * raw_len;
    if (raw_len > CHUNK_SIZE_MAX)
        return;
    uint8_t *raw = content(data, size, raw_len, change), *base = content(data, size, raw_len, 0);
    uint8_t *stored = xmalloc(limit), *other = xmalloc(limit);
    const struct dx_pair pair = {raw, base, raw_len};
    const struct iovec all = {base, raw_len};
    size_t len = dx_encode(&dx_scalar, guess, &pair, stored, limit);
    uint32_t gate = dx_gate(&dx_scalar, guess, &pair);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++)
        check(dx_encode(dx_kernels_of(level), guess, &pair, other, limit) == len &&
              memcmp(stored, other, len) == 0 &&
              dx_gate(dx_kernels_of(level), guess, &pair) == gate);
    check(len <= limit);
    check(len == 0 || (dx_decode(&dx_scalar, stored, len, &all, other, raw_len) == 0 &&
                       memcmp(other, raw, raw_len) == 0));
    encode_by_exponent(guess->phase & 1, &pair);
    free(raw);
    free(base);
    free(stored);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 5)
        return 0;
    decode(data + 4, size - 4, 1 + (data[0] | (size_t)data[1] << 8 | (size_t)(data[2] & 15) << 16),
           data[3]);
    struct fx_guess guess = {.width = (uint8_t)(1u << (data[0] & 3))};
    guess.phase = data[2] % guess.width;
    encode(&guess, data + 4, size - 4, data[3]);
    return 0;
}
