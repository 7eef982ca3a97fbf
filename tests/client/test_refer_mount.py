# SPDX-License-Identifier: Apache-2.0
"""Saves that refer to the version before (CAIRN_SAVE_REFER), on a mount: program test_refer, on the stand-in for libcuda.so.1."""
import os
import subprocess

import pytest

STATE = 20 << 20  # bytes of the model there


@pytest.mark.needs_mount
def test_what_did_not_change_is_not_written_again(request, cairn):
    """90 % unchanged: at most 12 % of the bytes reach the mount; every file is right."""
    program = os.path.abspath(os.path.join(request.config.getoption("--build"), "tests", "client", "cuda", "test_refer"))
    if not os.path.exists(program):
        pytest.skip(f"skipped: no {program}: built without CUDA or without tests")
    cairn.mount()
    run(program, cairn.mnt, "frozen_on_the_host")  # six files: the first is whole, then a tenth changes, then nothing
    written = cairn.status()["mount"]["written_bytes_total"]
    assert STATE <= written <= STATE * (1 + 5 * 0.12), f"{written} bytes were written"
    run(program, cairn.mnt, "older_files_that_change")
    assert os.listdir(cairn.mnt) == []


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
