# SPDX-License-Identifier: Apache-2.0
"""A job that its launcher starts anew when a node was lost: install() waits until the nodes take changes, and the job goes on."""
import errno
import os
import re
import subprocess
import sys

import pytest

import rig
from processes import free_port
from test_list import look
from test_lost_nodes import KeptNode, aside, at, save, see

LEASE_S = 40
STEPS = 12
PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "python"))

# Each rank saves on the mount of its node; rank 0 puts a marker behind all of them. It goes on from the newest one that its mount shows.
JOB = """
import os, sys, time
import cairnfs
import torch
import torch.distributed as dist
cairnfs.install()
dist.init_process_group("gloo")
directory, steps, pace = sys.argv[1 + dist.get_rank()], int(sys.argv[3]), float(sys.argv[4])
done = [int(name[6:]) for name in os.listdir(directory) if name.startswith("marker")]
newest = torch.tensor(max(done, default=0))
dist.all_reduce(newest, dist.ReduceOp.MIN)
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], "goes on from", newest.item(), flush=True)
for step in range(newest.item() + 1, steps + 1):
    torch.save(torch.full((1000,), float(step)), f"{directory}/step{step}-rank{dist.get_rank()}")
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save(step, f"{directory}/marker{step}")
    time.sleep(pace)
    dist.barrier()
dist.destroy_process_group()
"""

# One that began before, and calls install() after.
OLD = """
import os, sys
input()
import cairnfs
cairnfs.install()
try:
    open(sys.argv[1], "w").close()
except OSError as error:
    place = os.path.dirname(sys.argv[1])
    print(error.errno, os.getxattr(place, "user.cairn.settle"), place in cairnfs._mounts.places())
"""


@pytest.fixture
def environment(request, sanitized, directory):
    library = os.path.abspath(os.path.join(request.config.getoption("--build"), "src", "client", "libcairn.so.0"))
    if sanitized or not os.path.exists(library):
        pytest.skip("skipped: a sanitizer's library cannot be loaded into Python" if sanitized else f"skipped: {library} is not built")
    return {**os.environ, "PYTHONPATH": PACKAGE, "CAIRN_LIBRARY": library, "OMP_NUM_THREADS": "1", "TMPDIR": directory,
            # The agents' one store, which torchrun would share with the workers of each attempt, has the addresses of workers that died:
            # gloo connects to those, and a job of two agents hangs. A store of its own for each attempt has none.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def agent(environment, port, *words):
    """One of two agents of torchrun; each has one worker, which it starts in a session of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3",
               "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job", *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.timeout(600)
def test_a_job_of_torchrun_goes_on_by_itself(on_remote, remote, environment, directory):
    options = {"nodes": True, "writeback_delay": "50ms", "lease": f"{LEASE_S}s", "successor": "on"}
    mounts = a, b, c = [on_remote(remote, kind=KeptNode, **options).mount() for _ in range(3)]
    script = rig.write_file(os.path.join(directory, "job.py"), JOB.encode())
    for mount in mounts:
        save(mount, "of-" + os.path.basename(mount.root), b"first")
    for mount in mounts:
        for other in mounts:
            see(mount, "of-" + os.path.basename(other.root))
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    old = subprocess.Popen([sys.executable, "-c", OLD, at(a, "from-before")], env=environment, text=True, start_new_session=True, **pipes)
    port = free_port()
    agents = [agent(environment, port, script, a.mnt, b.mnt, STEPS, 2) for _ in range(2)]
    try:
        rig.poll(lambda: os.path.exists(at(a, "marker2")), 60, "the job to save")
        (stay,) = (one for one in look(a)["nodes"] if c.store in one["holder"])
        c.kill9()
        a.verb("nodes", "end", a.mnt, str(stay["epoch"]))
        said = [one.communicate(timeout=400)[0] for one in agents]
    finally:
        for one in agents:
            one.terminate()  # an agent that is killed leaves its worker
    if any(one.returncode for one in agents):
        pytest.fail("\n".join(said))  # whole: an assertion would cut it
    attempts = [re.findall(r"attempt (\d+) goes on from (\d+)", text) for text in said]
    # An agent that begins anew because the other one did does not count that: the numbers of attempts differ.
    assert attempts[0][-1][1] == attempts[1][-1][1] and min(map(len, attempts)) > 1, said
    for mount in (a, b):
        assert aside(mount) == ["1"]
        for name in [f"step{STEPS}-rank0", f"step{STEPS}-rank1", f"marker{STEPS}"]:
            see(mount, name)
    told, warned = old.communicate("\n", timeout=60)
    assert told.split()[0] == str(errno.EIO) and f"{a.mnt} takes no changes of this program" in warned, (told, warned)
    settled = [os.path.join(mount.store, "rejoined") for mount in (a, b)]
    if not all(map(os.path.exists, settled)):
        pytest.skip("skipped: the machine was too slow: a worker began after its node had opened, and had nothing to settle")
    assert all("\ngroup " in rig.read_text(path) for path in settled), said


# A directory with the attribute stands for the mount: asked by root, and then by somebody who may not write there.
OF_ANOTHER = """
import os, sys
from cairnfs import _settle
print(_settle.ask(sys.argv[1]))
os.setgroups([])
os.setgid(1234)
os.setuid(1234)
print(_settle.ask(sys.argv[1]))
"""


def test_a_mount_of_another_user_is_not_waited_for(directory, environment):
    rig.need_root()
    os.chmod(directory, 0o755)
    os.setxattr(directory, "user.cairn.settle", b"1 wait_ms=5000")
    done = subprocess.run([sys.executable, "-c", OF_ANOTHER, directory], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["5.0", "0"], done.stderr
