# SPDX-License-Identifier: Apache-2.0
"""cairnfs.safetensors.load_file: the tensors of safetensors, and its refusals."""
import os

import pytest
import torch

import rig
from loading import bits, outcome, zeroed

def tensors_of_safetensors():
    kinds = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()
    state = {name: torch.arange(96, dtype=torch.uint8).view(getattr(torch, name)) for name in kinds}
    return {**state, "bool": torch.arange(99) % 2 == 0, "large": torch.arange(3_000_003.0).view(3, -1), "e": torch.empty(0, 4),
            "z": torch.tensor(5.0), "ü/x": torch.ones(2, 3, 4)}


@pytest.fixture
def tensors(directory):
    from safetensors.torch import save_file

    save_file(state := tensors_of_safetensors(), path := os.path.join(directory, "state.safetensors"), {"by": "a test"})
    return path, state


def test_safetensors(lane, tensors, monkeypatch):
    """The tensors, and the order of the names, are those of safetensors; by load(), too."""
    import cairnfs.safetensors as ours

    path, state = tensors
    theirs = ours.theirs.load_file(path)
    monkeypatch.setattr(ours.theirs, "load_file", lambda *_, **__: pytest.fail("safetensors loaded it"))
    for load in (ours.load_file, lane.load):
        found = load(path)
        assert list(found) == list(theirs)
        assert all(bits(found[name]) == bits(theirs[name]) and found[name].dtype == theirs[name].dtype for name in theirs)
        assert all(found[name].shape == theirs[name].shape and found[name].stride() == theirs[name].stride() for name in theirs)
    into = zeroed(state)
    found = ours.load_file(path, into)
    assert all(found[name] is into[name] and bits(into[name]) == bits(state[name]) for name in state)
    for change, text in (({"x": torch.ones(3)}, "x: the file lacks it"), ({"large": torch.ones(3)}, "large: the file has the shape")):
        into = zeroed(state)
        with pytest.raises(ValueError, match=text):
            ours.load_file(path, {**into, **change})
        assert not any(tensor.any() for tensor in into.values() if tensor.dtype != torch.float8_e5m2)


def written_by_hand(path, header, content):
    head = header.encode()
    rig.write_file(path, len(head).to_bytes(8, "little") + head + content)


BY_HAND = {
    "a hole": ('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}', 5),
    "an overlap": ('{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}}', 5),
    "more bytes": ('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}', 3),
    "backwards": ('{"a":{"dtype":"U8","shape":[0],"data_offsets":[2,0]}}', 2),
    "twice": ('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}', 2),
    "a field twice": ('{"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}}', 2),
    "another size": ('{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}}', 2),
    "another dtype": ('{"a":{"dtype":"X8","shape":[2],"data_offsets":[0,2]}}', 2),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_safetensors_by_hand(lane, directory, name):
    """What safetensors refuses of a header is refused."""
    import cairnfs.safetensors as ours

    header, size = BY_HAND[name]
    written_by_hand(path := os.path.join(directory, "x.safetensors"), header, bytes(range(size)))
    theirs, why = outcome(ours.theirs.load_file, path)
    found, ours_why = outcome(ours.load_file, path)
    assert (type(ours_why), str(ours_why)) == (type(why), str(why))
    assert theirs is None or all(bits(found[key]) == bits(theirs[key]) for key in theirs)


def test_safetensors_that_are_damaged(lane, tensors, rng):
    """What safetensors refuses is refused, in its words; what it takes is the same."""
    import cairnfs.safetensors as ours

    path, state = tensors
    ours.theirs.save_file({name: state[name] for name in ("int32", "z", "e")}, path)
    data = rig.read_file(path)
    length = int.from_bytes(data[:8], "little")
    spoilt = [data[:cut] for cut in (0, 7, 8, 20, length + 8, len(data) - 1)] + [data + b"x"]
    for _ in range(400):
        changed = bytearray(data)
        changed[rng.randrange(8 + length)] = rng.choice([0, 255, 34, 44, 48, rng.randrange(256)])
        spoilt.append(bytes(changed))
    refused = 0
    for content in spoilt:
        rig.write_file(path, content)
        theirs, why = outcome(ours.theirs.load_file, path)
        found, ours_why = outcome(ours.load_file, path)
        assert type(why) is type(ours_why), (why, ours_why, content[: 8 + length])
        if why is None:
            assert {name: bits(tensor) for name, tensor in found.items()} == {name: bits(tensor) for name, tensor in theirs.items()}
        refused += why is not None
    assert refused > 100
