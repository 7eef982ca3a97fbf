# SPDX-License-Identifier: Apache-2.0
"""cairnfs.load(into=...): tensors that are there get the content of a file; all is checked before a byte is written."""
import collections
import copy
import ctypes
import errno
import mmap
import os

import pytest
import torch

from loading import bits, compare, tensors_in, zeroed
from test_load import ALL

NOT_INTO = ("quantized", "sparse", "nested", "object", "module", "meta", "storage", "strides", "complex", "shared")


@pytest.mark.parametrize("name", [name for name in ALL if name not in NOT_INTO])
def test_into(lane, ways, directory, name):
    """The tensors that are there have the content of the file, and the result has them; all else is the file's."""
    path = os.path.join(directory, "state.pt")
    torch.save(state := ALL[name](), path)
    for weights_only in (True, False):
        into = zeroed(state)
        places = [tensor.data_ptr() for tensor in tensors_in(into)]
        found = lane.load(path, into=into, weights_only=weights_only)
        compare(found, state)
        assert [id(tensor) for tensor in tensors_in(found)] == [id(tensor) for tensor in tensors_in(into)]
        assert [tensor.data_ptr() for tensor in tensors_in(into)] == places
    assert "torch" not in ways


def test_into_of_another_layout(lane, directory):
    """Transposed, strided, channels last, conjugated, views of one storage, of the file or of `into`."""
    base = torch.arange(24_000.0)
    state = {"t": torch.arange(6.0e5).view(600, 1000).t(), "s": base[::3],
             "i": torch.randn(9, 8, 7, 6).to(memory_format=torch.channels_last),
             "c": torch.randn(999, dtype=torch.complex64).conj(), "v": base[5:900], "e": torch.empty(0, 3), "z": torch.tensor(5.0)}
    torch.save(state, path := os.path.join(directory, "state.pt"))
    whole = torch.zeros(2_000_000)
    into = {"t": torch.zeros(1000, 600), "s": whole[7 : 7 + 16000 : 2], "i": torch.zeros(9, 8, 7, 6),
            "c": torch.zeros(999, dtype=torch.complex64), "v": whole[50_000 : 50_895], "e": torch.empty(0, 3), "z": torch.tensor(0.0)}
    found = lane.load(path, into=into)
    assert all(found[name] is into[name] and torch.equal(found[name], state[name]) for name in state)
    assert int((whole != 0).sum()) == int((state["s"] != 0).sum() + (state["v"] != 0).sum()), "no other byte was written"
    into = zeroed(state)
    lane.load(path, into=into)
    assert all(torch.equal(into[name], state[name]) for name in state)


def test_into_tied_tensors(lane, directory):
    """Tied in `into` only: as two copies one after the other. A version counter is raised."""
    torch.save({"a": torch.arange(500_000.0), "b": torch.arange(500_000.0)}, path := os.path.join(directory, "state.pt"))
    one = torch.zeros(500_000)
    version = one._version
    lane.load(path, into={"a": one, "b": one.view(-1)})
    assert torch.equal(one, torch.arange(500_000.0)) and one._version > version


@pytest.mark.needs_mount
def test_into_memory_within_a_page(lane, cairn):
    """On a mount: straight to the tensor or by way of a buffer, of which both are tried first. Memory that cannot be written to is an error."""
    cairn.mount()
    state = {"a": torch.arange(5_000_003), "b": torch.arange(99.0), "c": torch.arange(3_000_001.0)}
    lane.save(state, path := os.path.join(cairn.mnt, "state.pt"), lazy=False).result()
    for cold in (False, True):
        if cold:
            cairn.umount()
            cairn.drop_stage()
            cairn.mount()
        for shift in (0, 1, 8, 509):
            room = {name: torch.full((tensor.numel() + 3000,), 7, dtype=tensor.dtype) for name, tensor in state.items()}
            begin = {name: (-tensor.data_ptr() % 4096) // tensor.element_size() + shift for name, tensor in room.items()}
            into = {name: room[name][begin[name] : begin[name] + tensor.numel()] for name, tensor in state.items()}
            lane.load(path, into=into)
            assert all(bits(into[name]) == bits(state[name]) for name in state)
            assert all(torch.all(room[name][: begin[name]] == 7) for name in state)
            assert all(torch.all(room[name][begin[name] + state[name].numel() :] == 7) for name in state)
        pages = mmap.mmap(-1, 48 << 20)
        into = {"a": torch.frombuffer(pages, dtype=torch.int64, offset=64, count=5_000_003), **{name: state[name].clone() for name in "bc"}}
        libc = ctypes.CDLL(None)
        for first in (0, 20, 21, 22, 23, 24):  # MiB that can be written to: the trials are over by 12
            place, size = ctypes.c_void_p(into["a"].data_ptr() - 64 + (first << 20)), ctypes.c_size_t(48 - first << 20)
            assert libc.mprotect(place, size, mmap.PROT_READ) == 0
            with pytest.raises(OSError, match="are a mixture") as caught:
                lane.load(path, into=into)
            assert caught.value.errno == errno.EFAULT
            assert libc.mprotect(place, size, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_into_raises_versions(lane, directory):
    """A backward that saved the old values notices."""
    torch.save({"a": torch.arange(500_000.0)}, path := os.path.join(directory, "state.pt"))
    weight = torch.ones(500_000)
    result = (torch.ones(500_000, requires_grad=True) * weight).sum()
    lane.load(path, into={"a": weight})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_memory_that_two_targets_share():
    """Only one of them is read to; the other is copied afterwards, as if one came after the other."""
    from cairnfs import _into

    memory = torch.zeros(100, dtype=torch.uint8)
    entries = [("a", memory[:50], 1000, 50), ("b", memory[40:90], 2000, 50), ("c", memory[:50], 1000, 50), ("d", memory[90:], 3000, 10),
               ("e", memory[10:20], 1010, 10)]
    kept, again = _into.without_overlaps(entries)
    assert [entry[0] for entry in kept] == ["a", "d"] and sorted(entry[0] for entry in again) == ["b", "e"]


def test_into_a_module(lane, ways, directory):
    """model.state_dict() and an optimizer's: the training goes on from the file."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 2000), torch.nn.Linear(2000, 9))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 300)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path := os.path.join(directory, "state.pt"))
    saved = copy.deepcopy(state)
    for _ in range(3):
        optimizer.step()
    found = lane.load(path, into={"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    compare(dict(model.state_dict()), dict(saved["model"]))
    assert found["optimizer"]["state"][0]["exp_avg"] is optimizer.state[model[0].weight]["exp_avg"]
    assert found["optimizer"]["state"][0]["step"] == 1 == optimizer.state[model[0].weight]["step"]
    assert ways == ["late"]


MISFITS = {
    "lacks a key": (lambda into: into["m"].pop("b"), "m.b: into lacks it"),
    "has another key": (lambda into: into["m"].update(x=1), "m.x: the file lacks it"),
    "shape": (lambda into: into["m"].update(b=torch.zeros(7)), r"m.b: the file has the shape \(300,\), and into \(7,\)"),
    "dtype": (lambda into: into["m"].update(b=torch.zeros(300, dtype=torch.float16)), "m.b: the file has the dtype torch.float32"),
    "device": (lambda into: into["m"].update(b=torch.zeros(300, device="meta")), "m.b: into has a tensor on meta"),
    "no tensor": (lambda into: into["m"].update(b=3), "m.b: the file has a Tensor, and into a int"),
    "a tensor": (lambda into: into.update(n=torch.zeros(3)), "n: the file has a int, and into a Tensor"),
    "no dict": (lambda into: into.update(m=[1]), "m: the file has a dict, and into a list"),
    "another list": (lambda into: into["l"].pop(), "l: the file has 2 items, and into 1 items"),
    "in a list": (lambda into: into["l"].__setitem__(1, torch.zeros(4)), "l.1: the file has the shape"),
    "expanded": (lambda into: into["m"].update(b=torch.zeros(1).expand(300)), "m.b: elements of the tensor of into share memory"),
    "sparse": (lambda into: into["m"].update(b=torch.zeros(300).to_sparse()), "m.b: into has a Tensor that is no plain dense tensor"),
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", MISFITS)
def test_into_that_does_not_fit(lane, directory, name, weights_only):
    """ValueError that names the first that does not fit; no tensor is written to."""
    state = {"m": {"a": torch.arange(400_000.0), "b": torch.ones(300)}, "l": [torch.ones(3), torch.ones(9)], "n": 5}
    torch.save(state, path := os.path.join(directory, "state.pt"))
    into = zeroed(state)
    spoil, text = MISFITS[name]
    spoil(into)
    with pytest.raises(ValueError, match=text):
        lane.load(path, into=into, weights_only=weights_only)
    assert all(not tensor.any() for tensor in tensors_in(into) if tensor.device.type == "cpu" and tensor.layout == torch.strided)


def test_into_of_what_torch_loads(lane, directory):
    """A legacy file: loaded by torch, and copied."""
    torch.save(state := {"a": torch.arange(9.0)}, path := os.path.join(directory, "old.pt"), _use_new_zipfile_serialization=False)
    into = {"a": torch.zeros(9)}
    assert lane.load(path, into=into)["a"] is into["a"] and torch.equal(into["a"], state["a"])
    with pytest.raises(ValueError, match="a: the file has the shape"):
        lane.load(path, into={"a": torch.zeros(8)})


def test_into_never_shows_memory_that_is_not_filled(lane, directory):
    """Tensors that hide in attributes, which `into` is not compared with."""
    state = collections.OrderedDict(a=torch.arange(300_000.0))
    state.extra = {"x": [torch.arange(50.0), torch.arange(400_000.0)]}
    torch.save(state, path := os.path.join(directory, "state.pt"))
    found = lane.load(path, into={"a": torch.zeros(300_000)})
    compare(found.extra, state.extra)
    assert torch.equal(found["a"], state["a"])


def test_into_waits_for_lazy_saves(lane, cairn, directory):
    """A save that still reads these tensors gets their old content."""
    cairn.mount()
    old = {"a": torch.arange(8_000_000.0)}
    torch.save({"a": torch.zeros(8_000_000)}, path := os.path.join(directory, "zeros.pt"))
    for _ in range(5):
        into = {"a": old["a"].clone()}
        save = lane.save(into, os.path.join(cairn.mnt, "state.pt"), lazy="all")
        lane.load(path, into=into)
        save.result()
        compare(torch.load(os.path.join(cairn.mnt, "state.pt")), old)
        assert not into["a"].any()
