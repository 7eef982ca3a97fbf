# SPDX-License-Identifier: Apache-2.0
"""Rounds that all writers have in common: a search of all schedules.

A head needs a round at which the feeds of all writers end. (A writer that numbers operations in every round determines no other
round.) Each writer sends its next feed at any time, but no feed covers more rounds than the writer's lag. The search tries all times."""
import itertools


def trailing_zeros(number):
    return (number & -number).bit_length() - 1


def coming(rounds, lag):
    """The product's rule: a writer whose uploads take up to 2^n rounds ends its next feed at a round with n zero bits that is to come."""
    return -(-rounds[-1] // bound([lag])) * bound([lag])


def most_trailing_zeros(rounds, lag):
    """The rule: a feed ends at the offered round with the most trailing zero bits, of equals the latest."""
    return max(rounds, key=lambda number: (trailing_zeros(number), number))


def newest(rounds, lag):
    """Planted: a feed ends at the newest round."""
    return max(rounds)


def next_ends(end, lag, rule):
    """The rounds at which a writer's next feed may end, if its last one ended at `end`."""
    return {rule(range(end + 1, now + 1), lag) for now in range(end + 1, end + lag + 1)}


def advance(ends, number, lags, rule):
    """All vectors of the writers' next ends, once a round has passed: each writer that ended there chooses anew."""
    choices = [next_ends(number, lag, rule) if end == number else {end} for end, lag in zip(ends, lags)]
    return itertools.product(*choices)


def longest_wait(lags, rule, rounds):
    """The most rounds that pass without one in common, in any schedule of writers with these lags."""
    longest = 0
    # (next end of each writer, newest common round)
    states = {(ends, 0) for ends in itertools.product(*(next_ends(0, lag, rule) for lag in lags))}
    for number in range(1, rounds + 1):
        following = set()
        for ends, common in states:
            common = number if all(end == number for end in ends) else common
            longest = max(longest, number - common)
            following.update((others, common) for others in advance(ends, number, lags, rule))
        states = following
    return longest


def bound(lags):
    """The writers all stop at each multiple of this power of two."""
    return 1 << (max(lags) - 1).bit_length()
