# SPDX-License-Identifier: Apache-2.0
"""Jobs on the mounts of several nodes: torch.distributed.checkpoint, and what DLRover does."""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

import rig
import trainer
from processes import free_port
from test_union_mounts import TAKEN_S, at

STEPS, NODES, RANKS = 4, 4, 8
ROWS = 1200  # divided by 8, 3 and 1

COMMON = f"""
import os, shutil, sys, time
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
directory, rank, ranks = sys.argv[1], dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (ranks,))

def state(step):
    whole = torch.arange({ROWS} * 50, dtype=torch.float32).reshape({ROWS}, 50) * step
    return {{"weights": distribute_tensor(whole, mesh, [Shard(0)]), "step": step}}
"""

SAVE = COMMON + f"""
for step in range(1, {STEPS} + 1):
    dcp.save(state(step), checkpoint_id=f"{{directory}}/step{{step}}")
    old = f"{{directory}}/step{{step - 1}}"
    if rank == 0 and step > 1:
        while len(os.listdir(old)) < ranks + 1: # the other ranks' parts show a few seconds after they were saved
            time.sleep(0.1)
        shutil.rmtree(old)
    dist.barrier()
dist.destroy_process_group()
"""

LOAD = COMMON + """
found = state(0)
dcp.load(found, checkpoint_id=f"{directory}/step" + sys.argv[2])
wanted = state(int(sys.argv[2]))
assert torch.equal(found["weights"].to_local(), wanted["weights"].to_local()), rank
assert found["step"] == wanted["step"]
dist.destroy_process_group()
"""


def start(program, places, *args, **environment):
    """A process for each rank, with its own directory."""
    meet = {"WORLD_SIZE": str(len(places)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    return [subprocess.Popen([sys.executable, "-c", program, place, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, **meet, **environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank, place in enumerate(places)]


def end(jobs, codes=(0,)):
    """What each rank said."""
    try:
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            outputs = list(pool.map(lambda job: job.communicate(timeout=400)[0], jobs))
    finally:
        for job in jobs:
            job.kill()
    assert all(job.returncode in codes for job in jobs), "\n".join(output[-3000:] for output in outputs)
    return outputs


def run(program, places, *args, **environment):
    return end(start(program, places, *args, **environment))


@pytest.fixture
def four(on_remote, remote):
    return [on_remote(remote, nodes=True, writeback_delay="50ms", lease="60s", gc_grace="1h").mount() for _ in range(NODES)]


def heads_of(mount):
    """{number: files} of all heads that are there."""
    found = {}
    for number in sorted(mount.remote.heads()):
        words = ["ls", *mount.remote.flags(), "-R", "--json", "--at", str(number), mount.remote.url + ":/"]
        entries = json.loads(mount.verb(*words).stdout)
        found[number] = {entry["path"].strip("/"): entry["bytes"] for entry in entries if entry["type"] == "file"}
    return found


def check_whole(nodes):
    for node in nodes:
        node.umount()
        done = node.fsck()
        assert done.returncode == 0, done


class Logs:
    """A line of a log on each node, ten times a second, as programs beside a job write them."""

    def __init__(self, nodes):
        self.nodes, self.over, self.lines = nodes, threading.Event(), [0] * len(nodes)
        self.threads = [threading.Thread(target=self.write, args=(number,)) for number in range(len(nodes))]

    def write(self, number):
        with open(at(self.nodes[number], f"log{number}"), "ab", buffering=0) as file:
            while not self.over.wait(0.1):
                file.write(trainer.line(self.lines[number]))
                self.lines[number] += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def check(self):
        for number, count in enumerate(self.lines):
            wanted = b"".join(trainer.line(i) for i in range(count))
            for node in self.nodes:
                path = at(node, f"log{number}")
                rig.poll(lambda path=path, wanted=wanted: os.path.exists(path) and rig.read_file(path) == wanted, TAKEN_S, path)


@pytest.mark.timeout(300)
def test_a_sharded_job_saves_removes_and_resumes_at_other_sizes(four):
    with Logs(four) as logs:
        run(SAVE, [four[rank % NODES].mnt for rank in range(RANKS)])
    assert min(logs.lines) > 10
    logs.check()
    newest = f"step{STEPS}"
    for node in four:
        def is_alone(node=node):
            steps = [name for name in os.listdir(node.mnt) if name.startswith("step")]
            return steps == [newest] and len(os.listdir(at(node, newest))) == RANKS + 1

        rig.poll(is_alone, 60, f"the newest step alone on {node.mnt}")
    run(LOAD, [node.mnt for node in four[:3]], str(STEPS))
    run(LOAD, [node.mnt for node in four[3:]], str(STEPS))
    check_whole(four)


# ---------------------------------------------------------------- DLRover

def test_a_directory_is_moved_when_the_done_files_of_all_show(four):
    """DLRover: each rank writes its shard, then a file that says so. The agent of the first node polls for these, moves the directory, and
    writes the tracker."""
    def save(number, step):
        place = at(four[number], f"tmp{step}")
        os.makedirs(place, exist_ok=True)
        rig.write_file(os.path.join(place, f"rank{number}.pt"), trainer.content(f"{number}", 20000))
        os.makedirs(os.path.join(place, "done"), exist_ok=True)
        rig.write_file(os.path.join(place, "done", f"{number}"), b"")

    for step in range(1, 5):
        with concurrent.futures.ThreadPoolExecutor(NODES) as pool:
            list(pool.map(save, range(NODES), [step] * NODES))
        done = at(four[0], f"tmp{step}", "done")
        rig.poll(lambda done=done: len(os.listdir(done)) == NODES, TAKEN_S, "the done files of all", 0.5)
        shutil.rmtree(done)
        os.rename(at(four[0], f"tmp{step}"), at(four[0], f"step{step}"))
        rig.write_file(at(four[0], "tracker.tmp"), b"x" * step)
        os.rename(at(four[0], "tracker.tmp"), at(four[0], "tracker"))
        if step > 2:
            shutil.rmtree(at(four[0], f"step{step - 2}"))
    four[0].wait_remote()
    for node in four:
        rig.poll(lambda node=node: sorted(os.listdir(node.mnt)) == ["step3", "step4", "tracker"], TAKEN_S, "the last two steps")
        assert rig.read_file(at(node, "step4", "rank3.pt")) == trainer.content("3", 20000)
    seen = heads_of(four[0])
    assert len(seen) > 3
    for number, files in seen.items():
        if step := files.get("tracker"):
            moved = {path for path in files if path.startswith(f"step{step}/")}
            assert moved == {f"step{step}/rank{rank}.pt" for rank in range(NODES)}, number
    check_whole(four)
