# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: the mount (or a plain directory), interleaving, medians and tables."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests"))

import rig  # noqa: E402


def parser(text, total):
    made = argparse.ArgumentParser(description=text)
    made.add_argument("--build", default=os.path.join(HERE, "..", "build"), help="directory of the cairn binary")
    made.add_argument("--plain", action="store_true", help="a directory on tmpfs instead of the mount, to try the script")
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--total", type=int, default=total, help="bytes of one run")
    made.add_argument("--stage", default="6G")
    made.add_argument("--stage-dir", help="an empty directory for the stage, in a tmpfs with huge pages for instance (default: a new one in /dev/shm)")
    made.add_argument("--store", help="directory for the store (default: a new one in the temporary directory)")
    made.add_argument("--json", help="write the figures here, too")
    return made


class Place:
    """A mounted store and a tmpfs directory beside it."""

    def __init__(self, args):
        self.root = tempfile.mkdtemp(prefix="cairn-bench-", dir=args.store)
        self.tmpfs = tempfile.mkdtemp(prefix="cairn-bench-", dir="/dev/shm")
        if args.plain:
            self.mount = rig.Plain(self.root)
            self.mount.mnt = tempfile.mkdtemp(prefix="cairn-bench-", dir="/dev/shm")
        else:
            binary = rig.find_binary(args.build)
            if binary is None:
                sys.exit(f"no cairn binary in {args.build}: build first, or name the directory with --build")
            where = {"stage_dir": args.stage_dir} if args.stage_dir else {}
            self.mount = rig.Mount(self.root, binary, stage=args.stage, nvme="40G", **where)
        self.mount.mount()

    def rest(self):
        """Nothing is under way: the last run's bytes are on NVMe, its files are gone."""
        for directory in (self.mount.mnt, self.tmpfs):
            for name in os.listdir(directory):
                if not name.startswith("keep"):
                    os.unlink(os.path.join(directory, name))
        self.mount.wait(timeout="600s")

    def close(self):
        try:
            self.mount.umount()
        finally:
            self.mount.close()
            for directory in {self.root, self.tmpfs, self.mount.mnt}:
                rig.shutil.rmtree(directory, ignore_errors=True)


def build_tool():
    """The C program, built beside the tests' temporary files."""
    target = os.path.join(tempfile.mkdtemp(prefix="cairn-bench-"), "write_bench")
    rig.run("cc", "-O2", "-Wall", "-o", target, os.path.join(HERE, "write_bench.c"))
    return target


class Floor:
    """A FUSE daemon that does nothing with a write but receive it: no daemon on this machine is faster."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="cairn-bench-")
        self.mnt = os.path.join(self.root, "mnt")
        self.file = os.path.join(self.mnt, "file")
        tool = os.path.join(self.root, "null_fuse")
        flags = rig.run("pkg-config", "--cflags", "--libs", "fuse3").split()
        rig.run("cc", "-O2", "-Wall", "-o", tool, os.path.join(HERE, "null_fuse.c"), *flags)
        os.mkdir(self.mnt)
        self.proc = subprocess.Popen([tool, self.mnt])
        rig.poll(lambda: os.path.exists(self.file), 10, "the daemon that only receives")

    def close(self):
        rig.file_systems_unmount(self.mnt)
        self.proc.wait(10)
        rig.shutil.rmtree(self.root, ignore_errors=True)


def touch_memory(tool, keep=2 * rig.GIB, most=1 << 62):
    """Touch all free memory once, or so much of it: the first touch in a virtual machine is slow."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * rig.KIB for line in file if line.startswith("MemAvailable"))
    subprocess.run([tool, "touch", str(max(rig.GIB, min(free - keep, most)))], check=True)


def interleave(rounds, cases, rest):
    """Run every case once a round, in alternating order; name -> list of seconds."""
    times = {name: [] for name in cases}
    for number in range(rounds):
        names = list(cases) if number % 2 == 0 else list(reversed(cases))
        for name in names:
            rest()
            times[name].append(cases[name]())
            print(f"round {number + 1} {name}: {times[name][-1]:.3f} s", file=sys.stderr, flush=True)
    return times


def summary(times, total):
    """Median, spread and rate of each case."""
    result = {}
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        result[name] = {
            "median_s": middle,
            "least_s": min(seconds),
            "most_s": max(seconds),
            "spread": (max(seconds) - min(seconds)) / middle,
            "gib_s": total / middle / rig.GIB,
        }
    return result


def pair_ratio(times, case, base):
    """Speed of a case against a base: the median over rounds of the pairs' ratios, with least and most."""
    ratios = [b / c for c, b in zip(times[case], times[base])]
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def show(title, figures, ratios):
    print(f"\n{title}\n{'case':<34}{'median s':>10}{'least':>9}{'most':>9}{'spread':>9}{'GiB/s':>8}")
    for name, row in figures.items():
        print(f"{name:<34}{row['median_s']:>10.3f}{row['least_s']:>9.3f}{row['most_s']:>9.3f}{row['spread']:>8.0%}{row['gib_s']:>9.2f}")
    print(f"\n{'ratio (speed; > 1 is faster)':<58}{'median':>8}{'least':>8}{'most':>8}")
    for name, row in ratios.items():
        print(f"{name:<58}{row['ratio']:>8.2f}{row['least']:>8.2f}{row['most']:>8.2f}")


def save(args, results):
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)
