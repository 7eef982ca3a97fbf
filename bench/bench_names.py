# SPDX-License-Identifier: Apache-2.0
"""Rates of small operations: the mount, bindfs over ext4, plain ext4; writeback_cache off in all. And what must not take long."""
import os
import statistics
import subprocess
import sys
import tempfile
import time

import bench_common
import rig

CASES = ("mount", "bindfs", "ext4")
FIRST = "stat, first"


class Grounds:
    """Three directories: on the mount, on ext4, and through bindfs on the same ext4."""

    def __init__(self, args):
        self.root = tempfile.mkdtemp(prefix="cairn-bench-", dir=args.store)
        self.image = None
        disk = rig.mkdir(os.path.join(self.root, "disk"))
        if rig.run("stat", "-f", "-c", "%T", disk).strip() != "ext2/ext3":
            self.image = rig.LoopImage(os.path.join(self.root, "image"), disk, 8 * rig.GIB)
        self.directories = {"ext4": os.path.join(disk, "plain"), "bindfs": os.path.join(self.root, "bindfs")}
        below = os.path.join(disk, "below")
        for path in (*self.directories.values(), below):
            os.mkdir(path)
        self.mount = rig.Mount(self.root, rig.find_binary(args.build), stage=args.stage, nvme="20G", **args.option)
        self.mount.mount()
        self.directories["mount"] = self.mount.mnt
        self.floor = bench_common.Floor()
        self.bindfs = subprocess.Popen(["bindfs", "-f", *args.bindfs, below, self.directories["bindfs"]])
        rig.poll(lambda: rig.mounted_at(self.directories["bindfs"]), 10, "bindfs")

    def close(self):
        rig.file_systems_unmount(self.directories["bindfs"])
        self.bindfs.wait(10)
        self.floor.close()
        try:
            self.mount.umount()
        finally:
            self.mount.close()
            if self.image:
                self.image.close()
            rig.shutil.rmtree(self.root, ignore_errors=True)


def build_tool():
    target = os.path.join(tempfile.mkdtemp(prefix="cairn-bench-"), "names_bench")
    rig.run("cc", "-O2", "-Wall", "-o", target, os.path.join(bench_common.HERE, "names_bench.c"))
    return target


def phases(tool, directory, count):
    """Phase -> seconds."""
    made = tempfile.mkdtemp(dir=directory)
    lines = rig.run(tool, "run", made, str(count)).splitlines()
    os.rmdir(made)
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def measure(args, tool, grounds):
    """Phase -> case -> list of seconds; the cases in alternating order."""
    times = {}
    for number in range(args.rounds):
        for case in CASES if number % 2 == 0 else reversed(CASES):
            grounds.mount.wait(timeout="600s")
            os.sync()
            for phase, seconds in phases(tool, grounds.directories[case], args.count).items():
                times.setdefault(phase, {name: [] for name in CASES})[case].append(seconds)
        least = rig.run(tool, "look", grounds.floor.mnt, str(args.count))
        times[FIRST].setdefault("floor", []).append(float(least.rsplit(" ", 1)[1]))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    return times


def ratio_of(cases, one, other):
    ratio = bench_common.pair_ratio(cases, one, other)
    return f"{ratio['ratio']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"


def show(times, count):
    print(f"\n{'operations a second':<20}" + "".join(f"{case:>32}" for case in CASES) + f"{'/ bindfs':>22}{'/ ext4':>22}")
    for phase, cases in times.items():
        row = f"{phase:<20}"
        for case in CASES:
            rates = sorted(count / s for s in cases[case])
            row += f"{statistics.median(rates):>12.0f}" + f" ({rates[0]:.0f} to {rates[-1]:.0f})".rjust(20)
        for base in ("bindfs", "ext4"):
            row += f"{ratio_of(cases, 'mount', base):>22}"
        print(row)
    rate = statistics.median(count / s for s in times[FIRST]["floor"])
    print(f"a first stat by the least that any daemon does: {rate:.0f}, {ratio_of(times[FIRST], 'floor', 'ext4')} of ext4;"
          f" the mount: {ratio_of(times[FIRST], 'mount', 'floor')} of that")


def timed(function, *args):
    begun = time.monotonic()
    function(*args)
    return time.monotonic() - begun


def large_directory(tool, mount, files=100_000):
    """Listing 10^5 files, also with attributes; renaming their directory and an empty one."""
    full, empty = os.path.join(mount.mnt, "full"), os.path.join(mount.mnt, "empty")
    for directory in (full, empty):
        os.mkdir(directory)
    rig.run(tool, "make", full, str(files))
    figures = {"files": files, "list_s": [], "list_first_after_mount_s": [], "list_with_attributes_s": [], "rename_full_ms": [],
               "rename_empty_ms": []}
    for _ in range(5):
        figures["list_s"].append(timed(os.listdir, full))
    for _ in range(5):
        mount.remount()
        figures["list_first_after_mount_s"].append(timed(os.listdir, full))
    for _ in range(3):
        figures["list_with_attributes_s"].append(timed(lambda: [entry.stat() for entry in os.scandir(full)]))
    for i in range(50):
        figures["rename_full_ms"].append(1e3 * timed(os.rename, full, f"{full}-{i}"))
        figures["rename_empty_ms"].append(1e3 * timed(os.rename, empty, f"{empty}-{i}"))
        full_now, empty_now = f"{full}-{i}", f"{empty}-{i}"
        os.rename(full_now, full)
        os.rename(empty_now, empty)
    return {name: statistics.median(value) if isinstance(value, list) else value for name, value in figures.items()}


def recovery(mount, rounds, chunks=100_000, staged=rig.GIB):
    """From the start of `cairn mount` after kill -9 until a staged file is read: 10^5 chunks stored, 1 GiB staged."""
    for number in range(chunks // 1000):
        with open(os.path.join(mount.mnt, f"chunks-{number}"), "wb", buffering=0) as file:
            for i in range(1000):
                os.pwrite(file.fileno(), b"%08d %08d" % (number, i), i * 8192)
    mount.wait(timeout="600s")
    rig.poll(lambda: mount.status()["nvme"]["chunks"] >= 0.98 * chunks, 30, "the chunks in the view")
    times, path = [], os.path.join(mount.mnt, "staged")
    for number in range(rounds):
        mount.remount(writeback_delay="1h")
        rig.write_file(path, rig.seeded_bytes(number, 64 * rig.MIB) * (staged // (64 * rig.MIB)))
        assert mount.status()["stage"]["dirty_bytes"] >= staged
        mount.kill9()
        begun = time.monotonic()
        mount.mount()
        with open(path, "rb") as file:
            assert len(file.read(1 << 20)) == 1 << 20
        times.append(time.monotonic() - begun)
    return {"chunks": mount.status()["nvme"]["chunks"], "median_s": statistics.median(times), "times_s": times}


def main():
    made = bench_common.parser(__doc__, 0)
    made.add_argument("--count", type=int, default=10_000, help="files of one run")
    made.add_argument("--parts", default="rates,large,recovery", help="which of these")
    made.add_argument("--bindfs", action="append", default=[], help="an option for bindfs")
    made.add_argument("-o", "--option", action="append", default=[], help="a mount option, NAME=VALUE")
    args = made.parse_args()
    args.option = dict(option.split("=", 1) for option in args.option)
    parts, results = args.parts.split(","), {"count": args.count}
    tool, grounds = build_tool(), None
    try:
        grounds = Grounds(args)
        if "rates" in parts:
            results["times"] = measure(args, tool, grounds)
            show(results["times"], args.count)
        if "large" in parts:
            results["large"] = large_directory(tool, grounds.mount)
            print("large directory", results["large"])
        if "recovery" in parts:
            results["recovery"] = recovery(grounds.mount, args.rounds)
            print("recovery", results["recovery"])
        bench_common.save(args, results)
    finally:
        if grounds:
            grounds.close()
        rig.shutil.rmtree(os.path.dirname(tool))


if __name__ == "__main__":
    main()
