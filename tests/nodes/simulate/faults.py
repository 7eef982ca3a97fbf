# SPDX-License-Identifier: Apache-2.0
"""Faults: kill -9 of a node, cuts between a node and the store, deaths of the merger."""


class Faults:
    def __init__(self, simulation):
        self.simulation, self.settings, self.clock = simulation, simulation.settings, simulation.clock

    def begin(self):
        if self.settings.fault_every:
            self.clock.at(self.pause(), self.fault)

    def pause(self):
        return self.simulation.random.expovariate(1 / self.settings.fault_every)

    def fault(self):
        simulation, random = self.simulation, self.simulation.random
        self.clock.after(self.pause(), self.fault)
        if random.random() < 0.1:
            simulation.report.merger_deaths += 1
            simulation.merger.die()
        session = random.choice(simulation.sessions)
        if session.is_over() or not session.reaches_store():
            return
        if random.random() < 0.5:
            self.kill(session)
        else:
            self.cut_off(session)

    def kill(self, session):
        self.simulation.report.kills += 1
        session.is_dead = True
        if self.simulation.trainer.job:
            self.simulation.trainer.fail(self.simulation.trainer.job)

    def cut_off(self, session):
        """The job knows nothing of it."""
        self.simulation.report.cuts += 1
        session.cut_off_until = self.clock.now + self.simulation.random.uniform(0.2, self.settings.cut_max) * self.settings.lease
