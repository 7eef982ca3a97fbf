# SPDX-License-Identifier: Apache-2.0
"""What the model test and real programs found, each in a few lines."""
import ctypes
import os
import random
import time

import pytest

import processes
import rig

pytestmark = pytest.mark.needs_mount
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
libc = ctypes.CDLL(None, use_errno=True)


def lose_power(cairn):
    cairn.power_cycle()


@pytest.mark.parametrize("flag", (os.O_SYNC, os.O_DSYNC), ids=("O_SYNC", "O_DSYNC"))
def test_write_that_is_to_be_durable(cairn, flag):
    """P3: without the page cache the kernel asks for no fsync: the write itself has to wait."""
    cairn.mount(writeback_delay="60s")
    for size in (100, 3 * rig.MIB):
        fd = os.open(os.path.join(cairn.mnt, f"file-{size}"), NEW | flag)
        assert os.write(fd, rig.seeded_bytes(size, size)) == size
    lose_power(cairn)
    for size in (100, 3 * rig.MIB):
        assert rig.read_file(os.path.join(cairn.mnt, f"file-{size}")) == rig.seeded_bytes(size, size)


def test_file_made_to_be_read(cairn):
    """A file that was created with O_RDONLY is part of history after its close."""
    cairn.mount(writeback_delay="60s")
    os.close(os.open(os.path.join(cairn.mnt, "file"), os.O_RDONLY | os.O_CREAT, 0o644))
    rig.sync(cairn.mnt)
    lose_power(cairn)
    assert os.listdir(cairn.mnt) == ["file"]


def test_untouched_file_below_a_renamed_directory(cairn):
    """P4: what is open and empty goes with its directory, too."""
    cairn.mount(writeback_delay="60s")
    os.mkdir(os.path.join(cairn.mnt, "before"))
    os.open(os.path.join(cairn.mnt, "before", "file"), NEW)
    os.rename(os.path.join(cairn.mnt, "before"), os.path.join(cairn.mnt, "after"))
    rig.sync(cairn.mnt)
    lose_power(cairn)
    assert os.listdir(os.path.join(cairn.mnt, "after")) == ["file"]


def test_file_below_a_renamed_directory_by_its_last_name(cairn):
    """P4: what was truncated goes with its directory also where it came into that as a link, and its first name is gone."""
    cairn.mount(writeback_delay="60s")
    directory = rig.mkdir(os.path.join(cairn.mnt, "before"))
    rig.write_file(os.path.join(cairn.mnt, "first"), rig.seeded_bytes(1, 100_000))
    os.link(os.path.join(cairn.mnt, "first"), os.path.join(directory, "last"))
    os.unlink(os.path.join(cairn.mnt, "first"))
    rig.sync(cairn.mnt)
    os.truncate(os.path.join(directory, "last"), 1000)
    os.rename(directory, os.path.join(cairn.mnt, "after"))
    rig.sync(cairn.mnt)
    lose_power(cairn)
    assert rig.read_file(os.path.join(cairn.mnt, "after", "last")) == rig.seeded_bytes(1, 100_000)[:1000]


def test_time_of_a_directory_with_a_file_being_written(cairn, mnt):
    """What utimens sets on a directory stays when a file that was made before is closed."""
    with rig.opened(os.path.join(mnt, "file"), NEW) as fd:
        os.write(fd, b"content")
        os.utime(mnt, ns=(10**18, 10**18))
    assert os.stat(mnt).st_mtime_ns == 10**18
    cairn.remount()
    assert os.stat(mnt).st_mtime_ns == 10**18


def test_empty_file_truncated_by_open(cairn):
    """It has a new mtime, as a file with content would: ninja takes the time of its lock file."""
    cairn.mount(attr_timeout=0)
    path = os.path.join(cairn.mnt, "lock")
    os.close(os.open(path, NEW))
    os.utime(path, ns=(10**18, 10**18))
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    assert os.stat(path).st_mtime_ns > 10**18


def test_time_of_a_copy_after_a_kill(cairn):
    """What was copied as references has the time of that, also if the daemon dies before it is sealed."""
    cairn.mount(attr_timeout=0, writeback_delay="0s")
    source, target = (os.path.join(cairn.mnt, name) for name in ("source", "target"))
    rig.write_file(source, rig.seeded_bytes(1, 3 * rig.MIB))
    rig.write_file(target, b"content")
    os.utime(target, ns=(10**18, 10**18))
    cairn.remount()
    fd, fd2 = os.open(source, os.O_RDONLY), os.open(target, os.O_RDWR)
    os.copy_file_range(fd, fd2, 3 * rig.MIB)
    time_of_copy = os.fstat(fd2).st_mtime_ns
    cairn.crash()
    assert os.stat(target).st_mtime_ns == time_of_copy > 10**18


def test_time_of_a_file_that_lost_its_name(cairn):
    """What utimens set after the last write stays when the name goes."""
    cairn.mount(attr_timeout=0, writeback_delay="60s")
    path = os.path.join(cairn.mnt, "file")
    with rig.opened(path, NEW) as fd:
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
        os.utime(path, ns=(10**18, 10**18))
        os.unlink(path)
        assert os.fstat(fd).st_mtime_ns == 10**18


@pytest.mark.alone
@pytest.mark.parametrize("named", (True, False))
def test_many_small_writes_to_one_file(cairn, named):
    """P1: more of them than the stage has ranges, and no write waits for the draft to be idle."""
    cairn.mount(stage="64M")
    path = os.path.join(cairn.mnt, "file")
    with rig.opened(path, NEW) as fd:
        if not named:
            os.unlink(path)
        data, since = rig.seeded_bytes(1, 4096), time.monotonic()
        for _ in range(40_000):
            os.write(fd, data)
        waits = cairn.status()["stage"]
        assert os.pread(fd, 4096, 30_000 * 4096) == data and os.fstat(fd).st_size == 40_000 * 4096
    print(f"{time.monotonic() - since:.1f} s, {waits['wait_count']} waits, {waits['wait_ms_total']} ms")
    assert waits["wait_ms_total"] < 9_000, "it waited until the draft was idle"


def scatter(fd, expected, begin, end, seed, failures):
    """Small writes, reads and holes at random, in a part of the file that is this thread's."""
    rng = random.Random(seed)
    try:
        for number in range(8_000):
            length = rng.randrange(1, 3000)
            at = rng.randrange(begin, end - length)
            if number % 50 == 0:
                assert libc.fallocate(fd, PUNCH_HOLE, ctypes.c_long(at), ctypes.c_long(length)) == 0
                expected[at:at + length] = bytes(length)
            elif number % 5 == 0:
                assert os.pread(fd, length, at) == expected[at:at + length], (seed, number, at, length)
            else:
                data = rng.randbytes(length)
                assert os.pwrite(fd, data, at) == length
                expected[at:at + length] = data
    except Exception as failure:
        failures.append(failure)


@pytest.mark.parametrize("stored", (False, True))
def test_scattered_writes_are_gathered(cairn, rng, stored):
    """P6: more of them to a file without a name than the stage's table takes, by several at once, in memory, pieces and stored content."""
    cairn.mount(stage="64M")
    path, size = os.path.join(cairn.mnt, "gone"), 48 * rig.MIB
    expected = bytearray(rig.seeded_bytes(rng.random(), size) if stored else size)
    with rig.opened(path, os.O_RDWR | os.O_CREAT) as fd:
        if stored:
            rig.write_all(fd, expected)
            os.fsync(fd)
        os.unlink(path)
        os.ftruncate(fd, size)
        failures, share = [], size // 3
        dice = [rng.random() for _ in range(3)]
        processes.in_threads(lambda at: scatter(fd, expected, at * share, (at + 1) * share, dice[at], failures), range(3))
        assert not failures, failures
        for at in range(0, size, rig.MIB):
            assert os.pread(fd, rig.MIB, at) == expected[at:at + rig.MIB], at
        assert cairn.status()["stage"]["wait_count"] > 0, "else the table was never full, and nothing was gathered"
    cairn.umount_whole()
