# SPDX-License-Identifier: Apache-2.0
"""Runs of the remote that are lost or damaged: one of the two objects, or both. Readers go back, writers put them again."""
import os
import re

import pytest

import rig
from remote import runs_of

pytestmark = pytest.mark.needs_mount

STEP = 300_000
SMALL = {"reduce": "off", "writeback_delay": "50ms"}


def newest(remote):
    heads = remote.heads()
    return max(heads), runs_of(heads[max(heads)])


def save(node, number, seed):
    """Returns when the step is in the remote."""
    path = rig.mkdir(os.path.join(node.mnt, f"step{number}"))
    rig.write_file(os.path.join(path, "model.pt"), rig.seeded_bytes(f"{seed} {number}", STEP))
    node.wait_remote()


def check(directory, steps, seed):
    assert sorted(os.listdir(directory)) == sorted(f"step{i}" for i in steps)
    for i in steps:
        assert rig.read_file(os.path.join(directory, f"step{i}", "model.pt")) == rig.seeded_bytes(f"{seed} {i}", STEP)


def copied(node, directory):
    """What `cairn cp` gives of the remote, and what it says."""
    os.makedirs(directory)
    return node.verb("cp", *node.remote.flags(), "-r", node.remote.spec("/"), directory).stderr


@pytest.fixture
def node(mount, seed):
    """An unmounted node whose remote has some runs, the newest of them small."""
    mount.options.update(SMALL)
    mount.mount()
    for i in range(4):
        save(mount, i, seed)
    mount.umount(drain="remote")
    return mount


def objects_of(remote, place):
    return {name for name in remote.names(f"{place}/") if re.fullmatch(f"{place}/[0-9a-f]{{16}}", name)}


def check_twice(remote):
    number, runs = newest(remote)
    for run in runs:
        assert remote.get(f"runs/{run:016x}") == remote.get(f"copies/{run:016x}"), f"head {number}, run {run:x}"


def test_each_run_lies_there_twice(node):
    assert newest(node.remote)[1]
    check_twice(node.remote)


@pytest.mark.parametrize("how", ["lost", "flipped"])
@pytest.mark.parametrize("place", ["runs", "copies"])
def test_one_of_both_is_enough(node, place, how, directory, seed, rng):
    """All objects of one place: readers take the other, and a writer puts them again."""
    runs = newest(node.remote)[1]
    for run in runs:
        name = f"{place}/{run:016x}"
        node.remote.delete(name) if how == "lost" else node.remote.corrupt(name, rng)
    before = node.remote.names()
    copied(node, os.path.join(directory, "copied"))
    check(os.path.join(directory, "copied"), range(4), seed)
    with node.elsewhere(ro=True) as reader:
        check(reader.mnt, range(4), seed)
    assert node.remote.names() == before, "a reader wrote to the remote"
    writer = node.fresh().mount()
    check(writer.mnt, range(4), seed)
    if place == "runs" or how == "lost":  # a damaged copy is found when it is read
        rig.poll(lambda: all(f"{place}/{run:016x}" in node.remote.names() for run in newest(node.remote)[1]), 30, "the runs")
        rig.poll(lambda: "stored again" in writer.log(), 30, "the line that says so")
        writer.umount(drain="remote")
        check_twice(node.remote)
    else:
        writer.umount()


def test_scrub_verifies_runs_of_the_store(node):
    """A view that is lost is made from these files."""
    node.mount()
    name = f"{newest(node.remote)[1][-1]:016x}"
    path = os.path.join(node.store, "runs", name)
    rig.poll(lambda: os.path.exists(path), 30, "the file")
    rig.flip(path, os.path.getsize(path) // 2)
    done = node.cairn("scrub", node.mnt)
    assert done.returncode == 0 and "1 objects of runs" in done.stdout + done.stderr, done
    assert rig.read_file(path) == node.remote.get(f"runs/{name}")
    node.umount(drain="remote")


@pytest.mark.parametrize("place", ["runs", "copies"])
def test_scrub_verifies_both(node, place, rng):
    """A flipped bit is found before the other object is needed."""
    node.mount()
    name = f"{place}/{newest(node.remote)[1][-1]:016x}"
    rig.poll(lambda: name in node.remote.names(), 30, "the object")
    node.remote.corrupt(name, rng)
    done = node.cairn("scrub", "--remote", node.mnt)
    assert done.returncode == 0 and "1 objects of runs were missing or damaged, 1 are stored again" in done.stdout + done.stderr, done
    assert f"{name} was damaged: stored again" in node.log()
    check_twice(node.remote)
    assert "clean" in node.verb("scrub", "--remote", node.mnt).stdout
    node.umount(drain="remote")


def test_copies_of_an_earlier_version_are_made(node):
    """A remote without copies gets them from the first writer."""
    for name in objects_of(node.remote, "copies"):
        node.remote.delete(name)
    node.mount()
    wanted = {f"copies/{run:016x}" for run in newest(node.remote)[1]}
    rig.poll(lambda: wanted <= objects_of(node.remote, "copies"), 30, "the copies")
    node.umount()
    check_twice(node.remote)


def lose_newest(node):
    """Both objects of the newest run; its name, and the newest head before that lacks nothing."""
    number, runs = newest(node.remote)
    heads = node.remote.heads()
    whole = max(n for n in heads if n < number and runs_of(heads[n]) and runs[-1] not in runs_of(heads[n]))
    for place in ("runs", "copies"):
        node.remote.delete(f"{place}/{runs[-1]:016x}")
    return f"{runs[-1]:016x}", number, whole


def test_readers_go_back(node, directory, seed):
    run, number, whole = lose_newest(node)
    before = node.remote.names()
    said = copied(node, os.path.join(directory, "copied"))
    assert re.search(rf"head {number} of \S+ \S+ cannot be read: runs/{run} is missing, and its copy copies/{run} is missing; showing head {whole} of ", said), said
    steps = range(len(os.listdir(os.path.join(directory, "copied"))))
    assert 2 <= len(steps) < 4
    check(os.path.join(directory, "copied"), steps, seed)
    assert f"showing head {whole} of" in node.verb("ls", *node.remote.flags(), node.remote.spec("/")).stderr
    with node.elsewhere(ro=True) as reader:
        check(reader.mnt, steps, seed)
        assert f"showing head {whole} of" in reader.log()
        assert run in reader.remote_status()["error"]
    assert node.remote.names() == before


def test_writer_has_to_be_asked(node, seed):
    """Refused, it leaves the remote as it was, and names the object; asked, it goes on, and nothing of the later state is deleted before its time."""
    run, number, whole = lose_newest(node)
    before = node.remote.names()
    fresh = node.fresh(gc_grace="8s", rollback_keep="0s")
    with pytest.raises(rig.MountError, match=rf"runs/{run} is missing.*head {whole} of .* is whole.*--rollback"):
        fresh.mount()
    assert node.remote.names() == before
    fresh.mount(rollback=True)
    steps = sorted(os.listdir(fresh.mnt))
    assert 2 <= len(steps) < 4
    fresh.write("after", b"after", "remote")
    assert newest(node.remote)[0] > number
    fresh.verb("gc", fresh.mnt)
    packs = {name for name in before if name.startswith("packs/")}
    assert packs <= set(node.remote.names()), "a pack of the later state was deleted at once"
    rig.poll(lambda: not packs <= set(node.remote.names()) or (rig.write_file(os.path.join(fresh.mnt, "tick"), os.urandom(9)), False)[1],
             90, "the packs of the later state to go", 1)
    fresh.umount(drain="remote")
    with node.elsewhere(ro=True) as other:
        assert set(os.listdir(other.mnt)) == {*steps, "after", "tick"}
        for step in steps:
            assert rig.read_file(os.path.join(other.mnt, step, "model.pt")) == rig.seeded_bytes(f"{seed} {step[4:]}", STEP)
        assert rig.read_file(os.path.join(other.mnt, "after")) == b"after"


def test_damaged_head(node, directory, seed, rng):
    """Readers go back to the head before; a writer with an empty store is refused, writes nothing, and goes on when it is asked to."""
    number = max(node.remote.heads())
    for lost in range(number - 1, number + 1):
        node.remote.corrupt(f"heads/{lost:016x}", rng)
    before = node.remote.names()
    said = copied(node, os.path.join(directory, "copied"))
    assert re.search(rf"head {number} of an unknown time cannot be read: heads/{number:016x} is damaged; showing head {number - 2} of ", said), said
    steps = sorted(os.listdir(os.path.join(directory, "copied")))
    assert 2 <= len(steps) <= 4
    with node.elsewhere(ro=True) as reader:
        check(reader.mnt, range(len(steps)), seed)
    with pytest.raises(rig.MountError, match="newest head is damaged.*--rollback"):
        node.fresh().mount()
    assert node.remote.names() == before
    writer = node.fresh().mount(rollback=True)
    check(writer.mnt, range(len(steps)), seed)
    save(writer, len(steps), seed)
    writer.umount(drain="remote")
    assert newest(node.remote)[0] > number
    with node.elsewhere(ro=True) as other:
        check(other.mnt, range(len(steps) + 1), seed)


def test_lost_head_is_told(node, directory):
    """The newest head is gone, and the run before it is there: an earlier state is shown, and a line says that it is."""
    if node.remote.kind != "dir":
        pytest.skip("skipped: the age of objects cannot be set there")
    number, runs = newest(node.remote)
    heads = node.remote.heads()
    for lost in [n for n in heads if runs[-1] in runs_of(heads[n])]:
        node.remote.delete(f"heads/{lost:016x}")
    assert "later head" not in node.verb("ls", node.remote.spec("/")).stderr, "a writer may be about to publish it"
    old = os.stat(node.remote.file("cairn")).st_mtime_ns - 200 * 10**9
    for name in node.remote.names("runs/"):
        os.utime(node.remote.file(name), ns=(old, old))
    listed = node.cairn("ls", node.remote.spec("/"))
    assert listed.returncode == 0 and re.search(rf"head [0-9]+ of .* is the newest one, but runs/{runs[-1]:016x} of .* came after it", listed.stderr), listed.stderr
    with node.elsewhere(ro=True) as reader:
        assert "a later head is lost" in reader.log()


def test_own_store_puts_lost_runs_again(node, seed):
    """Both objects: the store that published them has them."""
    run = lose_newest(node)[0]
    node.mount()
    rig.poll(lambda: {f"runs/{run}", f"copies/{run}"} <= set(node.remote.names()), 30, "both objects")
    node.umount(drain="remote")
    with node.elsewhere(ro=True) as fresh:
        check(fresh.mnt, range(4), seed)


def test_all_runs_of_all_heads(node):
    """Nothing is whole: the message names an object, and nothing is written."""
    for place in ("runs", "copies"):
        for name in objects_of(node.remote, place):
            node.remote.delete(name)
    before = node.remote.names()
    done = node.cairn("ls", *node.remote.flags(), node.remote.spec("/"))
    assert done.returncode == 1 and re.search("runs/[0-9a-f]{16} is missing.*no older head is whole", done.stderr), done.stderr
    for options in ({}, {"ro": True}, {"rollback": True}):
        with pytest.raises(rig.MountError, match="no older head is whole"):
            node.fresh().mount(**options)
    assert node.remote.names() == before


def test_follower_shows_what_is_whole(node, seed):
    """A follower of a remote whose newest head lacks a run says so, and goes on with what comes."""
    follower = node.fresh().mount(ro=True, follow="1s")
    check(follower.mnt, range(4), seed)
    node.mount()
    follower.pause()
    save(node, 4, seed)
    node.umount(drain="remote")
    run, number, _ = lose_newest(node)
    follower.go_on()
    rig.poll(lambda: f"head {number} cannot be read: runs/{run} is missing" in follower.log(), 60, "the line that says so")
    assert set(os.listdir(follower.mnt)) >= {f"step{i}" for i in range(4)}
    node.mount()
    save(node, 5, seed)
    node.wait_remote()
    rig.poll(lambda: os.path.exists(os.path.join(follower.mnt, "step5", "model.pt")), 60, "the next state")
    check(follower.mnt, range(6), seed)
    follower.umount()
    node.umount()


def test_gc_deletes_both(mount, seed):
    """What no head names goes in both places."""
    mount.options.update(SMALL)
    mount.mount(gc_grace="1s")
    for i in range(6):
        save(mount, i, seed)

    def is_tidy():
        mount.write("tick", os.urandom(9), "remote")
        done = mount.verb("gc", mount.mnt)
        deleted.extend(re.findall(r"deleted ((?:runs|copies)/[0-9a-f]{16})", done.stdout))
        return all(len(objects_of(mount.remote, place)) <= len(newest(mount.remote)[1]) + 4 for place in ("runs", "copies"))

    deleted, made = [], len(objects_of(mount.remote, "copies"))
    rig.poll(is_tidy, 60, "both places to be tidy", 0.5)
    assert made >= 1
    both = [name for name in deleted if name.startswith("runs/") and name.replace("runs/", "copies/") in deleted]
    assert all(deleted.index(name.replace("runs/", "copies/")) < deleted.index(name) for name in both), "the copy goes first"
    mount.umount(drain="remote")
    check_twice(mount.remote)
