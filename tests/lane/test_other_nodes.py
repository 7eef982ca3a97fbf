# SPDX-License-Identifier: Apache-2.0
"""Lazy saves and loads on the mount of a node (-o nodes), of files that other nodes wrote."""
import os

import pytest
import torch

import remote as remotes
import rig
from processes import free_port

pytestmark = pytest.mark.needs_mount
TAKEN_S = 30


@pytest.fixture
def two(on_remote, directory):
    shared = remotes.DirRemote(os.path.join(directory, "remotes"))
    return [on_remote(shared, nodes=True, writeback_delay="50ms").mount() for _ in range(2)]


def state_of(seed):
    torch.manual_seed(seed)
    return {f"layer{i}": torch.randn(512, 1024) for i in range(4)}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def await_state(path, wanted):
    def shows():
        try:
            return same(torch.load(path), wanted)
        except (OSError, RuntimeError):  # it is replaced just now
            return False

    rig.poll(shows, TAKEN_S, path)


RANKS = """
import sys
import torch, torch.distributed as dist
import cairnfs
from cairnfs import _ranks
dist.init_process_group("gloo")
directory = sys.argv[1 + dist.get_rank()]
save = cairnfs.save({"x": torch.ones(1000)}, f"{directory}/shard{dist.get_rank()}")
_ranks.marker_behind_all(f"{directory}/marker", b"done", [save])
save.result()
_ranks.wait()
dist.barrier()
"""


def test_a_marker_behind_the_ranks_of_all_nodes_says_what_it_lies_behind(two, python):
    """The newest operation of each node, when its rank had saved, lies beside it. What reads the mount as any directory does not see that."""
    meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [python.start(RANKS, [mount.mnt for mount in two], {**meet, "RANK": str(rank)}) for rank in range(2)]
    assert [rank.wait(rig.PATIENCE * 60) for rank in ranks] == [0, 0]
    word, *numbers = os.getxattr(two[0].mnt, "user.cairn.behind").split()
    nodes = {int(number) >> 40 for number in numbers}
    assert word == b"1" and len(nodes) == len(numbers) == 2, numbers
    assert os.listxattr(two[0].mnt) == []
    for mount in two:
        rig.poll(lambda mount=mount: {"marker", "shard0", "shard1"} <= set(os.listdir(mount.mnt)), TAKEN_S, "all files")


def test_loads_of_another_nodes_file(lane, two):
    a, b = two
    state, path = state_of(1), os.path.join(b.mnt, "state.pt")
    torch.save(state, os.path.join(a.mnt, "state.pt"))
    rig.poll(lambda: os.path.exists(path), TAKEN_S, "the name")
    assert same(lane.load(path), state)
    into = {name: torch.zeros_like(value) for name, value in state.items()}
    lane.load(path, into=into)
    assert same(into, state)


def test_lazy_saves_over_another_nodes_file(lane, two):
    a, b = two
    paths = [os.path.join(mount.mnt, "state.pt") for mount in two]
    torch.save(state_of(1), paths[0])
    rig.poll(lambda: os.path.exists(paths[1]), TAKEN_S, "the name")
    for turn in range(2, 5):
        lane.save(state_of(turn), paths[turn % 2]).result()
        await_state(paths[0], state_of(turn))
        await_state(paths[1], state_of(turn))
    for mount in two:
        mount.umount()
        assert mount.fsck().returncode == 0


def test_a_save_by_reference_to_a_file_that_became_another_nodes(lane, two):
    """What did not change since is taken from the save before, whose file another node has made its own: it is copied."""
    a, b = two
    torch.manual_seed(0)
    model = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(1024, 512), requires_grad=index == 3) for index in range(4))
    optimizer = torch.optim.SGD([value for value in model if value.requires_grad], lr=0.1)

    def step(number):
        model[3].grad = torch.randn(1024, 512)
        optimizer.step()
        state = {f"layer{i}": value.detach() for i, value in enumerate(model)}
        lane.save(state, os.path.join(b.mnt, f"step{number}.pt")).result()
        return {name: value.clone() for name, value in state.items()}

    saved = [step(0), step(1)]
    theirs = os.path.join(a.mnt, "step1.pt")
    await_state(theirs, saved[1])
    with open(theirs, "r+b") as file:  # it becomes a file of that node
        file.write(file.read(1)[:0])
    ino = os.stat(theirs).st_ino
    rig.poll(lambda: os.stat(os.path.join(b.mnt, "step1.pt")).st_ino == ino, TAKEN_S, "the other node's file")
    saved.append(step(2))
    for mount in two:
        for number, state in enumerate(saved):
            await_state(os.path.join(mount.mnt, f"step{number}.pt"), state)
