# SPDX-License-Identifier: Apache-2.0
"""`cairn nodes end`, `settle` and `rejoin`: a person ends a node, and a job starts again."""
import errno
import json
import os

from test_list import look, own, shown, states
from test_lost_nodes import BACK_S, Trainer, at, node, save  # noqa: F401 (fixture)

import rig

LEASE_S = 24  # so long does the node wait that goes back


def wait_for(mount, wanted):
    rig.poll(lambda: states(mount) == wanted, BACK_S, f"{wanted}")


def refused(mount, epoch):
    return mount.verb("nodes", "end", mount.mnt, str(epoch), code=1).stderr


def test_a_node_that_is_ended_by_hand(node):  # noqa: F811
    """Before its lease has run out; and what the others say and do until a job may go on."""
    mounts = kept, left, gone = [node(lease=f"{LEASE_S}s") for _ in range(3)]
    epochs = {mount: own(mount)["epoch"] for mount in mounts}
    rig.poll(lambda: look(kept)["union"]["merged_here"], BACK_S, "the first node to merge")
    for mount in mounts:
        save(mount, f"of-{epochs[mount]}", b"before")
    rig.poll(lambda: len(os.listdir(kept.mnt)) == 3, BACK_S, "the files of all")
    left.umount()
    wait_for(kept, {kept.store: "lives", left.store: "left", gone.store: "lives"})
    old = Trainer()
    gone.kill9()
    save(kept, "set-aside", b"later")
    assert "is of no node" in refused(kept, 16 * 4096 + 1) and "has left already" in refused(kept, epochs[left])
    for words in ((kept.mnt,), (kept.mnt, "x"), (kept.mnt, "0")):
        kept.verb("nodes", "end", *words, code=2)
    said = kept.verb("nodes", "end", kept.mnt, str(epochs[gone])).stdout
    assert said.startswith(f"epoch {epochs[gone]} (") and f":{gone.store} pid " in said, said
    assert mount_settles(kept, 3, "--timeout", "0s").startswith("waits for ")
    assert "ended" in refused(kept, epochs[gone])
    rig.poll(lambda: figures(kept)["changes_wait"] == 1, BACK_S, "changes to wait")
    mount_settles(kept, 0)
    now = figures(kept)
    assert now["changes_wait"] == 0 and now["generation"] == now["ended"] == 1 and now["aside_bytes"] > now["aside_only_there_bytes"] > 0
    assert states(kept) == {kept.store: "lives", left.store: "left", gone.store: "ended"}
    union = look(kept)["union"]
    assert union["generation"] == 1 and "held_back_by" not in union and shown(kept)[0].startswith("All is well: 1 node writes")
    listed = json.loads(kept.verb("nodes", "aside", "--json", kept.mnt).stdout)
    assert listed and all(one["bytes"] > one["only_there_bytes"] >= 0 for one in listed), listed
    assert "set-aside" in kept.verb("ls", listed[0]["path"] + ":/").stdout
    assert not os.path.exists(at(kept, "set-aside"))
    assert old.save(at(kept, "new")) == errno.EIO
    kept.verb("nodes", "rejoin", kept.mnt, str(old.process.pid))
    assert old.save(at(kept, "new")) == 0
    kept.kill_daemon(wait=True)  # its successor knows who rejoined
    assert old.save(at(kept, "newer")) == 0
    old.end()


def figures(mount):
    """{}: its daemon is being replaced."""
    return mount.status().get("remote", {}).get("nodes", {}) or {"changes_wait": None}


def mount_settles(mount, code, *flags):
    return mount.verb("nodes", "settle", *flags, mount.mnt, code=code, timeout=300).stderr
