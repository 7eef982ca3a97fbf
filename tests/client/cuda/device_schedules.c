// SPDX-License-Identifier: Apache-2.0
/* A trainer, a lane and GPUs in many seeded schedules: each word of each tensor is the number of
 * the step that wrote it, so each file must be of one step, whatever the devices did meanwhile.
 *
 *   device_schedules [--seed N] [--count N] [--one N]
 *
 * A schedule is one lane and one trainer. Some have a call of the driver fail once; then a save may
 * fail, and its name is absent or the older file, whole. Batches run in processes of their own: an
 * error that stays is the end of a process's CUDA. */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <zlib.h>

#include <cairn/cairn.h>

#include "trial.h"

#define BATCH 25
#define DEVICES_MAX 3
#define TENSORS_MAX 8
#define SAVES_MAX 8
#define NAME "checkpoint"

static uint64_t seed = 1, number; /* of the schedule that runs, for messages */
static _Thread_local uint64_t rng;

static uint64_t below(uint64_t limit)
{
    uint64_t x = rng += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (x ^ x >> 31) % limit;
}

#define EXPECT(what, ...)                                                                          \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            (void)printf("schedule %llu of seed %llu: ", (unsigned long long)number,               \
                         (unsigned long long)seed);                                                \
            expect(what, __VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)

/* The lane's writes are late, too: the ring is full at times, and a piece that is used again too
 * early is seen. libcairn calls this one. */
#ifndef __SANITIZE_THREAD__ /* which has a pwrite of its own, and sees that in another way */
static _Atomic unsigned write_delay_us;
__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *data, size_t length,
                                                      off_t at)
{
    static _Atomic uint64_t calls;
    unsigned most = atomic_load(&write_delay_us);
    rng = atomic_fetch_add(&calls, 1);
    if (most > 0 && below(2) == 0)
        (void)usleep((useconds_t)below(most));
    return syscall(SYS_pwrite64, fd, data, length, at);
}
#endif

struct tensor {
    int device; /* -1: host */
    bool is_frozen;
    uint32_t value; /* what it has, or will have when its stream is there */
    size_t words;
    uint32_t *host;
    CUdeviceptr address;
    char key[32];
};

struct saved {
    cairn_save *save;
    uint32_t values[TENSORS_MAX];
    uint32_t step;
    bool is_zip;
    char name[32];
};

struct fixture {
    char directory[64];
    cairn_lane *lane;
    int devices;
    CUcontext contexts[DEVICES_MAX];
    CUstream streams[DEVICES_MAX];
    struct tensor tensors[TENSORS_MAX];
    size_t tensor_count;
    uint64_t offsets[TENSORS_MAX], bytes; /* of plain files */
    struct saved saves[SAVES_MAX];
    size_t save_count;
    bool fails, fails_for_good, refers;
};

static void quiet(int level, const char *text, void *arg)
{
    (void)level, (void)text, (void)arg;
}

static size_t random_words(void)
{
    static const size_t words[] = {1, 3, 1000, 1024, 5000, 16384, 16385, 40000};
    return words[below(ARRAY_LEN(words))];
}

static void make_devices(struct fixture *w)
{
    w->devices = 1 + (int)below(DEVICES_MAX);
    for (int i = 0; i < w->devices; i++) {
        expect_ok(cuDevicePrimaryCtxRetain(&w->contexts[i], i));
        expect_ok(cuCtxSetCurrent(w->contexts[i]));
        if (below(4) > 0)
            expect_ok(cuStreamCreate(&w->streams[i], 1));
    }
}

static void make_tensors(struct fixture *w)
{
    w->tensor_count = 1 + below(TENSORS_MAX);
    for (size_t i = 0; i < w->tensor_count; i++) {
        struct tensor *t = &w->tensors[i];
        t->device = i > 0 && below(4) == 0 ? -1 : (int)below((uint64_t)w->devices);
        t->words = random_words();
        t->is_frozen = below(3) == 0;
        (void)snprintf(t->key, sizeof t->key, "tensor.%zu", i);
        if (t->device < 0) {
            t->host = calloc(t->words, sizeof *t->host);
        } else {
            expect_ok(cuCtxSetCurrent(w->contexts[t->device]));
            expect_ok(cuMemAlloc_v2(&t->address, t->words * 4));
        }
        w->offsets[i] = w->bytes;
        w->bytes += t->words * 4 + below(3) * 4; /* holes read as zeros */
    }
}

/* What an optimizer does: kernels, and work of the host. After an error that stays the device is of
 * no use to the trainer either. */
static void update(struct fixture *w, uint32_t step)
{
    for (size_t i = 0; i < w->tensor_count; i++) {
        struct tensor *t = &w->tensors[i];
        if (t->is_frozen && step > 1)
            continue;
        t->value = step << 8 | (uint32_t)i;
        if (t->device < 0) {
            for (size_t at = 0; at < t->words; at++)
                t->host[at] = t->value;
            continue;
        }
        expect_ok(cuCtxSetCurrent(w->contexts[t->device]));
        CUresult code = cuMemsetD32Async(t->address, t->value, t->words, w->streams[t->device]);
        EXPECT(code == 0 || w->fails_for_good, "%d", code);
    }
}

static struct cairn_source source_of(const struct fixture *w, size_t i)
{
    const struct tensor *t = &w->tensors[i];
    struct cairn_source source = {.length = t->words * 4,
                                  .key = w->refers ? t->key : NULL,
                                  .flags = below(8) == 0 ? CAIRN_SOURCE_NOW : 0};
    if (t->device < 0) {
        source.host = t->host;
        return source;
    }
    source.device_address = t->address;
    source.device = t->device;
    source.producer = (uintptr_t)w->streams[t->device];
    return source;
}

static int save_plain(struct fixture *w, const char *path, const struct cairn_save_options *options,
                      cairn_save **ret)
{
    struct cairn_source sources[TENSORS_MAX];
    size_t first = below(w->tensor_count + 1); /* in two puts */
    int r = cairn_save_begin(w->lane, path, w->bytes, options, ret);
    for (size_t i = 0; i < w->tensor_count; i++) {
        sources[i] = source_of(w, i);
        sources[i].offset = w->offsets[i];
    }
    if (r == 0)
        r = cairn_save_put(*ret, sources, first);
    if (r == 0)
        r = cairn_save_put(*ret, sources + first, w->tensor_count - first);
    if (r == 0)
        r = cairn_save_commit(*ret);
    if (r < 0 && *ret)
        (void)cairn_save_abort(*ret);
    return r;
}

static int save_zip(struct fixture *w, const char *path, const struct cairn_save_options *options,
                    cairn_save **ret)
{
    struct cairn_zip_record records[TENSORS_MAX];
    char names[TENSORS_MAX][32];
    for (size_t i = 0; i < w->tensor_count; i++) {
        (void)snprintf(names[i], sizeof names[i], "data/%zu", i);
        records[i] = (struct cairn_zip_record){.name = names[i], .source = source_of(w, i)};
    }
    return cairn_save_zip(w->lane, path, records, w->tensor_count, NULL, options, ret);
}

static void save(struct fixture *w, uint32_t step)
{
    struct saved *s = &w->saves[w->save_count];
    struct cairn_save_options options = {.size = sizeof options,
                                         .flags = w->refers ? CAIRN_SAVE_REFER : 0};
    char path[128];
    *s = (struct saved){.step = step, .is_zip = below(2) == 0};
    (void)snprintf(s->name, sizeof s->name, below(3) == 0 ? NAME : NAME "-%u", step);
    (void)snprintf(path, sizeof path, "%s/%s", w->directory, s->name);
    for (size_t i = 0; i < w->tensor_count; i++)
        s->values[i] = w->tensors[i].value;
    int r =
        s->is_zip ? save_zip(w, path, &options, &s->save) : save_plain(w, path, &options, &s->save);
    EXPECT(r == 0 || w->fails, "a save: %d, %s", r, cairn_error());
    w->save_count += s->save != NULL;
}

static void fence(struct fixture *w)
{
    struct cairn_stream streams[DEVICES_MAX];
    size_t count = 0;
    for (int i = 0; i < w->devices; i++)
        if (below(5) > 0) /* else the host waits */
            streams[count++] =
                (struct cairn_stream){.device = i, .stream = (uintptr_t)w->streams[i]};
    int r = cairn_lane_fence(w->lane, streams, count, -1);
    EXPECT(r == 0 || w->fails, "a fence: %d, %s", r, cairn_error());
    while (r < 0 &&
           w->fails) /* what failed once does not fail again; a dead driver waits for nothing */
        r = cairn_lane_fence(w->lane, NULL, 0, -1);
}

/* --- what is in the files --------------------------------------------------------------------- */

static char *read_file(const struct fixture *w, const char *name, size_t *ret_size)
{
    char path[128];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", w->directory, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    char *data = malloc((size_t)st.st_size + 1);
    EXPECT(pread(fd, data, (size_t)st.st_size, 0) == st.st_size, "a short read");
    (void)close(fd);
    *ret_size = (size_t)st.st_size;
    return data;
}

static uint64_t le(const char *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = bytes; i-- > 0;)
        value = value << 8 | (uint8_t)at[i];
    return value;
}

/* Where record "data/i" is, its CRC checked. */
static const char *zip_record(const char *data, size_t size, size_t i, size_t length)
{
    const char *end = data + size - 22;
    char name[32];
    (void)snprintf(name, sizeof name, "/data/%zu", i);
    const char *entry = data + le(end + 16, 4);
    for (uint64_t n = le(end + 10, 2); n > 0;
         n--, entry += 46 + le(entry + 28, 2) + le(entry + 30, 2) + le(entry + 32, 2)) {
        size_t name_length = le(entry + 28, 2);
        if (name_length < strlen(name) ||
            memcmp(entry + 46 + name_length - strlen(name), name, strlen(name)) != 0)
            continue;
        const char *local = data + le(entry + 42, 4);
        const char *record = local + 30 + le(local + 26, 2) + le(local + 28, 2);
        EXPECT(le(entry + 24, 4) == length, "a record of another length");
        EXPECT(crc32(0, (const Bytef *)record, (uInt)length) == le(entry + 16, 4),
               "a record that is not of its CRC");
        return record;
    }
    return NULL;
}

static bool is_of(const struct fixture *w, const struct saved *s, const char *data, size_t size)
{
    if (s->is_zip != (size > 4 && memcmp(data, "PK\3\4", 4) == 0))
        return false;
    for (size_t i = 0; i < w->tensor_count; i++) {
        size_t length = w->tensors[i].words * 4;
        const char *at = s->is_zip ? zip_record(data, size, i, length) : data + w->offsets[i];
        if (!at || words_that_differ(at, length, s->values[i]) > 0)
            return false;
    }
    return s->is_zip || size == w->bytes;
}

/* A file that is there is wholly of one of the saves that may have made it. */
static void check_file(const struct fixture *w, const char *name, const struct saved *wanted)
{
    size_t size = 0;
    char *data = read_file(w, name, &size);
    bool found = false;
    EXPECT(data || !wanted, "%s is not there", name);
    for (size_t i = 0; data && i < w->save_count && !found; i++) {
        const struct saved *s = &w->saves[i];
        found = strcmp(s->name, name) == 0 && (!wanted || s == wanted) && is_of(w, s, data, size);
    }
    EXPECT(!data || found, "%s is torn, or of another step", name);
    free(data);
}

static bool is_last_of_name(const struct fixture *w, size_t i)
{
    for (size_t j = i + 1; j < w->save_count; j++)
        if (strcmp(w->saves[j].name, w->saves[i].name) == 0)
            return false;
    return true;
}

static void check_saves(struct fixture *w)
{
    for (size_t i = 0; i < w->save_count; i++) {
        struct saved *s = &w->saves[i];
        int r = cairn_save_wait(s->save, CAIRN_PUBLISHED, -1);
        const char *text = "";
        (void)cairn_save_error(s->save, &text);
        EXPECT(r == 0 || w->fails, "a save failed: %d, %s", r, text);
        EXPECT(r == 0 || text[0], "it failed with %d and no cause", r);
        check_file(w, s->name, r == 0 && is_last_of_name(w, i) ? s : NULL);
        cairn_save_free(s->save);
    }
}

static void take_down(struct fixture *w)
{
    DIR *directory = opendir(w->directory);
    for (struct dirent *e; directory && (e = readdir(directory)) != NULL;) {
        if (e->d_name[0] == '.')
            EXPECT(strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0, "%s is left",
                   e->d_name);
        (void)unlinkat(dirfd(directory), e->d_name, 0);
    }
    (void)closedir(directory);
    (void)rmdir(w->directory);
    for (size_t i = 0; i < w->tensor_count; i++) {
        free(w->tensors[i].host);
        if (w->tensors[i].device >= 0 && !w->fails_for_good) {
            expect_ok(cuCtxSetCurrent(w->contexts[w->tensors[i].device]));
            expect_ok(cuMemFree_v2(w->tensors[i].address));
        }
    }
    for (int i = 0; i < w->devices && !w->fails_for_good; i++) {
        expect_ok(cuCtxSetCurrent(w->contexts[i]));
        if (w->streams[i])
            expect_ok(cuStreamDestroy_v2(w->streams[i]));
        expect_ok(cuDevicePrimaryCtxRelease_v2(i));
    }
}

/* --- a schedule ------------------------------------------------------------------------------- */

static void choose_failure(struct fixture *w, bool may_stay)
{
#define CALL_NAME(name, symbol, parameters) #name,
    static const char *const calls[] = {DRIVER_CALLS(CALL_NAME)};
    if (below(5) > 0)
        return;
    w->fails = true;
    w->fails_for_good = may_stay && below(2) == 0;
    const char *call =
        w->fails_for_good && below(3) == 0 ? "execute" : calls[below(ARRAY_LEN(calls))];
    standin_fail(call, 1 + (unsigned)below(12),
                 w->fails_for_good ? DRIVER_ILLEGAL_ADDRESS : DRIVER_OUT_OF_MEMORY);
}

static void train(struct fixture *w, bool may_stay)
{
    uint32_t steps = 3 + (uint32_t)below(4);
    for (uint32_t step = 1; step <= steps; step++) {
        update(w, step);
        if (step == 2)
            choose_failure(w, may_stay);
        if (w->save_count < SAVES_MAX && below(4) > 0)
            save(w, step);
        if (w->save_count < SAVES_MAX && below(8) == 0)
            save(w, step);
        if (below(3) == 0)
            check_file(w, NAME, NULL);
        if (below(2) == 0)
            (void)usleep((useconds_t)below(2000));
        fence(w);
    }
    update(w, 1000);
}

static void run_schedule(bool may_stay)
{
    static struct fixture worlds; /* one at a time */
    struct fixture *w = &worlds;
    static const uint64_t rings[] = {64 * KIB, 128 * KIB, 512 * KIB, 4 * MIB};
    rng = seed * 1000003 + number;
    *w = (struct fixture){.refers = below(3) == 0};
    standin_pace(rng, (unsigned)below(3) * 15, 0);
#ifndef __SANITIZE_THREAD__
    atomic_store(&write_delay_us, (unsigned)below(3) * 150);
#endif
    (void)snprintf(w->directory, sizeof w->directory, "/dev/shm/cairn-schedule-XXXXXX");
    EXPECT(mkdtemp(w->directory), "no directory");
    struct cairn_lane_options options = {.size = sizeof options,
                                         .ring_bytes = rings[below(ARRAY_LEN(rings))],
                                         .copy_threads = 1 + (uint32_t)below(2),
                                         .log = quiet};
    expect_ok(cairn_lane_open(&options, &w->lane));
    make_devices(w);
    make_tensors(w);
    if (below(4) == 0)
        expect_ok(cairn_lane_prepare(w->lane, options.ring_bytes));
    train(w, may_stay);
    check_saves(w);
    int r = cairn_lane_close(w->lane);
    standin_fail(NULL, 0, 0);
    EXPECT(r == 0 || w->fails, "close: %d", r);
    take_down(w);
    if (w->fails_for_good)
        return;
    standin_end();
    const char *text = standin_violation();
    bool leaks = w->fails && strncmp(text, "leaks", 5) == 0; /* what the driver did not take back */
    EXPECT(text[0] == '\0' || leaks, "the stand-in says: %s", text);
}

static pid_t start_batch(uint64_t first, uint64_t count)
{
    (void)fflush(stdout);
    pid_t child = fork();
    if (child != 0)
        return child;
    expect_ok(cuInit(0));
    for (number = first; number < first + count; number++)
        run_schedule(number == first + count - 1);
    _exit(0);
}

int main(int argc, char **argv)
{
    uint64_t first = 0, count = 1000;
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 0);
        if (strcmp(argv[i], "--seed") == 0)
            seed = value;
        else if (strcmp(argv[i], "--one") == 0)
            first = value, count = 1;
        else
            count = value;
    }
    unsigned failed = 0, running = 0;
    long most = sysconf(_SC_NPROCESSORS_ONLN) * 2;
    for (uint64_t at = first; at < first + count || running > 0;) {
        if (at < first + count && running < (unsigned)most) {
            uint64_t here = min_u64(first + count - at, BATCH);
            expect(start_batch(at, here) > 0, "no process");
            at += here;
            running++;
            continue;
        }
        int status = 0;
        expect(wait(&status) > 0, "no child");
        running--;
        failed += status != 0;
        if (status != 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 1))
            (void)printf("a batch ended with status %d\n", status);
    }
    (void)printf("%llu schedules, seed %llu: %u batches failed\n", (unsigned long long)count,
                 (unsigned long long)seed, failed);
    return failed > 0;
}
