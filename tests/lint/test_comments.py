# SPDX-License-Identifier: Apache-2.0
"""Comments name their subject: none begins with a free relative ("What is kept", "How it goes") or with a word that points to something
before it ("It is there", "Of a directory") in the components named here.
Threads, files and programs are no persons. Lists and tables in comments keep their columns, which the formatter breaks where a line is too
long."""
import os
import re

from test_layers import PUBLIC, ROOT, SRC, component_of, sources

TESTS = os.path.join(ROOT, "tests")
COMPONENTS = {"base", "cli", "client", "codec", "commit", "daemon", "fetch", "format", "fs", "fuse", "overlay", "remote", "stage", "store",
              "tier", "view"}  # components that are done
WORDS = 4  # shorter ones stand behind a field
COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
FREE_RELATIVE = re.compile(r"(What|Who|Whoever|Whatever|Whether|How|Which|It|They|Those|That|Else|Of)\b")


def problems(path):
    with open(path) as file:
        text = file.read()
    for comment in COMMENT.finditer(text):
        words = re.sub(r"\n\s*\*?", " ", comment[1]).split()
        if len(words) >= WORDS and FREE_RELATIVE.match(words[0]):
            yield f"{os.path.relpath(path, SRC)}:{text.count(chr(10), 0, comment.start()) + 1}: {' '.join(words[:6])}"


def test_comments_name_their_subject():
    paths = [path for path in sources(SRC) if component_of(path, SRC) in COMPONENTS]
    assert len(paths) > 200
    assert [line for path in paths for line in problems(path)] == [], "begin with the subject, or with an imperative verb"


PERSON = re.compile(r"\b(nobody|somebody|someone|everybody|everyone|anybody|whoever|he|him|his|himself|she|her)\b", re.IGNORECASE)


def persons(path):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            for word in PERSON.findall(line):
                yield f"{os.path.relpath(path, ROOT)}:{number}: {word}"


def test_threads_are_no_persons():
    package = [os.path.join(ROOT, "python", "cairnfs", name)
               for name in os.listdir(os.path.join(ROOT, "python", "cairnfs")) if name.endswith(".py")]
    paths = [*sources(SRC), *sources(PUBLIC), *package]
    assert len(paths) > 300
    assert [line for path in paths for line in persons(path)] == [], "name the thread, the caller, the program; of people say they"


LIST_LINE = re.compile(r"\s*\* {3,}\S")  # of a list or a table in a comment
PLAIN_LINE = re.compile(r"\s*\* \S")


def broken_lists(path):
    with open(path) as file:
        lines = file.read().splitlines()
    for number, (line, after) in enumerate(zip(lines, lines[1:]), 1):
        if LIST_LINE.match(line) and len(line) > 80 and PLAIN_LINE.match(after):
            yield f"{os.path.basename(path)}:{number}: {after.strip()}"


def test_no_list_is_broken():
    paths = [path for directory in (SRC, TESTS) for path in sources(directory)]
    assert len(paths) > 400
    assert [line for path in paths for line in broken_lists(path)] == [], "make its lines shorter, and indent what goes on"


def test_a_broken_list_is_found(tmp_path):
    path = tmp_path / "a.c"
    path.write_text("/* All:\n *\n *   a    one that is written in a line which is much too long for the column limit, as can\n * be seen   b    another\n"
                    " *   c    the last one\n * And a sentence. */\n")
    assert list(broken_lists(str(path))) == ["a.c:3: * be seen   b    another"]


def test_a_free_relative_is_found(tmp_path):
    path = tmp_path / "a.c"
    path.write_text("int a; /* what it is */\n/* What the daemon\n * keeps for later. */\nint b;\n/* Keeps what is there for later. */\n"
                    "/* Of the file: its end. */\n/* Often it is kept. */\n/* It is kept here. */\n")
    assert [line.split(": ", 1)[1] for line in problems(str(path))] == ["What the daemon keeps for later.", "Of the file: its end.",
                                                                        "It is kept here."]


def test_a_person_is_found(tmp_path):
    path = tmp_path / "a.c"
    path.write_text("int a; /* Nobody waits */\n/* there, the reader */\n")
    assert [line.split(": ")[1] for line in persons(str(path))] == ["Nobody"]
