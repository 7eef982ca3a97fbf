# SPDX-License-Identifier: Apache-2.0
"""A lazy save is the clone of its call, or it fails: what torch can do to a parameter in its place, at random moments of the copy."""
import importlib.util
import json
import os
import sys

import pytest

import rig

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ["plain", "views", "tied", "sparse", "max_norm", "parametrized", "pair", "nested", "under_way", "distributed",
         "sharded", "at_once"]
SLOW = ["compiled"]  # imports the compiler


@pytest.fixture
def library(directory):
    """Holds the writes of a program that it is preloaded into."""
    path = os.path.join(directory, "hold_writes.so")
    rig.run("cc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", path, os.path.join(HERE, "hold_writes.c"), "-lpthread")
    return path


@pytest.mark.timeout(3600)
def test_the_file_is_the_clone_of_the_call(package, programs, library, directory, seed, full):
    """10,000 rounds with --full. Of each kind copies were held in the middle; there are files and failures."""
    found = ["quantized"] if importlib.util.find_spec("torchao") else []
    kinds = [*KINDS, *found, *(SLOW if full else [])]
    command = [sys.executable, os.path.join(HERE, "exact_rounds.py"), directory, str(seed), str(10_000 if full else 240), ",".join(kinds)]
    counts = json.loads(rig.run(*command, env={**programs, "LD_PRELOAD": library}).splitlines()[-1])
    assert list(counts) == kinds
    assert all(held == rounds for rounds, held, *_ in counts.values()), counts
    rounds, _, exact, failed = map(sum, zip(*counts.values()))
    assert exact + failed == rounds and min(exact, failed) > rounds / 5, counts
