# SPDX-License-Identifier: Apache-2.0
"""Owners, modes, and the set-user-ID and set-group-ID bits."""
import itertools
import mmap
import os
import socket
import stat
import struct

from script import OTHER, OWNER, ROOT, USERS, as_user, fallocate, facts, give, opened, put, script

MODES = (0o4755, 0o2755, 0o6755, 0o2745, 0o6644, 0o7777, 0o644)


@script
def chmod_by_whom(s):
    for mode, user, kind in itertools.product((0, 0o777, 0o4755, 0o2755, 0o1755, 0o6000, 0o7777), USERS, ("file", "directory")):
        with s.directory():
            make = put if kind == "file" else os.mkdir
            make("it")
            os.chown("it", OWNER.uid, OWNER.gid)
            with as_user(user):
                s.call(f"{mode:o} {user.name} {kind}", os.chmod, "it", mode)
            s.note(f"{mode:o} {user.name} {kind} is", facts("it"))


@script
def chmod_in_foreign_group(s):
    """Who is not of the file's group loses set-group-ID."""
    for mode, user, kind, group in itertools.product((0o2755, 0o2644, 0o6777), (ROOT, OWNER), ("file", "directory"), (1000, 2000)):
        with s.directory():
            make = put if kind == "file" else os.mkdir
            make("it")
            os.chown("it", OWNER.uid, group)
            with as_user(user):
                s.call(f"{mode:o} {user.name} {kind} {group}", os.chmod, "it", mode)
            s.note(f"{mode:o} {user.name} {kind} {group} is", facts("it"))


@script
def chown_to_large_numbers(s):
    put("file")
    for number in (65_534, 65_536, 2**31 - 1, 2**31, 2**32 - 2):
        s.call(str(number), os.chown, "file", number, number)
        s.note(f"{number} is", facts("file"))


def bind(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)


MAKE = {
    "file": put, "directory": os.mkdir, "soft": lambda path: os.symlink("x", path), "fifo": os.mkfifo, "socket": bind,
    "character device": lambda path: os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 3)),
    "block device": lambda path: os.mknod(path, stat.S_IFBLK | 0o644, os.makedev(7, 0)),
}  # fmt: skip


@script
def chown_by_whom(s):
    targets = ((-1, -1), (1000, -1), (-1, 1000), (1000, 1000), (2000, -1), (-1, 2000), (-1, 3000), (0, 0), (3000, 3000))
    for target, mode, user, kind in s.some(targets, MODES, (*USERS, OWNER_IN_TWO), MAKE):
        with s.directory():
            MAKE[kind]("it")
            os.lchown("it", OWNER.uid, OWNER.gid)
            if kind != "soft":
                os.chmod("it", mode)
            with as_user(user):
                s.call(f"{target} {mode:o} {user.name} {kind}", os.lchown, "it", *target)
            s.note(f"{target} {mode:o} {user.name} {kind} is", facts("it"))


OWNER_IN_TWO = type(OWNER)("owner in two groups", 1000, 1000, (2000,))


def store_through_map(fd):
    with mmap.mmap(fd, 4) as area:
        area[0:1] = b"m"
        area.flush()


def copy_into(fd):
    with opened("source", os.O_RDONLY) as source:
        return os.copy_file_range(source, fd, 4, 0, 0)


def splice_into(fd):
    with opened("source", os.O_RDONLY) as source:
        return os.sendfile(fd, source, 0, 4)


CHANGES = {
    "write": lambda fd: os.write(fd, b"x"),
    "write nothing": lambda fd: os.write(fd, b""),
    "pwrite": lambda fd: os.pwrite(fd, b"x" * 9000, 1),
    "writev": lambda fd: os.writev(fd, [b"a", b"b"]),
    "truncate": lambda fd: os.ftruncate(fd, 2),
    "truncate to the same": lambda fd: os.ftruncate(fd, 4),
    "truncate up": lambda fd: os.ftruncate(fd, 9000),
    "truncate beyond all": lambda fd: os.ftruncate(fd, (1 << 63) - 4096),
    "write beyond all": lambda fd: os.pwrite(fd, b"x", (1 << 63) - 4096),
    "by path": lambda fd: os.truncate("file", 1),
    "open": lambda fd: os.close(os.open("file", os.O_WRONLY | os.O_TRUNC)),
    "allocate": lambda fd: fallocate(fd, 0, 0, 9000),
    "allocate within": lambda fd: fallocate(fd, 1, 0, 9000),
    "punch": lambda fd: fallocate(fd, 3, 0, 2),
    "zero": lambda fd: fallocate(fd, 16, 0, 2),
    "copy": copy_into,
    "sendfile": splice_into,
    "map": store_through_map,
    "read": lambda fd: os.pread(fd, 1, 0),
    "xattr": lambda fd: os.setxattr(fd, "user.x", b"1"),
    "utime": os.utime,
    "link": lambda fd: os.link("file", "second"),
    "rename": lambda fd: os.rename("file", "second"),
}


@script
def setid_cleared_by_changes(s):
    """Which change of content takes the bits away, for whom."""
    for (name, change), mode, user in s.some(CHANGES.items(), (0o4755, 0o2755, 0o6755, 0o7777, 0o4644, 0o644), USERS):
        with s.directory():
            put("file", b"text")
            put("source", b"data", 0o644)
            os.chmod(".", 0o777)
            give("file", OWNER, mode | 0o666)
            label = f"{name} {mode:o} {user.name}"
            with as_user(user):
                with opened("file") as fd:
                    s.call(label, change, fd)
                    s.note(f"{label} is", oct(os.fstat(fd).st_mode))
            s.note(f"{label} then", {p: facts(p) for p in sorted(os.listdir("."))})


@script
def capabilities_and_owners(s):
    """File capabilities go with a change of owner, whatever has them; a directory's stay."""
    value = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    for kind, target in itertools.product(MAKE.keys() - {"soft"}, ((-1, -1), (1000, -1), (-1, 1000), (0, 0))):
        with s.directory():
            MAKE[kind]("it")
            s.call(f"{kind} {target} set", os.setxattr, "it", "security.capability", value)
            os.chown("it", *target)
            s.call(f"{kind} {target} get", os.getxattr, "it", "security.capability")


@script
def setid_cleared_by_references(s):
    """What is copied from a stored file may be so without a write; a hole, too."""
    put("source", bytes(range(256)) * 256)
    with opened("source") as fd:
        os.fsync(fd)
        os.ftruncate(fd, 1 << 17)
        os.fsync(fd)
    os.chmod("source", 0o644)
    for (name, offset), mode, user in itertools.product({"chunk": 0, "hole": 1 << 16}.items(), (0o4755, 0o2755, 0o2745, 0o644), USERS):
        put("file", b"text")
        give("file", OWNER, mode | 0o666)
        label = f"{name} {mode:o} {user.name}"
        with as_user(user), opened("file") as fd, opened("source", os.O_RDONLY) as source:
            s.call(label, os.copy_file_range, source, fd, 1 << 16, offset, 0)
        s.note(f"{label} is", {**facts("file")})
        os.unlink("file")


@script
def setid_of_own(s):
    """The same of one's own file, whoever one is: test_user_scripts runs this as an ordinary user."""
    owners = {"chown to nobody": (-1, -1), "chown to oneself": (os.getuid(), -1), "chown to one's group": (-1, os.getgid()),
              "chown to another": (1, -1)}
    changes = CHANGES | {name: lambda fd, ids=ids: os.chown(fd, *ids) for name, ids in owners.items()}
    for (name, change), mode in itertools.product(changes.items(), MODES):
        with s.directory():
            put("file", b"text")
            put("source", b"data")
            os.chmod("file", mode | 0o600)
            with opened("file") as fd:
                s.call(f"{name} {mode:o}", change, fd)
                s.note(f"{name} {mode:o} is", oct(os.fstat(fd).st_mode))
            s.note(f"{name} {mode:o} then", {p: facts(p) for p in sorted(os.listdir("."))})


@script
def setgid_without_execute(s):
    """A set-group-ID bit without group execution, which means nothing any more, goes by the writer's groups."""
    for user in USERS:
        put("file", b"text")
        give("file", OWNER, 0o2666)
        with as_user(user), opened("file") as fd:
            os.write(fd, b"x")
        s.note(user.name, oct(os.stat("file").st_mode))


@script
def setid_and_handles(s):
    """Whose write it is counts, not who opened the file."""
    put("file", b"text")
    os.chmod("file", 0o6777)
    with opened("file") as fd:
        with as_user(OTHER):
            s.call("as another", os.write, fd, b"x")
        s.note("is", facts("file"))
    os.chmod("file", 0o6777)
    with as_user(OTHER):
        fd = os.open("file", os.O_RDWR)
    s.call("as root", os.write, fd, b"x")
    s.note("then", facts("file"))
    with as_user(OTHER):
        s.call("truncate as another", os.ftruncate, fd, 1)
    s.note("last", facts("file"))
    os.close(fd)


@script
def setgid_directory(s):
    """Group and bit go on to what is made below."""
    for user, mode in itertools.product(USERS, (0o2777, 0o777, 0o3777)):
        with s.directory():
            os.mkdir("at")
            give("at", OWNER, mode)
            with as_user(user):
                os.mkdir("at/sub")
                os.mkdir("at/sub/deeper")
                put("at/sub/file", b"", 0o644)
                os.close(os.open("at/sub/setgid", os.O_CREAT | os.O_WRONLY, 0o2755))
                os.mkfifo("at/sub/fifo")
                os.symlink("x", "at/sub/soft")
                os.close(os.open("at/outside", os.O_CREAT | os.O_WRONLY, 0o2711))
            s.tree(f"{user.name} {mode:o}")
            os.mkdir("plain")
            os.rename("at/sub/deeper", "plain/moved")
            s.tree(f"{user.name} {mode:o} moved")


@script
def access_checks(s):
    """access(2) by mode and user."""
    for mode, user in itertools.product((0, 0o111, 0o222, 0o444, 0o750, 0o705, 0o070, 0o777), USERS):
        for kind in ("file", "directory"):
            with s.directory():
                (put if kind == "file" else os.mkdir)("it")
                give("it", OWNER, mode)
                with as_user(user):
                    bits = [os.access("it", bit, effective_ids=True) for bit in (os.F_OK, os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.W_OK)]
                s.note(f"{mode:o} {user.name} {kind}", bits)
