# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the remote tier: the server (one for all processes of a test run), a remote of each kind, a mount on it, the fault proxy."""
import os
import zlib

import pytest

import fault_proxy
import remote as remotes
from dense_job import Job


@pytest.fixture(scope="session")
def rgw(request, run_directory):
    """A real RGW, or the reason to skip."""
    server = remotes.Rgw()
    why = server.missing()
    if why:
        pytest.skip(f"skipped: no Ceph RGW: {why}")
    request.addfinalizer(server.stop)
    return server.start(run_directory)


@pytest.fixture
def s3(request):
    made = remotes.S3Remote(request.getfixturevalue("rgw"))
    yield made
    made.wipe()
    made.rgw.reclaim()


S3_SHARE = 10  # one in so many tests runs on S3 too, without --full; which, the seed says


@pytest.fixture(params=["dir", "s3"])
def remote(request, directory, seed, full):
    """An empty remote of each kind."""
    if request.param == "s3":
        always = full or request.node.get_closest_marker("always_s3")
        if not always and zlib.crc32(f"{seed} {request.node.name}".encode()) % S3_SHARE:
            pytest.skip("skipped: on S3 with --full, or with another seed")
        return request.getfixturevalue("s3")
    return remotes.DirRemote(os.path.join(directory, "remotes"))


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
