# SPDX-License-Identifier: Apache-2.0
"""The lane of this process: opened when it is first needed, its saves, the thread that ends them, fork, and the end.

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
    """A save failed, and no call had asked for it."""


class Process:
    def __init__(self):
        self.pid = os.getpid()
        self.lane = None
        self.pending = []  # saves without a name, oldest first
        self.reading = False  # a save may still read its sources; a fence looks at this first
        self.untold = []  # saves that failed, and were not reported
        self.failed = collections.deque(maxlen=REMEMBERED)  # saves, for the markers that come
        self.unraised = collections.OrderedDict()  # path: save that failed and raised nothing yet; none got the name since
        self.saved = collections.OrderedDict()  # paths that got their name, newest last
        self.todo = collections.deque()  # (function, save): callbacks
        self.marked = collections.OrderedDict()  # directories that markers went to, newest last
        self.thread = None
        self.wakeup = threading.Condition(_lock)
        self.captured = False  # a CUDA graph has captured an update: its replays call no hook
        self.ending = False
        self.closing = False  # the thread is at the end of the lane, which a filesystem may hold up
        self.syncing = False  # the library may be in an fsync that has no waiter any more
        self.finalizer = None  # of multiprocessing

    def open(self):
        with _lock:
            if self.lane is None:
                handle = ctypes.c_void_p()
                options = lib.LaneOptions(flags=lib.LANE_TELLS)
                lib.check(lib.library().cairn_lane_open(ctypes.byref(options), ctypes.byref(handle)))
                self.lane = handle
                self.start_thread()
            return self.lane

    def add(self, save):
        """A save that is under way."""
        with _lock:
            self.pending.append(save)
            self.reading = self.reading or save.reading
            self.start_thread()
            self.wakeup.notify_all()

    def start_thread(self):
        """With the lock, unless it runs. Where the machine gives none, calls of the package do its work, and the next save tries again."""
        if self.thread is not None or self.ending:
            return
        thread = threading.Thread(target=end_saves, args=(self,), name="cairnfs", daemon=True)
        try:
            thread.start()
            self.thread = thread
        except RuntimeError as error:
            logger.warning("no thread for lazy saves: %s", error)

    def close_lane(self):
        """At the end of the process, unless saves are pending or the library is in an fsync without a waiter."""
        with _lock:
            if self.lane is None or self.pending or self.syncing:
                return
            lane, self.lane = self.lane, None
            self.closing = True
        lib.library().cairn_lane_close(lane)
        self.closing = False

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
                for place in save.places:
                    self.unraised.pop(place, None)
                self.saved.pop(save.place, None)
                self.saved[save.place] = None
                while len(self.saved) > 16 * REMEMBERED:
                    self.saved.popitem(last=False)
            else:
                self.untold.append(save)
                self.unraised[save.place] = save
                if len(self.unraised) > 16 * REMEMBERED:
                    self.unraised.popitem(last=False)
                if not save.is_marker:
                    self.failed.append(save)
                logger.info("%s was not saved: %s", save.path, save.error)
            self.todo.extend((function, save) for function in save.take_callbacks())
            self.wakeup.notify_all()

    def do(self):
        """Calls the callbacks of saves that have ended. Never called by a thread that trains."""
        while self.todo:
            with _lock:
                function, save = self.todo.popleft() if self.todo else (None, None)
            try:
                if function:
                    with quietly(False):  # the program's own
                        function(save)
            except Exception:
                logger.exception("what was to be done after %s was saved failed", save.path)

    def tell(self):
        """Errors of saves that no call asked for: once, as a warning, or raised where the save was to raise."""
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
                self.forget_error(save)
            else:
                warnings.warn(f"{save.path} was not saved: {save.error.strerror}", SaveWarning, stacklevel=caller_level())
        if raised is not None:
            raise raised

    def raise_untold(self, concerns):
        """Before the program changes a file: raises the error of the oldest failed save that no warning and no exception has reported."""
        with _lock:
            failed = [save for save in self.untold if not save.told and save.on_error == "order" and concerns(save)]
            for save in failed:
                save.told = True
                self.forget_error(save)
        if failed:
            raise failed[0].error

    def forget_error(self, save):
        """The program has been given the error."""
        with _lock:
            if self.unraised.get(save.place) is save:
                del self.unraised[save.place]

    def is_first_marker_in(self, directory):
        """Then it removes the draft of a process that was killed while it replaced an older file."""
        with _lock:
            first = directory not in self.marked
            self.marked[directory] = None
            if len(self.marked) > REMEMBERED:
                self.marked.popitem(last=False)
            return first

    def before_marker(self, path):
        """The saves that a marker comes after: those under way, and those that failed below its directory and have failed no marker of this
        path yet."""
        with _lock:
            directory = os.path.join(os.path.dirname(os.path.abspath(path)), "")
            failed = [save for save in self.failed if path not in save.markers
                      and any(place.startswith(directory) for place in save.places)]
            found = failed + [save for save in self.pending if not save.is_marker]
            for save in found:
                save.markers.add(path)
            return found


def caller_level():
    """The stack level, as its caller would give it to warnings.warn(), of the line that led here: past this package, and torch, whose
    step() does."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("cairnfs", "torch"):
        frame, level = frame.f_back, level + 1
    return level


def end_saves(process):
    """The thread: looks whether the sources of saves have changed when their copy is done, lets them have their names, and forgets them. At
    the end it closes the lane."""
    quiet.on = True  # a finalizer that runs here must not wait for a save that only this thread can end
    while True:
        with _lock:
            while not (process.pending or process.todo or process.ending):
                process.wakeup.wait()
            if process.ending:
                break
        process.do()
        with _lock:
            if not process.pending:
                continue
            first = next((save for save in process.pending if save.reading), process.pending[0])
            level = lib.COPIED if first.reading else lib.PUBLISHED
        first.wait_slice(level)
        process.look()
    process.close_lane()


_lock = threading.RLock()
before_end = []  # functions that run before at_exit() waits for saves
at_end = []  # functions of adapters, called when the last saves have their names
quiet = threading.local()  # .on: this thread uses files for the package itself
_process = Process()


@contextlib.contextmanager
def quietly(on=True):
    """Meanwhile this thread uses files for the package, so the gate of CAIRN_LAZY does not make it wait. on=False: for the program."""
    before, quiet.on = getattr(quiet, "on", False), on
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


def wait_before_end():
    """The process ends without at_exit(): False if saves had no name after EXIT_WAIT, or if at_exit() has waited already."""
    process = current()
    if process.ending:
        return False
    pending = list(process.pending)
    if wait_all(pending, lib.PUBLISHED, time.monotonic() + EXIT_WAIT):
        return True
    for save in pending:
        if not save.over(lib.PUBLISHED):
            say(f"{save.path} is not saved after {EXIT_WAIT:.0f} s: given up")
    return False


def after_fork():
    """In the child, which has no lane and no saves."""
    global _lock, _process
    _lock = threading.RLock()
    _process = Process()


def at_exit():
    """Waits for the names of pending saves, and reports those that failed."""
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
    close(process, begin + EXIT_WAIT)


def close(process, limit):
    with _lock:
        process.ending = True
        process.wakeup.notify_all()
        thread, process.thread = process.thread, None
    if thread is None:
        process.close_lane()
    elif thread is not threading.current_thread():
        thread.join(2 * SLICE + 1)  # a thread that a signal interrupted may have the lock that it needs
        if process.closing:
            thread.join(max(0.0, limit - time.monotonic()))


def say(text):
    print(f"cairnfs: {text}", file=sys.stderr, flush=True)
