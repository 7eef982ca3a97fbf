"""P9, P8: a failing disk ends no daemon and hangs nobody (faults by site: tests/faultdisk.py)."""
import errno
import os
import threading

import pytest

import faultdisk
import rig


@pytest.fixture
def disk(cairn, request, folder):
    build = request.config.getoption("--build")
    if faultdisk.library(build) is None:
        pytest.skip("skipped: this build has no tests/faults")
    return faultdisk.FaultDisk(cairn, build, os.path.join(folder, "faults"))

TENSOR = 3 * rig.MIB + 4567  # of a write: each begins a grid of chunks of its own


@pytest.mark.needs_mount
@pytest.mark.parametrize(("site", "call", "error"), [("packs", "rename", errno.EIO), ("room", "fallocate", errno.ENOSPC), ("room", "fdatasync", errno.EIO)])
def test_a_pack_of_a_large_draft_fails(cairn, disk, site, call, error):
    """P9: what is not stored of a file larger than the stage is cut anew: the state of the cutter is that of what is stored."""
    cairn.mount(stage="64M")
    path, data = os.path.join(cairn.mnt, "large"), rig.seeded_bytes(1, 96 * rig.MIB)
    disk.arm(site, call, error, times=3)
    with open(path, "wb", buffering=0) as file:
        for at in range(0, len(data), TENSOR):
            rig.write_all(file.fileno(), data[at : at + TENSOR])
    cairn.wait(path)
    assert disk.fired() >= 1
    disk.disarm()
    assert rig.read_file(path) == data
    cairn.kill9()
    cairn.mount(stage="64M")
    assert rig.read_file(path) == data
    cairn.umount()
    assert cairn.fsck().returncode == 0
