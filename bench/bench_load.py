#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that is loaded: by torch.load, by cairnfs.load and by it into tensors that are there, from DRAM (staged), from NVMe behind a
new mount with an empty stage (cold; --drop-packs: the machine's page cache has no pack either), and on tmpfs; each in a process of
its own, or several that load one cold file at once ("x8").
CPU seconds for each GB of the file, of the process and of the daemon together; time; peak memory; ratios in one round."""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time

import bench_common
from bench_common import rig

sys.path.insert(0, os.path.join(bench_common.HERE, "..", "python"))
import cost  # noqa: E402

PROGRAM = """
import ctypes, json, mmap, os, sys, time, torch, cairnfs, cairnfs.safetensors, safetensors.torch
from cairnfs import _library as lib, _load, _process, _reading
path, way, tiny = sys.argv[1:]
def raw(path, memory):
    with _reading.Reading(path) as reading:
        reading.get([(at, length, place, 0) for at, length, place in memory], None)
        reading.wait(0, len(memory))
def clones(path):
    return {name: tensor.clone() for name, tensor in safetensors.torch.load_file(path).items()}
torch.load(tiny); cairnfs.load(tiny)
given = None
if way in ("into", "raw"):
    given = torch.load(tiny.replace("keep-tiny", "keep-state"))
    for tensor in given.values():
        tensor.zero_()
if way == "raw":  # the same ranges, into memory that begins at a page and is there
    kept, reader, places = [], torch._C.PyTorchFileReader(tiny.replace("keep-tiny", "keep-state")), []
    for number, tensor in enumerate(given.values()):
        kept.append(ctypes.c_char.from_buffer(mmap.mmap(-1, tensor.nbytes)))
        ctypes.memset(ctypes.addressof(kept[-1]), 1, tensor.nbytes)
        places.append((reader.get_record_offset(f"data/{number}"), tensor.nbytes, ctypes.addressof(kept[-1])))
    given = places
ways = {"torch": torch.load, "load": cairnfs.load, "into": lambda path: cairnfs.load(path, into=given),
        "raw": lambda path: raw(path, given), "safetensors": clones, "load_file": cairnfs.safetensors.load_file}
def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024
print("ready", flush=True)
sys.stdin.readline()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins here
before = memory("VmRSS")
begin, cpu = time.monotonic(), time.process_time()
found = ways[way](path)
spent = time.process_time() - cpu, time.monotonic() - begin
print(json.dumps({"cpu": spent[0], "s": spent[1], "rss": memory("VmHWM") - before}), flush=True)
"""


def make_state(total):
    """Half in fp32, half in bf16, in tensors of some 16 MB; none is a whole number of MiB."""
    import torch

    torch.manual_seed(1)
    count = max(1, total // 32_000_000)
    state = {f"a{number}": torch.randn(4_000_003) for number in range(count)}
    return {**state, **{f"b{number}": torch.randn(8_000_005).bfloat16() for number in range(count)}}


class Bench:
    def __init__(self, args, place):
        self.args, self.place, self.mount = args, place, place.mount
        self.environment = {**os.environ, "PYTHONPATH": os.path.join(bench_common.HERE, "..", "python"),
                            "CAIRN_LIBRARY": os.path.join(os.path.abspath(args.build), "src", "client", "libcairn.so.0")}
        self.figures = {}

    def write(self):
        import safetensors.torch
        import torch

        state = make_state(self.args.total)
        self.total = sum(tensor.nbytes for tensor in state.values())
        for directory in (self.place.tmpfs, self.mount.mnt):
            torch.save(state, os.path.join(directory, "keep-state.pt"))
            safetensors.torch.save_file(state, os.path.join(directory, "keep-state.safetensors"))
        torch.save({"x": torch.ones(3)}, os.path.join(self.place.tmpfs, "keep-tiny.pt"))
        self.mount.wait(timeout="600s")

    def make_cold(self):
        self.mount.umount()
        self.mount.drop_stage()
        if self.args.drop_packs:
            for directory, _, names in os.walk(os.path.join(self.mount.store, "packs")):
                for name in names:
                    with rig.opened(os.path.join(directory, name), os.O_RDONLY) as fd:
                        os.fsync(fd)
                        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        self.mount.mount()
        self.rest()

    def rest(self):
        """A new daemon faults memory of its stage in: that is no part of a load."""
        before = -1.0
        while (now := cost.cpu_seconds(self.mount.proc.pid)) > before + 0.005:
            before = now
            time.sleep(0.3)

    def run(self, where, way):
        way, _, processes = way.partition(" x")
        processes = int(processes or 1)
        name = "keep-state." + ("safetensors" if way in ("safetensors", "load_file") else "pt")
        path = os.path.join(self.place.tmpfs if where == "tmpfs" else self.mount.mnt, name)
        command = [sys.executable, "-c", PROGRAM, path, way, os.path.join(self.place.tmpfs, "keep-tiny.pt")]
        with contextlib.ExitStack() as stack:
            programs = [stack.enter_context(subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                             text=True)) for _ in range(processes)]  # fmt: skip
            for program in programs:
                assert program.stdout.readline() == "ready\n"
            if where == "cold":
                self.make_cold()
            elif where == "staged":
                with rig.opened(path, os.O_RDONLY) as fd:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # of the mount's page cache
            begun = cost.cpu_seconds(self.mount.proc.pid)
            for number, program in enumerate(programs):
                if number:
                    time.sleep(self.args.apart)
                program.stdin.write("\n")
                program.stdin.flush()
            each = [json.loads(program.stdout.readline()) for program in programs]
            found = {"cpu": sum(one["cpu"] for one in each), "s": max(one["s"] for one in each), "rss": max(one["rss"] for one in each),
                     "daemon": cost.cpu_seconds(self.mount.proc.pid) - begun}
        found["all"] = found["cpu"] + found["daemon"]
        case = f"{where}, {way}" + (f" x{processes}" if processes > 1 else "")
        self.figures.setdefault(case, []).append(found)
        print(f"{case}: {found}", file=sys.stderr, flush=True)

    def stage_again(self):
        """Reads do not stage; a file that was written is staged."""
        for name in ("keep-state.pt", "keep-state.safetensors"):
            path, kept = os.path.join(self.mount.mnt, name), os.path.join(self.place.tmpfs, name)
            rig.shutil.copyfile(kept, path + ".new")
            os.rename(path + ".new", path)
        self.mount.wait(timeout="600s")


RATIOS = [
    ("staged: load / torch.load", "staged, load", "staged, torch"), ("staged: into / torch.load", "staged, into", "staged, torch"),
    ("staged: load / torch.load on tmpfs", "staged, load", "tmpfs, torch"), ("staged: load_file / safetensors + clone", "staged, load_file",
                                                                            "staged, safetensors"),
    ("cold: load / torch.load", "cold, load", "cold, torch"), ("cold: into / torch.load", "cold, into", "cold, torch"),
    ("cold: into / whole chunks", "cold, into", "cold, raw"), ("tmpfs: load / torch.load", "tmpfs, load", "tmpfs, torch"),
    ("tmpfs: into / torch.load", "tmpfs, into", "tmpfs, torch"),
]
TOGETHER = [("cold: 8 loads / one load", "cold, load x8", "cold, load"), ("cold: 2 loads / one load", "cold, load x2", "cold, load"),
            ("cold: 8 torch.load / one", "cold, torch x8", "cold, torch")]
CASES = [("staged", way) for way in ("torch", "load", "into", "safetensors", "load_file")]
CASES += [("cold", way) for way in ("load x8", "torch x8", "load x2")]
CASES += [("tmpfs", way) for way in ("torch", "load", "into")] + [("cold", way) for way in ("torch", "load", "into", "raw")]


def spread(values):
    return f"{statistics.median(values):8.2f} ({min(values):.2f} to {max(values):.2f})"


def show(bench):
    gb = bench.total / 1e9
    print(f"\n{bench.total / 1e6:.0f} MB\n{'case':<24}{'CPU s/GB':>10}{'of it daemon':>28}{'s':>24}{'RSS/file':>12}")
    for name, runs in bench.figures.items():
        every = [[run[key] / gb for run in runs] for key in ("all", "daemon")]
        rss = statistics.median(run["rss"] / bench.total for run in runs)
        print(f"{name:<24}{spread(every[0]):>24}{spread(every[1]):>24}{spread([run['s'] for run in runs]):>24}{rss:>8.2f}")
    print(f"\n{'ratio, of one round':<44}{'CPU':>24}{'time':>24}")
    result = {}
    for title, case, base in RATIOS:
        if case in bench.figures and base in bench.figures:
            pairs = list(zip(bench.figures[case], bench.figures[base]))
            values = {key: [a[key] / b[key] for a, b in pairs] for key in ("all", "s")}
            print(f"{title:<44}{spread(values['all']):>24}{spread(values['s']):>24}")
            result[title] = values
    print(f"\n{'ratio, of processes that load at once':<44}{'CPU of the daemon':>24}{'of all, for each':>24}")
    for title, case, base in TOGETHER:
        if case in bench.figures and base in bench.figures:
            pairs, count = list(zip(bench.figures[case], bench.figures[base])), int(case.partition(" x")[2])
            values = {"daemon": [a["daemon"] / b["daemon"] for a, b in pairs], "all": [a["all"] / b["all"] / count for a, b in pairs]}
            print(f"{title:<44}{spread(values['daemon']):>24}{spread(values['all']):>24}")
            result[title] = values
    return result


def main():
    parser = bench_common.parser(__doc__, 512_000_000)
    parser.add_argument("--drop-packs", action=argparse.BooleanOptionalAction, default=False, help="cold: read packs from the disk")
    parser.add_argument("--apart", type=float, default=0, help="seconds from one process to the next, of those that load together")
    parser.add_argument("--only", nargs="*", default=[""], help="cases whose name has one of these: 'cold, into' 'cold, raw'")
    args = parser.parse_args()
    place = bench_common.Place(args)
    with contextlib.closing(place):
        bench = Bench(args, place)
        bench.write()
        cases = [case for case in CASES if any(part in ", ".join(case) for part in args.only)]
        for number in range(args.rounds):
            order = cases if number % 2 == 0 else cases[::-1]
            for where, way in sorted(order, key=lambda case: case[0] == "cold"):
                bench.run(where, way)
            if any(where == "cold" for where, _ in cases) and number + 1 < args.rounds:
                bench.stage_again()
        ratios = show(bench)
        bench_common.save(args, {"total": bench.total, "cases": bench.figures, "ratios": ratios})


if __name__ == "__main__":
    main()
