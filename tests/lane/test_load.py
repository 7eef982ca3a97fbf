# SPDX-License-Identifier: Apache-2.0
"""cairnfs.load: the objects are those of torch.load, on any filesystem; what it leaves to torch; tensors that are filled again."""
import collections
import copy
import ctypes
import io
import mmap
import os
import pickle
import zipfile

import pytest
import torch

import rig
from loading import bits, compare
from test_format import OBJECTS, Point, model_state

LARGE = {
    "large": lambda: {"a": torch.arange(3_000_000), "b": torch.arange(700_001.0), "t": torch.arange(999_000.0).view(999, 1000).t(),
                      "small": torch.arange(9)},
    "tied, large": lambda: (lambda whole: {"whole": whole, "part": whole[1000:-7], "again": [whole.view(-1, 2), whole]})(
        torch.arange(800_000.0)),
    "parameters": lambda: {"p": torch.nn.Parameter(torch.arange(500_000.0)), "q": torch.nn.Parameter(torch.ones(3), requires_grad=False)},
}
ALL = {**OBJECTS, **LARGE}
AHEAD = {"quantized", "sparse", "nested"}  # by weights_only: pickles that may look into a tensor
REFUSED = {"object", "module"}


@pytest.fixture
def ways(lane, monkeypatch):
    """Notes which way a load went: "late", "ahead", "torch"."""
    from cairnfs import _load

    noted = []
    for name, way in (("load_late", "late"), ("load_ahead", "ahead"), ("plain_load", "torch")):
        def note(*args, original=getattr(_load, name), way=way, **kwargs):
            noted.append(way)
            return original(*args, **kwargs)

        monkeypatch.setattr(_load, name, note)
    return noted


def outcome(load, *args, **kwargs):
    try:
        return load(*args, **kwargs), None
    except Exception as why:
        return None, why


def check_as_torch(lane, path, **how):
    theirs, refused = outcome(torch.load, path, **how)
    ours, why = outcome(lane.load, path, **how)
    assert (type(why), str(why)) == (type(refused), str(refused))
    compare(ours, theirs)


@pytest.mark.parametrize("name", ALL)
def test_objects_are_those_of_torch(lane, ways, directory, name):
    """Every kind of object, by weights_only and without: values, dtypes, strides, aliases, attributes; torch's refusals in its words."""
    path = os.path.join(directory, "state.pt")
    torch.save(ALL[name](), path)
    check_as_torch(lane, path, weights_only=True)
    assert ways[0] == ("ahead" if name in AHEAD else "torch" if name in REFUSED else "late"), ways
    ways.clear()
    check_as_torch(lane, path, weights_only=False)
    assert ways == ["ahead"]
    for map_location in ("cpu", torch.device("cpu"), "meta", lambda storage, location: storage, {"cpu": "cpu"}):
        if name not in ("nested", "storage") or map_location != "meta":
            check_as_torch(lane, path, map_location=map_location, weights_only=False)


@pytest.mark.needs_mount
def test_objects_on_a_mount(lane, ways, cairn):
    """From DRAM, and from NVMe behind a restart: the same, by our own way."""
    cairn.mount()
    torch.manual_seed(5)
    for index, name in enumerate(ALL):
        torch.save(ALL[name](), os.path.join(cairn.mnt, f"{index}.pt"))
    for cold in (False, True):
        for index, name in enumerate(ALL):
            for weights_only in (True, False):
                check_as_torch(lane, os.path.join(cairn.mnt, f"{index}.pt"), weights_only=weights_only)
        if not cold:
            cairn.umount()
            cairn.drop_stage()
            cairn.mount()
    assert ways.count("late") > 2 * len(LARGE) and ways.count("ahead") >= 2 * len(ALL)


@pytest.mark.needs_mount
def test_reads_pass_by_the_page_cache(lane, cairn):
    """Nothing of a large tensor is in the cache afterwards: the bytes went straight to the tensor."""
    cairn.mount()
    path = os.path.join(cairn.mnt, "state.pt")
    state = {"a": torch.arange(4_000_000)}
    lane.save(state, path, lazy=False).result()
    cairn.umount()
    cairn.drop_stage()
    cairn.mount()
    assert torch.equal(lane.load(path)["a"], state["a"])
    with rig.opened(path, os.O_RDONLY) as fd:
        assert cached_pages(fd) < os.fstat(fd).st_size // 4096 // 10
        os.pread(fd, 8 << 20, 0)
        assert cached_pages(fd) > 1000, "the count sees what is cached"


def cached_pages(fd):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = ctypes.c_size_t(os.fstat(fd).st_size)
    pages = (ctypes.c_ubyte * (size.value // 4096 + 1))()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    assert libc.mincore(ctypes.c_void_p(address), size, pages) == 0
    libc.munmap(ctypes.c_void_p(address), size)
    return sum(page & 1 for page in pages)


def test_many_small_and_threads(lane, ways, directory):
    """More records than a request has pieces, of sizes around its borders, by one thread and by many."""
    sizes = [1, 63, 64, 65, 4096, (1 << 20) - 200, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20]
    state = [torch.randint(256, (sizes[index % len(sizes)],), dtype=torch.uint8) for index in range(40)]
    state += [torch.full((index % 9,), index) for index in range(3000)]
    path = os.path.join(directory, "state.pt")
    torch.save(state, path)
    for threads in (1, 3, 64):
        compare(lane.load(path, threads=threads), state)
    assert ways == ["late"] * 3
    with pytest.raises(OSError, match="threads is 0 to 64"):
        lane.load(path, threads=65)


def test_archives_of_others(lane, ways, directory):
    """Records without the alignment that torch gives them: headers are read first. Compressed ones go to torch."""
    state, path, other = model_state(), os.path.join(directory, "state.pt"), os.path.join(directory, "other.pt")
    torch.save(state, path)
    for how, way in ((zipfile.ZIP_STORED, "late"), (zipfile.ZIP_DEFLATED, "torch")):
        ways.clear()
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(other, "w", how) as written:
            for info in archive.infolist():
                written.writestr(info.filename, archive.read(info))
        compare(lane.load(other), torch.load(other))
        assert ways == [way]


def test_alignments_of_torch(lane, ways, directory):
    """Records that are aligned otherwise, without checksums, and names of archives that are long or no ASCII."""
    config, state = torch.utils.serialization.config, {"a": torch.ones(5), "b": torch.arange(700_000.0), "c": torch.arange(3)}
    for alignment in (16, 4096):
        for name in ("state.pt", "ü.pt", "x" * 200):
            path = os.path.join(directory, name)
            with config.patch({"save.storage_alignment": alignment}):
                torch.save(state, path)
            compare(lane.load(path), state)
    assert set(ways) == {"late"}


class Reversed:
    """Written as by a machine of the other byte order: byteorder says so."""

    def __init__(self, state, path):
        torch.save(state, io_file := io.BytesIO())
        with zipfile.ZipFile(io_file) as archive, zipfile.ZipFile(path, "w") as written:
            for info in archive.infolist():
                data = archive.read(info)
                written.writestr(info.filename, b"big" if info.filename.endswith("/byteorder") else data)


def test_what_goes_to_torch(lane, ways, directory):
    """Legacy files, mapped ones, TorchScript, open files, "meta": torch.load itself reads them."""
    state = {"a": torch.arange(100.0), "b": torch.ones(3, 4)}
    path, legacy, script = (os.path.join(directory, name) for name in ("state.pt", "legacy.pt", "script.pt"))
    torch.save(state, path)
    torch.save(state, legacy, _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.script(torch.nn.Linear(3, 4)), script)
    compare(lane.load(legacy), state)
    compare(lane.load(path, mmap=True), state)
    compare(lane.load(io.BytesIO(rig.read_file(path))), state)
    assert lane.load(path, "meta")["a"].device.type == "meta"
    assert ways == ["torch"] * 4
    with pytest.warns(UserWarning, match="TorchScript"):
        assert isinstance(lane.load(script, weights_only=False), torch.jit.ScriptModule)
    assert ways == ["torch"] * 5
    with torch.serialization.skip_data():
        lane.load(path)
    assert ways == ["torch"] * 6


def test_the_other_byte_order(lane, ways, directory):
    """torch swaps as it is handed a storage: the bytes are there by then."""
    path = os.path.join(directory, "state.pt")
    Reversed(state := {"a": torch.arange(100, dtype=torch.int32), "b": torch.arange(500_000)}, path)
    compare(lane.load(path), torch.load(path))
    assert ways == ["ahead"] and not torch.equal(lane.load(path)["a"], state["a"])


class Looks:
    """Its state is looked at by code of the pickle."""

    def __init__(self):
        self.value = torch.arange(400_000.0)

    def __setstate__(self, state):
        self.sum = float(state["value"].sum())
        self.__dict__.update(state)


def test_code_of_a_pickle_sees_the_content(lane, ways, directory):
    """Without weights_only a pickle may do anything with a tensor, at once."""
    path = os.path.join(directory, "state.pt")
    torch.save([Looks() for _ in range(9)], path)
    assert [found.sum for found in lane.load(path, weights_only=False)] == [float(torch.arange(400_000.0).sum())] * 9
    with torch.serialization.safe_globals([Looks]):
        found = lane.load(path)
    assert [each.sum for each in found] == [float(torch.arange(400_000.0).sum())] * 9
    assert ways == ["ahead", "ahead"]


def test_a_small_window(lane, ways, directory, monkeypatch):
    """Records that are asked for in another order than they lie in, and more than are read ahead."""
    from cairnfs import _load

    state = {str(index): torch.full((1000 + index,), index) for index in range(300)}
    path, other = os.path.join(directory, "state.pt"), os.path.join(directory, "other.pt")
    torch.save(state, path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(other, "w") as written:
        for info in sorted(archive.infolist(), key=lambda info: hash(info.filename)):
            written.writestr(info.filename, archive.read(info))
    monkeypatch.setattr(_load, "WINDOW", 50_000)
    for file in (path, other):
        compare(lane.load(file, weights_only=False), state)
    assert ways == ["ahead", "ahead"]


def test_location_of_devices(lane, directory):
    """Tensors of a device that this machine lacks: torch's error, and "cpu" takes them to host memory."""
    path = os.path.join(directory, "state.pt")
    torch.save({"a": torch.arange(300_000)}, path)
    data = rig.read_file(path)
    assert data.count(b"\x03\x00\x00\x00cpu") == 1
    rig.write_file(path, data.replace(b"\x03\x00\x00\x00cpu", b"\x03\x00\x00\x00xpu"))
    compare(lane.load(path, "cpu"), {"a": torch.arange(300_000)})
    check_as_torch(lane, path)


def test_default_device(lane, directory):
    """A default device is for new tensors, not for those of a file."""
    path = os.path.join(directory, "state.pt")
    torch.save(state := {"a": torch.arange(300_000), "b": torch.ones(3)}, path)
    with torch.device("meta"):
        found = lane.load(path)
    compare(found, state)


# --- into ---------------------------------------------------------------------------------------------------------------------------


def zeroed(state):
    """A deep copy with other values; tied tensors stay tied."""
    made = copy.deepcopy(state)
    with torch.no_grad():
        for tensor in tensors_in(made):
            tensor.zero_()
    return made


def tensors_in(state):
    if isinstance(state, torch.Tensor):
        return [state]
    if isinstance(state, (dict, list, tuple)):
        return [tensor for value in (state.values() if isinstance(state, dict) else state) for tensor in tensors_in(value)]
    return []


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


def test_pickles_that_torch_refuses(lane, directory, monkeypatch):
    """torch's own error and text; no memory is taken for tensors, and none is read."""
    from cairnfs import _load

    torch.save([torch.ones(3), Point()], path := os.path.join(directory, "state.pt"))
    monkeypatch.setattr(_load, "new_storage", lambda size: pytest.fail("memory was taken"))
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed") as ours:
        lane.load(path)
    with pytest.raises(pickle.UnpicklingError) as theirs:
        torch.load(path)
    assert str(ours.value) == str(theirs.value)


# --- safetensors --------------------------------------------------------------------------------------------------------------------


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
