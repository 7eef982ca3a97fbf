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
PAGES = ["cairn.1", "mount.cairnfs.8", "cairn-format.5", "libcairn.3"]
FLAG = re.compile(r"(?<![\w/-])--?[a-zA-Z][a-zA-Z-]*")
# Where each structure of cairn-format(5) lies in a golden file, and from which end of it.
PLACES = {
    "superblock": ("superblock.bin", 0),
    "pack header": ("pack.bin", 0),
    "pack trailer": ("pack.bin", -64),
    "segment header": ("segment.bin", 0),
    "batch header": ("segment.bin", 128),
    "prefix info": ("prefix-info.bin", 0),
    "lease": ("lease.bin", 0),
    "head": ("head.bin", 0),
    "run header": ("run.bin", 0),
    "run trailer": ("run.bin", -64),
}


def page(name):
    with open(os.path.join(MAN, name)) as file:
        return file.read()


def need(program):
    if not shutil.which(program):
        pytest.skip(f"skipped: {program} is not installed")


def rendered(name):
    """The page as text, in lines so long that nothing is broken."""
    need("mandoc")
    done = subprocess.run(["mandoc", "-Tascii", "-Owidth=900", os.path.join(MAN, name)], capture_output=True, text=True, timeout=300)
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


@pytest.mark.parametrize("name", PAGES)
def test_clean(name):
    """Neither mandoc nor groff has anything to say."""
    need("mandoc")
    done = subprocess.run(["mandoc", "-Tlint", "-Wstyle", os.path.join(MAN, name)], capture_output=True, text=True, timeout=300)
    # What else is installed here is not the page's business.
    assert [line for line in done.stdout.splitlines() if "referenced manual not found" not in line] == []
    need("man")
    done = subprocess.run(
        ["man", "--warnings", "-l", os.path.join(MAN, name)], capture_output=True, text=True, timeout=60, env={**os.environ, "LC_ALL": "C", "MANPAGER": "cat"}
    )
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout) > 500, done.stderr


@pytest.mark.needs_mount
def test_verbs_and_flags(binary):
    """Each verb in its place, with the flags that its help shows and no other, and the words of its synopsis and exit codes."""
    told = parts(rendered("cairn.1").split("\nVERBS", 1)[1].split("\nENVIRONMENT", 1)[0], 3)
    listed = re.findall(r"^  cairn (\S+)", help_of(binary), re.M)
    assert list(told) == listed
    for verb in listed:
        text = help_of(binary, verb).split("\nOptions", 1)[0]
        assert set(FLAG.findall(told[verb])) == set(FLAG.findall(text)), verb
        synopsis = re.findall(r"[A-Z]{3,}", text.split("\n", 1)[0])
        assert all(word in told[verb] for word in synopsis), (verb, synopsis)
        codes = re.findall(r"Exit codes: (.*)\.", text)[-1]
        assert re.findall(r"\d+", re.findall(r"Exit codes: (.*)\.", told[verb])[-1]) == re.findall(r"\d+", codes), verb


@pytest.mark.needs_mount
def test_options(binary):
    """The options of a mount: kinds of values, words, and the text with its default."""
    entry = re.compile(r"^\.It Cm (\w+)(?: Ns = Ns (?:Ar (\w+)|Cm (.*)))?\n((?:[^.].*\n)+)", re.M)
    told = {name: (kind, words, text) for name, kind, words, text in entry.findall(page("mount.cairnfs.8"))}
    shown = re.findall(r"^  (\w+)(?:=(\w+))? +(.*)$", help_of(binary, "mount").split("\nOptions", 1)[1], re.M)
    assert list(told) == [name for name, _, _ in shown]
    completion = subprocess.run([binary, "completion", "bash"], capture_output=True, text=True, timeout=300).stdout
    for name, kind, text in shown:
        if kind == "WORD":
            words = set(re.findall(rf"\b{name}=(\w+) ", completion))
            assert words and set(told[name][1].split(" | ")) == words, name
        else:
            assert told[name][0] == kind, name
        assert " ".join(told[name][2].split()).rstrip(".").lower() == text.strip().rstrip(".").lower(), name


@pytest.mark.needs_mount
def test_options_of_every_filesystem(binary, folder):
    """What the page says is taken is, in the list that mount(8) hands over; what it says is refused is."""
    text = page("mount.cairnfs.8").split(".Ss Of every filesystem", 1)[1].split("Anything else", 1)
    helper = os.path.join(folder, "mount.cairnfs")
    os.symlink(binary, helper)

    def complaint(name):
        value = "=x" if name in ("comment", "fsname", "subtype", "uhelper") else ""
        return subprocess.run([helper, folder + "/none/store", folder, "-f", "-o", name + value], capture_output=True, text=True, timeout=300).stderr

    taken = re.findall(r"\.Cm (\w+)", text[0])
    assert len(taken) > 20
    for name in taken:
        assert "is unknown" not in complaint(name), name
    refused = re.findall(r"\.Cm (\w+)", text[1].split(".Sh", 1)[0])
    assert refused == ["sync", "dirsync"] and all("is unknown" in complaint(name) for name in refused)


def structures():
    row = re.compile(r"^\.It ([a-z ]+) Ta (\w+) Ta (\d+) Ta (\d+) Ta (.*)$", re.M)
    return row.findall(page("cairn-format.5"))


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
    named = [name for names in re.findall(r"^\.Pq Em (.*?)(?: [:;,.])?$", page("cairn-format.5"), re.M) for name in names.split(" , ")]
    assert len(named) > 6 and set(named) <= set(sections), named


def test_all_pages_are_here():
    assert sorted(os.path.basename(path) for path in glob.glob(MAN + "/*")) == sorted(PAGES)


def test_the_page_of_the_library_names_each_call():
    with open(os.path.join(ROOT, "include", "cairn", "cairn.h")) as file:
        header = file.read()
    calls = set(re.findall(r"^CAIRN_API [^(;]*?\b(cairn_\w+)\(", header, re.M))
    constants = set(re.findall(r"\bCAIRN_(?:SAVE|SOURCE)_[A-Z_]+\b", header))
    text = page("libcairn.3")
    assert len(calls) > 15 and sorted(calls - set(re.findall(r"\bcairn_\w+", text))) == []
    assert sorted(constants - set(re.findall(r"\bCAIRN_\w+", text))) == []
