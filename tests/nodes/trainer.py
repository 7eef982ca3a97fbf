# SPDX-License-Identifier: Apache-2.0
"""One process of a job on many nodes: does what its standard input says, a JSON list a line, and answers each line.

    trainer.py MOUNTPOINT

It never writes into the bare directory below a mount that is gone: each command begins with a descriptor of the mounted root."""
import contextlib
import errno
import hashlib
import json
import os
import sys

LINE = 32


def content(path, size):
    """So each file's path and length tell what must be in it."""
    return hashlib.shake_128(f"{path} {size}".encode()).digest(size)


def line(number):
    return b"%0*d\n" % (LINE - 1, number)


def write_anew(root, path, size, sync):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=root)
    try:
        if os.write(fd, content(path, size)) != size:
            raise OSError(errno.EIO, "a short write")
        if sync:
            os.fsync(fd)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)  # which may fail, too


def make(root, path, size, sync):
    try:
        os.mkdir(os.path.dirname(path), dir_fd=root)
    except FileExistsError:
        pass
    write_anew(root, path, size, sync)


def replace(root, path, size, sync):
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=root)
    try:
        os.write(fd, content(path, size))
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".tmp", path, src_dir_fd=root, dst_dir_fd=root)


HELD = {}  # descriptors that stay open


def release(_root):
    while HELD:
        with contextlib.suppress(OSError):
            os.close(HELD.popitem()[1])


def overwrite(root, path, size):
    """Another descriptor writes to the file, too, so that this close seals it only later."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=root)
    try:
        if path not in HELD or os.fstat(HELD[path]).st_dev != os.fstat(fd).st_dev:
            release(root)
            HELD[path] = os.open(path, os.O_WRONLY, dir_fd=root)
        os.write(fd, content(path, size))
    except OSError:
        release(root)
        raise
    finally:
        os.close(fd)


def log(root, path, number, sync):
    """The lines before this one were acknowledged. This one may be there already: its answer was lost."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644, dir_fd=root)
    try:
        size = os.fstat(fd).st_size
        if size == number * LINE:
            os.write(fd, line(number))
        elif size != (number + 1) * LINE:
            raise ValueError(f"{path} has {size} bytes before line {number}, of {LINE} bytes")
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def remove_all(root, path):
    """As rm -rf does it with one name: what is gone already is fine, and so is a directory that got something since."""
    try:
        os.unlink(path, dir_fd=root)
    except IsADirectoryError:
        with contextlib.suppress(FileNotFoundError):
            remove_empty(root, path)
    except FileNotFoundError:
        pass


def remove_empty(root, path):
    try:
        os.rmdir(path, dir_fd=root)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


COMMANDS = {
    "make": make,
    "write": write_anew,
    "replace": replace,
    "log": log,
    "overwrite": overwrite,
    "release": release,
    "remove": lambda root, path: os.unlink(path, dir_fd=root),
    "remove_all": remove_all,
    "rmdir": lambda root, path: os.rmdir(path, dir_fd=root),
}


def do(mountpoint, name, *arguments):
    root = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.fstat(root).st_dev == os.stat(os.path.dirname(mountpoint)).st_dev:
            raise OSError(errno.ENOTCONN, "nothing is mounted")
        COMMANDS[name](root, *arguments)
    finally:
        os.close(root)


def main(mountpoint):
    for text in sys.stdin:
        try:
            do(mountpoint, *json.loads(text))
            answer = {}
        except OSError as error:
            answer = {"errno": error.errno}
        except ValueError as error:
            answer = {"wrong": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
