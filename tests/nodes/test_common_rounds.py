# SPDX-License-Identifier: Apache-2.0
"""Does a round that all writers have in common always come? All schedules of writers with the lags, see rounds.py."""
import pytest

import rounds

ROUNDS = 64
LAGS = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (1, 4, 4), (2, 3, 5), (3, 7), (8, 8), (5, 6, 7), (8, 8, 8)]


@pytest.mark.parametrize("rule", [rounds.most_trailing_zeros, rounds.coming])
@pytest.mark.parametrize("lags", LAGS, ids=str)
def test_a_common_round_comes_in_time(lags, rule):
    waited = rounds.longest_wait(lags, rule, ROUNDS)
    print(f"lags {lags}: at most {waited} rounds without one in common, bound {rounds.bound(lags)}")
    assert waited < rounds.bound(lags)


def test_writers_that_publish_each_round_always_meet():
    assert rounds.longest_wait((1, 1, 1), rounds.newest, ROUNDS) == 0


@pytest.mark.parametrize("lags", [(2, 2, 2), (2, 2), (4, 4, 4), (3, 7)], ids=str)
def test_planted_newest_round_never_meets(lags):
    assert rounds.longest_wait(lags, rounds.newest, ROUNDS) == ROUNDS
