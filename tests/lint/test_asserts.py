# SPDX-License-Identifier: Apache-2.0
"""A function that needs a lock says so first."""
import os
import re

from test_layers import SRC, sources

LOCKED = re.compile(r"^(?![#/ \t*])[^;{}()\n]*?\b(\w+_locked)\([^;{}]*?\)\n\{\n\s*(\w+)", re.MULTILINE)
NO_MUTEX_OF_OURS = {"base/log_limit.c"}  # its lock is inside those of all ranks


def unasserted(src):
    for path in sources(src):
        name = os.path.relpath(path, src)
        with open(path) as file:
            found = LOCKED.findall(file.read()) if name not in NO_MUTEX_OF_OURS else []
        yield from (f"{name}: {function}" for function, first in found if first not in ("check_held", "check_rank_held"))


def test_locked_functions_begin_with_an_assert():
    assert list(unasserted(SRC)) == [], "begins with check_held(&the_lock), or check_rank_held() where the lock is out of reach"


def test_a_missing_assert_is_found(tmp_path):
    (tmp_path / "a.c").write_text("static int a_locked(struct a *a)\n{\n    check_held(&a->lock);\n    return 0;\n}\n\n"
                                  "static int b_locked(struct a *a,\n                    int b)\n{\n    return b; /* check(b) */\n}\n")
    assert list(unasserted(str(tmp_path))) == ["a.c: b_locked"]
