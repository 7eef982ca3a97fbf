"""The main job saves lazily and is killed, with the daemon or without: every name is whole and of one step, and it resumes with the same losses."""
import json
import os
import subprocess

import pytest
import torch

import job
import rig
from job import EVERY, STEPS


def command(folder, report, *extra):
    return job.command(folder, report, "--lazy", *extra)


def run(programs, folder, report, *extra):
    done = subprocess.run(command(folder, report, *extra), env=programs, capture_output=True, text=True, timeout=rig.PATIENCE * 200)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    with open(report) as file:
        return json.load(file)


def run_until(programs, step, folder, report, rng, accident):
    """Until a step is done, and a random moment longer; then the accident, and the job dies."""
    with subprocess.Popen(command(folder, report), env=programs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            for line in process.stdout:
                if line.startswith(f"step {step} "):
                    break
            try:
                process.wait(rng.random() * 0.15)
            except subprocess.TimeoutExpired:
                pass
        finally:
            accident()
            process.kill()


def check_whole(path):
    """All that has a name is whole and of the step that its folder says; `latest` names one of them."""
    steps = set()
    for name in os.listdir(path):
        if not name.startswith("step-"):
            assert name == "latest" or name.startswith(".latest.cairn-"), name
            continue
        for file in os.listdir(os.path.join(path, name)):
            if file.startswith("."):
                continue  # the hidden name of one that was being published
            state = torch.load(os.path.join(path, name, file), weights_only=True)
            assert name == f"step-{state['step']:06d}"
            counts = {int(value["step"]) for value in state["optimizer"]["state"].values()}
            assert counts == {state["step"]}, f"{name} is of the steps {counts}"
            steps.add(name)
    if os.path.exists(os.path.join(path, "latest")):
        latest = rig.read_file(os.path.join(path, "latest")).decode()
        assert latest in steps, f"latest names {latest}, there are {steps}"
        return latest
    return None


def test_losses_are_those_without(lane, cairn, folder, programs, reference):
    """Lazy saves every few steps change no loss, bit for bit."""
    cairn.mount()
    report = run(programs, os.path.join(cairn.mnt, "run"), os.path.join(folder, "report.json"))
    assert report["losses"] == reference.losses
    assert check_whole(os.path.join(cairn.mnt, "run")) == f"step-{STEPS:06d}"
    assert set(os.listdir(os.path.join(cairn.mnt, "run"))) >= {"latest", f"step-{STEPS - EVERY:06d}", f"step-{STEPS:06d}"}


def kill_and_resume(cairn, path, folder, programs, reference, rng, both):
    cairn.mount(writeback_delay="100ms")
    report = os.path.join(folder, "report.json")
    step = EVERY * rng.randrange(1, STEPS // EVERY)
    run_until(programs, step, path, report, rng, cairn.kill9 if both else lambda: None)
    if both:
        cairn.mount()
    latest = check_whole(path)
    resumed = run(programs, path, report, "--resume")
    assert resumed["start"] == (int(latest[5:]) if latest else 0)
    assert resumed["losses"] == {key: value for key, value in reference.losses.items() if int(key) > resumed["start"]}
    cairn.umount()
    assert cairn.fsck().returncode == 0


@pytest.mark.parametrize("both", [False, True], ids=["trainer", "trainer and daemon"])
@pytest.mark.parametrize("part", range(10))
@pytest.mark.timeout(300)
def test_killed(lane, cairn, folder, programs, reference, rng, full, part, both):
    """kill -9 at a random moment of a lazy save: 500 by --full, in parts of 25 that may run at once."""
    if part and not full:
        pytest.skip("skipped: only with --full")
    for turn in range(25 if full else 1):
        kill_and_resume(cairn, os.path.join(cairn.mnt, str(turn)), folder, programs, reference, rng, both)
