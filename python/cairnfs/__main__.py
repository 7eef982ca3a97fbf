# SPDX-License-Identifier: Apache-2.0
"""usage: python -m cairnfs inspect [--json] CHECKPOINT
       python -m cairnfs diff [--json] [--all] CHECKPOINT OTHER

inspect  list the tensors of a checkpoint: type, shape, place, bytes, and what these take on a mount of CairnFS; no tensor is read
diff     say how the tensors of two checkpoints differ; --all: list also those that are the same

A checkpoint is a file of torch.save, a .safetensors file, or a directory of torch.distributed.checkpoint.
Ends with 0; diff with 1 where they differ; with 2 where it cannot be read.
"""
import argparse
import dataclasses
import json
import pickle
import sys

from ._inspect import add_stored, differences, entries_of
from ._library import NoLibrary
from ._reading import NotCovered


def main(arguments=None):
    parser = argparse.ArgumentParser("python -m cairnfs", usage=__doc__.partition("usage: ")[2], add_help=True)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, paths in (("inspect", ["path"]), ("diff", ["path", "other"])):
        each = verbs.add_parser(verb, usage=parser.usage)
        each.add_argument("--json", action="store_true")
        if verb == "diff":
            each.add_argument("--all", action="store_true")
        for name in paths:
            each.add_argument(name)
    asked = parser.parse_args(arguments)
    try:
        return inspect(asked) if asked.verb == "inspect" else diff(asked)
    except (OSError, ValueError, RuntimeError, pickle.UnpicklingError, NotCovered, NoLibrary) as why:
        print(f"python -m cairnfs {asked.verb}: {why}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 2


def type_of(entry):
    return "value" if entry.kind is None else str(entry.kind).removeprefix("torch.")


def inspect(asked):
    entries = entries_of(asked.path)
    add_stored(entries)
    if asked.json:
        fields = ("name", "shape", "file", "offset", "bytes", "stored_bytes")
        print(json.dumps([{"type": type_of(e), **{field: getattr(e, field) for field in fields}} for e in entries]))
        return 0
    rows = [(type_of(e), str(list(e.shape)) if e.shape is not None else "", "" if e.offset is None else str(e.offset),
             "" if e.bytes is None else str(e.bytes), "" if e.bytes is None else "-" if e.stored_bytes is None else str(e.stored_bytes),
             e.name) for e in entries]  # fmt: skip
    print_table([("TYPE", "SHAPE", "OFFSET", "BYTES", "STORED", "NAME"), *rows])
    tensors = [e for e in entries if e.kind is not None]
    places = {(e.file, e.offset): e for e in entries if e.bytes is not None}.values()
    total = f"{len(tensors)} tensors and {len(entries) - len(tensors)} other values, {sum(e.bytes for e in places)} bytes"
    print(total if any(e.stored_bytes is None for e in places) or not places else f"{total}, {sum(e.stored_bytes for e in places)} stored")
    return 0


def diff(asked):
    found = differences(asked.path, asked.other)
    changes = [each for each in found if each.what != "same"]
    if asked.json:
        print(json.dumps([dataclasses.asdict(each) for each in (found if asked.all else changes)]))
        return int(bool(changes))
    rows = [(each.what, "" if each.largest is None else f"{each.largest:.3g}", "" if each.relative is None else f"{each.relative:.3g}",
             each.name + (f": {each.detail}" if each.detail else "")) for each in (found if asked.all else changes)]  # fmt: skip
    if rows:
        print_table([("WHAT", "LARGEST", "RELATIVE", "NAME"), *rows])
    counts = {what: sum(each.what == what for each in found) for what in ("same", "changed", "added", "removed")}
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return int(bool(changes))


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        print(*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1], sep="  ")


if __name__ == "__main__":
    sys.exit(main())
