# SPDX-License-Identifier: Apache-2.0
"""Several threads write one file at once: the kernel lets them with O_DIRECT, and each byte is right, without it too."""
import contextlib
import os
import random
import select
import subprocess
import sys
import threading

import pytest

import rig
from kept import need_kernel
from rig import KIB, MIB

pytestmark = pytest.mark.needs_mount

WRITERS = 4
STRIPE = 96 * KIB  # not a multiple of what a request carries: neighbours share pages of the stage's slabs
ROUNDS = 3
PWRITES = {"x86_64": 18, "aarch64": 67}
PWRITE = PWRITES.get(os.uname().machine)


LINUX_6_8 = {"fuse_minor": 39}  # the last protocol whose kernels let one thread at a time write a file


@pytest.fixture
def waiting(request, cairn, directory):
    """A mount, and how many of its requests the kernel waits for. Options of the mount are its parameter."""
    rig.need_root()
    cairn.mount(**getattr(request, "param", {}))
    control = rig.mkdir(os.path.join(directory, "fusectl"))
    rig.run("mount", "-t", "fusectl", "none", control)
    path = f"{control}/{os.minor(os.stat(cairn.mnt).st_dev)}/waiting"
    yield lambda: int(rig.read_file(path))
    rig.run("umount", control)


def in_threads(*functions):
    """Runs them at once; raises what any of them raised."""
    failed = []

    def guarded(function):
        try:
            function()
        except BaseException as error:  # noqa: B036: of another thread
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    return threads, failed


def joined(threads, failed):
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def open_file(directory, how, flags=0):
    path = os.path.join(directory, "file")
    if how == "opened":
        rig.write_file(path, b"")
    if how == "nameless":
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | flags, 0o600)
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)


@pytest.mark.parametrize("how", ["created", "opened", "nameless"])
def test_direct_writes_within_a_file_do_not_wait_for_each_other(cairn, waiting, how):
    """While the daemon is stopped, writes of two threads to one file both wait for it, and none for the other."""
    need_kernel(6, 9)
    fd = open_file(cairn.mnt, how, os.O_DIRECT)
    os.ftruncate(fd, 2 * MIB)
    parts = [os.urandom(MIB) for _ in range(2)]
    rig.poll(lambda: waiting() == 0, 10, "no request under way")
    with cairn.paused():
        running = in_threads(*(lambda number=number: os.pwrite(fd, parts[number], number * MIB) for number in range(2)))
        rig.poll(lambda: waiting() == 2, 10, "two requests that wait")
    joined(*running)
    assert os.pread(fd, 2 * MIB, 0) == b"".join(parts)
    os.close(fd)


def how_it_waits(thread):
    """Where it sleeps in a write: "S" for the answer of the daemon, "D" for another writer of the file; else None."""
    task = f"/proc/self/task/{thread.native_id}/"
    in_write = rig.read_text(task + "syscall").startswith(f"{PWRITE} ")
    return rig.read_text(task + "stat").rpartition(")")[2].split()[0] if in_write else None


@pytest.mark.skipif(os.uname().machine not in PWRITES, reason="skipped: the number of pwrite64 is not known here")
@pytest.mark.parametrize("waiting", [LINUX_6_8], indirect=True, ids=["linux-6.8"])
def test_on_linux_6_8_direct_writes_take_turns(cairn, waiting):
    """While the daemon is stopped, one of two writes to a file waits for it, and the other for the first."""
    fd = open_file(cairn.mnt, "created", os.O_DIRECT)
    os.ftruncate(fd, 2 * MIB)
    parts = [os.urandom(MIB) for _ in range(2)]
    rig.poll(lambda: waiting() == 0, 10, "no request under way")
    with cairn.paused():
        threads, failed = in_threads(*(lambda number=number: os.pwrite(fd, parts[number], number * MIB) for number in range(2)))
        rig.poll(lambda: sorted(map(str, map(how_it_waits, threads))) == ["D", "S"], 10, "two writers, one behind the other")
        assert waiting() == 1
    joined(threads, failed)
    assert os.pread(fd, 2 * MIB, 0) == b"".join(parts)
    os.close(fd)


# A process that begins before the daemon stands: to begin, it closes what it inherited, and the kernel tells the daemon.
MAPS = """
import mmap, sys
print("ready", flush=True)
sys.stdin.readline()
mapped = mmap.mmap(int(sys.argv[1]), 4096, access=mmap.ACCESS_READ)
print("mapped", flush=True)
"""


@pytest.mark.parametrize("how", ["created", "opened", "nameless"])
def test_a_map_does_not_wait_for_a_write(cairn, waiting, how):
    """While a write waits for the daemon, the file can be mapped shared. (A map that waits keeps the memory of its process
    locked: where that is the writer's, which needs more of its pages for the rest of its write, neither goes on.)"""
    fd = open_file(cairn.mnt, how)
    os.ftruncate(fd, MIB)
    with rig.opened(f"/proc/self/fd/{fd}", os.O_RDONLY) as reader:
        command = [sys.executable, "-c", MAPS, str(reader)]
        child = subprocess.Popen(command, pass_fds=[reader], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        rig.poll(lambda: waiting() == 0, 10, "no request under way")
        cairn.pause()
        try:
            running = in_threads(lambda: os.pwrite(fd, bytes(MIB), 0))
            rig.poll(lambda: waiting() == 1, 10, "a request that waits")
            child.stdin.write(b"\n")
            child.stdin.flush()
            assert select.select([child.stdout], [], [], 10 * rig.PATIENCE)[0], "it waits"
            assert child.stdout.readline() == b"mapped\n"
        finally:
            cairn.go_on()
            child.communicate()
        joined(*running)
    os.close(fd)


def stripes_of(writer, seed):
    """Where this writer's stripes are, in a random order, and what it writes there."""
    numbers = list(range(writer, 64 * WRITERS, WRITERS))
    random.Random(seed).shuffle(numbers)
    return [(number * STRIPE, rig.seeded_bytes(seed * 1000 + number, STRIPE)) for number in numbers]


@pytest.mark.parametrize("flags, kernel", [(os.O_DIRECT, {}), (os.O_DIRECT, LINUX_6_8), (0, {})], ids=["direct", "linux-6.8", "plain"])
def test_stripes_of_several_writers(cairn, flags, kernel):
    """Each writes its own stripes of a file, in pieces of any size, beside a reader; then again over them. All is as written, after a remount too."""
    cairn.mount(**kernel)
    path = rig.write_file(os.path.join(cairn.mnt, "file"), bytes(64 * WRITERS * STRIPE))
    for at in range(ROUNDS):
        work = [stripes_of(writer, 10 * at + writer) for writer in range(WRITERS)]

        def write(writer, work=work, at=at):
            sizes = random.Random(100 * at + writer)
            with rig.opened(path, os.O_RDWR | flags) as fd:
                for offset, data in work[writer]:
                    done = 0
                    while done < len(data):
                        done += os.pwrite(fd, data[done:done + sizes.choice([1, 4 * KIB, 50_000, STRIPE])], offset + done)
                    assert os.pread(fd, len(data), offset) == data

        joined(*in_threads(*(lambda writer=writer: write(writer) for writer in range(WRITERS)), lambda: rig.read_file(path)))
        wanted = b"".join(data for _, data in sorted(sum(work, [])))
        assert rig.read_file(path) == wanted
    cairn.remount()
    assert rig.read_file(path) == wanted


def test_appends_of_several_writers(mnt):
    """Beside writers within the file, each appended record is there once and whole, in the order of its writer."""
    path = rig.write_file(os.path.join(mnt, "file"), bytes(MIB))
    count, length = 300, 700

    def append(writer):
        with rig.opened(path, os.O_WRONLY | os.O_APPEND) as fd:
            for number in range(count):
                record = b"%d:%d;" % (writer, number)
                assert os.write(fd, record.ljust(length, b".")) == length

    def overwrite():
        with rig.opened(path, os.O_WRONLY | os.O_DIRECT) as fd:
            for number in range(count):
                os.pwrite(fd, bytes([number % 251]) * (MIB // 2), 0 if number % 2 else MIB // 2)

    joined(*in_threads(*(lambda writer=writer: append(writer) for writer in range(WRITERS)), overwrite))
    data = rig.read_file(path)
    assert data[:MIB] == bytes([(count - 1) % 251]) * (MIB // 2) + bytes([(count - 2) % 251]) * (MIB // 2)
    records = [data[at:at + length].rstrip(b".") for at in range(MIB, len(data), length)]
    for writer in range(WRITERS):
        assert [r for r in records if r.startswith(b"%d:" % writer)] == [b"%d:%d;" % (writer, number) for number in range(count)]
    assert len(records) == WRITERS * count


class Slot:
    """What one thread wrote to its place in the file: number after number. Each remembers what of all slots was there when it was begun."""

    def __init__(self, number, slots, flags):
        self.at, self.slots, self.flags = number * MIB, slots, flags
        self.begun = []  # for each number: the numbers of all slots that had been answered
        self.written = self.durable = 0

    def write(self, fd, length):
        number = len(self.begun) + 1
        self.begun.append([slot.written for slot in self.slots])
        if os.pwrite(fd, number.to_bytes(8, "little") * (length // 8), self.at) < length:
            raise OSError("the daemon died between the requests of a write")
        self.written = number
        if self.flags & os.O_DSYNC:
            self.durable = number

    def run(self, path):
        """Until the daemon dies."""
        dice = random.Random(self.at)
        fd = os.open(path, os.O_RDWR | os.O_DIRECT | self.flags)
        with contextlib.suppress(OSError):
            while True:
                self.write(fd, dice.choice([4 * KIB, 60 * KIB, MIB]))
                if not self.flags and dice.random() < 0.1:
                    before = [slot.written for slot in self.slots]
                    os.fsync(fd)
                    for slot, number in zip(self.slots, before):
                        slot.durable = max(slot.durable, number)
        with contextlib.suppress(OSError):
            os.close(fd)


@pytest.mark.parametrize("flags", [os.O_DSYNC, 0], ids=["dsync", "fsync"])
def test_power_loss_leaves_a_prefix_of_all_writers(cairn, flags, mnt):
    """What was durable is there; and whatever had been answered when something that is there was begun."""
    path = rig.write_synced(os.path.join(mnt, "file"), bytes(WRITERS * MIB))
    slots = []
    slots.extend(Slot(number, slots, flags) for number in range(WRITERS))
    running = in_threads(*(lambda slot=slot: slot.run(path) for slot in slots))
    rig.poll(lambda: min(slot.durable for slot in slots) > 20, 60, "durable writes of each")
    durable = [slot.durable for slot in slots]
    cairn.kill9()
    joined(*running)
    cairn.drop_stage()
    cairn.mount()
    data = rig.read_file(path)
    found = [int.from_bytes(data[slot.at:slot.at + 8], "little") for slot in slots]
    assert all(number >= least for number, least in zip(found, durable)), (found, durable)
    for slot, number in zip(slots, found):
        needed = slot.begun[number - 1]
        assert all(there >= least for there, least in zip(found, needed)), (found, number, needed)
