#!/usr/bin/env python3
"""The history checker: a training-like writer whose every operation is recorded, and a judge.

The writer: several rank processes save checkpoints into one folder. Each operation is recorded in a
log on another filesystem: a line when it is called (B), a line when it returned (E). Operations that
change names or seal a file (open, close, fsync, rename, link, ...) happen under one lock, so their
order in the log is the order in which they happened; writes to files, each of which belongs to one
rank, run freely in between.

The judge replays the log on a model: a dict of names, and for every inode its live content (what a
reader of the mount sees) and its sealed content (what a cut may contain).
- check_live: after the daemon's death. Every acknowledged operation is there, byte for byte, open
  files included; an operation in flight may or may not have happened, a write in part.
- check_cut: after power loss. What is left equals the sealed state after some prefix of the history
  that contains every returned fsync. So a marker is never there without the data before it.

    history.py write --dir DIR --log LOG --ranks 3 --seed 1 --seconds 5
    history.py check --dir DIR --log LOG --view live|cut
"""
import argparse
import ctypes
import errno
import fcntl
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time

import numpy

AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
RENAME_EXCHANGE, RENAME_WHITEOUT = 2, 4
DEATH = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ESTALE, errno.EIO, errno.EINTR}
IDLE_SEAL = 4.5  # seconds after which the filesystem may seal an idle draft by itself
OLD_DRAFT = 55.0  # seconds after which it may seal one that is still being written
LIBC = ctypes.CDLL(None, use_errno=True)


# ---------------------------------------------------------------- contents

@functools.lru_cache(maxsize=256)
def data_of(seed, size):
    """The bytes of one write: a function of its seed and size."""
    return numpy.random.Generator(numpy.random.PCG64(seed)).bytes(size)


def length(content):
    return sum(piece[3] for piece in content)


def cut_content(content, start, end):
    """Bytes [start, end) of a content; a content is a tuple of (seed, size, offset, length) pieces."""
    result, at = [], 0
    for seed, size, offset, count in content:
        low, high = max(start, at), min(end, at + count)
        if low < high:
            result.append((seed, size, offset + low - at, high - low))
        at += count
    return tuple(result)


def resized(content, size):
    now = length(content)
    if size <= now:
        return cut_content(content, 0, size)
    return content + ((None, 0, 0, size - now),)


def written(content, offset, seed, size, count):
    """The content after the first `count` bytes of a write of data_of(seed, size) at offset."""
    if count == 0:
        return content
    end = offset + count
    base = resized(content, max(length(content), end))
    tail = cut_content(base, end, length(base))
    return cut_content(base, 0, offset) + ((seed, size, 0, count),) + tail


def bytes_of(content):
    parts = []
    for seed, size, offset, count in content:
        parts.append(bytes(count) if seed is None else data_of(seed, size)[offset : offset + count])
    return b"".join(parts)


@functools.lru_cache(maxsize=65536)
def digest(content):
    return hashlib.blake2b(bytes_of(content), digest_size=16).hexdigest()


# ---------------------------------------------------------------- the writer

class Stop(Exception):
    """An operation failed: this rank ends."""


class Recorder:
    """Does operations on a folder and records each of them."""

    def __init__(self, root, log, rank=0):
        self.root, self.rank, self.count = root, rank, 0
        self.log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.lock_fd = os.open(log + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.fds = {}
        self.live = {}  # handle -> content, for reading back
        self.record({"k": "P", "pid": os.getpid()})

    def record(self, line):
        os.write(self.log_fd, json.dumps({**line, "t": time.monotonic()}).encode() + b"\n")

    def path(self, name):
        return os.path.join(self.root, name)

    def call(self, op, function, **args):
        self.count += 1
        number = f"{self.rank}.{self.count}"
        self.record({"k": "B", "n": number, "op": op, **args})
        try:
            ret, error = function(), 0
        except OSError as failure:
            ret, error = None, failure.errno
        self.record({"k": "E", "n": number, "err": error, "ret": ret if isinstance(ret, int) else None})
        if error:
            raise Stop(f"{op} {args}: {os.strerror(error)}")
        return ret

    def ordered(self, op, function, **args):
        fcntl.flock(self.lock_fd, fcntl.LOCK_EX)
        try:
            return self.call(op, function, **args)
        finally:
            fcntl.flock(self.lock_fd, fcntl.LOCK_UN)

    # names
    def mkdir(self, p):
        self.ordered("mkdir", lambda: os.mkdir(self.path(p)), p=p)

    def rmdir(self, p):
        self.ordered("rmdir", lambda: os.rmdir(self.path(p)), p=p)

    def unlink(self, p):
        self.ordered("unlink", lambda: os.unlink(self.path(p)), p=p)

    def symlink(self, target, p):
        self.ordered("symlink", lambda: os.symlink(target, self.path(p)), p=p, target=target)

    def link(self, p, q):
        self.ordered("link", lambda: os.link(self.path(p), self.path(q)), p=p, q=q)

    def rename(self, p, q):
        self.ordered("rename", lambda: os.rename(self.path(p), self.path(q)), p=p, q=q)

    def exchange(self, p, q):
        self.ordered("exchange", lambda: exchange(self.path(p), self.path(q)), p=p, q=q)

    def whiteout(self, p, q):
        self.ordered("whiteout", lambda: whiteout(self.path(p), self.path(q)), p=p, q=q)

    def sync_folder(self, p):
        self.ordered("fsyncdir", lambda: sync_folder(self.path(p)), p=p)

    def remove_tree(self, p):
        for entry in list(os.scandir(self.path(p))):
            name = os.path.join(p, entry.name)
            if entry.is_dir(follow_symlinks=False):
                self.remove_tree(name)
            else:
                self.unlink(name)
        self.rmdir(p)

    # files
    def open(self, p, flags):
        handle = f"{self.rank}.{self.count + 1}"
        truncates = bool(flags & os.O_TRUNC)

        def function():
            self.fds[handle] = os.open(self.path(p), flags, 0o644)

        self.ordered("open", function, p=p, h=handle, trunc=truncates)
        known = flags & (os.O_TRUNC | os.O_EXCL)
        self.live[handle] = () if known else None
        return handle

    def open_nameless(self, folder):
        handle = f"{self.rank}.{self.count + 1}"

        def function():
            self.fds[handle] = os.open(self.path(folder), os.O_TMPFILE | os.O_RDWR, 0o644)

        self.ordered("nameless", function, h=handle)
        self.live[handle] = ()
        return handle

    def name(self, handle, p):
        self.ordered("name", lambda: name_last(self.fds[handle], self.path(p)), h=handle, p=p)

    def write(self, handle, size, seed, offset=None):
        """One write call (append if there is no offset); returns how much it took."""
        data, fd = data_of(seed, size), self.fds[handle]
        function = (lambda: os.write(fd, data)) if offset is None else (lambda: os.pwrite(fd, data, offset))
        took = self.call("write", function, h=handle, off=offset, size=size, seed=seed)
        live = self.live[handle]
        if live is not None:
            at = length(live) if offset is None else offset
            self.live[handle] = written(live, at, seed, size, took)
        return took

    def ftruncate(self, handle, size):
        self.call("ftruncate", lambda: os.ftruncate(self.fds[handle], size), h=handle, size=size)
        if self.live[handle] is not None:
            self.live[handle] = resized(self.live[handle], size)

    def read_back(self, handle):
        """What was just written is read, from the draft."""
        if self.live[handle] is None:
            return
        want = bytes_of(self.live[handle])
        try:
            got = os.pread(self.fds[handle], len(want) + 1, 0)
        except OSError as failure:
            raise Stop(f"read: {failure}") from failure
        if got != want[: len(got)] or (len(got) != len(want) and len(want) < 1 << 20):
            self.record({"k": "V", "what": f"read of handle {handle} differs from what was written"})

    def fsync(self, handle):
        self.ordered("fsync", lambda: os.fsync(self.fds[handle]), h=handle)

    def close(self, handle):
        fd = self.fds.pop(handle)
        self.ordered("close", lambda: os.close(fd), h=handle)


def renameat2(p, q, flags):
    if LIBC.renameat2(AT_FDCWD, p.encode(), AT_FDCWD, q.encode(), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def name_last(fd, path):
    """os.link() does not follow symbolic links."""
    if LIBC.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, path.encode(), AT_SYMLINK_FOLLOW):
        raise OSError(ctypes.get_errno(), "linkat")


def exchange(p, q):
    renameat2(p, q, RENAME_EXCHANGE)


def whiteout(p, q):
    renameat2(p, q, RENAME_WHITEOUT)


def sync_folder(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
READ_WRITE_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Rank:
    """One process of a training job."""

    def __init__(self, args, rank, barrier):
        self.rank, self.barrier, self.args = rank, barrier, args
        self.random = random.Random(f"{args.seed} {rank}")
        self.rec = Recorder(args.dir, args.log, rank)
        self.journal = None
        self.end = time.monotonic() + args.seconds

    def seed(self):
        return self.random.randrange(1 << 40)

    def size(self):
        """Some kilobytes to some megabytes, most of them small."""
        return max(1, int(self.args.shard * self.random.random() ** 2))

    def fill(self, handle, total):
        """Append `total` bytes in writes of any size."""
        while total:
            take = min(total, self.random.choice((4096, 65536, 262144, 1 << 20, self.random.randrange(1, 70000))))
            total -= self.rec.write(handle, take, self.seed())

    def shard_appended(self, path):
        handle = self.rec.open(path, WRITE_NEW)
        self.fill(handle, self.size())
        self.rec.close(handle)

    def shard_synced(self, path):
        handle = self.rec.open(path, WRITE_NEW)
        self.fill(handle, self.size())
        self.rec.fsync(handle)
        self.rec.close(handle)

    def shard_renamed(self, path):
        """As safetensors: ftruncate, write, rename, and only then close."""
        temporary = path + ".tmp"
        handle = self.rec.open(temporary, READ_WRITE_NEW)
        total = self.size()
        self.rec.ftruncate(handle, total)
        pieces = list(range(0, total, max(1, total // 5)))
        self.random.shuffle(pieces)
        for offset in pieces:
            self.rec.write(handle, min(max(1, total // 5), total - offset), self.seed(), offset)
        self.rec.read_back(handle)
        self.rec.rename(temporary, path)
        self.rec.close(handle)

    def shard_named_last(self, path):
        """Made without a name (O_TMPFILE)."""
        handle = self.rec.open_nameless(os.path.dirname(path))
        self.fill(handle, self.size())
        if self.random.random() < 0.3:
            self.rec.fsync(handle)
        self.rec.name(handle, path)
        if self.random.random() < 0.3:
            self.rec.write(handle, 700, self.seed())
        self.rec.close(handle)

    def shard_edited(self, path):
        """Written, sealed, cut, written elsewhere with a hole in between."""
        handle = self.rec.open(path, READ_WRITE_NEW)
        total = self.size()
        self.fill(handle, total)
        if self.random.random() < 0.5:
            self.rec.fsync(handle)
        self.rec.ftruncate(handle, self.random.randrange(total + 1))
        self.rec.write(handle, 5000, self.seed(), total + 10000)
        self.rec.write(handle, 300, self.seed(), self.random.randrange(total + 1))
        self.rec.read_back(handle)
        self.rec.close(handle)

    def note(self):
        """A log that stays open for long."""
        if self.journal is None:
            self.journal = self.rec.open(f"log-{self.rank}", APPEND)
        for _ in range(self.random.randrange(1, 4)):
            self.rec.write(self.journal, self.random.randrange(1, 300), self.seed())
        if self.random.random() < 0.2:
            self.rec.close(self.journal)
            self.journal = None

    def small(self):
        """A small file, replaced as a whole, sometimes with fsync."""
        name = f"state-{self.rank}"
        handle = self.rec.open(name + ".new", WRITE_NEW)
        self.rec.write(handle, self.random.randrange(1, 9000), self.seed())
        if self.random.random() < 0.5:
            self.rec.fsync(handle)
        self.rec.close(handle)
        self.rec.rename(name + ".new", name)

    def marker(self, name, step):
        """Truncated and rewritten in place, as `latest` is."""
        handle = self.rec.open(name, WRITE_NEW)
        self.rec.write(handle, 16, step + 1)
        self.rec.close(handle)

    def begin(self, step):
        self.rec.mkdir(f"step-{step}.tmp")

    def publish(self, step):
        """Metadata, then the folder's name, then the marker; then old steps go."""
        folder = f"step-{step}.tmp"
        handle = self.rec.open(f"{folder}/.metadata.tmp", WRITE_NEW)
        self.rec.write(handle, 3000, self.seed())
        if self.random.random() < 0.3:
            self.rec.fsync(handle)
        self.rec.close(handle)
        self.rec.rename(f"{folder}/.metadata.tmp", f"{folder}/.metadata")
        inner = self.rec.open(f"{folder}/log", APPEND)
        self.rec.write(inner, 100, self.seed())
        self.rec.rename(folder, f"step-{step}")
        self.rec.write(inner, 100, self.seed())
        self.rec.close(inner)
        if self.random.random() < 0.3:
            self.rec.sync_folder(".")
        self.marker("latest", step)
        self.extras(step)
        if step >= self.args.keep:
            self.rec.remove_tree(f"step-{step - self.args.keep}")

    def extras(self, step):
        folder = f"step-{step}"
        self.rec.link(f"{folder}/.metadata", f"{folder}/metadata-link")
        if step % 3 == 0:
            self.rec.symlink(folder, f"last.{step}")
            self.rec.rename(f"last.{step}", "last")
        if step % 4 == 0:
            self.rec.link(f"{folder}/shard-0-0", f"best.{step}")
            self.rec.rename(f"best.{step}", "best")
        if step % 5 == 1:
            self.rec.exchange(f"{folder}/shard-0-0", f"{folder}/.metadata")
        if step % 2:
            self.rec.whiteout(f"{folder}/shard-0-0", f"{folder}/shard")

    def step(self, number):
        if self.rank == 0:
            self.begin(number)
        self.barrier.wait()
        for index in range(1 + self.random.randrange(2)):
            style = self.random.choice((self.shard_appended, self.shard_synced, self.shard_renamed, self.shard_edited, self.shard_named_last))
            style(f"step-{number}.tmp/shard-{self.rank}-{index}")
            self.note()
        self.small()
        self.barrier.wait()
        if self.rank == 0:
            self.publish(number)
        if self.args.pause:
            time.sleep(self.random.random() * self.args.pause)

    def run(self):
        number = 0
        while number < self.args.steps and time.monotonic() < self.end:
            self.step(number)
            number += 1


def run_rank(args, rank, barrier):
    job = Rank(args, rank, barrier)
    try:
        try:
            job.run()
        except threading.BrokenBarrierError:
            pass  # another rank has ended
        for handle in list(job.rec.fds):
            job.rec.close(handle)
    except Stop as stop:
        print(f"rank {rank}: {stop}", flush=True)
    finally:
        barrier.abort()


def write_main(args):
    os.makedirs(args.dir, exist_ok=True)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(args.ranks)
    ranks = [context.Process(target=run_rank, args=(args, rank, barrier)) for rank in range(args.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()


class Writers:
    """The writer as a child of a test."""

    def __init__(self, folder, log, seed, ranks=3, seconds=60.0, **options):
        os.mkdir(folder)
        self.folder, self.log = folder, log
        command = [sys.executable, os.path.abspath(__file__), "write", "--dir", folder, "--log", log]
        command += ["--seed", str(seed), "--ranks", str(ranks), "--seconds", str(seconds)]
        for key, value in options.items():
            command += ["--" + key, str(value)]
        self.proc = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)

    def pids(self):
        return [line["pid"] for line in read_log(self.log) if line["k"] == "P"]

    def wait(self, timeout=300.0):
        """Wait until every rank ended by itself."""
        self.proc.wait(timeout)

    def kill(self, timeout=300.0):
        """All ranks at one instant: stopped first, so that none goes on when another is dead."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try:
                os.killpg(self.proc.pid, number)
            except ProcessLookupError:
                break
        self.proc.wait(timeout)
        end = time.monotonic() + timeout
        for pid in self.pids():
            while os.path.exists(f"/proc/{pid}") and not is_zombie(pid):
                if time.monotonic() > end:
                    raise TimeoutError(f"rank process {pid} does not end")
                time.sleep(0.01)

    def mark(self):
        """How long the log is now."""
        try:
            return os.path.getsize(self.log)
        except FileNotFoundError:
            return 0


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


# ---------------------------------------------------------------- the history

class Op:
    """One operation: how it was called, what it returned, where in the log both happened."""

    def __init__(self, line, at):
        self.name, self.number, self.args = line["op"], line["n"], line
        self.begin, self.begin_time = at, line["t"]
        self.end = self.end_time = self.error = self.ret = None
        self.idle = False  # nothing happened on the file for so long afterwards that it may have been sealed

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


def read_log(path, limit=None):
    """The lines of a log; a last line that was cut off is left out."""
    try:
        with open(path, "rb") as file:
            raw = file.read() if limit is None else file.read(limit)
    except FileNotFoundError:
        return []
    lines, at = [], 0
    for part in raw.split(b"\n")[:-1]:
        at += len(part) + 1
        lines.append({**json.loads(part), "at": at})
    return lines


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
        self.torn = []  # (before, after) of writes in flight

    def seal(self):
        self.sealed = self.live
        self.maybe.clear()

    def draft(self, op, content):
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
    for folder, _, _ in os.walk(root):
        for entry in os.scandir(folder):
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
        contents = [inode.live]
    else:
        contents = ([] if inode.sealed is None else [inode.sealed]) + inode.maybe
    if found is None:
        absent_is_right = view == "cut" and inode.sealed is None
        return None if absent_is_right else f"{name}: lost"
    if found[0] != "f":
        return f"{name}: not a file"
    if not contents and not inode.torn:
        return f"{name}: there, though it was never sealed"
    if content_matches(found[1], contents, inode.torn):
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


def check_main(args):
    try:
        if args.view == "live":
            print(f"{check_live(args.dir, args.log)} operations, all there")
        else:
            mark = args.mark if args.mark is not None else os.path.getsize(args.log)
            print("prefix: %d of %d operations" % check_cut(args.dir, args.log, mark, args.end_mark))
    except Violation as violation:
        sys.exit(str(violation))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    write = verbs.add_parser("write")
    write.set_defaults(run=write_main)
    write.add_argument("--ranks", type=int, default=3)
    write.add_argument("--seed", type=int, default=1)
    write.add_argument("--seconds", type=float, default=5.0)
    write.add_argument("--steps", type=int, default=1_000_000)
    write.add_argument("--keep", type=int, default=2)
    write.add_argument("--shard", type=int, default=3 << 20, help="largest shard in bytes")
    write.add_argument("--pause", type=float, default=0.0, help="longest pause between steps")
    check = verbs.add_parser("check")
    check.set_defaults(run=check_main)
    check.add_argument("--view", choices=("live", "cut"), default="live")
    check.add_argument("--mark", type=int)
    check.add_argument("--end-mark", type=int)
    for sub in (write, check):
        sub.add_argument("--dir", required=True)
        sub.add_argument("--log", required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
