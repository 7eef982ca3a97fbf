# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint through the lane: dcp.save(state, storage_writer=cairnfs.dcp.Writer(path)) and
dcp.load(state, storage_reader=cairnfs.dcp.Reader(path)).

Each works with its counterpart of torch, too. dcp.save() returns when all is laid out; `.metadata` is written last, when the files of all
ranks have their names. Files are named anew by each save, so that an older checkpoint in the same directory stays whole until then.
"""
import atexit
import ctypes
import dataclasses
import errno
import functools
import io
import os
import pickle
import struct
import sys
import threading
import time
import uuid

import torch
import torch.distributed as distributed
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import _library as lib
from . import _dcp_read, _process, _ranks, _records
from ._api import marker
from ._log import logger, once
from ._reading import NotCovered
from ._start import Plan, Range, start

BIG = 0xFFFFFFFF
RANKS_WAIT = 600.0  # seconds that `.metadata` waits for the files of other ranks
POLL = 0.02
_under_way = []


class Writer(FileSystemWriter):
    """A StorageWriter. wait() returns when `.metadata` is there."""

    def __init__(self, path, *, lazy=True, track=None, on_error="warn", max_block=None, refer=None, **options):
        super().__init__(path, **options)
        self.plan = (lazy, 0o666, track, on_error, max_block, refer)
        self.saves, self.thread, self.error = [], None, None

    def write_data(self, plan, planner):
        try:
            lib.library()
        except lib.NoLibrary as why:
            once(f"{why}: written without the lane")
            self.saves = []
            return super().write_data(plan, planner)
        name = f"{plan.storage_data.prefix}{uuid.uuid4().hex[:12]}.distcp"
        parts, results = Parts(), []
        for item in plan.items:
            data = planner.resolve_data(item)
            begin = parts.end
            if item.type == WriteItemType.BYTE_IO:
                parts.add(data.getvalue() if isinstance(data, io.BytesIO) else bytes(data))
            else:
                parts.add_tensor(str(item.index), data.detach())
            length = parts.end - begin
            results.append(WriteResult(index=item.index, size_in_bytes=length, storage_data=_StorageInfo(name, begin, length)))
        path = os.path.join(os.fspath(self.path), name)
        self.saves = [start(path, Plan(*self.plan), parts.items, parts.begin)]
        failures = Failures.of_job()
        if failures:
            self.saves[0].add_done_callback(failures.tell)
        future = Future()
        future.set_result(results)
        return future

    def finish(self, metadata, results):
        metadata.storage_data = {result.index: result.storage_data for rank in results for result in rank}
        metadata.storage_meta = self.storage_meta()
        if hasattr(metadata, "version"):
            metadata.version = getattr(sys.modules[FileSystemWriter.__module__], "CURRENT_DCP_VERSION", None)
        names = {os.path.join(os.fspath(self.path), info.relative_path) for info in metadata.storage_data.values()}
        rank = None if getattr(self, "use_collectives", True) else self.rank
        target = os.fspath(self._get_metadata_path(rank) if rank is not None else self._get_metadata_path())
        arguments = (names, target, pickle.dumps(metadata), list(self.saves))
        self.thread = threading.Thread(target=self.end, args=arguments, name="cairnfs-dcp", daemon=True)
        _under_way.append(self.thread)
        self.thread.start()

    def end(self, names, target, data, saves):
        """The files of other ranks are seen when they have their names: then they are whole."""
        try:
            wait_for_files(names - {save.path for save in saves}, target)
            marker(target, data, after=saves).result()
        except OSError as error:
            self.error = error
            logger.error("%s was not written: %s", target, error)

    def wait(self):
        """Until this rank's files have their names, and on the coordinator `.metadata` its own. OSError: the first failure."""
        for save in self.saves:
            save.result()
        if self.thread is not None:
            self.thread.join()
        if self.error is not None:
            raise self.error


class Reader(FileSystemReader):
    """A StorageReader: each rank reads what its plan wants, and no more, by several threads, on a mount past the page cache where it is
    alone. What the library does not read goes to torch: items with transforms, tensors that are not dense, other archives."""

    def read_data(self, plan, planner):
        files = {}
        for request in plan.items:
            info = self.storage_data[request.storage_index]
            files.setdefault(info.relative_path, []).append((request, info))
        left = []
        for name, wanted in files.items():
            left += [request for request, info in wanted if getattr(info, "transform_descriptors", None)]
            plain = [(request, info) for request, info in wanted if not getattr(info, "transform_descriptors", None)]
            try:
                left += _dcp_read.read_items(os.path.join(os.fspath(self.path), name), plain, planner) if plain else []
            except (NotCovered, lib.NoLibrary) as why:
                logger.debug("torch reads %s: %s", name, why)
                left += [request for request, _ in plain]
        return super().read_data(dataclasses.replace(plan, items=left), planner)


def wait_for_files(missing, target):
    """OSError: a rank has told that it could not save its file, or they are not there in time."""
    failures, limit = Failures.of_job(), time.monotonic() + RANKS_WAIT
    while missing := {name for name in missing if not os.path.exists(name)}:
        cause = failures and failures.among(missing)
        if cause:
            raise OSError(errno.ECANCELED, cause, target)
        if time.monotonic() > limit:
            raise TimeoutError(errno.ETIMEDOUT, f"files of other ranks are missing after {RANKS_WAIT:.0f} s", target)
        time.sleep(POLL)


class Failures:
    """What ranks could not save, in the key-value store of the job, by the names of the files, which are of one save each."""

    def __init__(self, store):
        self.store, self.seen = distributed.PrefixStore("cairnfs/dcp", store), 0

    @classmethod
    def of_job(cls):
        """None: one rank alone, or a job without a store: then the coordinator waits for as long as it may."""
        try:
            store = _ranks.job_store()
        except ValueError:
            store = None
        return cls(store) if store is not None and distributed.get_world_size() > 1 else None

    def tell(self, save):
        if save.error is None:
            return
        try:
            self.store.set(os.path.basename(save.path),
                           f"{save.path} of rank {distributed.get_rank()} was not saved: {save.error.strerror}")
            self.store.add("failed", 1)
        except RuntimeError as error:
            logger.warning("the coordinator was not told that %s was not saved: %s", save.path, error)

    def among(self, names):
        """Why one of these files will not come, or None."""
        try:
            before, self.seen = self.seen, self.store.add("failed", 0)
            for name in names if self.seen > before else ():
                if self.store.check([os.path.basename(name)]):
                    return self.store.get(os.path.basename(name)).decode(errors="replace")
        except RuntimeError as error:
            logger.warning("the store of the job does not answer: %s", error)
        return None


@atexit.register
def wait_for_all():
    for thread in _under_way:
        thread.join()


class Parts:
    """The sources of one file, in order."""

    def __init__(self):
        self.items, self.offsets, self.end = [], [], 0

    def add(self, data, key=""):
        self.items.append((key, data))
        self.offsets.append(self.end)
        self.end += data.size if isinstance(data, Range) else len(data)

    def add_tensor(self, key, tensor):
        """A torch archive of it, as torch.save without checksums writes one: so all but the tensor's bytes is known now."""
        if tensor.device.type not in ("cpu", "cuda") or torch.version.hip or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            tensor = tensor.cpu()
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        tensor = tensor.contiguous()
        size = tensor.numel() * tensor.element_size()
        head, tail = archive(tensor.dtype, tuple(tensor.shape))
        self.add(head)
        self.add(Range(tensor.untyped_storage(), tensor.data_ptr(), size), key)
        self.add(tail)

    def begin(self, path, sources, options, handle):
        array = (lib.Source * len(sources))(*sources)
        for source, offset in zip(array, self.offsets):
            source.offset = offset
        hold, options.flags = options.flags & lib.SAVE_HOLD, options.flags & ~lib.SAVE_HOLD
        library, lane = lib.library(), _process.current().open()
        lib.check(library.cairn_save_begin(lane, os.fsencode(path), self.end, ctypes.byref(options), ctypes.byref(handle)), path)
        lib.check(library.cairn_save_put(handle, array, len(array)), path)
        if not hold:
            lib.check(library.cairn_save_commit(handle), path)


@functools.lru_cache(maxsize=4096)
def archive(dtype, shape):
    """(bytes before, bytes behind) of the storage's bytes in an archive of a tensor."""
    records = _records.records_of(torch.empty(shape, dtype=dtype))
    before, after, entries, at = [], [], [], 0
    out = before
    for name, data in records:
        size = len(data) if isinstance(data, bytes) else data.nbytes()
        head, entry, descriptor = record("archive/" + name, at, size)
        out.append(head)
        at += len(head) + size + len(descriptor)
        if isinstance(data, bytes):
            out.append(data)
        else:
            out = after
        out.append(descriptor)
        entries.append(entry)
    return b"".join(before), b"".join(after) + directory(entries, at)


def record(name, at, size):
    """(local header, entry of the directory, data descriptor) of a stored record, as torch's writer lays them; checksum 0."""
    name, big = name.encode(), size >= BIG or at >= BIG
    extra = struct.pack("<HH", 1, 16 * (size >= BIG) + 8 * (at >= BIG)) if big else b""
    extra += struct.pack("<QQ", size, size) if size >= BIG else b""
    extra += struct.pack("<Q", at) if at >= BIG else b""
    pad = -(at + 30 + len(name) + 4 + len(extra)) % _records.alignment()
    padding = struct.pack("<2sH", b"FB", pad) + b"Z" * pad
    flags = 0x0808 if size else 0x0800
    head = struct.pack("<IHHHHHIIIHH", 0x04034B50, 0, flags, 0, 0, 0, 0, 0, 0, len(name),
                       len(extra) + len(padding)) + name + extra + padding
    descriptor = struct.pack("<IIQQ" if big else "<IIII", 0x08074B50, 0, size, size) if size else b""
    place = min(at, BIG)
    entry = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 0, 0, flags, 0, 0, 0, 0, min(size, BIG), min(size, BIG), len(name), len(extra), 0,
                        0, 0, 0, place)
    return head, entry + name + extra, descriptor


def directory(entries, at):
    body = b"".join(entries)
    count, end = len(entries), at + len(body)
    tail = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 0x031E, 45, 0, 0, count, count, len(body),
                       at) + struct.pack("<IIQI", 0x07064B50, 0, end, 1)
    return body + tail + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), min(len(body), BIG),
                                     min(at, BIG), 0)
