# SPDX-License-Identifier: Apache-2.0
"""Which devices (st_dev of os.stat()) are mounts of CairnFS that this process sees. The kernel reports a change of the mount table to
poll(), and the table is read again only then. So a question costs three system calls, and none for a filesystem on a disk."""
import fcntl
import os
import re
import select
import threading

from . import _process

TYPE = b"fuse.cairnfs"


class Table:
    def __init__(self):
        self._lock = threading.RLock()  # guards the other fields; poll() refuses a second caller
        self._number = self._identity = self._poll = None
        self._devices = frozenset()
        self._is_old = True

    def devices(self):
        with self._lock:
            if not self._is_open():
                self._open()
            self._is_old = bool(self._poll.poll(0)) or self._is_old
            if self._is_old:  # a change during the read is reported to the next poll()
                self._devices = frozenset(devices_in(read_all(self._number)))
                self._is_old = False
            return self._devices

    def _is_open(self):
        """False also if the program has closed our descriptor, as os.closerange() of a daemon does. Its number may be another file's now."""
        return self._number is not None and identity_of(self._number) == self._identity

    def _open(self):
        with _process.quietly():  # the gate asks devices() for each file that is opened
            self._number = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        fcntl.fcntl(self._number, fcntl.F_SETOWN, os.getpid())
        self._identity = identity_of(self._number)
        self._poll = select.poll()
        self._poll.register(self._number, select.POLLERR | select.POLLPRI)
        self._is_old = True

    def after_fork(self):
        """Parent and child share the open file, and a change is reported to one of them only."""
        if self._is_open():
            os.close(self._number)
        self.__init__()


def identity_of(number):
    """Tells the file that we opened from any other. The mount table that someone else opened has no owner; it reports only changes after
    it was opened. None: the descriptor is closed."""
    try:
        found = os.fstat(number)
        return found.st_dev, found.st_ino, fcntl.fcntl(number, fcntl.F_GETOWN)
    except OSError:
        return None


def read_all(number):
    os.lseek(number, 0, os.SEEK_SET)
    parts = []
    while part := os.read(number, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def mounts_in(table):
    """(device, path, store) of each, as bytes of proc(5): "36 35 98:0 / /mnt rw - type source options", with optional fields before the
    "-". One that another mount hides is among them."""
    for line in table.splitlines():
        before, _, behind = line.partition(b" - ")
        if behind.partition(b" ")[0] == TYPE:
            fields = before.split()
            yield fields[2], fields[4], behind.split()[1]


def devices_in(table):
    for device, _, _ in mounts_in(table):
        major, _, minor = device.partition(b":")
        yield os.makedev(int(major), int(minor))


def path_of(field):
    """Spaces and the like are octal escapes there."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), field))


def mounts():
    with _process.quietly(), open("/proc/self/mountinfo", "rb") as file:
        return list(mounts_in(file.read()))


def places():
    """Where mounts of CairnFS are, each once."""
    return list(dict.fromkeys(path_of(place) for _, place, _ in mounts()))


def store_of(device):
    """The path of the store that is mounted as this device (st_dev of os.stat()). None: it is no mount of CairnFS."""
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    return next((path_of(store) for each, _, store in mounts() if each == number), None)


_table = Table()


def has(device):
    """CairnFS has no disk, so its device has the major number 0."""
    return os.major(device) == 0 and device in _table.devices()


os.register_at_fork(after_in_child=_table.after_fork)
