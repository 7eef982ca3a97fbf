# SPDX-License-Identifier: Apache-2.0
"""CAIRN_LAZY=1: torch.save returns at once, and the program's later acts see its files as if it had waited.

An audit hook and wrappers (_watch.py) see Python's acts on files, programs and messages:

- A change of a file (opening for writing, renaming, removing, ...) waits for the names of all saves of that filesystem, also of other
  ranks (_job.py), and raises the error of a save that failed.
- A look at a path (stat, listdir, opening for reading) waits for the saves of that path.
- With several ranks only saves on CairnFS are lazy. So acts on other filesystems ask no other rank.
- A program, a fork, a message to another process waits for all names.
- Writes through descriptors and maps are not seen: while one is open for writing on the filesystem, torch.save is not lazy.

docs/architecture-client.md has the proof, docs/lazy-saves-in-detail.md the limits.
"""
import contextlib
import operator
import os
import sys
import threading

import torch

from . import _job, _mounts, _process
from . import _library as lib

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CAIRN = "cairn"  # the domain of all mounts of CairnFS
HERE = -1  # as a descriptor of a directory: the working directory
# Events by the arguments that are (path, descriptor of the directory that it is relative to).
CHANGES = {
    "os.rename": ((0, 2), (1, 3)), "os.link": ((0, 2), (1, 3)), "os.symlink": ((1, 2),), "os.remove": ((0, 1),), "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),), "os.truncate": ((0, None),), "os.chmod": ((0, 2),), "os.chown": ((0, 3),), "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),), "os.removexattr": ((0, None),), "sqlite3.connect": ((0, None),),
}  # fmt: skip
LOOKS = {"os.listdir", "os.scandir", "os.getxattr", "os.listxattr", "os.walk", "glob.glob"}
PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn"}
SEEN = frozenset({"open", "os.kill", *CHANGES, *LOOKS, *PROGRAMS})
_on = False
_hooked = False
_order = threading.RLock()  # held from the number of a save until it is under way
_mine = threading.local()  # .begins: this thread has _order; .saves: it has saved
stat = os.stat  # before anything is wrapped


def audit(event, arguments):
    if event == "os.exec" and not _process.wait_before_end():  # none is left of them else
        return
    if not _on or event not in SEEN or getattr(_process.quiet, "on", False):
        return
    if event == "open":
        path, mode, flags = arguments
        changes = bool(flags and flags & WRITES)
        if mode is None and isinstance(path, (str, bytes)) and not os.path.isabs(path):  # os.open(): the event does not tell dir_fd
            if is_concerned():
                before_program(fails=changes)
        elif not is_free(path, None, changes) and is_concerned():
            before(path, changes=changes)
        return
    if event in LOOKS and is_free(arguments[0] if arguments and arguments[0] is not None else ".", None, False) or not is_concerned():
        return
    if event in CHANGES:
        for path, directory in CHANGES[event]:
            before(arguments[path], arguments[directory] if directory is not None else HERE, changes=True)
    elif event in LOOKS:
        before(arguments[0] if arguments and arguments[0] is not None else ".", changes=False)
    elif event != "os.kill" or arguments[0] == os.getpid():  # it may end this process
        before_program(fails=event not in ("os.fork", "os.forkpty"))


def is_concerned():
    """There may be a save to wait for, and this is not the package's own act."""
    return not getattr(_process.quiet, "on", False) and (bool(_process.current().pending or _process.current().untold)
                                                         or _job.current() is not None)


def is_free(path, directory, changes):
    """This process has no save under way, and either no other rank has one, or the file exists and is not on CairnFS: there no rank saves
    lazily. Nearly all acts of a program end here."""
    process = _process.current()
    if process.pending or process.untold:
        return False
    if _job.is_calm():
        return True
    try:
        return not (_mounts.has(stat(path, dir_fd=directory).st_dev) or changes and has_name_on_cairn(path, directory))
    except (OSError, TypeError, ValueError):
        return False


def has_name_on_cairn(path, directory):
    """The name itself, which may be a link to another filesystem."""
    return not isinstance(path, int) and _mounts.has(stat(os.path.dirname(path) or ".", dir_fd=directory).st_dev)


def before(path, directory=HERE, *, changes):
    """Waits for the saves that must have their names before this is done to `path`."""
    with _process.quietly():  # the code below looks at files itself
        place = place_of(path, directory)
        if place is None:
            return
        pending = list(_process.current().pending)
        domains = {domain_of(place), domain_of(os.path.dirname(place))} if changes else {domain_of(place)}  # of the file and of its name
        if not changes:
            wait_for([save for save in pending if any(concerns(place, one) for one in save.places)])
        elif any(domain_of_save(save) in domains for save in pending):
            wait_for(pending)
        if CAIRN in domains:  # elsewhere no rank saves lazily
            wait_for_ranks(lambda text: changes or concerns(place, text["place"]), changes)
        if changes:
            _process.current().raise_untold(lambda save: domain_of_save(save) in domains)


def before_program(fails):
    """Another process is to see all names. fails: also that one will never come."""
    with _process.quietly():
        wait_for(list(_process.current().pending))
        wait_for_ranks(lambda text: True, fails)
        if fails:
            _process.current().raise_untold(lambda save: True)


def before_message():
    """Of a thread that has saved: its messages to other processes come after its saves. A failure is raised by the next change."""
    if _on and getattr(_mine, "saves", False) and is_concerned():
        before_program(fails=False)


def before_meeting():
    """Ranks meet here, and may look for files in ways that are not seen."""
    if _on and not getattr(_process.quiet, "on", False):
        wait_for(list(_process.current().pending))


def wait_for_ranks(concerns_text, changes):
    job = None if getattr(_mine, "begins", 0) else _job.current()  # a signal handler in the middle of a save waits for no other rank
    if job is not None:
        job.wait(concerns_text, changes)


def wait_for(saves):
    _process.wait_all(saves, lib.PUBLISHED, None)


# --- paths


def place_of(path, directory=HERE):
    """The absolute path; None: it is none, or not that of a file."""
    try:
        if isinstance(path, int):
            found = os.readlink(f"/proc/self/fd/{path}")
            return found if found.startswith("/") and not found.endswith(" (deleted)") else None
        path = os.fsdecode(path)
        if (number := operator.index(directory)) >= 0:  # an integer of any type, e.g. of numpy
            path = os.path.join(os.readlink(f"/proc/self/fd/{number}"), path)
        return os.path.abspath(path)
    except (OSError, TypeError, ValueError):
        return None


def concerns(path, saved):
    return saved == path or saved.startswith(os.path.join(path, ""))


def domain_of(path):
    """The filesystem of a path, or of the nearest directory above it that is there: all mounts of CairnFS are one, also on other nodes."""
    while True:
        try:
            device = stat(path).st_dev
            break
        except OSError:
            parent = os.path.dirname(path)
            if parent == path:
                return None
            path = parent
    return CAIRN if _mounts.has(device) else f"{_job.host()}:{device}"


def domain_of_save(save):
    if save.domain is None:
        save.domain = domain_of(save.place)
    return save.domain


# --- saves that begin


class Order:
    """What a save that begins now comes after: `after` of this process, and `ticket`, its place among those of all ranks."""

    def __init__(self):
        self.after, self.ticket = [], None


@contextlib.contextmanager
def order(place):
    """Saves of all threads begin one after the other here, so that they get their numbers in the order in which the lane has them."""
    result = Order()
    if not _on:
        yield result
        return
    with _order, _process.quietly():
        nested, _mine.begins = getattr(_mine, "begins", 0), getattr(_mine, "begins", 0) + 1
        _mine.saves = True
        try:
            job = _job.current() if not nested else None  # a signal handler saves while this thread begins a save: it comes first
            if job is not None and domain_of(place) == CAIRN:
                if torch.cuda.is_initialized():  # a save with a number must not wait for a collective in which another rank waits for it
                    torch.cuda.synchronize()
                result.ticket = job.begin(place)
            with _process.lock():
                result.after = [save for save in _process.current().pending if save.handle is not None]
            yield result
        finally:
            _mine.begins = nested


def must_wait(path):
    """Why torch.save of this path may not be lazy, or None: later acts would not be seen."""
    with _process.quietly():
        if _job.is_hidden():
            return "this process is one of several, and torch.distributed, by which their saves are ordered, is not initialized, or has no store"
        domain, job = domain_of(os.path.abspath(path)), _job.current()
        if job is not None and domain != CAIRN:
            return "it is not on CairnFS, so other ranks would not wait for it"
        writer = writer_on(domain)
        if job is not None and job.note_writer(writer is not None) and writer is None:
            return "another rank holds a file open for writing"
        return writer and f"{writer} is open for writing"


def writer_on(domain):
    """A file of this filesystem that this process has open, or mapped, for writing; None: there is none."""
    ours = f".cairn-{os.getpid()}-"
    for path in [*open_for_writing(), *mapped_for_writing()]:
        if path.startswith("/") and not path.startswith(("/dev/", "/proc/")) and not path.endswith(" (deleted)") and ours not in path:
            if domain_of(path) == domain:
                return path
    return None


def open_for_writing():
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{number}")
            if path.startswith("/") and not path.startswith("/dev/") and is_writable(number):
                yield path


def is_writable(number):
    with open(f"/proc/self/fdinfo/{number}") as file:
        flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) and not flags & os.O_PATH


def mapped_for_writing():
    with open("/proc/self/maps") as file:
        lines = [line.split(None, 5) for line in file if line[20:60].find("s ") > 0 and "/" in line]
    return {fields[5].rstrip("\n") for fields in lines if len(fields) == 6 and fields[1][1] == "w" and fields[1][3] == "s"}


def watch():
    """The audit hook: Python cannot take it back. Off, it sees exec() alone."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(audit)


def after_fork():
    """Another thread of the parent may have begun a save just then."""
    global _order
    _order = threading.RLock()
    _mine.begins = 0


os.register_at_fork(after_in_child=after_fork)


def turn(on):
    global _on
    if on:
        from . import _watch

        watch()
        _watch.install()
    _on = on
