# SPDX-License-Identifier: Apache-2.0
"""P10: every script (cases_*.py) does on the mount what it does on ext4, but for what differences.py states."""
import random

import pytest

import cases_allocated  # noqa: F401
import cases_content  # noqa: F401
import cases_directories  # noqa: F401
import cases_locks  # noqa: F401
import cases_maps  # noqa: F401
import cases_names  # noqa: F401
import cases_open  # noqa: F401
import cases_owners  # noqa: F401
import cases_times  # noqa: F401
import cases_xattrs  # noqa: F401
from differences import DIFFERENCES
from script import SCRIPTS, Script

pytestmark = pytest.mark.needs_mount


def unequal(name, ext4, mount, full=True):
    """Lines that tell where two runs of a script are apart."""
    stated = DIFFERENCES.get(name, {})
    lines = [f"{label}: only on one side" for label in ext4.keys() ^ mount.keys()]
    for label in ext4.keys() & mount.keys():
        got = (ext4[label], mount[label])
        if label in stated and got != stated[label]:
            lines.append(f"{label}: {got[0]} on ext4, {got[1]} here; stated are {stated[label]}")
        elif label not in stated and got[0] != got[1]:
            lines.append(f"{label}: {describe(*got)}")
    if full:
        lines += [f"{label}: stated, but not noted" for label in stated.keys() - ext4.keys()]
    return sorted(lines)


def describe(ext4, mount):
    if not (isinstance(ext4, dict) and isinstance(mount, dict)):
        return f"{ext4!r} on ext4, {mount!r} here"
    keys = [key for key in {**ext4, **mount} if ext4.get(key) != mount.get(key)]
    return "; ".join(f"{key}: {describe(ext4.get(key), mount.get(key))}" for key in keys)


def compare(sides, name, apart=()):
    ext4, mount = sides.run(name)
    assert ext4, "a script notes something"
    assert [label for label in apart if ext4.pop(label) == mount.pop(label)] == []
    lines = unequal(name, ext4, mount, sides.full)
    assert not lines, f"{len(lines)} of {len(ext4)} differ:\n" + "\n".join(lines[:40])


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_same_as_ext4(sides, name):
    """P10."""
    compare(sides, name)


# Bytes that a program stores through a map behind the end of a file come back there when the file grows (docs/posix.md).
APART_ON_LINUX_6_1 = {"map_and_size": ("behind the end, written after", "tree")}
OF_CONTENT = sorted(name for name, function in SCRIPTS.items() if function.__module__ in ("cases_content", "cases_maps", "cases_open"))


@pytest.mark.parametrize("name", OF_CONTENT)
def test_same_as_ext4_on_linux_6_1(sides_of_linux_6_1, name):
    """P10, where a file that is open for reading and writing uses the page cache."""
    compare(sides_of_linux_6_1, name, APART_ON_LINUX_6_1.get(name, ()))


def test_differences_are_found():
    """The comparison can fail."""
    assert unequal("none", {"a": 1, "b": {"x": 1}}, {"a": 1, "b": {"x": 1}}) == []
    assert unequal("none", {"a": "ENOENT"}, {"a": "EPERM"}) == ["a: 'ENOENT' on ext4, 'EPERM' here"]
    assert unequal("none", {"b": {"x": {"y": 1}}}, {"b": {"x": {"y": 2}}}) == ["b: x: y: 1 on ext4, 2 here"]
    assert len(unequal("none", {"a": 1}, {})) == 1


def test_some_rows_are_never_none():
    """A table of few rows has one at least, whatever the seed says."""
    for seed in range(100):
        rows = Script(random.Random(seed), full=False).some("ab", "cd")
        assert rows and set(rows) <= {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")}
    assert len(Script(random.Random(0), full=True).some("ab", "cd")) == 4


def test_stated_differences_are_of_scripts():
    assert DIFFERENCES.keys() <= SCRIPTS.keys()
