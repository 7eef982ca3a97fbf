# SPDX-License-Identifier: Apache-2.0
"""Into which packs a round of uploads divides what it sends."""
import json
import os
import subprocess

import pytest

import rig

pytestmark = pytest.mark.needs_mount

ROUND = 128 * rig.MIB
SMALL = 4 * rig.MIB  # smaller packs are merged
FULL = 24 * rig.MIB


def packs(remote):
    """The sizes of those there are, ascending."""
    return sorted(size for name, size in remote.names().items() if name.startswith("packs/"))


def test_a_large_round_begins_with_small_packs(on_remote, remote, rng):
    """The remote receives the first bytes when 5 MiB were read, not 24; and no pack is so small that it is merged."""
    mount = on_remote(remote, stage="512M", reduce="off").mount()
    mount.write("large", rig.seeded_bytes(rng.random(), ROUND), "remote")
    found = packs(mount.remote)
    assert sum(found) >= ROUND and found[-1] <= FULL + rig.MIB
    assert any(size <= SMALL + 2 * rig.MIB for size in found), found
    assert found[0] >= SMALL, found
    mount.write("small", rig.seeded_bytes(rng.random(), 3 * FULL), "remote")
    assert len(packs(mount.remote)) - len(found) <= 4, "a small round has them, too"


@pytest.fixture
def late(on_remote):
    """late(save, **options): a node that gets its remote when save(node) is done, so that one round sends all."""
    def make(save, **options):
        node = on_remote(stage="512M", **options).mount(remote=None)
        save(node)
        node.remount()
        node.wait_remote()
        return node
    return make


def damaged_without(node, pack):
    """The files that a reader elsewhere lacks then."""
    copy = node.remote.copy()
    copy.delete(pack)
    done = subprocess.run([node.binary, "fsck", "--json", "--sample", "1", copy.url], capture_output=True, env=copy.env())
    assert done.returncode == 4, done.stderr
    return {row["path"] for row in json.loads(done.stdout)["damaged"]}


def test_a_pack_does_not_mix_large_checkpoints(late, rng):
    """Each takes as few packs as it can, and a lost one costs one checkpoint. Both together fit in three packs."""
    def save(node):
        for number in range(2):
            os.mkdir(os.path.join(node.mnt, f"step{number}"))
            for part in range(3):
                path = rig.write_file(os.path.join(node.mnt, f"step{number}/{part}"), rig.seeded_bytes(rng.random(), 10 * rig.MIB))
                os.utime(path, (1_700_000_000 + 60 * number,) * 2)

    node = late(save, reduce="off")
    names = [name for name in node.remote.names() if name.startswith("packs/")]
    found = [{os.path.dirname(path) for path in damaged_without(node, name)} for name in names]
    assert all(len(checkpoints) == 1 for checkpoints in found), found
    assert sorted(map(sorted, found)) == [["/step0"]] * 2 + [["/step1"]] * 2
