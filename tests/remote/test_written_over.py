# SPDX-License-Identifier: Apache-2.0
"""reduce=dense and names that are written over: what the remote has of the old content serves the new one, for as long as that pays, and
goes when nothing needs it any more."""
import os
import time

import pytest

import rig
from dense_job import Training, bytes_of, check_end, check_fresh, differing, sent

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(400)]

TIMES = 12


@pytest.fixture
def node(on_remote, remote):
    return on_remote(remote, reduce="dense", gc_grace="1s", stage="256M")


def truncate(path, data):
    rig.write_file(path, data)


def rename(path, data):
    rig.write_file(path + ".tmp", data)
    os.rename(path + ".tmp", path)


def publish_then_rename(job):
    """A head may have the file under its first name, before the old one is replaced."""

    def write(path, data):
        rig.write_file(path + ".tmp", data)
        job.node.wait_remote()
        os.rename(path + ".tmp", path)

    return write


def rename_directory(path, data):
    """Files of a directory, which takes the place of another."""
    directory = os.path.dirname(path)
    os.makedirs(directory + ".new")
    rig.write_file(os.path.join(directory + ".new", os.path.basename(path)), data)
    if os.path.exists(directory):
        os.rename(directory, directory + ".old")
        os.unlink(os.path.join(directory + ".old", os.path.basename(path)))
        os.rmdir(directory + ".old")
    os.rename(directory + ".new", directory)


WAYS = {"truncate": lambda job: truncate, "rename": lambda job: rename, "publish_then_rename": publish_then_rename,
        "directory": lambda job: rename_directory}


def save_over(job, write, name="latest/model.pt", parts=("model",)):
    """The next step's state under the name; returns the bytes of it."""
    job.training.step()
    states = {part: getattr(job.training, part)() for part in parts}
    data = bytes_of(states if len(states) > 1 else states["model"])
    path = os.path.join(job.node.mnt, name)
    if write is not rename_directory:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    write(path, data)
    job.content[name] = data
    return len(data)


def save_overs(job, count):
    """By renames, each in the remote before the next; returns how long the last one is."""
    for _ in range(count):
        raw = save_over(job, rename)
        job.node.wait_remote()
    return raw


def uploaded_shares(job, write, **what):
    """How much of each of some contents was uploaded, and how long one is."""
    uploaded = []
    for _ in range(TIMES):
        before = job.node.remote_status()["uploaded_bytes_total"]
        raw = save_over(job, write, **what)
        job.node.wait_remote()
        uploaded.append((job.node.remote_status()["uploaded_bytes_total"] - before) / raw)
    return uploaded, raw


def collect(job):
    """What heads dropped goes from the remote, too: gc runs until it removes no more. A server's clock may count whole seconds only."""
    job.write("more", rig.seeded_bytes(job.training.number, 20000))
    job.node.wait_remote()
    idle, left = 0, None
    while idle < 3:
        time.sleep(1.5)  # longer than gc_grace, whose end no event tells
        assert job.node.cairn("gc", job.node.mnt).returncode == 0
        before, left = left, sum(job.node.remote.names("packs/").values())
        idle = idle + 1 if left == before else 0
    return left


@pytest.mark.parametrize("way", WAYS)
def test_weights_are_stored_by_what_they_replace(job, report, way):
    uploaded, raw = uploaded_shares(job, WAYS[way](job))
    kept = collect(job) / raw
    report(f"{way}-{job.node.remote.kind}", {"uploaded": [round(share, 3) for share in uploaded], "kept": kept})
    plain = uploaded[0]
    assert sum(uploaded) < 0.75 * plain * TIMES, uploaded
    assert kept < 2 * plain + 0.05, "the remote keeps at most one content more than there is"
    check_fresh(job.node, job.content, remote=job.node.remote.copy())
    check_end(job)


def small(job):
    job.training = Training(elements=rig.MIB // 8)
    return job


def test_all_is_there_when_the_name_was_written_over(job):
    """The head that brings the new content names what that rests on, which nothing needed when its cut was made."""
    small(job)
    for number in range(4):
        raw = save_over(job, truncate)
        job.node.wait_remote()
        if number:
            check_fresh(job.node, job.content, remote=job.node.remote.copy())
    assert sent(job.node)["dx"] > 2 * raw


def test_a_training_state(job, report):
    """Of it only the weights are differences to what they replace: what those keep is a small part, and moments are kept by nothing."""
    uploaded, raw = uploaded_shares(small(job), rename, parts=("model", "optimizer"))
    kept = collect(job) / raw
    report(f"state-{job.node.remote.kind}", {"uploaded": [round(share, 3) for share in uploaded], "kept": kept})
    assert sent(job.node)["twin"] > 0.25 * TIMES * raw and sent(job.node)["dx"] > 0.1 * TIMES * raw
    assert sum(uploaded[1:]) < 0.98 * uploaded[0] * (TIMES - 1), uploaded
    assert kept < uploaded[0] + 2 / 14, "bf16 weights are a seventh of the state"
    check_fresh(job.node, job.content)


def test_all_goes_with_the_name(job):
    raw = save_overs(job, 4)
    assert sent(job.node)["dx"] > 2 * raw
    os.unlink(os.path.join(job.node.mnt, "latest/model.pt"))
    del job.content["latest/model.pt"]
    assert collect(job) < raw / 10
    assert job.node.status()["nvme"]["pack_bytes"] < raw / 10
    check_fresh(job.node, job.content)


def test_killed_while_it_uploads(job):
    """What rests on an old content was noted, or was not; the next daemon goes on from there, and so does a fresh node from what is
    published."""
    small(job)
    for turn in range(5):
        save_over(job, truncate if turn % 2 else rename)
        before = set(job.node.remote.names("packs/"))
        job.node.wait()
        rig.poll(lambda: set(job.node.remote.names("packs/")) - before, 30, "a pack of it", 0.005)  # noqa: B023
        time.sleep(0.02 * turn)
        job.node.kill9()
        rig.file_systems_unmount(job.node.mnt)
        job.node.mount()
        if turn % 2:
            job.node.wait_remote()
            check_fresh(job.node, job.content, remote=job.node.remote.copy())
    raw = save_overs(job, 2)
    assert sent(job.node)["dx"] > 0.7 * raw
    collect(job)
    check_end(job)


def test_what_serves_goes_when_room_is_asked_for(job):
    """It is kept on NVMe because there is room. Without it the next content stands by itself; the one after it has that."""
    raw = save_overs(job, 3)
    served = sent(job.node)["dx"]
    assert served > 1.5 * raw
    job.node.remount()
    save_over(job, rename)
    job.node.wait_remote()
    assert sent(job.node)["dx"] > 0.7 * raw, "a mount that begins with what is published knows it"
    assert job.node.status()["nvme"]["pack_bytes"] > 1.2 * raw
    save_over(job, rename)
    job.node.wait()
    assert job.node.cairn("gc", job.node.mnt).returncode == 0
    job.node.wait_remote()
    check_fresh(job.node, job.content)


FOLLOW = {"ro": True, "follow": "200ms"}


def shown(follower, job):
    """All that is published, once the follower has it."""
    newest = max(job.node.remote.heads())
    rig.poll(lambda: follower.remote_status()["head"] >= newest, 60, f"the follower to show head {newest}", 0.05)
    time.sleep(1.1)  # the kernel may keep names and attributes for 1 s, and says nothing when they end
    return differing(follower.mnt, job.content) == [] and not follower.status()["damage"]


def test_followed(job):
    """Each head brings content that rests on what no file has any more, and drops what nothing needs: a read-only mount shows it, also when
    it lags behind longer than the grace, or was killed and has lost its view."""
    small(job)
    save_over(job, rename, "always.pt")
    save_over(job, truncate)
    job.node.wait_remote()
    follower = job.node.fresh(**FOLLOW).mount()
    assert shown(follower, job)
    for turn in range(12):
        raw = save_over(job, truncate if turn % 2 else rename)
        save_over(job, rename, "always.pt")
        job.node.wait_remote()
        what = turn % 4
        if what == 0:
            assert shown(follower, job)
        elif what == 1:
            follower.pause()
        elif what == 2:
            collect(job)
            follower.go_on()
            assert shown(follower, job)
        elif what == 3:
            follower.kill9()
            rig.file_systems_unmount(follower.mnt)
            if turn % 8 == 7:
                follower.delete_view()
            follower.mount()
            assert shown(follower, job)
    assert sent(job.node)["dx"] > 12 * raw
    follower.umount_whole()
    follower.mount(remote=None, endpoint_url=None, region=None, lease=None, follow=None)  # without the remote: as it was last
    assert sorted(os.listdir(follower.mnt)) == sorted(os.listdir(job.node.mnt))
    follower.umount()
    job.node.umount_whole()
