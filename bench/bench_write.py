#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One writer, 4 GiB, 64 MiB and 1 MiB writes: the mount against tmpfs rewritten in place and on fresh pages, and against
the floor: a FUSE daemon that only receives. --writers N: N at once instead, each with a file and its part of the bytes."""
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


def run_several(tool, paths, total, block, *flags):
    """Seconds until the last of them has closed its file; they begin at once."""
    writers = []
    for path in paths:
        environment = {**os.environ, "WRITE_BENCH_SEED": str(next(SEEDS))}
        command = [tool, "write", path, str(total // len(paths)), str(block), "wait", *flags]
        writers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment))
    if any(writer.stdout.readline() != "ready\n" for writer in writers):  # each makes first what it will write
        sys.exit("bench_write: a writer failed")
    for writer in writers:
        writer.stdin.close()
    said = [(writer.stdout.read(), writer.wait()) for writer in writers]
    if any(code for _, code in said):
        sys.exit("bench_write: a writer failed")
    return max(float(seconds) for seconds, _ in said)


def cases_of_several(tool, place, writers, total, block):
    def paths(directory, name):
        return [os.path.join(directory, f"{name}{number}") for number in range(writers)]

    run_several(tool, paths(place.tmpfs, "keep"), total, rig.MIB)
    run_several(tool, paths(place.mount.mnt, "file"), total, rig.MIB)
    return {
        "mount": lambda: run_several(tool, paths(place.mount.mnt, "file"), total, block),
        "tmpfs, in place": lambda: run_several(tool, paths(place.tmpfs, "keep"), total, block, "inplace"),
        "tmpfs, fresh pages": lambda: run_several(tool, paths(place.tmpfs, "file"), total, block),
        "mount, one writer": lambda: run(tool, os.path.join(place.mount.mnt, "file"), total, block),
    }


def cases(tool, place, floor, total, block, mode):
    flags = ("rdwr",) if mode == "O_RDWR" else ()
    kept = os.path.join(place.tmpfs, "keep")
    return {
        "mount": lambda: run(tool, os.path.join(place.mount.mnt, "file"), total, block, *flags),
        "floor": lambda: run(tool, floor.file, total, block, *flags),
        "tmpfs, in place": lambda: run(tool, kept, total, block, "inplace", *flags),
        "tmpfs, fresh pages": lambda: run(tool, os.path.join(place.tmpfs, "file"), total, block, *flags),
    }


BASES = ("tmpfs, in place", "tmpfs, fresh pages")


def measure_several(args, tool, place):
    block = 64 * rig.MIB
    times = bench_common.interleave(args.rounds, cases_of_several(tool, place, args.writers, args.total, block), place.rest)
    figures = bench_common.summary(times, args.total)
    ratios = {f"mount / {base}": bench_common.pair_ratio(times, "mount", base) for base in (*BASES, "mount, one writer")}
    title = f"{args.total / rig.GIB:g} GiB by {args.writers} writers, writes of {block // rig.MIB} MiB"
    bench_common.show(title, figures, ratios)
    return {title: {"cases": figures, "ratios": ratios, "times": times}}


def measure_one(args, tool, place, floor):
    results = {}
    run(tool, os.path.join(place.tmpfs, "keep"), args.total, rig.MIB)
    run(tool, os.path.join(place.mount.mnt, "file"), args.total, rig.MIB)
    pairs = [("mount", base) for base in (*BASES, "floor")] + [("floor", BASES[0])]
    for block, mode in itertools.product((64 * rig.MIB, rig.MIB), ("O_WRONLY", "O_RDWR")):
        title = f"{args.total / rig.GIB:g} GiB, writes of {block // rig.MIB} MiB, {mode}"
        times = bench_common.interleave(args.rounds, cases(tool, place, floor, args.total, block, mode), place.rest)
        figures = bench_common.summary(times, args.total)
        ratios = {f"{case} / {base}": bench_common.pair_ratio(times, case, base) for case, base in pairs}
        bench_common.show(title, figures, ratios)
        results[title] = {"cases": figures, "ratios": ratios, "times": times}
    return results


def main():
    parser = bench_common.parser(__doc__, 4 * rig.GIB)
    parser.add_argument("--writers", type=int, default=1)
    args = parser.parse_args()
    tool = bench_common.build_tool()
    bench_common.touch_memory(tool)
    place = bench_common.Place(args)
    floor = bench_common.Floor()
    try:
        results = measure_several(args, tool, place) if args.writers > 1 else measure_one(args, tool, place, floor)
    finally:
        place.close()
        floor.close()
        rig.shutil.rmtree(os.path.dirname(tool))
    bench_common.save(args, results)


if __name__ == "__main__":
    main()
