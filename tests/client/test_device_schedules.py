# SPDX-License-Identifier: Apache-2.0
"""Lazy saves from devices: schedules of the program device_schedules, on the stand-in for libcuda.so.1 (tests/client/cuda)."""
import os
import subprocess

import pytest

SCHEDULES, BATCH = 1000, 25


@pytest.mark.pieces(4)
@pytest.mark.timeout(300)
def test_files_are_of_one_step(request, full, piece, rng):
    """Every file that has its name is whole and of one step, whatever the devices did meanwhile and whichever call failed."""
    build = os.path.abspath(request.config.getoption("--build"))
    program = os.path.join(build, "tests", "client", "cuda", "device_schedules")
    if not os.path.exists(program):
        pytest.skip(f"skipped: no {program}: built without CUDA or without tests")
    environment = dict(os.environ)
    if os.path.islink(os.path.join(build, "tests")):  # a build with a planted bug has only the library
        environment["LD_PRELOAD"] = os.path.join(build, "src", "client", "libcairn.so.0")
    count = (SCHEDULES * 10 if full else SCHEDULES) // piece.count // BATCH * BATCH
    command = [program, "--seed", str(rng.randrange(1 << 31)), "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, " ".join(command) + "\n" + done.stdout[-3000:] + done.stderr[-2000:]
    assert f"{count} schedules" in done.stdout
