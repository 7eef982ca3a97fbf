// SPDX-License-Identifier: Apache-2.0
/* Fingerprints on a device. The sums of each span of the range are combined at once, so that the
 * memory used on the device does not grow with the range. The work in a stream is ordered, and so
 * is the use of that memory. */
#include <sys/mman.h>

#include "base/cause.h"
#include "client/driver.h"

#ifdef CAIRN_KERNELS
#include "fingerprint_ptx.h"
#endif

#define THREADS 256 /* as in kernels/fingerprint.cu */
#define SUM sizeof(struct fingerprint_sum)
#define SUMS_IN_BLOCK (FINGERPRINT_BLOCK / SUM)
#define SPAN (256 * MIB) /* a multiple of the bytes of one sum of the second level */
#define SPAN_SUMS (SPAN / FINGERPRINT_BLOCK)

/* The layout of the memory on the device. */
#define KEY_AT 0u
#define FIRST_AT align_up(sizeof(struct fingerprint_key), 256)
#define SECOND_AT (FIRST_AT + SPAN_SUMS * SUM)
#define RESULTS_AT (SECOND_AT + SUMS_IN_BLOCK * SUM)
#define MEMORY_SIZE (RESULTS_AT + DEVICE_FINGERPRINTS_MAX * SUM)
/* 256 GiB: the third level is one block. */
#define LENGTH_MAX (SUMS_IN_BLOCK * SUMS_IN_BLOCK * FINGERPRINT_BLOCK)

static int load_kernel(struct device *device)
{
#ifdef CAIRN_KERNELS
    struct device_prints *prints = &device->prints;
    TRY(DRIVER_CALL(device->driver, cuModuleLoadData, &prints->module, fingerprint_ptx));
    return DRIVER_CALL(device->driver, cuModuleGetFunction, &prints->function, prints->module,
                       "fingerprint_level");
#else
    (void)device;
    cause_note("built without kernels for CUDA devices");
    return -ENOTSUP;
#endif
}

/* If the driver refuses to register the page it still works: then the copy of a result blocks. */
static int make_results(struct device *device)
{
    struct device_prints *prints = &device->prints;
    size_t size = align_up(DEVICE_FINGERPRINTS_MAX * SUM, (size_t)sysconf(_SC_PAGESIZE)),
           registered = 0;
    void *page =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (page == MAP_FAILED)
        return -errno;
    (void)madvise(page, size, MADV_DONTFORK);
    prints->results = page;
    prints->is_registered = device_register(device->driver, page, size, size, &registered) == 0;
    return driver_alive(device->driver);
}

/* Runs once, with the context entered; a failed step is not repeated. */
static int prepare_prints(struct device *device)
{
    struct device_prints *prints = &device->prints;
    if (prints->tried && !prints->results)
        cause_note("no fingerprints on CUDA device %d: its kernel could not be loaded",
                   device->ordinal);
    if (prints->tried)
        return prints->results ? 0 : -ENOTSUP;
    prints->tried = true;
    TRY(load_kernel(device));
    TRY(DRIVER_CALL(device->driver, cuMemAlloc, &prints->memory, MEMORY_SIZE));
    return make_results(device);
}

void device_prints_done(struct device *device)
{
    struct device_prints *prints = &device->prints;
    struct device_driver *driver = device->driver;
    size_t size = align_up(DEVICE_FINGERPRINTS_MAX * SUM, (size_t)sysconf(_SC_PAGESIZE));
    CUstreamCaptureMode mode;
    if (!prints->tried)
        return;
    int r = driver_enter(driver, device->context, &mode);
    if (r == 0) {
        r = DRIVER_CALL(driver, cuStreamSynchronize, device->side);
        if (r == 0 && prints->memory)
            r = DRIVER_CALL(driver, cuMemFree, prints->memory);
        if (r == 0 && prints->module)
            r = DRIVER_CALL(driver, cuModuleUnload, prints->module);
        (void)driver_leave(driver, mode, r);
    }
    if (prints->results &&
        (!prints->is_registered || device_unregister(driver, prints->results, size) == 0))
        (void)munmap(prints->results, size);
}

static int take_slot(struct device *device, int *ret)
{
    LOCK_SCOPE(&device->locked.lock);
    if (device->locked.slots == UINT64_MAX)
        return -EAGAIN;
    *ret = __builtin_ctzll(~device->locked.slots);
    device->locked.slots |= 1ull << *ret;
    return 0;
}

/* Computes the sums of `length` bytes with the key of `level`. */
static int launch_kernel(struct device *device, unsigned level, CUdeviceptr bytes, uint64_t length,
                         CUdeviceptr sums)
{
    CUdeviceptr key =
        device->prints.memory + KEY_AT + level * sizeof(uint64_t) * FINGERPRINT_KEY_WORDS;
    void *arguments[] = {&bytes, &length, &key, &sums};
    unsigned blocks = (unsigned)fingerprint_block_count(length);
    return DRIVER_CALL(device->driver, cuLaunchKernel, device->prints.function, blocks, 1, 1,
                       THREADS, 1, 1, 0, device->side, arguments, NULL);
}

/* Computes the tree of fingerprint.h over `length` > 0 bytes; its root goes to `result`. */
static int launch_all(struct device *device, CUdeviceptr bytes, uint64_t length, CUdeviceptr result)
{
    CUdeviceptr first = device->prints.memory + FIRST_AT,
                second = device->prints.memory + SECOND_AT;
    uint64_t blocks = fingerprint_block_count(length),
             seconds = fingerprint_block_count(blocks * SUM);
    if (blocks == 1)
        return launch_kernel(device, 0, bytes, length, result);
    for (uint64_t at = 0; at < length; at += SPAN) {
        uint64_t here = min_u64(length - at, SPAN);
        CUdeviceptr to =
            seconds == 1 ? result : second + at / FINGERPRINT_BLOCK / SUMS_IN_BLOCK * SUM;
        TRY(launch_kernel(device, 0, bytes + at, here, first));
        TRY(launch_kernel(device, 1, first, fingerprint_block_count(here) * SUM, to));
    }
    return seconds > 1 ? launch_kernel(device, 2, second, seconds * SUM, result) : 0;
}

static int enqueue_key(struct device *device, const struct fingerprint_key *key)
{
    struct device_prints *prints = &device->prints;
    if (prints->key == key)
        return 0;
    TRY(DRIVER_CALL(device->driver, cuMemcpyHtoDAsync, prints->memory + KEY_AT, key, sizeof *key,
                    device->side));
    prints->key = key;
    return 0;
}

static int enqueue_tree(struct device_event *event, CUdeviceptr bytes,
                        const struct fingerprint_key *key)
{
    struct device *device = event->device;
    CUdeviceptr result = device->prints.memory + RESULTS_AT + (unsigned)event->slot * SUM;
    struct fingerprint_sum *host = &device->prints.results[event->slot];
    *host = (struct fingerprint_sum){{0}};
    if (event->length == 0)
        return 0;
    TRY(enqueue_key(device, key));
    TRY(launch_all(device, bytes, event->length, result));
    return DRIVER_CALL(device->driver, cuMemcpyDtoHAsync, host, result, SUM, device->side);
}

static int enqueue_fingerprint(struct device *device, uint64_t address, size_t bytes,
                               const struct fingerprint_key *key, struct device_event **ret)
{
    struct device_event *event;
    int slot;
    TRY(prepare_prints(device));
    TRY(take_slot(device, &slot));
    int r = device_event_take(device, &event);
    if (r < 0) {
        LOCK_SCOPE(&device->locked.lock);
        device->locked.slots &= ~(1ull << slot);
        return r;
    }
    check(event->slot < 0);
    event->slot = slot;
    event->length = bytes;
    return device_event_finish(event, enqueue_tree(event, address, key), ret);
}

int device_fingerprint(struct device *device, uint64_t address, size_t bytes,
                       const struct fingerprint_key *key, struct device_event **ret)
{
    CUstreamCaptureMode mode;
    if (bytes > LENGTH_MAX) {
        cause_note("a range of %zu bytes is too long for a fingerprint on a device", bytes);
        return -ENOTSUP;
    }
    TRY(driver_enter(device->driver, device->context, &mode));
    int r = enqueue_fingerprint(device, address, bytes, key, ret);
    (void)driver_leave(device->driver, mode, r);
    return r;
}

struct fingerprint device_event_fingerprint(const struct device_event *event)
{
    check(event->slot >= 0);
    return (struct fingerprint){.length = event->length,
                                .sum = event->device->prints.results[event->slot]};
}
