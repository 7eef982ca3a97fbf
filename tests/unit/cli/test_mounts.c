// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "../expect.h"
#include "cli/mounts.h"

static struct mount_list read_text(const char *text)
{
    char path[] = "/tmp/cairn-mounts-XXXXXX";
    int fd = mkstemp(path);
    assert_i64(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    struct mount_list list;
    assert_i64(mounts_read(path, &list), 0);
    (void)unlink(path);
    return list;
}

Test(mountinfo, ours_are_found)
{
    struct mount_list list =
        read_text("22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
                  "36 22 0:51 / /mnt/my\\040ck\\134pt rw,nosuid shared:2 master:3 - "
                  "fuse.cairnfs /data/a\\011b\\040c rw,user_id=0\n"
                  "37 22 0:52 / /mnt/other rw - fuse.sshfs host:/x rw\n"
                  "38 22 0:53 / /mnt/two rw - fuse.cairnfs /data/two rw\n"
                  "39 22 0:54 / /mnt/two rw - fuse.cairnfs /data/three rw\n");
    assert_u64(list.count, 3);
    const struct mount_entry *found = mounts_find(&list, "/mnt/my ck\\pt");
    cr_assert_not_null(found);
    assert_str(found->store, "/data/a\tb c");
    assert_u64(found->device, makedev(0, 51));
    assert_ptr(mounts_find_device(&list, makedev(0, 53)), &list.at[1]);
    assert_str(mounts_find(&list, "/mnt/.//x/../two/")->store, "/data/three");
    cr_assert_null(mounts_find(&list, "/mnt/other"));
    cr_assert_null(mounts_find_device(&list, makedev(0, 52)));
    mounts_done(&list);
}

Test(mountinfo, what_lies_over_one_is_told)
{
    struct mount_list list = read_text("36 22 0:51 / /a rw - fuse.cairnfs /s rw\n"
                                       "37 36 0:52 / /a/below rw - tmpfs tmpfs rw\n"
                                       "38 36 0:53 / /a rw - ext4 /dev/x rw\n"
                                       "39 22 0:54 / /b rw - fuse.cairnfs /t rw\n"
                                       "40 41 0:55 / /b rw - tmpfs tmpfs rw\n");
    assert_u64(list.count, 2);
    assert_str(list.at[0].cover, "ext4");
    cr_assert_null(list.at[1].cover);
    mounts_done(&list);
}

Test(mountinfo, broken_lines_are_left_out)
{
    struct mount_list list =
        read_text("\n-\n - \n - fuse.cairnfs\n - fuse.cairnfs /s rw\n1 2 - fuse.cairnfs /s rw\n"
                  "1 2 x:y / /m rw - fuse.cairnfs /s rw\n1 2 0:1 / - fuse.cairnfs /s\n"
                  "1 2 0:7 / /ok\\9\\04 rw - fuse.cairnfs /s\\\n");
    assert_u64(list.count, 1);
    assert_str(list.at[0].mountpoint, "/ok\\9\\04");
    assert_str(list.at[0].store, "/s\\");
    mounts_done(&list);
}

Test(mountinfo, of_this_process_is_read)
{
    struct mount_list list;
    assert_i64(mounts_read("/proc/self/mountinfo", &list), 0);
    mounts_done(&list);
    assert_i64(mounts_read("/nonexistent", &list), -ENOENT);
}

Test(paths, are_made_absolute)
{
    static const char *const cases[][2] = {
        {"/", "/"},      {"//a//b/", "/a/b"}, {"/a/./b/../c", "/a/c"},
        {"/../..", "/"}, {"/a/..", "/"},      {"/a b/...", "/a b/..."}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_free_ char *path = path_absolute(cases[i][0]);
        assert_str(path, cases[i][1]);
    }
    assert_i64(chdir("/tmp"), 0);
    _cleanup_free_ char *path = path_absolute("x");
    assert_str(path, "/tmp/x");
}

Test(holders, of_this_process)
{
    char directory[] = "/tmp/cairn-holders-XXXXXX", text[4096] = "";
    cr_assert_not_null(mkdtemp(directory));
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_u64(print_holders(directory, out), 0);
    assert_i64(chdir(directory), 0);
    assert_u64(print_holders(directory, out), 1);
    (void)fclose(out);
    _cleanup_free_ char *me = xasprintf("process %d ", (int)getpid());
    cr_assert_not_null(strstr(text, me), "%s", text);
    cr_assert_not_null(strstr(text, "working directory"));
    (void)rmdir(directory);
}
