# SPDX-License-Identifier: Apache-2.0
"""A disk of our own below a filesystem, that knows which writes were flushed (disk/recorded_disk.c).

A filesystem lies on a loop device, the loop device on the file of a small FUSE daemon, which keeps every request. Afterwards
image() makes the disk as a power cut just before any request may leave it: all that was flushed by then, and of the rest any part,
in any order, each write whole or torn at 512 bytes, but for the blocks of XFS's metadata (units()). Nothing stands still for a cut:
which requests it lies between is chosen later.

The images lie on XFS with reflinks (as in powercut.py), so that each costs what it differs by.
"""
import mmap
import os
import struct
import subprocess

import numpy

import history
import powercut
import rig

REQUEST = numpy.dtype([("time_ns", "<u8"), ("offset", "<u8"), ("length", "<u8"), ("data_at", "<u8"), ("kind", "<u8")])
WRITE, ZERO, FLUSH = 1, 2, 3
SECTOR = 512
XFS_BLOCK, XFS_HEADER = 4096, 128
HOWS = ("none", "all", "some", "torn")  # of what was not flushed
FORMATS = {"ext4": ("-E", "nodiscard,lazy_itable_init=0"), "xfs": ("-K",)}


def find_program(build):
    path = os.path.join(build, "tests", "disk", "recorded-disk")
    return path if os.access(path, os.X_OK) else None


class RecordedDisk(powercut.Images):
    """The disk, a filesystem on it (`inner`), and images of cuts, mounted one at a time."""

    def __init__(self, program, size=rig.GIB, kind="ext4", extra=""):
        super().__init__(2 * size)
        self.memory, self.fuse = os.path.join(self.directory, "memory"), os.path.join(self.directory, "fuse")
        os.mkdir(self.memory)
        os.mkdir(self.fuse)
        self.device = self.inner = None
        self.kind = kind
        self.flushed_to = 0  # self.flushed holds the requests before this one
        self.daemon = subprocess.Popen([program, self.fuse, self.memory, str(size)], stdin=subprocess.DEVNULL, start_new_session=True)
        file = os.path.join(self.fuse, "disk")
        try:
            rig.poll(lambda: os.path.exists(file), 10, "the recorded disk")
            self.device = rig.poll(lambda: free_loop_device(file), 10, "a loop device")
            rig.run("mkfs." + kind, "-q", *FORMATS[kind], self.device)
            self.xfs_uuid = xfs_uuid_of(self.device) if kind == "xfs" else None
            self.inner = self.mount(self.device, "inner", extra)
            self.flushed = os.path.join(self.outer.mountpoint, "flushed.img")
            with open(self.flushed, "xb") as image:
                image.truncate(size)
        except BaseException:
            self.close()
            raise

    def close(self):
        super().close_images()
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], capture_output=True)
        rig.file_systems_unmount(self.fuse)
        try:
            self.daemon.wait(5)
        except subprocess.TimeoutExpired:  # a mount namespace that was made meanwhile has a copy of the mount
            self.daemon.kill()
            self.daemon.wait()
        super().close()

    def mount_cut(self, clone):
        return self.mount(clone, f"crash-{os.path.basename(clone)}", "nouuid" if self.kind == "xfs" else "")

    def fail_reads(self, offset=0, length=0):
        """EIO for these bytes; without any, the disk is whole again."""
        with open(os.path.join(self.memory, "bad"), "r+b", buffering=0) as file:
            file.write(struct.pack("=QQ", offset, length))

    # What was recorded
    def count(self):
        """Of requests until now."""
        return os.path.getsize(os.path.join(self.memory, "requests")) // REQUEST.itemsize

    def requests(self):
        return numpy.fromfile(os.path.join(self.memory, "requests"), REQUEST, self.count())

    # Cuts
    def at_stake(self, requests):
        """How many writes are not flushed just before each request, and how many at the end."""
        stake, result = 0, []
        for kind in requests["kind"].tolist():
            result.append(stake)
            stake = 0 if kind == FLUSH else stake + 1
        return [*result, stake]

    def moments(self, rng, first, last, count):
        """Where to cut, ascending: just before a request. Every other one is chosen the sooner the more is not flushed there."""
        stake = self.at_stake(self.requests()[:last])
        open_to = [at for at in range(first, last + 1) if stake[at]]
        ranked = sorted(open_to, key=lambda at: rng.random() ** (1 / stake[at] ** 2), reverse=True)
        chosen = ranked[: count // 2]
        return sorted(chosen + rng.sample(ranked[count // 2 :], min(count - len(chosen), len(ranked) - len(chosen))))

    def image(self, at, how, rng):
        """An image of the disk as a cut before request `at` may leave it. Cuts are made in ascending order of `at`."""
        requests = self.requests()[:at]
        flushes = numpy.flatnonzero(requests["kind"] == FLUSH)
        safe = int(flushes[-1]) + 1 if len(flushes) else 0
        self.count_images += 1
        path = os.path.join(self.outer.mountpoint, f"cut-{self.count_images}.img")
        with open(os.path.join(self.memory, "data"), "rb") as data, mmap.mmap(data.fileno(), 0, prot=mmap.PROT_READ) as bytes_of:
            self.bring_up_to(safe, requests, bytes_of)
            rig.run("cp", "--reflink=always", self.flushed, path)
            with open(path, "r+b", buffering=0) as image:
                lost = sum(self.put(image, request, bytes_of, share_of(how, rng), rng) for request in requests[safe:])
        return path, f"request {at}, {at - safe} not flushed, {lost} of them lost or torn"

    def bring_up_to(self, safe, requests, bytes_of):
        assert safe >= self.flushed_to, "cuts are made in the order in which they happened"
        with open(self.flushed, "r+b", buffering=0) as image:
            for request in requests[self.flushed_to : safe]:
                self.put(image, request, bytes_of, 1, None)
        self.flushed_to = safe

    def put(self, image, request, bytes_of, share, rng):
        """Writes what a request wrote, or that share of its sectors; 1 if anything is missing."""
        if request["kind"] == FLUSH:
            return 0
        if share == 0:
            return 1
        at, length, begin = (int(request[name]) for name in ("offset", "length", "data_at"))
        data = bytes(length) if request["kind"] == ZERO else bytes_of[begin : begin + length]
        if share == 1:
            os.pwrite(image.fileno(), data, at)
            return 0
        for begin, end in self.units(at, data):
            if rng.random() < share:
                os.pwrite(image.fileno(), data[begin:end], at + begin)
        return 1

    def units(self, at, data):
        """The parts of a write of which none is torn: sectors, and whole blocks of XFS's metadata."""
        begin = 0
        while begin < len(data):
            end = begin + (XFS_BLOCK if self.is_xfs_block(at + begin, data[begin : begin + XFS_BLOCK]) else SECTOR)
            yield begin, end
            begin = end

    def is_xfs_block(self, at, block):
        # XFS replays nothing into a block whose header, in its first sector, is newer. So it cannot mend one that is torn behind that, and
        # refuses to mount (EFSBADCRC): such a cut says nothing of what lies on XFS. Its log and its inodes are torn like all else.
        is_whole = at % XFS_BLOCK == 0 and len(block) == XFS_BLOCK
        return self.xfs_uuid is not None and is_whole and self.xfs_uuid in block[:XFS_HEADER]

    def forget(self):
        """What was flushed by the last cut needs no memory any more."""
        requests = self.requests()[: self.flushed_to]
        writes = requests[requests["kind"] == WRITE]
        if len(writes):
            end = int(writes[-1]["data_at"] + writes[-1]["length"])
            rig.run("fallocate", "--punch-hole", "--offset", "0", "--length", str(end), os.path.join(self.memory, "data"))


def free_loop_device(file):
    """None: another process took the free one at the same time."""
    command = ["losetup", "--direct-io=on", "--sector-size", str(SECTOR), "--find", "--show", file]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def xfs_uuid_of(device):
    """What the header of each block of its metadata has."""
    with open(device, "rb") as file:
        return file.read(48)[32:]


def share_of(how, rng):
    """How much of one request a cut leaves: 0, 1, or what is between for a torn one."""
    if how in ("none", "all"):
        return int(how == "all")
    if how == "some":
        return int(rng.random() < 0.5)
    return rng.choice((0, 1, 1, 0.5, 0.9))


def marks(log, requests, at):
    """The ends of a history's log just before request `at` came, and just after the one before it: what had returned by the first is
    on the disk of a cut between the two, what was called after the second is not."""
    before, after = int(requests[at]["time_ns"]) if at < len(requests) else None, int(requests[at - 1]["time_ns"])
    mark = end_mark = 0
    is_past = False
    for line in history.read_log(log):
        time_ns = line["t"] * 1e9
        is_past = is_past or (before is not None and time_ns >= before)
        if not is_past:
            mark = line["at"]
        if time_ns <= after:
            end_mark = line["at"]
    return mark, max(mark, end_mark)
