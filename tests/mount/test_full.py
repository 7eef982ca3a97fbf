# SPDX-License-Identifier: Apache-2.0
"""P1, P9: a full store: ENOSPC to the writer, nothing acknowledged lost, rm makes room without a remount."""
import contextlib
import errno
import mmap
import os
import threading
import time

import pytest

import processes
import rig

SIZE = 8 * rig.MIB


class Filler:
    """Writes files until the store is full; knows which were closed without an error."""

    def __init__(self, mnt, rng):
        self.mnt, self.rng = mnt, rng
        self.kept, self.number = {}, 0

    def write_one(self):
        """True if the file was taken; a file that met ENOSPC is removed, as a trainer would."""
        self.number += 1
        path = os.path.join(self.mnt, f"file-{self.number}")
        seed = self.rng.random()
        try:
            rig.write_file(path, rig.seeded_bytes(seed, SIZE))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            if os.path.exists(path):
                os.unlink(path)
            return False
        self.kept[path] = seed
        return True

    def fill(self, most):
        """Write until ENOSPC; returns the bytes that were taken."""
        for _ in range(most // SIZE):
            if not self.write_one():
                return len(self.kept) * SIZE
        raise AssertionError(f"{most} bytes went in: the store has no end")

    def remove_half(self):
        for path in list(self.kept)[::2]:
            os.unlink(path)
            del self.kept[path]

    def check(self):
        for path, seed in self.kept.items():
            assert rig.read_file(path) == rig.seeded_bytes(seed, SIZE), path


def campaign(cairn, filler, room):
    """Fill, empty by half, fill again, crash, remount: always exact."""
    taken = filler.fill(2 * room)
    assert taken >= room // 2, f"ENOSPC after only {taken} bytes of {room}"
    filler.check()
    assert len(os.listdir(cairn.mnt)) >= len(filler.kept)
    filler.remove_half()
    rig.poll(filler.write_one, 60, "room after rm, without a remount")
    filler.fill(2 * room)
    filler.check()
    cairn.crash()
    filler.check()
    for path in list(filler.kept):
        os.unlink(path)
    filler.kept.clear()
    rig.poll(filler.write_one, 60, "room after rm")
    cairn.remount()
    filler.check()
    cairn.umount_whole()


@pytest.mark.needs_mount
@pytest.mark.timeout(300)
def test_cap(cairn, rng):
    """P9: nvme=256M."""
    cairn.mount(nvme="256M", stage="64M")
    filler = Filler(cairn.mnt, rng)
    campaign(cairn, filler, 256 * rig.MIB)


@pytest.mark.needs_mount
def test_cap_is_kept(cairn, rng):
    """P9: the store's directory is never larger than the cap, on the disk."""
    cairn.mount(nvme="256M", stage="64M")
    filler = Filler(cairn.mnt, rng)
    filler.fill(512 * rig.MIB)
    assert disk_usage(cairn.store) <= 256 * rig.MIB * 1.02
    assert cairn.status()["nvme"]["used_bytes"] <= 256 * rig.MIB
    info = os.statvfs(cairn.mnt)
    assert info.f_bavail * info.f_frsize < 4 * SIZE


def write_in_steps(path, rng, step, fsyncs):
    """Bytes that were taken until ENOSPC."""
    taken = 0
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                taken += file.write(rng.randbytes(step))
                if fsyncs and rng.random() < fsyncs:
                    os.fsync(file.fileno())
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
    return taken


@pytest.mark.needs_mount
@pytest.mark.timeout(60)
@pytest.mark.parametrize("cap", (128, 150, 200))
@pytest.mark.parametrize("step, fsyncs", ((100_000, 0), (rig.MIB, 1), (3 * rig.MIB, 0.3), (40_000, 0.02)))
def test_every_end_comes_to_the_cap(cairn, rng, cap, step, fsyncs):
    """P9: however content comes: the writer gets ENOSPC and does not wait for ever, the cap is kept, and all but what it is not for was
    taken."""
    cairn.mount(nvme=f"{cap}M", stage="32M")
    taken = write_in_steps(os.path.join(cairn.mnt, "file"), rng, step, fsyncs)
    assert disk_usage(cairn.store) <= cap * rig.MIB
    used = cairn.status()["nvme"]["used_bytes"]
    assert used <= (cap - 28) * rig.MIB, "the room of a compaction was given away"
    assert taken >= (cap - 28 - 40 - 8) * rig.MIB, (taken, used)


@pytest.mark.needs_mount
@pytest.mark.timeout(60)
def test_room_is_there_when_rm_returns(cairn, rng):
    """P9: what was removed is room for the next write: that may wait for it, and does not fail."""
    cairn.mount(nvme="128M", stage="32M")
    for turn in range(5):
        path = os.path.join(cairn.mnt, f"file-{turn}")
        write_in_steps(path, rng, rig.MIB, 0)
        os.unlink(path)
        rig.write_file(os.path.join(cairn.mnt, "kept"), rng.randbytes(4 * rig.MIB))


def is_stuck(cairn, names):
    """Do writers of these files wait, and get nowhere?"""
    def sizes():
        return [os.path.getsize(path) for path in paths if os.path.exists(path)]

    paths = [os.path.join(cairn.mnt, name) for name in names]
    before = sizes()
    time.sleep(0.5)  # shows that nothing moves: there is no event to wait for; the caller polls
    return len(before) == len(names) == cairn.status()["stage"]["waiting_writers"] and sizes() == before


@pytest.fixture
def slow_remote(cairn, directory):
    """A mount whose store is full of what the remote gets slowly (its first pack takes minutes), and two writers that wait for that."""
    cairn.mount(nvme="200M", stage="32M", remote=f"dir:{directory}/remote", upload_limit="16K")
    rig.write_file(os.path.join(cairn.mnt, "old"), b"old")
    rig.write_file(os.path.join(cairn.mnt, "sealed"), rig.noise("sealed", 100 * rig.MIB))
    names = ("big-1", "big-2")
    writers = [threading.Thread(target=write_until_it_ends, args=(os.path.join(cairn.mnt, name),)) for name in names]
    for writer in writers:
        writer.start()
    rig.poll(lambda: is_stuck(cairn, names), 60, "the store to be full")
    yield cairn
    cairn.kill9()
    for writer in writers:
        writer.join()


@pytest.mark.needs_mount
@pytest.mark.timeout(60)
def test_who_waits_costs_nothing(slow_remote):
    """A writer that waits for room does not keep the daemon busy."""
    before = ticks_of(slow_remote)
    time.sleep(2)
    assert 0 < before and ticks_of(slow_remote) - before < 60, "of 200 and more"


def nameless(directory, name):
    with rig.opened(directory, os.O_TMPFILE | os.O_RDWR, 0o600) as fd:
        os.link(f"/proc/self/fd/{fd}", os.path.join(directory, name), src_dir_fd=0, follow_symlinks=True)


def made(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def synced(path):
    rig.sync(path)


def cut(path):
    with rig.opened(path, os.O_RDWR) as fd:
        os.ftruncate(fd, 1)
        os.fsync(fd)


# What waits for no content: by name, on a directory that has a file `old`.
CHANGES = {
    "stat": lambda at: os.stat(at + "/old"),
    "statvfs": os.statvfs,
    "listdir": os.listdir,
    "read": lambda at: rig.read_file(at + "/old"),
    "create": lambda at: made(at + "/created"),
    "nameless": lambda at: nameless(at, "linked"),
    "mkdir": lambda at: os.mkdir(at + "/directory"),
    "mkfifo": lambda at: os.mkfifo(at + "/fifo"),
    "symlink": lambda at: os.symlink("target", at + "/symlink"),
    "link": lambda at: os.link(at + "/old", at + "/hard"),
    "rename": lambda at: os.rename(at + "/created", at + "/renamed"),
    "chmod": lambda at: os.chmod(at + "/old", 0o640),
    "utime": lambda at: os.utime(at + "/old"),
    "setxattr": lambda at: os.setxattr(at + "/old", "user.a", b"b" * 1000),
    "level": lambda at: os.getxattr(at + "/old", "user.cairn.level"),
    "lane": lambda at: os.getxattr(at, "user.cairn.lane"),
    "fsync": lambda at: synced(at + "/old"),
    "fsync of the directory": synced,
    "truncate": lambda at: cut(at + "/old"),
    "unlink": lambda at: os.unlink(at + "/hard"),
    "rmdir": lambda at: os.rmdir(at + "/directory"),
}


@pytest.mark.needs_mount
@pytest.mark.timeout(120)
def test_changes_wait_for_no_content(slow_remote):
    """Names and attributes need little room, and there is some for them: none waits behind a write that waits for hours."""
    for name, change in CHANGES.items():
        errors = []
        processes.ends(lambda: outcome_of(change, slow_remote.mnt, errors), rig.PATIENCE * 20)  # noqa: B023: it is called now
        assert errors == [None], (name, errors)
    assert slow_remote.status()["stage"]["waiting_writers"] == 2
    done = slow_remote.cairn("umount", slow_remote.mnt, timeout=rig.PATIENCE * 20)
    assert done.returncode != 0 and "in use" in done.stderr, done


def outcome_of(change, at, errors):
    try:
        change(at)
        errors.append(None)
    except OSError as error:
        errors.append(error)


def ticks_of(cairn):
    total = 0
    for pid in cairn.pids():
        fields = rig.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total


@pytest.mark.needs_mount
def test_allocating_waits_for_no_room(cairn):
    """P9: what was removed a moment ago, or may leave, is no reason to refuse what a write would get; what can never fit is."""
    cairn.mount(nvme="256M", stage="64M")
    path = rig.write_file(os.path.join(cairn.mnt, "file"), rig.seeded_bytes(1, 160 * rig.MIB))
    cairn.wait()
    os.unlink(path)
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 160 * rig.MIB)
        with pytest.raises(OSError) as caught:
            os.posix_fallocate(file.fileno(), 0, 512 * rig.MIB)
    assert caught.value.errno == errno.ENOSPC
    rig.write_file(path, rig.seeded_bytes(2, 160 * rig.MIB))
    assert rig.read_file(path) == rig.seeded_bytes(2, 160 * rig.MIB)


def maps_directly(cairn):
    """Files that are open for reading and writing bypass the page cache. How a mount treats them is found out by a test at mount."""
    return cairn.status()["mount"]["mmap_shared"]


@pytest.mark.needs_mount
def test_full_store_is_mounted_as_any(cairn):
    """What the kernel can do does not depend on room in the store."""
    small = {"nvme": "128M", "stage": "32M"}
    cairn.mount(**small)
    usual = maps_directly(cairn)
    with pytest.raises(OSError), open(os.path.join(cairn.mnt, "file"), "wb", buffering=0) as file:
        while True:
            file.write(os.urandom(100_000))
    for _ in range(2):
        cairn.remount(**small)
        assert maps_directly(cairn) == usual
    assert "page cache" not in cairn.log()
    with pytest.raises(OSError), open(file.name, "ab", buffering=0) as file: # a mount begins with a smaller view and journal
        for _ in range(500):
            file.write(os.urandom(100_000))


@pytest.mark.needs_mount
def test_full_stage_is_mounted_as_any(cairn):
    """Nor in a stage that a dead daemon left full, and that NVMe takes slowly."""
    cairn.mount(stage="64M", writeback_delay="10m", writeback_limit="4K")
    usual = maps_directly(cairn)
    writer = threading.Thread(target=write_until_it_ends, args=(os.path.join(cairn.mnt, "file"),))
    writer.start()
    rig.poll(lambda: cairn.status()["stage"]["waiting_writers"] > 0, 30, "the stage to be full")
    cairn.kill9()
    writer.join()
    cairn.mount(writeback_limit="4K")
    assert maps_directly(cairn) == usual
    assert "page cache" not in cairn.log()
    assert cairn.status()["nvme"]["written_bytes_total"] < 32 * rig.MIB, "else there was room"
    cairn.crash(writeback_limit=None)


@pytest.mark.needs_mount
def test_recovered_stage_says_one_size(cairn, directory):
    """A stage that is recovered keeps its size, also where its tmpfs is full: no line tells of another."""
    tmpfs = rig.mkdir(os.path.join(directory, "tmpfs"))
    rig.run("mount", "-t", "tmpfs", "-o", "size=100M", "tmpfs", tmpfs)
    try:
        cairn.mount(stage="64M", stage_dir=tmpfs, writeback_delay="10m")
        size = cairn.status()["stage"]["total_bytes"]
        rig.write_file(os.path.join(cairn.mnt, "file"), b"x" * 50_000_000)
        cairn.kill9()
        write_until_it_ends(os.path.join(tmpfs, "others"))
        before = len(cairn.log())
        cairn.mount(stage="64M", stage_dir=tmpfs)
        assert cairn.status()["stage"]["total_bytes"] == size
        assert "MiB left" not in cairn.log()[before:] and "asked for" not in cairn.log()[before:]
        assert os.path.getsize(os.path.join(cairn.mnt, "file")) == 50_000_000
        cairn.umount()
        os.unlink(os.path.join(tmpfs, "others"))
    finally:
        cairn.kill9()
        rig.file_systems_unmount(tmpfs)


def write_until_it_ends(path):
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(os.urandom(rig.MIB))


def fill_to_the_end(cairn):
    with contextlib.suppress(OSError), open(os.path.join(cairn.mnt, "rest"), "wb", buffering=0) as file:
        while True:
            file.write(os.urandom(100_000))


def lose_a_store(area, at, what):
    """Stores through a map until one is lost: what is not full yet is so soon."""
    for turn in range(1000):
        area[at : at + len(what)] = what
        try:
            area.flush()
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EIO), error
            return
    raise AssertionError("every store was taken")


@pytest.mark.needs_mount
def test_lost_store_is_seen_by_nobody(cairn):
    """P9: what was stored through a map and is lost to ENOSPC (msync said so) is the same to all readers: not there."""
    cairn.mount(nvme="128M", stage="32M")
    path = rig.write_file(os.path.join(cairn.mnt, "mapped"), b"before" * 20_000)
    cairn.wait()
    with open(path, "r+b", buffering=0) as direct, open(path, "rb", buffering=0) as cached, mmap.mmap(direct.fileno(), 0) as area:
        assert os.pread(cached.fileno(), 6, 6000) == b"before"
        fill_to_the_end(cairn)
        lose_a_store(area, 0, b"behind" * 20_000)
        for reader in (lambda: os.pread(cached.fileno(), 120_000, 0), lambda: bytes(area), lambda: rig.read_file(path)):
            rig.poll(lambda: reader() == os.pread(direct.fileno(), 120_000, 0), 10, "all to see the same")
        os.unlink(os.path.join(cairn.mnt, "rest"))
        rig.poll(lambda: stored(area, 6000, b"beyond"), 30, "room again")
        assert os.pread(cached.fileno(), 6, 6000) == os.pread(direct.fileno(), 6, 6000) == b"beyond"
    cairn.umount()


def stored(area, at, what):
    area[at : at + len(what)] = what
    with contextlib.suppress(OSError):
        area.flush()
        return True
    return False


@pytest.mark.needs_mount
@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", (17000, 18000, 21000))
def test_full_beside_a_small_pack(cairn, rng, size):
    """P9: a pack that is shorter than what it is rounded to cannot be made smaller: ENOSPC comes, and a gc ends."""
    cairn.mount(nvme="256M", stage="64M")
    small = rig.write_file(os.path.join(cairn.mnt, "small"), rng.randbytes(size))
    cairn.wait()
    before = os.listdir(os.path.join(cairn.store, "packs"))
    cairn.verb("gc", cairn.mnt, timeout=60)
    assert os.listdir(os.path.join(cairn.store, "packs")) == before, "it was made anew for nothing"
    filler = Filler(cairn.mnt, rng)
    filler.fill(512 * rig.MIB)
    filler.check()


@pytest.mark.needs_mount
def test_small_packs_become_one(cairn, rng, mnt):
    """What is rounded in many small packs is room as well: a gc puts them together."""
    kept = {os.path.join(mnt, f"small-{i}"): rng.randbytes(17000) for i in range(20)}
    for path, data in kept.items():
        rig.write_file(path, data)
        cairn.wait()
    packs = os.path.join(cairn.store, "packs")
    assert len(os.listdir(packs)) == len(kept)
    done = cairn.cairn("gc", mnt, timeout=60)
    assert done.returncode == 0 and len(os.listdir(packs)) == 1, (done.stderr, os.listdir(packs))
    for path, data in kept.items():
        assert rig.read_file(path) == data


def disk_usage(directory):
    paths = (os.path.join(top, name) for top, _, names in os.walk(directory) for name in names)
    return sum(os.lstat(path).st_blocks * 512 for path in paths if os.path.exists(path))


@pytest.fixture
def small_disk(request, directory):
    rig.need_root("/dev/loop-control")
    loop = rig.LoopImage(os.path.join(directory, "disk.img"), os.path.join(directory, "disk"), 480 * rig.MIB)
    request.addfinalizer(loop.close)
    return loop.mountpoint


class LowestFree(threading.Thread):
    """What is free on a disk, looked at all the time."""

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.directory, self.ended, self.bytes = directory, False, 1 << 62

    def __enter__(self):
        self.start()
        return self

    def run(self):
        while not self.ended:
            info = os.statvfs(self.directory)
            self.bytes = min(self.bytes, info.f_bavail * info.f_frsize)
            time.sleep(0.002)

    def __exit__(self, *error):
        self.ended = True
        self.join()


@pytest.mark.timeout(300)
def test_disk_runs_full(request, small_disk, mount_factory, directory, rng, plain):
    """P9: the disk below is smaller than the cap."""
    os.makedirs(os.path.join(directory, "top"))
    cairn = mount_factory(os.path.join(directory, "top"), nvme="4G", stage="64M", request=request)
    cairn.store = os.path.join(small_disk, "store")
    if plain:
        cairn.mnt = os.path.join(small_disk, "mnt")
    cairn.mount()
    with LowestFree(small_disk) as lowest:
        campaign(cairn, Filler(cairn.mnt, rng), 460 * rig.MIB)
    if not plain:
        assert "cannot follow" not in cairn.log()
        assert lowest.bytes >= 16 * rig.MIB, "content was given what the view and the journal grow by"


def fill_the_rest(path, seconds):
    """A program that takes all that is free, and what comes free in the next seconds."""
    end = time.monotonic() + seconds
    with open(path, "wb", buffering=0) as file:
        while time.monotonic() < end:
            try:
                file.write(bytes(rig.MIB))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                time.sleep(0.01)


@pytest.mark.needs_mount
@pytest.mark.timeout(240)
def test_disk_filled_by_others(request, small_disk, mount_factory, directory, rng):
    """P9: another program fills the disk: what was acknowledged is written back all the same."""
    os.makedirs(os.path.join(directory, "top"))
    cairn = mount_factory(os.path.join(directory, "top"), nvme="4G", stage="64M", request=request)
    cairn.store = os.path.join(small_disk, "store")
    cairn.mount()
    filler = Filler(cairn.mnt, rng)
    for _ in range(3):
        assert filler.write_one()
    fill_the_rest(os.path.join(small_disk, "others"), seconds=4)
    taken = 0
    while taken < 20 and filler.write_one():
        taken += 1
    assert taken > 0, "the others got what was held for writers"
    cairn.wait()
    cairn.power_cycle()
    filler.check()
    os.unlink(os.path.join(small_disk, "others"))
    rig.poll(filler.write_one, 60, "room when the others are gone")
    filler.check()
