# SPDX-License-Identifier: Apache-2.0
"""How much of a write that is to be durable (O_DSYNC) is whole or not there after a power cut: what the kernel sends in one request."""
import mmap
import os

import pytest

import rig

pytestmark = pytest.mark.needs_mount
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
PAGE, PAGES = mmap.PAGESIZE, 256  # of memory, that one request carries (fs.fuse.max_pages_limit)
MOST = PAGES * PAGE


def buffer(length, shift):
    """A buffer that begins `shift` bytes behind the beginning of a page."""
    return memoryview(mmap.mmap(-1, shift + length))[shift:]


def requests_of(length, shift):
    """docs/posix.md, "How much of a write is atomic"."""
    first = min(length, MOST - shift)
    return 1 + -(-(length - first) // MOST)


@pytest.mark.parametrize("shift", (0, 1, 100, 4095))
def test_what_comes_in_one_request(cairn, shift, mnt):
    """What touches at most 256 pages of memory, wherever it goes in the file."""

    def requests():
        return cairn.status()["mount"]["requests_total"]

    fd = os.open(os.path.join(mnt, "file"), NEW | os.O_DSYNC)
    before = requests()
    asking = requests() - before  # the verb, when it is started, closes the descriptor that it inherits
    for length in (1, PAGE, MOST - PAGE + 1, MOST - PAGE + 2, MOST - 100, MOST, MOST + 1, 2 * MOST, 3 * MOST):
        for offset in (0, 5000):
            counts = []
            # others may ask something of the mount, too: df, a list of mounts
            while len(counts) < 5 and requests_of(length, shift) not in counts:
                before = requests()
                assert os.pwrite(fd, buffer(length, shift), offset) == length
                counts.append(requests() - before - asking)
            assert min(counts) == requests_of(length, shift), (length, offset, counts)


def write_again_and_again(mnt, shift):
    fd = os.open(os.path.join(mnt, "file"), os.O_WRONLY | os.O_DSYNC)
    memory = buffer(MOST, shift)
    for generation in range(1, 1 << 30):
        memory[:] = bytes([generation % 256]) * MOST
        os.pwrite(fd, memory, 0)


@pytest.mark.parametrize("shift", (0, 100))
def test_power_cuts_leave_whole_new_powers(cairn, rng, full, new_power, shift):
    """1 MiB that is written over and over: as it was before or after, if it came in one request; else the first request may be there
    without the second, and nothing else."""
    power = new_power(rig.GIB)
    power.hold(cairn).mount()
    with rig.opened(os.path.join(cairn.mnt, "file"), NEW) as fd:
        rig.write_all(fd, bytes(MOST))
        os.fsync(fd)
    clones = []
    with rig.child(write_again_and_again, cairn.mnt, shift):
        for _ in range(40 if full else 4):
            rig.time.sleep(rng.uniform(0.01, 0.1))
            clones.append(power.cut())
        cairn.kill9()
    cairn.drop_stage()
    for clone in clones:
        judge(cairn, power, clone, MOST - shift)


def judge(cairn, power, clone, border):
    with power.store_of_cut(cairn, clone) as mount:
        mount.mount()
        content = rig.read_file(os.path.join(mount.mnt, "file"))
        first, second = content[:border], content[border:]
        assert len(set(first)) == 1 and len(set(second)) <= 1
        if second:
            assert (first[0] - second[0]) % 256 in (0, 1), "the second request is there without the first"
        mount.umount()
