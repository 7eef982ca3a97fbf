# SPDX-License-Identifier: Apache-2.0
"""Earlier states of a remote: `cairn history`, --at of `cairn ls`, `cairn cp` and `cairn du`, -o at= of a mount."""
import datetime
import json
import os
import shutil
import subprocess
import time

import pytest

import remote as remotes
import rig
import successor
from remote import runs_of

pytestmark = pytest.mark.needs_mount

SMALL = {"reduce": "off", "writeback_delay": "50ms", "stage": "128M"}


def put(node, name, seed, size=200_000):
    path = os.path.join(node.mnt, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    rig.write_file(path, rig.seeded_bytes(seed, size))


def remove_step1000(node):
    shutil.rmtree(os.path.join(node.mnt, "step1000"))


def truncate(node):
    os.truncate(os.path.join(node.mnt, "step2000", "model.pt"), 1000)


def two_steps(node):
    put(node, "step2000/model.pt", 3)
    os.symlink("step2000", os.path.join(node.mnt, "latest"))


CHANGES = [
    lambda node: (put(node, "step1000/model.pt", 1), put(node, "step1000/deep/optimizer.pt", 2)),
    two_steps,
    lambda node: put(node, "step1000/model.pt", 4, 300_000),
    remove_step1000,
    truncate,
]


class Written:
    """A writer, and of each state the number of a head, and a copy of the tree then."""

    def __init__(self, node, directory):
        self.node, self.directory, self.states = node, directory, []

    def change(self, change):
        change(self.node)
        self.node.wait_remote()
        number = max(self.node.remote.heads())
        copy = os.path.join(self.directory, f"expected-{number}")
        subprocess.run(["cp", "-a", self.node.mnt, copy], check=True)
        self.states.append((number, copy))
        return self

    def verb(self, verb, *args, code=0):
        return self.node.verb(verb, *self.node.remote.flags(), *args, code=code)

    def history(self, *args):
        return json.loads(self.verb("history", "--json", self.node.remote.url, *args).stdout)["states"]

    def copied(self, *args):
        """What `cairn cp -r --at` gives, and what it says."""
        out = os.path.join(self.directory, f"out-{len(os.listdir(self.directory))}")
        os.mkdir(out)
        return out, self.verb("cp", "-r", *args, self.node.remote.spec("/"), out).stderr


def check_same(one, other):
    rig.run("diff", "-r", "--no-dereference", one, other)


@pytest.fixture
def written(mount, directory):
    mount.options.update(SMALL)
    made = Written(mount.mount(), directory)
    for change in CHANGES:
        made.change(change)
    return made


def text_of(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_each_state_is_what_it_was(written):
    """By the number of a head, and by any time from its own on, until the next one's."""
    states = written.history()
    assert [state["head"] for state in states] == sorted({state["head"] for state in states}, reverse=True)
    times = {state["head"]: state["published_s"] for state in states}
    first_of = {number: state["head"] for state in states for number in range(state["head"], state["last_head"] + 1)}
    assert len({first_of[number] for number, _ in written.states}) == len(CHANGES)
    for number, copy in written.states:
        for when in (str(number), text_of(times[first_of[number]] + 0.001)):
            out, said = written.copied("--at", when)
            check_same(copy, out)
            assert said == ""
        assert written.verb("ls", "--at", str(number), written.node.remote.spec("/")).stdout.split() == sorted(os.listdir(copy))
    assert written.node.log().count("cannot") == 0


def test_the_list(written):
    states = {state["last_head"]: state for state in written.history()}
    for number, copy in written.states:
        state = next(state for state in states.values() if state["head"] <= number <= state["last_head"])
        files = [os.path.join(top, name) for top, _, names in os.walk(copy) for name in names]
        files = [path for path in files if not os.path.islink(path)]
        assert (state["files"], state["bytes"]) == (len(files), sum(map(os.path.getsize, files)))
    lines = written.verb("history", written.node.remote.url).stdout.splitlines()
    assert lines[0].split()[:4] == ["HEAD", "TIME", "FILES", "SIZE"] and len(lines) == 1 + len(states)
    assert lines[1].endswith("  0 made, 1 changed, 0 removed, -194 KiB"), lines  # the newest state comes first: a file was truncated
    # What is printed as its time finds the same head, though that was published within the second.
    newest = written.history()[0]
    assert written.verb("ls", "--at", newest["time"], written.node.remote.spec("/")).stdout.split() == ["latest", "step2000"]
    assert [s["last_head"] for s in written.history("--limit", "1")] == [max(written.node.remote.heads())]
    assert "older heads" in written.verb("history", "-n", "1", written.node.remote.url).stderr


CHANGED = ("made", "changed", "removed")


def test_the_list_tells_what_changed(written):
    """Also without a path, since the state before; of the oldest state nothing is told."""
    by_path = {state["head"]: [state[key] for key in CHANGED] for state in written.history("/")}
    *later, oldest = written.history()
    assert [[state[key] for key in CHANGED] for state in later] == [by_path.get(state["head"], [0, 0, 0]) for state in later]
    assert sum(state["removed"] for state in later) == 2 and not set(CHANGED) & set(oldest)


def contents(written, head):
    out, _ = written.copied("--at", str(head))
    return {rig.read_file(os.path.join(top, name)) for top, _, names in os.walk(out) for name in names}


def test_the_list_tells_what_a_state_holds_alone(mount, directory):
    """Without a mount: how large the packs are that no other state needs. Some states may have one content, where an upload is slow."""
    size = 4 << 20
    made = Written(mount.mount(**SMALL), directory)
    for seed in range(3):
        made.change(lambda node, seed=seed: put(node, "latest.pt", seed, size))
    made.change(lambda node: put(node, "other.pt", 3, size))
    mount.umount(drain="remote")
    states = made.history()
    has = [contents(made, state["head"]) for state in states]
    for state, own, others in ((states[i], has[i], has[:i] + has[i + 1:]) for i in range(len(states))):
        alone = sum(map(len, own - set().union(*others)))
        assert alone <= state["only_bytes"] <= alone * 1.05, (state, alone)
    lines = made.verb("history", mount.remote.url).stdout.splitlines()[1:]
    assert ["4.0 MiB of it alone" in line for line in lines] == [state["only_bytes"] > 0 for state in states], lines
    assert any(state["only_bytes"] for state in states) and not all(state["only_bytes"] for state in states), states
    assert all("only_bytes" in state for state in made.history("-n", "2")[:-1]) and "only_bytes" not in made.history("-n", "2")[-1]


def test_a_head_without_news_is_no_line_of_its_own(written):
    written.node.umount(drain="remote")
    before = written.history()
    written.node.mount()  # whoever holds a prefix creates a head that says so
    assert max(written.node.remote.heads()) > before[0]["last_head"]
    after = written.history()
    assert [s["head"] for s in after] == [s["head"] for s in before]
    assert after[0]["last_head"] == max(written.node.remote.heads())


PATHS = {
    "step1000": [(0, 0, 2), (0, 1, 0), (2, 0, 0)],
    "step1000/model.pt": [(0, 0, 1), (0, 1, 0), (1, 0, 0)],
    "/step1000/deep/": [(0, 0, 1), (1, 0, 0)],
    "step2000": [(0, 1, 0), (1, 0, 0)],
    "/": [(0, 1, 0), (0, 0, 2), (0, 1, 0), (1, 0, 0), (2, 0, 0)],
}


@pytest.mark.parametrize("path", PATHS)
def test_the_states_of_a_path(written, path):
    """Only those in which something of it changed; each tells what was made, changed and removed."""
    states, last, sums = written.history(path), 0, []
    for number, tree in written.states:
        since = [state for state in states if last < state["head"] <= number]  # the newest first; two files may come with two heads
        last = number
        if not since:
            continue
        sums.append(tuple(sum(state[key] for state in since) for key in ("made", "changed", "removed")))
        copy = os.path.join(tree, path.strip("/"))
        files = [os.path.join(top, name) for top, _, names in os.walk(copy) for name in names] if os.path.isdir(copy) else [copy]
        there = [file for file in files if os.path.isfile(file) and not os.path.islink(file)]
        assert since[0]["exists"] == os.path.exists(copy)
        assert (since[0]["files"], since[0]["bytes"]) == (len(there), sum(map(os.path.getsize, there)))
    assert sums == PATHS[path][::-1]


def test_a_mount_stands_for_its_remote(written):
    """The mountpoint, or a path on it that is no longer there."""
    expected = written.history("step1000")
    gone = os.path.join(written.node.mnt, "step1000")
    assert json.loads(written.verb("history", "--json", gone).stdout)["states"] == expected
    assert json.loads(written.verb("history", "--json", written.node.mnt, "step1000").stdout)["states"] == expected
    assert json.loads(written.verb("history", "--json", written.node.remote.spec("step1000")).stdout)["states"] == expected
    assert "removed" in written.verb("history", gone).stdout
    assert "give one PATH" in written.verb("history", gone, "x", code=2).stderr
    assert "in none of the heads" in written.verb("history", written.node.remote.url, "step9", code=1).stderr
    assert "neither s3://" in written.verb("history", "/usr/nowhere", code=2).stderr


def test_what_a_state_takes(written):
    """`cairn du --at` adds up the files of then. Of the newest state it tells what `cairn du` does of the mount, also without --at."""
    node = written.node

    def du(*args):
        return json.loads(written.verb("du", "--json", *args).stdout)

    for number, copy in written.states:
        files = [os.path.join(top, name) for top, _, names in os.walk(copy) for name in names]
        size = sum(os.path.getsize(path) for path in files if not os.path.islink(path))
        (told,) = du("--at", str(number), node.remote.spec("/"))
        unique = 200_000 if number == written.states[-1][0] else size  # a truncated file needs its chunk whole
        assert (told["logical_bytes"], told["unique_bytes"]) == (size, unique)
        assert told["files"] == sum(not os.path.islink(path) for path in files)
        assert 0 < told["remote_bytes"] == told["stored_bytes"] and told["staged_bytes"] == 0
    os.link(os.path.join(node.mnt, "step2000", "model.pt"), os.path.join(node.mnt, "link"))
    for name in ("one", "two", "step2000/three"):
        put(node, name, 77, 300_000)
    node.wait_remote()
    (live,), (newest,), (older,) = du(node.mnt), du(node.remote.spec("/")), du("--at", str(written.states[-1][0]), node.remote.spec("/"))
    del live["history_bytes"]
    same = {key: value for key, value in newest.items() if key not in ("path", "encodings")}
    assert same == {key: live[key] for key in same} | {"stored_bytes": live["remote_bytes"]}
    assert newest["logical_bytes"] - older["logical_bytes"] == 900_000 and newest["unique_bytes"] - older["unique_bytes"] == 300_000
    both = du("--at", str(written.states[0][0]), node.remote.spec("step1000/model.pt"), node.remote.spec("step1000/deep"))
    assert [told["logical_bytes"] for told in both] == [200_000, 200_000]
    assert "no such file" in written.verb("du", "--at", str(written.states[0][0]), node.remote.spec("step2000"), code=1).stderr
    assert "--why is of files on a mount" in written.verb("du", "--why", "--at", "1", node.remote.spec("/"), code=2).stderr


@pytest.mark.parametrize("when, says", [
    ("yesterday", "there is no snapshot 'yesterday'"),
    ("2026-11-28T20:59:08", "no point in time"),  # of which zone?
    ("2026-02-30T20:59:08Z", "no point in time"),
    ("2026-11-28T24:59:08Z", "no point in time"),
    ("2026-11-28", "no point in time"),
    ("-1", "no point in time"),
    ("0", "no head's number"),
    ("99999999999999999999999", "no head's number"),
    ("", "no point in time"),
    ("2990-11-28T20:59:08Z", "in the future"),
    ("9999d", "no head is as old as"),
    ("1999-11-28T20:59:08+02:00", "no head is as old as 1999-11-28T18:59:08Z: the oldest is head 1 of "),
    ("4711", "head 4711 is not there: the oldest is head 1 of "),
])
def test_what_is_no_earlier_state(written, when, says):
    is_usage = "no " in says and "head is as old" not in says and "snapshot" not in says or "future" in says
    for verb in ("ls", "cp"):
        local = [os.path.join(written.directory, "out")] if verb == "cp" else []
        done = written.verb(verb, f"--at={when}", written.node.remote.spec("step2000"), *local, code=2 if is_usage else 1)
        assert says in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    fresh = written.node.fresh()
    options = fresh.option_string({"ro": True, "at": when})
    refused = fresh.verb("mount", fresh.store, fresh.mnt, "-o", options, code=1 if is_usage else 32).stderr
    assert says in refused or (when == "" and "empty value" in refused), refused


def test_what_has_no_earlier_states(written):
    node = written.node
    fresh = node.fresh()
    assert "give ro, too" in fresh.verb("mount", fresh.store, fresh.mnt, "-o", fresh.option_string({"at": 1}), code=1).stderr
    lone = fresh.option_string({"ro": True, "at": 1, **dict.fromkeys(node.remote.options())})
    assert "there is no store at" in fresh.verb("mount", fresh.store, fresh.mnt, "-o", lone, code=1).stderr
    node.umount(drain="remote")
    assert "are in its remote" in written.verb("ls", "--at", "1", f"{node.store}:/", code=1).stderr
    assert "are in its remote" in written.verb("history", node.store, code=2).stderr


def test_a_mount_of_an_earlier_state(written):
    """It shows that and goes on to none; its STORE may show another later, and then follow."""
    number, copy = written.states[2]
    reader = written.node.fresh(follow="1s")
    reader.mount(ro=True, at=number)
    check_same(copy, reader.mnt)
    written.change(lambda node: put(node, "step3000/model.pt", 9))
    time.sleep(3)  # longer than a reader needs that follows
    check_same(copy, reader.mnt)
    with pytest.raises(OSError):
        put(reader, "step1000/more", 1)
    status = reader.status()["remote"]
    assert status["head"] == number and status["at"] == str(number)
    assert f"head {number} of -o at={number}: it does not follow" in reader.verb("status", reader.mnt).stdout
    reader.umount()
    for number, copy in (written.states[2], written.states[0], written.states[3]):
        reader.mount(ro=True, at=number)
        check_same(copy, reader.mnt)
        reader.umount()
    reader.mount(ro=True)
    check_same(written.node.mnt, reader.mnt)
    reader.umount()


def test_an_age_stays_what_it_was_at_the_mount(written):
    """The status says which time that is. A daemon that takes the mount over shows the same, though that age ago there was another state by
    then, and also where gc took the head meanwhile."""
    number, copy = written.states[-1]
    reader = written.node.fresh(kind=successor.KeptRemote, successor="on")
    then = next(s["published_s"] for s in written.history() if s["head"] <= number <= s["last_head"])
    age = time.time() - then - 0.01
    reader.mount(ro=True, at=f"{age:.3f}s")
    assert sorted(os.listdir(reader.mnt)) == sorted(os.listdir(copy))
    at = reader.status()["remote"]["at"]
    assert abs(datetime.datetime.fromisoformat(at).timestamp() - then) < 60 * rig.PATIENCE, at
    written.change(lambda node: put(node, "step3000/model.pt", 9))
    time.sleep(age)  # now that is what there was `age` ago
    for other in [n for n in written.node.remote.heads() if n <= number]:
        written.node.remote.delete(f"heads/{other:016x}")
    reader.kill_daemon(wait=True)
    check_same(copy, reader.mnt)  # fetched now
    time.sleep(3)  # it meets the remote meanwhile
    status = reader.status()["remote"]
    assert (status["state"], status["head"], status["at"]) == ("following", number, at), status
    reader.umount()


def test_a_store_with_a_state_of_its_own_does_not_look_back(written):
    """Neither the writer's, nor that of another store: nothing of it is changed."""
    node = written.node
    number, _ = written.states[1]
    newest = written.states[-1][1]
    node.umount(drain="remote")
    for when in (number, max(node.remote.heads())):
        assert "needs a STORE of its own" in node.refused(ro=True, at=when)
    node.mount()
    check_same(newest, node.mnt)
    put(node, "step4000/model.pt", 5)
    node.wait_remote()


def test_a_head_that_gc_took(on_remote, remote, directory):
    """The oldest that is left is named; what is there is whole."""
    node = on_remote(remote, gc_grace="2s", **SMALL).mount()
    made = Written(node, directory)
    for change in CHANGES[:4]:
        made.change(change)
    first = made.states[0][0]
    rig.poll(lambda: (node.cairn("gc", node.mnt), put(node, "beat", time.time()), first not in remote.heads())[2], 60, "gc", 0.5)
    oldest = min(remote.heads())
    done = made.verb("ls", "--at", str(first), remote.spec("/"), code=1)
    assert f"head {first} is not there: the oldest is head " in done.stderr and "gc_grace" in done.stderr
    assert "is not there" in node.fresh().refused(ro=True, at=first)
    assert all(state["head"] >= oldest for state in made.history())
    newest = max(remote.heads())
    assert "step2000" in made.verb("ls", "--at", str(newest), remote.spec("/")).stdout


def test_a_head_that_is_damaged(written, rng):
    """The one before it is shown, and that is said."""
    (number, copy), (damaged, _) = written.states[1], written.states[2]
    for other in range(number + 1, damaged + 1):
        written.node.remote.corrupt(f"heads/{other:016x}", rng)
    times = {s["last_head"]: s.get("published_s") for s in written.history()}
    after = next(times[n] for n in sorted(times) if n > damaged)
    for when in (str(damaged), text_of(after - 0.002)):
        out, said = written.copied("--at", when)
        check_same(copy, out)
        assert f"head {damaged} is damaged; showing the one before, head {number} of " in said, said
    assert f"{damaged}" in [line.split()[0] for line in written.verb("history", written.node.remote.url).stdout.splitlines()
                            if line.endswith("damaged")]
    newest = max(written.node.remote.heads())
    written.node.remote.corrupt(f"heads/{newest:016x}", rng)  # it is not the one that is asked for
    assert "head 4711 is not there" in written.verb("ls", "--at", "4711", written.node.remote.spec("/"), code=1).stderr


def test_a_run_of_an_earlier_head_that_is_lost(written):
    """Both objects: the state before it is shown, and said; the other states can be read."""
    remote = written.node.remote
    heads = remote.heads()
    lost_of, before = next(
        (i, i - 1) for i in (3, 2, 1)
        if set(runs_of(heads[written.states[i][0]])) - set(runs_of(heads[written.states[i - 1][0]]))
        - set(runs_of(heads[max(heads)])))
    only = set(runs_of(heads[written.states[lost_of][0]])) - set(runs_of(heads[written.states[before][0]]))
    run = (only - set(runs_of(heads[max(heads)]))).pop()
    for place in ("runs", "copies"):
        remote.delete(f"{place}/{run:016x}")
    number = written.states[lost_of][0]
    out, said = written.copied("--at", str(number))
    check_same(written.states[before][1], out)
    assert f"head {number} of " in said and f"runs/{run:016x} is missing" in said and "showing head " in said
    for states in written.history("/"), written.history():
        assert any(f"{run:016x}" in state.get("error", "") for state in states), states
        assert "error" not in states[0]
    out, said = written.copied()
    check_same(written.node.mnt, out)
    with written.node.elsewhere(ro=True, at=number) as reader:
        check_same(written.states[before][1], reader.mnt)


@pytest.mark.timeout(240)
def test_earlier_states_of_several_nodes(on_remote, directory):
    """The heads of their union: what each node wrote, changed and removed, by number and by path."""
    remote = remotes.DirRemote(os.path.join(directory, "remotes"))
    nodes = [on_remote(remote, nodes=True, **SMALL).mount() for _ in range(2)]
    states, contents = [], {}

    def shown(*args):
        out = os.path.join(directory, f"out-{len(os.listdir(directory))}")
        os.mkdir(out)
        nodes[0].verb("cp", "-r", *args, remote.spec("/"), out)
        paths = [os.path.join(top, name) for top, _, names in os.walk(out) for name in names]
        return {os.path.relpath(path, out): rig.read_file(path) for path in paths}

    def settled():
        """Once the newest head shows it, its number."""
        rig.poll(lambda: bool(remote.heads()) and nodes[0].cairn("ls", remote.spec("/")).returncode == 0 and shown() == contents, 60,
                 "the union", 0.5)
        states.append((max(remote.heads()), dict(contents)))

    def write(node, name, seed):
        put(nodes[node], name, seed)
        contents[name] = rig.seeded_bytes(seed, 200_000)

    write(0, "step1000/rank0.pt", 1)
    rig.poll(lambda: os.path.isdir(os.path.join(nodes[1].mnt)) and bool(remote.heads()), 60, "a head")
    settled()
    write(1, "rank1.pt", 2)
    settled()
    write(0, "step1000/rank0.pt", 3)
    settled()
    shutil.rmtree(os.path.join(nodes[0].mnt, "step1000"))
    del contents["step1000/rank0.pt"]
    settled()
    for number, expected in states:
        assert shown("--at", str(number)) == expected, number

    def sums(path):
        found = json.loads(nodes[0].verb("history", "--json", remote.url, path).stdout)["states"]
        assert not [state for state in found if "error" in state], found
        return [sum(state[key] for state in found) for key in ("made", "changed", "removed")], found

    assert sums("step1000")[0] == [1, 1, 1]
    assert sums("rank1.pt")[0] == [1, 0, 0]
    found = sums("/")[1]
    assert states[2][0] < found[0]["head"] <= states[3][0] and found[0]["removed"] == 1
    reader = on_remote(remote).mount(ro=True, at=states[1][0])
    assert rig.read_file(os.path.join(reader.mnt, "step1000/rank0.pt")) == states[1][1]["step1000/rank0.pt"]
    assert sorted(os.listdir(reader.mnt)) == ["rank1.pt", "step1000"]
    reader.umount()
