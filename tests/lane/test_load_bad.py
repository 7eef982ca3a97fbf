# SPDX-License-Identifier: Apache-2.0
"""Loads that go wrong: an exception, and never a tensor that is filled in part; interrupts; files that change meanwhile."""
import errno
import os
import platform
import select
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest
import torch

import processes
import rig
from loading import bits, compare, outcome, zeroed


def state_of(seed=3):
    torch.manual_seed(seed)
    return {"a": torch.randn(900_000), "b": torch.randn(70), "c": {"d": torch.randn(400_000).bfloat16(), "n": 5}}


@pytest.fixture
def path(directory):
    path = os.path.join(directory, "state.pt")
    torch.save(state_of(), path)
    return path


@pytest.mark.parametrize("make", [lambda path: None, os.mkdir, lambda path: os.symlink(path, path), lambda path: rig.write_file(path, b""),
                                  lambda path: rig.write_file(path, b"no archive"), lambda path: rig.write_file(path, b"PK\3\4")],
                         ids=["none", "directory", "circle", "empty", "text", "zip"])
def test_what_is_no_file(lane, directory, make):
    """The exception that torch.load raises."""
    make(path := os.path.join(directory, "x.pt"))
    _, theirs = outcome(torch.load, path)
    _, ours = outcome(lane.load, path)
    assert type(ours) is type(theirs) and getattr(ours, "errno", None) == getattr(theirs, "errno", None), (ours, theirs)
    assert getattr(ours, "filename", path) in (path, None)


def test_cut_files(lane, path):
    """Cut anywhere: an exception, as by torch.load."""
    data = rig.read_file(path)
    for length in [4, 30, 500, 1_000_000, len(data) // 2, *range(len(data) - 3000, len(data), 97), len(data) - 1]:
        rig.write_file(path, data[:length])
        found, why = outcome(lane.load, path)
        assert found is None and isinstance(why, (RuntimeError, OSError, ValueError)), (length, found)
        assert outcome(torch.load, path)[0] is None


def directory_of(data):
    """(place of the directory, its end)"""
    _, _, _, _, _, length, offset, _ = struct.unpack("<4s4H2IH", data[-22:])
    return offset, offset + length


def entry_of(data, name):
    """Place of the directory's entry."""
    begin, end = directory_of(data)
    return data.index(name, begin, end) - 46


def patched(data, place, *values):
    return data[:place] + b"".join(values) + data[place + sum(map(len, values)) :]


def header_of(data, at):
    """Place of the local header of the entry at `at`."""
    return struct.unpack("<I", data[at + 42 : at + 46])[0]


def both_sizes(size):
    return lambda data, at: patched(data, at + 20, struct.pack("<2I", size, size))


SPOILT = {
    "beyond the end": (both_sizes(1 << 31), RuntimeError, "invalid header"),
    "over the next": (both_sizes(4_000_000), ValueError, "overlaps the next one"),
    "shorter": (both_sizes(999), ValueError, "has 999 bytes, and the pickle says 3600000"),
    "wide": (both_sizes(0xFFFFFFFF), RuntimeError, None),
    "place": (lambda data, at: patched(data, at + 42, struct.pack("<I", 0xFFFFFFF0)), RuntimeError, "invalid header"),
    "stored": (lambda data, at: patched(data, at + 20, struct.pack("<I", 3_600_001)), RuntimeError, "invalid header"),
    "directory": (lambda data, at: patched(data, at + 38, b"\x10"), ValueError, "is marked as a directory"),
    "local header": (lambda data, at: patched(data, header_of(data, at), b"PK\1\2"), RuntimeError, "is damaged"),
    "local name": (lambda data, at: patched(data, header_of(data, at) + 30, b"X"), RuntimeError, "is damaged"),
    "local length": (lambda data, at: patched(data, header_of(data, at) + 28, b"\1\0"), RuntimeError, "is damaged"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_spoilt_archives(lane, path, name):
    """Records that cannot be: an error before a tensor is handed out, by weights_only and without; `into` is not written to if the
    directory is wrong, and is told to be a mixture if a header is."""
    spoil, kind, text = SPOILT[name]
    data = rig.read_file(path)
    rig.write_file(path, spoil(data, entry_of(data, b"state/data/0")))
    into = zeroed(state_of())
    for how in ({}, {"weights_only": False}, {"into": into}):
        with pytest.raises(kind, match=text) as caught:
            lane.load(path, **how)
    assert not into["a"].any() or "are a mixture" in str(caught.value)


def test_random_damage(lane, ways, path, rng, full):
    """Bytes of the archive are changed by chance: an exception, or exactly what torch.load gives. 10^5 cases with --full."""
    torch.save({"a": torch.arange(40), "b": torch.arange(9.0), "c": torch.ones(300, dtype=torch.bool)}, path)
    data = rig.read_file(path)
    begin, _ = directory_of(data)
    loaded = 0
    for _ in range(100_000 if full else 600):
        spoilt = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.choice([rng.randrange(begin, len(data)), rng.randrange(len(data))])
            spoilt[at] = rng.choice([0, 255, spoilt[at] ^ 1 << rng.randrange(8), rng.randrange(256)])
        rig.write_file(path, bytes(spoilt))
        ours, why = outcome(lane.load, path)
        if why is None and "torch" not in ways:  # which then may give memory that it has not read
            theirs, refused = outcome(torch.load, path)
            assert refused is None, refused
            compare(ours, theirs)
            loaded += 1
        ways.clear()
    assert loaded > 50


def find_in_packs(store, needle):
    """(pack, place) of bytes that are stored as they are."""
    for directory, _, names in os.walk(os.path.join(store, "packs")):
        for name in names:
            at = rig.read_file(pack := os.path.join(directory, name)).find(needle)
            if at >= 0:
                return pack, at
    raise AssertionError("the data lies in no pack as it is")


@pytest.mark.needs_mount
@pytest.mark.noise
def test_damaged_chunk(lane, cairn, rng):
    """One byte of a pack is another: EIO that names the file, no object. `into` is told to be a mixture, and what was filled is right."""
    cairn.mount()
    path = os.path.join(cairn.mnt, "state.pt")
    state = {name: torch.frombuffer(bytearray(rig.seeded_bytes(rng.random(), size)), dtype=torch.uint8)
             for name, size in (("a", 5 << 20), ("b", 70), ("c", 3_000_000))}
    lane.save(state, path, lazy=False).result()
    cairn.umount()
    cairn.drop_stage()
    rig.flip(*find_in_packs(cairn.store, bits(state["c"])[1_500_000:1_500_064]))
    cairn.mount()
    for how in ({}, {"weights_only": False}):
        with pytest.raises(OSError, match="read of .*state.pt at [0-9]+: Input/output error") as caught:
            lane.load(path, **how)
        assert caught.value.errno == errno.EIO and caught.value.filename == path and "cairn status" in str(caught.value)
    into = zeroed(state)
    mixture = r"tensors of into are a mixture: [0-2] of 3 were filled, (a|b|c) is the first that was not"
    with pytest.raises(OSError, match=mixture) as caught:
        lane.load(path, into=into)
    assert caught.value.errno == errno.EIO and not torch.equal(into["c"], state["c"])
    assert "state.pt" in str(cairn.status()["damage"])


INTERRUPTED = """
import signal, sys, time, torch, cairnfs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
path, into = sys.argv[1], sys.argv[2] == "into"
targets = {"a": torch.zeros(8_000_000)} if into else None
print("begun", flush=True)
try:
    cairnfs.load(path, into=targets)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    if into:
        targets["a"].zero_()
        time.sleep(1)  # in which a read that was not waited for would write
        print("written" if targets["a"].any() else "clean", flush=True)
    sys.stdin.readline()
"""


FUTEX = {"x86_64": "202", "aarch64": "98"}[platform.machine()]


def threads_that_read(pid):
    """Threads of a load that are in a call of the kernel which is no wait for work."""
    found = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            call = rig.read_text(f"/proc/{pid}/task/{thread}/syscall").split()[0]
            found += rig.read_text(f"/proc/{pid}/task/{thread}/comm").strip() == "cairn-load" and call not in ("running", FUTEX)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


@pytest.mark.needs_mount
@pytest.mark.parametrize("kind", ["new", "into"])
def test_interrupt(lane, cairn, programs, kind):
    """Ctrl-C while the filesystem holds reads up: a load into memory of its own ends at once. One into tensors of the program ends when
    these reads have, and nothing is written afterwards."""
    cairn.mount(stage="1G")
    path = os.path.join(cairn.mnt, "state.pt")
    lane.save({"a": torch.arange(8_000_000.0) + 1}, path, lazy=False).result()
    program = subprocess.Popen([sys.executable, "-c", INTERRUPTED, path, kind], env=programs, text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    try:
        assert program.stdout.readline() == "begun\n"
        begin_and_stop(cairn, program.pid)
        program.send_signal(signal.SIGINT)
        if kind == "into":
            time.sleep(0.6)  # the interrupt has come by then, and the reads stand still
            assert threads_that_read(program.pid) > 0
            cairn.go_on()
        assert line_of(program) == "interrupted\n"
        if kind == "new":
            assert threads_that_read(program.pid) > 0, "the reads had ended before"
        else:
            assert program.stdout.readline() == "clean\n"
    finally:
        cairn.go_on()
        program.communicate("\n", timeout=60)
    assert program.returncode == 0


@pytest.mark.needs_mount
@pytest.mark.parametrize("kind", ["new", "into"])
def test_interrupt_while_the_remote_hangs(lane, cairn, programs, shm_directory, kind):
    """Ctrl-C returns within a second, also with `into`, and nothing is written to its tensors afterwards, when the remote answers. The load
    can be repeated then. A read of another program waits for the remote, signal or not."""
    cairn.mount(remote="dir:" + shm_directory)
    path = os.path.join(cairn.mnt, "state.pt")
    lane.save({"a": torch.arange(8_000_000.0) + 1}, path, lazy=False).result()
    cairn.wait_remote()
    cairn.umount()
    cairn.drop_stage()
    rig.shutil.rmtree(cairn.store)
    os.mkdir(cairn.store, 0o700)
    cairn.mount(remote="dir:" + shm_directory)
    with rig.opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_DIRECT) as fd:  # the pickle and the directory are here
        assert os.preadv(fd, [bytearray(1024)], 0) and os.preadv(fd, [bytearray(4096)], os.path.getsize(path) - 4096)
    helpers = processes.dir_helpers(cairn.proc.pid)
    assert helpers
    program = subprocess.Popen([sys.executable, "-c", INTERRUPTED, path, kind], env=programs, text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", PATIENT, path], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == "begun\n" and program.stdout.readline() == "begun\n"
        for helper in helpers:
            os.kill(helper, signal.SIGSTOP)
        other.stdin.write("\n")
        other.stdin.flush()
        rig.poll(lambda: processes.process_state(other.pid) == "D", 10, "a read that waits for the remote")
        rig.poll(lambda: threads_that_read(program.pid), 30, "a load that waits for the remote")
        other.send_signal(signal.SIGUSR1)
        begin = time.monotonic()
        program.send_signal(signal.SIGINT)
        assert line_of(program) == "interrupted\n"
        assert time.monotonic() - begin < 1 * rig.PATIENCE
        rig.poll(lambda: processes.process_state(other.pid) == "D", 10, "the other read, which goes on waiting")
        for helper in helpers:
            os.kill(helper, signal.SIGCONT)
        if kind == "into":
            assert program.stdout.readline() == "clean\n"
        assert other.stdout.readline() == "1000000\n"
    finally:
        for helper in helpers:
            os.kill(helper, signal.SIGCONT)
        program.communicate("\n", timeout=60)
        other.communicate(timeout=60)
    assert program.returncode == 0
    compare(lane.load(path), {"a": torch.arange(8_000_000.0) + 1})


PATIENT = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
print("begun", flush=True)
sys.stdin.readline()
print(os.preadv(fd, [bytearray(1_000_000)], 5 << 20))
"""


def line_of(program, seconds=30):
    """A line that must come while the filesystem holds reads up."""
    assert select.select([program.stdout], [], [], seconds)[0], "it does not end"
    return program.stdout.readline()


def begin_and_stop(cairn, pid):
    """The daemon stands still while the load is in its reads."""
    rig.poll(lambda: "cairn-load" in names_of_threads(pid), 30, "the threads of the load", 0.0001)
    cairn.pause()
    rig.poll(lambda: threads_that_read(pid), 10, "a read that is held up")


def names_of_threads(pid):
    names = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            names.append(rig.read_text(f"/proc/{pid}/task/{thread}/comm").strip())
        except FileNotFoundError:
            pass
    return names


class Meanwhile:
    """Does something to the file when the first targets are named."""

    def __init__(self, monkeypatch, function):
        from cairnfs import _reading

        original = _reading.Reading.get

        def get(reading, *args):
            function()
            return original(reading, *args)

        monkeypatch.setattr(_reading.Reading, "get", get)


@pytest.mark.parametrize("kind", ["plain", "mount"])
def test_file_that_changes(lane, path, request, monkeypatch, kind):
    """Renamed over during the load: the old file, whole. Removed: the same. Changed in place, or cut: an error."""
    if kind == "mount":
        cairn = request.getfixturevalue("cairn")
        cairn.mount()
        torch.save(state_of(), path := os.path.join(cairn.mnt, "state.pt"))
    torch.save(state_of(9), other := path + ".new")
    with monkeypatch.context() as patch:
        Meanwhile(patch, lambda: os.path.exists(other) and os.rename(other, path))
        compare(lane.load(path), state_of())
    compare(lane.load(path), state_of(9))
    changes = (lambda: rig.patch(path, 1_000_000, b"\1" * 9), errno.EBADMSG), (lambda: os.truncate(path, 1_000_000), errno.EIO)
    for change, number in changes:
        time.sleep(0.02)  # a clock of the kernel may be that coarse
        with monkeypatch.context() as patch:
            Meanwhile(patch, change)
            with pytest.raises(OSError) as caught:
                lane.load(path)
        assert caught.value.errno == number, caught.value
    torch.save(state_of(), path)
    with monkeypatch.context() as patch:
        Meanwhile(patch, lambda: os.path.exists(path) and os.unlink(path))
        compare(lane.load(path), state_of())


def test_without_memory(lane, directory):
    """A limit of the address space: MemoryError, and the process goes on."""
    torch.save({"a": torch.zeros(200 << 20, dtype=torch.uint8)}, path := os.path.join(directory, "state.pt"))

    def load():
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (120 << 20), used + (120 << 20)))
        for how in ({}, {"weights_only": False}):
            with pytest.raises(MemoryError, match="no memory for a tensor of 209715200 bytes"):
                lane.load(path, **how)

    rig.in_child(load)


def test_child_loads_by_itself(lane, path):
    """A fork has nothing of its parent's lane, and a load of its own."""
    state = state_of()  # here: OpenMP of a child that torch had run in would hang
    compare(lane.load(path), state)
    rig.in_child(lambda: compare(lane.load(path), state))


def test_loads_at_once(lane, path):
    """By many threads of the program."""
    problems = []

    def load():
        try:
            for _ in range(5):
                compare(lane.load(path), state_of_file)
        except BaseException as why:
            problems.append(why)

    state_of_file = torch.load(path)
    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_nothing_stays_open(lane, path):
    """Neither descriptors nor threads nor memory of loads, whatever they ended with."""
    lane.load(path)
    data = rig.read_file(path)
    rig.write_file(broken := path + ".broken", data[: len(data) // 2])

    def held():
        return len(os.listdir("/proc/self/fd")), names_of_threads(os.getpid()).count("cairn-load"), maps()

    def maps():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * 4096 // (100 << 20)

    before = held()
    for _ in range(40):
        lane.load(path)
        lane.load(path, weights_only=False)
        outcome(lane.load, broken)
        outcome(lane.load, path, into={"a": 1})
    assert held() == before


def test_without_the_library(python, path):
    """torch loads."""
    program = "import sys, torch, cairnfs; print(cairnfs.load(sys.argv[1])['c']['n'])"
    done = python.run(program, [path], {"CAIRN_LIBRARY": "/nowhere/libcairn.so.0"})
    assert done.stdout == "5\n", done.stderr
