#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What reduction costs and gains on the mount, beside the same with reduce=off in turns: how long a save blocks, how fast it comes to NVMe,
how long a cold restore of the newest checkpoint takes, from a disk that the kernel slows down, too, and how long its upload at 100 MB/s:
as soon as it is saved, and with the second that writeback waits by default, for what may be deleted meanwhile.

The state is that of bench_reduce.py's training, in copies whose bytes all differ in their places."""
import functools
import os
import statistics
import sys
import tempfile
import time

import bench_common
import bench_reduce
import remote as remotes
from bench_common import rig
from bench_remote import drop_caches

import torch

UPLOAD_LIMIT = 100_000_000  # bytes a second
DISK_LIMIT = 400_000_000


def moved(tensor, by):
    return tensor.flatten().roll(by).view(tensor.shape)


class State:
    """Much of what a training saves; no two chunks are the same, and each change makes new ones of all of it."""

    def __init__(self, training, total):
        parts = training.parts()
        copies = max(1, total // sum(t.numel() * t.element_size() for part in parts.values() for t in part.values()))
        self.parts = {f"{part}{i}": {name: moved(t, 1009 * i) for name, t in tensors.items()} for i in range(copies)
                      for part, tensors in parts.items()}

    def change(self):
        """All bytes move within their tensor."""
        for part in self.parts.values():
            for name in part:
                part[name] = moved(part[name], 4097)

    def save(self, path):
        """Seconds that it blocks."""
        begin = time.monotonic()
        with open(path, "wb") as file:
            torch.save(self.parts, file)
        return time.monotonic() - begin


def daemon_cpu(mount):
    with open(f"/proc/{mount.status()['pid']}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- one round on a mount: {what: seconds} -----------------------------------------------------------------------------------


def save(state, mount):
    path = os.path.join(mount.mnt, "save.pt")
    begin, cpu = time.monotonic(), daemon_cpu(mount)
    blocked = state.save(path)
    mount.wait(path)
    return {"blocked": blocked, "on NVMe": time.monotonic() - begin, "daemon's CPU until then": daemon_cpu(mount) - cpu}


class SlowDisk:
    """A control group: what its processes read from the disk of `path` comes at DISK_LIMIT."""

    def __init__(self, path):
        device = f"{os.major(os.stat(path).st_dev)}:{os.minor(os.stat(path).st_dev)}"
        if os.path.exists(f"/sys/dev/block/{device}/partition"):
            device = rig.read_file(os.path.realpath(f"/sys/dev/block/{device}/..") + "/dev").decode().strip()
        is_old = os.path.isdir("/sys/fs/cgroup/blkio")
        self.directory = tempfile.mkdtemp(prefix="cairn-bench-", dir="/sys/fs/cgroup/blkio" if is_old else "/sys/fs/cgroup")
        name, limit = ("blkio.throttle.read_bps_device", DISK_LIMIT) if is_old else ("io.max", f"rbps={DISK_LIMIT}")
        with open(os.path.join(self.directory, name), "w") as file:
            file.write(f"{device} {limit}")

    def take(self, pid):
        with open(os.path.join(self.directory, "cgroup.procs"), "w") as file:
            file.write(str(pid))

    def close(self):
        """Its processes have ended."""
        os.rmdir(self.directory)


def restore(state, mount, disk=None):
    """Of what a mount just begun has on NVMe alone."""
    path = os.path.join(mount.mnt, "save.pt")
    state.save(path)
    mount.wait(path)
    mount.umount()
    drop_caches()
    mount.mount()
    if disk:
        disk.take(mount.status()["pid"])
    begin = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(rig.MIB)
        while file.readinto(buffer):
            pass
    return {"cold restore": time.monotonic() - begin}


def is_published(remote):
    return remote["seconds_behind"] == 0 and remote["behind_bytes"] == 0


def upload(state, mount):
    """Nobody waits for it, which would lift the limit."""
    path = os.path.join(mount.mnt, "save.pt")
    state.save(path)
    begin = time.monotonic()
    rig.poll(lambda: is_published(mount.status()["remote"]), 600, "the upload", step=0.1)
    return {"upload": time.monotonic() - begin}


# --- in turns ----------------------------------------------------------------------------------------------------------------


def turns(args, state, how, begin, measure):
    """{what: seconds with `how`, with off, and their ratio}. begin(reduce) makes a mount."""
    mounts, found = {}, {how: [], "off": []}
    try:
        for reduce in found:
            mounts[reduce] = begin(reduce)
            mounts[reduce].mount()
        for number in range(args.rounds + 1):  # the first is not measured
            state.change()
            for reduce in sorted(found, reverse=number % 2 == 0):
                times = measure(state, mounts[reduce])
                os.unlink(os.path.join(mounts[reduce].mnt, "save.pt"))
                mounts[reduce].wait()
                if number > 0:
                    found[reduce].append(times)
                print(f"round {number} reduce={reduce}: {times}", file=sys.stderr, flush=True)
    finally:
        for mount in mounts.values():
            mount.umount()
            mount.close()
            rig.shutil.rmtree(mount.root, ignore_errors=True)
    return {what: compare([row[what] for row in found[how]], [row[what] for row in found["off"]]) for what in found["off"][0]}


def compare(on, off):
    pairs = [a / max(b, 1e-9) for a, b in zip(on, off)]
    return {"on_s": statistics.median(on), "off_s": statistics.median(off), "on/off": statistics.median(pairs), "least": min(pairs),
            "most": max(pairs)}


def main():
    parser = bench_common.parser(__doc__, 512 * rig.MIB)
    parser.add_argument("--parts", default="save,restore,upload")
    args = parser.parse_args()
    binary, parts = rig.find_binary(args.build), args.parts.split(",")
    training = bench_reduce.Training(384, 6, 50, 8)
    for _ in range(50):
        training.step()
    state, results = State(training, args.total), {}

    def local(base, **options):
        return lambda reduce: rig.Mount(tempfile.mkdtemp(prefix="cairn-bench-", dir=base), binary, stage=args.stage, nvme="20G",
                                        reduce=reduce, **options)

    def sending(reduce, **options):
        root = tempfile.mkdtemp(prefix="cairn-bench-", dir=args.store)
        remote = remotes.DirRemote(os.path.join(root, "remotes"))
        return remotes.RemoteMount(root, binary, remote, stage=args.stage, nvme="20G", reduce=reduce,
                                   upload_limit=str(UPLOAD_LIMIT), **options)

    if "save" in parts:
        results["save"] = turns(args, state, "fast", local(args.store, writeback_delay="0s"), save)
    if "restore" in parts:
        results["restore, store on disk"] = turns(args, state, "fast", local(args.store), restore)
        disk = SlowDisk(args.store or tempfile.gettempdir())
        results[f"restore, disk of {DISK_LIMIT // 1_000_000} MB/s"] = turns(
            args, state, "fast", local(args.store), lambda *which: restore(*which, disk)
        )
        disk.close()
        results["restore, store in memory"] = turns(args, state, "fast", local("/dev/shm"), restore)
    if "upload" in parts:
        at_once = functools.partial(sending, writeback_delay="0s")
        results["upload at 100 MB/s, at once"] = turns(args, state, "dense", at_once, upload)
        results["upload at 100 MB/s"] = turns(args, state, "dense", sending, upload)
    for part, rows in results.items():
        for what, row in rows.items():
            print(f"{part}: {what}: {row['on_s']:.3f} s, off {row['off_s']:.3f} s; on/off {row['on/off']:.3f} ({row['least']:.3f} to {row['most']:.3f})")
    bench_common.save(args, results)


if __name__ == "__main__":
    main()
