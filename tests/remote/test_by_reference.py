# SPDX-License-Identifier: Apache-2.0
"""What an earlier state has comes back by reference: `cairn restore`, and copy_file_range() from MNT/.history. No byte comes to NVMe, and
none is uploaded again, whether or not NVMe still has it. The remote's packs wait for gc, which never takes what a file refers to."""
import os
import random
import shutil
import threading
import time

import pytest

import rig
import trained
from by_reference import refer
from test_keep import SMALL

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]

PLAIN = {"stage": "128M", "writeback_delay": "50ms", "lease": "2s"}
SIZE = 12 << 20
VIEWS_MAX = 4  # commit/past_views.h


def top(mount, *below):
    return os.path.join(mount.mnt, ".history", *below)


def at(mount, *below):
    return os.path.join(mount.mnt, *below)


def packs(remote):
    return {name: size for name, size in remote.names("packs/").items() if not os.path.basename(name).startswith(".")}


def copy(mount, name, new, state="whole"):
    with rig.opened(top(mount, state, name), os.O_RDONLY) as source, rig.opened(at(mount, new), rig.WRITE_NEW) as target:
        refer(source, target)
        os.fsync(target)


def drop_nvme(node):
    """As on another node: only the remote has anything."""
    node.wait_remote()
    node.umount()
    node.drop_stage()
    shutil.rmtree(node.store)
    os.mkdir(node.store)
    node.mount(takeover=True)


def publish(node, seed):
    """One more head, of something else."""
    rig.write_file(at(node, "other"), rig.noise(1000 + seed, 4096))
    node.wait_remote()


def collect(node, seconds):
    """Passes of gc with heads between, for longer than the grace."""
    until = time.monotonic() + seconds
    for seed in range(1 << 20):
        publish(node, seed)
        node.verb("gc", node.mnt)
        if time.monotonic() > until:
            return
        time.sleep(0.2)


def cost(node):
    node.wait_remote()
    status = node.status()
    return {"written to the mount": status["mount"]["written_bytes_total"], "written to NVMe": status["nvme"]["written_bytes_total"],
            "read from the remote": status["remote"]["received_bytes_total"], "packs": packs(node.remote)}


def grown(before, after):
    return {what: after[what] - before[what] for what in before if what != "packs"}


def make(node, is_apart):
    """A checkpoint of two files in a snapshot `whole`, that was deleted; no head needs its packs any more. is_apart: no pack has parts of both."""
    node.content = {"model": rig.noise(7, SIZE), "deep/optimizer": rig.noise(8, SIZE // 2 + 777)}
    os.makedirs(at(node, "step", "deep"))
    for name, data in node.content.items():
        rig.write_file(at(node, "step", name), data)
        if is_apart:
            node.wait_remote()
    os.symlink("model", at(node, "step", "latest"))
    node.verb("snapshot", "create", node.mnt, "whole")
    shutil.rmtree(at(node, "step"))
    publish(node, 0)
    return node


@pytest.fixture
def made(on_remote, remote):
    return make(on_remote(remote, **PLAIN, gc_grace="1h").mount(), False)


@pytest.fixture
def apart(on_remote, remote):
    return make(on_remote(remote, **PLAIN, gc_grace="1h").mount(), True)


def check(mount, content):
    for name, data in content.items():
        assert rig.read_file(at(mount, "step", name)) == data, name


@pytest.mark.parametrize("place", ["nvme", "remote"])
def test_a_restore_costs_no_bytes(made, place):
    """Of chunks that NVMe has, and of chunks that only the remote has."""
    if place == "remote":
        drop_nvme(made)
    os.listdir(top(made, "whole"))  # its names are fetched
    before = cost(made)
    assert "3 of 3 files restored" in made.verb("restore", *made.remote.flags(), at(made, "step"), "--at", "whole").stdout
    after = cost(made)
    spent = grown(before, after)
    assert spent["written to the mount"] == 0 and max(spent.values()) < 1 << 20, spent
    assert sorted(after["packs"]) == sorted(before["packs"])
    check(made, made.content)
    assert os.readlink(at(made, "step", "latest")) == "model"
    with made.elsewhere(ro=True) as reader:
        check(reader, made.content)


@pytest.mark.parametrize("how", ["lost", "truncated"])
def test_a_file_whose_pack_is_lost_is_not_restored(apart, how):
    """It is named, and has no name on the mount; files of which all packs are there come back. What NVMe still has comes back, too."""
    for name in packs(apart.remote):
        data = apart.remote.get(name)
        if apart.content["deep/optimizer"][-4096:] in data or len(data) < SIZE // 4:
            continue  # `other`, or the end of the file that is to be whole
        apart.remote.delete(name)
        if how == "truncated":
            apart.remote.put(name, data[:len(data) // 2])
    restore = ["restore", *apart.remote.flags(), at(apart, "step"), "--at", "whole"]
    done = apart.cairn(*restore, "--to", at(apart, "copy"))
    if done.returncode == 0:  # else NVMe has deleted its packs by now, as nothing refers to them
        assert "3 of 3 files restored" in done.stdout
        assert rig.read_file(at(apart, "copy", "model")) == apart.content["model"]
    shutil.rmtree(at(apart, "copy"))
    drop_nvme(apart)
    done = apart.verb(*restore, code=1)
    assert at(apart, "step", "model") in done.stderr and "restored" in done.stdout, done
    assert not [name for name in os.listdir(at(apart, "step")) if name.lstrip(".").startswith("model")]


def test_a_restore_in_parts_costs_no_bytes(made):
    """A head that is published in the middle finds one file of two in their pack: the pack is not emptied, as it is mostly dead."""
    drop_nvme(made)
    os.listdir(top(made, "whole"))
    before = cost(made)
    for seed, name in enumerate(("deep/optimizer", "model")):
        made.verb("restore", *made.remote.flags(), at(made, "step", name), "--at", "whole")
        publish(made, 20 + seed)
    after = cost(made)
    assert grown(before, after)["read from the remote"] < 1 << 20
    assert set(before["packs"]) <= set(after["packs"]) and sum(after["packs"].values()) - sum(before["packs"].values()) < 1 << 20
    check(made, made.content)


def test_a_live_file_that_was_evicted_is_copied_by_reference(on_remote, remote):
    node = on_remote(remote, **PLAIN, gc_grace="1h").mount()
    data = rig.noise(5, SIZE)
    rig.write_file(at(node, "a"), data)
    node.wait_remote()
    drop_nvme(node)
    before = cost(node)
    with rig.opened(at(node, "a"), os.O_RDONLY) as source, rig.opened(at(node, "b"), rig.WRITE_NEW) as target:
        refer(source, target)
    spent = grown(before, cost(node))
    assert max(spent["written to the mount"], spent["read from the remote"]) < 1 << 20, spent
    os.unlink(at(node, "a"))
    publish(node, 1)
    assert rig.read_file(at(node, "b")) == data


@pytest.mark.parametrize("place", ["nvme", "remote"])
def test_what_is_stored_by_others_comes_back_with_them(on_remote, remote, place):
    """The chunks of a name that was written over rest on those of versions that no file has. gc takes nothing of it: a fresh node reads all."""
    node = on_remote(remote, **SMALL).mount(keep="last:30")
    data = []
    for seed in range(3):
        data.append(trained.trained_bytes(seed, SIZE, True))
        rig.write_file(at(node, "latest.pt"), data[-1])
        node.wait_remote()
    assert sum(packs(remote).values()) < 0.4 * sum(len(one) for one in data)
    node.verb("snapshot", "create", node.mnt, "whole")
    os.unlink(at(node, "latest.pt"))
    publish(node, 0)
    if place == "remote":
        drop_nvme(node)
    os.listdir(top(node, "whole"))
    before = cost(node)
    node.verb("restore", *remote.flags(), at(node, "latest.pt"), "--at", "whole")
    after = cost(node)
    spent = grown(before, after)
    assert max(spent[what] for what in ("written to the mount", "written to NVMe", "read from the remote")) < 1 << 20, spent
    assert sorted(after["packs"]) == sorted(before["packs"])
    node.umount()
    node.mount(keep="none")
    node.verb("snapshot", "delete", node.mnt, "whole")
    collect(node, 3)
    drop_nvme(node)
    assert rig.read_file(at(node, "latest.pt")) == data[-1]


def keep_open(node, state, begun):
    """In a process of its own, as each program that a test starts closes the descriptors that it inherits, which ends a draft."""
    source, target = os.open(top(node, state, "model"), os.O_RDONLY), os.open(at(node, "back"), rig.WRITE_NEW)
    refer(source, target)
    os.close(source)
    os.write(begun, b"x")
    for turn in range(1 << 20):
        os.pwrite(target, b"x", SIZE + turn)  # it is not idle
        time.sleep(0.2)


def publish_beside(node, heads):
    """Nobody waits for them: that would end drafts."""
    first = node.remote_status()["head"]
    for turn in range(heads):
        rig.write_file(at(node, "other"), rig.noise(turn, 4096))
        rig.poll(lambda: node.remote_status()["head"] > first + turn, 20, "a head", 0.05)


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_a_reference_that_is_staged_holds_the_pack(on_remote, remote, ends):
    """A copy is open while heads are published that do not need its packs, the snapshot goes, and gc takes all that nobody needs. Also if
    the daemon is killed at the end. NVMe has no byte of it."""
    node = on_remote(remote, **PLAIN, gc_grace="1s").mount()
    for number in range(VIEWS_MAX):
        publish(node, number)
        node.verb("snapshot", "create", node.mnt, f"early{number}")
    data = rig.noise(9, SIZE)
    rig.write_file(at(node, "model"), data)
    node.verb("snapshot", "create", node.mnt, "whole")
    os.unlink(at(node, "model"))
    publish(node, 0)
    drop_nvme(node)
    begun, begins = os.pipe()
    with rig.child(keep_open, node, "whole", begins):
        assert os.read(begun, 1) == b"x"
        for number in range(VIEWS_MAX):  # so that the state with the file closes
            os.listdir(top(node, f"early{number}"))
        node.verb("snapshot", "delete", node.mnt, "whole")
        publish_beside(node, 6)
        if ends == "killed":
            node.kill9()
    if ends == "killed":
        node.mount()
    collect(node, 3)
    assert rig.read_file(at(node, "back"))[:SIZE] == data
    with node.elsewhere(ro=True) as reader:
        assert rig.read_file(at(reader, "back"))[:SIZE] == data


def copy_and_die(node):
    """The file is on NVMe by its journal alone: the daemon dies before a head has it."""
    for turn in range(10):
        publish(node, turn)
        os.listdir(top(node, "whole"))
        newest = max(node.remote.heads())
        copy(node, "step/model", "back")
        node.kill9()
        if max(node.remote.heads()) == newest:
            return
        node.mount()
        os.unlink(at(node, "back"))
    pytest.fail("a head had the file each time")


def test_a_new_view_finds_what_a_file_refers_to(made):
    """Its chunks are in a pack that no head needs, and then the view is lost."""
    drop_nvme(made)
    copy_and_die(made)
    made.drop_stage()
    made.delete_view()
    made.mount()

    def is_back():
        try:
            return rig.read_file(at(made, "back")) == made.content["model"]
        except OSError:
            return False

    rig.poll(is_back, 20, "the pack that has it")
    made.wait_remote()
    with made.elsewhere(ro=True) as reader:
        assert rig.read_file(at(reader, "back")) == made.content["model"]


def test_gc_takes_what_is_being_restored(on_remote, remote):
    """Copies begin, end and are killed while gc deletes the snapshot and its packs. Each file that was there after its fsync is whole on a
    fresh node; the others were refused."""
    rng, node = random.Random(11), on_remote(remote, **PLAIN, gc_grace="0s").mount()
    whole, refused = {}, 0
    for turn in range(8):
        data = rig.noise(100 + turn, 3 << 20)
        rig.write_file(at(node, "model"), data)
        node.verb("snapshot", "create", node.mnt, f"s{turn}")
        os.unlink(at(node, "model"))
        publish(node, turn)
        if turn % 2:
            drop_nvme(node)

        def take(state=f"s{turn}", pause=rng.uniform(0, 0.2)):
            time.sleep(pause)
            node.cairn("snapshot", "delete", node.mnt, state)
            for _ in range(3):
                node.cairn("gc", node.mnt)

        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(rng.uniform(0, 0.3))
        try:
            copy(node, "model", f"back{turn}", f"s{turn}")
            whole[f"back{turn}"] = data
        except OSError:
            refused += 1
        if turn % 3 == 2:
            node.kill9()
        thread.join()
        if turn % 3 == 2:
            node.mount()
    collect(node, 2)
    drop_nvme(node)
    for name, data in whole.items():
        assert rig.read_file(at(node, name)) == data, name
    assert whole, refused
