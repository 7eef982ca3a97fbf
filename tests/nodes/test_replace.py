# SPDX-License-Identifier: Apache-2.0
"""A new store takes the place of a node that never comes back, with all that it had told: by -o replaces=NODE, where it lies at the same
path, or where no place is left."""
import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib

import pytest

import processes
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
    def is_back():
        """What it did between the end and this is set aside, too."""
        aside, back = (os.path.join(seen_by.store, name) for name in ("aside", "back"))
        return os.path.exists(aside) and not os.path.exists(back) and seen_by.answers()

    rig.poll(is_over, OVER_S, f"the end of node {number}", 0.5)
    rig.poll(is_back, OVER_S, "the node that saw it to go back", 0.5)


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
    place, helpers = number_of(b), processes.dir_helpers(b.proc.pid)
    for helper in helpers:
        os.kill(helper, signal.SIGSTOP)  # from now on it tells nothing
    rig.write_file(at(b, "lost"), b"lost" * 1000)
    b.kill9()
    for helper in helpers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(helper, signal.SIGKILL)
    b.drop_stage()
    await_end(place, a)
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


def renew(mount):
    """The machine comes back with an empty disk."""
    shutil.rmtree(mount.store)


@pytest.mark.parametrize("is_lost", [False, True], ids=["left", "lost"])
def test_an_empty_store_at_the_same_path(node, shared, rng, is_lost):
    """Where the node left or was lost, it is that node again: what is removed of it frees its packs."""
    a, b = node(successor="on").mount(), node().mount()
    kept, removed = rng.randbytes(3 << 20), rng.randbytes(5 << 20)
    rig.write_file(at(b, "kept"), kept)
    rig.write_file(at(b, "removed"), removed)
    b.wait_remote()
    rig.poll(lambda: os.path.exists(at(a, "removed")), TAKEN_S)
    place = number_of(b)
    if is_lost:
        lose(b, a)
    else:
        b.umount("remote")
    soon(f"import os; os.remove({at(a, 'removed')!r})")
    renew(b)
    b.mount()
    assert number_of(b) == place and f"takes the place of node {place} (" in b.log()
    await_tree(b, {"kept": kept})

    def has_less():
        write_soon(at(b, "beat"), os.urandom(8))
        b.verb("gc", b.mnt)
        return sum(len(shared.get(name)) for name in shared.names("packs")) < len(kept) + len(removed) // 2
    rig.poll(has_less, OVER_S, "fewer packs", 1)
    await_tree(a, {"kept": kept, "beat": rig.read_file(at(b, "beat"))})
    assert len(roll(a)["nodes"]) == 2


def test_an_empty_store_while_the_node_may_come_back(node):
    """It is another node: the one that was there may have what nobody else has."""
    a, b = node(lease="60s").mount(), node(lease="60s").mount()
    rig.write_file(at(b, "file"), b"of b")
    b.wait_remote()
    place = number_of(b)
    b.kill9()
    renew(b)
    b.mount()
    assert number_of(b) > place
    await_tree(b, {"file": b"of b"})


NODES_MAX = 128


def sealed(text):
    return text + zlib.crc32(text).to_bytes(4, "little")


def add_nodes(remote, count, are_over):
    """Nodes that joined and told nothing; with are_over, that were ended by hand. Returns their numbers."""
    history = remote.get("cairn")[40:56]
    first = max(int(name.partition("/")[2], 16) for name in remote.names("writers")) + 16
    numbers = range(first, first + 16 * count, 16)
    for number in numbers if are_over else ():
        ended = b"CAIRNEND" + struct.pack("<II", 1, 4) + history + struct.pack("<QQQI", number, 0, time.time_ns(), 0)
        remote.put(f"ended/{number:016x}", sealed(ended))
    for number in numbers:
        entry = b"CAIRNWRT" + struct.pack("<II", 1, LEASE_S * 1000) + history + os.urandom(16)
        entry += struct.pack("<QQI", number, number, number) + f"host:/store{number} pid 1".encode().ljust(128, b"\0")
        remote.put(f"writers/{number:016x}", sealed((entry + struct.pack("<I", 50)).ljust(252, b"\0")))
    return list(numbers)


def test_a_prefix_with_as_many_nodes_as_it_takes(node, shared):
    """Empty stores take the places of those that are over, each another one, and the union goes on."""
    a = node(successor="on").mount()
    rig.write_file(at(a, "file"), b"of a")
    a.wait_remote()
    over = add_nodes(shared, NODES_MAX - 2, True)
    await_end(over[0], a)
    joining = [node(successor="on") for _ in range(3)]  # where another node is lost meanwhile, they go back
    for each in joining:
        each.start()
    for each in joining:
        rig.poll(each.usable, OVER_S, "a place")
    first_free = over[-1] + 16
    places = sorted(number_of(each) for each in joining)
    assert places[:2] == over[:2] and places[2] >= first_free, places
    for each in joining:
        write_soon(at(each, f"of {number_of(each)}"), b"data")
        each.wait_remote()
    await_tree(a, {"file": b"of a", **{f"of {place}": b"data" for place in places}})
    assert len(roll(a)["nodes"]) == NODES_MAX


def test_a_prefix_that_takes_no_more(node, shared):
    """The one that comes is refused, and those that are there go on."""
    a, b = node().mount(), node()
    add_nodes(shared, NODES_MAX - 1, False)
    listed = sorted(shared.names("writers"))
    assert re.search(rf"has {NODES_MAX} nodes, all of which write it: it takes no more", b.refused())
    assert sorted(shared.names("writers")) == listed
    a.kill9()
