#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job: a small GPT trained on English text of this machine, with checkpoints.

It saves model, optimizer, step and random state with plain torch.save every k steps, keeps the
last n checkpoints, and writes the file `latest` last. With --lazy it saves by cairnfs.save: the copy goes on
beside the next step, and `latest` follows it. With --resume it continues from the newest
checkpoint and reproduces, bit for bit, the losses of a run that was never stopped.

    DIR/step-000040/checkpoint.pt
    DIR/latest                      text: step-000040
"""
import argparse
import glob
import gzip
import json
import os
import shutil
import sys
import time
import zlib

import torch
from torch import nn
from torch.nn import functional as F

TEXT_PLACES = [
    "/usr/share/common-licenses/*",
    "/usr/share/doc/*/README*",
    "/usr/share/doc/*/copyright",
    "/usr/share/man/man1/*.gz",
    "/usr/share/man/man8/*.gz",
]


def read_text(limit):
    """English text of this machine, in an order that never changes, at most `limit` bytes."""
    parts, size = [], 0
    for place in TEXT_PLACES:
        for path in sorted(glob.glob(place)):
            if size >= limit:
                return b"".join(parts)[:limit]
            if not os.path.isfile(path) or os.path.islink(path):
                continue
            try:
                opener = gzip.open if path.endswith(".gz") else open
                with opener(path, "rb") as file:
                    parts.append(file.read(limit - size))
            except (OSError, EOFError, zlib.error):
                continue
            size += len(parts[-1])
    if size < 100_000:
        sys.exit("train_gpt: no text found under /usr/share/{common-licenses,doc,man}: use --text FILE")
    return b"".join(parts)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        score = (q @ k.transpose(2, 3)) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = score.masked_fill(mask, float("-inf")).softmax(dim=3) @ v
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.mlp(self.norm2(x)))


class Gpt(nn.Module):
    """Bytes in, bytes out."""

    def __init__(self, width, layers, context):
        super().__init__()
        heads = max(1, width // 32)
        self.token = nn.Embedding(256, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256, bias=False)

    def forward(self, x):
        x = self.token(x) + self.place(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Job:
    def __init__(self, args):
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(args.threads)
        torch.manual_seed(args.seed)
        self.args = args
        raw = open(args.text, "rb").read() if args.text else read_text(args.text_bytes)
        self.text_crc = zlib.crc32(raw)
        self.text = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        self.model = Gpt(args.width, args.layers, args.context)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.step = 0
        self.start = 0
        self.losses = {}
        self.saves = []
        self.pending = []  # lazy saves without a name yet, with their steps' directories
        self.seconds = 0  # of all steps and saves so far

    def batch(self):
        args = self.args
        at = torch.randint(len(self.text) - args.context - 1, (args.batch,))
        rows = torch.stack([self.text[i : i + args.context + 1] for i in at.tolist()]).long()
        return rows[:, :-1], rows[:, 1:]

    def train_step(self):
        x, y = self.batch()
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.losses[self.step] = loss.item()
        return loss.item()

    def save(self):
        """Save one checkpoint, then name it in `latest`, then remove those that are too old."""
        args = self.args
        name = f"step-{self.step:06d}"
        directory = os.path.join(args.dir, name)
        path = os.path.join(directory, "checkpoint.pt")
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "rng": torch.get_rng_state(),
            "text_crc": self.text_crc,
        }
        begin = time.monotonic()
        os.makedirs(directory, exist_ok=True)
        if args.lazy:
            self.pending.append((name, cairnfs().save(state, path), cairnfs().marker(os.path.join(args.dir, "latest"), name)))
        else:
            torch.save(state, path)
            if args.fsync:
                sync_path(path)
            write_latest(args.dir, name)
        saved = time.monotonic()
        size = None if args.lazy else os.path.getsize(path)
        self.pending = [entry for entry in self.pending if not entry[2].done()]
        keep_newest(args.dir, args.keep, {entry[0] for entry in self.pending})
        removed = time.monotonic()
        self.saves.append(
            {"step": self.step, "bytes": size, "seconds": saved - begin, "remove_seconds": removed - saved}
        )
        return size, saved - begin

    def resume(self):
        path = newest_checkpoint(self.args.dir)
        if path is None:
            print("no checkpoint yet: starting at step 0", flush=True)
            return
        state = torch.load(path, weights_only=True)
        if state["text_crc"] != self.text_crc:
            sys.exit(f"train_gpt: {path} was trained on another text")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        self.step = self.start = state["step"]
        print(f"resumed from {path} at step {self.step}", flush=True)

    def report(self):
        """Losses and blocked times, replaced as a whole, so that a kill leaves the last one."""
        if not self.args.report:
            return
        temporary = self.args.report + ".tmp"
        with open(temporary, "w") as file:
            json.dump({"start": self.start, "losses": self.losses, "saves": self.saves, "seconds": self.seconds}, file)
        os.replace(temporary, self.args.report)

    def run(self):
        args, begin = self.args, time.monotonic()
        while self.step < args.steps:
            loss = self.train_step()
            line = f"step {self.step} loss {loss:.4f}"
            saved = self.step % args.every == 0
            if saved:
                size, seconds = self.save()
                self.seconds = time.monotonic() - begin
                self.report()
                what = "is being saved: the call took" if args.lazy else f"{size / 1e6:.1f} MB saved in"
                line += f" checkpoint {what} {seconds * 1000:.0f} ms"
            if saved or self.step % args.print_every == 0:
                print(line, flush=True)
        if args.lazy:
            cairnfs().wait()
            keep_newest(args.dir, args.keep)
        self.seconds = time.monotonic() - begin
        self.report()


def cairnfs():
    """The package that is installed, or that of this tree."""
    try:
        import cairnfs as package
    except ImportError:
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
        import cairnfs as package
    return package


def sync_path(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_latest(directory, name):
    fd = os.open(os.path.join(directory, "latest"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(fd, name.encode())
    finally:
        os.close(fd)


def newest_checkpoint(directory):
    try:
        with open(os.path.join(directory, "latest")) as file:
            name = file.read()
    except FileNotFoundError:
        return None
    path = os.path.join(directory, name, "checkpoint.pt")
    if not name or not os.path.exists(path):
        sys.exit(f"train_gpt: latest names {name!r}, but {path} is not there")
    return path


def keep_newest(directory, keep, unsaved=()):
    """Removes older checkpoints than the newest `keep` that are there."""
    steps = sorted(name for name in os.listdir(directory) if name.startswith("step-") and name not in unsaved)
    for name in steps[:-keep]:
        shutil.rmtree(os.path.join(directory, name))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, help="where checkpoints go")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--keep", type=int, default=2, help="checkpoints to keep")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument("--lazy", action="store_true", help="save by cairnfs.save, and write `latest` by cairnfs.marker")
    parser.add_argument("--fsync", action="store_true", help="fsync every checkpoint (to compare with a plain disk)")
    parser.add_argument("--report", help="JSON file for losses and blocked times")
    parser.add_argument("--width", type=int, default=128, help="model width, a multiple of 32")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", help="train on this file instead of the machine's documentation")
    parser.add_argument("--text-bytes", type=int, default=4_000_000)
    parser.add_argument("--print-every", type=int, default=5)
    args = parser.parse_args()
    if args.width % 32 or args.every < 1 or args.keep < 1:
        parser.error("--width must be a multiple of 32; --every and --keep at least 1")
    return args


def main():
    args = parse()
    if args.lazy:
        cairnfs()  # before the first step: what an optimizer holds is known from the steps that it saw
    os.makedirs(args.dir, exist_ok=True)
    job = Job(args)
    if args.resume:
        job.resume()
    try:
        job.run()
    except (OSError, RuntimeError) as error:
        job.report()
        sys.exit(f"train_gpt: step {job.step}: {error}")


if __name__ == "__main__":
    main()
