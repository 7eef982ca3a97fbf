# SPDX-License-Identifier: Apache-2.0
"""What earlier states cost: `history_bytes` of a status, a metric and `cairn du` is what the remote holds for them alone."""
import json
import os
import re

import pytest

import rig

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(120), pytest.mark.noise]

SIZE = 4 << 20
SMALL = {"stage": "128M", "writeback_delay": "50ms", "reduce": "off"}


def packs_of(node):
    return sum(node.remote.names("packs/").values())


def cost_of(node):
    """As all three tell it."""
    du = json.loads(node.verb("du", "--json", node.mnt).stdout)[0]["history_bytes"]
    metric = int(re.search(r"^cairnfs_remote_history_bytes (\d+)$", node.verb("metrics", node.mnt).stdout, re.M)[1])
    status = node.status()["remote"]["history_bytes"]
    assert du == metric == status, (du, metric, status)
    return status


def put(node, name, seed):
    rig.write_file(os.path.join(node.mnt, name), rig.noise(seed, SIZE))


def settles_at(node, least, most):
    """After gc; all else that the remote holds is what the newest state needs."""

    def is_settled():
        node.verb("gc", node.mnt)
        cost, packs = cost_of(node), packs_of(node)
        return least <= cost <= most and cost + node.status()["remote"]["pack_bytes"] == packs

    rig.poll(is_settled, 60, f"a cost of {least} to {most}", 0.5)


def test_what_a_snapshot_holds(on_remote, remote):
    """Nothing before; each file that was deleted or replaced since, once the state of now is published; nothing when the name is gone."""
    node = on_remote(remote, gc_grace="1s", **SMALL).mount()
    for number in range(3):
        put(node, f"file{number}", number)
        node.wait_remote()
    settles_at(node, 0, 0)
    assert "earlier states" not in node.verb("status", node.mnt).stdout + node.verb("du", node.mnt).stdout
    node.verb("snapshot", "create", node.mnt, "then")
    for number in range(2):
        if number:
            put(node, "file1", 11)
        else:
            os.unlink(os.path.join(node.mnt, "file0"))
        node.wait_remote()
        settles_at(node, SIZE * (number + 1), SIZE * 1.05 * (number + 1))
    status = node.status()["remote"]
    assert status["kept_bytes"] == status["history_bytes"]
    assert "8.0 MiB for earlier states; 1 state is kept" in node.verb("status", node.mnt).stdout
    assert "8.0 MiB that only earlier states need" in node.verb("du", node.mnt).stdout
    assert "earlier states" not in node.verb("du", os.path.join(node.mnt, "file2")).stdout
    node.verb("snapshot", "delete", node.mnt, "then")
    settles_at(node, 0, 0)


def test_what_the_grace_holds(on_remote, remote):
    """Without a policy or a name: what was deleted or replaced since; a reader is told the same, and so is the mount after this one."""
    node = on_remote(remote, gc_grace="1h", **SMALL).mount()
    for number in range(4):
        put(node, "latest.pt", number)
        node.wait_remote()
    rig.poll(lambda: cost_of(node) + node.status()["remote"]["pack_bytes"] == packs_of(node), 10, "the count")
    cost = cost_of(node)
    assert 3 * SIZE <= cost <= 3.05 * SIZE
    assert node.status()["remote"]["kept_states"] == 0
    with node.elsewhere(ro=True) as reader:
        assert reader.status()["remote"]["history_bytes"] == cost
    node.umount()
    node.mount()
    assert cost_of(node) == cost
