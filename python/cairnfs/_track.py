# SPDX-License-Identifier: Apache-2.0
"""Which storages do not change before the next update of an optimizer.

Known are the optimizers whose step() was seen: then it is sure that the fence runs before the next one. What they hold, parameters and state,
changes in step() alone. Everything else (buffers, averages, random state, what is unknown) may change at once, and is copied at once.
"""
import weakref

import torch

SMALL = 64 << 10  # bytes: below this a copy costs less than the bookkeeping

_stepped = weakref.WeakSet()


def note_step(optimizer):
    _stepped.add(optimizer)


PLAIN = (torch.Tensor, torch.nn.Parameter)


def plain_tensors(value):
    """The tensors with a storage of their own that a tensor (a subclass: DTensor, say), a module, a dict or a sequence is made of."""
    found = []
    gather(value, found)
    return found


def gather(value, found):
    """Each save asks for all tensors that it may copy later, while the training waits: exact types come first, for nearly all have one."""
    kind = type(value)
    if kind in PLAIN:
        if value.layout is torch.strided:
            found.append(value)
    elif kind is dict:
        for item in value.values():
            gather(item, found)
    elif isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                gather(getattr(value, name), found)
    elif isinstance(value, torch.nn.Module):
        gather(list(value.parameters()), found)
    elif isinstance(value, torch.optim.Optimizer):
        gather([group["params"] for group in value.param_groups], found)
        gather(list(value.state.values()), found)
    elif isinstance(value, dict):
        gather(list(value.values()), found)
    elif isinstance(value, (list, tuple)):
        for item in value:
            gather(item, found)


def may_be_lazy(tensor):
    """A CPU scalar (Adam's step) changes within a step without its storage being worth a fence; an inference tensor counts no versions."""
    return not (tensor.dim() == 0 and tensor.is_cpu) and not tensor.is_inference()


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
