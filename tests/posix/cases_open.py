# SPDX-License-Identifier: Apache-2.0
"""Opening: flags in all combinations on every kind of thing, permissions, limits of names and paths, access modes."""
import ctypes
import fcntl
import itertools
import os
import socket
import struct
import time
import subprocess

from script import (AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW, LIBC, OTHER, OWNER, USERS, as_user, checked, fallocate, get, give, linkat,
                    opened, put, script, with_fd)

ACCESS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR}
FLAGS = {
    "creat": os.O_CREAT,
    "excl": os.O_EXCL,
    "trunc": os.O_TRUNC,
    "append": os.O_APPEND,
    "nofollow": os.O_NOFOLLOW,
    "directory": os.O_DIRECTORY,
}
PLACES = ("missing", "file", "directory", "to_file", "to_missing", "to_directory", "loop", "fifo", "socket", "file/below", "missing/below",
          "file/", "missing/", "directory/", "directory/.", "to_directory/", "to_directory/new", "")


def make_places():
    put("file", b"0123456789")
    os.mkdir("directory")
    os.symlink("file", "to_file")
    os.symlink("missing", "to_missing")
    os.symlink("directory", "to_directory")
    os.symlink("loop", "loop")
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket")


def unmake_places():
    """What an open may have made or emptied is as it was."""
    for path in ("missing", "directory/new"):
        if os.path.lexists(path):
            os.unlink(path)
    if os.path.getsize("file") != 10 or get("file") != b"0123456789":
        put("file", b"0123456789")


def use(fd):
    """What a descriptor allows."""
    info = os.fstat(fd)
    result = [f"{info.st_mode:o}", info.st_size if not os.path.isdir(f"/proc/self/fd/{fd}") else None]
    for call in (lambda: os.write(fd, b"abc"), lambda: os.lseek(fd, 0, os.SEEK_CUR), lambda: os.pread(fd, 20, 0)):
        try:
            result.append(call())
        except OSError as error:
            result.append(error.errno)
    return result


def try_open(path, flags, mode=0o640):
    with opened(path, flags, mode) as fd:
        return use(fd)


@script
def open_flags(s):
    make_places()
    sets = [names for size in range(len(FLAGS) + 1) for names in itertools.combinations(FLAGS, size)]
    for place, (access, bits), names in s.some(PLACES, ACCESS.items(), sets):
        flags = bits | os.O_NONBLOCK
        for name in names:
            flags |= FLAGS[name]
        s.call(f"open {place!r} {access} {' '.join(names)}", try_open, place, flags)
        unmake_places()
    s.tree("tree")


@script
def open_path_only(s):
    make_places()
    for place, extra in itertools.product(PLACES, (0, os.O_NOFOLLOW, os.O_DIRECTORY, os.O_NOFOLLOW | os.O_DIRECTORY)):
        s.call(f"O_PATH {place!r} {extra:o}", try_open, place, os.O_PATH | extra)


def named(fd, path, way):
    """Two ways to give a file without a name one."""
    if way == "path":
        linkat(AT_FDCWD, f"/proc/self/fd/{fd}", path, AT_SYMLINK_FOLLOW)
    else:
        linkat(fd, "", path, AT_EMPTY_PATH)


@script
def open_unnamed(s):
    """O_TMPFILE: where, how, by whom; what it is like; and with a name."""
    os.mkdir("directory"), put("file"), os.mkdir("gone"), os.mkdir("setgid")
    give("setgid", OTHER, 0o2777)
    here = os.open(".", os.O_RDONLY)
    for path, access, mode in itertools.product(("directory", "file", "missing", "setgid"), ACCESS.values(), (0o600, 0o7777, 0)):
        def shape():
            with opened(path, os.O_TMPFILE | access, mode) as fd:
                info = os.fstat(fd)
                return oct(info.st_mode), info.st_nlink, info.st_size, info.st_uid, info.st_gid
        s.call(f"{path} {access} {mode:o}", shape)
    os.chdir("gone"), os.rmdir("../gone")
    s.call("in a removed directory", lambda: os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600))
    os.fchdir(here)
    os.chown("directory", OWNER.uid, OWNER.gid)
    for mode, user in itertools.product((0o755, 0o777, 0o555), USERS):
        os.chmod("directory", mode)
        with as_user(user):
            s.call(f"by whom {mode:o} {user.name}", lambda: os.close(os.open("directory", os.O_TMPFILE | os.O_RDWR, 0o600)))
    os.chmod("directory", 0o755)
    with opened("directory", os.O_TMPFILE | os.O_RDWR, 0o640) as fd:
        s.call("write", os.write, fd, b"text" * 5000)
        s.effects("nothing in the directory", lambda: os.write(fd, b"more"))
        s.call("truncate", os.ftruncate, fd, 10_000)
        s.call("punch", fallocate, fd, 3, 0, 4096)
        s.call("xattr", os.setxattr, fd, "user.x", b"1")
        s.call("chmod", os.fchmod, fd, 0o755), s.call("chown", os.fchown, fd, OTHER.uid, -1), s.call("times", os.utime, fd, (5, 6))
        s.call("sync", os.fsync, fd)
        s.note("shape", (oct(os.fstat(fd).st_mode), os.fstat(fd).st_nlink, os.fstat(fd).st_size, os.fstat(fd).st_uid,
                         os.fstat(fd).st_mtime))
        with opened(f"/proc/self/fd/{fd}", os.O_RDWR) as again:
            s.call("open again", os.pread, again, 5, 4094)
            s.call("write again", os.pwrite, again, b"again", 4094)
        s.call("list", os.listdir, "directory")
        s.call("over", linkat, AT_FDCWD, f"/proc/self/fd/{fd}", "file", AT_SYMLINK_FOLLOW)
        s.effects("named", lambda: named(fd, "directory/name", "path"))
        s.call("nlink", lambda: os.fstat(fd).st_nlink)
        s.call("second", os.link, "directory/name", "directory/second")
        os.pwrite(fd, b"named", 0)
        os.unlink("directory/name")
        s.call("links of the open file", lambda: os.fstat(fd).st_nlink)
    s.tree("tree")
    for way, exclusive, when, size in itertools.product(("path", "descriptor"), (0, os.O_EXCL), ("open", "written", "synced", "again"),
                                                        (0, 10, 100_000, 3 << 20)):
        with s.directory(), opened(".", os.O_TMPFILE | os.O_RDWR | exclusive, 0o644) as fd:
            label = f"{way} {exclusive} {when} {size}"
            if when != "open":
                os.write(fd, b"y" * size)
            if when == "synced":
                os.fsync(fd)
            s.call(label, named, fd, "name", way)
            if when == "open":
                os.write(fd, b"x" * size)
            if when == "again" and not exclusive:
                os.unlink("name")
                s.call(f"{label} again", named, fd, "name", way)
                os.pwrite(fd, b"after", 3)
            s.note(f"{label} shape", (os.fstat(fd).st_nlink, os.fstat(fd).st_size, [os.path.getsize(name) for name in os.listdir()]))


@script
def open_other_flags(s):
    """Flags that change nothing, or how bytes travel."""
    put("file", b"x" * 8192)
    for name in ("O_SYNC", "O_DSYNC", "O_CLOEXEC", "O_NOCTTY", "O_NOATIME", "O_ASYNC", "O_LARGEFILE", "O_NDELAY"):
        for access in ACCESS.values():
            s.call(f"{name} {access}", with_fd, "file", access | getattr(os, name), lambda fd: os.fstat(fd).st_size)
    give("file", OWNER, 0o666)
    for user in USERS:
        with as_user(user):
            s.call(f"O_NOATIME {user.name}", try_open, "file", os.O_RDONLY | os.O_NOATIME)


@script
def open_permissions(s):
    """What each user may open, by the mode of the file and of its directory."""
    os.mkdir("at")
    put("at/file", b"text")
    os.chown("at/file", OWNER.uid, OWNER.gid)
    os.chown("at", OWNER.uid, OWNER.gid)
    for mode, user in itertools.product((0, 0o400, 0o200, 0o600, 0o440, 0o240, 0o060, 0o006, 0o604, 0o666, 0o070), USERS):
        os.chmod("at/file", mode)
        for access, bits in ACCESS.items():
            for extra in (0, os.O_TRUNC, os.O_CREAT):
                with as_user(user):
                    s.call(f"file {mode:o} {user.name} {access} {extra:o}", try_open, "at/file", bits | extra)
                put_back("at/file", mode)
    os.chmod("at/file", 0o666)
    for mode, user in itertools.product((0, 0o100, 0o300, 0o700, 0o500, 0o750, 0o730, 0o755, 0o733, 0o777, 0o1777), USERS):
        os.chmod("at", mode)
        with as_user(user):
            s.call(f"directory {mode:o} {user.name} read", try_open, "at/file", os.O_RDONLY)
            s.call(f"directory {mode:o} {user.name} create", try_open, "at/new", os.O_RDWR | os.O_CREAT)
            s.call(f"directory {mode:o} {user.name} list", lambda: sorted(os.listdir("at")))
        if os.path.lexists("at/new"):
            os.unlink("at/new")


def put_back(path, mode):
    put(path, b"text")
    give(path, OWNER, mode)


@script
def open_new_files(s):
    """Mode and owner of what is made: umask, user, group, set-group-ID of the directory."""
    for directory_mode, mode, umask, user in itertools.product((0o777, 0o2777, 0o1777), (0o666, 0o777, 0o4755, 0o2755, 0o7777, 0),
                                                               (0, 0o022, 0o077), USERS):
        with s.directory():
            give(".", OWNER, directory_mode)
            before = os.umask(umask)
            with as_user(user):
                label = f"{directory_mode:o} {mode:o} {umask:o} {user.name}"
                s.call(f"open {label}", lambda m=mode: os.close(os.open("file", os.O_CREAT | os.O_WRONLY, m)))
                s.call(f"mkdir {label}", os.mkdir, "directory", mode)
                s.call(f"mkfifo {label}", os.mkfifo, "fifo", mode)
                s.call(f"symlink {label}", os.symlink, "target", "soft")
            os.umask(before)
            s.tree(f"tree {label}")


@script
def open_long_names(s):
    """255 bytes are a name, 256 are not; a path has 4,095."""
    at_most, too_long = "n" * 255, "n" * 256
    deep = "/".join(["."] * 2047)  # 4,093 bytes
    calls = {
        "open": lambda p: try_open(p, os.O_RDWR | os.O_CREAT),
        "mkdir": os.mkdir,
        "mkfifo": os.mkfifo,
        "symlink": lambda p: os.symlink("x", p),
        "link": lambda p: os.link("file", p),
        "rename to": lambda p: os.rename("moving", p),
        "rename from": lambda p: os.rename(p, "moved"),
        "stat": lambda p: oct(os.lstat(p).st_mode),
        "chmod": lambda p: os.chmod(p, 0o600),
        "chown": lambda p: os.chown(p, 1, 1),
        "truncate": lambda p: os.truncate(p, 1),
        "utime": lambda p: os.utime(p),
        "readlink": os.readlink,
        "listxattr": os.listxattr,
        "unlink": os.unlink,
        "rmdir": os.rmdir,
        "listdir": os.listdir,
    }
    for (name, call), (length, path) in itertools.product(calls.items(), {
        "255": at_most, "256": too_long, "256 below": too_long + "/x", "255 below": at_most + "/x", "4094": deep + "/x"[:2],
        "4096": deep + "/" + "xyz",
    }.items()):
        with s.directory():
            put("file")
            put("moving")
            s.call(f"{name} {length}", call, path)
            s.tree(f"{name} {length} tree")
    put("u" * 255, b"there")
    s.call("again", os.unlink, "u" * 255)
    s.call("bytes, not letters", try_open, "ü" * 127 + "x", os.O_RDWR | os.O_CREAT)
    s.call("too many bytes", try_open, "ü" * 128, os.O_RDWR | os.O_CREAT)


@script
def open_wrong_access(s):
    """A descriptor does what it was opened for."""
    put("file", b"text")
    for access, flags in {**ACCESS, "path": os.O_PATH, "append": os.O_WRONLY | os.O_APPEND}.items():
        with opened("file", flags) as fd:
            for name, call in {
                "read": lambda f: os.read(f, 0), "write": lambda f: os.write(f, b""), "pread": lambda f: os.pread(f, 1, 0),
                "pwrite": lambda f: os.pwrite(f, b"t", 0), "truncate": lambda f: os.ftruncate(f, 4), "chmod": lambda f: os.fchmod(f, 0o600),
                "chown": lambda f: os.fchown(f, 0, 0), "sync": os.fsync, "seek": lambda f: os.lseek(f, 1, os.SEEK_SET),
                "list": os.listdir, "chdir": os.fchdir, "xattr": lambda f: os.setxattr(f, "user.x", b"1"), "utime": os.utime,
                "allocate": lambda f: os.posix_fallocate(f, 0, 4),
            }.items():
                s.call(f"{access} {name}", call, fd)
    s.tree("tree")


@script
def open_strange_names(s):
    """Any bytes but '/' and 0 are a name; what walks upwards is not kept."""
    for number, name in enumerate((b"new\nline", b"\xff\xfe", b" ", b"-rf", b"*", b"\x01", b"...", b".hidden", b"a\\b", b"%s")):
        s.call(f"make {number}", lambda n=name: os.close(os.open(n, os.O_CREAT | os.O_WRONLY, 0o600)))
    s.call("list", lambda: sorted(os.listdir(b".")))
    for name in (".", "..", "", "/", "./", "../", "a/..", "./."):
        s.call(f"mkdir {name!r}", os.mkdir, name)
        if name not in ("/", "../"):
            s.call(f"rmdir {name!r}", os.rmdir, name)
            s.call(f"unlink {name!r}", os.unlink, name)
    s.call("list again", lambda: sorted(os.listdir(b".")))


@script
def open_executes(s):
    """Running a script: by its mode; while somebody writes it."""
    put("run", b"#!/bin/sh\nexit 7\n", 0o755)
    s.call("root", lambda: os.spawnv(os.P_WAIT, "./run", ["run"]))
    os.chown("run", OWNER.uid, OWNER.gid)
    for mode in (0o644, 0o700, 0o711, 0o755):
        os.chmod("run", mode)
        for user in (OWNER, OTHER):
            with as_user(user):
                s.call(f"{mode:o} {user.name}", os.access, "run", os.X_OK, effective_ids=True)
    put("copy", get("/bin/true"), 0o755)
    s.call("binary", lambda: os.spawnv(os.P_WAIT, "./copy", ["copy"]))
    with opened("copy", os.O_WRONLY):
        s.call("while it is written", lambda: os.spawnv(os.P_WAIT, "./copy", ["copy"]))
    put("running", get("/bin/sleep"), 0o755)
    with subprocess.Popen(["./running", "60"]) as process:
        for name, call in {"write": lambda: os.open("running", os.O_WRONLY), "empty": lambda: os.open("running", os.O_RDONLY | os.O_TRUNC),
                           "truncate": lambda: os.truncate("running", 1), "replace": lambda: os.rename("copy", "running")}.items():
            s.call(f"{name} what runs", call)
            s.note(f"size after {name}", os.stat("running").st_size)
        s.note("it runs", process.poll())
        process.kill()


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]


@script
def open_by_handle(s):
    """As an NFS server does."""
    put("file", b"found")
    handle, mount_id = Handle(bytes=128), ctypes.c_int()
    s.call("name", lambda: checked(LIBC.name_to_handle_at(-100, b"file", ctypes.byref(handle), ctypes.byref(mount_id), 0)))
    with opened(".", os.O_RDONLY) as directory:
        fd = s.try_(lambda: checked(LIBC.open_by_handle_at(directory, ctypes.byref(handle), os.O_RDONLY)))
        s.note("read", os.read(fd, 10) if isinstance(fd, int) else fd)
        if isinstance(fd, int):
            os.close(fd)
        os.unlink("file")
        s.call("gone", open_until_gone, directory, handle)


def open_until_gone(directory, handle):
    """The kernel tells a FUSE filesystem of the last close later: until then the file is an open one without a name."""
    for _ in range(200):
        os.close(checked(LIBC.open_by_handle_at(directory, ctypes.byref(handle), os.O_RDONLY)))
        time.sleep(0.01)
    return "it is there still"


@script
def open_ioctls(s):
    """Flags of inodes and maps of extents: not here."""
    put("file", b"x" * 10_000)
    with opened("file") as fd:
        s.call("flags", lambda: len(fcntl.ioctl(fd, 0x80086601, bytes(8))))
        s.call("extents", lambda: len(fcntl.ioctl(fd, 0xC020660B, struct.pack("QQIIII", 0, 1 << 62, 0, 0, 0, 0))))
        s.call("bytes to read", lambda: struct.unpack("i", fcntl.ioctl(fd, 0x541B, bytes(4)))[0])
        s.call("unknown", lambda: len(fcntl.ioctl(fd, 0x12345678, bytes(8))))
        s.call("terminal", os.tcgetpgrp, fd)


@script
def open_elsewhere(s):
    """What would have to go to another filesystem."""
    put("file")
    for name, call in {"rename": os.rename, "link": os.link}.items():
        s.call(name, call, "file", f"/dev/shm/cairn-test-{os.getpid()}")
        s.call(f"{name} from there", call, "/proc/self/status", "new")
