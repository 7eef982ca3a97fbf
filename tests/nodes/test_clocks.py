# SPDX-License-Identifier: Apache-2.0
"""Clocks of nodes that are wrong, are set, drift or stand still: no head is torn by that, and what waits goes on. Where nothing says how
right a clock is, the node says so, and what to do."""
import json
import os
import random
import time

import pytest

import rig
import test_campaign as campaign
from wall_clock import WallClock

pytestmark = pytest.mark.timeout(300)
STEPS_S = ["300", "-300", "3", "-3", "0.4", "-0.4", "0", "0 0.05", "0 -0.05", "86400"]  # and drifts


@pytest.fixture
def node(on_remote, clock_library, shared, directory):
    """A node, not yet mounted, whose daemons have a clock of their own. Unless said otherwise, nobody sets that."""
    def make(settings=(), **options):
        mount = on_remote(shared, **{"nodes": True, "writeback_delay": "50ms", "lease": "20s", **options})
        path = os.path.join(directory, f"offset-{id(mount)}")
        mount.clock = WallClock(mount, clock_library, path, **{"CLOCK_KERNEL": "none", **dict(settings)})
        mount.shared = shared
        return mount

    return make


# ---------------------------------------------------------------- a job

def trouble(job, clocks, rng, until, place, steps):
    """Sets clocks, and has daemons stand still and die."""
    while time.monotonic() < until:
        node = rng.choice(job.nodes)
        what = rng.choice([*steps, "stand", "kill"])
        place.say(f"{what} {node.number}")
        if what == "kill":
            node.mount.kill9()
            node.mount.mount(step=0.1)
        elif what == "stand":
            node.mount.pause()
            time.sleep(rng.uniform(1, 4))
            node.mount.go_on()
        else:
            clocks[node.number].set(what)
        job.check_running()
        time.sleep(rng.uniform(0.5, 4))


def run_job(job, clocks, rng, seconds, place, steps_s):
    until = time.monotonic() + seconds
    job.start()
    try:
        trouble(job, clocks, rng, until, place, steps_s)
        steps = job.steps
        rig.poll(lambda: job.check_running() or job.steps > steps + 1, 60, "changes to go on after the last trouble")
        job.end()
        campaign.end_nodes(job)
    finally:
        print("\n".join(place.log))


@pytest.fixture
def job_on(request, rng):
    def make(mounts):
        job = campaign.Job(random.Random(rng.random()))
        request.addfinalizer(lambda: campaign.finish(job))
        for mount in mounts:
            job.add(mount.mount())
        return job

    return make


@pytest.mark.pieces(4)
@pytest.mark.parametrize("says", ["none", "0.02"])
def test_clocks_that_are_set_and_drift(node, job_on, directory, rng, full, says, piece):
    """Whatever the wall clocks say, and whatever the kernel says of them: the nodes go by the clock of the remote."""
    mounts = [node({"CLOCK_KERNEL": says}) for _ in range(3)]
    for mount in mounts:
        mount.clock.set(rng.choice(STEPS_S))
    job, place = job_on(mounts), campaign.Place(mounts[0].shared)
    run_job(job, [mount.clock for mount in mounts], rng, 60 if full else 15, place, STEPS_S)
    heads = campaign.check_heads(job, mounts[0], mounts[0].shared, directory, 200 if full else 30)
    campaign.check_end(job, mounts[0].shared, directory)
    print(f"{job.steps} steps, {heads} heads")
    assert heads > 2


SHARED_STEPS_S = ["6", "3", "0.2", "0", "-0.1", "-3", "20"]


@pytest.mark.pieces(4)
def test_the_clock_of_the_machine_is_set(node, job_on, directory, rng, full, piece):
    """All daemons see it, the files' times have it, and nobody vouches for it. One that was set back comes again to rounds that are told."""
    mounts = [node({"CLOCK_STAMPS": "1"}) for _ in range(3)]
    for mount in mounts[1:]:
        mount.env["CLOCK_OFFSET"] = mounts[0].clock.path
    job, place = job_on(mounts), campaign.Place(mounts[0].shared)
    run_job(job, [mounts[0].clock] * 3, rng, 60 if full else 15, place, SHARED_STEPS_S)
    heads = campaign.check_heads(job, mounts[0], mounts[0].shared, directory, 200 if full else 30)
    campaign.check_end(job, mounts[0].shared, directory)
    print(f"{job.steps} steps, {heads} heads")
    assert heads > 1


# ---------------------------------------------------------------- what is said

def told(mount):
    return mount.status()["remote"]["nodes"].get("trouble", "")


FOREIGN = {"CLOCK_FOREIGN": "1"}  # a filesystem that takes times from its clients


def test_a_clock_of_which_nothing_is_known(node):
    """No round is told: names show nowhere else, and status, the list of nodes and the log say what to do."""
    mount = node(FOREIGN).mount()
    rig.write_file(os.path.join(mount.mnt, "file"), b"x")
    rig.poll(lambda: "clock" in told(mount), 30, "the status to tell of the clock")
    assert "-o clock_error=" in told(mount) and "chrony" in told(mount)
    assert "clock_error" in mount.verb("nodes", mount.mnt).stdout
    assert "clock_error" in mount.log()
    done = mount.cairn("wait", mount.mnt, "--level", "remote", "--timeout", "8s")
    assert done.returncode == 3, done
    assert not mount.shared.names("feeds")


@pytest.mark.parametrize("how", ["kernel", "hand"])
def test_a_clock_of_which_somebody_knows(node, how):
    settings = {**FOREIGN, "CLOCK_KERNEL": "0.02" if how == "kernel" else "none"}
    mount = node(settings, **({"clock_error": "50ms"} if how == "hand" else {})).mount()
    rig.write_file(os.path.join(mount.mnt, "file"), b"x")
    mount.wait_remote()
    assert not told(mount)


def test_a_clock_that_is_set_is_told(node):
    """Once for each step; changes go on."""
    mount = node().mount()
    mount.wait_remote()
    mount.clock.set("300")
    rig.poll(lambda: "a clock was set by +300" in mount.log(), 30, "the log to tell of the step")
    rig.write_file(os.path.join(mount.mnt, "file"), b"x")
    mount.wait_remote()
    mount.clock.set("0")
    rig.poll(lambda: "a clock was set by -300" in mount.log(), 30, "the log to tell of the step back")
    rig.write_file(os.path.join(mount.mnt, "more"), b"x")
    mount.wait_remote()


def test_a_clock_that_lies(node):
    """The kernel vouches for it, and the remote says otherwise."""
    mount = node({"CLOCK_KERNEL": "0.02"})
    mount.clock.set("-63")
    mount.mount()
    rig.write_file(os.path.join(mount.mnt, "file"), b"x")
    mount.wait_remote()
    assert "the clock of this machine is 6" in mount.log() and "behind that of dir:" in mount.log()
    assert not told(mount)


def test_markers_of_clocks_that_lie(node):
    """Nothing tells the time, and a clock that is six seconds behind passes for right. A marker is in no head without the file that it lies
    behind, as its hint says, and the log names the two nodes."""
    a, b = node({**FOREIGN, "CLOCK_KERNEL": "0.02"}), node({**FOREIGN, "CLOCK_KERNEL": "0.02"})
    a.clock.set("-6")
    for mount in (a, b):
        mount.mount()
        rig.write_file(os.path.join(mount.mnt, f"first-{mount is a}"), b"first")
        mount.wait_remote()
    for step in range(8):
        rig.write_file(os.path.join(b.mnt, f"shard{step}"), os.urandom(100))
        os.setxattr(a.mnt, "user.cairn.behind", b"1 " + os.getxattr(b.mnt, "user.cairn.newest"))
        rig.write_file(os.path.join(a.mnt, f"marker{step}"), b"done")
        time.sleep(0.9)  # so that rounds come between
    for mount in (a, b):
        mount.wait_remote()
    assert "contradict each other" in a.log() + b.log()
    heads = campaign.heads_of(a.shared)
    for number in heads:
        copy = campaign.at_head(a.shared, number)
        names = campaign.listed(a, copy)[0].keys()
        assert all(f"shard{name.removeprefix('marker')}" in names for name in names if name.startswith("marker")), (number, names)
        copy.wipe()
    assert len(heads) > 1 and "marker7" in names
    with pytest.raises(OSError, match="Invalid argument"):
        os.setxattr(a.mnt, "user.cairn.behind", b"1 x")
    assert os.listxattr(a.mnt) == []


def test_a_clock_that_is_ahead_is_named_by_the_others(node):
    """Nothing tells its node the time. But its feeds are there before their rounds, by the times of the files."""
    a, b = node({**FOREIGN, "CLOCK_KERNEL": "0.02"}), node({**FOREIGN, "CLOCK_KERNEL": "0.02"})
    b.clock.set("6")
    for mount in (a, b):
        mount.mount()
        rig.write_file(os.path.join(mount.mnt, f"of-{mount is a}"), b"x")
    said = lambda: [line for mount in (a, b) for line in mount.log().splitlines() if "ahead of that of the remote" in line]
    rig.poll(said, 60, "the node to be named")
    assert all(f":{b.store} pid" in line for line in said()), said()
    for mount in (a, b):
        mount.wait_remote()


def test_a_daemon_that_stood_still(node):
    mount = node().mount()
    mount.wait_remote()
    mount.pause()
    time.sleep(3)  # longer than the second after which a pause is noticed
    mount.go_on()
    rig.poll(lambda: "stood still for" in mount.log(), 30, "the log to tell of the pause")
    rig.write_file(os.path.join(mount.mnt, "file"), b"x")
    mount.wait_remote()


def error_of(mount):
    """Of this node's clock, as it told it to the others; seconds, or None."""
    return json.loads(mount.verb("nodes", "--json", mount.mnt).stdout)["nodes"][0].get("clock_error_s")


@pytest.mark.parametrize("says", ["none", "0.02"])
def test_a_clock_by_the_seconds_of_a_server(on_remote, s3, clock_library, directory, says):
    """Whatever the wall clock says: a bucket tells the time as well as is needed."""
    mount = on_remote(s3, nodes=True, lease="20s", writeback_delay="50ms")
    mount.clock = WallClock(mount, clock_library, os.path.join(directory, "offset"), CLOCK_KERNEL=says)
    mount.clock.set("63" if says == "none" else "0")
    mount.mount()
    rig.write_file(os.path.join(mount.mnt, "file"), b"x")
    mount.wait_remote()
    most = 0.25 if says == "none" else 0.06  # the clock is slewed there
    rig.poll(lambda: 0.05 <= (error_of(mount) or 1) <= most, 60, "the others to be told how right the clock is")
