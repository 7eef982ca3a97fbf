# SPDX-License-Identifier: Apache-2.0
"""The components of src/, and the public headers: which may include which; how long a function and a file may be."""
import os
import re

import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SRC, PUBLIC = os.path.join(ROOT, "src"), os.path.join(ROOT, "include")
COMPONENTS = ["base", "format", "codec", "tier", "view", "overlay", "stage", "commit", "dense", "prefix", "snapshots", "nodes", "remote",
              "fetch", "store", "fs", "take", "fuse", "daemon", "cli", "client"]
MAY_USE = {"client": ("base", "format")}  # a library in others' processes: nothing of the daemon is in it
ONLY_IN = [
    (r"lz4\w*\.h|zstd\w*\.h|blake3\w*\.h", "codec"),
    (r"rocksdb/.*", "view"),
    (r"fuse_lowlevel\.h|fuse3?/.*|fuse\.h", "fuse"),
    (r"curl/.*|liburing\.h", "tier"),
    (r"microhttpd\.h", "daemon"),
    (r"cuda.*\.h", "client"),
    (r"cairn/.*", "client"),  # include/cairn/: what libcairn offers
]
PUBLIC_MAY_USE = {"stddef.h", "stdint.h", "stdbool.h", "sys/types.h"}  # a program that includes ours has no other header of ours
# Private headers are for their own component, and some for a few; so is a header that includes one of these.
PRIVATE = re.compile(r"(\w+_)?internal\.h")
ONLY_FOR = {"commit/shared.h": {"commit", "dense", "remote", "fetch", "store"}}  # the store, as its components share it
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
MAX_FUNCTION, MAX_FILE = 70, 600


def sources(src, endings=(".c", ".h")):
    for directory, _, names in sorted(os.walk(src)):
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.join(directory, name)


def component_of(path, src):
    return os.path.relpath(path, src).split(os.sep)[0]


def includes(path):
    with open(path) as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match[1], match[2]


def included_header(src, path, name):
    """The path of an included header of ours, or None."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    return next((candidate for candidate in (os.path.join(src, name), beside) if os.path.exists(candidate)), None)


def included_component(src, path, name):
    """The component of an included header of ours, or None."""
    header = included_header(src, path, name)
    if header:
        return component_of(header, src)
    return name.split("/")[0] if name.split("/")[0] in COMPONENTS and "/" in name else None


def include_problems(src):
    for path in sources(src):
        component = component_of(path, src)
        for number, quote, name in includes(path):
            where = f"{os.path.relpath(path, src)}:{number}: {name}"
            for pattern, owner in ONLY_IN:
                if quote == "<" and re.fullmatch(pattern, name) and component != owner:
                    yield f"{where}: only {owner}/ may include it"
            other = included_component(src, path, name) if quote == '"' else None
            for pattern, owner in ONLY_IN:
                if quote == '"' and other is None and re.fullmatch(pattern, name) and component != owner:
                    yield f"{where}: only {owner}/ may include it"
            if other and COMPONENTS.index(other) > COMPONENTS.index(component):
                yield f"{where}: {component}/ is below {other}/"
            if component in MAY_USE and other and other != component and other not in MAY_USE[component]:
                yield f"{where}: {component}/ may use only {' and '.join(MAY_USE[component])}"


def audience(src, header, known):
    """The components that may include a header."""
    if header not in known:
        own = component_of(header, src)
        known[header] = set(COMPONENTS)  # of one that is included in a circle
        allowed = {own} if PRIVATE.fullmatch(os.path.basename(header)) else ONLY_FOR.get(os.path.relpath(header, src), set(COMPONENTS))
        for _, quote, name in includes(header):
            inner = included_header(src, header, name) if quote == '"' else None
            of_inner = audience(src, inner, known) if inner else set(COMPONENTS)
            allowed = allowed & of_inner if own in of_inner else allowed  # else the header itself is wrong
        known[header] = allowed
    return known[header]


def private_problems(src, top, may_share=False):
    """Files below `top`, in a directory for each component, that include what is not for it; but for what a few components share."""
    known = {}
    for path in sources(top):
        component = component_of(path, top)
        for number, quote, name in includes(path):
            header = included_header(src, path, name) if quote == '"' else None
            if header and component not in audience(src, header, known) and not (may_share and len(known[header]) > 1):
                yield f"{os.path.relpath(path, top)}:{number}: {name}: only for {', '.join(sorted(known[header]))}"


def public_problems(public):
    for path in sources(public):
        for number, _, name in includes(path):
            if name not in PUBLIC_MAY_USE:
                yield f"{os.path.relpath(path, public)}:{number}: {name}: a public header may include only {', '.join(sorted(PUBLIC_MAY_USE))}"


def functions(lines):
    """(first line, length) of every function: a body that opens with '{' for a head in column 1."""
    start = None
    for number, line in enumerate(lines):
        opens = line.rstrip().endswith("{") and not line.startswith((" ", "\t", "}", "#"))
        if start is None and (opens and "(" in line or line.rstrip() == "{"):
            start = number
        elif start is None and opens and number and ")" in line:
            start = number
        if start is not None and line.startswith("}"):
            yield start + 1, number - start + 1
            start = None


def length_problems(src):
    for path in sources(src, (".c", ".h", ".py")):
        with open(path) as file:
            lines = file.read().split("\n")
        name = os.path.relpath(path, src)
        if len(lines) - 1 > MAX_FILE:
            yield f"{name}: {len(lines) - 1} lines, at most {MAX_FILE}"
        for start, size in functions(lines) if path.endswith(".c") else ():
            if size > MAX_FUNCTION:
                yield f"{name}:{start}: a function of {size} lines, at most {MAX_FUNCTION}"


def test_components_are_known():
    """Every directory of src is a component."""
    found = {component_of(path, SRC) for path in sources(SRC)}
    assert found <= set(COMPONENTS) and "base" in found


def test_includes():
    """A component includes only from those above it, a library's header only in its place."""
    assert list(include_problems(SRC)) == []


def test_private_headers():
    """A header named internal.h, or that includes one, is for its own component alone, and for the unit tests of that."""
    assert list(private_problems(SRC, SRC)) == []
    assert list(private_problems(SRC, os.path.join(ROOT, "tests", "unit"), may_share=True)) == []
    assert len([path for path in sources(SRC) if PRIVATE.fullmatch(os.path.basename(path))]) > 10


def test_public_headers():
    """include/ needs nothing of src/."""
    assert list(public_problems(PUBLIC)) == [] and os.path.exists(os.path.join(PUBLIC, "cairn", "cairn.h"))


def test_lengths():
    """No function over 70 lines, no file over 600."""
    assert [problem for top in ("src", "include", "python", "tests", "bench") for problem in length_problems(os.path.join(ROOT, top))] == []


def plant(directory, files):
    """A tree with these files."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return str(directory)


@pytest.fixture
def planted(tmp_path):
    return plant(tmp_path, {
        "base/a.c": '#include "fs/x.h"\n#include <lz4.h>\n',
        "fs/x.h": '#include "base/b.h"\n#include <stdio.h>\n',
        "base/b.h": "int b;\n",
        "codec/l.c": "#include <lz4.h>\n#include <rocksdb/c.h>\n",
        "client/c.c": '#include "base/b.h"\n#include "fs/x.h"\n#include "client/d.h"\n#include <cairn/cairn.h>\n',
        "cli/c.c": "#include <cairn/cairn.h>\n",
        "commit/shared.h": "int s;\n",
        "commit/internal.h": '#include "commit/part_internal.h"\n#include "commit/shared.h"\n',
        "commit/part_internal.h": '#include "commit/part.h"\n',
        "commit/part.h": "int p;\n",
        "commit/open.h": '#include "commit/internal.h"\n',
        "remote/r.c": '#include "remote/r.h"\n#include "commit/shared.h"\n#include "commit/part_internal.h"\n#include "commit/open.h"\n',
        "remote/r.h": '#include "commit/part.h"\n',
        "fuse/f.c": '#include "commit/part.h"\n#include "commit/shared.h"\n',
        "fuse/long.c": "int f(void)\n{\n" + "    x();\n" * 69 + "}\nint g(void) {\n" + "    x();\n" * 68 + "}\n",
        "fuse/huge.c": "int x;\n" * 601,
    })


def test_lint_finds_what_is_planted(planted):
    """The lint itself can fail."""
    found = list(include_problems(planted))
    assert len(found) == 5 and any("fs/x.h" in line for line in found) and any("rocksdb" in line for line in found)
    assert any("client/c.c:2" in line for line in found) and any("cli/c.c:1" in line for line in found)
    found = list(private_problems(planted, planted))
    assert found == ["fuse/f.c:2: commit/shared.h: only for commit, dense, fetch, remote, store",
                     "remote/r.c:3: commit/part_internal.h: only for commit", "remote/r.c:4: commit/open.h: only for commit"]
    assert list(private_problems(planted, planted, may_share=True)) == found[1:]
    assert list(public_problems(os.path.join(planted, "fs"))) == [
        "x.h:1: base/b.h: a public header may include only stdbool.h, stddef.h, stdint.h, sys/types.h",
        "x.h:2: stdio.h: a public header may include only stdbool.h, stddef.h, stdint.h, sys/types.h"]
    found = list(length_problems(planted))
    assert len(found) == 2 and "601 lines" in found[0] and "71 lines" in found[1]
