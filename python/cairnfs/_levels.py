# SPDX-License-Identifier: Apache-2.0
"""How far down files are that have their names, and the progress bar of wait()."""
import errno
import os
import stat
import sys
import time

from . import _library as lib
from ._ask import ask, look
from ._save import place_of

LEVEL, LANE = "user.cairn.level", "user.cairn.lane"
STEPS = ("stage", "nvme", "remote")
POLL = 0.05  # seconds
WIDTH = 30
PATIENCE = 0.5  # seconds before the bar is shown


def level_of(path):
    """"stage", "nvme" or "remote" of a file, or of all below a directory; None: not on CairnFS."""
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
        pass  # the next call on this path raises the error
    return False


def directory_above(path):
    """The nearest one that is there."""
    while is_gone(path := os.path.dirname(path)):
        pass
    return path


def wait_stored(names, path, wanted, deadline):
    """Returns when the files of these names that exist, and `path` if it is not None, are on NVMe or in the remote. An fsync starts the
    writing at once. On other filesystems the fsync is all, and there is no remote."""
    aim = STEPS.index("nvme" if wanted == lib.NVME else "remote")
    way = look(path, lambda: Way(there(names, path, wanted), aim), deadline)
    bar = Bar(way.line) if sys.stderr.isatty() else None
    try:
        for one in way.sizes:
            wait_for_level(one, deadline, way, bar and bar.show)
    finally:
        if bar:
            bar.end()


def there(names, path, wanted):
    """`path` is asked for, so that it is not there is an error. For NVMe the directory of a name that is gone takes its place where it is
    on CairnFS: the file may have another name now, and one fsync covers all files."""
    found = [name for name in dict.fromkeys(names) if not is_gone(name)]
    if wanted == lib.NVME and len(found) < len(set(names)):
        above = {directory_above(name) for name in names if is_gone(name)}
        found += [directory for directory in above if level_of(directory) is not None]
    if path is not None and place_of(path) not in found:
        found.append(os.fspath(path))
    return found


def wait_for_level(path, deadline, way, show):
    found, key = look(path, lambda: begin(path, STEPS[way.aim]), deadline)
    if not way.reached(path, found, show):
        ask(path, lambda: sync(path, found is not None), deadline, show, key)
        while found is not None and not way.reached(path, look(path, lambda: level_of(path), deadline), show):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "is not that far yet", path)
            time.sleep(POLL)
        way.steps[path] = way.aim


def begin(path, wanted):
    """Its level, and the key of its fsync: a wait has that of an earlier wait, if it is of the same bytes."""
    found = level_of(path)
    if wanted == "remote" and (found is None or has_no_remote(path)):
        raise OSError(errno.ENODATA, "not on CairnFS: there is no remote" if found is None else "the mount has no remote", path)
    now = os.stat(path)
    return found, None if stat.S_ISDIR(now.st_mode) else (path, now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)


def has_no_remote(path):
    """The mount says so."""
    try:
        return b"remote=0" in os.getxattr(path, LANE)
    except OSError:
        return False  # the next call on it says why


def sync(path, on_cairn):
    """The file, or all files below the directory; and the directories that name them. On CairnFS one fsync covers all that was done
    before."""
    names = [path]
    if os.path.isdir(path) and not on_cairn:
        names += [os.path.join(directory, name) for directory, directories, files in os.walk(path) for name in directories + files]
    for name in names if on_cairn else [*names, os.path.dirname(os.path.abspath(path))]:
        if os.path.isfile(name) or os.path.isdir(name):
            fd = os.open(name, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


class Way:
    """How far some paths are. A file on NVMe that is to go to the remote is half way."""

    def __init__(self, paths, aim):
        self.aim, self.steps = aim, dict.fromkeys(paths, 0)
        self.sizes = {path: os.path.getsize(path) if os.path.isfile(path) else 0 for path in paths}

    def reached(self, path, level, show):
        self.steps[path] = 0 if level is None else min(self.aim, STEPS.index(level))
        if show:
            show()
        return self.steps[path] == self.aim

    def line(self):
        done = sum(self.sizes[path] * step for path, step in self.steps.items())
        there = sum(step == self.aim for step in self.steps.values())
        return drawn(done / self.aim, sum(self.sizes.values()), f"{STEPS[self.aim]}: {there} of {len(self.steps)} files")


def line_of_saves(saves):
    figures = [save.progress() for save in saves]
    return drawn(sum(done for done, _ in figures), sum(size for _, size in figures), f"{len(saves)} files")


def drawn(done, size, text):
    share = done / size if size else 1.0
    return f"cairnfs: [{'#' * round(WIDTH * share):<{WIDTH}}] {100 * share:3.0f} % of {size / 1e9:.2f} GB, {text}"


class Bar:
    """Shows line() on standard error, from when a wait has taken PATIENCE."""

    def __init__(self, line):
        self.line, self.shown, self.begin = line, "", time.monotonic()

    def show(self):
        if not self.shown and time.monotonic() < self.begin + PATIENCE:
            return
        line = self.line()
        if line != self.shown:
            self.shown = line
            print("\r" + line, end="", file=sys.stderr, flush=True)

    def end(self):
        if self.shown:
            print("\r" + " " * len(self.shown) + "\r", end="", file=sys.stderr, flush=True)
