# SPDX-License-Identifier: Apache-2.0
"""`cairn snapshot create --local` on a mount with a remote: a snapshot of the store alone, which is there once it is on NVMe."""
import contextlib
import json
import os
import shutil
import time

import pytest

import rig
from test_local_history import QUICK, Model, pack_bytes, put, top, tree

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]

GRACE = 1


@pytest.fixture
def node(cairn, directory):
    """With a remote, whose directory is node.place."""
    cairn.place = os.path.join(rig.mkdir(os.path.join(directory, "remote")), "p")
    cairn.options.update(QUICK, remote=f"dir:{cairn.place}", remote_timeout="2s", gc_grace=f"{GRACE}s", lease="2s")
    return cairn.mount()


@contextlib.contextmanager
def away(node):
    """Its remote cannot be reached."""
    os.rename(node.place, node.place + ".away")
    yield
    os.rename(node.place + ".away", node.place)


def create(node, name, *flags):
    return node.verb("snapshot", "create", *flags, node.mnt, name)


def names(node, source=None):
    """Is it one of the node alone?"""
    found = json.loads(node.verb("snapshot", "list", "--json", source or node.mnt).stdout)
    return {one["name"]: one.get("local", False) for one in found}


def remove_all(node):
    for name in os.listdir(node.mnt):
        path = os.path.join(node.mnt, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    node.wait_remote()


def collect(node):
    time.sleep(GRACE + 0.5)  # gc deletes only objects that are older
    for _ in range(2):
        node.verb("gc", node.mnt)


def copied(node, name, out):
    """From the disk alone."""
    path = os.path.join(node.root, out)
    node.verb("cp", "-r", "--at", name, f"{node.store}:/", path)
    return tree(path)


def test_it_is_there_once_it_is_on_nvme(node):
    """Though the remote cannot be reached, and the daemon is killed when the command has ended; and when all files are deleted since."""
    put(node, "run/model.pt", 1)
    node.wait_remote()
    with away(node):
        put(node, "run/model.pt", 2)
        put(node, "other.pt", 3)
        then = tree(node.mnt)
        create(node, "mine", "--local")
        assert tree(top(node, "mine")) == then
        node.kill9()
        assert names(node, node.store) == {"mine": False}  # of a store, all are
        assert copied(node, "mine", "early") == then
    node.mount()
    remove_all(node)
    collect(node)
    assert names(node) == {"mine": True} and not os.path.exists(os.path.join(node.place, "snapshots", "mine"))
    assert tree(top(node, "mine")) == then and copied(node, "mine", "late") == then
    node.verb("restore", "--at", "mine", os.path.join(node.mnt, "run"))
    rig.run("cp", "-r", top(node, "mine", "other.pt"), os.path.join(node.mnt, "other.pt"))
    node.wait_remote()
    node.verb("snapshot", "delete", node.mnt, "mine")
    node.remount()
    assert names(node) == {} and tree(node.mnt) == then
    out = os.path.join(node.root, "published")
    node.verb("cp", "-r", f"dir:{node.place}:/", out)
    assert tree(out) == then
    node.umount_whole()


def test_what_is_not_on_nvme_is_refused(node):
    """gc of the remote would take it. What is on NVMe stays there from then on, and an eviction passes over it."""
    put(node, "model.pt", 1)
    then = tree(node.mnt)
    node.wait_remote()
    node.verb("evict", node.mnt)
    done = node.verb("snapshot", "create", "--local", node.mnt, "mine", code=1)
    assert "2.9 MiB of the files lie only in the remote" in done.stderr and names(node) == {}, done
    node.verb("warmup", node.mnt)
    rig.poll(lambda: node.cairn("snapshot", "create", "--local", node.mnt, "mine").returncode == 0, 60, "all to be on NVMe")
    assert node.cairn("evict", node.mnt).returncode == 1
    remove_all(node)
    collect(node)
    assert tree(top(node, "mine")) == then
    node.remount()  # what is read stays for a minute
    node.verb("snapshot", "delete", node.mnt, "mine")
    rig.poll(lambda: (node.verb("gc", node.mnt), pack_bytes(node) < 1_000_000)[1], 60, "its bytes to go")


def test_names_of_the_remote_and_of_the_store(node):
    """Each name is one of the two. Renaming and deleting ask whichever has it."""
    put(node, "model.pt", 1)
    create(node, "far")
    create(node, "near", "--local")
    assert names(node) == {"far": False, "near": True} and names(node, f"dir:{node.place}") == {"far": False}
    assert {"far", "near"} <= set(os.listdir(top(node)))
    for taken, *flags in ("near",), ("near", "--local"), ("far",), ("far", "--local"):
        done = node.verb("snapshot", "create", *flags, node.mnt, taken, code=1)
        assert f"there is a snapshot '{taken}' already" in done.stderr, done
    assert "already" in node.verb("snapshot", "rename", node.mnt, "near", "far", code=1).stderr
    lines = node.verb("snapshot", "list", node.mnt).stdout.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("  on this node only")] == ["near"]
    assert f"'cairn history {node.store}' lists them" in node.verb("history", node.mnt).stderr
    node.verb("snapshot", "rename", node.mnt, "near", "close")
    node.remount()
    assert names(node) == {"far": False, "close": True}
    node.verb("snapshot", "delete", node.mnt, "far")
    assert names(node) == {"close": True}
    node.verb("snapshot", "delete", node.mnt, "close")
    assert names(node) == {}


def test_a_name_of_both(node):
    """The mount had not asked the remote for its names. The store's comes first; what the remote has is not touched, and is there again after."""
    put(node, "model.pt", 1)
    create(node, "both")
    far = tree(node.mnt)
    node.remount()
    put(node, "model.pt", 2)
    create(node, "both", "--local")
    near = tree(node.mnt)
    assert os.listdir(top(node)).count("both") == 1 and tree(top(node, "both")) == near
    assert node.verb("snapshot", "list", node.mnt).stdout.count("both ") == 2
    node.verb("restore", "--at", "both", "--to", os.path.join(node.mnt, "again"), os.path.join(node.mnt, "model.pt"))
    assert rig.read_file(os.path.join(node.mnt, "again")) == near["model.pt"]
    node.remount()  # what is read stays for a minute
    node.verb("snapshot", "delete", node.mnt, "both")
    rig.poll(lambda: tree(top(node, "both")) == far, 30, "the remote's to be shown")
    assert names(node) == {"both": False}


def test_the_store_loses_its_remote_and_gets_it_back(node):
    """Without it, the snapshot is one as others: a mount shows it alone, gc leaves its packs, and it has a cost."""
    put(node, "model.pt", 1)
    then = tree(node.mnt)
    create(node, "mine", "--local")
    node.wait_remote()
    node.umount()
    remote = node.options.pop("remote")
    node.mount(ro=True, at="mine")
    assert tree(node.mnt) == then
    node.umount()
    node.mount()
    assert names(node) == {"mine": False} and tree(top(node, "mine")) == then
    create(node, "more")
    node.remount(remote=remote)
    assert names(node) == {"mine": True, "more": True}
    remove_all(node)
    collect(node)
    assert tree(top(node, "mine")) == then == tree(top(node, "more"))
    assert node.status()["nvme"]["snapshots"] == 2
    rig.poll(lambda: node.status()["nvme"]["snapshot_bytes"] >= 3_000_000, 30, "the cost to be counted")
    node.umount_whole()


def test_damage_is_told_beside_that_of_the_remote(node):
    """scrub and fsck name the snapshot of the store that lost bytes, and that of the remote which did."""
    put(node, "near.pt", 1)
    create(node, "near", "--local")
    os.unlink(os.path.join(node.mnt, "near.pt"))
    node.wait_remote()
    collect(node)
    (pack,) = os.listdir(os.path.join(node.store, "packs"))
    kept = set(os.listdir(os.path.join(node.place, "packs")))
    put(node, "far.pt", 2)
    create(node, "far")
    (lost,) = set(os.listdir(os.path.join(node.place, "packs"))) - kept
    os.unlink(os.path.join(node.mnt, "far.pt"))
    node.wait_remote()
    assert "clean" in node.verb("scrub", node.mnt).stdout
    rig.flip(os.path.join(node.store, "packs", pack), 100_000)
    rig.flip(os.path.join(node.place, "packs", lost), 100_000)
    said = node.verb("scrub", node.mnt, code=1).stdout
    assert "NVMe: the snapshot near: /near.pt: bytes of it are damaged or missing\n" in said, said
    assert "remote: the snapshot far: /far.pt: bytes of it are damaged or missing\n" in said, said
    node.umount()
    assert "near" in node.fsck().stdout


def test_another_writer_goes_on(node):
    """The store takes the state that the other one left, and still has its snapshot."""
    put(node, "run/model.pt", 1)
    then = tree(node.mnt)
    create(node, "mine", "--local")
    node.umount(drain="remote")
    other = node.make(rig.mkdir(os.path.join(node.root, "other")), **node.options)
    other.mount()
    remove_all(other)
    put(other, "new.pt", 2)
    other.wait_remote()
    collect(other)
    other.umount()
    node.mount()
    assert os.listdir(node.mnt) == ["new.pt"] and tree(top(node, "mine")) == then
    node.umount_whole()


class Beside(Model):
    """With a remote, from which content is fetched again."""

    def snapshot(self):
        self.named += 1
        name = f"state{self.named}"
        done = self.mount.cairn("snapshot", "create", "--local", self.mount.mnt, name)
        if done.returncode == 0:
            self.known[name] = dict(self.tree)
        else:
            assert "lie only in the remote" in done.stderr, done

    def gc(self):
        self.mount.verb("gc", self.mount.mnt)
        if self.rng.random() < 0.5:
            self.mount.wait_remote()
            self.mount.cairn("evict", self.mount.mnt)
        else:
            self.mount.verb("warmup", self.mount.mnt)


@pytest.mark.timeout(600)
@pytest.mark.pieces(4)
def test_campaign(node, rng, full, piece):
    """Each snapshot is what was there, whatever is uploaded, stored anew, evicted, fetched and collected."""
    node.umount()
    node.options.update(reduce="dense", reduce_after="0s")
    node.mount()
    model = Beside(node, rng)
    for number in range(piece.share(1000 if full else 60)):
        model.step()
        if number % 20 == 19:
            model.check()
    model.check()
    for name in model.known:
        node.verb("snapshot", "delete", node.mnt, name)
    collect(node)
    assert tree(node.mnt) == model.tree
    node.umount_whole()
