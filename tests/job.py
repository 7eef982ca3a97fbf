"""The main job (clients/train_gpt.py) as tests run it: how it is called, and what it reports."""
import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients", "train_gpt.py")
STEPS, EVERY, TEXT_BYTES = 60, 4, 500_000


@functools.cache
def text():
    """A copy of what it trains on: packages that are installed meanwhile must not change it."""
    with tempfile.NamedTemporaryFile(prefix="cairn-test-text-", delete=False) as file:
        atexit.register(os.unlink, file.name)
        code = f"import sys, train_gpt; sys.stdout.buffer.write(train_gpt.read_text({TEXT_BYTES}))"
        subprocess.run([sys.executable, "-c", code], cwd=os.path.dirname(JOB), stdout=file, check=True)
    return file.name


def command(folder, report, *extra):
    sizes = ["--steps", str(STEPS), "--every", str(EVERY), "--keep", "2", "--print-every", "1", "--text", text()]
    return [sys.executable, JOB, "--dir", folder, "--report", report, *sizes, *extra]


def run(folder, report, *extra):
    done = subprocess.run(command(folder, report, *extra), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    with open(report) as file:
        return json.load(file)


def run_until(step, folder, report, accident):
    """Run the job until it has done a step; then the accident happens, and at once the job dies, too."""
    with subprocess.Popen(command(folder, report), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        try:
            for line in job.stdout:
                if line.startswith(f"step {step} "):
                    break
        finally:
            accident()
            job.kill()


def reference_losses(folder):
    """The losses of a run that nothing disturbed, on a plain folder."""
    return run(str(folder / "run"), str(folder / "report.json"))["losses"]


def check_resumed(resumed, reference, path):
    """Identical losses from where it resumed, and the checkpoints that must be there at the end."""
    assert resumed["losses"] == {key: value for key, value in reference.items() if int(key) > resumed["start"]}
    assert sorted(os.listdir(path)) == ["latest", f"step-{STEPS - EVERY:06d}", f"step-{STEPS:06d}"]
