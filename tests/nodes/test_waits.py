# SPDX-License-Identifier: Apache-2.0
"""What waits around a round, and what must not fail there."""
import os
import time

import pytest

import remote as remotes


@pytest.fixture
def node(on_remote, directory):
    shared = remotes.DirRemote(os.path.join(directory, "remotes"))
    return lambda **options: on_remote(shared, **{"nodes": True, "writeback_delay": "50ms", **options})


def test_a_wait_that_falls_on_a_round_is_answered(node):
    """`cairn wait` and `cairn umount` seal what is being written, which waits around each round."""
    a = node().mount()
    end = time.monotonic() + 6.5
    with open(os.path.join(a.mnt, "open"), "wb", buffering=0) as file:
        while time.monotonic() < end:
            file.write(b"x" * 4096)
            for request in ({"verb": "drain"}, {"verb": "need", "ino": 1, "level": "nvme"}):
                answer = a.ask(**request)
                assert "seq" in answer, (request, answer)
            time.sleep(0.02)  # so that requests fall into each window, which is 0.1 s long
