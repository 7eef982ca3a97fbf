# SPDX-License-Identifier: Apache-2.0
"""`cairn fsck` of a remote, and `cairn cp` of what is damaged there: which files, by which objects, and nothing is written."""
import json
import os
import re
import stat

import numpy
import pytest

import rig

pytestmark = pytest.mark.needs_mount

STEPS = 8
STEP = 3 << 20


def weights(step, rng=numpy.random.default_rng(5)):
    """bf16 numbers that move a little with each step: with reduce=dense each is stored by the one before."""
    base = numpy.random.default_rng(7).standard_normal(STEP // 2).astype(numpy.float32)
    moved = base * (1 + 0.001 * step)
    return (moved.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()


def fill(mount, content, kind):
    for i in range(STEPS):
        path = rig.mkdir(os.path.join(mount.mnt, f"step{i}"))
        content[f"/step{i}/model.pt"] = weights(i) if kind == "dense" else rig.seeded_bytes(f"fsck {i}", STEP)
        rig.write_file(os.path.join(path, "model.pt"), content[f"/step{i}/model.pt"])
        rig.write_file(os.path.join(path, "note"), f"step {i}".encode())
        content[f"/step{i}/note"] = f"step {i}".encode()
        mount.wait_remote()
    mount.umount(drain="remote")


@pytest.fixture(params=["off", "dense"])
def node(request, mount):
    mount.options.update(reduce=request.param, writeback_delay="50ms")
    mount.mount()
    mount.content = {}
    fill(mount, mount.content, request.param)
    return mount


def fsck(node, *flags, code=None):
    done = node.cairn("fsck", *node.remote.flags(), *flags, node.remote.url)
    assert code is None or done.returncode == code, f"{done.returncode} {done.stdout} {done.stderr}"
    return done


def report(node, *flags, code=None):
    return json.loads(fsck(node, "--json", *flags, code=code).stdout)


def packs(remote):
    """Their names, the largest first."""
    found = {name: size for name, size in remote.names("packs/").items() if re.fullmatch("packs/[0-9a-f]{16}", name)}
    return sorted(found, key=lambda name: -found[name])


def copied(node, directory, *flags):
    """What cp makes of it: the bytes of the files that it made, and what it said."""
    os.makedirs(directory)
    done = node.cairn("cp", *node.remote.flags(), "-r", *flags, node.remote.spec("/"), directory)
    found = {}
    for top, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(top, name)
            found["/" + os.path.relpath(path, directory)] = rig.read_file(path)
    return found, done


def check_against_cp(node, found, directory):
    """The damaged files of the report are those that cp does not copy, no more and no fewer."""
    files, done = copied(node, directory)
    damaged = {one["path"] for one in found["damaged"]}
    assert {path: data for path, data in node.content.items() if path not in damaged} == files
    if damaged:
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f"cairn cp: {len(files)} of {len(node.content)} files copied"
    return damaged, done


def test_clean(node, directory):
    before = node.remote.names()
    done = fsck(node, code=0)
    assert done.stdout.splitlines()[-1] == f"{node.remote.url}: clean"
    found = report(node, code=0)
    assert found["clean"] and found["problems"] == 0 and found["files"] == len(node.content)
    assert found["packs"] == found["read_packs"] > 0 and found["heads"] == len(node.remote.heads())
    few = report(node, "--sample", "1", code=0)
    assert few["read_packs"] < few["packs"] or few["packs"] < 4
    assert node.remote.names() == before
    check_against_cp(node, found, os.path.join(directory, "copy"))


@pytest.mark.parametrize("how", ["lost", "flipped", "truncated"])
def test_pack(node, how, directory, rng):
    """Every second pack: the files that it hurts, also those that are only stored by its chunks."""
    names = packs(node.remote)[::2]
    for name in names:
        if how == "lost":
            node.remote.delete(name)
        elif how == "flipped":
            data = bytearray(node.remote.get(name))
            data[len(data) // 3] ^= 16
            node.remote.put(name, bytes(data))
        else:
            node.remote.put(name, node.remote.get(name)[: 4096])
    before = node.remote.names()
    found = report(node, code=4)
    damaged, done = check_against_cp(node, found, os.path.join(directory, "copy"))
    assert damaged
    named = {one["object"] for one in found["objects"]}
    assert named <= set(names) and (how == "flipped" or named == set(names)), (named, names)
    for one in found["damaged"]:
        assert any(name in one["problem"] for name in names), one
    if node.options["reduce"] == "dense":
        assert any(one["only_through_bases"] for one in found["damaged"]), found
    lines = fsck(node, code=4).stdout
    assert all(path in lines for path in damaged) and f"{len(damaged)} damaged" in lines
    word = "missing" if how == "lost" else "damaged"
    for path in damaged:
        assert re.search(rf"{path}: (NVMe: )?packs/[0-9a-f]{{16}} is {word}.*needed by [0-9]+ chunks", done.stderr), done.stderr
    if how == "lost":
        sampled = report(node, "--sample", "1", code=4)
        assert {one["path"] for one in sampled["damaged"]} == damaged, "what a lost pack hurts does not depend on what is read"
    assert node.remote.names() == before


def test_partial_copy(node, directory):
    """What can be read is in NAME.partial, what cannot in NAME.holes."""
    node.remote.delete(packs(node.remote)[0])
    files, done = copied(node, os.path.join(directory, "copy"), "--partial")
    whole = {path: data for path, data in files.items() if not path.endswith((".partial", ".holes"))}
    partial = {path[: -len(".partial")]: data for path, data in files.items() if path.endswith(".partial")}
    assert done.returncode == 1 and partial
    assert whole == {path: data for path, data in node.content.items() if path not in partial}
    for path, data in partial.items():
        expected = bytearray(node.content[path])
        for line in files[path + ".holes"].decode().splitlines():
            at, length, why = line.split(" ", 2)
            assert why.startswith("packs/")
            expected[int(at) : int(at) + int(length)] = bytes(int(length))
        assert data == bytes(expected) != node.content[path], path
    assert done.stderr.splitlines()[-1].startswith(f"cairn cp: {len(whole)} of {len(node.content)} files copied, {len(partial)} more in part")


def test_runs_and_heads(node, rng):
    """One object of a run, both, a head: they are named, and what is lost by it."""
    number = max(node.remote.heads())
    head = node.remote.heads()[number]
    runs = sorted(name for name in node.remote.names("runs/"))
    node.remote.corrupt(runs[-1], rng)
    node.remote.delete(runs[-1].replace("runs/", "copies/", 1) if len(runs) == 1 else runs[-2].replace("runs/", "copies/", 1))
    node.remote.corrupt(f"heads/{number - 2:016x}", rng)
    node.remote.delete(f"heads/{number - 4:016x}")
    found = report(node, code=4)
    named = {one["object"]: one["problem"] for one in found["objects"]}
    assert f"heads/{number - 2:016x}" in named and "missing" in named[f"heads/{number - 4:016x}"]
    assert "damaged" in named[runs[-1]], named
    assert any(name.startswith("copies/") and "missing" in why for name, why in named.items()), named
    assert not found["damaged"] and head


def test_lost_run_shows_what_is_older(node):
    runs = sorted(node.remote.names("runs/"))
    node.remote.delete(runs[-1])
    node.remote.delete(runs[-1].replace("runs/", "copies/", 1))
    found = report(node, code=4)
    assert any("cannot be read" in note and "showing head" in note for note in found["notes"])
    assert any(one["object"] == runs[-1] and "heads" in one["problem"] for one in found["objects"])
    for name in node.remote.names("runs/"):
        node.remote.delete(name)
        node.remote.delete(name.replace("runs/", "copies/", 1))
    done = fsck(node, code=4)
    assert "no older head is whole" in done.stdout


def test_read_only_directory(node):
    """No write permission, no FUSE: all that is needed is to read."""
    if node.remote.kind != "dir":
        pytest.skip("skipped: of a directory")
    paths = [top for top, _, _ in os.walk(node.remote.path)]
    for path in paths:
        os.chmod(path, 0o500)
    times = {path: os.stat(path).st_mtime_ns for path in paths}
    fsck(node, code=0)
    assert {path: os.stat(path).st_mtime_ns for path in paths} == times
    for path in paths:
        os.chmod(path, 0o700 | stat.S_IMODE(os.stat(path).st_mode))


def missing_once(names):
    """A script for the proxy: the first request for each of these objects is answered with 404."""
    return [{"path": f"/{name}(\\?|$)", "fault": "missing"} for name in names]


@pytest.mark.parametrize("reduce", ["off", "dense"])
def test_what_is_missing_for_a_moment_is_asked_for_again(on_remote, s3, proxy, directory, reduce):
    """A server that lost sight of each object for one request: fsck finds nothing, and cp copies all. What is gone is still told."""
    mount = on_remote(s3, reduce=reduce, writeback_delay="50ms").mount()
    mount.content = {}
    fill(mount, mount.content, reduce)
    there, copies, oldest = packs(s3), sorted(s3.names("copies/")), min(s3.heads())
    mount.remote = s3.through(proxy)
    denied = [{"method": method, "fault": "denied", "times": 10**6} for method in ("PUT", "DELETE", "POST")]
    proxy.set(script=[*missing_once([*there, *copies, f"heads/{oldest:016x}"]), *denied])
    found = report(mount, code=0)
    assert found["clean"] and found["read_packs"] == len(there), found
    faults = proxy.stats()["faults"]
    assert faults["missing"] == len(there) + len(copies) + 1 and not faults.get("denied"), "a key that may only read is enough"
    proxy.set(script=missing_once(there))
    proxy.reset()
    files, done = copied(mount, os.path.join(directory, "copy"))
    assert done.returncode == 0 and files == mount.content, done
    assert proxy.stats()["faults"]["missing"] > 0
    s3.delete(there[0])
    damaged, _ = check_against_cp(mount, report(mount, code=4), os.path.join(directory, "again"))
    assert damaged


def test_wrong_arguments(node):
    assert "--repair is for a store" in fsck(node, "--repair", code=16).stderr
    assert "from 1 to 100" in fsck(node, "--sample", "101", code=16).stderr
    assert node.verb("fsck", *node.remote.flags(), node.remote.url + "-not-there", code=8).stderr
    assert "for a remote" in node.cairn("fsck", "--sample", "50", node.store).stderr
