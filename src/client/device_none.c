// SPDX-License-Identifier: Apache-2.0
/* device.h for a library built without CUDA (-Dcuda=disabled): no device is ever opened. */
#include "base/cause.h"
#include "client/device.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

int device_driver_get(struct device_driver **ret)
{
    cause_note("libcairn was built without CUDA");
    return -ENODEV;
}

int device_register(struct device_driver *driver, void *memory, size_t bytes, size_t piece,
                    size_t *ret_bytes)
{
    *ret_bytes = 0;
    return -ENODEV;
}

int device_unregister(struct device_driver *driver, void *memory, size_t bytes)
{
    return 0;
}

int device_open(struct device_driver *driver, int ordinal, struct device **ret)
{
    return -ENODEV;
}

void device_close(struct device *device)
{
}

int device_after_producer(struct device *device, uint64_t stream)
{
    return -ENODEV;
}

int device_copy(struct device *device, void *host, uint64_t address, size_t bytes,
                struct device_event **ret)
{
    return -ENODEV;
}

int device_fingerprint(struct device *device, uint64_t address, size_t bytes,
                       const struct fingerprint_key *key, struct device_event **ret)
{
    return -ENODEV;
}

int device_event_done(struct device_event *event)
{
    return -ENODEV;
}

struct fingerprint device_event_fingerprint(const struct device_event *event)
{
    return (struct fingerprint){0};
}

void device_event_free(struct device_event *event)
{
}

int device_order_behind(struct device *device, uint64_t stream)
{
    return -ENODEV;
}
