# SPDX-License-Identifier: Apache-2.0
"""C is formatted by .clang-format, and no line of it is longer than 100 columns."""
import os
import shutil
import subprocess
import sys

import pytest
from test_layers import SRC

TOP = os.path.dirname(SRC)
COLUMNS = 100
VERSION = "14.0.6"  # others break lines elsewhere; tests/run installs this one


def c_files():
    names = [os.path.join(directory, name) for top in ("src", "include", "tests", "docs") for directory, _, names in os.walk(os.path.join(TOP, top))
             for name in names if name.endswith((".c", ".h"))]
    assert len(names) > 400
    return names


def too_long(path):
    with open(path, encoding="utf-8") as file:
        return [f"{path}:{number}" for number, line in enumerate(file, 1) if len(line.rstrip("\n")) > COLUMNS]


def formatter():
    for path in (os.path.join(os.path.dirname(sys.executable), "clang-format"), shutil.which("clang-format")):
        if path and os.path.exists(path) and f"version {VERSION}" in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    pytest.skip(f"skipped: there is no clang-format {VERSION}")


def unformatted(paths):
    run = subprocess.run([formatter(), "--dry-run", "--Werror", "--style=file", *paths], cwd=TOP, capture_output=True, text=True)
    return [line for line in run.stderr.splitlines() if "error:" in line]


def test_lines_are_short():
    assert [place for path in c_files() for place in too_long(path)] == []


def test_a_long_line_is_found(tmp_path):
    path = tmp_path / "a.c"
    path.write_text("int a;\n// " + "x" * 98 + "\n// " + "x" * 97 + "\n")
    assert too_long(str(path)) == [f"{path}:2"]


def test_everything_is_formatted():
    assert unformatted(c_files()) == []


def test_another_format_is_found(tmp_path):
    shutil.copy(os.path.join(TOP, ".clang-format"), tmp_path)
    path = tmp_path / "a.c"
    path.write_text("int main(void) { return 0 ; }\n")
    assert unformatted([str(path)])
