# SPDX-License-Identifier: Apache-2.0
"""P7 for the remote: slower than the trainer by far, keep-last-2: it always has a complete checkpoint, not an old one."""
import contextlib
import os

import pytest

import rig

SIZE = 8 * rig.MIB
INTERVAL = 0.5  # a checkpoint of 8 MiB each 0.5 s: 16 MiB/s
LIMIT = SIZE * 2 // 5  # bytes a second: a fifth of that
KEEP = 2
UPLOAD_TIME = SIZE / LIMIT
SLACK = 1.5
# Every state of the history holds KEEP checkpoints, and at this rate none of them is there from the cut before, so that a
# cut takes KEEP upload times. Just before a cut is published, the newest one there was chosen two cuts ago, of what was on
# NVMe then, which is behind the trainer itself. A state from between a save and the removal of the oldest holds one more.
TWO_CUTS = (2 * KEEP + 1) * UPLOAD_TIME


class Saver:
    """Saves at a fixed rate, keeps the last two; records how old the newest complete checkpoint in the remote is."""

    def __init__(self, mount, seed):
        self.mount, self.seed = mount, seed
        self.complete, self.ages, self.nvme_ages, self.horizons = [], [], [], []

    def data(self, number):
        return rig.seeded_bytes(f"{self.seed} {number}", SIZE)

    def path(self, number, root=None):
        return os.path.join(root or self.mount.mnt, f"step-{number}")

    def save(self, number):
        os.mkdir(self.path(number))
        rig.write_file(os.path.join(self.path(number), "checkpoint"), self.data(number))
        rig.write_file(os.path.join(self.mount.mnt, "latest"), str(number).encode())
        self.complete.append((rig.time.monotonic(), int(self.mount.status()["nvme"]["newest_seq"])))
        if number >= KEEP:
            rig.shutil.rmtree(self.path(number - KEEP))

    def measure(self):
        status, now = self.mount.status(), rig.time.monotonic()
        self.horizons.append(int(status["remote"]["horizon_seq"]))
        self.ages.append(self.age(self.horizons[-1], now))
        self.nvme_ages.append(self.age(int(status["nvme"]["horizon_seq"]), now))

    def age(self, horizon, now):
        """Of the newest complete checkpoint up to there."""
        return now - max((time for time, sequence in self.complete if sequence <= horizon), default=self.begin)

    def run(self, count, at=()):
        """Save `count` times; returns copies of the remote at some of these moments."""
        self.begin, copies = rig.time.monotonic(), []
        for number in range(count):
            self.save(number)
            if number in at:
                copies.append((rig.time.monotonic(), self.mount.remote.copy()))
            while rig.time.monotonic() < self.begin + (number + 1) * INTERVAL:
                self.measure()
                rig.time.sleep(0.05)
        return copies


def age_in(saver, time, copy):
    """Mounted elsewhere: the checkpoint that `latest` names is whole; how old it was."""
    fresh = saver.mount.fresh(copy).mount(ro=True)
    with contextlib.closing(fresh):
        number = int(rig.read_file(os.path.join(fresh.mnt, "latest")))
        assert rig.read_file(os.path.join(saver.path(number, fresh.mnt), "checkpoint")) == saver.data(number)
        return time - saver.complete[number][0]


@pytest.mark.paced
@pytest.mark.needs_mount
@pytest.mark.timeout(180)
def test_remote_lag(on_remote, remote, rng, report, full, sanitized):
    """P7: the newest complete checkpoint in the remote advances, and is never older than two cuts."""
    if remote.kind == "dir" and not full:
        pytest.skip("skipped: only with --full")
    mount = on_remote(remote, stage="256M", upload_limit=LIMIT, gc_grace="1s").mount()
    saver = Saver(mount, rng.random())
    count = 240 if full else 40
    copies = saver.run(count, at=(count // 2, count * 3 // 4, count - 2))
    mount.kill9()
    advances = len(set(saver.horizons)) - 1
    figures = {
        "upload_time_s": UPLOAD_TIME,
        "largest_age_s": max(saver.ages),
        "largest_age_in_upload_times": max(saver.ages) / UPLOAD_TIME,
        "largest_age_on_nvme_s": max(saver.nvme_ages),
        "median_age_s": sorted(saver.ages)[len(saver.ages) // 2],
        "advances": advances,
        "seconds": count * INTERVAL,
        "ages_in_copies_s": [age_in(saver, *copy) for copy in copies],
    }
    report(f"remote-lag-{remote.kind}", figures)
    if not sanitized:
        bound = TWO_CUTS + figures["largest_age_on_nvme_s"] + SLACK
        assert figures["largest_age_s"] <= bound and max(figures["ages_in_copies_s"]) <= bound
        assert advances >= count * INTERVAL / (KEEP * UPLOAD_TIME) / 2
