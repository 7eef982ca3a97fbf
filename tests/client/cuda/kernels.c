/* The kernels of src/client/kernels, compiled for the host: a block of threads is a loop. */
#include <string.h>

#include "client/fingerprint.h"
#include "state.h"

static _Thread_local unsigned block_index;
#define KERNEL static void
#define SHARED
#define BLOCK_INDEX block_index
#define EACH_THREAD(...)                                                                                                                   \
    for (unsigned thread = 0; thread < FINGERPRINT_THREADS; thread++) {                                                                    \
        __VA_ARGS__                                                                                                                        \
    }
#include "client/kernels/fingerprint.cu"

bool kernel_find(const char *name)
{
    return strcmp(name, "fingerprint_level") == 0;
}

bool kernel_run(const struct op *op)
{
    uint64_t length = op->arguments[1];
    const char *bytes = device_bytes(op->arguments[0], length);
    const char *key = device_bytes(op->arguments[2], FINGERPRINT_KEY_WORDS * sizeof(uint64_t));
    char *sums = device_bytes(op->arguments[3], op->grid * sizeof(struct fingerprint_sum));
    if (!bytes || !key || !sums || (uint64_t)op->grid * FINGERPRINT_BLOCK < length || (uint64_t)(op->grid - 1) * FINGERPRINT_BLOCK >= length)
        return false;
    for (block_index = 0; block_index < op->grid; block_index++)
        fingerprint_level((const uint8_t *)bytes, length, (const uint64_t *)(const void *)key, (struct fingerprint_sum *)(void *)sums);
    return true;
}
