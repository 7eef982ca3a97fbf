# SPDX-License-Identifier: Apache-2.0
"""Random operations: mostly such that mean something where the model stands, some that have to fail."""
import os

import model

FILES, DIRECTORIES = ("a1", "a2", "a3", "e1", "e2"), ("d0", "d1", "d2")
XATTRS = ("user.one", "user.two", "user.three")
SLOTS, MAPS = 12, 6
EDGES = (0, 4096, 8192, 16384, 65536, 256 << 10, 1 << 20, 2 << 20)

WEIGHTS = {
    "open": 30, "close": 14, "dup": 3, "exit": 1, "read": 8, "pread": 16, "write": 20, "pwrite": 30, "lseek": 14,
    "ftruncate": 8, "truncate": 4, "fallocate": 10, "copy": 12, "fsync": 3, "fsyncdir": 1, "cat": 10, "fadvise": 3,
    "mmap": 5, "mload": 8, "mstore": 8, "msync": 3, "munmap": 4, "rename": 16, "link": 6, "unlink": 10, "symlink": 3,
    "mkdir": 6, "rmdir": 3, "list": 5, "readlink": 1, "stat": 10, "fstat": 6, "chmod": 3, "chown": 2, "utimens": 4,
    "setxattr": 8, "removexattr": 3, "getxattr": 3, "listxattr": 2, "sleep": 1,
}  # fmt: skip


class Generator:
    def __init__(self, rng, state, plain=False):
        self.rng, self.model, self.plain = rng, state, plain
        self.names, self.weights = list(WEIGHTS), list(WEIGHTS.values())

    def next(self):
        """An operation that is valid now."""
        while True:
            name = self.rng.choices(self.names, self.weights)[0]
            op = getattr(self, "make_" + name)()
            if op and self.model.valid([name, *op]):
                return [name, *op]

    def checkpoints(self):
        """Whole files of one series, one after the other, such that the later ones are stored by the first."""
        for path in FILES:
            seed, size = 2 + 16 * self.rng.randrange(1 << 16), self.rng.choice((256 << 10, 1 << 20, 2 << 20))
            yield ["close", 0]
            yield ["open", 0, path, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o644]
            yield ["write", 0, seed, size]
        yield ["close", 0]

    # ------------------------------------------------------------ choices

    def proc(self):
        return self.rng.randrange(model.PROCS)

    def seed(self):
        """Some content is there several times."""
        return self.rng.randrange(40) if self.rng.random() < 0.3 else self.rng.randrange(1 << 20)

    def path(self, kinds="fdl"):
        """Something that is there."""
        paths = [path for path, _, _, node in self.model.tree.everything() if node.kind in kinds]
        return self.rng.choice(sorted(paths)) if paths else self.place()

    def place(self, names=FILES):
        """A name in some directory, whether it is there or not."""
        directories = [path for path, _, _, node in self.model.tree.everything() if node.kind == "d"]
        directory = self.rng.choice(["", *sorted(directories)])
        name = self.rng.choice(names)
        return f"{directory}/{name}" if directory and directory.count("/") < 3 else name

    def any_path(self):
        return self.path() if self.rng.random() < 0.85 else self.place(FILES + DIRECTORIES + ("x/y", "a1/b"))

    def slot(self):
        return self.rng.choice(sorted(self.model.slots)) if self.model.slots else None

    def map_slot(self):
        return self.rng.choice(sorted(self.model.maps)) if self.model.maps else None

    def size_of(self, slot):
        return len(self.model.slots[slot].node.data)

    def offset(self, size):
        """Beginnings, ends, edges of blocks, anything."""
        pick = self.rng.random()
        if pick < 0.3:
            return self.rng.randrange(size + 1)
        if pick < 0.5:
            return max(0, size + self.rng.choice((0, 0, -1, 1, -4096, 4096, 100_000)))
        if pick < 0.85:
            return max(0, self.rng.choice(EDGES) + self.rng.choice((0, 0, -1, 1, -100, 100, 4096)))
        return self.rng.randrange(3 << 20)

    def count(self):
        pick = self.rng.random()
        if pick < 0.4:
            return self.rng.randrange(1, 200)
        if pick < 0.75:
            return self.rng.randrange(1, 20_000)
        if pick < 0.95:
            return self.rng.choice(EDGES[1:]) + self.rng.choice((0, 0, -1, 1, 500))
        return self.rng.randrange(1, 4 << 20)

    # ------------------------------------------------------------ one for each operation

    def make_open(self):
        slot = self.rng.randrange(SLOTS)
        flags = self.rng.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR))
        path = self.path("fl") if self.rng.random() < 0.7 else self.place()
        if self.rng.random() < 0.6:
            flags |= os.O_CREAT
        for flag, share in ((os.O_EXCL, 0.05), (os.O_APPEND, 0.12), (os.O_DSYNC, 0.02), (os.O_NOFOLLOW, 0.03)):
            flags |= flag if self.rng.random() < share else 0
        if flags & os.O_ACCMODE != os.O_RDONLY and self.rng.random() < 0.15:
            flags |= os.O_TRUNC
        if not self.plain and self.rng.random() < 0.08:
            flags |= os.O_DIRECT
        return slot, path, flags, self.rng.choice((0o644, 0o600, 0o755))

    def of_slot(self, *rest):
        slot = self.slot()
        return None if slot is None else (slot, *rest)

    def make_close(self):
        return self.of_slot()

    make_fsync = make_fadvise = make_fstat = make_close

    def make_dup(self):
        return self.of_slot(self.rng.randrange(SLOTS))

    def make_exit(self):
        return (self.proc(),)

    def make_read(self):
        return self.of_slot(self.count())

    def make_pread(self):
        slot = self.slot()
        return None if slot is None else (slot, self.count(), self.offset(self.size_of(slot)))

    def make_write(self):
        slot, count = self.slot(), self.count()
        fits = slot is not None and max(self.size_of(slot), self.model.slots[slot].position) + count <= model.FILE_MAX
        return (slot, self.seed(), count) if fits else None

    def make_pwrite(self):
        slot, count = self.slot(), self.count()
        if slot is None or self.size_of(slot) + count > model.FILE_MAX:
            return None
        return slot, self.seed(), count, self.offset(self.size_of(slot))

    def make_lseek(self):
        slot = self.slot()
        if slot is None:
            return None
        whence = self.rng.choice((os.SEEK_SET, os.SEEK_CUR, os.SEEK_END, os.SEEK_DATA, os.SEEK_DATA, os.SEEK_HOLE, os.SEEK_HOLE))
        if whence in (os.SEEK_CUR, os.SEEK_END):
            return slot, self.rng.randrange(-10_000, 10_000), whence
        return slot, self.offset(self.size_of(slot)), whence

    def make_ftruncate(self):
        slot = self.slot()
        return None if slot is None else (slot, self.offset(self.size_of(slot)))

    def make_truncate(self):
        return self.proc(), self.any_path(), self.offset(100_000)

    def make_fallocate(self):
        slot = self.slot()
        mode = self.rng.choice((0, 1, 3, 3, 3, 16, 17, 3))
        return None if slot is None else (slot, mode, self.offset(self.size_of(slot)), self.count())

    def make_copy(self):
        slot, other = self.slot(), self.slot()
        if slot is None or self.size_of(other) > model.FILE_MAX // 2:
            return None
        return slot, other, self.offset(self.size_of(slot)), self.offset(self.size_of(other)), self.count()

    def make_fsyncdir(self):
        return self.proc(), self.path("d")

    def make_cat(self):
        return self.proc(), self.path("fl")

    def make_mmap(self):
        slot, map_slot = self.slot(), self.rng.randrange(MAPS)
        return None if slot is None else (map_slot, slot, self.rng.random() < 0.7)

    def of_map(self):
        """(slot, offset, count) within what is mapped."""
        slot = self.map_slot()
        if slot is None:
            return None
        size = min(self.model.maps[slot].size, len(self.model.maps[slot].node.data))
        if size == 0:
            return None
        offset = self.rng.randrange(size)
        return slot, offset, min(self.count(), size - offset)

    def make_mload(self):
        return self.of_map()

    def make_mstore(self):
        found = self.of_map()
        return found and (found[0], found[1], self.seed(), found[2])

    def make_msync(self):
        slot = self.map_slot()
        return None if slot is None else (slot,)

    make_munmap = make_msync

    def make_rename(self):
        old = self.any_path()
        new = self.any_path() if self.rng.random() < 0.6 else self.place(FILES + DIRECTORIES)
        return self.proc(), old, new, self.rng.choice((0, 0, 0, 0, 1, 2))

    def make_link(self):
        return self.proc(), self.path("fffl"), self.place()

    def make_unlink(self):
        return self.proc(), self.any_path()

    def make_symlink(self):
        target = self.rng.choice((*FILES, "d0", "d1/a", "d0/../a", "d0/d1"))
        return self.proc(), target, self.place(("l0", "l1", "a"))

    def make_mkdir(self):
        return self.proc(), self.place(DIRECTORIES), self.rng.choice((0o755, 0o700))

    def make_rmdir(self):
        return self.proc(), self.path("d")

    def make_list(self):
        return self.proc(), self.path("d")

    def make_readlink(self):
        return self.proc(), self.any_path()

    def make_stat(self):
        return self.proc(), self.any_path()

    def make_chmod(self):
        return self.proc(), self.any_path(), self.rng.choice((0o600, 0o640, 0o755, 0o444))

    def make_chown(self):
        return self.proc(), self.any_path(), self.rng.randrange(3), self.rng.randrange(3)

    def make_utimens(self):
        return self.proc(), self.any_path(), self.rng.randrange(10**18), self.rng.randrange(10**18)

    def make_setxattr(self):
        large = 0 if self.plain else 60_000
        size = self.rng.choice((0, 10, 300, 300, 800, large))
        flags = self.rng.choice((0, 0, 0, os.XATTR_CREATE, os.XATTR_REPLACE))
        return self.proc(), self.any_path(), self.rng.choice(XATTRS), self.seed(), size, flags

    def make_removexattr(self):
        return self.proc(), self.any_path(), self.rng.choice(XATTRS)

    make_getxattr = make_removexattr

    def make_listxattr(self):
        return self.proc(), self.any_path()

    def make_sleep(self):
        return self.proc(), self.rng.choice((10, 30, 100))
