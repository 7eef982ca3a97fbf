# SPDX-License-Identifier: Apache-2.0
"""The man pages: clean, and in agreement with help, with docs/on-disk-format.md, and with the bytes of the golden files."""
import glob
import os
import re
import shutil
import struct
import subprocess

import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MAN = os.path.join(ROOT, "docs", "man")
GOLDEN = os.path.join(ROOT, "tests", "unit", "format", "golden")
SOURCES = sorted(os.path.basename(path) for path in glob.glob(MAN + "/*.[1358]*"))
PAGES = [name.removesuffix(".in") for name in SOURCES]
FLAG = re.compile(r"(?<![\w/=-])--?[a-zA-Z][a-zA-Z-]*")
# Where each structure of cairn-format(5) lies in a golden file, and from which end of it.
PLACES = {
    "superblock": ("superblock.bin", 0),
    "pack header": ("pack.bin", 0),
    "pack trailer": ("pack.bin", -64),
    "segment header": ("segment.bin", 0),
    "batch header": ("segment.bin", 128),
    "prefix info": ("prefix-info.bin", 0),
    "lease": ("lease.bin", 0),
    "head": ("head-encodings.bin", 0),
    "run header": ("run.bin", 0),
    "run trailer": ("run.bin", -64),
    "writer entry": ("writer-entry.bin", 0),
    "ended epoch": ("ended.bin", 0),
    "feed": ("feed.bin", 0), "snapshot": ("snapshot.bin", 0), "local snapshot": ("local-snapshot.bin", 0),
}


@pytest.fixture
def pages(request):
    """The path of each page: as it is in the sources, or as the build made it."""
    built = os.path.join(request.config.getoption("--build"), "docs")
    return {name: os.path.join(MAN if name in SOURCES else built, name) for name in PAGES}


def read(path):
    with open(path) as file:
        return file.read()


def need(program):
    if not shutil.which(program):
        pytest.skip(f"skipped: {program} is not installed")


def rendered(path):
    """The page as text, in lines so long that nothing is broken."""
    need("mandoc")
    done = subprocess.run(["mandoc", "-Tascii", "-Owidth=900", path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    return re.sub(".\x08", "", done.stdout)


def help_of(binary, *verb):
    done = subprocess.run([binary, "help", *verb], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    return done.stdout


def parts(text, indent):
    """{headline: what stands below it}, of headlines that are indented so."""
    pieces = re.split(rf"^ {{{indent}}}(\S.*)$", text, flags=re.M)
    return dict(zip(pieces[1::2], pieces[2::2]))


@pytest.mark.needs_mount
@pytest.mark.parametrize("name", PAGES)
def test_clean(pages, name):
    """Neither mandoc nor groff has anything to say, and no part was left to be filled in."""
    assert not re.search(r"^@", read(pages[name]), re.M)
    need("mandoc")
    done = subprocess.run(["mandoc", "-Tlint", "-Wstyle", pages[name]], capture_output=True, text=True, timeout=300)
    # What else is installed here is not the page's business.
    assert [line for line in done.stdout.splitlines() if "referenced manual not found" not in line] == []
    need("man")
    done = subprocess.run(
        ["man", "--warnings", "-l", pages[name]], capture_output=True, text=True, timeout=60,
        env={**os.environ, "LC_ALL": "C", "MANPAGER": "cat"}
    )
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout) > 500, done.stderr


@pytest.mark.needs_mount
def test_every_command_has_a_page(binary, pages):
    """cairn(1) lists the commands as help does, and each of them has a page; other pages are not referred to."""
    listed = re.findall(r"^  cairn (\S+) +(.*)$", help_of(binary), re.M)
    assert {f"cairn-{name}.1" for name, _ in listed} == {name for name in PAGES if name.startswith("cairn-") and name.endswith(".1")}
    told = items(sections(rendered(pages["cairn.1"]))["COMMANDS"])
    assert list(told) == [f"cairn-{name}(1)" for name, _ in listed]
    assert all(same(told[f"cairn-{name}(1)"], text) for name, text in listed), told
    for name in PAGES:
        for other, section in re.findall(r"^\.Xr (cairn[\w-]*|mount\.cairnfs|libcairn) (\d)", read(pages[name]), re.M):
            assert f"{other}.{section}" in PAGES, (name, other)


def sections(text):
    return parts(text, 0)


def items(section):
    """{left side: text} of a list, whose text is on the same line, behind two blanks, or below."""
    found = {}
    for block in re.split(r"^ {5}(?=\S)", section, flags=re.M)[1:]:
        first, _, rest = block.partition("\n")
        left, *same_line = re.split(r" {2,}", first, maxsplit=1)
        found[left] = " ".join(" ".join([*same_line, rest]).split())
    return found


def same(text, other):
    return text.rstrip(".").lower() == other.rstrip(".").lower()


@pytest.mark.needs_mount
def test_the_page_of_a_command_says_what_its_help_says(binary, pages):
    """Flags with their arguments and texts, operands, and exit statuses."""
    for name, _ in re.findall(r"^  cairn (\S+) +(.*)$", help_of(binary), re.M):
        text = help_of(binary, name).split("\nMount options", 1)[0]
        told = sections(rendered(pages[f"cairn-{name}.1"]))
        assert {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"} <= set(told), name
        usage = re.search(r"^usage: (.*)$", text, re.M)[1]
        plain = re.sub(r" *([|\[\]]) *", r"\1", " ".join(told["SYNOPSIS"].split()))
        assert plain == re.sub(r" *([|\[\]]) *", r"\1", usage.replace("...", " ...")), name
        shown = re.findall(r"^  ((?:-\w)?(?:, )?(?:--[\w-]+)?(?: \S+)?)   +(\S.*)$", text.split("\nExit status", 1)[0], re.M)
        listed = items(re.sub(r" *\| *", "|", told["OPTIONS"].split("These options of", 1)[0]))
        assert list(listed) == [left for left, _ in shown] + ["--help"], name
        assert all(same(listed[left], text) for left, text in shown), (name, listed)
        # Those of mount options, which help lists at its end, are in the page as well; no other flag is.
        after = text.split("\nOptions:" if shown else "\nExit status:", 1)[1]
        assert set(FLAG.findall(told["OPTIONS"])) == set(FLAG.findall(after)) | {"--help"}, name
        codes = re.findall(r"^  (\d+) +(.*)$", text.split("\nExit status:", 1)[1], re.M)
        listed = items(told["EXIT STATUS"])
        assert list(listed) == [code for code, _ in codes] and all(same(listed[code], meaning) for code, meaning in codes), (name, listed)


@pytest.mark.needs_mount
def test_examples_use_what_there_is(binary, pages):
    """Each page of a command has an example of it; each example names commands and flags that exist."""
    commands = re.findall(r"^  cairn (\S+) ", help_of(binary), re.M)
    known = {name: set(FLAG.findall(help_of(binary, name))) | {"--help"} for name in commands}
    known["mount"] |= {"--" + name.replace("_", "-")
                       for name in re.findall(r"^  (\w+)(?:=\w+)? ", help_of(binary, "mount").split("\nMount options", 1)[1], re.M)}
    for page in PAGES:
        lines = re.findall(r"^\$ .*$", read(pages[page]), re.M)
        used = [call for line in lines for call in re.findall(r"\bcairn ([a-z]+)([^|>)]*)", line)]
        if page.startswith("cairn-") and page.endswith(".1"):
            assert page[len("cairn-") : -2] in [name for name, _ in used], page
        for name, rest in used:
            assert name in known and set(FLAG.findall(rest)) <= known[name], (page, name, rest)


@pytest.mark.needs_mount
def test_options(binary, pages):
    """The options of a mount: kinds of values, words, and the text with its default."""
    entry = re.compile(r"^\.It Cm (\w+)(?: Ns = Ns (?:Ar (\w+)|Cm (.*)))?\n((?:[^.].*\n)+)", re.M)
    told = {name: (kind, words, text) for name, kind, words, text in entry.findall(read(pages["mount.cairnfs.8"]))}
    shown = re.findall(r"^  (\w+)(?:=(\w+))? +(.*)$", help_of(binary, "mount").split("\nMount options", 1)[1], re.M)
    assert list(told) == [name for name, _, _ in shown]
    completion = subprocess.run([binary, "completion", "bash"], capture_output=True, text=True, timeout=300).stdout
    for name, kind, text in shown:
        if kind == "WORD":
            words = set(re.findall(rf"\b{name}=(\w+) ", completion))
            assert words and set(told[name][1].split(" | ")) == words, name
        else:
            assert told[name][0] == kind, name
        plain = re.sub(r"\\f[IR]", "", " ".join(told[name][2].split()))
        assert plain.rstrip(".").lower() == text.strip().rstrip(".").lower(), name


@pytest.mark.needs_mount
def test_options_of_every_filesystem(binary, pages, directory):
    """What the page says is taken is, in the list that mount(8) hands over; what it says is refused is."""
    text = read(pages["mount.cairnfs.8"]).split(".Ss Of every filesystem", 1)[1].split("Anything else", 1)
    helper = os.path.join(directory, "mount.cairnfs")
    os.symlink(binary, helper)

    def complaint(name):
        value = "=x" if name in ("comment", "fsname", "subtype", "uhelper") else ""
        return subprocess.run([helper, directory + "/none/store", directory, "-f", "-o", name + value], capture_output=True, text=True,
                              timeout=300).stderr

    taken = re.findall(r"\.Cm (\w+)", text[0])
    assert len(taken) > 20
    for name in taken:
        assert "unknown option" not in complaint(name), name
    refused = re.findall(r"\.Cm (\w+)", text[1].split(".Sh", 1)[0])
    assert refused == ["sync", "dirsync"] and all("unknown option" in complaint(name) for name in refused)


def structures():
    row = re.compile(r"^\.It ([a-z ]+) Ta (\w+) Ta (\d+) Ta (\d+) Ta (.*)$", re.M)
    return row.findall(read(os.path.join(MAN, "cairn-format.5")))


def test_structures_are_those_of_the_golden_files():
    """Magic and version are the bytes that the formats' tests hold."""
    assert {name for name, *_ in structures()} == set(PLACES)
    for name, magic, version, _, _ in structures():
        file, offset = PLACES[name]
        with open(os.path.join(GOLDEN, file), "rb") as golden:
            body = golden.read()
        start = offset % len(body)
        size = 4 if len(magic) == 4 else 8
        assert body[start : start + size] == magic.encode().ljust(size, b"\0"), name
        assert struct.unpack_from("<I", body, start + size)[0] == int(version), name


def test_structures_are_those_of_the_format():
    """Sections exist; magics, versions and sizes are those of their tables, and none is left out."""
    with open(os.path.join(ROOT, "docs", "on-disk-format.md")) as file:
        text = file.read()
    sections = dict(zip(*[iter(re.split(r"^##+ (.*)$", text, flags=re.M)[1:])] * 2))
    for name, magic, version, size, section in structures():
        body = sections[section]
        head = body.index(f"`{magic}`")
        table = body[head : body.find("\n\n", head)]
        assert int(re.search(r"version: (\d+)", table)[1]) == int(version), name
        # What varies has no size; what comes after it has no offset.
        rows = [(offset, int(length or 0)) for offset, length in re.findall(r"^\| ?(\d*) ?\| ?(\d*) ?\|", table, re.M)]
        last = [int(offset) + length for offset, length in rows if offset][-1]
        assert last + sum(length for offset, length in rows if not offset) == int(size), (name, rows)
    magics = set(re.findall(r"^\| 0 \| [48] \| `([A-Z]+)`", text, re.M))
    assert magics == {magic for _, magic, *_ in structures()} | {"CHNK"}  # a part, without a version of its own
    named = [name for names in re.findall(r"^\.Pq Em (.*?)(?: [:;,.])?$", read(os.path.join(MAN, "cairn-format.5")), re.M)
             for name in names.split(" , ")]
    assert len(named) > 6 and set(named) <= set(sections), named


@pytest.mark.parametrize("compiler", (["gcc", "-std=c11", "-x", "c"], ["g++", "-std=c++20", "-x", "c++"]), ids=" ".join)
def test_the_example_of_the_library_compiles(compiler, directory):
    need(compiler[0])
    text = read(os.path.join(MAN, "libcairn.3")).split(".Sh EXAMPLES", 1)[1]
    example = re.search(r"^\.Bd -literal.*?\n(.*?)^\.Ed", text, re.M | re.S)[1].replace("\\e", "\\")
    source = os.path.join(directory, "example")
    with open(source, "w") as file:
        file.write(example)
    command = [*compiler, "-Wall", "-Werror", "-fsyntax-only", "-I", os.path.join(ROOT, "include"), source]
    assert subprocess.run(command, capture_output=True, text=True, timeout=300).stderr == ""


def test_the_page_of_the_library_names_each_call():
    with open(os.path.join(ROOT, "include", "cairn", "cairn.h")) as file:
        header = file.read()
    calls = set(re.findall(r"^CAIRN_API [^(;]*?\b(cairn_\w+)\(", header, re.M))
    constants = set(re.findall(r"\bCAIRN_(?:SAVE|SOURCE)_[A-Z_]+\b", header))
    text = read(os.path.join(MAN, "libcairn.3"))
    assert len(calls) > 15 and sorted(calls - set(re.findall(r"\bcairn_\w+", text))) == []
    assert sorted(constants - set(re.findall(r"\bCAIRN_\w+", text))) == []
