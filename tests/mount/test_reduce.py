# SPDX-License-Identifier: Apache-2.0
"""Data reduction of one chunk for itself: tensors and text take less, come back byte for byte on this node and on a fresh one, and what it
does is told."""
import json
import os
import re

import pytest

import processes
import remote as remotes
import rig

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.needs_mount


def weights(seed, elements, dtype):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(elements, generator=generator) * 0.02).to(dtype)


def moments(seed, elements):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.logspace(-9, -6, 64).repeat_interleave(elements // 64)
    return torch.randn(elements, generator=generator).square() * rows


def states():
    """What training saves: a model, an optimizer's state, and both; with the share of the bytes that is stored at most."""
    elements = 4 * rig.MIB
    bf16 = {f"layer{i}": weights(i, elements, torch.bfloat16) for i in range(4)}
    fp32 = {f"layer{i}": weights(10 + i, elements, torch.float32) for i in range(2)}
    mixed = {"model": bf16, "master": fp32, "exp_avg_sq": moments(20, elements), "step": 7, "text": "the same again " * 100000}
    return {"bf16": (bf16, 0.70), "fp32": (fp32, 0.86), "mixed": (mixed, 0.80)}


def save_all(directory):
    """Beside the mount too, to compare with."""
    beside = os.path.join(os.path.dirname(directory), "beside")
    os.makedirs(beside, exist_ok=True)
    for name, (state, _) in states().items():
        torch.save(state, os.path.join(beside, name + ".pt"))
        rig.write_file(os.path.join(directory, name + ".pt"), rig.read_file(os.path.join(beside, name + ".pt")))
    return beside


def differing(beside, directory):
    return [name for name in sorted(os.listdir(beside))
            if rig.read_file(os.path.join(beside, name)) != rig.read_file(os.path.join(directory, name))]


def du(mount, path):
    return json.loads(mount.cairn("du", "--json", path).stdout)[0]


def row_of(reduction, encoding):
    return next(row for row in reduction["encodings"] if row["encoding"] == encoding)


@pytest.mark.timeout(300)
def test_states_take_less_and_come_back(cairn, report):
    cairn.mount(stage="512M", nvme="4G")
    beside = save_all(cairn.mnt)
    cairn.wait()
    ratios = {}
    for name, (_, most) in states().items():
        counts = du(cairn, os.path.join(cairn.mnt, name + ".pt"))
        ratios[name] = counts["stored_bytes"] / counts["unique_bytes"]
        assert counts["encodings"]["fx"]["raw_bytes"] > 0.9 * counts["unique_bytes"]
        assert ratios[name] <= most, ratios
    report("reduction", ratios)
    cairn.remount()
    processes.drop_pages()
    assert differing(beside, cairn.mnt) == []
    cairn.umount_whole()


def test_off_stores_as_it_is(cairn):
    cairn.mount(stage="256M", nvme="2G", reduce="off")
    cairn.write("w", weights(1, rig.MIB, torch.bfloat16).view(torch.uint8).numpy().tobytes(), "nvme")
    counts = du(cairn, cairn.mnt + "/w")
    assert set(counts["encodings"]) == {"raw"} and counts["stored_bytes"] == counts["logical_bytes"]


def test_what_it_does_is_told(cairn):
    cairn.mount(stage="256M", nvme="2G")
    rig.write_file(cairn.mnt + "/w", weights(1, rig.MIB, torch.bfloat16).view(torch.uint8).numpy().tobytes())
    rig.write_file(cairn.mnt + "/text", b"a line of a log\n" * 60000)
    cairn.write("noise", rig.seeded_bytes(1, rig.MIB), "nvme")
    reduction = cairn.status()["nvme"]["reduction"]
    encoded = {one["encoding"]: (one["raw_bytes"], one["stored_bytes"]) for one in reduction["encodings"]}
    assert encoded["fx"][0] == 2 * rig.MIB and encoded["fx"][1] < 1.4 * rig.MIB
    assert encoded["lz4"][0] == 960000 and encoded["lz4"][1] < 100000
    assert encoded["raw"] == (rig.MIB, rig.MIB)
    assert reduction["cpu_s"] > 0 and reduction["wrong_chunks"] == 0
    text = cairn.cairn("status", "-v", cairn.mnt).stdout
    assert re.search(r"encoded as fx +2.0 MiB stored in 1", text) and re.search(r"CPU time of encoding +0\.", text), text
    assert "fx 0.6" in cairn.cairn("du", cairn.mnt).stdout
    assert "fx: 2.0 MiB stored in" in cairn.cairn("info", cairn.mnt + "/w").stdout
    metrics = cairn.cairn("metrics", cairn.mnt).stdout
    assert f'cairnfs_encoded_raw_bytes_total{{encoding="fx"}} {2 * rig.MIB}\n' in metrics
    assert "cairnfs_encode_cpu_seconds_total 0." in metrics


@pytest.mark.timeout(300)
def test_a_fresh_node_reads_the_same(on_remote, directory):
    remote = remotes.DirRemote(os.path.join(directory, "remotes"))
    mount = on_remote(remote)
    mount.mount()
    beside = save_all(mount.mnt)
    mount.wait_remote()
    assert mount.remote_status()["uploaded_bytes_total"] < 0.82 * sum(os.path.getsize(os.path.join(beside, name))
                                                                      for name in os.listdir(beside))
    on_nvme, in_remote = (row_of(mount.status()[tier]["reduction"], "fx") for tier in ("nvme", "remote"))
    assert in_remote["raw_bytes"] == on_nvme["raw_bytes"] > 0
    assert in_remote["stored_bytes"] <= on_nvme["stored_bytes"]  # uploads try columns, too
    line = f'cairnfs_remote_encoded_stored_bytes_total{{encoding="fx"}} {in_remote["stored_bytes"]}\n'
    assert line in mount.cairn("metrics", mount.mnt).stdout
    mount.umount()
    with mount.elsewhere() as fresh:
        assert differing(beside, fresh.mnt) == []


def features(path):
    with open(path, "rb") as file:
        return int.from_bytes(file.read(24)[16:24], "little")


FX = 4


def test_the_store_says_what_it_may_hold(on_remote, directory):
    """An older version, which knows no such feature, refuses the store and the remote."""
    remote = remotes.DirRemote(os.path.join(directory, "remotes"))
    mount = on_remote(remote)
    mount.mount(reduce="off")
    mount.write("old", rig.seeded_bytes(1, rig.MIB), "remote")
    mount.umount()
    info = os.path.join(remote.path, "cairn")
    assert features(mount.store + "/superblock") & FX == 0 and features(info) & FX == 0
    mount.mount()
    assert features(mount.store + "/superblock") & FX and features(info) & FX
    assert rig.read_file(mount.mnt + "/old") == rig.seeded_bytes(1, rig.MIB)
    mount.umount()
    with mount.elsewhere(reduce="off") as fresh:
        assert features(fresh.store + "/superblock") & FX
