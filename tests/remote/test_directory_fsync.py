# SPDX-License-Identifier: Apache-2.0
"""P5, P9: a directory of a `dir:` remote whose fsync failed is not believed after another try: what was named in it is stored again, and a
directory that was made in it is made again."""
import errno
import os

import pytest

import faultdisk
import rig

pytestmark = pytest.mark.needs_mount


def directories_of(remote):
    return {name for name in os.listdir(remote.path) if os.path.isdir(os.path.join(remote.path, name))}


def count_mkdirs(disk):
    return sum(disk.count(site, "mkdir") for site in faultdisk.CLASSES)


@pytest.mark.parametrize("skip", (0, 1, 2))
def test_what_was_named_is_stored_again(on_remote, request, directory, skip):
    build = faultdisk.build_of(request.config, request.getfixturevalue("sanitized"))
    node = on_remote()
    disk = faultdisk.FaultDisk(node, build, os.path.join(directory, "faults"), below=node.remote.path)
    node.mount()
    node.wait_remote()
    data = {f"file-{i}": rig.seeded_bytes(i, 2 * rig.MIB) for i in range(2)}
    names, renames = set(node.remote.names()), {site: disk.count(site, "rename") for site in ("packs", "runs")}
    directories, mkdirs = directories_of(node.remote), count_mkdirs(disk)
    with disk.fault("directory", "fsync", errno.EIO, times=1, skip=skip):
        node.write("file-0", data["file-0"], "remote")
        fired = disk.fired()
    assert fired == 1
    made = set(node.remote.names()) - names
    again = sum(disk.count(site, "rename") - renames[site] - sum(name.startswith(site) for name in made) for site in renames)
    again += count_mkdirs(disk) - mkdirs - len(directories_of(node.remote) - directories)
    assert again > 0, made
    node.write("file-1", data["file-1"], "remote")
    node.umount()
    other = node.fresh()
    other.mount(ro=True)
    assert all(rig.read_file(os.path.join(other.mnt, name)) == content for name, content in data.items())
    other.close()
