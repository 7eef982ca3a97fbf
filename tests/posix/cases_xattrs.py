# SPDX-License-Identifier: Apache-2.0
"""Extended attributes: limits, flags, namespaces, who may; ACLs."""
import contextlib
import ctypes
import itertools
import mmap
import os
import shutil
import struct
import subprocess

from script import LIBC, OTHER, OWNER, USERS, as_user, checked, fallocate, give, opened, put, script

CREATE, REPLACE = os.XATTR_CREATE, os.XATTR_REPLACE


@script
def xattr_limits(s):
    put("file")
    for length in (1, 100, 249, 250, 251):
        name = "user." + "n" * length
        s.call(f"set name {length}", os.setxattr, "file", name, b"v")
        s.call(f"get name {length}", os.getxattr, "file", name)
        s.call(f"remove name {length}", os.removexattr, "file", name)
    for name in ("user.", "user", "", ".", "nothing.x", "trusted", "security.", "system.x", "system.posix_acl_none", "USER.x", "user.é"):
        s.call(f"set {name!r}", os.setxattr, "file", name, b"v")
        s.call(f"get {name!r}", os.getxattr, "file", name)
        s.call(f"remove {name!r}", os.removexattr, "file", name)
    for size in (0, 1, 1000, 2000, 65_537, 100_000):
        s.call(f"set {size}", os.setxattr, "file", "user.value", b"v" * size)
        s.call(f"length {size}", lambda: len(os.getxattr("file", "user.value")))
    s.tree("tree")


@script
def xattr_flags(s):
    """CREATE and REPLACE, on what has it and what has it not; on drafts too."""
    for flags, there, is_open in itertools.product((0, CREATE, REPLACE, CREATE | REPLACE, 8), (False, True), (False, True)):
        with s.directory():
            put("file")
            if there:
                os.setxattr("file", "user.x", b"before")
            fd = os.open("new" if is_open else "file", os.O_RDWR | os.O_CREAT)
            if is_open and there:
                os.setxattr(fd, "user.x", b"before")
            label = f"{flags} {there} {is_open}"
            s.call(label, os.setxattr, fd, "user.x", b"after", flags)
            s.call(f"{label} get", os.getxattr, fd, "user.x")
            s.call(f"{label} remove", os.removexattr, fd, "user.x")
            s.call(f"{label} again", os.removexattr, fd, "user.x")
            s.call(f"{label} list", os.listxattr, fd)
            os.close(fd)


def buffer_call(name, *args):
    return checked(getattr(LIBC, name)(*args))


@script
def xattr_buffers(s):
    """A size of 0 asks, one too small fails."""
    put("file")
    os.setxattr("file", "user.ten", b"0123456789")
    os.setxattr("file", "user.none", b"")
    for size in (0, 1, 9, 10, 11, 70_000):
        buf = ctypes.create_string_buffer(max(size, 1))
        s.call(f"get {size}", buffer_call, "getxattr", b"file", b"user.ten", buf, size)
        s.call(f"get empty {size}", buffer_call, "getxattr", b"file", b"user.none", buf, size)
        s.call(f"list {size}", buffer_call, "listxattr", b"file", buf, size)


@script
def xattr_of_kinds(s):
    """user.* is for files and directories."""
    os.mkdir("directory"), put("file"), os.symlink("file", "soft"), os.mkfifo("fifo")
    for path, name in itertools.product(("directory", "file", "soft", "fifo"), ("user.x", "trusted.x", "security.x")):
        s.call(f"set {path} {name}", os.setxattr, path, name, b"1", 0, follow_symlinks=False)
        s.call(f"get {path} {name}", os.getxattr, path, name, follow_symlinks=False)
        s.call(f"list {path} {name}", lambda p=path: sorted(os.listxattr(p, follow_symlinks=False)))
        s.call(f"remove {path} {name}", os.removexattr, path, name, follow_symlinks=False)
    os.setxattr("soft", "user.through", b"link")
    s.tree("tree")


@script
def xattr_by_whom(s):
    for mode, user in itertools.product((0o600, 0o644, 0o666, 0o400, 0o222, 0), USERS):
        with s.directory():
            put("file")
            os.setxattr("file", "user.x", b"1")
            give("file", OWNER, mode)
            with as_user(user):
                s.call(f"{mode:o} {user.name} set", os.setxattr, "file", "user.y", b"1")
                s.call(f"{mode:o} {user.name} get", os.getxattr, "file", "user.x")
                s.call(f"{mode:o} {user.name} list", lambda: sorted(os.listxattr("file")))
                s.call(f"{mode:o} {user.name} remove", os.removexattr, "file", "user.x")
                s.call(f"{mode:o} {user.name} trusted", os.setxattr, "file", "trusted.x", b"1") if user.uid else None
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    with as_user(OTHER):
        s.call("sticky directory of another", os.setxattr, "sticky", "user.x", b"1")


@script
def xattr_namespaces(s):
    """By root, who may have them all, and by others, for whom trusted.* are not there."""
    put("file"), os.mkdir("directory")
    for name in ("trusted.a", "security.a", "user.a"):
        os.setxattr("file", name, b"a")
    os.chmod("file", 0o666)
    for user in USERS:
        with as_user(user):
            s.call(f"{user.name} list", lambda: sorted(os.listxattr("file")))
            s.call(f"{user.name} length of the list", lambda: checked(LIBC.listxattr(b"file", None, 0)))
            for name in ("trusted.a", "security.a", "trusted.none", "security.none"):
                s.call(f"{user.name} get {name}", os.getxattr, "file", name)
                s.call(f"{user.name} set {name}", os.setxattr, "file", name, b"b")
                s.call(f"{user.name} remove {name}", os.removexattr, "file", name)
    for at, name in itertools.product(("file", "directory"), ("trusted.x", "security.x", "security.capability", "system.x")):
        s.call(f"{at} {name} set", os.setxattr, at, name, b"1")
        s.call(f"{at} {name} get", os.getxattr, at, name)
        s.call(f"{at} {name} list", lambda p=at: sorted(os.listxattr(p)))
        s.call(f"{at} {name} remove", os.removexattr, at, name)


# cap_dac_read_search, permitted and effective, as setcap(8) writes it
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 2, 0, 0, 0)


def store_through_map(path):
    with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 4096) as area:
        area[0:1] = b"x"
        area.flush()


def with_fd(flags, call):
    def change(path):
        with opened(path, flags) as fd:
            call(fd)
    return change


def copy_into(path):
    with opened("source") as source, opened(path, os.O_WRONLY) as to:
        os.copy_file_range(source, to, 4096, 0, 0)


@script
def file_capabilities(s):
    """A change of content or owner takes them away, whoever makes it."""
    changes = {
        "nothing": lambda path: None, "open": with_fd(os.O_RDWR, lambda fd: None), "open to write": with_fd(os.O_WRONLY, lambda fd: None),
        "write": with_fd(os.O_WRONLY, lambda fd: os.write(fd, b"x")), "write nothing": with_fd(os.O_WRONLY, lambda fd: os.write(fd, b"")),
        "rewrite": with_fd(os.O_RDWR, lambda fd: os.write(fd, b"x")),
        "append": with_fd(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
        "write in step": with_fd(os.O_WRONLY | os.O_DSYNC, lambda fd: os.write(fd, b"x")), "map": store_through_map,
        "truncate": lambda path: os.truncate(path, 10), "ftruncate": with_fd(os.O_RDWR, lambda fd: os.ftruncate(fd, 10)),
        "same size": lambda path: os.truncate(path, 8192), "O_TRUNC": with_fd(os.O_WRONLY | os.O_TRUNC, lambda fd: None),
        "punch": with_fd(os.O_RDWR, lambda fd: fallocate(fd, 3, 0, 4096)),
        "allocate": with_fd(os.O_RDWR, lambda fd: fallocate(fd, 0, 0, 16384)),
        "copy": copy_into, "chmod": lambda path: os.chmod(path, 0o700), "chown": lambda path: os.chown(path, OWNER.uid, -1),
        "chown to nobody": lambda path: os.chown(path, -1, -1), "times": lambda path: os.utime(path, (1, 1)),
        "xattr": lambda path: os.setxattr(path, "user.x", b"1"), "rename": lambda path: (os.rename(path, "x"), os.rename("x", path)),
        "link": lambda path: os.link(path, "second"),
    }
    put("source", b"s" * 8192)
    for (label, change), mode, is_new in itertools.product(changes.items(), (0o755, 0o644), (False, True)):
        path = f"{label} {mode:o} {is_new}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.write(fd, b"c" * 8192)
        if not is_new:
            os.close(fd)
        os.chmod(path, mode)
        os.setxattr(path, "security.capability", CAPABILITY)
        change(path)
        s.call(path, os.getxattr, path, "security.capability")
        s.call(f"{path} once more", lambda: (os.setxattr(path, "security.capability", CAPABILITY), change(path), os.listxattr(path)))
        if is_new:
            os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("second")


@script
def run_with_capabilities(s):
    """Who may not read the file does, with a program that may; not any more after the program was written."""
    shutil.copy("/bin/cat", "cat")
    os.chmod("cat", 0o755)
    put("secret", b"secret")
    os.chmod("secret", 0o600), os.chmod(".", 0o755)
    def run():
        done = subprocess.run(["./cat", "secret"], capture_output=True, user=OTHER.uid, group=OTHER.gid, extra_groups=[])
        return done.returncode, done.stdout
    s.call("without", run)
    os.setxattr("cat", "security.capability", CAPABILITY)
    s.call("with", run)
    with opened("cat", os.O_WRONLY) as fd:
        os.pwrite(fd, b"\x7f", 0)
    s.call("written", run)


@script
def xattr_many(s):
    put("file")
    for number in range(50):
        os.setxattr("file", f"user.n{number}", str(number).encode())
    s.call("list", lambda: sorted(os.listxattr("file")))
    for number in range(0, 50, 2):
        os.removexattr("file", f"user.n{number}")
    s.call("half", lambda: sorted(os.listxattr("file")))
    os.link("file", "second")
    os.rename("file", "moved")
    s.tree("tree")
    with opened("moved") as fd:
        os.unlink("moved"), os.unlink("second")
        s.call("without a name", lambda: len(os.listxattr(fd)))


@script
def acls(s):
    """Refused here; without one there is none."""
    put("file")
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in
                                          ((1, 6, 0xFFFFFFFF), (2, 4, 1234), (4, 4, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF), (32, 4, 0xFFFFFFFF)))
    s.call("get", os.getxattr, "file", "system.posix_acl_access")
    s.call("set", os.setxattr, "file", "system.posix_acl_access", acl)
    s.call("set default", os.setxattr, ".", "system.posix_acl_default", acl)
    s.call("remove", os.removexattr, "file", "system.posix_acl_access")
    s.call("list", os.listxattr, "file")
