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
        directory, name = self.new_name(path)
        directory.names[name], node.parent, node.nlink = node, directory, 1
        self.touch_directory(directory)
        ino = self.result_ino(node)
        self.history.born(directory, name, node)
        return ino

    def op_link(self, proc, old, new):
        node = self.tree.find(old, follow=False)
        directory, name = self.new_name(new)
        if node.kind == "d":
            raise Fail(errno.EPERM)
        self.history.seal(node)
        directory.names[name] = node
        node.nlink += 1
        node.linked = True
        self.touch_directory(directory)
        self.history.name(directory, name, node)
        self.history.push()

    def op_unlink(self, proc, path):
        directory, name, node = self.tree.place(path)
        if node is None:
            raise Fail(errno.ENOENT)
        if node.kind == "d":
            raise Fail(errno.EISDIR)
        self.history.unname(directory, name, self.drop_name(directory, name))

    def op_rmdir(self, proc, path):
        directory, name, node = self.tree.place(path)
        if node is None:
            raise Fail(errno.ENOENT)
        if node.kind != "d":
            raise Fail(errno.ENOTDIR)
        if node.names:
            raise Fail(errno.ENOTEMPTY)
        self.history.unname(directory, name, self.drop_name(directory, name))

    def op_rename(self, proc, old, new, flags):
        (directory, name), (directory2, name2) = self.tree.walk(old), self.tree.walk(new)
        node, target = directory.names.get(name), directory2.names.get(name2)
        self.check_rename(node, target, directory, directory2, flags)
        if node is target:
            return
        self.seal_moving(node, target, flags)
        self.touch_directory(directory, directory2)
        if flags & EXCHANGE:
            self.exchange(directory, name, directory2, name2)
        else:
            self.move(directory, name, directory2, name2)
        self.history.push()

    def check_rename(self, node, target, directory, directory2, flags):
        if node is None:
            raise Fail(errno.ENOENT)
        if flags & NOREPLACE and target is not None:
            raise Fail(errno.EEXIST)
        if flags & EXCHANGE and target is None:
            raise Fail(errno.ENOENT)
        if node.kind == "d" and self.tree.is_below(directory2, node):
            raise Fail(errno.EINVAL)
        if target is not None and target.kind == "d" and self.tree.is_below(directory, target):
            raise Fail(errno.EINVAL if flags & EXCHANGE else errno.ENOTEMPTY)
        if target is None or target is node or flags & EXCHANGE:
            return
        if (node.kind == "d") != (target.kind == "d"):
            raise Fail(errno.EISDIR if target.kind == "d" else errno.ENOTDIR)
        if target.kind == "d" and target.names:
            raise Fail(errno.ENOTEMPTY)

    def seal_moving(self, node, target, flags):
        """What moves becomes a version first; of a file that has or had several names any may lie below a directory that moves."""
        moving = [node]
        if target is not None and (flags & EXCHANGE or target.nascent):
            moving.append(target)
        directories = [node for node in moving if node.kind == "d"]
        below = {node.id: node for node in moving if node.kind == "f"}
        for _, directory, _, other in self.tree.everything():
            if other.kind == "f" and any(self.tree.is_below(directory, top) for top in directories):
                below[other.id] = other
        sealed = [node for node in below.values() if node.nascent or node.draft]
        others = [node for node in self.drafts() if directories and node.linked and node.id not in below]
        self.history.seal_all(sealed, others)

    def exchange(self, directory, name, directory2, name2):
        node, target = directory.names[name], directory2.names[name2]
        directory.names[name], directory2.names[name2] = target, node
        node.parent, target.parent = directory2, directory
        self.history.name(directory, name, target)
        self.history.name(directory2, name2, node)

    def move(self, directory, name, directory2, name2):
        node = directory.names.pop(name)
        lost = directory2.names.get(name2)
        directory2.names[name2], node.parent = node, directory2
        self.history.name(directory, name, None)
        if lost is not None:
            lost.nlink -= 1
            if lost.nlink == 0 or lost.kind == "d":
                self.history.state.pop(lost.id, None)
        self.history.name(directory2, name2, node)

    def op_list(self, proc, path):
        directory = self.tree.find(path)
        if directory.kind != "d":
            raise Fail(errno.ENOTDIR)
        return sorted((name, node.ino, node.kind) for name, node in directory.names.items())

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
