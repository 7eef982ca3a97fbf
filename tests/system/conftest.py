# SPDX-License-Identifier: Apache-2.0
"""A machine of the test's own: a mount namespace in which /usr and /etc can be changed, and the real ones stay as they are."""
import os
import shutil
import subprocess
import tempfile

import pytest

import rig

SET_UP = rig.DROP_INHERITED + r"""
set -e
mount -t tmpfs tmpfs "$1"
for top in usr etc; do
    mkdir "$1/$top" "$1/$top.work"
    mount -t overlay overlay -o "lowerdir=/$top,upperdir=$1/$top,workdir=$1/$top.work" "/$top"
done
mkdir "$1/disk"
echo ready
exec cat
"""


class Machine:
    def __init__(self, directory):
        self.root = directory
        self.holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "bash", "-c", SET_UP, "bash", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.works = self.holder.stdout.readline() == b"ready\n"
        self.stage_dir = tempfile.mkdtemp(prefix="cairn-test-", dir="/dev/shm")
        self.store, self.mnt = os.path.join(directory, "store"), os.path.join(directory, "mnt")

    def path(self, path):
        """The same file, seen from outside."""
        return f"/proc/{self.holder.pid}/root{path}"

    def run(self, *command, user=None, code=0, **more):
        """Runs a program there; it must end with the code (None: any)."""
        inside = ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", "--",
                  *(("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ())]
        done = subprocess.run([*inside, *command], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, cwd="/", **more)
        assert code is None or done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
        return done

    def shell(self, program, **more):
        return self.run("bash", "-ec", program, **more)

    def mounts(self):
        """{mountpoint: options of the mount} of CairnFS."""
        with open(f"/proc/{self.holder.pid}/mountinfo", errors="surrogateescape") as file:
            lines = [line.split() for line in file if " - fuse.cairnfs " in line]
        return {line[4]: line[5] for line in lines}

    def close(self):
        for mountpoint in self.mounts():
            self.run("umount", "-i", "-l", mountpoint, code=None)
        self.holder.stdin.close()
        self.holder.wait(200)
        shutil.rmtree(self.stage_dir, ignore_errors=True)


@pytest.fixture
def machine(request, directory, binary):
    """A private machine with cairn as `cairn-under-test`, a disk at its root directory, and no installation."""
    rig.need_root("/dev/fuse")
    made = Machine(directory)
    request.addfinalizer(made.close)
    if not made.works:
        pytest.skip("skipped: no mount namespace with overlays: " + made.holder.stderr.read().decode().strip())
    made.run("ln", "-s", binary, "/usr/bin/cairn-under-test")
    made.run("mkdir", made.mnt)
    return made
