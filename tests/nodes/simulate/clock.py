# SPDX-License-Identifier: Apache-2.0
"""True time, and what happens at which time."""
import heapq
import itertools


class Clock:
    def __init__(self):
        self.now = 0.0
        self._events, self._numbers = [], itertools.count()

    def at(self, time, action, *arguments):
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), action, arguments))

    def after(self, delay, action, *arguments):
        self.at(self.now + delay, action, *arguments)

    def step(self):
        """The next event. False: there is none."""
        if not self._events:
            return False
        self.now, _, action, arguments = heapq.heappop(self._events)
        action(*arguments)
        return True


def trailing_zeros(number):
    return (number & -number).bit_length() - 1 if number else 63
