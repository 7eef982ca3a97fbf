# SPDX-License-Identifier: Apache-2.0
"""What something costs a daemon: CPU time, in all, by itself and by RocksDB's compactions, and time that passes."""
import contextlib
import os
import subprocess
import time

import rig


def cpu_seconds(pid):
    """What a process has used of the CPU, to the nanosecond: unlike the time that passes, it does not depend on what else runs."""
    return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3)


def compaction_seconds(pid):
    """The part of it that RocksDB's compactions of the view used. They come in bursts of half a second, whatever goes on then, and what
    they cost for each entry grows with the logarithm of all."""
    spent = 0
    for task in os.scandir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # other threads may end meanwhile
            if rig.read_file(f"{task.path}/comm") == b"rocksdb:low\n":
                spent += int(rig.read_file(f"{task.path}/schedstat").split()[0])
    return spent / 1e9


class Cost:
    """Of what a daemon does from here on."""

    def __init__(self, pid):
        self.pid = pid
        self.begun = self.now()

    def now(self):
        cpu, compactions = cpu_seconds(self.pid), compaction_seconds(self.pid)
        return {"cpu_s": cpu, "own_cpu_s": cpu - compactions, "compaction_s": compactions, "s": time.monotonic()}

    def spent(self):
        return {name: value - self.begun[name] for name, value in self.now().items()}


def mount_cost(cairn, **options):
    """Of mounting. It takes some 40 ms: what asks each 20 ms whether it is done would tell two from three."""
    begun = time.monotonic()
    cairn.mount(step=0.001, **options)
    return {"mount_cpu_s": cpu_seconds(cairn.proc.pid), "mount_s": time.monotonic() - begun}


def least(costs):
    """Of each cost that some tries tell."""
    return {name: min(cost[name] for cost in costs) for name in costs[-1]}


def write_cost(cairn, seed):
    """256 MiB until they are on NVMe."""
    content, cost = rig.seeded_bytes(seed, 256 * rig.MIB), Cost(cairn.proc.pid)
    cairn.write("content", content, "nvme")
    return {f"write_{name}": value for name, value in cost.spent().items()}


class Stores:
    """The store of a mount as it was when there was little in it, and as it is: what mounting and writing cost with each."""

    def __init__(self, cairn, small, large):
        self.cairn, self.small, self.large = cairn, small, large

    def keep_small(self, **options):
        self.cairn.umount()
        subprocess.run(["cp", "-a", f"{self.cairn.store}/.", self.small.store], check=True)
        self.cairn.mount(**options)

    def compare(self, turns, **options):
        """With few and with many, while neither is mounted: the least of some turns, one store after the other, because a whole second may
        be slower than the next."""
        few, many = [], []
        for turn in range(turns):
            for mount, costs in ((self.small, few), (self.large, many)):
                costs.append({**mount_cost(mount, **options), **write_cost(mount, turn)})
                costs[-1]["chunks"] = mount.status()["nvme"]["chunks"]
                mount.umount()
        return least(few), least(many)
