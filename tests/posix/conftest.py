# SPDX-License-Identifier: Apache-2.0
"""An ext4 and a mount side by side, for scripts that must do the same on both."""
import os
import shutil
import tempfile

import pytest

import rig
from sides import Sides

# Options that the mount has by default, so that both refuse the same.
EXT4_OPTIONS = "nosuid,nodev"


@pytest.fixture(scope="session")
def ext4(request):
    """The root of an empty ext4 on a loop device."""
    directory = tempfile.mkdtemp(prefix="cairn-test-")
    request.addfinalizer(lambda: shutil.rmtree(directory, ignore_errors=True))
    image = rig.LoopImage(os.path.join(directory, "image"), os.path.join(directory, "ext4"), rig.GIB, extra=EXT4_OPTIONS)
    request.addfinalizer(image.close)
    return image.mountpoint


@pytest.fixture(scope="session")
def sides(request, mount_factory, ext4, seed, full):
    return make_sides(request, mount_factory, ext4, seed, full)


@pytest.fixture(scope="session")
def sides_of_linux_6_1(request, mount_factory, ext4, seed, full):
    """The mount does without the features of FUSE that later kernels have."""
    return make_sides(request, mount_factory, rig.mkdir(os.path.join(ext4, "linux-6.1")), seed, full, fuse_minor=37)


def make_sides(request, mount_factory, ext4, seed, full, **options):
    directory = tempfile.mkdtemp(prefix="cairn-test-")
    request.addfinalizer(lambda: shutil.rmtree(directory, ignore_errors=True))
    mount = mount_factory(directory, request=request)
    return Sides(ext4, mount.mount(**options).mnt, seed, full)
