# SPDX-License-Identifier: Apache-2.0
"""The judge can fail: planted violations of P2 and P4 on a plain directory are all found."""
import os
import shutil

import pytest

import history
import judge
import rig
from history import Recorder
from judge import Model, Violation, check_cut, check_live


def small_history(root, log):
    """A checkpoint, its marker, an fsync, the next checkpoint, its marker, an open file."""
    os.mkdir(root)
    rec = Recorder(root, log)
    for step in (1, 2):
        rec.mkdir(f"step{step}.tmp")
        shard = rec.open(f"step{step}.tmp/shard", history.WRITE_NEW)
        rec.write(shard, 70000, 10 * step)
        rec.write(shard, 9000, 10 * step + 1)
        rec.close(shard)
        rec.rename(f"step{step}.tmp", f"step{step}")
        latest = rec.open("latest", history.WRITE_NEW)
        rec.write(latest, 16, step)
        if step == 1:
            rec.fsync(latest)
        rec.close(latest)
    rec.link("step2/shard", "best")
    model = rec.open("model.tmp", history.READ_WRITE_NEW)
    rec.ftruncate(model, 50000)
    rec.write(model, 40000, 77, 10000)
    rec.rename("model.tmp", "model")
    rec.write(model, 100, 78, 0)
    rec.symlink("step2", "last")
    return rec


@pytest.fixture
def recorded(directory):
    root, log = os.path.join(directory, "live"), os.path.join(directory, "log")
    small_history(root, log)
    return root, log, os.path.join(directory, "cut")


def materialise(model, root):
    """Write the sealed state of a model to a directory."""
    shutil.rmtree(root, ignore_errors=True)
    os.mkdir(root)
    paths = {}
    for name in sorted(model.names):
        entry, path = model.names[name], os.path.join(root, name)
        if entry[0] == "d":
            os.mkdir(path)
        elif entry[0] == "l":
            os.symlink(entry[1], path)
        elif id(entry[1]) in paths:
            os.link(paths[id(entry[1])], path)
        elif entry[1].sealed is not None:
            paths[id(entry[1])] = rig.write_file(path, history.bytes_of(entry[1].sealed))


def cut_after(log, count, root, skip=()):
    """The directory that a cut after `count` operations leaves, some of them left out."""
    model = Model()
    for number, op in enumerate(judge.History(log).ops[:count]):
        if number not in skip:
            model.apply(op)
    materialise(model, root)


def position(log, name, nth=0, **args):
    ops = judge.History(log).ops
    hits = [at for at, op in enumerate(ops) if op.name == name and all(op.args.get(k) == v for k, v in args.items())]
    return hits[nth]


def finds(check, *args, match=None, **more):
    with pytest.raises(Violation, match=match):
        check(*args, **more)


def test_live_accepts_what_was_done(recorded):
    root, log, _ = recorded
    assert check_live(root, log) > 20


def break_link(root):
    shutil.copy(os.path.join(root, "best"), os.path.join(root, "copy"))
    os.replace(os.path.join(root, "copy"), os.path.join(root, "best"))


# What is done to the files, and what is found.
DAMAGE = {
    "lost shard": (lambda root: os.unlink(os.path.join(root, "step2/shard")), "lost"),
    "lost marker": (lambda root: os.unlink(os.path.join(root, "latest")), "lost"),
    "lost file that was open": (lambda root: os.unlink(os.path.join(root, "model")), "lost"),
    "zeros": (lambda root: rig.patch(os.path.join(root, "step2/shard"), 0, bytes(79000)), "all zeros"),
    "one wrong byte": (lambda root: rig.flip(os.path.join(root, "model"), 33333, 1), "wrong content"),
    "a short file": (lambda root: os.truncate(os.path.join(root, "model"), 49999), "wrong content"),
    "a name that should not be": (lambda root: os.mkdir(os.path.join(root, "step1.tmp")), "should not be"),
    "a broken link": (break_link, "hard links"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_live_finds(recorded, damage):
    root, log, _ = recorded
    do, found = DAMAGE[damage]
    do(root)
    finds(check_live, root, log, match=found)


def in_flight(log, op, **args):
    """Add the call of an operation that never returned."""
    line = {"k": "B", "n": "9.1", "op": op, "t": 1e9, **args}
    rig.write_file(log, history.json.dumps(line) + "\n", os.O_WRONLY | os.O_APPEND)


def test_live_allows_an_operation_in_flight_or_not(recorded):
    root, log, _ = recorded
    in_flight(log, "rename", p="step1", q="old")
    check_live(root, log)
    os.rename(os.path.join(root, "step1"), os.path.join(root, "old"))
    check_live(root, log)
    os.rename(os.path.join(root, "old"), os.path.join(root, "older"))
    finds(check_live, root, log)


def test_live_allows_a_write_in_flight_in_part_and_in_order(recorded):
    root, log, _ = recorded
    handle = judge.History(log).ops[position(log, "open", p="model.tmp")].args["h"]
    in_flight(log, "write", h=handle, off=20000, size=50000, seed=5)
    check_live(root, log)
    data = history.data_of(5, 50000)
    for count in (1, 4096, 30000, 31000, 50000):
        rig.patch(os.path.join(root, "model"), 20000, data[:count])
        check_live(root, log)
    rig.patch(os.path.join(root, "model"), 20000, bytes(4096))
    finds(check_live, root, log)


def test_cut_accepts_every_prefix_after_the_last_fsync_and_none_before(recorded):
    root, log, cut = recorded
    total, sync = len(judge.History(log).ops), position(log, "fsync")
    mark = os.path.getsize(log)
    accepted = []
    for count in range(total + 1):
        cut_after(log, count, cut)
        try:
            check_cut(cut, log, mark)
            accepted.append(count)
        except Violation:
            pass
    first = accepted[0]
    assert first <= sync + 1 and accepted == list(range(first, total + 1))
    # Nothing before the fsync is accepted: between the close before it and the fsync nothing was sealed.
    cut_after(log, position(log, "rename", 0), cut)
    finds(check_cut, cut, log, mark)


def test_cut_forgets_fsyncs_that_had_not_returned(recorded):
    root, log, cut = recorded
    cut_after(log, 0, cut)
    assert check_cut(cut, log, 0)[0] == 0


def test_cut_finds_a_marker_without_its_data(recorded):
    root, log, cut = recorded
    cut_after(log, position(log, "link"), cut)
    check_cut(cut, log, 0)
    shutil.rmtree(os.path.join(cut, "step2"))
    finds(check_cut, cut, log, 0)


def test_cut_finds_swapped_order(recorded):
    root, log, cut = recorded
    skipped = position(log, "rename", 1)
    count = position(log, "link")
    cut_after(log, count, cut, skip=())
    check_cut(cut, log, 0)
    cut_after(log, count, cut, skip=(skipped,))
    finds(check_cut, cut, log, 0)


def test_cut_finds_a_half_file(recorded):
    root, log, cut = recorded
    cut_after(log, position(log, "link"), cut)
    for size in (0, 4096, 70000, 78999):
        os.truncate(os.path.join(cut, "step2/shard"), size)
        finds(check_cut, cut, log, 0, match="wrong content")


def test_cut_finds_zeros(recorded):
    root, log, cut = recorded
    cut_after(log, position(log, "symlink"), cut)
    check_cut(cut, log, 0)
    rig.write_file(os.path.join(cut, "model"), bytes(50000))
    finds(check_cut, cut, log, 0)


def test_cut_finds_a_file_that_was_never_sealed(recorded):
    root, log, cut = recorded
    cut_after(log, position(log, "open", p="model.tmp") + 2, cut)
    check_cut(cut, log, 0)
    rig.write_file(os.path.join(cut, "model.tmp"), bytes(50000))
    finds(check_cut, cut, log, 0)


def test_cut_finds_what_was_called_after_it(recorded):
    root, log, cut = recorded
    ops = judge.History(log).ops
    at = position(log, "link")
    cut_after(log, at + 1, cut)
    check_cut(cut, log, 0, end_mark=ops[at].begin)
    finds(check_cut, cut, log, 0, end_mark=ops[at - 1].begin)


def test_cut_allows_a_seal_of_an_idle_draft(recorded):
    root, log, cut = recorded
    write = position(log, "write", h=judge.History(log).ops[position(log, "open", p="model.tmp")].args["h"])
    cut_after(log, write + 1, cut)
    ops = judge.History(log, idle=0).ops
    model = Model()
    for op in ops[: write + 1]:
        model.apply(op)
    model.names["model.tmp"][1].seal()
    materialise(model, cut)
    finds(check_cut, cut, log, 0)
    check_cut(cut, log, 0, idle=0)


def test_cut_allows_a_seal_within_a_write_until_the_next_seal(recorded):
    root, log, cut = recorded
    write = position(log, "write", h=judge.History(log).ops[position(log, "open", p="model.tmp")].args["h"])
    cut_after(log, write, cut)
    torn = bytes(10000) + history.data_of(77, 40000)[:4096]
    rig.write_file(os.path.join(cut, "model.tmp"), torn + bytes(50000 - len(torn)))
    finds(check_cut, cut, log, 0)
    check_cut(cut, log, 0, idle=0)
    os.rename(os.path.join(cut, "model.tmp"), os.path.join(cut, "model"))
    finds(check_cut, cut, log, 0, idle=0)


def test_a_failed_operation_must_have_no_effect(directory):
    root, log = os.path.join(directory, "live"), os.path.join(directory, "log")
    rec = small_history(root, log)
    with pytest.raises(history.Stop):
        rec.rmdir("step1")
    check_live(root, log)
    shutil.rmtree(os.path.join(root, "step1"))
    finds(check_live, root, log)


def test_a_wrong_read_fails(directory):
    root, log = os.path.join(directory, "live"), os.path.join(directory, "log")
    rec = small_history(root, log)
    handle = rec.open("x", history.READ_WRITE_NEW)
    rec.write(handle, 5000, 1)
    rec.read_back(handle)
    check_live(root, log)
    rec.live[handle] = ((2, 5000, 0, 5000),)
    rec.read_back(handle)
    finds(check_live, root, log, match="reads were wrong")


def test_real_writers_pass_and_a_swap_fails(directory, shm_directory, seed):
    root, log = os.path.join(directory, "run"), os.path.join(shm_directory, "log")
    with history.writing(root, log, seed, ready=300_000, seconds=20):
        pass
    check_live(root, log)
    steps = sorted(name for name in os.listdir(root) if name.startswith("step-") and not name.endswith(".tmp"))
    os.rename(os.path.join(root, steps[0]), os.path.join(root, "step-x"))
    finds(check_live, root, log)
