# SPDX-License-Identifier: Apache-2.0
"""The power-cut rig: a store on ext4 in a loop image, cut by an atomic reflink copy of the image.

The outer image is XFS with reflinks; the inner image lies in it. `cp --reflink` of the inner image
while everything runs gives what a disk holds when the power goes: dirty pages are not in it. What was written
and not flushed is: recorded_disk.py is the rig that loses that.
"""
import contextlib
import os
import tempfile

import rig


def put_on(loop, mount):
    mount.store = os.path.join(loop.mountpoint, "store")
    if mount.plain:
        mount.mnt = os.path.join(loop.mountpoint, "mnt")
    return mount


def store_on(loop, cairn):
    """The store that lies on a filesystem, with the options of another mount and an empty stage directory."""
    mount = cairn.make(tempfile.mkdtemp(dir=cairn.root))
    if not cairn.plain:
        mount.options = cairn.options
    return put_on(loop, mount)


class Images:
    """Images on XFS with reflinks, in memory, each mounted when it is needed."""

    def __init__(self, size, base="/dev/shm"):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-cut-", dir=base)
        self.count_images, self.open = 0, []
        self.outer = self.mount(os.path.join(self.directory, "outer.img"), "outer", "", size, "xfs", ("-m", "reflink=1"))

    def mount(self, image, mountpoint, extra="", *args):
        loop = rig.LoopImage(image, os.path.join(self.directory, mountpoint), *args, extra=extra)
        self.open.append(loop)
        return loop

    def mount_cut(self, clone):
        """Mount a clone (its filesystem recovers) and return the LoopImage."""
        return self.mount(clone, f"crash-{os.path.basename(clone)}")

    def drop_cut(self, loop):
        loop.close()
        self.open.remove(loop)
        os.unlink(loop.image)

    @contextlib.contextmanager
    def cut_mounted(self, clone):
        loop = self.mount_cut(clone)
        try:
            yield loop
        finally:
            self.drop_cut(loop)

    def hold(self, mount):
        """From the next mount on its store lies on this disk, and a plain one's files."""
        put_on(self.inner, mount)
        os.makedirs(mount.store, exist_ok=True)
        return mount

    @contextlib.contextmanager
    def store_of_cut(self, cairn, clone):
        """A mount of the store in a cut, not yet mounted, with the same options; its stage is empty."""
        with self.cut_mounted(clone) as loop, contextlib.closing(store_on(loop, cairn)) as mount:
            yield mount

    def close_images(self):
        while self.open:
            self.open.pop().close()

    def close(self):
        self.close_images()
        rig.shutil.rmtree(self.directory, ignore_errors=True)


class PowerCut(Images):
    """Outer and inner image; clones of the inner one, mounted one at a time."""

    def __init__(self, size=3 * rig.GIB, base="/dev/shm", extra=""):
        super().__init__(2 * size, base)
        self.inner_image = os.path.join(self.outer.mountpoint, "inner.img")
        self.inner = self.mount(self.inner_image, "inner", extra, size, "ext4", ("-E", "lazy_itable_init=0"))

    def cut(self):
        """Clone the disk as it is at this moment; returns the clone's image."""
        self.count_images += 1
        clone = os.path.join(self.outer.mountpoint, f"cut-{self.count_images}.img")
        rig.run("cp", "--reflink=always", self.inner_image, clone)
        return clone

    def follow(self, clone):
        """Goes on from a cut: it takes the place of the disk. Nothing may use the disk as it was."""
        old, self.inner, self.inner_image = self.inner, self.mount_cut(clone), clone
        self.drop_cut(old)
