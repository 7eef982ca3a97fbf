# SPDX-License-Identifier: Apache-2.0
"""P2, P8, P9: every site of the store's disk fails, in every way it can, in a daemon that serves, mounts or unmounts; then kill -9, and the
judge.

A round is one fault: a site and what it does (tests/faultdisk.py), while a few operations run that are recorded. One daemon serves many
rounds. After errors and short counts all is there that was acknowledged. A disk that lies may lose what it took: then what is read is
right, or EIO, or the mount is refused with a reason. In no case does the daemon end by a signal, or something hang."""
import collections
import contextlib
import errno
import os
import random
import stat
import tempfile

import pytest

import faultdisk
import history
import judge
import rig

ROUNDS, FULL_ROUNDS, GROUP = {False: 90, True: 30}, {False: 9000, True: 1000}, 30  # by whether the disk lies
FILES = 10
SIZES = (100, 3000, 17_000, 120_000, 400_000)
AT_PUBLICATION = ("head", "runs", "remote")
ALLOWED = (errno.EIO, errno.ENOSPC, errno.EDQUOT)  # what programs may get of a disk that fails


class Group:
    """Rounds on one store, and the history of what was done in them."""

    def __init__(self, cairn, disk, rng, logs, number, silent, remote):
        self.cairn, self.disk, self.rng, self.silent = cairn, disk, rng, silent
        self.log = os.path.join(logs or "", f"log-{number}")
        self.options = {"stage": "64M", "writeback_delay": "0s", **({"remote": f"dir:{remote}"} if remote else {})}
        self.names, self.count, self.rec = {}, 0, None
        self.errors = collections.Counter()
        self.restarted = False
        self.what = []  # the rounds, for the report of a failure

    # the daemon
    def mount(self):
        self.cairn.mount(**self.options)

    def may_mount(self):
        """A mount on a failing disk; False: refused, with a reason."""
        try:
            self.mount()
        except rig.MountError as failure:
            text = str(failure).splitlines()
            code = int(text[0].split("with ")[1].rstrip(":"))
            assert code > 0, f"the daemon was ended by signal {-code}: {failure}"
            assert text[-1].startswith("cairn mount:"), failure
            return False
        return True

    def begin(self):
        self.mount()
        self.root = os.path.join(self.cairn.mnt, "work")
        os.makedirs(self.root, exist_ok=True)
        self.rec = history.Recorder(self.root, self.log)

    def alive(self):
        assert self.cairn.proc.poll() is None, f"the daemon ended with {self.cairn.proc.returncode}"

    # operations
    def attempt(self, function):
        try:
            function()
        except history.Stop as failure:
            text = str(failure).rsplit(": ", 1)[-1]
            self.errors[text] += 1
            self.alive()
            assert text in [os.strerror(code) for code in ALLOWED], failure
        finally:
            for handle in list(self.rec.fds):
                os.close(self.rec.fds.pop(handle))

    def new(self, name):
        handle = self.rec.open(name + ".new", history.WRITE_NEW)
        self.rec.write(handle, self.rng.choice(SIZES), self.rng.randrange(1 << 40))
        if self.rng.random() < 0.4:
            self.rec.fsync(handle)
        self.rec.close(handle)
        self.rec.rename(name + ".new", name)

    def change(self, name):
        """After a lie a mount may go back to the NVMe horizon: then the history does not know what a change would meet."""
        if self.silent and self.restarted or not os.path.exists(os.path.join(self.root, name)):
            return self.new(name)
        handle = self.rec.open(name, os.O_WRONLY)
        self.rec.write(handle, self.rng.choice(SIZES), self.rng.randrange(1 << 40), self.rng.randrange(5000))
        if self.rng.random() < 0.4:
            self.rec.fsync(handle)
        self.rec.close(handle)

    def work(self):
        name = f"file-{self.rng.randrange(FILES)}"
        action = self.rng.choice((self.new, self.new, self.change, self.remove, self.read))
        self.attempt(lambda: action(name))

    def remove(self, name):
        if os.path.exists(os.path.join(self.root, name)):
            self.rec.unlink(name)

    def read(self, name):
        """Through the cache of the kernel: the judge compares it all."""
        try:
            rig.read_file(os.path.join(self.root, name))
        except OSError as error:
            assert error.errno in (errno.ENOENT, *ALLOWED), error

    # rounds
    def fire(self, when, site, call, what, times, skip):
        self.what.append((when, site, call, what, times, skip))
        self.disk.arm(site, call, what, skip=skip, times=times)

    def serve(self, site, call, what, times=1, skip=0):
        self.fire("serving", site, call, what, times, skip)
        for _ in range(6):
            self.work()
            if site in AT_PUBLICATION:
                self.cairn.cairn("wait", self.cairn.mnt, "--level", "remote", "--timeout", "1s")
            if self.disk.fired():
                break
        fired = self.disk.fired()
        self.disk.disarm()
        self.alive()
        return fired

    def restart(self, site, call, what, times=1, skip=0):
        """The fault meets the end of a mount, and the next mount."""
        self.fire("restarting", site, call, what, times, skip)
        self.restarted = True
        if self.rng.random() < 0.6:
            self.cairn.kill9()
        else:
            self.end()
        mounted = self.may_mount()
        if mounted:
            for name in os.listdir(self.root) if os.path.isdir(self.root) else []:
                self.read(name)
            self.work()
        fired = self.disk.fired()
        self.disk.disarm()
        if not mounted:
            mounted = self.may_mount()
            assert mounted or self.silent, "refused after an error that is over:\n" + self.cairn.log()[-2000:]
        return fired, mounted

    def end(self):
        """An unmount on a failing disk ends well, or says that something is left."""
        done = self.cairn.cairn("umount", self.cairn.mnt, timeout=rig.PATIENCE * 30)
        code = self.cairn.reap(30)
        assert code >= 0, f"the daemon was ended by signal {-code}\n{self.cairn.log()[-3000:]}"
        assert done.returncode in (0, 1, 2, 3, 4), done.stderr
        rig.file_systems_unmount(self.cairn.mnt)

    # the end
    def judge(self):
        self.cairn.kill9()
        if not self.may_mount():
            assert self.silent, "refused:\n" + self.cairn.log()[-2000:]
            return "refused"
        if not self.silent:
            judge.check_live(self.root, self.log)
            self.cairn.umount_whole()
            return "whole"
        lost = self.judge_silent()
        self.end()
        return lost

    def judge_silent(self):
        """Every file has a content that it had at some time, or is not to be read."""
        past = collections.defaultdict(set)
        taken = judge.History(self.log)
        model = judge.Model()
        for op in taken.ops:
            try:
                model.apply(op)
            except KeyError:
                continue
            for name, entry in model.names.items():
                if entry[0] == "f":
                    past[name].add(entry[1].live)
        known = {judge.digest(content) for contents in past.values() for content in contents}
        told = 0
        if not os.path.isdir(self.root):
            return "lost"
        for entry in os.scandir(self.root):
            try:
                if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    left = judge.Left(entry.path, entry.stat())
                    assert left.digest in known, f"{entry.name}: wrong bytes"
            except OSError as error:
                assert error.errno == errno.EIO, error
                told += 1
        return "told" if told else "right"


def schedule(rng, sites, silent):
    """Every site and what it can do, in random order, over and over."""
    while True:
        some = [(site, call, what) for site, call in sites for what in (faultdisk.silent(call) if silent else faultdisk.loud(call))]
        rng.shuffle(some)
        yield from some


def begin_store(cairn, disk, site, call, what):
    """A store is made on a disk that fails: it is there afterwards, or its making was refused, and works when the disk does."""
    disk.arm(site, call, what, times=1)
    group = Group(cairn, disk, random.Random(2), None, 0, isinstance(what, str), cairn.root + "/remote" if site in AT_PUBLICATION else None)
    mounted = group.may_mount()
    if mounted and site in AT_PUBLICATION:
        cairn.cairn("wait", cairn.mnt, "--level", "remote", "--timeout", "1s")
    fired = disk.fired()
    disk.disarm()
    if mounted or group.may_mount():
        rig.write_file(os.path.join(cairn.mnt, "file"), b"content")
        group.end()
    else:
        assert group.silent, "refused after an error that is over:\n" + cairn.log()[-2000:]
    return fired


def sites_of(cairn, disk, logs, remote):
    """What a life of a store calls: mounts, kill, snapshot of the view, unmount."""
    group = Group(cairn, disk, random.Random(1), logs, "sites", False, remote)
    group.begin()
    for _ in range(30):
        group.work()
    cairn.kill9()
    group.mount()
    for name in os.listdir(group.root):
        group.read(name)
    cairn.umount()
    group.mount()
    cairn.umount()
    return disk.sites()


@pytest.mark.needs_mount
@pytest.mark.timeout(600)
@pytest.mark.pieces(6)
@pytest.mark.parametrize("silent", [False, True], ids=["errors", "lies"])
def test_every_site_fails(mount_factory, request, rng, shm_directory, directory, full, sanitized, report, silent, piece):
    """P2, P8, P9."""
    build = faultdisk.build_of(request.config, sanitized)
    count = piece.share((FULL_ROUNDS if full else ROUNDS)[silent])
    cover, results, done, number = collections.Counter(), collections.Counter(), 0, 0
    later = []  # for a store with a remote
    sites, plan, began = None, None, rig.time.monotonic()
    while done < count:
        number += 1
        cairn = mount_factory(tempfile.mkdtemp(prefix="store-", dir=directory))
        remote = os.path.join(directory, f"remote-{number}") if number % 2 else None
        disk = faultdisk.FaultDisk(cairn, build, os.path.join(directory, f"faults-{number}"))
        if sites is None:
            with contextlib.closing(cairn):
                sites = sites_of(cairn, disk, shm_directory, remote)
            plan = schedule(rng, sites, silent)
            continue
        group = Group(cairn, disk, rng, shm_directory, number, silent, remote)
        try:
            group.begin()
            mounted = True
            for _ in range(3 if silent else GROUP):
                site, call, what = later.pop() if later and remote else next(plan)
                if site in AT_PUBLICATION and not remote:
                    later.append((site, call, what))
                    continue
                fired = group.serve(site, call, what, times=rng.choice((1, 1, 3)), skip=rng.choice((0, 0, 1)))
                if not fired or (site, call) == ("directory", "fsync-never"):
                    again, mounted = group.restart(site, call, what)
                    fired = fired or again
                if not fired:
                    other = mount_factory(tempfile.mkdtemp(prefix="new-", dir=directory))
                    with contextlib.closing(other):
                        fired = begin_store(other, faultdisk.FaultDisk(other, build, os.path.join(directory, "faults-new")), site,
                                            call, what)
                    rig.shutil.rmtree(other.root)
                done += 1
                cover[site, call, str(what if isinstance(what, str) else errno.errorcode[what])] += bool(fired)
                if not mounted:
                    break
            results[group.judge() if mounted else "refused"] += 1
            print(number, done, results, len([1 for t in cover.values() if t]), len(cover), round(rig.time.monotonic() - began, 1),
                  flush=True)
        except BaseException:
            print("rounds of this store:", *group.what, sep="\n  ")
            raise
        finally:
            disk.disarm()
            cairn.close()
    if full:
        assert sum(1 for times in cover.values() if times) >= 0.9 * len(cover), [key for key, times in cover.items() if not times]
    missing = sorted(" ".join(key) for key, times in cover.items() if not times)
    report(f"disk-faults-{'lies' if silent else 'errors'}{f'-{piece.number}' if full else ''}", {
        "rounds": done, "stores": dict(results), "sites": len(sites), "fired": sum(1 for times in cover.values() if times),
        "of": len(cover),
        "never": missing, "coverage": {" ".join(key): times for key, times in sorted(cover.items())}})
