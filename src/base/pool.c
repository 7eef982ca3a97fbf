// SPDX-License-Identifier: Apache-2.0
#include "base/pool.h"

#include <signal.h>

#include "base/lock.h"

int thread_start(pthread_t *ret_thread, const char *name, void *(*start)(void *), void *arg)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    int r = pthread_create(ret_thread, NULL, start, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return -r;
    (void)pthread_setname_np(*ret_thread, name);
    return 0;
}

struct job {
    void (*fn)(void *arg);
    void *arg;
};

struct pool {
    void (*prepare)(void *arg);
    void *prepare_arg;
    /* Each job wakes one thread: waking all would cost more than many jobs take. */
    pthread_cond_t queued, left, idle;
    unsigned queue_max;
    unsigned thread_count;
    pthread_t *threads;
    struct {
        struct cairn_mutex lock;
        struct job *queue; /* ring of queue_max */
        unsigned head, queued, running;
        bool stopping;
    } locked;
};

static void *pool_main(void *arg)
{
    struct pool *pool = arg;
    if (pool->prepare)
        pool->prepare(pool->prepare_arg);
    mutex_lock(&pool->locked.lock);
    for (;;) {
        while (pool->locked.queued == 0 && !pool->locked.stopping)
            (void)mutex_wait(&pool->locked.lock, &pool->queued, -1);
        if (pool->locked.queued == 0)
            break;
        struct job job = pool->locked.queue[pool->locked.head];
        pool->locked.head = (pool->locked.head + 1) % pool->queue_max;
        pool->locked.queued--;
        pool->locked.running++;
        (void)pthread_cond_signal(&pool->left);
        mutex_unlock(&pool->locked.lock);
        job.fn(job.arg);
        mutex_lock(&pool->locked.lock);
        pool->locked.running--;
        if (pool->locked.queued == 0 && pool->locked.running == 0)
            (void)pthread_cond_broadcast(&pool->idle);
    }
    mutex_unlock(&pool->locked.lock);
    return NULL;
}

int pool_new(const char *name, unsigned threads, unsigned queue_max, void (*prepare)(void *arg),
             void *prepare_arg, struct pool **ret_pool)
{
    struct pool *pool = xcalloc(1, sizeof *pool);
    pool->prepare = prepare;
    pool->prepare_arg = prepare_arg;
    pool->queue_max = queue_max;
    pool->threads = xcalloc(threads, sizeof *pool->threads);
    pool->locked.queue = xcalloc(queue_max, sizeof *pool->locked.queue);
    mutex_init(&pool->locked.lock, LOCK_QUEUE);
    cond_init(&pool->queued);
    cond_init(&pool->left);
    cond_init(&pool->idle);
    for (; pool->thread_count < threads; pool->thread_count++) {
        int r = thread_start(&pool->threads[pool->thread_count], name, pool_main, pool);
        if (r < 0) {
            pool_free(pool);
            return r;
        }
    }
    *ret_pool = pool;
    return 0;
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    mutex_lock(&pool->locked.lock);
    pool->locked.stopping = true;
    (void)pthread_cond_broadcast(&pool->queued);
    mutex_unlock(&pool->locked.lock);
    for (unsigned i = 0; i < pool->thread_count; i++)
        (void)pthread_join(pool->threads[i], NULL);
    mutex_done(&pool->locked.lock);
    (void)pthread_cond_destroy(&pool->queued);
    (void)pthread_cond_destroy(&pool->left);
    (void)pthread_cond_destroy(&pool->idle);
    free(pool->locked.queue);
    free(pool->threads);
    free(pool);
}

void pool_submit(struct pool *pool, void (*job)(void *arg), void *arg)
{
    LOCK_SCOPE(&pool->locked.lock);
    while (pool->locked.queued == pool->queue_max)
        (void)mutex_wait(&pool->locked.lock, &pool->left, -1);
    unsigned at = (pool->locked.head + pool->locked.queued) % pool->queue_max;
    pool->locked.queue[at] = (struct job){job, arg};
    pool->locked.queued++;
    (void)pthread_cond_signal(&pool->queued);
}

void pool_drain(struct pool *pool)
{
    LOCK_SCOPE(&pool->locked.lock);
    while (pool->locked.queued > 0 || pool->locked.running > 0)
        (void)mutex_wait(&pool->locked.lock, &pool->idle, -1);
}

#define LARGE (2 * MIB) /* in huge pages */

struct buffers {
    void *memory[THREAD_BUFFER_SLOTS];
    size_t size[THREAD_BUFFER_SLOTS];
};

static pthread_key_t buffers_key;
static pthread_once_t buffers_once = PTHREAD_ONCE_INIT;

static void buffers_free(void *arg)
{
    struct buffers *buffers = arg;
    for (size_t i = 0; i < THREAD_BUFFER_SLOTS; i++)
        free(buffers->memory[i]);
    free(buffers);
}

static void buffers_make_key(void)
{
    check(pthread_key_create(&buffers_key, buffers_free) == 0);
}

void *thread_buffer(enum thread_buffer_slot slot, size_t size)
{
    check(pthread_once(&buffers_once, buffers_make_key) == 0);
    struct buffers *buffers = pthread_getspecific(buffers_key);
    if (!buffers) {
        buffers = xcalloc(1, sizeof *buffers);
        check(pthread_setspecific(buffers_key, buffers) == 0);
    }
    if (buffers->size[slot] < size) {
        free(buffers->memory[slot]);
        buffers->memory[slot] = size >= LARGE ? xmalloc_large(size) : xmalloc(size);
        buffers->size[slot] = size;
    }
    return buffers->memory[slot];
}
