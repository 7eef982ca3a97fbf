// SPDX-License-Identifier: Apache-2.0
/* device.h on a real GPU, for what the stand-in cannot show: the kernel as the driver compiles it,
 * the driver's own view of captures and of registered memory. Skipped (77) without a GPU. Prints
 * how fast fingerprints are. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "checks.h"
#include "client/cuda.h"
#include "client/device.h"

#define SKIPPED 77
#define PIECE (4 * MIB)
#define STATE (GIB + 3 * MIB + 40) /* three levels, more than one span, an odd end */

/* What a framework does, and the lane never does. X(name, symbol, parameters) */
#define FRAMEWORK_CALLS(X)                                                                         \
    X(init, cuInit, (unsigned))                                                                    \
    X(retain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                   \
    X(set_current, cuCtxSetCurrent, (CUcontext))                                                   \
    X(stream_create, cuStreamCreate, (CUstream *, unsigned))                                       \
    X(stream_wait, cuStreamSynchronize, (CUstream))                                                \
    X(capture_begin, cuStreamBeginCapture_v2, (CUstream, int))                                     \
    X(capture_end, cuStreamEndCapture, (CUstream, void **))                                        \
    X(allocate, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                            \
    X(from_host, cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                             \
    X(fill, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))

static struct {
#define MEMBER(name, symbol, parameters) CUresult(*name) parameters;
    FRAMEWORK_CALLS(MEMBER)
} cuda;

static bool has_gpu(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        (void)printf("skipped: %s\n", dlerror());
        return false;
    }
#define FIND(name, symbol, parameters) *(void **)&cuda.name = dlsym(library, #symbol);
    FRAMEWORK_CALLS(FIND)
    CUresult code = cuda.init ? cuda.init(0) : DRIVER_NOT_FOUND;
    if (code != DRIVER_SUCCESS)
        (void)printf("skipped: cuInit: CUDA error %d\n", code);
    return code == DRIVER_SUCCESS;
}

struct gpu {
    CUstream stream;
    CUdeviceptr memory;
    unsigned char *host; /* STATE bytes, the same as in `memory` */
    struct device_driver *driver;
    struct device *device;
};

static struct gpu gpu_make(void)
{
    struct gpu gpu = {0};
    CUcontext context;
    expect_ok(cuda.retain(&context, 0));
    expect_ok(cuda.set_current(context));
    expect_ok(cuda.stream_create(&gpu.stream, DRIVER_STREAM_NON_BLOCKING));
    expect_ok(cuda.allocate(&gpu.memory, STATE));
    gpu.host = malloc(STATE);
    expect(gpu.host, "no memory");
    uint64_t random = 1;
    for (size_t at = 0; at + 8 <= STATE; at += 8) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        memcpy(gpu.host + at, &random, 8);
    }
    expect_ok(cuda.from_host(gpu.memory, gpu.host, STATE));
    expect_ok(device_driver_get(&gpu.driver));
    expect_ok(device_open(gpu.driver, 0, &gpu.device));
    return gpu;
}

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void wait_for(struct device_event *event)
{
    int r;
    while ((r = device_event_done(event)) == 0) {
    }
    expect(r == 1, "%d", r);
}

static struct fingerprint fingerprint_by_kernel(const struct gpu *gpu, size_t at, size_t length,
                                                const struct fingerprint_key *key)
{
    struct device_event *event = NULL;
    expect_ok(device_fingerprint(gpu->device, gpu->memory + at, length, key, &event));
    wait_for(event);
    struct fingerprint print = device_event_fingerprint(event);
    device_event_free(event);
    return print;
}

static void fingerprints_are_those_of_the_host(const struct gpu *gpu)
{
    static const size_t lengths[] = {0,      1,       15,        16,           17,
                                     4096,   65535,   65536,     65537,        131072,
                                     300001, 9 * MIB, 257 * MIB, STATE - 4099, STATE - 31};
    struct fingerprint_key *key = malloc(sizeof *key);
    expect(key, "no memory");
    expect_ok(fingerprint_key_make(key));
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (size_t at = 0; at < 32; at += i < 11 ? 1 : 15) {
            struct fingerprint device = fingerprint_by_kernel(gpu, at, lengths[i], key), host;
            expect_ok(fingerprint_of(key, gpu->host + at, lengths[i], &host));
            expect(memcmp(&host, &device, sizeof host) == 0, "%zu bytes at %zu", lengths[i], at);
        }
    double begin = now();
    for (int i = 0; i < 20; i++)
        (void)fingerprint_by_kernel(gpu, 0, GIB, key);
    (void)printf("fingerprints: %.0f GB/s\n", 20 * (double)GIB / (now() - begin) / 1e9);
    free(key);
}

/* In the order of the streams: the copy has what the producer wrote before, not what it
 * writes behind the fence. */
static void copies_are_in_order(const struct gpu *gpu)
{
    size_t bytes = 256 * MIB, registered = 0;
    char *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    expect(ring != MAP_FAILED, "no memory");
    expect_ok(device_register(gpu->driver, ring, bytes, PIECE, &registered));
    expect(registered == bytes, "%zu", registered);
    for (unsigned char round = 1; round <= 50; round++) {
        struct device_event *events[64];
        expect_ok(cuda.fill(gpu->memory, round, bytes, gpu->stream));
        expect_ok(device_after_producer(gpu->device, (uintptr_t)gpu->stream));
        for (size_t i = 0; i < 64; i++)
            expect_ok(device_copy(gpu->device, ring + i * PIECE, gpu->memory + i * PIECE, PIECE,
                                  &events[i]));
        expect_ok(device_order_behind(gpu->device, (uintptr_t)gpu->stream));
        expect_ok(cuda.fill(gpu->memory, 0, bytes, gpu->stream));
        for (size_t i = 0; i < 64; i++) {
            wait_for(events[i]);
            device_event_free(events[i]);
        }
        for (size_t at = 0; at < bytes; at += 4096 - 64)
            expect(ring[at] == (char)round, "round %u, byte %zu: %d", round, at, ring[at]);
    }
    expect_ok(device_unregister(gpu->driver, ring, bytes));
    expect_ok(munmap(ring, bytes));
}

/* -EBUSY, and the capture is whole; a capture elsewhere forbids nothing. */
static void captures_stay_whole(const struct gpu *gpu)
{
    for (int mode = 0; mode < 3; mode++) { /* global, thread-local, relaxed */
        CUstream other;
        void *graph = NULL;
        struct device_event *event = NULL;
        char *page = malloc(PIECE);
        expect(page, "no memory");
        expect_ok(cuda.stream_create(&other, DRIVER_STREAM_NON_BLOCKING));
        expect_ok(cuda.capture_begin(gpu->stream, mode));
        expect_ok(cuda.fill(gpu->memory, 1, PIECE, gpu->stream));
        expect(device_after_producer(gpu->device, (uintptr_t)gpu->stream) == -EBUSY, "mode %d",
               mode);
        expect(device_order_behind(gpu->device, (uintptr_t)gpu->stream) == -EBUSY, "mode %d", mode);
        expect_ok(device_after_producer(gpu->device, (uintptr_t)other));
        expect_ok(device_copy(gpu->device, page, gpu->memory, PIECE, &event));
        wait_for(event);
        device_event_free(event);
        int r = device_after_producer(gpu->device, 0);
        expect(r == 0 || r == -EBUSY, "%d: the default stream beside a capture", r);
        expect(cuda.capture_end(gpu->stream, &graph) == DRIVER_SUCCESS && graph, "mode %d", mode);
        free(page);
    }
    expect_ok(device_after_producer(gpu->device, (uintptr_t)gpu->stream));
}

/* An address of no device is an error of that copy alone. */
static void a_wrong_address_ends_nothing(const struct gpu *gpu)
{
    struct device_event *event = NULL;
    char *page = malloc(PIECE);
    expect(page, "no memory");
    int r = device_copy(gpu->device, page, 0x1000, PIECE, &event);
    expect(r < 0 && cause_text()[0], "%d", r);
    expect_ok(device_copy(gpu->device, page, gpu->memory, PIECE, &event));
    wait_for(event);
    device_event_free(event);
    free(page);
}

int main(void)
{
    if (!has_gpu())
        return SKIPPED;
    struct gpu gpu = gpu_make();
    fingerprints_are_those_of_the_host(&gpu);
    copies_are_in_order(&gpu);
    captures_stay_whole(&gpu);
    a_wrong_address_ends_nothing(&gpu);
    device_close(gpu.device);
    (void)printf("a GPU: all right\n");
    return 0;
}
