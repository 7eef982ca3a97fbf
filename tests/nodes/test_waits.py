# SPDX-License-Identifier: Apache-2.0
"""What waits around a round, and what must not fail there; and waits for the remote, which mean that readers see it."""
import contextlib
import os
import re
import subprocess
import threading
import time

import pytest

import rig

STANDS_S = 8  # so long nothing may end: a wait explains itself after 5


@pytest.fixture
def node(on_remote, shared):
    return lambda **options: on_remote(shared, **{"nodes": True, "writeback_delay": "50ms", **options})


def readers_see(mount, shared, name):
    return name in mount.verb("ls", *shared.flags(), shared.url + ":/").stdout.split()


def level(mount, name):
    return os.getxattr(os.path.join(mount.mnt, name), "user.cairn.level").decode()


def merging_pair(node):
    """Two nodes, the first of which merges. No lease runs out while one stands."""
    a = node(lease="60s").mount()
    rig.poll(lambda: a.status()["remote"]["nodes"]["merges"] == 1, 30, "the first node to merge")
    b = node(lease="60s").mount()
    for each in (a, b):
        rig.write_file(os.path.join(each.mnt, f"of-{id(each)}"), b"x")
        each.wait_remote()
    return a, b


@contextlib.contextmanager
def paused(mount):
    mount.pause()
    try:
        yield
    finally:
        mount.go_on()


@contextlib.contextmanager
def verb(mount, *args):
    """A command that runs beside."""
    with subprocess.Popen([mount.binary, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=mount.env) as process:
        try:
            yield process
        finally:
            process.kill()


def holder(mount):
    return f"{mount.store} pid {mount.proc.pid}"


def test_a_wait_that_falls_on_a_round_is_answered(node):
    """`cairn wait` and `cairn umount` seal what is being written, which waits around each round."""
    a = node().mount()
    end = time.monotonic() + 6.5
    with open(os.path.join(a.mnt, "open"), "wb", buffering=0) as file:
        while time.monotonic() < end:
            file.write(b"x" * 4096)
            for request in ({"verb": "drain"}, {"verb": "need", "ino": 1, "level": "nvme"}):
                answer = a.ask(**request)
                assert "seq" in answer, (request, answer)
            time.sleep(0.02)  # so that requests fall into each window, which is 0.1 s long


def test_what_a_wait_for_the_remote_returned_from_is_what_readers_see(node, shared):
    a, b = merging_pair(node)
    for i in range(3):
        for each, name in ((a, f"a{i}"), (b, f"b{i}")):
            rig.write_file(os.path.join(each.mnt, name), b"x" * 1000)
            each.wait_remote(os.path.join(each.mnt, name))
            assert readers_see(each, shared, name), (i, name)
            # what is taken of the other node changes the directory that the file is in
            rig.poll(lambda: level(each, name) == "remote", 30, "the level")


def test_a_wait_for_the_remote_names_the_node_that_it_waits_for(node, shared):
    a, b = merging_pair(node)
    path = os.path.join(a.mnt, "file")
    with contextlib.ExitStack() as stack:
        with paused(b):
            rig.write_file(path, b"x" * 1000)
            wait = stack.enter_context(verb(a, "wait", path, "--level", "remote"))
            with pytest.raises(subprocess.TimeoutExpired):
                wait.wait(STANDS_S)
            assert level(a, "file") == "nvme"
            late = a.verb("wait", path, "--level", "remote", "--timeout", "1s", code=3)
            assert holder(b) in late.stderr and "timed out" in late.stderr, late
            assert not readers_see(a, shared, "file")
        assert wait.wait(30) == 0
        assert readers_see(a, shared, "file")
        assert f"until {os.uname().nodename}:{holder(b)} publishes" in wait.stderr.read()
    assert level(a, "file") == "remote"


def test_a_wait_names_the_node_that_merges(node, shared):
    a, b = merging_pair(node)
    path = os.path.join(b.mnt, "file")
    with contextlib.ExitStack() as stack:
        with paused(a):
            rig.write_file(path, b"x" * 1000)
            wait = stack.enter_context(verb(b, "wait", b.mnt, "--level", "remote"))
            with pytest.raises(subprocess.TimeoutExpired):
                wait.wait(STANDS_S)
        assert wait.wait(30) == 0
        assert readers_see(b, shared, "file")
        assert f"{holder(a)}, which merges" in wait.stderr.read()


def test_fsync_remote_returns_when_readers_see_it(node, shared):
    a, b = merging_pair(node)
    a.umount()
    a.mount(fsync="remote")
    done = threading.Event()

    def write():
        with open(os.path.join(a.mnt, "file"), "wb") as file:
            file.write(b"x" * 1000)
            file.flush()
            os.fsync(file.fileno())
        done.set()

    with paused(b):
        thread = threading.Thread(target=write)
        thread.start()
        assert not done.wait(STANDS_S)
        rig.poll(lambda: a.status()["remote"]["behind_bytes"] == 0, 30, "the upload")
        assert not done.is_set()
    assert done.wait(30)
    assert readers_see(a, shared, "file")
    thread.join()


def test_umount_with_drain_remote_ends_when_readers_see_it(node, shared):
    a, b = merging_pair(node)
    with contextlib.ExitStack() as stack:
        with paused(b):
            rig.write_file(os.path.join(a.mnt, "file"), b"x" * 1000)
            umount = stack.enter_context(verb(a, "umount", a.mnt, "--drain", "remote"))
            with pytest.raises(subprocess.TimeoutExpired):
                umount.wait(STANDS_S)
        assert umount.wait(30) == 0
        assert readers_see(b, shared, "file")
        assert re.search(f"^cairn umount: .*{re.escape(holder(b))} publishes", umount.stderr.read(), re.MULTILINE)
    assert a.reap() == 0


def test_umount_alone_does_not_wait_for_other_nodes(node, shared):
    """Another umount, which does, says that it cannot tell: all nodes may go back to what readers see."""
    a, b = merging_pair(node)
    with contextlib.ExitStack() as stack:
        stack.enter_context(paused(b))
        rig.write_file(os.path.join(a.mnt, "file"), b"x" * 1000)
        rig.poll(lambda: level(a, "file") == "nvme" and a.status()["remote"]["behind_bytes"] == 0, 30, "the upload")
        drain = stack.enter_context(verb(a, "umount", a.mnt, "--drain", "remote"))
        with pytest.raises(subprocess.TimeoutExpired):
            drain.wait(2)
        begin = time.monotonic()
        a.umount()  # the merger tries for 5 s to end what it began
        assert time.monotonic() - begin < 15
        assert drain.wait(30) == 4 and "cannot tell whether readers see all of it yet" in drain.stderr.read()
        assert not readers_see(b, shared, "file")
    rig.poll(lambda: readers_see(b, shared, "file"), 60, "the file, merged by the node that stays")
