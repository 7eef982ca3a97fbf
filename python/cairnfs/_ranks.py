# SPDX-License-Identifier: Apache-2.0
"""A marker behind the saves of all ranks of torch.distributed.

Each rank counts itself in the key-value store of the job when its saves have their names, and leaves a text there if one failed. Rank 0
looks, in a thread, and writes the marker when all are counted. So no rank waits for another one in a step, and none has to call a
collective later.

Where several nodes write one directory (`-o nodes`), each rank also leaves the number of its node's newest operation, and rank 0 gives all
of them to its mount before the marker: a *hint*. The marker then shows nowhere without what the ranks saved, whatever their clocks say.
"""
import collections
import errno
import os
import threading
import time

import torch.distributed as distributed

from . import _ask, _process
from . import _library as lib
from ._api import marker
from ._log import logger
from ._save import Save

POLL = 0.02  # seconds
NEWEST, BEHIND = "user.cairn.newest", "user.cairn.behind"
ANSWER = 5.0  # seconds for the answer of a mount; without it there is no hint
_round = 0  # of this process, the same on all ranks: each of them calls marker_behind_all() for the same markers in the same order
_under_way = collections.deque()  # rounds of rank 0, oldest first: a marker is never written before an older one
_changed = threading.Condition()  # guards _under_way and _thread
_thread = None
_ending = None  # when the process gives up


def marker_behind_all(path, data, saves, then=lambda save: None):
    """The marker `path`, when the saves of this rank and those of all others have their names. Every rank calls it, and it does not block.
    One of the saves fails: so does the marker, on rank 0, and each other rank says nothing but of its own saves.
    then(save): where the marker is written, once it has its name or has failed."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        marker(path, data, after=saves).add_done_callback(then)
        return
    global _round
    _round += 1
    word = Word(distributed.PrefixStore(f"cairnfs/{_round}", job_store()), os.path.dirname(os.path.abspath(path)), saves)
    if distributed.get_rank() == 0:
        with _changed:
            _under_way.append((path, data, word.store, distributed.get_world_size(), then))
            start_thread()
            _changed.notify_all()
    word.give()


def job_store():
    """ValueError: this job has none."""
    store = distributed.distributed_c10d._get_default_store() if distributed.is_initialized() else None
    if store is None and distributed.is_initialized() and distributed.get_world_size() > 1:
        backend = distributed.get_backend()
        raise ValueError(f"the process group ({backend}) has no key-value store, by which ranks could tell of their saves")
    return store


class Word:
    """Tells rank 0 that the saves of this rank have ended, and whether one failed. The last save to end tells it, once."""

    def __init__(self, store, directory, saves):
        self.store, self.directory, self.saves, self.open = store, directory, saves, len(saves)
        self.rank = distributed.get_rank()

    def give(self):
        if not self.saves:
            self.say()
        for save in list(self.saves):
            save.add_done_callback(self.one_is_done)

    def one_is_done(self, save):
        with _process.lock():
            self.open -= 1
            last = self.open == 0
        if last:
            self.say()

    def say(self):
        failed = next((save for save in self.saves if save.error is not None), None)
        try:
            if failed is not None:
                self.store.set("failed", f"{failed.path} of rank {self.rank} was not saved: {failed.error.strerror}")
            if number := ask(self.directory, lambda: os.getxattr(self.directory, NEWEST).decode()):
                self.store.set(f"newest/{self.rank}", number)
            self.store.add("done", 1)
        except RuntimeError as error:
            logger.warning("rank 0 was not told of the saves of rank %d: %s", self.rank, error)
        self.saves = ()


def ask(directory, question):
    """None: several nodes do not write it, or it does not answer."""
    try:
        return _ask.ask(directory, question, time.monotonic() + ANSWER)
    except OSError as error:
        logger.debug("%s: no hint: %s", directory, error)
        return None


def start_thread():
    """With the lock."""
    global _thread
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=write_markers, name="cairnfs-ranks", daemon=True)
        _thread.start()


def write_markers():
    """The thread of rank 0."""
    while True:
        with _changed:
            while not _under_way:
                if _ending is not None:
                    return
                _changed.wait()
            path, data, store, ranks, then = _under_way[0]
        try:
            then(write_marker(path, data, store, ranks))
        except Exception:
            logger.exception("%s was not written", path)
        with _changed:
            _under_way.popleft()
            _changed.notify_all()


def write_marker(path, data, store, ranks):
    """The save, which has its name or has failed."""
    cause, numbers = wait_for_ranks(store, ranks)
    if cause is None and numbers:
        directory = os.path.dirname(os.path.abspath(path))
        ask(directory, lambda: os.setxattr(directory, BEHIND, " ".join(["1", *sorted(numbers)]).encode()))
    if cause is None:
        written = marker(path, data, after=())
        _process.wait_all([written], lib.PUBLISHED, None)
        return written
    process, failed = _process.current(), Save(os.fspath(path))
    failed.is_marker = True
    failed.fail(OSError(errno.ECANCELED, cause, failed.path))
    process.end(failed)
    return failed


def wait_for_ranks(store, ranks):
    """None if all their saves have their names, else why the marker is not to be written; and the numbers of their nodes' operations."""
    try:
        while (done := store.add("done", 0)) < ranks:
            if _ending is not None and time.monotonic() > _ending:
                return f"{ranks - done} of {ranks} ranks have not told that their saves are done", set()
            time.sleep(POLL)
        cause = take(store, "failed")
        numbers = {take(store, f"newest/{rank}") for rank in range(ranks)} - {None}
        store.delete_key("done")
        return cause, numbers
    except RuntimeError as error:
        return f"the store of the job does not answer: {error}", set()


def take(store, key):
    """None: nobody left it."""
    if not store.check([key]):
        return None
    text = store.get(key).decode(errors="replace")
    store.delete_key(key)
    return text


def owes(path):
    """True on rank 0 if it has yet to write this marker."""
    path = os.path.abspath(path)
    with _changed:
        return any(os.path.abspath(one[0]) == path for one in _under_way)


def wait(timeout=None):
    """Until rank 0 has written the markers that it was given, or cannot; at once on other ranks. False: `timeout` seconds have passed."""
    with _changed:
        return _changed.wait_for(lambda: not _under_way, timeout)


def before_end():
    """At the end of the process: waits for the markers that it has yet to write."""
    global _ending
    with _changed:
        _ending = time.monotonic() + _process.EXIT_WAIT
        _changed.notify_all()
        if not _under_way or _changed.wait_for(lambda: not _under_way, 1):
            return
    _process.say(f"waiting for the saves of other ranks, up to {_process.EXIT_WAIT:.0f} s: {_under_way[0][0]}")
    wait()


def after_fork():
    """In the child: the parent writes the markers of rank 0."""
    global _changed, _thread
    _changed, _thread = threading.Condition(), None
    _under_way.clear()


_process.before_end.append(before_end)
os.register_at_fork(after_in_child=after_fork)
