# SPDX-License-Identifier: Apache-2.0
"""MNT/.history: each snapshot of the remote as a read-only directory of the mount."""
import concurrent.futures
import errno
import filecmp
import os
import shutil
import stat
import time

import pytest

import by_reference
import processes
import rig
import successor
from another_user import OTHER, seen_by_other
from remote import runs_of
from test_keep import SMALL, Kept, cut_of, top, tree

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]

VIEWS_MAX = 4  # commit/past_views.h


@pytest.fixture
def writer(on_remote, remote, directory):
    """A snapshot `before`, of a tree that is gone now."""
    made = Kept(on_remote(remote, **SMALL), directory)
    made.node.mount(keep="last:30", gc_grace="1h")
    made.put("step1/model.pt", 1)
    made.put("step1/deep/optimizer.pt", 2, 900_000)
    rig.write_file(os.path.join(made.node.mnt, "small"), b"hello")
    made.tree["small"] = b"hello"
    os.symlink("step1", os.path.join(made.node.mnt, "latest"))
    os.setxattr(os.path.join(made.node.mnt, "small"), "user.note", b"then")
    made.node.verb("snapshot", "create", made.node.mnt, "before")
    made.before = dict(made.tree)
    shutil.rmtree(os.path.join(made.node.mnt, "step1"))
    made.tree = {"small": b"hello"}
    return made


def test_a_snapshot_is_a_directory(writer):
    """By its name, its time and its number; with links and attributes. A copy of it is what was there. So it is after a remount."""
    node = writer.node
    for _ in range(2):
        assert ".history" not in os.listdir(node.mnt) and "before" in os.listdir(top(node))
        assert tree(top(node, "before")) == writer.before
        small = top(node, "before", "small")
        assert os.readlink(top(node, "before", "latest")) == "step1"
        assert os.getxattr(small, "user.note") == b"then" and os.listxattr(small) == ["user.note"]
        copy = os.path.join(writer.directory, "copy")
        shutil.copytree(top(node, "before"), copy, symlinks=True)
        assert tree(copy) == writer.before and not filecmp.dircmp(copy, top(node, "before")).diff_files
        shutil.rmtree(copy)
        node.umount()
        assert not os.path.exists(os.path.join(node.store, "history"))
        node.mount()


def test_models_are_loaded_from_it(on_remote, remote):
    """torch.load, also mapped, and safetensors: the tensors of then, whatever the file holds now; so does a mount that fetches all of them."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    def save(step):
        model = {"w": torch.full((300, 1000), float(step)), "b": torch.arange(step, step + 1000)}
        torch.save(model, os.path.join(node.mnt, "latest.pt"))
        save_file(model, os.path.join(node.mnt, "latest.safetensors"))
        node.wait_remote()
        return model

    node = on_remote(remote, **SMALL).mount(gc_grace="1h")
    then = save(1)
    node.verb("snapshot", "create", node.mnt, "before")
    now = save(2)
    for anew in False, True:
        if anew:
            node.umount()
            node = on_remote(remote, **SMALL).mount(ro=True)
        for directory, model in (top(node, "before"), then), (node.mnt, now):
            pt = os.path.join(directory, "latest.pt")
            for load in (lambda: torch.load(pt)), (lambda: torch.load(pt, mmap=True)), (lambda: load_file(pt[:-2] + "safetensors")):
                loaded = load()
                assert loaded.keys() == model.keys() and all(torch.equal(loaded[name], model[name]) for name in model)
            del loaded


def test_every_state_under_its_time(writer):
    """The names that `cairn history` prints; and of several in one second each."""
    for seed in range(6):
        writer.put(f"step{seed % 2}/model.pt", 10 + seed)
        writer.publish()
    names, heads = os.listdir(top(writer.node)), writer.look()
    shown = {cut_of(heads[number]): tree(top(writer.node, str(number))) for number in heads if cut_of(heads[number]) in writer.states}
    assert len(shown) == 6 and shown == {cut: writer.states[cut] for cut in shown}
    assert len(names) == len(set(names)) and all(os.path.isdir(top(writer.node, name)) for name in names)
    by_time = [tree(top(writer.node, name)) for name in sorted(names) if name != "before"]
    assert [state for state in writer.states.values() if state not in by_time] == []
    for wrong in ("1999-01-01T00:00:00Z", "none", "999999"):
        with rig.fails(errno.ENOENT):
            os.stat(top(writer.node, wrong))


def test_names_that_are_given_show_at_once(writer):
    """Although the mount asks the remote every two seconds only."""
    node = writer.node
    for number in range(3):
        assert "before" in os.listdir(top(node))
        node.verb("snapshot", "create", node.mnt, f"new{number}")
        assert tree(top(node, f"new{number}")) == writer.tree
        node.verb("snapshot", "rename", node.mnt, f"new{number}", f"other{number}")
        assert f"other{number}" in os.listdir(top(node)) and f"new{number}" not in os.listdir(top(node))
        node.verb("snapshot", "delete", node.mnt, f"other{number}")
        assert f"other{number}" not in os.listdir(top(node))


def test_nothing_there_can_be_changed(writer):
    node, old = writer.node, top(writer.node, "before")
    small, new = os.path.join(old, "small"), os.path.join(node.mnt, "new")
    rig.write_file(new, b"new")
    calls = {
        "write": lambda: open(small, "r+b"), "truncate": lambda: os.truncate(small, 1), "unlink": lambda: os.unlink(small),
        "chmod": lambda: os.chmod(small, 0o600), "chown": lambda: os.chown(small, 1, 1), "utime": lambda: os.utime(small),
        "setxattr": lambda: os.setxattr(small, "user.a", b"b"), "create": lambda: open(os.path.join(old, "x"), "w"),
        "mkdir": lambda: os.mkdir(os.path.join(old, "x")), "symlink": lambda: os.symlink("a", os.path.join(old, "x")),
        "in": lambda: os.rename(new, os.path.join(old, "x")), "out": lambda: os.rename(small, os.path.join(node.mnt, "x")),
        "link out": lambda: os.link(small, os.path.join(node.mnt, "x")), "link in": lambda: os.link(new, os.path.join(old, "x")),
        "rmdir": lambda: os.rmdir(old), "rmdir top": lambda: os.rmdir(top(node)), "mkdir top": lambda: os.mkdir(top(node, "x")),
        "rename top": lambda: os.rename(top(node), os.path.join(node.mnt, "x")),
        "replace": lambda: os.rename(os.path.join(node.mnt, "new"), top(node, "before", "small"))}
    for name, call in calls.items():
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EROFS, name
    for call in (lambda: os.mkdir(top(node)), lambda: os.symlink("a", top(node)), lambda: os.link(new, top(node))):
        with rig.fails(errno.EEXIST):
            call()
    os.mkdir(os.path.join(node.mnt, "directory"))
    with rig.fails(errno.EROFS):
        os.rename(os.path.join(node.mnt, "directory"), top(node))
    assert tree(old) == writer.before


def test_inodes_of_their_own(writer):
    """Of a file that is there still, and of two snapshots; the same as long as it is mounted, and while it is open."""
    writer.node.verb("snapshot", "create", writer.node.mnt, "after")
    paths = [os.path.join(writer.node.mnt, "small"), top(writer.node, "before", "small"), top(writer.node, "after", "small")]
    numbers = [os.stat(path).st_ino for path in paths]
    assert len(set(numbers)) == 3
    with rig.opened(paths[1], os.O_RDONLY) as fd:
        for name in os.listdir(top(writer.node)):
            os.listdir(top(writer.node, name))
        assert os.fstat(fd).st_ino == numbers[1] == os.stat(paths[1]).st_ino and os.pread(fd, 9, 0) == b"hello"
    listed = {entry.name: entry.inode() for entry in os.scandir(top(writer.node, "before"))}
    assert listed["small"] == numbers[1]


def test_of_a_mount_that_only_reads(writer):
    """A follower has the same, and what it can reach."""
    with writer.node.elsewhere(ro=True) as reader:
        assert tree(top(reader, "before")) == writer.before
        with rig.fails(errno.EROFS):
            os.unlink(top(reader, "before", "small"))
        writer.node.verb("snapshot", "create", writer.node.mnt, "later")
        rig.poll(lambda: "later" in os.listdir(top(reader)), 20, "a name that is new")
        assert tree(top(reader, "later")) == writer.tree


def test_it_comes_from_the_remote(writer, on_remote, remote):
    """A node that has nothing of it on NVMe; the chunks of deleted files are stored by others."""
    for seed in range(3):
        writer.put("latest.pt", seed)
        writer.publish()
    writer.node.verb("snapshot", "create", writer.node.mnt, "three")
    three = dict(writer.tree)
    writer.remove("latest.pt")
    writer.publish()
    writer.node.umount()
    fresh = on_remote(remote, **SMALL)
    fresh.mount(gc_grace="1h")
    assert tree(top(fresh, "three")) == three and tree(top(fresh, "before")) == writer.before
    assert tree(fresh.mnt) == writer.tree


ATTRIBUTES = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_mtime_ns", "st_ctime_ns")


def attributes(path):
    """Of all that is below it."""
    found = {}
    for directory, directories, names in os.walk(path):
        for name in directories + names:
            st = os.lstat(os.path.join(directory, name))
            found[os.path.relpath(os.path.join(directory, name), path)] = {key: getattr(st, key) for key in ATTRIBUTES}
    return found


def test_attributes_are_those_of_then(writer):
    """Whatever was done to the files since."""
    node = writer.node
    path = os.path.join(node.mnt, "file")
    rig.write_file(path, os.urandom(70_000))
    os.mkdir(os.path.join(node.mnt, "directory"))
    os.link(path, os.path.join(node.mnt, "directory", "link"))
    os.symlink("file", os.path.join(node.mnt, "symlink"))
    with open(os.path.join(node.mnt, "sparse"), "wb") as file:
        file.truncate(50 << 20)
    os.chmod(path, 0o640)
    os.chown(os.path.join(node.mnt, "sparse"), OTHER, OTHER)
    os.utime(path, ns=(10**18, 10**18 + 7))
    then = attributes(node.mnt)
    assert then["file"]["st_nlink"] == 2 and then["sparse"]["st_uid"] == OTHER and then["file"]["st_mtime_ns"] == 10**18 + 7
    node.verb("snapshot", "create", node.mnt, "then")
    os.truncate(path, 10)
    os.chmod(path, 0o666)
    os.utime(path)
    os.unlink(os.path.join(node.mnt, "directory", "link"))
    os.chmod(os.path.join(node.mnt, "directory"), 0o777)
    os.unlink(os.path.join(node.mnt, "symlink"))
    os.truncate(os.path.join(node.mnt, "sparse"), 1)
    assert attributes(top(node, "then")) == then


@pytest.mark.parametrize("where", ["remote", "store"])
def test_modes_of_then_and_of_now(on_remote, remote, cairn, where):
    """Whichever allows less. Of what is gone, those of then. Also of a store without a remote."""
    rig.need_root()
    node = on_remote(remote, **{**SMALL, "gc_grace": "1h"}) if where == "remote" else cairn
    node.mount(keep="last:30")
    then = {"both": 0o644, "closed-now": 0o644, "closed-then": 0o600, "gone": 0o644, "gone-closed": 0o600, "given": 0o640}
    for name, mode in then.items():
        path = os.path.join(node.mnt, name)
        rig.write_file(path, b"x")
        os.chmod(path, mode)
    for name in ("open", "closed"):
        os.mkdir(os.path.join(node.mnt, name))
        rig.write_file(os.path.join(node.mnt, name, "in"), b"y")
    os.chmod(os.path.join(node.mnt, "both"), 0o4755)
    node.verb("snapshot", "create", node.mnt, "then")
    os.chmod(os.path.join(node.mnt, "closed-now"), 0o600)
    os.chmod(os.path.join(node.mnt, "closed-then"), 0o644)
    os.chmod(os.path.join(node.mnt, "closed"), 0o700)
    os.chown(os.path.join(node.mnt, "given"), OTHER, OTHER)
    for name in ("gone", "gone-closed"):
        os.unlink(os.path.join(node.mnt, name))
    seen = {name: seen_by_other(node, ".history", "then", name) for name in (*then, "open/in", "closed/in", "closed")}
    assert seen == {"both": "x", "closed-now": errno.EACCES, "closed-then": errno.EACCES, "gone": "x", "gone-closed": errno.EACCES,
                    "given": errno.EACCES, "open/in": "y", "closed/in": errno.EACCES, "closed": errno.EACCES}
    assert stat.S_IMODE(os.stat(top(node, "then", "both")).st_mode) == 0o755
    assert tree(top(node, "then"))["gone-closed"] == b"x"  # root
    os.chmod(os.path.join(node.mnt, "open"), 0o700)
    time.sleep(1.1)  # the kernel may keep a mode for a second
    assert seen_by_other(node, ".history", "then", "open/in") == errno.EACCES


def test_a_root_that_was_closed(on_remote, remote):
    rig.need_root()
    node = on_remote(remote, **SMALL)
    node.mount(gc_grace="1h")
    rig.write_file(os.path.join(node.mnt, "a"), b"x")
    os.chmod(node.mnt, 0o700)
    node.verb("snapshot", "create", node.mnt, "then")
    os.chmod(node.mnt, 0o755)
    assert seen_by_other(node, "a") == "x"
    assert [seen_by_other(node, ".history", "then", name) for name in ("a", "")] == [errno.EACCES] * 2
    assert tree(top(node, "then")) == {"a": b"x"}


def test_a_file_of_that_name_wins(writer):
    """One that was made where the name meant nothing."""
    node = writer.node
    node.umount()
    node.mount(history="off")
    with rig.fails(errno.ENOENT):
        os.stat(top(node))
    os.mkdir(top(node))
    rig.write_file(top(node, "own"), b"mine")
    node.umount()
    node.mount()
    assert os.listdir(top(node)) == ["own"] and ".history" in os.listdir(node.mnt)
    os.unlink(top(node, "own"))
    os.rmdir(top(node))
    assert "before" in os.listdir(top(node)) and tree(top(node, "before")) == writer.before


def test_only_some_are_open_at_once(writer):
    """The least recently used one closes. Those with open files stay; when all are in use, another one cannot be opened."""
    names = []
    for number in range(VIEWS_MAX + 2):
        writer.put("step", number, 1000)
        names.append(f"name{number}")
        writer.node.verb("snapshot", "create", writer.node.mnt, names[-1])
    expected = {name: rig.read_file(top(writer.node, name, "step")) for name in names}
    assert len(set(expected.values())) == len(names)
    opened = os.path.join(writer.node.store, "history")
    assert len(os.listdir(opened)) <= VIEWS_MAX
    slots = [str(os.stat(top(writer.node, name, "step")).st_ino >> 48) for name in names[:VIEWS_MAX]]
    for number in (*range(VIEWS_MAX), 0, VIEWS_MAX):
        os.listxattr(top(writer.node, names[number], "step"))  # which the kernel does not remember
    assert slots[0] in os.listdir(opened) and slots[1] not in os.listdir(opened)
    fds = [os.open(top(writer.node, name, "step"), os.O_RDONLY) for name in names[:VIEWS_MAX]]
    with rig.fails(errno.ENFILE):
        os.open(top(writer.node, names[VIEWS_MAX], "step"), os.O_RDONLY)
    assert [os.pread(fd, 1000, 0) for fd in fds] == [expected[name] for name in names[:VIEWS_MAX]]
    os.close(fds[0])
    rig.poll(lambda: tree(top(writer.node, names[VIEWS_MAX]))["step"] == expected[names[VIEWS_MAX]], 10, "a place")
    for fd in fds[1:]:
        os.close(fd)


def test_memory_of_open_snapshots(writer, sanitized):
    """At most 8 MiB for each, of 10,000 files."""
    if sanitized:
        pytest.skip("skipped: measures memory, which sanitizers multiply")
    node, names = writer.node, [f"many{number}" for number in range(VIEWS_MAX)]
    os.mkdir(os.path.join(node.mnt, "run"))
    for number in range(10_000):
        rig.write_file(os.path.join(node.mnt, "run", f"{number:05}"), b"%05d" % number)
    for name in names:
        rig.write_file(os.path.join(node.mnt, "changed"), name)
        node.verb("snapshot", "create", node.mnt, name)
    node.umount()
    node.mount(gc_grace="1h")
    rig.run("ls", "-l", os.path.join(node.mnt, "run"))
    before = processes.rss_bytes(node.proc.pid)
    for name in names:
        assert rig.run("ls", "-l", top(node, name, "run")).count("\n") == 10_001
    assert len(os.listdir(os.path.join(node.store, "history"))) == VIEWS_MAX  # open at once
    grown = processes.rss_bytes(node.proc.pid) - before
    assert grown <= VIEWS_MAX * 8 * rig.MIB, grown
    print(f"{grown / rig.MIB:.1f} MiB")


def test_gc_leaves_what_is_read(writer):
    """The name is deleted while a file is open: the bytes stay until it is closed, and another snapshot lives on."""
    node = writer.node
    node.umount()
    node.mount(keep="none", gc_grace="0s")
    with rig.opened(top(node, "before", "step1/deep/optimizer.pt"), os.O_RDONLY) as fd:
        node.verb("snapshot", "delete", node.mnt, "before")
        for _ in range(3):
            writer.put("filler", _)
            node.wait_remote()
            node.verb("gc", node.mnt)
        node.verb("evict", node.mnt)
        assert os.pread(fd, 1 << 20, 0) == writer.before["step1/deep/optimizer.pt"]
    with rig.fails(errno.ENOENT):
        rig.poll(lambda: not os.stat(top(node, "before")), 10, "the name is gone")
    assert tree(node.mnt) == writer.tree


def test_a_copy_takes_what_nvme_has_by_reference(writer):
    """copy_file_range() of a file that is gone: no program reads or writes its bytes, and NVMe gets none. What NVMe lacks is read and
    written instead."""
    node, data = writer.node, rig.noise(7, 8 << 20)
    for name in ("model", "twin"):  # of the same chunks, so that they stay on NVMe
        rig.write_file(os.path.join(node.mnt, name), data)
    node.verb("snapshot", "create", node.mnt, "whole")
    os.unlink(os.path.join(node.mnt, "model"))

    def copy(new):
        by_reference.copy(top(node, "whole", "model"), os.path.join(node.mnt, new))

    def written():
        node.wait()
        status = node.status()
        return status["mount"]["written_bytes_total"], status["nvme"]["written_bytes_total"]

    before = written()
    copy("back")
    after = written()
    assert after[0] == before[0] and after[1] - before[1] < 1 << 20
    assert rig.read_file(os.path.join(node.mnt, "back")) == data
    for name in ("back", "twin"):
        os.unlink(os.path.join(node.mnt, name))
    node.wait_remote()
    node.umount()
    node.drop_stage()
    shutil.rmtree(node.store)
    os.mkdir(node.store)
    node.mount(takeover=True)
    copy("again")
    assert rig.read_file(os.path.join(node.mnt, "again")) == data


def test_files_that_are_open_at_the_end(writer):
    """The mount ends, with all data on NVMe; what was open says that it is gone."""
    fd = os.open(top(writer.node, "before", "step1/model.pt"), os.O_RDONLY)
    writer.node.proc.terminate()
    assert writer.node.reap() == 0
    with pytest.raises(OSError):
        os.pread(fd, 1 << 20, 0)
    os.close(fd)
    writer.node.mount()
    assert tree(top(writer.node, "before")) == writer.before


def lose(remote, *names):
    for name in names:
        remote.delete(name)


@pytest.mark.parametrize("what", ["name", "head", "runs", "packs"])
def test_a_damaged_one(writer, rng, what):
    """EIO in it. The others are whole, and so is what there is now; also for who has nothing of it yet."""
    node, remote = writer.node, writer.remote
    packs = set(remote.names("packs/"))
    writer.put("bad.pt", 3)
    writer.publish() if what == "head" else node.verb("snapshot", "create", node.mnt, "bad")  # what has a name is a copy of the head
    packs = set(remote.names("packs/")) - packs
    number = max(remote.heads())
    writer.remove("bad.pt")
    for seed in range(6):
        writer.put("latest.pt", 10 + seed)
        writer.publish()
    node.umount(drain="remote")
    heads = remote.heads()
    runs = set(runs_of(heads[number])) - set(runs_of(heads[max(heads)]))
    lost = {"runs": [f"{place}/{run:016x}" for run in runs for place in ("runs", "copies")], "packs": packs}
    assert runs and packs
    lose(remote, *lost.get(what, ()))
    if what in ("name", "head"):
        remote.corrupt({"name": "snapshots/bad", "head": f"heads/{number:016x}"}[what], rng)
    bad = str(number) if what == "head" else "bad"
    with node.elsewhere(ro=True) as reader:
        with rig.fails(errno.EIO):
            rig.read_file(top(reader, bad, "bad.pt"))
        if what == "packs":
            assert sorted(os.listdir(top(reader, bad))) == ["bad.pt", "latest", "small"]
            assert rig.read_file(top(reader, bad, "small")) == b"hello"
        else:
            with rig.fails(errno.EIO):
                os.listdir(top(reader, bad))
        assert tree(top(reader, "before")) == writer.before and tree(reader.mnt) == writer.tree


def test_gc_takes_what_a_follower_reads(writer):
    """What it has not read yet fails. It gets no other bytes, and its own tree is whole."""
    node = writer.node
    node.umount()
    node.mount(keep="none", gc_grace="0s")
    with node.elsewhere(ro=True) as reader:
        paths = (top(reader, "before", name) for name in ("step1/deep/optimizer.pt", "step1/model.pt"))
        with rig.opened(next(paths), os.O_RDONLY) as fd, rig.opened(next(paths), os.O_RDONLY) as other:
            assert os.pread(other, 1000, 0) == writer.before["step1/model.pt"][:1000]
            stored = set(writer.remote.names("packs/"))
            node.verb("snapshot", "delete", node.mnt, "before")

            def has_gone():
                writer.put("filler", time.monotonic_ns())
                node.wait_remote()
                node.verb("gc", node.mnt)
                return not stored & set(writer.remote.names("packs/"))

            rig.poll(has_gone, 60, "the packs to go", 0.2)
            with rig.fails(errno.EIO):
                os.pread(fd, 1 << 20, 0)
            try:
                assert os.pread(other, 1 << 20, 0) == writer.before["step1/model.pt"]  # it may have it on NVMe by now
            except OSError as error:
                assert error.errno == errno.EIO
        rig.poll(lambda: tree(reader.mnt) == writer.tree, 30, "what is there now")
        rig.poll(lambda: "before" not in os.listdir(top(reader)), 30, "the name to go")
        with rig.fails(errno.ENOENT):
            os.listdir(top(reader, "before"))


HISTORY_THREADS = 4  # fuse/earlier.c
STALL_S = 6.0


def check_live(node, number):
    """Calls of the newest state; a state that is awaited takes STALL_S at least."""
    path = os.path.join(node.mnt, f"live-{number}")
    calls = {"write and fsync": lambda: rig.write_synced(path, os.urandom(100_000)), "stat": lambda: os.stat(path),
             "list": lambda: os.listdir(node.mnt), "read": lambda: rig.read_file(path), "rename": lambda: os.rename(path, path + "-new")}
    for name, call in calls.items():
        began = time.monotonic()
        call()
        assert time.monotonic() - began < STALL_S / 2, name


def test_the_live_tree_does_not_wait(on_remote, s3, proxy, directory):
    """While more threads than there are for that (fuse/earlier.c) wait for lists and runs of earlier states."""
    made = Kept(on_remote(s3, **SMALL), directory)
    made.node.mount(gc_grace="1h")
    names = [f"name{number}" for number in range(HISTORY_THREADS + 1)]
    for number, name in enumerate(names):
        made.put("model.pt", number)
        made.node.verb("snapshot", "create", made.node.mnt, name)
        made.states[name] = dict(made.tree)
    made.node.umount()
    node = on_remote(s3.through(proxy), **SMALL)
    node.mount(gc_grace="1h")
    for awaited, what in ("/(heads|snapshots)/", os.stat), ("/(runs|copies)/", tree):
        proxy.reset()
        proxy.set(script=[{"method": "GET", "path": awaited, "fault": "stall", "times": 1000}], stall_s=STALL_S)
        with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
            shown = [threads.submit(what, top(node, name)) for name in names]
            rig.poll(lambda: proxy.stats()["faults"].get("stall"), 10, "a call that waits")
            for number in range(3):
                check_live(node, number)
            assert not any(one.done() for one in shown), awaited
            proxy.calm()
            found = [one.result() for one in shown]
    assert found == [made.states[name] for name in names]


def test_without_a_remote(cairn):
    """The name is free, unless the store takes snapshots (tests/mount/test_local_history.py)."""
    cairn.mount()
    with rig.fails(errno.ENOENT):
        os.stat(top(cairn))
    os.mkdir(top(cairn))
    assert os.listdir(cairn.mnt) == [".history"]


def test_a_successor_goes_on(mount_factory, directory, remote):
    """The daemon dies: files and directories that are open there, and paths, work as before."""
    options = {"successor": "on", "crash_window": "1h", **SMALL}
    made = Kept(mount_factory(os.path.join(directory, "kept"), kind=successor.KeptRemote, remote=remote, **options), directory)
    node = made.node
    try:
        node.mount(keep="last:30")
        made.put("model.pt", 1, 3_000_000)
        model = made.tree["model.pt"]
        node.verb("snapshot", "create", node.mnt, "before")
        made.remove("model.pt")
        with rig.opened(top(node, "before", "model.pt"), os.O_RDONLY) as fd, rig.opened(top(node), os.O_RDONLY) as directory_fd:
            number = os.fstat(fd).st_ino
            assert os.pread(fd, 1000, 0) == model[:1000]
            node.kill_daemon(wait=True)
            assert os.pread(fd, 1_000_000, 2_000_000) == model[2_000_000:]
            assert os.fstat(fd).st_ino == number == os.stat("before/model.pt", dir_fd=directory_fd).st_ino
        assert rig.read_file(top(node, "before", "model.pt")) == model and tree(node.mnt) == {}
        assert "bug:" not in node.log()
    finally:
        node.close()
