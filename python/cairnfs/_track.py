# SPDX-License-Identifier: Apache-2.0
"""Which storages do not change before the next update of an optimizer.

Known are the optimizers whose step() was seen: then it is sure that the fence runs before the next one. What they hold, parameters and state,
changes in step() alone. Everything else (buffers, averages, random state, what nobody knows) may change at once, and is copied at once.
"""
import weakref

import torch

SMALL = 64 << 10  # bytes: below this a copy costs less than the bookkeeping

_stepped = weakref.WeakSet()


def note_step(optimizer):
    _stepped.add(optimizer)


def plain_tensors(value):
    """The tensors with a storage of their own that a tensor (a subclass: DTensor, say), a module, a dict or a sequence is made of."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                yield from plain_tensors(getattr(value, name))
        elif value.layout is torch.strided and type(value) in (torch.Tensor, torch.nn.Parameter):
            yield value
    elif isinstance(value, torch.nn.Module):
        yield from plain_tensors(list(value.parameters()))
    elif isinstance(value, torch.optim.Optimizer):
        yield from plain_tensors([group["params"] for group in value.param_groups])
        yield from plain_tensors(list(value.state.values()))
    elif isinstance(value, dict):
        yield from plain_tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, (torch.Tensor, dict, list, tuple, torch.nn.Module, torch.optim.Optimizer)):
                yield from plain_tensors(item)


def may_be_lazy(tensor):
    """A CPU scalar (Adam's step) changes within a step without its storage being worth a fence; an inference tensor counts no versions."""
    return not (tensor.dim() == 0 and tensor.device.type == "cpu") and not tensor.is_inference()


def tracked(extra=None):
    """{id of a storage: its tensors}, of all that known optimizers hold, and of what the caller says changes only with them."""
    found = {}
    for source in [*_stepped, *([] if extra is None else [extra])]:
        for tensor in plain_tensors(source):
            if may_be_lazy(tensor):
                found.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    return found


def guards_of(storages, known):
    """What is compared when the copy of `storages` {id: storage} is done: [(tensor, version, storage, address, size)]."""
    return [
        (tensor, tensor._version, storage, storage.data_ptr(), storage.nbytes())
        for key, storage in storages.items()
        for tensor in known.get(key, ())
    ]
