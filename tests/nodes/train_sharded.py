# SPDX-License-Identifier: Apache-2.0
"""A rank of a sharded training (FSDP2) whose ranks each save on a mount of their own, by dcp.async_save; rank 0 removes old steps.

    train_sharded.py REPORT STEPS EVERY

The environment is as torchrun makes it. The directory of the checkpoints is $CHECKPOINTS, the node's own.
Each rank adds lines of JSON to REPORT."""
import contextlib
import json
import os
import re
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

PATIENCE = 90  # seconds until what the other nodes saved shows here


def steps_in(directory):
    return {int(match[1]): os.path.join(directory, match[0])
            for match in (re.fullmatch(r"step(\d+)", name) for name in os.listdir(directory)) if match}


def complete(directory, ranks):
    """Steps of which all ranks' files show here."""
    expected, found = {".metadata", *(f"__{rank}_0.distcp" for rank in range(ranks))}, {}
    for step, path in steps_in(directory).items():
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            if expected <= set(os.listdir(path)):
                found[step] = path
    return found


class Job:
    def __init__(self, report):
        dist.init_process_group("gloo")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.directory, self.report = os.environ["CHECKPOINTS"], open(report, "a", buffering=1)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))
        fully_shard(self.model, mesh=init_device_mesh("cpu", (self.ranks,)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.saving, self.group = None, dist.new_group()  # saves talk to each other beside the training

    def say(self, **what):
        self.report.write(json.dumps({"rank": self.rank, "pid": os.getpid(), **what}) + "\n")

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def resume(self):
        """The newest step that is complete for rank 0; the others wait for it."""
        newest = [max(complete(self.directory, self.ranks), default=0)] if self.rank == 0 else [0]
        dist.broadcast_object_list(newest, src=0)
        step, until = newest[0], time.monotonic() + PATIENCE
        while step and step not in complete(self.directory, self.ranks):
            if time.monotonic() > until:
                raise SystemExit(f"rank {self.rank}: step {step} does not show on {self.directory}")
            time.sleep(0.1)
        dist.barrier()
        if step:
            state = self.state()
            dcp.load(state, checkpoint_id=os.path.join(self.directory, f"step{step}"))
            set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.say(began=step)
        return step

    def train(self, step):
        torch.manual_seed(1000 * step + self.rank)
        loss = self.model(torch.randn(16, 64)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.say(step=step, loss=loss.item())

    def save(self, step, every):
        self.wait()
        path = os.path.join(self.directory, f"step{step}")
        self.saving = dcp.async_save(self.state(), checkpoint_id=path, process_group=self.group)
        self.remove(step - 2 * every)

    def remove(self, last):
        """Rank 0: old steps, when all of them shows; else the rest would stay."""
        for step, directory in complete(self.directory, self.ranks).items():
            if self.rank == 0 and step <= last:
                shutil.rmtree(directory)

    def remove_rest(self, last):
        until = time.monotonic() + PATIENCE
        while self.rank == 0 and any(step <= last for step in steps_in(self.directory)) and time.monotonic() < until:
            self.remove(last)
            time.sleep(0.1)

    def wait(self):
        if self.saving:
            self.saving.result()
            self.saving = None


def main(report, steps, every):
    job = Job(report)
    for step in range(job.resume() + 1, steps + 1):
        job.train(step)
        if step % every == 0:
            job.save(step, every)
    job.wait()
    dist.barrier()
    job.remove_rest(steps - 2 * every)
    job.say(done=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
