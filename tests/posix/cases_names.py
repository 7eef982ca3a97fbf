# SPDX-License-Identifier: Apache-2.0
"""Names: making, linking, removing, renaming, with every wrong use."""
import itertools
import os
import socket
import stat

from script import (AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, OTHER, OWNER, USERS, as_user, fchmodat2,
                    get, give, linkat, opened, put, renameat2, script, unlinkat)

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
KINDS = ("missing", "file", "other", "empty", "full", "soft", "to_directory", "dangling", "loop", "fifo", "socket", "hard", "file/x",
         "missing/x", "loop/x", "dangling/x", "full/inner", "full/new", "full/sub", "full/sub/new", "empty/new", "to_directory/new",
         ".", "..", "full/.", "full/..", "file/", "empty/", "full/", "to_directory/", "missing/", "", "n" * 256)


def make_kinds():
    put("file", b"file")
    put("other", b"other")
    os.link("file", "hard")
    os.mkdir("empty")
    os.mkdir("full")
    os.mkdir("full/sub")
    put("full/inner", b"inner")
    os.symlink("file", "soft")
    os.symlink("empty", "to_directory")
    os.symlink("nowhere", "dangling")
    os.symlink("loop", "loop")
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket")


def shape(top="."):
    """What has which name: enough to tell what a rename did."""
    found = {}
    for directory, names, files in os.walk(top):
        for name in sorted(names + files):
            path = os.path.join(directory, name)
            info = os.lstat(path)
            kind = stat.S_IFMT(info.st_mode)
            what = os.readlink(path) if stat.S_ISLNK(kind) else get(path) if stat.S_ISREG(kind) else None
            found[path] = (kind, info.st_nlink, what)
    return found


class FreshKinds:
    """The kinds, made anew only after a change."""

    def __init__(self, s):
        self.s, self.stack = s, None
        self.fresh()

    def fresh(self):
        self.close()
        self.stack = self.s.directory()
        self.stack.__enter__()
        os.mkdir("kinds")
        os.chdir("kinds")
        make_kinds()
        self.before = shape()

    def close(self):
        if self.stack:
            self.stack.__exit__(None, None, None)

    def call(self, label, function, *args):
        outcome = self.s.try_(function, *args)
        after = shape()
        change = None
        if after != self.before:
            change = {path: (self.before.get(path), after.get(path)) for path in self.before.keys() | after.keys()
                      if self.before.get(path) != after.get(path)}
            self.fresh()
        self.s.note(label, {"outcome": outcome, "change": change})


def every_pair(s, function):
    kinds = FreshKinds(s)
    for source, target in s.some(KINDS, KINDS):
        kinds.call(f"{source[:20]!r} {target[:20]!r}", function, source, target)
    kinds.close()


@script
def rename_every_pair(s):
    every_pair(s, os.rename)


@script
def rename_noreplace_every_pair(s):
    every_pair(s, lambda p, q: renameat2(p, q, NOREPLACE))


@script
def rename_exchange_every_pair(s):
    every_pair(s, lambda p, q: renameat2(p, q, EXCHANGE))


@script
def link_every_pair(s):
    every_pair(s, lambda p, q: linkat(AT_FDCWD, p, q, 0))


@script
def link_follow_every_kind(s):
    kinds = FreshKinds(s)
    for source in KINDS:
        kinds.call(f"follow {source[:20]!r}", linkat, AT_FDCWD, source, "new", AT_SYMLINK_FOLLOW)
        kinds.call(f"empty path {source[:20]!r}", linkat, AT_FDCWD, source, "new", AT_EMPTY_PATH)
        kinds.call(f"unknown flag {source[:20]!r}", linkat, AT_FDCWD, source, "new", 0x10000)
    kinds.close()


@script
def link_from_descriptor(s):
    put("file", b"file")
    with opened("file") as fd:
        s.call("named", linkat, fd, "", "second", AT_EMPTY_PATH)
        s.call("by /proc", linkat, AT_FDCWD, f"/proc/self/fd/{fd}", "third", AT_SYMLINK_FOLLOW)
        os.unlink("file"), os.unlink("second"), os.unlink("third")
        s.call("without a name", linkat, fd, "", "fourth", AT_EMPTY_PATH)
        s.call("without a name, by /proc", linkat, AT_FDCWD, f"/proc/self/fd/{fd}", "fifth", AT_SYMLINK_FOLLOW)
    s.tree("tree")


@script
def one_name_every_kind(s):
    """Calls that take one path."""
    kinds = FreshKinds(s)
    calls = {
        "mkdir": os.mkdir, "rmdir": os.rmdir, "unlink": os.unlink, "mkfifo": os.mkfifo, "symlink": lambda p: os.symlink("target", p),
        "mknod file": lambda p: os.mknod(p, stat.S_IFREG | 0o600), "mknod socket": lambda p: os.mknod(p, stat.S_IFSOCK | 0o600),
        "mknod directory": lambda p: os.mknod(p, stat.S_IFDIR | 0o600),
        "mknod char": lambda p: os.mknod(p, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
        "mknod block": lambda p: os.mknod(p, stat.S_IFBLK | 0o600, os.makedev(300, 70000)),
        "readlink": os.readlink, "unlinkat directory": lambda p: unlinkat(p, AT_REMOVEDIR), "unlinkat flag": lambda p: unlinkat(p, 1),
        "stat": lambda p: oct(os.stat(p).st_mode), "lstat": lambda p: oct(os.lstat(p).st_mode), "truncate": lambda p: os.truncate(p, 2),
        "truncate up": lambda p: os.truncate(p, 20), "truncate below 0": lambda p: os.truncate(p, -1),
        "chmod": lambda p: os.chmod(p, 0o600), "chown": lambda p: os.chown(p, 5, 6), "lchown": lambda p: os.lchown(p, 5, 6),
        "listdir": lambda p: sorted(os.listdir(p)), "chdir": lambda p: os.chdir(p) or os.chdir(own_path()),
        "utime": os.utime, "access": lambda p: os.access(p, os.R_OK), "statvfs": lambda p: os.statvfs(p).f_namemax,
        "getxattr": lambda p: os.getxattr(p, "user.none"), "setxattr": lambda p: os.setxattr(p, "user.x", b"1"),
        "lsetxattr": lambda p: os.setxattr(p, "user.x", b"1", follow_symlinks=False), "listxattr": os.listxattr,
        "removexattr": lambda p: os.removexattr(p, "user.none"),
    }
    here = [os.getcwd()]

    def own_path():
        return here[0]

    for (name, call), path in s.some(calls.items(), KINDS):
        here[0] = os.getcwd()
        kinds.call(f"{name} {path[:20]!r}", call, path)
    kinds.close()


@script
def rename_into_itself(s):
    """A directory below itself; over one that is not empty; onto itself by another name."""
    os.makedirs("a/b/c")
    os.makedirs("x/y")
    for source, target in (("a", "a/b"), ("a", "a/new"), ("a", "a/b/c/new"), ("a/b/c", "a"), ("a/b", "a"), ("a", "x"), ("x/y", "a"),
                           ("a", "a"), ("a/.", "x/new"), ("a", "a/../a"), ("a/b/c", "a/b")):
        for flags in (0, NOREPLACE, EXCHANGE, NOREPLACE | EXCHANGE, WHITEOUT | EXCHANGE, 0x80):
            s.call(f"{source} {target} {flags}", renameat2, source, target, flags)
            s.note(f"{source} {target} {flags} tree", shape())


@script
def rename_keeps_inodes(s):
    """P6: descriptors, links and content go with the inode."""
    put("a", b"content of a")
    put("b", b"content of b")
    os.link("b", "b2")
    with opened("a") as one, opened("b") as two:
        os.rename("a", "b")
        s.note("replaced", (os.fstat(one).st_nlink, os.fstat(two).st_nlink, os.pread(two, 99, 0), get("b"), get("b2")))
        os.pwrite(two, b"more", 12)
        os.pwrite(one, b"!", 12)
        s.note("written", (get("b"), get("b2")))
        renameat2("b", "b2", EXCHANGE)
        s.note("exchanged", (get("b"), get("b2"), os.path.samestat(os.fstat(one), os.stat("b2"))))
    put("c", b"c")
    with opened("c") as fd:
        os.rename("b", "c")
        os.pwrite(fd, b"lives", 0)
        s.note("without a name", (os.pread(fd, 9, 0), os.fstat(fd).st_nlink, get("c")))
    with opened("c", os.O_RDONLY) as reader, opened("c.tmp", os.O_RDWR | os.O_CREAT) as fd:  # as safetensors does
        os.ftruncate(fd, 10_000)
        os.pwrite(fd, b"new", 0)
        os.rename("c.tmp", "c")
        os.pwrite(fd, b"later", 5000)
        s.note("renamed while open", (get("c"), os.read(reader, 9)))
    os.makedirs("one/deep")
    with opened("one/deep/open", os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, b"one")
        os.rename("c", "one/deep/moved")
        os.rename("one", "two")
        os.write(fd, b"two")
        s.note("with its directory", (get("two/deep/open"), get("two/deep/moved")))
        s.note("the same inode", os.path.samestat(os.fstat(fd), os.stat("two/deep/open")))
    os.rename("two/deep/moved", "c")
    os.mkdir("dir"), os.mkdir("over")
    with opened("over", os.O_RDONLY) as fd:
        os.rename("dir", "over")
        s.note("directory without a name", (os.fstat(fd).st_nlink, os.listdir(fd)))
        s.call("make in it", lambda: os.mkdir("new", dir_fd=fd))
        s.call("open in it", lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        s.call("link into it", lambda: os.link("c", "new", dst_dir_fd=fd))
        s.call("rename into it", lambda: os.rename("c", "new", dst_dir_fd=fd))
        s.call("symlink in it", lambda: os.symlink("c", "new", dir_fd=fd))
    s.tree("tree")


@script
def removed_directory(s):
    """A working directory that is gone."""
    os.mkdir("gone")
    with opened(".", os.O_RDONLY) as above, opened("gone", os.O_RDONLY) as fd:
        os.fchdir(fd)
        os.rmdir("../gone")
        for name, call in {"list": lambda: os.listdir("."), "open": lambda: os.open("x", os.O_CREAT | os.O_WRONLY),
                           "mkdir": lambda: os.mkdir("x"),
                           "stat": lambda: os.stat(".").st_nlink, "up": lambda: os.stat("..").st_nlink > 0,
                           "chmod": lambda: os.chmod(".", 0o700),
                           "getcwd": os.getcwd, "rename out": lambda: os.rename("x", "../x"), "utime": lambda: os.utime(".")}.items():
            s.call(name, call)
        os.fchdir(above)
    s.tree("tree")


@script
def removed_but_known(s):
    """What the kernel still knows, though nobody has it open and it has no name."""
    os.mkdir("gone"), os.mkfifo("fifo"), put("file", b"text"), os.mkdir("looked"), os.mkdir("over"), os.mkdir("from")
    with opened(".", os.O_RDONLY) as above, opened("fifo", os.O_RDWR | os.O_NONBLOCK) as fifo, opened("file", os.O_PATH) as path, \
            opened("looked", os.O_PATH) as looked, opened("over", os.O_PATH) as over:
        os.unlink("fifo"), os.unlink("file"), os.rmdir("looked"), os.rename("from", "over")
        for name, fd in {"fifo": fifo, "file": path, "directory": looked, "replaced": over}.items():
            s.call(name, lambda f=fd: (oct(os.fstat(f).st_mode), os.fstat(f).st_nlink))
        for name, call in {"chmod": lambda at: os.chmod(at, 0o600), "times": lambda at: os.utime(at, (1, 1)),
                           "group": lambda at: os.chown(at, -1, os.getegid()),
                           "truncate": lambda at: os.truncate(at, 1), "xattr": lambda at: os.setxattr(at, "user.x", b"1")}.items():
            s.call(f"{name} of the file", call, f"/proc/self/fd/{path}")
        for time in ("again", "once more"):
            with opened(f"/proc/self/fd/{path}", os.O_RDWR) as again:
                s.call(f"read {time}", os.pread, again, 10, 0)
                s.call(f"write {time}", os.pwrite, again, b"more", 1)
            s.call(f"shape {time}",
                   lambda: (os.stat(f"/proc/self/fd/{path}").st_size, oct(os.fstat(path).st_mode), os.fstat(path).st_nlink))
        s.call("xattr again", os.getxattr, f"/proc/self/fd/{path}", "user.x")
        s.call("name again", linkat, AT_FDCWD, f"/proc/self/fd/{path}", "named", AT_SYMLINK_FOLLOW)
        s.call("directory again",
               lambda: (os.chmod(f"/proc/self/fd/{looked}", 0o700), os.setxattr(f"/proc/self/fd/{looked}", "user.x", b"2"),
                        os.listxattr(f"/proc/self/fd/{looked}")))
        os.write(fifo, b"through")
        s.call("through", os.read, fifo, 10)
        os.chdir("gone")
        os.rmdir("../gone")
        s.call("stat", lambda: (oct(os.stat(".").st_mode), os.stat(".").st_nlink))
        s.call("list", lambda: sorted(os.listdir(".")))
        s.call("open", lambda: os.close(os.open(".", os.O_RDONLY)))
        for name, call in {"create": lambda: os.open("x", os.O_CREAT | os.O_WRONLY), "mkdir": lambda: os.mkdir("x"),
                           "look": lambda: os.stat("x"),
                           "rename": lambda: os.rename("x", "y"), "link": lambda: os.symlink("x", "y"), "getcwd": os.getcwd}.items():
            s.call(name, call)
        os.fchdir(above)
    s.tree("tree")


@script
def rename_whiteout(s):
    put("a", b"a"), put("b", b"b")
    s.call("new", renameat2, "a", "c", WHITEOUT)
    s.call("over", renameat2, "b", "c", WHITEOUT)
    s.call("no replace", renameat2, "b", "d", WHITEOUT | NOREPLACE)
    s.call("of a whiteout", renameat2, "d", "e", WHITEOUT)
    s.tree("whiteouts")
    s.call("open", lambda: os.open("a", os.O_RDONLY))
    s.call("remove", os.unlink, "a")
    s.call("replace", os.rename, "c", "b")
    os.mkdir("setgid"), os.mkdir("setgid/from"), os.mkdir("setgid/over"), os.mkdir("setgid/full")
    put("setgid/full/x"), put("setgid/mine", b"mine")
    give("setgid", OTHER, 0o2777)
    with opened("setgid/mine", os.O_RDWR) as fd:
        s.effects("directory", lambda: renameat2("setgid/from", "setgid/over", WHITEOUT))
        os.write(fd, b"more")
        s.effects("open file", lambda: renameat2("setgid/mine", "elsewhere", WHITEOUT))
        os.write(fd, b"less")
        s.call("full", renameat2, "setgid/over", "setgid/full", WHITEOUT)
        s.call("exchange", renameat2, "setgid/over", "setgid/full", WHITEOUT | EXCHANGE)
        with as_user(OWNER):
            s.call("by whom", renameat2, "setgid/over", "setgid/moved", WHITEOUT)
    s.call("to itself", renameat2, "elsewhere", "elsewhere", WHITEOUT)
    os.link("elsewhere", "second")
    s.call("to another name of it", renameat2, "elsewhere", "second", WHITEOUT)
    s.call("missing", renameat2, "none", "second", WHITEOUT)
    s.tree("tree")


@script
def whiteout_of_every_pair(s):
    every_pair(s, lambda source, target: renameat2(source, target, WHITEOUT))


@script
def sticky_directory(s):
    """Who may remove and rename what in a directory with the sticky bit."""
    rows = s.some((0o1777, 0o777, 0o1770), (OWNER, OTHER), (OWNER, OTHER), USERS, ("unlink", "rename", "over", "rmdir", "exchange"))
    for mode, directory_owner, file_owner, user, what in rows:
        with s.directory():
            os.mkdir("at")
            put("at/file", b"x"), put("at/mine", b"mine"), os.mkdir("at/sub")
            for path, who in (("at/file", file_owner), ("at/sub", file_owner), ("at/mine", user), ("at", directory_owner)):
                os.chown(path, who.uid, OWNER.gid)
            os.chmod("at", mode)
            calls = {"unlink": lambda: os.unlink("at/file"), "rename": lambda: os.rename("at/file", "at/new"),
                     "over": lambda: os.rename("at/mine", "at/file"), "rmdir": lambda: os.rmdir("at/sub"),
                     "exchange": lambda: renameat2("at/mine", "at/file", EXCHANGE)}
            with as_user(user):
                s.call(f"{mode:o} {directory_owner.name} {file_owner.name} {user.name} {what}", calls[what])
            s.note(f"{mode:o} {directory_owner.name} {file_owner.name} {user.name} {what} left", shape())


@script
def permissions_of_directories(s):
    """Making, removing, renaming by the mode of one directory and of two."""
    calls = {
        "mkdir": lambda: os.mkdir("a/new"), "symlink": lambda: os.symlink("x", "a/new"), "link": lambda: os.link("a/file", "b/new"),
        "unlink": lambda: os.unlink("a/file"), "rmdir": lambda: os.rmdir("a/sub"), "rename": lambda: os.rename("a/file", "b/file"),
        "rename directory": lambda: os.rename("a/sub", "b/sub"), "mkfifo": lambda: os.mkfifo("a/new"),
        "mknod": lambda: os.mknod("a/new", stat.S_IFCHR | 0o600, os.makedev(1, 3)), "stat": lambda: oct(os.stat("a/file").st_mode),
        "list": lambda: sorted(os.listdir("a")), "readlink": lambda: os.readlink("a/soft"), "deep": lambda: os.stat("a/sub/.").st_nlink,
    }
    for mode, user, (name, call) in s.some((0o777, 0o755, 0o750, 0o711, 0o700, 0o733, 0o500, 0o300, 0o100, 0), USERS, calls.items()):
        with s.directory():
            os.mkdir("a"), os.mkdir("b"), os.mkdir("a/sub")
            put("a/file", b"x"), os.symlink("to", "a/soft")
            for path in ("a", "a/sub", "a/file"):
                os.chown(path, OWNER.uid, OWNER.gid)
            os.chmod("b", 0o777), os.chmod("a", mode)
            with as_user(user):
                s.call(f"{mode:o} {user.name} {name}", call)
            os.chmod("a", 0o777)
            s.note(f"{mode:o} {user.name} {name} left", shape())


@script
def rename_directory_of_another(s):
    """'..' changes with the parent, so the directory itself must be writable."""
    for mode, same_parent, user in itertools.product((0o755, 0o777), (True, False), USERS):
        with s.directory():
            os.mkdir("a"), os.mkdir("b"), os.mkdir("a/sub")
            os.chmod("a", 0o777), os.chmod("b", 0o777), os.chmod("a/sub", mode)
            with as_user(user):
                s.call(f"{mode:o} {same_parent} {user.name}", os.rename, "a/sub", "a/new" if same_parent else "b/new")


@script
def links_between_users(s):
    """Who may link what (fs.protected_hardlinks), and follow which link in a sticky directory."""
    for mode, owner, user in itertools.product((0o644, 0o666, 0o600, 0o4755), (OWNER, OTHER), USERS):
        with s.directory():
            os.chmod(".", 0o777)
            put("file", b"x", mode)
            give("file", owner, mode)
            with as_user(user):
                s.call(f"{mode:o} {owner.name} {user.name}", os.link, "file", "new")
            s.tree(f"{mode:o} {owner.name} {user.name} tree")


@script
def symlink_targets(s):
    for length in (1, 59, 60, 100, 4000, 4094, 4095):
        s.call(f"make {length}", os.symlink, "t" * length, f"link{length}")
        s.call(f"read {length}", lambda n=length: len(os.readlink(f"link{n}")))
        s.call(f"size {length}", lambda n=length: os.lstat(f"link{n}").st_size)
        s.call(f"follow {length}", lambda n=length: os.stat(f"link{n}"))
    s.call("4096", os.symlink, "t" * 4096, "link4096")
    s.call("empty", os.symlink, "", "linkempty")
    s.call("exists", os.symlink, "x", "link1")
    for depth in range(45):
        os.symlink(f"chain{depth + 1}", f"chain{depth}")
    put("chain45", b"end")
    s.call("40 links", lambda: get("chain5"))
    s.call("41 links", lambda: get("chain4"))
    os.symlink("../" * 10 + "etc/none", "upwards")
    s.call("bytes", os.symlink, b"\xff\n", b"bytes")
    s.call("read bytes", os.readlink, b"bytes")
    s.call("chmod link", fchmodat2, "link1", 0o600, AT_SYMLINK_NOFOLLOW)
    s.call("chown link", os.lchown, "link1", 7, 8)
    s.tree("tree")


@script
def link_limit(s):
    """EMLINK: all 65,000 links with --full, else some."""
    put("file")
    for number in range(64_999 if s.full else 1_000):
        os.link("file", f"link{number}")
    s.note("most", os.stat("file").st_nlink)
    s.call("one more", os.link, "file", "more")
    os.unlink("link0")
    s.call("in its place", os.link, "file", "again")


@script
def unlink_while_open(s):
    put("file", b"a" * 100_000)
    with opened("file") as fd:
        os.unlink("file")
        s.note("nlink", os.fstat(fd).st_nlink)
        s.call("write", os.pwrite, fd, b"more", 100_000)
        s.call("truncate", os.ftruncate, fd, 50)
        s.call("read", os.pread, fd, 99, 40)
        s.call("chmod", os.fchmod, fd, 0o600)
        s.call("chown", os.fchown, fd, 3, 4)
        s.call("xattr", os.setxattr, fd, "user.x", b"1")
        s.call("get xattr", os.getxattr, fd, "user.x")
        s.call("utime", os.utime, fd, (1, 2))
        s.call("mode", lambda: (oct(os.fstat(fd).st_mode), os.fstat(fd).st_uid, os.fstat(fd).st_size))
        s.call("sync", os.fsync, fd)
        s.call("by /proc", lambda: get(f"/proc/self/fd/{fd}"))
        put("file", b"another")
        s.note("another", (get("file"), os.fstat(fd).st_size))
    s.tree("tree")


@script
def devices(s):
    """Devices have names and numbers here; they are not opened (nodev)."""
    for name, kind, numbers in (("null", stat.S_IFCHR, (1, 3)), ("disk", stat.S_IFBLK, (7, 0)), ("large", stat.S_IFCHR, (4095, 1048575))):
        s.call(f"make {name}", os.mknod, name, kind | 0o666, os.makedev(*numbers))
        s.call(f"open {name}", os.open, name, os.O_RDWR)
        with as_user(OTHER):
            s.call(f"as a user {name}", os.mknod, name + "2", kind | 0o666, os.makedev(*numbers))
    s.call("regular", os.mknod, "regular", stat.S_IFREG | 0o640)
    s.call("without a type", os.mknod, "plain", 0o640)
    s.call("symlink", os.mknod, "soft", stat.S_IFLNK | 0o640)
    s.tree("tree")


@script
def fifos_and_sockets(s):
    os.mkfifo("fifo", 0o600)
    s.call("nobody reads", os.open, "fifo", os.O_WRONLY | os.O_NONBLOCK)
    with opened("fifo", os.O_RDONLY | os.O_NONBLOCK) as reader, opened("fifo", os.O_WRONLY) as writer:
        os.write(writer, b"through")
        s.note("through", os.read(reader, 99))
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("socket")
        server.listen()
        client.connect("socket")
        s.call("bind again", lambda: socket.socket(socket.AF_UNIX).bind("socket"))
        s.call("open", os.open, "socket", os.O_RDWR)
    s.call("nobody listens", lambda: socket.socket(socket.AF_UNIX).connect("socket"))
    s.tree("tree")
