# SPDX-License-Identifier: Apache-2.0
"""st_blocks, and what is data, of files to which fallocate gave blocks, after whatever else is done to them.

All ranges touch an even number of blocks, of which pairs are counted: ext4 counts one more where a file has many extents. Content is
written in whole blocks: how many bytes of one block count is the filesystem's own affair."""
import os

from cases_content import KEEP, MIB, PUNCH, ZERO, pattern, segments
from script import fallocate, opened, script

KIB = 1 << 10
END = MIB + 4096 + 2  # of what is given: no whole block


def make_new(fd):
    """Sealed: on the mount the seal of a close beside another writer waits, and what is replaced after it counts until that is sealed."""
    os.close(os.open("file", os.O_WRONLY | os.O_TRUNC))
    os.fsync(fd)


STEPS = {
    "give": lambda fd: fallocate(fd, 0, 0, END),
    "give and keep the size": lambda fd: fallocate(fd, KEEP, 0, END),
    "give the middle": lambda fd: fallocate(fd, KEEP, 256 * KIB + 1, 260 * KIB),
    "give behind": lambda fd: fallocate(fd, KEEP, 2 * MIB, 256 * KIB),
    "give across the end": lambda fd: fallocate(fd, 0, 768 * KIB, MIB),
    "write the begin": lambda fd: os.pwrite(fd, pattern(64 * KIB), 0),
    "write the middle": lambda fd: os.pwrite(fd, pattern(128 * KIB), 320 * KIB),
    "write behind": lambda fd: os.pwrite(fd, pattern(64 * KIB), 2 * MIB),
    "punch the middle": lambda fd: fallocate(fd, PUNCH | KEEP, 384 * KIB, 256 * KIB + 2),
    "punch to the end": lambda fd: fallocate(fd, PUNCH | KEEP, 512 * KIB, 16 * MIB),
    "zeros in the middle": lambda fd: fallocate(fd, ZERO | KEEP, 352 * KIB, 64 * KIB),
    "zeros behind": lambda fd: fallocate(fd, ZERO, 3 * MIB - 1, 2),
    "cut": lambda fd: os.ftruncate(fd, 384 * KIB),
    "cut to nothing": lambda fd: os.ftruncate(fd, 0),
    "cut to what it is": lambda fd: os.ftruncate(fd, os.fstat(fd).st_size),
    "make longer": lambda fd: os.ftruncate(fd, 4 * MIB),
    "make new": make_new,
}


def state(fd):
    info = os.fstat(fd)
    return info.st_size, info.st_blocks // 16


def data_of(fd, label):
    """What is data. Zeros over content are for ext4 as long as they are in its page cache."""
    return None if "zeros" in label else segments(fd)


@script
def allocated_blocks(s):
    for first, second, third in s.some(STEPS, STEPS, STEPS):
        label = f"{first}, {second}, {third}"
        with s.directory():
            with opened("file", os.O_RDWR | os.O_CREAT) as fd:
                for number, step in enumerate((first, second, third)):
                    s.call(f"{label}: {number}", STEPS[step], fd)
                    s.note(f"{label}: blocks {number}", state(fd))
                s.note(f"{label}: data", data_of(fd, label))
            with opened("file", os.O_RDONLY) as fd:
                s.note(f"{label}: opened again", (state(fd), data_of(fd, label)))
            os.unlink("file")


@script
def allocated_and_listed(s):
    """Blocks to the last one, under each name; and no program sees how they are kept."""
    with opened("file", os.O_RDWR | os.O_CREAT) as fd:
        os.setxattr(fd, "user.note", b"x")
        fallocate(fd, KEEP, 0, END)
        s.note("xattrs", os.listxattr(fd))
    os.rename("file", "renamed"), os.link("renamed", "linked")
    s.note("blocks", (os.stat("renamed").st_blocks, os.stat("linked").st_blocks))
