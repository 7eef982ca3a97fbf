// SPDX-License-Identifier: Apache-2.0
/* The fingerprint of fingerprint.h on a device: a block of threads sums up a block of bytes. Compiled by nvcc, and as C by the tests, for
 * which a part "for each thread" is a loop (that is why it has no variables that outlive a part but the shared ones). */
#include "client/fingerprint.h"

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void __launch_bounds__(FINGERPRINT_THREADS)
#define SHARED __shared__
#define BLOCK_INDEX blockIdx.x
/* With the barrier inside: as the body of a loop it is one statement. */
#define EACH_THREAD(...)                                                                                                                   \
    {                                                                                                                                      \
        {                                                                                                                                  \
            const unsigned thread = threadIdx.x;                                                                                           \
            __VA_ARGS__                                                                                                                    \
        }                                                                                                                                  \
        __syncthreads();                                                                                                                   \
    }
#endif

#define FINGERPRINT_THREADS 256

/* Sum i is of the i-th FINGERPRINT_BLOCK of `length` bytes; `key` is that of the level. */
KERNEL fingerprint_level(const uint8_t *bytes, uint64_t length, const uint64_t *key, struct fingerprint_sum *sums)
{
    SHARED struct fingerprint_sum parts[FINGERPRINT_THREADS];
    const uint64_t at = (uint64_t)BLOCK_INDEX * FINGERPRINT_BLOCK;
    const uint64_t left = length - at;
    const size_t here = left < FINGERPRINT_BLOCK ? left : FINGERPRINT_BLOCK;
    EACH_THREAD(parts[thread] = fingerprint_part(bytes + at, here, key, thread, FINGERPRINT_THREADS);)
#pragma unroll
    for (unsigned half = FINGERPRINT_THREADS / 2; half > 0; half /= 2)
        EACH_THREAD(if (thread < half) fingerprint_add_sum(&parts[thread], &parts[thread + half]);)
    EACH_THREAD(if (thread == 0) sums[BLOCK_INDEX] = parts[0];)
}
