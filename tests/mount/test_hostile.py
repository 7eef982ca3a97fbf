# SPDX-License-Identifier: Apache-2.0
"""Garbage on the control socket, names that no terminal should see, and clients that die in any call: nothing is lost,
nothing hangs, nothing leaks, and what is said of it is a clear line."""
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.request

import pytest

import processes
import remote as remotes
import rig
from test_damage import find_in_packs

pytestmark = pytest.mark.needs_mount

ANSWER_LIMIT = 15.0  # s in which `cairn status` must answer, whatever else talks to the daemon


# --- the control socket ----------------------------------------------------------------------------------------------------


def connect(mount):
    """A connection to the control socket; its path is too long for an address, so through the directory."""
    with rig.opened(mount.store, os.O_PATH) as directory:
        rig.poll(lambda: os.path.exists(mount.store + "/control"), 10, "the control socket")
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(f"/proc/self/fd/{directory}/control")
        client.settimeout(200)
        return client


def ask(mount, raw):
    got = b""
    with connect(mount) as client:
        with contextlib.suppress(BrokenPipeError):
            client.sendall(raw)
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # it had enough before the end
            while part := client.recv(65536):
                got += part
    return got


def answers_soon(mount):
    begin = time.monotonic()
    status = mount.status()
    assert time.monotonic() - begin < ANSWER_LIMIT
    return status


@contextlib.contextmanager
def many(mount, count, greeting=b""):
    """So many connections at once, which send no more than the greeting."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            clients.append(stack.enter_context(connect(mount)))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                clients[-1].sendall(greeting)
        yield clients


def as_nobody(function):
    def run():
        processes.become_nobody()
        return function()

    return rig.in_child(run)


def test_control_socket_is_for_its_owner(cairn):
    """P12: another user does not reach the socket; where somebody opened the way, it is refused by name."""
    cairn.mount()

    def attempt():
        try:
            return ask(cairn, b'{"verb":"status"}\n').decode()
        except OSError as error:
            return error.strerror

    answers_soon(cairn)
    assert as_nobody(attempt) == "Permission denied"
    above = os.path.dirname(cairn.store)
    for path, mode in ((above, 0o755), (cairn.store, 0o755), (os.path.join(cairn.store, "control"), 0o666)):
        os.chmod(path, mode)
    reply = json.loads(as_nobody(attempt))
    assert reply["errno"] == 1 and "only root" in reply["error"]
    answers_soon(cairn)


@pytest.mark.parametrize("raw", [b"", b"\n", b"\0\n", b"{\n", b"[]\n", b"GET / HTTP/1.1\r\n\r\n", b'{"verb":7}\n', b"x" * 70000,
                                 b'{"verb":"status"', b"[" * 60000 + b"\n",
    b'{"verb":"need","ino":-1,"level":"nvme"}\n', b'{"verb":"need","ino":1e300,"level":"nvme"}\n',
                                 b'{"verb":"need","ino":"99999999999999999999","level":"remote"}\n',
    b'{"verb":"warm","ino":18446744073709551615}\n', b'{"verb":"job_start","kind":"scrub","local":"yes"}\n'],
    ids=lambda raw: repr(raw[:20]))
def test_garbage_gets_an_error(cairn, raw):
    """P12: each wrong request is answered with one that says so."""
    cairn.mount()
    lines = ask(cairn, raw).splitlines()
    assert len(lines) == (raw.count(b"\n") or bool(raw))
    for line in lines:
        assert set(json.loads(line)) == {"error", "errno"}
    answers_soon(cairn)


@pytest.mark.timeout(200)
def test_many_connections_do_not_shut_out_the_owner(cairn, full):
    """Thousands that say nothing, or half of something, or all of it slowly: `cairn status` answers in time."""
    cairn.mount()
    for greeting in (b"", b'{"verb":"sta'):
        with many(cairn, 3000 if full else 600, greeting):
            answers_soon(cairn)
    with many(cairn, 8, b"{") as clients:
        for _ in range(20):
            for client in clients:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    client.sendall(b" ")
            time.sleep(0.05)
            answers_soon(cairn)
    assert cairn.umount() is None


def test_client_that_does_not_read(cairn):
    """A client that asks without end and reads no answer is dropped."""
    cairn.mount()
    with many(cairn, 8) as clients:
        for client in clients:
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
                while True:
                    client.sendall(b'{"verb":"status"}\n' * 500)
        rig.poll(lambda: answers_soon(cairn), 10)


# --- names -----------------------------------------------------------------------------------------------------------------

HOSTILE = b"a\nb\x1b[2J\xff\xc3(\xc2\x9b\x9b \xe2\x80\xae\"\\,7"


def is_fit_for_a_terminal(text):
    """No C0 but line ends, DEL, no C1 (as a byte that is no UTF-8 either), and nothing that turns the direction of text."""
    return not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\udc80-\udc9f\u2028-\u202e\u2066-\u2069]", text)


def cairn_bytes(mount, *args):
    return subprocess.run([mount.binary, *args], capture_output=True, timeout=60, stdin=subprocess.DEVNULL)


CLONE_NEWNS, MS_REC_PRIVATE = 0x20000, 0x44000
LIBC = ctypes.CDLL(None, use_errno=True)


def in_own_mounts(function):
    """Call it in a process that shares mounts with no other, and sees none of CairnFS but its own."""

    def run():
        assert LIBC.unshare(CLONE_NEWNS) == 0 and LIBC.mount(b"none", b"/", None, MS_REC_PRIVATE, None) == 0
        for path in list(rig.mountpoints(b"fuse.cairnfs")):
            subprocess.run([b"umount", b"-l", path], capture_output=True)
        try:
            function()
        except BaseException:
            return traceback.format_exc()
        return None

    problem = rig.in_child(run)
    assert problem is None, problem


def in_json(path):
    """How the bytes of a path appear in JSON."""
    return path.decode(errors="backslashreplace")


def in_metrics(path):
    """And in metrics, of which each character is shown as it is."""
    return "".join(c if c == "\n" or is_fit_for_a_terminal(c) else f"\\u{ord(c):04x}" if ord(c) > 255 else f"\\x{ord(c):02x}"
                   for c in in_json(path))


def expect_shown(mount, *args, code=0):
    """What a verb shows: JSON, line by line or as a whole, or lines that do nothing to a terminal."""
    done = cairn_bytes(mount, *args)
    assert (done.returncode, done.stderr) == (code, b""), (args, done)
    if "--json" in args and args[0] in ("stats", "log"):
        assert [json.loads(line) for line in done.stdout.splitlines()], done  # which insists on UTF-8
    elif "--json" in args:
        assert json.loads(done.stdout), done
    else:
        assert is_fit_for_a_terminal(done.stdout.decode(errors="surrogateescape")), done.stdout
    return done.stdout


def metrics_labels(mount):
    """Of cairnfs_info; a metric is one line of UTF-8, whatever its labels hold."""
    text = cairn_bytes(mount, "metrics", mount.mnt).stdout.decode()
    assert is_fit_for_a_terminal(text), text
    lines = text.rstrip("\n").split("\n")
    assert all(line.startswith(("# HELP cairnfs_", "# TYPE cairnfs_", "cairnfs_")) for line in lines), lines
    (line,) = (line for line in lines if line.startswith("cairnfs_info{"))
    return {name: json.loads(f'"{text}"', strict=False) for name, text in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line)}


def use_hostile_places(mount):
    mount.mount()
    rig.write_file(mount.mnt + "/file", b"content")
    for args in (("status",), ("status", mount.mnt), ("status", "--json", mount.mnt), ("status", "--json"), ("wait", mount.mnt + "/file")):
        expect_shown(mount, *args)
    for verb in ("info", "du", "stats", "scrub", "gc"):
        end = ("-n", "1") if verb == "stats" else ()
        expect_shown(mount, verb, mount.mnt, *end)
        if verb in ("info", "du", "stats"):
            expect_shown(mount, verb, "--json", mount.mnt, *end)
    assert metrics_labels(mount)["mountpoint"] == in_metrics(os.fsencode(mount.mnt))
    done = cairn_bytes(mount, "mount", mount.store, mount.mnt)
    assert done.returncode == 32 and len(done.stderr.splitlines()) == 1, done
    assert is_fit_for_a_terminal(mount.log()), mount.log()
    mount.umount()
    assert len(expect_shown(mount, "fsck", mount.store).splitlines()) == 2
    for flags in ((), ("--json",)):
        assert b"all data is on NVMe" in expect_shown(mount, "log", *flags, mount.store)
    done = cairn_bytes(mount, "status", "--json", mount.store)
    assert json.loads(done.stdout)["nvme"]["files"] == 1
    mount.mount()
    assert rig.read_file(mount.mnt + "/file") == b"content"


def at_hostile_places(directory, binary, use):
    def run():
        inner = rig.mkdir(os.path.join(os.fsencode(directory), HOSTILE))
        mount = rig.Mount(os.fsdecode(inner), binary)
        with contextlib.closing(mount):
            use(mount)

    in_own_mounts(run)


def test_hostile_names_of_places(directory, binary):
    """Store and mountpoint with newlines, escapes and bytes that are no UTF-8: all verbs work, JSON is JSON."""
    at_hostile_places(directory, binary, use_hostile_places)


def look_at_log(mount):
    mount.mount()
    for place in ((), (mount.mnt,), (mount.store,)):
        for flags in ((), ("--json",)):
            assert b"is mounted at" in expect_shown(mount, "log", *flags, *place)


def test_log_of_hostile_places(directory, binary):
    """The log of such a store, while it is mounted."""
    at_hostile_places(directory, binary, look_at_log)


def test_hostile_names_of_files(cairn, rng, mnt):
    """A damaged file with such a name, below such a directory: status, scrub, fsck, log and messages show it and are not forged by it."""
    path = os.path.join(os.fsencode(mnt), HOSTILE, HOSTILE)
    os.mkdir(os.path.dirname(path))
    data = rig.seeded_bytes(rng.random(), 2 * rig.MIB)
    rig.write_file(path, data)
    cairn.umount()
    cairn.drop_stage()
    rig.flip(*find_in_packs(cairn.store, data[:64]))
    cairn.mount()
    with pytest.raises(OSError):
        rig.read_file(path)
    raw = cairn_bytes(cairn, "status", "--json", mnt).stdout
    assert len(json.loads(raw)["damage"]) == 1 and b"7" in raw
    shown = cairn_bytes(cairn, "status", mnt).stdout.decode(errors="surrogateescape")
    assert is_fit_for_a_terminal(shown) and len(shown.split("damage")[1].splitlines()) == 2, shown
    assert is_fit_for_a_terminal(cairn.log())
    for verb in (*PATH_VERBS, *MOUNT_VERBS, "fsck", "nonsense", "help", "mount"):
        expect_refusal(cairn, {"mount": 1, "fsck": 16}.get(verb, 2), verb, path + b"-missing")
    assert len(expect_shown(cairn, "scrub", mnt, code=1).splitlines()) == 3, "the place, the file, the sum"
    expect_shown(cairn, "log", mnt)
    expect_shown(cairn, "log", "--json", mnt)
    cairn.umount()
    assert len([line for line in expect_shown(cairn, "fsck", cairn.store, code=4).splitlines() if b"7/" in line]) == 1


def save_lazily_as(name, mnt, ready):
    """Says of its lazy saves what libcairn says, under another name, and stays."""
    LIBC.prctl(15, name, 0, 0, 0)
    os.setxattr(mnt, "user.cairn.lane", b"1 pending=5 saves=1 blocked_ns=9 published=1 failed=1 error=" + HOSTILE)
    os.chdir(mnt)
    os.write(ready, b".")
    time.sleep(600)


def test_hostile_names_of_processes(cairn):
    """Neither its name nor what it says reaches a terminal as it is: not by status, metrics, HTTP or log, nor where it keeps the mount busy."""
    port = remotes.free_ports(1)
    cairn.mount(metrics=f"127.0.0.1:{port}")
    reader, writer = os.pipe()
    with rig.child(save_lazily_as, b"\x1b[2Ja\x9b\xc2\x9b\xe2\x80\xae", cairn.mnt, writer):
        assert os.read(reader, 1) == b"."
        verbs = (["status"], ["status", "--json"], ["metrics"], ["log"], ["log", "--json"], ["stats", "--json", "-n", "1"], ["umount"])
        for args in verbs:
            done = cairn_bytes(cairn, args[0], cairn.mnt, *args[1:])
            for shown in (done.stdout, done.stderr):
                text = shown.decode(errors="surrogateescape")
                assert is_fit_for_a_terminal(text.replace("\t", " ") if "--json" in args else text), (args, shown)
            if args[0] in ("status", "metrics", "umount"):
                assert b"[2Ja" in done.stdout + done.stderr, (args, done)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode(errors="surrogateescape")
        assert is_fit_for_a_terminal(text) and "\\\\x1b[2Ja\\\\x9b\\\\x9b" in text
    os.close(reader)
    os.close(writer)


def test_hostile_names_of_paths(cairn, mnt):
    """Of files and directories with such names, and of several at once: JSON is JSON and has each byte of the path, lines stay lines."""
    top = os.fsencode(mnt)
    for number, name in enumerate((HOSTILE, b"line\nline", b"\xff\xfe", b"\xed\xa0\x80", b"\\xff", b"...", b"~")):
        below, file = os.path.join(top, name), os.path.join(top, name, name)
        os.mkdir(below)
        rig.write_file(file, bytes(number + 1))
        for path in (below, file):
            info = json.loads(expect_shown(cairn, "info", "--json", path))
            assert (info["path"], info["logical_bytes"]) == (in_json(path.removeprefix(top)), number + 1)
            assert [line[0] for line in expect_shown(cairn, "info", path).decode(errors="replace").splitlines()].count("/") == 1
        rows = json.loads(expect_shown(cairn, "du", "--json", below, file))
        assert [(row["path"], row["logical_bytes"]) for row in rows] == [(in_json(path), number + 1) for path in (below, file)]
        assert len(expect_shown(cairn, "du", below, file).splitlines()) == 3
        done = cairn_bytes(cairn, "du", "--json", file, file + b"-missing")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        assert [row["path"] for row in json.loads(done.stdout)] == [in_json(file)]


PATH_VERBS = ("wait", "warmup", "evict", "info", "du")  # of what is on a mount
MOUNT_VERBS = ("status", "umount", "stats", "metrics", "log", "scrub", "gc")


def expect_refusal(mount, code, *args):
    """One line that does nothing to a terminal, nothing else, and this exit code."""
    done = cairn_bytes(mount, *args)
    assert (done.returncode, done.stdout) == (code, b""), (args, done)
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith(b"cairn"), (args, done)
    assert is_fit_for_a_terminal(done.stderr.decode(errors="surrogateescape")), done


def test_paths_that_lead_nowhere(cairn, directory, mnt):
    """`..` out of a mount or a store, loops of symbolic links: one line each."""
    os.symlink("loop", mnt + "/loop")
    os.symlink("../../../../etc", mnt + "/out")
    os.mkdir(mnt + "/directory")
    rig.write_file(mnt + "/directory/file", b"content")
    # What cannot be looked at is a failure (1; of fsck 8), what is not there, or not on a mount, a wrong argument (2; of fsck 16).
    for path, code in (("/loop", 1), ("/loop/x", 1), ("/directory/../..", 2), ("/directory/../../" + os.path.basename(directory), 2),
                       ("/directory/file/x", 2)):
        for verb in PATH_VERBS:
            expect_refusal(cairn, code, verb, mnt + path)
        for verb in MOUNT_VERBS:
            expect_refusal(cairn, 2, verb, mnt + path)
        expect_refusal(cairn, 8 * code, "fsck", mnt + path)
    for verb in ("wait", "info", "du"):
        assert cairn.cairn(verb, mnt + "/directory/../directory/./file").returncode == 0
    os.symlink(directory, mnt + "/away")
    for verb in MOUNT_VERBS:  # `..` is above what the link leads to, as for the kernel
        expect_refusal(cairn, 2, verb, mnt + "/away/..")
    assert cairn.cairn("metrics", mnt + "/directory/..").returncode == 0
    assert cairn.answers()
    cairn.umount()
    for path, code in (("/loop", 1), ("/loop/x", 1), ("/out", 1), ("/../../directory/file", 0), ("/directory/../../../directory", 0),
                       ("/directory/file/..", 1)):
        for command in (["ls", f"{cairn.store}:{path}/"], ["cp", "-r", f"{cairn.store}:{path}", directory + "/copy"]):
            done = cairn.cairn(*command)
            shutil.rmtree(directory + "/copy", ignore_errors=True)
            with contextlib.suppress(OSError):
                os.unlink(directory + "/copy")
            wanted = code if command[0] == "ls" or path not in ("/loop", "/out") else 0  # cp copies a link as it is
            if path == "/../../directory/file" and command[0] == "ls":
                wanted = 1  # a file is no directory
            assert done.returncode == wanted, (command, done)
            assert len(done.stderr.strip().splitlines()) == (wanted != 0), (command, done)


# --- clients that die ------------------------------------------------------------------------------------------------------

CLIENTS = {
    "open": "while True: os.close(os.open(f'{top}/{n % 50}', os.O_RDWR | os.O_CREAT)); n += 1",
    "write": "fd = os.open(top + '/w', os.O_RDWR | os.O_CREAT)\nwhile True: os.write(fd, bytes(1 << 20))",
    "append": "while True:\n  with open(top + '/a', 'ab') as f: f.write(b'x' * 5000)",
    "read": "fd = os.open(top + '/r', os.O_RDWR | os.O_CREAT); os.write(fd, bytes(1 << 22))\nwhile True: os.pread(fd, 1 << 22, 0)",
    "fsync": "fd = os.open(top + '/f', os.O_RDWR | os.O_CREAT)\nwhile True: os.pwrite(fd, os.urandom(50000), 0); os.fsync(fd)",
    "rename": "os.mkdir(top + '/d0')\nwhile True: os.rename(f'{top}/d{n % 2}', f'{top}/d{(n + 1) % 2}'); n += 1",
    "readdir": "for i in range(500): open(f'{top}/{i}', 'w').close()\nwhile True: os.listdir(top); [entry.stat() for entry in os.scandir(top)]",
    "mmap": "import mmap; fd = os.open(top + '/m', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 1 << 21); m = mmap.mmap(fd, 1 << 21)\nwhile True: m[n % (1 << 21)] = 1; n += 4097; m.flush()",
    "truncate": "while True:\n  with open(top + '/t', 'wb') as f: f.write(bytes(100000)); f.truncate(n % 100000); n += 7",
    "unlink": "while True:\n  f = open(top + '/u', 'wb'); f.write(bytes(9000)); os.unlink(top + '/u'); f.write(b'x')",
    "xattr": "open(top + '/x', 'w').close()\nwhile True: os.setxattr(top + '/x', 'user.a', bytes(n % 9000)); n += 1",
    "lock": "import fcntl; f = open(top + '/l', 'w')\nwhile True: fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX)",
    "fallocate": """import ctypes; libc = ctypes.CDLL(None); fd = os.open(top + '/f', os.O_RDWR | os.O_CREAT)
while True:
  for mode in (0, 1, 3, 16): assert libc.fallocate(fd, mode, ctypes.c_long(n % 300000), ctypes.c_long(70000)) == 0
  n += 4097; os.pwrite(fd, b'x' * 5000, n % 300000)""",
    "copy": """a, b = (os.open(top + name, os.O_RDWR | os.O_CREAT) for name in ('/a', '/b')); os.write(a, os.urandom(1 << 22)); os.fsync(a)
while True: os.copy_file_range(a, b, 1 << 20, n % (3 << 20), n % (9 << 20)); n += 65537""",
    "link": "open(top + '/a', 'w').close()\nwhile True: os.link(top + '/a', top + '/b'); os.unlink(top + '/b')",
    "symlink": "while True: os.symlink('x' * (n % 4000 + 1), top + '/s'); os.readlink(top + '/s'); os.unlink(top + '/s'); n += 7",
    "mknod": "while True: os.mkfifo(top + '/p'); os.mknod(top + '/f', 0o100600); os.unlink(top + '/p'); os.unlink(top + '/f')",
    "mkdir": "while True: os.mkdir(top + '/d'); os.mkdir(top + '/d/e'); os.rmdir(top + '/d/e'); os.rmdir(top + '/d')",
    "attributes": """f = top + '/f'; open(f, 'w').close()
while True: os.chmod(f, 0o600 + n % 64); os.chown(f, n % 5, n % 7); os.utime(f, ns=(n, n)); os.stat(f); os.statvfs(f); n += 1""",
    "seek": """fd = os.open(top + '/s', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 1 << 24)
while True: os.pwrite(fd, b'x' * 100, n % 200 * 70000); n += 1; [os.lseek(fd, 0, whence) for whence in (os.SEEK_DATA, os.SEEK_HOLE)]""",
    "xattrs": """f = top + '/x'; open(f, 'w').close()
while True: os.setxattr(f, 'user.a', b'x'); os.listxattr(f); os.getxattr(f, 'user.cairn.level'); os.removexattr(f, 'user.a')""",
}


def settled(mount):
    """What of the status a client may have left behind."""
    status = mount.status()
    return {"handles": status["mount"]["open_files"], "drafts": status["stage"]["drafts"], "waiting": status["stage"]["waiting_writers"],
        "draft_bytes": status["stage"]["draft_bytes"]}


def expect_nothing_left(mount, before):
    with contextlib.suppress(TimeoutError):
        rig.poll(lambda: settled(mount) == before, 30)
    assert settled(mount) == before


@pytest.fixture
def crowd(cairn):
    """crowd(top): one client for each kind of call, which begins when this returns."""
    started = []

    def start(top):
        for name, body in CLIENTS.items():
            directory = os.path.join(top, name)
            os.makedirs(directory, exist_ok=True)
            script = f"import os\nprint(flush=True)\ntop, n = {directory!r}, 0\n{body}"
            started.append(subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        for client in started:
            assert client.stdout.readline() == b"\n"
        return started

    yield start
    for process in started:
        process.kill()
        process.wait(200)
        process.stdout.close()


def test_clients_killed_in_any_call(cairn, crowd, rng, full):
    """SIGKILL in the middle of any call: they end at once, and leave nothing behind."""
    cairn.mount(stage="64M")
    before = settled(cairn)
    for number in range(10 if full else 2):
        clients = crowd(os.path.join(cairn.mnt, str(number)))
        time.sleep(0.7 + rng.random())
        begin = time.monotonic()
        for client in clients:
            client.kill()
        ended = dict(zip(CLIENTS, (client.wait(200) for client in clients)))
        assert ended == dict.fromkeys(CLIENTS, -signal.SIGKILL), "each was at work until then"
        assert time.monotonic() - begin < 20 * rig.PATIENCE
        for client in clients:
            client.stdout.close()
        clients.clear()
    expect_nothing_left(cairn, before)
    shutil.rmtree(cairn.mnt + "/0")
    cairn.remount()
    assert "0" not in os.listdir(cairn.mnt)
    cairn.umount_whole()


READER = "import os, sys; print(1, flush=True); fd = os.open(sys.argv[1], os.O_RDONLY); print(len(os.read(fd, 1 << 20)))"
SYNCER = """import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.write(fd, os.urandom(1 << 20)); print(1, flush=True); os.fsync(fd); print(2)"""


def test_client_killed_while_it_waits_for_the_remote(cairn, directory, mount_factory, request):
    """A read and an fsync whose remote (a directory on another mount, whose daemon is stopped) does not answer can be killed at once."""
    os.mkdir(directory + "/server")
    server = mount_factory(directory + "/server", request=request).mount()
    options = {"remote": f"dir:{server.mnt}/remote", "lease": "2s"}
    cairn.mount(**options)
    cairn.write("cold", os.urandom(3 * rig.MIB), "remote")
    cairn.umount()
    shutil.rmtree(cairn.store)
    cairn.mount(fsync="remote", **options)
    before = settled(cairn)
    server.proc.send_signal(signal.SIGSTOP)
    clients = [subprocess.Popen([sys.executable, "-c", script, cairn.mnt + name], stdout=subprocess.PIPE)
        for script, name in ((READER, "/cold"), (SYNCER, "/synced"))]
    try:
        for client in clients:
            assert client.stdout.readline() == b"1\n"
        time.sleep(1)
        for client in clients:
            assert client.poll() is None, "it waits for the remote"
            begin = time.monotonic()
            client.kill()
            client.wait(200)
            assert time.monotonic() - begin < 5 * rig.PATIENCE
        answers_soon(cairn)
    finally:
        server.proc.send_signal(signal.SIGCONT)
        for client in clients:
            client.kill()
            client.wait(200)
            client.stdout.close()
    expect_nothing_left(cairn, before)
    cairn.wait(level="remote")
    assert os.path.getsize(cairn.mnt + "/synced") == rig.MIB
    assert len(rig.read_file(cairn.mnt + "/cold")) == 3 * rig.MIB
    cairn.umount()
