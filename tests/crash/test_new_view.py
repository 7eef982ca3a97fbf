# SPDX-License-Identifier: Apache-2.0
"""P9: a view whose files are damaged under a live mount is made anew by a successor; without one the mount says what is to be done."""
import contextlib
import errno
import http.client
import os
import shutil
import socket
import threading

import pytest

import faultdisk
import rig

pytestmark = pytest.mark.needs_mount


def with_faults(request, mount, directory, sanitized):
    build = faultdisk.build_of(request.config, sanitized)
    return faultdisk.FaultDisk(mount, build, os.path.join(directory, "faults"))


def fill(mount):
    """Files whose rows lie in the view's tables: a session's end writes them there."""
    want = {}
    mount.mount(stage="64M")
    os.mkdir(mount.mnt + "/directory")
    for number in range(400):
        name = f"directory/old-{number}"
        want[name] = rig.seeded_bytes(number, 3000 + number)
        rig.write_file(os.path.join(mount.mnt, name), want[name])
    rig.write_file(mount.mnt + "/large", want.setdefault("large", rig.seeded_bytes("large", 3 * rig.MIB)))
    mount.umount()
    return want


def damage_tables(store):
    """Every block of them, in place: their readers have the files open."""
    tables = [name for name in os.listdir(store + "/view") if name.endswith(".sst")]
    assert tables
    for name in tables:
        path = os.path.join(store, "view", name)
        with open(path, "r+b") as file:
            size = os.path.getsize(path)
            for at in range(0, max(1, size - 1200), 512):  # not the footer: the database can still be opened
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 0x5A]))


def damage(mount, disk, want, number):
    """The view's tables are damaged, its database is opened anew, and rows are asked for that are not in memory. What is read then may be
    EIO, and never anything else; writes and fsync go on."""
    names = [f"directory/old-{number + 10 * at}" for at in range(40)]
    files = [open(os.path.join(mount.mnt, name), "r+b", buffering=0) for name in names]
    damage_tables(mount.store)
    disk.arm("view-log", "pwrite", errno.EIO, times=1)
    for at in range(2):
        files[0].write(b"changed %d" % at)
        os.fsync(files[0].fileno())
    want[names[0]] = b"changed 0changed 1" + want[names[0]][18:]
    failed = 0
    for name, file in zip(names, files):
        try:
            data = os.pread(file.fileno(), rig.MIB, 0)
            assert data == want[name][: len(data)]
            failed += len(data) < len(want[name])
        except OSError as error:
            assert error.errno == errno.EIO
            failed += 1
    assert failed, "the damage had no effect"
    return names, files


def check_open(want, names, files):
    """What was open stays open, and is whole again."""
    for name, file in zip(names, files):
        assert os.pread(file.fileno(), rig.MIB, 0) == want[name], name
        file.close()


class Writer(threading.Thread):
    """Writes and fsyncs new files until it is told to end. No call may fail."""

    def __init__(self, mnt, want):
        super().__init__(daemon=True)
        self.mnt, self.want, self.stop, self.error = mnt, want, threading.Event(), None

    def run(self):
        number = 0
        try:
            while not self.stop.wait(0.02):
                name, data = f"directory/new-{number % 60}", rig.seeded_bytes(("new", number), 20_000)
                rig.write_synced(os.path.join(self.mnt, name), data)
                self.want[name] = data
                number += 1
        except OSError as error:
            self.error = error

    def finish(self):
        self.stop.set()
        self.join(rig.PATIENCE * 60)
        assert not self.is_alive()


def check(mount, want):
    rig.check_files(mount.mnt, want)


def test_a_successor_makes_the_view_anew(request, kept, directory, sanitized):
    """One death, that the holder counts; what was written before, meanwhile and after is there, and the next view is whole."""
    disk = with_faults(request, kept, directory, sanitized)
    want = fill(kept)
    kept.mount(stage="64M")
    writer = Writer(kept.mnt, want)
    writer.start()
    rig.poll(lambda: "directory/new-5" in want, 30, "some writes")
    held = damage(kept, disk, want, 7)
    rig.poll(lambda: kept.successor()["views_made_anew"] == 1, 60, "a new view")
    disk.disarm()
    check_open(want, *held)
    assert kept.successor()["deaths"] == 1 and "to rebuild the view" in kept.successor()["last_death"]
    rig.poll(lambda: "directory/new-59" in want, 60, "more writes")
    writer.finish()
    assert writer.error is None, writer.error
    check(kept, want)
    status = kept.status()
    assert status["view"]["damaged"] is False and status["mount"]["successor"]["deaths"] == 1
    assert os.path.isdir(kept.store + "/lost+found/view") and not os.path.exists(kept.store + "/view.anew")
    kept.power_cycle(stage="64M")
    check(kept, want)
    kept.umount_whole()


def test_it_ends_for_a_view_only_now_and_then(request, kept, directory, sanitized):
    """A disk that damages the next view, too: the mount serves on, and says why it does no more."""
    disk = with_faults(request, kept, directory, sanitized)
    want = fill(kept)
    kept.mount(stage="64M")
    check_after = damage(kept, disk, want, 7)
    rig.poll(lambda: kept.successor()["views_made_anew"] == 1, 20, "a new view")
    check_open(want, *check_after)
    pid = kept.kill_daemon(wait=True)  # nothing of the view is in memory
    rig.poll(lambda: kept.status()["pid"] != pid, 20, "the successor")
    names, files = damage(kept, disk, want, 8)
    reason = rig.poll(lambda: kept.status()["view"].get("not_made_anew"), 20, "the reason")
    assert "moment ago" in reason
    assert kept.successor()["deaths"] == 2 and kept.successor()["views_made_anew"] == 1
    files[0].write(b"after")  # fsync goes on
    os.fsync(files[0].fileno())
    want[names[0]] = want[names[0]][:18] + b"after" + want[names[0]][23:]
    for file in files:
        file.close()
    kept.kill_daemon(wait=True)  # any start that finds the damage makes it anew
    check(kept, want)
    kept.remount(stage="64M")
    check(kept, want)


def health(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=rig.PATIENCE * 10)
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    with contextlib.closing(connection):
        return answer.status, answer.read().decode()


def test_without_a_successor_it_is_told(request, cairn, directory, sanitized):
    disk = with_faults(request, cairn, directory, sanitized)
    want = fill(cairn)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    cairn.mount(stage="64M", metrics=f"127.0.0.1:{port}")
    for file in damage(cairn, disk, want, 7)[1]:
        file.close()
    reason = rig.poll(lambda: cairn.status()["view"].get("not_made_anew"), 20, "the reason")
    assert "there is no successor" in reason
    code, text = health(port)
    assert code == 503 and "view is damaged" in text and "mount again" in text
    assert "damaged" in cairn.cairn("status", cairn.mnt).stdout
    rig.write_synced(cairn.mnt + "/file", b"content after")
    want["file"] = b"content after"
    cairn.remount(stage="64M")
    check(cairn, want)
    cairn.umount_whole()


def ask_for_new_view(store):
    """As a session that met damage does at its end."""
    rig.write_file(store + "/view.anew", b"")


def expect_kept(mount, want, reason):
    """It serves, takes writes, and says what is wrong."""
    check(mount, want)
    rig.write_synced(mount.mnt + "/after", b"written on the damaged view")
    want["after"] = b"written on the damaged view"
    view = rig.poll(lambda: mount.status()["view"].get("not_made_anew") and mount.status()["view"], 20, "the reason")
    assert view["damaged"] and reason in view["not_made_anew"], view
    assert "cannot be made anew now" in mount.log() and not os.path.exists(mount.store + "/view.new")


def expect_made_anew(mount, want):
    mount.mount(stage="64M")
    check(mount, want)
    assert mount.status()["view"]["damaged"] is False
    assert not os.path.exists(mount.store + "/view.anew") and os.path.isdir(mount.store + "/lost+found/view")
    mount.umount_whole()


def test_a_view_that_cannot_be_made_anew_without_the_remote_is_kept(on_remote):
    node = on_remote()
    want = fill(node)
    node.mount(stage="64M")
    node.wait_remote()
    node.umount()
    ask_for_new_view(node.store)
    shutil.rmtree(node.store + "/runs")
    node.mount(stage="64M", remote=None)
    expect_kept(node, want, "the runs with which the journal begins")
    done = node.cairn("status", node.mnt)
    assert "damaged" in done.stdout, done.stdout
    node.umount()
    expect_made_anew(node, want)


def test_a_view_that_cannot_be_made_anew_on_a_full_disk_is_kept(request, cairn, directory, sanitized):
    disk = with_faults(request, cairn, directory, sanitized)
    want = fill(cairn)
    ask_for_new_view(cairn.store)
    with disk.fault("view-table", "pwrite", errno.ENOSPC, times=0):
        cairn.mount(stage="64M")
        assert disk.fired() > 0
        expect_kept(cairn, want, "there is no successor")
    cairn.umount()
    assert os.path.exists(cairn.store + "/view.anew")
    expect_made_anew(cairn, want)
