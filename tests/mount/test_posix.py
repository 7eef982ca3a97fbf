"""P10: what programs use works, with the meaning that it has on a local filesystem."""
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import random
import stat
import struct
import subprocess
import time

import pytest

import rig

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
NOREPLACE, EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE = 1, 2, 8, 16
PAGE = 4096
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL


def rename_flags(p, q, flags):
    if LIBC.renameat2(AT_FDCWD, p.encode(), AT_FDCWD, q.encode(), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fallocate(fd, mode, offset, length):
    function = LIBC.fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if function(fd, mode, offset, length):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def fails(number):
    with pytest.raises(OSError) as info:
        yield
    assert info.value.errno == number, f"{errno.errorcode[info.value.errno]}, expected {errno.errorcode[number]}"


@contextlib.contextmanager
def opened(path, flags=os.O_RDWR, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture(scope="module")
def shared(request, mount_factory, tmp_path_factory):
    """One mount for the tests of this module that do not need their own."""
    mount = mount_factory(str(tmp_path_factory.mktemp("posix")))
    request.addfinalizer(mount.close)
    return mount.mount()


@pytest.fixture
def d(shared, request):
    """A fresh folder on the mount."""
    path = os.path.join(shared.mnt, request.node.name[:80].replace("/", "_"))
    os.mkdir(path)
    return path


@pytest.fixture
def f(d):
    return os.path.join(d, "file")


def data(size, seed=1):
    return rig.seeded_bytes(seed, size)


# opening

def test_exclusive_create(f):
    """P10: O_EXCL."""
    with opened(f, NEW):
        pass
    with fails(errno.EEXIST):
        os.open(f, NEW)


def test_truncate_on_open(f):
    """P10: O_TRUNC."""
    rig.write_file(f, data(100_000))
    with opened(f, os.O_WRONLY | os.O_TRUNC):
        assert os.stat(f).st_size == 0
    assert rig.read_file(f) == b""


def test_append(f):
    """P10: O_APPEND from two descriptors."""
    with opened(f, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as one, opened(f, os.O_WRONLY | os.O_APPEND) as two:
        os.write(one, b"a" * 5000)
        os.write(two, b"b" * 10)
        os.write(one, b"c")
    assert rig.read_file(f) == b"a" * 5000 + b"b" * 10 + b"c"


def test_append_from_processes(f):
    """P10: appends of several processes do not overwrite each other."""
    rig.write_file(f, b"")

    def append(letter):
        with opened(f, os.O_WRONLY | os.O_APPEND) as fd:
            for _ in range(50):
                os.write(fd, letter * 100)
        return 0

    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(rig.child(append, letter)) for letter in (b"x", b"y", b"z")]
        assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
    got = rig.read_file(f)
    assert len(got) == 15_000
    assert all(len(set(got[i : i + 100])) == 1 for i in range(0, 15_000, 100))


def test_missing_and_wrong_kinds(d, f):
    """P10: errors of open."""
    with fails(errno.ENOENT):
        os.open(f, os.O_RDONLY)
    with fails(errno.EISDIR):
        os.open(d, os.O_WRONLY)
    rig.write_file(f, b"x")
    with fails(errno.ENOTDIR):
        os.open(f, os.O_RDONLY | os.O_DIRECTORY)
    with fails(errno.ENOTDIR):
        os.stat(f + "/below")
    os.symlink("file", f + ".link")
    with fails(errno.ELOOP):
        os.open(f + ".link", os.O_RDONLY | os.O_NOFOLLOW)


def test_access_modes(f):
    """P10: a read-only descriptor does not write and the other way round."""
    rig.write_file(f, b"text")
    with opened(f, os.O_RDONLY) as fd, fails(errno.EBADF):
        os.write(fd, b"x")
    with opened(f, os.O_WRONLY) as fd, fails(errno.EBADF):
        os.read(fd, 1)


def test_direct(f):
    """P10: O_DIRECT writes and reads, also an unaligned tail without it."""
    body = mmap.mmap(-1, 1 << 20)
    body.write(data(1 << 20))
    with opened(f, NEW | os.O_DIRECT) as fd:
        assert os.write(fd, body) == 1 << 20
        back = mmap.mmap(-1, 1 << 20)
        assert os.preadv(fd, [back], 0) == 1 << 20
        assert back[:] == body[:]
    with opened(f, os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"tail")
    assert rig.read_file(f) == body[:] + b"tail"


# reading and writing

@pytest.mark.parametrize("seed", range(3))
def test_random_writes(f, seed):
    """P10: pwrite, ftruncate and pread anywhere, against a model, over reopening."""
    rng, model = random.Random(seed), bytearray()
    fd = os.open(f, NEW)
    for number in range(150):
        kind = rng.random()
        if kind < 0.6:
            at, block = rng.randrange(900_000), data(rng.choice((1, 100, PAGE, 70_000)), number)
            os.pwrite(fd, block, at)
            model.extend(bytes(max(0, at + len(block) - len(model))))
            model[at : at + len(block)] = block
        elif kind < 0.75:
            size = rng.randrange(1_000_000)
            os.ftruncate(fd, size)
            del model[size:]
            model.extend(bytes(size - len(model)))
        elif kind < 0.95:
            at = rng.randrange(1_000_000)
            assert os.pread(fd, 50_000, at) == model[at : at + 50_000]
        else:
            os.close(fd)
            fd = os.open(f, os.O_RDWR)
    os.close(fd)
    assert rig.read_file(f) == model


def test_holes_read_as_zeros(f):
    """P10: holes."""
    with opened(f, NEW) as fd:
        os.pwrite(fd, b"end", 10_000_000)
        assert os.pread(fd, 8192, 5_000_000) == bytes(8192)
    assert rig.read_file(f) == bytes(10_000_000) + b"end"


def test_truncate_down_then_up_gives_zeros(f):
    """P10: bytes that were cut off do not come back."""
    rig.write_file(f, b"\xff" * 10_000)
    os.truncate(f, 100)
    os.truncate(f, 10_000)
    assert rig.read_file(f) == b"\xff" * 100 + bytes(9900)


def test_large_file_sizes(f):
    """P10: a size of terabytes is only a number."""
    with opened(f, NEW) as fd:
        os.ftruncate(fd, 1 << 42)
        os.pwrite(fd, b"far", 1 << 41)
        assert os.pread(fd, 3, 1 << 41) == b"far"
        assert os.pread(fd, 10, (1 << 42) - 5) == bytes(5)
        os.ftruncate(fd, 5)
    assert os.stat(f).st_size == 5


def test_vectors(f):
    """P10: writev and readv."""
    with opened(f, NEW) as fd:
        assert os.writev(fd, [b"head", data(300_000), b"", b"tail"]) == 300_008
        parts = [bytearray(4), bytearray(300_000), bytearray(10)]
        assert os.preadv(fd, parts, 0) == 300_008
    assert (bytes(parts[0]), bytes(parts[1]), bytes(parts[2][:4])) == (b"head", data(300_000), b"tail")


def test_other_process_sees_bytes_before_close(f):
    """P2, P10: a draft is read as it is written, from any process."""
    with opened(f, NEW) as fd:
        os.write(fd, data(200_000))
        assert rig.in_child(lambda: rig.read_file(f) == data(200_000))
        os.pwrite(fd, b"changed", 1000)
        assert rig.in_child(lambda: rig.read_file(f)[1000:1007] == b"changed")
        assert os.stat(f).st_size == 200_000


def test_duplicate_descriptor_closed(f):
    """P10: the close of a duplicate (a FLUSH) changes nothing for the other."""
    with opened(f, NEW) as fd:
        os.write(fd, b"one")
        os.close(os.dup(fd))
        os.write(fd, b"two")
        with rig.child(lambda: 0) as pid:
            os.waitpid(pid, 0)
        os.write(fd, b"three")
    assert rig.read_file(f) == b"onetwothree"


# mmap

@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE], ids=["shared", "private"])
def test_mmap_read(f, flags):
    """P10: mapped reads of a sealed file."""
    rig.write_file(f, data(3_000_000))
    with opened(f, os.O_RDONLY) as fd, mmap.mmap(fd, 0, flags=flags, prot=mmap.PROT_READ) as area:
        assert area[:] == data(3_000_000)


def test_mmap_private_write_stays_private(f):
    """P10: copy on write."""
    rig.write_file(f, data(10_000))
    with opened(f, os.O_RDONLY) as fd:
        with mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as area:
            area[0:4] = b"mine"
    assert rig.read_file(f) == data(10_000)


def test_mmap_shared_write(f):
    """P10: a mapped store is in the file after msync, for other processes, and after close."""
    rig.write_file(f, bytes(1 << 20))
    with opened(f) as fd, mmap.mmap(fd, 1 << 20) as area:
        area[5000:5005] = b"hello"
        area[900_000:900_100] = b"z" * 100
        area.flush()
        assert rig.in_child(lambda: rig.read_file(f)[5000:5005] == b"hello")
    got = rig.read_file(f)
    assert got[5000:5005] == b"hello" and got[900_000:900_100] == b"z" * 100 and len(got) == 1 << 20


def test_mmap_shared_write_survives_without_msync(f):
    """P10: munmap and close are enough."""
    rig.write_file(f, bytes(100_000))
    with opened(f) as fd, mmap.mmap(fd, 0) as area:
        area[77_000:77_003] = b"abc"
    assert rig.in_child(lambda: rig.read_file(f)[77_000:77_003] == b"abc")


def test_mmap_sees_writes(f):
    """P10: what write() did is seen through a map, in the same and in another process."""
    rig.write_file(f, bytes(100_000))
    with opened(f) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as area:
        assert area[50_000:50_005] == bytes(5)

        def other():
            with opened(f, os.O_WRONLY) as mine:
                os.pwrite(mine, b"there", 50_000)
            return True

        assert rig.in_child(other)
        rig.poll(lambda: area[50_000:50_005] == b"there", 5, "the map to show the write")
        os.pwrite(fd, b"again", 60_000)
        rig.poll(lambda: area[60_000:60_005] == b"again", 5, "the map to show the write")


def test_mmap_and_read_agree(f):
    """P10: a store through a shared map is seen by read() from another process without close."""
    rig.write_file(f, bytes(50_000))
    with opened(f) as fd, mmap.mmap(fd, 0) as area:
        area[100:104] = b"page"
        area.flush()
        assert os.pread(fd, 4, 100) == b"page"
        assert rig.in_child(lambda: rig.read_file(f)[100:104] == b"page")


def test_map_lives_after_rename_and_unlink(d, f):
    """P6: live maps are unharmed by renames over the file."""
    rig.write_file(f, data(500_000))
    with opened(f, os.O_RDONLY) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as area:
        rig.write_file(f + ".new", b"other")
        os.rename(f + ".new", f)
        assert area[:] == data(500_000)
        assert os.pread(fd, 500_000, 0) == data(500_000)
    assert rig.read_file(f) == b"other"


# names

def test_rename_moves_file_and_keeps_inode(d, f):
    """P6: rename within and between folders."""
    rig.write_file(f, b"x")
    inode = os.stat(f).st_ino
    os.mkdir(d + "/sub")
    os.rename(f, d + "/sub/other")
    assert os.stat(d + "/sub/other").st_ino == inode
    assert not os.path.exists(f)


def test_rename_of_open_file_over_existing(d, f):
    """P6: the safetensors way: write, rename over the old, only then close."""
    rig.write_file(f, b"old")
    with opened(f, os.O_RDONLY) as reader, opened(f + ".tmp", NEW) as fd:
        os.ftruncate(fd, 10_000)
        os.pwrite(fd, data(10_000), 0)
        os.rename(f + ".tmp", f)
        assert rig.read_file(f) == data(10_000)
        os.pwrite(fd, b"later", 0)
        assert os.read(reader, 10) == b"old"
    assert rig.read_file(f) == b"later" + data(10_000)[5:]


def test_rename_folder_with_open_files(d):
    """P6: a folder is renamed with everything below it."""
    os.makedirs(d + "/a/b")
    rig.write_file(d + "/a/b/sealed", b"sealed")
    with opened(d + "/a/b/open", NEW) as fd:
        os.write(fd, b"one")
        os.rename(d + "/a", d + "/c")
        os.write(fd, b"two")
        assert rig.read_file(d + "/c/b/open") == b"onetwo"
    assert rig.read_file(d + "/c/b/sealed") == b"sealed"
    assert not os.path.exists(d + "/a")


def test_rename_errors(d, f):
    """P6: errors of rename."""
    os.makedirs(d + "/full/sub")
    os.mkdir(d + "/empty")
    rig.write_file(f, b"x")
    with fails(errno.ENOTEMPTY):
        os.rename(d + "/empty", d + "/full")
    with fails(errno.EISDIR):
        os.rename(f, d + "/empty")
    with fails(errno.ENOTDIR):
        os.rename(d + "/empty", f)
    with fails(errno.EINVAL):
        os.rename(d + "/full", d + "/full/sub/deeper")
    with fails(errno.ENOENT):
        os.rename(d + "/nothing", f)
    os.rename(d + "/full", d + "/empty")
    assert os.listdir(d + "/empty") == ["sub"]


def test_rename_noreplace_and_exchange(d, f):
    """P6: RENAME_NOREPLACE and RENAME_EXCHANGE."""
    rig.write_file(f, b"one")
    os.mkdir(d + "/sub")
    rig.write_file(d + "/sub/inner", b"inner")
    with fails(errno.EEXIST):
        rename_flags(f, d + "/sub", NOREPLACE)
    rename_flags(f, d + "/free", NOREPLACE)
    rename_flags(d + "/free", d + "/sub", EXCHANGE)
    assert rig.read_file(d + "/sub") == b"one" and rig.read_file(d + "/free/inner") == b"inner"
    with fails(errno.ENOENT):
        rename_flags(f, d + "/sub", EXCHANGE)


def test_hard_links(d, f):
    """P10: hard links."""
    rig.write_file(f, b"shared")
    os.link(f, f + "2")
    assert os.stat(f).st_nlink == 2 and os.path.samefile(f, f + "2")
    with opened(f + "2", os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"!")
    assert rig.read_file(f) == b"shared!"
    os.unlink(f)
    assert os.stat(f + "2").st_nlink == 1 and rig.read_file(f + "2") == b"shared!"
    with fails(errno.EPERM):
        os.link(d, d + "-link")


def test_symbolic_links(d, f):
    """P10: symbolic links, long and dangling too."""
    rig.write_file(f, b"x")
    os.symlink("file", d + "/soft")
    assert rig.read_file(d + "/soft") == b"x" and os.lstat(d + "/soft").st_size == 4
    target = "t" * 4000
    os.symlink(target, d + "/long")
    assert os.readlink(d + "/long") == target
    with fails(errno.EEXIST):
        os.symlink("again", d + "/soft")


def test_unlink_while_open(f):
    """P10: an open file outlives its name."""
    with opened(f, NEW) as fd:
        os.write(fd, data(300_000))
        os.unlink(f)
        assert not os.path.exists(f)
        assert os.fstat(fd).st_nlink == 0
        os.pwrite(fd, b"more", 300_000)
        assert os.pread(fd, 400_000, 0) == data(300_000) + b"more"
        rig.write_file(f, b"new")
    assert rig.read_file(f) == b"new"


def test_folders(d):
    """P10: mkdir, rmdir, link counts."""
    assert os.stat(d).st_nlink == 2
    os.mkdir(d + "/sub")
    assert os.stat(d).st_nlink == 3
    with fails(errno.EEXIST):
        os.mkdir(d + "/sub")
    rig.write_file(d + "/sub/file", b"")
    with fails(errno.ENOTEMPTY):
        os.rmdir(d + "/sub")
    with fails(errno.EISDIR):
        os.unlink(d + "/sub")
    os.unlink(d + "/sub/file")
    os.rmdir(d + "/sub")
    assert os.stat(d).st_nlink == 2 and os.listdir(d) == []


def test_long_names(d):
    """P10: 255 bytes are a name, 256 are not."""
    name = "ü" * 127 + "x"
    rig.write_file(f"{d}/{name}", b"long")
    assert os.listdir(d) == [name]
    for call in (os.mkdir, os.stat, os.unlink):
        with fails(errno.ENAMETOOLONG):
            call(f"{d}/{'y' * 256}")


def test_strange_names(d):
    """P10: any bytes but / and 0 are a name."""
    names = [b"new\nline", b"\xff\xfe", b" ", b"-rf", b"a\tb", b"*"]
    for name in names:
        rig.write_file(os.fsencode(d) + b"/" + name, name)
    assert sorted(os.listdir(os.fsencode(d))) == sorted(names)
    assert all(rig.read_file(os.fsencode(d) + b"/" + name) == name for name in names)


def test_list_while_entries_come_and_go(d):
    """P10: in a folder of 2,000 entries, those that stay are listed exactly once."""
    stay = {f"stay-{number:04}" for number in range(1000)}
    for number in range(1000):
        rig.write_file(f"{d}/stay-{number:04}", b"")
        rig.write_file(f"{d}/go-{number:04}", b"")
    for turn in range(3):
        seen = []
        with os.scandir(d) as entries:
            for count, entry in enumerate(entries):
                seen.append(entry.name)
                if count % 4 == 0:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(f"{d}/go-{turn * 300 + count // 4:04}")
                    rig.write_file(f"{d}/new-{turn}-{count}", b"")
        assert len(seen) == len(set(seen))
        assert stay <= set(seen)
    names = os.listdir(d)
    assert len(names) == len(set(names)) and stay <= set(names)
    subprocess.run(["rm", "-r", d], check=True)
    assert not os.path.exists(d)


def test_inode_numbers_in_listing(d):
    """P10: readdir and stat agree."""
    for number in range(20):
        rig.write_file(f"{d}/{number}", b"")
    os.mkdir(d + "/sub")
    for entry in os.scandir(d):
        assert entry.inode() == os.stat(entry.path).st_ino
        assert entry.is_dir(follow_symlinks=False) == (entry.name == "sub")


# attributes

def test_modes_and_owners(f):
    """P10: chmod and chown; a write takes setuid away or the mode stays."""
    rig.write_file(f, b"x")
    os.chmod(f, 0o640)
    os.chown(f, 1234, 4321)
    info = os.stat(f)
    assert (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid) == (0o640, 1234, 4321)
    with opened(f) as fd:
        os.fchmod(fd, 0o7600)
        os.fchown(fd, -1, 99)
        assert os.fstat(fd).st_gid == 99


def test_permissions_are_enforced(d, f):
    """P12: another user gets what the mode says."""
    rig.write_file(f, b"secret")
    os.chmod(f, 0o600)

    def as_nobody():
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            os.open(f, os.O_RDONLY)
        except PermissionError:
            return "refused"
        return "opened"

    if os.geteuid() != 0:
        pytest.skip("skipped: needs root")
    assert rig.in_child(as_nobody) == "refused"


def test_times(f):
    """P10: utimens with nanoseconds; writes move mtime and ctime."""
    rig.write_file(f, b"x")
    os.utime(f, ns=(1_111_111_111_222_333_444, 1_555_555_555_666_777_888))
    info = os.stat(f)
    assert (info.st_atime_ns, info.st_mtime_ns) == (1_111_111_111_222_333_444, 1_555_555_555_666_777_888)
    rig.write_file(f, b"y")
    assert abs(os.stat(f).st_mtime - time.time()) < 10
    assert abs(os.stat(f).st_ctime - time.time()) < 10


def test_times_of_folder_move_with_entries(d):
    """P10: making an entry moves the folder's mtime."""
    os.utime(d, ns=(10**18, 10**18))
    rig.write_file(d + "/x", b"")
    assert os.stat(d).st_mtime_ns > 10**18


def test_xattrs(f):
    """P10: user xattrs of a file and a folder; create and replace."""
    rig.write_file(f, b"x")
    os.setxattr(f, "user.a", b"1")
    os.setxattr(f, "user.b", b"\0" * 1000)
    assert sorted(os.listxattr(f)) == ["user.a", "user.b"]
    assert os.getxattr(f, "user.b") == b"\0" * 1000
    with fails(errno.EEXIST):
        os.setxattr(f, "user.a", b"2", os.XATTR_CREATE)
    with fails(errno.ENODATA):
        os.setxattr(f, "user.c", b"2", os.XATTR_REPLACE)
    os.removexattr(f, "user.a")
    with fails(errno.ENODATA):
        os.getxattr(f, "user.a")
    os.setxattr(os.path.dirname(f), "user.dir", b"yes")
    assert os.getxattr(os.path.dirname(f), "user.dir") == b"yes"


def test_sizes(f, plain):
    """P10: st_blksize is large; st_blocks counts what a file has."""
    rig.write_file(f, data(1 << 20))
    info = os.stat(f)
    assert info.st_blocks * 512 >= 1 << 19
    if not plain:
        assert info.st_blksize >= 1 << 20


def test_statfs(d, shared, plain):
    """P10: statfs tells the truth: writing takes room."""
    if plain:
        pytest.skip("skipped: needs the mount")
    before = os.statvfs(d)
    assert 0 < before.f_bavail * before.f_frsize <= before.f_blocks * before.f_frsize <= 4 * rig.GIB
    rig.write_file(d + "/big", data(64 * rig.MIB))
    after = os.statvfs(d)
    used = (before.f_bavail - after.f_bavail) * before.f_frsize
    assert 32 * rig.MIB < used < 200 * rig.MIB
    assert after.f_namemax == 255


# locks

def test_flock_between_processes(f):
    """P10: flock."""
    rig.write_file(f, b"")
    with opened(f) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)

        def other():
            with opened(f) as mine:
                try:
                    fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return "busy"
                return "got it"

        assert rig.in_child(other) == "busy"
        fcntl.flock(fd, fcntl.LOCK_UN)
        assert rig.in_child(other) == "got it"


def test_fcntl_ranges_between_processes(f):
    """P10: fcntl locks on ranges."""
    rig.write_file(f, bytes(100))

    def other(start):
        with opened(f) as mine:
            try:
                fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, start)
            except OSError:
                return "busy"
            return "got it"

    with opened(f) as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX, 10, 20)
        assert rig.in_child(other, 25) == "busy"
        assert rig.in_child(other, 30) == "got it"
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 20, 10, 0))
        assert struct.unpack("hhqqi4x", answer)[0] == fcntl.F_UNLCK


# space

def test_fallocate_modes(f):
    """P10: fallocate: plain, keep size, punch hole, zero range; others say so."""
    with opened(f, NEW) as fd:
        os.posix_fallocate(fd, 0, 100_000)
        assert os.fstat(fd).st_size == 100_000
        fallocate(fd, KEEP_SIZE, 0, 500_000)
        assert os.fstat(fd).st_size == 100_000
        os.pwrite(fd, data(100_000), 0)
        fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 1000, 50_000)
        assert os.pread(fd, 100_000, 0) == data(100_000)[:1000] + bytes(50_000) + data(100_000)[51_000:]
        fallocate(fd, ZERO_RANGE, 90_000, 20_000)
        assert os.fstat(fd).st_size == 110_000
        assert os.pread(fd, 20_000, 90_000) == bytes(20_000)
        with pytest.raises(OSError) as info:
            fallocate(fd, COLLAPSE, 100, 4000)
        assert info.value.errno in (errno.EOPNOTSUPP, errno.EINVAL)


def test_copy_file_range(d, f):
    """P10: copy_file_range, whole and in part, between files and within one."""
    rig.write_file(f, data(3_000_000))
    with opened(f) as source, opened(d + "/copy", NEW) as target:
        done = 0
        while done < 3_000_000:
            done += os.copy_file_range(source, target, 3_000_000 - done)
        assert os.pread(target, 3_000_000, 0) == data(3_000_000)
        assert os.copy_file_range(source, target, 10_000, 500, 3_000_100) == 10_000
        assert os.pread(target, 20_000, 3_000_000) == bytes(100) + data(3_000_000)[500:10_500]
        assert os.copy_file_range(source, source, 1000, 0, 2_000_000) == 1000
        assert os.pread(source, 1000, 2_000_000) == data(3_000_000)[:1000]
        assert os.copy_file_range(source, target, 1000, 9_000_000, 0) == 0


def test_seek_data_and_hole(f):
    """P10: SEEK_DATA and SEEK_HOLE; data may be told in larger pieces, never too small."""
    with opened(f, NEW) as fd:
        os.pwrite(fd, b"x" * 100_000, 4 << 20)
        os.ftruncate(fd, 8 << 20)
        start = os.lseek(fd, 0, os.SEEK_DATA)
        assert start <= 4 << 20
        assert (4 << 20) + 100_000 <= os.lseek(fd, 4 << 20, os.SEEK_HOLE) <= 8 << 20
        assert os.lseek(fd, 0, os.SEEK_HOLE) in (0, 8 << 20)
        with fails(errno.ENXIO):
            os.lseek(fd, 8 << 20, os.SEEK_DATA)


def test_unnamed_file(d):
    """P10: O_TMPFILE, where it is served."""
    try:
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        assert error.errno in (errno.EOPNOTSUPP, errno.EISDIR)
        pytest.skip("skipped: O_TMPFILE is not served")
    os.write(fd, b"found")
    follow = 0x400
    assert LIBC.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, (d + "/named").encode(), follow) == 0
    os.close(fd)
    assert rig.read_file(d + "/named") == b"found"


def test_syncs(d, f):
    """P3: fsync, fdatasync, fsync of a folder and syncfs return without an error."""
    with opened(f, NEW) as fd:
        os.write(fd, data(100_000))
        os.fdatasync(fd)
        os.fsync(fd)
        assert LIBC.syncfs(fd) == 0
    with opened(d, os.O_RDONLY) as fd:
        os.fsync(fd)


def test_special_files(d):
    """P10: a fifo and a socket have names here."""
    os.mkfifo(d + "/fifo", 0o600)
    assert stat.S_ISFIFO(os.stat(d + "/fifo").st_mode)


# over remounts

def test_everything_is_stable_over_remount(cairn):
    """P10: inode numbers, modes, times, xattrs, links and sizes are the same after kill -9 and after remount."""
    cairn.mount()
    root = cairn.mnt + "/tree"
    os.makedirs(root + "/sub")
    for number in range(30):
        path = f"{root}/sub/{number}"
        rig.write_file(path, data(number * 3000, number))
        os.chmod(path, 0o600 + number)
        os.chown(path, number, 1000 + number)
        os.setxattr(path, "user.n", str(number).encode())
        os.utime(path, ns=(10**18 + number, 10**18 + 7 * number))
    os.link(root + "/sub/3", root + "/hard")
    os.symlink("sub", root + "/soft")
    os.utime(root + "/sub", ns=(10**18, 10**18 + 1))
    before = everything(root)
    cairn.kill9()
    cairn.mount()
    assert everything(root) == before
    cairn.remount()
    assert everything(root) == before
    cairn.umount()
    cairn.delete_view()
    cairn.mount()
    assert everything(root) == before


def everything(root):
    result = {}
    for folder, names, files in os.walk(root):
        for name in names + files + ["."]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            fields = (info.st_ino, info.st_mode, info.st_nlink, info.st_uid, info.st_gid, info.st_size, info.st_mtime_ns)
            extra = ()
            if stat.S_ISREG(info.st_mode):
                extra = (rig.read_file(path), os.getxattr(path, "user.n"))
            elif stat.S_ISLNK(info.st_mode):
                extra = (os.readlink(path),)
            result[path] = fields + extra
    return result
