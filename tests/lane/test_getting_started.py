# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/getting-started, as they stand there: each block is typed in its turn, on real mounts with a remote that is a
directory. A training is run to its end, then one that saves lazily is killed, and goes on from the remote in an empty store, with the
same losses.

A page has its program in ```python, behind "Save this as `NAME`", a change of it in ```diff, and commands in ```console. Directories of
the test's own stand for /nvme, /nfs and /mnt/ckpt."""
import contextlib
import glob
import importlib.metadata
import math
import os
import re
import signal
import subprocess
import sys
import tempfile

import pytest

import rig
from sources import ROOT, read

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]

PAGES = sorted(os.path.basename(path)[: -len(".md")] for path in glob.glob(os.path.join(ROOT, "docs", "getting-started", "*.md"))
               if os.path.basename(path) != "README.md")
BLOCK = re.compile(r"^```(python|diff|console)\n(.*?)^```$", re.M | re.S)
NAME = re.compile(r"Save this as `([\w.]+)`")
TOP = re.compile(r"(?<![\w/])/(nvme|nfs|mnt/ckpt)\b")
LOSS = re.compile(r"^step (\d+) loss (\d+\.\d+)$", re.M)
RESUMED = re.compile(r"^resumed at step (\d+)$", re.M)
KILL = re.compile(r"KILL_AT=(\d+) ")
NOT_LAZY = re.compile(r".*(?:returns when the file is there|without the lane|without an adapter|SaveWarning).*")
STEPS = [10, 20, 30, 40, 50]  # with a save, in each page


def page_of(name):
    return read(f"docs/getting-started/{name}.md")


def requirements(page):
    """{package: version} of what the page installs."""
    return dict(re.findall(r"(?<=\s)([\w-]+)==(\S+)", "".join(re.findall(r"pip install [^`\n]*", page))))


def needs_packages(page):
    for name in requirements(page):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"skipped: {name} is not installed")


class Reader:
    """Types what a page says. `root`: a directory in whose place the pages have /."""

    def __init__(self, root, binary, environment):
        self.root, self.work = root, rig.mkdir(os.path.join(root, "work"))
        self.plain, self.killed, self.resumed = None, 0, None
        self.binary, self.commands = os.path.realpath(binary), rig.mkdir(os.path.join(root, "bin"))
        os.symlink(binary, os.path.join(self.commands, "cairn"))
        for name, arguments in (("python", ""), ("torchrun", "-m torch.distributed.run")):
            path = rig.write_file(os.path.join(self.commands, name), f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
            os.chmod(path, 0o755)
        self.environment = {
            **environment, "PATH": f"{self.commands}:{environment['PATH']}", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "JAX_PLATFORMS": "cpu",
        }  # fmt: skip

    def follow(self, page):
        program = None
        for match in BLOCK.finditer(page):
            kind, text = match.groups()
            if kind == "python":
                program = os.path.join(self.work, NAME.findall(page[: match.start()])[-1])
                rig.write_file(program, text)
            elif kind == "diff":
                rig.write_file(program, changed(rig.read_text(program), text))
            else:
                for command, shown in re.findall(r"^\$ (.*\n)((?:(?!\$ ).*\n)*)", text, re.M):
                    self.type(command.strip(), shown)

    def type(self, command, shown):
        kill = KILL.match(command)
        code, said = self.run(TOP.sub(lambda top: self.root + top[0], command))
        wanted = (137, -9) if "Killed" in shown else (1,) if kill else (0,)
        assert code in wanted, f"$ {command}: exit code {code}\n{said[-6000:]}"
        assert not NOT_LAZY.search(said), NOT_LAZY.search(said)[0]
        said = said.replace(self.root, "")
        if "train.py" in command:
            self.check_training(dict(LOSS.findall(said)), RESUMED.findall(said), int(kill[1]) if kill else None)
            self.check_shown(dict(LOSS.findall(shown)), RESUMED.findall(shown))
        missing = [line for line in shown.splitlines() if not LOSS.match(line) and not RESUMED.match(line)
                   and line != "Killed" and line not in said.splitlines()]
        assert missing == [], f"$ {command}\n{said[-6000:]}"

    def run(self, command):
        """(exit code, what it printed). What it left behind is ended, but for the daemon of a mount."""
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = subprocess.Popen(["bash", "-c", command], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=out)
            try:
                code = process.wait()
            finally:
                self.end_the_rest()
                process.wait()
            out.seek(0)
            return code, out.read()

    def end_the_rest(self):
        """Processes that a killed trainer had started, too: they are known by $PATH."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                ours = f"PATH={self.commands}:".encode() in rig.read_file(f"/proc/{pid}/environ")
                if ours and not os.readlink(f"/proc/{pid}/exe").startswith(self.binary):
                    os.kill(int(pid), signal.SIGKILL)

    def check_training(self, losses, resumed, kill):
        """The losses are those of the first run, from where this one began to where it was killed."""
        losses = {int(step): loss for step, loss in losses.items()}
        if self.plain is None:
            assert kill is None and not resumed and sorted(losses) == STEPS, losses
            self.plain = losses
            return
        start = int(resumed[0]) if resumed else 0
        if kill:
            assert not resumed
            self.killed = kill
        else:  # newer saves may have had no name yet
            assert len(resumed) == 1 and start in STEPS and start < self.killed, resumed
            self.resumed = start
        assert losses == {step: loss for step, loss in self.plain.items() if start < step <= (kill or STEPS[-1])}

    def check_shown(self, losses, resumed):
        """The page has the losses of another machine."""
        pairs = [(float(loss), float(self.plain[int(step)])) for step, loss in losses.items()]
        assert pairs and all(math.isclose(*pair, rel_tol=0.05) for pair in pairs), pairs
        assert all(int(step) in STEPS and int(step) < self.killed for step in resumed)

    def close(self):
        mountpoint = os.path.join(self.root, "mnt/ckpt")
        if os.path.isdir(mountpoint) and rig.mounted_at(mountpoint):
            self.run(f"cairn umount {mountpoint}")


def changed(program, diff):
    """Each line that goes is there once; the lines that come take its place."""
    for old, new in re.findall(r"^-(.*\n)\+(.*\n)", diff, re.M):
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    return program


@pytest.fixture
def reader(request, directory, binary, programs):
    rig.need_root("/dev/fuse")
    made = Reader(directory, binary, programs)
    request.addfinalizer(made.close)
    return made


@pytest.mark.parametrize("name", PAGES)
def test_page(reader, name):
    page = page_of(name)
    needs_packages(page)
    reader.follow(page)
    assert reader.plain and reader.killed and reader.resumed
