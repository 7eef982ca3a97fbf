# SPDX-License-Identifier: Apache-2.0
"""Earlier states of a writer whose wall clock is set, also back: each has a name of its own and is what was there. And policies by the
hour."""
import contextlib
import datetime
import os
import struct
import time

import pytest

import rig
from remote import runs_of
from test_keep import SMALL, Kept, cut_of, top, tree
from wall_clock import WallClock

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]

HOUR = 3600


@pytest.fixture
def kept(on_remote, directory, clock_library):
    made = Kept(on_remote(**SMALL), directory)
    made.clock = WallClock(made.node, clock_library, os.path.join(directory, "offset"))
    return made


def state(kept, offset, seed):
    """One that is published while the clock is so far off; its cut."""
    kept.clock.set(offset)
    kept.put("model.pt", seed, 20_000)
    return kept.publish()


def published(kept):
    """{number: (when, in ns, the tree)} of the heads that are there."""
    heads = {number: head for number, head in kept.look().items() if runs_of(head) and cut_of(head) in kept.states}
    return {number: (struct.unpack_from("<q", head, 96)[0], kept.states[cut_of(head)]) for number, head in heads.items()}


def text_of(ns):
    return datetime.datetime.fromtimestamp(ns / 1e9, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second_of(ns):
    return text_of(ns // 10**9 * 10**9)[:19] + "Z"


def test_each_state_has_a_name_of_its_own(kept):
    """Also where two that do not follow each other are of one second. `--at TIME` shows the newest that is not later."""
    kept.node.mount(keep="last:100", gc_grace="1h")
    second, seed = int(time.time()), 0

    def seconds():
        return [when // 10**9 for when, _ in published(kept).values()]

    while seconds().count(second) < 2:
        state(kept, second - int(time.time()), seed)
        state(kept, -3 * HOUR, seed + 1)
        seed += 2
        assert seed < 60
    state(kept, 0, seed)
    found, names = published(kept), os.listdir(top(kept.node))
    assert len(names) == len(set(names)), sorted(names)
    for number, (when, expected) in found.items():
        later = [other for other, (time_of, _) in found.items() if other > number and second_of(time_of) == second_of(when)]
        name = f"{second_of(when)}.{number}" if later else second_of(when)
        assert name in names and tree(top(kept.node, name)) == tree(top(kept.node, str(number))) == expected, (number, name)
    asked = max(when for when, _ in found.values() if when // 10**9 == second)
    for at in (asked + 10**6, asked - 10**9, time.time_ns() - HOUR * 10**9, time.time_ns()):
        newest = max(number for number, (when, _) in found.items() if when <= at)
        assert kept.shown("--at", text_of(at)) == found[newest][1], (at, newest)


def test_the_newest_of_each_hour_stays(kept):
    """The hours are those of the writer's clock. When that goes back no state is lost that the policy chooses."""
    kept.node.mount(keep="hourly:3")
    middle = HOUR / 2 - time.time() % HOUR
    trees = []

    def write(hour):
        state(kept, middle + hour * HOUR, len(trees))
        trees.append(dict(kept.tree))

    def stay(*expected):
        """They stay, and no others do. A head may go to a later one of the same state meanwhile."""
        kept.gc()
        with contextlib.suppress(AssertionError):
            return [kept.shown("--at", str(number)) for number in sorted(kept.look())] == list(expected)

    for step in range(10):
        write(step // 2)
    rig.poll(lambda: stay(trees[5], trees[7], trees[9]), 30, "the newest of three hours", 0.5)
    write(1)
    rig.poll(lambda: stay(trees[7], trees[9], trees[10]), 30, "two hours that are later by then, and the newest", 0.5)
