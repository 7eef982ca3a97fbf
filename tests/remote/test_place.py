# SPDX-License-Identifier: Apache-2.0
"""`dir:/nfs/run` where /nfs is not mounted is a bare directory of another filesystem: nothing is published into it in place of the
remote."""
import os
import shutil
import zlib

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount


def remove(remote):
    """The mount may put something there meanwhile."""
    while os.path.exists(remote):
        shutil.rmtree(remote, ignore_errors=True)


@pytest.fixture
def disk(request, directory):
    """disk(name): mounts a filesystem of that name at `at`."""
    rig.need_root()
    at = rig.mkdir(directory + "/nfs")
    request.addfinalizer(lambda: rig.file_systems_unmount(at))

    def mount(name):
        image = f"{directory}/{name}"
        return rig.LoopImage(image, at, None if os.path.exists(image) else 512 * rig.MIB)

    mount.at, mount.run = at, at + "/run"
    return mount


@pytest.fixture
def published(on_remote, disk):
    """A store that has published on the first disk, and is not mounted; neither is the disk."""
    first = disk("first")
    mount = on_remote(remotes.DirRemote(disk.at, disk.run))
    mount.mount()
    mount.write("file", b"1", "remote")
    mount.umount()
    first.close()
    return mount


def goes_on(mount, disk):
    first = disk("first")
    mount.mount()
    mount.write("file", b"2", "remote")
    mount.umount()
    assert os.path.exists(disk.run + "/cairn")
    first.close()


def test_not_mounted(published, disk):
    """Neither is the directory made on the disk below, nor one used that is there already."""
    assert "mount its filesystem first" in published.refused()
    assert os.listdir(disk.at) == []
    os.mkdir(disk.run)
    said = published.refused()
    assert "not on the filesystem where this store published before" in said and "ext4" in said, said
    assert os.listdir(disk.run) == [] and not rig.mounted_at(published.mnt)
    os.rmdir(disk.run)
    goes_on(published, disk)


def test_another_disk(published, disk):
    """An empty one of the same kind is another all the same; to begin anew there is possible, and from then on that is the place."""
    second = disk("second")
    os.mkdir(disk.run)
    assert "not on the filesystem where this store published before" in published.refused()
    published.mount(takeover=True)
    published.wait(level="remote")
    published.umount()
    shutil.rmtree(disk.run)
    os.mkdir(disk.run)
    published.mount()
    published.wait(level="remote")
    assert os.path.exists(disk.run + "/cairn"), "one that was emptied begins anew"
    published.umount()
    second.close()


def test_moved(published, disk, directory):
    """With its content it may move to wherever."""
    first = disk("first")
    shutil.copytree(disk.run, directory + "/copy")
    first.close()
    second = disk("second")
    shutil.copytree(directory + "/copy", disk.run)
    published.mount()
    published.write("file", b"2", "remote")
    published.umount()
    shutil.rmtree(disk.run)
    second.close()
    disk("first")
    shutil.rmtree(disk.run)
    os.mkdir(disk.run)
    assert "not on the filesystem where this store published before" in published.refused()


def test_a_new_store_is_told(on_remote, directory):
    """A store that knows no better publishes into what is there, and says on which filesystem that is."""
    mount = on_remote(remotes.DirRemote(directory))
    mount.mount()
    of_root = os.stat(directory).st_dev == os.stat("/").st_dev
    assert ("a new remote begins there, on the filesystem of /" in mount.log()) == of_root
    assert "a new remote begins there" in mount.log()
    mount.remount()
    assert mount.log().count("a new remote begins there") == 1
    mount.umount()


def test_note_of_the_place(published, disk):
    """It has a checksum; one without, of an older version, is read, and gets one."""
    note = published.store + "/remote.place"
    lines = rig.read_file(note).split(b"\n")
    assert len(lines) == 5 and lines[3] == b"crc32 %08x" % zlib.crc32(b"\n".join(lines[:3]) + b"\n")
    second = disk("second")
    os.mkdir(disk.run)
    for damaged in (lines[0][:-1] + b"N", lines[1]), (lines[0], lines[1][:-1] + b"!"):
        rig.write_file(note, b"\n".join([*damaged, *lines[2:]]))
        assert "remote.place, which says on which filesystem this store published before, is damaged" in published.refused()
    rig.write_file(note, lines[0])
    assert "is damaged" in published.refused()
    assert os.listdir(disk.run) == []
    rig.write_file(note, b"\n".join(lines[:3]) + b"\n")
    assert "not on the filesystem where this store published before" in published.refused()
    second.close()
    rig.write_file(note, lines[0])  # where the marker is there, nothing is compared, and the note is mended
    goes_on(published, disk)
    assert rig.read_file(note).split(b"\n")[:2] == lines[:2]  # the number of a loop device is of the day


def test_unmounted_and_mounted_again_under_the_mount(on_remote, disk, directory):
    """While its filesystem is not there nothing is published into the directory below; once it is, the mount goes on by itself."""
    shown = rig.mkdir(directory + "/shown")
    first = disk("first")
    rig.run("mount", "--bind", disk.at, shown)
    try:
        mount = on_remote(remotes.DirRemote(shown, shown + "/run"))
        mount.mount(remote_timeout="2s")
        mount.write("file", b"1", "remote")
        rig.run("umount", "-l", shown)
        os.mkdir(shown + "/run")
        rig.write_file(mount.mnt + "/file", b"2")
        assert mount.cairn("wait", mount.mnt, "--level", "remote", "--timeout", "4s").returncode == 3
        assert mount.status()["remote"]["state"] == "unreachable" and os.listdir(shown + "/run") == []
        os.rmdir(shown + "/run")
        rig.run("mount", "--bind", disk.at, shown)
        mount.wait(level="remote")
        assert mount.status()["remote"]["state"] in ("idle", "uploading")
        mount.umount()
        with mount.elsewhere() as fresh:
            assert rig.read_file(fresh.mnt + "/file") == b"2"
    finally:
        rig.file_systems_unmount(shown)
    first.close()


def test_a_copy_in_its_place_under_the_mount(on_remote, directory):
    """What was put there from a copy may lack what was published since: a mount looks at what is there, and until then nothing is
    published."""
    prefix = directory + "/prefix"
    mount = on_remote(remotes.DirRemote(directory, prefix))
    mount.mount(remote_timeout="2s")
    mount.write("file", b"1", "remote")
    shutil.copytree(prefix, directory + "/copy")
    mount.write("large", b"2" * rig.MIB, "remote")
    remove(prefix)
    os.rename(directory + "/copy", prefix)
    heads = os.listdir(prefix + "/heads")
    rig.write_file(mount.mnt + "/file", b"3")
    assert mount.cairn("wait", mount.mnt, "--level", "remote", "--timeout", "4s").returncode == 3
    assert os.listdir(prefix + "/heads") == heads
    mount.remount()
    mount.wait(level="remote")
    mount.umount()
    with mount.elsewhere() as fresh:
        assert rig.read_file(fresh.mnt + "/file") == b"3" and rig.read_file(fresh.mnt + "/large") == b"2" * rig.MIB


@pytest.mark.parametrize("how", ["removed", "moved", "emptied"])
def test_taken_away_under_the_mount(on_remote, directory, how):
    """Nothing counts as published that lies in a directory which is not the remote any more; where it comes back, it goes on."""
    prefix, away = directory + "/prefix", directory + "/away"
    mount = on_remote(remotes.DirRemote(directory, prefix))
    mount.mount(remote_timeout="2s")
    mount.write("file", b"1", "remote")
    heads = os.listdir(prefix + "/heads")
    if how == "moved":
        os.rename(prefix, away)
    else:
        shutil.copytree(prefix, away)
        remove(prefix)
    if how != "removed":
        os.mkdir(prefix)  # perhaps with the inode number of before
    rig.write_file(mount.mnt + "/file", b"2")
    mount.verb("wait", mount.mnt, "--level", "remote", "--timeout", "8s", code=3)
    assert mount.status()["remote"]["state"] == "unreachable"
    rig.poll(lambda: "put it back, or unmount and mount again" in mount.log(), 20, "what to do")
    assert not os.path.exists(prefix) or os.listdir(prefix) == []
    if how == "moved":
        assert os.listdir(away + "/heads") == heads
        os.rmdir(prefix)
        os.rename(away, prefix)
        mount.wait(level="remote")
    mount.umount()
    if how == "removed":
        os.mkdir(prefix)  # a mount makes no directory where this store published before
    mount.mount()
    mount.wait(level="remote")
    mount.umount()
    shutil.rmtree(mount.store)
    mount.mount()
    assert rig.read_file(mount.mnt + "/file") == b"2"
    mount.umount()
