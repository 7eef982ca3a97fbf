# SPDX-License-Identifier: Apache-2.0
"""Other mount namespaces, of a container or a unit that was started while a mount was there, keep a copy of it. The end of a mount
does not hang on them."""
import errno
import os
import subprocess

import pytest

import rig

pytestmark = pytest.mark.needs_mount

# Keeps what it has inherited of the one mount, and nothing of other tests' mounts.
HOLD = r"""
lines=$(cat /proc/self/mountinfo)
printf '%s\n' "$lines" | while read -r _ _ _ _ at rest; do
    case $rest in *' - fuse.cairnfs '*) [ "$at" = "$0" ] || umount -i -l "$(printf '%b' "$at")" || true ;; esac
done
echo
"""
WRITE = r"""
exec 3>>"$0/written"
while printf 'a line of thirty-two characters\n' >&3; do printf x; done 2>/dev/null
echo
exec cat
"""


class Holder:
    """A process in a mount namespace of its own, made while `mount` is there."""

    def __init__(self, mount, propagation="private", program="exec cat"):
        command = ["unshare", "-m", "--propagation", propagation, "bash", "-c", HOLD + program, mount.mnt]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.mnt = mount.mnt
        assert self.process.stdout.readline() == b"\n"

    def enter(self, *command):
        return subprocess.run(["nsenter", "-t", str(self.process.pid), "-m", *command], capture_output=True, text=True, timeout=300)

    def sees_it(self):
        with open(f"/proc/{self.process.pid}/mountinfo") as file:
            return any(f" {self.mnt} " in line and " - fuse.cairnfs " in line for line in file)

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.kill()
            self.process.wait(300)
            self.process.stdout.close()
        self.process = None


@pytest.fixture
def hold(request, cairn):
    rig.need_root()

    def make(*args, **kwargs):
        holder = Holder(cairn, *args, **kwargs)
        request.addfinalizer(holder.close)
        return holder

    return make


def test_umount_ends_in_other_namespaces(cairn, hold):
    """umount names the processes that have it elsewhere and ends it there, too: with exit code 0, all on NVMe, the store free for the next
    mount."""
    cairn.mount(writeback_delay="60s")
    holder = hold()
    rig.write_file(cairn.mnt + "/file", b"content" * 1000)
    done = cairn.verb("umount", cairn.mnt)
    assert f"process {holder.process.pid} (" in done.stderr and cairn.mnt in done.stderr, done
    assert cairn.reap() == 0 and not rig.mounted_at(cairn.mnt)
    there = holder.enter("stat", "-f", cairn.mnt)
    assert there.returncode == 1 and os.strerror(errno.ENOTCONN) in there.stderr, there
    cairn.drop_stage()
    cairn.mount()
    assert rig.read_file(cairn.mnt + "/file") == b"content" * 1000
    cairn.umount()


def test_what_was_written_there_is_kept(cairn, hold, mnt):
    """A writer in the other namespace goes on until the end: each of its writes that returned is on NVMe."""
    writer = hold(program=WRITE)
    rig.poll(lambda: os.path.exists(mnt + "/written") and os.path.getsize(mnt + "/written") > 32 * 100, 30, "its writes")
    drained = writer.process.stdout
    assert cairn.cairn("umount", mnt).returncode == 0
    assert cairn.reap() == 0
    returned = len(drained.readline()) - 1
    cairn.drop_stage()
    cairn.mount()
    content = rig.read_file(mnt + "/written")
    assert len(content) >= 32 * returned > 3200 and not content.replace(b"a line of thirty-two characters\n", b"")
    cairn.umount()


def umount_alone(cairn, flag):
    """With --keep-others, where no namespace has it for good: a namespace that another test has just made has a copy until it drops it."""
    def is_unmounted():
        done = cairn.cairn("umount", flag, cairn.mnt)
        assert done.returncode == 0 or "stays mounted: other mount namespaces" in done.stderr, done
        return done.returncode == 0 and done.stderr == ""

    rig.poll(is_unmounted, 10, "no copy of the mount in other tests' namespaces")
    assert cairn.reap() == 0


def test_keep_others(cairn, hold, mnt):
    """--keep-others changes nothing where other processes would lose the mount, and says which."""
    holder = hold()
    assert f"process {holder.process.pid} (" in cairn.verb("umount", "--keep-others", mnt, code=1).stderr
    rig.write_file(mnt + "/file", b"content")
    assert holder.enter("cat", mnt + "/file").stdout == "content"
    holder.close()
    umount_alone(cairn, "-k")


def shared_place(request, directory):
    """A directory that is mounted at itself, shared."""
    place = rig.mkdir(directory + "/place")
    rig.run("mount", "--bind", place, place)
    request.addfinalizer(lambda: rig.file_systems_unmount(place))
    rig.run("mount", "--make-shared", place)
    return place


def test_a_namespace_that_follows_is_no_other(request, cairn, hold, directory):
    """Where unmounting goes on to the other namespace by itself, nothing is kept, and nothing is said."""
    place = shared_place(request, directory)
    cairn.mnt = place + "/mnt"
    os.mkdir(cairn.mnt)
    cairn.mount()
    holder = hold(propagation="slave")
    assert holder.sees_it()
    umount_alone(cairn, "--keep-others")
    assert not holder.sees_it()


def test_a_bind_mount_is_kept_too(request, cairn, hold, directory):
    """Another place in what the mount is mounted in does not go with it, though that is shared, as / mostly is."""
    place = shared_place(request, directory)
    cairn.mnt, bound = place + "/mnt", place + "/bound"
    os.mkdir(cairn.mnt), os.mkdir(bound)
    cairn.mount()
    rig.run("mount", "--bind", cairn.mnt, bound)
    request.addfinalizer(lambda: rig.file_systems_unmount(bound))
    assert f"at {bound}" in cairn.verb("umount", "--keep-others", cairn.mnt, code=1).stderr
    rig.write_file(bound + "/file", b"content")
    rig.run("umount", "-i", bound)
    umount_alone(cairn, "--keep-others")


def test_what_came_there_since_is_left_alone(request, cairn, hold, mnt):
    """A daemon whose mount lives on in another namespace only unmounts nothing by the path when it is told to end."""
    hold()
    rig.run("umount", "-i", mnt)
    rig.run("mount", "-t", "tmpfs", "tmpfs", mnt)
    request.addfinalizer(lambda: rig.file_systems_unmount(mnt))
    rig.write_file(mnt + "/other", b"other")
    cairn.proc.terminate()
    assert cairn.reap() == 0
    assert rig.mounted_at(mnt) and rig.read_file(mnt + "/other") == b"other"


def test_a_timeout_is_over_with_the_mount(cairn):
    """--timeout is for what must be carried before: that the daemon takes a moment to end is no failure."""
    for _ in range(3):
        cairn.mount()
        done = cairn.cairn("umount", "--timeout", "1ms", cairn.mnt)
        assert (done.returncode, done.stderr) == (0, "") and cairn.reap() == 0
