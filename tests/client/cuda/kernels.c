// SPDX-License-Identifier: Apache-2.0
/* Modules and launches; the kernels of src/client/kernels, compiled for the host: a block of
 * threads is a loop. */
#include <stdlib.h>
#include <string.h>

#include "client/fingerprint.h"
#include "state.h"

static _Thread_local unsigned block_index;
#define KERNEL static void
#define SHARED
#define BLOCK_INDEX block_index
#define EACH_THREAD(...)                                                                           \
    for (unsigned thread = 0; thread < FINGERPRINT_THREADS; thread++) {                            \
        __VA_ARGS__                                                                                \
    }
#include "client/kernels/fingerprint.cu"

struct CUmod_st {
    unsigned alive;
};
struct CUfunc_st {
    int unused;
};

static bool kernel_find(const char *name)
{
    return strcmp(name, "fingerprint_level") == 0;
}

bool kernel_run(const struct op *op)
{
    uint64_t length = op->arguments[1];
    const char *bytes = device_bytes(op->arguments[0], length);
    const char *key = device_bytes(op->arguments[2], FINGERPRINT_KEY_WORDS * sizeof(uint64_t));
    char *sums = device_bytes(op->arguments[3], op->grid * sizeof(struct fingerprint_sum));
    if (!bytes || !key || !sums || (uint64_t)op->grid * FINGERPRINT_BLOCK < length ||
        (uint64_t)(op->grid - 1) * FINGERPRINT_BLOCK >= length)
        return false;
    for (block_index = 0; block_index < op->grid; block_index++)
        fingerprint_level((const uint8_t *)bytes, length, (const uint64_t *)(const void *)key,
                          (struct fingerprint_sum *)(void *)sums);
    return true;
}

CUresult cuModuleLoadData(CUmodule *ret, const void *image)
{
    ENTER_UNSAFE();
    if (!strstr(image, ".version ") || !strstr(image, ".target ") || !strstr(image, ".entry "))
        return DRIVER_INVALID_IMAGE;
    *ret = calloc(1, sizeof **ret);
    (*ret)->alive = ALIVE;
    return DRIVER_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    ENTER_UNSAFE();
    free(module);
    return DRIVER_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *ret, CUmodule module, const char *name)
{
    static struct CUfunc_st function;
    ENTER(true);
    if (module->alive != ALIVE || !kernel_find(name))
        return DRIVER_NOT_FOUND;
    *ret = &function;
    return DRIVER_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid, unsigned grid_y, unsigned grid_z,
                        unsigned block, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **arguments, void **extra)
{
    ENTER(true);
    struct op op = {.kind = OP_KERNEL, .grid = grid};
    if (!function || grid == 0 || grid_y != 1 || grid_z != 1 || block != 256 || block_y != 1 ||
        block_z != 1 || shared != 0 || extra)
        return DRIVER_INVALID_VALUE;
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    for (unsigned i = 0; i < 4; i++)
        memcpy(&op.arguments[i], arguments[i], sizeof op.arguments[i]);
    give(stream, &op);
    return DRIVER_SUCCESS;
}
