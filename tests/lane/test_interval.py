# SPDX-License-Identifier: Apache-2.0
"""cairnfs.Interval: how often it has a training save, against runs that are simulated."""
import json
import math
import os
import random
import subprocess
import sys
import threading

import pytest
import torch

import rig
from conftest import environment
from processes import free_port

STEP_S, COST_S = 0.25, 0.8


class Run:
    """A training by a clock of its own."""

    def __init__(self, lane, **how):
        self.now, self.saves = 1000.0, []
        self.interval = lane.Interval(clock=lambda: self.now, **how)

    def train(self, steps, cost=COST_S, first=0, noise=None):
        for step in range(first, first + steps):
            self.now += STEP_S * (1 + (noise.random() / 5 if noise else 0))
            if self.interval.due(step):
                self.saves.append(step)
                self.now += cost
        return self


def waste(seconds, mtbf, cost=COST_S):
    return cost / seconds + seconds / 2 / mtbf


@pytest.mark.parametrize("mtbf", [600, 24 * 3600, 14 * 24 * 3600])
def test_the_interval_wastes_least(lane, mtbf):
    run = Run(lane, mtbf=mtbf, overhead=0.5).train(4000, noise=random.Random(5))
    best = min(waste(seconds, mtbf) for seconds in range(1, 20000))
    assert waste(run.interval.seconds, mtbf) <= 1.02 * best
    gaps = [later - earlier for earlier, later in zip(run.saves[1:], run.saves[2:])]
    assert gaps == [] or max(gaps) - min(gaps) <= 0.1 * max(gaps) + 1
    assert run.saves[0] == 5


def test_a_simulated_job_loses_least(lane):
    """Failures at random times: what is saved is kept. Beside jobs that save a third and three times as often."""
    rng, mtbf = random.Random(7), 900.0
    lives = [rng.expovariate(1 / mtbf) for _ in range(4000)]
    interval = Run(lane, mtbf=mtbf, overhead=0.5).train(2000).interval

    def lost(seconds):
        return sum(life - life // (seconds + COST_S) * seconds for life in lives)
    assert lost(interval.seconds) < min(lost(interval.seconds / 3), lost(interval.seconds * 3))


def test_it_adapts(lane):
    """What saves and steps cost changes: the next ones count."""
    run = Run(lane, mtbf=3600, overhead=0.5).train(3000)
    before = run.interval.seconds
    assert run.interval.cost_seconds == pytest.approx(COST_S, abs=0.01) and run.interval.step_seconds == pytest.approx(STEP_S)
    run.train(6000, cost=4 * COST_S, first=3000)
    assert run.interval.seconds == pytest.approx(2 * before, rel=0.05)


def test_bounds(lane):
    assert Run(lane, mtbf=60, overhead=0.02).train(3000).interval.seconds == pytest.approx(COST_S / 0.02, rel=0.02)
    assert Run(lane, mtbf=10**9, most=50).train(3000).interval.seconds == 50
    assert Run(lane, mtbf=1, overhead=0.9, least=20).train(3000).interval.seconds == 20
    free = Run(lane, mtbf=3600).train(300, cost=0)  # a save that costs nothing is made after each step
    assert free.interval.steps == 1 and free.saves == list(range(5, 300))
    report = Run(lane, mtbf=3600).train(500).interval.report()
    assert report["lost_per_failure_s"] == report["interval_s"] / 2 and report["overhead"] <= 0.02 + 1e-9
    for wrong in ({"mtbf": 0}, {"mtbf": math.nan}, {"mtbf": 1, "overhead": 1}, {"mtbf": 1, "least": 2, "most": 1}):
        with pytest.raises(ValueError, match="must be positive"):
            lane.Interval(**wrong)


def save(lane, path):
    lane.save({"weight": torch.ones(4)}, path).result()


def said_of_steps(mount):
    """What the daemon knows of this process: of a step, and what a save adds."""
    found = {client["pid"]: client for client in mount.status()["lanes"]["clients"]}
    mine = found.get(os.getpid(), {"step_seconds": 0, "save_cost_seconds": 0})
    return mine["step_seconds"], mine["save_cost_seconds"]


@pytest.mark.needs_mount
def test_a_mount_hears_of_the_steps(lane, cairn):
    """The one that the newest save went to: `cairn advise` says intervals in steps."""
    cairn.mount()
    path = os.path.join(cairn.mnt, "step5.pt")
    run = Run(lane, mtbf=3600).train(200)
    save(lane, path)
    assert said_of_steps(cairn) == (0, 0)  # nothing was saved anywhere while it ran
    run.train(2, first=200)
    rig.poll(lambda: said_of_steps(cairn) == (pytest.approx(STEP_S), pytest.approx(COST_S)), 30, "the report")
    told = json.loads(cairn.verb("advise", cairn.mnt, "--mtbf", "1h", "--json").stdout)
    assert (told["step_s"], told["blocked_s"]) == (pytest.approx(STEP_S), pytest.approx(COST_S))
    assert told["interval_best_steps"] == pytest.approx(told["interval_best_s"] / STEP_S, abs=1)
    assert os.listxattr(cairn.mnt) == os.listxattr(path) == []


@pytest.mark.needs_mount
def test_a_mount_that_stands_still_holds_up_no_step(lane, stall):
    save(lane, os.path.join(stall.mount.mnt, "step5.pt"))
    run = Run(lane, mtbf=3600)
    stall.stop()
    trains = threading.Thread(target=run.train, args=(200,), daemon=True)
    trains.start()
    trains.join(60)
    stands_still = trains.is_alive()
    stall.go()
    assert not stands_still and run.saves
    rig.poll(lambda: said_of_steps(stall.mount)[0] == pytest.approx(STEP_S), 30, "the report")


def test_another_filesystem_keeps_no_attribute(lane, directory):
    from cairnfs import _ask, _levels

    path = os.path.join(directory, "step5.pt")
    save(lane, path)
    Run(lane, mtbf=3600).train(20)
    _ask.ask(path, lambda: None, key=(_levels.LANE, "steps"))  # until the report has ended
    assert os.listxattr(directory) == os.listxattr(path) == []


RANK = """
import json, os, sys
import torch.distributed as dist
import cairnfs
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
now, saves = 0.0, []
interval = cairnfs.Interval(mtbf=900, overhead=0.5, clock=lambda: now)
for step in range(2000):
    now += 0.25 + 0.1 * rank
    if interval.due(step):
        saves.append(step)
        now += 0.8 + rank
print(json.dumps(saves))
dist.destroy_process_group()
"""


def test_ranks_save_at_the_same_steps(request):
    """Though each measures other times."""
    port, own = str(free_port()), environment(request.config)
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", RANK], stdout=subprocess.PIPE, text=True,
                              env={**own, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
             for rank in range(2)]
    said = [json.loads(rank.communicate(timeout=240)[0]) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert said[0] == said[1] and len(said[0]) > 10
