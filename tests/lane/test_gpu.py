# SPDX-License-Identifier: Apache-2.0
"""Lazy saves of a GPU's memory by the real driver. Skipped without one; tests/client/cuda has the stand-in."""
import copy
import errno
import os

import pytest
import torch
from test_format import OBJECTS, check_same, make_twins

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="skipped: no GPU")
MIB = 1 << 20


def on_gpu(obj):
    if isinstance(obj, torch.Tensor):
        return obj.cuda()
    if isinstance(obj, dict):
        return type(obj)((key, on_gpu(value)) for key, value in obj.items())
    return [on_gpu(value) for value in obj] if isinstance(obj, list) else obj


def model_of(width, layers, frozen=0):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers))).cuda()
    for layer in model[:frozen]:
        layer.requires_grad_(False)
    return model, torch.optim.Adam((value for value in model.parameters() if value.requires_grad), lr=1e-3)


def train(model, optimizer, steps, after):
    """The losses, each of a batch of its own; after(step) follows each update."""
    losses = []
    for step in range(steps):
        batch = torch.randn(64, model[0].in_features, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        after(step)
    return losses


def state_of(model, optimizer):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def expect_equal(found, wanted):
    if isinstance(wanted, torch.Tensor):
        assert torch.equal(found.cpu().reshape(-1).view(torch.uint8), wanted.cpu().reshape(-1).view(torch.uint8))
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            expect_equal(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for pair in zip(found, wanted):
            expect_equal(*pair)
    else:
        assert found == wanted


@pytest.mark.parametrize("lazy", ["all", False])
@pytest.mark.parametrize("name", ["model", "shared", "kinds", "complex", "empty", "strides", "ordered", "views of one", "many", "sparse"])
def test_bytes_are_those_of_torch(lane, directory, name, lazy):
    obj = on_gpu(OBJECTS[name]())
    ours, theirs = make_twins(directory, "object.pt")
    torch.save(obj, theirs)
    lane.save(obj, ours, lazy=lazy, on_error="raise").result()
    check_same(ours, theirs)


def test_training_is_the_same_and_each_file_is_of_its_step(lane, directory):
    """A save after every update, each behind the fence of the next: losses bit by bit those without saves, files those of their step."""
    plain = train(*model_of(1024, 8), 12, lambda step: None)
    model, optimizer = model_of(1024, 8)
    kept = []

    def save(step):
        kept.append(copy.deepcopy(state_of(model, optimizer)))
        lane.save(state_of(model, optimizer), os.path.join(directory, f"step{step}.pt"), on_error="raise")

    assert train(model, optimizer, 12, save) == plain
    lane.wait()
    for step, state in enumerate(kept):
        expect_equal(torch.load(os.path.join(directory, f"step{step}.pt")), state)


@pytest.mark.needs_mount
def test_frozen_layers_stay_on_the_gpu(lane, cairn):
    """90 % frozen: the kernel finds what is unchanged, and at most 12 % cross the bus and reach the mount again."""
    from cairnfs import _library, _process

    cairn.mount(stage="1G")
    model, optimizer = model_of(2048, 10, frozen=9)
    size = sum(value.nbytes for value in model.state_dict().values())
    kept, copied = [], []
    stats = _library.LaneStats()

    def save(step):
        state = model.state_dict()
        kept.append({name: value.clone() for name, value in state.items()})
        lane.save(state, os.path.join(cairn.mnt, f"step{step}.pt"), on_error="raise").result()
        _library.check(_library.library().cairn_lane_stats(_process.current().open(), stats))
        copied.append(stats.bytes_device)

    train(model, optimizer, 5, save)
    for before, after in zip(copied, copied[1:]):
        assert after - before <= 0.12 * size, copied
    written = cairn.status()["mount"]["written_bytes_total"]
    assert size <= written <= size * (1 + 4 * 0.12), f"{written / size:.2f} times the state was written"
    for step, state in enumerate(kept):
        expect_equal(torch.load(os.path.join(cairn.mnt, f"step{step}.pt")), state)


def test_a_capture_is_told_busy_and_stays_whole(lane, directory):
    """A save while the stream captures a graph fails with a clear error; the graph is whole, and later saves work."""
    model, optimizer = model_of(512, 4)
    train(model, optimizer, 2, lambda step: None)
    batch, path = torch.randn(64, 512, device="cuda"), os.path.join(directory, "captured.pt")
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        model(batch)
    torch.cuda.current_stream().wait_stream(warm)
    graph, failed = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        out = model(batch)
        try:
            failed.append(lane.save(state_of(model, optimizer), path, on_error="raise").exception())
        except OSError as error:
            failed.append(error)
    assert failed[0].errno == errno.EBUSY and not os.path.exists(path), failed
    graph.replay()
    assert torch.equal(out, model(batch))
    lane.save(state_of(model, optimizer), path, on_error="raise").result()
    expect_equal(torch.load(path), state_of(model, optimizer))


def test_producers_on_other_streams(lane, directory):
    """What another stream wrote last is saved: save() is called under it, and behind a long kernel."""
    path, stream = os.path.join(directory, "streams.pt"), torch.cuda.Stream()
    for value in range(5):
        with torch.cuda.stream(stream):
            tensor = torch.zeros(16 * MIB, device="cuda")
            torch.cuda._sleep(50_000_000)
            tensor.fill_(value)
            lane.save({"tensor": tensor}, path, lazy="all", on_error="raise")
            lane.fence()
            tensor.fill_(-1)
        lane.wait()
        assert torch.load(path)["tensor"].eq(value).all()


def test_memory_that_is_freed_meanwhile(lane, directory):
    """The save keeps it: the allocator does not give it to others before it was copied."""
    path = os.path.join(directory, "freed.pt")
    for value in range(5):
        tensor = torch.full((16 * MIB,), float(value), device="cuda")
        lane.save({"tensor": tensor}, path, lazy="all", on_error="raise")
        del tensor
        others = [torch.full((16 * MIB,), -1.0, device="cuda") for _ in range(4)]
        lane.wait()
        del others
        assert torch.load(path)["tensor"].eq(value).all()


def test_safetensors(lane, directory):
    from safetensors.torch import load_file

    model, optimizer = model_of(512, 4)
    train(model, optimizer, 1, lambda step: None)
    path = os.path.join(directory, "model.safetensors")
    lane.save(model.state_dict(), path, on_error="raise").result()
    expect_equal(load_file(path, device="cuda"), dict(model.state_dict()))
