# SPDX-License-Identifier: Apache-2.0
"""libcairn through ctypes, for the tests of its files: as C sees it, without the Python package."""
import ctypes
import os

COPIED, PUBLISHED, NVME, REMOTE = range(4)
NOW = 1
EXCLUSIVE, REFER, NO_CRC, CLEAN, HOLD, URGENT = 1, 2, 4, 8, 16, 32
LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class LaneOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("ring_bytes", ctypes.c_uint64), ("copy_threads", ctypes.c_uint32), ("nice", ctypes.c_int32),
                ("max_block_ms", ctypes.c_int32), ("flags", ctypes.c_uint32), ("log", LOG), ("log_arg", ctypes.c_void_p)]


class Source(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64), ("host", ctypes.c_void_p), ("device_address", ctypes.c_uint64),
                ("device", ctypes.c_int32), ("flags", ctypes.c_uint32), ("producer", ctypes.c_uint64), ("key", ctypes.c_char_p)]


class Record(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("source", Source)]


class SaveOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("mode", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("after", ctypes.POINTER(ctypes.c_void_p)),
                ("after_count", ctypes.c_size_t), ("max_block_ms", ctypes.c_int32)]


class Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in (
        "saves_begun", "saves_published", "saves_failed", "bytes_copied", "bytes_referenced", "bytes_device", "pending_bytes",
        "pending_saves",
        "blocked_ns", "ring_bytes", "ring_registered_bytes")]


def path_in(build):
    return os.path.join(build, "src", "client", "libcairn.so.0")


def open_below(directory):
    """What this process has open there."""
    fds = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return [target for target in (os.readlink(fd) for fd in fds if os.path.islink(fd)) if target.startswith(directory)]


class LaneError(OSError):
    pass


class Lane:
    """One lane. Buffers are kept until the lane is closed."""

    def __init__(self, build, **options):
        self.lib = ctypes.CDLL(path_in(build))
        self.lib.cairn_error.restype = ctypes.c_char_p
        self.lane = ctypes.c_void_p()
        self.lines, self.kept = [], []
        self.log = LOG(lambda level, text, arg: self.lines.append((level, text.decode(errors="replace"))))
        given = LaneOptions(size=ctypes.sizeof(LaneOptions), log=self.log, **options)
        self.call("cairn_lane_open", ctypes.byref(given), ctypes.byref(self.lane))

    def call(self, name, *arguments):
        r = getattr(self.lib, name)(*arguments)
        if r < 0:
            raise LaneError(-r, self.lib.cairn_error().decode(errors="replace"))
        return r

    def buffer(self, data):
        buffer = ctypes.create_string_buffer(data, len(data)) if isinstance(data, (bytes, bytearray)) else data
        self.kept.append(buffer)
        return ctypes.addressof(buffer)

    def options(self, flags=0, after=(), mode=0, max_block_ms=0):
        saves = (ctypes.c_void_p * max(1, len(after)))(*[save.save for save in after])
        self.kept.append(saves)
        options = SaveOptions(ctypes.sizeof(SaveOptions), mode, flags, ctypes.cast(saves, ctypes.POINTER(ctypes.c_void_p)), len(after),
                              max_block_ms)
        self.kept.append(options)
        return ctypes.byref(options)

    def begin(self, path, size, **options):
        save = ctypes.c_void_p()
        self.call("cairn_save_begin", self.lane, os.fsencode(path), ctypes.c_uint64(size), self.options(**options), ctypes.byref(save))
        return Save(self, save)

    def raw(self, path, data, now=False, key=None, **options):
        """One source that is all of the file."""
        save = self.begin(path, len(data), **options)
        save.put(0, data, now, key)
        save.commit()
        return save

    def zip(self, path, records, now=False, keys=False, **options):
        save = ctypes.c_void_p()
        array = (Record * len(records))()
        for i, (name, data) in enumerate(records):
            source = Source(0, len(data), self.buffer(data), flags=NOW if now else 0, key=name.encode() if keys else None)
            array[i] = Record(name.encode(), source)
        self.call("cairn_save_zip", self.lane, os.fsencode(path), array, ctypes.c_size_t(len(records)), None, self.options(**options),
                  ctypes.byref(save))
        return Save(self, save)

    def safetensors(self, path, header, sources, **options):
        save = ctypes.c_void_p()
        array = (Source * max(1, len(sources)))()
        for i, (offset, data) in enumerate(sources):
            array[i] = Source(offset, len(data), self.buffer(data))
        self.call("cairn_save_safetensors", self.lane, os.fsencode(path), header, ctypes.c_size_t(len(header)), array,
                  ctypes.c_size_t(len(sources)), self.options(**options), ctypes.byref(save))
        return Save(self, save)

    def marker(self, path, data, **options):
        save = ctypes.c_void_p()
        self.call("cairn_save_marker", self.lane, os.fsencode(path), data, ctypes.c_size_t(len(data)), self.options(**options),
                  ctypes.byref(save))
        return Save(self, save)

    def fence(self, timeout_ms=-1):
        self.call("cairn_lane_fence", self.lane, None, ctypes.c_size_t(0), timeout_ms)

    def stats(self):
        stats = Stats(size=ctypes.sizeof(Stats))
        self.call("cairn_lane_stats", self.lane, ctypes.byref(stats))
        return stats

    def take_error(self):
        """(errno, text) of the oldest failed save that was not reported; None."""
        text = ctypes.create_string_buffer(500)
        r = self.lib.cairn_lane_take_error(self.lane, text, ctypes.c_size_t(500))
        return (-r, text.value.decode(errors="replace")) if r else None

    def close(self):
        lane, self.lane = self.lane, None
        if lane:
            self.call("cairn_lane_close", lane)


class Save:
    def __init__(self, lane, save):
        self.lane, self.save = lane, save

    def put(self, offset, data, now=False, key=None):
        source = Source(offset, len(data), self.lane.buffer(data), flags=NOW if now else 0, key=key)
        self.lane.call("cairn_save_put", self.save, ctypes.byref(source), ctypes.c_size_t(1))

    def commit(self):
        self.lane.call("cairn_save_commit", self.save)

    def wait(self, level=PUBLISHED, timeout_ms=-1):
        self.lane.call("cairn_save_wait", self.save, level, timeout_ms)

    def fail(self, number, cause):
        self.lane.call("cairn_save_fail", self.save, -number, cause)

    def abort(self):
        self.lane.call("cairn_save_abort", self.save)

    def error(self, level=PUBLISHED):
        """The errno that a wait ends with, and its text."""
        try:
            self.wait(level)
        except LaneError as error:
            return error.errno, error.strerror
        return 0, ""
