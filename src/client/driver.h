// SPDX-License-Identifier: Apache-2.0
/* Below device.h: the CUDA driver, its functions, its errors as errno, and the current context of a
 * thread during a call (driver.c); devices and events (device.c, device_fingerprint.c). */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/lock.h"
#include "client/cuda.h"
#include "client/device.h"

struct registration;

struct device_driver {
    struct driver_calls calls;
    pid_t pid;
    /* the error after which the driver is no longer called; DRIVER_SUCCESS: none */
    _Atomic int dead;
    struct {
        struct cairn_mutex lock;
        struct registration *registrations;
    } locked;
};

/* May the driver be called? 0, -ECHILD, or -EIO with the cause. */
CAIRN_MUST_CHECK int driver_alive(struct device_driver *driver);

/* Converts the result of a call to 0 or a negative errno, and notes the cause. After some errors
 * the driver is no longer called. */
int driver_result(struct device_driver *driver, const char *call, CUresult code);
#define DRIVER_CALL(driver, name, ...)                                                             \
    driver_result(driver, #name, (driver)->calls.name(__VA_ARGS__))

/* Ends all calls of the driver, when it may still write to memory and nobody knows where. */
void driver_give_up(struct device_driver *driver);

/* Call before and after calls of the driver: makes `context` current in the thread, and ensures
 * that a capture begun by another thread neither forbids the calls nor is ended by them. Each
 * successful enter needs a leave, which returns `result`, unless that is 0 and leaving fails. */
CAIRN_MUST_CHECK int driver_enter(struct device_driver *driver, CUcontext context,
                                  CUstreamCaptureMode *ret_mode);
int driver_leave(struct device_driver *driver, CUstreamCaptureMode mode, int result);

/* Retains the primary context of a device that has one. */
CAIRN_MUST_CHECK int driver_retain(struct device_driver *driver, int ordinal, CUdevice *ret_device,
                                   CUcontext *ret_context);
void driver_release(struct device_driver *driver, CUdevice device);

/* --- devices ---------------------------------------------------------------------------------- */

struct device_event {
    struct device *device;
    CUevent event;
    struct device_event *next; /* next free event */
    int slot;                  /* of a fingerprint's result; -1: none */
    uint64_t length;           /* of the fingerprinted range */
};

/* Memory and module for fingerprints on the device, created by the first fingerprint. Used by one
 * thread at a time. */
struct device_prints {
    bool tried;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;                /* one allocation: key, sums, results */
    const struct fingerprint_key *key; /* the key copied to `memory` */
    /* host memory, a page; entry i belongs to the event with slot i */
    struct fingerprint_sum *results;
    bool is_registered;
};

struct device {
    struct device_driver *driver;
    CUdevice ordinal;
    CUcontext context;
    CUstream side;
    struct device_prints prints;
    struct {
        struct cairn_mutex lock;
        struct device_event *free;
        uint64_t slots; /* bit i: slot i is in use */
        unsigned used;  /* events held by the caller */
    } locked;
};

/* Returns an unused event. Call with the context entered. */
CAIRN_MUST_CHECK int device_event_take(struct device *device, struct device_event **ret);
/* Records `event` after enqueued work; `r` is the result of enqueuing it; *ret is the event if 0 is
 * returned. After an error, perhaps in the middle of the work, waits for the work and frees the
 * event: otherwise nobody would know that the device still reads the source. */
CAIRN_MUST_CHECK int device_event_finish(struct device_event *event, int r,
                                         struct device_event **ret);

/* -ENOTSUP, or another permanent error: no fingerprints on this device. */
void device_prints_done(struct device *device);
