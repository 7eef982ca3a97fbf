# SPDX-License-Identifier: Apache-2.0
"""The trainer: a job with a process on each node.

It restores the newest checkpoint, and saves: shards everywhere, then the marker on node 0, then the old checkpoint is deleted everywhere.
When a process gets an error the job ends, and starts again."""
import dataclasses

from .writer import Request


@dataclasses.dataclass
class Job:
    born: list  # when the process of each node began
    newest: int | None = None  # checkpoint, to be deleted when the next one is there


class Trainer:
    def __init__(self, simulation):
        self.simulation, self.settings, self.clock = simulation, simulation.settings, simulation.clock
        self.job = None
        self.starts = 0
        self.begun = 0  # checkpoints

    def start(self, number):
        if number != self.starts:
            return
        random, nodes = self.simulation.random, range(self.settings.nodes)
        for node in nodes:
            if self.simulation.sessions[node].is_over():
                self.simulation.join(node)
        job = self.job = Job([self.clock.now + random.uniform(0, self.settings.start_skew) for _ in nodes])
        self.clock.at(max(job.born) + 0.5, self.restore, job)

    def restore(self, job):
        if job is self.job:
            job.newest = self.simulation.judge.restore()
            self.save(job)

    def fail(self, job):
        if job is self.job:
            self.job = None
            self.starts += 1
            self.clock.after(self.settings.restart, self.start, self.starts)

    def ask(self, job, node, kind, checkpoint, delay, done, size=0.0):
        """A process asks its session for an operation; an error ends the job."""
        request = Request(job.born[node], kind, checkpoint, done, lambda: self.fail(job), size)
        self.clock.after(delay, self.simulation.sessions[node].request, request)

    def save(self, job):
        if job is not self.job:
            return
        random, settings = self.simulation.random, self.settings
        self.begun += 1
        checkpoint, left = self.begun, set(range(settings.nodes))
        for node in range(settings.nodes):
            def done(node=node):
                self.shard_done(job, checkpoint, node, left)

            self.ask(job, node, "shard", checkpoint, random.uniform(0.5, 3), done, settings.size)
            if random.random() < settings.logs:
                self.log(job, node)

    def log(self, job, node):
        """A program writes to the mount meanwhile; the job does not depend on it."""
        for _ in range(8):
            delay = self.simulation.random.uniform(0, self.settings.period)
            request = Request(job.born[node], "log", 0, lambda: None, lambda: None)
            self.clock.after(delay, self.simulation.sessions[node].request, request)

    def shard_done(self, job, checkpoint, node, left):
        left.discard(node)
        if job is self.job and not left:
            self.ask(job, 0, "marker", checkpoint, self.settings.gap, lambda: self.marked(job, checkpoint))

    def marked(self, job, checkpoint):
        if job is not self.job:
            return
        old, job.newest = job.newest, checkpoint
        for node in range(self.settings.nodes):
            if old:
                self.ask(job, node, "delete", old, self.settings.gap, lambda: None)
        self.clock.after(self.settings.period * self.simulation.random.uniform(0.7, 1.3), self.save, job)
