# SPDX-License-Identifier: Apache-2.0
"""A training job in mixed precision that saves on a mount, for the tests of reduce=dense, and what they ask of a node."""
import io
import json
import os
import struct

import rig

try:
    import torch
except ImportError:  # the tests skip
    torch = None


class Training:
    """What training in mixed precision saves: bf16 weights, the fp32 masters that they are rounded from, both of Adam's moments."""

    def __init__(self, elements=rig.MIB // 2, tensors=3):
        self.random = torch.Generator().manual_seed(7)
        self.masters = [self.noise(elements + 1000 * number) * 0.02 for number in range(tensors)]
        self.number = 0

    def noise(self, elements):
        return torch.randn(elements, generator=self.random)

    def step(self):
        self.masters = [master + master.abs() * 0.004 * self.noise(len(master)) for master in self.masters]
        self.number += 1

    def model(self):
        return {f"layer{number}": master.to(torch.bfloat16) for number, master in enumerate(self.masters)}

    def optimizer(self):
        return {"master": list(self.masters), "exp_avg": [self.noise(len(m)) * 1e-4 for m in self.masters],
                "exp_avg_sq": [self.noise(len(m)).square() * 1e-8 for m in self.masters]}


def bytes_of(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def safetensors(rows, dtype):
    """A file with each row as a tensor, and so as a chunk."""
    size = rows[0].nbytes
    header = json.dumps({f"layer{number}": {"dtype": dtype, "shape": [len(row)], "data_offsets": [number * size, (number + 1) * size]}
                         for number, row in enumerate(rows)}).encode()
    return struct.pack("<Q", len(header)) + header + rows.tobytes()


class Job:
    """A training job that saves on a mount. `content`: what there is, path -> bytes."""

    def __init__(self, node):
        self.node, self.training, self.content = node, Training(), {}

    def write(self, name, data):
        path = os.path.join(self.node.mnt, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        rig.write_file(path, data)
        self.content[name] = data

    def save(self, parts=("model", "optimizer")):
        self.training.step()
        for part in parts:
            self.write(f"run/step{self.training.number}/{part}.pt", bytes_of(getattr(self.training, part)()))
        return self

    def remove(self, number):
        for name in [name for name in self.content if name.startswith(f"run/step{number}/")]:
            os.unlink(os.path.join(self.node.mnt, name))
            del self.content[name]


def differing(directory, content):
    return [name for name, data in content.items() if rig.read_file(os.path.join(directory, name)) != data]


def check_fresh(node, content, **options):
    """Another node, which has nothing but the remote, reads the same; what it took from there is sound."""
    fresh = node.fresh(**options)
    fresh.mount(takeover=True)
    try:
        assert differing(fresh.mnt, content) == []
    finally:
        fresh.umount()
    assert fresh.fsck().returncode == 0, fresh.fsck().stdout


def save_some(job, count, **what):
    """Each one is in the remote before the next."""
    for _ in range(count):
        job.save(**what)
        job.node.wait_remote()


def check_end(job):
    """The store is whole, and another node reads the same."""
    job.node.umount_whole()
    check_fresh(job.node, job.content)


def sent(node):
    """Raw bytes of the chunks that were uploaded, by encoding."""
    return {row["encoding"]: row["raw_bytes"] for row in node.remote_status()["reduction"]["encodings"]}
