# SPDX-License-Identifier: Apache-2.0
"""How far down a save is: wait() for the remote, and what it shows meanwhile."""
import errno
import io
import os
import re
import sys

import pytest
import torch

import rig

pytestmark = pytest.mark.needs_mount
COUNT, SIZE = 3, 4 * rig.MIB


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("what", ["all", "directory", "file"])
def test_wait_for_the_remote(lane, on_remote, monkeypatch, what):
    """What is saved is in the directory of the remote when wait() returns; a bar shows how far it is. Nothing but the wait hurries the
    mount."""
    cairn = on_remote(writeback_delay="10m")
    cairn.mount()
    os.mkdir(step := os.path.join(cairn.mnt, "step"))
    names = [os.path.join(step, f"{number}.pt") for number in range(COUNT if what != "file" else 1)]
    for name in names:
        lane.save({"x": torch.randint(256, (SIZE,), dtype=torch.uint8)}, name)
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    monkeypatch.setattr("cairnfs._levels.PATIENCE", 0)
    lane.wait({"all": None, "directory": step, "file": names[0]}[what], level="remote")
    for name in names:
        assert os.getxattr(name, "user.cairn.level") == b"remote"
    assert sum(cairn.remote.names().values()) >= SIZE * len(names)
    bars = re.findall(r"\rcairnfs: \[#* *\] +(\d+) % of 0.0\d GB, remote: (\d) of (\d) files", shown.getvalue())
    percents = [int(percent) for percent, _, _ in bars]
    assert percents == sorted(percents) and percents[-1] == 100 and bars[-1][1] == bars[-1][2], shown.getvalue()
    assert len(set(percents)) > 1, "it was there before anything was shown"


def test_no_remote(lane, directory, mnt):
    """Where there is none, waiting for it is an error at once."""
    for place in (mnt, directory):
        save = lane.save({"x": torch.ones(1000)}, path := os.path.join(place, "state.pt"))
        for wait in (lambda: save.wait("remote"), lambda: lane.wait(path, level="remote"), lambda: lane.wait(place, level="remote")):
            with rig.fails(errno.ENODATA):
                wait()
