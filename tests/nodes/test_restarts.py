# SPDX-License-Identifier: Apache-2.0
"""A sharded training (FSDP2) with a rank on each of two nodes, which saves in the background and removes old steps.

In the middle one node's daemon is killed, the other's is paused, and the ranks die while they save and are started again, as a
scheduler does it. The losses are those of a training that met none of it."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import rig
import successor
from processes import free_port

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(400)]
NODES, STEPS, EVERY = 2, 24, 2
PROGRAM = os.path.join(os.path.dirname(__file__), "train_sharded.py")
START_S, END_S = 120, 240


def lines(report):
    with contextlib.suppress(FileNotFoundError), open(report, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]
    return []


def losses(report):
    """By rank and step; a step that was trained again gave the same."""
    found = {}
    for line in lines(report):
        if "loss" in line:
            assert found.setdefault((line["rank"], line["step"]), line["loss"]) == line["loss"], line
    return found


@contextlib.contextmanager
def ranks(directories, report):
    port = str(free_port())
    started = [subprocess.Popen([sys.executable, PROGRAM, report, str(STEPS), str(EVERY)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, env={**os.environ, "CHECKPOINTS": directory, "RANK": str(rank), "WORLD_SIZE": str(NODES),
                                                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"})
               for rank, directory in enumerate(directories)]
    try:
        yield started
    finally:
        for rank in started:
            rank.kill()
            rank.communicate()


def end(started):
    outputs = [rank.communicate(timeout=END_S)[0] for rank in started]
    assert [rank.returncode for rank in started] == [0] * NODES, outputs


def train_until(report, step):
    def trained():
        return {line["rank"] for line in lines(report) if line.get("step", 0) >= step} == set(range(NODES))

    rig.poll(trained, START_S, f"step {step}")


def test_losses_are_those_of_an_undisturbed_run(on_remote, remote, directory):
    plain, report = (os.path.join(directory, name) for name in ("plain.jsonl", "report.jsonl"))
    with ranks([directory] * NODES, plain) as started:
        end(started)
    expected = losses(plain)
    assert len(expected) == NODES * STEPS
    nodes = [on_remote(remote, kind=successor.KeptRemote, nodes=True, writeback_delay="50ms", lease="60s", successor="on").mount()
             for _ in range(NODES)]
    mounts = [node.mnt for node in nodes]
    with ranks(mounts, report) as started:
        train_until(report, 1)
        nodes[0].kill_daemon()  # its successor goes on
        paused = nodes[1].daemon()
        os.kill(paused, signal.SIGSTOP)
        time.sleep(2)  # longer than the second after which a daemon notices that it stood still
        os.kill(paused, signal.SIGCONT)
        train_until(report, 3 * EVERY)
    with ranks(mounts, report) as started:
        end(started)
    assert losses(report) == expected
    began = [line["began"] for line in lines(report) if "began" in line]
    assert began[:NODES] == [0] * NODES and began[NODES:] == [began[-1]] * NODES and EVERY <= began[-1] < STEPS, began
    kept = sorted(f"step{step}" for step in (STEPS - EVERY, STEPS))
    for node in nodes:
        rig.poll(lambda node=node: sorted(os.listdir(node.mnt)) == kept, 60, f"the last two steps on {node.mnt}")
        assert node.status()["mount"]["successor"]["deaths"] == (node is nodes[0])
        node.umount_whole()
