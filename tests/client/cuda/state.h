// SPDX-License-Identifier: Apache-2.0
/* Inside of the stand-in. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "standin.h"

/* Until the enclosing block ends. */
static inline pthread_mutex_t *hold(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    return lock;
}

static inline void let_go(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}

#define HOLD(lock) __attribute__((cleanup(let_go), unused)) pthread_mutex_t *held = hold(lock)

#define ALIVE 0x57414e44u

struct CUctx_st {
    int device;
    _Atomic int retained;
};

enum op_kind { OP_TO_HOST, OP_TO_DEVICE, OP_FILL, OP_KERNEL, OP_RECORD, OP_WAIT };

struct op {
    struct op *next;
    enum op_kind kind;
    CUdeviceptr device;
    void *host; /* of OP_TO_DEVICE: a copy, freed */
    size_t bytes;
    unsigned value;
    struct mark *mark; /* of OP_RECORD and OP_WAIT; the operation has a reference */
    unsigned grid;
    uint64_t arguments[4];
};

struct CUstream_st {
    _Atomic unsigned alive;
    CUcontext context;
    struct CUstream_st *next; /* of all */
    pthread_t thread;
    uint64_t rng; /* the thread's own */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct op *head, **tail;
        uint64_t given, done;
        bool ending;
        bool capturing, broken;
        CUstreamCaptureMode mode;
        pthread_t capturer;
    } locked;
};

/* One record of an event: a wait for it is not released by a later one. */
struct mark {
    _Atomic unsigned references;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached; /* by lock */
};

struct CUevent_st {
    _Atomic unsigned alive;
    CUcontext context;
    struct CUevent_st *next; /* of all */
    struct {
        pthread_mutex_t lock;
        struct mark *mark; /* of the last record; NULL: never recorded, which counts as reached */
        bool captured;
    } locked;
};

/* standin.c */
/* Begins a call of the driver; another result than 0 is the call's answer. `needs_context`: a
 * context is current. */
CUresult enter(const char *call, bool needs_context);
/* The name that cuda.h has for an exported one. */
const char *call_name(const char *function);
#define ENTER(needs_context)                                                                       \
    do {                                                                                           \
        CUresult entered_ = enter(call_name(__func__), needs_context);                             \
        if (entered_ != DRIVER_SUCCESS)                                                            \
            return entered_;                                                                       \
    } while (0)
#define ENTER_UNSAFE()                                                                             \
    ENTER(true);                                                                                   \
    if (capture_forbids())                                                                         \
    return DRIVER_STREAM_CAPTURE_UNSUPPORTED
/* Finds a default stream by its number; false: of another context. */
bool stream_find(CUstream *stream);
/* Gives to the stream, or to the graph that it captures (which is not launched). */
void give(CUstream stream, const struct op *op);
CUresult fail_execution(void); /* 0, or the injected error, which stays */

/* knobs.c */
/* Counts the call and waits while it is held; what it is to fail with, or 0. */
CUresult call_begins(const char *call);
/* Counts down what is to fail; its code, or 0. */
CUresult injected(const char *call);
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
unsigned delay_max_us(void);
double pace_rate(void);
uint64_t pace_seed(void);

/* memory.c: host memory that is registered, memory of devices */
CUresult register_host(void *memory, size_t bytes);
CUresult unregister_host(void *memory);
enum where {
    PAGEABLE,
    REGISTERED,
    CROSSING
}; /* CROSSING: partly registered, or in two registrations */
enum where where_is(const void *memory, size_t bytes);
CUresult device_alloc(int device, size_t bytes, CUdeviceptr *ret);
CUresult device_free(CUdeviceptr address);
/* Where the bytes are, or NULL if that is not within one allocation. */
char *device_bytes(CUdeviceptr address, size_t bytes);
unsigned memory_end(void); /* number of what was not taken back; takes it back */

/* streams.c */
CUstream stream_make(CUcontext context);
CUstream stream_default(CUcontext context, uintptr_t which);
void stream_end(CUstream stream);
void stream_give(CUstream stream, const struct op *op);
void stream_wait(CUstream stream); /* until all that it was given is done */
void streams_wait(CUcontext context);
bool capture_forbids(void); /* whether a call that is unsafe during captures is forbidden to this
                               thread; such captures are broken then */
CUstreamCaptureMode capture_mode_exchange(CUstreamCaptureMode mode);
CUevent event_make(CUcontext context);
void event_end(CUevent event);
struct mark *event_record(CUevent event,
                          bool captured); /* two references: the event's and the caller's */
struct mark *event_mark(CUevent event);   /* a reference, or NULL */
bool event_is_captured(CUevent event);
bool mark_is_reached(struct mark *mark);
void mark_wait(struct mark *mark);
void mark_drop(struct mark *mark);
unsigned streams_end(void);

/* kernels.c: modules, and the kernels of src/client/kernels for the host */
bool kernel_run(const struct op *op); /* false: it went outside of the memory */
