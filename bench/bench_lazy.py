#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lazy saves (cairnfs.save) beside torch.save: how long a call blocks, what a save adds to a step, what is written again."""
import contextlib
import json
import os
import random
import shutil
import statistics
import sys
import threading
import time
import traceback

import bench_common
from bench_common import HERE, rig

sys.path[:0] = [os.path.join(HERE, "..", "python"), os.path.join(HERE, "..", "tests", "clients")]

# Figure: what is wanted of it. The ratios are medians over rounds of pairs that were measured one after the other,
# but for that of steps with both cores busy (see cost_ratio).
AT_MOST, AT_LEAST = "<=", ">="
CALL = "call of a lazy save / torch.save, mount"
CALL_AND_FENCE = "call + fence / torch.save on tmpfs"
EAGER_ON_MOUNT = "eager cairnfs.save, mount / torch.save, tmpfs"
EAGER_ON_TMPFS = "eager cairnfs.save / torch.save, tmpfs"
COST_OF_BUSY_STEP = "what a save adds to a step, lazy / torch.save"
COST_OF_WRITING = "the same: only writes / torch.save"
EVERY_STEP = "main job, a save every step: steps/s"
EVERY_10_STEPS = "main job, a save every 10 steps: steps/s"
WRITTEN_AGAIN = "90 % frozen: bytes written again"
WANTED = {
    CALL: (AT_MOST, 1 / 100),
    CALL_AND_FENCE: (AT_MOST, 1 / 10),
    EAGER_ON_MOUNT: (AT_MOST, 0.4),
    EAGER_ON_TMPFS: (AT_MOST, 0.4),
    COST_OF_BUSY_STEP: (AT_MOST, 0.6),
    COST_OF_WRITING: None,
    EVERY_STEP: (AT_LEAST, 0.90),
    EVERY_10_STEPS: (AT_LEAST, 0.98),
    WRITTEN_AGAIN: (AT_MOST, 0.12),
}


def seconds_of(function, *args):
    begin = time.monotonic()
    function(*args)
    return time.monotonic() - begin


def clear(*directories):
    for directory in directories:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


CORES = len(os.sched_getaffinity(0))  # taskset can leave some of the machine's
BUSY_ROUNDS = 6  # times the others' rounds: a step varies by as much as a save adds to it


def cost_ratio(none, eager, other):
    """What another save adds to a step / what torch.save adds, and the bounds that hold 90 % of 2,000 draws of the rounds.

    A round's own ratio is of no use where its denominator is noise: so both costs are medians first, and are divided then."""

    def of(rounds):
        return statistics.median(c - a for a, b, c in rounds) / statistics.median(b - a for a, b, c in rounds)

    rounds, draw = list(zip(none, eager, other)), random.Random(1)
    draws = sorted(of(draw.choices(rounds, k=len(rounds))) for _ in range(2000))
    return of(rounds), draws[100], draws[-101]


def tensors_of(value):
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors_of(part)]
    return [value] if hasattr(value, "numpy") else []


class OnlyWrites:
    """The least that a save of this can cost: a thread writes the tensors from where they are. It neither copies nor checks, and nothing waits for it."""

    def __init__(self, state, path):
        self.thread = threading.Thread(target=self.write, args=(tensors_of(state), path))
        self.thread.start()

    def write(self, tensors, path):
        with open(path, "wb", buffering=0) as file:
            for tensor in tensors:
                rig.write_all(file.fileno(), memoryview(tensor.numpy()).cast("B"))

    def result(self):
        self.thread.join()


class Bench:
    def __init__(self, args, place):
        import cairnfs
        import torch

        self.args, self.place, self.cairnfs, self.torch = args, place, cairnfs, torch
        self.on_mount, self.on_tmpfs = os.path.join(place.mount.mnt, "file.pt"), os.path.join(place.tmpfs, "file.pt")
        self.on_disk = os.path.join(place.root, "file.pt")  # beside the store
        self.figures, self.times = {}, {}

    def rest(self):
        clear(self.place.mount.mnt, self.place.tmpfs)
        self.place.mount.wait(timeout="600s")

    def interleave(self, cases, rounds=None):
        for case in cases.values():  # once, unmeasured
            case()
        times = bench_common.interleave(rounds or self.args.rounds, cases, self.rest)
        self.times.update(times)
        return times

    def note(self, name, ratios):
        self.figures[name] = {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}

    # --- one save of much

    def tensors(self, total):
        size = min(32 * rig.MIB, total)
        return {f"layer{number}": self.torch.rand(size // 4) for number in range(max(1, total // size))}

    def lazily(self, state, calls):
        """The call, a backward pass that lasts as long as the copy, the fence: for how long the trainer was blocked."""
        call = seconds_of(lambda: calls.append((time.monotonic(), self.cairnfs.save(state, self.on_mount, lazy="all"))))
        save = calls.pop()[1]
        calls.append(call)
        weight = self.torch.rand(256, 256)
        while not save.copied():
            for _ in range(8):
                weight = (weight @ weight).clamp(0, 1)
        fence = seconds_of(self.cairnfs.fence)
        save.result()
        return call + fence

    def big_save(self):
        torch, cairnfs = self.torch, self.cairnfs
        state, calls = self.tensors(self.args.total), []

        def changed(function, path):
            for tensor in state.values():  # every chunk differs from what was saved before
                tensor[::1024] += 1
            return seconds_of(function, state, path)

        def durably(value, path):
            with open(path, "wb") as file:
                torch.save(value, file)
                file.flush()
                os.fsync(file.fileno())

        def eager(value, path):
            cairnfs.save(value, path, lazy=False)

        def lazy():
            for tensor in state.values():
                tensor[::1024] += 1
            return self.lazily(state, calls)

        times = self.interleave({
            "torch.save, mount": lambda: changed(torch.save, self.on_mount),
            "torch.save, tmpfs": lambda: changed(torch.save, self.on_tmpfs),
            "torch.save + fsync, disk": lambda: changed(durably, self.on_disk),
            "cairnfs.save eager, mount": lambda: changed(eager, self.on_mount),
            "cairnfs.save eager, tmpfs": lambda: changed(eager, self.on_tmpfs),
            "cairnfs.save lazy, mount: call + fence": lazy,
        })
        self.times["cairnfs.save lazy, mount: call"] = calls[1:]
        self.note(CALL, [a / b for a, b in zip(calls[1:], times["torch.save, mount"])])
        self.note(CALL_AND_FENCE, [a / b for a, b in zip(times["cairnfs.save lazy, mount: call + fence"], times["torch.save, tmpfs"])])
        self.note(EAGER_ON_MOUNT, [a / b for a, b in zip(times["cairnfs.save eager, mount"], times["torch.save, tmpfs"])])
        self.note(EAGER_ON_TMPFS, [a / b for a, b in zip(times["cairnfs.save eager, tmpfs"], times["torch.save, tmpfs"])])

    # --- steps

    def trainer(self):
        """An MLP with Adam, whose step keeps all cores busy, and whose state is as large as a step is long."""
        torch = self.torch
        torch.set_num_threads(CORES)
        width = self.args.width
        layers = [torch.nn.Linear(width, width) for _ in range(6)]
        model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        batch = torch.rand(self.args.batch, width)

        def step(save):
            if save:
                save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
            optimizer.zero_grad()
            (model(batch) - batch).square().mean().backward()
            optimizer.step()

        step(None)
        return step

    def busy_steps(self):
        step, last = self.trainer(), []

        def steps(save):
            begin = time.monotonic()
            for _ in range(self.args.steps):
                step(save)
            if last:
                last.pop().result()
                last.clear()
            return (time.monotonic() - begin) / self.args.steps

        def only_write(state):
            if last:
                last.pop().result()
            last.append(OnlyWrites(state, self.on_mount))

        times = self.interleave({
            "step, both cores busy": lambda: steps(None),
            "step with torch.save": lambda: steps(lambda state: self.torch.save(state, self.on_mount)),
            "step with a lazy save": lambda: steps(lambda state: last.append(self.cairnfs.save(state, self.on_mount))),
            "step with a thread that only writes": lambda: steps(only_write),
        }, self.args.rounds * BUSY_ROUNDS)
        none, eager, *others = times.values()
        for name, other in zip((COST_OF_BUSY_STEP, COST_OF_WRITING), others):
            ratio, least, most = cost_ratio(none, eager, other)
            self.figures[name] = {"ratio": ratio, "least": least, "most": most}
        self.torch.set_num_threads(1)

    # --- the main job

    def main_job(self):
        import train_gpt

        def job(every):
            directory = os.path.join(self.place.mount.mnt, "job")
            sizes = ["--width", str(self.args.job_width), "--steps", str(self.args.job_steps), "--every", str(every or 10**9)]
            sys.argv = ["train_gpt", "--dir", directory, "--lazy", "--print-every", str(10**9), *sizes]
            os.makedirs(directory, exist_ok=True)
            made = train_gpt.Job(train_gpt.parse())
            made.train_step()
            made.step = 0
            sys.stdout, stdout = open(os.devnull, "w"), sys.stdout
            try:
                return seconds_of(made.run) / self.args.job_steps
            finally:
                sys.stdout = stdout

        times = self.interleave({
            "main job, a step": lambda: job(0),
            "main job, a step with a lazy save": lambda: job(1),
            "main job, a step with every 10th a lazy save": lambda: job(10),
        })
        none = times["main job, a step"]
        self.note(EVERY_STEP, [a / b for a, b in zip(none, times["main job, a step with a lazy save"])])
        self.note(EVERY_10_STEPS, [a / b for a, b in zip(none, times["main job, a step with every 10th a lazy save"])])

    # --- what is unchanged

    def written(self):
        return int(self.place.mount.status()["mount"]["written_bytes_total"])

    def frozen(self):
        """A tenth of the tensors is trained; each version has a name of its own. Of the first one all is written."""
        torch, shares = self.torch, []
        state = self.tensors(self.args.total // 2) if self.args.total >= 640 * rig.MIB else {
            f"layer{number}": torch.rand(self.args.total // 40) for number in range(10)}
        names = list(state)
        trained = [state[name] for name in names[: max(1, len(names) // 10)]]
        total = sum(tensor.numel() * 4 for tensor in state.values())
        for number in range(self.args.rounds + 1):
            for tensor in trained:
                tensor += 1
            before = self.written()
            self.cairnfs.save(state, os.path.join(self.place.mount.mnt, f"step{number}.pt"), lazy="all", refer=True).result()
            shares.append((self.written() - before) / total)
            if number > 1:
                os.unlink(os.path.join(self.place.mount.mnt, f"step{number - 2}.pt"))
        self.note(WRITTEN_AGAIN, shares[1:])
        self.rest()


def show(bench):
    print(f"\n{'case':<48}{'median s':>10}{'least':>10}{'most':>10}")
    for name, seconds in bench.times.items():
        print(f"{name:<48}{statistics.median(seconds):>10.4f}{min(seconds):>10.4f}{max(seconds):>10.4f}")
    print(f"\n{'figure':<48}{'median':>10}{'least':>10}{'most':>10}   wanted")
    for name, figure in bench.figures.items():
        if WANTED[name]:
            relation, limit = WANTED[name]
            figure["wanted"] = f"{relation} {limit:.3g}"
            figure["holds"] = figure["ratio"] <= limit if relation == AT_MOST else figure["ratio"] >= limit
        print(f"{name:<48}{figure['ratio']:>10.4f}{figure['least']:>10.4f}{figure['most']:>10.4f}   "
              f"{figure.get('wanted', '')}{'' if figure.get('holds', True) else ': NO'}")
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}, {CORES} cores, torch {bench.torch.__version__}")


PARTS = ("big_save", "busy_steps", "main_job", "frozen")


def parse():
    parser = bench_common.parser(__doc__, 2_000_000_000)
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts")
    parser.add_argument("--width", type=int, default=1024, help="of the model whose steps keep all cores busy")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=6, help="of it in a round")
    parser.add_argument("--job-width", type=int, default=256, help="of the main job, as in mount-scripts/quickstart")
    parser.add_argument("--job-steps", type=int, default=40)
    parser.add_argument("--smoke", action="store_true", help="very little of everything: does the script work?")
    args = parser.parse_args()
    if args.smoke:
        args.total, args.rounds, args.stage = 8 * rig.MIB, 1, "128M"
        args.width, args.batch, args.steps, args.job_width, args.job_steps = 64, 8, 2, 32, 10
    return args


def main():
    args = parse()
    os.environ.setdefault("CAIRN_LIBRARY", os.path.abspath(os.path.join(args.build, "src", "client", "libcairn.so.0")))
    if not args.smoke:
        tool = bench_common.build_tool()
        bench_common.touch_memory(tool, most=4 * args.total)
        shutil.rmtree(os.path.dirname(tool))
    place = bench_common.Place(args)
    with contextlib.closing(place):
        sys.exit(in_child(measure, args, place))


def measure(args, place):
    bench = Bench(args, place)
    for part in args.only or PARTS:
        getattr(bench, part)()
    show(bench)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"figures": bench.figures, "times": bench.times, "load": os.getloadavg()}, file, indent=1)


def in_child(function, *args):
    """Its exit code. It has a session of its own, as a job beside a mounted CairnFS has: Linux weighs sessions first, then their threads."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        code = 1
        try:
            function(*args)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
