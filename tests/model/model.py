# SPDX-License-Identifier: Apache-2.0
"""The model: every operation (a list: name, process or slot, arguments) with the outcome that it must have.

`apply(op, result)` takes what the filesystem answered, ("ok", value) or ("err", errno), and raises Mismatch if that is
not what has to come. Whatever makes no sense where it stands (a slot that is not open) is no operation: `valid` says so.
So any part of a sequence is a sequence, which is what shrinking needs.
"""
import errno
import os
import stat as modes

import model_history
import model_names
from model_tree import DATA, EITHER, HOLE, PAGE, Fail, Inode, Mismatch, Tree, data_of, digest

PROCS = 3
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE = 1, 2, 8, 16
FILE_MAX = 8 << 20
IDLE_SEAL, OLD_DRAFT = 4.5, 55.0  # when a draft may be sealed by itself
RELEASE_SEALS = 5.0  # the kernel tells of a last close later, which seals what is there then
CLOCK_SLACK = 0.05


class Handle:
    """An open file description: descriptors that were duplicated share it."""

    def __init__(self, node, flags, made_it):
        self.node, self.flags, self.position, self.slots = node, flags, 0, 1
        self.was_flushed = False  # some descriptor of it was closed
        access = flags & os.O_ACCMODE
        self.readable, self.writable = access != os.O_WRONLY, access != os.O_RDONLY
        self.closes_seal = self.writable or made_it


class Map:
    def __init__(self, handle, size, writable):
        self.handle, self.node, self.size, self.writable = handle, handle.node, size, writable


class Model(model_names.Names):
    def __init__(self, plain=False):
        self.tree = Tree()
        self.plain = plain  # holes are of whole blocks, inode numbers come again
        self.slots, self.maps = {}, {}
        self.waiting = {}  # files whose seals wait for another operation, or for a question
        self.inos = {}  # inode number -> id: none is given twice
        self.nodes = {self.tree.root.id: self.tree.root}
        self.history = model_history.History(self.tree)
        self.now = 0.0

    def start(self, look):
        """The root as it is on an empty mount."""
        root = self.tree.root
        root.mode, root.uid, root.gid, root.xattrs = look["mode"], look["uid"], look["gid"], dict(look["xattrs"])
        self.learn(root, look["ino"])
        root.mtime = ("exact", look["mtime"])
        self.history.attrs(root)
        self.history.barrier()

    # ------------------------------------------------------------ what the runner asks

    def valid(self, op):
        check = getattr(self, "valid_" + op[0], None)
        return check(*op[1:]) if check else True

    def apply(self, op, result, now):
        """Checks the answer and does the same."""
        self.now, self.result = now, result
        self.seal_by_themselves()
        try:
            wanted = ("ok", getattr(self, "op_" + op[0])(*op[1:]))
        except Fail as fail:
            wanted = ("err", fail.number)
        if wanted != result:
            raise Mismatch(f"{short(op)}: {short(result)}, expected {short(wanted)}")

    def dirty_maps(self, op=None):
        """Maps with stores that have to be brought to the filesystem before `op`: it may seal, and asks nothing."""
        asks = op is None or op[0] in ("rename", "link", "exit", "kill", "cut", "remount")
        return [
            slot
            for slot, mapped in self.maps.items()
            if mapped.node.map_dirty and self.covers(mapped) and mapped.writable and (asks or self.now - mapped.node.changed_at > 1.0)
        ]

    def drafts(self):
        """Files with unsealed content that have a name."""
        return [node for node in self.files() if node.nascent or node.draft]

    def files(self):
        return {node.id: node for _, _, _, node in self.tree.everything() if node.kind == "f"}.values()

    def seal_by_themselves(self):
        ripe = [node for node in self.drafts() if self.now - node.changed_at > IDLE_SEAL]
        self.history.maybe_seal(ripe)

    def forget_handles(self):
        """The daemon died or ended: nothing is open any more, and every draft becomes a version."""
        self.slots.clear()
        self.maps.clear()
        self.waiting.clear()
        self.history.seal_all(self.drafts())
        for node in self.files():
            node.loose_until, node.map_dirty = 0.0, 0

    def check_live(self, seen):
        """All is sealed: the tree is exactly the newest state."""
        for wrong in model_history.differences(self.history.state, seen, mtimes=False):
            raise Mismatch(wrong)
        for path, _, _, node in self.tree.everything():
            self.check_times(node, seen[path], path)

    def check_cut(self, seen):
        """After a power cut: one of the states since the last barrier, and the model goes on from there."""
        for state in reversed(self.history.snaps):
            if next(model_history.differences(state, seen), None) is None:
                self.restore(state, seen)
                return
        wrongs = [list(model_history.differences(state, seen)) for state in self.history.snaps]
        nearest = min(wrongs, key=len)
        told = "\n  ".join([f"nearest is number {wrongs.index(nearest)}:", *nearest[:10]])
        raise Mismatch(f"none of the {len(wrongs)} states since the last barrier; {told}")

    def restore(self, state, seen):
        """The tree as it was found."""
        self.slots.clear()
        self.maps.clear()
        self.waiting.clear()
        for path in sorted(seen):
            look = seen[path]
            node = self.nodes[self.inos[look["ino"]]] if path else self.tree.root
            record = state[node.id]
            node.names, node.nlink, node.nascent, node.draft = {}, look["nlink"], False, False
            node.mode, node.uid, node.gid, node.xattrs = record.mode, record.uid, record.gid, dict(record.xattrs)
            node.mtime, node.set_mtime, node.atime = ("exact", look["mtime"]), record.mtime, look["atime"]
            node.loose_until, node.map_dirty = 0.0, 0
            if node.kind == "f":
                self.restore_content(node, look["digest"])
            if path:
                directory, name = self.tree.walk(path)
                directory.names[name] = node
                node.parent = directory
        self.history = model_history.History(self.tree)
        for path, _, _, node in sorted(self.tree.everything(), key=lambda entry: entry[0]):
            self.history.enter(node)
            if node.kind == "f":
                self.history.change(node, versions=(model_history.Version(node),))
        for directory in [self.tree.root, *(node for _, _, _, node in self.tree.everything() if node.kind == "d")]:
            self.history.change(directory, names={name: node.id for name, node in directory.names.items()})
        self.history.push()
        self.history.barrier()

    def restore_content(self, node, digest):
        """Versions that were written differently may have the same bytes."""
        records = [state[node.id] for state in self.history.snaps if node.id in state]
        same = {id(version): version for record in records for version in record.versions if version.digest == digest}
        first, *others = same.values()
        node.data, node.kinds = bytearray(first.data), bytearray(first.kinds)
        for kinds in {version.kinds for version in others} - {first.kinds}:
            node.kinds[:] = bytes(one if one == other else EITHER for one, other in zip(node.kinds, kinds))

    # ------------------------------------------------------------ parts

    def learn(self, node, ino):
        """The inode number of what was made or found."""
        if node.ino is None:
            if ino in self.inos and not self.plain:
                raise Mismatch(f"inode number {ino} was given before")
            node.ino, self.inos[ino], self.nodes[node.id] = ino, node.id, node
        if node.ino != ino:
            raise Mismatch(f"inode number {ino}, not {node.ino}")
        return ino

    def result_ino(self, node):
        """The answer is an inode number."""
        if self.result[0] == "ok":
            self.learn(node, self.result[1])
        return self.result[1]

    def check_times(self, node, look, path):
        kind, value = ("since", 0.0) if node.map_dirty else node.mtime
        if kind == "exact" and look["mtime"] != value:
            raise Mismatch(f"{path}: mtime is {look['mtime']}, not {value}")
        if kind == "since" and not value - CLOCK_SLACK <= look["mtime"] / 1e9 <= self.now + CLOCK_SLACK + 60:
            raise Mismatch(f"{path}: mtime is {look['mtime']}, changed after {value}")
        if not node.map_dirty:
            node.mtime = ("exact", look["mtime"])
        if node.atime is not None and not self.plain and node.atime != look["atime"]:
            raise Mismatch(f"{path}: atime is {look['atime']}, not {node.atime}")

    def touch(self, node):
        """Content changed."""
        node.draft, node.changed_at = True, self.now
        node.mtime, node.set_mtime = ("since", self.now), None
        if self.now < node.loose_until:
            self.history.maybe_seal([node])

    def touch_directory(self, *directories):
        for directory in directories:
            directory.mtime, directory.set_mtime = ("since", self.now), None

    def attrs(self, node):
        """Attributes changed."""
        self.history.attrs(node)

    def barrier(self, node=None):
        for waiting, least in self.waiting.values():
            self.history.settle(waiting, least)
            waiting.loose_until = self.now + RELEASE_SEALS
        self.waiting.clear()
        if node is not None:
            self.history.seal(node)
        self.history.barrier()

    def new_name(self, path):
        """(directory, name) where nothing is."""
        directory, name, node = self.tree.place(path)
        if node is not None:
            raise Fail(errno.EEXIST)
        return directory, name

    def handle(self, slot, readable=False, writable=False):
        handle = self.slots[slot]
        if readable and not handle.readable or writable and not handle.writable:
            raise Fail(errno.EBADF)
        return handle

    def drop_name(self, directory, name):
        node = directory.names.pop(name)
        node.nlink -= 1
        self.touch_directory(directory)
        return node

    # ------------------------------------------------------------ open files

    def valid_open(self, slot, path, flags, mode):
        return slot not in self.slots

    def op_open(self, slot, path, flags, mode):
        exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        directory, name, node = self.tree.place(path, follow=not (exclusive or flags & os.O_NOFOLLOW))
        self.check_open(node, flags)
        made_it = node is None
        if made_it:
            node = Inode("f", mode, self.now)
            directory.names[name], node.nlink = node, 1
            self.touch_directory(directory)
        elif flags & os.O_TRUNC:
            self.truncate(node, 0)
        self.slots[slot] = Handle(node, flags, made_it)
        return self.result_ino(node)

    def stamp(self, node):
        """Its time may be new, and nothing else: at once."""
        node.mtime, node.set_mtime = ("since", 0.0), None
        if node.id in self.history.state:
            self.history.change(node, mtime=None)
            self.history.push()

    def check_open(self, node, flags):
        if node is None and not flags & os.O_CREAT:
            raise Fail(errno.ENOENT)
        if node is None:
            return
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise Fail(errno.EEXIST)
        if node.kind == "l":
            raise Fail(errno.ELOOP)
        if node.kind == "d" and (flags & os.O_CREAT or flags & os.O_ACCMODE != os.O_RDONLY):
            raise Fail(errno.EISDIR)
        if node.kind == "d":
            raise Fail(errno.EINVAL if flags & os.O_DIRECT else errno.EISDIR)  # the last is what the worker says

    def valid_close(self, slot):
        return slot in self.slots

    def op_close(self, slot):
        self.close(self.slots.pop(slot))

    def close(self, handle):
        handle.slots -= 1
        node = handle.node
        node.map_dirty = 0
        handle.was_flushed = True
        if not handle.closes_seal:
            return
        if self.others_write(node):
            node.loose_until = float("inf")  # what is written until its seal enters is in that version, too
            self.history.maybe_seal([node])
            if node.id in self.history.state:
                self.waiting[node.id] = (node, self.history.state[node.id].versions[-1])
            return
        self.waiting.pop(node.id, None)
        self.history.seal(node)
        node.loose_until = self.now + RELEASE_SEALS

    def others_write(self, node):
        """Is it open for writing where nothing was closed yet? Then a seal waits."""
        return any(handle.node is node and handle.writable and not handle.was_flushed for handle in self.slots.values())

    def valid_dup(self, slot, slot2):
        return slot in self.slots and slot2 not in self.slots and slot % PROCS == slot2 % PROCS

    def op_dup(self, slot, slot2):
        self.slots[slot2] = self.slots[slot]
        self.slots[slot].slots += 1

    def op_exit(self, proc):
        """A process is killed, and another takes its place."""
        gone = [slot for slot in self.slots if slot % PROCS == proc]
        maps = [slot for slot in self.maps if slot % PROCS == proc]
        for slot in maps:
            self.unmap(slot)
        handles = {id(self.slots[slot]): self.slots.pop(slot) for slot in gone}.values()
        nodes = [handle.node for handle in handles if handle.closes_seal]
        waiting = [node for node in nodes if self.others_write(node)]
        self.history.seal_all([node for node in nodes if node not in waiting], waiting)
        for handle in handles:
            self.close(handle)

    def valid_read(self, slot, *rest):
        return slot in self.slots

    valid_write = valid_pread = valid_pwrite = valid_lseek = valid_ftruncate = valid_fallocate = valid_fsync = valid_read
    valid_fadvise = valid_read

    def op_read(self, slot, count):
        handle = self.handle(slot, readable=True)
        data = bytes(handle.node.data[handle.position : handle.position + count])
        handle.position += len(data)
        return data

    def op_pread(self, slot, count, offset):
        return bytes(self.handle(slot, readable=True).node.data[offset : offset + count])

    def op_write(self, slot, seed, count):
        handle = self.handle(slot, writable=True)
        at = len(handle.node.data) if handle.flags & os.O_APPEND else handle.position
        handle.position = at + count
        return self.write(handle, at, seed, count)

    def op_pwrite(self, slot, seed, count, offset):
        handle = self.handle(slot, writable=True)
        return self.write(handle, len(handle.node.data) if handle.flags & os.O_APPEND else offset, seed, count)

    def write(self, handle, at, seed, count):
        handle.node.put(at, data_of(seed, count))
        self.touch(handle.node)
        if handle.flags & os.O_DSYNC:
            self.barrier(handle.node)
        return count

    def op_lseek(self, slot, offset, whence):
        handle = self.slots[slot]
        size = len(handle.node.data)
        if whence in (os.SEEK_DATA, os.SEEK_HOLE):
            at = self.seek_kind(handle.node, offset, whence == os.SEEK_DATA)
        else:
            at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: handle.position, os.SEEK_END: size}[whence]
            if at < 0:
                raise Fail(errno.EINVAL)
        handle.position = at
        return at

    def seek_kind(self, node, offset, want_data):
        """Exact where the kinds are; else what was answered must be possible."""
        size, wanted, other = len(node.data), DATA if want_data else HOLE, HOLE if want_data else DATA
        if offset >= size:
            raise Fail(errno.ENXIO)
        sure = node.kinds.find(wanted, offset)
        limit = sure if sure >= 0 else size
        if self.result == ("err", errno.ENXIO) and want_data and sure < 0:
            raise Fail(errno.ENXIO)
        if self.result[0] != "ok":
            return limit
        at = self.result[1]
        if at == size and not want_data and sure < 0:
            return at
        possible = offset <= at <= limit and at < size and node.kinds[at] != other
        if self.plain:
            possible = offset <= at <= size
        return at if possible else limit

    def op_ftruncate(self, slot, size):
        handle = self.slots[slot]
        if not handle.writable:
            raise Fail(errno.EINVAL)
        self.truncate(handle.node, size)

    def op_truncate(self, proc, path, size):
        node = self.tree.find(path)
        if node.kind == "d":
            raise Fail(errno.EISDIR)
        self.truncate(node, size)

    def truncate(self, node, size):
        if size != len(node.data):
            node.resize(size)
            node.map_dirty = min(node.map_dirty, size)
            self.touch(node)
        self.stamp(node)

    def op_fallocate(self, slot, mode, offset, length):
        node = self.handle(slot, writable=True).node
        if mode & COLLAPSE:
            raise Fail(errno.EOPNOTSUPP)
        end, size = offset + length, len(node.data)
        self.stamp(node)
        if mode & (PUNCH_HOLE | ZERO_RANGE) and offset < size:
            node.zero(offset, end)
            self.touch(node)
        if not mode & KEEP_SIZE and end > size:
            node.resize(end)
            self.touch(node)

    def valid_copy(self, slot, slot2, *rest):
        return slot in self.slots and slot2 in self.slots and slot % PROCS == slot2 % PROCS

    def op_copy(self, slot, slot2, offset, offset2, count):
        """The answer says how much was copied: at least something."""
        source, target = self.handle(slot, readable=True), self.handle(slot2, writable=True)
        if target.flags & os.O_APPEND:
            raise Fail(errno.EBADF)
        most = max(0, min(count, len(source.node.data) - offset))
        if source.node is target.node and offset < offset2 + most and offset2 < offset + most:
            raise Fail(errno.EINVAL)
        if self.result[0] != "ok" or not min(most, 1) <= self.result[1] <= most:
            return most
        done = self.result[1]
        if done:
            kinds = bytes(source.node.kinds[offset : offset + done]) if not self.plain else None
            target.node.put(offset2, source.node.data[offset : offset + done], kinds)
            self.touch(target.node)
        return done

    def op_fsync(self, slot):
        node = self.slots[slot].node
        node.map_dirty = 0
        self.barrier(node)

    def op_fsyncdir(self, proc, path):
        node = self.tree.find(path)
        if node.kind != "d":
            raise Fail(errno.ENOTDIR)
        self.barrier()

    def op_cat(self, proc, path):
        node = self.tree.find(path)
        if node.kind == "d":
            raise Fail(errno.EISDIR)
        return bytes(node.data)

    def op_sleep(self, proc, milliseconds):
        return None

    def op_fadvise(self, slot):
        return None

    # ------------------------------------------------------------ maps

    def valid_mmap(self, map_slot, slot, writable):
        free = map_slot not in self.maps and map_slot % PROCS == slot % PROCS
        return free and slot in self.slots and len(self.slots[slot].node.data) > 0

    def op_mmap(self, map_slot, slot, writable):
        handle = self.slots[slot]
        if not handle.readable or writable and not handle.writable:
            raise Fail(errno.EACCES)
        handle.slots += 1
        self.maps[map_slot] = Map(handle, len(handle.node.data), writable)

    def in_map(self, map_slot, offset, count):
        mapped = self.maps.get(map_slot)
        return mapped and offset + count <= min(mapped.size, len(mapped.node.data))

    def valid_mload(self, map_slot, offset, count):
        return self.in_map(map_slot, offset, count)

    def op_mload(self, map_slot, offset, count):
        return bytes(self.maps[map_slot].node.data[offset : offset + count])

    def valid_mstore(self, map_slot, offset, seed, count):
        return self.in_map(map_slot, offset, count) and self.maps[map_slot].writable

    def op_mstore(self, map_slot, offset, seed, count):
        node = self.maps[map_slot].node
        low, high = offset // PAGE * PAGE, min(-(-(offset + count) // PAGE) * PAGE, len(node.data))
        kinds = bytes(node.kinds[low:high]).replace(bytes((HOLE,)), bytes((EITHER,)))
        node.put(low, bytes(node.data[low:high]), kinds)
        node.data[offset : offset + count] = data_of(seed, count)
        node.map_dirty = max(node.map_dirty, offset + count)
        self.touch(node)

    def covers(self, mapped):
        """Does it reach all stores? The sync of another would seal the file without some of them."""
        return mapped.size >= mapped.node.map_dirty

    def valid_msync(self, map_slot):
        return map_slot in self.maps and self.covers(self.maps[map_slot])

    def valid_munmap(self, map_slot):
        return map_slot in self.maps

    def op_msync(self, map_slot):
        """Of what was opened for reading only, the kernel makes no shared map, and has nothing to sync."""
        mapped = self.maps[map_slot]
        if not mapped.handle.writable:
            return
        if mapped.writable:
            mapped.node.map_dirty = 0
        self.barrier(mapped.node)

    def op_munmap(self, map_slot):
        self.unmap(map_slot)

    def unmap(self, map_slot):
        """What was stored goes to the filesystem, and nothing is sealed; but if this was the last use, later."""
        mapped = self.maps.pop(map_slot)
        mapped.handle.slots -= 1
        if mapped.writable:
            mapped.node.map_dirty = 0
        if mapped.handle.closes_seal and mapped.handle.slots == 0:
            mapped.node.loose_until = self.now + RELEASE_SEALS


def short(value):
    """For people: long bytes as their length and beginning."""
    if isinstance(value, bytes) and len(value) > 24:
        return f"<{len(value)} bytes {value[:8].hex()}.. {digest(value)[:8]}>"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(str(short(part)) for part in value) + "]"
    return value


def kind_of(mode):
    return {modes.S_IFDIR: "d", modes.S_IFREG: "f", modes.S_IFLNK: "l"}[modes.S_IFMT(mode)]
