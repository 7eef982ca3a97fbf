# SPDX-License-Identifier: Apache-2.0
"""cairnfs.load: the objects are those of torch.load, on any filesystem; what it leaves to torch; tensors that are filled again."""
import ctypes
import io
import mmap
import os
import pathlib
import pickle
import zipfile

import pytest
import torch

import rig
from loading import compare, outcome
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


PLAIN_CALLS = {
    "mmap": lambda path: torch.load(path, mmap=True),
    "a module": lambda path: torch.load(path, pickle_module=pickle, weights_only=False),
    "encoding": lambda path: torch.load(path, encoding="latin1", weights_only=False),
    "an open file": lambda path: torch.load(io.BytesIO(rig.read_file(path))),
    "a setting": lambda path: mapped(path),
}
OUR_CALLS = {
    "a path": (lambda path: torch.load(path), "late"),
    "a Path": (lambda path: torch.load(pathlib.Path(path), "cpu", weights_only=True), "late"),
    "all": (lambda path: torch.serialization.load(f=path, map_location=None, pickle_module=None, weights_only=False, mmap=False), "ahead"),
}


def mapped(path):
    with torch.utils.serialization.config.patch({"load.mmap": True}):
        return torch.load(path)


def test_install(lane, ways, directory, monkeypatch):
    """torch.load goes our way, where it is one that ours knows; uninstall() takes it back."""
    plain = torch.load
    torch.save(state := {"a": torch.arange(300_000), "n": 5}, path := os.path.join(directory, "state.pt"))
    lane.install()
    for call, way in OUR_CALLS.values():
        ways.clear()
        compare(call(path), state)
        assert ways == [way]
    for name, call in PLAIN_CALLS.items():
        ways.clear()
        compare(call(path), state)
        assert ways == ["torch"], name
    ways.clear()
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        compare(torch.load(path), state)
    compare(torch.load(path, weights_only=True), state)
    assert ways == ["torch", "late"]
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="Only one of"):
        torch.load(path, weights_only=True)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    torch.save([Point()], path)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=False)
    lane.uninstall()
    assert torch.load is plain is torch.serialization.load


def test_waits_for_lazy_saves_of_the_path(lane, directory):
    """A program that saves lazily with no line changed loads what it saved."""
    lane.install(lazy=True)
    for index in range(20):
        torch.save({"a": torch.full((100_000,), index)}, path := os.path.join(directory, f"{index}.pt"))
        assert int(lane.load(path)["a"].sum()) == index * 100_000


def test_a_torch_of_another_form(lane, ways, directory, monkeypatch):
    """Its loader asks otherwise: it loads by itself."""
    from cairnfs import _load

    torch.save(state := {"a": torch.arange(300_000)}, path := os.path.join(directory, "state.pt"))
    original = torch.serialization._load
    monkeypatch.setattr(_load, "_knows_torch", False)
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "_load", lambda archive, *args, **kwargs: original(archive, *args, **kwargs))
        compare(lane.load(path), state)
    assert ways == ["torch"]
    compare(lane.load(path), state)
    assert ways == ["torch", "late"]


def test_pickles_of_other_protocols(lane, directory):
    """Some that weights_only reads, and some that it does not: in torch's words."""
    path = os.path.join(directory, "state.pt")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        torch.save({"a": torch.arange(300_000), "b": {"c": 2**70}}, path, pickle_protocol=protocol)
        check_as_torch(lane, path)
        check_as_torch(lane, path, weights_only=False)


def test_a_device_of_others(lane, ways, directory):
    """A storage is filled before it goes to a device that a package of the program has registered."""
    registry = torch.serialization._package_registry
    before = list(registry)
    torch.serialization.register_package(1, lambda storage: None, lambda storage, at: storage.clone() if at == "foo" else None)
    torch.save({"a": torch.arange(300_000), "b": torch.arange(5)}, path := os.path.join(directory, "state.pt"))
    rig.write_file(path, rig.read_file(path).replace(b"\x03\x00\x00\x00cpu", b"\x03\x00\x00\x00foo"))
    try:
        compare(lane.load(path), {"a": torch.arange(300_000), "b": torch.arange(5)})
        into = {"a": torch.zeros(300_000, dtype=torch.int64), "b": torch.zeros(5, dtype=torch.int64)}
        compare(lane.load(path, into=into), {"a": torch.arange(300_000), "b": torch.arange(5)})
    finally:
        registry[:] = before
    assert ways == ["late", "late"]


OPENS = """
import os, sys, torch, cairnfs
seen = []
sys.addaudithook(lambda event, args: seen.append(args) if event == "open" else None)
cairnfs.load(sys.argv[1])
print([args[1:] for args in seen if args[0] == sys.argv[1]] == [("r", os.O_RDONLY | os.O_CLOEXEC)])
"""


def test_an_audit_hook_sees_it(lane, python, directory):
    """As any open of Python: the acts that wait for lazy saves are seen by that."""
    torch.save({"a": torch.ones(3)}, path := os.path.join(directory, "state.pt"))
    done = python.run(OPENS, [path])
    assert done.stdout == "True\n", done.stderr


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


def loads_of(path):
    return dict(part.split("=") for part in os.getxattr(path, "user.cairn.lane").decode().split()[1:])["loads"]


@pytest.mark.needs_mount
def test_loads_of_one_file_share_the_page_cache(lane, cairn):
    """One load reads past the page cache. As soon as another one has the file open, both read by it; the mount tells how many there are."""
    from cairnfs._reading import Reading

    cairn.mount()
    torch.save({"a": torch.arange(6_000_000)}, path := os.path.join(cairn.mnt, "state.pt"))
    memory = [mmap.mmap(-1, 40 << 20) for _ in range(3)]
    places = [ctypes.addressof(ctypes.c_char.from_buffer(pages)) for pages in memory]

    def read(reading, number, at):
        """Does it pass by the page cache?"""
        before = pages_of(path)
        reading.wait(reading.get([(at, 20 << 20, places[number] + at, 0)], None), 1)
        return pages_of(path) == before

    with Reading(path) as first:
        first.owns_all = False
        assert read(first, 0, 0) and loads_of(path) == "1", "it is alone"
        with open(path, "rb"):
            assert read(first, 0, 0) and loads_of(path) == "1", "no load"
        with Reading(path) as second:
            second.owns_all = False
            assert loads_of(path) == "2"
            assert not read(second, 1, 0) and not read(first, 0, 20 << 20)
    with Reading(path) as third:
        third.owns_all = False
        assert loads_of(path) == "1" and read(third, 2, 0)
    content = rig.read_file(path)
    assert memory[0][: 20 << 20] == content[: 20 << 20] and memory[0][20 << 20 :] == content[20 << 20 : 40 << 20]
    assert memory[1][: 20 << 20] == memory[2][: 20 << 20] == content[: 20 << 20]


def pages_of(path):
    """How many of the file are in the page cache."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as pages:
        found = (ctypes.c_ubyte * (len(pages) // mmap.PAGESIZE + 1))()
        assert ctypes.CDLL(None).mincore(ctypes.byref(ctypes.c_char.from_buffer(pages)), ctypes.c_size_t(len(pages)), found) == 0
        return sum(page & 1 for page in found)
