# SPDX-License-Identifier: Apache-2.0
"""The files: byte for byte those of torch.save, but for the serialization id; read by torch in all its ways, and by zipfile."""
import collections
import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile

import pytest
import torch

TAIL = ".data/serialization_id"


def model_state():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.BatchNorm1d(500), torch.nn.Linear(500, 7))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 300)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 5, "rng": torch.get_rng_state()}


def shared():
    whole = torch.randn(40, 30)
    return {"tied": [whole, whole.t(), whole[3:], whole[:, ::2]], "again": whole}


def kinds():
    names = ["uint8", "int8", "int16", "int32", "int64", "bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
    names += [name for name in dir(torch) if name.startswith(("float8_", "uint16", "uint32", "uint64"))
              and isinstance(getattr(torch, name), torch.dtype)]
    return {name: torch.arange(96, dtype=torch.uint8).view(getattr(torch, name)) if name != "bool" else torch.arange(96) % 2 == 0
            for name in names}


def quantized():
    return [
        torch.quantize_per_tensor(torch.randn(50, 20), 0.1, 3, torch.qint8),
        torch.quantize_per_channel(torch.randn(5, 20), torch.rand(5) + 0.1, torch.zeros(5), 0, torch.quint8),
    ]


def sparse():
    dense = torch.randn(30, 20) * (torch.rand(30, 20) > 0.7)
    return [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()]


def nested():
    return torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)], layout=torch.jagged)


class Point:
    def __init__(self):
        self.place = torch.ones(70000)
        self.name = "ü"


OBJECTS = {
    "model": model_state,
    "shared": shared,
    "kinds": kinds,
    "quantized": quantized,
    "sparse": sparse,
    "nested": nested,
    "complex": lambda: [torch.randn(40, dtype=torch.complex64).conj(), torch.randn(40, dtype=torch.complex64).imag],
    "empty": lambda: {"a": torch.empty(0), "b": torch.empty(3, 0), "c": torch.ones(5)},
    "no tensor": lambda: {"a": 1, "b": ["x", None, 2.5]},
    "a number": lambda: 5,
    "strides": lambda: torch.randn(60, 50).t()[3:40:3],
    "meta": lambda: {"m": torch.empty(5, 6, device="meta"), "c": torch.ones(9)},
    "object": Point,
    "module": lambda: torch.nn.Linear(200, 200),
    "storage": lambda: [torch.ones(50).untyped_storage(), torch.ones(9).storage()],
    "ordered": lambda: collections.OrderedDict(a=torch.ones(3), b=torch.nn.Parameter(torch.ones(100, 300))),
    "views of one": lambda: list(torch.arange(1000.0).split(7)),
    "many": lambda: [torch.full((index % 50,), float(index)) for index in range(1500)],
    "numpy": lambda: torch.from_numpy(__import__("numpy").arange(1000.0)),
    "sizes around 64": lambda: [torch.arange(size, dtype=torch.uint8) for size in range(200)],
}


def id_places(file):
    """[(place, length)] of what depends on the serialization id in an archive: its record, and its checksum twice."""
    with zipfile.ZipFile(file) as archive:
        info = archive.infolist()[-1]
        assert info.filename.endswith(TAIL)
        file.seek(archive.start_dir)
        entry = archive.start_dir + file.read().rindex(info.filename.encode()) - 46
    file.seek(info.header_offset + 26)
    at = info.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
    crc = info.CRC.to_bytes(4, "little")
    for place in (at + info.file_size + 4, entry + 16):
        file.seek(place)
        assert file.read(4) == crc
    return [(at, info.file_size), (at + info.file_size + 4, 4), (entry + 16, 4)]


def without_id(data):
    """The bytes of an archive with the record of the serialization id, and its checksum, blanked."""
    data = bytearray(data)
    for place, length in id_places(io.BytesIO(data)):
        data[place : place + length] = bytes(length)
    return bytes(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def make_twins(directory, name):
    """Paths of one name in two directories: the archive carries the name."""
    for side in ("ours", "theirs"):
        os.makedirs(os.path.join(directory, side), exist_ok=True)
        yield os.path.join(directory, side, name)


def check_same(ours, theirs):
    first, second = without_id(read(ours)), without_id(read(theirs))
    if first != second:
        at = next(index for index, (a, b) in enumerate(zip(first, second)) if a != b) if first[: len(second)] != second else len(second)
        raise AssertionError(f"{len(first)} and {len(second)} bytes, different from {at}: {first[at : at + 16]} {second[at : at + 16]}")


@pytest.mark.parametrize("name", OBJECTS)
def test_bytes_are_those_of_torch(lane, directory, name):
    """Every kind of object: the file is torch.save's, whether it is copied lazily or at once."""
    obj = OBJECTS[name]()
    ours, theirs = make_twins(directory, "state.pt")
    torch.save(obj, theirs)
    for lazy in (False, "all"):
        lane.save(obj, ours, lazy=lazy).result()
        check_same(ours, theirs)
        with zipfile.ZipFile(ours) as archive:
            assert archive.testzip() is None
        os.unlink(ours)


@pytest.mark.parametrize("name", ["a", "state", "state.v2.pt", "ümlaut.pt", "with space.bin", ".pt.x", "x" * 200 + ".pt"])
def test_names_of_archives(lane, directory, name):
    """The archive is named as torch names it."""
    ours, theirs = make_twins(directory, name)
    torch.save({"a": torch.ones(5)}, theirs)
    lane.save({"a": torch.ones(5)}, ours).result()
    check_same(ours, theirs)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_protocols(lane, directory, protocol):
    """pickle_protocol and pickle_module are torch.save's."""
    ours, theirs = make_twins(directory, "state.pt")
    torch.save(OBJECTS["shared"](), theirs, pickle_protocol=protocol)
    torch.manual_seed(0)
    state = OBJECTS["shared"]()
    torch.save(state, theirs, pickle_protocol=protocol)
    lane.save(state, ours, pickle_protocol=protocol).result()
    check_same(ours, theirs)


def test_settings_of_torch(lane, directory):
    """Alignment and checksums as torch.utils.serialization.config says."""
    config = torch.utils.serialization.config
    ours, theirs = make_twins(directory, "state.pt")
    state = {"a": torch.ones(5), "b": torch.ones(70000), "c": torch.arange(3)}
    for settings in ({"save.storage_alignment": 4096}, {"save.storage_alignment": 16}):
        with config.patch(settings):
            torch.save(state, theirs)
            lane.save(state, ours).result()
        check_same(ours, theirs)
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state, theirs)
        lane.save(state, ours).result()
    finally:
        torch.serialization.set_crc32_options(before)
    assert len(read(ours)) == len(read(theirs))
    assert torch.equal(torch.load(ours)["b"], state["b"])


def test_read_in_every_way(lane, directory):
    """torch.load: whole, mapped, weights only, with offsets that it calculates; map_location."""
    state, path = model_state(), os.path.join(directory, "state.pt")
    lane.save(state, path).result()
    config = torch.utils.serialization.config
    for how in ({}, {"mmap": True}, {"weights_only": True}, {"weights_only": False}, {"map_location": "cpu"}, {"map_location": "meta"}):
        check_loaded(torch.load(path, **how), state, how.get("map_location") != "meta")
    with config.patch({"load.calculate_storage_offsets": True}):
        check_loaded(torch.load(path, mmap=True), state, True)


def check_loaded(loaded, state, values):
    for name, tensor in state["model"].items():
        assert loaded["model"][name].shape == tensor.shape
        assert not values or torch.equal(loaded["model"][name], tensor)
    assert loaded["step"] == state["step"] and loaded["optimizer"].keys() == state["optimizer"].keys()


def test_random_objects(lane, directory, rng, full):
    """Random nestings of tensors of random kinds, shapes and views."""
    kinds_of = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
    for _ in range(400 if full else 25):
        base = [torch.zeros(rng.randrange(1 << rng.randrange(1, 17)), dtype=rng.choice(kinds_of)) for _ in range(rng.randrange(1, 6))]
        obj = {str(index): random_view(rng, rng.choice(base)) for index in range(rng.randrange(12))}
        ours, theirs = make_twins(directory, f"s{rng.randrange(10)}.pt")
        torch.save(obj, theirs)
        lane.save(obj, ours, lazy=rng.choice([True, False, "all"])).result()
        check_same(ours, theirs)


def random_view(rng, tensor):
    if not len(tensor):
        return tensor
    first = rng.randrange(len(tensor))
    return rng.choice([tensor, tensor[first:], tensor[first :: rng.randrange(1, 4)], tensor.view(1, -1),
                       torch.nn.Parameter(tensor, requires_grad=False)])


def same_bytes(ours, theirs, step=16 << 20):
    """Compares large archives but for the serialization id, which lies at the same place in both."""
    with open(ours, "rb") as first, open(theirs, "rb") as second:
        places = id_places(first)
        assert places == id_places(second) and os.path.getsize(ours) == os.path.getsize(theirs)
        for at in range(0, os.path.getsize(ours), step):
            pair = []
            for file in (first, second):
                file.seek(at)
                part = bytearray(file.read(step))
                for place, length in places:
                    begin, end = max(place - at, 0), min(place + length - at, len(part))
                    part[begin:end] = bytes(max(end - begin, 0)) if begin < end else part[begin:end]
                pair.append(part)
            assert pair[0] == pair[1], f"different within 16 MiB from {at}"


@pytest.mark.needs_mount
def test_above_4_gib(lane, cairn, directory, full):
    """Records and offsets above 4 GiB, on a mount: the file is torch.save's, byte for byte, and is loaded again."""
    if not full:
        pytest.skip("skipped: only with --full (8.6 GB are written)")
    cairn.mount(nvme="6G")
    large = torch.arange((4 << 30) // 8 + 512).view(torch.uint8)
    big = {"a": torch.ones(10), "big": large, "after": torch.arange(100), "e": torch.empty(0), "z": torch.ones(7)}
    ours, theirs = os.path.join(cairn.mnt, "state.pt"), os.path.join(directory, "state.pt")
    torch.save(big, theirs)
    lane.save(big, ours, lazy="all").result()
    same_bytes(ours, theirs)
    loaded = torch.load(ours, mmap=True)
    assert (torch.equal(loaded["after"], big["after"]) and torch.equal(loaded["z"], big["z"])
            and torch.equal(loaded["big"][-4096:], large[-4096:]))


OLD = os.environ.get("CAIRN_OLD_TORCH", "")  # a Python with torch 2.4


def test_oldest_torch(lane, directory, programs):
    """torch 2.4 reads what the newest saved through the lane, and saves through the lane what it saves itself."""
    if not OLD:
        pytest.skip("skipped: $CAIRN_OLD_TORCH names no Python with torch 2.4")
    path = os.path.join(directory, "new.pt")
    lane.save(model_state(), path).result()
    done = subprocess.run([OLD, __file__, path, directory], env=programs, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def run_by_old(path, directory):
    import cairnfs

    loaded = torch.load(path, weights_only=True, mmap=True)
    check_loaded(loaded, model_state(), True)
    for name in ("model", "shared", "quantized", "sparse", "empty", "object", "many", "sizes around 64"):
        obj = OBJECTS[name]()
        ours, theirs = make_twins(directory, "state.pt")
        torch.save(obj, theirs)
        cairnfs.save(obj, ours, lazy="all").result()
        check_same(ours, theirs)
    print(torch.__version__, sys.version)


if __name__ == "__main__":
    run_by_old(*sys.argv[1:])
