// SPDX-License-Identifier: Apache-2.0
/* Loads, by the calls of <cairn/cairn.h>, and their requests. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../expect.h"
#include "client/load.h"

#define SIZE (5 * MIB + 12345)

/* A file of SIZE bytes, of which each tells its place, and a load of it. */
struct fixture {
    char directory[64], path[80];
    uint8_t *bytes;
    cairn_lane *lane;
    cairn_load *load;
};

static struct fixture begin(const struct cairn_load_options *options)
{
    struct fixture f = {.directory = "/tmp/cairn-load-XXXXXX", .bytes = malloc(SIZE)};
    cr_assert(mkdtemp(f.directory) && f.bytes);
    (void)snprintf(f.path, sizeof f.path, "%s/file", f.directory);
    for (size_t i = 0; i < SIZE; i++)
        f.bytes[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + (i >> 16));
    int fd = open(f.path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_i64(write(fd, f.bytes, SIZE), SIZE);
    assert_i64(close(fd), 0);
    assert_i64(cairn_lane_open(NULL, &f.lane), 0);
    assert_i64(cairn_load_open(f.lane, f.path, options, &f.load), 0);
    return f;
}

static void end(struct fixture *f)
{
    cairn_load_free(f->load);
    assert_i64(cairn_lane_close(f->lane), 0);
    cr_assert(unlink(f->path) == 0 && rmdir(f->directory) == 0);
    free(f->bytes);
}

static bool is_zero(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i])
            return false;
    return true;
}

static struct load_batch *plan(const struct cairn_target *targets, size_t count)
{
    struct load_batch *batch;
    assert_i64(load_batch_new(targets, count, UINT64_C(1) << 40, &batch), 0);
    return batch;
}

static void assert_request(const struct load_batch *batch, size_t i, uint64_t offset,
                           unsigned pieces)
{
    assert_u64(batch->requests[i].offset, offset);
    assert_u64(batch->requests[i].count, pieces);
}

Test(load, requests_end_at_steps_of_each_target)
{
    uint8_t *memory = (uint8_t *)64; /* nothing is read */
    struct cairn_target targets[] = {
        {.offset = 5000 + 2 * MIB + 100, .length = 300, .host = memory},
        {.offset = 100, .length = 50, .host = memory},
        {.offset = 5000, .length = 2 * MIB + 100, .host = memory}};
    struct load_batch *batch = plan(targets, 3);
    assert_u64(batch->request_count, 4);
    assert_request(batch, 0, 100, 1);
    assert_request(batch, 1, 5000, 1);
    assert_request(batch, 2, 5000 + MIB, 1);
    assert_request(batch, 3, 5000 + 2 * MIB, 2); /* with the small one behind it */
    cr_assert(batch->requests[3].pieces[1].target == &batch->targets[0]);
    load_batch_free(batch);
}

Test(load, requests_are_bounded)
{
    struct cairn_target targets[100];
    for (size_t i = 0; i < ARRAY_LEN(targets); i++)
        targets[i] = (struct cairn_target){.offset = i * 10, .length = 10, .host = targets};
    struct load_batch *batch = plan(targets, ARRAY_LEN(targets));
    assert_u64(batch->request_count, 2);
    assert_request(batch, 0, 0, LOAD_PIECES_MAX);
    assert_request(batch, 1, LOAD_PIECES_MAX * 10, 100 - LOAD_PIECES_MAX);
    load_batch_free(batch);
    targets[0].length = targets[1].offset = MIB - 4;
    batch = plan(targets, 2); /* together they are longer than a step */
    assert_u64(batch->request_count, 2);
    load_batch_free(batch);
}

/* Targets of all sizes in random order, in several calls, some of the same bytes of the file; no
 * byte beside them changes. */
Test(load, targets_are_filled)
{
    struct cairn_load_options options = {.size = sizeof options, .threads = 3};
    struct fixture f = begin(&options);
    enum { COUNT = 400, ROOM = 2 * MIB + 4096 };
    struct cairn_target targets[COUNT];
    srand(5);
    assert_u64(cairn_load_size(f.load), SIZE);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t length = (uint64_t)rand() % (i % 10 == 0 ? 2 * MIB : 3000);
        targets[i] = (struct cairn_target){
            .offset = (uint64_t)rand() % (SIZE - length),
            .length = length,
            .flags = i % 3 == 0 ? CAIRN_TARGET_FRESH : 0,
            .host = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
        targets[i].host = (uint8_t *)targets[i].host + i;
    }
    for (size_t i = 0; i < COUNT; i += 50)
        assert_i64(cairn_load_get(f.load, targets + i, 50), 0);
    assert_i64(cairn_load_wait(f.load, 77, 123, -1), 0);
    assert_i64(cairn_load_wait(f.load, 0, COUNT, -1), 0);
    for (size_t i = 0; i < COUNT; i++) {
        const struct cairn_target *target = &targets[i];
        uint8_t *bytes = target->host;
        cr_assert(memcmp(bytes, f.bytes + target->offset, target->length) == 0, "target %zu", i);
        size_t behind = i + target->length;
        cr_assert(is_zero(bytes - i, i) && is_zero(bytes + target->length, ROOM - behind),
                  "beside target %zu", i);
        (void)munmap(bytes - i, ROOM);
    }
    end(&f);
}

Test(load, wrong_arguments)
{
    struct fixture f = begin(NULL);
    uint8_t byte = 7;
    struct {
        struct cairn_target target;
        const char *cause;
    } cases[] = {
        {{.offset = SIZE, .length = 1, .host = &byte}, "the file has"},
        {{.offset = UINT64_MAX, .length = 2, .host = &byte}, "the file has"},
        {{.offset = 1, .length = UINT64_MAX, .host = &byte}, "the file has"},
        {{.offset = 0, .length = 1}, "has no memory"},
        {{.offset = 0, .length = 1, .host = &byte, .flags = 2}, "this version"},
        {{.offset = 0, .length = 1, .host = &byte, .reserved = {0, 0, 1}}, "this version"},
        {{.offset = 0, .length = 1, .host = &byte, .reserved32 = 1}, "this version"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cairn_target both[] = {{.length = 1, .host = &byte}, cases[i].target};
        assert_i64(cairn_load_get(f.load, both, 2), -EINVAL);
        cr_assert(strstr(cairn_error(), cases[i].cause), "%s", cairn_error());
    }
    assert_i64(byte, 7);
    assert_i64(cairn_load_wait(f.load, 0, 1, 0), -EINVAL);
    assert_i64(cairn_load_wait(f.load, 0, 0, 0), 0);
    assert_i64(cairn_load_wait(f.load, SIZE_MAX, 2, 0), -EINVAL);
    assert_i64(cairn_load_get(f.load, NULL, 0), 0);
    assert_i64(cairn_load_cancel(f.load), 0); /* nothing is under way: no error */
    assert_i64(cairn_load_get(f.load, &(struct cairn_target){.length = 1, .host = &byte}, 1), 0);
    assert_i64(cairn_load_wait(f.load, 0, 1, -1), 0);
    assert_i64(byte, f.bytes[0]);
    end(&f);
}

Test(load, what_cannot_be_opened)
{
    struct fixture f = begin(NULL);
    struct cairn_load_options many = {.size = sizeof many, .threads = 65},
                              unknown = {.size = sizeof unknown, .flags = 2};
    char fifo[100];
    cairn_load *load = f.load;
    assert_i64(cairn_load_open(f.lane, "/nowhere/file", NULL, &load), -ENOENT);
    cr_assert(!load && strstr(cairn_error(), "/nowhere/file"));
    assert_i64(cairn_load_open(f.lane, f.directory, NULL, &load), -EISDIR);
    assert_i64(cairn_load_open(f.lane, f.path, &many, &load), -EINVAL);
    assert_i64(cairn_load_open(f.lane, f.path, &unknown, &load), -EINVAL);
    (void)snprintf(fifo, sizeof fifo, "%s/fifo", f.directory);
    assert_i64(mkfifo(fifo, 0600), 0);
    assert_i64(cairn_load_open(f.lane, fifo, NULL, &load), -ENOTSUP);
    assert_i64(unlink(fifo), 0);
    cairn_load_free(NULL);
    end(&f);
}

/* The load's error stays; what was filled before stays good. */
Test(load, file_that_ends_too_early)
{
    struct cairn_load_options options = {.size = sizeof options, .threads = 1};
    struct fixture f = begin(&options);
    uint8_t *memory = malloc(SIZE), byte;
    struct timespec times[2];
    struct stat st;
    assert_i64(stat(f.path, &st), 0);
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    assert_i64(cairn_load_get(f.load, &(struct cairn_target){.length = 100, .host = memory}, 1), 0);
    assert_i64(cairn_load_wait(f.load, 0, 1, -1), 0);
    assert_i64(truncate(f.path, 3 * MIB), 0);
    assert_i64(cairn_load_wait(f.load, 0, 1, -1), -EBADMSG);
    cairn_load_free(f.load);
    assert_i64(truncate(f.path, SIZE), 0);
    assert_i64(cairn_load_open(f.lane, f.path, &options, &f.load), 0);
    assert_i64(truncate(f.path, 3 * MIB), 0);
    struct cairn_target targets[] = {{.length = 100, .host = memory},
                                     {.offset = MIB, .length = 4 * MIB, .host = memory + MIB}};
    assert_i64(cairn_load_get(f.load, targets, 2), 0);
    assert_i64(cairn_load_wait(f.load, 0, 2, -1), -EIO);
    cr_assert(strstr(cairn_error(), "ends at 3145728"), "%s", cairn_error());
    assert_i64(truncate(f.path, SIZE), 0);
    assert_i64(utimensat(AT_FDCWD, f.path, times, 0), 0);
    assert_i64(cairn_load_get(f.load, &(struct cairn_target){.length = 1, .host = &byte}, 1), -EIO);
    assert_i64(cairn_load_wait(f.load, 1, 1, -1), -EIO);
    free(memory);
    end(&f);
}

/* Memory that is not there. */
Test(load, target_that_cannot_be_written)
{
    struct fixture f = begin(NULL);
    void *none = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct cairn_target targets[] = {{.length = MIB, .host = none, .flags = CAIRN_TARGET_FRESH}};
    assert_i64(cairn_load_get(f.load, targets, 1), 0);
    assert_i64(cairn_load_wait(f.load, 0, 1, -1), -EFAULT);
    (void)munmap(none, MIB);
    end(&f);
}

/* No read begins after the cancellation; when the wait returns, none is under way. */
Test(load, cancelled)
{
    struct cairn_load_options options = {.size = sizeof options, .threads = 2};
    enum { COUNT = 20000 };
    struct fixture f = begin(&options);
    struct cairn_target *targets = calloc(COUNT, sizeof *targets);
    uint8_t *memory = calloc(COUNT, 4096);
    for (size_t i = 0; i < COUNT; i++) /* with a gap, so each is a read */
        targets[i] = (struct cairn_target){
            .offset = i * 111 + i % 2, .length = 100, .host = memory + i * 4096};
    assert_i64(cairn_load_get(f.load, targets, COUNT), 0);
    assert_i64(cairn_load_wait(f.load, 0, 1, -1), 0);
    assert_i64(cairn_load_cancel(f.load), 0);
    assert_i64(cairn_load_wait(f.load, 0, COUNT, -1), -ECANCELED);
    cr_assert(strstr(cairn_error(), "was cancelled"), "%s", cairn_error());
    assert_i64(cairn_load_wait(f.load, 0, 1, -1), 0); /* it was filled */
    memset(memory, 0, COUNT * 4096ul);
    (void)usleep(50000);
    cr_assert(is_zero(memory, COUNT * 4096ul), "written after the wait");
    free(memory);
    free(targets);
    end(&f);
}

/* A load outlives the handle of its lane; a child can do nothing with it but free its memory. */
Test(load, lane_and_fork)
{
    struct fixture f = begin(NULL);
    uint8_t byte;
    int status;
    struct cairn_target target = {.offset = 9, .length = 1, .host = &byte};
    assert_i64(cairn_load_get(f.load, &target, 1), 0);
    pid_t child = fork();
    if (child == 0) {
        bool ok = cairn_load_wait(f.load, 0, 1, -1) == -ECHILD &&
                  cairn_load_get(f.load, &target, 1) == -ECHILD &&
                  cairn_load_cancel(f.load) == -ECHILD;
        cairn_load_free(f.load);
        _exit(ok && cairn_lane_close(f.lane) == 0 ? 0 : 1);
    }
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
    assert_i64(cairn_lane_close(f.lane), 0);
    assert_i64(cairn_load_wait(f.load, 0, 1, -1), 0);
    assert_i64(byte, f.bytes[9]);
    cairn_load_free(f.load);
    assert_i64(cairn_lane_open(NULL, &f.lane), 0);
    f.load = NULL;
    end(&f);
}
