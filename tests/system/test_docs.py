# SPDX-License-Identifier: Apache-2.0
"""The pages for people against the program: each command that they show has a verb and flags that there are, each option of a mount
is told, and no other."""
import functools
import glob
import os
import re
import subprocess

import pytest

from sources import ROOT, read

PAGES = ["README.md", *sorted(os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True))]
OPTIONS = ["docs/operations.md", "docs/operations-remote.md"]
FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
COMMAND = re.compile(r"(?:^|[`$(]) *(?:[\w./-]*/)?cairn ([a-z]+)((?: [^`|;&\n#]*)?)", re.M)


def help_of(binary, *verb):
    return subprocess.run([binary, "help", *verb], capture_output=True, text=True, timeout=60).stdout


def commands(text):
    """(verb, its flags) of each command in a block of code or within a line of text."""
    blocks = re.findall(r"^```\w*\n(.*?)^```|((?:^ {4}.*\n)+)|(`[^`\n]*`)", text, flags=re.M | re.S)
    for block in ("".join(parts) for parts in blocks):
        for verb, rest in COMMAND.findall(re.sub(r"^    ", "", block, flags=re.M)):
            yield verb, FLAG.findall(rest)


def problems(text, helps, options):
    for verb, flags in commands(text):
        known = set(FLAG.findall(helps.get(verb, ""))) | ({"--" + option.replace("_", "-") for option in options} if verb == "mount"
                                                          else set())
        if verb not in helps:
            yield f"cairn {verb}: no such verb"
        yield from (f"cairn {verb} {flag}: no such flag" for flag in flags if flag not in known)


@functools.cache
def helps_of(binary):
    """What help says of each verb."""
    verbs = re.findall(r"^  (?:cairn )?([a-z]+) +\S", help_of(binary), re.M)
    assert len(verbs) > 15
    return {verb: help_of(binary, verb) for verb in verbs}


@pytest.fixture
def helps(binary):
    if binary is None:
        pytest.skip("skipped: --plain has no program")
    return helps_of(binary)


def options_of(text):
    """Those that 'help mount' lists."""
    return set(re.findall(r"^  ([a-z][a-z_]+)(?:=[A-Z:]+)?  ", text, re.M))


def options_told(page):
    """Those of the tables, in the first column: the words before '='."""
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|[^|]*\|[^|]*\|$", read(page), re.M)
    return {name for cell in cells for name in re.findall(r"`([a-z][a-z_]+)(?:=[^`]*)?`", cell)}


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_there(page, helps):
    assert list(problems(read(page), helps, options_of(helps["mount"]))) == []


def test_every_option_is_told(helps):
    told = set().union(*(options_told(page) for page in OPTIONS))
    assert options_of(helps["mount"]) - told == set(), "docs/operations.md, docs/operations-remote.md"


def test_wrong_commands_are_found(helps):
    text = "`cairn wiat PATH`\n\n    cairn wait PATH --levle nvme\n\n```console\n$ cairn mount A B --stage 1G --stge 2G\n```\n"
    assert list(problems(text, helps, {"stage"})) == ["cairn wiat: no such verb", "cairn wait --levle: no such flag",
                                                      "cairn mount --stge: no such flag"]
