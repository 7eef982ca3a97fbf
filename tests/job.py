# SPDX-License-Identifier: Apache-2.0
"""The main job (clients/train_gpt.py) as tests run it: how it is called, and what it reports."""
import contextlib
import fcntl
import functools
import itertools
import json
import os
import subprocess
import sys
import time

from preloaded import Preloaded

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients", "train_gpt.py")
RUN = f"import runpy; runpy.run_path({JOB!r}, run_name='__main__')"
STEPS, EVERY, KEEP, TEXT_BYTES = 60, 4, 2, 500_000


class Reference:
    """What it trains on, a copy that packages which are installed meanwhile do not change, and the losses of a run that nothing disturbed,
    on a plain directory. In a directory of all processes of a test run: the first one makes it."""

    text = None  # of the process

    def __init__(self, directory):
        Reference.text = os.path.join(directory, "text")
        report = os.path.join(directory, "report.json")
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(self.text):
                write_text(self.text)
            if not os.path.exists(report):
                run(os.path.join(directory, "run"), report + ".new")
                os.rename(report + ".new", report)
        with open(report) as file:
            self.losses = json.load(file)["losses"]


def write_text(path):
    code = f"import sys, train_gpt; sys.stdout.buffer.write(train_gpt.read_text({TEXT_BYTES}))"
    with open(path + ".new", "wb") as file:
        subprocess.run([sys.executable, "-c", code], cwd=os.path.dirname(JOB), stdout=file, check=True)
    os.rename(path + ".new", path)


@functools.cache
def preloaded():
    """Jobs of this process: to import torch, and what an optimizer imports, takes as long as half of a job."""
    return Preloaded("import torch, torch._dynamo", None)


def arguments(directory, report, *extra):
    sizes = ["--steps", str(STEPS), "--every", str(EVERY), "--keep", str(KEEP), "--print-every", "1", "--text", Reference.text]
    return ["--dir", directory, "--report", report, *sizes, *extra]


def start(directory, report, *extra, stderr=subprocess.DEVNULL):
    with open(os.devnull, "w") if stderr == subprocess.DEVNULL else contextlib.nullcontext(stderr) as errors:
        return preloaded().start(RUN, arguments(directory, report, *extra), os.environ, errors)


def run(directory, report, *extra):
    done = preloaded().run(RUN, arguments(directory, report, *extra), os.environ, timeout=200)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    with open(report) as file:
        return json.load(file)


def run_until(step, directory, report, accident, moment=lambda job, seconds: None, extra=()):
    """Run the job until it has done a step, and until the moment; then the accident happens, and at once the job dies, too."""
    with start(directory, report, *extra) as job:
        times = []
        try:
            for line in job.stdout:
                times.append(time.monotonic())
                if line.startswith(f"step {step} "):
                    break
            moment(job, max((end - begin for begin, end in itertools.pairwise(times[-EVERY - 1 :])), default=0))
        finally:
            accident()
            job.kill()


def in_step(share):
    """A moment after a share of the time that a step with a save takes."""
    return lambda job, seconds: time.sleep(share * seconds)


def in_save(step, directory, report, share):
    """A moment within the save of a step: after a share of the time that the save before took."""

    def moment(job, seconds):
        name = os.path.join(directory, f"step-{step:06d}")
        with open(report) as file:
            last = json.load(file)["saves"][-1]
        while job.poll() is None and not os.path.exists(name):
            pass  # a save takes milliseconds
        time.sleep(share * (last["seconds"] + last["remove_seconds"]))

    return moment


def state_of(directory):
    """What a job that was killed left: which part of a save it was in, as far as it can be seen. None: nothing."""
    if not os.path.exists(os.path.join(directory, "latest")):
        return None
    with open(os.path.join(directory, "latest")) as file:
        latest = file.read()
    steps = sorted(name for name in os.listdir(directory) if name.startswith("step-"))
    if not latest:
        return "latest"
    if latest != steps[-1]:
        return "checkpoint"
    return "removal" if len(steps) > KEEP else "training"


def name_newest(directory):
    """A program that dies between truncating `latest` and writing it leaves it empty, on every filesystem. The newest checkpoint is whole
    then."""
    with open(os.path.join(directory, "latest"), "w") as file:
        file.write(max(name for name in os.listdir(directory) if name.startswith("step-")))


def check_resumed(resumed, reference, path):
    """`reference`: a Reference. Identical losses from where it resumed, and the checkpoints that must be there at the end. A job that had
    ended removes nothing more."""
    assert resumed["losses"] == {key: value for key, value in reference.losses.items() if int(key) > resumed["start"]}
    left = {"latest", f"step-{STEPS - EVERY:06d}", f"step-{STEPS:06d}"}
    assert set(os.listdir(path)) == left or resumed["start"] == STEPS and set(os.listdir(path)) > left
