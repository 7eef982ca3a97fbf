# SPDX-License-Identifier: Apache-2.0
"""P9, P8: a failing disk ends no daemon and hangs no call (faults by site: tests/faultdisk.py)."""
import errno
import os

import pytest

import faultdisk
import processes
import rig

pytestmark = pytest.mark.needs_mount

LIMIT = rig.PATIENCE * 30  # seconds for a call on a failing disk
TENSOR = 3 * rig.MIB + 4567  # of a write: each begins a grid of chunks of its own


@pytest.mark.parametrize(("site", "call", "error"),
                         [("packs", "rename", errno.EIO), ("room", "fallocate", errno.ENOSPC), ("room", "fdatasync", errno.EIO)])
def test_a_pack_of_a_large_draft_fails(cairn, disk, site, call, error):
    """P9: what is not stored of a file larger than the stage is split into chunks anew: the state of the chunker is that of what is stored."""
    cairn.mount(stage="64M")
    path, data = os.path.join(cairn.mnt, "large"), rig.seeded_bytes(1, 96 * rig.MIB)
    disk.arm(site, call, error, times=3)
    with open(path, "wb", buffering=0) as file:
        for at in range(0, len(data), TENSOR):
            rig.write_all(file.fileno(), data[at : at + TENSOR])
    cairn.wait(path)
    assert disk.fired() >= 1
    disk.disarm()
    assert rig.read_file(path) == data
    cairn.crash(stage="64M")
    assert rig.read_file(path) == data
    cairn.umount_whole()


VIEW_WRITES = {"calls": ("open", "fdatasync", "fsync", "fallocate", "rename", "ftruncate"), "sites": faultdisk.VIEW}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_fsync_while_the_view_cannot_be_written(cairn, disk, error):
    """P3, P9: the journal makes data durable; the view follows when it can, under the live mount, and nothing is lost."""
    cairn.mount(stage="64M")
    before = rig.seeded_bytes("before", 300_000)
    rig.write_synced(cairn.mnt + "/before", before)
    want = {"before": before}
    disk.arm("view-log", "pwrite", error, times=0, **VIEW_WRITES)
    for number in range(40):
        name, data = f"file-{number % 7}", rig.seeded_bytes(number, (700, 30_000, 1_300_000)[number % 3])
        processes.ends(lambda path=os.path.join(cairn.mnt, name), data=data: rig.write_synced(path, data), LIMIT)
        want[name] = data
    os.rename(cairn.mnt + "/file-1", cairn.mnt + "/renamed")
    want["renamed"] = want.pop("file-1")
    processes.ends(lambda: cairn.wait(), LIMIT)
    assert disk.fired() > 0
    assert "view" in cairn.status()["nvme"]["last_error"] or "view" in cairn.log()
    rig.check_files(cairn.mnt, want)
    disk.disarm()
    rig.poll(lambda: "the view follows the journal again" in cairn.log(), 30, "the view to follow")
    for number in range(40, 50):
        rig.write_synced(cairn.mnt + f"/late-{number}", rig.seeded_bytes(number, 10_000))
    rig.check_files(cairn.mnt, want)
    cairn.power_cycle(stage="64M")
    rig.check_files(cairn.mnt, want)
    cairn.umount_whole()


def test_killed_while_the_view_cannot_be_written(cairn, disk):
    """P2, P4: what was durable meanwhile is there after a power loss; the unmount does not wait for the view either."""
    cairn.mount(stage="64M")
    disk.arm("view-log", "pwrite", errno.EIO, times=0, **VIEW_WRITES)
    want = {}
    for number in range(12):
        want[f"file-{number % 5}"] = rig.seeded_bytes(number, 200_000)
        processes.ends(lambda number=number: rig.write_synced(cairn.mnt + f"/file-{number % 5}", want[f"file-{number % 5}"]), LIMIT)
    cairn.lose_power()
    disk.disarm()
    cairn.mount(stage="64M")
    rig.check_files(cairn.mnt, want)
    disk.arm("view-log", "pwrite", errno.EIO, times=0, **VIEW_WRITES)
    processes.ends(lambda: rig.write_synced(cairn.mnt + "/last", b"last"), LIMIT)
    processes.ends(cairn.umount, rig.PATIENCE * 60)
    disk.disarm()
    assert cairn.fsck().returncode == 0
    cairn.mount(stage="64M")
    assert rig.read_file(cairn.mnt + "/last") == b"last"
    rig.check_files(cairn.mnt, want)


@pytest.mark.parametrize("was_killed", [False, True])
def test_trouble_of_the_disk_at_mount_is_told_as_that(cairn, disk, was_killed):
    """P9: EIO of NVMe at mount names the store's disk and not the stage; nothing is lost by it."""
    cairn.mount(writeback_delay="1h")
    rig.write_file(cairn.mnt + "/file", b"content")
    told = 0
    for site, call, error in (
        ("journal", "pwrite", errno.EIO),
        ("journal", "fdatasync", errno.EIO),
        ("room", "fallocate", errno.EIO),
        ("journal", "rename", errno.ENOSPC),
        ("directory", "fsync", errno.EIO),
        ("session", "unlink", errno.EIO),
    ):
        if cairn.proc:
            cairn.kill9() if was_killed else cairn.umount()
        disk.arm(site, call, error, times=0)
        try:
            cairn.mount(writeback_delay="1h")
        except rig.MountError as failure:
            text = str(failure).splitlines()[-1]
            assert "the stage" not in text, text
            assert cairn.store in text and os.strerror(error) in text, text
            told += 1
        disk.disarm()
        if not cairn.proc:
            cairn.mount(writeback_delay="1h")
        assert rig.read_file(cairn.mnt + "/file") == b"content"
    assert told >= 4


def test_a_run_that_the_disk_did_not_take(cairn, disk, directory):
    """P9: what was written is read back before it counts; published a moment later, when the disk takes it."""
    cairn.mount(remote=f"dir:{directory}/remote")
    disk.arm("runs", "pwrite", "lie", times=1)
    cairn.write("file", b"content", "remote")
    assert disk.fired() == 1
    assert cairn.proc.poll() is None
    disk.disarm()
    cairn.umount_whole()


@pytest.mark.parametrize("call", ["fallocate", "ftruncate"])
def test_a_stage_that_is_shorter_than_was_said(cairn, disk, call):
    """P9: the files of the stage are mapped, and nothing is touched behind their ends: the mount is refused, and the next one is made."""
    disk.arm("stage", call, "lie", times=1)
    with pytest.raises(rig.MountError, match="ended with [1-9].*\n(.*\n)*cairn mount: .*Input/output error"):
        cairn.mount(stage="64M")
    assert disk.fired() == 1
    disk.disarm()
    cairn.mount(stage="64M")
    rig.write_synced(cairn.mnt + "/file", b"content")
    cairn.umount()
