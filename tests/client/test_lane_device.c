// SPDX-License-Identifier: Apache-2.0
/* A lane with sources on a device (the stand-in): every byte of every file, order with the streams
 * of a trainer, rings that are too small. */
#include "cuda/trial.h"

#include <cairn/cairn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#define STATE (512 * KIB)
#define ROUNDS 30

static char directory[] = "/tmp/cairn-lane-XXXXXX";

static char *path_of(const char *name)
{
    static char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

#define expect_call(call) expect((call) == 0, "%s", cairn_error())

static void expect_file(const char *name, unsigned value)
{
    char *memory = host_memory(STATE);
    int fd = open(path_of(name), O_RDONLY);
    expect(fd >= 0, "%s is not there", name);
    expect(pread(fd, memory, STATE, 0) == (ssize_t)STATE, "%s is short", name);
    expect(words_that_differ(memory, STATE, value) == 0,
           "%zu words of %s are of another step than %u", words_that_differ(memory, STATE, value),
           name, value);
    (void)close(fd);
    expect_ok(munmap(memory, STATE));
}

static cairn_lane *open_lane(uint64_t ring_bytes, int max_block_ms)
{
    struct cairn_lane_options options = {
        .size = sizeof options, .ring_bytes = ring_bytes, .max_block_ms = max_block_ms};
    cairn_lane *lane;
    expect_call(cairn_lane_open(&options, &lane));
    return lane;
}

static cairn_save *begin(cairn_lane *lane, const char *name, const struct gpu *gpu, uint32_t flags)
{
    struct cairn_source source = {.length = STATE,
                                  .device_address = gpu->memory,
                                  .device = gpu->ordinal,
                                  .producer = (uintptr_t)gpu->stream,
                                  .flags = flags};
    cairn_save *save;
    expect_call(cairn_save_begin(lane, path_of(name), STATE, NULL, &save));
    expect_call(cairn_save_put(save, &source, 1));
    (void)cairn_save_commit(save); /* it may have failed by now, which a wait for it returns */
    return save;
}

static void publish(cairn_save *save)
{
    expect_call(cairn_save_wait(save, CAIRN_PUBLISHED, -1));
    cairn_save_free(save);
}

static void finish(cairn_lane *lane, const struct gpu *gpu)
{
    expect_call(cairn_lane_close(lane));
    gpu_done(gpu);
    standin_end();
    expect_no_violation();
}

/* A trainer: a step writes all of the state, a save follows, a fence comes before the next step. */
static void train(uint64_t ring_bytes, uint64_t seed, bool on_stream)
{
    standin_pace(seed, 200, 0);
    struct gpu gpu = gpu_make(0, STATE);
    cairn_lane *lane = open_lane(ring_bytes, 0);
    struct cairn_stream stream = {.device = 0, .stream = (uintptr_t)gpu.stream};
    for (unsigned step = 1; step <= ROUNDS; step++) {
        char name[32];
        (void)snprintf(name, sizeof name, "step%u", step);
        gpu_fill(&gpu, step);
        cairn_save_free(begin(lane, name, &gpu, 0));
        expect_call(cairn_lane_fence(lane, on_stream ? &stream : NULL, on_stream, -1));
    }
    struct cairn_lane_stats stats = {.size = sizeof stats};
    expect_call(cairn_lane_stats(lane, &stats));
    expect(stats.ring_registered_bytes == stats.ring_bytes && stats.ring_bytes >= ring_bytes,
           "the ring is not registered");
    finish(lane, &gpu);
    for (unsigned step = 1; step <= ROUNDS; step++) {
        char name[32];
        (void)snprintf(name, sizeof name, "step%u", step);
        expect_file(name, step);
        expect_ok(unlink(path_of(name)));
    }
}

static void ring_for_all_and_a_stream(void)
{
    train(2 * STATE, 1, true);
}

static void small_ring_and_a_stream(void)
{
    train(64 * KIB, 2, true);
}

static void ring_for_all_and_the_host(void)
{
    train(2 * STATE, 3, false);
}

static void small_ring_and_the_host(void)
{
    train(64 * KIB, 4, false);
}

static void copied_now(void)
{
    standin_pace(5, 200, 0);
    struct gpu gpu = gpu_make(1, STATE);
    cairn_lane *lane = open_lane(STATE, 0);
    gpu_fill(&gpu, 7);
    cairn_save *save = begin(lane, "now", &gpu, CAIRN_SOURCE_NOW);
    gpu_fill(&gpu, 8); /* without a fence */
    publish(save);
    finish(lane, &gpu);
    expect_file("now", 7);
}

static void prepared_once(void)
{
    struct gpu gpu = gpu_make(0, STATE);
    cairn_lane *lane = open_lane(0, 0);
    struct cairn_lane_stats stats = {.size = sizeof stats};
    expect_call(cairn_lane_prepare(lane, 8 * MIB));
    unsigned calls = standin_calls("cuMemHostRegister");
    expect_call(cairn_lane_prepare(lane, 8 * MIB));
    gpu_fill(&gpu, 3);
    publish(begin(lane, "prepared", &gpu, 0));
    expect(calls > 0 && standin_calls("cuMemHostRegister") == calls, "registered again");
    expect_call(cairn_lane_prepare(lane, 12 * MIB));
    expect_call(cairn_lane_stats(lane, &stats));
    expect(stats.ring_bytes == 12 * MIB && stats.ring_registered_bytes == 12 * MIB, "%llu",
           (unsigned long long)stats.ring_bytes);
    finish(lane, &gpu);
    expect_file("prepared", 3);
}

/* A context that is lost fails the save; the training goes on, and the file of before stays. */
static void device_fails(void)
{
    struct gpu gpu = gpu_make(0, STATE);
    cairn_lane *lane = open_lane(64 * KIB, 0);
    gpu_fill(&gpu, 1);
    publish(begin(lane, "kept", &gpu, 0));
    gpu_fill(&gpu, 9);
    standin_fail("cuMemcpyDtoHAsync", 3, DRIVER_ILLEGAL_ADDRESS);
    cairn_save *save = begin(lane, "kept", &gpu, 0);
    expect(cairn_save_wait(save, CAIRN_PUBLISHED, -1) < 0, "no error");
    expect(strstr(cairn_error(), "ILLEGAL_ADDRESS"), "%s", cairn_error());
    expect_call(cairn_lane_fence(lane, NULL, 0, -1));
    cairn_save_free(save);
    expect_call(cairn_lane_close(lane)); /* the error was reported */
    expect(access(path_of("kept"), F_OK) == 0, "the file of before is gone");
}

struct abort_call {
    cairn_save *save;
    _Atomic bool has_returned;
};

static void *abort_save(void *arg)
{
    struct abort_call *call = arg;
    expect_call(cairn_save_abort(call->save));
    atomic_store(&call->has_returned, true);
    return NULL;
}

/* The lane has taken a piece and is about to enqueue its copy: an abort of the save would free the
 * memory that the copy then reads. */
static void what_begins_is_waited_for(void)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    pthread_t thread;
    struct gpu gpu = gpu_make(0, STATE);
    cairn_lane *lane = open_lane(64 * KIB, 0);
    standin_hold("cuMemcpyDtoHAsync");
    struct abort_call call = {.save = begin(lane, "aborted", &gpu, 0)};
    standin_wait_held();
    expect_ok(pthread_create(&thread, NULL, abort_save, &call));
    (void)nanosleep(&moment, NULL);
    expect(!atomic_load(&call.has_returned), "an abort has returned, and the copy comes after it");
    expect(cairn_save_wait(call.save, CAIRN_COPIED, 1) == -ETIMEDOUT, "%s", cairn_error());
    standin_hold(NULL);
    expect_ok(pthread_join(thread, NULL));
    expect(standin_idle(), "a source is read after an abort");
    expect(cairn_save_wait(call.save, CAIRN_COPIED, -1) == -ECANCELED, "%s", cairn_error());
    cairn_save_free(call.save);
    finish(lane, &gpu);
}

/* Until a fence waits, one copy at most is enqueued that is not done: what the training reads of
 * the device comes behind it. */
static void few_copies_are_enqueued_until_a_fence_waits(void)
{
    const struct timespec moment = {.tv_nsec = 50000000}; /* the stand-in has no event for a call */
    const size_t piece = STATE / 16;                      /* of a ring as large as STATE */
    struct gpu gpu = gpu_make(0, STATE);
    cairn_lane *lane = open_lane(STATE, 0);
    struct cairn_stream stream = {.device = 0, .stream = (uintptr_t)gpu.stream};
    gpu_fill(&gpu, 5);
    expect_call(cairn_lane_prepare(lane, STATE));
    standin_pace(6, 0, 0.5 * (double)piece); /* 2 s a piece: none is done meanwhile */
    cairn_save *save = begin(lane, "calm", &gpu, 0);
    while (standin_calls("cuMemcpyDtoHAsync") < 1)
        (void)nanosleep(&moment, NULL);
    (void)nanosleep(&moment, NULL); /* shows that no other follows */
    expect(standin_calls("cuMemcpyDtoHAsync") == 1, "%u", standin_calls("cuMemcpyDtoHAsync"));
    expect_call(cairn_lane_fence(lane, &stream, 1, -1));
    expect(standin_calls("cuMemcpyDtoHAsync") == 16 && !standin_idle(),
           "the fence waits for more than that the copies are enqueued");
    gpu_fill(&gpu, 6);
    standin_pace(6, 0, 0);
    publish(save);
    finish(lane, &gpu);
    expect_file("calm", 5);
}

/* A CUDA graph would run later, without a save or a fence: both refuse, and break nothing. */
static void a_stream_that_captures_is_refused(void)
{
    CUgraph graph = NULL;
    struct gpu gpu = gpu_make(0, STATE);
    cairn_lane *lane = open_lane(STATE, 0);
    cairn_save *refused;
    struct cairn_stream stream = {.device = 0, .stream = (uintptr_t)gpu.stream};
    struct cairn_source source = {
        .length = STATE, .device_address = gpu.memory, .producer = (uintptr_t)gpu.stream};
    gpu_fill(&gpu, 5);
    expect_call(cairn_lane_prepare(lane, STATE));
    standin_pace(7, 0, 0.5 * (double)STATE / 16); /* 2 s a piece: none is done meanwhile */
    cairn_save *save = begin(lane, "before", &gpu, 0);
    expect_ok(cuStreamBeginCapture_v2(gpu.stream, 0));
    expect_call(cairn_save_begin(lane, path_of("refused"), STATE, NULL, &refused));
    expect(cairn_save_put(refused, &source, 1) == -EBUSY && strstr(cairn_error(), "captured"), "%s",
           cairn_error());
    expect(cairn_lane_fence(lane, &stream, 1, -1) == -EBUSY && strstr(cairn_error(), "captured"),
           "%s", cairn_error());
    expect_ok(cuStreamEndCapture(gpu.stream, &graph));
    expect_ok(cuGraphDestroy(graph));
    expect_call(cairn_lane_fence(lane, &stream, 1, -1));
    gpu_fill(&gpu, 6);
    standin_pace(7, 0, 0);
    expect_call(cairn_save_wait(save, CAIRN_PUBLISHED, -1));
    expect_call(cairn_save_abort(refused));
    cairn_save_free(refused);
    cairn_save_free(save);
    finish(lane, &gpu);
    expect_file("before", 5);
    expect(access(path_of("refused"), F_OK) < 0, "a file that was refused");
}

static void no_source_of_another_device(void)
{
    struct gpu gpu = gpu_make(0, STATE);
    cairn_lane *lane = open_lane(0, 0);
    cairn_save *save;
    struct cairn_source source = {.length = STATE, .device_address = gpu.memory, .device = 77};
    expect_call(cairn_save_begin(lane, path_of("none"), STATE, NULL, &save));
    expect(cairn_save_put(save, &source, 1) == -ENODEV, "%s", cairn_error());
    expect_call(cairn_save_abort(save));
    cairn_save_free(save);
    finish(lane, &gpu);
    expect(access(path_of("none"), F_OK) < 0, "a file that was aborted");
}

int main(int argc, char **argv)
{
    static const struct trial trials[] = {TRIAL(ring_for_all_and_a_stream),
                                          TRIAL(small_ring_and_a_stream),
                                          TRIAL(ring_for_all_and_the_host),
                                          TRIAL(small_ring_and_the_host),
                                          TRIAL(copied_now),
                                          TRIAL(prepared_once),
                                          TRIAL(device_fails),
                                          TRIAL(what_begins_is_waited_for),
                                          TRIAL(few_copies_are_enqueued_until_a_fence_waits),
                                          TRIAL(a_stream_that_captures_is_refused),
                                          TRIAL(no_source_of_another_device)};
    char command[64];
    expect(mkdtemp(directory), "no directory");
    int r = run_trials(trials, ARRAY_LEN(trials), argc > 1 ? argv[1] : NULL);
    (void)snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command) ? 1 : r;
}
