# SPDX-License-Identifier: Apache-2.0
"""into=: tensors that exist get the content of a file. All of it is checked before a byte is written."""
import collections
import itertools

import torch

from . import _fence

PLAIN = (torch.Tensor, torch.nn.Parameter)
LEAVES = (type(None), bool, int, float, complex, str, bytes, bytearray, torch.Size, torch.dtype, torch.device)


def pairs(into, found, key=()):
    """(key, tensor of `into`, tensor of `found`) of each; ValueError that names the first that does not fit."""
    if isinstance(found, torch.Tensor) or isinstance(into, torch.Tensor):
        check_pair(into, found, key)
        yield key, into, found
    elif isinstance(found, dict):
        if not isinstance(into, dict):
            raise ValueError(f"{text(key)}: the file has a dict, and into a {type(into).__name__}")
        lacking = next(itertools.chain((k for k in found if k not in into), (k for k in into if k not in found)), None)
        if len(found) != len(into) or any(k not in into for k in found):
            where = "into lacks it" if lacking in found else "the file lacks it"
            raise ValueError(f"{text((*key, lacking))}: {where}")
        for k, value in found.items():
            yield from pairs(into[k], value, (*key, k))
    elif isinstance(found, (list, tuple)):
        if not isinstance(into, (list, tuple)) or len(into) != len(found):
            there = f"{len(into)} items" if isinstance(into, (list, tuple)) else f"a {type(into).__name__}"
            raise ValueError(f"{text(key)}: the file has {len(found)} items, and into {there}")
        for k, value in enumerate(found):
            yield from pairs(into[k], value, (*key, k))


def text(key):
    return ".".join(map(str, key)) or "the object"


def check_pair(into, found, key):
    if not isinstance(into, torch.Tensor) or not isinstance(found, torch.Tensor):
        names = [f"a {type(value).__name__}" for value in (found, into)]
        raise ValueError(f"{text(key)}: the file has {names[0]}, and into {names[1]}")
    if type(into) not in PLAIN or into.layout != torch.strided or into.is_quantized:
        raise ValueError(f"{text(key)}: into has a {type(into).__name__} that is no plain dense tensor")
    if into.device.type != "cpu":
        raise ValueError(f"{text(key)}: into has a tensor on {into.device}, and only host memory is filled")
    for what in ("shape", "dtype", "layout"):
        ours, theirs = getattr(into, what), getattr(found, what)
        if ours != theirs:
            raise ValueError(f"{text(key)}: the file has the {what} {show(theirs)}, and into {show(ours)}")
    if torch._debug_has_internal_overlap(into) == 1:
        raise ValueError(f"{text(key)}: elements of the tensor of into share memory")
    if into.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(f"{text(key)}: into has a tensor of inference mode, which is changed in that mode only")


def show(value):
    return tuple(value) if isinstance(value, torch.Size) else value


def replaced(into, found, done):
    """`found`, with the tensors of `into`."""
    if isinstance(found, torch.Tensor):
        return into
    if id(found) in done:
        return done[id(found)]
    if isinstance(found, dict):
        done[id(found)] = found
        for k in found:
            found[k] = replaced(into[k], found[k], done)
    elif isinstance(found, list):
        done[id(found)] = found
        for k, value in enumerate(found):
            found[k] = replaced(into[k], value, done)
    elif type(found) is tuple:
        return tuple(replaced(*each, done) for each in zip(into, found))
    return found


def copy_all(matched):
    """[(key, into, found)]"""
    with torch.no_grad():
        for _, into, found in matched:
            into.copy_(found)


def copy(into, found):
    """For what was loaded into memory of its own."""
    matched = list(pairs(into, found))
    _fence.fence()
    copy_all(matched)
    return replaced(into, found, {})


# --- from a file whose storages are not filled yet ----------------------------------------------------------------------------------


def read(reading, late, into, found):
    """Bytes of the file go to the memory of `into` where a tensor there is laid out as the one of the file, else by way of the storage."""
    matched = list(pairs(into, found))
    if not holds_known_only(found):
        late.fill(reading, late.storages)
        return copy(into, found)
    direct, copied = plan(late, matched)
    used = {tensor.untyped_storage().data_ptr() for _, _, tensor in copied}
    storages = [entry for entry in late.storages if entry[2].data_ptr() in used]
    _fence.fence()
    reading.owns_all = False
    fill(reading, late, direct, storages)
    copy_all(copied)
    for _, tensor, _, _ in direct:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
    return replaced(into, found, {})


def holds_known_only(found):
    """All tensors are in dicts, lists and tuples, so replaced() meets each: none stays whose memory is not filled."""
    if isinstance(found, torch.Tensor):
        return type(found) in PLAIN and not vars(found)
    if type(found) in (dict, collections.OrderedDict, collections.Counter):
        inside = itertools.chain(found.values(), vars(found).values() if hasattr(found, "__dict__") else ())
        hidden = hasattr(found, "__dict__") and not all(holds_no_tensor(value) for value in vars(found).values())
        return not hidden and all(holds_no_tensor(k) for k in found) and all(map(holds_known_only, inside))
    if type(found) in (list, tuple):
        return all(map(holds_known_only, found))
    return type(found) in LEAVES


def holds_no_tensor(value):
    if type(value) in (dict, collections.OrderedDict):
        return all(holds_no_tensor(k) and holds_no_tensor(v) for k, v in value.items())
    if type(value) in (list, tuple):
        return all(map(holds_no_tensor, value))
    return type(value) in LEAVES


def plan(late, matched):
    """([(key, tensor of `into`, place in the file, bytes)], pairs that are copied when their storages are filled)"""
    places = {storage.data_ptr(): (record.data, flags) for record, _, storage, flags in late.storages}
    direct, copied = [], []
    for key, into, found in matched:
        if not found.numel():
            continue
        start = found.untyped_storage().data_ptr()
        if start in places and is_laid_out_alike(into, found):
            offset = places[start][0] + found.data_ptr() - start
            direct.append((key, into, offset, found.numel() * found.element_size()))
        else:
            copied.append((key, into, found))
    kept, again = without_overlaps(direct)
    found_of = {id(into): (key, into, found) for key, into, found in matched}
    return kept, copied + [found_of[id(into)] for _, into, _, _ in again]


def without_overlaps(direct):
    """(those that share no memory, the others); of equal ranges of memory and file, tied tensors, the first is enough."""
    kept, again, end, last = [], [], 0, None
    for entry in sorted(direct, key=lambda entry: (entry[1].data_ptr(), entry[3])):
        _, tensor, offset, size = entry
        place = tensor.data_ptr(), offset, size
        if tensor.data_ptr() >= end:
            kept.append(entry)
            end, last = tensor.data_ptr() + size, place
        elif place != last:
            again.append(entry)
    order = {id(entry): number for number, entry in enumerate(direct)}
    return sorted(kept, key=lambda entry: order[id(entry)]), again


def is_laid_out_alike(into, found):
    if found.is_conj() != into.is_conj() or found.is_neg() != into.is_neg():
        return False
    if into.is_contiguous() and found.is_contiguous():
        return True
    sizes = [(stride, size) for stride, size in zip(found.stride(), found.shape) if size > 1]
    if sizes != [(stride, size) for stride, size in zip(into.stride(), into.shape) if size > 1]:
        return False
    step = 1
    for stride, size in sorted(sizes):
        if stride != step:
            return False
        step *= size
    return True


def fill(reading, late, direct, storages):
    targets = [(offset, size, tensor.data_ptr(), 0) for _, tensor, offset, size in direct]
    first = reading.count
    try:
        late.fill_with(reading, targets, storages)
    except (OSError, RuntimeError) as why:
        mixture = mixture_of(reading, direct, first)
        if isinstance(why, OSError):
            raise OSError(why.errno, f"{why.strerror}; {mixture}", reading.path) from None
        raise RuntimeError(f"{why}; {mixture}") from None


def mixture_of(reading, direct, first):
    """`first`: the target's number of the first of `direct`."""
    lacking = [key for number, (key, *_) in enumerate(direct, first) if not reading.is_filled(number)]
    there = f"the tensors of into are a mixture: {len(direct) - len(lacking)} of {len(direct)} were filled"
    return f"{there}, {text(lacking[0])} is the first that was not" if lacking else there
