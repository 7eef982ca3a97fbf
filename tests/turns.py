#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which tests a run takes that is to end soon.

A test that takes long has its turn in one of some commits: in one of so many as it takes half seconds, at most MOST. The seed says
which. So each test costs a run about half a second, and one that is not in durations.txt yet always has its turn. Cases that first build
something which all of them need (the marker `together`) have it together. Of the cases on S3 one in so many has a turn, too, or one in
S3_SHARE where that is more; the marker `always_s3` takes one out.

    tests/turns.py REPORT...    brings the durations that pytest measured (build/pytest.xml) into durations.txt
"""
import collections
import os
import statistics
import sys
import xml.etree.ElementTree
import zlib

MOST = 20  # commits until a test that takes 10 s and more has its turn
S3_SHARE = 10
PLACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "durations.txt")


def name_of(test):
    """Of the function: its cases share one line."""
    return test.partition("[")[0]


def read_durations():
    """Of each test that takes longer than a second: how many."""
    with open(PLACE, encoding="utf-8") as lines:
        return {name: int(seconds) for seconds, name in map(str.split, lines)}


def is_on_s3(item):
    return getattr(item, "callspec", None) is not None and item.callspec.params.get("remote") == "s3"


def has_turn(item, seed, durations):
    name = name_of(item.nodeid)
    every = min(2 * durations[name], MOST) if name in durations else 1
    if is_on_s3(item):
        every = 1 if item.get_closest_marker("always_s3") else max(every, S3_SHARE)
    which = name if item.get_closest_marker("together") else item.nodeid
    return zlib.crc32(f"turn {seed} {which}".encode()) % every == 0


def choose(items, seed):
    """Two lists: those whose turn it is, and the others."""
    durations = read_durations()
    chosen, others = [], []
    for item in items:
        (chosen if has_turn(item, seed, durations) else others).append(item)
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
