// SPDX-License-Identifier: Apache-2.0
/* Below device.h: the CUDA driver, its functions, its errors as errno, and the context that a
 * thread has during a call (driver.c); devices and events (device.c, device_fingerprint.c). */
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
    /* the error after which the driver is not called any more; DRIVER_SUCCESS: none */
    _Atomic int dead;
    struct {
        struct cairn_mutex lock;
        struct registration *registrations;
    } locked;
};

/* 0, -ECHILD, or -EIO with the cause: whether the driver may be called. */
CAIRN_MUST_CHECK int driver_alive(struct device_driver *driver);

/* Converts the result of a call to 0 or a negative errno, and notes the cause. Some errors end all
 * calls. */
int driver_result(struct device_driver *driver, const char *call, CUresult code);
#define DRIVER_CALL(driver, name, ...)                                                             \
    driver_result(driver, #name, (driver)->calls.name(__VA_ARGS__))

/* Ends all calls: the driver may still write to memory that is not known. */
void driver_give_up(struct device_driver *driver);

/* Around calls: `context` is the thread's, and a capture that another thread has begun neither
 * forbids them nor is ended by them. Each enter that returned 0 has its leave, which keeps `result`
 * unless that is 0 and leaving fails. */
CAIRN_MUST_CHECK int driver_enter(struct device_driver *driver, CUcontext context,
                                  CUstreamCaptureMode *ret_mode);
int driver_leave(struct device_driver *driver, CUstreamCaptureMode mode, int result);

/* The primary context of a device that has one; keeps it until it is released. */
CAIRN_MUST_CHECK int driver_retain(struct device_driver *driver, int ordinal, CUdevice *ret_device,
                                   CUcontext *ret_context);
void driver_release(struct device_driver *driver, CUdevice device);

/* --- devices ------------------------------------------------------------------------------------
 */

struct device_event {
    struct device *device;
    CUevent event;
    struct device_event *next; /* of the free ones */
    int slot;                  /* of a fingerprint's result, -1: none */
    uint64_t length;           /* that it is of */
};

/* Memory and module for fingerprints on the device; the first fingerprint makes them. Used by one
 * thread at a time. */
struct device_prints {
    bool tried;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;                /* one allocation: key, sums, results */
    const struct fingerprint_key *key; /* which was copied there */
    /* host memory, a page; entry i belongs to the event that has slot i */
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
        uint64_t slots; /* bit i: slot i is taken */
        unsigned used;  /* events that the caller has */
    } locked;
};

/* Takes an unused event. With the context entered. */
CAIRN_MUST_CHECK int device_event_take(struct device *device, struct device_event **ret);
/* Records `event` behind enqueued work, whose enqueuing returned `r`; *ret is the event on 0. On an
 * error, perhaps behind the first half of the work, waits for that and frees the event: nothing
 * else would know that the device reads the source still. */
CAIRN_MUST_CHECK int device_event_finish(struct device_event *event, int r,
                                         struct device_event **ret);

/* -ENOTSUP, or another error that stays: no fingerprints on this device. */
void device_prints_done(struct device *device);
