# SPDX-License-Identifier: Apache-2.0
"""The exit code of `cairn umount`: 0 means that the tier that was asked for has everything, whatever became of the mount."""
import os
import subprocess

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount

FAILED, USAGE, TIMED_OUT, NOT_DRAINED = 1, 2, 3, 4


@pytest.fixture
def node(on_remote, directory):
    """A private store on a `dir:` remote, which `away` takes out of reach. Mounted."""
    remote = remotes.DirRemote(os.path.join(directory, "remotes"))
    return on_remote(remote, remote_timeout="1s").mount()


def away(cairn):
    os.rename(cairn.remote.path, cairn.remote.path + ".away")


def back(cairn):
    os.rename(cairn.remote.path + ".away", cairn.remote.path)


def save(cairn, size=3 * rig.MIB):
    data = rig.seeded_bytes(1, size)
    rig.write_file(cairn.mnt + "/file", data)
    return data


def expect(done, code, *words):
    assert done.returncode == code, done
    for word in words:
        assert word in done.stderr, done


@pytest.mark.parametrize("drain", [(), ("--drain", "nvme"), ("--drain", "remote")])
def test_a_dead_mount(node, drain):
    """It is cleared away, its stage stays, and the code is none of success; the next mount has everything, and then it is."""
    data = save(node)
    node.kill9()
    expect(node.cairn("umount", node.mnt, *drain), NOT_DRAINED, "had died before all data was on NVMe", node.store)
    assert not rig.mounted_at(node.mnt) and os.listdir(node.stage_dir)
    expect(node.cairn("umount", node.mnt, *drain), USAGE, "not a CairnFS mountpoint")
    node.mount()
    assert rig.read_file(node.mnt + "/file") == data
    expect(node.cairn("umount", node.mnt, *drain), 0)
    assert node.reap() == 0 and os.listdir(node.stage_dir) == []


def test_a_daemon_that_ended_well_under_its_mount(node, directory):
    """Another namespace has the mount still, and its connection is over. NVMe has everything; the remote has not."""
    save(node)
    node.wait_remote()
    away(node)
    rig.write_file(node.mnt + "/more", b"more")
    holder = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", f"touch {directory}/in; exec sleep 600"])
    try:
        rig.poll(lambda: os.path.exists(directory + "/in"), 30, "the other namespace")
        expect(node.cairn("umount", node.mnt), 0)
        assert node.reap() == 0
        there = ["nsenter", "-m", "-t", str(holder.pid), node.binary, "umount", node.mnt]
        done = subprocess.run([*there, "--drain", "remote"], capture_output=True, text=True, timeout=300)
        expect(done, NOT_DRAINED, "not in the remote yet")
    finally:
        holder.kill()
        holder.wait()
        back(node)


@pytest.mark.parametrize("change", [
    lambda mnt: rig.write_file(mnt + "/more", rig.seeded_bytes(2, 100_000)),
    lambda mnt: os.rename(mnt + "/file", mnt + "/renamed"),
], ids=["content", "name"])
def test_a_remote_that_lacks_something(node, change):
    """Whoever unmounted it first: a drain to the remote that could not happen is never told as one."""
    save(node)
    node.wait_remote()
    away(node)
    change(node.mnt)
    expect(node.cairn("umount", node.mnt, "--drain", "remote", "--timeout", "1s"), TIMED_OUT, "stays mounted")
    waiting = subprocess.Popen([node.binary, "umount", node.mnt, "--drain", "remote"], stderr=subprocess.PIPE, text=True)
    try:
        assert "are failing; retrying" in waiting.stderr.readline()
        expect(node.cairn("umount", node.mnt), 0)
        _, said = waiting.communicate(timeout=300)
    finally:
        waiting.kill()
    assert waiting.returncode == NOT_DRAINED and "not in the remote yet" in said, (waiting.returncode, said)
    assert node.reap() == 0
    back(node)
    node.mount()
    node.umount(drain="remote")


def test_drained_is_drained(node):
    """0 where everything is there: also of a store that was empty, only read, or changed in its times alone."""
    node.umount(drain="remote")
    node.mount()
    save(node)
    node.umount(drain="remote")
    node.mount()
    rig.read_file(node.mnt + "/file")
    os.utime(node.mnt + "/file")
    os.unlink(node.mnt + "/file")
    node.umount(drain="remote")
    node.mount()
    node.umount(drain="remote")
    reader = node.fresh(ro=True).mount()
    reader.umount(drain="remote")


def test_no_such_remote_level_or_mount(cairn, mnt):
    """Errors change nothing."""
    save(cairn)
    expect(cairn.cairn("umount", mnt, "--drain", "remote"), FAILED, "no remote is configured")
    expect(cairn.cairn("umount", mnt, "--drain", "tape"), USAGE, "use nvme or remote")
    assert rig.mounted_at(mnt)
    subprocess.run(["umount", "-i", "-l", mnt], check=True)
    expect(cairn.cairn("umount", mnt, "--drain", "nvme"), USAGE, "not a CairnFS mountpoint")
    assert cairn.reap() == 0


def test_a_job_whose_daemon_died_is_not_clean(kept):
    """Its successor knows nothing of it: `cairn scrub` and `gc` say so, where they said "clean" and 0."""
    kept.mount()
    save(kept, 8 * rig.MIB)
    kept.wait()
    scrub = subprocess.Popen([kept.binary, "scrub", kept.mnt, "--rate", "100K"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rig.poll(lambda: (kept.ask(verb="job") or {}).get("running"), 30, "the scrub")
    kept.kill_daemon(wait=True)
    printed, said = scrub.communicate(timeout=300)
    assert scrub.returncode == FAILED and "cannot tell the result" in said and "clean" not in printed, (scrub.returncode, printed, said)
