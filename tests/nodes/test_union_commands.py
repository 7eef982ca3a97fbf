# SPDX-License-Identifier: Apache-2.0
"""What operators and programs do with a mount on which there are files of other nodes: upgrades, commands, lazy saves and loads, and damage."""
import errno
import glob
import os
import shutil
import signal
import subprocess

import pytest

import rig
import successor
from test_union_mounts import TAKEN_S, at, await_tree, tree

CONTENT = b"content," * 40000
NAMES = [f"f{i}" for i in range(4)]


def fill(a, b):
    """Files of the first node, which the second one has taken. Returns what there is."""
    for name in NAMES:
        rig.write_file(at(a, name), name.encode() + CONTENT)
    rig.poll(lambda: set(NAMES) <= set(os.listdir(b.mnt)), TAKEN_S, "the names")
    return tree(a.mnt)


def end_all(*mounts):
    for mount in mounts:
        mount.umount()
        done = mount.fsck()
        assert done.returncode == 0, done


def test_an_upgrade_under_readers_and_writers_of_taken_files(on_remote, shared, node, binary, directory):
    """Another program goes on with the mount: the same one, under another name."""
    a = node()
    b = on_remote(shared, kind=successor.KeptRemote, nodes=True, writeback_delay="50ms", successor="on").mount()
    wanted = fill(a, b)
    other = os.path.join(directory, "other-cairn")
    shutil.copy(binary, other)
    with open(at(b, "f0"), "rb") as reader, open(at(b, "f1"), "ab") as writer, open(at(b, "f2"), "wb") as emptied:
        assert reader.read(100) == wanted["f0"][:100]
        writer.write(b"one")
        emptied.write(b"new")
        for program in (other, binary):
            b.verb("upgrade", b.mnt, "--binary", program, timeout=300)
            assert reader.read(1000)
            assert rig.read_file(at(b, "f3")) == wanted["f3"]
            writer.write(b"two")
            writer.flush()
        assert os.readlink(f"/proc/{b.daemon()}/exe") == os.path.realpath(binary)
    wanted = {**wanted, "f1": wanted["f1"] + b"onetwotwo", "f2": b"new"}
    assert tree(b.mnt) == wanted
    await_tree(a, wanted)
    await_tree(b, wanted)
    end_all(a, b)


def test_commands_on_files_of_other_nodes(node):
    a, b = node(gc_grace="1h"), node(gc_grace="1h")
    wanted = fill(a, b)
    b.verb("wait", b.mnt, "--level", "remote")
    assert "clean" in b.verb("scrub", b.mnt).stdout
    b.verb("gc", b.mnt)
    b.verb("evict", b.mnt)
    warmed = b.verb("warmup", b.mnt, code=1)
    assert "other nodes" in warmed.stderr and "fetched when they are read" in warmed.stderr
    a.verb("warmup", a.mnt)
    b.verb("du", b.mnt)
    b.verb("info", at(b, "f0"))
    assert tree(b.mnt) == wanted
    assert "several nodes" in b.verb("snapshot", "create", b.mnt, "name", code=1).stderr
    end_all(a, b)


def test_a_file_of_another_node_is_restored(node):
    """From a union head, which has what all nodes wrote."""
    a, b = node(gc_grace="1h"), node(gc_grace="1h")
    wanted = fill(a, b)
    head = b.verb("history", b.mnt).stdout.split("\n")[-2].split()[0]
    os.remove(at(b, "f0"))
    rig.write_file(at(b, "f1"), b"changed")
    b.verb("restore", at(b, "f0"), "--at", head)
    b.verb("restore", at(b, "f1"), "--at", head, "--replace")
    assert tree(b.mnt) == wanted
    await_tree(a, wanted)
    end_all(a, b)


def test_copies_of_another_nodes_file(node):
    a, b = node(), node()
    wanted = fill(a, b)
    subprocess.run(["cp", at(b, "f0"), at(b, "copy")], check=True, timeout=300)
    with rig.opened(at(b, "f0"), os.O_RDONLY) as source, rig.opened(at(b, "ranges"), os.O_RDWR | os.O_CREAT) as target:
        left = len(wanted["f0"])
        while left:
            left -= os.copy_file_range(source, target, left)
    os.link(at(b, "f0"), at(b, "linked"))
    with rig.fails(errno.EROFS):  # which of the names would be replaced?
        open(at(b, "linked"), "ab")
    with rig.fails(errno.EROFS):
        open(at(b, "linked"), "wb")
    wanted = {**wanted, **dict.fromkeys(("copy", "ranges", "linked"), wanted["f0"])}
    assert tree(b.mnt) == wanted
    await_tree(a, wanted)
    end_all(a, b)


def test_a_full_store_takes_no_copy(node):
    """Nor does it lose anything, nor hang: the error is ENOSPC, and what is removed makes room."""
    a, b = node(), node(nvme="256M", stage="32M")
    large = rig.noise("large", 60 << 20)
    rig.write_file(at(a, "large"), large)
    rig.write_file(at(a, "small"), b"small")
    rig.poll(lambda: {"large", "small"} <= set(os.listdir(b.mnt)), TAKEN_S, "the names")
    os.setxattr(b.mnt, "user.cairn.pin", b"1")  # nothing is evicted
    with rig.fails(errno.ENOSPC), open(at(b, "filler"), "wb") as file:
        for part in range(300):
            file.write(rig.noise(part, 1 << 20))
    with rig.fails(errno.ENOSPC):
        open(at(b, "large"), "ab")
    assert rig.read_file(at(b, "large")) == large
    os.remove(at(b, "filler"))
    with open(at(b, "large"), "ab") as file:
        file.write(b"end")
    rig.write_file(at(b, "small"), b"new")
    wanted = {"large": large + b"end", "small": b"new"}
    assert tree(b.mnt) == wanted
    await_tree(a, wanted)
    end_all(a, b)


def spoil(*patterns):
    for pattern in patterns:
        for path in glob.glob(pattern, recursive=True):
            if os.path.isfile(path) and os.path.getsize(path):
                data = bytearray(rig.read_file(path))
                data[::7] = bytes(byte ^ 0x55 for byte in data[::7])
                rig.write_file(path, bytes(data), os.O_WRONLY)


def lose(others):
    shutil.rmtree(others)


def lose_content(others):
    lose(others)
    os.mkdir(others)


def put_a_file(others):
    lose(others)
    rig.write_file(others, b"no directory")


def spoiling(name):
    return lambda others: spoil(f"{others}/{name}", f"{others}/{name}/**")


DAMAGE = {"lost": lose, "empty": lose_content, "a file": put_a_file,
          **{name: spoiling(name) for name in ("superblock", "packs", "journal", "view")}}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_store_of_the_others_is_damaged_between_mounts(node, damage):
    """It has nothing that the remote does not have."""
    a, b = node(), node()
    wanted = fill(a, b)
    assert tree(b.mnt) == wanted
    b.umount()
    DAMAGE[damage](os.path.join(b.store, "others"))
    rig.write_file(at(a, "new"), CONTENT)
    b.mount()
    await_tree(b, {**wanted, "new": CONTENT})
    assert b.status()["errors"] == []
    end_all(a, b)


def test_earlier_states_of_the_union_are_shown_on_each_mount(node):
    """With the files of all nodes; a copy from there is a file of this node."""
    a, b = node(gc_grace="1h"), node(gc_grace="1h")
    wanted = fill(a, b)
    rig.write_file(at(b, "own"), b"own" + CONTENT)
    wanted["own"] = b"own" + CONTENT
    b.verb("wait", b.mnt, "--level", "remote")
    head = b.verb("history", b.mnt).stdout.split("\n")[1].split()[0].split("-")[-1]
    for name in ("f0", "own"):
        os.remove(at(b, name))
    rig.write_file(at(a, "f1"), b"changed")
    for mount in (a, b):
        assert ".history" not in os.listdir(mount.mnt)
        rig.poll(lambda mount=mount: os.path.isdir(at(mount, ".history", head)), TAKEN_S, "the state")
        assert tree(at(mount, ".history", head)) == wanted
        with rig.fails(errno.EROFS):
            os.remove(at(mount, ".history", head, "f2"))
    shutil.copy(at(b, ".history", head, "f0"), at(b, "f0"))
    b.verb("restore", at(b, "own"), "--at", head)
    for flags in (), ("--local",):
        assert "several nodes write this remote" in b.verb("snapshot", "create", *flags, b.mnt, "mine", code=1).stderr
    left = {**wanted, "f1": b"changed"}
    await_tree(a, left)
    await_tree(b, left)
    end_all(a, b)


def test_an_open_file_of_an_earlier_state_outlives_the_daemon(on_remote, shared, node):
    a = node(gc_grace="1h")
    b = on_remote(shared, kind=successor.KeptRemote, nodes=True, writeback_delay="50ms", successor="on", gc_grace="1h").mount()
    wanted = fill(a, b)
    head = b.verb("history", b.mnt).stdout.split("\n")[1].split()[0].split("-")[-1]
    with open(at(b, ".history", head, "f0"), "rb") as file:
        assert file.read(3) == wanted["f0"][:3]
        os.kill(b.daemon(), signal.SIGKILL)
        assert file.read() == wanted["f0"][3:]
        assert tree(at(b, ".history", head)) == wanted
        subprocess.run(["umount", "-l", b.mnt], check=True)  # with the file open
    end_all(a)


def test_a_file_of_an_earlier_state_while_the_remote_is_away(on_remote, shared, node):
    """To another daemon, which cannot read the remote yet, the state is not gone (ESTALE): it cannot be read (EIO). status says why.
    Once the remote is back, the open file and all others can be read."""
    a = node(gc_grace="1h")
    b = on_remote(shared, kind=successor.KeptRemote, nodes=True, writeback_delay="50ms", successor="on", gc_grace="1h").mount()
    wanted = fill(a, b)
    head = b.verb("history", b.mnt).stdout.split("\n")[1].split()[0].split("-")[-1]
    with rig.opened(at(b, ".history", head, "f0"), os.O_RDONLY) as file:  # and the kernel has no page of it
        b.verb("wait", b.mnt, "--level", "remote")
        away = shared.path + "-away"
        os.rename(shared.path, away)
        os.kill(b.daemon(), signal.SIGKILL)
        with rig.fails(errno.EIO):
            os.pread(file, 10, 0)
        errors = b.status()["errors"]
        assert errors and all("earlier states are in the remote, which could not be read" in one["cause"] for one in errors), errors
        os.rename(away, shared.path)
        rig.poll(lambda: os.path.isdir(at(b, ".history", head)), 60, "the remote to be read")
        assert os.pread(file, len(wanted["f0"]), 0) == wanted["f0"] and tree(at(b, ".history", head)) == wanted
    end_all(a, b)
