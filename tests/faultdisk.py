# SPDX-License-Identifier: Apache-2.0
"""Faults of a disk in a running daemon: tests/faults/shim.c is preloaded into it, and a shared file says which call fails where, and how.

    disk = faultdisk.FaultDisk(cairn, build)           # cairn: a rig.Mount that is not mounted
    with disk.fault("journal", "fdatasync", errno.EIO, times=3):
        ...
"""
import contextlib
import errno
import mmap
import os
import struct

import pytest

# In the order of enum class, call and kind in faults/shim.c.
CLASSES = ("none packs room journal runs superblock session head view-log view-table view-manifest view-current view-options "
           "view-info stage directory remote other").split()
CALLS = "open pread pwrite fdatasync fsync fallocate ftruncate rename unlink mmap mkdir readdir".split()
KINDS = "none errno short misread misdirect lie".split()
RULE = struct.Struct("=IIIIiIIIIIII")
COUNTS_AT, COUNTS_ROW = 48, 16
LENGTH = COUNTS_AT + 32 * COUNTS_ROW * 8
FIRED_AT = 32

VIEW = tuple(name for name in CLASSES if name.startswith("view-"))
# What a call can give by its manual, where a disk, a quota or a table of descriptors is the cause.
ERRNOS = {
    "open": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS),
    "pread": (errno.EIO, errno.EINTR),
    "pwrite": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EFBIG),
    "fdatasync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "fallocate": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EOPNOTSUPP, errno.EFBIG),
    "ftruncate": (errno.EIO, errno.EINTR),
    "rename": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    "unlink": (errno.EIO, errno.ENOSPC, errno.EROFS),
    "mmap": (errno.ENOMEM, errno.ENFILE),
    "mkdir": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    "readdir": (errno.EIO,),
}
# What it can do without an error. Such a disk loses what it took: a reader gets the right bytes, or EIO for these.
SILENT = {
    "pread": ("short", "misread", "misdirect", "lie"),
    "pwrite": ("short", "misdirect", "lie"),
    "fdatasync": ("lie",),
    "fsync": ("lie",),
    "fallocate": ("lie",),
    "ftruncate": ("lie",),
    "rename": ("lie",),
    "unlink": ("lie",),
}
HARMLESS = {("pread", "short"), ("pwrite", "short")}  # a short count is an answer, not damage


def library(build):
    path = os.path.join(build, "tests", "faults", "libfaultdisk.so")
    return path if os.path.exists(path) else None


def build_of(config, sanitized):
    """The directory of the build, or the test is skipped."""
    build = config.getoption("--build")
    if sanitized:
        pytest.skip("skipped: a sanitizer wants to be the first library of a process")
    if library(build) is None:
        pytest.skip("skipped: this build has no tests/faults")
    return build


def shared_map(path, length):
    """Memory that the daemon sees, too, by a new file."""
    with open(path, "w+b") as file:
        file.truncate(length)
        return mmap.mmap(file.fileno(), length)


class FaultDisk:
    def __init__(self, cairn, build, path, below=None):
        """`below`: the directory that fails; None: the store."""
        self.cairn = cairn
        self.map = shared_map(path, LENGTH)
        # The daemon alone: a verb that asks it is not on this disk.
        cairn.prefix = ("env", f"LD_PRELOAD={os.path.abspath(library(build))}", f"FAULT_CONTROL={path}",
                        f"FAULT_STORE={below or cairn.store}",
                        f"FAULT_STAGE={cairn.stage_dir}")

    def arm(self, site, call, what, skip=0, times=1, sites=(), calls=()):
        """what: an errno, or one of KINDS. `sites`, `calls`: further ones that fail alike. times 0: until it is disarmed."""
        kind, error = ("errno", what) if isinstance(what, int) else (what, 0)
        bits = sum(1 << CALLS.index(name) for name in calls), sum(1 << CLASSES.index(name) for name in sites)
        rule = RULE.pack(0, CLASSES.index(site), CALLS.index(call), KINDS.index(kind), error, skip, times, 0, 0, *bits, 0)
        self.map[: RULE.size] = rule
        self.map[0:4] = struct.pack("=I", 1)

    def disarm(self):
        self.map[0:4] = bytes(4)

    def fired(self):
        return struct.unpack_from("=I", self.map, FIRED_AT)[0]

    def count(self, site, call):
        """Calls ever."""
        at = COUNTS_AT + 8 * (CLASSES.index(site) * COUNTS_ROW + CALLS.index(call))
        return struct.unpack_from("=Q", self.map, at)[0]

    @contextlib.contextmanager
    def fault(self, *args, **kwargs):
        self.arm(*args, **kwargs)
        try:
            yield self
        finally:
            self.disarm()

    def sites(self):
        """Every (site, call) that the daemon has made so far."""
        return [(site, call) for site in CLASSES[1:] for call in CALLS if self.count(site, call)]


def loud(call):
    """What a call can do that is no lie: an errno, or a short count."""
    return [*ERRNOS[call], *(kind for kind in SILENT.get(call, ()) if (call, kind) in HARMLESS)]


def silent(call):
    return [kind for kind in SILENT.get(call, ()) if (call, kind) not in HARMLESS]
