# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint consists of, tensor by tensor, and how two differ: python -m cairnfs inspect|diff.

Files of torch.save, .safetensors files, and directories of torch.distributed.checkpoint. Names, types and shapes come from the pickle or
header alone: no tensor is read for them. Pickles are read with weights_only; that of a directory (.metadata) by torch's own reader.
"""
from __future__ import annotations

import dataclasses
import math
import os
import warnings
from typing import Any, Callable

import torch

from . import _archive, _load, _stored, safetensors
from ._reading import Reading, new_storage

PIECE = 4 << 20  # elements that are compared at a time
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.Size, torch.device)


@dataclasses.dataclass
class Entry:
    """A tensor, or another value (kind, shape, offset and bytes are None then). bytes: of its storage in the file; two entries of one
    offset share it. stored_bytes: what these take on a mount of CairnFS, by add_stored(). get(): its content. places: where its own bytes
    lie; together with `layout` they say all of it. layout None: they do not."""

    name: str
    kind: torch.dtype | None = None
    shape: tuple[int, ...] | None = None
    file: str | None = None
    offset: int | None = None
    bytes: int | None = None
    stored_bytes: int | None = None
    get: Callable[[], Any] = lambda: None
    places: list[tuple[_stored.File, int, int]] = dataclasses.field(default_factory=list)
    layout: Any = None


def entries_of(path: str | os.PathLike[str]) -> list[Entry]:
    """In the order of the checkpoint. OSError, ValueError, RuntimeError, pickle.UnpicklingError: it cannot be read."""
    path = os.fspath(path)
    if os.path.isdir(path):
        return of_directory(path)
    with open(path, "rb", 0) as file:
        is_archive = file.read(4) == b"PK\3\4"
    if is_archive:
        return of_archive(path)
    if path.endswith(".safetensors"):
        return of_safetensors(path)
    raise ValueError(f"{path} is no archive of torch.save, no .safetensors file and no directory of torch.distributed.checkpoint")


def add_stored(entries: list[Entry]) -> None:
    """Asks the mount once for each file."""
    known: dict[_stored.File, _stored.Extents | None] = {}
    for file, _, _ in (place for entry in entries for place in entry.places):
        if file not in known:
            known[file] = _stored.extents_of(file)
    for entry in entries:
        places = [(entry.places[0][0], entry.offset, entry.bytes)] if len(entry.places) == 1 else entry.places
        if places and all(known[file] for file, _, _ in places):
            entry.stored_bytes = sum(known[file].stored(offset, size) for file, offset, size in places)


def lay_out(entry, start, stride):
    """The tensor is these elements of its storage, and no more: so they, and no others, are read for it."""
    size = entry.kind.itemsize
    length = size * (1 + sum((count - 1) * step for count, step in zip(entry.shape, stride))) if math.prod(entry.shape) else 0
    if start * size + length > entry.bytes:
        return
    ((file, offset, _),) = entry.places
    offset += start * size

    def content():
        late, (storage, flags) = _load.Late(None, None), new_storage(length)
        late.storages += [(_archive.Record.known(offset), length, storage, flags)] if length else []
        with Reading(entry.file, None) as reading:
            late.fill(reading, late.storages)
        return torch.empty(0, dtype=entry.kind).set_(storage, 0, entry.shape, stride)

    entry.places, entry.layout, entry.get = [(file, offset, length)], stride, content


# --- torch.save -------------------------------------------------------------------------------------------------------------------------


class Places(_load.Zip):
    """Hands out storages without content, and remembers the record of each."""

    def __init__(self, reader, archive):
        super().__init__(reader)
        self.archive, self.records, self.keep = archive, {}, []

    def get_storage_from_record(self, name, nbytes, dtype):
        storage = torch.UntypedStorage(nbytes, device="meta")
        self.keep.append(storage)
        self.records[storage._cdata] = _load.record_of(self.archive, name, nbytes)
        return _load.Holder(storage)


def of_archive(path):
    seen = _stored.File(path)
    with Reading(path, None) as reading:
        reader = torch._C.PyTorchFileReader(reading.file(_stored.LITTLE))
        alignment = int(reader.get_record(".storage_alignment")) if reader.has_record(".storage_alignment") else 64
        is_little = not reader.has_record("byteorder") or reader.get_record("byteorder") == b"little"
        places = Places(reader, _archive.Archive(reading, alignment))
        found = _load.unpickle_as_torch(places, lambda storage, location: storage, True, path)
    mapped = []

    def content(name):
        if not mapped:
            mapped.append(dict(walk(torch.load(path, "cpu", mmap=True, weights_only=True))))
        return mapped[0][name]

    entries = []
    for name, value in walk(found):
        entry = Entry(name, file=path, get=(lambda value=value: value) if isinstance(value, PLAIN) else lambda name=name: content(name))
        if isinstance(value, torch.Tensor):
            entry.kind, entry.shape = value.dtype, tuple(value.shape)
            record = places.records.get(value.untyped_storage()._cdata) if value.layout == torch.strided else None
            if record:
                entry.offset, entry.bytes, entry.places = record.data, record.size, [(seen, record.data, record.size)]
            is_odd = value.is_quantized or value.is_conj() or value.is_neg() or type(value) not in (torch.Tensor, torch.nn.Parameter)
            if record and is_little and not is_odd:
                lay_out(entry, value.storage_offset(), value.stride())
        entries.append(entry)
    return entries


def walk(value, name=""):
    """(name, tensor or plain value) of containers, with dots between the keys."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = enumerate(value)
    else:
        yield name, value
        return
    for key, inner in items:
        yield from walk(inner, f"{name}.{key}" if name else str(key))


# --- safetensors, torch.distributed.checkpoint ------------------------------------------------------------------------------------------


def of_safetensors(path):
    from safetensors import safe_open

    seen = _stored.File(path)
    with Reading(path, None) as reading:
        header, start = safetensors.read_header(reading)
    types = getattr(safetensors.theirs, "_TYPES", {})

    def content(name):
        with safe_open(path, "pt") as file:
            return file.get_tensor(name)

    entries = []
    for name, item in sorted(header.items(), key=lambda pair: pair[1]["data_offsets"]):
        begin, end = item["data_offsets"]
        entry = Entry(name, types.get(item["dtype"]), tuple(item["shape"]), path, start + begin, end - begin,
                      get=lambda name=name: content(name), places=[(seen, start + begin, end - begin)])  # fmt: skip
        if entry.kind and math.prod(entry.shape) * entry.kind.itemsize == entry.bytes:
            lay_out(entry, 0, torch.empty(entry.shape, device="meta").stride())
        entries.append(entry)
    return entries


def of_directory(path):
    import torch.distributed.checkpoint as dcp

    metadata = dcp.FileSystemReader(path).read_metadata()
    entries, files = [], {}
    for name, item in metadata.state_dict_metadata.items():
        found = [(index.offset, info) for index, info in metadata.storage_data.items() if index.fqn == name]
        entry = Entry(name, get=lambda name=name, item=item: load_item(path, name, item))
        found.sort(key=lambda pair: (pair[0] or (), pair[1].relative_path, pair[1].offset))
        for _, info in found:
            file = os.path.join(path, info.relative_path)
            if file not in files:
                files[file] = _stored.File(file)
            entry.places.append((files[file], info.offset, info.length))
        if entry.places:
            first = min(entry.places, key=lambda place: (place[0].path, place[1]))
            entry.file, entry.offset, entry.bytes = first[0].path, first[1], sum(place[2] for place in entry.places)
            parts = [(at, getattr(info, "transform_descriptors", None)) for at, info in found]
            entry.layout = "dcp", parts, getattr(item, "chunks", None)
        if hasattr(item, "size"):
            entry.kind, entry.shape = item.properties.dtype, tuple(item.size)
        entries.append(entry)
    return entries


def load_item(path, name, item):
    import torch.distributed.checkpoint as dcp

    from .dcp import Reader

    wanted = {name: torch.empty(item.size, dtype=item.properties.dtype) if hasattr(item, "size") else None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # there is no group of processes: none is needed
        dcp.load(wanted, storage_reader=Reader(path), no_dist=True)
    return wanted[name]


# --- differences ------------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Difference:
    """what: "added", "removed", "changed" or "same". largest: of the absolute changes of a tensor's elements; relative: that by the
    largest absolute element of the first. detail: where types or shapes differ, or of other values."""

    name: str
    what: str
    largest: float | None = None
    relative: float | None = None
    detail: str = ""


def differences(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> list[Difference]:
    """Of two checkpoints, which need not be of one format. NaN in the same place is the same."""
    mine, theirs = ({entry.name: entry for entry in entries_of(path)} for path in (one, other))
    equal = _stored.Equality()
    found = [compare(entry, theirs[name], equal) if name in theirs else Difference(name, "removed") for name, entry in mine.items()]
    return found + [Difference(name, "added") for name in theirs if name not in mine]


def compare(a, b, equal):
    if (a.kind, a.shape) != (b.kind, b.shape):
        return Difference(a.name, "changed", detail=f"{form(a)} became {form(b)}")
    if has_equal_bytes(a, b, equal):
        return Difference(a.name, "same")
    x, y = a.get(), b.get()
    if a.kind is None:
        same = type(x) is type(y) and (x == y if isinstance(x, PLAIN) else repr(x) == repr(y))
        return Difference(a.name, "same" if same else "changed", detail="" if same else f"{x!r:.60} became {y!r:.60}")
    return compare_tensors(a.name, x.detach(), y.detach())


def has_equal_bytes(a, b, equal):
    """By the names of chunks, without a read. False: that is not known, too."""
    if a.layout is None or a.layout != b.layout or len(a.places) != len(b.places):
        return False
    return all((at, size) == (to, length) and equal.has(one, other, at, size)
               for (one, at, size), (other, to, length) in zip(a.places, b.places))  # fmt: skip


def form(entry):
    return "a value" if entry.kind is None else f"{str(entry.kind)[6:]} {list(entry.shape)}"


def compare_tensors(name, x, y):
    if x.layout != torch.strided or x.is_quantized or x.device.type == "meta":
        same = torch.equal(x.dequantize() if x.is_quantized else x.to_dense(), y.dequantize() if y.is_quantized else y.to_dense())
        return Difference(name, "same" if same else "changed")
    x, y, largest, same = x.reshape(-1), y.reshape(-1), 0.0, True
    for at in range(0, x.numel(), PIECE):
        p, q = x[at : at + PIECE].contiguous(), y[at : at + PIECE].contiguous()
        if torch.equal(p.view(torch.uint8) if p.dtype != torch.bool else p, q.view(torch.uint8) if q.dtype != torch.bool else q):
            continue
        same = False
        p, q = widened(p), widened(q)
        change = (p - q).abs()
        change = torch.where(torch.isnan(p) & torch.isnan(q), 0.0, change)
        largest = max(largest, math.inf if torch.isnan(change).any() else float(change.max()))
    if same:
        return Difference(name, "same")
    scale = max(float(widened(x[at : at + PIECE]).abs().nan_to_num(0.0).max()) for at in range(0, x.numel(), PIECE))
    return Difference(name, "changed", largest, largest / scale if scale else math.inf)


def widened(tensor):
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
