"""What bad input gets: one line that says what is wrong, an exit code, nothing half-made left behind."""
import os
import shutil
import stat
import subprocess

import pytest

import rig

pytestmark = pytest.mark.needs_mount

USAGE, FAILED = (1, 2), (1, 2, 32)


class Place:
    """A store path and a mountpoint that nothing uses yet, and a look at what a failed mount left."""

    def __init__(self, root, binary, stage_dir):
        self.root, self.binary, self.stage_dir = root, binary, stage_dir
        os.makedirs(root)
        self.store, self.mnt = os.path.join(root, "store"), os.path.join(root, "mnt")
        os.mkdir(self.mnt)

    def mount(self, *args, options="stage=64M", prefix=(), **env):
        command = [*prefix, self.binary, "mount", *(args or (self.store, self.mnt))]
        if options is not None:
            command += ["-o", f"stage_dir={self.stage_dir},{options}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)

    def clean(self):
        """End what should not have been mounted."""
        for path in (self.mnt, self.store):
            if rig.mounted_at(path):
                subprocess.run([self.binary, "umount", path], capture_output=True, timeout=300)
            rig.file_systems_unmount(path)

    def picture(self):
        """All names, kinds, owners, sizes and contents below the root, and the stage folder."""
        result = {}
        for top, folders, names in os.walk(self.root):
            for name in folders + names:
                path = os.path.join(top, name)
                info = os.lstat(path)
                if name in ("lock", "log"):
                    continue  # who held the store last, and what it said
                body = rig.read_file(path) if stat.S_ISREG(info.st_mode) and info.st_size < rig.MIB else None
                result[path] = (info.st_mode, info.st_uid, info.st_size if body is not None else 0, body)
        return result, sorted(os.listdir(self.stage_dir))

    def refuses(self, *args, codes=FAILED, says=(), **more):
        """Mounting fails in the right way and changes nothing."""
        before = self.picture()
        done = self.mount(*args, **more)
        assert done.returncode in codes, (done, "expected exit code", codes)
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, f"not one line: {done.stderr!r}"
        assert all(word.lower() in lines[0].lower() for word in says), (lines[0], says)
        assert not rig.mounted_at(self.mnt)
        assert self.picture() == before, "something was left behind"
        print(f"{done.returncode}: {lines[0]}")


@pytest.fixture
def place(folder, shm_folder, binary):
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("skipped: needs root and /dev/fuse")
    made = Place(os.path.join(folder, "place"), binary, shm_folder)
    yield made
    made.clean()


@pytest.fixture
def real_store(cairn, place):
    """A store that was mounted once, with one file, copied to the place."""
    cairn.mount()
    rig.write_file(cairn.mnt + "/file", b"content")
    cairn.umount()
    os.rename(cairn.store, place.store)
    return place


@pytest.mark.parametrize(
    "options",
    ["no_such_option", "stage=12Q", "stage=-1", "stage=", "nvme=abc", "fsync=maybe", "writeback_threads=0",
     "writeback_limit=fast", "writeback_delay=5parsecs", "stage=1M"],
)
def test_wrong_options(place, options):
    """A wrong option is named."""
    place.refuses(options=options, codes=USAGE, says=[options.split("=")[0]])


@pytest.mark.parametrize("args", [("mount",), ("mount", "only-one"), ("nonsense",), (), ("mount", "a", "b", "c"), ("wait",), ("fsck",)])
def test_wrong_command_lines(binary, place, args):
    """A wrong command line ends with a usage code and a short text."""
    done = subprocess.run([binary, *args], capture_output=True, text=True, timeout=20, cwd=place.root, stdin=subprocess.DEVNULL)
    assert done.returncode in ((16,) if args[:1] == ("fsck",) else USAGE)
    assert 1 <= len(done.stderr.strip().splitlines()) <= (1 if args else 40)
    assert sorted(os.listdir(place.root)) == ["mnt"]


def test_help_and_version(binary):
    """`help` and `version` succeed and write to stdout."""
    for verb in ("help", "version", "--help", "--version"):
        done = subprocess.run([binary, verb], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stdout and not done.stderr, verb


def test_store_is_a_file(place):
    rig.write_file(place.store, b"I am a file")
    place.refuses(says=[place.store])


def test_store_is_not_empty_and_no_store(place):
    os.mkdir(place.store)
    rig.write_file(place.store + "/thesis.tex", b"important")
    place.refuses(says=[place.store])


def test_store_in_a_missing_folder(place):
    place.refuses(os.path.join(place.root, "no", "store"), place.mnt)


def test_store_of_a_newer_format(real_store):
    """A superblock of a newer version is refused, whatever else it says."""
    path = os.path.join(real_store.store, "superblock")
    raw = bytearray(rig.read_file(path))
    raw[8:12] = (99).to_bytes(4, "little")
    rewrite_crc(raw)
    rig.write_file(path, raw, os.O_WRONLY)
    real_store.refuses(says=["newer"])


def rewrite_crc(raw):
    """The superblock ends with the crc32 of what is before it."""
    import zlib

    raw[-4:] = zlib.crc32(bytes(raw[:-4])).to_bytes(4, "little")


@pytest.mark.parametrize("how", ["garbage", "short", "empty", "missing"])
def test_damaged_superblock(real_store, how):
    """P12: a damaged superblock is said to be one; the store is not made anew."""
    path = os.path.join(real_store.store, "superblock")
    if how == "missing":
        os.unlink(path)
    else:
        size = {"garbage": 4096, "short": 100, "empty": 0}[how]
        rig.write_file(path, rig.seeded_bytes(1, size))
    real_store.refuses()


def test_store_of_another_user(place):
    os.mkdir(place.store, 0o700)
    os.chown(place.store, 12345, 12345)
    place.refuses(says=[place.store])


@pytest.fixture
def disk(place, folder):
    """A small disk of its own."""
    path = os.path.join(folder, "disk")
    loop = rig.LoopImage(path + ".img", path, 64 * rig.MIB)
    os.mkdir(path + "/store")
    yield path
    place.clean()
    loop.close()


def test_full_disk(place, disk):
    """No room for a new store: nothing half-made stays."""
    with open(disk + "/filler", "wb", buffering=0) as file:
        try:
            while file.write(bytes(65536)):
                pass
        except OSError:
            pass
    place.refuses(disk + "/store", place.mnt)
    assert os.listdir(disk + "/store") == []


def test_read_only_disk(place, disk):
    rig.run("mount", "-o", "remount,ro", disk)
    place.refuses(disk + "/store", place.mnt, says=["read-only"])


def test_mountpoint_missing(place):
    place.refuses(place.store, place.mnt + "-missing", says=[place.mnt + "-missing"])


def test_mountpoint_is_a_file(place):
    rig.write_file(place.root + "/plain", b"x")
    place.refuses(place.store, place.root + "/plain")


def test_mountpoint_inside_the_store(place):
    os.makedirs(place.store)
    place.refuses(place.store, place.store)


def test_mountpoint_in_use(place, cairn):
    """A live mount is not covered by another."""
    cairn.mount()
    before = place.picture()
    done = place.mount(place.store, cairn.mnt)
    assert done.returncode in FAILED and len(done.stderr.strip().splitlines()) == 1, done
    assert place.picture() == before
    assert os.listdir(cairn.mnt) == []


def test_store_in_use(place, cairn):
    """A store has one daemon; the lock dies with the process."""
    cairn.mount()
    done = place.mount(cairn.store, place.mnt)
    assert done.returncode in FAILED and len(done.stderr.strip().splitlines()) == 1, done
    assert not rig.mounted_at(place.mnt)
    rig.write_file(cairn.mnt + "/still", b"here")
    cairn.kill9()
    cairn.mount()
    assert rig.read_file(cairn.mnt + "/still") == b"here"


def test_stage_dir_missing(place):
    place.refuses(options=None, *(place.store, place.mnt, "-o", "stage_dir=/nowhere/at/all,stage=64M"), says=["/nowhere/at/all"])


def test_stage_dir_too_small(request, place):
    """As the 64 MiB of containers: said, with what to do."""
    small = os.path.join(place.root, "small")
    os.mkdir(small)
    rig.run("mount", "-t", "tmpfs", "-o", "size=32M", "tmpfs", small)
    request.addfinalizer(lambda: rig.file_systems_unmount(small))
    place.refuses(options=None, *(place.store, place.mnt, "-o", f"stage_dir={small},stage=256M"), says=["stage"])


def without_fuse():
    return ("unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /dev && exec "$@"', "sh")


def test_no_dev_fuse(place):
    place.refuses(prefix=without_fuse(), says=["/dev/fuse"])


def test_no_permission(place):
    """A user who may not open /dev/fuse or mount."""
    os.chmod(place.root, 0o755)
    done = place.mount(prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
    assert done.returncode in FAILED and len(done.stderr.strip().splitlines()) == 1, done
    assert not rig.mounted_at(place.mnt) and not os.path.exists(place.store)


@pytest.mark.skipif(not shutil.which("prlimit"), reason="skipped: needs prlimit")
@pytest.mark.parametrize("without", [(), ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource")])
def test_limit_of_file_sizes(cairn, place, without):
    """ulimit -f of the shell that mounts: what may be raised is; else the mount is refused with the reason, and the daemon is not killed."""
    if not without:
        cairn.prefix = ("prlimit", f"--fsize={rig.MIB}:")
        cairn.mount()
        data = rig.seeded_bytes(1, 40 * rig.MIB)
        rig.write_file(cairn.mnt + "/file", data)
        cairn.remount()
        assert rig.read_file(cairn.mnt + "/file") == data
    else:
        place.refuses(prefix=("prlimit", f"--fsize={32 * rig.MIB}", *without), says=["ulimit -f"])


def test_store_is_private(cairn):
    """P12: the store is 0700, the stage files 0600."""
    cairn.mount()
    assert stat.S_IMODE(os.stat(cairn.store).st_mode) == 0o700
    for name in os.listdir(cairn.stage_dir):
        assert stat.S_IMODE(os.stat(os.path.join(cairn.stage_dir, name)).st_mode) == 0o600


def test_umount_and_status_of_nothing(binary, place):
    """Verbs on a folder that is no mount and no store."""
    for verb in ("umount", "status", "fsck"):
        done = subprocess.run([binary, verb, place.mnt], capture_output=True, text=True, timeout=300)
        assert done.returncode != 0 and len(done.stderr.strip().splitlines()) == 1, (verb, done)
    assert os.listdir(place.mnt) == []


def test_background_mount(cairn):
    """Without -f the command returns when the mount is usable; umount ends the daemon."""
    done = cairn.cairn("mount", cairn.store, cairn.mnt, "-o", cairn.option_string({}))
    assert done.returncode == 0, done
    try:
        rig.write_file(cairn.mnt + "/file", b"x")
        assert rig.mounted_at(cairn.mnt)
    finally:
        done = cairn.cairn("umount", cairn.mnt)
    assert done.returncode == 0, done
    assert not rig.mounted_at(cairn.mnt)
    assert cairn.fsck().returncode == 0
