"""What a lane keeps between saves: nothing that holds a mount in use."""
import os

import pytest

import library
import rig
from library import REFER
from rig import MIB

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
    with open(path, "rb") as file:
        assert file.read() == b"".join(part.raw for part in parts.values())
    return lane.stats().bytes_referenced - before


def open_below(folder):
    fds = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return [target for target in (os.readlink(fd) for fd in fds if os.path.islink(fd)) if target.startswith(folder)]


def test_an_idle_trainer_keeps_no_mount_in_use(cairn, raw_lane):
    """It saves by reference; the mount is unmounted beside it and made anew; the next save refers to what is there still."""
    cairn.mount()
    model, path = Model(), os.path.join(cairn.mnt, "step1")
    model.set(b"a", 1)
    model.set(b"b", 2)
    parts = model.parts
    assert save(raw_lane, path, parts) == 0
    assert save(raw_lane, os.path.join(cairn.mnt, "step2"), parts) == 2 * SIZE
    assert open_below(cairn.mnt) == []
    done = cairn.cairn("umount", cairn.mnt)
    assert done.returncode == 0, done.stderr
    cairn.reap()
    cairn.mount()
    model.set(b"b", 3)
    assert save(raw_lane, os.path.join(cairn.mnt, "step3"), parts) == SIZE
    cairn.umount()
    cairn.mount()
    other = rig.seeded_bytes(4, SIZE)
    rig.write_file(os.path.join(cairn.mnt, "step3"), other + parts[b"b"].raw)  # of the same size, by another
    assert save(raw_lane, os.path.join(cairn.mnt, "step4"), parts) == 0
