#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What earlier states cost: saves beside 100 kept snapshots and beside none, a first look into .history, an undelete, the remote.

The remote is a directory on the disk of the store. With --local there is none: snapshots are those of the store, one a second beside the
saves. Random data: nothing is found twice or made smaller.
"""
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench_common
from bench_common import rig

SNAPSHOTS = 100
SMALL = 8 * rig.MIB  # a checkpoint of which many are kept
FILES = 10_000
PIECE = 64 * rig.MIB


def seconds(call, *args):
    begin = time.monotonic()
    call(*args)
    return time.monotonic() - begin


def summary(times):
    return {name: {"median_s": statistics.median(values), "least_s": min(values), "most_s": max(values)} for name, values in times.items()}


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
    """Seconds of a save, and until the remote has it, or NVMe."""
    for number in range(SNAPSHOTS):
        kept.checkpoint(number, 3)
        kept.mount.verb("snapshot", "create", kept.mount.mnt, f"step{number}")
    times = {name: [] for name in ("save, none", "save, kept", "upload, none", "upload, kept")}
    for number in range(args.rounds):
        sides = {"none": none, "kept": kept}
        for name in sides if number % 2 == 0 else reversed(sides):
            path, pieces = sides[name].at("save"), noise(args.total)
            times[f"save, {name}"].append(seconds(write, path, pieces))
            times[f"upload, {name}"].append(seconds(sides[name].settle))
            os.unlink(path)
            sides[name].settle()
    return summary(times)


def listing(side):
    """`ls -l` of many files, live and in a snapshot: the first time after a mount, and again."""
    os.mkdir(side.at("run"))
    for number in range(FILES):
        rig.write_file(side.at("run", f"{number:05}"), b"%05d" % number * 100)
    side.mount.verb("snapshot", "create", side.mount.mnt, "many")
    found = {}
    for name, path in (("live", side.at("run")), ("in .history", side.at(".history", "many", "run"))):
        side.mount.umount()
        side.mount.mount()
        for when in ("first", "again"):
            found[f"{name}, {when}"] = {"median_s": seconds(rig.run, "ls", "-l", path)}
    return found


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
    for name, live, options in (("3 live, keep=last:100", 3, {"keep": f"last:{SNAPSHOTS}"}), ("100 live", SNAPSHOTS, {})):
        with contextlib.closing(Side(args, gc_grace="1s", **options)) as side:
            for number in range(SNAPSHOTS):
                side.checkpoint(number, live)
            side.mount.verb("gc", side.mount.mnt)
            found[name] = {"bytes": side.packs()}
    return found


def main():
    parser = bench_common.parser(__doc__.splitlines()[0], rig.GIB)
    parser.add_argument("--undelete", type=int, default=10_000_000_000, help="bytes of the checkpoint that comes back")
    parser.add_argument("--local", action="store_true", help="a store without a remote")
    args = parser.parse_args()
    often = {"keep": f"last:{SNAPSHOTS}", "history_every": "1s", "history_space": "40G"} if args.local else {}
    if args.plain:
        sys.exit("--plain: a directory has no earlier states")
    with contextlib.closing(Side(args, gc_grace="1s")) as none, contextlib.closing(Side(args, gc_grace="1s", **often)) as kept:
        figures = save_beside_snapshots(args, none, kept)
        figures |= listing(kept)
    with contextlib.closing(Side(args, **often)) as side:
        figures |= undelete(args, side)
    if not args.local:
        figures |= kept_bytes(args)
    for name, figure in figures.items():
        print(f"{name:<28}", *(f"{what} {value:,.3f}" for what, value in figure.items()))
    bench_common.save(args, figures)


if __name__ == "__main__":
    main()
