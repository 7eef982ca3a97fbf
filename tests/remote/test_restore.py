# SPDX-License-Identifier: Apache-2.0
"""`cairn restore`: files of a mount as they were, by the name of a state, its head or its time. `cairn diff`: what was done since."""
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import time

import pytest

import rig
from another_user import OTHER
from test_keep import SMALL, Kept

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]


# A job of another user; what root restores is that user's.
OWNED = {"step1000": (0o2770, 1234, 5678), "step1000/model.pt": (0o640, 1234, 5678), "step1000/deep/link": (0o777, 1234, 5678)}


XATTRS = {"step1000": {"user.run": b"seven"},
          "step1000/model.pt": {"user.loss": b"1.25", "trusted.signature": bytes(range(256)), "user.none": b""}}


def xattrs(kept, name):
    path = os.path.join(kept.node.mnt, name)
    return {key: os.getxattr(path, key) for key in os.listxattr(path)}


def owned(kept, name):
    st = os.lstat(os.path.join(kept.node.mnt, name))
    return stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid


@pytest.fixture
def kept(on_remote, remote, directory):
    """A state with the name `before`, and what an accident left of it."""
    made = Kept(on_remote(remote, **SMALL), directory)
    made.node.mount()
    made.put("step1000/model.pt", 1)
    made.put("step1000/deep/optimizer.pt", 2, 900_000)
    made.put("latest.pt", 3)
    os.symlink("step1000", os.path.join(made.node.mnt, "latest"))
    os.symlink("optimizer.pt", os.path.join(made.node.mnt, "step1000", "deep", "link"))
    for name, (mode, *owner) in OWNED.items():
        path = os.path.join(made.node.mnt, name)
        os.chown(path, *owner, follow_symlinks=False)
        if not os.path.islink(path):
            os.chmod(path, mode)
    for name, values in XATTRS.items():
        for key, value in values.items():
            os.setxattr(os.path.join(made.node.mnt, name), key, value)
    os.setxattr(os.path.join(made.node.mnt, "step1000/model.pt"), "user.cairn.pin", b"1")  # is not restored
    made.node.verb("snapshot", "create", made.node.mnt, "before")
    made.before = dict(made.tree)
    return made


def restore(kept, path, *args, code=0, at="before"):
    return kept.node.verb("restore", *kept.remote.flags(), os.path.join(kept.node.mnt, path), "--at", at, *args, code=code)


def there(kept):
    paths = [os.path.join(top, name) for top, _, names in os.walk(kept.node.mnt) for name in names]
    return {os.path.relpath(path, kept.node.mnt): rig.read_file(path) for path in paths if not os.path.islink(path)}


def test_a_tree_that_was_removed(kept):
    shutil.rmtree(os.path.join(kept.node.mnt, "step1000"))
    assert "3 of 3 files restored" in restore(kept, "step1000").stdout
    assert there(kept) == kept.before
    told = json.loads(restore(kept, "step1000", "--json", code=1).stdout)
    assert (told["complete"], told["files"], told["copied"], len(told["problems"])) == (False, 3, 0, 3)
    assert [owned(kept, name) for name in OWNED] == list(OWNED.values())
    assert [xattrs(kept, name) for name in XATTRS] == list(XATTRS.values())
    kept.node.wait_remote()
    with kept.node.elsewhere(ro=True) as reader:
        assert rig.read_file(os.path.join(reader.mnt, "step1000/deep/optimizer.pt")) == kept.before["step1000/deep/optimizer.pt"]


def test_one_file_of_a_tree_that_was_removed(kept):
    """The directories on the way are made."""
    shutil.rmtree(os.path.join(kept.node.mnt, "step1000"))
    restore(kept, "step1000/deep/optimizer.pt")
    assert set(there(kept)) == {"latest.pt", "step1000/deep/optimizer.pt"}
    assert there(kept)["step1000/deep/optimizer.pt"] == kept.before["step1000/deep/optimizer.pt"]


def test_all_of_a_mount(kept):
    for name in os.listdir(kept.node.mnt):
        path = os.path.join(kept.node.mnt, name)
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    restore(kept, "")
    assert there(kept) == kept.before and os.readlink(os.path.join(kept.node.mnt, "latest")) == "step1000"


def test_what_is_there_stays(kept):
    """Unless it is to be replaced; what is missing beside it is restored."""
    os.truncate(os.path.join(kept.node.mnt, "latest.pt"), 10)
    os.unlink(os.path.join(kept.node.mnt, "step1000", "model.pt"))
    kept.put("step1000/deep/optimizer.pt", 9)
    said = restore(kept, "latest.pt", code=1)
    assert "latest.pt: File exists" in said.stderr and len(there(kept)["latest.pt"]) == 10
    said = restore(kept, "step1000", code=1)
    assert "optimizer.pt: File exists" in said.stderr and "1 of 3 files restored" in said.stdout
    now = there(kept)
    assert now["step1000/model.pt"] == kept.before["step1000/model.pt"]
    assert now["step1000/deep/optimizer.pt"] == kept.tree["step1000/deep/optimizer.pt"]
    restore(kept, "step1000", "--replace")
    restore(kept, "latest.pt", "--replace")
    assert there(kept) == kept.before


def test_beside_what_is_there(kept):
    kept.put("latest.pt", 9)
    new = os.path.join(kept.node.mnt, "old", "latest.pt")
    restore(kept, "latest.pt", "--to", new)
    assert rig.read_file(new) == kept.before["latest.pt"]
    assert there(kept)["latest.pt"] == kept.tree["latest.pt"]
    restore(kept, "step1000", "--to", os.path.join(kept.directory, "copy"))
    assert rig.read_file(os.path.join(kept.directory, "copy/deep/optimizer.pt")) == kept.before["step1000/deep/optimizer.pt"]


def test_by_number_and_time(kept):
    number = max(kept.remote.heads())
    time.sleep(1.1)  # times are told in whole seconds
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    time.sleep(1.1)
    shutil.rmtree(os.path.join(kept.node.mnt, "step1000"))
    kept.node.wait_remote()
    restore(kept, "step1000/model.pt", at=str(number))
    restore(kept, "step1000/deep", at=then)
    assert there(kept) == kept.before


def test_what_cannot_be_restored(kept, directory):
    assert "--at is missing" in kept.node.verb("restore", os.path.join(kept.node.mnt, "latest.pt"), code=2).stderr
    assert "step9: " in restore(kept, "step9", code=1).stderr
    assert "there is no snapshot 'after'" in restore(kept, "latest.pt", at="after", code=1).stderr
    assert "not on a CairnFS mount" in kept.node.verb("restore", directory, "--at", "before", code=2).stderr
    assert there(kept) == kept.before
    assert not [name for name in os.listdir(kept.node.mnt) if name.startswith(".")]


def run_to(kept, number):
    """A restore of many files gets the signal once the first is there. Its exit code, what it said, and what is there."""
    top = os.path.join(kept.node.mnt, "many")
    command = [kept.node.binary, "restore", *kept.remote.flags(), top, "--at", "many"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=kept.node.env, text=True) as process:
        rig.poll(lambda: process.poll() is not None or (os.path.isdir(top) and os.listdir(top)), 20, "the first file", 0.001)
        process.send_signal(number)
        said = process.stderr.read()
    return process.returncode, said, {name: rig.read_file(os.path.join(top, name)) for name in os.listdir(top)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_one_that_ends_early(kept, number):
    """Each file is whole or not there, and nothing else is: a file has no name until it is whole. The next restore ends it."""
    kept.node.umount()
    kept.node.mount(history="off")  # bytes are copied
    top, files = os.path.join(kept.node.mnt, "many"), {f"{seed}.pt": rig.noise(seed, 400_000) for seed in range(120)}
    for _ in range(10):  # a machine may be too slow to be early
        os.makedirs(top, exist_ok=True)
        rig.write_files(top, files)
        kept.node.cairn("snapshot", "create", kept.node.mnt, "many")
        shutil.rmtree(top)
        code, said, there = run_to(kept, number)
        if code != 0:
            break
    assert there == {name: files.get(name) for name in there}
    if number == signal.SIGINT:
        assert (code, said) == (130, "cairn restore: interrupted; incomplete files were removed\n")
    assert code in (130, -signal.SIGKILL) and len(there) < len(files)
    kept.node.verb("restore", *kept.remote.flags(), "--replace", top, "--at", "many")
    assert {name: rig.read_file(os.path.join(top, name)) for name in files} == files


def test_of_another_user(kept, directory):
    """One line, and nothing is changed, also where the control socket lets that user in."""
    rig.need_root()
    binary = shutil.copy2(kept.node.binary, directory)
    os.unlink(os.path.join(kept.node.mnt, "latest.pt"))
    del kept.tree["latest.pt"]
    commands = (["restore", os.path.join(kept.node.mnt, "latest.pt"), "--at", "before"], ["snapshot", "delete", kept.node.mnt, "before"],
                ["snapshot", "rename", kept.node.mnt, "before", "after"])
    for path in directory, kept.node.root:
        os.chmod(path, 0o755)
    for is_open in False, True:
        if is_open:
            os.chmod(kept.node.store, 0o755)
            os.chmod(os.path.join(kept.node.store, "control"), 0o666)
        for command in commands:
            done = subprocess.run([binary, *command], user=OTHER, group=OTHER, extra_groups=[], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and not done.stdout, done
            assert ("only root" if is_open else "run as root or as the user who mounted it") in done.stderr, done
    assert there(kept) == kept.tree
    assert "before" in kept.node.verb("snapshot", "list", *kept.remote.flags(), kept.node.mnt).stdout


def difference(kept, path="/", *args):
    told = json.loads(kept.node.verb("diff", *kept.remote.flags(), "--json", *args, kept.remote.spec(path)).stdout)
    assert told["complete"] and [told[what] for what in ("made", "changed", "removed")] == [
        sum(one["what"] == what for one in told["files"]) for what in ("made", "changed", "removed")]
    return {one["path"].strip("/"): one["what"] for one in told["files"]}


def test_what_differs_between_two_states(kept):
    """Of trees and files, by content, type, mode and target; not what is the same."""
    assert difference(kept, "/", "--at", "before") == {}
    os.truncate(os.path.join(kept.node.mnt, "latest.pt"), 10)
    os.unlink(os.path.join(kept.node.mnt, "latest"))
    os.symlink("step2000", os.path.join(kept.node.mnt, "latest"))
    shutil.rmtree(os.path.join(kept.node.mnt, "step1000", "deep"))
    kept.put("step2000/model.pt", 5)
    kept.put("step1000/deep", 6, 100)  # a file where a directory was
    kept.node.wait_remote()
    expected = {"latest.pt": "changed", "latest": "changed", "step1000/deep/optimizer.pt": "removed", "step1000/deep/link": "removed",
                "step1000/deep": "made", "step2000/model.pt": "made"}
    assert difference(kept, "/", "--at", "before") == expected
    assert difference(kept, "step1000", "--at", "before") == {k: v for k, v in expected.items() if k.startswith("step1000")}
    assert difference(kept, "latest.pt", "--at", "before") == {"latest.pt": "changed"}
    kept.node.verb("snapshot", "create", kept.node.mnt, "after")
    os.chmod(os.path.join(kept.node.mnt, "step1000", "model.pt"), 0o600)
    kept.node.wait_remote()
    assert difference(kept, "/", "--at", "after") == {"step1000/model.pt": "changed"}
    assert difference(kept, "/", "--at", "before", "--to", "after") == expected
    undone = {"made": "removed", "removed": "made", "changed": "changed"}
    assert difference(kept, "/", "--at", "after", "--to", "before") == {k: undone[v] for k, v in expected.items()}
    lines = kept.node.verb("diff", *kept.remote.flags(), "--at", "before", "--to", "after", kept.remote.spec("/")).stdout.splitlines()
    assert lines[-1] == "2 made, 2 changed, 2 removed" and len(lines) == 7
    assert "--at is missing" in kept.node.verb("diff", kept.remote.spec("/"), code=2).stderr
    assert "there is no snapshot 'x'" in kept.node.verb("diff", *kept.remote.flags(), "--at", "x", kept.remote.spec("/"), code=1).stderr


def ranges(kept, *args):
    told = json.loads(kept.node.verb("diff", *kept.remote.flags(), "--json", "--ranges", *args).stdout)
    found = {one["path"].strip("/"): [(r["offset"], r["offset"] + r["bytes"]) for r in one.get("ranges", [])] for one in told["files"]}
    return found, told["rewritten"]


def test_which_bytes_differ(kept):
    """By the names of chunks: a change in the middle is told as a range around it. The same bytes written again are none."""
    path = os.path.join(kept.node.mnt, "big")
    content = random.Random(77).randbytes(24 << 20)
    rig.write_file(path, content)
    kept.node.verb("snapshot", "create", kept.node.mnt, "big")
    spec = kept.remote.spec("/")
    rig.write_file(path, content)
    kept.node.wait_remote()
    assert ranges(kept, "--at", "big", spec) == ({}, 1)
    assert "1 written again with the same content" in kept.node.verb("diff", *kept.remote.flags(), "--at", "big", spec).stdout
    with open(path, "r+b") as file:
        file.seek(12 << 20)
        file.write(b"changed")
        file.seek(0, os.SEEK_END)
        file.write(b"more")
    rig.write_file(os.path.join(kept.node.mnt, "twin"), content)
    kept.node.wait_remote()
    told, _ = ranges(kept, "--at", "big", spec)
    assert set(told) == {"big", "twin"} and told["twin"] == []
    (start, end), last = told["big"][0], told["big"][-1]
    assert start <= 12 << 20 and (12 << 20) + 7 <= end <= start + (2 << 20)
    assert last[1] == (24 << 20) + 4 and last[0] >= 22 << 20 and len(told["big"]) == 2
    text = kept.node.verb("diff", *kept.remote.flags(), "--at", "big", "--ranges", kept.remote.spec("big")).stdout
    assert f"bytes {start} to {end}" in text
    assert ranges(kept, "--at", "big", kept.remote.spec("big"), kept.remote.spec("twin"))[0] == {}
    assert ranges(kept, kept.remote.spec("twin"), kept.remote.spec("big"))[0] == {"twin": told["big"]}
    assert ranges(kept, kept.remote.spec("step1000/model.pt"), kept.remote.spec("step1000/deep/optimizer.pt"))[0] == {
        "step1000/model.pt": [(0, max(len(kept.tree["step1000/model.pt"]), 900_000))]}


def test_paths_of_two_sources_are_compared(kept, on_remote):
    """A store that is not mounted with itself; and not with a remote that names its chunks by another key."""
    kept.node.umount()
    assert ranges(kept, f"{kept.node.store}:step1000/model.pt", f"{kept.node.store}:latest.pt")[0]
    assert ranges(kept, f"{kept.node.store}:step1000", kept.remote.spec("step1000"))[0] == {}
    other = on_remote(**SMALL)  # of another remote
    other.mount()
    rig.write_file(os.path.join(other.mnt, "a"), b"a")
    other.umount()
    said = kept.node.verb("diff", *kept.remote.flags(), f"{other.store}:a", kept.remote.spec("latest.pt"), code=1).stderr
    assert "have no history in common" in said
