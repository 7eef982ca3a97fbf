# SPDX-License-Identifier: Apache-2.0
"""C is formatted by .clang-format, and no line of it is longer than 100 columns. No line of Python is longer than 140, but for texts."""
import os
import re
import shutil
import subprocess
import sys

import pytest
from test_layers import SRC

TOP = os.path.dirname(SRC)
COLUMNS, PYTHON_COLUMNS = 100, 140
TEXT = re.compile(r"""r?b?f?("(\\.|[^"\\])*"|'(\\.|[^'\\])*')""")
LONG = {  # files with so many longer lines, as they are: they may become fewer
    "python/cairnfs/_save.py": 1, "bench/bench_reduce.py": 14, "tests/cross/test_aarch64.py": 6,
    "tests/fuzz/seeds.py": 10, "tests/lane/test_lazy.py": 4,
}
TEXT_MAX = 60  # a line with a longer text may be as long as that makes it: texts are not broken
VERSION = "14.0.6"  # others break lines elsewhere; tests/run installs this one


def c_files():
    names = [os.path.join(directory, name) for top in ("src", "include", "tests", "bench", "docs")
             for directory, _, names in os.walk(os.path.join(TOP, top))
             for name in names if name.endswith((".c", ".h"))]
    assert len(names) > 400
    return names


def too_long(path):
    with open(path, encoding="utf-8") as file:
        return [f"{path}:{number}" for number, line in enumerate(file, 1) if len(line.rstrip("\n")) > COLUMNS]


def python_files():
    names = [os.path.join(directory, name) for top in ("src", "python", "tests", "bench", "docs")
             for directory, _, names in os.walk(os.path.join(TOP, top)) for name in names if name.endswith(".py")]
    assert len(names) > 200
    return names


def too_long_python(path):
    with open(path, encoding="utf-8") as file:
        return [f"{os.path.relpath(path, TOP)}:{number}" for number, line in enumerate(file, 1)
                if len(line.rstrip("\n")) > PYTHON_COLUMNS and not any(len(text[0]) > TEXT_MAX for text in TEXT.finditer(line))]


def formatter():
    for path in (os.path.join(os.path.dirname(sys.executable), "clang-format"), shutil.which("clang-format")):
        if path and os.path.exists(path) and f"version {VERSION}" in subprocess.run([path, "--version"], capture_output=True,
                                                                                    text=True).stdout:
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


def test_lines_of_python_are_short():
    found = [too_long_python(path) for path in python_files()]
    assert [places for places in found if len(places) > LONG.get(places[0].rpartition(":")[0] if places else "", 0)] == []


def test_a_long_line_of_python_is_found(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(f"{'a' * 136} = 1\n{'a' * 137} = 1\nf({'a' * 80}, '{'b' * 59}')\nf({'a' * 80}, '{'b' * 58}', 1)\n")
    assert [place.rpartition(":")[2] for place in too_long_python(str(path))] == ["2", "4"]


def test_everything_is_formatted():
    assert unformatted(c_files()) == []


def test_another_format_is_found(tmp_path):
    shutil.copy(os.path.join(TOP, ".clang-format"), tmp_path)
    path = tmp_path / "a.c"
    path.write_text("int main(void) { return 0 ; }\n")
    assert unformatted([str(path)])
