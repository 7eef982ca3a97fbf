// SPDX-License-Identifier: Apache-2.0
#include "../expect.h"
#include "../named.h"
#include "remote_fixture.h"

static void setup(void)
{
    begin_view();
    add_file(&f, 10, ROOT_INO, "a", 0);
    apply_ok(&f);
}

TestSuite(extents, .init = setup, .fini = end_view);

static void seal(uint64_t version, uint64_t keep, uint64_t size, const struct extent *extents,
                 uint32_t count)
{
    add_seal(&f, 10, version, keep, size, extents, count);
    apply_ok(&f);
}

Test(extents, empty_file_and_hole)
{
    expect_content(&f, 10, "");
    seal(2, 0, 100, NULL, 0);
    expect_content(&f, 10, ".@0:100");
    expect_u64(inode_of(&f, 10).version, 2);
    expect_u64(inode_of(&f, 10).blocks_bytes, 0);
}

Test(extents, seal_keeps_btime_and_nlink)
{
    struct attrs attrs = file_attrs(5);
    attrs.btime = 99;
    attrs.rdev = 99;
    attrs.mode = S_IFREG | 0600;
    attrs.mtime = 77;
    add_link(&f, 10, ROOT_INO, "b");
    add(&f, (struct record){.type = REC_SEAL, .ino = 10, .version = 2, .attrs = attrs});
    apply_ok(&f);
    struct view_inode i = inode_of(&f, 10);
    expect_i64(i.attrs.btime, 14);
    expect_u64(i.attrs.rdev, 0);
    expect_u64(i.attrs.mode, (uint32_t)(S_IFREG | 0600));
    expect_i64(i.attrs.mtime, 77);
    expect_u64(i.attrs.size, 5);
    expect_u64(i.nlink, 2);
}

Test(extents, overlay_splits_what_it_covers_in_part)
{
    seal(2, 0, 3000,
         (struct extent[]){chunk_extent(0, 1000, 1, 0), chunk_extent(1000, 2000, 2, 500)}, 2);
    expect_content(&f, 10, "C1+0@0:1000 C2+500@1000:2000");
    seal(3, 3000, 3000,
         (struct extent[]){chunk_extent(400, 100, 3, 7), chunk_extent(900, 300, 4, 0)}, 2);
    expect_content(&f, 10, "C1+0@0:400 C3+7@400:100 C1+500@500:400 C4+0@900:300 C2+700@1200:1800");
    expect_u64(refs_of(&f, 1), 2);
    expect_u64(refs_of(&f, 2), 1);
    seal(4, 3000, 3000, (struct extent[]){chunk_extent(0, 3000, 5, 0)}, 1);
    expect_content(&f, 10, "C5+0@0:3000");
    expect_u64(refs_of(&f, 1), UINT64_MAX);
    expect_u64(inode_of(&f, 10).blocks_bytes, 3000);
}

Test(extents, keep_and_truncate)
{
    seal(2, 0, 1000, (struct extent[]){chunk_extent(0, 1000, 1, 0)}, 1);
    seal(3, 300, 2000, NULL, 0);
    expect_content(&f, 10, "C1+0@0:300 .@300:1700");
    seal(4, 5000, 250, NULL, 0);
    expect_content(&f, 10, "C1+0@0:250");
    seal(5, 250, 400, NULL, 0);
    expect_content(&f, 10, "C1+0@0:250 .@250:150");
    seal(6, 0, 0, NULL, 0);
    expect_content(&f, 10, "");
    expect_u64(refs_of(&f, 1), UINT64_MAX);
}

Test(extents, holes_punch)
{
    seal(2, 0, 1000, (struct extent[]){chunk_extent(0, 1000, 1, 0)}, 1);
    seal(3, 1000, 1000, (struct extent[]){hole_extent(100, 50), hole_extent(900, 500)}, 2);
    expect_content(&f, 10, "C1+0@0:100 .@100:50 C1+150@150:750 .@900:100");
    expect_u64(inode_of(&f, 10).blocks_bytes, 850);
    seal(4, 1000, 1000, (struct extent[]){hole_extent(0, 1000)}, 1);
    expect_content(&f, 10, ".@0:1000");
}

Test(extents, later_extents_lie_over_earlier_ones)
{
    struct extent e[] = {chunk_extent(500, 500, 1, 0), chunk_extent(0, 600, 2, 0),
                         chunk_extent(550, 10, 3, 0), hole_extent(200, 100),
                         chunk_extent(990, 20, 4, 0)};
    seal(2, 0, 1005, e, 5);
    expect_content(
        &f, 10,
        "C2+0@0:200 .@200:100 C2+300@300:250 C3+0@550:10 C2+560@560:40 C1+100@600:390 C4+0@990:15");
    expect_u64(refs_of(&f, 2), 3);
}

Test(extents, what_lies_past_the_size_is_dropped)
{
    seal(2, 0, 15, (struct extent[]){chunk_extent(0, 10, 1, 0), chunk_extent(10, 10, 2, 0)}, 2);
    expect_u64(inode_of(&f, 10).blocks_bytes, 15);
    add_seal_inline(&f, 10, 3, 15, 17, 15, "abcdef");
    seal(4, 100, 100, NULL, 0);
    expect_content(&f, 10, "C1+0@0:10 C2+0@10:5 I@15:2=ab .@17:83");
}

Test(extents, ranges)
{
    seal(2, 0, 500, (struct extent[]){chunk_extent(0, 100, 1, 7), chunk_extent(200, 100, 2, 0)}, 2);
    add_seal_inline(&f, 10, 3, 500, 500, 250, "0123456789");
    apply_ok(&f);
    expect_range(&f, 10, 30, 20, "C1+37@30:20");
    expect_range(&f, 10, 90, 120, "C1+97@90:10 .@100:100 C2+0@200:10");
    expect_range(&f, 10, 252, 3, "I@252:3=234");
    expect_range(&f, 10, 258, 10, "I@258:2=89 C2+60@260:8");
    expect_range(&f, 10, 400, 1000, ".@400:100");
    expect_range(&f, 10, 110, 5, ".@110:5");
    expect_range(&f, 10, 500, 5, "");
    expect_range(&f, 10, 5, 0, "");
}

Test(extents, split_at_page_borders)
{
    seal(2, 0, TEST_PAGE + 100, (struct extent[]){chunk_extent(TEST_PAGE - 100, 200, 1, 10)}, 1);
    expect_content(&f, 10, ".@0:16777116 C1+10@16777116:200");
    expect_u64(refs_of(&f, 1), 2);
    add_seal_inline(&f, 10, 3, UINT64_MAX, TEST_PAGE + 100, TEST_PAGE - 3, "abcdef");
    apply_ok(&f);
    expect_content(
        &f, 10,
        ".@0:16777116 C1+10@16777116:97 I@16777213:3=abc I@16777216:3=def C1+113@16777219:97");
    seal(4, TEST_PAGE - 1, TEST_PAGE + 100, NULL, 0);
    expect_content(&f, 10, ".@0:16777116 C1+10@16777116:97 I@16777213:2=ab .@16777215:101");
    expect_u64(refs_of(&f, 1), 1);
}

Test(extents, inline_content)
{
    add_seal_inline(&f, 10, 2, 0, 11, 0, "hello world");
    apply_ok(&f);
    add_seal_inline(&f, 10, 3, 11, 11, 4, "XY");
    apply_ok(&f);
    expect_content(&f, 10, "I@0:6=hellXY I@6:5=world");
    add_seal_inline(&f, 10, 4, 11, 11, 0, "12345678");
    apply_ok(&f);
    expect_content(&f, 10, "I@0:8=12345678 I@8:3=rld");
    add_seal_inline(&f, 10, 5, 8, 9, 8, "!");
    apply_ok(&f);
    expect_content(&f, 10, "I@0:9=12345678!");
    expect_check_ok(f.view);
}

Test(extents, inline_pieces_that_overlap_in_one_seal)
{
    struct extent e[] = {{.offset = 0, .length = 10, .kind = EXTENT_INLINE},
                         {.offset = 0, .length = 3, .kind = EXTENT_INLINE},
                         {.offset = 5, .length = 2, .kind = EXTENT_INLINE}};
    add(&f, (struct record){.type = REC_SEAL,
                            .ino = 10,
                            .version = 2,
                            .attrs = file_attrs(10),
                            .extents = e,
                            .extent_count = 3,
                            VALUED("abcdefghijABCxy")});
    apply_ok(&f);
    expect_content(&f, 10, "I@0:10=ABCdexyhij");
}

Test(extents, many_small_appends_stay_few_pieces)
{
    for (uint32_t i = 0; i < 1000; i++) {
        add_seal_inline(&f, 10, 2 + i, i * 10, (i + 1) * 10, i * 10, "0123456789");
        if (i % 50 == 0)
            apply_ok(&f);
    }
    apply_ok(&f);
    _cleanup_free_ char *text = content_of(&f, 10);
    cr_expect_lt(strlen(text), 11000);
    expect_u64(inode_of(&f, 10).blocks_bytes, 10000);
}

Test(extents, extents_records_of_several_versions_at_once)
{
    struct extent e1 = chunk_extent(0, 1000, 1, 0), e2 = chunk_extent(1000, 500, 2, 0),
                  e3 = chunk_extent(0, 10, 3, 0);
    add_file(&f, 11, ROOT_INO, "b", 0);
    add(&f, (struct record){
                .type = REC_EXTENTS, .ino = 10, .version = 2, .extents = &e1, .extent_count = 1});
    add(&f, (struct record){
                .type = REC_EXTENTS, .ino = 11, .version = 2, .extents = &e3, .extent_count = 1});
    add(&f, (struct record){
                .type = REC_EXTENTS, .ino = 10, .version = 2, .extents = &e2, .extent_count = 1});
    add_seal(&f, 11, 2, 0, 10, NULL, 0);
    add_seal(&f, 10, 2, 0, 1500, (struct extent[]){chunk_extent(1200, 100, 4, 0)}, 1);
    apply_ok(&f);
    expect_content(&f, 10, "C1+0@0:1000 C2+0@1000:200 C4+0@1200:100 C2+300@1300:200");
    expect_content(&f, 11, "C3+0@0:10");
}

Test(extents, elided_seals_leave_content_to_a_later_one)
{
    seal(2, 0, 1000, (struct extent[]){chunk_extent(0, 1000, 1, 0)}, 1);
    struct attrs attrs = file_attrs(10);
    add(&f, (struct record){
                .type = REC_SEAL, .flags = RECORD_ELIDED, .ino = 10, .version = 3, .attrs = attrs});
    add_seal(&f, 10, 4, 800, 900, (struct extent[]){chunk_extent(100, 1, 2, 0)}, 1);
    add(&f, (struct record){.type = REC_SEAL,
                            .flags = RECORD_ELIDED | RECORD_BIRTH,
                            .ino = 12,
                            .version = 1,
                            .parent = ROOT_INO,
                            .cookie = 5,
                            NAMED("e"),
                            .attrs = attrs});
    add_seal(&f, 12, 2, 5, 10, (struct extent[]){chunk_extent(0, 10, 2, 0)}, 1);
    apply_ok(&f);
    expect_content(&f, 10, "C1+0@0:100 C2+0@100:1 C1+101@101:699 .@800:100");
    expect_content(&f, 12, "C2+0@0:10");
}

Test(extents, sparse_files_cost_what_they_hold)
{
    uint64_t tib = 1ull << 40;
    seal(2, 0, 16 * tib,
         (struct extent[]){chunk_extent(0, 10, 1, 0), chunk_extent(8 * tib, 10, 2, 0),
                           chunk_extent(16 * tib - 10, 10, 3, 0)},
         3);
    expect_u64(inode_of(&f, 10).blocks_bytes, 30);
    seal(3, UINT64_MAX, 16 * tib, (struct extent[]){hole_extent(5, 16 * tib - 10)}, 1);
    expect_u64(refs_of(&f, 2), UINT64_MAX);
    expect_u64(inode_of(&f, 10).blocks_bytes, 10);
    seal(4, 5, 8 * tib, NULL, 0);
    expect_content(&f, 10, "C1+0@0:5 .@5:8796093022203");
    add_unlink(&f, 10, ROOT_INO, "a", 0);
    apply_ok(&f);
}

static int count_parts(const struct view_extent *part, void *arg)
{
    (void)part;
    ++*(int *)arg;
    return *(int *)arg == 2 ? 1 : 0;
}

static int sum_parts(const struct view_extent *part, void *arg)
{
    *(uint64_t *)arg += part->extent.length;
    return 0;
}

static int fail_part(const struct view_extent *part, void *arg)
{
    (void)part;
    (void)arg;
    return -EINTR;
}

Test(extents, ranges_and_stops)
{
    struct extent e[] = {chunk_extent(0, 100, 1, 0), chunk_extent(100, 100, 2, 0),
                         chunk_extent(300, 100, 1, 0)};
    seal(2, 0, 500, e, 3);
    int parts = 0;
    uint64_t sum = 0;
    expect_i64(view_extents(f.view, 10, 0, 500, count_parts, &parts), 0);
    expect_i64(parts, 2);
    expect_i64(view_extents(f.view, 10, 50, 300, sum_parts, &sum), 0);
    expect_u64(sum, 300);
    expect_i64(view_extents(f.view, 10, 450, UINT64_MAX, sum_parts, &sum), 0);
    expect_u64(sum, 350);
    expect_i64(view_extents(f.view, 10, 500, 1, sum_parts, &sum), 0);
    expect_u64(sum, 350);
    expect_i64(view_extents(f.view, 10, 0, 10, fail_part, NULL), -EINTR);
    expect_i64(view_extents(f.view, 99, 0, 10, sum_parts, &sum), -ENOENT);
}

Test(extents, a_chunk_split_at_a_border_is_read_as_one)
{
    struct extent e[] = {chunk_extent(TEST_PAGE - 4096, 8192, 1, 0),
                         chunk_extent(TEST_PAGE + 4096, 10, 1, 8192)};
    seal(2, 0, TEST_PAGE + 8192, e, 2);
    expect_content(&f, 10, ".@0:16773120 C1+0@16773120:8202 .@16781322:4086");
}

Test(extents, refused)
{
    seal(2, 0, 100, (struct extent[]){chunk_extent(0, 100, 1, 0)}, 1);
    add_seal(&f, 10, 2, 0, 100, NULL, 0); /* version not newer */
    apply_bad(&f);
    add_seal(&f, 99, 1, 0, 100, NULL, 0); /* no such inode */
    apply_bad(&f);
    add_seal(&f, 1, 1, 0, 100, NULL, 0); /* a directory */
    apply_bad(&f);
    add_seal(&f, 10, 3, 0, UINT64_MAX, NULL, 0); /* size */
    apply_bad(&f);
    add_file(&f, 10, ROOT_INO, "z", 0); /* inode exists */
    apply_bad(&f);
    add_file(&f, 11, ROOT_INO, "a", 0); /* name exists */
    apply_bad(&f);
    struct extent e = chunk_extent(0, 10, 1, 0);
    add(&f, (struct record){
                .type = REC_EXTENTS, .ino = 10, .version = 3, .extents = &e, .extent_count = 1});
    apply_bad(&f); /* without a seal */
    struct attrs dir = {.mode = S_IFDIR | 0755};
    add(&f, (struct record){.type = REC_SEAL, .ino = 10, .version = 3, .attrs = dir});
    apply_bad(&f);
    add(&f, (struct record){.type = REC_ERASE, .ino = 10, .version = 3, .attrs = file_attrs(0)});
    apply_bad(&f); /* a record of the stage's log */
}

static void take(uint64_t ino, uint64_t version, uint64_t size, const char *name)
{
    add(&f, (struct record){.type = REC_VERSION,
                            .flags = RECORD_TAKEN | (name ? RECORD_BIRTH : 0),
                            .ino = ino,
                            .version = version,
                            .parent = ROOT_INO,
                            .cookie = f.seq + 1,
                            NAMED(name ? name : ""),
                            .attrs = file_attrs(size),
                            .length = size,
                            .count = VIEW_COUNT_ELSEWHERE});
    apply_ok(&f);
}

static int note_part(const struct view_extent *part, void *arg)
{
    (void)part;
    ++*(unsigned *)arg;
    return 0;
}

/* Zeros would be read as its content. */
Test(extents, content_of_another_node_is_no_hole)
{
    unsigned parts = 0;
    uint64_t version;
    const struct view_range range = {20, 0, 5000};
    take(20, 1 << 24 | 5, 5000, "theirs");
    expect_u64(inode_of(&f, 20).is_elsewhere, true);
    expect_u64(inode_of(&f, 20).attrs.size, 5000);
    expect_u64(inode_of(&f, 20).blocks_bytes, 5000);
    expect_u64(inode_of(&f, 10).is_elsewhere, false);
    expect_i64(view_content(f.view, &range, &version, note_part, &parts), -EREMOTE);
    expect_i64(view_extents(f.view, 20, 0, 5000, note_part, &parts), 0);
    expect_u64(parts, 0);
    take(20, 2 << 24 | 5, 70, NULL);
    expect_u64(inode_of(&f, 20).attrs.size, 70);
    expect_check_ok(f.view);
    add_unlink(&f, 20, ROOT_INO, "theirs", 0);
    apply_ok(&f);
    expect_check_ok(f.view);
    expect_replay_same(&f);
}
