# SPDX-License-Identifier: Apache-2.0
"""Names keep to the glossary (docs/architecture.md): a word that it puts another in place of stands in no identifier of C."""
import os
import re

import pytest
from test_layers import PUBLIC, SRC, sources

TESTS = os.path.join(os.path.dirname(SRC), "tests")
INSTEAD = {
    "far": "remote", "near": "local", "doomed": "unreferenced", "folder": "directory", "folders": "directories",
    "shop": "fixture", "box": "fixture", "ground": "fixture", "world": "fixture", "unwant": "remove from the pending uploads",
    "tell": "notify or report", "tells": "notifies or reports", "teller": "notifier", "telling": "notification", "let": "release",
}
MAY = {"CAIRN_LANE_TELLS"}  # of the public interface
IGNORED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\bTest\([^)]*\)', re.DOTALL)  # comments, texts, the sentences that name tests
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def problems(path):
    with open(path, encoding="utf-8") as file:
        text = IGNORED.sub(lambda match: "\n" * match[0].count("\n"), file.read())
    for number, line in enumerate(text.split("\n"), 1):
        for name in IDENTIFIER.findall(line):
            for word in set(name.lower().split("_")) & set(INSTEAD) if name not in MAY else ():
                yield f"{path}:{number}: {name}: {INSTEAD[word]} instead of {word}"


def test_names_keep_to_the_glossary():
    paths = [path for top in (SRC, PUBLIC, TESTS) for path in sources(top)]
    assert len(paths) > 400
    assert [problem for path in paths for problem in problems(path)] == []


@pytest.mark.parametrize("line, found", [("int is_far;", 1), ("#define NEAR_MAX 2", 1), ("int remote; /* so far */", 0), ('say("as far");', 0), ("int farm;", 0)])
def test_a_word_is_found(tmp_path, line, found):
    path = tmp_path / "a.c"
    path.write_text(line + "\n")
    assert len(list(problems(str(path)))) == found
