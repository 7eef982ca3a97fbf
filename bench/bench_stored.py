#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What files take on NVMe, as a share of their bytes: counts, not times, so a busy machine makes no difference.

Each case adds files to what the cases before it left; `stored` is what the packs grew by.
"""
import contextlib
import os
import shutil
import sys

import bench_common
import torch
from bench_common import rig

TENSOR = 8 * rig.MIB


def tensors(total, seed, dtype=torch.float32):
    """Normal numbers, as weights are; those of two seeds have nothing in common."""
    generator = torch.Generator().manual_seed(seed)
    size = TENSOR // dtype.itemsize
    return {f"layer{number}.weight": torch.randn(size, generator=generator).to(dtype) for number in range(max(2, total // TENSOR))}


def bytes_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(directory, name)) for directory, _, names in os.walk(path) for name in names)


class Bench:
    def __init__(self, args, place):
        self.mnt, self.mount, self.cases = place.mount.mnt, place.mount, []
        self.state = tensors(args.total, 1)
        self.half = {**self.state, **dict(list(tensors(args.total, 2).items())[::2])}
        self.bf16 = tensors(args.total // 2, 3, torch.bfloat16)

    def packs(self):
        self.mount.wait(timeout="600s")
        return self.mount.status()["nvme"]["pack_bytes"]

    def case(self, name, make, file):
        before, path = self.packs(), os.path.join(self.mnt, file)
        make(path)
        case = {"name": name, "raw": bytes_of(path), "stored": self.packs() - before}
        self.cases.append(case)
        print(f"{name:<46}{case['raw'] / 1e6:>9.1f} MB {case['stored'] / 1e6:>9.1f} MB {case['stored'] / case['raw']:>8.4f}")

    def dcp(self, path):
        from torch.distributed import checkpoint

        checkpoint.save(self.state, checkpoint_id=path, no_dist=True)

    def text(self, path):
        with open(path, "w") as file:
            file.writelines(f"step {number} loss {number / 7}\n" for number in range(2_000_000))

    def run(self):
        print(f"{'case':<46}{'bytes':>12}{'stored':>13}{'share':>9}")
        self.case("torch.save, fp32, the first", lambda path: torch.save(self.state, path), "first.pt")
        self.case("the same again, another header", lambda path: torch.save({"step": 2, "note": "x" * 777, "model": self.state}, path),
                  "again.pt")
        self.case("the same through DCP", self.dcp, "dcp")
        self.case("half of the tensors changed", lambda path: torch.save(self.half, path), "half.pt")
        self.case("a copy of it (cp)", lambda path: shutil.copyfile(os.path.join(self.mnt, "half.pt"), path), "copy.pt")
        self.case("torch.save, bf16", lambda path: torch.save(self.bf16, path), "bf16.pt")
        self.case("a log, text", self.text, "log")


def main():
    parser = bench_common.parser(__doc__.splitlines()[0], 256 * rig.MIB)
    parser.set_defaults(stage="1G")
    args = parser.parse_args()
    if args.plain:
        sys.exit("--plain: a directory stores what it gets")
    place = bench_common.Place(args)
    with contextlib.closing(place):
        bench = Bench(args, place)
        bench.run()
    bench_common.save(args, {"cases": bench.cases})


if __name__ == "__main__":
    main()
