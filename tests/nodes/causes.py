# SPDX-License-Identifier: Apache-2.0
"""What a state of the union may be: it has, with an operation, all that was acknowledged on any node before that one began."""
import bisect
import threading

GONE = None  # a path that is not there


class Change:
    """One version of a path: `size`, or GONE. A retry after a daemon's death is the same change: it begins with the first try."""

    def __init__(self, size, begin):
        self.size, self.begin, self.end = size, begin, float("inf")


class Causes:
    """All changes of a job. Each path has one writer, which makes one change after the other."""

    def __init__(self):
        self.lock, self.clock, self.paths = threading.Lock(), 0, {}

    def begin(self, path, size):
        with self.lock:
            self.clock += 1
            change = Change(size, self.clock)
            self.paths.setdefault(path, []).append(change)
            return change

    def end(self, change):
        with self.lock:
            self.clock += 1
            change.end = self.clock

    def torn(self, state):
        """state: {path: size}. Why it is none that all nodes together ever had; None: it may be one."""
        strangers = [path for path in state if path not in self.paths and not path.endswith(".tmp")]
        if strangers:
            return f"nobody wrote {strangers}"
        newest, why, changed = 0, "nothing", True
        while changed:
            changed = False
            for path, changes in self.paths.items():
                least = bisect.bisect_left(changes, newest, key=lambda change: change.end)  # so many versions it must have had
                begin = first_match(changes, least, state.get(path, GONE))
                if begin is None:
                    return f"{path} has size {state.get(path, GONE)}, though {tell(changes, least)} was acknowledged before {why}"
                if begin > newest:
                    newest, why, changed = begin, f"{path} became {state.get(path, GONE)}", True
        return None

    def newest(self):
        """{path: size} once all changes are done."""
        return {path: changes[-1].size for path, changes in self.paths.items() if changes[-1].size is not GONE}


def tell(changes, least):
    return f"size {changes[least - 1].size}" if least else "nothing"


def first_match(changes, least, size):
    """When the version began that the state has at the earliest, among those from `least` on. None: it can be none of these."""
    if size is GONE and least == 0:
        return 0
    for change in changes[max(least - 1, 0) :]:
        if change.size == size:
            return change.begin
    # A draft of a daemon that died becomes a version as it is: of a change that was tried again it may be nothing yet.
    begun = [change.begin for change in changes[least:] if change.size is not GONE]
    return begun[0] if size == 0 and begun else None
