# SPDX-License-Identifier: Apache-2.0
"""A node is cut off from the remote while its job goes on: the others tell what rests on files that only this node has. Then it is lost,
and at no head may be what came after its last feed. In the campaign (test_deaths.py) most nodes are lost when all have told the same."""
import concurrent.futures
import os
import random
import re
import shutil
import time

import pytest

import lossy_job
import losses
import rig
import test_deaths as deaths

LEASE_S = 6
ROUND_S = 2
BACK_S = 60


class Play:
    """A job whose steps are called one by one."""

    def __init__(self, nodes, union, rng):
        self.nodes, self.union, self.rng = nodes, union, rng
        self.job = deaths.Job(nodes, union, random.Random(rng.random()), LEASE_S)
        self.ledger, self.given_up = self.job.ledger, []

    def attempt(self, nodes):
        """Its processes are added as they begin."""
        attempt = lossy_job.Attempt(self.job, len(self.job.attempts) + 1, self.union.generation())
        attempt.tries_after_eio = 0
        self.job.attempts.append(attempt)
        for node in nodes:
            attempt.add(node)
        return attempt

    def save(self, attempt, step, rank):
        path = f"s{step.number}/shard{rank}"
        attempt.call(attempt.ranks[rank], "make", path, lossy_job.SHARD, False)
        self.ledger.note_saved(path, lossy_job.SHARD, attempt.stores[rank], False)

    def mark(self, attempt, step):
        attempt.call(attempt.ranks[0], "make", step.marker, lossy_job.MARKER, False)
        self.ledger.note_saved(step.marker, lossy_job.MARKER, attempt.stores[0], False)

    def step(self, attempt):
        step = self.ledger.begin(attempt, attempt.stores)
        for rank in range(len(attempt.ranks)):
            self.save(attempt, step, rank)
        self.mark(attempt, step)
        return step

    def gives_up(self, step):
        """No head of a later generation has anything of it."""
        self.given_up.append((step, self.union.generation()))

    def await_shown(self, step):
        """Until a head has all of it, and so all feeds told it."""
        wanted = {**step.paths(), step.marker: lossy_job.MARKER}
        for level in ("nvme", "remote"):  # where writeback has a delay, the next wait is for all nodes
            for node in self.nodes:
                node.mount.wait(level=level, timeout="100s")
        rig.poll(lambda: wanted.items() <= self.union.state(self.union.numbers()[-1]).items(), 30, f"step {step.number} at a head")

    def await_told(self, count):
        """Until so many nodes told a round that is now still to come."""
        least = int(time.time() / ROUND_S) + 1

        def tell():
            names = [re.fullmatch("feeds/([0-9a-f]{16})-([0-9a-f]{16})", name) for name in self.union.shared.names("feeds/")]
            return len({name[2] for name in names if name and int(name[1], 16) >= least}) >= count

        rig.poll(tell, 30, f"{count} nodes to tell of round {least}")

    def end(self, by, epoch):
        """On a slow machine the others may have ended it before: it was silent for longer than its lease."""
        done = by.mount.cairn("nodes", "end", by.mount.mnt, str(epoch))
        assert done.returncode == 0 or re.search("(was|has) ended already", done.stderr), done

    def await_end(self, generation=1):
        rig.poll(lambda: self.union.generation() >= generation, BACK_S, "the generation to end", 0.05)

    def await_back(self, node, generation=1):
        """Its daemon set aside what it had, and serves."""
        aside, back = (os.path.join(node.mount.store, *names) for names in (("aside", str(generation)), ("back",)))
        rig.poll(lambda: os.path.exists(aside) and not os.path.exists(back) and node.mount.answers(), BACK_S, "a node to go back")

    def settle(self):
        assert len(self.job.settle(self.nodes)) == len(self.nodes), "not all nodes are settled"

    def expect_stopped(self, function, *arguments):
        """EIO: for a process that began before its node opened."""
        with pytest.raises(lossy_job.Stopped, match="EIO"):
            function(*arguments)

    def judge_heads(self):
        """May be called at any time; it says what is torn, and what came back."""
        states = deaths.check_heads(self.job, self.union, 10000)
        for step, generation in self.given_up:
            for number, state in states.items():
                if self.union.generation_of(number)[0] > generation:
                    paths = state.keys() & {*step.paths(), step.marker}
                    assert not paths, f"head {number}: {sorted(paths)} were given up with generation {generation}"
        return states

    def judge(self, gone=()):
        """After a last attempt, on all nodes but those that are gone for good."""
        nodes = [node for node in self.nodes if node not in gone]
        self.nodes = self.job.nodes = nodes
        self.settle()
        self.job.last = self.attempt(self.rng.sample(nodes, len(nodes)))
        self.await_shown(self.step(self.job.last))
        shown = deaths.agree(nodes, self.job.forgiven)
        for node in nodes:
            node.mount.umount()
        states = self.judge_heads()
        assert states[max(states)] == shown
        print(deaths.check_lost(self.job, [*nodes, *gone], self.union, states), self.job.forgiven.counts)
        deaths.check_stores(nodes, self.union.shared)


def plays(request, on_remote, remote, directory, rng, kind=losses.Node):
    """make(...): a play on so many nodes, which are mounted."""
    def make(lease=LEASE_S, count=3, **options):
        all_options = {"nodes": True, "lease": f"{lease}s", "gc_grace": "1h", "remote_timeout": "2s", "successor": "on",
                       "writeback_delay": "50ms", **options}
        rig.need_root()
        nodes = []
        request.addfinalizer(lambda: [node.close() for node in nodes])
        for number in range(count):
            nodes.append(kind(number, remote, directory, lambda way, _: on_remote(way, kind=losses.KeptNode, **all_options), rng))
            nodes[-1].mount.mount()
        made = Play(nodes, deaths.Union(remote, on_remote(remote)), rng)
        made.job.lease = lease
        request.addfinalizer(made.job.close)
        return made

    return make


@pytest.fixture
def play(request, on_remote, remote, directory, rng):
    return plays(request, on_remote, remote, directory, rng)


def lose(play, node, epoch, how):
    node.mount.kill9()
    node.is_up = False
    if how == "gone":
        node.gone.add(node.mount.store)
        shutil.rmtree(node.mount.store)
        play.end(play.nodes[0], epoch)
    elif how == "power":
        node.mount.drop_stage()
        node.powerless[node.mount.store] = time.time()
        node.way.join()
        node.mount.mount()
        node.is_up = True


@pytest.mark.parametrize("how", ["gone", "power", "silent"])
def test_what_the_others_told_is_given_up(play, how):
    """A step that all acknowledged and one node did not tell: its marker is at no head, and neither are the shards of the others."""
    play = play(**({"writeback_delay": "1h"} if how == "power" else {}))
    first, second, third = play.nodes
    attempt = play.attempt(play.nodes)
    play.await_shown(play.step(attempt))
    epoch = rig.poll(third.epoch, 30, "the number of its stay")
    third.cut()
    step = play.step(attempt)
    play.gives_up(step)
    if how == "power":
        [node.mount.wait(level="nvme") for node in (first, second)]
    play.await_told(2)
    assert step.marker not in play.union.state(play.union.numbers()[-1])
    lose(play, third, epoch, how)
    marked = lambda: step.marker in play.union.state(play.union.numbers()[-1])
    rig.poll(lambda: play.union.generation() or marked(), BACK_S, "the generation to end", 0.5)
    play.judge_heads()
    for rank, node in enumerate((first, second)):
        play.await_back(node)
        play.expect_stopped(attempt.call, attempt.ranks[rank], "make", f"s{step.number}/late{rank}", 1, False)
    if how == "silent":
        third.way.join()
        third.mount.mount()
        third.is_up = True
    play.judge(gone=[third] if how == "gone" else [])


def acknowledged(attempt, play, step, rank, seconds):
    """A process saves, for at most so long. Returns what waits for its answer, or None: it has that."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    saving = pool.submit(play.save, attempt, step, rank)
    pool.shutdown(wait=False)
    concurrent.futures.wait([saving], seconds)
    return None if saving.done() and not saving.exception() else saving


def test_a_node_that_did_not_look_for_a_lease_acknowledges_nothing(play):
    """It was ended, and the others opened. One process of a job began on it before that, the others afterwards: its shard would be set
    aside, and their marker would stay."""
    play = play()
    first, second, third = play.nodes
    play.await_shown(play.step(play.attempt(play.nodes)))
    epoch = rig.poll(third.epoch, 30, "the number of its stay")
    early = lossy_job.Rank(third)
    third.cut()
    play.end(first, epoch)
    play.await_end()
    for node in (first, second):
        play.await_back(node)
        node.mount.verb("nodes", "settle", "--timeout", "60s", node.mount.mnt)
    attempt = play.attempt([first, second])
    attempt.ranks.append(early)
    attempt.stores.append(third.mount.store)
    step = play.ledger.begin(attempt, attempt.stores)
    play.gives_up(step)
    play.save(attempt, step, 0)
    play.save(attempt, step, 1)
    waits = acknowledged(attempt, play, step, 2, LEASE_S)
    if not waits:
        play.mark(attempt, step)
    third.way.join()
    play.await_back(third)
    if waits:
        play.expect_stopped(waits.result, 60)
    play.judge()


def test_no_node_opens_before_all_know(play):
    """A node that is cut off acknowledges things as long as its lease is. One process of a job began on it, the others on nodes that went
    back before it knew."""
    lease = 20
    play = play(lease=lease)
    first, second, third = play.nodes
    play.await_shown(play.step(play.attempt(play.nodes)))
    epoch = rig.poll(third.epoch, 30, "the number of its stay")
    early = lossy_job.Rank(third)
    third.cut()
    looked = time.monotonic()
    play.end(first, epoch)
    play.await_back(first)
    play.await_back(second)
    attempt = play.attempt([first, second])
    attempt.ranks.append(early)
    attempt.stores.append(third.mount.store)
    step = play.ledger.begin(attempt, attempt.stores)
    waits = acknowledged(attempt, play, step, 2, lease)
    in_time = not waits and time.monotonic() < looked + lease * 5 / 6
    if in_time:
        for function in (lambda: play.save(attempt, step, 0), lambda: play.save(attempt, step, 1), lambda: play.mark(attempt, step)):
            try:
                function()
            except lossy_job.Stopped as stopped:
                assert "EIO" in str(stopped)
    third.way.join()
    play.await_back(third)
    attempt.over.set()
    play.judge()
    if not in_time:
        pytest.skip("skipped: the machine was too slow for what is to happen within a lease")
