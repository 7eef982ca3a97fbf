# SPDX-License-Identifier: Apache-2.0
"""A job of torch.distributed.checkpoint on four mounts of nodes: each rank saves its part of a sharded tensor on its own mount, rank 0
removes old steps there, and jobs of other sizes load the newest step from the mounts."""
import os
import subprocess
import sys

import pytest

import rig
from processes import free_port

STEPS, RANKS = 4, 4
ROWS = 1200  # divided by 4, 3 and 1

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


def run(program, mounts, *args):
    port = free_port()
    jobs = []
    for rank, mount in enumerate(mounts):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(mounts)), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        jobs.append(subprocess.Popen([sys.executable, "-c", program, mount.mnt, *args], env=environment, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True))
    outputs = [job.communicate(timeout=300)[0] for job in jobs]
    assert all(job.returncode == 0 for job in jobs), outputs


@pytest.mark.timeout(300)
def test_a_sharded_job_saves_removes_and_resumes_at_other_sizes(on_remote, remote):
    nodes = [on_remote(remote, nodes=True, writeback_delay="50ms").mount() for _ in range(RANKS)]
    run(SAVE, nodes)
    newest = f"step{STEPS}"
    for node in nodes:
        def is_alone(node=node):
            return os.listdir(node.mnt) == [newest] and len(os.listdir(os.path.join(node.mnt, newest))) == RANKS + 1

        rig.poll(is_alone, 60, f"the newest step alone on {node.mnt}")
    run(LOAD, nodes[:3], str(STEPS))
    run(LOAD, nodes[3:], str(STEPS))
    for node in nodes:
        node.umount()
        done = node.fsck()
        assert done.returncode == 0, done
