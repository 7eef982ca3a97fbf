# SPDX-License-Identifier: Apache-2.0
"""All that the mount does otherwise than ext4 in the scripts: {script: {label: (on ext4, here)}}. docs/posix.md says why."""

DIFFERENCES = {
    # ACLs are refused.
    "acls": {
        "get": ("ENODATA", "ENOTSUP"),
        "set": (None, "ENOTSUP"),
        "set default": (None, "ENOTSUP"),
        "remove": (None, "ENOTSUP"),
    },
    # A chown that names neither user nor group, by somebody who may not: nothing happens, without an error. What the kernel sends of it
    # is what it sends before an fallocate of a file with such bits, by somebody who may: SETATTR of nothing.
    "chown_by_whom": {
        f"(-1, -1) {mode:o} {user} file": ("EPERM", None)
        for mode in (0o4755, 0o2755, 0o6755, 0o2745, 0o6644, 0o7777)
        for user in ("member", "other")
        if (mode, user) != (0o2745, "member")
    },
    # What the kernel answers by itself does not move atime, nor what goes through a fifo its times.
    "atime_of_what_is_open": {read: ("moved", "not moved") for read in ("pread", "pread at the end", "sendfile", "map")},
    "times_of_a_fifo": {
        "write": ({"atime": False, "mtime": True}, {"atime": False, "mtime": False}),
        "read": ({"atime": True, "mtime": False}, {"atime": False, "mtime": False}),
    },
    # The kernel tells of a store through a map when it writes the page, and not when it was stored.
    "times_of_a_map": {"a time set between": ("as set", "moved")},
    # O_DIRECT has no alignment.
    "direct_io_unaligned": {"length": ("EINVAL", 100), "offset": ("EINVAL", 4096), "address": ("EINVAL", 4096)},
    # A directory has no size.
    "directory_seeks": {"data": (0, "ENXIO")},
    # Content is not shifted.
    "fallocate_shifting": {
        "collapse": (0, "ENOTSUP"),
        "collapse size": (91_808, 100_000),
        "insert": (0, "ENOTSUP"),
        "insert size": (108_192, 100_000),
    },
    # No flags of inodes (chattr), no map of extents.
    "open_ioctls": {"flags": (8, "ENOTTY"), "extents": (32, "ENOTSUP")},
    # RWF_NOWAIT is not for FUSE.
    "read_and_write_arguments": {"no wait": (True, "ENOTSUP")},
}
