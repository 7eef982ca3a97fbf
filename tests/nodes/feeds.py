# SPDX-License-Identifier: Apache-2.0
"""Feeds of a prefix, as docs/on-disk-format.md tells."""
import re
import struct

LEAVES = 1
FOR_EVER = 2**40 - 1


class Feed:
    def __init__(self, data):
        assert data[:8] == b"CAIRNFED", data[:8]
        self.epoch, self.node, self.flags = struct.unpack_from("<QII", data, 32)
        self.start, self.to, self.lo, self.hi = struct.unpack_from("<4Q", data, 56)
        self.previous = data[88:120]
        self.runs = struct.unpack_from("<I", data, 140)[0]
        self.records, self.head = struct.unpack_from("<I", data, 200)[0], struct.unpack_from("<Q", data, 208)[0]

    def __repr__(self):
        return f"{self.epoch:x}: {self.start:x} to {self.to:x} at {self.lo:x} to {self.hi:x}, {self.records} records, head {self.head}"


def feeds_of(remote):
    """By epoch, each ascending."""
    found = {}
    for name in remote.names("feeds"):
        if not re.fullmatch(r"feeds/[0-9a-f]{16}-[0-9a-f]{16}", name):
            continue  # one that is being put
        feed = Feed(remote.get(name))
        assert name == f"feeds/{feed.hi:016x}-{feed.epoch:016x}"
        found.setdefault(feed.epoch, []).append(feed)
    return {epoch: sorted(feeds, key=lambda feed: feed.hi) for epoch, feeds in found.items()}


def check_line(feeds):
    """Each goes on where the one before ended, and no round is told twice."""
    for before, feed in zip(feeds, feeds[1:]):
        assert feed.start == before.to and feed.lo > before.hi, feeds
        assert before.flags == 0
    assert feeds[0].previous == bytes(32)
    assert all(feed.previous != bytes(32) for feed in feeds[1:])
