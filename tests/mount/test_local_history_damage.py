# SPDX-License-Identifier: Apache-2.0
"""Damage that hurts snapshots of a store without a remote: who tells of it, and what it does not hurt."""
import errno
import os

import pytest

import rig
from test_local_history import create, numbers, put, top, tree, writer  # noqa: F401 (fixture)

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]


def test_a_damaged_one_hurts_no_other(writer):
    put(writer, "more", 5)
    create(writer, "second")
    first, second = numbers(writer)
    writer.umount()
    rig.flip(os.path.join(writer.store, "snapshots", str(first), "snapshot"), 70)
    writer.mount()
    assert "is damaged" in writer.log() and "lost+found" in writer.log()
    assert numbers(writer) == [second] and "before" not in os.listdir(top(writer))
    assert sorted(tree(top(writer, "second"))) == ["more", "small"]
    writer.umount()
    for directory, _, names in os.walk(os.path.join(writer.store, "snapshots", str(second), "view")):
        for name in names:
            if name.endswith(".sst"):
                os.truncate(os.path.join(directory, name), 10)
    writer.mount()
    with pytest.raises(OSError) as raised:
        os.listdir(top(writer, "second"))
    assert raised.value.errno == errno.EIO
    assert rig.read_file(os.path.join(writer.mnt, "more")) == rig.seeded_bytes(5, 3_000_000)


def test_scrub_names_the_snapshots_that_damage_hurts(writer):
    assert "clean" in writer.verb("scrub", writer.mnt).stdout
    assert sorted(os.listdir(os.path.join(writer.store, "packs")))
    for name in os.listdir(os.path.join(writer.store, "packs")):
        rig.flip(os.path.join(writer.store, "packs", name), 100_000)
    said = writer.verb("scrub", writer.mnt, code=1).stdout
    assert "it hurts the snapshot before" in said and "damaged" not in writer.log(), said
    for name in "/step1/model.pt", "/step1/deep/optimizer.pt":
        assert f"NVMe: the snapshot before: {name}: bytes of it are damaged or missing\n" in said, said
    put(writer, "other", 9)
    assert rig.read_file(os.path.join(writer.mnt, "other")) == rig.seeded_bytes(9, 3_000_000)


def place_of(store, data):
    """The pack that has it, and where."""
    for name in os.listdir(os.path.join(store, "packs")):
        path = os.path.join(store, "packs", name)
        if (offset := rig.read_file(path).find(data)) >= 0:
            return path, offset
    raise AssertionError("no pack has it")


def test_damage_that_hurts_no_snapshot(cairn):
    """In a pack that a snapshot needs, a chunk whose file was gone before. Of several that need the pack, those that need the chunk are named."""
    cairn.mount(reduce="off", writeback_delay="10s")  # all three come into one pack
    for seed, name in enumerate(("gone", "then", "lives")):
        rig.write_file(os.path.join(cairn.mnt, name), rig.seeded_bytes(seed, 3_000_000))
    cairn.wait()
    for name, then in (("gone", None), ("then", "before")):
        if then:
            create(cairn, then)
        os.unlink(os.path.join(cairn.mnt, name))
        cairn.wait()
    places = [place_of(cairn.store, rig.seeded_bytes(seed, 3_000_000)[:100]) for seed in (0, 1)]
    rig.flip(*places[0])
    assert "clean" in cairn.verb("scrub", cairn.mnt).stdout
    create(cairn, "second")
    rig.flip(*places[1])
    said = cairn.verb("scrub", cairn.mnt, code=1).stdout
    assert "1 damaged or missing" in said and "it hurts the snapshot before\n" in said and "second" not in said, said
    assert "NVMe: the snapshot before: /then: bytes of it are damaged or missing\n" in said, said


def test_fsck_names_the_files_of_snapshots_that_damage_hurts(writer):
    """In each snapshot that has the file, also where the next state has it no more."""
    put(writer, "more", 5)
    create(writer, "second")
    writer.umount()
    assert "2 snapshots" in writer.verb("fsck", writer.store).stdout
    for name in os.listdir(os.path.join(writer.store, "packs")):
        rig.flip(os.path.join(writer.store, "packs", name), 100_000)
    said = writer.verb("fsck", writer.store, code=4).stdout
    assert "snapshot before: /step1/model.pt: bytes of it are damaged" in said, said
    assert "snapshot second: /more: bytes of it are damaged" in said and "snapshot second: /step1" not in said, said
    assert "problem: /more: bytes from " in said, said
    for directory, _, names in os.walk(os.path.join(writer.store, "snapshots", str(numbers(writer)[0]), "view")):
        for name in names:
            if name.endswith(".sst"):
                os.unlink(os.path.join(directory, name))  # the snapshots may share the file
                rig.write_file(os.path.join(directory, name), b"too short!")
    said = writer.verb("fsck", writer.store, code=4).stdout
    assert "problem: snapshot before cannot be read" in said and "snapshot second: /more" in said, said
    os.unlink(os.path.join(writer.store, "snapshots", str(numbers(writer)[0]), "snapshot"))
    said = writer.verb("fsck", writer.store, code=4).stdout
    assert f"problem: snapshot {numbers(writer)[0]} cannot be read" in said and "snapshot second: /more" in said, said
