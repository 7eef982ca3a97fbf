# SPDX-License-Identifier: Apache-2.0
"""Power loss (P3, P4): what is left is a prefix of the history that contains every returned fsync."""
import os

import pytest

import history
import judge
import rig

CUTS_A_RUN = 5


class Cuts:
    """One run of the writers with several cuts, then the recovery of each cut."""

    loose = {}  # what check_cut() has to allow

    def __init__(self, power, cairn, rng, directory, logs):
        self.power, self.cairn, self.rng, self.logs = power, cairn, rng, logs
        self.clones = []

    def run(self, number, count):
        """Cut the power `count` times at random moments while everything runs."""
        log = os.path.join(self.logs, f"log-{number}")
        path = os.path.join(self.cairn.mnt, f"run-{number}")
        with history.writing(path, log, self.rng.randrange(1 << 30), pause=0.05, shard=1 << 20) as writers:
            for _ in range(count):
                rig.time.sleep(self.rng.uniform(0.05, 1.2))
                mark = writers.mark()
                clone = self.power.cut()
                self.clones.append((clone, mark, writers.mark()))
            self.cairn.kill9()
        return log

    def prepare(self, mount):
        """What else happened to the store of a cut."""

    def judge(self, number, log):
        """Mount each clone with an empty stage; returns (operations in the cut, operations called)."""
        self.cairn.drop_stage()
        return [self.judge_one(number, log, *clone) for clone in self.clones]

    def judge_one(self, number, log, clone, mark, end_mark):
        with self.power.store_of_cut(self.cairn, clone) as mount:
            self.prepare(mount)
            mount.mount()
            path = os.path.join(mount.mnt, f"run-{number}")
            assert os.path.isdir(path) or judge.History(log).last_sync(mark) == 0, "the whole run is lost"
            result = (0, 0)
            if os.path.isdir(path):
                loose = {"idle": 0, "torn": True} if mount.plain else self.loose
                result = judge.check_cut(path, log, mark, end_mark, **loose)
            mount.umount_whole()
            print(f"cut at {mark}..{end_mark}: {result[0]} of {result[1]} operations")
            return result


@pytest.fixture
def cairn_on_image(request, power, mount_factory, directory):
    return power.hold(mount_factory(directory, nvme="2G", request=request))


@pytest.mark.timeout(180)
def test_power_cuts(power, cairn_on_image, rng, directory, shm_directory, full):
    """P3, P4: 50 cuts (5 by default) at random moments under load: always a prefix with every returned fsync."""
    cairn, done = cairn_on_image, 0
    for number in range(10 if full else 1):
        cairn.mount()
        cuts = Cuts(power, cairn, rng, directory, shm_directory)
        log = cuts.run(number, CUTS_A_RUN)
        results = cuts.judge(number, log)
        assert any(taken for taken, _ in results), "no cut contained anything: the load did not reach the disk"
        done += len(results)
        restart(cairn, number)
    print(f"{done} cuts")


def restart(cairn, number):
    """The store itself lost its stage, too: mount it, make room for the next run."""
    cairn.mount()
    rig.shutil.rmtree(os.path.join(cairn.mnt, f"run-{number}"), ignore_errors=True)
    cairn.umount()


def test_fsync_then_cut(power, cairn_on_image, rng):
    """P3: a file and a directory's names are on NVMe when the call returns. (syncfs never reaches a FUSE daemon.)"""
    cairn = cairn_on_image.mount()
    one, two, three = (rig.seeded_bytes(rng.random(), size) for size in (100, 5 * rig.MIB, 70_000))
    with rig.opened(os.path.join(cairn.mnt, "small"), os.O_RDWR | os.O_CREAT, 0o600) as fd:
        rig.write_all(fd, one)
        os.fsync(fd)
        first = power.cut()
    os.mkdir(os.path.join(cairn.mnt, "directory"))
    rig.write_file(os.path.join(cairn.mnt, "directory", "large"), two)
    rig.sync(os.path.join(cairn.mnt, "directory"))
    second = power.cut()
    rig.write_file(os.path.join(cairn.mnt, "third"), three)
    rig.sync(cairn.mnt)
    third = power.cut()
    cairn.lose_power()
    expect(power, cairn, first, {"small": one})
    expect(power, cairn, second, {"small": one, "directory/large": two})
    expect(power, cairn, third, {"small": one, "directory/large": two, "third": three})


def expect(power, cairn, clone, files):
    with power.store_of_cut(cairn, clone) as mount:
        mount.mount()
        rig.check_files(mount.mnt, files)
        mount.umount_whole()


def test_short_lived_files_cost_nothing(cairn, rng, plain):
    """P7: what is deleted before a cut needs it is dropped unwritten."""
    if plain:
        pytest.skip("skipped: needs the mount")
    cairn.mount(writeback_delay="1h")
    before = cairn.status()["nvme"]["written_bytes_total"]
    for number in range(10):
        path = rig.write_file(os.path.join(cairn.mnt, "scratch"), rig.seeded_bytes(rng.random(), 8 * rig.MIB))
        os.unlink(path)
    cairn.wait()
    assert cairn.status()["nvme"]["written_bytes_total"] - before < rig.MIB


class CutsWithSnapshots(Cuts):
    """Each snapshot that the cut has is some whole state of the run, and none is half there."""

    seen = 0

    def judge_one(self, number, log, clone, mark, end_mark):
        self.run_directory, self.log, self.end_mark = f"run-{number}", log, end_mark
        return super().judge_one(number, log, clone, mark, end_mark)

    def prepare(self, mount):
        mount.mount(keep=None)  # takes none, and gives none up
        place, made = os.path.join(mount.mnt, ".history"), os.path.join(mount.store, "snapshots")
        for name in sorted(os.listdir(made) if os.path.exists(made) else [])[-3:]:
            path = os.path.join(place, name, self.run_directory)
            if os.path.isdir(path):
                judge.check_cut(path, self.log, 0, self.end_mark, **self.loose)
                self.seen += 1
        assert not any("damaged" in line and "snapshot" in line for line in mount.log().splitlines())
        mount.umount_whole()


@pytest.mark.needs_mount
@pytest.mark.timeout(240)
def test_cuts_while_snapshots_are_taken(power, cairn_on_image, rng, directory, shm_directory, full):
    """They are taken as often as can be, and thinned: so the cuts fall into both."""
    cairn, seen = cairn_on_image, 0
    cairn.options.update(keep="last:3", history_every="100ms", writeback_delay="50ms")
    for number in range(10 if full else 1):
        cairn.mount()
        cuts = CutsWithSnapshots(power, cairn, rng, directory, shm_directory)
        log = cuts.run(number, CUTS_A_RUN)
        cuts.judge(number, log)
        seen += cuts.seen
        restart(cairn, number)
    assert seen
