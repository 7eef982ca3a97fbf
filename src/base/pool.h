// SPDX-License-Identifier: Apache-2.0
/* Threads with names, and a pool of them with one bounded queue. */
#pragma once

#include <pthread.h>

#include "base/base.h"

/* Starts a joinable thread called `name` (at most 15 characters); all signals are blocked in it. */
CAIRN_MUST_CHECK int thread_start(pthread_t *ret_thread, const char *name, void *(*start)(void *),
                                  void *arg);

struct pool;

/* Starts `threads` threads named `name`, with a queue of at most `queue_max` jobs. Each first runs
 * `prepare` (may be NULL). */
CAIRN_MUST_CHECK int pool_new(const char *name, unsigned threads, unsigned queue_max,
                              void (*prepare)(void *arg), void *prepare_arg,
                              struct pool **ret_pool);

/* Waits for all jobs, joins the threads. NULL is fine. */
void pool_free(struct pool *pool);

/* Queues a job; blocks while the queue is full. Jobs start in order of submission. */
void pool_submit(struct pool *pool, void (*job)(void *arg), void *arg);

/* Waits until no job is queued or running. */
void pool_drain(struct pool *pool);

/* Returns a buffer of the calling thread, at least `size` bytes, freed when the thread ends. Each
 * use has a slot of its own; a call with a larger size discards the content. */
enum thread_buffer_slot {
    THREAD_BUFFER_ENCODE,
    THREAD_BUFFER_FETCH,
    THREAD_BUFFER_REPLY,
    THREAD_BUFFER_LISTING,
    THREAD_BUFFER_SLOTS
};
void *thread_buffer(enum thread_buffer_slot slot, size_t size);
