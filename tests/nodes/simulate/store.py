# SPDX-License-Identifier: Apache-2.0
"""The remote: objects, requests, latencies."""
import collections
import dataclasses
import math

OPEN_END = 1 << 60  # `high` of a CLEAN feed


@dataclasses.dataclass
class Feed:
    """At each round from low to high the session's state is `number`, exactly."""

    low: int
    high: int
    number: int
    generation: int
    since: int  # of the session's mark


@dataclasses.dataclass
class Head:
    number: int = 0
    round: int = 0
    generation: int = 0
    end_time: float = -1e9  # of the newest END


class Stored:
    """What the remote has of one session."""

    def __init__(self, now):
        self.mark = None  # the newest round that had passed when it was put
        self.feeds = []
        self.merged = 0  # operations in the newest head
        self.newest = now  # time of its newest object

    def has_unmerged(self):
        return any(feed.number > self.merged for feed in self.feeds)


class Store:
    def __init__(self, settings, clock, random):
        self.settings, self.clock, self.random = settings, clock, random
        self.head = Head()
        self.sessions = []  # that live or have unmerged feeds
        self.claims = set()  # objects ended/EPOCH
        self.ended = set()  # EPOCHs that a head names
        self.requests = collections.Counter()

    def put_time(self):
        return self.random.lognormvariate(math.log(self.settings.put), 0.5)

    def get_time(self):
        return self.random.lognormvariate(math.log(self.settings.get), 0.4)

    def count(self, **requests):
        self.requests.update(requests)
