// SPDX-License-Identifier: Apache-2.0
/* Devices: copies from the memory of GPUs into host memory, and fingerprints of it, by the CUDA
 * driver that the process uses already.
 *
 * The driver (libcuda.so.1) is found in the process, never loaded; cuInit is never called and no
 * context is made. Each device has a side stream of the lowest priority, on which all calls here
 * work; only events order it with the streams of the caller.
 *
 * Errors: -EBUSY where a stream captures a graph. -EIO: the driver's context is dead (e.g. by an
 * illegal address in some kernel): no call here reaches the driver any more, and registered memory
 * has to stay mapped. -ECHILD: after fork. -ENOMEM, -EINVAL (a bad address or stream), -ENODEV,
 * -ENOTSUP. The cause has the driver's own name of the error. Any thread, several at once, but for
 * device_close(). Nothing here waits for a device but where it says so. */
#pragma once

#include "base/base.h"
#include "client/fingerprint.h"

struct device_driver;
struct device;
struct device_event;

/* The driver of this process, borrowed, for good. -ENODEV: none is loaded, nothing has initialized
 * it, or the library was built without. */
CAIRN_MUST_CHECK int device_driver_get(struct device_driver **ret);

/* Makes pages that are faulted in a target of asynchronous copies, for all devices: chunks of at
 * most 1 GiB, multiples of `piece` (the caller copies into one piece at a time: a copy must not
 * cross chunks). Where the driver refuses one, halves of it are tried; *ret_bytes from the front
 * are registered in the end, the rest is not: copies into it are right, but block. 0, unless
 * nothing was registered. Blocks: some 0.1 s a GB. */
CAIRN_MUST_CHECK int device_register(struct device_driver *driver, void *memory, size_t bytes,
                                     size_t piece, size_t *ret_bytes);

/* All chunks of that range; before it is unmapped, after the last copy into it. An error: it has to
 * stay mapped. */
CAIRN_MUST_CHECK int device_unregister(struct device_driver *driver, void *memory, size_t bytes);

/* -ENODEV: no such device, or it has no primary context. */
CAIRN_MUST_CHECK int device_open(struct device_driver *driver, int ordinal, struct device **ret);

/* Waits for enqueued work. All events have to be freed before. NULL: nothing. */
void device_close(struct device *device);

/* Orders the side stream's next work behind the work so far of `stream`, a CUstream, or 0. */
CAIRN_MUST_CHECK int device_after_producer(struct device *device, uint64_t stream);

/* Enqueues the copy of `bytes` from `address` on. The event is done when they are in `host`. */
CAIRN_MUST_CHECK int device_copy(struct device *device, void *host, uint64_t address, size_t bytes,
                                 struct device_event **ret);

/* Enqueues the fingerprint of a range. -ENOTSUP: without a kernel for this device, or too long.
 * -EAGAIN: too many under way, free events first. */
CAIRN_MUST_CHECK int device_fingerprint(struct device *device, uint64_t address, size_t bytes,
                                        const struct fingerprint_key *key,
                                        struct device_event **ret);
#define DEVICE_FINGERPRINTS_MAX 64 /* events of a device at a time */

/* 1: done. 0: not yet. Else -errno: whether the bytes came is not known, but nothing writes that
 * memory any more (it may have to wait for that, or gives the driver up). */
CAIRN_MUST_CHECK int device_event_done(struct device_event *event);

/* The result of device_fingerprint(), when it is done. */
struct fingerprint device_event_fingerprint(const struct device_event *event);

/* When it is done, or failed: the memory that a copy writes belongs to the driver until then. NULL:
 * nothing. */
void device_event_free(struct device_event *event);

/* The fence: the coming work of `stream` comes after all that was enqueued here so far. The host
 * does not wait. */
CAIRN_MUST_CHECK int device_order_behind(struct device *device, uint64_t stream);
