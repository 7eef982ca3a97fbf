# SPDX-License-Identifier: Apache-2.0
"""Each node on a host of its own, a network namespace, whose link to the bucket is cut without a word, is slow, or loses what is sent."""
import os
import time

import pytest

import hosts
import losses
import rig
import test_deaths as deaths
from test_held_back import plays

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs_mount]
LEASE_S = 12
SLOW_S = 20  # what the slow link takes at least for the file


class HostWay:
    """A node's way to the bucket: over its host's link."""

    def __init__(self, shared):
        self.host = hosts.Host(shared.rgw.endpoint)
        self.remote, self.cut, self.join = shared.through(self.host.door), self.host.cut, self.host.join

    def close(self):
        self.host.close()


class HostNode(losses.Node):
    def new_way(self, root, rng):
        return HostWay(self.shared)

    def begin(self, rng):
        super().begin(rng)
        self.mount.prefix = self.way.host.prefix


@pytest.fixture
def play(request, on_remote, s3, directory, rng):
    return plays(request, on_remote, s3, directory, rng, HostNode)


def test_a_link_that_is_cut_for_less_than_a_lease(play, rng):
    """It is a pause: nothing is given up, and what waited goes on."""
    play = play(lease=40)
    attempt = play.attempt(play.nodes)
    play.await_shown(play.step(attempt))
    for _ in range(3):
        node = rng.choice(play.nodes)
        node.cut()
        step = play.step(attempt)
        time.sleep(rng.uniform(1, 8))  # so long is it cut, in the middle of what the nodes publish
        node.way.join()
        play.await_shown(step)
    assert play.union.generation() == 0
    play.judge()


def test_a_link_that_is_cut_for_longer(play):
    """The others go back and on without the node, which goes back when it hears of them again."""
    play = play(lease=LEASE_S)
    first, second, third = play.nodes
    attempt = play.attempt(play.nodes)
    play.await_shown(play.step(attempt))
    third.cut()
    step = play.step(attempt)
    play.gives_up(step)
    play.await_end()
    for rank, node in enumerate((first, second)):
        play.await_back(node)
        play.expect_stopped(attempt.call, attempt.ranks[rank], "make", f"s{step.number}/late{rank}", 1, False)
    third.way.join()
    play.await_back(third)
    play.judge()


def test_one_slow_link_holds_the_union_back(play):
    """As long as its node sends a file that it acknowledged: the marker behind it shows with it, and a wait says for whom it waits."""
    play = play(lease=LEASE_S)
    first, second, third = play.nodes
    attempt = play.attempt(play.nodes)
    play.await_shown(play.step(attempt))
    begin = time.monotonic()
    assert third.way.host.shape("tbf", "rate", "500kbit", "burst", "16kb", "latency", "2s")
    rig.write_file(os.path.join(third.mount.mnt, "large"), os.urandom(62500 * SLOW_S))  # so many bytes are 500 kbit
    rig.write_file(os.path.join(first.mount.mnt, "behind"), b"done")

    def shown():
        listed = play.union.mount.verb("ls", *play.union.shared.flags(), play.union.shared.url + ":/").stdout.split()
        assert "behind" not in listed or "large" in listed
        return "behind" in listed

    late = first.mount.verb("wait", os.path.join(first.mount.mnt, "behind"), "--level", "remote", "--timeout", "8s", code=3)
    assert third.mount.store in late.stderr and not shown(), late
    rig.poll(shown, 120, "the marker", 0.5)
    assert time.monotonic() - begin > SLOW_S and play.union.generation() == 0
    third.way.host.unshape()
    deaths.agree(play.nodes, play.job.forgiven)
    for node in play.nodes:
        node.mount.umount()
    deaths.check_stores(play.nodes, play.union.shared)


def test_links_that_delay_and_lose(play):
    play = play(lease=40)
    for node in play.nodes:
        if not node.way.host.shape("netem", "delay", "30ms", "20ms", "loss", "2%"):
            pytest.skip("skipped: this kernel has no netem")
    attempt = play.attempt(play.nodes)
    for _ in range(4):
        play.await_shown(play.step(attempt))
    assert play.union.generation() == 0
    play.judge()
