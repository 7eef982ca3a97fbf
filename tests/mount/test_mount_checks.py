# SPDX-License-Identifier: Apache-2.0
"""What a mount refuses or warns of before it changes anything, with the numbers."""
import os

import pytest

pytestmark = pytest.mark.needs_mount


@pytest.fixture
def mount(cairn, shm_directory):
    """mount(STORE, MOUNTPOINT, options): as a user types it. What it mounted is unmounted at the end."""
    mountpoints = []

    def try_it(store, mountpoint, **options):
        os.makedirs(mountpoint, exist_ok=True)
        mountpoints.append(mountpoint)
        options = {"stage_dir": shm_directory, "stage": "64M", **options}
        text = ",".join(name if value is True else f"{name}={value}" for name, value in options.items())
        return cairn.cairn("mount", store, mountpoint, "-o", text)

    yield try_it
    for mountpoint in reversed(mountpoints):
        if os.path.ismount(mountpoint):
            assert cairn.cairn("umount", mountpoint).returncode == 0


def test_store_and_mountpoint_are_exchanged(cairn, mount, directory):
    store, mnt = f"{directory}/a", f"{directory}/b"
    assert mount(store, mnt).returncode == 0
    assert cairn.cairn("umount", mnt).returncode == 0
    done = mount(mnt, store)
    assert done.returncode == 1 and f"cairn mount {store} {mnt}" in done.stderr, done
    assert os.listdir(mnt) == [], "the empty mountpoint is no store"


def test_store_on_a_mount_is_refused_and_a_remote_warned_of(cairn, mount, directory, shm_directory):
    mnt, other = f"{directory}/b", f"{directory}/c"
    assert mount(f"{directory}/a", mnt).returncode == 0
    os.mkdir(f"{mnt}/remote")
    done = mount(f"{mnt}/store", other)
    assert done.returncode == 1 and f"lies on the CairnFS that is mounted at {mnt}" in done.stderr, done
    assert os.listdir(mnt) == ["remote"]
    os.mkdir(f"{shm_directory}/d")
    done = mount(f"{directory}/d", other, remote=f"dir:{mnt}/remote", stage_dir=f"{shm_directory}/d")
    assert done.returncode == 0 and f"warning: the remote {mnt}/remote lies on the CairnFS that is mounted at {mnt}:" in done.stderr, done
    assert cairn.cairn("wait", other, "--level", "remote").returncode == 0
    assert os.listdir(f"{mnt}/remote")
    assert cairn.cairn("umount", other).returncode == 0
    done = mount(f"{directory}/d", other, remote=f"dir:{mnt}beside", stage_dir=f"{shm_directory}/d")
    assert "lies on the CairnFS" not in done.stderr, "the name of a mountpoint is only the beginning of its own"


def test_a_new_store_is_not_made_to_be_read(mount, directory):
    done = mount(f"{directory}/a", f"{directory}/b", ro=True)
    assert done.returncode == 1 and f"there is no store at {directory}/a" in done.stderr, done
    assert not os.path.exists(f"{directory}/a")


def test_sizes_that_the_machine_does_not_have(mount, directory):
    store, mnt = f"{directory}/a", f"{directory}/b"
    done = mount(store, mnt, stage="2T")
    assert done.returncode == 1 and "stage=2.0 TiB is more than memory can hold" in done.stderr, done
    done = mount(store, mnt, nvme="64M")
    assert done.returncode == 1 and "give 100M" in done.stderr, done
    assert not os.path.exists(store)
    done = mount(store, mnt, nvme="100M", stage="128M")
    assert done.returncode == 0 and "stage=128 MiB is larger than the store may become (nvme=100 MiB)" in done.stderr, done
    with open(f"{mnt}/file", "wb") as file:
        file.write(os.urandom(2 << 20))
