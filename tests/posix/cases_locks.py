# SPDX-License-Identifier: Apache-2.0
"""Locks between processes and descriptors: flock, fcntl, OFD."""
import contextlib
import fcntl
import itertools
import os
import struct

from script import in_process, opened, put, script

F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38
KINDS = {"read": fcntl.F_RDLCK, "write": fcntl.F_WRLCK, "none": fcntl.F_UNLCK}


def lock(fd, command, kind, start, length):
    return fcntl.fcntl(fd, command, struct.pack("hhqqi4x", KINDS[kind], 0, start, length, 0)) and "locked"


def asked(fd, command, kind, start, length):
    kind, _, start, length, pid = struct.unpack("hhqqi4x",
                                                fcntl.fcntl(fd, command, struct.pack("hhqqi4x", KINDS[kind], 0, start, length, 0)))
    return kind, start, length, -1 if pid == -1 else pid > 0


def elsewhere(function):
    """In another process, with its own descriptor."""
    def run():
        with opened("file") as fd:
            return function(fd)
    return in_process(run)


@script
def flocks(s):
    put("file")
    modes = {"shared": fcntl.LOCK_SH, "exclusive": fcntl.LOCK_EX, "none": fcntl.LOCK_UN}
    for (mine, m), (theirs, t) in itertools.product(modes.items(), modes.items()):
        with opened("file") as fd:
            fcntl.flock(fd, m)
            s.note(f"{mine} {theirs}", elsewhere(lambda other: fcntl.flock(other, t | fcntl.LOCK_NB)))
            with opened("file") as second:
                s.call(f"{mine} {theirs} own second", fcntl.flock, second, t | fcntl.LOCK_NB)
            duplicate = os.dup(fd)
            os.close(duplicate)
            s.note(f"{mine} {theirs} after a duplicate's close", elsewhere(lambda other: fcntl.flock(other, t | fcntl.LOCK_NB)))
        s.note(f"{mine} {theirs} after close", elsewhere(lambda other: fcntl.flock(other, t | fcntl.LOCK_NB)))


@script
def fcntl_locks(s):
    put("file", b"x" * 1000)
    for mine, theirs, (start, length) in s.some(("read", "write", "none"), ("read", "write"),
                                                ((0, 0), (0, 10), (10, 10), (15, 100), (20, 1), (19, 1))):
        with opened("file") as fd:
            lock(fd, fcntl.F_SETLK, mine, 10, 10)
            label = f"{mine} {theirs} {start} {length}"
            s.note(label, elsewhere(lambda other: lock(other, fcntl.F_SETLK, theirs, start, length)))
            s.note(f"{label} asked", elsewhere(lambda other: asked(other, fcntl.F_GETLK, theirs, start, length)))
            with opened("file", os.O_RDONLY):
                pass  # closing any descriptor drops the locks of the process, also one that writes nothing
            s.note(f"{label} dropped", elsewhere(lambda other: lock(other, fcntl.F_SETLK, theirs, start, length)))


@script
def ofd_locks(s):
    put("file", b"x" * 1000)
    for mine, theirs, (start, length) in itertools.product(("read", "write"), ("read", "write"), ((0, 0), (0, 10), (10, 10), (19, 1))):
        with opened("file") as fd, opened("file") as second:
            lock(fd, F_OFD_SETLK, mine, 10, 10)
            label = f"{mine} {theirs} {start} {length}"
            s.call(f"{label} second", lock, second, F_OFD_SETLK, theirs, start, length)
            s.call(f"{label} asked", asked, second, F_OFD_GETLK, theirs, start, length)
            lock(second, F_OFD_SETLK, "none", 0, 0)
            s.note(f"{label} elsewhere", elsewhere(lambda other: lock(other, fcntl.F_SETLK, theirs, start, length)))
            with opened("file"):
                pass
            s.note(f"{label} kept", elsewhere(lambda other: lock(other, fcntl.F_SETLK, theirs, start, length)))


@script
def lock_errors(s):
    put("file")
    for (name, flags), kind in itertools.product({"r": os.O_RDONLY, "w": os.O_WRONLY}.items(), ("read", "write")):
        with opened("file", flags) as fd:
            s.call(f"{name} {kind}", lock, fd, fcntl.F_SETLK, kind, 0, 0)
            s.call(f"{name} {kind} below 0", lock, fd, fcntl.F_SETLK, kind, -5, 2)
            s.call(f"{name} {kind} flock", fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with opened("file") as fd:
        s.call("lease", fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        s.call("no kind", fcntl.flock, fd, 0)


@script
def lock_is_waited_for(s):
    """A blocked locker goes on when the holder unlocks, or ends."""
    put("file")
    for how in ("unlock", "end"):
        ready, release = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                fd = os.open("file", os.O_RDWR)
                fcntl.lockf(fd, fcntl.LOCK_EX)
                os.write(ready[1], b"x")
                os.read(release[0], 1)
                if how == "unlock":
                    fcntl.lockf(fd, fcntl.LOCK_UN)
            os._exit(0)
        os.read(ready[0], 1)
        with opened("file") as fd:
            s.call(f"{how} busy", fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(release[1], b"x")
            s.call(f"{how} then", fcntl.lockf, fd, fcntl.LOCK_EX)
        os.waitpid(pid, 0)
        for end in (*ready, *release):
            os.close(end)
