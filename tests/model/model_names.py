# SPDX-License-Identifier: Apache-2.0
"""The part of the model that changes names and attributes."""
import errno
import os

from model_tree import Fail, Inode, data_of

NOREPLACE, EXCHANGE = 1, 2


class Names:
    """What it uses of the model: tree, history, now, result, slots, and the parts below `parts`."""

    # ------------------------------------------------------------ names

    def op_mkdir(self, proc, path, mode):
        return self.make(path, Inode("d", mode, self.now))

    def op_symlink(self, proc, target, path):
        node = Inode("l", 0o777, self.now)
        node.target = target
        return self.make(path, node)

    def make(self, path, node):
        folder, name = self.new_name(path)
        folder.names[name], node.parent, node.nlink = node, folder, 1
        self.touch_folder(folder)
        ino = self.result_ino(node)
        self.history.born(folder, name, node)
        return ino

    def op_link(self, proc, old, new):
        node = self.tree.find(old, follow=False)
        folder, name = self.new_name(new)
        if node.kind == "d":
            raise Fail(errno.EPERM)
        self.history.seal(node)
        folder.names[name] = node
        node.nlink += 1
        node.linked = True
        self.touch_folder(folder)
        self.history.name(folder, name, node)
        self.history.push()

    def op_unlink(self, proc, path):
        folder, name, node = self.tree.place(path)
        if node is None:
            raise Fail(errno.ENOENT)
        if node.kind == "d":
            raise Fail(errno.EISDIR)
        self.history.unname(folder, name, self.drop_name(folder, name))

    def op_rmdir(self, proc, path):
        folder, name, node = self.tree.place(path)
        if node is None:
            raise Fail(errno.ENOENT)
        if node.kind != "d":
            raise Fail(errno.ENOTDIR)
        if node.names:
            raise Fail(errno.ENOTEMPTY)
        self.history.unname(folder, name, self.drop_name(folder, name))

    def op_rename(self, proc, old, new, flags):
        (folder, name), (folder2, name2) = self.tree.walk(old), self.tree.walk(new)
        node, target = folder.names.get(name), folder2.names.get(name2)
        self.check_rename(node, target, folder, folder2, flags)
        if node is target:
            return
        self.seal_moving(node, target, flags)
        self.touch_folder(folder, folder2)
        if flags & EXCHANGE:
            self.exchange(folder, name, folder2, name2)
        else:
            self.move(folder, name, folder2, name2)
        self.history.push()

    def check_rename(self, node, target, folder, folder2, flags):
        if node is None:
            raise Fail(errno.ENOENT)
        if flags & NOREPLACE and target is not None:
            raise Fail(errno.EEXIST)
        if flags & EXCHANGE and target is None:
            raise Fail(errno.ENOENT)
        if node.kind == "d" and self.tree.is_below(folder2, node):
            raise Fail(errno.EINVAL)
        if target is not None and target.kind == "d" and self.tree.is_below(folder, target):
            raise Fail(errno.EINVAL if flags & EXCHANGE else errno.ENOTEMPTY)
        if target is None or target is node or flags & EXCHANGE:
            return
        if (node.kind == "d") != (target.kind == "d"):
            raise Fail(errno.EISDIR if target.kind == "d" else errno.ENOTDIR)
        if target.kind == "d" and target.names:
            raise Fail(errno.ENOTEMPTY)

    def seal_moving(self, node, target, flags):
        """What moves becomes a version first; of a file that has or had several names any may lie below a folder that moves."""
        moving = [node]
        if target is not None and (flags & EXCHANGE or target.nascent):
            moving.append(target)
        folders = [node for node in moving if node.kind == "d"]
        below = {node.id: node for node in moving if node.kind == "f"}
        for _, folder, _, other in self.tree.everything():
            if other.kind == "f" and any(self.tree.is_below(folder, top) for top in folders):
                below[other.id] = other
        sealed = [node for node in below.values() if node.nascent or node.draft]
        others = [node for node in self.drafts() if folders and node.linked and node.id not in below]
        self.history.seal_all(sealed, others)

    def exchange(self, folder, name, folder2, name2):
        node, target = folder.names[name], folder2.names[name2]
        folder.names[name], folder2.names[name2] = target, node
        node.parent, target.parent = folder2, folder
        self.history.name(folder, name, target)
        self.history.name(folder2, name2, node)

    def move(self, folder, name, folder2, name2):
        node = folder.names.pop(name)
        lost = folder2.names.get(name2)
        folder2.names[name2], node.parent = node, folder2
        self.history.name(folder, name, None)
        if lost is not None:
            lost.nlink -= 1
            if lost.nlink == 0 or lost.kind == "d":
                self.history.state.pop(lost.id, None)
        self.history.name(folder2, name2, node)

    def op_list(self, proc, path):
        folder = self.tree.find(path)
        if folder.kind != "d":
            raise Fail(errno.ENOTDIR)
        return sorted((name, node.ino, node.kind) for name, node in folder.names.items())

    def op_readlink(self, proc, path):
        node = self.tree.find(path, follow=False)
        if node.kind != "l":
            raise Fail(errno.EINVAL)
        return node.target

    # ------------------------------------------------------------ attributes

    def op_stat(self, proc, path):
        return self.stat(self.tree.find(path, follow=False), path)

    def op_fstat(self, slot):
        return self.stat(self.slots[slot].node, f"slot {slot}")

    def valid_fstat(self, slot):
        return slot in self.slots

    def stat(self, node, path):
        if self.result[0] != "ok":
            return None
        look = self.result[1]
        wanted = {"kind": node.kind, "ino": node.ino, "mode": node.mode, "uid": node.uid, "gid": node.gid}
        if node.kind == "f":
            wanted.update(nlink=node.nlink, size=len(node.data))
        elif node.kind == "l":
            wanted.update(nlink=node.nlink, size=len(node.target))
        self.check_times(node, look, path)
        return {**look, **wanted}

    def op_chmod(self, proc, path, mode):
        node = self.tree.find(path)
        node.mode = mode
        self.attrs(node)

    def op_chown(self, proc, path, uid, gid):
        node = self.tree.find(path)
        node.uid, node.gid = uid, gid
        self.attrs(node)

    def op_utimens(self, proc, path, atime, mtime):
        node = self.tree.find(path)
        node.atime = atime
        if node.map_dirty:
            node.mtime, node.set_mtime = ("since", 0.0), None
        else:
            node.mtime, node.set_mtime = ("exact", mtime), mtime
        self.attrs(node)

    def op_setxattr(self, proc, path, name, seed, size, flags):
        node = self.tree.find(path)
        if flags == os.XATTR_CREATE and name in node.xattrs:
            raise Fail(errno.EEXIST)
        if flags == os.XATTR_REPLACE and name not in node.xattrs:
            raise Fail(errno.ENODATA)
        node.xattrs[name] = data_of(seed, size)
        self.attrs(node)

    def op_removexattr(self, proc, path, name):
        node = self.tree.find(path)
        if name not in node.xattrs:
            raise Fail(errno.ENODATA)
        del node.xattrs[name]
        self.attrs(node)

    def op_getxattr(self, proc, path, name):
        node = self.tree.find(path)
        if name not in node.xattrs:
            raise Fail(errno.ENODATA)
        return node.xattrs[name]

    def op_listxattr(self, proc, path):
        return sorted(self.tree.find(path).xattrs)
