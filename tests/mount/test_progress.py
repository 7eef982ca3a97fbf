# SPDX-License-Identifier: Apache-2.0
"""How far a verb has come: drawn where standard error is a terminal, and nowhere else."""
import os
import pty
import re
import subprocess

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount

SIZE = 64 * rig.MIB
BAR = re.compile(r"\r\[(=* *)\] +(\d+)%  (\S+ \S+) left, (\S+ \S+)/s, \S+ \S+ \x1b\[K")


def read_terminal(fd):
    """All that is written there until the last process has closed it."""
    parts = []
    try:
        while part := os.read(fd, 4096):
            parts.append(part)
    except OSError:
        pass  # what Linux answers for the end
    return b"".join(parts).decode()


def at_terminal(cairn, *args):
    """Run a verb with standard error on a terminal; what it wrote there."""
    master, slave = pty.openpty()
    try:
        with subprocess.Popen([cairn.binary, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, text=True) as process:
            os.close(slave)
            written = read_terminal(master)
            told = process.stdout.read()
        assert process.returncode == 0, (process.returncode, told, written)
    finally:
        os.close(master)
    return written


def expect_bar(written):
    """Bars over each other, from nothing to all, and one newline behind the last."""
    assert written.endswith("\r\n") and written.count("\n") == 1, repr(written)
    bars = BAR.findall(written)
    assert BAR.sub("", written) == "\r\n", repr(written)
    percents = [int(percent) for _, percent, _, _ in bars]
    assert percents == sorted(percents) and percents[0] == 0 and percents[-1] == 100, percents
    assert all(len(line) == 30 and abs(line.count("=") - 0.3 * percent) <= 1 for (line, *_), percent in zip(bars, percents)), bars
    assert bars[0][2] != "0 B" and bars[0][3] == "0 B" and bars[-1][2] == "0 B", bars


@pytest.fixture
def behind(cairn, rng):
    """A mount whose stage holds a file that nothing but a wait carries to NVMe."""
    cairn.mount(stage="128M", writeback_delay="10m", writeback_limit="64K")
    rig.write_file(cairn.mnt + "/file", rng.randbytes(SIZE))
    return cairn


def test_wait_at_a_terminal(behind):
    expect_bar(at_terminal(behind, "wait", behind.mnt + "/file"))
    assert at_terminal(behind, "wait", behind.mnt + "/file") == "", "there was nothing to wait for"


def test_umount_at_a_terminal(behind):
    expect_bar(at_terminal(behind, "umount", behind.mnt))
    assert behind.reap() == 0 and not rig.mounted_at(behind.mnt)


@pytest.mark.parametrize("verb", ["wait", "umount"])
def test_nothing_is_drawn_into_a_pipe(behind, verb):
    assert behind.verb(verb, behind.mnt).stderr == ""


def test_warmup_and_scrub_at_a_terminal(request, mount_factory, directory, rng):
    """One line that is written over: it stays when all is fetched, and makes room for the report of a scrub."""
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remotes.DirRemote(os.path.join(directory, "remotes")),
                          request=request)
    cairn.mount()
    path = rig.write_file(cairn.mnt + "/file", rng.randbytes(8 * rig.MIB))
    cairn.wait(level="remote")
    cairn.remount()  # nothing is in the stage
    assert cairn.cairn("evict", path).stderr == ""
    fetched = at_terminal(cairn, "warmup", path)
    assert re.fullmatch(rf"(\r{re.escape(path)}: \S+ \S+ of \S+ \S+ \x1b\[K)+\r\n", fetched), repr(fetched)
    assert re.findall(r"(\S+ \S+) of (\S+ \S+) ", fetched)[-1] == ("8.0 MiB", "8.0 MiB"), repr(fetched)
    scrubbed = at_terminal(cairn, "scrub", "--rate", "4M", cairn.mnt)
    assert re.fullmatch(r"(\r\S+ \S+ of \S+ \S+ read, \S+ \S+/s, 0 damaged, \S+ \S+ \x1b\[K)+\r\x1b\[K", scrubbed), repr(scrubbed)
    assert cairn.cairn("scrub", cairn.mnt).stderr == cairn.cairn("warmup", path).stderr == ""


def test_restore_at_a_terminal(on_remote, rng):
    """A line that is written over says how much is there; it makes room for the result."""
    node = on_remote().mount()
    files = {f"{number}.pt": rng.randbytes(rig.MIB) for number in range(20)}
    rig.write_files(node.mnt, files)
    node.verb("snapshot", "create", node.mnt, "then")
    for name in files:
        os.unlink(os.path.join(node.mnt, name))
    written = at_terminal(node, "restore", node.mnt, "--at", "then")
    line = r"\r\x1b\[Kcairn restore: (\S+ \S+) of (\S+ \S+), (\d+) of (\d+) files, \S+ \S+/s"
    assert re.fullmatch(rf"({line})+\r\x1b\[K", written), repr(written)
    assert {(whole, count) for _, whole, _, count in re.findall(line, written)} == {("20.0 MiB", "20")}, repr(written)
    rig.check_files(node.mnt, files)
