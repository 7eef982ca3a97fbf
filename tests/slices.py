# SPDX-License-Identifier: Apache-2.0
"""The order of tests in a run that several processes share."""
import itertools

DEFAULT_TIMEOUT = 120.0  # seconds; more by the marker


def long_ones_first(items, count):
    """Processes that share a run (pytest-xdist, worksteal) begin with a slice of the list each. A test that takes long and begins last
    would keep one of them busy alone: so those with long limits are the heads of the slices."""
    heads = [[] for _ in range(count)]
    for tests in sorted(long_ones_by_file(items).values(), key=len, reverse=True):
        min(heads, key=len).extend(tests)
    others = iter([item for item in items if limit_of(item) <= DEFAULT_TIMEOUT])
    slices = [[*head, *itertools.islice(others, max(len(items) // count - len(head), 0))] for head in heads]
    return [*itertools.chain(*slices), *others]


def long_ones_by_file(items):
    """Those of a file stay together: they share fixtures."""
    found = {}
    for item in items:
        if limit_of(item) > DEFAULT_TIMEOUT:
            found.setdefault(item.path, []).append(item)
    return found


def limit_of(item):
    marker = item.get_closest_marker("timeout")
    return marker.args[0] if marker else DEFAULT_TIMEOUT
