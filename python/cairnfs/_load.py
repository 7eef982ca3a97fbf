# SPDX-License-Identifier: Apache-2.0
"""load(): the objects that torch.load gives, with the bytes of tensors read by several threads, past the page cache of a mount.

torch's own code (torch.serialization._load) reads the pickle and makes the tensors; only the reader that it asks for records is ours. So
what a pickle may do, and each exception of it, is that of the torch that runs. Two ways:

- Late: storages are handed out before they are filled. Only for weights_only, and for pickles of which each global is known to look at no
  element of a tensor (LATE).
- Ahead: records are read in the order of the file before they are asked for, and handed out when they are filled.
"""
from __future__ import annotations

import ctypes
import inspect
import io
import os
import pickle
from typing import Any

import torch

from . import _archive, _into
from . import _library as lib
from ._log import logger
from ._reading import NotCovered, Reading, new_storage

plain_load = torch.serialization.load  # before anything is patched
WINDOW = 256 << 20  # bytes that are read ahead of what the pickle has asked for
_knows_torch = False
FORCE = ("1", "y", "yes", "true")
LATE = frozenset({
    "collections.OrderedDict", "collections.Counter", "torch.Size", "torch.device", "_codecs.encode", "builtins.bytearray",
    "builtins.set", "builtins.complex", "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_meta_tensor_no_storage", "torch.storage.UntypedStorage",
})  # fmt: skip


def load(
    path: str | os.PathLike[str], map_location: Any = None, *, mmap: bool = False, weights_only: bool = True, into: Any = None,
    threads: int | None = None
) -> Any:  # fmt: skip
    """Returns what torch.load() returns, and raises what it raises of a path, an archive or a pickle. What is no archive of torch.save with
    plain records, and mmap=True, goes to torch.load itself. .safetensors: as cairnfs.safetensors.load_file().

    OSError: the bytes cannot be read (EIO: damaged; EBADMSG: changed in place meanwhile). No tensor is handed out then.
    into: containers of tensors of the same keys, shapes and dtypes, in host memory, e.g. model.state_dict(). Their memory is filled, and
    the result has them in the place of new tensors. ValueError: they do not fit, and nothing was written. OSError: they are a mixture.
    threads: that read; None: 4.
    """
    try:
        return load_here(path, map_location, mmap, weights_only, into, threads)
    except (NotCovered, lib.NoLibrary) as why:
        logger.debug("torch loads %s: %s", path, why)
    found = plain_load(path, map_location, weights_only=weights_only, mmap=mmap)
    return found if into is None else _into.copy(into, found)


def load_here(path, map_location, mmap, weights_only, into, threads):
    if mmap:
        raise NotCovered("mmap")
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str) or "\0" in os.fspath(path):
        raise NotCovered("a path that is no text")
    if os.fspath(path).endswith(".safetensors"):
        return load_safetensors(path, map_location, into, threads)
    check_modes(map_location)
    weights_only = weights_only or os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "").lower() in FORCE
    with Reading(path, threads) as reading:
        if reading.read(0, 4) != b"PK\3\4":
            raise NotCovered("no archive")
        reader = torch._C.PyTorchFileReader(reading.file())
        if "constants.pkl" in reader.get_all_records():
            raise NotCovered("TorchScript")
        alignment = int(reader.get_record(".storage_alignment")) if reader.has_record(".storage_alignment") else 64
        archive = _archive.Archive(reading, alignment)
        if weights_only and is_host(map_location) and is_late(reader):
            return load_late(reading, reader, archive, map_location, into)
        if weights_only:
            refuse_early(reading, path)
        found = load_ahead(reading, reader, archive, map_location, weights_only)
    return found if into is None else _into.copy(into, found)


def load_safetensors(path, map_location, into, threads):
    if not is_host(map_location):
        raise NotCovered("safetensors to a device")
    from . import safetensors

    return safetensors.load_file(path, into, threads)


def check_modes(map_location):
    """What is no load of bytes into host memory of this byte order."""
    if torch.serialization._is_meta_location(map_location) if hasattr(torch.serialization, "_is_meta_location") else \
            str(map_location) == "meta":  # fmt: skip
        raise NotCovered("no bytes are to be loaded")
    if torch._guards.detect_fake_mode(None) is not None:
        raise NotCovered("tensors without content")
    if getattr(getattr(torch.serialization, "_serialization_tls", None), "skip_data", False):
        raise NotCovered("torch.serialization.skip_data() is on")
    if not knows_torch():
        raise NotCovered(f"torch {torch.__version__}, whose loader is of another form")


def knows_torch():
    """This torch asks our reader for storages in the way that we answer. Tried until it was seen once."""
    global _knows_torch
    _knows_torch = _knows_torch or asks_as_known()
    return _knows_torch


def asks_as_known():
    buffer, probe = io.BytesIO(), {"a": torch.arange(5), "b": torch.ones(2, dtype=torch.bfloat16)}
    with torch.device("cpu"):
        torch.serialization.save(probe, buffer)
    asked = []

    class Probe(Zip):
        def get_storage_from_record(self, name, nbytes, dtype):
            asked.append((name, nbytes))
            return Holder(self.reader.get_storage_from_record(name, nbytes, dtype)._typed_storage()._untyped_storage)

    try:
        names = list(inspect.signature(torch.serialization._load).parameters)
        found = unpickle(Probe(torch._C.PyTorchFileReader(io.BytesIO(buffer.getvalue()))), None, True)
        same = all(torch.equal(found[name], probe[name]) for name in probe)
        return names[:3] == ["zip_file", "map_location", "pickle_module"] and asked == [("data/0", 40), ("data/1", 4)] and same
    except Exception as why:
        logger.debug("torch's loader is of another form: %r", why)
        return False


def is_host(map_location):
    return map_location is None or map_location == "cpu" or map_location == torch.device("cpu")


def is_late(reader):
    """No global of the pickle looks into a tensor. torch's own list of them; what it cannot read is read ahead, and refused by torch."""
    try:
        names = torch._weights_only_unpickler.get_globals_in_pkl(io.BytesIO(reader.get_record("data.pkl")))
    except Exception:
        return False
    little = not reader.has_record("byteorder") or reader.get_record("byteorder") == b"little"
    return little and all(name in LATE or is_of_types(name) for name in names)


def refuse_early(reading, path):
    """What torch will refuse, before memory is taken: its own error."""
    unsafe_globals = getattr(torch.serialization, "get_unsafe_globals_in_checkpoint", None)  # torch 2.5
    try:
        is_refused = unsafe_globals is not None and bool(unsafe_globals(reading.file()))
    except Exception:  # a pickle of which torch tells only as it reads it
        is_refused = False
    if is_refused:
        plain_load(path, "meta", weights_only=True)


def is_of_types(name):
    """torch.float32, torch.FloatStorage"""
    module, _, short = name.rpartition(".")
    return module == "torch" and (short.endswith("Storage") or isinstance(getattr(torch, short, None), torch.dtype))


def unpickle(zip_file, map_location, weights_only):
    module = torch._weights_only_unpickler if weights_only else pickle
    return torch.serialization._load(zip_file, map_location, module, encoding="utf-8")


def unpickle_as_torch(zip_file, map_location, weights_only, path):
    """torch.load says more of a pickle that it refuses than the unpickler: with "meta" it reads no tensor."""
    try:
        return unpickle(zip_file, map_location, weights_only)
    except pickle.UnpicklingError:
        if weights_only:
            plain_load(path, "meta", weights_only=True)
        raise


class Holder:
    """A storage in the form in which torch's reader hands it out."""

    def __init__(self, storage):
        self.storage = storage

    def _typed_storage(self):
        return torch.storage.TypedStorage(wrap_storage=self.storage, dtype=torch.uint8, _internal=True)


class Zip:
    """Takes the place of torch._C.PyTorchFileReader; all but the storages are its own."""

    def __init__(self, reader):
        self.reader = reader

    def __getattr__(self, name):
        return getattr(self.reader, name)


def record_of(archive, name, nbytes):
    record = archive.records.get(name)
    if record is None:
        raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
    if record.size != nbytes:
        raise ValueError(f"the record {name} has {record.size} bytes, and the pickle says {nbytes}")
    return record


# --- late ---------------------------------------------------------------------------------------------------------------------------


class Late(Zip):
    def __init__(self, reader, archive):
        super().__init__(reader)
        self.archive = archive
        self.storages = []  # (record, bytes, storage, flags) that are to be filled

    def get_storage_from_record(self, name, nbytes, dtype):
        record = record_of(self.archive, name, nbytes)
        storage, flags = new_storage(nbytes)
        if nbytes:
            self.storages.append((record, nbytes, storage, flags))
        return Holder(storage)

    def fill(self, reading, storages):
        self.fill_with(reading, [], storages)

    def fill_with(self, reading, targets, storages):
        """Also these targets, which are numbered from 0 if they are the first."""
        records = [record for record, _, _, _ in (storages if not targets else self.storages)]
        targets = targets + [(record.data, nbytes, storage.data_ptr(), flags) for record, nbytes, storage, flags in storages]
        if targets:
            gaps = _archive.Gaps(records)
            reading.wait(*begin(reading, targets, gaps, storages))
            gaps.check_all()

    def fill_newest(self, reading):
        """torch is about to copy it to a device."""
        self.fill(reading, [self.storages.pop()])


def begin(reading, targets, gaps, keep):
    """Begins to fill the targets and the gaps behind them: (number of the first one, how many)."""
    memory = (ctypes.c_char * len(gaps.memory)).from_buffer(gaps.memory)
    address = ctypes.addressof(memory)
    targets = targets + [(offset, length, address + at, 0) for offset, length, at in gaps.ranges]
    return reading.get(targets, (keep, gaps, memory)), len(targets)


def load_late(reading, reader, archive, map_location, into):
    late = Late(reader, archive)

    def on_host(storage, location):
        if location != "cpu" and late.storages and late.storages[-1][2].data_ptr() == storage.data_ptr():
            late.fill_newest(reading)
        return None  # torch goes on as without a function

    found = unpickle_as_torch(late, on_host if map_location is None else map_location, True, reading.path)
    if into is not None:
        return _into.read(reading, late, into, found)
    late.fill(reading, late.storages)
    return found


# --- ahead --------------------------------------------------------------------------------------------------------------------------


class Ahead(Zip):
    def __init__(self, reader, archive, reading):
        super().__init__(reader)
        self.archive, self.reading = archive, reading
        # not begun, unless asked for out of turn; the first one last
        self.left = [name for name in reversed(archive.records) if archive.records[name].size]
        self.begun = {}  # name: (storage, number of the target, Gaps, number of the gap there, number of that target)
        self.asked = set()
        self.ahead = 0  # bytes that are begun and were not asked for

    def get_storage_from_record(self, name, nbytes, dtype):
        record = record_of(self.archive, name, nbytes)
        if not nbytes:
            return Holder(torch.UntypedStorage(0, device="cpu"))
        if name not in self.begun:
            self.begin([name])
        self.asked.add(name)
        storage, number, gap = self.begun.pop(name)
        self.ahead -= record.size
        self.go_on()
        self.reading.wait(number, 1)
        if gap:
            gaps, index, number = gap
            self.reading.wait(number, 1)
            gaps.check(index)
        return Holder(storage)

    def go_on(self):
        if self.ahead > WINDOW // 2:
            return
        names, size = [], 0
        while self.left and self.ahead + size < WINDOW:
            name = self.left.pop()
            if name not in self.begun and name not in self.asked:
                names.append(name)
                size += self.archive.records[name].size
        if names:
            self.begin(names)

    def begin(self, names):
        records = [self.archive.records[name] for name in names]
        storages = [new_storage(record.size) for record in records]
        targets = [(record.data, record.size, storage.data_ptr(), flags) for record, (storage, flags) in zip(records, storages)]
        gaps = _archive.Gaps(records)
        first, _ = begin(self.reading, targets, gaps, storages)
        places = {record: (gaps, index, first + len(targets) + index) for index, record in enumerate(gaps.records)}
        for number, (name, record, (storage, _)) in enumerate(zip(names, records, storages)):
            self.begun[name] = storage, first + number, places.get(record)
            self.ahead += record.size


def load_ahead(reading, reader, archive, map_location, weights_only):
    ahead = Ahead(reader, archive, reading)
    return unpickle_as_torch(ahead, map_location, weights_only, reading.path)
