# SPDX-License-Identifier: Apache-2.0
"""A remote as a user meets it: options, `cairn wait --level remote`, levels, status, `umount --drain`, fsync=remote. With dir:."""
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount

STATUS_FIELDS = {
    "state", "name", "head", "horizon_seq", "seconds_behind", "behind_bytes", "behind_chunks", "target_bytes", "packs",
    "pack_bytes", "files", "logical_bytes", "uploaded_bytes_total", "fetched_bytes_total", "requests_total", "retries_total",
    "errors", "upload_bytes_per_s",
}


def level(path):
    return os.getxattr(path, "user.cairn.level").decode()


def one_line(done, code, *words):
    assert done.returncode == code, done
    assert len(done.stderr.strip().splitlines()) == 1, done
    for word in words:
        assert word in done.stderr, done


@pytest.fixture
def remote(directory):
    return remotes.DirRemote(os.path.join(directory, "remotes"))


@pytest.fixture
def node(request, mount_factory, directory, remote):
    """node(**options): a private store on the remote, not yet mounted."""

    def make(**options):
        return mount_factory(tempfile.mkdtemp(prefix="node-", dir=directory), kind=remotes.RemoteMount, remote=remote, **options,
                             request=request)

    return make


@contextlib.contextmanager
def unreachable(remote):
    """The directories in the remote are files: every call fails. What was to be published must be, before."""
    aside = rig.mkdir(remote.path + ".aside")
    names = [name for name in os.listdir(remote.path) if os.path.isdir(os.path.join(remote.path, name))]
    assert {"packs", "heads", "lease"} <= set(names)
    for name in names:
        os.rename(os.path.join(remote.path, name), os.path.join(aside, name))
        rig.write_file(os.path.join(remote.path, name), b"")
    try:
        yield
    finally:
        for name in names:
            os.unlink(os.path.join(remote.path, name))
            os.rename(os.path.join(aside, name), os.path.join(remote.path, name))
        os.rmdir(aside)


def fsync(path, result):
    """Writes and fsyncs `path`, then leaves what came of it in the file `result`."""
    try:
        rig.write_synced(path, b"some bytes")
        rig.write_file(result, b"ok")
    except OSError as error:
        rig.write_file(result, os.strerror(error.errno))


@contextlib.contextmanager
def waiting_fsync(cairn, directory):
    """The pid of a process that waits in an fsync, which the remote out of reach keeps from its end."""
    cairn.mount()
    cairn.write("before", rig.seeded_bytes(2, 100_000), "remote")
    with unreachable(cairn.remote):
        pid = rig.fork(fsync, cairn.mnt + "/file", directory + "/result")
        time.sleep(1.5)  # time in which it must not end
        assert not ended(pid)
        yield pid


def ended(pid):
    return os.waitpid(pid, os.WNOHANG)[0] == pid


# ---------------------------------------------------------------- levels, status, wait

def test_level_and_wait(node):
    """stage, nvme, remote: of a file and of the directories above it; a change begins anew."""
    cairn = node().mount()
    os.makedirs(cairn.mnt + "/a/b")
    path = rig.write_file(cairn.mnt + "/a/b/file", rig.seeded_bytes(1, 3 * rig.MIB))
    cairn.wait(path, "remote")
    assert level(path) == "remote"
    cairn.wait(cairn.mnt, "remote")
    assert level(cairn.mnt + "/a") == level(cairn.mnt) == "remote"
    with unreachable(cairn.remote):
        os.chmod(path, 0o600)
        cairn.wait(path, "nvme")
        assert level(path) == level(cairn.mnt + "/a") == "nvme"
    cairn.wait(path, "remote")
    assert level(path) == "remote"


def test_status(node):
    """All fields while mounted, in JSON and in text; what is there is counted."""
    cairn = node().mount()
    cairn.write("file", rig.seeded_bytes(1, 3 * rig.MIB), "remote")
    status = cairn.remote_status()
    assert STATUS_FIELDS <= status.keys()
    assert status["name"] == cairn.remote.url and status["state"] in ("idle", "uploading")
    assert status["files"] == 1 and status["logical_bytes"] == 3 * rig.MIB and status["behind_bytes"] == 0
    assert status["uploaded_bytes_total"] >= 3 * rig.MIB and status["pack_bytes"] >= 3 * rig.MIB and status["errors"] == 0
    assert status["head"] == max(cairn.remote.heads()) and status["seconds_behind"] < 60
    text = cairn.cairn("status", cairn.mnt).stdout
    assert cairn.remote.url in text and re.search(r"^  not yet uploaded +0 B$", text, re.MULTILINE)


def test_status_without_a_remote(cairn, mnt):
    """No remote is no error, and told as none."""
    assert cairn.status()["remote"] == {"state": "none"}
    assert "\n  remote" not in cairn.cairn("status", mnt).stdout
    one_line(cairn.cairn("wait", mnt, "--level", "remote"), 1, "no remote is configured")
    one_line(cairn.cairn("umount", mnt, "--drain", "remote"), 1, "no remote is configured")
    assert rig.mounted_at(mnt)


def test_unreachable(node):
    """Saving and NVMe go on; status says since when and why; a wait ends when its time is up, or when it comes back."""
    cairn = node().mount()
    cairn.write("before", rig.seeded_bytes(2, 100_000), "remote")
    with unreachable(cairn.remote):
        rig.write_file(cairn.mnt + "/file", rig.seeded_bytes(1, rig.MIB))
        cairn.wait(cairn.mnt + "/file", "nvme")
        rig.poll(lambda: cairn.remote_status()["state"] == "unreachable", 30, "the remote to be out of reach")
        status = cairn.remote_status()
        assert status["unreachable_s"] >= 0 and status["error"] and status["errors"] > 0 and status["seconds_behind"] > 0
        assert "unreachable" in cairn.cairn("status", cairn.mnt).stdout
        done = cairn.cairn("wait", cairn.mnt, "--level", "remote", "--timeout", "1s")
        assert done.returncode == 3 and "in the remote" in done.stderr and "are failing; retrying" in done.stderr, done
        assert "stays mounted" in cairn.verb("umount", cairn.mnt, "--drain", "remote", "--timeout", "1s", code=3).stderr
    cairn.wait_remote()
    status = cairn.remote_status()
    assert status["state"] in ("idle", "uploading") and "unreachable_s" not in status
    assert level(cairn.mnt + "/file") == "remote"


def test_a_wait_lifts_the_limit(node):
    """upload_limit holds while nothing waits, and not while something does. More than one pack: the first is never held back."""
    cairn = node(upload_limit="64K").mount()
    rig.write_file(cairn.mnt + "/a", rig.seeded_bytes(1, 64 * rig.MIB))
    cairn.wait(cairn.mnt, "nvme")
    time.sleep(2)  # time in which it must not get there
    assert level(cairn.mnt + "/a") == "nvme" and cairn.remote_status()["state"] == "uploading"
    started = time.monotonic()
    cairn.wait_remote()
    assert time.monotonic() - started < 200


# ---------------------------------------------------------------- umount

def test_umount_drains_to_the_remote(node):
    """With --drain remote all is there: another machine reads it."""
    cairn = node(upload_limit="64K").mount()
    data = rig.seeded_bytes(1, 64 * rig.MIB)
    rig.write_file(cairn.mnt + "/file", data)
    cairn.umount(drain="remote")
    assert sum(cairn.remote.names("packs/").values()) >= 64 * rig.MIB
    other = node().mount()
    assert rig.read_file(other.mnt + "/file") == data


def test_umount_does_not_wait_for_the_remote(node):
    """Without it umount is quick, and the next mount goes on."""
    cairn = node(upload_limit="64K").mount()
    cairn.write("file", rig.seeded_bytes(1, 64 * rig.MIB), "nvme")
    started = time.monotonic()
    cairn.umount()
    assert time.monotonic() - started < 200
    assert sum(cairn.remote.names("packs/").values()) < 64 * rig.MIB
    cairn.mount()
    cairn.wait_remote()
    assert level(cairn.mnt + "/file") == "remote"


# ---------------------------------------------------------------- fsync

def test_fsync_remote(node):
    """What was fsynced is in the remote."""
    cairn = node(fsync="remote").mount()
    for i in range(3):
        with open(f"{cairn.mnt}/file{i}", "wb") as file:
            file.write(rig.seeded_bytes(i, 100_000))
            file.flush()
            os.fsync(file.fileno())
            assert level(file.name) == "remote"


def test_fsync_remote_can_be_killed(node, directory):
    """With the remote out of reach it waits, killable; the mount lives."""
    cairn = node(fsync="remote")
    with waiting_fsync(cairn, directory) as pid:
        os.kill(pid, signal.SIGKILL)
        rig.poll(lambda: ended(pid), 20, "the end of a process that fsyncs")
        assert sorted(os.listdir(cairn.mnt)) == ["before", "file"]


def test_fsync_remote_fails_when_the_daemon_ends(node, directory):
    """An fsync that waits gets an error, never a false success, and does not keep the daemon."""
    cairn = node(fsync="remote")
    with waiting_fsync(cairn, directory) as pid:
        cairn.proc.send_signal(signal.SIGTERM)
        rig.poll(lambda: ended(pid), 30, "the end of the fsync")
        assert rig.read_file(directory + "/result").decode() in (os.strerror(5), os.strerror(103), os.strerror(107))
        assert cairn.reap() == 0


# ---------------------------------------------------------------- its holder

def test_a_live_holder_is_named(node):
    """A second mount is refused and says by whom; nothing is left behind."""
    first = node(lease="12s").mount()
    first.write("file", b"mine", "remote")
    second = node(lease="12s")
    os.rmdir(second.store)
    done = second.cairn("mount", second.store, second.mnt, "-o", second.option_string({}))
    assert done.returncode in (1, 32), done
    lines = done.stderr.strip().splitlines()
    assert f"pid {first.proc.pid}" in lines[-1] and first.store in lines[-1] and "takeover" in lines[-1], done
    assert not os.path.exists(second.store) and not rig.mounted_at(second.mnt)


def test_waits_for_a_dead_holder_and_says_so(node):
    """`cairn mount` shows what it waits for on its own terminal, then goes on where the dead one was."""
    first = node(lease="3s").mount()
    first.write("file", b"mine", "remote")
    first.kill9()
    second = node(lease="3s")
    done = second.cairn("mount", second.store, second.mnt, "-o", second.option_string({}))
    try:
        assert done.returncode == 0, done
        lines = done.stderr.splitlines()
        waits = [i for i, line in enumerate(lines) if first.store in line]
        mounted = [i for i, line in enumerate(lines) if "is mounted at" in line]
        assert waits and mounted and waits[0] < mounted[0] and lines[waits[0]].startswith("cairn mount: "), done
        assert rig.read_file(second.mnt + "/file") == b"mine"
    finally:
        second.cairn("umount", second.mnt)


def test_taken_over(node):
    """The one that was replaced says by whom, refuses to wait, and keeps what it has."""
    first = node(lease="2s").mount()
    first.write("file", b"mine", "remote")
    second = node(lease="2s").mount(takeover=True)
    rig.write_file(first.mnt + "/more", b"never published")
    rig.poll(lambda: first.remote_status()["state"] == "fenced", 30, "the first one to find out")
    assert f"pid {second.proc.pid}" in first.remote_status()["error"]
    one_line(first.cairn("wait", first.mnt, "--level", "remote"), 1, "another writer", f"pid {second.proc.pid}")
    one_line(first.cairn("umount", first.mnt, "--drain", "remote"), 1, "another writer")
    assert "fenced" in first.cairn("status", first.mnt).stdout
    assert rig.read_file(first.mnt + "/more") == b"never published" and level(first.mnt + "/more") == "nvme"
    first.umount()


def test_times_of_access_are_no_news(node):
    """A store in which files were only read since it published goes on from where another writer is now."""
    first = node().mount()
    first.write("file", b"text", "remote")
    time.sleep(0.05)
    rig.read_file(first.mnt + "/file")
    first.umount()
    second = node().mount()
    second.write("more", b"by another", "remote")
    second.umount()
    first.mount()
    assert rig.read_file(first.mnt + "/more") == b"by another"
    first.umount()


# ---------------------------------------------------------------- bad input

def mount_result(cairn, *args):
    return subprocess.run(
        [cairn.binary, "mount", cairn.store, cairn.mnt, "-o", "stage=64M,stage_dir=" + cairn.stage_dir, *args],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "s3:bucket", "s3://", "s3://a b/x", "/some/path", "dir:", "dir:/", "s3://key:secret@bucket/x"]
)
def test_bad_addresses(cairn, url):
    """A wrong address is one line that names the option and says what is right; a secret is not repeated."""
    done = mount_result(cairn, "--remote", url)
    one_line(done, 1, "option remote")
    assert "secret" not in done.stderr and os.listdir(cairn.store) == []


def test_remote_in_a_bad_place(cairn):
    """Inside the store or the mountpoint, or below what is not there."""
    for path, words in {
        cairn.store: "inside",
        cairn.store + "/remote": "inside",
        cairn.mnt + "/remote": "inside",
        cairn.root: "inside",
        cairn.root + "/no/such": "No such file",
    }.items():
        done = mount_result(cairn, "--remote", "dir:" + path)
        assert done.returncode in (1, 32), (path, done)
        lines = [line for line in done.stderr.splitlines() if "which does not answer" not in line]  # said on a slow machine, too
        assert len(lines) == 1 and words in lines[0], (path, done)
        assert not rig.mounted_at(cairn.mnt) and os.listdir(cairn.store) == []


def test_relative_address(cairn, directory):
    """dir: is relative to where `cairn mount` was called."""
    done = subprocess.run(
        [cairn.binary, "mount", cairn.store, cairn.mnt, "--remote", "dir:there", "-o", "stage=64M,stage_dir=" + cairn.stage_dir],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, cwd=directory,
    )
    try:
        assert done.returncode == 0, done
        assert cairn.status()["remote"]["name"] == f"dir:{directory}/there" and os.path.isdir(directory + "/there")
    finally:
        cairn.cairn("umount", cairn.mnt)
