"""How far down files are that have their names, and the progress bar of wait()."""
import errno
import os
import sys
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


def wait_stored(paths, wanted, deadline):
    """Until each path is on NVMe or in the remote. Elsewhere than on CairnFS that is fsync, and there is no remote."""
    aim = STEPS.index("nvme" if wanted == lib.NVME else "remote")
    for path in paths:
        while True:
            found = level_of(path)
            if found is None:
                if wanted == lib.REMOTE:
                    raise OSError(errno.ENODATA, "not on CairnFS: there is no remote", path)
                sync(path)
                break
            if STEPS.index(found) >= aim:
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"is in {found} yet", path)
            time.sleep(POLL)


def sync(path):
    """The file, or all files below the folder; and the folders that name them."""
    names = [path]
    if os.path.isdir(path):
        names += [os.path.join(folder, name) for folder, folders, files in os.walk(path) for name in folders + files]
    for name in [*names, os.path.dirname(os.path.abspath(path))]:
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
