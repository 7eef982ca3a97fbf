# SPDX-License-Identifier: Apache-2.0
"""A directory that hangs because its server is away: calls into it do not return. Nothing of the mount waits for them for ever."""
import os
import signal
import subprocess

import pytest

import processes
import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount


class Stopped:
    """A FUSE filesystem whose daemon stands: calls wait, but SIGKILL ends them, as on a hard NFS mount."""

    def __init__(self, request, mount_factory, directory):
        below = rig.mkdir(directory + "/below")
        self.mount = mount_factory(below, kind=remotes.RemoteMount, remote=remotes.DirRemote(below + "/none"), remote_timeout=None)
        self.mount.options.pop("remote"), self.mount.options.pop("lease")
        request.addfinalizer(self.close)
        self.path = self.mount.mount().mnt

    def hang(self):
        self.mount.pause()

    def answer(self):
        self.mount.go_on()

    def close(self):
        self.mount.close()


class Frozen:
    """A filesystem that is frozen: a process that writes waits in a state that nothing ends, SIGKILL neither."""

    def __init__(self, request, mount_factory, directory):
        self.path, self.frozen = directory + "/frozen", False
        self.image = rig.LoopImage(directory + "/image", self.path, 512 * rig.MIB)
        request.addfinalizer(self.close)

    def hang(self):
        rig.run("fsfreeze", "-f", self.path)
        self.frozen = True

    def answer(self):
        rig.run("fsfreeze", "-u", self.path)
        self.frozen = False

    def close(self):
        if self.frozen:
            self.answer()
        rig.poll(lambda: not helpers(self.path), 60, "the end of what hung there")
        self.image.close()


def helpers(path):
    """Processes that work for a daemon or a verb in or below the directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            arguments = rig.read_file(f"/proc/{pid}/cmdline").split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if arguments[0] == b"cairn-dir-helper" and arguments[1].startswith(os.fsencode(path)):
            found.append(int(pid))
    return found


@pytest.fixture(params=[Stopped, Frozen], ids=["stopped", "frozen"])
def place(request, mount_factory, directory):
    rig.need_root()
    return request.param(request, mount_factory, directory)


@pytest.fixture
def mount(place, on_remote):
    return on_remote(remotes.DirRemote(place.path), remote_timeout="2s", writeback_delay="0s", lease="2s")


WAITS_IN = ("request_wait_answer", "fuse_", "percpu_rwsem_wait", "percpu_down_read")


def hangs_there(path):
    """Is there a thread that waits for the filesystem?"""
    stacks = [stack.decode() for pid in helpers(path) for stack in processes.of_threads(pid, "stack")]
    return any(name in stack for stack in stacks for name in WAITS_IN)


def begin(mount, place):
    """Something is in the remote; what comes next is on its way there when the directory begins to hang."""
    mount.mount()
    mount.write("there", b"there" * 1000, "remote")
    place.hang()
    mount.write("not there", os.urandom(20 * rig.MIB), "nvme")
    rig.poll(lambda: hangs_there(place.path), 60, "a call that hangs")


def goes_on(mount, place):
    """No process holds the store, and when the directory answers again it gets what it lacked."""
    mount.mount(remote=None, lease=None, remote_timeout=None)
    assert rig.read_file(mount.mnt + "/there") == b"there" * 1000
    assert os.path.getsize(mount.mnt + "/not there") == 20 * rig.MIB
    mount.umount()
    place.answer()
    mount.mount()
    mount.wait(level="remote")
    mount.umount()
    rig.poll(lambda: not helpers(place.path), 60, "the end of those that hung")
    assert mount.fsck().returncode == 0


def test_umount(mount, place):
    """umount does not wait for a remote that hangs, and the store is free at once."""
    begin(mount, place)
    mount.umount()
    goes_on(mount, place)


@pytest.mark.parametrize("place", [Frozen], ids=["frozen"], indirect=True)
def test_sigterm(mount, place):
    """One SIGTERM ends the daemon, cleanly."""
    begin(mount, place)
    mount.proc.terminate()
    assert mount.reap() == 0
    goes_on(mount, place)


def test_kill(mount, place):
    """So does SIGKILL: no thread of the daemon is in the directory, and what is there holds neither the store nor /dev/fuse."""
    begin(mount, place)
    mount.kill9()
    goes_on(mount, place)


def hang_behind_a_file(mount, place):
    """A file is in the remote, nothing is mounted, and then the directory hangs."""
    mount.mount()
    mount.write("file", b"1", "remote")
    mount.umount()
    place.hang()


def test_mount(mount, place):
    """A mount serves without the directory, and goes on with it as soon as it answers."""
    hang_behind_a_file(mount, place)
    mount.mount()
    assert mount.status()["remote"]["state"] == "unreachable"
    mount.write("file", b"2", "nvme")
    place.answer()
    mount.wait(level="remote")
    mount.umount()


def test_mount_interrupted(mount, place):
    """A mount that waits for the directory can be interrupted, and leaves nothing."""
    place.hang()
    mount.start(remote_timeout="1h")
    rig.poll(lambda: helpers(place.path), 30, "a call into the directory")
    mount.proc.send_signal(signal.SIGINT)
    assert mount.reap() == 8
    assert not os.path.exists(mount.store + "/superblock")


@pytest.mark.parametrize("place", [Stopped], ids=["stopped"], indirect=True)  # a frozen filesystem can be read
def test_verb_interrupted(mount, place):
    """So can a verb that reads the remote."""
    hang_behind_a_file(mount, place)
    command = [mount.binary, "ls", f"dir:{place.path}", "--remote-timeout", "1h"]
    # A shell's background jobs, and what they start, ignore SIGINT.
    with subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as verb:
        try:
            rig.poll(lambda: helpers(place.path), 30, "a call into the directory")
            verb.send_signal(signal.SIGINT)
            assert verb.wait(rig.PATIENCE * 30) in (130, -signal.SIGINT)
        finally:
            verb.kill()
    rig.poll(lambda: not helpers(place.path), 30, "the end of the helper")
    place.answer()


def test_the_helper_dies(on_remote, directory):
    """Another takes its place; what is not durable yet becomes so."""
    mount = on_remote(remotes.DirRemote(directory + "/remotes"), remote_timeout="5s")
    mount.mount()
    for round in range(3):
        rig.write_file(mount.mnt + f"/{round}", os.urandom(4 * rig.MIB))
        for pid in helpers(directory):
            os.kill(pid, signal.SIGKILL)
        mount.wait(level="remote")
    mount.umount()
    with mount.elsewhere() as fresh:
        assert sorted(os.listdir(fresh.mnt)) == ["0", "1", "2"]
