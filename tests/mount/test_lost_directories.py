# SPDX-License-Identifier: Apache-2.0
"""Directories of a mount that are deleted, moved or covered below the daemon: nothing is lost, and what is said of it is a clear line."""
import contextlib
import os
import shutil
import signal
import time

import pytest

import rig

pytestmark = pytest.mark.needs_mount


def fill(mount):
    """Something on NVMe, and something that is not there yet."""
    mount.mount(writeback_delay="2s")
    rig.write_file(mount.mnt + "/old", b"old" * 1000)
    mount.wait(mount.mnt + "/old")
    rig.write_file(mount.mnt + "/new", b"new" * 100000)


@pytest.fixture
def used(cairn):
    fill(cairn)
    return cairn


def expect_all(mount):
    mount.mount()
    assert rig.read_file(mount.mnt + "/old") == b"old" * 1000
    assert rig.read_file(mount.mnt + "/new") == b"new" * 100000
    mount.umount_whole()


def test_mountpoint_deleted(used):
    """rmdir of the mountpoint from another namespace detaches the mount: all is carried to NVMe, and the daemon ends."""
    script = f"{rig.DROP_INHERITED}rmdir {used.mnt}"
    rig.run("unshare", "-m", "--propagation", "private", "sh", "-c", script)
    assert used.reap() == 0
    os.mkdir(used.mnt)
    expect_all(used)


@contextlib.contextmanager
def private_place(cairn, directory):
    """A directory that is mounted at itself, private; at the end nothing is mounted there."""
    place = rig.mkdir(os.path.join(directory, "place"))
    rig.run("mount", "--bind", place, place)
    try:
        rig.run("mount", "--make-private", place)
        yield place
    finally:
        cairn.close()
        rig.file_systems_unmount(place)


def test_mountpoint_moved(cairn, directory):
    """The mount goes with a directory that is renamed, and with mount --move: verbs find it where it is."""
    with private_place(cairn, directory) as place:
        old, cairn.mnt = place + "/mnt", place + "/mnt"
        os.mkdir(old)
        fill(cairn)
        os.makedirs(place + "/elsewhere/inner")
        rig.run("mount", "--move", old, place + "/elsewhere/inner")
        os.rename(place + "/elsewhere", place + "/renamed")
        cairn.mnt = place + "/renamed/inner"
        assert rig.read_file(cairn.mnt + "/new") == b"new" * 100000
        assert cairn.status()["pid"] == cairn.proc.pid
        assert len(cairn.verb("status", old, code=2).stderr.strip().splitlines()) == 1
        cairn.wait(cairn.mnt + "/new")
        cairn.umount()
        expect_all(cairn)


def test_mountpoint_covered(used):
    """Another mount on top: verbs say so, and work again when it is gone."""
    rig.run("mount", "-t", "tmpfs", "tmpfs", used.mnt)
    try:
        for verb in ("wait", "umount"):
            done = used.cairn(verb, used.mnt)
            assert done.returncode in (1, 2) and len(done.stderr.strip().splitlines()) == 1, done
        assert used.proc.poll() is None
    finally:
        rig.run("umount", used.mnt)
    assert rig.read_file(used.mnt + "/new") == b"new" * 100000
    used.umount()
    expect_all(used)


@pytest.mark.parametrize("moved", [False, True], ids=["newer", "older"])
def test_mountpoint_covered_at_the_end(cairn, directory, moved):
    """SIGTERM leaves a mount alone that another program has made over ours, also one that is older and was moved there. Ours stays below,
    and umount clears it."""
    with private_place(cairn, directory) as place:
        os.mkdir(place + "/elsewhere")
        other, cairn.mnt = place + "/elsewhere", place + "/mnt"
        os.mkdir(cairn.mnt)
        if moved:
            rig.run("mount", "-t", "tmpfs", "tmpfs", other)
        fill(cairn)
        if moved:
            rig.run("mount", "--move", other, cairn.mnt)
        else:
            rig.run("mount", "-t", "tmpfs", "tmpfs", cairn.mnt)
        rig.write_file(cairn.mnt + "/theirs", b"theirs")
        cairn.proc.send_signal(signal.SIGTERM)
        assert cairn.reap() == 0
        assert rig.read_file(cairn.mnt + "/theirs") == b"theirs"
        assert "covered by another mount" in cairn.log()
        rig.run("umount", cairn.mnt)
        done = cairn.cairn("umount", cairn.mnt)
        assert done.returncode == 0 and not os.path.ismount(cairn.mnt), done
        expect_all(cairn)


def test_store_moved(used):
    """The store is renamed below the daemon: it goes on there, and nothing is lost."""
    moved = used.store + "-moved"
    os.rename(used.store, moved)
    rig.write_file(used.mnt + "/after", os.urandom(3 * rig.MIB))
    rig.sync(used.mnt + "/after")
    used.proc.send_signal(signal.SIGTERM)
    assert used.reap(30) == 0
    assert not os.path.exists(used.store), "nothing is made where it was"
    os.rename(moved, used.store)
    expect_all(used)


def test_store_deleted(used):
    """The store is deleted below the daemon: what is in memory is still read, writers get an error or go on, status says what is wrong,
    and the mount can be taken down."""
    shutil.rmtree(used.store)
    assert rig.read_file(used.mnt + "/new") == b"new" * 100000
    with contextlib.suppress(OSError):
        rig.write_file(used.mnt + "/after", b"x")
    rig.poll(lambda: "error" in used.log(), 20, "a line in the log")
    done = used.cairn("umount", used.mnt, "--timeout", "2s", timeout=300)
    assert done.returncode != 0 and done.stderr.strip(), done
    rig.file_systems_unmount(used.mnt)
    begin = time.monotonic()
    for _ in range(2):
        used.proc.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    used.reap(20)
    assert time.monotonic() - begin < 100


def test_stage_deleted(used):
    """The stage's files are deleted below the daemon: it goes on with its memory, and carries all to NVMe."""
    for name in os.listdir(used.stage_dir):
        os.unlink(os.path.join(used.stage_dir, name))
    rig.write_file(used.mnt + "/after", os.urandom(5 * rig.MIB))
    used.umount()
    expect_all(used)
    for name in os.listdir(used.stage_dir):
        assert False, f"{name} was left"


def test_stage_directory_deleted(used):
    """The directory too: the next mount says that there is none, and works with another."""
    shutil.rmtree(used.stage_dir)
    rig.write_file(used.mnt + "/after", os.urandom(5 * rig.MIB))
    used.umount()
    done = used.cairn("mount", used.store, used.mnt, "-o", used.option_string({}))
    assert done.returncode == 32 and used.stage_dir in done.stderr and len(done.stderr.strip().splitlines()) == 1, done
    os.mkdir(used.stage_dir)
    expect_all(used)
