# SPDX-License-Identifier: Apache-2.0
"""Which storages do not change before the next update of an optimizer.

Known are the optimizers whose step() was seen: then it is sure that the fence runs before the next one. What they hold, parameters and
state, changes in step() alone. Everything else (buffers, averages, random state, unknown tensors) may change at once, and is copied at
once. So are tensors that were seen to change elsewhere, that other processes may write to, and storages of which the optimizers hold a part
only.
"""
import weakref

import torch
from torch.utils.weak import WeakTensorKeyDictionary

SMALL = 64 << 10  # bytes: below this a copy costs less than the bookkeeping

PADDING = 1 << 10  # bytes between tensors of one storage, which hold no data

_stepped = weakref.WeakSet()
_changed = WeakTensorKeyDictionary()  # tensors and wrappers that changed during a copy, and no fence had waited: {tensor: True}


def note_step(optimizer):
    _stepped.add(optimizer)


PLAIN = (torch.Tensor, torch.nn.Parameter)


def plain_tensors(value):
    """The tensors with a storage of their own that a tensor (a wrapper: DTensor, say), a module, a dict or a sequence is made of."""
    found = []
    gather(value, found, [])
    return found


def gather(value, found, wrappers):
    """The plain tensors in `value`, and [(wrapper, its plain tensors)] of all subclasses with __tensor_flatten__() that they lie in.

    Each save asks for all tensors that it may copy later, while the training waits: exact types come first, for nearly all have one."""
    kind = type(value)
    if kind in PLAIN:
        if value.layout is torch.strided and not value.is_nested:
            found.append(value)
    elif kind is dict:
        for item in value.values():
            gather(item, found, wrappers)
    elif isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            parts = []
            for name in value.__tensor_flatten__()[0]:
                gather(getattr(value, name), parts, wrappers)
            found += parts
            wrappers.append((value, parts))
    elif isinstance(value, torch.nn.Module):
        gather(list(value.parameters()), found, wrappers)
    elif isinstance(value, torch.optim.Optimizer):
        gather([group["params"] for group in value.param_groups], found, wrappers)
        gather(list(value.state.values()), found, wrappers)
    elif isinstance(value, dict):
        gather(list(value.values()), found, wrappers)
    elif isinstance(value, (list, tuple)):
        for item in value:
            gather(item, found, wrappers)


def may_be_lazy(tensor):
    """A CPU scalar (Adam's step) changes within a step without its storage being worth a fence; an inference tensor counts no versions."""
    return not (tensor.dim() == 0 and tensor.is_cpu) and not tensor.is_inference()


def tracked(extra=None):
    """{id of a storage: its tensors, and behind them the wrappers that they lie in}, of all that known optimizers hold, and of what the
    caller says changes only with them."""
    found, wrappers = {}, []
    for source in [*_stepped, *([] if extra is None else [extra])]:
        tensors = []
        gather(source, tensors, wrappers)
        for tensor in tensors:
            if may_be_lazy(tensor):
                found.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    for wrapper, parts in wrappers:
        for key in {part.untyped_storage()._cdata for part in parts} & found.keys():
            found[key].append(wrapper)
    return {key: tensors for key, tensors in found.items() if changes_in_steps_alone(tensors)}


def note_change(tensors):
    """These tensors change outside of steps, too: from now on they are copied at once."""
    for tensor in tensors:
        _changed[tensor] = True


def changes_in_steps_alone(tensors):
    """True if the storage of these tensors (plain ones first, then wrappers) may be copied later."""
    storage = tensors[0].untyped_storage()
    if storage.device.type == "cpu" and storage.is_shared():  # with other processes
        return False
    if _changed and any(tensor in _changed for tensor in tensors):
        return False
    return tensors[0].nbytes == storage.nbytes() or cover(tensors, storage.nbytes())


def cover(tensors, size):
    """The tensors fill their storage of `size` bytes, but for padding."""
    at = 0
    for begin, end in sorted(extent(tensor) for tensor in tensors if type(tensor) in PLAIN):
        if begin > at + PADDING:
            return False
        at = max(at, end)
    return size <= at + PADDING


def extent(tensor):
    """Where it begins in its storage and where it ends, in bytes; an empty one where it is contiguous in no order of its dimensions."""
    begin = tensor.storage_offset() * tensor.element_size()
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + tensor.nbytes if last + 1 == tensor.numel() else begin


def longest_operation(guards):
    """Seconds that are plenty for one operation on any of these tensors, on a busy machine, too."""
    return max((0.25 + size * 2e-9 for _, _, size, tensors in guards if tensors), default=0.0)


def guards_of(storages, known):
    """What is compared when the copy of `storages` {id: storage} is done: [(storage, address, size, [(tensor, version)])]. An operation on
    a wrapper raises its version alone, one on a plain tensor in it that of the plain tensor: both are compared."""
    return [
        (storage, storage.data_ptr(), storage.nbytes(), [(tensor, tensor._version) for tensor in known.get(key, ())])
        for key, storage in storages.items()
    ]
