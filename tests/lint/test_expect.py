# SPDX-License-Identifier: Apache-2.0
"""Comparisons in the criterion tests print what was there: by tests/unit/expect.h, not by criterion's own."""
import os
import re

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SILENT = re.compile(r"\bcr_(assert|expect)_(str_)?eq\b")


def silent(tests):
    for directory, _, names in sorted(os.walk(tests)):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                with open(os.path.join(directory, name)) as file:
                    for number, line in enumerate(file, 1):
                        if SILENT.search(line):
                            yield f"{os.path.relpath(os.path.join(directory, name), tests)}:{number}: {line.strip()}"


def test_comparisons_print_both_values():
    assert list(silent(TESTS)) == [], "use expect_u64(actual, wanted), or _i64, _ptr, _str; assert_ where the test must end"


def test_a_silent_one_is_found(tmp_path):
    (tmp_path / "a.c").write_text("    expect_u64(a, 1);\n    cr_assert_eq(a, 1);\n    cr_expect_str_eq(b, c);\n    cr_assert_arr_eq(d, e, 2);\n")
    assert list(silent(str(tmp_path))) == ["a.c:2: cr_assert_eq(a, 1);", "a.c:3: cr_expect_str_eq(b, c);"]
