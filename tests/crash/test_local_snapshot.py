# SPDX-License-Identifier: Apache-2.0
"""The journal of a store without a remote ends, too: a snapshot of the namespace takes the place of old segments."""
import contextlib
import glob
import os
import shutil
import threading

import pytest

import rig
import test_power
from test_power import cairn_on_image  # noqa: F401 (a fixture)

LIMIT = 120 * rig.MIB  # of the journal: 48 that make a snapshot worth it, what comes meanwhile, the segment in use and the next

pytestmark = pytest.mark.needs_mount


class Noise:
    """Attributes that are replaced again and again: a journal that grows by 60 KB each, and a state that does not."""

    def __init__(self, mnt):
        self.path, self.count, self.over = os.path.join(mnt, "noise"), 0, threading.Event()
        rig.write_file(self.path, b"")

    def one(self):
        os.setxattr(self.path, f"user.noise-{self.count % 8}", rig.seeded_bytes(self.count, 60_000))
        self.count += 1

    def check(self, mnt):
        for number in range(self.count - 8, self.count):
            assert os.getxattr(os.path.join(mnt, "noise"), f"user.noise-{number % 8}") == rig.seeded_bytes(number, 60_000)

    def run(self, pause):
        while not self.over.wait(pause):
            try:
                self.one()
            except OSError:
                return  # the daemon was killed

    def start(self, pause):
        self.thread = threading.Thread(target=self.run, args=(pause,))
        self.thread.start()

    def stop(self):
        self.over.set()
        self.thread.join(120)


def journal_bytes(store):
    total = 0
    for entry in os.scandir(os.path.join(store, "journal")):
        with contextlib.suppress(FileNotFoundError):  # a snapshot took its place just now
            total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def snapshots(store):
    """Ids of the runs that are there."""
    directory = os.path.join(store, "runs")
    return [int(name, 16) for name in os.listdir(directory) if len(name) == 16] if os.path.isdir(directory) else []


def wait_for_snapshot(mount, noise):
    """Noise until another snapshot was taken, and what it replaces is gone."""
    before = snapshots(mount.store)

    def taken():
        for _ in range(20):
            noise.one()
        return snapshots(mount.store) not in ([], before) and journal_bytes(mount.store) <= LIMIT

    rig.poll(taken, 100, "a snapshot", 0.05)


def make_tree(mnt, rng):
    content = {f"f{i}": rng.randbytes(rng.choice([0, 100, 20_000, 1_500_000])) for i in range(30)}
    rig.write_files(mnt, content)
    os.mkdir(os.path.join(mnt, "directory"))
    os.link(os.path.join(mnt, "f0"), os.path.join(mnt, "directory", "again"))
    os.symlink("f1", os.path.join(mnt, "link"))
    return content


def check_tree(mnt, content):
    assert all(rig.read_file(os.path.join(mnt, name)) == data for name, data in content.items())
    assert os.stat(os.path.join(mnt, "directory", "again")).st_ino == os.stat(os.path.join(mnt, "f0")).st_ino
    assert os.readlink(os.path.join(mnt, "link")) == "f1"


@pytest.mark.timeout(240)
def test_the_journal_ends(cairn, rng, mnt):
    """Whatever happens to a few files, it stays bounded; view and state are made from the snapshot and what came after it."""
    content, noise = make_tree(mnt, rng), Noise(mnt)
    wait_for_snapshot(cairn, noise)
    wait_for_snapshot(cairn, noise)
    content["after"] = rng.randbytes(40_000)
    rig.write_file(os.path.join(mnt, "after"), content["after"])
    os.unlink(os.path.join(mnt, "f2"))
    del content["f2"]
    cairn.umount()
    assert min(int(name, 16) for name in os.listdir(os.path.join(cairn.store, "journal"))) > 1
    assert cairn.fsck().returncode == 0
    cairn.delete_view()
    assert cairn.fsck().returncode == 0
    for _ in range(2):
        cairn.mount()
        check_tree(mnt, content)
        noise.check(mnt)
        assert not os.path.exists(os.path.join(mnt, "f2"))
        content["again"] = rng.randbytes(100_000)
        rig.write_file(os.path.join(mnt, "again"), content["again"])
        cairn.kill9()
        cairn.delete_view()
    cairn.mount()
    check_tree(mnt, content)
    cairn.umount_whole()


def test_the_journal_ends_where_all_sessions_are_short(cairn, mnt):
    """What a session leaves due waits until the next one has served for 2 s; a journal that is longer by far does not."""
    noise = Noise(mnt)
    for _ in range(24):
        begun = rig.time.monotonic()
        for _ in range(300):
            noise.one()
        cairn.umount()
        length = journal_bytes(cairn.store)
        print(f"{rig.time.monotonic() - begun:.1f} s, {noise.count * 60_000 >> 20} MiB of noise, {length >> 20} MiB of journal")
        assert length <= 4 * 48 * rig.MIB + 64 * rig.MIB  # what makes it longer by far, and what comes meanwhile
        cairn.mount()
        noise.check(mnt)
    assert noise.count * 60_000 > 400 * rig.MIB and snapshots(cairn.store)
    cairn.umount()


class CutsWithoutView(test_power.Cuts):
    """The view of every other cut is lost: it is made from the snapshot. The noise is more than the stage's log takes while NVMe is
    busy, so drafts are sealed at any time (docs/posix.md)."""

    loose = {"idle": 0}

    def prepare(self, mount):
        self.count = getattr(self, "count", 0) + 1
        if self.count % 2:
            mount.delete_view()


@pytest.mark.timeout(240)
def test_power_cuts_around_snapshots(power, cairn_on_image, rng, directory, shm_directory, full):
    """P4: cut while snapshots are taken, with the view and without it: always a prefix with every returned fsync."""
    cairn, taken = cairn_on_image, 0
    for number in range(8 if full else 1):
        cairn.mount()
        before, noise = snapshots(cairn.store), Noise(cairn.mnt)
        cuts = CutsWithoutView(power, cairn, rng, directory, shm_directory)
        while journal_bytes(cairn.store) < 70 * rig.MIB:
            noise.one()
        noise.start(0.002)
        try:
            log = cuts.run(number, 8)
        finally:
            noise.stop()
        taken += snapshots(cairn.store) != before
        cuts.judge(number, log)
        cairn.delete_view()
        test_power.restart(cairn, number)
    assert taken, "no snapshot was taken"


@pytest.mark.timeout(240)
def test_killed_around_snapshots(cairn, rng, full, mnt):
    """P2: kill -9 at random moments; the view is lost every other time."""
    content, noise = make_tree(mnt, rng), Noise(mnt)
    wait_for_snapshot(cairn, noise)
    taken = 0
    for turn in range(30 if full else 3):
        before = snapshots(cairn.store)
        end = rig.time.monotonic() + (rng.uniform(1.5, 4) if turn else 4)  # a mount begins with snapshots after 2 s
        while rig.time.monotonic() < end:
            noise.one()
        cairn.kill9()
        taken += snapshots(cairn.store) != before
        if turn % 2:
            cairn.delete_view()
        cairn.mount()
        noise.check(mnt)
        check_tree(mnt, content)
    assert taken, "no snapshot was taken"
    cairn.umount_whole()


def pack_names(store):
    return set(os.listdir(os.path.join(store, "packs")))


@pytest.mark.timeout(240)
def test_a_pack_whose_removal_the_power_undid(cairn, rng, mnt):
    """P4: the journal drops a pack that the snapshot knew, and its file is still there when the view is made anew."""
    content, noise = make_tree(mnt, rng), Noise(mnt)
    deleted = rig.write_file(os.path.join(mnt, "deleted"), rng.randbytes(30 * rig.MIB))
    cairn.wait()
    wait_for_snapshot(cairn, noise)
    packs, copies = os.path.join(cairn.store, "packs"), os.path.join(cairn.root, "packs")
    shutil.copytree(packs, copies)
    os.unlink(deleted)
    before = pack_names(cairn.store)
    rig.poll(lambda: noise.one() or not before <= pack_names(cairn.store), 60, "a pack to be dropped", 0.02)
    cairn.umount()
    gone = before - pack_names(cairn.store)
    for name in gone:
        shutil.copy(os.path.join(copies, name), packs)
    cairn.delete_view()
    cairn.drop_stage()
    cairn.mount()
    check_tree(mnt, content)
    assert not gone & pack_names(cairn.store)
    cairn.umount_whole()


def lose_view_log(store):
    """What RocksDB had not written into its tables when the power went."""
    for path in glob.glob(os.path.join(store, "view", "*.log")):
        os.truncate(path, 0)


@pytest.mark.timeout(240)
def test_a_view_that_was_being_made_is_not_believed(cairn, rng, full, mnt):
    """P2, P4: the daemon dies, or the power goes, while the view is made anew from the snapshot: no pack is taken for a leftover."""
    content, noise = make_tree(mnt, rng), Noise(mnt)
    for number in range(60):
        content[f"many-{number}"] = rng.randbytes(50_000)
        cairn.write(f"many-{number}", content[f"many-{number}"], "nvme")  # a pack of its own
    wait_for_snapshot(cairn, noise)
    cairn.umount()
    packs = pack_names(cairn.store)
    for turn in range(60 if full else 8):
        cairn.delete_view()
        if turn % 4:
            begun = rig.time.monotonic()
            cairn.start()
            rig.time.sleep(rng.uniform(0.01, 0.15))
            cairn.proc.kill()
            cairn.reap()
            rig.file_systems_unmount(mnt)
            print(f"killed after {rig.time.monotonic() - begun:.3f} s")
        else:
            cairn.mount()
            cairn.kill9()
            lose_view_log(cairn.store)
            cairn.drop_stage()
        cairn.mount()
        check_tree(mnt, content)
        assert packs <= pack_names(cairn.store)
        cairn.umount()
    assert cairn.fsck().returncode == 0


def test_with_a_remote_later(cairn, mount_factory, request, rng, directory):
    """The snapshot is of no remote: all of it is stored in the one that comes, and another node goes on from there."""
    remote = f"dir:{os.path.join(directory, 'remote')}"
    cairn.mount()
    content, noise = make_tree(cairn.mnt, rng), Noise(cairn.mnt)
    wait_for_snapshot(cairn, noise)
    cairn.umount()
    cairn.mount_anew(remote=remote)
    cairn.wait(None, "remote", "60s")
    cairn.umount()
    other = mount_factory(os.path.join(directory, "other"), request=request)
    other.mount(remote=remote)
    check_tree(other.mnt, content)
    noise.check(other.mnt)
    other.umount()
    cairn.mount()
    check_tree(cairn.mnt, content)
    cairn.umount_whole()
