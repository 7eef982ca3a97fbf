// SPDX-License-Identifier: Apache-2.0
/* The kernel's list of mounts, in which names are what users made them. */
#include "cli/mounts.h"

#include <sys/mman.h>

#include "base/io.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    struct mount_list list;
    if (fd < 0) {
        fd = memfd_create("mountinfo", MFD_CLOEXEC);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    check(fd >= 0 && ftruncate(fd, 0) == 0 &&
          (size == 0 || io_pwrite_full(fd, data, size, 0) == 0));
    check(mounts_read(path, &list) == 0);
    for (size_t i = 0; i < list.count; i++)
        check(list.at[i].mountpoint && list.at[i].store);
    mounts_done(&list);
    return 0;
}
