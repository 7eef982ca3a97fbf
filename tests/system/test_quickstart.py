# SPDX-License-Identifier: Apache-2.0
"""mount-scripts/quickstart: the part that brings a deleted checkpoint back."""
import os
import shutil
import subprocess

import pytest

import remote as remotes
import rig
from sources import ROOT

pytestmark = pytest.mark.needs_mount


def test_undelete(on_remote, directory):
    """As it stands there, on a mount with a checkpoint."""
    cairn = on_remote(remotes.DirRemote(os.path.join(directory, "remotes"))).mount()
    os.makedirs(os.path.join(cairn.mnt, "run", "step-20"))
    rig.write_file(os.path.join(cairn.mnt, "run", "latest"), "step-20\n")
    rig.write_file(os.path.join(cairn.mnt, "run", "step-20", "checkpoint.pt"), rig.seeded_bytes(1, 5_000_000))
    scripts = shutil.copytree(os.path.join(ROOT, "mount-scripts"), os.path.join(directory, "mount-scripts"))
    path = os.path.join(scripts, "quickstart")
    script = rig.read_text(path)
    assert script.endswith('\nmain "$@"\n')
    rig.write_file(path, script.removesuffix('main "$@"\n'))
    done = subprocess.run(["bash", "-c", f'source {path}; cairn=$1 mnt=$2 dir=$3; log=$3/log; undelete', "bash", os.path.abspath(cairn.binary),
                           cairn.mnt, directory], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "and it is the same, byte for byte" in done.stdout, done.stdout + done.stderr
    assert rig.read_file(os.path.join(cairn.mnt, "run", "step-20", "checkpoint.pt")) == rig.seeded_bytes(1, 5_000_000)
