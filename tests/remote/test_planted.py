"""Bugs that are planted behind the build option planted_bug: each is found by the tests that are named here."""
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..")
FOUND_BY = {
    "early_delete": "test_nothing_goes_before_the_head_that_drops_it",
    "skip_epoch_check": "test_a_fenced_writer_deletes_nothing",
    "head_first": "test_all_that_a_head_names_is_there",
    "forget_chunk": "test_small_packs_are_merged",
}


def run(*command, timeout):
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=SOURCE)


def build(bug, folder):
    options = ("-Dtests=disabled", f"-Dplanted_bug={bug}")
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        done = run("meson", "setup", folder, *options, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    done = run("ninja", "-C", folder, "src/cli/cairn", timeout=1200)
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


def outcome(folder, name):
    """pytest's exit code for one test of test_gc.py on a build: 0 passed, 1 failed."""
    file = os.path.join(HERE, "test_gc.py")
    done = run(sys.executable, "-m", "pytest", file, "-p", "no:cacheprovider", "-q", "--build", folder, "-k", f"{name} and dir",
               timeout=300)
    assert " passed" in done.stdout or " failed" in done.stdout, done.stdout + done.stderr
    return done.returncode


@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_planted_bug_is_found(request, full, bug):
    if not full:
        pytest.skip("skipped: builds four variants; give --full")
    binary_folder = os.path.abspath(request.config.getoption("--build"))
    name = FOUND_BY[bug]
    assert outcome(binary_folder, name) == 0, f"{name} fails without the bug"
    assert outcome(build(bug, f"{binary_folder}-planted-{bug}"), name) == 1, f"{name} does not find {bug}"
