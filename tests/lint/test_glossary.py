# SPDX-License-Identifier: Apache-2.0
"""Names keep to the glossary (docs/architecture.md): a word that it puts another in place of stands in no identifier of C or
Python. A directory is called nothing else in any text."""
import io
import os
import re
import tokenize

import pytest
from test_layers import PUBLIC, ROOT, SRC, sources

TESTS = os.path.join(ROOT, "tests")
INSTEAD = {
    "far": "remote", "near": "local", "doomed": "unreferenced",
    "shop": "fixture", "box": "fixture", "ground": "fixture", "world": "fixture", "unwant": "remove from the pending uploads",
    "tell": "notify or report", "tells": "notifies or reports", "teller": "notifier", "telling": "notification", "let": "release",
}
IN_SOURCES = {**INSTEAD, "told": "notified or reported"}
DATA = {"corpus", "golden", "kept", "__pycache__"}
MAY_SAY_FOLDER = {"test_glossary.py", "CHANGELOG.md"}
FOREIGN = {"tell", "LANE_TELLS", "get_world_size", "world_size", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}  # of files, libcairn and torch
MAY = {"CAIRN_LANE_TELLS"}  # of the public interface
IGNORED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\bTest\([^)]*\)', re.DOTALL)  # comments, texts, the sentences that name tests
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def problems(path, instead=INSTEAD):
    with open(path, encoding="utf-8") as file:
        text = IGNORED.sub(lambda match: "\n" * match[0].count("\n"), file.read())
    for number, line in enumerate(text.split("\n"), 1):
        for name in IDENTIFIER.findall(line):
            for word in set(name.lower().split("_")) & set(instead) if name not in MAY else ():
                yield f"{path}:{number}: {name}: {instead[word]} instead of {word}"


def python_problems(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = token.string
        if token.type == tokenize.NAME and name not in FOREIGN and not name.startswith("test_"):  # those are sentences
            for word in set(name.lower().split("_")) & set(INSTEAD):
                yield f"{path}:{token.start[0]}: {name}: {INSTEAD[word]} instead of {word}"


def glossary():
    """The rows of the table in docs/architecture.md: the words of each."""
    with open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8") as file:
        table = file.read().split("\n## Glossary\n", 1)[1]
    return [row.split(", ") for row in re.findall(r"^\| ([^|]+) \|", table, re.M)[1:]]


def test_the_glossary_has_the_words_with_one_meaning():
    """Those that test_meanings.py is about; a page that is in order is found through."""
    rows = glossary()
    words = [word for row in rows for word in row]
    assert {"cut", "run", "room", "follow", "turn", "keep", "generation", "pending upload", "unreferenced"} <= set(words)
    assert len(words) == len(set(words)) > 50
    assert rows == sorted(rows)


def test_names_of_python_keep_to_the_glossary():
    paths = [path for top in ("python", "tests") for path in texts(ROOT, top) if path.endswith(".py")]
    assert len(paths) > 150
    assert [problem for path in paths for problem in python_problems(path)] == []


def texts(root, *tops):
    for top in tops or ("src", "include", "python", "tests", "docs", "contrib", "completion", "mount-scripts", "."):
        for directory, below, names in os.walk(os.path.join(root, top)):
            below[:] = [] if top == "." else sorted(set(below) - DATA)
            yield from (os.path.join(directory, name) for name in sorted(names))


def folders(path):
    """Each line that has another word for a directory."""
    with open(path, "rb") as file:
        for number, line in enumerate(file.read().split(b"\n"), 1):
            if b"folder" in line.lower():
                yield f"{path}:{number}: directory instead of folder"


def test_a_directory_is_no_folder():
    paths = [path for path in texts(ROOT) if os.path.basename(path) not in MAY_SAY_FOLDER]
    assert len(paths) > 800
    assert [problem for path in paths for problem in folders(path)] == []


def test_names_keep_to_the_glossary():
    paths = [path for top in (SRC, PUBLIC, TESTS) for path in sources(top)]
    assert len(paths) > 400
    assert [problem for path in paths for problem in problems(path, INSTEAD if path.startswith(TESTS) else IN_SOURCES)] == []


@pytest.mark.parametrize("line, found",
                         [("int is_far;", 1), ("#define NEAR_MAX 2", 1), ("int remote; /* so far */", 0), ('say("as far");', 0),
                          ("int farm;", 0)])
def test_a_word_is_found(tmp_path, line, found):
    path = tmp_path / "a.c"
    path.write_text(line + "\n")
    assert len(list(problems(str(path)))) == found


@pytest.mark.parametrize("line, found",
                         [("far = 1", 1), ("is_near()", 1), ('say("far")  # far', 0), ("file.tell()", 0), ("def test_far(): pass", 0)])
def test_a_word_of_python_is_found(tmp_path, line, found):
    path = tmp_path / "a.py"
    path.write_text(line + "\n")
    assert len(list(python_problems(str(path)))) == found


@pytest.mark.parametrize("line, found", [("own_folder = 1", 1), ("# Folders of it", 1), ("a directory", 0)])
def test_a_folder_is_found(tmp_path, line, found):
    path = tmp_path / "a.py"
    path.write_text(line + "\n")
    assert len(list(folders(str(path)))) == found
