// SPDX-License-Identifier: Apache-2.0
#include "client/device.h"

#include <stdio.h>

#include "base/cause.h"
#include "client/driver.h"

static int make_side_stream(struct device *device)
{
    struct device_driver *driver = device->driver;
    CUstreamCaptureMode mode;
    int least = 0, greatest = 0;
    TRY(driver_enter(driver, device->context, &mode));
    int r = DRIVER_CALL(driver, cuCtxGetStreamPriorityRange, &least, &greatest);
    if (r == 0)
        r = DRIVER_CALL(driver, cuStreamCreateWithPriority, &device->side,
                        DRIVER_STREAM_NON_BLOCKING, least);
    int left = driver_leave(driver, mode, r);
    if (r == 0 && left < 0)
        (void)driver->calls.cuStreamDestroy(device->side);
    return left;
}

int device_open(struct device_driver *driver, int ordinal, struct device **ret)
{
    _cleanup_free_ struct device *device = calloc(1, sizeof *device);
    if (!device)
        return -ENOMEM;
    device->driver = driver;
    TRY(driver_retain(driver, ordinal, &device->ordinal, &device->context));
    int r = make_side_stream(device);
    if (r < 0) {
        driver_release(driver, device->ordinal);
        return r;
    }
    mutex_init(&device->locked.lock, LOCK_LEAF);
    *ret = device;
    device = NULL;
    return 0;
}

static void destroy_stream_and_events(struct device *device)
{
    struct device_driver *driver = device->driver;
    CUstreamCaptureMode mode;
    if (driver_enter(driver, device->context, &mode) < 0)
        return;
    int r = DRIVER_CALL(driver, cuStreamSynchronize, device->side);
    for (struct device_event *e = device->locked.free; e && driver_alive(driver) == 0; e = e->next)
        (void)DRIVER_CALL(driver, cuEventDestroy, e->event);
    if (driver_alive(driver) == 0)
        r = DRIVER_CALL(driver, cuStreamDestroy, device->side);
    (void)driver_leave(driver, mode, r);
    driver_release(driver, device->ordinal);
}

void device_close(struct device *device)
{
    if (!device)
        return;
    check(device->locked.used == 0);
    device_prints_done(device);
    destroy_stream_and_events(device);
    while (device->locked.free) {
        struct device_event *event = device->locked.free;
        device->locked.free = event->next;
        free(event);
    }
    mutex_done(&device->locked.lock);
    free(device);
}

int device_event_take(struct device *device, struct device_event **ret)
{
    {
        LOCK_SCOPE(&device->locked.lock);
        device->locked.used++;
        *ret = device->locked.free;
        if (*ret) {
            device->locked.free = (*ret)->next;
            return 0;
        }
    }
    struct device_event *event = calloc(1, sizeof *event);
    int r = event ? DRIVER_CALL(device->driver, cuEventCreate, &event->event,
                                DRIVER_EVENT_DISABLE_TIMING)
                  : -ENOMEM;
    if (r == 0) {
        event->device = device;
        event->slot = -1;
        *ret = event;
        return 0;
    }
    free(event);
    LOCK_SCOPE(&device->locked.lock);
    device->locked.used--;
    return r;
}

void device_event_free(struct device_event *event)
{
    if (!event)
        return;
    struct device *device = event->device;
    LOCK_SCOPE(&device->locked.lock);
    check(device->locked.used > 0);
    if (event->slot >= 0)
        device->locked.slots &= ~(1ull << event->slot);
    event->slot = -1;
    event->next = device->locked.free;
    device->locked.free = event;
    device->locked.used--;
}

/* After an error: ensures that nothing is in progress on the side stream, or that the driver is
 * never called again. Then nothing writes to the target of a copy any more, and its memory can be
 * reused. The cause stays that of the error. */
static void settle_device(struct device *device)
{
    struct device_driver *driver = device->driver;
    CUstreamCaptureMode mode;
    char cause[CAUSE_MAX];
    (void)snprintf(cause, sizeof cause, "%s", cause_text());
    int r = driver_enter(driver, device->context, &mode);
    if (r == 0) {
        r = DRIVER_CALL(driver, cuStreamSynchronize, device->side);
        (void)driver_leave(driver, mode, r);
    }
    if (r < 0)
        driver_give_up(driver);
    cause_note("%s", cause);
}

int device_event_finish(struct device_event *event, int r, struct device_event **ret)
{
    struct device *device = event->device;
    if (r == 0)
        r = DRIVER_CALL(device->driver, cuEventRecord, event->event, device->side);
    if (r == 0) {
        *ret = event;
        return 0;
    }
    settle_device(device);
    device_event_free(event);
    return r;
}

/* Orders future work of `after` behind the work so far of `before`. The event may be recorded again
 * as soon as the other stream has been told to wait for it. */
static int device_order_streams(struct device *device, CUstream before, CUstream after)
{
    struct device_event *event;
    TRY(device_event_take(device, &event));
    int r = DRIVER_CALL(device->driver, cuEventRecord, event->event, before);
    if (r == 0)
        r = DRIVER_CALL(device->driver, cuStreamWaitEvent, after, event->event, 0);
    device_event_free(event);
    return r;
}

/* A capture records calls without running them: an event in it has no meaning, and a wait would
 * become part of the graph. */
static int check_not_capturing(struct device *device, CUstream stream)
{
    CUstreamCaptureStatus status = DRIVER_CAPTURE_STATUS_NONE;
    int r = DRIVER_CALL(device->driver, cuStreamIsCapturing, stream, &status);
    if (r < 0 || status == DRIVER_CAPTURE_STATUS_NONE)
        return r;
    cause_note("a CUDA graph is captured on this stream");
    return -EBUSY;
}

/* Orders the side stream behind the work so far of `stream`, or `stream` behind the side stream. */
static int order_with(struct device *device, uint64_t stream, bool side_is_behind)
{
    CUstream other = (CUstream)(uintptr_t)stream;
    CUstreamCaptureMode mode;
    TRY(driver_enter(device->driver, device->context, &mode));
    int r = check_not_capturing(device, other);
    if (r == 0)
        r = side_is_behind ? device_order_streams(device, other, device->side)
                           : device_order_streams(device, device->side, other);
    return driver_leave(device->driver, mode, r);
}

int device_after_producer(struct device *device, uint64_t stream)
{
    return order_with(device, stream, true);
}

int device_order_behind(struct device *device, uint64_t stream)
{
    return order_with(device, stream, false);
}

static int enqueue_copy(struct device *device, void *host, uint64_t address, size_t bytes,
                        struct device_event **ret)
{
    struct device_event *event;
    TRY(device_event_take(device, &event));
    return device_event_finish(
        event, DRIVER_CALL(device->driver, cuMemcpyDtoHAsync, host, address, bytes, device->side),
        ret);
}

/* An enqueued copy has its event even if leaving the context failed: then the next call fails the
 * save. */
int device_copy(struct device *device, void *host, uint64_t address, size_t bytes,
                struct device_event **ret)
{
    CUstreamCaptureMode mode;
    TRY(driver_enter(device->driver, device->context, &mode));
    int r = enqueue_copy(device, host, address, bytes, ret);
    (void)driver_leave(device->driver, mode, r);
    return r;
}

static int query_event(struct device_event *event)
{
    struct device_driver *driver = event->device->driver;
    CUstreamCaptureMode mode;
    TRY(driver_enter(driver, event->device->context, &mode));
    CUresult code = driver->calls.cuEventQuery(event->event);
    int r = code == DRIVER_SUCCESS     ? 1
            : code == DRIVER_NOT_READY ? 0
                                       : driver_result(driver, "cuEventQuery", code);
    (void)driver_leave(driver, mode, r < 0 ? r : 0);
    return r;
}

int device_event_done(struct device_event *event)
{
    int r = query_event(event);
    if (r < 0 && r != -ECHILD)
        settle_device(event->device);
    return r;
}
