#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint takes: a small GPT is trained in true mixed precision (bf16 weights, fp32 master, Adam moments) and saved as frameworks
save it, and then fine-tuned; `cairn du` says what the mount stores of that, and the packs of remotes what they store with reduce=dense. Speed of the
codec beside memcpy and BLAKE3 in the same run. (bench_reduce_mount.py: of the mount, with reduction and without.)"""
import contextlib
import copy
import glob
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import bench_common
import entropy
import remote as remotes
from bench_common import rig

import torch
from torch import nn
from torch.nn import functional

CONTEXT = 128
VOCABULARY = 256
BETAS = (0.9, 0.95)


class Block(nn.Module):
    def __init__(self, width, heads, std):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        for layer in (self.qkv, self.up):
            nn.init.normal_(layer.weight, std=0.02)
        for layer in (self.out, self.down):
            nn.init.normal_(layer.weight, std=std)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList([Block(width, width // 64, 0.02 / math.sqrt(2 * layers)) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return functional.linear(self.norm(h), self.tokens.weight)


class Adapted(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.adapter_in = nn.Linear(base.in_features, rank, bias=False)
        self.adapter_out = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.adapter_out.weight)

    def forward(self, x):
        return self.base(x) + self.adapter_out(self.adapter_in(x))


def sources():
    """Text that is there: the sources of Python's library."""
    text = bytearray()
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py"))):
        with open(path, "rb") as file:
            text += file.read()
    return text


class Training:
    """The model is bf16, gradients are added up in fp32, AdamW steps on fp32 masters, which are then rounded into the model."""

    def __init__(self, width, layers, steps, rows, peak=6e-4):
        torch.manual_seed(1)
        self.random = torch.Generator().manual_seed(2)
        self.text = torch.frombuffer(sources(), dtype=torch.uint8).long()  # bytes as tokens
        self.model = Model(width, layers)
        self.names = [name for name, _ in self.model.named_parameters()]
        self.masters = [p.detach().clone().requires_grad_() for p in self.model.parameters()]
        self.model.bfloat16()
        self.optimizer = torch.optim.AdamW(self.masters, lr=peak, betas=BETAS, weight_decay=0.1)
        self.steps, self.peak, self.at, self.constant, self.rows = steps, peak, 0, False, rows
        self.live = [True] * len(self.masters)
        self.publish()

    def publish(self):
        with torch.no_grad():
            for p, master in zip(self.model.parameters(), self.masters):
                p.copy_(master)

    def rate(self):
        if self.constant:
            return self.peak
        warm = max(1, self.steps // 20)
        if self.at < warm:
            return self.peak * (self.at + 1) / warm
        return self.peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (self.at - warm) / (self.steps - warm))))

    def batch(self):
        starts = torch.randint(0, len(self.text) - CONTEXT - 1, (self.rows,), generator=self.random)
        both = torch.stack([self.text[i : i + CONTEXT + 1] for i in starts.tolist()])
        return both[:, :-1], both[:, 1:]

    def tune(self, peak, live=None, adapters=None):
        """Goes on from here at a constant rate, on a narrow text, with the betas of fine-tuning, in a copy. `live`: the parameters that are
        trained, by name. `adapters`: rank of matrices that are added to each qkv, and trained alone, as LoRA does."""
        other = copy.deepcopy(self)
        other.text, other.at, other.steps, other.peak, other.constant = self.text[:200_000], 0, 1, peak, True
        if adapters:
            other.model.float()
            for block in other.model.blocks:
                block.qkv = Adapted(block.qkv, adapters)
            other.model.bfloat16()
            live = [name for name, _ in other.model.named_parameters() if ".adapter_" in name]
        other.names = [name for name, _ in other.model.named_parameters()]
        masters = dict(zip(self.names, other.masters))
        other.masters = [masters[name.replace("qkv.base.", "qkv.")] if ".adapter_" not in name else p.detach().float().requires_grad_()
                         for name, p in other.model.named_parameters()]
        other.live = [live is None or name in live for name in other.names]
        other.optimizer = torch.optim.AdamW([m for m, is_live in zip(other.masters, other.live) if is_live], lr=peak, betas=(0.9, 0.999), weight_decay=0.1)
        return other

    def live_share(self):
        """Of what is saved: bf16 weights of all parameters, master and moments of those that are trained."""
        sizes = [m.numel() for m in self.masters]
        trained = sum(n for n, is_live in zip(sizes, self.live) if is_live)
        return 14 * trained / (12 * trained + 2 * sum(sizes))

    def step(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        x, y = self.batch()
        loss = functional.cross_entropy(self.model(x).float().view(-1, VOCABULARY), y.reshape(-1))
        loss.backward()
        for p, master, is_live in zip(self.model.parameters(), self.masters, self.live):
            master.grad, p.grad = p.grad.float() if is_live else None, None
        nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        self.publish()
        self.at += 1
        return loss.item()

    def weights(self):
        return {name: p.detach() for name, p in zip(self.names, self.model.parameters())}

    def parts(self):
        trained = [(name, master) for name, master, is_live in zip(self.names, self.masters, self.live) if is_live]
        return {
            "model": self.weights(),
            "master": {name: master.detach() for name, master in trained},
            "exp_avg": {name: self.optimizer.state[master]["exp_avg"] for name, master in trained},
            "exp_avg_sq": {name: self.optimizer.state[master]["exp_avg_sq"] for name, master in trained},
        }


# --- how frameworks save it ------------------------------------------------------------------------------------------------


def save_torch(training, directory):
    torch.save({"step": training.at, **training.parts()}, os.path.join(directory, "checkpoint.pt"))


def save_fp32(training, directory):
    """As FSDP saves a model that was wrapped in fp32: no bf16 anywhere."""
    parts = training.parts()
    del parts["model"]
    torch.save(parts, os.path.join(directory, "fp32.pt"))


def save_bf16(training, directory):
    """A run whose optimizer is bf16, too."""
    parts = training.parts()
    del parts["master"]
    torch.save({part: {name: t.bfloat16() for name, t in tensors.items()} for part, tensors in parts.items()}, os.path.join(directory, "bf16.pt"))


def save_weights(training, directory):
    from safetensors.torch import save_file

    save_file({name: t.contiguous() for name, t in training.weights().items()}, os.path.join(directory, "model.safetensors"))


def save_dcp(training, directory):
    from torch.distributed import checkpoint

    checkpoint.save(training.parts(), checkpoint_id=os.path.join(directory, "dcp"), no_dist=True)


def save_zero(training, directory, ranks=4):
    """As DeepSpeed: the model in one file, and flat slices that cross tensors, one file a rank."""
    parts = training.parts()
    torch.save({"module": parts.pop("model")}, os.path.join(directory, "mp_rank_00_model_states.pt"))
    flat = {part: torch.cat([t.flatten() for t in tensors.values()]) for part, tensors in parts.items()}
    for rank in range(ranks):
        shard = {part: t.tensor_split(ranks)[rank].clone() for part, t in flat.items()}
        torch.save({"optimizer_state_dict": shard}, os.path.join(directory, f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))


def save_replica(training, directory):
    """The state again, as the second data-parallel rank saves it: all offsets differ."""
    torch.save({"rank": 1, "host": "node-1" * 50, "step": training.at, **training.parts()}, os.path.join(directory, "replica.pt"))


LAYOUTS = {"torch.save, mixed precision": save_torch, "fp32 state": save_fp32, "bf16 state": save_bf16, "bf16 weights, safetensors": save_weights,
           "DCP, mixed precision": save_dcp, "ZeRO shards, mixed precision": save_zero}


# --- measuring ---------------------------------------------------------------------------------------------------------------


def du(mount, path):
    return json.loads(mount.cairn("du", "--json", path).stdout)[0]


def ratios(mount, training, directory):
    """Each layout in a directory of its own; what others of them have already is found, so each is deleted again."""
    found = {}
    for name, save in LAYOUTS.items():
        os.makedirs(directory)
        save(training, directory)
        mount.wait(directory)
        counts = du(mount, directory)
        found[name] = {"ratio": counts["stored_bytes"] / counts["unique_bytes"], "raw_bytes": counts["unique_bytes"],
                       "by_encoding": {encoding: row["stored_bytes"] / row["raw_bytes"] for encoding, row in counts["encodings"].items()}}
        rig.shutil.rmtree(directory)
        mount.wait()
    return found


def series(mount, training, args):
    """Checkpoints as training goes on; all are kept."""
    losses, directory = [], os.path.join(mount.mnt, "series")
    for number in range(args.checkpoints):
        losses += [training.step() for _ in range(args.every)]
        where = os.path.join(directory, f"step{training.at}")
        os.makedirs(where)
        save_torch(training, where)
        print(f"step {training.at}: loss {statistics.mean(losses[-args.every:]):.3f}", file=sys.stderr, flush=True)
    mount.wait(directory)
    counts = du(mount, directory)
    return {"ratio": counts["stored_bytes"] / counts["logical_bytes"], "checkpoints": args.checkpoints, "steps_apart": args.every, "last_loss": losses[-1]}


def write_part(path, tensors):
    """All bytes of the tensors, repeated: from memory, as what is in the stage is."""
    with open(path, "wb") as file:
        while file.tell() < 32 * rig.MIB:
            for t in tensors.values():
                file.write(t.contiguous().view(torch.uint8).numpy().tobytes())


def speeds_of(times, size):
    """By the medians of the rounds, and by the least ones: those are what the machine can do while others use it, too."""
    def figures(pick):
        seconds = {key: pick(rounds) for key, rounds in times.items()}
        return {key: {"gb_s": size / s / 1e9, "of_memcpy": seconds["memcpy"] / s, "of_blake3": seconds["blake3"] / s}
                for key, s in seconds.items()}

    median, best = figures(statistics.median), figures(min)
    return {key: {**median[key], "spread": (max(rounds) - min(rounds)) / statistics.median(rounds), "best": best[key]}
            for key, rounds in times.items()}


def speed(args, files):
    """Ratios of speeds within the rounds of one run: "cached" from the cache, "memory" from 256 MiB, "file" over the file as it is."""
    tool = os.path.join(args.build, "bench", "reduce_bench")
    row = json.loads(rig.run(tool, str(args.rounds), files))
    passes = row["file"]
    ratios = {f"{form}_ratio": passes.pop(f"{form}_bytes") / row["bytes"] for form in ("matrix", "twin", "dx") if f"{form}_bytes" in passes}
    return {"ratio": row["stored_bytes"] / row["bytes"], **ratios,
            "speed": {name: speeds_of(row[name], row["memory_bytes" if name == "memory" else "bytes"])
                      for name in ("cached", "memory", "file")}}


class Uploaded:
    """One layout on a mount with a remote of its own."""

    def __init__(self, args, save, how="dense"):
        self.root, self.save = tempfile.mkdtemp(prefix="cairn-bench-", dir=args.store), save
        self.remote = remotes.DirRemote(os.path.join(self.root, "remotes"))
        self.args, self.steps = args, []
        self.mount = self.on("node", reduce=how, **({"reduce_after": "0s"} if how == "dense" else {}))
        self.mount.mount()

    def on(self, name, **options):
        root = os.path.join(self.root, name)
        os.makedirs(root)
        return remotes.RemoteMount(root, rig.find_binary(self.args.build), self.remote, stage="512M", nvme="20G", **options)

    def add(self, training, save=None):
        """One checkpoint more; returns what the remote grew by, of what the files did."""
        where, before = os.path.join(self.mount.mnt, f"step{training.at}"), self.mount.status()["remote"]
        os.makedirs(where, exist_ok=True)
        (save or self.save)(training, where)
        self.mount.wait_remote()
        after = self.mount.status()["remote"]
        raw = after["logical_bytes"] - before["logical_bytes"]
        self.steps.append((raw, after["pack_bytes"] - before["pack_bytes"]))
        return self.steps[-1][1] / raw

    def share(self, first=0, last=None):
        rows = self.steps[first:last]
        return sum(stored for _, stored in rows) / sum(raw for raw, _ in rows)

    def settle(self):
        """Until nothing becomes denser on NVMe: with reduce=dense old checkpoints do, when nothing else happens."""
        seen, since = None, time.monotonic()
        while time.monotonic() - since < 12:
            stored = self.mount.status()["nvme"]["stored_bytes"]
            if stored != seen:
                seen, since = stored, time.monotonic()
            time.sleep(0.5)

    def figures(self):
        self.settle()
        status = self.mount.status()
        remote, reduction = status["remote"], status["remote"]["reduction"]
        gb = remote["logical_bytes"] / 1e9
        return {"ratio": remote["pack_bytes"] / remote["logical_bytes"], "first": self.share(last=1), "later": self.share(1) if self.steps[1:] else None, "last_quarter": self.share(-max(1, len(self.steps) // 4)),
                "raw_bytes": remote["logical_bytes"], "checkpoints": len(self.steps), "nvme_ratio": status["nvme"]["stored_bytes"] / remote["logical_bytes"],
                "nvme_cpu_s_per_gb": status["nvme"]["reduction"]["cpu_s"] / gb,
                "chunks_per_gb": status["nvme"]["chunks"] / gb, "cpu_s_per_gb": reduction["cpu_s"] / gb,
                "by_encoding": {row["encoding"]: {"raw_bytes": row["raw_bytes"], "ratio": row["stored_bytes"] / row["raw_bytes"]}
                                for row in reduction["encodings"] if row["raw_bytes"]}}

    def restored(self):
        """On another node, which has nothing but the remote: what it fetches for the newest checkpoint, of its bytes; and the files that it
        reads otherwise than this one."""
        fresh = self.on("fresh", ro=True)
        fresh.mount()
        try:
            newest = max(os.listdir(fresh.mnt), key=lambda name: int(name[4:]))
            size = 0
            for directory, _, names in os.walk(os.path.join(fresh.mnt, newest)):
                for name in names:
                    with open(os.path.join(directory, name), "rb") as file:
                        size += len(file.read())
            fetched = fresh.status()["remote"]["fetched_bytes_total"]
            done = subprocess.run(["diff", "-rq", self.mount.mnt, fresh.mnt], capture_output=True, text=True)
            return fetched / size, done.stdout.splitlines() + done.stderr.splitlines()
        finally:
            fresh.umount()
            fresh.close()

    def close(self):
        self.mount.umount()
        self.mount.close()
        rig.shutil.rmtree(self.root, ignore_errors=True)


def trajectory(args, training, saves, checkpoints, also=None):
    """The same checkpoints by each of `saves`, in remotes of their own; `also` is done with the mounts at the end."""
    places, found = {}, {}
    try:
        for name, save in saves.items():
            places[name] = Uploaded(args, save)
        for _ in range(checkpoints):
            losses = [training.step() for _ in range(args.every)]
            print(f"step {training.at}: loss {statistics.mean(losses):.3f}", {name: round(place.add(training), 3) for name, place in places.items()},
                  file=sys.stderr, flush=True)
        for name, place in places.items():
            found[name] = place.figures()
            found[name]["fetched_for_newest"], differing = place.restored()
            assert differing == []
        found.update(also(places) if also else {})
    finally:
        for place in places.values():
            place.close()
    return found


def uploads(args, training):
    """What remotes hold with reduce=dense of a pre-training run, in all layouts."""
    def replica(places):
        return {"second replica of the newest": {"ratio": places["torch.save, mixed precision"].add(training, save_replica)}}

    return trajectory(args, training, LAYOUTS, args.checkpoints, replica)


def tuned(args, training):
    """What remotes hold of the runs that may come after it."""
    found = {}
    for _ in range(args.pretrain):
        training.step()
    last = len(training.model.blocks) - 1
    live = [name for name in training.names if name.startswith((f"blocks.{last}.", "norm."))]
    runs = {"frozen but for the last block": (training.tune(2e-5, live), save_torch, 5), "LoRA": (training.tune(1e-4, adapters=16), save_torch, 5),
            # Of this model 98 to 99 % of the weights stay the same in a step at that rate, as they do in published RL runs.
            "RL-like, bf16 weights": (training.tune(7e-7), save_weights, args.checkpoints),
            "fine-tuning, bf16 weights": (training.tune(2e-5), save_weights, args.checkpoints)}
    for name, (run, save, checkpoints) in runs.items():
        if args.only not in name:
            continue
        found[name] = {"live_share": run.live_share(), **trajectory(args, run, {name: save}, checkpoints)[name]}
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def speeds(args, training):
    """Of each class of tensors by itself (fx), and of weights as their difference to those some steps before (dx)."""
    figures = {}
    for _ in range(0 if training.at else args.every):  # alone, without the series before it
        training.step()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for part, tensors in training.parts().items():
            write_part(os.path.join(directory, part), tensors)
            figures[part] = speed(args, os.path.join(directory, part))
        for _ in range(args.every):
            training.step()
        for part in ("model", "master"):
            later = os.path.join(directory, part + "-later")
            write_part(later, training.parts()[part])
            figures[f"{part}, {args.every} steps later"] = speed(args, f"{later}:{os.path.join(directory, part)}")
    return figures


def as_integers(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().view(f"u{tensor.element_size()}").ravel().copy()


def entropies(args, training):
    """Beside what the codec takes of tensors, by themselves and as differences: what ideal coders would."""
    tool, versions = os.path.join(args.build, "bench", "reduce_bench"), []
    for _ in range(3):
        for _ in range(args.every):
            training.step()
        versions.append({part: [(name, list(t.shape), as_integers(t)) for name, t in tensors.items()]
                         for part, tensors in training.parts().items()})
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        return entropy.table(tool, directory, versions)


# --- what is no tensor -------------------------------------------------------------------------------------------------------


def write_tokenizer(directory):
    """A tokenizer as the Hub's repositories have one: byte-level BPE, 32,000 words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    lines = sources().decode(errors="replace").splitlines()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=32000, show_progress=False))
    tokenizer.save(os.path.join(directory, "tokenizer.json"))


def write_metadata(directory, tensors=2000, ranks=16):
    """What DCP writes beside the shards of a model and its moments."""
    import pickle

    from torch.distributed.checkpoint import metadata as dcp
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    properties, items, storage = dcp.TensorProperties(dtype=torch.float32), {}, {}
    for number in range(tensors):
        name, rows = f"optimizer.state.model.layers.{number // 12}.mlp.{number % 12}.weight.exp_avg", torch.Size([4096 // ranks, 4096])
        offsets = [torch.Size([rank * 4096 // ranks, 0]) for rank in range(ranks)]
        items[name] = dcp.TensorStorageMetadata(properties, torch.Size([4096, 4096]), [dcp.ChunkStorageMetadata(at, rows) for at in offsets])
        for rank, at in enumerate(offsets):
            storage[dcp.MetadataIndex(name, at, 0)] = _StorageInfo(f"__{rank}_0.distcp", number * 4 * rows.numel(), 4 * rows.numel())
    with open(os.path.join(directory, ".metadata"), "wb") as file:
        pickle.dump(dcp.Metadata(items, {name: (name,) for name in items}, storage), file)


def write_log(directory, steps=100000):
    draw = torch.Generator().manual_seed(3)
    with open(os.path.join(directory, "log.jsonl"), "w") as file:
        for step in range(steps):
            noise = torch.rand(3, generator=draw).tolist()
            row = {"step": step, "loss": 2 + noise[0], "grad_norm": noise[1], "lr": 6e-4 * (1 - step / steps), "tokens_per_s": 41000 + 900 * noise[2]}
            file.write(json.dumps(row) + "\n")


def write_sources(directory):
    """A copy of the program beside the checkpoints, as one file."""
    with open(os.path.join(directory, "sources.tar"), "wb") as file:
        file.write(sources())


def texts(args, training):
    """Files that are no tensors, and checkpoint directories with all that is in them: how many bytes zstd would save beside lz4, and at which speed."""
    tool, found = os.path.join(args.build, "bench", "text_bench"), {}
    for _ in range(args.every):
        training.step()
    writers = {"tokenizer.json": write_tokenizer, "DCP .metadata, 32,000 shards": write_metadata, "log, lines of JSON": write_log, "source code": write_sources}
    writers |= {f"directory: {name}": lambda directory, save=save: save(training, directory) for name, save in LAYOUTS.items()}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        for number, (name, write) in enumerate(writers.items()):
            directory = os.path.join(root, str(number))
            os.makedirs(directory)
            write(directory)
            found[name] = text_figures(tool, [os.path.join(at, file) for at, _, files in os.walk(directory) for file in files])
    return found


def text_figures(tool, files):
    row = json.loads(rig.run(tool, *files))
    text, stored = row["text"], row["inline_bytes"] + sum(e["stored_bytes"] for e in row["encodings"].values())
    figures = {"bytes": row["bytes"], "stored_bytes": stored, "text_bytes": text["bytes"], "text_share": text["bytes"] / row["bytes"]}
    for coder in ("lz4", "zstd1", "zstd3", "zstd9"):
        of = text[coder]
        figures[coder] = {"ratio": of["stored_bytes"] / max(1, text["bytes"]), "saved_of_all": (text["lz4"]["stored_bytes"] - of["stored_bytes"]) / stored,
                          "encode_gb_s": text["bytes"] / max(1e-9, of["encode_s"]) / 1e9, "decode_gb_s": text["bytes"] / max(1e-9, of["decode_s"]) / 1e9}
    figures["now"] = {"ratio": text["stored_bytes"] / max(1, text["bytes"])}
    return figures


def main():
    parser = bench_common.parser(__doc__, 512 * rig.MIB)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--checkpoints", type=int, default=5)
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--batch", type=int, default=8, help="rows of 128 tokens in a step")
    parser.add_argument("--pretrain", type=int, default=300, help="steps before what comes after pre-training")
    parser.add_argument("--only", default="", help="of the part tuned: runs whose names have this")
    parser.add_argument("--parts", default="series,ratios,uploads,tuned,speeds", help="also entropy; texts, where the build found libzstd")
    args = parser.parse_args()

    def begin():
        return Training(args.width, args.layers, args.checkpoints * args.every, args.batch)

    training = begin()
    results, parts = {"parameters": sum(m.numel() for m in training.masters)}, args.parts.split(",")
    if "series" in parts or "ratios" in parts:
        place = bench_common.Place(args)
        with contextlib.closing(place):
            results["series"] = series(place.mount, training, args)
            if "ratios" in parts:
                results["ratios"] = ratios(place.mount, training, os.path.join(place.mount.mnt, "layout"))
    if "uploads" in parts:
        results["uploads"] = uploads(args, begin())
    if "tuned" in parts:
        results["tuned"] = tuned(args, begin())
    if "entropy" in parts:
        results["entropy"] = entropies(args, begin())
    if "texts" in parts:
        results["texts"] = texts(args, training)
    if "speeds" in parts:
        results["speeds"] = speeds(args, training)
    print(json.dumps(results, indent=1))
    bench_common.save(args, results)


if __name__ == "__main__":
    main()
