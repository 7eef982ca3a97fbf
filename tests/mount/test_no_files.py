# SPDX-License-Identifier: Apache-2.0
"""P9: the disk of the store has bytes left, and takes no file: no inode, a limit of file sizes or of descriptors, read-only. Writers and
fsync get an error soon, nothing acknowledged is lost, and rm makes room where that helps."""
import concurrent.futures
import errno
import os
import resource
import subprocess
import threading
import time

import pytest

import rig

pytestmark = pytest.mark.needs_mount
SOON = 60  # s: what hangs does not end at all


@pytest.fixture
def on_disk(request, directory, mount_factory):
    """on_disk(*mkfs, extra): a mount, whose store lies on a small ext4 of its own, and that directory."""
    rig.need_root("/dev/loop-control")

    def make(*options, extra=""):
        image, mountpoint = os.path.join(directory, "disk.img"), os.path.join(directory, "disk")
        disk = rig.LoopImage(image, mountpoint, 1500 * rig.MIB, options=options, extra=extra)
        request.addfinalizer(disk.close)
        os.makedirs(os.path.join(directory, "top"))
        mount = mount_factory(os.path.join(directory, "top"), stage="64M", writeback_delay="100ms", log=os.path.join(directory, "log"))
        mount.store = os.path.join(disk.mountpoint, "store")
        request.addfinalizer(mount.close)
        mount.mount()
        return mount, disk.mountpoint

    return make


def write(path, mib):
    """0, or the errno with which a program's write failed. It is a process of its own: one that hangs can be ended."""
    program = f"""
import os, sys
fd = os.open({path!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
try:
    for _ in range({mib}):
        os.write(fd, os.urandom(1 << 20))
except OSError as error:
    sys.exit(error.errno)
"""
    return subprocess.run(["python3", "-c", program], timeout=SOON).returncode


def sync(path):
    return subprocess.run(["sync", path], timeout=SOON, capture_output=True).returncode


def take_all_inodes(directory):
    count = 0
    while True:
        try:
            with open(os.path.join(directory, f"full{count}"), "x"):
                count += 1
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return


@pytest.mark.timeout(120)
def test_no_inode_is_left(on_disk, rng):
    cairn, disk = on_disk("-N", "400")
    old, kept = rng.randbytes(20 * rig.MIB), rng.randbytes(3 * rig.MIB)
    rig.write_synced(f"{cairn.mnt}/old", old)
    rig.write_synced(f"{cairn.mnt}/kept", kept)
    take_all_inodes(disk)
    assert write(f"{cairn.mnt}/new", 900) == errno.ENOSPC
    assert sync(f"{cairn.mnt}/new") == 0, "what was acknowledged has files held for it"
    assert rig.read_file(f"{cairn.mnt}/old") == old
    os.unlink(f"{cairn.mnt}/new")
    os.unlink(f"{cairn.mnt}/old")
    rig.poll(lambda: write(f"{cairn.mnt}/next", 20) == 0, SOON, "room after rm")
    for number in range(5):  # each a pack of its own
        rig.write_synced(f"{cairn.mnt}/small{number}", rng.randbytes(100000))
    assert sync(f"{cairn.mnt}/next") == 0
    cairn.umount()
    for name in os.listdir(disk):
        if name.startswith("full"):
            os.unlink(os.path.join(disk, name))
    assert cairn.fsck().returncode == 0
    cairn.mount()
    assert rig.read_file(f"{cairn.mnt}/kept") == kept and os.path.getsize(f"{cairn.mnt}/next") == 20 * rig.MIB
    assert "cannot follow" not in cairn.log()


@pytest.mark.timeout(120)
def test_files_may_not_be_as_large_as_a_pack(on_disk, rng):
    """The limit is lowered under the daemon. Packs and segments stay within it."""
    cairn, _ = on_disk()
    limit = 8_000_000
    resource.prlimit(cairn.pids()[0], resource.RLIMIT_FSIZE, (limit, limit))
    data = rng.randbytes(100 * rig.MIB)
    rig.write_file(f"{cairn.mnt}/data", data)
    assert sync(f"{cairn.mnt}/data") == 0
    sizes = [os.path.getsize(f"{cairn.store}/packs/{name}") for name in os.listdir(f"{cairn.store}/packs")]
    assert len(sizes) >= 100 * rig.MIB // limit
    cairn.power_cycle()
    assert rig.read_file(f"{cairn.mnt}/data") == data


@pytest.mark.timeout(120)
def test_no_descriptor_is_left(on_disk):
    cairn, _ = on_disk()
    pid = cairn.pids()[0]
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, hard))
    assert write(f"{cairn.mnt}/new", 900) in (0, errno.EIO), "a daemon that may raise its limit does"
    if sync(f"{cairn.mnt}/new") != 0:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    rig.poll(lambda: write(f"{cairn.mnt}/next", 20) == 0 and sync(f"{cairn.mnt}/next") == 0, SOON, "writes go on")


def take_descriptors_away(pid, rng, ended):
    """Now and then the process can open nothing, for a few milliseconds."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    while not ended.wait(rng.random() / 100):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        ended.wait(rng.random() / 200)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_no_descriptor_left_for_a_while(cairn, rng):
    """Writeback that failed for want of descriptors goes on when there are some, and no fsync fails: it has 5 s for that."""
    cairn.mount(nvme="4G")
    contents = {f"{cairn.mnt}/file{turn}": rng.randbytes(100_000) for turn in range(20)}
    ended = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take_descriptors_away, cairn.proc.pid, rng, ended)
        try:
            for path, data in contents.items():
                with open(path, "wb", 0) as file:
                    file.write(data)
                    os.fsync(file.fileno())
        finally:
            ended.set()
    taking.result()
    cairn.crash(nvme="4G")
    assert all(rig.read_file(path) == data for path, data in contents.items())
    cairn.umount_whole()


def keep_descriptors_away(pid, begun, ended):
    """The process can open nothing: it raises its limit between two tries, and finds it lowered at the next one."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    while not ended.wait(0.002):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        begun.set()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_no_descriptor_for_longer_than_fsync_waits(cairn, rng):
    """fsync fails with EIO after 5 s without descriptors; once there are some, writes go on and the next fsync succeeds, without a remount."""
    cairn.mount(nvme="4G")
    data, taken, ended = rng.randbytes(100_000), threading.Event(), threading.Event()
    with open(cairn.mnt + "/file", "wb", 0) as file, concurrent.futures.ThreadPoolExecutor(1) as pool:
        taking = pool.submit(keep_descriptors_away, cairn.proc.pid, taken, ended)
        try:
            assert taken.wait(60)
            file.write(data)
            begun = time.monotonic()
            with pytest.raises(OSError) as caught:
                os.fsync(file.fileno())
        finally:
            ended.set()
        taking.result()
        assert caught.value.errno == errno.EIO and 4.5 < time.monotonic() - begun < 20 * rig.PATIENCE

        def goes_on():
            try:
                return file.write(b"more") and os.fsync(file.fileno()) is None
            except OSError as error:
                assert error.errno == errno.EIO
                return False

        rig.poll(goes_on, 20, "a write and an fsync that succeed", 0.1)
    cairn.power_cycle(nvme="4G")
    assert rig.read_file(cairn.mnt + "/file").startswith(data + b"more")
    cairn.umount_whole()


@pytest.mark.timeout(120)
def test_the_disk_turns_read_only(on_disk, rng):
    """As an ext4 does that met an error. What was durable can be read; an unmount does not pretend."""
    cairn, disk = on_disk(extra="errors=remount-ro")
    data = rng.randbytes(3 * rig.MIB)
    rig.write_synced(f"{cairn.mnt}/old", data)
    device = os.path.basename(rig.run("findmnt", "-no", "SOURCE", disk).strip())
    trigger = f"/sys/fs/ext4/{device}/trigger_fs_error"
    if not os.access(trigger, os.W_OK):
        pytest.skip("skipped: ext4 here makes no error on demand")
    rig.write_file(trigger, "test")
    assert write(f"{cairn.mnt}/new", 300) in (errno.EROFS, errno.ENOSPC)
    assert sync(f"{cairn.mnt}/new") == 1
    assert rig.read_file(f"{cairn.mnt}/old") == data
    assert "nothing can be written to its disk" in cairn.verb("umount", cairn.mnt, timeout=SOON, code=1).stderr
    assert os.path.ismount(cairn.mnt)
    cairn.kill9()
