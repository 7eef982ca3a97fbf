# SPDX-License-Identifier: Apache-2.0
"""P8: one flipped byte in a pack gives EIO for the bytes concerned and only these, never wrong bytes."""
import errno
import os

import pytest

import rig

pytestmark = pytest.mark.needs_mount

BLOCK = 64 * rig.KIB
CHUNK = rig.MIB


def find_in_packs(store, needle):
    """The pack file and the offset that hold these bytes."""
    for directory, _, names in os.walk(os.path.join(store, "packs")):
        for name in names:
            path = os.path.join(directory, name)
            at = rig.read_file(path).find(needle)
            if at >= 0:
                return path, at
    raise AssertionError("the data lies in no pack as it is")


def read_blocks(path, data):
    """Read every block: the offsets that gave EIO. Wrong bytes fail at once."""
    failed = []
    with rig.opened(path, os.O_RDONLY) as fd:
        for at in range(0, len(data), BLOCK):
            try:
                got = os.pread(fd, BLOCK, at)
            except OSError as error:
                assert error.errno == errno.EIO
                failed.append(at)
                continue
            assert got == data[at : at + len(got)], f"wrong bytes at {at}"
            if len(got) < min(BLOCK, len(data) - at):
                failed.append(at + len(got) // BLOCK * BLOCK)
    return failed


@pytest.fixture
def filled(cairn, rng):
    """A store with three files on NVMe, not mounted."""
    cairn.mount()
    files = {name: rig.seeded_bytes(rng.random(), size * rig.MIB) for name, size in (("a", 6), ("victim", 10), ("z", 3))}
    rig.write_files(cairn.mnt, files)
    cairn.umount()
    cairn.drop_stage()
    return cairn, files


@pytest.mark.parametrize("where", [0, 5_500_000, 10 * rig.MIB - 100], ids=["first", "middle", "last"])
def test_flipped_byte(filled, where):
    """P8: EIO for the chunk that was hit, everything else exact; fsck and status name the file."""
    cairn, files = filled
    path, at = find_in_packs(cairn.store, files["victim"][where : where + 64])
    rig.flip(path, at)
    done = cairn.fsck()
    assert done.returncode == 4 and "victim" in done.stdout + done.stderr, done
    cairn.mount()
    for name, data in files.items():
        failed = read_blocks(os.path.join(cairn.mnt, name), data)
        if name != "victim":
            assert failed == []
            continue
        assert where // BLOCK * BLOCK in failed
        assert max(failed) - min(failed) < CHUNK, f"EIO for more than one chunk: {failed}"
    assert "victim" in str(cairn.status()["damage"])
    assert cairn.cairn("status", cairn.mnt).returncode == 0


def test_damaged_file_can_be_replaced(filled):
    """P8, P9: writing the same data again heals: the damaged chunk is not trusted as a duplicate."""
    cairn, files = filled
    path, at = find_in_packs(cairn.store, files["victim"][:64])
    rig.flip(path, at)
    cairn.mount()
    victim = os.path.join(cairn.mnt, "victim")
    assert read_blocks(victim, files["victim"]) != []
    os.unlink(victim)
    rig.write_file(victim, files["victim"])
    cairn.wait()
    cairn.power_cycle()
    assert read_blocks(victim, files["victim"]) == []


@pytest.mark.parametrize("where", ("index", "trailer"))
def test_a_pack_without_its_index(filled, where):
    """P8: its index is made again from its chunks when the view is made anew; a scrub moves them to another pack."""
    cairn, files = filled
    path, _ = find_in_packs(cairn.store, files["victim"][:4096])
    trailer = rig.read_file(path)[-64:]
    offset = int.from_bytes(trailer[16:24], "little") if where == "index" else os.path.getsize(path) - 1
    rig.flip(path, offset)
    cairn.mount_anew()
    assert all(read_blocks(os.path.join(cairn.mnt, name), data) == [] for name, data in files.items())
    assert os.path.basename(path) in cairn.log() and "made again" in cairn.log()
    cairn.umount()
    done = cairn.fsck()
    assert done.returncode == 4 and os.path.basename(path) in done.stdout, done
    cairn.mount()
    assert "index" in cairn.verb("scrub", cairn.mnt).stdout
    assert all(read_blocks(os.path.join(cairn.mnt, name), data) == [] for name, data in files.items())
    cairn.umount_whole()
    cairn.mount_anew()
    assert all(read_blocks(os.path.join(cairn.mnt, name), data) == [] for name, data in files.items())


def first_frame(pack):
    """Where the first chunk's frame begins and ends."""
    return 64, 64 + int.from_bytes(rig.read_file(pack)[68:72], "little")


def test_a_pack_without_index_and_a_frame_is_kept(filled):
    """P8: what cannot be told apart in it is EIO; the pack stays, also when nothing known lives in it, and is good again when it can be
    read."""
    cairn, files = filled
    path, _ = find_in_packs(cairn.store, files["victim"][:4096])
    frame = first_frame(path)[0]
    places = (os.path.getsize(path) - 1, frame + 40)
    for at in places:
        rig.flip(path, at)
    cairn.mount_anew()
    failed = [at for name, data in files.items() for at in read_blocks(os.path.join(cairn.mnt, name), data)]
    assert failed and max(failed) - min(failed) < CHUNK, failed
    for name in files:
        os.unlink(os.path.join(cairn.mnt, name))
    cairn.write("more", b"more", "nvme")
    assert cairn.cairn("gc", cairn.mnt).returncode == 0
    cairn.umount()
    assert os.path.exists(path)
    for at in places:
        rig.flip(path, at)
    cairn.mount_anew()
    assert rig.read_file(os.path.join(cairn.mnt, "more")) == b"more"


def test_forged_frames_are_none(cairn, rng, mnt):
    """P12: a file whose content looks like frames of a pack takes nothing from others when the index is made again."""
    good, other = rig.seeded_bytes(rng.random(), 3 * rig.MIB), rig.seeded_bytes(rng.random(), rig.MIB)
    cairn.write("good", good, "nvme")
    path, _ = find_in_packs(cairn.store, good[:4096])
    frame = bytearray(rig.read_file(path)[slice(*first_frame(path))])
    forged = bytes(frame) * 12_000
    rig.write_file(os.path.join(mnt, "forged"), forged + other)
    rig.write_file(os.path.join(mnt, "after"), other[::-1])
    cairn.umount()
    cairn.drop_stage()
    for directory, _, names in os.walk(os.path.join(cairn.store, "packs")):
        for name in names:
            rig.flip(os.path.join(directory, name), os.path.getsize(os.path.join(directory, name)) - 1)
    cairn.mount_anew()
    for name, data in (("good", good), ("forged", forged + other), ("after", other[::-1])):
        assert rig.read_file(os.path.join(mnt, name)) == data, name


@pytest.mark.timeout(240)
def test_any_flipped_byte_gives_exact_bytes_or_an_error(filled, rng, full):
    """P8, P12: a byte anywhere in packs or journal: the mount says no, or every read is exact or EIO."""
    cairn, files = filled
    stored = [os.path.join(top, name) for part in ("packs", "journal") for top, _, names in os.walk(f"{cairn.store}/{part}")
              for name in names]
    for _ in range(40 if full else 6):
        path = rng.choice([name for name in stored if os.path.getsize(name)])
        offset = rng.randrange(os.path.getsize(path))
        rig.flip(path, offset)
        cairn.delete_view()
        print(f"flipped {os.path.relpath(path, cairn.store)} at {offset}")
        try:
            cairn.mount(timeout=300)
            for name in os.listdir(cairn.mnt):
                read_blocks(os.path.join(cairn.mnt, name), files[name])
        except rig.MountError as error:
            print(f"refused: {str(error)[-300:]}")
        cairn.kill9()
        rig.file_systems_unmount(cairn.mnt)
        cairn.drop_stage()
        if offset < os.path.getsize(path):  # what a journal had allocated ahead is given back
            rig.flip(path, offset)
    cairn.mount_anew()
    assert all(read_blocks(os.path.join(cairn.mnt, name), data) == [] for name, data in files.items())


def test_damaged_journal_behind_the_view(filled):
    """What the view has already is not read again by a mount, which serves; fsck finds it, and where the view is lost, too, nothing is
    touched."""
    cairn, files = filled
    cairn.mount()  # from here on the first segment is not the last
    cairn.umount()
    first = os.path.join(cairn.store, "journal", sorted(os.listdir(os.path.join(cairn.store, "journal")))[0])
    middle = len(rig.read_file(first).rstrip(b"\0")) // 2
    rig.flip(first, middle)
    cairn.mount()
    assert all(read_blocks(os.path.join(cairn.mnt, name), data) == [] for name, data in files.items())
    cairn.umount()
    checked = cairn.fsck()
    assert checked.returncode == 4 and "journal" in checked.stdout, checked
    cairn.delete_view()
    with pytest.raises(rig.MountError, match="journal"):
        cairn.mount()
    rig.flip(first, middle)
    cairn.mount()
    assert all(read_blocks(os.path.join(cairn.mnt, name), data) == [] for name, data in files.items())
