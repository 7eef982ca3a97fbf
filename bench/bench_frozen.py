#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A state of which nine tensors of ten are frozen, saved in turns four ways: all of it written; by CAIRN_SAVE_REFER, which finds the frozen
ones by fingerprints; by a comparison with the last file; and by copy_file_range alone, for a caller that knows them. Bytes written again,
time to the name, CPU time."""
import ctypes
import os
import resource
import statistics
import sys
import time

import bench_common
from bench_common import rig

sys.path.insert(0, os.path.join(bench_common.HERE, "..", "python"))
TENSORS = 10


class Bench:
    def __init__(self, args, place):
        from cairnfs import _library as lib

        self.lib, self.cairn, self.mount = lib, lib.library(), place.mount
        self.each = args.total // TENSORS // 4096 * 4096
        self.state = [ctypes.create_string_buffer(os.urandom(self.each), self.each) for _ in range(TENSORS)]
        self.libc, self.buffer = ctypes.CDLL(None), ctypes.create_string_buffer(rig.MIB)
        self.lane, self.count, self.figures = ctypes.c_void_p(), 0, {}
        lib.check(self.cairn.cairn_lane_open(None, ctypes.byref(self.lane)))

    def by_lane(self, path, older, flags):
        lib, cairn, save = self.lib, self.cairn, ctypes.c_void_p()
        sources = (lib.Source * TENSORS)(*(
            lib.Source(offset=number * self.each, length=self.each, host=ctypes.addressof(tensor), key=b"tensor.%d" % number)
            for number, tensor in enumerate(self.state)))
        options = lib.SaveOptions(flags=flags)
        lib.check(cairn.cairn_save_begin(self.lane, path.encode(), self.each * TENSORS, ctypes.byref(options), ctypes.byref(save)))
        lib.check(cairn.cairn_save_put(save, sources, TENSORS))
        lib.check(cairn.cairn_save_commit(save))
        lib.check(cairn.cairn_save_wait(save, lib.PUBLISHED, -1))
        cairn.cairn_save_free(save)

    def by_comparison(self, path, older):
        if older:
            with open(older, "rb", buffering=0) as file:
                for number in range(1, TENSORS):
                    for at in range(0, self.each, len(self.buffer)):
                        length = min(len(self.buffer), self.each - at)
                        assert os.preadv(file.fileno(), [memoryview(self.buffer)[:length]], number * self.each + at) == length
                        here = ctypes.addressof(self.state[number]) + at
                        assert self.libc.memcmp(ctypes.c_void_p(here), self.buffer, ctypes.c_size_t(length)) == 0
        self.by_copy(path, older)

    def by_copy(self, path, older):
        """The first tensor is the one that changes."""
        at = self.each if older else self.each * TENSORS
        draft = os.open(path + ".draft", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        for number in range(at // self.each):
            os.pwrite(draft, self.state[number], number * self.each)
        if older:
            with open(older, "rb") as file:
                while at < self.each * TENSORS:
                    at += os.copy_file_range(file.fileno(), draft, self.each * TENSORS - at, at, at)
        os.close(draft)
        os.rename(path + ".draft", path)

    def written(self):
        return int(self.mount.status()["mount"]["written_bytes_total"])

    def save(self, name, way, older):
        self.count += 1
        path = os.path.join(self.mount.mnt, f"{name}-{self.count}.bin")
        self.state[0][: self.each : 4096] = os.urandom((self.each + 4095) // 4096)
        before, cpu, begin = self.written(), resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        way(path, older)
        seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
        self.mount.wait(timeout="600s")
        spent = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
        self.check(path)
        return path, (seconds, spent, (self.written() - before) / (self.each * TENSORS))

    def check(self, path):
        with open(path, "rb") as file:
            for number in (0, 1, TENSORS - 1):
                file.seek(number * self.each)
                assert file.read(4096) == self.state[number][:4096], f"tensor {number} of {path}"

    def run(self, rounds):
        ways = {"all written": lambda path, older: self.by_lane(path, older, 0),
                "by fingerprints": lambda path, older: self.by_lane(path, older, self.lib.SAVE_REFER),
                "by comparison": self.by_comparison, "by copy_file_range": self.by_copy}
        older = {name: self.save(name, way, None)[0] for name, way in ways.items()}
        for number in range(rounds):
            order = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
            for name in order:
                path, figures = self.save(name, ways[name], older[name])
                os.unlink(older[name])
                older[name] = path
                self.figures.setdefault(name, []).append(figures)
        self.lib.check(self.cairn.cairn_lane_close(self.lane))


def show(bench):
    names = ("s to the name", "client's CPU s", "written again")
    base = bench.figures["by copy_file_range"]
    for at, name in enumerate(names):
        for way, figures in bench.figures.items():
            values = [row[at] for row in figures]
            ratio = statistics.median(row[at] / max(other[at], 1e-9) for row, other in zip(figures, base))
            print(f"{name:<16}{way:<20}{statistics.median(values):>9.4f} ({min(values):.4f} to {max(values):.4f})  ratio {ratio:.2f}")
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}, {os.cpu_count()} cores")


def main():
    args = bench_common.parser(__doc__, 320 * rig.MIB).parse_args()
    os.environ.setdefault("CAIRN_LIBRARY", os.path.abspath(os.path.join(args.build, "src", "client", "libcairn.so.0")))
    place = bench_common.Place(args)
    try:
        bench = Bench(args, place)
        bench.run(args.rounds)
        show(bench)
    finally:
        place.close()


if __name__ == "__main__":
    main()
