# SPDX-License-Identifier: Apache-2.0
"""Times: which of them each operation moves, on everything that it touches; setting them; when reading moves atime."""
import itertools
import mmap
import os
import time

from script import (AT_SYMLINK_NOFOLLOW, OTHER, OWNER, TICK, USERS, UTIME_NOW, UTIME_OMIT, as_user, fallocate, get, give, linkat, opened,
                    put, renameat2, script, utimensat, with_fd)


def make_tree():
    put("file", b"content" * 1000)
    put("second", b"second")
    os.link("second", "hard")
    os.mkdir("a"), os.mkdir("b"), os.mkdir("a/sub"), os.mkdir("b/full")
    put("a/file", b"in a"), put("b/file", b"in b"), put("b/full/file", b"deep")
    os.symlink("file", "soft")
    os.symlink("a", "to_directory")
    os.mkfifo("fifo")
    os.setxattr("file", "user.x", b"1")


def through_map(fd):
    with mmap.mmap(fd, 0) as area:
        area[0:3] = b"new"
        area.flush()


def read_map(fd):
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as area:
        return area[0:7]


OPERATIONS = {
    "nothing": lambda: None,
    "stat": lambda: os.stat("file").st_nlink,
    "access": lambda: os.access("file", os.R_OK),
    "open to read": lambda: os.close(os.open("file", os.O_RDONLY)),
    "open to write": lambda: os.close(os.open("file", os.O_WRONLY)),
    "open to append": lambda: os.close(os.open("file", os.O_WRONLY | os.O_APPEND)),
    "open O_CREAT there": lambda: os.close(os.open("file", os.O_WRONLY | os.O_CREAT)),
    "open O_CREAT new": lambda: os.close(os.open("a/new", os.O_WRONLY | os.O_CREAT)),
    "make and unlink while open": lambda: with_fd("a/sub/new", os.O_WRONLY | os.O_CREAT, lambda fd: os.unlink("a/sub/new")),
    "open O_CREAT O_EXCL there": lambda: os.open("file", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "open O_TRUNC": lambda: os.close(os.open("file", os.O_WRONLY | os.O_TRUNC)),
    "open O_TRUNC empty": lambda: os.close(os.open("a/empty", os.O_WRONLY | os.O_TRUNC)),
    "write": lambda: with_fd("file", os.O_WRONLY, lambda fd: os.write(fd, b"new")),
    "write nothing": lambda: with_fd("file", os.O_WRONLY, lambda fd: os.write(fd, b"")),
    "append": lambda: with_fd("file", os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"new")),
    "write past the end": lambda: with_fd("file", os.O_WRONLY, lambda fd: os.pwrite(fd, b"new", 100_000)),
    "write to a hard link": lambda: with_fd("hard", os.O_WRONLY, lambda fd: os.write(fd, b"new")),
    "store through a map": lambda: with_fd("file", os.O_RDWR, through_map),
    "truncate down": lambda: os.truncate("file", 10),
    "truncate up": lambda: os.truncate("file", 10_000),
    "truncate to the same": lambda: os.truncate("file", 7000),
    "ftruncate down": lambda: with_fd("file", os.O_RDWR, lambda fd: os.ftruncate(fd, 10)),
    "ftruncate to the same": lambda: with_fd("file", os.O_RDWR, lambda fd: os.ftruncate(fd, 7000)),
    "allocate more": lambda: with_fd("file", os.O_RDWR, lambda fd: fallocate(fd, 0, 0, 20_000)),
    "allocate, keeping the size": lambda: with_fd("file", os.O_RDWR, lambda fd: fallocate(fd, 1, 0, 20_000)),
    "punch": lambda: with_fd("file", os.O_RDWR, lambda fd: fallocate(fd, 3, 100, 4000)),
    "punch past the end": lambda: with_fd("file", os.O_RDWR, lambda fd: fallocate(fd, 3, 100_000, 4000)),
    "zero": lambda: with_fd("file", os.O_RDWR, lambda fd: fallocate(fd, 16, 100, 4000)),
    "zero past the end": lambda: with_fd("file", os.O_RDWR, lambda fd: fallocate(fd, 16, 100, 40_000)),
    "copy range": lambda: with_fd("file", os.O_RDONLY,
                                  lambda a: with_fd("second", os.O_WRONLY, lambda b: os.copy_file_range(a, b, 3, 0, 0))),
    "copy nothing": lambda: with_fd("file", os.O_RDONLY,
                                    lambda a: with_fd("second", os.O_WRONLY, lambda b: os.copy_file_range(a, b, 3, 7000, 0))),
    "read": lambda: get("file"),
    "read nothing": lambda: with_fd("file", os.O_RDONLY, lambda fd: os.read(fd, 0)),
    "read directly": lambda: with_fd("file", os.O_RDONLY | os.O_NOATIME, lambda fd: os.read(fd, 10)),
    "read through a map": lambda: with_fd("file", os.O_RDONLY, read_map),
    "list": lambda: sorted(os.listdir("a")),
    "list through a link": lambda: sorted(os.listdir("to_directory")),
    "read the link": lambda: os.readlink("soft"),
    "follow the link": lambda: os.stat("soft").st_size,
    "mkdir": lambda: os.mkdir("a/new"),
    "mkdir there": lambda: os.mkdir("a/sub"),
    "rmdir": lambda: os.rmdir("a/sub"),
    "rmdir full": lambda: os.rmdir("b/full"),
    "mkfifo": lambda: os.mkfifo("a/new"),
    "symlink": lambda: os.symlink("x", "a/new"),
    "link": lambda: os.link("file", "a/new"),
    "link a symlink": lambda: os.link("soft", "a/new", follow_symlinks=False),
    "link there": lambda: os.link("file", "second"),
    "unlink": lambda: os.unlink("a/file"),
    "unlink one of two": lambda: os.unlink("hard"),
    "unlink missing": lambda: os.unlink("a/none"),
    "rename in place": lambda: os.rename("a/file", "a/new"),
    "rename to another": lambda: os.rename("a/file", "b/new"),
    "rename over": lambda: os.rename("a/file", "b/file"),
    "rename over a hard link": lambda: os.rename("a/file", "hard"),
    "rename onto its hard link": lambda: os.rename("second", "hard"),
    "rename onto itself": lambda: os.rename("file", "file"),
    "rename a directory": lambda: os.rename("a/sub", "b/sub"),
    "rename a directory in place": lambda: os.rename("a/sub", "a/new"),
    "rename a directory over": lambda: os.rename("b/full", "a/sub"),
    "rename a directory over a full one": lambda: os.rename("a/sub", "b/full"),
    "rename a symlink": lambda: os.rename("soft", "a/soft"),
    "noreplace there": lambda: renameat2("a/file", "b/file", 1),
    "exchange files": lambda: renameat2("a/file", "b/file", 2),
    "exchange file and directory": lambda: renameat2("a/file", "b/full", 2),
    "exchange in place": lambda: renameat2("file", "second", 2),
    "exchange directories": lambda: renameat2("a/sub", "b/full", 2),
    "chmod": lambda: os.chmod("file", 0o600),
    "chmod to the same": lambda: os.chmod("file", 0o644),
    "chmod a directory": lambda: os.chmod("a", 0o700),
    "chown": lambda: os.chown("file", 5, 6),
    "chown to the same": lambda: os.chown("file", 0, 0),
    "chown of nothing": lambda: os.chown("file", -1, -1),
    "chown a link": lambda: os.lchown("soft", 5, 6),
    "setxattr": lambda: os.setxattr("file", "user.y", b"1"),
    "setxattr again": lambda: os.setxattr("file", "user.x", b"1"),
    "setxattr refused": lambda: os.setxattr("file", "user.x", b"2", os.XATTR_CREATE),
    "setxattr of a directory": lambda: os.setxattr("a", "user.x", b"2"),
    "removexattr": lambda: os.removexattr("file", "user.x"),
    "removexattr missing": lambda: os.removexattr("file", "user.none"),
    "getxattr": lambda: os.getxattr("file", "user.x"),
    "listxattr": lambda: os.listxattr("file"),
    "fsync": lambda: with_fd("file", os.O_RDWR, os.fsync),
    "utime": lambda: os.utime("file"),
    "utime mtime only": lambda: utimensat("file", (0, UTIME_OMIT), (0, UTIME_NOW)),
    "utime atime only": lambda: utimensat("file", (0, UTIME_NOW), (0, UTIME_OMIT)),
    "utime nothing": lambda: utimensat("file", (0, UTIME_OMIT), (0, UTIME_OMIT)),
    "utime of a link": lambda: utimensat("soft", (0, UTIME_NOW), (0, UTIME_NOW), AT_SYMLINK_NOFOLLOW),
}


def effects_of_operations(s, prepare):
    for name, operation in OPERATIONS.items():
        with s.directory():
            make_tree()
            put("a/empty")
            prepare()
            s.effects(name, operation)


@script
def times_of_every_operation(s):
    effects_of_operations(s, lambda: None)


@script
def times_of_durable_things(s):
    """The same, where nothing is new: all of it is stored."""
    effects_of_operations(s, lambda: with_fd(".", os.O_RDONLY, os.fsync))


@script
def times_of_new_things(s):
    """What is made has times of now, all the same, and so has the directory."""
    for name, make in {"file": lambda: put("a/new"), "directory": lambda: os.mkdir("a/new"), "link": lambda: os.symlink("x", "a/new"),
                       "fifo": lambda: os.mkfifo("a/new")}.items():
        with s.directory():
            os.mkdir("a")
            time.sleep(3 * TICK)
            before = time.time_ns() - 20_000_000  # ext4's clock is coarse
            make()
            info, directory = os.lstat("a/new"), os.stat("a")
            s.note(name, {"now": all(before <= t <= time.time_ns() for t in (info.st_atime_ns, info.st_mtime_ns, info.st_ctime_ns)),
                          "directory": directory.st_mtime_ns == directory.st_ctime_ns and directory.st_mtime_ns >= before,
                          "directory was read": directory.st_atime_ns > before})


@script
def times_in_order(s):
    """A later operation never has an earlier time."""
    stamps = []
    for number in range(100):
        put(f"file{number}", b"x")
        stamps.append(os.stat(f"file{number}").st_mtime_ns)
        stamps.append(os.stat(".").st_mtime_ns)
    s.note("ascending", stamps[::2] == sorted(stamps[::2]) and stamps[1::2] == sorted(stamps[1::2]))
    put("one", b"x")
    time.sleep(TICK)
    put("two", b"x")
    s.note("make", os.stat("one").st_mtime_ns < os.stat("two").st_mtime_ns)


VALUES = ((0, 0), (1, 1), (0, 999_999_999), (1_600_000_000, 123_456_789), (2**31 - 1, 0), (2**31, 5), (2**32 + 7, 1), (2**33, 0), (-1, 0),
          (-(2**30), 999_999_999), (0, 1_000_000_000), (5, -1), (0, UTIME_NOW), (0, UTIME_OMIT))


@script
def utimens_values(s):
    """To the nanosecond, before 1970 and after 2038."""
    for atime, mtime in s.some(VALUES, VALUES):
        with s.directory():
            put("file")
            os.utime("file", ns=(10**18, 2 * 10**18))
            s.call(f"{atime} {mtime}", utimensat, "file", atime, mtime)
            info = os.stat("file")
            now = time.time_ns()
            s.note(f"{atime} {mtime} is",
                   [t if abs(t - now) > 10**11 else "now" for t in (info.st_atime_ns, info.st_mtime_ns, info.st_ctime_ns)])


@script
def utimens_by_whom(s):
    """Any writer may set them to now, only the owner to something else."""
    kinds = {"now": ((0, UTIME_NOW), (0, UTIME_NOW)), "values": ((5, 5), (6, 6)), "one now": ((0, UTIME_NOW), (0, UTIME_OMIT)),
             "now and value": ((0, UTIME_NOW), (7, 7)), "omit": ((0, UTIME_OMIT), (0, UTIME_OMIT)),
             "omit and value": ((0, UTIME_OMIT), (7, 7))}
    for mode, user, (name, (atime, mtime)) in itertools.product((0o600, 0o644, 0o666, 0o400, 0o444), USERS, kinds.items()):
        with s.directory():
            put("file")
            give("file", OWNER, mode)
            with as_user(user):
                s.call(f"{mode:o} {user.name} {name}", utimensat, "file", atime, mtime)


@script
def utimens_of_others(s):
    """Directories, links, through descriptors, flags."""
    os.mkdir("directory"), os.symlink("directory", "soft"), os.symlink("none", "dangling"), put("file")
    for path, flags in itertools.product(("directory", "soft", "dangling", "missing", "", "file/"), (0, AT_SYMLINK_NOFOLLOW, 0x10000)):
        s.call(f"{path} {flags}", utimensat, path, (100, 1), (200, 2), flags)
        s.note(f"{path} {flags} is", [os.lstat(p).st_mtime_ns < 10**12 for p in ("directory", "soft", "dangling", "file")])
    with opened("file", os.O_RDONLY) as fd:
        s.call("descriptor", os.utime, fd, ns=(1, 2))
        s.note("descriptor is", (os.fstat(fd).st_atime_ns, os.fstat(fd).st_mtime_ns))
    with opened("file", os.O_WRONLY) as fd:
        os.write(fd, b"draft")
        s.call("of a draft", os.utime, fd, ns=(3, 4))
        s.note("of a draft is", (os.fstat(fd).st_atime_ns, os.fstat(fd).st_mtime_ns))
    s.note("when closed", (os.stat("file").st_atime_ns, os.stat("file").st_mtime_ns))
    with opened("file", os.O_WRONLY) as fd:
        os.utime(fd, ns=(3, 4))
        os.write(fd, b"later")
        s.note("written after", os.fstat(fd).st_mtime_ns > 10**18)


def atime_moved(path, call):
    before = os.lstat(path).st_atime_ns
    time.sleep(TICK)
    call()
    return os.lstat(path).st_atime_ns != before


DAY = 24 * 3600 * 10**9


@script
def relatime(s):
    """Reading moves atime when it is not newer than mtime or ctime, or a day old."""
    os.mkdir("directory"), put("directory/file", b"text"), os.symlink("directory", "soft")
    reads = {"directory/file": lambda: get("directory/file"), "directory": lambda: os.listdir("directory"),
             "soft": lambda: os.readlink("soft")}
    for path, read in reads.items():
        now = time.time_ns()
        s.note(f"{path} first", atime_moved(path, read))
        s.note(f"{path} second", atime_moved(path, read))
        ages = {"younger": (now - 100, now - 200), "as old": (now - 200, now - 200), "older": (now - 300, now - 200),
                "a day": (now - DAY - 10**9, now - 2 * DAY), "nearly a day": (now - DAY + 10**11, now - 2 * DAY),
                "of the future": (now + 10**12, now)}
        for name, times in ages.items():
            os.utime(path, ns=times, follow_symlinks=False)
            s.note(f"{path} {name} with its ctime", atime_moved(path, read))
            s.note(f"{path} {name} again", atime_moved(path, read))
    get("directory/file")
    time.sleep(TICK)
    with opened("directory/file", os.O_WRONLY) as fd:
        os.write(fd, b"more")
    s.note("written, then read", atime_moved("directory/file", reads["directory/file"]))
    with opened("directory/file", os.O_RDWR) as fd:
        time.sleep(TICK)
        os.write(fd, b"draft")
        s.note("a draft", atime_moved("directory/file", lambda: os.pread(fd, 4, 0)))
    put("directory/empty")
    with as_user(OTHER):
        s.note("by another user", atime_moved("directory/file", reads["directory/file"]))
    s.note("the directory after making", atime_moved("directory", reads["directory"]))


@script
def times_stay(s):
    """Closing and syncing change no time."""
    for name, use in {"close": lambda fd: os.close(os.dup(fd)), "fsync": os.fsync, "chmod": lambda fd: os.fchmod(fd, 0o600)}.items():
        with opened("file", os.O_RDWR | os.O_CREAT) as fd:
            os.write(fd, name.encode())
            written = os.fstat(fd).st_mtime_ns
            time.sleep(TICK)
            use(fd)
            s.note(f"{name} mtime", os.fstat(fd).st_mtime_ns == written)
            before = os.fstat(fd)
            time.sleep(TICK)
        after = os.stat("file")
        s.note(f"{name} then closed", (after.st_mtime_ns == before.st_mtime_ns, after.st_ctime_ns == before.st_ctime_ns))
        os.sync()
        s.note(f"{name} then synced", os.stat("file").st_mtime_ns == before.st_mtime_ns)


@script
def times_of_copies(s):
    """A linked descriptor keeps its times."""
    put("file", b"x")
    os.utime("file", ns=(10**18, 10**18))
    with opened("file", os.O_RDONLY) as fd:
        linkat(-100, f"/proc/self/fd/{fd}", "second", 0x400)
    info = os.stat("second")
    s.note("second", (info.st_mtime_ns, info.st_atime_ns, info.st_nlink))


@script
def atime_of_what_is_open(s):
    """What was opened, and read, before atime was set back, so that a read moves it again."""
    put("file", b"content" * 10_000)
    put("target")
    reads = {
        "pread": lambda fd: os.pread(fd, 100, 0),
        "pread at the end": lambda fd: os.pread(fd, 100, 70_000),
        "sendfile": lambda fd: with_fd("target", os.O_WRONLY, lambda to: os.sendfile(to, fd, 0, 100)),
        "map": read_map,
        "open again": lambda fd: get("file"),
    }
    for name, read in reads.items():
        with opened("file", os.O_RDONLY) as fd:
            os.pread(fd, 70_000, 0)
            os.utime("file", ns=(10**18, time.time_ns()))
            read(fd)
            s.note(name, "moved" if os.stat("file").st_atime_ns != 10**18 else "not moved")


@script
def times_of_a_fifo(s):
    os.mkfifo("fifo")
    with opened("fifo", os.O_RDWR) as fd:
        for name, use in {"write": lambda: os.write(fd, b"x"), "read": lambda: os.read(fd, 1)}.items():
            before = os.stat("fifo")
            time.sleep(TICK)
            use()
            after = os.stat("fifo")
            s.note(name, {"atime": after.st_atime_ns != before.st_atime_ns, "mtime": after.st_mtime_ns != before.st_mtime_ns})


@script
def times_of_a_map(s):
    """What is stored through a map moves mtime: when it is stored, or when it is written, and that is after a time that was set between."""
    put("file", b"content" * 1000)
    for name, between in {"nothing between": lambda fd: None, "a time set between": lambda fd: os.utime(fd, (1, 1))}.items():
        with opened("file") as fd, mmap.mmap(fd, 0) as area:
            before = os.fstat(fd).st_mtime_ns
            time.sleep(TICK)
            area[0:3] = b"new"
            between(fd)
            area.flush()
            now = os.fstat(fd).st_mtime_ns
            s.note(name, "as set" if now == 10**9 else "moved" if now > before else "not moved")
