# SPDX-License-Identifier: Apache-2.0
"""A remote that shows less than the store published there last: its newest heads are lost, or an older copy took its place. Nothing that
only the missing part has is given up unasked, and nothing is acknowledged that a fresh node does not get."""
import os
import re

import pytest

import remote as remotes
import rig
from test_given_up import check, content

pytestmark = pytest.mark.needs_mount

BEFORE, AFTER = ("before0", "before1"), ("after0", "after1", "after2")


@pytest.fixture
def remote(directory):
    return remotes.DirRemote(os.path.join(directory, "remotes"))


@pytest.fixture
def node(on_remote, remote):
    """Mounted; its .old is a copy of the remote from before the AFTER."""
    mount = on_remote(remote, reduce="off", writeback_delay="50ms", lease="3s").mount()
    for name in BEFORE:
        mount.write(name, content(name), "remote")
    mount.old = remote.copy()
    for name in AFTER:
        mount.write(name, content(name), "remote")
    return mount


def take_back(remote, old):
    """The older copy takes the place of what is there, in the same directory."""
    for name in set(remote.names()) - set(old.names()):
        remote.delete(name)
    for name in old.names():
        remote.put(name, old.get(name))


def end(node, dies):
    if dies:
        node.kill9()
    else:
        node.umount("remote")


def fresh_sees(node, names):
    with node.elsewhere(ro=True) as fresh:
        check(fresh, names)


@pytest.mark.parametrize("takeover", [False, True], ids=["", "takeover"])
@pytest.mark.parametrize("dies", [False, True], ids=["ended", "died"])
def test_all_is_published_again(node, remote, dies, takeover):
    """NVMe has all of it. Numbers go on above those that were given out."""
    newest = max(remote.heads())
    end(node, dies)
    take_back(remote, node.old)
    older = max(remote.heads())
    node.mount(takeover=takeover)
    assert re.search(rf"shows head {older}, but this store published head {max(newest, older)}\d* there: an older copy", node.log()), node.log()
    check(node, [*BEFORE, *AFTER])
    node.write("more", content("more"), "remote")
    assert min(number for number in remote.heads() if number > older) > newest
    node.umount("remote")
    fresh_sees(node, [*BEFORE, *AFTER, "more"])


@pytest.mark.parametrize("takeover", [False, True], ids=["", "takeover"])
def test_a_journal_that_was_trimmed(node, remote, takeover):
    """It does not go back to the older head: refused, and all is stored again in an empty prefix."""
    node.remount()  # begins a segment of the journal, so that the one before can go
    node.wait_remote()
    node.verb("gc", node.mnt)
    node.umount("remote")
    take_back(remote, node.old)
    left = {name: remote.get(name) for name in remote.objects()}
    said = node.refused(takeover=takeover)
    assert "does not go back to that" in said and "an empty prefix" in said and "goes on from" not in said, said
    assert {name: remote.get(name) for name in remote.objects()} == left
    node.use(remotes.DirRemote(remote.path + "-new"))
    node.mount()
    check(node, [*BEFORE, *AFTER])
    node.umount("remote")
    fresh_sees(node, [*BEFORE, *AFTER])


@pytest.mark.parametrize("dies", [False, True], ids=["ended", "died"])
def test_what_only_the_newer_one_has_is_not_given_up(node, remote, dies):
    """Refused, and nothing is changed here or there: with the right remote all is as before. With --takeover the rest goes on."""
    assert node.cairn("evict", node.mnt).returncode == 0
    end(node, dies)
    newer = remote.copy()
    take_back(remote, node.old)
    left = {name: remote.get(name) for name in remote.objects()}
    said = node.refused()
    assert "an older copy took its place" in said and " 5 chunks of " in said and "--takeover" in said, said
    assert {name: remote.get(name) for name in remote.objects()} == left
    for name in newer.names():
        remote.put(name, newer.get(name))
    node.mount()
    check(node, [*BEFORE, *AFTER])
    node.remount()
    node.wait_remote()  # else little can be evicted
    assert node.cairn("evict", node.mnt).returncode == 0
    end(node, dies)
    take_back(remote, node.old)
    node.mount(takeover=True)
    for name in BEFORE:
        assert rig.read_file(os.path.join(node.mnt, name)) == content(name)
    with pytest.raises(OSError):
        rig.read_file(os.path.join(node.mnt, AFTER[0]))
    node.umount()


@pytest.mark.parametrize("evicts", [False, True], ids=["here", "there"])
def test_only_the_newest_heads_are_lost(node, remote, evicts):
    """The runs of the last one are there, so its state is published again, with the places of all chunks."""
    if evicts:
        assert node.cairn("evict", node.mnt).returncode == 0
    node.umount("remote")
    heads = sorted(remote.heads())
    for number in heads[2:]:
        remote.delete(f"heads/{number:016x}")
    node.mount()
    assert "it lost its newest heads" in node.log()
    check(node, [*BEFORE, *AFTER])
    assert max(remote.heads()) > heads[-1]
    node.umount("remote")
    fresh_sees(node, [*BEFORE, *AFTER])


def test_a_listing_that_lacks_the_newest_head(on_remote, s3, proxy):
    """It is asked for by its name: nothing was lost, and nothing is said."""
    node = on_remote(s3, reduce="off", writeback_delay="50ms", lease="3s").mount()
    for name in AFTER:
        node.write(name, content(name), "remote")
    assert node.cairn("evict", node.mnt).returncode == 0
    node.umount("remote")
    node.use(s3.through(proxy))
    proxy.set(script=[{"path": "list-type=2.*heads", "fault": "cut_list", "times": 100}])
    node.mount()
    assert proxy.stats()["faults"]["cut_list"] > 0 and "shows head" not in node.log()
    check(node, AFTER)
    node.umount("remote")
    proxy.set(script=[])


@pytest.mark.parametrize("evicts", [False, True], ids=["here", "there"])
def test_under_a_mount(node, remote, evicts):
    """No wait ends before the remote has again what it lost, or says what it cannot get."""
    if evicts:
        assert node.cairn("evict", node.mnt).returncode == 0
    take_back(remote, node.old)
    rig.write_file(os.path.join(node.mnt, "more"), content("more"))
    if evicts:
        code, said = node.wait_of(node.mnt)
        assert code == 1 and "after" in said, (code, said)
        assert node.wait_of(os.path.join(node.mnt, "more")) == (0, "")
    else:
        node.wait_remote()
    assert "the head before head" in node.log()
    node.umount()
    with node.elsewhere(ro=True) as fresh:
        assert sorted(os.listdir(fresh.mnt)) == sorted([*BEFORE, *AFTER, "more"])
        for name in (*BEFORE, "more", *(() if evicts else AFTER)):
            assert rig.read_file(os.path.join(fresh.mnt, name)) == content(name)
