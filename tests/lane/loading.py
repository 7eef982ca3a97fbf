# SPDX-License-Identifier: Apache-2.0
"""What tests of loads share: objects compared in all that torch.load decides."""
import copy

import torch


def compare(ours, theirs, seen=None, where="the object"):
    """Same types, values, dtypes, strides, aliasing, attributes. `seen`: storage of ours: that of theirs."""
    seen = {} if seen is None else seen
    assert type(ours) is type(theirs), f"{where}: {type(ours)} and {type(theirs)}"
    if isinstance(theirs, torch.Tensor):
        compare_tensors(ours, theirs, seen, where)
    elif isinstance(theirs, (torch.storage.TypedStorage, torch.UntypedStorage)):
        assert ours.device == theirs.device and ours.nbytes() == theirs.nbytes() and ours.tolist() == theirs.tolist(), where
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key in theirs:
            compare(ours[key], theirs[key], seen, f"{where}.{key}")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for index, pair in enumerate(zip(ours, theirs)):
            compare(*pair, seen, f"{where}.{index}")
    elif not hasattr(theirs, "__dict__") or isinstance(theirs, torch.dtype):
        assert ours == theirs, where
    if hasattr(theirs, "__dict__") and not isinstance(theirs, type) and not getattr(theirs, "is_nested", False):
        compare(vars(ours), vars(theirs), seen, f"{where}, attributes")


def compare_tensors(ours, theirs, seen, where):
    if theirs.is_nested:  # each has a length of its own for the ragged dimension
        assert ours.is_nested and ours.dtype == theirs.dtype, where
        compare(list(ours.unbind()), list(theirs.unbind()), {}, where)
        return
    for what in ("dtype", "shape", "layout", "device", "requires_grad", "is_leaf", "is_quantized"):
        assert getattr(ours, what) == getattr(theirs, what), f"{where}: {what}"
    assert ours.is_conj() == theirs.is_conj() and ours.is_neg() == theirs.is_neg(), where
    if theirs.layout == torch.strided and theirs.device.type != "meta":
        assert ours.stride() == theirs.stride() and ours.storage_offset() == theirs.storage_offset(), where
        first, second = ours.untyped_storage(), theirs.untyped_storage()
        assert first.nbytes() == second.nbytes(), where
        if second.nbytes():
            assert seen.setdefault(first.data_ptr(), second.data_ptr()) == second.data_ptr(), f"{where}: aliases"
            assert seen.setdefault(-second.data_ptr(), first.data_ptr()) == first.data_ptr(), f"{where}: aliases"
    if theirs.is_quantized:
        assert ours.qscheme() == theirs.qscheme() and torch.equal(ours.int_repr(), theirs.int_repr()), where
        assert torch.equal(ours.dequantize(), theirs.dequantize()), where
        return
    if theirs.device.type != "meta":
        first, second = (tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach() for tensor in (ours, theirs))
        assert bits(first) == bits(second), f"{where}: values"


def bits(tensor):
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


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


def outcome(load, *args, **kwargs):
    try:
        return load(*args, **kwargs), None
    except Exception as why:
        return None, why
