# SPDX-License-Identifier: Apache-2.0
"""Files of this tree, for tests that compare them."""
import os

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def read(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()
