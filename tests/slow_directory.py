# SPDX-License-Identifier: Apache-2.0
"""A directory whose fsync, and some renames, take as long as they are told: tests/disk/slow_directory.c."""
import os
import subprocess

import pytest

import rig


class SlowDirectory:
    """tests/disk/slow_directory.c: an fsync of a file of 1 MiB or more, and a rename to "slow...", takes as long as it is told."""

    def __init__(self, build, directory):
        program = os.path.join(build, "tests", "disk", "slow-directory")
        if not os.access(program, os.X_OK):
            pytest.skip("skipped: tests/disk was not built")
        self.path, below, self.control = directory + "/slow", directory + "/below", directory + "/control"
        os.mkdir(self.path)
        os.mkdir(below)
        self.take(0)
        self.daemon = subprocess.Popen([program, self.path, below, self.control], stdin=subprocess.DEVNULL)
        rig.poll(lambda: rig.mounted_at(self.path), 10, "the slow directory")

    def take(self, seconds):
        rig.write_file(self.control, b"%d\n" % seconds)

    def noted(self, line):
        return rig.read_file(self.control).count(line)

    def close(self):
        """Calls that wait there are released."""
        self.daemon.kill()
        self.daemon.wait()
        rig.file_systems_unmount(self.path)
