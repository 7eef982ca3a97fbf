# SPDX-License-Identifier: Apache-2.0
"""Markers come after what they speak of; torch.save through the lane, eager and lazy, keeps the order that the program wrote."""
import errno
import os
import subprocess
import sys
import threading

import pytest
import torch

import rig
from training import Training, check_loaded


def test_marker_after_its_saves(stall, lane):
    """Not there while the save is under way; there when it has its name. What a process that was killed left of its marker is gone then."""
    training, mnt = Training(), stall.mount.mnt
    dead = subprocess.Popen(["true"])
    dead.wait()
    rig.write_file(os.path.join(mnt, f".latest.cairn-{dead.pid}-8"), b"0.pt")
    save = stall.save(lane, training.state(), os.path.join(mnt, "1.pt"))
    stall.go()
    mark = lane.marker(os.path.join(mnt, "latest"), "1.pt")
    while not mark.done():
        assert not os.path.exists(os.path.join(mnt, "latest")) or save.published() or os.path.exists(os.path.join(mnt, "1.pt"))
    assert mark.result() and rig.read_file(os.path.join(mnt, "latest")) == b"1.pt" and save.published()
    assert sorted(os.listdir(mnt)) == ["1.pt", "latest"]
    with pytest.raises(FileExistsError):
        lane.marker(os.path.join(mnt, "latest"), "2.pt", replace=False).result()


@pytest.mark.filterwarnings("ignore")
def test_failed_save_fails_its_marker(stall, lane):
    """The older marker stays, whether the save fails before or after marker() was called; the next one is written."""
    training, mnt = Training(), stall.mount.mnt
    latest = os.path.join(mnt, "latest")
    lane.save(training.state(), os.path.join(mnt, "0.pt"))
    lane.marker(latest, "0.pt").result()
    for before in (True, False):
        training = Training()  # what has changed once without a fence is copied at once later
        save = stall.save(lane, training.state(), os.path.join(mnt, "1.pt"))
        with torch.no_grad():
            training.model.weight.add_(1)
        stall.go()
        if before:
            assert save.exception().errno == errno.EBADMSG
        mark = lane.marker(latest, "1.pt")
        assert mark.exception().errno == errno.ECANCELED and save.exception()
        assert rig.read_file(latest) == b"0.pt" and sorted(os.listdir(mnt)) == ["0.pt", "latest"]
    lane.save(training.state(), os.path.join(mnt, "2.pt"))
    lane.marker(latest, "2.pt").result()
    check_loaded(os.path.join(mnt, "2.pt"), training.state())
    assert rig.read_file(latest) == b"2.pt"


def test_install(lane, directory):
    """The patched torch.save returns when the file is there; what is no path goes to torch's own; uninstall() takes it back."""
    import io

    plain = torch.save
    lane.install(lazy=False)
    assert torch.save is not plain and torch.serialization.save is torch.save
    torch.save({"a": torch.ones(5)}, path := os.path.join(directory, "a.pt"))
    assert torch.equal(torch.load(path)["a"], torch.ones(5))
    torch.save({"a": 1}, buffer := io.BytesIO())
    assert buffer.getvalue()
    torch.save({"a": 2}, path, _use_new_zipfile_serialization=False)
    assert torch.load(path) == {"a": 2}
    lane.uninstall()
    assert torch.save is plain


# What a program does with files behind a save, and what it must see then.
ACTS = {
    "marker": lambda path: rig.write_file(os.path.join(os.path.dirname(path), "latest"), b"x"),
    "size": os.path.getsize,
    "exists": os.path.exists,
    "load": torch.load,
    "rename": lambda path: os.rename(path, path + ".moved"),
    "list": lambda path: os.listdir(os.path.dirname(path)),
    "remove": os.remove,
    "directory": lambda path: os.mkdir(os.path.join(os.path.dirname(path), "directory")),
    "program": lambda path: subprocess.run(["true"]),
}


@pytest.mark.parametrize("act", ACTS)
def test_gate(stall, lane, act):
    """CAIRN_LAZY=1: each of these waits for the save that came before it."""
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    lane.install(lazy=True)
    torch.save(training.state(), path)
    from cairnfs import _process

    assert _process.current().pending, "the save is not lazy"
    ACTS[act](path)
    assert not [save for save in _process.current().pending if save.path == path]
    lane.uninstall()


@pytest.fixture
def alone():
    """torch.distributed, of one rank."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield torch.distributed
    torch.distributed.destroy_process_group()


def test_a_barrier_waits(stall, lane, alone):
    """CAIRN_LAZY=1: behind it other ranks look for the file. What failed does not end the training there."""
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    lane.install(lazy=True)
    torch.save(training.state(), path)
    stall.stop()
    thread = threading.Thread(target=alone.barrier)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "the barrier did not wait"
    stall.go()
    thread.join()
    assert os.path.exists(path)
    torch.save(training.state(), path)
    with torch.no_grad():
        training.model.weight.add_(1)
    alone.barrier()
    with pytest.warns(lane.SaveWarning, match="was changed while it was copied"):
        training.step()
    lane.uninstall()


@pytest.mark.parametrize("lazy", ["", "1"])
def test_run(lane, cairn, programs, lazy, mnt):
    """python -m cairnfs.run: the main job, not a line changed; the losses are those without."""
    script = os.path.join(os.path.dirname(__file__), "..", "clients", "train_gpt.py")
    report = os.path.join(cairn.root, "report.json")
    sizes = ["--steps", "4", "--every", "2", "--width", "32", "--layers", "1", "--report", report, "--text", __file__]
    losses = []
    for start in ([sys.executable, "-m", "cairnfs.run"], [sys.executable]):
        target = os.path.join(mnt, str(len(start)))
        rig.run(*start, script, "--dir", target, *sizes, env={**programs, "CAIRN_LAZY": lazy})
        with open(report) as file:
            losses.append(__import__("json").load(file)["losses"])
        assert sorted(os.listdir(target)) == ["latest", "step-000002", "step-000004"]
        assert torch.load(os.path.join(target, "step-000004", "checkpoint.pt"))["step"] == 4
    assert losses[0] == losses[1] and len(losses[0]) == 4
