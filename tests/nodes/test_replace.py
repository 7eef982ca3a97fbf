# SPDX-License-Identifier: Apache-2.0
"""-o replaces=NODE: a new store takes the place of a node that never comes back, with all that it had told."""
import json
import os
import subprocess
import sys

import pytest

import remote as remotes
import rig
import successor
from test_union_mounts import TAKEN_S, at, await_tree

LEASE_S = 6
OVER_S = 60


def nodes_of(on_remote, shared):
    def make(**options):
        kind = successor.KeptRemote if options.get("successor") else remotes.RemoteMount
        common = {"nodes": True, "writeback_delay": "50ms", "lease": f"{LEASE_S}s", "gc_grace": "2s", "rollback_keep": "2s"}
        return on_remote(shared, kind=kind, **{**common, **options})
    return make


def soon(code):
    """In a process that began after the node opened, as a job that starts anew."""
    def done():
        return subprocess.run([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL).returncode == 0
    rig.poll(done, OVER_S, code, 0.5)


def write_soon(path, data, mode="wb"):
    soon(f"open({path!r}, {mode!r}).write({data!r})")


@pytest.fixture
def node(on_remote, shared):
    return nodes_of(on_remote, shared)


def roll(mount):
    return json.loads(mount.verb("nodes", mount.mnt, "--json").stdout)


def states(mount):
    return {each["node"]: each["state"] for each in roll(mount)["nodes"]}


def await_end(number, seen_by):
    def is_over():
        done = seen_by.cairn("nodes", seen_by.mnt, "--json")
        said = json.loads(done.stdout) if done.returncode == 0 else {"nodes": [], "union": {"generation": 0}}
        return said["union"]["generation"] and {each["node"]: each["state"] for each in said["nodes"]}.get(number) == "ended"
    rig.poll(is_over, OVER_S, f"the end of node {number}", 0.5)


def number_of(mount):
    """Of the node, as `cairn nodes` shows it."""
    (own,) = {each["node"] for each in roll(mount)["nodes"] if each["is_this"]}
    return own


def lose(mount, seen_by):
    """Its machine, with its disk. Returns its number."""
    number = number_of(mount)
    mount.kill9()
    mount.drop_stage()
    await_end(number, seen_by)
    return number


@pytest.mark.always_s3
def test_its_files_have_an_owner_again(on_remote, remote, rng):
    """They can be read, changed and removed; what is removed frees its packs, which nobody else would delete."""
    make = nodes_of(on_remote, remote)
    a, b = make(successor="on").mount(), make().mount()
    kept, removed = rng.randbytes(3 << 20), rng.randbytes(5 << 20)
    rig.write_file(at(b, "kept"), kept)
    rig.write_file(at(b, "removed"), removed)
    b.wait_remote()
    rig.poll(lambda: os.path.exists(at(a, "removed")), TAKEN_S)
    place = lose(b, a)
    c = make(replaces=place).mount()
    assert number_of(c) == place
    await_tree(c, {"kept": kept, "removed": removed})
    packs = len(remote.names("packs"))
    soon(f"import os; os.remove({at(a, 'removed')!r})")
    for mount in (a, c):
        await_tree(mount, {"kept": kept})

    def has_less():
        write_soon(at(c, "beat"), os.urandom(8))
        c.verb("gc", c.mnt)
        return sum(len(remote.get(name)) for name in remote.names("packs")) < len(kept) + len(removed) // 2
    rig.poll(has_less, OVER_S, f"fewer packs than {packs}", 1)
    write_soon(at(c, "kept"), b"more", "ab")  # its own now: nothing is copied
    await_tree(a, {"kept": kept + b"more", "beat": rig.read_file(at(c, "beat"))})
    for mount in (c, a):
        mount.umount()
    for store in (a, c):
        assert store.fsck().returncode == 0
    assert a.cairn("fsck", *remote.flags(), remote.url).returncode == 0
    c.mount(replaces=place)  # the option may stay where it is
    await_tree(c, {"kept": kept + b"more", "beat": rig.read_file(at(c, "beat"))})


def test_what_was_not_told_is_gone(node):
    """It goes on from the state that the union has, and numbers of the lost one come never again."""
    a, b = node(successor="on").mount(), node().mount()
    rig.write_file(at(b, "told"), b"told")
    b.wait_remote()
    rig.poll(lambda: os.path.exists(at(a, "told")), TAKEN_S)
    rig.write_file(at(b, "lost"), b"lost" * 1000)
    place = lose(b, a)
    c = node(replaces=place).mount()
    await_tree(c, {"told": b"told"})
    write_soon(at(c, "new"), b"new")
    assert os.stat(at(c, "new")).st_ino >> 24 >= place + 16  # b may have given out any of those before
    rig.poll(lambda: os.path.exists(at(a, "new")), OVER_S)
    assert sorted(os.listdir(a.mnt)) == ["new", "told"]


def test_who_may_not_take_a_place(node, shared):
    a, b = node(lease="20s").mount(), node(lease="20s").mount()
    rig.write_file(at(b, "file"), b"of b")
    b.wait_remote()
    place = number_of(b)
    c = node(lease="20s")
    assert "is not over" in c.refused(replaces=place) and f"end MOUNTPOINT {place}" in c.refused(replaces=place)
    assert "there is no node 1600 in" in c.refused(replaces=1600)
    assert "there is no node 17 in" in c.refused(replaces=17)
    alone = {"replaces": place, **dict.fromkeys(("nodes",))}
    assert "give nodes, too" in c.verb("mount", c.store, c.mnt, "-o", c.option_string(alone), code=1).stderr
    a.umount()
    assert "option replaces is for an empty STORE" in a.refused(replaces=place)
    a.mount()
    await_tree(a, {"file": b"of b"})
    assert sorted(states(a).values()) == ["lives", "lives"]


def test_whose_place_was_taken_comes_back(node):
    """It is refused, and loses nothing of what it has. The one that has its place goes on."""
    a, b = node(successor="on").mount(), node().mount()
    rig.write_file(at(b, "told"), b"told")
    b.wait_remote()
    rig.poll(lambda: os.path.exists(at(a, "told")), TAKEN_S)
    rig.write_file(at(b, "only here"), b"of b alone")
    b.kill9()
    place = 32
    await_end(place, a)
    c = node(replaces=place).mount()
    await_tree(c, {"told": b"told"})
    said = b.refused()
    assert "took its place" in said and "cairn cp" in said
    out = os.path.join(b.root, "out")
    (aside,) = os.listdir(os.path.join(b.store, "aside"))
    b.verb("cp", os.path.join(b.store, "aside", aside) + ":/only here", out)
    assert rig.read_file(out) == b"of b alone"
    write_soon(at(c, "on"), b"on")
    rig.poll(lambda: os.path.exists(at(a, "on")), OVER_S)


def test_two_that_take_one_place(node):
    a, b = node(successor="on").mount(), node().mount()
    rig.write_file(at(b, "told"), b"told")
    b.wait_remote()
    rig.poll(lambda: os.path.exists(at(a, "told")), TAKEN_S)
    place = lose(b, a)
    both = [node(replaces=place), node(replaces=place)]
    for each in both:
        each.start()

    def settled():
        left = [each for each in both if each.proc.poll() is None]
        return [each for each in left if each.is_ready()] if len(left) < len(both) else []
    (winner,) = rig.poll(settled, OVER_S, "one to have the place")
    (loser,) = [each for each in both if each is not winner]
    assert loser.reap() == 32
    assert any(why in loser.log() for why in ("took its place", "is in use by", "is not over"))
    await_tree(winner, {"told": b"told"})
