# SPDX-License-Identifier: Apache-2.0
"""P10: what concerns a mount as a whole: death of the daemon, read-only, remounting, atime, limits, ordinary users."""
import ast
import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time

import pytest

import cases_content
import cases_names  # noqa: F401
import cases_xattrs
import rig
from cases_open import Handle
from script import LIBC, SCRIPTS, TICK, Script, checked, get, opened, put, tree, utimensat
from sides import Sides
from test_same_as_ext4 import unequal

pytestmark = pytest.mark.needs_mount

LASTING = [name for module in (cases_content, cases_xattrs) for name in vars(module) if name in SCRIPTS]
LASTING += ["rename_every_pair", "rename_exchange_every_pair", "rename_keeps_inodes", "symlink_targets", "devices", "unlink_while_open"]


@contextlib.contextmanager
def working_in(path):
    back = os.open(".", os.O_RDONLY)
    os.chdir(path)
    try:
        yield
    finally:
        os.fchdir(back)
        os.close(back)


def everything(top):
    """The tree, and numbers and times of each inode; of access apart, for it may get lost with the daemon."""
    times, access = {}, {}
    for path in sorted(os.path.join(directory, name) for directory, names, files in os.walk(top) for name in names + files):
        info = os.lstat(path)
        times[os.path.relpath(path, top)] = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
        access[os.path.relpath(path, top)] = info.st_atime_ns
    return {"tree": tree(top), "times": times}, access


def test_results_survive(cairn, seed, mnt):
    """P2, P10: what the scripts left is the same after kill -9, after a remount and without the view."""
    sides = Sides(None, mnt, seed, False)
    for name in LASTING:
        sides.run_at(mnt, name)
    everything(mnt)  # reads all, so that times of access have settled
    before, access = everything(mnt)
    assert len(before["times"]) > 200
    cairn.crash()
    assert everything(mnt)[0] == before
    access = everything(mnt)[1]
    cairn.remount()
    assert everything(mnt) == (before, access)
    cairn.umount()
    cairn.mount_anew()
    assert everything(mnt) == (before, access)
    cairn.umount_whole()


@pytest.mark.parametrize("end", ["staged", "durable", "power loss"])
def test_orphans_do_not_leak(cairn, end, mnt):
    """P10: files and directories that were open without a name when the daemon died are gone, and so is what they took; whether the stage
    knows of them, the view, or the view alone."""
    free = os.statvfs(mnt).f_bavail
    descriptors = []
    for number in range(20):
        path = f"{mnt}/file{number}"
        put(path, rig.seeded_bytes(number, 2 * rig.MIB))
        descriptors.append(os.open(path, os.O_RDWR))
        os.mkdir(f"{mnt}/directory{number}")
        descriptors.append(os.open(f"{mnt}/directory{number}", os.O_RDONLY))
    cairn.wait()
    for number in range(20):
        os.unlink(f"{mnt}/file{number}")
        os.rmdir(f"{mnt}/directory{number}")
    assert all(os.fstat(fd).st_nlink == 0 for fd in descriptors)
    if_lost = os.open(f"{mnt}/draft", os.O_RDWR | os.O_CREAT)
    os.write(if_lost, b"x" * 100_000)
    os.unlink(f"{mnt}/draft")
    put(f"{mnt}/kept", b"kept")
    if end != "staged":
        cairn.wait()
    cairn.kill9()
    if end == "power loss":
        cairn.drop_stage()
    for fd in (*descriptors, if_lost):
        with contextlib.suppress(OSError):
            os.close(fd)
    cairn.mount()
    assert os.listdir(mnt) == ["kept"]
    rig.poll(lambda: free - os.statvfs(mnt).f_bavail < 6144, 60, "the room of what has no name", 0.2)
    cairn.umount()
    done = cairn.fsck()
    assert done.returncode == 0, done.stdout
    assert "kept" not in done.stdout


def read_moves_atime(path):
    before = os.stat(path).st_atime_ns
    time.sleep(TICK)
    get(path)
    return os.stat(path).st_atime_ns != before


def test_access_times_last(cairn, mnt):
    """P10: atime moves by relatime's rule, is kept at unmount, and changes nothing that is waited for."""
    path = mnt + "/file"
    put(path, b"text")
    cairn.wait()
    assert read_moves_atime(path) and not read_moves_atime(path)
    assert os.getxattr(path, "user.cairn.level") == b"nvme"
    moved = os.stat(path)
    cairn.remount()
    assert os.stat(path).st_atime_ns == moved.st_atime_ns and os.stat(path).st_ctime_ns == moved.st_ctime_ns
    assert not read_moves_atime(path)


def test_many_access_times(cairn, mnt):
    """P11: more files are read than times are kept in memory; all are right, and last."""
    directory = rig.mkdir(mnt + "/many")
    for number in range(9000):
        os.mkfifo(f"{directory}/{number}")
        os.symlink("x", f"{directory}/link{number}")
    time.sleep(TICK)
    for number in range(9000):
        os.readlink(f"{directory}/link{number}")
    times = [os.lstat(f"{directory}/link{number}") for number in range(9000)]
    assert all(info.st_atime_ns > info.st_mtime_ns for info in times)
    cairn.remount()
    assert [os.lstat(f"{directory}/link{number}").st_atime_ns for number in range(9000)] == [info.st_atime_ns for info in times]


def test_noatime(cairn):
    """P10: with noatime, and of a mount that is read-only, reading leaves no trace."""
    cairn.mount(noatime=True)
    path = cairn.mnt + "/file"
    put(path, b"text")
    os.utime(path, ns=(1, 2))
    assert not read_moves_atime(path)
    cairn.remount(ro=True)
    assert not read_moves_atime(path)
    cairn.remount()
    assert os.stat(path).st_atime_ns == 1 and read_moves_atime(path)


def test_remount_noatime(mnt):
    """P10: mount -o remount,noatime and its reverse are heeded, and so is read-only; strictatime does what relatime does."""
    path = mnt + "/file"
    put(path, b"text")

    def moves():
        os.utime(path, ns=(1, 2))  # so that it is due
        return read_moves_atime(path)

    # mount(8) adds what is there already, and noatime is stronger than relatime
    for steps, expected in (("noatime", False), ("strictatime relatime", True), ("noatime", False), ("strictatime", True)):
        for step in steps.split():
            assert remount(mnt, step) == 0
        rig.poll(lambda: moves() == expected, 10, f"{steps} to be heeded")
    os.utime(path, ns=(1, 2))
    assert remount(mnt, "ro") == 0
    time.sleep(0.5)
    assert not read_moves_atime(path)
    assert remount(mnt, "rw") == 0
    rig.poll(moves, 10, "rw to be heeded")


CHANGES = {
    "open to write": lambda: os.open("file", os.O_WRONLY),
    "open to truncate": lambda: os.open("file", os.O_RDONLY | os.O_TRUNC),
    "create": lambda: os.open("new", os.O_RDONLY | os.O_CREAT),
    "mkdir": lambda: os.mkdir("new"),
    "mkdir there": lambda: os.mkdir("directory"),
    "rmdir": lambda: os.rmdir("directory"),
    "rmdir missing": lambda: os.rmdir("missing"),
    "unlink": lambda: os.unlink("file"),
    "unlink missing": lambda: os.unlink("missing"),
    "rename": lambda: os.rename("file", "new"),
    "rename missing": lambda: os.rename("missing", "new"),
    "link": lambda: os.link("file", "new"),
    "symlink": lambda: os.symlink("x", "new"),
    "mkfifo": lambda: os.mkfifo("new"),
    "mknod": lambda: os.mknod("new", stat.S_IFREG | 0o600),
    "chmod": lambda: os.chmod("file", 0o600),
    "chown": lambda: os.chown("file", 1, 1),
    "truncate": lambda: os.truncate("file", 1),
    "utime": lambda: os.utime("file"),
    "utime missing": lambda: os.utime("missing"),
    "setxattr": lambda: os.setxattr("file", "user.y", b"1"),
    "removexattr": lambda: os.removexattr("file", "user.x"),
    "access": lambda: os.access("file", os.W_OK),
    "open a fifo to write": lambda: os.close(os.open("fifo", os.O_RDWR)),
    "open O_CREAT there": lambda: os.close(os.open("file", os.O_RDONLY | os.O_CREAT)),
    "read": lambda: get("file"),
    "list": lambda: sorted(os.listdir(".")),
    "getxattr": lambda: os.getxattr("file", "user.x"),
}


def make_some():
    put("file", b"text"), os.mkdir("directory"), os.mkfifo("fifo"), os.setxattr("file", "user.x", b"1")


def refusals(directory):
    s = Script(None, True)
    with working_in(directory):
        for name, change in CHANGES.items():
            s.call(name, change)
    return s.notes


def remount(path, options, is_busy=False):
    """What a closed file held goes a moment later (RELEASE has no answer that anybody waits for): only what stays busy is."""
    for _ in range(50):
        done = subprocess.run(["mount", "-i", "-o", "remount," + options, path], capture_output=True, text=True)
        if done.returncode == 0 or is_busy:
            break
        print(done.stderr)
        time.sleep(0.1)
    return done.returncode


@pytest.fixture
def own_ext4(request):
    directory = tempfile.mkdtemp(prefix="cairn-test-")
    request.addfinalizer(lambda: shutil.rmtree(directory, ignore_errors=True))
    image = rig.LoopImage(os.path.join(directory, "image"), os.path.join(directory, "ext4"), 64 * rig.MIB)
    request.addfinalizer(image.close)
    shutil.rmtree(os.path.join(image.mountpoint, "lost+found"))
    return image.mountpoint


def test_read_only(cairn, own_ext4, mnt):
    """P10: -o ro: EROFS for what changes, as ext4 says it."""
    for top in (mnt, own_ext4):
        with working_in(top):
            make_some()
    cairn.remount(ro=True)
    assert remount(own_ext4, "ro") == 0
    here, there = refusals(mnt), refusals(own_ext4)
    assert here == there
    assert [name for name, outcome in here.items() if outcome == "EROFS"][:3] == ["open to write", "open to truncate", "create"]


def test_remount_read_only(own_ext4, mnt):
    """P10: mount -o remount,ro and rw; not while a file is open for writing."""
    outcomes = []
    for top in (mnt, own_ext4):
        with working_in(top):
            make_some()
        found = []
        with opened(top + "/file", os.O_WRONLY) as fd:
            found.append(remount(top, "ro", is_busy=True))
            os.write(fd, b"goes on")
        found += [remount(top, "ro"), refusals(top), remount(top, "rw")]
        put(top + "/file", b"again")
        found += [remount(top, "noexec,nosuid"), remount(top, "ro"), remount(top, "rw"), get(top + "/file")]
        outcomes.append(found)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] != 0 and outcomes[0][1] == 0


def test_large_xattrs(cairn, mnt):
    """P10: values up to 64 KiB, more names than one list may have; they last."""
    path = mnt + "/file"
    put(path)
    os.setxattr(path, "user.large", b"v" * 65536)
    for number in range(280):
        os.setxattr(path, f"user.{number:04}" + "n" * 246, b"")
    with rig.fails(errno.E2BIG):
        os.listxattr(path)
    cairn.crash()
    for number in range(50, 280):
        os.removexattr(path, f"user.{number:04}" + "n" * 246)
    assert len(os.listxattr(path)) == 51 and os.getxattr(path, "user.large") == b"v" * 65536


def test_largest_file(mnt):
    """P10: sizes go to 8 EiB less 4 KiB, where ext4 ends at 16 TiB; EFBIG beyond."""
    largest = 2**63 - 1 - 4096
    with opened(mnt + "/file", os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, largest)
        assert os.fstat(fd).st_size == largest
        os.pwrite(fd, b"end", largest - 3)
        assert os.pread(fd, 10, largest - 3) == b"end"
        for call in (lambda: os.pwrite(fd, b"x", largest), lambda: os.ftruncate(fd, largest + 1)):
            with rig.fails(errno.EFBIG):
                call()
        os.ftruncate(fd, 0)


def test_handles_last(cairn, mnt):
    """P10: what was named by a handle is found when the kernel has forgotten it, also below a directory, also after the daemon's death."""
    os.makedirs(mnt + "/a/b")
    put(mnt + "/a/b/file", b"found")
    handle, mount_id = Handle(bytes=128), ctypes.c_int()
    checked(LIBC.name_to_handle_at(-100, os.fsencode(mnt + "/a/b/file"), ctypes.byref(handle), ctypes.byref(mount_id), 0))

    def read():
        with opened(mnt, os.O_RDONLY) as top:
            fd = checked(LIBC.open_by_handle_at(top, ctypes.byref(handle), os.O_RDONLY))
            with os.fdopen(fd, "rb") as file:
                return file.read()

    assert read() == b"found"
    assert remount(mnt, "rw") == 0  # the kernel forgets what nobody uses
    assert read() == b"found"
    cairn.crash()
    assert read() == b"found"


def test_times_far_away(cairn, mnt):
    """P10: times are kept from 1677 to 2262; what lies outside becomes the nearest."""
    path = mnt + "/file"
    put(path)
    utimensat(path, (-(1 << 40), 0), (1 << 40, 0))
    info = os.stat(path)
    assert (info.st_atime_ns, info.st_mtime_ns) == (-(2**63), 2**63 - 1)
    cairn.remount()
    info = os.stat(path)
    assert (info.st_atime_ns, info.st_mtime_ns) == (-(2**63), 2**63 - 1)


# users other than root

class Namespace:
    """A mount namespace in which everybody may open /dev/fuse; commands run there as nobody. What others unmount goes here too."""

    def __init__(self, root):
        os.chmod(root, 0o755)
        os.mknod(root + "/fuse", stat.S_IFCHR | 0o666, os.stat("/dev/fuse").st_rdev)
        os.chmod(root + "/fuse", 0o666)
        self.directory = root + "/own"
        os.mkdir(self.directory)
        os.chown(self.directory, 65534, 65534)
        self.holder = subprocess.Popen(["unshare", "-m", "--propagation", "slave", "sh", "-c", rig.DROP_INHERITED + "echo; exec sleep 600"],
                                       stdout=subprocess.PIPE)
        self.holder.stdout.read(1)
        self.daemon = None

    def enter(self, *command, user=True):
        inside = ["nsenter", "-t", str(self.holder.pid), "-m", f"--wdns={self.directory}"]
        return inside + (["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if user else []) + list(command)

    def run(self, *command, user=True):
        return subprocess.run(self.enter(*command, user=user), capture_output=True, text=True, timeout=300)

    def in_directory(self, top, below, function):
        """What the function of nobody in the directory `below`, which root may not be able to enter, returned: literals."""
        def work():
            with open(f"/proc/{self.holder.pid}/ns/mnt") as file:
                checked(LIBC.setns(file.fileno(), 0))
            os.chdir(top)
            os.setgroups([]), os.setgid(65534), os.setuid(65534)
            os.chdir(below)
            return repr(function())

        return ast.literal_eval(rig.in_child(work))

    def close(self):
        if self.daemon:
            self.daemon.kill()
            self.daemon.wait()
        self.holder.kill()
        self.holder.wait()


@pytest.fixture
def namespace(request, directory, binary):
    space = Namespace(directory)
    request.addfinalizer(space.close)
    space.binary = os.path.join(directory, "cairn")  # where nobody may run it
    shutil.copy2(binary, space.binary)
    space.stage = tempfile.mkdtemp(prefix="cairn-test-", dir="/dev/shm")
    request.addfinalizer(lambda: shutil.rmtree(space.stage, ignore_errors=True))
    os.chown(space.stage, 65534, 65534)
    return space


def user_mount(space, *more, store="store", mountpoint="mnt"):
    options = ",".join((f"stage=64M,nvme=1G,stage_dir={space.stage}", *more))
    return space.run(space.binary, "mount", store, mountpoint, "-o", options)


def admit(space):
    assert space.run("mount", "--bind", os.path.dirname(space.directory) + "/fuse", "/dev/fuse", user=False).returncode == 0


def serve(space):
    """nobody's daemon, until `umount` or the end of the test."""
    admit(space)
    assert space.run("mkdir", "mnt").returncode == 0
    command = [space.binary, "mount", "store", "mnt", "-f", "-o", f"stage=64M,nvme=1G,stage_dir={space.stage}"]
    space.daemon = subprocess.Popen(space.enter(*command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rig.poll(lambda: space.run("mountpoint", "-q", "mnt").returncode == 0, 30, "the mount")


def user_umount(space):
    done = space.run(space.binary, "umount", "mnt")
    assert done.returncode == 0, done.stderr
    assert space.daemon.wait(200) == 0


def test_user_mounts(namespace):
    """P10: an ordinary user mounts, works and unmounts through fusermount3; root stays out."""
    serve(namespace)
    work = namespace.run("sh", "-ec",
                         "echo text >mnt/file; mkdir mnt/sub; ln mnt/file mnt/sub/hard; mv mnt/sub mnt/moved; chmod 600 mnt/file; "
                         "cat mnt/moved/hard; stat -c '%U %a %h' mnt/file; chown root mnt/file || echo refused")
    assert work.stdout.split("\n") == ["text", "nobody 600 2", "refused", ""], work.stderr
    assert namespace.run("ls", "mnt", user=False).returncode != 0
    assert "mnt" in namespace.run(namespace.binary, "status", "mnt").stdout
    user_umount(namespace)
    assert namespace.run("ls", "mnt").stdout == ""


def test_user_upgrades(namespace):
    """An ordinary user's own mount goes on in another program, with an open file, and after a death of its daemon."""
    admit(namespace)
    assert namespace.run("mkdir", "mnt").returncode == 0 and user_mount(namespace).returncode == 0
    try:
        newer = namespace.binary + "-newer"
        shutil.copy2(namespace.binary, newer)
        work = namespace.run("sh", "-ec",
                             f"exec 3>mnt/file; echo one >&3; {newer} upgrade mnt; echo two >&3; {namespace.binary} status mnt --json")
        status = json.loads(work.stdout[work.stdout.index("{") :])
        assert "handed over to" in work.stdout and status["mount"]["successor"]["upgrades"] == 1, work
        assert os.readlink(f"/proc/{status['pid']}/exe") == newer
        os.kill(status["pid"], signal.SIGKILL)
        assert namespace.run("cat", "mnt/file").stdout == "one\ntwo\n"
    finally:
        done = namespace.run(namespace.binary, "umount", "mnt")
    assert done.returncode == 0, done


def test_user_is_told_why_not_unmounted(namespace):
    """What fusermount3 says is passed on: only what is in use is called so."""
    serve(namespace)
    with subprocess.Popen(namespace.enter("sh", "-c", "cd mnt && echo in && exec sleep 100"), stdout=subprocess.PIPE) as user:
        assert user.stdout.readline()
        done = namespace.run(namespace.binary, "umount", "mnt")
        assert done.returncode == 1 and "mnt is in use; " in done.stderr, done
        user.kill()
    assert namespace.run("mount", "-t", "tmpfs", "tmpfs", "/etc", user=False).returncode == 0  # it wants mtab or passwd from there
    done = namespace.run(namespace.binary, "umount", "mnt")
    assert (done.returncode == 1 and "cannot unmount" in done.stderr and ": fusermount3: " in done.stderr
            and "in use" not in done.stderr), done
    assert namespace.run("umount", "/etc", user=False).returncode == 0
    user_umount(namespace)


# Scripts that change to other users, or do first what is root's.
FOR_ROOT = """access_checks capabilities_and_owners chmod_by_whom chmod_in_foreign_group chown_by_whom devices file_capabilities
    links_between_users one_name_every_kind open_executes open_new_files open_other_flags open_permissions open_unnamed
    permissions_of_directories relatime rename_directory_of_another rename_whiteout run_with_capabilities setgid_directory
    setgid_without_execute setid_and_handles setid_cleared_by_changes setid_cleared_by_references sticky_directory utimens_by_whom
    xattr_by_whom xattr_namespaces""".split()


def test_user_scripts(namespace, ext4, seed, rng, full):
    """P10: what an ordinary user's calls do on a mount of their own, they do on ext4 for the same user: some scripts, or with --full
    all."""
    serve(namespace)
    names = sorted(SCRIPTS.keys() - set(FOR_ROOT))
    names = names if full else sorted({"setid_of_own", *rng.sample(names, 12)})
    directory = tempfile.mkdtemp(prefix="user", dir=ext4)
    os.chown(directory, 65534, 65534)
    sides = Sides(None, None, seed, full)

    def run():
        return {name: sides.run_at(".", name) for name in names}

    there, here = namespace.in_directory(ext4, os.path.basename(directory), run), namespace.in_directory(namespace.directory, "mnt", run)
    lines = [f"{name}: {line}" for name in there for line in unequal(name, there[name], here[name], full)]
    assert not lines, "\n".join(lines[:40])
    assert here["setid_of_own"]["read 644 then"]["file"]["owner"] == "65534:65534"
    assert sorted(namespace.run("ls", "mnt").stdout.split()) == names
    user_umount(namespace)


def one_line(done):
    lines = done.stderr.strip().split("\n")
    return lines[-1]


def test_user_is_told_what_to_do(namespace):
    """P10: each reason why a user cannot mount is named, with what to do."""
    assert namespace.run("mkdir", "mnt").returncode == 0
    shut = namespace.run("sh", "-c", "exec 3<>/dev/fuse").returncode != 0
    if shut:
        done = user_mount(namespace)
        assert (done.returncode, "cannot open /dev/fuse" in one_line(done), "chmod 666" in one_line(done)) == (1, True, True), done.stderr
    admit(namespace)
    done = user_mount(namespace, mountpoint="/mnt")
    assert done.returncode == 1 and "is not writable" in one_line(done), done.stderr
    done = user_mount(namespace, "allow_other")
    assert done.returncode == 32 and "user_allow_other" in done.stderr, done.stderr
    done = namespace.run("env", "PATH=/nowhere", namespace.binary, "mount", "store", "mnt", "-o", f"stage_dir={namespace.stage}")
    assert done.returncode == 2 and "fuse3" in one_line(done), done.stderr
    assert namespace.run("ls", "mnt").stdout == ""
