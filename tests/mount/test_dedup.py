# SPDX-License-Identifier: Apache-2.0
"""Data reduction that is there from the start: the same tensors are stored once."""
import os
import threading

import pytest

import rig

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.needs_mount


def tensors(seed, count, elements):
    generator = torch.Generator().manual_seed(seed)
    return {f"layer{number}": torch.randn(elements, generator=generator) for number in range(count)}


def tensor_bytes(state):
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


class Stored:
    """What the store grew by, when everything has been written back."""

    def __init__(self, cairn):
        self.cairn = cairn
        self.last = self.now()

    def now(self):
        self.cairn.wait()
        nvme = self.cairn.status()["nvme"]
        return {key: nvme[key] for key in ("stored_bytes", "pack_bytes", "chunks")}

    def grown(self):
        before, self.last = self.last, self.now()
        return {key: self.last[key] - before[key] for key in before}


def new_share(growth, total):
    return max(growth["stored_bytes"], growth["pack_bytes"]) / total


@pytest.mark.timeout(240)
def test_same_tensors_again(cairn, report):
    """A second torch.save with another header length stores <= 1 % new bytes, through DCP <= 2 %, half frozen <= 52 %."""
    from torch.distributed import checkpoint

    cairn.mount(stage="512M", nvme="4G")
    state = tensors(1, 16, 2 * rig.MIB)
    total = tensor_bytes(state)
    stored, shares = Stored(cairn), {}
    torch.save(state, cairn.mnt + "/first.pt")
    shares["first"] = new_share(stored.grown(), total)
    torch.save({"note": "x" * 777, "step": 2, "model": state}, cairn.mnt + "/second.pt")
    shares["second"] = new_share(stored.grown(), total)
    checkpoint.save(state, checkpoint_id=cairn.mnt + "/dcp", no_dist=True)
    shares["dcp"] = new_share(stored.grown(), total)
    changed = tensors(2, 8, 2 * rig.MIB)
    torch.save({**state, **changed}, cairn.mnt + "/third.pt")
    shares["half frozen"] = new_share(stored.grown(), total)
    report("dedup", shares)
    assert shares["first"] <= 1.02
    assert shares["second"] <= 0.01
    assert shares["dcp"] <= 0.02
    assert shares["half frozen"] <= 0.52
    loaded = torch.load(cairn.mnt + "/third.pt")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in {**state, **changed}.items())


@pytest.mark.parametrize("kind", ["torch", "safetensors"])
def test_chunk_records(cairn, report, kind):
    """P11: at most 1,100 chunk records for each GB of tensors of 32 MiB."""
    cairn.mount(stage="512M", nvme="4G")
    state = tensors(3, 12, 8 * rig.MIB)
    stored = Stored(cairn)
    if kind == "torch":
        torch.save(state, cairn.mnt + "/model")
    else:
        from safetensors.torch import save_file

        save_file(state, cairn.mnt + "/model")
    rate = stored.grown()["chunks"] / (tensor_bytes(state) / rig.GIB)
    report(f"chunks-{kind}", {"records per GiB": rate})
    assert rate <= 1100


def test_copy_costs_nothing(cairn, mnt):
    """A copy of a checkpoint, by read and write, stores next to nothing."""
    data = rig.seeded_bytes(4, 24 * rig.MIB)
    stored = Stored(cairn)
    rig.write_file(mnt + "/one", data)
    first = stored.grown()["stored_bytes"]
    rig.write_file(mnt + "/two", data)
    assert stored.grown()["stored_bytes"] <= 0.01 * first
    assert int(os.getxattr(mnt + "/one", "user.cairn.stored_bytes")) > 0


def counters(cairn):
    """What a copy may cost: what programs sent, what the stage holds, what was hashed again or written to NVMe."""
    kinds = {"mount": ["written_bytes_total"], "stage": ["dirty_bytes", "clean_bytes"],
             "nvme": ["written_bytes_total", "dedup_bytes_total", "pack_bytes"]}
    status = cairn.status()
    return {(kind, key): status[kind][key] for kind, keys in kinds.items() for key in keys}


def copy_range(mnt, source, target, length, offset=0, at=0):
    """copy_file_range to the end of the range; all of it must be taken."""
    with open(f"{mnt}/{source}", "rb") as one, open(f"{mnt}/{target}", "wb") as other:
        done = 0
        while done < length:
            got = os.copy_file_range(one.fileno(), other.fileno(), length - done, offset + done, at + done)
            assert got > 0, f"{done} of {length}"
            done += got


@pytest.mark.parametrize("in_memory", [False, True])
def test_copy_file_range_refers_to_what_is_stored(cairn, rng, in_memory):
    """P10: copies of stored content are references: no byte goes through the program or the stage, nothing is hashed or written again.
    Deduplication would find equal content too, but only after all of it was in the stage."""
    cairn.mount(stage="128M")
    mnt, size, begin, length, at = cairn.mnt, 64 * rig.MIB, 5 * rig.MIB + 12345, 40 * rig.MIB + 77, 3 * rig.MIB + 1
    data = rig.seeded_bytes(rng.random(), size)
    rig.write_file(mnt + "/source", data)
    if in_memory:  # what was just written lies in the stage as well
        cairn.wait()
        rig.poll(lambda: cairn.status()["nvme"]["logical_bytes"] >= size, 20, "the view, a moment after the horizon")
    else:
        cairn.remount()
    before = counters(cairn)
    copy_range(mnt, "source", "whole", size)
    copy_range(mnt, "source", "part", length, begin, at)
    assert spent(before, counters(cairn)) < rig.MIB
    cairn.wait()
    assert spent(before, counters(cairn)) < rig.MIB
    wanted = {"whole": data, "part": bytes(at) + data[begin : begin + length]}
    for step in (lambda: None, cairn.remount, lambda: os.unlink(mnt + "/source"), cairn.wait, cairn.remount):
        step()
        assert all(rig.read_file(f"{mnt}/{name}") == content for name, content in wanted.items())
    cairn.umount_whole()


def test_the_first_copies_come_at_once(cairn, rng):
    """Two answers at once to COPY_FILE_RANGE_64 must not make the kernel believe that the mount copies nothing by reference."""
    cairn.mount(stage="128M")
    mnt, count = cairn.mnt, 12
    for number in range(count):
        rig.write_file(f"{mnt}/{number}", rig.seeded_bytes(rng.random(), 2 * rig.MIB))
    for _ in range(3):
        cairn.remount()
        before, gate = counters(cairn), threading.Barrier(count)
        threads = [threading.Thread(target=copy_behind, args=(gate, mnt, number)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert spent(before, counters(cairn)) < rig.MIB
    assert all(rig.read_file(f"{mnt}/copy-{number}") == rig.read_file(f"{mnt}/{number}") for number in range(count))


def copy_behind(gate, mnt, number):
    gate.wait()
    copy_range(mnt, number, f"copy-{number}", 2 * rig.MIB)


def spent(before, after):
    return max(after[key] - before[key] for key in before)


def test_text_is_compressed(cairn, mnt):
    """lz4 where a sample says that it pays."""
    text = b"".join(b"step %d loss %f\n" % (number, number / 7) for number in range(400_000))
    stored = Stored(cairn)
    rig.write_file(mnt + "/log", text)
    assert stored.grown()["stored_bytes"] < 0.7 * len(text)
    cairn.remount()
    assert rig.read_file(mnt + "/log") == text
