// SPDX-License-Identifier: Apache-2.0
/* device.h against the stand-in: order, capture, registration, fingerprints, errors that stay,
 * fork. */
#include "trial.h"

#include <stdatomic.h>

#define PIECE (64 * KIB)
#define STATE (512 * KIB)

struct lane { /* as little of one as will do */
    struct device_driver *driver;
    struct device *device;
    char *ring;
    struct device_event *events[STATE / PIECE];
};

static struct lane lane_make(int ordinal)
{
    struct lane lane = {.ring = host_memory(STATE)};
    size_t registered = 0;
    expect_ok(device_driver_get(&lane.driver));
    expect_ok(device_open(lane.driver, ordinal, &lane.device));
    expect_ok(device_register(lane.driver, lane.ring, STATE, PIECE, &registered));
    expect(registered == STATE, "%zu", registered);
    return lane;
}

static void lane_copy(struct lane *lane, const struct gpu *gpu)
{
    for (size_t i = 0; i < STATE / PIECE; i++)
        expect_ok(device_copy(lane->device, lane->ring + i * PIECE, gpu->memory + i * PIECE, PIECE,
                              &lane->events[i]));
}

static void lane_done(struct lane *lane)
{
    device_close(lane->device);
    expect_ok(device_unregister(lane->driver, lane->ring, STATE));
    expect_ok(munmap(lane->ring, STATE));
}

static void finish(void)
{
    standin_end();
    expect_no_violation();
}

static void finish_with(struct lane *lane, const struct gpu *gpu)
{
    lane_done(lane);
    gpu_done(gpu);
    finish();
}

static void nothing_is_begun(void)
{
    struct device_driver *driver = NULL;
    struct device *device = NULL;
    char *memory = host_memory(PAGE);
    size_t registered = 1;
    expect(device_driver_get(&driver) == -ENODEV && strstr(cause_text(), "NOT_INITIALIZED"),
           "before cuInit");
    expect(standin_calls("cuInit") == 0, "cuInit");
    expect_ok(cuInit(0));
    expect_ok(device_driver_get(&driver));
    expect(device_open(driver, 0, &device) == -ENODEV && strstr(cause_text(), "no primary context"),
           "without a context");
    expect(device_open(driver, 99, &device) == -ENODEV, "no such device");
    expect(device_register(driver, memory, PAGE, PAGE, &registered) == -ENODEV && registered == 0,
           "without a context");
    struct gpu gpu = gpu_make(2, PAGE);
    expect(device_open(driver, 0, &device) == -ENODEV, "a context of device 0 was made");
    expect_ok(device_open(driver, 2, &device));
    device_close(device);
    gpu_done(&gpu);
    expect(standin_calls("cuInit") == 2, "cuInit");
    finish();
}

/* Twenty steps: each copy has the number of its step, and no other. */
static size_t train(bool wait_for_producer, bool fence)
{
    size_t torn = 0;
    struct gpu gpu = gpu_make(0, STATE);
    struct lane lane = lane_make(0);
    gpu_fill(&gpu, 0);
    for (unsigned step = 1; step <= 20; step++) {
        gpu_fill(&gpu, step);
        if (wait_for_producer)
            expect_ok(device_after_producer(lane.device, (uintptr_t)gpu.stream));
        lane_copy(&lane, &gpu);
        if (fence)
            expect_ok(device_order_behind(lane.device, (uintptr_t)gpu.stream));
        gpu_fill(&gpu, 1000 + step);
        expect_ok(wait_and_free(lane.events, STATE / PIECE));
        torn += words_that_differ(lane.ring, STATE, step) > 0;
    }
    expect_ok(cuStreamSynchronize(gpu.stream));
    finish_with(&lane, &gpu);
    return torn;
}

static void copies_are_ordered(void)
{
    standin_pace(1, 60, 0);
    expect(train(true, true) == 0, "torn");
}

/* The stand-in would show it. Without these races, that is: not under the thread sanitizer, which
 * tells them itself. */
static void what_is_not_ordered_is_seen(void)
{
#ifndef __SANITIZE_THREAD__
    standin_pace(2, 60, 0);
    expect(train(false, true) > 0, "no wait for the producer, and no torn copy");
    expect(train(true, false) > 0, "no fence, and no torn copy");
#endif
}

static void devices_are_apart(void)
{
    struct gpu gpus[3];
    struct lane lanes[3];
    standin_pace(3, 60, 0);
    for (int i = 0; i < 3; i++) {
        gpus[i] = gpu_make(i, STATE);
        lanes[i] = lane_make(i);
    }
    for (unsigned step = 1; step < 8; step++) {
        for (unsigned i = 0; i < 3; i++) {
            gpu_fill(&gpus[i], step * 10 + i);
            expect_ok(device_after_producer(lanes[i].device, (uintptr_t)gpus[i].stream));
            lane_copy(&lanes[i], &gpus[i]);
            expect_ok(device_order_behind(lanes[i].device, (uintptr_t)gpus[i].stream));
            gpu_fill(&gpus[i], 0);
        }
        for (unsigned i = 3; i-- > 0;) {
            expect_ok(wait_and_free(lanes[i].events, STATE / PIECE));
            expect(words_that_differ(lanes[i].ring, STATE, step * 10 + i) == 0,
                   "device %u, step %u", i, step);
        }
    }
    expect(device_order_behind(lanes[0].device, (uintptr_t)gpus[1].stream) == -EINVAL,
           "a stream of another device");
    expect(device_after_producer(lanes[0].device, (uintptr_t)gpus[1].stream) == -EINVAL,
           "a stream of another device");
    for (int i = 0; i < 3; i++) {
        lane_done(&lanes[i]);
        gpu_done(&gpus[i]);
    }
    finish();
}

static void other_streams_and_the_default_ones(void)
{
    struct gpu gpu = gpu_make(0, STATE);
    struct lane lane = lane_make(0);
    for (uintptr_t which = 0; which <= 2; which++) {
        expect_ok(cuMemsetD32Async(gpu.memory, 7 + (unsigned)which, STATE / 4, (CUstream)which));
        expect_ok(device_after_producer(lane.device, which));
        lane_copy(&lane, &gpu);
        expect_ok(device_order_behind(lane.device, which));
        expect_ok(wait_and_free(lane.events, STATE / PIECE));
        expect(words_that_differ(lane.ring, STATE, 7 + (unsigned)which) == 0, "stream %zu",
               (size_t)which);
    }
    CUcontext current = NULL;
    expect(cuCtxGetCurrent(&current) == 0 && current == gpu.context,
           "the caller's context is no longer current");
    finish_with(&lane, &gpu);
}

static void captures_are_refused_and_not_broken(void)
{
    CUgraph graph = NULL;
    struct gpu gpu = gpu_make(0, STATE);
    struct lane lane = lane_make(0);
    size_t registered = 0;
    gpu_fill(&gpu, 5);
    expect_ok(device_after_producer(lane.device, (uintptr_t)gpu.stream));
    lane_copy(&lane, &gpu);
    expect_ok(cuStreamBeginCapture_v2(gpu.stream, 0));
    expect(device_after_producer(lane.device, (uintptr_t)gpu.stream) == -EBUSY &&
               strstr(cause_text(), "captured"),
           "during a capture");
    expect(device_order_behind(lane.device, (uintptr_t)gpu.stream) == -EBUSY, "during a capture");
    /* What another stream captures, with the mode that forbids most, is not for the lane to break;
     * and it goes on. */
    expect_ok(wait_and_free(lane.events, STATE / PIECE));
    char *more = host_memory(PAGE);
    expect_ok(device_register(lane.driver, more, PAGE, PAGE, &registered));
    expect_ok(device_unregister(lane.driver, more, PAGE));
    struct device_event *event = NULL;
    expect_ok(device_copy(lane.device, lane.ring, gpu.memory, PIECE, &event));
    expect_ok(wait_and_free(&event, 1));
    expect_ok(cuStreamEndCapture(gpu.stream, &graph));
    expect_ok(cuGraphDestroy(graph));
    expect(words_that_differ(lane.ring, STATE, 5) == 0, "wrong bytes");
    expect_ok(cuStreamBeginCapture_v2(gpu.stream, 0));
    expect(cuMemHostRegister_v2(more, PAGE, 1) == DRIVER_STREAM_CAPTURE_UNSUPPORTED,
           "the stand-in allows all");
    expect(cuStreamEndCapture(gpu.stream, &graph) == DRIVER_STREAM_CAPTURE_INVALIDATED,
           "the stand-in forgives all");
    finish_with(&lane, &gpu);
}

static void registration_falls_back(void)
{
    struct device_driver *driver = NULL;
    struct gpu gpu = gpu_make(0, STATE);
    size_t size = 8 * PIECE, registered = 0;
    char *memory = host_memory(size);
    expect_ok(device_driver_get(&driver));
    standin_fail("cuMemHostRegister", 1, DRIVER_OUT_OF_MEMORY);
    expect_ok(device_register(driver, memory, size, PIECE, &registered));
    expect(registered == size && standin_calls("cuMemHostRegister") == 3, "%zu by %u calls",
           registered, standin_calls("cuMemHostRegister"));
    expect(device_register(driver, memory, size, PIECE, &registered) == -EEXIST && registered == 0,
           "twice");
    expect_ok(device_unregister(driver, memory, size));
    standin_fail("cuMemHostRegister", 1, DRIVER_NOT_SUPPORTED);
    expect(device_register(driver, memory, size, PIECE, &registered) == -ENOTSUP && registered == 0,
           "not supported");
    /* Into memory that is not registered: right, if slow. */
    struct device *device = NULL;
    struct device_event *event = NULL;
    expect_ok(device_open(driver, 0, &device));
    gpu_fill(&gpu, 9);
    expect_ok(device_after_producer(device, (uintptr_t)gpu.stream));
    expect_ok(device_copy(device, memory, gpu.memory, size, &event));
    expect_ok(wait_and_free(&event, 1));
    expect(words_that_differ(memory, size, 9) == 0, "wrong bytes");
    /* What lies in two registrations is refused by the driver: the ring's pieces do not. */
    standin_fail("cuMemHostRegister", 1, DRIVER_OUT_OF_MEMORY);
    expect_ok(device_register(driver, memory, size, PIECE, &registered));
    expect(device_copy(device, memory, gpu.memory, size, &event) == -EINVAL,
           "a copy across registrations");
    expect(device_copy(device, memory, gpu.memory + STATE, PIECE, &event) == -EINVAL,
           "an address of no device");
    device_close(device);
    expect_ok(device_unregister(driver, memory, size));
    gpu_done(&gpu);
    finish();
}

/* Not called where there is no compiler of kernels. */
__attribute__((unused)) static void check_fingerprint(const struct lane *lane,
                                                      const struct gpu *gpu,
                                                      const struct fingerprint_key *key, size_t at,
                                                      size_t length)
{
    struct device_event *event = NULL;
    struct fingerprint host, device;
    const char *bytes = standin_device_memory(gpu->memory);
    expect_ok(device_fingerprint(lane->device, gpu->memory + at, length, key, &event));
    while (device_event_done(event) == 0) {
    }
    device = device_event_fingerprint(event);
    device_event_free(event);
    expect_ok(fingerprint_of(key, bytes + at, length, &host));
    expect(memcmp(&host, &device, sizeof host) == 0, "%zu bytes at %zu", length, at);
}

static void fingerprints_are_those_of_the_host(void)
{
#ifdef CAIRN_KERNELS
    static const size_t lengths[] = {0, 1, 15, 16, 17, 4096, 65535, 65536, 65537, 131072, 300001};
    struct gpu gpu = gpu_make(0, STATE);
    struct lane lane = lane_make(0);
    struct fingerprint_key *key = malloc(sizeof *key), *other = malloc(sizeof *other);
    expect_ok(fingerprint_key_make(key));
    expect_ok(fingerprint_key_make(other));
    unsigned char *bytes = standin_device_memory(gpu.memory);
    for (size_t i = 0; i < STATE; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (size_t at = 0; at < 24; at += 8 + i % 2)
            check_fingerprint(&lane, &gpu, i % 3 ? key : other, at, lengths[i]);
    /* As many as there may be, then one more; each with its own result. */
    struct device_event *events[DEVICE_FINGERPRINTS_MAX], *more = NULL;
    gpu_fill(&gpu, 77);
    expect_ok(device_after_producer(lane.device, (uintptr_t)gpu.stream));
    for (size_t i = 0; i < DEVICE_FINGERPRINTS_MAX; i++)
        expect_ok(device_fingerprint(lane.device, gpu.memory, 100 + i, key, &events[i]));
    expect(device_fingerprint(lane.device, gpu.memory, 100, key, &more) == -EAGAIN, "one too many");
    for (size_t i = 0; i < DEVICE_FINGERPRINTS_MAX; i++) {
        struct fingerprint host, device;
        while (device_event_done(events[i]) == 0) {
        }
        device = device_event_fingerprint(events[i]);
        expect_ok(fingerprint_of(key, bytes, 100 + i, &host));
        expect(memcmp(&host, &device, sizeof host) == 0, "number %zu", i);
    }
    for (size_t i = 0; i < DEVICE_FINGERPRINTS_MAX; i++)
        device_event_free(events[i]);
    expect_ok(device_fingerprint(lane.device, gpu.memory, 100, key, &more));
    expect_ok(wait_and_free(&more, 1));
    expect(device_fingerprint(lane.device, gpu.memory, 257ull << 30, key, &more) == -ENOTSUP,
           "too long");
    free(key);
    free(other);
    finish_with(&lane, &gpu);
#endif
}

/* Its kernels read the source, and no event tells until when. */
static void half_a_fingerprint_is_waited_for(void)
{
#ifdef CAIRN_KERNELS
    struct gpu gpu = gpu_make(0, STATE);
    struct lane lane = lane_make(0);
    struct device_event *event = NULL;
    struct fingerprint_key *key = malloc(sizeof *key);
    expect_ok(fingerprint_key_make(key));
    check_fingerprint(&lane, &gpu, key, 0, STATE);
    standin_pace(5, 0, 1e6);
    expect_ok(device_copy(lane.device, lane.ring, gpu.memory, PIECE, &lane.events[0]));
    standin_fail("cuMemcpyDtoHAsync", 1, DRIVER_OUT_OF_MEMORY);
    expect(device_fingerprint(lane.device, gpu.memory, STATE, key, &event) == -ENOMEM && !event,
           "%s", cause_text());
    expect(standin_idle(), "its kernels are under way");
    expect_ok(wait_and_free(lane.events, 1));
    free(key);
    finish_with(&lane, &gpu);
#endif
}

/* Three levels, and more than one span: what a fingerprint keeps on the device is used again. */
static void fingerprints_of_much(void)
{
#ifdef CAIRN_KERNELS
    size_t length = (256ull << 20) + 3 * 65536 + 7; /* of zeros that take no memory */
    struct gpu gpu = gpu_make(0, length + PAGE);
    struct lane lane = lane_make(0);
    struct fingerprint_key *key = malloc(sizeof *key);
    expect_ok(fingerprint_key_make(key));
    memcpy((char *)standin_device_memory(gpu.memory) + length - 5, "tail!", 5);
    check_fingerprint(&lane, &gpu, key, 0, length);
    free(key);
    finish_with(&lane, &gpu);
#endif
}

static void errors_that_stay_end_all_calls(void)
{
    struct gpu gpu = gpu_make(0, STATE);
    struct lane lane = lane_make(0);
    size_t registered = 0;
    struct device_driver *driver = NULL;
    struct device *device = NULL;
    struct device_event *event = NULL;
    standin_fail("execute", 4, DRIVER_ILLEGAL_ADDRESS);
    gpu_fill(&gpu, 1);
    expect_ok(device_after_producer(lane.device, (uintptr_t)gpu.stream));
    expect_ok(device_copy(lane.device, lane.ring, gpu.memory, PIECE, &event));
    int ordered = device_order_behind(lane.device, (uintptr_t)gpu.stream);
    (void)ordered; /* the copy may have failed by then, or not */
    for (int i = 0; i < 4 && cuStreamSynchronize(gpu.stream) == 0; i++)
        gpu_fill(&gpu, 2);
    int r;
    while ((r = device_event_done(event)) == 0) {
    }
    expect(r == -EIO && strstr(cause_text(), "ILLEGAL_ADDRESS"), "%d", r);
    device_event_free(event);
    unsigned calls = standin_calls(NULL);
    expect(device_copy(lane.device, lane.ring, gpu.memory, PIECE, &event) == -EIO, "a copy");
    expect(device_after_producer(lane.device, (uintptr_t)gpu.stream) == -EIO, "producer");
    expect(device_order_behind(lane.device, (uintptr_t)gpu.stream) == -EIO, "fence");
    expect(device_driver_get(&driver) == -EIO && strstr(cause_text(), "ILLEGAL_ADDRESS"), "driver");
    expect(device_open(lane.driver, 0, &device) == -EIO, "open");
    expect(device_register(lane.driver, lane.ring, STATE, PIECE, &registered) == -EIO, "register");
    expect(device_unregister(lane.driver, lane.ring, STATE) == -EIO,
           "unregister: the ring has to stay mapped");
    device_close(lane.device);
    expect(standin_calls(NULL) == calls, "the driver was called %u times more",
           standin_calls(NULL) - calls);
}

static void nothing_works_after_fork(void)
{
    struct gpu gpu = gpu_make(0, STATE);
    struct lane lane = lane_make(0);
    gpu_fill(&gpu, 1);
    pid_t child = fork();
    if (child == 0) {
        struct device_event *event = NULL;
        struct device_driver *driver = NULL;
        unsigned calls = standin_calls(NULL);
        expect(device_driver_get(&driver) == -ECHILD, "driver");
        expect(device_copy(lane.device, lane.ring, gpu.memory, PIECE, &event) == -ECHILD, "copy");
        expect(device_order_behind(lane.device, 0) == -ECHILD, "fence");
        expect(device_unregister(lane.driver, lane.ring, STATE) == -ECHILD, "unregister");
        device_close(lane.device);
        expect(standin_calls(NULL) == calls, "the driver was called");
        _exit(0);
    }
    int status = 1;
    (void)waitpid(child, &status, 0);
    expect(status == 0, "the child failed");
    expect_ok(device_after_producer(lane.device, (uintptr_t)gpu.stream));
    lane_copy(&lane, &gpu);
    expect_ok(wait_and_free(lane.events, STATE / PIECE));
    finish_with(&lane, &gpu);
}

int main(int argc, char **argv)
{
    static const struct trial trials[] = {TRIAL(nothing_is_begun),
                                          TRIAL(copies_are_ordered),
                                          TRIAL(what_is_not_ordered_is_seen),
                                          TRIAL(devices_are_apart),
                                          TRIAL(other_streams_and_the_default_ones),
                                          TRIAL(captures_are_refused_and_not_broken),
                                          TRIAL(registration_falls_back),
                                          TRIAL(fingerprints_are_those_of_the_host),
                                          TRIAL(half_a_fingerprint_is_waited_for),
                                          TRIAL(fingerprints_of_much),
                                          TRIAL(errors_that_stay_end_all_calls),
                                          TRIAL(nothing_works_after_fork)};
    return run_trials(trials, ARRAY_LEN(trials), argc > 1 ? argv[1] : NULL);
}
