# SPDX-License-Identifier: Apache-2.0
"""`cairn snapshot`: states of a remote with names, which stay whatever is deleted, thinned and collected."""
import json
import os
import re
import struct
import subprocess
import time

import pytest

import rig
from remote import runs_of
from test_fsck_remote import weights
from test_keep import GRACE, SMALL, Kept, checkpoints

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]


@pytest.fixture
def kept(on_remote, remote, directory):
    return Kept(on_remote(remote, **SMALL), directory)


def snapshot(kept, kind, *args, code=0):
    """Also on a machine whose mount is not asked: with the flags that reach the remote."""
    flags = kept.remote.flags() if kind == "list" else []
    return kept.node.verb("snapshot", *flags, kind, *args, code=code)


def create(kept, name, *flags):
    """What was written before is in it."""
    said = snapshot(kept, "create", *flags, kept.node.mnt, name).stdout
    heads = kept.look()
    number = json.loads(said)["head"] if flags else int(said.split()[-1])
    assert json.loads(said) == {"name": name, "head": number} if flags else said == f"{name} is head {number}\n"
    assert number in heads
    return number, dict(kept.tree)


def names(kept, source=None):
    found = json.loads(snapshot(kept, "list", "--json", source or kept.remote.url).stdout)
    return {one["name"]: one for one in found}


def collect(kept):
    time.sleep(GRACE + 0.5)
    for _ in range(3):
        kept.gc()


def test_a_name_stays(kept):
    """Beside a policy that thins, over take-overs; without a policy, too."""
    kept.node.mount(keep="last:2")
    kept.put("run/model.pt", 1)
    first, tree = create(kept, "first")
    kept.remove("run/model.pt")
    checkpoints(kept, 3)
    second, second_tree = create(kept, "second.1", "--json")
    checkpoints(kept, 6, 10)
    collect(kept)
    assert {first, second} <= set(kept.remote.heads())
    assert len(kept.remote.heads()) <= 6, sorted(kept.remote.heads())
    kept.node.umount(drain="remote")
    kept.node = kept.node.fresh()
    kept.node.mount(takeover=True, keep="none")
    checkpoints(kept, 3, 20)
    collect(kept)
    for name, number, then in (("first", first, tree), ("second.1", second, second_tree)):
        assert kept.shown("--at", name) == kept.shown("--at", str(number)) == then
    found = names(kept)
    assert {name: one["head"] for name, one in found.items()} == {"first": first, "second.1": second}
    assert (found["first"]["files"], found["first"]["bytes"]) == (1, 400_000)
    assert names(kept, kept.node.mnt) == found
    lines = snapshot(kept, "list", kept.remote.url).stdout.splitlines()
    assert lines[0].split() == ["NAME", "HEAD", "TIME", "FILES", "SIZE"] and len(lines) == 3
    states = json.loads(kept.node.verb("history", *kept.remote.flags(), "--json", kept.remote.url).stdout)["states"]
    assert [state["names"] for state in states if state["names"]] == [["second.1"], ["first"]]
    assert "  (second.1)\n" in kept.node.verb("history", *kept.remote.flags(), kept.remote.url).stdout
    reader = kept.node.fresh()
    reader.mount(ro=True, at="first")
    assert rig.read_file(os.path.join(reader.mnt, "run/model.pt")) == tree["run/model.pt"]
    reader.umount()


def test_what_loses_its_name_goes(kept):
    kept.node.mount()
    kept.put("run/model.pt", 1)
    number, tree = create(kept, "a")
    checkpoints(kept, 4)
    snapshot(kept, "rename", kept.node.mnt, "a", "b")
    collect(kept)
    assert set(names(kept)) == {"b"} and kept.shown("--at", "b") == tree
    snapshot(kept, "delete", kept.node.mnt, "b")
    assert names(kept) == {}
    checkpoints(kept, 2, 10)

    def is_gone():
        kept.gc()
        return number not in kept.remote.heads() and len(kept.remote.heads()) == 1

    rig.poll(is_gone, 30, "the state's end", 0.5)
    assert "there is no snapshot 'b'" in kept.node.verb("ls", *kept.remote.flags(), "--at", "b", kept.remote.spec("/"), code=1).stderr


HISTORY = 1 << 30  # format/head.c


def is_refused_by_earlier_versions(kept):
    """The newest head says so."""
    heads = kept.remote.heads()
    return bool(struct.unpack_from("<I", heads[max(heads)], 84)[0] & HISTORY)


def test_earlier_versions_are_refused_only_while_it_is_used(kept):
    """By a policy, or while a snapshot has a name."""
    kept.node.mount()
    checkpoints(kept, 1)
    assert not is_refused_by_earlier_versions(kept)
    create(kept, "a")
    assert is_refused_by_earlier_versions(kept)
    snapshot(kept, "delete", kept.node.mnt, "a")

    def is_over():
        kept.gc()
        checkpoints(kept, 1, time.monotonic_ns())
        return not is_refused_by_earlier_versions(kept)

    rig.poll(is_over, 30, "a head without the feature", 0.2)
    for keep in "last:2", "none":
        kept.node.umount(drain="remote")
        kept.node.mount(keep=keep)
        checkpoints(kept, 1, time.monotonic_ns())
        assert is_refused_by_earlier_versions(kept) == (keep != "none")


def test_a_deletion_that_is_denied(on_remote, s3, proxy, directory):
    """As in a bucket that keeps everything: one line, and nothing is lost. The same command ends it once it may."""
    kept = Kept(on_remote(s3.through(proxy), **SMALL), directory)
    kept.node.mount(gc_grace="1h")
    kept.put("model.pt", 1)
    create(kept, "a")
    _, tree = create(kept, "b")
    commands = (["delete", kept.node.mnt, "a"], ["rename", kept.node.mnt, "b", "c"])
    denied = {"fault": "denied", "times": 10**6}
    proxy.set(script=[{"method": "DELETE", **denied}, {"method": "POST", "path": "[?&]delete", **denied}])
    said = [snapshot(kept, *command, code=1).stderr.splitlines() for command in commands]
    why = "cairn snapshot: the remote does not delete the name '{}': Permission denied; the snapshot "
    assert said == [[why.format("a") + "stays until that succeeds"], [why.format("b") + "has both names until the same command succeeds"]]
    assert set(names(kept)) == {"a", "b", "c"}
    kept.put("model.pt", 2)
    kept.node.wait_remote()
    assert all(kept.shown("--at", name) == tree for name in "abc") and kept.shown() == kept.tree
    proxy.calm()
    for command in commands:
        snapshot(kept, *command)
    assert set(names(kept)) == {"c"} and kept.shown("--at", "c") == tree


def test_its_head_may_be_damaged_or_lost(kept, rng):
    """What has the name is a copy of it."""
    kept.node.mount()
    kept.put("run/model.pt", 1)
    number, tree = create(kept, "a")
    checkpoints(kept, 2)
    kept.remote.corrupt(f"heads/{number:016x}", rng)
    assert kept.shown("--at", "a") == tree
    kept.remote.delete(f"heads/{number:016x}")
    collect(kept)
    assert kept.shown("--at", "a") == tree


def fsck(kept, code):
    return kept.node.verb("fsck", *kept.remote.flags(), kept.remote.url, code=code).stdout


def scrub(kept, code=0):
    return kept.node.verb("scrub", "--remote", kept.node.mnt, code=code).stdout


@pytest.mark.parametrize("how", ["missing", "flipped", "truncated"])
def test_damage_that_hurts_only_a_snapshot_is_told(kept, how):
    """By `cairn fsck` and `cairn scrub`, also where `.history` is off; and all is as before once the pack is back."""
    kept.node.mount(reduce="off", history="off" if how == "truncated" else "on")
    kept.put("run/model.pt", 1)
    number, tree = create(kept, "a")
    packs = {name: kept.remote.get(name) for name in kept.remote.names("packs/")}
    kept.remove("run/model.pt")
    checkpoints(kept, 4)
    collect(kept)
    assert "1 earlier state was checked" in fsck(kept, 0)
    assert scrub(kept).strip().endswith("clean")
    for name, data in packs.items():
        if how == "missing":
            kept.remote.delete(name)
        elif how == "flipped":
            kept.remote.put(name, data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
        else:
            kept.remote.put(name, data[:5000])
    found = fsck(kept, 4)
    says = {"missing": "is missing; 1 chunks that files need lie there", "flipped": "1 of 1 chunks that files need are damaged",
            "truncated": "is truncated, or its index is damaged; 1 of 1 chunks that files need cannot be read"}[how]
    for name in packs:
        assert f"problem: {name}: {says}; this hurts the snapshot a\n" in found, found
    said = scrub(kept, code=1)
    assert all(f"remote: {name}: " in said for name in packs) and "it hurts the snapshot a\n" in said, said
    assert "remote: the snapshot a: /run/model.pt: bytes of it are damaged or missing\n" in said, said
    for name, data in packs.items():
        kept.remote.put(name, data)
    fsck(kept, 0)
    assert scrub(kept).strip().endswith("clean")
    assert kept.shown("--at", "a") == tree


def flip_where(kept, packs, content):
    """One bit of the pack in which this lies as it is."""
    (name, data), = [(name, data) for name, data in packs.items() if content in data]
    at = data.index(content)
    kept.remote.put(name, data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    return name


def test_a_chunk_that_only_a_snapshot_needs_is_verified(kept):
    """By `cairn fsck` and `cairn scrub`, also where it shares its pack with chunks of the newest state; of the states that need the pack,
    those that need the chunk are named."""
    kept.node.mount(reduce="off", writeback_delay="1s", keep="last:10")
    kept.put("stays.pt", 2)
    kept.put("model.pt", 1)
    _, tree = create(kept, "a")
    packs = {name: kept.remote.get(name) for name in kept.remote.names("packs/")}
    kept.remove("model.pt")
    kept.publish()
    kept.put("other.pt", 3)
    create(kept, "b")
    kept.remove("other.pt")
    kept.publish()
    assert "clean" in fsck(kept, 0) and scrub(kept).strip().endswith("clean")
    name = flip_where(kept, packs, tree["model.pt"][1000:1100])
    assert tree["stays.pt"][1000:1100] in packs[name]
    found = fsck(kept, 4)
    assert f"problem: {name}: 1 of 2 chunks that files need are damaged; this hurts the snapshot a\n" in found, found
    said = scrub(kept, code=1)
    assert re.search(rf"remote: {name}: a chunk of 400000 bytes at \d+ does not match its checksum: it hurts the snapshot a\n", said), said
    assert re.findall("remote: the snapshot .*", said) == ["remote: the snapshot a: /model.pt: bytes of it are damaged or missing"], said
    assert "1 damaged or missing, 0 healed, 1 not healed" in said, said
    kept.remote.put(name, packs[name])
    flip_where(kept, packs, tree["stays.pt"][1000:1100])
    found = fsck(kept, 4)
    assert "problem: /stays.pt: " in found and f"{name} hurts earlier states, too: the snapshot a, the snapshot b" in found, found
    for _ in range(2):  # it is healed for the newest state, which has it in another pack then
        said = scrub(kept, code=1)
        (hurt,) = re.findall(f"remote: {name}: a chunk of .*: it hurts (.*)", said)
        assert "the snapshot a" in hurt and "the snapshot b" in hurt and "1 not healed" in said, said
        assert all(f"remote: the snapshot {which}: /stays.pt: bytes of it are damaged or missing\n" in said for which in "ab"), said
        kept.node.wait_remote()
    assert rig.read_file(os.path.join(kept.node.mnt, "stays.pt")) == tree["stays.pt"]


def test_a_chunk_that_only_a_snapshot_needs_is_verified_beside_its_bases(kept):
    """The newest state may know no place of a chunk that it is stored by. By `cairn scrub`."""
    kept.node.mount(writeback_delay="1s")
    before = set()
    for step in range(3):
        before = set(kept.remote.names("packs/"))
        kept.tree["model.pt"] = weights(step)
        rig.write_file(os.path.join(kept.node.mnt, "model.pt"), kept.tree["model.pt"])
        kept.note("model.pt")
        kept.publish()
    _, tree = create(kept, "a")
    newest = set(kept.remote.names("packs/")) - before
    stored = {one["encoding"]: one["raw_bytes"] for one in kept.node.status()["remote"]["reduction"]["encodings"]}
    assert newest and stored["twin"] + stored["dx"] > 0, stored
    kept.remove("model.pt")
    checkpoints(kept, 2)
    collect(kept)
    assert scrub(kept).strip().endswith("clean")
    for name in newest:
        data = kept.remote.get(name)
        middle = len(data) // 2
        kept.remote.put(name, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:])
    said = scrub(kept, code=1)
    assert all(f"remote: {name}: a chunk of " in said for name in newest) and "it hurts the snapshot a\n" in said, said
    assert "remote: the snapshot a: /model.pt: " in said, said


@pytest.mark.parametrize("lost", ["packs/", "runs/"])
def test_damage_hurts_a_snapshot_whose_head_is_lost(kept, lost):
    """What has the name is a copy of it."""
    kept.node.mount(reduce="off")
    kept.put("model.pt", 1)
    number, _ = create(kept, "a")
    objects = [*kept.remote.names(lost), *kept.remote.names("copies/" if lost == "runs/" else lost)]
    kept.remove("model.pt")
    checkpoints(kept, 4)
    collect(kept)
    kept.remote.delete(f"heads/{number:016x}")
    assert "1 earlier state was checked" in fsck(kept, 0)
    for name in objects:
        kept.remote.delete(name)
    found = fsck(kept, 4)
    says = "this hurts the snapshot a\n" if lost == "packs/" else "problem: snapshots/a: its state cannot be read: "
    assert says in found, found


def test_heads_that_were_given_up_are_no_states_that_stay(kept):
    """Nor do they count where the policy chooses: so gc leaves the state before that with which the history goes on."""
    kept.node.mount(reduce="off", keep="last:3", gc_grace="1h")
    checkpoints(kept, 2)
    older = set(kept.remote.names("packs/"))
    checkpoints(kept, 1, 2)
    stays = set(kept.remote.names("packs/")) - older
    checkpoints(kept, 2, 3)
    kept.node.umount(drain="remote")
    heads = kept.remote.heads()
    for run in set(runs_of(heads[max(heads)])) - set(runs_of(heads[max(heads) - 1])):
        kept.remote.delete(f"runs/{run:016x}")
        kept.remote.delete(f"copies/{run:016x}")
    kept.node = kept.node.fresh()
    kept.node.mount(rollback=True, keep="last:3", gc_grace="1h")
    checkpoints(kept, 1, 10)
    fsck(kept, 0)
    for name in stays:
        kept.remote.delete(name)
    found = fsck(kept, 4)
    assert all(f"problem: {name}: is missing; " in found for name in stays), found


def test_a_name_that_is_damaged(kept, rng):
    """Nothing goes that it might name, until it is deleted."""
    kept.node.mount(keep="last:1")
    kept.put("run/model.pt", 1)
    number, _ = create(kept, "a")
    create(kept, "b")
    kept.node.umount(drain="remote")
    kept.remote.corrupt("snapshots/a", rng)
    assert "problem: snapshots/a: is damaged" in fsck(kept, 4)
    kept.node.mount()
    checkpoints(kept, 3)
    collect(kept)
    assert number in kept.remote.heads()
    assert "snapshots/a is damaged" in kept.node.log()
    assert names(kept)["a"]["error"] == "damaged" and "error" not in names(kept)["b"]
    assert "a is damaged" in kept.node.verb("ls", *kept.remote.flags(), "--at", "a", kept.remote.spec("/"), code=1).stderr
    snapshot(kept, "delete", kept.node.mnt, "a")
    snapshot(kept, "delete", kept.node.mnt, "b")
    rig.poll(lambda: (kept.gc(), number not in kept.remote.heads())[1], 30, "its end", 0.5)


@pytest.mark.parametrize("name, says", [
    ("", "is empty"),
    ("a/b", "has a slash"),
    ("2h", "a number or a time"),
    ("17", "a number or a time"),
    ("2026-11-28", "a number or a time"),
    ("2026-11-28T20:59:08Z", "a number or a time"),
    ("a b", "is no name"),
    (".a", "is no name"),
    ("ä", "is no name"),
    ("a" * 64, "is no name"),
])
def test_what_is_no_name(kept, name, says):
    kept.node.mount()
    for args in (["create", kept.node.mnt, name], ["rename", kept.node.mnt, "a", name], ["delete", kept.node.mnt, name]):
        done = snapshot(kept, *args, code=2)
        assert says in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_what_cannot_be(kept):
    kept.node.mount()
    kept.put("model.pt", 1)
    create(kept, "a")
    kept.put("model.pt", 2)
    assert "there is a snapshot 'a' already" in snapshot(kept, "create", kept.node.mnt, "a", code=1).stderr
    create(kept, "b")
    assert "there is a snapshot 'b' already" in snapshot(kept, "rename", kept.node.mnt, "a", "b", code=1).stderr
    assert "there is no snapshot 'c'" in snapshot(kept, "rename", kept.node.mnt, "c", "d", code=1).stderr
    assert "there is no snapshot 'c'" in snapshot(kept, "delete", kept.node.mnt, "c", code=1).stderr
    assert set(names(kept)) == {"a", "b"}
    assert "unexpected argument 'make'" in snapshot(kept, "make", kept.node.mnt, code=2).stderr
    assert "needs MOUNTPOINT and one name" in snapshot(kept, "create", kept.node.mnt, code=2).stderr
    assert "needs MOUNTPOINT and two names" in snapshot(kept, "rename", kept.node.mnt, "a", code=2).stderr
    reader = kept.node.fresh()
    reader.mount(ro=True)
    assert "only reads" in reader.verb("snapshot", "create", reader.mnt, "x", code=1).stderr
    reader.umount()


def test_a_writer_that_was_replaced_while_it_stood_still(kept):
    """Its last head has a name and stays. So does the one by which it was replaced: it finds its next number taken."""
    kept.node.mount()
    kept.put("model.pt", 1)
    number, tree = create(kept, "a")
    kept.node.pause()
    other = Kept(kept.node.fresh(), kept.directory)
    other.tree = dict(kept.tree)
    other.node.mount(takeover=True)
    checkpoints(other, 5)
    collect(other)
    assert number in other.remote.heads()
    kept.node.go_on()
    rig.write_file(os.path.join(kept.node.mnt, "late.pt"), b"late")
    rig.poll(lambda: kept.node.remote_status()["state"] == "fenced", 60, "the end of the old writer", 0.2)
    checkpoints(other, 1, 50)
    assert other.shown() == other.tree and other.shown("--at", "a") == tree
    assert "taken over" in kept.node.verb("snapshot", "create", kept.node.mnt, "b", code=1).stderr
    kept.node.kill9()


def test_a_daemon_that_dies_while_it_gives_names(kept, rng):
    """A name that was told is there; what is there names a whole state."""
    kept.node.mount(keep="last:2")
    told = {}
    for step in range(6):
        kept.put("latest.pt", step)
        name = f"s{step}"
        command = [kept.node.binary, "snapshot", "create", kept.node.mnt, name]
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.3)
        if step % 2:
            kept.node.kill9()
        said = asking.communicate()[0]
        if asking.returncode == 0:
            told[name] = dict(kept.tree)
        else:
            assert step % 2 and said == b""
        if step % 2:
            kept.node.mount()
        kept.gc()
    collect(kept)
    there = names(kept)
    assert set(told) <= set(there) and {"s0", "s2", "s4"} <= set(told)
    for name in there:
        shown = kept.shown("--at", name)
        assert name not in told or shown == told[name]
    assert all(runs_of(head) for number, head in kept.look().items() if number in {one["head"] for one in there.values()})
