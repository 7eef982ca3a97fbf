# SPDX-License-Identifier: Apache-2.0
"""A node changes files of other nodes: the content is copied while others go on, and whoever empties a file reads nothing of it."""
import contextlib
import os
import signal
import subprocess
import sys

import pytest

import processes
import rig
import successor
from test_union_mounts import TAKEN_S, at, await_tree, end_whole, end_with, tree

SOON_S = 20  # for what waits for nothing: it hangs, or takes a moment
OPENS = 32
OLD = b"old." * 75000


@pytest.fixture
def two(node):
    """Two nodes; the second one has taken the names of the first one's files, and nothing of their content."""
    a, b = node(), node()
    for i in range(OPENS):
        rig.write_file(at(a, f"f{i}"), OLD)
    rig.poll(lambda: len(os.listdir(b.mnt)) == OPENS, TAKEN_S, "the names")
    return a, b


@contextlib.contextmanager
def hanging(pid):
    """The remote gives a daemon no answer any more."""
    helpers = processes.dir_helpers(pid)
    assert helpers
    for helper in helpers:
        os.kill(helper, signal.SIGSTOP)
    try:
        yield
    finally:
        for helper in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(helper, signal.SIGCONT)


APPEND = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been started in the background, which ignores it
def append(path):
    with open(path, "ab") as file:
        file.write(b"end")
threads = [threading.Thread(target=append, args=[path]) for path in sys.argv[2:]]
for thread in threads:
    thread.start()
print("begun", flush=True)
append(sys.argv[1])  # a signal comes to this thread
for thread in threads:
    thread.join()
"""


@contextlib.contextmanager
def appending(*paths):
    """A program that opens the files to append to them, which waits."""
    program = subprocess.Popen([sys.executable, "-c", APPEND, *paths], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "begun\n"
        rig.poll(lambda: opens(program.pid) == len(paths), SOON_S, "all threads in their opens")
        yield program
    finally:
        program.kill()
        program.wait(60)


def opens(pid):
    """How many threads of a process are in open(2)."""
    return sum(calls.startswith(b"257 ") for calls in processes.of_threads(pid, "syscall"))


def use(mount, name):
    """What a program does with files of its own, and with names of all."""
    assert os.listdir(mount.mnt)
    for entry in os.scandir(mount.mnt):
        entry.stat()
    rig.write_file(at(mount, name), b"own")
    rig.sync(at(mount, name))
    os.rename(at(mount, name), at(mount, name + "2"))
    assert rig.read_file(at(mount, name + "2")) == b"own"
    os.remove(at(mount, name + "2"))


def temporaries(mount):
    return [name for _, names, files in os.walk(mount.mnt) for name in names + files if name.startswith(".cairn")]


def test_a_mount_goes_on_while_opens_wait_for_a_remote_that_hangs(two):
    a, b = two
    with hanging(b.proc.pid), appending(*[at(b, f"f{i}") for i in range(OPENS)]) as program:
        for turn in range(3):
            processes.ends(lambda: use(b, f"own{turn}"), SOON_S * rig.PATIENCE)
        assert opens(program.pid) == OPENS
        assert temporaries(b) == []
        os.kill(program.pid, signal.SIGSTOP)  # the remote answers first
        os.kill(program.pid, signal.SIGCONT)
        for helper in processes.dir_helpers(b.proc.pid):
            os.kill(helper, signal.SIGCONT)
        assert program.wait(120) == 0
    wanted = {f"f{i}": OLD + b"end" for i in range(OPENS)}
    assert tree(b.mnt) == wanted
    await_tree(a, wanted)
    for each in (a, b):
        assert each.status()["errors"] == []
        each.umount()
        assert each.fsck().returncode == 0


def test_what_empties_a_file_waits_for_no_content(two):
    a, b = two

    def empty():
        rig.write_file(at(b, "f0"), b"new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.close(os.open(at(b, "f1"), os.O_RDWR | os.O_TRUNC))
        os.truncate(at(b, "f2"), 0)
        with open(at(b, "f3"), "w+b") as file:
            file.write(b"n" * 3000000)
            file.seek(0)
            assert file.read(3) == b"nnn"
        assert [os.path.getsize(at(b, f"f{i}")) for i in range(4)] == [3, 0, 0, 3000000]

    with hanging(b.proc.pid):
        processes.ends(empty, SOON_S * rig.PATIENCE)
    wanted = {**{f"f{i}": OLD for i in range(OPENS)}, "f0": b"new", "f1": b"", "f2": b"", "f3": b"n" * 3000000}
    end_with(wanted, a, b)


def test_an_emptied_file_keeps_its_owner_mode_and_attributes(node):
    a, b = node(), node()
    rig.write_file(at(a, "file"), OLD)
    os.chown(at(a, "file"), 12, 34)
    os.chmod(at(a, "file"), 0o604)
    os.setxattr(at(a, "file"), "user.step", b"7")
    rig.poll(lambda: os.path.exists(at(b, "file")), TAKEN_S, "the name")
    for path, content in ((at(b, "file"), b"new"), (at(a, "file"), b"newer")):
        rig.write_file(path, content)
        status = os.stat(path)
        assert (status.st_uid, status.st_gid, status.st_mode & 0o7777, status.st_nlink) == (12, 34, 0o604, 1)
        assert os.getxattr(path, "user.step") == b"7"
        await_tree(a, {"file": content})
        await_tree(b, {"file": content})


def test_others_see_the_old_content_until_the_new_one_is_closed(two):
    """As of a file of the node's own: no reader ever finds it empty."""
    a, b = two
    with open(at(b, "f0"), "wb") as file:
        file.write(b"half")
        file.flush()
        assert rig.read_file(at(b, "f0")) == b"half"
        rig.write_file(at(b, "later"), b"x")
        rig.poll(lambda: os.path.exists(at(a, "later")), TAKEN_S, "what came after")
        assert rig.read_file(at(a, "f0")) == OLD
        assert sorted(os.listdir(b.mnt)) == sorted([*(f"f{i}" for i in range(OPENS)), "later"])
        file.write(b"whole")
    await_tree(a, {**{f"f{i}": OLD for i in range(OPENS)}, "f0": b"halfwhole", "later": b"x"})


def gone(mount, name):
    """It is removed, through the mount, while it is open."""
    os.remove(at(mount, name))


def moved(mount, name):
    os.rename(at(mount, name), at(mount, "moved"))


def replaced(mount, name):
    rig.write_file(at(mount, "other"), b"other")
    os.rename(at(mount, "other"), at(mount, name))


def linked(mount, name):
    os.link(at(mount, name), at(mount, "link"))


@pytest.mark.parametrize("change, shown", [(gone, {}), (moved, {"moved": b"new"}), (replaced, {"f0": b"other"}),
                                           (linked, {"f0": b"new", "link": b"new"})])
def test_a_name_changes_while_its_emptied_file_is_open(two, change, shown):
    a, b = two
    with open(at(b, "f0"), "wb") as file:
        change(b, "f0")
        file.write(b"new")
    wanted = {**{f"f{i}": OLD for i in range(1, OPENS)}, **shown}
    assert tree(b.mnt) == wanted
    await_tree(a, wanted)
    await_tree(b, wanted)
    end_whole(a, b)


def test_an_emptied_file_outlives_the_daemon(node):
    """It died before the file was closed: what was written is there, under the name."""
    a, b = node(), node(writeback_delay="1h")
    for name in ("written", "untouched"):
        rig.write_file(at(a, name), OLD)
    rig.poll(lambda: len(os.listdir(b.mnt)) == 2, TAKEN_S, "the names")
    with open(at(b, "written"), "wb") as file:
        file.write(b"new")
        file.flush()
        b.kill9()
        with contextlib.suppress(OSError):
            file.close()
    b.mount(writeback_delay="50ms")
    wanted = {"written": b"new", "untouched": OLD}
    assert tree(b.mnt) == wanted
    await_tree(a, wanted)
    await_tree(b, wanted)
    end_whole(a, b)


def test_a_caller_that_waits_can_be_interrupted(two):
    a, b = two
    with hanging(b.proc.pid), appending(at(b, "f0")) as program:
        program.send_signal(signal.SIGINT)
        assert program.wait(2 * SOON_S) != 0  # before the remote is given up, after 60 s
        processes.ends(lambda: use(b, "own"), SOON_S * rig.PATIENCE)
    with open(at(b, "f0"), "ab") as file:
        file.write(b"end")
    assert rig.read_file(at(b, "f0")) == OLD + b"end"
    await_tree(a, {**{f"f{i}": OLD for i in range(OPENS)}, "f0": OLD + b"end"})


def test_a_daemon_that_dies_in_the_middle_leaves_nothing(two):
    a, b = two
    with hanging(b.proc.pid), appending(at(b, "f0"), at(b, "f1")):
        processes.ends(lambda: rig.sync(b.mnt), SOON_S * rig.PATIENCE)  # all there is goes to NVMe
        assert temporaries(b) == []
        b.kill9()
    b.mount()
    rig.write_file(at(b, "after"), b"x")
    wanted = {**{f"f{i}": OLD for i in range(OPENS)}, "after": b"x"}
    end_with(wanted, a, b)


def test_a_successor_goes_on_with_it(on_remote, shared, node):
    """Nor does it answer with a handle of the other node's file, which the daemon that died had taken for a moment."""
    a = node()
    b = on_remote(shared, kind=successor.KeptRemote, nodes=True, writeback_delay="50ms", successor="on").mount()
    names = [f"f{i}" for i in range(OPENS)]
    for name in names:
        rig.write_file(at(a, name), OLD)
    rig.poll(lambda: len(os.listdir(b.mnt)) == OPENS, TAKEN_S, "the names")
    with contextlib.ExitStack() as hang:
        hang.enter_context(hanging(b.daemon()))
        with appending(*[at(b, name) for name in names]) as program:
            b.kill_daemon(wait=True)
            hang.close()
            assert program.wait(120) == 0
    wanted = {name: OLD + b"end" for name in names}
    end_with(wanted, a, b)


def test_a_read_waits_for_a_successor(on_remote, shared, node):
    """It opens the store that has the content while it serves."""
    a = node()
    b = on_remote(shared, kind=successor.KeptRemote, nodes=True, writeback_delay="50ms", successor="on").mount()
    for i in range(20):
        rig.write_file(at(a, f"f{i}"), OLD)
    rig.poll(lambda: len(os.listdir(b.mnt)) == 20, TAKEN_S, "the names")
    for i in range(20):
        if i % 5 == 0:
            b.kill_daemon(wait=True)
        assert rig.read_file(at(b, f"f{i}")) == OLD


def test_a_mount_ends_while_opens_wait(two):
    _, b = two
    with hanging(b.proc.pid), appending(*[at(b, f"f{i}") for i in range(OPENS)]):
        b.proc.terminate()
        assert b.reap(45) == 0  # 20 s of these for the remote, which does not answer


def is_written(path):
    try:
        return rig.write_file(path, OLD)
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", ["open", "truncate"])
def test_a_stale_path_empties_nothing(node, how):
    """The kernel keeps a name for a second: a call by one that is gone meanwhile fails, and has emptied nothing."""
    a, b = node(), node()
    os.mkdir(at(a, "d0"))
    rig.write_file(at(a, "d0", "file"), OLD)

    def head():
        return b.status()["remote"]["nodes"].get("shown_head", 0)

    def empty(path):
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)) if how == "open" else os.truncate(path, 0)

    for number in range(4):  # the name may have been asked for again just before
        path = at(b, f"d{number}", "file")
        rig.poll(lambda path=path: os.path.exists(path), TAKEN_S, "the file at the other node")
        before = head()
        os.rename(at(a, f"d{number}"), at(a, f"d{number + 1}"))
        rig.poll(lambda path=path, before=before: (os.path.exists(path), head() > before)[1], TAKEN_S, "the next head", 0.01)
        try:
            empty(path)
        except FileNotFoundError:
            assert rig.read_file(at(b, f"d{number + 1}", "file")) == OLD
        else:  # the name was still the right one, and may be gone by now
            rig.poll(lambda number=number: is_written(at(b, f"d{number}", "file")) or is_written(at(b, f"d{number + 1}", "file")), TAKEN_S,
                     "the file, to write it again")
