# SPDX-License-Identifier: Apache-2.0
"""What happens to the nodes of a job: their daemons die and stand still, also in the middle of what they do, their machines lose power or
never come back, they are cut off from the remote, and a person ends them."""
import contextlib
import os
import random
import shutil
import signal
import threading
import time

import fault_proxy
import processes
import remote as remotes
import rig
import successor


UP_S = 60  # until a mount works again, its way being there


class KeptNode(remotes.RemoteMount, successor.Kept):
    pass


# ---------------------------------------------------------------- ways to the remote

class DirWay:
    """A path of its own to the directory, which can be taken away."""

    def __init__(self, shared, directory):
        self.above = os.path.join(directory, "way")
        self.path = rig.mkdir(os.path.join(rig.mkdir(self.above), "remote"))
        rig.run("mount", "--bind", shared.path, self.path)
        self.remote = remotes.DirRemote(self.above, self.path)

    def cut(self):
        os.rename(self.above, self.above + "-cut")

    def join(self):
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.above + "-cut", self.above)

    def close(self):
        self.join()
        rig.file_systems_unmount(self.path)


class S3Way:
    """A proxy of its own, which also repeats requests, delays them and loses answers."""

    def __init__(self, shared, seed):
        self.proxy = fault_proxy.FaultProxy(shared.rgw.endpoint, seed).start()
        self.remote = shared.through(self.proxy)
        self.join()

    def cut(self):
        self.proxy.set(down=True)

    def join(self):
        self.proxy.calm()
        self.proxy.set(faults={"lost_answer": 0.02, "duplicate": 0.02, "delay": 0.02})

    def close(self):
        self.proxy.stop()


def way_to(shared, directory, rng):
    return DirWay(shared, directory) if shared.kind == "dir" else S3Way(shared, str(rng.random()))


class Node:
    """`make` makes a mount on a remote, with an empty store, not yet mounted."""

    def __init__(self, number, shared, directory, make, rng):
        self.number, self.shared, self.directory, self.make = number, shared, directory, make
        self.is_beset, self.is_up, self.count, self.way = threading.Lock(), True, 0, None
        self.powerless = {}  # store: when it lost its stage last
        self.gone = set()  # stores that never come back
        self.begin(rng)

    def begin(self, rng):
        """A new machine: nothing is there of the one before."""
        self.count += 1
        root = rig.mkdir(os.path.join(self.directory, f"node{self.number}-{self.count}"))
        self.way = self.new_way(root, rng)
        self.mount = self.make(self.way.remote, self.number)
        self.step_fault = os.path.join(root, "step-fault")
        self.mount.env = {**self.mount.env, "STEP_FAULT": self.step_fault}

    def new_way(self, root, rng):
        return way_to(self.shared, root, rng)

    def merges(self):
        """Of a daemon that does not answer it cannot be told: as if not."""
        answer = self.mount.ask(verb="status") or {}
        return bool(answer.get("remote", {}).get("nodes", {}).get("merges"))

    def epoch(self):
        """Of its stay. None: it cannot be told now."""
        self.mount.ask(verb="nodes", look=True)
        for _ in range(20):
            time.sleep(0.1)  # the daemon asks the remote in a thread of its own
            for stay in (self.mount.ask(verb="nodes") or {}).get("nodes", []):
                if stay["is_this"]:
                    return stay["epoch"]
        return None

    def pids(self):
        daemon = self.mount.daemon()
        return [daemon, *processes.dir_helpers(daemon)] if daemon else []

    def cut(self):
        """From the remote. A process that has its directory open would still read there."""
        self.way.cut()
        for pid in self.pids()[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def signal(self, number):
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self):
        self.mount.close()
        self.way.close()


# ---------------------------------------------------------------- what happens

# Calls at which a daemon dies or stops: words of the path, the most calls, and what has to be there meanwhile.
OF_PUBLISHING = [("feeds/", 1), ("/heads/", 1), ("writers/", 2), ("packs/", 2), ("nodes/", 6)]
OF_MERGING = [("heads/", 1), ("runs/", 2), ("ended/", 1), ("lease/holder", 2), ("copies/", 2)]
OF_GOING_BACK = [("/aside/new", 20), ("/aside/", 25), ("/back", 2), ("/node", 2), ("-", 60), ("-", 15)]

WEIGHTS = {"kill": 3, "kill_daemon": 2, "power": 3, "stand": 3, "cut": 3, "cut_and_kill": 1, "end": 2, "never": 2, "strike": 3,
           "beset_all": 4, "held_back": 4}


class Losses:
    """Besets nodes, one after the other; what it began, it ends. `can_strike`: faults can be preloaded."""

    def __init__(self, job, nodes, lease, rng, can_strike):
        self.job, self.nodes, self.lease, self.rng, self.can_strike = job, nodes, lease, random.Random(rng.random()), can_strike
        self.deaths, self.did = 0, {}

    def some_time(self, leases=2.5):
        """Often short, and as often too long for the others."""
        if self.rng.random() < 0.5:
            return self.rng.uniform(0, leases * self.lease)
        return 0.05 * (leases * self.lease / 0.05) ** self.rng.random()

    def rest(self, leases=2.5):
        """Chance: faults come at any time. Nothing is judged by how long it took."""
        time.sleep(self.some_time(leases))

    def lose_ranks(self, node):
        """Half of the processes outlive the daemon of their node."""
        if self.rng.random() < 0.5:
            self.job.kill_ranks(node)

    def up(self, node):
        """Mounts again, as the machine's own scripts do: until it works."""
        end = time.monotonic() + UP_S * rig.PATIENCE
        while True:
            try:
                node.mount.mount(step=0.1)
                break
            except rig.MountError as error:
                self.job.say(f"node {node.number}: {str(error).splitlines()[-1]}")
                self.job.forgiven.note("a mount that was refused, and tried again")
                assert "damaged" not in str(error) and time.monotonic() < end and not self.job.has_failed, error
                time.sleep(0.3)  # before the next try
        node.is_up = True

    def kill(self, node):
        node.is_up = False
        node.mount.kill9()
        self.lose_ranks(node)
        if self.rng.random() < 0.7:
            self.rest()
        node.way.join()
        self.up(node)

    def kill_daemon(self, node):
        node.mount.kill_daemon()

    def power(self, node):
        node.is_up = False
        node.mount.kill9()
        node.mount.drop_stage()
        node.powerless[node.mount.store] = time.time()
        self.lose_ranks(node)
        if self.rng.random() < 0.7:
            self.rest()
        node.way.join()
        self.up(node)

    def never(self, node):
        """Another machine comes in its place."""
        node.is_up = False
        node.gone.add(node.mount.store)
        epoch = node.epoch()
        node.mount.kill9()
        self.lose_ranks(node)
        node.close()
        shutil.rmtree(node.mount.store, ignore_errors=True)
        self.rest(1)
        if self.rng.random() < 0.5:
            self.end_epoch(node, epoch)
        node.begin(self.rng)
        self.up(node)

    def stand(self, node):
        node.signal(signal.SIGSTOP)
        self.rest()
        node.signal(signal.SIGCONT)

    def cut(self, node):
        node.cut()
        self.rest()
        node.way.join()

    def cut_and_kill(self, node):
        node.cut()
        self.rest(1.5)
        node.mount.kill_daemon()
        self.rest(1)
        node.way.join()

    def end_epoch(self, victim, epoch):
        if not epoch:
            self.job.forgiven.note("an epoch that a node did not tell")
        for node in self.rng.sample(self.nodes, len(self.nodes)):
            if epoch and node is not victim and node.is_up:
                with self.job.forgiven.timeout("cairn nodes end"):
                    done = node.mount.cairn("nodes", "end", node.mount.mnt, str(epoch), timeout=20)
                    self.job.say(f"end {epoch}: {done.returncode} {(done.stdout + done.stderr).strip()[-100:]}")
                    return

    def end(self, node):
        """Also one that lives."""
        self.end_epoch(node, node.epoch())

    def held_back(self, node):
        """It is lost when the others told what rests on files that only it has: where it takes part, they wrote a marker meanwhile."""
        node.cut()
        end, steps = time.monotonic() + self.lease, self.job.steps()
        while time.monotonic() < end and self.job.steps() == steps:
            time.sleep(0.02)  # until the others save, or for a lease: without a save it is lost all the same
        time.sleep(self.rng.uniform(2, 3))  # until the others told of a round behind that
        self.rng.choice([self.power, self.never, self.kill, self.end])(node)
        node.way.join()

    # ------------------------------------------------------------ in the middle of something

    def arm(self, node, sig, words, most, guard="-"):
        order = f"{int(sig)} {self.rng.choice(['before', 'after'])} {self.rng.randint(1, most)} {words} {guard}\n"
        rig.write_file(node.step_fault + ".new", order)
        os.rename(node.step_fault + ".new", node.step_fault)
        return order.strip()

    def await_strikes(self, armed, seconds):
        """Those who stopped go on some time later."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(os.path.exists(node.step_fault) for node in armed):
            time.sleep(0.05)
        struck = [node for node in armed if not os.path.exists(node.step_fault)]
        for node in armed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(node.step_fault)
        if struck and any(sig == signal.SIGSTOP for sig in armed.values()):
            self.rest()
        for node in armed:
            node.signal(signal.SIGCONT)
        self.deaths += len(struck)
        self.job.say(f"struck: {[node.number for node in struck]} of {[node.number for node in armed]}")

    def some_signal(self):
        return self.rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])

    def strike(self, node):
        """While it publishes, or merges."""
        sig = self.some_signal()
        words, most = self.rng.choice(OF_MERGING if node.merges() else OF_PUBLISHING)
        self.job.say(f"armed {node.number}: {self.arm(node, sig, words, most)}")
        self.await_strikes({node: sig}, 2 * self.lease)
        self.deaths -= 1  # which is counted for each of those that were beset

    def beset_all(self, victim):
        """It is lost, and others die or stop while they end it, or while they go back."""
        armed = {}
        for node in self.nodes:
            if node is not victim and node.is_up and node.is_beset.acquire(blocking=False):
                armed[node] = self.some_signal()
                words, most = self.rng.choice(OF_MERGING if node.merges() else OF_GOING_BACK)
                guard = "-" if (words, most) in OF_MERGING else os.path.join(node.mount.store, "back")
                self.job.say(f"armed {node.number}: {self.arm(node, armed[node], words, most, guard)}")
        try:
            self.rng.choice([self.power, self.never, self.end])(victim)
            self.await_strikes(armed, 2.5 * self.lease)
        finally:
            for node in armed:
                node.is_beset.release()

    # ------------------------------------------------------------ all of it

    def choose(self):
        what = self.rng.choices(list(WEIGHTS), WEIGHTS.values())[0]
        mergers = [node for node in self.nodes if node.merges()] if self.rng.random() < 0.3 else []
        return what, self.rng.choice(mergers or self.nodes)

    def one(self):
        what, node = self.choose()
        if what in ("strike", "beset_all") and not self.can_strike or not node.is_beset.acquire(blocking=False):
            time.sleep(0.05)  # before another one is chosen
            return
        try:
            self.job.say(f"{what} {node.number}")
            getattr(self, what)(node)
            self.deaths += 1
            self.did[what] = self.did.get(what, 0) + 1
            self.job.say(f"{what} {node.number} is over")
        finally:
            node.is_beset.release()

    def go_on(self, until, most):
        while time.monotonic() < until and self.deaths < most and not self.job.has_failed:
            self.one()
            time.sleep(self.some_time(1.5))  # chance: so that faults overlap, or not
