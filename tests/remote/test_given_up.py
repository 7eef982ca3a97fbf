# SPDX-License-Identifier: Apache-2.0
"""A mount with --rollback gives up published heads. The store that published them never discards its state unasked, and what they
name stays in the remote for a stated time."""
import os
import re
import shutil
import struct
import time
import zlib

import pytest

import remote as remotes
import rig
from remote import runs_of
from test_keep import cut_of

pytestmark = pytest.mark.needs_mount

OPTIONS = {"reduce": "off", "writeback_delay": "50ms", "lease": "3s"}
ALL = range(4)


def content(name):
    return rig.seeded_bytes(name, 300_000)


def save(node, name):
    """Returns when it is in the remote."""
    node.write(name, content(name), "remote")


def steps(numbers):
    return [f"step{i}" for i in numbers]


def check(mount, names):
    assert sorted(os.listdir(mount.mnt)) == sorted(names)
    for name in names:
        assert rig.read_file(os.path.join(mount.mnt, name)) == content(name)


def age(remote, when):
    """All objects are of then, and the history began long before."""
    marker = bytearray(remote.get("cairn"))
    marker[56:64] = struct.pack("<q", time.time_ns() - 30 * 86400 * 10**9)
    marker[252:] = struct.pack("<I", zlib.crc32(marker[:252]))
    for name in ("cairn", "heads/cairn"):
        remote.put(name, bytes(marker))
    rig.run("find", remote.path, "-exec", "touch", "-d", when, "{}", "+")


def lose_newest_run(remote):
    """Both objects. Returns the newest head."""
    heads = remote.heads()
    number = max(heads)
    for place in ("runs", "copies"):
        remote.delete(f"{place}/{runs_of(heads[number])[-1]:016x}")
    return number


@pytest.fixture
def remote(directory):
    return remotes.DirRemote(os.path.join(directory, "remotes"))


@pytest.fixture
def node(on_remote, remote):
    """An unmounted store, all whose state is published and on NVMe."""
    mount = on_remote(remote, **OPTIONS).mount()
    for name in steps(ALL):
        save(mount, name)
    mount.umount("remote")
    return mount


@pytest.fixture
def other(node):
    """Another store has gone on from an older state, and is not mounted. Its files are .names, and .lost is the newest head that was
    given up."""
    lost = lose_newest_run(node.remote)
    fresh = node.fresh().mount(rollback=True)
    fresh.names = [*os.listdir(fresh.mnt), "other"]
    fresh.lost = lost
    assert len(fresh.names) < len(ALL) + 1
    save(fresh, "other")
    fresh.umount("remote")
    return fresh


def without_remote(node):
    """The store's own files, by a mount without the remote."""
    alone = rig.Mount(node.root, node.binary, store=node.store, reduce="off").mount()
    check(alone, steps(ALL))
    alone.umount()


@pytest.mark.parametrize("options", [{}, {"ro": True}, {"takeover": True}, {"rollback": True}], ids=str)
def test_the_store_that_was_given_up_is_refused(node, other, options):
    """Its newer state is whole, and the remote's lacks it: neither is changed, whatever the options."""
    left = node.remote.objects()
    said = node.refused(**options)
    assert re.search(rf"head {other.lost} of \S+ \S+, which this store published, was given up there: since \S+ \S+ a mount with --rollback ",
                     said), said
    assert f"(4 files, {4 * 300_000 / rig.MIB:.1f} MiB)" in said, said
    assert "without --remote" in said and "an empty prefix" in said and "an empty STORE" in said, said
    assert node.remote.objects() == left
    without_remote(node)


def test_ways_out(node, other, directory):
    """Its state can be published elsewhere, and an empty store goes on from the remote."""
    node.refused()
    elsewhere = remotes.DirRemote(os.path.join(directory, "elsewhere"))
    remote = node.remote
    node.use(elsewhere).mount()
    check(node, steps(ALL))
    node.umount("remote")
    with node.elsewhere(ro=True) as reader:
        check(reader, steps(ALL))
    with node.elsewhere(remote=remote) as empty:
        check(empty, other.names)
    other.mount()  # goes on from its own head, which has come over
    check(other, other.names)
    other.umount()


def test_later_writers_still_say_so(node, other):
    """Each head names it again: also those of a third store, after heads of the second were deleted."""
    third = node.fresh(gc_grace="1s").mount()
    for i in range(3):
        save(third, f"third{i}")
    third.umount("remote")
    node.refused()
    without_remote(node)


def test_a_store_that_nobody_went_on_without(node):
    """The other store died before it published anything: nothing is lost, so nothing is refused, and what was given up is taken back."""
    lose_newest_run(node.remote)
    fresh = node.fresh().mount(rollback=True)
    fresh.kill9()
    fresh.close()
    node.mount()
    check(node, steps(ALL))
    save(node, "more")
    node.umount("remote")
    heads = node.remote.heads()
    assert struct.unpack_from("<I", heads[max(heads)], 84)[0] >> 31 == 0, "earlier versions may read it again"
    with node.elsewhere(ro=True) as reader:
        check(reader, [*steps(ALL), "more"])
    node.mount()
    check(node, [*steps(ALL), "more"])
    node.umount()


def test_what_another_store_had_stays_given_up(node, other):
    """A third store gives up what the other one published, and dies. The first store goes on from its state, which lacks that: the other
    one is refused, and loses nothing."""
    heads = node.remote.heads()
    for run in {run for number in heads if number > other.lost for run in runs_of(heads[number])} - {*runs_of(heads[other.lost + 1])}:
        for place in ("runs", "copies"):
            node.remote.delete(f"{place}/{run:016x}")
    third = node.fresh().mount(rollback=True)
    assert "other" not in os.listdir(third.mnt)
    third.kill9()
    third.close()
    node.mount()
    check(node, steps(ALL))
    save(node, "more")
    node.umount("remote")
    assert "was given up there" in other.refused()


@pytest.mark.parametrize("saves", [False, True])
def test_a_first_head_that_fails_after_going_back(node, saves):
    """A store restored from a backup goes back in heads of its own, and cannot publish: STORE/head has a number that it gives up.
    It goes back again the next time, and keeps what was written since."""
    backup = node.store + ".backup"
    shutil.copytree(node.store, backup, symlinks=True)
    node.mount()
    for name in ("new0", "new1"):
        save(node, name)
    node.umount("remote")
    shutil.rmtree(node.store)
    os.rename(backup, node.store)
    lost = lose_newest_run(node.remote)
    in_the_way = node.remote.file(f"heads/{lost + 1:016x}")  # no head can be created, and none is listed
    os.mkdir(in_the_way)
    node.mount(rollback=True)
    assert f"publishing head {lost + 1} failed" in node.log()
    names = os.listdir(node.mnt)
    assert "new1" not in names
    if saves:
        rig.write_file(os.path.join(node.mnt, "more"), content("more"))
        names.append("more")
    rig.Mount.umount(node)
    os.rmdir(in_the_way)
    assert "mount with --rollback" in node.refused()
    node.mount(rollback=True)
    check(node, names)
    node.umount("remote")
    with node.elsewhere(ro=True) as reader:
        check(reader, names)


def test_a_damaged_head_with_a_number_that_none_has(node):
    """A writer that went on from there would have no epoch left: it is refused, and says so."""
    node.remote.put("heads/fffffffffffffff0", b"none of ours")
    said = node.fresh().refused(rollback=True)
    assert "its newest head is damaged" in said, said


@pytest.mark.parametrize("goes_on", [False, True])
def test_an_older_copy_of_the_prefix(node, goes_on):
    """Nobody knew that heads were lost. Another head has the number of the one that this store published, or numbers end before it."""
    remote = node.remote
    old = remote.copy()
    node.mount()
    new = [f"new{i}" for i in range(4)]
    for name in new:
        save(node, name)
    node.umount("remote")
    newest = max(remote.heads())
    remote.wipe()
    old.download(remote.path)
    second = node.fresh().mount()
    save(second, "second")
    while goes_on and max(remote.heads()) <= newest:
        save(second, f"second{max(remote.heads())}")
    assert (max(remote.heads()) > newest) == goes_on
    second.umount("remote")
    said = node.refused()
    assert "went on without this store" in said and "has data that is not in it" in said, said
    alone = rig.Mount(node.root, node.binary, store=node.store, reduce="off").mount()
    check(alone, [*steps(ALL), *new])
    alone.umount()


# ---------------------------------------------------------------- gc

def collect(mount):
    return mount.verb("gc", mount.mnt).stdout


def test_what_was_given_up_stays_for_a_stated_time(node, other):
    """Heads, runs and packs of before, also those that the state that went on needed and does not any more; then they go."""
    remote = node.remote
    age(remote, "2 days ago")
    kept = {name: remote.get(name) for name in remote.names() if name.startswith(("packs/", "runs/", "copies/"))}
    given_up = {f"heads/{other.lost:016x}"}
    other.mount(gc_grace="1s")
    assert given_up <= set(remote.names("heads/"))
    for name in other.names:
        os.unlink(os.path.join(other.mnt, name))

    def is_swept():
        """Heads of before the last two have gone, so all else that may go does, too."""
        other.write("tick", os.urandom(9), "remote")
        return "from heads/" in other.log() and "deleted" in collect(other)

    rig.poll(is_swept, 60, "heads of after that to go", 1)
    collect(other)
    before = {name for name in kept if int(name[-16:], 16) >> 24 & 0xffffff < max(int(n[-16:], 16) >> 24 & 0xffffff for n in kept)}
    assert before and before <= set(remote.names()) and given_up <= set(remote.names("heads/"))
    assert {name: remote.get(name) for name in before} == {name: kept[name] for name in before}
    other.umount("remote")
    other.mount(gc_grace="1s", rollback_keep="0s")

    def is_gone():
        other.write("tick", os.urandom(9), "remote")
        collect(other)
        return not (before | given_up) & set(remote.names())

    rig.poll(is_gone, 60, "all of it to go", 1)
    other.umount("remote")
    with node.elsewhere(ro=True) as reader:
        assert os.listdir(reader.mnt) == ["tick"]


def test_no_policy_keeps_what_was_given_up(node):
    """After `rollback_keep` the heads that were given up go, whatever `keep` says; those that the new state goes on from stay."""
    lose_newest_run(node.remote)
    names, heads = set(node.remote.names("runs/")), {number: head for number, head in node.remote.heads().items() if runs_of(head)}
    given_up = {number for number, head in heads.items() if any(f"runs/{run:016x}" not in names for run in runs_of(head))}
    real = {cut_of(head) for number, head in heads.items() if number not in given_up}
    assert given_up and real
    fresh = node.fresh(keep="last:100").mount(rollback=True)
    save(fresh, "other")
    fresh.umount("remote")
    fresh.mount(gc_grace="1s", rollback_keep="0s")

    def are_gone():
        collect(fresh)
        return not given_up & set(node.remote.heads())

    rig.poll(are_gone, 60, "heads that were given up to go", 1)
    assert real <= {cut_of(head) for head in node.remote.heads().values()}
    fresh.umount()


def test_runs_that_a_head_names_stay(node):
    """A run that heads before and after the ones given up name, and those do not: lagging readers may need it, however old it is."""
    remote = node.remote
    age(remote, "2 hours ago")
    rig.run("find", remote.file("runs"), remote.file("copies"), "-exec", "touch", "-d", "4 hours ago", "{}", "+")
    lost = lose_newest_run(remote)
    fresh = node.fresh(gc_grace="1h", rollback_keep="0s").mount(rollback=True)
    save(fresh, "more")
    collect(fresh)
    heads = remote.heads()
    later = [number for number in heads if number > lost]
    names = set(remote.names())
    assert len(later) > 2 and min(heads) == lost, "heads of before the newest given up are past the grace"
    for number in later:
        for run in runs_of(heads[number]):
            assert f"runs/{run:016x}" in names, f"head {number} names it"
    fresh.umount("remote")


def test_heads_that_were_given_up_are_no_candidates(node):
    """The newest head is damaged and the one before it lost a run. A head that was given up has turned whole again, and no other is left:
    nothing goes back to it."""
    remote = node.remote
    before = remote.copy()
    lost = lose_newest_run(remote)
    other = node.fresh().mount(rollback=True)
    went_back_to = os.listdir(other.mnt)
    for i in range(2):
        save(other, f"other{i}")
    other.umount("remote")
    heads = remote.heads()
    newest = max(heads)
    for place in ("runs", "copies"):
        for name in before.names(place + "/"):
            remote.put(name, before.get(name))
        remote.delete(f"{place}/{runs_of(heads[newest - 1])[-1]:016x}")
    for number in set(heads) - {lost, newest - 1, newest}:
        remote.delete(f"heads/{number:016x}")
    remote.put(f"heads/{newest:016x}", b"damaged")
    for options in ({"ro": True}, {"rollback": True}):
        assert "no older head is whole" in node.fresh().refused(**options)
    for number in set(heads) - {newest}:
        remote.put(f"heads/{number:016x}", heads[number])
    with node.elsewhere(ro=True) as reader:
        assert set(went_back_to) <= set(os.listdir(reader.mnt)) <= {*went_back_to, "other0", "other1"}


def test_the_log_says_how_long(node):
    lost = lose_newest_run(node.remote)
    with node.elsewhere(rollback_keep="2h", rollback=True) as fresh:
        assert re.search(rf"heads [0-9]+ to {lost} are given up: what they name stays in \S+ for 2.0 hours", fresh.log()), fresh.log()


def test_fsck_does_not_mourn_them(node, other):
    """What was lost before is no damage of the state that went on; nor are numbers that gc left out missing heads."""
    for _ in range(2):
        done = node.cairn("fsck", node.remote.url)
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "clean" in said and "given up with --rollback" in said, said
        for number in sorted(node.remote.heads())[:-2]:  # as gc does after the grace
            if number != other.lost:
                node.remote.delete(f"heads/{number:016x}")
