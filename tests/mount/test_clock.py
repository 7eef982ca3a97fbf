# SPDX-License-Identifier: Apache-2.0
"""A wall clock that jumps: times are those of the clock again once it is right, and the order of operations is kept."""
import os
import time

import pytest

import rig
from wall_clock import WallClock

pytestmark = pytest.mark.needs_mount
YEAR = 365 * 24 * 3600


@pytest.fixture
def clocked(cairn, clock_library, directory):
    cairn.clock = WallClock(cairn, clock_library, os.path.join(directory, "offset"))
    return cairn


def change_everything(mnt, number):
    """A change of each kind that leaves a time in a directory."""
    os.mkdir(os.path.join(mnt, "made", f"directory-{number}"))
    rig.write_file(os.path.join(mnt, "born", f"file-{number}"), b"x" * 20_000)
    rig.write_file(os.path.join(mnt, "from", f"file-{number}"), b"y")
    os.rename(os.path.join(mnt, "from", f"file-{number}"), os.path.join(mnt, "to", f"file-{number}"))
    os.symlink("x", os.path.join(mnt, "linked", f"link-{number}"))
    os.setxattr(os.path.join(mnt, "attr"), "user.x", str(number).encode())


DIRECTORIES = ("made", "born", "from", "to", "linked")


def check_times(mnt, around):
    for name in DIRECTORIES:
        found = os.stat(os.path.join(mnt, name))
        assert abs(found.st_mtime - around) < 3600 and abs(found.st_ctime - around) < 3600, (name, found.st_mtime - around)
    assert abs(os.stat(os.path.join(mnt, "attr")).st_ctime - around) < 3600


def test_clock_that_jumped_forward_once(clocked):
    """Ten years ahead for a moment; what happens later is not stamped with that for ever, before and after kills and a lost view."""
    cairn = clocked
    cairn.mount()
    for name in DIRECTORIES:
        os.mkdir(os.path.join(cairn.mnt, name))
    rig.write_file(os.path.join(cairn.mnt, "attr"), b"")
    change_everything(cairn.mnt, 0)
    check_times(cairn.mnt, time.time())
    cairn.clock.set(10 * YEAR)
    change_everything(cairn.mnt, 1)
    check_times(cairn.mnt, time.time() + 10 * YEAR)
    cairn.clock.set(0)
    change_everything(cairn.mnt, 2)
    check_times(cairn.mnt, time.time())
    cairn.crash()
    check_times(cairn.mnt, time.time())
    cairn.wait()
    cairn.lose_power()
    cairn.mount_anew()
    check_times(cairn.mnt, time.time())
    for number in range(3):
        assert os.listdir(os.path.join(cairn.mnt, "made")).count(f"directory-{number}") == 1
        assert rig.read_file(os.path.join(cairn.mnt, "to", f"file-{number}")) == b"y"
    assert os.getxattr(os.path.join(cairn.mnt, "attr"), "user.x") == b"2"
    cairn.umount_whole()


def test_clock_that_goes_back_a_little(clocked):
    """Within what clocks are set by, times only ascend: a change is seen as one."""
    cairn = clocked
    cairn.mount()
    directory = rig.mkdir(os.path.join(cairn.mnt, "directory"))
    last = 0
    for number in range(6):
        cairn.clock.set(-number)
        os.mkdir(os.path.join(directory, str(number)))
        now = os.stat(directory).st_mtime_ns
        assert now > last
        last = now
        os.close(os.open(os.path.join(directory, f"file-{number}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        now = os.stat(directory).st_mtime_ns
        assert now > last, "a new file changes its directory, too"
        last = now


def end_by(cairn, end):
    if end == "umount":
        cairn.umount()
        return
    if end != "kill":
        cairn.wait()
    cairn.kill9()
    if end != "kill":
        cairn.drop_stage()
    if end == "lost view":
        cairn.delete_view()


@pytest.mark.parametrize("end", ["umount", "kill", "power loss", "lost view"])
def test_clock_that_goes_back_around_a_remount(clocked, end):
    """Whatever the daemon ended by, the next one goes on behind the last time that it finds; one that was far ahead stays behind."""
    cairn = clocked
    cairn.mount(writeback_delay="60s")
    directory = rig.mkdir(os.path.join(cairn.mnt, "directory"))
    cairn.clock.set(YEAR)
    os.mkdir(os.path.join(directory, "ahead"))
    cairn.clock.set(0)
    os.mkdir(os.path.join(directory, "before"))
    last = os.stat(directory).st_mtime_ns
    assert abs(last / 1e9 - time.time()) < 3600
    end_by(cairn, end)
    back = round(time.time() - last / 1e9) + 4  # from the last time, whatever the end took
    cairn.clock.set(-back)
    cairn.mount()
    os.mkdir(os.path.join(directory, "after"))
    now = os.stat(directory).st_mtime_ns
    assert last < now < last + 3600 * 10**9


def test_clock_that_was_ahead_until_the_end(clocked):
    """What is far ahead is followed by no later session."""
    cairn = clocked
    cairn.mount()
    directory = rig.mkdir(os.path.join(cairn.mnt, "directory"))
    cairn.clock.set(YEAR)
    os.mkdir(os.path.join(directory, "ahead"))
    cairn.umount()
    cairn.clock.set(0)
    cairn.mount()
    os.mkdir(os.path.join(directory, "after"))
    assert abs(os.stat(directory).st_mtime - time.time()) < 3600


def test_new_file_of_a_clock_that_was_right_again(clocked):
    """A file that was open when the daemon died changes its directory again: not back behind what happened since, nor to what no clock
    reached."""
    cairn = clocked
    cairn.mount(writeback_delay="60s")
    for name in ("later", "ahead"):
        os.mkdir(os.path.join(cairn.mnt, name))
    cairn.clock.set(10 * YEAR)
    os.mkdir(os.path.join(cairn.mnt, "ahead", "directory"))
    cairn.clock.set(0)
    for name in ("later", "ahead"):
        os.open(os.path.join(cairn.mnt, name, "file"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    time.sleep(0.02)
    os.mkdir(os.path.join(cairn.mnt, "later", "directory"))
    expected = {name: os.stat(os.path.join(cairn.mnt, name)).st_mtime_ns for name in ("later", "ahead")}
    assert all(abs(mtime / 1e9 - time.time()) < 3600 for mtime in expected.values())
    rig.sync(cairn.mnt)
    cairn.crash()
    assert {name: os.stat(os.path.join(cairn.mnt, name)).st_mtime_ns for name in expected} == expected
