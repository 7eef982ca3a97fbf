# SPDX-License-Identifier: Apache-2.0
"""CAIRN_LAZY=1, the order of several ranks: what it costs, process groups that are made again, ranks that die or fall silent."""
import contextlib
import os
import signal
import time

import pytest

import rig
from processes import free_port
from ranks import lines_of, next_line

pytestmark = pytest.mark.needs_mount

COMMON = """
import ctypes, json, os, sys, time
import torch, torch.distributed as dist
from cairnfs import _job, _process
libc = ctypes.CDLL(None)
mnt, elsewhere, rank = sys.argv[1], os.environ["ELSEWHERE"], int(os.environ["RANK"])
weight = torch.nn.Parameter(torch.ones(24 << 20))
optimizer = torch.optim.SGD([weight], lr=0.1)
weight.grad = torch.ones_like(weight)
optimizer.step()

def say(**what):
    print(json.dumps(what), flush=True)

def save(name):
    torch.save({"weight": weight}, os.path.join(mnt, name))
    return bool(_process.current().pending)

def calm_down():
    '''Polls until no save is under way on any rank, and this one's thread has ended its own: nothing signals that.'''
    limit = time.monotonic() + 60
    while not _job.is_calm() or _job._job.ticket is not None or _job._job.queue:
        assert time.monotonic() < limit, "saves do not end"
        time.sleep(0.1)  # a poll: each stat() is an act, at which a rank looks whether it is calm
        os.stat(mnt)

def fails(act):
    try:
        act()
    except OSError as why:
        return str(why)

"""

COSTS = COMMON + """
reads, read = [], _job.read

def counted(store):
    reads.append(1)
    return read(store)

def count(path):
    name = os.path.join(path, "file")
    open(name, "w").close()
    reads.clear()
    for _ in range(20):
        os.stat(name), os.listdir(path), os.utime(name), open(name, "a").close(), os.path.exists(os.path.join(path, "none"))
    return len(reads)

_job.read = counted
dist.init_process_group("gloo")
save(f"{rank}.pt")
dist.barrier()
calm_down()
if rank == 0:
    say(on=count(mnt), off=count(elsewhere), eager=not save(os.path.join(elsewhere, "x.pt")))
dist.barrier()
lazy = rank == 1 and save("again.pt")
dist.all_reduce(torch.ones(1))
if rank == 0:
    calm = _job.is_calm()
    open(os.path.join(mnt, "latest"), "w").close()
    say(calm=calm, there=libc.access(os.path.join(mnt, "again.pt").encode(), 0) == 0)
else:
    say(lazy=lazy)
dist.barrier()
"""


@pytest.mark.timeout(240)
def test_what_costs_no_message(job):
    """Acts on files that are not on CairnFS ask the store of the job for nothing, nor those on it while no rank saves. The next save of
    another rank is seen at once."""
    with job.ranks(script=job.script(COSTS)) as ranks:
        found, others = [lines_of(rank) for rank in ranks]
        assert [rank.wait(rig.PATIENCE * 30) for rank in ranks] == [0, 0]
    assert found == [{"on": 0, "off": 0, "eager": True}, {"calm": False, "there": True}] and others == [{"lazy": True}]


def is_known(path):
    """The package knows that the path is on CairnFS. In the child of a fork, too."""
    from cairnfs import _mounts

    child = os.fork()
    if child == 0:
        os._exit(_mounts.has(os.stat(path).st_dev))
    here = _mounts.has(os.stat(path).st_dev)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == here
    return here


def test_mounts_come_and_go(cairn, lane):
    """The devices of CairnFS are known when they are asked for."""
    for _ in range(2):
        assert not is_known(cairn.mnt)
        cairn.mount()
        assert is_known(cairn.mnt)
        cairn.umount()


@pytest.mark.parametrize("other", [None, os.devnull, "/proc/self/mountinfo"])
def test_the_program_closes_all_descriptors(cairn, lane, other):
    """As a daemon does: the mount table is opened anew. Another file that gets the number stays open, in a child, too. It may be the mount
    table, opened after a change that it does not report."""
    from cairnfs import _mounts

    cairn.mount()
    assert is_known(cairn.mnt)
    cairn.umount()
    number = _mounts._table._number
    os.closerange(number, number + 1)
    with contextlib.ExitStack() as stack:
        cairn.mount()
        if other:
            file = stack.enter_context(open(other, "rb"))
            file.fileno() == number or stack.callback(os.close, os.dup2(file.fileno(), number))
        child = os.fork()
        if child == 0:
            os._exit(not other or os.path.sameopenfile(file.fileno(), number))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert is_known(cairn.mnt)
        cairn.umount()
        assert not is_known(cairn.mnt)
        assert not other or os.path.sameopenfile(file.fileno(), number)


OLDER_OPEN = COMMON + """
open_as_before = os.open.__wrapped__
os.chdir(elsewhere)
open("latest", "w").close()
directory = os.open(mnt, os.O_RDONLY)
dist.init_process_group("gloo")
dist.barrier()
lazy = rank == 1 and save("1.pt")
dist.all_reduce(torch.ones(1))
if rank == 0:
    os.close(open_as_before("latest", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    lazy = libc.access(os.path.join(mnt, "1.pt").encode(), 0) == 0
say(**{"there" if rank == 0 else "lazy": lazy})
dist.barrier()
"""


@pytest.mark.timeout(240)
def test_os_open_in_a_directory(job):
    """A program calls os.open as it was before install(), relative to a directory on CairnFS. The working directory is on another
    filesystem, and has a file of the same name."""
    with job.ranks(script=job.script(OLDER_OPEN)) as ranks:
        found = [lines_of(rank) for rank in ranks]
        assert [rank.wait(rig.PATIENCE * 30) for rank in ranks] == [0, 0]
    assert found == [[{"there": True}], [{"lazy": True}]]


AGAIN = COMMON + """
for number in range(3):
    dist.init_process_group("gloo")
    if number == 0 and rank == 1:
        with open(os.path.join(mnt, "log"), "w"):
            say(eager=not save("0.pt"))
    dist.barrier()
    lazy = save(f"{rank}-{number}.pt") if number else False
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        os.mkdir(os.path.join(elsewhere, f"closed-{number}"))
    while not os.path.exists(os.path.join(elsewhere, f"closed-{number}")):
        time.sleep(0.01)  # torch itself may connect to the server that rank 0 is about to close: without us, too
say(lazy=lazy)
"""


@pytest.mark.timeout(240)
def test_a_group_that_is_made_again(job):
    """A rank held a log open in the first group: in the next one, on the same port, saves are lazy."""
    with job.ranks(script=job.script(AGAIN)) as ranks:
        found = [lines_of(rank) for rank in ranks]
        assert [rank.wait(rig.PATIENCE * 30) for rank in ranks] == [0, 0]
    assert found == [[{"lazy": True}], [{"eager": True}, {"lazy": True}]]


LEFT = COMMON + """
import threading
from cairnfs import _log
left, here, errors = threading.Event(), threading.local(), []
_job.LEAVE = 60.0

class Paused(_job.Job):
    '''Two threads stand where they have found that there is a group, until it is destroyed.'''

    @property
    def calm(self):
        found = self.counters if getattr(here, "act", "") != "wait" else None
        if found is not None and hasattr(here, "act"):
            pause()
        return found

    @calm.setter
    def calm(self, counters):
        self.counters = counters

    def wait_for(self, concerns):
        if hasattr(here, "act"):
            pause()
        return super().wait_for(concerns)

def pause():
    stands.release()
    assert left.wait(60)

def act(name, function):
    here.act = name
    try:
        function()
    except Exception as why:
        errors.append(f"{name}: {why!r}")

_job.Job, stands = Paused, threading.Semaphore(0)
dist.init_process_group("gloo")
save(f"{rank}.pt")
dist.barrier()
calm_down()
job = _job.current()
acts = {"is_calm": _job.is_calm, "wait": lambda: job.wait(lambda text: True, changes=True)}
threads = [threading.Thread(target=act, args=one) for one in acts.items()]
for thread in threads:
    thread.start()
stood = [stands.acquire(timeout=60) for _ in threads]
dist.destroy_process_group()
gone = _job._job is None
left.set()
for thread in threads:
    thread.join()
act("begin", lambda: job.begin(mnt))
act("note_writer", lambda: job.note_writer(True))
say(stood=stood, gone=gone, errors=errors, warnings=sorted(_log._said))
"""


@pytest.mark.timeout(240)
def test_a_group_that_is_destroyed_meanwhile(job):
    """Other threads are in the middle of an act then, or begin one: it goes on, and nothing is told."""
    with job.ranks(script=job.script(LEFT)) as ranks:
        found = [lines_of(rank) for rank in ranks]
        assert [rank.wait(rig.PATIENCE * 30) for rank in ranks] == [0, 0]
    assert found == 2 * [[{"stood": [True, True], "gone": True, "errors": [], "warnings": []}]]


REPLACED = COMMON + """
again = "again" in sys.argv
dist.init_process_group("gloo")
if not again:
    if rank == 1:
        save("lost.pt")
        libc.kill(os.getpid(), 9)
    sys.stdin.readline()
    say(lost=fails(lambda: open(os.path.join(mnt, "latest"), "w")))
    dist.destroy_process_group()
    say(destroyed=True)
    dist.init_process_group("gloo")
lazy = save(f"{rank}.pt")
dist.all_reduce(torch.ones(1))
say(lazy=lazy, error=fails(lambda: open(os.path.join(mnt, f"latest{rank}"), "w").close()), names=sorted(os.listdir(mnt)))
dist.barrier()
"""


@pytest.mark.timeout(240)
def test_a_rank_that_is_replaced(job):
    """A rank dies without its save. The other one is told, makes a new group with a new process, and both save lazily again."""
    script, port = job.script(REPLACED), free_port()
    with job.start(0, port, script) as first:
        with job.start(1, port, script) as second:
            assert second.wait(rig.PATIENCE * 60) == -signal.SIGKILL
        first.stdin.write("\n")
        assert "lost.pt of another rank was not saved" in next_line(first)["lost"]
        assert next_line(first) == {"destroyed": True}
        with job.start(1, port, script, "again") as second:
            found = [next_line(first), next_line(second)]
            assert [rank.wait(rig.PATIENCE * 30) for rank in (first, second)] == [0, 0]
    assert all(one["lazy"] and one["error"] is None and {"0.pt", "1.pt"} <= set(one["names"]) for one in found), found


SILENT = COMMON + """
dist.init_process_group("gloo")
dist.barrier()
if rank == 1:
    save("silent.pt")
    libc.kill(os.getpid(), 19)
    libc.kill(os.getpid(), 9)
sys.stdin.readline()
begin = time.monotonic()
say(lost=fails(lambda: open(os.path.join(mnt, "latest"), "w")), seconds=time.monotonic() - begin)
"""


@pytest.mark.timeout(240)
def test_a_rank_that_falls_silent(job):
    """It stands still, and its process is there: other ranks wait for its save for CAIRN_RANK_WAIT, and not without an end."""
    with job.ranks(script=job.script(SILENT), CAIRN_RANK_WAIT="2") as (first, second):
        rig.poll(lambda: rig.read_file(f"/proc/{second.pid}/stat").rpartition(b")")[2].split()[0] == b"T", 60, "rank 1 to stand still")
        first.stdin.write("\n")
        told = next_line(first)
    assert "silent.pt of another rank was not saved" in told["lost"] and told["seconds"] > 1.5
    assert not [name for name in os.listdir(job.mnt) if not name.startswith(".")]


ENDED = COMMON + """
from cairnfs import _start
dist.init_process_group("gloo")
dist.barrier()
fill = _start.fill

def interrupted(*arguments):
    say(interrupted=True)
    libc.kill(os.getpid(), 15)
    time.sleep(0)  # here the handler runs
    return fill(*arguments)

if rank == 0:
    _start.fill = interrupted
    save("0.pt")
sys.stdin.readline()
"""


@pytest.mark.timeout(240)
def test_sigterm_while_a_save_begins(job):
    """The save has its number and is not under way: the process does not wait for itself."""
    with job.ranks(script=job.script(ENDED), CAIRN_EXIT_WAIT="100") as ranks:
        assert next_line(ranks[0]) == {"interrupted": True}
        begin = time.monotonic()
        assert ranks[0].wait(rig.PATIENCE * 60) == -signal.SIGTERM
        assert time.monotonic() < begin + 90
