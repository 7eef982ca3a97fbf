# SPDX-License-Identifier: Apache-2.0
"""The merger: makes the heads. One is enough: heads are exclusive, so another one's work is dropped."""
import dataclasses
import math

from . import designs
from .cut import Cut


@dataclasses.dataclass
class Reading:
    """What a merger has read for the next head, in this order."""

    head: int  # 1: number of the newest head
    bound: float  # 2: the clock; rounds up to here
    verdict: object = None  # 3: a session that is ended
    marks: dict = dataclasses.field(default_factory=dict)  # 4: by EPOCH, None: none


class Merger:
    def __init__(self, simulation):
        self.simulation, self.settings, self.clock, self.store = simulation, simulation.settings, simulation.clock, simulation.store
        self.away_until = 0.0  # the lease of a dead merger runs out

    def die(self):
        self.away_until = max(self.away_until, self.clock.now + self.settings.lease + self.settings.poll)

    def is_void(self, reading):
        """The merger died, or another made the head."""
        return self.store.head.number != reading.head or self.clock.now < self.away_until

    def begin(self):
        self.clock.after(self.settings.poll, self.begin)
        if self.clock.now < self.away_until:
            return
        reading = Reading(self.store.head.number, self.clock.now - 2 * self.settings.hold - self.settings.believed_error)
        reading.verdict = self.give_verdict()
        self.store.count(LIST=2 + len(self.store.sessions) // 1000, GET=1)
        self.clock.after(self.store.get_time(), self.list_marks, reading)

    def give_verdict(self):
        """3: a session that is silent for a lease, or a clean one whose successor joined. The CLAIM comes before marks are listed."""
        for session in self.store.sessions:
            if self.is_silent(session) or self.is_replaced(session):
                self.store.claims.add(session.epoch)
                self.store.count(PUT=1)
                return session
        return None

    def is_silent(self, session):
        stored = session.stored
        return stored.mark is not None and session.epoch not in self.store.ended and self.clock.now - stored.newest > self.settings.lease

    def is_replaced(self, session):
        return session.is_dead and session.stored.mark is None and self.simulation.sessions[session.node] is not session

    def list_marks(self, reading):
        """4: the sessions."""
        if self.is_void(reading):
            return
        reading.marks = {session.epoch: session.stored.mark for session in self.store.sessions}
        self.clock.after(self.store.get_time(), self.list_feeds, reading)

    def list_feeds(self, reading):
        """5: feeds; 6: the cut."""
        if self.is_void(reading):
            return
        sessions = [session for session in self.store.sessions if self.must_determine(session, reading)]
        marks = {session.epoch: reading.marks.get(session.epoch) for session in sessions}
        cut = Cut(self.settings, self.store, reading.bound, sessions, marks)
        if self.settings.has("no-common-cut") or self.settings.has("markers-wait"):
            self.merge_without_cut(reading, cut)
            return
        cut.choose(lambda number: reading.verdict or self.clock.now - number * self.settings.round_length > 2 * self.settings.round_length)
        self.simulation.report.quiet += cut.is_quiet
        if cut.round is None and reading.verdict is None:
            return
        numbers = cut.numbers()
        fetched = sum((numbers.get(session) or 0) > session.stored.merged for session in sessions)
        self.store.count(GET=fetched, PUT=2)
        duration = self.settings.get_many * math.ceil(fetched / 32) + 2 * self.store.put_time()
        self.clock.after(duration, self.put_head, reading, cut.round, numbers)

    def must_determine(self, session, reading):
        """6: it has a mark and is not ended, or it has unmerged feeds."""
        if session is reading.verdict and self.settings.has("dead-left-out"):
            return False
        has_mark = reading.marks.get(session.epoch) is not None and session.epoch not in self.store.ended
        return has_mark or session.stored.has_unmerged()

    def merge_without_cut(self, reading, cut):
        numbers = designs.newest_numbers(self.simulation, cut.sessions)
        if reading.verdict is None and all(number <= session.stored.merged for session, number in numbers.items()):
            return
        self.store.count(GET=len(numbers))
        newest = cut.newest_possible if cut.newest_possible > self.store.head.round else None
        self.clock.after(2 * self.store.put_time(), self.put_head, reading, newest, numbers)

    def put_head(self, reading, number, numbers):
        """7: the next head, exclusively."""
        if self.is_void(reading):
            return
        self.store.head.number += 1
        self.simulation.report.heads += 1
        for session, merged in numbers.items():
            self.merge(session, merged, number)
        if number:
            self.store.head.round = number
        if reading.verdict is not None:
            self.end(reading)
        self.store.sessions = [session for session in self.store.sessions if not self.is_done(session)]
        self.simulation.judge.check()

    def merge(self, session, merged, number):
        stored = session.stored
        for operation in session.operations[stored.merged : merged]:
            self.simulation.judge.show(session.node, operation, self.clock.now)
        stored.merged = max(stored.merged, merged)
        while len(stored.feeds) > 1 and (stored.feeds[1].low <= number if number else stored.feeds[0].number < stored.merged):
            stored.feeds.pop(0)

    def end(self, reading):
        """A session with a mark takes its generation along; a clean one only goes."""
        head, report = self.store.head, self.simulation.report
        self.store.ended.add(reading.verdict.epoch)
        if reading.marks.get(reading.verdict.epoch) is None or self.settings.has("dead-left-out"):
            report.clean_ends += 1
            return
        head.generation += 1
        head.end_time = self.clock.now
        report.generations += 1
        report.verdicts.append(self.clock.now - reading.verdict.stored.newest)
        for session in self.store.sessions:
            session.stored.feeds = [feed for feed in session.stored.feeds if feed.generation == head.generation]

    def is_done(self, session):
        return session.epoch in self.store.ended and session.is_over() and not session.stored.has_unmerged()
