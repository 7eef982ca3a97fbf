// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "state.h"

#define PART 16384u

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream all_streams; /* by all_lock; ended ones too, so that their use is seen */
static CUevent all_events;
static uint64_t made;
static CUstream defaults[STANDIN_DEVICES][2];
static _Thread_local CUstreamCaptureMode thread_mode; /* GLOBAL is 0 */

static uint64_t next_random(uint64_t *rng)
{
    uint64_t x = *rng += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    (void)nanosleep(&time, NULL);
}

static void loiter(CUstream stream, size_t bytes)
{
    uint64_t random = next_random(&stream->rng);
    unsigned most = delay_max_us();
    if (most > 0 && random % 4 == 0)
        sleep_ns((random >> 8) % most * 1000 + 1);
    else if (random % 4 == 1)
        (void)sched_yield();
    if (pace_rate() > 0)
        sleep_ns((uint64_t)((double)bytes * 1e9 / pace_rate()));
}

/* What arrives in host memory was read some time before: a copy is no moment. */
static void copy_to_host(CUstream stream, const struct op *op)
{
    char part[PART];
    for (size_t at = 0; at < op->bytes; at += PART) {
        size_t length = op->bytes - at < PART ? op->bytes - at : PART;
        const char *from = device_bytes(op->device + at, length);
        if (!from) {
            violation("memory of a device was freed before its copy");
            return;
        }
        memcpy(part, from, length);
        loiter(stream, length);
        memcpy((char *)op->host + at, part, length);
    }
}

static void fill(CUstream stream, const struct op *op)
{
    for (size_t at = 0; at < op->bytes; at += PART) {
        size_t length = op->bytes - at < PART ? op->bytes - at : PART;
        uint32_t *to = (uint32_t *)(void *)device_bytes(op->device + at, length);
        for (size_t i = 0; to && i < length / sizeof *to; i++)
            to[i] = op->value;
        loiter(stream, 0);
    }
}

static void reach(struct mark *mark)
{
    HOLD(&mark->lock);
    mark->reached = true;
    pthread_cond_broadcast(&mark->changed);
}

void mark_wait(struct mark *mark)
{
    HOLD(&mark->lock);
    while (!mark->reached)
        pthread_cond_wait(&mark->changed, &mark->lock);
}

bool mark_is_reached(struct mark *mark)
{
    HOLD(&mark->lock);
    return mark->reached;
}

void mark_drop(struct mark *mark)
{
    if (!mark || atomic_fetch_sub(&mark->references, 1) != 1)
        return;
    (void)pthread_mutex_destroy(&mark->lock);
    (void)pthread_cond_destroy(&mark->changed);
    free(mark);
}

/* After an error that stays, nothing is worked off any more, and nothing waits. */
static void execute(CUstream stream, const struct op *op)
{
    bool dead = fail_execution() != DRIVER_SUCCESS;
    loiter(stream, 0);
    if (op->kind == OP_RECORD)
        reach(op->mark);
    else if (op->kind == OP_WAIT)
        mark_wait(op->mark);
    else if (op->kind == OP_TO_HOST && !dead)
        copy_to_host(stream, op);
    else if (op->kind == OP_TO_DEVICE && !dead && device_bytes(op->device, op->bytes))
        memcpy(device_bytes(op->device, op->bytes), op->host, op->bytes);
    else if (op->kind == OP_FILL && !dead)
        fill(stream, op);
    else if (op->kind == OP_KERNEL && !dead && !kernel_run(op))
        violation("a kernel went outside of the memory of its device");
    if (op->kind == OP_TO_DEVICE)
        free(op->host);
    if (op->kind == OP_RECORD || op->kind == OP_WAIT)
        mark_drop(op->mark);
}

static void *run(void *arg)
{
    CUstream stream = arg;
    pthread_mutex_lock(&stream->locked.lock);
    for (;;) {
        while (!stream->locked.head && !stream->locked.ending)
            pthread_cond_wait(&stream->locked.changed, &stream->locked.lock);
        struct op *op = stream->locked.head;
        if (!op)
            break;
        stream->locked.head = op->next;
        if (!op->next)
            stream->locked.tail = &stream->locked.head;
        pthread_mutex_unlock(&stream->locked.lock);
        execute(stream, op);
        free(op);
        pthread_mutex_lock(&stream->locked.lock);
        stream->locked.done++;
        pthread_cond_broadcast(&stream->locked.changed);
    }
    pthread_mutex_unlock(&stream->locked.lock);
    return NULL;
}

static CUstream make_locked(CUcontext context)
{
    CUstream stream = calloc(1, sizeof *stream);
    stream->context = context;
    stream->rng = pace_seed() + ++made * 0x100000001b3ull;
    pthread_mutex_init(&stream->locked.lock, NULL);
    pthread_cond_init(&stream->locked.changed, NULL);
    stream->locked.tail = &stream->locked.head;
    atomic_store(&stream->alive, ALIVE);
    stream->next = all_streams;
    all_streams = stream;
    if (pthread_create(&stream->thread, NULL, run, stream) != 0)
        abort();
    return stream;
}

CUstream stream_make(CUcontext context)
{
    HOLD(&all_lock);
    return make_locked(context);
}

CUstream stream_default(CUcontext context, uintptr_t which)
{
    HOLD(&all_lock);
    CUstream *stream = &defaults[context->device][which == 2];
    if (!*stream)
        *stream = make_locked(context);
    return *stream;
}

void stream_end(CUstream stream)
{
    atomic_store(&stream->alive, 0);
    pthread_mutex_lock(&stream->locked.lock);
    stream->locked.ending = true;
    pthread_cond_broadcast(&stream->locked.changed);
    pthread_mutex_unlock(&stream->locked.lock);
    (void)pthread_join(stream->thread, NULL);
}

void stream_give(CUstream stream, const struct op *op)
{
    struct op *copy = malloc(sizeof *copy);
    *copy = *op;
    copy->next = NULL;
    HOLD(&stream->locked.lock);
    *stream->locked.tail = copy;
    stream->locked.tail = &copy->next;
    stream->locked.given++;
    pthread_cond_broadcast(&stream->locked.changed);
}

void stream_wait(CUstream stream)
{
    HOLD(&stream->locked.lock);
    uint64_t until = stream->locked.given;
    while (stream->locked.done < until)
        pthread_cond_wait(&stream->locked.changed, &stream->locked.lock);
}

void streams_wait(CUcontext context)
{
    pthread_mutex_lock(&all_lock);
    CUstream first = all_streams;
    pthread_mutex_unlock(&all_lock);
    for (CUstream s = first; s; s = s->next)
        if (s->context == context && atomic_load(&s->alive) == ALIVE)
            stream_wait(s);
}

bool standin_idle(void)
{
    bool idle = true;
    HOLD(&all_lock);
    for (CUstream s = all_streams; s; s = s->next) {
        pthread_mutex_lock(&s->locked.lock);
        idle = idle && s->locked.done == s->locked.given;
        pthread_mutex_unlock(&s->locked.lock);
    }
    return idle;
}

bool capture_forbids(void)
{
    bool forbidden = false;
    HOLD(&all_lock);
    for (CUstream s = all_streams; s && thread_mode != DRIVER_CAPTURE_MODE_RELAXED; s = s->next) {
        pthread_mutex_lock(&s->locked.lock);
        bool ours = s->locked.capturing && pthread_equal(s->locked.capturer, pthread_self());
        bool global = s->locked.capturing && s->locked.mode == 0 && thread_mode == 0;
        if (global || (ours && s->locked.mode != DRIVER_CAPTURE_MODE_RELAXED))
            forbidden = s->locked.broken = true;
        pthread_mutex_unlock(&s->locked.lock);
    }
    return forbidden;
}

CUstreamCaptureMode capture_mode_exchange(CUstreamCaptureMode mode)
{
    CUstreamCaptureMode before = thread_mode;
    thread_mode = mode;
    return before;
}

CUevent event_make(CUcontext context)
{
    CUevent event = calloc(1, sizeof *event);
    event->context = context;
    pthread_mutex_init(&event->locked.lock, NULL);
    atomic_store(&event->alive, ALIVE);
    HOLD(&all_lock);
    event->next = all_events;
    all_events = event;
    return event;
}

void event_end(CUevent event)
{
    atomic_store(&event->alive, 0);
}

struct mark *event_record(CUevent event, bool captured)
{
    struct mark *mark = calloc(1, sizeof *mark);
    pthread_mutex_init(&mark->lock, NULL);
    pthread_cond_init(&mark->changed, NULL);
    atomic_store(&mark->references, 2);
    pthread_mutex_lock(&event->locked.lock);
    struct mark *before = event->locked.mark;
    event->locked.mark = mark;
    event->locked.captured = captured;
    pthread_mutex_unlock(&event->locked.lock);
    mark_drop(before);
    return mark;
}

struct mark *event_mark(CUevent event)
{
    HOLD(&event->locked.lock);
    struct mark *mark = event->locked.mark;
    if (mark)
        atomic_fetch_add(&mark->references, 1);
    return mark;
}

bool event_is_captured(CUevent event)
{
    HOLD(&event->locked.lock);
    return event->locked.captured;
}

unsigned streams_end(void)
{
    unsigned count = 0;
    for (CUstream s = all_streams, next; s; s = next) {
        next = s->next;
        bool is_default = false;
        for (unsigned i = 0; i < STANDIN_DEVICES * 2; i++)
            is_default |= s == defaults[i / 2][i % 2];
        if (atomic_load(&s->alive) == ALIVE) {
            count += !is_default;
            stream_end(s);
        }
        free(s);
    }
    for (CUevent e = all_events, next; e; e = next) {
        next = e->next;
        count += atomic_load(&e->alive) == ALIVE;
        mark_drop(e->locked.mark);
        free(e);
    }
    all_streams = NULL;
    all_events = NULL;
    memset(defaults, 0, sizeof defaults);
    return count;
}
