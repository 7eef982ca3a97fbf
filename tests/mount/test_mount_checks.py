# SPDX-License-Identifier: Apache-2.0
"""What a mount refuses or warns of before it changes anything, with the numbers."""
import os
import shlex
import subprocess

import pytest

import rig

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
    rig.write_file(f"{mnt}/file", os.urandom(2 << 20))


def on_a_machine(cairn, directory, stage, *prepare):
    """Mounts and unmounts in a mount namespace of its own, where the machine looks as `prepare` makes it."""
    store, mnt = f"{directory}/a", f"{directory}/b"
    os.makedirs(mnt)
    mount = shlex.join([cairn.binary, "mount", store, mnt, "-o", f"stage={stage},stage_dir={cairn.stage_dir}"])
    script = f"{rig.DROP_INHERITED}set -e; {'; '.join(prepare)}; {mount}; {shlex.join([cairn.binary, 'umount', mnt])}"
    return subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=120)


def test_more_than_is_available_now(cairn, directory):
    meminfo = rig.read_file("/proc/meminfo").decode().splitlines()
    lines = [line for line in meminfo if not line.startswith("MemAvailable:")] + ["MemAvailable: 102400 kB", ""]
    rig.write_file(f"{directory}/meminfo", "\n".join(lines).encode())
    done = on_a_machine(cairn, directory, "128M", f"mount --bind {directory}/meminfo /proc/meminfo")
    assert done.returncode == 0 and "warning: stage=128 MiB, but only 100 MiB of memory are available now" in done.stderr, done


def test_more_than_the_memory_cgroup_grants(cairn, directory):
    with open("/proc/self/cgroup") as file:
        groups = [line.rstrip("\n").split(":", 2) for line in file]
    limits = [(f"/sys/fs/cgroup/memory{path}", "memory.limit_in_bytes") for _, names, path in groups if "memory" in names.split(",")]
    limits += [(f"/sys/fs/cgroup{path}", "memory.max") for _, names, path in groups if names == ""]
    prepare = [f"mkdir -p {place}; echo {512 << 20} > {place}/{name}" for place, name in limits]
    done = on_a_machine(cairn, directory, "500M", "mount -t tmpfs none /sys/fs/cgroup", *prepare)
    assert done.returncode == 1 and "machine and memory cgroup grant 512 MiB; give at most stage=448M" in done.stderr, done
    assert not os.path.exists(f"{directory}/a")
