# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence, in its first lines."""
import os
import re

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DIRECTORIES = ["src", "include", "python", "tests", "bench", "docs/examples", "docs/man", "completion", "mount-scripts", "contrib", ".ci",
               ".github", "debian"]
LINE = re.compile(r"^(//|#|/\*) SPDX-License-Identifier: Apache-2\.0( \*/)?$", re.MULTILINE)
SOURCE = re.compile(r"\.(c|h|cu|py|sh|py\.in)$")
DATA = {"corpus", "golden", "kept", "__pycache__"}


def sources(root):
    for directory in DIRECTORIES:
        for top, directories, names in os.walk(os.path.join(root, directory)):
            directories[:] = sorted(set(directories) - DATA)
            for name in sorted(names):
                path = os.path.join(top, name)
                with open(path, errors="replace") as file:
                    begin = file.read(200)
                if begin and (SOURCE.search(name) or begin.startswith("#!")):
                    yield os.path.relpath(path, root), begin


def unlicensed(root):
    return [path for path, begin in sources(root) if not LINE.search(begin)]


def test_every_source_has_its_line():
    assert len(list(sources(ROOT))) > 400
    assert unlicensed(ROOT) == [], "the first line has to be: // SPDX-License-Identifier: Apache-2.0 (# in Python and sh)"


def test_a_missing_line_is_found(tmp_path):
    for name, text in {"src/a.c": "int a;\n", "src/b.c": "// SPDX-License-Identifier: Apache-2.0\nint b;\n", "tests/run": "#!/bin/sh\n",
                       "tests/note": "text\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert unlicensed(str(tmp_path)) == ["src/a.c", "tests/run"]
