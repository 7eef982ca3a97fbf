# SPDX-License-Identifier: Apache-2.0
"""The model test (P2, P4, P6, P10): random operations of several processes against a model in memory, with remounts,
deaths of the daemon and power cuts between. tests/model/model_run.py says how to run a failure again."""
import os
import tempfile

import pytest

import model_run
import model_worker
import rig

SEEDS = 4
SHRINKING = 60.0  # seconds, of a failure


@pytest.fixture
def campaign(request, mount_factory, directory, seed, full):
    """campaign(number, seconds, make_disk=None): one seed, or with --full several, one after the other, each on a store of its
    own, and on a disk of its own."""

    def make_mount():
        return mount_factory(tempfile.mkdtemp(dir=directory), request=request)

    def one(this, seconds, make_disk):
        try:
            with model_run.place(make_mount, make_disk) as (mount, disk):
                operations, cuts = model_run.explore(mount, this, seconds, disk=disk)
            print(f"seed {this}: {operations} operations, {cuts} cuts")
        except model_run.Failure as failure:
            path = os.path.join(request.config.getoption("--reports"), f"model-{this}.ops")
            pytest.fail(model_run.report(failure, make_mount, path, this, SHRINKING, make_disk), pytrace=False)

    def explore(number, seconds, make_disk=None):
        for again in range(10 if full else 1):
            one(seed * 1000 + number * 100 + again, seconds, make_disk)

    return explore


def loses_power():
    """Disks that do, for the stores, if this machine has any."""
    rig.need_root("/dev/loop-control")
    return model_run.new_disk


@pytest.mark.timeout(150)
@pytest.mark.parametrize("number", range(SEEDS))
def test_random_operations(campaign, number):
    """Every answer, and what is left after every event, is what the model says."""
    campaign(number, 8.0)


@pytest.mark.needs_mount
@pytest.mark.timeout(150)
def test_on_a_disk_that_loses_power(campaign, full):
    """The same with cuts of the disk itself: what the daemon has not flushed is gone, too."""
    campaign(9, 30.0 if full else 6.0, loses_power())


KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kept")


@pytest.mark.needs_mount
@pytest.mark.parametrize("name", sorted(os.listdir(KEPT)))
def test_kept_operations(directory, mount_factory, request, name):
    """What once failed, shrunk."""
    mount = mount_factory(directory, request=request)
    operations = model_run.load(os.path.join(KEPT, name))
    try:
        model_run.replay(mount, operations)
    except model_run.Failure as failure:
        pytest.fail(f"{failure.why}\nagain: tests/model/model_run.py --build BUILD --ops tests/model/kept/{name}", pytrace=False)


# ---------------------------------------------------------------- the test itself

class TailStays(model_worker.Worker):
    """A file that grows shows what it had there before."""

    def ftruncate(self, slot, size):
        before = os.fstat(self.fds[slot]).st_size
        super().ftruncate(slot, size)
        if before < size:
            os.pwrite(self.fds[slot], b"x", size - 1)


class HoleIsLost(model_worker.Worker):
    def fallocate(self, slot, mode, offset, length):
        super().fallocate(slot, 0 if mode & 2 else mode, offset, 0 if mode & 2 else length)


class StaleSize(model_worker.Worker):
    """Renamed over another file, it has the other's size."""

    def rename(self, proc, old, new, flags):
        size = os.path.getsize(self.path(new)) if os.path.isfile(self.path(new)) else None
        super().rename(proc, old, new, flags)
        if size is not None and os.path.isfile(self.path(new)):
            os.truncate(self.path(new), size)


class LostXattr(model_worker.Worker):
    def link(self, proc, old, new):
        super().link(proc, old, new)
        for name in os.listxattr(self.path(new)):
            os.removexattr(self.path(new), name)


PLANTED = [TailStays, HoleIsLost, StaleSize, LostXattr]


@pytest.mark.parametrize("fault", PLANTED, ids=[fault.__name__ for fault in PLANTED])
def test_planted_faults_are_found(directory, fault):
    """The model finds what is wrong on a plain directory."""
    with pytest.raises(model_run.Failure):
        model_run.explore(rig.Plain(tempfile.mkdtemp(dir=directory)), 1, 30.0, worker=fault)


def test_shrinking(rng):
    """What has nothing to do with a failure is left out."""
    needed = [["mkdir", 0], ["write", 1], ["cut"]]
    noise = [["stat", number] for number in range(100)]
    operations = sorted(needed + noise, key=lambda op: rng.random() if op in noise else 0.3 + 0.1 * needed.index(op))

    def attempt(tried):
        there = [op for op in tried if op in needed]
        return model_run.Failure(tried, "again") if there == needed else None

    found = model_run.Shrinker(attempt, 10.0).shrink(model_run.Failure([["mount", {}], *operations], "first"))
    assert found.operations == [["mount", {}], *needed]


class ForgetsToSync(model_worker.Worker):
    """What does not show until the power goes."""

    def fsync(self, slot):
        pass


@pytest.mark.needs_mount
@pytest.mark.timeout(200)
def test_failure_on_a_disk_that_loses_power_is_shrunk(directory, mount_factory):
    """Each try has a disk of its own, too, and the operations that are left fail on one again."""
    new_disk, disks = loses_power(), []

    def make_disk():
        disks.append(new_disk())
        return disks[-1]

    def make_mount():
        return mount_factory(tempfile.mkdtemp(dir=directory))

    needed = [["open", 0, "a", os.O_CREAT | os.O_RDWR, 0o644], ["fsync", 0], ["cut"]]
    noise = [["write", 0, 1, 5000], ["stat", 0, "a"]]
    options = {"stage": "64M", "nvme": "1G", "noatime": True, "writeback_delay": "20s"}
    attempt = model_run.attempt_on(make_mount, make_disk, worker=ForgetsToSync)
    failure = attempt([["mount", options], needed[0], *noise, *needed[1:]])
    assert failure, "what was not synced was there"
    found = model_run.Shrinker(attempt, 100.0).shrink(failure)
    assert found.operations == [["mount", options], *needed], found.why
    assert len(disks) > 3
