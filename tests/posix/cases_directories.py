# SPDX-License-Identifier: Apache-2.0
"""Directories: listing while entries come and go, positions, lseek, deep trees, link counts."""
import ctypes
import os
import struct

from script import LIBC, checked, opened, put, renameat2, script


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16), ("type", ctypes.c_uint8),
                ("name", ctypes.c_char * 256)]


LIBC.opendir.restype = ctypes.c_void_p
LIBC.readdir.restype = ctypes.POINTER(Dirent)
LIBC.telldir.restype = ctypes.c_long


class Stream:
    """A directory stream of the C library."""

    def __init__(self, path):
        self.dir = ctypes.c_void_p(LIBC.opendir(os.fsencode(path)))

    def next(self):
        entry = LIBC.readdir(self.dir)
        return entry.contents.name.decode() if entry else None

    def rest(self):
        return list(iter(self.next, None))

    def tell(self):
        return LIBC.telldir(self.dir)

    def seek(self, at):
        LIBC.seekdir(self.dir, ctypes.c_long(at))

    def rewind(self):
        LIBC.rewinddir(self.dir)

    def close(self):
        LIBC.closedir(self.dir)


def listed(fd, size):
    """(name, the position after it) of what is listed from here on, through a buffer of this size."""
    buffer = ctypes.create_string_buffer(size)
    while length := checked(LIBC.syscall(217, fd, buffer, size)):
        at = 0
        while at < length:
            _, after, step = struct.unpack_from("=QqH", buffer, at)
            yield buffer.raw[at + 19 : at + step].split(b"\0")[0].decode(), after
            at += step


def fill(count, form="{:04}"):
    for number in range(count):
        os.close(os.open("at/" + form.format(number), os.O_CREAT | os.O_WRONLY))


@script
def directory_positions(s):
    """telldir, seekdir, rewinddir: the same entries come again."""
    os.mkdir("at")
    fill(1500)
    stream = Stream("at")
    order, places = [], []
    while True:
        places.append(stream.tell())
        name = stream.next()
        if name is None:
            break
        order.append(name)
    s.note("all, once", sorted(order))
    same = []
    for index in (0, 1, 2, 700, 1400, len(order) - 1, len(order)):
        stream.seek(places[index])
        same.append(stream.rest() == order[index:])
    s.note("from each position", same)
    stream.rewind()
    s.note("again", stream.rest() == order)
    stream.close()


@script
def directory_while_it_changes(s):
    """What stays is listed once, whatever comes and goes."""
    os.mkdir("at")
    fill(600, "stay-{:04}")
    fill(600, "go-{:04}")
    stream, seen = Stream("at"), []
    for turn in range(300):
        seen.extend(filter(None, (stream.next(), stream.next())))
        os.unlink(f"at/go-{turn:04}")
        put(f"at/new-{turn:04}")
        os.rename(f"at/go-{turn + 300:04}", f"at/moved-{turn:04}")
    seen += stream.rest()
    stay = sorted(name for name in seen if name.startswith("stay"))
    s.note("what stays", stay)
    s.note("twice", len([name for name in set(seen) if seen.count(name) > 1]))
    stream.rewind()
    s.note("after rewinding", sorted(stream.rest()))
    stream.close()


class Churn:
    """A directory of which entries go, move, and come; `stay` has those that nothing happened to."""

    def __init__(self, rng, names):
        self.rng, self.stay, self.number = rng, set(names), 0

    def touch(self, name):
        """Something happens to an entry, once; another comes."""
        if name in (".", "..") or name not in self.stay:
            return
        self.stay.remove(name)
        self.number += 1
        kind = self.rng.choice(("remove", "move", "make again", "move over"))
        if kind in ("move", "move over"):
            os.rename(f"at/{name}", f"at/moved-{self.number if kind == 'move' else 0:04}")
        else:
            os.unlink(f"at/{name}")
        if kind == "make again":
            put(f"at/{name}")
        put(f"at/new-{self.number:04}")

    def read_on(self, fd, size, while_reading):
        names = []
        for name, _ in listed(fd, size):
            names.append(name)
            if while_reading and len(names) % 50 == 0:
                self.touch(self.rng.choice(sorted(self.stay)))
        return names


@script
def directory_positions_while_it_changes(s):
    """A remembered position holds, whatever comes and goes, just there too: what stayed and lies behind it comes once, and nothing from
    before it."""
    os.mkdir("at")
    fill(3000)
    with opened("at", os.O_RDONLY) as fd, opened("at", os.O_RDONLY) as other:
        order = list(listed(fd, 300))
        names = [name for name, _ in order]
        s.note("all, once", sorted(names))
        places = s.rng.sample(range(1, len(order)), 15)
        churn = Churn(s.rng, names)
        for turn in ("one change around each", "many changes", "changes between the reads"):
            for place in places:
                churn.touch(names[place - s.rng.randrange(2)])  # the entry before it, or that after it
            for name in s.rng.sample(names, 0 if turn == "one change around each" else 300):
                churn.touch(name)
            for number, place in enumerate(s.rng.sample(places, len(places))):
                reader = s.rng.choice((fd, fd, other))
                os.lseek(reader, order[place - 1][1], os.SEEK_SET)
                rest = churn.read_on(reader, (300, 4096, 100_000)[number % 3], turn == "changes between the reads")
                found = [name for name in rest if name in churn.stay]
                s.note(f"{turn} {number} missing", sorted(churn.stay.intersection(names[place:]).difference(found)))
                s.note(f"{turn} {number} again", sorted(churn.stay.intersection(names[:place]).intersection(found)))
                s.note(f"{turn} {number} twice", len(found) - len(set(found)))
        s.note("some stayed", len(churn.stay) > 1000)


@script
def directory_removed_while_listed(s):
    """rm -r: each entry is removed as it is listed."""
    os.mkdir("at")
    fill(3000)
    stream = Stream("at")
    count = 0
    for name in iter(stream.next, None):
        if name not in (".", ".."):
            os.unlink("at/" + name)
            count += 1
    stream.close()
    s.note("removed", count)
    s.call("empty", os.rmdir, "at")


@script
def directory_entries(s):
    """Types and numbers as stat tells; '.' and '..'."""
    os.mkdir("at"), os.mkdir("at/sub"), os.mkfifo("at/fifo"), os.symlink("x", "at/soft"), put("at/file")
    stream = Stream("at")
    found = {}
    while entry := LIBC.readdir(stream.dir):
        name, info = entry.contents.name.decode(), os.lstat("at/" + entry.contents.name.decode())
        found[name] = (entry.contents.type, entry.contents.ino == info.st_ino)
    stream.close()
    s.note("entries", found)


@script
def directory_seeks(s):
    os.mkdir("at")
    fill(20)
    with opened("at", os.O_RDONLY) as fd:
        first = sorted(os.listdir(fd))
        s.call("to the start", os.lseek, fd, 0, os.SEEK_SET)
        s.note("list", first == sorted(os.listdir(fd)))
        s.call("below 0", os.lseek, fd, -1, os.SEEK_SET)
        s.call("here", lambda: os.lseek(fd, 0, os.SEEK_CUR) >= 0)
        s.call("from the end", lambda: os.lseek(fd, 0, os.SEEK_END) >= 0)
        s.call("data", os.lseek, fd, 0, os.SEEK_DATA)
        os.lseek(fd, 0, os.SEEK_SET)
        s.call("small buffer", lambda: checked(LIBC.syscall(217, fd, ctypes.create_string_buffer(4), 4)))
        with opened("at/0000", os.O_RDONLY) as file:
            s.call("of a file", lambda: checked(LIBC.syscall(217, file, ctypes.create_string_buffer(4096), 4096)))


@script
def directory_link_counts(s):
    os.mkdir("a"), os.mkdir("b")
    steps = {"mkdir": lambda: os.mkdir("a/x"), "another": lambda: os.mkdir("a/y"), "a file": lambda: put("a/file"),
             "symlink": lambda: os.symlink("x", "a/l"),
             "move": lambda: os.rename("a/x", "b/x"), "move over": lambda: os.rename("b/x", "a/y"), "rmdir": lambda: os.rmdir("a/y")}
    for name, step in steps.items():
        step()
        s.note(name, (os.stat("a").st_nlink, os.stat("b").st_nlink, os.stat(".").st_nlink))


@script
def directory_above(s):
    """'..' is where a directory is now."""
    os.makedirs("a/sub/deep"), os.mkdir("b")
    with opened("a/sub", os.O_RDONLY) as fd:
        os.rename("a/sub", "b/sub")
        s.note("by name", os.path.samestat(os.stat("b/sub/.."), os.stat("b")))
        s.note("by descriptor", os.path.samestat(os.stat("..", dir_fd=fd), os.stat("b")))
        s.note("from below", os.path.samestat(os.stat("b/sub/deep/../.."), os.stat("b")))
        renameat2("b/sub", "a", 2)
        s.note("exchanged", (os.path.samestat(os.stat("..", dir_fd=fd), os.stat(".")), os.path.samestat(os.stat("b/sub/.."), os.stat("b"))))
    s.tree("tree")


@script
def directory_deep(s):
    """300 below one another, each step by name; the whole is renamed and removed."""
    with opened(".", os.O_RDONLY) as top:
        for _ in range(300):
            os.mkdir("d")
            os.chdir("d")
        put("leaf", b"deep")
        s.note("cwd", len(os.getcwd().split("/d")) - 1)
        os.fchdir(top)
    os.rename("d", "e")
    path = "e" + "/d" * 299
    s.call("leaf", lambda: open(path + "/leaf").read())
    s.call("into itself", os.rename, "e", path + "/f")
    for depth in range(299, -1, -1):
        for name in os.listdir("e" + "/d" * depth):
            if name == "leaf":
                os.unlink("e" + "/d" * depth + "/leaf")
        os.rmdir("e" + "/d" * depth)
    s.tree("tree")
