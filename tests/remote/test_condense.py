# SPDX-License-Identifier: Apache-2.0
"""reduce=dense on NVMe: when nothing else happens, old checkpoints become as dense as they are in the remote. The newest stays as it was
written, what others rest on stays as long as they do, and a crash at any time loses nothing."""
import errno
import json
import os
import time

import numpy
import pytest

import processes
import rig
import trained
from dense_job import Job, Training, check_end, check_fresh, differing, safetensors, save_some

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(400)]


@pytest.fixture
def node(on_remote):
    return on_remote(reduce="dense", reduce_after="0s", gc_grace="1s", stage="256M")


def on_nvme(node, name="run"):
    """Raw bytes of what files refer to, by encoding on NVMe; and what is stored of them for each raw byte."""
    counts = json.loads(node.cairn("du", "--json", os.path.join(node.mnt, name)).stdout)[0]
    return {encoding: row["raw_bytes"] for encoding, row in counts["encodings"].items()}, counts["stored_bytes"] / counts["unique_bytes"]


def dense_bytes(node, name="run"):
    raw, _ = on_nvme(node, name)
    return raw.get("twin", 0) + raw.get("dx", 0)


def wait_condensed(node, timeout=90):
    """Until nothing more becomes dense."""
    rig.poll(lambda: dense_bytes(node) > 0, timeout, "a chunk that is dense on NVMe", 0.2)
    seen, since = 0, time.monotonic()
    while time.monotonic() - since < 8:
        time.sleep(0.5)  # shows that nothing follows any more: that has no event
        if dense_bytes(node) != seen:
            seen, since = dense_bytes(node), time.monotonic()


def fetched(node):
    """Bytes from the remote, but for those that an upload reads to merge small packs: it may do so at any time."""
    status = node.remote_status()
    return status["fetched_bytes_total"] - status["merge_fetched_bytes_total"]


def check_reads_itself(node, content):
    """All of it, from NVMe alone."""
    processes.drop_pages()
    before = fetched(node)
    assert differing(node.mnt, content) == []
    assert fetched(node) == before and not node.status()["damage"]


def check_copied(node, directory, content):
    """Out of the store, without a mount."""
    out = os.path.join(directory, "out")
    node.verb("cp", "-r", f"{node.store}:/run", out)
    assert differing(out, {name.removeprefix("run/"): data for name, data in content.items()}) == []


def test_old_checkpoints_become_dense(job, report, directory):
    save_some(job, 6)
    wait_condensed(job.node)
    raw, ratio = on_nvme(job.node)
    report("condensed", {"ratio": ratio, "raw": raw})
    assert raw["twin"] > 0.2 * sum(raw.values()) and raw["dx"] > 0.08 * sum(raw.values())
    assert ratio < 0.70
    assert dense_bytes(job.node, "run/step6") == 0
    assert job.node.status()["nvme"]["reduction"]["wrong_chunks"] == 0
    job.node.remount()
    check_reads_itself(job.node, job.content)
    job.node.umount_whole()
    check_copied(job.node, directory, job.content)
    job.node.mount_anew()
    check_reads_itself(job.node, job.content)
    check_end(job)


def test_chains_are_two_deep(job, report):
    """What would be deeper stays as it is, and the next two rest on it: of weights alone two in three become dense."""
    job.training = Training(elements=rig.MIB // 8)
    save_some(job, 10, parts=["model"])
    wait_condensed(job.node)
    raw, ratio = on_nvme(job.node)
    report("chains", {"ratio": ratio})
    dense = [dense_bytes(job.node, f"run/step{step}") > 0 for step in range(1, 11)]
    assert dense == [False, True, True, False, True, True, False, True, True, False], "the newest is not old"
    job.node.remount()
    check_reads_itself(job.node, job.content)
    job.node.umount_whole()


def test_what_is_condensed_is_merged_from_nvme(job, report):
    """Small packs of the remote are written anew: chunks that NVMe has in the same form are not fetched for it."""
    job.training = Training(elements=rig.MIB // 8)
    save_some(job, 6, parts=["model"])
    wait_condensed(job.node)
    before = job.node.remote_status()
    for number in range(24):
        job.node.write(f"small{number}", rig.seeded_bytes(number, 20_000), "remote")
    rig.poll(lambda: job.node.remote_status()["packs"] <= 18, 60, "small packs to be merged", 0.5)
    status = job.node.remote_status()
    fetched_to_merge = status["merge_fetched_bytes_total"] - before["merge_fetched_bytes_total"]
    grown = {name: status[name] - before[name] for name in ("fetched_bytes_total", "received_bytes_total")}
    assert min(grown.values()) >= fetched_to_merge, "it counts as fetched, too"
    report("merged", {"fetched": fetched_to_merge, "pack_bytes": before["pack_bytes"], "packs": [before["packs"], status["packs"]],
                      "uploaded": status["uploaded_bytes_total"] - before["uploaded_bytes_total"]})
    assert 0 < fetched_to_merge < 0.35 * before["pack_bytes"], "0.18 is of chunks that NVMe has in another form; all that are dense are 0.46"
    job.node.umount()
    check_fresh(job.node, job.content)


def condensed(node):
    """Bytes that were stored on NVMe as dense chunks, since the mount."""
    rows = node.status()["nvme"]["reduction"]["encodings"]
    return sum(row["stored_bytes"] for row in rows if row["encoding"] in ("twin", "dx"))


def test_it_keeps_to_the_limit_of_writeback(on_remote):
    """A round is paid for before the next one, as all that writeback writes."""
    limit, a_round = 256 * rig.KIB, 16 * rig.MIB
    node = on_remote(reduce="dense", reduce_after="1h", stage="256M").mount()
    save_some(Job(node), 9)
    assert condensed(node) == 0
    begin = time.monotonic()
    node.remount(reduce_after="0s", writeback_limit=limit)
    rig.poll(lambda: condensed(node) > 0, 60, "a chunk that is dense on NVMe", 0.05)
    for _ in range(16):
        time.sleep(0.5)  # shows what is done in this time
        written = condensed(node)
        assert written <= a_round + limit * (time.monotonic() - begin)
    node.remount(reduce_after="0s", writeback_limit=None)
    rig.poll(lambda: condensed(node) > a_round, 60, "what the limit held up")


def keep_reading(node):
    """A part of a file, which the kernel does not keep."""
    with open(os.path.join(node.mnt, "run/step1/model.pt"), "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert file.read(4096)


def keep_writing(node):
    """Small files, which have no chunks: nothing is uploaded but their names."""
    rig.write_file(os.path.join(node.mnt, "small"), b"a line of a log\n")


@pytest.mark.parametrize("program", [keep_reading, keep_writing])
def test_it_waits_while_a_program_goes_on(on_remote, program):
    """Nothing becomes dense as long as there is a read or a write now and then; when there is none any more, it does."""
    node = on_remote(reduce="dense", reduce_after="1h", stage="256M").mount()
    job = Job(node)
    job.training = Training(elements=rig.MIB // 8)
    save_some(job, 3)
    program(node)
    hours = time.time() + 7200
    os.utime(os.path.join(node.mnt, "run/step3/model.pt"), (hours, hours))  # from now on the others are old
    begin = time.monotonic()
    while time.monotonic() - begin < 15:  # shows what is done in this time: a look for old files is due every 5 s
        program(node)
        assert condensed(node) == 0
        time.sleep(0.1)  # between two operations: far less than the 2 s for which condensing waits
    rig.poll(lambda: condensed(node) > 0, 60, "a chunk that is dense on NVMe")


def held(node):
    """Bytes that no file has, on NVMe and in the remote."""
    status = node.status()
    return [status[tier]["held_bytes"] for tier in ("nvme", "remote")]


def test_what_others_rest_on_is_deleted(job):
    """Its files go; its chunks stay on NVMe as long as others rest on them, and go with these."""
    save_some(job, 5)
    wait_condensed(job.node)
    assert held(job.node) == [0, 0]
    job.remove(1)
    job.remove(3)
    for _ in range(3):
        job.node.wait()
        assert job.node.cairn("gc", job.node.mnt).returncode == 0
    kept = held(job.node)
    assert all(rig.MIB < one < 12 * rig.MIB for one in kept), "one model, and what is two deep"
    lines = [line for line in job.node.cairn("status", "-v", job.node.mnt).stdout.splitlines() if "deleted, still referenced" in line]
    assert len(lines) == 2 and not any(line.endswith(" 0 B") for line in lines), lines
    check_reads_itself(job.node, job.content)
    job.node.remount()
    check_reads_itself(job.node, job.content)
    job.node.umount()
    done = job.node.fsck()
    assert done.returncode == 0 and f"{kept[0] / rig.MIB:.1f} MiB on NVMe" in done.stdout, done.stdout
    job.node.mount()
    for number in (2, 4, 5):
        job.remove(number)
    job.write("last", rig.seeded_bytes(1, rig.MIB))
    job.node.wait()

    def few():
        job.node.cairn("gc", job.node.mnt)
        return job.node.status()["nvme"]["pack_bytes"] < 4 * rig.MIB

    rig.poll(few, 60, "the packs of deleted checkpoints to go", 0.5)
    assert held(job.node) == [0, 0]
    check_reads_itself(job.node, job.content)


@pytest.mark.timeout(600)
def test_killed_while_it_condenses(job, seed):
    """At any moment of it; twice the view is lost, too."""
    save_some(job, 5)
    for turn in range(6):
        node = job.node
        rig.poll(lambda: dense_bytes(node) > 0, 60, "a chunk that is dense", 0.05)
        time.sleep((seed * 37 + turn * 91) % 400 / 1000)
        node.kill9()
        rig.file_systems_unmount(node.mnt)
        if turn % 3 == 2:
            node.delete_view()
        node.mount()
        check_reads_itself(node, job.content)
        job.save()
        if turn % 2:
            job.remove(min(int(name.split("/")[1].removeprefix("step")) for name in job.content))
        node.wait_remote()
    wait_condensed(job.node)
    check_reads_itself(job.node, job.content)
    check_end(job)


def test_content_that_comes_again_is_stored_by_itself(job):
    """A save of what an old checkpoint has does not get its chain."""
    save_some(job, 4)
    wait_condensed(job.node)
    name = "run/step2/model.pt"
    assert dense_bytes(job.node, name) > 0
    job.write("again.pt", job.content[name])
    job.node.wait()
    assert dense_bytes(job.node, "again.pt") == 0
    check_reads_itself(job.node, job.content)


def test_evicted_and_warmed(job):
    """What others rest on leaves after them. What comes back stands by itself."""
    save_some(job, 4)
    wait_condensed(job.node)
    first = os.path.join(job.node.mnt, "run/step1")
    job.node.cairn("evict", first)
    check_reads = [name for name in job.content if not name.startswith("run/step1/")]
    before = fetched(job.node)
    processes.drop_pages()
    assert differing(job.node.mnt, {name: job.content[name] for name in check_reads}) == []
    assert fetched(job.node) == before, "nothing that others rest on had gone"
    job.node.remount(reduce_after="1h")  # what comes back does not become dense again
    assert job.node.cairn("evict", job.node.mnt).returncode == 0
    rig.poll(lambda: job.node.cairn("evict", job.node.mnt) and job.node.status()["nvme"]["pack_bytes"] < rig.MIB, 60,
             "NVMe to be empty", 0.5)
    assert job.node.cairn("warmup", job.node.mnt).returncode == 0
    assert dense_bytes(job.node) == 0
    check_reads_itself(job.node, job.content)
    job.node.umount_whole()


LAYER_BYTES = 24 * rig.KIB  # more than what lies inline


def layer(step, number):
    """bf16 numbers of a step, near those of the others."""
    master, noise = (numpy.random.default_rng((number, of)).standard_normal(LAYER_BYTES // 2, numpy.float32) for of in (0, step))
    return trained.rounded(master * numpy.float32(0.02) * (1 + numpy.float32(0.004) * noise))


def save_layers(job, step, layers):
    """Very many small chunks: of tensors in one file, and of a file for each layer, those of all steps in one directory."""
    rows = numpy.stack([layer(step, number) for number in range(layers)])
    job.write(f"run/step{step}/model.safetensors", safetensors(rows, "BF16"))
    for number, row in enumerate(rows[: layers // 4]):
        job.write(f"run/layers/step{step}_layer{number}.bin", row.tobytes()[::-1])


@pytest.mark.timeout(600)
def test_many_small_chunks(on_remote, report, full):
    """With --full 30,000: few packs are made of them, and it takes a time that grows as their number does."""
    node = on_remote(reduce="dense", reduce_after="1h", stage="256M").mount()
    job, layers = Job(node), 6000 if full else 600
    for step in range(1, 5):
        save_layers(job, step, layers)
        node.wait_remote(timeout="900s")
    nvme = node.status()["nvme"]
    chunks, packs = nvme["chunks"], nvme["packs"]
    assert chunks > 5 * layers
    node.remount(reduce_after="0s")
    begin = time.monotonic()
    rig.poll(lambda: dense_bytes(node) > 0, 60, "a chunk that is dense on NVMe", 0.05)
    wait_condensed(node, 600)
    took, nvme = time.monotonic() - begin - 8, node.status()["nvme"]
    dense = dense_bytes(node) / LAYER_BYTES
    report("many", {"chunks": chunks, "dense": dense, "seconds": took, "packs": [packs, nvme["packs"]],
                    "memory": processes.rss_bytes(node.proc.pid)})
    assert dense > chunks / 3, "of weights that are stored by the step before, those that nothing rests on"
    assert nvme["packs"] <= packs + dense / 100, "packs of few chunks"
    assert took < dense / 20
    check_reads_itself(node, job.content)
    node.umount_whole()


def local_packs(node):
    directory = os.path.join(node.store, "packs")
    return {os.path.join(directory, name) for name in os.listdir(directory)}


def spoil(path):
    """Every sector of the pack's first half: its chunks, and not its index."""
    with open(path, "r+b") as file:
        for offset in range(8192, os.path.getsize(path) // 2, 4096):
            file.seek(offset)
            file.write(b"damaged")


def save_on_a_base(job):
    """Models that rest on the first one, and a file beside them. Returns the packs of the first."""
    save_some(job, 1, parts=["model"])
    bases = local_packs(job.node)
    save_some(job, 3, parts=["model"])
    job.write("beside", rig.seeded_bytes(5, 2 * rig.MIB))
    job.node.wait_remote()
    wait_condensed(job.node)
    assert bases <= local_packs(job.node)
    return bases


def test_a_damaged_base_is_healed_from_the_remote(job):
    bases = save_on_a_base(job)
    job.node.umount()
    for path in bases:
        spoil(path)
    job.node.mount()
    processes.drop_pages()
    assert differing(job.node.mnt, job.content) == []
    assert fetched(job.node) > 0 and not job.node.status()["damage"]
    assert job.node.cairn("scrub", job.node.mnt).returncode == 0
    check_reads_itself(job.node, job.content)
    job.node.umount_whole()


def test_a_damaged_base_costs_what_rests_on_it(job):
    """Without the remote: EIO for these bytes, and all else is read."""
    bases = save_on_a_base(job)
    names = sorted(name for name in job.content if name.startswith("run/"))
    dense = {name: dense_bytes(job.node, name) for name in names}
    assert dense[names[-1]] == 0 and dense[names[1]] > 0
    job.node.umount()
    for path in bases:
        spoil(path)
    job.node.options = {"stage": "256M", "reduce": "dense"}
    job.node.mount()
    processes.drop_pages()
    for name in ("beside", names[-1]):
        assert rig.read_file(os.path.join(job.node.mnt, name)) == job.content[name]
    for name in names[1:-1]:
        bad = damaged_bytes(os.path.join(job.node.mnt, name), job.content[name])
        assert 0 < bad <= dense[name] + 16 * 4096
    assert "refers to" in json.dumps(job.node.status()["damage"])
    job.node.umount()
    checked = job.node.fsck()
    assert checked.returncode != 0 and "a chunk that it refers to cannot be read" in checked.stdout, checked.stdout


def damaged_bytes(path, data):
    """Those that cannot be read, in steps of 4 KiB; all others are right."""
    bad = 0
    with open(path, "rb", buffering=0) as file:
        for offset in range(0, len(data), 4096):
            try:
                assert os.pread(file.fileno(), 4096, offset) == data[offset : offset + 4096], offset
            except OSError as error:
                assert error.errno == errno.EIO
                bad += 4096
    return bad


def test_what_a_snapshot_of_the_store_needs_got_another_place(node):
    """Taken before the store had a remote. Then its chunks become dense in other packs, which go with the files. The packs of then are there."""
    lone = {**dict.fromkeys(node.remote.options()), "keep": "last:1"}
    node.mount(**lone)
    job = Job(node)
    for _ in range(4):
        job.save()
    node.wait()
    node.verb("snapshot", "create", node.mnt, "before")
    content = dict(job.content)
    node.remount()
    node.wait_remote()
    wait_condensed(node)
    rig.shutil.rmtree(os.path.join(node.mnt, "run"))
    node.wait_remote()
    node.verb("gc", node.mnt)
    for options in {}, lone:
        node.remount(**options)
        assert differing(os.path.join(node.mnt, ".history", "before"), content) == [], options
