# SPDX-License-Identifier: Apache-2.0
"""What `cairn info` and `cairn du` tell of files: sizes, tiers, encodings, and what deleting them frees."""
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

import remote as remotes
import rig
from test_remote_cli import unreachable

pytestmark = pytest.mark.needs_mount


def shown_json(cairn, *args, code=0):
    return json.loads(cairn.verb(*args, "--json", code=code).stdout)


def du(cairn, *paths):
    return shown_json(cairn, "du", *paths)


@pytest.fixture
def tree(cairn, rng):
    """Two equal files, one with two names, a small one, a text, a hole; what each sum must be."""
    cairn.mount()
    mnt = cairn.mnt
    os.makedirs(mnt + "/runs/one")
    data = rig.seeded_bytes(rng.random(), 6 * rig.MIB)
    for name in ("a", "b"):
        rig.write_file(f"{mnt}/runs/{name}", data)
    with open(mnt + "/runs/one/own", "wb", buffering=0) as file:  # in two writes, so that chunks do not end at round offsets
        file.write(rig.seeded_bytes(rng.random(), 300 * rig.KIB))
        file.write(rig.seeded_bytes(rng.random(), 35 * rig.MIB - 300 * rig.KIB))
    os.link(mnt + "/runs/one/own", mnt + "/runs/again")
    rig.write_file(mnt + "/runs/one/small", b"inline")
    rig.write_file(mnt + "/text", b"the same line\n" * 100000)
    os.symlink("text", mnt + "/runs/link")
    with open(mnt + "/runs/hole", "wb") as file:
        file.truncate(40 * rig.MIB)
    return cairn


def test_du(tree):
    """logical counts sizes, a file with two names once; unique what differs; stored what it takes; the rest is in the stage."""
    mnt = tree.mnt
    logical = (6 + 6 + 35 + 40) * rig.MIB + 6
    tree.wait()
    runs, a, text = du(tree, mnt + "/runs", mnt + "/runs/a", mnt + "/text")
    assert runs["path"] == mnt + "/runs"
    assert (runs["files"], runs["directories"]) == (5, 2)
    assert runs["logical_bytes"] == logical and runs["unique_bytes"] == 41 * rig.MIB + 6 and runs["staged_bytes"] == 0
    assert 41 * rig.MIB <= runs["stored_bytes"] <= 41.5 * rig.MIB
    assert a["unique_bytes"] == 6 * rig.MIB
    assert text["logical_bytes"] == 1400000 == text["unique_bytes"] and text["stored_bytes"] < 100000
    assert du(tree, mnt)[0]["stored_bytes"] == pytest.approx(tree.status()["nvme"]["stored_bytes"], abs=100)
    rows = tree.cairn("du", mnt + "/runs", mnt + "/text").stdout.splitlines()
    assert len(rows) == 3 and rows[1].endswith(mnt + "/runs") and "MiB" in rows[1]


def test_du_why(tree):
    """Encodings, and which other files have the same; itself, and what lies below the path, is no such other."""
    mnt = tree.mnt
    tree.wait()
    a, runs, text = shown_json(tree, "du", "--why", mnt + "/runs/a", mnt + "/runs", mnt + "/text")
    assert a["why"]["nvme_encodings"] == a["encodings"] and a["why"]["remote_encodings"] == {} == a["why"]["bases"]
    assert a["why"]["shared_bytes"] == 6 * rig.MIB and a["why"]["shared_with"] == [{"path": "/runs/b", "share": 1}]
    assert runs["why"]["shared_bytes"] == 0 and runs["why"]["shared_with"] == []
    assert "why" not in du(tree, mnt + "/text")[0] and set(text["why"]["nvme_encodings"]) == {"lz4"}
    shown = tree.cairn("du", "--why", mnt + "/runs/a", mnt + "/runs").stdout
    assert "on NVMe         raw: 6.0 MiB stored in 6.0 MiB (1.000)\n" in shown
    assert "shared          6.0 MiB that other files have, too: stored once\n" in shown and "such as /runs/b\n" in shown
    assert "repeated        6.0 MiB that is there more than once: stored once\n" in shown


def test_du_of_what_is_not_on_nvme_yet(cairn, rng):
    cairn.mount(writeback_delay="1h")
    rig.write_file(cairn.mnt + "/new", rig.seeded_bytes(rng.random(), 5 * rig.MIB))
    (row,) = du(cairn, cairn.mnt)
    assert (row["logical_bytes"], row["staged_bytes"], row["stored_bytes"]) == (5 * rig.MIB, 5 * rig.MIB, 0)
    info = shown_json(cairn, "info", cairn.mnt + "/new")
    assert info["level"] == "stage" and info["newer_version_staged"] and info["staged_bytes"] == 5 * rig.MIB
    with open(cairn.mnt + "/new", "ab") as file:
        file.write(b"more")
        file.flush()
        # No process is begun: the end of its copy of the descriptor would seal the draft.
        assert ask(cairn, '{"verb":"look","ino":%d}' % os.fstat(file.fileno()).st_ino)["being_written"]
    cairn.wait()
    info = shown_json(cairn, "info", cairn.mnt + "/new")
    assert info["level"] == "nvme" and not info["being_written"] and info["staged_bytes"] == 0 and info["version"] > 0


def test_info_says_what_deleting_frees(tree):
    """What has an equal elsewhere frees nothing; what it says comes free when it is deleted."""
    mnt = tree.mnt
    tree.wait()
    assert shown_json(tree, "info", mnt + "/runs/a")["freed_nvme_bytes"] == 0
    runs = shown_json(tree, "info", mnt + "/runs")
    assert runs["dedup_ratio"] == pytest.approx(47 / 41, rel=0.01) and runs["chunk_uses"] > runs["chunks"] >= 41
    assert runs["freed_nvme_bytes"] == runs["nvme_bytes"] >= 41 * rig.MIB
    assert shown_json(tree, "info", mnt + "/text")["compression_ratio"] > 10
    os.unlink(mnt + "/runs/b")
    tree.wait()
    freed = shown_json(tree, "info", mnt + "/runs/a")["freed_nvme_bytes"]
    before = tree.status()["nvme"]["stored_bytes"]
    assert freed >= 6 * rig.MIB
    os.unlink(mnt + "/runs/a")
    tree.wait()
    assert before - tree.status()["nvme"]["stored_bytes"] == freed
    text = tree.cairn("info", mnt + "/runs").stdout
    for word in ("level", "chunks", "deduplication", "deleting it"):
        assert word in text, text
    assert "1 is kept" in tree.cairn("info", mnt + "/text").stdout


def freed(cairn, path):
    """What deleting it frees on NVMe, and what of it lies there."""
    info = shown_json(cairn, "info", path)
    assert info["freed_remote_bytes"] == 0 == info["remote_bytes"]
    return info["freed_nvme_bytes"], info["nvme_bytes"]


def test_a_file_that_keeps_a_name_frees_nothing(tree):
    """Not from one of its names, nor from a tree of them, and not what it shares with a file that goes; all its names do."""
    mnt = tree.mnt
    tree.wait()
    own = freed(tree, mnt + "/runs/again")
    assert own[0] == 0 and own[1] >= 35 * rig.MIB
    assert freed(tree, mnt + "/runs/one") == (len(b"inline"), own[1] + len(b"inline"))
    whole = freed(tree, mnt + "/runs")
    assert whole[0] == whole[1]
    os.link(mnt + "/runs/b", mnt + "/kept")
    tree.wait()
    assert freed(tree, mnt + "/runs") == (own[1] + len(b"inline"), whole[1])
    subprocess.run(["cp", "-al", mnt + "/runs", mnt + "/copy"], check=True)
    tree.wait()
    assert freed(tree, mnt + "/copy") == (0, whole[1]) == freed(tree, mnt + "/runs")
    assert "frees 0 B on NVMe" in tree.cairn("info", mnt + "/copy").stdout
    everything = freed(tree, mnt)
    assert everything[0] == everything[1] > whole[1]
    before = tree.status()["nvme"]["stored_bytes"]
    shutil.rmtree(mnt + "/copy")
    tree.wait()
    assert tree.status()["nvme"]["stored_bytes"] == before
    assert freed(tree, mnt + "/runs") == (own[1] + len(b"inline"), whole[1])


def test_info_counts_small_files_where_they_lie(request, mount_factory, directory, rng):
    """Their content is in no pack: on NVMe from the start, in the remote once their inodes are published, whatever is evicted."""
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remotes.DirRemote(directory + "/remotes"), request=request)
    cairn.mount()
    size = 40 * 4 * rig.KIB
    rig.write_file(cairn.mnt + "/large", rig.seeded_bytes(rng.random(), 4 * rig.MIB))
    os.mkdir(cairn.mnt + "/small")
    cairn.wait(level="remote")

    def tiers(mount=cairn):
        info = shown_json(mount, "info", mount.mnt + "/small")
        assert info["stored_bytes"] == size == info["used_bytes"] and info["chunks"] == 0
        return [info[name + "_bytes"] for name in ("nvme", "freed_nvme", "remote", "freed_remote")]

    with unreachable(cairn.remote):
        for i in range(40):
            rig.write_file(f"{cairn.mnt}/small/{i}", rig.seeded_bytes(rng.random(), 4 * rig.KIB))
        cairn.wait()
        assert tiers() == [size, size, 0, 0]
    cairn.wait(level="remote")
    assert tiers() == [size] * 4
    assert "frees 160 KiB on NVMe, 160 KiB in the remote" in cairn.cairn("info", cairn.mnt + "/small").stdout
    assert cairn.cairn("evict", cairn.mnt).returncode == 0
    assert tiers() == [size] * 4
    os.link(cairn.mnt + "/small/0", cairn.mnt + "/kept")
    cairn.wait(level="remote")
    assert tiers() == [size, size - 4 * rig.KIB] * 2
    reader = cairn.fresh(ro=True)
    request.addfinalizer(reader.close)
    reader.mount()
    assert tiers(reader) == [size, size - 4 * rig.KIB] * 2


def test_info_tells_the_tiers(request, mount_factory, directory, rng):
    """What is on NVMe and what in the remote, before and after an eviction."""
    remote = remotes.DirRemote(directory + "/remotes")
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remote, request=request)
    cairn.mount()
    path = rig.write_file(cairn.mnt + "/file", rig.seeded_bytes(rng.random(), 4 * rig.MIB))
    cairn.wait(level="remote")
    info = shown_json(cairn, "info", path)
    assert info["level"] == "remote" and info["nvme_bytes"] == info["remote_bytes"] == info["freed_remote_bytes"] >= 4 * rig.MIB
    assert cairn.cairn("evict", path).returncode == 0
    info = shown_json(cairn, "info", path)
    assert info["nvme_bytes"] == 0 == info["freed_nvme_bytes"] and info["remote_bytes"] >= 4 * rig.MIB


def test_a_large_tree_is_looked_at_in_portions(cairn, full, mnt):
    """The count is right, the mount goes on answering quickly meanwhile, and an interrupt ends it."""
    number = 50000 if full else 6000
    for i in range(number):
        if i % 3000 == 0:
            os.mkdir(f"{mnt}/d{i // 3000}")
        rig.write_file(f"{mnt}/d{i // 3000}/{i}", b"%d" % i)
    (row,) = du(cairn, mnt)
    assert row["files"] == number and row["logical_bytes"] == sum(len(str(i)) for i in range(number))
    command = [cairn.binary, "du", *[mnt] * 400]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as walk:
        try:
            walk.stdout.readline(), walk.stdout.readline()
            slowest = 0
            for i in range(50):
                began = time.monotonic()
                rig.write_file(f"{mnt}/beside", b"x")
                slowest = max(slowest, time.monotonic() - began)
            assert slowest < 5 and walk.poll() is None
        finally:
            walk.send_signal(signal.SIGINT)
        out, err = walk.communicate(timeout=300)
    assert walk.returncode == 130 and err == ""


def ask(cairn, text):
    """What the control socket answers to a line."""
    rig.poll(lambda: os.path.exists(cairn.store + "/control"), 10, "the control socket")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(200)
        sock.connect(cairn.store + "/control")
        sock.sendall(text.encode() + b"\n")
        return json.loads(sock.makefile().readline())


def test_where_two_files_differ(cairn):
    """By their chunks: in more places than an answer has room for, so the last one reaches to the end. Holes are equal, and have no extent."""
    cairn.mount()
    size, step = 4200 * 8192, 8192
    one, other = os.path.join(cairn.mnt, "one"), os.path.join(cairn.mnt, "other")
    for path in one, other:
        with open(path, "wb") as file:
            file.truncate(size)
    with open(one, "r+b", 0) as file:
        for i in range(0, size, step):
            file.seek(i)
            file.write(os.urandom(4096))
    cairn.verb("wait", cairn.mnt)
    inos = [os.stat(path).st_ino for path in (one, other)]
    answer = ask(cairn, json.dumps({"verb": "differ", "ino": inos[0], "other": inos[1]}))
    found = [tuple(map(int, row.split(":"))) for row in answer["ranges"]]
    assert found[:-1] == [(i * step, 4096) for i in range(4095)] and found[-1] == (4095 * step, size - 4096 - 4095 * step)
    assert answer["file"] == f"{size}:{os.stat(one).st_mtime_ns}"
    extents, at = [], 0
    while at is not None:
        answer = ask(cairn, json.dumps({"verb": "extents", "ino": inos[0], "at": at}))
        extents, at = extents + answer["extents"], answer.get("at")
    assert [tuple(map(int, row.split(":")))[:2] for row in extents] == [(i, 4096) for i in range(0, size, step)]
    assert ask(cairn, json.dumps({"verb": "extents", "ino": inos[1], "at": 0}))["extents"] == []


def test_where_a_file_differs_from_what_it_was(cairn):
    """An inode of .history is one as others are; a state that is gone is none."""
    cairn.mount(writeback_delay="50ms")
    path = rig.write_file(os.path.join(cairn.mnt, "model.pt"), os.urandom(3 << 20))
    cairn.verb("snapshot", "create", cairn.mnt, "then")
    then = os.stat(os.path.join(cairn.mnt, ".history", "then", "model.pt")).st_ino
    with open(path, "r+b", 0) as file:
        os.pwrite(file.fileno(), os.urandom(4096), 2 << 20)
    cairn.verb("wait", cairn.mnt)
    differ = {"verb": "differ", "ino": os.stat(path).st_ino, "other": str(then)}
    (found,) = ask(cairn, json.dumps(differ))["ranges"]
    at, length = map(int, found.split(":"))
    assert 1 << 20 <= at <= 2 << 20 and at + length >= (2 << 20) + 4096
    extents = ask(cairn, json.dumps({"verb": "extents", "ino": str(then), "at": 0}))["extents"]
    assert sum(int(row.split(":")[1]) for row in extents) == 3 << 20
    cairn.remount()
    cairn.verb("snapshot", "delete", cairn.mnt, "then")
    for question in differ, {"verb": "extents", "ino": str(then), "at": 0}:
        assert ask(cairn, json.dumps(question))["errno"] in (errno.ESTALE, errno.ENOENT), question


def test_bad_questions(cairn):
    """What no verb asks gets an error, and the next question an answer."""
    cairn.mount()
    for todo in ('["x1:0"]', '["d1"]', '[1]', '["f1:99999999999999999999999"]', '["d1:0","f"]', '["f-1:0"]', '[null]',
                 '["%s"]' % ("d" * 9000)):
        assert ask(cairn, '{"verb":"survey","todo":%s}' % todo).get("errno") == errno.EINVAL, todo
    one, two = "1" * 32, "2" * 32
    for users in ("", '"at":0,"chunks":["12"]', '"at":0,"chunks":[1]', f'"at":-1,"chunks":["{one}"]', f'"at":0,"chunks":["{two}","{one}"]',
                  f'"at":0,"chunks":["{one}","{one}"]', f'"at":0,"chunks":["{"x" * 32}"]',
                  '"at":0,"chunks":[%s]' % ",".join(f'"{i:032x}"' for i in range(257))):
        assert ask(cairn, '{"verb":"users",%s}' % users if users else '{"verb":"users"}').get("errno") == errno.EINVAL, users
    assert ask(cairn, f'{{"verb":"users","at":0,"chunks":["{one}"]}}') == {"users": []}
    for ino in ("-1", '"x"', "1.5", "99999999", "null"):
        assert ask(cairn, '{"verb":"look","ino":%s}' % ino)["errno"] in (errno.EINVAL, errno.ENOENT), ino
    cairn.verb("wait", cairn.mnt)
    for fields in ('"ino":1', '"ino":1,"at":0', '"ino":-1,"at":0', '"ino":99999999,"at":0', '"ino":2,"at":"18446744073709551615"',
                   '"ino":"18446744073709551615","at":0', '"ino":"562949953421312","at":0', '"ino":"18446462598732840961","at":0'):
        assert ask(cairn, '{"verb":"extents",%s}' % fields)["errno"] in (errno.EINVAL, errno.ENOENT, errno.ESTALE), fields
        assert ask(cairn, '{"verb":"differ","other":1,%s}' % fields)["errno"] in (errno.EINVAL, errno.ENOENT, errno.ESTALE), fields
    assert ask(cairn, '{"verb":"survey"}')["done"] == 0
    todo = ["f12345:0", "d12345:0", "f1:5"]
    while todo:  # one answer does at least one of them, and as many as fit in 100 ms
        answer = ask(cairn, json.dumps({"verb": "survey", "todo": todo}))
        assert 1 <= answer["done"] <= len(todo) and "rest" not in answer, "what is gone is done"
        todo = todo[answer["done"] :]
    assert ask(cairn, '{"verb":"look","ino":1}')["type"] == "directory"
