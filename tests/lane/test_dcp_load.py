# SPDX-License-Identifier: Apache-2.0
"""cairnfs.dcp.Reader: what torch's FileSystemReader gives, with reads of what the plan wants alone; what it leaves to torch."""
import dataclasses
import errno
import os
import re

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader, FileSystemWriter

import rig
from loading import compare
from preloaded import Preloaded
from test_frameworks import COMMON, run

KINDS = {
    "large": lambda: torch.arange(3_000_000.0).view(3000, 1000),
    "bf16": lambda: torch.randn(1200, 1000).bfloat16(),
    "transposed": lambda: torch.arange(900_000).view(900, 1000).t(),
    "a view": lambda: torch.arange(2_000_000)[1000:1_900_000:1],
    "strided": lambda: torch.arange(999_999.0)[::3],
    "small": lambda: torch.arange(77),
    "bool": lambda: torch.arange(2_000_000) % 3 == 0,
    "complex": lambda: torch.randn(300_000, dtype=torch.complex64).conj(),
    "empty": lambda: torch.empty(0, 5),
    "scalar": lambda: torch.tensor(2.5),
    "parameter": lambda: torch.nn.Parameter(torch.randn(400_000)),
}


def state_of():
    torch.manual_seed(1)
    return {**{name: make() for name, make in KINDS.items()}, "number": 7, "text": "ü" * 300_000}


def zeroed(state):
    return {key: torch.zeros_like(value) if isinstance(value, torch.Tensor) else None for key, value in state.items()}


@pytest.fixture
def by_torch(lane, monkeypatch):
    """Items that torch was left to read."""
    import cairnfs.dcp  # noqa: F401

    left = []
    original = FileSystemReader.read_data

    def note(self, plan, planner):
        left.extend(plan.items)
        return original(self, plan, planner)

    monkeypatch.setattr(FileSystemReader, "read_data", note)
    return left


@pytest.mark.parametrize("writer", ["torch", "ours"])
def test_states_are_those_of_torch(lane, by_torch, directory, writer):
    """Written by torch or by us; into tensors of another layout, dtype and memory that two share."""
    from cairnfs.dcp import Reader, Writer

    state = state_of()
    made = Writer(directory) if writer == "ours" else FileSystemWriter(directory)
    dcp.save(state, storage_writer=made)
    if writer == "ours":
        made.wait()
    ours, theirs = zeroed(state), zeroed(state)
    version = ours["large"]._version
    dcp.load(theirs, checkpoint_id=directory)
    by_torch.clear()
    dcp.load(ours, storage_reader=Reader(directory))
    compare(ours, theirs)
    assert torch.equal(ours["large"], state["large"]) and ours["text"] == "ü" * 300_000 and ours["number"] == 7
    assert not by_torch and ours["large"]._version > version
    whole = torch.zeros(4_000_000)
    other = {"large": torch.zeros(1000, 3000).t(), "bf16": torch.zeros(1200, 1000), "a view": whole[:1_899_000].long(),
             "bool": torch.zeros(2_000_000, dtype=torch.bool)}
    dcp.load(other, storage_reader=Reader(directory))
    assert all(torch.equal(other[key].to(state[key].dtype), state[key]) for key in other) and not by_torch


class Slices(DefaultLoadPlanner):
    """Wants only some parts of a tensor."""

    wanted = ()

    def create_local_plan(self):
        plan = super().create_local_plan()
        items = [dataclasses.replace(item, storage_offsets=torch.Size(at), dest_offsets=torch.Size(at), lengths=torch.Size(size))
                 for item in plan.items for at, size in self.wanted]  # fmt: skip
        return dataclasses.replace(plan, items=items)


@pytest.mark.parametrize("wanted", [
    [((10, 0), (5, 300_000))],  # rows: one range
    [((0, 7), (60, 9))],  # columns that are far apart
    [((0, 0), (60, 290_000))],  # columns that are close to each other: one range
    [((3, 5), (2, 100)), ((3, 200), (2, 100)), ((50, 299_000), (10, 1000)), ((59, 0), (1, 1))],
])  # fmt: skip
def test_parts_of_a_tensor(lane, by_torch, directory, monkeypatch, wanted):
    """Only what is wanted is read, and what lies between ranges that are close."""
    from cairnfs import _dcp_read
    from cairnfs.dcp import Reader

    state = {"x": torch.arange(18_000_000.0).view(60, 300_000)}
    dcp.save(state, checkpoint_id=directory)
    read = []

    class Noted(_dcp_read.Reading):
        def get(self, targets, keep):
            read.extend(targets)
            return super().get(targets, keep)

    monkeypatch.setattr(_dcp_read, "Reading", Noted)
    planner, into = Slices(), {"x": torch.zeros(60, 300_000)}
    planner.wanted = wanted
    dcp.load(into, storage_reader=Reader(directory), planner=planner)
    expected, bytes_wanted = torch.zeros(60, 300_000), 0
    for (row, column), (rows, columns) in wanted:
        expected[row : row + rows, column : column + columns] = state["x"][row : row + rows, column : column + columns]
        bytes_wanted += rows * columns * 4
    assert torch.equal(into["x"], expected) and not by_torch
    most = bytes_wanted + 2 * _dcp_read.END + len(read) * _dcp_read.JOIN + (60 * 40_000 if bytes_wanted > 60_000_000 else 0)
    assert sum(target[1] for target in read) <= most


def test_what_goes_to_torch(lane, by_torch, directory):
    """A tensor that is not dense, an item of another form; no library; a planner with memory of its own is asked in torch's order."""
    from cairnfs import _dcp_read
    from cairnfs.dcp import Reader

    state = {"a": torch.arange(600_000), "q": torch.arange(9.0), "b": torch.arange(5)}
    dcp.save(state, checkpoint_id=directory)
    reader = Reader(directory)
    storage = reader.read_metadata().storage_data
    (path,) = {os.path.join(directory, info.relative_path) for info in storage.values()}
    (info,) = [info for index, info in storage.items() if index.fqn == "q"]
    with open(path, "r+b") as file:  # an item that only torch reads: the legacy form, no longer than the archive
        import io

        torch.save(torch.arange(9.0) * 2, old := io.BytesIO(), _use_new_zipfile_serialization=False)
        assert len(old.getvalue()) <= info.length
        file.seek(info.offset)
        file.write(old.getvalue())
    ours = {key: torch.zeros_like(value) for key, value in state.items()}
    dcp.load(ours, storage_reader=reader)
    assert torch.equal(ours["a"], state["a"]) and torch.equal(ours["q"], state["q"] * 2) and torch.equal(ours["b"], state["b"])
    assert [item.storage_index.fqn for item in by_torch] == ["q"]

    order, bounce = [], torch.zeros(600_000, dtype=torch.int64)

    class Bounces(DefaultLoadPlanner):
        def resolve_tensor(self, item):
            order.append(item.storage_index.fqn)
            return bounce[: state[item.storage_index.fqn].numel()]

        def commit_tensor(self, item, tensor):
            super().resolve_tensor(item).copy_(tensor)

    dcp.save({key: value for key, value in state.items() if key != "q"}, checkpoint_id=os.path.join(directory, "two"))
    again = {key: torch.zeros_like(state[key]) for key in ("a", "b")}
    dcp.load(again, storage_reader=Reader(os.path.join(directory, "two")), planner=Bounces())
    assert torch.equal(again["a"], state["a"]) and torch.equal(again["b"], state["b"]) and sorted(order) == ["a", "b"]
    assert _dcp_read.JOIN == 128 << 10


def test_bad_files(lane, directory):
    """A file that is cut, one that is missing, shapes that differ: errors, as with torch."""
    from cairnfs.dcp import Reader

    dcp.save({"a": torch.arange(2_000_000), "b": torch.arange(5)}, checkpoint_id=directory)
    (name,) = [name for name in os.listdir(directory) if name.endswith(".distcp")]
    path, content = os.path.join(directory, name), rig.read_file(os.path.join(directory, name))

    def load(error, **state):
        with pytest.raises(dcp.api.CheckpointException) as caught:
            dcp.load(state or {"a": torch.zeros(2_000_000, dtype=torch.int64)}, storage_reader=Reader(directory))
        (why, _), = caught.value.failures.values()
        assert isinstance(why, error), repr(why)
        return why

    load(ValueError, a=torch.zeros(7, dtype=torch.int64))
    rig.write_file(path, content[: len(content) // 2])
    assert "and the file has" in str(load(ValueError))
    os.unlink(path)
    assert load(OSError).errno == errno.ENOENT
    os.mkdir(path)
    assert load(OSError).errno == errno.EISDIR


@pytest.mark.needs_mount
def test_the_example_of_the_page(lane, cairn):
    """docs/lazy-saves.md, as it stands there."""
    page = rig.read_file(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "lazy-saves.md")).decode()
    cairn.mount()
    example = {}
    exec(re.search(r"<!-- example: distributed -->\n```python\n(.*?)```", page, re.S).group(1).replace("/mnt/ckpt", cairn.mnt), example)
    state = state_of()
    example["save"](state, 7).wait()
    example["load"](into := zeroed(state), 7)
    assert all(torch.equal(into[key], state[key]) for key in KINDS) and into["text"] == state["text"]


RESHARD = COMMON + """
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import distribute_tensor, Shard, Replicate, zeros
import cairnfs.dcp
from torch.distributed.checkpoint import FileSystemReader
rank, world = int(sys.argv[3]), int(os.environ["RANKS"])
dist.init_process_group("gloo", init_method="file://" + directory + ".meet-" + mode, rank=rank, world_size=world)
mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
full = {"rows": torch.arange(2_400_000.0).view(1200, 2000), "columns": torch.arange(1_440_000).view(120, 12000),
        "all": torch.arange(500_000.0), "few": torch.arange(5.0), "vector": torch.randn(1_000_003)}
places = {"rows": Shard(0), "columns": Shard(1), "all": Replicate(), "few": Shard(0), "vector": Shard(0)}
if mode != "load":
    state = {key: distribute_tensor(value, mesh, [places[key]]) for key, value in full.items()}
    writer = cairnfs.dcp.Writer(directory) if mode == "ours" else dcp.FileSystemWriter(directory)
    dcp.save({**state, "step": torch.tensor(5)}, storage_writer=writer)
    if mode == "ours":
        writer.wait()
    dist.barrier()
    print(json.dumps(None))
else:
    left, read_data = [], FileSystemReader.read_data
    FileSystemReader.read_data = lambda self, plan, planner: left.extend(plan.items) or read_data(self, plan, planner)
    other = {**places, "rows": Shard(1), "all": Shard(0)}  # other dimensions, too
    state = {key: zeros(value.shape, dtype=value.dtype, device_mesh=mesh, placements=[other[key]]) for key, value in full.items()}
    state["step"] = torch.tensor(0)
    dcp.load(state, storage_reader=cairnfs.dcp.Reader(directory))
    same = [torch.equal(state[key].full_tensor(), full[key]) for key in full]
    print(json.dumps([all(same), len(left), int(state["step"])]))
dist.destroy_process_group()
"""


@pytest.mark.timeout(600)
@pytest.mark.needs_mount
@pytest.mark.parametrize("writer", ["ours", "torch"])
def test_eight_ranks_become_three(cairn, lane, programs, writer):
    """Shards of 8 ranks, loaded by 3, also along another dimension."""
    cairn.mount()
    os.mkdir(path := os.path.join(cairn.mnt, "step"))
    imports = "import torch, torch._dynamo, torch.distributed.checkpoint, torch.distributed.tensor, cairnfs.dcp"
    for mode, ranks in ((writer, 8), ("load", 3)):
        preloaded = Preloaded(imports, {**programs, "OMP_NUM_THREADS": "1", "RANKS": str(ranks)})
        try:
            found = run(preloaded, RESHARD, path, mode, ranks)
        finally:
            preloaded.close()
    assert found == [True, 0, 5]
