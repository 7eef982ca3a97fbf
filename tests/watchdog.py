"""Ends a hang: a process of its own, because a page fault on a hung mount holds the interpreter's lock.

Reads lines `arm SECONDS`, `pids PID...` and `off` from stdin. When the time is over it prints where the
daemons stand, kills them (which wakes whoever waits on their mounts) and signals the test process.
"""
import os
import select
import shutil
import signal
import subprocess
import sys
import time


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


def show_backtrace(pid):
    if not shutil.which("gdb"):
        return
    command = ["gdb", "-batch", "-ex", "thread apply all bt", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        print(done.stdout, file=sys.stderr, flush=True)
    except subprocess.TimeoutExpired:
        print("gdb did not end", file=sys.stderr, flush=True)


def expire(parent, pids):
    print(f"\nwatchdog: time is over; daemons {pids}", file=sys.stderr, flush=True)
    show_process(parent)
    for pid in pids:
        show_process(pid)
        show_backtrace(pid)
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
            expire(parent, pids)
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
