# SPDX-License-Identifier: Apache-2.0
"""A prefix whose heads or whose marker are lost is no empty one: nothing begins there by itself, and nothing that is left is deleted."""
import os
import re
import shutil
import struct
import zlib

import pytest

import remote as remotes
import rig
import successor

pytestmark = pytest.mark.needs_mount

LOSSES = {"heads": ("heads/",), "marker": ("cairn",), "both": ("heads/", "cairn")}
HOW = [*LOSSES, "damaged marker", "empty marker"]
CONTENT = {f"step{i}": bytes([i]) * 300_000 for i in range(3)}


@pytest.fixture
def remote(directory):
    return remotes.DirRemote(os.path.join(directory, "remotes"))


@pytest.fixture
def published(on_remote, remote):
    """A store that has published CONTENT, two days ago, and is not mounted."""
    mount = on_remote(remote).mount()
    for name, data in CONTENT.items():
        mount.write(name, data, "remote")
    mount.umount("remote")
    rig.run("find", remote.path, "-exec", "touch", "-d", "2 days ago", "{}", "+")
    return mount


def lose(remote, what):
    if what.endswith(" marker"):
        remote.put("cairn", remote.get("cairn")[:-1] + b"x" if what.startswith("damaged") else b"")
        return
    for name in list(remote.names()):
        if name.startswith(LOSSES[what]):
            remote.delete(name)


def check(mount, content=None):
    content = CONTENT if content is None else content
    assert sorted(os.listdir(mount.mnt)) == sorted(content)
    rig.check_files(mount.mnt, content)


def fresh_sees(mount, content):
    """What a node with an empty store takes over, while the other is not mounted."""
    with mount.elsewhere() as fresh:
        check(fresh, content)


@pytest.mark.parametrize("what", HOW)
def test_no_history_begins_there(published, remote, what):
    """With an empty store, and with the one that published there: how much is left, since when, and what to do. Nothing is changed."""
    lose(remote, what)
    left = remote.objects()
    packs = len([name for name in left if name.startswith("packs/")])
    for mount in (published.fresh(), published):
        said = mount.refused()
        assert {"heads": "has lost every head"}.get(what, "marker, the object 'cairn'") in said, said
        assert ("has a damaged marker" in said) == what.endswith(" marker"), said
        assert f" {packs} packs" in said and re.search(r"since 2\d{3}-\d\d-\d\d", said) and "--takeover" in said, said
        assert remote.objects() == left


@pytest.mark.parametrize("what", HOW)
def test_reading_without_a_mount(published, remote, what):
    """A copy of the marker is enough to read. Without heads it is said what is missing, and not that nothing was published."""
    lose(remote, what)
    done = published.cairn("ls", remote.spec("/"))
    if what.endswith("marker"):
        assert done.returncode == 0 and sorted(done.stdout.split()) == sorted(CONTENT), done
    else:
        assert done.returncode == 1 and "has lost" in done.stderr and "nothing was" not in done.stderr, done
        assert " packs and " in done.stderr, done


@pytest.mark.parametrize("what", HOW)
def test_the_store_that_published_there_restores_it(published, remote, what):
    """Its head is published again, and its marker is written anew, with the key that the store has."""
    lose(remote, what)
    packs = {name for name in remote.names("packs/")}
    published.mount(takeover=True)
    check(published)
    published.write("more", b"more", "remote")
    published.umount()
    assert packs <= set(remote.names("packs/"))
    fresh_sees(published, {**CONTENT, "more": b"more"})


@pytest.mark.parametrize("what", ["marker", "damaged marker"])
def test_a_marker_is_restored_from_its_copy(published, remote, what):
    """By a node that never was there before."""
    marker = remote.get("cairn")
    lose(remote, what)
    with published.elsewhere(takeover=True) as fresh:
        check(fresh)
    assert remote.get("cairn") == marker
    fresh_sees(published, CONTENT)


def test_a_marker_without_a_copy_takes_the_store(published, remote):
    """As of a remote that an earlier version made."""
    remote.delete("heads/cairn")
    lose(remote, "marker")
    published.mount(takeover=True)
    check(published)
    published.umount()
    fresh_sees(published, CONTENT)


@pytest.mark.parametrize("what", ["heads", "both"])
def test_a_new_beginning_deletes_nothing(published, remote, what):
    """Packs and runs of before stay, whatever their age, and their numbers are not used again; those that are ours go, and the log
    says so."""
    lose(remote, what)
    old = {name: remote.get(name) for name in remote.objects() if name != "cairn"}
    node = published.fresh(gc_grace="1s")
    node.mount(takeover=True)
    node.write("new", b"1" * rig.MIB, "remote")
    os.unlink(os.path.join(node.mnt, "new"))
    node.write("newer", b"2" * rig.MIB, "remote")

    def collect():
        node.verb("gc", node.mnt)
        return "deleted 1 objects from packs/" in node.log()

    rig.poll(collect, 30, "the pack of the deleted file to go", 0.5)
    for name, data in old.items():
        assert remote.get(name) == data
    node.umount()
    fresh_sees(node, {"newer": b"2" * rig.MIB})


def test_a_new_beginning_beside_heads_of_another_history(published, remote):
    """Neither copy nor store: the heads that are there stay, and are below those of the new history."""
    remote.delete("heads/cairn")
    lose(remote, "marker")
    old = {name: remote.get(name) for name in remote.objects()}
    highest = max(remote.heads())
    node = published.fresh(gc_grace="1s")
    said = node.refused()
    assert "a STORE that published there has the key" in said
    node.mount(takeover=True)
    node.write("new", b"new", "remote")
    assert min(set(remote.heads()) - {int(name[6:], 16) for name in old if name.startswith("heads/")}) > highest
    for _ in range(2):
        assert node.cairn("gc", node.mnt).returncode == 0
    for name, data in old.items():
        assert remote.get(name) == data
    node.umount()
    fresh_sees(node, {"new": b"new"})


def test_objects_from_before_our_first_head_stay(on_remote, remote):
    """They were copied there, or are of another history."""
    node = on_remote(remote, gc_grace="1s").mount()
    node.write("file", b"1" * rig.MIB, "remote")
    foreign = ["packs/0000000001000077", "runs/0000000001000077", "copies/0000000001000077"]
    for name in foreign:
        remote.put(name, b"of another history")
        rig.run("touch", "-d", "2 days ago", remote.file(name))
    assert node.cairn("gc", node.mnt).returncode == 0
    assert set(foreign) <= set(remote.names())
    node.umount()


def hide(mount, directory, end, *names):
    """Until `end` these names of a `dir:` remote cannot be seen."""
    path = rig.write_file(os.path.join(directory, "hidden"), "\n".join([end, *names, ""]).encode())
    mount.env = {**mount.env, "LD_PRELOAD": successor.preload(directory, "hidden_objects")[0], "CAIRN_TEST_HIDE": path}
    return path


def lose_first_heads(remote):
    """Of the heads only the newest is there, as after a while."""
    newest = max(remote.heads())
    for number in remote.heads():
        if number != newest:
            remote.delete(f"heads/{number:016x}")
    return newest


def test_a_marker_that_is_seen_late(published, remote, directory):
    """Nothing is seen at first; then the marker cannot be made, for it is there. So the prefix was not empty: it is looked at again."""
    newest = lose_first_heads(remote)
    hidden = hide(published, directory, "<cairn", "cairn", "heads", "packs", "runs", "copies")
    published.mount()
    published.write("more", b"more", "remote")
    assert not os.path.exists(hidden)
    assert "is stored again" not in published.log()
    assert min(remote.heads()) == newest
    published.umount()
    fresh_sees(published, {**CONTENT, "more": b"more"})


@pytest.mark.parametrize("end", ["<", ">"])
def test_heads_that_are_seen_late(published, remote, directory, end):
    """The first head of a new store is made below one that exists, or would be: nothing is acknowledged that the newest head lacks."""
    newest = lose_first_heads(remote)
    node = published.fresh()
    hidden = hide(node, directory, f"{end}{1:016x}", "heads", "packs", "runs", "copies")
    said = node.refused()
    assert "was taken just now by" in said, said
    assert not os.path.exists(hidden) and max(remote.heads()) == newest
    fresh_sees(published, CONTENT)


def test_first_heads_that_gc_deleted(published, remote):
    """And the marker is lost: the heads are not taken for none. Once it is back, numbers go on."""
    newest = lose_first_heads(remote)
    os.rename(remote.file("cairn"), remote.path + "-marker")
    assert "its marker" in published.refused()
    assert set(remote.heads()) == {newest}
    os.rename(remote.path + "-marker", remote.file("cairn"))
    published.mount()
    published.write("more", b"more", "remote")
    assert "is stored again" not in published.log()
    assert min(remote.heads()) == newest
    published.umount()
    fresh_sees(published, {**CONTENT, "more": b"more"})


def test_a_copy_of_the_prefix_that_is_not_whole_yet(published, remote, directory):
    """Packs first, then heads: the mount is refused until all is there."""
    half = remotes.DirRemote(os.path.join(directory, "half"))
    shutil.copytree(remote.file("packs"), half.file("packs"))
    node = published.fresh(remote=half)
    assert "its marker" in node.refused()
    shutil.copytree(remote.path, half.path, dirs_exist_ok=True)
    node.mount()
    check(node)
    node.umount()


@pytest.fixture
def succeeded(published, remote):
    """Another store has taken the prefix over and published there: all packs, by name, and the other's heads."""
    before = set(remote.names("heads/"))
    other = published.fresh()
    other.mount()
    for name in ("b1", "b2"):
        other.write(name, rig.noise(name, 300_000), "remote")
    other.umount("remote")
    return {name: remote.get(name) for name in remote.names("packs/")}, set(remote.names("heads/")) - before


def go_on(mount, **options):
    """Some sessions, each with an epoch of its own."""
    for turn in range(3):
        mount.mount(**options)
        mount.write(f"more{turn}", rig.noise(turn, 100_000), "remote")
        mount.umount("remote")


def test_a_store_after_which_another_came_publishes_no_head_again(published, remote, succeeded):
    """It knows a head, and not the newest one: its ids would be those of the other store, and gc would delete what that one published."""
    packs, _ = succeeded
    lose(remote, "heads")
    assert "begin anew beside them" in published.refused()
    go_on(published, takeover=True, gc_grace="1s")
    assert {name: remote.get(name) for name in packs} == packs


def test_the_newest_heads_are_lost(published, remote, succeeded):
    """Older ones are left. No writer goes on from these unasked; and then it gives out none of the ids that were given out after them."""
    packs, heads = succeeded
    for name in heads:
        remote.delete(name)
    fresh = published.fresh()
    left = remote.objects()
    said = fresh.refused()
    assert "has lost its newest heads" in said and "--rollback" in said, said
    assert remote.objects() == left
    go_on(fresh, rollback=True, gc_grace="1h")
    assert {name: remote.get(name) for name in packs} == packs


def test_a_copy_of_the_marker_is_content(published, remote):
    """All else is away: with a new marker, and a new key, nobody could read it when it is back."""
    for name in list(remote.names()):
        if name != "heads/cairn":
            remote.delete(name)
    assert "has lost its marker" in published.fresh().refused()
    assert list(remote.names()) == ["heads/cairn"]


@pytest.mark.parametrize("what", ["foreign", "key", "damaged"])
def test_a_copy_of_the_marker_that_is_not_ours(published, on_remote, remote, directory, rng, what):
    """Its key may be the only one: a copy of another history or key gets another name before ours takes its place, and the log says so."""
    ours = remote.get("heads/cairn")
    if what == "foreign":
        elsewhere = remotes.DirRemote(os.path.join(directory, "elsewhere"))
        made = published.fresh(remote=elsewhere).mount()
        made.umount()
        copy = elsewhere.get("cairn")
    else:
        copy = bytearray(ours)
        copy[80] ^= 1
        copy[252:] = struct.pack("<I", zlib.crc32(copy[:252])) if what == "key" else copy[252:]
    remote.put("heads/cairn", bytes(copy))
    published.mount()
    save_more(published)
    assert remote.get("heads/cairn") == ours
    aside = [name for name in remote.names("heads/") if name.startswith("heads/cairn.")]
    if what == "damaged":
        assert not aside and "the copy of the marker, is damaged: it is made anew" in published.log()
    else:
        assert aside == ["heads/cairn." + bytes(copy)[40:56].hex()] and remote.get(aside[0]) == bytes(copy)
        assert "was of another history or key" in published.log()
    published.umount()
    fresh_sees(published, {**CONTENT, "more": b"more"})


def save_more(mount):
    mount.write("more", b"more", "remote")
