# SPDX-License-Identifier: Apache-2.0
"""P5, P8: a chunk that NVMe does not give is not published as missing before all others that may have it were asked."""
import os

import pytest

import faultdisk
import rig

pytestmark = pytest.mark.needs_mount


@pytest.fixture
def node(on_remote):
    return on_remote()


def disk_of(request, node, directory):
    build = faultdisk.build_of(request.config, request.getfixturevalue("sanitized"))
    return faultdisk.FaultDisk(node, build, os.path.join(directory, "faults"))


def check_elsewhere(node, files):
    other = node.fresh()
    other.mount(ro=True)
    rig.check_files(other.mnt, files)
    other.close()


def test_the_stage_is_asked(request, node, directory):
    """What became durable is in memory yet: the remote gets it from there, and so does NVMe, in another pack."""
    disk = disk_of(request, node, directory)
    node.mount()
    node.wait_remote()
    files = {f"file-{i}": rig.seeded_bytes(i, 3 * rig.MIB) for i in range(3)}
    with disk.fault("packs", "pread", "misread", times=0):
        rig.write_files(node.mnt, files, rig.write_synced)
        node.wait_remote()
        assert disk.fired() > 0
    assert "found in the stage" in node.log() and "will be missing" not in node.log()
    check_elsewhere(node, files)
    node.power_cycle()
    assert all(rig.read_file(os.path.join(node.mnt, name)) == data for name, data in files.items())
    assert not node.status()["damage"]


def test_its_former_place_is_asked(request, node, directory):
    """The same content was published before, and deleted: its pack is there for the grace."""
    disk = disk_of(request, node, directory)
    node.mount()
    data, path = rig.seeded_bytes("again", 3 * rig.MIB), os.path.join(node.mnt, "file")
    rig.write_synced(path, data)
    node.wait_remote()
    os.unlink(path)
    node.wait_remote()
    node.remount(remote=None)
    rig.write_synced(path, data)
    node.umount()
    node.drop_stage()
    with disk.fault("packs", "pread", "misread", times=0):
        node.mount()
        node.wait_remote()
        assert disk.fired() > 0
    assert "was given up" in node.log() and "will be missing" not in node.log()
    check_elsewhere(node, {"file": data})
