// SPDX-License-Identifier: Apache-2.0
#include "../expect.h"
#include "../named.h"
#include "commit/touched.h"

static struct touched *touched;

static void setup(void)
{
    touched = touched_new(0);
}

static void teardown(void)
{
    touched_free(touched);
}

TestSuite(touched, .init = setup, .fini = teardown);

static bool has_name(uint64_t dir, const char *name)
{
    return touched_has_name(touched, dir, name, strlen(name));
}

Test(touched, both_names_and_both_inodes_of_a_rename)
{
    touched_add(touched, &(struct record){.type = REC_RENAME,
                                          .seq = 5,
                                          .ino = 10,
                                          .ino2 = 11,
                                          .parent = 1,
                                          .parent2 = 2,
                                          NAMED("a"),
                                          .name2 = "b",
                                          .name2_len = 1});
    cr_expect(touched_has_inode(touched, 10) && touched_has_inode(touched, 11));
    cr_expect(has_name(1, "a") && has_name(2, "b"));
    cr_expect(!has_name(2, "a") && !has_name(1, "b") && !touched_has_inode(touched, 1));
}

Test(touched, what_the_union_has_is_forgotten)
{
    struct record rec = {.type = REC_UNLINK, .seq = 5, .ino = 10, .parent = 1, NAMED("a")};
    touched_add(touched, &rec);
    rec.seq = 9;
    rec.name = "b";
    touched_add(touched, &rec);
    touched_forget(touched, 5);
    cr_expect(!has_name(1, "a") && has_name(1, "b") && touched_has_inode(touched, 10));
    touched_forget(touched, 9);
    cr_expect(!has_name(1, "b") && !touched_has_inode(touched, 10));
}

Test(touched, what_was_taken_is_not_ones_own)
{
    touched_add(
        touched,
        &(struct record){
            .type = REC_LINK, .flags = RECORD_TAKEN, .seq = 5, .ino = 10, .parent = 1, NAMED("a")});
    cr_expect(!has_name(1, "a") && !touched_has_inode(touched, 10));
}

/* The name of an extended attribute is none of a directory. */
Test(touched, an_attribute_touches_its_inode)
{
    touched_add(touched,
                &(struct record){.type = REC_SETXATTR, .seq = 5, .ino = 10, NAMED("user.a")});
    cr_expect(touched_has_inode(touched, 10) && !has_name(0, "user.a"));
}

Test(touched, operations_are_counted_until_the_union_has_them)
{
    for (uint64_t seq = 1; seq <= 10; seq++)
        touched_add(touched, &(struct record){.type = REC_SETATTR, .seq = seq, .ino = 10});
    expect_u64(touched_count(touched), 10);
    touched_forget(touched, 4);
    expect_u64(touched_count(touched), 6);
    touched_forget(touched, 10);
    expect_u64(touched_count(touched), 0);
}

static void change(uint64_t seq, uint64_t ino, uint32_t flags)
{
    touched_add(touched,
                &(struct record){.type = REC_SETATTR, .flags = flags, .seq = seq, .ino = ino});
}

Test(touched, all_is_merged_up_to_the_first_own_operation_that_is_not)
{
    expect_u64(touched_merged_up_to(touched), UINT64_MAX);
    change(5, 10, 0);
    change(7, 11, RECORD_TAKEN);
    change(9, 12, 0);
    expect_u64(touched_merged_up_to(touched), 4);
    touched_merged(touched, 4);
    expect_u64(touched_merged_up_to(touched), 4);
    touched_merged(touched, 6);
    expect_u64(touched_merged_up_to(touched), 8);
    expect_u64(touched_count(touched), 2); /* what is shown is another matter */
    touched_forget(touched, 9);
    expect_u64(touched_merged_up_to(touched), UINT64_MAX);
    touched_merged(touched, 6); /* an older head */
    change(11, 10, 0);
    expect_u64(touched_merged_up_to(touched), 10);
}

Test(touched, the_last_operation_on_an_inode_that_is_not_merged)
{
    change(5, 10, 0);
    change(7, 10, 0);
    change(9, 12, RECORD_TAKEN);
    touched_merged(touched, 5);
    expect_u64(touched_last(touched, 10), 7);
    expect_u64(touched_last(touched, 12), 0);
    touched_merged(touched, 7);
    expect_u64(touched_last(touched, 10), 0);
}

/* Which inodes those changed is not known. */
Test(touched, operations_of_earlier_daemons_are_merged_together)
{
    struct touched *later = touched_new(20);
    expect_u64(touched_merged_up_to(later), 0);
    expect_u64(touched_last(later, 10), 20);
    touched_merged(later, 15);
    expect_u64(touched_merged_up_to(later), 15);
    expect_u64(touched_last(later, 10), 20);
    touched_add(later, &(struct record){.type = REC_SETATTR, .seq = 30, .ino = 11});
    touched_merged(later, 20);
    expect_u64(touched_merged_up_to(later), 29);
    expect_u64(touched_last(later, 10), 0);
    expect_u64(touched_last(later, 11), 30);
    touched_free(later);
}
