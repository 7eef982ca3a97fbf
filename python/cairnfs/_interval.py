# SPDX-License-Identifier: Apache-2.0
"""How often to save: after Young and Daly, from what steps and saves cost in this run.

A save that blocks the training for C seconds, every T seconds, costs C/T of the run. A failure loses T/2 on average: T/2M of the run, where
one comes every M seconds. The sum is least at T = sqrt(2 C M).
"""
from __future__ import annotations

import math
import os
import statistics
import time
from collections import deque
from typing import Any, Callable

import torch

from . import _mounts, _process
from ._ask import tell
from ._levels import LANE

FIRST = 5  # steps before the first save, which is the first measure of what one costs
TELL = 10.0  # seconds at least from one report to the mount to the next


class Interval:
    """When to save, in the loop of a training:

        interval = cairnfs.Interval(mtbf=24 * 3600)
        for step in range(steps):
            train(step)
            if interval.due(step):
                cairnfs.save(state, f"/mnt/ckpt/step{step}.pt")

    mtbf: mean seconds between failures of the job, of all its machines together. overhead: the largest share of the run that saves may
    take. least, most: seconds between saves, whatever comes out.

    The ranks of a torch.distributed job save at the same steps, as rank 0 counts; each has to call due() in the same steps. Not for
    several threads.
    """

    def __init__(
        self, mtbf: float, overhead: float = 0.02, *, least: float = 0.0, most: float = math.inf,
        clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        if not mtbf > 0 or not 0 < overhead < 1 or not 0 <= least <= most:
            raise ValueError("mtbf must be positive, overhead between 0 and 1, and least at most most")
        self.mtbf, self.overhead, self.least, self.most = mtbf, overhead, least, most
        self._clock = clock
        self._steps, self._costs = deque(maxlen=50), deque(maxlen=5)
        self._before: float | None = None  # when due() was called last
        self._first: int | None = None
        self._next: int | None = None  # the step at which to save; None: to be agreed on now
        self._saved = False  # due() said so last
        self._told = -math.inf  # when the mount was told last, by time.monotonic()

    def due(self, step: int) -> bool:
        """Is the state to be saved now, after this step? What comes until the next call counts as the cost of the save, less a step. In
        the step after a save, the ranks agree on the next one (a broadcast). Steps that are left out count as done at once."""
        now = self._clock()
        if self._before is not None:
            took = now - self._before
            if self._saved:
                self._costs.append(max(took - self.step_seconds, 0.0))
            else:
                self._steps.append(took)
        self._before = now
        if self._first is None:
            self._first, self._next = step, step + FIRST
        elif self._saved:
            self._next = step - 1 + agreed(self.steps)
        self._saved = step >= self._next
        self._tell()
        return self._saved

    def _tell(self):
        """The mount that the newest save of this process went to, for `cairn advise`; without waiting for it."""
        if self._steps and _process.current().saved and time.monotonic() >= self._told + TELL:
            self._told = time.monotonic()
            step, cost = round(self.step_seconds * 1e9), round(self.cost_seconds * 1e9)
            tell(lambda: report_steps(newest_save(), step, cost), (LANE, "steps"))

    @property
    def step_seconds(self) -> float:
        """Of the steps of late, the median."""
        return statistics.median(self._steps) if self._steps else 0.0

    @property
    def cost_seconds(self) -> float:
        """For which a save blocks the training: of the saves of late, the median."""
        return statistics.median(self._costs) if self._costs else 0.0

    @property
    def seconds(self) -> float:
        """From one save to the next."""
        best = max(math.sqrt(2 * self.cost_seconds * self.mtbf), self.cost_seconds / self.overhead)
        return min(max(best, self.least), self.most)

    @property
    def steps(self) -> int:
        """The same in steps, at least 1."""
        return max(1, round(self.seconds / self.step_seconds)) if self.step_seconds else FIRST

    def report(self) -> dict[str, Any]:
        """What it goes by: seconds, and what a failure loses on average at this interval."""
        return {"step_s": self.step_seconds, "cost_s": self.cost_seconds, "interval_s": self.seconds, "interval_steps": self.steps,
                "lost_per_failure_s": self.seconds / 2, "overhead": self.cost_seconds / self.seconds if self.seconds else 0.0}  # fmt: skip


def newest_save():
    """The path of the last file that got its name."""
    with _process.lock():
        return next(reversed(_process.current().saved))


def report_steps(path, step, cost):
    """In nanoseconds. Raises what the filesystem does: an older daemon refuses it, and another filesystem would keep an attribute."""
    directory = os.path.dirname(path)
    if not _mounts.has(os.stat(directory).st_dev):
        return
    text = b"2 step_ns=%d cost_ns=%d" % (step, cost)
    try:
        os.setxattr(directory, LANE, text)
    except PermissionError:  # of a directory with the sticky bit, only its owner may: then the file is told
        os.setxattr(path, LANE, text, follow_symlinks=False)


def agreed(steps):
    """As rank 0 says."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return steps
    said = [steps]
    distributed.broadcast_object_list(said, src=0)
    return said[0]
