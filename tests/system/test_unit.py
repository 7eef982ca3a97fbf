# SPDX-License-Identifier: Apache-2.0
"""The systemd unit: what it takes from the daemon, the daemon does not need. (That systemd accepts it: test_install.)"""
import json
import os
import re
import shutil
import signal
import subprocess
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
    return dict(line.split("=", 1) for line in re.findall(r"^\w+=.*$", rig.read_text(UNIT), re.M))


def test_works_with_what_the_unit_leaves(unit, cairn, directory):
    """Mount, write, a remote, a reader of another user, and an orderly end: with the unit's capabilities alone, no new privileges,
    and no memory that is written and executed."""
    if not shutil.which("setpriv"):
        pytest.skip("skipped: setpriv is not installed")
    assert unit["NoNewPrivileges"] == unit["MemoryDenyWriteExecute"] == "yes"
    caps = ",".join(["-all", *("+" + name.removeprefix("CAP_").lower() for name in unit["CapabilityBoundingSet"].split())])
    wrapper = os.path.join(directory, "cairn")
    with open(wrapper, "w") as file:
        file.write(WRAPPER.format(python=sys.executable, set_mdwe=PR_SET_MDWE, refuse=PR_MDWE_REFUSE_EXEC_GAIN, caps=caps,
                                  binary=cairn.binary))
    os.chmod(wrapper, 0o755)
    real, cairn.binary = cairn.binary, wrapper
    cairn.mount(remote=f"dir:{directory}/remote")
    cairn.binary = real
    status = dict(line.split(":", 1) for line in rig.read_text(f"/proc/{cairn.proc.pid}/status").splitlines())
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) < 1 << 32 and int(status["NoNewPrivs"]) == 1
    os.chmod(directory, 0o755)
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
    """Nothing that gives the service a mount namespace of its own: no other process would see the mount."""
    private = re.compile(
        r"Protect(System|Home|KernelTunables|KernelModules|KernelLogs|ControlGroups|Proc|Clock)|Private|ReadOnlyPaths|ReadWritePaths|"
        r"InaccessiblePaths|TemporaryFileSystem|Bind|Root|MountFlags|MountAPIVFS|DynamicUser|ProcSubset|(State|Cache|Runtime|Logs)Directory"
    )
    assert [key for key in unit if private.match(key)] == []
    assert unit["KillMode"] == "mixed" and unit["DeviceAllow"] == "/dev/fuse rw"


def test_tries_again_for_as_long_as_it_takes(unit):
    """But not after wrong usage (code 1 of mount: tests/mount/test_bad_input.py)."""
    assert unit["Restart"] == "on-failure" and unit["RestartPreventExitStatus"] == "1"
    assert unit["StartLimitIntervalSec"] == "0" and int(unit["RestartSec"].removesuffix("s")) >= 2


# An instance of systemd for a user, root: it takes its cgroup as given, and starts nothing else of the machine's.
MANAGER = r"""
set -e
for tree in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    [ ! -w "$tree/cgroup.procs" ] || { mkdir -p "$tree/$1"; echo $$ >"$tree/$1/cgroup.procs"; }
done
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user
exec env HOME="$2" XDG_RUNTIME_DIR=/run/user XDG_CONFIG_HOME="$2" /lib/systemd/systemd --user --unit=basic.target
"""


class Manager:
    def __init__(self, machine):
        self.machine, self.group = machine, f"cairn-test-{os.getpid()}"
        self.config = os.path.join(machine.root, "config")
        os.makedirs(machine.path(self.config + "/systemd/user"))
        inside = ["nsenter", f"--mount=/proc/{machine.holder.pid}/ns/mnt", "--"]
        self.proc = subprocess.Popen([*inside, "bash", "-c", MANAGER, "bash", self.group, self.config],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def ctl(self, *words, code=0):
        return self.machine.run("env", "XDG_RUNTIME_DIR=/run/user", "systemctl", "--user", *words, code=code)

    def runs(self):
        return self.proc.poll() is not None or self.ctl("list-units", code=None).returncode == 0

    def value(self, service, name):
        return self.ctl("show", "-p", name, "--value", service).stdout.strip()

    def close(self):
        self.proc.terminate()
        self.proc.wait(200)
        for tree in ("", "/systemd", "/unified"):
            for path, _, _ in os.walk(f"/sys/fs/cgroup{tree}/{self.group}", topdown=False):
                os.rmdir(path)


@pytest.fixture
def manager(machine, request):
    if not os.path.exists("/lib/systemd/systemd"):
        pytest.skip("skipped: systemd is not installed")
    made = Manager(machine)
    request.addfinalizer(made.close)
    rig.poll(made.runs, 30, "systemd")
    if made.proc.poll() is not None:
        why = made.proc.stderr.read().decode().strip()
        assert "cgroup" in why.lower() or "control group" in why.lower(), why
        pytest.skip("skipped: no control groups for an instance of systemd: " + why)
    return made


def child_of(pid):
    """The daemon of a holder, or None."""
    children = rig.read_text(f"/proc/{pid}/task/{pid}/children").split()
    return int(children[0]) if children else None


def test_run_by_systemd(manager, machine, binary):
    """Started when it is usable, with the capabilities of the unit. The daemon's death is a pause, and so is a reload; the holder's is a
    new start. Drained when it is stopped."""
    text = rig.read_text(UNIT).replace("@sysconfdir@", manager.config).replace("@bindir@", os.path.dirname(binary))
    rig.write_file(machine.path(manager.config + "/systemd/user/cairnfs@.service"), text.encode())
    instance = machine.run("systemd-escape", "--path", machine.mnt).stdout.strip()
    configured = machine.path(f"{manager.config}/cairnfs{machine.mnt}.conf")
    os.makedirs(os.path.dirname(configured))
    settings = f"STORE={machine.store}\nOPTIONS=stage=64M,stage_dir={machine.stage_dir},writeback_delay=1h\n"
    rig.write_file(configured, settings.encode())
    service = f"cairnfs@{instance}.service"
    manager.ctl("daemon-reload")
    assert manager.value(service, "NotifyAccess") == "all" and manager.value(service, "OOMPolicy") == "continue"
    manager.ctl("start", service)
    assert machine.mnt in machine.mounts(), "it is there when systemd says so"
    assert "is mounted at" in manager.value(service, "StatusText")
    pid = int(manager.value(service, "MainPID"))
    status = dict(line.split(":", 1) for line in rig.read_text(f"/proc/{pid}/status").splitlines())
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) < 1 << 32 and int(status["NoNewPrivs"]) == 1
    machine.shell(f"echo staged >{machine.mnt}/file")
    with open(machine.path(machine.mnt + "/file"), "rb") as file:
        os.kill(child_of(pid), signal.SIGKILL)
        assert os.pread(file.fileno(), 100, 0) == b"staged\n"
        rig.poll(lambda: "is mounted at" in manager.value(service, "StatusText"), 30, "the word of the next daemon")
        manager.ctl("reload", service)
        assert os.pread(file.fileno(), 100, 0) == b"staged\n"
        seen = json.loads(machine.run("cairn-under-test", "status", machine.mnt, "--json").stdout)["mount"]["successor"]
        assert seen["deaths"] == seen["upgrades"] == 1 and seen["last_death"] == "signal 9" and seen["kept"], seen
        assert [manager.value(service, name) for name in ("ActiveState", "NRestarts", "MainPID")] == ["active", "0", str(pid)]
    os.kill(pid, signal.SIGKILL)
    rig.poll(lambda: manager.value(service, "NRestarts") == "1" and manager.value(service, "ActiveState") == "active", 30, "a new start")
    assert machine.shell(f"cat {machine.mnt}/file").stdout == "staged\n"
    manager.ctl("stop", service)
    assert not machine.mounts() and manager.value(service, "Result") == "success"
    shutil.rmtree(machine.stage_dir)
    os.mkdir(machine.stage_dir)
    manager.ctl("start", service)
    assert machine.shell(f"cat {machine.mnt}/file").stdout == "staged\n", "it was carried to NVMe"
    manager.ctl("stop", service)
