# SPDX-License-Identifier: Apache-2.0
"""CAIRN_LAZY=1: whatever a program makes visible after a torch.save, in this process or in another rank, comes after the name of the
file."""
import contextlib
import ctypes
import errno
import mmap
import multiprocessing
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time

import numpy
import pytest
import torch

import rig
from processes import free_port
from training import Training, needs

pytestmark = pytest.mark.needs_mount
HERE = os.path.dirname(os.path.abspath(__file__))
libc = ctypes.CDLL(None, use_errno=True)


def is_there(path):
    """As another process sees it."""
    return libc.access(os.fsencode(path), 0) == 0


def beside(path, name="beside"):
    return os.path.join(os.path.dirname(path), name)


@contextlib.contextmanager
def directory_of(path):
    with rig.opened(os.path.dirname(path), os.O_RDONLY) as number:
        yield number


def use_directory(act):
    def done(path):
        with directory_of(path) as number:
            return act(number)

    return done


def message(make, send):
    def done(path):
        ends = done.ends = make()
        return send(*ends)

    return done


def connect(path):
    with contextlib.closing(sqlite3.connect(beside(path))) as base:
        base.execute("create table saved (step)")


def save_by_torch(path):
    with torch.serialization.skip_data():
        torch.save({"a": torch.ones(1)}, beside(path))


def script():
    return torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1, 1))


# What a program does behind a save.
ACTS = {
    "mknod": lambda path: os.mknod(beside(path)),
    "mkfifo": lambda path: os.mkfifo(beside(path)),
    "sqlite3": connect,
    "torch.jit.save": lambda path: torch.jit.save(script(), beside(path)),
    "a method of a script": lambda path: script().save(beside(path)),
    "a writer of torch": lambda path: torch._C.PyTorchFileWriter(beside(path)).write_end_of_file(),
    "a save that torch writes itself": save_by_torch,
    "from_file": lambda path: torch.from_file(beside(path), shared=True, size=1),
    "remove a link to elsewhere": lambda path: (libc.symlink(b"/", os.fsencode(beside(path))), os.remove(beside(path))),
    "symlink": lambda path: os.symlink("x", beside(path)),
    "utime": os.utime,
    "chmod": lambda path: os.chmod(path, 0o600),
    "listdir of a descriptor": use_directory(os.listdir),
    "chmod of a descriptor": use_directory(lambda number: os.chmod(number, 0o755)),
    "stat with a directory": use_directory(lambda number: os.stat("state.pt", dir_fd=number)),
    "stat with a number of numpy": use_directory(lambda number: os.stat("state.pt", dir_fd=numpy.int64(number))),
    "open with a directory": use_directory(lambda number: os.close(os.open("beside", os.O_CREAT | os.O_RDWR, dir_fd=number))),
    "mkdir with a directory": use_directory(lambda number: os.mkdir("directory", dir_fd=number)),
    "fork": lambda path: os.waitpid(os.fork() or os._exit(0), 0),
    "socket": message(socket.socketpair, lambda one, other: one.sendall(b"x")),
    "Pipe": message(multiprocessing.Pipe, lambda one, other: one.send(1)),
    "pipe": message(os.pipe, lambda one, other: os.write(other, b"x")),
    "Queue": message(lambda: [torch.multiprocessing.get_context("fork").Queue()], lambda queue: queue.put(1)),
    "SimpleQueue": message(lambda: [torch.multiprocessing.get_context("fork").SimpleQueue()], lambda queue: queue.put(1)),
    "Event": message(lambda: [torch.multiprocessing.get_context("fork").Event()], lambda event: event.set()),
    "HashStore": lambda path: torch.distributed.HashStore().set("saved", "1"),
}


@pytest.mark.timeout(300)
def test_every_act_waits(cairn, lane):
    """The save is on its way when the act begins, and has its name when it ends."""
    cairn.mount(stage="512M")
    lane.install(lazy=True)
    from cairnfs import _process

    for number, (name, act) in enumerate(ACTS.items()):
        os.mkdir(directory := os.path.join(cairn.mnt, str(number)))
        training, path = Training(), os.path.join(directory, "state.pt")
        torch.save(training.state(), path)
        assert _process.current().pending, f"{name}: the save is not lazy"
        kept = act(path)
        assert is_there(path), f"{name} did not wait"
        del kept


def test_a_small_save_after_a_large_one(cairn, lane):
    """The second torch.save returns at once, and its file has its name when that of the first one is there."""
    cairn.mount(stage="512M")
    lane.install(lazy=True)
    from cairnfs import _process

    for _ in range(3):
        training, paths = Training(), [os.path.join(cairn.mnt, name) for name in ("step1.pt", "latest.pt")]
        torch.save(training.state(), paths[0])
        torch.save({"latest": "step1.pt"}, paths[1])
        assert len(_process.current().pending) == 2, "one of them is not lazy"
        while not is_there(paths[1]):
            pass
        assert is_there(paths[0])
        for path in paths:
            os.remove(path)


@contextlib.contextmanager
def map_of_torch(path):
    found = torch.from_file(path, shared=True, size=1)
    yield
    del found


@contextlib.contextmanager
def map_of_python(path):
    with open(path, "w+b") as file:
        file.truncate(4096)
        found = mmap.mmap(file.fileno(), 4096)
    with found:
        yield


WRITERS = {
    "a log": lambda path: open(path, "a"),
    "a database": lambda path: contextlib.closing(sqlite3.connect(path)),
    "a map": map_of_python,
    "a map of torch": map_of_torch,
}


def test_what_is_open_for_writing(cairn, lane):
    """Writes to it are not seen, so torch.save returns when the file is there; and at once again when all is closed."""
    cairn.mount(stage="512M")
    lane.install(lazy=True)
    from cairnfs import _process

    training = Training()
    for number, (name, writer) in enumerate(WRITERS.items()):
        path = os.path.join(cairn.mnt, f"{number}.pt")
        with writer(os.path.join(cairn.mnt, f"{number}.log")):
            torch.save(training.state(), path)
            assert is_there(path) and not _process.current().pending, f"{name} can be written to before the file has its name"
    torch.save(training.state(), path)
    assert _process.current().pending, "nothing is open any more, and the save was not lazy"


ENDS = {
    "exec": 'os.execv(sys.executable, [sys.executable, "-c", ""])',
    "exec of a program": 'os.execvp("true", ["true"])',
    "_exit": "os._exit(0)",
    "kill": "os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("how", ["torch.save", "cairnfs.save"])
def test_no_end_drops_a_save(cairn, programs, how):
    """exec() replaces the process: the file is there all the same. So it is, under CAIRN_LAZY, after _exit() and a signal to oneself."""
    cairn.mount(stage="512M")
    code = f"""
import os, sys, torch, cairnfs
sys.path.insert(0, {HERE!r})
from training import Training, needs
if {how!r} == "torch.save":
    cairnfs.install(lazy=True)
training = Training()
for way, end in {ENDS!r}.items():
    if os.fork() == 0:
        path = {cairn.mnt!r} + "/" + way
        torch.save(training.state(), path) if {how!r} == "torch.save" else cairnfs.save(training.state(), path)
        exec(end)
        os._exit(0)
    os.wait()
"""
    subprocess.run([sys.executable, "-c", code], env=programs, check=True)
    expected = set(ENDS) if how == "torch.save" else {"exec", "exec of a program"}
    assert {name for name in os.listdir(cairn.mnt) if not name.startswith(".")} >= expected


@pytest.mark.filterwarnings("ignore")
def test_a_save_that_failed(cairn, lane):
    """The next change of a file raises its error, once: a marker that speaks of it is not written, an older checkpoint not removed.
    What was saved while it was under way fails, too."""
    cairn.mount(stage="512M")
    lane.install(lazy=True)
    training, latest = Training(), os.path.join(cairn.mnt, "latest")
    acts = (lambda: rig.write_file(latest, b"1.pt"), lambda: os.remove(os.path.join(cairn.mnt, "0.pt")), lambda: torch.save({}, latest))
    torch.save({}, os.path.join(cairn.mnt, "0.pt"))
    for act in acts:
        training = Training()
        torch.save(training.state(), os.path.join(cairn.mnt, "1.pt"))
        torch.save({}, os.path.join(cairn.mnt, "2.pt"))
        with torch.no_grad():
            training.model.weight.add_(1)
        from cairnfs import _process

        rig.poll(lambda: not _process.current().pending, 30, "the end of the saves")
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.errno == errno.EBADMSG and caught.value.filename.endswith("1.pt")
        assert sorted(os.listdir(cairn.mnt)) == ["0.pt"]
        with contextlib.suppress(OSError):  # that of 2.pt
            rig.write_file(latest, b"x")
        rig.write_file(latest, b"0.pt")
        os.remove(latest)


WAYS = 31  # of meeting.py


@pytest.mark.timeout(300)
def test_every_way_to_meet(job):
    """Ranks that know of each other's saves by any means, seen or not: the marker of rank 0 comes after the shard of rank 1."""
    missing, found, codes = job.run("all", "open")
    assert codes == [0, 0] and len(found) == WAYS
    assert not missing
    assert set(job.lazy) >= {"all_reduce", "all_reduce, large", "all_gather", "gather_object", "gradients", "send"}, "they waited for names"


@pytest.mark.timeout(300)
def test_every_act_after_a_meeting(job):
    missing, found, codes = job.run("all_reduce", "all")
    assert codes == [0, 0] and len(found) == 6
    assert not missing


@pytest.mark.timeout(3600)
def test_kills_of_every_way(job, rng, full):
    """kill -9 of both ranks when the marker is there, then at a random moment between the save and the marker's end: the marker implies the
    shard of rank 1. Each way by --full, a seeded tenth without."""
    text = rig.read_file(os.path.join(HERE, "meeting.py")).decode()
    ways = re.findall(r'^    "(.*?)": ', text.partition("WAYS = {")[2].partition("\n}")[0], re.MULTILINE)
    assert len(ways) == WAYS
    with_marker = kills = 0
    for way in ways if full else rng.sample(ways, round(WAYS / 10)):
        _, _, codes = job.run(way, "open", "kill")
        left = job.take_names()
        assert codes == [-signal.SIGKILL, -signal.SIGKILL], (way, codes)
        assert kinds(left) >= {"latest", "shard1"}, (way, left)
        left = job.kill_within(way, seconds := 0.6 * rng.random())
        assert "latest" not in kinds(left) or "shard1" in kinds(left), (way, left)
        kills, with_marker = kills + 1, with_marker + ("latest" in kinds(left))
        print(f"they meet by {way}, killed {seconds:.3f} s after the save: {left}")
    print(f"{with_marker} of {kills} kills left the marker")
    assert not full or 0 < with_marker < kills, "the moments of the kills say nothing"


def kinds(names):
    return {name.partition("-")[0] for name in names}


@pytest.mark.timeout(120)
def test_saves_around_a_group(job):
    """A rank saves before init_process_group(), and again behind a second one: its next act learns of the new order, and goes on."""
    code = """
import os, sys, torch
import torch.distributed as dist
path = os.path.join(sys.argv[1], os.environ["RANK"])
torch.save({"a": torch.ones(1 << 20)}, path)
for number in (1, 2):
    os.environ["MASTER_PORT"] = sys.argv[1 + number]
    dist.init_process_group("gloo")
    open(path + f".{number}", "w").close()
    torch.save({"a": torch.ones(1 << 20)}, path)
    dist.barrier()
    dist.destroy_process_group()
"""
    with job.ranks(free_port(), free_port(), script=job.script(code)) as ranks:
        assert [rank.wait(rig.PATIENCE * 60) for rank in ranks] == [0, 0]
    assert sorted(os.listdir(job.mnt)) == ["0", "0.1", "0.2", "1", "1.1", "1.2"]


@pytest.mark.parametrize("end", ["os._exit(0)", 'os.execvp("true", ["true"])'], ids=["_exit", "exec"])
def test_an_end_gives_up(stall, programs, end):
    """A filesystem that hangs does not hold the process for more than CAIRN_EXIT_WAIT, and it says what was not saved."""
    code = f"""
import os, sys, torch, cairnfs
from cairnfs import _process
sys.path.insert(0, {HERE!r})
from training import Training
cairnfs.install(lazy=True)
training = Training()
while True:
    torch.save(training.state(), sys.argv[1])
    print("saved", flush=True)
    sys.stdin.readline()
    _process.current().look()
    print(len(_process.current().pending), flush=True)
    if sys.stdin.readline() == "end\\n":
        {end}
"""
    path = os.path.join(stall.mount.mnt, "state.pt")
    with subprocess.Popen([sys.executable, "-c", code, path], env={**programs, "CAIRN_EXIT_WAIT": "1"}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1) as program:
        def is_held():
            """Where the machine is slow to stop the daemon, the save has its name before that: it is done again."""
            assert program.stdout.readline() == "saved\n"
            stall.stop()
            program.stdin.write("stopped\n")
            if program.stdout.readline() != "0\n":
                return True
            stall.go()
            program.stdin.write("again\n")
            return False

        rig.poll(is_held, 60, "a save that the daemon holds in the middle")
        program.stdin.write("end\n")
        said = program.stderr.readline()
        stall.go()
        program.communicate(timeout=60)
    assert said == f"cairnfs: {path} is not saved after 1 s: given up\n"


@pytest.mark.timeout(300)
def test_a_rank_that_dies(job):
    """Its save will never have its name: the marker of rank 0 is not written, and says why."""
    _, found, codes = job.run("all_reduce", "open", "dies")
    assert codes == [1, -signal.SIGKILL] and not found
    assert not [name for name in os.listdir(job.mnt) if name.startswith(("latest", "shard1"))]


# What save_state() writes, in this order.
STATES = ["model.safetensors", "optimizer.bin", "scheduler.bin", "random_states_0.pkl"]
KEPT = 3


def check_states(path):
    """A file of a checkpoint implies the earlier ones, and those that are whole are as many as are kept."""
    names = sorted(os.listdir(path), key=lambda name: int(name.rpartition("_")[2])) if os.path.exists(path) else []
    for name in names:
        found = set(os.listdir(os.path.join(path, name)))
        is_removed = name == names[0] and len(names) == KEPT  # just then
        assert found == set(STATES[: len(found)]) or is_removed, (name, found)
        if name != names[-1] and name != names[0]:
            assert found == set(STATES), f"{name} is not the newest, and has {found}"
    for name in names[-2:-1]:
        torch.load(os.path.join(path, name, "optimizer.bin"))
    return names


@pytest.mark.timeout(3600)
def test_kills_of_accelerate(cairn, programs, rng, full):
    """kill -9 within save_state(), twice (100 with --full): no later file is there without the earlier ones, nor a checkpoint without the
    one before it."""
    needs("accelerate", "safetensors")
    cairn.mount(stage="512M")
    command = [sys.executable, "-W", "ignore", "-m", "cairnfs.run", os.path.join(HERE, "accelerated.py")]
    whole = 0
    for number in range(100 if full else 2):
        path = os.path.join(cairn.mnt, str(number))
        trainer = subprocess.Popen([*command, path], env={**programs, "CAIRN_LAZY": "1", "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE)
        try:
            for _ in range(rng.randrange(2, 7)):
                assert trainer.stdout.readline() == b"saved\n"
            time.sleep(rng.random() * 0.2)
        finally:
            trainer.kill()
            trainer.wait()
            trainer.stdout.close()
        names = check_states(os.path.join(path, "checkpoints"))
        print(f"killed with {names}")
        whole += len(names) > 1
    assert whole, "none was killed behind a checkpoint"
