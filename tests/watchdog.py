# SPDX-License-Identifier: Apache-2.0
"""Ends a hang: a process of its own, because a page fault on a hung mount holds the interpreter's lock.

Reads lines `arm SECONDS`, `pids PID...` and `off` from stdin. When the time is over it prints where the
daemons stand (in short: into the file that it is given), kills them (which wakes every process that waits on their mounts) and
signals the test process.
"""
import collections
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

NOISE = re.compile(r"_*(GI_+)?(futex|libc|pthread_cond|start_thread|clone)")  # where every thread begins and waits


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
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def main():
    parent = os.getppid()
    end, pids, rest = None, [], b""
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([0], [], [], left)[0]:
            expire(parent, pids, sys.argv[1])
            end = None
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            words = line.split()
            if words[0] == b"off":
                end = None
            elif words[0] == b"arm":
                end = time.monotonic() + float(words[1])
            else:
                pids = [int(word) for word in words[1:]]


if __name__ == "__main__":
    main()
