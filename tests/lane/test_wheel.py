# SPDX-License-Identifier: Apache-2.0
"""The wheel of python/: built from this tree, installed into an empty directory, used from there."""
import glob
import importlib.util
import os
import subprocess
import sys
import zipfile

import pytest

PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
PROGRAM = """
import os, sys, torch, cairnfs
from cairnfs import _library
top, path = sys.argv[1:]
assert os.path.dirname(os.path.dirname(cairnfs.__file__)) == top, cairnfs.__file__
assert _library.library()._name == os.path.join(top, "cairnfs", "libcairn.so.0"), _library.library()._name
model = torch.nn.Linear(300, 300)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 300)).sum().backward()
optimizer.step()
before = model.weight.detach().clone()
save = cairnfs.save(model.state_dict(), path)
assert save.storages, "not lazy"
optimizer.step()
cairnfs.wait()
assert torch.equal(torch.load(path)["weight"], before) and not torch.equal(before, model.weight)
import cairnfs.safetensors, cairnfs.dcp, cairnfs.run
"""


def pip(*arguments, **own):
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **own}
    done = subprocess.run([sys.executable, "-m", "pip", "-q", *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs_mount
def test_wheel(request, cairn, package, directory):
    """It carries every file of the package and the library, needs nothing of the tree, and saves and loads a file on a mount."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("skipped: no pip for this Python")
    cairn.mount()
    wheels, top = os.path.join(directory, "wheels"), os.path.join(directory, "top")
    build = os.path.abspath(request.config.getoption("--build"))
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", wheels, PYTHON, CAIRN_BUILD=build)
    [wheel] = glob.glob(wheels + "/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
        assert "\nRequires-Dist: torch>=2.4\n" in metadata and "\nProject-URL: " in metadata
        names = {name.partition("/")[2] for name in archive.namelist() if name.startswith("cairnfs/")}
    assert names == {name for name in os.listdir(os.path.join(PYTHON, "cairnfs")) if name.endswith((".py", ".typed"))} | {"libcairn.so.0"}
    pip("install", "--no-deps", "--target", top, wheel)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CAIRN_LIBRARY")}
    command = [sys.executable, "-c", PROGRAM, os.path.realpath(top), os.path.join(cairn.mnt, "state.pt")]
    done = subprocess.run(command, env={**clean, "PYTHONPATH": os.path.realpath(top)}, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = subprocess.run([sys.executable, "-m", "cairnfs.run", "--help"], env={**clean, "PYTHONPATH": top}, cwd=directory,
                           capture_output=True, text=True)
    assert again.returncode == 0 and "CAIRN_LAZY" in again.stdout, again
