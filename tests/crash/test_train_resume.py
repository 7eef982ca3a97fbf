# SPDX-License-Identifier: Apache-2.0
"""The main job is killed together with the daemon and resumes with identical losses (P2, P4, P7)."""
import os

import pytest

import job
from job import EVERY, STEPS


def random_moment(rng, path, report, in_save):
    """Within a save, or anywhere in a step; and the last step that is done for certain."""
    if not in_save:
        return rng.randrange(2 * EVERY + 1, STEPS - EVERY), job.in_step(rng.random())
    save = EVERY * rng.randrange(3, STEPS // EVERY)
    return save - 1, job.in_save(save, path, report, rng.random())


def kill_and_resume(cairn, rng, directory, reference, accident, in_save):
    cairn.mount(writeback_delay="100ms")
    path, report = os.path.join(cairn.mnt, "run"), os.path.join(directory, "report.json")
    step, moment = random_moment(rng, path, report, in_save)
    job.run_until(step, path, report, cairn.kill9, moment)
    accident()
    cairn.mount()
    state = job.state_of(path)
    if state == "latest" and accident != cairn.drop_stage:
        job.name_newest(path)
    resumed = job.run(path, report, "--resume")
    print(f"killed after step {step}, in its {state}, resumed at {resumed['start']}")
    job.check_resumed(resumed, reference, path)
    cairn.umount_whole()
    return step, resumed["start"]


@pytest.mark.pieces(10)
def test_killed_job_resumes(cairn, rng, directory, reference, piece):
    """P2: after kill -9 of daemon and trainer, in a save or between them, the newest saved checkpoint is there."""
    step, start = kill_and_resume(cairn, rng, directory, reference, lambda: None, in_save=piece.number % 2 == 0)
    assert start >= step // EVERY * EVERY


def test_killed_job_resumes_without_view(cairn, rng, directory, reference):
    """P2: the same with the view deleted: it is rebuilt."""
    step, start = kill_and_resume(cairn, rng, directory, reference, cairn.delete_view, in_save=rng.random() < 0.5)
    assert start >= step // EVERY * EVERY


def test_job_resumes_after_power_loss(cairn, rng, directory, reference):
    """P4, P7: without the stage an older checkpoint is there, whole, and named by `latest`."""
    kill_and_resume(cairn, rng, directory, reference, cairn.drop_stage, in_save=rng.random() < 0.5)
