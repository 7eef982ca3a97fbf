#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The judge of a history (history.py): whether a directory is what the recorded operations allow.

It replays the log on a model: a dict of names, and for every inode its live content (what a
reader of the mount sees) and its sealed content (what a cut may contain).
- check_live: after the daemon's death. Every acknowledged operation is there, byte for byte, open
  files included; an operation in flight may or may not have happened, a write in part.
- check_cut: after power loss. What is left equals the sealed state after some prefix of the history
  that contains every returned fsync. So a marker is never there without the data before it.

    judge.py --dir DIR --log LOG --view live|cut
"""
import argparse
import errno
import functools
import hashlib
import itertools
import os
import stat
import sys

import numpy

from history import bytes_of, digest, length, read_log, resized, written

DEATH = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ESTALE, errno.EIO, errno.EINTR}
IDLE_SEAL = 4.5  # seconds after which the filesystem may seal an idle draft by itself
OLD_DRAFT = 55.0  # seconds after which it may seal one that is still being written


# ---------------------------------------------------------------- what was recorded

class Op:
    """One operation: how it was called, what it returned, where in the log both happened."""

    def __init__(self, line, at):
        self.name, self.number, self.args = line["op"], line["n"], line
        self.begin, self.begin_time = at, line["t"]
        self.end = self.end_time = self.error = self.ret = None
        self.idle = False  # nothing happened on the file for so long afterwards that it may have been sealed
        self.any_time = False  # it may have been sealed between two requests of this operation, too

    def finish(self, line, at):
        self.end, self.end_time, self.error, self.ret = at, line["t"], line["err"], line["ret"]

    @property
    def in_flight(self):
        return self.end is None or self.error in DEATH

    @property
    def failed(self):
        return self.error not in (None, 0) and self.error not in DEATH

    def __str__(self):
        shown = {key: value for key, value in self.args.items() if key not in ("k", "n", "t", "op")}
        return f"#{self.number} {self.name} {shown}"


class History:
    def __init__(self, log, idle=IDLE_SEAL, exited=False):
        self.ops, self.violations, by_number = [], [], {}
        last_time = 0.0
        for line in read_log(log):
            last_time = line["t"]
            if line["k"] == "B":
                op = by_number[line["n"]] = Op(line, line["at"])
                self.ops.append(op)
            elif line["k"] == "E":
                by_number[line["n"]].finish(line, line["at"])
            elif line["k"] == "V":
                self.violations.append(line["what"])
        self.find_idle(idle, last_time, exited)

    def find_idle(self, idle, last_time, exited):
        """Mark the operations after which the filesystem may have sealed the draft by itself."""
        last, opened = {}, {}
        for op in self.ops:
            handle = op.args.get("h")
            if handle is None:
                continue
            opened.setdefault(handle, op.begin_time)
            before = last.get(handle)
            if before and before.end_time and op.begin_time - before.end_time >= idle:
                before.idle = True
            op.idle = op.begin_time - opened[handle] >= OLD_DRAFT
            op.any_time = op.idle or idle == 0
            last[handle] = op
        for op in last.values():
            if exited or op.end_time is None or last_time - op.end_time >= idle:
                op.idle = True

    def last_sync(self, mark):
        """Where the last fsync began that had returned before the mark."""
        syncs = [op.begin for op in self.ops if op.name in ("fsync", "fsyncdir") and op.end and op.end <= mark and op.error == 0]
        return max(syncs, default=0)


# ---------------------------------------------------------------- the model

class Inode:
    def __init__(self):
        self.live = ()
        self.sealed = None
        self.maybe = []  # contents that a seal in the background may have kept
        self.maybe_torn = []  # (before, after) of writes that such a seal may have kept in part
        self.torn = []  # (before, after) of writes in flight

    def seal(self):
        self.sealed = self.live
        self.maybe.clear()
        self.maybe_torn.clear()

    def draft(self, op, content):
        if op.any_time:
            self.maybe_torn.append((self.live, content))
        self.live = content
        if op.idle:
            self.maybe.append(content)


class Model:
    """Names and inodes after some operations."""

    def __init__(self):
        self.names = {}  # path -> ("d",) | ("l", target) | ("w",) | ("f", Inode)
        self.handles = {}

    def apply(self, op, torn=False):
        getattr(self, "do_" + op.name)(op, torn)

    def below(self, path):
        return [name for name in self.names if name == path or name.startswith(path + "/")]

    def seal_below(self, path):
        for name in self.below(path):
            if self.names[name][0] == "f":
                self.names[name][1].seal()

    def do_mkdir(self, op, torn):
        self.names[op.args["p"]] = ("d",)

    def do_symlink(self, op, torn):
        self.names[op.args["p"]] = ("l", op.args["target"])

    def do_unlink(self, op, torn):
        self.names.pop(op.args["p"], None)

    do_rmdir = do_unlink

    def do_link(self, op, torn):
        self.seal_below(op.args["p"])
        self.names[op.args["q"]] = self.names[op.args["p"]]

    def do_rename(self, op, torn):
        p, q = op.args["p"], op.args["q"]
        self.seal_below(p)
        if self.names[p] is self.names.get(q):
            return
        moved = {q + name[len(p) :]: self.names.pop(name) for name in self.below(p)}
        self.names.update(moved)

    def do_exchange(self, op, torn):
        p, q = op.args["p"], op.args["q"]
        self.seal_below(p)
        self.seal_below(q)
        first = {q + name[len(p) :]: self.names.pop(name) for name in self.below(p)}
        second = {p + name[len(q) :]: self.names.pop(name) for name in self.below(q)}
        self.names.update(first)
        self.names.update(second)

    def do_whiteout(self, op, torn):
        self.do_rename(op, torn)
        self.names[op.args["p"]] = ("w",)

    def do_open(self, op, torn):
        entry = self.names.get(op.args["p"])
        new = entry is None
        if new:
            entry = self.names[op.args["p"]] = ("f", Inode())
        inode = self.handles[op.args["h"]] = entry[1]
        if new or op.args["trunc"]:
            inode.draft(op, ())

    def do_nameless(self, op, torn):
        self.handles[op.args["h"]] = Inode()

    def do_name(self, op, torn):
        inode = self.handles[op.args["h"]]
        self.names[op.args["p"]] = ("f", inode)
        inode.seal()

    def do_write(self, op, torn):
        inode, args = self.handles[op.args["h"]], op.args
        count = args["size"] if op.ret is None else op.ret
        at = length(inode.live) if args["off"] is None else args["off"]
        after = written(inode.live, at, args["seed"], args["size"], count)
        if torn:
            inode.torn.append((inode.live, after))
        inode.draft(op, after)

    def do_ftruncate(self, op, torn):
        inode = self.handles[op.args["h"]]
        after = resized(inode.live, op.args["size"])
        if torn:
            inode.torn.append((inode.live, after))
        inode.draft(op, after)

    def do_fsync(self, op, torn):
        self.handles[op.args["h"]].seal()

    def do_close(self, op, torn):
        self.handles.pop(op.args["h"]).seal()

    def do_fsyncdir(self, op, torn):
        pass


DATA_OPS = ("write", "ftruncate")
NO_LIVE_EFFECT = ("fsync", "fsyncdir", "close")


# ---------------------------------------------------------------- what is left

class Left:
    """One file that is left; its bytes are read when they are needed."""

    def __init__(self, path, info):
        self.path, self.inode, self.size = path, info.st_ino, info.st_size

    @functools.cached_property
    def data(self):
        with open(self.path, "rb") as file:
            return file.read()

    @functools.cached_property
    def digest(self):
        return hashlib.blake2b(self.data, digest_size=16).hexdigest()


def look(root):
    """Everything below root: path -> ("d",) | ("l", target) | ("w",) | ("f", Left)."""
    found = {}
    for directory, _, _ in os.walk(root):
        for entry in os.scandir(directory):
            info = entry.stat(follow_symlinks=False)
            name = os.path.relpath(entry.path, root)
            if stat.S_ISDIR(info.st_mode):
                found[name] = ("d",)
            elif stat.S_ISLNK(info.st_mode):
                found[name] = ("l", os.readlink(entry.path))
            elif stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
                found[name] = ("w",)
            else:
                found[name] = ("f", Left(entry.path, info))
    return found


def snapshot(root):
    """A comparable picture of everything below root."""
    return {
        name: (entry[1].size, entry[1].digest, entry[1].inode) if entry[0] == "f" else entry
        for name, entry in look(root).items()
    }


def is_partial(data, before, after):
    """Is this file what a write in flight may leave: the beginning of the new, the rest of the old?"""
    old, new = bytes_of(before), bytes_of(after)
    if data in (old, new):
        return True
    if len(data) > len(new) or len(data) < len(old):
        return False
    same = common_prefix(data, new)
    return same == len(data) if len(data) > len(old) else data[same:] == old[same:]


def common_prefix(a, b):
    size = min(len(a), len(b))
    x, y = numpy.frombuffer(a, numpy.uint8, size), numpy.frombuffer(b, numpy.uint8, size)
    differ = numpy.flatnonzero(x != y)
    return int(differ[0]) if len(differ) else size


def content_matches(left, contents, torn):
    for content in contents:
        if length(content) == left.size and digest(content) == left.digest:
            return True
    return any(is_partial(left.data, *pair) for pair in torn)


def describe(left, contents):
    sizes = [length(content) for content in contents]
    zero = " all zeros," if left.size and not any(left.data) else ""
    return f"{left.size} bytes,{zero} expected the content of one of {len(sizes)} with sizes {sizes}"


def file_problem(name, inode, found, view):
    """What is wrong with one file of the model, or None."""
    if view == "live":
        contents, torn = [inode.live], inode.torn
    else:
        contents, torn = ([] if inode.sealed is None else [inode.sealed]) + inode.maybe, inode.torn + inode.maybe_torn
    if found is None:
        absent_is_right = view == "cut" and inode.sealed is None
        return None if absent_is_right else f"{name}: lost"
    if found[0] != "f":
        return f"{name}: not a file"
    if not contents and not torn:
        return f"{name}: there, though it was never sealed"
    if content_matches(found[1], contents, torn):
        return None
    return f"{name}: wrong content: {describe(found[1], contents)}"


def problems(model, found, view, limit=8):
    """Every difference between a model and what is left."""
    result, numbers = [], {}
    for name in found.keys() - model.names.keys():
        result.append(f"{name}: there, but should not be")
    for name, entry in model.names.items():
        if len(result) >= limit:
            break
        here = found.get(name)
        if entry[0] != "f":
            if here != entry:
                result.append(f"{name}: expected {entry}, found {here and here[0]}")
            continue
        problem = file_problem(name, entry[1], here, view)
        if problem:
            result.append(problem)
        elif here:
            numbers.setdefault(id(entry[1]), set()).add(here[1].inode)
    flat = [number for group in numbers.values() for number in group]
    if len(flat) != len(numbers) or len(set(flat)) != len(flat):
        result.append("hard links: names share inodes otherwise than they should")
    return result


class Violation(AssertionError):
    pass


def fail(what, history, lines):
    text = [what, *lines]
    text += [f"the writer saw: {line}" for line in history.violations[:5]]
    raise Violation("\n  ".join(text))


def check_live(root, log):
    """After the daemon's death: everything acknowledged, and nothing else. Returns the number of operations."""
    history = History(log)
    if history.violations:
        fail("reads were wrong", history, [])
    maybe = [op for op in history.ops if op.in_flight and op.name not in DATA_OPS + NO_LIVE_EFFECT]
    found, best = look(root), None
    for count in range(len(maybe), -1, -1):
        for chosen in itertools.combinations(maybe, count):
            try:
                wrong = problems(replay_live(history, chosen), found, "live")
            except KeyError:
                continue
            if not wrong:
                return len(history.ops)
            if best is None or len(wrong) < len(best):
                best = wrong
    fail(f"after the crash {root} is not what was acknowledged", history, [*best, *(f"in flight: {op}" for op in maybe)])


def replay_live(history, chosen):
    model = Model()
    for op in history.ops:
        if op.failed and op.name not in DATA_OPS:
            continue
        if op.in_flight or op.failed:
            if op.name in DATA_OPS and op.args["h"] in model.handles:
                leave_torn(model, op)
            elif op in chosen:
                model.apply(op)
        else:
            model.apply(op)
    return model


def leave_torn(model, op):
    """A data operation in flight: its effect is allowed, in part or whole, but not expected."""
    inode = model.handles[op.args["h"]]
    before = inode.live
    model.apply(op, torn=True)
    inode.live = before


def check_cut(root, log, mark, end_mark=None, idle=IDLE_SEAL, torn=False, exited=False):
    """After power loss: a prefix with every fsync that had returned at `mark`. Returns (position, operations).

    end_mark: the log's length after the cut; nothing called later can be part of what is left.
    exited: the writers were killed before the cut (the kernel closed their files).
    idle=0: drafts may be sealed at any time, in the middle of a write that takes several requests, too.
    idle=0 and torn=True describe a filesystem whose every write may become durable by itself.
    """
    history = History(log, idle, exited)
    least = history.last_sync(mark)
    end_mark = os.path.getsize(log) if end_mark is None else end_mark
    found, model, best, count = look(root), Model(), None, 0
    candidates = itertools.chain([None], (op for op in history.ops if op.begin <= end_mark))
    for op in candidates:
        if op is not None:
            if op.failed:
                continue
            flying = op.end is None or op.end > mark
            model.apply(op, torn=torn and flying)
            count += 1
        if op is not None and op.begin < least or op is None and least > 0:
            continue
        wrong = problems(model, found, "cut")
        if not wrong:
            return count, len(history.ops)
        if best is None or len(wrong) < len(best[1]):
            best = op, wrong
    fail(
        f"after the power cut {root} is no prefix that contains every returned fsync",
        history,
        [f"nearest: after {best[0]} of {count} operations", *best[1]],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--view", choices=("live", "cut"), default="live")
    parser.add_argument("--mark", type=int)
    parser.add_argument("--end-mark", type=int)
    args = parser.parse_args()
    try:
        if args.view == "live":
            print(f"{check_live(args.dir, args.log)} operations, all there")
        else:
            mark = args.mark if args.mark is not None else os.path.getsize(args.log)
            print("prefix: %d of %d operations" % check_cut(args.dir, args.log, mark, args.end_mark))
    except Violation as violation:
        sys.exit(str(violation))


if __name__ == "__main__":
    main()
