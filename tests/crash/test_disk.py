# SPDX-License-Identifier: Apache-2.0
"""Power loss on a disk that loses, reorders and tears what was not flushed (P3, P4, P5): recorded_disk.py."""
import os
import random
import shutil

import pytest

import history
import judge
import powercut
import recorded_disk
import remote as remotes
import rig

HOWS = recorded_disk.HOWS
SHARDS = (1 << 20, 4 << 20, 8 << 20)  # large ones leave more to lose at once, small ones more moments
OPTIONS = {"nvme": "700M", "stage": "96M"}
QUICK = {"gc_grace": "1s", "writeback_delay": "100ms"}


# ---------------------------------------------------------------- the disk itself

def read_at(path, offset, length):
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length)


def write_direct(fd, data, offset):
    buffer = recorded_disk.mmap.mmap(-1, len(data))  # aligned, as O_DIRECT needs it
    buffer.write(data)
    assert os.pwrite(fd, buffer, offset) == len(data)


@pytest.mark.noise  # what can be reduced repeats itself
def test_only_what_was_flushed_is_sure(new_disk, rng):
    """Of what was not, there is an image with all, one with none, and with parts of it: not in order, and torn at 512 bytes."""
    disk, count, size = new_disk(size=320 * rig.MIB), 12, 16 * rig.KIB
    disk.open.pop().close()  # no filesystem writes in between
    old, new = (rig.seeded_bytes(rng.random(), count * size) for _ in range(2))
    with rig.opened(disk.device, os.O_RDWR | os.O_DIRECT) as fd:
        write_direct(fd, old, 0)
        os.fsync(fd)
        flushed = disk.count()
        for number in reversed(range(count)):
            write_direct(fd, new[number * size : (number + 1) * size], number * size)
        end = disk.count()
    assert end - flushed >= count
    sectors = {}
    for how in HOWS:
        for _ in range(6):
            path, _ = disk.image(end, how, rng)
            left = read_at(path, 0, len(old))
            os.unlink(path)
            fates = [left[at : at + 512] == new[at : at + 512] for at in range(0, len(old), 512)]
            assert all(left[at : at + 512] in (old[at : at + 512], new[at : at + 512]) for at in range(0, len(old), 512))
            sectors.setdefault(how, []).append([fates[at : at + size // 512] for at in range(0, len(fates), size // 512)])
    assert not any(any(write) for writes in sectors["none"] for write in writes)
    assert all(all(write) for writes in sectors["all"] for write in writes)
    some = [[all(write) for write in writes] for writes in sectors["some"]]
    assert all(all(write) or not any(write) for writes in sectors["some"] for write in writes)
    assert any(earlier < later for writes in some for earlier, later in zip(writes, writes[1:])), "none was lost before one that was kept"
    assert any(any(write) and not all(write) for writes in sectors["torn"] for write in writes)


def test_xfs_mounts_after_each_torn_cut(new_disk, rng, full):
    """200 cuts (16 by default) while its metadata is written: it recovers, with every name that was synced."""
    disk = new_disk(kind="xfs")
    for number in range(3000):
        directory = os.path.join(disk.inner.mountpoint, f"directory-{number % 12}")
        os.makedirs(directory, exist_ok=True)
        rig.write_file(os.path.join(directory, f"name-{rng.getrandbits(40)}"), b"")
    rig.run("sync", "--file-system", disk.inner.mountpoint)
    names, first = judge.snapshot(disk.inner.mountpoint), disk.count()
    disk.open.pop().close()  # writes it, with one flush at the end
    last = disk.count()
    assert max(disk.at_stake(disk.requests())[first:]) > 10, "too little metadata is ever at stake"
    for at in sorted((25 if full else 2) * disk.moments(rng, first, last, 8)):
        path, what = disk.image(at, "torn", rng)
        print(what, flush=True)
        with disk.cut_mounted(path) as loop:
            assert judge.snapshot(loop.mountpoint) == names, what


WITHOUT = {"barriers": "nobarrier", "order": "data=writeback"}


@pytest.mark.parametrize("without", WITHOUT)
def test_a_filesystem_that_keeps_no_prefix_is_found(new_disk, rng, shm_directory, without):
    """The rig can fail: ext4 that sends no flush loses what fsync promised; one that keeps names and no order shows no prefix."""
    disk = new_disk(extra=WITHOUT[without])
    root, log = os.path.join(disk.inner.mountpoint, "run"), os.path.join(shm_directory, "log")
    with history.writing(root, log, rng.randrange(1 << 30), pause=0.05, shard=1 << 20):
        first = disk.count()
        rig.time.sleep(1.5)
        last = disk.count()
    found = []
    for at in disk.moments(rng, first, last, 3):
        for how in HOWS:
            path, _ = disk.image(at, how, rng)
            found.append(is_violated(disk, path, log, at))
    assert any(found)


def is_violated(disk, image, log, at):
    try:
        loop = disk.mount_cut(image)
    except RuntimeError:
        os.unlink(image)
        return True  # the filesystem cannot even be mounted
    try:
        judge.check_cut(os.path.join(loop.mountpoint, "run"), log, *recorded_disk.marks(log, disk.requests(), at))
        return False
    except judge.Violation:
        return True
    finally:
        disk.drop_cut(loop)


# ---------------------------------------------------------------- cuts of a store

class Round:
    """Writers on a mount whose store lies on the disk; then images of cuts, each judged."""

    def __init__(self, disk, mount, rng, logs, number, reports):
        self.disk, self.mount, self.rng, self.number, self.reports = disk, mount, rng, number, reports
        self.name, self.log = f"run-{number}", os.path.join(logs, f"log-{number}")
        self.copies = []  # (request, copy of the remote)

    def run(self, seconds, copies=0):
        """The writers; while they run, `copies` times the daemon stands, and the remote is copied."""
        path, seed = os.path.join(self.mount.mnt, self.name), self.rng.randrange(1 << 30)
        with history.writing(path, self.log, seed, pause=0.05, shard=self.rng.choice(SHARDS)):
            self.settle()
            self.first = self.disk.count()
            for _ in range(copies):
                rig.time.sleep(seconds / copies)
                self.copies.append(self.copy_remote())
            if not copies:
                rig.time.sleep(seconds)
            self.last = self.disk.count()
            self.mount.kill9()
        self.mount.drop_stage()

    def settle(self):
        """What has to be before the first cut."""

    def copy_remote(self):
        with self.mount.paused():
            return self.disk.count(), self.mount.remote.copy()

    def cut(self, at, how, judge_one):
        """Makes one image and has it judged: judge_one(loop, mark, end_mark) returns how many operations are left."""
        mark, end_mark = recorded_disk.marks(self.log, self.disk.requests(), at)
        choices = f"{self.rng.getrandbits(32)}"
        path, what = self.disk.image(at, how, random.Random(choices))
        loop = self.disk.mount_cut(path)
        try:
            left = judge_one(loop, mark, end_mark)
            print(f"{self.name}, {how}: {what}: {left}")
            return left
        except Exception as problem:
            kept = self.keep(at, how, choices)
            raise AssertionError(f"{self.disk.kind}, {self.name}, {how}: {what}; kept in {kept}: {problem}") from problem
        finally:
            self.disk.drop_cut(loop)

    def keep(self, at, how, choices):
        """The image that was judged and the history, to look for the cause in."""
        directory = os.path.join(self.reports, f"cut-{self.disk.kind}-{at}-{how}-{choices}")
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        shutil.copy(self.log, directory)
        path, _ = self.disk.image(at, how, random.Random(choices))
        rig.run("cp", "--sparse=always", path, os.path.join(directory, "disk.img"))
        os.unlink(path)
        return directory

    def prefix(self, mnt, mark, end_mark):
        """How long the prefix is that a mount shows."""
        path = os.path.join(mnt, self.name)
        if not os.path.isdir(path):
            assert judge.History(self.log).last_sync(mark) == 0, "the whole run is lost"
            return 0
        loose = {"idle": 0, "torn": True} if self.mount.plain else {}
        return judge.check_cut(path, self.log, mark, end_mark, **loose)[0]

    def store_on(self, loop):
        """The store of an image, not yet mounted."""
        return powercut.store_on(loop, self.mount)

    def judge_store(self, loop, mark, end_mark):
        """The store of an image: a prefix with every fsync that had returned; it goes on, and is whole."""
        mount = self.store_on(loop)
        with rig.discarded(mount):
            mount.mount()
            left = self.prefix(mount.mnt, mark, end_mark)
            self.go_on(mount, left)
            mount.umount_whole()
            return left

    def go_on(self, mount, left):
        rig.write_file(os.path.join(mount.mnt, "goes-on"), b"here")

    def end(self):
        """Makes room for the next round on the same disk."""
        self.disk.forget()
        self.mount.mount()
        shutil.rmtree(os.path.join(self.mount.mnt, self.name))
        self.mount.umount()


class Campaign:
    """Rounds on one disk after the other, on ext4 and on XFS."""

    ROUNDS_A_DISK = 3
    round = Round

    def __init__(self, new_disk, rng, logs, reports, plain):
        self.new_disk, self.rng, self.logs, self.reports, self.plain = new_disk, rng, logs, reports, plain
        self.kinds = ["ext4"] if plain else rng.sample(sorted(recorded_disk.FORMATS), 2)
        self.number, self.disk = 0, None

    def rounds(self, count, make_mount):
        """Yields `count` rounds, not yet run, on a store that is mounted. make_mount(disk): a mount, not yet mounted."""
        for number in range(count):
            if number % self.ROUNDS_A_DISK == 0:
                if self.disk:
                    self.disk.close()
                kind = self.kinds[number // self.ROUNDS_A_DISK % len(self.kinds)]
                self.disk = self.new_disk(kind=kind, extra="sync,dirsync,data=journal" if self.plain else "")
                mount = self.disk.hold(make_mount(self.disk))
            mount.mount()
            one = self.round(self.disk, mount, self.rng, self.logs, number, self.reports)
            yield one
            one.end()


class RemoteRound(Round):
    """The same with a remote that was copied at the same instant: another node that begins from it sees a prefix, too, and none that
    NVMe does not have; and the store goes on with it."""

    def settle(self):
        """The remote has the beginning of the run: whatever is lost from now on, that is not."""
        begun = int(self.mount.status()["nvme"]["newest_seq"])
        rig.poll(lambda: int(self.mount.status()["remote"]["horizon_seq"]) >= begun, 60, "the remote to advance")

    def judge_both(self, loop, remote, mark, end_mark):
        self.remote = remote
        self.in_remote = self.judge_remote(end_mark)
        assert self.in_remote > 0, "what was said to be in the remote is lost"
        on_nvme = self.judge_store(loop, mark, end_mark)
        assert self.in_remote <= on_nvme, f"the remote has {self.in_remote} operations, and NVMe {on_nvme}"
        return on_nvme

    def judge_remote(self, end_mark):
        """How long the prefix is that another node sees."""
        node = self.mount.fresh(self.remote)
        with rig.discarded(node):
            node.mount(ro=True)
            return self.prefix(node.mnt, 0, end_mark)

    def store_on(self, loop):
        return powercut.put_on(loop, self.mount.fresh(self.remote))

    def go_on(self, mount, left):
        """What NVMe had and the remote had not is published; another node sees all of it."""
        super().go_on(mount, left)
        mount.wait_remote()
        node = self.mount.fresh(self.remote)
        with rig.discarded(node):
            node.mount(ro=True)
            assert judge.snapshot(node.mnt) == judge.snapshot(mount.mnt), "another node sees something else than this one"


@pytest.fixture
def campaign(request, new_disk, rng, shm_directory, plain):
    return Campaign(new_disk, rng, shm_directory, request.config.getoption("--reports"), plain)


@pytest.fixture
def make_mount(request, mount_factory, directory):
    def make(disk):
        return mount_factory(rig.tempfile.mkdtemp(dir=directory), **OPTIONS, request=request)

    return make


@pytest.mark.timeout(240)
@pytest.mark.pieces(9)
def test_cuts_of_a_disk_that_loses_writes(campaign, make_mount, rng, full, piece):
    """P3, P4: 1,000 cuts (8 by default), with any part of what was not flushed: always a prefix with every returned fsync."""
    left = []
    for one in campaign.rounds(piece.share(25) if full else 1, make_mount):
        one.run(3)
        for at in one.disk.moments(rng, one.first, one.last, 10 if full else 2):
            left += [one.cut(at, how, one.judge_store) for how in HOWS]
    print(f"{len(left)} cuts")
    assert any(left), "no cut contained anything: the load did not reach the disk"


@pytest.mark.needs_mount
@pytest.mark.timeout(240)
@pytest.mark.pieces(6)
def test_cuts_with_the_remote_on_the_same_disk(campaign, on_remote, rng, full, piece):
    """P4, P5: 512 cuts (6 by default) of a store and its dir: remote, which lose power together: both are prefixes, the remote's no longer
    than that of NVMe, and they go on together."""
    campaign.round, left, in_remote = RemoteRound, [], []

    def make_mount(disk):
        return on_remote(remotes.DirRemote(os.path.join(disk.inner.mountpoint, "remotes")), **OPTIONS, **QUICK)

    def judge_one(loop, mark, end_mark):
        path = os.path.join(loop.mountpoint, os.path.relpath(one.mount.remote.path, one.disk.inner.mountpoint))
        return one.judge_both(loop, remotes.DirRemote(None, path), mark, end_mark)

    for one in campaign.rounds(piece.share(16) if full else 1, make_mount):
        one.run(3)
        for at in one.disk.moments(rng, one.first, one.last, 8 if full else 2):
            for how in HOWS if full else rng.sample(HOWS, 3):
                left.append(one.cut(at, how, judge_one))
                in_remote.append(one.in_remote)
    print(f"{len(left)} cuts; operations on NVMe {left}, in the remote {in_remote}")
    assert all(left)


@pytest.mark.needs_mount
@pytest.mark.timeout(240)
@pytest.mark.pieces(9)
def test_cuts_with_a_remote_that_keeps_all(campaign, on_remote, rng, full, piece):
    """P4, P5: 500 cuts (4 by default) of a store whose dir: remote, elsewhere, keeps its power: it never has what NVMe had not flushed."""
    campaign.round, left, in_remote = RemoteRound, [], []

    def make_mount(disk):
        return on_remote(**OPTIONS, **QUICK)

    for one in campaign.rounds(piece.share(25) if full else 1, make_mount):
        one.run(3, copies=5 if full else 2)
        for at, copy in one.copies:
            for how in HOWS if full else rng.sample(HOWS, 2):
                again = copy.copy()
                left.append(one.cut(at, how, lambda loop, mark, end_mark: one.judge_both(loop, again, mark, end_mark)))
                in_remote.append(one.in_remote)
                again.wipe()
            copy.wipe()
    print(f"{len(left)} cuts; operations on NVMe {left}, in the remote {in_remote}")
    assert all(left)


def test_small_fsyncs_one_after_the_other(new_disk, make_mount, directory, rng, full):
    """P3: many small packs, each named by a batch that shares its block with the one before; whenever an fsync has returned, its file is
    there."""
    disk = new_disk(kind=rng.choice(sorted(recorded_disk.FORMATS)))
    mount, kept = disk.hold(make_mount(disk)).mount(), []
    for number in range(60):
        with rig.opened(os.path.join(mount.mnt, f"f{number}"), os.O_WRONLY | os.O_CREAT) as fd:
            data = rig.seeded_bytes(rng.random(), rng.choice((20, 40, 90)) * rig.KIB)
            rig.write_all(fd, data)
            os.fsync(fd)
            kept.append((disk.count(), data))
    mount.lose_power()
    for number in sorted(rng.sample(range(60), 20 if full else 4)):
        for how in ("none", "torn"):
            path, what = disk.image(kept[number][0], how, rng)
            check_files(disk, mount, path, [data for _, data in kept[: number + 1]], f"{how}: {what}")


def check_files(disk, mount, path, contents, what):
    with disk.store_of_cut(mount, path) as copy:
        copy.mount()
        for number, data in enumerate(contents):
            assert rig.read_file(os.path.join(copy.mnt, f"f{number}")) == data, f"f{number}: {what}"
        copy.umount()
        assert copy.fsck().returncode == 0, what
