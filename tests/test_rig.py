"""The rig tells of what fails in the processes that it forks."""
import os
import signal

import pytest

import rig


def divide(one, other):
    return one / other


def test_a_child_returns_a_value():
    assert rig.in_child(divide, 6, 3) == 2


def test_a_child_says_why_it_failed():
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        rig.in_child(divide, 1, 0)
    with pytest.raises(AssertionError, match="not JSON serializable"):
        rig.in_child(object)


def test_a_child_that_is_killed_says_nothing():
    child = rig.Child(signal.pause)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match="status 9"):
        child.result()
