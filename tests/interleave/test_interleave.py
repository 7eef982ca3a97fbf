# SPDX-License-Identifier: Apache-2.0
"""Several threads and descriptors at one file (P2, P10): what they see and leave is what ext4 gives for the same order of calls.

interleave.c says what the three modes of the program are."""
import os
import random
import subprocess

import pytest

import rig

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(150)]
RUNS, RACES = 9000, 1000  # with --full; else a tenth
DELAYS = ("1ms", "30s")


@pytest.fixture
def ext4(request):
    """A directory on an ext4 of its own, in memory: what it does is what counts, not how fast its disk is."""
    rig.need_root("/dev/loop-control")
    directory = rig.tempfile.mkdtemp(prefix="cairn-test-", dir="/dev/shm")
    request.addfinalizer(lambda: rig.shutil.rmtree(directory, ignore_errors=True))
    image = rig.LoopImage(os.path.join(directory, "ext4.img"), os.path.join(directory, "mnt"), rig.GIB)
    request.addfinalizer(image.close)
    return image.mountpoint


@pytest.fixture
def program(request):
    path = os.path.join(request.config.getoption("--build"), "tests", "interleave", "interleave")
    if not os.access(path, os.X_OK):
        pytest.skip("skipped: the tests were not built (-Dtests=enabled)")
    return path


class Program:
    """The program, which stops and says where; `steps` has what to do then."""

    def __init__(self, *command):
        self.command = [str(part) for part in command]

    def run(self, **steps):
        with subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proc:
            try:
                told = self.talk(proc, steps)
            except BaseException:
                proc.kill()
                raise
        assert told[-1:] == ["done"], f"{' '.join(self.command)}:\n" + "\n".join(told)

    def talk(self, proc, steps):
        told = []
        for line in proc.stdout:
            told.append(line.rstrip("\n"))
            step = steps.get(told[-1])
            if step and step() is not False:
                proc.stdin.write("go on\n")
                proc.stdin.flush()
        return told


@pytest.mark.parametrize("delay", DELAYS)
def test_same_as_ext4_in_any_order(cairn, ext4, program, seed, full, delay):
    """Each call, and every file after a kill or a remount, as on ext4; one call at a time, by several threads."""
    count = RUNS // len(DELAYS) // (1 if full else 10)
    cairn.options.update(writeback_delay=delay, stage="256M")
    cairn.mount()
    urge = "urge" if delay == "1ms" else "rest"
    Program(program, "script", seed, 0, count, urge, cairn.mnt, ext4).run(kill=cairn.crash, remount=cairn.remount)
    cairn.umount_whole()


@pytest.mark.parametrize("delay", DELAYS)
def test_races_leave_what_some_order_leaves(cairn, ext4, program, seed, full, delay):
    """Threads that write slots and truncate at once, also while the daemon dies: nothing that was acknowledged is lost to anything but
    a truncation that may have come later."""
    chance = random.Random(f"{seed} {delay}")
    count = RACES // len(DELAYS) // (1 if full else 10)
    cairn.options.update(writeback_delay=delay, stage="256M")
    cairn.mount()

    def dying():
        rig.time.sleep(chance.uniform(0.0, 0.03))
        cairn.kill9()
        return False  # it goes on by itself

    urge = "urge" if delay == "1ms" else "rest"
    Program(program, "race", seed, 0, count, urge, cairn.mnt, ext4).run(dying=dying, dead=cairn.mount, remount=cairn.remount)
    cairn.umount_whole()


def test_what_a_library_loses_by_its_own_race(ext4, program, report, mnt):
    """DataStates-LLM hands tensors to a thread and then opens the file with O_TRUNC: each that is lost was written before that had
    returned, on the mount as on ext4, which loses them when the open comes late."""
    figures = {}
    for delay in (0, 100, 1000):
        for name, directory in (("mount", mnt), ("ext4", ext4)):
            told = subprocess.run([program, "header", "1", "0", "200", str(delay), directory], capture_output=True, text=True,
                                  check=True).stdout
            words = told.split()
            found = dict(zip(words[::2], map(int, words[1::2])))
            assert found["tensors_lost"] == found["explained"], told
            figures[f"{name}, {delay} us before the open"] = found
    report("interleave-header", figures)
    assert sum(found["tensors_lost"] for found in figures.values()) > 0, "nothing was shown"
