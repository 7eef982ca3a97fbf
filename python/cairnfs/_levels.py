# SPDX-License-Identifier: Apache-2.0
"""How far down files are that have their names, and the progress bar of wait()."""
import errno
import os
import sys
import threading
import time

from . import _library as lib

LEVEL = "user.cairn.level"
STEPS = ("stage", "nvme", "remote")
POLL = 0.05  # seconds
WIDTH = 30


def level_of(path):
    """"stage", "nvme" or "remote" of a file, or of all below a folder; None: not on CairnFS."""
    try:
        return os.getxattr(path, LEVEL).decode()
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP, errno.EINVAL):
            return None
        raise


def is_gone(path):
    """It was removed since it was saved."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass  # who goes on with it says so
    return False


def wait_stored(paths, wanted, deadline):
    """Until each path is on NVMe or in the remote. What is not there yet is brought there at once, by fsync; elsewhere than on CairnFS that is
    all, and there is no remote."""
    aim = STEPS.index("nvme" if wanted == lib.NVME else "remote")
    for path in paths:
        found = level_of(path)
        if found is None and wanted == lib.REMOTE:
            raise OSError(errno.ENODATA, "not on CairnFS: there is no remote", path)
        if found is not None and STEPS.index(found) >= aim:
            continue
        Sync.of(path, found is not None).wait(deadline)
        while found is not None and STEPS.index(level_of(path)) < aim:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "is not that far yet", path)
            time.sleep(POLL)


class Sync:
    """An fsync by a thread of its own: it takes as long as the filesystem makes it, and who waits may have a deadline."""

    under_way = {}  # path: Sync; guarded by lock
    lock = threading.Lock()

    def __init__(self, path, on_cairn):
        self.path, self.on_cairn, self.error, self.done, self.pid = path, on_cairn, None, threading.Event(), os.getpid()
        threading.Thread(target=self.run, name="cairnfs-sync", daemon=True).start()

    @classmethod
    def of(cls, path, on_cairn):
        """The one that a wait before this left, or a new one."""
        with cls.lock:
            found = cls.under_way.pop(path, None)
            if found is None or found.pid != os.getpid():
                found = cls(path, on_cairn)
            cls.under_way[path] = found
            return found

    def run(self):
        try:
            sync(self.path, self.on_cairn)
        except OSError as error:
            self.error = error
        with self.lock:
            if self.under_way.get(self.path) is self:
                del self.under_way[self.path]
        self.done.set()

    def wait(self, deadline):
        while not self.done.wait(0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic()))):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "is not that far yet", self.path)
        if self.error is not None:
            raise self.error


def sync(path, on_cairn):
    """The file, or all files below the folder; and the folders that name them. On CairnFS one fsync covers all that was done before."""
    names = [path]
    if os.path.isdir(path) and not on_cairn:
        names += [os.path.join(folder, name) for folder, folders, files in os.walk(path) for name in folders + files]
    for name in names if on_cairn else [*names, os.path.dirname(os.path.abspath(path))]:
        if os.path.isfile(name) or os.path.isdir(name):
            fd = os.open(name, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


class Bar:
    """One line on standard error: the bytes of some saves."""

    def __init__(self, saves):
        self.saves, self.shown, self.begin = saves, "", time.monotonic()

    def show(self):
        if not self.shown and time.monotonic() < self.begin + 0.5:
            return
        figures = [save.progress() for save in self.saves]
        done, size = sum(done for done, _ in figures), sum(size for _, size in figures)
        share = done / size if size else 1.0
        line = f"cairnfs: [{'#' * round(WIDTH * share):<{WIDTH}}] {100 * share:3.0f} % of {size / 1e9:.2f} GB, {len(self.saves)} files"
        if line != self.shown:
            self.shown = line
            print("\r" + line, end="", file=sys.stderr, flush=True)

    def end(self):
        if self.shown:
            print("\r" + " " * len(self.shown) + "\r", end="", file=sys.stderr, flush=True)
