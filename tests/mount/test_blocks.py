# SPDX-License-Identifier: Apache-2.0
"""st_blocks, which the kernel keeps: it changes by itself when content is sealed or becomes durable, and the kernel is told."""
import ctypes
import errno
import os
import shutil
import subprocess
import time

import pytest

import rig
from kept import FEW, KEEP_SIZE, KEPT, LIBC, PUNCH_HOLE, ZERO_RANGE, asked_of_the_daemon, requests

pytestmark = pytest.mark.needs_mount


def test_stored_bytes_are_seen(cairn):
    """What is staged over durable content counts until it replaces it; then st_blocks changes by itself, and the kernel is told
    before those that waited for it."""
    cairn.mount(writeback_delay="10m", **KEPT)
    path = os.path.join(cairn.mnt, "file")
    with rig.opened(path, os.O_RDWR | os.O_CREAT) as fd:
        os.pwrite(fd, rig.seeded_bytes(1, rig.MIB), 0)
        os.ftruncate(fd, 16 * rig.MIB)
        os.fsync(fd)
        for number in range(20):
            assert os.stat(path).st_blocks == rig.MIB // 512, number
            os.pwrite(fd, rig.seeded_bytes(2 + number, rig.MIB), 0)
            assert os.stat(path).st_blocks == 2 * rig.MIB // 512, number
            os.fsync(fd)


def sealed_by_fsync(fd, path):
    os.fsync(fd)


def sealed_by_rename_of_the_directory(fd, path):
    os.rename(os.path.dirname(path), os.path.dirname(path) + ".away")
    os.rename(os.path.dirname(path) + ".away", os.path.dirname(path))


def kernel_is_told(path):
    rig.poll(lambda: os.stat(path).st_blocks == 8, 20, "the draft to be sealed, and the kernel told")


def sealed_by_what_comes_after_a_close(fd, path):
    """A close beside another writer leaves the draft; the next operation seals it, and the writeback thread tells."""
    os.close(os.open(path, os.O_WRONLY))
    os.mkdir(path + ".marker")
    kernel_is_told(path)


SEALED = {
    "fsync": sealed_by_fsync,
    "rename of the directory": sealed_by_rename_of_the_directory,
    "link": lambda fd, path: os.link(path, path + ".link"),  # told with the answer
    "close of another": sealed_by_what_comes_after_a_close,
    "writeback": lambda fd, path: kernel_is_told(path),
}


@pytest.mark.parametrize("how", SEALED)
def test_blocks_of_what_is_sealed(cairn, how):
    """What a draft replaces in a version that is not on NVMe counts until the seal; then the kernel is notified, whichever thread sealed.
    (No command runs while the file is open: a process that is started closes its copy of the descriptor, which seals.)"""
    cairn.mount(stage="512M", writeback_delay="10m", fsync="stage", **KEPT)
    directory = rig.mkdir(os.path.join(cairn.mnt, "directory"))
    path = rig.write_file(os.path.join(directory, "file"), os.urandom(8192))
    with rig.opened(path) as fd:
        assert LIBC.fallocate(fd, PUNCH_HOLE, 0, 4096) == 0, os.strerror(ctypes.get_errno())
        assert os.stat(path).st_blocks == 16
        SEALED[how](fd, path)
        assert os.stat(path).st_blocks == asked_of_the_daemon(path)["blocks"] == 8


def test_blocks_without_holes_are_not_asked_for_again(cairn):
    """A change of a file without holes shows as many blocks when it is sealed as before."""
    cairn.mount(stage="512M", writeback_delay="10m", **KEPT)
    dense = [os.path.join(cairn.mnt, f"dense{number}") for number in range(200)]
    for name in dense:
        rig.write_file(name, os.urandom(8192))
    for name in dense:
        with rig.opened(name) as fd:
            os.pwrite(fd, b"new", 4096)
            os.fstat(fd)
    before = requests(cairn)
    assert {os.stat(name).st_blocks for name in dense} == {16}
    assert requests(cairn) - before <= FEW


def test_blocks_of_what_is_gathered(cairn):
    """Scattered small writes to a file without a name become one range when the stage has too many; then the holes between them count."""
    cairn.mount(stage="64M", **KEPT)
    with rig.opened(cairn.mnt + "/one", os.O_RDWR | os.O_CREAT) as one, rig.opened(cairn.mnt + "/two", os.O_RDWR | os.O_CREAT) as two:
        os.unlink(cairn.mnt + "/one"), os.unlink(cairn.mnt + "/two")
        for number in range(400):
            os.pwrite(one, b"x" * 512, number * 16384)
        os.pwrite(one, b"x", 8 * rig.MIB)
        assert os.fstat(one).st_blocks == 401
        for number in range(9_000):
            os.pwrite(two, b"x" * 512, number * 16384)
        kept = os.fstat(one).st_blocks
        assert kept == asked_of_the_daemon(f"/proc/self/fd/{one}")["blocks"] > 401, "else nothing was gathered"


def test_blocks_of_files_that_change_while_they_become_durable(cairn):
    """Each moment as many as there were: GNU tar takes a file without blocks for one hole, and does not read it."""
    cairn.mount(writeback_delay="200ms", attr_timeout="0")
    paths = [os.path.join(cairn.mnt, f"file{number}") for number in range(200)]
    for path in paths:
        rig.write_file(path, b"x" * 8192)
    until, seen_blocks, mode = time.monotonic() + 2, set(), 0o600
    while time.monotonic() < until:
        mode ^= 0o040
        for path in paths:
            os.chmod(path, mode)
            seen_blocks.add(os.stat(path).st_blocks)
    assert seen_blocks == {8192 // 512}


def test_blocks_of_a_copy_by_reference(cairn):
    """They are its own before it is durable, and while pieces of a draft are."""
    cairn.mount(writeback_delay="10m", attr_timeout="0")
    source, copy, size = os.path.join(cairn.mnt, "source"), os.path.join(cairn.mnt, "copy"), 4 * rig.MIB
    rig.write_file(source, os.urandom(size))
    cairn.wait()
    with rig.opened(source, os.O_RDONLY) as from_fd, rig.opened(copy, os.O_RDWR | os.O_CREAT) as to_fd:
        assert os.copy_file_range(from_fd, to_fd, size) == size
        assert os.fstat(to_fd).st_blocks == size // 512
    assert os.stat(copy).st_blocks == os.stat(source).st_blocks == size // 512
    assert cairn.status()["nvme"]["written_bytes_total"] < size * 3 // 2, "else it was no reference"
    cairn.wait()
    assert os.stat(copy).st_blocks == size // 512


HOLLOWED = {
    "cut to nothing and made longer": lambda fd, half: (os.ftruncate(fd, 0), os.ftruncate(fd, 2 * half)),
    "punched": lambda fd, half: LIBC.fallocate(fd, PUNCH_HOLE, 0, 2 * half),
    "half a hole, half new": lambda fd, half: (LIBC.fallocate(fd, PUNCH_HOLE, 0, half), os.pwrite(fd, os.urandom(half), half)),
}


@pytest.mark.parametrize("how", HOLLOWED)
def test_blocks_of_what_became_hollow(cairn, how):
    """The kernel is told when what is durable is less than what was shown."""
    cairn.mount(writeback_delay="10m", **KEPT)
    path, half = os.path.join(cairn.mnt, "file"), 4 * rig.MIB
    rig.write_file(path, os.urandom(2 * half))
    cairn.wait()
    with rig.opened(path) as fd:
        HOLLOWED[how](fd, half)
    os.stat(path)
    cairn.wait()
    blocks = half // 512 if "half" in how else 0
    assert os.stat(path).st_blocks == asked_of_the_daemon(path)["blocks"] == blocks


def test_what_becomes_durable_is_not_asked_for_again(cairn):
    """Files without holes look the same before and after: programs that know them ask nothing."""
    cairn.mount(writeback_delay="1s", **KEPT)
    paths = [os.path.join(cairn.mnt, f"file{number}") for number in range(200)]
    for number, path in enumerate(paths):
        rig.write_file(path, b"x" * (1 + number * 97))
    before = [os.stat(path) for path in paths]
    cairn.wait()
    # Writeback does one round after the other, and tells the kernel at a round's end: what it had to tell of the first is told.
    cairn.write("next", b"x", "nvme")
    asked = requests(cairn)
    assert [(st.st_blocks, st.st_mtime_ns) for st in map(os.stat, paths)] == [(st.st_blocks, st.st_mtime_ns) for st in before]
    assert requests(cairn) - asked <= FEW


def given(fd):
    """3 MiB and 2 bytes given, 1 MiB of it written, half of that and what follows punched, more given behind the end."""
    assert LIBC.fallocate(fd, 0, 0, 3 * rig.MIB + 2) == 0
    os.pwrite(fd, rig.seeded_bytes("given", rig.MIB), rig.MIB)
    assert LIBC.fallocate(fd, PUNCH_HOLE, 3 * rig.MIB // 2, rig.MIB) == 0
    assert LIBC.fallocate(fd, KEEP_SIZE, 8 * rig.MIB, rig.MIB) == 0
    return 3 * rig.MIB + 2, (2 * rig.MIB + 4096 + rig.MIB) // 512


def power_cut(cairn):
    cairn.power_cycle()


def lost_view(cairn):
    power_cut(cairn)
    cairn.umount()
    cairn.mount_anew()


@pytest.mark.parametrize("end", [lambda cairn: cairn.remount(), lambda cairn: (cairn.kill9(), cairn.mount()), power_cut, lost_view],
                         ids=["remount", "kill", "power cut", "lost view"])
def test_given_blocks_stay(cairn, end):
    """What fallocate gave is part of history at once, and kept like what was written."""
    cairn.mount(writeback_delay="10m")
    path = os.path.join(cairn.mnt, "file")
    with rig.opened(path, os.O_RDWR | os.O_CREAT) as fd:
        size, blocks = given(fd)
        assert (os.fstat(fd).st_size, os.fstat(fd).st_blocks) == (size, blocks)
        os.fsync(fd)
    assert (os.stat(path).st_size, os.stat(path).st_blocks) == (size, blocks)
    end(cairn)
    assert (os.stat(path).st_size, os.stat(path).st_blocks) == (size, blocks)
    with rig.opened(path) as fd:
        assert (os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, rig.MIB, os.SEEK_HOLE)) == (rig.MIB, 3 * rig.MIB // 2)
        os.ftruncate(fd, rig.MIB)
        assert os.fstat(fd).st_blocks == rig.MIB // 512


def test_given_blocks_take_no_room(cairn):
    """They count in st_blocks, and not in statfs; and more than NVMe can ever hold is not given, within the file either."""
    cairn.mount(nvme="1G")
    before = os.statvfs(cairn.mnt)
    with rig.opened(os.path.join(cairn.mnt, "file"), os.O_RDWR | os.O_CREAT) as fd:
        assert LIBC.fallocate(fd, 0, 0, 512 * rig.MIB) == 0
        os.fsync(fd)
        assert os.fstat(fd).st_blocks == 512 * rig.MIB // 512
        assert (before.f_bfree - os.statvfs(cairn.mnt).f_bfree) * before.f_bsize < 64 * rig.MIB
        os.ftruncate(fd, 16 << 40)
        for mode in (0, KEEP_SIZE, ZERO_RANGE):
            assert LIBC.fallocate(fd, mode, 0, 16 << 40) == -1 and ctypes.get_errno() == errno.ENOSPC
        assert os.fstat(fd).st_blocks == 512 * rig.MIB // 512


@pytest.mark.skipif(not shutil.which("rsync"), reason="skipped: rsync is not installed")
@pytest.mark.parametrize("options", [["--preallocate", "--sparse"], ["--preallocate"], ["--preallocate", "--inplace"]], ids=" ".join)
def test_rsync_preallocates(directory, options, mnt):
    """rsync looks at st_blocks to see what fallocate gave, and cuts off what is too much."""
    source, target = os.path.join(directory, "source"), os.path.join(mnt, "target")
    os.mkdir(source), os.mkdir(target)
    files = {f"of-{size}": os.urandom(size) for size in (0, 1, 4095, 300_000, 300_001, 3 * rig.MIB + 1)}
    files["sparse"] = bytes(rig.MIB) + b"end" + bytes(rig.MIB + 1)
    rig.write_files(source, files)
    for _ in range(2):  # onto nothing, and onto what is there
        subprocess.run(["rsync", "-a", "--ignore-times", *options, source + "/", target + "/"], check=True)
        assert {name: rig.read_file(os.path.join(target, name)) == content for name, content in files.items()} == dict.fromkeys(files, True)
