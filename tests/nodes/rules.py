# SPDX-License-Identifier: Apache-2.0
"""The rules by which the union is made of the operations of several nodes, over dicts: what docs/architecture-remote.md says of the merger,
written a second time. Operations come in the order of their time."""
import dataclasses

ROOT = 1
ORPHAN, EXCHANGE = 2, 4  # flags: the last name that the node knew goes; both names stay


@dataclasses.dataclass(frozen=True)
class Op:
    word: str  # mkdir, create, write, link, unlink, rename, reap
    epoch: int  # of the node
    ino: int
    parent: int = 0
    name: str = "-"
    flags: int = 0
    ino2: int = 0
    version: int = 0
    parent2: int = 0
    name2: str = "-"

    def line(self):
        return (f"{self.word} {self.epoch} {self.flags} {self.ino} {self.ino2} {self.version} {self.parent} {self.name} {self.parent2} "
                f"{self.name2}\n")

    def owns(self, ino):
        return ino >> 24 == self.epoch


class Union:
    def __init__(self):
        self.entries = {ROOT: {}}  # of each directory: {name: ino}
        self.above = {ROOT: ROOT}  # of each directory
        self.files = {}  # {ino: version}
        self.instead = {}  # directory that is not there: the one that all use instead, or (parent, name), its last place

    def apply(self, op):
        getattr(self, op.word)(op)

    def result(self):
        names = {(parent, name, ino) for parent, entries in self.entries.items() for name, ino in entries.items()}
        return names, dict(self.files)

    # ---- looking

    def look_up(self, place):
        return self.entries[place[0]].get(place[1])

    def places(self, ino):
        return [(parent, name) for parent, entries in self.entries.items() for name, other in entries.items() if other == ino]

    def follow(self, ino):
        """The directory that is used for it. None: there was never one."""
        while ino not in self.entries:
            if ino not in self.instead:
                return None
            if isinstance(self.instead[ino], tuple):
                return ino  # it is gone
            ino = self.instead[ino]
        return ino

    def living(self, ino):
        ino = self.follow(ino)
        return ino if ino in self.entries else None

    def is_below(self, directory, above):
        while directory not in (above, ROOT):
            directory = self.above[directory]
        return directory == above

    # ---- changing

    def put(self, place, ino):
        self.entries[place[0]][place[1]] = ino
        if ino in self.entries:
            self.above[ino] = place[0]

    def lose(self, place):
        return self.entries[place[0]].pop(place[1])

    def lose_all(self, ino):
        for place in self.places(ino):
            self.lose(place)

    def remove_directory(self, place):
        ino = self.lose(place)
        del self.entries[ino], self.above[ino]
        self.instead[ino] = place

    def make_directory(self, ino, place):
        self.entries[ino] = {}
        self.put(place, ino)

    @staticmethod
    def aside(place, ino):
        return place[0], f"{place[1]}.cairn-{ino >> 24}"

    def clear_for_file(self, place, ino):
        """Is the name free now? An older file there loses it."""
        old = self.look_up(place)
        if old is not None and (old in self.entries or old == ino):
            return False
        if old is not None:
            self.lose(place)
        return True

    def place_for_file(self, place, ino):
        """Its own, or beside a directory of that name."""
        is_directory = self.look_up(place) in self.entries
        if is_directory:
            place = self.aside(place, ino)
        return place if self.clear_for_file(place, ino) else None

    def clear_for_directory(self, place):
        """The directory that has the name, if any; a file goes aside."""
        old = self.look_up(place)
        if old is None or old in self.entries:
            return old
        beside = self.aside(place, old)
        is_free = self.clear_for_file(beside, old)
        self.lose(place)
        if is_free:
            self.put(beside, old)
        return None

    def revive(self, ino):
        """A directory that is there again for what is made in it, with all above it. None: there was never one."""
        gone, ino = [], self.follow(ino)
        while ino is not None and ino not in self.entries:
            gone.append(ino)
            ino = self.follow(self.instead[ino][0])
        for other in reversed(gone) if ino is not None else ():
            place = ino, self.instead[other][1]
            there = self.clear_for_directory(place)
            if there is not None:
                self.instead[other] = there
            else:
                del self.instead[other]
                self.make_directory(other, place)
            ino = there if there is not None else other
        return ino

    # ---- operations

    def mkdir(self, op):
        parent = self.revive(op.parent)
        if parent is None:
            return
        there = self.clear_for_directory((parent, op.name))
        if there is not None:
            self.instead[op.ino] = there
        else:
            self.make_directory(op.ino, (parent, op.name))

    def create(self, op):
        parent = self.revive(op.parent)
        place = None if parent is None else self.place_for_file((parent, op.name), op.ino)
        self.files[op.ino] = op.version
        if place:
            self.put(place, op.ino)

    def write(self, op):
        if op.owns(op.ino) and self.files.get(op.ino, op.version) < op.version:
            self.files[op.ino] = op.version

    def link(self, op):
        if op.ino not in self.files or (not self.places(op.ino) and not op.owns(op.ino)):
            return
        parent = self.revive(op.parent)
        place = None if parent is None else self.place_for_file((parent, op.name), op.ino)
        if place:
            self.put(place, op.ino)

    def end_names(self, op, ino):
        if op.owns(ino) and op.flags & ORPHAN and ino in self.files:
            self.lose_all(ino)

    def unlink(self, op):
        parent = self.living(op.parent)
        place = parent, op.name
        if op.ino not in self.files:
            if parent is not None and self.is_directory_at(place, op.ino) and not self.entries[self.look_up(place)]:
                self.remove_directory(place)
            return
        for each in (place, self.aside(place, op.ino)) if parent is not None else ():
            if self.look_up(each) == op.ino:
                self.lose(each)
                break
        self.end_names(op, op.ino)

    def is_directory_at(self, place, ino):
        there = self.look_up(place)
        return there is not None and there in self.entries and self.living(ino) == there

    def is_at(self, place, ino):
        """The name stands for what the node saw there."""
        return self.is_directory_at(place, ino) if self.look_up(place) in self.entries else self.look_up(place) == ino

    def rename(self, op):
        parent = self.living(op.parent)
        to = None if parent is None else self.revive(op.parent2)
        done = False
        if to is not None:
            move = self.exchange if op.flags & EXCHANGE else self.rename_over
            done = move(op, (parent, op.name), (to, op.name2))
        if not done and op.owns(op.ino) and not op.flags & EXCHANGE and op.ino in self.files and not self.places(op.ino):
            self.link(Op("link", op.epoch, op.ino, op.parent2, op.name2))
        if op.ino2 and not op.flags & EXCHANGE:
            self.end_names(op, op.ino2)

    def exchange(self, op, place, to):
        if not self.is_at(place, op.ino) or not self.is_at(to, op.ino2):
            return False
        moved, other = self.look_up(place), self.look_up(to)
        if moved in self.entries and self.is_below(to[0], moved) or other in self.entries and self.is_below(place[0], other):
            return False
        self.put(place, other)
        self.put(to, moved)
        return True

    def rename_over(self, op, place, to):
        if not self.is_at(place, op.ino):
            return False
        moved, old = self.look_up(place), self.look_up(to)
        if moved in self.entries and self.is_below(to[0], moved):
            return False
        if old is not None:
            is_same_kind = (old in self.entries) == (moved in self.entries)
            if not self.is_at(to, op.ino2) or old == moved or not is_same_kind or self.entries.get(old):
                return False
            self.remove_directory(to) if old in self.entries else self.lose(to)
        self.put(to, self.lose(place))
        return True

    def reap(self, op):
        if op.owns(op.ino) and op.ino in self.files:
            self.lose_all(op.ino)
            del self.files[op.ino]


def union_of(ops, kind=Union):
    union = kind()
    for op in ops:
        union.apply(op)
    return union.result()


# ---------------------------------------------------------------- operations at random

NAMES = "abcd"


def random_ops(rng, count, nodes):
    """Of each node, as if it had taken anything of the others at any time, or nothing: what it says of a name may be long past."""
    ops, directories, files, versions, past = [], [ROOT], [], {}, Union()
    seen = [(ROOT, "a", ROOT)]
    for number in range(count):
        epoch, word = rng.randrange(nodes) + 1, rng.choices(WORDS, WEIGHTS)[0]
        new, flags = epoch << 24 | number + 1, rng.choice([0, 0, ORPHAN, EXCHANGE])
        parent, name, ino = rng.choice(seen[-30:])
        parent2, name2, ino2 = rng.choice(seen[-30:])
        if rng.random() < 0.4:
            parent2, name2, ino2 = rng.choice(directories), rng.choice(NAMES), 0
        if word in ("mkdir", "create"):
            place = rng.choice(directories[-6:]), rng.choice(NAMES)
            op = Op(word, epoch, new, *place, version=int(word == "create"))
            (directories if word == "mkdir" else files).append(new)
        elif word == "write":
            chosen = rng.choice(files or [2])
            versions[chosen] = versions.get(chosen, 1) + 1
            op = Op(word, epoch, chosen, version=versions[chosen])
        elif word == "reap":
            op = Op(word, epoch, rng.choice(files or [2]))
        elif word == "link":
            op = Op(word, epoch, rng.choice(files or [2]), rng.choice(directories), rng.choice(NAMES))
        elif word == "unlink":
            op = Op(word, epoch, ino, parent, name, flags & ORPHAN)
        else:
            op = Op(word, epoch, ino, parent, name, flags, ino2, 0, parent2, name2)
        ops.append(op)
        past.apply(op)
        seen += [(parent, name, ino) for parent, name, ino in sorted(past.result()[0]) if ino == op.ino or rng.random() < 0.1]
    return ops


WORDS = ("mkdir", "create", "write", "link", "unlink", "rename", "reap")
WEIGHTS = (4, 5, 2, 1, 4, 6, 1)


def shrink(ops, fails):
    """A list of operations from which none can be left out so that it still fails."""
    size = len(ops) // 2
    while size:
        at = 0
        while at < len(ops):
            fewer = ops[:at] + ops[at + size :]
            if fails(fewer):
                ops = fewer
            else:
                at += size
        size //= 2
    return ops
