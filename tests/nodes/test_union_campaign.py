# SPDX-License-Identifier: Apache-2.0
"""Nodes make, change, move and remove each other's files at random, while their daemons die, leave and come back. No read gives
anything but what somebody wrote; what nobody removed or replaced is there in the end; and then all nodes show the same."""
import contextlib
import errno
import os
import time

import pytest

import remote as remotes
import rig
from test_union_mounts import exchange

NODES = 3
QUIET_S = 120  # until all nodes show the same, once nothing changes: 5 s where the machine is quiet


def read_or_error(fd):
    try:
        return len(os.pread(fd, 1 << 20, 0))
    except OSError as error:
        return error


class Contents:
    """Every content that was ever written, and which of them may be gone: their names were removed or replaced."""

    def __init__(self, rng):
        self.rng, self.sizes, self.may_go = rng, {}, set()

    def new(self):
        number = len(self.sizes)
        self.sizes[number] = self.rng.choice([10, 3000, 20000, 200000])
        return number

    def bytes(self, number):
        word = b"%08d," % number
        return word * (self.sizes[number] // len(word) + 1)

    def number_of(self, read, path):
        assert read[:8].isdigit() and int(read[:8]) in self.sizes, f"{path}: {len(read)} bytes that nobody wrote: {read[:20]}"
        assert read == self.bytes(int(read[:8])), f"{len(read)} bytes, not all of content {int(read[:8])}"
        return int(read[:8])


class Job:
    def __init__(self, nodes, rng):
        self.nodes, self.rng, self.contents = nodes, rng, Contents(rng)
        self.counts, self.did, self.events = [0] * len(nodes), {}, []

    def look(self, path):
        """The content that is there."""
        with open(path, "rb") as file:
            read = file.read()
            if not read:
                self.say_empty(path, file)
            return self.contents.number_of(read, path)

    def say_empty(self, path, file):
        print(path, "was read empty", os.fstat(file.fileno()), [read_or_error(file.fileno()) for _ in range(3)])
        for node in self.nodes:
            with contextlib.suppress(OSError):
                names = [p for p in self.paths(node.mnt)[1] if os.stat(p).st_ino == os.fstat(file.fileno()).st_ino]
                print(node.mnt, names, [os.stat(p).st_size for p in names])
        print(*self.events[-30:], sep="\n")

    def note(self, *what):
        self.events.append((f"{time.time():.3f}", *what))

    def paths(self, mnt):
        """Of directories, and of files, as the mount shows them now."""
        dirs, files = [mnt], []
        for base, names, others in os.walk(mnt):
            dirs += [os.path.join(base, name) for name in names]
            files += [os.path.join(base, name) for name in others]
        return dirs, files

    def fresh(self, node):
        self.counts[node] += 1
        return f"n{node}-{self.counts[node]}"

    def write(self, path, anew=True):
        """What is there is replaced: who reads a file that is changed in place may see both."""
        number = self.contents.new()
        self.note("writes", path, number)
        try:
            if anew:
                rig.write_file(path, self.contents.bytes(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            else:
                rig.write_file(path + ".tmp", self.contents.bytes(number))
                os.rename(path + ".tmp", path)
        except OSError:  # the directory went since it was listed: nothing was acknowledged
            self.contents.may_go.add(number)
            raise

    def take_away(self, node, path):
        """Another file may have come to its name since it was listed: what goes is what is looked at."""
        gone = os.path.join(os.path.dirname(path), self.fresh(node))
        self.note("moves to remove", path, gone)
        os.rename(path, gone)
        number = self.look(gone)
        self.contents.may_go.add(number)
        self.note("removes", gone, number)
        os.remove(gone)

    def op_make(self, node, mnt):
        dirs, _ = self.paths(mnt)
        self.write(os.path.join(self.rng.choice(dirs), self.fresh(node)))

    def op_make_shared(self, node, mnt):
        dirs, _ = self.paths(mnt)
        path = os.path.join(self.rng.choice(dirs), f"shared{self.rng.randrange(4)}")
        with contextlib.suppress(IsADirectoryError):
            self.contents.may_go.add(len(self.contents.sizes))  # another node may make it, too
            self.write(path, anew=False)

    def op_mkdir(self, node, mnt):
        dirs, _ = self.paths(mnt)
        near = [path for path in dirs if path.count("/") - mnt.count("/") < 3]
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(self.rng.choice(near), f"d{self.rng.randrange(3)}"))

    def op_overwrite(self, node, mnt):
        _, files = self.paths(mnt)
        if files:
            path = self.rng.choice(files)
            self.take_away(node, path)
            self.contents.may_go.add(len(self.contents.sizes))  # another node may remove it, or replace it
            self.write(path)

    def op_append(self, node, mnt):
        """A file of another node becomes one of this node."""
        _, files = self.paths(mnt)
        if files:
            path = self.rng.choice(files)
            number = self.look(path)
            self.note("appends", path, number)
            self.contents.may_go.add(number)  # another node may remove it meanwhile
            with open(path, "ab"):
                pass

    def op_read(self, node, mnt):
        _, files = self.paths(mnt)
        for path in files[:10]:
            self.look(path)

    def op_remove(self, node, mnt):
        _, files = self.paths(mnt)
        if files:
            self.take_away(node, self.rng.choice(files))

    def op_rename(self, node, mnt):
        dirs, files = self.paths(mnt)
        if not files:
            return
        path, to = self.rng.choice(files), os.path.join(self.rng.choice(dirs), self.fresh(node))
        kept = [other for other in files if other != path and "shared" not in other + path]  # those may be replaced
        if self.rng.random() < 0.3 and kept:
            other = self.rng.choice(kept)
            self.note("exchanges", path, other)
            self.contents.may_go.add(self.look(path))  # another node, which does not know of it, may make a new file of the other's name
            exchange(path, other)
            self.take_away(node, path)
        else:
            self.note("renames", path, to)
            os.rename(path, to)

    def op_rename_dir(self, node, mnt):
        dirs, _ = self.paths(mnt)
        if len(dirs) > 1:
            path = self.rng.choice(dirs[1:])
            outside = [each for each in dirs if not (each + "/").startswith(path + "/")]
            to = os.path.join(self.rng.choice(outside), self.fresh(node))
            self.note("renames directory", path, to)
            os.rename(path, to)

    def op_remove_tree(self, node, mnt):
        dirs, _ = self.paths(mnt)
        if len(dirs) < 2:
            return
        top = self.rng.choice(dirs[1:])
        for base, names, files in os.walk(top, topdown=False):
            for name in files:
                self.take_away(node, os.path.join(base, name))
            os.rmdir(base)

    def op_kill(self, node, mnt):
        self.nodes[node].kill9()
        self.nodes[node].mount()

    def op_leave(self, node, mnt):
        self.nodes[node].umount()
        self.nodes[node].mount()

    def step(self, weights):
        node = self.rng.randrange(len(self.nodes))
        name = self.rng.choices(list(weights), list(weights.values()))[0]
        self.did[name] = self.did.get(name, 0) + 1
        # others change what was listed just now
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError, BlockingIOError):
            try:
                getattr(self, f"op_{name}")(node, self.nodes[node].mnt)
            except OSError as error:
                self.note(name, error)
                if error.errno not in RACES:
                    raise

    def trees(self):
        """By mount: by path the content."""
        found = []
        for node in self.nodes:
            dirs, files = self.paths(node.mnt)
            shown = {os.path.relpath(path, node.mnt): None for path in dirs}
            shown.update({os.path.relpath(path, node.mnt): self.look(path) for path in files})
            found.append(shown)
        return found

    def say_standing(self):
        for node in self.nodes:
            print(node.mnt, node.status()["remote"]["nodes"])
        print(self.nodes[0].verb("ls", "-R", self.nodes[0].remote.url + ":/").stdout)

    def settle(self):
        """Until all show the same."""
        trees, trouble = [], None

        def agree():
            nonlocal trees, trouble
            try:
                trees, trouble = self.trees(), None
            except OSError as error:
                trouble = error
                return False
            return all(tree == trees[0] for tree in trees)

        with contextlib.suppress(TimeoutError):
            rig.poll(agree, QUIET_S / rig.PATIENCE)
        self.say_standing()
        assert trouble is None
        for other in trees[1:]:
            differs = {path: (trees[0].get(path, "-"), other.get(path, "-")) for path in {*trees[0], *other}
                       if trees[0].get(path, "-") != other.get(path, "-")}
            assert not differs, differs
        return trees[0]


# another node was quicker, and a directory into itself
RACES = (errno.EEXIST, errno.ENOTEMPTY, errno.ESTALE, errno.EINVAL)
WEIGHTS = {"make": 8, "make_shared": 4, "mkdir": 4, "overwrite": 4, "append": 2, "read": 6, "remove": 4, "rename": 6, "rename_dir": 2,
           "remove_tree": 2, "kill": 0.4, "leave": 0.4}


@pytest.mark.pieces(10)
@pytest.mark.timeout(900)
def test_nodes_change_each_others_files(on_remote, directory, rng, full, piece):
    shared = remotes.DirRemote(os.path.join(directory, "remotes"))
    nodes = [on_remote(shared, nodes=True, writeback_delay="50ms", gc_grace="10s").mount() for _ in range(NODES)]
    job = Job(nodes, rng)
    end = time.monotonic() + (240 if full else 30)
    while time.monotonic() < end:
        job.step(WEIGHTS)
        if rng.random() < 0.1:
            time.sleep(rng.random())
    shown = job.settle()
    print(job.did, len(shown), "paths")
    there = {number for number in shown.values() if number is not None}
    lost = set(job.contents.sizes) - job.contents.may_go - there
    if lost:
        print(*job.events, sep="\n")
    assert not lost, f"{len(lost)} contents that nobody removed are gone: {sorted(lost)[:10]}"
    copied = os.path.join(directory, "copied")
    nodes[0].verb("cp", *shared.flags(), "-r", shared.url + ":/", copied)
    files = {path for path, number in shown.items() if number is not None}
    assert {os.path.relpath(path, copied) for path in job.paths(copied)[1]} == files
    for node in nodes:
        node.umount()
        done = node.fsck()
        assert done.returncode == 0, done
