# SPDX-License-Identifier: Apache-2.0
"""The benchmark of lazy saves works: one round of very little of everything."""
import json
import os
import subprocess
import sys

import pytest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "bench_lazy.py")


@pytest.mark.needs_mount
def test_bench_lazy_runs(mount_factory, request, directory):
    """Each figure that it is for comes out, and nothing stays mounted. What the figures are is no matter here."""
    out = directory + "/figures.json"
    command = [sys.executable, SCRIPT, "--build", request.config.getoption("--build"), "--smoke", "--store", directory, "--json", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    with open(out) as file:
        figures = json.load(file)["figures"]
    assert len(figures) == 9 and all(figure["least"] <= figure["ratio"] <= figure["most"] for figure in figures.values())
    assert os.listdir(directory) == ["figures.json"]
