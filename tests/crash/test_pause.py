# SPDX-License-Identifier: Apache-2.0
"""The daemon is killed again and again in the middle of many calls, which take longer and notice nothing else."""
import contextlib
import errno
import fcntl
import mmap
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time

import pytest

import processes
import rig
from rig import KIB, MIB

pytestmark = pytest.mark.needs_mount


class Side:
    """One of two directories in which the same calls are made."""

    def __init__(self, root):
        self.root, self.open = root, {}
        os.mkdir(root)

    def path(self, name):
        return os.path.join(self.root, name)


class Pair:
    """Makes each call on the mount and in memory, and compares."""

    def __init__(self, mount, memory, seed):
        self.sides = [Side(mount), Side(memory)]
        self.rng = random.Random(seed)
        self.keys, self.calls = [], 0

    def both(self, call, *args):
        results = []
        for side in self.sides:
            try:
                results.append(call(side, *args))
            except OSError as error:
                results.append(f"errno {error.errno}")
        assert results[0] == results[1], f"{call.__name__}{args}"
        self.calls += 1
        return results[0]

    def name(self):
        return f"n{self.rng.randrange(12)}"

    def key(self):
        return self.rng.choice(self.keys) if self.keys else None

    def step(self):
        call = self.rng.choice(STEPS)
        call(self, self.rng)


def with_path(function):
    """One that takes a name, or two, in the directory."""

    def call(side, *names):
        return function(*(side.path(name) for name in names))

    call.__name__ = function.__name__
    return call


def mkfile(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def mksocket(path):
    """A special file whose open() waits for nothing."""
    os.mknod(path, stat.S_IFSOCK | 0o600)


def names(path):
    return sorted(os.listdir(path))


def lstat(path):
    st = os.lstat(path)
    return st.st_mode, st.st_nlink if not os.path.isdir(path) else 0, 0 if os.path.isdir(path) else st.st_size


def set_once(path):
    os.setxattr(path, "user.once", b"1", os.XATTR_CREATE)


def unset(path):
    os.removexattr(path, "user.once")


def open_file(side, key, name, flags):
    side.open[key] = os.open(side.path(name), flags, 0o644)


def open_nameless(side, key):
    side.open[key] = os.open(side.root, os.O_TMPFILE | os.O_RDWR, 0o600)


def close_file(side, key):
    os.close(side.open.pop(key))


def write_at(side, key, offset, seed, size):
    return os.pwrite(side.open[key], rig.seeded_bytes(seed, size), offset)


def append(side, key, seed, size):
    return os.write(side.open[key], rig.seeded_bytes(seed, size))


def read_at(side, key, offset, size):
    return os.pread(side.open[key], size, offset)


def truncate(side, key, size):
    os.ftruncate(side.open[key], size)


def give_name(side, key, name):
    os.link(f"/proc/self/fd/{side.open[key]}", side.path(name), src_dir_fd=0, follow_symlinks=True)


def sync(side, key):
    os.fsync(side.open[key])


def state(side, key):
    st = os.fstat(side.open[key])
    return st.st_size, st.st_nlink, st.st_mode


def map_and_store(side, key, byte):
    size = os.fstat(side.open[key]).st_size
    if size == 0:
        return None
    with mmap.mmap(side.open[key], size) as view:
        view[size // 2] = byte
        view.flush()
        return bytes(view[: 4 * KIB])


PATHS = [with_path(function) for function in (os.mkdir, os.rmdir, mkfile, os.unlink, mksocket, names, lstat, set_once, unset)]
TWO_PATHS = [with_path(function) for function in (os.rename, os.link)]


def on_path(pair, rng):
    pair.both(rng.choice(PATHS), pair.name())


def on_two_paths(pair, rng):
    pair.both(rng.choice(TWO_PATHS), pair.name(), pair.name())


def on_open(pair, rng):
    key = pair.calls
    flags = rng.choice([os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR | os.O_CREAT | os.O_TRUNC,
                        os.O_WRONLY | os.O_APPEND | os.O_CREAT, os.O_RDWR | os.O_DSYNC])
    name, mixed = pair.name(), rng.random() < 0.2
    if len(pair.keys) >= 10:
        return
    done = pair.both(open_nameless, key) if mixed else pair.both(open_file, key, name, flags)
    if done is None:
        pair.keys.append(key)


def on_close(pair, rng):
    key = pair.key()
    if key is not None and rng.random() < 0.5:
        pair.keys.remove(key)
        pair.both(close_file, key)


def on_content(pair, rng):
    key = pair.key()
    if key is None:
        return
    offset, seed = rng.randrange(400 * KIB), rng.random()
    size = rng.choice([1, 100, 5000, 70 * KIB, 900 * KIB])
    call = rng.randrange(9)
    if call < 3:
        pair.both(write_at, key, offset, seed, size)
    elif call == 3:
        pair.both(append, key, seed, min(size, 70 * KIB))
    elif call == 4:
        pair.both(truncate, key, offset)
    elif call == 5:
        pair.both(give_name, key, pair.name())
    elif call == 6:
        pair.both(sync, key)
    elif call == 7:
        pair.both(map_and_store, key, rng.randrange(256))
    else:
        pair.both(read_at, key, offset, size)
    pair.both(state, key)


STEPS = [on_path, on_path, on_two_paths, on_open, on_close, on_content, on_content, on_content]


def work(mount, memory, seed, stop):
    """Until the file `stop` is there."""
    pair = Pair(mount, memory, seed)
    while not os.path.exists(stop):
        pair.step()
    for key in list(pair.keys):
        pair.both(read_at, key, 0, 2 * MIB)
        pair.both(close_file, key)
    compare(mount, memory)
    return pair.calls


def content_of(root):
    found = {}
    for directory, _, files in os.walk(root):
        found[os.path.relpath(directory, root)] = sorted(os.listdir(directory))
        for name in files:
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                xattrs = {key: os.getxattr(path, key) for key in os.listxattr(path)}
                found[os.path.relpath(path, root)] = (os.stat(path).st_nlink, rig.read_file(path), xattrs)
    return found


def compare(mount, memory):
    found, expected = content_of(mount), content_of(memory)
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name] == expected[name], name


@pytest.mark.timeout(300)
def test_many_calls_while_daemons_die(kept, shm_directory, rng, full):
    """Four programs, each with files open, files without a name, maps; whatever they see is as in memory."""
    kept.mount()
    stop = os.path.join(shm_directory, "stop")
    workers = []
    for number in range(4):
        mount, memory = os.path.join(kept.mnt, f"w{number}"), os.path.join(shm_directory, f"w{number}")
        workers.append((mount, memory, rig.Child(work, mount, memory, rng.random(), stop)))
    kills = 150 if full else 10
    for _ in range(kills):
        time.sleep(rng.uniform(0.05, 0.6))
        kept.kill_daemon(wait=True)
    rig.write_file(stop, b"")
    for _, _, worker in workers:
        assert worker.result() > 0
    seen = kept.successor()
    assert seen["deaths"] == kills and seen["calls_lost"] == 0
    kept.remount()
    for mount, memory, _ in workers:
        compare(mount, memory)
    kept.umount_whole()


PIECES = 40


def pieces(at):
    return rig.seeded_bytes(at, MIB)


def write_pieces(path, stop):
    """Until the file `stop` is there. How many."""
    fd, count, data = os.open(path, os.O_WRONLY), 0, [pieces(at) for at in range(PIECES)]
    while not os.path.exists(stop):
        assert os.pwrite(fd, data[count % PIECES], count % PIECES * MIB) == MIB, count
        count += 1
    os.close(fd)
    return count


def read_pieces(path, stop):
    fd, count, data = os.open(path, os.O_RDWR), 0, [pieces(at) for at in range(PIECES)]
    while not os.path.exists(stop):
        assert os.pread(fd, MIB, count % PIECES * MIB) == data[count % PIECES], count
        count += 1
    os.close(fd)
    return count


@pytest.mark.timeout(120)
def test_large_calls_while_daemons_die(kept, shm_directory, rng, full):
    """A daemon that dies while the kernel copies a request or an answer (each of a MiB, to and from memory that the daemon before used): no
    call fails."""
    kept.mount(stage="512M")  # writers wait for no room
    stop = os.path.join(shm_directory, "stop")
    workers = []
    for number, function in enumerate((write_pieces, read_pieces)):
        path = os.path.join(kept.mnt, str(number))
        with open(path, "wb") as file:
            for at in range(PIECES):
                file.write(pieces(at))
        workers.append(rig.Child(function, path, stop))
    for _ in range(300 if full else 25):
        os.statvfs(kept.mnt)  # which only a daemon that serves answers
        time.sleep(rng.uniform(0, 0.04))
        kept.kill_daemon(wait=True)
    rig.write_file(stop, b"")
    calls = [worker.result() for worker in workers]
    assert min(calls) > 0, calls
    kept.umount()


SAVE = """
import sys, torch
torch.manual_seed(int(sys.argv[2]))
torch.save({f"layer{i}": torch.randn(256, 1024) for i in range(int(sys.argv[3]))}, sys.argv[1])
"""
CHECK = """
import sys, torch
torch.manual_seed(int(sys.argv[2]))
state = torch.load(sys.argv[1])
assert all(torch.equal(state[f"layer{i}"], torch.randn(256, 1024)) for i in range(int(sys.argv[3])))
"""


@pytest.mark.timeout(300)
def test_torch_save_goes_on(kept, rng):
    pytest.importorskip("torch")
    kept.mount()
    path, seed, layers = os.path.join(kept.mnt, "checkpoint.pt"), str(rng.randrange(1000)), "60"
    saving = subprocess.Popen([sys.executable, "-c", SAVE, path, seed, layers])
    rig.poll(lambda: os.path.exists(path) and os.path.getsize(path) > MIB or saving.poll() is not None, 60, "the save to begin", 0.002)
    kept.kill_daemon(wait=True)
    kept.kill_daemon(wait=True)
    assert saving.wait(rig.PATIENCE * 120) == 0
    assert kept.successor()["deaths"] == 2
    kept.remount()
    subprocess.run([sys.executable, "-c", CHECK, path, seed, layers], check=True)
    kept.umount()


def test_what_is_open_stays_so(kept):
    """Handles, maps, locks, a file that was deleted, one that has no name yet, a listing under way, a working directory."""
    root = kept.mount().mnt
    for i in range(500):
        os.mkdir(os.path.join(root, f"d{i:03}"))
    path = rig.write_file(os.path.join(root, "file"), rig.seeded_bytes(1, MIB))
    reader, writer = os.open(path, os.O_RDONLY), os.open(path, os.O_RDWR)
    view = mmap.mmap(writer, MIB)
    locked = os.open(path, os.O_RDWR)
    fcntl.lockf(locked, fcntl.LOCK_EX, 100, 0)
    gone = os.open(os.path.join(root, "gone"), os.O_RDWR | os.O_CREAT)
    os.pwrite(gone, b"gone", 0)
    os.unlink(os.path.join(root, "gone"))
    old = rig.write_file(os.path.join(root, "old"), b"sealed")
    kept.wait(old)
    gone_later = os.open(old, os.O_RDWR)
    os.pwrite(gone_later, b"SE", 0)
    os.unlink(old)
    nameless = os.open(root, os.O_TMPFILE | os.O_RDWR)
    os.pwrite(nameless, b"nameless", 0)
    known = os.open(os.path.join(root, "d000"), os.O_PATH)
    os.rmdir(os.path.join(root, "d000"))
    seen = []
    with os.scandir(root) as listing:
        for i in range(2):
            kept.kill_daemon()
            seen += [next(listing).name for _ in range(100)]
            view[10] = 65 + i
            assert os.pread(writer, 1, 10) == view[10:11] == os.pread(reader, 1, 10)
            assert os.pwrite(writer, b"more", 2 * MIB) == 4 and os.fstat(reader).st_size == 2 * MIB + 4
            assert os.pread(gone, 10, 0) == b"gone" and os.fstat(gone).st_nlink == 0
            assert os.pread(gone_later, 10, 0) == b"SEaled" and os.fstat(gone_later).st_nlink == 0
            assert os.pread(nameless, 10, 0) == b"nameless"
            assert os.fstat(known).st_nlink == 0
            assert rig.in_child(try_lock, path) is False
        seen += [entry.name for entry in listing]
    assert set(seen) >= {f"d{i:03}" for i in range(1, 500)} and len(seen) == len(set(seen))
    os.link(f"/proc/self/fd/{nameless}", os.path.join(root, "named"), src_dir_fd=0, follow_symlinks=True)
    view.close()
    for fd in (reader, writer, locked, gone, gone_later, nameless, known):
        os.close(fd)
    assert rig.read_file(os.path.join(root, "named")) == b"nameless"
    assert kept.successor()["deaths"] == 2
    kept.remount()
    assert rig.read_file(os.path.join(root, "named")) == b"nameless" and not os.path.exists(old)
    assert rig.read_file(path)[2 * MIB :] == b"more"
    kept.umount_whole()


def try_lock(path):
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)
        return True
    except OSError:
        return False


def test_daemons_that_die_one_after_the_other_end_the_mount(kept):
    """No call waits for ever, the log says why, and nothing is lost. Until the next mount, which needs no umount first, programs get an
    error: the directory below would take what they write."""
    kept.mount(crash_window="1h")
    path = rig.write_file(os.path.join(kept.mnt, "file"), b"kept")
    last = None
    for _ in range(6):
        last = rig.poll(lambda: kept.daemon() not in (None, last) and kept.daemon(), 20, "the next daemon")
        os.kill(last, signal.SIGKILL)
    with pytest.raises(OSError):
        os.listdir(kept.mnt)
    assert kept.reap() == 32
    assert "giving up the mount of" in kept.log()
    with pytest.raises(OSError) as raised:
        rig.write_file(path, b"not below the mount")
    assert raised.value.errno == errno.ENOTCONN and rig.mounted_at(kept.mnt)
    kept.mount()
    assert "cleared the mount of a dead daemon" in kept.log()
    assert rig.read_file(path) == b"kept"
    kept.umount()


def test_deaths_of_different_causes_do_not_end_the_mount(kept):
    """Only those of one cause say that the next daemon would die, too."""
    kept.mount(crash_window="1h")
    path = rig.write_file(os.path.join(kept.mnt, "file"), b"kept")
    last = None
    for at in range(8):
        last = rig.poll(lambda: kept.daemon() not in (None, last) and kept.daemon(), 20, "the next daemon")
        os.kill(last, (signal.SIGKILL, signal.SIGTRAP)[at % 2])
    assert rig.read_file(path) == b"kept"
    assert kept.successor()["deaths"] == 8
    kept.umount()


def test_umount_during_the_pause_carries_all_to_nvme(kept):
    kept.mount()
    rig.write_file(os.path.join(kept.mnt, "file"), rig.seeded_bytes(2, 8 * MIB))
    kept.kill_daemon()
    kept.umount()
    kept.drop_stage()
    kept.mount()
    assert rig.read_file(os.path.join(kept.mnt, "file")) == rig.seeded_bytes(2, 8 * MIB)
    kept.umount()


@pytest.mark.parametrize("how", ["umount", "SIGTERM"])
def test_an_end_during_the_pause(kept, how):
    """umount(8), or the end of the service: the successor carries what is staged to NVMe, and ends."""
    kept.mount()
    rig.write_file(os.path.join(kept.mnt, "file"), rig.seeded_bytes(3, 8 * MIB))
    kept.kill_daemon()
    if how == "umount":
        rig.run("umount", kept.mnt)
    else:
        kept.proc.send_signal(signal.SIGTERM)
    assert kept.reap() == 0
    assert not rig.mounted_at(kept.mnt)
    kept.drop_stage()
    kept.mount()
    assert rig.read_file(os.path.join(kept.mnt, "file")) == rig.seeded_bytes(3, 8 * MIB)
    kept.umount()


def test_in_the_background(kept):
    """As people mount: the holder holds nothing of the terminal, and ends with the mount."""
    del kept.options["successor"]
    done = kept.cairn("mount", kept.store, kept.mnt, "-o", kept.option_string({}))
    try:
        assert done.returncode == 0, done.stderr
        status = kept.status()
        assert status["mount"]["successor"]["kept"]
        daemon = status["pid"]
        holder = processes.parent_of(daemon)
        assert rig.read_text(f"/proc/{holder}/comm") == "cairn-holder\n"
        targets = {path.split(":")[0] for path in processes.open_files(holder)}
        assert targets <= {"/dev/null", "/dev/fuse", "anon_inode", "socket", os.path.join(kept.store, "lock")}, targets
        os.kill(daemon, signal.SIGKILL)
        os.mkdir(os.path.join(kept.mnt, "after"))
        assert kept.status()["pid"] != daemon
        assert not os.path.exists(f"/proc/{daemon}"), "a zombie is left"
    finally:
        assert kept.cairn("umount", kept.mnt).returncode == 0
    rig.poll(lambda: not os.path.exists(f"/proc/{holder}"), 20, "the holder's end")


def test_what_was_inherited_is_let_go(kept):
    """A pipe of the program that mounts ends when `cairn mount` does, and an ignored SIGCHLD hides no death."""
    del kept.options["successor"]
    reader, writer = os.pipe()
    log = os.open(os.path.join(kept.root, "caller"), os.O_RDWR | os.O_CREAT)
    done = subprocess.run([kept.binary, "mount", kept.store, kept.mnt, "-o", kept.option_string({})], pass_fds=[writer, log], timeout=300,
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    os.close(writer)
    try:
        assert done.returncode == 0
        os.set_blocking(reader, False)
        assert os.read(reader, 1) == b"", "it is open in the daemon or its holder"
        daemon = kept.status()["pid"]
        for pid in (daemon, processes.parent_of(daemon)):
            assert os.path.join(kept.root, "caller") not in processes.open_files(pid)
        os.kill(daemon, signal.SIGKILL)
        rig.write_file(os.path.join(kept.mnt, "after"), b"after")
    finally:
        os.close(reader)
        os.close(log)
        assert kept.cairn("umount", kept.mnt).returncode == 0


def test_off_is_as_before(kept):
    kept.mount(successor="off")
    kept.kill_alone()
    assert not kept.answers()


def test_the_holder_dies(kept):
    """The daemon starts another holder, of its own program: its own death is a pause again, and the end is one."""
    kept.mount(writeback_delay="10m")
    daemon, first = kept.daemon(), kept.proc.pid
    rig.write_file(os.path.join(kept.mnt, "file"), rig.seeded_bytes(4, MIB))
    try:
        with open(os.path.join(kept.mnt, "file"), "rb") as file:
            for number in range(2):
                os.kill(first, signal.SIGKILL)
                assert number or kept.proc.wait(rig.PATIENCE * 10) == -signal.SIGKILL
                first = rig.poll(lambda: holder_of(kept.store, first), 20, "another holder")
                assert kept.successor()["kept"] and kept.status()["pid"] == daemon
                assert "cairnfs_successor_ready 1" in kept.cairn("metrics", kept.mnt).stdout
                os.kill(daemon, signal.SIGKILL)
                assert os.pread(file.fileno(), MIB, 0) == rig.seeded_bytes(4, MIB)
                daemon = kept.status()["pid"]
                assert processes.parent_of(daemon) == first and kept.successor()["deaths"] == number + 1
            assert "2 daemons died, the last by a signal; calls waited" in kept.cairn("status", kept.mnt).stdout
            assert upgraded(kept) == 1
            os.kill(first, signal.SIGKILL)
            first = rig.poll(lambda: holder_of(kept.store, first), 20, "another holder")
    finally:
        assert kept.cairn("umount", kept.mnt).returncode == 0
    kept.proc = None
    rig.poll(lambda: not os.path.exists(f"/proc/{first}") and not os.path.exists(f"/proc/{daemon}"), 20, "the end of both")
    assert kept.log().count("the holder process has died; another one") == 3
    kept.drop_stage()
    kept.mount()
    assert rig.read_file(os.path.join(kept.mnt, "file")) == rig.seeded_bytes(4, MIB)
    kept.umount()


def holder_of(store, before):
    """Another process than `before` that keeps the mount of the store; None: there is none yet."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = rig.read_file(f"/proc/{pid}/cmdline").split(b"\0")
            with open(f"/proc/{pid}/comm") as comm:
                is_holder = words[1:3] == [b"holder", b"keep"] and words[4] == os.fsencode(store) and comm.read() == "cairn-holder\n"
                if is_holder and int(pid) != before:
                    return int(pid)
    return None


def upgraded(kept):
    kept.verb("upgrade", kept.mnt)
    return kept.successor()["upgrades"]


def test_holders_that_die_one_after_the_other(kept):
    """Each is replaced, the second at the latest a few seconds later: one that died a moment after it started was not, for a minute."""
    kept.mount()
    path = rig.write_file(os.path.join(kept.mnt, "file"), b"kept")
    holder = kept.proc.pid
    try:
        for number in range(3):
            os.kill(holder, signal.SIGKILL)
            if number == 0:
                kept.proc.wait(rig.PATIENCE * 10)
            else:
                rig.poll(lambda deaths=number: kept.log().count("there is no holder now") == deaths, 10, "a word of it")
                assert re.findall(r"the next one is started in (\d+) s", kept.log()) == ["1", "2"][:number], "by the clock it may take long"
                assert kept.successor()["kept"] is False and "no holder now" in kept.cairn("status", kept.mnt).stdout
            holder = rig.poll(lambda last=holder: holder_of(kept.store, last), 20, "another holder")
        daemon = kept.status()["pid"]
        rig.poll(lambda: kept.successor()["kept"], 10, "the holder's readiness")
        os.kill(daemon, signal.SIGKILL)
        assert rig.read_file(path) == b"kept" and kept.status()["pid"] != daemon
    finally:
        assert kept.cairn("umount", kept.mnt).returncode == 0
    kept.proc = None
