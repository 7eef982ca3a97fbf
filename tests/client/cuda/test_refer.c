// SPDX-License-Identifier: Apache-2.0
/* CAIRN_SAVE_REFER: what did not change is neither copied nor written again, and every file is
 * right.
 *
 *   test_refer [DIR [TRIAL]] */
#include <cairn/cairn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "trial.h"

#define TENSORS 10u
#define WORDS (512 * 1024u) /* 2 MiB each: pieces of more than one */
#define BYTES (WORDS * 4ull)

static const char *directory = "/tmp";
static _Atomic int refused; /* errno of copy_file_range, -1: half of what is asked */

__attribute__((visibility("default"))) ssize_t
copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t length, unsigned flags)
{
    int how = atomic_load(&refused);
    if (how > 0) {
        errno = how;
        return -1;
    }
    return syscall(SYS_copy_file_range, in, from, out, to,
                   how < 0 && length > 1 ? length / 2 : length, flags);
}

struct model {
    cairn_lane *lane;
    struct gpu gpu;
    uint32_t *host; /* NULL: on the device */
    uint32_t values[TENSORS];
    char path[128];
    unsigned number;
};

static void set(struct model *m, unsigned i, uint32_t value)
{
    m->values[i] = value;
    if (!m->host) {
        expect_ok(cuMemsetD32Async(m->gpu.memory + i * BYTES, value, WORDS, m->gpu.stream));
        return;
    }
    for (size_t at = 0; at < WORDS; at++)
        m->host[i * WORDS + at] = value;
}

static struct model model_make(bool on_host)
{
    struct model m = {0};
    struct cairn_lane_options options = {.size = sizeof options, .ring_bytes = 4 * MIB};
    m.gpu = gpu_make(0, TENSORS * BYTES);
    m.host = on_host ? (uint32_t *)(void *)host_memory(TENSORS * BYTES) : NULL;
    (void)snprintf(m.path, sizeof m.path, "%s/cairn-refer-XXXXXX", directory);
    expect(mkdtemp(m.path), "no directory");
    expect_ok(cairn_lane_open(&options, &m.lane));
    for (unsigned i = 0; i < TENSORS; i++)
        set(&m, i, 100 + i);
    return m;
}

static void name_of(const struct model *m, unsigned number, char ret[160])
{
    (void)snprintf(ret, 160, "%s/step%u.pt", m->path, number);
}

static void check_file(const struct model *m, const char *path, uint64_t first)
{
    char *data = malloc(BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    expect(fd >= 0, "%s", path);
    for (unsigned i = 0; i < TENSORS; i++) {
        expect(pread(fd, data, BYTES, (off_t)(first + i * (BYTES + 64))) == (ssize_t)BYTES,
               "a short file");
        expect(words_that_differ(data, BYTES, m->values[i]) == 0, "tensor %u of %s", i, path);
    }
    (void)close(fd);
    free(data);
}

/* The bytes that it referred to. */
static uint64_t save(struct model *m)
{
    struct cairn_save_options options = {.size = sizeof options, .flags = CAIRN_SAVE_REFER};
    struct cairn_save_progress progress = {.size = sizeof progress};
    struct cairn_source sources[TENSORS];
    char keys[TENSORS][32], path[160];
    cairn_save *save = NULL;
    name_of(m, ++m->number, path);
    for (unsigned i = 0; i < TENSORS; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "layer.%u", i);
        sources[i] =
            (struct cairn_source){.offset = 64 + i * (BYTES + 64), .length = BYTES, .key = keys[i]};
        if (m->host)
            sources[i].host = m->host + i * WORDS;
        else
            sources[i].device_address = m->gpu.memory + i * BYTES,
            sources[i].producer = (uintptr_t)m->gpu.stream;
    }
    expect_ok(cairn_save_begin(m->lane, path, 64 + TENSORS * (BYTES + 64), &options, &save));
    expect_ok(cairn_save_put(save, sources, TENSORS));
    expect_ok(cairn_save_commit(save));
    struct cairn_stream stream = {.device = 0, .stream = (uintptr_t)m->gpu.stream};
    expect_ok(cairn_lane_fence(m->lane, &stream, 1, -1));
    int r = cairn_save_wait(save, CAIRN_PUBLISHED, -1);
    expect(r == 0, "a save: %s", cairn_error());
    expect_ok(cairn_save_progress(save, &progress));
    expect(progress.bytes_copied + progress.bytes_referenced == TENSORS * BYTES,
           "%llu copied, %llu referenced", (unsigned long long)progress.bytes_copied,
           (unsigned long long)progress.bytes_referenced);
    cairn_save_free(save);
    check_file(m, path, 64);
    return progress.bytes_referenced;
}

static void model_done(struct model *m)
{
    char path[160];
    expect_ok(cairn_lane_close(m->lane));
    for (unsigned i = 1; i <= m->number; i++) {
        name_of(m, i, path);
        (void)unlink(path);
    }
    expect_ok(rmdir(m->path));
    gpu_done(&m->gpu);
    if (m->host)
        (void)munmap(m->host, TENSORS * BYTES);
    standin_end();
    expect_no_violation();
}

/* 90 % of a frozen model do not cross the bus, nor are they written again. */
static void frozen(bool on_host)
{
    struct model m = model_make(on_host);
    expect(save(&m) == 0, "the first");
    for (unsigned step = 1; step < 5; step++) {
        set(&m, step % TENSORS, 1000 + step);
        uint64_t referenced = save(&m);
        expect(referenced >= TENSORS * BYTES * 88 / 100, "%llu of %llu were referenced",
               (unsigned long long)referenced, (unsigned long long)(TENSORS * BYTES));
    }
    expect(save(&m) == TENSORS * BYTES, "nothing changed");
    model_done(&m);
}

static void frozen_on_the_device(void)
{
#ifdef CAIRN_KERNELS
    standin_pace(4, 20, 0);
    frozen(false);
#endif
}

static void frozen_on_the_host(void)
{
    frozen(true);
}

static void without_a_kernel(void)
{
    struct model m = model_make(false);
    standin_fail("cuModuleLoadData", 1, DRIVER_NO_BINARY_FOR_GPU);
    expect(save(&m) == 0, "the first");
    set(&m, 3, 7);
    expect(save(&m) == 0, "nothing is known of the first");
    model_done(&m);
}

static void what_the_filesystem_refuses_is_copied(void)
{
    static const int how[] = {EXDEV, EOPNOTSUPP, ENOSYS, -1};
    struct model m = model_make(true);
    expect(save(&m) == 0, "the first");
    for (unsigned i = 0; i < ARRAY_LEN(how); i++) {
        atomic_store(&refused, how[i]);
        set(&m, i, 2000 + i);
        expect(save(&m) > 0, "%d", how[i]);
    }
    model_done(&m);
}

/* As `cp -p FILE x; mv x FILE`. */
static void copy_over(const char *path)
{
    char other[200];
    struct stat st;
    (void)snprintf(other, sizeof other, "%s.x", path);
    int from = open(path, O_RDONLY | O_CLOEXEC),
        to = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    expect_ok(fstat(from, &st));
    for (ssize_t n = 1; n > 0;)
        expect((n = copy_file_range(from, NULL, to, NULL, (size_t)st.st_size, 0)) >= 0, "no copy");
    expect_ok(futimens(to, (struct timespec[]){st.st_atim, st.st_mtim}));
    (void)close(from);
    (void)close(to);
    expect_ok(rename(other, path));
}

/* Changed in place, removed or replaced it is no version of ours any more. */
static void older_files_that_change(void)
{
    char path[160];
    struct model m = model_make(true);
    expect(save(&m) == 0, "the first");
    name_of(&m, 1, path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    (void)usleep(20000); /* the clock of files is coarse */
    expect(pwrite(fd, "another", 7, 5000) == 7, "no write");
    (void)close(fd);
    expect(save(&m) == 0, "a file that was changed is referred to");
    expect(save(&m) == TENSORS * BYTES, "the next one is whole again");
    name_of(&m, 3, path);
    expect_ok(unlink(path));
    expect(save(&m) == 0, "one without a name");
    name_of(&m, 4, path);
    copy_over(path);
    expect(save(&m) == 0, "another file, if of the same bytes");
    expect(save(&m) == TENSORS * BYTES, "and the next");
    model_done(&m);
}

int main(int argc, char **argv)
{
    static const struct trial trials[] = {
        TRIAL(frozen_on_the_device), TRIAL(frozen_on_the_host), TRIAL(without_a_kernel),
        TRIAL(what_the_filesystem_refuses_is_copied), TRIAL(older_files_that_change)};
    directory = argc > 1 ? argv[1] : directory;
    return run_trials(trials, ARRAY_LEN(trials), argc > 2 ? argv[2] : NULL);
}
