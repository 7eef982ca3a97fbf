// SPDX-License-Identifier: Apache-2.0
/* The daemon dies and another goes on with what it left. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../expect.h"
#include "stage_fixture.h"

TestSuite(stage_crash, .init = stage_setup, .fini = stage_teardown, .timeout = 600);

static struct stage_usage usage(void)
{
    return stage_usage(fixture.stage);
}

Test(stage_crash, drafts_and_versions_come_back)
{
    fixture_put_pinned(&fixture, 1, 0, "aaaaaaaa");
    fixture_put_sealed(&fixture, 1, 2, "bb");
    fixture_put(&fixture, 1, 4, "c");
    fixture_cut(&fixture, 1, 7, UINT64_MAX, 7);
    fixture_put(&fixture, 2, 3, "d");
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 0, "aabbcaa.");
    fixture_expect(&fixture, 2, 0, "...d");
    expect_u64(fixture_size(&fixture, 1), 7);
    struct stage_file_state state;
    cr_assert(stage_file_state(fixture.stage, 1, &state));
    cr_expect(state.has_draft && state.has_sealed);
    expect_u64(usage().dirty_bytes, 10, "is %llu", (unsigned long long)usage().dirty_bytes);
}

Test(stage_crash, twice_in_a_row_and_between_any_two_steps)
{
    fixture_put_sealed(&fixture, 1, 0, "aaaa");
    fixture_put(&fixture, 1, 2, "bb");
    for (unsigned i = 0; i < 3; i++) {
        fixture_die(&fixture);
        assert_i64(fixture_reopen(&fixture), 0);
        fixture_expect(&fixture, 1, 0, "aabb");
        fixture_die(&fixture);
        assert_i64(fixture_reopen(&fixture), 0);
        assert_i64(stage_adopt(fixture.stage, fixture.epoch, false), 0);
        fixture_expect(&fixture, 1, 0, "aabb");
        fixture_crash(&fixture);
        fixture_expect(&fixture, 1, 0, "aabb");
        fixture_put(&fixture, 2, i, "x");
    }
    fixture_expect(&fixture, 2, 0, "xxx");
}

Test(stage_crash, what_a_slab_holds_twice_stays_taken)
{
    fixture_put(&fixture, 1, 0, "aaaa");
    fixture_put(&fixture, 1, 0, "bbbb");
    fixture_crash(&fixture);
    expect_u64(usage().dirty_bytes, 4);
    /* New content in every slab that counts as free. */
    for (uint64_t i = 0; i < 20; i++)
        fixture_fill(&fixture, 2, i * SLAB_PAYLOAD, 'x', SLAB_PAYLOAD);
    fixture_expect(&fixture, 1, 0, "bbbb");
}

Test(stage_crash, versions_wait_in_the_order_in_which_they_were_sealed)
{
    fixture_put(&fixture, 3, 0, "a");
    fixture_put(&fixture, 1, 0, "b");
    fixture_put(&fixture, 2, 0, "c");
    fixture_seal(&fixture, 3);
    fixture_seal(&fixture, 1);
    fixture_seal(&fixture, 2);
    fixture_put_sealed(&fixture, 3, 0, "d");
    fixture_crash(&fixture);
    struct stage_sealed sealed[3];
    assert_u64(stage_sealed_list(fixture.stage, sealed, 3), 3);
    const uint64_t order[] = {1, 2, 3};
    for (size_t i = 0; i < 3; i++)
        expect_u64(sealed[i].ino, order[i]);
    cr_expect_lt(sealed[0].seal_seq, sealed[1].seal_seq);
    cr_expect_lt(sealed[1].seal_seq, sealed[2].seal_seq);
}

Test(stage_crash, numbers_go_on_above_all_that_were_used)
{
    fixture_put_sealed(&fixture, 1, 0, "a");
    fixture_put(&fixture, 1, 0, "b");
    uint64_t last = stage_last_seq(fixture.stage);
    fixture_crash(&fixture);
    cr_expect_gt(stage_last_seq(fixture.stage), last);
    expect_u64(stage_last_seq(fixture.stage) >> SEQ_EPOCH_SHIFT, 2);
    uint64_t epoch, next;
    stage_epochs(fixture.stage, &epoch, &next);
    expect_u64(epoch, 2);
    expect_u64(next, 2);
}

Test(stage_crash, between_a_seal_and_its_record)
{
    fixture_put_sealed(&fixture, 1, 0, "aaaa");
    fixture_put(&fixture, 1, 2, "bbbb");
    fixture_seal_unlogged(&fixture, 1);
    fixture_die(&fixture);
    assert_i64(fixture_reopen(&fixture), 0);
    fixture_adopt(&fixture);
    fixture_expect(&fixture, 1, 0, "aabbbb");
    struct stage_file_state state;
    cr_assert(stage_file_state(fixture.stage, 1, &state));
    cr_expect(state.has_draft && state.has_sealed);
}

Test(stage_crash, what_is_durable_is_not_taken_back)
{
    fixture_put_pinned(&fixture, 1, 0, "aaaa");
    fixture_put_sealed(&fixture, 1, 1, "b");
    fixture_done(&fixture, 1);
    fixture_put(&fixture, 1, 2, "c");
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 0, "abca");
    expect_u64(usage().dirty_bytes, 2);
    /* Durable, and the daemon died before the stage knew. */
    fixture.below[1].version = 3;
    memcpy(fixture.below[1].bytes, "abca", 4);
    fixture_crash(&fixture);
    expect_u64(usage().dirty_bytes, 0);
    fixture_expect(&fixture, 1, 0, "abca");
}

Test(stage_crash, of_a_removed_file_nothing_comes_back)
{
    fixture_put(&fixture, 1, 0, "aaaa");
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), true), 0);
    fixture_put(&fixture, 1, 2, "bb");
    fixture.below[1].exists = false;
    fixture_crash(&fixture);
    expect_u64(usage().dirty_bytes, 0);
    expect_u64(usage().free_bytes, usage().total_bytes);
}

Test(stage_crash, after_a_compaction_only_what_it_named_counts)
{
    fixture_put(&fixture, 1, 0, "aaaaaa");
    fixture_cut(&fixture, 1, 2, 2, 6);
    fixture_put_sealed(&fixture, 2, 0, "xx");
    assert_i64(fixture_compact(&fixture), 0);
    fixture_put(&fixture, 1, 5, "b");
    fixture_cut(&fixture, 1, 0, 1, 6);
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 0, ".a..ab");
    fixture_expect(&fixture, 2, 0, "xx");
    assert_i64(fixture_compact(&fixture), 0);
    assert_i64(fixture_compact(&fixture), 0);
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 0, ".a..ab");
    fixture_expect(&fixture, 2, 0, "xx");
}

Test(stage_crash, a_compacted_range_whose_slab_serves_another_file)
{
    fixture_fill(&fixture, 1, 0, 'a', SLAB_PAYLOAD);
    assert_i64(fixture_compact(&fixture), 0);
    fixture_cut(&fixture, 1, 0, UINT64_MAX, 0);
    for (uint64_t i = 0; i < 20; i++)
        fixture_fill(&fixture, 2, i * SLAB_PAYLOAD, 'x', SLAB_PAYLOAD);
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 0, "....");
    expect_u64(fixture_size(&fixture, 1), 0);
    fixture_expect(&fixture, 2, 19 * SLAB_PAYLOAD, "xxx");
}

Test(stage_crash, pieces_come_back)
{
    fixture_fill(&fixture, 1, 0, 'a', 300000);
    fixture_fill(&fixture, 1, 300000, 'b', 1000);
    assert_u64(fixture_piece(&fixture, 1, MIB), 301000);
    fixture_put(&fixture, 1, 10, "x");
    fixture_crash(&fixture);
    cr_expect(stage_uses_pack(fixture.stage, 100));
    fixture_expect(&fixture, 1, 9, "axa");
    fixture_expect(&fixture, 1, 299999, "ab");
    expect_u64(usage().dirty_bytes, 1);
    expect_u64(fixture_piece(&fixture, 1, MIB), 1);
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 9, "axa");
    expect_u64(usage().dirty_bytes, 0);
}

Test(stage_crash, a_lost_piece_matters_only_if_it_is_content)
{
    fixture_fill(&fixture, 1, 0, 'a', 1000);
    assert_u64(fixture_piece(&fixture, 1, MIB), 1000);
    fixture_fill(&fixture, 1, 0, 'b', 1000);
    fixture.chunks[0].pack = 0; /* nothing named it, so it was dropped */
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 0, "bbb");
    fixture_fill(&fixture, 2, 0, 'c', 1000);
    assert_u64(fixture_piece(&fixture, 2, MIB), 1000);
    fixture.chunks[1].pack = 0;
    fixture_die(&fixture);
    expect_i64(fixture_reopen(&fixture), -EUCLEAN);
    fixture.chunks[1].pack = 101;
    fixture_crash(&fixture);
    fixture_expect(&fixture, 2, 0, "ccc");
}

Test(stage_crash, a_file_that_gets_a_name_enters_the_log_whole_or_not_at_all)
{
    uint64_t inos[2];
    fixture_put(&fixture, 1, 0, "aaaa");
    assert_i64(stage_unlink(fixture.stage, 1, 0, true), 0);
    fixture_put(&fixture, 1, 2, "b");
    assert_i64(fixture_compact(&fixture),
               0); /* from here on what was written till now counts only if it is named */
    fixture_put(&fixture, 1, 3, "c");
    uint64_t room = stage_log_room(fixture.stage);
    expect_i64(stage_relink(fixture.stage, 1, room), -EAGAIN);
    expect_u64(stage_log_room(fixture.stage), room);
    expect_u64(stage_drafts(fixture.stage, inos, 2), 0);
    expect_i64(stage_relink(fixture.stage, 1, room / 2), 0);
    expect_u64(stage_drafts(fixture.stage, inos, 2), 1);
    fixture_put(&fixture, 1, 4, "d");
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 0, "aabcd");
    fixture_seal(&fixture, 1);
    fixture_crash(&fixture);
    fixture_expect(&fixture, 1, 0, "aabcd");
}

/* A process that works on the stage and is killed at a moment of its own choice. */
static void child_works(int steps)
{
    uint8_t *data = xmalloc(SLAB_PAYLOAD);
    for (int i = 0; i < steps; i++) {
        memset(data, 'a' + i % 26, SLAB_PAYLOAD);
        struct stage_write w = {.ino = 1,
                                .offset = (uint64_t)i * 1000,
                                .length = i % 50 == 49 ? 300000 : 3000,
                                .slab = SLAB_NONE,
                                .data = data,
                                .time = 5};
        if (stage_write(fixture.stage, &w) < 0)
            _exit(1);
    }
    _exit(0);
}

Test(stage_crash, another_process_goes_on)
{
    for (int round = 0; round < 3; round++) {
        stage_close(fixture.stage, true);
        fixture.config.epoch = ++fixture.epoch;
        assert_i64(stage_create(&fixture.config, &fixture.stage), 0);
        fixture_die(&fixture);
        pid_t pid = fork();
        cr_assert_geq(pid, 0);
        if (pid == 0) {
            if (fixture_reopen(&fixture) < 0 ||
                stage_adopt(fixture.stage, fixture.epoch, false) < 0)
                _exit(2);
            child_works(60 + round);
        }
        int status;
        assert_i64(waitpid(pid, &status, 0), pid);
        assert_i64(status, 0);
        fixture.epoch++;
        fixture_recover(&fixture);
        for (int i = 50; i < 59 + round; i++) {
            char expected[] = {(char)('a' + i % 26), 0};
            fixture_expect(&fixture, 1, (uint64_t)i * 1000 + (i == 49 ? 10000 : 500) - 500,
                           expected);
        }
    }
}

/* --- what is not ours ------------------------------------------------------------------------- */

Test(stage_crash, a_foreign_stage_is_refused)
{
    fixture_die(&fixture);
    struct stage *stage;
    struct stage_config config = fixture.config;
    config.name[0] ^= 1;
    expect_i64(stage_open(&config, &stage), -ENOENT);
    config = fixture.config;
    config.store[0] ^= 1;
    expect_i64(stage_open(&config, &stage), -ESTALE);
    config = fixture.config;
    config.dir = "/dev/shm/no-such-directory";
    expect_i64(stage_open(&config, &stage), -ENOENT);
    expect_i64(stage_create(&fixture.config, &stage), -EEXIST);
    fixture_recover(&fixture);
}

Test(stage_crash, a_stage_in_use_is_refused_and_says_whose_it_is)
{
    struct stage *stage;
    struct stage_look look;
    stage_own(fixture.stage, "/store/of/it");
    expect_i64(stage_open(&fixture.config, &stage), -EBUSY);
    assert_i64(stage_look(fixture.dir, fixture.config.name, &look), 0);
    cr_expect(look.in_use && look.pid == getpid() && look.uid == geteuid());
    expect_str(look.owner, "/store/of/it");
    stage_look_done(&look);
    fixture_die(&fixture);
    assert_i64(stage_look(fixture.dir, fixture.config.name, &look), 0);
    cr_expect_not(look.in_use);
    stage_look_done(&look);
    fixture_recover(&fixture);
}

Test(stage_crash, files_that_lost_their_names_are_noticed)
{
    cr_expect_not(stage_is_unlinked(fixture.stage));
    stage_remove_files(fixture.dir, fixture.config.name);
    cr_expect(stage_is_unlinked(fixture.stage));
    fixture_fill(&fixture, 1, 0, 'a', 100);
    fixture_expect(&fixture, 1, 0, "aaa");
}

Test(stage_crash, a_directory_of_its_own)
{
    char *directory = NULL, *again = NULL;
    struct stat st;
    assert_i64(stage_make_directory(fixture.dir, &directory), 0);
    expect_str(directory, fixture.dir, "nobody else writes there");
    free(directory);
    assert_i64(chmod(fixture.dir, 01777), 0);
    assert_i64(stage_make_directory(fixture.dir, &directory), 0);
    assert_i64(stat(directory, &st), 0);
    expect_u64(st.st_mode & 07777, 0700);
    assert_i64(chmod(directory, 0777), 0);
    assert_i64(stage_make_directory(fixture.dir, &again), 0);
    expect_str(again, directory);
    assert_i64(stat(directory, &st), 0);
    expect_u64(st.st_mode & 07777, 0700, "it is closed to others again");
    free(again);
    stage_leave_directory(directory);
    assert_i64(symlink("/", directory), 0);
    assert_i64(stage_make_directory(fixture.dir, &again), 0);
    cr_expect_str_neq(again, directory, "a link is no directory");
    expect_i64(unlink(directory), 0);
    expect_i64(rmdir(again), 0);
    free(again);
    free(directory);
}

Test(stage_crash, a_link_in_the_place_of_a_stage_is_refused)
{
    fixture_die(&fixture);
    _cleanup_free_ char *moved = xasprintf("%s/moved", fixture.dir);
    assert_i64(rename(fixture.ctl, moved), 0);
    assert_i64(symlink(moved, fixture.ctl), 0);
    struct stage *stage;
    expect_i64(stage_open(&fixture.config, &stage), -ELOOP);
    assert_i64(rename(moved, fixture.ctl), 0);
    fixture_recover(&fixture);
}

/* Pages of [memory, memory + len) in the page tables of this process. */
static size_t count_mapped(const void *memory, size_t len)
{
    size_t count = 0, pages = len / 4096;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    for (size_t i = 0; i < pages; i++) {
        uint64_t entry;
        off_t at = (off_t)(((uintptr_t)memory / 4096 + i) * sizeof entry);
        assert_i64(pread(fd, &entry, sizeof entry, at), (ssize_t)sizeof entry);
        count += entry >> 63;
    }
    close(fd);
    return count;
}

/* The kernel's copies need no page fault, in which a death would make them fail. */
Test(stage_crash, memory_of_a_daemon_before_is_mapped_before_the_kernel_copies)
{
    struct stage_part part;
    fixture_fill(&fixture, 1, 0, 'a', SLAB_PAYLOAD);
    fixture_fill(&fixture, 2, 0, 'b', SLAB_PAYLOAD);
    fixture_crash(&fixture);
    assert_u64(stage_read(fixture.stage, 1, 0, SLAB_PAYLOAD, &part, 1), 1);
    assert_u64(part.kind, PART_MEMORY);
    assert_u64(part.length, SLAB_PAYLOAD);
    stage_map_parts(fixture.stage, &part, 1);
    expect_u64(count_mapped(part.memory, SLAB_PAYLOAD), SLAB_PAYLOAD / 4096);
    stage_unpin_parts(fixture.stage, &part, 1);
    assert_u64(stage_read(fixture.stage, 2, 0, SLAB_PAYLOAD, &part, 1), 1);
    stage_unpin_parts(fixture.stage, &part, 1);
    fixture_cut(&fixture, 2, 0, SLAB_PAYLOAD, 0); /* the most recent free slab is taken first */
    uint32_t slab = stage_slab_take(fixture.stage, NULL);
    expect_ptr((const uint8_t *)stage_slab_memory(fixture.stage, slab) + SLAB_PAYLOAD_OFFSET,
               (const uint8_t *)part.memory);
    expect_u64(count_mapped(stage_slab_memory(fixture.stage, slab), SLAB_STRIDE),
               SLAB_STRIDE / 4096);
    stage_slab_give(fixture.stage, slab);
}
