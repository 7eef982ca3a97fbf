# SPDX-License-Identifier: Apache-2.0
"""`-o ro,at=WHEN` of a store without a remote: the mount shows one of its snapshots, and no other state."""
import errno
import json
import os
import re
import stat
import subprocess

import pytest

import rig
from another_user import OTHER
from test_local_history import QUICK, create, numbers, put, tree, writer  # noqa: F401 (fixture)

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]


def refused(mount, code=32, **options):
    return mount.verb("mount", mount.store, mount.mnt, "-o", mount.option_string(options), code=code).stderr


def check_before(mount):
    assert tree(mount.mnt) == mount.before
    assert os.readlink(os.path.join(mount.mnt, "latest")) == "step1"
    assert os.getxattr(os.path.join(mount.mnt, "small"), "user.note") == b"then"


def test_it_shows_the_snapshot_alone(writer):
    """By its name, its number and its time; not what is there now. Its root is a directory as others."""
    (number,) = numbers(writer)
    put(writer, "now", 4)
    told = json.loads(writer.verb("history", "--json", writer.mnt).stdout)["states"]
    then = next(state["time"] for state in told if state["head"] <= number <= state["last_head"])
    writer.umount()
    for when in ("before", number, then):
        writer.mount(ro=True, at=when)
        check_before(writer)
        for change in (os.unlink, lambda path: os.truncate(path, 0), lambda path: rig.write_file(path + ".new", b"x")):
            with pytest.raises(OSError) as raised:
                change(os.path.join(writer.mnt, "small"))
            assert raised.value.errno == errno.EROFS, raised.value
        assert sorted(os.listdir(writer.mnt)) == ["latest", "small", "step1"]
        assert not os.path.exists(os.path.join(writer.mnt, ".history"))
        st, up = os.stat(writer.mnt), os.stat(os.path.join(writer.mnt, "step1", ".."))
        assert stat.S_ISDIR(st.st_mode) and (st.st_ino, st.st_dev) == (up.st_ino, up.st_dev)
        assert f"snapshot {number} of -o at={writer.status()['mount']['at']}" in writer.verb("status", writer.mnt).stdout
        assert writer.status()["mount"]["shown_snapshot"] == number
        writer.umount()
    assert writer.fsck().returncode == 0
    writer.mount()
    assert sorted(os.listdir(writer.mnt)) == ["now", "small"] and numbers(writer) == [number]


def test_the_newest_that_is_not_later(writer):
    put(writer, "more", 5)
    create(writer, "second")
    writer.umount()
    writer.mount(ro=True, at="0s")
    assert sorted(os.listdir(writer.mnt)) == ["more", "small"]
    at = writer.status()["mount"]["at"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", at), at
    writer.umount()


def test_what_is_refused(writer):
    """One line says why, and nothing is changed."""
    writer.umount()
    assert "has no such snapshot" in refused(writer, ro=True, at="nope")
    assert "has no such snapshot" in refused(writer, ro=True, at=7)
    assert "no snapshot is as old as 2001-02-03" in refused(writer, ro=True, at="2001-02-03T04:05:06Z")
    assert "give ro, too" in refused(writer, code=1, at="before")
    assert "option at" in refused(writer, code=1, ro=True, at="be/fore")
    assert "no remote is configured" in refused(writer, code=1, ro=True, at="before", takeover=True)
    (number,) = numbers(writer)
    for directory, _, names in os.walk(os.path.join(writer.store, "snapshots", str(number), "view")):
        for name in names:
            if name.endswith(".sst"):
                os.truncate(os.path.join(directory, name), 10)
    assert f"the snapshot {number} of {writer.store} cannot be read" in refused(writer, ro=True, at="before")
    writer.mount()
    assert os.listdir(writer.mnt) == ["small"]


def test_the_store_is_locked_and_keeps_the_snapshot(writer):
    """No policy thins it, no other mount or command has the store meanwhile, and its packs stay."""
    writer.umount()
    writer.mount(ro=True, at="before", keep="none", history="off")
    assert "is mounted at" in writer.verb("ls", f"{writer.store}:/", code=1).stderr
    assert "this mount only reads" in writer.verb("snapshot", "delete", writer.mnt, "before", code=1).stderr
    writer.verb("gc", writer.mnt)
    check_before(writer)
    writer.umount()
    assert "1 snapshot was checked" in writer.fsck().stdout


def test_another_daemon_goes_on_with_it(kept):
    """One that takes the mount over shows the same state, in files that were open and in others. An age is that of the mount."""
    kept.options.update(QUICK)
    kept.mount()
    put(kept, "a", 1)
    os.mkdir(os.path.join(kept.mnt, "d"))
    put(kept, "d/b", 2)
    create(kept, "one")
    put(kept, "a", 3)
    kept.umount()
    for at in ("one", "0s"):
        kept.mount(ro=True, at=at)
        with rig.opened(os.path.join(kept.mnt, "a"), os.O_RDONLY) as fd:
            kept.kill_daemon(wait=True)
            assert os.pread(fd, 4_000_000, 0) == rig.seeded_bytes(1, 3_000_000)
            assert tree(kept.mnt) == {"a": rig.seeded_bytes(1, 3_000_000), "d/b": rig.seeded_bytes(2, 3_000_000)}
        kept.umount()


def test_who_may_read_what(writer):
    """As in .history: a file that is closed now is closed, whatever it was then; so is the root."""
    rig.need_root()
    for path in (writer.root, os.path.dirname(writer.root)):
        os.chmod(path, 0o755)
    os.chmod(os.path.join(writer.mnt, "small"), 0o600)
    writer.wait()
    writer.umount()

    def read(name):
        command = ["cat", os.path.join(writer.mnt, name)]
        return subprocess.run(command, user=OTHER, group=OTHER, extra_groups=[], capture_output=True).returncode

    writer.mount(ro=True, at="before", allow_other=True)
    assert read("step1/model.pt") == 0 and read("small") != 0
    writer.umount()
    writer.mount()
    os.chmod(writer.mnt, 0o700)
    writer.wait()
    writer.umount()
    writer.mount(ro=True, at="before", allow_other=True)
    assert read("step1/model.pt") != 0
    writer.umount()
