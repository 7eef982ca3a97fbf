# SPDX-License-Identifier: Apache-2.0
"""Requests for what nodes have in a bucket: answers that are lost, requests that the server gets twice or long after their sender gave
up, and the death of the node that merges meanwhile. What is created exclusively is there once, and what is written over decides nothing."""
import contextlib
import itertools
import re
import time

import pytest

import rig
from test_held_back import plays

pytestmark = pytest.mark.timeout(300)
PUTS = ["lost_answer", "late", "duplicate", "reset_answer"]
DELETES = {"lost_answer": 0.1, "late_delete": 0.3, "no_delete": 0.1, "late": 0.1, "duplicate": 0.1}
LATE_S = 3


@pytest.fixture
def play(request, on_remote, s3, directory, rng):
    def make(**options):
        made = plays(request, on_remote, s3, directory, rng)(**options)
        set_all(made, faults={}, late_s=LATE_S)
        return made

    return make


def set_all(play, **what):
    for node in play.nodes:
        node.way.proxy.set(**what)


def path_of(play, kind):
    """In the common prefix, and not in that of one node."""
    return rf"/{re.escape(play.union.shared.prefix)}/{kind}"


def faults(play, fault):
    return sum(node.way.proxy.stats()["faults"].get(fault, 0) for node in play.nodes)


def kill_merger(play):
    """It comes back at once; another one may have taken over."""
    for node in play.nodes:
        if node.merges():
            node.mount.kill9()
            node.mount.mount()
            return True
    return False


def check(play):
    """One union, whole, in which nothing was given up."""
    assert play.union.generation() == 0
    play.judge()


@pytest.mark.pieces(4)
def test_puts(play, rng, full, piece):
    """Each kind of object of all nodes. Before the next trouble comes, a step shows."""
    play = play(lease=60)  # no node is lost, however slow the machine is
    kinds = ["feeds/", "heads/", "runs/", "lease/holder", "writers/"]
    troubles = list(itertools.product(kinds, PUTS)) if full else [(kind, rng.choice(PUTS)) for kind in kinds]
    attempt, kills, given = play.attempt(play.nodes), 0, 0
    attempt.tries_after_eio = 20  # its daemon may be away
    play.await_shown(play.step(attempt))
    for number, (kind, fault) in enumerate(piece.part(troubles)):
        before = faults(play, fault)
        set_all(play, script=[{"method": "PUT", "path": path_of(play, kind), "fault": fault, "times": 2}])
        step = play.step(attempt)
        with contextlib.suppress(TimeoutError):  # the merger alone puts some, and not at each step
            rig.poll(lambda before=before, fault=fault: faults(play, fault) > before, 5)
        given += faults(play, fault) > before
        kills += number % 2 == 0 and kill_merger(play)
        play.await_shown(step)
    print(f"{len(troubles)} troubles, {given} faults given, {kills} kills of the merger")
    assert given >= len(piece.part(troubles)) // 2 and kills
    set_all(play, script=[])
    check(play)


def test_deletions(play):
    """Names are never used again: what a deletion that comes late would delete is gone for good."""
    play = play(lease=60, gc_grace="1s")
    attempt = play.attempt(play.nodes)
    attempt.tries_after_eio = 20
    play.await_shown(play.step(attempt))
    set_all(play, faults=DELETES)
    end, kills = time.monotonic() + 20, 0
    while time.monotonic() < end or not any(faults(play, fault) for fault in ("late_delete", "late", "no_delete")):
        play.await_shown(play.step(attempt))
        kills += kills < 2 and kill_merger(play)
        assert time.monotonic() < end + 100, "nothing is deleted"
    set_all(play, faults={})
    play.await_shown(play.step(attempt))
    assert play.union.generation() == 0
    play.job.last = attempt
    for node in play.nodes:
        node.mount.umount()
    play.union.mount.verb("fsck", *play.union.shared.flags(), play.union.shared.url)
    play.judge_heads()


@pytest.mark.pieces(4)
def test_a_verdict_whose_merger_dies(play, rng, full, piece):
    """A generation ends once, whoever carries the verdict out."""
    fault = piece.part(PUTS)[0] if full else rng.choice(PUTS)
    play = play(lease=15)
    first, second, third = play.nodes
    play.await_shown(play.step(play.attempt(play.nodes)))
    epoch = third.epoch()
    third.cut()
    third.mount.kill9()
    script = [{"method": "PUT", "path": path_of(play, kind), "fault": fault, "times": 2} for kind in ("ended/", "heads/")]
    set_all(play, script=script)
    with contextlib.suppress(AssertionError):  # the answer may be lost
        play.end(first, epoch)
    rig.poll(lambda: play.union.shared.names("ended/"), 60, "the verdict")
    kill_merger(play)
    play.await_end()
    for node in (first, second):
        play.await_back(node)
    third.way.join()
    third.mount.mount()
    set_all(play, script=[])
    play.judge()
    assert play.union.generation() == 1


def test_feeds_that_land_after_the_end(play):
    """They are of a generation that is over: what they tell stays given up, also what a node told that goes on with its stay."""
    play = play(lease=6)
    first, second, third = play.nodes
    attempt = play.attempt(play.nodes)
    play.await_shown(play.step(attempt))
    epoch = third.epoch()
    late_s = 45
    for node in (second, third):
        node.way.proxy.set(late_s=late_s, script=[{"method": "PUT", "path": path_of(play, "feeds/"), "fault": "late", "times": 1000}])
    step = play.step(attempt)
    play.gives_up(step)
    for node in (second, third):
        rig.poll(lambda node=node: node.way.proxy.stats()["faults"].get("late", 0) > 2, 30, "feeds that are late")
    began = time.monotonic()
    play.await_told(1)
    third.mount.kill9()
    play.end(first, epoch)
    for node in (first, second):
        play.await_back(node)
    set_all(play, script=[])
    third.mount.mount()
    play.settle()
    again = play.attempt(play.nodes)
    play.await_shown(play.step(again))
    time.sleep(max(0, began + late_s + 2 - time.monotonic()))  # until the proxy has sent them
    assert any(int(name.split("-")[1], 16) == epoch for name in play.union.shared.names("feeds/"))
    play.await_shown(play.step(again))
    play.judge()
