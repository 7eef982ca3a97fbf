# SPDX-License-Identifier: Apache-2.0
"""CAIRN_LAZY=1: torch.save returns at once, and what the program does next with files sees them as if it had waited.

An audit hook sees what Python does with files: opening for writing, renaming, removing, making directories and links. Where this process
has saves under way on that filesystem, these wait for the names first: so a marker that is written after a save never comes before it.
Looking at a path (stat, listdir, opening for reading) waits for the saves of that path. C++ code that opens files by itself is not seen.
"""
import functools
import os
import sys

from . import _library as lib
from . import _process

CHANGES = {
    "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.truncate", "shutil.rmtree", "shutil.move",
    "shutil.copyfile", "shutil.copytree", "os.chmod", "os.chown", "os.utime", "os.setxattr",
}  # fmt: skip
LOOKS = {"os.listdir", "os.scandir", "os.getxattr", "os.walk", "glob.glob"}
PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_on = False
_hooked = False
_originals = {}


def audit(event, arguments):
    if not _on or not _process.current().pending:
        return
    if event == "open":
        path, _, flags = arguments
        names(path, changes=bool(flags and flags & WRITES))
    elif event in CHANGES:
        for path in arguments[:2]:
            names(path, changes=True)
    elif event in LOOKS:
        names(arguments[0] if arguments and arguments[0] is not None else ".", changes=False)
    elif event in PROGRAMS:
        wait_for(list(_process.current().pending))


def names(path, changes):
    """Waits for what must have its name before this is done to `path`."""
    if not isinstance(path, (str, bytes, os.PathLike)) or getattr(_process.quiet, "on", False):
        return
    _process.quiet.on = True  # what follows looks at files itself
    try:
        path = os.path.abspath(os.fsdecode(path))
        pending = list(_process.current().pending)
        if changes and device_of(path) in {device_of(save.place) for save in pending}:
            wait_for(pending)
        else:
            wait_for([save for save in pending if any(concerns(path, place) for place in save.places)])
    finally:
        _process.quiet.on = False


def concerns(path, saved):
    return saved == path or saved.startswith(os.path.join(path, ""))


def device_of(path):
    """The filesystem of a path, or of the nearest directory above it that is there."""
    stat = _originals.get("stat", os.stat)
    while True:
        try:
            return stat(path).st_dev
        except OSError:
            parent = os.path.dirname(path)
            if parent == path:
                return None
            path = parent


def wait_for(saves):
    _process.wait_all(saves, lib.PUBLISHED, None)


def looking(name, original):
    """os.stat and its like make no audit event."""

    @functools.wraps(original)
    def wrapper(path, *args, **kwargs):
        if _on and _process.current().pending and not kwargs.get("dir_fd"):
            names(path, changes=False)
        return original(path, *args, **kwargs)

    return wrapper


def turn(on):
    """The audit hook stays (Python cannot take it back), and does nothing when off."""
    global _on, _hooked
    if on and not _hooked:
        _hooked = True
        sys.addaudithook(audit)
        for name in ("stat", "lstat", "access"):
            _originals[name] = getattr(os, name)
            setattr(os, name, looking(name, _originals[name]))
    _on = on
