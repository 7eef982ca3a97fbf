# SPDX-License-Identifier: Apache-2.0
"""A process that does operations on the mount, as it is told through a pipe."""
import ctypes
import errno
import multiprocessing
import os
import signal

import model
from model_tree import data_of, digest

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
AT_FDCWD = -100
PROT_READ, PROT_WRITE, MAP_SHARED, MS_SYNC = 1, 2, 1, 4


def call(function, *args):
    if function(*args) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Mapping:
    """A shared map; unlike Python's it holds no descriptor."""

    def __init__(self, fd, size, writable):
        self.size = size
        self.address = LIBC.mmap(None, size, PROT_READ | (PROT_WRITE if writable else 0), MAP_SHARED, fd, 0)
        if self.address == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.bytes = memoryview((ctypes.c_char * size).from_address(self.address)).cast("B")

    def sync(self):
        call(LIBC.msync, self.address, self.size, MS_SYNC)

    def close(self):
        call(LIBC.munmap, self.address, self.size)


class Worker:
    def __init__(self, root):
        self.root, self.fds, self.maps = root, {}, {}

    def path(self, path):
        return os.path.join(self.root, path) if path else self.root

    def do(self, op):
        try:
            return "ok", getattr(self, op[0])(*op[1:])
        except OSError as error:
            return "err", error.errno

    def reset(self):
        """Lets go of everything, dead or not."""
        for mapped in self.maps.values():
            mapped.close()
        for fd in self.fds.values():
            try:
                os.close(fd)
            except OSError:
                pass
        self.maps, self.fds = {}, {}

    def mkdir(self, proc, path, mode):
        os.mkdir(self.path(path), mode)
        return os.lstat(self.path(path)).st_ino

    def symlink(self, proc, target, path):
        os.symlink(target, self.path(path))
        return os.lstat(self.path(path)).st_ino

    def link(self, proc, old, new):
        os.link(self.path(old), self.path(new), follow_symlinks=False)

    def unlink(self, proc, path):
        os.unlink(self.path(path))

    def rmdir(self, proc, path):
        os.rmdir(self.path(path))

    def rename(self, proc, old, new, flags):
        call(LIBC.renameat2, AT_FDCWD, self.path(old).encode(), AT_FDCWD, self.path(new).encode(), flags)

    def list(self, proc, path):
        with os.scandir(self.path(path)) as entries:
            kinds = [(entry, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries]
            return sorted((entry.name, entry.inode(), "d" if d else "l" if link else "f") for entry, d, link in kinds)

    def readlink(self, proc, path):
        return os.readlink(self.path(path))

    def look(self, info):
        return {
            "kind": model.kind_of(info.st_mode),
            "ino": info.st_ino,
            "mode": info.st_mode & 0o7777,
            "uid": info.st_uid,
            "gid": info.st_gid,
            "nlink": info.st_nlink,
            "size": info.st_size,
            "mtime": info.st_mtime_ns,
            "atime": info.st_atime_ns,
        }

    def stat(self, proc, path):
        return self.look(os.lstat(self.path(path)))

    def fstat(self, slot):
        return self.look(os.fstat(self.fds[slot]))

    def chmod(self, proc, path, mode):
        os.chmod(self.path(path), mode)

    def chown(self, proc, path, uid, gid):
        os.chown(self.path(path), uid, gid)

    def utimens(self, proc, path, atime, mtime):
        os.utime(self.path(path), ns=(atime, mtime))

    def setxattr(self, proc, path, name, seed, size, flags):
        os.setxattr(self.path(path), name, data_of(seed, size), flags)

    def removexattr(self, proc, path, name):
        os.removexattr(self.path(path), name)

    def getxattr(self, proc, path, name):
        return os.getxattr(self.path(path), name)

    def listxattr(self, proc, path):
        return sorted(os.listxattr(self.path(path)))

    def open(self, slot, path, flags, mode):
        fd = os.open(self.path(path), flags, mode)
        info = os.fstat(fd)
        if model.kind_of(info.st_mode) == "d":
            os.close(fd)
            raise OSError(errno.EISDIR, path)
        self.fds[slot] = fd
        return info.st_ino

    def close(self, slot):
        os.close(self.fds.pop(slot))

    def dup(self, slot, slot2):
        self.fds[slot2] = os.dup(self.fds[slot])

    def read(self, slot, count):
        return self.all_of(lambda left, done: os.read(self.fds[slot], left), count)

    def pread(self, slot, count, offset):
        return self.all_of(lambda left, done: os.pread(self.fds[slot], left, offset + done), count)

    def all_of(self, read, count):
        """A read of less than what is there is allowed."""
        parts, done = [], 0
        while done < count:
            part = read(count - done, done)
            if not part:
                break
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def write(self, slot, seed, count):
        return os.write(self.fds[slot], data_of(seed, count))

    def pwrite(self, slot, seed, count, offset):
        return os.pwrite(self.fds[slot], data_of(seed, count), offset)

    def lseek(self, slot, offset, whence):
        return os.lseek(self.fds[slot], offset, whence)

    def ftruncate(self, slot, size):
        os.ftruncate(self.fds[slot], size)

    def truncate(self, proc, path, size):
        os.truncate(self.path(path), size)

    def fallocate(self, slot, mode, offset, length):
        call(LIBC.fallocate, self.fds[slot], mode, offset, length)

    def copy(self, slot, slot2, offset, offset2, count):
        return os.copy_file_range(self.fds[slot], self.fds[slot2], count, offset, offset2)

    def fsync(self, slot):
        os.fsync(self.fds[slot])

    def fsyncdir(self, proc, path):
        fd = os.open(self.path(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def cat(self, proc, path):
        with open(self.path(path), "rb", buffering=0) as file:
            return file.readall()

    def sleep(self, proc, milliseconds):
        signal.sigtimedwait([], milliseconds / 1000)

    def fadvise(self, slot):
        os.posix_fadvise(self.fds[slot], 0, 0, os.POSIX_FADV_DONTNEED)

    def mmap(self, map_slot, slot, writable):
        size = os.fstat(self.fds[slot]).st_size
        self.maps[map_slot] = Mapping(self.fds[slot], size, writable)

    def mload(self, map_slot, offset, count):
        return bytes(self.maps[map_slot].bytes[offset : offset + count])

    def mstore(self, map_slot, offset, seed, count):
        self.maps[map_slot].bytes[offset : offset + count] = data_of(seed, count)

    def msync(self, map_slot):
        self.maps[map_slot].sync()

    def munmap(self, map_slot):
        self.maps.pop(map_slot).close()

    def tree(self, proc):
        """{path: what is there}, all of it."""
        seen = {"": self.seen("")}
        for directory, names, files in os.walk(self.root):
            for name in names + files:
                path = os.path.relpath(os.path.join(directory, name), self.root)
                seen[path] = self.seen(path)
        return seen

    def seen(self, path):
        full = self.path(path)
        look = self.look(os.lstat(full))
        link = look["kind"] == "l"
        look["target"] = os.readlink(full) if link else None
        look["xattrs"] = {} if link else {name: os.getxattr(full, name) for name in os.listxattr(full)}
        look["digest"] = digest(self.cat(0, path)) if look["kind"] == "f" else None
        return look


def serve(connection, worker):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0)
    while True:
        op = connection.recv()
        connection.send(worker.do(op))


class Process:
    """A worker's process, and the pipe to it."""

    def __init__(self, root, kind=Worker):
        self.root, self.kind = root, kind
        self.start()

    def start(self):
        context = multiprocessing.get_context("fork")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, self.kind(self.root)), daemon=True)
        self.process.start()
        other.close()

    def do(self, op, timeout=300):
        self.connection.send(op)
        if not self.connection.poll(timeout):
            raise model.Mismatch(f"{model.short(op)}: no answer in {timeout} s")
        try:
            return self.connection.recv()
        except EOFError:
            self.process.join(120)
            raise model.Mismatch(f"{model.short(op)}: the process died: {self.process.exitcode}") from None

    def kill(self):
        self.process.kill()
        self.process.join(120)
        self.connection.close()
