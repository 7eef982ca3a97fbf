# SPDX-License-Identifier: Apache-2.0
"""P3, P4, P8: a damaged journal is not taken for one that a crash tore: it is refused, said where, and cut only when told."""
import os
import shutil
import struct
import zlib

import pytest

import rig

pytestmark = pytest.mark.needs_mount
FILES = 20


def segments(store):
    return [os.path.join(store, "journal", name) for name in sorted(os.listdir(os.path.join(store, "journal")))]


def batches(segment):
    """Offsets of the batches of a segment, and where the last one ends."""
    data, at, found = rig.read_file(segment), 128, []
    while data[at : at + 4] == b"BTCH":
        found.append(at)
        at += 128 + struct.unpack_from("<Q", data, at + 8)[0]
    return found, at


def last_segment(store):
    """The one that was written last: what comes after it was only allocated."""
    return [path for path in segments(store) if rig.read_file(path)[:8] == b"CAIRNSEG"][-1]


def pack_names(store, *more):
    found = set()
    for directory in ("packs", *more):
        path = os.path.join(store, directory)
        found |= {name.removeprefix("packs-") for name in os.listdir(path)} if os.path.isdir(path) else set()
    return found


def content(number):
    return rig.seeded_bytes(number, 40_000)


def name_of(mnt, number):
    return os.path.join(mnt, f"file-{number:02}")


def fsync_file(path, data):
    with rig.opened(path, os.O_WRONLY | os.O_CREAT, 0o644) as fd:
        rig.write_all(fd, data)
        os.fsync(fd)


def present(mnt):
    """How many of the files are there, with their bytes; those that are there are the first."""
    names = sorted(name for name in os.listdir(mnt) if name.startswith("file-"))
    assert names == [f"file-{i:02}" for i in range(len(names))]
    assert all(rig.read_file(name_of(mnt, i)) == content(i) for i in range(len(names)))
    return len(names)


@pytest.fixture
def synced(cairn):
    """Twenty files, each with an fsync of its own; then the power goes, and what RocksDB had not written with it."""
    cairn.mount(writeback_delay="1h")
    cairn.umount()
    shutil.copytree(os.path.join(cairn.store, "view"), os.path.join(cairn.root, "view"))
    cairn.mount(writeback_delay="1h")
    for number in range(FILES):
        fsync_file(name_of(cairn.mnt, number), content(number))
    cairn.lose_power()
    shutil.copytree(os.path.join(cairn.store, "view"), os.path.join(cairn.root, "view-whole"))
    forget_view(cairn)
    return cairn


def forget_view(cairn, to="view"):
    cairn.delete_view()
    shutil.copytree(os.path.join(cairn.root, to), os.path.join(cairn.store, "view"))


def damage(segment, kind):
    """Damages the sixth batch; returns what undoes it."""
    whole = rig.read_file(segment)
    offsets, _ = batches(segment)
    at = offsets[5]
    changed = bytearray(whole)
    if kind == "payload":
        changed[at + 128 + 50] ^= 4
    elif kind == "header":
        changed[at + 30] ^= 4
    elif kind == "magic":
        changed[at] ^= 4
    elif kind == "sector":
        begin = (at + 511) // 512 * 512
        changed[begin : begin + 512] = bytes(512)
    elif kind == "segment header":
        changed[50] ^= 4
    rig.patch(segment, 0, changed)
    return whole


@pytest.mark.parametrize("kind", ("payload", "header", "magic", "sector", "segment header"))
def test_damage_with_batches_behind_it(synced, kind):
    """It is refused, named, and nothing is touched; a copy of the journal brings all back."""
    cairn, segment = synced, last_segment(synced.store)
    whole, packs = damage(segment, kind), pack_names(synced.store)
    damaged = rig.read_file(segment)
    for _ in range(2):
        with pytest.raises(rig.MountError, match=f"journal/{os.path.basename(segment)} is damaged at byte \\d+") as refused:
            cairn.mount()
        assert "fsck --repair" in str(refused.value)
    checked = cairn.fsck()
    assert checked.returncode == 4 and os.path.basename(segment) in checked.stdout, checked
    assert pack_names(cairn.store) == packs and rig.read_file(segment) == damaged
    rig.patch(segment, 0, whole)
    cairn.mount()
    assert present(cairn.mnt) == FILES


@pytest.mark.parametrize("kind", ("payload", "header", "segment header"))
def test_repair_cuts_it_and_keeps_what_it_cuts_off(synced, kind):
    """fsck --repair: the state before the damage, all else in lost+found."""
    cairn, segment = synced, last_segment(synced.store)
    damage(segment, kind)
    packs, damaged = pack_names(cairn.store), rig.read_file(segment)
    assert os.path.basename(segment) in cairn.verb("fsck", "--repair", cairn.store, code=1).stdout
    aside = os.path.join(cairn.store, "lost+found")
    assert rig.read_file(os.path.join(aside, f"journal-{os.path.basename(segment)}")) == damaged
    assert "nothing was truncated" in cairn.verb("fsck", "--repair", cairn.store).stdout
    cairn.mount()
    assert present(cairn.mnt) == (0 if kind == "segment header" else 5)
    assert pack_names(cairn.store, "lost+found") >= packs
    fsync_file(os.path.join(cairn.mnt, "after"), b"after" * 10_000)
    cairn.umount()
    cairn.mount_anew()
    assert rig.read_file(os.path.join(cairn.mnt, "after")) == b"after" * 10_000
    cairn.umount_whole()


def test_what_the_view_has_is_not_lost(synced):
    """Where the view knows what the damaged batches said, the mount goes on with all of it, and soon needs them no more."""
    cairn, segment = synced, last_segment(synced.store)
    damage(segment, "payload")
    forget_view(cairn, "view-whole")
    assert "nothing was truncated" in cairn.verb("fsck", "--repair", cairn.store, code=4).stdout  # it checks the whole journal afterwards
    cairn.mount()
    assert present(cairn.mnt) == FILES and "damaged" in cairn.log()
    rig.poll(lambda: not os.path.exists(segment), 30, "a snapshot in the place of the damaged segment")
    cairn.umount()
    cairn.delete_view()
    assert cairn.fsck().returncode == 0
    cairn.mount()
    assert present(cairn.mnt) == FILES


def forged_batch(segment):
    """What a user can make of a batch: all of it but the tag."""
    data = rig.read_file(segment)
    at = batches(segment)[0][-1]
    header = bytearray(data[at : at + 124])
    header[24:40] = struct.pack("<QQ", *[struct.unpack_from("<Q", data, at + 32)[0] + 1] * 2)
    header[8:24] = struct.pack("<QII", 0, 0, 0)
    header[96:120] = bytes(range(24))
    return bytes(header) + struct.pack("<I", zlib.crc32(bytes(header)))


@pytest.mark.parametrize("tear", ("header", "end"))
def test_a_torn_tail_is_no_damage(cairn, tear):
    """The last batch was torn, and in it lies what a user wrote to look like one: the journal ends before it."""
    cairn.mount(writeback_delay="1h")
    fsync_file(name_of(cairn.mnt, 0), content(0))
    cairn.lose_power()
    forged = forged_batch(last_segment(cairn.store))
    cairn.mount(writeback_delay="1h")
    fsync_file(name_of(cairn.mnt, 1), content(1))
    shutil.copytree(os.path.join(cairn.store, "view"), os.path.join(cairn.root, "view"))
    fsync_file(os.path.join(cairn.mnt, "forger"), forged * 100 + b"end")
    cairn.lose_power()
    segment = last_segment(cairn.store)
    offsets, end = batches(segment)
    assert forged in rig.read_file(segment)[offsets[-1] :]
    rig.patch(segment, offsets[-1] if tear == "header" else end - 40, bytes(128 if tear == "header" else 40))
    forget_view(cairn)
    cairn.mount()
    assert present(cairn.mnt) == 2 and not os.path.exists(os.path.join(cairn.mnt, "forger"))


def test_a_segment_that_was_truncated(synced):
    """Its length is known: what is missing was not only room."""
    cairn, segment = synced, last_segment(synced.store)
    offsets, _ = batches(segment)
    os.truncate(segment, offsets[10])
    with pytest.raises(rig.MountError, match="is truncated"):
        cairn.mount()
    cairn.verb("fsck", "--repair", cairn.store, code=1)
    cairn.mount()
    assert present(cairn.mnt) == 10
