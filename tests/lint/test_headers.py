# SPDX-License-Identifier: Apache-2.0
"""A header is one subject: what grows over LINES_MAX lines is split."""
import os

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LINES_MAX = 250


def long_headers(*directories):
    for top in directories:
        for directory, _, names in sorted(os.walk(top)):
            for name in sorted(names):
                path = os.path.join(directory, name)
                if name.endswith(".h") and (count := sum(1 for _ in open(path))) > LINES_MAX:
                    yield f"{os.path.relpath(path, top)}: {count} lines"


def test_no_header_is_long():
    assert list(long_headers(os.path.join(ROOT, "src"), os.path.join(ROOT, "include"))) == []


def test_a_long_header_is_found(tmp_path):
    (tmp_path / "fits.h").write_text("\n" * LINES_MAX)
    (tmp_path / "long.h").write_text("\n" * (LINES_MAX + 1))
    assert list(long_headers(str(tmp_path))) == [f"long.h: {LINES_MAX + 1} lines"]
