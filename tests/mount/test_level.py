# SPDX-License-Identifier: Apache-2.0
"""user.cairn.level, .stored_bytes, .hash and `cairn wait`: is it safe yet?"""
import os

import pytest

import rig

pytestmark = pytest.mark.needs_mount


def level(path):
    return os.getxattr(path, "user.cairn.level").decode()


def test_level_follows_writeback(cairn):
    """P4: stage until the horizon includes the last operation on the path, then nvme; again after a change."""
    cairn.mount(writeback_delay="3s")
    path = rig.write_file(os.path.join(cairn.mnt, "file"), rig.seeded_bytes(1, 3 * rig.MIB))
    assert level(path) == "stage"
    cairn.wait(path)
    assert level(path) == "nvme"
    with open(path, "ab") as file:
        file.write(b"more")
    assert level(path) == "stage"
    cairn.wait(path)
    os.chmod(path, 0o600)
    assert level(path) == "stage"
    cairn.wait(path)
    assert level(path) == "nvme"


def test_level_of_a_directory_means_all_below(cairn):
    """P4: a directory is on NVMe when everything below it is."""
    cairn.mount(writeback_delay="3s")
    os.makedirs(cairn.mnt + "/a/b/c")
    rig.write_file(cairn.mnt + "/a/b/c/deep", b"deep")
    assert level(cairn.mnt + "/a") == "stage"
    cairn.wait(cairn.mnt + "/a")
    assert level(cairn.mnt + "/a") == "nvme" == level(cairn.mnt + "/a/b/c/deep")
    rig.write_file(cairn.mnt + "/a/b/c/deeper", b"x")
    assert level(cairn.mnt + "/a") == "stage"
    cairn.wait(cairn.mnt + "/a")
    with open(cairn.mnt + "/a/b/c/deep", "ab", 0) as file:
        file.write(b"er")
        assert level(cairn.mnt + "/a") == "stage" == level(cairn.mnt), "what is still being written is below it"
        cairn.wait(cairn.mnt + "/a")
        assert level(cairn.mnt + "/a") == "nvme"


def test_open_draft_is_in_the_stage(mnt):
    """P4: what is not sealed is not on NVMe."""
    with open(mnt + "/file", "wb") as file:
        file.write(b"x" * 100_000)
        file.flush()
        assert level(mnt + "/file") == "stage"
        os.fsync(file.fileno())
        assert level(mnt + "/file") == "nvme"


def test_wait_times_out(cairn):
    """`cairn wait` ends with 3 when the time is over."""
    cairn.mount(stage="128M", writeback_delay="60s")
    rig.write_file(cairn.mnt + "/file", rig.seeded_bytes(1, 192 * rig.MIB))
    assert len(cairn.verb("wait", cairn.mnt + "/file", "--level", "nvme", "--timeout", "10ms", code=3).stderr.strip().splitlines()) == 1


def test_wait_errors(cairn, mnt):
    """A path that is not there, one that is on no mount, a level that does not exist."""
    for args in (
        (mnt + "/none", "--level", "nvme"),
        ("/", "--level", "nvme"),
        (mnt, "--level", "moon"),
    ):
        done = cairn.cairn("wait", *args)
        assert done.returncode in (1, 2) and len(done.stderr.strip().splitlines()) == 1, (args, done)


def test_never_listed(cairn, mnt):
    """Virtual attributes are not listed, so that no tool copies them."""
    rig.write_file(mnt + "/file", b"x")
    os.setxattr(mnt + "/file", "user.mine", b"1")
    cairn.wait()
    assert os.listxattr(mnt + "/file") == ["user.mine"]
    assert os.listxattr(mnt) == []
    for name in ("level", "stored_bytes", "hash"):
        assert os.getxattr(mnt + "/file", "user.cairn." + name)
    with pytest.raises(OSError):
        os.setxattr(mnt + "/file", "user.cairn.level", b"nvme")


def test_hash_tells_equal_content(cairn, mnt):
    """The hash is the same for the same content written alike, and changes with it."""
    data = rig.seeded_bytes(1, 3_000_000)
    rig.write_file(mnt + "/a", data)
    rig.write_file(mnt + "/b", data)
    cairn.write("c", data[:-1] + b"?", "nvme")
    a, b, c = (os.getxattr(f"{mnt}/{name}", "user.cairn.hash") for name in "abc")
    assert a == b != c


def test_status_while_mounted_and_not(cairn, mnt):
    """`cairn status` by mountpoint and by store; JSON and text."""
    for where in (mnt, cairn.store):
        assert cairn.cairn("status", where).returncode == 0
        assert cairn.cairn("status", where, "--json").stdout.startswith("{")
    status = cairn.status()
    assert {"total_bytes", "dirty_bytes", "clean_bytes", "draft_bytes", "waiting_writers"} <= status["stage"].keys()
    assert {"used_bytes", "stored_bytes", "pack_bytes", "chunks", "files", "horizon_seq", "newest_seq", "behind_bytes",
            "written_bytes_total", "dedup_bytes_total"} <= status["nvme"].keys()
    assert status["memory"]["bound_bytes"] >= status["memory"]["resident_bytes"] > 0
    assert status["damage"] == []
