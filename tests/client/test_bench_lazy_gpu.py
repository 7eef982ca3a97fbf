# SPDX-License-Identifier: Apache-2.0
"""The benchmark for a GPU where there is none: it says so, and its parts without torch run on the stand-in."""
import json
import os
import subprocess
import sys

import pytest

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "bench_lazy_gpu.py")


def test_dry_run(request, directory):
    build = os.path.abspath(request.config.getoption("--build"))
    if not os.path.exists(os.path.join(build, "tests", "client", "cuda", "libcuda.so.1")):
        pytest.skip(f"skipped: {build} has no stand-in for libcuda.so.1")
    if request.config.getoption("--sanitize"):
        pytest.skip("skipped: a sanitizer's library does not load in Python")
    path = os.path.join(directory, "figures.json")
    done = subprocess.run(
        [sys.executable, BENCH, "--dry-run", "--no-training", "--build", build, "--directory", directory, "--json", path],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    with open(path) as file:
        figures = json.load(file)
    assert figures["limit"]["d2h_gb_per_s"] and figures["lane"]["stats"]["saves_failed"] == 0
    assert [save["bytes_referenced"] > 0 for save in figures["lane"]["saves"]] == [False, True, True, True]
    assert figures["lane"]["frozen_copied_share"] <= 0.12


def test_without_a_gpu_it_is_skipped():
    done = subprocess.run([sys.executable, BENCH], capture_output=True, text=True, env={**os.environ, "PATH": "/nowhere"})
    assert done.returncode == 0 and "skipped" in done.stdout, done.stdout + done.stderr
