# SPDX-License-Identifier: Apache-2.0
"""A node's STORE was copied, or put back from an older copy: one of the two that are the same goes on, the other is refused or stops with a
line that says why. What readers see is never torn, and nothing that was acknowledged is lost."""
import os
import shutil

import pytest

import rig
from test_union_mounts import TAKEN_S, at, await_tree, tree

pytestmark = pytest.mark.timeout(300)
LEASE_S = 30


@pytest.fixture
def node(on_remote, shared):
    return lambda **options: on_remote(shared, nodes=True, writeback_delay="50ms", lease=f"{LEASE_S}s", **options)


@pytest.fixture
def two(node):
    """Two nodes that wrote a file each."""
    a, b = node().mount(), node().mount()
    for name, mount in (("a", a), ("b", b)):
        rig.write_file(at(mount, name), name.encode() * 50000)
    wanted = {name: name.encode() * 50000 for name in "ab"}
    for mount in (a, b):
        await_tree(mount, wanted)
        mount.wait_remote()
    return a, b, wanted


def copy_of(node, mount):
    """Another machine gets the store of an unmounted one."""
    other = node()
    shutil.copytree(mount.store, other.store, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("control"))
    return other


def mounts(mount):
    """What a mount says that is refused; "": it is mounted."""
    try:
        mount.mount(timeout=2 * LEASE_S)
        return ""
    except rig.MountError as error:
        return str(error)


def goes_on(mount, others, name):
    """It writes, and the others show it."""
    rig.write_file(at(mount, name), name.encode() * 1000)
    mount.wait_remote()
    for other in others:
        rig.poll(lambda other=other: os.path.exists(at(other, name)), TAKEN_S, name)
        assert rig.read_file(at(other, name)) == name.encode() * 1000


def check_whole(*mounts_):
    for mount in mounts_:
        mount.umount()
        assert mount.fsck().returncode == 0
    done = mounts_[0].cairn("fsck", mounts_[0].remote.url)
    assert done.returncode == 0, done


@pytest.mark.parametrize("first", ["original", "copy"])
def test_two_stores_copied_from_one(node, two, first):
    """Whichever is mounted first is the node; the other is refused as long as that one lives."""
    a, b, wanted = two
    b.umount()
    other = copy_of(node, b)
    one, late = (b, other) if first == "original" else (other, b)
    one.mount()
    goes_on(one, [a], "of-the-first")
    said = mounts(late)
    assert f"is the same node as {os.uname().nodename}:{one.store} pid" in said and "copied" in said, said
    assert len(a.remote.names("writers")) == 3, "it reserved nothing"
    goes_on(one, [a], "after-that")
    goes_on(a, [one], "of-the-other-node")
    check_whole(one, a)


def test_a_copy_of_a_store_that_was_not_unmounted(node, two):
    """Both know of the same stay."""
    a, b, wanted = two
    b.kill9()
    other = copy_of(node, b)
    b.mount()
    goes_on(b, [a], "of-the-original")
    os.unlink(os.path.join(other.store, "session"))  # on another machine there is no stage
    said = mounts(other)
    assert f"is in use by {os.uname().nodename}:{b.store} pid" in said, said
    goes_on(b, [a], "after-that")
    check_whole(b, a)


def test_a_copy_of_a_node_that_left(node, two):
    """It is mounted after the other one has left: it begins with what that one published, or is refused, and loses nothing of it."""
    a, b, wanted = two
    b.umount()
    other = copy_of(node, b)
    b.mount()
    goes_on(b, [a], "later")
    b.umount()
    said = mounts(other)
    assert "later" in os.listdir(a.mnt)
    if said:
        assert b.store in said or other.store in said, said
        b.mount()
        goes_on(b, [a], "again")
        check_whole(a, b)
    else:
        rig.poll(lambda: "later" in os.listdir(other.mnt), TAKEN_S, "what was written by the other copy")
        goes_on(other, [a], "again")
        check_whole(a, other)


@pytest.mark.parametrize("how", ["left", "killed"])
def test_a_store_that_is_put_back_from_an_older_copy(node, two, directory, how):
    """Numbers that it gave out since the copy are not given out again, and what it published stays."""
    a, b, wanted = two
    b.umount()
    backup = os.path.join(directory, "backup")
    shutil.copytree(b.store, backup, symlinks=True)
    b.mount()
    goes_on(b, [a], "since")
    newest = os.stat(at(b, "since")).st_ino
    if how == "left":
        b.umount()
    else:
        b.kill9()
        b.drop_stage()
    shutil.rmtree(b.store)
    shutil.copytree(backup, b.store, symlinks=True)
    said = mounts(b)
    assert rig.read_file(at(a, "since")) == b"since" * 1000
    if said:
        assert b.store in said, said
        if how == "left":
            goes_on(a, [], "without")
        return
    rig.poll(lambda: "since" in os.listdir(b.mnt), TAKEN_S, "what it published since")
    goes_on(b, [a], "again")
    assert os.stat(at(b, "again")).st_ino > newest
    assert tree(a.mnt).items() >= {**wanted, "since": b"since" * 1000}.items()
    check_whole(a, b)
