# SPDX-License-Identifier: Apache-2.0
"""A word has one meaning in the names of src/; docs/architecture.md has the glossary.

- A *run* is rows of a cut, and stands in files that know of such. A thread has a main. Bytes that lie together are a
  stretch.
- A *cut* is a state: it is held by its number, or as a view. Content is split by the chunker, a file that ends early is short or truncated.
- *Room* is space that is free, and not counted. A directory of src/ is a component.
- To *follow* is what a mount does that only reads what another one publishes, and the system's word for links and for
  logs that grow. A view replays the journal or catches up.
- A *turn* is that of a thread to receive requests of the kernel.
- To *keep* is no term here. What was fetched is promoted, so nothing in fetch/ is named for keeping.

The check sees declarations, not what a comment means by a word."""
import os
import re

import pytest

from test_glossary import IGNORED, texts
from test_layers import ROOT, SRC, sources

DECLARED = re.compile(r"((?:(?:struct|enum|union)\s+)?\w+)(?:\s+|\s*\*+\s*(?:const\s+)?)(\w+)\s*(?:\[[^\]]*\]\s*)*([;=,()])")
TAG = re.compile(r"\b(?:struct|enum|union)\s+(\w+)\s*\{")
NO_TYPES = {"return", "goto", "else", "case", "sizeof", "define", "ifdef", "ifndef", "struct", "enum", "union", "const", "static"}
KNOW_RUNS = re.compile(r"format/|remote/(?!series)|view/|commit/(run|snapshot|room|new_view|internal|history)|store/recover_view")
KNOW_FOLLOWING = re.compile(r"(remote|view)/follow|remote/internal|commit/(commit|history|options)|overlay/|fs/|daemon/(options|service)"
                            r"|view/(remote|txn|db)")
FOLLOW_OTHERS = re.compile(r"cli/(source|log)|client/place")
FOREIGN = {"dry_run", "not_kept_bytes"}  # of the command line and of the control socket


def is_in(word, name):
    return word in name.lower().split("_")


def wrong_data(path, kind, name):
    if (is_in("cut", name) or is_in("cuts", name)) and kind not in ("uint64_t", "struct view_cut") and name not in ("view_cut", "at_cut"):
        return "only a state is a cut"
    return wrong_name(path, name)


def wrong_function(path, name):
    if name.startswith("cut_") and not path.startswith("view/"):
        return "only a state is a cut"
    return wrong_name(path, name)


def wrong_name(path, name):
    if (is_in("run", name) or is_in("runs", name)) and not KNOW_RUNS.match(path):
        return "only rows of a cut are a run"
    if is_in("rooms", name):
        return "a directory of src/ is a component"
    if (is_in("follow", name) or is_in("following", name)) and not (KNOW_FOLLOWING.match(path) or FOLLOW_OTHERS.match(path)):
        return "only a mount follows"
    if is_in("turn", name) and not path.startswith("fuse/"):
        return "only a thread that receives has a turn"
    if path.startswith("fetch/") and any(is_in(word, name) for word in ("keep", "keeps", "keeping", "kept")):
        return "what was fetched is promoted"
    return None


def declarations(text):
    """(line, type, name, is it a function); a struct's type is "struct"."""
    code = IGNORED.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in DECLARED.finditer(code):
        kind = " ".join(match[1].split())
        if kind not in NO_TYPES:
            yield code.count("\n", 0, match.start(2)) + 1, kind, match[2], match[3] == "("
    for match in TAG.finditer(code):
        yield code.count("\n", 0, match.start()) + 1, "struct", match[1], False


def problems(path, text):
    for line, kind, name, is_function in declarations(text):
        why = None if name in FOREIGN else wrong_function(path, name) if is_function else wrong_data(path, kind, name)
        if why:
            yield f"{path}:{line}: {name}: {why}"


def test_names_have_the_meaning_of_the_glossary():
    found = []
    for path in sources(SRC):
        with open(path, encoding="utf-8") as file:
            found += problems(os.path.relpath(path, SRC), file.read())
    assert found == []


def test_room_is_not_counted():
    found = []
    for path in texts(ROOT, "src", "include", "docs"):
        with open(path, encoding="utf-8", errors="replace") as file:
            found += [f"{path}:{number}" for number, line in enumerate(file, 1) if re.search(r"\brooms\b", line, re.IGNORECASE)]
    assert found == []


@pytest.mark.parametrize("path, line, count", [
    ("commit/content.c", "struct run {\n    int x;\n};", 1), ("commit/content.c", "uint64_t run;", 1),
    ("remote/runs.c", "struct run *run;", 0), ("codec/a.c", "static bool run(struct call *c)\n", 1),
    ("stage/a.c", "void *filler_run(void *arg)", 1), ("stage/a.c", "int rooms;", 1),
    ("tier/a.c", "bool cut = a;", 1), ("view/a.c", "struct piece cut = *piece;", 1),
    ("view/a.c", "uint64_t cut = 1, base_cut;\nstruct view_cut *cut;", 0), ("tier/a.c", "static void cut_remark(char *text)", 1),
    ("commit/a.c", "int view_follow_journal(void);", 1), ("remote/follow.c", "int follow_head(void);", 0),
    ("fetch/a.c", "bool keep_chunk(void);", 1), ("fetch/a.c", "uint64_t not_kept_bytes;", 0),
    ("commit/a.c", "bool keep_times(void); /* int run; */", 0), ("commit/a.c", "int take_turn(void);", 1)])
def test_another_meaning_is_found(path, line, count):
    assert len(list(problems(path, line))) == count, list(problems(path, line))
