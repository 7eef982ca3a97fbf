# SPDX-License-Identifier: Apache-2.0
"""`cairn advise`: how often to save, from the checkpoints of a mount and what its tiers took for them."""
import json
import math
import os
import re
import time

import pytest

import rig
from test_lanes import program, steps, text

pytestmark = pytest.mark.needs_mount
SIZE = 3_000_000


def advise(cairn, path, *args, code=0):
    said = cairn.verb("advise", path, *args, "--json", code=code)
    return json.loads(said.stdout) if code == 0 else said.stderr


def save(path, seconds, files=("model.pt", "optimizer.pt")):
    """A checkpoint that takes so long to be written: a directory of these files, or one file."""
    if not files:
        with open(path, "wb") as file:
            file.write(bytes(SIZE // 2))
            time.sleep(seconds)  # for so long the save lasts
            file.write(os.urandom(SIZE - SIZE // 2))
        return
    os.makedirs(path)
    for i, name in enumerate(files):
        time.sleep(seconds if i == 1 else 0)  # for so long the save lasts
        rig.write_file(os.path.join(path, name), os.urandom(SIZE // len(files)))


@pytest.mark.parametrize("files", [(), ("model.pt", "optimizer.pt")], ids=["file", "directory"])
def test_what_is_best_follows_from_what_was_measured(cairn, mnt, files):
    assert "there is no checkpoint" in advise(cairn, mnt, code=1)
    os.mkdir(os.path.join(mnt, "run"))
    rig.write_file(os.path.join(mnt, "run", "notes.txt"), b"none of them")
    ends = []
    for step in (8, 9, 10):
        save(os.path.join(mnt, "run", f"step{step}"), 0.3, files)
        ends.append(time.time())
        time.sleep(0.5)  # the steps between two saves: their interval is measured
    cairn.verb("wait", mnt)
    status = cairn.status()
    told = advise(cairn, mnt, "--mtbf", "12h")
    assert (told["checkpoints"], told["count"], told["bytes"], told["is_lazy"], told["mtbf_s"]) == ("step*", 3, SIZE, False, 12 * 3600)
    assert 0.3 <= told["blocked_s"] <= 0.3 + (ends[-1] - ends[0])
    assert told["interval_now_s"] == pytest.approx((ends[2] - ends[0]) / 2, abs=0.3)
    assert told["nvme_s"] == pytest.approx(SIZE * status["nvme"]["busy_s"] / status["mount"]["written_bytes_total"])
    assert told["remote_s"] is told["step_s"] is told["interval_best_steps"] is told["interval_now_steps"] is None
    assert told["interval_least_s"] == max(told["blocked_s"], told["nvme_s"])
    assert told["interval_best_s"] == pytest.approx(max(math.sqrt(2 * told["blocked_s"] * 12 * 3600), told["interval_least_s"]))
    assert advise(cairn, os.path.join(mnt, "run", "step9"), "--mtbf", "12h") == told
    assert advise(cairn, os.path.join(mnt, "run"), "--mtbf", "12h") == told
    lines = cairn.verb("advise", mnt).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "checkpoints", "a save blocks the training for", "until NVMe has it", "one failure every", "now", "best"]


def test_the_slowest_tier_is_the_limit(cairn, mnt):
    """Of saves that block for next to nothing; what programs reported counts, and not the time that writing took."""
    for step in (1, 2):
        save(os.path.join(mnt, f"step{step}.pt"), 0.2, ())
    cairn.verb("wait", mnt)
    with program(mnt, text(published=4, blocked_ns=8_000_000)):
        told = advise(cairn, mnt, "--mtbf", "1s")
    assert told["is_lazy"] and told["blocked_s"] == pytest.approx(0.002)
    assert told["limited_by"] == "nvme" and told["interval_best_s"] == told["interval_least_s"] == told["nvme_s"] > 0.1


def lines(cairn, *args):
    """{label: text} of what it prints."""
    found = (line.partition("  ") for line in cairn.verb("advise", cairn.mnt, *args).stdout.splitlines())
    return {label: said.strip() for label, _, said in found}


def cost(said):
    """The numbers of a line "now" or "best": interval, share of the saves, loss and its share; times below a minute."""
    form = r"every ([\d.]+) s: saves take ([\d.]+) % of the time, a failure loses ([\d.]+) s \(([\d.]+) %\)"
    return [float(number) for number in re.fullmatch(form, said).groups()]


def test_saves_that_block_are_the_limit(cairn, mnt):
    """No tier is slower, so none is called the slowest. What saves cost and failures lose follows from the intervals."""
    for step in (1, 2, 3):
        save(os.path.join(mnt, f"step{step}.pt"), 0, ())
        time.sleep(1)  # the steps between two saves: their interval is measured
    cairn.verb("wait", mnt)
    with program(mnt, text(published=2, blocked_ns=60_000_000_000)):
        told = advise(cairn, mnt, "--mtbf", "40s")
        said = lines(cairn, "--mtbf", "40s")
    assert (told["limited_by"], told["blocked_s"], told["interval_least_s"]) == ("blocked", 30.0, 30.0)
    assert told["nvme_s"] < 30 and told["interval_best_s"] == pytest.approx(math.sqrt(2 * 30 * 40))
    assert said["a save blocks the training for"] == "30.0 s" and not any("slowest" in each for each in said.values())
    now, best = told["interval_now_s"], told["interval_best_s"]
    assert now > 1
    for label, interval in ("now", now), ("best", best):
        assert cost(said[label]) == pytest.approx([interval, 100 * 30 / interval, interval / 2, 100 * interval / 2 / 40], abs=0.06), label


def test_intervals_in_steps(cairn, mnt):
    """Where trainings say how long their steps take; what a save adds to one counts, and not what saves were seen to block."""
    for step in (1, 2, 3):
        save(os.path.join(mnt, f"step{step}.pt"), 0, ())
    cairn.verb("wait", mnt)
    with program(mnt, text(published=2, blocked_ns=60_000_000_000)), program(mnt, steps(250_000_000, 800_000_000)), \
            program(mnt, steps(450_000_000, 1_200_000_000)):
        told, said = advise(cairn, mnt, "--mtbf", "12h"), lines(cairn, "--mtbf", "12h")
    assert (told["step_s"], told["blocked_s"], told["is_lazy"]) == (pytest.approx(0.35), pytest.approx(1.0), True)
    best = max(math.sqrt(2 * 12 * 3600), told["interval_least_s"])
    assert told["interval_best_s"] == pytest.approx(best)
    for which in "now", "least", "best":
        assert told[f"interval_{which}_steps"] == max(1, round(told[f"interval_{which}_s"] / told["step_s"])), which
    assert said["a step of the training takes"] == "0.35 s"
    assert f" or {told['interval_best_steps']} steps: saves take " in said["best"]
    assert f" or {told['interval_now_steps']} steps: saves take " in said["now"]
    assert advise(cairn, mnt)["step_s"] is None  # these programs have ended


def test_a_slow_remote_is_the_limit(on_remote):
    """Of saves that block for nothing and are on NVMe at once."""
    node = on_remote(writeback_delay="50ms", upload_limit="1M")
    node.mount()
    for step in (1, 2):
        save(os.path.join(node.mnt, f"step{step}.pt"), 0, ())
    with program(node.mnt, text(published=2, blocked_ns=2_000_000)):
        rig.poll(lambda: os.getxattr(node.mnt, "user.cairn.level") == b"remote", 60, "the upload, without a call that waits for it")
        told, said = advise(node, node.mnt, "--mtbf", "2s"), lines(node, "--mtbf", "2s")
    assert told["limited_by"] == "remote" and told["remote_s"] > told["nvme_s"]
    assert told["interval_best_s"] == told["interval_least_s"] == told["remote_s"]
    assert "<- the slowest" in said["until the remote has it"] and "slowest" not in said["until NVMe has it"]
    (lost,) = (text for text in said if text.startswith("where the whole node is lost"))
    assert lost.endswith(f": {told['remote_s']:.1f} s more")


def test_with_a_remote(on_remote):
    node = on_remote(writeback_delay="50ms")
    node.mount()
    begun = time.monotonic()
    for step in (1, 2, 3):
        save(os.path.join(node.mnt, f"step{step}.pt"), 0, ())
    node.wait_remote()
    took = time.monotonic() - begun
    told, remote = advise(node, node.mnt), node.status()["remote"]
    assert 0 < remote["busy_s"] <= took and told["remote_s"] == pytest.approx(remote["busy_s"] / 3, rel=0.01)
    assert "until the remote has it" in node.verb("advise", node.mnt).stdout


def test_one_of_a_kind(cairn, mnt):
    save(os.path.join(mnt, "run7"), 0)
    said = cairn.verb("advise", mnt)
    assert "there is only one run*" in said.stderr and "run*, 1 looked at" in said.stdout
    assert json.loads(cairn.verb("advise", mnt, "--json").stdout)["interval_now_s"] is None


def test_a_tier_is_busy_while_it_lacks_something(cairn, mnt):
    """Once for operations that overlap, and not in between."""
    before = cairn.status()["nvme"]["busy_s"]
    begun = time.monotonic()
    for step in range(5):
        rig.write_file(os.path.join(mnt, f"step{step}"), os.urandom(SIZE))
    cairn.verb("wait", mnt)
    took = time.monotonic() - begun
    busy = cairn.status()["nvme"]["busy_s"] - before
    assert 0 < busy <= took
    time.sleep(0.5)  # idle: time that must not count
    assert cairn.status()["nvme"]["busy_s"] - before == pytest.approx(busy, abs=0.4)
