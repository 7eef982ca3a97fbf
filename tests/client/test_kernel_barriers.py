# SPDX-License-Identifier: Apache-2.0
"""The kernel of fingerprints as nvcc made it. The stand-in runs its threads one after the other, so it cannot see that a barrier is
missing."""
import os

import pytest


def test_each_step_of_the_sum_has_its_barrier(request):
    """One behind the parts, one behind each halving of 256 of them, one behind the result."""
    path = os.path.join(request.config.getoption("--build"), "src", "client", "kernels", "fingerprint.ptx")
    if not os.path.exists(path):
        pytest.skip("skipped: built without nvcc")
    with open(path) as file:
        barriers = sum("bar.sync" in line for line in file)
    assert barriers == 1 + 8 + 1
