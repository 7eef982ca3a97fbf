// SPDX-License-Identifier: Apache-2.0
#include "../expect.h"
#include "../named.h"
#include "remote_fixture.h"

#include <stdio.h>

TestSuite(names, .init = begin_view, .fini = end_view);

Test(names, root_of_a_new_view)
{
    struct view_inode root = inode_of(&f, ROOT_INO);
    expect_u64(root.attrs.mode, (uint32_t)(S_IFDIR | 0755));
    expect_u64(root.attrs.uid, geteuid());
    expect_i64(root.attrs.mtime, T0);
    expect_u64(root.nlink, 2);
    expect_u64(view_state(f.view).applied_seq, 0);
    expect_u64(view_state(f.view).chain[0], 0);
}

Test(names, directories_count_subdirectories)
{
    add_dir(&f, 2, ROOT_INO, "d");
    add_dir(&f, 3, 2, "e");
    add_file(&f, 4, 2, "f", 0);
    apply_ok(&f);
    expect_u64(inode_of(&f, ROOT_INO).nlink, 3);
    expect_u64(inode_of(&f, 2).nlink, 3);
    expect_u64(inode_of(&f, 3).nlink, 2);
    expect_u64(inode_of(&f, 3).parent, 2);
    expect_u64(lookup(&f, 2, "f"), 4);
    expect_u64(lookup(&f, 2, "g"), 0);
    add_unlink(&f, 3, 2, "e", 0);
    apply_ok(&f);
    expect_u64(inode_of(&f, 2).nlink, 2);
    struct view_inode gone;
    expect_i64(view_inode(f.view, 3, &gone), -ENOENT);
    expect_u64(view_state(f.view).max_ino, 4);
}

Test(names, times_of_directories)
{
    add_dir(&f, 2, ROOT_INO, "d");
    apply_ok(&f);
    expect_i64(inode_of(&f, ROOT_INO).attrs.mtime, time_of(f.seq));
    expect_i64(inode_of(&f, ROOT_INO).attrs.ctime, time_of(f.seq));
    add_file(&f, 3, 2, "f", 0); /* btime 14 is later than the directory's mtime 5 */
    apply_ok(&f);
    expect_i64(inode_of(&f, 2).attrs.mtime, 14);
    add_file(&f, 4, ROOT_INO, "g", 0); /* not later */
    uint64_t before = f.seq;
    apply_ok(&f);
    cr_expect_lt(inode_of(&f, ROOT_INO).attrs.mtime, time_of(before));
    add_unlink(&f, 4, ROOT_INO, "g", 0);
    apply_ok(&f);
    expect_i64(inode_of(&f, ROOT_INO).attrs.mtime, time_of(f.seq));
    add_rename(&f, 3, 2, "f", ROOT_INO, "f", 0, 0);
    apply_ok(&f);
    expect_i64(inode_of(&f, 2).attrs.ctime, time_of(f.seq));
    expect_i64(inode_of(&f, ROOT_INO).attrs.ctime, time_of(f.seq));
    expect_i64(inode_of(&f, 3).attrs.ctime, time_of(f.seq));
    expect_i64(inode_of(&f, 3).attrs.mtime, 12);
}

Test(names, hard_links)
{
    add_file(&f, 4, ROOT_INO, "a", 9);
    add_link(&f, 4, ROOT_INO, "b");
    apply_ok(&f);
    expect_u64(inode_of(&f, 4).nlink, 2);
    expect_i64(inode_of(&f, 4).attrs.ctime, time_of(f.seq));
    add_unlink(&f, 4, ROOT_INO, "a", 0);
    apply_ok(&f);
    expect_u64(inode_of(&f, 4).nlink, 1);
    expect_u64(view_state(f.view).files, 1);
    expect_u64(view_state(f.view).logical_bytes, 9);
    add_unlink(&f, 4, ROOT_INO, "b", 0);
    apply_ok(&f);
    expect_u64(view_state(f.view).files, 0);
    expect_u64(view_state(f.view).logical_bytes, 0);
}

static int collect(uint64_t ino, void *arg)
{
    *(uint64_t *)arg = *(uint64_t *)arg * 1000 + ino;
    return 0;
}

Test(names, orphans_live_until_they_are_reaped)
{
    add_file(&f, 4, ROOT_INO, "a", 9);
    add_file(&f, 5, ROOT_INO, "b", 9);
    add_dir(&f, 6, ROOT_INO, "d");
    add_unlink(&f, 4, ROOT_INO, "a", RECORD_ORPHAN);
    add_unlink(&f, 6, ROOT_INO, "d", RECORD_ORPHAN);
    apply_ok(&f);
    uint64_t found = 0;
    expect_i64(view_orphans(f.view, collect, &found), 0);
    expect_u64(found, 4006);
    expect_u64(inode_of(&f, 4).nlink, 0);
    expect_u64(inode_of(&f, 6).nlink, 0);
    expect_u64(view_state(f.view).files, 1);
    add_seal(&f, 4, 2, 0, 100, NULL, 0);
    apply_ok(&f);
    expect_u64(view_state(f.view).logical_bytes, 9);
    expect_check_ok(f.view);
    add_link(&f, 4, ROOT_INO, "again");
    apply_bad(&f);
    add_file(&f, 7, 6, "below", 0);
    apply_bad(&f);
    add(&f, (struct record){.type = REC_REAP, .ino = 4});
    add(&f, (struct record){.type = REC_REAP, .ino = 6});
    apply_ok(&f);
    found = 0;
    expect_i64(view_orphans(f.view, collect, &found), 0);
    expect_u64(found, 0);
    add(&f, (struct record){.type = REC_REAP, .ino = 4});
    apply_bad(&f);
    add(&f, (struct record){.type = REC_REAP, .ino = 5});
    apply_bad(&f);
}

Test(names, rename_over)
{
    add_file(&f, 4, ROOT_INO, "a", 1);
    add_file(&f, 5, ROOT_INO, "b", 2);
    add_dir(&f, 6, ROOT_INO, "d");
    apply_ok(&f);
    add_rename(&f, 4, ROOT_INO, "a", 6, "x", 0, 0);
    add_rename(&f, 4, 6, "x", ROOT_INO, "b", 5, RECORD_ORPHAN);
    apply_ok(&f);
    expect_u64(lookup(&f, ROOT_INO, "b"), 4);
    expect_u64(lookup(&f, ROOT_INO, "a"), 0);
    expect_u64(inode_of(&f, 5).nlink, 0);
    expect_u64(inode_of(&f, 4).parent, ROOT_INO);
    add_file(&f, 7, ROOT_INO, "c", 1);
    add_rename(&f, 7, ROOT_INO, "c", ROOT_INO, "b", 4, 0);
    apply_ok(&f);
    struct view_inode gone;
    expect_i64(view_inode(f.view, 4, &gone), -ENOENT);
    expect_u64(view_state(f.view).files, 1);
}

Test(names, directories_move)
{
    add_dir(&f, 2, ROOT_INO, "a");
    add_dir(&f, 3, 2, "b");
    add_dir(&f, 4, 3, "c");
    add_dir(&f, 5, ROOT_INO, "empty");
    apply_ok(&f);
    add_rename(&f, 3, 2, "b", ROOT_INO, "empty", 5, 0);
    apply_ok(&f);
    expect_u64(inode_of(&f, ROOT_INO).nlink, 4);
    expect_u64(inode_of(&f, 2).nlink, 2);
    expect_u64(inode_of(&f, 3).parent, ROOT_INO);
    _cleanup_free_ char *path = view_path(f.view, 4);
    expect_str(path, "/empty/c");
    add_rename(&f, 3, ROOT_INO, "empty", 4, "x", 0, 0); /* below itself */
    apply_bad(&f);
    add_rename(&f, 3, ROOT_INO, "empty", 3, "x", 0, 0);
    apply_bad(&f);
    add_rename(&f, 2, ROOT_INO, "a", ROOT_INO, "empty", 3, 0); /* not empty */
    apply_bad(&f);
    add_unlink(&f, 3, ROOT_INO, "empty", 0);
    apply_bad(&f);
}

Test(names, exchange)
{
    add_dir(&f, 2, ROOT_INO, "a");
    add_dir(&f, 3, 2, "sub");
    add_file(&f, 4, ROOT_INO, "f", 1);
    add_dir(&f, 5, 3, "deep");
    apply_ok(&f);
    add_rename(&f, 3, 2, "sub", ROOT_INO, "f", 4, RECORD_EXCHANGE);
    apply_ok(&f);
    expect_u64(lookup(&f, ROOT_INO, "f"), 3);
    expect_u64(lookup(&f, 2, "sub"), 4);
    expect_u64(inode_of(&f, 2).nlink, 2);
    expect_u64(inode_of(&f, ROOT_INO).nlink, 4);
    expect_u64(inode_of(&f, 3).parent, ROOT_INO);
    add_rename(&f, 2, ROOT_INO, "a", ROOT_INO, "f", 3, RECORD_EXCHANGE);
    apply_ok(&f);
    expect_u64(lookup(&f, ROOT_INO, "f"), 2);
    expect_u64(inode_of(&f, ROOT_INO).nlink, 4);
    add_rename(&f, 5, 3, "deep", ROOT_INO, "a", 3,
               RECORD_EXCHANGE); /* "a" would lie below itself */
    apply_bad(&f);
}

Test(names, links_special_files_and_xattrs)
{
    struct attrs link = {.mode = S_IFLNK | 0777, .size = 6},
                 pipe = {.mode = S_IFIFO | 0600, .rdev = 3};
    add_make(&f, 2, ROOT_INO, "l", link, "target");
    add_make(&f, 3, ROOT_INO, "p", pipe, NULL);
    add_xattr(&f, 2, "user.a/b", "v");
    add_xattr(&f, 3, "user.x", "");
    add_xattr(&f, 2, "user.a/b", "vv");
    apply_ok(&f);
    char buf[10];
    expect_i64(view_readlink(f.view, 2, buf, 10), 6);
    expect_i64(memcmp(buf, "target", 6), 0);
    expect_i64(view_readlink(f.view, 2, buf, 5), -ERANGE);
    expect_i64(view_readlink(f.view, 3, buf, 5), -ENOENT);
    expect_u64(inode_of(&f, 3).attrs.rdev, 3);
    expect_i64(view_getxattr(f.view, 2, "user.a/b", 8, buf, 10), 2);
    expect_i64(view_getxattr(f.view, 2, "user.a/b", 8, NULL, 0), 2);
    expect_i64(view_getxattr(f.view, 2, "user.a/b", 8, buf, 1), -ERANGE);
    expect_i64(view_getxattr(f.view, 3, "user.x", 6, buf, 10), 0);
    expect_i64(view_getxattr(f.view, 3, "user.y", 6, buf, 10), -ENODATA);
    expect_i64(view_getxattr(f.view, 9, "user.y", 6, buf, 10), -ENOENT);
    expect_check_ok(f.view);
    add(&f, (struct record){.type = REC_REMOVEXATTR, .ino = 3, NAMED("user.x")});
    add_unlink(&f, 2, ROOT_INO, "l", 0);
    apply_ok(&f);
    expect_i64(inode_of(&f, 3).attrs.ctime, time_of(f.seq - 1));
    expect_i64(view_readlink(f.view, 2, buf, 10), -ENOENT);
    add(&f, (struct record){.type = REC_REMOVEXATTR, .ino = 3, NAMED("user.x")});
    apply_bad(&f);
}

Test(names, setattr_applies_its_mask)
{
    add_file(&f, 4, ROOT_INO, "a", 5);
    struct attrs attrs = {.mode = S_IFDIR | 0600,
                          .uid = 70,
                          .gid = 80,
                          .size = 99,
                          .atime = 1,
                          .mtime = 2,
                          .ctime = 3};
    add(&f, (struct record){.type = REC_SETATTR,
                            .ino = 4,
                            .attrs = attrs,
                            .mask = ATTR_MODE | ATTR_GID | ATTR_CTIME});
    apply_ok(&f);
    struct attrs a = inode_of(&f, 4).attrs;
    expect_u64(a.mode, (uint32_t)(S_IFREG | 0600));
    cr_expect(a.uid == 7 && a.gid == 80 && a.size == 5 && a.atime == 11 && a.mtime == 12 &&
              a.ctime == 3);
    add(&f, (struct record){.type = REC_SETATTR,
                            .ino = 4,
                            .attrs = attrs,
                            .mask = ATTR_UID | ATTR_ATIME | ATTR_MTIME});
    apply_ok(&f);
    a = inode_of(&f, 4).attrs;
    cr_expect(a.uid == 70 && a.atime == 1 && a.mtime == 2 && a.ctime == 3);
}

Test(names, refused)
{
    add_dir(&f, 2, ROOT_INO, "d");
    add_file(&f, 4, ROOT_INO, "a", 5);
    add_link(&f, 4, 2, "other");
    apply_ok(&f);
    add_dir(&f, 9, ROOT_INO, "fine"); /* what came before in the batch is dropped with it */
    add_unlink(&f, 9, ROOT_INO, "a", 0);
    apply_bad(&f);
    add_unlink(&f, 4, ROOT_INO, "nothing", 0);
    apply_bad(&f);
    add_unlink(&f, 4, ROOT_INO, "a", RECORD_ORPHAN); /* has another name */
    apply_bad(&f);
    add_link(&f, 2, ROOT_INO, "dirlink");
    apply_bad(&f);
    add_link(&f, 99, ROOT_INO, "x");
    apply_bad(&f);
    add_link(&f, 4, ROOT_INO, "d");
    apply_bad(&f);
    add_dir(&f, 5, 4, "below a file");
    apply_bad(&f);
    add_dir(&f, 5, 99, "nowhere");
    apply_bad(&f);
    add_dir(&f, 0, ROOT_INO, "zero");
    apply_bad(&f);
    add_rename(&f, 4, ROOT_INO, "a", ROOT_INO, "d", 2, 0); /* file over directory */
    apply_bad(&f);
    add_rename(&f, 2, ROOT_INO, "d", ROOT_INO, "a", 4, 0);
    apply_bad(&f);
    add_rename(&f, 4, ROOT_INO, "a", ROOT_INO, "d", 0, 0); /* something is there */
    apply_bad(&f);
    add_rename(&f, 4, ROOT_INO, "a", 2, "other", 4, 0); /* itself */
    apply_bad(&f);
    struct attrs dir = {.mode = S_IFDIR | 0755};
    add(&f,
        (struct record){
            .type = REC_MAKE, .ino = 8, .parent = ROOT_INO, .cookie = 0, NAMED("c"), .attrs = dir});
    apply_bad(&f);
    uint64_t cookie = f.seq + 1;
    add_dir(&f, 8, ROOT_INO, "c");
    add(&f, (struct record){.type = REC_MAKE,
                            .ino = 9,
                            .parent = ROOT_INO,
                            .cookie = cookie,
                            NAMED("e"),
                            .attrs = dir});
    apply_bad(&f);
    add(&f, (struct record){.type = REC_SETATTR, .ino = 99, .mask = ATTR_UID});
    apply_bad(&f);
    add_xattr(&f, 99, "user.x", "");
    apply_bad(&f);
}

struct listing {
    struct fixture *f;
    char text[200];
    int stop_after;
};

static int list_entry(const struct view_entry *entry, const char *name, size_t len, void *arg)
{
    struct listing *l = arg;
    sprintf(l->text + strlen(l->text), "%.*s:%d ", (int)len, name, (int)entry->ino);
    if (l->f) { /* the directory changes under the walk */
        add_file(l->f, 1000 + entry->ino, ROOT_INO, entry->ino == 4 ? "y" : "z", 0);
        apply_ok(l->f);
    }
    return --l->stop_after == 0 ? 1 : 0;
}

Test(names, readdir_sees_one_state)
{
    add_file(&f, 4, ROOT_INO, "b", 0);
    add_file(&f, 5, ROOT_INO, "a", 0);
    add_file(&f, 6, ROOT_INO, "c", 0);
    add_unlink(&f, 6, ROOT_INO, "c", 0);
    apply_ok(&f);
    struct listing walk = {.f = &f};
    expect_i64(view_readdir(f.view, ROOT_INO, 0, list_entry, &walk), 0);
    expect_str(walk.text, "b:4 a:5 ");
    struct view_entry entry;
    expect_i64(view_lookup(f.view, ROOT_INO, "b", 1, &entry), 0);
    struct listing rest = {.stop_after = 2};
    expect_i64(view_readdir(f.view, ROOT_INO, entry.cookie, list_entry, &rest), 0);
    expect_str(rest.text, "a:5 y:1004 ");
    expect_i64(view_readdir(f.view, 4, 0, list_entry, &rest), -ENOTDIR);
    expect_i64(view_readdir(f.view, 99, 0, list_entry, &rest), -ENOENT);
    expect_i64(view_readdir(f.view, ROOT_INO, UINT64_MAX, list_entry, &rest), 0);
}

Test(names, paths)
{
    add_dir(&f, 2, ROOT_INO, "run7");
    add_file(&f, 4, 2, "step1.pt", 0);
    add_file(&f, 5, 2, "x", 0);
    add_unlink(&f, 5, 2, "x", RECORD_ORPHAN);
    apply_ok(&f);
    static const struct {
        uint64_t ino;
        const char *path;
    } cases[] = {{ROOT_INO, "/"}, {2, "/run7"}, {4, "/run7/step1.pt"}, {5, "?"}, {99, "?"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_free_ char *path = view_path(f.view, cases[i].ino);
        expect_str(path, cases[i].path);
    }
}

/* In the union of several nodes' names, one that was taken may come back. */
Test(names, an_orphan_gets_a_name)
{
    add_file(&f, 10, ROOT_INO, "a", 5);
    add_unlink(&f, 10, ROOT_INO, "a", RECORD_ORPHAN);
    apply_ok(&f);
    add_link(&f, 10, ROOT_INO, "b");
    apply_bad(&f);
    struct record rec = {.type = REC_LINK,
                         .flags = RECORD_ORPHAN,
                         .ino = 10,
                         .parent = ROOT_INO,
                         .cookie = 90,
                         NAMED("b")};
    add(&f, rec);
    apply_ok(&f);
    expect_u64(lookup(&f, ROOT_INO, "b"), 10);
    expect_u64(inode_of(&f, 10).nlink, 1);
    expect_u64(view_state(f.view).files, 1);
    expect_check_ok(f.view);
    rec.name = "c";
    rec.cookie = 91;
    add(&f, rec);
    apply_bad(&f);
}
