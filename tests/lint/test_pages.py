# SPDX-License-Identifier: Apache-2.0
"""The pages for people: every page is reached, and links, files, tests and examples that a page names are there."""
import glob
import os
import re
import subprocess
import sys

import pytest

from sources import ROOT, read

GONE = {"meta", "persist"}  # components that there were


def pages():
    found = [*glob.glob(os.path.join(ROOT, "*.md")), os.path.join(ROOT, "contrib", "README.md"),
             *glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)]
    return sorted(os.path.relpath(path, ROOT) for path in found)


def anchors(text):
    """Those that GitHub makes of headings."""
    heads = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(page):
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(ROOT, other)):
            yield f"{target}: no such file"
        elif anchor and other.endswith(".md") and anchor not in anchors(read(other)):
            yield f"{target}: no such heading"


def missing_sources(text):
    """Files of src/ that a page names as `component/file.c` and that are not there."""
    components = set(os.listdir(os.path.join(ROOT, "src")))
    for name in re.findall(r"(?<![\w/.])(?:src/)?(\w+/[\w/]+\.[ch])\b", text):
        if name.split("/")[0] in components | GONE and not os.path.exists(os.path.join(ROOT, "src", name)):
            yield name


@pytest.mark.parametrize("page", pages())
def test_named_sources_are_there(page):
    assert list(missing_sources(read(page))) == []


NAMED = re.compile(r"(?<![\w/.])((?:\.ci|bench|completion|contrib|debian|docs|include|mount-scripts|python|src|tests)/[\w./*-]*\w)")
PLACEHOLDER = re.compile(r"[A-Z]{3,}")  # tests/unit/ROOM


def missing_paths(text):
    """Paths from the root of the project that a page names and that are not there; a pattern names at least one."""
    for name in NAMED.findall(text):
        if not PLACEHOLDER.search(name) and not glob.glob(os.path.join(ROOT, name)):
            yield name


@pytest.mark.parametrize("page", pages())
def test_named_paths_are_there(page):
    assert list(missing_paths(read(page))) == []


def missing_tests(text, known):
    yield from (name for name in re.findall(r"`(test_\w+)(?:\.py)?`", text) if name not in known)


def test_named_tests_are_there():
    """A test that a page names is a function or a file of tests/."""
    known = set()
    for directory, _, names in os.walk(os.path.join(ROOT, "tests")):
        for name in names:
            if name.endswith((".py", ".c")):
                known.add(name.rpartition(".")[0])
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    known.update(re.findall(r"\btest_\w+", file.read()))
    assert len(known) > 1000
    assert [f"{page}: {name}" for page in pages() for name in missing_tests(read(page), known)] == []


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page):
    assert list(broken_links(page)) == []


def test_fuzz_targets_are_listed():
    """The table of testing-rigs.md has each target of tests/fuzz once, and no other."""
    table = read("docs/testing-rigs.md").split("| decoders | targets |", 1)[1].split("\n\n", 1)[0]
    named = [name for line in table.splitlines()[2:] for name in re.findall(r"`([a-z_0-9]+)`", line.rpartition(" | ")[2])]
    files = glob.glob(os.path.join(ROOT, "tests", "fuzz", "*.c"))
    assert sorted(named) == sorted(os.path.basename(path)[:-2] for path in files)


def test_every_page_is_reached():
    """From README.md, over links between pages."""
    seen, left = set(), ["README.md"]
    while left:
        page = left.pop()
        if page in seen:
            continue
        seen.add(page)
        found = re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", read(page))
        left += [path for path in (os.path.normpath(os.path.join(os.path.dirname(page), name)) for name in found) if path in pages()]
    assert sorted(seen) == pages()


def test_examples_are_known():
    """Each example in a page is one that docs/examples/remake.py runs, and the other way round."""
    named = {name for page in pages() for name in re.findall(r"<!-- example: (.*?) -->\n```console\n\$ ", read(page))}
    assert named == set(re.findall(r'self\.(?:show|type)\(\s*"([^"]+)"', read("docs/examples/remake.py")))


def test_getting_started_is_short():
    """Each of its pages has at most 100 lines, and installs the versions that tests/run installs."""
    versions = dict(re.findall(r"([\w-]+)==([\d.]+)", read("tests/run")))
    for page in glob.glob(os.path.join(ROOT, "docs", "getting-started", "*.md")):
        text = read(page)
        assert text.count("\n") <= 100, page
        named = re.findall(r"([\w-]+)==([\d.]+)", text)
        assert [name for name, version in named if versions.get(name, version) != version] == [], page


def test_broken_links_are_found(monkeypatch):
    monkeypatch.setitem(globals(), "read", lambda page: "# A head\n[a](#a-head) [b](#no-head) [c](nowhere.md) [d](https://example.org)\n")
    assert list(broken_links("README.md")) == ["#no-head: no such heading", "nowhere.md: no such file"]


def test_missing_sources_are_found():
    assert list(missing_sources("`base/lock.h` and `base/nothing.c`, `persist/nothing.c`, `tests/rig.c`, `src/base/none.h`")) == ["base/nothing.c", "persist/nothing.c", "base/none.h"]


def test_missing_paths_and_tests_are_found():
    assert list(missing_paths("`tests/run`, tests/unit/ROOM, `tests/nothing.py`, src/*/lock.h, docs/gone/, a/tests/x")) == ["tests/nothing.py", "docs/gone"]
    assert list(missing_tests("`test_one`, `test_two.py`", {"test_two"})) == ["test_one"]


def test_plots_are_those_of_their_figures():
    """docs/plots/*.svg are what bench/plot.py draws."""
    done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "plot.py"), "--check"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
