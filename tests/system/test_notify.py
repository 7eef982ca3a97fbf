# SPDX-License-Identifier: Apache-2.0
"""What a service manager is told (systemd's notification protocol), on a real socket."""
import contextlib
import os
import socket

import pytest

import rig
import successor

pytestmark = pytest.mark.needs_mount


class Manager:
    """Listens as a service manager does, at a path or at a name in the abstract namespace."""

    def __init__(self, address):
        self.address, self.told = address, []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(200)

    def hear(self, word):
        """All lines up to one that begins with the word."""
        while not any(line.startswith(word) for line in self.told):
            self.told += self.socket.recv(65536).decode().split("\n")
        return self.told

    def rest(self):
        self.socket.settimeout(0.2)
        try:
            while True:
                self.told += self.socket.recv(65536).decode().split("\n")
        except TimeoutError:
            return self.told


@pytest.fixture
def managed(request, cairn, directory):
    """managed(address): a manager, and the mount whose daemon is told of it."""

    def make(address):
        manager = Manager(address)
        request.addfinalizer(manager.socket.close)
        cairn.env = {**os.environ, "NOTIFY_SOCKET": address}
        return manager, cairn

    return make


@pytest.mark.parametrize("where", ["path", "abstract"])
def test_ready_when_usable(managed, directory, where):
    """READY comes when the mount answers, not before; the end begins with STOPPING."""
    manager, cairn = managed(f"{directory}/notify" if where == "path" else f"@cairn-test-{os.path.basename(directory)}")
    cairn.start()
    told = manager.hear("READY=1")
    assert cairn.answers(), "READY before the mount answered"
    assert f"STATUS={cairn.store} is mounted at {cairn.mnt}" in told and "STOPPING=1" not in told
    rig.write_file(cairn.mnt + "/file", b"content")
    cairn.proc.terminate()
    assert cairn.reap() == 0
    assert "STOPPING=1" in manager.rest() and not rig.mounted_at(cairn.mnt)


def test_more_time_while_it_carries(managed, directory):
    """With a slow disk the end says how much is left, and asks for more time as long as that falls."""
    manager, cairn = managed(f"{directory}/notify")
    # The limit is lifted at the end; a delay keeps all of it in the stage until then.
    cairn.mount(writeback_delay="10m", stage="512M")
    rig.write_file(cairn.mnt + "/file", rig.noise("sealed", 200 * rig.MIB))
    cairn.proc.terminate()
    assert cairn.reap() == 0
    told = manager.rest()
    left = [int(line.split()[1]) for line in told if line.startswith("STATUS=stopping:")]
    assert left and left == sorted(left, reverse=True) and left[0] > 0, told
    assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in told)


def test_a_death_and_what_goes_on(request, mount_factory, directory):
    """The daemons tell, not their holder: the next one says of what the one before died, and when it serves."""
    manager = Manager(f"{directory}/notify")
    request.addfinalizer(manager.socket.close)
    kept = mount_factory(directory, kind=successor.Kept, successor="on", crash_window="1h", request=request)
    kept.env = {**os.environ, "NOTIFY_SOCKET": manager.address}
    kept.mount()
    manager.hear("READY=1")
    for _ in range(2):
        manager.told.clear()
        kept.kill_daemon()
        told = manager.hear("READY=1")
        assert told[0] == "STATUS=starting: the daemon died (signal 9); its successor takes over the mount", told
        assert f"STATUS={kept.store} is mounted at {kept.mnt}" in told
    kept.umount()


def test_failed_start_says_why(managed, directory):
    """No READY, and the reason as the status."""
    manager, cairn = managed(f"{directory}/notify")
    rig.write_file(cairn.store + "/superblock", b"x" * 4096)
    os.chmod(cairn.store, 0o700)
    cairn.start()
    told = manager.hear("STATUS=failed")
    assert cairn.reap() != 0 and "READY=1" not in told
    assert "superblock" in told[-1], told


def test_status_of_a_start_that_waits(managed, directory):
    """A mount that waits for another's lease says so before it is ready."""
    manager, cairn = managed(f"{directory}/notify")
    remote = f"dir:{directory}/remote"
    first = cairn.make(os.path.join(directory, "first"))
    with contextlib.closing(first):
        first.mount(remote=remote, lease="3s")
        first.write("file", b"content", "remote")
        first.kill9()
        cairn.start(remote=remote, lease="3s")
        told = manager.hear("READY=1")
        waits = [line for line in told if line.startswith("STATUS=starting:")]
        assert waits and told.index(waits[0]) < told.index("READY=1"), told


def test_nobody_there(cairn, directory):
    """A socket that is gone, or no address at all, is no reason not to mount."""
    for address in (f"{directory}/gone", "nonsense", "/" + "x" * 200):
        cairn.env = {**os.environ, "NOTIFY_SOCKET": address}
        cairn.mount()
        assert "cannot notify the service manager" in cairn.log()
        cairn.umount()


def test_only_the_service_itself_tells(managed, directory):
    """A mount in the background is not the service: it keeps silent."""
    manager, cairn = managed(f"{directory}/notify")
    options = f"stage_dir={cairn.stage_dir},stage=64M"
    assert cairn.cairn("mount", cairn.store, cairn.mnt, "-o", options).returncode == 0
    assert manager.rest() == []
    assert cairn.cairn("umount", cairn.mnt).returncode == 0
