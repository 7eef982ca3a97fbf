# SPDX-License-Identifier: Apache-2.0
"""What the kernel keeps: names and attributes that are known cost no request, and every change is seen at once."""
import concurrent.futures
import contextlib
import ctypes
import mmap
import os
import struct
import time

import pytest

import rig
from kept import FEW, KEPT, LIBC, PUNCH_HOLE, Statx, asked_of_the_daemon, need_kernel, requests, seen

pytestmark = pytest.mark.needs_mount

ASKERS = 3


def make_files(directory, count):
    os.mkdir(directory)
    paths = [os.path.join(directory, f"shard-{i:05}.pt") for i in range(count)]
    for path in paths:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    return paths


def test_known_files_cost_no_request(cairn, mnt):
    """10^4 files that were looked at once, and as many names that are not there, are known without a request, as a mount without options
    has it."""
    paths = make_files(os.path.join(mnt, "many"), 10_000)
    absent = [path + ".tmp" for path in paths]
    cairn.wait()
    first = [os.stat(path) for path in paths]
    assert not any(os.path.exists(path) for path in absent)
    before = requests(cairn)
    assert [os.stat(path) for path in paths] == first
    assert not any(os.path.exists(path) for path in absent)
    assert requests(cairn) - before <= FEW


def test_listing_with_attributes_makes_known(cairn):
    """A listing that fetches attributes as well leaves nothing to ask: one request for many entries."""
    cairn.mount(**KEPT)
    directory = os.path.join(cairn.mnt, "many")
    paths = make_files(directory, 2_000)
    cairn.remount(**KEPT)
    before = requests(cairn)
    with os.scandir(directory) as entries:
        assert sum(entry.stat().st_nlink for entry in entries) == len(paths)
    asked = requests(cairn) - before
    assert asked < 100, "attributes come with the listing"


def test_known_directories_cost_no_request(cairn):
    """As files do, from when they were made; the first change of one is seen, and what is asked for then is few."""
    cairn.mount(**KEPT)
    directories = [os.path.join(cairn.mnt, f"step{number:04}") for number in range(1000)]
    for directory in directories:
        os.mkdir(directory)
    first = [os.stat(directory) for directory in directories]
    before = requests(cairn)
    assert [os.stat(directory) for directory in directories] == first
    assert requests(cairn) - before <= FEW
    os.mkdir(directories[7] + "/below")
    assert os.stat(directories[7]).st_mtime_ns > first[7].st_mtime_ns
    assert seen(os.stat(directories[7])) == asked_of_the_daemon(directories[7])
    assert requests(cairn) - before <= FEW


def test_reading_costs_few_requests(cairn):
    """Open, read and close of a known file are three requests, and two where the kernel has its pages: a close that seals nothing is none."""
    cairn.mount(**KEPT)
    paths = make_files(os.path.join(cairn.mnt, "many"), 200)
    for path in paths:
        rig.write_file(path, b"content")
    cairn.wait()
    for path in paths:
        os.stat(path)
    for each in (3, 2):
        before = requests(cairn)
        for path in paths:
            with rig.opened(path, os.O_RDONLY) as fd:
                assert os.read(fd, 100) == b"content"
        rig.poll(lambda before=before, each=each: requests(cairn) - before >= each * len(paths), 10, "the releases")
        assert requests(cairn) - before <= each * len(paths) + FEW


class Seen:
    """What stat tells of a path, asked before and after."""

    def __init__(self, path):
        self.path = path
        self.before = os.stat(path)

    def now(self):
        return os.stat(self.path)


def change_by_write(path):
    with rig.opened(path) as fd:
        os.pwrite(fd, b"x" * 5000, 100_000)
        assert os.stat(path).st_size == 105_000, "before the file is closed"


def change_by_append(path):
    with rig.opened(path, os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"more")


def change_by_truncate(path):
    with rig.opened(path) as fd:
        os.ftruncate(fd, 10)


def change_by_open(path):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def change_by_store(path):
    with rig.opened(path) as fd, mmap.mmap(fd, 4096) as memory:
        memory[0:5] = b"store"
        memory.flush()


def change_by_fallocate(path):
    with rig.opened(path) as fd:
        os.posix_fallocate(fd, 0, 1 << 20)


def change_by_copy(path):
    with rig.opened(path) as fd, rig.opened(path, os.O_RDONLY) as source:
        os.copy_file_range(source, fd, 4096, 0, 200_000)


CHANGES = {
    "write": (change_by_write, {"st_size": 105_000}),
    "append": (change_by_append, {"st_size": 8196}),
    "truncate": (change_by_truncate, {"st_size": 10}),
    "open": (change_by_open, {"st_size": 0}),
    "store": (change_by_store, {"st_size": 8192}),
    "fallocate": (change_by_fallocate, {"st_size": 1 << 20}),
    "copy": (change_by_copy, {"st_size": 204_096}),
    "chmod": (lambda path: os.chmod(path, 0o4751), {"st_mode": 0o104751}),
    "chown": (lambda path: os.chown(path, 4, 5), {"st_uid": 4, "st_gid": 5}),
    "utime": (lambda path: os.utime(path, ns=(7, 8)), {"st_atime_ns": 7, "st_mtime_ns": 8}),
    "link": (lambda path: os.link(path, path + ".other"), {"st_nlink": 2}),
    "xattr": (lambda path: os.setxattr(path, "user.note", b"x"), {}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_by_another_handle_is_seen(cairn, change):
    """Attributes that the kernel keeps for an hour are new at once, under each name of the file."""
    cairn.mount(**KEPT)
    path, link = os.path.join(cairn.mnt, "file"), os.path.join(cairn.mnt, "link")
    rig.write_file(path, rig.seeded_bytes(1, 8192))
    cairn.wait()
    seen = Seen(path)
    time.sleep(0.01)
    function, expected = CHANGES[change]
    function(path)
    now = seen.now()
    assert {name: getattr(now, name) for name in expected} == expected
    assert now.st_ctime_ns > seen.before.st_ctime_ns
    os.link(path, link)
    os.unlink(path)
    assert os.stat(link).st_nlink == expected.get("st_nlink", 1)
    cairn.remount(**KEPT)
    after = os.stat(link)
    assert (after.st_size, after.st_mode, after.st_mtime_ns) == (now.st_size, now.st_mode, now.st_mtime_ns)


def change_by_rename(path):
    os.rename(path, path + ".moved")
    return path + ".moved"


def change_by_punch(path):
    with rig.opened(path) as fd:
        assert LIBC.fallocate(fd, PUNCH_HOLE, 0, 4096) == 0, os.strerror(ctypes.get_errno())


def change_by_chunk_copy(path):
    """From a file that is stored: by reference."""
    with rig.opened(path) as fd, rig.opened(os.path.join(os.path.dirname(path), "source"), os.O_RDONLY) as source:
        assert os.copy_file_range(source, fd, 1 << 16, 0, 4096) == 1 << 16


def change_by_rename_over(path):
    rig.write_file(path + ".new", b"new")
    os.rename(path + ".new", path + ".name")


def io_call(number, *args):
    result = LIBC.syscall(number, *args)
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result


class Aio:
    """io_submit(2), without a library."""

    def __init__(self):
        self.context, self.page, self.events = ctypes.c_ulong(0), mmap.mmap(-1, 4096), ctypes.create_string_buffer(32)
        io_call(206, 8, ctypes.byref(self.context))  # io_setup

    def write(self, fd):
        """Returns while it is under way."""
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        self.block = ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, at, 4096, 0, 0, 0, 0), 64)
        blocks = (ctypes.c_void_p * 1)(ctypes.addressof(self.block))
        assert io_call(209, self.context, ctypes.c_long(1), blocks) == 1

    def wait(self):
        assert io_call(208, self.context, ctypes.c_long(1), ctypes.c_long(1), self.events, None) == 1
        assert struct.unpack_from("<q", self.events, 16)[0] == 4096


AIO = []


def change_by_write_under_way(path):
    """The kernel marks attributes when such a write begins, and not when it has ended."""
    if not AIO:
        AIO.append(Aio())
    with rig.opened(path, os.O_RDWR | os.O_DIRECT) as fd:
        AIO[0].write(fd)
        os.fstat(fd)
        AIO[0].wait()


OVERTAKING = {
    "entry": lambda path: os.mkdir(path + "/below"),
    "rename": change_by_rename,
    "xattr": lambda path: os.setxattr(path, "user.note", b"x"),
    "punch": change_by_punch,
    "store": change_by_store,
    "copy": change_by_chunk_copy,
    "write": change_by_append,
    "truncate": lambda path: os.truncate(path, 10),
    "chmod": lambda path: os.chmod(path, 0o4751),
    "chown": lambda path: os.chown(path, 4, 5),
    "utime": lambda path: os.utime(path, ns=(7, 8)),
    "link": lambda path: os.link(path, path + ".other"),
    "unlink": lambda path: os.unlink(path + ".name"),
    "rename over": change_by_rename_over,
    "write under way": change_by_write_under_way,
}


class Askers:
    """Threads that ask for one path, again and again."""

    def __init__(self, rest):
        self.rest = self.target = rest
        self.ended, self.rounds = False, [0] * ASKERS
        self.pool = concurrent.futures.ThreadPoolExecutor(ASKERS)
        self.done = [self.pool.submit(self.run, number) for number in range(ASKERS)]

    def run(self, number):
        while not self.ended:
            with contextlib.suppress(AssertionError):  # it has moved, or is not there yet
                asked_of_the_daemon(self.target)
            self.rounds[number] += 1

    def come(self, path):
        """Returns when each is at it, and has the last answer for what it asked for before."""
        self.target = path
        before = list(self.rounds)
        rig.poll(lambda: all(now > then for now, then in zip(self.rounds, before)), what="the askers", step=0)

    def leave(self):
        self.come(self.rest)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended = True
        for one in self.done:
            one.result()
        self.pool.shutdown()


def change_while_it_is_asked_for(cairn, paths, changing):
    """Changes each. What of it the kernel tells otherwise than the daemon: when the askers have left, and when all is over."""
    wrong, names = [], []
    with Askers(cairn.mnt) as askers:
        for path in paths:
            askers.come(path)
            names.append(changing(path) or path)
            askers.leave()
            wrong += what_is_wrong(names[-1:])
    return wrong + what_is_wrong(names)


def what_is_wrong(names):
    """Where the kernel says otherwise than the daemon."""
    kept, true = {name: seen(os.stat(name)) for name in names}, {name: asked_of_the_daemon(name) for name in names}
    return [f"{name}: {what} {kept[name][what]}, not {true[name][what]}" for name in names
            for what in true[name] if kept[name][what] != true[name][what]]


@pytest.mark.parametrize("change", OVERTAKING)
def test_answer_that_a_change_overtook_is_not_kept(cairn, change, full):
    """A call in the very moment of a change may return an older answer after it: later calls do not. All is in
    the stage alone: what is told when it has become durable helps none of them."""
    cairn.mount(stage="512M" if full else "128M", writeback_delay="60s", **KEPT)
    if change == "copy":
        cairn.write("source", os.urandom(1 << 17), "nvme")
    paths = [os.path.join(cairn.mnt, f"name{number:05}") for number in range(10_000 if full else 1_000)]
    for path in paths:
        os.mkdir(path) if change == "entry" else rig.write_file(path, b"x" * 8192)
        if change in ("unlink", "rename over"):
            os.link(path, path + ".name")
    assert change_while_it_is_asked_for(cairn, paths, OVERTAKING[change]) == []


def make_privileged(path):
    rig.write_file(path, b"x")
    os.chmod(path, 0o4755)


YOUNG = {
    "directory in a directory": (os.mkdir, lambda path: os.mkdir(path + "/below")),
    "file in a directory": (os.mkdir, lambda path: rig.write_file(path + "/below", b"")),
    "privileged file": (make_privileged, lambda path: os.chmod(path, 0o4711)),
}


@pytest.mark.parametrize("what", YOUNG)
def test_answer_that_a_change_of_something_new_overtook(cairn, what, full):
    """The same of what has just been made, and was changed a moment ago."""
    cairn.mount(stage="512M" if full else "128M", writeback_delay="60s", **KEPT)
    make, change = YOUNG[what]

    def make_and_change(path):
        make(path)
        time.sleep(0.0005)  # the askers find it
        os.utime(path, (7, 8))
        change(path)

    paths = [os.path.join(cairn.mnt, f"name{number:05}") for number in range(5_000 if full else 500)]
    assert change_while_it_is_asked_for(cairn, paths, make_and_change) == []


MODE_ALONE, LINKS_ALONE = 2, 4  # STATX_MODE, STATX_NLINK


def one_of(path, what):
    """What statx(2) tells that was asked for nothing else."""
    found = Statx()
    assert LIBC.statx(-100, os.fsencode(path), 0, what, ctypes.byref(found)) == 0, os.strerror(ctypes.get_errno())
    return found.mode if what == MODE_ALONE else found.nlink


def serve_writes(requests_from, answers_to, pid_of_nobody=65534):
    """Somebody without privilege writes to the files here whose names come, and says which mode they have then."""
    os.setgroups([]), os.setgid(pid_of_nobody), os.setuid(pid_of_nobody)
    with os.fdopen(requests_from) as paths, os.fdopen(answers_to, "w", buffering=1) as answers:
        for line in paths:
            with rig.opened(line.strip(), os.O_WRONLY) as fd:
                os.write(fd, b"more")
                answers.write(f"{one_of(line.strip(), MODE_ALONE):o}\n")


def test_privileges_that_a_write_took_away_are_gone(cairn, full):
    """Also for a call that asks for the mode alone, which the kernel does not know to be old."""
    cairn.mount(stage="512M" if full else "128M", writeback_delay="60s", **KEPT)
    (requests_from, requests_to), (answers_from, answers_to) = os.pipe(), os.pipe()

    def serve():
        os.chdir(cairn.mnt)
        os.close(requests_to)
        serve_writes(requests_from, answers_to)

    with rig.child(serve):
        os.close(requests_from), os.close(answers_to)
        with os.fdopen(requests_to, "w", buffering=1) as wanted, os.fdopen(answers_from) as answers, Askers(cairn.mnt) as askers:
            for number in range(5_000 if full else 500):
                path = rig.write_file(os.path.join(cairn.mnt, f"name{number:05}"), b"x")
                os.chmod(path, 0o6777)
                askers.come(path)
                wanted.write(os.path.basename(path) + "\n")
                assert answers.readline() == "100777\n"
                askers.leave()
                assert one_of(path, MODE_ALONE) == 0o100777


def test_links_of_a_directory_are_seen(cairn):
    """Also by a call that asks for nothing else."""
    cairn.mount(**KEPT)
    directory, other = os.path.join(cairn.mnt, "directory"), os.path.join(cairn.mnt, "other")
    os.mkdir(directory), os.mkdir(other)
    seen = []
    for change in (lambda: os.mkdir(directory + "/a"), lambda: os.mkdir(directory + "/b"),
                   lambda: os.rename(directory + "/a", directory + "/b"),
                   lambda: os.rename(directory + "/b", other + "/b"), lambda: os.rename(other, directory + "/c"),
                   lambda: rig.write_file(directory + "/x", b""),
                   lambda: exchange(directory + "/x", directory + "/c/b"), lambda: os.rmdir(directory + "/x")):  # fmt: skip
        change()
        seen.append(one_of(directory, LINKS_ALONE))
    assert seen == [3, 4, 3, 2, 3, 3, 4, 3]


def test_change_of_names_is_seen(cairn):
    """Names that come, go and change what they stand for; directories whose times say so."""
    cairn.mount(**KEPT)
    directory, path = os.path.join(cairn.mnt, "directory"), os.path.join(cairn.mnt, "directory", "name")
    os.mkdir(directory)
    assert not os.path.exists(path)
    seen = Seen(directory)
    rig.write_file(path, b"one")
    assert os.stat(path).st_size == 3, "a name that was known not to be there"
    assert seen.now().st_mtime_ns > seen.before.st_mtime_ns
    rig.write_file(path + ".tmp", b"second")
    with rig.opened(path, os.O_RDONLY) as old:
        os.rename(path + ".tmp", path)
        assert (os.stat(path).st_size, os.fstat(old).st_nlink) == (6, 0)
    assert not os.path.exists(path + ".tmp")
    os.mkdir(os.path.join(directory, "below"))
    os.rename(directory, directory + "2")
    assert not os.path.exists(path) and os.stat(os.path.join(directory + "2", "name")).st_size == 6
    os.unlink(os.path.join(directory + "2", "name"))
    os.rmdir(os.path.join(directory + "2", "below"))
    assert os.listdir(directory + "2") == []


def exchange(one, other):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(-100, one.encode(), -100, other.encode(), 2) == 0, os.strerror(ctypes.get_errno())


def test_exchange_is_seen(cairn):
    cairn.mount(**KEPT)
    one, other = os.path.join(cairn.mnt, "one"), os.path.join(cairn.mnt, "other")
    rig.write_file(one, b"1")
    rig.write_file(other, b"22")
    before = (os.stat(one).st_ino, os.stat(other).st_ino)
    exchange(one, other)
    assert (os.stat(other).st_ino, os.stat(one).st_ino) == before
    assert (os.stat(other).st_size, os.stat(one).st_size) == (1, 2)


def test_times_that_were_set_stay(cairn):
    """A time of change in the future is told with the file, not with its seal; of a directory, also when what came and went was never
    stored."""
    cairn.mount(writeback_delay="10m", **KEPT)
    path, directory = os.path.join(cairn.mnt, "file"), os.path.join(cairn.mnt, "directory")
    with rig.opened(path, os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, b"text")
        os.utime(fd, (time.time() + 10_000, time.time() + 10_000))
        before = seen(os.fstat(fd))
    assert seen(os.stat(path)) == asked_of_the_daemon(path) == before
    os.mkdir(directory)
    cairn.wait()
    time.sleep(0.01)  # here and below: so that the times differ
    with rig.opened(os.path.join(directory, "short"), os.O_RDWR | os.O_CREAT):
        with_it = os.stat(directory).st_mtime_ns
        time.sleep(0.01)
        os.unlink(os.path.join(directory, "short"))
    of_directory = seen(os.stat(directory))
    assert of_directory["mtime"] == of_directory["ctime"] > with_it
    cairn.wait()
    assert seen(os.stat(directory)) == asked_of_the_daemon(directory) == of_directory
    cairn.crash(**KEPT)
    assert seen(os.stat(directory)) == of_directory
    cairn.remount(**KEPT)
    assert seen(os.stat(directory)) == of_directory
    assert {**seen(os.stat(path)), "blocks": 0} == {**before, "blocks": 0}


def bytes_in_page_cache(fd, size):
    """Asked through the handle itself: another open of the file may drop what is kept of it."""
    pages = ctypes.create_string_buffer(size // mmap.PAGESIZE)
    address = LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    assert address != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    failed = LIBC.mincore(address, size, pages)
    LIBC.munmap(address, size)
    assert failed == 0, os.strerror(ctypes.get_errno())
    return mmap.PAGESIZE * sum(byte & 1 for byte in pages.raw)


@pytest.fixture
def direct(cairn):
    """A mount on a kernel with which writers bypass the page cache, whatever they opened the file for."""
    need_kernel(6, 6)
    cairn.mount(stage="128M", writeback_delay="10m", **KEPT)
    return cairn


def test_shared_maps_work_with_direct_io(direct):
    """The mount's own test of the kernel went well, and went on to all that is told of it."""
    assert direct.status()["mount"]["mmap_shared"] is True
    assert "use the page cache" not in direct.log()


def test_on_linux_6_1_who_reads_and_writes_uses_the_page_cache(cairn, rng):
    """There a file that bypasses the page cache cannot be mapped shared: the mount finds that out, says so, and maps work."""
    cairn.mount(fuse_minor=37, writeback_delay="10m", **KEPT)
    assert cairn.status()["mount"]["mmap_shared"] is False
    assert "shared mappings with direct I/O do not work here" in cairn.log()
    path, data = os.path.join(cairn.mnt, "file"), bytearray(rng.randbytes(rig.MIB))
    with rig.opened(path, os.O_RDWR | os.O_CREAT) as fd:
        rig.write_all(fd, data)
        assert bytes_in_page_cache(fd, len(data)) > 0
        with mmap.mmap(fd, len(data)) as pages:
            assert pages[:] == data
            pages[5000:5100] = data[5000:5100] = bytes(100)
            data[7000:7100] = b"x" * 100
            os.pwrite(fd, data[7000:7100], 7000)
            assert pages[:] == os.pread(fd, len(data), 0) == data
    assert rig.read_file(path) == data
    cairn.crash(fuse_minor=37, **KEPT)
    assert rig.read_file(path) == data


def test_who_reads_and_writes_bypasses_the_page_cache(direct, rng):
    """O_RDWR leaves nothing there, be it written or read; a reader of the sealed file has it there."""
    path, size = os.path.join(direct.mnt, "file"), 64 * rig.MIB
    data = rng.randbytes(size)
    with rig.opened(path, os.O_RDWR | os.O_CREAT) as fd:
        rig.write_all(fd, data)
        assert bytes_in_page_cache(fd, size) == 0
        assert b"".join(os.pread(fd, rig.MIB, at) for at in range(0, size, rig.MIB)) == data
        assert bytes_in_page_cache(fd, size) == 0
    direct.wait()
    with rig.opened(path, os.O_RDONLY) as fd:
        assert b"".join(os.pread(fd, rig.MIB, at) for at in range(0, size, rig.MIB)) == data
        assert bytes_in_page_cache(fd, size) > 0, "else nothing was measured above"
