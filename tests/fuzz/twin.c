// SPDX-License-Identifier: Apache-2.0
/* twin, with the kernels of every set of instructions that the machine has: all must come to what
 * the scalar ones come to. The first four bytes say how; the rest is stored bytes, and then
 * content. */
#include "codec/twin.h"

#include "fuzz.h"
#include "format/le.h"

struct images {
    struct iovec of[CHUNK_REFS_MAX + 1];
    size_t count;
};

/* Of the lengths that the stored bytes ask for, so that more than the header is read, up to what
 * `raw_len` bytes can have; `other` bytes more. */
static struct images images_of(const uint8_t *stored, size_t size, size_t raw_len, uint8_t other)
{
    struct images images = {.count = size > 0 ? stored[0] % (CHUNK_REFS_MAX + 2) : 0};
    for (size_t i = 0; i < images.count; i++) {
        size_t at = 4 + 12 * i + 4;
        size_t len = at + 4 <= size ? 2 * (size_t)get_le32(stored + at) : 0;
        len = (size_t)min_u64(len, raw_len) + other;
        images.of[i] = (struct iovec){xmalloc(len ? len : 1), len};
        for (size_t k = 0; k < len; k++)
            ((uint8_t *)images.of[i].iov_base)[k] = (uint8_t)(k * 7 + (k >> 8));
    }
    return images;
}

static void images_done(struct images *images)
{
    for (size_t i = 0; i < images->count; i++)
        free(images->of[i].iov_base);
}

static void decode(const uint8_t *data, size_t size, size_t raw_len, uint8_t other_images)
{
    uint8_t *stored = exact_copy(data, size), *raw = xcalloc(1, raw_len),
            *other = xcalloc(1, raw_len);
    struct images images = images_of(stored, size, raw_len, other_images);
    int r = twin_decode(CPU_SCALAR, stored, size, images.of, images.count, raw, raw_len);
    check(r == 0 || r == -EBADMSG);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++)
        check(twin_decode(level, stored, size, images.of, images.count, other, raw_len) == r &&
              (r < 0 || memcmp(raw, other, raw_len) == 0));
    images_done(&images);
    free(stored);
    free(raw);
    free(other);
}

/* The stored bytes are decoded with the images, and must give the content again. */
static void verify(const struct twin_part *parts, size_t count, const uint8_t *stored, size_t len,
                   const uint8_t *raw, size_t raw_len)
{
    struct iovec images[CHUNK_REFS_MAX];
    uint8_t *again = xmalloc(raw_len);
    for (size_t i = 0; i < count; i++)
        images[i] = (struct iovec){(uint8_t *)(uintptr_t)parts[i].image, 2 * parts[i].count};
    check(twin_decode(CPU_SCALAR, stored, len, images, count, again, raw_len) == 0 &&
          memcmp(again, raw, raw_len) == 0);
    free(again);
}

/* Parts follow each other, with gaps of `gap` bytes before them. */
static size_t parts_of(size_t raw_len, size_t gap, size_t elements, uint8_t **images,
                       struct twin_part parts[CHUNK_REFS_MAX])
{
    size_t count = 0, at = gap;
    while (count < CHUNK_REFS_MAX && at + 4 <= raw_len) {
        size_t n = (size_t)min_u64(elements, (raw_len - at) / 4);
        parts[count] = (struct twin_part){images[count], (uint32_t)at, (uint32_t)n};
        at += 4 * n + gap;
        count++;
    }
    return count;
}

static void encode(const uint8_t *data, size_t size, size_t gap, size_t elements)
{
    struct twin_part parts[CHUNK_REFS_MAX];
    uint8_t *images[CHUNK_REFS_MAX], *raw = exact_copy(data, size);
    for (size_t i = 0; i < CHUNK_REFS_MAX; i++)
        images[i] = xmalloc(2 * elements);
    size_t count = parts_of(size, gap, elements, images, parts), limit = 3 * size + 100;
    for (size_t i = 0; i < count; i++) /* cut, so that a half are not what they are rounded to */
        for (size_t k = 0; k < parts[i].count; k++)
            memcpy(images[i] + 2 * k, raw + parts[i].at + 4 * k + 2, 2);
    static uint8_t scratch[TWIN_SCRATCH_LEN];
    uint8_t *stored = xmalloc(limit), *other = xmalloc(limit);
    const struct twin_chunk chunk = {parts, count, raw, size};
    size_t len = count ? twin_encode(CPU_SCALAR, &chunk, scratch, stored, limit) : 0;
    for (enum cpu_level level = CPU_SCALAR + 1; count && level <= cpu_level_of_machine(); level++)
        check(twin_encode(level, &chunk, scratch, other, limit) == len &&
              memcmp(stored, other, len) == 0);
    check(len > 0 || count == 0);
    if (count)
        verify(parts, count, stored, len, raw, size);
    for (size_t i = 0; i < CHUNK_REFS_MAX; i++)
        free(images[i]);
    free(raw);
    free(stored);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 5)
        return 0;
    size_t raw_len = 1 + (data[0] | (size_t)data[1] << 8 | (size_t)(data[2] & 15) << 16);
    decode(data + 4, size - 4, raw_len, data[3] == 1);
    encode(data + 4, size - 4, data[3] % 9, 1 + (size_t)data[1] * 8);
    return 0;
}
