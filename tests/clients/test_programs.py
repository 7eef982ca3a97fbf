# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of checkpoints work on the mount as on ext4 (P10), and come through kills and power cuts (P2, P4)."""
import contextlib
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import tempfile

import pytest

import rig

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
WHO = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "gc.auto=0")


def run(*command, cwd=None, timeout=400, **more):
    """Output of a program that has to succeed. What it left behind in the background does not hold us up."""
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(command, cwd=cwd, timeout=timeout, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **more)
        out.seek(0)
        text = out.read()
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{text[-4000:]}"
    return text


def needs(program):
    if not shutil.which(program):
        pytest.skip(f"skipped: {program} is not installed")


# ---------------------------------------------------------------- git

def git(directory, *args):
    return run("git", *WHO, *args, cwd=directory, env={**os.environ, **GIT})


def make_repository(directory, rng):
    """Some commits of many small files and a few large ones, on two branches."""
    os.mkdir(directory)
    git(directory, "init", "-q", "-b", "main")
    for commit in range(6):
        for number in range(60):
            path = os.path.join(directory, f"part-{number % 7}", f"file-{number}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if commit == 0 or rng.random() < 0.2:
                rig.write_file(path, rng.randbytes(rng.choice((0, 10, 3000, 70_000))))
        os.chmod(os.path.join(directory, "part-1", "file-1"), 0o755 if commit % 2 else 0o644)
        git(directory, "add", "-A")
        git(directory, "commit", "-q", "-m", f"commit {commit}")
    git(directory, "branch", "side", "HEAD~2")


def test_git(cairn, rng, directory):
    """Clone, fsck, commits, merge, gc; the same after kill -9, after a remount and after power loss."""
    needs("git")
    source = os.path.join(directory, "source")
    make_repository(source, rng)
    cairn.mount()
    clone = os.path.join(cairn.mnt, "clone")
    git(cairn.mnt, "clone", "-q", "--no-hardlinks", source, clone)
    check_repository(clone, git(source, "rev-parse", "HEAD^{tree}"))
    git(clone, "checkout", "-q", "-b", "work", "origin/side")
    rig.write_file(os.path.join(clone, "new"), rng.randbytes(100_000))
    git(clone, "add", "new")
    git(clone, "commit", "-q", "-m", "new")
    git(clone, "merge", "-q", "-m", "merge", "main")
    git(clone, "worktree", "add", "-q", os.path.join(cairn.mnt, "other"), "main")
    git(clone, "gc", "-q", "--prune=now")
    tree = git(clone, "rev-parse", "HEAD^{tree}")
    check_repository(clone, tree)
    cairn.crash()
    check_repository(clone, tree)
    git(os.path.join(cairn.mnt, "other"), "status", "--porcelain")
    cairn.wait()
    cairn.power_cycle()
    check_repository(clone, tree)


def check_repository(clone, tree):
    problems = git(clone, "fsck", "--full", "--strict", "--no-dangling")
    assert problems == "", problems
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "rev-parse", "HEAD^{tree}") == tree


# ---------------------------------------------------------------- a build

@pytest.mark.timeout(200)
def test_build_of_cairnfs(cairn, full):
    """This project, configured and compiled on the mount: some of it, or with --full all of it, and its unit tests."""
    needs("meson")
    cairn.mount(stage="512M")
    source, build = os.path.join(cairn.mnt, "source"), os.path.join(cairn.mnt, "build")
    os.mkdir(source)
    for entry in os.scandir(TOP):
        if entry.is_file():
            shutil.copy2(entry.path, source)
    for name in ("src", "include", "python", "tests", "docs", "mount-scripts"):
        shutil.copytree(os.path.join(TOP, name), os.path.join(source, name), ignore=shutil.ignore_patterns("__pycache__"))
    run("meson", "setup", build, source, f"-Dtests={'enabled' if full else 'disabled'}", timeout=300)
    run("ninja", "-C", build, "-j2", *([] if full else build_targets(build)), timeout=1500)
    again = run("ninja", "-C", build, "-j2", "-d", "explain", *([] if full else build_targets(build)))
    assert "no work to do" in again, again[-2000:]
    if full:
        run("meson", "test", "-C", build, "--no-rebuild", "--suite", "base", "--suite", "format", "--suite", "codec", timeout=600)


def build_targets(build):
    """The library of the lowest room."""
    targets = run("ninja", "-C", build, "-t", "targets", "all").splitlines()
    found = [line.split(":")[0] for line in targets if ".a:" in line and "src/base/" in line]
    assert found, "there is no library of base/"
    return found


# ---------------------------------------------------------------- sqlite

WRITERS = 3


def write_rows(path, writer, log):
    """Commits rows one by one until the mount dies, which is an error of sqlite's; the log has what was acknowledged."""
    with contextlib.suppress(sqlite3.Error), open(log, "a", buffering=1) as said:
        base = sqlite3.connect(path, timeout=30, isolation_level=None)
        base.execute("pragma synchronous = full")
        for number in range(100_000):
            base.execute("begin immediate")
            base.execute("insert into t values (?, ?, ?)", (writer, number, rig.seeded_bytes(writer * 1_000_000 + number, 500)))
            base.execute("commit")
            said.write(f"{number}\n")
            rig.time.sleep(0.01)  # else the others starve: sqlite's lock is not fair


class Base:
    """A database in WAL mode with several writers."""

    def __init__(self, path, logs):
        self.path = path
        self.logs = [os.path.join(logs, f"writer-{number}") for number in range(WRITERS)]
        base = sqlite3.connect(path)
        assert base.execute("pragma journal_mode = wal").fetchone() == ("wal",)
        base.execute("create table t (writer int, number int, v blob, primary key (writer, number))")
        base.close()

    def start(self):
        context = multiprocessing.get_context("fork")
        self.writers = [
            context.Process(target=write_rows, args=(self.path, number, log), daemon=True) for number, log in enumerate(self.logs)
        ]
        for writer in self.writers:
            writer.start()
        rig.poll(lambda: min(self.acknowledged()) >= 5, 60, "each writer to commit")

    def acknowledged(self):
        return [len(rig.read_file(log).splitlines()) if os.path.exists(log) else 0 for log in self.logs]

    def stop(self):
        for writer in self.writers:
            writer.kill()
            writer.join()

    def check(self, path, least):
        """Nothing is broken, each writer's rows are a prefix, and what was acknowledged is there."""
        base = sqlite3.connect(path)
        with contextlib.closing(base):
            assert base.execute("pragma integrity_check").fetchone() == ("ok",)
            for writer in range(WRITERS):
                rows = base.execute("select number, v from t where writer = ? order by number", (writer,)).fetchall()
                assert [number for number, _ in rows] == list(range(len(rows)))
                assert len(rows) >= least[writer], f"writer {writer}: {least[writer]} acknowledged, {len(rows)} there"
                assert all(data == rig.seeded_bytes(writer * 1_000_000 + number, 500) for number, data in rows)


@pytest.mark.needs_mount
@pytest.mark.parametrize("how", ("kill", "power loss"))
def test_sqlite_wal_of_several_processes(cairn, shm_directory, how, mnt):
    """Every commit that returned is there after the daemon's death, and, since each was synced, after power loss."""
    path = os.path.join(mnt, "base.db")
    base = Base(path, shm_directory)
    base.start()
    try:
        rig.time.sleep(1.0)  # of work, which the kill interrupts
        least = base.acknowledged()
        assert all(writer.is_alive() for writer in base.writers), "one got an error"
        cairn.kill9()
        least = least if how == "power loss" else base.acknowledged()
    finally:
        base.stop()
    if how == "power loss":
        cairn.drop_stage()
    cairn.mount()
    base.check(path, least)


# ---------------------------------------------------------------- stress-ng and fio

# Of the classes "filesystem" and "io" of stress-ng all, but for
#   bind-mount, binderfs, procfs, rawdev: other filesystems, and the disk
#   chattr, inode-flags: flags of inodes, which are not here: each of their calls gets ENOTTY
#   dup, eventfd: descriptors of no file
#   fanotify: marks every mount of the machine, so that what other tests open waits for it
#   fiemap, verity: not here
#   io: syncs every mount of the machine
STRESSORS = (
    "hdd", "dentry", "dir", "dirdeep", "fallocate", "fcntl", "filename", "flock", "fstat", "link", "lockf", "mmap", "open", "rename",
    "seek", "symlink", "utime", "xattr", "copy-file", "sync-file", "chmod", "chown", "iomix", "readahead", "io-uring", "aio", "metamix",
    "locka", "lockofd", "lease", "revio", "access", "chdir", "dirmany", "dnotify", "file-ioctl", "fpunch", "fsize", "getdent",
    "handle", "inotify", "mknod", "touch", "aiol", "ioprio",
)  # fmt: skip
MORE = {"mmap": ("--mmap-file", "--mmap-bytes", "16M"), "hdd": ("--hdd-bytes", "64M"), "seek": ("--seek-size", "16M"),
        "chdir": ("--chdir-dirs", "500")}


def known_stressors():
    return set(run("stress-ng", "--stressors").split())


def stress(path, names, seconds):
    """(exit code, what it said) of stressors, all at once, in a directory (as the current one: io-uring's finds no file below an absolute
    path)."""
    command = ["stress-ng", "--temp-path", ".", "--timeout", str(seconds), "--verify", "--stdout", "--no-rand-seed"]
    for name in names:
        command += [f"--{name}", "1", *MORE.get(name, ())]
    with tempfile.TemporaryFile("w+") as out:
        proc = subprocess.Popen(command, cwd=path, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            code = proc.wait(seconds + 60)
        except subprocess.TimeoutExpired:
            os.killpg(proc.pid, rig.signal.SIGKILL)
            code = f"no end after {seconds + 60} s"
            proc.wait()
        out.seek(0)
        return code, out.read()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("part", range(3))
def test_stress_ng(cairn, directory, part, full):
    """No stressor of files finds anything that it does not find on the disk's own filesystem."""
    needs("stress-ng")
    known = known_stressors()
    names = [name for name in STRESSORS[part::3] if name in known]
    cairn.mount()
    code, said = stress(cairn.mnt, names, 20 if full else 1)
    if code != 0:
        failing = [name for name in names if stress(cairn.mnt, [name], 3)[0] != 0]
        only_here = [name for name in failing if stress(directory, [name], 3)[0] == 0]
        assert failing and not only_here, f"{only_here or names} fail here and not on the disk: {code}\n{said[-4000:]}"
    assert os.listdir(cairn.mnt) == []
    cairn.umount_whole()


FIO = {
    "random": ("--rw=randwrite", "--bsrange=512-128k", "--ioengine=psync"),
    "direct": ("--rw=randwrite", "--bs=4k", "--ioengine=libaio", "--iodepth=16", "--direct=1"),
    "mmap": ("--rw=randwrite", "--bs=4k", "--ioengine=mmap"),
    "vectors": ("--rw=write", "--bs=300k", "--ioengine=pvsync2", "--fsync=8"),
    "mixed": ("--rw=randrw", "--bs=16k", "--ioengine=psync", "--fsync=64", "--fallocate=keep"),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", FIO)
def test_fio(cairn, kind, full):
    """fio reads back what it wrote, at once and after kill -9 of the daemon."""
    needs("fio")
    cairn.mount()
    size = "256m" if full else "8m"
    verify = ("--verify=crc32c", "--verify_fatal=1", "--randrepeat=1", "--allrandrepeat=1", "--group_reporting")
    job = ["fio", "--name=job", f"--directory={cairn.mnt}", f"--size={size}", "--numjobs=2", *FIO[kind], *verify]
    run(*job, "--do_verify=1", cwd=cairn.root, timeout=1000)
    cairn.crash()
    if kind != "mixed":
        run(*job, "--verify_only=1", cwd=cairn.root, timeout=1000)
