# SPDX-License-Identifier: Apache-2.0
"""What the daemon of a mount says of files there: how their bytes are stored, and where two of them have the same.

It answers root and who mounted; others, files elsewhere and older daemons get None. So does content that is not on NVMe yet, and a file
that has changed since it was seen here."""
from __future__ import annotations

import bisect
import json
import os
import socket
from typing import Any

from . import _mounts

SECONDS = 30  # for one answer, at most
LITTLE = 16 << 10  # bytes that are read at once where the next ones may be a tensor's


class File:
    """A file as it is before anything of it is read, so that no answer is taken for that of a later one."""

    def __init__(self, path: str) -> None:
        found = os.stat(path)
        self.path, self.device, self.number = path, found.st_dev, found.st_ino
        self.mark = f"{found.st_size}:{found.st_mtime_ns}"

    def read(self, at: int, to: int) -> bytes:
        with open(self.path, "rb", 0) as file:
            return os.pread(file.fileno(), to - at, at)


def ask(device: int, request: dict[str, Any]) -> dict[str, Any] | None:
    """None: there is no answer."""
    store = _mounts.store_of(device)
    if store is None:
        return None
    try:
        directory = os.open(store, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
            daemon.settimeout(SECONDS)
            daemon.connect(f"/proc/self/fd/{directory}/control")  # its own path may be too long for a socket
            daemon.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(daemon.makefile("rb").readline())
    except (OSError, ValueError):
        return None
    finally:
        os.close(directory)
    return answer if isinstance(answer, dict) and "errno" not in answer else None


class Extents:
    """The parts of a file that lie in chunks, in order."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows, self.starts = rows, [row[0] for row in rows]

    def stored(self, offset: int, length: int) -> int:
        """Of a chunk that reaches beyond, by the share of its bytes."""
        total = 0.0
        first, behind = bisect.bisect_right(self.starts, offset) - 1, bisect.bisect_left(self.starts, offset + length)
        for at, size, raw, stored in self.rows[max(0, first) : behind]:
            total += max(0, min(at + size, offset + length) - max(at, offset)) * stored / raw
        return round(total)


def extents_of(file: File) -> Extents | None:
    rows: list[list[int]] = []
    at: int | str = 0
    while True:
        answer = ask(file.device, {"verb": "extents", "ino": str(file.number), "at": at})
        if answer is None or answer["file"] != file.mark:
            return None
        rows += ([int(number) for number in row.split(":")] for row in answer["extents"])
        if "at" not in answer:
            return Extents(rows)
        at = answer["at"]


class Equality:
    """Of bytes at the same place of two files: one question for each two files."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], list[tuple[int, int]] | None] = {}

    def has(self, one: File, other: File, offset: int, length: int) -> bool:
        """False: they differ, or it is not known. Small tensors, and the ends of items, share chunks with what lies beside them: these are
        compared."""
        key = one.path, other.path
        if key not in self.known:
            self.known[key] = differing(one, other)
        ranges = self.known[key]
        if ranges is None:
            return False
        parts = [(max(at, offset), min(at + size, offset + length)) for at, size in ranges if at < offset + length and offset < at + size]
        return sum(to - at for at, to in parts) <= LITTLE and all(one.read(at, to) == other.read(at, to) for at, to in parts)


def differing(one: File, other: File) -> list[tuple[int, int]] | None:
    if one.device != other.device:
        return None
    answer = ask(one.device, {"verb": "differ", "ino": str(one.number), "other": str(other.number)})
    if answer is None or (answer["file"], answer["other"]) != (one.mark, other.mark):
        return None
    return [tuple(map(int, row.split(":"))) for row in answer["ranges"]]
