# SPDX-License-Identifier: Apache-2.0
"""Two ranks of torch.distributed under CAIRN_LAZY=1."""
import contextlib
import json
import os
import tempfile
import time

import rig
from processes import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
RANK = """
import runpy, sys, warnings
import torch, cairnfs
warnings.simplefilter("ignore")
torch.set_num_threads(1)
cairnfs.install()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Job:
    """Two ranks of a script, as cairnfs.run has them with CAIRN_LAZY=1."""

    def __init__(self, mnt, elsewhere, python):
        self.mnt, self.elsewhere, self.python = mnt, elsewhere, python
        self.environment = {"CAIRN_LAZY": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "ELSEWHERE": elsewhere}

    @contextlib.contextmanager
    def start(self, rank, port, script, *arguments, **environment):
        """The process of a rank, which has ended when the context has."""
        own = {**self.environment, "RANK": str(rank), "MASTER_PORT": str(port), **environment}
        process = self.python.start(RANK, [script, self.mnt, *map(str, arguments)], own)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            process.close()

    @contextlib.contextmanager
    def ranks(self, *arguments, script=os.path.join(HERE, "meeting.py"), **environment):
        """The processes of both ranks. By what they meet elsewhere no other ranks have met."""
        port = free_port()
        own = {"ELSEWHERE": tempfile.mkdtemp(dir=self.elsewhere), **environment}
        with self.start(0, port, script, *arguments, **own) as one, self.start(1, port, script, *arguments, **own) as other:
            yield one, other

    def script(self, code):
        """A script of a few lines."""
        path = rig.write_file(os.path.join(self.elsewhere, "ranks.py"), code.encode())
        return path

    def run(self, *arguments):
        """[(way, act)] after which the shard of rank 1 was missing, all of them, and the codes of the ranks. `lazy`: those that rank 1 met
        while its save was under way."""
        with self.ranks(*arguments) as ranks:
            lines, others = (lines_of(rank) for rank in ranks)
            codes = [rank.wait(rig.PATIENCE * 30) for rank in ranks]
        self.lazy = [line["way"] for line in others if line["lazy"]]
        found = [(line["way"], line["act"]) for line in lines]
        return [pair for pair, line in zip(found, lines) if not line["there"]], found, codes

    def kill_within(self, way, seconds):
        """Kills both ranks so long after rank 1 has called torch.save; what is left of the names."""
        with self.ranks(way, "open", "tells") as ranks:
            assert next_line(ranks[1]) == {"saved": True}
            time.sleep(seconds)
            for rank in ranks:
                rank.kill()
        return self.take_names()

    def take_names(self):
        """Empties the directory, and returns what was there, without hidden names."""
        left = sorted(os.listdir(self.mnt))
        for name in left:
            os.remove(os.path.join(self.mnt, name))
        return [name for name in left if not name.startswith(".")]


def next_line(rank):
    """What it says next; None: it has ended."""
    return next((json.loads(line) for line in rank.stdout if line.startswith("{")), None)


def lines_of(rank):
    """What it says until it ends."""
    return [json.loads(line) for line in rank.stdout if line.startswith("{")]
