# SPDX-License-Identifier: Apache-2.0
"""P1: a writer that waits for room can be killed, and no other signal makes its write fail."""
import concurrent.futures
import os
import platform
import shutil
import signal
import subprocess
import sys

import pytest

import processes
import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount

WRITER = """
import os, signal, sys
count = 0
def handler(*_):
    global count
    count += 1
signal.signal(signal.SIGUSR1, handler)
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
for number in range(int(sys.argv[2])):
    left = memoryview(os.urandom(1 << 20))
    while left:
        left = left[os.write(fd, left):]
    print(number, flush=True)
os.close(fd)
print("done", count, flush=True)
"""

MANY_WRITERS = """
import os, sys, threading
def write(number):
    fd = os.open(f"{sys.argv[1]}/file{number}", os.O_WRONLY | os.O_CREAT, 0o644)
    for _ in range(8):
        os.write(fd, os.urandom(1 << 20))
for number in range(int(sys.argv[2])):
    threading.Thread(target=write, args=(number,)).start()
"""


@pytest.fixture
def blocked(cairn):
    """A mount whose stage is full, and a writer that waits for room in it."""
    cairn.mount(stage="64M", writeback_limit="1M")
    path = os.path.join(cairn.mnt, "file")
    process = subprocess.Popen([sys.executable, "-c", WRITER, path, "72"], stdout=subprocess.PIPE, text=True)
    try:
        rig.poll(lambda: cairn.status()["stage"]["waiting_writers"] > 0, 60, "a waiting writer")
        yield cairn, process
    finally:
        process.kill()
        process.wait(200)
        process.stdout.close()


def test_waiting_writer_is_killable(blocked):
    """P1: SIGKILL ends a waiting writer, where room comes at 1 MiB a second; the mount goes on."""
    cairn, process = blocked
    begin = rig.time.monotonic()
    process.kill()
    process.wait(200)
    assert rig.time.monotonic() - begin < 2 * rig.PATIENCE
    rig.poll(lambda: cairn.status()["stage"]["waiting_writers"] == 0, 5, "no waiting writer")
    assert os.listdir(cairn.mnt) == ["file"]
    assert os.path.getsize(os.path.join(cairn.mnt, "file")) >= 40 * rig.MIB


def test_signal_handler_does_not_break_write(blocked):
    """P1: a handled signal does not make write() fail or short of bytes."""
    cairn, process = blocked
    for _ in range(20):
        process.send_signal(signal.SIGUSR1)
        rig.time.sleep(0.05)
    while process.poll() is None:  # a wait lifts the limit, so that this does not take a minute
        cairn.cairn("wait", cairn.mnt, "--level", "nvme", "--timeout", "1s")
    lines = process.stdout.read().split("\n")
    assert process.wait(200) == 0 and lines[-2].startswith("done ") and int(lines[-2].split()[1]) > 0
    assert os.path.getsize(os.path.join(cairn.mnt, "file")) == 72 * rig.MIB


def test_fsync_lifts_the_limit(cairn):
    """P3: while an fsync waits, the writeback limit is lifted."""
    cairn.mount(writeback_limit="64K")
    with rig.opened(cairn.mnt + "/file", os.O_WRONLY | os.O_CREAT) as fd:
        rig.write_all(fd, rig.seeded_bytes(1, 32 * rig.MIB))
        begin = rig.time.monotonic()
        os.fsync(fd)
    assert rig.time.monotonic() - begin < 100  # at the limit it takes 500 s


def test_reader_and_names_go_on_while_a_writer_waits(blocked):
    """P1: others are served while a writer waits for room."""
    cairn, _ = blocked
    for number in range(20):
        begin = rig.time.monotonic()
        os.listdir(cairn.mnt)
        with open(os.path.join(cairn.mnt, "file"), "rb") as file:
            file.read(4096)
        os.mkdir(f"{cairn.mnt}/directory-{number}")
        assert rig.time.monotonic() - begin < 1 * rig.PATIENCE


def test_priority_is_normal_while_somebody_waits(cairn):
    """Low at first, raised in the middle of a round by a writer that waits for room, low again when nothing waits."""
    cairn.mount(stage="64M", writeback_limit="1M", writeback_delay="0s")
    normal = os.getpriority(os.PRIO_PROCESS, cairn.proc.pid)
    low = min(normal + 10, 19)
    rig.write_file(cairn.mnt + "/first", rig.seeded_bytes(1, 40 * rig.MIB))
    rig.time.sleep(2)  # the round that carries it began, and takes 40 s
    for name in ("cairn-chunk", "cairn-pack"):
        assert processes.nice_values(cairn.proc.pid, name) == {low}, name
    with subprocess.Popen([sys.executable, "-c", WRITER, cairn.mnt + "/second", "72"], stdout=subprocess.DEVNULL) as process:
        rig.poll(lambda: cairn.status()["stage"]["waiting_writers"] > 0, 5, "a waiting writer")
        for name in ("cairn-chunk", "cairn-pack"):
            rig.poll(lambda: processes.nice_values(cairn.proc.pid, name) == {normal}, 2, f"{name} to be raised")
        assert cairn.status()["nvme"]["files"] == 0, "the round is over: nothing was seen"
        process.kill()
    cairn.wait()
    rig.poll(lambda: processes.nice_values(cairn.proc.pid, "cairn-chunk") == {low}, 30, "low priority")
    assert processes.nice_values(cairn.proc.pid, "cairn-pack") == {low}


@pytest.mark.needs_mount
@pytest.mark.skipif(not shutil.which("setpriv"), reason="skipped: needs setpriv")
def test_priority_is_not_lowered_where_it_could_not_be_raised(cairn):
    """Without CAP_SYS_NICE a wait could not hurry the threads that carry its bytes: they stay as they are."""
    cairn.prefix = ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice")
    cairn.mount()
    normal = os.getpriority(os.PRIO_PROCESS, cairn.proc.pid)
    cairn.write("file", rig.seeded_bytes(1, rig.MIB), "nvme")
    for name in ("cairn-chunk", "cairn-pack"):
        assert processes.nice_values(cairn.proc.pid, name) == {normal}, name


@pytest.mark.needs_mount
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("options", "writers"),
                         (({"stage": "16M", "threads": 4}, 30), ({"stage": "64M"}, 150), ({"stage": "64M", "threads": 64}, 1)))
def test_more_writers_than_slabs(cairn, rng, options, writers):
    """P1: requests that wait, and threads that receive, never hold all of a small stage: every writer goes on, and others are answered."""
    cairn.mount(nvme="4G", **options)
    data = rng.randbytes(3 * rig.MIB)

    def write(number):
        for turn in range(3):
            rig.write_file(os.path.join(cairn.mnt, f"file{number}-{turn}"), data)

    with concurrent.futures.ThreadPoolExecutor(writers) as pool:
        under_way = [pool.submit(write, number) for number in range(writers)]
        assert not os.path.exists(os.path.join(cairn.mnt, "nothing"))
        for future in under_way:
            future.result()
    for number in range(writers):
        assert rig.read_file(os.path.join(cairn.mnt, f"file{number}-2")) == data


def in_calls(pid):
    """How many threads of a process are within write(2) or openat(2)."""
    numbers = (b"1", b"257") if platform.machine() == "x86_64" else (b"64", b"56")
    return sum(call.split()[0] in numbers for call in processes.of_threads(pid, "syscall"))


@pytest.mark.needs_mount
@pytest.mark.timeout(60)
def test_the_end_while_writers_wait(cairn, rng):
    """A daemon that is told to end does so, whatever waits for room."""
    cairn.mount(stage="16M", threads=4, writeback_limit="64K")
    command = [sys.executable, "-c", MANY_WRITERS, cairn.mnt, "60"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as writers:
        try:
            rig.poll(lambda: cairn.status()["stage"]["waiting_writers"] >= 4, 20, "writers that wait")
            rig.poll(lambda: in_calls(writers.pid) >= 60, 20, "all of them to be held up")
            cairn.proc.send_signal(signal.SIGTERM)
            assert cairn.reap(30) == 0
        finally:
            writers.kill()


@pytest.mark.parametrize("flags", [(), ("-f",)])
def test_interrupt_of_a_mount_that_waits(request, mount_factory, directory, flags):
    """Ctrl-C while another writer's lease runs: exit code 8, a line that says so, and nothing is mounted."""
    remote, mounts = remotes.DirRemote(directory + "/remotes"), []
    for name in ("one", "two"):
        os.mkdir(f"{directory}/{name}")
        mounts.append(mount_factory(f"{directory}/{name}", kind=remotes.RemoteMount, remote=remote, lease="10m"))
        request.addfinalizer(mounts[-1].close)
    mounts[0].mount().kill9()
    two = mounts[1]
    command = [two.binary, "mount", two.store, two.mnt, *flags, "-o", two.option_string({})]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as mount:
        said = iter(mount.stderr.readline, "")  # perhaps first that the remote takes long
        assert any("was in use by" in line for line in said)
        mount.send_signal(signal.SIGINT)
        rest = mount.stderr.read()
    assert mount.returncode == 8 and "cairn mount: given up while waiting for dir:" in rest, (mount.returncode, rest)
    assert not rig.mounted_at(two.mnt)
