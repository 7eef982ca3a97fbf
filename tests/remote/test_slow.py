# SPDX-License-Identifier: Apache-2.0
"""A directory whose server answers, but takes longer than remote_timeout to make a file durable: what is stored there gets the time."""
import os
import re

import pytest

import remote as remotes
import rig
from slow_directory import SlowDirectory

pytestmark = pytest.mark.needs_mount

SLOW = 18  # seconds of an fsync: more than a put is given at first


@pytest.fixture
def slow(request, directory):
    rig.need_root()
    made = SlowDirectory(request.config.getoption("--build"), directory)
    request.addfinalizer(made.close)
    return made


@pytest.fixture
def mount(slow, on_remote):
    made = on_remote(remotes.DirRemote(slow.path), remote_timeout="2s", writeback_delay="0s")
    made.mount()
    made.write("small", b"small", "remote")
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
