# SPDX-License-Identifier: Apache-2.0
"""Acts of adapters behind a checkpoint: removing older ones, setting links. They run when the checkpoint has its name, never before."""
import os
import threading

from . import _process
from . import _library as lib
from ._log import logger


class Later:
    """Acts in the order in which they were asked for, each when a save that was the newest then, or a later one, has its name.

    `_lock` guards the fields, for moments; `_running` is held while acts run, so that a waiter sees them done.
    """

    def __init__(self):
        self._lock, self._running = threading.Lock(), threading.RLock()
        self._begun = 0  # saves, counted
        self._whole = 0  # the highest number of a save that has its name
        self._acts = []  # (number, path that it is about, function)

    def begun(self, save):
        """Of each save of the adapter."""
        save.add_done_callback(self.coming())
        return save

    def coming(self):
        """A save that is made later: the function is called with it, when it has its name or has failed."""
        with self._lock:
            self._begun += 1
            number = self._begun
        return lambda save: self._ended(save, number)

    def _ended(self, save, number):
        if save.error is None:
            with self._lock:
                self._whole = max(self._whole, number)
            self.run()

    def do(self, function, path=None):
        """function() when the newest save has its name; now, if it has. path: see about() and forget()."""
        with self._lock:
            self._acts.append((self._begun, path, function))
            due = self._whole >= self._begun
        if due:
            self.run()

    def about(self, path):
        """An act about this path is still to come."""
        with self._lock:
            return any(found == path for _, found, _ in self._acts)

    def forget(self, path):
        """The path is saved anew: acts about it are dropped."""
        with self._lock:
            self._acts = [act for act in self._acts if act[1] != path]

    def run(self):
        """Runs the acts that are due."""
        with self._running, _process.quietly():
            while True:
                with self._lock:
                    ready = next((act for act in self._acts if act[0] <= self._whole), None)
                    if ready is None:
                        return
                    self._acts.remove(ready)
                try:
                    ready[2]()
                except OSError as error:
                    logger.warning("what comes after a save failed: %s", error)

    def settle(self):
        """Waits for the names of all saves of this process, and does the acts after them. Errors are not raised: they are told as those
        of all saves."""
        _process.wait_all(list(_process.current().pending), lib.PUBLISHED, None)
        with self._running:
            process = _process.current()
            process.look()
            process.do()
            self.run()


def make():
    """A Later for an adapter: empty in the child of a fork; acts that are left are done at the end of the process."""
    later = Later()
    os.register_at_fork(after_in_child=later.__init__)
    _process.at_end.append(later.run)
    return later
