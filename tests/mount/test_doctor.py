# SPDX-License-Identifier: Apache-2.0
"""cairn doctor: one archive with what a report needs, of any mount, also of one that hangs, and no secret in it."""
import json
import os
import subprocess
import tarfile
import time

import pytest

import remote as remotes
import rig
import s3_client

pytestmark = pytest.mark.needs_mount

PARTS = {"README.txt", "machine.txt", "status.txt", "status.json", "log.txt", "metrics.txt", "stats.txt", "options.txt", "mountinfo.txt",
         "memory.txt", "pressure-io.txt", "space.txt", "daemon/status", "daemon/threads", "daemon/limits", "daemon/cgroup", "daemon/io"}
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYplanted0Ke"
TOKEN = "IQoJb3JpZ2luX2VjE" + "planted/Token+" * 20 + "=="
FILE_SECRET, PASSWORD, OTHER = "fromAFile8/+xyzplanted", "pass-word-planted", "Unheard0Of/40+bytes1that2look3like4AKey5"


def parts_of(path):
    """name -> text, below the one directory."""
    with tarfile.open(path, "r:gz") as archive:
        found = {member.name: archive.extractfile(member).read().decode() for member in archive}
    tops = {name.split("/")[0] for name in found}
    assert len(tops) == 1, tops
    return {name.partition("/")[2]: text for name, text in found.items()}


def doctor(mount, *words, env=None, timeout=300):
    output = os.path.join(mount.root, "report.tar.gz")
    if os.path.exists(output):
        os.unlink(output)
    command = [mount.binary, "doctor", "-o", output, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env or mount.env, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, output + "\n", ""), done
    assert os.stat(output).st_mode & 0o777 == 0o600
    return parts_of(output)


def doctor_of_one_that_hangs(mount):
    """The archive's parts; the names of those that are not whole, as --json and the messages have them."""
    output = os.path.join(mount.root, "hangs.tar.gz")
    command = [mount.binary, "doctor", "--json", "-o", output, mount.mnt]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=mount.env, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
    answer = json.loads(done.stdout)
    assert answer["archive"] == output
    assert done.stderr == "".join(f"cairn doctor: {part} is not whole: no end within 10 s\n" for part in answer["unanswered"])
    return parts_of(output), set(answer["unanswered"])


def test_the_parts(cairn):
    """What the commands print, and what the machine says."""
    cairn.mount(stage="64M", fsync="stage")
    rig.write_file(cairn.mnt + "/file", b"x" * 100_000)
    parts = doctor(cairn, cairn.mnt)
    assert set(parts) == PARTS
    assert json.loads(parts["status.json"])["pid"] == cairn.proc.pid
    assert cairn.mnt in parts["status.txt"] and "newest operation" in parts["status.txt"]
    assert "is mounted at" in parts["log.txt"] and "cairnfs_stage" in parts["metrics.txt"] and "write/s" in parts["stats.txt"]
    assert "fsync=stage" in parts["options.txt"] and "stage=67108864" in parts["options.txt"]
    assert os.uname().release in parts["machine.txt"] and cairn.cairn("version").stdout.strip() in parts["machine.txt"]
    assert cairn.mnt in parts["mountinfo.txt"] and " /proc " not in parts["mountinfo.txt"]
    assert cairn.store in parts["space.txt"] and "VmRSS" in parts["daemon/status"]
    assert set(doctor(cairn, cairn.mnt + "/file")) == PARTS


def test_nothing_is_written_over(cairn, mnt):
    taken = rig.write_file(cairn.root + "/taken", b"mine")
    assert "name another file" in cairn.verb("doctor", "-o", taken, mnt, code=1).stderr and rig.read_file(taken) == b"mine"
    done = subprocess.run([cairn.binary, "doctor", mnt], capture_output=True, text=True, cwd=cairn.root, timeout=300)
    assert done.returncode == 0 and set(parts_of(os.path.join(cairn.root, done.stdout.strip()))) == PARTS


def test_no_secret_is_in_it(on_remote, directory):
    """Planted: keys of the daemon's and of the caller's environment and files, tokens, URLs with passwords, in the log and in paths."""
    mount = on_remote(remotes.DirRemote(directory + "/remotes"))
    config = directory + "/credentials"
    rig.write_file(config, f"[default]\naws_access_key_id = AKIDexample\naws_secret_access_key = {FILE_SECRET}\n".encode())
    mount.env |= {"AWS_ACCESS_KEY_ID": s3_client.KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN,
                  "https_proxy": f"http://user:{PASSWORD}@proxy.example:3128", "MY_API_PASSWORD": "caller-planted-9"}
    mount.mount()
    lines = [f"secret {SECRET} and token {TOKEN}", f"GET https://user:{PASSWORD}2@host.example/bucket?X-Amz-Signature=planted55&x=1",
             f"from a file: {FILE_SECRET}", f"Authorization: planted66, {OTHER}", "the caller's caller-planted-9",
             f'{{"SecretAccessKey": "{SECRET}", "SessionToken":"short-planted-token"}}']
    with open(os.path.join(mount.store, "log"), "a") as log:
        log.writelines(f"2026-11-29 00:00:00.000 cairn info: {line}\n" for line in lines)
    os.mkdir(mount.mnt + "/" + SECRET.replace("/", "_"))
    caller = {**mount.env, "AWS_SHARED_CREDENTIALS_FILE": config}
    parts = doctor(mount, mount.mnt, env=caller)
    text = "\n".join(parts.values())
    for planted in (SECRET, TOKEN, TOKEN[17:60], FILE_SECRET, PASSWORD, OTHER, "planted55", "planted66", "caller-planted-9",
                    "short-planted-token"):
        assert planted not in text, f"{planted} is in the archive"
    assert parts["log.txt"].count("[removed]") >= 8
    assert "host.example/bucket" in parts["log.txt"] and "secret [removed] and token [removed]" in parts["log.txt"]
    assert f"remote=dir:{directory}" in parts["options.txt"] and "[removed]" not in parts["status.json"]
    mount.umount()


def test_of_a_daemon_that_hangs_or_is_dead(cairn, mnt):
    """The parts that it would answer say so, 10 s in all; the others are there."""
    with cairn.paused():
        begin = time.monotonic()
        parts, unanswered = doctor_of_one_that_hangs(cairn)
        assert 9 < time.monotonic() - begin < 20, "each command waits by itself"
    assert unanswered == {"status.txt", "status.json", "metrics.txt", "stats.txt"} and set(parts) == PARTS
    assert all(parts[name].endswith("[no end within 10 s]\n") for name in unanswered)
    assert "is mounted at" in parts["log.txt"] and mnt in parts["mountinfo.txt"] and "no daemon answers" in parts["options.txt"]
    assert "cairn-fuse" in parts["daemon/threads"] and "VmRSS" in parts["daemon/status"]
    cairn.umount()
    parts = doctor(cairn, cairn.store)
    assert "is mounted at" in parts["log.txt"] and cairn.store in parts["space.txt"] and parts["status.txt"]
