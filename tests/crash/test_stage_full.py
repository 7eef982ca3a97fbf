# SPDX-License-Identifier: Apache-2.0
"""P1, P11: four times the stage without pause: full rate, others served, memory bounded."""
import glob
import json
import os
import subprocess
import sys
import threading

import pytest

import processes
import rig

STAGE, TOTAL, FILE = 128 * rig.MIB, 512 * rig.MIB, 64 * rig.MIB
TURNS = 3  # a machine that has something else to do makes it look worse, never better: one good turn will do

# O_DIRECT, so that the daemon answers and not the page cache: another page of NVMe each time, and one of the newest in the stage.
PROBE = """
import json, mmap, os, random, sys, time
directory, stop, seed = sys.argv[1:]
rng = random.Random(seed)
page = mmap.mmap(-1, 4096)
worst = dict.fromkeys(("ls", "read_nvme", "read_stage", "late"), 0.0)
counts = {"nvme": 0, "stage": 0}

def timed(what, function, *args):
    begin = time.monotonic()
    answer = function(*args)
    worst[what] = max(worst[what], time.monotonic() - begin)
    return answer

def ls():
    return [(entry.name, entry.stat().st_size) for entry in os.scandir(directory)]

def read(name, number):
    fd = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_DIRECT)
    assert os.preadv(fd, [page], 4096 * number) == 4096
    os.close(fd)

numbers = list(range(os.path.getsize(os.path.join(directory, "probe")) // 4096))
rng.shuffle(numbers)
print("ready", flush=True)
while not os.path.exists(stop):
    files = timed("ls", ls)
    timed("read_nvme", read, "probe", numbers[counts["nvme"] % len(numbers)])
    counts["nvme"] += 1
    pages, newest = max(((size // 4096, name) for name, size in files if name.startswith("file-")), key=lambda f: f[1], default=(0, ""))
    if pages:
        timed("read_stage", read, newest, pages - 1 - rng.randrange(min(pages, 256)))
        counts["stage"] += 1
    begin = time.monotonic()
    time.sleep(0.005)
    worst["late"] = max(worst["late"], time.monotonic() - begin - 0.005)
print(json.dumps({**worst, **counts}))
"""


class Memory(threading.Thread):
    """The largest resident memory of the daemon."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.largest, self.over = pid, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.02):
            self.largest = max(self.largest, processes.rss_bytes(self.pid))


def write_stream(directory, total, seed):
    """One writer, 16 MiB writes into files of 64 MiB; returns the seconds until the last close, without those for which it got no CPU."""
    block = bytearray(rig.seeded_bytes(seed, 16 * rig.MIB))
    begin, waited = rig.time.monotonic(), processes.waited_for_cpu()
    for number in range(total // FILE):
        with rig.opened(os.path.join(directory, f"file-{number}"), os.O_WRONLY | os.O_CREAT, 0o644) as fd:
            for part in range(4):
                refresh(block, number * 4 + part)
                rig.write_all(fd, block)
    return rig.time.monotonic() - begin - (processes.waited_for_cpu() - waited)


def refresh(block, number):
    """Change 16 bytes of every 4 KiB, so that no chunk equals an earlier one."""
    stamp = number.to_bytes(8, "little") * 2
    for at in range(0, len(block), 4096):
        block[at : at + 16] = stamp


@pytest.mark.alone
@pytest.mark.timeout(240)
@pytest.mark.parametrize("limit", [None, 100 * rig.MIB], ids=["free", "100M"])
def test_four_times_the_stage(cairn, rng, directory, report, sanitized, limit):
    """P1, P11: a program that writes four times the stage waits only for what writeback has to carry; ls and reads of 4 KiB < 100 ms;
    memory bounded."""
    prepare(cairn, limit)
    for turn in range(TURNS):
        for path in glob.glob(os.path.join(cairn.mnt, "file-*")):
            os.unlink(path)
        cairn.wait()
        alone = drain_rate(cairn, turn)
        figures = {**measure(cairn, rng, os.path.join(directory, f"stop-{turn}")), "alone_rate": alone}
        report(f"stage-full-{'100M' if limit else 'free'}", figures)
        if cairn.plain or sanitized:
            return
        assert figures["read_pages"] == figures["nvme"] + figures["stage"], "the daemon did not answer every read"
        assert figures["memory_mib"] <= (STAGE + 256 * rig.MIB) / rig.MIB
        late = lateness(figures, most_seconds(limit, alone))
        if not late:
            return
    raise AssertionError(late)


def lateness(figures, most):
    """What took too long, in words."""
    limits = {"seconds": most, "ls": 0.1, "read_nvme": 0.1, "read_stage": 0.1}
    late = [f"{name}: {figures[name]:.3f} s, at most {limit:.3f}" for name, limit in limits.items() if figures[name] > limit]
    return late + [f"{figures[name]} reads" for name in ("nvme", "stage") if figures[name] < 5]


def prepare(cairn, limit):
    """A mount, and content that only NVMe has: what was carried may stay in the stage as long as there is room."""
    options = {"stage": STAGE, "nvme": "4G", "writeback_limit": limit}
    cairn.mount(**options)
    rig.write_file(os.path.join(cairn.mnt, "probe"), rig.seeded_bytes(1, FILE))
    cairn.remount(**options)


def most_seconds(limit, alone):
    """For the writer: what the stage has no room for is carried meanwhile. `alone`: the rate of writeback while nothing is written."""
    if limit:  # room comes free when a cut is durable: by then up to a file more is carried
        return (TOTAL - STAGE + FILE) / (0.9 * min(limit, alone))
    return (TOTAL - STAGE) / (0.5 * alone)  # one disk, measured twice


def written(cairn):
    return 0 if cairn.plain else cairn.status()["nvme"]["written_bytes_total"]


def drain_rate(cairn, turn):
    """Bytes a second that writeback carries with no limit, while nothing is written: half the stage, three times."""
    seconds, carried = 0.0, 0
    for number in range(3):
        directory = rig.mkdir(os.path.join(cairn.mnt, f"alone-{turn}-{number}"))
        write_stream(directory, FILE, f"alone {turn} {number}")
        before, begin = written(cairn), rig.time.monotonic()
        cairn.wait()
        seconds += rig.time.monotonic() - begin
        carried += written(cairn) - before
    return carried / seconds


def read_pages(cairn):
    return 0 if cairn.plain else cairn.status()["mount"]["read_bytes_total"] // 4096


def measure(cairn, rng, stop):
    memory = Memory((cairn.pids() or [os.getpid()])[0])
    before = read_pages(cairn)
    command = [sys.executable, "-c", PROBE, cairn.mnt, stop, str(rng.random())]
    probe = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    memory.start()
    try:
        assert probe.stdout.readline() == "ready\n"
        seconds = write_stream(cairn.mnt, TOTAL, rng.random())
    finally:
        memory.over.set()
        open(stop, "w").close()
        answer = probe.communicate(timeout=300)[0]
    return {
        **json.loads(answer),
        "seconds": seconds,
        "write_rate": TOTAL / seconds,
        "read_pages": read_pages(cairn) - before,
        "memory_mib": memory.largest / rig.MIB,
    }


def test_file_larger_than_the_stage(cairn, rng):
    """P1: one file of three times the stage, written, read, and there after a crash."""
    cairn.mount(stage="64M")
    path = os.path.join(cairn.mnt, "large")
    data = rig.seeded_bytes(rng.random(), 192 * rig.MIB)
    with open(path, "wb", buffering=0) as file:
        rig.write_all(file.fileno(), data)
        assert rig.read_file(path) == data
    cairn.crash(stage="64M")
    assert rig.read_file(path) == data
    cairn.umount_whole()


@pytest.mark.alone
def test_many_writers_are_served_in_turn(cairn, rng, sanitized):
    """P1: with a full stage, eight writers all come forward: none waits for the others to end."""
    cairn.mount(stage="64M", writeback_limit="60M")
    begin = rig.time.monotonic()

    def write(number):
        with rig.opened(os.path.join(cairn.mnt, f"w{number}"), os.O_WRONLY | os.O_CREAT, 0o644) as fd:
            for part in range(6):
                rig.write_all(fd, rig.seeded_bytes(100 * number + part, 4 * rig.MIB))
        return 0

    ends = []
    pids = {}
    for number in range(8):
        pids[rig.fork(write, number)] = number
    for _ in range(8):
        pid, status = os.wait()
        assert status == 0, f"writer {pids[pid]}"
        ends.append(rig.time.monotonic() - begin)
    if not sanitized and not cairn.plain:
        # The first may have had the empty stage to itself.
        assert ends[2] > 0.4 * max(ends), f"served one after the other: {ends}"
    for number in range(8):
        assert os.path.getsize(os.path.join(cairn.mnt, f"w{number}")) == 24 * rig.MIB
