# SPDX-License-Identifier: Apache-2.0
"""A session: one mount of one store. It numbers the operations of its node, or parks them, or fails them."""
import dataclasses
import typing

from . import feeds
from .settings import FEW
from .store import Stored


@dataclasses.dataclass
class Operation:
    local: float  # time by the clock of its node
    kind: str  # shard, marker, delete, log
    checkpoint: int
    ready: float  # true time at which its content is in the remote
    size: float = 0.0  # GB


@dataclasses.dataclass
class Request:
    """A process asks for an operation."""

    born: float  # when the process began
    kind: str
    checkpoint: int
    done: typing.Callable
    failed: typing.Callable
    size: float = 0.0
    asked: float | None = None


class Session:
    def __init__(self, simulation, epoch, node):
        self.simulation, self.settings, self.clock, self.store = simulation, simulation.settings, simulation.clock, simulation.store
        self.epoch, self.node = epoch, node
        random, now, head = simulation.random, self.clock.now, self.store.head
        self.offset = random.uniform(-1, 1) * self.settings.real_clock_error
        self.upload_rate = self.settings.size / random.uniform(self.settings.upload_min, self.settings.upload_max)
        self.stored = Stored(now)
        self.operations = []
        self.generation = head.generation
        self.opens = head.end_time + self.settings.lease + self.settings.margin if head.generation else 0.0
        self.seen = now  # when the last look began
        self.is_dirty = self.is_marking = self.is_dead = self.is_fenced = False
        self.cut_off_until = 0.0  # from the store
        self.upload_free = now  # when the last upload ends
        self.last_operation = -1e9
        self.feeds = feeds.Feeds(self)

    # ---- clocks

    def local(self):
        return self.clock.now + self.offset

    def round_at(self, local):
        return int(local / self.settings.round_length)

    def reaches_store(self):
        return self.clock.now >= self.cut_off_until

    def is_over(self, generation=None):
        return self.is_dead or self.is_fenced or (generation is not None and generation != self.generation)

    # ---- look(): the lease, the end, generations

    def look(self):
        if self.is_over():
            return
        if not self.reaches_store():
            self.clock.at(self.cut_off_until + 0.01, self.look)
            return
        self.store.count(LOOK=1)
        self.clock.after(self.store.get_time(), self.looked, self.clock.now)
        self.clock.after(self.settings.lease / (6 if self.is_dirty else 4), self.look)

    def looked(self, begun):
        if self.is_over():
            return
        self.seen = max(self.seen, begun)
        if self.epoch in self.store.ended or self.epoch in self.store.claims:
            self.fence()
        elif self.store.head.generation > self.generation:
            self.set_aside()

    def watch(self):
        """As it is built: other nodes' heads are looked for."""
        if self.is_over():
            return
        nodes = self.settings.nodes
        idle = 0 if self.feeds.is_active() else 3
        self.store.count(LOOK=1)
        self.clock.after(max(1, idle, nodes * 0.05 if nodes > FEW else 0), self.watch)

    def fence(self):
        self.is_fenced, self.stored.mark = True, None
        self.simulation.report.fenced += 1

    def set_aside(self):
        """Begins anew at what the newest head has, and opens after a lease."""
        self.generation = self.store.head.generation
        self.opens = self.clock.now + self.settings.lease + self.settings.margin
        self.simulation.report.set_aside += len(self.operations) - self.stored.merged
        del self.operations[self.stored.merged :]
        self.stored.feeds, self.stored.mark = [], None
        self.is_dirty = self.is_marking = False
        self.upload_free = self.clock.now
        self.feeds.begin_anew()

    # ---- operations

    def request(self, request):
        if request.asked is None:
            request.asked = self.clock.now
        if self.is_dead:
            request.failed()
        elif self.is_fenced or self.is_from_before(request):
            self.simulation.report.eio += 1
            request.failed()
        elif (until := self.parks_until()) is not None:
            self.clock.at(until, self.request, request)
        else:
            self.number(request)

    def is_from_before(self, request):
        """The process may rely on what was set aside: EIO."""
        return self.generation > 0 and request.born < self.opens and not self.settings.has("no-eio")

    def parks_until(self):
        """None: it may be numbered."""
        now, settings = self.clock.now, self.settings
        if now < self.opens:
            return self.opens + 0.001
        if now - self.seen > settings.lease and not settings.has("no-lease"):
            return now + 0.25
        distance = self.local() - round(self.local() / settings.round_length) * settings.round_length
        if settings.hold and -settings.hold <= distance < settings.hold:
            return now + settings.hold - distance + 1e-6
        if self.is_dirty:
            return None
        if not self.is_marking:
            self.is_marking = True
            self.put_mark(self.generation)
        return now + 0.01

    def number(self, request):
        now = self.clock.now
        ready = max(now, self.upload_free) + request.size / self.upload_rate if request.size and not self.settings.carries else now
        if request.size:
            self.upload_free = ready
            self.store.count(PACK=int(request.size / 0.024) + 1)
        self.feeds.pass_rounds()
        self.operations.append(Operation(self.local(), request.kind, request.checkpoint, ready, request.size))
        self.last_operation = now
        self.feeds.is_disturbed |= request.kind == "log"
        self.simulation.report.waits.append(now - request.asked)
        if request.kind == "shard" and not self.settings.carries:
            self.simulation.judge.note_shard(request.checkpoint, ready)
        if request.size and not self.settings.carries:
            self.clock.at(ready + 1e-6, self.feeds.send)
        request.done()

    # ---- mark(): PUT marks/EPOCH, then GET ended/EPOCH, then the first number

    def put_mark(self, generation):
        if self.is_over(generation):
            return
        if not self.reaches_store():
            self.clock.at(self.cut_off_until + 0.01, self.put_mark, generation)
            return
        self.store.count(PUT=1, GET=1)
        since = self.round_at(self.local() - self.settings.hold)
        self.clock.after(self.store.put_time(), self.mark_landed, generation, since)

    def mark_landed(self, generation, since):
        if self.is_over(generation):
            return
        if not self.settings.has("no-mark"):
            self.stored.mark = since
        self.stored.newest = self.clock.now
        self.feeds.note_mark(since)
        self.clock.after(self.store.get_time(), self.looked_for_claim, generation)

    def looked_for_claim(self, generation):
        if self.is_over(generation):
            return
        if self.epoch in self.store.claims:
            self.fence()
            return
        self.is_marking, self.is_dirty = False, True
        self.stored.newest = self.clock.now
        self.feeds.begin()
        self.clock.after(self.settings.lease / 4, self.beat, self.generation)
        self.feeds.tick(self.generation)

    def beat(self, generation):
        """The heartbeat of a dirty session: writers/NUMBER again."""
        if self.is_over(generation) or not self.is_dirty:
            return
        if self.reaches_store():
            self.store.count(PUT=1, LOOK=1 if self.settings.carries else 0)  # and at the merger's lease
            self.stored.newest = self.clock.now
        self.clock.after(self.settings.lease / 4, self.beat, generation)
