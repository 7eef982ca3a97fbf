#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training-like writer whose every operation is recorded: the history that judge.py judges.

Several rank processes save checkpoints into one directory. Each operation is recorded in a
log on another filesystem: a line when it is called (B), a line when it returned (E). Operations that
change names or seal a file (open, close, fsync, rename, link, ...) happen under one lock, so their
order in the log is the order in which they happened; writes to files, each of which belongs to one
rank, run freely in between.

    history.py --dir DIR --log LOG --ranks 3 --seed 1 --seconds 5
"""
import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy

from rig import REDUCE, cached_content, poll, seeded_bytes, sync

AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
RENAME_EXCHANGE, RENAME_WHITEOUT = 2, 4
LIBC = ctypes.CDLL(None, use_errno=True)


# ---------------------------------------------------------------- contents

@cached_content(256)
def data_of(seed, size):
    """The bytes of one write: a function of its seed and size."""
    if REDUCE in os.environ:
        return seeded_bytes(seed, size)
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


@cached_content(65536)
def digest(content):
    return hashlib.blake2b(bytes_of(content), digest_size=16).hexdigest()


# ---------------------------------------------------------------- the writer

class Stop(Exception):
    """An operation failed: this rank ends."""


class Recorder:
    """Does operations on a directory and records each of them."""

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

    def sync_directory(self, p):
        self.ordered("fsyncdir", lambda: sync(self.path(p)), p=p)

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

    def open_nameless(self, directory):
        handle = f"{self.rank}.{self.count + 1}"

        def function():
            self.fds[handle] = os.open(self.path(directory), os.O_TMPFILE | os.O_RDWR, 0o644)

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

    def model(self):
        """One name whose content is replaced again and again, by truncation or by rename: with --reduce dense each may be stored by what no
        file has any more."""
        name, left = f"model-{self.rank}", min(self.args.shard, 1 << 20)
        temporary = name + ".new" if self.random.random() < 0.5 else name
        handle = self.rec.open(temporary, WRITE_NEW)
        while left:
            left -= self.rec.write(handle, left, self.seed())
        self.rec.close(handle)
        if temporary != name:
            self.rec.rename(temporary, name)

    def marker(self, name, step):
        """Truncated and rewritten in place, as `latest` is."""
        handle = self.rec.open(name, WRITE_NEW)
        self.rec.write(handle, 16, step + 1)
        self.rec.close(handle)

    def begin(self, step):
        self.rec.mkdir(f"step-{step}.tmp")

    def publish(self, step):
        """Metadata, then the directory's name, then the marker; then old steps go."""
        directory = f"step-{step}.tmp"
        handle = self.rec.open(f"{directory}/.metadata.tmp", WRITE_NEW)
        self.rec.write(handle, 3000, self.seed())
        if self.random.random() < 0.3:
            self.rec.fsync(handle)
        self.rec.close(handle)
        self.rec.rename(f"{directory}/.metadata.tmp", f"{directory}/.metadata")
        inner = self.rec.open(f"{directory}/log", APPEND)
        self.rec.write(inner, 100, self.seed())
        self.rec.rename(directory, f"step-{step}")
        self.rec.write(inner, 100, self.seed())
        self.rec.close(inner)
        if self.random.random() < 0.3:
            self.rec.sync_directory(".")
        self.marker("latest", step)
        self.extras(step)
        if step >= self.args.keep:
            self.rec.remove_tree(f"step-{step - self.args.keep}")

    def extras(self, step):
        directory = f"step-{step}"
        self.rec.link(f"{directory}/.metadata", f"{directory}/metadata-link")
        if step % 3 == 0:
            self.rec.symlink(directory, f"last.{step}")
            self.rec.rename(f"last.{step}", "last")
        if step % 4 == 0:
            self.rec.link(f"{directory}/shard-0-0", f"best.{step}")
            self.rec.rename(f"best.{step}", "best")
        if step % 5 == 1:
            self.rec.exchange(f"{directory}/shard-0-0", f"{directory}/.metadata")
        if step % 2:
            self.rec.whiteout(f"{directory}/shard-0-0", f"{directory}/shard")

    def step(self, number):
        if self.rank == 0:
            self.begin(number)
        self.barrier.wait()
        for index in range(1 + self.random.randrange(2)):
            style = self.random.choice((self.shard_appended, self.shard_synced, self.shard_renamed, self.shard_edited,
                                        self.shard_named_last))
            style(f"step-{number}.tmp/shard-{self.rank}-{index}")
            self.note()
        self.small()
        if self.random.random() < 0.3:
            self.model()
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


def write(args):
    os.makedirs(args.dir, exist_ok=True)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(args.ranks)
    ranks = [context.Process(target=run_rank, args=(args, rank, barrier)) for rank in range(args.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()


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


class Writers:
    """The writer as a child of a test."""

    def __init__(self, directory, log, seed, ranks=3, seconds=60.0, **options):
        os.mkdir(directory)
        self.directory, self.log = directory, log
        command = [sys.executable, os.path.abspath(__file__), "--dir", directory, "--log", log]
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


@contextlib.contextmanager
def writing(*args, ready=10_000, **options):
    """Writers that run: their log has some length. At the end they are killed."""
    writers = Writers(*args, **options)
    try:
        poll(lambda: writers.mark() > ready, 60, "the writers to run")
        yield writers
    finally:
        writers.kill()


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--shard", type=int, default=3 << 20, help="largest shard in bytes")
    parser.add_argument("--pause", type=float, default=0.0, help="longest pause between steps")
    write(parser.parse_args())


if __name__ == "__main__":
    main()
