# SPDX-License-Identifier: Apache-2.0
"""The main job on a fresh node (P5): trained, uploaded, the node gone, resumed with identical losses."""
import os

import pytest

import job
from job import EVERY, STEPS


def train_and_lose_node(mount, directory, step, before_death):
    """Run the job to a step; what then happens; then the daemon is killed, and store and stage are gone."""
    path, report = os.path.join(mount.mnt, "run"), os.path.join(directory, "report.json")

    def accident():
        before_death(path)
        mount.kill9()

    mount.mount()
    job.run_until(step, path, report, accident)
    mount.wipe()


def resume_elsewhere(mount, directory, reference):
    """A fresh node takes over and ends the job; another then sees the end of it."""
    fresh = mount.fresh()
    fresh.mount(takeover=True)
    path = os.path.join(fresh.mnt, "run")
    resumed = job.run(path, os.path.join(directory, "report.json"), "--resume")
    job.check_resumed(resumed, reference, path)
    fresh.umount_whole(drain="remote")
    with mount.elsewhere() as after:  # the clean umount released the prefix
        assert sorted(os.listdir(os.path.join(after.mnt, "run"))) == sorted(["latest", f"step-{STEPS - EVERY:06d}", f"step-{STEPS:06d}"])
    return resumed["start"]


@pytest.mark.always_s3
def test_job_resumes_on_a_fresh_node(mount, rng, directory, reference):
    """P5: what `cairn wait --level remote` waited for is what a fresh node resumes from."""
    step = rng.randrange(2 * EVERY + 1, STEPS - 1)
    train_and_lose_node(mount, directory, step, mount.wait_remote)
    start = resume_elsewhere(mount, directory, reference)
    print(f"lost after step {step}, resumed at {start}")
    assert start >= (step - 1) // EVERY * EVERY


def test_job_resumes_from_what_was_uploaded(mount, rng, directory, reference):
    """P5, P7: with no wait at all an older checkpoint is there, whole, and named by `latest`."""
    step = rng.randrange(STEPS // 2, STEPS - 1)
    train_and_lose_node(mount, directory, step, lambda path: None)
    start = resume_elsewhere(mount, directory, reference)
    print(f"lost after step {step}, resumed at {start}")
