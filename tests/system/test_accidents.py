# SPDX-License-Identifier: Apache-2.0
"""The worst accidents, of docs/tasks/undelete.md and overwritten.md: the commands of the pages, as they stand there, bring all bytes back."""
import os
import subprocess
import sys

import pytest

import rig
from sources import ROOT

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(120)]


@pytest.mark.parametrize("scene", ["deleted_run", "truncated_files", "not_a_number"])
def test_the_page_brings_it_back(request, sanitized, scene):
    rig.need_root("/dev/fuse")
    if scene == "not_a_number":
        pytest.importorskip("torch")
        if sanitized:
            pytest.skip("skipped: a sanitizer's library cannot be loaded into Python")
    done = subprocess.run([sys.executable, os.path.join(ROOT, "docs", "examples", "remake.py"), "--check", "--build",
                           request.config.getoption("--build"), scene], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
