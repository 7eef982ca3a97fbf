# SPDX-License-Identifier: Apache-2.0
"""A session's rounds and feeds."""
from .clock import trailing_zeros
from .settings import FEW
from .store import OPEN_END, Feed

CUT_BITS_MAX = 5


class Feeds:
    def __init__(self, session):
        self.session, self.settings, self.clock, self.store = session, session.settings, session.clock, session.store
        self.end = session.round_at(session.local())  # round of the last feed's end
        self.end_number = 0
        self.rounds = []  # offered since then: (round, number)
        self.passed = 0  # the newest round that has passed by the session's clock
        self.since = 0  # of the mark
        self.is_sending = False
        self.is_disturbed = False  # a program logs: rounds are lost
        self.told_at = -1e9  # when a feed with operations was put last
        self.carry = 0.0  # seconds that the last cut took to be published

    def begin_anew(self):
        """In a new generation."""
        self.rounds = []
        self.end = max(self.end, self.session.round_at(self.session.local()))
        self.end_number = len(self.session.operations)

    def note_mark(self, since):
        self.since = since
        self.end = max(self.end, since)

    def begin(self):
        """The first number after idleness may follow."""
        self.rounds = [(self.end, len(self.session.operations))]
        self.passed = self.end

    # ---- rounds

    def pass_rounds(self):
        """Under the history's lock: the instants that have passed get the newest number."""
        now_passed, before = self.session.round_at(self.session.local() + self.settings.hold), self.passed
        self.passed = max(before, now_passed)
        for number in range(before + 1, now_passed + 1):
            if not self.is_lost(number):
                self.rounds.append((number, len(self.session.operations)))
        self.is_disturbed = self.is_disturbed and now_passed <= before

    def is_lost(self, number):
        if not self.is_disturbed or self.session.simulation.random.random() >= self.settings.lost_rounds:
            return False
        return trailing_zeros(number) < 3

    def tick(self, generation):
        """At the end of each hold window's first half: the beginning of a round."""
        session = self.session
        if session.is_over(generation) or not session.is_dirty:
            return
        self.pass_rounds()
        self.send()
        following = session.round_at(session.local() + self.settings.hold + 1e-6) + 1
        self.clock.at(following * self.settings.round_length - session.offset - self.settings.hold + 1e-6, self.tick, generation)

    # ---- publish

    def send(self):
        session = self.session
        if session.is_over() or self.is_sending or not session.is_dirty or not session.reaches_store():
            return
        best = self.next_cut() if self.settings.carries else self.best_round()
        if best is None or self.is_too_early(best[1]):
            return
        if self.settings.carries and best[1] > self.end_number:
            self.carry_cut(*best)
        else:
            self.tell(*best)

    def tell(self, end, number):
        session = self.session
        high = max([end] + [other for other, its in self.rounds if its == number])
        clean = number == len(session.operations) and self.clock.now - session.last_operation > self.settings.idle
        self.is_sending = True
        self.store.count(PUT=1)
        feed = Feed(self.low(end, number), high, number, session.generation, self.since)
        self.clock.after(self.store.put_time(), self.landed, feed, clean)

    def best_round(self):
        """Of the offered rounds whose operations are in the remote: the one with the most trailing zero bits, of equals the latest."""
        best, known = None, max(self.session.stored.merged, self.end_number)
        for offered, number in self.rounds:
            if offered <= self.end:
                continue
            if any(operation.ready > self.clock.now for operation in self.session.operations[known:number]):
                break
            known = max(known, number)
            if best is None or trailing_zeros(offered) >= trailing_zeros(best[0]):
                best = offered, number
        return best

    def is_too_early(self, number):
        """Of an idle session: an empty feed now and then."""
        pace = self.settings.pace
        return pace and number == self.end_number and self.rounds[-1][0] - self.end < pace and not self.is_active()

    def is_active(self):
        """As it is built: after its own feeds; where few nodes write, also while others are, as heads tell."""
        if not self.settings.active:
            return self.clock.now - self.session.last_operation <= self.settings.pace * self.settings.round_length
        others = self.session.simulation.judge.last_news if self.settings.nodes <= FEW else self.told_at
        return self.clock.now - max(self.told_at, others) <= self.settings.active

    # ---- cuts, as they are built

    def next_cut(self):
        """The newest offered round that others cut at, too: one with as many zero bits as an upload takes rounds, or any while nothing
        changes."""
        bits = 0
        while bits < CUT_BITS_MAX and self.settings.round_length * 2**bits < self.carry:
            bits += 1
        numbers = [number for _, number in self.rounds]
        for offered, number in reversed(self.rounds):
            if offered > self.end and (numbers.count(number) > 1 or trailing_zeros(offered) >= bits):
                return offered, number
        return None

    def carry_cut(self, end, number):
        """The upload begins with the cut. Packs, run, its copy and head come before the feed."""
        session = self.session
        operations = session.operations[self.end_number : number]
        self.is_sending = True
        self.store.count(PUT=3)
        took = sum(operation.size for operation in operations) / session.upload_rate + sum(self.store.put_time() for _ in range(3))
        self.clock.after(took, self.carried, (end, number), operations, session.generation, self.clock.now)

    def carried(self, cut, operations, generation, began):
        session = self.session
        if session.is_over(generation):
            self.is_sending = False
        elif not session.reaches_store():
            self.clock.at(session.cut_off_until + 0.01, self.carried, cut, operations, generation, began)
        else:
            self.carry = self.clock.now - began
            for operation in operations:
                operation.ready = self.clock.now if operation.size else operation.ready
                if operation.kind == "shard":
                    session.simulation.judge.note_shard(operation.checkpoint, self.clock.now)
            self.tell(*cut)

    def low(self, end, number):
        """The first round at which the state was `number` already."""
        low = min((offered for offered, its in self.rounds if its == number and offered >= self.end), default=end)
        return min(low, self.end) if number == self.end_number else low

    def landed(self, feed, clean):
        session, stored = self.session, self.session.stored
        self.is_sending = False
        if session.is_dead and session.simulation.random.random() < 0.5:
            return  # it was cut on its way
        if feed.generation != self.store.head.generation and not self.settings.has("old-feeds-count"):
            return
        if feed.generation != session.generation:
            return
        self.told_at = self.clock.now if feed.number > self.end_number else self.told_at
        self.end, self.end_number = feed.high, feed.number
        self.rounds = [(offered, number) for offered, number in self.rounds if offered >= self.end]
        clean = clean and feed.number == len(session.operations) and not session.is_marking
        if clean:
            feed.high = OPEN_END
        stored.feeds.append(feed)
        stored.newest = self.clock.now
        self.store.count(GET=2 if self.settings.carries else 0)  # the merger reads each feed
        if clean:
            session.is_dirty, stored.mark = False, None
            self.store.count(PUT=1)  # the mark is deleted
        else:
            self.send()
