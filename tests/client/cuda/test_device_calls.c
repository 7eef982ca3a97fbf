// SPDX-License-Identifier: Apache-2.0
/* Each call of the driver fails once, at each of its turns: what uses device.h is told, or has the
 * right bytes; nothing hangs, nothing is lost, and after an error that passes all works again. */
#include "trial.h"

#define PIECE (16 * KIB)
#define STATE (64 * KIB)
#define PIECES (STATE / PIECE)

static struct fingerprint_key *key;

/* A save and all that belongs to it. The first error. */
static int save(const struct gpu *gpu, unsigned step, bool *ret_must_stay_mapped)
{
    struct device_driver *driver = NULL;
    struct device *device = NULL;
    struct device_event *events[PIECES + 1];
    size_t registered = 0, count = 0;
    char *ring = host_memory(STATE);
    int r = device_driver_get(&driver), unregistered = 0;
    if (r == 0)
        r = device_open(driver, gpu->ordinal, &device);
    if (r == 0 && device_register(driver, ring, STATE, PIECE, &registered) < 0)
        registered = 0; /* the copies block then */
    if (r == 0)
        r = device_after_producer(device, (uintptr_t)gpu->stream);
    for (; r == 0 && count < PIECES; count += r == 0)
        r = device_copy(device, ring + count * PIECE, gpu->memory + count * PIECE, PIECE,
                        &events[count]);
    if (r == 0 && device_fingerprint(device, gpu->memory, STATE, key, &events[count]) ==
                      0) /* else all is copied */
        count++;
    if (r == 0)
        r = device_order_behind(device, (uintptr_t)gpu->stream);
    int waited = wait_and_free(events, count);
    r = r == 0 ? waited : r;
    if (r == 0)
        expect(words_that_differ(ring, STATE, step) == 0, "step %u: wrong bytes and no error",
               step);
    device_close(device);
    if (registered > 0)
        unregistered = device_unregister(driver, ring, STATE);
    *ret_must_stay_mapped = unregistered < 0;
    if (unregistered == 0)
        expect_ok(munmap(ring, STATE));
    return r;
}

static void step(const struct gpu *gpu, unsigned number, int *ret_error, bool *ret_mapped)
{
    gpu_fill(gpu, number);
    *ret_error = save(gpu, number, ret_mapped);
}

/* In a process of its own. 0: the call was made fewer times. */
static int trial(const char *call, unsigned nth, CUresult code, bool stays)
{
    int error = 0;
    bool mapped = false;
    struct gpu gpu = gpu_make(1, STATE);
    standin_pace(nth, 20, 0);
    expect_ok(cuStreamSynchronize(gpu.stream));
    standin_fail(call, nth, code);
    unsigned before = standin_calls(call);
    gpu_fill(&gpu, 1);
    error = save(&gpu, 1, &mapped);
    unsigned made = standin_calls(call) - before;
    standin_fail(NULL, 0, 0);
    if (stays) { /* the trainer's own context is gone with it: only that the lane ends is to be
                  * seen */
        unsigned calls = standin_calls(NULL);
        struct device_driver *driver = NULL;
        if (error == -EIO || mapped)
            expect(device_driver_get(&driver) == -EIO && standin_calls(NULL) == calls,
                   "%s %u: goes on", call, nth);
        return made >= nth;
    }
    for (unsigned i = 2; i < 4; i++) {
        bool mapped_too;
        step(&gpu, i, &error, &mapped_too);
        expect(error == 0 || error == -EIO, "%s %u: later saves get %d", call, nth, error);
        /* What may still be written is not known after two failures in a row, else all is well
         * again. */
        expect(error == 0, "%s %u: no save works any more", call, nth);
    }
    expect_no_violation();
    gpu_done(&gpu);
    return made >= nth;
}

static bool failed(const char *call, unsigned nth, CUresult code, bool stays, bool *ret_reached)
{
    int status = 0;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(trial(call, nth, code, stays) ? 42 : 0);
    (void)waitpid(child, &status, 0);
    *ret_reached = WIFEXITED(status) && WEXITSTATUS(status) == 42;
    if (status == 0 || *ret_reached)
        return false;
    (void)printf("FAILED %s, call %u, code %d\n", call, nth, code);
    return true;
}

int main(void)
{
#define CALL_NAME(name, symbol, parameters) #name,
    static const char *const calls[] = {DRIVER_CALLS(CALL_NAME) "execute"};
    unsigned bad = 0, tried = 0;
    key = malloc(sizeof *key);
    expect_ok(fingerprint_key_make(key));
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        for (unsigned stays = 0; stays < 2; stays++) {
            bool reached = true;
            bool is_execution = strcmp(calls[i], "execute") == 0;
            if (is_execution && !stays)
                continue;
            for (unsigned nth = 1; reached && nth < 12; nth++, tried++)
                bad += failed(calls[i], nth, stays ? DRIVER_LAUNCH_FAILED : DRIVER_OUT_OF_MEMORY,
                              stays, &reached);
        }
    }
    free(key);
    (void)printf("%u failures, %u of them bad\n", tried, bad);
    return bad > 0;
}
