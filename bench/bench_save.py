#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.save and safetensors save_file of 2 GB: how long the trainer is blocked, on the mount and on tmpfs."""
import contextlib
import os
import time

import bench_common
import torch
from bench_common import rig
from safetensors.torch import save_file


def tensors(total):
    """Tensors of 32 MiB with random bytes."""
    count = max(1, total // (32 * rig.MIB))
    return {f"layer{number}": torch.rand(8 * rig.MIB) for number in range(count)}


def change(state):
    """A training step: every chunk of every tensor differs from what was saved before."""
    for tensor in state.values():
        tensor[::1024] += 1


def timed(function, state, path):
    change(state)
    begin = time.monotonic()
    function(state, path)
    return time.monotonic() - begin


def main():
    args = bench_common.parser(__doc__, 2_000_000_000).parse_args()
    tool = bench_common.build_tool()
    bench_common.touch_memory(tool)
    rig.shutil.rmtree(os.path.dirname(tool))
    state = tensors(args.total)
    total = sum(tensor.numel() * 4 for tensor in state.values())
    place, results = bench_common.Place(args), {}
    with contextlib.closing(place):
        for name, function in (("torch.save", torch.save), ("safetensors save_file", save_file)):
            cases = {
                "mount": lambda f=function: timed(f, state, os.path.join(place.mount.mnt, "file")),
                "tmpfs": lambda f=function: timed(f, state, os.path.join(place.tmpfs, "file")),
            }
            for case in cases.values():  # once, unmeasured
                case()
            times = bench_common.interleave(args.rounds, cases, place.rest)
            figures = bench_common.summary(times, total)
            ratio = bench_common.pair_ratio(times, "mount", "tmpfs")
            blocked = {"blocked, mount / tmpfs": {key: 1 / value for key, value in ratio.items()}}
            blocked["blocked, mount / tmpfs"]["least"], blocked["blocked, mount / tmpfs"]["most"] = (
                1 / ratio["most"],
                1 / ratio["least"],
            )
            bench_common.show(f"{name}, {total / 1e9:.2f} GB", figures, {**blocked})
            print("(blocked time: < 1 is faster)")
            results[name] = {"cases": figures, "blocked_ratio": blocked, "times": times}
    bench_common.save(args, results)


if __name__ == "__main__":
    main()
