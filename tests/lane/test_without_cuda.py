# SPDX-License-Identifier: Apache-2.0
"""-Dcuda=disabled -Disal=disabled: the library that has nothing of CUDA and of isa-l in it saves what lies in the host's memory."""
import os
import shutil
import subprocess
import sys

import pytest

import rig

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

PROGRAM = """
import sys, torch, zipfile, cairnfs
model = torch.nn.Linear(300, 300)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.ones(2, 300)).sum().backward()
    optimizer.step()
    save = cairnfs.save({"model": model.state_dict(), "step": step}, sys.argv[1])
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
save.result()
assert zipfile.ZipFile(sys.argv[1]).testzip() is None
found = torch.load(sys.argv[1])
assert found["step"] == 2 and all(torch.equal(found["model"][name], kept[name]) for name in kept)
"""


@pytest.mark.timeout(300)
def test_a_library_without_cuda_and_isal(programs, directory):
    if not shutil.which("meson"):
        pytest.skip("skipped: meson is not installed")
    build = os.path.join(directory, "build")
    configure = ["meson", "setup", build, ROOT, "-Dcuda=disabled", "-Disal=disabled"]
    for command in (configure, ["ninja", "-C", build, "src/client/libcairn.so.0"]):
        rig.run(*command, timeout=280)
    library = os.path.join(build, "src", "client", "libcairn.so.0")
    assert b"libcuda" in rig.read_file(programs["CAIRN_LIBRARY"]) and b"libcuda" not in rig.read_file(library)
    assert b"libisal" not in rig.read_file(library)
    subprocess.run([sys.executable, "-c", PROGRAM, os.path.join(directory, "file.pt")], env={**programs, "CAIRN_LIBRARY": library},
                   check=True, timeout=200)
