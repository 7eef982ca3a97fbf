# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the remote tier: a mount on a remote of each kind, the fault proxy."""
import pytest

import fault_proxy
from dense_job import Job


@pytest.fixture
def mount(on_remote, remote):
    """A private store on a remote of each kind, not yet mounted."""
    return on_remote(remote)


@pytest.fixture
def job(node):
    node.mount()
    return Job(node)


@pytest.fixture
def proxy(request, rgw, seed):
    """A fault proxy in front of the server, calm at first."""
    made = fault_proxy.FaultProxy(rgw.endpoint, f"{seed} {request.node.name}").start()
    yield made
    made.stop()
