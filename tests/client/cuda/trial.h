// SPDX-License-Identifier: Apache-2.0
/* What the programs here share: checks that end the process, and a GPU as a trainer has it. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "client/device.h"
#include "standin.h"

#define PAGE 4096u

struct gpu {
    int ordinal;
    CUcontext context;
    CUstream stream;
    CUdeviceptr memory;
    size_t bytes;
};

/* As a framework does it: the primary context, current; a stream that blocks no other. */
static inline struct gpu gpu_make(int ordinal, size_t bytes)
{
    struct gpu gpu = {.ordinal = ordinal, .bytes = bytes};
    expect_ok(cuInit(0));
    expect_ok(cuDevicePrimaryCtxRetain(&gpu.context, ordinal));
    expect_ok(cuCtxSetCurrent(gpu.context));
    expect_ok(cuStreamCreate(&gpu.stream, 1));
    expect_ok(cuMemAlloc_v2(&gpu.memory, bytes));
    return gpu;
}

/* A kernel of the trainer: one number in all words. */
static inline void gpu_fill(const struct gpu *gpu, unsigned value)
{
    expect_ok(cuCtxSetCurrent(gpu->context));
    expect_ok(cuMemsetD32Async(gpu->memory, value, gpu->bytes / 4, gpu->stream));
}

static inline void gpu_done(const struct gpu *gpu)
{
    expect_ok(cuCtxSetCurrent(gpu->context));
    expect_ok(cuStreamSynchronize(gpu->stream));
    expect_ok(cuMemFree_v2(gpu->memory));
    expect_ok(cuStreamDestroy_v2(gpu->stream));
    expect_ok(cuDevicePrimaryCtxRelease_v2(gpu->ordinal));
}

static inline char *host_memory(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    expect(memory != MAP_FAILED, "no memory");
    return memory;
}

static inline size_t words_that_differ(const char *memory, size_t bytes, unsigned value)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes; at += sizeof value)
        count += memcmp(memory + at, &value, sizeof value) != 0;
    return count;
}

static inline void expect_no_violation(void)
{
    const char *text = standin_violation();
    expect(text[0] == '\0', "the stand-in says: %s", text);
}

/* Polls until all are done, as the lane does; the first error. */
static inline int wait_and_free(struct device_event **events, size_t count)
{
    const struct timespec pause = {.tv_nsec = 20000};
    int result = 0;
    for (size_t i = 0; i < count; i++) {
        int r;
        while ((r = device_event_done(events[i])) == 0)
            (void)nanosleep(&pause, NULL);
        result = r < 0 && result == 0 ? r : result;
        device_event_free(events[i]);
    }
    return result;
}

struct trial {
    const char *name;
    void (*run)(void);
};

#define TRIAL(run)                                                                                 \
    {                                                                                              \
#run, run                                                                                  \
    }

/* Each in a process of its own: the driver of a process is found once, and its errors stay. */
static inline int run_trials(const struct trial *trials, size_t count, const char *only)
{
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        if (only && strcmp(only, trials[i].name) != 0)
            continue;
        (void)fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            trials[i].run();
            _exit(0);
        }
        int status = 0;
        (void)waitpid(child, &status, 0);
        (void)printf("%s %s\n", status == 0 ? "ok    " : "FAILED", trials[i].name);
        failed += status != 0;
    }
    return failed > 0;
}
