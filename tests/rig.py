# SPDX-License-Identifier: Apache-2.0
"""What the tests share: a private store with its mount (Mount), the same over a plain directory (Plain)."""
import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import time
import traceback

from numpy.random import SFC64

import processes
import trained

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PATIENCE = 4  # a limit of time only ends what hangs; machines that run tests are slow for a while now and then
REDUCE = "CAIRN_TESTS_REDUCE"  # --reduce, in the environment: processes that tests start write the same bytes
WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
DEAD_MOUNT = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ESTALE, errno.EIO, errno.ENOENT)


class MountError(Exception):
    pass


def poll(condition, timeout=30.0, what="condition", step=None):
    """Wait until condition() is true and return its value. timeout: seconds that are plenty on a quiet machine. step: seconds between two
    looks; by default the longer it has waited the longer, as many looks begin a process."""
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begin
        if waited > PATIENCE * timeout:
            raise TimeoutError(f"waited {PATIENCE * timeout} s for {what}")
        time.sleep(min(0.02 + waited / 20, 0.5) if step is None else step)


def find_binary(build):
    for name in ("cairn", "src/cairn", "src/cli/cairn", "src/daemon/cairn"):
        path = os.path.join(build, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    return None


def seeded_bytes(seed, size):
    """A function of both: noise, or with --reduce what can be reduced."""
    if REDUCE in os.environ:
        return trained.trained_bytes(seed, size)
    return noise(seed, size)


def noise(seed, size):
    """Bytes that nothing makes smaller, at some GB/s: tests make many GB of them."""
    key = int.from_bytes(hashlib.blake2b(repr(seed).encode(), digest_size=16).digest(), "little")
    return SFC64(key).random_raw(-(-size // 8)).view("u1")[:size].tobytes()


def cached_content(most):
    """As functools.lru_cache, for what follows from contents: --reduce says for each test what these are."""

    def decorate(function):
        made = functools.lru_cache(most)(lambda _, *args: function(*args))
        return functools.wraps(function)(lambda *args: made(os.environ.get(REDUCE), *args))

    return decorate


def reduction():
    """Options of a mount: what --reduce asks for. Whatever was replaced becomes dense on NVMe, too, as soon as nothing is written."""
    return {"reduce": os.environ[REDUCE], "reduce_after": "0s"} if REDUCE in os.environ else {}


def is_dense():
    """--reduce dense is given."""
    return os.environ.get(REDUCE) == "dense"


def remote_of_dense(root):
    """Options of a mount whose test needs no remote, and would have nothing dense without one: with --reduce dense one in `root`."""
    if not is_dense():
        return {}
    os.makedirs(os.path.join(root, "remote"))
    return {"remote": f"dir:{root}/remote", "gc_grace": "1s"}


class Dice(random.Random):
    """Its contents are as those of seeded_bytes()."""

    def randbytes(self, size):
        return seeded_bytes(self.getrandbits(64), size)


@contextlib.contextmanager
def opened(path, flags=os.O_RDWR, mode=0o644, **where):
    """A descriptor of the file, closed at the end."""
    fd = os.open(path, flags, mode, **where)
    try:
        yield fd
    finally:
        os.close(fd)


def sync(path):
    """The file, or all that the directory has in it now, is durable."""
    with opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)


def write_synced(path, data):
    """Writes a file anew and fsyncs it. Returns its path."""
    with opened(path, WRITE_NEW) as fd:
        write_all(fd, data)
        os.fsync(fd)
    return path


def write_file(path, data, flags=WRITE_NEW):
    """Returns the path. Text is written as UTF-8."""
    with opened(path, flags) as fd:
        write_all(fd, data.encode() if isinstance(data, str) else data)
    return path


def write_files(root, files, write=write_file):
    """files: {path below root: what is written there}."""
    for name, data in files.items():
        write(os.path.join(root, name), data)


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def mkdir(path):
    """Returns the path."""
    os.mkdir(path)
    return path


def patch(path, offset, data):
    """Writes over a part of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def read_text(path):
    with open(path) as file:
        return file.read()


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def check_files(root, files):
    """files: {path below root: what is in it}."""
    for name, data in files.items():
        assert read_file(os.path.join(root, name)) == data, name


@contextlib.contextmanager
def fails(number):
    """What is done inside ends with this errno."""
    try:
        yield
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"no error, where {os.strerror(number)} was to come")


def need_root(*devices):
    """Skips the test for a caller who is not root, or where a device is missing."""
    import pytest  # programs without it use this file, too

    if os.geteuid() != 0 or not all(map(os.path.exists, devices)):
        pytest.skip(f"skipped: needs {' and '.join(('root', *devices))}")


@contextlib.contextmanager
def locked(path):
    """The file is locked as STORE/lock and a stage are by the process that has them."""
    with opened(path) as fd:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        yield fd


def flip(path, offset, mask=0x10):
    """Damages the byte of a file at `offset`; done again it is whole."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ mask]))


def mountpoints(kind=b"-"):
    """Where something is mounted (of the type `kind`), as bytes: names are what users made them, some escaped by the kernel."""
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields = line.split()
            if kind in fields:
                yield re.sub(rb"\\([0-3][0-7]{2})", lambda match: bytes([int(match[1], 8)]), fields[4])


def mounted_at(path):
    return os.fsencode(os.path.realpath(path)) in mountpoints()


# For the shell in a mount namespace that a test has just made (unshare -m): what it inherited of CairnFS goes, and of disks that are cut
# (powercut.py). A copy of another test's mount would be ended there by that test's umount, or keep its daemon from ending. All is read
# before anything is changed; what its own test unmounts meanwhile is no trouble.
DROP_INHERITED = r"""
inherited=$(grep -e ' - fuse.cairnfs ' -e '/cairn-test-cut-' /proc/self/mountinfo || true)
printf '%s\n' "$inherited" | while read -r _ _ _ _ at _; do
    [ -z "$at" ] || umount -i -l "$(printf '%b' "$at")" 2>/dev/null || true
done
"""


def file_systems_unmount(path):
    """Take down every mount stacked at path, lazily if it is busy."""
    path = os.path.realpath(path)
    for _ in range(8):
        if not mounted_at(path):
            return
        if subprocess.run(["umount", path], capture_output=True).returncode:
            subprocess.run(["umount", "-l", path], capture_output=True)


def unmount_below(directory):
    """Nothing is mounted below a test's own directory any more, whatever the test mounted there by hand and failed at."""
    below = os.fsencode(os.path.realpath(directory)) + b"/"
    left = sorted((path for path in mountpoints(b"-") if path.startswith(below)), key=len, reverse=True)
    for path in left:
        file_systems_unmount(os.fsdecode(path))
    return left


@contextlib.contextmanager
def discarded(mount):
    """Behind it nothing is left of the mount, nor of its directory."""
    try:
        yield mount
    finally:
        mount.close()
        shutil.rmtree(mount.root, ignore_errors=True)


class Plain:
    """A plain directory with the interface of Mount: scripts are tried on it before they are trusted."""

    plain = True

    def __init__(self, root, binary=None, **options):
        self.root, self.options = root, options
        self.mnt = os.path.join(root, "mnt")
        self.store = os.path.join(root, "store")
        self.stage_dir = os.path.join(root, "stage")
        self.proc = None
        for path in (self.store, self.stage_dir):
            os.makedirs(path, exist_ok=True)

    def mount(self, **options):
        os.makedirs(self.mnt, exist_ok=True)
        return self

    def umount(self):
        os.sync()

    def umount_whole(self, **how):
        """And the store is whole."""
        self.umount(**how)
        done = self.fsck()
        assert done.returncode == 0, f"fsck: {done.returncode}\n{done.stdout}{done.stderr}"

    def start(self, **options):
        return self.mount(**options)

    def nothing(self, *args, **kwargs):
        return None

    kill9 = drop_stage = delete_view = wait = wait_remote = close = reap = nothing

    def lose_power(self):
        self.kill9()
        self.drop_stage()

    def remount(self, **options):
        self.umount()
        return self.mount(**options)

    def crash(self, **options):
        """kill -9, and the next mount."""
        self.kill9()
        return self.mount(**options)

    def power_cycle(self, **options):
        """Power is lost and comes back: the next mount has no stage."""
        self.lose_power()
        return self.mount(**options)

    def mount_anew(self, **options):
        """The view is lost: this mount makes another of journal and packs."""
        self.delete_view()
        return self.mount(**options)

    @contextlib.contextmanager
    def paused(self):
        """The daemon stands."""
        self.pause()
        try:
            yield
        finally:
            self.go_on()

    def write(self, name, data, level=None):
        """Writes a file and waits until the mount has this level. Returns the file's path."""
        path = write_file(os.path.join(self.mnt, name), data)
        if level == "remote":
            self.wait_remote()
        elif level:
            self.wait(level=level)
        return path

    def fsck(self):
        return subprocess.CompletedProcess(["fsck"], 0, "", "")

    def status(self):
        return {}

    def log(self):
        return ""

    def pids(self):
        return []


class Mount(Plain):
    """One private store, mountpoint and stage directory; every process that it starts, it ends by its id."""

    plain = False
    env = None  # environment of the daemon and the verbs; None: ours
    prefix = ()  # a command that runs the daemon

    def __init__(self, root, binary, store=None, **options):
        super().__init__(root)
        self.binary = binary
        if store:
            self.store = store
        self.stage_dir = tempfile.mkdtemp(prefix="cairn-test-", dir="/dev/shm")
        self.options = {"stage": "64M", "nvme": "4G", **reduction(), **options}
        self.log_path = os.path.join(root, "daemon.log")
        os.makedirs(self.mnt, exist_ok=True)

    def option_string(self, options):
        merged = {"stage_dir": self.stage_dir, **self.options, **options}
        given = {key: value for key, value in merged.items() if value is not None and value is not False}
        return ",".join(key if value is True else f"{key}={value}" for key, value in given.items())

    def start(self, **options):
        """Start the daemon and return at once: it may still recover."""
        assert self.proc is None, "already mounted"
        command = [*self.prefix, self.binary, "mount", self.store, self.mnt, "-f", "-o", self.option_string(options)]
        with open(self.log_path, "ab") as log:
            log.write(f"\n$ {ascii(' '.join(command))[1:-1]}\n".encode())
            log.flush()
            self.log_start = log.tell()
            self.proc = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        return self

    def mount(self, timeout=60.0, step=0.02, **options):
        self.start(**options)
        poll(self.usable, timeout, f"the mount at {self.mnt}", step)
        return self

    def usable(self):
        if self.proc.poll() is not None:
            code, self.proc = self.proc.returncode, None
            raise MountError(f"cairn mount ended with {code}:\n{self.log()[-3000:]}")
        return self.answers() and self.is_ready()

    def is_ready(self):
        """With -f a mount can be seen, and logged, before it is ready: it still tries how maps work, and opens its control socket."""
        with open(self.log_path, "rb") as file:
            file.seek(self.log_start)
            return re.search(rb"^cairn mount: .* is mounted at ", file.read(), re.MULTILINE) is not None

    def answers(self):
        """Is there a mount that answers?"""
        try:
            os.statvfs(self.mnt)
            return os.stat(self.mnt).st_dev != os.stat(self.root).st_dev
        except OSError as error:
            if error.errno in DEAD_MOUNT:
                return False
            raise

    def kill9(self):
        """The daemon dies at once; the stage stays. The mount is dead when this returns."""
        if self.proc:
            self.proc.kill()
            self.reap()
            poll(lambda: not self.answers(), 10, "the end of the dead daemon's mount")

    def pause(self):
        """SIGSTOP; returns when every thread stands."""
        os.kill(self.proc.pid, signal.SIGSTOP)
        poll(lambda: processes.process_state(self.proc.pid) == "T", 10, "the daemon to stand", 0.001)

    def go_on(self):
        os.kill(self.proc.pid, signal.SIGCONT)

    def reap(self, timeout=60.0):
        """Wait for the daemon's end and return its exit code."""
        code = self.proc.wait(PATIENCE * timeout) if self.proc else None
        self.proc = None
        return code

    def cairn(self, *args, timeout=300.0):
        return subprocess.run(
            [self.binary, *args], capture_output=True, text=True, errors="replace", timeout=timeout,
            stdin=subprocess.DEVNULL, env=self.env
        )

    def verb(self, *args, code=0, **how):
        """A command that ends with this code."""
        done = self.cairn(*args, **how)
        assert done.returncode == code, done
        return done

    def umount(self, drain=None):
        """Drain to NVMe, or to the remote, and end; the daemon must end well."""
        self.verb("umount", self.mnt, *(["--drain", drain] if drain else []))
        code = self.reap()
        assert code == 0, f"the daemon ended with {code}:\n{self.log()[-3000:]}"
        assert not mounted_at(self.mnt)

    def ask(self, **request):
        """The daemon's answer on the control socket. None: there is none."""
        with contextlib.ExitStack() as done, contextlib.suppress(OSError):
            directory = os.open(self.store, os.O_PATH)  # its path may be longer than that of a socket
            done.callback(os.close, directory)
            control = done.enter_context(socket.socket(socket.AF_UNIX))
            control.settimeout(15)
            control.connect(f"/proc/self/fd/{directory}/control")
            control.sendall(json.dumps(request).encode() + b"\n")
            answer = control.makefile("rb").readline()
            return json.loads(answer.decode(errors="replace")) if answer.endswith(b"\n") else None

    def status(self):
        """What `cairn status --json` prints (tests/mount/test_verbs.py compares them): the answer of a daemon as it is. Most are looks of
        poll(), and a process for each would be most of what they cost."""
        answer = self.ask(verb="status")
        if answer is not None:
            assert "errno" not in answer, answer
            return answer
        return json.loads(self.verb("status", self.mnt, "--json").stdout)

    def wait(self, path=None, level="nvme", timeout="240s"):
        self.verb("wait", path or self.mnt, "--level", level, "--timeout", timeout)

    def wait_remote(self, path=None, timeout="240s"):
        self.wait(path, "remote", timeout)

    def fsck(self):
        return self.cairn("fsck", self.store, timeout=300)

    def drop_stage(self):
        """What power loss does to DRAM: only while no daemon runs."""
        assert self.proc is None
        for name in os.listdir(self.stage_dir):
            path = os.path.join(self.stage_dir, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    def delete_view(self):
        assert self.proc is None
        shutil.rmtree(os.path.join(self.store, "view"), ignore_errors=True)

    def log(self):
        try:
            with open(self.log_path, errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def pids(self):
        return [self.proc.pid] if self.proc else []

    def close(self):
        """Leave nothing behind: no process, no mount, no stage."""
        self.kill9()
        file_systems_unmount(self.mnt)
        shutil.rmtree(self.stage_dir, ignore_errors=True)


class LoopImage:
    """A sparse image with a filesystem on it, mounted through a loop device, or a device that is there; needs root."""

    def __init__(self, image, mountpoint, size=None, kind="ext4", options=(), extra=""):
        self.image, self.mountpoint = image, mountpoint
        os.makedirs(mountpoint, exist_ok=True)
        if size:
            with open(image, "wb") as file:
                file.truncate(size)
            run("mkfs." + kind, "-q", *options, image)
        options = ([] if stat.S_ISBLK(os.stat(image).st_mode) else ["loop"]) + ([extra] if extra else [])
        run("mount", "-o", ",".join(options or ["rw"]), image, mountpoint)

    def close(self):
        file_systems_unmount(self.mountpoint)


def run(*command, **how):
    done = subprocess.run(command, capture_output=True, text=True, **how)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode} {done.stderr} {done.stdout[-3000:]}")
    return done.stdout


def fork(function, *args):
    """Runs function(*args) in another process, whose exit code tells. Returns its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = function(*args) or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


@contextlib.contextmanager
def child(function, *args):
    """The same while the block lasts. Yields the pid."""
    pid = fork(function, *args)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


class Child:
    """A forked process that runs function(*args)."""

    def __init__(self, function, *args):
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            raw = b""
            try:
                os.close(self.reader)
                raw = json.dumps({"result": function(*args)}).encode()
            except BaseException:
                raw = json.dumps({"failed": traceback.format_exc()[-16000:]}).encode()
            finally:
                with contextlib.suppress(OSError):
                    write_all(writer, raw)
                os._exit(0)
        os.close(writer)

    def result(self):
        """What the function returned (JSON), once it has; fails with its traceback."""
        with os.fdopen(self.reader, "rb") as file:
            raw = file.read()
        status = os.waitpid(self.pid, 0)[1]
        answer = json.loads(raw or b"{}")
        assert "failed" not in answer, f"in a child process:\n{answer['failed']}"
        assert status == 0 and "result" in answer, f"the child process ended with status {status} and no result"
        return answer["result"]


def in_child(function, *args):
    """Run function in a forked process and return what it returned (JSON)."""
    return Child(function, *args).result()
