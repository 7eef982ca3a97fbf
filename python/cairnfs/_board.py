# SPDX-License-Identifier: Apache-2.0
"""Counters of the saves that each rank has begun and ended, in memory that all ranks of one machine share. With them a rank sees, without a
message, that the store of the job has nothing new."""
import json
import mmap
import os

NOTHING = "-"
WORD = 8  # bytes
FIELDS = 2  # of a rank: saves begun, saves ended


class Board:
    """Only its rank writes the two counters of a rank. The rank that comes first makes the memory, and writes its place into the store.

    The ranks of one process group trust the board (`is_complete`) when each of them has read a registration of all. A registration has a
    random word. So a registration of an older group on the same store does not count: its process has not read the newer ones."""

    def __init__(self, store, rank, ranks, me, is_dead):
        """me: the identity of this process (_job.identity()). OSError: this rank can have no part in it."""
        self.store, self.rank, self.ranks, self.me, self.is_dead = store, rank, ranks, me, is_dead
        self.at = FIELDS * rank
        self.is_complete = False
        number = self.open(FIELDS * WORD * ranks)
        self.memory = mmap.mmap(number, FIELDS * WORD * ranks)
        if self.first["pid"] != me["pid"]:  # else it stays open: other ranks open it by this number
            os.close(number)
        self.counters = memoryview(self.memory).cast("Q")
        before = self.text(f"boards/{rank}")
        if before and before["me"] != me:
            if not self.is_dead(before["me"]):
                raise OSError("the process that was this rank in an older group may still end saves")
            self.counters[self.at + 1] = self.counters[self.at]
        self.registered = {"first": self.first, "me": me, "word": os.urandom(8).hex()}
        store.set(f"boards/{rank}", json.dumps(self.registered))
        store.add("boards", 1)

    def open(self, size):
        number = os.memfd_create("cairnfs-order", os.MFD_CLOEXEC)
        os.ftruncate(number, size)
        mine = {"place": f"/proc/{os.getpid()}/fd/{number}", "inode": os.fstat(number).st_ino, "pid": self.me["pid"]}
        self.first = json.loads(self.store.compare_set(f"board/{self.me['host']}", "", json.dumps(mine)))
        if self.first == mine:
            return number
        os.close(number)
        number = os.open(self.first["place"], os.O_RDWR | os.O_CLOEXEC)
        found = os.fstat(number)
        if (found.st_ino, found.st_size) != (self.first["inode"], size):
            os.close(number)
            raise OSError("the process that made the board has ended")
        return number

    def text(self, key):
        found = self.store.compare_set(key, NOTHING, NOTHING).decode()
        return None if found == NOTHING else json.loads(found)

    def begin(self):
        self.counters[self.at] += 1

    def end(self):
        self.counters[self.at + 1] += 1

    def others(self):
        """The counters of the other ranks, as bytes to compare. None: some ranks have no part in this memory."""
        if not self.is_complete:
            return None
        at = WORD * self.at
        return self.memory[:at] + self.memory[at + FIELDS * WORD :]

    def complete(self):
        """Looks whether all ranks have read the same registrations as this one."""
        found = [self.text(f"boards/{rank}") for rank in range(self.ranks)]
        if found[self.rank] != self.registered or any(one is None or one["first"] != self.first for one in found):
            return
        words = json.dumps([one["word"] for one in found])
        self.store.set(f"read/{self.rank}", words)
        self.is_complete = all(self.text(f"read/{rank}") == json.loads(words) for rank in range(self.ranks))


def all_ended(counters):
    """Of a result of others()."""
    words = memoryview(counters).cast("Q")
    return words[::FIELDS].tolist() == words[1::FIELDS].tolist()
