# SPDX-License-Identifier: Apache-2.0
"""P10: random writes, sizes and statfs; what ext4 does too is compared in tests/posix."""
import os
import random

import pytest

import rig

PAGE = 4096
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL


@pytest.fixture(scope="module")
def shared(request, mount_factory, tmp_path_factory):
    """One mount for the tests of this module that do not need their own."""
    return mount_factory(str(tmp_path_factory.mktemp("posix")), request=request).mount()


@pytest.fixture
def d(shared, request):
    """A fresh directory on the mount."""
    path = rig.mkdir(os.path.join(shared.mnt, request.node.name[:80].replace("/", "_")))
    return path


@pytest.fixture
def f(d):
    return os.path.join(d, "file")


def data(size, seed=1):
    return rig.seeded_bytes(seed, size)


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
