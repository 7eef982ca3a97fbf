# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a store whose wall clock is set, also back; and a policy by the hour."""
import os
import time

import pytest

import rig
from test_local_history import QUICK, create, history, newest_has, numbers, put, top, tree
from wall_clock import WallClock

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]

HOUR = 3600


def test_a_clock_that_goes_back(cairn, clock_library, directory):
    """Numbers ascend all the same, and each snapshot has a name of its own, also where two are of one second."""
    clock = WallClock(cairn, clock_library, os.path.join(directory, "offset"))
    cairn.mount(**QUICK)
    second, expected = int(time.time()), []

    def take(offset):
        clock.set(offset)
        put(cairn, "file", len(expected), 1000)
        create(cairn, f"s{len(expected)}")
        expected.append(tree(cairn.mnt))

    while sum(int(state["published_s"]) == second for state in history(cairn)) < 2:
        take(second - int(time.time()))
        take(-3 * HOUR)
        assert len(expected) < 60
    clock.set(0)
    states = {state["names"][0]: state for state in history(cairn)}
    assert [states[f"s{i}"]["head"] for i in range(len(expected))] == numbers(cairn)
    names = os.listdir(top(cairn))
    assert len(names) == len(set(names)) == 2 * len(expected), sorted(names)
    for i, known in enumerate(expected):
        assert tree(top(cairn, f"s{i}")) == tree(top(cairn, str(states[f"s{i}"]["head"]))) == known
    for name in names:
        assert tree(top(cairn, name)) in expected, name


def test_the_newest_of_each_hour_stays(cairn, clock_library, directory):
    clock = WallClock(cairn, clock_library, os.path.join(directory, "offset"))
    middle = HOUR / 2 - time.time() % HOUR
    clock.set(middle)
    cairn.mount(keep="hourly:3", **QUICK)
    for step in range(10):
        clock.set(middle + step // 2 * HOUR)
        put(cairn, "file", step, 1000)
        rig.poll(lambda step=step: newest_has(cairn, "file", step, 1000), 60, f"a snapshot of step {step}", 0.1)
    rig.poll(lambda: len(numbers(cairn)) == 3, 60, "the others to go")
    assert [tree(top(cairn, str(number)))["file"] for number in numbers(cairn)] == [rig.seeded_bytes(step, 1000) for step in (5, 7, 9)]
