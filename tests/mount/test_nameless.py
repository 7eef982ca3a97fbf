# SPDX-License-Identifier: Apache-2.0
"""Files without a name: what has lost its last one and is still known, and what was made without one (O_TMPFILE)."""
import concurrent.futures
import errno
import os
import random

import history
import rig
from rig import MIB

SLACK = 24 * MIB  # of what the view and the journal take: a segment is 16 MiB


def free(cairn):
    info = os.statvfs(cairn.mnt)
    return info.f_bavail * info.f_frsize


def nameless(cairn):
    return os.open(cairn.mnt, os.O_TMPFILE | os.O_RDWR, 0o644)


def die(cairn, fd):
    cairn.kill9()
    try:
        os.close(fd)
    except OSError as error:  # it is closed: the kernel tells that it could not ask the daemon
        assert error.errno == errno.ENOTCONN, error
    cairn.mount()


def clean(cairn):
    cairn.umount()
    report = cairn.fsck()
    assert report.returncode == 0, report.stdout
    cairn.mount()


def test_named_last_holds_all_that_was_written(cairn):
    """More than the stage has room for, in pieces and in scattered writes; a death of the daemon right after it was named."""
    cairn.mount(stage="64M")
    data = bytearray(rig.seeded_bytes(1, 200 * MIB))
    fd = nameless(cairn)
    rig.write_all(fd, data)
    rng = random.Random(2)
    for _ in range(3000):
        at = rng.randrange(len(data) - 100)
        data[at:at + 100] = rng.randbytes(100)
        os.pwrite(fd, data[at:at + 100], at)
    os.setxattr(fd, "user.x", b"1")
    history.name_last(fd, os.path.join(cairn.mnt, "named"))
    die(cairn, fd)
    path = os.path.join(cairn.mnt, "named")
    assert os.listdir(cairn.mnt) == ["named"] and os.stat(path).st_nlink == 1 and os.getxattr(path, "user.x") == b"1"
    assert rig.read_file(path) == data
    clean(cairn)
    assert rig.read_file(path) == data


def test_never_named_leaves_nothing(cairn):
    before = free(cairn.mount())
    for end in (die, lambda cairn, fd: os.close(fd)):
        fd = nameless(cairn)
        rig.write_all(fd, rig.seeded_bytes(3, 300 * MIB))  # more than the stage holds
        end(cairn, fd)
        rig.poll(lambda: free(cairn) > before - SLACK, what="room")
        assert os.listdir(cairn.mnt) == []
    clean(cairn)


def test_never_named_makes_room_at_once(cairn):
    """Two that are larger than the store together, one after the other."""
    cairn.mount(stage="64M", nvme="1G")
    fd = nameless(cairn)
    rig.write_all(fd, rig.seeded_bytes(6, 700 * MIB))
    os.close(fd)
    data = rig.seeded_bytes(7, 700 * MIB)
    rig.write_file(os.path.join(cairn.mnt, "named"), data)
    assert rig.read_file(os.path.join(cairn.mnt, "named")) == data


def test_removed_but_known_keeps_its_content(cairn):
    """By an O_PATH descriptor: it can be opened again as long as that is there, and takes room as long."""
    before = free(cairn.mount())
    path, data = os.path.join(cairn.mnt, "file"), rig.seeded_bytes(4, 100 * MIB)
    rig.write_file(path, data)
    cairn.wait()
    with rig.opened(path, os.O_PATH) as known:
        os.unlink(path)
        cairn.wait()
        assert free(cairn) < before - 70 * MIB
        assert rig.read_file(f"/proc/self/fd/{known}") == data
    rig.poll(lambda: free(cairn) > before - SLACK, what="room")
    clean(cairn)


def test_known_ones_are_gone_after_a_death(cairn):
    before = free(cairn.mount())
    path = rig.write_file(os.path.join(cairn.mnt, "file"), rig.seeded_bytes(5, 50 * MIB))
    cairn.wait()
    known = os.open(path, os.O_PATH)
    os.unlink(path)
    cairn.wait()
    cairn.kill9()
    os.close(known)
    cairn.mount()
    rig.poll(lambda: free(cairn) > before - SLACK, what="room")
    assert os.listdir(cairn.mnt) == []
    clean(cairn)


def use(directory, seed):
    """Makes, links, renames over, looks at and removes files of its own, in many orders."""
    rng = random.Random(seed)
    for number in range(150):
        names = [os.path.join(directory, f"{seed}-{number}-{i}") for i in range(3)]
        rig.write_file(names[0], rng.randbytes(64 << 10))
        os.link(names[0], names[1])
        os.link(names[0], names[2])
        with os.scandir(directory) as entries:
            for _, entry in zip(range(20), entries):
                try:
                    entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    pass  # it is another's
        rng.shuffle(names)
        if rng.random() < 0.3:
            rig.write_file(names[0] + ".new", b"new")
            os.rename(names[0] + ".new", names[0])
        for name in names:
            os.unlink(name)


def test_nothing_lives_on_for_ever(cairn):
    """The kernel forgets what has lost its names: however they went, beside others that look."""
    before = free(cairn.mount())
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(use, cairn.mnt, seed) for seed in range(6)]:
            done.result()
    assert os.listdir(cairn.mnt) == []
    cairn.wait()
    rig.poll(lambda: free(cairn) > before - SLACK, what="room")
