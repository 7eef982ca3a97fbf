# SPDX-License-Identifier: Apache-2.0
"""A static function's name says what it acts on: it is more than one word, no other file has one of that name, and one of its words is
its file's noun, or of few files. "take" in a profile or a patch could be of any file; so could "add_entry", which is
profiles_add_entry() or scrub_add_entry(), or "give_row", which is give_cut_row()."""
import collections
import os
import re

import pytest

from test_circles import NOISE, definitions
from test_layers import SRC, sources

# The steps of a kernel have the same names for each instruction set: these files count as one.
KERNELS = re.compile(r"codec/(\w+_(avx2|avx512|neon|scalar)\.c|dx_lanes\.h|dx_vector\w*\.h|neon_masks\.h)")
# A word is general if static functions of so many files have it. No name fails with 16 either: a word may come into two more files.
GENERAL_FILES = 18


def static_functions(src):
    for path in sources(src):
        with open(path) as file:
            text = NOISE.sub(" ", file.read())
        for name, is_static in definitions(text):
            if is_static:
                yield os.path.relpath(path, src), name


def bare_words(src):
    """file: name of each static function whose name is one word."""
    for path, name in static_functions(src):
        if "_" not in name:
            yield f"{path}: {name}"


def shared_names(src):
    """name: files of each that static functions of several files have."""
    files = collections.defaultdict(set)
    for path, name in static_functions(src):
        files[name].add("codec/" if KERNELS.fullmatch(path) else path)
    for name, where in sorted(files.items()):
        if len(where) > 1:
            yield f"{name}: {' '.join(sorted(where))}"


def stem(word):
    """Of `chunks`, `forgetting` and `named`: `chunk`, `forget` and `nam`."""
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def is_of(word, noun):
    """Have a name's word and one of a file's name the same stem? An adoption is of adopt.c, what is read of reader.c."""
    short, long = sorted((stem(word), stem(noun)), key=len)
    return short == long or (len(short) >= 4 and long.startswith(short))


def general_names(src, least):
    """file: name of each static function of which all words are general, and none is of its file. A header's are of its directory."""
    files, names = collections.defaultdict(set), list(static_functions(src))
    for path, name in names:
        for word in name.split("_"):
            files[stem(word)].add(path)
    for path, name in names:
        words, nouns = name.split("_"), os.path.basename(path)[:-2].split("_")
        is_general = all(len(files[stem(word)]) >= least for word in words)
        has_noun = any(is_of(word, noun) for word in words for noun in nouns)
        if is_general and not has_noun and path.endswith(".c") and not KERNELS.fullmatch(path):
            yield f"{path}: {name}"


@pytest.mark.timeout(60)
def test_static_functions_name_what_they_act_on():
    assert list(bare_words(SRC)) == []


@pytest.mark.timeout(60)
def test_a_name_is_of_one_file():
    assert len(list(static_functions(SRC))) > 3000
    assert list(shared_names(SRC)) == [], "begin with the noun of the file: scrub_add_entry()"


@pytest.mark.timeout(60)
def test_not_all_words_of_a_name_are_general():
    assert list(general_names(SRC, GENERAL_FILES)) == [], "add the noun of the file, or the object: give_cut_row()"


def test_bare_words_are_seen(tmp_path):
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "hidden.c").write_text(
        "static inline __attribute__((always_inline)) void add(int x)\n{\n}\n\nstatic inline __attribute__((cold)) int\nlook(int x)\n{\n"
        "    return x == '\"';\n}\n\nstatic int drop(int x)\n{\n    return x == '\\'' || x == '\"';\n}\n\n"
        "__attribute__((constructor)) static void begin(void)\n{\n}\n")
    (tmp_path / "queue" / "queue.c").write_text(
        "static int take(struct queue *q)\n{\n    return q->first;\n}\n\n"
        "static struct job *give(struct queue *q,\n                        int job)\n{\n    return 0;\n}\n\n"
        "static inline bool is_full(void)\n{\n    return take(0);\n}\n/* static int left(void) { */\nint queue(void)\n{\n    return 1;\n}\n")
    assert list(bare_words(str(tmp_path))) == [
        "queue/hidden.c: add", "queue/hidden.c: look", "queue/hidden.c: drop", "queue/hidden.c: begin",
        "queue/queue.c: take", "queue/queue.c: give"]


def test_shared_names_are_seen(tmp_path):
    (tmp_path / "codec").mkdir()
    for name, function in {"codec/fx_avx2.c": "join_4", "codec/fx_scalar.c": "join_4", "a.c": "add_entry", "b.c": "add_entry",
                           "c.c": "c_add_entry"}.items():
        (tmp_path / name).write_text(f"static int {function}(int x)\n{{\n    return x;\n}}\n")
    assert list(shared_names(str(tmp_path))) == ["add_entry: a.c b.c"]
    (tmp_path / "c.c").write_text("static void join_4(void)\n{\n}\n")
    assert list(shared_names(str(tmp_path))) == ["add_entry: a.c b.c", "join_4: c.c codec/"]


def test_general_names_are_seen(tmp_path):
    for name, functions in {"cut.c": ("give_row", "give_cut_row", "give_removed", "read_cut"), "rows.c": ("give_rows", "reading_cuts"),
                            "reader.c": ("gives_read_row",), "given.h": ("read_row",)}.items():
        text = "".join(f"static int {function}(int x)\n{{\n    return x;\n}}\n" for function in functions)
        (tmp_path / name).write_text(text)
    assert list(general_names(str(tmp_path), 3)) == ["cut.c: give_row"]
    assert list(general_names(str(tmp_path), 5)) == []
