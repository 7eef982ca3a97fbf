"""An ext4 and a mount side by side, for scripts that must do the same on both."""
import os
import random
import shutil
import tempfile

import pytest

import rig
from script import SCRIPTS, Script

# Options that the mount has by default, so that both refuse the same.
EXT4_OPTIONS = "nosuid,nodev"


class Sides:
    """Runs scripts on both; each in a folder of its own."""

    def __init__(self, ext4, mount, seed, full):
        self.ext4, self.mount, self.seed, self.full = ext4, mount, seed, full

    def run_at(self, root, name):
        folder = os.path.join(root, name)
        os.mkdir(folder)
        back = os.open(".", os.O_RDONLY)
        umask = os.umask(0o022)
        result = Script(random.Random(f"{self.seed} {name}"), self.full)
        try:
            os.chdir(folder)
            SCRIPTS[name](result)
        finally:
            os.fchdir(back)
            os.close(back)
            os.umask(umask)
        return result.notes

    def run(self, name):
        return self.run_at(self.ext4, name), self.run_at(self.mount, name)


@pytest.fixture(scope="session")
def ext4(request):
    """The root of an empty ext4 on a loop device."""
    folder = tempfile.mkdtemp(prefix="cairn-test-")
    request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
    image = rig.LoopImage(os.path.join(folder, "image"), os.path.join(folder, "ext4"), rig.GIB, extra=EXT4_OPTIONS)
    request.addfinalizer(image.close)
    return image.mountpoint


@pytest.fixture(scope="session")
def sides(request, mount_factory, ext4, seed, full):
    folder = tempfile.mkdtemp(prefix="cairn-test-")
    request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
    mount = mount_factory(folder)
    request.addfinalizer(mount.close)
    return Sides(ext4, mount.mount().mnt, seed, full)
