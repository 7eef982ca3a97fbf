#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One writer, 4 GiB, 64 MiB and 1 MiB writes: the mount against tmpfs rewritten in place and on fresh pages, and against
the floor: a FUSE daemon that only receives."""
import itertools
import os
import subprocess
import sys

import bench_common
from bench_common import rig

SEEDS = itertools.count(1)


def run(tool, path, total, block, *flags):
    environment = {**os.environ, "WRITE_BENCH_SEED": str(next(SEEDS))}
    done = subprocess.run(
        [tool, "write", path, str(total), str(block), *flags], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout)


def cases(tool, place, floor, total, block, mode):
    flags = ("rdwr",) if mode == "O_RDWR" else ()
    kept = os.path.join(place.tmpfs, "keep")
    return {
        "mount": lambda: run(tool, os.path.join(place.mount.mnt, "file"), total, block, *flags),
        "floor": lambda: run(tool, floor.file, total, block, *flags),
        "tmpfs, in place": lambda: run(tool, kept, total, block, "inplace", *flags),
        "tmpfs, fresh pages": lambda: run(tool, os.path.join(place.tmpfs, "file"), total, block, *flags),
    }


def main():
    args = bench_common.parser(__doc__, 4 * rig.GIB).parse_args()
    tool = bench_common.build_tool()
    bench_common.touch_memory(tool)
    place = bench_common.Place(args)
    floor = bench_common.Floor()
    results = {}
    try:
        run(tool, os.path.join(place.tmpfs, "keep"), args.total, rig.MIB)
        run(tool, os.path.join(place.mount.mnt, "file"), args.total, rig.MIB)
        for block, mode in itertools.product((64 * rig.MIB, rig.MIB), ("O_WRONLY", "O_RDWR")):
            title = f"{args.total / rig.GIB:g} GiB, writes of {block // rig.MIB} MiB, {mode}"
            times = bench_common.interleave(args.rounds, cases(tool, place, floor, args.total, block, mode), place.rest)
            figures = bench_common.summary(times, args.total)
            ratios = {
                f"{case} / {base}": bench_common.pair_ratio(times, case, base)
                for case, base in (
                    ("mount", "tmpfs, in place"),
                    ("mount", "tmpfs, fresh pages"),
                    ("mount", "floor"),
                    ("floor", "tmpfs, in place"),
                )
            }
            bench_common.show(title, figures, ratios)
            results[title] = {"cases": figures, "ratios": ratios, "times": times}
    finally:
        place.close()
        floor.close()
        rig.shutil.rmtree(os.path.dirname(tool))
    bench_common.save(args, results)


if __name__ == "__main__":
    main()
