# SPDX-License-Identifier: Apache-2.0
"""A node is lost: the union of all goes back to the newest state that all nodes told; each sets aside what it did later, and goes on."""
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib

import pytest

import remote as remotes
import rig
import successor
from test_list import look, own

TAKEN_S = 30
LEASE_S = 6
BACK_S = 60  # the verdict after a lease, the head, and the daemons that start anew; and on a busy machine

TRAINER = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    try:
        with open(line.strip(), "wb") as file:
            file.write(b"trained")
        print("saved", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


class KeptNode(remotes.RemoteMount, successor.Kept):
    pass


def nodes_of(on_remote, shared):
    def make(**options):
        all_options = {"nodes": True, "writeback_delay": "50ms", "lease": f"{LEASE_S}s", "successor": "on", **options}
        return on_remote(shared, kind=KeptNode, **all_options).mount()
    return make


@pytest.fixture
def node(on_remote, shared):
    return nodes_of(on_remote, shared)


def at(mount, *names):
    return os.path.join(mount.mnt, *names)


def save(mount, name, data):
    rig.write_file(at(mount, name), data)


def see(mount, name, seconds=TAKEN_S):
    rig.poll(lambda: os.path.exists(at(mount, name)), seconds, f"{name} at {mount.mnt}")


def aside(mount):
    directory = os.path.join(mount.store, "aside")
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []


def await_back(mount, generation=1):
    rig.poll(lambda: str(generation) in aside(mount) and mount.answers() and not os.path.exists(os.path.join(mount.store, "back")),
             BACK_S, f"{mount.mnt} to go back")


def waiting(mount, level, name):
    wait = subprocess.Popen([mount.binary, "wait", at(mount, name), "--level", level], stderr=subprocess.PIPE, text=True, env=mount.env)
    return level, wait


def expect_set_aside(waits):
    """What a wait for the remote was for never comes there; NVMe had it."""
    for level, wait in waits:
        said = wait.communicate(timeout=60)[1]
        assert wait.returncode == (1 if level == "remote" else 0), (level, wait.returncode, said)
        assert level == "nvme" or "what this node had done since is set aside" in said, said


class Trainer:
    """A process that began when it was made."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        assert self.process.stdout.readline() == "ready\n"

    def save(self, path):
        """0, or the errno."""
        self.process.stdin.write(path + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().strip()
        return 0 if said == "saved" else int(said)

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


def save_soon(mount, name, data=b"new"):
    """As a job that starts anew: its process began after the node opened."""
    def done():
        code = f"import sys; open({at(mount, name)!r}, 'wb').write({data!r})"
        return subprocess.run([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL).returncode == 0
    rig.poll(done, BACK_S, f"{name} to be saved", 0.5)


def opened_long_ago(mount):
    """Before this boot of the machine."""
    path = os.path.join(mount.store, "node")
    lines = [line if not line.startswith("opens ") else f"opens {1:016x}" for line in rig.read_text(path).splitlines()[:-1]]
    text = "\n".join([*lines, ""])
    assert f"opens {1:016x}" in text
    rig.write_file(path, (text + f"crc32 {zlib.crc32(text.encode()):08x}\n").encode())


@pytest.mark.always_s3
def test_all_go_back_and_on(on_remote, remote):
    shared, node = remote, nodes_of(on_remote, remote)
    a, b, c = node(), node(), node()
    for mount, name in ((a, "a"), (b, "b"), (c, "c")):
        save(mount, name, name.encode() * 5000)
    for mount in (a, b, c):
        for name in "abc":
            see(mount, name)
    c.kill9()
    for mount in (a, b):
        save(mount, "later-" + os.path.basename(mount.root), b"later" * 1000)
    trainer = Trainer()
    names = {mount: "later-" + os.path.basename(mount.root) for mount in (a, b)}
    waits = [waiting(mount, level, names[mount]) for mount in (a, b) for level in ("nvme", "remote")]
    for mount in (a, b):
        await_back(mount)
        rig.poll(lambda mount=mount: sorted(os.listdir(mount.mnt)) == ["a", "b", "c"], TAKEN_S, "all that the union has")
        for name in "abc":
            assert rig.read_file(at(mount, name)) == name.encode() * 5000
        there = os.path.join(mount.store, "aside", "1")
        assert names[mount] in mount.verb("ls", there).stdout.split()
        copy = os.path.join(mount.root, "copy")
        mount.verb("cp", f"{there}:/{names[mount]}", copy)
        assert rig.read_file(copy) == b"later" * 1000
    save_soon(a, "again-a")
    save_soon(b, "again-b")
    see(b, "again-a")
    see(a, "again-b")
    expect_set_aside(waits)
    assert trainer.save(at(a, "from-before")) == errno.EIO
    trainer.end()
    assert not os.path.exists(at(a, "from-before"))

    c.mount()
    pids = tuple(str(pid).encode() for mount in (a, b, c) for pid in mount.pids())
    for name in shared.names("writers"):  # that are written again by each daemon
        entry = shared.get(name)
        assert entry[16:32] == shared.get("cairn")[40:56] and entry[68:196].rstrip(b"\0").endswith(pids)
    see(c, "again-a", BACK_S)
    see(c, "again-b")
    save_soon(c, "again-c")
    see(a, "again-c")
    b.umount()
    opened_long_ago(b)
    b.mount()
    save(b, "after-a-reboot", b"b" * 1000)
    see(a, "after-a-reboot")
    a.verb("fsck", *shared.flags(), shared.url)
    for mount in (a, b, c):
        mount.umount()
        done = mount.fsck()
        assert done.returncode == 0, done.stdout + done.stderr


def begin(node, count=2):
    nodes = [node() for _ in range(count)]
    for number, mount in enumerate(nodes):
        save(mount, f"first-{number}", b"first" * 1000)
    for mount in nodes:
        for number in range(count):
            see(mount, f"first-{number}")
    return nodes


def writing(path):
    return subprocess.Popen([sys.executable, "-c", f"file = open({path!r}, 'wb'); file.write(b'x' * 1000); file.close()"],
                            stderr=subprocess.PIPE, text=True)


FIRST = ["first-0", "first-1"]


def test_a_machine_that_loses_power_says_so_itself(node):
    """Its stage is gone, and with it what it acknowledged: others may rely on that, and go back at once, not after a lease."""
    a, b = begin(lambda: node(lease="40s"))
    fd = os.open(at(b, "lost"), os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"lost" * 1000)
    os.close(fd)
    save(a, "marker", b"all are done")
    b.kill9()
    b.drop_stage()
    b.mount()
    rig.poll(lambda: aside(a) == ["1"], 25, "the others to go back before the lease is over")
    await_back(a)
    await_back(b)
    for mount in (a, b):
        rig.poll(lambda mount=mount: sorted(os.listdir(mount.mnt)) == FIRST, TAKEN_S, "all that the union has")
    assert "marker" in a.verb("ls", os.path.join(a.store, "aside", "1")).stdout.split()
    assert a.verb("ls", a.remote.url + ":/").stdout.split() == FIRST


def test_a_daemon_that_is_killed_ends_nothing(node):
    """The stage is there: a pause, within a lease."""
    a, b = begin(lambda: node(lease="40s"))
    save(b, "more", b"more" * 1000)
    b.kill9()
    save(a, "meanwhile", b"a" * 1000)
    b.mount()
    see(a, "more")
    see(b, "meanwhile")
    assert aside(a) == aside(b) == []


def merges(mount):
    return bool(mount.status()["remote"].get("nodes", {}).get("merges"))


def test_the_node_that_merges_stays_away(node):
    """Another one merges after its lease, and the others go on without it. When it comes back, it has what they have."""
    nodes = begin(node, 3)
    first = rig.poll(lambda: [mount for mount in nodes if merges(mount)], TAKEN_S, "a node to merge")[0]
    others = [mount for mount in nodes if mount is not first]
    first.kill9()
    for mount in others:
        await_back(mount)
    rig.poll(lambda: any(map(merges, others)), TAKEN_S, "another one to merge")
    for number, mount in enumerate(others):
        save_soon(mount, f"without-{number}")
    for mount in others:
        for number in range(2):
            see(mount, f"without-{number}")
    first.mount()
    for number in range(2):
        see(first, f"without-{number}", BACK_S)
    save_soon(first, "again")
    for mount in others:
        see(mount, "again")


def test_a_node_that_slept_acknowledges_nothing(node):
    """Others ended it meanwhile: what its processes would write then, others would never see."""
    a, b = begin(node)
    daemon = b.daemon()
    os.kill(daemon, signal.SIGSTOP)
    writer = writing(at(b, "asleep"))
    try:
        await_back(a)
        save_soon(a, "on")
        os.kill(daemon, signal.SIGCONT)
        said = writer.communicate(timeout=60)[1]
        assert writer.returncode != 0 and "Errno 5]" in said, (writer.returncode, said)
    finally:
        writer.kill()
    await_back(b)
    see(b, "on")
    assert not os.path.exists(at(b, "asleep"))
    save_soon(b, "back")
    see(a, "back")


def test_changes_wait_while_the_remote_is_away_for_longer_than_the_lease(node, shared):
    a, = begin(node, 1)
    away = shared.path + "-away"
    os.rename(shared.path, away)
    rig.poll(lambda: "cannot look at" in a.log(), 30, "the trouble to be said")
    time.sleep(LEASE_S + 1)  # the lease of the last look that succeeded is over
    writer = writing(at(a, "waits"))
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(LEASE_S + 4)
        assert sorted(os.listdir(a.mnt)) == ["first-0", "waits"]  # it is made, and not closed
        os.rename(away, shared.path)
        assert writer.wait(30) == 0
    finally:
        writer.kill()
    assert aside(a) == []


def test_what_a_lost_node_had_is_set_aside_by_itself(node):
    a, b = begin(node)
    for number in range(20):
        save(b, f"own-{number}", b"own" * 1000)
    b.kill9()
    await_back(a)
    b.mount()
    await_back(b)
    assert sorted(os.listdir(b.mnt)) == sorted(os.listdir(a.mnt))
    there = b.verb("ls", os.path.join(b.store, "aside", "1")).stdout.split()
    assert [name for name in there if name.startswith("own")]
    save_soon(b, "own-0", b"again" * 100)
    rig.poll(lambda: os.path.exists(at(a, "own-0")) and rig.read_file(at(a, "own-0")) == b"again" * 100, TAKEN_S, "its new file")


def test_all_go_back_to_nothing(node, shared):
    """One is ended before it told anything: then there is no state of all, although others have published some of their own. One of
    them is mounted only later."""
    a, b, c = node(), node(), node()
    os.kill(b.daemon(), signal.SIGSTOP)
    for mount in (a, c):
        save(mount, "early", b"early" * 1000)
        heads = f"nodes/{own(mount)['node']:016x}/heads/"
        rig.poll(lambda heads=heads: shared.names(heads), TAKEN_S, "a head of its own")
    c.kill9()
    (stay,) = (one for one in look(a)["nodes"] if b.store in one["holder"])
    said = json.loads(a.verb("nodes", "end", "--json", a.mnt, str(stay["epoch"])).stdout)
    assert said == {"epoch": stay["epoch"], "holder": stay["holder"]}
    os.kill(b.daemon(), signal.SIGCONT)
    await_back(a)
    c.mount()
    for mount in (a, b, c):
        await_back(mount)
        assert os.listdir(mount.mnt) == []
    assert "early" in a.verb("ls", os.path.join(a.store, "aside", "1")).stdout.split()
    for number in range(3):
        save_soon(a, f"again-{number}")
        a.wait(level="remote")
        for mount in (b, c):
            see(mount, f"again-{number}")
    for mount in (a, b, c):
        mount.kill9()
        mount.mount()
        assert sorted(os.listdir(mount.mnt)) == ["again-0", "again-1", "again-2"]
        mount.umount()
        done = mount.fsck()
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_daemon_that_dies_when_it_has_gone_back(request, on_remote, shared, sanitized):
    """Its own remote does not say so yet: the next daemon goes on from the state of then, and not from what was given up."""
    library = os.path.abspath(os.path.join(request.config.getoption("--build"), "tests", "faults", "libfaultsteps.so"))
    if sanitized or not os.path.exists(library):
        pytest.skip("skipped: a sanitizer cannot be preloaded" if sanitized else "skipped: the tests were not built")
    mounts = a, b = [on_remote(shared, kind=KeptNode, nodes=True, writeback_delay="50ms", lease="12s", successor="on", crash_window="0")
                     for _ in range(2)]
    fault = os.path.join(a.root, "fault")
    a.env = {**a.env, "LD_PRELOAD": library, "STEP_FAULT": fault}
    for mount in mounts:
        save(mount.mount(), os.path.basename(mount.root), b"first" * 1000)
    for mount in mounts:
        see(mount, os.path.basename(a.root))
        see(mount, os.path.basename(b.root))
    os.kill(b.daemon(), signal.SIGSTOP)
    own_heads = f"nodes/{own(a)['node']:016x}/heads"
    before = len(shared.names(own_heads))
    save(a, "given-up", b"later" * 1000)
    rig.poll(lambda: len(shared.names(own_heads)) > before, TAKEN_S, "a head of its own")
    (stay,) = (one for one in look(a)["nodes"] if b.store in one["holder"])
    rig.write_file(fault, f"9 after 3 {a.store}/back -")  # it is written twice, and removed
    a.verb("nodes", "end", a.mnt, str(stay["epoch"]))
    rig.poll(lambda: not os.path.exists(fault), BACK_S, "the daemon to die")
    os.kill(b.daemon(), signal.SIGCONT)
    for mount in mounts:
        await_back(mount)
        both = sorted(os.path.basename(one.root) for one in mounts)
        rig.poll(lambda mount=mount, both=both: sorted(os.listdir(mount.mnt)) == both, TAKEN_S, "what both had told")
    assert re.search(r"^used [0-9a-f]*[1-9a-f]", rig.read_text(os.path.join(a.store, "node")), re.M)
    save_soon(a, "again")
    a.wait(level="remote")
    see(b, "again")
    assert "given-up" not in os.listdir(a.mnt)
    for mount in mounts:
        mount.umount()
        done = mount.fsck()
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("pause", [0.05, 0.2, 0.4, 0.7])
def test_daemons_that_die_while_they_go_back(node, pause):
    """Each step can be repeated: what was set aside stays whole, and the state is that of all others."""
    a, b = begin(lambda: node(crash_window="0"))
    save(b, "own", b"own" * 1000)
    see(a, "own")
    b.kill9()
    save(a, "later", b"later" * 1000)
    rig.poll(lambda: os.path.exists(os.path.join(a.store, "back")) or aside(a), BACK_S, "the daemon to go back", 0.01)
    for _ in range(4):
        time.sleep(pause)  # so that the daemons die in different steps
        a.kill_daemon()
    await_back(a)
    assert aside(a) == ["1"]
    rig.poll(lambda: sorted(os.listdir(a.mnt)) == [*FIRST, "own"], TAKEN_S, "all that the union has")
    there = os.path.join(a.store, "aside", "1")
    copy = os.path.join(a.root, "copy")
    a.verb("cp", f"{there}:/later", copy)
    assert rig.read_file(copy) == b"later" * 1000
    save_soon(a, "again")
    a.umount()
    done = a.fsck()
    assert done.returncode == 0, done.stdout + done.stderr
