# SPDX-License-Identifier: Apache-2.0
"""P5 for mounts that only look: a read-only mount follows another writer's heads, one whole state after the other."""
import contextlib
import errno
import os
import random
import struct
import time
import zlib

import pytest

import history
import judge
import remote as remotes
import rig
from dense_job import Job, save_some

pytestmark = pytest.mark.needs_mount

SMALL = {"stage": "64M", "writeback_delay": "100ms"}
FOLLOW = {"ro": True, "follow": "1s", "stage": "64M"}


def newest(remote):
    return max(remote.heads(), default=0)


def shows(follower):
    return follower.remote_status()["head"]


def catch_up(writer, follower, timeout=60):
    """Everything that was written is published and shown."""
    writer.wait_remote()
    head = newest(writer.remote)
    rig.poll(lambda: shows(follower) >= head, timeout, f"the follower to show head {head}", 0.05)
    time.sleep(1.1)  # the kernel may keep names and attributes for 1 s, and says nothing when they end


def same_trees(one, other):
    assert sorted(walk(one)) == sorted(walk(other))
    for name in walk(one):
        a, b = os.path.join(one, name), os.path.join(other, name)
        sa, sb = os.lstat(a), os.lstat(b)
        assert (sa.st_mode, sa.st_size, sa.st_mtime_ns, sa.st_ino) == (sb.st_mode, sb.st_size, sb.st_mtime_ns, sb.st_ino), name
        assert sa.st_blocks == sb.st_blocks, name
        if os.path.islink(a):
            assert os.readlink(a) == os.readlink(b), name
        elif os.path.isfile(a):
            assert rig.read_file(a) == rig.read_file(b), name


def walk(root):
    for top, directories, names in os.walk(root):
        for name in directories + names:
            yield os.path.relpath(os.path.join(top, name), root)


class Changes:
    """Random changes of a tree."""

    def __init__(self, root, rng):
        self.root, self.rng = root, rng

    def path(self):
        return os.path.join(self.root, f"d{self.rng.randrange(3)}", f"f{self.rng.randrange(12)}")

    def one(self):
        kinds = [self.write, self.write, self.write, self.append, self.allocate, self.remove, self.rename, self.link, self.attrs]
        path = self.path()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            self.rng.choice(kinds)(path)

    def write(self, path):
        rig.write_file(path, self.rng.randbytes(self.rng.choice([10, 5000, 200_000, 3 << 20])))

    def append(self, path):
        rig.patch(path, self.rng.randrange(100_000), self.rng.randbytes(1000))

    def allocate(self, path):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), self.rng.randrange(100_000), self.rng.choice([10, 5000, 200_000, 3 << 20]))

    def remove(self, path):
        os.unlink(path)

    def rename(self, path):
        other = self.path()
        os.makedirs(os.path.dirname(other), exist_ok=True)
        os.rename(path, other)

    def link(self, path):
        os.symlink("somewhere", path) if self.rng.randrange(2) else os.link(path, self.path())

    def attrs(self, path):
        os.chmod(path, self.rng.randrange(0o1000), follow_symlinks=True)
        os.setxattr(path, "user.note", self.rng.randbytes(20))


@pytest.mark.timeout(300)
def test_follows_whatever_changes(on_remote, remote, rng, full):
    """The follower, asked when it has the newest head, shows what the writer has; so does its store when it is mounted again."""
    writer = on_remote(remote, **SMALL).mount()
    changes = Changes(writer.mnt, rng)
    writer.write("first", b"1", "remote")
    follower = writer.fresh(**FOLLOW).mount()
    for turn in range(20 if full else 3):
        for _ in range(rng.randrange(1, 40)):
            changes.one()
        if rng.randrange(3) == 0:
            writer.wait_remote()  # more than one head in one step
            changes.one()
        catch_up(writer, follower)
        same_trees(writer.mnt, follower.mnt)
        if turn % 3 == 2:
            follower.remount()
            same_trees(writer.mnt, follower.mnt)
    follower.umount_whole()
    follower.mount(remote=None, endpoint_url=None, region=None, lease=None, follow=None)  # without the remote: as it was last
    assert sorted(walk(follower.mnt)) == sorted(walk(writer.mnt))


def shows_nothing(follower):
    root = os.stat(follower.mnt)
    assert (os.listdir(follower.mnt), root.st_ino, root.st_nlink) == ([], 1, 2)
    assert os.statvfs(follower.mnt).f_blocks > 0
    with pytest.raises(FileNotFoundError):
        os.stat(os.path.join(follower.mnt, "latest"))


@pytest.mark.timeout(240)
def test_before_the_first_publication(on_remote, remote):
    """A head without a state only names the holder of the prefix: the root stays, and the first state is shown when it comes."""
    writer = on_remote(remote, **SMALL).mount()
    follower = writer.fresh(**{**FOLLOW, "follow": "200ms"}).mount()
    time.sleep(1)  # several looks
    shows_nothing(follower)
    writer.remount()  # one more head without a state
    rig.poll(lambda: shows(follower) >= newest(remote) > 1, 30, "the follower to look")
    time.sleep(1)
    shows_nothing(follower)
    follower.remount()
    shows_nothing(follower)
    rig.write_file(os.path.join(writer.mnt, "file"), b"content")
    catch_up(writer, follower)
    same_trees(writer.mnt, follower.mnt)
    follower.remount()
    same_trees(writer.mnt, follower.mnt)
    follower.umount_whole()


def publish_in_pieces(writer, turn):
    """Runs that are merged only when nothing waits any more."""
    for number in range(4):
        writer.write(f"piece-{turn}-{number}", rig.seeded_bytes(f"{turn} {number}", 15000), "remote")


@pytest.mark.timeout(240)
def test_same_cut_published_again(on_remote, remote):
    """A follower's journal goes on from a cut with what it fetched; meanwhile the cut is published anew, its runs merged."""
    writer = on_remote(remote, **SMALL).mount()
    content = rig.seeded_bytes("content", 300_000)
    rig.write_file(os.path.join(writer.mnt, "file"), content)
    for turn in range(5):
        publish_in_pieces(writer, turn)
        newest = max(remote.heads())
        with writer.elsewhere(**{**FOLLOW, "follow": "1h"}) as follower:
            was_first = max(remote.heads()) == newest
            assert rig.read_file(os.path.join(follower.mnt, "file")) == content
        rig.poll(lambda: max(remote.heads()) > newest, 30, "the merge")
        follower.mount()
        same_trees(writer.mnt, follower.mnt)
        assert rig.read_file(os.path.join(follower.mnt, "file")) == content
        follower.umount_whole()
        if was_first:
            return
    pytest.skip("the machine is too slow: each merge came before the follower")


@pytest.mark.timeout(240)
def test_shows_prefixes_under_load(on_remote, remote, rng, shm_directory, full):
    """P5: while writers run, what a follower shows at a moment is a prefix of their history."""
    writer = on_remote(remote, **SMALL, gc_grace="2s").mount()
    log = os.path.join(shm_directory, "log")
    taken = []
    with history.writing(os.path.join(writer.mnt, "run"), log, rng.randrange(1 << 30), pause=0.05, shard=1 << 20) as writers:
        writer.quiet(writers)
        rig.poll(lambda: newest(remote) > 0, 30, "a head")
        follower = writer.fresh(**FOLLOW).mount()
        for _ in range(30 if full else 3):
            time.sleep(rng.uniform(0.2, 2.0))
            with writer.paused():
                mark, head = writers.mark(), newest(remote)
                rig.poll(lambda: shows(follower) >= head, 30, "the follower", 0.05)
                path = os.path.join(follower.mnt, "run")
                time.sleep(1.1)
                taken.append(judge.check_cut(path, log, 0, mark)[0] if os.path.isdir(path) else 0)
    print("prefixes of", taken, "operations")
    assert taken == sorted(taken) and taken[-1] > 0


def test_open_files_go_on(on_remote, remote):
    """A handle sees the new content of its file; one of a deleted file says so, or gives what was there."""
    writer = on_remote(remote, **SMALL).mount()
    old, new = random.Random(1).randbytes(300_000), random.Random(2).randbytes(300_000)
    for name in ("changed", "deleted", "renamed"):
        rig.write_file(os.path.join(writer.mnt, name), old)
    writer.wait_remote()
    follower = writer.fresh(**FOLLOW).mount()
    handles = {name: os.open(os.path.join(follower.mnt, name), os.O_RDONLY) for name in ("changed", "deleted", "renamed")}
    try:
        assert all(os.pread(fd, 1 << 20, 0) == old for fd in handles.values())
        rig.patch(os.path.join(writer.mnt, "changed"), 0, new)  # the same inode, and the same size
        os.unlink(os.path.join(writer.mnt, "deleted"))
        os.rename(os.path.join(writer.mnt, "renamed"), os.path.join(writer.mnt, "elsewhere"))
        catch_up(writer, follower)
        assert os.pread(handles["changed"], 1 << 20, 0) == new
        assert os.pread(handles["renamed"], 1 << 20, 0) == old
        assert not os.path.exists(os.path.join(follower.mnt, "deleted"))
        try:
            assert os.pread(handles["deleted"], 1 << 20, 0) == old
        except OSError as error:
            assert error.errno in (errno.ESTALE, errno.EIO)
    finally:
        for fd in handles.values():
            os.close(fd)
    follower.umount_whole()


def changes_of(mnt):
    path = os.path.join(mnt, "file")
    yield lambda: os.open(path, os.O_WRONLY)
    yield lambda: os.open(path, os.O_RDWR)
    yield lambda: os.open(os.path.join(mnt, "new"), os.O_WRONLY | os.O_CREAT)
    yield lambda: os.unlink(path)
    yield lambda: os.rename(path, path + "2")
    yield lambda: os.mkdir(path + "3")
    yield lambda: os.chmod(path, 0o600)
    yield lambda: os.setxattr(path, "user.a", b"b")
    yield lambda: os.truncate(path, 1)


def test_writes_nothing(on_remote, remote):
    """Every change is EROFS, also where root made the mount writable, which status explains; the remote gets no object and loses none,
    whatever the follower does."""
    writer = on_remote(remote, **SMALL).mount()
    rig.write_file(os.path.join(writer.mnt, "file"), b"x" * 100_000)
    writer.umount(drain="remote")
    before = remote.names()
    with writer.elsewhere(**FOLLOW) as follower:
        path = os.path.join(follower.mnt, "file")
        for remounted in (False, True):
            if remounted:
                rig.run("mount", "-i", "-o", "remount,rw", follower.mnt)
            for change in changes_of(follower.mnt):
                with rig.fails(errno.EROFS):
                    change()
            errors = follower.status()["errors"]
            assert bool(errors) == remounted and all("follows another writer" in error["cause"] for error in errors), errors
        assert rig.read_file(path) == b"x" * 100_000
        assert os.getxattr(path, "user.cairn.level") == b"remote"
        time.sleep(2.5)  # time in which a follower must write nothing there
    assert remote.names() == before


def test_only_reads_are_asked_for(on_remote, s3, proxy):
    """Credentials that may get and list are enough: nothing else is ever asked."""
    writer = on_remote(s3, **SMALL).mount()
    writer.write("file", b"x" * 100_000, "remote")
    proxy.reset()
    with writer.elsewhere(s3.through(proxy), **FOLLOW) as follower:
        rig.write_file(os.path.join(writer.mnt, "file"), b"y" * 100_000)
        catch_up(writer, follower)
        assert rig.read_file(os.path.join(follower.mnt, "file")) == b"y" * 100_000
    assert set(proxy.stats()["methods"]) <= {"GET", "HEAD"}


@pytest.mark.timeout(180)
def test_lagging_longer_than_the_grace(on_remote, remote, rng):
    """Objects that an old head needs are gone when the follower looks again: it takes the newest head and goes on."""
    writer = on_remote(remote, **SMALL, gc_grace="0s").mount()
    changes = Changes(writer.mnt, rng)
    rig.write_file(os.path.join(writer.mnt, "goes"), rng.randbytes(3 << 20))
    for _ in range(20):
        changes.one()
    writer.wait_remote()
    follower = writer.fresh(**FOLLOW).mount()
    before = set(remote.names("packs/"))
    follower.pause()
    os.unlink(os.path.join(writer.mnt, "goes"))
    for _ in range(6):
        for path in list(walk(writer.mnt)):
            if os.path.isfile(os.path.join(writer.mnt, path)) and rng.randrange(2):
                os.unlink(os.path.join(writer.mnt, path))
        for _ in range(30):
            changes.one()
        writer.wait_remote()
    rig.poll(lambda: before - set(remote.names("packs/")), 60, "gc to delete something")
    follower.go_on()
    catch_up(writer, follower, 60)
    same_trees(writer.mnt, follower.mnt)


@pytest.mark.always_s3
def test_reading_what_is_gone(on_remote, remote, rng):
    """A read by an old head that needs what gc took looks at once: new content, or ESTALE; and damage is EIO, not for ever."""
    writer = on_remote(remote, **SMALL, gc_grace="0s", reduce="fast").mount()  # else what is deleted may stay, for others are stored by it
    names = ("changed", "deleted", "damaged")
    for name in names:
        writer.write(name, rng.randbytes(3 << 20), "remote")
    follower = writer.fresh(**{**FOLLOW, "follow": "1h"}).mount()
    handles = [os.open(os.path.join(follower.mnt, name), os.O_RDONLY) for name in names]
    before, new = set(remote.names("packs/")), rng.randbytes(3 << 20)  # the size may be shown for a second longer
    rig.write_file(os.path.join(writer.mnt, "changed"), new)
    os.unlink(os.path.join(writer.mnt, "deleted"))
    writer.wait_remote()
    rig.poll(lambda: len(before - set(remote.names("packs/"))) == 2, 60, "gc to take the packs")
    try:
        assert os.pread(handles[0], 4 << 20, 0) == new
        with rig.fails(errno.ESTALE):
            os.pread(handles[1], 1, 0)
        assert not follower.status()["damage"]
        writer.kill9()  # it would heal it
        for name in before & set(remote.names("packs/")):
            remote.delete(name)
        with rig.fails(errno.EIO):
            os.pread(handles[2], 1, 0)
        assert follower.status()["damage"]
    finally:
        for fd in handles:
            os.close(fd)


@pytest.mark.timeout(240)
def test_killed_while_following(on_remote, remote, rng, full):
    """kill -9 of the follower at random moments: mounted again, with the remote or without, it shows a head."""
    writer = on_remote(remote, **SMALL).mount()
    changes = Changes(writer.mnt, rng)
    changes.one()
    writer.wait_remote()
    follower = writer.fresh(**{**FOLLOW, "follow": "100ms"}).mount()
    for _ in range(60 if full else 6):
        for _ in range(rng.randrange(1, 30)):
            changes.one()
        writer.wait_remote()
        time.sleep(rng.uniform(0, 0.4))
        follower.kill9()
        if rng.randrange(2):
            follower.drop_stage()
        follower.mount()
        catch_up(writer, follower)
        same_trees(writer.mnt, follower.mnt)
    follower.umount_whole()


def test_killed_when_a_head_came_behind_own_batches(on_remote):
    """What a follower keeps of fetched content is in batches of its own numbers, above the writer's; the head that comes then begins the
    journal below them, and a kill leaves a stage that has seen both."""
    writer = on_remote(**SMALL).mount()
    path = rig.write_file(os.path.join(writer.mnt, "file"), rig.seeded_bytes(1, 4 * rig.MIB))
    writer.wait_remote()
    follower = writer.fresh(**FOLLOW).mount()
    for seed in range(2, 5):
        kept = follower.status()["nvme"]["pack_bytes"]
        assert rig.read_file(os.path.join(follower.mnt, "file")) == rig.seeded_bytes(seed - 1, 4 * rig.MIB)
        rig.poll(lambda: follower.status()["nvme"]["pack_bytes"] > kept + 2 * rig.MIB, 60, "what was fetched to be kept")
        rig.write_file(path, rig.seeded_bytes(seed, 4 * rig.MIB))
        catch_up(writer, follower)
        follower.crash()
        catch_up(writer, follower)
    assert "File exists" not in follower.log()
    same_trees(writer.mnt, follower.mnt)
    follower.umount_whole()


@pytest.mark.parametrize("lost", ["journal", "view", None])
def test_interrupted_in_the_middle(on_remote, directory, lost):
    """A crash between the new view and the new journal: whatever is left of them, the follower shows the head that it knows."""
    remote = remotes.DirRemote(os.path.join(directory, "remotes"))
    writer = on_remote(remote, **SMALL).mount()
    writer.write("file", b"one" * 100_000, "remote")
    follower = writer.fresh(**FOLLOW).mount()
    assert rig.read_file(os.path.join(follower.mnt, "file")) == b"one" * 100_000
    follower.lose_power()
    rig.write_file(os.path.join(follower.store, "adopting"), b"")
    if lost == "journal":
        for name in os.listdir(os.path.join(follower.store, "journal")):
            os.unlink(os.path.join(follower.store, "journal", name))
    elif lost == "view":
        follower.delete_view()
    follower.mount()
    same_trees(writer.mnt, follower.mnt)
    assert not os.path.exists(os.path.join(follower.store, "adopting"))
    follower.umount_whole()


def test_remote_out_of_reach(on_remote, directory):
    """A follower mounts what it knows while the remote is away, and goes on when it is back."""
    remote = remotes.DirRemote(os.path.join(directory, "remotes"))
    writer = on_remote(remote, **SMALL).mount()
    writer.write("file", b"one", "remote")
    with writer.elsewhere(**FOLLOW) as follower:
        assert rig.read_file(os.path.join(follower.mnt, "file")) == b"one"
    rig.write_file(os.path.join(writer.mnt, "file"), b"two!")
    writer.umount(drain="remote")
    os.rename(remote.path, remote.path + ".away")
    os.makedirs(remote.path)
    os.rmdir(remote.path)
    with pytest.raises(rig.MountError):
        follower.mount()
    os.rename(remote.path + ".away", remote.path)
    follower.mount()
    rig.poll(lambda: rig.read_file(os.path.join(follower.mnt, "file")) == b"two!", 20, "the new content")


def test_another_writer_takes_over(on_remote, remote):
    """Heads of each holder of the prefix are followed; a store with changes of its own never is overwritten."""
    first = on_remote(remote, **SMALL).mount()
    first.write("a", b"from the first", "remote")
    follower = first.fresh(**FOLLOW).mount()
    first.umount(drain="remote")
    second = first.fresh(**SMALL).mount(takeover=True)
    rig.write_file(os.path.join(second.mnt, "b"), b"from the second")
    catch_up(second, follower)
    same_trees(second.mnt, follower.mnt)


def features(data):
    """The incompat bits of a superblock, or of a prefix info."""
    return struct.unpack_from("<Q", data, 16)[0]


@pytest.mark.timeout(240)
def test_the_writer_begins_to_reduce(on_remote):
    """Chunks may come to the follower's NVMe as the remote has them: its store says so from the first such head on, and an older version
    refuses it by name."""
    writer = on_remote(reduce="off", **SMALL).mount()
    writer.write("before", b"nothing to reduce", "remote")
    follower = writer.fresh(**FOLLOW).mount()
    superblock = os.path.join(follower.store, "superblock")
    plain = features(rig.read_file(superblock))
    writer.remount(reduce="dense")
    save_some(Job(writer), 2)
    catch_up(writer, follower)
    same_trees(writer.mnt, follower.mnt)
    announced = features(writer.remote.get("cairn"))
    assert announced & ~plain and features(rig.read_file(superblock)) == plain | announced
    follower.remount()
    same_trees(writer.mnt, follower.mnt)


@pytest.mark.timeout(240)
def test_a_newer_version_publishes(on_remote):
    """What it may have written is not taken for damage: the state before it stays shown, until this version may read on."""
    writer = on_remote(**SMALL).mount()
    writer.write("a", b"of this version", "remote")
    follower = writer.fresh(**FOLLOW).mount()
    info = writer.remote.get("cairn")
    newer = bytearray(info)
    struct.pack_into("<Q", newer, 16, features(info) | 1 << 62)
    struct.pack_into("<I", newer, len(newer) - 4, zlib.crc32(newer[:-4]))
    writer.remote.put("cairn", bytes(newer))
    writer.write("b", b"of a newer one", "remote")
    rig.poll(lambda: "newer version of CairnFS" in follower.remote_status().get("error", ""), 30, "the error")
    assert "incompat bit 62" in follower.remote_status()["error"] and os.listdir(follower.mnt) == ["a"]
    writer.remote.put("cairn", info)
    catch_up(writer, follower)
    same_trees(writer.mnt, follower.mnt)


def head_features(head):
    return struct.unpack_from("<I", head, 84)[0]


@pytest.mark.timeout(240)
def test_a_head_says_what_its_reader_must_know(on_remote):
    """By itself: the marker may be an older copy, or read a moment before."""
    writer = on_remote(reduce="off", **SMALL).mount()
    writer.write("a", b"of this version", "remote")
    newest = writer.remote.heads()[max(writer.remote.heads())]
    assert head_features(newest) == 0 and newest[8] == 1, "0.2.0 reads it"
    writer.remount(reduce="dense")
    writer.write("b", b"maybe dense", "remote")
    follower = writer.fresh(**FOLLOW).mount()
    newest = max(writer.remote.heads())
    head = writer.remote.heads()[newest]
    assert head_features(head) == features(writer.remote.get("cairn")) != 0 and head[8] == 2
    writer.umount()
    unknown = bytearray(head)
    struct.pack_into("<Q", unknown, 16, newest + 1)
    struct.pack_into("<I", unknown, 84, head_features(head) | 1 << 29)  # of no version yet
    struct.pack_into("<I", unknown, len(unknown) - 4, zlib.crc32(unknown[:-4]))
    writer.remote.put(f"heads/{newest + 1:016x}", bytes(unknown))
    rig.poll(lambda: "newer version of CairnFS" in follower.remote_status().get("error", ""), 30, "the error")
    assert "incompat bit 29" in follower.remote_status()["error"] and sorted(os.listdir(follower.mnt)) == ["a", "b"]
    assert "newer version of CairnFS" in writer.verb("ls", writer.remote.spec("/"), code=1).stderr
    follower.umount()
