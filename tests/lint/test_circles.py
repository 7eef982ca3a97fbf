# SPDX-License-Identifier: Apache-2.0
"""Calls between the files of src/: none goes up to a later component, and within a component few files call each other in a circle.

The graph is read from tokens: a file calls what another one defines if it names it. Calls through tables and callbacks are not seen, which
is what they are for."""
import collections
import os
import re

import pytest

from test_layers import COMPONENTS, SRC, component_of, plant, sources

# Files of the largest circle of a component, as it is: it may become smaller. A component that is not named has none.
LARGEST = {"client": 2, "commit": 2, "fetch": 5, "fs": 2, "fuse": 3, "overlay": 2, "remote": 2, "stage": 2, "store": 4, "tier": 2,
           "view": 4}
ATTRIBUTE = r"__attribute__\(\([^\n]*?\)\)"
HEAD = re.compile(rf"^(?=[A-Za-z_])((?:{ATTRIBUTE}|[^\n;{{}}()=])+?)\n?\b(?!__attribute__\b)(\w+)\([^;{{}}]*\)\s*\{{", re.MULTILINE)
USE = re.compile(r"(?<![\w.>])(\w+)\(|(?<=[(,={&])\s*(?:&\s*)?(\w+_\w+)\s*(?=[,;)}])")
NOISE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])+'""", re.DOTALL)


def definitions(text):
    """(name, is it static) of the functions of a file."""
    for head, name in HEAD.findall(text):
        yield name, re.search(r"\bstatic\b", head) is not None


def calls(src):
    """file -> {file: names that it uses of it}; of names that two files define, none."""
    texts, owners, own = {}, collections.defaultdict(set), collections.defaultdict(set)
    for path in sources(src):
        if path.endswith(".c"):
            with open(path) as file:
                texts[path] = NOISE.sub(" ", file.read())
    for path, text in texts.items():
        for name, is_static in definitions(text):
            own[path].add(name)
            if not is_static:
                owners[name].add(path)
    graph = {path: collections.defaultdict(set) for path in texts}
    for path, text in texts.items():
        for name in {name for names in USE.findall(text) for name in names} - own[path]:
            if len(owners.get(name, ())) == 1:
                graph[path][next(iter(owners[name]))].add(name)
    return graph


def circles(nodes, graph):
    """Strongly connected sets of more than one node."""
    reach = {}
    for node in nodes:
        seen, todo = set(), [node]
        while todo:
            for other in graph[todo.pop()]:
                if other in nodes and other not in seen:
                    seen.add(other)
                    todo.append(other)
        reach[node] = seen
    found = {frozenset(other for other in reach[node] if node in reach[other]) for node in nodes if node in reach[node]}
    return sorted((sorted(circle) for circle in found), key=len, reverse=True)


def upward_calls(src):
    graph = calls(src)
    for path in sorted(graph):
        for other in sorted(graph[path]):
            component, above = component_of(path, src), component_of(other, src)
            if component in COMPONENTS and above in COMPONENTS and COMPONENTS.index(above) > COMPONENTS.index(component):
                yield f"{os.path.relpath(path, src)}: {', '.join(sorted(graph[path][other]))} of {os.path.relpath(other, src)}"


def circle_problems(src, largest):
    graph = calls(src)
    for component in sorted({component_of(path, src) for path in graph}):
        nodes = {path for path in graph if component_of(path, src) == component}
        for circle in circles(nodes, graph):
            if len(circle) > largest.get(component, 1):
                names = " ".join(os.path.basename(path) for path in circle)
                yield f"{component}: {len(circle)} files call each other, at most {largest.get(component, 1)}: {names}"


def test_no_call_goes_up():
    assert list(upward_calls(SRC)) == []


def test_circles():
    assert list(circle_problems(SRC, LARGEST)) == []


@pytest.fixture
def planted(tmp_path):
    return plant(tmp_path, {
        "base/low.c": "int low(void)\n{\n    return high(); /* third() */\n}\n",
        "fs/high.c": "int high(void)\n{\n    return second();\n}\n",
        "fs/second.c": "static int own(void)\n{\n    return 1;\n}\nint second(void)\n{\n    return third(own());\n}\n",
        "fs/third.c": "int third(int x)\n{\n    return x ? high() : 0;\n}\n",
        "fs/alone.c": "int alone(void)\n{\n    return high();\n}\n",
    })


def test_lint_finds_what_is_planted(planted):
    """The lint itself can fail."""
    assert list(upward_calls(planted)) == ["base/low.c: high of fs/high.c"]
    assert list(circle_problems(planted, {})) == ["fs: 3 files call each other, at most 1: high.c second.c third.c"]
    assert list(circle_problems(planted, {"fs": 3})) == []
