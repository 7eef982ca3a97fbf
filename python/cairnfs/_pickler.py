# SPDX-License-Identifier: Apache-2.0
"""The records of a state whose tensors are all plain ones on the CPU, in half of the time that torch's own pickling takes of the training.

Torch writes the same of each such tensor, and its code tests each of them for other kinds. Here it is written down
once; whether torch, as it runs, writes it so, a comparison of both says before the first use. Whatever is not plain is left to torch.
"""
import copyreg
import functools
import io
import pickle
from collections import OrderedDict

import torch

Tensor = torch.Tensor
REDUCE = Tensor.__reduce_ex__  # another may be put in its place
KINDS = frozenset({
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64, torch.int64, torch.int32, torch.int16,
    torch.int8,
    torch.uint8, torch.bool,
})  # fmt: skip
# The types that nearly all objects of a state have. torch gives an id to storages alone.
NO_STORAGES = frozenset({
    type(None), bool, int, float, str, bytes, tuple, list, dict, set, OrderedDict, type(len), type(lambda: None), type, Tensor,
    torch.nn.Parameter, torch.Size, torch.dtype, torch.device, type(torch.FloatStorage),
})  # fmt: skip


class NotPlain(Exception):
    """Something in the state is torch's to write."""


class Storage:
    """Stands for a storage in the pickle of a tensor."""

    __slots__ = ("id",)

    def __init__(self, id):
        self.id = id


class Pickler(pickle.Pickler):
    def __init__(self, file, protocol):
        super().__init__(file, protocol)
        self.storages = {}  # key: storage, as records are named and in their order
        self.keys = {}  # identity of a storage: key
        self.dtypes = {}  # address: torch saves no memory as of two types

    def persistent_id(self, obj):
        """Asked for each object, numbers and names too. A storage that no tensor leads to comes to reducer_override."""
        return obj.id if type(obj) is Storage else None

    def reducer_override(self, obj):
        kind = type(obj)
        if kind is not Tensor:
            if kind is OrderedDict and not obj and not obj.__dict__:  # the hooks of a tensor: pickle's own way to the same is longer
                return OrderedDict, (), None, None, iter(())
            is_storage = isinstance(obj, torch.storage.TypedStorage) or torch.is_storage(obj)
            if is_storage or isinstance(obj, Tensor) and kind is not torch.nn.Parameter:
                raise NotPlain
            return NotImplemented
        if not is_plain(obj):
            raise NotPlain
        storage = Storage(self.id_of(obj.untyped_storage(), obj.dtype))
        size = tuple(obj.size())
        return torch._utils._rebuild_tensor_v2, (
            storage, obj.storage_offset(), size, obj.stride(), obj.requires_grad, OrderedDict()
        )  # fmt: skip

    def id_of(self, storage, dtype):
        address, size = storage.data_ptr(), storage.nbytes()
        if (address and self.dtypes.setdefault(address, dtype) is not dtype) or (size and not address):
            raise NotPlain
        key = self.keys.setdefault(storage._cdata, str(len(self.keys)))
        self.storages[key] = storage
        kind, item = storage_type(dtype)
        return "storage", kind, key, "cpu", size // item


def is_plain(tensor):
    return (
        tensor.is_cpu and tensor.dtype in KINDS and tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested
        and not tensor.__dict__
        and tensor._backward_hooks is None and not torch._C._get_tensor_metadata(tensor) and torch._C._has_storage(tensor)
    )  # fmt: skip


@functools.cache
def storage_type(dtype):
    """The class that names a dtype in torch's files, and the bytes of an item."""
    typed = torch.storage.TypedStorage(wrap_storage=torch.UntypedStorage(0), dtype=dtype, _internal=True)
    return getattr(torch, typed._pickle_storage_type()), typed._element_size()


def pickled(obj, protocol):
    """(the bytes of data.pkl, the storages in order). NotPlain: torch is to be asked."""
    if Tensor.__reduce_ex__ is not REDUCE or Tensor in copyreg.dispatch_table:
        raise NotPlain
    file = io.BytesIO()
    pickler = Pickler(file, protocol)
    pickler.dump(obj)
    return file.getvalue(), list(pickler.storages.values())


def probe():
    """Of all kinds that are pickled here, and how they may hang together. Made without a random number: the program's are not touched."""
    with torch.device("cpu"):
        return make_probe()


def make_probe():
    base = torch.arange(48, dtype=torch.float32)
    state = OrderedDict(weight=base.view(6, 8), column=base.view(6, 8)[1:, 2], again=base, once=base)
    state._metadata = OrderedDict(version=1)
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    return {
        "state": state, "kinds": [torch.ones(2, 2, dtype=kind) for kind in KINDS], "parameter": parameter,
        "detached": parameter.detach(), "grad": torch.ones(2, requires_grad=True), "empty": [torch.empty(0), torch.empty(0, 3)],
        "scalar": torch.tensor(1.5), "size": base.view(6, 8).size(), "dtype": torch.bfloat16, "device": torch.device("cpu"),
        "cpu": "storage",
        "numbers": [1, -1, 2.5, 1 << 70, None, True], "bytes": b"x", "set": {1}, "tuple": (1, (2, 3), base), "function": torch.relu,
        "class": dict,
    }  # fmt: skip
