# SPDX-License-Identifier: Apache-2.0
"""How long a mount pauses when its daemon is killed: from kill -9 to the first call that is answered, with so much in the stage."""
import os
import statistics
import time

import pytest

import rig
import successor
from rig import GIB, MIB

pytestmark = [pytest.mark.needs_mount, pytest.mark.alone]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("staged", [0, GIB])
def test_pause(request, mount_factory, directory, report, staged):
    kept = mount_factory(directory, kind=successor.Kept, successor="on", crash_window=0, stage="2560M", writeback_delay="1h")
    request.addfinalizer(kept.close)
    kept.mount()
    fd = os.open(os.path.join(kept.mnt, "file"), os.O_RDWR | os.O_CREAT)
    block = os.urandom(8 * MIB)
    for _ in range(staged // len(block)):
        rig.write_all(fd, block)
    pauses, told = [], []
    for i in range(7):
        kept.kill_daemon()
        began = time.monotonic()
        os.mkdir(os.path.join(kept.mnt, f"d{i}"))
        pauses.append(time.monotonic() - began)
        told.append(kept.successor()["pause_seconds"])
        assert kept.status()["stage"]["dirty_bytes"] >= staged
        time.sleep(1)
    os.close(fd)
    report(f"pause-{staged >> 20}M", {"staged_bytes": staged, "median_s": statistics.median(pauses), "pauses_s": pauses, "told_s": told})
