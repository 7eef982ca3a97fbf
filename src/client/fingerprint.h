// SPDX-License-Identifier: Apache-2.0
/* A fingerprint tells whether two ranges of the same length contain the same bytes: 256 bits with a
 * secret random key, computed identically by the host and by a kernel on the device.
 *
 * NH over pairs of 64-bit words (UMAC's, with products of 128 bits), twice, with keys that are
 * shifted by a pair (Toeplitz). A block of 64 KiB gives 32 bytes; the concatenated results of a
 * level are the bytes of the next level, which has a key of its own, until one block is left. Two
 * different blocks of one length get the same sums with a probability of at most 2^-128, whatever
 * their bytes are, as long as these do not depend on the key; two different ranges the same
 * fingerprint with at most 2^-128 per level, 2^-126 in all.
 *
 * Compiles as C for the host and as CUDA C++ for the device (kernels/fingerprint.cu). Both are
 * little-endian, so words are equal. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FINGERPRINT_CODE static __device__ __forceinline__
#else
#define FINGERPRINT_CODE static inline
#endif

__extension__ typedef unsigned __int128 fingerprint_u128;

#define FINGERPRINT_BLOCK 65536u /* bytes covered by one sum */
#define FINGERPRINT_LEVELS 4u    /* 64 KiB, 128 MiB, 256 GiB, 512 TiB */
#define FINGERPRINT_PAIR 16u
#define FINGERPRINT_KEY_WORDS (FINGERPRINT_BLOCK / 8 + 2) /* per level */

struct fingerprint_key {
    uint64_t words[FINGERPRINT_LEVELS][FINGERPRINT_KEY_WORDS];
};

/* The sum of a block, or of part of a block: sums of parts are added. Two numbers of 128 bits, the
 * low half first. */
struct fingerprint_sum {
    uint64_t word[4];
};

/* Equal if all bits are. */
struct fingerprint {
    uint64_t length;
    struct fingerprint_sum sum;
};

FINGERPRINT_CODE void fingerprint_add_sum(struct fingerprint_sum *sum,
                                          const struct fingerprint_sum *other)
{
    for (unsigned i = 0; i < 4; i += 2) {
        fingerprint_u128 whole = ((fingerprint_u128)sum->word[i + 1] << 64 | sum->word[i]);
        whole += (fingerprint_u128)other->word[i + 1] << 64 | other->word[i];
        sum->word[i] = (uint64_t)whole;
        sum->word[i + 1] = (uint64_t)(whole >> 64);
    }
}

/* Loads pair number `pair` of `bytes`; bytes behind the end count as zeros. */
FINGERPRINT_CODE void fingerprint_load(const uint8_t *bytes, size_t length, size_t pair,
                                       uint64_t ret_words[2])
{
    size_t at = pair * FINGERPRINT_PAIR;
#ifdef __CUDACC__
    if (at + FINGERPRINT_PAIR <= length && (uintptr_t)bytes % FINGERPRINT_PAIR == 0) {
        ulonglong2 both = __ldcs((const ulonglong2 *)(bytes + at));
        ret_words[0] = both.x;
        ret_words[1] = both.y;
        return;
    }
    ret_words[0] = ret_words[1] = 0;
    for (unsigned i = 0; i < 8; i++) {
        ret_words[0] |= at + i < length ? (uint64_t)bytes[at + i] << (i * 8) : 0;
        ret_words[1] |= at + 8 + i < length ? (uint64_t)bytes[at + 8 + i] << (i * 8) : 0;
    }
#else
    /* two loads without a call: the lengths are constants for the compiler */
    if (at + FINGERPRINT_PAIR <= length) {
        memcpy(&ret_words[0], bytes + at, 8);
        memcpy(&ret_words[1], bytes + at + 8, 8);
        return;
    }
    ret_words[0] = ret_words[1] = 0;
    memcpy(ret_words, bytes + at, length - at);
#endif
}

/* Computes the part of a block's sum that falls to thread `thread` of `threads`. `length` is at
 * most FINGERPRINT_BLOCK. */
FINGERPRINT_CODE struct fingerprint_sum fingerprint_part(const uint8_t *block, size_t length,
                                                         const uint64_t *key, unsigned thread,
                                                         unsigned threads)
{
    fingerprint_u128 first = 0, second = 0;
    const size_t pairs = (length + FINGERPRINT_PAIR - 1) / FINGERPRINT_PAIR;
    for (size_t pair = thread; pair < pairs; pair += threads) {
        uint64_t words[2];
        fingerprint_load(block, length, pair, words);
        const uint64_t *k = key + 2 * pair;
        first += (fingerprint_u128)(words[0] + k[0]) * (words[1] + k[1]);
        second += (fingerprint_u128)(words[0] + k[2]) * (words[1] + k[3]);
    }
    struct fingerprint_sum sum = {
        {(uint64_t)first, (uint64_t)(first >> 64), (uint64_t)second, (uint64_t)(second >> 64)}};
    return sum;
}

#ifndef __CUDACC__
/* A random key; -errno of getrandom. */
int fingerprint_key_make(struct fingerprint_key *ret);

/* The fingerprint of `length` bytes; allocates 1/2048 of that for sums: -ENOMEM. */
int fingerprint_of(const struct fingerprint_key *key, const void *bytes, size_t length,
                   struct fingerprint *ret);

/* The same in steps that several threads can compute: sums of whole blocks (the last one may be
 * shorter), then one fingerprint of all sums in order. */
void fingerprint_blocks(const struct fingerprint_key *key, const void *bytes, size_t length,
                        struct fingerprint_sum *ret_sums);
/* `sums`, one for each block of `length` bytes, are overwritten. */
struct fingerprint fingerprint_combine(const struct fingerprint_key *key,
                                       struct fingerprint_sum *sums, uint64_t length);
static inline uint64_t fingerprint_block_count(uint64_t length)
{
    return length / FINGERPRINT_BLOCK + (length % FINGERPRINT_BLOCK != 0);
}
#endif
