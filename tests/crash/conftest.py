# SPDX-License-Identifier: Apache-2.0
"""Disks that lose power, and disks that fail."""
import os

import pytest

import faultdisk
import powercut
import recorded_disk
import rig


@pytest.fixture
def new_power(request, plain):
    """new_power(size): a PowerCut, closed at the end."""
    rig.need_root("/dev/loop-control")

    def make(size=3 * rig.GIB):
        made = powercut.PowerCut(size, extra="sync,dirsync,data=journal" if plain else "")
        request.addfinalizer(made.close)
        return made

    return make


@pytest.fixture
def power(new_power):
    return new_power()


@pytest.fixture
def new_disk(request, binary):
    """new_disk(**options): a RecordedDisk, closed at the end."""
    rig.need_root("/dev/loop-control", "/dev/fuse")
    build = request.config.getoption("--build")
    program = recorded_disk.find_program(build)
    if program is None:
        pytest.skip(f"skipped: {build} has no recorded-disk: build with -Dtests=enabled")

    def make(**options):
        made = recorded_disk.RecordedDisk(program, **options)
        request.addfinalizer(made.close)
        return made

    return make


@pytest.fixture
def disk(cairn, request, directory, sanitized):
    build = faultdisk.build_of(request.config, sanitized)
    return faultdisk.FaultDisk(cairn, build, os.path.join(directory, "faults"))
