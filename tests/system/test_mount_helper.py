# SPDX-License-Identifier: Apache-2.0
"""mount(8), umount(8) and fstab lines, with the helpers where these look for them, on a machine of the test's own."""
import json
import os
import subprocess

import pytest

import rig

pytestmark = pytest.mark.needs_mount

NOBODY = 65534


@pytest.fixture
def helped(machine, binary):
    for name in ("mount.cairnfs", "mount.fuse.cairnfs", "umount.cairnfs", "umount.fuse.cairnfs"):
        machine.run("ln", "-s", binary, "/sbin/" + name)
    machine.options = f"stage_dir={machine.stage_dir},stage=64M"
    return machine


def fstab(machine, options, mountpoint=None, path="/etc/fstab"):
    line = f"{machine.store} {mountpoint or machine.mnt} cairnfs {machine.options},{options} 0 0"
    machine.run("bash", "-c", f"echo '{line}' >>{path}")
    return path


def ended(machine):
    """Nothing is left in the stage: the daemon has carried it, and is about to end."""
    return os.listdir(machine.stage_dir) == []


def test_mount_and_umount(helped):
    """By type; as systemd calls umount, and with an option that makes umount look for the helper, it returns when all is on NVMe and
    the daemon has ended."""
    for kind, options, way in [("cairnfs", "", ["-c"]), ("fuse.cairnfs", "", ["-c"]), ("cairnfs", ",uhelper=cairnfs", []),
                               ("cairnfs", ",_netdev", [])]:
        done = helped.run("mount", "-t", kind, helped.store, helped.mnt, "-o", helped.options + options + ",writeback_delay=10m")
        assert "is mounted at" in done.stderr
        helped.shell(f"dd if=/dev/urandom of={helped.mnt}/{kind} bs=1M count=20 status=none")
        helped.run("umount", *way, helped.mnt)
        assert ended(helped) and helped.mounts() == {}
        # What the daemon had when umount returned is what a check finds on NVMe.
        assert "clean" in helped.run("cairn-under-test", "fsck", helped.store).stdout
    shown = helped.run("cairn-under-test", "ls", helped.store + ":/").stdout.split()
    assert shown == ["cairnfs", "fuse.cairnfs"]


def test_umount_without_the_helper(helped):
    """Then the daemon carries the rest by itself."""
    helped.run("mount", "-t", "cairnfs", helped.store, helped.mnt, "-o", helped.options + ",writeback_delay=10m")
    helped.shell(f"dd if=/dev/urandom of={helped.mnt}/file bs=1M count=20 status=none")
    helped.run("umount", "-i", helped.mnt)
    rig.poll(lambda: helped.run("cairn-under-test", "fsck", helped.store, code=None).returncode == 0, what="the daemon's end")
    assert ended(helped)


def test_fstab(helped):
    """A line with what mount(8), systemd and people write there; a private fstab; all of it, twice."""
    words = "defaults,noauto,nofail,_netdev,user,x-systemd.requires=network-online.target,x-systemd.mount-timeout=10min,comment=ours,noatime"
    path = fstab(helped, words, path="/etc/fstab.ours")
    helped.run("mount", "-a", "-T", path)
    assert helped.mounts() == {}, "noauto"
    helped.run("mount", "-T", path, helped.mnt)
    assert {"rw", "nosuid", "nodev", "noexec", "noatime"} <= set(helped.mounts()[helped.mnt].split(","))
    helped.run("umount", helped.mnt)
    other = os.path.join(helped.root, "other mount")
    helped.run("mkdir", other)
    fstab(helped, "nofail,ro", other.replace(" ", "\\040"), path="/etc/fstab.all")
    helped.run("mount", "-a", "-T", "/etc/fstab.all")
    helped.run("mount", "-a", "-T", "/etc/fstab.all")
    assert list(helped.mounts().values()) == ["ro,nosuid,nodev,relatime"]
    assert "Read-only" in helped.run("touch", other + "/x", code=1).stderr
    helped.run("umount", "-c", other)
    assert ended(helped)


@pytest.mark.parametrize("null", [0o666, 0o600])
def test_user_of_fstab(helped, null):
    """An ordinary user mounts and unmounts what fstab lets users mount, with a store of their own. The daemon leaves the pipes of its
    caller even where it may not open /dev/null."""
    helped.shell(f"mknod {helped.root}/null c 1 3; chmod {null:o} {helped.root}/null; mount --bind {helped.root}/null /dev/null")
    helped.shell(f"mknod -m 666 {helped.root}/fuse c 10 229; mount --bind {helped.root}/fuse /dev/fuse; chmod 755 {helped.root}")
    os.chown(helped.stage_dir, NOBODY, NOBODY)
    helped.run("install", "-d", "-o", str(NOBODY), "-m", "700", helped.store)
    helped.run("chown", str(NOBODY), helped.mnt)
    # The build directory may be where others cannot look.
    helped.shell("cp --remove-destination $(readlink -f /usr/bin/cairn-under-test) /usr/bin/cairn-under-test")
    for name in ("mount.cairnfs", "umount.fuse.cairnfs"):
        helped.run("ln", "-sf", "/usr/bin/cairn-under-test", "/sbin/" + name)
    fstab(helped, "noauto,user")
    helped.run("mount", helped.mnt, user=NOBODY)
    helped.run("touch", helped.mnt + "/file", user=NOBODY)
    assert helped.run("ls", helped.mnt, code=2).stderr, "for the user alone"
    helped.run("umount", helped.mnt, user=NOBODY)
    assert helped.mounts() == {} and ended(helped)


def test_remount(helped):
    """ro, rw and the flags of the mount change under open files; what cannot change stays as it is."""
    helped.run("mount", "-t", "cairnfs", helped.store, helped.mnt, "-o", helped.options)
    helped.run("touch", helped.mnt + "/file")
    helped.run("mount", "-o", "remount,ro,noexec", helped.mnt)
    assert {"ro", "noexec"} <= set(helped.mounts()[helped.mnt].split(","))
    assert "Read-only" in helped.run("touch", helped.mnt + "/other", code=1).stderr
    helped.run("mount", "-o", "remount,rw,exec", helped.mnt)
    helped.run("touch", helped.mnt + "/other")
    assert helped.mounts()[helped.mnt] == "rw,nosuid,nodev,relatime"
    helped.run("umount", helped.mnt)
    assert "not a CairnFS mountpoint" in helped.run("/sbin/mount.cairnfs", "x", helped.mnt, "-o", "remount,ro", code=1).stderr


def test_remount_passes_over_the_rest(helped):
    """Options that are fixed at mount, and words that are unknown, change nothing and are no error; what stands beside them is heeded. A
    value that means nothing, and `cairn mount`, are refused."""
    helped.run("mount", "-t", "cairnfs", helped.store, helped.mnt, "-o", helped.options + ",nvme=1G,fsync=stage")

    def now():
        status = json.loads(helped.run("cairn-under-test", "status", "--json", helped.mnt).stdout)
        nvme = status["nvme"]
        cap = nvme["used_bytes"] + nvme["reserved_bytes"] + nvme["available_bytes"]
        stage = status["stage"]
        return status["pid"], stage["dir"], stage["total_bytes"], status["memory"]["formula"], status["remote"]["state"], cap < 1 << 30

    before, flags = now(), helped.mounts()[helped.mnt]
    assert before[2] <= 64 * rig.MIB and before[5]
    for words in ("stage=8G", "nvme=100G", "fsync=remote", f"stage_dir={helped.root}", f"remote=dir:{helped.root}/remote", "nosuch=1,sync"):
        done = helped.run("mount", "-o", "remount," + words, helped.mnt)
        assert (done.stdout, done.stderr) == ("", ""), words
        assert now() == before and helped.mounts()[helped.mnt] == flags, words
    helped.run("mount", "-o", "remount,stage=8G,nosuch,ro,nvme=100G", helped.mnt)
    assert now() == before and "ro" in helped.mounts()[helped.mnt].split(",")
    helped.run("mount", "-o", "remount,rw", helped.mnt)
    done = helped.run("mount", "-o", "remount,stage=much", helped.mnt, code=1)
    assert "'much' for option stage" in done.stderr, done
    done = helped.run("cairn-under-test", "mount", helped.store, helped.mnt, "-o", "remount,ro", code=1)
    assert "mount -o remount" in done.stderr and done.stderr.count("\n") == 1, done
    assert now() == before and helped.mounts()[helped.mnt] == flags
    helped.run("touch", helped.mnt + "/file")
    helped.run("umount", helped.mnt)


def test_remount_of_a_follower(helped):
    """A mount that follows another writer has no changes of its own: made writable by root, the mount refuses each of them."""
    remote = f",remote=dir:{helped.root}/remote"
    helped.run("mount", "-t", "cairnfs", helped.store, helped.mnt, "-o", helped.options + remote)
    helped.shell(f"echo content >{helped.mnt}/file; cairn-under-test umount {helped.mnt} --drain remote")
    helped.run("mount", "-t", "cairnfs", helped.root + "/other", helped.mnt, "-o", helped.options + remote + ",ro")
    helped.run("mount", "-o", "remount,rw", helped.mnt)
    assert "rw" in helped.mounts()[helped.mnt].split(",")
    changes = ["echo x >new", "echo x >>file", "echo x 1<>file", ": >file", "truncate -s 1 file", "mkdir directory", "mv file moved",
               "ln file link", "rm file", "chmod 600 file", "touch file", "setfattr -n user.x -v 1 file"]
    for change in changes:
        done = helped.shell(f"cd {helped.mnt}; {change}", code=None)
        assert done.returncode != 0 and "Read-only file system" in done.stderr, (change, done)
    assert helped.run("cat", helped.mnt + "/file").stdout == "content\n"
    assert helped.run("ls", helped.mnt).stdout == "file\n"
    helped.run("umount", "-c", helped.mnt)
    assert ended(helped)


def test_flags(helped):
    """-f looks only, -s leaves out what is unknown, -n and -v are taken, wrong use is one line."""
    helper = ["/sbin/mount.cairnfs", helped.store, helped.mnt]
    helped.run("mount", "-f", "-n", "-v", "-t", "cairnfs", helped.store, helped.mnt, "-o", helped.options)
    assert helped.mounts() == {} and not os.path.exists(helped.path(helped.store))
    for wrong, word in [
        (["-o", "nosuch=1"], "unknown option 'nosuch'"),
        (["-o", helped.options + ",sync"], "unknown option 'sync'"),
        (["-o", "stage=x"], "'x' for option stage"),
        (["-s", "-o", "stage=x"], "'x' for option stage"),
        (["-x"], "unknown option -x"),
        (["-o"], "requires an argument"),
        (["more"], "wrong number of arguments"),
        (["-N", "nonsense"], "cannot enter the mount namespace nonsense"),
    ]:
        done = helped.run(*helper, *wrong, code=None)
        assert done.returncode in (1, 2) and word in done.stderr and done.stderr.count("\n") == 1, (wrong, done)
    helped.run("mount", "-s", "-t", "cairnfs", helped.store, helped.mnt, "-o", helped.options + ",nosuch=1,sync")
    helped.run("umount", helped.mnt)


def test_namespace(helped):
    """-N mounts where another process lives, and nowhere else."""
    there = subprocess.Popen(
        ["nsenter", f"--mount=/proc/{helped.holder.pid}/ns/mnt", "unshare", "-m", "--propagation", "private", "sh", "-c", "echo; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        there.stdout.readline()
        helped.run("/sbin/mount.cairnfs", helped.store, helped.mnt, "-N", str(there.pid), "-o", helped.options)
        with open(f"/proc/{there.pid}/mountinfo", errors="surrogateescape") as file:
            assert f" {helped.mnt} " in file.read()
        assert helped.mounts() == {}
        helped.run("/sbin/umount.fuse.cairnfs", helped.mnt, "-N", f"/proc/{there.pid}/ns/mnt")
        assert ended(helped)
    finally:
        helped.run("/sbin/umount.fuse.cairnfs", helped.mnt, "-l", "-N", str(there.pid), code=None)
        there.stdin.close()
        there.wait(200)


def test_umount_of_a_busy_mount(helped):
    """It says which processes use it and changes nothing; -l detaches at once, and the rest is carried when none uses it any more."""
    helped.run("mount", "-t", "cairnfs", helped.store, helped.mnt, "-o", helped.options)
    with open(helped.path(helped.mnt) + "/file", "w") as file:
        file.write("content")
        done = helped.run("umount", "-c", helped.mnt, code=None)
        assert done.returncode != 0 and "is in use" in done.stderr and f"process {os.getpid()} " in done.stderr, done
        assert list(helped.mounts()) == [helped.mnt]
        helped.run("umount", "-l", helped.mnt)
        assert helped.mounts() == {}
        file.write("more")
    rig.poll(lambda: ended(helped), what="the daemon's end")
    helped.run("cairn-under-test", "cp", helped.store + ":file", helped.root + "/copy")
    assert helped.run("cat", helped.root + "/copy").stdout == "contentmore"


def test_mount_that_fails(helped):
    """mount(8) passes the reason and the exit code on; nofail is nobody's business but systemd's and mount -a's."""
    wrong = os.path.join(helped.root, "none/store")
    done = helped.run("mount", "-t", "cairnfs", wrong, helped.mnt, "-o", helped.options, code=32)
    assert "does not exist" in done.stderr
    helped.store = wrong
    assert "does not exist" in helped.run("mount", "-a", "-T", fstab(helped, "nofail"), code=None).stderr
    assert helped.mounts() == {}


def test_dead_daemon(helped):
    """Mounting again clears the dead mount and recovers what was in the stage."""
    options = helped.options + ",writeback_delay=10m,successor=off"
    helped.run("mount", "-t", "cairnfs", helped.store, helped.mnt, "-o", options)
    helped.run("bash", "-c", f"echo content >{helped.mnt}/file")
    pid = int(helped.run("cat", helped.store + "/lock").stdout)
    os.kill(pid, 9)
    rig.poll(lambda: helped.run("ls", helped.mnt, code=None).returncode != 0, what="the death of the daemon")
    done = helped.run("mount", "-t", "cairnfs", helped.store, helped.mnt, "-o", options)
    assert "cleared the mount of a dead daemon" in done.stderr
    assert helped.run("cat", helped.mnt + "/file").stdout == "content\n"
    helped.run("umount", helped.mnt)
