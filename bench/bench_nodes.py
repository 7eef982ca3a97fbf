#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What -o nodes costs a save: blocked time of 256 MiB files, and of small ones closed one after the other, on a mount with it and one
without, in turn; and how long until readers and other nodes see a marker.

    bench_nodes.py --rounds 5
"""
import argparse
import os
import random
import statistics
import subprocess
import tempfile
import time

import bench_common
from bench_common import rig

import remote as remotes  # noqa: E402

SAVE = 256 * rig.MIB
SMALL = 2000  # files
RNG = random.Random(7)


def save(mnt, name, data):
    begin = time.monotonic()
    with open(os.path.join(mnt, name), "wb") as file:
        file.write(data)
    return time.monotonic() - begin


def saves(mount, prefix, count):
    data = os.urandom(SAVE)
    times = []
    for i in range(count):
        time.sleep(RNG.uniform(0.05, 0.5))  # at any time between two rounds
        times.append(save(mount.mnt, f"{prefix}-{i}", data))
        os.unlink(os.path.join(mount.mnt, f"{prefix}-{i}"))
    return times


def closes(mount, prefix):
    return [save(mount.mnt, f"{prefix}-{i}", b"x" * 1000) for i in range(SMALL)]


def make(binary, root, remote, **options):
    mount = rig.Mount(tempfile.mkdtemp(dir=root), binary, stage="2G", nvme="4G", **remote.options(), **options)
    mount.mount()
    return mount


def visible(binary, mount, remote, count):
    """From the end of a close until `cairn ls` shows the file."""
    waits = []
    for i in range(count):
        time.sleep(RNG.uniform(0.1, 3))
        save(mount.mnt, f"marker-{i}", b"x")
        begin = time.monotonic()
        while True:
            listed = subprocess.run([binary, "ls", f"{remote.url}:/"], capture_output=True, text=True)
            if f"marker-{i}" in listed.stdout:
                break
            time.sleep(0.05)
        waits.append(time.monotonic() - begin)
    return waits


def shown(mount, other, count):
    """From the end of a close until the mount of another node shows the file, and has read it."""
    waits = []
    for i in range(count):
        time.sleep(RNG.uniform(0.1, 3))
        save(mount.mnt, f"shown-{i}", b"x" * 100000)
        begin = time.monotonic()
        while not os.path.exists(os.path.join(other.mnt, f"shown-{i}")):
            time.sleep(0.05)
        with open(os.path.join(other.mnt, f"shown-{i}"), "rb") as file:
            assert file.read() == b"x" * 100000
        waits.append(time.monotonic() - begin)
    return waits


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(__file__), "..", "build"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    binary = rig.find_binary(args.build)
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as root:
        alone = make(binary, root, remotes.DirRemote(os.path.join(root, "alone")))
        common = remotes.DirRemote(os.path.join(root, "common"))
        node, other = make(binary, root, common, nodes=True), make(binary, root, common, nodes=True)
        ratios = []
        for i in range(args.rounds):
            order = (node, alone) if i % 2 == 0 else (alone, node)  # neither has the better place
            blocked = {mount: statistics.mean(saves(mount, f"save{i}", 10)) for mount in order}
            ratios.append(blocked[node] / blocked[alone])
        print(f"blocked time of a save of 256 MiB, with / without: median {statistics.median(ratios):.2f}, "
              f"{min(ratios):.2f} to {max(ratios):.2f}, {args.rounds} pairs of 10")
        for i in range(args.rounds):
            times = {name: closes(mount, f"small{i}") for name, mount in (("with", node), ("without", alone))}
            print("close of a small file, ms: " + "; ".join(
                f"{name} p50 {percentile(t, .5) * 1e3:.2f}, p99 {percentile(t, .99) * 1e3:.2f}, most {max(t) * 1e3:.0f}"
                for name, t in times.items()))
        save(other.mnt, "shard", b"x")
        waits = visible(binary, node, common, 10)
        print(f"from close until readers see it, beside a node that wrote before: median {statistics.median(waits):.1f} s, most {max(waits):.1f} s")
        waits = shown(node, other, 10)
        print(f"until the mount of the other node has it: median {statistics.median(waits):.1f} s, most {max(waits):.1f} s")
        for mount in (alone, node, other):
            mount.close()


if __name__ == "__main__":
    main()
