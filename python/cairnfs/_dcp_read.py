# SPDX-License-Identifier: Apache-2.0
"""What one rank wants of the files of a torch.distributed.checkpoint, read by the library: only that, in the order of each file.

An item that FileSystemWriter or Writer has written is a torch archive of one tensor, at `offset` in a file. Small items are read whole;
of large ones first both ends, which hold the pickle and the archive's directory, then the ranges of the tensor that the plan wants.
Ranges that are at most JOIN apart are one. Where a target's memory is laid out as the file is, bytes go straight there.
"""
import io
import pickle

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import LoadItemType

from . import _archive, _fence, _into, _load
from ._log import logger
from ._reading import NotCovered, Reading, new_storage

JOIN = 128 << 10
WHOLE = 1 << 20  # items up to this size are read at once: their ends would be most of the chunks that they are in
END = _archive.TAIL
WINDOW = 256 << 20  # bytes of tensors that are read beside the targets at a time


class Item:
    """One item of a file, and the requests for it."""

    def __init__(self, offset, length, requests):
        self.offset, self.length, self.requests = offset, length, requests
        self.parts = []  # (offset in the item, bytes) that are there
        self.found = None  # the tensor, whose storage is filled where the plan wants it
        self.record = None  # where its bytes are, in the item; None: it has none
        self.is_whole = length <= WHOLE or requests[0].type == LoadItemType.BYTE_IO  # it is read at once

    def ends(self):
        """Ranges of the file that are read first."""
        if self.is_whole:
            return [(self.offset, self.length)]
        return [(self.offset, END), (self.offset + self.length - END, END)]


class Want:
    """A part of an item's tensor, and the memory that it goes to."""

    def __init__(self, item, request):
        self.item, self.request, self.target = item, request, None
        self.part = narrow_tensor_by_index(item.found, request.storage_offsets, request.lengths)
        self.is_straight = False  # the library reads to the target

    def size(self):
        return self.part.numel() * self.part.element_size()


class Ends(io.RawIOBase):
    """An item as a file, of which only its ends may be read: for torch's archive reader, and for Archive."""

    def __init__(self, item):
        super().__init__()
        self.item, self.size, self.at = item, item.length, 0

    def read(self, *where):
        """read(size) of a file, or read(offset, length) of a Reading."""
        offset, length = where if len(where) == 2 else (self.at, self.size - self.at if not where or where[0] < 0 else where[0])
        length = max(0, min(length, self.size - offset))
        if len(where) != 2:
            self.at += length
        for start, data in self.item.parts:
            if start <= offset and offset + length <= start + len(data):
                return bytes(data[offset - start : offset - start + length])
        raise NotCovered("an item whose archive is not at its ends")

    def readinto(self, buffer):
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def tell(self):
        return self.at

    def readable(self):
        return True

    seekable = readable


def read_items(path, wanted, planner):
    """wanted: [(request of the plan, its place in the file)]. Returns those that torch is to read: nothing was done for them."""
    requests = {}
    for request, info in wanted:
        requests.setdefault((info.offset, info.length, request.type), []).append(request)
    items = [Item(offset, length, found) for (offset, length, _), found in requests.items()]
    left = []
    with Reading(path) as reading:
        for batch in batches(sorted(items, key=lambda item: item.offset), lambda item: sum(length for _, length in item.ends())):
            read_ends(reading, batch)
            fill(reading, open_items(batch, planner, left), planner)
    return left


def batches(items, size_of):
    """Parts of the list, of WINDOW bytes each if an item is not larger."""
    batch, size = [], 0
    for item in items:
        if batch and size + size_of(item) > WINDOW:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += size_of(item)
    if batch:
        yield batch


# --- the ends of items --------------------------------------------------------------------------------------------------------------


def read_ends(reading, items):
    ranges = sorted((offset, length, number) for number, item in enumerate(items) for offset, length in item.ends())
    for offset, length, number in ranges:
        if offset < 0 or length < 0 or offset + length > reading.size:
            index = items[number].requests[0].storage_index
            raise ValueError(f"{reading.path}: {index} is {length} bytes at {offset}, and the file has {reading.size}")
    joined = join([(offset, length) for offset, length, _ in ranges])
    memory = [bytearray(length) for _, length in joined]
    targets = [(offset, length, address_of(part), 0) for (offset, length), part in zip(joined, memory) if length]
    if targets:
        reading.wait(reading.get(targets, memory), len(targets))
    at = 0
    for offset, length, number in ranges:
        while offset + length > sum(joined[at]):
            at += 1
        start = offset - joined[at][0]
        items[number].parts.append((offset - items[number].offset, memoryview(memory[at])[start : start + length]))


def join(ranges):
    """[(offset, length)] in order: those that are at most JOIN apart are one."""
    joined = []
    for offset, length in ranges:
        if joined and offset <= sum(joined[-1]) + JOIN:
            start = joined[-1][0]
            joined[-1] = start, max(sum(joined[-1]), offset + length) - start
        else:
            joined.append((offset, length))
    return joined


def address_of(memory):
    return torch.frombuffer(memory, dtype=torch.uint8).data_ptr()


def open_items(items, planner, left):
    """What is wanted of their tensors. Adds the requests that torch is to read to `left`."""
    wants = []
    for item in items:
        if item.requests[0].type == LoadItemType.BYTE_IO:
            for request in item.requests:
                planner.load_bytes(request, io.BytesIO(item.parts[0][1]))
            continue
        try:
            item.found, item.record = open_tensor(item)
            wants += [Want(item, request) for request in item.requests]
        except (NotCovered, RuntimeError, ValueError, pickle.UnpicklingError) as why:  # torch loads it, or says what is wrong with it
            logger.debug("torch reads %s: %s", item.requests[0].storage_index, why)
            left += item.requests
    return wants


def open_tensor(item):
    """(the tensor, with a storage that is not filled, its record). NotCovered: torch is to load it."""
    ends = Ends(item)
    reader = torch._C.PyTorchFileReader(ends)
    if not _load.is_late(reader):
        raise NotCovered("a pickle that may look into a tensor")
    alignment = int(reader.get_record(".storage_alignment")) if reader.has_record(".storage_alignment") else 64
    late = _load.Late(reader, _archive.Archive(ends, alignment))
    found = _load.unpickle(late, "cpu", True)
    if type(found) not in _into.PLAIN or found.layout != torch.strided or len(late.storages) > 1:
        raise NotCovered("an item that is no plain dense tensor")
    if not late.storages:
        return found.detach(), None
    record = late.storages[0][0]
    if not record.is_known:
        _archive.check_header(record, ends.read(record.header, record.data - record.header))
    return found.detach(), record


# --- what is wanted of their tensors ------------------------------------------------------------------------------------------------


def fill(reading, wants, planner):
    """Targets are asked for one after the other, as torch does, unless the planner is known to hand out memory of the state itself."""
    _fence.fence()
    if type(planner).resolve_tensor is DefaultLoadPlanner.resolve_tensor:
        for want in wants:
            want.target = resolve(want, planner)
        choose_straight(reading, wants)
    for batch in batches(wants, lambda want: 0 if want.is_straight else want.size()):
        read_batch(reading, batch)
        for want in batch:
            deliver(want, planner)


def resolve(want, planner):
    target = planner.resolve_tensor(want.request).detach()
    if target.size() != want.part.size():
        raise AssertionError(f"req {want.request.storage_index} mismatch sizes {target.size()} vs {want.part.size()}")
    return target


def choose_straight(reading, wants):
    """Of targets that share memory the library reads to one only."""
    entries = [(want, want.target, 0, want.size()) for want in wants if is_alike(want)]
    for want, *_ in _into.without_overlaps(entries)[0]:
        want.is_straight = True
        reading.owns_all = False


def is_alike(want):
    """The target's memory is to hold the bytes of the file, one after the other."""
    target, part = want.target, want.part
    is_plain = type(target) in _into.PLAIN and target.layout == torch.strided and target.device.type == "cpu" and not target.is_quantized
    return (is_plain and not want.item.is_whole and part.numel() > 0 and want.item.record is not None and target.dtype == part.dtype
            and not target.is_inference() and part.is_contiguous() and _into.is_laid_out_alike(target, part))  # fmt: skip


def read_batch(reading, batch):
    targets = []
    for want in batch:
        item = want.item
        if item.record is None:
            continue
        if item.is_whole:
            copy_whole(item)
            continue
        base = item.offset + item.record.data
        memory = item.found.untyped_storage().data_ptr()
        for start, length in ranges_of(want.part):
            targets.append((base + start, length, want.target.data_ptr() if want.is_straight else memory + start, 0))
    if targets:
        reading.wait(reading.get(targets, [(want.item.found, want.target) for want in batch]), len(targets))


def copy_whole(item):
    storage, (_, data) = item.found.untyped_storage(), item.parts[0]
    if storage.nbytes():
        place = data[item.record.data : item.record.data + storage.nbytes()]
        torch.empty(0, dtype=torch.uint8).set_(storage).copy_(torch.frombuffer(place, dtype=torch.uint8))


def ranges_of(part):
    """[(offset, length)] in the storage that hold the tensor, those close to each other joined."""
    if not part.numel():
        return []
    size = length = part.element_size()
    dims = sorted((stride * size, count) for stride, count in zip(part.stride(), part.shape) if count > 1)
    while dims and dims[0][0] <= length + JOIN:
        stride, count = dims.pop(0)
        length += stride * (count - 1)
    starts = [part.storage_offset() * size]
    for stride, count in dims:
        starts = [start + stride * number for start in starts for number in range(count)]
    return join([(start, length) for start in sorted(starts)])


def deliver(want, planner):
    target = resolve(want, planner) if want.target is None else want.target
    if want.is_straight:
        torch.autograd.graph.increment_version(target)
    else:
        target.copy_(want.part)
    planner.commit_tensor(want.request, target)
    want.part = want.target = None
