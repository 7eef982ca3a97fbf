# SPDX-License-Identifier: Apache-2.0
"""The union that the merger makes of random operations of two to four nodes is that of the rules, written a second time over dicts
(rules.py). A difference is shrunk to the fewest operations that show it. In which order feeds arrive, and how many heads they take, is for
tests/unit/nodes/test_merger.c: there each head is compared with one merge in order of time."""
import os
import shutil
import subprocess

import pytest

import rules

CASES, OPERATIONS = 25, 150


@pytest.fixture
def merged(request, directory):
    """merged(ops) -> (names, files) as the product merges them."""
    program = os.path.join(request.config.getoption("--build"), "tests", "nodes", "nodes-rules")
    if not os.access(program, os.X_OK):
        pytest.skip("skipped: the tests were not built (-Dtests=enabled)")
    view = os.path.join(directory, "view")

    def run(ops):
        shutil.rmtree(view, ignore_errors=True)
        done = subprocess.run([program, view], input="".join(op.line() for op in ops), capture_output=True, text=True)
        assert done.returncode == 0, done
        names, files = set(), {}
        for line in done.stdout.splitlines():
            words = line.split()
            if words[0] == "file":
                files[int(words[1])] = int(words[2])
            elif words[0] == "counts":
                run.counts = [a + int(b) for a, b in zip(run.counts, words[1:])]
            else:
                names.add((int(words[0]), words[1], int(words[2])))
        return names, files

    run.counts = [0] * 4
    return run


def check(merged, ops, kind=rules.Union):
    def differ(some):
        return merged(some) != rules.union_of(some, kind)

    if differ(ops):
        fewest = rules.shrink(ops, differ)
        product, model = merged(fewest), rules.union_of(fewest, kind)
        pytest.fail("".join(op.line() for op in fewest) + f"product: {product}\nrules:   {model}")


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_the_union_is_that_of_the_rules(merged, rng, full, nodes):
    for _ in range(CASES * 20 if full else CASES):
        check(merged, rules.random_ops(rng, OPERATIONS, nodes))
    print("joined, revived, renamed, impossible:", merged.counts)
    assert min(merged.counts[:3]) > 0


class Forgetful(rules.Union):
    """Planted: a name is removed, whatever stands there now."""

    def unlink(self, op):
        parent = self.living(op.parent)
        there = parent is not None and self.look_up((parent, op.name))
        super().unlink(rules.Op("unlink", op.epoch, there, op.parent, op.name, op.flags) if there in self.files else op)


class Unrevived(rules.Union):
    """Planted: what is made in a directory that is gone has no name."""

    def revive(self, ino):
        return self.living(ino)


@pytest.mark.parametrize("kind", [Forgetful, Unrevived])
def test_other_rules_are_told_apart(merged, rng, kind):
    """By a few operations, of many."""
    for _ in range(CASES):
        ops = rules.random_ops(rng, OPERATIONS, 3)
        if merged(ops) != rules.union_of(ops, kind):
            fewest = rules.shrink(ops, lambda some: merged(some) != rules.union_of(some, kind))
            assert len(fewest) <= 8, fewest
            return
    pytest.fail("no difference was found")
