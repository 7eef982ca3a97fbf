# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a store without a remote: MNT/.history, `cairn snapshot`, `history` and `restore`, -o keep, and what they cost."""
import contextlib
import errno
import json
import os
import re
import shutil
import struct
import subprocess

import pytest

import by_reference
import rig
import trained
from test_full import Filler

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]

QUICK = {"writeback_delay": "50ms", "history_every": "100ms"}


def top(mount, *below):
    return os.path.join(mount.mnt, ".history", *below)


def tree(path):
    """What is below it, whole."""
    found = [os.path.join(directory, name) for directory, _, names in os.walk(path) for name in names]
    return {os.path.relpath(name, path): rig.read_file(name) for name in found}


def create(mount, name, *flags):
    return mount.verb("snapshot", "create", *flags, mount.mnt, name)


def numbers(mount):
    """Of the snapshots on the disk."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(int(name) for name in os.listdir(os.path.join(mount.store, "snapshots")) if name.isdigit())
    return []


def pack_bytes(mount):
    with os.scandir(os.path.join(mount.store, "packs")) as packs:
        return sum(pack.stat().st_size for pack in packs)


def put(mount, name, seed, size=3_000_000):
    path = os.path.join(mount.mnt, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    rig.write_file(path, rig.seeded_bytes(seed, size))
    mount.wait()


def newest_has(mount, name, seed, size):
    """Read from the disk: a snapshot whose files the mount reads is not given up."""
    out = os.path.join(mount.root, "newest")
    done = mount.cairn("cp", "--at", "0s", f"{mount.store}:/{name}", out)
    return done.returncode == 0 and rig.read_file(out) == rig.seeded_bytes(seed, size)


def history(mount, *path):
    return json.loads(mount.verb("history", "--json", mount.mnt, *path).stdout)["states"]


@pytest.fixture
def writer(cairn):
    """A snapshot `before`, of a tree that is gone now."""
    cairn.options.update(QUICK)
    cairn.mount()
    put(cairn, "step1/model.pt", 1)
    put(cairn, "step1/deep/optimizer.pt", 2)
    put(cairn, "small", 3, 100)
    os.symlink("step1", os.path.join(cairn.mnt, "latest"))
    os.setxattr(os.path.join(cairn.mnt, "small"), "user.note", b"then")
    cairn.before = tree(cairn.mnt)
    create(cairn, "before")
    shutil.rmtree(os.path.join(cairn.mnt, "step1"))
    os.unlink(os.path.join(cairn.mnt, "latest"))
    cairn.wait()
    cairn.verb("gc", cairn.mnt)
    return cairn


def test_it_is_a_directory(writer):
    """By its name, its time and its number, with links and attributes; so it is after a kill, after a power loss, and with a new view."""

    def new_view():
        writer.umount()
        writer.mount_anew()

    for end in lambda: None, writer.crash, writer.power_cycle, new_view:
        end()
        (number,) = numbers(writer)
        assert ".history" not in os.listdir(writer.mnt) and "before" in os.listdir(top(writer))
        for name in "before", str(number), history(writer)[0]["time"]:
            assert tree(top(writer, name)) == writer.before, (end, name)
        assert os.readlink(top(writer, "before", "latest")) == "step1"
        assert os.getxattr(top(writer, "before", "small"), "user.note") == b"then"
        with pytest.raises(OSError, match="Read-only"):
            os.unlink(top(writer, "before", "small"))
    writer.umount_whole()


def test_what_comes_back_costs_no_bytes(writer):
    stored = pack_bytes(writer)
    rig.run("cp", "-r", top(writer, "before", "step1"), os.path.join(writer.mnt, "copied"))
    writer.verb("restore", "--at", "before", os.path.join(writer.mnt, "step1"))
    writer.wait()
    for name in "copied", "step1":
        assert tree(os.path.join(writer.mnt, name)) == tree(top(writer, "before", "step1"))
    assert pack_bytes(writer) == stored
    writer.remount()
    writer.verb("snapshot", "delete", writer.mnt, "before")
    writer.verb("gc", writer.mnt)
    rig.poll(lambda: writer.status()["nvme"]["snapshot_bytes"] == 0, 60, "the end of their cost", 0.5)
    assert numbers(writer) == [] and tree(os.path.join(writer.mnt, "copied")) == tree(os.path.join(writer.mnt, "step1"))


@pytest.mark.parametrize("ends", ["close", "term", "kill"])
def test_what_is_deleted_while_it_is_read(writer, ends):
    """No list has it from then on, and its name is free. Its bytes stay until the file is closed, and go then; so they do at the next mount."""

    def is_of_now():
        with contextlib.suppress(FileNotFoundError):  # the kernel keeps a name for a second
            return tree(top(writer, "before")) == {"small": writer.before["small"]}

    fd = os.open(top(writer, "before", "step1/model.pt"), os.O_RDONLY)
    writer.verb("snapshot", "delete", writer.mnt, "before")
    assert "no snapshot 'before'" in writer.cairn("snapshot", "delete", writer.mnt, "before").stderr
    assert history(writer) == [] and writer.status()["nvme"]["snapshots"] == 0
    for source in writer.mnt, writer.store:
        assert "before" not in writer.verb("snapshot", "list", source).stdout
    create(writer, "before")  # another one, of now
    put(writer, "more", 5)
    writer.verb("gc", writer.mnt)
    assert os.pread(fd, 4_000_000, 0) == writer.before["step1/model.pt"]
    rig.poll(is_of_now, 10, "the name's new snapshot")
    assert len(numbers(writer)) == 2 and pack_bytes(writer) > 8_000_000
    if ends == "term":
        writer.proc.terminate()
        assert writer.reap() == 0
    if ends == "kill":
        writer.kill9()
    os.close(fd)
    if ends != "close":
        writer.mount()
    rig.poll(lambda: len(numbers(writer)) == 1, 120, "its end")
    writer.verb("gc", writer.mnt)
    rig.poll(lambda: pack_bytes(writer) < 5_000_000, 60, "its bytes to go")
    assert sorted(os.listdir(os.path.join(writer.store, "snapshots"))) == sorted([*map(str, numbers(writer)), "last"])
    assert tree(top(writer, "before")) == {"small": writer.before["small"]}
    writer.umount_whole()


def test_what_each_alone_needs(cairn):
    """Bytes that two need are of neither; nor are those that the newest state needs."""
    cairn.mount(**QUICK)
    put(cairn, "stays", 1, 1_000_000)
    put(cairn, "of both", 2, 3_000_000)
    create(cairn, "one")
    put(cairn, "of two", 3, 2_000_000)
    create(cairn, "two")
    for name in "of both", "of two":
        os.unlink(os.path.join(cairn.mnt, name))
    cairn.wait()
    cairn.verb("gc", cairn.mnt)
    create(cairn, "three")
    alone = {name: state["only_bytes"] for state in history(cairn) for name in state["names"]}
    assert alone == {"one": 0, "two": pytest.approx(2_000_000, rel=0.1), "three": 0}


def test_commands(writer):
    (number,) = numbers(writer)
    for source in writer.mnt, writer.store:
        assert "before" in writer.verb("snapshot", "list", source).stdout
        assert str(number) in writer.verb("history", source).stdout
    (state,) = history(writer)
    assert (state["head"], state["files"]) == (number, 3) and state["only_bytes"] >= 6_000_000, state
    assert [path["files"] for path in history(writer, "/step1")] == [2]
    for at in "before", str(number), "0s":  # a mounted store, and one that is not, below
        assert writer.verb("ls", "--at", at, f"{writer.store}:/step1").stdout.split() == ["deep", "model.pt"]
    out = os.path.join(writer.root, "out")
    writer.verb("cp", "-r", "--at", "before", f"{writer.store}:/", out)
    assert tree(out) == writer.before
    assert writer.status()["nvme"]["snapshots"] == 1
    rig.poll(lambda: writer.status()["nvme"]["snapshot_bytes"] >= 6_000_000, 30, "the cost to be counted")
    assert "only earlier states need" in writer.verb("du", writer.mnt).stdout
    told = {writer.status()["nvme"]["snapshot_bytes"], json.loads(writer.verb("du", "--json", writer.mnt).stdout)[0]["history_bytes"],
            int(re.search(r"^cairnfs_nvme_snapshot_bytes.* (\d+)$", writer.verb("metrics", writer.mnt).stdout, re.M)[1])}
    assert len(told) == 1, told


def test_du_and_diff(writer):
    """Of a store that is mounted, and of one that is not."""
    put(writer, "small", 4, 200)
    put(writer, "new", 5)
    create(writer, "second")
    root = f"{writer.store}:/"
    for _ in range(2):
        (before,), (second,) = (json.loads(writer.verb("du", "--json", "--at", at, root).stdout) for at in ("before", "second"))
        assert (before["files"], before["logical_bytes"], before["unique_bytes"]) == (3, 6_000_100, 6_000_100)
        assert (second["files"], second["logical_bytes"]) == (2, 3_000_200)
        told = json.loads(writer.verb("diff", "--json", "--at", "before", "--to", "second", root).stdout)
        assert told["complete"] and {one["path"].strip("/"): one["what"] for one in told["files"]} == {
            "new": "made", "small": "changed", "latest": "removed", "step1/model.pt": "removed", "step1/deep/optimizer.pt": "removed"}
        if writer.proc:
            writer.umount()


def test_what_a_snapshot_holds_alone(writer):
    """Of a store that is not mounted it is told what its daemon tells."""
    put(writer, "step2/model.pt", 7)
    put(writer, "stays.pt", 8)  # the files of now have it, too
    create(writer, "second")
    os.unlink(os.path.join(writer.mnt, "step2/model.pt"))
    writer.wait()

    def only():
        return [state["only_bytes"] for state in json.loads(writer.verb("history", "--json", writer.store).stdout)["states"]]

    told = only()
    assert told[0] >= 3_000_000 and told[1] >= 6_000_000, told
    assert [state["only_bytes"] for state in history(writer)] == told
    writer.umount()
    assert only() == told


def test_a_long_list_is_compared_at_its_end(cairn):
    """Of the newest 50 states it is told what changed, so that it takes no longer with more of them; with the path `/` of all."""
    cairn.mount(**QUICK)
    for number in range(52):
        rig.write_file(os.path.join(cairn.mnt, f"file{number}"), b"x")
        create(cairn, f"s{number}")
    changed = [[state.get(key) for key in ("made", "changed", "removed")] for state in history(cairn)]
    assert changed == [[1, 0, 0]] * 49 + [[None] * 3] * 3
    done = cairn.verb("history", cairn.mnt)
    lines = done.stdout.splitlines()
    assert "2 of the states were not compared" in done.stderr
    assert "1 made, 0 changed, 0 removed, +1 B" in lines[49] and "+1 files, +1 B" in lines[50], lines
    assert [state["made"] for state in history(cairn, "/")] == [1] * 52


def test_the_directory_comes_with_the_first(cairn):
    """The kernel has not kept that there was none."""
    cairn.mount(**QUICK)
    with rig.fails(errno.ENOENT):
        os.stat(top(cairn))
    create(cairn, "mine")
    assert "mine" in os.listdir(top(cairn))
    cairn.remount(keep="last:1", **QUICK)
    with rig.fails(errno.EEXIST):
        os.mkdir(top(cairn))


def test_bad_input(writer):
    def refused(*words, because, code=1):
        done = writer.cairn(*words)
        assert done.returncode == code and because in done.stderr, done

    refused("snapshot", "create", writer.mnt, "before", because="a snapshot 'before' already")
    refused("snapshot", "rename", writer.mnt, "before", "before", because="already")
    refused("snapshot", "rename", writer.mnt, "unknown", "other", because="no snapshot 'unknown'")
    refused("snapshot", "delete", writer.mnt, "unknown", because="no snapshot 'unknown'")
    refused("snapshot", "create", writer.mnt, "2h", because="time", code=2)
    refused("ls", "--at", "unknown", f"{writer.store}:/", because="no such snapshot")
    refused("ls", "--at", "1971-01-01T00:00:00Z", f"{writer.store}:/",
            because=f"no snapshot is as old as 1971-01-01T00:00:00Z: the oldest is {numbers(writer)[0]} of {history(writer)[0]['time']}")
    refused("restore", "--at", "unknown", os.path.join(writer.mnt, "step1"), because="no such snapshot")
    with pytest.raises(FileNotFoundError):
        os.listdir(top(writer, "unknown"))
    writer.remount(ro=True)
    refused("snapshot", "create", writer.mnt, "other", because="only reads")
    writer.remount()
    writer.verb("snapshot", "rename", writer.mnt, "before", "after")
    assert "after" in os.listdir(top(writer)) and "before" not in os.listdir(top(writer))
    writer.crash()
    assert tree(top(writer, "after")) == writer.before


def test_the_policy_keeps_the_newest(cairn):
    """And their packs, no others. `none` ends it; those with a name stay."""
    size = 4_000_000
    cairn.mount(keep="last:3", **QUICK)
    for step in range(8):
        put(cairn, "latest.pt", step, size)
        rig.poll(lambda step=step: newest_has(cairn, "latest.pt", step, size), 60, f"a snapshot of step {step}", 0.2)
    assert len(numbers(cairn)) == 3
    create(cairn, "mine")
    cairn.verb("gc", cairn.mnt)
    rig.poll(lambda: pack_bytes(cairn) <= 3.1 * size, 60, "packs of older steps to go")
    kept = {rig.read_file(top(cairn, str(number), "latest.pt"))[:8] for number in numbers(cairn)}
    assert kept <= {rig.seeded_bytes(step, size)[:8] for step in range(5, 8)}
    cairn.remount(keep="none", **QUICK)
    put(cairn, "latest.pt", 99, size)
    rig.poll(lambda: len(numbers(cairn)) == 1, 60, "those without a name to go")
    assert tree(top(cairn, "mine"))["latest.pt"] == rig.seeded_bytes(7, size)


@pytest.mark.parametrize("space", [{"history_space": "40M"}, {"nvme": "400M"}], ids=["said", "a_tenth"])
def test_they_take_no_more_than_their_space(cairn, space):
    """What history_space says, or a tenth of nvme."""
    size = 8 * rig.MIB
    cairn.mount(keep="last:100", **space, **QUICK)
    for step in range(12):
        put(cairn, "latest.pt", step, size)
        rig.poll(lambda step=step: newest_has(cairn, "latest.pt", step, size), 60, f"a snapshot of step {step}", 0.2)
    rig.poll(lambda: pack_bytes(cairn) <= 40 * rig.MIB + 1.1 * size, 60, "the oldest to go")
    rig.poll(lambda: 0 < cairn.status()["nvme"]["snapshot_bytes"] <= 40 * rig.MIB, 60, "the cost")
    assert len(numbers(cairn)) >= 3
    assert "more than history_space" in cairn.log()


@pytest.mark.timeout(400)
def test_they_go_before_a_writer_gets_enospc(cairn, rng):
    """As much comes in as without them; the oldest goes first, those with names go last, and it is said."""
    cairn.mount(nvme="400M", keep="last:100", history_space="1G", **QUICK)
    old = Filler(cairn.mnt, rng)
    for _ in range(12):
        assert old.write_one()
    create(cairn, "mine")
    for path in list(old.kept):
        os.unlink(path)
    cairn.wait()
    rig.poll(lambda: cairn.status()["nvme"]["snapshot_bytes"] >= 80 * rig.MIB, 30, "their cost")
    new = Filler(cairn.mnt, rng)
    taken = new.fill(800 * rig.MIB)
    assert taken >= 250 * rig.MIB, taken
    assert numbers(cairn) == [] or cairn.status()["nvme"]["snapshot_bytes"] < 8 * rig.MIB
    given = [(name, int(number)) for name, number in re.findall(r"snapshot (mine )?\(?(\d+)\)? was given up: writers need", cairn.log())]
    last = next(place for place, (name, _) in enumerate(given) if name)
    assert last > 0 and all(number > given[last][1] for _, number in given[last + 1:]), given
    assert sorted(given[:last] + given[last + 1:]) == given[:last] + given[last + 1:], given  # the oldest first
    new.check()


def test_what_was_healed_stays_for_it(cairn):
    """A damaged chunk gets another place, by scrub; the snapshot needs that from then on, also when no file does."""
    cairn.mount(**QUICK)
    put(cairn, "a", 1)
    shutil.copyfile(os.path.join(cairn.mnt, "a"), os.path.join(cairn.root, "kept"))
    with rig.opened(os.path.join(cairn.mnt, "a"), os.O_RDONLY) as fd:
        create(cairn, "mine")
        (pack,) = os.listdir(os.path.join(cairn.store, "packs"))
        rig.flip(os.path.join(cairn.store, "packs", pack), 1_500_000)
        rig.write_file(os.path.join(cairn.mnt, "b"), rig.seeded_bytes(1, 3_000_000))  # the same: stored anew, where it is damaged
        cairn.wait()
        assert len(os.read(fd, 100)) == 100
    cairn.cairn("scrub", cairn.mnt)
    os.unlink(os.path.join(cairn.mnt, "a"))
    os.unlink(os.path.join(cairn.mnt, "b"))
    cairn.wait()
    cairn.verb("gc", cairn.mnt)
    cairn.remount()
    assert rig.read_file(top(cairn, "mine", "a")) == rig.seeded_bytes(1, 3_000_000)


@pytest.mark.timeout(400)
def test_none_goes_where_that_frees_nothing(cairn):
    """Packs of which too little is dead: the writer gets ENOSPC, and the snapshots stay. So they do while another that needs the same is read."""
    cairn.mount(nvme="400M", history_space="1G", writeback_delay="2s")
    for number in range(300):
        rig.write_file(os.path.join(cairn.mnt, f"f{number}"), rig.seeded_bytes(number, rig.MIB))
    cairn.wait()
    for name in "one", "two", "three":
        create(cairn, name)
    for number in range(0, 300, 20):
        os.unlink(os.path.join(cairn.mnt, f"f{number}"))
    cairn.wait()
    with contextlib.suppress(OSError):
        for number in range(100):
            rig.write_file(os.path.join(cairn.mnt, f"more{number}"), rig.seeded_bytes(1000 + number, rig.MIB))
    assert len(numbers(cairn)) == 3 and "given up" not in cairn.log()


@pytest.mark.timeout(400)
def test_with_a_remote_they_go_before_a_writer_gets_enospc(cairn, directory):
    """The remote has what they need, so eviction has to get at it."""
    cairn.mount(nvme="400M", keep="last:50", **QUICK)
    for number in range(12):
        put(cairn, f"f{number}", number, 24 * rig.MIB)
    assert numbers(cairn)
    place = os.path.join(directory, "remote")
    os.mkdir(place)
    cairn.remount(nvme="400M", remote=f"dir:{place}/p", writeback_delay="50ms")
    cairn.wait_remote()
    for number in range(12, 20):
        rig.write_file(os.path.join(cairn.mnt, f"f{number}"), rig.seeded_bytes(number, 24 * rig.MIB))
    assert "writers need the room" in cairn.log()
    for number in range(20):
        assert rig.read_file(os.path.join(cairn.mnt, f"f{number}")) == rig.seeded_bytes(number, 24 * rig.MIB)


def test_who_asks_for_a_name_learns_how_it_ended(cairn):
    """Another that asks at the same time is told that one is under way."""
    cairn.mount(**QUICK)
    put(cairn, "a", 1)
    command = [cairn.binary, "snapshot", "create", cairn.mnt]
    asked = [subprocess.Popen([*command, f"s{number}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for number in range(6)]
    said = [(one.communicate()[1], one.returncode) for one in asked]
    made = {name for name in os.listdir(top(cairn)) if name.startswith("s")}
    assert made == {f"s{number}" for number, (_, code) in enumerate(said) if code == 0}, said
    assert all("another snapshot gets its name now" in text for text, code in said if code), said


def test_half_made_ones_go(writer):
    (number,) = numbers(writer)
    writer.umount()
    place = os.path.join(writer.store, "snapshots")
    shutil.copytree(os.path.join(place, str(number)), os.path.join(place, f"{number + 1}.new"))
    os.rename(os.path.join(place, str(number)), os.path.join(place, f"{number}.gone"))
    writer.mount()
    assert os.listdir(place) == ["last"]
    writer.verb("gc", writer.mnt)
    rig.poll(lambda: pack_bytes(writer) < 1_000_000, 60, "its packs to go")


def test_an_older_version_refuses_the_store(cairn):
    """It would drop what they need: a feature of the superblock says so, from the first one on, and not before."""

    def has_feature():
        return bool(struct.unpack_from("<Q", rig.read_file(os.path.join(cairn.store, "superblock")), 16)[0] & 1 << 7)

    cairn.mount(**QUICK)
    put(cairn, "one", 1)
    cairn.remount(keep="none", **QUICK)
    put(cairn, "two", 2)
    assert not has_feature()
    create(cairn, "mine")
    assert has_feature()


def test_those_of_before_outlive_a_mount_with_a_remote(writer, directory):
    """It shows them beside those of the remote, takes none by itself, and its gc leaves their packs."""
    place = os.path.join(directory, "remote")
    os.mkdir(place)
    writer.remount(remote=f"dir:{place}/p", keep="last:2")
    writer.wait_remote()
    writer.verb("gc", writer.mnt)
    writer.verb("evict", writer.mnt)
    assert "before" in os.listdir(top(writer)) and len(numbers(writer)) == 1
    assert tree(top(writer, "before")) == writer.before
    assert writer.verb("ls", "--at", "before", f"{writer.store}:/step1").stdout.split() == ["deep", "model.pt"]
    writer.remount()
    assert tree(top(writer, "before")) == writer.before


def journal_begins(mount):
    return min(os.listdir(os.path.join(mount.store, "journal")))


def test_they_outlive_the_journal_that_told_of_them(writer):
    """Its beginning is replaced by a run of the view, which names no pack; then the view is made anew."""
    path, first = rig.write_file(os.path.join(writer.mnt, "noise"), b""), journal_begins(writer)
    for number in range(4000):
        os.setxattr(path, f"user.noise-{number % 8}", rig.seeded_bytes(number, 60_000))
        if number % 100 == 0 and journal_begins(writer) != first:
            break
    assert journal_begins(writer) != first
    writer.umount()
    writer.mount_anew()
    writer.verb("gc", writer.mnt)
    assert tree(top(writer, "before")) == writer.before


class Model:
    """A store whose snapshots are known whole."""

    def __init__(self, mount, rng):
        self.mount, self.rng, self.tree, self.known, self.made, self.named = mount, rng, {}, {}, 0, 0

    def place(self, name):
        return os.path.join(self.mount.mnt, name)

    def pick(self):
        return self.rng.choice(sorted(self.tree))

    def write(self):
        """Near to another one, often, so that chunks are shared, and with `dense` stored by others."""
        self.made += 1
        name = self.rng.choice([f"file{self.made}", *self.tree])
        data = trained.trained_bytes(self.rng.randrange(6), self.rng.randrange(1, 2_000_000))
        rig.write_file(self.place(name), data)
        self.tree[name] = data

    def remove(self):
        name = self.pick()
        os.unlink(self.place(name))
        del self.tree[name]

    def rename(self):
        name, new = self.pick(), self.pick()
        os.rename(self.place(name), self.place(new))
        self.tree[new] = self.tree.pop(name)

    def truncate(self):
        name = self.pick()
        size = self.rng.randrange(len(self.tree[name]) + 1)
        os.truncate(self.place(name), size)
        self.tree[name] = self.tree[name][:size]

    def patch(self):
        name = self.pick()
        at, data = self.rng.randrange(len(self.tree[name]) + 1), self.rng.randbytes(5000)
        rig.patch(self.place(name), at, data)
        self.tree[name] = self.tree[name][:at] + data + self.tree[name][at + len(data):]

    def bring_back(self):
        if self.known:
            snapshot = self.rng.choice(sorted(self.known))
            for name, data in self.known[snapshot].items():
                if self.rng.random() < 0.3:
                    self.bring_one(snapshot, name)
                    self.tree[name] = data

    def bring_one(self, snapshot, name):
        """By reference, in one of two ways."""
        if self.rng.random() < 0.5:
            by_reference.copy(top(self.mount, snapshot, name), self.place(name))
        else:
            self.mount.verb("restore", "--replace", "--at", snapshot, self.place(name))

    def snapshot(self):
        self.named += 1
        name = f"state{self.named}"
        create(self.mount, name)
        self.known[name] = dict(self.tree)

    def forget(self):
        if len(self.known) > 4:
            name = self.rng.choice(sorted(self.known))
            if self.mount.cairn("snapshot", "delete", self.mount.mnt, name).returncode == 0:
                del self.known[name]

    def gc(self):
        self.mount.verb("gc", self.mount.mnt)

    def evict_memory(self):
        self.mount.wait()
        self.mount.remount()

    def kill(self):
        self.mount.crash()

    def new_view(self):
        self.mount.umount()
        self.mount.mount_anew()

    def step(self):
        kinds = [self.write] * 6 + [self.snapshot] * 3 + [self.gc] * 2 + [self.forget, self.evict_memory, self.kill]
        kinds += [self.remove, self.rename, self.truncate, self.patch, self.bring_back, self.new_view] if self.tree else []
        self.rng.choice(kinds)()

    def check(self):
        assert tree(self.mount.mnt) == self.tree
        for name, known in self.known.items():
            assert tree(top(self.mount, name)) == known, name


@pytest.mark.timeout(600)
@pytest.mark.parametrize("reduce", ["fast", "dense"])
@pytest.mark.pieces(4)
def test_campaign(cairn, rng, full, piece, reduce):
    """Each snapshot is what was there, whatever happens to the files and to the store."""
    cairn.options.update(reduce=reduce, reduce_after="0s", keep="last:2", **QUICK)
    cairn.mount()
    model = Model(cairn, rng)
    for number in range(piece.share(1000 if full else 60)):
        model.step()
        if number % 20 == 19:
            model.check()
    model.check()
    for name in model.known:
        cairn.remount()
        cairn.verb("snapshot", "delete", cairn.mnt, name)
    cairn.verb("gc", cairn.mnt)
    assert tree(cairn.mnt) == model.tree
    cairn.umount_whole()
