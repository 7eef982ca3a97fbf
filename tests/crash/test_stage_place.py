# SPDX-License-Identifier: Apache-2.0
"""Whose the stage is: names that others took in a shared directory, files that were removed below a daemon, and copies of a store that meet
its stage."""
import contextlib
import glob
import os
import re
import shutil
import stat
import subprocess
import urllib.error
import urllib.request

import pytest

import processes
import rig
from processes import NOBODY

pytestmark = pytest.mark.needs_mount

@pytest.fixture
def shared(cairn):
    """A stage directory as /dev/shm is: everybody may write there, nobody may remove what others made."""
    os.chmod(cairn.stage_dir, 0o1777)
    return cairn


def own_directory(mount):
    return f"{mount.stage_dir}/cairn-{os.geteuid()}"


def as_nobody(function, *args):
    def run():
        processes.become_nobody()
        return function(*args)

    return rig.in_child(run)


def write(mount, name, data=b"content"):
    rig.write_file(os.path.join(mount.mnt, name), data)


def read(mount, name):
    return rig.read_file(os.path.join(mount.mnt, name))


def control_file(mount):
    (found,) = glob.glob(own_directory(mount) + "/*.ctl") or glob.glob(mount.stage_dir + "/*.ctl")
    return found


def leave_staged(mount, contents, durable=False):
    """The daemon dies when it has written these, which are in the stage alone; `durable` before them is on NVMe. The stage's control file."""
    mount.mount(writeback_delay="1h")
    if durable:
        mount.write("durable", b"content", "nvme")
    rig.write_files(mount.mnt, contents)
    mount.kill9()
    return control_file(mount)


# --- names in a shared directory -----------------------------------------------------------------------------------------------


def test_the_stage_is_in_a_directory_of_its_users_own(shared):
    """P12: nobody sees or takes its names; at the end the directory is gone."""
    shared.mount(writeback_delay="1h")
    directory = own_directory(shared)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700 and len(os.listdir(directory)) == 2
    assert shared.status()["stage"]["dir"] == directory
    write(shared, "file")
    shared.crash()
    assert read(shared, "file") == b"content"
    shared.umount()
    assert os.listdir(shared.stage_dir) == []


def take_with(kind, path):
    """What another user makes of a name."""
    if kind == "directory":
        os.mkdir(path, 0o777)
    elif kind == "file":
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
    else:
        os.symlink("/etc", path)


@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_a_name_that_another_user_took(shared, kind):
    """P12: the mount takes another name, and says whose the first is."""
    as_nobody(take_with, kind, own_directory(shared))
    shared.mount(writeback_delay="1h")
    assert f"{own_directory(shared)} belongs to user {NOBODY}" in shared.log()
    write(shared, "file")
    shared.crash()
    assert read(shared, "file") == b"content"
    shared.umount()
    assert os.listdir(shared.stage_dir) == [f"cairn-{os.geteuid()}"]
    assert os.listdir("/etc")


def test_a_stage_of_another_user_is_named_as_such(cairn):
    """What lies where the last session had its stage is another's: the message says whose it is, and not that it holds our data."""
    control = leave_staged(cairn, {"file": b"content"})
    os.chown(control, NOBODY, NOBODY)
    with pytest.raises(rig.MountError, match=f"belongs to user {NOBODY}, not to you"):
        cairn.mount()
    os.chown(control, 0, 0)
    os.chmod(control, 0o660)
    with pytest.raises(rig.MountError, match="others may read or write it"):
        cairn.mount()
    os.chmod(control, 0o600)
    cairn.mount()
    assert read(cairn, "file") == b"content"


def test_after_a_boot_no_file_there_is_the_stage(cairn):
    """Whoever makes a file under the old name after a boot keeps nobody from mounting."""
    leave_staged(cairn, {}, durable=True)
    session = cairn.store + "/session"
    text = rig.read_file(session).decode()
    control = text.splitlines()[0]
    rig.write_file(session, re.sub(r"(?m)^boot .*", "boot 00000000-0000-0000-0000-000000000000", text).encode())
    for path in glob.glob(cairn.stage_dir + "/*"):
        os.unlink(path)
    take_with("file", control)
    os.chown(control, NOBODY, NOBODY)
    cairn.mount()
    assert os.listdir(cairn.mnt) == ["durable"] and "power loss or reboot" in cairn.log()
    cairn.umount()


def test_starts_that_were_killed_leave_no_stage(cairn, rng):
    """Whatever moment of a start a kill meets, the next one removes what it left: a stage that no session named."""
    cairn.mount()
    write(cairn, "file")
    cairn.umount()
    for _ in range(25):
        cairn.start()
        rig.poll(lambda: os.listdir(cairn.stage_dir), 30, "the stage", step=0.0005)
        rig.time.sleep(rng.random() * 0.02)
        cairn.kill9()
        for name in os.listdir(cairn.stage_dir):  # one that was not even made counts as such after a while
            os.utime(f"{cairn.stage_dir}/{name}", (1, 1))
    cairn.mount()
    assert len(os.listdir(cairn.stage_dir)) == 2, cairn.log()
    assert read(cairn, "file") == b"content"
    cairn.umount()
    assert os.listdir(cairn.stage_dir) == []


def test_a_start_that_failed_leaves_no_stage(cairn):
    """Its memory would be taken until the next boot."""
    cairn.mount()
    write(cairn, "file")
    cairn.umount()
    os.mkdir(cairn.store + "/session.new")  # it cannot be written
    for _ in range(2):
        with pytest.raises(rig.MountError):
            cairn.mount()
        assert os.listdir(cairn.stage_dir) == []
    os.rmdir(cairn.store + "/session.new")
    cairn.mount()
    assert read(cairn, "file") == b"content"


def test_a_stage_that_was_given_up_is_told(cairn):
    """Who removes STORE/session goes on without the stage; it stays where it is, and the log says where."""
    control = leave_staged(cairn, {"file": b"content"})
    os.unlink(cairn.store + "/session")
    cairn.mount()
    assert f"{control} and its .slabs" in cairn.log()
    assert os.listdir(cairn.mnt) == [] and os.path.exists(control)


def test_what_is_only_staged_is_told(cairn, rng):
    """fsck and status of a store whose daemon died say that the stage has what the store has not; of one that ended, nothing."""
    contents = {"large": rig.seeded_bytes(rng.random(), 3 * rig.MIB), "small": b"x" * 5000}
    control = leave_staged(cairn, contents, durable=True)
    done = cairn.fsck()
    assert done.returncode == 0, done.stdout
    told = re.search(r"up to (\d+) bytes that were written, .* are staged in (\S+) and not in the store yet", done.stdout)
    assert told and told[2] == control and 3 * rig.MIB + 5000 <= int(told[1]) <= 4 * rig.MIB, done.stdout
    assert f"is in {control} and not in the store yet" in cairn.verb("status", cairn.store).stdout
    cairn.mount()
    assert read(cairn, "small") == b"x" * 5000
    cairn.umount()
    assert "staged" not in cairn.fsck().stdout and "not in the store yet" not in cairn.cairn("status", cairn.store).stdout


def test_slabs_without_their_control_file_are_told(cairn):
    """They may hold what was acknowledged, and nobody can read them: each start says where they are, and none removes them."""
    control = leave_staged(cairn, {"file": b"content"})
    slabs = control[:-4] + ".slabs"
    os.unlink(control)
    for _ in range(2):
        cairn.mount()
        assert f"{slabs} (" in cairn.log()[-4000:] and "whose .ctl was removed" in cairn.log()[-4000:]
        cairn.umount()
        assert os.path.exists(slabs)


# --- files that were removed ------------------------------------------------------------------------------------------------


def health(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("which", ["*", "*.slabs"])
def test_removed_stage_files_are_noticed(cairn, rng, which):
    """P2 where it ends: what is staged goes to NVMe at once, whatever the delay says, and status, log and stderr say so."""
    port = processes.free_port()
    cairn.mount(writeback_delay="1h", metrics=f"127.0.0.1:{port}")
    before, after = rig.seeded_bytes(rng.random(), 4 * rig.MIB), rig.seeded_bytes(rng.random(), 8 * rig.MIB)
    write(cairn, "before", before)
    assert health(port)[0] == 200 and cairn.status()["stage"]["files_removed"] == 0
    for path in glob.glob(f"{cairn.stage_dir}/{which}"):
        os.unlink(path)
    rig.poll(lambda: health(port)[0] == 503, 5, "the trouble to be told")
    assert "files of the stage were removed" in health(port)[1]
    draft = os.open(cairn.mnt + "/draft", os.O_WRONLY | os.O_CREAT)
    os.write(draft, b"not closed")
    write(cairn, "after", after)
    rig.poll(lambda: cairn.status()["nvme"]["behind_bytes"] == 0, 20, "all of it on NVMe")
    assert cairn.status()["stage"]["files_removed"] == 1
    assert "its files were removed" in cairn.cairn("status", cairn.mnt).stdout
    assert "cairnfs_stage_files_removed 1" in cairn.cairn("metrics", cairn.mnt).stdout
    assert cairn.log().count("the files of the stage in") == 1
    cairn.kill9()
    with contextlib.suppress(OSError):
        os.close(draft)
    cairn.mount()
    assert "its files were removed there" in cairn.log() or which != "*"
    assert (read(cairn, "before"), read(cairn, "after"), read(cairn, "draft")) == (before, after, b"not closed")


# --- copies -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy_of(mount_factory, directory, request):
    """copy_of(mount): a store made by copying its directory, not yet mounted, with the same stage directory."""

    def make(original):
        os.mkdir(directory + "/copy")
        mount = mount_factory(directory + "/copy", request=request)
        for path in (mount.stage_dir, mount.store):
            os.rmdir(path)
        mount.stage_dir = original.stage_dir
        subprocess.run(["cp", "-a", original.store, mount.store], check=True)
        return mount

    return make


def files(rng, count=20):
    return {f"file-{i}": rig.seeded_bytes(rng.random(), rng.choice((10, 5000, 300_000, rig.MIB))) for i in range(count)}


def read_all(mount):
    return {name: read(mount, name) for name in os.listdir(mount.mnt)}


def go_on_beside(cairn, copy, common, rng):
    """Both write, their daemons die, and each has what it wrote beside `common`. Returns what the copy has more."""
    mine, other = files(rng), files(rng)
    rig.write_files(cairn.mnt, mine)
    rig.write_files(copy.mnt, other)
    for mount in (cairn, copy):
        mount.kill9()
    for mount, contents in ((copy, other), (cairn, mine)):
        mount.mount()
        assert read_all(mount) == {**common, **contents}
        mount.umount_whole()
    return other


def test_copy_of_an_unmounted_store_beside_it(cairn, copy_of, rng):
    """P2: both have stages of their own and lose nothing when their daemons die; the second one is told."""
    cairn.mount()
    common = files(rng, 3)
    rig.write_files(cairn.mnt, common)
    cairn.umount()
    copy = copy_of(cairn)
    cairn.mount(writeback_delay="1h")
    copy.mount(writeback_delay="1h")
    assert re.search(f"has the id of {cairn.store}, which pid {cairn.proc.pid} has mounted", copy.log())
    assert f"cairn adopt --new-id {copy.store}" in copy.log()
    go_on_beside(cairn, copy, common, rng)


def test_copy_of_a_mounted_store(cairn, copy_of, rng):
    """A copy that was taken while the store was mounted does not get its stage: refused, with path and pid; with ro it may be looked at."""
    cairn.mount(writeback_delay="1h")
    durable, staged, later = {"durable": b"durable"}, files(rng), {"later": b"later"}
    rig.write_files(cairn.mnt, durable)
    cairn.wait()
    rig.write_files(cairn.mnt, staged)
    with cairn.paused():
        copy = copy_of(cairn)
    with pytest.raises(rig.MountError, match=f"is a copy of {cairn.store}, which pid {cairn.proc.pid} has mounted.*adopt --new-id"):
        copy.mount()
    copy.mount(ro=True)
    assert read_all(copy) == durable
    copy.umount()
    assert read_all(cairn) == {**durable, **staged}
    rig.write_files(cairn.mnt, later)
    cairn.crash()
    assert read_all(cairn) == {**durable, **staged, **later}
    cairn.umount_whole()


def test_copy_of_a_store_whose_daemon_died(cairn, copy_of, rng):
    """The stage that was left is the original's, whichever is mounted first; a store that was moved is no copy."""
    leave_staged(cairn, staged := files(rng))
    copy = copy_of(cairn)
    with pytest.raises(rig.MountError, match=f"is a copy of {cairn.store}, whose stage in .* was left"):
        copy.mount()
    os.rename(cairn.store, cairn.store + "-moved")
    cairn.store += "-moved"
    shutil.rmtree(copy.store)
    cairn.mount()
    assert read_all(cairn) == staged
    cairn.umount()


def test_copy_in_the_place_of_its_original(request, cairn, mount_factory, rng, directory):
    """`mv STORE ELSEWHERE; cp -a ELSEWHERE STORE` after a kill: the stage is that directory's, not that path's."""
    leave_staged(cairn, staged := files(rng), durable=True)
    path, elsewhere = cairn.store, directory + "/elsewhere"
    os.rename(path, elsewhere)
    subprocess.run(["cp", "-a", elsewhere, path], check=True)
    with pytest.raises(rig.MountError, match=f"{path} is a copy of the store that was there .*adopt --new-id"):
        cairn.mount()
    cairn.store = elsewhere
    cairn.mount()
    assert read_all(cairn) == {**staged, "durable": b"content"}
    copy = mount_factory(directory + "/other", store=path, request=request)
    os.rmdir(copy.stage_dir)
    copy.stage_dir = cairn.stage_dir
    with pytest.raises(rig.MountError, match=f"copy of {elsewhere}, which pid"):
        copy.mount()
    cairn.umount_whole()


def put_copy_in_its_place(mount, directory):
    subprocess.run(["cp", "-a", mount.store, directory + "/copy"], check=True)
    shutil.rmtree(mount.store)
    os.rename(directory + "/copy", mount.store)


def test_copy_in_the_place_of_a_store_that_is_gone(cairn, rng, directory):
    """The way out that the refusal tells: under another path the copy goes on with the stage. And the path alone counts where no daemon
    noted the directory."""
    leave_staged(cairn, staged := files(rng))
    put_copy_in_its_place(cairn, directory)
    with pytest.raises(rig.MountError, match="mount this one under another path"):
        cairn.mount()
    os.rename(cairn.store, cairn.store + "-here")
    cairn.store += "-here"
    cairn.mount()
    assert read_all(cairn) == staged
    write(cairn, "more")
    cairn.kill9()
    put_copy_in_its_place(cairn, directory)
    rig.patch(control_file(cairn), 216, bytes(40))  # as a daemon of before this was noted leaves it
    cairn.mount()
    assert read_all(cairn) == {**staged, "more": b"content"}
    cairn.umount()


def move_all(source, target):
    for name in os.listdir(source):
        os.rename(os.path.join(source, name), os.path.join(target, name))


def test_older_copy_in_the_place_of_the_store(cairn, directory, rng):
    """What the stage let go because the journal had it is not in an older copy: the stage is not laid over that."""
    cairn.mount(writeback_delay="1h")
    write(cairn, "first")
    cairn.wait()
    old = directory + "/old"
    with cairn.paused():
        subprocess.run(["cp", "-a", cairn.store, old], check=True)
    write(cairn, "second")
    cairn.wait()
    write(cairn, "third")
    cairn.kill9()
    os.mkdir(directory + "/new")
    move_all(cairn.store, directory + "/new")
    move_all(old, cairn.store)  # the same directory, as a backup that is put back makes it
    with pytest.raises(rig.MountError, match="the store is an older copy"):
        cairn.mount()
    move_all(cairn.store, old)
    move_all(directory + "/new", cairn.store)
    cairn.mount()
    assert sorted(os.listdir(cairn.mnt)) == ["first", "second", "third"]


def adopt(mount):
    return mount.cairn("adopt", "--new-id", mount.store)


def test_a_copy_becomes_a_store_of_its_own(cairn, copy_of, rng):
    """With a new id both go on beside each other; journal and packs of before are read by the copy, with and without a view."""
    cairn.mount()
    common = files(rng, 6)
    rig.write_files(cairn.mnt, common)
    cairn.umount()
    copy = copy_of(cairn)
    cairn.mount(writeback_delay="1h")
    old = cairn.status()["store_id"]
    assert "in use by pid" in adopt(cairn).stderr
    done = adopt(copy)
    assert done.returncode == 0 and old not in done.stdout, done.stderr
    assert copy.fsck().returncode == 0
    copy.mount_anew(writeback_delay="1h")
    assert copy.status()["store_id"] in done.stdout and "one is a copy" not in copy.log()
    other = go_on_beside(cairn, copy, common, rng)
    assert adopt(copy).returncode == 0  # once more
    copy.mount_anew()
    assert read_all(copy) == {**common, **other}
    copy.umount_whole()


def test_adopt_and_a_stage_that_was_left(cairn, copy_of, rng):
    """Of the original it stays where it is; the store whose it is keeps its id until it was mounted."""
    leave_staged(cairn, staged := files(rng, 3), durable=True)
    copy = copy_of(cairn)
    done = adopt(cairn)
    assert done.returncode == 1 and "mount and unmount it first" in done.stderr
    assert adopt(copy).returncode == 0
    copy.mount()
    assert os.listdir(copy.mnt) == ["durable"]
    cairn.mount()
    assert read_all(cairn) == {"durable": b"content", **staged}
    cairn.umount()
    copy.umount()
    for mount in (cairn, copy):
        assert mount.fsck().returncode == 0


def test_a_stage_of_ones_own_that_somebody_has_locked(cairn, rng):
    """It is not another's for that: what it holds is kept, by adopt and by a mount that only reads."""
    control = leave_staged(cairn, staged := files(rng, 3))
    with rig.locked(control):  # as a daemon has it that does not quite end, and for a moment a search for stages that were left
        done = adopt(cairn)
        assert done.returncode == 1 and "mount and unmount it first" in done.stderr
        for ro in (False, True):
            with pytest.raises(rig.MountError, match=f"has the stage of {cairn.store} in .* still"):
                cairn.mount(ro=ro)
    cairn.mount()
    assert read_all(cairn) == staged
    cairn.umount()


def test_a_copy_and_the_remote_of_its_original(cairn, copy_of, directory, rng):
    """A copy beside its original would be the same writer of the remote: refused, and the original goes on. With an id of its own it is
    another writer, which the lease keeps out."""
    remote = f"dir:{directory}/remote"
    cairn.mount(remote=remote)
    first, second = files(rng, 3), files(rng, 3)
    rig.write_files(cairn.mnt, first)
    cairn.wait(level="remote")
    cairn.umount()
    copy = copy_of(cairn)
    cairn.mount(remote=remote)
    with pytest.raises(rig.MountError, match="both would be one writer of the remote"):
        copy.mount(remote=remote)
    assert adopt(copy).returncode == 0
    with pytest.raises(rig.MountError, match="is in use by"):
        copy.mount(remote=remote)
    rig.write_files(cairn.mnt, second)
    cairn.wait(level="remote")
    assert cairn.status()["remote"]["state"] in ("idle", "uploading")
    cairn.umount()
    copy.mount(remote=remote)
    assert read_all(copy) == {**first, **second}
    copy.umount_whole()
