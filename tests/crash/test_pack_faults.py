# SPDX-License-Identifier: Apache-2.0
"""P3, P8: what fsync said is on NVMe is there, whatever reads and writes of new packs do meanwhile (faults by site: tests/faultdisk.py)."""
import errno
import os

import pytest

import processes
import rig

pytestmark = pytest.mark.needs_mount


def check_after_power_loss(cairn, files):
    cairn.power_cycle()
    assert all(rig.read_file(os.path.join(cairn.mnt, name)) == data for name, data in files.items())
    assert not cairn.status()["damage"]
    cairn.umount_whole()


@pytest.mark.parametrize("kind", ("misread", "lie"))
def test_new_packs_are_known_without_reading_them(cairn, disk, kind):
    """No read of a pack is believed against what memory knows of it."""
    cairn.mount(writeback_delay="1h")
    files = {f"file-{i}": rig.seeded_bytes(i, 700_000) for i in range(4)}
    with disk.fault("packs", "pread", kind, times=0):
        rig.write_files(cairn.mnt, files, rig.write_synced)
    check_after_power_loss(cairn, files)


@pytest.mark.parametrize("kind", ("misdirect", "lie"))
def test_a_pack_that_was_written_wrongly_is_written_again(cairn, disk, kind):
    """It was read back before anything relies on it: the stage still has all of it."""
    cairn.mount(writeback_delay="1h")
    files = {f"file-{i}": rig.seeded_bytes(i, 3 * rig.MIB + i) for i in range(3)}
    for name, data in files.items():
        with disk.fault("room", "pwrite", kind, times=1):
            rig.write_synced(os.path.join(cairn.mnt, name), data)
            assert disk.fired() == 1
    assert cairn.log().count("retrying elsewhere") >= 1
    check_after_power_loss(cairn, files)


def test_an_index_that_is_read_wrongly_is_read_again(cairn, disk, mnt):
    """P8: a transient misread of a pack's end while the view is made anew costs nothing."""
    files = {f"file-{i}": rig.seeded_bytes(i, 900_000) for i in range(3)}
    rig.write_files(mnt, files, rig.write_synced)
    cairn.umount()
    cairn.delete_view()
    with disk.fault("packs", "pread", "misread", times=2):
        cairn.mount()
        assert disk.fired() >= 1
    assert "made again" not in cairn.log()
    check_after_power_loss(cairn, files)


def test_a_batch_that_is_read_wrongly_is_read_again(cairn, disk):
    """P3: what a misread makes of the last batch is not the end of the journal."""
    cairn.mount(writeback_delay="1h")
    files = {f"file-{i}": rig.seeded_bytes(i, 50_000) for i in range(5)}
    rig.write_files(cairn.mnt, files, rig.write_synced)
    for skip in range(2, 12, 3):
        cairn.lose_power()
        cairn.delete_view()
        with disk.fault("journal", "pread", "misread", times=1, skip=skip):
            cairn.mount(writeback_delay="1h")
        assert all(rig.read_file(os.path.join(cairn.mnt, name)) == data for name, data in files.items()), skip
    check_after_power_loss(cairn, files)


@pytest.mark.parametrize("times", (1, 2, 5))
def test_a_directory_whose_fsync_fails(cairn, disk, times):
    """P3, P9: an fsync that is tried again on the same directory says nothing of what the first one lost: another takes its place."""
    cairn.mount(writeback_delay="1h")
    files = {f"file-{i}": rig.seeded_bytes(i, 900_000) for i in range(4)}
    packs = os.path.join(cairn.store, "packs")
    rig.write_synced(os.path.join(cairn.mnt, "file-0"), files["file-0"])
    rig.write_file(os.path.join(packs, "of-others"), b"left alone")
    with disk.fault("directory", "fsync", errno.EIO, times=times):
        processes.ends(lambda: rig.write_synced(os.path.join(cairn.mnt, "file-1"), files["file-1"]), rig.PATIENCE * 30)
        assert disk.fired() == times
    assert "a new directory with the same entries replaced it" in cairn.log() and not os.path.exists(packs + ".anew")
    for name in ("file-2", "file-3"):
        rig.write_synced(os.path.join(cairn.mnt, name), files[name])
    assert rig.read_file(os.path.join(packs, "of-others")) == b"left alone"
    check_after_power_loss(cairn, files)


def test_a_directory_that_was_being_made_anew(cairn, mnt):
    """P2: killed in between, files have their names in one directory or the other: they are folded into one."""
    files = {f"file-{i}": rig.seeded_bytes(i, 900_000) for i in range(4)}
    rig.write_files(mnt, files, rig.write_synced)
    cairn.umount()
    for number, directory in enumerate(("packs", "journal", "packs")):
        path = os.path.join(cairn.store, directory)
        os.rename(path, path + ".anew")
        os.mkdir(path, 0o700)
        for name in sorted(os.listdir(path + ".anew"))[number::2]:
            os.link(os.path.join(path + ".anew", name), os.path.join(path, name))
        cairn.mount()
        assert all(rig.read_file(os.path.join(mnt, name)) == data for name, data in files.items())
        cairn.umount()
        assert not os.path.exists(path + ".anew")
    assert cairn.fsck().returncode == 0
