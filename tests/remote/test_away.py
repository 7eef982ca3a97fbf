# SPDX-License-Identifier: Apache-2.0
"""P8, P9: an object that the remote does not give for a while is not lost. Nothing of it is given up or deleted, the mount says what is
true meanwhile, and when it is back, all is as before: on the mount that missed it, on followers, and on fresh nodes."""
import contextlib
import errno
import os
import re
import shutil
import time

import pytest

import remote as remotes
import rig
from dense_job import Job, Training

pytestmark = pytest.mark.needs_mount

SMALL = {"stage": "64M", "writeback_delay": "100ms", "gc_grace": "1s"}


@pytest.fixture
def node(on_remote, remote):
    return on_remote(remote, **SMALL).mount()


def packs(remote):
    return sorted(name for name in remote.names("packs/") if not os.path.basename(name).startswith("."))


def evict_all(node):
    """What is left in memory goes with a remount; then the remote alone has the bytes. If packs were being written anew, the head that says
    so comes first."""
    node.remount()
    rig.poll(lambda: node.cairn("evict", node.mnt).returncode == 0, 30, "the remote to have all of it", 0.2)


def save_there(node, name, size, rng):
    """A file whose bytes lie in the remote alone, and the packs that it brought."""
    before = set(packs(node.remote))
    data = rng.randbytes(size)
    node.write(name, data, "remote")
    new = [pack for pack in packs(node.remote) if pack not in before]
    evict_all(node)
    return data, new


def outcome(directory, name, data):
    """True: it reads as it was written; False: EIO. Nothing else is right."""
    try:
        got = rig.read_file(os.path.join(directory, name))
    except OSError as error:
        assert error.errno == errno.EIO, error
        return False
    assert got == data, f"{name}: wrong bytes"
    return True


class Away:
    """Objects that are taken from a remote, and what they were."""

    def __init__(self, remote, rng):
        self.remote, self.rng, self.taken = remote, rng, {}

    def take(self, name, how="missing"):
        data = self.remote.get(name)
        self.taken[name] = data
        if how == "missing":
            self.remote.delete(name)
        elif how == "truncated":
            self.remote.put(name, data[: len(data) // 2])
        else:
            damaged = bytearray(data)
            for at in range(5000, len(damaged), 50000):
                damaged[at] ^= 0x40
            self.remote.put(name, bytes(damaged))

    def give_back(self, name):
        self.remote.put(name, self.taken.pop(name))


def publish_more(node, name):
    """Another head, and a gc, when the grace is over."""
    time.sleep(1.2)
    rig.write_file(os.path.join(node.mnt, name), name.encode() * 5000)
    node.wait_remote(os.path.join(node.mnt, name))
    node.verb("gc", node.mnt)


def expect_told(node, name, pack):
    """Status, wait, the level and a scrub say it of this file, and of no other."""
    path = os.path.join(node.mnt, name)
    status = node.remote_status()
    assert status["suspect_packs"] == 1 and status["suspect_chunks"] > 0 and status["damaged_chunks"] == 0, status
    text = node.cairn("status", node.mnt).stdout
    assert "missing or damaged" in text and "before they could be uploaded" not in text, text
    for asked in (path, node.mnt):
        code, said = node.wait_of(asked)
        assert code == 1 and name in said, (code, said)
    assert node.wait_of(os.path.join(node.mnt, "other")) == (0, "")
    with pytest.raises(OSError):
        os.getxattr(path, "user.cairn.level")
    done = node.cairn("scrub", node.mnt)
    assert done.returncode == 1 and f"/{name}: bytes from" in done.stdout and "1 file lacks bytes" in done.stdout, done
    assert os.path.basename(pack) in done.stdout and "/other" not in done.stdout, done.stdout


def expect_whole(node, name, data):
    """Soon the mount asks by itself, and nothing is left of it."""
    rig.poll(lambda: node.remote_status()["suspect_packs"] == 0, 60, "the pack to be trusted again", 0.2)
    assert outcome(node.mnt, name, data)
    assert node.wait_of(node.mnt) == (0, "")
    assert os.getxattr(os.path.join(node.mnt, name), "user.cairn.level") == b"remote"
    assert node.status()["damage"] == []
    assert "clean" in node.verb("scrub", node.mnt).stdout


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["missing", "flipped", "truncated"])
def test_a_pack_that_comes_back(node, rng, how):
    node.write("other", b"other" * 5000, "remote")
    data, (pack,) = save_there(node, "file", 3 * rig.MIB, rng)
    follower = node.fresh(follow="1s")
    follower.mount(ro=True)
    away = Away(node.remote, rng)
    away.take(pack, how)
    assert not outcome(node.mnt, "file", data)
    assert not outcome(follower.mnt, "file", data)
    rig.poll(lambda: node.remote_status()["suspect_packs"], 20, "the pack to be suspect", 0.1)
    for number in range(3):
        publish_more(node, f"more{number}")
    expect_told(node, "file", pack)
    node.remount()
    assert not outcome(node.mnt, "file", data)
    publish_more(node, "again")
    away.give_back(pack)
    assert outcome(node.mnt, "file", data), "it is there: no mount has to be made for it"
    assert outcome(follower.mnt, "file", data)
    assert follower.status()["damage"] == []
    expect_whole(node, "file", data)
    follower.umount()
    evict_all(node)
    assert outcome(node.mnt, "file", data)
    node.umount_whole()
    with node.elsewhere() as fresh:
        assert outcome(fresh.mnt, "file", data)
        publish_more(fresh, "by another")
        assert outcome(fresh.mnt, "file", data)


@pytest.mark.timeout(240)
def test_a_pack_that_is_away_from_one_writer_to_the_next(node, rng):
    """The writer that takes over never saw it, and deletes nothing of it."""
    data, (pack,) = save_there(node, "file", 3 * rig.MIB, rng)
    away = Away(node.remote, rng)
    away.take(pack)
    assert not outcome(node.mnt, "file", data)
    publish_more(node, "more")
    node.umount()
    with node.elsewhere() as fresh:
        for number in range(3):
            publish_more(fresh, f"next{number}")
        assert not outcome(fresh.mnt, "file", data)
        away.give_back(pack)
        assert outcome(fresh.mnt, "file", data)
        for number in range(2):
            publish_more(fresh, f"last{number}")
        expect_whole(fresh, "file", data)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["missing", "truncated"])
@pytest.mark.parametrize("where", ["without its view", "on a fresh node", "after it followed", "after a kill"])
def test_no_wait_ends_before_a_new_view_was_compared(node, rng, how, where):
    """A view that is made anew knows nothing of what was suspect, and gc's next listing is minutes away. The mount that made the view may
    be only a reader, or killed before it could list the packs."""
    if where == "after a kill" and not isinstance(node.remote, remotes.DirRemote):
        pytest.skip("skipped: the test makes the listing fail by a file named packs, and S3 has no directories")
    node.umount()
    node.options["gc_grace"] = "1h"
    node.mount()
    node.write("other", b"other" * 5000, "remote")
    data, (pack,) = save_there(node, "file", 3 * rig.MIB, rng)
    away = Away(node.remote, rng)
    away.take(pack, how)
    assert not outcome(node.mnt, "file", data)
    rig.poll(lambda: node.remote_status()["suspect_packs"], 20, "the pack to be suspect", 0.1)
    node.umount()
    again = node.fresh() if where in ("on a fresh node", "after it followed") else node
    if again is node:
        shutil.rmtree(node.store + "/view")
    if where == "after it followed":
        again.mount(ro=True)
        again.umount()
    if where == "after a kill":
        there = os.path.join(node.remote.path, "packs")
        os.rename(there, there + ".aside")
        rig.write_file(there, b"no directory, so no listing")
        again.mount()
        again.kill9()
        os.unlink(there)
        os.rename(there + ".aside", there)
    again.mount()
    code, said = again.wait_of(os.path.join(again.mnt, "file"))
    assert code == 1 and "file" in said, (code, said)
    assert again.wait_of(os.path.join(again.mnt, "other")) == (0, "")
    rig.poll(lambda: not os.path.exists(again.store + "/unlisted"), 20, "the view to have what was found", 0.1)
    away.give_back(pack)
    expect_whole(again, "file", data)
    again.umount()


@pytest.mark.timeout(240)
def test_equal_content_is_stored_anew(node, rng):
    """It is not taken for stored, and heals the file whose pack never comes back."""
    data, (pack,) = save_there(node, "file", 3 * rig.MIB, rng)
    Away(node.remote, rng).take(pack)
    assert not outcome(node.mnt, "file", data)
    rig.poll(lambda: node.remote_status()["suspect_packs"], 20, "the pack to be suspect", 0.1)
    rig.write_file(os.path.join(node.mnt, "twin"), data)
    assert node.wait_of(node.mnt) == (0, "")
    assert node.remote_status()["suspect_chunks"] == 0
    evict_all(node)
    assert outcome(node.mnt, "file", data) and outcome(node.mnt, "twin", data)
    publish_more(node, "more")
    node.umount()
    with node.elsewhere() as fresh:
        assert outcome(fresh.mnt, "file", data) and outcome(fresh.mnt, "twin", data)


@pytest.mark.timeout(240)
def test_what_nvme_has_is_uploaded_again_before_a_wait_ends(node, rng):
    """A listing or a reader elsewhere finds that a pack is gone. While NVMe has its chunks, nothing is lost, and no wait lies."""
    node.write("file", data := rng.randbytes(3 * rig.MIB), "remote")
    (pack,) = packs(node.remote)
    Away(node.remote, rng).take(pack)
    assert node.cairn("gc", node.mnt).returncode == 0  # it lists
    assert node.wait_of(os.path.join(node.mnt, "file")) == (0, "")
    assert pack not in packs(node.remote) and packs(node.remote)
    evict_all(node)
    assert outcome(node.mnt, "file", data)
    assert node.remote_status()["suspect_packs"] == 0


class Campaign:
    """A training job with differences, on a remote that loses objects at random and regains them."""

    def __init__(self, node, rng):
        self.node, self.rng, self.away = node, rng, Away(node.remote, rng)
        self.job = Job(node)
        self.job.training = Training(elements=rig.MIB // 8, tensors=2)
        self.plain = 0

    def take(self):
        """Often what they hold is nowhere else."""
        if self.rng.random() < 0.6:
            self.node.wait(level="nvme")
            self.node.remount()
            self.evict()
        there = [name for name in packs(self.node.remote) if name not in self.away.taken]
        for name in self.rng.sample(there, min(len(there), self.rng.randrange(1, 4))):
            with contextlib.suppress(FileNotFoundError, KeyError):  # gc was there first
                self.away.take(name, self.rng.choice(["missing", "missing", "flipped", "truncated"]))

    def give_back(self):
        for name in self.rng.sample(sorted(self.away.taken), self.rng.randrange(len(self.away.taken) + 1)):
            self.away.give_back(name)

    def save(self):
        self.job.save()
        self.plain += 1
        self.job.write(f"plain{self.plain}", self.rng.randbytes(self.rng.choice([3000, 70000, rig.MIB])))

    def save_again(self):
        """Content that is stored already, if it still can be read."""
        name = self.rng.choice(sorted(self.job.content))
        self.job.write(f"{name}.again", self.job.content[name])

    def remove(self):
        if len(self.job.content) > 6:
            name = self.rng.choice(sorted(self.job.content))
            os.unlink(os.path.join(self.node.mnt, name))
            del self.job.content[name]

    def evict(self):
        assert self.node.cairn("evict", self.node.mnt).returncode in (0, 1)  # 1: the remote lacks some

    def publish(self):
        self.node.wait(level="nvme")

    def scrub(self):
        assert self.node.cairn("scrub", self.node.mnt).returncode in (0, 1)

    def collect(self):
        time.sleep(1.1)
        assert self.node.cairn("gc", self.node.mnt).returncode == 0

    def remount(self):
        if self.rng.random() < 0.3:
            self.node.crash()
        else:
            self.node.remount()

    def read_some(self):
        for name in self.rng.sample(sorted(self.job.content), min(4, len(self.job.content))):
            outcome(self.node.mnt, name, self.job.content[name])

    def look_elsewhere(self):
        with self.node.elsewhere(ro=True) as fresh:
            for name, data in self.job.content.items():
                if os.path.exists(os.path.join(fresh.mnt, name)):
                    outcome(fresh.mnt, name, data)
        fresh.close()

    def step(self):
        moves = [self.save, self.save, self.save_again, self.remove, self.evict, self.evict, self.publish, self.scrub, self.collect,
                 self.collect, self.remount, self.read_some, self.read_some, self.look_elsewhere, self.take, self.take, self.give_back]
        self.rng.choice(moves)()

    def end(self):
        for name in sorted(self.away.taken):
            self.away.give_back(name)
        for name, data in self.job.content.items():
            assert outcome(self.node.mnt, name, data), f"{name} is not back"
        rig.poll(lambda: self.node.remote_status().get("suspect_packs", 0) == 0, 60, "all packs to be trusted again", 0.2)
        assert self.node.wait_of(self.node.mnt) == (0, "")
        self.collect()
        evict_all(self.node)
        for name, data in self.job.content.items():
            assert outcome(self.node.mnt, name, data), name
        self.node.umount_whole()
        with self.node.elsewhere() as fresh:
            for name, data in self.job.content.items():
                assert outcome(fresh.mnt, name, data), f"{name} on a fresh node"


@pytest.mark.timeout(400)
@pytest.mark.pieces(10)
def test_objects_that_come_and_go(on_remote, rng, full, piece):
    """The campaign: everything is back when the objects are, and no byte is ever wrong."""
    pytest.importorskip("torch")
    node = on_remote(reduce="dense", **SMALL).mount()
    campaign = Campaign(node, rng)
    for _ in range(2):
        campaign.save()
    node.wait_remote()
    for _ in range(120 if full else 30):
        campaign.step()
    campaign.end()


def test_requests_are_counted_by_kind(node, rng):
    """What a provider charges for: puts, gets, lists, heads and deletions, and all bytes that were read."""
    save_there(node, "file", 3 * rig.MIB, rng)
    before = node.remote_status()
    assert outcome(node.mnt, "file", rig.read_file(os.path.join(node.mnt, "file")))
    publish_more(node, "more")
    os.unlink(os.path.join(node.mnt, "file"))
    for number in range(3):
        publish_more(node, f"more{number}")
    status = node.remote_status()
    grown = {kind: status[f"{kind}_requests_total"] - before[f"{kind}_requests_total"] for kind in ("put", "get", "list", "delete")}
    assert grown["put"] >= 12 and grown["list"] >= 4 and grown["delete"] > 0 and grown["get"] > 0, grown
    assert sum(status[f"{kind}_requests_total"] for kind in ("put", "get", "list", "head", "delete")) <= status["requests_total"]
    assert status["received_bytes_total"] - before["received_bytes_total"] >= 3 * rig.MIB
    assert re.search(r"^    put requests +\d\d", node.cairn("status", "-v", node.mnt).stdout, re.MULTILINE)
