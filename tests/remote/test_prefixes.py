# SPDX-License-Identifier: Apache-2.0
"""Which remotes a bucket, or a directory, has: `cairn ls` lists them, and an address that is none says which there are. And directories
in a `dir:` remote that another user made."""
import json
import os
import subprocess
import sys

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount


def at(remote, below):
    """A remote of the same kind, deeper."""
    if remote.kind == "s3":
        return remotes.S3Remote(remote.rgw, f"{remote.prefix}/{below}")
    return remotes.DirRemote(remote.root, f"{remote.path}/{below}")


@pytest.mark.always_s3
def test_remotes_are_listed(on_remote, remote):
    """Also nested ones; what is beside them does not matter, and nothing within a remote is looked at."""
    wanted = ["run7", "team/a/run8", "team/run9"]
    nodes = [on_remote(at(remote, below)) for below in wanted]
    for node in nodes:
        node.mount()
        node.write("file", b"content", "remote")
        node.umount()
    remote.put("other/file", b"not a remote")
    remote.put("other/cairns", b"neither")
    addresses = [f"{remote.url}/{below}" for below in wanted]
    for address in (remote.url, remote.url + "/"):
        assert sorted(nodes[0].verb("ls", *remote.flags(), address).stdout.split()) == addresses
    done = nodes[0].cairn("ls", *remote.flags(), "--json", remote.url + "/team")
    assert sorted(entry["remote"] for entry in json.loads(done.stdout)) == addresses[1:], done
    done = nodes[0].cairn("ls", *remote.flags(), addresses[0])
    assert done.stdout == "file\n", done
    done = nodes[0].cairn("ls", *remote.flags(), addresses[0] + ":/")
    assert done.stdout == "file\n", done
    for command, wrong in (["ls"], "team/run"), (["ls"], "team/run:/"), (["cp", "-r"], "team/rum9:/"):
        operands = [f"{remote.url}/{wrong}", *([nodes[0].root + "/copy"] if command[0] == "cp" else [])]
        done = nodes[0].cairn(command[0], *remote.flags(), *command[1:], *operands)
        assert done.returncode == 1 and "there are: " in done.stderr, done
        assert all(address in done.stderr for address in addresses[1:]), done
    for node in nodes:
        if remote.kind == "s3":
            node.remote.wipe()


OTHER = "import os, sys\nos.setuid(65534)\nfor name in sys.argv[1:]:\n    os.mkdir(name, 0o777)\n    os.chmod(name, 0o777)\n"


def make_as_another(*names):
    subprocess.run([sys.executable, "-c", OTHER, *names], check=True)


@pytest.fixture
def open_place(directory):
    """A directory where anyone may write, which others reach."""
    rig.need_root()
    os.chmod(directory, 0o755)
    path = rig.mkdir(os.path.join(directory, "open"))
    os.chmod(path, 0o1777)
    return path


def refusal(mount):
    done = mount.cairn("mount", mount.store, mount.mnt, "-o", mount.option_string({}))
    assert done.returncode != 0 and not rig.mounted_at(mount.mnt), done
    return done.stderr


def test_a_directory_that_another_user_made(on_remote, open_place):
    """It is not written to, and says whose fault that is; our own beside it is."""
    make_as_another(open_place + "/theirs")
    mount = on_remote(remotes.DirRemote(open_place, open_place + "/theirs"))
    assert "another user made" in refusal(mount)
    assert os.listdir(open_place + "/theirs") == []
    other = on_remote(remotes.DirRemote(open_place, open_place + "/ours"))
    other.mount()
    other.wait_remote()
    other.umount()


@pytest.mark.parametrize("name", ["packs", "heads", "probe"])
def test_a_directory_in_the_remote_that_another_user_made(on_remote, open_place, name):
    make_as_another(f"{open_place}/{name}")
    mount = on_remote(remotes.DirRemote(open_place, open_place), remote_timeout="2s")
    if name == "packs":  # it is met by the first upload
        mount.mount()
        rig.write_file(os.path.join(mount.mnt, "file"), b"1" * rig.MIB)
        assert mount.cairn("wait", mount.mnt, "--level", "remote", "--timeout", "3s").returncode == 3
        assert "another user made" in mount.remote_status()["error"]
        mount.umount()
    else:
        assert "another user made" in refusal(mount)
    assert os.listdir(f"{open_place}/{name}") == []


def test_a_directory_of_another_user_elsewhere(on_remote, open_place):
    """Where only its owner could have made it, an administrator may use it."""
    make_as_another(open_place + "/home")
    os.chmod(open_place + "/home", 0o700)
    os.mkdir(open_place + "/home/remote")
    os.chown(open_place + "/home/remote", 65534, 65534)
    mount = on_remote(remotes.DirRemote(open_place, open_place + "/home/remote"))
    mount.mount()
    mount.wait_remote()
    mount.umount()
