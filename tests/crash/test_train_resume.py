"""The main job is killed together with the daemon and resumes with identical losses (P2, P4, P7)."""
import json
import os
import subprocess
import sys

import pytest

import rig

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "train_gpt.py")
STEPS, EVERY = 60, 4


def command(folder, report, *extra):
    sizes = ["--steps", str(STEPS), "--every", str(EVERY), "--keep", "2", "--print-every", "1", "--text-bytes", "500000"]
    return [sys.executable, JOB, "--dir", folder, "--report", report, *sizes, *extra]


def run_job(folder, report, *extra):
    done = subprocess.run(command(folder, report, *extra), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    with open(report) as file:
        return json.load(file)


def kill_job_at(step, cairn, folder, report):
    """Run the job until it has done a step, then kill daemon and job at once."""
    with subprocess.Popen(command(folder, report), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        try:
            for line in job.stdout:
                if line.startswith(f"step {step} "):
                    break
        finally:
            cairn.kill9()
            job.kill()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The losses of a run that nothing disturbed, on a plain folder."""
    folder = tmp_path_factory.mktemp("reference")
    return run_job(str(folder / "run"), str(folder / "report.json"))["losses"]


def kill_and_resume(cairn, rng, folder, reference, accident, fsync=False):
    cairn.mount()
    path, report = os.path.join(cairn.mnt, "run"), os.path.join(folder, "report.json")
    step = rng.randrange(2 * EVERY + 1, STEPS - 1)
    kill_job_at(step, cairn, path, report)
    accident()
    cairn.mount()
    resumed = run_job(path, report, "--resume")
    print(f"killed after step {step}, resumed at {resumed['start']}")
    assert resumed["losses"] == {key: value for key, value in reference.items() if int(key) > resumed["start"]}
    assert sorted(os.listdir(path)) == ["latest", f"step-{STEPS - EVERY:06d}", f"step-{STEPS:06d}"]
    cairn.umount()
    assert cairn.fsck().returncode == 0
    return step, resumed["start"]


@pytest.mark.parametrize("turn", range(10))
def test_killed_job_resumes(cairn, rng, folder, reference, full, turn):
    """P2: after kill -9 of daemon and trainer the newest saved checkpoint is there."""
    if turn and not full:
        pytest.skip("skipped: only with --full")
    step, start = kill_and_resume(cairn, rng, folder, reference, lambda: None)
    assert start >= (step - 1) // EVERY * EVERY


def test_killed_job_resumes_without_view(cairn, rng, folder, reference):
    """P2: the same with the view deleted: it is rebuilt."""
    step, start = kill_and_resume(cairn, rng, folder, reference, cairn.delete_view)
    assert start >= (step - 1) // EVERY * EVERY


def test_job_resumes_after_power_loss(cairn, rng, folder, reference):
    """P4, P7: without the stage an older checkpoint is there, whole, and named by `latest`."""
    kill_and_resume(cairn, rng, folder, reference, cairn.drop_stage)
