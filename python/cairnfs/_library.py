# SPDX-License-Identifier: Apache-2.0
"""libcairn.so.0 by ctypes: the declarations of <cairn/cairn.h>, and its errors as OSError.

A call of ctypes drops the interpreter's lock, so a call that blocks here blocks only its own thread.
"""
import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

NAME = "libcairn.so.0"
COPIED, PUBLISHED, NVME, REMOTE = range(4)
LANE_TELLS = 1
LOAD_BUFFERED = 1
TARGET_FRESH = 1
SOURCE_NOW = 1
SAVE_EXCLUSIVE, SAVE_REFER, SAVE_NO_CRC, SAVE_CLEAN, SAVE_HOLD, SAVE_URGENT, SAVE_REGULAR = 1, 2, 4, 8, 16, 32, 64


class NoLibrary(OSError):
    """libcairn cannot be loaded; the text names every place that was tried. torch writes the files then."""


class Sized(ctypes.Structure):
    """A struct that a caller fills: begins with its own size."""

    def __init__(self, **members):
        super().__init__(size=ctypes.sizeof(type(self)), **members)


class LaneOptions(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("ring_bytes", c_uint64),
        ("copy_threads", c_uint32),
        ("nice", c_int32),
        ("max_block_ms", c_int32),
        ("flags", c_uint32),
        ("log", c_void_p),
        ("log_arg", c_void_p),
    ]


class Stream(ctypes.Structure):
    _fields_ = [("device", c_int32), ("stream", c_uint64)]


class LaneStats(Sized):
    _fields_ = [("size", c_size_t)] + [
        (name, c_uint64)
        for name in (
            "saves_begun", "saves_published", "saves_failed", "bytes_copied", "bytes_referenced", "bytes_device",
            "pending_bytes", "pending_saves", "blocked_ns", "ring_bytes", "ring_registered_bytes",
        )
    ]  # fmt: skip


class Source(ctypes.Structure):
    _fields_ = [
        ("offset", c_uint64),
        ("length", c_uint64),
        ("host", c_void_p),
        ("device_address", c_uint64),
        ("device", c_int32),
        ("flags", c_uint32),
        ("producer", c_uint64),
        ("key", c_char_p),
    ]


class SaveOptions(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("mode", c_uint32),
        ("flags", c_uint32),
        ("after", POINTER(c_void_p)),
        ("after_count", c_size_t),
        ("max_block_ms", c_int32),
    ]


class ZipRecord(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("source", Source)]


class ZipOptions(Sized):
    _fields_ = [("size", c_size_t), ("archive", c_char_p), ("alignment", c_uint32)]


class Progress(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("bytes", c_uint64),
        ("bytes_copied", c_uint64),
        ("bytes_referenced", c_uint64),
        ("level", c_int32),
        ("error", c_int32),
    ]


class LoadOptions(Sized):
    _fields_ = [("size", c_size_t), ("threads", c_uint32), ("flags", c_uint32)]


class Target(ctypes.Structure):
    _fields_ = [
        ("offset", c_uint64),
        ("length", c_uint64),
        ("host", c_void_p),
        ("flags", c_uint32),
        ("reserved32", c_uint32),
        ("reserved", c_uint64 * 3),
    ]


SIGNATURES = {
    "cairn_lane_open": (POINTER(LaneOptions), POINTER(c_void_p)),
    "cairn_lane_prepare": (c_void_p, c_uint64),
    "cairn_lane_close": (c_void_p,),
    "cairn_lane_fence": (c_void_p, POINTER(Stream), c_size_t, c_int),
    "cairn_lane_take_error": (c_void_p, c_char_p, c_size_t),
    "cairn_lane_stats": (c_void_p, POINTER(LaneStats)),
    "cairn_save_begin": (c_void_p, c_char_p, c_uint64, POINTER(SaveOptions), POINTER(c_void_p)),
    "cairn_save_put": (c_void_p, POINTER(Source), c_size_t),
    "cairn_save_commit": (c_void_p,),
    "cairn_save_zip": (
        c_void_p, c_char_p, POINTER(ZipRecord), c_size_t, POINTER(ZipOptions), POINTER(SaveOptions), POINTER(c_void_p)
    ),
    "cairn_save_safetensors": (
        c_void_p, c_char_p, c_char_p, c_size_t, POINTER(Source), c_size_t, POINTER(SaveOptions), POINTER(c_void_p)
    ),
    "cairn_save_marker": (c_void_p, c_char_p, c_char_p, c_size_t, POINTER(SaveOptions), POINTER(c_void_p)),
    "cairn_save_wait": (c_void_p, c_int, c_int),
    "cairn_save_progress": (c_void_p, POINTER(Progress)),
    "cairn_save_abort": (c_void_p,),
    "cairn_save_fail": (c_void_p, c_int, c_char_p),
    "cairn_save_error": (c_void_p, POINTER(c_char_p)),
    "cairn_load_open": (c_void_p, c_char_p, POINTER(LoadOptions), POINTER(c_void_p)),
    "cairn_load_fd": (c_void_p,),
    "cairn_load_get": (c_void_p, POINTER(Target), c_size_t),
    "cairn_load_wait": (c_void_p, c_size_t, c_size_t, c_int),
    "cairn_load_cancel": (c_void_p,),
}  # fmt: skip

_loaded = None
_loading = threading.Lock()


def places():
    """Where the library may be: the user's path, beside this package (wheel), where it was installed or built, where the linker
    looks."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("CAIRN_LIBRARY"):
        return [os.environ["CAIRN_LIBRARY"]]
    try:
        from ._place import INSTALLED  # written by `ninja install`
    except ImportError:
        INSTALLED = os.path.join(here, "..", "..", "build", "src", "client", NAME)
    return [os.path.join(here, NAME), INSTALLED, NAME]


def library():
    """The loaded library, or NoLibrary."""
    global _loaded
    if _loaded is None:
        with _loading:
            _loaded = _loaded or load()
    return _loaded


def load():
    problems = []
    for place in places():
        try:
            loaded = ctypes.CDLL(place)
            break
        except OSError as error:
            problems.append(str(error))
    else:
        raise NoLibrary(f"cannot load {NAME} ({'; '.join(problems)}): install CairnFS, or set $CAIRN_LIBRARY to the file")
    try:
        declare(loaded)
    except AttributeError as why:
        raise NoLibrary(f"{place} is of another version of CairnFS than this package ({why}): install both of one version") from None
    return loaded


def declare(loaded):
    for name, arguments in SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, c_int
    loaded.cairn_save_free.argtypes, loaded.cairn_save_free.restype = (c_void_p,), None
    loaded.cairn_load_free.argtypes, loaded.cairn_load_free.restype = (c_void_p,), None
    loaded.cairn_load_size.argtypes, loaded.cairn_load_size.restype = (c_void_p,), c_uint64
    loaded.cairn_save_path.argtypes, loaded.cairn_save_path.restype = (c_void_p,), c_char_p
    loaded.cairn_error.argtypes, loaded.cairn_error.restype = (), c_char_p


def error_of(code, path=None):
    """The OSError of a call of this thread that returned `code`."""
    return make_error(code, library().cairn_error(), path)


def make_error(code, cause, path=None):
    text = (cause or b"").decode(errors="replace") or os.strerror(-code)
    return OSError(-code, text, path) if path is not None else OSError(-code, text)


def check(code, path=None):
    if code < 0:
        raise error_of(code, path)
    return code
