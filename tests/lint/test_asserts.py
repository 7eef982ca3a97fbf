# SPDX-License-Identifier: Apache-2.0
"""Asserts: a function that needs a lock says so first; and there are enough of them in src/."""
import os
import re

SRC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src")
LEAST = 8  # for 1,000 lines of code
ASSERT = re.compile(r"\b(check|check_held|check_rank_held|_Static_assert)\(")
LOCKED = re.compile(r"^(?![#/ \t*])[^;{}()\n]*?\b(\w+_locked)\([^;{}]*?\)\n\{\n\s*(\w+)", re.MULTILINE)
NO_MUTEX_OF_OURS = {"base/log_limit.c"}  # its lock is inside those of all ranks


def sources(src):
    for directory, _, names in sorted(os.walk(src)):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                with open(os.path.join(directory, name)) as file:
                    yield os.path.relpath(os.path.join(directory, name), src), file.read()


def unasserted(src):
    return [f"{path}: {match[1]}" for path, text in sources(src) if path not in NO_MUTEX_OF_OURS
            for match in LOCKED.finditer(text) if match[2] not in ("check_held", "check_rank_held")]


def density(src):
    lines = asserts = 0
    for _, text in sources(src):
        code = [line for line in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).split("\n") if line.strip()
                and not line.lstrip().startswith("//")]
        lines += len(code)
        asserts += sum(len(ASSERT.findall(line)) for line in code if not line.startswith("#define"))
    return 1000 * asserts / lines


def test_locked_functions_begin_with_an_assert():
    assert unasserted(SRC) == [], "begins with check_held(&the_lock), or check_rank_held() where the lock is out of reach"


def test_there_are_enough_asserts():
    assert density(SRC) >= LEAST


def test_a_missing_assert_is_found(tmp_path):
    (tmp_path / "a.c").write_text("static int a_locked(struct a *a)\n{\n    check_held(&a->lock);\n    return 0;\n}\n\n"
                                  "static int b_locked(struct a *a,\n                    int b)\n{\n    return b; /* check(b) */\n}\n")
    assert unasserted(str(tmp_path)) == ["a.c: b_locked"]
    assert density(str(tmp_path)) == 1000 / 10
