# SPDX-License-Identifier: Apache-2.0
"""`cairn upgrade`: another program goes on with the mount, under running programs, or the one that served does."""
import errno
import fcntl
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import rig
import successor
from kept import need_kernel
from rig import KIB, MIB

pytestmark = pytest.mark.needs_mount

OTHER = "9.9.9"
FAILED, USAGE, NOT_MET = 1, 2, 3


def version_of(binary):
    return subprocess.run([binary, "version"], capture_output=True, text=True, check=True, timeout=300).stdout.split()[1]


@pytest.fixture
def other(binary, directory):
    """The same program with another version number, which is as long."""
    version = version_of(binary)
    data = rig.read_file(binary)
    old, new = version.encode() + b"\0", OTHER.encode() + b"\0"
    assert len(old) == len(new) and old in data
    path = rig.write_file(os.path.join(directory, "other-cairn"), data.replace(old, new))
    os.chmod(path, 0o755)
    assert version_of(path) == OTHER
    return path


def program(pid):
    return os.readlink(f"/proc/{pid}/exe")


def script(directory, text):
    path = os.path.join(directory, f"script-{time.monotonic_ns()}")
    rig.write_file(path, "#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def upgrade(kept, *args, code=0):
    done = kept.verb("upgrade", kept.mnt, *args, timeout=300, code=code)
    if code:
        assert done.stderr.startswith("cairn upgrade: ") and done.stderr.count("\n") == 1 and not done.stdout, done
    return done


class Saver(threading.Thread):
    """Writes as torch.save() does, file after file, each over a name of its own, and reads back what it wrote."""

    def __init__(self, directory):
        super().__init__()
        self.directory, self.ending, self.saved, self.problem = directory, False, 0, None
        os.mkdir(directory)

    def save(self, number):
        path = os.path.join(self.directory, f"step{number % 5}.pt")
        data = rig.seeded_bytes(number, 3 * MIB + number)
        with open(path + ".tmp", "wb") as file:
            for at in range(0, len(data), 200 * KIB):
                file.write(data[at : at + 200 * KIB])
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".tmp", path)
        assert rig.read_file(path) == data

    def run(self):
        try:
            while not self.ending:
                self.save(self.saved)
                self.saved += 1
        except BaseException as error:
            self.problem = error

    def finish(self):
        self.ending = True
        self.join(200)
        assert not self.is_alive() and self.problem is None, self.problem
        return self.saved


class Held:
    """An open file with a lock, a map of it, a file without a name, and a working directory."""

    def __init__(self, mnt):
        self.data = rig.seeded_bytes("held", MIB)
        self.path = rig.write_file(os.path.join(mnt, "held"), self.data)
        self.fd = os.open(self.path, os.O_RDWR)
        fcntl.lockf(self.fd, fcntl.LOCK_EX, 10, 0)
        self.map = mmap.mmap(self.fd, MIB)
        self.nameless = os.open(mnt, os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(self.nameless, b"nameless")

    def check(self, number):
        assert self.map[:] == os.pread(self.fd, MIB, 0) == self.data
        assert os.pread(self.nameless, 100, 0) == b"nameless"
        patch = f"{number:08}".encode()
        os.pwrite(self.fd, patch, number * 100)
        self.data = self.data[: number * 100] + patch + self.data[number * 100 + 8 :]
        # Another process meets the lock.
        tried = subprocess.run([sys.executable, "-c",
                                f"import fcntl; fcntl.lockf(open({self.path!r}, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1)"],
                               capture_output=True, text=True, timeout=300)
        assert "BlockingIOError" in tried.stderr, tried

    def close(self):
        self.map.close()
        os.close(self.fd)
        os.close(self.nameless)


@pytest.mark.timeout(300)
def test_exchanged_under_running_programs(kept, other, binary):
    """There, back by the default, and there again: nothing fails, the process number stays, and a death later is a pause as before."""
    kept.mount()
    main, ours = kept.proc.pid, version_of(binary)
    held, saver = Held(kept.mnt), Saver(kept.mnt + "/model")
    saver.start()
    expected = [(other, OTHER), (None, ours), (other, OTHER)]
    for number, (path, version) in enumerate(expected):
        before = saver.saved
        rig.poll(lambda: saver.problem or saver.saved > before, rig.PATIENCE, "a file that was saved")
        done = upgrade(kept, *(["--binary", path] if path else []))
        assert f"to version {version}; calls waited for " in done.stdout and done.stdout.startswith(kept.mnt + ": "), done
        status = kept.status()
        assert status["version"] == version and status["pid"] == kept.daemon()
        assert status["mount"]["successor"]["upgrades"] == number + 1 and status["mount"]["successor"]["deaths"] == 0
        rig.poll(lambda: program(main) == (path or os.path.realpath(binary)), rig.PATIENCE, "the holder's exchange")
        assert program(kept.daemon()) == (path or os.path.realpath(binary))
        held.check(number)
    kept.kill_daemon(wait=True)
    held.check(5)
    seen = kept.successor()
    assert seen["deaths"] == 1 and seen["upgrades"] == 3 and seen["last_death"] == "signal 9" and seen["calls_lost"] == 0
    assert program(kept.daemon()) == other and kept.status()["version"] == OTHER
    assert saver.finish() > 3
    held.close()
    kept.umount_whole()


def test_what_cannot_take_over_changes_nothing(kept, directory, other, full):
    """Refused before anything changes, in one line that says why; the daemon is the same as before."""
    kept.mount()
    rig.write_file(kept.mnt + "/file", b"content")
    daemon = kept.daemon()
    plain = rig.write_file(directory + "/plain", b"#!/bin/sh\n")
    os.chmod(plain, 0o644)
    broken = rig.write_file(directory + "/broken", b"\x7fELF, but no more")
    os.chmod(broken, 0o755)
    cases = [(directory + "/missing", "No such file"), (directory, "not a program"), (plain, "ermission denied"), (broken, "cannot run"),
             ("/bin/true", "does not support upgrades"), (script(directory, "exit 1\n"), "does not support upgrades"),
             (script(directory, "echo too old; exit 1\n"), "too old"),
             (script(directory, "kill -9 $$\n"), "signal 9"), (script(directory, "echo cairn holder 1 5.0; exit 1\n"), "cannot take")]
    if full:  # 10 s
        cases.append((script(directory, "exec sleep 1000\n"), "does not answer"))
    for path, word in cases:
        done = upgrade(kept, "--binary", path, code=FAILED)
        assert word in done.stderr, (path, done)
        assert kept.daemon() == daemon and kept.successor()["upgrade_tries"] == 0
    assert rig.read_file(kept.mnt + "/file") == b"content"
    upgrade(kept, "--binary", other)
    kept.umount()


CHECKED = 'if [ "$2" = check ]; then exec {binary} "$@"; fi\n'


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how, word", [
    ("exit 7\n", "status 7"),
    ("kill -9 $$\n", "signal 9 before it started"),
    ("exec sleep 1000\n", "signal 9 before it started"),
    ('exec 2>&-; exec {binary} holder daemon 99 x y\n', "status 2"),
    # It has begun, and dies before it serves.
    ('[ $2 = daemon ] && {{ (sleep 0.02; kill -9 $$) & }}; exec env CAIRN_X=1 {binary} "$@"\n', None),
])
def test_one_that_dies_at_its_start(kept, directory, other, how, word):
    """What passes the check and does not serve: the version before goes on, and says so; a later upgrade is not kept from it."""
    kept.mount()
    held = Held(kept.mnt)
    path = script(directory, CHECKED.format(binary=other) + how.format(binary=other))
    done = kept.cairn("upgrade", kept.mnt, "--binary", path, timeout=300)
    if word is None and done.returncode == 0:
        pytest.skip("skipped: it served before it was killed")
    assert done.returncode == FAILED and "still served" in done.stderr and (word is None or word in done.stderr), done
    held.check(1)
    seen = kept.successor()
    assert seen["upgrade_tries"] == 1 and seen["upgrades"] == 0 and seen["deaths"] == 0 and seen["kept"] and seen["calls_lost"] == 0
    assert "upgrade failed" in kept.log()
    kept.kill_daemon(wait=True)
    held.check(2)
    upgrade(kept, "--binary", other)
    held.check(3)
    assert kept.status()["version"] == OTHER
    held.close()
    kept.umount_whole()


def test_a_holder_that_cannot_follow(kept, directory, other):
    """The other program's daemon serves; when its holder ends at once, the daemon starts another."""
    kept.mount()
    rig.write_file(kept.mnt + "/file", b"content")
    path = script(directory, f'case $2 in check|daemon) exec {other} "$@";; esac\nexit 3\n')
    kept.cairn("upgrade", kept.mnt, "--binary", path, timeout=300)
    status = kept.status()
    try:
        assert status["version"] == OTHER and rig.read_file(kept.mnt + "/file") == b"content"
        assert kept.proc.wait(rig.PATIENCE) == 3
        rig.poll(lambda: "another one (pid " in kept.log(), rig.PATIENCE * 3, "another holder")
        assert kept.successor()["kept"] and kept.status()["pid"] == status["pid"]
        upgrade(kept, "--binary", other)
    finally:
        daemon = kept.status()["pid"]
        kept.cairn("umount", kept.mnt, timeout=300)
        rig.poll(lambda: not os.path.exists(f"/proc/{daemon}"), rig.PATIENCE, "the end of the daemon")


def test_files_that_were_replaced_on_disk(kept, directory, binary, other):
    """As a package manager does: the program that runs is renamed over, or removed. A failed upgrade goes on with what runs."""
    installed = directory + "/installed"
    shutil.copy2(binary, installed)
    kept.binary = installed
    kept.mount()
    os.unlink(installed)
    kept.binary = binary
    bad = script(directory, CHECKED.format(binary=other) + "exit 1\n")
    assert "with status 1" in upgrade(kept, "--binary", bad, code=FAILED).stderr
    assert program(kept.proc.pid) == installed + " (deleted)"
    shutil.copy2(other, installed + ".new")
    os.rename(installed + ".new", installed)
    upgrade(kept, "--binary", installed)
    assert kept.status()["version"] == OTHER
    rig.poll(lambda: program(kept.proc.pid) == installed, rig.PATIENCE, "the holder's exchange")
    kept.umount()


def test_in_the_background_with_its_options(cairn, directory, other):
    """A mount as users have it: the options go on, what the environment says does, and neither is in the arguments."""
    cairn.env = {**os.environ, "AWS_SECRET_ACCESS_KEY": "not-for-ps"}
    options = f"stage_dir={cairn.stage_dir},stage=64M,attr_timeout=1500ms,noatime,log={directory}/a\\,log,remote=dir:{directory}/remote"
    done = cairn.verb("mount", cairn.store, cairn.mnt, "-o", options)
    try:
        before = cairn.status()
        cairn.verb("upgrade", cairn.mnt, "--binary", other, timeout=300)
        after = cairn.status()
        assert after["version"] == OTHER and after["stage"]["total_bytes"] == before["stage"]["total_bytes"]
        assert after["remote"]["name"] == before["remote"]["name"] if "name" in before["remote"] else after["remote"]
        assert "took over the mount from version" in rig.read_file(directory + "/a,log").decode()
        with open(f"/proc/{after['pid']}/status") as file:
            holder = int(next(line.split()[1] for line in file if line.startswith("PPid:")))
        for pid in (after["pid"], holder):
            assert b"not-for-ps" not in rig.read_file(f"/proc/{pid}/cmdline")
            assert b"AWS_SECRET_ACCESS_KEY=not-for-ps" in rig.read_file(f"/proc/{pid}/environ")
        rig.poll(lambda: rig.read_file(f"/proc/{holder}/cmdline").split(b"\0")[:3] == [b"cairn", b"holder", b"keep"], rig.PATIENCE,
                 "the holder to follow: it becomes the other program after its daemon has begun")
        rig.write_file(cairn.mnt + "/file", b"content")
    finally:
        done = cairn.cairn("umount", cairn.mnt, timeout=300)
    assert done.returncode == 0, done


def test_without_a_holder(cairn, other):
    """successor=off: nothing is done, and the line says what to do."""
    cairn.mount(successor="off")
    done = cairn.cairn("upgrade", cairn.mnt, "--binary", other, timeout=300)
    assert done.returncode == FAILED and "successor=off" in done.stderr and "unmount" in done.stderr, done
    assert cairn.answers()


def test_calls_that_wait_go_on_waiting(kept, other, directory):
    """A writer that waits for room, and an fsync for a remote that is away, are sent again to the next daemon."""
    need_kernel(6, 9)
    kept.mount(stage="64M", writeback_limit="2M")
    data = rig.seeded_bytes("much", 90 * MIB)
    writer = threading.Thread(target=rig.write_file, args=(kept.mnt + "/much", data))
    writer.start()
    try:
        rig.poll(lambda: kept.status()["stage"]["waiting_writers"] > 0, rig.PATIENCE, "a writer that waits for room")
        upgrade(kept, "--binary", other)
        seen = kept.successor()
        assert seen["calls_lost"] == 0 and seen["calls_sent_again"] > 0, seen
        upgrade(kept)
    finally:
        kept.cairn("wait", kept.mnt, timeout=300)
        writer.join(200)
    assert not writer.is_alive() and rig.read_file(kept.mnt + "/much") == data
    kept.umount()


def test_without_resend_what_waits_is_not_failed(kept, other):
    """As on a kernel before 6.9: while a call waits for long the upgrade is given up, else it loses none."""
    kept.mount(stage="64M", writeback_limit="64K", fuse_minor=39)
    fd = os.open(kept.mnt + "/much", os.O_WRONLY | os.O_CREAT)
    problem = []

    def write():
        try:
            rig.write_all(fd, bytes(rig.seeded_bytes("much", 80 * MIB)))
        except OSError as error:
            problem.append(errno.errorcode[error.errno])

    writer = threading.Thread(target=write)
    writer.start()
    rig.poll(lambda: kept.status()["stage"]["waiting_writers"] > 0, rig.PATIENCE, "a writer that waits for room")
    daemon = kept.daemon()
    done = upgrade(kept, "--binary", other, code=FAILED)
    assert "cannot resend them" in done.stderr and kept.daemon() == daemon and kept.successor()["upgrades_given_up"] == 1
    kept.cairn("wait", kept.mnt, timeout=300)
    writer.join(200)
    assert not writer.is_alive() and not problem
    os.close(fd)
    upgrade(kept, "--binary", other)
    assert kept.successor()["calls_lost"] == 0 and kept.status()["version"] == OTHER
    kept.umount()


def slow(directory, other):
    """The other program, whose daemon takes a while to begin."""
    return script(directory, CHECKED.format(binary=other) + f'[ "$2" != daemon ] || sleep 1\nexec {other} "$@"\n')


def begin(kept, path):
    """An upgrade, up to where the other program's daemon starts."""
    before = kept.daemon()
    verb = subprocess.Popen([kept.binary, "upgrade", kept.mnt, "--binary", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rig.poll(lambda: kept.daemon() not in (None, before) or verb.poll() is not None, rig.PATIENCE, "the other program's daemon")
    return verb


def test_not_waited_for(kept, directory, other):
    """The time is up, or an interrupt: the verb ends, and the upgrade goes on by itself."""
    kept.mount()
    held = Held(kept.mnt)
    done = upgrade(kept, "--binary", slow(directory, other), "--timeout", "10ms", code=NOT_MET)
    assert "timed out" in done.stderr and "still in progress" in done.stderr
    held.check(1)
    assert kept.status()["version"] == OTHER and kept.successor()["upgrades"] == 1
    verb = begin(kept, slow(directory, other))
    verb.send_signal(signal.SIGINT)
    assert verb.wait(rig.PATIENCE * 30) == 130
    held.check(2)
    assert kept.successor()["upgrades"] == 2 and kept.successor()["calls_lost"] == 0
    held.close()
    kept.umount()


@pytest.mark.parametrize("how", ["umount", "SIGTERM"])
def test_an_end_while_the_other_starts(kept, directory, other, how):
    """The daemon that goes on with the mount ends it: all is on NVMe then."""
    kept.mount(writeback_delay="10m")
    data = rig.seeded_bytes(how, 5 * MIB)
    rig.write_file(kept.mnt + "/file", data)
    verb = begin(kept, slow(directory, other))
    if how == "umount":
        kept.umount()
    else:
        kept.proc.send_signal(signal.SIGTERM)
        assert kept.reap() == 0 and not rig.mounted_at(kept.mnt)
    assert verb.wait(rig.PATIENCE * 30) in (0, FAILED)
    kept.drop_stage()
    kept.mount()
    assert rig.read_file(kept.mnt + "/file") == data
    kept.umount()


def test_one_that_promises_the_kernel_something_else(kept, directory, other, sanitized):
    """The kernel was told once how large a write may be: a daemon that says another size does not go on with the mount."""
    if sanitized:
        pytest.skip("skipped: a library is preloaded, and the sanitizer's would have to come first")
    library = directory + "/other_init.so"
    flags = rig.run("pkg-config", "--cflags", "fuse3").split()
    rig.run("cc", "-O2", "-Wall", "-shared", "-fPIC", *flags, "-o", library, os.path.join(successor.HERE, "other_init.c"), "-ldl")
    kept.mount(writeback_delay="0s")
    held = Held(kept.mnt)
    kept.wait()  # all that can be durable is: the daemon that fails could take the stage for empty
    path = script(directory, CHECKED.format(binary=other) + f'LD_PRELOAD={library} exec {other} "$@"\n')
    done = upgrade(kept, "--binary", path, code=FAILED)
    assert "still served" in done.stderr and "exited while starting" in done.stderr
    assert "made by a version that negotiated other FUSE features" in kept.log()
    held.check(1)
    assert kept.successor()["upgrades"] == 0 and kept.successor()["calls_lost"] == 0
    upgrade(kept, "--binary", other)
    held.check(2)
    held.close()
    kept.umount()
