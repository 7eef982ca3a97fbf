# SPDX-License-Identifier: Apache-2.0
"""Content: reading, writing, appending, holes, fallocate, copying, mapping, limits."""
import contextlib
import ctypes
import faulthandler
import fcntl
import hashlib
import itertools
import mmap
import os
import random
import resource
import signal
import struct
import subprocess

from script import LIBC, checked, fallocate, get, in_process, opened, put, script, with_fd

LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
KEEP, PUNCH, NO_HIDE, COLLAPSE, ZERO, INSERT, UNSHARE, WRITE_ZEROES = 1, 2, 4, 8, 16, 32, 64, 128
FICLONE, FICLONERANGE = 0x40049409, 0x4020940D
MIB = 1 << 20


def pattern(size, seed=1):
    return random.Random(seed).randbytes(size)


@script
def read_and_write_arguments(s):
    put("file", b"0123456789")
    with opened("file") as fd:
        for name, call in {
            "at a negative offset": lambda: os.pread(fd, 1, -1), "write at a negative offset": lambda: os.pwrite(fd, b"x", -1),
            "past the end": lambda: os.pread(fd, 5, 100), "over the end": lambda: os.pread(fd, 50, 5),
            "nothing": lambda: os.pread(fd, 0, 0),
            "seek back": lambda: os.lseek(fd, -1, os.SEEK_SET), "seek from the end": lambda: os.lseek(fd, -3, os.SEEK_END),
            "seek before the start": lambda: os.lseek(fd, -11, os.SEEK_END), "seek far": lambda: os.lseek(fd, 1 << 40, os.SEEK_SET),
            "read far": lambda: os.read(fd, 5), "seek how": lambda: os.lseek(fd, 0, 9),
            "seek here": lambda: os.lseek(fd, -(1 << 40) + 4, os.SEEK_CUR),
            "read here": lambda: os.read(fd, 3), "vector": lambda: os.preadv(fd, [bytearray(2), bytearray(3)], 4),
            "empty vector": lambda: os.preadv(fd, [], 4), "write a vector": lambda: os.pwritev(fd, [b"ab", b"", b"cd"], 20),
            "highest offset": lambda: os.pread(fd, 1, (1 << 63) - 1), "read at the limit": lambda: os.pread(fd, 1, (1 << 63) - 2),
            "write past all": lambda: os.pwrite(fd, b"x", (1 << 63) - 1), "truncate past all": lambda: os.ftruncate(fd, (1 << 63) - 1),
            "truncate below 0": lambda: os.ftruncate(fd, -1), "append flag": lambda: os.pwritev(fd, [b"end"], 0, 0x10),
            "unknown flag": lambda: os.pwritev(fd, [b"end"], 0, 0x100000), "no wait": lambda: os.preadv(fd, [bytearray(2)], 0, 8) in (2,),
        }.items():
            s.call(name, call)
        s.note("long vectors", os.pwritev(fd, [b"head", pattern(300_000), b"", b"tail"], 0))
        s.note("long vectors, read", os.preadv(fd, [bytearray(4), bytearray(300_000)], 0))
    s.tree("tree")


@script
def read_write_directories(s):
    os.mkdir("directory")
    with opened("directory", os.O_RDONLY) as fd:
        for name, call in {"read": lambda: os.read(fd, 10), "pread": lambda: os.pread(fd, 10, 0), "write": lambda: os.write(fd, b"x"),
                           "truncate": lambda: os.ftruncate(fd, 0), "map": lambda: mmap.mmap(fd, 4096, prot=mmap.PROT_READ),
                           "sync": lambda: os.fsync(fd),
                           "data sync": lambda: os.fdatasync(fd), "allocate": lambda: fallocate(fd, 0, 0, 10),
                           "lock": lambda: fcntl.flock(fd, fcntl.LOCK_SH),
                           "advise": lambda: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)}.items():
            s.call(name, call)


@script
def append(s):
    put("file", b"start")
    with opened("file", os.O_RDWR | os.O_APPEND) as fd, opened("file", os.O_RDWR) as plain:
        s.note("position", os.lseek(fd, 0, os.SEEK_CUR))
        os.write(fd, b"one")
        s.note("moved", os.lseek(fd, 0, os.SEEK_CUR))
        os.lseek(fd, 2, os.SEEK_SET)
        os.write(fd, b"two")
        s.note("pwrite appends", os.pwrite(fd, b"three", 0))
        os.write(plain, b"S")
        os.ftruncate(plain, 8)
        os.write(fd, b"four")
        os.pwrite(plain, b"far", 20)
        os.writev(fd, [b"a", b"b"])
        fcntl.fcntl(plain, fcntl.F_SETFL, os.O_APPEND)
        os.write(plain, b"now at the end")
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b"T")
    s.note("content", get("file"))


@script
def append_from_processes(s):
    """Records of several processes, none lost, none torn."""
    put("file")

    def work(letter):
        with opened("file", os.O_WRONLY | os.O_APPEND) as fd:
            for size in range(1, 60):
                os.write(fd, letter * (size * 37) + b"\n")
        return "done"

    readers = []
    for letter in (b"a", b"b", b"c", b"d"):
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                work(letter)
                os._exit(0)
            os._exit(1)
        readers.append(pid)
    s.note("ended", [os.waitpid(pid, 0)[1] for pid in readers])
    lines = get("file").split(b"\n")
    s.note("lines", sorted((line[:1], len(line)) for line in lines))
    s.note("whole", all(len(set(line)) <= 1 for line in lines))


@script
def truncate(s):
    for start, *sizes in s.some((0, 1, 4096, 5000, 3 * MIB), (0, 1, 4095, 4097, 10_000, 2 * MIB + 3), (0, 7000, 5 * MIB)):
        with s.directory():
            put("file", pattern(start))
            for size in sizes:
                os.truncate("file", size)
            s.tree(f"{start} {sizes}")


@script
def truncate_while_open(s):
    put("file", pattern(100_000))
    with opened("file") as one, opened("file", os.O_RDONLY) as two:
        os.lseek(one, 50_000, os.SEEK_SET)
        os.truncate("file", 100)
        s.note("read past the end", os.read(one, 10))
        s.note("the other", len(os.read(two, 1000)))
        os.write(one, b"after a hole")
        s.note("size", os.fstat(two).st_size)
        s.note("hole", os.pread(two, 100_000, 90) == pattern(100_000)[90:100] + bytes(49_900) + b"after a hole")
        os.close(os.open("file", os.O_WRONLY | os.O_TRUNC))
        s.note("emptied", (os.fstat(one).st_size, os.pread(two, 10, 0)))


@script
def reader_follows_writer(s):
    """P2: who has read already sees what is added, changed and cut off since, also by another process."""
    put("file", pattern(200_000))
    with opened("file", os.O_RDONLY) as reader:
        def seen():
            return hashlib.sha1(os.pread(reader, 1 << 20, 0)).hexdigest(), os.fstat(reader).st_size

        def other(flags, at, data):
            with opened("file", os.O_WRONLY | flags) as fd:
                os.pwrite(fd, data, at)

        s.note("at first", seen())
        in_process(other, os.O_APPEND, 0, b"appended")
        s.note("appended", seen())
        in_process(other, 0, 1000, b"changed")
        s.note("changed", seen())
        in_process(other, os.O_TRUNC, 0, b"new")
        s.note("emptied and written", seen())
        in_process(os.truncate, "file", 100_000)
        s.note("made longer", seen())
        in_process(other, 0, 300_000, b"far")
        s.note("far behind", seen())
        with opened("file", os.O_RDWR) as writer:
            for number in range(20):
                os.pwrite(writer, bytes([number]) * 10_000, number * 5000)
                s.note(f"draft {number}", seen())
            s.note("draft, elsewhere", in_process(seen))
        s.note("closed", seen())
        put("next", b"next"), os.rename("next", "file")
        s.note("replaced", seen())


@script
def size_limit(s):
    """RLIMIT_FSIZE: EFBIG, and what fits is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with opened("file", NEW) as fd:
            s.call("within", os.write, fd, b"x" * 9000)
            s.call("partly", os.write, fd, b"y" * 9000)
            s.call("past", os.write, fd, b"z")
            s.call("truncate", os.ftruncate, fd, 10_001)
            s.call("allocate", fallocate, fd, 0, 0, 20_000)
            s.call("far", os.pwrite, fd, b"x", 1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    s.tree("tree")


def segments(fd):
    """Data as (start, end), as SEEK_DATA and SEEK_HOLE tell."""
    found, at, size = [], 0, os.fstat(fd).st_size
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(fd, start, os.SEEK_HOLE)
        found.append((start, at))
    return found


@script
def seek_data_and_hole(s):
    layouts = {"empty": (0, ()), "only a hole": (4 * MIB, ()), "data first": (4 * MIB, ((0, 65536),)),
               "data last": (2 * MIB, ((2 * MIB - 65536, 65536),)),
               "in between": (8 * MIB, ((MIB, 65536), (4 * MIB, MIB))), "all data": (MIB, ((0, MIB),))}
    for name, (size, parts) in layouts.items():
        with s.directory(), opened("file", NEW) as fd:
            os.ftruncate(fd, size)
            for at, length in parts:
                os.pwrite(fd, pattern(length), at)
            s.note(f"{name} open", segments(fd))
            for where, whence in itertools.product((-1, 0, 100, 65535, 65536, MIB, size - 1, size, size + 1), (os.SEEK_DATA, os.SEEK_HOLE)):
                with contextlib.suppress(AssertionError):
                    s.call(f"{name} {where} {whence}", os.lseek, fd, where, whence)
            os.fsync(fd)
            s.note(f"{name} synced", segments(fd))
            s.note(f"{name} position",
                   (os.lseek(fd, 5, os.SEEK_SET), s.try_(os.lseek, fd, size + 5, os.SEEK_DATA), os.lseek(fd, 0, os.SEEK_CUR)))


@script
def punched_holes_are_found(s):
    with opened("file", NEW) as fd:
        os.write(fd, pattern(2 * MIB))
        fallocate(fd, PUNCH | KEEP, 65536, 65536)
        fallocate(fd, PUNCH | KEEP, MIB, 8192)
        s.note("segments", segments(fd))
        os.fsync(fd)
        s.note("synced", segments(fd))
        os.pwrite(fd, b"x" * 4096, 69632)
        s.note("filled", segments(fd))


MODES = {"default": 0, "keep": KEEP, "punch": PUNCH | KEEP, "zero": ZERO, "zero keep": ZERO | KEEP, "punch alone": PUNCH,
         "no hide": NO_HIDE, "unshare": UNSHARE,
         "punch zero": PUNCH | ZERO | KEEP, "collapse keep": COLLAPSE | KEEP, "write zeroes": WRITE_ZEROES,
         "write zeroes keep": WRITE_ZEROES | KEEP, "unknown": 0x400}
RANGES = ((0, 0), (0, 1), (-1, 10), (0, -1), (0, 4096), (4096, 8192), (100, 50_000), (1, 99_999), (99_999, 2), (100_000, 10),
          (90_000, 50_000),
          (200_000, 4096), (0, 100_000), (0, 1 << 22))


@script
def fallocate_every_mode(s):
    for (name, mode), (offset, length) in s.some(MODES.items(), RANGES):
        with s.directory(), opened("file", NEW) as fd:
            os.write(fd, pattern(100_000))
            s.call(f"{name} {offset} {length}", fallocate, fd, mode, offset, length)
            s.note(f"{name} {offset} {length} size", os.fstat(fd).st_size)
            s.tree(f"{name} {offset} {length} tree")


@script
def fallocate_of_more_than_there_is(s):
    for name, mode in {"default": 0, "keep": KEEP}.items():
        with s.directory(), opened("file", NEW) as fd:
            room = os.statvfs(".")
            s.call(name, fallocate, fd, mode, 0, 2 * room.f_blocks * room.f_frsize)
            os.ftruncate(fd, 0)  # ext4 keeps what it could get


@script
def fallocate_shifting(s):
    """Collapsing and inserting: not here."""
    for name, mode in {"collapse": COLLAPSE, "insert": INSERT}.items():
        with s.directory(), opened("file", NEW) as fd:
            os.write(fd, pattern(100_000))
            s.call(name, fallocate, fd, mode, 4096, 8192)
            s.note(f"{name} size", os.fstat(fd).st_size)
            s.call(f"{name} on a descriptor that reads", with_fd, "file", os.O_RDONLY, lambda f: fallocate(f, mode, 0, 4096))


@script
def fallocate_on_others(s):
    put("file", b"x"), os.mkdir("directory"), os.mkfifo("fifo")
    for path, flags in (("file", os.O_RDONLY), ("directory", os.O_RDONLY), ("fifo", os.O_RDWR), ("file", os.O_RDWR | os.O_APPEND),
                        ("file", os.O_WRONLY)):
        for name in ("default", "punch", "zero"):
            with opened(path, flags) as fd:
                s.call(f"{path} {flags} {name}", fallocate, fd, MODES[name], 0, 100)
    with opened("file") as fd:
        s.call("past all", fallocate, fd, 0, (1 << 63) - 2, 100)
        s.call("from the begin to the end of all", fallocate, fd, 0, 0, (1 << 63) - 4096)
        s.call("end of all", fallocate, fd, 0, (1 << 63) - 101, 100)
    s.tree("tree")


COPIES = ((0, 0, 100), (0, 0, 100_000), (10, 20, 50_000), (0, 100_000, 100_000), (0, 150_000, 5000), (50_000, 0, 1 << 20), (100_000, 0, 10),
          (200_000, 0, 10), (99_999, 5, 2), (0, 0, 0), (-1, 0, 10), (0, -1, 10), (4096, 8192, 65536), (5000, 5000, 5000))


@script
def copy_file_range(s):
    for sealed, (source, target, length) in itertools.product((True, False), COPIES):
        with s.directory():
            put("from", pattern(100_000)), put("to", pattern(120_000, 2))
            with opened("from") as a, opened("to") as b:
                if not sealed:
                    os.pwrite(a, b"draft", 30_000)
                    os.pwrite(b, b"draft", 30_000)
                s.call(f"{sealed} {source} {target} {length}", os.copy_file_range, a, b, length, source, target)
            s.tree(f"{sealed} {source} {target} {length} tree")


@script
def copy_file_range_within(s):
    """Within one file: what overlaps is refused."""
    for source, target, length in COPIES:
        with s.directory():
            put("file", pattern(100_000))
            with opened("file") as fd, opened("file") as second:
                s.call(f"one {source} {target} {length}", os.copy_file_range, fd, fd, length, source, target)
                s.call(f"two {source} {target} {length}", os.copy_file_range, fd, second, length, source, target)
            s.tree(f"{source} {target} {length} tree")


@script
def copy_file_range_errors(s):
    put("from", pattern(1000)), put("to"), os.mkdir("directory"), os.mkfifo("fifo")
    flags = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "append": os.O_WRONLY | os.O_APPEND}
    for (n1, f1), (n2, f2) in itertools.product(flags.items(), flags.items()):
        with opened("from", f1) as a, opened("to", f2) as b:
            s.call(f"{n1} {n2}", os.copy_file_range, a, b, 10)
    with opened("from") as fd, opened("directory", os.O_RDONLY) as directory, opened("fifo", os.O_RDWR) as fifo:
        for name, pair in {"from directory": (directory, fd), "to directory": (fd, directory), "from fifo": (fifo, fd),
                           "to fifo": (fd, fifo)}.items():
            s.call(name, os.copy_file_range, *pair, 10)
        s.call("past all", os.copy_file_range, fd, fd, 10, 0, (1 << 63) - 5)
    s.tree("tree")


@script
def clones(s):
    """FICLONE; cp --reflink."""
    put("from", pattern(300_000))
    with opened("from") as a, opened("to", NEW) as b:
        s.call("clone", fcntl.ioctl, b, FICLONE, a)
        s.call("clone range", fcntl.ioctl, b, FICLONERANGE, struct.pack("qQQQ", a, 0, 4096, 0))
    for how in ("auto", "always", "never"):
        done = subprocess.run(["cp", f"--reflink={how}", "from", f"copy-{how}"], capture_output=True)
        s.note(f"cp {how}", done.returncode)
        s.note(f"cp {how} there", os.path.exists(f"copy-{how}") and get(f"copy-{how}") == get("from"))
    with opened("sparse", NEW) as fd:
        os.ftruncate(fd, 8 * MIB)
        os.pwrite(fd, pattern(65536), 4 * MIB)
    subprocess.run(["cp", "--sparse=auto", "sparse", "sparse-copy"], check=True)
    with opened("sparse-copy", os.O_RDONLY) as fd:
        s.note("sparse", segments(fd))
    s.tree("tree")


@script
def splices(s):
    put("from", pattern(200_000))
    with opened("from", os.O_RDONLY) as a, opened("to", NEW) as b:
        s.call("sendfile", lambda: sum(iter(lambda: os.sendfile(b, a, None, 65536), 0)))
        reader, writer = os.pipe()
        s.call("splice in", os.splice, a, writer, 4096, offset_src=100)
        s.call("splice out", os.splice, reader, b, 4096, offset_dst=300_000)
        os.close(reader), os.close(writer)
    s.tree("tree")


@script
def direct_io(s):
    """Aligned, it does what other I/O does."""
    area = mmap.mmap(-1, MIB)
    area.write(pattern(MIB))
    with opened("file", NEW | os.O_DIRECT) as fd:
        s.call("write", os.write, fd, area)
        s.call("at 64 KiB", os.pwrite, fd, memoryview(area)[:4096], 65536)
        back = mmap.mmap(-1, MIB)
        s.call("read", os.preadv, fd, [back], 0)
        s.note("same", back[:65536] == area[:65536] and back[65536:69632] == area[:4096])
        s.call("at the end", os.preadv, fd, [back], MIB)
        s.call("over the end", os.preadv, fd, [back], MIB - 4096)
    with opened("file", os.O_RDWR) as fd:
        os.pwrite(fd, b"through the cache", 0)
        with opened("file", os.O_RDONLY | os.O_DIRECT) as direct:
            os.preadv(direct, [memoryview(back)[:4096]], 0)
            s.note("coherent", back[:17])
    s.tree("tree")


@script
def direct_io_unaligned(s):
    """Here any alignment will do."""
    area = mmap.mmap(-1, 8192)
    put("file", bytes(8192))
    with opened("file", os.O_RDWR | os.O_DIRECT) as fd:
        s.call("length", os.pwrite, fd, memoryview(area)[:100], 0)
        s.call("offset", os.pwrite, fd, memoryview(area)[:4096], 100)
        s.call("address", os.preadv, fd, [memoryview(area)[1:4097]], 0)


@script
def io_with_own_map(s):
    """Reading into, and writing from, a map of the file itself."""
    put("file", pattern(300_000))
    for access in (os.O_RDWR, os.O_RDWR | os.O_APPEND):
        with opened("file", access) as fd, mmap.mmap(fd, 300_000) as area:
            s.call(f"write {access}", os.pwrite, fd, memoryview(area)[:100_000], 200_000)
            s.call(f"read {access}", os.preadv, fd, [memoryview(area)[150_000:180_000]], 0)
            area.flush()
        s.tree(f"tree {access}")


@script
def flags_of_descriptors(s):
    """fcntl(2): what can be set later."""
    put("file", b"0123456789" * 1000)
    with opened("file") as fd:
        s.note("first", fcntl.fcntl(fd, fcntl.F_GETFL))
        for name in ("O_APPEND", "O_NONBLOCK", "O_DIRECT", "O_NOATIME", "O_ASYNC", "O_SYNC", "O_TRUNC"):
            s.call(f"set {name}", fcntl.fcntl, fd, fcntl.F_SETFL, getattr(os, name))
            s.note(f"{name} is", fcntl.fcntl(fd, fcntl.F_GETFL))
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
        area = mmap.mmap(-1, 4096)
        s.call("read directly", os.preadv, fd, [area], 4096)
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        s.call("read again", os.pread, fd, 10, 5)
        s.call("seals", fcntl.fcntl, fd, 1034)
        s.call("notify", fcntl.fcntl, fd, 1026, 0)


@script
def map_past_the_end(s):
    """SIGBUS beyond the last page."""
    put("file", b"x" * 100)

    def touch(at):
        with opened("file") as fd:
            area = mmap.mmap(fd, 0)
            base = ctypes.addressof(ctypes.c_char.from_buffer(area))
            os.truncate("file", 0) if at == 0 else None
            ctypes.string_at(base + at, 1)
        return "read"

    for at in (50, 0):
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                faulthandler.disable()
                signal.signal(signal.SIGBUS, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                touch(at)
                os._exit(0)
            os._exit(1)
        status = os.waitpid(pid, 0)[1]
        s.note(f"at {at}", status)


@script
def duplicate_is_closed(s):
    """That of a duplicate, and of a child's descriptor, changes nothing for the other."""
    with opened("file", os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, b"one")
        os.close(os.dup(fd))
        os.write(fd, b"two")
        in_process(lambda: None)
        os.write(fd, b"three")
    s.note("content", get("file"))


@script
def advice_and_syncs(s):
    put("file", pattern(10_000))
    with opened("file") as fd:
        for name in ("NORMAL", "SEQUENTIAL", "RANDOM", "WILLNEED", "DONTNEED", "NOREUSE"):
            s.call(f"advise {name}", os.posix_fadvise, fd, 0, 0, getattr(os, f"POSIX_FADV_{name}"))
        s.call("fsync", os.fsync, fd)
        s.call("fdatasync", os.fdatasync, fd)
        s.call("syncfs", lambda: checked(LIBC.syncfs(fd)))
        s.call("sync_file_range", lambda: checked(LIBC.sync_file_range(fd, 0, 0, 7)))
        s.call("readahead", lambda: checked(LIBC.readahead(fd, 0, 1000)))
    with opened("file", os.O_WRONLY) as fd:
        os.unlink("file")
        s.call("fsync without a name", os.fsync, fd)
    with opened(".", os.O_RDONLY) as fd:
        s.call("fsync of a directory", os.fsync, fd)


@script
def random_calls(s):
    """A long mix on a few files; all that is noted is in order."""
    rng = random.Random(7)
    names = ["a", "b", "c"]
    for number in range(400):
        name, at, size = rng.choice(names), rng.randrange(300_000), rng.choice((1, 100, 4096, 30_000))
        kind = rng.choice(("write", "write", "append", "truncate", "punch", "zero", "copy", "rename", "link", "unlink", "map"))
        with contextlib.ExitStack() as stack:
            try:
                fd = stack.enter_context(opened(name, os.O_RDWR | os.O_CREAT))
                outcome = {
                    "write": lambda: os.pwrite(fd, pattern(size, number), at),
                    "append": lambda: os.pwrite(fd, pattern(size, number), os.lseek(fd, 0, os.SEEK_END)),
                    "truncate": lambda: os.ftruncate(fd, at), "punch": lambda: fallocate(fd, 3, at, size),
                    "zero": lambda: fallocate(fd, 16, at, size),
                    "copy": lambda: os.copy_file_range(fd, stack.enter_context(opened(rng.choice(names), os.O_RDWR | os.O_CREAT)),
                                                       size, 0, at),
                    "rename": lambda: os.rename(name, rng.choice(names)), "link": lambda: os.link(name, rng.choice(names)),
                    "unlink": lambda: os.unlink(name), "map": lambda: store(fd, number),
                }[kind]()
            except (OSError, ValueError) as error:
                outcome = getattr(error, "errno", "ValueError")
        if number % 10 == 9:
            s.tree(f"{number} tree")
        s.note(f"{number} {kind} {name}", outcome)


def store(fd, number):
    with mmap.mmap(fd, 0) as area:
        at = number * 97 % len(area)
        area[at : at + 1] = b"m"
        area.flush()
        return at
