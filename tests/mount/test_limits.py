# SPDX-License-Identifier: Apache-2.0
"""How large things may be: many files, deep trees, many handles, huge and holey files. Whole with --full, else a small part."""
import concurrent.futures
import contextlib
import ctypes
import errno
import os
import resource
import threading
import time

import pytest

import processes
import rig
from cost import Cost, Stores

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(120)]

LONG_NAME = "n" * 255
PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
FLAT = 1.3
COMPACTION_SHARE = 0.3  # at most, of the CPU time that a chunk costs otherwise (measured: 0.1)
MANY_CHUNKS = {"stage": "512M", "nvme": "24G", "writeback_delay": "100ms"}


def middle(which, costs):
    return sorted(cost[which] for cost in costs)[len(costs) // 2]


def assert_memory(cairn, sanitized):
    """P11: within the formula that is printed at mount."""
    if not sanitized:
        status = cairn.status()
        used, bound = processes.rss_bytes(cairn.proc.pid), status["memory"]["bound_bytes"]
        assert used <= bound, f"{used >> 20} MiB of {status['memory']}"


class Watch:
    """The most that any daemon of a mount used, and what it is allowed; asked as soon as it answers."""

    def __init__(self, cairn):
        self.cairn, self.most, self.bounds, self.ended = cairn, {}, {}, threading.Event()

    def look(self):
        proc = self.cairn.proc
        if proc is None:
            return
        self.most[proc.pid] = max(self.most.get(proc.pid, 0), processes.rss_bytes(proc.pid))
        if proc.pid not in self.bounds:
            self.bounds[proc.pid] = self.cairn.status()["memory"]["bound_bytes"]

    def run(self):
        while not self.ended.wait(0.02):
            with contextlib.suppress(AttributeError, AssertionError, OSError, ValueError, KeyError):  # it does not answer yet, or no longer
                self.look()


@pytest.fixture
def memory(cairn, sanitized):
    """P11 at every moment: assert_memory() sees what is used when it is called, this the most that was used while anything went on."""
    watch = Watch(cairn)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch.run)
        yield watch
        watch.ended.set()
        watching.result()
    assert watch.bounds
    for pid, bound in watch.bounds.items():
        assert sanitized or watch.most[pid] <= bound, f"{watch.most[pid] >> 20} MiB of {bound >> 20} at the most"


@pytest.fixture
def stores(request, mount_factory, directory, cairn):
    small = mount_factory(os.path.join(directory, "small"))
    # unlike that of `cairn` its memory is not watched while it starts
    large = mount_factory(os.path.join(directory, "large"), store=cairn.store)
    for mount in (small, large):
        request.addfinalizer(mount.close)
    return Stores(cairn, small, large)


def assert_flat(few, many):
    for which in ("mount_cpu_s", "mount_s", "write_own_cpu_s", "write_s"):
        assert many[which] <= FLAT * few[which], f"{which}: {few}, {many}"


def make_empty(directory, numbers):
    with rig.opened(directory, os.O_RDONLY) as fd:
        for i in numbers:
            os.close(os.open(f"file-{i:07}", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))


@pytest.mark.alone_with_full
@pytest.mark.usefixtures("memory")
def test_files_in_a_directory(cairn, stores, full, sanitized, report):
    """10^6 files in one directory: listed, found, renamed as one, counted again after a crash and a remount; mounting and writing take no
    longer than with the store as it was after the first tenth."""
    count = 1_000_000 if full else 20_000
    size = {"stage": "512M", "nvme": "16G"}
    cairn.mount(**size)
    directory = rig.mkdir(os.path.join(cairn.mnt, "many"))
    costs = []
    for begin in range(0, count, count // 10):
        cost = Cost(cairn.proc.pid)
        make_empty(directory, range(begin, begin + count // 10))
        costs.append(cost.spent())
        assert_memory(cairn, sanitized)
        if begin == 0:
            stores.keep_small(**size)
    begun = time.monotonic()
    assert len(os.listdir(directory)) == count
    listed = time.monotonic() - begun
    begun = time.monotonic()
    os.rename(directory, directory + "2")
    renamed = time.monotonic() - begun
    cairn.crash(**size)
    assert len(os.listdir(directory + "2")) == count
    cairn.umount()
    few, many = stores.compare(12 if full else 1, **size)
    cairn.mount(**size)
    report("limits_files", {"files": count, "each tenth": costs, "list_s": listed, "rename_s": renamed, "few": few, "many": many})
    if not sanitized and full:
        for which in ("cpu_s", "s"):
            assert middle(which, costs[-3:]) <= FLAT * middle(which, costs[:3]), f"{which}: {costs}"
        assert_flat(few, many)
    names = os.listdir(directory + "2")
    assert len(set(names)) == count
    assert os.stat(os.path.join(directory + "2", f"file-{count - 1:07}")).st_size == 0
    for name in names[:: max(1, count // 5000)]:
        os.unlink(os.path.join(directory + "2", name))
    assert len(os.listdir(directory + "2")) == count - len(names[:: max(1, count // 5000)])
    assert_memory(cairn, sanitized)


def descend(top, depth, make):
    """A descriptor of the directory `depth` below `top`; paths of this length are more than the kernel takes."""
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        if make:
            os.mkdir(LONG_NAME, dir_fd=fd)
        below = os.open(LONG_NAME, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd


@pytest.mark.usefixtures("memory")
def test_deep_tree(cairn, sanitized):
    """Directories 1,000 deep, each with a name of 255 bytes: written below, moved, found again, removed."""
    depth = 1_000
    cairn.mount()
    top = rig.mkdir(os.path.join(cairn.mnt, "top"))
    bottom = descend(top, depth, make=True)
    fd = os.open(LONG_NAME, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=bottom)
    os.write(fd, b"deep")
    os.rename(top, top + "2")
    os.write(fd, b"er")
    os.close(fd)
    os.close(bottom)
    assert os.getxattr(top + "2", "user.cairn.level") in (b"stage", b"nvme")
    assert_memory(cairn, sanitized)
    cairn.wait(top + "2")
    with rig.fails(errno.ENAMETOOLONG):
        os.mkdir(os.path.join(top + "2", "n" * 256))
    cairn.remount()
    bottom = descend(top + "2", depth, make=False)
    with rig.opened(LONG_NAME, os.O_RDONLY, dir_fd=bottom) as fd:
        assert os.read(fd, 100) == b"deeper"
        assert_memory(cairn, sanitized)
    os.unlink(LONG_NAME, dir_fd=bottom)
    for _ in range(depth):
        above = os.open("..", os.O_RDONLY, dir_fd=bottom)
        os.rmdir(LONG_NAME, dir_fd=above)
        os.close(bottom)
        bottom = above
    os.close(bottom)
    os.rmdir(top + "2")
    cairn.umount_whole()


class Holder:
    """A process that has many files open until it is told to end; one process may not have enough descriptors."""

    def __init__(self, work, *args):
        self.ready, ready = os.pipe()
        waits, self.go = os.pipe()

        def hold():
            os.close(self.go)
            resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
            os.write(ready, b"%d" % work(*args))
            os.close(ready)
            os.read(waits, 1)

        self.pid = rig.fork(hold)
        os.close(ready)
        os.close(waits)

    def result(self):
        with os.fdopen(self.ready, "rb") as file:
            return int(file.read() or b"-1")

    def end(self):
        os.write(self.go, b".")
        os.close(self.go)
        assert os.waitpid(self.pid, 0)[1] == 0


def descriptors_allowed(count):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < count:
        pytest.skip(f"a process may not have {count} files open here (RLIMIT_NOFILE)")


def test_scattered_writes_to_what_has_no_name(cairn):
    """docs/posix.md, unlink while open: one in each MiB, which cannot be gathered, fill the stage's tables and get ENOSPC, soon, and
    not after a pack for each of them; there is room for others."""
    cairn.mount(stage="64M", nvme="4G")
    with open(cairn.mnt + "/file", "w+b", 0) as file:
        os.unlink(file.name)
        begun = time.monotonic()
        with rig.fails(errno.ENOSPC):
            for number in range(1_000_000):
                os.pwrite(file.fileno(), os.urandom(4096), number * rig.MIB)
        print(f"{number} writes, {time.monotonic() - begun:.1f} s")
        assert cairn.status()["nvme"]["written_bytes_total"] < rig.MIB
        rig.write_file(cairn.mnt + "/other", rig.seeded_bytes(1, 8 * rig.MIB))
        assert len(os.pread(file.fileno(), 4096, 5000 * rig.MIB).strip(b"\0")) > 4000
    cairn.wait()
    assert "files without a name" in cairn.status()["errors"][-1]["cause"]
    with open(cairn.mnt + "/file", "w+b", 0) as file:  # it is over with the file, and this one can be gathered
        os.unlink(file.name)
        for number in range(20_000):
            os.pwrite(file.fileno(), b"x" * 1000, number * 4096)


def open_pairs(directory, begin, end):
    """Each file is open for writing and for reading."""
    pairs = []
    for i in range(begin, end):
        path = os.path.join(directory, f"{i}")
        pairs.append((os.open(path, os.O_CREAT | os.O_WRONLY, 0o644), os.open(path, os.O_RDONLY)))
    for i in range(begin, end, 50):
        os.write(pairs[i - begin][0], b"%d" % i)
    return sum(os.pread(pairs[i - begin][1], 100, 0) == b"%d" % i for i in range(begin, end, 50))


@pytest.mark.usefixtures("memory")
def test_open_handles(cairn, full, sanitized):
    """10^5 handles at once, half of them for writing, in 8 processes; what was written survives the daemon's death."""
    files, holders = (50_000 if full else 4_000), 8
    each = files // holders
    descriptors_allowed(2 * each + 100)
    cairn.mount()
    running = [Holder(open_pairs, cairn.mnt, i * each, (i + 1) * each) for i in range(holders)]
    assert [holder.result() for holder in running] == [len(range(i * each, (i + 1) * each, 50)) for i in range(holders)]
    assert_memory(cairn, sanitized)
    cairn.kill9()
    for holder in running:
        holder.end()
    cairn.mount()
    for i in range(holders):
        for number in range(i * each, (i + 1) * each, 50):
            assert rig.read_file(os.path.join(cairn.mnt, f"{number}")) == b"%d" % number
    assert len(os.listdir(cairn.mnt)) == files
    assert_memory(cairn, sanitized)


def open_new(directory, number, count):
    for i in range(count):
        os.open(os.path.join(directory, f"{number}-{i:05}-".ljust(250, "n")), os.O_CREAT | os.O_WRONLY, 0o644)
    return count


def test_more_new_files_than_the_log_holds(cairn):
    """New files that are open lie in the stage's log alone: when it runs full of them they become versions, also after a crash."""
    count = 18_000
    descriptors_allowed(count + 100)
    cairn.mount(stage="64M")
    running = [Holder(open_new, cairn.mnt, number, count) for number in range(2)]
    assert [holder.result() for holder in running] == [count] * 2
    cairn.kill9()
    for holder in running:
        holder.end()
    cairn.mount(stage="64M")
    assert len(os.listdir(cairn.mnt)) == 2 * count
    cairn.wait()
    rig.poll(lambda: cairn.status()["nvme"]["files"] == 2 * count, 30, "all to be versions")


def open_until_enfile(path, most):
    fds = []
    try:
        while len(fds) < most:
            fds.append(os.open(path, os.O_RDONLY))
    except OSError as error:
        assert error.errno == errno.ENFILE
    return len(fds)


def test_handles_run_out(cairn, full):
    """More handles than there are places for: ENFILE, and what is open goes on."""
    if not full:
        pytest.skip("only with --full: 135,000 handles")
    descriptors_allowed(15_100)
    cairn.mount()
    path = rig.write_file(os.path.join(cairn.mnt, "file"), b"here")
    with open(path, "rb", buffering=0) as file:
        running = [Holder(open_until_enfile, path, 15_000) for _ in range(9)]
        assert 100_000 <= sum(holder.result() for holder in running) < 135_000
        assert file.read() == b"here"
        with rig.fails(errno.ENFILE):
            os.open(path, os.O_RDONLY)
        last = cairn.status()["errors"][-1]
        assert (last["path"], last["call"], last["errno"]) == ("/file", "open", errno.ENFILE) and "handles are open" in last["cause"], last
        with pytest.raises(OSError):
            os.listdir(cairn.mnt)
        last = cairn.status()["errors"][-1]
        assert (last["path"], last["call"]) == ("/", "opendir"), last
        for holder in running:
            holder.end()
    assert rig.read_file(path) == b"here"


@pytest.mark.usefixtures("memory")
def test_huge_sparse_file(cairn, sanitized):
    """16 TiB, with data at both ends and in the middle: cut, seeked, read, and read again after a crash and a remount."""
    size, middle = 16 << 40, (9 << 40) + 12345
    cairn.mount()
    path = os.path.join(cairn.mnt, "huge")
    places = {0: b"first", middle: b"middle", size - 4: b"last"}
    with open(path, "wb", buffering=0) as file:
        file.truncate(size)
        for offset, data in places.items():
            os.pwrite(file.fileno(), data, offset)

    def check():
        with open(path, "rb", buffering=0) as file:
            fd = file.fileno()
            assert os.fstat(fd).st_size == size and os.fstat(fd).st_blocks < 100
            for offset, data in places.items():
                assert os.pread(fd, len(data), offset) == data
            assert os.pread(fd, rig.MIB, middle - rig.MIB) == bytes(rig.MIB)
            assert os.lseek(fd, 1 << 40, os.SEEK_DATA) <= middle
            assert os.lseek(fd, middle + (1 << 30), os.SEEK_HOLE) == middle + (1 << 30)
            assert os.lseek(fd, 0, os.SEEK_END) == size
        assert_memory(cairn, sanitized)

    check()
    cairn.crash()
    check()
    cairn.remount()
    check()
    os.truncate(path, middle + 3)
    os.truncate(path, size)
    with open(path, "rb") as file:
        assert os.pread(file.fileno(), 6, middle) == b"mid\0\0\0"
    with open(path, "r+b") as file, pytest.raises(OSError) as raised:
        file.truncate((1 << 63) - 1)
    assert raised.value.errno == errno.EFBIG


def seek(fd, offset):
    """Where data, and where a hole is next; None: nowhere."""
    try:
        data = os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        assert error.errno == errno.ENXIO
        data = None
    return data, os.lseek(fd, offset, os.SEEK_HOLE)


@pytest.mark.usefixtures("memory")
def test_holes(cairn, full, sanitized, report):
    """10^6 holes in one file: as many pieces of data between them, each a chunk of its own, found to the byte."""
    count, stride = (1_000_000 if full else 20_000), 8192
    cairn.mount(stage="512M", nvme="16G")
    path = os.path.join(cairn.mnt, "holey")
    tenths = []
    with open(path, "wb", buffering=0) as file:
        for begin in range(0, count, count // 10):
            cost = Cost(cairn.proc.pid)
            for i in range(begin, begin + count // 10):
                os.pwrite(file.fileno(), b"%016d" % i, i * stride)
            tenths.append(cost.spent())
        file.truncate(count * stride)
        assert_memory(cairn, sanitized)
        os.fsync(file.fileno())
    report("limits_holes", {"holes": count, "each tenth": tenths})
    if not sanitized and full:
        assert middle("cpu_s", tenths[-3:]) <= FLAT * middle("cpu_s", tenths[:3]), tenths
    assert_memory(cairn, sanitized)

    def check(step):
        with open(path, "rb", buffering=0) as file:
            fd = file.fileno()
            assert os.fstat(fd).st_size == count * stride
            for i in range(0, count - 1, step):
                begin = i * stride
                assert os.pread(fd, 20, begin) == b"%016d" % i + bytes(4), i
                assert seek(fd, begin) == (begin, begin + 16), i
                assert seek(fd, begin + 7) == (begin + 7, begin + 16), i
                assert seek(fd, begin + 16) == (begin + stride, begin + 16), i
                assert seek(fd, begin + 5000) == (begin + stride, begin + 5000), i
            last = (count - 1) * stride
            assert seek(fd, last) == (last, last + 16) and seek(fd, last + 16) == (None, last + 16)

    check(max(1, count // 5000))
    cairn.wait()
    check(max(1, count // 1000))
    cairn.remount(stage="512M", nvme="16G")
    check(max(1, count // 5000))
    with open(path, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"x" * 16, (count - 1) * stride)
    cairn.wait(path)
    assert_memory(cairn, sanitized)
    cairn.umount_whole()


@pytest.mark.usefixtures("memory")
def test_punched_holes(cairn, full, sanitized):
    """10^6 holes punched into a file that is stored whole, the half of each KiB; memory at every moment, content also after a crash."""
    count, size = (1 << 20 if full else 20 << 10), {"stage": "512M", "nvme": "16G"}
    content = [rig.seeded_bytes(number, rig.MIB) for number in range(8)]
    cairn.mount(**size)
    path, libc = os.path.join(cairn.mnt, "dense"), ctypes.CDLL(None, use_errno=True)
    with open(path, "wb", 0) as file:
        for number in range(count >> 10):
            file.write(content[number % 8])
    cairn.wait()
    with open(path, "r+b", 0) as file:
        for i in range(count):
            r = libc.fallocate(file.fileno(), PUNCH_HOLE, ctypes.c_long(i * 1024 + 512), ctypes.c_long(512))
            assert r == 0, os.strerror(ctypes.get_errno())

    def check():
        with open(path, "rb", 0) as file:
            for i in range(0, count - 1, count // 1000):
                begin = i * 1024
                inside = begin % rig.MIB
                whole = content[begin // rig.MIB % 8][inside : inside + 512] + bytes(512)
                assert os.pread(file.fileno(), 1024, begin) == whole, i
                assert (seek(file.fileno(), begin) == (begin, begin + 512)
                        and seek(file.fileno(), begin + 600) == (begin + 1024, begin + 600)), i

    check()
    cairn.crash(**size)
    check()
    cairn.remount(**size)
    check()
    cairn.umount_whole()


def append_lines(path, writer, count):
    with rig.opened(path, os.O_WRONLY | os.O_APPEND) as fd:
        for i in range(count):
            os.write(fd, b"%03d %010d %s\n" % (writer, i, b"." * 32))


@pytest.mark.usefixtures("memory")
def test_appends_by_many(cairn, full, sanitized):
    """10^5 small appends by 8 processes: each line is there once, whole, in its writer's order."""
    each = 12_500 if full else 1_500
    cairn.mount()
    path = rig.write_file(os.path.join(cairn.mnt, "log"), b"")
    pids = [rig.fork(append_lines, path, writer, each) for writer in range(8)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8

    def check():
        lines = rig.read_file(path).decode().splitlines()
        assert len(lines) == 8 * each
        seen = [0] * 8
        for line in lines:
            writer, number, dots = line.split(" ")
            assert int(number) == seen[int(writer)] and dots == "." * 32
            seen[int(writer)] += 1
        assert_memory(cairn, sanitized)

    check()
    cairn.crash()
    check()


def piece_of(number, i):
    return (b"%08d %08d" % (number, i)).ljust(512, b".")


def write_pieces(directory, number, pieces):
    with open(os.path.join(directory, f"{number}"), "wb", buffering=0) as file:
        for i in range(pieces):
            os.pwrite(file.fileno(), piece_of(number, i), i * 8192)
        file.truncate(pieces * 8192)


@pytest.mark.alone_with_full
def test_many_chunks(cairn, stores, memory, full, sanitized, report):
    """With --full 10^5 chunks, then 10^6 (else a fiftieth): memory within the formula at every moment. A chunk takes no longer in the last
    three tenths than in the first, nor more CPU time (compactions of the view are judged apart: none are due at first); and mounting
    and writing take no longer than with the store as it was after the first tenth."""
    files, pieces = (1000, 1000) if full else (20, 1000)
    cairn.mount(**MANY_CHUNKS)
    chunks = []
    for begin in range(0, files, files // 10):
        cost = Cost(cairn.proc.pid)
        for number in range(begin, begin + files // 10):
            write_pieces(cairn.mnt, number, pieces)
        assert_memory(cairn, sanitized)  # of the daemon that took them, before and after it carried them to NVMe
        cairn.wait()
        assert_memory(cairn, sanitized)
        chunks.append({name: value / (files // 10 * pieces) for name, value in cost.spent().items()})
        if begin == 0:
            stores.keep_small(**MANY_CHUNKS)
    cairn.umount()
    few, many = stores.compare(12 if full else 1, **MANY_CHUNKS)
    report("limits_chunks", {"each of a tenth": chunks, "few": few, "many": many})
    report("limits_chunks_memory", {"most_bytes": max(memory.most.values()), "bound_bytes": max(memory.bounds.values())})
    # Of a file that was sealed while it was written (the log was crowded), a few pieces may lie in the journal (16 KiB).
    assert many["chunks"] >= files * pieces * 0.98 and few["chunks"] <= files * pieces * 0.11 + 1000
    if not sanitized and full:
        for which in ("own_cpu_s", "s"):
            assert middle(which, chunks[-3:]) <= FLAT * middle(which, chunks[:3]), f"{which}: {chunks}"
        assert middle("compaction_s", chunks[-3:]) <= COMPACTION_SHARE * middle("own_cpu_s", chunks[-3:]), chunks
        assert_flat(few, many)
    cairn.mount(**MANY_CHUNKS)
    with open(os.path.join(cairn.mnt, "7"), "rb") as file:
        assert os.pread(file.fileno(), 512, 99 * 8192) == piece_of(7, 99)
    cairn.umount_whole()
