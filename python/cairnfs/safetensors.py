# SPDX-License-Identifier: Apache-2.0
"""safetensors through the lane: save_file() and load_file() in the place of those of safetensors.torch.

The file is the one that safetensors writes, byte for byte; dtypes, their names and their order in the file are learnt from the safetensors
that is installed.
"""
import ctypes
import functools
import json
import math
import os
import struct
import sys

import safetensors.torch as theirs
import torch

from . import _archive, _into, _load, _process, _records
from . import _library as lib
from ._log import logger
from ._reading import NotCovered, Reading, new_storage
from ._start import FOR_TORCH, Plan, Range, start

plain_save_file = theirs.save_file  # before anything is patched
HEADER_MAX = 100_000_000  # bytes, as safetensors
_installed = False


def save_file(tensors, filename, metadata=None):
    """Returns when the file is there, as safetensors.torch.save_file() does."""
    save(tensors, filename, metadata=metadata, lazy=False)


def save(tensors, path, *, metadata=None, lazy=True, mode=0o666, track=None, on_error="warn", max_block=None, refer=None):
    """As cairnfs.save(), of a dict of tensors. What safetensors refuses is refused in its words."""
    plan = Plan(lazy, mode, track, on_error, max_block, refer)
    try:
        lib.library()
        target = _records.text_of(path)
        items, header, offsets = layout(tensors, metadata)
    except (_records.NotCovered, lib.NoLibrary) as why:
        return save_plainly(why, tensors, path, metadata, plan)
    try:
        return start(target, plan, items, lambda *given: begin(header, offsets, *given))
    except OSError as error:
        if error.errno not in FOR_TORCH:
            raise
        return save_plainly(error, tensors, path, metadata, plan)


def save_plainly(why, tensors, path, metadata, plan):
    return _records.save_plainly(why, lambda: plain_save_file(tensors, path, metadata), path, plan.on_error)


def begin(header, offsets, path, sources, options, handle):
    array = (lib.Source * len(sources))(*sources)
    for source, offset in zip(array, offsets):
        source.offset = offset
    code = lib.library().cairn_save_safetensors(
        _process.current().open(), os.fsencode(path), header, len(header), array, len(array), options, ctypes.byref(handle)
    )
    lib.check(code, path)


def layout(tensors, metadata):
    """What is refused is refused here; then (items in the order of the file, header, their offsets)."""
    check(tensors)
    if metadata is not None and not (isinstance(metadata, dict) and all(isinstance(x, str) for pair in metadata.items() for x in pair)):
        raise _records.NotCovered("metadata that is no dict of texts")  # whose refusal is safetensors' own
    kinds = dtypes(tuple(sorted({tensor.dtype for tensor in tensors.values()}, key=str)))
    order = sorted(tensors, key=lambda name: (kinds[tensors[name].dtype][0], name.encode()))
    header, items, offsets, at = {}, [], [], 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name in order:
        tensor = tensors[name]
        _, kind, factor = kinds[tensor.dtype]
        size = tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        if factor != 1 and shape:
            shape[-1] *= factor
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        items.append((name, range_of(tensor, size)))
        offsets.append(at)
        at += size
    return items, json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(), offsets


def range_of(tensor, size):
    """A tensor that has no memory of its own on a device that we copy from goes by host memory of its own."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type not in ("cpu", "cuda") or torch.version.hip:
        raise _records.NotCovered(f"a tensor of type {type(tensor).__name__} on {tensor.device.type}")
    if tensor.is_conj() or tensor.is_neg():
        raise _records.NotCovered("a tensor that is conjugated or negated when it is read")
    return Range(tensor.untyped_storage(), tensor.data_ptr(), size)


def check(tensors):
    """safetensors' own checks, in its own words."""
    evaluate = getattr(theirs, "_evaluate_tensors_for_save", None)
    if evaluate is None:
        raise _records.NotCovered("a safetensors whose checks have another name")
    evaluate(tensors)
    for tensor in tensors.values():
        if not tensor.is_contiguous():
            raise _records.NotCovered("a tensor that is not contiguous")  # refused by safetensors


@functools.cache
def dtypes(wanted):
    """{dtype: (rank in the file, name in the header, elements of the header's shape for one of ours)}."""
    names = {str(dtype): dtype for dtype in wanted}
    blob = theirs.save({name: torch.zeros(8, dtype=torch.uint8).view(dtype) for name, dtype in names.items()})
    (length,) = struct.unpack("<Q", blob[:8])
    found = json.loads(blob[8 : 8 + length])
    result = {}
    for rank, (name, entry) in enumerate(sorted(found.items(), key=lambda pair: pair[1]["data_offsets"])):
        dtype = names[name]
        result[dtype] = rank, entry["dtype"], entry["shape"][0] // (8 // dtype.itemsize)
    return result


def load_file(path, into=None, threads=None):
    """The dict of tensors in host memory that safetensors.torch.load_file(path) returns, each with memory of its own, read by several
    threads. into, threads, OSError: as of cairnfs.load(). A file that safetensors refuses is refused in its words."""
    try:
        with Reading(path, threads) as reading:
            late = _load.Late(None, None)
            found = make_tensors(late, *read_header(reading))
            if into is not None:
                return _into.read(reading, late, into, found)
            late.fill(reading, late.storages)
            return found
    except (NotCovered, lib.NoLibrary) as why:
        logger.debug("safetensors loads %s: %s", path, why)
    found = theirs.load_file(path)
    return found if into is None else _into.copy(into, found)


def read_header(reading):
    """({name: entry}, place of the first tensor). NotCovered: safetensors is to say what is wrong."""
    head = reading.read(0, 8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(HEADER_MAX, reading.size - 8):
        raise NotCovered("a header that cannot be")
    try:
        entries = json.loads(reading.read(8, length), object_pairs_hook=without_twins)
        metadata = entries.pop("__metadata__", {})
        are_right = all(map(is_entry, entries.values())) and all(isinstance(value, str) for value in metadata.values())
    except (ValueError, TypeError, AttributeError, RecursionError) as why:
        raise NotCovered(f"a header that cannot be read: {why!r}") from None
    if not are_right:
        raise NotCovered("a header of another form")
    places = sorted((*entry["data_offsets"], name) for name, entry in entries.items())
    at = 0
    for begin, end, name in places:
        if begin != at or end < begin:
            raise NotCovered(f"a tensor of another place: {name}")
        at = end
    if at != reading.size - 8 - length:
        raise NotCovered("a file of another size")
    return entries, 8 + length


def is_entry(entry):
    def are_sizes(values):
        return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)

    form = isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"} and isinstance(entry["dtype"], str)
    return form and are_sizes(entry["shape"]) and are_sizes(entry["data_offsets"]) and len(entry["data_offsets"]) == 2


def without_twins(pairs):
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name that is there twice")
    return dict(pairs)


def make_tensors(late, entries, start):
    """The tensors, whose storages `late` is to fill."""
    found, types = {}, getattr(theirs, "_TYPES", {})
    for name, entry in sorted(entries.items(), key=lambda pair: (pair[1]["data_offsets"], pair[0])):
        (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], types.get(entry["dtype"])
        if dtype is None or math.prod(shape) * dtype.itemsize != end - begin:
            raise NotCovered(f"a tensor of another size, or of the type {entry['dtype']}")
        storage, flags = new_storage(end - begin)
        if end > begin:
            late.storages.append((_archive.Record.known(start + begin), end - begin, storage, flags))
        found[name] = torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape)
    return found


def install():
    """safetensors.torch.save_file goes through the lane; also in transformers and accelerate, where they have been imported."""
    global _installed
    if not _installed:
        _installed = True
        replace(plain_save_file, save_file, importers(plain_save_file))


def uninstall():
    global _installed
    if _installed:
        _installed = False
        replace(save_file, plain_save_file, importers(save_file))


def importers(function):
    """Modules of transformers, accelerate and peft that have imported this save_file under the name that they give it."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] in ("transformers", "accelerate", "peft")]
    return [module for module in modules if getattr(module, "__dict__", {}).get("safe_save_file") is function]


def replace(old, new, modules):
    if theirs.save_file is old:
        theirs.save_file = new
    for module in modules:
        module.safe_save_file = new
