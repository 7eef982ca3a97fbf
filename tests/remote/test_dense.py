# SPDX-License-Identifier: Apache-2.0
"""reduce=dense: the remote stores chunks by means of others. A fresh node reads all of them, whatever was deleted since, and what is
damaged costs what hangs on it and nothing else."""
import contextlib
import errno
import itertools
import os
import shutil
import subprocess
import time

import numpy
import pytest

import processes
import remote as remotes
import rig
import trained
from dense_job import Job, Training, bytes_of, check_end, check_fresh, differing, safetensors, save_some, sent

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(400)]

GRACE = "1s"


def packs(node):
    return set(node.remote.names("packs/"))


@pytest.fixture
def node(on_remote):
    return on_remote(reduce="dense", gc_grace=GRACE, stage="256M")


def raw_bytes(job, part):
    return sum(len(data) for name, data in job.content.items() if name.endswith(part))


def test_chunks_lie_beside_their_bases(node):
    """A small round makes one pack of weights, though some are stored by means of others, and one of the rest."""
    job = Job(node)
    job.training = Training(rig.MIB // 8)
    node.mount(remote=None)
    job.save().save()
    node.remount()
    node.wait_remote()
    assert sent(node)["twin"] > 0.25 * raw_bytes(job, "optimizer.pt")
    assert sent(node)["dx"] > 0.35 * raw_bytes(job, "model.pt")
    assert len(packs(node)) == 2
    node.umount()
    check_fresh(node, job.content)


def test_a_fresh_node_reads_all(job, report):
    save_some(job, 5)
    status = job.node.remote_status()
    ratio = status["pack_bytes"] / status["logical_bytes"]
    report("dense", {"ratio": ratio, "sent": sent(job.node)})
    assert sent(job.node)["twin"] > 0.25 * raw_bytes(job, "optimizer.pt")
    assert sent(job.node)["dx"] > 0.7 * raw_bytes(job, "model.pt")
    assert ratio < 0.70
    assert status["reduction"]["wrong_chunks"] == 0 and status["reduction"]["cpu_s"] > 0
    check_end(job)


def test_what_others_are_stored_by_is_deleted(job):
    """The first checkpoint is what the others hang on: its files go, its chunks stay as long as they are needed."""
    save_some(job, 4)
    job.remove(1)
    job.remove(2)
    job.node.wait_remote()
    time.sleep(1.5)  # past the grace, whose end no event tells
    for _ in range(3):
        save_some(job, 1, parts=["model"])
        assert job.node.cairn("gc", job.node.mnt).returncode == 0
        time.sleep(1.1)
    check_fresh(job.node, job.content, remote=job.node.remote.copy())
    check_end(job)


def test_weights_alone_are_chains(job, report):
    """Each is stored by the one before. Whatever of them is deleted, and however deep the newest is, a fresh node reads what is there."""
    save_some(job, 11, parts=["model"])
    assert sent(job.node)["dx"] > 0.85 * raw_bytes(job, "model.pt")
    check_fresh(job.node, job.content, remote=job.node.remote.copy())
    for number in (1, 2, 3, 4, 5, 6, 7, 9):
        job.remove(number)
    job.write("last", rig.seeded_bytes(1, rig.MIB))
    job.node.wait_remote()
    time.sleep(1.5)  # past the grace, whose end no event tells
    assert job.node.cairn("gc", job.node.mnt).returncode == 0
    status = job.node.remote_status()
    report("held", {"ratio": status["pack_bytes"] / status["logical_bytes"]})
    check_fresh(job.node, job.content, remote=job.node.remote.copy())
    check_end(job)


def test_a_base_is_deleted_while_its_successor_is_sent(on_remote):
    """A job that keeps its last checkpoint alone deletes the one before as soon as the new one is whole."""
    node = on_remote(reduce="dense", stage="256M", upload_limit="64K").mount()
    job = Job(node)
    job.save(parts=["model"])
    node.wait_remote()
    for number in range(1, 9):
        before = sent(node)["dx"]
        job.save(parts=["model"])
        job.write("noise", rig.seeded_bytes(number, 2 * rig.MIB))  # is sent before what has a base, and takes half a minute
        node.wait()
        rig.poll(lambda: node.remote_status()["target_bytes"] > 2 * rig.MIB, 30, "a round of both", 0.005)
        is_early = sent(node)["dx"] == before  # else an earlier round had the model
        job.remove(number)
        node.wait_remote()
        assert sent(node)["dx"] - before > 0.85 * len(job.content[f"run/step{number + 1}/model.pt"])
        if is_early:
            break
    assert is_early
    node.umount_whole()
    check_fresh(node, job.content)


def test_a_base_outlives_a_merge_of_what_it_serves(job):
    """Packs of chunks that are stored by the first checkpoint are merged; then its files go, and the grace passes."""
    job.training = Training(elements=rig.MIB // 8)
    save_some(job, 1)
    first = packs(job.node)
    save_some(job, 6, parts=["model"])
    assert sent(job.node)["dx"] > 0.7 * 6 / 7 * raw_bytes(job, "model.pt")
    before = packs(job.node) - first
    for number in range(20):
        job.write(f"small{number}", rig.seeded_bytes(number, 40000))
        job.node.wait_remote()

    def merged():
        job.node.cairn("gc", job.node.mnt)
        return not before & packs(job.node)

    rig.poll(merged, 60, "small packs to be merged", 0.5)
    job.remove(1)
    for number in range(3):
        job.write("more", rig.seeded_bytes(100 + number, 40000))
        job.node.wait_remote(timeout="90s")
        time.sleep(1.1)
        assert job.node.cairn("gc", job.node.mnt).returncode == 0
    check_fresh(job.node, job.content, remote=job.node.remote.copy())
    job.node.umount_whole()


def test_all_goes_when_nothing_needs_it(job):
    """What only deleted chunks needed is deleted, too."""
    save_some(job, 3)
    for number in (1, 2, 3):
        job.remove(number)
    job.write("last", rig.seeded_bytes(1, rig.MIB))
    job.node.wait_remote()

    def few():
        job.node.cairn("gc", job.node.mnt)
        return sum(job.node.remote.names("packs/").values()) < 3 * rig.MIB

    rig.poll(few, 60, "the packs of deleted checkpoints to go", 0.5)
    check_fresh(job.node, job.content, remote=job.node.remote.copy())


def put_order(remote):
    """What the remote got, in the order in which it came there. The clock of files has ticks of some ms: of those of one tick a head is the
    last."""
    kinds = ("packs/", "runs/", "heads/")
    names = sorted((name for name in remote.names() if name.startswith(kinds)),
                   key=lambda name: [name.startswith(kind) for kind in kinds].index(True))
    return sorted(names, key=lambda name: os.stat(remote.file(name)).st_ctime_ns)


def with_first(remote, order, count):
    """A copy of the remote as it was after so many puts."""
    copy = remote.copy()
    for name in order[count:]:
        copy.delete(name)
    return copy


def check_prefix(node, remote, content):
    """Another node reads whole files, and of the checkpoints the first ones: the last of them may lack its second file."""
    fresh = node.fresh(remote=remote)
    fresh.mount(takeover=True)
    try:
        there = [name for name in content if os.path.exists(os.path.join(fresh.mnt, name))]
        assert there == list(content)[: len(there)]
        assert differing(fresh.mnt, {name: content[name] for name in there}) == []
        return len(there)
    finally:
        fresh.umount()
        remote.wipe()
        shutil.rmtree(fresh.root, ignore_errors=True)


def test_every_prefix_of_what_was_put(on_remote, directory, rng, full):
    """P5: after each put (by default after some) another node reads a state that was. One head has several checkpoints at once."""
    remote = remotes.DirRemote(os.path.join(directory, "remotes"))
    node = on_remote(remote, reduce="dense", gc_grace="1h", stage="256M", upload_threads=3).mount()
    job = Job(node)
    job.training = Training(elements=rig.MIB // 8)
    for count in (1, 1, 3, 1, 2):
        for _ in range(count):
            job.save()
        node.wait_remote()
    assert sent(node)["twin"] > 0 and sent(node)["dx"] > 0
    node.umount()
    order = put_order(remote)
    first = next(at for at, name in enumerate(order) if name.startswith("heads/")) + 1
    counts = list(range(first, len(order) + 1))
    files = [check_prefix(node, with_first(remote, order, count), job.content)
             for count in (counts if full else sorted(rng.sample(counts, 6)))]
    assert files == sorted(files), "a later one has less"


def test_priority_of_encoding(on_remote):
    """Low, as that of writeback, but for a caller who waits for the remote."""
    threads = 2
    options = {"reduce": "dense", "stage": "256M", "upload_limit": "8M", "upload_threads": threads}
    node = on_remote(**options).mount()
    job, normal = Job(node), os.getpriority(os.PRIO_PROCESS, node.proc.pid)
    low = min(normal + 10, 19)
    save_some(job, 1)
    for _ in range(2):  # all before the call that waits: what is saved later is of low priority again as soon as that has returned
        job.save()
    rig.poll(lambda: low in processes.nice_values(node.proc.pid, "cairn-upload"), 60, "encoding of low priority", 0.001)
    with subprocess.Popen([node.binary, "wait", node.mnt, "--level", "remote"]) as waiting:
        seen = []
        while waiting.poll() is None:
            seen.append((low in processes.nice_values(node.proc.pid, "cairn-upload"), node.remote_status()["horizon_seq"]))
        assert waiting.returncode == 0
    node.wait_remote()
    assert processes.nice_values(node.proc.pid, "cairn-upload") == {normal}
    end = node.remote_status()["horizon_seq"]  # the call has its answer then, though its process may live on
    is_low = [low for low, horizon in seen if horizon != end]
    assert not is_low[-1] and sum(is_low) < len(is_low) / 2
    lowered = sum(now and not before for before, now in itertools.pairwise(is_low))
    assert lowered <= threads, "each was about to begin a chunk when the caller came, and no more"


def test_killed_while_it_uploads(on_remote):
    node = on_remote(reduce="dense", stage="256M", upload_threads=1).mount()
    job = Job(node)
    save_some(job, 2)
    dense = 0  # what a daemon has sent is counted as long as it lives
    for turn in range(3):
        before = packs(node)
        job.save()
        node.wait()
        rig.poll(lambda: packs(node) - before, 30, "a pack of it", 0.005)
        time.sleep(0.03 * turn)
        dense += sent(node)["twin"] + sent(node)["dx"]
        node.kill9()
        rig.file_systems_unmount(node.mnt)
        node.mount()
    node.wait_remote()
    assert dense + sent(node)["twin"] + sent(node)["dx"] > 0
    check_fresh(node, job.content, remote=node.remote.copy())
    node.umount_whole()
    check_fresh(node, job.content)


class Life:
    """What happens to a job and its nodes: one thing after the other, by chance."""

    def __init__(self, node, rng):
        self.job, self.rng = Job(node), rng
        self.job.training = Training(elements=rig.MIB // 8, tensors=2)

    @property
    def node(self):
        return self.job.node

    def save(self):
        self.job.save(parts=self.rng.choice((["model"], ["model", "optimizer"])))

    def save_several(self):
        for _ in range(3):
            self.save()

    def remove(self):
        numbers = {name.split("/")[1] for name in self.job.content if name.startswith("run/")}
        if len(numbers) > 1:
            self.job.remove(int(self.rng.choice(sorted(numbers)).removeprefix("step")))

    def write_over(self):
        self.job.write(f"slot{self.rng.randrange(2)}.pt", bytes_of(self.job.training.model()))

    def collect(self):
        self.node.wait_remote()
        time.sleep(1.1)
        assert self.node.cairn("gc", self.node.mnt).returncode == 0

    def kill(self):
        self.node.kill9()
        rig.file_systems_unmount(self.node.mnt)
        self.node.mount()

    def evict(self):
        self.node.wait_remote()
        self.node.cairn("evict", self.node.mnt)

    def change_reduce(self):
        self.node.remount(reduce=self.rng.choice(("fast", "dense")))

    def move(self):
        """Another node takes over; it has nothing on NVMe."""
        self.node.umount_whole(drain="remote")
        self.job.node = self.node.fresh(reduce="dense").mount()

    def look(self):
        """From a third node, which keeps none of it."""
        self.node.wait_remote()
        check_fresh(self.node, self.job.content, remote=self.node.remote.copy())

    def go_on(self, steps):
        often = [self.save, self.save, self.save_several, self.remove, self.remove, self.write_over, self.collect]
        for step in range(steps):
            what = self.rng.choice([*often, self.kill, self.evict, self.change_reduce, self.move, self.look])
            print(step, what.__name__, flush=True)
            what()
        assert differing(self.node.mnt, self.job.content) == []
        self.look()
        self.node.umount_whole()
        check_fresh(self.node, self.job.content)


@pytest.mark.pieces(10)
def test_whatever_happens(on_remote, rng, full, piece):
    """Saves, deletions, gc, kills, eviction, takeovers in any order: every node reads what there is."""
    node = on_remote(reduce="dense", gc_grace=GRACE, stage="128M").mount()
    life = Life(node, rng)
    life.save()
    life.go_on(40 if full else 12)


def damaged(path, data):
    """Offsets at which the file cannot be read, in steps of 4 KiB; all others have their bytes."""
    bad = set()
    with open(path, "rb", buffering=0) as file:
        for offset in range(0, len(data), 4096):
            try:
                assert os.pread(file.fileno(), 4096, offset) == data[offset : offset + 4096], offset
            except OSError as error:
                assert error.errno == errno.EIO
                bad.add(offset)
    return bad


def test_a_lost_base_is_stored_again(job):
    """By hand, the packs of the first model are removed from the remote. The node has them on NVMe."""
    save_some(job, 1, parts=["model"])
    bases = packs(job.node)
    save_some(job, 1, parts=["model"])
    assert sent(job.node)["dx"] > 0
    for name in bases:
        job.node.remote.delete(name)
    job.node.cairn("scrub", job.node.mnt)
    job.write("more", b"so that there is another head" * 1000)
    job.node.wait_remote()
    rig.poll(lambda: job.node.remote_status()["behind_bytes"] == 0 and not bases & packs(job.node), 60, "what was lost to be there", 0.2)
    job.write("yet more", b"and another one" * 1000)
    job.node.wait_remote()
    check_fresh(job.node, job.content, remote=job.node.remote.copy())


def test_a_lost_base_costs_what_hangs_on_it(job):
    """The same, and no node has it any more: EIO for the chunks that were stored by it, all else is read."""
    save_some(job, 1, parts=["model"])
    bases = packs(job.node)
    job.save(parts=["model"])
    job.write("run/beside", rig.seeded_bytes(3, 3 * rig.MIB))
    job.node.wait_remote()
    stored_by = sent(job.node)["dx"]
    job.node.umount()
    for name in bases:
        job.node.remote.delete(name)
    fresh = job.node.fresh()
    fresh.mount()
    first, second = (name for name in sorted(job.content) if name.endswith("model.pt"))
    assert rig.read_file(os.path.join(fresh.mnt, "run/beside")) == job.content["run/beside"]
    assert damaged(os.path.join(fresh.mnt, first), job.content[first])
    bad = len(damaged(os.path.join(fresh.mnt, second), job.content[second])) * 4096
    assert stored_by <= bad <= stored_by + 16 * 4096
    assert fresh.status()["damage"]
    with contextlib.suppress(AssertionError):
        fresh.umount()


def test_names_that_are_written_over(job):
    """A checkpoint of one name, and one of two names in turns, as some frameworks save it."""
    for number in range(5):
        job.training.step()
        job.write("latest.pt", bytes_of({"model": job.training.model(), "optimizer": job.training.optimizer()}))
        job.write(f"slot{number % 2}.pt", bytes_of(job.training.model()))
        job.node.wait_remote()
    assert sent(job.node)["twin"] > 0
    check_fresh(job.node, job.content, remote=job.node.remote.copy())
    job.node.umount_whole()


def test_without_a_mount(job, directory):
    """cairn ls and cp read the remote themselves."""
    save_some(job, 3)
    job.node.umount()
    out = os.path.join(directory, "out")
    job.node.verb("cp", "-r", f"{job.node.remote.url}:/run", out)
    assert [name for name, data in job.content.items() if rig.read_file(os.path.join(out, name.removeprefix("run/"))) != data] == []


def test_a_fresh_node_goes_on(job):
    """It has no chunk on NVMe when it begins; what it saves itself may be stored by what it read."""
    save_some(job, 2)
    job.node.umount()
    fresh = job.node.fresh()
    fresh.mount()
    assert differing(fresh.mnt, job.content) == []
    other = Job(fresh)
    other.training, other.content = job.training, dict(job.content)
    save_some(other, 2)
    assert sent(fresh)["twin"] > 0
    fresh.umount_whole()
    check_fresh(fresh, other.content)


def test_a_mount_without_dense_reads_it_and_moves_it(job):
    """reduce=fast goes on with such a remote: its packs are merged, and nothing is lost."""
    save_some(job, 3)
    job.node.remount(reduce="fast")
    for number in range(24):
        job.write(f"small{number}", rig.seeded_bytes(number, 40000))
        job.node.wait_remote()
    check_fresh(job.node, job.content, remote=job.node.remote.copy())
    job.node.umount_whole()


def test_contents_of_reduce_are_reduced(job):
    """What --reduce makes other tests write is stored by others, small as it is."""
    for number in range(16):
        job.write(f"file-{number}", trained.trained_bytes(number, 100_000))
        if number % 4 == 3:
            job.node.wait_remote()
    assert sent(job.node)["twin"] > 0 and sent(job.node)["dx"] > 0
    check_fresh(job.node, job.content)


def test_a_cut_of_many_chunks(job, full):
    """With --full: more than the upload lists at once (32,768), in each of two cuts."""
    random, rows = numpy.random.default_rng(5), 17_000 if full else 700
    masters = random.standard_normal((rows, 2048), numpy.float32) * numpy.float32(0.02)
    for step in (1, 2):
        masters += numpy.abs(masters) * numpy.float32(0.004) * random.standard_normal(masters.shape, numpy.float32)
        job.write(f"step{step}/model.safetensors", safetensors(trained.rounded(masters), "BF16"))
        job.write(f"step{step}/master.safetensors", safetensors(masters, "F32"))
        job.node.wait_remote(timeout="1500s")
    assert sent(job.node)["dx"] > 0.9 * raw_bytes(job, "model.safetensors") / 2
    assert sent(job.node)["twin"] > 0, "few chunks that small have a landmark"
    check_end(job)
