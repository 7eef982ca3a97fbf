# SPDX-License-Identifier: Apache-2.0
"""Save: one file on its way, as a future."""
from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from typing import Callable

from . import _library as lib
from . import _process, _track

LEVELS = {"copied": lib.COPIED, "published": lib.PUBLISHED, "nvme": lib.NVME, "remote": lib.REMOTE}
ON_ERROR = ("warn", "raise")
MAX_BLOCK = 600  # seconds: the library's own default


def level_of(level):
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}, not one of {', '.join(LEVELS)}")
    return LEVELS[level]


def place_of(path):
    """The absolute path: the program may be in another directory when it is asked for. An open file as it is."""
    try:
        return os.path.abspath(path)
    except (OSError, TypeError):  # the directory that the program is in was removed
        return path


def below(name, path):
    """The file of this absolute name is `path`, or lies below it. path=None: always true."""
    if path is None:
        return True
    path = place_of(path)
    return name == path or name.startswith(os.path.join(path, ""))


class Save:
    """A file that is being saved. `path` is its name; `result()` and `exception()` wait for it, as those of a future do."""

    def __init__(self, path, on_error="warn", max_block=None):
        self.path = path
        self.place = place_of(path)  # once it has begun: the name that the file gets, the links in `path` followed
        self.places = {self.place}
        self.on_error = on_error
        self.max_block = MAX_BLOCK if max_block is None else max_block
        self.error = None  # OSError once it has failed
        self.told = False
        self.is_marker = False  # later markers do not come after it
        self.markers = set()  # paths of markers that came after it: its failure fails each path once
        self.named = False
        self.reading = False  # sources are read, or are not yet seen to be unchanged
        self.held = False  # the library waits for cairn_save_commit()
        self.devices = ()  # ordinals that sources lie on
        self.guards = ()  # of lazy sources, as _track.guards_of() makes them
        self.thread = threading.get_ident()
        self.copied_at = None  # when the library was first seen to have copied all
        self.storages = frozenset()  # of lazy sources, by their ids
        self.keep = None  # memory that the library reads
        self.slot = ctypes.c_void_p()  # where the library puts its handle
        self.handle = None  # the same, from when the call has returned
        self.pid = os.getpid()
        self.ticket = None  # its place among the saves of all ranks
        self.domain = None  # the filesystem, once it was asked for
        self._callbacks = []

    def __repr__(self):
        state = f"failed: {self.error}" if self.error else "published" if self.named else "copied" if not self.reading else "copying"
        return f"<cairnfs.Save {self.path!r} {state}>"

    # --- asked by the user

    def copied(self) -> bool:
        """No source is read any more: they may change."""
        self._look()
        return not self.reading

    def published(self) -> bool:
        """The name is there, with every byte."""
        self._look()
        return self.named

    def done(self) -> bool:
        """It has its name, or has failed."""
        self._look()
        return self.named or self.error is not None

    def wait(self, level: str = "published", timeout: float | None = None) -> Save:
        """Waits until the level is reached. TimeoutError: `timeout` seconds have passed. The error of the save, if it failed."""
        self._wait(level_of(level), timeout)
        if self.error is not None:
            self._give_error()
            raise self.error
        return self

    def result(self, timeout: float | None = None) -> str:
        """The path, when it is there."""
        self.wait("published", timeout)
        return self.path

    def exception(self, timeout: float | None = None) -> OSError | None:
        """What it failed with; None: it has its name."""
        self._wait(lib.PUBLISHED, timeout)
        if self.error is not None:
            self._give_error()
        return self.error

    def cancel(self) -> bool:
        """Fails the save, if it has no name yet. True: it has failed. False: it has its name, or the filesystem, which was asked for that, has not
        answered for max_block."""
        self._mine()
        if self.handle is not None and not self.done():
            with _process.lock():
                code = lib.library().cairn_save_abort(self.handle)
            if code == -errno.EINPROGRESS:
                _process.wait_all([self], lib.PUBLISHED, time.monotonic() + self.max_block)
            self._look()
        return self.error is not None

    def progress(self) -> tuple[int, int]:
        """(bytes done, bytes in all) of the sources."""
        if self.handle is None:
            return 0, 0
        found = self._state()
        return found.bytes_copied + found.bytes_referenced, found.bytes

    def add_done_callback(self, function: Callable[[Save], object]) -> None:
        """function(save) in a thread of the package, when it has its name or has failed; at once and here, if that is so."""
        with _process.lock():
            if not (self.named or self.error is not None):
                self._callbacks.append(function)
                return
        function(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.wait("published")
        return False

    def __del__(self):
        if self.handle is not None and self.pid == os.getpid():
            lib.library().cairn_save_free(self.handle)

    # --- by the package

    def begun(self):
        """The library has opened it."""
        self.handle = self.slot
        if self.ticket is not None:
            self.ticket.save = self
        self.place = place_of(os.fsdecode(lib.library().cairn_save_path(self.handle)))
        self.places.add(self.place)

    def undo(self):
        """An exception ends the call, and nothing keeps the sources alive: the library stops reading them before this returns."""
        if self.ticket is not None and self.handle is None:
            self.ticket.end()
        if self.slot:
            lib.library().cairn_save_abort(self.slot)
        if self.slot and self.handle is None:
            lib.library().cairn_save_free(self.slot)
            self.slot = None

    def is_below(self, path):
        return any(below(place, path) for place in self.places)

    def fail(self, error):
        """The save could not begin."""
        self.error, self.reading, self.keep = error, False, None

    def over(self, level):
        """The level is reached, or it has failed. A level above PUBLISHED is known to the library alone."""
        if self.error is not None:
            return True
        if level > lib.PUBLISHED:
            return self.handle is None
        return self.named or level == lib.COPIED and not self.reading

    def wait_slice(self, level, deadline=None):
        """Waits for a moment: True if the library has reached the level. A save's own error is not raised: look() takes it."""
        if self.handle is None:
            return True
        seconds = _process.SLICE if deadline is None else max(0.0, min(_process.SLICE, deadline - time.monotonic()))
        reached = lib.library().cairn_save_wait(self.handle, level, int(seconds * 1000)) != -errno.ETIMEDOUT
        if level == lib.COPIED and self.copied_at is not None:
            time.sleep(min(seconds, self.seconds_to_settle()))
        return reached

    def seconds_to_settle(self):
        """An operation changes bytes first, and raises the version when it ends. This thread has none under way. Another thread may have
        one, for as long as it takes on the largest source."""
        if self.thread == threading.get_ident() or not self.held:
            return 0.0
        self.copied_at = self.copied_at or time.monotonic()
        return max(0.0, self.copied_at + _track.longest_operation(self.guards) - time.monotonic())

    def look(self):
        """With the lock: takes over how far the library is. True: it has its name or has failed, and this is news."""
        if self.named or self.error is not None or self.handle is None:
            return False
        state = self._state()
        if state.error:
            self._take_error(state.error)
            return True
        if state.level >= lib.COPIED and self.reading and not self.seconds_to_settle():
            self.settle()
            state = self._state()
            if state.error:
                self._take_error(state.error)
                return True
        self.named = state.level >= lib.PUBLISHED
        return self.named

    def settle(self):
        """With the lock, when the sources were copied, or their copy is ordered before all that comes: did they change meanwhile?"""
        if self.held:
            self.held = False
            cause = changed(self.guards)
            if cause is None:
                self.commit()
            else:
                lib.library().cairn_save_fail(self.handle, -errno.EBADMSG, cause.encode())
        self.guards = ()
        if self._state().level >= lib.COPIED:
            self.reading, self.keep = False, None

    def commit(self):
        """It may have its name: now, or when it is its turn."""
        if self.ticket is None:
            lib.library().cairn_save_commit(self.handle)
        else:
            self.ticket.commit()

    def _state(self):
        found = lib.Progress()
        lib.check(lib.library().cairn_save_progress(self.handle, ctypes.byref(found)))
        return found

    def _take_error(self, code):
        lib.library().cairn_save_fail(self.handle, code, None)  # has failed already: this waits until no thread reads the sources
        if code in (-errno.EBADMSG, -errno.EFAULT):  # changed, or freed: the library does not know which tensor it was
            _track.note_change(tensor for *_, tensors in self.guards for tensor, _ in tensors)
        text = ctypes.c_char_p()
        code = lib.library().cairn_save_error(self.handle, ctypes.byref(text)) or code
        self.reading, self.held, self.keep, self.guards = False, False, None, ()
        cause = (text.value or b"").decode(errors="replace").removeprefix(f"{self.place}: ")
        self.error = OSError(-code, cause or os.strerror(-code), self.path)

    def give_up(self, why):
        """With the lock: a fence has waited long enough."""
        self.held = False
        lib.library().cairn_save_fail(self.handle, -errno.ETIMEDOUT, why.encode())

    def take_callbacks(self):
        with _process.lock():
            taken, self._callbacks = self._callbacks, []
            return taken

    def _give_error(self):
        self.told = True
        _process.current().forget_error(self)

    def _mine(self):
        if self.pid != os.getpid():
            raise OSError(errno.ECHILD, "the save belongs to the process that this one was forked from", self.path)

    def _look(self):
        self._mine()
        _process.current().look()

    def _wait(self, level, timeout):
        self._mine()
        deadline = None if timeout is None else time.monotonic() + timeout
        if not _process.wait_all([self], min(level, lib.PUBLISHED), deadline):
            raise TimeoutError(errno.ETIMEDOUT, f"not there after {timeout} s", self.path)
        if level > lib.PUBLISHED and self.error is None:
            wait_stored(self, level, deadline, timeout)


def saved(path, on_error):
    """A Save for a file that torch has written already."""
    result = Save(path, on_error)
    result.named = True
    return result


def wait_stored(save, level, deadline, timeout):
    """Waits for a level above PUBLISHED. Its errors are raised here, and do not fail the save."""
    from . import _levels  # which includes this module

    if save.handle is None:
        _levels.wait_stored([], save.place, level, deadline)
        return
    process = _process.current()
    process.syncing = True
    while True:
        seconds = _process.SLICE if deadline is None else max(0.0, min(_process.SLICE, deadline - time.monotonic()))
        code = lib.library().cairn_save_wait(save.handle, level, int(seconds * 1000))
        process.syncing = code == -errno.ETIMEDOUT
        if code >= 0:
            return
        save.look()
        if code != -errno.ETIMEDOUT:
            raise lib.error_of(code, save.path)
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"not that far after {timeout} s", save.path)


def changed(guards):
    """What changed while it was copied, or None. A tensor that lives elsewhere now may have been changed before it went there."""
    for storage, address, size, tensors in guards:
        if storage.data_ptr() != address or storage.nbytes() != size:
            _track.note_change(tensor for tensor, _ in tensors)
            return f"a storage of {size} bytes was resized while it was copied"
        for tensor, version in tensors:
            if tensor._version != version:
                _track.note_change([tensor])
                return f"a tensor of shape {tuple(tensor.shape)} was changed while it was copied, and no fence had waited"
    return None
