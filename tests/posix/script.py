# SPDX-License-Identifier: Apache-2.0
"""Scripts of calls that run in a directory of ext4 and in one of the mount: what came of each call is noted.

A script is a function that takes a Script. It works in an empty directory, its working directory, so paths are relative and
permissions above it do not matter. What differs by nature (inode numbers, descriptors, absolute times) is not noted.
"""
import contextlib
import ctypes
import errno
import hashlib
import itertools
import os
import stat
import time

import rig

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x200, 0x400, 0x1000
TICK = 0.012  # ext4's times of access move with the kernel's coarse clock

SCRIPTS = {}  # name: function


def script(function):
    """Registers a script."""
    assert function.__name__ not in SCRIPTS, function.__name__
    SCRIPTS[function.__name__] = function
    return function


# calls that Python does not have

def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def raw(path):
    return path if path is None else os.fsencode(path)


def renameat2(source, target, flags):
    return checked(LIBC.renameat2(AT_FDCWD, raw(source), AT_FDCWD, raw(target), flags))


def linkat(source_fd, source, target, flags):
    return checked(LIBC.linkat(source_fd, raw(source), AT_FDCWD, raw(target), flags))


def unlinkat(path, flags):
    return checked(LIBC.unlinkat(AT_FDCWD, raw(path), flags))


def fchmodat2(path, mode, flags):
    return checked(LIBC.syscall(452, AT_FDCWD, raw(path), mode, flags))


def fallocate(fd, mode, offset, length):
    function = LIBC.fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return checked(function(fd, mode, offset, length))


UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_int64), ("nsec", ctypes.c_int64)]


def utimensat(path, atime, mtime, flags=0):
    """Times as (s, ns)."""
    times = (Timespec * 2)(Timespec(*atime), Timespec(*mtime))
    return checked(LIBC.utimensat(AT_FDCWD, raw(path), ctypes.byref(times), flags))


def error_name(error):
    return errno.errorcode.get(error.errno, str(error.errno))


# what is there

TIMES = ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")


def content_of(path, info):
    if stat.S_ISLNK(info.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(info.st_mode) or info.st_size > 64 << 20:
        return None
    digest = hashlib.sha1()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:12]


def xattrs_of(path):
    names = [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")]
    return {name: hashlib.sha1(os.getxattr(path, name, follow_symlinks=False)).hexdigest()[:8] for name in sorted(names)}


def facts(path, with_content=True):
    """All of an inode that does not differ by nature. Sizes of directories do."""
    info = os.lstat(path)
    found = {"mode": f"{info.st_mode:o}", "nlink": info.st_nlink, "owner": f"{info.st_uid}:{info.st_gid}"}
    if not stat.S_ISDIR(info.st_mode):
        found["size"] = info.st_size
    if stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode):
        found["rdev"] = info.st_rdev
    if with_content:
        found["content"] = content_of(path, info)
        found["xattrs"] = xattrs_of(path)
    return found


def paths_below(top="."):
    """The directory itself and all below, in order."""
    yield top
    for directory, names, files in os.walk(top):
        names.sort()
        yield from sorted(os.path.join(directory, name) for name in names + files)


def tree(top=".", with_content=True):
    return {os.path.relpath(path, top): facts(path, with_content) for path in paths_below(top)}


def times_below(top="."):
    """Of each inode: its times, under each of its names."""
    found = {}
    for path in list(paths_below(top)):
        info = os.lstat(path)
        found[os.path.normpath(path)] = (info.st_ino, {key[3]: getattr(info, key) for key in TIMES})
    return found


def moved(before, after):
    """Which times of which inodes moved, by the name that they have now; 'new' for new ones."""
    known = dict(before.values())
    result = {}
    for path, (ino, times) in after.items():
        if ino not in known:
            result[path] = "new"
            continue
        letters = "".join(key for key in "amc" if times[key] != known[ino][key])
        if any(times[key] < known[ino][key] for key in "c"):
            letters += " ctime went back"
        if letters:
            result[path] = letters
    return result


class Script:
    """Runs calls and notes their outcomes in `notes`: {label: outcome}."""

    def __init__(self, rng, full):
        self.rng, self.full = rng, full
        self.notes = {}
        self.directories = 0

    def some(self, *tables):
        """All rows of a product with --full, else about a tenth of them, and never none."""
        rows = list(itertools.product(*tables))
        return rows if self.full else [row for row in rows if self.rng.random() < 0.1] or [self.rng.choice(rows)]

    def note(self, label, value):
        assert label not in self.notes, f"noted twice: {label}"
        self.notes[label] = value

    def try_(self, function, *args, **keywords):
        """The value, or the error's name."""
        try:
            return function(*args, **keywords)
        except OSError as error:
            return error_name(error)

    def call(self, label, function, *args, **keywords):
        value = self.try_(function, *args, **keywords)
        self.note(label, value)
        return value

    def tree(self, label, top=".", with_content=True):
        self.note(label, tree(top, with_content))

    @contextlib.contextmanager
    def directory(self):
        """An empty directory to work in, for one row of a table."""
        self.directories += 1
        name = rig.mkdir(f"{self.directories:05}")
        above = os.open(".", os.O_RDONLY)
        os.chdir(name)
        try:
            yield
        finally:
            os.fchdir(above)
            os.close(above)

    def effects(self, label, operation):
        """Notes the outcome, all that is there then, and which times moved."""
        time.sleep(TICK)
        times_below()  # what is read now is not read for the first time below
        before = times_below()
        time.sleep(TICK)
        outcome = self.try_(operation)
        after = times_below()
        self.note(label, {"outcome": outcome, "moved": moved(before, after), "tree": tree()})


def put(path, content=b"", mode=0o644):
    """A file with this content."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)
    os.chmod(path, mode)


def give(path, user, mode):
    os.chown(path, user.uid, user.gid)
    os.chmod(path, mode)


def get(path):
    return rig.read_file(path)


@contextlib.contextmanager
def opened(path, flags=os.O_RDWR, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def with_fd(path, flags, function):
    """The result of function(fd)."""
    with opened(path, flags) as fd:
        return function(fd)


class User:
    def __init__(self, name, uid, gid, groups=()):
        self.name, self.uid, self.gid, self.groups = name, uid, gid, groups


ROOT = User("root", 0, 0)
OWNER = User("owner", 1000, 1000)
MEMBER = User("member", 2000, 2000, (1000,))  # of the owner's group, as a supplementary one
OTHER = User("other", 3000, 3000)
USERS = (ROOT, OWNER, MEMBER, OTHER)


@contextlib.contextmanager
def as_user(user):
    """As somebody else, without capabilities, until the end of the block."""
    groups = os.getgroups()
    if user.uid:
        os.setgroups(user.groups)
        os.setegid(user.gid)
        os.seteuid(user.uid)
    try:
        yield
    finally:
        if user.uid:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)


def in_process(function, *args):
    """What function returned in a forked process, as a string, or the error's name."""

    def work():
        try:
            return str(function(*args))
        except OSError as error:
            return error_name(error)

    return rig.in_child(work)
