# SPDX-License-Identifier: Apache-2.0
"""Readers of a prefix that two mounts write: a mount with -o ro, cairn ls, cp and fsck show the union, as it changes and after damage."""
import os
import re

import pytest

import remote as remotes
import rig

FOLLOW = {"ro": True, "follow": "1s", "stage": "64M"}


class Job:
    """Two nodes and a reader, on a remote in a directory."""

    def __init__(self, on_remote, directory):
        self.remote = remotes.DirRemote(os.path.join(directory, "remotes"))
        self.nodes = [on_remote(self.remote, nodes=True, writeback_delay="50ms").mount() for _ in range(2)]
        self.reader = on_remote(self.remote)
        self.copied = os.path.join(directory, "copied")

    def write(self, node, name, content):
        path = os.path.join(self.nodes[node].mnt, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        return content

    def read(self):
        """What the reader has: content by name, and None for directories."""
        found = {}
        for path, dirs, files in os.walk(self.reader.mnt):
            place = os.path.relpath(path, self.reader.mnt)
            found.update({os.path.normpath(os.path.join(place, name)): None for name in dirs})
            found.update({os.path.normpath(os.path.join(place, name)): rig.read_file(os.path.join(path, name)) for name in files})
        return found

    def shows(self, expected):
        rig.poll(lambda: self.read() == expected, 60, f"the reader shows {sorted(expected)}")


@pytest.fixture
def job(on_remote, directory):
    return Job(on_remote, directory)


@pytest.mark.timeout(240)
def test_reader_follows_two_nodes(job):
    expected = {"a": job.write(0, "a", os.urandom(300_000)), "b": job.write(1, "b", os.urandom(2_000_000)),
                "dir": None, "dir/c": job.write(0, "dir/c", b"short")}
    rig.poll(lambda: len(job.remote.names("heads")) > 1, 60, "a head of both")
    job.reader.mount(**FOLLOW)
    job.shows(expected)
    expected["a"] = job.write(0, "a", os.urandom(400_000))
    expected["d"] = job.write(1, "d", os.urandom(100_000))
    os.remove(os.path.join(job.nodes[1].mnt, "b"))
    del expected["b"]
    job.shows(expected)
    os.rename(os.path.join(job.nodes[0].mnt, "dir/c"), os.path.join(job.nodes[0].mnt, "e"))
    expected["e"] = expected.pop("dir/c")
    for i in range(40):  # many runs, which are merged
        expected[f"many-{i}"] = job.write(i % 2, f"many-{i}", os.urandom(3000))
    job.shows(expected)
    job.reader.umount()
    job.reader.verb("fsck", job.reader.store)
    job.reader.mount(**FOLLOW)
    job.shows(expected)


@pytest.mark.timeout(240)
def test_reader_sees_a_file_that_is_open_and_has_no_name(job):
    expected = {"kept": job.write(1, "kept", b"kept")}
    job.write(0, "gone", os.urandom(200_000))
    rig.poll(lambda: len(job.remote.names("heads")) > 1, 60, "a head of both")
    job.reader.mount(**FOLLOW)
    with open(os.path.join(job.nodes[0].mnt, "gone"), "rb"):
        os.remove(os.path.join(job.nodes[0].mnt, "gone"))
        job.shows(expected)
        expected["later"] = job.write(1, "later", b"later")
        job.shows(expected)
    expected["last"] = job.write(0, "last", b"last")
    job.shows(expected)
    job.reader.umount()
    job.reader.verb("fsck", job.reader.store)


@pytest.mark.timeout(240)
def test_commands_read_two_nodes(job):
    content = [job.write(node, f"of-{node}", os.urandom(150_000)) for node in range(2)]
    for node in job.nodes:
        node.umount()
    listing = job.reader.verb("ls", "-R", job.remote.url + ":/").stdout
    assert set(listing.split()) >= {"of-0", "of-1"}, listing
    job.reader.verb("cp", "-r", job.remote.url + ":/", job.copied)
    for node in range(2):
        assert rig.read_file(os.path.join(job.copied, f"of-{node}")) == content[node]
    checked = job.reader.verb("fsck", job.remote.url)
    assert re.search(r"^2 files, 0 damaged", checked.stdout, re.MULTILINE) and checked.stdout.endswith(": clean\n"), checked.stdout


@pytest.mark.timeout(240)
def test_writer_alone_is_refused(job, on_remote):
    job.write(0, "a", b"a")
    alone = on_remote(job.remote)
    with pytest.raises(rig.MountError, match=r"several nodes write dir:.*: mount with -o nodes to write there, too, or with -o ro to read\n"):
        alone.mount()
