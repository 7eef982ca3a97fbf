// SPDX-License-Identifier: Apache-2.0
#include "standin.h"

#include <stdlib.h>
#include <string.h>

#include "state.h"

#define DEPTH_MAX 16

struct CUgraph_st {
    int unused;
};

static struct CUctx_st contexts[STANDIN_DEVICES];
static _Atomic bool initialized;
static _Atomic int sticky; /* The error that stays: of the process, whose other devices are of no
                              use either then, as the driver's manual has it. */
static _Thread_local CUcontext stack[DEPTH_MAX];
static _Thread_local unsigned depth;

__attribute__((constructor)) static void number_contexts(void)
{
    for (int i = 0; i < STANDIN_DEVICES; i++)
        contexts[i].device = i;
}

static bool is_sticky(CUresult code)
{
    switch (code) {
#define STICKY_CASE(name, value, errno_, dead)                                                     \
    case value:                                                                                    \
        return dead;
        DRIVER_ERRORS(STICKY_CASE)
    default:
        return false;
    }
}

static CUcontext current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

CUresult fail_execution(void)
{
    CUresult none = DRIVER_SUCCESS, code = injected("execute");
    if (code != DRIVER_SUCCESS)
        (void)atomic_compare_exchange_strong(&sticky, &none, code);
    return atomic_load(&sticky);
}

/* What every call does first: a driver that was not initialized answers nothing; an error that
 * stays is the answer to everything. */
CUresult enter(const char *call, bool needs_context)
{
    CUresult code = call_begins(call), none = DRIVER_SUCCESS;
    if (!atomic_load(&initialized))
        return DRIVER_NOT_INITIALIZED;
    if (is_sticky(code))
        (void)atomic_compare_exchange_strong(&sticky, &none, code);
    if (code != DRIVER_SUCCESS)
        return code;
    if (needs_context && !current())
        return DRIVER_INVALID_CONTEXT;
    return needs_context ? atomic_load(&sticky) : DRIVER_SUCCESS;
}

const char *call_name(const char *function)
{
#define CALL_NAME(name, symbol, parameters)                                                        \
    if (strcmp(function, #symbol) == 0)                                                            \
        return #name;
    DRIVER_CALLS(CALL_NAME)
    return function;
}

bool stream_find(CUstream *stream)
{
    if ((uintptr_t)*stream <= 2)
        *stream = stream_default(current(), (uintptr_t)*stream);
    if (atomic_load(&(*stream)->alive) != ALIVE)
        violation("a stream was used after it was destroyed");
    return (*stream)->context == current();
}

static bool event_usable(CUevent event)
{
    if (!event || atomic_load(&event->alive) != ALIVE) {
        violation("an event was used after it was destroyed");
        return false;
    }
    return event->context == current();
}

static bool is_capturing(CUstream stream)
{
    HOLD(&stream->locked.lock);
    return stream->locked.capturing;
}

void give(CUstream stream, const struct op *op)
{
    if (!is_capturing(stream)) {
        stream_give(stream, op);
        return;
    }
    if (op->kind == OP_TO_DEVICE)
        free(op->host);
    if (op->kind == OP_RECORD || op->kind == OP_WAIT)
        mark_drop(op->mark);
}

CUresult cuInit(unsigned flags)
{
    (void)call_begins("cuInit");
    atomic_store(&initialized, true);
    return flags == 0 ? DRIVER_SUCCESS : DRIVER_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *ret)
{
    ENTER(false);
    *ret = STANDIN_DEVICES;
    return DRIVER_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *ret, int ordinal)
{
    ENTER(false);
    if (ordinal < 0 || ordinal >= STANDIN_DEVICES)
        return DRIVER_INVALID_DEVICE;
    *ret = ordinal;
    return DRIVER_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *ret_flags, int *ret_active)
{
    ENTER(false);
    *ret_flags = 0;
    *ret_active = atomic_load(&contexts[device].retained) > 0;
    return DRIVER_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device)
{
    ENTER(false);
    atomic_fetch_add(&contexts[device].retained, 1);
    *ret = &contexts[device];
    return DRIVER_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER(false);
    if (atomic_fetch_sub(&contexts[device].retained, 1) <= 0)
        violation("a primary context was released more often than it was retained");
    return DRIVER_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ret)
{
    ENTER(false);
    *ret = current();
    return DRIVER_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER(false);
    if (depth == 0)
        depth = 1;
    stack[depth - 1] = context;
    return DRIVER_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER(false);
    if (depth == DEPTH_MAX || atomic_load(&context->retained) == 0) {
        violation("a context was pushed that is not retained, or without an end");
        return DRIVER_INVALID_CONTEXT;
    }
    if (atomic_load(&sticky) != DRIVER_SUCCESS)
        return atomic_load(&sticky);
    stack[depth++] = context;
    return DRIVER_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret)
{
    CUresult code = enter("cuCtxPopCurrent", false);
    if (depth == 0)
        return DRIVER_INVALID_CONTEXT;
    *ret = stack[--depth]; /* also where it tells an error: a thread whose context stays another
                              than it had would hide what comes of it */
    return code;
}

CUresult cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    ENTER(true);
    *ret_least = 0;
    *ret_greatest = -5;
    return DRIVER_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    ENTER(false);
    *mode = capture_mode_exchange(*mode);
    return DRIVER_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned flags, int priority)
{
    ENTER(true);
    if (flags != DRIVER_STREAM_NON_BLOCKING || priority != 0)
        violation("a side stream that blocks others, or has not the lowest priority");
    *ret = stream_make(current());
    return DRIVER_SUCCESS;
}

CUresult cuStreamCreate(CUstream *ret, unsigned flags)
{
    ENTER(true);
    (void)flags;
    *ret = stream_make(current());
    return DRIVER_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER(true);
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    stream_end(stream);
    return DRIVER_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER_UNSAFE();
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    stream_wait(stream);
    return atomic_load(&sticky);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    ENTER(true);
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    *ret = is_capturing(stream) ? 1 : DRIVER_CAPTURE_STATUS_NONE;
    return DRIVER_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    ENTER(true);
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    HOLD(&stream->locked.lock);
    stream->locked.capturing = true;
    stream->locked.broken = false;
    stream->locked.mode = mode;
    stream->locked.capturer = pthread_self();
    return DRIVER_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret)
{
    ENTER(true);
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    pthread_mutex_lock(&stream->locked.lock);
    bool broken = stream->locked.broken;
    stream->locked.capturing = false;
    pthread_mutex_unlock(&stream->locked.lock);
    *ret = broken ? NULL : calloc(1, sizeof **ret);
    return broken ? DRIVER_STREAM_CAPTURE_INVALIDATED : DRIVER_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER(false);
    free(graph);
    return DRIVER_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    ENTER(true);
    if (flags != 0 || !stream_find(&stream) || !event ||
        atomic_load(&event->alive) != ALIVE) /* it may be of another device */
        return DRIVER_INVALID_HANDLE;
    if (event_is_captured(event))
        violation("a stream was drawn into the graph of another one");
    struct mark *mark = event_mark(event);
    if (mark)
        give(stream, &(struct op){.kind = OP_WAIT, .mark = mark});
    return DRIVER_SUCCESS;
}

CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
    ENTER(true);
    if ((flags & DRIVER_EVENT_DISABLE_TIMING) == 0)
        violation("an event that takes times");
    *ret = event_make(current());
    return DRIVER_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER(true);
    if (!event_usable(event))
        return DRIVER_INVALID_HANDLE;
    event_end(event);
    return DRIVER_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(true);
    if (!event_usable(event) || !stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    give(stream,
         &(struct op){.kind = OP_RECORD, .mark = event_record(event, is_capturing(stream))});
    return DRIVER_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    ENTER_UNSAFE();
    if (!event_usable(event))
        return DRIVER_INVALID_HANDLE;
    if (event_is_captured(event))
        return DRIVER_CAPTURED_EVENT;
    struct mark *mark = event_mark(event);
    bool reached = !mark || mark_is_reached(mark);
    mark_drop(mark);
    CUresult error = atomic_load(&sticky);
    return error ? error : reached ? DRIVER_SUCCESS : DRIVER_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    ENTER_UNSAFE();
    if (!event_usable(event))
        return DRIVER_INVALID_HANDLE;
    struct mark *mark = event_mark(event);
    if (mark)
        mark_wait(mark);
    mark_drop(mark);
    return atomic_load(&sticky);
}

CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    ENTER_UNSAFE();
    if (flags != DRIVER_MEMHOSTREGISTER_PORTABLE)
        violation("host memory is registered for one context only");
    if (bytes > 1ull << 30)
        violation("more than 1 GiB is registered at once");
    return register_host(memory, bytes);
}

CUresult cuMemHostUnregister(void *memory)
{
    ENTER_UNSAFE();
    return unregister_host(memory);
}

/* Into memory that is not registered the copy is a call that blocks; into memory of two
 * registrations there is none. */
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER(true);
    enum where where = where_is(to, bytes);
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    if (where == CROSSING || (bytes > 0 && !device_bytes(from, bytes)))
        return DRIVER_INVALID_VALUE;
    give(stream, &(struct op){.kind = OP_TO_HOST, .device = from, .host = to, .bytes = bytes});
    if (where == PAGEABLE)
        stream_wait(stream);
    return DRIVER_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    ENTER(true);
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    if (!device_bytes(to, bytes))
        return DRIVER_INVALID_VALUE;
    void *copy = malloc(bytes);
    memcpy(copy, from, bytes);
    give(stream, &(struct op){.kind = OP_TO_DEVICE, .device = to, .host = copy, .bytes = bytes});
    return DRIVER_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t words, CUstream stream)
{
    ENTER(true);
    if (!stream_find(&stream))
        return DRIVER_INVALID_HANDLE;
    if (to % 4 != 0 || !device_bytes(to, words * 4))
        return DRIVER_INVALID_VALUE;
    give(stream, &(struct op){.kind = OP_FILL, .device = to, .bytes = words * 4, .value = value});
    return DRIVER_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes)
{
    ENTER_UNSAFE();
    return bytes == 0 ? DRIVER_INVALID_VALUE : device_alloc(current()->device, bytes, ret);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER_UNSAFE();
    streams_wait(current());
    return device_free(address);
}

void *standin_device_memory(CUdeviceptr address)
{
    return device_bytes(address, 1);
}

void standin_end(void)
{
    unsigned streams = streams_end(), memory = memory_end();
    if (streams + memory > 0)
        violation("leaks: %u streams and events, %u ranges of memory", streams, memory);
    for (int i = 0; i < STANDIN_DEVICES; i++) {
        if (atomic_load(&contexts[i].retained) != 0)
            violation("leaks: a context is still retained");
        atomic_store(&contexts[i].retained, 0);
    }
    atomic_store(&sticky, DRIVER_SUCCESS);
    standin_fail(NULL, 0, 0);
}
