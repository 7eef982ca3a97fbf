# SPDX-License-Identifier: Apache-2.0
"""The tree of the model: inodes with their content, and how a path is followed."""
import errno
import functools
import hashlib
import itertools
import os

import rig

PAGE = 4096
HOLE, DATA, EITHER = 0, 1, 2  # what SEEK_DATA and SEEK_HOLE may say of a byte
LINKS_MAX = 40
POOL = rig.Dice(20).randbytes(9 << 20)


class Fail(Exception):
    """A call that has to fail, with this errno."""

    def __init__(self, number):
        super().__init__(errno.errorcode[number])
        self.number = number


class Mismatch(AssertionError):
    """The filesystem is not what the model says."""


@rig.cached_content(64)
def data_of(seed, size):
    """The bytes of one write. Some are zeros, some repeat, some are there several times."""
    if seed % 16 == 0:
        return bytes(size)
    if seed % 16 == 1:
        return (b"%d checkpoint " % seed * (size // 10 + 1))[:size]
    if rig.REDUCE in os.environ:
        return rig.seeded_bytes(seed, size)
    start = seed * 2654435761 % (len(POOL) - size)
    return POOL[start : start + size]


class Version:
    """What a file held at one moment."""

    def __init__(self, node):
        self.data, self.kinds = bytes(node.data), bytes(node.kinds)

    @functools.cached_property
    def digest(self):
        return digest(self.data)


def digest(data):
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class Inode:
    """kind: f, d or l. A nascent file is not in the history yet; a draft is what was written since the last seal."""

    numbers = itertools.count(1)

    def __init__(self, kind, mode, now, uid=0, gid=0):
        self.id, self.kind, self.mode, self.uid, self.gid = next(self.numbers), kind, mode, uid, gid
        self.ino = None
        self.xattrs = {}
        self.mtime, self.set_mtime, self.atime = ("since", now), None, None
        self.names, self.parent = {}, None  # of a directory
        self.target = None  # of a symbolic link
        self.data, self.kinds, self.nlink = bytearray(), bytearray(), 0
        self.linked = False  # it had several names at some time
        self.nascent = self.draft = kind == "f"
        self.changed_at, self.loose_until = now, 0.0
        self.map_dirty = 0  # stores through a map that nothing brought to the filesystem yet end here

    def resize(self, size):
        have = len(self.data)
        del self.data[size:], self.kinds[size:]
        if size > have:
            unsure = self.unsure_tail(size)
            self.data.extend(bytes(size - have))
            self.kinds.extend(bytes((EITHER,)) * unsure + bytes(size - have - unsure))

    def unsure_tail(self, size):
        """How much behind the end comes to the filesystem as data, if a map's store is in the last page: all of that page, if it comes
        after the file has grown."""
        have = len(self.kinds)
        return min(size, -(-have // PAGE) * PAGE) - have if self.map_dirty > have // PAGE * PAGE else 0

    def put(self, offset, data, kinds=None):
        if offset > len(self.data):
            self.resize(offset)
        end = offset + len(data)
        self.data[offset:end] = data
        self.kinds[offset:end] = kinds if kinds is not None else bytes((DATA,)) * len(data)

    def zero(self, offset, end):
        end = min(end, len(self.data))
        if offset < end:
            self.put(offset, bytes(end - offset), bytes(end - offset))


class Tree:
    """Names and how they are followed: as the kernel does it."""

    def __init__(self):
        self.root = Inode("d", 0o755, 0.0)
        self.root.parent = self.root

    def walk(self, path):
        """(directory, last name) of a path whose directories exist."""
        parts = [part for part in path.split("/") if part]
        return self.descend(self.root, parts[:-1], [0]), parts[-1] if parts else ""

    def descend(self, node, parts, followed):
        for part in parts:
            node = self.step(node, part, followed)
        if node.kind != "d":
            raise Fail(errno.ENOTDIR)
        return node

    def step(self, directory, part, followed):
        """What `part` is in a directory, links followed."""
        if directory.kind != "d":
            raise Fail(errno.ENOTDIR)
        if part == "..":
            return directory.parent
        node = directory.names.get(part)
        if node is None:
            raise Fail(errno.ENOENT)
        if node.kind != "l":
            return node
        target, name = self.follow(directory, node, followed)
        return self.step(target, name, followed)

    def follow(self, directory, link, followed):
        """(directory, name) that a link leads to."""
        followed[0] += 1
        if followed[0] > LINKS_MAX:
            raise Fail(errno.ELOOP)
        parts = link.target.split("/")
        return self.descend(directory, parts[:-1], followed), parts[-1]

    def find(self, path, follow=True):
        """The inode at a path."""
        directory, name, node = self.place(path, follow)
        if node is None:
            raise Fail(errno.ENOENT)
        return node

    def place(self, path, follow=False):
        """(directory, name, inode or None): where a path leads."""
        directory, name = self.walk(path)
        if not name:
            return directory, name, directory
        node, followed = directory.names.get(name), [0]
        while follow and node is not None and node.kind == "l":
            directory, name = self.follow(directory, node, followed)
            node = directory.parent if name == ".." else directory.names.get(name)
        return directory, name, node

    def everything(self):
        """(path, directory, name, inode) of all but the root."""
        todo = [("", self.root)]
        while todo:
            path, directory = todo.pop()
            for name, node in directory.names.items():
                below = f"{path}/{name}" if path else name
                yield below, directory, name, node
                if node.kind == "d":
                    todo.append((below, node))

    def is_below(self, node, directory):
        """Is a directory `directory`, or below it?"""
        while node is not directory and node is not self.root:
            node = node.parent
        return node is directory
