# SPDX-License-Identifier: Apache-2.0
"""`cairn fsck` of a prefix that several nodes write names each damaged object, also those that no head names."""
import json
import os
import re
import zlib

import pytest

import rig
from test_union_mounts import TAKEN_S, at

LEASE_S = 60  # nobody ends the nodes that are killed here


@pytest.fixture
def prefix(on_remote, remote):
    """Two nodes wrote it, and died; the newest feed of the second is in no head."""
    mounts = [on_remote(remote, nodes=True, writeback_delay="50ms", lease=f"{LEASE_S}s").mount() for _ in range(2)]
    for number, mount in enumerate(mounts):
        rig.write_file(at(mount, f"file{number}"), os.urandom(100_000))
        mount.wait_remote()
    for mount in mounts:
        rig.poll(lambda mount=mount: len(os.listdir(mount.mnt)) == 2, TAKEN_S, "the files of both")
    merger, other = sorted(mounts, key=lambda mount: not merges(mount))
    merger.kill9()
    before = set(remote.names("feeds"))
    rig.write_file(at(other, "later"), b"later")
    rig.poll(lambda: len(set(remote.names("feeds")) - before) > 1, TAKEN_S, "a feed that no head has")
    other.kill9()
    remote.check = lambda *flags: other.cairn("fsck", *remote.flags(), *flags, remote.url)
    return remote


def merges(mount):
    return "merged by this node" in mount.verb("nodes", mount.mnt).stdout


def flip(data):
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


def newest(names):
    return max(name for name in names if re.search(r"/[0-9a-f]{16}(-[0-9a-f]{16})?$", name))


def objects(remote):
    """Of each kind one, and what is said of it."""
    return {
        newest(remote.names("writers")): "the node writes it again while it is mounted",
        newest(remote.names("feeds")): "no head has what it tells",
        newest(remote.names("nodes/0000000000000010/heads")): "node 16 cannot go back to it",
        "nodes/0000000000000010/cairn": "node 16 needs it",
    }


@pytest.mark.always_s3
def test_each_damaged_object_is_named(prefix):
    assert prefix.check().returncode == 0, prefix.check()
    wanted = objects(prefix)
    there = {name: prefix.get(name) for name in wanted}
    for damage in (flip, lambda data: data[:-1]):
        for name, data in there.items():
            prefix.put(name, damage(data))
        done = prefix.check("--json")
        said = {each["object"]: each["problem"] for each in json.loads(done.stdout)["objects"]}
        assert done.returncode == 4 and sorted(said) == sorted(wanted), (done.returncode, said)
        for name, why in wanted.items():
            assert said[name].startswith(("is damaged", "is truncated")) and why in said[name], (name, said[name])
    for name, data in there.items():
        prefix.put(name, data)
    prefix.delete("nodes/0000000000000010/cairn")
    done = prefix.check()
    assert done.returncode == 4 and "nodes/0000000000000010/cairn: is missing: node 16 needs it" in done.stdout, done


def test_an_object_of_another_history(prefix):
    """A listing that mixes two prefixes, or a copy that went to the wrong place."""
    name = newest(prefix.names("writers"))
    entry = prefix.get(name)
    other = entry[:16] + os.urandom(16) + entry[32:-4]
    prefix.put(name, other + zlib.crc32(other).to_bytes(4, "little"))
    done = prefix.check()
    assert done.returncode == 4 and f"{name}: is truncated or malformed" in done.stdout, done
