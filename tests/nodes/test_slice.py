# SPDX-License-Identifier: Apache-2.0
"""The example of docs/several-nodes.md, as it stands there: two ranks of torch.distributed.checkpoint, each on a mount of its own. At
every union head a step's marker implies the shards of both ranks, and each mount loads the newest step; then rank 0 removes an old one."""
import os
import re
import shutil
import subprocess
import sys

import pytest

import processes
import rig
from sources import read

STEPS = 5
RANKS = 2


def program(name):
    """A block of the page."""
    page = read("docs/several-nodes.md")
    return re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", page, re.S).group(1)


def start_rank(rank, port, directory):
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                   "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", program("nodes"), directory], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def save_on(mounts):
    port = processes.free_port()
    ranks = [start_rank(rank, port, mount.mnt) for rank, mount in enumerate(mounts)]
    for rank in ranks:
        output, _ = rank.communicate(timeout=300)
        assert rank.returncode == 0, output


def at_head(remote, number):
    """The prefix as it was when this head was the newest: a copy without later ones."""
    copy = remote.copy()
    for name in copy.names("heads"):
        if re.fullmatch(r"heads/[0-9a-f]{16}", name) and int(name.split("/")[1], 16) > number:
            copy.delete(name)
    return copy


def steps_of(listing):
    """By step the names in it, as `ls -R` lists them."""
    steps, names = {}, set()
    for line in listing.splitlines():
        if match := re.fullmatch(r"/step(\d+):", line):
            names = steps.setdefault(int(match[1]), set())
        elif line.endswith(":"):
            names = set()
        else:
            names.add(line)
    return steps


def check_markers(steps):
    for step, names in steps.items():
        if ".metadata" in names:
            assert {f"__{rank}_0.distcp" for rank in range(RANKS)} <= names, f"step {step} has a marker, and only {names}"


@pytest.mark.always_s3
@pytest.mark.timeout(150)
def test_dcp_with_two_ranks_on_two_mounts(on_remote, remote, directory):
    nodes = [on_remote(remote, nodes=True, writeback_delay="50ms", gc_grace="1h").mount() for _ in range(RANKS)]
    reader = on_remote(remote, follow="1s")
    seen = set()
    save_on(nodes)
    reader.mount(ro=True)

    def complete():
        names = os.listdir(reader.mnt)
        seen.update(name for name in names if os.path.exists(os.path.join(reader.mnt, name, ".metadata")))
        return f"step{STEPS}" in seen

    rig.poll(complete, 60, "the last step")
    rig.poll(lambda: all(len(os.listdir(os.path.join(node.mnt, f"step{STEPS}"))) == RANKS + 1 for node in nodes), 60, "both nodes")
    for mount in (reader, *nodes):
        load = [sys.executable, "-c", program("nodes load"), mount.mnt, str(RANKS)]
        loaded = subprocess.run(load, capture_output=True, text=True, timeout=300)
        assert loaded.stdout == f"step{STEPS} [{STEPS}.0, {STEPS}.0]\n", loaded
    heads = sorted(remote.heads())
    assert heads == list(range(1, len(heads) + 1)), "all are there still"
    for number in heads:
        then = at_head(remote, number)
        listing = reader.verb("ls", *then.flags(), "-R", then.url + ":/").stdout
        check_markers(steps_of(listing))
        then.wipe()
    assert set(steps_of(listing)) == set(range(1, STEPS + 1))
    copied = os.path.join(directory, "copied")
    reader.verb("cp", *remote.flags(), "-r", f"{remote.url}:/step{STEPS}", copied)
    for rank in range(RANKS):
        name = f"__{rank}_0.distcp"
        assert rig.read_file(os.path.join(copied, name)) == rig.read_file(os.path.join(nodes[rank].mnt, f"step{STEPS}", name))
    shutil.rmtree(os.path.join(nodes[0].mnt, "step1"))
    for mount in (reader, *nodes):
        rig.poll(lambda mount=mount: "step1" not in os.listdir(mount.mnt), 60, "the end of an old step")
