# SPDX-License-Identifier: Apache-2.0
"""What comes after saves: nothing keeps a mount in use; waits for the disk hurry it and have an end; relative paths are those of the
call."""
import errno
import os
import shutil
import sys
import time

import pytest

import library
import rig
from library import NVME, REFER, LaneError
from rig import MIB
from slow_directory import SlowDirectory

pytestmark = pytest.mark.needs_mount
SIZE = 3 * MIB


@pytest.fixture
def raw_lane(request):
    lane = library.Lane(os.path.abspath(request.config.getoption("--build")))
    yield lane
    lane.close()


class Model:
    """Two tensors that lie where they lie for as long as it trains."""

    def __init__(self):
        self.parts = {key: library.ctypes.create_string_buffer(SIZE) for key in (b"a", b"b")}

    def set(self, key, seed):
        self.parts[key].raw = rig.seeded_bytes(seed, SIZE)


def save(lane, path, parts):
    """One file of them; returns the bytes that it referred to."""
    before = lane.stats().bytes_referenced
    found = lane.begin(path, SIZE * len(parts), flags=REFER)
    for i, (key, data) in enumerate(parts.items()):
        found.put(i * SIZE, data, key=key)
    found.commit()
    found.wait()
    assert rig.read_file(path) == b"".join(part.raw for part in parts.values())
    return lane.stats().bytes_referenced - before


def test_an_idle_trainer_keeps_no_mount_in_use(cairn, raw_lane, mnt):
    """It saves by reference; the mount is unmounted beside it and made anew; the next save refers to what is there still."""
    model, path = Model(), os.path.join(mnt, "step1")
    model.set(b"a", 1)
    model.set(b"b", 2)
    parts = model.parts
    assert save(raw_lane, path, parts) == 0
    assert save(raw_lane, os.path.join(mnt, "step2"), parts) == 2 * SIZE
    assert library.open_below(mnt) == []
    cairn.verb("umount", mnt)
    cairn.reap()
    cairn.mount()
    model.set(b"b", 3)
    assert save(raw_lane, os.path.join(mnt, "step3"), parts) == SIZE
    cairn.remount()
    other = rig.seeded_bytes(4, SIZE)
    rig.write_file(os.path.join(mnt, "step3"), other + parts[b"b"].raw)  # of the same size, by another
    assert save(raw_lane, os.path.join(mnt, "step4"), parts) == 0


def test_a_wait_for_nvme_hurries_the_mount(cairn, raw_lane, lane):
    """Data would rest in the stage for longer than the wait may take."""
    cairn.mount(writeback_delay="1h")
    raw_lane.raw(os.path.join(cairn.mnt, "f"), rig.seeded_bytes(1, MIB)).wait(NVME, timeout_ms=60_000)
    lane.save({"x": 1}, os.path.join(cairn.mnt, "g.pt")).wait("nvme", timeout=60)
    lane.save({"x": 1}, os.path.join(cairn.mnt, "h.pt")).wait()
    lane.wait(os.path.join(cairn.mnt, "h.pt"), level="nvme", timeout=60)
    os.mkdir(os.path.join(cairn.mnt, "directory"))
    lane.save({"x": 1}, os.path.join(cairn.mnt, "directory", "i.pt")).wait()
    lane.wait(os.path.join(cairn.mnt, "directory"), level="nvme", timeout=60)


RENAMES = {
    "directory": lambda path: os.rename(os.path.dirname(path), os.path.dirname(path) + "-whole"),
    "up": lambda path: os.rename(path, os.path.join(os.path.dirname(os.path.dirname(path)), "moved")),
    "down": lambda path: (os.makedirs(os.path.dirname(path) + "2/deep"), os.rename(path, os.path.dirname(path) + "2/deep/moved")),
    "out of the way": lambda path: (os.rename(path, path + ".old"), rig.write_file(path, b"another")),
}


def test_a_wait_for_nvme_finds_what_was_renamed(cairn, directory, lane):
    """As programs do that write to tmp-step1 and rename it. What was replaced, or removed, is an error."""
    cairn.mount(writeback_delay="1h")
    for place in (cairn.mnt, directory):
        for name, rename in RENAMES.items():
            os.makedirs(os.path.dirname(path := os.path.join(place, name, "tmp-step1", "a.pt")))
            save = lane.save({"x": 1}, path)
            save.result()
            rename(path)
            assert save.wait("nvme", timeout=60 * rig.PATIENCE) is save
            if place == cairn.mnt:
                lane.wait(level="nvme", timeout=60 * rig.PATIENCE)
        for end, number in ((os.remove, errno.ENOENT), (lambda path: lane.save({"x": 2}, path).result(), errno.ESTALE)):
            save = lane.save({"x": 1}, path := os.path.join(place, "b.pt"))
            save.result()
            end(path)
            with rig.fails(number):
                save.wait("nvme", timeout=60 * rig.PATIENCE)


def test_wait_for_all_covers_what_was_renamed(cairn, lane):
    """The name is gone, but not the file."""
    cairn.mount(writeback_delay="1h")
    os.mkdir(before := os.path.join(cairn.mnt, "tmp"))
    lane.save({"x": 1}, os.path.join(before, "a.pt")).result()
    os.rename(before, after := os.path.join(cairn.mnt, "step1"))
    lane.wait(level="nvme", timeout=60)
    assert os.getxattr(os.path.join(after, "a.pt"), "user.cairn.level") == b"nvme"


@pytest.fixture
def slow(request, directory):
    made = SlowDirectory(request.config.getoption("--build"), directory)
    request.addfinalizer(made.close)
    return made


def test_a_wait_for_a_slow_disk_has_an_end(slow, raw_lane, lane):
    """Elsewhere than on CairnFS: a timeout is kept, and the next wait has what the first one began."""
    slow.take(4)
    save = raw_lane.raw(os.path.join(slow.path, "f"), rig.seeded_bytes(1, 2 * MIB))
    save.wait()
    begin = time.monotonic()
    with pytest.raises(LaneError) as caught:
        save.wait(NVME, timeout_ms=100)
    assert caught.value.errno == errno.ETIMEDOUT
    with pytest.raises(TimeoutError):
        lane.wait(os.path.join(slow.path, "f"), level="nvme", timeout=0.1)
    assert slow.noted(b"done") == 0, f"the waits took {time.monotonic() - begin:.1f} s"
    save.wait(NVME)
    lane.wait(os.path.join(slow.path, "f"), level="nvme")
    assert slow.noted(b"begun") == 2 and slow.noted(b"done") == 2
    lane.save({"x": bytes(2 * MIB)}, os.path.join(slow.path, "g.pt")).wait()
    with pytest.raises(TimeoutError):
        lane.wait(os.path.join(slow.path, "g.pt"), level="nvme", timeout=0.1)


def test_a_name_that_is_being_given_is_not_waited_for(slow, raw_lane, lane):
    """It cannot be taken back: an abort says so at once, cancel() waits for what comes of it, max_block at most."""
    slow.take(3)
    raw = raw_lane.raw(os.path.join(slow.path, "slow"), b"x")
    rig.poll(lambda: slow.noted(b"begun") == 1, 20, "the rename")
    with pytest.raises(LaneError, match="is just being given its name") as caught:
        raw.abort()
    assert caught.value.errno == errno.EINPROGRESS and slow.noted(b"done") == 0
    raw.wait()
    os.mkdir(inside := os.path.join(slow.path, "directory"))
    save = lane.save({"x": 1}, os.path.join(inside, "slow.pt"), max_block=0.2)
    rig.poll(lambda: slow.noted(b"begun") == 2, 20, "the rename")
    assert not save.cancel() and slow.noted(b"done") == 1
    save.result()
    save = lane.save({"x": 1}, os.path.join(inside, "slow2.pt"))
    rig.poll(lambda: slow.noted(b"begun") == 3, 20, "the rename")
    assert not save.cancel() and save.published()


def test_a_stopped_daemon_keeps_no_wait(stall, lane):
    """Of files that this process has not saved, too: a wait has the end that it was given, and the next one has what is there."""
    path = rig.write_file(os.path.join(stall.mount.mnt, "f"), b"not saved by the lane")
    stall.stop()
    for level in ("nvme", "remote"):
        with pytest.raises(TimeoutError):
            lane.wait(path, level=level, timeout=0.2)
    for _ in range(9):  # more than there are threads
        with pytest.raises(TimeoutError):
            lane.wait(path, level="nvme", timeout=0)
    stall.go()
    lane.wait(path, level="nvme", timeout=60)
    assert os.getxattr(path, "user.cairn.level") == b"nvme"
    lane.wait(path, level="nvme", timeout=0)


def test_a_relative_path_is_that_of_the_call(cairn, lane, directory, monkeypatch):
    """Also for a wait that begins when the program has gone to another directory."""
    cairn.mount(writeback_delay="1h")
    run = rig.mkdir(os.path.join(cairn.mnt, "run"))
    monkeypatch.chdir(run)
    lane.save({"x": 1}, "x.pt").wait()
    monkeypatch.chdir(directory)
    rig.write_file("x.pt", b"another")
    lane.wait(level="nvme", timeout=60)
    assert os.getxattr(os.path.join(run, "x.pt"), "user.cairn.level") == b"nvme"


PLACES = """
import errno, os, sys, threading
sys.path[:0] = sys.argv[1:3]
import library
import cairnfs
cairnfs.save({"x": 1}, os.path.join(sys.argv[4], "first.pt")).wait("nvme")  # imports what an ordinary user may not be able to
os.unlink(os.path.join(sys.argv[4], "first.pt"))
os.chdir(sys.argv[4])
os.setgid(65534)
os.setuid(65534)
lane = library.Lane(sys.argv[3])
save = lane.raw("f", b"written")
save.wait()
assert open("f", "rb").read() == b"written"
assert save.error(library.NVME)[0] == errno.EACCES, save.error(library.NVME)
os.mkfifo("fifo")
got = []
reader = threading.Thread(target=lambda: got.append(open("fifo", "rb").read()), daemon=True)
reader.start()
lane.raw("fifo", b"through").wait()
reader.join()
assert got == [b"through"]
lane.close()
cairnfs.save({"x": 1}, "g.pt").wait()
try:
    cairnfs.wait(level="nvme", timeout=20)
    sys.exit("it waited for what it cannot see")
except PermissionError:
    pass
"""


def test_below_directories_that_may_not_be_searched(request, programs, directory):
    """A process that went there as root and is an ordinary user now: relative paths work as with open(2); what needs the whole path says
    so."""
    rig.need_root()
    os.chmod(directory, 0o755)
    below = os.path.join(directory, "closed", "here")
    os.makedirs(below)
    os.chmod(below, 0o777)
    os.chmod(os.path.dirname(below), 0o700)
    build = os.path.join(directory, "build")
    os.makedirs(os.path.join(build, "src", "client"))
    shutil.copy(library.path_in(os.path.abspath(request.config.getoption("--build"))), os.path.join(build, "src", "client"))
    command = [sys.executable, "-c", PLACES, os.path.dirname(os.path.abspath(__file__)), programs["PYTHONPATH"].split(os.pathsep)[0],
               build, below]
    rig.run(*command, env={**programs, "CAIRN_LIBRARY": library.path_in(build)}, timeout=rig.PATIENCE * 60)
