# SPDX-License-Identifier: Apache-2.0
"""The log, and the errors that programs got: what happened, why, how often."""
import errno
import json
import os
import re
import stat
import subprocess
import threading
import time

import pytest

import processes
import remote as remotes
import rig
from test_damage import filled, find_in_packs, read_blocks  # noqa: F401 (filled: a fixture)
from test_remote_cli import unreachable

pytestmark = pytest.mark.needs_mount

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} cairn (error|warning|info|debug): \S.*")


def log_lines(cairn, *args, code=0):
    return cairn.verb("log", *args, code=code).stdout.splitlines()


def test_log_of_a_life(cairn, mnt):
    """In the foreground and in the background the log is in the store, private, and told of by mountpoint and store."""
    lines = log_lines(cairn, mnt)
    assert lines and all(map(LINE.fullmatch, lines)), lines
    assert f"is mounted at {mnt}" in lines[-1] and lines[-1] in cairn.log(), "-f: on standard error too"
    assert stat.S_IMODE(os.stat(cairn.store + "/log").st_mode) == 0o600
    cairn.umount()
    lines = log_lines(cairn, cairn.store)
    assert "is unmounted" in lines[-1]
    cairn.verb("mount", cairn.store, mnt, "-o", cairn.option_string({}))
    try:
        assert len(log_lines(cairn, cairn.store)) > len(lines)
        assert log_lines(cairn, mnt, "-n", "1") == log_lines(cairn, mnt)[-1:]
    finally:
        assert cairn.cairn("umount", mnt).returncode == 0


def test_log_elsewhere(cairn):
    """The daemon says where its log is."""
    path = cairn.root + "/other.log"
    cairn.mount(log=path)
    assert not os.path.exists(cairn.store + "/log")
    assert "is mounted at" in log_lines(cairn, cairn.mnt)[-1] == rig.read_file(path).decode().splitlines()[-1]


@pytest.fixture
def written(cairn):
    """A store with a log that is made up, and the part before it."""
    cairn.mount()
    cairn.umount()
    stamp = "2026-01-02 03:04:05.%03d cairn %s: line %d of\x1b[2J text"
    levels = ("error", "warning", "info", "debug")
    lines = [stamp % (i, levels[i % 4], i) for i in range(40)]
    for name, part in (("log.1", lines[:20]), ("log", [*lines[20:], "a library's own words"])):
        rig.write_file(f"{cairn.store}/{name}", "".join(line + "\n" for line in part).encode())
    return cairn, [line.replace("\x1b", "?") for line in lines]


def test_log_is_filtered(written):
    cairn, lines = written
    assert log_lines(cairn, cairn.store) == [*lines, "a library's own words"]
    assert log_lines(cairn, cairn.store, "--level", "error") == lines[::4]
    assert log_lines(cairn, cairn.store, "--level", "warning", "-n", "3") == [lines[36], lines[37], "a library's own words"]
    shown = [json.loads(line) for line in log_lines(cairn, cairn.store, "--json", "--level", "info")]
    assert shown[0] == {"time": "2026-01-02 03:04:05.000", "level": "error", "text": "line 0 of?[2J text"}
    assert shown[-1] == {"level": "warning", "text": "a library's own words"} and len(shown) == 31


def test_log_is_followed_over_its_move(written):
    """What comes is shown once, also when the file was moved away and begun anew."""
    cairn, _ = written
    with subprocess.Popen([cairn.binary, "log", cairn.store, "-f", "-n", "0"], stdout=subprocess.PIPE, text=True) as follow:
        def say(text):
            rig.write_file(cairn.store + "/log", text, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def next_line():
            return follow.stdout.readline().partition(": ")[2]

        hang = threading.Timer(20 * rig.PATIENCE, follow.kill)
        hang.start()
        try:
            rig.poll(lambda: processes.has_read(follow.pid, cairn.store + "/log"), 20, "the log to be followed")
            say("2026-01-02 03:04:06.000 cairn info: one\n2026-01-02 03:04:06.000 cairn in")
            assert next_line() == "one\n"
            say("fo: two\n")
            os.rename(cairn.store + "/log", cairn.store + "/log.1")
            say("2026-01-02 03:04:06.000 cairn info: three\n")
            assert [next_line(), next_line()] == ["two\n", "three\n"]
        finally:
            hang.cancel()
            follow.terminate()
    assert follow.wait(200) == 130


def test_log_that_is_not_there(cairn):
    cairn.mount()
    cairn.umount()
    os.unlink(cairn.store + "/log")
    done = cairn.cairn("log", cairn.store)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "/log" in done.stderr


def errors_of(cairn):
    return cairn.status()["errors"]


def test_no_errors_for_what_is_wrong_of_programs(cairn, mnt):
    """ENOENT, EEXIST, ENOTEMPTY and such are no errors of ours."""
    os.mkdir(mnt + "/d")
    rig.write_file(mnt + "/d/f", b"x")
    for call, args in ((os.stat, ("/no",)), (os.mkdir, ("/d",)), (os.rmdir, ("/d",)), (os.getxattr, ("/d/f", "user.no"))):
        with pytest.raises(OSError):
            call(mnt + args[0], *args[1:])
    assert errors_of(cairn) == [] and cairn.status()["errors_total"] == 0
    assert "none since the mount" in cairn.cairn("status", mnt).stdout


def test_errors_tell_file_call_and_cause(filled):  # noqa: F811
    """EIO for a damaged file: which file, which call, why, how often, since when; the newest last; once in the log."""
    cairn, files = filled
    for name in ("victim", "z"):
        path, at = find_in_packs(cairn.store, files[name][:64])
        rig.flip(path, at)
    began = time.time()
    cairn.mount()
    os.rename(cairn.mnt + "/z", cairn.mnt + "/new\nli\x1bne-\udcff")
    os.mkdir(cairn.mnt + "/directory")
    for name in ("victim", "new\nli\x1bne-\udcff"):
        assert read_blocks(f"{cairn.mnt}/{name}", files["victim" if name == "victim" else "z"]) != []
    first, second = errors_of(cairn)
    assert first["path"] == "/victim" and second["path"] == "/new\nli\x1bne-\\xff"
    assert first["call"] == "read" and first["errno"] == errno.EIO and "damaged" in first["cause"] and "scrub" in first["cause"]
    assert began - 1 < first["first_s"] <= first["last_s"] < time.time() + 1
    count = first["count"]
    assert read_blocks(cairn.mnt + "/victim", files["victim"]) != []
    again = errors_of(cairn)
    assert [e["path"] for e in again] == [second["path"], first["path"]], "the newest last"
    assert again[-1]["count"] > count and again[-1]["first_s"] == first["first_s"]
    assert cairn.status()["errors_total"] >= again[-1]["count"]
    text = cairn.cairn("status", cairn.mnt).stdout
    (line,) = [line for line in text.splitlines() if "/victim: read:" in line]
    assert "damaged" in line and "times since" in line and "/new?li?ne-\\xff: read: Input/output error" in text
    said = [line for line in log_lines(cairn, cairn.mnt) if "/victim: read failed" in line]
    assert len(said) == 1 and LINE.fullmatch(said[0])


def test_errors_are_bounded(filled):  # noqa: F811
    """The list holds the last 64; the rest is counted."""
    cairn, files = filled
    cairn.mount()
    for i in range(80):
        os.link(cairn.mnt + "/a", f"{cairn.mnt}/a{i}")
        rig.write_file(f"{cairn.mnt}/copy{i}", rig.seeded_bytes(i, 100 * rig.KIB))
    cairn.umount()
    cairn.drop_stage()
    for top, _, names in os.walk(cairn.store + "/packs"):
        for name in names:
            os.truncate(os.path.join(top, name), 4096)
    cairn.mount()
    failed = 0
    for i in range(80):
        try:
            rig.read_file(f"{cairn.mnt}/copy{i}")
        except OSError as error:
            assert error.errno == errno.EIO
            failed += 1
    status = cairn.status()
    assert failed > 70 and len(status["errors"]) == 64 and status["errors_forgotten"] >= failed - 64
    assert status["errors"][-1]["path"] == "/copy79"
    assert cairn.cairn("status", cairn.mnt).stdout.count(": read: ") == 64
    said = "".join(log_lines(cairn, cairn.mnt))
    assert said.count("read failed") <= 31, "no more than some of a kind in a minute"


def test_error_of_a_remote_that_is_gone(request, mount_factory, directory, rng):
    """EIO for content that lies in the remote only names the remote and its error."""
    remote = remotes.DirRemote(directory + "/remotes")
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remote, remote_timeout="1s", request=request)
    cairn.mount()
    cairn.write("file", rig.seeded_bytes(rng.random(), 2 * rig.MIB), "remote")
    assert cairn.cairn("evict", cairn.mnt + "/file").returncode == 0
    cairn.remount()
    with unreachable(remote), pytest.raises(OSError) as caught:
        rig.read_file(cairn.mnt + "/file")
    assert caught.value.errno == errno.EIO
    error = errors_of(cairn)[-1]
    assert error["path"] == "/file" and error["call"] == "read" and "the remote did not give it" in error["cause"], error
