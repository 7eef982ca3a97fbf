#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What earlier states cost: saves beside 100 kept snapshots, a first look into .history, open snapshots, an undelete, the remote.

The remote is a directory on the disk of the store. With --local there is none: snapshots are those of the store, one a second beside the
saves. Random data: nothing is found twice or made smaller.

Saves are judged by pairs, one beside the snapshots and one beside none in each round, in alternating order: the median of the pairs'
ratios, and the two of them between which the true median lies with 95 %. A bound is kept if both are below it, and not shown if it
lies between them.
"""
import contextlib
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench_common
from bench_common import rig

from processes import rss_bytes  # of the tests

SNAPSHOTS = 100
PAIRS = 15  # at least, of saves
RATIO_MAX = 1.02  # of a save beside snapshots to one beside none
OPEN = 4  # snapshots at once
OPEN_BYTES_MAX = 8 * rig.MIB  # memory of each
SMALL = 8 * rig.MIB  # a checkpoint of which many are kept
FILES = 10_000
PIECE = 64 * rig.MIB


def seconds(call, *args):
    begin = time.monotonic()
    call(*args)
    return time.monotonic() - begin


def summary(times):
    return {name: {"median_s": statistics.median(values), "least_s": min(values), "most_s": max(values)} for name, values in times.items()}


def judge(ratios, bound):
    """The median, and the pair of ratios that encloses the true one in 95 % (a sign test)."""
    ordered, count = sorted(ratios), len(ratios)
    out, tail = 0, 0.0
    while (tail := tail + math.comb(count, out) / 2**count) <= 0.025:
        out += 1
    least, most = ordered[max(out - 1, 0)], ordered[-max(out, 1)]
    verdict = "kept" if most <= bound else "not kept" if least > bound else "not shown"
    return {"ratio": statistics.median(ratios), "least": least, "most": most, "pairs": count, "bound": bound, "verdict": verdict}


def noise(size):
    return [os.urandom(min(size, PIECE)) for _ in range(0, size, PIECE)]


def write(path, pieces):
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)


class Side:
    """A mount with a remote of its own, or with --local without one."""

    def __init__(self, args, **options):
        self.root = tempfile.mkdtemp(prefix="cairn-bench-", dir=args.store)
        self.level = "nvme" if args.local else "remote"
        where = {} if args.local else {"remote": f"dir:{self.root}/remote"}
        self.mount = rig.Mount(self.root, rig.find_binary(args.build), stage=args.stage, nvme="60G", **where, **options)
        self.mount.mount()

    def at(self, *names):
        return os.path.join(self.mount.mnt, *names)

    def settle(self):
        self.mount.verb("wait", "--level", self.level, self.mount.mnt)

    def checkpoint(self, number, live):
        """A new one; of the others as many are left as are to be live."""
        write(self.at(f"step{number}"), noise(SMALL))
        if number >= live:
            os.unlink(self.at(f"step{number - live}"))
        self.settle()

    def packs(self):
        """Bytes of packs in the remote."""
        return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(f"{self.root}/remote/packs") for name in names)

    def close(self):
        try:
            self.mount.umount()
        finally:
            self.mount.close()
            shutil.rmtree(self.root, ignore_errors=True)


def save_beside_snapshots(args, none, kept):
    """Seconds of a save, and until the remote has it, or NVMe; and the ratios of those of a round."""
    for number in range(args.snapshots):
        kept.checkpoint(number, 3)
        kept.mount.verb("snapshot", "create", kept.mount.mnt, f"step{number}")
    times = {name: [] for name in ("save, none", "save, kept", "upload, none", "upload, kept")}
    for number in range(max(args.rounds, args.pairs)):
        sides = {"none": none, "kept": kept}
        for name in sides if number % 2 == 0 else reversed(sides):
            path, pieces = sides[name].at("save"), noise(args.total)
            times[f"save, {name}"].append(seconds(write, path, pieces))
            times[f"upload, {name}"].append(seconds(sides[name].settle))
            os.unlink(path)
            sides[name].settle()
    found = summary(times)
    for what in ("save", "upload"):
        pairs = zip(times[f"{what}, kept"], times[f"{what}, none"])
        found[f"{what}, kept / none"] = judge([kept_s / none_s for kept_s, none_s in pairs], RATIO_MAX)
    return found


def listing(args, side):
    """`ls -l` of many files, live and in a snapshot: the first time after a mount, and again."""
    os.mkdir(side.at("run"))
    for number in range(args.files):
        rig.write_file(side.at("run", f"{number:05}"), b"%05d" % number * 100)
    side.mount.verb("snapshot", "create", side.mount.mnt, "many")
    found = {}
    for name, path in (("live", side.at("run")), ("in .history", side.at(".history", "many", "run"))):
        side.mount.umount()
        side.mount.mount()
        for when in ("first", "again"):
            found[f"{name}, {when}"] = {"median_s": seconds(rig.run, "ls", "-l", path)}
    return found


def memory_of_open(args, side):
    """What the daemon grows by when it opens snapshots of that many files, one after the other, and lists each whole."""
    for number in range(OPEN):
        rig.write_file(side.at("run", "changed"), b"%d" % number)
        side.mount.verb("snapshot", "create", side.mount.mnt, f"many{number}")
    side.mount.remount()
    rig.run("ls", "-l", side.at("run"))
    resident = [rss_bytes(side.mount.proc.pid)]
    for number in range(OPEN):
        rig.run("ls", "-l", side.at(".history", f"many{number}", "run"))
        resident.append(rss_bytes(side.mount.proc.pid))
    each = [after - before for before, after in zip(resident, resident[1:])]
    verdict = "kept" if sum(each) <= OPEN * OPEN_BYTES_MAX else "not kept"
    return {f"memory of {OPEN} open": {"mib": sum(each) / rig.MIB, "first_mib": each[0] / rig.MIB, "most_mib": max(each) / rig.MIB,
                                       "bound": OPEN * OPEN_BYTES_MAX / rig.MIB, "verdict": verdict}}


def undelete(args, side):
    """A checkpoint of ten files that was removed comes back, from NVMe and the remote."""
    os.mkdir(side.at("deleted"))
    for number in range(10):
        write(side.at("deleted", str(number)), noise(args.undelete // 10))
    side.settle()
    side.mount.verb("snapshot", "create", side.mount.mnt, "whole")
    found = {name: [] for name in ("cairn restore", "cp -r from .history")}
    source = side.at(".history", "whole", "deleted")
    subprocess.run(["ls", "-lR", source], stdout=subprocess.DEVNULL, check=True)
    for _ in range(args.rounds):
        for name in found:
            shutil.rmtree(side.at("deleted"))
            side.settle()
            call = {"cairn restore": lambda: side.mount.verb("restore", side.at("deleted"), "--at", "whole"),
                    "cp -r from .history": lambda: rig.run("cp", "-r", source, side.mount.mnt)}[name]
            found[name].append(seconds(call))
    return summary(found)


def kept_bytes(args):
    """Bytes in the remote of 100 checkpoints: of 100 kept ones of which three are live, and of 100 live ones."""
    found = {}
    for name, live, options in (("3 live, keep=last:100", 3, {"keep": f"last:{args.snapshots}"}), ("100 live", args.snapshots, {})):
        with contextlib.closing(Side(args, gc_grace="1s", **options)) as side:
            for number in range(args.snapshots):
                side.checkpoint(number, live)
            side.mount.verb("gc", side.mount.mnt)
            found[name] = {"bytes": side.packs()}
    return found


def main():
    parser = bench_common.parser(__doc__.splitlines()[0], rig.GIB)
    parser.add_argument("--undelete", type=int, default=10_000_000_000, help="bytes of the checkpoint that comes back")
    parser.add_argument("--local", action="store_true", help="a store without a remote")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of saves, at least")
    parser.add_argument("--snapshots", type=int, default=SNAPSHOTS, help="less, to try the script")
    parser.add_argument("--files", type=int, default=FILES, help="in the directory that is listed")
    parser.add_argument("--parts", default="saves,listing,memory,undelete,kept", help="which figures")
    args = parser.parse_args()
    parts = args.parts.split(",")
    often = {"keep": f"last:{args.snapshots}", "history_every": "1s", "history_space": "40G"} if args.local else {}
    if args.plain:
        sys.exit("--plain: a directory has no earlier states")
    figures = {}
    with contextlib.closing(Side(args, gc_grace="1s")) as none, contextlib.closing(Side(args, gc_grace="1s", **often)) as kept:
        figures |= save_beside_snapshots(args, none, kept) if "saves" in parts else {}
        figures |= listing(args, kept) if "listing" in parts or "memory" in parts else {}
        figures |= memory_of_open(args, kept) if "memory" in parts else {}
    with contextlib.closing(Side(args, **often)) as side:
        figures |= undelete(args, side) if "undelete" in parts else {}
    if "kept" in parts and not args.local:
        figures |= kept_bytes(args)
    for name, figure in figures.items():
        print(f"{name:<28}", *(f"{what} {value if isinstance(value, str) else f'{value:,.3f}'}" for what, value in figure.items()))
    bench_common.save(args, figures)


if __name__ == "__main__":
    main()
