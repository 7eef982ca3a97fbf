# SPDX-License-Identifier: Apache-2.0
"""A static function's name says what it acts on: it is more than one word. "take" in a profile or a patch could be of any file."""
import os

import pytest

from test_circles import NOISE, definitions
from test_layers import SRC, sources


def bare_words(src):
    """file: name of each static function whose name is one word."""
    for path in sources(src):
        with open(path) as file:
            text = NOISE.sub(" ", file.read())
        for name, is_static in definitions(text):
            if is_static and "_" not in name:
                yield f"{os.path.relpath(path, src)}: {name}"


@pytest.mark.timeout(60)
def test_static_functions_name_what_they_act_on():
    assert list(bare_words(SRC)) == []


def test_bare_words_are_seen(tmp_path):
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "queue.c").write_text(
        "static int take(struct queue *q)\n{\n    return q->first;\n}\n\n"
        "static struct job *give(struct queue *q,\n                        int job)\n{\n    return 0;\n}\n\n"
        "static inline bool is_full(void)\n{\n    return take(0);\n}\n/* static int left(void) { */\nint queue(void)\n{\n    return 1;\n}\n")
    assert list(bare_words(str(tmp_path))) == ["queue/queue.c: take", "queue/queue.c: give"]
