# SPDX-License-Identifier: Apache-2.0
"""The holder of a store's lock: a daemon that answers keeps others out at once; another process, which only looks at it, is waited for."""
import contextlib
import os
import signal
import subprocess
import time

import pytest

import rig

pytestmark = pytest.mark.needs_mount

AT_ONCE = 2.0  # seconds: a mount that has not ended by then waits


@pytest.fixture
def dead(cairn):
    """A store whose daemon was killed."""
    cairn.mount(writeback_delay="1h")
    rig.write_file(cairn.mnt + "/file", b"staged")
    cairn.kill9()
    return cairn


@contextlib.contextmanager
def looked_at(mount):
    """A process looks at the store, as `cairn status` does, for as long as a busy machine makes of it."""
    with rig.locked(mount.store + "/lock") as fd:
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield


def waiting(mount):
    return f"waiting for pid {os.getpid()}, which holds the store {mount.store}" in mount.log()


def test_mount_waits(dead):
    """P9: a mount waits for a process that looks at the store, and says so."""
    with looked_at(dead):
        dead.start()
        rig.poll(lambda: waiting(dead) or dead.proc.poll() is not None, 20, "a mount that waits")
        assert dead.proc.poll() is None, dead.log()
    rig.poll(dead.usable, 60, "the mount")
    assert rig.read_file(dead.mnt + "/file") == b"staged"
    dead.umount()


def test_mount_that_waits_is_interrupted(dead):
    with looked_at(dead):
        dead.start()
        rig.poll(lambda: waiting(dead), 20, "a mount that waits")
        dead.proc.send_signal(signal.SIGINT)
        assert dead.reap() == 8
    dead.mount()
    assert rig.read_file(dead.mnt + "/file") == b"staged"


@pytest.mark.parametrize("verb", [("status",), ("fsck",), ("adopt", "--new-id")], ids=["status", "fsck", "adopt"])
def test_verbs_wait(cairn, verb, mnt):
    """So do the verbs that take the lock."""
    rig.write_file(mnt + "/file", b"content")
    cairn.umount()
    with looked_at(cairn):
        process = subprocess.Popen([cairn.binary, *verb, cairn.store], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(AT_ONCE)
        is_waiting = process.poll() is None
    said = process.communicate()[0]
    assert is_waiting and process.returncode == 0, said


def test_a_daemon_is_not_waited_for(cairn, directory):
    """A second mount is refused at once, whether the daemon answers or stands."""
    cairn.mount()
    other = rig.mkdir(directory + "/other")
    pid = cairn.proc.pid
    for sent in (signal.SIGCONT, signal.SIGSTOP):
        os.kill(pid, sent)
        try:
            done = cairn.cairn("mount", cairn.store, other, "-o", cairn.option_string({}))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert done.returncode == 32 and f"in use by pid {pid}" in done.stderr and "waiting" not in done.stderr, done
    cairn.umount()
