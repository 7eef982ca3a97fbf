# SPDX-License-Identifier: Apache-2.0
"""P9, P8: what the disk does below STORE/runs ends no daemon, and what can be fetched anew is."""
import errno
import fcntl
import glob
import os
import struct

import pytest

import rig

pytestmark = pytest.mark.needs_mount

FIBMAP, FIGETBSZ = 1, 2
MANY = 3000  # files: a run that is longer than what a put reads at once


def place_of(path):
    """Where the second block of a file is on its disk, and how long a block is. The kernel forgets the file's pages."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        length = struct.unpack("=I", fcntl.ioctl(file, FIGETBSZ, bytes(4)))[0]
        block = struct.unpack("=I", fcntl.ioctl(file, FIBMAP, struct.pack("=I", 1)))[0]
    assert block
    return block * length, length


def make_files(mnt, count):
    for number in range(count):
        rig.write_file(os.path.join(mnt, f"file-{number}"), b"")
    rig.write_file(os.path.join(mnt, "file"), b"content")


def check_files(mnt, count):
    assert len(os.listdir(mnt)) == count + 1
    assert rig.read_file(os.path.join(mnt, "file")) == b"content"


def refused(mount, **options):
    """What the mount says; it was not ended by a signal."""
    with pytest.raises(rig.MountError) as failure:
        mount.mount(**options)
    text = str(failure.value)
    assert int(text.splitlines()[0].split("with ")[1].rstrip(":")) > 0, text
    return text


def test_a_bad_sector_below_a_run(new_disk, mount_factory, request, directory):
    """A sector of a real disk that gives EIO: the mount says so, or has the run from the remote and goes on."""
    below = new_disk(size=rig.GIB // 2)
    remote = f"dir:{directory}/remote"
    mount = mount_factory(os.path.join(directory, "mount"), store=os.path.join(below.inner.mountpoint, "store"), nvme="200M",
                          stage="64M", request=request)
    mount.mount(remote=remote)
    make_files(mount.mnt, 200)
    mount.wait(level="remote")
    mount.umount()
    mount.delete_view()
    path = max(glob.glob(os.path.join(mount.store, "runs", "*")), key=os.path.getsize)
    below.fail_reads(*place_of(path))
    text = refused(mount)
    assert os.strerror(errno.EIO) in text.splitlines()[-1], text
    assert f"runs/{os.path.basename(path)} cannot be read" in text
    mount.mount(remote=remote)
    check_files(mount.mnt, 200)
    mount.umount()
    below.fail_reads()
    assert mount.fsck().returncode == 0


def test_runs_that_cannot_be_fetched_or_stored(cairn, disk, directory):
    """A store of the remote's state is refused with the disk's error while it lasts; a run is uploaded when it can be read."""
    remote = f"dir:{directory}/remote"
    cairn.mount(remote=remote)
    disk.arm("runs", "pread", errno.EIO, times=2)
    make_files(cairn.mnt, MANY)
    cairn.wait(level="remote")
    assert disk.fired() == 2
    disk.disarm()
    cairn.umount()
    assert max(os.path.getsize(path) for path in glob.glob(os.path.join(cairn.store, "runs", "*"))) > 256 * 1024
    rig.shutil.rmtree(cairn.store)
    for call in ("fallocate", "pwrite", "pread", "fsync"):
        with disk.fault("runs", call, errno.EIO, times=0):
            text = refused(cairn, remote=remote)
            assert disk.fired(), call
        assert os.strerror(errno.EIO) in text.splitlines()[-1], text
    cairn.mount(remote=remote)
    check_files(cairn.mnt, MANY)
