"""The power-cut rig: a store on ext4 in a loop image, cut by an atomic reflink copy of the image.

The outer image is XFS with reflinks; the inner image lies in it. `cp --reflink` of the inner image
while everything runs gives what a disk holds when the power goes: dirty pages are not in it.
"""
import os
import tempfile

import rig


class PowerCut:
    """Outer and inner image; clones of the inner one, mounted one at a time."""

    def __init__(self, size=3 * rig.GIB, base="/dev/shm", extra=""):
        self.folder = tempfile.mkdtemp(prefix="cairn-test-cut-", dir=base)
        self.extra, self.count, self.open = extra, 0, []
        self.outer = self.image("outer.img", "outer", size * 2, "xfs", ("-m", "reflink=1"))
        self.inner_image = os.path.join(self.outer.mountpoint, "inner.img")
        self.inner = self.image(self.inner_image, "inner", size, "ext4", ("-E", "lazy_itable_init=0"), extra)

    def image(self, image, mountpoint, *args):
        loop = rig.LoopImage(os.path.join(self.folder, image), os.path.join(self.folder, mountpoint), *args)
        self.open.append(loop)
        return loop

    def cut(self):
        """Clone the disk as it is at this moment; returns the clone's image."""
        self.count += 1
        clone = os.path.join(self.outer.mountpoint, f"cut-{self.count}.img")
        rig.run("cp", "--reflink=always", self.inner_image, clone)
        return clone

    def mount_cut(self, clone):
        """Mount a clone (its filesystem recovers) and return the LoopImage."""
        return self.image(clone, f"crash-{os.path.basename(clone)}")

    def follow(self, clone):
        """Goes on from a cut: it takes the place of the disk. Nothing may use the disk as it was."""
        old, self.inner, self.inner_image = self.inner, self.mount_cut(clone), clone
        self.drop_cut(old)

    def drop_cut(self, loop):
        loop.close()
        self.open.remove(loop)
        os.unlink(loop.image)

    def close(self):
        for loop in reversed(self.open):
            loop.close()
        rig.shutil.rmtree(self.folder, ignore_errors=True)
