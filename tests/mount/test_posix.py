# SPDX-License-Identifier: Apache-2.0
"""P2, P6, P10: drafts, maps and renames as programs use them; what ext4 does too is compared in tests/posix."""
import contextlib
import ctypes
import mmap
import os
import random

import pytest

import rig

LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = 4096
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL


@contextlib.contextmanager
def opened(path, flags=os.O_RDWR, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture(scope="module")
def shared(request, mount_factory, tmp_path_factory):
    """One mount for the tests of this module that do not need their own."""
    return mount_factory(str(tmp_path_factory.mktemp("posix")), request=request).mount()


@pytest.fixture
def d(shared, request):
    """A fresh directory on the mount."""
    path = os.path.join(shared.mnt, request.node.name[:80].replace("/", "_"))
    os.mkdir(path)
    return path


@pytest.fixture
def f(d):
    return os.path.join(d, "file")


def data(size, seed=1):
    return rig.seeded_bytes(seed, size)


# reading and writing

@pytest.mark.parametrize("seed", range(3))
def test_random_writes(f, seed):
    """P10: pwrite, ftruncate and pread anywhere, against a model, over reopening."""
    rng, model = random.Random(seed), bytearray()
    fd = os.open(f, NEW)
    for number in range(150):
        kind = rng.random()
        if kind < 0.6:
            at, block = rng.randrange(900_000), data(rng.choice((1, 100, PAGE, 70_000)), number)
            os.pwrite(fd, block, at)
            model.extend(bytes(max(0, at + len(block) - len(model))))
            model[at : at + len(block)] = block
        elif kind < 0.75:
            size = rng.randrange(1_000_000)
            os.ftruncate(fd, size)
            del model[size:]
            model.extend(bytes(size - len(model)))
        elif kind < 0.95:
            at = rng.randrange(1_000_000)
            assert os.pread(fd, 50_000, at) == model[at : at + 50_000]
        else:
            os.close(fd)
            fd = os.open(f, os.O_RDWR)
    os.close(fd)
    assert rig.read_file(f) == model


def test_vectors(f):
    """P10: writev and readv."""
    with opened(f, NEW) as fd:
        assert os.writev(fd, [b"head", data(300_000), b"", b"tail"]) == 300_008
        parts = [bytearray(4), bytearray(300_000), bytearray(10)]
        assert os.preadv(fd, parts, 0) == 300_008
    assert (bytes(parts[0]), bytes(parts[1]), bytes(parts[2][:4])) == (b"head", data(300_000), b"tail")


def test_other_process_sees_bytes_before_close(f):
    """P2, P10: a draft is read as it is written, from any process."""
    with opened(f, NEW) as fd:
        os.write(fd, data(200_000))
        assert rig.in_child(lambda: rig.read_file(f) == data(200_000))
        os.pwrite(fd, b"changed", 1000)
        assert rig.in_child(lambda: rig.read_file(f)[1000:1007] == b"changed")
        assert os.stat(f).st_size == 200_000


def test_duplicate_descriptor_closed(f):
    """P10: the close of a duplicate (a FLUSH) changes nothing for the other."""
    with opened(f, NEW) as fd:
        os.write(fd, b"one")
        os.close(os.dup(fd))
        os.write(fd, b"two")
        with rig.child(lambda: 0) as pid:
            os.waitpid(pid, 0)
        os.write(fd, b"three")
    assert rig.read_file(f) == b"onetwothree"


# mmap

@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE], ids=["shared", "private"])
def test_mmap_read(f, flags):
    """P10: mapped reads of a sealed file."""
    rig.write_file(f, data(3_000_000))
    with opened(f, os.O_RDONLY) as fd, mmap.mmap(fd, 0, flags=flags, prot=mmap.PROT_READ) as area:
        assert area[:] == data(3_000_000)


def test_mmap_private_write_stays_private(f):
    """P10: copy on write."""
    rig.write_file(f, data(10_000))
    with opened(f, os.O_RDONLY) as fd:
        with mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as area:
            area[0:4] = b"mine"
    assert rig.read_file(f) == data(10_000)


def test_mmap_shared_write(f):
    """P10: a mapped store is in the file after msync, for other processes, and after close."""
    rig.write_file(f, bytes(1 << 20))
    with opened(f) as fd, mmap.mmap(fd, 1 << 20) as area:
        area[5000:5005] = b"hello"
        area[900_000:900_100] = b"z" * 100
        area.flush()
        assert rig.in_child(lambda: rig.read_file(f)[5000:5005] == b"hello")
    got = rig.read_file(f)
    assert got[5000:5005] == b"hello" and got[900_000:900_100] == b"z" * 100 and len(got) == 1 << 20


def test_mmap_shared_write_survives_without_msync(f):
    """P10: munmap and close are enough."""
    rig.write_file(f, bytes(100_000))
    with opened(f) as fd, mmap.mmap(fd, 0) as area:
        area[77_000:77_003] = b"abc"
    assert rig.in_child(lambda: rig.read_file(f)[77_000:77_003] == b"abc")


def test_mmap_sees_writes(f):
    """P10: what write() did is seen through a map, in the same and in another process."""
    rig.write_file(f, bytes(100_000))
    with opened(f) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as area:
        assert area[50_000:50_005] == bytes(5)

        def other():
            with opened(f, os.O_WRONLY) as mine:
                os.pwrite(mine, b"there", 50_000)
            return True

        assert rig.in_child(other)
        assert area[50_000:50_005] == b"there"
        os.pwrite(fd, b"again", 60_000)
        assert area[60_000:60_005] == b"again"


def test_map_lives_after_rename_and_unlink(d, f):
    """P6: live maps are unharmed by renames over the file."""
    rig.write_file(f, data(500_000))
    with opened(f, os.O_RDONLY) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as area:
        rig.write_file(f + ".new", b"other")
        os.rename(f + ".new", f)
        assert area[:] == data(500_000)
        assert os.pread(fd, 500_000, 0) == data(500_000)
    assert rig.read_file(f) == b"other"


# names

def test_rename_moves_file_and_keeps_inode(d, f):
    """P6: rename within and between directories."""
    rig.write_file(f, b"x")
    inode = os.stat(f).st_ino
    os.mkdir(d + "/sub")
    os.rename(f, d + "/sub/other")
    assert os.stat(d + "/sub/other").st_ino == inode
    assert not os.path.exists(f)


def test_rename_of_open_file_over_existing(d, f):
    """P6: the safetensors way: write, rename over the old, only then close."""
    rig.write_file(f, b"old")
    with opened(f, os.O_RDONLY) as reader, opened(f + ".tmp", NEW) as fd:
        os.ftruncate(fd, 10_000)
        os.pwrite(fd, data(10_000), 0)
        os.rename(f + ".tmp", f)
        assert rig.read_file(f) == data(10_000)
        os.pwrite(fd, b"later", 0)
        assert os.read(reader, 10) == b"old"
    assert rig.read_file(f) == b"later" + data(10_000)[5:]


def test_rename_directory_with_open_files(d):
    """P6: a directory is renamed with everything below it."""
    os.makedirs(d + "/a/b")
    rig.write_file(d + "/a/b/sealed", b"sealed")
    with opened(d + "/a/b/open", NEW) as fd:
        os.write(fd, b"one")
        os.rename(d + "/a", d + "/c")
        os.write(fd, b"two")
        assert rig.read_file(d + "/c/b/open") == b"onetwo"
    assert rig.read_file(d + "/c/b/sealed") == b"sealed"
    assert not os.path.exists(d + "/a")


# attributes


def test_sizes(f, plain):
    """P10: st_blksize is large; st_blocks counts what a file has."""
    rig.write_file(f, data(1 << 20))
    info = os.stat(f)
    assert info.st_blocks * 512 >= 1 << 19
    if not plain:
        assert info.st_blksize >= 1 << 20


def test_statfs(d, shared, plain):
    """P10: statfs tells the truth: writing takes room."""
    if plain:
        pytest.skip("skipped: needs the mount")
    before = os.statvfs(d)
    assert 0 < before.f_bavail * before.f_frsize <= before.f_blocks * before.f_frsize <= 4 * rig.GIB
    rig.write_file(d + "/big", data(64 * rig.MIB))
    after = os.statvfs(d)
    used = (before.f_bavail - after.f_bavail) * before.f_frsize
    assert 32 * rig.MIB < used < 200 * rig.MIB
    assert after.f_namemax == 255


def files_of(path):
    """How many files there are, by statfs."""
    info = os.statvfs(path)
    assert info.f_files >= info.f_ffree == info.f_favail == info.f_bavail > 0
    return info.f_files - info.f_ffree


def poll_files(cairn, count):
    """The view counts a moment after all is on NVMe."""
    cairn.wait()
    rig.poll(lambda: files_of(cairn.mnt) == count, 30, f"statfs to count {count} files")


def test_statfs_counts_files(cairn, plain):
    """P10: statfs counts the regular files that NVMe has, and as many that may still come as it has blocks for."""
    if plain:
        pytest.skip("skipped: needs the mount")
    cairn.mount()
    assert files_of(cairn.mnt) == 0
    os.mkdir(cairn.mnt + "/directory")
    for number in range(300):
        rig.write_file(f"{cairn.mnt}/directory/{number}", b"text")
    poll_files(cairn, 300)
    for number in range(100):
        os.unlink(f"{cairn.mnt}/directory/{number}")
    os.link(f"{cairn.mnt}/directory/100", f"{cairn.mnt}/second")
    poll_files(cairn, 200)
    cairn.remount()
    assert files_of(cairn.mnt) == 200
    rig.write_file(cairn.mnt + "/large", data(80 * rig.MIB))  # room counts in steps of 64 MiB
    left = os.statvfs(cairn.mnt).f_ffree
    os.unlink(cairn.mnt + "/large")
    rig.poll(lambda: os.statvfs(cairn.mnt).f_ffree > left, 60, "room for more files")


# waiting and space


def test_syncs(d, f):
    """P3: fsync, fdatasync, fsync of a directory and syncfs return without an error."""
    with opened(f, NEW) as fd:
        os.write(fd, data(100_000))
        os.fdatasync(fd)
        os.fsync(fd)
        assert LIBC.syncfs(fd) == 0
    with opened(d, os.O_RDONLY) as fd:
        os.fsync(fd)
