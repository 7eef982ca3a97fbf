# SPDX-License-Identifier: Apache-2.0
"""Programs that save lazily, as the mount's operator sees them: reports through user.cairn.lane."""
import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
import remote as remotes
import rig
import successor

pytestmark = pytest.mark.needs_mount
LANE = "user.cairn.lane"
LANES_MAX = 256  # FS_LANES_MAX
NOBODY = 65534


def text(pending=0, saves=0, blocked_ns=0, published=0, failed=0, error=b""):
    return f"1 pending={pending} saves={saves} blocked_ns={blocked_ns} published={published} failed={failed} error=".encode() + error


@contextlib.contextmanager
def program(path, value, name=None, uid=0):
    """A process that has reported, and lives."""
    reader, writer = os.pipe()
    fd = os.open(path, os.O_RDONLY)  # other users cannot go to where it lies

    def report():
        if name is not None:
            rig.write_file("/proc/self/comm", name, os.O_WRONLY)
        os.setresuid(uid, uid, uid)
        os.setxattr(fd, LANE, value)
        os.write(writer, b"x")
        signal.pause()

    pid = rig.fork(report)
    os.close(writer)
    os.close(fd)
    try:
        assert os.read(reader, 1) == b"x", "the program could not report"
        yield pid
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


MANY = """
import os, signal, sys
fd, uid, reports, pids = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4:], []
reader, writer = os.pipe()
for report in reports:
    pids.append(os.fork())
    if pids[-1] == 0:
        os.setresuid(uid, uid, uid)
        os.setxattr(fd, sys.argv[3], report.encode())
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
print("ready", flush=True)
sys.stdin.read()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


@contextlib.contextmanager
def many_programs(path, count, uid):
    """The same of so many, one after the other: children of a small process, which costs far less than as many forks of this one."""
    with rig.opened(path, os.O_RDONLY) as fd:
        command = [sys.executable, "-S", "-c", MANY, str(fd), str(uid), LANE, *(text(number).decode() for number in range(count))]
        with subprocess.Popen(command, pass_fds=[fd], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            yield


def clients(cairn):
    return {client["pid"]: client for client in cairn.status()["lanes"]["clients"]}


def show(cairn):
    done = subprocess.run([cairn.binary, "status", cairn.mnt], capture_output=True, timeout=300)
    assert done.returncode == 0, done
    return done.stdout


def test_programs_are_named(cairn, mnt):
    """status, its JSON, stats and metrics name each program that reports; one that has ended is gone."""
    directory = rig.mkdir(mnt + "/run")
    assert cairn.status()["lanes"]["clients"] == [] and b"lazy saves" not in show(cairn)
    first = text(3 * rig.GIB, 2, 1_500_000_000, 7)
    with program(directory, first, b"trainer") as one:
        with program(directory, text(0, 0, 20_000_000, 40, 1, b"No space left on device: run/step-40"), b"other") as two:
            seen = clients(cairn)
            assert set(seen) == {one, two}
            for key, value in {"program": "trainer", "uid": 0, "pending_bytes": 3 * rig.GIB, "pending_saves": 2, "blocked_seconds": 1.5,
                               "published": 7, "failed": 0}.items():
                assert seen[one][key] == value, key
            assert "last_error" not in seen[one] and seen[two]["last_error"] == "No space left on device: run/step-40"
            shown = show(cairn).decode()
            assert re.search(rf"^  lazy saves +2 programs, 3\S* GiB to copy:$", shown, re.M), shown
            assert re.search(rf"^    pid {one}, trainer: 3\S* GiB left of 2 saves, 7 saved, blocked for 1.5 s", shown, re.M), shown
            assert re.search(rf"^    pid {two}, other: nothing left, 40 saved, 1 failed, .*last error: No space left", shown, re.M), shown
            metrics = cairn.cairn("metrics", mnt).stdout
            assert "cairnfs_lane_clients 2\n" in metrics
            assert f'cairnfs_lane_pending_bytes{{pid="{one}",program="trainer"}} {3 * rig.GIB}\n' in metrics
            assert f'cairnfs_lane_failed_total{{pid="{two}",program="other"}} 1\n' in metrics
            assert f'cairnfs_lane_blocked_seconds_total{{pid="{one}",program="trainer"}} 1.5\n' in metrics
            line = json.loads(cairn.cairn("stats", mnt, "--json", "--count", "1", "--interval", "100ms").stdout)
            title, row = cairn.cairn("stats", mnt, "--count", "1", "--interval", "100ms").stdout.splitlines()
            assert title.split()[-3:] == ["lazy", "left", "blocked"] and row.split()[-4:] == ["3.0", "GiB", "0.0", "s"]
            assert line["lane_pending_bytes"] == 3 * rig.GIB and line["lane_blocked_seconds"] == 0
            assert {client["pid"]: client.get("last_error") for client in line["lane_clients"]} == {
                one: None, two: "No space left on device: run/step-40"}
        assert set(clients(cairn)) == {one}
    assert clients(cairn) == {} and "cairnfs_lane_clients 0\n" in cairn.cairn("metrics", mnt).stdout
    assert "cairnfs_lane_pending_bytes{" not in cairn.cairn("metrics", mnt).stdout
    assert "lazy left" not in cairn.cairn("stats", mnt, "--count", "1", "--interval", "100ms").stdout


def test_a_later_report_takes_the_place_of_the_one_before(cairn, mnt):
    """By process, whichever of its threads reports, and on whatever of the mount."""
    rig.write_file(mnt + "/file", b"x")
    with rig.opened(mnt, os.O_TMPFILE | os.O_RDWR, 0o600) as fd:
        for number, where in enumerate((mnt, mnt + "/file", fd), 1):
            thread = threading.Thread(target=os.setxattr, args=(where, LANE, text(number)))
            thread.start()
            thread.join()
            seen = clients(cairn)
            assert set(seen) == {os.getpid()} and seen[os.getpid()]["pending_bytes"] == number


def steps(step_ns, cost_ns):
    return f"2 step_ns={step_ns} cost_ns={cost_ns}".encode()


def test_a_program_tells_of_its_steps(cairn, mnt):
    """Beside its saves: neither report takes the place of the other. They are gone with the program."""
    os.setxattr(mnt, LANE, steps(250_000_000, 800_000_000))
    os.setxattr(mnt, LANE, text(5, published=3))
    os.setxattr(mnt, LANE, text(6, published=4))
    seen = clients(cairn)[os.getpid()]
    assert (seen["step_seconds"], seen["save_cost_seconds"], seen["pending_bytes"], seen["published"]) == (0.25, 0.8, 6, 4)
    os.setxattr(mnt, LANE, steps(500_000_000, 0))
    seen = clients(cairn)[os.getpid()]
    assert (seen["step_seconds"], seen["save_cost_seconds"], seen["pending_bytes"], seen["published"]) == (0.5, 0, 6, 4)
    with program(mnt, steps(7_000_000_000, 1)) as pid:
        assert clients(cairn)[pid]["step_seconds"] == 7
    assert set(clients(cairn)) == {os.getpid()}
    with program(mnt, text(1)) as pid:
        assert clients(cairn)[pid]["step_seconds"] == 0 and os.listxattr(mnt) == []


def test_it_is_no_attribute(cairn, mnt):
    """A report is not stored, not listed, no change of the inode, and gone with the daemon; read, the attribute tells of the mount."""
    path = rig.write_file(mnt + "/file", b"x")
    before, newest = os.stat(path), cairn.status()["nvme"]["newest_seq"]
    os.setxattr(path, LANE, text(5))
    os.setxattr(path, LANE, text(6), os.XATTR_CREATE)
    after = os.stat(path)
    assert [before[i] for i in range(10)] == [after[i] for i in range(10)] and before.st_ctime_ns == after.st_ctime_ns
    assert cairn.status()["nvme"]["newest_seq"] == newest, "it is an operation of the history"
    assert os.listxattr(path) == []
    with pytest.raises(OSError):
        os.removexattr(path, LANE)
    for where in (path, mnt):
        assert os.getxattr(where, LANE) == b"1 stage=%d remote=0 loads=0" % cairn.status()["stage"]["total_bytes"]
    assert clients(cairn)
    cairn.remount()
    assert clients(cairn) == {} and os.listxattr(path) == []


BAD = (b"", b"1", b"1 ", b"2" + text()[1:], text()[:-1], text() + b"\0", text() + b"x" * 512, text(error=b"a\0b"), b" " + text(),
       text().replace(b"pending=0", b"pending=-1"), text().replace(b"pending=0", b"pending="), text().replace(b"pending=0", b"pending=0x1"),
       text().replace(b"saves=0", b"saves=18446744073709551616"), text().replace(b" saves=0", b""), text().replace(b"saves=0", b"saves=0 "),
       text().replace(b"failed", b"Failed"), text().replace(b"error", b"errors"), b"\xff" * 100,
       b"2 ", b"2 step_ns=1", b"2 step_ns=1 cost_ns=", b"2 step_ns=1 cost_ns=1 ", b"2 step_ns=-1 cost_ns=1", b"2 cost_ns=1 step_ns=1",
       b"2 step_ns=1 cost_ns=18446744073709551616")


def test_bad_text_is_refused(cairn, mnt):
    """EINVAL, and what was known before stays."""
    os.setxattr(mnt, LANE, text(5))
    for bad in BAD:
        with pytest.raises(OSError) as caught:
            os.setxattr(mnt, LANE, bad)
        assert caught.value.errno == errno.EINVAL, bad
    assert clients(cairn)[os.getpid()]["pending_bytes"] == 5
    largest = (1 << 64) - 1
    os.setxattr(mnt, LANE, text(largest, largest, largest, largest, largest, b"e" * 300))
    seen = clients(cairn)[os.getpid()]
    assert int(seen["pending_bytes"]) == largest and seen["last_error"] == "e" * 255
    assert show(cairn) and cairn.cairn("metrics", mnt).returncode == 0


def test_what_a_program_says_drives_no_terminal(cairn, mnt):
    """Control characters, quotes, line ends and bytes that are no UTF-8, in the error and in the program's name."""
    with program(mnt, text(1, 1, 0, 0, 1, b'\x1b[2J\nforged: "line\\ \xff\xc2\x9b end'), b'a\x1b"\n\xffb') as pid:
        shown = show(cairn)
        assert not any(byte < 0x20 and byte != 0x0A for byte in shown) and b"\xc2\x9b" not in shown
        assert b"\nforged" not in shown and shown.count(b"\n    pid %d, " % pid) == 1
        seen = clients(cairn)[pid]  # JSON that can be read
        assert "forged" in seen["last_error"]
        metrics = subprocess.run([cairn.binary, "metrics", mnt], capture_output=True, timeout=300).stdout.decode()
        rows = [line for line in metrics.split("\n") if line.startswith("cairnfs_lane_failed_total{")]
        assert len(rows) == 1 and re.fullmatch(r'cairnfs_lane_failed_total\{pid="\d+",program="([^"\\\n]|\\[\\"n])*"\} 1', rows[0]), rows


def test_nobody_displaces_another_user(cairn, mnt):
    """The table has a size: a user who reports with very many processes displaces their own."""
    os.chmod(mnt, 0o777)
    with program(mnt, text(1)) as mine, many_programs(mnt, LANES_MAX + 4, NOBODY):
        lanes = cairn.status()["lanes"]
        assert len(lanes["clients"]) == LANES_MAX and lanes["forgotten"] == 5
        assert {client["pid"]: client["uid"] for client in lanes["clients"]}[mine] == 0
        with program(mnt, text(2)) as late:
            assert {mine, late} <= set(clients(cairn))
    assert clients(cairn) == {}
    with program(mnt, text(1)) as pid:
        assert set(clients(cairn)) == {pid}


def test_the_number_is_the_kernels(cairn, mnt):
    """Of a process with other numbers inside its container, and of one that may not write there."""
    code = f"import os, time; os.setxattr({mnt!r}, {LANE!r}, {text(9)!r}); print(os.getpid(), flush=True); time.sleep(1000)"
    with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", code], stdout=subprocess.PIPE) as proc:
        try:
            assert int(proc.stdout.readline()) == 1
            (seen,) = clients(cairn).values()
            assert code.encode() in rig.read_file(f"/proc/{seen['pid']}/cmdline")
        finally:
            proc.kill()
    rig.poll(lambda: not clients(cairn), 10, "the end of the container's program")
    os.chmod(mnt, 0o755)
    with pytest.raises(AssertionError, match="could not report"), program(mnt, text(1), uid=NOBODY):
        pass
    assert clients(cairn) == {}


def test_a_remote_is_told_of(on_remote, directory):
    """With a remote that takes what is written here."""
    cairn = on_remote(remotes.DirRemote(directory))
    cairn.mount()
    assert os.getxattr(cairn.mnt, LANE).endswith(b" remote=1 loads=0")


def test_a_successor_hears_of_it_again(mount_factory, directory, request):
    """The daemon dies and another goes on: programs are there again at their next report."""
    cairn = mount_factory(directory, kind=successor.Kept, successor="on", crash_window=0, request=request)
    cairn.mount()
    os.setxattr(cairn.mnt, LANE, text(1))
    assert clients(cairn)
    cairn.kill_daemon()
    os.setxattr(cairn.mnt, LANE, text(2))  # waits
    assert clients(cairn)[os.getpid()]["pending_bytes"] == 2
    assert cairn.successor()["deaths"] == 1


SAVER = """
import ctypes, os, sys
lib, user, directory = ctypes.CDLL(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.fchdir(directory)
os.setresuid(user, user, user)
def new_lane():
    lane = ctypes.c_void_p()
    assert lib.cairn_lane_open(None, ctypes.byref(lane)) == 0
    return lane
def publish(lane, path):
    save = ctypes.c_void_p()
    assert lib.cairn_save_marker(lane, path, b"text", ctypes.c_size_t(4), None, ctypes.byref(save)) == 0
    assert lib.cairn_save_wait(save, 1, -1) == 0
    lib.cairn_save_free(save)
def fail(lane, path):
    save = ctypes.c_void_p()
    assert lib.cairn_save_begin(lane, path, ctypes.c_uint64(100), None, ctypes.byref(save)) == 0
    assert lib.cairn_save_fail(save, -5, b"it was \\x1b torn") == 0
    lib.cairn_save_free(save)
def step():
    print("done", flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def saver(request, mount, code, user=0):
    """A process with libcairn: each next() lets it go on to its next step()."""
    if request.config.getoption("--sanitize"):
        pytest.skip("skipped: a sanitizer's library cannot be loaded into Python: tests/client covers it")
    library = os.path.join(request.config.getoption("--build"), "src", "client", "libcairn.so.0")
    fd = os.open(mount.mnt, os.O_RDONLY | os.O_DIRECTORY)
    command = [sys.executable, "-c", SAVER + code, os.path.abspath(library), str(user), str(fd)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, pass_fds=[fd]) as proc:
        os.close(fd)

        def steps():
            while proc.stdout.readline() == "done\n":
                yield proc.pid
                proc.stdin.write("\n")

        try:
            yield steps()
        finally:
            proc.stdin.close()
            assert proc.wait(100) == 0


def told(cairn, pid):
    """Reports come before a wait for a save returns, those of failures after."""
    found = clients(cairn)[pid]
    return found["pending_saves"], found["published"], found["failed"]


@pytest.mark.parametrize("user", [0, NOBODY])
def test_libcairn_reports(request, cairn, user, mnt):
    """When a save has its name or has failed, for all lanes of the process; also from a directory whose attributes are its owner's
    alone."""
    os.chmod(cairn.root, 0o711)
    os.chmod(mnt, 0o1777)
    code = """
one, two = new_lane(), new_lane()
publish(one, b"a")
step()
publish(two, b"b")
assert lib.cairn_lane_close(two) == 0
publish(one, b"a")
step()
fail(one, b"c")
step()
assert lib.cairn_lane_close(one) == -5
"""
    with saver(request, cairn, code, user) as steps:
        pid = next(steps)
        assert told(cairn, pid) == (0, 1, 0) and clients(cairn)[pid]["uid"] == user
        next(steps)
        assert told(cairn, pid) == (0, 3, 0)
        next(steps)
        if user == 0:  # others may write no attribute of this directory, and the save has no file
            rig.poll(lambda: told(cairn, pid) == (0, 3, 1), 10, "the report of the failure")
            assert clients(cairn)[pid]["last_error"].endswith("/c: it was \x1b torn")
        assert next(steps, None) is None
    assert sorted(os.listdir(mnt)) == ["a", "b"] and os.listxattr(mnt) == os.listxattr(mnt + "/a") == []


def test_libcairn_reports_to_cairnfs_only(request, cairn, shm_directory):
    """No attribute is left on another filesystem."""
    place = rig.Plain(shm_directory).mount()
    with saver(request, place, 'lane = new_lane()\npublish(lane, b"a")\nstep()\nassert lib.cairn_lane_close(lane) == 0\n') as steps:
        next(steps)
        assert os.listxattr(place.mnt) == os.listxattr(place.mnt + "/a") == []


def test_libcairn_leaves_no_hold_on_the_mount(request, cairn, mnt):
    """A program that knows that a save has its name may unmount at once."""
    with saver(request, cairn,
               'lane = new_lane()\nos.chdir("/")\nos.close(directory)\nfor i in range(20):\n    publish(lane, (sys.argv[4] + "/a").encode())\n    step()\n'
               .replace("sys.argv[4]", repr(mnt))) as steps:
        for _ in range(3):
            next(steps)
            cairn.remount()
        for _ in steps:
            pass
