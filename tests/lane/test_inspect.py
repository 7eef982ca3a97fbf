# SPDX-License-Identifier: Apache-2.0
"""python -m cairnfs inspect, and diff: the tensors of a checkpoint and where they lie, and how those of two differ."""
import contextlib
import json
import os
import sys
import warnings

import pytest
import torch

import rig
from conftest import environment
from loading import bits


@pytest.fixture
def run(lane, capsys):
    """What a command prints; with 2 what it says of the error."""
    from cairnfs.__main__ import main

    def go(*arguments, code=0):
        try:
            ended = main(list(arguments))
        except SystemExit as end:
            ended = end.code
        said = capsys.readouterr()
        assert ended == code, said
        return said.err if code == 2 else said.out
    return go


def state_of():
    whole = torch.arange(1000.0)
    return {
        "model": {"weight": torch.nn.Parameter(torch.randn(30, 20)), "bf16": torch.ones(7, dtype=torch.bfloat16), "tied": whole,
                  "view": whole[10:20], "turned": torch.arange(6).view(2, 3).t(), "fp8": torch.ones(5).to(torch.float8_e4m3fn),
                  "complex": torch.ones(3, dtype=torch.complex64), "bool": torch.tensor(True), "empty": torch.empty(0, 4)},
        "list": [torch.ones(2), (torch.zeros(3), "text")], "step": 5, "sparse": torch.eye(4).to_sparse(),
    }


def save_dcp(state, path):
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one process
        dcp.save(state, checkpoint_id=path)
    return path


def test_each_tensor_and_its_place(run, directory):
    """Of an archive of torch.save. The bytes at its place are those of its storage; what shares one is told so by the place."""
    state, path = state_of(), os.path.join(directory, "state.pt")
    torch.save(state, path)
    said = {each["name"]: each for each in json.loads(run("inspect", "--json", path))}
    expected = {f"model.{name}": value for name, value in state["model"].items()}
    expected |= {"list.0": state["list"][0], "list.1.0": state["list"][1][0], "list.1.1": "text", "step": 5, "sparse": state["sparse"]}
    assert set(said) == set(expected)
    content = rig.read_file(path)
    for name, value in expected.items():
        each = said[name]
        if not isinstance(value, torch.Tensor):
            assert (each["type"], each["shape"]) == ("value", None)
            continue
        assert (each["type"], each["shape"]) == (str(value.dtype)[6:], list(value.shape)), name
        if value.layout == torch.strided and value.numel():
            whole = torch.empty(0, dtype=torch.uint8).set_(value.detach().untyped_storage())
            assert content[each["offset"] : each["offset"] + each["bytes"]] == bytes(whole.tolist()), name
    assert said["model.tied"]["offset"] == said["model.view"]["offset"]
    lines = run("inspect", path).splitlines()
    assert lines[0].split() == ["TYPE", "SHAPE", "OFFSET", "BYTES", "STORED", "NAME"] and "2 other values" in lines[-1]
    assert lines[1].split()[-2] == "-" and said["model.tied"]["stored_bytes"] is None and "stored" not in lines[-1]


def test_safetensors_and_dcp(run, directory):
    from safetensors.torch import save_file

    state = {"a": torch.randn(40, 5), "b": torch.arange(9, dtype=torch.int16)}
    save_file(state, path := os.path.join(directory, "state.safetensors"), {"by": "a test"})
    content = rig.read_file(path)
    for each in json.loads(run("inspect", "--json", path)):
        assert each["shape"] == list(state[each["name"]].shape)
        assert content[each["offset"] : each["offset"] + each["bytes"]] == bytes(bits(state[each["name"]]))
    shards = save_dcp({"model": state, "n": 3}, os.path.join(directory, "dcp"))
    said = {each["name"]: each for each in json.loads(run("inspect", "--json", shards))}
    assert sorted(said) == ["model.a", "model.b", "n"] and said["model.b"]["type"] == "int16" and said["n"]["type"] == "value"
    assert os.path.basename(said["model.a"]["file"]) == "__0_0.distcp"
    assert run("diff", path, path).splitlines() == ["2 same, 0 changed, 0 added, 0 removed"]


def bytes_read():
    return int(rig.read_text("/proc/self/io").split()[1])


def test_no_tensor_is_read(run, directory):
    """The bytes that the process reads do not grow with the tensors."""
    from safetensors.torch import save_file

    large = {"weight": torch.zeros(4 << 20)}
    torch.save(large, archive := os.path.join(directory, "large.pt"))
    save_file(large, other := os.path.join(directory, "large.safetensors"))
    for path in (archive, other):
        before = bytes_read()
        run("inspect", path)
        assert bytes_read() - before < 1 << 20, path


def changed(state):
    other = {**state, "model": dict(state["model"])}
    other["model"]["weight"] = state["model"]["weight"].detach().clone()
    other["model"]["weight"][3, 4] += 0.5
    other["model"]["bf16"] = state["model"]["bf16"].float()
    other["step"] = 6
    del other["model"]["fp8"]
    other["new"] = torch.ones(1)
    return other


def test_differences(run, directory):
    state = state_of()
    state["nan"] = torch.tensor([float("nan"), 1.0])
    one, other = (os.path.join(directory, name) for name in ("one.pt", "other.pt"))
    torch.save(state, one)
    torch.save(changed(state), other)
    said = {each["name"]: each for each in json.loads(run("diff", "--json", "--all", one, other, code=1))}
    kinds = {name: each["what"] for name, each in said.items() if each["what"] != "same"}
    assert kinds == {"model.weight": "changed", "model.bf16": "changed", "step": "changed", "model.fp8": "removed", "new": "added"}
    scale = float(state["model"]["weight"].detach().abs().max())
    assert said["model.weight"]["largest"] == pytest.approx(0.5, rel=1e-5)
    assert said["model.weight"]["relative"] == pytest.approx(0.5 / scale, rel=1e-4)
    assert said["model.bf16"]["detail"] == "bfloat16 [7] became float32 [7]" and said["step"]["detail"] == "5 became 6"
    assert said["nan"]["what"] == said["sparse"]["what"] == "same"
    assert run("diff", one, one).splitlines() == [f"{len(said) - 1} same, 0 changed, 0 added, 0 removed"]
    text = run("diff", one, other, code=1)
    assert text.splitlines()[-1] == f"{len(said) - 5} same, 3 changed, 1 added, 1 removed" and "model.tied" not in text
    first, second = (save_dcp({"model": {"w": torch.full((5,), value)}}, os.path.join(directory, f"d{value}")) for value in (1.0, 2.0))
    (each,) = json.loads(run("diff", "--json", first, second, code=1))
    assert (each["name"], each["largest"], each["relative"]) == ("model.w", 1.0, 1.0)


@contextlib.contextmanager
def as_user(number):
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


def large(changed=None):
    """16 tensors of 1 MiB, which no encoding makes smaller; one of zeros, and two of one storage."""
    state = {f"w{i}": torch.frombuffer(bytearray(rig.seeded_bytes(i, 1 << 20)), dtype=torch.uint8) for i in range(16)}
    state |= {"zeros": torch.zeros(1 << 18), "small": torch.arange(9.0), "half": state["w3"][: 1 << 19]}
    if changed:
        state[changed][7] ^= 1
    return state


def save_as(kind, state, path):
    from safetensors.torch import save_file

    if kind == "torch":
        torch.save(state, path)
    elif kind == "safetensors":
        path += ".safetensors"
        save_file({name: value for name, value in state.items() if name != "half"}, path)
    else:
        save_dcp(state, path)
    return path


KINDS = ["torch", "safetensors", "dcp"]


@pytest.mark.needs_mount
@pytest.mark.parametrize("kind", KINDS)
def test_stored_bytes_on_a_mount(run, cairn, kind):
    """What each tensor takes: its share of chunks. Not known until the content is in chunks, nor by a user who may not ask."""
    cairn.mount(keep="last:3", writeback_delay="50ms", history_every="100ms")
    path = save_as(kind, large(), os.path.join(cairn.mnt, "state"))
    cairn.wait()
    said = {each["name"]: each for each in json.loads(run("inspect", "--json", path))}
    for name in (f"w{i}" for i in range(16)):
        assert (1 << 20) <= said[name]["stored_bytes"] <= said[name]["bytes"] * 1.01 + 1024, said[name]
    assert said["zeros"]["stored_bytes"] < 20_000 and said["small"]["stored_bytes"] is not None
    if kind == "torch":
        assert said["half"]["stored_bytes"] == said["w3"]["stored_bytes"], "they share a storage"
    text = run("inspect", path).splitlines()
    assert text[0].split()[4] == "STORED" and text[1].split()[4].isdigit() and text[-1].endswith(" stored")
    paths = [path] if os.path.isfile(path) else [os.path.join(path, name) for name in os.listdir(path)]
    stored = sum(int(os.getxattr(each, "user.cairn.stored_bytes")) for each in paths)
    assert int(text[-1].split()[-2]) == pytest.approx(stored, abs=40_000)
    cairn.verb("snapshot", "create", cairn.mnt, "then")
    then = json.loads(run("inspect", "--json", os.path.join(cairn.mnt, ".history", "then", os.path.basename(path))))
    assert {each["name"]: each["stored_bytes"] for each in then} == {name: each["stored_bytes"] for name, each in said.items()}


@pytest.mark.needs_mount
def test_what_is_not_known_is_read(run, cairn, lane):
    """What waits in the stage; what another user than the one that mounted asks; a file that is another one now."""
    from cairnfs import _stored

    cairn.mount(writeback_delay="1h")
    path = save_as("torch", large(), os.path.join(cairn.mnt, "state"))
    assert {each["stored_bytes"] for each in json.loads(run("inspect", "--json", path))} == {None}
    assert run("diff", path, path).startswith("19 same")
    cairn.wait()
    file = _stored.File(path)
    assert _stored.differing(file, file) == [] and _stored.extents_of(file)
    with as_user(1234):
        assert _stored.differing(file, file) is None and _stored.extents_of(file) is None
    with open(path, "r+b") as changed:
        changed.write(b"P")
    cairn.wait()
    assert _stored.differing(file, file) is None and _stored.extents_of(file) is None
    now = _stored.File(path)
    assert _stored.differing(now, now) == []
    with open(path, "r+b") as changed:
        changed.write(b"P")
        changed.flush()
        now = _stored.File(path)
        assert _stored.differing(now, now) is None, "it is being changed"


def read_by(cairn, run, *arguments, code):
    """What it prints, and the bytes that the mount was asked for."""
    before = cairn.status()["mount"]["read_bytes_total"]
    said = json.loads(run("diff", "--json", *arguments, code=code))
    return said, cairn.status()["mount"]["read_bytes_total"] - before


@pytest.mark.needs_mount
@pytest.mark.parametrize("kind", KINDS)
def test_equal_chunks_are_not_read(run, cairn, kind):
    """By their names. So it is of a state in .history; and all is compared where no names tell."""
    cairn.mount(keep="last:3", writeback_delay="50ms", history_every="100ms")
    one = save_as(kind, large(), os.path.join(cairn.mnt, "one"))
    cairn.wait()
    cairn.verb("snapshot", "create", cairn.mnt, "then")
    other = save_as(kind, large("w5"), os.path.join(cairn.mnt, "other"))
    cairn.wait()
    cairn.remount(keep="last:3")  # nothing is in the page cache
    then = os.path.join(cairn.mnt, ".history", "then", os.path.basename(one))
    for first, second in (one, other), (then, other):
        said, count = read_by(cairn, run, first, second, code=1)
        assert [(each["name"], each["what"], each["largest"]) for each in said] == [("w5", "changed", 1.0)]
        limit = (4 if kind == "dcp" else 3) << 20  # the tensor of both, and less than a MiB; of a directory the kernel may read ahead
        assert count < limit, f"{count} bytes were read"
    said, count = read_by(cairn, run, then, one, code=0)
    assert said == [] and count < 1 << 20
    plain = save_as(kind, large("w5"), os.path.join(cairn.root, "plain"))
    assert [each["name"] for each in read_by(cairn, run, one, plain, code=1)[0]] == ["w5"]


@pytest.mark.needs_mount
def test_equal_bytes_need_an_equal_form(run, cairn):
    """Tensors that show one storage in another way are not the same, although no byte of a tensor differs."""
    cairn.mount()
    base, paths = torch.arange(1 << 18, dtype=torch.float32), []
    for name, view in ("one", base.view(512, 512)), ("other", base.view(512, 512).t()), ("later", base[1:]), ("sooner", base[:-1]):
        torch.save({"a": view, "b": base}, path := os.path.join(cairn.mnt, name))
        paths.append(path)
    cairn.wait()
    assert "1 same, 1 changed" in run("diff", *paths[:2], code=1)
    assert "1 same, 1 changed" in run("diff", *paths[2:], code=1)


def test_as_a_program(request, directory):
    torch.save({"a": torch.ones(3)}, path := os.path.join(directory, "state.pt"))
    said = rig.run(sys.executable, "-m", "cairnfs", "inspect", path, env=environment(request.config))
    assert said.splitlines()[-1] == "1 tensors and 0 other values, 12 bytes"


def test_what_is_no_checkpoint(run, directory):
    torch.save({"a": torch.ones(1000)}, path := os.path.join(directory, "whole.pt"))
    content = rig.read_file(path)
    cut = rig.write_file(os.path.join(directory, "cut.pt"), content[: len(content) // 2])
    text = rig.write_file(os.path.join(directory, "text"), "x")
    empty = os.path.join(directory, "directory")
    os.mkdir(empty)
    torch.save({"a": Unsafe()}, unsafe := os.path.join(directory, "unsafe.pt"))
    for path in (cut, text, empty, unsafe, os.path.join(directory, "none")):
        said = run("inspect", path, code=2)
        assert said.startswith("python -m cairnfs inspect: ") and "Traceback" not in said, said
    assert "invalid choice" in run("frob", code=2)


class Unsafe:
    pass
