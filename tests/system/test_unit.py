"""The systemd unit: what it takes from the daemon, the daemon does not need. (That systemd accepts it: test_install.)"""
import os
import re
import shutil
import sys

import pytest

import rig

pytestmark = pytest.mark.needs_mount

UNIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "mount-scripts", "cairnfs@.service.in")
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1

WRAPPER = """#!{python}
import ctypes, os, sys
if ctypes.CDLL(None).prctl({set_mdwe}, {refuse}, 0, 0, 0) != 0:
    print("no MDWE here", file=sys.stderr)
os.execv("/usr/bin/env", ["env", "setpriv", "--no-new-privs", "--inh-caps", "-all", "--bounding-set", {caps!r}, {binary!r}, *sys.argv[1:]])
"""


@pytest.fixture
def unit():
    with open(UNIT) as file:
        return dict(line.split("=", 1) for line in re.findall(r"^\w+=.*$", file.read(), re.M))


def test_works_with_what_the_unit_leaves(unit, cairn, folder):
    """Mount, write, a remote, a reader of another user, and an orderly end: with the unit's capabilities alone, no new privileges,
    and no memory that is written and executed."""
    if not shutil.which("setpriv"):
        pytest.skip("skipped: setpriv is not installed")
    assert unit["NoNewPrivileges"] == unit["MemoryDenyWriteExecute"] == "yes"
    caps = ",".join(["-all", *("+" + name.removeprefix("CAP_").lower() for name in unit["CapabilityBoundingSet"].split())])
    wrapper = os.path.join(folder, "cairn")
    with open(wrapper, "w") as file:
        file.write(WRAPPER.format(python=sys.executable, set_mdwe=PR_SET_MDWE, refuse=PR_MDWE_REFUSE_EXEC_GAIN, caps=caps, binary=cairn.binary))
    os.chmod(wrapper, 0o755)
    real, cairn.binary = cairn.binary, wrapper
    cairn.mount(remote=f"dir:{folder}/remote")
    cairn.binary = real
    with open(f"/proc/{cairn.proc.pid}/status") as file:
        status = dict(line.split(":", 1) for line in file.read().splitlines())
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) < 1 << 32 and int(status["NoNewPrivs"]) == 1
    os.chmod(folder, 0o755)
    rig.write_file(cairn.mnt + "/file", os.urandom(30 * rig.MIB))
    os.chown(cairn.mnt + "/file", 65534, 65534)
    cairn.wait(cairn.mnt + "/file", level="remote")
    assert rig.in_child(read_as_nobody, cairn.mnt + "/file") == 30 * rig.MIB
    cairn.proc.terminate()
    assert cairn.reap() == 0 and cairn.fsck().returncode == 0


def read_as_nobody(path):
    os.setgroups([])
    os.setuid(65534)
    return len(rig.read_file(path))


def test_leaves_the_mount_to_others(unit):
    """Nothing that gives the service a mount namespace of its own: the mount would be seen by nobody else."""
    private = re.compile(
        r"Protect(System|Home|KernelTunables|KernelModules|KernelLogs|ControlGroups|Proc|Clock)|Private|ReadOnlyPaths|ReadWritePaths|"
        r"InaccessiblePaths|TemporaryFileSystem|Bind|Root|MountFlags|MountAPIVFS|DynamicUser|ProcSubset|(State|Cache|Runtime|Logs)Directory"
    )
    assert [key for key in unit if private.match(key)] == []
    assert unit["KillMode"] == "mixed" and unit["DeviceAllow"] == "/dev/fuse rw"
