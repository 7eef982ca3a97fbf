# SPDX-License-Identifier: Apache-2.0
"""A file that threads of the library read into memory: the calls cairn_load_* of <cairn/cairn.h>, as one object."""
import ctypes
import errno
import mmap
import os
import struct
import sys

import torch

from . import _library as lib
from . import _process

OWN_PAGES = 1 << 20  # bytes from which on memory is mapped by itself: a whole chunk then lies on whole pages
TARGET = struct.Struct("=QQQIIQQQ")  # as lib.Target


class NotCovered(Exception):
    """This load is one for plain torch.load; the text says why."""


class Reading:
    """Leaving the block closes it: then no thread writes to memory that the caller can still see."""

    def __init__(self, path, threads=None):
        self.path = os.fspath(path)
        self.pid = os.getpid()
        self.owns_all = True  # no memory of the caller's is a target
        self.kept = []  # memory that threads may write to
        self.count = 0  # of targets
        free_held()
        sys.audit("open", self.path, "r", os.O_RDONLY | os.O_CLOEXEC)
        handle, options = ctypes.c_void_p(), lib.LoadOptions(threads=threads or 0)
        code = lib.library().cairn_load_open(_process.current().open(), os.fsencode(self.path), options, ctypes.byref(handle))
        if code == -errno.ENOTSUP:
            raise NotCovered("no regular file")
        lib.check(code, self.path)
        self.handle = handle
        self.size = lib.library().cairn_load_size(handle)
        self.fd = lib.library().cairn_load_fd(handle)

    def file(self, buffer=-1):
        """For readers of small things, from the first byte on; `buffer`: so many bytes at a time, -1: a block of the filesystem."""
        os.lseek(self.fd, 0, os.SEEK_SET)
        return os.fdopen(self.fd, "rb", buffer, closefd=False)

    def read(self, offset, length):
        """Exactly so many bytes; fewer at the end of the file."""
        parts = []
        while length > 0:
            part = os.pread(self.fd, length, offset)
            if not part:
                break
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def get(self, targets, keep):
        """Begins to fill [(offset, length, address, flags)]; returns the number of the first one. `keep` owns the memory."""
        first, packed = self.count, b"".join([TARGET.pack(*target, 0, 0, 0, 0) for target in targets])
        array = (lib.Target * len(targets)).from_buffer_copy(packed)
        self.kept.append(keep)
        self.count += len(targets)
        code = lib.library().cairn_load_get(self.handle, array, len(targets))
        if code < 0:
            self.count = first
            raise self.error_of(code)
        return first

    def wait(self, first, count):
        """Until these are filled. Python's signal handlers run meanwhile."""
        code = -errno.ETIMEDOUT
        while code == -errno.ETIMEDOUT:
            code = lib.library().cairn_load_wait(self.handle, first, count, int(_process.SLICE * 1000))
        if code < 0:
            raise self.error_of(code)

    def is_filled(self, number):
        return lib.library().cairn_load_wait(self.handle, number, 1, 0) == 0

    def error_of(self, code):
        error = lib.error_of(code, self.path)
        return MemoryError(error.strerror) if code == -errno.ENOMEM else error

    def __enter__(self):
        return self

    def __exit__(self, *why):
        lib.library().cairn_load_cancel(self.handle)
        if self.owns_all:
            if not self.is_quiet():
                hold(self)
                return
        else:
            self.wait_quiet()
        self.free()

    def is_quiet(self, seconds=_process.SLICE):
        return lib.library().cairn_load_wait(self.handle, 0, self.count, int(seconds * 1000)) != -errno.ETIMEDOUT

    def wait_quiet(self):
        """Memory of the caller's is written to until the reads under way have ended: an interrupt waits for that."""
        interrupt = None
        while True:
            try:
                if self.is_quiet():
                    break
            except KeyboardInterrupt as why:
                interrupt = why
        if interrupt:
            raise interrupt

    def free(self):
        handle, self.handle = self.handle, None
        lib.library().cairn_load_free(handle)
        self.kept.clear()


_held = []


def hold(reading):
    """A filesystem holds a read of it up. The memory stays until that has ended and a load is begun, or until the process ends: Python does
    not free it at its own end either, as the kernel may still write there."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(reading))
    _held.append(reading)


def free_held():
    with _process.lock():
        for reading in [reading for reading in _held if reading.pid != os.getpid() or reading.is_quiet(0)]:
            _held.remove(reading)
            if reading.pid == os.getpid():
                reading.free()
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(reading))


def new_storage(size):
    """(storage of `size` bytes in host memory, flags of a target there). None can be resized, as of torch.load: a pickle whose tensors are
    larger than their record is refused."""
    if size < OWN_PAGES:
        return torch.UntypedStorage(size, device="cpu")[:], 0
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as why:
        raise MemoryError(f"no memory for a tensor of {size} bytes") from why
    return torch.frombuffer(pages, dtype=torch.uint8).untyped_storage(), lib.TARGET_FRESH
