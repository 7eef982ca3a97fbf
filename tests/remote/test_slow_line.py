# SPDX-License-Identifier: Apache-2.0
"""A line that is slow and honest: what it carries at more than the least rate is carried to the end, and not begun again for ever."""
import os

import pytest

import rig

pytestmark = [pytest.mark.needs_mount, pytest.mark.noise]


@pytest.mark.timeout(150)
def test_a_pack_on_a_slow_line(on_remote, s3, proxy):
    """P9: most of a body is in buffers of the kernel when libcurl has passed all of it on; that takes longer than an answer may."""
    mount = on_remote(s3.through(proxy), writeback_delay="0s").mount()
    proxy.set(rate=80_000)
    # All of it fits in those buffers, and takes 26 s; an answer may take 15 s.
    rig.write_file(os.path.join(mount.mnt, "file"), rig.noise(1, 2 * rig.MIB))
    mount.wait_remote(timeout="200s")
    up = proxy.stats()["bytes"]["up"]
    assert up < 3 * rig.MIB, f"{up} bytes for 2 MiB"
    proxy.calm()
    mount.umount()
