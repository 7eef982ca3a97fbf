// SPDX-License-Identifier: Apache-2.0
/* Registers host memory for copies by the driver. The driver holds an internal lock during a
 * registration, about 0.1 s per GB, so it is done in chunks, with a pause after each. */
#include <time.h>

#include "base/cause.h"
#include "client/driver.h"

#define CHUNK_MAX GIB
#define PAUSE_NS 2000000 /* for threads waiting for the driver's lock */

/* A registered chunk of memory. The context is retained as long as it is registered. */
struct registration {
    struct registration *next;
    char *memory;
    size_t bytes;
    CUdevice device;
    CUcontext context;
};

static int retain_any(struct device_driver *driver, CUdevice *ret_device, CUcontext *ret_context)
{
    int count = 0;
    TRY(driver_alive(driver));
    TRY(DRIVER_CALL(driver, cuDeviceGetCount, &count));
    for (int i = 0; i < count; i++) {
        int r = driver_retain(driver, i, ret_device, ret_context);
        if (r != -ENODEV)
            return r;
    }
    cause_note("no CUDA device has a primary context in this process");
    return -ENODEV;
}

static int register_chunk(struct device_driver *driver, char *memory, size_t bytes)
{
    _cleanup_free_ struct registration *chunk = calloc(1, sizeof *chunk);
    CUstreamCaptureMode mode;
    if (!chunk)
        return -ENOMEM;
    *chunk = (struct registration){.memory = memory, .bytes = bytes};
    TRY(retain_any(driver, &chunk->device, &chunk->context));
    int r = driver_enter(driver, chunk->context, &mode);
    if (r == 0) {
        r = DRIVER_CALL(driver, cuMemHostRegister, memory, bytes, DRIVER_MEMHOSTREGISTER_PORTABLE);
        (void)driver_leave(driver, mode, r);
    }
    if (r < 0) {
        driver_release(driver, chunk->device);
        return r;
    }
    LOCK_SCOPE(&driver->locked.lock);
    chunk->next = driver->locked.registrations;
    driver->locked.registrations = chunk;
    chunk = NULL;
    return 0;
}

int device_register(struct device_driver *driver, void *memory, size_t bytes, size_t piece,
                    size_t *ret_bytes)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    size_t at = 0, chunk = min_u64(bytes, align_down(CHUNK_MAX, piece));
    int r = 0;
    while (at < bytes) {
        size_t length = min_u64(chunk, bytes - at);
        r = register_chunk(driver, (char *)memory + at, length);
        if (r == -ENOMEM && chunk >= 2 * piece) {
            chunk = align_down(chunk / 2, piece);
            continue;
        }
        if (r < 0)
            break;
        at += length;
        if (at < bytes)
            (void)nanosleep(&pause, NULL);
    }
    *ret_bytes = at;
    return at > 0 ? 0 : r;
}

/* Removes a chunk of that range from the list; NULL if none is left. */
static struct registration *take_registered_chunk(struct device_driver *driver, const char *memory,
                                                  size_t bytes)
{
    LOCK_SCOPE(&driver->locked.lock);
    for (struct registration **at = &driver->locked.registrations; *at; at = &(*at)->next) {
        struct registration *chunk = *at;
        if (chunk->memory < memory || chunk->memory >= memory + bytes)
            continue;
        *at = chunk->next;
        return chunk;
    }
    return NULL;
}

static int unregister_chunk(struct device_driver *driver, const struct registration *chunk)
{
    CUstreamCaptureMode mode;
    TRY(driver_enter(driver, chunk->context, &mode));
    int r = DRIVER_CALL(driver, cuMemHostUnregister, chunk->memory);
    (void)driver_leave(driver, mode, r);
    driver_release(driver, chunk->device);
    return r;
}

/* If the driver fails to unregister the memory, it stays mapped until the process ends, so that its
 * address is not reused. */
int device_unregister(struct device_driver *driver, void *memory, size_t bytes)
{
    int result = driver_alive(driver);
    struct registration *chunk;
    while (result != -ECHILD && (chunk = take_registered_chunk(driver, memory, bytes)) != NULL) {
        int r = unregister_chunk(driver, chunk);
        if (result == 0)
            result = r;
        free(chunk);
    }
    return result;
}
