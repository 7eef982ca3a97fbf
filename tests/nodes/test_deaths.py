# SPDX-License-Identifier: Apache-2.0
"""Nodes of a job are lost in all ways, at random moments and at each step of what they do; half of the processes outlive their node. At no
head of all nodes is a marker without its shards, or a removal without the later marker. What was acknowledged is there in the end, or was
set aside when a generation ended; only a power loss takes what no fsync had."""
import concurrent.futures
import contextlib
import json
import os
import random
import re
import struct
import threading
import time

import pytest

import lossy_job
import losses
import rig
import trainer

LEASE_S = 4
SETTLE_S = 60  # all waits of the protocol, and some more losses meanwhile
AGREE_S = 60
OFFSETS = ["-0.045", "0.045", "0.02", "-0.03", "0"]  # seconds, of each node's clock: what is promised to do no harm


class Union:
    """The heads of all nodes, as they are in the remote."""

    def __init__(self, shared, mount):
        self.shared, self.mount, self.generations = shared, mount, {}

    def numbers(self):
        return sorted(int(name.split("/")[1], 16) for name in self.shared.names("heads/") if re.fullmatch(r"heads/[0-9a-f]{16}", name))

    def generation_of(self, number):
        """And when it was published."""
        if number not in self.generations:
            head = self.shared.get(f"heads/{number:016x}")
            published, cut = struct.unpack_from("<QQ", head, 96)
            self.generations[number] = (cut >> 40, published / 1e9)
        return self.generations[number]

    def generation(self):
        numbers = self.numbers()
        return self.generation_of(numbers[-1])[0] if numbers else 0

    def ends(self):
        """When each generation ended."""
        found, last = [], 0
        for number in self.numbers():
            generation, published = self.generation_of(number)
            found += [published] if generation > last else []
            last = generation
        return found

    def state(self, number):
        """{path: size} of a head."""
        words = ["ls", *self.shared.flags(), "-R", "--json", "--at", str(number), self.shared.url + ":/"]
        return files_of(self.mount.verb(*words).stdout)


def files_of(listing):
    return {entry["path"].strip("/"): entry["bytes"] for entry in json.loads(listing) if entry["type"] == "file"}


class Job:
    """The launcher, with all attempts."""

    def __init__(self, nodes, union, rng, lease):
        self.nodes, self.union, self.rng, self.lease = nodes, union, rng, lease
        self.ledger, self.attempts, self.is_over, self.has_failed = lossy_job.Ledger(), [], threading.Event(), False
        self.forgiven = lossy_job.Forgiven()
        self.log, self.begin, self.last = [], time.monotonic(), None

    def say(self, what):
        self.log.append(f"{time.monotonic() - self.begin:7.2f} {what}")

    def steps(self):
        """So many were acknowledged, with their markers."""
        return sum(attempt.steps for attempt in self.attempts)

    def kill_ranks(self, node):
        for attempt in self.attempts:
            for rank in attempt.ranks:
                if rank.node is node:
                    rank.kill()

    def settle(self, nodes):
        """Those that are ready, by `cairn nodes settle`. It may take several leases."""

        def one(node):
            if not node.is_up:
                return None
            with self.forgiven.timeout("cairn nodes settle"):
                words = ["nodes", "settle", "--timeout", f"{8 * self.lease}s", node.mount.mnt]
                done = node.mount.cairn(*words, timeout=SETTLE_S * rig.PATIENCE)
                return node if done.returncode == 0 else None
            return None

        with concurrent.futures.ThreadPoolExecutor(len(nodes)) as pool:
            return [node for node in pool.map(one, nodes) if node]

    def start_attempt(self):
        nodes = self.settle(self.nodes)
        if len(nodes) < 2:
            return self.say(f"only {len(nodes)} are settled")
        generation = self.union.generation()
        nodes = self.rng.sample(nodes, len(nodes))  # the first one has the marker
        attempt = lossy_job.Attempt(self, len(self.attempts) + 1, generation)
        self.attempts.append(attempt)
        attempt.begin(nodes)
        attempt.last_generation = self.union.generation()
        if self.load(nodes[-1]):
            attempt.thread.start()
            self.last = attempt
            self.say(f"attempt {attempt.number} in generation {generation} on {[node.number for node in nodes]}")
        else:
            attempt.stop()

    def load(self, node):
        """The newest step that the mount shows is whole, or soon is; unless another loss comes."""
        end, generation = time.monotonic() + SETTLE_S * rig.PATIENCE, self.union.generation()
        while time.monotonic() < end and not self.has_failed:
            with self.forgiven.errors("to load"):
                steps = lossy_job.steps_in(lossy_job.files_in(node.mount.mnt))
                marked = [number for number, names in steps.items() if self.ledger.steps[number].marker in names]
                if not marked:
                    return True
                step = self.ledger.steps[max(marked)]
                if steps[step.number] >= step.paths().keys():
                    check_content(node.mount.mnt, step.paths(), self.forgiven)
                    return True
            if self.union.generation() != generation or not node.mount.answers():
                return False
            time.sleep(0.2)
        raise AssertionError(f"node {node.number} shows the marker of step {step.number} for long, and of it only {steps[step.number]}")

    def run(self):
        """An attempt that has ended is followed by another one; and one whose nodes went back, which lives on in half of all cases."""
        while not self.is_over.is_set() and not self.has_failed:
            last = self.last
            if last and not last.over.is_set() and self.union.generation() == last.last_generation:
                time.sleep(0.1)
                continue
            if last and (last.over.is_set() or self.rng.random() < 0.5):
                last.stop()
            if last:
                self.say(f"attempt {last.number} ends, {last.steps} steps: {last.why or 'others went back'}")
            self.last = None
            self.start_attempt()

    def last_attempt(self):
        """In peace: all that it does is there in the end."""
        end = time.monotonic() + 4 * SETTLE_S * rig.PATIENCE
        self.last = None
        while not (self.last and self.last.steps >= 3):
            assert time.monotonic() < end, "no attempt succeeds any more"
            if not self.last or self.last.over.is_set():
                self.start_attempt()
            time.sleep(0.1)
        self.last.over.set()

    def check_attempts(self):
        for attempt in self.attempts:
            if attempt.failure:
                raise attempt.failure

    def close(self):
        for attempt in self.attempts:
            attempt.close()


def check_content(root, sizes, forgiven):
    """What is there is whole; a file may go meanwhile, and a node be lost."""
    for path, size in sizes.items():
        with forgiven.errors("to read a file"):
            data = rig.read_file(os.path.join(root, path))
            assert data in (b"", trainer.content(path, size)), path


# ---------------------------------------------------------------- what is checked

def check_heads(job, union, most):
    numbers = union.numbers()
    if len(numbers) > most:
        numbers = sorted({*job.rng.sample(numbers, most), numbers[-1], *(n for n in numbers if n - 1 in union.generations
                         and union.generation_of(n - 1)[0] != union.generation_of(n)[0])})
    seen, states = set(), {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number, state in zip(numbers, pool.map(union.state, numbers)):
            why = job.ledger.torn(state, seen)
            assert not why, f"head {number} of generation {union.generation_of(number)[0]} is torn: {why}"
            seen = (seen | state.keys()) - {path for path in seen if path not in state}
            states[number] = state
    return states


def tree_of(root):
    found = {}
    for path in lossy_job.files_in(root):
        found[path] = len(rig.read_file(os.path.join(root, path)))
    return found


def agree(nodes, forgiven):
    """All mounts show the same."""
    trees = []

    def same():
        trees.clear()
        with forgiven.errors("to compare the mounts"):
            trees.extend(tree_of(node.mount.mnt) for node in nodes)
            return all(tree == trees[0] for tree in trees)

    with contextlib.suppress(TimeoutError):
        rig.poll(same, AGREE_S)
    for node, tree in zip(nodes, trees):
        differs = {path: (trees[0].get(path), tree.get(path)) for path in {*trees[0], *tree} if trees[0].get(path) != tree.get(path)}
        assert not differs, f"node {node.number} differs: {differs}"
    assert len(trees) == len(nodes)
    return trees[0]


def aside_of(node, job):
    """{generation: {path: size}} of all that a node set aside. Of each one step is read."""
    found, top = {}, os.path.join(node.mount.store, "aside")
    own = {saved.path: saved.size for saved in job.ledger.saved if saved.store == node.mount.store}
    for generation in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        place = f"{top}/{generation}:/"
        state = files_of(node.mount.verb("ls", "-R", "--json", place).stdout)
        whole = {path for path, size in own.items() if state.get(path) == size}
        if whole:
            step = job.rng.choice(sorted(whole)).split("/")[0]
            target = os.path.join(node.mount.root, f"copied-{generation}")
            done = node.mount.cairn("cp", "-r", place + step, target)
            assert done.returncode in (0, 1), done  # files of other nodes are not in it
            for path in whole:
                if path.startswith(step + "/"):
                    copied = os.path.join(target, path.split("/")[1])
                    assert os.path.exists(copied) and rig.read_file(copied) == trainer.content(path, own[path]), done
        found[int(generation)] = state
    return found


def check_given_up(union, states, own, aside):
    """What a node did itself and set aside when a generation ended is at no later head, unless all had told it: names are used once."""
    first = {}
    for number in sorted(states):
        first.setdefault(union.generation_of(number)[0], number)
    for generation, given_up in aside.items():
        if generation in first:
            given_up = own & given_up.keys() - states[first[generation]].keys()
            for number in (number for number in states if number > first[generation]):
                back = given_up & states[number].keys()
                assert not back, f"head {number} has {sorted(back)[:5]}, which were given up before generation {generation}"


def check_lost(job, nodes, union, states):
    """What was acknowledged, and is not there, was set aside by a node, in an end of a generation that came later."""
    state, aside = states[max(states)], {}
    for node in nodes:
        found = aside_of(node, job)
        check_given_up(union, states, job.ledger.paths_of(node.mount.store), found)
        aside[node.mount.store] = {(path, size) for each in found.values() for path, size in each.items()}
    gone = {store for node in nodes for store in node.gone}
    powerless = {store: at for node in nodes for store, at in node.powerless.items()}
    ends, lost, counted = union.ends(), [], {"there": 0, "removed": 0, "aside": 0, "gone": 0, "powerless": 0}
    for saved in job.ledger.saved:
        step = job.ledger.steps[lossy_job.number_of(saved.path)]
        if state.get(saved.path) == saved.size:
            counted["there"] += 1
        elif step.removals:
            counted["removed"] += 1
        elif not any(end > saved.at - job.lease - 2 for end in ends):
            lost.append(f"{saved.path}, though no generation ended since")
        elif saved.store in gone:
            counted["gone"] += 1
        elif (saved.path, saved.size) in aside[saved.store]:
            counted["aside"] += 1
        elif not saved.is_synced and powerless.get(saved.store, 0) > saved.at:
            counted["powerless"] += 1
        else:
            lost.append(f"{saved.path} of {saved.store}")
    assert not lost, f"{len(lost)} files that were acknowledged are lost: {lost[:10]}"
    last = {saved.path for saved in job.ledger.saved if job.ledger.steps[lossy_job.number_of(saved.path)].attempt is job.last}
    assert all(path in state or job.ledger.steps[lossy_job.number_of(path)].removals for path in last), "the last attempt lost something"
    return counted


def check_stores(nodes, shared):
    for node in nodes:
        done = node.mount.fsck()
        assert done.returncode == 0, f"node {node.number}: {done.stdout}{done.stderr}"
    nodes[0].mount.verb("fsck", *shared.flags(), shared.url)


# ---------------------------------------------------------------- the campaign

@pytest.fixture
def campaign(request, on_remote, remote, directory, rng, sanitized):
    build = os.path.abspath(request.config.getoption("--build"))
    libraries = [os.path.join(build, "tests", "faults", f"libfault{name}.so") for name in ("clock", "steps")]
    can_preload = not sanitized and all(map(os.path.exists, libraries))

    def make(way, number):
        options = {"nodes": True, "lease": f"{LEASE_S}s", "gc_grace": "1h", "remote_timeout": "2s", "successor": "on", "crash_window": "0"}
        mount = on_remote(way, kind=losses.KeptNode, writeback_delay=rng.choice(["0s", "50ms", "300ms"]), **options)
        if can_preload:
            offset = rig.write_file(os.path.join(mount.root, "offset"), OFFSETS[number % len(OFFSETS)])
            mount.env = {**mount.env, "LD_PRELOAD": ":".join(libraries), "CLOCK_OFFSET": offset, "CLOCK_STAMPS": "1"}
        return mount

    def run(count, seconds, deaths, most_heads):
        rig.need_root()
        nodes = []
        request.addfinalizer(lambda: [node.close() for node in nodes])
        for number in range(count):
            nodes.append(losses.Node(number, remote, directory, make, rng))
            nodes[-1].mount.mount()
        union = Union(remote, on_remote(remote))
        job = Job(nodes, union, random.Random(rng.random()), LEASE_S)
        request.addfinalizer(job.close)
        troubles = [losses.Losses(job, nodes, LEASE_S, rng, can_preload) for _ in range(max(1, count // 3))]
        pool = concurrent.futures.ThreadPoolExecutor(len(troubles) + 1)
        request.addfinalizer(pool.shutdown)
        try:
            launcher = pool.submit(job.run)
            until = time.monotonic() + seconds
            running = [pool.submit(trouble.go_on, until, -(-deaths // len(troubles))) for trouble in troubles]
            while not all(each.done() for each in running) and not launcher.done():
                time.sleep(0.2)
                job.check_attempts()
                [each.result() for each in running if each.done()]
            job.is_over.set()
            launcher.result()
            job.last_attempt()
            judge(job, nodes, union, most_heads)
        finally:
            job.has_failed = True
            died = sum(trouble.deaths for trouble in troubles)
            did = {what: sum(trouble.did.get(what, 0) for trouble in troubles) for what in losses.WEIGHTS}
            print("\n".join(job.log))
            print("forgiven:", job.forgiven.counts)
            print(f"{died} deaths {did}, {len(union.ends())} generations, {len(job.attempts)} attempts, {job.ledger.last} steps begun")
        return job, died

    def judge(job, nodes, union, most_heads):
        for attempt in job.attempts:
            if attempt is not job.last and attempt.thread.ident:
                attempt.stop()
                attempt.thread.join()
        job.last.thread.join()
        job.check_attempts()
        for node in nodes:
            node.mount.wait(level="remote")
        shown = agree(nodes, job.forgiven)
        target = os.path.join(directory, "copied")
        nodes[0].mount.verb("cp", *remote.flags(), "-r", remote.url + ":/", target)
        assert tree_of(target) == shown
        nothing = lossy_job.Forgiven()
        check_content(target, shown, nothing)
        assert not nothing.counts
        for node in nodes:
            node.mount.umount()
        begin = time.monotonic()
        states = check_heads(job, union, most_heads)
        assert states[max(states)] == shown
        print(f"{len(states)} heads, judged in {time.monotonic() - begin:.1f} s;", check_lost(job, nodes, union, states))
        check_stores(nodes, remote)

    return run


@pytest.mark.pieces(20)
@pytest.mark.timeout(300)
def test_nodes_are_lost(campaign, rng, full, piece):
    if full:
        job, deaths = campaign(rng.choice([4, 6, 8]), 1200, piece.share(2000), 1000)
        assert deaths >= piece.share(2000)
    else:
        job, deaths = campaign(rng.choice([3, 4]), 15, 1000, 40)
    assert deaths > 0 and job.last.steps >= 3
