"""`dir:/nfs/run` where /nfs is not mounted is a bare folder of another filesystem: nothing is published into it in place of the remote."""
import os
import shutil

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount


@pytest.fixture
def disk(request, folder):
    """disk(name): mounts a filesystem of that name at `at`."""
    if os.geteuid() != 0:
        pytest.skip("skipped: mounting a filesystem takes root")
    at = folder + "/nfs"
    os.mkdir(at)
    request.addfinalizer(lambda: rig.file_systems_unmount(at))

    def mount(name):
        image = f"{folder}/{name}"
        return rig.LoopImage(image, at, None if os.path.exists(image) else 512 * rig.MIB)

    mount.at, mount.run = at, at + "/run"
    return mount


@pytest.fixture
def published(on_remote, disk):
    """A store that has published on the first disk, and is not mounted; neither is the disk."""
    first = disk("first")
    mount = on_remote(remotes.DirRemote(disk.at, disk.run))
    mount.mount()
    rig.write_file(mount.mnt + "/file", b"1")
    mount.wait(level="remote")
    mount.umount()
    first.close()
    return mount


def refused(mount):
    done = mount.cairn("mount", mount.store, mount.mnt, "-o", mount.option_string({}))
    assert done.returncode == 32, done
    return done.stderr


def goes_on(mount, disk):
    first = disk("first")
    mount.mount()
    rig.write_file(mount.mnt + "/file", b"2")
    mount.wait(level="remote")
    mount.umount()
    assert os.path.exists(disk.run + "/cairn")
    first.close()


def test_not_mounted(published, disk):
    """Neither is the folder made on the disk below, nor one used that is there already."""
    assert "mount its filesystem first" in refused(published)
    assert os.listdir(disk.at) == []
    os.mkdir(disk.run)
    said = refused(published)
    assert "not on the filesystem where this store published before" in said and "ext4" in said, said
    assert os.listdir(disk.run) == [] and not rig.mounted_at(published.mnt)
    os.rmdir(disk.run)
    goes_on(published, disk)


def test_another_disk(published, disk):
    """An empty one of the same kind is another all the same; to begin anew there is possible, and from then on that is the place."""
    second = disk("second")
    os.mkdir(disk.run)
    assert "not on the filesystem where this store published before" in refused(published)
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


def test_moved(published, disk, folder):
    """With its content it may move to wherever."""
    first = disk("first")
    shutil.copytree(disk.run, folder + "/copy")
    first.close()
    second = disk("second")
    shutil.copytree(folder + "/copy", disk.run)
    published.mount()
    rig.write_file(published.mnt + "/file", b"2")
    published.wait(level="remote")
    published.umount()
    shutil.rmtree(disk.run)
    second.close()
    disk("first")
    shutil.rmtree(disk.run)
    os.mkdir(disk.run)
    assert "not on the filesystem where this store published before" in refused(published)


def test_a_new_store_is_told(on_remote, folder):
    """Who knows no better publishes into what is there, and says on which filesystem that is."""
    mount = on_remote(remotes.DirRemote(folder))
    mount.mount()
    of_root = os.stat(folder).st_dev == os.stat("/").st_dev
    assert ("a new remote begins there, on the filesystem of /" in mount.log()) == of_root
    assert "a new remote begins there" in mount.log()
    mount.remount()
    assert mount.log().count("a new remote begins there") == 1
    mount.umount()
