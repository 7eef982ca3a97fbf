# SPDX-License-Identifier: Apache-2.0
"""What verbs did to files is seen at once, whatever the kernel keeps of them: wait, evict, warmup, scrub, pin."""
import json
import os

import pytest

import remote as remotes
import rig
from kept import KEPT
from test_damage import find_in_packs

pytestmark = pytest.mark.needs_mount
REMEMBERED = 24 * rig.MIB  # what a daemon keeps in memory of what it read from NVMe


@pytest.fixture
def remote_mount(request, mount_factory, directory):
    """A private store on a remote, a directory, and the kernel keeps all for an hour. Not yet mounted."""
    return mount_factory(directory, kind=remotes.RemoteMount, remote=remotes.DirRemote(os.path.join(directory, "remotes")), **KEPT,
                         request=request)


def do(mount, *args):
    """A verb that must succeed."""
    return mount.verb(*args).stdout


def tiers(mount, path):
    """What status and info tell of where a path lies: its level, its bytes on NVMe and in the remote."""
    before, after = None, os.getxattr(path, "user.cairn.level").decode()
    while before != after:  # an upload may end meanwhile
        before = after
        info = json.loads(do(mount, "info", "--json", path))
        after = os.getxattr(path, "user.cairn.level").decode()
    assert info["level"] == after
    return info["level"], info["nvme_bytes"], info["remote_bytes"]


def read_past_the_page_cache(path):
    """Every byte, asked of the daemon."""
    with rig.opened(path, os.O_RDONLY) as fd:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return b"".join(iter(lambda: os.read(fd, rig.MIB), b""))


def fetched(mount):
    return mount.status()["remote"]["fetched_bytes_total"]


def test_what_wait_did_is_seen(remote_mount, rng):
    """Level, stored bytes and hash are those of now when the verb has returned, however long the kernel keeps attributes."""
    remote_mount.mount(writeback_delay="10m")
    path, size = os.path.join(remote_mount.mnt, "file"), 3 * rig.MIB
    rig.write_file(path, rig.seeded_bytes(rng.random(), size))
    before = os.stat(path)
    assert os.getxattr(path, "user.cairn.level") == b"stage"
    for name in ("user.cairn.stored_bytes", "user.cairn.hash"):
        with pytest.raises(OSError):
            os.getxattr(path, name)
    do(remote_mount, "wait", path)
    assert os.getxattr(path, "user.cairn.level") in (b"nvme", b"remote")
    assert os.getxattr(path, "user.cairn.stored_bytes") == b"%d" % size
    first = os.getxattr(path, "user.cairn.hash")
    do(remote_mount, "wait", "--level", "remote", path)
    assert os.getxattr(path, "user.cairn.level") == os.getxattr(remote_mount.mnt, "user.cairn.level") == b"remote"
    assert os.stat(path) == before
    with rig.opened(path) as fd:
        os.pwrite(fd, b"x", 0)
        assert os.getxattr(path, "user.cairn.level") == b"stage", "before the file is closed"
    assert os.getxattr(path, "user.cairn.level") == os.getxattr(remote_mount.mnt, "user.cairn.level") == b"stage"
    do(remote_mount, "wait", path)
    assert os.getxattr(path, "user.cairn.hash") != first


def test_what_was_waited_for_is_there(remote_mount):
    """Also when very much became durable with it: a wait returns when all of that shows."""
    remote_mount.mount(writeback_delay="10m")
    directory = rig.mkdir(os.path.join(remote_mount.mnt, "directory"))
    for number in range(4000):
        rig.write_file(os.path.join(directory, f"{number:04}"), b"%04d" % number * 300)
    with rig.opened(os.path.join(directory, "3999"), os.O_RDONLY) as fd:
        os.fsync(fd)
        assert os.getxattr(fd, "user.cairn.stored_bytes") == b"1200"
        assert len(os.getxattr(fd, "user.cairn.hash")) == 64


def test_what_evict_warmup_and_scrub_did_is_seen(remote_mount, rng):
    """When the verb has returned, all that tells where a file lies says so, reads go there, and nothing else about it has changed."""
    remote_mount.mount()
    path, size = os.path.join(remote_mount.mnt, "file"), REMEMBERED + 8 * rig.MIB
    data = rig.seeded_bytes(rng.random(), size)
    rig.write_file(path, data)
    do(remote_mount, "wait", "--level", "remote", path)
    remote_mount.remount()  # nothing is in the stage
    before, packs = os.stat(path), remote_mount.status()["nvme"]["pack_bytes"]
    assert tiers(remote_mount, path) == ("remote", size, size)
    do(remote_mount, "evict", path)
    assert remote_mount.status()["nvme"]["pack_bytes"] <= packs - size
    assert tiers(remote_mount, path) == ("remote", 0, size)
    assert fetched(remote_mount) == 0 and os.stat(path) == before
    do(remote_mount, "warmup", path)
    assert tiers(remote_mount, path) == ("remote", size, size) and remote_mount.status()["nvme"]["pack_bytes"] >= packs
    got = fetched(remote_mount)
    assert got >= size and os.stat(path) == before
    assert read_past_the_page_cache(path) == data and fetched(remote_mount) == got, "it is read where it is now"
    rig.flip(*find_in_packs(remote_mount.store, data[:64]))
    assert "1 damaged or missing, 1 healed" in do(remote_mount, "scrub", remote_mount.mnt)
    got = fetched(remote_mount)
    assert read_past_the_page_cache(path) == data and fetched(remote_mount) == got and remote_mount.status()["damage"] == []
    do(remote_mount, "evict", path)
    assert read_past_the_page_cache(path) == data and fetched(remote_mount) >= got + size - REMEMBERED
    after = os.stat(path)
    assert (after.st_size, after.st_blocks, after.st_mtime_ns, after.st_ctime_ns) == (before.st_size, before.st_blocks, before.st_mtime_ns,
                                                                                      before.st_ctime_ns)


def test_pin_is_heeded_at_once(remote_mount, rng):
    """A pin that was just set keeps a file on NVMe; one that was taken back, as soon as that is durable, does not."""
    remote_mount.mount()
    os.mkdir(remote_mount.mnt + "/directory")
    path, size = remote_mount.mnt + "/directory/file", 4 * rig.MIB
    rig.write_file(path, rig.seeded_bytes(rng.random(), size))
    do(remote_mount, "wait", "--level", "remote", remote_mount.mnt)
    for place in (path, os.path.dirname(path)):
        os.setxattr(place, "user.cairn.pin", b"1")
        assert "pinned" in remote_mount.verb("evict", path, code=1).stderr
        assert tiers(remote_mount, path)[1] == size
        os.removexattr(place, "user.cairn.pin")
        do(remote_mount, "wait", place)
        do(remote_mount, "evict", path)
        assert tiers(remote_mount, path)[1] == 0
        do(remote_mount, "warmup", path)
        do(remote_mount, "wait", "--level", "remote", remote_mount.mnt)
