#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which tests a run takes that is to end soon.

A test that takes long has its turn in one of some commits: in one of so many as it takes half seconds, at most TENTH. The seed says
which. So each test costs a run about half a second, and one that is not in durations.txt yet always has its turn. Cases that first build
something which all of them need (the marker `together`) have it together.

    tests/turns.py REPORT...    brings the durations that pytest measured (build/pytest.xml) into durations.txt
"""
import collections
import os
import statistics
import sys
import xml.etree.ElementTree
import zlib

TENTH = 10
PLACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "durations.txt")


def name_of(test):
    """Of the function: its cases share one line."""
    return test.partition("[")[0]


def read_durations():
    """Of each test that takes longer than a second: how many."""
    with open(PLACE, encoding="utf-8") as lines:
        return {name: int(seconds) for seconds, name in map(str.split, lines)}


def has_turn(item, seed, durations):
    name = name_of(item.nodeid)
    every = min(2 * durations[name], TENTH) if name in durations else 1
    which = name if item.get_closest_marker("together") else item.nodeid
    return zlib.crc32(f"turn {seed} {which}".encode()) % every == 0


def choose(items, seed):
    """Two lists: those whose turn it is, and the others. S3's are chosen by the fixture `remote`."""
    durations = read_durations()
    chosen, others = [], []
    for item in items:
        is_chosen = "[s3" in item.nodeid or has_turn(item, seed, durations)
        (chosen if is_chosen else others).append(item)
    return chosen, others


def measured(reports):
    """Of each function: the mean of its cases that ran."""
    found = collections.defaultdict(list)
    for report in reports:
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            if case.find("skipped") is None:
                path = case.get("classname").replace(".", "/") + ".py"
                found[f"{path}::{name_of(case.get('name'))}"].append(float(case.get("time")))
    return {name: round(statistics.mean(times)) for name, times in found.items()}


def main(reports):
    durations = {**read_durations(), **measured(reports)}
    with open(PLACE, "w", encoding="utf-8") as out:
        out.writelines(f"{seconds} {name}\n" for name, seconds in sorted(durations.items()) if seconds > 1)


if __name__ == "__main__":
    main(sys.argv[1:])
