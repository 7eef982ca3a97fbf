"""Extended attributes: limits, flags, namespaces, who may; ACLs."""
import ctypes
import itertools
import os
import struct

from script import LIBC, OTHER, OWNER, USERS, as_user, checked, opened, put, script

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
        with s.folder():
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
    """user.* is for files and folders."""
    os.mkdir("folder"), put("file"), os.symlink("file", "soft"), os.mkfifo("fifo")
    for path, name in itertools.product(("folder", "file", "soft", "fifo"), ("user.x",)):
        s.call(f"set {path} {name}", os.setxattr, path, name, b"1", 0, follow_symlinks=False)
        s.call(f"get {path} {name}", os.getxattr, path, name, follow_symlinks=False)
        s.call(f"list {path} {name}", lambda p=path: sorted(os.listxattr(p, follow_symlinks=False)))
        s.call(f"remove {path} {name}", os.removexattr, path, name, follow_symlinks=False)
    os.setxattr("soft", "user.through", b"link")
    s.tree("tree")


@script
def xattr_by_whom(s):
    for mode, user in itertools.product((0o600, 0o644, 0o666, 0o400, 0o222, 0), USERS):
        with s.folder():
            put("file")
            os.setxattr("file", "user.x", b"1")
            os.chown("file", OWNER.uid, OWNER.gid)
            os.chmod("file", mode)
            with as_user(user):
                s.call(f"{mode:o} {user.name} set", os.setxattr, "file", "user.y", b"1")
                s.call(f"{mode:o} {user.name} get", os.getxattr, "file", "user.x")
                s.call(f"{mode:o} {user.name} list", lambda: sorted(os.listxattr("file")))
                s.call(f"{mode:o} {user.name} remove", os.removexattr, "file", "user.x")
                s.call(f"{mode:o} {user.name} trusted", os.setxattr, "file", "trusted.x", b"1") if user.uid else None
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    with as_user(OTHER):
        s.call("sticky folder of another", os.setxattr, "sticky", "user.x", b"1")


@script
def xattr_namespaces(s):
    """By root, who may have them all."""
    put("file"), os.mkdir("folder")
    for at, name in itertools.product(("file", "folder"), ("trusted.x", "security.x", "security.capability", "system.x")):
        s.call(f"{at} {name} set", os.setxattr, at, name, b"1")
        s.call(f"{at} {name} get", os.getxattr, at, name)
        s.call(f"{at} {name} list", lambda p=at: sorted(os.listxattr(p)))
        s.call(f"{at} {name} remove", os.removexattr, at, name)


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
