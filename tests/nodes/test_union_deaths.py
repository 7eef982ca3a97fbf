# SPDX-License-Identifier: Apache-2.0
"""Daemons of nodes die right after they took what other nodes wrote, before that is on NVMe."""
import os
import signal
import subprocess
import sys

import rig

TAKEN_S = 30


def test_what_was_taken_and_then_changed_outlives_the_daemon(node):
    a, b = node(writeback_delay="50ms"), node(writeback_delay="1h")
    os.mkdir(a.mnt + "/d")
    for name in ("moved", "removed", "linked", "d/set", "kept"):
        rig.write_file(f"{a.mnt}/{name}", name.encode() * 1000)
    rig.poll(lambda: os.path.exists(b.mnt + "/kept"), TAKEN_S, "the newest name")
    os.rename(b.mnt + "/moved", b.mnt + "/d/there")
    os.remove(b.mnt + "/removed")
    os.link(b.mnt + "/linked", b.mnt + "/twice")
    os.setxattr(b.mnt + "/d/set", "user.a", b"1")
    b.kill9()
    b.mount(writeback_delay="50ms")
    assert sorted(os.listdir(b.mnt)) == ["d", "kept", "linked", "twice"]
    assert sorted(os.listdir(b.mnt + "/d")) == ["set", "there"]
    rig.poll(lambda: os.path.exists(a.mnt + "/d/there"), TAKEN_S, "the rename, on the other node")
    for each in (a, b):
        assert rig.read_file(each.mnt + "/d/there") == b"moved" * 1000
        assert rig.read_file(each.mnt + "/twice") == b"linked" * 1000
        assert not os.path.exists(each.mnt + "/removed")


def test_new_inodes_stay_in_the_nodes_own_numbers(node):
    """Also where it took some with larger numbers just before its daemon died."""
    a, b = node(writeback_delay="1h"), node(writeback_delay="50ms")
    rig.write_file(b.mnt + "/theirs", b"b" * 1000)
    rig.poll(lambda: os.path.exists(a.mnt + "/theirs"), TAKEN_S, "the other's file")
    theirs = os.stat(a.mnt + "/theirs").st_ino
    a.kill9()
    a.mount(writeback_delay="50ms")
    rig.write_file(a.mnt + "/mine", b"a" * 1000)
    rig.write_file(b.mnt + "/more", b"m" * 1000)
    mine = os.stat(a.mnt + "/mine").st_ino
    assert mine >> 28 != theirs >> 28, (mine, theirs)  # blocks of sixteen epochs
    assert mine != os.stat(b.mnt + "/more").st_ino
    rig.poll(lambda: os.path.exists(b.mnt + "/mine"), TAKEN_S, "its file")
    assert rig.read_file(b.mnt + "/mine") == b"a" * 1000
    rig.poll(lambda: os.path.exists(a.mnt + "/more"), TAKEN_S, "the other's newer file")
    assert rig.read_file(a.mnt + "/more") == b"m" * 1000


MAKER = """
import os, sys, itertools
for i in itertools.count():
    path = f"{sys.argv[1]}-{i}"
    try:
        os.mkdir(path)
        os.rmdir(path)
    except OSError:
        pass
"""


def test_a_daemon_dies_while_it_takes_names_of_a_directory_in_use(node):
    """To tell the kernel of a name means to wait for the directory's lock, which a call has that the daemon does not answer any more."""
    a, b = node(writeback_delay="5s"), node(writeback_delay="5s")
    os.mkdir(os.path.join(a.mnt, "d"))
    rig.poll(lambda: os.path.isdir(os.path.join(b.mnt, "d")), 30, "the directory")
    users = [subprocess.Popen([sys.executable, "-c", MAKER, os.path.join(b.mnt, "d", name)]) for name in "xyz"]
    try:
        for i in range(600):
            rig.write_file(os.path.join(a.mnt, "d", f"f{i}"), b"x")
        rig.poll(lambda: os.path.exists(os.path.join(b.mnt, "d/f0")), 30, "the first name", 0.002)
        b.proc.kill()
        assert b.proc.wait(30) == -signal.SIGKILL
    finally:
        for user in users:
            user.kill()
            user.wait()
