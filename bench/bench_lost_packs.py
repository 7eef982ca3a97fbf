#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a lost pack of a remote costs: checkpoints are saved on a mount, then packs are taken from a copy of the remote.

For each pack alone, `cairn fsck` names the files that it damages. So it is known which packs a checkpoint needs, those of bases
included, and what any loss costs: half of the packs, a twentieth, a single one, over TRIES seeds. For the first PROOFS of these,
half of the packs are really taken, and `cairn cp --partial` has to restore the same files.

    bench_lost_packs.py --cases state-8,weights-8,state-60 --paces each,late --json lost.json

Pace: `each` checkpoint is in the remote before the next one is saved; `late`: the upload of all but the first begins after the last
was saved. Bytes, packs and damage are counts, so a busy machine changes little of them."""
import json
import os
import random
import statistics
import sys
import tempfile
import time

import bench_common
import remote as remotes
from bench_common import rig

import torch

TRIES, PROOFS = 2000, 2
BEGIN = 1_700_000_000  # of the training, seconds since 1970
LOSSES = {"half": 0.5, "a twentieth": 0.05}
CASES = {  # name -> MB of a checkpoint, has it an optimizer's state, checkpoints
    "state-8": (8, True, 16),
    "state-20": (20, True, 16),
    "state-60": (60, True, 8),
    "weights-8": (8, False, 16),
    "weights-40": (40, False, 10),
}


class Training:
    """bf16 weights in two shards, and with an optimizer fp32 masters and both moments of Adam."""

    def __init__(self, megabytes, has_optimizer):
        each = int(megabytes * 1e6) // (14 if has_optimizer else 2)
        self.random, self.has_optimizer = torch.Generator().manual_seed(7), has_optimizer
        self.masters = [self.noise(each // 6 + 500 * number) * 0.02 for number in range(6)]

    def noise(self, count):
        return torch.randn(count, generator=self.random)

    def step(self):
        self.masters = [master + master.abs() * 0.004 * self.noise(len(master)) for master in self.masters]

    def files(self):
        shards = {f"model-{part}.pt": [m.to(torch.bfloat16) for m in self.masters[part::2]] for part in range(2)}
        if self.has_optimizer:
            shards["optimizer.pt"] = {"master": self.masters, "exp_avg": [self.noise(len(m)) * 1e-4 for m in self.masters],
                                      "exp_avg_sq": [self.noise(len(m)).square() * 1e-8 for m in self.masters]}
        return shards

    def save(self, directory, number):
        """As if a minute of training lay before it."""
        os.makedirs(directory)
        for name, state in self.files().items():
            with open(os.path.join(directory, name), "wb") as file:
                torch.save(state, file)
                file.flush()
                os.utime(file.fileno(), (BEGIN + 60 * number,) * 2)


# --- saving ------------------------------------------------------------------------------------------------------------------


def save_all(case, reduce, pace, root, binary):
    """The remote, and what saving and uploading took."""
    megabytes, has_optimizer, count = CASES[case]
    training, remote = Training(megabytes, has_optimizer), remotes.DirRemote(os.path.join(root, "remotes"))
    mount = remotes.RemoteMount(root, binary, remote, stage="1G", nvme="20G", reduce=reduce, gc_grace="1s",
                                **({"upload_limit": "1M"} if pace == "late" else {}))
    mount.mount()
    seconds = 0
    for number in range(count):
        training.step()
        begin = time.monotonic()
        training.save(os.path.join(mount.mnt, f"run/step{number:03d}"), number)
        mount.wait(level="nvme" if pace == "late" else "remote", timeout="900s")
        seconds += time.monotonic() - begin
    begin = time.monotonic()
    mount.wait(level="remote", timeout="900s")
    seconds += time.monotonic() - begin
    time.sleep(4)  # small packs are merged 2 s after the last round for which a caller waited
    mount.wait(level="remote", timeout="900s")
    sent = mount.remote_status()["uploaded_bytes_total"]
    rig.poll(lambda: mount.cairn("gc", mount.mnt).returncode == 0, 60, "gc")
    mount.umount(drain="remote")
    mount.drop_stage()
    return remote, {"seconds": seconds, "sent": sent}


# --- which files need which packs --------------------------------------------------------------------------------------------


def packs_of(remote):
    return sorted(name for name in remote.names() if name.startswith("packs/"))


def damaged(remote, binary):
    done = rig.subprocess.run([binary, "fsck", "--json", "--sample", "1", remote.url], capture_output=True, text=True, env=remote.env())
    return {row["path"] for row in json.loads(done.stdout)["damaged"]}


def needs_of(remote, binary):
    """path -> packs that it needs, bases included."""
    needs, aside = {}, os.path.join(remote.root, "aside")
    for pack in packs_of(remote):
        os.rename(remote.file(pack), aside)
        for path in damaged(remote, binary):
            needs.setdefault(path, set()).add(pack)
        os.rename(aside, remote.file(pack))
    return needs


def lost_of(packs, share, seed):
    return set(random.Random(seed).sample(packs, max(1, round(share * len(packs)))))


def whole_files(needs, lost):
    return {path for path, packs in needs.items() if not packs & lost}


def whole_checkpoints(needs, lost):
    every = {os.path.dirname(path) for path in needs}
    return len(every - {os.path.dirname(path) for path in needs.keys() - whole_files(needs, lost)})


def prove(remote, needs, lost, binary):
    """The same files are whole when the packs are really gone."""
    copy = remote.copy()
    for pack in lost:
        copy.delete(pack)
    with tempfile.TemporaryDirectory(dir=remote.root) as local:
        rig.subprocess.run([binary, "cp", "-r", "--partial", copy.spec("/"), local], capture_output=True, env=remote.env())
        found = {"/" + os.path.relpath(os.path.join(top, name), local) for top, _, names in os.walk(local) for name in names}
    copy.wipe()
    found = {path for path in found if not path.endswith((".partial", ".holes"))}
    assert found == whole_files(needs, lost), (len(found), len(whole_files(needs, lost)))


def measure(case, reduce, pace, args, binary):
    root = tempfile.mkdtemp(prefix="cairn-bench-", dir=args.store)
    try:
        remote, row = save_all(case, reduce, pace, root, binary)
        needs, packs = needs_of(remote, binary), packs_of(remote)
        checkpoints = {}
        for path, needed in needs.items():
            checkpoints.setdefault(os.path.dirname(path), set()).update(needed)
        each = sorted(map(len, checkpoints.values()))
        row.update({"checkpoints": len(checkpoints), "files": len(needs), "packs": len(packs),
                    "stored": sum(os.path.getsize(remote.file(pack)) for pack in packs)})
        row.update({"packs of a checkpoint": statistics.mean(each), "most": each[-1]})
        row["lost by one pack"] = sum(each) / len(packs)
        for name, share in LOSSES.items():
            losses = [lost_of(packs, share, seed) for seed in range(TRIES)]
            row[f"files whole, {name}"] = statistics.mean(len(whole_files(needs, lost)) for lost in losses) / len(needs)
            row[f"checkpoints whole, {name}"] = statistics.mean(whole_checkpoints(needs, lost) for lost in losses) / len(checkpoints)
        for seed in range(PROOFS):
            prove(remote, needs, lost_of(packs, 0.5, seed), binary)
        return row
    finally:
        rig.shutil.rmtree(root, ignore_errors=True)


def show(name, row):
    counts = f"{row['packs']:>6}{row['stored'] / 1e6:>9.1f}{row['sent'] / 1e6:>9.1f}{row['seconds']:>8.1f}"
    needed = f"{row['packs of a checkpoint']:>8.2f}{row['most']:>6}{row['lost by one pack']:>8.2f}"
    whole = [row[key] for key in ("files whole, half", "checkpoints whole, half", "checkpoints whole, a twentieth")]
    print(f"{name:<24}{counts}{needed}" + "".join(f"{share:>9.1%}" for share in whole), flush=True)


def main():
    parser = bench_common.parser(__doc__, 0)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--paces", default="each,late")
    parser.add_argument("--reduce", default="fast,dense")
    args = parser.parse_args()
    binary, results = rig.find_binary(args.build), {}
    if binary is None:
        sys.exit(f"no cairn binary in {args.build}: build first, or name the directory with --build")
    print(f"{'':<24}{'packs':>6}{'MB':>9}{'MB sent':>9}{'s':>8}{'each':>8}{'most':>6}{'lost/1':>8}{'files/2':>9}{'whole/2':>9}{'whole/20':>9}")
    for case in args.cases.split(","):
        for pace in args.paces.split(","):
            for reduce in args.reduce.split(","):
                name = f"{case} {pace} {reduce}"
                results[name] = measure(case, reduce, pace, args, binary)
                show(name, results[name])
    bench_common.save(args, results)


if __name__ == "__main__":
    main()
