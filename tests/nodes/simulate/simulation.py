# SPDX-License-Identifier: Apache-2.0
"""One simulation: all nodes, the store, the merger, the trainer, faults."""
import random

from . import report
from .clock import Clock
from .faults import Faults
from .job import Trainer
from .judge import Judge
from .merger import Merger
from .store import Store
from .writer import Session


class Simulation:
    def __init__(self, settings):
        self.settings, self.random = settings, random.Random(settings.seed)
        self.clock = Clock()
        self.store = Store(settings, self.clock, self.random)
        self.judge, self.report = Judge(settings), report.Report()
        self.merger, self.trainer, self.faults = Merger(self), Trainer(self), Faults(self)
        self.epochs = 0
        self.sessions = [None] * settings.nodes  # of each node, the newest
        for node in range(settings.nodes):
            self.join(node)

    def join(self, node):
        self.epochs += 1
        session = self.sessions[node] = Session(self, self.epochs, node)
        self.store.sessions.append(session)
        self.store.count(PUT=1, GET=2)
        self.clock.after(self.settings.lease / 4 * self.random.random(), session.look)
        if self.settings.carries:
            self.clock.after(self.random.random(), session.watch)

    def run(self):
        """Until the last checkpoint has begun. Returns the figures."""
        self.clock.at(0.1, self.trainer.start, 0)
        self.clock.at(self.settings.poll, self.merger.begin)
        self.faults.begin()
        while self.trainer.begun < self.settings.checkpoints and self.clock.step():
            pass
        return report.figures(self)


def run(settings):
    return Simulation(settings).run()
