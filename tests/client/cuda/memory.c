// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

struct range {
    struct range *next;
    uintptr_t at; /* what callers name */
    size_t bytes;
    char *memory; /* of a device: where the bytes are */
    int device;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct range *registered, *allocated; /* by lock */

static bool overlaps(const struct range *r, uintptr_t at, size_t bytes)
{
    return at < r->at + r->bytes && r->at < at + bytes;
}

static bool is_mapped(uintptr_t at, size_t bytes)
{
    uintptr_t page = at & ~(uintptr_t)4095;
    return msync((void *)page, at + bytes - page, MS_ASYNC) == 0;
}

CUresult register_host(void *memory, size_t bytes)
{
    uintptr_t at = (uintptr_t)memory;
    if (bytes == 0 || !is_mapped(at, bytes))
        return DRIVER_INVALID_VALUE;
    pthread_rwlock_wrlock(&lock);
    CUresult code = DRIVER_SUCCESS;
    for (struct range *r = registered; r; r = r->next)
        if (overlaps(r, at, bytes))
            code = DRIVER_HOST_MEMORY_ALREADY_REGISTERED;
    if (code == DRIVER_SUCCESS) {
        struct range *r = calloc(1, sizeof *r);
        *r = (struct range){.next = registered, .at = at, .bytes = bytes};
        registered = r;
    }
    pthread_rwlock_unlock(&lock);
    return code;
}

CUresult unregister_host(void *memory)
{
    CUresult code = DRIVER_HOST_MEMORY_NOT_REGISTERED;
    pthread_rwlock_wrlock(&lock);
    for (struct range **r = &registered; *r; r = &(*r)->next) {
        struct range *found = *r;
        if (found->at != (uintptr_t)memory)
            continue;
        if (!is_mapped(found->at, found->bytes))
            violation("host memory was unmapped while it was registered");
        *r = found->next;
        free(found);
        code = DRIVER_SUCCESS;
        break;
    }
    pthread_rwlock_unlock(&lock);
    return code;
}

enum where where_is(const void *memory, size_t bytes)
{
    uintptr_t at = (uintptr_t)memory;
    enum where where = PAGEABLE;
    pthread_rwlock_rdlock(&lock);
    for (struct range *r = registered; r; r = r->next)
        if (overlaps(r, at, bytes))
            where = at >= r->at && at + bytes <= r->at + r->bytes ? REGISTERED : CROSSING;
    pthread_rwlock_unlock(&lock);
    return where;
}

/* Two mappings of the same memory: callers have one that cannot be touched. */
CUresult device_alloc(int device, size_t bytes, CUdeviceptr *ret)
{
    size_t size = (bytes + 4095) / 4096 * 4096;
    int fd = memfd_create("device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        abort();
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *named = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)close(fd);
    if (memory == MAP_FAILED || named == MAP_FAILED)
        return DRIVER_OUT_OF_MEMORY;
    struct range *r = calloc(1, sizeof *r);
    *r = (struct range){.at = (uintptr_t)named, .bytes = size, .memory = memory, .device = device};
    pthread_rwlock_wrlock(&lock);
    r->next = allocated;
    allocated = r;
    pthread_rwlock_unlock(&lock);
    *ret = (CUdeviceptr)(uintptr_t)named;
    return DRIVER_SUCCESS;
}

static void unmap(struct range *r)
{
    (void)munmap(r->memory, r->bytes);
    (void)munmap((void *)r->at, r->bytes);
    free(r);
}

CUresult device_free(CUdeviceptr address)
{
    CUresult code = DRIVER_INVALID_VALUE;
    pthread_rwlock_wrlock(&lock);
    for (struct range **r = &allocated; *r && code != DRIVER_SUCCESS;) {
        struct range *found = *r;
        if (found->at != (uintptr_t)address) {
            r = &found->next;
            continue;
        }
        *r = found->next;
        unmap(found);
        code = DRIVER_SUCCESS;
    }
    pthread_rwlock_unlock(&lock);
    return code;
}

char *device_bytes(CUdeviceptr address, size_t bytes)
{
    char *found = NULL;
    uintptr_t at = (uintptr_t)address;
    pthread_rwlock_rdlock(&lock);
    for (struct range *r = allocated; r && !found; r = r->next)
        if (at >= r->at && at + bytes <= r->at + r->bytes)
            found = r->memory + (at - r->at);
    pthread_rwlock_unlock(&lock);
    return found;
}

unsigned memory_end(void)
{
    unsigned count = 0;
    pthread_rwlock_wrlock(&lock);
    while (registered) {
        struct range *r = registered;
        registered = r->next;
        free(r);
        count++;
    }
    while (allocated) {
        struct range *r = allocated;
        allocated = r->next;
        unmap(r);
        count++;
    }
    pthread_rwlock_unlock(&lock);
    return count;
}
