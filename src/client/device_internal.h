// SPDX-License-Identifier: Apache-2.0
/* Declarations that device.c and device_fingerprint.c share. */
#pragma once

#include "client/driver.h"

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
