# SPDX-License-Identifier: Apache-2.0
"""Into which packs a round of uploads divides what it sends."""
import os

import pytest

import rig

ROUND = 128 * rig.MIB
SMALL = 4 * rig.MIB  # smaller packs are merged
FULL = 24 * rig.MIB


def packs(remote):
    """The sizes of those there are, ascending."""
    return sorted(size for name, size in remote.names().items() if name.startswith("packs/"))


@pytest.mark.needs_mount
def test_a_large_round_begins_with_small_packs(on_remote, remote, rng):
    """The remote receives the first bytes when 5 MiB were read, not 24; and no pack is so small that it is merged."""
    mount = on_remote(remote, stage="512M", reduce="off").mount()
    rig.write_file(os.path.join(mount.mnt, "large"), rig.seeded_bytes(rng.random(), ROUND))
    mount.wait(level="remote")
    found = packs(mount.remote)
    assert sum(found) >= ROUND and found[-1] <= FULL + rig.MIB
    assert any(size <= SMALL + 2 * rig.MIB for size in found), found
    assert found[0] >= SMALL, found
    rig.write_file(os.path.join(mount.mnt, "small"), rig.seeded_bytes(rng.random(), 3 * FULL))
    mount.wait(level="remote")
    assert len(packs(mount.remote)) - len(found) <= 4, "a small round has them, too"
