# SPDX-License-Identifier: Apache-2.0
"""P5: at any moment the remote is a prefix of the history, whatever happens to the daemon."""
import contextlib
import hashlib
import os

import pytest

import history
import judge
import rig

MOMENTS_A_RUN = 5
SMALL = {"stage": "128M", "gc_grace": "1s", "writeback_delay": "100ms"}


class Campaign:
    """Writers under load on one mount; copies of the remote at moments; each copy judged on a fresh node."""

    def __init__(self, mount, rng, logs):
        self.mount, self.rng, self.logs = mount, rng, logs
        self.number = 0

    def begin(self, **options):
        """Start writers in a directory of their own; they run when this returns."""
        self.number += 1
        self.name = f"run-{self.number}"
        self.log = os.path.join(self.logs, f"log-{self.number}")
        options = {"pause": 0.05, "shard": 1 << 20, **options}
        self.writers = history.Writers(os.path.join(self.mount.mnt, self.name), self.log, self.rng.randrange(1 << 30), **options)
        self.mount.quiet(self.writers)
        rig.poll(lambda: self.writers.mark() > 10_000, 60, "the writers to run")
        return self.writers

    def snapshot(self):
        """The daemon stands; the remote as it is then, and how long the history was at most."""
        with self.mount.paused():
            return self.mount.remote.copy(), self.writers.mark()

    def judge(self, copy, end_mark, readonly):
        """Mount a copy elsewhere: a prefix, complete where its marker is, and usable; returns how long the prefix is."""
        fresh = self.mount.fresh(copy)
        if not copy.heads():
            return 0  # nothing was published yet
        fresh.mount(**({"ro": True} if readonly else {"takeover": True}))
        try:
            path, taken = os.path.join(fresh.mnt, self.name), 0
            if os.path.isdir(path):
                taken, called = self.check_cut(path, end_mark)
                check_marker(path)
                print(f"{taken} of {called} operations")
            if not readonly:
                rig.write_file(os.path.join(fresh.mnt, "goes-on"), b"here, too")
            fresh.umount()
            if not readonly:
                assert fresh.fsck().returncode == 0
            return taken
        finally:
            fresh.close()
            copy.wipe()
            rig.shutil.rmtree(fresh.root, ignore_errors=True)

    def check_cut(self, path, end_mark):
        """The model over a plain directory has no drafts: it publishes files that are being written."""
        loose = {"idle": 0, "torn": True} if self.mount.plain else {}
        return judge.check_cut(path, self.log, 0, end_mark, **loose)

    def end(self):
        """The run is over: its directory goes, so that the next begins with an empty one."""
        self.writers.kill()
        rig.shutil.rmtree(os.path.join(self.mount.mnt, self.name))

    def pause(self, least=0.05, most=0.8):
        rig.time.sleep(self.rng.uniform(least, most))


def check_marker(path):
    """The checkpoint that `latest` names is there with its metadata. (Its bytes are judged by the history.)"""
    size = os.path.exists(os.path.join(path, "latest")) and os.path.getsize(os.path.join(path, "latest"))
    if not size:
        return
    steps = [name for name in os.listdir(path) if name.startswith("step-") and not name.endswith(".tmp")]
    assert steps, f"a marker, but no checkpoint: {os.listdir(path)}"
    assert any(os.path.exists(os.path.join(path, name, ".metadata")) for name in steps)


@pytest.mark.timeout(240)
def test_remote_at_random_moments(on_remote, remote, rng, shm_directory, full):
    """P5: 100 moments (10 by default) on each kind of remote: always a prefix, mounted read-only and to write."""
    mount = on_remote(remote, **SMALL).mount()
    campaign, taken = Campaign(mount, rng, shm_directory), []
    for _ in range(20 if full else 2):
        campaign.begin()
        copies = []
        try:
            for _ in range(MOMENTS_A_RUN):
                campaign.pause()
                copies.append(campaign.snapshot())
        finally:
            campaign.writers.kill()
        taken += [campaign.judge(*copy, readonly=number % 2 == 0) for number, copy in enumerate(copies)]
        campaign.end()
    print(f"{len(taken)} moments, prefixes of {taken} operations")
    assert any(taken), "no copy contained anything: the load did not reach the remote"


# ---------------------------------------------------------------- what a head ends with

def appended(path):
    with open(path, "ab") as file:
        file.write(b"more")


def copied(source, path):
    with open(source, "rb") as from_file, open(path, "wb") as to_file:
        assert os.copy_file_range(from_file.fileno(), to_file.fileno(), 1 << 20) > 0


def named_last(path):
    with rig.opened(".", os.O_TMPFILE | os.O_RDWR, 0o644) as fd:
        os.write(fd, b"last" * 50_000)
        os.setxattr(fd, "user.x", b"1")
        history.name_last(fd, path)


LAST = {
    "mkdir": lambda: os.mkdir("directory"),
    "make": lambda: rig.write_file("directory/one", b"one"),
    "make another": lambda: rig.write_file("directory/two", b"two" * 100_000),
    "exchange": lambda: history.exchange("directory/one", "directory/two"),
    "mkdir beside it": lambda: os.mkdir("other"),
    "exchange file and directory": lambda: history.exchange("directory/one", "other"),
    "rename": lambda: os.rename("directory/two", "moved"),
    "rename over": lambda: os.rename("moved", "other"),
    "whiteout": lambda: history.whiteout("other", "moved"),
    "whiteout over": lambda: history.whiteout("moved", "other"),
    "over a whiteout": lambda: os.rename("other", "moved"),
    "whiteout again": lambda: history.whiteout("moved", "other"),
    "link": lambda: os.link("other", "directory/link"),
    "symlink": lambda: os.symlink("other", "soft"),
    "fifo": lambda: os.mkfifo("fifo"),
    "named last": lambda: named_last("last"),
    "remove that": lambda: os.unlink("last"),
    "append": lambda: appended("other"),
    "truncate": lambda: os.truncate("other", 2),
    "truncate up": lambda: os.truncate("other", 100_000),
    "copy": lambda: copied("other", "copy"),
    "chmod": lambda: os.chmod("copy", 0o600),
    "times": lambda: os.utime("copy", ns=(7, 8)),
    "times of a directory": lambda: os.utime("directory", ns=(7, 8)),
    "xattr": lambda: os.setxattr("copy", "user.x", b"x"),
    "no xattr": lambda: os.removexattr("copy", "user.x"),
    "unlink": lambda: os.unlink("copy"),
    "unlink one of two": lambda: os.unlink("directory/link"),
    "rename a directory": lambda: os.rename("directory", "away"),
    "make and remove": lambda: (rig.write_file("away/short", b""), os.unlink("away/short")),
}


def look_at(root):
    """All that is there, but for the time of access."""
    found = {}
    for directory, directories, files in os.walk(root):
        for name in sorted(directories + files):
            path = os.path.join(directory, name)
            info = os.lstat(path)
            if os.path.islink(path):
                content = os.readlink(path)
            else:
                content = hashlib.sha256(rig.read_file(path)).hexdigest() if os.path.isfile(path) else None
            keys = [] if os.path.islink(path) else os.listxattr(path)
            attributes = {key: os.getxattr(path, key) for key in keys}
            found[os.path.relpath(path, root)] = (info.st_mode, info.st_nlink, info.st_size, info.st_mtime_ns, content, attributes)
    return found


@pytest.mark.timeout(300)
def test_every_operation_may_be_the_last(on_remote, remote):
    """P5: a fresh node shows what was there, whatever operation the newest head ends with."""
    mount = on_remote(remote, writeback_delay="0s").mount()
    for name, operation in LAST.items():
        with contextlib.chdir(mount.mnt):
            operation()
        mount.wait(level="remote")
        fresh = mount.fresh()
        with rig.discarded(fresh):
            fresh.mount(ro=True)
            assert look_at(fresh.mnt) == look_at(mount.mnt), name


# ---------------------------------------------------------------- the daemon dies

def die(campaign):
    """kill -9 at a random moment; the remote as it is then is judged; the same store loses nothing."""
    campaign.pause(0.1, 1.5)
    campaign.mount.kill9()
    campaign.writers.kill()
    end_mark = campaign.writers.mark()
    campaign.judge(campaign.mount.remote.copy(), end_mark, readonly=False)
    campaign.mount.mount()
    judge.check_live(os.path.join(campaign.mount.mnt, campaign.name), campaign.log)


PHASES = {
    "upload": {},
    "gc": {"gc_grace": "0s"},
    "evict": {"stage": "64M", "nvme": "320M", "gc_grace": "0s"},
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("phase", PHASES)
def test_killed_during(on_remote, remote, rng, shm_directory, full, phase):
    """P2, P5: kill -9 during upload, remote gc, eviction: the remote is a prefix, the store has everything."""
    mount = on_remote(remote, **{**SMALL, **PHASES[phase]}).mount()
    if mount.plain and phase == "evict":
        pytest.skip("skipped: needs the mount")
    campaign = Campaign(mount, rng, shm_directory)
    if phase == "evict":
        fill(mount, rng)
    for _ in range(20 if full else 1):
        campaign.begin(pause=0.01)
        try:
            die(campaign)
        finally:
            campaign.writers.kill()
        campaign.end()
    mount.wait_remote()
    if phase == "evict":
        check_filled(mount)
    mount.umount_whole()


def fill(mount, rng):
    """More than NVMe holds: the oldest must leave it for the remote."""
    mount.filled = {f"old-{number}": rng.randrange(1 << 30) for number in range(20)}
    for name, seed in mount.filled.items():
        mount.write(name, rig.seeded_bytes(seed, 20 * rig.MIB), "remote")


def check_filled(mount):
    for name, seed in mount.filled.items():
        assert rig.read_file(os.path.join(mount.mnt, name)) == rig.seeded_bytes(seed, 20 * rig.MIB), name


@pytest.mark.timeout(240)
def test_killed_during_takeover(on_remote, remote, rng, shm_directory, full):
    """P5: the node dies, and the store that takes over dies, too, at any moment of it: still a prefix."""
    mount = on_remote(remote, **SMALL).mount()
    campaign = Campaign(mount, rng, shm_directory)
    for _ in range(10 if full else 1):
        campaign.begin()
        try:
            # Not `cairn wait`: it would seal what is being written, at a moment that the history does not know.
            begun = mount.status()["remote"]["horizon_seq"]
            campaign.pause(0.5, 1.5)
            rig.poll(lambda: mount.status()["remote"]["horizon_seq"] > begun, 60, "the remote to advance")
        finally:
            mount.kill9()
            campaign.writers.kill()
        end_mark = campaign.writers.mark()
        heir = mount.fresh()
        for _ in range(rng.choice((1, 2, 3))):
            heir.start(takeover=True)
            rig.time.sleep(rng.random() * 0.5)
            heir.kill9()
        taken = campaign.judge(remote.copy(), end_mark, readonly=False)
        assert taken, "what was waited for is lost"
        heir.mount(takeover=True)
        campaign.check_cut(os.path.join(heir.mnt, campaign.name), end_mark)
        mount.wipe()
        campaign.mount = mount = heir
        campaign.end()
