"""A directory whose server answers, but takes longer than remote_timeout to make a file durable: what is stored there gets the time."""
import os
import re
import subprocess

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount

SLOW = 18  # seconds of an fsync: more than a put is given at first


class SlowFolder:
    """tests/disk/slow_folder.c: an fsync of a file of 1 MiB or more takes as long as it is told."""

    def __init__(self, build, folder):
        program = os.path.join(build, "tests", "disk", "slow-folder")
        if not os.access(program, os.X_OK):
            pytest.skip("skipped: tests/disk was not built")
        self.path, below, self.control = folder + "/slow", folder + "/below", folder + "/control"
        os.mkdir(self.path)
        os.mkdir(below)
        self.take(0)
        self.daemon = subprocess.Popen([program, self.path, below, self.control], stdin=subprocess.DEVNULL)
        rig.poll(lambda: rig.mounted_at(self.path), 10, "the slow folder")

    def take(self, seconds):
        rig.write_file(self.control, b"%d\n" % seconds)

    def noted(self, line):
        return rig.read_file(self.control).count(line)

    def close(self):
        """Who waits there is released."""
        self.daemon.kill()
        self.daemon.wait()
        rig.file_systems_unmount(self.path)


@pytest.fixture
def slow(request, folder):
    if os.geteuid() != 0:
        pytest.skip("skipped: mounting takes root")
    made = SlowFolder(request.config.getoption("--build"), folder)
    request.addfinalizer(made.close)
    return made


@pytest.fixture
def mount(slow, on_remote):
    made = on_remote(remotes.DirRemote(slow.path), remote_timeout="2s", writeback_delay="0s")
    made.mount()
    rig.write_file(made.mnt + "/small", b"small")
    made.wait(level="remote")
    return made


def test_an_fsync_that_takes_longer_than_a_put_is_given(slow, mount):
    """P9: it is begun again once, with more time, and not for ever. What comes next has that time at once; the end does not wait for it."""
    slow.take(SLOW)
    rig.write_file(mount.mnt + "/large", os.urandom(4 * rig.MIB))
    mount.wait(level="remote", timeout="600s")
    given_up = re.findall(r"answers, but a change was not durable there within (\d+) s; the next may take (\d+) s", mount.log())
    assert given_up[0] == ("15", "30"), given_up
    assert mount.status()["remote"]["state"] == "idle"
    slow.take(3600)
    rig.write_file(mount.mnt + "/never", os.urandom(4 * rig.MIB))
    rig.poll(lambda: slow.noted(b"begun"), 60, "the next fsync")
    mount.umount()
    assert slow.noted(b"done") == 0
    mount.mount(remote=None, lease=None, remote_timeout=None)
    assert os.path.getsize(mount.mnt + "/never") == 4 * rig.MIB
    mount.umount()
