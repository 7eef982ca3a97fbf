# SPDX-License-Identifier: Apache-2.0
"""Nodes of one remote, which is a directory. A file of tests that needs other nodes has a fixture `node` of its own."""
import os

import pytest

import remote as remotes


@pytest.fixture
def shared(directory):
    return remotes.DirRemote(os.path.join(directory, "remotes"))


@pytest.fixture
def node(on_remote, shared):
    """node() mounts one more."""
    return lambda **options: on_remote(shared, **{"nodes": True, "writeback_delay": "50ms", **options}).mount()
