// SPDX-License-Identifier: Apache-2.0
/* Room: what is taken, given up, waited for; pieces; handles. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "../await.h"
#include "../expect.h"
#include "../named.h"
#include "stage/internal.h"
#include "stage_fixture.h"

static _Atomic int room_calls;

static void note_room(void *arg)
{
    (void)arg;
    atomic_fetch_add(&room_calls, 1);
}

static void setup(void)
{
    stage_setup();
    stage_on_room(fixture.stage, note_room, NULL);
}

TestSuite(stage_room, .init = setup, .fini = stage_teardown, .timeout = 600);

/* Of every file in the directory. */
static uint64_t files_bytes(const char *directory)
{
    uint64_t sum = 0;
    DIR *dir = opendir(directory);
    cr_assert_not_null(dir);
    struct stat st;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (entry->d_name[0] != '.' && fstatat(dirfd(dir), entry->d_name, &st, 0) == 0)
            sum += (uint64_t)st.st_size;
    closedir(dir);
    return sum;
}

/* A tmpfs that is too small for the stage asked for: what fits is the stage with all of its files,
 * and nearly all of the room. */
Test(stage_room, size_within_counts_every_file)
{
    expect_u64(stage_size_within(0), 0);
    expect_u64(stage_size_within(33 * MIB), 0);
    for (uint64_t bytes = 36 * MIB; bytes < 800 * MIB; bytes = bytes * 5 / 4) {
        uint64_t size = stage_size_within(bytes);
        cr_assert_geq(size, STAGE_SIZE_MIN);
        struct stage_config config = fixture.config;
        config.size_bytes = size;
        config.name[0] = 1;
        uint64_t before = files_bytes(fixture.dir);
        struct stage *stage;
        assert_i64(stage_create(&config, &stage), 0);
        uint64_t taken = files_bytes(fixture.dir) - before;
        cr_expect_leq(taken, bytes);
        cr_expect_geq(taken + 4 * MIB + bytes / 64, bytes);
        stage_close(stage, true);
    }
}

/* Large writes until there is no room; returns how many. */
static uint64_t fill(uint64_t ino)
{
    _cleanup_free_ uint8_t *data = xmalloc(SLAB_PAYLOAD);
    uint64_t count = 0;
    memset(data, 'f', SLAB_PAYLOAD);
    while (fixture_write(&fixture, ino, count * SLAB_PAYLOAD, data, SLAB_PAYLOAD) == 0)
        count++;
    return count;
}

Test(stage_room, accounts_follow_the_bytes)
{
    fixture_fill(&fixture, 1, 0, 'a', 1000);
    fixture_fill(&fixture, 1, 500, 'b', 1000);
    struct stage_usage usage = stage_usage(fixture.stage);
    expect_u64(usage.dirty_bytes, 1500);
    expect_u64(usage.draft_bytes, 1500);
    expect_u64(usage.drafts, 1);
    fixture_seal(&fixture, 1);
    usage = stage_usage(fixture.stage);
    expect_u64(usage.dirty_bytes, 1500);
    expect_u64(usage.draft_bytes, 0);
    fixture_pin(&fixture, 1);
    fixture_cut(&fixture, 1, 0, UINT64_MAX, 0);
    expect_u64(stage_usage(fixture.stage).dirty_bytes, 1500, "what is pinned stays");
    fixture_done(&fixture, 1);
    expect_u64(stage_usage(fixture.stage).dirty_bytes, 0);
}

Test(stage_room, a_full_stage_says_so_and_tells_when_there_is_room)
{
    uint64_t count = fill(1);
    cr_expect_gt(count, 16);
    _cleanup_free_ uint8_t *data = xcalloc(1, SLAB_PAYLOAD);
    expect_i64(fixture_write(&fixture, 2, 0, data, SLAB_PAYLOAD), -EAGAIN);
    struct stage_file_state state;
    cr_expect_not(stage_file_state(fixture.stage, 2, &state), "nothing happened");
    int before = atomic_load(&room_calls);
    fixture_write_back(&fixture, 1);
    cr_expect_gt(atomic_load(&room_calls), before);
    cr_expect_gt(stage_usage(fixture.stage).clean_bytes, count * MIB);
    expect_i64(fixture_write(&fixture, 2, 0, "a", 1), 0);
}

Test(stage_room, what_is_durable_goes_oldest_first)
{
    uint64_t count = fill(1);
    fixture_write_back(&fixture, 1);
    for (uint64_t i = 0; i < 12; i++)
        fixture_fill(&fixture, 2, i * SLAB_PAYLOAD, 'n', SLAB_PAYLOAD);
    struct stage_part part;
    assert_u64(stage_read(fixture.stage, 1, 0, 10, &part, 1), 1);
    expect_u64(part.kind, PART_BELOW);
    assert_u64(stage_read(fixture.stage, 1, (count - 1) * SLAB_PAYLOAD, 10, &part, 1), 1);
    expect_u64(part.kind, PART_MEMORY);
    stage_unpin_parts(fixture.stage, &part, 1);
    fixture_expect(&fixture, 1, 0, "ffffff");
}

Test(stage_room, what_a_reader_holds_does_not_go)
{
    uint64_t count = fill(1);
    struct stage_part part;
    assert_u64(stage_read(fixture.stage, 1, 0, 10, &part, 1), 1);
    fixture_write_back(&fixture, 1);
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), false), 0);
    for (uint64_t i = 0; i + 1 < count; i++)
        fixture_fill(&fixture, 2, i * SLAB_PAYLOAD, 'n', SLAB_PAYLOAD);
    expect_i64(memcmp(part.memory, "ffffffffff", 10), 0);
    stage_unpin_parts(fixture.stage, &part, 1);
}

Test(stage_room, small_durable_ranges_do_not_use_up_the_table)
{
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 5000; i++)
            fixture_write_ok(&fixture, 1, (uint64_t)(round * 5000 + i) * 7, "x", 1);
        fixture_write_back(&fixture, 1);
    }
}

Test(stage_room, many_small_ranges_that_are_not_durable_wait)
{
    unsigned count = 0;
    while (count < 30000 && fixture_write(&fixture, 1, (uint64_t)count * 7, "x", 1) == 0)
        count++;
    cr_expect_lt(count, 30000);
    const struct stage_change change = {.ino = 2, .time = 5, .below_size = 10};
    expect_i64(stage_erase(fixture.stage, &change, 0, 1, 10), -EAGAIN);
    fixture_write_back(&fixture, 1);
    fixture_write_ok(&fixture, 2, 0, "x", 1);
}

/* A tmpfs of our own over the stage's directory. */
static void mount_own(const char *dir, const char *options)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        cr_skip_test("skipped: mounting needs root");
    if (mount("tmpfs", dir, "tmpfs", 0, options) == 0)
        return;
    int error = errno;
    cr_assert(error == EINVAL && strstr(options, "huge="), "%s: %s", options, strerror(error));
    cr_skip_test("skipped: this kernel gives a tmpfs no huge pages");
}

/* With `bytes` of it taken by others. */
static void mount_small(const char *dir, uint64_t bytes)
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s/other", dir);
    mount_own(dir, "size=64M");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    assert_i64(fallocate(fd, 0, 0, (off_t)bytes), 0);
    (void)close(fd);
}

/* Of memory that the slabs have. */
static uint64_t slabs_bytes(const struct stage_fixture *of)
{
    struct stat st;
    cr_assert(fstat(of->stage->slabs_fd, &st) == 0);
    return (uint64_t)st.st_blocks * 512;
}

/* Nothing is written back here: what waits for a slab would wait for ever. */
Test(stage_room, memory_that_was_scarce_once_is_asked_for_again)
{
    char path[96];
    struct stage_fixture small = {.epoch = 1};
    strcpy(small.dir, fixture.dir);
    small.config = fixture.config;
    mount_small(small.dir, 33 * MIB);
    assert_i64(stage_create(&small.config, &small.stage), 0);
    _cleanup_free_ uint8_t *data = xcalloc(1, SLAB_PAYLOAD);
    uint64_t count = 0, before;
    while (fixture_try_write(&small, 1, count * SLAB_PAYLOAD, data, SLAB_PAYLOAD) == 0)
        count++;
    cr_assert_lt(count, 16, "the tmpfs is full before the stage is");
    /* What did not come for the whole of a slab is others' again. The background may be at it. */
    AWAIT(slabs_bytes(&small) % SLAB_STRIDE == 0, "%llu", (unsigned long long)slabs_bytes(&small));
    (void)snprintf(path, sizeof path, "%s/other", small.dir);
    assert_i64(unlink(path), 0);
    for (unsigned tries = 0; tries < 500 && count < 20; tries++) {
        before = count;
        while (fixture_try_write(&small, 1, count * SLAB_PAYLOAD, data, SLAB_PAYLOAD) == 0)
            count++;
        if (count == before)
            (void)usleep(20000); /* memory is asked for again by the clock */
    }
    cr_expect_geq(count, 20);
    stage_close(small.stage, true);
    assert_i64(umount(small.dir), 0);
}

/* Ten minutes of it in no time. */
static void pass_idle_time(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    stage->locked.last_write -= 601ll * 1000000000;
    (void)pthread_cond_broadcast(&stage->slabs_changed);
}

/* The lowest stay, so that what huge pages there are stay whole. */
Test(stage_room, memory_of_free_slabs_is_given_back_after_a_while)
{
    struct stage *stage = fixture.stage;
    _cleanup_free_ uint8_t *data = xcalloc(1, SLAB_PAYLOAD);
    uint32_t kept = stage->slab_count / 16;
    cr_assert_gt(slabs_bytes(&fixture), (uint64_t)kept * SLAB_STRIDE);
    for (unsigned tries = 0; tries < 500 && slabs_bytes(&fixture) > kept * SLAB_STRIDE; tries++) {
        pass_idle_time(stage);
        (void)usleep(20000); /* a file's blocks go without a signal */
    }
    assert_u64(slabs_bytes(&fixture), (uint64_t)kept * SLAB_STRIDE);
    for (uint32_t slab = 0; slab < stage->slab_count; slab++) {
        bool is_free = stage->locked.slabs[slab].state == SLAB_FREE;
        cr_expect(is_free == (slab < kept), "%u", slab);
    }
    for (unsigned i = 0; i < 8; i++)
        assert_i64(fixture_try_write(&fixture, 1, i * SLAB_PAYLOAD, data, SLAB_PAYLOAD), 0);
}

/* Of the mapping of the slabs, as the kernel tells it. */
static uint64_t huge_bytes(const struct stage_fixture *of)
{
    char line[256], begin[32];
    unsigned long long kib = 0;
    bool is_here = false;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    cr_assert_not_null(smaps);
    (void)snprintf(begin, sizeof begin, "%lx-", (unsigned long)(uintptr_t)of->stage->slab_memory);
    while (kib == 0 && fgets(line, sizeof line, smaps)) {
        is_here = is_here || strncmp(line, begin, strlen(begin)) == 0;
        if (is_here && sscanf(line, "ShmemPmdMapped: %llu kB", &kib) == 1)
            break;
    }
    (void)fclose(smaps);
    return kib * KIB;
}

/* Slabs share huge pages with those beside them, and take no more memory so. */
Test(stage_room, a_tmpfs_that_advises_huge_pages_gives_them)
{
    struct stage_fixture huge = {.epoch = 1};
    strcpy(huge.dir, fixture.dir);
    huge.config = fixture.config;
    mount_own(huge.dir, "huge=advise,size=256M");
    assert_i64(stage_create(&huge.config, &huge.stage), 0);
    for (uint32_t slab = 0; slab < 16; slab++)
        (void)stage_slab_take(huge.stage, NULL);
    cr_expect_geq(huge_bytes(&huge), 12 * MIB);
    cr_expect_leq(slabs_bytes(&huge), 20 * MIB);
    stage_close(huge.stage, true);
    assert_i64(umount(huge.dir), 0);
}

static void *take_slab(void *arg)
{
    *(uint32_t *)arg = stage_slab_take(fixture.stage, NULL);
    return NULL;
}

Test(stage_room, receivers_get_the_reserve_and_then_wait)
{
    fill(1);
    uint32_t slabs[64], count = 0, last;
    while (stage_usage(fixture.stage).free_bytes > 0)
        slabs[count++] = stage_slab_take(fixture.stage, NULL);
    cr_expect_geq(count, 8);
    pthread_t thread;
    assert_i64(pthread_create(&thread, NULL, take_slab, &last), 0);
    stage_slab_give(fixture.stage, slabs[--count]);
    assert_i64(pthread_join(thread, NULL), 0);
    slabs[count++] = last;
    while (count)
        stage_slab_give(fixture.stage, slabs[--count]);
}

Test(stage_room, a_refused_change_opens_no_draft)
{
    while (stage_log_room(fixture.stage) > STAGE_LOG_MARGIN + 400) {
        struct record rec = {.type = REC_SETXATTR,
                             .seq = stage_next_seq(fixture.stage),
                             .ino = 3,
                             NAMED("n"),
                             .value = fixture.dir,
                             .value_len = sizeof fixture.dir};
        assert_i64(stage_log_append(fixture.stage, &rec), 0);
    }
    const struct stage_change fill = {.ino = 1, .time = 5}, change = {.ino = 2, .time = 5};
    while (stage_erase(fixture.stage, &fill, 0, UINT64_MAX, 1) == 0)
        ;
    cr_expect(stage_log_wants_compaction(fixture.stage));
    expect_i64(stage_erase(fixture.stage, &change, 0, UINT64_MAX, 1), -EAGAIN);
    struct stage_chunk_range range = {.length = 5, .pack = 7};
    expect_i64(stage_put_chunk(fixture.stage, &change, &range), -EAGAIN);
    struct stage_file_state state;
    cr_expect_not(stage_file_state(fixture.stage, 2, &state));
    cr_expect(stage_file_state(fixture.stage, 1, &state));
    expect_i64(fixture_compact(&fixture), 0);
    cr_expect_not(stage_log_wants_compaction(fixture.stage));
    expect_i64(stage_erase(fixture.stage, &change, 0, UINT64_MAX, 1), 0);
}

/* --- pieces ----------------------------------------------------------------------------------- */

static size_t first_stretch(uint64_t min_bytes, struct stage_part parts[8], bool *ret_more)
{
    const struct stage_stretch stretch = {1, min_bytes, MIB};
    return stage_draft_stretch(fixture.stage, &stretch, parts, 8, ret_more);
}

Test(stage_room, a_piece_of_a_draft_frees_its_room)
{
    for (uint64_t i = 0; i < 4; i++)
        fixture_fill(&fixture, 1, i * SLAB_PAYLOAD, (char)('a' + (int)i), SLAB_PAYLOAD);
    uint64_t ino;
    cr_assert(stage_largest_draft(fixture.stage, MIB, &ino));
    expect_u64(ino, 1);
    cr_expect_not(stage_largest_draft(fixture.stage, 5 * MIB, &ino));
    expect_u64(fixture_piece(&fixture, 1, 2 * MIB), 2 * MIB);
    expect_u64(stage_usage(fixture.stage).dirty_bytes, 2 * MIB);
    cr_expect(stage_uses_pack(fixture.stage, 100));
    fixture_expect(&fixture, 1, 0, "aaa");
    fixture_expect(&fixture, 1, 2 * MIB - 2, "bbcc");
    fixture_fill(&fixture, 1, 10, 'x', 2);
    fixture_expect(&fixture, 1, 8, "aaxxaa");
    expect_u64(fixture_piece(&fixture, 1, 2 * MIB), 2, "what was written over it comes first");
}

Test(stage_room, what_changed_while_a_piece_was_written_is_kept)
{
    fixture_fill(&fixture, 1, 0, 'a', 300000);
    fixture_fill(&fixture, 1, 300000, 'b', 1000);
    struct stage_part parts[8];
    bool more;
    size_t count = first_stretch(1, parts, &more);
    assert_u64(count, 2);
    cr_expect(more, "the end of the draft may still grow");
    fixture_fill(&fixture, 1, 100, 'x', 50);
    fixture_seal(&fixture, 1);
    fixture_fill(&fixture, 1, 200, 'y', 50);
    struct stage_chunk_range range = {.offset = 0, .length = 301000, .pack = 100};
    fixture.chunks[0] =
        (struct fixture_chunk){.pack = 100, .bytes = xmalloc(301000), .len = 301000};
    memset(fixture.chunks[0].bytes, 'a', 300000);
    memset(fixture.chunks[0].bytes + 300000, 'b', 1000);
    fixture.chunk_count = 1;
    stage_piece_done(fixture.stage, 1, parts, count, &range);
    stage_unpin_parts(fixture.stage, parts, count);
    expect_u64(stage_usage(fixture.stage).dirty_bytes, 100);
    fixture_expect(&fixture, 1, 98, "aaxx");
    fixture_expect(&fixture, 1, 198, "aayy");
    fixture_expect(&fixture, 1, 299998, "aabb");
}

Test(stage_room, a_piece_of_what_is_gone_changes_nothing)
{
    fixture_fill(&fixture, 1, 0, 'a', 1000);
    struct stage_part parts[8];
    bool more;
    size_t count = first_stretch(1, parts, &more);
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), false), 0);
    struct stage_chunk_range range = {.length = 1000, .pack = 100};
    stage_piece_done(fixture.stage, 1, parts, count, &range);
    stage_unpin_parts(fixture.stage, parts, count);
    cr_expect_not(stage_uses_pack(fixture.stage, 100));
    expect_u64(first_stretch(1, parts, &more), 0);
}

Test(stage_room, the_first_run_that_is_long_enough)
{
    fixture_fill(&fixture, 1, 0, 'a', 1000);
    fixture_fill(&fixture, 1, 5000, 'b', 2000);
    fixture_fill(&fixture, 1, 7000, 'c', 3000);
    fixture_fill(&fixture, 1, 20000, 'd', 9000);
    struct stage_part parts[8];
    bool more;
    static const struct {
        uint64_t least, offset;
        size_t count;
    } wanted[] = {{1, 0, 1},       {1000, 0, 1},     {1001, 5000, 2},
                  {5000, 5000, 2}, {5001, 20000, 1}, {9001, 0, 0}};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        size_t count = first_stretch(wanted[i].least, parts, &more);
        expect_u64(count, wanted[i].count, "of %llu bytes", (unsigned long long)wanted[i].least);
        cr_expect(count == 0 || parts[0].offset == wanted[i].offset);
        stage_unpin_parts(fixture.stage, parts, count);
    }
}

/* What is found from the beginning on, by calls that look at one at a time. */
static size_t find(struct stage_scattered *found)
{
    struct stage_scattered cursor = {0};
    size_t count = 0, n;
    do {
        n = stage_find_scattered(fixture.stage, &cursor, found + count, 1);
        count += n;
    } while (cursor.ino != 0);
    return count;
}

/* `meanwhile` happens after the content was read. */
static bool gather(const struct stage_scattered *found, void (*meanwhile)(void))
{
    uint32_t slab = stage_slab_try_take(fixture.stage);
    cr_assert_neq(slab, SLAB_NONE);
    stage_gather_begin(fixture.stage, found);
    fixture_read(&fixture, found->ino, found->offset,
                 (uint8_t *)stage_slab_memory(fixture.stage, slab) + SLAB_PAYLOAD_OFFSET,
                 found->length);
    meanwhile();
    bool gathered = stage_gather(fixture.stage, found, slab);
    if (!gathered)
        stage_slab_give(fixture.stage, slab);
    return gathered;
}

static void nothing(void)
{
}

static void first_byte_is_written(void)
{
    fixture_fill(&fixture, 1, 0, 'y', 1);
}

static void last_byte_is_written(void)
{
    fixture_fill(&fixture, 1, SLAB_PAYLOAD - 1, 'z', 1);
}

static void others_are_written(void)
{
    fixture_fill(&fixture, 1, SLAB_PAYLOAD, 'v', 1);
    fixture_fill(&fixture, 2, 0, 'w', SLAB_PAYLOAD);
}

static void it_is_cut(void)
{
    fixture_cut(&fixture, 1, SLAB_PAYLOAD + 100, UINT64_MAX, SLAB_PAYLOAD + 100);
}

static void it_is_forgotten(void)
{
    stage_forget(fixture.stage, 1);
}

static void scatter(uint64_t ino)
{
    for (unsigned i = 0; i < 6; i++)
        fixture_fill(&fixture, ino, i * 8192 + 1000, (char)('a' + i), 100);
    for (unsigned i = 0; i < 3; i++) /* too few */
        fixture_fill(&fixture, ino, SLAB_PAYLOAD + i * 8192, 'x', 100);
}

Test(stage_room, scattered_writes_to_a_file_without_a_name_are_gathered)
{
    struct stage_scattered found[8];
    _cleanup_free_ uint8_t *before = xmalloc(2 * SLAB_PAYLOAD), *after = xmalloc(2 * SLAB_PAYLOAD);
    scatter(1);
    scatter(2);
    expect_u64(find(found), 0, "what has a name is sealed");
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), true), 0);
    assert_u64(find(found), 1);
    expect_u64(found[0].ino, 1);
    expect_u64(found[0].offset, 0);
    expect_u64(found[0].length, SLAB_PAYLOAD);
    cr_expect_not(gather(&found[0], first_byte_is_written));
    cr_expect_not(gather(&found[0], last_byte_is_written));
    fixture_read(&fixture, 1, 0, before, 2 * SLAB_PAYLOAD);
    uint64_t dropped = stage_usage(fixture.stage).dropped_bytes_total;
    cr_expect(gather(&found[0], nothing));
    expect_u64(stage_usage(fixture.stage).dropped_bytes_total, dropped,
               "nothing of it was deleted");
    fixture_read(&fixture, 1, 0, after, 2 * SLAB_PAYLOAD);
    cr_expect_arr_eq(before, after, 2 * SLAB_PAYLOAD);
    expect_u64(find(found), 0);
    scatter(1);
    assert_u64(find(found), 1);
    cr_expect(gather(&found[0], others_are_written), "what lies elsewhere changes nothing");
    stage_forget(fixture.stage, 1);
}

Test(stage_room, what_is_gathered_ends_with_the_file)
{
    struct stage_scattered found[8];
    scatter(1);
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), true), 0);
    fixture_fill(&fixture, 1, SLAB_PAYLOAD + 3 * 8192, 'z', 100);
    assert_u64(find(found), 2);
    expect_u64(found[1].offset, SLAB_PAYLOAD);
    expect_u64(found[1].length, 3 * 8192 + 100);
    cr_expect_not(gather(&found[1], it_is_cut));
    cr_expect_not(gather(&found[0], it_is_forgotten));
    expect_u64(find(found), 0);
}

Test(stage_room, durable_ranges_of_a_file_without_a_name_do_not_count)
{
    uint64_t crowding;
    for (uint64_t i = 0; i < 9000; i++)
        fixture_fill(&fixture, 1, 2 * i, 'x', 1);
    fixture_write_back(&fixture, 1);
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), true), 0);
    cr_expect_not(stage_is_crowded(fixture.stage, &crowding));
    for (uint64_t i = 0; i < 8000; i++)
        fixture_fill(&fixture, 1, 2 * i + 1, 'y', 1);
    cr_expect_not(stage_is_crowded(fixture.stage, &crowding));
    stage_forget(fixture.stage, 1);
}

/* --- handles ---------------------------------------------------------------------------------- */

Test(stage_room, handles_are_numbers_in_a_table)
{
    uint64_t a, b, c;
    uint32_t flags;
    assert_i64(stage_handle_open(fixture.stage, 5, 1, &a), 0);
    assert_i64(stage_handle_open(fixture.stage, 6, 2, &b), 0);
    cr_expect_neq(a, b);
    expect_u64(stage_handle_flags(fixture.stage, b), 2);
    expect_u64(stage_handle_close(fixture.stage, a, &flags), 5);
    expect_u64(flags, 1);
    assert_i64(stage_handle_open(fixture.stage, 7, 3, &c), 0);
    expect_u64(c, a);
    uint64_t more = 0;
    while (stage_handle_open(fixture.stage, 8, 0, &a) == 0)
        more++;
    expect_u64(more, 122878);
    expect_i64(stage_handle_open(fixture.stage, 8, 0, &a), -ENFILE);
}
