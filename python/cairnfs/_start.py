# SPDX-License-Identifier: Apache-2.0
"""How a save begins: decides which storages are copied later, and passes the places of all bytes to the library."""
import ctypes
import errno

import torch

from . import _fence, _gate, _process, _track
from . import _library as lib
from ._save import Save

# The call could not begin because of where the file is to be: plain torch.save says that in its own words.
FOR_TORCH = {
    errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.EISDIR,
    errno.ENOTSUP,  # no regular file: a stream, a device
}  # fmt: skip
# Faults of the place or the machine: the save fails, the training goes on.
FAULTS = {
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOTCONN, errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
    errno.ENXIO, errno.ENODEV, errno.ECONNABORTED, errno.EINTR, errno.EFBIG, errno.EAGAIN,
    errno.EFAULT,  # the memory of a source
}  # fmt: skip
REFER_SHARE = 0.25  # if no optimizer holds this share of the bytes, a search for unchanged ones pays


class Range:
    """Memory of a storage: all of it, or the part of a contiguous tensor."""

    def __init__(self, storage, address=None, size=None):
        self.storage = storage
        self.address = storage.data_ptr() if address is None else address
        self.size = storage.nbytes() if size is None else size
        self.device = storage.device
        self.id = storage._cdata


class Plan:
    """How a file is to be saved: the keywords of save()."""

    def __init__(self, lazy=True, mode=0o666, track=None, on_error="warn", max_block=None, refer=None):
        process = _process.current()
        self.lazy = lazy if not (process.captured or process.ending) else False  # at the end nothing waits any more
        self.mode, self.track, self.on_error, self.max_block, self.refer = mode, track, on_error, max_block, refer


def start(target, plan, items, begin):
    """Begins the save of `items` [(key, bytes or storage)] by begin(path, sources, options, handle), and waits where it is not lazy."""
    process = _process.current()
    result = Save(target, plan.on_error, plan.max_block)
    _fence.watch_end()
    _gate.watch()
    try:
        process.open()
        with _gate.order(result.place) as order:
            result.ticket = order.ticket
            fill(result, plan, items, begin, order.after)
            process.add(result)
        if plan.lazy is False:
            result.wait("published")
    except BaseException as error:  # KeyboardInterrupt, too
        result.undo()
        if result.handle is not None or not is_fault(error) or plan.lazy is False or plan.on_error == "raise":
            raise
        result.fail(error)
        process.end(result)
    return result


def is_fault(error):
    return isinstance(error, OSError) and error.errno in FAULTS


def fill(result, plan, items, begin, earlier):
    known = _track.tracked(plan.track) if plan.lazy is True else {}
    ranges = [data for _, data in items if isinstance(data, Range)]
    lazy = [data for data in ranges if is_later(data, plan.lazy, known)]
    late = {data.id for data in lazy}
    producers = {}
    sources = [source_of(key, data, late, producers) for key, data in items]
    result.guards = () if plan.lazy is False else _track.guards_of({data.id: data.storage for data in lazy}, known)
    result.held = bool(result.guards) or result.ticket is not None
    flags = lib.SAVE_CLEAN | lib.SAVE_REGULAR | (lib.SAVE_HOLD if result.held else 0) | (lib.SAVE_URGENT if plan.lazy is False else 0)
    if plan.refer or plan.refer is None and mostly_frozen(ranges, known):
        flags |= lib.SAVE_REFER
    after = (ctypes.c_void_p * len(earlier))(*(save.handle for save in earlier))
    options = lib.SaveOptions(mode=plan.mode or 0o666, flags=flags, after=after, after_count=len(after),
                              max_block_ms=milliseconds(plan.max_block))
    result.keep = [data for _, data in items], sources
    result.storages = late
    result.devices = tuple(producers)
    result.reading = bool(late) or result.held
    begin(result.path, sources, options, result.slot)
    result.begun()


def milliseconds(seconds):
    """As the library takes it: 0 is its own default."""
    return 0 if seconds is None else min(max(1, round(seconds * 1000)), (1 << 31) - 1)


def is_later(data, lazy, known):
    """May be read after the call has returned."""
    if lazy is False or lazy == "all":
        return True
    return data.id in known and data.storage.nbytes() >= _track.SMALL


def source_of(key, data, late, producers):
    if isinstance(data, bytes):  # copies of small ones are gathered with their neighbours in the file; else each would be a write
        flags = lib.SOURCE_NOW if len(data) < _track.SMALL else 0
        return lib.Source(length=len(data), host=ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p) if data else None, flags=flags)
    flags, key = 0 if data.id in late else lib.SOURCE_NOW, key.encode()
    if data.device.type == "cpu":
        return lib.Source(length=data.size, host=data.address if data.size else None, flags=flags, key=key)
    device = data.device.index
    if device not in producers:
        producers[device] = torch.cuda.current_stream(device).cuda_stream
    return lib.Source(length=data.size, device_address=data.address, device=device, flags=flags, producer=producers[device], key=key)


def mostly_frozen(ranges, known):
    """Much of it is held by no optimizer, so it may well be as it was in the last version."""
    big = [data for data in ranges if data.size >= _track.SMALL]
    frozen = sum(data.size for data in big if data.id not in known)
    return bool(known) and frozen > REFER_SHARE * sum(data.size for data in big)
