# SPDX-License-Identifier: Apache-2.0
"""`cairn top`: pictures of a mount, one after the other into a pipe, one over the other on a terminal."""
import os
import pty
import re
import signal
import subprocess
import termios

import pytest

import rig

pytestmark = pytest.mark.needs_mount
OPENED, CLOSED = b"\033[?1049h", b"\033[?1049l"


def test_pictures_into_a_pipe(cairn, mnt):
    rig.write_file(f"{mnt}/file", os.urandom(3 << 20))
    done = cairn.verb("top", mnt, "-n", "3", "-i", "100ms")
    assert "\033" not in done.stdout and "fetched" not in done.stdout, "there is no remote"
    for row in ("written", "read", "to NVMe", "files", "not yet on NVMe", "errors"):
        assert len(re.findall(rf"^  {row} ", done.stdout, re.M)) == 3, (row, done.stdout)


def test_rates(cairn, mnt):
    """Of what was written since the picture before. The highest is the most."""
    with subprocess.Popen([cairn.binary, "top", mnt, "-i", "200ms"], stdout=subprocess.PIPE, text=True) as top:
        top.stdout.readline()
        rig.write_file(f"{mnt}/file", os.urandom(8 << 20))
        rig.poll(lambda: re.search(r"at most [\d.]+ MiB/s", top.stdout.readline()), 30, "a rate", 0)
        top.send_signal(signal.SIGINT)
        top.communicate(timeout=rig.PATIENCE * 30)
    assert top.returncode == 130


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *command):
        self.ours, theirs = pty.openpty()
        self.before = termios.tcgetattr(self.ours)
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, env={**os.environ, "LC_ALL": "C.UTF-8"})
        os.close(theirs)
        self.text = b""

    def read_until(self, text):
        while text not in self.text:
            self.text += os.read(self.ours, 65536)

    def end(self):
        """Returns the exit code. The terminal is as it was."""
        self.read_until(CLOSED)
        code = self.process.wait(rig.PATIENCE * 30)
        assert termios.tcgetattr(self.ours) == self.before
        os.close(self.ours)
        return code


@pytest.mark.parametrize("how", ["q", "interrupt", "daemon"])
def test_on_a_terminal(cairn, mnt, how):
    """However it ends, the terminal is given back as it was."""
    terminal = Terminal(cairn.binary, "top", mnt, "-i", "100ms")
    terminal.read_until(b"q ends")
    assert terminal.text.startswith(OPENED) and "\n  written".encode() not in terminal.text.split(OPENED)[0]
    if how == "q":
        os.write(terminal.ours, b"xq")
    elif how == "interrupt":
        terminal.process.send_signal(signal.SIGINT)
    else:
        cairn.kill9()
    assert terminal.end() == (1 if how == "daemon" else 0)
    if how == "daemon":
        cairn.mount()


def test_a_small_terminal(cairn, mnt):
    """What has no room is left out: nothing scrolls."""
    terminal = Terminal("sh", "-c", f"stty rows 6 cols 40 && exec '{cairn.binary}' top '{mnt}' -i 100ms")
    terminal.read_until(b"\033[J")
    picture = terminal.text.split(b"\033[H")[1].split(b"\033[J")[0]
    assert picture.count(b"\n") == 5 and b"written" in picture
    os.write(terminal.ours, b"q")
    terminal.read_until(CLOSED)
    assert terminal.process.wait(rig.PATIENCE * 30) == 0
    os.close(terminal.ours)
