# SPDX-License-Identifier: Apache-2.0
"""Each mount of a node shows what all nodes wrote, and changes it: names, attributes and content come to the other mounts."""
import ctypes
import errno
import os
import shutil
import stat
import time

import cost
import rig

TAKEN_S = 30  # for what one node did to show on another: 3 s where the machine is quiet
RENAME_EXCHANGE = 2
AT_FDCWD = -100


def at(mount, *names):
    return os.path.join(mount.mnt, *names)


def tree(mnt):
    """By path what is there: content of files, targets of links, None of directories."""
    found = {}
    for base, names, files in os.walk(mnt):
        for name in names + files:
            path = os.path.join(base, name)
            inside = os.path.relpath(path, mnt)
            if os.path.islink(path):
                found[inside] = os.readlink(path)
            elif os.path.isdir(path):
                found[inside] = None
            else:
                found[inside] = rig.read_file(path)
    return found


def await_tree(mount, wanted):
    last = {}

    def shows():
        nonlocal last
        try:
            last = tree(mount.mnt)
        except OSError:  # it changes just now
            return False
        return last == wanted

    try:
        rig.poll(shows, TAKEN_S)
    except TimeoutError:
        assert sorted(last) == sorted(wanted)
        raise


def end_whole(*mounts):
    for each in mounts:
        each.umount()
        assert each.fsck().returncode == 0


def end_with(wanted, a, b):
    """`b` did the last of it."""
    assert tree(b.mnt) == wanted
    await_tree(a, wanted)
    end_whole(a, b)


def exchange(a, b):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), RENAME_EXCHANGE) < 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def test_all_that_a_node_makes_shows_on_the_others(node):
    a, b = node(), node()
    content = os.urandom(5 << 20)
    os.mkdir(at(a, "d"), 0o750)
    rig.write_file(at(a, "d", "file"), content)
    os.chmod(at(a, "d", "file"), 0o640)
    os.chown(at(a, "d", "file"), 12, 34)
    os.utime(at(a, "d", "file"), (1, 1234567890.5))
    os.setxattr(at(a, "d", "file"), "user.step", b"7")
    os.symlink("d/file", at(a, "link"))
    os.mkfifo(at(a, "fifo"))
    rig.poll(lambda: os.path.lexists(at(b, "fifo")), TAKEN_S, "the newest name")
    assert rig.read_file(at(b, "link")) == content
    for name in ("d", "d/file", "link", "fifo"):
        there, here = os.lstat(at(a, name)), os.lstat(at(b, name))
        fields = ["st_mode", "st_uid", "st_gid", "st_nlink"] + ([] if name == "d" else ["st_size", "st_mtime_ns", "st_ino"])
        assert [getattr(there, f) for f in fields] == [getattr(here, f) for f in fields], name
    assert os.getxattr(at(b, "d/file"), "user.step") == b"7"
    assert os.stat(at(b, "d/file")).st_blocks * 512 >= len(content)
    with open(at(b, "d/file"), "rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == len(content)
    # what is changed later comes, too
    os.chmod(at(a, "d", "file"), 0o600)
    os.setxattr(at(a, "d", "file"), "user.step", b"8")
    os.removexattr(at(a, "d", "file"), "user.step")
    rig.write_file(at(a, "d", "file"), b"short")
    rig.poll(lambda: rig.read_file(at(b, "d/file")) == b"short", TAKEN_S, "the newer content")
    rig.poll(lambda: stat.S_IMODE(os.stat(at(b, "d/file")).st_mode) == 0o600, TAKEN_S, "the newer mode")
    rig.poll(lambda: os.listxattr(at(b, "d/file")) == [], TAKEN_S, "the end of the attribute")


def test_a_directory_that_all_make_is_one(node):
    nodes = [node() for _ in range(3)]
    for i, each in enumerate(nodes):
        os.makedirs(at(each, "run/step1"), exist_ok=True)
        rig.write_file(at(each, f"run/step1/rank{i}"), bytes([i]) * 10000)
    wanted = {"run": None, "run/step1": None, **{f"run/step1/rank{i}": bytes([i]) * 10000 for i in range(3)}}
    for each in nodes:
        await_tree(each, wanted)
    os.makedirs(at(nodes[2], "run/step1"), exist_ok=True)


def test_one_node_removes_what_all_wrote(node, shared):
    """Rank 0 keeps the last checkpoint: each node's own content goes from its store."""
    nodes = [node(), node()]
    for i, each in enumerate(nodes):
        os.makedirs(at(each, "step1"), exist_ok=True)
        rig.write_file(at(each, f"step1/rank{i}"), os.urandom(3 << 20))
    rig.poll(lambda: len(os.listdir(at(nodes[0], "step1"))) == 2, TAKEN_S, "the other's shard")
    shutil.rmtree(at(nodes[0], "step1"))
    assert os.listdir(nodes[0].mnt) == []
    await_tree(nodes[1], {})
    for each in nodes:
        rig.poll(lambda: each.status()["nvme"]["files"] == 0, TAKEN_S, "its store has no file any more")
        each.umount()
        assert each.fsck().returncode == 0
    reader = nodes[0].verb("ls", *shared.flags(), "-R", shared.url + ":/").stdout
    assert reader.split() in ([], ["/:"]), reader


def test_one_node_renames_what_others_wrote(node):
    a, b = node(), node()
    os.mkdir(at(a, "tmp-1"))
    rig.write_file(at(a, "tmp-1/shard"), b"a's")
    rig.write_file(at(a, "file"), b"x")
    rig.write_file(at(a, "one"), b"1")
    rig.write_file(at(a, "two"), b"2")
    await_tree(b, tree(a.mnt))
    rig.write_file(at(b, "tmp-1/other"), b"b's")
    os.rename(at(b, "tmp-1"), at(b, "step-1"))
    os.rename(at(b, "file"), at(b, "step-1/file"))
    exchange(at(b, "one"), at(b, "two"))
    wanted = {"step-1": None, "step-1/shard": b"a's", "step-1/other": b"b's", "step-1/file": b"x", "one": b"2", "two": b"1"}
    end_with(wanted, a, b)


def test_another_nodes_file_is_changed(node):
    """Its content is stored again by the node that changes it."""
    a, b = node(), node()
    rig.write_file(at(a, "latest"), b"step1\n")
    rig.write_file(at(a, "log"), b"line\n" * 100000)
    rig.write_file(at(a, "cut"), b"x" * 300000)
    os.chmod(at(a, "log"), 0o604)
    await_tree(b, tree(a.mnt))
    rig.write_file(at(b, "latest"), b"step2\n")
    with open(at(b, "log"), "ab") as file:
        file.write(b"end\n")
    os.truncate(at(b, "cut"), 5)
    wanted = {"latest": b"step2\n", "log": b"line\n" * 100000 + b"end\n", "cut": b"xxxxx"}
    assert tree(b.mnt) == wanted
    assert stat.S_IMODE(os.stat(at(b, "log")).st_mode) == 0o604
    await_tree(a, wanted)
    rig.write_file(at(a, "latest"), b"step3\n")
    await_tree(b, {**wanted, "latest": b"step3\n"})


def test_no_zeros_where_the_content_is_newer_than_the_name(node):
    """A node that changes attributes of a file takes nothing of it meanwhile; its content comes from the union all the same."""
    a, b = node(), node()
    long, short = b"l" * 300000, b"s" * 100
    rig.write_file(at(a, "file"), long)
    rig.write_file(at(a, "other"), long)
    await_tree(b, {"file": long, "other": long})
    for name in ("file", "other"):
        with open(at(a, name), "r+b") as file:  # in place
            file.truncate(0)
            file.write(short)
    read = b""
    for count in range(300):
        for name in ("file", "other"):
            os.setxattr(at(b, name), "user.count", b"%d" % count)
        read = rig.read_file(at(b, "file"))
        assert b"\0" not in read, (len(read), read[:200])
        time.sleep(0.05)
    assert read == short
    with open(at(b, "other"), "ab") as file:
        file.write(b"end")
    assert rig.read_file(at(b, "other")) == short + b"end"


def test_a_node_that_died_shows_all_when_it_is_back(node):
    a, b = node(), node()
    rig.write_file(at(a, "kept"), b"k" * 100000)
    rig.write_file(at(a, "removed"), b"r")
    await_tree(b, tree(a.mnt))
    b.kill9()
    os.remove(at(a, "removed"))
    rig.write_file(at(a, "new"), b"n")
    b.mount()
    assert "kept" in os.listdir(b.mnt), "what it had taken is its own"
    await_tree(b, {"kept": b"k" * 100000, "new": b"n"})


def test_a_fresh_node_shows_all_at_once(node):
    a = node()
    os.mkdir(at(a, "d"))
    rig.write_file(at(a, "d/x"), b"x" * 200000)
    a.umount()
    b = node()
    assert tree(b.mnt) == {"d": None, "d/x": b"x" * 200000}


def test_names_of_others_while_the_remote_is_away(node, shared):
    a, b = node(), node()
    rig.write_file(at(a, "theirs"), b"t" * 3000000)
    rig.poll(lambda: os.path.exists(at(b, "theirs")), TAKEN_S, "the name")
    os.rename(shared.path, shared.path + "-away")
    assert os.path.getsize(at(b, "theirs")) == 3000000
    rig.write_file(at(b, "own"), b"o")
    try:
        assert rig.read_file(at(b, "theirs")) == b"t" * 3000000
    except OSError as error:  # where no helper has the directory open still
        assert error.errno == errno.EIO
    os.rename(shared.path + "-away", shared.path)
    await_tree(b, {"theirs": b"t" * 3000000, "own": b"o"})
    await_tree(a, {"theirs": b"t" * 3000000, "own": b"o"})


def test_a_store_says_that_content_is_elsewhere(node, directory):
    a, b = node(), node()
    rig.write_file(at(a, "theirs"), b"t" * 300000)
    rig.poll(lambda: os.path.exists(at(b, "theirs")), TAKEN_S, "the name")
    b.umount()
    copied = b.verb("cp", f"{b.store}:/theirs", os.path.join(directory, "copied"), code=1)
    assert "another node" in copied.stderr, copied
    assert not os.path.exists(os.path.join(directory, "copied"))


def test_a_large_directory_comes_and_goes(node):
    a, b = node(), node()
    os.mkdir(at(a, "d"))
    for i in range(3000):
        rig.write_file(at(a, "d", f"f{i}"), b"")
    rig.poll(lambda: os.path.isdir(at(b, "d")) and len(os.listdir(at(b, "d"))) == 3000, TAKEN_S, "all files")
    shutil.rmtree(at(b, "d"))
    await_tree(a, {})


def test_a_file_that_another_node_moved_before_it_was_removed(node):
    """It keeps the name that it was moved to, and shows on the node that removed it too, whose kernel knows it by a name of before."""
    a, b = node(), node()
    rig.write_file(at(a, "first"), b"moved")
    rig.poll(lambda: os.path.exists(at(b, "first")), TAKEN_S, "the file at the other node")
    os.rename(at(a, "first"), at(a, "second"))
    rig.poll(lambda: os.path.exists(at(b, "second")), TAKEN_S, "its new name there")
    os.rename(at(a, "second"), at(a, "third"))
    os.remove(at(b, "second"))
    for mount in (a, b):
        await_tree(mount, {"third": b"moved"})


def test_a_mount_at_rest_costs_next_to_nothing(node):
    """It waits for heads, and does not turn meanwhile. What it takes is its share of a core, and so the same on a busy machine."""
    a, b = node(), node()
    rig.write_file(at(a, "file"), b"x")
    await_tree(b, {"file": b"x"})
    before = [cost.cpu_seconds(mount.proc.pid) for mount in (a, b)]
    time.sleep(4)  # what it costs to do nothing for so long
    spent = [cost.cpu_seconds(mount.proc.pid) - then for mount, then in zip((a, b), before)]
    assert max(spent) < 1, spent
