// SPDX-License-Identifier: Apache-2.0
/* Many threads on one small store, through fs/ and without FUSE: for races, with the thread
 * sanitizer, and for wrong answers, with or without one.
 *
 *   stress [SECONDS [SEED]]
 *
 * Three sessions; the first two end with the stage full of what is not durable, the last drains.
 * After each the store is opened again, and every worker looks for its files; at the end fsck must
 * find nothing. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "workers.h"

#define SESSIONS 3u

static const struct {
    const char *name;
    void (*run)(struct worker *w, struct file *file);
    unsigned weight;
} steps[] = {
    {"write", private_write, 40},      {"read", private_read, 20},
    {"truncate", private_truncate, 6}, {"allocate", private_allocate, 6},
    {"sync", private_sync, 4},         {"reopen", private_reopen, 10},
    {"link", private_link, 4},         {"unlink", private_unlink, 4},
    {"rename", private_rename, 8},     {"copy", private_copy, 6},
    {"xattr", private_xattr, 8},       {"stat", private_stat, 6},
    {"list", private_list, 4},
};

static void take_answer(const struct fetch_answer *answer, void *arg)
{
    struct worker *w = arg;
    size_t done = 0;
    for (size_t i = 0; i < answer->iov_count; i++) {
        memcpy(w->buf + done, answer->iov[i].iov_base, answer->iov[i].iov_len);
        done += answer->iov[i].iov_len;
    }
    w->got = answer->error < 0 ? answer->error : (ssize_t)done;
    expect(w->fixture, done == answer->length, "a read of %zu bytes has %zu", answer->length, done);
    (void)sem_post(&w->answered);
}

ssize_t worker_read(struct worker *w, uint64_t ino, uint64_t offset, size_t length)
{
    struct fetch_read_request request = {
        .ino = ino, .offset = offset, .length = length, .reply = take_answer, .arg = w};
    fs_read(w->fixture->fs, &request, false);
    (void)sem_wait(&w->answered);
    return w->got;
}

/* Large payloads come in a slab, as if they had been received into it. */
int worker_write(struct worker *w, uint64_t ino, uint64_t offset, uint32_t length)
{
    struct stage *stage = store_stage(w->fixture->store);
    uint32_t slab = length >= STAGE_STEAL_MIN ? stage_slab_take(stage, NULL) : SLAB_NONE;
    const struct fs_write change = {
        .ino = ino, .offset = offset, .length = length, .slab = slab, .data = w->buf};
    int r;
    if (slab != SLAB_NONE)
        memcpy((uint8_t *)stage_slab_memory(stage, slab) + SLAB_PAYLOAD_OFFSET, w->buf, length);
    do
        r = fs_write(w->fixture->fs, &change, &w->caller);
    while (must_repeat(w->fixture, r));
    if (r < 0 && slab != SLAB_NONE)
        stage_slab_give(stage, slab);
    expect(w->fixture, r == 0 || r == -ENOSPC, "writing what is open: %s", strerror(-r));
    return r;
}

void worker_forget(struct worker *w, uint64_t ino)
{
    int r;
    do
        r = fs_forget(w->fixture->fs, ino);
    while (must_repeat(w->fixture, r));
    EXPECT_OK(w, r, "forgetting");
}

static void step(struct worker *w)
{
    unsigned total = 0;
    for (unsigned i = 0; i < ARRAY_LEN(steps); i++)
        total += steps[i].weight;
    unsigned pick = (unsigned)below(&w->rng, total), i = 0;
    for (; pick >= steps[i].weight; i++)
        pick -= steps[i].weight;
    w->doing = steps[i].name;
    steps[i].run(w, &w->files[below(&w->rng, FILES)]);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    if (!w->files[0].bytes)
        private_make(w);
    while (!atomic_load(&w->fixture->stop)) {
        if (below(&w->rng, 4))
            step(w);
        else
            shared_step(w);
        atomic_fetch_add(&w->fixture->ops, 1);
    }
    w->doing = "the end";
    for (unsigned i = 0; i < FILES; i++)
        private_close(w, &w->files[i]);
    return NULL;
}

static void run_session(struct fixture *fixture, struct worker *workers, double seconds)
{
    pthread_t threads[WORKERS], observer;
    atomic_store(&fixture->stop, false);
    for (unsigned i = 0; i < WORKERS; i++)
        expect(fixture, pthread_create(&threads[i], NULL, work, &workers[i]) == 0, "no thread");
    expect(fixture, pthread_create(&observer, NULL, observe, fixture) == 0, "no thread");
    struct timespec length = {.tv_sec = (time_t)seconds,
                              .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&length, NULL);
    atomic_store(&fixture->stop, true);
    for (unsigned i = 0; i < WORKERS; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_join(observer, NULL);
}

static void verify(struct worker *workers)
{
    for (unsigned i = 0; i < WORKERS; i++)
        if (workers[i].files[0].bytes)
            private_verify(&workers[i]);
}

static void workers_make(struct fixture *fixture, struct worker *workers)
{
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].fixture = fixture;
        workers[i].index = i;
        workers[i].rng = fixture->seed * WORKERS + i;
        workers[i].caller = (struct fs_caller){.uid = i % 2 ? 1000 : 0};
        workers[i].buf = xmalloc(FILE_MAX);
        expect(fixture, sem_init(&workers[i].answered, 0, 0) == 0, "no semaphore");
    }
}

static void workers_free(struct worker *workers)
{
    for (unsigned i = 0; i < WORKERS; i++) {
        for (unsigned j = 0; j < FILES; j++)
            free(workers[i].files[j].bytes);
        free(workers[i].buf);
        (void)sem_destroy(&workers[i].answered);
    }
    free(workers);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)clock_realtime_ns() % 1000000;
    static struct fixture fixture;
    (void)printf("stress: %g seconds, seed %llu\n", seconds, (unsigned long long)seed);
    (void)fflush(stdout);
    fixture_make(&fixture, seed);
    struct worker *workers = xcalloc(WORKERS, sizeof *workers);
    workers_make(&fixture, workers);
    for (unsigned i = 0; i < SESSIONS; i++) {
        fixture_open(&fixture);
        verify(workers);
        run_session(&fixture, workers, seconds / SESSIONS);
        if (i + 1 == SESSIONS)
            fixture_drain(&fixture);
        fixture_close(&fixture);
    }
    fixture_open(&fixture);
    verify(workers);
    fixture_close(&fixture);
    int problems = fixture_fsck(&fixture);
    expect(&fixture, problems == 0, "fsck: %d", problems);
    (void)printf("stress: %llu operations, %llu waits for room, no problem\n",
                 (unsigned long long)atomic_load(&fixture.ops),
                 (unsigned long long)atomic_load(&fixture.waits));
    workers_free(workers);
    fixture_remove(&fixture);
    return 0;
}
