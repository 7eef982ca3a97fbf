# SPDX-License-Identifier: Apache-2.0
"""Runs a script on ext4 and on the mount."""
import os
import random

from script import SCRIPTS, Script


class Sides:
    """Runs scripts on both; each in a directory of its own."""

    def __init__(self, ext4, mount, seed, full):
        self.ext4, self.mount, self.seed, self.full = ext4, mount, seed, full

    def run_at(self, root, name):
        directory = os.path.join(root, name)
        os.mkdir(directory)
        back = os.open(".", os.O_RDONLY)
        umask = os.umask(0o022)
        result = Script(random.Random(f"{self.seed} {name}"), self.full)
        try:
            os.chdir(directory)
            SCRIPTS[name](result)
        finally:
            os.fchdir(back)
            os.close(back)
            os.umask(umask)
        return result.notes

    def run(self, name):
        return self.run_at(self.ext4, name), self.run_at(self.mount, name)
