// SPDX-License-Identifier: Apache-2.0
/* Devices: copies from the memory of GPUs into host memory, and fingerprints of that memory, by the
 * CUDA driver that the process already uses.
 *
 * The driver (libcuda.so.1) is found in the process, never loaded; cuInit is never called and no
 * context is created. Each device has a side stream of the lowest priority, on which all calls here
 * work; only events order it with the streams of the caller.
 *
 * Errors: -EBUSY if a stream captures a graph. -EIO: the driver's context is dead (e.g. by an
 * illegal address in some kernel): no call here reaches the driver any more, and registered memory
 * must stay mapped. -ECHILD: after fork. -ENOMEM, -EINVAL (a bad address or stream), -ENODEV,
 * -ENOTSUP. The cause contains the driver's own name of the error. Any thread, several at once,
 * except device_close(). A function waits for a device only if its comment says so. */
#pragma once

#include "base/base.h"
#include "client/fingerprint.h"

struct device_driver;
struct device;
struct device_event;

/* Returns the driver of this process; it is never freed. -ENODEV: none is loaded, nothing has
 * initialized it, or the library was built without CUDA. */
CAIRN_MUST_CHECK int device_driver_get(struct device_driver **ret);

/* Registers faulted-in pages as targets of asynchronous copies, for all devices: in chunks of at
 * most 1 GiB, multiples of `piece` (the caller copies into one piece at a time: a copy must not
 * cross chunks). If the driver refuses a chunk, its halves are tried; in the end the first
 * *ret_bytes are registered. Copies into the rest are correct, but block. Returns 0 unless nothing
 * was registered. Blocks: about 0.1 s per GB. */
CAIRN_MUST_CHECK int device_register(struct device_driver *driver, void *memory, size_t bytes,
                                     size_t piece, size_t *ret_bytes);

/* Unregisters all chunks of that range; call before it is unmapped, after the last copy into it. An
 * error: the range must stay mapped. */
CAIRN_MUST_CHECK int device_unregister(struct device_driver *driver, void *memory, size_t bytes);

/* -ENODEV: no such device, or it has no primary context. */
CAIRN_MUST_CHECK int device_open(struct device_driver *driver, int ordinal, struct device **ret);

/* Waits for enqueued work. All events must be freed before. NULL: does nothing. */
void device_close(struct device *device);

/* Orders the side stream's next work after the work enqueued so far in `stream`, a CUstream, or
 * 0. */
CAIRN_MUST_CHECK int device_after_producer(struct device *device, uint64_t stream);

/* Enqueues the copy of `bytes` from `address` on. The event is done when the bytes are in
 * `host`. */
CAIRN_MUST_CHECK int device_copy(struct device *device, void *host, uint64_t address, size_t bytes,
                                 struct device_event **ret);

/* Enqueues the fingerprint of a range. -ENOTSUP: no kernel for this device, or the range is too
 * long. -EAGAIN: too many in progress, free events first. */
CAIRN_MUST_CHECK int device_fingerprint(struct device *device, uint64_t address, size_t bytes,
                                        const struct fingerprint_key *key,
                                        struct device_event **ret);
#define DEVICE_FINGERPRINTS_MAX 64 /* events per device at a time */

/* 1: done. 0: not yet. Else -errno: it is unknown whether the bytes arrived, but nothing writes to
 * that memory any more (this may require a wait, or giving up the driver). */
CAIRN_MUST_CHECK int device_event_done(struct device_event *event);

/* The result of a finished device_fingerprint(). */
struct fingerprint device_event_fingerprint(const struct device_event *event);

/* Call when the event is done, or has failed: until then the driver may write to the target of a
 * copy. NULL: does nothing. */
void device_event_free(struct device_event *event);

/* The fence: orders future work of `stream` after everything enqueued here so far. The host does
 * not wait. */
CAIRN_MUST_CHECK int device_order_behind(struct device *device, uint64_t stream);
