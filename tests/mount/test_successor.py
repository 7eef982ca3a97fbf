# SPDX-License-Identifier: Apache-2.0
"""The daemon dies; another goes on with the mount, and no call fails, is lost, or happens twice."""
import ctypes
import errno
import mmap
import os
import stat

import pytest

import rig
import successor
from kept import need_kernel
from rig import MIB

pytestmark = pytest.mark.needs_mount

LIBC = ctypes.CDLL(None, use_errno=True)
MANY = 1000
OPCODE_RELEASE = 18
AT_ONCE = -1
AT_FDCWD, RENAME_NOREPLACE, RENAME_EXCHANGE = -100, 1, 2


def renameat2(source, target, flags):
    if LIBC.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def link_descriptor(fd, path):
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=0, follow_symlinks=True)


def put(path, data=b"before"):
    rig.write_file(path, data)


class Place:
    """A directory of one try, and what was prepared in it."""

    def __init__(self, directory):
        self.directory, self.fd = directory, None
        os.mkdir(directory)

    def at(self, name="new"):
        return os.path.join(self.directory, name)

    def done(self):
        if self.fd is not None:
            os.close(self.fd)


def have(place, *names):
    for name in names:
        put(place.at(name), name.encode())


def have_open(place, data=b"0123456789" * 2000, flags=os.O_RDWR | os.O_CREAT):
    place.fd = os.open(place.at("open"), flags)
    rig.write_all(place.fd, data)


def have_nameless(place):
    place.fd = os.open(place.directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    rig.write_all(place.fd, b"nameless")


def have_gone(place):
    have_open(place)
    os.unlink(place.at("open"))


def make_exclusively(place):
    place.fd = os.open(place.at(), os.O_CREAT | os.O_EXCL | os.O_RDWR)
    return os.write(place.fd, b"made")


def open_and_close(place):
    for _ in range(2):
        os.close(os.open(place.at("old"), os.O_RDONLY))


def copy_range(place):
    return os.copy_file_range(place.fd, place.fd, 3000, 2000, 12000)


def make_nameless(place):
    have_nameless(place)
    os.setxattr(place.fd, "user.one", b"1", os.XATTR_CREATE)
    link_descriptor(place.fd, place.at())


def shrink_and_grow(place):
    os.ftruncate(place.fd, 5000)
    os.ftruncate(place.fd, 9000)


def have_xattr(place):
    have(place, "old")
    os.setxattr(place.at("old"), "user.old", b"old")


def append(place):
    with rig.opened(place.at("open"), os.O_WRONLY | os.O_APPEND) as fd:
        return [os.write(fd, b"end"), os.write(fd, b"END")]


def write_durably(place):
    with rig.opened(place.at("open"), os.O_WRONLY | os.O_DSYNC) as fd:
        return os.pwrite(fd, b"durable", 7)


def exists(place):
    return os.path.exists(place.at("open"))


# What is prepared, and the calls in which the daemon dies.
CALLS = {
    "mkdir": (None, lambda p: os.mkdir(p.at(), 0o750)),
    "rmdir": (lambda p: os.mkdir(p.at("old")), lambda p: os.rmdir(p.at("old"))),
    "create": (None, make_exclusively),
    "mknod": (None, lambda p: os.mkfifo(p.at(), 0o640)),
    "mknod_file": (None, lambda p: os.mknod(p.at(), stat.S_IFREG | 0o640)),
    "symlink": (None, lambda p: os.symlink("target", p.at())),
    "link": (lambda p: have(p, "old"), lambda p: os.link(p.at("old"), p.at())),
    "link_open": (have_open, lambda p: os.link(p.at("open"), p.at())),
    "unlink": (lambda p: have(p, "old"), lambda p: os.unlink(p.at("old"))),
    "unlink_open": (have_open, lambda p: os.unlink(p.at("open"))),
    "rename": (lambda p: have(p, "old"), lambda p: os.rename(p.at("old"), p.at())),
    "rename_over": (lambda p: have(p, "old", "new"), lambda p: os.rename(p.at("old"), p.at())),
    "rename_noreplace": (lambda p: have(p, "old"), lambda p: renameat2(p.at("old"), p.at(), RENAME_NOREPLACE)),
    "exchange": (lambda p: have(p, "old", "new"), lambda p: renameat2(p.at("old"), p.at(), RENAME_EXCHANGE)),
    "setxattr": (lambda p: have(p, "old"), lambda p: os.setxattr(p.at("old"), "user.new", b"1", os.XATTR_CREATE)),
    "removexattr": (have_xattr, lambda p: os.removexattr(p.at("old"), "user.old")),
    "chmod": (lambda p: have(p, "old"), lambda p: os.chmod(p.at("old"), 0o604)),
    "open": (lambda p: have(p, "old"), open_and_close),
    "opendir": (lambda p: have(p, "a", "b"), lambda p: sorted(os.listdir(p.directory))),
    "write": (have_open, lambda p: os.pwrite(p.fd, b"x" * 3000, 500)),
    "write_large": (have_open, lambda p: os.pwrite(p.fd, b"y" * (3 * MIB), 4096)),
    "append": (have_open, append),
    "write_durably": (have_open, write_durably),
    "truncate": (have_open, shrink_and_grow),
    "punch": (have_open, lambda p: fallocate(p.fd, 3, 1000, 5000)),
    "copy_range": (have_open, copy_range),
    "fsync": (have_open, lambda p: os.fsync(p.fd)),
    "read": (have_open, lambda p: os.pread(p.fd, 1000, 100)),
    "nameless": (None, make_nameless),
    "link_nameless": (have_nameless, lambda p: link_descriptor(p.fd, p.at())),
    "gone_write": (have_gone, lambda p: [os.pwrite(p.fd, b"gone", 3), os.fstat(p.fd).st_size]),
    "gone_truncate": (have_gone, lambda p: [os.ftruncate(p.fd, 30), os.pread(p.fd, 50, 0)]),
}


def outcome(call, place):
    try:
        return call(place)
    except OSError as error:
        return errno.errorcode[error.errno]


def look(place):
    """All of it that can be seen; times and numbers of inodes apart."""
    found = {}
    for name in sorted(os.listdir(place.directory)):
        path = place.at(name)
        st = os.lstat(path)
        found[name] = [stat.filemode(st.st_mode), st.st_nlink if not stat.S_ISDIR(st.st_mode) else 0]
        if stat.S_ISREG(st.st_mode):
            found[name] += [rig.read_file(path), {key: os.getxattr(path, key) for key in os.listxattr(path)}]
        elif stat.S_ISLNK(st.st_mode):
            found[name].append(os.readlink(path))
    if place.fd is not None:
        st = os.fstat(place.fd)
        found[None] = [st.st_nlink, st.st_size, os.pread(place.fd, st.st_size + 1, 0)]
    return found


def attempt(directory, prepare, call, arm=lambda: None):
    place = Place(directory)
    try:
        if prepare:
            prepare(place)
        arm()
        return outcome(call, place), look(place)
    finally:
        place.done()


class Deaths:
    """Daemons of a mount that die before an answer."""

    def __init__(self, kept, root, sanitized, how="die_unanswered"):
        if sanitized:
            pytest.skip("skipped: a library is preloaded, and the sanitizer's would have to come first")
        library, self.path = successor.preload(root, how)
        kept.env = {**os.environ, "LD_PRELOAD": library, how.upper(): self.path}

    def arm(self, answers, changes=0):
        rig.write_file(self.path + ".new", f"{answers:8} {changes}\n")
        os.rename(self.path + ".new", self.path)

    def left(self):
        return int(rig.read_text(self.path).split()[0])

    def disarm(self):
        """True: one died."""
        try:
            os.unlink(self.path)
            return False
        except FileNotFoundError:
            return True


def test_a_check_that_fails_is_a_pause(kept, directory, shm_directory, rng, full, sanitized):
    """As people mount: an assertion of the daemon's own ends it within a call, at one lock or another, and the call succeeds."""
    need_kernel(6, 9)
    deaths = Deaths(kept, directory, sanitized, "fail_check")
    del kept.options["successor"]
    kept.verb("mount", kept.store, kept.mnt, "-o", kept.option_string({}))
    died = 0
    try:
        for name in sorted(CALLS) if full else ("create", "rename_over", "write_large", "truncate", "link_nameless"):
            expected = attempt(os.path.join(shm_directory, name), *CALLS[name])
            for number, locks in enumerate(range(12) if full else rng.sample(range(6), 2)):
                place = os.path.join(kept.mnt, f"{name}-{number}")
                assert attempt(place, *CALLS[name], lambda: deaths.arm(locks)) == expected, f"the daemon aborted at lock {locks} of {name}"
                died += deaths.disarm()
        seen = kept.successor()
        assert seen["deaths"] == died > 0 and seen["last_death"] == "signal 6" and seen["calls_lost"] == 0
        assert rig.read_text(os.path.join(kept.store, "log")).count("bug: check failed: pthread_mutex_lock(&m->mutex) == 0") == died
    finally:
        deaths.disarm()
        assert kept.cairn("umount", kept.mnt).returncode == 0
    assert kept.fsck().returncode == 0


def try_call(kept, deaths, name, answers, changes):
    """What came of it where the daemon dies after so many answers, and whether it did."""
    directory = os.path.join(kept.mnt, f"{name}-{answers}-{changes}")
    found = attempt(directory, *CALLS[name], lambda: deaths.arm(answers, changes))
    return found, deaths.disarm()


def answers_of(kept, deaths, name, expected, changes):
    """How many answers the calls need: all, or those that change something."""
    directory = os.path.join(kept.mnt, f"{name}-all-{changes}")
    found = attempt(directory, *CALLS[name], lambda: deaths.arm(MANY, changes))
    left = deaths.left()
    assert not deaths.disarm() and found == expected
    return MANY - left


@pytest.mark.timeout(300)
def test_a_call_that_was_done_and_not_answered_is_not_done_again(kept, directory, shm_directory, rng, full, sanitized):
    need_kernel(6, 9)
    deaths = Deaths(kept, directory, sanitized)
    kept.mount()
    died = 0
    for name in sorted(CALLS):
        expected = attempt(os.path.join(shm_directory, name), *CALLS[name])
        changes = not full and name != "read"
        count = answers_of(kept, deaths, name, expected, int(changes))
        for answers in range(count) if full else [rng.randrange(count)]:
            found, one_died = try_call(kept, deaths, name, answers, int(changes))
            assert found == expected, f"the daemon died before answer {answers} of {name}"
            died += one_died
    seen = kept.successor()
    assert seen["kept"] and seen["deaths"] == died >= len(CALLS) / 2
    kept.umount_whole()


@pytest.mark.timeout(300)
def test_without_resend_what_was_done_is_answered(kept, directory, shm_directory, rng, full, sanitized):
    """As on a kernel before 6.9: whatever made a name or wrote content before the daemon died is answered as if nothing had happened."""
    deaths = Deaths(kept, directory, sanitized)
    kept.mount(fuse_minor=39)
    died = 0
    usual = ("mkdir", "create", "mknod", "symlink", "link", "unlink", "rename_over", "chmod", "write", "write_durably", "copy_range",
             "nameless")
    for name in sorted(CALLS) if full else usual:
        expected = attempt(os.path.join(shm_directory, name), *CALLS[name])
        count = answers_of(kept, deaths, name, expected, 2)
        for answers in range(count) if full else [rng.randrange(count)] if count else []:
            found, one_died = try_call(kept, deaths, name, answers, 2)
            assert found == expected, f"the daemon died before answer {answers} of {name}"
            died += one_died
    seen = kept.successor()
    assert seen["deaths"] == died >= len(usual) and "fail with EIO" not in kept.log()
    kept.umount_whole()


def test_without_resend_what_fails_was_not_done(kept, directory, shm_directory, rng, sanitized):
    """The daemon aborts in the middle: EIO says that nothing happened, success that all of it did."""
    deaths = Deaths(kept, directory, sanitized, "fail_check")
    kept.mount(fuse_minor=39)
    lost = 0
    for name in ("mkdir", "rename_over", "symlink", "link", "unlink", "setxattr"):
        prepare, call = CALLS[name]
        expected = attempt(os.path.join(shm_directory, name), prepare, call)
        before = attempt(os.path.join(shm_directory, name + "-before"), prepare, lambda place: "EIO")
        found = attempt(os.path.join(kept.mnt, name), prepare, call, lambda: deaths.arm(rng.randrange(3)))
        deaths.disarm()
        assert found in (expected, before), name
        lost += found == before
    assert kept.log().count("1 calls in progress when the daemon died fail with EIO") == lost > 0
    kept.umount_whole()


def test_without_resend_what_was_just_received_fails(kept, directory, shm_directory, sanitized):
    """The daemon dies before it has seen the call: its caller gets EIO, and does not wait for ever."""
    deaths = Deaths(kept, directory, sanitized, "fail_check")
    kept.mount(fuse_minor=39)
    for name in ("create", "rename_over", "write_large", "append", "unlink"):
        prepare, call = CALLS[name]
        before = attempt(os.path.join(shm_directory, name), prepare, lambda place: "EIO")
        assert attempt(os.path.join(kept.mnt, name), prepare, call, lambda: deaths.arm(AT_ONCE)) == before, name
        assert deaths.disarm()
    assert kept.log().count("1 calls in progress when the daemon died fail with EIO") == 5
    kept.umount_whole()


def test_without_resend_what_was_closed_is_closed(kept, directory, rng, full, sanitized):
    """The daemon aborts within RELEASE, which nobody waits for: the next one closes the handle, and no call failed."""
    deaths = Deaths(kept, directory, sanitized, "fail_check")
    kept.mount(fuse_minor=39)
    died = 0
    for locks in (AT_ONCE, *(range(12) if full else rng.sample(range(5), 3))):
        path = os.path.join(kept.mnt, f"file-{locks}")
        with rig.opened(path, os.O_CREAT | os.O_RDWR) as fd:
            os.write(fd, b"content")
            deaths.arm(locks, OPCODE_RELEASE)
        rig.poll(lambda: kept.status()["mount"]["open_files"] == 0, 10, "the handle to be closed")
        died += deaths.disarm()
        assert rig.read_file(path) == b"content"
    seen = kept.successor()
    assert seen["deaths"] == died > 0 and seen["calls_lost"] == 0 and "fail with EIO" not in kept.log()
    kept.umount_whole()


def test_without_resend_a_durable_write_is_durable(kept, directory, rng, sanitized):
    """The daemon aborts within it: EIO, or NVMe has it when it returns."""
    deaths = Deaths(kept, directory, sanitized, "fail_check")
    kept.mount(fuse_minor=39, writeback_delay="10m")
    path = rig.write_synced(os.path.join(kept.mnt, "file"), b"old")
    fd = os.open(path, os.O_WRONLY | os.O_DSYNC)
    deaths.arm(rng.randrange(9, 25))  # mostly between the stage and NVMe
    written = outcome(lambda place: os.pwrite(fd, b"new", 0), None)
    assert deaths.disarm() and written in (3, "EIO")
    kept.kill9()
    with pytest.raises(OSError):
        os.close(fd)
    kept.drop_stage()
    kept.mount()
    assert written == "EIO" or rig.read_file(path) == b"new"
    kept.umount()


def test_without_resend_what_asks_fails(kept, directory, sanitized):
    deaths = Deaths(kept, directory, sanitized)
    kept.mount(fuse_minor=39)
    place = Place(os.path.join(kept.mnt, "place"))
    have(place, "one", "other")
    deaths.arm(1)
    with pytest.raises(OSError) as raised:
        os.listdir(place.directory)
    assert raised.value.errno == errno.EIO and deaths.disarm()
    assert kept.successor()["calls_lost"] == 1 and "fail with EIO" in kept.log()
    assert sorted(os.listdir(place.directory)) == ["one", "other"]
    kept.umount()


def lose_stage(kept):
    """The daemon dies, and its successor finds no stage: what the kernel has open is of none."""
    deaths = kept.successor()["deaths"]
    kept.pause()  # the holder: it starts no other meanwhile
    kept.kill_daemon()
    os.remove(os.path.join(kept.store, "session"))
    kept.go_on()
    rig.poll(lambda: kept.successor()["deaths"] > deaths, 30, "the successor")


def test_what_was_open_when_the_stage_was_lost_reads_and_closes_and_changes_nothing(kept):
    kept.mount(writeback_delay="50ms", attr_timeout="0", entry_timeout="0")
    path = kept.write("old", b"durable", level="nvme")
    kept.write("other", b"other", level="nvme")
    writer, reader, listing = os.open(path, os.O_RDWR), os.open(path, os.O_RDONLY), os.open(kept.mnt, os.O_RDONLY)
    pages = mmap.mmap(writer, 7)
    for _ in range(2):  # also where it was lost once before
        os.close(os.open(path, os.O_RDWR))
        lose_stage(kept)
    fresh = [os.open(os.path.join(kept.mnt, "fresh"), os.O_RDWR | os.O_CREAT)]  # the numbers of their handles are given out again
    fresh += [os.open(os.path.join(kept.mnt, "fresh"), os.O_RDWR) for _ in range(20)]
    os.unlink(os.path.join(kept.mnt, "fresh"))
    os.write(fresh[0], b"fresh")
    changes = {
        "write": lambda: os.pwrite(writer, b"lost", 0),
        "truncate": lambda: os.ftruncate(writer, 1),
        "allocate": lambda: fallocate(writer, 0, 0, 4096),
        "copy": lambda: os.copy_file_range(fresh[0], writer, 3, 0, 0),
        "fsync": lambda: os.fsync(writer),
        "fsync of a directory": lambda: os.fsync(listing),
    }
    for change in changes.values():
        with rig.fails(errno.EIO):
            change()
    pages[:4] = b"LOST"
    with rig.fails(errno.EIO):
        pages.flush()
    rig.poll(lambda: pages[:] == b"durable", 10, "the kernel to drop the page")
    pages.close()
    assert os.pread(reader, 100, 0) == os.pread(writer, 100, 0) == b"durable"
    assert sorted(os.listdir(listing)) == ["old", "other"]
    for fd in (reader, listing):
        os.close(fd)
    with rig.fails(errno.EIO):  # what was written through it may be gone
        os.close(writer)
    causes = {error["cause"] for error in kept.status()["errors"]}
    assert any(cause.startswith("the stage was lost while this file was open") for cause in causes), causes
    rig.poll(lambda: kept.status()["mount"]["open_files"] == len(fresh), 10, "the end of the closes")
    assert [os.pread(fd, 100, 0) for fd in fresh] == [b"fresh"] * len(fresh)
    for fd in fresh:
        os.close(fd)
    with rig.opened(path) as again:
        os.pwrite(again, b"D", 0)
    assert rig.read_file(path) == b"Durable"
    kept.umount_whole()


def faults_of_children(pid):
    """Page faults of the children that have ended: another number for each."""
    return int(rig.read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[8])


def test_starts_that_fail_do_not_soon_end_the_mount(kept):
    """What they meet lies outside, here a directory that is away: it passes more often than a fault of the daemon's own."""
    kept.mount(crash_window="1h")
    path = rig.write_file(os.path.join(kept.mnt, "file"), b"kept")
    journal = os.path.join(kept.store, "journal")
    os.rename(journal, journal + ".away")
    rig.write_file(journal, b"no directory")
    kept.kill_daemon()
    seen = set()
    rig.poll(lambda: seen.add(faults_of_children(kept.proc.pid)) or len(seen) > 7, 30, "more deaths than end a mount", 0.02)
    os.unlink(journal)
    os.rename(journal + ".away", journal)
    assert rig.read_file(path) == b"kept" and kept.successor()["deaths"] > 6
    kept.umount()
