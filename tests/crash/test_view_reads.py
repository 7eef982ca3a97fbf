# SPDX-License-Identifier: Apache-2.0
"""P8, P9: one block of the view is damaged, and each reader in turn meets it first: recovery, lookups, upload, gc, condense, scrub.

The journal is whole, so a new view is made from it: at once where a start meets the damage, by a successor under a live mount. Programs may
get EIO for a moment; then all files read right, everything comes to the remote, and the store is clean. Nothing hangs, and no mount is
refused."""
import contextlib
import errno
import os
import shutil
import tempfile

import pytest

import faultdisk
import remote as remotes
import rig
import successor
import viewfault

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(300)]

SITES = 10  # by default; with --full each
MIDDLE = (0.4, 0.5, 0.6)  # of the largest table: in a mount by an earlier version, damage there was the end of the start
OPTIONS = {"stage": "64M", "successor": "on", "crash_window": "0", "reduce": "dense", "reduce_after": "0s", "gc_grace": "1s", "lease": "5s"}


def raise_it(error):
    raise error


class Work:
    """Everything that a mount does with its view. Calls are repeated for as long as they meet the damage."""

    def __init__(self, mount):
        self.mount, self.want, self.number = mount, {}, 0

    def path(self, name):
        return os.path.join(self.mount.mnt, name)

    def patient(self, function):
        def done():
            try:
                return function() or True
            except OSError as error:
                if error.errno not in (errno.EIO, errno.ENOENT, errno.EEXIST):
                    raise
                return False

        return rig.poll(done, 60, "a call that works again")

    def write(self, name, size, seed):
        """Replaces the file as a checkpoint is: a new one gets its name."""
        data = rig.seeded_bytes(seed, size)

        def replace():
            rig.write_synced(self.path(name + ".new"), data)
            os.replace(self.path(name + ".new"), self.path(name))

        self.patient(replace)
        self.want[name] = data

    def remove(self, name):
        def unlink():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))

        self.patient(unlink)
        self.want.pop(name, None)

    def verb(self, *args):
        """A command of cairn; it may fail while the view is damaged."""
        said = []

        def succeeds():
            done = self.mount.cairn(*args, timeout=300)
            said[:] = [done.returncode, done.stdout[-1000:], done.stderr[-1000:]]
            return done.returncode == 0

        try:
            rig.poll(succeeds, 90, f"cairn {' '.join(args)}", 0.5)
        except TimeoutError as failure:
            raise TimeoutError(f"{failure}; at last {said}") from None

    def check(self):
        def look():
            for name, data in self.want.items():
                found = rig.read_file(self.path(name))
                assert found == data, f"{name}: {len(found)} bytes, not those written"
            names = {os.path.relpath(os.path.join(top, name), self.mount.mnt)
                     for top, _, files in os.walk(self.mount.mnt, onerror=raise_it) for name in files if not name.endswith(".new")}
            assert names == set(self.want), names ^ set(self.want)
            return True

        self.patient(look)

    def begin(self):
        for number in range(3):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path(f"step-{number}"))
        self.everything()

    def everything(self):
        """One turn of the life of a run: new versions, deletions, a crash, upkeep."""
        self.number += 1
        base = rig.seeded_bytes(("tensor", 0), 600_000)
        for step in range(3):
            data = bytearray(base)
            data[: 2000] = rig.seeded_bytes(("change", self.number, step), 2000)
            self.write(f"step-{step}/small", 900, (self.number, step))
            self.write(f"step-{step}/model", 300_000 + 1000 * step, ("model", step))
        self.write("latest", 20, self.number)
        self.write("old", 200_000, ("old", self.number))
        self.remove("old")
        self.patient(lambda: os.setxattr(self.path("latest"), "user.run", b"x" * 30) or True)

    def die(self):
        """The stage is all that has the last of it."""
        rig.write_file(self.path("unsynced.new"), rig.seeded_bytes(self.number, 70_000))
        self.patient(lambda: os.replace(self.path("unsynced.new"), self.path("unsynced")) or True)
        self.want["unsynced"] = rig.seeded_bytes(self.number, 70_000)
        self.mount.kill9()

    def crash(self):
        self.die()
        self.mount.mount()

    def upkeep(self):
        mnt = self.mount.mnt
        self.verb("wait", mnt, "--level", "remote", "--timeout", "60s")
        self.verb("evict", self.path("step-1/model"))
        self.verb("warmup", self.path("step-1/model"))
        self.verb("gc", mnt)
        self.verb("scrub", mnt)
        self.verb("du", "--why", mnt)
        self.verb("info", self.path("latest"))

    def turn(self):
        self.everything()
        self.check()
        self.crash()
        self.upkeep()
        self.check()

    def end(self):
        """Everything is in the remote; after damage that was met too late for that, by the next mount."""
        done = self.mount.cairn("umount", self.mount.mnt, "--drain", "remote", "--timeout", "90s")
        assert done.returncode in (0, 4), done
        self.mount.reap()
        if done.returncode == 4:
            self.mount.mount()
            self.mount.umount(drain="remote")


@pytest.fixture
def begin(request, mount_factory, directory, sanitized):
    """begin(): a store with a history, in the remote, not mounted; its daemon may meet damage."""
    build = faultdisk.build_of(request.config, sanitized)

    def make(**options):
        root = tempfile.mkdtemp(prefix="node-", dir=directory)
        remote = remotes.DirRemote(os.path.join(root, "remotes"))
        mount = mount_factory(root, kind=successor.KeptRemote, remote=remote, **{**OPTIONS, **options}, request=request)
        work = Work(mount)
        work.fault = viewfault.ViewFault(mount, build, os.path.join(root, "view-reads"))
        mount.mount()
        work.begin()
        work.turn()
        work.end()
        return work

    return make


def one_round(work, site, skip):
    """The damage is met at the site, if a turn comes there. Returns whether it was."""
    fault = work.fault
    fault.arm(site, skip)
    work.mount.mount()
    work.turn()
    work.end()
    fired = fault.fired()
    fault.disarm()
    work.mount.mount()
    work.check()
    work.mount.umount_whole(drain="remote")
    return fired


def sites_of(work):
    """Those that a store with a history passes in a turn."""
    before = work.fault.sites()
    work.mount.mount()
    work.turn()
    work.end()
    return {site: reads - before.get(site, (0,))[0] for site, (reads, _) in work.fault.sites().items()
            if reads > before.get(site, (0,))[0]}


@pytest.mark.pieces(8)
def test_each_reader_meets_damage(begin, full, piece, rng):
    work = begin()
    sites = sites_of(work)
    known = piece.part(sorted(sites))
    chosen = known if full else rng.sample(known, min(SITES, len(known)))
    fired, failed = 0, []
    for site in chosen:
        skip = rng.choice((0, 0, rng.randrange(sites[site])))
        try:
            fired += one_round(work, site, skip)
        except (AssertionError, TimeoutError, OSError, rig.MountError) as failure:
            failed.append(f"after {skip} reads at {work.fault.name(site)}:\n{str(failure)[:2000]}\n{work.mount.log()[-3000:]}")
            work.mount.close()
            work = begin()
    print(f"{len(sites)} sites, {len(chosen)} chosen, {fired} met damage")
    assert not failed, f"{len(failed)} of {len(chosen)}\n" + "\n".join(failed)
    assert fired > len(chosen) // 3


def test_an_upload_without_a_view_ends(begin, rng):
    """Without a successor only the next mount makes the view anew: a wait for the remote says so and fails, where it had no end."""
    work = begin(successor="off")
    mount, fault = work.mount, work.fault
    uploads = [site for site in sites_of(work) if "view_cut_rows" in fault.name(site)]
    rng.shuffle(uploads)
    mount.mount()
    for site in uploads:  # not every upload comes to each
        fault.arm(site)
        work.everything()
        done = mount.cairn("wait", mount.mnt, "--level", "remote", "--timeout", "120s")
        if fault.fired():
            break
        assert done.returncode == 0, done
    for done in (done, mount.cairn("umount", mount.mnt, "--drain", "remote", "--timeout", "120s")):
        assert done.returncode == 1 and "its view is damaged" in done.stderr and "mount again" in done.stderr, done
    rig.Mount.umount(mount)
    mount.mount()
    work.upkeep()
    work.check()
    assert fault.healed()
    mount.umount(drain="remote")


def test_damage_of_a_view_that_was_behind(begin, directory):
    """A view that lacks the newest head is made anew by a start, and that start meets damage in the new one: it makes another."""
    work = begin()
    mount, fault = work.mount, work.fault
    replays = [site for site in sites_of(work) if "is_nascent_now" in fault.name(site)]
    assert replays
    view, older = os.path.join(mount.store, "view"), os.path.join(directory, "older")
    shutil.copytree(view, older)
    mount.mount()
    work.turn()
    work.die()
    shutil.rmtree(view)
    os.rename(older, view)
    fault.arm(replays[0])
    mount.mount()
    assert fault.fired() and fault.healed()
    assert "the view is behind" in mount.log()
    work.check()
    work.upkeep()
    work.end()


def test_one_flipped_bit(begin, full, rng):
    """Anywhere in the tables of a view that is not open: the mount has all files, and NVMe and the remote get what comes then. Three of the
    places are in the middle of the largest table, where the rows are that each start reads."""
    work = begin()
    mount = work.mount
    view = os.path.join(mount.store, "view")
    for number in range(300 if full else 8):
        tables = [os.path.join(view, name) for name in sorted(os.listdir(view)) if name.endswith(".sst")]
        table = max(tables, key=os.path.getsize) if number < len(MIDDLE) else rng.choice(tables)
        size, file = os.path.getsize(table), os.stat(table).st_ino
        at, bit = int(MIDDLE[number] * size) if number < len(MIDDLE) else rng.randrange(size), 1 << rng.randrange(8)
        rig.flip(table, at, bit)
        mount.mount()
        work.check()
        work.write("latest", 20, number)
        work.end()
        if os.path.exists(table) and os.stat(table).st_ino == file:  # a view made anew gives its tables the same names
            rig.flip(table, at, bit)
