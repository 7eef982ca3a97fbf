# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint on two ranks: it trains, saves lazily, and goes on from what it saved, with the losses of a run without
us."""
import json
import os
import tempfile

import pytest

from preloaded import Preloaded

RANKS = 2
COMMON = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
os.environ.update(CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
import torch
import cairnfs
directory, mode = sys.argv[1:3]
torch.manual_seed(0)
def kill():
    cairnfs.wait()
    os._exit(9)
"""

DCP = COMMON + """
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
import cairnfs.dcp
rank, world = int(sys.argv[3]), 2
dist.init_process_group("gloo", init_method="file://" + os.path.join(directory + ".meet-" + mode), rank=rank, world_size=world)
mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.Linear(500, 2))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
step = 0
def state():
    a, b = get_state_dict(model, optimizer)
    return {"model": a, "optimizer": b, "step": torch.tensor(step), "text": "ü"}
if mode == "resume":
    found = state()
    newest = max(name for name in os.listdir(directory) if os.path.exists(os.path.join(directory, name, ".metadata")))
    dcp.load(found, checkpoint_id=os.path.join(directory, newest))
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    step = int(found["step"])
losses = {}
while step < 6:
    torch.manual_seed(step)
    loss = model(torch.randn(4, 300)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    step += 1
    losses[step] = loss.item()
    if step % 2 == 0 and mode != "plain":
        writer = cairnfs.dcp.Writer(os.path.join(directory, f"{step}"))
        dcp.save(state(), storage_writer=writer)
    if mode == "kill" and step == 5:
        writer.wait()
        dist.barrier()
        os._exit(9)
print(json.dumps(losses))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def preloaded(programs):
    imports = "import torch, torch._dynamo, torch.distributed.checkpoint, torch.distributed.fsdp, torch.distributed.checkpoint.state_dict, cairnfs.dcp"
    found = Preloaded(imports, {**programs, "OMP_NUM_THREADS": "1"})
    yield found
    found.close()


def run(preloaded, program, directory, mode, ranks=RANKS):
    """What the program prints, of its first rank; None if it was killed."""
    errors = [tempfile.TemporaryFile("w+") for _ in range(ranks)]
    processes = [preloaded.start(program, [directory, mode, str(rank)], stderr=file) for rank, file in enumerate(errors)]
    outputs = [process.stdout.read() for process in processes]
    for process, file in zip(processes, errors):
        code = process.wait()
        process.close()
        file.seek(0)
        assert code == (9 if mode == "kill" else 0), file.read()[-3000:]
        file.close()
    return None if mode == "kill" else json.loads(outputs[0].splitlines()[-1])


def check_resumes(preloaded, program, mount, root, at):
    """Killed and resumed, its losses are those of a run that saves nothing, bit for bit."""
    directory = os.path.join(mount.mnt, "run")
    os.mkdir(directory)
    reference = run(preloaded, program, os.path.join(root, "plain"), "plain")
    run(preloaded, program, directory, "kill")
    resumed = run(preloaded, program, directory, "resume")
    assert resumed == {step: loss for step, loss in reference.items() if int(step) > at}
    return directory


@pytest.mark.timeout(240)
def test_dcp_on_two_ranks(cairn, directory, preloaded, lane):
    """Two ranks of FSDP: `.metadata` is there when both files are; torch's own reader loads them."""
    cairn.mount()
    path = check_resumes(preloaded, DCP, cairn, directory, at=4)
    assert sorted(os.listdir(path)) == ["2", "4", "6"]
    for step in os.listdir(path):
        assert sorted(name[:4] for name in os.listdir(os.path.join(path, step))) == [".met", "__0_", "__1_"]


FAILS = COMMON + """
import time
import torch.distributed as dist, torch.distributed.checkpoint as dcp
import cairnfs.dcp
rank = int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + directory + ".meet", rank=rank, world_size=2)
if rank == 1:
    def no_room(*given):
        raise OSError(28, "no room")
    start = cairnfs.dcp.start
    cairnfs.dcp.start = lambda path, plan, items, begin: start(path, plan, items, no_room)
writer = cairnfs.dcp.Writer(directory)
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
dcp.save({"x": dist.tensor.distribute_tensor(torch.arange(100.0), mesh, [dist.tensor.Shard(0)])}, storage_writer=writer)
try:
    writer.wait()
    told = None
except OSError as error:
    told = str(error)
print(json.dumps(told))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.timeout(120)
def test_dcp_where_a_rank_fails(preloaded, lane, mnt):
    """The coordinator is told, long before it would give up, and writes no `.metadata`."""
    path = os.path.join(mnt, "step")
    os.mkdir(path)
    told = run(preloaded, FAILS, path, "save")
    assert "of rank 1 was not saved: no room" in told, told
    assert [name[:4] for name in os.listdir(path)] == ["__0_"]
