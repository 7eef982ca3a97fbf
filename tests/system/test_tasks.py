# SPDX-License-Identifier: Apache-2.0
"""The commands with which each page of docs/tasks begins, as they stand there, on a mount with a remote that is a directory. Each of them
ends well, and at the end of some pages their promise holds."""
import glob
import json
import os
import re
import subprocess

import pytest

import rig
from sources import ROOT, read

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(180)]

PAGES = sorted(os.path.basename(path)[: -len(".md")] for path in glob.glob(os.path.join(ROOT, "docs", "tasks", "*.md")))
OTHER_TOOLS = re.compile(r"apt-get |ninja |aws |python |cat /proc|diff ")  # not of this machine, or of another test
TOPS = re.compile(r"(?<![\w/.])/(nvme|nfs|mnt|data|backup)\b")
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ|(?<=--at )(?:30m|17)\b")


def first_commands(page):
    """Those of the first indented block, without the name of a machine before them and the comment behind."""
    block = re.search(r"(?:^ {4}\S.*\n)+", read(f"docs/tasks/{page}.md"), re.M)[0]
    return [re.sub(r"^ *(?:\w+\$ )?(.*?)(?: {2,}#.*)?$", r"\1", line) for line in block.splitlines()]


class Reader:
    """Types commands below a directory that stands for /. There are two checkpoints in the remote, and a time at which both were there."""

    def __init__(self, root, binary):
        self.root, self.time = root, None
        self.work, commands = rig.mkdir(os.path.join(root, "work")), rig.mkdir(os.path.join(root, "bin"))
        os.symlink(binary, os.path.join(commands, "cairn"))
        for name in ("nvme", "nfs/bucket/alice", "nfs/bucket/bob", "mnt/ckpt", "mnt/alice", "mnt/bob", "data", "backup"):
            os.makedirs(os.path.join(root, name))

    def begin(self):
        self.type("cairn mount /nvme/store /mnt/ckpt --remote s3://bucket/run7 --stage 64M")
        for step in (1000, 2000):
            for name in (f"step{step}/model.pt", f"run/step{step}.pt", f"run7/step{step}/model.pt"):
                path = os.path.join(self.root, "mnt/ckpt", name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                rig.write_file(path, os.urandom(2 << 20))
        rig.write_file(os.path.join(self.root, "mnt/ckpt/run7/latest.pt"), os.urandom(1 << 20))
        self.type("cairn wait /mnt/ckpt --level remote; cp -a /mnt/ckpt/. expected")
        self.time = str(json.loads(self.type("cairn history --json /mnt/ckpt"))["states"][0]["head"])

    def here(self, command):
        """The command, of this machine: its directories, a small stage, and a state that it has."""
        command = command.replace("s3://bucket", "dir:/nfs/bucket").replace("rclone copy s3:bucket", "cp -r /nfs/bucket")
        command = re.sub(r"--stage \d+G", "--stage 64M", re.sub(r"--nvme \d+G", "--nvme 256M", command))
        command = TOPS.sub(lambda top: self.root + top[0], command)
        return TIME.sub(self.time, command) if self.time else command

    def type(self, command):
        done = subprocess.run(["bash", "-ec", self.here(command)], cwd=self.work, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"})
        assert done.returncode == 0, f"$ {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def same(self, path):
        self.type(f"diff -r expected {path}")

    def close(self):
        for mountpoint in glob.glob(os.path.join(self.root, "mnt", "*")):
            if rig.mounted_at(mountpoint):
                subprocess.run([os.path.join(self.root, "bin", "cairn"), "umount", mountpoint], capture_output=True, timeout=120)


@pytest.fixture
def reader(request, directory, binary):
    rig.need_root("/dev/fuse")
    made = Reader(directory, binary)
    request.addfinalizer(made.close)
    made.begin()
    return made


def before(reader, page):
    """What happened, of which the page is."""
    if page == "undelete":
        reader.type("rm -r /mnt/ckpt/run7; cairn wait /mnt/ckpt --level remote")
    if page == "overwritten":
        reader.type("truncate -s 0 /mnt/ckpt/run7/latest.pt; cairn wait /mnt/ckpt --level remote")


def after(reader, page):
    if page in ("undelete", "overwritten", "upgrade"):
        reader.same("/mnt/ckpt")
    if page == "leave":
        reader.same("/data/run7")
        assert not os.path.exists(os.path.join(reader.root, "nvme/store"))
    if page == "back-up":
        reader.same("/backup/run7")
    if page == "damaged-bucket":
        reader.same("rescued")
    if page == "free-space":
        assert sorted(os.listdir(os.path.join(reader.root, "mnt/ckpt"))) == ["run", "run7", "step2000"]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page(reader, page):
    before(reader, page)
    commands = [command for command in first_commands(page) if not OTHER_TOOLS.search(command)]
    assert commands
    for command in commands:
        if command == "cairn status" or page != "new-node" and command.startswith("cairn mount /nvme/store"):
            continue  # of all mounts of this machine, also those of other tests; the mount that is there
        reader.type(command.replace("/nvme/store", "/nvme/new") if page == "new-node" else command)
    after(reader, page)
