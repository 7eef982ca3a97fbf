# SPDX-License-Identifier: Apache-2.0
"""P7: NVMe slower than the trainer, keep-last-2: NVMe always has a complete checkpoint, and not an old one."""
import os

import pytest

import rig

pytestmark = [pytest.mark.paced, pytest.mark.timeout(180)]

SIZE = 24 * rig.MIB
INTERVAL = 0.75  # a checkpoint of 24 MiB each 0.75 s: 32 MiB/s
LIMIT = 16 * rig.MIB  # half of it: one checkpoint takes 1.5 s
KEEP = 2
WRITE_TIME = SIZE / LIMIT
# Every state of the history holds KEEP checkpoints, and at twice the rate of writeback none of them is there from the cut
# before: a cut takes KEEP write times. What is there was chosen one cut ago at most and is replaced one cut later.
BOUND = 2 * KEEP * WRITE_TIME + INTERVAL + 0.75


class Saver:
    """Saves checkpoints at a fixed rate; knows when each was complete and which sequence number it had."""

    def __init__(self, cairn, seed):
        self.cairn, self.seed = cairn, seed
        self.complete = []  # (time, sequence)
        self.ages = []
        self.begin = rig.time.monotonic()

    def data(self, number):
        return rig.seeded_bytes(self.seed + number, SIZE)

    def save(self, number, data):
        directory = rig.mkdir(os.path.join(self.cairn.mnt, f"step-{number}"))
        rig.write_file(os.path.join(directory, "checkpoint"), data)
        rig.write_file(os.path.join(self.cairn.mnt, "latest"), str(number).encode())
        self.complete.append((rig.time.monotonic(), self.sequence("newest_seq")))
        if number >= KEEP:
            rig.shutil.rmtree(os.path.join(self.cairn.mnt, f"step-{number - KEEP}"))

    def sequence(self, name):
        return self.cairn.status().get("nvme", {}).get(name, len(self.complete))

    def there(self):
        """When the complete checkpoints that NVMe has were complete, oldest first."""
        horizon = self.sequence("horizon_seq")
        return [time for time, sequence in self.complete if sequence <= horizon]

    def measure(self):
        """Record the age of the newest complete checkpoint that NVMe has."""
        there, now = self.there(), rig.time.monotonic()
        if there:
            self.ages.append(now - max(there))
        elif self.complete:
            self.ages.append(now - self.begin)

    def run(self, count, at_each=lambda: None):
        self.begin = rig.time.monotonic()
        for number in range(count):
            data = self.data(number)
            due = self.begin + number * INTERVAL
            while rig.time.monotonic() < due:
                self.measure()
                rig.time.sleep(0.03)
            self.save(number, data)
            self.measure()
            at_each()


def judge(saver, report, name):
    figures = {
        "write_time_s": WRITE_TIME,
        "interval_s": INTERVAL,
        "largest_age_s": max(saver.ages),
        "median_age_s": sorted(saver.ages)[len(saver.ages) // 2],
        "largest_age_in_write_times": max(saver.ages) / WRITE_TIME,
        "samples": len(saver.ages),
    }
    report(name, figures)
    return figures


def test_lag(cairn, rng, report, full, sanitized):
    """P7: the newest complete checkpoint on NVMe is at most two cuts old (plus the interval between saves)."""
    cairn.mount(stage="256M", writeback_limit=LIMIT)
    saver = Saver(cairn, rng.randrange(1 << 30))
    saver.run(60 if full else 16)
    figures = judge(saver, report, "lag")
    if not sanitized and not cairn.plain:
        assert figures["largest_age_s"] <= BOUND


@pytest.mark.needs_mount
def test_lag_on_power_cut(request, mount_factory, power, directory, rng, full, report, sanitized):
    """P4, P7: the same, seen by cutting the power: every cut has a whole checkpoint, named by `latest`, and no older one than the daemon
    said before the cut; as test_lag's, its age is bounded, but where the machine stands still for a moment."""
    if sanitized:
        pytest.skip("skipped: measures time, which the sanitizers stretch")
    cairn = power.hold(mount_factory(directory, nvme="2G", stage="128M", request=request)).mount(writeback_limit=LIMIT)
    saver, cuts = Saver(cairn, rng.randrange(1 << 30)), []
    saver.run(40 if full else 14, lambda: cuts.append((len(saver.there()), rig.time.monotonic(), power.cut())))
    cairn.lose_power()
    ages = [age_in_cut(cairn, power, saver, *cut) for cut in rng.sample(cuts[9:], 10 if full else 2)]
    report("lag-power-cut", {"ages_s": ages, "write_time_s": WRITE_TIME})
    assert sorted(ages)[(len(ages) - 1) // 2] <= BOUND


def age_in_cut(cairn, power, saver, told, time, clone):
    """How old the newest complete checkpoint in a cut is. `told`: how many were said to be there before."""
    with power.store_of_cut(cairn, clone) as mount:
        mount.mount()
        number = int(rig.read_file(os.path.join(mount.mnt, "latest")))
        assert number >= told - 1
        assert rig.read_file(os.path.join(mount.mnt, f"step-{number}", "checkpoint")) == saver.data(number)
        mount.umount_whole()
        return time - saver.complete[number][0]
