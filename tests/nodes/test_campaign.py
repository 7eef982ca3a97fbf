# SPDX-License-Identifier: Apache-2.0
"""Nodes train together while their daemons die, stand still, leave and come back, and lose the remote. At no head does the union of all
nodes lack what was done before something that it has; in the end it has all of it."""
import concurrent.futures
import contextlib
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import causes
import feeds
import processes
import remote as remotes
import rig
import trainer

HERE = os.path.dirname(os.path.abspath(__file__))
RETRIED = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ESTALE, errno.EIO, errno.EINTR)
SHARD = 20000
LEASE = 20  # longer than any node stands still, also on a busy machine: none is taken for lost
LONGEST = 8  # seconds
OFFSETS = ["-0.045", "0.045", "0.02", "-0.03"]  # seconds, of each node's clock: what is promised to do no harm


class Trainer:
    """A process of its own; its calls into the mount hang or fail as the daemon does."""

    def __init__(self, mountpoint):
        command = [sys.executable, os.path.join(HERE, "trainer.py"), mountpoint]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Node:
    """A mount with three processes that write into it: of the training, of a log, of the relay. While its lock is held, one does nothing."""

    def __init__(self, number, mount, job):
        self.number, self.mount, self.job = number, mount, job
        self.locks, self.trainers = [threading.Lock() for _ in range(3)], [Trainer(mount.mnt) for _ in range(3)]
        self.is_beset = threading.Lock()
        self.lines, self.kept, self.relayed = 0, [], None
        self.errors = {}

    def retry(self, which, command):
        """Until it is done; what a first try did already is done."""
        deadline = time.monotonic() + 60 * rig.PATIENCE
        failed = False
        while True:
            with self.locks[which]:
                answer = self.trainers[which].do(*command)
            assert "wrong" not in answer, f"node {self.number}: {answer['wrong']}"
            number = answer.get("errno")
            if not number or (failed and command[0] == "remove" and number == errno.ENOENT):
                return
            if command[0] == "rmdir" and number in (errno.ENOENT, errno.ENOTEMPTY):
                return  # another node removed it, or has not removed its shard yet
            assert number in RETRIED, f"node {self.number}: {command}: {os.strerror(number)}"
            self.errors[number] = self.errors.get(number, 0) + 1
            failed = True
            assert time.monotonic() < deadline and not self.job.has_failed, f"node {self.number}: {command}: {os.strerror(number)}"
            time.sleep(0.05)  # the daemon is down: before the next try

    def change(self, name, path, size, *more, which=0):
        change = self.job.causes.begin(path, size)
        self.retry(which, [name, path, *more])
        self.job.causes.end(change)

    def save(self, step):
        sync = self.job.rng.random() < 0.2
        self.change("make", f"step{step}/shard{self.number}", SHARD, SHARD, sync)
        self.change("write", f"state{self.number}", 100 + step, 100 + step, False)

    def remove_shard(self, step):
        self.change("remove", f"step{step}/shard{self.number}", causes.GONE)
        if self.number:
            self.retry(0, ["rmdir", f"step{step}"])

    def write_marker(self, step, ranks):
        self.change("make", f"step{step}/marker", 10 + ranks, 10 + ranks, False)
        self.change("replace", "latest", 1000 + step, 1000 + step, False)

    def log_lines(self, over):
        while not over.wait(0.1):
            self.change("log", f"log{self.number}", (self.lines + 1) * trainer.LINE, self.lines, self.lines % 5 == 0, which=1)
            self.lines += 1

    def relay(self, count):
        """Something small."""
        what = self.job.rng.choice(["overwrite", "overwrite", "write", "make", "remove", "replace"])
        if what == "make" or not self.kept:
            self.kept.append(f"relay/{self.number}-{count}")
            self.change("make", self.kept[-1], 300, 300, False, which=2)
        elif what == "remove":
            self.change("remove", self.kept.pop(0), causes.GONE, which=2)
        else:
            more = [] if what == "overwrite" else [False]
            self.change(what, f"{what}{self.number}", 300 + count, 300 + count, *more, which=2)

    @contextlib.contextmanager
    def idle(self):
        with self.locks[0], self.locks[1], self.locks[2]:
            self.trainers[2].do("release")
            yield

    def tree(self):
        """{path: (size, hash)}; None for a directory."""
        return tree_of(self.mount.mnt)

    def close(self):
        for each in self.trainers:
            each.close()


def tree_of(root):
    found = {}
    for top, directories, names in os.walk(root):
        for name in directories:
            found[os.path.relpath(os.path.join(top, name), root)] = None
        for name in names:
            path = os.path.join(top, name)
            data = rig.read_file(path)
            found[os.path.relpath(path, root)] = (len(data), hashlib.sha256(data).hexdigest())
    return found


class Job:
    """Steps of a training, and a log of each node."""

    def __init__(self, rng):
        self.rng, self.causes = rng, causes.Causes()
        self.nodes, self.over, self.steps, self.has_failed = [], threading.Event(), 0, False
        self.pool = concurrent.futures.ThreadPoolExecutor(32)

    def add(self, mount):
        self.nodes.append(Node(len(self.nodes), mount, self))

    def start(self):
        logs = [self.pool.submit(node.log_lines, self.over) for node in self.nodes[:2]]
        self.running = [self.pool.submit(self.train), self.pool.submit(self.relay), *logs]

    def each(self, nodes, function, *arguments):
        for done in [self.pool.submit(function, node, *arguments) for node in nodes]:
            done.result()

    def train(self):
        saved = {}
        while not self.over.is_set():
            self.steps += 1
            step, nodes = self.steps, list(self.nodes)  # one that joins takes part from the next step on
            self.each(nodes, Node.save, step)
            nodes[0].write_marker(step, len(nodes))
            saved[step] = nodes
            self.each(saved.get(step - 2, []), Node.remove_shard, step - 2)
            time.sleep(self.rng.uniform(0, 0.3))

    def relay(self):
        """One node after the other does something, as soon as that before it has done so, or does not answer."""
        count = 0
        while not self.over.wait(0.005):
            free = [node for node in self.nodes if not node.relayed or node.relayed.done()]
            if not free:
                continue
            count += 1
            node = self.rng.choice(free)
            if node.relayed:
                node.relayed.result()
            node.relayed = self.pool.submit(node.relay, count)
            concurrent.futures.wait([node.relayed], 0.05)
        for node in self.nodes:
            if node.relayed:
                node.relayed.result()

    def check_running(self):
        for each in self.running:
            if each.done():
                each.result()

    def end(self):
        self.over.set()
        for each in self.running:
            each.result(120 * rig.PATIENCE)


# ---------------------------------------------------------------- what happens to them

WEIGHTS = {"kill": 4, "kill merger": 2, "stand": 5, "stand_and_die": 2, "leave": 2, "hang": 2, "away": 1}


class Place:
    """The remote's directory, which is away at times, and what all troubles did."""

    def __init__(self, remote):
        self.path, self.lock, self.times_away = remote.path, threading.Lock(), 0
        self.log, self.begin = [], time.monotonic()

    def say(self, what):
        self.log.append(f"{time.monotonic() - self.begin:6.2f} {what}")


class Trouble:
    """Besets one node at a time; what it began, it ends."""

    def __init__(self, job, place, rng):
        self.job, self.place, self.rng = job, place, rng

    def some_time(self):
        return 0.1 * (LONGEST / 0.1) ** self.rng.random()

    def mount(self, node):
        with self.place.lock:  # without its directory a mount is refused
            node.mount.mount(step=0.1)

    def kill(self, node):
        node.mount.kill9()
        if self.rng.random() < 0.5:
            time.sleep(self.some_time() / 2)
        self.mount(node)

    def stand(self, node):
        node.mount.pause()
        time.sleep(self.some_time())
        node.mount.go_on()

    def stand_and_die(self, node):
        self.stand(node)
        time.sleep(self.rng.uniform(0, 0.2))
        node.mount.kill9()
        self.mount(node)

    def leave(self, node):
        with node.idle():
            node.mount.umount()
            if self.rng.random() < 0.5:
                time.sleep(self.some_time() / 2)
            self.mount(node)

    def hang(self, node):
        pids = processes.dir_helpers(node.mount.proc.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(self.some_time())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def away(self, node):
        """The directory is not there, for any node."""
        with self.place.lock:
            self.place.times_away += 0.5  # a half: it is away now
            os.rename(self.place.path, self.place.path + "-away")
            time.sleep(self.some_time() / 2)
            os.rename(self.place.path + "-away", self.place.path)
            self.place.times_away += 0.5

    def choose_node(self, what):
        nodes = list(self.job.nodes)
        if what == "kill merger":
            for node in nodes:
                with contextlib.suppress(Exception):
                    if node.mount.status()["remote"]["nodes"]["merges"]:
                        return node
        return self.rng.choice(nodes)

    def one(self):
        what = self.rng.choices(list(WEIGHTS), WEIGHTS.values())[0]
        node = self.choose_node(what)
        if not node.is_beset.acquire(blocking=False):
            time.sleep(0.05)  # before another one is chosen
            return
        try:
            self.place.say(f"{what} {node.number}")
            assert node.mount.proc.poll() is None, f"the daemon of node {node.number} has ended by itself"
            getattr(self, what.split()[0])(node)
            self.place.say(f"{what} {node.number} is over")
        finally:
            node.is_beset.release()

    def go_on(self, until):
        while time.monotonic() < until:
            self.one()
            self.job.check_running()
            time.sleep(self.rng.uniform(0, 5))  # rounds pass in peace, too


# ---------------------------------------------------------------- what is checked

def heads_of(remote):
    return sorted(int(name.split("/")[1], 16) for name in remote.names("heads") if re.fullmatch(r"heads/[0-9a-f]{16}", name))


def at_head(remote, number):
    """The prefix as it was when this head was the newest: a copy without later ones."""
    copy = remotes.DirRemote(remote.root)
    shutil.rmtree(copy.path)
    shutil.copytree(remote.path, copy.path, copy_function=os.link)
    for later in heads_of(copy):
        if later > number:
            copy.delete(f"heads/{later:016x}")
    return copy


def listed(mount, remote):
    """({path: size}, directories)"""
    return state_of(json.loads(mount.verb("ls", "-R", "--json", remote.url + ":/").stdout))


def state_of(entries):
    files = {entry["path"].strip("/"): entry["bytes"] for entry in entries if entry["type"] == "file"}
    return files, {entry["path"].strip("/") for entry in entries if entry["type"] == "directory"}


def check_contents(root):
    for top, _, names in os.walk(root):
        for name in names:
            path = os.path.join(top, name)
            relative, data = os.path.relpath(path, root), rig.read_file(path)
            if name.startswith("log"):
                assert data == b"".join(trainer.line(i) for i in range(len(data) // trainer.LINE)), relative
            elif data and not name.endswith(".tmp"):
                assert data == trainer.content(relative, len(data)), relative


def check_head(job, mount, remote, number, directory, with_content):
    copy = at_head(remote, number)
    state, _ = listed(mount, copy)
    why = job.causes.torn(state)
    assert not why, f"head {number} is torn: {why}"
    if with_content:
        target = os.path.join(directory, f"copied-{number}")
        mount.verb("cp", "-r", copy.url + ":/", target)
        assert {path: size for path, (size, _) in files_of(tree_of(target)).items()} == state
        check_contents(target)
        shutil.rmtree(target)
    copy.wipe()


def files_of(tree):
    return {path: what for path, what in tree.items() if what}


def check_heads(job, mount, remote, directory, most):
    numbers = heads_of(remote)
    chosen = numbers if len(numbers) <= most else sorted({*job.rng.sample(numbers, most - 1), numbers[-1]})
    contents = set(job.rng.sample(chosen, min(4, len(chosen))))
    for number in chosen:
        check_head(job, mount, remote, number, directory, number in contents)
    return len(chosen)


def check_end(job, remote, directory):
    """All nodes are unmounted; all showed the same."""
    mount, union = job.nodes[0].mount, job.nodes[0].last_tree
    for node in job.nodes:
        assert node.last_tree == union, f"node {node.number}"
    assert {path: size for path, (size, _) in files_of(union).items()} == job.causes.newest(), "each node has what it did"
    target = os.path.join(directory, "copied")
    mount.verb("cp", "-r", remote.url + ":/", target)
    assert tree_of(target) == union
    check_contents(target)
    assert set(listed(mount, remote)[1]) == {path for path, what in union.items() if what is None}
    done = mount.cairn("fsck", remote.url)
    assert done.returncode == 0, done
    for node in job.nodes:
        done = node.mount.fsck()
        assert done.returncode == 0, done


def check_feeds(remote):
    """Each goes on where the one before it ended, and the head that it names was there first. Returns them, by stay."""
    lines = feeds.feeds_of(remote)
    for line in lines.values():
        feeds.check_line(line)
        for feed in line:
            head = os.stat(remote.file(f"nodes/{feed.node:016x}/heads/{feed.head:016x}")) if feed.head else None
            told = os.stat(remote.file(f"feeds/{feed.hi:016x}-{feed.epoch:016x}"))
            assert not head or head.st_mtime_ns <= told.st_mtime_ns, f"{feed} was put before its head"
    return lines


def end_nodes(job):
    for node in job.nodes:
        node.trainers[2].do("release")
        node.mount.wait(level="remote")

    def agree():
        with contextlib.suppress(OSError):  # another node removes what is looked at
            for node in job.nodes:
                node.last_tree = node.tree()
            return all(node.last_tree == job.nodes[0].last_tree for node in job.nodes)

    with contextlib.suppress(TimeoutError):  # check_end() says how they differ
        rig.poll(agree, 60 / rig.PATIENCE)
    for node in job.nodes:
        node.mount.umount()


class Reader:
    """Lists the prefix all the time, as it is."""

    def __init__(self, mount, remote, place):
        self.mount, self.remote, self.place, self.states = mount, remote, place, []

    def look(self):
        times = self.place.times_away
        done = self.mount.cairn("ls", "-R", "--json", self.remote.url + ":/")
        if done.returncode == 0:
            self.states.append(state_of(json.loads(done.stdout))[0])
        elif "nothing was published there yet" not in done.stderr:  # there is no head yet
            assert times % 1 or self.place.times_away != times, done.stderr

    def go_on(self, over):
        while not over.wait(0.3):
            self.look()

    def check(self, job):
        for number, state in enumerate(self.states):
            why = job.causes.torn(state)
            assert not why, f"look {number} is torn: {why}"


# ---------------------------------------------------------------- the campaign

@pytest.fixture
def campaign(request, on_remote, directory, rng, clock_library):
    def run(seconds, grace, reads=False):
        remote = remotes.DirRemote(os.path.join(directory, "remotes"))
        options = {"nodes": True, "lease": f"{LEASE}s", "gc_grace": grace, "remote_timeout": "2s"}
        offsets = rng.sample(OFFSETS, rng.choice([3, 4]))
        mounts = [on_remote(remote, writeback_delay=rng.choice(["0s", "50ms", "300ms"]), **options) for _ in offsets]
        for number, (mount, offset) in enumerate(zip(mounts, offsets)):
            path = rig.write_file(os.path.join(directory, f"offset{number}"), offset)
            mount.env = {**mount.env, "LD_PRELOAD": clock_library, "CLOCK_OFFSET": path, "CLOCK_STAMPS": "1"}
        job = Job(random.Random(rng.random()))
        request.addfinalizer(lambda: finish(job))
        for mount in mounts[:-1]:
            job.add(mount.mount())
        place = Place(remote)
        troubles = [Trouble(job, place, random.Random(rng.random())) for _ in range(2)]
        job.start()
        reader = Reader(mounts[0], remote, place)
        job.running += [job.pool.submit(reader.go_on, job.over)] if reads else []
        until = time.monotonic() + seconds
        try:
            running = [job.pool.submit(trouble.go_on, until) for trouble in troubles]
            time.sleep(rng.uniform(0, seconds / 2))
            with place.lock:
                job.add(mounts[-1].mount())  # it joins late
                place.say("the last one joined")
            for each in running:
                each.result()
            time.sleep(3)  # the job goes on in peace, for more than a round
            job.end()
            end_nodes(job)
        finally:
            print("\n".join(place.log))
            print({node.number: node.errors for node in job.nodes})
        reader.check(job)
        print(f"{job.steps} steps, {len(reader.states)} looks, {len(heads_of(remote))} heads")
        return job, remote

    return run


def finish(job):
    job.has_failed = True  # if anything runs yet
    job.over.set()
    for node in job.nodes:
        node.mount.close()
        node.close()
    job.pool.shutdown()


@pytest.mark.pieces(10)
@pytest.mark.timeout(200)
def test_the_union_is_never_torn(campaign, directory, rng, full, piece):
    job, remote = campaign(60 if full else 15, "1h")
    begin = time.monotonic()
    heads = check_heads(job, job.nodes[0].mount, remote, directory, 200 if full else 40)
    check_end(job, remote, directory)
    lines = check_feeds(remote)
    print(f"{heads} heads, {len(lines)} stays, {sum(map(len, lines.values()))} feeds, checked in {time.monotonic() - begin:.1f} s")
    assert job.steps > 2 and heads > 2


@pytest.mark.pieces(5)
@pytest.mark.timeout(200)
def test_deleting_what_no_head_needs_loses_nothing(campaign, directory, full, piece):
    job, remote = campaign(60 if full else 6, "2s", reads=True)
    check_end(job, remote, directory)
    assert job.steps > 2
