# SPDX-License-Identifier: Apache-2.0
"""The daemon of a mount dies while its remote shows less than it has, or something older: the successor serves at once what is local,
holds the remote as unreachable, and goes on by itself once the remote shows all again."""
import contextlib
import os
import shutil
import struct
import threading
import zlib

import pytest

import remote as remotes
import rig
import successor

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]


@pytest.fixture
def remote(directory):
    return remotes.DirRemote(os.path.join(directory, "remotes"))


@pytest.fixture
def kept(request, mount_factory, directory, remote, on_remote):
    """Mounted, and it has published two files."""
    mount = mount_factory(os.path.join(directory, "kept"), kind=successor.KeptRemote, remote=remote, successor="on", crash_window="1h",
                          remote_timeout="2s")
    os.makedirs(mount.root, exist_ok=True)
    request.addfinalizer(mount.close)
    mount.mount()
    for name in ("first", "second"):
        mount.write(name, name.encode() * 100_000, "remote")
    mount.other = on_remote(remote)
    return mount


@contextlib.contextmanager
def without(remote, *names):
    """These are not there for a while."""
    aside = remote.path + ".aside"
    os.makedirs(aside, exist_ok=True)
    there = [name for name in names if os.path.exists(remote.file(name))]
    for name in there:
        os.rename(remote.file(name), os.path.join(aside, name.replace("/", "_")))
        if name in ("heads", "packs", "runs", "copies"):
            os.mkdir(remote.file(name), 0o700)
    yield
    for name in there:
        if os.path.isdir(remote.file(name)):
            assert os.listdir(remote.file(name)) == []
            os.rmdir(remote.file(name))
        os.rename(os.path.join(aside, name.replace("/", "_")), remote.file(name))


@contextlib.contextmanager
def emptied(remote, directory=True):
    aside = remote.path + ".aside"
    os.rename(remote.path, aside)
    if directory:
        os.mkdir(remote.path, 0o700)
    yield
    if directory:
        assert set(os.listdir(remote.path)) <= {".clock"}
        shutil.rmtree(remote.path)
    os.rename(aside, remote.path)


@contextlib.contextmanager
def of_another(remote):
    """The prefix of another history is there, e.g. on another filesystem that was mounted over it."""
    marker = bytearray(remote.get("cairn"))
    marker[40] ^= 1
    marker[252:] = struct.pack("<I", zlib.crc32(marker[:252]))
    aside = remote.path + ".aside"
    os.rename(remote.path, aside)
    remote.put("cairn", bytes(marker))
    yield
    assert remote.get("cairn") == marker and not list(remote.names("heads/"))
    shutil.rmtree(remote.path)
    os.rename(aside, remote.path)


LIES = {
    "marker": lambda remote: without(remote, "cairn"),
    "marker and copy": lambda remote: without(remote, "cairn", "heads/cairn"),
    "heads": lambda remote: without(remote, "heads"),
    "newest head": lambda remote: without(remote, f"heads/{max(remote.heads()):016x}"),
    "marker and first heads": lambda remote: without(remote, "cairn", *(f"heads/{n:016x}" for n in sorted(remote.heads())[:-1])),
    "all listings": lambda remote: without(remote, "cairn", "heads", "packs", "runs", "copies"),
    "emptied": emptied,
    "gone": lambda remote: emptied(remote, False),
    "another": of_another,
}


def check_other(kept, names, long):
    """Behind the mount another node has these files; `long` is whole."""
    kept.umount()
    kept.other.mount()
    assert sorted(os.listdir(kept.other.mnt)) == names
    assert rig.read_file(os.path.join(kept.other.mnt, long)) == long.encode() * 100_000
    kept.other.umount()


@pytest.mark.parametrize("lie", LIES)
def test_it_serves_and_asks_again(kept, remote, lie):
    before = max(remote.heads())
    objects = set(remote.names("packs/")) | set(remote.names("runs/"))
    with LIES[lie](remote):
        for i in range(2):
            kept.kill_daemon(wait=True)
            rig.write_file(os.path.join(kept.mnt, f"after{i}"), b"written to the successor")
            assert rig.read_file(os.path.join(kept.mnt, "first")) == b"first" * 100_000
        rig.poll(lambda: kept.remote_status()["state"] == "unreachable", 20, "the state of the remote")
        assert kept.remote_status()["error"]
        assert kept.cairn("wait", kept.mnt, "--level", "remote", "--timeout", "1s").returncode == 3
    kept.wait_remote()
    assert kept.remote_status()["state"] in ("idle", "uploading")
    assert "is stored again" not in kept.log() and "giving up" not in kept.log()
    assert min(set(remote.heads()) - set(range(before + 1)), default=0) == before + 1
    assert objects <= set(remote.names("packs/")) | set(remote.names("runs/"))
    check_other(kept, ["after0", "after1", "first", "second"], "second")


def test_a_head_that_its_predecessor_could_not_note(kept, remote):
    """It was killed between the head's creation and STORE/head."""
    noted = rig.read_file(os.path.join(kept.store, "head"))
    kept.write("third", b"third" * 100_000, "remote")
    assert rig.read_file(os.path.join(kept.store, "head")) != noted
    with without(remote, "cairn"):  # so that it is met later
        rig.write_file(os.path.join(kept.store, "head"), noted)
        kept.kill_daemon(wait=True)
        rig.poll(lambda: kept.remote_status()["state"] == "unreachable", 20, "the state of the remote")
    kept.write("fourth", b"fourth", "remote")
    check_other(kept, ["first", "fourth", "second", "third"], "third")


def test_a_newest_head_that_reads_damaged_for_a_while(kept, remote):
    """What `rollback` allows was meant for the mount's first daemon: its successor gives up nothing, and asks again."""
    kept.remount(rollback=True)
    noted = rig.read_file(os.path.join(kept.store, "head"))
    kept.write("third", b"third" * 100_000, "remote")
    newest = f"heads/{max(remote.heads()):016x}"
    whole = remote.get(newest)
    remote.put(newest, whole[:-1] + bytes([whole[-1] ^ 1]))
    rig.write_file(os.path.join(kept.store, "head"), noted)  # killed before it noted the head
    kept.kill_daemon(wait=True)
    rig.poll(lambda: f"its newest head, {newest}, is damaged" in kept.log(), 20, "the successor to see it")
    rig.poll(lambda: kept.remote_status()["state"] not in ("connecting", "idle"), 20, "the state of the remote")
    assert kept.remote_status()["state"] == "unreachable" and "are given up" not in kept.log()
    remote.put(newest, whole)
    kept.write("fourth", b"fourth", "remote")
    check_other(kept, ["first", "fourth", "second", "third"], "third")


def test_another_writer_is_another_matter(kept, remote):
    """It took the prefix over meanwhile: the successor is fenced, and serves."""
    kept.kill_daemon(wait=True)
    kept.wait_remote()
    with without(remote, "cairn"):
        kept.kill_daemon(wait=True)
        rig.poll(lambda: kept.remote_status()["state"] == "unreachable", 20, "the state of the remote")
        copy = remote.file("cairn")
        shutil.copy(remote.path + ".aside/cairn", copy)
        kept.proc.send_signal(0)
        kept.other.mount(takeover=True)
        kept.other.write("theirs", b"theirs", "remote")
        kept.other.umount()
        os.unlink(copy)
    rig.write_file(os.path.join(kept.mnt, "ours"), b"ours")
    rig.poll(lambda: kept.remote_status()["state"] == "fenced", 30, "the successor to know")
    assert rig.read_file(os.path.join(kept.mnt, "ours")) == b"ours"


def test_without_resend_a_write_waits_on(kept, remote):
    """A durable write waits for the remote, and the daemon dies: the write was done, so it goes on to wait, and its caller gets its length."""
    kept.umount()
    kept.mount(fuse_minor=39, fsync="remote")
    data, written = rig.noise(3, 300_000), []
    before = kept.status()["nvme"]["written_bytes_total"]
    with rig.opened(os.path.join(kept.mnt, "durable"), os.O_CREAT | os.O_WRONLY | os.O_DSYNC) as fd:
        writer = threading.Thread(target=lambda: written.append(os.pwrite(fd, data, 0)))
        with emptied(remote):
            writer.start()
            rig.poll(lambda: kept.status()["nvme"]["written_bytes_total"] > before, 30, "the write to be on NVMe")
            kept.kill_daemon(wait=True)
            assert kept.successor()["calls_lost"] == 0 and writer.is_alive()
        writer.join(rig.PATIENCE * 60)
        assert written == [len(data)]
    check_other(kept, ["durable", "first", "second"], "first")
