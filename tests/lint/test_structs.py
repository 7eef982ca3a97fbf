# SPDX-License-Identifier: Apache-2.0
"""A struct is one subject: one of more than FIELDS_MAX fields is split. Those of a nameless struct within it are its own."""
import os
import re

from test_circles import NOISE
from test_layers import PUBLIC, SRC, sources

FIELDS_MAX = 40
ENUM = re.compile(r"\benum\b\s*\w*\s*\{[^}]*\}")
NAMELESS, NAMELESS_END = re.compile(r"\b(?:struct|union)\s*\{"), re.compile(r"\}[^;}]*;")
STRUCT = re.compile(r"\b(?:struct|union)\s+(\w+)\s*\{")


def body(text, start):
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start:at]
    return ""


def without(text, opening, closing):
    """Leaves out what lies between brackets."""
    kept, depth = [], 0
    for char in text:
        depth += char == opening
        if depth == 0:
            kept.append(char)
        depth -= char == closing
    return "".join(kept)


def fields(text):
    """How many a struct's body declares, in nameless structs too."""
    own = NAMELESS_END.sub("", NAMELESS.sub("", ENUM.sub("", without(text, "(", ")"))))
    return sum(declaration.count(",") + 1 for declaration in own.split(";") if declaration.strip())


def structs(path):
    with open(path, encoding="utf-8") as file:
        text = NOISE.sub(" ", file.read())
    for match in STRUCT.finditer(text):
        yield match[1], fields(body(text, match.end()))


def test_no_struct_is_large():
    found = {f"{os.path.basename(path)}: {name}": count for top in (SRC, PUBLIC) for path in sources(top) for name, count in structs(path)}
    assert len(found) > 500
    assert {name: count for name, count in found.items() if count > FIELDS_MAX} == {}


def test_fields_are_counted(tmp_path):
    path = tmp_path / "a.h"
    path.write_text("struct a {\n    int x, y; /* a; b */\n    struct {\n        int z, w;\n    } locked;\n    void (*call)(int a, int b);\n    char c[2];\n};\n")
    assert list(structs(str(path))) == [("a", 6)]
