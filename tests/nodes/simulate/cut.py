# SPDX-License-Identifier: Apache-2.0
"""The round of the next head, and the number of each session there."""
from .store import OPEN_END


def number_at(stored, number, mark):
    """The session's number at a round, as its feeds say; None: not determined. `mark`: of the listing, None: there was none."""
    for i in range(len(stored.feeds) - 1, -1, -1):
        if stored.feeds[i].low <= number <= high_of(stored.feeds, i, mark):
            return stored.feeds[i].number
    if not stored.feeds and (mark is None or number <= mark):
        return stored.merged
    return None


def high_of(feeds, i, mark):
    """A CLEAN feed holds up to the `since` of the session's next mark."""
    if feeds[i].high < OPEN_END:
        return feeds[i].high
    if i + 1 < len(feeds):
        return feeds[i + 1].since
    return OPEN_END if mark is None else max(feeds[i].low, mark)


class Cut:
    """Of the sessions that must determine its round: `sessions`. `round` is None where there is no newer common round yet."""

    def __init__(self, settings, store, bound, sessions, marks):
        self.settings, self.store, self.sessions, self.marks = settings, store, sessions, marks
        self.newest_possible = self.bounded(int(bound / settings.round_length))
        self.round = self.first = None  # first: the newest common round
        self.is_quiet = False

    def bounded(self, number):
        """No session determines a round after its mark and all its feeds."""
        for session in self.sessions:
            if self.marks[session.epoch] is not None:
                ends = [feed.high for feed in session.stored.feeds if feed.high < OPEN_END]
                number = min(number, max([self.marks[session.epoch], *ends]))
        return number

    def choose(self, is_late):
        """`is_late(round)`: no quieter round is waited for."""
        for number in range(self.newest_possible, self.store.head.round, -1):
            if any(number_at(session.stored, number, self.marks[session.epoch]) is None for session in self.sessions):
                continue
            self.first = self.first or number
            if self.settings.quiet <= 0:
                self.round = number
                return
            if all(self.distance(session, number) >= self.settings.quiet for session in self.sessions):
                self.round, self.is_quiet = number, True
                return
            if self.newest_possible - number > 4:
                break
        if self.first is not None and (self.newest_possible - self.first >= 1 or is_late(self.first)):
            self.round = self.first

    def distance(self, session, number):
        """From the round to the nearest operation, by the session's clock; a feed says it."""
        instant, nearest = number * self.settings.round_length, 9e9
        for operation in session.operations[max(0, session.stored.merged - 1) :]:
            nearest = min(nearest, abs(operation.local - instant))
            if operation.local > instant + 60:
                break
        return nearest

    def numbers(self):
        if not self.round:
            return {}
        return {session: number_at(session.stored, self.round, self.marks[session.epoch]) for session in self.sessions}
