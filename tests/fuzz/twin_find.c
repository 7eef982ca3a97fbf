// SPDX-License-Identifier: Apache-2.0
/* The search for twins: the input is a chunk, and its image, rounded and then changed at one place,
 * is what is known, under two tags, the second one of another length now. Matches must lie in both,
 * be the same with the kernels of every set of instructions, and be what the codec takes. */
#include "codec/twin_find.h"

#include "codec/twin.h"
#include "codec/twin_kernels.h"
#include "fuzz.h"

struct known {
    uint8_t *image;
    size_t len, shorter;
};

static const uint8_t *get_image(void *arg, uint64_t tag, size_t *ret_len)
{
    struct known *known = arg;
    check(tag == 1 || tag == 2);
    *ret_len = tag == 2 ? known->shorter : known->len;
    return known->shorter % 3 || tag == 1 ? known->image : NULL;
}

static void check_codec(const struct known *known, const struct twin_match *matches, size_t count,
                        const uint8_t *chunk, size_t len)
{
    static uint8_t scratch[TWIN_SCRATCH_LEN];
    struct twin_part parts[CHUNK_REFS_MAX];
    struct iovec images[CHUNK_REFS_MAX];
    size_t limit = 3 * len + 100;
    uint8_t *stored = xmalloc(limit), *again = xmalloc(len);
    for (size_t i = 0; i < count; i++) {
        size_t image_len = matches[i].tag == 2 ? known->shorter : known->len;
        check(matches[i].count >= TWIN_STRETCH_MIN &&
              matches[i].offset + 2 * (size_t)matches[i].count <= image_len);
        images[i] = (struct iovec){known->image + matches[i].offset, 2 * (size_t)matches[i].count};
        parts[i] = (struct twin_part){images[i].iov_base, matches[i].at, matches[i].count};
    }
    const struct twin_chunk twin = {parts, count, chunk, len};
    size_t stored_len = twin_encode(cpu_level(), &twin, scratch, stored, limit);
    check(stored_len > 0 &&
          twin_decode(cpu_level(), stored, stored_len, images, count, again, len) == 0 &&
          memcmp(again, chunk, len) == 0);
    free(stored);
    free(again);
}

static void find(const struct twin_index *index, struct known *known, const struct fx_guess *guess,
                 const uint8_t *chunk, size_t len)
{
    struct twin_images how = {get_image, known};
    struct twin_match matches[CHUNK_REFS_MAX], other[CHUNK_REFS_MAX];
    size_t count = twin_find(index, CPU_SCALAR, guess, chunk, len, &how, matches);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++) {
        check(twin_find(index, level, guess, chunk, len, &how, other) == count);
        for (size_t i = 0; i < count; i++)
            check(other[i].tag == matches[i].tag && other[i].offset == matches[i].offset &&
                  other[i].at == matches[i].at && other[i].count == matches[i].count);
    }
    if (count > 0)
        check_codec(known, matches, count, chunk, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 16)
        return 0;
    uint8_t phase = data[0] % 4, odd = data[0] >> 2 & 1;
    size_t len = size - 4, count = (len - phase) / 4;
    uint8_t *chunk = exact_copy(data + 4, len);
    struct known known = {.len = odd + 2 * count};
    known.image = xcalloc(1, known.len + 1);
    twin_scalar.round(chunk + phase, count, known.image + odd);
    known.image[(data[1] | (size_t)data[2] << 8) % known.len] ^= data[3];
    known.shorter = known.len - data[3] * known.len / 512;
    struct twin_index *index = twin_index_new(TWIN_INDEX_MIN);
    struct fx_guess bf16 = {.width = 2, .phase = odd}, fp32 = {.width = 4, .phase = phase};
    fp32.coded[0] = data[0] >> 3;
    twin_index_add(index, CPU_SCALAR, &bf16, known.image, known.len, 1);
    twin_index_add(index, cpu_level(), &bf16, known.image, known.len, 2);
    find(index, &known, &fp32, chunk, len);
    twin_index_free(index);
    free(known.image);
    free(chunk);
    return 0;
}
