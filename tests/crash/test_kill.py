# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon at random moments under load (P2): nothing acknowledged is lost, fsck is clean."""
import contextlib
import glob
import os
import resource
import signal

import pytest

import history
import judge
import rig


@pytest.fixture
def cycles(full):
    return 100 if full else 10


class Cycles:
    """Kill cycles on one store, which ages; the directories of the last two cycles stay."""

    def __init__(self, cairn, rng, directory, logs):
        self.cairn, self.rng, self.logs = cairn, rng, logs
        self.number, self.pictures = 0, {}
        cairn.options.update(rig.remote_of_dense(cairn.root))

    def path(self, number):
        return os.path.join(self.cairn.mnt, f"cycle-{number}")

    def check_old(self):
        """What earlier cycles left is still there."""
        for number, picture in self.pictures.items():
            assert judge.snapshot(self.path(number)) == picture, f"cycle {number} changed afterwards"

    def load(self):
        log, seed = os.path.join(self.logs, f"log-{self.number}"), self.rng.randrange(1 << 30)
        return history.writing(self.path(self.number), log, seed, ready=20_000, ranks=self.rng.choice((2, 3, 4)))

    def moment(self, writers):
        """Kill when the log has grown by a random amount: a moment that does not depend on speed."""
        target = writers.mark() + self.rng.randrange(1, 400_000)
        end = rig.time.monotonic() + self.rng.uniform(0.1, 3.0)
        while writers.mark() < target and rig.time.monotonic() < end:
            rig.time.sleep(0.001)

    def kill(self, writers):
        """Daemon alone, daemon and trainer, or trainer first."""
        how = "both" if self.cairn.plain else self.rng.choice(("daemon", "both", "trainer first"))
        if how == "trainer first":
            writers.kill()
        self.cairn.kill9()
        if how == "daemon":
            writers.wait()
        writers.kill()
        return how

    def recover(self):
        """Mount again; half the times the daemon dies once or twice more while it recovers."""
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            self.cairn.start()
            rig.time.sleep(self.rng.random() * 0.15)
            self.cairn.kill9()
        self.cairn.mount()

    def run_one(self):
        self.number += 1
        self.cairn.mount()
        self.check_old()
        with self.load() as writers:
            self.moment(writers)
            how = self.kill(writers)
        self.recover()
        path = self.path(self.number)
        operations = judge.check_live(path, writers.log)
        self.pictures[self.number] = judge.snapshot(path)
        print(f"cycle {self.number}: killed {how}, {operations} operations there")
        self.forget()
        self.cairn.umount_whole()

    def forget(self):
        old = self.number - 2
        if old in self.pictures:
            del self.pictures[old]
            rig.shutil.rmtree(self.path(old))


EPOCH_AT = 96  # in the stage's header: the epoch that the stage is in, and the one that a recovery was about to begin


@pytest.mark.parametrize(
    ("stage", "recovery", "survives"),
    [
        (0, 0, True),  # killed while it served
        (0, 1, True),  # killed before the journal had the new epoch
        (0, 3, True),  # three times
        (-1, 0, True),  # killed after it, before the stage was told
        (-1, 1, True),  # the next one was killed before the journal had its epoch
        (-2, 5, True),  # and so on
        (1, 2, False),  # of a store that came back from an older copy
        (-2, -1, False),  # a stage that was not there when the journal went on
    ],
)
def test_killed_in_any_state_of_recovery(cairn, stage, recovery, survives):
    """P2: whichever recoveries were killed between telling the stage and beginning the journal, the stage is known as this journal's."""
    cairn.mount(writeback_delay="1h")
    for _ in range(3):
        cairn.remount()
    rig.write_file(cairn.mnt + "/file", b"only in the stage")
    cairn.kill9()
    (ctl,) = glob.glob(cairn.stage_dir + "/cairn-*.ctl")
    with open(ctl, "r+b") as file:
        header = file.read(EPOCH_AT + 16)
        epoch = int.from_bytes(header[EPOCH_AT : EPOCH_AT + 8], "little")
        assert epoch > 2
        file.seek(EPOCH_AT)
        file.write((epoch + stage).to_bytes(8, "little", signed=True) + (epoch + recovery).to_bytes(8, "little", signed=True))
    cairn.mount()
    assert os.listdir(cairn.mnt) == (["file"] if survives else [])
    if survives:
        assert rig.read_file(cairn.mnt + "/file") == b"only in the stage"
    cairn.umount_whole()


@pytest.mark.timeout(300)
def test_kill_cycles(cairn, rng, directory, shm_directory, cycles):
    """P2: every acknowledged operation survives kill -9 of the daemon, also twice in a row and during recovery."""
    campaign = Cycles(cairn, rng, directory, shm_directory)
    for _ in range(cycles):
        campaign.run_one()
    cairn.mount()
    campaign.check_old()


def test_view_deleted_after_kill(cairn, rng, directory, shm_directory):
    """P2: recovery rebuilds the view from segments and packs, and nothing acknowledged is lost."""
    campaign = Cycles(cairn, rng, directory, shm_directory)
    campaign.number = 1
    cairn.mount()
    with campaign.load() as writers:
        campaign.moment(writers)
        campaign.kill(writers)
    cairn.mount_anew()
    judge.check_live(campaign.path(1), writers.log)
    picture = judge.snapshot(campaign.path(1))
    cairn.umount()
    cairn.delete_view()
    cairn.drop_stage()
    cairn.mount()
    assert judge.snapshot(campaign.path(1)) == picture
    cairn.umount_whole()


@pytest.mark.needs_mount
def test_drain_on_sigterm(cairn, rng, directory, mnt):
    """SIGTERM drains to NVMe and ends: afterwards nothing needs the stage."""
    data = rig.seeded_bytes(rng.random(), 8 * rig.MIB)
    rig.write_file(os.path.join(mnt, "file"), data)
    cairn.proc.terminate()
    assert cairn.reap() == 0
    cairn.drop_stage()
    cairn.mount()
    assert rig.read_file(os.path.join(mnt, "file")) == data


@pytest.mark.needs_mount
@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_second_signal_ends_at_once(cairn, rng, again):
    """P2: whoever cannot wait until all is carried sends a second signal: the daemon ends, and the next mount has every byte."""
    cairn.mount(writeback_delay="1h")
    contents = {f"file-{number}": rig.seeded_bytes(rng.random(), rng.randrange(1, 4 * rig.MIB)) for number in range(6)}
    rig.write_files(cairn.mnt, contents)
    contents["draft"] = rig.seeded_bytes(rng.random(), rig.MIB)
    draft = os.open(os.path.join(cairn.mnt, "draft"), os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        rig.write_all(draft, contents["draft"])
        stop_in_vain(cairn)
        cairn.proc.send_signal(again)
        assert cairn.reap(10) == 1
    finally:
        with contextlib.suppress(OSError):  # of a dead mount
            os.close(draft)
    assert glob.glob(os.path.join(cairn.stage_dir, "cairn-*"))
    assert rig.mounted_at(cairn.mnt) and not cairn.answers()  # as after kill -9: the next mount takes the place
    cairn.mount()
    assert {name: rig.read_file(os.path.join(cairn.mnt, name)) for name in os.listdir(cairn.mnt)} == contents
    cairn.umount_whole()


def stop_in_vain(cairn):
    """SIGTERM to a daemon that cannot carry: packs are larger than what it may write, its log is not. It tries for ever."""
    pid = cairn.proc.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (64 * rig.KIB, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))
    tried = cairn.log().count("retrying")
    cairn.proc.terminate()
    rig.poll(lambda: "stopping: " in cairn.log() and cairn.log().count("retrying") > tried, 20, "a try to carry")
    assert cairn.proc.poll() is None


def test_a_stage_that_cannot_be_opened_is_left(cairn):
    """P2: what was acknowledged may lie nowhere else. The mount says what it found, and goes on when it can be read again."""
    cairn.mount(writeback_delay="60s")
    rig.write_file(os.path.join(cairn.mnt, "file"), b"content")
    cairn.kill9()
    (control,) = glob.glob(os.path.join(cairn.stage_dir, "*.ctl"))
    before = rig.read_file(control)
    rig.patch(control, 0, b"\0" * 8)
    with pytest.raises(rig.MountError, match="it holds what had not come to NVMe"):
        cairn.mount()
    assert os.path.getsize(control) == len(before)
    rig.patch(control, 0, before[:8])
    cairn.mount()
    assert rig.read_file(os.path.join(cairn.mnt, "file")) == b"content"
    cairn.kill9()
    rig.patch(control, 0, b"\0" * 8)
    os.unlink(os.path.join(cairn.store, "session"))
    cairn.mount()
    assert os.listdir(cairn.mnt) in ([], ["file"])
