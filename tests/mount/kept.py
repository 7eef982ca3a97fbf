# SPDX-License-Identifier: Apache-2.0
"""What the kernel can do, what it keeps of a mount, and what the daemon would tell it."""
import ctypes
import os

import pytest

KEPT = {"entry_timeout": "1h", "attr_timeout": "1h"}
FEW = 20  # requests that a test itself may cause
FORCE_SYNC, BASIC_STATS = 0x2000, 0x7FF  # of statx(2)
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 3, 16  # of fallocate(2); a hole keeps the size
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def need_kernel(*least):
    """Skips the test on an older kernel; docs/operations.md has the table of what it needs them for."""
    if tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) < least:
        pytest.skip(f"skipped: kernel {os.uname().release} is older than {'.'.join(map(str, least))}")


def requests(cairn):
    return cairn.status()["mount"]["requests_total"]


class Statx(ctypes.Structure):
    """struct statx, as far as it is looked at."""

    _fields_ = [("mask", ctypes.c_uint32), ("blksize", ctypes.c_uint32), ("attributes", ctypes.c_uint64), ("nlink", ctypes.c_uint32),
                ("uid", ctypes.c_uint32), ("gid", ctypes.c_uint32), ("mode", ctypes.c_uint16), ("spare", ctypes.c_uint16),
                ("ino", ctypes.c_uint64), ("size", ctypes.c_uint64), ("blocks", ctypes.c_uint64), ("attributes_mask", ctypes.c_uint64),
                ("times", ctypes.c_int64 * 8), ("rest", ctypes.c_uint8 * 128)]  # fmt: skip

    def ns(self, which):
        return self.times[2 * which] * 10**9 + (self.times[2 * which + 1] & 0xFFFFFFFF)


def seen(st):
    """What of stat(2) a change may change."""
    return {"mode": st.st_mode, "nlink": st.st_nlink, "uid": st.st_uid, "gid": st.st_gid, "size": st.st_size, "blocks": st.st_blocks,
            "ctime": st.st_ctime_ns, "mtime": st.st_mtime_ns}  # fmt: skip


def asked_of_the_daemon(path):
    """The same as the kernel would tell it if it kept nothing."""
    found = Statx()
    failed = LIBC.statx(-100, os.fsencode(path), FORCE_SYNC, BASIC_STATS, ctypes.byref(found))
    assert failed == 0, os.strerror(ctypes.get_errno())
    return {name: getattr(found, name)
            for name in ("mode", "nlink", "uid", "gid", "size", "blocks")} | {"ctime": found.ns(2), "mtime": found.ns(3)}
