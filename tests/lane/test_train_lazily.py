# SPDX-License-Identifier: Apache-2.0
"""The main job with lazy saves: the same losses, and checkpoints that are whole, whichever process is killed when."""
import json
import os
import zipfile

import job
import pytest
import torch

import rig

pytestmark = pytest.mark.needs_mount
LAZY = ("--lazy", "--every", "1")  # so nearly every moment is within a save
HIDDEN = ".latest.cairn-"


def checkpoints(path):
    """{step: file} of those that have a name; each is whole, and nothing lies beside it, but for what a kill left that hit the change of
    `latest`."""
    found = {}
    for name in sorted(os.listdir(path)):
        if not name.startswith("step-"):
            assert name == "latest" or name.startswith(HIDDEN), name
            continue
        inside = os.listdir(os.path.join(path, name))
        assert set(inside) <= {"checkpoint.pt"}, inside
        for file in inside:
            whole = os.path.join(path, name, file)
            with zipfile.ZipFile(whole) as archive:
                assert archive.testzip() is None, whole
            state = torch.load(whole, weights_only=True)
            assert name == f"step-{state['step']:06d}"
            assert {int(one["step"]) for one in state["optimizer"]["state"].values()} == {state["step"]}, f"{name} is of several steps"
            found[state["step"]] = whole
    return found


def latest(path):
    """The step that `latest` names; 0: none yet."""
    if not os.path.exists(os.path.join(path, "latest")):
        return 0
    return int(rig.read_text(os.path.join(path, "latest")).removeprefix("step-"))


def newest(path):
    """latest(), whose checkpoint must be there."""
    found, step = checkpoints(path) if os.path.exists(path) else {}, latest(path)
    assert step in found or step == 0, (step, found)
    return step


def check_end(done, reference, path):
    assert done["losses"] == {key: value for key, value in reference.losses.items() if int(key) > done["start"]}
    assert newest(path) == job.STEPS and set(checkpoints(path)) == {job.STEPS, job.STEPS - 1}
    assert not [name for name in os.listdir(path) if name.startswith(HIDDEN)], "what a kill left, the first marker takes away"


def test_losses_are_the_same(directory, reference, mnt):
    """Bit for bit those of a training that saves by torch.save; what is saved is what was trained."""
    path = mnt + "/run"
    done = job.run(path, directory + "/report.json", *LAZY)
    assert done["start"] == 0 and len(done["saves"]) == job.STEPS
    check_end(done, reference, path)


@pytest.mark.pieces(50)
def test_kills_of_trainer_and_daemon(cairn, rng, directory, reference, full, piece):
    """500 times (2 by default) kill -9 of the trainer, with the daemon or without it: what is there is whole, `latest` names one, and the
    job goes on."""
    cairn.mount(writeback_delay="100ms")
    path, report, start = cairn.mnt + "/run", directory + "/report.json", 0
    for _ in range(piece.share(500) if full else 2):
        daemon_too = rng.random() < 0.6
        step = start + rng.randrange(2, 5)
        named = []

        def accident():
            named.append(latest(path))
            if daemon_too:
                cairn.kill9()

        job.run_until(step, path, report, accident, job.in_step(rng.random()), ["--resume", *LAZY])
        if daemon_too:
            cairn.mount()
        before, start = start, newest(path)
        print(f"killed after step {step}, the daemon {'too' if daemon_too else 'not'}: {start} is the newest checkpoint")
        assert before <= named[0] <= start, "a checkpoint was lost"
        assert start >= step - 5, "saves come late"  # one or two in general; more where the daemon gets less of the machine than the job
    check_end(job.run(path, report, "--resume", *LAZY), reference, path)
    cairn.umount_whole()


def test_daemon_dies_and_another_goes_on(kept, directory, reference):
    """The training notices nothing: no save fails, the losses are the same."""
    kept.mount()
    path, report = kept.mnt + "/run", directory + "/report.json"

    with open(directory + "/errors", "w+") as errors, job.start(path, report, *LAZY, stderr=errors) as trainer:
        for line in trainer.stdout:
            if line.split()[:2] in (["step", "10"], ["step", "25"], ["step", "40"]):
                kept.kill_daemon()
        code = trainer.wait()
        told = rig.read_file(errors.name).decode()
    assert code == 0 and "failed" not in told, told
    assert kept.successor()["deaths"] == 3
    check_end(json.loads(rig.read_text(report)), reference, path)
