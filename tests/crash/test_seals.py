# SPDX-License-Identifier: Apache-2.0
"""When a file that several descriptors write becomes a version: its closes wait for each other, and nothing that came after overtakes
them (P2, P3, P4)."""
import contextlib
import itertools
import mmap
import os
import struct

import pytest

import rig

pytestmark = pytest.mark.needs_mount
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
TENSOR = 20_000


def tensor(number):
    return rig.seeded_bytes(number, TENSOR)


def write_tensor(path, number):
    """As a library does that knows only the path."""
    with rig.opened(path, os.O_RDWR) as fd:
        os.lseek(fd, number * TENSOR, os.SEEK_SET)
        rig.write_all(fd, tensor(number))


def info(cairn, path):
    return rig.json.loads(cairn.verb("info", path, "--json").stdout)


def is_carried(cairn, path):
    """Some version is on NVMe, and none waits."""
    found = info(cairn, path)
    return found["version"] > 0 and not found["newer_version_staged"]


def expect_tensors(path, count):
    with open(path, "rb") as file:
        assert file.read(count * TENSOR) == b"".join(map(tensor, range(count)))


def test_closes_beside_a_writer_cost_one_version(cairn):
    """One that has the file open, and 1,000 that open, seek, write and close."""
    cairn.mount(writeback_delay="60s")
    path = os.path.join(cairn.mnt, "file")
    with rig.opened(path, NEW) as fd:
        for number in range(1000):
            write_tensor(path, number)
        expect_tensors(path, 1000)
    cairn.wait()
    assert info(cairn, path)["version"] == 1
    cairn.remount()
    expect_tensors(path, 1000)


def test_what_was_closed_survives_the_daemon(cairn):
    """P2: the seal waits, and the daemon dies."""
    cairn.mount(writeback_delay="60s")
    path = os.path.join(cairn.mnt, "file")
    os.open(path, NEW)
    for number in range(20):
        write_tensor(path, number)
    cairn.crash()
    expect_tensors(path, 20)


MARKERS = {
    "mkdir": lambda mnt, path: os.mkdir(os.path.join(mnt, "marker")),
    "file": lambda mnt, path: rig.write_file(os.path.join(mnt, "marker"), b"done"),
    "rename": lambda mnt, path: os.rename(os.path.join(mnt, "ready"), os.path.join(mnt, "marker")),
    "symlink": lambda mnt, path: os.symlink("file", os.path.join(mnt, "marker")),
    "link": lambda mnt, path: os.link(os.path.join(mnt, "ready"), os.path.join(mnt, "marker")),
    "xattr": lambda mnt, path: os.setxattr(path, "user.complete", b"1"),
}


@pytest.mark.parametrize("marker", MARKERS)
def test_marker_is_never_there_without_what_was_closed(cairn, marker):
    """P3, P4: a marker of any kind that is made after a close, and synced, while another writer has the file open."""
    cairn.mount(writeback_delay="60s")
    path = os.path.join(cairn.mnt, "file")
    rig.write_file(os.path.join(cairn.mnt, "ready"), b"done")
    fd = os.open(path, NEW)
    for number in range(5):
        write_tensor(path, number)
    MARKERS[marker](cairn.mnt, path)
    os.pwrite(fd, b"later", 20 * TENSOR)  # and stays open
    rig.sync(cairn.mnt)
    cairn.power_cycle()
    assert os.path.lexists(os.path.join(cairn.mnt, "marker")) or os.getxattr(path, "user.complete") == b"1"
    expect_tensors(path, 5)


def test_fsync_of_the_directory_covers_what_was_closed(cairn):
    """P3: with nothing else in between."""
    cairn.mount(writeback_delay="60s")
    path = os.path.join(cairn.mnt, "file")
    os.open(path, NEW)
    write_tensor(path, 0)
    rig.sync(cairn.mnt)
    cairn.power_cycle()
    expect_tensors(path, 1)


def write_on(path):
    """A process of its own: verbs that we start inherit its descriptor otherwise, and closing that is a close of the file."""
    fd = os.open(path, NEW)
    while True:
        os.pwrite(fd, b"written on", 4_000_000 * TENSOR)
        rig.time.sleep(0.05)


def test_what_was_closed_is_carried_though_others_write(cairn):
    """No later than without another writer: writeback_delay after the close. No draft that is written to all the time is sealed by itself
    in its first minute."""
    cairn.mount(writeback_delay="100ms")
    path = os.path.join(cairn.mnt, "file")
    with rig.child(write_on, path):
        rig.poll(lambda: os.path.exists(path) and os.path.getsize(path) > 0, 10, "the other writer")
        write_tensor(path, 0)
        rig.poll(lambda: is_carried(cairn, path), 10, "the first version")
        cairn.kill9()
    cairn.drop_stage()
    cairn.mount()
    expect_tensors(path, 1)


def test_what_was_closed_is_carried_at_once(cairn):
    """Also where writeback_delay is shorter than the writeback thread rests, and the close comes as that begins."""
    cairn.mount(writeback_delay="0s")
    took = []
    for number in range(8):
        rig.write_file(f"{cairn.mnt}/{number}", os.urandom(100_000))
        begin = rig.time.monotonic()
        rig.poll(lambda: cairn.status()["nvme"]["behind_bytes"] == 0, 20, "the file on NVMe", 0.005)
        took.append(rig.time.monotonic() - begin)
    assert min(took) < 0.15, took


def test_what_was_closed_is_kept_before_it_is_truncated(cairn):
    """P7: as if there were no other writer: it is replaced by what is closed next, and not by nothing."""
    cairn.mount(writeback_delay="60s")
    path = os.path.join(cairn.mnt, "file")
    fd = os.open(path, NEW)
    write_tensor(path, 0)
    os.ftruncate(fd, 0)
    rig.sync(cairn.mnt)
    cairn.power_cycle()
    expect_tensors(path, 1)


class Progress:
    """How far a process is: tensors done, tensors synced; in memory that both share."""

    def __init__(self):
        self.memory = mmap.mmap(-1, mmap.PAGESIZE)

    def tell(self, done, synced):
        struct.pack_into("QQ", self.memory, 0, done, synced)

    def synced(self):
        return struct.unpack_from("QQ", self.memory)[1]


def save(mnt, name, progress):
    """Writes a file tensor by tensor beside a descriptor that is open all the time, and makes a directory after each."""
    path, markers = os.path.join(mnt, name), os.path.join(mnt, f"{name}-markers")
    os.mkdir(markers)
    fd = os.open(path, NEW)
    synced = 0
    for done in itertools.count(1):
        write_tensor(path, done - 1)
        os.mkdir(os.path.join(markers, str(done - 1)))
        os.pwrite(fd, b"x", 4_000_000 * TENSOR + done)
        if done % 20 == 0:
            rig.sync(markers)
            synced = done
        progress.tell(done, synced)


def test_power_cuts_between_closes(cairn, rng, full, new_power):
    """P4, on disks that lose what was not flushed: as many tensors as there are markers, and as many markers as were synced."""
    power = new_power(rig.GIB)
    power.hold(cairn).mount(writeback_delay="1s")
    savers = {f"file-{number}": Progress() for number in range(3)}
    clones = []
    with contextlib.ExitStack() as processes:
        for name, progress in savers.items():
            processes.enter_context(rig.child(save, cairn.mnt, name, progress))
        for _ in range(60 if full else 6):
            rig.time.sleep(rng.uniform(0.05, 0.3))
            synced = {name: progress.synced() for name, progress in savers.items()}
            clones.append((power.cut(), synced))
        cairn.kill9()
    cairn.drop_stage()
    for clone, synced in clones:
        judge(cairn, power, clone, synced)


def judge(cairn, power, clone, synced):
    with power.store_of_cut(cairn, clone) as mount:
        mount.mount()
        for name, least in synced.items():
            directory = os.path.join(mount.mnt, f"{name}-markers")
            markers = sorted(map(int, os.listdir(directory))) if os.path.isdir(directory) else []
            assert markers == list(range(len(markers))) and len(markers) >= least
            if markers:
                expect_tensors(os.path.join(mount.mnt, name), len(markers))
        mount.umount()
