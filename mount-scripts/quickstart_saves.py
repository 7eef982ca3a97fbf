# SPDX-License-Identifier: Apache-2.0
"""What quickstart measures and checks with torch: MOUNTPOINT DIRECTORY CAIRN. DIRECTORY is on the disk of the store.

It saves one state in five ways, each in turn, three times over; then once more while the daemon of the mount is killed.
"""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

import torch

import cairnfs

ROUNDS = 3
LARGEST, LEAST = 2**29, 2**24  # bytes of the state: free memory and disk decide


def available_memory():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/meminfo") if line.startswith("MemAvailable"))


def make_state(disk):
    size = min(LARGEST, available_memory() // 8, shutil.disk_usage(disk).free // 16, shutil.disk_usage("/dev/shm").free // 4)
    if size < LEAST:
        sys.exit("   left out: too little free memory or disk")
    count = max(1, size // 2**25)
    return {f"layer{i}.weight": torch.randn(size // count // 4) for i in range(count)}


def change(state):
    for tensor in state.values():
        tensor.add_(1)


def size_of(state):
    return sum(tensor.nbytes for tensor in state.values()) / 2**20


def same(path, state):
    loaded = torch.load(path)
    return loaded.keys() == state.keys() and all(torch.equal(loaded[name], state[name]) for name in state)


def seconds_of(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began


class Ways:
    """Ways to save a state, and how long each kept its caller waiting."""

    def __init__(self, mnt, disk, cairn):
        self.cairn, self.state = cairn, make_state(disk)
        self.paths = {"mount": f"{mnt}/compare.pt", "tmpfs": f"/dev/shm/cairnfs-quickstart-{os.getpid()}.pt", "disk": f"{disk}/compare.pt"}
        self.times = {name: [] for name in ("lazy", "copied", "mount", "nvme", "remote", "tmpfs", "disk", "fsync")}

    def save(self, place, sync=False):
        with open(self.paths[place], "wb") as file:
            torch.save(self.state, file)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def wait(self, level):
        subprocess.run([self.cairn, "wait", self.paths["mount"], "--level", level], check=True)

    def take(self, name, call):
        self.times[name].append(seconds_of(call))

    def one_round(self):
        """The next way finds the disk idle."""
        change(self.state)
        saves = []
        tensors = list(self.state.values())  # which change in change() alone, as a model's do in the optimizer's step
        self.take("lazy", lambda: saves.append(cairnfs.save(self.state, self.paths["mount"], track=tensors)))
        self.take("copied", saves[0].result)
        self.wait("remote")
        change(self.state)
        self.take("mount", lambda: self.save("mount"))
        self.take("nvme", lambda: self.wait("nvme"))
        self.take("remote", lambda: self.wait("remote"))
        for name, place, sync in ("tmpfs", "tmpfs", False), ("disk", "disk", False), ("fsync", "disk", True):
            self.take(name, lambda place=place, sync=sync: self.save(place, sync))
            os.sync()

    def row(self, name, label, survives):
        print(f"   {label:<28}{statistics.median(self.times[name]):6.2f} s   {survives}")

    def tell(self):
        copied, nvme, remote = (statistics.median(self.times[name]) for name in ("copied", "nvme", "remote"))
        self.row("lazy", "cairnfs.save, on the mount", f"is as torch.save there {copied:.1f} s later, copied beside the training")
        self.row("mount", "torch.save, on the mount", f"death of trainer and daemon; {nvme:.1f} s later power loss; {nvme + remote:.1f} s later loss of the node")
        self.row("tmpfs", "torch.save, on tmpfs", "death of the trainer")
        self.row("disk", "torch.save, on the disk", "death of the trainer; power loss once the kernel has written it, some 30 s later")
        self.row("fsync", "torch.save, disk and fsync", "power loss")

    def save_while_the_daemon_dies(self):
        pid = json.loads(subprocess.run([self.cairn, "status", "--json", self.paths["mount"]], check=True, stdout=subprocess.PIPE).stdout)["pid"]
        change(self.state)
        usual = statistics.median(self.times["mount"])
        timer = threading.Timer(usual / 3, os.kill, [pid, signal.SIGKILL])
        timer.start()
        took = seconds_of(lambda: self.save("mount"))
        timer.join()
        assert same(self.paths["mount"], self.state), "the save is not whole"
        print(f"   kill -9 {pid}, a third into a save: it took {took:.1f} s instead of {usual:.1f} s, and the file is whole")

    def remove(self):
        for path in self.paths.values():
            if os.path.exists(path):
                os.remove(path)


def main():
    ways = Ways(*sys.argv[1:])
    try:
        for _ in range(ROUNDS):
            ways.one_round()
        assert same(ways.paths["mount"], ways.state), "what was loaded is not what was saved"
        print(f"   a state of {size_of(ways.state):.0f} MiB; median of {ROUNDS}; and what the file survives then:")
        ways.tell()
        ways.save_while_the_daemon_dies()
    finally:
        ways.remove()


if __name__ == "__main__":
    main()
