# SPDX-License-Identifier: Apache-2.0
"""Power loss with reduce=dense (P3, P4, P5, P8), on a disk that loses, reorders and tears what was not flushed: while old files become
dense on NVMe, and while names are written over, whose content rests on what no file has any more."""
import contextlib
import functools
import hashlib
import json
import os
import random

import pytest

import judge as judges
import recorded_disk
import remote as remotes
import rig
import trained

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(300)]

FILES = 16
OPTIONS = {"nvme": "700M", "stage": "96M", "writeback_delay": "0s", "gc_grace": "1s", "reduce": "dense"}


@pytest.fixture
def node(new_disk, on_remote, rng):
    """A store on such a disk, with files of few near steps of training, all in the remote; nothing of it is dense yet."""
    disk = new_disk(kind=rng.choice(sorted(recorded_disk.FORMATS)))
    made = on_remote(**OPTIONS, reduce_after="1h")
    made.disk = disk
    disk.hold(made).mount()
    made.content = {f"run/step{number}": trained.trained_bytes(number, 3 * rig.MIB) for number in range(FILES)}
    os.mkdir(os.path.join(made.mnt, "run"))
    for name, data in made.content.items():
        made.write(name, data, "remote")
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
    with rig.discarded(copy):
        copy.mount()
        assert [name for name, data in node.content.items() if rig.read_file(os.path.join(copy.mnt, name)) != data] == []
        dense = dense_bytes(copy)
        copy.umount_whole()
        return dense


def test_cuts_while_old_files_become_dense(node, rng, full):
    """161 cuts (7 by default): every byte is there, and needs no remote."""
    first, last = condense(node)
    whole = dense_bytes(node)
    node.lose_power()
    dense = []
    cuts = [(at, how) for at in node.disk.moments(rng, first, last, 40 if full else 3)
            for how in (recorded_disk.HOWS if full else rng.sample(recorded_disk.HOWS, 2))]
    for at, how in [*cuts, (last, "all")]:  # the last one has what became dense, whatever chance chose
        path, what = node.disk.image(at, how, random.Random(rng.getrandbits(32)))
        print(f"{how}: {what}", flush=True)
        with node.disk.cut_mounted(path) as loop:
            dense.append(judge(node, loop))
    print(f"{len(dense)} cuts, dense bytes {dense} of {whole}")
    assert any(0 < some for some in dense)


# ---------------------------------------------------------------- names that are written over

NAMES = ("latest.pt", "best.pt", "run/step{}")
KEPT = 3  # steps


def weights(name, number):
    return trained.trained_bytes(f"{name} {number}", 1500 * rig.KIB, is_bf16=True)


def write_over(mnt, number):
    """In this order: one name by truncation, one by rename, one more of a series, of which the oldest goes."""
    latest, best, step = (os.path.join(mnt, name.format(number)) for name in NAMES)
    rig.write_file(latest, weights(NAMES[0], number))
    rig.write_file(best + ".tmp", weights(NAMES[1], number))
    os.rename(best + ".tmp", best)
    os.makedirs(os.path.dirname(step), exist_ok=True)
    rig.write_file(step, weights(NAMES[2], number))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(mnt, NAMES[2].format(number - KEPT)))


class Turns:
    """Contents 1, 2, 3... of the names; of each, which request of the disk came when it was begun, said to be on NVMe, and in the
    remote."""

    def __init__(self, node):
        self.node, self.begun, self.on_nvme, self.in_remote = node, {}, {}, {}

    def take(self, number):
        disk = self.node.disk
        self.begun[number] = disk.count()
        write_over(self.node.mnt, number)
        if number % 4:
            self.node.wait()
            self.on_nvme[number] = disk.count()
        if number % 4 > 1:
            self.node.wait_remote()
            self.in_remote[number] = disk.count()
        if number % 3 == 0:
            assert self.node.cairn("gc", self.node.mnt).returncode == 0

    def last(self, times, at):
        """The last one of which this was said before the request."""
        return max((number for number, time in times.items() if time <= at), default=0)


@functools.cache
def digest(name, number):
    return hashlib.sha256(weights(name, number)).digest()


def numbers_of(mnt, most):
    """Which content each name has, 0: none; of the series the newest. All that is there is whole."""
    known = {digest(name, number): (name, number) for name in NAMES for number in range(1, most + 1)}
    found = dict.fromkeys(NAMES, 0)
    for directory, _, files in os.walk(mnt):
        for file in files:
            path = os.path.join(directory, file)
            name, number = known[hashlib.sha256(rig.read_file(path)).digest()]
            if not file.endswith(".tmp"):
                assert os.path.relpath(path, mnt) == name.format(number)
                found[name] = max(found[name], number)
    return [found[name] for name in NAMES]


def prefix_of(mnt, least, most):
    """How many of the contents came, in the order in which they were written."""
    numbers = numbers_of(mnt, most)
    newest = numbers[0]
    assert sorted(numbers, reverse=True) == numbers and newest - numbers[-1] <= 1, f"{numbers} is no prefix"
    steps = sorted(int(name.removeprefix("step")) for name in os.listdir(os.path.join(mnt, "run"))) if numbers[-1] else []
    last = numbers[-1]
    assert steps in (list(range(max(last - KEPT + 1, 1), last + 1)), list(range(max(last - KEPT, 1), last + 1))), f"{steps} is no prefix"
    assert sum(numbers) >= len(NAMES) * least, f"{numbers} lacks what was said to be there: {least}"
    return sum(numbers)


def look(node, judge_one):
    """What judge_one(mnt) says of what another node sees."""
    with rig.discarded(node):
        node.mount(ro=True)
        return judge_one(node.mnt)


def judge_both(turns, loop, at):
    """Another node sees a prefix; the store a longer one; it goes on, and another node sees all of it."""
    node, most = turns.node, turns.last(turns.begun, at - 1)
    remote = remotes.DirRemote(None, os.path.join(loop.mountpoint, os.path.relpath(node.remote.path, node.disk.inner.mountpoint)))
    in_remote = look(node.fresh(remote), lambda mnt: prefix_of(mnt, turns.last(turns.in_remote, at), most))
    copy = node.fresh(remote)
    copy.store = os.path.join(loop.mountpoint, "store")
    with rig.discarded(copy):
        copy.mount()
        on_nvme = prefix_of(copy.mnt, turns.last(turns.on_nvme, at), most)
        assert in_remote <= on_nvme, f"the remote has {in_remote} contents, and NVMe {on_nvme}"
        for number in (most + 1, most + 2):
            write_over(copy.mnt, number)
            copy.wait_remote()
        there = judges.snapshot(copy.mnt)
        copy.umount_whole()
    assert look(node.fresh(remote), judges.snapshot) == there, "another node sees something else than this one"
    return in_remote, on_nvme


def test_cuts_while_names_are_written_over(new_disk, on_remote, rng, full):
    """120 cuts (4 by default) of a store and its dir: remote, which lose power together: both show a prefix of what was written."""
    disk = new_disk(kind=rng.choice(sorted(recorded_disk.FORMATS)))
    node = on_remote(remotes.DirRemote(os.path.join(disk.inner.mountpoint, "remotes")), **OPTIONS, reduce_after="0s")
    node.disk, turns = disk, Turns(node)
    disk.hold(node).mount()
    for number in range(1, 25):
        turns.take(number)
        if number == 4:
            first = disk.count()
    sent = {row["encoding"]: row["raw_bytes"] for row in node.remote_status()["reduction"]["encodings"]}
    assert sent["dx"] > 24 * 1500 * rig.KIB, "few contents rest on others"
    last = disk.count()
    node.lose_power()
    left = []
    for at in disk.moments(rng, first, last, 30 if full else 2):
        for how in recorded_disk.HOWS if full else rng.sample(recorded_disk.HOWS, 2):
            path, what = disk.image(at, how, random.Random(rng.getrandbits(32)))
            print(f"{how}: {what}", flush=True)
            with disk.cut_mounted(path) as loop:
                left.append(judge_both(turns, loop, at))
    print(f"{len(left)} cuts; contents in the remote and on NVMe {left}")
