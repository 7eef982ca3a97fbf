# SPDX-License-Identifier: Apache-2.0
"""Ends a hang: a process of its own, because a page fault on a hung mount holds the interpreter's lock.

Reads lines `arm SECONDS SINCE` (SINCE: seconds since boot), `pids PID...` and `off` from stdin. When the time is over it prints where the
daemons stand (in short: into the file that it is given), kills them (which wakes every process that waits on their mounts) and
signals the test process. A test that goes on all the same may wait again, in an `__exit__` or in its fixtures, or for a process that
nobody has told of. So soon afterwards all processes that it began are killed, and it is signalled again; at last it is killed itself.
"""
import collections
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

NOISE = re.compile(r"_*(GI_+)?(futex|libc|pthread_cond|start_thread|clone)")  # where every thread begins and waits
MARK = "CAIRN_TESTS_PROCESS"  # in the environment of what a test process starts: its id
AGAIN = 30.0  # seconds from one strike to the next
TICKS = os.sysconf("SC_CLK_TCK")


def show(path, pid):
    try:
        with open(path) as file:
            text = file.read().strip()
    except OSError as error:
        text = str(error)
    print(f"--- {path}\n{text}", file=sys.stderr, flush=True)


def show_process(pid):
    show(f"/proc/{pid}/status", pid)
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        for name in ("wchan", "stack"):
            show(f"/proc/{pid}/task/{task}/{name}", pid)


def backtrace(pid):
    if not shutil.which("gdb"):
        return "gdb is not installed"
    command = ["gdb", "-batch", "-ex", "thread apply all bt", "-p", str(pid)]
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60).stdout
    except subprocess.TimeoutExpired:
        return "gdb did not end"


def in_short(pid, text):
    """A line for all threads that stand in the same place: their names, and the calls that they are in, the innermost first."""
    threads = re.split(r'^Thread \d+ \(.*?"(.*?)".*$', text, flags=re.MULTILINE)
    lines = collections.Counter()
    for name, frames in zip(threads[1::2], threads[2::2]):
        calls = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?([^ (]+)", frames, flags=re.MULTILINE)
        lines[f"{name}: {' < '.join([call for call in calls if not NOISE.match(call)][:10])}"] += 1
    return "\n".join(f"{pid} {count} x {line}" for line, count in lines.items()) or f"{pid}: {text[-200:]}"


def expire(parent, pids, path):
    print(f"\nwatchdog: time is over; daemons {pids}", file=sys.stderr, flush=True)
    show_process(parent)
    with open(path, "w") as file:
        for pid in pids:
            show_process(pid)
            text = backtrace(pid)
            print(text, file=sys.stderr, flush=True)
            print(in_short(pid, text), file=file)
    os.kill(parent, signal.SIGALRM)
    kill(pids)


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def begun_by(parent, since):
    """Processes that have the mark of the test process in their environment, and began after `since`."""
    mark, found = f"{MARK}={parent}".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                is_marked = mark in file.read().split(b"\0")
            with open(f"/proc/{pid}/stat", "rb") as file:
                ticks = int(file.read().rpartition(b")")[2].split()[19])
            if is_marked and ticks >= int(since * TICKS):
                found.append(int(pid))
    return found


class Guard:
    """The limit of one test, and how often it was over."""

    def __init__(self, parent, path):
        self.parent, self.path = parent, path
        self.end, self.pids = None, []
        self.again = self.since = self.strikes = 0

    def left(self):
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    def obey(self, word, *arguments):
        if word == b"off":
            self.end = None
        elif word == b"arm":
            seconds, self.since = map(float, arguments)
            self.strikes, self.again = 0, min(seconds, AGAIN)
            self.end = time.monotonic() + seconds
        else:
            self.pids = [int(argument) for argument in arguments]

    def strike(self):
        self.strikes += 1
        if self.strikes == 1:
            expire(self.parent, self.pids, self.path)
        elif self.strikes == 2:
            kill(begun_by(self.parent, self.since))
            os.kill(self.parent, signal.SIGALRM)
        else:
            print(f"\nwatchdog: {self.parent} does not end", file=sys.stderr, flush=True)
            os.kill(self.parent, signal.SIGKILL)
        self.end = time.monotonic() + self.again


def main():
    guard, rest = Guard(os.getppid(), sys.argv[1]), b""
    while True:
        if not select.select([0], [], [], guard.left())[0]:
            if os.getppid() != guard.parent:  # a fork of it has our standard input
                return
            guard.strike()
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            guard.obey(*line.split())


if __name__ == "__main__":
    main()
