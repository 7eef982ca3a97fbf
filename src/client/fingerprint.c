// SPDX-License-Identifier: Apache-2.0
#include "client/fingerprint.h"

#include <sys/random.h>

#include "base/base.h"

int fingerprint_key_make(struct fingerprint_key *ret)
{
    char *at = (char *)ret;
    for (size_t left = sizeof *ret; left > 0;) {
        ssize_t n = getrandom(at, left, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        left -= (size_t)n;
    }
    return 0;
}

/* Sums may overwrite the bytes that they cover: block i is read before sum i is written. */
static void level_sums(const uint64_t *key, const uint8_t *bytes, uint64_t length,
                       struct fingerprint_sum *sums)
{
    for (uint64_t at = 0; at < length; at += FINGERPRINT_BLOCK)
        sums[at / FINGERPRINT_BLOCK] =
            fingerprint_part(bytes + at, min_u64(length - at, FINGERPRINT_BLOCK), key, 0, 1);
}

void fingerprint_blocks(const struct fingerprint_key *key, const void *bytes, size_t length,
                        struct fingerprint_sum *ret_sums)
{
    level_sums(key->words[0], bytes, length, ret_sums);
}

struct fingerprint fingerprint_combine(const struct fingerprint_key *key,
                                       struct fingerprint_sum *sums, uint64_t length)
{
    struct fingerprint result = {.length = length};
    uint64_t count = fingerprint_block_count(length);
    for (unsigned level = 1; count > 1; level++) {
        level_sums(key->words[level], (const uint8_t *)sums, count * sizeof *sums, sums);
        count = fingerprint_block_count(count * sizeof *sums);
    }
    if (count == 1)
        result.sum = sums[0];
    return result;
}

int fingerprint_of(const struct fingerprint_key *key, const void *bytes, size_t length,
                   struct fingerprint *ret)
{
    struct fingerprint_sum one;
    uint64_t count = fingerprint_block_count(length);
    struct fingerprint_sum *sums = count > 1 ? malloc(count * sizeof *sums) : &one;
    if (!sums)
        return -ENOMEM;
    fingerprint_blocks(key, bytes, length, sums);
    *ret = fingerprint_combine(key, sums, length);
    if (sums != &one)
        free(sums);
    return 0;
}
