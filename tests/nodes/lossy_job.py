# SPDX-License-Identifier: Apache-2.0
"""A job on many nodes that is started again after each loss, and what each state of all nodes together may be.

An attempt has a process on each node. They write a step: each its shard, then, when all are acknowledged, the first the marker; then it
removes an older step. No step has a name of an earlier one. An attempt may go on after the launcher has started the next one."""
import contextlib
import errno
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time

import rig

HERE = os.path.dirname(os.path.abspath(__file__))
SHARD = 20000
MARKER = 100
LOST = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ESTALE, errno.EINTR, errno.EIO)  # what a process of a node may get
GONE = (errno.ENOENT, *LOST)  # of a file that is removed meanwhile, too
ANSWER_S = 120  # of one call; longer than all waits of the protocol


class Stopped(Exception):
    """The attempt is over."""


class Forgiven:
    """What went wrong and may, because nodes are lost meanwhile: how often."""

    def __init__(self):
        self.lock, self.counts = threading.Lock(), {}

    def note(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    @contextlib.contextmanager
    def errors(self, what, numbers=GONE):
        """An OSError with one of these numbers ends the block."""
        try:
            yield
        except OSError as error:
            if error.errno not in numbers:
                raise
            self.note(f"{what}: {errno.errorcode[error.errno]}")

    @contextlib.contextmanager
    def timeout(self, what):
        try:
            yield
        except subprocess.TimeoutExpired:
            self.note(f"{what} took too long")


class Rank:
    """A process of a job, in a process group of its own."""

    def __init__(self, node):
        self.node, self.mount = node, node.mount  # of this machine; another one may come in its place
        command = [sys.executable, os.path.join(HERE, "trainer.py"), self.mount.mnt]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.answers = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put(None)

    def do(self, *command):
        """The answer, or None: the process has ended."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        try:
            return self.answers.get(timeout=ANSWER_S * rig.PATIENCE)
        except queue.Empty:
            raise AssertionError(f"{command} on {self.mount.mnt} hangs") from None

    def kill(self):
        self.process.kill()

    def close(self):
        self.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.close()


class Step:
    def __init__(self, number, attempt, stores):
        self.number, self.attempt, self.stores = number, attempt, stores  # one store for each rank
        self.removals = []  # of each the step whose marker was acknowledged before; None: it has no marker, and will have none

    def paths(self):
        return {f"s{self.number}/shard{rank}": SHARD for rank in range(len(self.stores))}

    @property
    def marker(self):
        return f"s{self.number}/marker"


class Saved:
    """What was acknowledged."""

    def __init__(self, path, size, store, is_synced):
        self.path, self.size, self.store, self.is_synced, self.at = path, size, store, is_synced, time.time()


class Ledger:
    """All steps of all attempts, and all that was acknowledged."""

    def __init__(self):
        self.lock, self.steps, self.saved, self.last = threading.Lock(), {}, [], 0

    def begin(self, attempt, stores):
        with self.lock:
            self.last += 1
            self.steps[self.last] = Step(self.last, attempt, stores)
            return self.steps[self.last]

    def note_saved(self, *what):
        with self.lock:
            self.saved.append(Saved(*what))

    def note_removal(self, number, cause):
        with self.lock:
            self.steps[number].removals.append(cause)

    def paths_of(self, store):
        """All that processes on its node write."""
        ranks = [(step, rank) for step in self.steps.values() for rank, other in enumerate(step.stores) if other == store]
        return {f"s{step.number}/shard{rank}" for step, rank in ranks} | {step.marker for step, rank in ranks if rank == 0}

    # ------------------------------------------------------------ what a state may be

    def is_implied(self, number, state):
        """The marker of the step is there, or was removed after that of a later one which is."""
        step = self.steps[number]
        return step.marker in state or any(cause and self.is_implied(cause, state) for cause in step.removals)

    def may_lack(self, step, state):
        """Was what it lacks removed, for a reason that is there?"""
        return any(self.is_implied(cause, state) for cause in step.removals if cause)

    def torn(self, state, seen):
        """state: {path: size}; seen: paths of states before it. Why it is none that may be; None: it may."""
        strangers = [path for path in state if number_of(path) not in self.steps or not self.is_of_step(path, state[path])]
        if strangers:
            return f"nobody wrote {sorted(strangers)[:5]}"
        for step in self.steps.values():
            lacks = [path for path in step.paths() if path not in state]
            if step.marker in state and lacks and not self.may_lack(step, state):
                return f"{step.marker} is there without {lacks} (removed after {step.removals})"
        for path in seen:
            step = self.steps[number_of(path)]
            if path not in state and not step.removals:
                return f"{path} was there, and nobody removed it"
            if path not in state and None not in step.removals and not self.may_lack(step, state):
                return f"{path} was removed after the marker of {step.removals}, which is not there"
        return None

    def is_of_step(self, path, size):
        """A file that was not closed yet may be empty."""
        step = self.steps[number_of(path)]
        return size in (0, MARKER) if path == step.marker else path in step.paths() and size in (0, SHARD)


def number_of(path):
    directory = path.split("/")[0]
    return int(directory[1:]) if directory[:1] == "s" and directory[1:].isdigit() else None


def files_in(root):
    return {os.path.relpath(os.path.join(top, name), root) for top, _, names in os.walk(root) for name in names}


def steps_in(paths):
    found = {}
    for path in paths:
        if "/" in path:
            found.setdefault(number_of(path), set()).add(path)
    return found


class Attempt:
    """The job from a start to its end, in a thread of its own."""

    def __init__(self, job, number, generation):
        self.job, self.number, self.generation = job, number, generation
        self.rng, self.ranks = random.Random(job.rng.random()), []
        self.stores = []
        self.tries_after_eio = self.rng.choice([0, 0, 3, 20])
        self.last_generation = generation  # when the last process had begun
        self.over, self.failure, self.why, self.steps = threading.Event(), None, "", 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def add(self, node):
        """A process begins there."""
        self.ranks.append(Rank(node))
        self.stores.append(self.ranks[-1].mount.store)

    def begin(self, nodes):
        """Its processes begin, at times one after the other, with others lost meanwhile; the first command waits for all of them."""
        skew = self.rng.choice([0, 0, 1.5 * self.job.lease])
        for node in nodes:
            self.add(node)
            time.sleep(self.rng.uniform(0, skew))  # processes of a job begin at different times

    def run(self):
        try:
            while not self.over.is_set():
                self.step()
        except Stopped as stopped:
            self.why = str(stopped)
        except BaseException as error:  # noqa: BLE001: the test raises it
            self.failure = error
        finally:
            self.over.set()

    def call(self, rank, *command):
        """Until it is done, also by the next daemon of the node."""
        end, refused = time.monotonic() + ANSWER_S * rig.PATIENCE, 0
        while not self.over.is_set():
            answer = rank.do(*command)
            if answer is None:
                raise Stopped(f"the process on {rank.node.number} has ended")
            number = answer.get("errno")
            if not number:
                return
            assert number in LOST, f"{command} on node {rank.node.number}: {os.strerror(number)}"
            refused += number == errno.EIO
            if refused > self.tries_after_eio:
                raise Stopped(f"EIO on {rank.node.number}")
            assert time.monotonic() < end, f"{command} on node {rank.node.number} still fails: {os.strerror(number)}"
            time.sleep(0.3 if number == errno.EIO else 0.05)  # before the next try
        raise Stopped("it is over")

    def save(self, rank, path, size):
        sync = self.rng.random() < 0.3
        self.call(self.ranks[rank], "make", path, size, sync)
        self.job.ledger.note_saved(path, size, self.stores[rank], sync)

    def step(self):
        step = self.job.ledger.begin(self, self.stores)
        self.each(lambda rank: self.save(rank, f"s{step.number}/shard{rank}", SHARD))
        if self.rng.random() < 0.3:
            self.over.wait(self.rng.uniform(0, 2.5 * self.job.lease))  # others are lost meanwhile, and come back
        self.save(0, step.marker, MARKER)
        self.steps += 1
        self.remove_older(step)
        self.over.wait(self.rng.uniform(0, 0.3))

    def remove_older(self, step):
        """All steps but this one and the one before that have a marker on this mount, and are whole; and what can become none any more."""
        root = self.ranks[0].mount.mnt
        with self.job.forgiven.errors("to list what is old"):
            for number, names in sorted(steps_in(files_in(root)).items()):
                other = self.job.ledger.steps[number]
                if other.marker in names and number < step.number - 1 and names >= other.paths().keys():
                    self.remove(other, names, step.number)
                elif other.marker not in names and other.attempt.last_generation < self.generation:
                    self.remove(other, names, None)

    def remove(self, other, paths, cause):
        self.job.ledger.note_removal(other.number, cause)
        for path in self.rng.sample(sorted(paths), len(paths)):
            self.call(self.ranks[0], "remove_all", path)
        self.call(self.ranks[0], "remove_all", f"s{other.number}")

    def each(self, function):
        errors = []

        def one(rank):
            try:
                function(rank)
            except BaseException as error:  # noqa: BLE001: raised below
                errors.append(error)

        threads = [threading.Thread(target=one, args=[rank], daemon=True) for rank in range(len(self.ranks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
            raise error

    def stop(self):
        """Its processes die."""
        self.over.set()
        for rank in self.ranks:
            rank.kill()

    def close(self):
        self.stop()
        if self.thread.ident:
            self.thread.join()
        for rank in self.ranks:
            rank.close()
