#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs operations on a mount and on the model, side by side; a failure is shrunk to few operations.

    model_run.py --build build --seconds 600             # seeds one after the other
    model_run.py --build build --seed 7                  # one seed, as tests/model does it
    model_run.py --build build --ops FILE [--shrink 0]   # operations of a failure again (one JSON list a line)
    model_run.py --build build --seed 7 --disk           # the store on a disk that loses power at each cut

The first line of operations is ["mount", options]; between the others there are events: "remount", "kill" (the daemon
dies, and comes back), "cut" (power loss: only a prefix that has every fsync must be left), with --reduce dense "rest" (a remount, and
time in which old files become dense).
"""
import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import model  # noqa: E402
import model_generate  # noqa: E402
import model_worker  # noqa: E402
import powercut  # noqa: E402
import rig  # noqa: E402
from model_tree import Mismatch  # noqa: E402

EVENTS = ("remount", "kill", "cut", "rest")


class Failure(Exception):
    """operations: what was done, the last one failed."""

    def __init__(self, operations, why):
        super().__init__(why)
        self.operations, self.why = operations, why


class Run:
    """One mount, one model, and what was done. `disk`: a powercut.PowerCut, or None: a cut takes the stage only."""

    def __init__(self, mount, options, disk=None, worker=model_worker.Worker):
        self.mount, self.options, self.disk = mount, options, disk
        self.model = model.Model(plain=mount.plain)
        self.done = [["mount", options]]
        self.cuts = 0
        mount.mount(**options)
        self.workers = [model_worker.Process(mount.mnt, worker) for _ in range(model.PROCS)]
        self.model.start(self.ask(["tree", 0])[1][""])

    def close(self):
        for worker in self.workers:
            worker.kill()

    def ask(self, op):
        return self.workers[op[1] % model.PROCS].do(op)

    def step(self, op):
        """One operation or event, on both sides."""
        if op[0] not in EVENTS and not self.model.valid(op):
            return
        for slot in self.model.dirty_maps(op):
            if slot in self.model.maps and self.model.maps[slot].node.map_dirty:
                self.perform(["msync", slot])
        self.perform(op)

    def perform(self, op):
        self.done.append(op)
        try:
            if op[0] in EVENTS:
                self.event(op[0])
            else:
                since = time.time()
                self.model.apply(op, self.answer(op), since)
        except (Mismatch, rig.MountError, TimeoutError, AssertionError) as failure:
            raise Failure(self.done, str(failure)) from failure

    def answer(self, op):
        if op[0] != "exit":
            return self.ask(op)
        self.workers[op[1]].kill()
        self.workers[op[1]].start()
        return "ok", None

    # ------------------------------------------------------------ events

    def event(self, name):
        self.model.now = time.time()
        self.model.seal_by_themselves()
        if name == "cut" and self.disk:
            self.mount.pause()  # a remote must not get what the disk has no more
            clone = self.disk.cut()
        if name in ("kill", "cut"):
            self.mount.kill9()
        for worker in self.workers:
            worker.do(["reset"])
        if name in ("remount", "rest"):
            self.mount.umount()
        elif name == "cut":
            self.mount.drop_stage()
        if name == "cut" and self.disk:
            self.disk.follow(clone)
            self.mount.store = os.path.join(self.disk.inner.mountpoint, "store")
        self.mount.mount(**self.options)
        if name == "rest":
            self.mount.wait(level="remote")
            time.sleep(2)  # shows nothing: what may become dense meanwhile does
        seen = self.ask(["tree", 0])[1]
        if name == "cut" and not self.mount.plain:
            self.cuts += 1
            self.model.check_cut(seen)
            return
        self.model.forget_handles()
        self.model.check_live(seen)
        if name in ("remount", "rest"):
            self.model.barrier()

    def finish(self):
        """All is as the model says, also without a mount, and fsck is clean."""
        self.perform(["remount"])
        self.mount.umount()
        done = self.mount.fsck()
        if done.returncode != 0:
            raise Failure(self.done, f"fsck: {done.returncode}\n{done.stdout}{done.stderr}")


def options_of(rng):
    return {
        "stage": "64M",
        "nvme": "1G",
        "noatime": True,
        "writeback_delay": rng.choice(("0s", "20ms", "200ms", "1s")),
        "attr_timeout": rng.choice((0, 1, 60)),
        "entry_timeout": rng.choice((0, 1, 60)),
    }


def explore(mount, seed, seconds, **rest):
    """Random operations until the time is over. Returns how many, and how many cuts; raises Failure."""
    rng = random.Random(f"model {seed}")
    run = Run(mount, options_of(rng), **rest)
    with contextlib.closing(run):
        generator = model_generate.Generator(rng, run.model, mount.plain)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(rng.randrange(20, 400)):
                run.step(generator.next())
            if rig.is_dense() and rng.random() < 0.5:
                for op in generator.checkpoints():
                    run.step(op)
                run.step(["rest"])
            run.step([rng.choice(("remount", "kill", "kill", "cut", "cut"))])
        run.finish()
        return len(run.done), run.cuts


def replay(mount, operations, **rest):
    """The same operations again; raises Failure."""
    run = Run(mount, operations[0][1], **rest)
    with contextlib.closing(run):
        for op in operations[1:]:
            run.step(op)
        run.finish()


# ---------------------------------------------------------------- shrinking

class Shrinker:
    """Delta debugging: leaves out parts as long as what is left still fails, each try on a fresh mount.
    attempt(operations) gives their failure, or None."""

    def __init__(self, attempt, seconds):
        self.attempt, self.end = attempt, time.monotonic() + seconds

    def shrink(self, failure):
        """The smallest failure found in the time; as it was, if it does not come again."""
        parts = 2
        while time.monotonic() < self.end and len(failure.operations) > 2:
            smaller = self.leave_out(failure, parts)
            if smaller:
                failure, parts = smaller, max(2, parts - 1)
            elif parts >= len(failure.operations) - 1:
                return failure
            else:
                parts = min(2 * parts, len(failure.operations) - 1)
        return failure

    def leave_out(self, failure, parts):
        first, rest = failure.operations[:1], failure.operations[1:]
        size = -(-len(rest) // parts)
        for start in range(0, len(rest), size):
            if time.monotonic() > self.end:
                return None
            smaller = self.attempt(first + rest[:start] + rest[start + size :])
            if smaller and len(smaller.operations) < len(failure.operations):
                return smaller
        return None


@contextlib.contextmanager
def place(make_mount, make_disk=None):
    """(mount, disk) of its own; the store lies on the disk, if there is to be one."""
    disk = make_disk() if make_disk else None
    mount = make_mount()
    mount.options.update(rig.remote_of_dense(mount.root))
    if disk:
        mount.store = os.path.join(disk.inner.mountpoint, "store")
    try:
        yield mount, disk
    finally:
        mount.close()
        if disk:
            disk.close()


def attempt_on(make_mount, make_disk=None, **rest):
    """attempt(operations) on a place of its own."""

    def attempt(operations):
        with place(make_mount, make_disk) as (mount, disk):
            try:
                replay(mount, operations, disk=disk, **rest)
            except Failure as failure:
                return failure
        return None

    return attempt


def explain(failure, path, seed, smaller=None, how=""):
    """Keeps the operations and says how to run them again."""
    told = [f"seed {seed}: {failure.why}", f"after {len(failure.operations)} operations, kept in {path}"]
    save(path, failure.operations)
    if smaller:
        save(path + ".small", smaller.operations)
        told += [f"shrunk to {len(smaller.operations)}, kept in {path}.small: {smaller.why}"]
        told += ["  " + json.dumps(op) for op in smaller.operations[-40:]]
    told.append(f"again: tests/model/model_run.py --build BUILD --ops {path}{'.small' if smaller else ''}{how}")
    return "\n".join(told)


def save(path, operations):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.writelines(json.dumps(op) + "\n" for op in operations)


def load(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def report(failure, make_mount, path, seed, seconds, make_disk=None, **rest):
    """Shrinks a failure in the time and explains it."""
    smaller = Shrinker(attempt_on(make_mount, make_disk, **rest), seconds).shrink(failure) if seconds else failure
    return explain(failure, path, seed, smaller if smaller is not failure else None, " --disk" if make_disk else "")


def new_disk():
    """One that loses power, for the store; needs root and loop devices."""
    return powercut.PowerCut(size=rig.GIB + rig.GIB // 2)


# ---------------------------------------------------------------- by hand

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="in all; default: one seed")
    parser.add_argument("--each", type=float, default=8.0, help="seconds of one seed")
    parser.add_argument("--ops", help="file of operations")
    parser.add_argument("--disk", action="store_true", help="the store on a disk that loses power; needs root and loop devices")
    parser.add_argument("--plain", action="store_true", help="on a plain directory: tries the model itself")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for shrinking")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as top:
        return campaign(args, top)


def campaign(args, top):
    binary = rig.find_binary(args.build)

    def make_mount():
        root = tempfile.mkdtemp(dir=top)
        return rig.Plain(root) if args.plain else rig.Mount(root, binary)

    end = time.monotonic() + (args.seconds or 0)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    make_disk = new_disk if args.disk else None
    while True:
        try:
            with place(make_mount, make_disk) as (mount, disk):
                one(args, mount, disk, seed)
        except Failure as failure:
            path = args.ops or os.path.join(args.build, "reports", f"model-{seed}.ops")
            print(report(failure, make_mount, path, seed, args.shrink, make_disk))
            return 1
        seed += 1
        if args.ops or time.monotonic() > end:
            return 0


def one(args, mount, disk, seed):
    try:
        if args.ops:
            replay(mount, load(args.ops), disk=disk)
            print("no failure")
        else:
            operations, cuts = explore(mount, seed, args.each, disk=disk)
            print(f"seed {seed}: {operations} operations, {cuts} cuts", flush=True)
    except Failure:
        print(mount.log()[-500:])
        raise


if __name__ == "__main__":
    sys.exit(main())
