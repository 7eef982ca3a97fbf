# SPDX-License-Identifier: Apache-2.0
"""P8: a pack was truncated while no daemon ran, and the view is made anew. Nobody can tell what lay in the pack: its file stays, whatever
scrub and gc find in it, and a new view uses it once an operator put back what was cut off."""
import os

import pytest

import remote as remotes
import rig

pytestmark = [pytest.mark.needs_mount, pytest.mark.noise, pytest.mark.timeout(120)]

SIZE = 300_000


@pytest.fixture
def node(request, mount_factory, directory):
    """Files in one pack, in the remote too; not mounted."""
    return mount_factory(directory, kind=remotes.RemoteMount, remote=remotes.DirRemote(os.path.join(directory, "remotes")), lease="5s",
                         request=request)


def write(mount):
    contents = {f"{number}": rig.seeded_bytes(number, SIZE) for number in range(4)}
    rig.write_files(mount.mnt, contents)
    rig.run("sync", "-f", mount.mnt)
    return contents


def check(mount, contents):
    rig.check_files(mount.mnt, contents)


def pack_of(mount):
    (name,) = os.listdir(os.path.join(mount.store, "packs"))
    return os.path.join(mount.store, "packs", name)


def verb(mount, name, code=0):
    return mount.verb(name, mount.mnt, code=code).stdout


def test_chunks_that_are_found_in_it_move_and_the_file_stays(node):
    """The view begins with the head of the remote: no record of the journal says how many chunks the pack had."""
    node.mount()
    contents = write(node)
    node.wait_remote()
    node.umount()
    pack = pack_of(node)
    os.truncate(pack, os.path.getsize(pack) // 2)
    node.mount_anew()
    check(node, contents)
    assert "so it is kept" in verb(node, "scrub")
    verb(node, "gc")
    assert os.path.exists(pack)
    check(node, contents)
    node.remount()
    assert os.path.exists(pack)
    check(node, contents)


@pytest.mark.parametrize("length", [64, SIZE])
def test_a_pack_that_was_put_back(cairn, length):
    cairn.mount()
    contents = write(cairn)
    cairn.umount()
    pack = pack_of(cairn)
    whole = rig.read_file(pack)
    os.truncate(pack, length)
    cairn.mount_anew()
    verb(cairn, "gc")
    cairn.umount()
    assert os.path.getsize(pack) == length
    rig.write_file(pack, whole)
    cairn.mount()
    verb(cairn, "gc")
    cairn.umount()
    assert rig.read_file(pack) == whole
    cairn.mount_anew()
    check(cairn, contents)
