# SPDX-License-Identifier: Apache-2.0
"""The lane of this process: opened when it is first needed, its saves, the thread that ends them, what a fork and the end do to it.

`_lock` guards every field of Process and the state of its saves. It is held while the library ends a copy, never while a save waits for
its name; the thread takes it only for moments. It is reentrant, for signal handlers.
"""
import collections
import contextlib
import ctypes
import os
import sys
import threading
import time
import warnings

from . import _library as lib
from ._log import logger

SLICE = 0.2  # seconds that a call of the library may keep a thread: Python's signal handlers run between two
EXIT_WAIT = float(os.environ.get("CAIRN_EXIT_WAIT", "600"))  # seconds that the end of a process waits for the names of its saves
REMEMBERED = 64


class SaveWarning(RuntimeWarning):
    """A save failed, and nobody had asked for it."""


class Process:
    def __init__(self):
        self.pid = os.getpid()
        self.lane = None
        self.pending = []  # saves without a name, oldest first
        self.reading = False  # a save may still read its sources: what a fence looks at first
        self.untold = []  # saves that failed, and nobody was told
        self.failed = collections.deque(maxlen=REMEMBERED)  # saves, for the markers that come
        self.saved = collections.OrderedDict()  # paths that got their name, newest last
        self.todo = collections.deque()  # (function, save): callbacks
        self.thread = None
        self.wakeup = threading.Condition(_lock)
        self.captured = False  # a CUDA graph has captured an update: what it replays calls no hook
        self.ending = False
        self.syncing = False  # the library may be in an fsync for which nobody waited to the end
        self.finalizer = None  # of multiprocessing

    def open(self):
        with _lock:
            if self.lane is None:
                handle = ctypes.c_void_p()
                options = lib.LaneOptions(flags=lib.LANE_TELLS)
                lib.check(lib.library().cairn_lane_open(ctypes.byref(options), ctypes.byref(handle)))
                self.lane = handle
            return self.lane

    def add(self, save):
        """A save that is under way."""
        with _lock:
            self.pending.append(save)
            self.reading = self.reading or save.reading
            if self.thread is None and not self.ending:
                self.thread = threading.Thread(target=end_saves, args=(self,), name="cairnfs", daemon=True)
                self.thread.start()
            self.wakeup.notify_all()

    def look(self):
        """Saves that have got their name or have failed leave the list."""
        with _lock:
            for save in [save for save in self.pending if save.look()]:
                self.end(save)
            self.reading = any(save.reading for save in self.pending)

    def end(self, save):
        """`save` has its name, or has failed."""
        with _lock:
            if save in self.pending:
                self.pending.remove(save)
            if save.error is None:
                self.saved.pop(save.place, None)
                self.saved[save.place] = None
                while len(self.saved) > 16 * REMEMBERED:
                    self.saved.popitem(last=False)
            else:
                self.untold.append(save)
                if not save.is_marker:
                    self.failed.append(save)
                logger.info("%s was not saved: %s", save.path, save.error)
            self.todo.extend((function, save) for function in save.take_callbacks())
            self.wakeup.notify_all()

    def do(self):
        """What was to be done after saves; never by a thread that trains."""
        while self.todo:
            with _lock:
                function, save = self.todo.popleft() if self.todo else (None, None)
            try:
                if function:
                    function(save)
            except Exception:
                logger.exception("what was to be done after %s was saved failed", save.path)

    def tell(self):
        """Errors of saves that nobody asked for: once, as a warning, or raised where the save was to raise."""
        if not self.untold:
            return
        with _lock:
            told, self.untold = [save for save in self.untold if not save.told], []
            for save in told:
                save.told = True
        raised = None
        for save in told:
            if save.on_error == "raise" and raised is None:
                raised = save.error
            else:
                warnings.warn(f"{save.path} was not saved: {save.error.strerror}", SaveWarning, stacklevel=3)
        if raised is not None:
            raise raised

    def before_marker(self, path):
        """What a marker speaks of: saves under way, and those that failed below its folder and have failed no marker of this path."""
        with _lock:
            folder = os.path.join(os.path.dirname(os.path.abspath(path)), "")
            failed = [save for save in self.failed if path not in save.markers and save.place.startswith(folder)]
            found = failed + [save for save in self.pending if not save.is_marker]
            for save in found:
                save.markers.add(path)
            return found


def end_saves(process):
    """The thread: looks whether the sources of saves have changed when their copy is done, lets them have their names, and forgets them."""
    while True:
        with _lock:
            while not (process.pending or process.todo or process.ending):
                process.wakeup.wait()
            if process.ending:
                return
        process.do()
        with _lock:
            if not process.pending:
                continue
            first = next((save for save in process.pending if save.reading), process.pending[0])
            level = lib.COPIED if first.reading else lib.PUBLISHED
        first.wait_slice(level)
        process.look()


_lock = threading.RLock()
before_end = []  # functions that run before at_exit() waits for saves
at_end = []  # functions of adapters, called when the last saves have their names
quiet = threading.local()  # .on: this thread looks at files for the package itself
_process = Process()


@contextlib.contextmanager
def quietly():
    """What this thread does with files meanwhile is the package's own: the gate of CAIRN_LAZY does not make it wait."""
    before, quiet.on = getattr(quiet, "on", False), True
    try:
        yield
    finally:
        quiet.on = before


def current():
    return _process


def lock():
    return _lock


def wait_all(saves, level, deadline, progress=None):
    """Waits until each of the saves has reached the level or has failed. False: the deadline has passed."""
    for save in saves:
        while not save.over(level):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            save.wait_slice(level, deadline)
            current().look()
            if progress:
                progress()
    return True


def after_fork():
    """In the child: nothing of the lane is ours."""
    global _lock, _process
    _lock = threading.RLock()
    _process = Process()


def at_exit():
    """The names of what is under way are waited for; what failed is said."""
    for function in before_end:
        function()
    process = current()
    begin, said = time.monotonic(), False
    while process.pending and time.monotonic() < begin + EXIT_WAIT:
        process.pending[0].wait_slice(lib.PUBLISHED)
        process.look()
        if not said and time.monotonic() > begin + 1 and process.pending:
            said = True
            say(f"waiting for {len(process.pending)} saves, up to {EXIT_WAIT:.0f} s: {process.pending[0].path} ...")
    process.do()
    for function in at_end:
        function()
    for save in process.pending:
        say(f"{save.path} is not saved after {EXIT_WAIT:.0f} s: given up")
    for save in process.untold:
        if not save.told:
            say(f"{save.path} was not saved: {save.error.strerror}")
            save.told = True
    close(process)


def close(process):
    with _lock:
        process.ending = True
        process.wakeup.notify_all()
        thread, process.thread = process.thread, None
    if thread is not None and thread is not threading.current_thread():
        thread.join(2 * SLICE + 1)
    if process.lane is not None and not process.pending and not process.syncing and not (thread and thread.is_alive()):
        lane, process.lane = process.lane, None
        lib.library().cairn_lane_close(lane)


def say(text):
    print(f"cairnfs: {text}", file=sys.stderr, flush=True)
