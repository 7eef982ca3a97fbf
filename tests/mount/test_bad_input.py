# SPDX-License-Identifier: Apache-2.0
"""What bad input gets: one line that says what is wrong, an exit code, nothing half-made left behind."""
import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import time

import pytest

import rig

pytestmark = pytest.mark.needs_mount

USAGE, SYSTEM, FAILED = 1, 2, 32  # exit codes of mount
F_OFD_SETLK = 37


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
        """All names, kinds, owners, sizes and contents below the root, and the stage directory."""
        result = {}
        for top, directories, names in os.walk(self.root):
            for name in directories + names:
                path = os.path.join(top, name)
                info = os.lstat(path)
                if name in ("lock", "log"):
                    continue  # who held the store last, and what it said
                body = rig.read_file(path) if stat.S_ISREG(info.st_mode) and info.st_size < rig.MIB else None
                result[path] = (info.st_mode, info.st_uid, info.st_size if body is not None else 0, body)
        return result, sorted(os.listdir(self.stage_dir))

    def refuses(self, *args, code=FAILED, says=(), **more):
        """Mounting fails in the right way and changes nothing."""
        before = self.picture()
        done = self.mount(*args, **more)
        assert done.returncode == code, (done, "expected exit code", code)
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, f"not one line: {done.stderr!r}"
        assert all(word.lower() in lines[0].lower() for word in says), (lines[0], says)
        assert not rig.mounted_at(self.mnt)
        assert self.picture() == before, "something was left behind"
        print(f"{done.returncode}: {lines[0]}")


@pytest.fixture
def place(directory, shm_directory, binary):
    rig.need_root("/dev/fuse")
    made = Place(os.path.join(directory, "place"), binary, shm_directory)
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


def test_help_and_version(binary):
    """`help` and `version` succeed and write to stdout."""
    for verb in ("help", "version", "--help", "--version"):
        done = subprocess.run([binary, verb], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stdout and not done.stderr, verb


def write_thesis(place):
    os.mkdir(place.store)
    rig.write_file(place.store + "/thesis.tex", b"important")


# What is done first; store and mountpoint, the exit code, and what is said.
PLACES = {
    "store is a file": (lambda place: rig.write_file(place.store, b"I am a file"), "store", "mnt", USAGE,
                        ["{root}/store", "is not a directory", "give a new or empty directory"]),
    "store is not empty and no store": (write_thesis, "store", "mnt", USAGE,
                                        ["{root}/store", "not empty", "thesis.tex", "give a new or empty directory"]),
    "store in a missing directory": (None, "no/store", "mnt", FAILED, ["{root}/no/store does not exist", "mkdir -p"]),
    "mountpoint missing": (None, "store", "missing", FAILED, ["does not exist", "run: mkdir -p {root}/missing"]),
    "mountpoint is a file": (lambda place: rig.write_file(place.root + "/plain", b"x"), "store", "plain", FAILED,
                             ["{root}/plain is not a directory", "give one"]),
    "store is the mountpoint": (lambda place: os.mkdir(place.store), "store", "store", USAGE,
                                ["{root}/store", "inside the other", "give another"]),
    "store in the mountpoint": (None, "mnt/store", "mnt", USAGE, ["inside the other"]),
    "mountpoint in the store": (lambda place: os.makedirs(place.store + "/m"), "store", "store/m", USAGE, ["inside the other"]),
}


@pytest.mark.parametrize("case", PLACES)
def test_wrong_places(place, case):
    prepare, store, mnt, code, says = PLACES[case]
    if prepare:
        prepare(place)
    place.refuses(f"{place.root}/{store}", f"{place.root}/{mnt}", code=code, says=[word.format(root=place.root) for word in says])


def test_store_of_a_newer_format(real_store):
    """A superblock of a newer version is refused, whatever else it says."""
    path = os.path.join(real_store.store, "superblock")
    raw = bytearray(rig.read_file(path))
    raw[8:12] = (99).to_bytes(4, "little")
    rewrite_crc(raw)
    rig.write_file(path, raw, os.O_WRONLY)
    real_store.refuses(says=[real_store.store, "newer version", "use that version"])


def rewrite_crc(raw):
    """The superblock ends with the crc32 of what is before it."""
    import zlib

    raw[-4:] = zlib.crc32(bytes(raw[:-4])).to_bytes(4, "little")


@pytest.mark.parametrize("size", [4096, 100, 0])
def test_damaged_superblock(real_store, size):
    """P12: a damaged superblock is said to be one; the store is not made anew."""
    path = rig.write_file(os.path.join(real_store.store, "superblock"), rig.seeded_bytes(1, size))
    real_store.refuses(says=[path, "it is damaged", "restore it from a backup"])


def test_superblock_is_missing(real_store):
    """Nothing tells such a directory from one that was never a store: it is left as it is."""
    os.unlink(os.path.join(real_store.store, "superblock"))
    real_store.refuses(code=USAGE, says=[real_store.store, "not a store", "give a new or empty directory"])


def test_store_of_another_user(place):
    os.mkdir(place.store, 0o700)
    os.chown(place.store, 12345, 12345)
    place.refuses(code=USAGE, says=[place.store, "belongs to user 12345", "mount as that user"])


@pytest.fixture
def disk(place, directory):
    """A small disk of its own."""
    path = os.path.join(directory, "disk")
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
    place.refuses(disk + "/store", place.mnt, says=[disk, "is full", "MiB there and mount again"])
    assert os.listdir(disk + "/store") == []


def test_read_only_disk(place, disk):
    rig.run("mount", "-o", "remount,ro", disk)
    place.refuses(disk + "/store", place.mnt, says=[disk, "read-only", "give a directory on a writable disk"])


def test_mountpoint_in_use(place, mnt):
    """A live mount is not covered by another."""
    before = place.picture()
    done = place.mount(place.store, mnt)
    assert done.returncode == FAILED and len(done.stderr.strip().splitlines()) == 1, done
    assert mnt in done.stderr and "unmount it or give another mountpoint" in done.stderr, done
    assert place.picture() == before
    assert os.listdir(mnt) == []


def loses_output(cairn, *line, code=1):
    for to in (">/dev/full", ">&-"):
        done = subprocess.run(["bash", "-c", f'exec "$@" {to}', "bash", cairn.binary, *line], stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == code and done.stderr.startswith(f"cairn {line[0]}: cannot write to standard output: "), (line, to, done)
        assert len(done.stderr.splitlines()) == 1, (line, to, done)


def test_output_that_is_not_taken(cairn, mnt):
    """A verb whose output is lost has failed, and says so in one line."""
    for line in (["help"], ["help", "mount"], ["mount", "--help"], ["version"], ["completion", "bash"], ["metrics", mnt],
                 ["stats", "-n", "1", mnt]):
        loses_output(cairn, *line)
    for verb in ("status", "du", "info", "log"):
        loses_output(cairn, verb, mnt)
        loses_output(cairn, verb, "--json", mnt)
    rig.write_file(mnt + "/file", b"content")
    cairn.umount()
    loses_output(cairn, "ls", cairn.store + ":/")
    loses_output(cairn, "fsck", cairn.store, code=8)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_files(place, closed):
    """No file of the store takes their place: the lock would be lost when the daemon leaves the terminal."""
    assert place.mount(prefix=("bash", "-c", f'exec "$@" {closed}', "bash")).returncode == 0
    pid = int(rig.read_text(place.store + "/lock"))
    left = ["/dev/null", "/dev/null", place.store + "/log"]  # which it does once it has said that it is mounted
    rig.poll(lambda: [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)] == left, what="leaving the terminal")
    other = rig.mkdir(os.path.join(place.root, "other"))
    done = place.mount(place.store, other)
    assert done.returncode == FAILED and f"in use by pid {pid};" in done.stderr, done
    rig.write_file(place.mnt + "/file", b"content")
    assert subprocess.run([place.binary, "umount", place.mnt], timeout=300).returncode == 0
    assert subprocess.run([place.binary, "fsck", place.store], capture_output=True, timeout=60).returncode == 0


def test_store_in_use(place, cairn, mnt):
    """A store has one daemon; the lock dies with the process."""
    done = place.mount(cairn.store, place.mnt)
    assert done.returncode == FAILED and len(done.stderr.strip().splitlines()) == 1, done
    assert f"in use by pid {cairn.proc.pid}; 'cairn status {cairn.store}' shows it" in done.stderr, done
    assert not rig.mounted_at(place.mnt)
    rig.write_file(mnt + "/still", b"here")
    cairn.crash()
    assert rig.read_file(mnt + "/still") == b"here"


@contextlib.contextmanager
def looked_at(store):
    with open(os.path.join(store, "lock"), "r+b") as file:
        whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file.fileno(), F_OFD_SETLK, whole)
        yield


def test_looking_at_a_store_fails_no_mount(cairn):
    """`cairn status` of a store whose daemon died holds it for a moment; a mount at this moment waits for it."""
    cairn.mount()
    cairn.kill9()
    with looked_at(cairn.store):
        cairn.start()
        time.sleep(0.4)  # less than it waits; without waiting it ends within 0.1 s
        assert cairn.proc.poll() is None, cairn.log()
    rig.poll(cairn.usable, 20, "the mount")


def test_looking_at_a_store_fails_no_fsck(cairn):
    cairn.mount()
    cairn.umount()
    with looked_at(cairn.store):
        check = subprocess.Popen([cairn.binary, "fsck", cairn.store], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            check.wait(0.4)  # as above
    assert "clean" in check.communicate(timeout=200)[0] and check.returncode == 0


def test_stage_dir_missing(place):
    arguments = (place.store, place.mnt, "-o", "stage_dir=/nowhere/at/all,stage=64M")
    place.refuses(*arguments, options=None, code=FAILED, says=["/nowhere/at/all", "give a tmpfs with -o stage_dir="])


@pytest.mark.parametrize("options, says", [
    ("stage_dir=/nowhere/at/all", "/nowhere/at/all"),
    ("remote=dir:/nowhere/at/all", "/nowhere/at/all"),
    ("remote=s3://bucket/x,ca_bundle=/nowhere/at/all", "/nowhere/at/all"),
    ("remote=s3://bucket/x,profile=ghost", "ghost"),
    ("remote=s3://bucket/x,endpoint_url=http://127.0.0.1:1", "no credentials"),
])
def test_what_may_come_late_is_no_wrong_usage(place, monkeypatch, options, says):
    """A service manager tries again after any code but 1: a file, a filesystem or credentials may be there a minute later."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", place.root)
    place.refuses(options="stage=64M," + options, code=FAILED, says=[says])


def warnings_of(done):
    assert done.returncode == 0, done
    return [line for line in done.stderr.splitlines() if "warning" in line]


@pytest.fixture
def memory(place):
    """memory(size): a tmpfs of its own."""
    path = os.path.join(place.root, "memory")

    def make(size):
        os.mkdir(path)
        rig.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
        return path

    yield make
    place.clean()
    if os.path.exists(path):
        rig.file_systems_unmount(path)


def test_stage_dir_not_in_memory(place, disk):
    place.stage_dir = disk
    place.refuses(code=FAILED, says=[disk, "is not a tmpfs", "-o stage_dir=DIR"])


def test_stage_dir_too_small(place, memory):
    """Half of a container's: said, with what to do."""
    place.stage_dir = memory("32M")
    place.refuses(options="stage=256M", code=SYSTEM, says=[place.stage_dir, "only 32 MiB left", "--shm-size=8g", "-o stage_dir=DIR"])


def is_dead(mountpoint):
    try:
        os.stat(mountpoint)
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


def test_stage_dir_of_a_container(place, memory):
    """Its 64 MiB: the stage is as large as fits, which is said, and more than that can be written."""
    place.stage_dir = memory("64M")
    (warning,) = warnings_of(place.mount(options="stage=256M,nvme=1G,successor=off"))
    told = re.search(r"stage_dir (.*) has only 64 MiB left: the stage gets (\d+) MiB of the 256 MiB asked for", warning)
    assert told and told[1] == place.stage_dir and 32 <= int(told[2]) < 48, warning
    assert "enlarge it (in a container: --shm-size=8g) or give another tmpfs with -o stage_dir=DIR" in warning
    data = rig.seeded_bytes(1, 96 * rig.MIB)
    rig.write_file(place.mnt + "/file", data)
    assert rig.read_file(place.mnt + "/file") == data
    log = subprocess.run([place.binary, "log", place.mnt], capture_output=True, text=True, check=True).stdout
    (logged,) = [line for line in log.splitlines() if " warning: " in line]  # and not that memory is missing: it fits
    assert logged.endswith(warning.split(" warning: ")[1])
    rig.write_file(place.mnt + "/staged", data[:rig.MIB])
    os.kill(int(rig.read_file(place.store + "/lock")), signal.SIGKILL)
    rig.poll(lambda: is_dead(place.mnt), 20, "the end of the daemon")
    other = place.root + "/other"  # where there is no room, which changes nothing of the store
    os.mkdir(other)
    rig.run("mount", "-t", "tmpfs", "-o", "size=24M", "tmpfs", other)
    done = subprocess.run([place.binary, "mount", place.store, place.mnt, "-o", f"stage_dir={other},stage=256M"], capture_output=True,
                          text=True)
    assert done.returncode == SYSTEM and "only 24 MiB left" in done.stderr, done
    rig.file_systems_unmount(other)
    assert warnings_of(place.mount(options="stage=256M,nvme=1G")) == []  # what it left is the stage again, whatever room is left beside it
    assert rig.read_file(place.mnt + "/file") == data and rig.read_file(place.mnt + "/staged") == data[:rig.MIB]
    assert subprocess.run([place.binary, "umount", place.mnt], timeout=300).returncode == 0


# Mounts, and ends that again: nobody else sees a mount of this namespace.
MOUNT_AND_END = '"$@" || exit; exec "$1" umount "$4"'


def in_namespace(before, program):
    """A prefix: in a mount namespace of its own, after the shell's `before`; a daemon that is left dies with the shell."""
    return ("unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
            f"{rig.DROP_INHERITED}set -e; {before}; {program}", "sh")


NOBODY = 65534
AS_NOBODY = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"


@pytest.fixture
def open_place(place, directory, shm_directory):
    """One that nobody can reach, with a directory of nobody's own in it, as `own`, a program and a stage directory."""
    if not shutil.which("setpriv"):
        pytest.skip("skipped: setpriv is not installed")
    for path in (directory, place.root):
        os.chmod(path, 0o755)
    place.binary = shutil.copy2(place.binary, directory)
    own = place.root + "/own"
    os.makedirs(own + "/mnt")
    for path in (own, own + "/mnt", shm_directory):
        os.chown(path, NOBODY, NOBODY)
    place.store, place.mnt = own + "/store", own + "/mnt"
    return place


def with_fuse(directory, mode):
    """What gives /dev/fuse other rights, in a namespace."""
    path = os.path.join(directory, "fuse")
    os.mknod(path, stat.S_IFCHR | mode, os.stat("/dev/fuse").st_rdev)
    os.chmod(path, mode)
    return f"mount --bind {path} /dev/fuse"


def test_stage_dir_of_a_login_session(place):
    """What goes away with its user is said to."""
    prefix = in_namespace("mount -t tmpfs tmpfs /run; mkdir -p /run/user/0", MOUNT_AND_END)
    place.stage_dir = "/run/user/0"
    (warning,) = warnings_of(place.mount(options="stage=64M,nvme=1G", prefix=prefix))
    assert "stage_dir /run/user/0 is removed when its user logs out: give a tmpfs that stays, with -o stage_dir=DIR" in warning


@pytest.mark.skipif(not shutil.which("fusermount3"), reason="skipped: needs fusermount3")
@pytest.mark.parametrize("systemd", [True, False])
def test_stage_dir_of_an_ordinary_user(open_place, directory, shm_directory, systemd):
    """Where systemd runs, it removes what such a user has in /dev/shm."""
    run = "mount -t tmpfs tmpfs /run" + ("; mkdir -p /run/systemd/system" if systemd else "")
    prefix = in_namespace(f"{run}; {with_fuse(directory, 0o666)}", f"exec {AS_NOBODY} sh -c '{MOUNT_AND_END}' sh \"$@\"")
    found = warnings_of(open_place.mount(options="stage=64M,nvme=1G", prefix=prefix))
    assert len(found) == systemd, found
    assert all("RemoveIPC=yes" in line and "loginctl enable-linger" in line and "-o stage_dir=DIR" in line for line in found), found


def test_no_dev_fuse(place):
    prefix = in_namespace("mount -t tmpfs tmpfs /dev", 'exec "$@"')
    place.refuses(prefix=prefix, code=SYSTEM, says=["no /dev/fuse", "modprobe fuse", "--device /dev/fuse"])


def test_no_permission_to_open_fuse(open_place, directory):
    prefix = in_namespace(with_fuse(directory, 0o600), f'exec {AS_NOBODY} "$@"')
    open_place.refuses(prefix=prefix, code=USAGE, says=["cannot open /dev/fuse: permission denied", "run as root", "chmod 666 /dev/fuse"])


@pytest.mark.skipif(not shutil.which("fusermount3"), reason="skipped: needs fusermount3")
def test_no_permission_to_mount_there(open_place, directory):
    os.chown(open_place.mnt, 0, 0)
    prefix = in_namespace(with_fuse(directory, 0o666), f'exec {AS_NOBODY} "$@"')
    open_place.refuses(prefix=prefix, code=USAGE, says=[open_place.mnt, "is not writable", "give a directory of your own"])


def test_no_permission_to_make_the_store(open_place, directory):
    prefix = in_namespace(with_fuse(directory, 0o666), f'exec {AS_NOBODY} "$@"')
    store = open_place.root + "/store"
    open_place.refuses(store, open_place.mnt, prefix=prefix, code=USAGE,
                       says=[store, "permission denied", "run as the owner of the directory"])


@pytest.mark.skipif(not shutil.which("prlimit"), reason="skipped: needs prlimit")
@pytest.mark.parametrize("without", [(), ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource")])
def test_limit_of_file_sizes(cairn, place, without):
    """ulimit -f of the shell that mounts: what may be raised is; else the mount is refused with the reason, and the daemon is not
    killed."""
    if not without:
        cairn.prefix = ("prlimit", f"--fsize={rig.MIB}:")
        cairn.mount()
        data = rig.seeded_bytes(1, 40 * rig.MIB)
        rig.write_file(cairn.mnt + "/file", data)
        cairn.remount()
        assert rig.read_file(cairn.mnt + "/file") == data
    else:
        place.refuses(prefix=("prlimit", f"--fsize={32 * rig.MIB}", *without), says=["ulimit -f", "raise it"])


def test_store_is_private(cairn):
    """P12: the store is 0700, the stage files 0600."""
    cairn.mount()
    assert stat.S_IMODE(os.stat(cairn.store).st_mode) == 0o700
    for name in os.listdir(cairn.stage_dir):
        assert stat.S_IMODE(os.stat(os.path.join(cairn.stage_dir, name)).st_mode) == 0o600


def test_background_mount(cairn):
    """Without -f the command returns when the mount is usable; umount ends the daemon."""
    done = cairn.verb("mount", cairn.store, cairn.mnt, "-o", cairn.option_string({}))
    try:
        rig.write_file(cairn.mnt + "/file", b"x")
        assert rig.mounted_at(cairn.mnt)
    finally:
        done = cairn.cairn("umount", cairn.mnt)
    assert done.returncode == 0, done
    assert not rig.mounted_at(cairn.mnt)
    assert cairn.fsck().returncode == 0
