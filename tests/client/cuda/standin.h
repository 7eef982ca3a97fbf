// SPDX-License-Identifier: Apache-2.0
/* A stand-in for libcuda.so.1, for tests on machines without a GPU: the calls of the driver that
 * libcairn and a small trainer use, and the knobs of the tests.
 *
 * Memory of a device is memory that only copies and kernels touch: its addresses cannot be read by
 * the host. A stream is a thread, which works off what it was given late, in parts, at a seeded
 * random pace; events are all that orders streams. What a real driver leaves undefined or forbids,
 * and what this library must not do, is noted as a violation. docs/testing.md says what it cannot
 * prove. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/cuda.h"

#pragma GCC visibility push(default)

/* What libcairn calls, by the exported names. */
#define STANDIN_DECLARE(name, symbol, parameters) CUresult symbol parameters;
DRIVER_CALLS(STANDIN_DECLARE)

/* What a trainer calls besides. */
typedef struct CUgraph_st *CUgraph;
CUresult cuInit(unsigned flags);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuStreamCreate(CUstream *ret, unsigned flags);
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream);
CUresult cuEventSynchronize(CUevent event);
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret);
CUresult cuGraphDestroy(CUgraph graph);

#define STANDIN_DEVICES 4

/* Delays of at most `delay_us` now and then, by `seed`; copies at `rate` bytes a second (0: as fast
 * as they are). */
void standin_pace(uint64_t seed, unsigned delay_us, double rate);

/* The nth call (1: the next) of `call` (as in cuda.h: "cuEventRecord") fails with `code`, before it
 * does anything; "execute": the nth operation that a stream executes. Errors that a driver never
 * recovers from stay. NULL: none. One at a time. */
void standin_fail(const char *call, unsigned nth, CUresult code);

/* Calls of `call` wait before they do anything, until they are let go (NULL). */
void standin_hold(const char *call);
/* Waits until a thread is in such a call. */
void standin_wait_held(void);

/* Whether all streams have done what they were given. */
bool standin_idle(void);

/* How often a call was made; NULL: all of them. */
unsigned standin_calls(const char *call);

/* The first thing that was wrong since the last time, "" if nothing was. */
const char *standin_violation(void);

/* A device that failed for good works again; what is registered, allocated, made and not taken back
 * is a violation ("leaks"). Nothing may be under way. */
void standin_end(void);

/* What kernels would see at an address of a device, for tests to compare; nothing may be under way
 * there. NULL: none. */
void *standin_device_memory(CUdeviceptr address);

#pragma GCC visibility pop
