# SPDX-License-Identifier: Apache-2.0
"""What is missing is said at the start, or costs no more than a wait: the library, torch."""
import os

import pytest

import rig

TRAINING = """
import os, sys, torch, cairnfs
model = torch.nn.Linear(300, 300)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 300)).sum().backward()
optimizer.step()
os.chdir(sys.argv[1])
save = cairnfs.save({"model": model.state_dict(), "step": 1}, "state.pt")
assert save.published() and save.wait("copied") and save.exception() is None and not save.storages
cairnfs.marker("latest", "state.pt")
cairnfs.marker("latest", b"state.pt, again")
try:
    cairnfs.marker("latest", "x", replace=False)
except FileExistsError:
    print("exclusive")
optimizer.step()
cairnfs.fence()
cairnfs.wait()
assert torch.load("state.pt")["step"] == 1 and open("latest").read() == "state.pt, again"
assert sorted(os.listdir()) == ["latest", "state.pt"], os.listdir()
"""
OTHERS = """
import os, sys, torch, cairnfs.safetensors, cairnfs.dcp, torch.distributed.checkpoint as dcp
os.chdir(sys.argv[1])
cairnfs.safetensors.save({"x": torch.ones(100_000)}, "x.safetensors").result()
writer = cairnfs.dcp.Writer("step")
dcp.save({"x": torch.ones(100_000)}, storage_writer=writer)
writer.wait()
found = {"x": torch.zeros(100_000)}
dcp.load(found, checkpoint_id="step")
assert found["x"].sum() == 100_000
"""

DURABLE = """
import os, sys, torch, cairnfs
synced, fsync = [], os.fsync
os.fsync = lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
path = os.path.realpath(os.path.join(sys.argv[1], "state.pt"))
save = cairnfs.save({"x": torch.ones(9)}, path).wait("nvme")
assert synced == [path, os.path.dirname(path)], synced
try:
    save.wait("remote")
except OSError as why:
    print(why)
"""

RUN = "import sys, cairnfs.run\nsys.argv[0] = 'cairnfs.run'\nsys.exit(cairnfs.run.main())"
INSTALL = """
import torch, cairnfs
before = torch.save
try:
    cairnfs.install()
except OSError as why:
    print(why, torch.save is before)
"""
NO_TORCH = """
import sys
sys.modules["torch"] = None
try:
    import cairnfs
except ModuleNotFoundError as why:
    print(why)
"""


@pytest.fixture
def run(package, python):
    def run(program, *arguments, library="/nowhere/libcairn.so.0"):
        return python.run(program, arguments, {"CAIRN_LIBRARY": library})

    return run


def test_run_fails_at_its_start(run, directory):
    """Before the first line of the program, by a line that says what to do."""
    rig.write_file(script := os.path.join(directory, "train.py"), b"print('begun')")
    done = run(RUN, script)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "cannot load libcairn.so.0" in done.stderr and "set $CAIRN_LIBRARY" in done.stderr, done.stderr


def test_install_fails_at_once(run):
    """It raises, and torch.save is as before."""
    done = run(INSTALL)
    assert done.returncode == 0 and "/nowhere/libcairn.so.0" in done.stdout and done.stdout.endswith(" True\n"), done.stderr


def test_another_version_of_the_library(run, directory):
    """It lacks a function: said as what it is."""
    other = os.path.join(directory, "other.so")
    rig.run("cc", "-shared", "-o", other, "-xc", "/dev/null")
    done = run(RUN, "train.py", library=other)
    assert done.returncode == 1 and "is of another version of CairnFS than this package" in done.stderr, done.stderr


@pytest.mark.parametrize("program", [TRAINING, OTHERS], ids=["torch", "others"])
def test_saves_go_on_without_it(run, directory, program):
    """torch, safetensors and torch's writer of DCP write the files before the calls return; one line says why. Markers are written, too."""
    done = run(program, directory)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot load libcairn.so.0") == 1, done.stderr
    assert done.stdout == ("exclusive\n" if program is TRAINING else "")


def test_a_wait_for_nvme_makes_it_durable(run, directory):
    """A file that torch wrote is not durable because the call returned."""
    done = run(DURABLE, directory)
    assert done.returncode == 0 and "not on CairnFS: there is no remote" in done.stdout, done.stderr


def test_without_torch(run):
    """The package says what it needs."""
    done = run(NO_TORCH)
    assert "cairnfs needs PyTorch 2.4 or later" in done.stdout, done.stderr
