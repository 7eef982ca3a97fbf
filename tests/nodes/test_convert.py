# SPDX-License-Identifier: Apache-2.0
"""A remote that one mount wrote becomes one of several nodes, in place: -o nodes,convert."""
import os
import shutil
import time

import pytest

import rig
from test_union_mounts import TAKEN_S, at, await_tree, tree

COMMON = {"writeback_delay": "50ms", "lease": "4s", "gc_grace": "2s", "rollback_keep": "2s"}


def write(mount, rng):
    """Files, folders and links of all kinds, by several daemons. Returns what is there, and the attributes that trees do not tell."""
    for turn in range(3):
        os.makedirs(at(mount, f"step{turn}", "deep"))
        for name, size in (("model", 3 << 20), ("deep/small", 100), ("empty", 0)):
            rig.write_file(at(mount, f"step{turn}", name), rng.randbytes(size))
        os.symlink("model", at(mount, f"step{turn}", "latest"))
        os.link(at(mount, f"step{turn}", "model"), at(mount, f"hard{turn}"))
        if turn:
            rig.write_file(at(mount, f"step{turn - 1}", "model"), rng.randbytes(2 << 20))
        mount.umount("remote")
        mount.mount()
    os.chmod(at(mount, "step1", "model"), 0o600)
    os.setxattr(at(mount, "step1"), "user.kept", b"yes")
    os.remove(at(mount, "hard0"))
    mount.wait_remote()
    return tree(mount.mnt)


def check(mount, wanted):
    await_tree(mount, wanted)
    assert os.stat(at(mount, "step1", "model")).st_mode & 0o777 == 0o600
    assert os.getxattr(at(mount, "step1"), "user.kept") == b"yes"
    assert os.path.samefile(at(mount, "step1", "model"), at(mount, "hard1"))


@pytest.fixture
def written(on_remote, remote, rng):
    """One writer, unmounted, and what it wrote."""
    one = on_remote(remote, **COMMON).mount()
    content = write(one, rng)
    one.umount("remote")
    return one, content


@pytest.mark.always_s3
@pytest.mark.timeout(400)
def test_all_files_are_there_and_have_an_owner(on_remote, remote, written, rng):
    """No pack is uploaded again. What is removed frees its packs, files are changed in place by their node and copied by others."""
    one, wanted = written
    packs = set(remote.names("packs"))
    a = on_remote(remote, **COMMON, nodes=True, convert=True).mount()
    check(a, wanted)
    b = on_remote(remote, **COMMON, nodes=True).mount()
    check(b, wanted)
    assert packs <= set(remote.names("packs"))
    size = sum(len(remote.get(name)) for name in remote.names("packs"))
    with open(at(a, "step1", "deep", "small"), "ab") as file:
        file.write(b"more")
    rig.write_file(at(b, "step2", "deep", "small"), b"of b")
    wanted["step1/deep/small"] += b"more"
    wanted["step2/deep/small"] = b"of b"
    for mount in (a, b):
        await_tree(mount, wanted)
    shutil.rmtree(at(b, "step0"))
    wanted = {path: what for path, what in wanted.items() if path.split("/")[0] != "step0"}
    for mount in (a, b):
        await_tree(mount, wanted)

    def has_less():
        rig.write_file(at(a, "beat"), os.urandom(8))
        a.verb("gc", a.mnt)
        return sum(len(remote.get(name)) for name in remote.names("packs")) < size - (1 << 20)
    rig.poll(has_less, 60, "packs of removed files to go", 1)
    os.remove(at(a, "beat"))
    for mount in (a, b):
        await_tree(mount, wanted)
        mount.umount("remote")
        assert mount.fsck().returncode == 0
    assert a.cairn("fsck", *remote.flags(), remote.url).returncode == 0
    assert "hard1" in a.verb("ls", "-R", *remote.flags(), remote.url + ":/").stdout
    a.mount(convert=True)  # the option may stay where it is
    check(a, wanted)
    if remote.url.startswith("dir:"):
        assert "several nodes write" in one.refused()
        assert "made without -o nodes" in one.refused(nodes=True)


def test_what_is_refused(on_remote, shared, rng):
    """A remote that is in use or has named snapshots, or nothing; each stays as it is."""
    node = on_remote(shared, **COMMON, nodes=True, convert=True)
    one = on_remote(shared, **COMMON).mount()
    rig.write_file(at(one, "file"), b"content")
    one.verb("snapshot", "create", one.mnt, "kept")
    assert "is in use by" in node.refused() and "cairn umount --drain remote" in node.refused()
    one.umount("remote")
    assert "snapshots with names, the first is 'kept'" in node.refused()
    one.mount()
    assert rig.read_file(at(one, "file")) == b"content"
    one.verb("snapshot", "delete", one.mnt, "kept")
    one.umount("remote")
    said = on_remote(shared, **COMMON, nodes=True).refused()
    assert "takes one writer" in said and "-o nodes,convert" in said
    alone = on_remote(shared, **COMMON)
    assert "give nodes, too" in alone.verb("mount", alone.store, alone.mnt, "-o", alone.option_string({"convert": True}), code=1).stderr
    node.mount()
    await_tree(node, {"file": b"content"})


def killed_after(mount, seconds):
    """A mount that is killed so long after it began."""
    mount.start()
    time.sleep(seconds)  # it may be anywhere in its work
    mount.kill9()


def has_joined(shared):
    """Did a store reserve a number, after the conversion? The entries of a conversion itself have no lease."""
    return any(shared.get(name)[12:16] != bytes(4) for name in shared.names("writers"))


@pytest.mark.timeout(600)
def test_a_conversion_that_is_killed(on_remote, remote, written, rng, full):
    """At any moment: a reader sees the files, and the next try, by another empty store, finishes it. Where the first one had joined by
    then, it goes on."""
    one, wanted = written
    for turn in range(40 if full else 8):
        node = on_remote(remote, **COMMON, nodes=True, convert=True)
        killed_after(node, rng.uniform(0.02, 0.4))
        listed = one.cairn("ls", "-R", *remote.flags(), remote.url + ":/")
        assert listed.returncode == 0 and "hard1" in listed.stdout, listed
        if has_joined(remote):
            break
    else:
        node = on_remote(remote, **COMMON, nodes=True, convert=True)
    node.mount()
    check(node, wanted)
    node.umount("remote")
    assert node.cairn("fsck", *remote.flags(), remote.url).returncode == 0


def test_a_writer_that_comes_back_meanwhile(on_remote, remote, written):
    """It stood still for longer than its lease, and did not hear of the conversion: its next head is not created, and it is fenced."""
    one, wanted = written
    one.mount()
    one.pause()
    a = on_remote(remote, **COMMON, nodes=True, convert=True)
    rig.poll(lambda: "is in use by" not in said(a), 30, "its lease to run out", 1)
    check(a, wanted)
    one.go_on()
    rig.write_file(at(one, "late"), b"late")
    rig.poll(lambda: one.status()["remote"]["state"] == "fenced", TAKEN_S, "the writer to be fenced")
    assert "late" not in os.listdir(a.mnt)


def said(mount):
    """By a mount that may be refused; it is mounted, if it says nothing."""
    try:
        mount.mount()
        return ""
    except rig.MountError as error:
        return str(error)
