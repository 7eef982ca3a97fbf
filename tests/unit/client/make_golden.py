#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden/torch-zip*.bin: what torch.save puts around the content of records, to hold src/client/zip.c against.

Each file is the archive without the content: local headers, descriptors, directory and ends, one behind the other. `big` has a record above
4 GiB and one that begins there. Run with a torch whose format is meant to be pinned (2.13.0 wrote these); test_zip.c has the same list."""
import os

import torch

GIB = 1 << 30
SMALL = [("data.pkl", b"pickle"), (".format_version", b"1"), ("byteorder", b"little"), ("data/0", bytes(1000)), ("data/1", b""),
         ("version", b"3\n")]
BIG = [("data.pkl", b"pickle"), ("data/0", 4 * GIB + 100), ("data/1", bytes(77)), ("data/2", b""), ("version", b"3\n")]


class Around:
    """Takes the archive, and keeps all but the content."""

    def __init__(self, skips):
        self.kept, self.skips = bytearray(), [n for n in skips if n]

    def write(self, data):
        if self.skips and len(data) == self.skips[0]:
            self.skips.pop(0)
            self.last = bytes(data) if len(data) < 100 else None
        else:
            self.kept += bytes(data)
        return len(data)


def around(records):
    sizes = [data if isinstance(data, int) else len(data) for _, data in records]
    out = Around([*sizes, *([] if "byteorder" in dict(records) else [6]), 40])  # what the writer adds by itself
    writer = torch._C.PyTorchFileWriter(out)
    for (name, data), size in zip(records, sizes):
        if isinstance(data, int):
            writer.write_record(name, torch.zeros(size, dtype=torch.uint8).untyped_storage(), size)
        else:
            writer.write_record(name, data, size)
    writer.write_end_of_file()
    assert not out.skips, out.skips
    return bytes(out.kept), out.last


if __name__ == "__main__":
    directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
    for name, records in (("torch-zip", SMALL), ("torch-zip-big", BIG)):
        data, serialization_id = around(records)
        print(name, len(data), "bytes; its .data/serialization_id is", serialization_id.decode())
        with open(os.path.join(directory, name + ".bin"), "wb") as file:
            file.write(data)
