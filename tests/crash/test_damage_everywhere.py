# SPDX-License-Identifier: Apache-2.0
"""P8, P12: damage at every structure of a store and of a remote, before a mount, during service, and together with a lost view.

What is read is right, or EIO for these bytes with a line that names them; or the mount is refused, with a line that names what is damaged.
Nothing that was there is unlinked. One kind of damage cannot be told from a torn write: in the last batch of the journal, where the view is
lost, too. Then the last operations are missing, and what only they named is set aside.
"""
import errno
import os
import shutil

import pytest

import damage_cases as cases
import remote as remotes
import rig

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(1800), pytest.mark.pieces(len(cases.KINDS))]
LEFT_OUT = ("lock", "log", "log.1", "control", "room")
FILES = {"small": 500, "inline": 12_000, "one": 700_000, "two": 3_000_000, "directory/three": 1_500_000}
LAST = "last"  # written by itself, in a batch of its own


def content(name, size):
    text = name in ("one",)
    return (b"line of a text file\n" * (size // 20 + 1))[:size] if text else rig.seeded_bytes(name, size)


def synced(mnt, name, data):
    path = os.path.join(mnt, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with rig.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644) as fd:
        rig.write_all(fd, data)
        os.fsync(fd)


def fill(mount):
    """Two sessions, each file by itself; cleanly unmounted."""
    files = {name: content(name, size) for name, size in FILES.items()}
    files[LAST] = content(LAST, 400_000)
    mount.mount()
    for name in list(FILES)[:3]:
        synced(mount.mnt, name, files[name])
    mount.remount()
    for name in [*list(FILES)[3:], LAST]:
        synced(mount.mnt, name, files[name])
    return files


def read(path, want):
    """True: the right bytes; False: EIO for some of them. Anything else fails."""
    good = True
    with rig.opened(path, os.O_RDONLY) as fd:
        assert os.fstat(fd).st_size == len(want)
        for at in range(0, len(want), 64 * rig.KIB):
            try:
                got = os.pread(fd, 64 * rig.KIB, at)
            except OSError as error:
                assert error.errno == errno.EIO, error
                good = False
                continue
            assert got == want[at : at + len(got)], f"wrong bytes at {at}"
            good = good and len(got) == min(64 * rig.KIB, len(want) - at)
    return good


def judge(mount, files, may_lack=()):
    """What is shown is right, or EIO and told."""
    shown = {os.path.relpath(os.path.join(top, name), mount.mnt) for top, _, names in os.walk(mount.mnt) for name in names}
    missing = set(files) - shown
    assert missing <= set(may_lack), f"missing: {missing}"
    bad = {name for name in shown & set(files) if not read(os.path.join(mount.mnt, name), files[name])}
    told = str(mount.status()["damage"]) + mount.log()
    assert all(name in told for name in bad), (bad, told[-2000:])
    return missing, bad


def everything(store, *directories):
    """Names of what must not go, wherever it was set aside; of segments those that were begun."""
    found = set()
    for directory in ("packs", "journal", *directories):
        path = os.path.join(store, directory)
        for name in os.listdir(path) if os.path.isdir(path) else ():
            if os.path.isfile(os.path.join(path, name)):
                found.add(name.removeprefix("packs-").removeprefix("journal-"))
    return found


def begun(store):
    """Packs, segments that were begun, and files of others."""
    found = everything(store)
    for name in os.listdir(os.path.join(store, "journal")):
        path = os.path.join(store, "journal", name)
        if len(name) == 16 and not any(rig.read_file(path)[:65536]):
            found.discard(name)
    return found


class Base:
    """What each case gets a copy of."""

    def __init__(self, mount, directory):
        self.mount, self.directory, self.count = mount, directory, 0

    def make(self, files):
        self.files = files
        self.store = os.path.join(self.directory, "base")
        shutil.copytree(self.mount.store, self.store, ignore=shutil.ignore_patterns("control", "lock", "room"))
        return self

    def fresh(self, mount):
        """The case's mount gets the store as it was."""
        mount.drop_stage()
        shutil.rmtree(mount.store, ignore_errors=True)
        shutil.copytree(self.store, mount.store)


def chosen(all_cases, rng, full):
    return all_cases if full else rng.sample(all_cases, max(8, len(all_cases) // 30))


def is_zero_from_there_on(base, store, below):
    """Is there nothing but zeros from the first byte on that was damaged? A sector may hold more than one batch."""
    before, after = (rig.read_file(os.path.join(top, below)) for top in (base.store, store))
    first = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), min(len(before), len(after)))
    return not any(after[first:])


def excused(base, store, below, part, lost_view, kind):
    """What looks as if it had been torn, or never written; a sector may reach into the batch before."""
    if not lost_view or not below.startswith("journal/") or kind == "foreign":
        return ()
    is_end = part.startswith(("last", "slack")) or kind == "sector" and is_zero_from_there_on(base, store, below)
    return (LAST, "directory/three") if is_end else ()


def names_it(text, below):
    top = below.split(os.sep)
    words = {"head": ("head", "remote"), "runs": ("run", "head", "snapshot"), "view": ("view",)}.get(top[0], (top[0], top[-1]))
    return any(word in text for word in words)


def run_case(base, mount, below, part, kind, lost_view, rng, **options):
    base.fresh(mount)
    if lost_view:
        mount.delete_view()
    if not cases.damage(mount.store, below, part, kind, rng):
        return "nothing to damage"
    may_lack = excused(base, mount.store, below, part, lost_view, kind)
    before = begun(mount.store)
    log_before = len(mount.log())
    try:
        mount.mount(**options)
    except rig.MountError as refused:
        assert names_it(str(refused), below), f"it does not say what is damaged: {refused}"
        result = "refused"
    else:
        missing, bad = judge(mount, base.files, may_lack)
        if missing:
            assert "set aside" in mount.log()[log_before:], "packs of what is missing"
        synced(mount.mnt, "more", b"more" * 30_000)
        assert rig.read_file(os.path.join(mount.mnt, "more")) == b"more" * 30_000
        mount.umount()
        result = f"served, missing {missing}, EIO {bad}"
    gone = before - everything(mount.store, "lost+found")
    snapshot = os.path.isdir(os.path.join(mount.store, "runs"))
    assert not {name for name in gone
                if not (snapshot and len(name) == 16 and name in os.listdir(base.store + "/journal"))}, f"unlinked: {gone}"
    return result


@pytest.fixture
def store(cairn, directory):
    mount = cairn
    files = fill(mount)
    mount.umount()
    return Base(mount, directory).make(files)


@pytest.mark.parametrize("lost_view", (False, True), ids=("whole", "lost_view"))
def test_before_a_mount(store, rng, full, lost_view, piece):
    """Every part of every file, every kind of damage."""
    left_out = (*LEFT_OUT, "view") if lost_view else LEFT_OUT
    every = [(*place, kind) for place in cases.structures(store.store, left_out) for kind in piece.part(cases.KINDS)]
    for below, part, kind in chosen(every, rng, full):
        print(f"{below} {part}: {kind}: ", end="")
        print(run_case(store, store.mount, below, part, kind, lost_view, rng))


def test_during_service(store, rng, full, piece):
    """The daemon is at work when it happens; then it is killed, and mounted again, with its stage."""
    every = [(*place, kind) for place in cases.structures(store.store, (*LEFT_OUT, "view")) for kind in piece.part(cases.KINDS)]
    for below, part, kind in chosen(every, rng, full):
        print(f"{below} {part}: {kind}: ", end="")
        mount, result = store.mount, ""
        store.fresh(mount)
        mount.mount()
        rig.write_file(os.path.join(mount.mnt, "staged"), b"staged" * 10_000)
        if not cases.damage(mount.store, below, part, kind, rng):
            mount.umount()
            continue
        before = begun(mount.store)
        judge(mount, store.files)
        synced(mount.mnt, "more", b"more" * 30_000)
        mount.kill9()
        try:
            mount.mount()
        except rig.MountError as refused:
            assert names_it(str(refused), below), f"it does not say what is damaged: {refused}"
            result = "refused"
        else:
            files = {**store.files, "staged": b"staged" * 10_000, "more": b"more" * 30_000}
            result = judge(mount, files)
            mount.umount()
        print(result)
        gone = before - everything(mount.store, "lost+found")
        assert not gone or os.path.isdir(os.path.join(mount.store, "runs")), f"unlinked: {gone}"


@pytest.fixture
def published(on_remote, directory):
    node = on_remote()
    files = fill(node)
    node.wait_remote()
    node.umount()
    return Base(node, directory).make(files)


def went_back_over(mount, below, files):
    """What a reader may lack: the newest head is damaged, and the reader says that it goes back to an older one."""
    told = below.startswith("heads/") and below in mount.log()
    return files if told else ()


def test_a_remote(published, rng, full, piece):
    """A fresh node reads what is right, EIO, or refuses with the object's name; the node that has all of it on NVMe serves all of it."""
    node, whole = published.mount, published.mount.remote.path
    every = [(*place, kind) for place in cases.structures(whole, ("lease", ".clock")) for kind in piece.part(cases.KINDS)]
    for number, (below, part, kind) in enumerate(chosen(every, rng, full)):
        print(f"{below} {part}: {kind}: ", end="")
        path = f"{whole}-{number}"
        shutil.copytree(whole, path)
        if not cases.damage(path, below, part, kind, rng):
            continue
        before = set(remotes.DirRemote("", path).names())
        other, result = node.fresh(remotes.DirRemote("", path)), ""
        try:
            other.mount(ro=True)
        except rig.MountError as refused:
            assert names_it(str(refused).replace("prefix", "cairn"), below), f"it does not say what is damaged: {refused}"
            result = "refused"
        else:
            result = judge(other, published.files, went_back_over(other, below, published.files))
        other.close()
        shutil.rmtree(other.root)  # with what it allocated ahead
        gone = before - set(remotes.DirRemote("", path).names())
        assert not {name for name in gone if not name.startswith("lease")}, f"deleted: {gone}"
        published.fresh(node)
        node.use(remotes.DirRemote("", path))
        try:
            node.mount()
        except rig.MountError as refused:
            assert names_it(str(refused).replace("prefix", "cairn"), below), refused
        else:
            missing, bad = judge(node, published.files)
            assert not missing and not bad, "all of it is on NVMe"
            node.umount()
        print(result)
        shutil.rmtree(path)
