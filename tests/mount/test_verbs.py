# SPDX-License-Identifier: Apache-2.0
"""The verbs as an operator meets them: what every wrong argument gets, and what info, du, stats, metrics and log tell."""
import concurrent.futures
import errno
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import remote as remotes
import rig
from test_remote_cli import Unreachable

pytestmark = pytest.mark.needs_mount

USAGE = 2
# Arguments, and a word of the line that says what is wrong. {mnt} is a mount, {store} its store, {plain} a directory that is neither,
# {file} a file on the mount, {loose} one that is not on it. All end with the usage code of the verb.
WRONG = {
    "mount": [("", "STORE"), ("{plain}/s", "MOUNTPOINT"), ("a b c", "unexpected argument 'c'"), ("{plain}/s {plain} --bogus", "--bogus"),
              ("{plain}/s {plain} -o stge=1G", "stge"), ("{plain}/s {plain} --stage", "--stage requires an argument"),
              ("{plain}/s {plain} --ro=1", "--ro takes no argument"), ("{plain}/s {plain} --stage 1X", "1X"),
              ("{plain}/s {plain} -o log_level=loud", "loud"), ("{plain}/s {plain} -o metrics=:9464", "127.0.0.1:9464"),
              ("{plain}/s {plain} -o metrics=localhost", "ADDRESS"), ("{plain}/s {plain} -o metrics=127.0.0.1:0", "metrics"),
              ("{plain}/s {plain} -o metrics=127.0.0.1:99999", "metrics"), ("{plain}/s {plain} -o metrics=[::1:80", "metrics"),
              ("{plain}/s {plain} --remote ftp://x", "s3://")],
    "umount": [("", "MOUNTPOINT"), ("{mnt} {mnt}", "unexpected argument"), ("{mnt} --drain tape", "tape"), ("{mnt} -t soon", "soon"),
               ("{mnt} -t", "-t requires an argument"), ("{mnt} --bogus", "--bogus"), ("{plain}", "not a CairnFS mountpoint")],
    "status": [("{plain}", "neither"), ("{mnt} {mnt}", "unexpected argument"), ("--bogus", "--bogus"), ("-xj", "unknown option -x"),
               ("--json=yes", "--json takes no argument"), ("{loose}", "neither"), ("nowhere", "neither")],
    "info": [("", "PATH"), ("{mnt} {mnt}", "unexpected argument"), ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere"), ("{mnt} -x", "-x"),
             ("{loose}/below", "Not a directory")],
    "du": [("", "PATH"), ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere"), ("--bogus {mnt}", "--bogus"),
           ("--json", "PATH")],
    "stats": [("", "MOUNTPOINT"), ("{plain}", "not a CairnFS mountpoint"), ("{file}", "not a CairnFS mountpoint"), ("{mnt} -i soon", "soon"),
              ("{mnt} --interval 1ms", "100 ms"), ("{mnt} -n 0", "a number from 1 on"), ("{mnt} -n x", "'x'"), ("{mnt} -n", "-n"),
              ("{mnt} {mnt}", "unexpected argument"), ("{mnt} --bogus", "--bogus")],
    "metrics": [("", "MOUNTPOINT"), ("{plain}", "not a CairnFS mountpoint"), ("{mnt} {mnt}", "unexpected argument"), ("{mnt} --json", "--json"),
                ("{store}", "not a CairnFS mountpoint")],
    "log": [("{plain}", "neither"), ("{mnt} {mnt}", "unexpected argument"), ("{mnt} --level loud", "loud"), ("{mnt} -n many", "many"),
            ("{mnt} --bogus", "--bogus"), ("{mnt} -l", "-l requires an argument")],
    "wait": [("", "PATH"), ("{mnt} --level moon", "moon"), ("{mnt} --timeout", "--timeout requires"), ("{mnt} -t x", "'x'"),
             ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere")],
    "warmup": [("", "PATH"), ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere"), ("{mnt} -t x", "'x'"), ("{mnt} --all", "--all")],
    "evict": [("", "PATH"), ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere"), ("{mnt} -t x", "'x'"), ("{mnt} --all", "--all")],
    "scrub": [("", "MOUNTPOINT"), ("{mnt} {mnt}", "unexpected argument"), ("{plain}", "not a CairnFS mountpoint"), ("--rate fast {mnt}", "fast"),
              ("--rate 0 {mnt}", "bytes per second"), ("{mnt} --rate", "--rate"), ("{mnt} --bogus", "--bogus")],
    "gc": [("", "MOUNTPOINT"), ("{mnt} {mnt}", "unexpected argument"), ("{plain}", "not a CairnFS mountpoint"), ("{mnt} --force", "--force")],
    "upgrade": [("", "MOUNTPOINT"), ("{mnt} {mnt}", "unexpected argument"), ("{plain}", "not a CairnFS mountpoint"), ("{mnt} -t soon", "soon"), ("{mnt} -b", "-b requires an argument"),
                ("{mnt} --force", "--force")],
    "ls": [("", "SOURCE:PATH"), ("{loose}", "not a store"), ("--bogus dir:{plain}:/", "--bogus"), ("-x dir:{plain}:/", "-x"),
           ("ftp://host/path:/", "s3://")],
    "cp": [("", "LOCAL"), ("dir:{plain}:/", "LOCAL"), ("{loose} {plain}", "not a store"), ("--bogus dir:{plain}:/ x", "--bogus")],
    "fsck": [("", "STORE"), ("{store} {store}", "unexpected argument"), ("{plain}", "not a store"), ("-x {store}", "-x"), ("nowhere", "not a store")],
    "adopt": [("", "STORE"), ("{plain}", "--new-id"), ("--new-id", "missing argument STORE"), ("--new-id {plain}", "not a store"), ("--new-id -x {plain}", "-x"),
              ("--new-id {plain} {plain}", "unexpected argument")],
    "version": [("now", "now")],
    "completion": [("", "bash|zsh|fish"), ("tcsh", "bash|zsh|fish"), ("bash zsh", "bash|zsh|fish"), ("--bogus", "unknown option --bogus")],
    "help": [("nothing", "nothing"), ("mount umount", "umount"), ("--bogus", "--bogus")],
}


def usage_code(verb):
    return {"mount": 1, "fsck": 16}.get(verb, USAGE)


def verbs_of(binary):
    done = subprocess.run([binary, "help"], capture_output=True, text=True, timeout=300)
    return re.findall(r"^  cairn (\w+) ", done.stdout, re.M)


def test_every_wrong_argument(cairn, directory):
    """One line that names the verb and what is wrong, and the convention's exit code; nothing else happens."""
    cairn.mount()
    names = {"mnt": cairn.mnt, "store": cairn.store, "plain": directory + "/plain", "file": cairn.mnt + "/file", "loose": directory + "/loose"}
    os.mkdir(names["plain"])
    rig.write_file(names["file"], b"x")
    rig.write_file(names["loose"], b"x")
    assert sorted(WRONG) == sorted(verbs_of(cairn.binary)), "each verb has its wrong arguments here"
    problems = []
    for verb, cases in WRONG.items():
        for text, word in cases:
            done = cairn.cairn(verb, *text.format(**names).split(), timeout=300)
            lines = done.stderr.splitlines()
            good = len(lines) == 1 and lines[0].startswith(f"cairn {verb}: ") and word.lower() in lines[0].lower()
            if done.returncode != usage_code(verb) or done.stdout or not good:
                problems.append((verb, text, word, done.returncode, done.stdout[:100], done.stderr))
    assert not problems, "\n".join(map(str, problems))
    assert os.listdir(names["plain"]) == [] and cairn.answers()


def test_each_verb_explains_itself(binary):
    """`cairn help VERB` and `cairn VERB --help` say the same, with the exit statuses."""
    for verb in verbs_of(binary):
        shown = [subprocess.run([binary, *args], capture_output=True, text=True, timeout=300) for args in (("help", verb), (verb, "--help"))]
        assert shown[0].stdout == shown[1].stdout and "\nExit status:\n  0 " in shown[0].stdout, verb
        assert shown[0].returncode == shown[1].returncode == 0 and not shown[0].stderr


def shown_json(cairn, *args, code=0):
    done = cairn.cairn(*args, "--json")
    assert done.returncode == code, done
    return json.loads(done.stdout)


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
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remotes.DirRemote(directory + "/remotes"))
    request.addfinalizer(cairn.close)
    cairn.mount()
    size = 40 * 4 * rig.KIB
    rig.write_file(cairn.mnt + "/large", rig.seeded_bytes(rng.random(), 4 * rig.MIB))
    os.mkdir(cairn.mnt + "/small")
    cairn.wait(level="remote")

    def tiers(mount=cairn):
        info = shown_json(mount, "info", mount.mnt + "/small")
        assert info["stored_bytes"] == size == info["used_bytes"] and info["chunks"] == 0
        return [info[name + "_bytes"] for name in ("nvme", "freed_nvme", "remote", "freed_remote")]

    with Unreachable(cairn.remote):
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
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remote)
    request.addfinalizer(cairn.close)
    cairn.mount()
    path = cairn.mnt + "/file"
    rig.write_file(path, rig.seeded_bytes(rng.random(), 4 * rig.MIB))
    cairn.wait(level="remote")
    info = shown_json(cairn, "info", path)
    assert info["level"] == "remote" and info["nvme_bytes"] == info["remote_bytes"] == info["freed_remote_bytes"] >= 4 * rig.MIB
    assert cairn.cairn("evict", path).returncode == 0
    info = shown_json(cairn, "info", path)
    assert info["nvme_bytes"] == 0 == info["freed_nvme_bytes"] and info["remote_bytes"] >= 4 * rig.MIB


def test_a_large_tree_is_looked_at_in_portions(cairn, full):
    """The count is right, the mount goes on answering quickly meanwhile, and an interrupt ends it."""
    cairn.mount()
    number = 50000 if full else 6000
    for i in range(number):
        if i % 3000 == 0:
            os.mkdir(f"{cairn.mnt}/d{i // 3000}")
        rig.write_file(f"{cairn.mnt}/d{i // 3000}/{i}", b"%d" % i)
    (row,) = du(cairn, cairn.mnt)
    assert row["files"] == number and row["logical_bytes"] == sum(len(str(i)) for i in range(number))
    command = [cairn.binary, "du", *[cairn.mnt] * 400]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as walk:
        try:
            walk.stdout.readline(), walk.stdout.readline()
            slowest = 0
            for i in range(50):
                began = time.monotonic()
                rig.write_file(f"{cairn.mnt}/beside", b"x")
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


def test_bad_questions(cairn):
    """What no verb asks gets an error, and the next question an answer."""
    cairn.mount()
    for todo in ('["x1:0"]', '["d1"]', '[1]', '["f1:99999999999999999999999"]', '["d1:0","f"]', '["f-1:0"]', '[null]', '["%s"]' % ("d" * 9000)):
        assert ask(cairn, '{"verb":"survey","todo":%s}' % todo).get("errno") == errno.EINVAL, todo
    one, two = "1" * 32, "2" * 32
    for users in ("", '"at":0,"chunks":["12"]', '"at":0,"chunks":[1]', f'"at":-1,"chunks":["{one}"]', f'"at":0,"chunks":["{two}","{one}"]',
                  f'"at":0,"chunks":["{one}","{one}"]', f'"at":0,"chunks":["{"x" * 32}"]', '"at":0,"chunks":[%s]' % ",".join(f'"{i:032x}"' for i in range(257))):
        assert ask(cairn, '{"verb":"users",%s}' % users if users else '{"verb":"users"}').get("errno") == errno.EINVAL, users
    assert ask(cairn, f'{{"verb":"users","at":0,"chunks":["{one}"]}}') == {"users": []}
    for ino in ("-1", '"x"', "1.5", "99999999", "null"):
        assert ask(cairn, '{"verb":"look","ino":%s}' % ino)["errno"] in (errno.EINVAL, errno.ENOENT), ino
    assert ask(cairn, '{"verb":"survey"}')["done"] == 0
    todo = ["f12345:0", "d12345:0", "f1:5"]
    while todo:  # one answer does at least one of them, and as many as fit in 100 ms
        answer = ask(cairn, json.dumps({"verb": "survey", "todo": todo}))
        assert 1 <= answer["done"] <= len(todo) and "rest" not in answer, "what is gone is done"
        todo = todo[answer["done"] :]
    assert ask(cairn, '{"verb":"look","ino":1}')["type"] == "directory"


# ---------------------------------------------------------------- stats


@pytest.mark.alone
def test_stats_of_a_save(cairn, rng):
    """Every line an interval; what was written and read appears in it."""
    cairn.mount()
    data = rig.seeded_bytes(rng.random(), 32 * rig.MIB)
    command = [cairn.binary, "stats", cairn.mnt, "--json", "--interval", "200ms", "--count", "15"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stats:
        lines = [json.loads(stats.stdout.readline())]
        rig.write_file(cairn.mnt + "/file", data)
        lines += [json.loads(stats.stdout.readline()) for _ in range(2)]
        cairn.wait()
        fd = os.open(cairn.mnt + "/file", os.O_RDWR)
        assert os.pread(fd, len(data), 0) == data
        os.close(fd)
        lines += [json.loads(line) for line in stats.stdout]
    assert stats.returncode == 0 and len(lines) == 15
    gaps = [after["time_s"] - before["time_s"] for before, after in zip([None, *lines], lines) if before]

    def total(name):
        return sum(line[name] * gap for line, gap in zip(lines[1:], gaps))

    for name in ("written_bytes_per_s", "read_bytes_per_s", "nvme_written_bytes_per_s"):
        assert total(name) == pytest.approx(32 * rig.MIB, rel=0.25), name
    assert max(line["stage_used_percent"] for line in lines) > 1


@pytest.mark.alone
def test_stats_of_a_remote_and_of_who_waits(request, mount_factory, directory, rng):
    """Waiting writers, the lag of both horizons, what was uploaded, found again and fetched: each appears with its size."""
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remotes.DirRemote(directory + "/remotes"))
    request.addfinalizer(cairn.close)
    cairn.mount(stage="64M", writeback_limit="1M", upload_limit="32M")
    data, again = rig.seeded_bytes(rng.random(), 80 * rig.MIB), rng.randbytes(20 * rig.MIB)
    command = [cairn.binary, "stats", cairn.mnt, "--json", "--interval", "200ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stats, concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert stats.stdout.readline()  # what happens from now on is a difference to something
        lines = pool.submit(lambda: [json.loads(line) for line in stats.stdout])
        try:
            writing = pool.submit(rig.write_file, cairn.mnt + "/one", data)
            rig.poll(lambda: cairn.status()["stage"]["waiting_writers"] > 0, 20, "a writer that waits")
            rig.time.sleep(1)  # some lines of it
            while not writing.done():  # a wait lifts the limit
                cairn.cairn("wait", cairn.mnt, "--timeout", "1s")
            cairn.wait_remote()
            assert cairn.cairn("evict", cairn.mnt + "/one").returncode == 0
            assert rig.read_file(cairn.mnt + "/one") == data
            rig.write_file(cairn.mnt + "/two", again)
            rig.time.sleep(2)  # of the 20 s that it takes while nothing waits
            cairn.wait_remote()
            rig.write_file(cairn.mnt + "/three", again)
            cairn.wait_remote()
            rig.time.sleep(0.5)
        finally:
            stats.send_signal(signal.SIGINT)
        lines = lines.result()
    total = {name: sum(line[name] * (line["time_s"] - before["time_s"]) for before, line in zip(lines, lines[1:]))
             for name in ("uploaded_bytes_per_s", "fetched_bytes_per_s", "dedup_bytes_per_s")}
    assert total["uploaded_bytes_per_s"] == pytest.approx(len(data) + len(again), rel=0.25)
    assert total["fetched_bytes_per_s"] == pytest.approx(len(data), rel=0.25)
    assert total["dedup_bytes_per_s"] == pytest.approx(len(again), rel=0.25)
    for name in ("waiting_writers", "waits"):
        assert max(line[name] for line in lines) >= 1, name
    for name in ("nvme_seconds_behind", "remote_seconds_behind"):
        assert max(line[name] for line in lines) > 1 and lines[-1][name] < 1, name


def test_stats_for_people_and_its_end(cairn):
    cairn.mount()
    done = cairn.cairn("stats", cairn.mnt, "-n", "2", "-i", "100ms")
    rows = done.stdout.splitlines()
    assert done.returncode == 0 and len(rows) == 3 and "write/s" in rows[0] and "remote lag" in rows[0]
    assert "-" in rows[1].split(), "without a remote there is nothing to tell of it"
    with subprocess.Popen([cairn.binary, "stats", cairn.mnt], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stats:
        stats.stdout.readline()
        cairn.kill9()
        out, err = stats.communicate(timeout=300)
    assert stats.returncode == 1 and len(err.splitlines()) == 1, err
    cairn.mount()
    with subprocess.Popen([cairn.binary, "stats", cairn.mnt], stdout=subprocess.PIPE, text=True) as stats:
        stats.stdout.readline()
        stats.send_signal(signal.SIGINT)
        stats.communicate(timeout=300)
    assert stats.returncode == 130


# ---------------------------------------------------------------- metrics


def parse_metrics(text):
    """The text format of Prometheus, strictly: {name with labels: value}."""
    values, types, helped = {}, {}, set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if match := re.fullmatch(r"# HELP ([a-z_]+) (\S.*)", line):
            assert match[1] not in helped, "a second HELP"
            helped.add(match[1])
        elif match := re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge)", line):
            assert match[1] in helped and match[1] not in types, line
            types[match[1]] = match[2]
        else:
            match = re.fullmatch(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)', line)
            assert match and match[1] in types, line
            assert match[1] == list(types)[-1], "families are not mixed"
            values[match[1] + (match[2] or "")] = float(match[3])
    for name, kind in types.items():
        assert name.startswith("cairnfs_") and (kind == "counter") == name.endswith("_total"), name
        assert not re.search(r"_(ms|s|kib|mib|percent)(_total)?$", name), name
    return values


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_metrics_text(cairn, rng):
    """Well-formed, with base units, the same numbers as status; counters only grow."""
    cairn.mount()
    rig.write_file(cairn.mnt + "/file", rig.seeded_bytes(rng.random(), 5 * rig.MIB))
    cairn.wait()
    first = parse_metrics(cairn.cairn("metrics", cairn.mnt).stdout)
    status = cairn.status()
    assert first["cairnfs_nvme_used_bytes"] == status["nvme"]["used_bytes"]
    assert first["cairnfs_written_bytes_total"] >= 5 * rig.MIB and first["cairnfs_files"] == 1
    assert not any("remote" in name for name in first), "there is none"
    rig.write_file(cairn.mnt + "/more", b"x" * 100000)
    second = parse_metrics(cairn.cairn("metrics", cairn.mnt).stdout)
    assert second.keys() == first.keys()
    assert all(second[name] >= value for name, value in first.items() if name.endswith("_total"))
    assert second["cairnfs_written_bytes_total"] == first["cairnfs_written_bytes_total"] + 100000


def get(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    try:
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def test_metrics_over_http(cairn):
    """/metrics and /healthz at the address that was given, and nothing else; the mount that fails to listen says so."""
    port = free_port()
    cairn.mount(metrics=f"127.0.0.1:{port}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    status, kind, text = get(port, "/metrics")
    assert status == 200 and kind == "text/plain; version=0.0.4; charset=utf-8"
    assert parse_metrics(text).keys() == parse_metrics(cairn.cairn("metrics", cairn.mnt).stdout).keys()
    assert get(port, "/healthz")[::2] == (200, "ok\n") and get(port, "/healthz", "HEAD")[::2] == (200, "")
    assert get(port, "/")[0] == 404 and get(port, "/metrics/../../etc/passwd")[0] == 404
    assert get(port, "/metrics", "POST")[0] == 405 and get(port, "/metrics", "DELETE")[0] == 405
    os.mkdir(cairn.root + "/mnt2")
    done = cairn.cairn("mount", cairn.root + "/other", cairn.root + "/mnt2", "-o", cairn.option_string({"metrics": f"127.0.0.1:{port}"}))
    assert done.returncode == 2 and "in use" in done.stderr and len(done.stderr.splitlines()) == 1, done
    assert not os.path.exists(cairn.root + "/other")


def test_healthz_of_a_full_store(cairn, rng):
    """503 with the reason while programs get ENOSPC, 200 again when there is room; status names the file and the cause."""
    port = free_port()
    cairn.mount(metrics=f"127.0.0.1:{port}", nvme="128M", stage="64M")
    with pytest.raises(OSError) as caught:
        for i in range(40):
            rig.write_file(f"{cairn.mnt}/f{i}", rig.seeded_bytes(rng.random(), 8 * rig.MIB))
    assert caught.value.errno == errno.ENOSPC
    code, _, text = get(port, "/healthz")
    assert code == 503 and "full" in text and text.count("\n") == 1
    last = cairn.status()["errors"][-1]
    assert last["errno"] == errno.ENOSPC and re.fullmatch(r"/f\d+", last["path"]) and "nvme=SIZE" in last["cause"]
    assert last["call"] in ("write", "create", "close")
    for name in os.listdir(cairn.mnt):
        os.unlink(f"{cairn.mnt}/{name}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 30, "health after rm")


def test_healthz_while_writing_to_nvme_fails(request, cairn, rng):
    """503 with the reason while no pack can be made, 200 again when one can; nothing is lost."""
    port = free_port()
    cairn.mount(metrics=f"127.0.0.1:{port}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    packs, data = cairn.store + "/packs", rng.randbytes(5 * rig.MIB)
    request.addfinalizer(lambda: rig.file_systems_unmount(packs))
    rig.run("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", packs)
    rig.write_file(cairn.mnt + "/file", data)
    rig.poll(lambda: get(port, "/healthz")[0] == 503, 30, "the trouble")
    assert re.fullmatch("writes to NVMe are failing; retrying: .* pack packs/.*\n", get(port, "/healthz")[2])
    rig.file_systems_unmount(packs)
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 30, "the end of the trouble")
    cairn.wait()
    cairn.remount()
    assert rig.read_file(cairn.mnt + "/file") == data


def test_healthz_of_a_fenced_writer(request, mount_factory, directory):
    """503 that names the store that took over."""
    remote = remotes.DirRemote(directory + "/remotes")
    port = free_port()
    mounts = []
    for name in ("one", "two"):
        os.mkdir(f"{directory}/{name}")
        mounts.append(mount_factory(f"{directory}/{name}", kind=remotes.RemoteMount, remote=remote))
        request.addfinalizer(mounts[-1].close)
    mounts[0].mount(metrics=f"127.0.0.1:{port}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    assert parse_metrics(get(port, "/metrics")[2])['cairnfs_remote_state{state="fenced"}'] == 0
    mounts[1].mount(takeover=True)
    rig.write_file(mounts[0].mnt + "/file", b"x")
    rig.poll(lambda: get(port, "/healthz")[0] == 503, 60, "the fence")
    assert "another writer" in get(port, "/healthz")[2]
    assert parse_metrics(get(port, "/metrics")[2])['cairnfs_remote_state{state="fenced"}'] == 1


def trouble(port):
    """What /healthz says of a mount that does not serve; None: it does, or nothing listens."""
    try:
        code, _, text = get(port, "/healthz")
    except OSError:
        return None
    return text if code == 503 else None


def test_healthz_of_start_and_end(request, mount_factory, directory):
    """503 while the mount waits for a dead writer's lease, and while it carries the last to NVMe; /metrics has nothing before the start."""
    remote, port, mounts = remotes.DirRemote(directory + "/remotes"), free_port(), []
    for name in ("one", "two"):
        os.mkdir(f"{directory}/{name}")
        mounts.append(mount_factory(f"{directory}/{name}", kind=remotes.RemoteMount, remote=remote, lease="4s"))
        request.addfinalizer(mounts[-1].close)
    mounts[0].mount().kill9()
    mounts[1].start(metrics=f"127.0.0.1:{port}", writeback_limit="1M")
    rig.poll(lambda: trouble(port) == "the mount is starting\n", 20, "the start")
    assert get(port, "/metrics")[0] == 503 or trouble(port) != "the mount is starting\n"  # a slow machine: the start is over
    rig.poll(mounts[1].usable, 60, "the mount")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    rig.write_file(mounts[1].mnt + "/file", rig.seeded_bytes(1, 40 * rig.MIB))
    mounts[1].proc.send_signal(signal.SIGTERM)
    rig.poll(lambda: trouble(port) == "the mount is ending\n", 20, "the end")


def is_socket(path):
    try:
        return os.readlink(path).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False


def open_sockets(pid):
    return sum(is_socket(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))


def private_bytes(pid):
    """Without the stage, which is made ready meanwhile."""
    return int(re.search(r"^RssAnon:\s+(\d+)", rig.read_file(f"/proc/{pid}/status").decode(), re.M)[1]) * rig.KIB


def hostile_clients(port, seed):
    """Connections that say nothing, half of something, garbage, or too much."""
    beginnings = [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"\x00\xff" * 500, b"GET /" + b"a" * 100000,
                  b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + b"b" * 50000,
                  b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 20000]
    for number in range(100):
        sock = socket.socket()
        sock.settimeout(0.2)
        try:
            sock.connect(("127.0.0.1", port))
            sock.sendall(beginnings[(number + seed) % len(beginnings)])
        except OSError:
            pass
        yield sock


@pytest.mark.timeout(180)
@pytest.mark.alone
def test_hostile_http_clients(cairn, seed):
    """They hold few connections and no memory for long; a proper request is answered soon after, the mount all the time."""
    port = free_port()
    cairn.mount(metrics=f"127.0.0.1:{port}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    before, memory = open_sockets(cairn.proc.pid), private_bytes(cairn.proc.pid)
    clients = list(hostile_clients(port, seed))
    assert open_sockets(cairn.proc.pid) - before <= 17
    assert private_bytes(cairn.proc.pid) - memory < 8 * rig.MIB
    began = time.monotonic()
    while time.monotonic() - began < 30:
        for sock in clients:  # bytes that drip in keep nothing open
            try:
                sock.send(b"z")
            except OSError:
                pass
        rig.write_file(cairn.mnt + "/file", b"x" * 100000)
        try:
            if get(port, "/healthz")[0] == 200:
                break
        except OSError:
            time.sleep(0.3)
    else:
        raise AssertionError("no answer beside clients that hang")
    assert time.monotonic() - began < 20
    for sock in clients:
        sock.close()
    rig.poll(lambda: open_sockets(cairn.proc.pid) <= before + 1, 30, "the end of all connections")

@pytest.mark.parametrize("drain", ["nvme", "remote"])
def test_umounts_at_once(cairn, directory, drain):
    """All of them wait for the one end, and say 0; one that comes after it finds no mount."""
    for number in range(2):
        cairn.mount(writeback_delay="10m", writeback_limit="64K", **({"remote": f"dir:{directory}/remote"} if drain == "remote" else {}))
        rig.write_file(cairn.mnt + "/file", rig.seeded_bytes(number, 4 * rig.MIB))
        verbs = [subprocess.Popen([cairn.binary, "umount", cairn.mnt, "--drain", drain], stderr=subprocess.PIPE, text=True) for _ in range(4)]
        said = [(verb.communicate(timeout=300)[1], verb.returncode) for verb in verbs]
        assert 0 in [code for _, code in said] and cairn.reap() == 0 and not rig.mounted_at(cairn.mnt)
        for text, code in said:
            assert code == 0 or (code == 2 and "is not a CairnFS mountpoint" in text) or (
                drain == "remote" and code == 1 and "the remote may lack some data" in text), said
