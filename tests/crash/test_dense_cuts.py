# SPDX-License-Identifier: Apache-2.0
"""Power loss while old files become dense on NVMe (P3, P8): on a disk that loses, reorders and tears what was not flushed, every cut has
every byte, and needs no remote for it."""
import json
import os
import random

import pytest

import recorded_disk
import remote as remotes
import rig
import trained
from test_disk import new_disk  # noqa: F401: a fixture

pytestmark = pytest.mark.needs_mount

FILES = 16
OPTIONS = {"nvme": "700M", "stage": "96M", "writeback_delay": "0s", "gc_grace": "1s", "reduce": "dense"}


@pytest.fixture
def node(new_disk, on_remote, directory, rng):  # noqa: F811
    """A store on such a disk, with files of few near steps of training, all in the remote; nothing of it is dense yet."""
    disk = new_disk(kind=rng.choice(sorted(recorded_disk.FORMATS)))
    made = on_remote(remotes.DirRemote(os.path.join(directory, "remotes")), **OPTIONS, reduce_after="1h")
    made.disk, made.store = disk, os.path.join(disk.inner.mountpoint, "store")
    os.makedirs(made.store)
    made.mount()
    made.content = {f"run/step{number}": trained.trained_bytes(number, 3 * rig.MIB) for number in range(FILES)}
    os.mkdir(os.path.join(made.mnt, "run"))
    for name, data in made.content.items():
        rig.write_file(os.path.join(made.mnt, name), data)
        made.wait_remote()
    assert dense_bytes(made) == 0
    return made


def dense_bytes(node):
    """Raw bytes of what files refer to that is dense on NVMe."""
    rows = json.loads(node.cairn("du", "--json", node.mnt).stdout)[0]["encodings"]
    return sum(rows[encoding]["raw_bytes"] for encoding in ("twin", "dx") if encoding in rows)


def condense(node):
    """Until nothing becomes dense any more and what it took the place of is gone. The first and the last moment of that."""
    node.remount(reduce_after="0s")
    first, seen = node.disk.count(), -1
    rig.poll(lambda: dense_bytes(node) > 0, 60, "a chunk that is dense on NVMe")
    while dense_bytes(node) != seen:
        seen = dense_bytes(node)
        rig.time.sleep(1)  # shows that nothing follows any more: that has no event
        node.cairn("gc", node.mnt)
    return first, node.disk.count()


def judge(node, loop):
    """The store of an image, without the remote: all is there, and fsck is clean. Returns how much of it is dense."""
    copy = node.fresh()
    copy.store, copy.options = os.path.join(loop.mountpoint, "store"), {"stage": "96M"}
    try:
        copy.mount()
        assert [name for name, data in node.content.items() if rig.read_file(os.path.join(copy.mnt, name)) != data] == []
        dense = dense_bytes(copy)
        copy.umount()
        done = copy.fsck()
        assert done.returncode == 0, f"fsck: {done.returncode}\n{done.stdout}{done.stderr}"
        return dense
    finally:
        copy.close()
        rig.shutil.rmtree(copy.root, ignore_errors=True)


@pytest.mark.timeout(300)
def test_cuts_while_old_files_become_dense(node, rng, full):
    """160 cuts (6 by default)."""
    first, last = condense(node)
    whole = dense_bytes(node)
    node.kill9()
    node.drop_stage()
    dense = []
    for at in node.disk.moments(rng, first, last, 40 if full else 3):
        for how in recorded_disk.HOWS if full else rng.sample(recorded_disk.HOWS, 2):
            path, what = node.disk.image(at, how, random.Random(rng.getrandbits(32)))
            print(f"{how}: {what}", flush=True)
            loop = node.disk.mount_cut(path)
            try:
                dense.append(judge(node, loop))
            finally:
                node.disk.drop_cut(loop)
    print(f"{len(dense)} cuts, dense bytes {dense} of {whole}")
    assert any(0 < some for some in dense)
