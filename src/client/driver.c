// SPDX-License-Identifier: Apache-2.0
#include "client/driver.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "base/cause.h"

/* created once, never freed: fork and exit handlers may run at any time */
static _Atomic(struct device_driver *) the_driver;

static const struct {
    const char *name;
    CUresult code;
    int error;
    bool dead;
} driver_errors[] = {
#define DRIVER_ERROR_ROW(name, value, errno_, dead) {"CUDA_ERROR_" #name, value, errno_, dead},
    DRIVER_ERRORS(DRIVER_ERROR_ROW)};

int driver_result(struct device_driver *driver, const char *call, CUresult code)
{
    if (code == DRIVER_SUCCESS)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(driver_errors); i++) {
        if (driver_errors[i].code != code)
            continue;
        if (driver_errors[i].dead)
            atomic_store(&driver->dead, code);
        cause_note("%s: %s (%d)", call, driver_errors[i].name, code);
        return -driver_errors[i].error;
    }
    cause_note("%s: error %d of the CUDA driver", call, code);
    return -EIO;
}

void driver_give_up(struct device_driver *driver)
{
    CUresult none = DRIVER_SUCCESS;
    (void)atomic_compare_exchange_strong(&driver->dead, &none, DRIVER_UNKNOWN);
}

int driver_alive(struct device_driver *driver)
{
    if (getpid() != driver->pid) {
        cause_note("CUDA cannot be used in a child of the process that began with it");
        return -ECHILD;
    }
    int code = atomic_load(&driver->dead);
    if (code == DRIVER_SUCCESS)
        return 0;
    (void)driver_result(driver, "CUDA failed before", code);
    return -EIO;
}

static int find_calls(void *library, struct driver_calls *ret)
{
#define DRIVER_CALL_FIND(name, symbol, parameters)                                                 \
    *(void **)&ret->name = dlsym(library, #symbol);                                                \
    if (!ret->name) {                                                                              \
        cause_note("libcuda.so.1 has no %s: the driver is too old", #symbol);                      \
        return -ENODEV;                                                                            \
    }
    DRIVER_CALLS(DRIVER_CALL_FIND)
    return 0;
}

static int find_driver(struct device_driver *driver)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library) {
        cause_note("this process does not use CUDA: libcuda.so.1 is not loaded");
        return -ENODEV;
    }
    CUcontext current = NULL;
    int r = find_calls(library, &driver->calls);
    if (r == 0) /* CUDA_ERROR_NOT_INITIALIZED until cuInit was called */
        r = DRIVER_CALL(driver, cuCtxGetCurrent, &current);
    if (r < 0)
        (void)dlclose(library);
    return r;
}

int device_driver_get(struct device_driver **ret)
{
    struct device_driver *driver = atomic_load(&the_driver), *none = NULL;
    if (!driver) {
        driver = calloc(1, sizeof *driver);
        if (!driver)
            return -ENOMEM;
        driver->pid = getpid();
        int r = find_driver(driver);
        if (r < 0 && atomic_load(&driver->dead) == DRIVER_SUCCESS) {
            free(driver);
            return r;
        }
        mutex_init(&driver->locked.lock, LOCK_LEAF);
        if (!atomic_compare_exchange_strong(&the_driver, &none, driver)) {
            mutex_done(&driver->locked.lock);
            free(driver);
            driver = none;
        }
    }
    TRY(driver_alive(driver));
    *ret = driver;
    return 0;
}

int driver_enter(struct device_driver *driver, CUcontext context, CUstreamCaptureMode *ret_mode)
{
    TRY(driver_alive(driver));
    TRY(DRIVER_CALL(driver, cuCtxPushCurrent, context));
    *ret_mode = DRIVER_CAPTURE_MODE_RELAXED;
    int r = DRIVER_CALL(driver, cuThreadExchangeStreamCaptureMode, ret_mode);
    if (r < 0)
        (void)driver->calls.cuCtxPopCurrent(&context);
    return r;
}

int driver_leave(struct device_driver *driver, CUstreamCaptureMode mode, int result)
{
    CUcontext context = NULL;
    int exchanged = DRIVER_CALL(driver, cuThreadExchangeStreamCaptureMode, &mode);
    int popped = DRIVER_CALL(driver, cuCtxPopCurrent, &context);
    return result < 0 ? result : exchanged < 0 ? exchanged : popped < 0 ? popped : result;
}

int driver_retain(struct device_driver *driver, int ordinal, CUdevice *ret_device,
                  CUcontext *ret_context)
{
    unsigned flags = 0;
    int active = 0;
    TRY(driver_alive(driver));
    TRY(DRIVER_CALL(driver, cuDeviceGet, ret_device, ordinal));
    TRY(DRIVER_CALL(driver, cuDevicePrimaryCtxGetState, *ret_device, &flags, &active));
    if (active)
        return DRIVER_CALL(driver, cuDevicePrimaryCtxRetain, ret_context, *ret_device);
    cause_note("CUDA device %d has no primary context in this process", ordinal);
    return -ENODEV;
}

void driver_release(struct device_driver *driver, CUdevice device)
{
    if (driver_alive(driver) == 0)
        (void)DRIVER_CALL(driver, cuDevicePrimaryCtxRelease, device);
}
