# SPDX-License-Identifier: Apache-2.0
"""Comments name their subject: none begins with a free relative ("What is kept", "Whoever asks") in the rooms named here."""
import os
import re

from test_layers import SRC, room_of, sources

ROOMS = {"base", "cli", "client", "codec", "commit", "daemon", "fetch", "format", "fs", "fuse", "overlay", "remote", "stage", "store", "tier", "view"}  # rooms that are done
WORDS = 4  # shorter ones stand behind a field
COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
FREE_RELATIVE = re.compile(r"(What|Who|Whoever|Whatever|Whether)\b")


def problems(path):
    with open(path) as file:
        text = file.read()
    for comment in COMMENT.finditer(text):
        words = re.sub(r"\n\s*\*?", " ", comment[1]).split()
        if len(words) >= WORDS and FREE_RELATIVE.match(words[0]):
            yield f"{os.path.relpath(path, SRC)}:{text.count(chr(10), 0, comment.start()) + 1}: {' '.join(words[:6])}"


def test_comments_name_their_subject():
    paths = [path for path in sources(SRC) if room_of(path, SRC) in ROOMS]
    assert len(paths) > 200
    assert [line for path in paths for line in problems(path)] == [], "begin with the subject, or with an imperative verb"


def test_a_free_relative_is_found(tmp_path):
    path = tmp_path / "a.c"
    path.write_text("int a; /* what it is */\n/* What the daemon\n * keeps for later. */\nint b;\n/* Keeps what is there for later. */\n")
    assert [line.split(": ")[1] for line in problems(str(path))] == ["What the daemon keeps for later."]
