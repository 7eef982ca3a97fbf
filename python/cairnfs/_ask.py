# SPDX-License-Identifier: Apache-2.0
"""Questions to filesystems, by threads of the package: one may take as long as it likes for an answer, and a caller may have a deadline."""
import collections
import errno
import os
import threading
import time

from . import _process

THREADS = 8  # that filesystems may hold up at once; then questions wait for these
MOMENT = 0.2  # seconds: a caller that does not wait still gets the answer of a filesystem that is well


class Question:
    def __init__(self, function, key):
        self.function, self.key, self.answer, self.error, self.done = function, key, None, None, threading.Event()

    def put(self):
        try:
            self.answer = self.function()
        except Exception as error:
            self.error = error
        self.done.set()


class Askers:
    """The threads, started as they are needed. `_work` guards the fields."""

    def __init__(self):
        self._work = threading.Condition()
        self._queue = collections.deque()
        self._keyed = {}  # key: Question that waits or is put
        self._threads = self._idle = 0

    def enter(self, function, key):
        with self._work:
            if key in self._keyed:
                return self._keyed[key]
            if self._idle <= len(self._queue) and self._threads < THREADS:
                self._start()
            question = Question(function, key)
            self._queue.append(question)
            if key is not None:
                self._keyed[key] = question
            self._work.notify()
            return question

    def _start(self):
        try:
            threading.Thread(target=self._run, name="cairnfs-ask", daemon=True).start()
            self._threads += 1
        except RuntimeError:  # the machine gives no more
            if self._threads == 0:
                raise

    def leave(self, question):
        """The caller does not wait any more. A question with a key stays, for a later caller."""
        with self._work:
            if question.key is None and question in self._queue:
                self._queue.remove(question)

    def _run(self):
        with _process.quietly():
            while True:
                question = self._take()
                question.put()
                with self._work:
                    self._keyed.pop(question.key, None)

    def _take(self):
        with self._work:
            self._idle += 1
            while not self._queue:
                self._work.wait()
            self._idle -= 1
            return self._queue.popleft()


_askers = Askers()
os.register_at_fork(after_in_child=_askers.__init__)


def ask(path, function, deadline=None, show=None, key=None):
    """Calls function() in another thread, and returns its result or raises its exception. TimeoutError: the deadline has passed. The call
    goes on, and a later caller with the same key gets its result."""
    question = _askers.enter(function, key)
    try:
        while not question.done.wait(_process.SLICE if deadline is None else max(0.0, min(_process.SLICE, deadline - time.monotonic()))):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "the filesystem has not answered yet", path)
            if show:
                show()
    finally:
        _askers.leave(question)
    if question.error is not None:
        raise question.error
    return question.answer


def tell(function, key):
    """Has function() called in another thread, unless a call with this key waits or goes on. Returns at once; nobody hears how it ends."""
    try:
        _askers.enter(function, key)
    except RuntimeError:  # the machine gives no thread
        pass


def look(path, function, deadline=None):
    """ask() for calls that return at once if the filesystem answers: they get a moment, even if the deadline has passed."""
    return ask(path, function, deadline if deadline is None else max(deadline, time.monotonic() + MOMENT))
